"""The splitter's search: the most significant of the merged predictors (Kass 1980, step 3)."""

from __future__ import annotations

import math

import numpy as np

from treekit.splitting import (
    branch_stats,
    draw_features,
    interval_split,
    level_split,
    missing_split,
    missing_to,
    scored,
)
from treekit_chaid.compiled import compiled
from treekit_chaid.merging import TIE, merge_categories
from treekit_chaid.multipliers import FREE, MONOTONIC, log_multiplier
from treekit_chaid.significance import log_p_value

__all__ = ["make_find"]


@compiled
def quantile_ends(codes, weights, bins):
    """Return the last code of each quantile bin of a number, ascending; at most `bins`.

    A bin ends with the value at which the cumulative weight reaches the next
    quantile, so that equal values share a bin.
    """
    order = np.argsort(codes)
    total = weights.sum()
    ends, count, upto, reached = np.empty(bins, np.int64), 0, 0.0, 0
    distinct = 1
    for i in range(1, len(order)):
        distinct += codes[order[i]] != codes[order[i - 1]]
    for i in range(len(order)):
        upto += weights[order[i]]
        if i + 1 < len(order) and codes[order[i + 1]] == codes[order[i]]:
            continue
        quantile = int(upto / total * bins * (1.0 + 1e-12))
        if distinct <= bins or quantile > reached or i + 1 == len(order):
            ends[min(count, bins - 1)] = codes[order[i]]
            count = min(count + 1, bins)
            reached = quantile
    return ends[:count]


@compiled
def categories(codes, n_codes, cells, values, nominal, lost, width, centre, bins):
    """Return the categories of a column at a node and their statistics.

    Parameters
    ----------
    codes : (rows,) int64
        `n_codes` = missing.
    cells, values : arrays
        Targets of the rows, as in `treekit.kernels.records.Rows`.
    nominal : bool
    lost : bool
        Whether missing values are a category.
    width, centre : int, float
        Number of statistics of a category; value subtracted from a numeric target.

    Returns
    -------
    ends : (known categories,) int64
        For a number, the last code of each bin; for a nominal column, the categories' codes.
    table : (categories, width) float64
        Statistics; missing values, if they are a category, come last.
    """
    known = codes < n_codes
    if nominal:
        ends = np.unique(codes[known])
    else:
        ends = quantile_ends(codes[known], values[known, 0], bins)
    if len(ends) == 0 or known.all():
        lost = False
    table = np.zeros((len(ends) + (1 if lost else 0), width))
    for i in range(len(codes)):
        if not known[i] and not lost:
            continue
        category = np.searchsorted(ends, codes[i]) if known[i] else len(ends)
        weight = values[i, 0]
        if len(cells) > 0:
            table[category, np.int64(cells[i])] += weight
        else:
            apart = values[i, 1] / weight - centre
            table[category, 0] += weight
            table[category, 1] += weight * apart
            table[category, 2] += weight * apart * apart
    return ends, table


@compiled
def groups_of(group_of, sums):
    """Return the names of the groups and their statistics, in the order of the names."""
    names = np.flatnonzero(group_of == np.arange(len(group_of)))
    return names, sums[names]


def cross(node, feature, bins):
    """Return the `categories` of a column of a node.

    Missing values are no category if the policy splits by known values only.
    """
    rows, column = node.rows, node.table.codes[feature]
    codes = np.empty(len(rows.ids), np.int64)
    for i in range(len(codes)):
        codes[i] = column[rows.ids[i]]
    nominal, lost = node.table.nominal[feature] > 0, not node.rules.known_only
    width = len(node.stats) if len(rows.cells) > 0 else 3
    centre = 0.0 if len(rows.cells) > 0 else node.stats[1] / node.stats[0]
    n_codes = np.int64(node.table.n_codes[feature])
    return categories(codes, n_codes, rows.cells, rows.values, nominal, lost, width, centre, bins)


@compiled
def group_numbers(group_of, names, ends):
    """Return the group number of each known category, int32."""
    numbers = np.empty(len(ends), np.int32)
    for c in range(len(ends)):
        numbers[c] = np.searchsorted(names, group_of[c])
    return numbers


@compiled
def cuts_of(numbers, ends):
    """Return the last code of each interval except the highest, int32."""
    cuts, count = np.empty(len(ends), np.int32), 0
    for c in range(len(ends) - 1):
        if numbers[c + 1] != numbers[c]:
            cuts[count] = ends[c]
            count += 1
    return cuts[:count].copy()


def proposed(node, feature, ends, group_of, names):
    """Return the split with a branch for each group."""
    lost = len(group_of) > len(ends)
    apart = lost and group_of[-1] == len(ends)
    if apart and len(names) == 2:
        return missing_split(feature)
    numbers = group_numbers(group_of, names, ends)
    missing = -1
    if lost:
        missing = len(names) - 1 if apart else numbers[group_of[-1]]
    if node.table.nominal[feature] > 0:
        levels = np.full(np.int64(node.table.n_codes[feature]), -1, np.int32)
        for c in range(len(ends)):
            levels[ends[c]] = numbers[c]
        return missing_to(level_split(feature, levels, len(names)), missing)
    cuts = cuts_of(numbers, ends)
    if apart:
        return interval_split(feature, cuts, True)
    return missing_to(interval_split(feature, cuts), missing)


def make_find(alpha_split, alpha_merge, alpha_split_merged, bonferroni, bins, most_levels):
    """Return the ``find`` function for given settings; see `treekit_chaid.SETTINGS`."""
    log_split, log_merge = math.log(alpha_split), math.log(alpha_merge)
    log_part = -math.inf
    if alpha_split_merged > 0.0:
        log_part = math.log(min(alpha_split_merged, alpha_merge))

    def find(node, criterion, rng):
        """Return the most significant split of a node, or None if none is significant.

        Parameters
        ----------
        node : treekit.splitting.Node
        criterion
            ``criterion.score(parent, children)`` is reported as the gain of the split.
        rng : numpy.random.Generator
            Draws the columns to try in forests.
        """
        numbers = len(node.rows.cells) == 0
        if numbers and (node.quantile is not None or len(node.stats) != 2):
            raise ValueError(
                "chaid requires one target: classes, or a number with criterion squared_error"
            )
        found, best, best_feature, tried = None, np.inf, -1, 0
        for feature in draw_features(node, rng):
            if tried == node.n_try:
                break
            ends, table = cross(node, feature, bins)
            free = node.table.nominal[feature] > 0
            if len(table) < 2 or (free and len(ends) > most_levels):
                continue
            tried += 1
            kind, floating = (FREE, False) if free else (MONOTONIC, len(table) > len(ends))
            group_of, sums = merge_categories(
                table, kind, floating, log_merge, log_part, node.min_weight_leaf, numbers
            )
            names, groups = groups_of(group_of, sums)
            if len(names) < 2:
                continue
            value = max(log_p_value(groups, numbers), -1e300)
            if bonferroni:
                value += log_multiplier(len(table), len(names), kind, floating)
            slack = 0.0 if found is None else TIE * max(1.0, abs(best))
            equal = abs(value - best) <= slack and feature < best_feature
            if value <= log_split and (value < best - slack or equal):
                best, best_feature = value, feature
                found = proposed(node, feature, ends, group_of, names)
        if found is not None:
            children = branch_stats(node, found)
            found = scored(found, criterion.score(node.stats, children))
        return found

    return find
