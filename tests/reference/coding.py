"""Slow binning of columns with sorted Python lists."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate


def code_column(
    column: list[float], max_bins: int | None, weights: list[float] | None = None
) -> tuple[list[int], list[float], list[float]]:
    """Return the code of each cell, and the smallest and largest training value of each code.

    With `max_bins` None, each distinct value has its own code.  Rows of weight 0 do not
    influence the codes.
    """
    w = [1.0] * len(column) if weights is None else weights
    rows = [i for i, x in enumerate(column) if not math.isnan(x) and w[i] > 0]
    rows.sort(key=lambda i: column[i])  # stable: equal values in table order
    known = [column[i] for i in rows]
    starts = [i for i, x in enumerate(known) if i == 0 or x != known[i - 1]]
    if max_bins is not None and len(starts) > max_bins:
        sums = list(accumulate(w[i] for i in rows))
        below = [sums[i] - w[rows[i]] for i in starts]
        total = sums[-1]
        wanted = [j * (total / max_bins) for j in range(1, max_bins)]
        chosen = {starts[min(bisect_left(below, x), len(starts) - 1)] for x in wanted}
        starts = sorted({0, *chosen})
    ends = [*(start - 1 for start in starts[1:]), len(known) - 1] if known else []
    low, high = [known[i] for i in starts], [known[i] for i in ends]
    codes = [
        len(high) if math.isnan(x) else min(bisect_left(high, x), max(len(high) - 1, 0))
        for x in column
    ]
    return codes, low, high
