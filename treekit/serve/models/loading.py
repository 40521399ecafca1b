"""A model file as a model in service: read, checked and asked once before it answers anybody."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.errors import (
    ModelFileAccessError,
    ModelFileError,
    ModelFileNotFoundError,
    TreekitError,
)
from treekit.serve.errors import ServeError
from treekit.serve.models.served import Served
from treekit.serve.models.tensors import Spec, Tensor, numpy_type

__all__ = ["SUFFIXES", "Seen", "Stamp", "look_at", "read_served", "stamp_of", "unsteady"]

SUFFIXES = (".treekit", ".onnx")

_VERSION_DIGITS = 12
_TRIES = 3
_PROBE_ROWS = (1, 2)
"""One row and several have kernels of their own, which are compiled now and not by a client."""

Stamp = tuple[int, ...]
"""What tells a file from the one that was there before: device, inode, changes, bytes."""


class Seen(NamedTuple):
    """A file as it was at one time: SHA-256 of its bytes, and its stamp."""

    digest: str
    stamp: Stamp


def stamp_of(path: Path) -> Stamp:
    """The stamp of a file now; FileNotFoundError if there is none."""
    return _stamp(path.stat())


def _stamp(found: Any) -> Stamp:
    # The time of the last change of the inode, too: a copy that keeps its times (cp -p) in the
    # place, and of the size, of another may well have its number.
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def look_at(path: Path) -> Seen:
    """The digest and the stamp of a file, both of one content.

    Raises
    ------
    ModelFileError
        If it is being written all the time.
    ModelFileNotFoundError, ModelFileAccessError
        If it is not there, or cannot be read; these are OSErrors, too.
    """
    try:
        for _ in range(_TRIES):
            with path.open("rb") as stream:
                before = _stamp(os.fstat(stream.fileno()))
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
                if _stamp(os.fstat(stream.fileno())) == before:
                    return Seen(digest, before)
    except FileNotFoundError:
        raise ModelFileNotFoundError(f"there is no model file {str(path)!r}") from None
    except OSError as error:
        raise ModelFileAccessError(
            f"cannot read model file {str(path)!r}: {error.strerror or error}"
        ) from error
    raise unsteady(path)


def unsteady(path: Path) -> ModelFileError:
    """The refusal of a file that is not the same before and after it was read."""
    return ModelFileError(f"{str(path)!r} changes while it is read; write it whole, then rename it")


def read_served(path: Path, name: str, version: str | None, digest: str) -> Served:
    """The model in a file, once it has answered a row.

    Parameters
    ----------
    path : Path
        A ``.treekit`` or ``.onnx`` file.
    name : str
    version : str, optional
        Default: the first digits of the digest.
    digest : str
        As `look_at` has it.

    Raises
    ------
    ModelFileError
        If it is no model, or none that answers.
    """
    try:
        served = _read(path, name, version or digest[:_VERSION_DIGITS], digest)
        _ask(served)
    except OSError:
        raise
    except ModelFileError as error:
        raise ModelFileError(_named(path, str(error))) from error
    # Whatever a stranger's file does to a library must not end the thread that looks at files.
    except Exception as error:
        reason = str(error) if isinstance(error, TreekitError) else f"{error!r}"
        raise ModelFileError(_named(path, reason)) from error
    return served


def _named(path: Path, reason: str) -> str:
    """The reason, with the file that it is about."""
    return reason if str(path) in reason else f"{str(path)!r} cannot be served: {reason}"


def _read(path: Path, name: str, version: str, digest: str) -> Served:
    if path.suffix == ".onnx":
        from treekit.serve.models.of_onnx import read_onnx_served

        return read_onnx_served(path, name, version, digest)
    from treekit.model.model_file import load
    from treekit.serve.models.of_treekit import TreekitServed

    return TreekitServed(name, version, digest, load(path))


def _ask(served: Served) -> None:
    """Ask for the usual outputs, and the leaf, which has a kernel of its own, of made-up rows."""
    known = {spec.name for spec in served.outputs}
    wanted = (*served.usual, *({"leaf"} & known))
    ours = served.model is not None
    try:
        for rows in _PROBE_ROWS if ours else (1,):
            tensors = [_cells(served, spec, rows) for spec in served.inputs]
            for output in served.answer(served.read(tensors), wanted):
                if not output.cells.size:
                    raise ModelFileError(f"its output {output.name!r} of {rows} rows is empty")
    except ServeError:
        if ours:
            raise
        # A strange graph may refuse a row of zeros and empty texts, and be right to.


def _cells(served: Served, spec: Spec, rows: int) -> Tensor:
    """Cells that every policy takes: zeros, and first levels of a vocabulary."""
    shape = tuple(rows if place == 0 and n < 0 else max(n, 1) for place, n in enumerate(spec.shape))
    dtype = numpy_type(spec.name, spec.datatype)
    cells: npt.NDArray[Any] = np.zeros(shape, dtype)
    if dtype.hasobject:
        cells[...] = _first_level(served, spec.name)
    return Tensor(spec.name, spec.datatype, cells)


def _first_level(served: Served, name: str) -> str:
    columns = served.model.schema.columns if served.model is not None else ()
    return next((c.levels[0] for c in columns if c.name == name and c.levels), "")
