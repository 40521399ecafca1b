"""Zig exporter for treekit, made from a folder of templates."""

from __future__ import annotations

from pathlib import Path

from treekit import Exporter, hookimpl


@hookimpl
def treekit_exporters() -> list[Exporter]:
    """Register the exporter."""
    from treekit.exporting import language_exporter

    return [language_exporter(Path(__file__).with_name("templates") / "zig")]
