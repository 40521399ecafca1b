"""The splitter of extremely randomised trees (Geurts, Ernst and Wehenkel 2006).

P. Geurts, D. Ernst and L. Wehenkel, "Extremely randomized trees", Machine
Learning 63, 2006, pp. 3-42, table 1: at each node, draw K non-constant columns
and one random cut of each, and keep the best of the K.
"""

import numpy as np

from treekit import Splitter, SplitterFunctions, hookimpl
from treekit.splitting import (
    branch_stats,
    code_range,
    cut_below,
    draw_features,
    heavy_enough,
    level_split,
    missing_split,
    missing_to,
    scored,
    threshold_split,
    value_of,
)


def draw_sides(node, feature, rng):
    """Draw a side for each category present at the node, neither side empty; -1 for others.

    Sides are drawn in the order of the categories, independent of the order of the rows.
    """
    codes = node.table.codes[feature]
    n_levels = node.table.n_codes[feature]
    levels = np.full(n_levels, -1, np.int32)
    for i in range(len(node.rows.ids)):
        code = codes[node.rows.ids[i]]
        if code < n_levels:
            levels[code] = 0
    seen, ones = 0, 0
    last = 0
    for level in range(len(levels)):
        if levels[level] == 0:
            levels[level] = rng.integers(0, 2)
            seen, ones, last = seen + 1, ones + levels[level], level
    if ones in (0, seen):
        levels[last] = 1 - levels[last]
    return levels


def find(node, criterion, rng):
    """Return the best split among one random cut per column.

    Numeric columns: a threshold drawn uniformly between the smallest and the
    largest value at the node. Nominal columns: a side drawn for each category.
    Missing values take the side with the better score; a column with one value and
    missing values is split into missing or not.

    Parameters
    ----------
    node : treekit.splitting.Node
    criterion
        ``criterion.score(parent, children)``.
    rng : numpy.random.Generator

    Returns
    -------
    treekit.splitting.Split, or None for a leaf
    """
    found = None
    best = 0.0
    tried = 0
    for feature in draw_features(node, rng):
        low, high, n_missing = code_range(node, feature)
        if tried == node.n_try or (low >= high and (n_missing == 0 or high < 0)):
            continue
        tried += 1
        if low == high:
            split = missing_split(feature)
        elif node.table.nominal[feature] > 0:
            split = level_split(feature, draw_sides(node, feature, rng), 2)
        else:
            start, end = value_of(node, feature, low), value_of(node, feature, high)
            threshold = start + rng.random() * (end - start)
            cut = cut_below(node, feature, low, high, threshold)
            split = threshold_split(feature, cut, threshold)
        for side in range(2 if n_missing > 0 and low < high else 1):
            if n_missing > 0:
                split = missing_to(split, side)
            children = branch_stats(node, split)
            if heavy_enough(node, children):
                score = criterion.score(node.stats, children)
                if score > best:
                    best, found = score, scored(split, score)
    return found


def make():
    """Return the splitter's functions; K is treekit's ``max_features``."""
    return SplitterFunctions(find=find, coding="exact")


@hookimpl
def treekit_splitters():
    """Register the splitter."""
    return [
        Splitter("random_threshold", make, summary="one random cut per column (Geurts et al. 2006)")
    ]
