"""Zig as a target of treekit: a folder of templates, and the line that names it."""

from __future__ import annotations

from pathlib import Path

from treekit import Exporter, hookimpl
from treekit.exporting import language_exporter


@hookimpl
def treekit_exporters() -> list[Exporter]:
    """Offer the target to treekit."""
    return [language_exporter(Path(__file__).with_name("templates") / "zig")]
