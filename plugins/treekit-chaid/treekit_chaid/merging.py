"""Merging the categories of one predictor (Kass 1980, p. 121, steps 1 and 2).

A group is named by its lowest category. ``group_of`` holds the group of each category,
``sums`` the statistics of each group at the index of its name.
"""

from __future__ import annotations

import numpy as np

from treekit_chaid.compiled import compiled
from treekit_chaid.multipliers import FREE
from treekit_chaid.significance import log_p_value

__all__ = ["TIE", "merge_categories"]

TIE = 1e-9
"""Relative tolerance of equal log p-values: results must not depend on the order of sums."""

_ALL_SUBSETS = 10
"""Largest merged group of which every division in two is tried."""


@compiled
def pair_value(sums, a, b, numbers):
    """Return the logarithm of the p-value of two groups."""
    pair = np.empty((2, sums.shape[1]))
    pair[0], pair[1] = sums[a], sums[b]
    return log_p_value(pair, numbers)


@compiled
def may_merge(group_of, a, b, kind, floating):
    """Return whether two groups, a < b, may merge: neighbours, or b is the floating category."""
    if kind == FREE or (floating and b == len(group_of) - 1):
        return True
    between = group_of[a + 1 : b]
    return bool(np.all((between == a) | (between == b)))


@compiled
def compare_with(group_of, sums, close, g, kind, floating, numbers):
    """Fill row and column g of `close` with the log p-values of g and every other group."""
    for other in range(len(group_of)):
        low, high = min(g, other), max(g, other)
        close[low, high] = -np.inf
        close[high, low] = -np.inf
        if other == g or group_of[other] != other or group_of[g] != g:
            continue
        if may_merge(group_of, low, high, kind, floating):
            close[low, high] = max(pair_value(sums, low, high, numbers), -1e300)


@compiled
def most_alike(group_of, close, only):
    """Return the pair of groups with the largest p-value, the first of ties.

    `only` is a group that the pair must contain, or -1. ``(-1, -1)`` if no groups may merge.
    """
    best, first, second = -np.inf, -1, -1
    for a in range(len(group_of)):
        if group_of[a] != a:
            continue
        for b in range(a + 1, len(group_of)):
            if group_of[b] != b or (only >= 0 and only not in (a, b)):
                continue
            beats = close[a, b] > best + TIE * max(1.0, abs(best))
            if beats or (first < 0 and close[a, b] > -np.inf):
                best, first, second = close[a, b], a, b
    return first, second


@compiled
def refresh(group_of, sums, close, g, kind, floating, numbers):
    """Run `compare_with` for group g and, with ordered categories, for all other groups."""
    compare_with(group_of, sums, close, g, kind, floating, numbers)
    if kind != FREE:
        for other in range(len(group_of)):
            if group_of[other] == other and other != g:
                compare_with(group_of, sums, close, other, kind, floating, numbers)


@compiled
def join(group_of, sums, a, b):
    """Merge group b into the lower group a."""
    sums[a] += sums[b]
    for c in range(len(group_of)):
        if group_of[c] == b:
            group_of[c] = a


@compiled
def _try(table, members, inside, best, chosen, numbers):
    """Store a division of `members` in `chosen` if it is more significant than `best`."""
    halves = np.zeros((2, table.shape[1]))
    for i in range(len(members)):
        halves[1 if inside[i] else 0] += table[members[i]]
    value = log_p_value(halves, numbers)
    if best == np.inf or value < best - TIE * max(1.0, abs(best)):
        chosen[:] = inside
        return value
    return best


@compiled
def best_division(table, members, kind, floats, numbers, chosen):
    """Find the most significant division of a merged group in two; store it in `chosen`.

    Ordered categories are cut; a floating one, the last, joins either side or stays
    alone. Others are divided in every way or, above `_ALL_SUBSETS`, along the order of
    their means or of their shares of each class. For two classes and for numbers this
    includes the best division (Breiman et al. 1984, theorem 4.5).

    Returns
    -------
    float
        Logarithm of its p-value.
    """
    size, best = len(members), np.inf
    inside = np.zeros(size, np.bool_)
    if kind != FREE:
        ordered = size - 1 if floats else size
        for cut in range(ordered + 1):
            for side in range(2 if floats else 1):
                inside[:ordered] = np.arange(ordered) >= cut
                inside[ordered:] = side == 1
                if 0 < inside.sum() < size:
                    best = _try(table, members, inside, best, chosen, numbers)
        return best
    orders = 1 if numbers or table.shape[1] == 2 else table.shape[1]
    if orders > 1 and size <= _ALL_SUBSETS:
        for mask in range(1, 2 ** (size - 1)):
            for i in range(size):
                inside[i] = (mask >> i) & 1 == 1
            best = _try(table, members, inside, best, chosen, numbers)
        return best
    for k in range(orders):
        shares = np.empty(size)
        for i in range(size):
            row = table[members[i]]
            shares[i] = row[1] / row[0] if numbers else row[k] / row.sum()
        order = np.argsort(shares)
        inside[:] = False
        for i in range(size - 1):
            inside[order[i]] = True
            best = _try(table, members, inside, best, chosen, numbers)
    return best


@compiled
def part_again(table, group_of, sums, g, kind, floating, log_alpha, numbers):
    """Divide group g, of at least three categories, if the division is significant.

    Returns
    -------
    int
        Name of the new group, -1 if g is not divided.
    """
    members = np.flatnonzero(group_of == g)
    if len(members) < 3:
        return -1
    chosen = np.zeros(len(members), np.bool_)
    floats = floating and members[-1] == len(group_of) - 1
    if best_division(table, members, kind, floats, numbers, chosen) > log_alpha:
        return -1
    if chosen[0]:
        chosen[:] = ~chosen  # the lowest category stays, as it names the group
    other = members[np.argmax(chosen)]
    sums[g], sums[other] = 0.0, 0.0
    for i in range(len(members)):
        group_of[members[i]] = other if chosen[i] else g
        sums[group_of[members[i]]] += table[members[i]]
    return other


@compiled
def lightest(group_of, sums, numbers):
    """Return the group of least weight and its weight."""
    least, name = np.inf, -1
    for g in range(len(group_of)):
        if group_of[g] == g:
            weight = sums[g, 0] if numbers else sums[g].sum()
            if weight < least:
                least, name = weight, g
    return name, least


@compiled
def merge_categories(table, kind, floating, log_merge, log_part, min_weight, numbers):
    """Merge the categories of a predictor into groups.

    The two most similar groups are merged while their p-value exceeds a level, and a
    merged group may be divided again. Finally, groups with too little weight join the
    most similar group.

    Parameters
    ----------
    table : (categories, S) float64
        Statistics of each category, all with positive weight; see `log_p_value`.
    kind : int
        `ANY_LENGTH` or `MONOTONIC`.
    floating : bool
        Whether the last category of a monotonic predictor has no place in the order.
    log_merge, log_part : float
        Logarithms of the levels; -inf = merged groups are never divided.
    min_weight : float
        Minimum weight of a group.

    Returns
    -------
    group_of : (categories,) int64
        Group of each category, named by its lowest member.
    sums : (categories, S) float64
        Statistics of the groups, at the indices of their names.
    """
    size = len(table)
    group_of, sums = np.arange(size), table.copy()
    close = np.full((size, size), -np.inf)
    for g in range(size):
        for other in range(g + 1, size):
            if kind == FREE or other == g + 1 or (floating and other == size - 1):
                close[g, other] = max(pair_value(sums, g, other, numbers), -1e300)
    partings = 0
    while True:
        a, b = most_alike(group_of, close, -1)
        if a < 0 or close[a, b] <= log_merge:
            name, weight = lightest(group_of, sums, numbers)
            if weight >= min_weight:
                break
            a, b = most_alike(group_of, close, name)
            if a < 0:
                break  # one group is left
            partings = size  # groups merged for their weight are not divided again
        join(group_of, sums, a, b)
        # Divisions are more significant than merges, so they end; the bound is a safeguard.
        if log_part > -np.inf and partings < size:
            other = part_again(table, group_of, sums, a, kind, floating, log_part, numbers)
            if other >= 0:
                partings += 1
                refresh(group_of, sums, close, other, kind, floating, numbers)
        refresh(group_of, sums, close, a, kind, floating, numbers)
    return group_of, sums
