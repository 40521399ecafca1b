"""The hooks of treekit.

A plugin module implements any of them with `treekit.hookimpl` and is named in
its package's metadata, in the group of each hook that it implements::

    [project.entry-points."treekit.criteria"]
    hellinger = "treekit_hellinger"

It is imported when treekit first needs components of that kind from plugins.  A module of the
group ``treekit`` may implement all hooks, and is imported for each of them.
"""

from __future__ import annotations

import pluggy

from treekit.contracts import (
    Criterion,
    Document,
    Explainer,
    Exporter,
    Importer,
    Pruner,
    Simplifier,
    Splitter,
)

__all__ = ["PROJECT", "hookimpl", "hookspec"]

PROJECT = "treekit"
"""Name of the pluggy project, with which the names of entry-point groups begin."""
hookspec = pluggy.HookspecMarker(PROJECT)
"""Marker of the hooks below, for treekit only."""
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marker of a plugin's hook functions: ``@treekit.hookimpl``."""


@hookspec
def treekit_criteria() -> list[Criterion]:  # type: ignore[empty-body]
    """Return split criteria."""


@hookspec
def treekit_splitters() -> list[Splitter]:  # type: ignore[empty-body]
    """Return splitters, which find a node's split."""


@hookspec
def treekit_pruners() -> list[Pruner]:  # type: ignore[empty-body]
    """Return pruners."""


@hookspec
def treekit_exporters() -> list[Exporter]:  # type: ignore[empty-body]
    """Return exporters, which write models for a target language or runtime."""


@hookspec
def treekit_importers() -> list[Importer]:  # type: ignore[empty-body]
    """Return importers, which read models of other libraries."""


@hookspec
def treekit_documents() -> list[Document]:  # type: ignore[empty-body]
    """Return documents, which write rules in a format such as HTML."""


@hookspec
def treekit_simplifiers() -> list[Simplifier]:  # type: ignore[empty-body]
    """Return simplifiers, which learn a short rule list from a model."""


@hookspec
def treekit_explainers() -> list[Explainer]:  # type: ignore[empty-body]
    """Return explainers, which add to the explanation of a prediction."""
