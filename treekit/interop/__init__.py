"""Import models of other libraries."""

from __future__ import annotations

import os
import re
import reprlib
import warnings
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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
from treekit.registry.isolation import FOREIGN_ERRORS, call_isolated, describe_error

if TYPE_CHECKING:
    from treekit.contracts import Importer
    from treekit.registry.discovery import Component

__all__ = [
    "MAX_BYTES",
    "UNKNOWN_REMEDY",
    "beginning",
    "find_class_name",
    "importer_of",
    "read_model",
    "read_whole",
    "refuse_overrides",
    "refuse_unknown",
]


# ---------------------------------------------------------------- importers

_PICKLE_SUFFIXES = (".pkl", ".pickle", ".joblib")
_PLUGIN_CLASSES = (
    *("Booster", "LGBMModel", "XGBModel", "ModelProto", "CatBoost"),
    *("RandomForestModel", "GradientBoostedTreesModel"),
)
_PLUGIN_FILES: dict[str, tuple[tuple[str, ...], bytes]] = {
    "catboost": ((".json", ".cbm"), rb'CBM1|\s*\{\s*"(ctr_data|features_info)"\s*:'),
    "lightgbm": ((".txt", ".lgb", ".model"), rb"tree\r?\n"),
    "onnx": ((".onnx",), rb"\x08"),
    "skops": ((".skops",), rb"PK\x03\x04"),
    "xgboost": ((".json", ".ubj"), rb'\s*\{\s*"(learner|version)"\s*:|\{L.{8}learner'),
    "ydf": ((), rb"(?!)"),  # a folder
}
"""Suffixes and first bytes of the files that the plugin treekit-importers imports."""


def read_model(source: Any, **settings: Any) -> Model:
    """Import a model of another library with the first importer that recognises it.

    Parameters
    ----------
    source : object, str or pathlib.Path
        A fitted object of scikit-learn; with the plugin treekit-importers also an ONNX
        `ModelProto`, an object of CatBoost, LightGBM, XGBoost or YDF, or the path of a file of
        ONNX, skops, CatBoost, LightGBM or XGBoost, or of a folder of YDF.
        The modules of the importers document which predictions are equal to the last bit.
    **settings
        Settings of the importer: ``answer="margins"`` for the raw scores of boosted
        trees, ``dtype="float64"``.

    Raises
    ------
    ModelError
        If no installed importer recognises `source`, or it is a pickle; names the plugin
        to install for a model of ONNX, skops or these libraries.
    SettingError
        If the importer does not have a setting.
    PluginError
        If two plugins provide that importer, or it fails, or returns no model.
    """
    from treekit.settings import resolve

    source = Path(source) if isinstance(source, str) else source
    importer = importer_of(source)
    where = f"importer {importer.name!r}"
    return _read_checked(importer, source, resolve(importer.settings, settings, where))


def importer_of(source: Any) -> Importer:
    """Return the first installed importer that recognises `source`.

    Raises
    ------
    ModelError
        If there is none, or `source` is a pickle.
    PluginError
        If two plugins provide that importer.
    """
    from treekit import registry

    catalogue = registry.list("importer")
    for component in catalogue.found:
        if _is_recognised(component, source):
            # Look it up by name, because two importers of one name are an error.
            return cast("Importer", catalogue[component.name].record)
    if isinstance(source, Path) and source.suffix.lower() in _PICKLE_SUFFIXES:
        raise ModelError(
            f"the file {source.name!r} is a pickle, which can execute code, so treekit does not "
            "load it: load it yourself if you trust it and pass the object, or save the model in "
            "another format of its library"
        )
    for library, (suffixes, start) in _PLUGIN_FILES.items():
        is_model = re.match(start, beginning(source, suffixes), re.DOTALL) or find_class_name(
            source, library, _PLUGIN_CLASSES
        )
        if is_model and library not in catalogue:
            raise ModelError(
                f"{_describe_source(source)} is a model of {library}, whose importer is in the "
                "plugin treekit-importers, which is not installed; run "
                "pip install treekit-importers, or in treekit's repository "
                "pip install ./plugins/treekit-importers"
            )
    raise ModelError(
        f"no importer recognises {_describe_source(source)}; installed: "
        f"{', '.join(catalogue) or 'none'}. "
        "Pass a fitted estimator or the path of a model file, or install a plugin for it"
    )


def _is_recognised(component: Component, source: Any) -> bool:
    """Return whether an importer recognises `source`; if it fails, warn and return False."""
    importer = cast("Importer", component.record)
    who = f"importer {importer.name!r} of {component.distribution} {component.version}"
    try:
        return bool(call_isolated(who, importer.recognises, source))
    except FOREIGN_ERRORS as error:
        warnings.warn(
            f"{who} failed to inspect {_describe_source(source)}: {describe_error(error)}. It is "
            "skipped; "
            f"update or uninstall {component.distribution}",
            TreekitWarning,
            stacklevel=3,
        )
        return False


def _read_checked(importer: Importer, source: Any, settings: dict[str, Any]) -> Model:
    """Read a model with an importer, and validate the model if the importer is a plugin."""
    from treekit import registry
    from treekit.model.validation import check_model

    if not registry.is_foreign(importer):
        return cast(Model, importer.read(source, **settings))
    who = registry.described(importer)
    try:
        model: Any = call_isolated(who, importer.read, source, **settings)
        if not isinstance(model, Model):
            raise TypeError(f"read returned a {type(model).__name__}, not a treekit.Model")
    except TreekitError:
        raise
    except FOREIGN_ERRORS as error:
        raise PluginError(
            f"{who} failed to read {_describe_source(source)}: {describe_error(error)}"
        ) from error
    try:
        check_model(model)
    except FOREIGN_ERRORS as error:
        raise PluginError(
            f"{who} read a malformed model from {_describe_source(source)}: {describe_error(error)}"
        ) from error
    return model


def _describe_source(source: Any) -> str:
    """Describe a source for messages."""
    if isinstance(source, Path):
        return f"the file {source.name!r}"
    return f"a {type(source).__module__}.{type(source).__qualname__}"


def find_class_name(source: Any, package: str, names: tuple[str, ...]) -> str | None:
    """Return the first class of `package` that an object is of, if it is one of `names`.

    Imports nothing, and ignores virtual subclasses, such as treekit's estimators.

    Parameters
    ----------
    source : object
    package : str
        Top-level package: ``"sklearn"``.
    names : tuple of str
    """
    for kind in type(source).__mro__:
        if kind.__module__.partition(".")[0] == package and kind.__name__ in names:
            return kind.__name__
    return None


_HARMLESS_OVERRIDES = (
    *("_abc_impl", "_get_param_names", "_more_tags", "_parameter_constraints", "_repr_html_"),
    *("fit", "get_params", "score"),
)
"""What subclasses may override, besides special names and ``set_*``: predictions do without it."""


def refuse_overrides(source: Any, package: str) -> None:
    """Raise an error if an object overrides what predicts in the class of a library.

    Parameters
    ----------
    source : object
        Its class is one of `package`, or a subclass.
    package : str
        Top-level package: ``"sklearn"``.

    Raises
    ------
    ModelError
        If a subclass, or the object itself, defines something that the library's class has.
    """
    own = type(source)
    kinds = own.__mro__
    base = next(kind for kind in kinds if kind.__module__.partition(".")[0] == package)
    of_object = {name for name in vars(source) if callable(getattr(base, name, None))}
    for names in (of_object, *(vars(kind) for kind in kinds[: kinds.index(base)])):
        for name in sorted(names):
            is_harmless = name in _HARMLESS_OVERRIDES or name.startswith(("__", "set_"))
            if hasattr(base, name) and (not is_harmless or name == "__getattribute__"):
                raise ModelError(
                    f"the class {own.__module__}.{own.__qualname__} overrides {name!r} of "
                    f"{package}'s {base.__name__}, which may change predictions; pass an object "
                    f"of {package}'s own class, or remove {name!r}"
                )


UNKNOWN_REMEDY = (
    "update treekit and its plugins, or train or save the model with an earlier version of its "
    "library"
)
"""Remedy for a model of which an importer does not know a part."""


def refuse_unknown(
    found: Mapping[str, Any],
    known: Container[str],
    source: str,
    path: str = "",
    remedy: str = UNKNOWN_REMEDY,
) -> None:
    """Raise an error for the first entry that is not known, as it may change predictions.

    Parameters
    ----------
    found : mapping of str to object
    known : container of str
        Entries that the importer reads, and those that predictions do not depend on.
    source : str
        Description of the source in messages: ``"the LightGBM model"``.
    path : str
        Position of the entries in the source, which precedes their names.
    remedy : str

    Raises
    ------
    ModelError
        If there is an unknown entry; names it and its value.
    """
    for name, value in found.items():
        if name not in known:
            raise ModelError(
                f"{source} has the unknown entry {path + name!r:.120} = {reprlib.repr(value)}, "
                f"which may change predictions; {remedy}"
            )


# ---------------------------------------------------------------- files

MAX_BYTES = 2**31
"""Maximum size of a file.

The memory of each importer is bounded by a multiple of the file size, stated in its
module's docstring.
"""


def beginning(source: Any, suffixes: tuple[str, ...], n: int = 256) -> bytes:
    """Return the first `n` bytes of a regular file with one of the suffixes, else ``b""``.

    Never raises; `source` may be any object.
    """
    if not isinstance(source, Path) or source.suffix.lower() not in suffixes:
        return b""
    try:
        if not source.is_file():
            return b""
        with source.open("rb") as stream:
            return stream.read(n)
    except (OSError, ValueError):  # ValueError: an invalid path
        return b""


def read_whole(path: Path) -> bytes:
    """Read all bytes of a file.

    Raises
    ------
    ModelFileError
        If it is larger than `MAX_BYTES`.
    ModelFileNotFoundError, ModelFileAccessError
        If it does not exist, or cannot be read.
    """
    try:
        with path.open("rb") as stream:
            # Limit the read, because `read` first allocates a buffer of the given size.
            size = os.fstat(stream.fileno()).st_size
            content = stream.read(min(size, MAX_BYTES) + 1)
    except FileNotFoundError as error:
        raise ModelFileNotFoundError(f"there is no file {str(path)!r}; check the path") from error
    except (OSError, ValueError) as error:
        raise ModelFileAccessError(f"cannot read {str(path)!r}: {error}") from error
    if len(content) > MAX_BYTES:
        raise ModelFileError(f"{str(path)!r} is larger than {MAX_BYTES} bytes, the maximum")
    if len(content) > size:
        raise ModelFileAccessError(f"{str(path)!r} is not a regular file, or grew while being read")
    return content
