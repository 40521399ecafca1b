"""Explanations of single predictions, with counterfactuals.

>>> print(explain(model, {"age": 39, "workclass": "Private"}))
"""

from __future__ import annotations

from treekit.explain.explain import explain
from treekit.explain.explanation import Explanation

__all__ = [
    "Explanation",
    "explain",
]
