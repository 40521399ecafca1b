"""Benchmarks of treekit and its peers, all sides in one run; see README.md."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.frame import Benchmark

__all__ = ["MODULES", "everything"]

MODULES = (
    "training", "scoring", "generated_c", "generated_deep", "pruning", "startup", "small",
    "files", "scaling", "accuracy", "missing", "forest_defaults", "third_party", "foreign",
    "rules", "serving", "distributed", "doubling",
)  # fmt: skip
"""Modules that register benchmarks, in the order of the list."""


def everything() -> dict[str, Benchmark]:
    """Return all benchmarks by name."""
    from benchmarks.frame import BENCHMARKS

    for name in MODULES:
        importlib.import_module(f"benchmarks.{name}")
    return BENCHMARKS
