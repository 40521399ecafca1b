"""Points inside the regions of nodes below sums, by linear programmes.

On the way to a node every sum is to be known and on the right side; the
programme takes the point that keeps furthest from all of them.
"""

from __future__ import annotations

import math
import time

import numpy as np
import numpy.typing as npt

from treekit.model.tree import Split
from treekit.verify.routed import Routed, matrix_of

__all__ = ["inner_points"]

Array = npt.NDArray[np.float64]

_MOST_NODES = 500
_FAR = 1e6
"""Numbers up to so many times the largest threshold are looked at."""


def inner_points(
    of: Routed, nodes: npt.NDArray[np.int64], rows: Array, until: float = math.inf
) -> Array:
    """A row for each of `nodes` (the first 500) for which a programme has a solution.

    Parameters
    ----------
    of : Routed
    nodes : (nodes,) int64
    rows : (nodes, features) float64
        Values for what the programmes do not determine; known ones.
    until : float
        When to stop, as `time.monotonic` counts.

    Returns
    -------
    (rows, features) float64
        Candidates: rounding may have taken them out of the region again.
    """
    found = [
        point
        for node, row in zip(nodes[:_MOST_NODES].tolist(), rows, strict=False)
        if time.monotonic() < until and (point := _inner_point(of, node, row.copy())) is not None
    ]
    return matrix_of(of.model, np.array(found).reshape(len(found), rows.shape[1]))


def _inner_point(of: Routed, node: int, row: Array) -> Array | None:
    """Fix levels and missing values on the way, and solve for the numbers."""
    routes, tests = of.routes, of.tests
    sums: list[tuple[int, bool]] = []
    fixed: dict[int, float] = {}
    at = node
    while (above := int(routes.nodes["parent"][at])) >= 0:
        branch = at - int(routes.nodes["first_child"][above])
        column = int(routes.nodes["asks"][above])
        if column < 0:
            if branch == 0:
                fixed[int(routes.nodes["feature"][above])] = np.nan
        elif tests.level_feature[test := int(tests.test_start[column])] >= 0:
            first, last = tests.level_start[test : test + 2].tolist()
            codes = np.flatnonzero(tests.level_branch[first:last] == branch)
            feature = int(tests.level_feature[test])
            fixed[feature] = float(codes[0]) if len(codes) else np.nan
        else:
            of_rule = int(routes.nodes["kind"][above]) == Split.RULE
            below = bool(tests.below[test] == 1) if of_rule else bool(tests.below[test] == 0)
            sums.append((test, below == (branch == (1 if of_rule else 0))))
        at = above
    if sums:
        numbers = _solve(of, sums)
        if numbers is None:
            return None
        asked = ~np.isnan(numbers)
        row[asked] = numbers[asked]
    for feature, value in fixed.items():
        row[feature] = value
    return row


def _solve(of: Routed, sums: list[tuple[int, bool]]) -> Array | None:
    """(features,) float64: numbers on the right side of all sums; NaN where none asks."""
    from scipy.optimize import linprog

    tests = of.tests
    n = of.model.schema.n_features
    limits, weights = np.zeros(len(sums)), np.zeros((len(sums), n + 1))
    for i, (test, at_most) in enumerate(sums):
        first, last = tests.term_start[test : test + 2].tolist()
        sign = 1.0 if at_most else -1.0
        scale = float(np.abs(tests.term_weight[first:last]).max())
        weights[i, tests.term_feature[first:last]] = sign * tests.term_weight[first:last] / scale
        weights[i, n] = np.linalg.norm(weights[i])  # the distance from this plane
        limits[i] = sign * tests.threshold[test] / scale
    far = _FAR * max(float(np.abs(limits).max()), 1.0)
    bounds = [(-far, far)] * n + [(0.0, far)]
    if not np.isfinite(weights).all() or not np.isfinite(far):
        return None
    cost = np.zeros(n + 1)
    cost[n] = -1.0
    solved = linprog(cost, A_ub=weights, b_ub=limits, bounds=bounds, method="highs")
    if solved.status != 0:
        return None
    numbers = np.full(n, np.nan)
    asked = weights[:, :n].any(axis=0)
    numbers[asked] = solved.x[:n][asked]
    return numbers
