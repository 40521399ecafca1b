"""Reading models that other libraries fitted."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from treekit.errors import ModelError, TreekitWarning
from treekit.model.ensemble import Model

if TYPE_CHECKING:
    from treekit.contracts import Importer
    from treekit.discovery import Component

__all__ = ["read_model"]


def read_model(source: Any, **settings: Any) -> Model:
    """A foreign model as a `Model`, by the first importer that recognises it.

    Parameters
    ----------
    source : object or pathlib.Path
        A fitted estimator, or the file of a model.
    **settings
        Of the importer that recognises `source`.

    Raises
    ------
    ModelError
        If no installed importer recognises `source`.
    SettingError
        For a setting that the importer does not have.
    PluginError
        If two plugins offer that importer.
    """
    from treekit import registry
    from treekit.settings import resolve

    catalogue = registry.importers()
    for component in catalogue.found:
        if _recognises(component, source):
            # By name: two importers of one name are an error.
            importer = cast("Importer", catalogue[component.name].record)
            where = f"importer {importer.name!r}"
            return importer.read(source, **resolve(importer.settings, settings, where))
    raise ModelError(
        f"no importer recognises {_named(source)}; installed: {', '.join(catalogue) or 'none'}. "
        "Pass a fitted estimator, or install a plugin that reads it"
    )


def _recognises(component: Component, source: Any) -> bool:
    """Whether an importer takes `source`; one that fails is passed over, with a warning."""
    importer = cast("Importer", component.record)
    try:
        return bool(importer.recognises(source))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        warnings.warn(
            f"importer {importer.name!r} of {component.distribution} {component.version} failed "
            f"to look at {_named(source)}: {type(error).__name__}: {error}. It is passed over; "
            f"update or uninstall {component.distribution}",
            TreekitWarning,
            stacklevel=3,
        )
        return False


def _named(source: Any) -> str:
    if isinstance(source, Path):
        return f"the file {source.name!r}"
    return f"a {type(source).__module__}.{type(source).__qualname__}"
