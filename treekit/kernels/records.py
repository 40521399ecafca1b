"""The records that kernels pass around: everything of a tree's growth, grouped."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import inlined, kernel

__all__ = [
    "AFTER",
    "BAD_CHOICE",
    "BAD_NUMBER",
    "BAD_ORDER",
    "BAD_PENALTY",
    "BAD_PRIORITY",
    "BAD_SCORE",
    "BAD_SPLIT",
    "BRANCHES",
    "CUT",
    "FEATURE",
    "FOUND",
    "KIND",
    "LEVELS",
    "MISSING",
    "MISSING_BRANCH",
    "MULTIWAY",
    "NUMBERS",
    "PLAIN",
    "RANK",
    "SCORE",
    "SHRINK",
    "SUBSET",
    "THRESHOLD",
    "THRESHOLD_VALUE",
    "TOLERANCE",
    "Limits",
    "Node",
    "Rows",
    "Scratch",
    "Table",
    "Ways",
    "better",
    "finite",
]


# ---------------------------------------------------------------- node


class Table(NamedTuple):
    """The training table as codes; shared by all trees and threads.

    Attributes
    ----------
    codes : (features, rows) uint8 or uint32
        ``n_codes[f]`` itself means missing and sorts last.
    n_codes : (features,) uint32
        Distinct codes of a column, missing not counted.
    nominal : (features,) uint8
        0 numeric; nominal columns split 1 in two sets, 2 in one branch a level,
        3 in one level against the rest.
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
        Statistics of each row for dense targets; its weight for cell targets;
        (rows, 3) for rank targets; see `treekit.kernels.quantile_statistics`.
    """

    ids: npt.NDArray[np.uint32]
    cells: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float64]


class Limits(NamedTuple):
    """Stopping rules; weights are training weight.

    `max_leaves` 0 = no bound and depth-first growth.

    Attributes
    ----------
    min_impurity : float
        A node whose impurity is at or below it is a leaf; -1 = none.
    min_variance : float
        The same for the mean squared error of a number, for criteria without
        an impurity; -1 = none.
    """

    max_depth: int
    min_weight_split: float
    min_weight_leaf: float
    min_gain: float
    max_leaves: int
    n_try: int
    min_impurity: float = -1.0
    min_variance: float = -1.0


class Ways(NamedTuple):
    """How splits of a column are made.

    Attributes
    ----------
    known_only : bool
        Splits are judged by the rows whose value is known, times their share
        of the weight; otherwise missing rows are tried on either side.
    empty : bool
        A split with a branch for each level has one for levels without rows, too.
    side : float
        Least share of the known weight on either side of a numeric split, as
        C4.5 has it: clamped to `min_weight_leaf` and 25; 0 = no such rule.
    resolution : float
        Neighbouring values of a number that are no further apart are never separated.
    value_below : bool
        Thresholds are the largest training value not above the midpoint, but
        for rounding and `resolution`.
    exact_levels : int
        Several classes: all subsets of up to so many levels are tried.
    levels_by_score, tolerance
        Of the criterion: see `treekit.contracts.CriterionFunctions`.  Here they
        decide between levels that are told from the rest.
    """

    known_only: bool = False
    empty: bool = False
    side: float = 0.0
    resolution: float = 0.0
    value_below: bool = False
    exact_levels: int = 10
    levels_by_score: bool = False
    tolerance: float = 0.0


PLAIN = Ways()
"""Missing rows go one way, and no special rule holds."""


class Scratch(NamedTuple):
    """Working memory of one tree's splitter; nothing in it outlives a node.

    Few and wide: every array of a record costs compile time at each use.

    Attributes
    ----------
    features : (features,) int64
        Permuted by the draws of columns.
    state : (1,) uint64
        Of the generator that draws columns.
    words : (64 or more,) uint64
        One bit for each code, by 64, or rows to sort; see `treekit.kernels.node_statistics`.
    lanes, packed : (rows,), (256,) uint64
        Weights of classes side by side, of each row and of each code (zeros between uses).
    work : (4, rows) uint32
        Codes of the node's rows; two orders of them; the codes present.
    counts : (2050,) uint32
        Digit counts of the radix sort.
    compact : (codes, S) float64
        Statistics of each code present at the node, ascending by code.
    flat : (codes * S,) float64
        `compact` seen as one dimension.
    ordered : (levels, S) float64
        What goes left step by step: `compact` in the order of `keys`, or
        levels that join (+) and leave (-) the left side.
    keys : (levels,) float64
    start, best : (S,), (S + 6,) float64
        What a scan starts from, and its answer: score, left weight, left
        statistics; then what its cuts must keep to (`treekit.kernels.monotonic`).
    pair : (2, S) float64
        Statistics on either side of the split kept.
    offers : (4, features) float64
        Gain and score of each column's best split, for `choose`, the levels of
        each column per training weight, and its monotonic constraint.
    levels : (levels,) int32
        Branch of each level in the split kept, or its terms (`treekit.kernels.oblique_splits`).
    options : (options,) float64
        Settings of the splitter.
    lines : (rows * features,) unsigned, or (0,)
        The table's codes row by row, shared by all trees; see `treekit.kernels.node_statistics`.
    """

    features: npt.NDArray[np.int64]
    state: npt.NDArray[np.uint64]
    words: npt.NDArray[np.uint64]
    lanes: npt.NDArray[np.uint64]
    packed: npt.NDArray[np.uint64]
    work: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.uint32]
    compact: npt.NDArray[np.float64]
    flat: npt.NDArray[np.float64]
    ordered: npt.NDArray[np.float64]
    keys: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]
    best: npt.NDArray[np.float64]
    pair: npt.NDArray[np.float64]
    offers: npt.NDArray[np.float64]
    levels: npt.NDArray[np.int32]
    options: npt.NDArray[np.float64]
    lines: npt.NDArray[np.uint8]


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
    ways : Ways
    quantile : float or None
        Level of a rank target's quantile; None for statistics that add up.
    """

    table: Table
    rows: Rows
    stats: npt.NDArray[np.float64]
    weight: float
    impurity: float
    depth: int
    min_weight_leaf: float
    n_try: int
    ways: Ways
    quantile: float | None


# ---------------------------------------------------------------- found
# The split that a search has found so far: its cells, and how candidates compare.

TOLERANCE = 1e-9
"""Scores closer than this, relative, are ties (see the design's semantics)."""

THRESHOLD, SUBSET, MULTIWAY, MISSING = 1, 2, 3, 4

KIND, FEATURE, CUT, AFTER, MISSING_BRANCH, BRANCHES, LEVELS, RANK, FOUND = range(9)
"""Cells of `out`: the split found.

Kind 0 = none, below 0 one of `BAD_NUMBER` and the like.  Codes up to the cut go
left; after = the next code present at the node.  Levels are counted here and lie
in ``scratch.levels``.  Rank orders the splits of one column for ties.  FOUND is
the number of cells.
"""

THRESHOLD_VALUE, SCORE, SHRINK, NUMBERS = range(4)
"""Cells of `numbers`: the threshold (NaN = the builder's own), the score, and
what a penalty leaves of it (1 = all).  NUMBERS is the number of cells.
"""

BAD_NUMBER, BAD_SPLIT, BAD_SCORE, BAD_CHOICE, BAD_PRIORITY, BAD_PENALTY, BAD_ORDER = range(
    -1, -8, -1
)
"""Why growth stops: a criterion gave a number that is NaN or infinite (statistics of a
branch are in ``scratch.best``); a splitter named an impossible split, or one of such a
score; `choose` named no column that has a split; a priority, a penalty (of so many
candidates, which ``scratch.best`` begins with), or the order of levels is no finite
number.
"""


@inlined
def finite(number):
    """Whether a number is neither NaN nor infinite."""
    return abs(number) < np.inf


@kernel
def better(score, feature, rank, impurity, out, numbers):
    """Whether a split beats the best so far: ties go to the lower column, then rank."""
    if not finite(score):
        return False
    if out[KIND] == 0:
        return True
    slack = TOLERANCE * max(abs(numbers[SCORE]), impurity)
    if score > numbers[SCORE] + slack:
        return True
    if score < numbers[SCORE] - slack:
        return False
    return feature < out[FEATURE] or (feature == out[FEATURE] and rank < out[RANK])
