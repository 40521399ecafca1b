"""Committed snapshots of treekit's public interfaces and outputs, to detect every change.

``python -m tests.snapshots [NAME...]`` updates them; the differences are reviewed as part of
the commit.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

__all__ = ["FOLDER", "GOLDEN", "SNAPSHOTS"]

FOLDER = Path(__file__).parent


def _make(module: str, function: str, *arguments: str) -> str:
    """Import a module and call one of its functions."""
    text: str = getattr(importlib.import_module(module), function)(*arguments)
    return text


GOLDEN = {
    "golden/horse.c": "c",
    "golden/horse.h": "c",
    "golden/horse.py": "python",
    "golden/horse.rs": "rust",
    "golden/horse.sql": "sql dialect=duckdb form=readable",
    "golden/horse.rules": "rules",
    "golden/horse.md": "document form=markdown language=zh",
    "golden/horse.html": "document form=html",
}
"""Artifacts of `trained_cost_complexity` stored as text, to review changes, and their forms."""

SNAPSHOTS: dict[str, Callable[[], str]] = {
    "artifacts.txt": partial(_make, "tests.snapshots.artifacts", "text"),
    "commands.txt": partial(_make, "tests.snapshots.public_api", "commands"),
    "public_names.txt": partial(_make, "tests.snapshots.public_api", "public_names"),
    "server.txt": partial(_make, "tests.snapshots.server_api", "server"),
    **{name: partial(_make, "tests.snapshots.artifacts", "golden", name) for name in GOLDEN},
    "settings.txt": partial(_make, "tests.snapshots.public_api", "settings"),
}
"""Function that returns the text of each file."""
