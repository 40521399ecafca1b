"""Counterfactual explanations: the smallest changes that alter a prediction."""

from __future__ import annotations

from treekit import Explainer, Setting, hookimpl
from treekit_counterfactuals.search import Change, Changed, Changes, explain_counterfactuals

__all__ = ["Change", "Changed", "Changes", "explain_counterfactuals", "treekit_explainers"]

treekit_contract = 2


@hookimpl
def treekit_explainers() -> list[Explainer]:
    """Register the explainer."""
    return [
        Explainer(
            "counterfactuals",
            explain_counterfactuals,
            (
                Setting(
                    "changes",
                    2,
                    "maximum number of columns that a counterfactual changes; 0: no search",
                    minimum=0,
                    maximum=2,
                ),
                Setting(
                    "wish", None, "desired prediction: a label, or a range such as '>= 10'", str
                ),
                Setting("target", None, "target of the wish; default the first", str),
                Setting(
                    "budget",
                    50_000_000,
                    "maximum number of cells to search for changes of two columns",
                    minimum=0,
                ),
            ),
            "the smallest changes of one or two columns that alter the prediction",
        )
    ]
