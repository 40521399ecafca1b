"""The five hooks of treekit, on one screen.

A plugin module implements any of them with `treekit.hookimpl` and is named in
its package's metadata::

    [project.entry-points.treekit]
    hellinger = "treekit_hellinger"
"""

from __future__ import annotations

import pluggy

from treekit.contracts import Criterion, Exporter, Importer, Pruner, Splitter

__all__ = ["PROJECT", "hookimpl", "hookspec"]

PROJECT = "treekit"
"""The name of pluggy's project, and of the group of entry points."""
hookspec = pluggy.HookspecMarker(PROJECT)
"""Marks the hooks below; treekit's own."""
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's function of a hook's name: ``@treekit.hookimpl`` above it."""


@hookspec
def treekit_criteria() -> list[Criterion]:  # type: ignore[empty-body]
    """Split criteria."""


@hookspec
def treekit_splitters() -> list[Splitter]:  # type: ignore[empty-body]
    """Ways to find a node's split."""


@hookspec
def treekit_pruners() -> list[Pruner]:  # type: ignore[empty-body]
    """Rules that keep trees small."""


@hookspec
def treekit_exporters() -> list[Exporter]:  # type: ignore[empty-body]
    """Targets that models are written for."""


@hookspec
def treekit_importers() -> list[Importer]:  # type: ignore[empty-body]
    """Foreign models that treekit reads."""
