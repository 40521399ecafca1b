"""Weights that are not negative: how SIRUS adds up rules of a number.

Bénard, Biau, da Veiga and Scornet 2021, "Interpretable random forests via rule
extraction", AISTATS, section 2: ridge regression with non-negative weights, so that no
rule counts against what it says, and a penalty that cross-validation chooses.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["nonnegative_ridge"]

Doubles = npt.NDArray[np.float64]

_PENALTIES = np.geomspace(1e-5, 1e2, 15)
"""Relative to the mean squared length of a column."""


def nonnegative_ridge(
    x: Doubles, y: Doubles, weight: Doubles, folds: npt.NDArray[np.int64]
) -> tuple[float, Doubles]:
    """Intercept and weights that are least in squared error and a penalty on the weights.

    Parameters
    ----------
    x : (rows, rules) float64
    y, weight : (rows,) float64
    folds : (rows,) int64
        The fold of each row; the penalty is that of least error on rows left out.

    Returns
    -------
    intercept : float
        Not penalised.
    weights : (rules,) float64, none negative
    """
    errors = np.zeros(len(_PENALTIES))
    for fold in np.unique(folds).tolist():
        out = folds == fold
        known = _Squares(x[~out], y[~out], weight[~out])
        for at, penalty in enumerate(_PENALTIES.tolist()):
            start, slopes = known.solved(penalty)
            errors[at] += weight[out] @ (y[out] - start - x[out] @ slopes) ** 2
    # Of equal errors the largest penalty.
    best = len(errors) - 1 - int(np.argmin(errors[::-1]))
    return _Squares(x, y, weight).solved(float(_PENALTIES[best]))


class _Squares:
    """Weighted least squares of many rows as one of as many rows as columns."""

    def __init__(self, x: Doubles, y: Doubles, weight: Doubles) -> None:
        total = weight.sum()
        self.means = weight @ x / total
        self.mean = float(weight @ y / total)
        root = np.sqrt(weight / total)[:, None]
        both = np.column_stack([x - self.means, y - self.mean]) * root
        # The triangle holds all that squares know: lengths and products are kept.
        triangle: Doubles = np.asarray(np.linalg.qr(both, mode="r"))
        self.x, self.y = triangle[:, :-1], triangle[:, -1]

    def solved(self, penalty: float) -> tuple[float, Doubles]:
        """Intercept and weights for a relative penalty."""
        from sklearn.linear_model import LinearRegression

        k = self.x.shape[1]
        scale = float((self.x**2).sum()) / max(k, 1)
        if scale == 0.0:
            return self.mean, np.zeros(k)
        # A penalty is k more rows that ask each weight to be 0; what is left is solved
        # exactly by non-negative least squares (Lawson and Hanson 1974).
        rows = np.concatenate([self.x, np.sqrt(penalty * scale) * np.eye(k)])
        wanted = np.concatenate([self.y, np.zeros(k)])
        fitted = LinearRegression(positive=True, fit_intercept=False).fit(rows, wanted)
        slopes: Doubles = np.asarray(fitted.coef_, dtype=np.float64)
        return self.mean - float(self.means @ slopes), slopes
