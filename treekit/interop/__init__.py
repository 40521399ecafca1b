"""Reading models that other libraries fitted."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from treekit.discovery import FOREIGN, cause, isolated
from treekit.errors import (
    ModelError,
    ModelFileAccessError,
    ModelFileError,
    ModelFileNotFoundError,
    PluginError,
    TreekitError,
    TreekitWarning,
)
from treekit.model.model import Model

if TYPE_CHECKING:
    from treekit.contracts import Importer
    from treekit.discovery import Component

__all__ = [
    "MAX_BYTES",
    "beginning",
    "importer_of",
    "read_model",
    "read_whole",
]


# ---------------------------------------------------------------- interop

_PICKLES = (".pkl", ".pickle", ".joblib")


def read_model(source: Any, **settings: Any) -> Model:
    """A foreign model as a `Model`, by the first importer that recognises it.

    Parameters
    ----------
    source : object or pathlib.Path
        A fitted object of scikit-learn, LightGBM or XGBoost, an ONNX `ModelProto`, or
        a file: a LightGBM text, an XGBoost JSON or UBJSON, ONNX, or of skops.  See
        the module of each under `treekit.interop` for what is equal to the last bit.
    **settings
        Of the importer that recognises `source`: ``answer="margins"`` for the raw
        scores of boosted trees, ``dtype="float64"``, ``iterations``.

    Raises
    ------
    ModelError
        If no installed importer recognises `source`, or it is a pickle.
    SettingError
        For a setting that the importer does not have.
    PluginError
        If two plugins offer that importer, or it fails, or reads no model.
    """
    from treekit.settings import resolve

    importer = importer_of(source)
    where = f"importer {importer.name!r}"
    return _read(importer, source, resolve(importer.settings, settings, where))


def importer_of(source: Any) -> Importer:
    """The first installed importer that recognises `source`.

    Raises
    ------
    ModelError
        If none does, or `source` is a pickle.
    PluginError
        If two plugins offer that importer.
    """
    from treekit import registry

    catalogue = registry.importers()
    for component in catalogue.found:
        if _recognises(component, source):
            # By name: two importers of one name are an error.
            return cast("Importer", catalogue[component.name].record)
    if isinstance(source, Path) and source.suffix.lower() in _PICKLES:
        raise ModelError(
            f"the file {source.name!r} is a pickle, which runs what it holds, so treekit does not "
            "load it: load it yourself where you trust it and pass the object, or let its library "
            "write a file of another form"
        )
    raise ModelError(
        f"no importer recognises {_named(source)}; installed: {', '.join(catalogue) or 'none'}. "
        "Pass a fitted estimator, or the pathlib.Path of a model file, or install a plugin that "
        "reads it"
    )


def _recognises(component: Component, source: Any) -> bool:
    """Whether an importer takes `source`; one that fails is passed over, with a warning."""
    importer = cast("Importer", component.record)
    who = f"importer {importer.name!r} of {component.distribution} {component.version}"
    try:
        return bool(isolated(who, importer.recognises, source))
    except FOREIGN as error:
        warnings.warn(
            f"{who} failed to look at {_named(source)}: {cause(error)}. It is passed over; "
            f"update or uninstall {component.distribution}",
            TreekitWarning,
            stacklevel=3,
        )
        return False


def _read(importer: Importer, source: Any, settings: dict[str, Any]) -> Model:
    """The model that an importer reads, checked as one from a file is."""
    from treekit import registry
    from treekit.model.validation import check_model

    if not registry.is_foreign(importer):
        return cast(Model, importer.read(source, **settings))
    who = registry.described(importer)
    try:
        model: Any = isolated(who, importer.read, source, **settings)
        if not isinstance(model, Model):
            raise TypeError(f"read returned a {type(model).__name__}, not a treekit.Model")
    except TreekitError:
        raise
    except FOREIGN as error:
        raise PluginError(f"{who} failed to read {_named(source)}: {cause(error)}") from error
    try:
        check_model(model)
    except FOREIGN as error:
        raise PluginError(
            f"{who} read a malformed model from {_named(source)}: {cause(error)}"
        ) from error
    return model


def _named(source: Any) -> str:
    if isinstance(source, Path):
        return f"the file {source.name!r}"
    return f"a {type(source).__module__}.{type(source).__qualname__}"


# ---------------------------------------------------------------- files
# Foreign files: what they begin with, and all of it, within a bound.

MAX_BYTES = 2**31
"""Largest file that is read.

Reading takes a multiple of the file's size, which each importer states; a file
can make no reader take more than that.
"""


def beginning(source: Any, suffixes: tuple[str, ...], n: int = 256) -> bytes:
    """The first `n` bytes of a regular file of one of these endings; nothing of all else.

    Never raises: `source` may be any object, and any path.
    """
    if not isinstance(source, Path) or source.suffix.lower() not in suffixes:
        return b""
    try:
        if not source.is_file():
            return b""
        with source.open("rb") as stream:
            return stream.read(n)
    except (OSError, ValueError):  # a path that no file can have
        return b""


def read_whole(path: Path) -> bytes:
    """All bytes of a file.

    Raises
    ------
    ModelFileError
        If it is larger than `MAX_BYTES`.
    ModelFileNotFoundError, ModelFileAccessError
        If it is not there, or cannot be read.
    """
    try:
        with path.open("rb") as stream:
            # Not all that may be there: a buffer of that size would be made first.
            size = os.fstat(stream.fileno()).st_size
            content = stream.read(min(size, MAX_BYTES) + 1)
    except FileNotFoundError as error:
        raise ModelFileNotFoundError(f"there is no file {str(path)!r}; check the path") from error
    except (OSError, ValueError) as error:
        raise ModelFileAccessError(f"cannot read {str(path)!r}: {error}") from error
    if len(content) > MAX_BYTES:
        raise ModelFileError(f"{str(path)!r} is larger than {MAX_BYTES} bytes, the bound")
    if len(content) > size:
        raise ModelFileAccessError(f"{str(path)!r} is no file, or grows while it is read")
    return content
