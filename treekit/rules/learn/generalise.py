"""From paths to rules: conditions are dropped while that makes a rule no less sure.

Quinlan 1993, *C4.5*, section 5.1 (first in Quinlan 1987, *Generating production rules from
decision trees*, with another test of a condition's worth).  How sure a rule is says the
upper limit of its errors on all rows, by which `treekit.components.error_based` judges leaves.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.rules.learn.conditions import Paths
from treekit.rules.learn.ground import Bits, Ground

__all__ = ["Generalised", "base_rates", "generalise", "rate_bound"]

Numbers = npt.NDArray[np.float64]


class Generalised(NamedTuple):
    """What is left of the paths of a tree.

    Attributes
    ----------
    kept : (steps,) bool
        Which conditions of the paths.
    rate : (paths,) float64
        Pessimistic error rate with these.
    """

    kept: npt.NDArray[np.bool_]
    rate: Numbers


def rate_bound(confidence: float) -> Any:
    """The upper limit of errors at a confidence factor (`treekit.kernels.pruning.Bound`)."""
    from treekit.kernels.pruning import Bound

    z = NormalDist().inv_cdf(1.0 - confidence)
    return Bound(confidence, z, False, 1.0 - np.eye(2))


def base_rates(ground: Ground, bound: Any) -> list[float]:
    """Pessimistic error rate of each class said of all rows: what rules are to be better than."""
    from treekit.kernels.rule_bitsets import error_rate

    total = float(ground.totals.sum())
    return [float(error_rate(total, own, bound)) for own in ground.totals.tolist()]


def generalise(paths: Paths, met: Bits, ground: Ground, bound: Any) -> Generalised:
    """Drop conditions of each path as long as its pessimistic error rate does not rise.

    Time and again that condition goes without which the rate is lowest, the first of equals.

    Parameters
    ----------
    paths : Paths
    met : (nodes, words) uint64
        Rows that meet the condition of the step to each node.
    ground : Ground
    bound
        See `rate_bound`.

    Notes
    -----
    A path of d conditions takes up to d rounds over the words of these: O(d² rows / 64).
    """
    from treekit.kernels.rule_bitsets import drop_conditions

    kept = np.zeros(len(paths.node), dtype=np.bool_)
    rate = np.empty(len(paths.end))
    drop_conditions(
        met, paths.node, paths.end, paths.label, ground.classes, ground.everyone,
        ground.w[:0] if ground.counted else ground.w, bound, kept, rate,
    )  # fmt: skip
    return Generalised(kept, rate)
