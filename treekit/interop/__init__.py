"""Reading models that other libraries fitted."""

from __future__ import annotations

from typing import Any

from treekit.errors import ModelError
from treekit.model.ensemble import Model

__all__ = ["read_model"]


def read_model(source: Any, **settings: Any) -> Model:
    """A foreign model as a `Model`, by the first importer that recognises it.

    Parameters
    ----------
    source : object or pathlib.Path
        A fitted estimator, or the file of a model.
    **settings
        Passed on to the importer.

    Raises
    ------
    ModelError
        If no installed importer recognises `source`.
    """
    from treekit import registry

    importers = registry.importers()
    for importer in importers.values():
        if importer.recognises(source):
            return importer.read(source, **settings)
    kind = type(source)
    known = ", ".join(sorted(importers)) or "none"
    raise ModelError(
        f"no importer recognises a {kind.__module__}.{kind.__qualname__}; installed: {known}. "
        "Pass a fitted estimator, or install a plugin that reads it"
    )
