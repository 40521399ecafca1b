"""A model file as a model in service: read, checked and asked once before it answers anybody."""

from __future__ import annotations

import hashlib
from pathlib import Path

from treekit.errors import ModelFileAccessError, ModelFileError, ModelFileNotFoundError
from treekit.serve.served import Served

__all__ = ["SUFFIXES", "Stamp", "read_served", "stamp_of"]

SUFFIXES = (".treekit", ".onnx")

_VERSION_DIGITS = 12
_TRIES = 3

Stamp = tuple[int, int, int]
"""What tells a file from the one that was there before: inode, time of change, bytes."""


def stamp_of(path: Path) -> Stamp:
    """The stamp of a file now; FileNotFoundError if there is none."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_served(path: Path, name: str, version: str | None = None) -> tuple[Served, Stamp]:
    """The model in a file, and the stamp that the file had.

    Parameters
    ----------
    path : Path
        A ``.treekit`` or ``.onnx`` file.
    name : str
    version : str, optional
        Default: the first digits of the file's SHA-256.

    Raises
    ------
    ModelFileError
        If it is no model, or is being written all the time.
    """
    for _ in range(_TRIES):
        try:
            before = stamp_of(path)
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except FileNotFoundError:
            raise ModelFileNotFoundError(f"there is no model file {str(path)!r}") from None
        except OSError as error:
            raise ModelFileAccessError(
                f"cannot read model file {str(path)!r}: {error.strerror or error}"
            ) from error
        served = _read(path, name, version or digest[:_VERSION_DIGITS], digest)
        if stamp_of(path) == before:
            return served, before
    raise ModelFileError(f"{str(path)!r} changes while it is read; write it whole, then rename it")


def _read(path: Path, name: str, version: str, digest: str) -> Served:
    if path.suffix == ".onnx":
        from treekit.serve.of_onnx import read_onnx_served

        return read_onnx_served(path, name, version, digest)
    from treekit.model.store import load
    from treekit.serve.of_treekit import TreekitServed

    return TreekitServed(name, version, digest, load(path))
