"""Folds of rows, and the smallest size that cross-validation finds good enough."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["fewest", "folds_of"]

_FOLDS = 5


def folds_of(n_rows: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """(rows,) int64: the fold of each row, drawn; of few rows each is its own."""
    number = np.arange(n_rows) % min(_FOLDS, n_rows)
    return np.random.default_rng(seed).permutation(number)


def fewest(errors: npt.NDArray[np.float64]) -> int:
    """The smallest size whose mean error is within one standard error of the least.

    Breiman, Friedman, Olshen and Stone 1984, section 3.4.3.

    Parameters
    ----------
    errors : (folds, sizes) float64
        Of sizes 1, 2, ...; NaN where a fold has none.
    """
    mean = np.nanmean(errors, axis=0)
    folds = np.count_nonzero(~np.isnan(errors), axis=0)
    best = int(np.nanargmin(mean))
    spread = float(np.nanstd(errors[:, best]) / np.sqrt(max(folds[best] - 1, 1)))
    return int(np.flatnonzero(mean <= mean[best] + spread)[0]) + 1
