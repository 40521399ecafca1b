"""Which rows meet which rules, as one array: what frequencies and weights are fitted to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.rules.rule_list import RuleList, coded

__all__ = ["indicators"]

Truths = npt.NDArray[np.bool_]


def indicators(found: RuleList, matrix: npt.NDArray[np.floating]) -> Truths:
    """Which rows meet the conditions of each rule.

    Parameters
    ----------
    found : RuleList
        Its conditions are on columns, not on sums of them; rows do not divide.
    matrix : (rows, features) float
        Numbers of the input type, codes of levels, NaN = missing.

    Returns
    -------
    (rules, rows) bool
        A rule's row is contiguous: each condition is one pass over a column.
    """
    table, schema = found.conditions, found.schema
    result = np.ones((len(found), len(matrix)), dtype=np.bool_)
    owner = np.repeat(np.arange(len(found)), np.diff(found.end, prepend=0))
    for feature in np.unique(table.column).tolist():
        here = np.flatnonzero(table.column == feature)
        values = matrix[:, feature].astype(np.float64)
        levels = len(schema.columns[feature].levels)
        if schema.columns[feature].kind == "nominal":
            code = coded(values, levels)
            for at in here.tolist():
                accepts = np.zeros(levels + 1, dtype=np.bool_)
                accepts[table.codes(at)[0]] = True
                accepts[levels] = table.missing[at]
                result[owner[at]] &= accepts[code]
        else:
            _numeric(found, here, owner, values, result)
    return result


def _numeric(
    found: RuleList,
    here: npt.NDArray[np.int64],
    owner: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    result: Truths,
) -> None:
    """Narrow `result` by the conditions `here`, all on one numeric column.

    A value is replaced by the number of bounds below it: intervals of small integers
    are tested with one comparison.
    """
    table = found.conditions
    low, high = table.low[here], table.high[here]
    bounds = np.unique(np.concatenate([low, high]))
    bounds = bounds[np.isfinite(bounds)]
    first = np.where(low == -np.inf, 0, np.searchsorted(bounds, low) + 1)
    last = np.where(high == np.inf, len(bounds), np.searchsorted(bounds, high))
    gone = np.isnan(values)
    cell = np.searchsorted(bounds, values).astype(np.uint32)
    cell[gone] = np.iinfo(np.uint32).max
    absent = np.flatnonzero(gone)
    for at, start, stop in zip(here.tolist(), first.tolist(), last.tolist(), strict=True):
        met = np.zeros(len(values), dtype=np.bool_)
        if table.known[at] and start <= stop:
            # Cells below the first wrap around to large numbers.
            met = cell - np.uint32(start) <= np.uint32(stop - start)
        met[absent] = table.missing[at]
        result[owner[at]] &= met
