"""The boxes of a model's leaves, and rows inside them.

A box is the set of inputs that reach a leaf: for each column an interval or some categories, and
whether missing values are included.  Sums that splits compare are further columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.model.fixed_point import floor_to_dtype, to_double_threshold
from treekit.model.model import Model
from treekit.model.scoring import leaf_indices
from treekit.model.tree import (
    DerivedColumns,
    Split,
    Tree,
    concatenate_trees,
    make_node_tests,
    take_slices,
)
from treekit.rules.extract import (
    Conditions,
    extract_listed_conditions,
    extract_merged_conditions,
    is_rule_list,
    list_path_nodes,
)
from treekit.rules.rule_list import ConditionTable
from treekit.verify.probe_values import SPECIAL_NUMBERS, find_next_above

# ---------------------------------------------------------------- boxes

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Boxes:
    """The leaves that inputs can reach, and their boxes; one count numbers the nodes of all trees.

    Attributes
    ----------
    model : Model
    nodes : Tree
        The nodes of all trees.
    roots : (trees + 1,) int64
    tests : DerivedColumns
        Tests of every node.
    node_of_test : (tests,) int64
    thresholds : list of (numbers,) float64
        Distinct thresholds of each column, ascending.
    numbers : list of (numbers,) float64
        The same, the next number above each, and special numbers, ascending.
    leaf : (leaves,) int64
        Node numbers of the leaves, from left to right in each tree.
    first, count : (nodes,) int64
        The leaves below each node are ``leaf[first : first + count]``.
    offsets : (leaves + 1,) int64
        Offsets of the conditions of each leaf.
    conditions : ConditionTable
        At most one for each leaf and column; a sum is numbered by one of its tests, after the
        columns of the model.
    exact : bool
        Whether a row that meets the conditions reaches the leaf: without sums, surrogates
        and rules.  Otherwise some of the leaves may be unreachable.
    groups : list of (int, Model)
        Groups of trees, with the number of the first.
    demands : list of Demands
        Those of all leaves, if they were computed.
    """

    model: Model
    nodes: Tree
    roots: Index
    tests: DerivedColumns
    node_of_test: Index
    thresholds: list[Array]
    numbers: list[Array]
    leaf: Index
    first: Index
    count: Index
    offsets: Index
    conditions: ConditionTable
    exact: bool
    groups: list[tuple[int, Model]] = field(repr=False)
    demands: list[Demands] = field(default_factory=list, repr=False)

    @property
    def first_level(self) -> Index:
        """(features,) int64: place of the first category of each column among all."""
        n_levels: Index = self.model.schema.n_levels
        return np.cumsum(n_levels) - n_levels

    @property
    def takes_unseen(self) -> Mask:
        """(features,) bool: columns whose unseen categories are treated as missing values.

        All are False if the boxes are not `exact`.
        """
        model = self.model
        taken = self.exact and model.unknown == "missing" and model.missing != "error"
        return model.schema.nominal & taken

    @property
    def row_cells(self) -> int:
        """Number of columns and categories, of which demands consist."""
        return self.model.schema.n_features + int(self.model.schema.n_levels.sum())


def make_boxes(model: Model) -> Boxes:
    """Return the boxes of a model, whose trees may have splits of any kind."""
    tests = make_node_tests(model)
    nodes, roots = concatenate_trees(model.trees)
    if is_rule_list(model):
        end, listed = extract_listed_conditions(model)
        parts = [(np.flatnonzero(nodes.kind == Split.LEAF), end, listed)]
    else:
        parts = [
            _extract_tree(model, tree, tests, root)
            for tree, root in zip(model.trees, roots.tolist(), strict=False)
        ]
    leaf = np.concatenate([part[0] for part in parts])
    sizes = np.concatenate([np.diff(part[1], prepend=0) for part in parts])
    table = ConditionTable.concatenate([part[2] for part in parts])
    owner = np.repeat(np.arange(len(leaf)), sizes)
    possible = np.full(len(leaf), has_accepted_rows(model))
    possible[owner[~table.known & ~table.missing]] = False
    kept = np.flatnonzero(possible)
    first, count = _find_leaves_below(model, roots, leaf[kept])
    thresholds = _collect_thresholds(model, tests)
    return Boxes(
        model=model,
        nodes=nodes,
        roots=roots,
        tests=tests,
        node_of_test=np.repeat(np.flatnonzero(tests.column >= 0), np.diff(tests.test_start)),
        thresholds=thresholds,
        numbers=[_add_neighbours(own, model.schema.dtype) for own in thresholds],
        leaf=leaf[kept],
        first=first,
        count=count,
        offsets=np.cumsum(np.append(0, sizes[kept])),
        conditions=_take_conditions(table, np.flatnonzero(possible[owner])),
        groups=_group_trees(model),
        exact=not (len(nodes.term_feature) or len(nodes.surrogate_feature)),
    )


def has_accepted_rows(model: Model) -> bool:
    """Return whether the model has a prediction for any row.

    It has none if missing values are an error and a nominal column has no categories.
    """
    schema = model.schema
    return model.missing != "error" or bool(np.all(~schema.nominal | (schema.n_levels > 0)))


def _extract_tree(model: Model, tree: Tree, tests: DerivedColumns, root: int) -> Conditions:
    """Return the leaves of one tree, from left to right, and their conditions.

    Nodes that compare the same sum narrow the same interval.  A missing value may take any branch
    of a split that has surrogates or divides rows.
    """
    n_features = model.schema.n_features
    feature = tree.feature.copy()
    tests_of_sums: list[int] = []
    numbers: dict[bytes, int] = {}
    for node in np.flatnonzero(tree.kind == Split.OBLIQUE).tolist():
        terms = slice(*tree.term_offsets[node : node + 2].tolist())
        key = tree.term_feature[terms].tobytes() + tree.term_weight[terms].tobytes()
        if key not in numbers:
            numbers[key] = len(numbers)
            tests_of_sums.append(int(tests.test_start[tests.column[root + node]]))
        feature[node] = n_features + numbers[key]
    any_branch = (np.diff(tree.surrogate_offsets) > 0) | (model.missing == "fractional")
    plain = replace(
        tree,
        kind=np.where(tree.kind == Split.OBLIQUE, np.uint8(Split.THRESHOLD), tree.kind),
        feature=feature,
        missing=np.where(any_branch, -1, tree.missing),
    )
    n_levels = np.append(model.schema.n_levels, np.zeros(len(numbers), dtype=np.int64))
    leaf, end, table = extract_merged_conditions(model, plain, n_levels)
    column = table.column.astype(np.int64)
    of_sum = column >= n_features
    column[of_sum] = n_features + np.array(tests_of_sums, np.int64)[column[of_sum] - n_features]
    return leaf + root, end, table._replace(column=column.astype(np.int32))


def _take_conditions(table: ConditionTable, which: Index) -> ConditionTable:
    levels, starts = take_slices(np.append(0, table.level_end), which)
    fields = {name: part[which] for name, part in table._asdict().items() if name != "levels"}
    return ConditionTable(**fields | {"level_end": starts[1:], "levels": table.levels[levels]})


def _find_leaves_below(model: Model, roots: Index, leaf: Index) -> tuple[Index, Index]:
    """Return the place in `leaf` of the first leaf below each node, and the number of leaves."""
    first = np.zeros(int(roots[-1]), dtype=np.int64)
    count = np.zeros(int(roots[-1]), dtype=np.int64)
    ends = np.searchsorted(np.sort(leaf), roots).tolist()  # leaves of a tree are adjacent
    for tree, root, (a, b) in zip(
        model.trees, roots.tolist(), itertools.pairwise(ends), strict=False
    ):
        path, end = list_path_nodes(tree, leaf[a:b] - root)
        place = np.repeat(np.arange(a, b), np.diff(end, prepend=0))
        first[root + path[::-1]] = place[::-1]  # the last that is written is the first leaf
        count[root : root + tree.n_nodes] = np.bincount(path, minlength=tree.n_nodes)
        first[root], count[root] = a, b - a
    return first, count


def _collect_thresholds(model: Model, tests: DerivedColumns) -> list[Array]:
    """Collect the numbers of each column at which a test changes if its other terms are zero."""
    test = np.repeat(np.arange(len(tests.threshold)), np.diff(tests.term_start))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        values = floor_to_dtype(tests.threshold[test] / tests.term_weight, model.schema.dtype)
    some = np.isfinite(values)
    pairs = np.stack([tests.term_feature[some].astype(np.float64), values[some] + 0.0], axis=1)
    pairs = np.unique(pairs, axis=0)
    cuts = np.searchsorted(pairs[:, 0], np.arange(1, model.schema.n_features))
    return np.split(np.ascontiguousarray(pairs[:, 1]), cuts)


def _add_neighbours(thresholds: Array, dtype: Dtype) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        special = SPECIAL_NUMBERS.astype(dtype).astype(np.float64)
    return np.unique(np.concatenate([thresholds, find_next_above(thresholds, dtype), special]))


# ---------------------------------------------------------------- leaves of rows

_CHUNK_ROWS = 20_000
_GROUP_NODES = 4096
"""Trees are scored in groups of at least this many nodes, to which fewer rows go."""


def find_ends(boxes: Boxes, rows: Array, tree: Index) -> Index:
    """Return the place in ``boxes.leaf`` of the leaf that each row reaches in a tree, or -1.

    The leaf of a divided row is the one with most of its mass.
    """
    end, place = np.empty(len(rows), dtype=np.int64), np.full(len(boxes.nodes.kind), -1)
    place[boxes.leaf] = np.arange(len(boxes.leaf))
    order = np.argsort(tree, kind="stable")
    starts = [first for first, _ in boxes.groups]
    cuts = np.searchsorted(tree[order], starts[1:])
    for (first, model), own in zip(boxes.groups, np.split(order, cuts), strict=True):
        for at in range(0, len(own), _CHUNK_ROWS):
            part = own[at : at + _CHUNK_ROWS]
            leaves = leaf_indices(model, rows[part])
            leaf = leaves[np.arange(len(part)), tree[part] - first]
            end[part] = place[boxes.roots[tree[part]] + leaf]
    return end


def find_flipped_ends(boxes: Boxes, rows: Array, node: Index, rng: np.random.Generator) -> Index:
    """Return the leaf that each row reaches if it takes another branch, drawn at random, at a node.

    For rows that reach the node, in models whose boxes are `exact`.  Leaves are positions in
    ``boxes.leaf``; -1 if no input can reach the leaf.
    """
    nodes = boxes.nodes
    place = np.full(len(nodes.kind), -1)
    place[boxes.leaf] = np.arange(len(boxes.leaf))
    with np.errstate(over="ignore", under="ignore"):
        cells = rows.astype(boxes.model.schema.dtype)
    n_branches = nodes.n_children[node].astype(np.int64)
    more = draw_index(np.ones_like(node), n_branches - 1, rng)
    branch = (_choose_branches(boxes, cells, node) + more) % n_branches
    node = nodes.first_child[node] + branch
    while len(some := np.flatnonzero(nodes.n_children[node])):
        at = node[some]
        node[some] = nodes.first_child[at] + _choose_branches(boxes, cells[some], at)
    ends: Index = place[node]
    return ends


def _choose_branches(boxes: Boxes, cells: npt.NDArray[Any], node: Index) -> Index:
    """Return the branch that each of the rows takes at a node, in models whose boxes are exact."""
    nodes, schema = boxes.nodes, boxes.model.schema
    feature = nodes.feature[node]
    x = cells[np.arange(len(node)), feature]
    branch = np.where(x <= nodes.threshold[node], 0, 1)
    coded = np.flatnonzero(
        (nodes.kind[node] == Split.SUBSET) | (nodes.kind[node] == Split.MULTIWAY)
    )
    codes = x[coded]
    known = (codes >= 0) & (codes < schema.n_levels[feature[coded]])
    entry = nodes.level_offsets[node[coded]] + np.where(known, codes, 0).astype(np.int64)
    branch[coded] = np.where(known, np.append(nodes.level_branch, -1)[entry], -1)
    branch = np.where(np.isnan(x) | (branch < 0), nodes.missing[node], branch)
    return np.where(nodes.kind[node] == Split.MISSING, np.where(np.isnan(x), 0, 1), branch)


def find_all_ends(boxes: Boxes, rows: Array) -> Index:
    """Return the places in ``boxes.leaf`` of the leaves of each row, (trees, rows) int64."""
    place = np.full(len(boxes.nodes.kind), -1)
    place[boxes.leaf] = np.arange(len(boxes.leaf))
    ends: Index = place[leaf_indices(boxes.model, rows) + boxes.roots[:-1]].T
    return ends


def _group_trees(model: Model) -> list[tuple[int, Model]]:
    """Return the numbers of the first trees of groups of trees, and their models."""
    groups, first, n_nodes, leaf, n_leaves = [], 0, 0, 0, 0
    for number, tree in enumerate(model.trees):
        n_nodes, n_leaves = n_nodes + tree.n_nodes, n_leaves + tree.n_leaves
        if n_nodes >= _GROUP_NODES or number == model.n_trees - 1:
            units = model.units[leaf : leaf + n_leaves]
            own = replace(model, trees=model.trees[first : number + 1], units=units)
            groups.append((first, own))
            first, n_nodes, leaf, n_leaves = number + 1, 0, leaf + n_leaves, 0
    return groups


def find_trees(boxes: Boxes, node: Index) -> Index:
    """Return the tree of each node."""
    tree: Index = np.searchsorted(boxes.roots, node, side="right") - 1
    return tree


# ---------------------------------------------------------------- demands on rows

_MAX_KEPT_CELLS = 1 << 26
"""Cells of the demands of all leaves up to which they are kept."""


class Demands(NamedTuple):
    """What rows must meet: one set of values for each row and column.

    Attributes
    ----------
    low, high : (rows, features) float64
        Numbers satisfy ``low < x <= high``.
    known, missing, unseen : (rows, features) bool
        Whether known values, missing ones and unseen categories are allowed.
    levels : (rows, categories of all columns) bool
        Whether a category is allowed.
    """

    low: Array
    high: Array
    known: Mask
    missing: Mask
    unseen: Mask
    levels: Mask

    def take(self, which: Index | Mask) -> Demands:
        """Return the demands on some rows."""
        fields: Any = (part[which] for part in self)
        return Demands(*fields)


def concatenate_demands(parts: Sequence[Demands]) -> Demands:
    """Return the demands on the rows of all parts."""
    fields: Any = (np.concatenate(own) for own in zip(*parts, strict=True))
    return Demands(*fields)


def demand_leaves(boxes: Boxes, which: Index) -> Demands:
    """Return the demands of the boxes of the leaves `which`, apart from sums."""
    if not boxes.demands and len(boxes.leaf) * boxes.row_cells <= _MAX_KEPT_CELLS:
        boxes.demands.append(_compute_demands(boxes, np.arange(len(boxes.leaf))))
    return boxes.demands[0].take(which) if boxes.demands else _compute_demands(boxes, which)


def _compute_demands(boxes: Boxes, which: Index) -> Demands:
    model, table, n = boxes.model, boxes.conditions, len(which)
    shape, n_levels = (n, model.schema.n_features), model.schema.n_levels
    demands = Demands(
        low=np.full(shape, -np.inf),
        high=np.full(shape, np.inf),
        known=np.ones(shape, dtype=np.bool_),
        missing=np.full(shape, model.missing != "error"),
        unseen=np.tile(boxes.takes_unseen, (n, 1)),
        levels=np.ones((n, int(n_levels.sum())), dtype=np.bool_),
    )
    demands.known[:, model.schema.nominal & (n_levels == 0)] = False
    at, starts = take_slices(boxes.offsets, which)
    owner = np.repeat(np.arange(n), np.diff(starts))
    own = table.column[at] < model.schema.n_features
    at, owner = at[own], owner[own]
    column = table.column[at]
    demands.low[owner, column], demands.high[owner, column] = table.low[at], table.high[at]
    demands.known[owner, column] = table.known[at]
    lost = table.missing[at]
    if model.missing != "direction":  # the branch of a missing value depends on other columns
        lost = lost & ~table.known[at]
    demands.missing[owner, column] = lost
    demands.unseen[owner, column] &= lost
    coded = np.flatnonzero(model.schema.nominal[column])
    first_level = boxes.first_level
    every, starts = _count_up(first_level[column[coded]], n_levels[column[coded]])
    demands.levels[np.repeat(owner[coded], np.diff(starts)), every] = False
    codes, starts = take_slices(np.append(0, table.level_end), at[coded])
    shift = np.repeat(first_level[column[coded]], np.diff(starts))
    demands.levels[np.repeat(owner[coded], np.diff(starts)), table.levels[codes] + shift] = True
    return demands


def _count_up(first: Index, sizes: Index) -> tuple[Index, Index]:
    """Return `sizes` consecutive numbers from each of `first` on, and their offsets."""
    starts = np.cumsum(np.append(0, sizes))
    return np.arange(starts[-1]) + np.repeat(first - starts[:-1], sizes), starts


def demand_values(boxes: Boxes, demands: Demands, row: Index, column: Index, value: Array) -> None:
    """Let rows have one value in a column: a number, a category, the first unseen code or NaN."""
    schema = boxes.model.schema
    gone, nominal = np.isnan(value), schema.nominal[column]
    unseen = nominal & (value >= schema.n_levels[column])
    demands.known[row, column], demands.missing[row, column] = ~gone & ~unseen, gone
    demands.unseen[row, column] = unseen
    gone |= unseen
    some = np.flatnonzero(~gone & ~nominal)
    with np.errstate(over="ignore"):
        demands.low[row[some], column[some]] = np.nextafter(value[some], -np.inf)
    demands.high[row[some], column[some]] = value[some]
    some = np.flatnonzero(~gone & nominal)
    place = boxes.first_level[column[some]]
    every, starts = _count_up(place, schema.n_levels[column[some]])
    demands.levels[np.repeat(row[some], np.diff(starts)), every] = False
    demands.levels[row[some], place + value[some].astype(np.int64)] = True


def free_column(boxes: Boxes, demands: Demands, column: Index) -> None:
    """Let each of the rows have any value in one column."""
    row, schema = np.arange(len(column)), boxes.model.schema
    demands.low[row, column], demands.high[row, column] = -np.inf, np.inf
    demands.known[row, column] = schema.n_levels[column] > 0
    demands.known[row, column] |= ~schema.nominal[column]
    demands.missing[row, column] = boxes.model.missing != "error"
    demands.unseen[row, column] = boxes.takes_unseen[column]
    every, starts = _count_up(boxes.first_level[column], schema.n_levels[column])
    demands.levels[np.repeat(row, np.diff(starts)), every] = True


def intersect(boxes: Boxes, first: Demands, second: Demands) -> tuple[Demands, Mask]:
    """Return the demands that meet both, and whether any value of each column does."""
    both = Demands(
        low=np.maximum(first.low, second.low),
        high=np.minimum(first.high, second.high),
        known=first.known & second.known,
        missing=first.missing & second.missing,
        unseen=first.unseen & second.unseen,
        levels=first.levels & second.levels,
    )
    schema = boxes.model.schema
    some = both.low < both.high
    ends = np.cumsum(schema.n_levels).tolist()
    for feature in np.flatnonzero(schema.nominal).tolist():
        own = both.levels[:, ends[feature] - schema.n_levels[feature] : ends[feature]]
        some[:, feature] = own.any(axis=1)
    known = both.known & some
    possible: Mask = np.all(both.missing | both.unseen | known, axis=1)
    return both._replace(known=known), possible


_BLOCK_CELLS = 1 << 20
_SHARING_ROUNDS = 60
_LEAST_SHARE = 0.03
"""Share of the pairs of a round below which no more rounds are tried."""


def share_rows(boxes: Boxes, demands: Demands, rng: np.random.Generator) -> Demands:
    """Join demands that one row can meet, pair by pair, in random order."""
    order = rng.permutation(len(demands.low))
    size = max(_BLOCK_CELLS // boxes.row_cells, 1000)
    blocks = [order[at : at + size] for at in range(0, len(order), size)]
    joined = [_share_block(boxes, demands.take(block), rng) for block in blocks]
    return concatenate_demands(joined) if joined else demands


def _share_block(boxes: Boxes, demands: Demands, rng: np.random.Generator) -> Demands:
    for _ in range(_SHARING_ROUNDS):
        order = rng.permutation(len(demands.low))
        half = len(order) // 2
        pairs = demands.take(order[:half]), demands.take(order[half : 2 * half])
        both, possible = intersect(boxes, *pairs)
        rest = demands.take(order[2 * half :])
        kept = [both.take(possible), *(part.take(~possible) for part in pairs), rest]
        demands = concatenate_demands(kept)
        if np.count_nonzero(possible) <= _LEAST_SHARE * half:
            break
    return demands


# ---------------------------------------------------------------- rows


def draw_index(first: Index, count: Index, rng: np.random.Generator) -> Index:
    """Draw one of `count` consecutive numbers from each of `first` on."""
    drawn: Index = first + np.floor(rng.random(len(first)) * count).astype(np.int64)
    return drawn


def draw_rows(boxes: Boxes, demands: Demands, rng: np.random.Generator) -> Array:
    """Draw a row that meets each of the demands: thresholds and numbers beside them, categories."""
    schema = boxes.model.schema
    rows = np.full(demands.low.shape, np.nan)
    known = demands.known & (~(demands.missing | demands.unseen) | (rng.random(rows.shape) < 0.9))
    unseen = demands.unseen & (~demands.missing | (rng.random(rows.shape) < 0.5))
    rows[:] = np.where(unseen, schema.n_levels, np.nan)
    ends = np.cumsum(schema.n_levels).tolist()
    for feature in range(schema.n_features):
        some = np.flatnonzero(known[:, feature])
        if not len(some):
            continue
        if schema.nominal[feature]:
            own = demands.levels[some, ends[feature] - schema.n_levels[feature] : ends[feature]]
            counts = own.sum(axis=1)
            place = draw_index(np.zeros_like(counts), counts, rng)
            rows[some, feature] = (np.cumsum(own, axis=1, dtype=np.int32) > place[:, None]).argmax(
                axis=1
            )
            continue
        low, high = demands.low[some, feature], demands.high[some, feature]
        pool = boxes.numbers[feature]
        lowest = np.where(low == -np.inf, 0, np.searchsorted(pool, low, side="right"))
        count = np.searchsorted(pool, high, side="right") - lowest
        drawn = pool[np.minimum(draw_index(lowest, count, rng), len(pool) - 1)]
        rows[some, feature] = np.where(count > 0, drawn, high)
    return rows


def move_to_edges(boxes: Boxes, rows: Array, rng: np.random.Generator) -> Array:
    """Replace thresholds by the largest double that rounds to them, and the number above each too.

    The latter by the smallest double: so they show any other threshold in double.
    """
    schema = boxes.model.schema
    if schema.dtype == "float64":
        return rows
    rows = rows.copy()
    for feature in np.flatnonzero(~schema.nominal).tolist():
        thresholds, values = boxes.thresholds[feature], rows[:, feature]
        above = find_next_above(thresholds, schema.dtype)
        at, beyond = (np.isin(values, own) for own in (thresholds, above[np.isfinite(above)]))
        either = at & beyond
        at[either] = rng.random(np.count_nonzero(either)) < 0.5
        beyond &= ~at
        rows[at, feature] = to_double_threshold(values[at])
        rows[beyond, feature] = -to_double_threshold(-values[beyond])
    return rows


def draw_inside(boxes: Boxes, which: Index, rng: np.random.Generator) -> Array:
    """Draw a row inside the box of each of the leaves `which`, (leaves, features) float64."""
    rows = draw_rows(boxes, demand_leaves(boxes, which), rng)
    at, starts = take_slices(boxes.offsets, which)
    owner = np.repeat(np.arange(len(which)), np.diff(starts))
    of_sum = boxes.conditions.column[at] >= boxes.model.schema.n_features
    if of_sum.any():
        _settle_sums(boxes, rows, owner[of_sum], at[of_sum], rng)
    return rows


# ---------------------------------------------------------------- sums

_PASSES = 6
"""Passes over the sums of a box: a number that is changed for one sum may change another."""


def compute_sums(boxes: Boxes, test: Index, rows: Array) -> Array:
    """Return the sum that each of the tests `test` compares, of its row; NaN = unknown."""
    start, size = boxes.tests.term_start[test], np.diff(boxes.tests.term_start)[test]
    total = np.zeros(len(test))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for k in range(int(size.max(initial=0))):  # in the order of scoring
            some = np.flatnonzero(size > k)
            term = start[some] + k
            cells = rows[some, boxes.tests.term_feature[term]].astype(boxes.model.schema.dtype)
            total[some] += boxes.tests.term_weight[term] * cells
    return total


def draw_terms(boxes: Boxes, test: Index, rng: np.random.Generator) -> Index:
    """Draw a term of each test."""
    return draw_index(boxes.tests.term_start[test], np.diff(boxes.tests.term_start)[test], rng)


def replace_unknown(boxes: Boxes, rows: Array, test: Index, rng: np.random.Generator) -> None:
    """Replace missing and huge numbers in the sum of each row's test by small ones."""
    term, starts = take_slices(boxes.tests.term_start, test)
    owner = np.repeat(np.arange(len(test)), np.diff(starts))
    feature = boxes.tests.term_feature[term]
    strange = np.flatnonzero(~(np.abs(rows[owner, feature]) < 1e9))
    rows[owner[strange], feature[strange]] = np.rint(rng.normal(size=len(strange)) * 24) / 8


def move_to_sum(boxes: Boxes, rows: Array, test: Index, term: Index, target: Array) -> None:
    """Change the number of one term in each row, so that the sum of its test is about `target`."""
    row = np.arange(len(test))
    feature, weight = boxes.tests.term_feature[term], boxes.tests.term_weight[term]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        rest = compute_sums(boxes, test, rows) - weight * rows[row, feature]
        solved = floor_to_dtype((target - rest) / weight, boxes.model.schema.dtype)
    fits = np.isfinite(solved)
    rows[row[fits], feature[fits]] = solved[fits]


def _settle_sums(
    boxes: Boxes, rows: Array, owner: Index, at: Index, rng: np.random.Generator
) -> None:
    """Change numbers of the rows `owner` until their sums meet the conditions `at`."""
    table, known = boxes.conditions, boxes.conditions.known[at]
    owner, at = owner[known], at[known]
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)  # 0 for the first of a row
    for _ in range(_PASSES):
        n_wrong = 0
        for k in range(int(place.max(initial=-1)) + 1):
            some = np.flatnonzero(place == k)
            test = table.column[at[some]].astype(np.int64) - boxes.model.schema.n_features
            total = compute_sums(boxes, test, rows[owner[some]])
            wrong = ~((total > table.low[at[some]]) & (total <= table.high[at[some]]))
            some, test = some[wrong], test[wrong]
            n_wrong += len(some)
            moved = rows[owner[some]]
            replace_unknown(boxes, moved, test, rng)
            inside = _draw_between(table.low[at[some]], table.high[at[some]], rng)
            move_to_sum(boxes, moved, test, draw_terms(boxes, test, rng), inside)
            rows[owner[some]] = moved
        if not n_wrong:
            break


def _draw_between(low: Array, high: Array, rng: np.random.Generator) -> Array:
    """Draw a number between each pair of bounds, one of which may be infinite."""
    bounded = np.isfinite(high)
    end = np.where(bounded, high, low)
    with np.errstate(over="ignore", invalid="ignore"):
        width = np.where(bounded & np.isfinite(low), high - low, 1 + np.abs(end))
        return end + np.where(bounded, -1.0, 1.0) * width * rng.random(len(end))
