"""Committed texts of what treekit shows to its users, so that no change of it goes unnoticed.

``python -m tests.snapshots [NAME...]`` writes them anew; the change is then part of the commit
and is reviewed as one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

__all__ = ["FOLDER", "SNAPSHOTS"]

FOLDER = Path(__file__).parent


def _make(module: str, function: str) -> str:
    """Call a function of a module, which is imported only now."""
    text: str = getattr(importlib.import_module(module), function)()
    return text


SNAPSHOTS: dict[str, Callable[[], str]] = {
    "artifacts.txt": partial(_make, "tests.snapshots.artifacts", "text"),
    "commands.txt": partial(_make, "tests.snapshots.public_api", "commands"),
    "public_names.txt": partial(_make, "tests.snapshots.public_api", "public_names"),
    "server.txt": partial(_make, "tests.snapshots.server_api", "server"),
    "settings.txt": partial(_make, "tests.snapshots.public_api", "settings"),
}
"""File name to the function that returns its text."""
