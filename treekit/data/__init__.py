"""Read tables of any kind as named, typed and coded columns."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

__all__ = ["DEMO_TARGET", "demo_table"]

DEMO_TARGET = "surgical_lesion"
"""Target column of `demo_table`."""


def demo_table() -> Path:
    """Return the path of the table that ships with treekit: horses with colic (see its README)."""
    return Path(str(resources.files(__name__) / "tables" / "horse_colic.csv"))
