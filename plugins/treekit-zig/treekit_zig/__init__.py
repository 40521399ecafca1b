"""Zig as a target of treekit: templates, and the record that names them."""

from __future__ import annotations

from pathlib import Path

from treekit import Exporter, hookimpl
from treekit.exporting import Language, template_exporter

ZIG = Language(strings="bytes", floats="hex")
"""A literal is ``comptime_float``, of 128 bits: decimals would be rounded twice."""


@hookimpl
def treekit_exporters() -> list[Exporter]:
    """Offer the target to treekit."""
    return [
        template_exporter(
            "zig",
            ".zig",
            Path(__file__).with_name("templates"),
            "zig/model.jinja",
            ZIG,
            abilities=("sums", "parts", "costs", "targets"),
            summary="Zig source for any device and WebAssembly, no libraries",
        )
    ]
