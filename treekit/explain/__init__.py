"""Explanations of single predictions; explainers add to them, such as counterfactuals.

>>> print(explain(model, {"age": 39, "workclass": "Private"}))
"""

from __future__ import annotations

from treekit.explain.explain import explain
from treekit.explain.explanation import Explanation, ExplanationCase, ExplanationPart

__all__ = [
    "Explanation",
    "ExplanationCase",
    "ExplanationPart",
    "explain",
]
