"""What mistakes cost: a setting to whole numbers, checked.

Costs change the labels of leaves and what pruners call an error, not the search
of splits (Breiman, Friedman, Olshen and Stone 1984, section 4.4.2; for costs in
the search, give priors).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import SettingError
from treekit.model.validation import MAX_COST
from treekit.training.classes import need_classes
from treekit.training.named import label_names, read_pairs

__all__ = ["costs_of_mistakes", "whole_costs"]


def costs_of_mistakes(dataset: Dataset, costs: Any) -> npt.NDArray[np.int64] | None:
    """What it costs to say column j when it is row i: (classes, classes), or None.

    Parameters
    ----------
    costs : text, mapping, matrix, or None
        ``"yes>no=5"`` or ``{("yes", "no"): 5}``: saying no when it is yes
        costs 5.  Mistakes not named cost 1, right answers nothing.

    Raises
    ------
    SettingError
        If the target is a number, or a class or value is wrong.
    """
    if costs is None:
        return None
    need_classes(dataset, "costs")
    names = label_names(dataset.schema.classes)
    k = len(names)
    if isinstance(costs, (str, Mapping)):
        matrix = 1.0 - np.eye(k)
        for (true, said), cost in read_pairs(costs, names, "costs").items():
            matrix[true, said] = cost
    else:
        matrix = _matrix(costs, k)
    if (matrix < 0).any():
        true, said = np.argwhere(matrix < 0)[0]
        raise SettingError(
            f"saying {names[said]!r} for {names[true]!r} costs {matrix[true, said]:g}; costs are "
            "0 or more"
        )
    if np.diagonal(matrix).any():
        right = names[int(np.flatnonzero(np.diagonal(matrix))[0])]
        raise SettingError(f"saying {right!r} for {right!r} is no mistake and costs 0")
    return whole_costs(matrix)


def _matrix(costs: Any, k: int) -> npt.NDArray[np.float64]:
    try:
        matrix = np.array(costs, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape != (k, k) or not np.isfinite(matrix).all():
        raise SettingError(
            f"costs are {costs!r}; give TRUE>SAID=COST,..., a dict of pairs, or a matrix of finite "
            f"numbers, {k} x {k}"
        )
    return matrix


def whole_costs(matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Costs as whole numbers of at most `MAX_COST`, in the same ratios.

    Whole numbers that fit stay as they are.  Others are multiplied by the
    smallest factor that makes all of them whole; where there is none, the
    largest becomes `MAX_COST` and the others are rounded.

    Raises
    ------
    SettingError
        If all costs are 0, or the largest is more than `MAX_COST` times the smallest.
    """
    values = np.unique(matrix[matrix > 0])
    if not len(values):
        raise SettingError("all costs are 0; give a mistake a cost")
    if values[-1] <= MAX_COST and np.array_equal(values, np.floor(values)):
        return matrix.astype(np.int64)
    ratios = values / values[0]
    if ratios[-1] > MAX_COST:
        raise SettingError(
            f"costs reach from {values[0]:g} to {values[-1]:g}; the largest may be {MAX_COST:,} "
            "times the smallest"
        )
    steps = np.arange(1, int(MAX_COST / ratios[-1]) + 1)
    off = np.zeros(len(steps))
    for ratio in ratios:
        off = np.maximum(off, np.abs(steps * ratio - np.rint(steps * ratio)) / (steps * ratio))
    exact = np.flatnonzero(off <= 1e-12)
    step = steps[exact[0]] if len(exact) else MAX_COST / ratios[-1]
    return np.asarray(np.rint(matrix / values[0] * step), dtype=np.int64)
