"""Merge rules with equal predictions into the shortest exact rule list.

Nothing is approximated: every row gets the sums that it gets from the tree.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError
from treekit.kernels.random_numbers import mix_bits
from treekit.model.model import Model, predict_labels
from treekit.model.tree import Split, Tree, compute_root_offsets, node_levels
from treekit.rules.extract import rules
from treekit.rules.rule_list import (
    ConditionTable,
    ConditionTuple,
    RuleList,
    concatenate_rules,
    list_conditions,
    take_rules,
)

# ---------------------------------------------------------------- merged rules

Index = npt.NDArray[np.int64]


def joined_rules(model: Model, *, decisions: bool = False) -> RuleList:
    """Return the rules of a model, merged where one exact rule can replace several.

    First all leaves below a node with equal values are merged; then rules of one tree with
    equal values that differ in one column only, if their intervals touch, their categories
    form one set, or one accepts only missing values.  With fractional instances only
    neighbouring branches of one split are merged, whose ranges of mass are contiguous.  An
    ordered list is left unchanged.

    Parameters
    ----------
    model : Model
    decisions : bool
        Merge rules with equal labels, whatever their shares: the list predicts the labels of
        the model, and no probabilities (`RuleList.decisions`).

    Returns
    -------
    RuleList
        `Rule.leaf` of a merged rule is the lowest common ancestor of its leaves; its support
        and value are those of all its leaves together.

    Raises
    ------
    ModelError
        With `decisions`, unless the model is a single classification tree without fractional
        instances.
    """
    return merge_rules(model, decisions=decisions)[0]


def merge_rules(model: Model, *, decisions: bool = False) -> tuple[RuleList, Index]:
    """Return the merged rules of `joined_rules`, and the merged rule of each leaf.

    Returns
    -------
    RuleList
    (leaves,) int64
        The merged rule that contains each rule of `treekit.rules.rules`.
    """
    if decisions:
        model = _make_decisive(model)
    leaves = rules(model)
    if leaves.order != "disjoint":
        return replace(leaves, decisions=decisions), np.arange(len(leaves))
    if model.part_bits:  # parts of a row are rounded one by one, and those of a merged leaf once
        return replace(leaves, decisions=decisions), np.arange(len(leaves))
    small = collapse_subtrees(model)
    listed = leaves if small.model.n_nodes == model.n_nodes else rules(small.model)
    shorter, moved = _merge_siblings(small.model, listed) if model.mass > 1 else merge_boxes(listed)
    home = moved[_map_leaf_rules(leaves, small, listed)]
    return replace(_aggregate_leaves(model, leaves, shorter, home), decisions=decisions), home


def _make_decisive(model: Model) -> Model:
    """Return the model with one vote for the label of each leaf."""
    reason = None
    if model.schema.task == "regression" or model.margins:
        reason = "its leaves are numbers, not labels"
    elif model.n_trees > 1:
        reason = f"it has {model.n_trees} trees, whose shares are added before a label is chosen"
    elif model.mass > 1:
        reason = "with missing='fractional' the shares of several leaves are added"
    if reason is not None:
        raise ModelError(
            f"the model has no list of decisions: {reason}; use its rules without decisions"
        )
    units = np.zeros_like(model.units)
    row = np.arange(len(units))
    for first, last in itertools.pairwise(model.schema.blocks):
        units[row, first + predict_labels(model.units[:, first:last], model.label_costs)] = 1
    return replace(model, units=units, voting="hard")


def _map_leaf_rules(leaves: RuleList, small: CollapsedModel, listed: RuleList) -> Index:
    """Return (leaves,) int64: the rule of the smaller model for each rule of the model."""
    rule_of_node = np.empty(len(small.home), dtype=np.int64)
    kept = small.nodes[compute_root_offsets(small.model.trees)[listed.tree] + listed.leaf]
    rule_of_node[kept] = np.arange(len(listed))
    found: Index = rule_of_node[small.home[small.roots[leaves.tree] + leaves.leaf]]
    return found


def _merge_siblings(model: Model, listed: RuleList) -> tuple[RuleList, Index]:
    """Merge neighbouring branches of a split with equal values, for fractional instances."""
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
            *before, _ = list_conditions(listed, begin)
            replaced[begin] = [
                *before,
                unite_conditions(list_conditions(listed, rule)[-1] for rule in some),
            ]
    return regroup_rules(listed, lead, replaced)


def _aggregate_leaves(model: Model, leaves: RuleList, shorter: RuleList, home: Index) -> RuleList:
    """Return the merged rules with the node, support and value of all their leaves."""
    n = len(shorter)
    support = np.bincount(home, leaves.support, n).astype(np.float64)
    value = np.zeros((n, leaves.schema.n_values))
    assert leaves.value is not None  # noqa: S101 - for the type checker
    if model.schema.task == "classification" and not model.margins:
        np.add.at(value, home, leaves.value)
    else:  # weighted means; leaves without rows count equally
        weight = np.where(support[home] > 0, leaves.support, 1.0)
        np.add.at(value, home, leaves.value * weight[:, None])
        value /= np.bincount(home, weight, n)[:, None]
        single = np.bincount(home, minlength=n)[home] == 1
        value[home[single]] = leaves.value[single]  # not rounded
    return replace(
        shorter,
        leaf=_find_common_ancestors(model, leaves, shorter, home),
        support=support,
        as_parent=shorter.as_parent & (support == 0),
        value=value,
    )


def _find_common_ancestors(
    model: Model, leaves: RuleList, shorter: RuleList, home: Index
) -> npt.NDArray[np.int32]:
    """Return (rules,) int32: the lowest common ancestor of the leaves of each merged rule."""
    roots = compute_root_offsets(model.trees)
    parent = np.concatenate(
        [tree.parent + root for tree, root in zip(model.trees, roots, strict=False)]
    )
    node = roots[leaves.tree] + leaves.leaf
    # Leaves are in depth-first order: the ancestor of the first and the last one is that of all.
    order = np.argsort(home, kind="stable")
    ends = np.searchsorted(home[order], np.arange(len(shorter) + 1))
    one, other = node[order[ends[:-1]]], node[order[ends[1:] - 1]]
    while (apart := one != other).any():  # parents have smaller numbers than children
        higher = np.maximum(one, other)
        one, other = np.minimum(one, other), np.where(apart, parent[higher], other)
    found: npt.NDArray[np.int32] = (one - roots[shorter.tree]).astype(np.int32)
    return found


# ---------------------------------------------------------------- merging boxes
# Rules of one tree are disjoint boxes.  The union of two boxes that agree in all columns but
# one is a box if their intervals touch there, or they are sets of categories, or one accepts
# only missing values.  Candidates are found by a hash of all conditions of a rule but one,
# and are then compared exactly.

Hashes = npt.NDArray[np.uint64]


def merge_boxes(rules: RuleList) -> tuple[RuleList, Index]:
    """Merge the rules of a disjoint list until no two can be merged; without fractional instances.

    Returns
    -------
    rules : RuleList
        With merged conditions; other fields are those of the first of the merged rules, and
        are updated by `merge_rules`.
    home : (rules,) int64
        The merged rule of each given rule.
    """
    home = np.arange(len(rules))
    while True:
        merged = _find_merges(rules)
        if not merged:
            return rules, home
        lead = np.arange(len(rules))
        for first, (others, _) in merged.items():
            lead[others] = first
        rules, moved = regroup_rules(
            rules, lead, {first: own for first, (_, own) in merged.items()}
        )
        home = moved[home]


def regroup_rules(
    rules: RuleList, lead: Index, replaced: dict[int, list[ConditionTuple]]
) -> tuple[RuleList, Index]:
    """Return the leading rules, some with new conditions, and the new number of each rule's leader.

    Parameters
    ----------
    rules : RuleList
    lead : (rules,) int64
        For each rule the rule that represents it, or itself.
    replaced : dict of int to list of ConditionTuple
        New conditions of leading rules.
    """
    leaders, home = np.unique(lead, return_inverse=True)
    which = np.array(list(replaced), dtype=np.int64)
    conditions = list(itertools.chain.from_iterable(replaced.values()))
    merged = replace(
        take_rules(rules, which),
        end=np.cumsum(list(map(len, replaced.values())), dtype=np.int64),
        conditions=ConditionTable.from_conditions(conditions),
    )
    at = leaders.copy()
    at[np.searchsorted(leaders, which)] = len(rules) + np.arange(len(which))
    return take_rules(concatenate_rules([rules, merged]), at), home.reshape(-1)


def _find_merges(rules: RuleList) -> dict[int, tuple[list[int], list[ConditionTuple]]]:
    """Return, for rules to merge into, the rules merged and the conditions of the union."""
    merged: dict[int, tuple[list[int], list[ConditionTuple]]] = {}
    used: set[int] = set()
    known: dict[int, list[ConditionTuple]] = {}
    for column, candidates in _generate_candidates(rules):
        groups = defaultdict(list)
        for rule in candidates:
            if rule not in used:
                own = known.setdefault(rule, list_conditions(rules, rule))
                others = frozenset(c for c in own if c.column != column)
                groups[int(rules.tree[rule]), rules.units[rule].tobytes(), others].append(rule)
        for group in groups.values():
            here = [next(c for c in known[rule] if c.column == column) for rule in group]
            for some, union in _generate_unions(rules, column, here):
                first, *rest = sorted(group[k] for k in some)
                used.update((first, *rest))
                own = [union if c.column == column else c for c in known[first]]
                merged[first] = (rest, [c for c in own if not _is_always_met(rules, c)])
    return merged


def _generate_candidates(rules: RuleList) -> Iterator[tuple[int, list[int]]]:
    """Generate columns, and rules that may agree in all other columns; most rules are in none."""
    table = rules.conditions
    owner = np.repeat(np.arange(len(rules)), np.diff(rules.end, prepend=0))
    own = _hash_conditions(table)
    ends = np.append(np.uint64(0), np.cumsum(own, dtype=np.uint64))  # sums may wrap around
    total = ends[rules.end] - ends[np.append(0, rules.end[:-1])]
    unit_hash = np.zeros(len(rules), dtype=np.uint64)
    for column in rules.units.T:
        unit_hash = _mix_bits(unit_hash ^ column.astype(np.uint64))
    unit_hash = _mix_bits(unit_hash ^ rules.tree.astype(np.uint64))
    rest = _mix_bits(total[owner] - own + unit_hash[owner]) ^ _mix_bits(
        table.column.astype(np.uint64)
    )
    order = np.argsort(rest, kind="stable")
    begins = np.flatnonzero(np.append(True, rest[order][1:] != rest[order][:-1]))
    sizes = np.diff(np.append(begins, len(order)))
    for begin, size in zip(begins[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
        at = order[begin : begin + size]
        yield int(table.column[at[0]]), owner[at].tolist()


def _hash_conditions(table: ConditionTable) -> Hashes:
    """Return (conditions,) uint64: equal for equal conditions, and rarely for different ones."""
    ends = np.append(
        np.uint64(0), np.cumsum(_mix_bits(table.levels.astype(np.uint64)), dtype=np.uint64)
    )
    found: Hashes = (
        ends[table.level_end] - ends[np.append(0, table.level_end[:-1])[: len(table.column)]]
    )
    flags = table.known.astype(np.uint64) * 2 + table.missing.astype(np.uint64)
    bounds = [(bound + 0.0).view(np.uint64) for bound in (table.low, table.high)]
    for part in (*bounds, flags, table.column.astype(np.uint64)):
        found = _mix_bits(found ^ part)
    return found


def _mix_bits(values: Hashes) -> Hashes:
    """Scatter numbers over 64 bits."""
    mixed: Hashes = mix_bits.py_func(values, np.uint64(0))  # type: ignore[attr-defined]
    return mixed


def _generate_unions(
    rules: RuleList, column: int, conditions: Sequence[ConditionTuple]
) -> Iterator[tuple[list[int], ConditionTuple]]:
    """Generate groups of conditions on one column that merge, and their union."""
    if column < rules.schema.n_features and rules.schema.columns[column].kind == "nominal":
        chains = [list(range(len(conditions)))]
    else:
        chains = _chain_intervals(conditions)
    for chain in chains:
        if len(chain) > 1:
            yield chain, unite_conditions([conditions[k] for k in chain])


def _chain_intervals(conditions: Sequence[ConditionTuple]) -> list[list[int]]:
    """Group touching intervals; conditions that accept no number join the first group."""
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


def unite_conditions(conditions: Iterable[ConditionTuple]) -> ConditionTuple:
    """Return the union of conditions on one column, whose sets touch."""
    some = list(conditions)
    known = [c for c in some if c.known]
    parts = [c.part for c in some if c.missing]
    return ConditionTuple(
        column=some[0].column,
        low=min((c.low for c in known), default=-np.inf),
        high=max((c.high for c in known), default=np.inf),
        known=bool(known),
        missing=bool(parts),
        part=(min(a for a, _ in parts), max(b for _, b in parts)) if parts else (0, 0),
        fits=tuple(sorted(set(itertools.chain.from_iterable(c.fits for c in some)))),
        dividing=tuple(sorted(set(itertools.chain.from_iterable(c.dividing for c in some)))),
    )


def _is_always_met(rules: RuleList, condition: ConditionTuple) -> bool:
    """Return whether every value that the policies accept meets a condition."""
    test = condition.column >= rules.schema.n_features
    n_levels = 0 if test else rules.schema.n_levels[condition.column]
    # A test may be unknown even if no value is missing: infinities may cancel.
    return condition.accepts_all(n_levels, refused=rules.missing == "error" and not test)


# ---------------------------------------------------------------- collapsing subtrees
# A subtree whose leaves all have the same units can be replaced by a leaf: the splits do not
# change the sum.  This includes fractional instances: the ranges of mass of the branches are
# contiguous, so they add to the mass of the row.


class CollapsedModel(NamedTuple):
    """A reduced model, and the nodes of the original that its nodes correspond to.

    Nodes are numbered through all trees.

    Attributes
    ----------
    model : Model
        Equal to the original, row by row.
    roots : (trees + 1,) int64
        Original numbers of the roots.
    nodes : (kept,) int64
        The original numbers of the remaining nodes.
    home : (nodes,) int64
        For each original leaf, the original number of the leaf that now contains it.
    """

    model: Model
    roots: Index
    nodes: Index
    home: Index


def collapse_subtrees(model: Model) -> CollapsedModel:
    """Replace each subtree with equal leaves by a leaf; linear in the nodes."""
    trees, units, nodes, homes = [], [], [], []
    roots = compute_root_offsets(model.trees)
    for number, tree in enumerate(model.trees):
        values, which = np.unique(model.tree_units(number), axis=0, return_inverse=True)
        small, kept, home, predicted = _collapse_tree(tree, which.reshape(-1))
        trees.append(small)
        nodes.append(kept + roots[number])
        homes.append(home + roots[number])
        units.append(values[predicted])
    smaller = replace(model, trees=tuple(trees), units=np.concatenate(units))
    return CollapsedModel(smaller, roots, np.concatenate(nodes), np.concatenate(homes))


def _collapse_tree(tree: Tree, which: Index) -> tuple[Tree, Index, Index, Index]:
    """Return the reduced tree, old node numbers, new home of old leaves, values of leaves."""
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
        return tree, nodes, nodes, which
    small = tree.take(nodes, closed[nodes])
    ends = nodes[small.kind == Split.LEAF]
    return small, nodes, home, lowest[ends]
