"""The shortest list of exact rules: rules of equal answers joined wherever one rule can say them.

Nothing is approximated: every row gets the sums that it gets from the tree.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError
from treekit.model.model import Model, least_cost
from treekit.rules.collapsed import Collapsed, collapse
from treekit.rules.extract import rules
from treekit.rules.merging import asked, merge_boxes, regrouped, union_of
from treekit.rules.rulelist import RuleList

__all__ = ["Joined", "joined", "joined_rules"]

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
