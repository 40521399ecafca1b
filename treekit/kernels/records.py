"""Records that kernels pass around: table, rows, limits, working memory and splits.

S is the number of statistics of a node.  A target of classes is a *cell* target: a row adds its
weight to one statistic, its cell.  *Lanes* are the sums of several cells side by side in a word;
see `treekit.kernels.node_statistics`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import inlined, kernel, llvm_inlined

# ---------------------------------------------------------------- records


class Table(NamedTuple):
    """Training table as codes; shared by all trees and threads.

    Attributes
    ----------
    codes : (features, rows) uint8 or uint32
        ``n_codes[f]`` itself means missing and sorts last.
    n_codes : (features,) uint32
        Distinct codes of a column, not counting missing.
    nominal : (features,) uint8
        Kind of split of each column: 0 = threshold of a numeric column; of a nominal column
        1 = two sets of categories, 2 = one branch per category, 3 = one category
        against the rest.
    value_start : (features,) int64
        Where the values of each numeric column begin in `low` and `high`.
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
    """Rows in the order of nodes: the rows of a node are contiguous.

    Splitting a node reorders its rows.

    Attributes
    ----------
    ids : (rows,) uint32
        Row numbers.
    cells : (rows,) uint32
        Index of the statistic to which each row adds its weight, for cell targets;
        else empty.
    values : (rows, S) or (rows, 1) float64
        Statistics of each row for dense targets; its weight for cell targets;
        (rows, 3) for rank targets; see `treekit.kernels.quantile_statistics`.
    """

    ids: npt.NDArray[np.uint32]
    cells: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float64]


class Column(NamedTuple):
    """Codes of one column: row i has the code ``codes[first + i * step]``.

    Attributes
    ----------
    codes : (columns * rows,) or (rows,) uint8 or uint32
        Of all columns, or of this one alone.
    first, step : uint64
        Place of the code of row 0, and distance between those of neighbouring rows.
    n_codes : uint32
        The code of missing values.
    """

    codes: npt.NDArray[np.uint8]
    first: np.uint64
    step: np.uint64
    n_codes: np.uint32


class Limits(NamedTuple):
    """Stopping rules; weights are training weight.

    Attributes
    ----------
    max_depth : int
        Depth of the deepest leaves; -1 = no limit.
    min_weight_split, min_weight_leaf : float
        Least weight of a node that is split, and of the sides of a split.
    min_gain : float
        A split must score more than this; if negative, splits without a gain are kept, too.
    max_leaves : int
        Maximum number of leaves, by best-first growth; 0 = no limit, and depth-first growth.
    n_try : int
        Number of columns to try at a node, like ``max_features``.
    min_impurity : float
        Make a node with an impurity up to this a leaf; -1 = no limit.
    min_variance : float
        The same for the mean squared error, for regression criteria without an
        impurity; -1 = no limit.
    min_decrease : float
        Least score times weight of a split; in a recipe divided by the weight of the root, like
        ``min_impurity_decrease``.
    noise : float
        Bound on the rounding error of one row's dense statistics, 0 if they are exact: values
        and scores that differ by less are equal.
    """

    max_depth: int
    min_weight_split: float
    min_weight_leaf: float
    min_gain: float
    max_leaves: int
    n_try: int
    min_impurity: float = -1.0
    min_variance: float = -1.0
    min_decrease: float = 0.0
    noise: float = 0.0


class SplitRules(NamedTuple):
    """Rules for the splits of a column.

    Attributes
    ----------
    known_only : bool
        Score splits on the rows whose value is known, scaled by their share of the
        weight; otherwise try missing rows in either branch.
    empty_branches : bool
        Give a multiway split a branch for categories without rows, too.
    min_side_share : float
        Minimum share of the weight of rows without a missing value on either side of a numeric
        split, as in C4.5, but at least `min_weight_leaf` and at most 25; 0 = no minimum.
    resolution : float
        Never separate neighbouring numeric values that differ by at most this.
    placement : int
        Place of a threshold between two neighbouring values; see `treekit.kernels.thresholds`.
    exact_levels : int
        Several classes: try all subsets of up to this many categories.
    levels_by_score, tolerance
        Of the criterion: see `treekit.contracts.CriterionFunctions`.  They select
        the category in splits of one category against the rest.
    right_if_even : bool
        Where no training value was missing and both branches weigh the same, missing values
        take the right one, as in scikit-learn; otherwise the left one.
    midpoints : bool
        Use the midpoint between neighbouring values in the node, not in the whole table.
    """

    known_only: bool = False
    empty_branches: bool = False
    min_side_share: float = 0.0
    resolution: float = 0.0
    placement: int = 0
    exact_levels: int = 10
    levels_by_score: bool = False
    tolerance: float = 0.0
    right_if_even: bool = False
    midpoints: bool = False


PLAIN_RULES = SplitRules()
"""Default rules: missing rows go to one branch, no special rules."""


class CutBatch(NamedTuple):
    """Memory for cuts that are scored together; see `treekit.kernels.cut_batches`.

    Attributes
    ----------
    sums : (S, cuts) float64
        Statistics of the left sides; for ranks, then of the right sides.
    scores : (cuts,) float64
    cuts : (4, cuts) uint32
        The codes below and above each cut; then, for each column of the batch, its number and
        the place of its first cut.  Of a single column, (1, cuts): the position of each cut.
    left : (S,) float64
        Left side of the current cut.
    words : (words of lanes, cuts) uint64
        Statistics of the left sides as lanes.
    """

    sums: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    cuts: npt.NDArray[np.uint32]
    left: npt.NDArray[np.float64]
    words: npt.NDArray[np.uint64]


class Scratch(NamedTuple):
    """Working memory of one tree's splitter.

    The contents are those of one node, apart from `lines`, `layout` and `options`.

    For a rank target some arrays are larger; see `treekit.grow.tree_builder.allocate_scratch`.

    Attributes
    ----------
    features : (features,) int64
        Permuted when columns are drawn; in their own order at the start of each node.
    state : (1,) uint64
        State of the generator of the node's draws; at first the seed of the tree.
    words : (64 or more,) uint64
        Bitmaps of the codes present, 64 codes a word.
    lanes, slots : (rows,) uint64, (rows,) uint16
        Each row's weight in the lane of its class, and the place of the word with that lane;
        empty for dense targets.
    packed : (256 * min(S, 32),) uint64
        Sums of lanes for each code, or as float64 its statistics; zeros between uses.
    work : (4, rows) uint32
        Codes of the node's rows; two orders of them; the codes present.
    counts : (2050,) uint32
        Digit counts of the radix sort.
    compact : (codes, S) float64
        Statistics of each code present at the node, ascending by code.
    flat : (codes * S,) float64
        `compact` as one dimension.
    ordered : (levels, S) float64
        What moves to the left side, step by step: `compact` in the order of `keys`,
        or categories that join (+) and leave (-) the left side.
    keys : (levels,) float64
    start, best : (S,), (S + 6,) float64
        Initial left side of a scan, and its result: score, left weight, left
        statistics; then the constraints on its cuts (`treekit.kernels.monotonic`).
    pair : (2, S) float64
        Statistics on either side of the best split.
    offers : (4, features) float64
        Gain and score of each column's best split, for `choose`, the categories of
        each column per training weight, and its monotonic constraint.
    levels : (levels,) int32
        Branch of each category in the best split, or its terms
        (`treekit.kernels.oblique_splits`).
    options : (options,) float64
        Settings of the splitter.
    lines : (rows * features,) uint8 or uint32, or (0,)
        Row-major copy of the table's codes, shared by all trees; see
        `treekit.kernels.node_statistics`.  For rows that move as records, their codes.
    layout : (5,) uint64
        Layout of the records; see `treekit.kernels.row_records`.
    split : (1,) SPLIT
        Best split of the node.
    offsets : (2, branches + 1) int64
        Training rows (0) and held-out rows (1): those of branch b are from ``[i, b]`` up to
        ``[i, b + 1]``.
    batch, scan : CutBatch
        Cuts of several columns, and of a single one; None: no cuts are scored.
    """

    features: npt.NDArray[np.int64]
    state: npt.NDArray[np.uint64]
    words: npt.NDArray[np.uint64]
    lanes: npt.NDArray[np.uint64]
    slots: npt.NDArray[np.uint16]
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
    layout: npt.NDArray[np.uint64]
    split: npt.NDArray[np.void]
    offsets: npt.NDArray[np.int64]
    batch: CutBatch | None = None
    scan: CutBatch | None = None


class Node(NamedTuple):
    """A node, as passed to a splitter.

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
        Minimum weight of either side of a split.
    n_try : int
        Number of columns to try (all if not below their number).
    rules : SplitRules
    quantile : float or None
        Quantile level of a rank target; None for additive statistics.
    """

    table: Table
    rows: Rows
    stats: npt.NDArray[np.float64]
    weight: float
    impurity: float
    depth: int
    min_weight_leaf: float
    n_try: int
    rules: SplitRules
    quantile: float | None


class CriterionPointers(NamedTuple):
    """The functions of a criterion as pointers, and what they are used for.

    Attributes
    ----------
    score_cuts, branch_score, category_keys, choose, penalty, score, impurity, priority : pointers
        See `treekit.compiling.criterion`.
    n_category_orders : int
        Orderings of categories to try for subset splits.
    use_choose : bool
        Whether the criterion chooses between features itself.
    use_penalty : bool
        Whether it penalises the gain of a cut chosen from many candidates.
    use_priority : bool
        Whether it orders the nodes of best-first growth.
    row_scan : pointer
        Search for a cut row by row; see `treekit.compiling.criterion`.
    use_terms : bool
        Whether `row_scan` gives the same scores as `score_cuts` for the rows of the tree.
    """

    score_cuts: Any
    branch_score: Any
    category_keys: Any
    choose: Any
    penalty: Any
    n_category_orders: int
    use_choose: bool
    use_penalty: bool
    score: Any
    impurity: Any
    priority: Any
    use_priority: bool
    row_scan: Any
    use_terms: bool


class GrowthRules(NamedTuple):
    """Rules of growth: which nodes to split, how, and which splits to keep.

    Attributes
    ----------
    limits : Limits
    splits : SplitRules
    before : pointer
        Pre-pruning: whether to keep a split, called if `use_before`.
    use_before : bool
    """

    limits: Limits
    splits: SplitRules
    before: Any
    use_before: bool


class SplitSearch(NamedTuple):
    """Search for the best split of a node.

    Attributes
    ----------
    find : pointer or None
        The splitter; arguments as in `treekit.kernels.axis_splits.find_axis_split`.  None: a
        plain table, see `treekit.kernels.axis_splits.search_plain_columns`.
    lanes : bool or None
        Only for a plain table.  True: the weights of several classes are packed in one integer;
        None: statistics are summed as doubles.
    criterion : CriterionPointers
    rng : numpy.random.Generator
        For splitters of plugins.
    """

    find: Any
    lanes: bool | None
    criterion: CriterionPointers
    rng: Any


# ---------------------------------------------------------------- best split so far

TOLERANCE = 1e-9
"""Relative difference up to which scores are ties."""

THRESHOLD, SUBSET, MULTIWAY, MISSING = 1, 2, 3, 4

SPLIT_DTYPE = np.dtype(
    [
        *((name, np.int64) for name in ("kind", "feature", "cut", "after")),
        *((name, np.int64) for name in ("missing", "branches", "levels", "rank")),
        *((name, np.float64) for name in ("threshold", "score", "shrink")),
    ]
)
"""The best split so far.

`kind` is `THRESHOLD` and the like, 0 = no split, negative = an error (`BAD_NUMBER` and the like).
Codes up to `cut` go left; `after` is the next code above it at the node.  `levels` is the
number of categories; their branches are in ``scratch.levels``.  `rank` orders the splits of one
column for ties.  If `threshold` is NaN, the builder computes it later; `shrink` is the share of
the gain that remains after a penalty (1 = all).
"""

BAD_NUMBER, BAD_SPLIT, BAD_SCORE, BAD_CHOICE, BAD_PRIORITY, BAD_PENALTY, BAD_ORDER = range(
    -1, -8, -1
)
"""Reasons why growth stops.

BAD_NUMBER, BAD_PRIORITY, BAD_PENALTY, BAD_ORDER: the criterion's score or impurity, a
priority, a penalty, or the order of categories is NaN or infinite; ``scratch.best``
holds the statistics of a branch, or begins with the number of candidates of the
penalty.  BAD_SPLIT, BAD_SCORE: a splitter proposed an impossible split, or a split with
such a score.  BAD_CHOICE: `choose` selected a column without a split.
"""


@inlined
def is_finite(number):
    """Check that a number is neither NaN nor infinite."""
    return abs(number) < np.inf


@kernel
def is_better(score, feature, rank, impurity, best):
    """Check whether a split beats the best so far; ties go to the lower column, then rank."""
    if not is_finite(score):
        return False
    if best.kind == 0:
        return True
    slack = TOLERANCE * max(abs(best.score), impurity)
    if score > best.score + slack:
        return True
    if score < best.score - slack:
        return False
    return feature < best.feature or (feature == best.feature and rank < best.rank)


@inlined
def clear_split(split):
    """Clear the best split so far."""
    split.kind = 0
    split.threshold = np.nan
    split.score = -np.inf
    split.shrink = 1.0


@inlined
def replace_split(split, kind, feature, score, rank):
    """Replace the best split so far by one with two branches, missing values in the first."""
    split.kind, split.feature, split.score, split.rank = kind, np.int64(feature), score, rank
    split.cut, split.missing, split.branches, split.levels = 0, 0, 2, 0
    split.threshold, split.shrink = np.nan, 1.0


@inlined
def write_sides(pair, left, totals):
    """Write the statistics of both sides of a split, given those of the left one."""
    for k in range(np.uint64(len(totals))):
        pair[0, k] = left[k]
        pair[1, k] = totals[k] - left[k]


@inlined
def choose_missing_branch(side, sides_of_missing, right_if_even, left_weight, known_weight):
    """Return the branch of missing values: `side`, or the heavier one if none were tried."""
    if sides_of_missing:
        return side
    if right_if_even:
        # Class weights are rounded.
        return 0 if 2.0 * left_weight - known_weight > TOLERANCE * known_weight else 1
    return 0 if left_weight >= known_weight - left_weight else 1


@llvm_inlined
def report_statistics(status, stats, best, split):
    """Stop growth because of the statistics of a branch, which are written for the message."""
    split.kind = status
    for k in range(np.uint64(len(stats))):
        best[k + np.uint64(2)] = stats[k]


@inlined
def sum_weight(stats, dense):
    """Return the weight of the statistics of a node or group."""
    weight = stats[0]
    if not dense:
        for k in range(np.uint64(1), np.uint64(len(stats))):
            weight += stats[k]
    return weight
