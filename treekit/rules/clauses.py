"""What rules ask beyond single columns: sums of columns, and stand-ins for unknown values.

A test is a list of clauses; the first whose value is known decides whether the
test holds (branch 0) or fails (branch 1); if none is known, the test is
unknown.  An oblique split is one clause, a sum (Murthy, Kasif and Salzberg
1994); a split with surrogates its own clause and theirs (Breiman et al. 1984,
section 5.3).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treekit.model.derived_features import DerivedColumns, derive

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["Clause", "Levels", "Linear", "Test", "coded", "evaluate_test", "tests_of"]


@dataclass(frozen=True)
class Linear:
    """``0.0 + w0 * x0 + w1 * x1 + ...`` in double, in this order, against a threshold.

    Attributes
    ----------
    features : tuple of int
        Columns, by number.
    weights : tuple of float
    threshold : float
    below : int
        Branch of a sum at or below the threshold; a larger one takes the
        other, NaN (a missing value, or infinities that cancel) is unknown.
    """

    features: tuple[int, ...]
    weights: tuple[float, ...]
    threshold: float
    below: int


@dataclass(frozen=True)
class Levels:
    """The branch of each level of a nominal column.

    Attributes
    ----------
    feature : int
        The column, by number.
    branches : tuple of int
        0, 1, or -1 = unknown, as a missing value is.
    """

    feature: int
    branches: tuple[int, ...]


Clause = Linear | Levels
Test = tuple[Clause, ...]


def tests_of(model: Model) -> tuple[Test, ...]:
    """The tests of a model, one for each of its derived columns."""
    columns = derive(model)
    clauses = [_clause(columns, at) for at in range(len(columns.threshold))]
    starts = columns.test_start.tolist()
    return tuple(tuple(clauses[a:b]) for a, b in itertools.pairwise(starts))


def _clause(columns: DerivedColumns, at: int) -> Clause:
    if columns.level_feature[at] >= 0:
        first, last = columns.level_start[at : at + 2].tolist()
        branches = columns.level_branch[first:last].tolist()
        return Levels(int(columns.level_feature[at]), tuple(branches))
    first, last = columns.term_start[at : at + 2].tolist()
    return Linear(
        tuple(columns.term_feature[first:last].tolist()),
        tuple(columns.term_weight[first:last].tolist()),
        float(columns.threshold[at]),
        int(columns.below[at]),
    )


def evaluate_test(test: Test, matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(rows,) float64: 0 = holds, 1 = fails, NaN = unknown.

    `matrix` has numbers of the input type, codes of levels, NaN = missing.
    """
    result = np.full(len(matrix), np.nan)
    for clause in test:
        branch = (
            _side(clause, matrix) if isinstance(clause, Linear) else _level_side(clause, matrix)
        )
        result = np.where(np.isnan(result), branch, result)
    return result


def _side(clause: Linear, matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    total = np.zeros(len(matrix))
    with np.errstate(invalid="ignore"):  # infinities that cancel
        for feature, weight in zip(clause.features, clause.weights, strict=True):
            total = total + weight * matrix[:, feature]
    side = np.where(total <= clause.threshold, clause.below, 1 - clause.below)
    return np.where(np.isnan(total), np.nan, side)


def _level_side(clause: Levels, matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    branches = np.array([*clause.branches, -1], dtype=np.float64)
    side = branches[coded(matrix[:, clause.feature], len(clause.branches))]
    return np.where(side < 0, np.nan, side)


def coded(values: npt.NDArray[np.float64], n_levels: int) -> npt.NDArray[np.int64]:
    """Codes of levels; `n_levels` for a missing value and for what is no code."""
    known = (values >= 0) & (values < n_levels) & (values == np.floor(values))
    return np.where(known, values, n_levels).astype(np.int64)
