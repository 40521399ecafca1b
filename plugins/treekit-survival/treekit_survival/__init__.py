"""Survival trees and forests for treekit: log-rank splits, Kaplan-Meier leaves.

>>> setting = {"criterion": "log_rank", "criterion.event": "arrest"}
>>> model = treekit.train(ROSSI, "week", **setting)
>>> curves(model, ROSSI).median()

A model predicts named numbers, ``risk`` and ``S(t)``, and needs this package neither
to predict nor to export. The functions here convert and evaluate its predictions.
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
"""Example table: 432 released prisoners, the week of their next arrest, seven features."""


@hookimpl
def treekit_criteria() -> list[Criterion]:
    """Register the criteria."""
    return [
        Criterion(
            "log_rank",
            SURVIVAL,
            log_rank,
            summary="survival: log-rank test between branches (Segal 1988)",
            exempt={
                "doubling-weights-changes-nothing": "the test's variance counts rows: with n at "
                "risk and d events it has the factor (n - d) / (n - 1)"
            },
        ),
        Criterion(
            "relative_risk",
            PROPORTIONAL,
            relative_risk,
            summary="survival: deviance of proportional hazards (LeBlanc and Crowley 1992)",
        ),
    ]
