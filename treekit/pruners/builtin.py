"""The pruners that come with treekit, provided through the same hook as everyone's."""

from __future__ import annotations

from typing import Any

from treekit.contracts import Pruner, PrunerFunctions, Setting
from treekit.hookspecs import hookimpl

__all__ = ["treekit_pruners"]

_BY_WEIGHT = {"doubling-weights-changes-nothing": "more rows of a kind are stronger evidence"}


def _cost_complexity(**settings: Any) -> PrunerFunctions:
    from treekit.pruners.cost_complexity import cost_complexity

    return cost_complexity(**settings)


def _reduced_error(**settings: Any) -> PrunerFunctions:
    from treekit.pruners.reduced_error import reduced_error

    return reduced_error(**settings)


def _error_based(**settings: Any) -> PrunerFunctions:
    from treekit.pruners.error_based import error_based

    return error_based(**settings)


def _mdl(**settings: Any) -> PrunerFunctions:
    from treekit.pruners.mdl import mdl

    return mdl(**settings)


def _holdout(**settings: Any) -> PrunerFunctions:
    from treekit.pruners.before import holdout

    return holdout(**settings)


def _chi_squared(**settings: Any) -> PrunerFunctions:
    from treekit.pruners.before import chi_squared

    return chi_squared(**settings)


@hookimpl
def treekit_pruners() -> list[Pruner]:
    """Pruners of the literature: after growth, then before a split."""
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
        Pruner(
            "error_based",
            _error_based,
            settings=(
                Setting(
                    "confidence", 0.25,
                    "confidence factor of the error limit; less prunes more; none: collapsing only",
                    type=(float, type(None)), minimum=1e-6, maximum=1 - 1e-6,
                ),
                Setting("raising", True, "also replace a subtree by its largest branch"),
                Setting("collapsing", True, "first drop splits that lower no training errors"),
                Setting(
                    "limit", "j48", "exact normal quantile (j48), or C4.5's table (release8)",
                    choices=("j48", "release8"),
                ),
            ),
            summary="error-based pruning (Quinlan 1993)",
            task="classification",
            exempt=_BY_WEIGHT,
        ),
        Pruner(
            "mdl",
            _mdl,
            summary="minimum description length (Mehta, Rissanen and Agrawal 1995)",
            task="classification",
            costs=False,
            exempt=_BY_WEIGHT,
        ),
        Pruner(
            "holdout",
            _holdout,
            settings=(
                Setting(
                    "holdout", 0.25, "share of the rows to judge splits by",
                    minimum=0.01, maximum=0.9,
                ),
            ),
            summary="split only on a strict rise of hold-out accuracy (Zhou 2016)",
            task="classification",
            costs=False,
        ),
        Pruner(
            "chi_squared",
            _chi_squared,
            settings=(
                Setting(
                    "alpha", 0.05, "largest p-value at which a node is split",
                    minimum=0.0, maximum=1.0,
                ),
            ),
            summary="split only where class and branch depend (Quinlan 1986)",
            task="classification",
            exempt=_BY_WEIGHT,
        ),
    ]  # fmt: skip
