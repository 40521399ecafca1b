"""Survival trees and forests for treekit: log-rank splits, Kaplan-Meier leaves.

>>> setting = {"criterion": "log_rank", "criterion.event": "arrest"}
>>> model = treekit.train(ROSSI, "week", **setting)
>>> curves(model, ROSSI).median()

A model answers named numbers, ``risk`` and ``S(t)``, and predicts and exports without
this package, whose functions only read and judge such answers.
"""

from __future__ import annotations

from pathlib import Path

from treekit import Criterion, hookimpl
from treekit_survival.curves import Curves, curves, curves_of
from treekit_survival.deviance import relative_risk
from treekit_survival.measures import (
    brier_score,
    concordance,
    integrated_brier_score,
    kaplan_meier,
)
from treekit_survival.samples import log_rank
from treekit_survival.task import PROPORTIONAL, SURVIVAL

__all__ = [
    "PROPORTIONAL",
    "ROSSI",
    "SURVIVAL",
    "Curves",
    "brier_score",
    "concordance",
    "curves",
    "curves_of",
    "integrated_brier_score",
    "kaplan_meier",
    "treekit_criteria",
]

treekit_contract = 2

ROSSI = Path(__file__).with_name("data") / "rossi.csv"
"""A table to try: 432 released prisoners, the week of a new arrest, seven facts of each."""


@hookimpl
def treekit_criteria() -> list[Criterion]:
    """Offer the criteria to treekit."""
    return [
        Criterion(
            "log_rank",
            SURVIVAL,
            log_rank,
            summary="survival: log-rank test between branches (Segal 1988)",
            exempt={
                "doubling-weights-changes-nothing": "the test's variance counts rows: "
                "of n at risk and d with an event, (n - d) / (n - 1)"
            },
        ),
        Criterion(
            "relative_risk",
            PROPORTIONAL,
            relative_risk,
            summary="survival: deviance of proportional hazards (LeBlanc and Crowley 1992)",
        ),
    ]
