"""Extract rules from the trees of a model: one rule per leaf."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.model.fixed_point import MASS, compute_mass_bounds
from treekit.model.model import Model, distribute_votes
from treekit.model.tree import Split, Tree, concatenate_trees, take_slices
from treekit.rules.language import Language, load_language
from treekit.rules.rule_list import (
    ConditionTable,
    ConditionTuple,
    Order,
    RuleList,
    copy_header,
    list_tests,
    merge_conditions,
    take_rules,
)
from treekit.rules.wording import find_otherwise_rules, render_conditions

# ---------------------------------------------------------------- extract

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Conditions = tuple[Index, Index, ConditionTable]
"""Leaves of a tree in depth-first order, ends of their conditions, and the conditions."""


def rules(model: Model) -> RuleList:
    """Return the rules of a model, tree by tree, from the leftmost leaf to the rightmost.

    Rule lists that were made into a model are restored, in their order.  Linear in the nodes
    and the size of the conditions.
    """
    if is_rule_list(model):
        leaves = [tree.leaves for tree in model.trees]
        return _make_rule_list(model, leaves, *extract_listed_conditions(model), order="first")
    column = model.derived.column
    first = np.cumsum([0] + [tree.n_nodes for tree in model.trees])
    found = [
        _extract_tree_conditions(model, tree, column[start:end])
        for tree, (start, end) in zip(model.trees, itertools.pairwise(first), strict=True)
    ]
    starts = np.cumsum([0] + [len(table.column) for _, _, table in found])
    return _make_rule_list(
        model,
        [leaf for leaf, _, _ in found],
        np.concatenate([end + start for (_, end, _), start in zip(found, starts, strict=False)]),
        ConditionTable.concatenate([table for _, _, table in found]),
        order="disjoint",
    )


def make_empty_rules(model: Model) -> RuleList:
    """Return an empty rule list of a model, for documents that write only its trees."""
    leaves = [tree.leaves[:0] for tree in model.trees]
    conditions = ConditionTable.from_conditions(())
    return _make_rule_list(model, leaves, np.empty(0, dtype=np.int64), conditions, order="first")


def _make_rule_list(
    model: Model, leaves: Sequence[Index], end: Index, conditions: ConditionTable, order: Order
) -> RuleList:
    """Return the list of the rules of each tree's leaves, given ends and conditions."""
    units = [
        model.tree_units(number)[np.searchsorted(tree.leaves, leaf)]
        for number, (tree, leaf) in enumerate(zip(model.trees, leaves, strict=True))
    ]
    own = list(zip(model.trees, leaves, units, strict=True))
    disjoint = order == "disjoint"
    as_parent = [
        _predicts_like_parent(model, *each) if disjoint else np.zeros(len(each[1]), np.bool_)
        for each in own
    ]
    return RuleList(
        **copy_header(model),
        costs=model.label_costs,
        n_trees=model.n_trees,
        tests=list_tests(model) if disjoint else (),
        tree=np.repeat(np.arange(model.n_trees, dtype=np.int32), list(map(len, leaves))),
        leaf=np.concatenate(leaves).astype(np.int32),
        support=np.concatenate([tree.weight[leaf] for tree, leaf, _ in own]),
        as_parent=np.concatenate(as_parent),
        units=np.concatenate(units),
        end=end,
        conditions=conditions,
        order=order,
        value=np.concatenate([tree.value[leaf] for tree, leaf, _ in own]),
    )


def _extract_tree_conditions(model: Model, tree: Tree, column: npt.NDArray[np.int64]) -> Conditions:
    """Return the leaves of one tree in depth-first order, ends of conditions, and conditions.

    `column` is the derived column of each node, or -1.
    """
    derived = column >= 0
    first = int(column[derived][0]) if derived.any() else 0
    n_features = model.schema.n_features
    plain = replace(
        tree,
        kind=np.where(derived, Split.THRESHOLD, tree.kind),
        feature=np.where(derived, n_features + column - first, tree.feature),
        threshold=np.where(derived, 0.0, tree.threshold),
    )
    n_derived = int(derived.sum())
    n_levels = np.append(model.schema.n_levels, np.zeros(n_derived, dtype=np.int64))
    if model.missing == "fractional":
        leaf, end, table = extract_fractional_conditions(plain, n_levels)
    else:
        leaf, end, table = extract_merged_conditions(model, plain, n_levels)
    behind = table.column >= n_features
    return leaf, end, table._replace(column=np.where(behind, table.column + first, table.column))


def extract_merged_conditions(
    model: Model, plain: Tree, n_levels: npt.NDArray[np.int64]
) -> Conditions:
    """Return at most one condition per column: the box of each leaf."""
    from treekit.rules.kernels import CONDITION_DTYPE, make_walk, merge_leaf_conditions

    # A test may be unknown even if no value is missing: infinities may cancel.
    bar = np.zeros(len(n_levels), dtype=np.int64)
    bar[: model.schema.n_features] = model.missing == "error"
    nominal = np.zeros(len(n_levels), dtype=np.bool_)
    nominal[: model.schema.n_features] = model.schema.nominal
    walk = make_walk(plain, n_levels, nominal, bar, plain.depth + 1)
    leaf, end = np.empty(plain.n_leaves, np.int64), np.empty(plain.n_leaves, np.int64)
    none, no_levels = np.empty(0, CONDITION_DTYPE), np.empty(0, np.int32)
    n_conditions, n_coded = merge_leaf_conditions(walk, bar, leaf, end, none, no_levels)
    found, levels = np.empty(n_conditions, CONDITION_DTYPE), np.empty(n_coded, np.int32)
    merge_leaf_conditions(walk, bar, leaf, end, found, levels)
    fields = {name: np.ascontiguousarray(found[name]) for name in CONDITION_DTYPE.names or ()}
    table = ConditionTable(
        **fields,
        part_low=np.zeros(n_conditions, np.int32),
        part_high=np.where(fields["missing"], MASS, 0).astype(np.int32),
        dividing=np.zeros(n_conditions, np.int64),
        levels=levels,
    )
    return leaf, end, table


def _predicts_like_parent(
    model: Model, tree: Tree, leaf: npt.NDArray[np.int64], units: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return (leaves,) bool: no training rows, and the same prediction as the parent."""
    parent = tree.parent[leaf]
    empty = np.flatnonzero((tree.weight[leaf] == 0) & (parent >= 0))
    values = tree.value[parent[empty]]
    if model.schema.task == "classification" and not model.margins:
        blocks = np.array(model.schema.blocks)
        usable: Any = np.all(np.add.reduceat(values, blocks[:-1], axis=1) > 0, axis=1)
        values = np.where(usable[:, None], values, 1.0)
        theirs = distribute_votes(model, values)
    else:
        usable = np.ones(len(values), dtype=np.bool_)
        theirs = model.grid.to_grid(values)
    found = np.zeros(len(leaf), dtype=np.bool_)
    found[empty] = usable & (theirs == units[empty]).all(axis=1)
    return found


# ---------------------------------------------------------------- fractional instances
# The mass of a fractional instance (Quinlan 1993, chapter 3) depends on every split of
# the decision path, so each split is one condition and nothing is merged.


def extract_fractional_conditions(plain: Tree, n_levels: Index) -> Conditions:
    """Return the conditions of every leaf of one tree, leaves in depth-first order.

    Parameters
    ----------
    plain : Tree
        With derived columns in place of tests.
    n_levels : (columns,) int64
        Of each column, the derived ones behind the others; 0 for numeric columns.

    Returns
    -------
    leaf, end : (leaves,) int64
        Node numbers, and the cumulative number of conditions.
    conditions : ConditionTable
    """
    edges = make_edge_conditions(plain, compute_mass_bounds(plain), n_levels)
    leaf = list_leaves_depth_first(plain)
    path, end = list_path_nodes(plain, leaf)
    levels, starts = take_slices(np.append(0, edges.level_end), path)
    fields = {name: part[path] for name, part in edges._asdict().items() if name != "levels"}
    fields |= {"level_end": starts[1:], "levels": edges.levels[levels]}
    return leaf, end, ConditionTable(**fields)


def make_edge_conditions(plain: Tree, bounds: Index, n_levels: Index) -> ConditionTable:
    """Return the condition of each edge from a parent to a node; that of the root is a placeholder.

    Parameters
    ----------
    plain, n_levels
        As in `extract_fractional_conditions`.
    bounds : (nodes, 2) int64
        Range of a row's mass that a missing value keeps, see `compute_mass_bounds`; equal if empty.
    """
    parent = plain.parent
    up = np.maximum(parent, 0)
    kind, column = plain.kind[up], np.where(parent < 0, 0, plain.feature[up])
    branch = np.arange(plain.n_nodes) - plain.first_child[up]
    at_threshold, absence = kind == Split.THRESHOLD, kind == Split.MISSING
    part = np.where(absence[:, None], np.where(branch == 0, 1, 0)[:, None] * [0, MASS], bounds)
    some = part[:, 1] > part[:, 0]
    levels, dividing, level_end = _collect_edge_levels(plain, n_levels, branch, some)
    fits = np.diff(level_end, prepend=0) - dividing
    return ConditionTable(
        column=column.astype(np.int32),
        low=np.where(at_threshold & (branch == 1), plain.threshold[up], -np.inf),
        high=np.where(at_threshold & (branch == 0), plain.threshold[up], np.inf),
        known=np.where(absence, branch == 1, at_threshold | (fits > 0)),
        missing=some,
        part_low=np.where(some, part[:, 0], 0).astype(np.int32),
        part_high=np.where(some, part[:, 1], 0).astype(np.int32),
        dividing=dividing,
        level_end=level_end,
        levels=levels,
    )


def _collect_edge_levels(
    plain: Tree, n_levels: Index, branch: Index, some: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int32], Index, Index]:
    """Return matching and then dividing categories of each node's edge, dividing counts, ends."""
    parent = plain.parent
    up = np.maximum(parent, 0)
    sets = np.isin(plain.kind[up], (Split.SUBSET, Split.MULTIWAY))
    known = (plain.kind[up] == Split.MISSING) & (branch == 1)  # every level
    asks = (parent >= 0) & (sets | known)
    counts = np.where(asks, n_levels[plain.feature[up]], 0)
    owner = np.repeat(np.arange(plain.n_nodes), counts)
    code = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    goes, listed = branch[owner], sets[owner]
    goes[listed] = plain.level_branch[(plain.level_offsets[up[owner]] + code)[listed]]
    matches, divides = goes == branch[owner], (goes < 0) & some[owner]
    kept = np.flatnonzero(matches | divides)
    kept = kept[np.lexsort((divides[kept], owner[kept]))]  # stable: codes stay in order
    ends = np.cumsum(np.bincount(owner[kept], minlength=plain.n_nodes))
    dividing = np.bincount(owner[kept], weights=divides[kept], minlength=plain.n_nodes)
    return code[kept].astype(np.int32), dividing.astype(np.int64), ends


def list_leaves_depth_first(plain: Tree) -> Index:
    """Return (leaves,) int64: the leaves from the leftmost path to the rightmost."""
    first, counts = plain.first_child.tolist(), plain.n_children.tolist()
    leaves, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        if counts[node]:
            waiting.extend(reversed(range(first[node], first[node] + counts[node])))
        else:
            leaves.append(node)
    return np.array(leaves, dtype=np.int64)


def list_path_nodes(plain: Tree, leaf: Index) -> tuple[Index, Index]:
    """Return the nodes from below the root to each leaf, by path, and the ends of the paths."""
    parent, depths = plain.parent, plain.depths
    end = np.cumsum(depths[leaf])
    path = np.empty(int(depths[leaf].sum()), dtype=np.int64)
    node, to = leaf, end - 1
    while len(inside := np.flatnonzero(parent[node] >= 0)):
        node, to = node[inside], to[inside]
        path[to] = node
        node, to = parent[node], to - 1
    return path, end


# ---------------------------------------------------------------- models of rule lists
# The inverse of `treekit.model.builder`.


def is_rule_list(model: Model) -> bool:
    """Return whether a model consists of rule lists, whose first matching rule predicts."""
    return any(bool((tree.kind == Split.RULE).any()) for tree in model.trees)


def extract_listed_conditions(model: Model) -> tuple[Index, ConditionTable]:
    """Return the ends of the rules' conditions, and the conditions, one per column and rule.

    Rules are in the order of the leaves.  Several entries of a rule on one column become one
    condition; conditions that every value meets are left out.
    """
    nodes, _ = concatenate_trees(model.trees)
    entries = list(_list_entries(nodes, model.schema))
    starts = nodes.surrogate_offsets.tolist()
    # Entries belong to the first child of their node, the leaf of the rule.
    asks = np.flatnonzero(nodes.kind == Split.RULE)
    node_of_leaf = dict(zip(nodes.first_child[asks].tolist(), asks.tolist(), strict=True))
    rules: list[list[ConditionTuple]] = []
    for leaf in np.flatnonzero(nodes.kind == Split.LEAF).tolist():
        node = node_of_leaf.get(leaf)
        found = () if node is None else merge_conditions(entries[starts[node] : starts[node + 1]])
        n_levels = model.schema.n_levels
        rules.append([one for one in found if not one.accepts_all(n_levels[one.column])])
    end = np.cumsum(list(map(len, rules)), dtype=np.int64)
    return end, ConditionTable.from_conditions(list(itertools.chain(*rules)))


def _list_entries(nodes: Tree, schema: Schema) -> Iterator[ConditionTuple]:
    """Generate the condition of each entry of the nodes."""
    fields = zip(
        nodes.surrogate_feature.tolist(),
        nodes.surrogate_threshold.tolist(),
        (nodes.surrogate_below == 1).tolist(),
        (nodes.surrogate_above == 1).tolist(),
        (nodes.surrogate_lost == -1).tolist(),
        itertools.pairwise(nodes.surrogate_level_offsets.tolist()),
        strict=True,
    )
    for column, threshold, fails_below, fails_above, missing, (first, last) in fields:
        part = (0, MASS) if missing else (0, 0)
        known, low, high = not (fails_below and fails_above), -np.inf, np.inf
        fits: tuple[int, ...] = ()
        if schema.columns[column].kind == "nominal":
            fits = tuple(np.flatnonzero(nodes.surrogate_level_branch[first:last] != 1).tolist())
            known = bool(fits)
        elif known:
            low, high = threshold if fails_below else low, threshold if fails_above else high
        yield ConditionTuple(column, low, high, known, missing, part, fits)


# ---------------------------------------------------------------- rules of single leaves
# The conditions of a leaf depend only on its decision path.  The trees of a large forest are
# therefore reduced to the paths to the requested leaves before rules are extracted.


class LeafRuleTexts:
    """Text of the rule of any leaf of a model.

    All rules are extracted once if the model has at most `most` conditions.  A larger model is
    reduced to the paths to the requested leaves, each time.

    Parameters
    ----------
    model : Model
    most : int
        A condition takes some 50 bytes.
    """

    def __init__(self, model: Model, most: int = 1 << 20) -> None:
        self._model = model
        self._all_rules: tuple[RuleList, dict[tuple[int, int], int]] | None = None
        if model.n_leaves * max(model.depth, 1) <= most:
            listed = rules(model)
            self._all_rules = listed, _index_by_leaf(listed, range(model.n_trees))

    def format_rules(
        self, wanted: Mapping[int, Sequence[int]], words: Language | None = None
    ) -> dict[tuple[int, int], str]:
        """Return the text of the rule of each leaf; the keys are (tree, node).

        For a rule list, this is the rule that predicts the leaf's value.

        Parameters
        ----------
        wanted : mapping of int to sequence of int
            Node numbers of leaves, by tree.
        words : Language, optional
            English by default.
        """
        if not wanted:
            return {}
        listed, places = self._all_rules or self._extract_requested(wanted)
        pairs = [(tree, leaf) for tree, own in wanted.items() for leaf in own]
        which = np.array([places[pair] for pair in pairs], dtype=np.int64)
        return dict(zip(pairs, join_condition_texts(listed, which, words), strict=True))

    def _extract_requested(
        self, wanted: Mapping[int, Sequence[int]]
    ) -> tuple[RuleList, dict[tuple[int, int], int]]:
        model, numbers = self._model, list(wanted)
        nodes = [
            _list_subtree_nodes(model.trees[t], np.unique(np.array(wanted[t], np.int64)))
            for t in numbers
        ]
        trees = tuple(
            _prune_to_nodes(model.trees[t], own) for t, own in zip(numbers, nodes, strict=True)
        )
        n_leaves = sum(tree.n_leaves for tree in trees)
        units = np.zeros((n_leaves, model.schema.n_values), np.int64)  # conditions ignore units
        listed = rules(replace(model, trees=trees, units=units))
        leaf = [int(nodes[t][n]) for t, n in zip(listed.tree, listed.leaf, strict=True)]
        return listed, _index_by_leaf(replace(listed, leaf=np.array(leaf, np.int32)), numbers)


def _index_by_leaf(listed: RuleList, numbers: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return the position of the rule of each (tree, leaf); `numbers` are the trees' numbers."""
    pairs = zip(listed.tree.tolist(), listed.leaf.tolist(), strict=True)
    return {(numbers[tree], leaf): rule for rule, (tree, leaf) in enumerate(pairs)}


def join_condition_texts(
    listed: RuleList, which: Index, words: Language | None = None
) -> list[str]:
    """Return the conditions of each of the rules `which` in one line, tests in full.

    ``a > 60 and b is c``; where a condition ends in "or is missing", ``; and`` delimits the
    scope of that "or".
    """
    return ["".join(conditions) for conditions in list_condition_parts(listed, which, words)]


def list_condition_parts(
    listed: RuleList, which: Index, words: Language | None = None
) -> list[list[str]]:
    """Return the conditions of each rule and their separators; see `join_condition_texts`."""
    words = words or load_language()
    some = take_rules(listed, which)
    table = some.conditions
    texts = render_conditions(some, 0, len(table.column), words, whole=True)
    # The text of a test or a part of a row may contain a semicolon or a colon.
    long = table.missing | (table.column >= listed.schema.n_features)
    plain, marked = f" {words.say('page_and')} ", words.say("page_and_also")
    always, otherwise = words.say("page_always"), words.say("page_otherwise")
    found = []
    ends = itertools.pairwise([0, *some.end.tolist()])
    for (a, b), last in zip(ends, find_otherwise_rules(listed)[which].tolist(), strict=True):
        between = marked if long[a:b].any() else plain
        one = [part for text in texts[a:b] for part in (between, text)][1:]
        found.append(one or [otherwise if last else always])
    return found


def _list_subtree_nodes(tree: Tree, leaves: Index) -> Index:
    """Return the nodes on the paths to some leaves, with all their siblings, ascending."""
    path, _ = list_path_nodes(tree, leaves)
    inner = np.unique(tree.parent[path])
    return np.append(0, np.flatnonzero(np.isin(tree.parent, inner)))


def _prune_to_nodes(tree: Tree, nodes: Index) -> Tree:
    """Return the tree of these nodes; nodes whose children are missing become leaves."""
    kept = np.zeros(tree.n_nodes + 1, np.bool_)
    kept[nodes] = True
    closed = ~kept[np.where(tree.first_child[nodes] < 0, tree.n_nodes, tree.first_child[nodes])]
    return tree.take(nodes, closed)
