"""The weights of a few rules without the penalty that chose them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.rules.learn.penalised import Weights

__all__ = ["refitted"]

Doubles = npt.NDArray[np.float64]

_RIDGE = 1e-4
"""A penalty on squares, relative to the weight of all rows: rules that no other class
meets would have infinite weights, and rules that say the same undefined ones."""


def refitted(
    met: npt.NDArray[np.bool_], wanted: Doubles, weight: Doubles, *, classes: bool
) -> Weights:
    """Least squares, or the likeliest margins, of indicators.

    Parameters and result are those of `treekit.rules.learn.penalised.penalised`.
    """
    from sklearn.linear_model import LogisticRegression, Ridge

    x, total = met.T.astype(np.float64), float(weight.sum())
    if not classes:
        fitted = Ridge(alpha=_RIDGE * total).fit(x, wanted[:, 0], sample_weight=weight)
        slope = np.asarray(fitted.coef_, dtype=np.float64).reshape(-1, 1)
        return Weights(np.array([float(fitted.intercept_)]), slope)
    # A row that is partly of several classes is a row of each, of that part's weight.
    parts = weight[:, None] * wanted
    row, label = np.nonzero(parts > 0)
    present = np.unique(label)
    slope, start = np.zeros((x.shape[1], wanted.shape[1])), np.full(wanted.shape[1], -30.0)
    if len(present) == 1:
        start[present] = 0.0
        return Weights(start, slope)
    solver = LogisticRegression(C=1 / (_RIDGE * total), max_iter=1000)
    solver.fit(x[row], label, sample_weight=parts[row, label])
    coef = np.asarray(solver.coef_, dtype=np.float64)
    intercept = np.asarray(solver.intercept_, dtype=np.float64)
    if len(present) == 2:  # one margin: that of the second
        coef = np.concatenate([np.zeros_like(coef), coef])
        intercept = np.append(0.0, intercept)
    slope[:, present], start[present] = coef.T, intercept
    return Weights(start, slope)
