"""The pruners that come with treekit, provided through the same hook as everyone's."""

from __future__ import annotations

from typing import Any

from treekit.contracts import Pruner, PrunerFunctions, Setting
from treekit.hookspecs import hookimpl

__all__ = ["treekit_pruners"]


def _cost_complexity(**settings: Any) -> PrunerFunctions:
    from treekit.pruners.cost_complexity import cost_complexity

    return cost_complexity(**settings)


def _reduced_error(**settings: Any) -> PrunerFunctions:
    from treekit.pruners.reduced_error import reduced_error

    return reduced_error(**settings)


@hookimpl
def treekit_pruners() -> list[Pruner]:
    """Cost-complexity and reduced-error pruning."""
    return [
        Pruner(
            "cost_complexity",
            _cost_complexity,
            settings=(
                Setting(
                    "alpha", None, "risk per leaf below which a link is cut; none: chosen",
                    type=(float, type(None)), minimum=0.0,
                ),
                Setting(
                    "rule", "min",
                    "alpha of least risk, or of the smallest tree within one standard error of it",
                    choices=("min", "one_se"),
                ),
                Setting(
                    "risk", "loss", "weigh links by mistakes (their costs) or by the impurity",
                    choices=("loss", "impurity"),
                ),
                Setting("folds", 10, "folds of the cross-validation that chooses alpha", minimum=2),
                Setting(
                    "holdout", 0.0, "share of rows to choose alpha on instead of cross-validation",
                    minimum=0.0, maximum=0.9,
                ),
            ),
            summary="minimal cost-complexity pruning (Breiman et al. 1984)",
        ),
        Pruner(
            "reduced_error",
            _reduced_error,
            settings=(
                Setting(
                    "holdout", 0.25, "share of the rows to prune on", minimum=0.01, maximum=0.9
                ),
                Setting("prune_ties", False, "prune where the error stays the same, too"),
            ),
            summary="reduced-error pruning on a hold-out (Quinlan 1987)",
        ),
    ]  # fmt: skip
