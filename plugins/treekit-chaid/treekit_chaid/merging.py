"""Merging the categories of one predictor (Kass 1980, p. 121, steps 1 and 2).

A group is named by its lowest category.  ``group_of`` says where each category
is, ``sums`` holds the statistics of each group at its name.
"""

from __future__ import annotations

import numpy as np

from treekit_chaid.compiled import compiled
from treekit_chaid.multipliers import FREE
from treekit_chaid.significance import log_p_value

__all__ = ["TIE", "merge_categories"]

TIE = 1e-9
"""Logarithms of p-values this close, relative, are equal, whatever the order of sums."""

_ALL_SUBSETS = 10
"""Most categories of a merged group of which every division in two is looked at."""


@compiled
def pair_value(sums, a, b, numbers):
    """Logarithm of the p-value of two groups."""
    pair = np.empty((2, sums.shape[1]))
    pair[0], pair[1] = sums[a], sums[b]
    return log_p_value(pair, numbers)


@compiled
def may_merge(group_of, a, b, kind, floating):
    """Whether two groups, a below b, may be merged: neighbours, or one that floats."""
    if kind == FREE or (floating and b == len(group_of) - 1):
        return True
    between = group_of[a + 1 : b]
    return bool(np.all((between == a) | (between == b)))


@compiled
def compare_with(group_of, sums, close, g, kind, floating, numbers):
    """Fill row and column g of `close`: how alike g and every other group are."""
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
    """The pair of groups of the largest p-value, the first of equals; `only`: -1, or one of them.

    ``(-1, -1)`` if none may be merged.
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
    """`compare_with` for group g and, of ordered categories, the groups beside it."""
    compare_with(group_of, sums, close, g, kind, floating, numbers)
    if kind != FREE:
        for other in range(len(group_of)):
            if group_of[other] == other and other != g:
                compare_with(group_of, sums, close, other, kind, floating, numbers)


@compiled
def join(group_of, sums, a, b):
    """Put group b into group a, which is the lower."""
    sums[a] += sums[b]
    for c in range(len(group_of)):
        if group_of[c] == b:
            group_of[c] = a


@compiled
def _try(table, members, inside, best, chosen, numbers):
    """Keep a division of members in two if it is more significant than `best`."""
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
    """The most significant division of a merged group in two, into `chosen` (members,) bool.

    Ordered categories are cut; a floating one, the last, goes either way or alone.
    Others are divided in every way, or above `_ALL_SUBSETS` along the order of
    their means, or of their shares of each class: the best of two classes and of
    numbers is among these (Breiman et al. 1984, theorem 4.5).

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
    """Divide group g, of three categories or more, if that is significant enough.

    Returns
    -------
    int
        The name of the new group, -1 if there is none.
    """
    members = np.flatnonzero(group_of == g)
    if len(members) < 3:
        return -1
    chosen = np.zeros(len(members), np.bool_)
    floats = floating and members[-1] == len(group_of) - 1
    if best_division(table, members, kind, floats, numbers, chosen) > log_alpha:
        return -1
    if chosen[0]:
        chosen[:] = ~chosen  # the lowest category keeps its group
    other = members[np.argmax(chosen)]
    sums[g], sums[other] = 0.0, 0.0
    for i in range(len(members)):
        group_of[members[i]] = other if chosen[i] else g
        sums[group_of[members[i]]] += table[members[i]]
    return other


@compiled
def lightest(group_of, sums, numbers):
    """The group of least weight, and that weight."""
    least, name = np.inf, -1
    for g in range(len(group_of)):
        if group_of[g] == g:
            weight = sums[g, 0] if numbers else sums[g].sum()
            if weight < least:
                least, name = weight, g
    return name, least


@compiled
def merge_categories(table, kind, floating, log_merge, log_part, min_weight, numbers):
    """The groups that the categories of a predictor are merged to.

    The two most alike are merged while their p-value exceeds a level; a group that
    came of it may be parted again; at last those that weigh too little join the
    one they are most like.

    Parameters
    ----------
    table : (categories, S) float64
        Statistics of each category, none without weight; see `log_p_value`.
    kind : int
        `FREE` or `MONOTONIC`.
    floating : bool
        Whether the last category of a monotonic predictor has no place in the order.
    log_merge, log_part : float
        Levels; -inf = merged groups are never parted.
    min_weight : float
        What a group must weigh.

    Returns
    -------
    group_of : (categories,) int64
        Each category's group, by its lowest member.
    sums : (categories, S) float64
        Statistics of the groups, at their names.
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
                break  # all in one
            partings = size  # what is too light alone is not parted again
        join(group_of, sums, a, b)
        # Each parting is more significant than any merger, so that they end; a bound all the same.
        if log_part > -np.inf and partings < size:
            other = part_again(table, group_of, sums, a, kind, floating, log_part, numbers)
            if other >= 0:
                partings += 1
                refresh(group_of, sums, close, other, kind, floating, numbers)
        refresh(group_of, sums, close, a, kind, floating, numbers)
    return group_of, sums
