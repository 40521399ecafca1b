"""Explanations of single predictions; explainers add to them, such as counterfactuals.

>>> print(explain(model, {"age": 39, "workclass": "Private"}))
"""

from __future__ import annotations

from treekit.contracts import Explainer
from treekit.explain.explain import explain
from treekit.explain.explanation import Explanation, ExplanationCase, ExplanationPart
from treekit.hookspecs import hookimpl

__all__ = [
    "Explanation",
    "ExplanationCase",
    "ExplanationPart",
    "explain",
    "treekit_explainers",
]


@hookimpl
def treekit_explainers() -> list[Explainer]:
    """Return the built-in explainers: none."""
    return []
