"""What each rule of a short list says: shares or means of the rows that meet it, and of the rest.

Bénard et al. 2021, equation 2.5: a rule is a function of two values.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from treekit.rules.learn.folds import folds_of
from treekit.rules.learn.given import Weighed
from treekit.rules.learn.ridge import nonnegative_ridge
from treekit.rules.learn.weighted import weighted_list
from treekit.rules.rule_list import RuleList, taken

__all__ = ["added_list", "mean_list", "staged"]

Truths = npt.NDArray[np.bool_]
Doubles = npt.NDArray[np.float64]


def mean_list(chosen: RuleList, met: Truths, rows: Weighed) -> RuleList:
    """The list of classes whose answer is the mean of what its rules say.

    Without a rule, it says the shares of all rows.

    Parameters
    ----------
    chosen : RuleList
        Bare rules.
    met : (rules, rows) bool
    rows : Weighed
    """
    cells = _cells(chosen, rows)
    return weighted_list(
        chosen, _two_sums(met, cells), _two_weights(met, rows), combine="mean",
        intercept=None if len(chosen) else cells.sum(axis=0), total=float(rows.weight.sum()),
    )  # fmt: skip


def added_list(
    chosen: RuleList, met: Truths, rows: Weighed
) -> tuple[RuleList, npt.NDArray[np.int64]]:
    """The list of numbers whose answer is a weighted sum of its rules' means.

    Returns
    -------
    rules : RuleList
    kept : (rules,) int64
        Which of the rules have a weight, for some target; the others are left out.
    """
    means, intercept, slopes = _fitted(met, rows)
    value = slopes[:, None, :] * means
    kept = np.flatnonzero(slopes.any(axis=1))
    made = weighted_list(
        taken(chosen, kept), value[kept], _two_weights(met[kept], rows), combine="sum",
        intercept=intercept, total=float(rows.weight.sum()),
    )  # fmt: skip
    return made, kept


def staged(
    chosen: RuleList, met: Truths, rows: Weighed, met_by_others: Truths
) -> Iterator[Doubles]:
    """What the lists of the first rule, of the first two and so on say of other rows.

    Returns
    -------
    iterator of (other rows, values) float64
        Shares, or numbers.
    """
    if chosen.schema.task == "classification":
        sums = _two_sums(met, _cells(chosen, rows))
        total = np.zeros((met_by_others.shape[1], chosen.schema.n_values))
        weight = _two_weights(met, rows)
        for number in range(len(chosen)):
            shares = sums[number] / weight[number][:, None]
            total += np.where(met_by_others[number][:, None], shares[0], shares[1])
            yield total / (number + 1)
        return
    for number in range(len(chosen)):
        means, intercept, slopes = _fitted(met[: number + 1], rows)
        added = slopes[:, None, :] * means
        here = met_by_others[: number + 1, :, None]
        yield intercept + np.where(here, added[:, :1], added[:, 1:]).sum(axis=0)


def _cells(like: RuleList, rows: Weighed) -> Doubles:
    """(rows, values) float64: each row's weight in the cell of its class, for each target."""
    cells = np.zeros((len(rows.weight), like.schema.n_values))
    at = np.arange(len(rows.weight))
    for output, first in enumerate(like.schema.blocks[:-1]):
        cells[at, first + rows.y[:, output]] = rows.weight
    return cells


def _two_sums(met: Truths, cells: Doubles) -> Doubles:
    """(rules, 2, values) float64: sums of the rows that meet rules, and of the others."""
    inside = met @ cells
    return np.stack([inside, ~met @ cells], axis=1)


def _two_weights(met: Truths, rows: Weighed) -> Doubles:
    """(rules, 2) float64: the weight of the rows that meet rules, and of the others."""
    return np.stack([met @ rows.weight, ~met @ rows.weight], axis=1)


def _fitted(met: Truths, rows: Weighed) -> tuple[Doubles, Doubles, Doubles]:
    """Means (rules, 2, targets), intercepts (targets,), weights (rules, targets)."""
    weight = _two_weights(met, rows)
    centre = np.average(rows.y, axis=0, weights=rows.weight)
    # Of numbers far from 0, differences keep their digits.
    far = _two_sums(met, (rows.y - centre) * rows.weight[:, None])
    means = centre + far / weight[:, :, None]
    folds = folds_of(len(rows.weight))
    intercept, slopes = np.empty(len(centre)), np.empty((len(met), len(centre)))
    for k in range(len(centre)):
        x = np.where(met, means[:, :1, k], means[:, 1:, k]).T
        intercept[k], slopes[:, k] = nonnegative_ridge(x, rows.y[:, k], rows.weight, folds)
    return means, intercept, slopes
