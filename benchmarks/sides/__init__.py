"""Learners to compare: treekit and its peers, one module each.

Settings that make the work equal are in the module of their side, with the reason. Peers
are optional: `absent` checks whether one is installed.
"""

from __future__ import annotations

import importlib
import importlib.util

from benchmarks.sides.learner import Learner, Work

__all__ = ["LIBRARIES", "Learner", "Work", "absent", "learner"]

LIBRARIES = {
    "sklearn": "sklearn",
    "ydf": "ydf",
    "ydf discretized": "ydf",
    "lightgbm": "lightgbm",
    "xgboost": "xgboost",
    "onnxruntime": "onnxruntime",
    "skl2onnx": "skl2onnx",
    "pandas": "pandas",
    "polars": "polars",
    "pyarrow": "pyarrow",
    "m2cgen": "m2cgen",
    "tl2cgen": "tl2cgen",
    "ydf C++": "ydf",
    "treekit hellinger": "treekit_hellinger",
    **dict.fromkeys(
        ("imodels RuleFit", "imodels FIGS", "imodels BoostedRules", "imodels SkopeRules"), "imodels"
    ),
    "treekit boosting": "treekit_importers",
    **dict.fromkeys(("treekit rulefit", "treekit sirus"), "treekit_rule_learning"),
}
"""Module to import for each peer, and for a side of treekit that needs a plugin."""

_MODULES = {
    "sklearn": "scikit", "ydf": "yggdrasil", "ydf discretized": "yggdrasil",
    "lightgbm": "light", "xgboost": "extreme", "treekit": "own", "treekit exact": "own",
    "treekit entropy": "own",
    "treekit hellinger": "own",
}  # fmt: skip


def absent(side: str) -> str:
    """Return the reason why a side is not available; empty if it is."""
    library = LIBRARIES.get(side)
    if library is None or importlib.util.find_spec(library) is not None:
        return ""
    return f"{library} is not installed"


def learner(side: str) -> Learner:
    """Return the learner of a side."""
    module = importlib.import_module(f"benchmarks.sides.{_MODULES[side]}")
    return module.made(side)
