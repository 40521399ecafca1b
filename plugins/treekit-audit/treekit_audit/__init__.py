"""Reports on rules: overlaps, conflicts and gaps; performance on new rows."""

from __future__ import annotations

from treekit import Document, hookimpl
from treekit_audit.drift import DriftReport, render_drift, rules_against
from treekit_audit.overlaps import Overlaps, overlapping_rules, render_overlaps

__all__ = [
    "DriftReport",
    "Overlaps",
    "overlapping_rules",
    "rules_against",
    "treekit_documents",
]

treekit_contract = 2


@hookimpl
def treekit_documents() -> list[Document]:
    """Register the reports."""
    return [
        Document(
            "overlaps",
            ".overlaps.txt",
            render_overlaps,
            summary="a report of rules that overlap or are never reached",
            measured=False,
        ),
        Document(
            "drift",
            ".drift.txt",
            render_drift,
            summary="a report of each rule's performance on a table",
            measured=False,
        ),
    ]
