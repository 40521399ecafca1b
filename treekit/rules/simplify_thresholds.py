"""Shorten thresholds to few digits without changing the rows that are selected.

Any threshold between two neighbouring values of a table selects the same rows of it; the
one with the fewest significant digits is used.  Other rows may be selected differently: a
shortened list states this, and is no longer equivalent to the model.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.errors import DataError, SettingError
from treekit.rules.rule_list import Rounding, RuleList
from treekit.rules.wording import format_numbers, round_to_digits

MAX_DIGITS = 17
"""Significant digits that identify every double."""

Numbers = npt.NDArray[np.float64]


def rounded(rules: RuleList, digits: int, rows: Any) -> RuleList:
    """Return `rules` with thresholds of `digits` significant digits, or as few more as needed.

    A threshold moves only to a number with no value of its column between the two, so each
    condition, and hence each rule, selects the same of these rows.  Equal thresholds stay
    equal and distinct ones stay in order, so disjoint rules stay disjoint.  Sums of columns
    (tests) keep their numbers.

    Parameters
    ----------
    rules : RuleList
    digits : int
        1 to 17.
    rows : (rows, features) float64
        Numbers, codes of categories, NaN for missing values.

    Returns
    -------
    RuleList
        With `RuleList.rounding`, which its text states.

    Raises
    ------
    SettingError
        If `digits` is out of range.
    DataError
        If there are no rows, or the number of columns is wrong.
    """
    if not 1 <= digits <= MAX_DIGITS:
        raise SettingError(f"digits is {digits}; it must be from 1 to {MAX_DIGITS}")
    matrix = np.atleast_2d(np.asarray(rows))
    if matrix.shape[1] != rules.schema.n_features or not len(matrix):
        raise DataError(
            f"shortening thresholds needs at least one row of {rules.schema.n_features} columns; "
            f"got {matrix.shape[0]} rows of {matrix.shape[1]} columns"
        )
    table, dtype = rules.conditions, rules.schema.dtype
    low, high = table.low.copy(), table.high.copy()
    counts = np.zeros(3, dtype=np.int64)
    for column in np.unique(table.column).tolist():
        if column >= rules.schema.n_features or rules.schema.nominal[column]:
            continue
        at = np.flatnonzero(table.column == column)
        values = _list_distinct_values(matrix[:, column], dtype)
        bounds = np.concatenate([low[at], high[at]])
        old = np.unique(bounds[np.isfinite(bounds)])
        new, n_longer = _shorten_thresholds(old, values, digits, dtype)
        for bounds in (low, high):
            finite = at[np.isfinite(bounds[at])]
            bounds[finite] = new[np.searchsorted(old, bounds[finite])]
        counts += np.array([len(old), np.sum(old != new), n_longer])
    thresholds, shortened, longer = counts.tolist()
    rounding = Rounding(digits, thresholds, shortened, longer, len(matrix))
    return replace(rules, conditions=table._replace(low=low, high=high), rounding=rounding)


def _list_distinct_values(column: Numbers, dtype: Dtype) -> Numbers:
    """Return the distinct known values, ascending, rounded to the input type."""
    with np.errstate(over="ignore"):
        known = column[~np.isnan(column)].astype(dtype, copy=False).astype(np.float64)
    return np.unique(known)


def _shorten_thresholds(
    old: Numbers, values: Numbers, digits: int, dtype: Dtype
) -> tuple[Numbers, int]:
    """Return shorter numbers for ascending thresholds, and how many need more digits."""
    exact, lengths = old.tolist(), list(map(_count_digits, format_numbers(old, dtype)))
    known, longer = values.tolist(), 0
    new: list[float] = []
    for at, (bound, most) in enumerate(zip(exact, lengths, strict=True)):
        # The number of values up to the bound must not change, and distinct bounds must stay
        # distinct and in order, whichever others move.
        place = bisect_right(known, bound)
        below = new[-1] if new else -math.inf
        above = exact[at + 1] if at + 1 < len(exact) else math.inf
        number, needed = bound, most
        for count in range(digits, most):
            shorter = round_to_digits(bound, count, dtype)
            if below < shorter < above and bisect_right(known, shorter) == place:
                number, needed = shorter, count
                break
        new.append(number)
        longer += needed > digits
    return np.array(new, dtype=np.float64), longer


def _count_digits(numeral: str) -> int:
    """Return the number of significant digits of a numeral."""
    figures = numeral.partition("e")[0].lstrip("-").replace(".", "")
    return len(figures.strip("0")) or 1
