"""What a splitter plugin works with: the makers of splits.

A splitter's ``find(node, criterion, rng)`` looks at one node
(`treekit.kernels.node.Node`) and returns a `Split`, or None to leave it a leaf.
It is compiled by numba where possible, and these functions compile with it.

``criterion.score(parent, children)`` scores any proposed branches; ``rng`` is a
`numpy.random.Generator`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.node import Node

__all__ = [
    "Split",
    "code_range",
    "draw_features",
    "left_stats",
    "level_split",
    "missing_split",
    "missing_stats",
    "threshold_split",
]


class Split(NamedTuple):
    """A proposed split; make it with the functions of this module."""

    kind: int
    feature: int
    cut: int
    threshold: float
    missing: int
    branches: int
    levels: npt.NDArray[np.int32]
    score: float


def threshold_split(
    feature: int, cut: int, threshold: float, missing: int, score: float
) -> Split:
    """Codes up to `cut` go to branch 0, missing values to branch `missing`.

    `threshold` is the number that the model stores; it must lie between the
    values of codes `cut` and ``cut + 1``.  NaN: the midpoint is taken.
    """
    return Split(1, feature, cut, threshold, missing, 2, np.empty(0, np.int32), score)


def level_split(
    feature: int, levels: npt.NDArray[np.int32], branches: int, missing: int, score: float
) -> Split:
    """Level c of a nominal column goes to branch ``levels[c]``, -1 the missing way."""
    return Split(3 if branches != 2 else 2, feature, 0, np.nan, missing, branches, levels, score)


def missing_split(feature: int, score: float) -> Split:
    """Rows whose value is missing go to branch 0, all others to branch 1."""
    return Split(4, feature, 0, np.nan, 0, 2, np.empty(0, np.int32), score)


def draw_features(node: Node, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """All columns in random order: try them until ``node.n_try`` were not constant.

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
    """Smallest and largest known code of a column at the node, and its missing rows.

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


def left_stats(node: Node, feature: int, cut: int) -> npt.NDArray[np.float64]:
    """(S,) statistics of the node's rows whose code is at most `cut`."""
    return _stats_between(node, feature, 0, cut)


def missing_stats(node: Node, feature: int) -> npt.NDArray[np.float64]:
    """(S,) statistics of the node's rows whose value is missing."""
    n_codes = np.int64(node.table.n_codes[feature])
    return _stats_between(node, feature, n_codes, n_codes)


def _stats_between(node: Node, feature: int, low: int, high: int) -> npt.NDArray[np.float64]:
    stats = np.zeros(len(node.stats))
    codes = node.table.codes[feature]
    for i in range(len(node.rows.ids)):
        code = np.int64(codes[node.rows.ids[i]])
        if low <= code <= high:
            if len(node.rows.cells) > 0:
                stats[node.rows.cells[i]] += node.rows.values[i, 0]
            else:
                stats += node.rows.values[i]
    return stats
