"""Tools for splitter plugins: the node to split and the splits to propose.

A splitter's ``find(node, criterion, rng)`` examines one node
(`treekit.kernels.records.Node`) and returns a `Split`, or None to make it a leaf.
It is compiled by numba where possible, and these functions compile with it::

    split = threshold_split(feature, cut)
    children = branch_stats(node, split)
    if heavy_enough(node, children):
        return scored(split, criterion.score(node.stats, children))

``criterion.score(parent, children)`` scores any proposed branches; ``rng`` is a
`numpy.random.Generator`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.records import Node

__all__ = [
    "Node",
    "Split",
    "branch_stats",
    "code_range",
    "cut_below",
    "draw_features",
    "heavy_enough",
    "interval_split",
    "level_split",
    "missing_split",
    "missing_to",
    "oblique_split",
    "scored",
    "threshold_split",
    "value_of",
]

HEAVIEST_BRANCH = -1
"""Branch of missing values: the one with the largest weight at the node."""


class Split(NamedTuple):
    """A proposed split; created by the functions of this module.

    Attributes
    ----------
    kind : int
        A `treekit.model.tree.Split`; 6 for intervals.
    feature : int
    cut : int
        Threshold splits: codes up to it go to branch 0.
    threshold : float
        The threshold that the model stores; NaN: the midpoint above the cut.
    missing : int
        Branch of missing values; -1: the heaviest.
    branches : int
    levels : (levels,) int32
        Level splits: branch of each category, -1 = as missing values.  Interval splits:
        the cuts, codes in ascending order.  Oblique splits: columns and the bits
        of their weights, alternating.  Otherwise empty.
    score : float
    """

    kind: int
    feature: int
    cut: int
    threshold: float
    missing: int
    branches: int
    levels: npt.NDArray[np.int32]
    score: float


def _make_split(
    kind: int,
    feature: int,
    cut: int,
    threshold: float,
    missing: int,
    branches: int,
    levels: npt.NDArray[np.int32],
    score: float,
) -> Split:
    """Return a split of numba's one type: a code may be an int32, a score a float32."""
    return Split(
        np.int64(kind), np.int64(feature), np.int64(cut), np.float64(threshold),
        np.int64(missing), np.int64(branches), levels, np.float64(score),
    )  # fmt: skip


def threshold_split(feature: int, cut: int, threshold: float = np.nan) -> Split:
    """Return a split that sends codes up to `cut` to branch 0, greater ones to branch 1.

    `threshold` must lie between the values of codes `cut` and ``cut + 1``; it
    is rounded down to the model's input type.  If it is NaN, the midpoint of the two
    values is used.
    """
    return _make_split(1, feature, cut, threshold, HEAVIEST_BRANCH, 2, np.empty(0, np.int32), 0.0)


def interval_split(feature: int, cuts: npt.NDArray[np.int32], missing_apart: bool = False) -> Split:
    """Return a split with a branch for each interval of a numeric column, lowest values first.

    For splitters that declare ``SplitterFunctions(intervals=True)``.  The tree
    stores such a split as nested thresholds on the column; no further search takes place
    within it, and `max_depth` counts it as one level.

    Parameters
    ----------
    feature : int
    cuts : (intervals - 1,) int32
        Ascending codes, at least one; codes up to a cut are below it, and every
        interval must contain known rows: rows of the node with a value in it.
    missing_apart : bool
        Whether missing values have a separate branch, which is branch 0, followed by
        the intervals.  Otherwise they join an interval (`missing_to`).
    """
    first = 1 if missing_apart else 0
    missing = 0 if missing_apart else HEAVIEST_BRANCH
    return _make_split(6, feature, 0, np.nan, missing, len(cuts) + 1 + first, cuts, 0.0)


def level_split(feature: int, levels: npt.NDArray[np.int32], branches: int) -> Split:
    """Return a split that sends category c to branch ``levels[c]``, or as missing values if -1."""
    kind = 2 if branches == 2 else 3
    return _make_split(kind, feature, 0, np.nan, HEAVIEST_BRANCH, branches, levels, 0.0)


def missing_split(feature: int) -> Split:
    """Return a split that sends missing values to branch 0, all others to branch 1."""
    return _make_split(4, feature, 0, np.nan, 0, 2, np.empty(0, np.int32), 0.0)


def oblique_split(
    features: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], threshold: float
) -> Split:
    """Return a split that sends ``sum(weights * x) <= threshold`` to branch 0, others to branch 1.

    For splitters that declare ``SplitterFunctions(sums=True)``.  `features` are
    numeric columns, ascending; weights are rounded to float32 and must not be 0.  A row
    that lacks one of the values is missing.
    """
    terms = np.empty(2 * len(features), np.int32)
    bits = terms.view(np.float32)
    for j in range(len(features)):
        terms[2 * j] = features[j]
        bits[2 * j + 1] = weights[j]
    return _make_split(5, features[0], 0, threshold, HEAVIEST_BRANCH, 2, terms, 0.0)


def missing_to(split: Split, branch: int) -> Split:
    """Return the split with missing values sent to `branch`."""
    return _make_split(
        split.kind, split.feature, split.cut, split.threshold, branch, split.branches,
        split.levels, split.score,
    )  # fmt: skip


def scored(split: Split, score: float) -> Split:
    """Return the split with a score; larger is better."""
    return _make_split(
        split.kind, split.feature, split.cut, split.threshold, split.missing, split.branches,
        split.levels, score,
    )  # fmt: skip


def branch_stats(node: Node, split: Split) -> npt.NDArray[np.float64]:
    """Return the statistics of each branch of a proposed split.

    Rows with missing values count in the branch to which the split sends them, and in none
    if that is "the heaviest".

    Returns
    -------
    (branches, S) float64
        Cost: one pass over the node's rows, for a rank target one per branch.
    """
    return _compute_branch_stats(node, split, node.quantile)


def _compute_branch_stats(
    node: Node, split: Split, quantile: float | None
) -> npt.NDArray[np.float64]:
    # `quantile` is a separate argument: numba then drops the branch of the other type.
    children = np.zeros((split.branches, len(node.stats)))
    rows = node.rows
    codes = node.table.codes[split.feature]
    n_codes = np.int64(node.table.n_codes[split.feature])
    sums = np.zeros(0)
    if split.kind == 5:
        sums = _sum_terms(node, split.levels)
    if quantile is not None:
        order = np.empty(len(rows.ids), np.uint32)
        for b in range(split.branches):
            count = 0
            for i in range(len(rows.ids)):
                if _find_branch(np.int64(codes[rows.ids[i]]), n_codes, sums, i, split) == b:
                    order[count] = i
                    count += 1
            summarise_ranks(rows.values, order, count, quantile, children[b])
        return children
    for i in range(len(rows.ids)):
        branch = _find_branch(np.int64(codes[rows.ids[i]]), n_codes, sums, i, split)
        if branch < 0:
            continue
        if len(rows.cells) > 0:
            children[branch, np.int64(rows.cells[i])] += rows.values[i, 0]
        else:
            for k in range(len(node.stats)):
                children[branch, k] += rows.values[i, k]
    return children


def summarise_ranks(
    values: npt.NDArray[np.float64],
    order: npt.NDArray[np.uint32],
    count: int,
    quantile: float,
    stats: npt.NDArray[np.float64],
) -> None:
    """Write rank statistics of the rows ``order[:count]`` into `stats`, in Python."""
    from treekit.kernels.quantile_statistics import (
        summarise_rows,  # imports numba; only needed for rank statistics
    )

    summarise_rows(values, order, 0, count, quantile, stats)


def _find_branch(
    code: int, n_codes: int, sums: npt.NDArray[np.float64], row: int, split: Split
) -> int:
    """Return the branch of a code, or of the sum at a row's position; -1 if not yet known."""
    if split.kind == 5:
        if math.isnan(sums[row]):
            return split.missing
        return 0 if sums[row] <= split.threshold else 1
    if code == n_codes:
        return split.missing
    if split.kind == 1:
        return 0 if code <= split.cut else 1
    if split.kind == 4:
        return 1
    if split.kind == 6:
        below = np.searchsorted(split.levels, code)
        return np.int64(below + (split.branches - len(split.levels) - 1))
    if split.levels[code] >= 0:
        return np.int64(split.levels[code])
    return split.missing


def _sum_terms(node: Node, terms: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """Return (rows,) float64: each row's sum, computed as in every artifact; NaN = missing."""
    sums = np.zeros(len(node.rows.ids))
    bits = terms.view(np.float32)
    for j in range(0, len(terms), 2):
        codes = node.table.codes[terms[j]]
        for i in range(len(sums)):
            code = np.int64(codes[node.rows.ids[i]])
            value = np.nan
            if code < np.int64(node.table.n_codes[terms[j]]):
                value = value_of(node, terms[j], code)
            sums[i] += np.float64(bits[j + 1]) * value
    return sums


def heavy_enough(node: Node, children: npt.NDArray[np.float64]) -> bool:
    """Return whether at least two branches have a weight of ``node.min_weight_leaf`` or more."""
    heavy = 0
    for b in range(children.shape[0]):
        weight = children[b, 0]
        if len(node.rows.cells) > 0:
            weight = children[b].sum()
        heavy += 1 if weight >= node.min_weight_leaf and weight > 0.0 else 0
    return heavy >= 2


def draw_features(node: Node, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return all columns in random order, to try until ``node.n_try`` non-constant ones are found.

    Returns
    -------
    (features,) int64
    """
    features = np.arange(len(node.table.n_codes))
    for j in range(len(features) - 1):
        pick = j + rng.integers(0, len(features) - j)
        features[j], features[pick] = features[pick], features[j]
    return features


def code_range(node: Node, feature: int) -> tuple[int, int, int]:
    """Return the smallest and largest known code of a column at the node, and its missing rows.

    ``(0, -1, missing rows)`` if no value is known.
    """
    codes = node.table.codes[feature]
    n_codes = node.table.n_codes[feature]
    lowest, highest, missing = np.int64(n_codes), np.int64(-1), 0
    for i in range(len(node.rows.ids)):
        code = np.int64(codes[node.rows.ids[i]])
        if code == n_codes:
            missing += 1
        else:
            lowest = min(lowest, code)
            highest = max(highest, code)
    if highest < 0:
        lowest = np.int64(0)
    return lowest, highest, missing


def value_of(node: Node, feature: int, code: int) -> float:
    """Return the smallest training value of a numeric column's code."""
    return node.table.low[node.table.value_start[feature] + code]


def cut_below(node: Node, feature: int, low: int, high: int, value: float) -> int:
    """Return the largest code in ``low .. high - 1`` whose values do not exceed `value`.

    Parameters
    ----------
    low, high : int
        As from `code_range`; `value` is at least that of `low`.
    """
    base = node.table.value_start[feature]
    while high - low > 1:
        middle = (low + high) // 2
        if node.table.low[base + middle] <= value:
            low = middle
        else:
            high = middle
    return low


HELPER_FUNCTIONS = (_compute_branch_stats, _find_branch, _make_split, _sum_terms)
"""Functions that the public functions call, to be compiled with them."""
