"""The records that kernels pass around: everything of a tree's growth, grouped."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Limits", "Node", "Rows", "Scratch", "Table"]


class Table(NamedTuple):
    """The training table as codes; shared by all trees and threads.

    Attributes
    ----------
    codes : (features, rows) uint8, uint16 or uint32
        ``n_codes[f]`` itself means missing and sorts last.
    n_codes : (features,) uint32
        Distinct codes of a column, missing not counted.
    nominal : (features,) uint8
        0 numeric; 1 nominal, split in two sets; 2 nominal, one branch a level.
    value_start : (features,) int64
    low, high : (codes of all numeric columns,) float64
        Smallest and largest training value of code c of column f, at
        ``value_start[f] + c``.
    """

    codes: npt.NDArray[np.uint8]
    n_codes: npt.NDArray[np.uint32]
    nominal: npt.NDArray[np.uint8]
    value_start: npt.NDArray[np.int64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]


class Rows(NamedTuple):
    """Rows in node order: each node owns one slice, and partitioning moves them.

    Attributes
    ----------
    ids : (rows,) uint32
        Row numbers.
    cells : (rows,) uint32
        Statistics cell of each row, for cell targets; else empty.
    values : (rows, S) or (rows, 1) float64
        Statistics of each row for dense targets; its weight for cell targets.
    """

    ids: npt.NDArray[np.uint32]
    cells: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float64]


class Limits(NamedTuple):
    """Stopping rules; weights are training weight.

    `max_leaves` 0 = no bound and depth-first growth.
    """

    max_depth: int
    min_weight_split: float
    min_weight_leaf: float
    min_gain: float
    max_leaves: int
    n_try: int


class Scratch(NamedTuple):
    """Working memory of one growing tree; splitters must not rely on its contents.

    `flat` is `compact` seen as one dimension.
    """

    features: npt.NDArray[np.int64]
    codes: npt.NDArray[np.uint32]
    order: npt.NDArray[np.uint32]
    order2: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.uint32]
    words: npt.NDArray[np.uint64]
    compact: npt.NDArray[np.float64]
    sorted: npt.NDArray[np.float64]
    flat: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]
    pair: npt.NDArray[np.float64]
    code_of: npt.NDArray[np.uint32]
    keys: npt.NDArray[np.float64]
    best: npt.NDArray[np.float64]
    levels: npt.NDArray[np.int32]
    best_levels: npt.NDArray[np.int32]
    ids2: npt.NDArray[np.uint32]
    cells2: npt.NDArray[np.uint32]
    values2: npt.NDArray[np.float64]
    feature_score: npt.NDArray[np.float64]
    feature_gain: npt.NDArray[np.float64]


class Node(NamedTuple):
    """What a splitter sees of one node.

    Attributes
    ----------
    table : Table
        Codes of all training rows, column by column.
    rows : Rows
        This node's rows.
    stats : (S,) float64
        Sum of the rows' statistics.
    weight : float
        Training weight of the node.
    impurity : float
        The criterion's impurity of the node, 0 if it has none.
    depth : int
    min_weight_leaf : float
        Both sides of a split need at least this weight.
    n_try : int
        How many columns to try (all if not below their number).
    scratch : Scratch
    """

    table: Table
    rows: Rows
    stats: npt.NDArray[np.float64]
    weight: float
    impurity: float
    depth: int
    min_weight_leaf: float
    n_try: int
    scratch: Scratch
