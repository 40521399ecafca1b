"""scikit-learn's numbers as treekit's settings: sizes of nodes and seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import SettingError

__all__ = ["seed_of", "signs_by_name", "weight_limits"]


def weight_limits(
    split: Any, leaf: Any, fraction: Any, n_rows: int, weights: npt.NDArray[np.float64] | None
) -> dict[str, float]:
    """``min_weight_split`` and ``min_weight_leaf`` from scikit-learn's sizes.

    Sizes count weight: a row of weight 3 counts as three rows, and shares are
    shares of all weight.  Weights that are no whole numbers have no natural
    unit (boosting's sum to 1): there a size of k means k times the mean weight
    of a row, and the smallest sizes, 2 and 1, mean no bound.

    Parameters
    ----------
    split, leaf, fraction
        ``min_samples_split``, ``min_samples_leaf``, ``min_weight_fraction_leaf``.
    weights : (rows,) float64, or None
    """
    whole = weights is None or bool(np.all(weights == np.floor(weights)))
    total = float(n_rows) if weights is None else float(weights.sum())
    unit = 1.0 if whole or weights is None else total / np.count_nonzero(weights)

    def limit(name: str, size: Any, least: int) -> float:
        number = float(size) if isinstance(size, Real) else math.nan
        if isinstance(size, Integral) and number >= least and size is not True:
            return number * unit if whole or number > least else 0.0
        if not isinstance(size, Integral) and 0.0 < number <= 1.0:
            share = number * total
            return max(float(least), math.ceil(share)) if whole else share
        raise SettingError(
            f"{name} is {size!r}; give a whole number of at least {least}, or a share of the rows "
            "above 0.0 and at most 1.0"
        )

    if not (isinstance(fraction, Real) and 0.0 <= float(fraction) <= 0.5):
        raise SettingError(f"min_weight_fraction_leaf is {fraction!r}; give a share from 0 to 0.5")
    return {
        "min_weight_split": limit("min_samples_split", split, 2),
        "min_weight_leaf": max(limit("min_samples_leaf", leaf, 1), float(fraction) * total),
    }


def seed_of(random_state: Any) -> int:
    """The seed that a ``random_state`` stands for.

    A whole number is the seed itself, so that ``random_state=0`` grows the
    trees of ``treekit.train(..., seed=0)``; a `numpy.random.RandomState`, or
    NumPy's global one for None, is asked for one.
    """
    if isinstance(random_state, Integral) and int(random_state) >= 0:
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def signs_by_name(given: Any, names: tuple[str, ...]) -> Mapping[Any, Any] | None:
    """Monotonic constraints, one a column or by name, as training takes them."""
    if given is None or isinstance(given, Mapping):
        return given
    signs = np.asarray(given)
    if signs.shape != (len(names),):
        raise SettingError(
            f"monotonic_cst has the shape {signs.shape}; give one sign for each of the "
            f"{len(names)} columns, or a dict by name"
        )
    return dict(zip(names, signs.tolist(), strict=True))
