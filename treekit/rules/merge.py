"""The shortest list of exact rules: rules of equal answers joined wherever one rule can say them.

Nothing is approximated: every row gets the sums that it gets from the tree.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError
from treekit.model.fixed_point import MASS
from treekit.model.model import Model, least_cost
from treekit.model.tree import Split, Tree, gathered, node_levels
from treekit.rules.extract import rules
from treekit.rules.rule_list import ConditionTable, RuleList

__all__ = [
    "Asked",
    "Collapsed",
    "Joined",
    "asked",
    "collapse",
    "joined",
    "joined_rules",
    "merge_boxes",
    "regrouped",
    "union_of",
]


# ---------------------------------------------------------------- joined

Index = npt.NDArray[np.int64]


class Joined(NamedTuple):
    """A shorter list, and where the rules of the leaves went.

    Attributes
    ----------
    rules : RuleList
    home : (leaves,) int64
        The joined rule that each of `treekit.rules.rules` is part of.
    """

    rules: RuleList
    home: Index


def joined_rules(model: Model, *, decisions: bool = False) -> RuleList:
    """The rules of a model, as few as exact joining makes of its leaves.

    Joined are all leaves below a node that say the same; then rules of one tree that say
    the same and differ in one column alone, where their intervals touch, their levels make
    one set, or one takes nothing but missing values.  If the model divides rows, neighbours
    among the branches of one split: what a missing value keeps is one range then.
    An ordered list stays as it is.

    Parameters
    ----------
    model : Model
    decisions : bool
        Join what has the same label, whatever its shares: the list gives the labels of the
        model, and no probabilities (`RuleList.decisions`).

    Returns
    -------
    RuleList
        `Rule.leaf` of a joined rule is the lowest node that all its leaves lie under; its
        support and value are those of all its leaves together.

    Raises
    ------
    ModelError
        With `decisions`, for what is not one tree of classes, or divides rows.
    """
    return joined(model, decisions=decisions).rules


def joined(model: Model, *, decisions: bool = False) -> Joined:
    """`joined_rules`, and the rule that each leaf became part of."""
    if decisions:
        model = _decisive(model)
    leaves = rules(model)
    if leaves.order != "disjoint":
        return Joined(replace(leaves, decisions=decisions), np.arange(len(leaves)))
    small = collapse(model)
    listed = leaves if small.model.n_nodes == model.n_nodes else rules(small.model)
    shorter, moved = _merge_siblings(small.model, listed) if model.mass > 1 else merge_boxes(listed)
    home = moved[_homes(model, leaves, small, listed)]
    return Joined(replace(_summed_up(model, leaves, shorter, home), decisions=decisions), home)


def _decisive(model: Model) -> Model:
    """The model with one vote for the label of each leaf."""
    kind = None
    if model.schema.task == "regression" or model.margins:
        kind = "its leaves hold numbers, which no label stands for"
    elif model.n_trees > 1:
        kind = f"it has {model.n_trees} trees, whose shares are added up before a label is chosen"
    elif model.mass > 1:
        kind = "it divides rows, and the shares of the parts are added up"
    if kind is not None:
        raise ModelError(
            f"the model has no list of decisions: {kind}; ask for its rules without decisions"
        )
    units = np.zeros_like(model.units)
    row = np.arange(len(units))
    for first, last in itertools.pairwise(model.schema.blocks):
        units[row, first + least_cost(model.units[:, first:last], model.label_costs)] = 1
    return replace(model, units=units, voting="hard")


def _homes(model: Model, leaves: RuleList, small: Collapsed, listed: RuleList) -> Index:
    """(leaves,) int64: which rule of the smaller model answers for each rule of the model."""
    home = np.empty(len(leaves), dtype=np.int64)
    bounds = np.arange(model.n_trees + 1)
    old, new = np.searchsorted(leaves.tree, bounds), np.searchsorted(listed.tree, bounds)
    for number, tree in enumerate(model.trees):
        mine, theirs = slice(*old[number : number + 2]), slice(*new[number : number + 2])
        at = small.homes[number][np.searchsorted(tree.leaves, leaves.leaf[mine])]
        node = np.searchsorted(small.nodes[number], at)
        order = np.argsort(listed.leaf[theirs])
        found = np.searchsorted(listed.leaf[theirs], node, sorter=order)
        home[mine] = new[number] + order[found]
    return home


def _merge_siblings(model: Model, listed: RuleList) -> tuple[RuleList, Index]:
    """Neighbours among the branches of a split that say the same, where rows divide."""
    lead, replaced = np.arange(len(listed)), {}
    bounds = np.searchsorted(listed.tree, np.arange(model.n_trees + 1))
    for number, tree in enumerate(model.trees):
        first, last = bounds[number : number + 2].tolist()
        leaf, units = listed.leaf[first:last], listed.units[first:last]
        above = tree.parent[leaf]
        like = (above[1:] == above[:-1]) & (leaf[1:] == leaf[:-1] + 1)
        like &= (units[1:] == units[:-1]).all(axis=1)
        run = np.cumsum(np.append(0, ~like))
        begins, counts = np.unique(run, return_index=True, return_counts=True)[1:]
        lead[first:last] = first + begins[run]
        for begin in (first + begins[counts > 1]).tolist():
            some = range(begin, begin + int(counts[run[begin - first]]))
            *before, _ = asked(listed, begin)
            replaced[begin] = [*before, union_of(asked(listed, rule)[-1] for rule in some)]
    return regrouped(listed, lead, replaced)


def _summed_up(model: Model, leaves: RuleList, shorter: RuleList, home: Index) -> RuleList:
    """The joined rules with the nodes, the support and the values of all their leaves."""
    n = len(shorter)
    support = np.bincount(home, leaves.support, n).astype(np.float64)
    value = np.zeros((n, leaves.schema.n_values))
    assert leaves.value is not None  # noqa: S101 - for the type checker
    if model.schema.task == "classification" and not model.margins:
        np.add.at(value, home, leaves.value)
    else:  # means; where no row was, of the leaves alike
        weight = np.where(support[home] > 0, leaves.support, 1.0)
        np.add.at(value, home, leaves.value * weight[:, None])
        value /= np.bincount(home, weight, n)[:, None]
        single = np.bincount(home, minlength=n)[home] == 1
        value[home[single]] = leaves.value[single]  # not rounded
    return replace(
        shorter,
        leaf=_lowest_common(model, leaves, shorter, home),
        support=support,
        as_parent=shorter.as_parent & (support == 0),
        value=value,
    )


def _lowest_common(
    model: Model, leaves: RuleList, shorter: RuleList, home: Index
) -> npt.NDArray[np.int32]:
    """(rules,) int32: the lowest node above all leaves of each joined rule."""
    order = np.argsort(home, kind="stable")
    starts = np.searchsorted(home[order], np.arange(len(shorter) + 1))
    node = leaves.leaf[order[starts[:-1]]].astype(np.int64)
    counts = np.diff(starts)
    bounds = np.searchsorted(shorter.tree, np.arange(model.n_trees + 1))
    for number, tree in enumerate(model.trees):
        first, last = bounds[number : number + 2].tolist()
        some = first + np.flatnonzero(counts[first:last] > 1)
        if not len(some):
            continue
        parent = tree.parent
        for k in range(1, int(counts[some].max())):
            mine = some[counts[some] > k]
            node[mine] = _meeting(parent, node[mine], leaves.leaf[order[starts[mine] + k]])
    return node.astype(np.int32)


def _meeting(parent: Index, one: Index, other: npt.NDArray[np.int32]) -> Index:
    """The lowest node above each pair; a parent has a smaller number than its children."""
    one, other = one.copy(), other.astype(np.int64)
    while (apart := one != other).any():
        higher = np.maximum(one, other)
        one, other = np.minimum(one, other), np.where(apart, parent[higher], other)
    return one


# ---------------------------------------------------------------- merging
# Rules that say the same and differ in one column alone become one rule.
#
# Rules of one tree are disjoint boxes.  Two boxes that agree in all columns but one make a
# box together if there their intervals touch, or if they are sets of levels, or if one
# takes nothing but missing values; it holds the rows of both, and no others.  Candidates
# are found by a hash of all that a rule asks but one condition; whether they agree is then
# compared exactly.

Hashes = npt.NDArray[np.uint64]


class Asked(NamedTuple):
    """One condition; the fields are those of `treekit.rules.rule_list.ConditionTable`."""

    column: int
    low: float
    high: float
    known: bool
    missing: bool
    part: tuple[int, int]
    fits: tuple[int, ...]
    dividing: tuple[int, ...]


def asked(rules: RuleList, rule: int) -> list[Asked]:
    """The conditions of one rule."""
    table = rules.conditions
    return [
        Asked(
            int(table.column[at]),
            float(table.low[at]),
            float(table.high[at]),
            bool(table.known[at]),
            bool(table.missing[at]),
            (int(table.part_low[at]), int(table.part_high[at])),
            *(tuple(codes) for codes in table.codes(at)),
        )
        for at in range(*rules.bounds(rule))
    ]


def merge_boxes(rules: RuleList) -> tuple[RuleList, Index]:
    """A disjoint list in which no two rules can become one; rows do not divide.

    Returns
    -------
    rules : RuleList
        With the conditions of the joined rules; all else is as in the first of those
        joined (see `treekit.rules.merge`, which sums it up).
    home : (rules,) int64
        Which of the new rules each of the given ones is part of.
    """
    home = np.arange(len(rules))
    while True:
        merged = _sweep(rules)
        if not merged:
            return rules, home
        lead = np.arange(len(rules))
        for first, (others, _) in merged.items():
            lead[others] = first
        rules, moved = regrouped(rules, lead, {first: own for first, (_, own) in merged.items()})
        home = moved[home]


def regrouped(
    rules: RuleList, lead: Index, replaced: dict[int, list[Asked]]
) -> tuple[RuleList, Index]:
    """The rules that lead, some with other conditions, and the new number of each rule's leader.

    Parameters
    ----------
    rules : RuleList
    lead : (rules,) int64
        For each rule itself, or the one that stands for it.
    replaced : dict of int to list of Asked
        New conditions of rules that lead.
    """
    table = rules.conditions
    own = [condition for conditions in replaced.values() for condition in conditions]
    whole = _joined_tables(table, own)
    start = np.append(0, rules.end[:-1])
    size = rules.end - start
    sizes = [len(conditions) for conditions in replaced.values()]
    at = len(table.column) + np.cumsum([0, *sizes])
    for k, rule in enumerate(replaced):
        start[rule], size[rule] = at[k], sizes[k]
    leaders, home = np.unique(lead, return_inverse=True)
    start, size = start[leaders], size[leaders]
    level_start = np.append(0, whole.level_end)[: len(whole.column)]
    first = gathered(level_start, start, size)
    entries = gathered(whole.level_end, start, size) - first
    names = [name for name in table._fields if name not in ("levels", "level_end")]
    fields = {name: gathered(getattr(whole, name), start, size) for name in names}
    fields |= {"level_end": np.cumsum(entries), "levels": gathered(whole.levels, first, entries)}
    taken = {
        name: getattr(rules, name)[leaders]
        for name in ("tree", "leaf", "support", "as_parent", "units")
    }
    value = None if rules.value is None else rules.value[leaders]
    shorter = replace(
        rules, **taken, value=value, end=np.cumsum(size), conditions=ConditionTable(**fields)
    )
    return shorter, home.reshape(-1)


def _joined_tables(table: ConditionTable, more: list[Asked]) -> ConditionTable:
    """A table with further conditions behind its own."""
    parts = np.array([c.part for c in more], dtype=np.int32).reshape(-1, 2)
    codes = [(*c.fits, *c.dividing) for c in more]
    counts = np.array([len(own) for own in codes], dtype=np.int64)
    behind = ConditionTable(
        column=np.array([c.column for c in more], dtype=np.int32),
        low=np.array([c.low for c in more], dtype=np.float64),
        high=np.array([c.high for c in more], dtype=np.float64),
        known=np.array([c.known for c in more], dtype=np.bool_),
        missing=np.array([c.missing for c in more], dtype=np.bool_),
        part_low=parts[:, 0],
        part_high=parts[:, 1],
        dividing=np.array([len(c.dividing) for c in more], dtype=np.int64),
        level_end=len(table.levels) + np.cumsum(counts),
        levels=np.array([code for own in codes for code in own], dtype=np.int32),
    )
    fields: dict[str, Any] = {
        name: np.concatenate([getattr(table, name), getattr(behind, name)])
        for name in table._fields
    }
    return ConditionTable(**fields)


def _sweep(rules: RuleList) -> dict[int, tuple[list[int], list[Asked]]]:
    """For rules that others join: those others, and the conditions of all of them together."""
    merged: dict[int, tuple[list[int], list[Asked]]] = {}
    used: set[int] = set()
    known: dict[int, list[Asked]] = {}
    for column, candidates in _candidates(rules):
        groups = defaultdict(list)
        for rule in candidates:
            if rule not in used:
                own = known.setdefault(rule, asked(rules, rule))
                others = frozenset(c for c in own if c.column != column)
                groups[int(rules.tree[rule]), rules.units[rule].tobytes(), others].append(rule)
        for group in groups.values():
            here = [next(c for c in known[rule] if c.column == column) for rule in group]
            for some, union in _unions(rules, column, here):
                first, *rest = sorted(group[k] for k in some)
                used.update((first, *rest))
                own = [union if c.column == column else c for c in known[first]]
                merged[first] = (rest, [c for c in own if not _is_free(rules, c)])
    return merged


def _candidates(rules: RuleList) -> Iterator[tuple[int, list[int]]]:
    """Columns, and rules that may agree in all others; most rules are in none."""
    table = rules.conditions
    owner = np.repeat(np.arange(len(rules)), np.diff(rules.end, prepend=0))
    own = _condition_hashes(table)
    ends = np.append(np.uint64(0), np.cumsum(own, dtype=np.uint64))  # sums may wrap around
    total = ends[rules.end] - ends[np.append(0, rules.end[:-1])]
    said = np.zeros(len(rules), dtype=np.uint64)
    for column in rules.units.T:
        said = _mixed(said ^ column.astype(np.uint64))
    said = _mixed(said ^ rules.tree.astype(np.uint64))
    rest = _mixed(total[owner] - own + said[owner]) ^ _mixed(table.column.astype(np.uint64))
    order = np.argsort(rest, kind="stable")
    begins = np.flatnonzero(np.append(True, rest[order][1:] != rest[order][:-1]))
    sizes = np.diff(np.append(begins, len(order)))
    for begin, size in zip(begins[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
        at = order[begin : begin + size]
        yield int(table.column[at[0]]), owner[at].tolist()


def _condition_hashes(table: ConditionTable) -> Hashes:
    """(conditions,) uint64: alike for like conditions; others differ, but for rare accidents."""
    ends = np.append(
        np.uint64(0), np.cumsum(_mixed(table.levels.astype(np.uint64)), dtype=np.uint64)
    )
    found: Hashes = (
        ends[table.level_end] - ends[np.append(0, table.level_end[:-1])[: len(table.column)]]
    )
    flags = table.known.astype(np.uint64) * 2 + table.missing.astype(np.uint64)
    bounds = [(bound + 0.0).view(np.uint64) for bound in (table.low, table.high)]
    for part in (*bounds, flags, table.column.astype(np.uint64)):
        found = _mixed(found ^ part)
    return found


def _mixed(values: Hashes) -> Hashes:
    """A number scattered over 64 bits (the finalizer of SplitMix64: Steele et al. 2014)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _unions(
    rules: RuleList, column: int, conditions: Sequence[Asked]
) -> Iterator[tuple[list[int], Asked]]:
    """Which of some conditions on one column join, and what they are together."""
    if column < rules.schema.n_features and rules.schema.columns[column].kind == "nominal":
        chains = [list(range(len(conditions)))]
    else:
        chains = _chains(conditions)
    for chain in chains:
        if len(chain) > 1:
            yield chain, union_of([conditions[k] for k in chain])


def _chains(conditions: Sequence[Asked]) -> list[list[int]]:
    """Intervals that touch; what holds no number (missing values or nothing) joins the first."""
    order = sorted(range(len(conditions)), key=lambda k: conditions[k].low)
    chains: list[list[int]] = []
    for k in (k for k in order if conditions[k].known):
        if chains and conditions[chains[-1][-1]].high == conditions[k].low:
            chains[-1].append(k)
        else:
            chains.append([k])
    others = [k for k in order if not conditions[k].known]
    if not chains:
        return [others]
    chains[0].extend(others)
    return chains


def union_of(conditions: Iterable[Asked]) -> Asked:
    """What meets any of some conditions on one column, whose sets touch."""
    some = list(conditions)
    known = [c for c in some if c.known]
    parts = [c.part for c in some if c.missing]
    return Asked(
        column=some[0].column,
        low=min((c.low for c in known), default=-np.inf),
        high=max((c.high for c in known), default=np.inf),
        known=bool(known),
        missing=bool(parts),
        part=(min(a for a, _ in parts), max(b for _, b in parts)) if parts else (0, 0),
        fits=tuple(sorted(set(itertools.chain.from_iterable(c.fits for c in some)))),
        dividing=tuple(sorted(set(itertools.chain.from_iterable(c.dividing for c in some)))),
    )


def _is_free(rules: RuleList, condition: Asked) -> bool:
    """Whether a condition is met by every value that the list does not refuse."""
    test = condition.column >= rules.schema.n_features
    if not condition.known or (condition.low, condition.high) != (-np.inf, np.inf):
        return False
    if not test and len(condition.fits) < rules.schema.n_levels[condition.column]:
        return False
    # A test may be unknown where nothing is missing: infinities that cancel.
    refused = rules.missing == "error" and not test
    return refused or (condition.missing and condition.part == (0, MASS))


# ---------------------------------------------------------------- collapsed
# A model whose subtrees that say one thing are leaves.
#
# Where all leaves below a node have the same units, the node answers for them: whatever the
# splits below ask, the sum is the same.  That holds where rows divide, too: the parts that
# the branches get of a row's mass are ranges side by side, so that their sum is the mass.


class Collapsed(NamedTuple):
    """The smaller model, and where the nodes of the given one are.

    Attributes
    ----------
    model : Model
        Equal to the given one, row by row.
    nodes : tuple of (nodes,) int64
        For each tree, the given tree's numbers of the nodes that are left.
    homes : tuple of (leaves,) int64
        For each tree, for each leaf of the given one, ascending, the number in the given
        tree of the leaf that answers for it now.
    """

    model: Model
    nodes: tuple[Index, ...]
    homes: tuple[Index, ...]


def collapse(model: Model) -> Collapsed:
    """Each subtree whose leaves say the same becomes a leaf; linear in the nodes."""
    trees, units, nodes, homes = [], [], [], []
    for number, tree in enumerate(model.trees):
        said, which = np.unique(model.tree_units(number), axis=0, return_inverse=True)
        small, kept, home, says = _collapse_tree(tree, which.reshape(-1))
        trees.append(small)
        nodes.append(kept)
        homes.append(home)
        units.append(said[says])
    smaller = replace(model, trees=tuple(trees), units=np.concatenate(units))
    return Collapsed(smaller, tuple(nodes), tuple(homes))


def _collapse_tree(tree: Tree, which: Index) -> tuple[Tree, Index, Index, Index]:
    """The smaller tree, its nodes' old numbers, each old leaf's new home, what leaves say."""
    leaves = tree.leaves
    lowest = np.full(tree.n_nodes, -1, dtype=np.int64)
    lowest[leaves] = which
    highest = lowest.copy()
    levels = [*node_levels(tree, np.zeros(1, dtype=np.int64))]
    for inner, children in reversed(levels):
        counts = tree.n_children[inner]
        start = np.cumsum(counts) - counts
        lowest[inner] = np.minimum.reduceat(lowest[children], start)
        highest[inner] = np.maximum.reduceat(highest[children], start)
    closed = lowest == highest
    home = np.zeros(tree.n_nodes, dtype=np.int64)
    kept = np.zeros(tree.n_nodes, dtype=np.bool_)
    kept[0] = True
    for inner, children in levels:
        counts = tree.n_children[inner]
        opened = np.repeat(kept[inner] & ~closed[inner], counts)
        kept[children] = opened
        home[children] = np.where(opened, children, np.repeat(home[inner], counts))
    nodes = np.flatnonzero(kept)
    if len(nodes) == tree.n_nodes:
        return tree, nodes, leaves, which
    small = tree.take(nodes, closed[nodes])
    ends = nodes[small.kind == Split.LEAF]
    return small, nodes, home[leaves], lowest[ends]
