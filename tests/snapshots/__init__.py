"""Committed snapshots of treekit's public interfaces and outputs, to detect every change.

``python -m tests.snapshots [NAME...]`` updates them; the differences are reviewed as part of
the commit.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

__all__ = ["FOLDER", "SNAPSHOTS"]

FOLDER = Path(__file__).parent


def _make(module: str, function: str) -> str:
    """Import a module and call one of its functions."""
    text: str = getattr(importlib.import_module(module), function)()
    return text


SNAPSHOTS: dict[str, Callable[[], str]] = {
    "artifacts.txt": partial(_make, "tests.snapshots.artifacts", "text"),
    "commands.txt": partial(_make, "tests.snapshots.public_api", "commands"),
    "public_names.txt": partial(_make, "tests.snapshots.public_api", "public_names"),
    "server.txt": partial(_make, "tests.snapshots.server_api", "server"),
    "settings.txt": partial(_make, "tests.snapshots.public_api", "settings"),
}
"""Function that returns the text of each file."""
