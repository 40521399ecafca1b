"""Tables of any kind, turned into named typed columns and codes."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

__all__ = ["DEMO_TARGET", "demo_table"]

DEMO_TARGET = "surgical_lesion"
"""Target column of `demo_table`."""


def demo_table() -> Path:
    """Path of the table that ships with treekit: horses with colic (see its README)."""
    return Path(str(resources.files(__name__) / "tables" / "horse_colic.csv"))
