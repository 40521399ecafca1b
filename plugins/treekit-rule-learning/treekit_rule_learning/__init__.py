"""Short rule lists from trees and forests: C4.5rules, SIRUS and RuleFit."""

from __future__ import annotations

from typing import Any

from treekit import Model, Setting, Simplifier, hookimpl
from treekit.rule_learning import LearnedList
from treekit_rule_learning.frequent_paths import sirus
from treekit_rule_learning.generalised_paths import c45rules
from treekit_rule_learning.penalised_rules import rulefit
from treekit_rule_learning.report import ShortList

__all__ = ["ShortList", "c45rules", "rulefit", "sirus", "treekit_simplifiers"]

treekit_contract = 2


def _run_c45rules(model: Model, table: Any, test: Any, **settings: Any) -> LearnedList:
    return c45rules(model, table, test=test, **settings)


def _run_sirus(model: Model, table: Any, test: Any, **settings: Any) -> ShortList:
    return sirus(table, model=model, test=test, **settings)


def _run_rulefit(model: Model, table: Any, test: Any, **settings: Any) -> ShortList:
    return rulefit(table, model=model, test=test, **settings)


@hookimpl
def treekit_simplifiers() -> list[Simplifier]:
    """Register the simplifiers."""
    seed = Setting("seed", 0, "seed of the random choices", minimum=0)
    return [
        Simplifier(
            "c45rules",
            _run_c45rules,
            (
                Setting("rules", None, "maximum number of rules", int, minimum=1),
                Setting(
                    "confidence",
                    0.25,
                    "confidence factor of the error estimates; lower values drop more conditions",
                    above=0,
                    maximum=0.5,
                ),
            ),
            "an ordered list; the first matching rule predicts (Quinlan 1993)",
        ),
        Simplifier(
            "sirus",
            _run_sirus,
            (
                Setting(
                    "rules",
                    10,
                    "maximum number of rules; none: chosen by cross-validation",
                    (int, type(None)),
                    minimum=1,
                ),
                Setting("most", 25, "maximum number of rules for rules=none", minimum=1),
                Setting("above", 0.0, "least share of the trees that contain a rule", minimum=0),
                Setting("depth", 2, "depth at which paths are cut", minimum=1),
                Setting("quantiles", 10, "number of quantiles that cut a column", minimum=2),
                seed,
            ),
            "the most frequent paths of the trees; the mean of their rules predicts (Benard 2021)",
        ),
        Simplifier(
            "rulefit",
            _run_rulefit,
            (
                Setting("rules", 20, "maximum number of rules", minimum=1),
                Setting(
                    "to",
                    "target",
                    "values that the weights are fitted to",
                    choices=("target", "model"),
                ),
                Setting("depth", 3, "depth at which paths are cut", minimum=1),
                Setting("candidates", 1000, "maximum number of candidate rules", minimum=1),
                Setting("refit", True, "fit the selected rules again without the penalty"),
                seed,
            ),
            "a weighted sum of few rules (Friedman and Popescu 2008)",
        ),
    ]
