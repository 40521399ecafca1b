"""Reports on rules: overlaps, conflicts and gaps; performance on new rows."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from treekit import Document, hookimpl

if TYPE_CHECKING:
    from treekit.documents import Listing
    from treekit_audit.drift import DriftReport, rules_against
    from treekit_audit.overlaps import Overlaps, overlapping_rules

__all__ = [
    "DriftReport",
    "Overlaps",
    "overlapping_rules",
    "rules_against",
    "treekit_documents",
]

treekit_contract = 2

_MODULE_OF = {
    "DriftReport": "drift",
    "Overlaps": "overlaps",
    "overlapping_rules": "overlaps",
    "rules_against": "drift",
}


def _render_overlaps(listing: Listing) -> Iterator[str]:
    from treekit_audit.overlaps import render_overlaps

    return render_overlaps(listing)


def _render_drift(listing: Listing) -> Iterator[str]:
    from treekit_audit.drift import render_drift

    return render_drift(listing)


@hookimpl
def treekit_documents() -> list[Document]:
    """Register the reports."""
    return [
        Document(
            "overlaps",
            ".overlaps.txt",
            _render_overlaps,
            summary="a report of rules that overlap or are never reached",
            measured=False,
        ),
        Document(
            "drift",
            ".drift.txt",
            _render_drift,
            summary="a report of each rule's performance on a table",
            measured=False,
        ),
    ]


def __getattr__(name: str) -> Any:
    # Imported on first use: treekit imports this module at start-up.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
