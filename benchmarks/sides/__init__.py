"""Who learns: treekit and its peers, one module each, asked for the same work.

Every setting that makes the work the same is in the module of its side, with
the reason.  A peer is optional: `absent` says which are not installed.
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
    "m2cgen": "m2cgen",
    "tl2cgen": "tl2cgen",
    "ydf C++": "ydf",
    "treekit hellinger": "treekit_hellinger",
    **dict.fromkeys(
        ("imodels RuleFit", "imodels FIGS", "imodels BoostedRules", "imodels SkopeRules"), "imodels"
    ),
}
"""What is imported for each peer, and for a side of treekit that needs a plugin."""

_MODULES = {
    "sklearn": "scikit", "ydf": "yggdrasil", "ydf discretized": "yggdrasil",
    "lightgbm": "light", "xgboost": "extreme", "treekit": "own", "treekit exact": "own",
    "treekit entropy": "own",
    "treekit hellinger": "own",
}  # fmt: skip


def absent(side: str) -> str:
    """Why a side cannot take part; empty if it can."""
    library = LIBRARIES.get(side)
    if library is None or importlib.util.find_spec(library) is not None:
        return ""
    return f"{library} is not installed"


def learner(side: str) -> Learner:
    """The side of that name."""
    module = importlib.import_module(f"benchmarks.sides.{_MODULES[side]}")
    return module.made(side)
