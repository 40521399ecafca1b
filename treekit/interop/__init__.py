"""Reading models that other libraries fitted."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from treekit.errors import ModelError, PluginError, TreekitError, TreekitWarning
from treekit.isolation import FOREIGN, cause, isolated
from treekit.model.model import Model

if TYPE_CHECKING:
    from treekit.contracts import Importer
    from treekit.discovery import Component

__all__ = ["importer_of", "read_model"]

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
        return importer.read(source, **settings)
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
