"""Thresholds of cuts between codes of numeric columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.kernels.records import SplitRules, Table
from treekit.kernels.thresholds import VALUE_BELOW
from treekit.model.fixed_point import place_threshold

Numbers = npt.NDArray[np.float64]
Codes = npt.NDArray[np.integer[Any]]


def place_cuts(
    table: Table, dtype: Dtype, rules: SplitRules, feature: Codes, cut: Codes, after: Codes
) -> Numbers:
    """Return the threshold of each cut of a column between the codes `cut` and `after`."""
    low, high = find_gaps(table, feature, cut, after)
    given = place_threshold(low, high, dtype, rules.placement)
    if rules.placement != VALUE_BELOW:
        return given
    middle = 0.5 * low + 0.5 * high
    # In decimals 3.7 lies halfway between 3.6 and 3.8; as doubles it lies above.
    most = np.maximum(given, middle + rules.resolution)
    order = np.argsort(feature, kind="stable")
    for here in np.split(order, np.flatnonzero(np.diff(feature[order])) + 1):
        f = int(feature[here[0]]) if len(here) else 0
        start = int(table.value_start[f])
        values = table.high[start : start + int(table.n_codes[f])]
        below = np.searchsorted(values, most[here], side="right") - 1
        given[here] = values[np.minimum(below, after[here] - 1)]
    return given


def find_gaps(table: Table, feature: Codes, cut: Codes, after: Codes) -> tuple[Numbers, Numbers]:
    """Return the values nearest to each cut, below and above it."""
    base = table.value_start[feature]
    return table.high[base + cut], table.low[base + after]


def place_all_cuts(table: Table, dtype: Dtype, rules: SplitRules) -> Numbers:
    """Return the threshold above each code of the numeric columns, NaN above the last one.

    The indices are those of ``table.low``.
    """
    numeric = np.flatnonzero(table.nominal == 0)
    counts = np.maximum(table.n_codes[numeric].astype(np.int64) - 1, 0)
    feature = np.repeat(numeric, counts)
    cut = np.arange(len(feature)) - np.repeat(np.cumsum(counts) - counts, counts)
    given = np.full(len(table.low), np.nan)
    given[table.value_start[feature] + cut] = place_cuts(table, dtype, rules, feature, cut, cut + 1)
    return given
