"""The conditions of models that are rule lists: what `treekit.model.rule_trees` made, undone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.model.concatenated import join
from treekit.model.fixed_point import MASS
from treekit.model.model import Model
from treekit.model.tree import Split, Tree
from treekit.rules.conditions import ConditionTable

__all__ = ["is_listed", "listed_conditions"]

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def is_listed(model: Model) -> bool:
    """Whether a model is lists of rules: the first that is met answers."""
    return any(bool((tree.kind == Split.RULE).any()) for tree in model.trees)


def listed_conditions(model: Model) -> tuple[Index, ConditionTable]:
    """Ends of the rules' conditions, and the conditions, one a column and rule.

    Rules stand in the order of the leaves.  What a rule asks of one column in several
    entries is one condition; what every value meets is none.
    """
    nodes, _ = join(model.trees)
    schema = model.schema
    counts = np.diff(nodes.surrogate_start)
    leaves = np.flatnonzero(nodes.kind == Split.LEAF)
    # The rule of a leaf is its parent's, if it is the first child: entries belong to leaves.
    rule_of_node = np.full(nodes.n_nodes, -1)
    asks = np.flatnonzero(nodes.kind == Split.RULE)
    rule_of_node[asks] = np.searchsorted(leaves, nodes.first_child[asks])
    owner = np.repeat(rule_of_node, counts)
    column = nodes.surrogate_feature.astype(np.int64)
    group, rule, feature = _groups(owner, column, schema)
    low, high, fails = _intervals(nodes, group, len(rule))
    missing = np.ones(len(rule), np.bool_)
    np.logical_and.at(missing, group, nodes.surrogate_lost == -1)
    nominal = schema.nominal[feature]
    owner_of_level, level = _levels(nodes, group, feature, nominal, schema)
    n_open = np.bincount(owner_of_level, minlength=len(rule))
    known = np.where(nominal, n_open > 0, ~fails & (low < high))
    n_levels = schema.n_levels[feature]
    free = np.where(nominal, n_open == n_levels, (low == -np.inf) & (high == np.inf))
    asked = ~(missing & known & free)
    kept = asked[owner_of_level]
    whole = asked & known
    return (
        np.cumsum(np.bincount(rule[asked], minlength=len(leaves))),
        ConditionTable(
            column=feature[asked].astype(np.int32),
            low=np.where(whole, low, -np.inf)[asked],
            high=np.where(whole, high, np.inf)[asked],
            known=known[asked],
            missing=missing[asked],
            part_low=np.zeros(int(asked.sum()), np.int32),
            part_high=np.where(missing[asked], MASS, 0).astype(np.int32),
            dividing=np.zeros(int(asked.sum()), np.int64),
            level_end=np.cumsum(n_open[asked]),
            levels=level[kept].astype(np.int32),
        ),
    )


def _groups(owner: Index, column: Index, schema: Schema) -> tuple[Index, Index, Index]:
    """The condition of each entry, and rule and column of each condition.

    Conditions stand rule after rule, in each in the order in which entries ask columns.
    """
    keys = owner * schema.n_features + column
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first))
    first = first[order]
    return rank[inverse], owner[first], column[first]


def _intervals(
    nodes: Tree, group: Index, n: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], Mask]:
    """Bounds of numbers that meet each condition, and which conditions none meets."""
    low, high, fails = np.full(n, -np.inf), np.full(n, np.inf), np.zeros(n, np.bool_)
    below, above = nodes.surrogate_below == 1, nodes.surrogate_above == 1
    numeric = ~np.isnan(nodes.surrogate_threshold)
    lower, upper, none = numeric & below, numeric & above, numeric & below & above
    lower, upper = lower & ~none, upper & ~none
    np.maximum.at(low, group[lower], nodes.surrogate_threshold[lower])
    np.minimum.at(high, group[upper], nodes.surrogate_threshold[upper])
    fails[group[none]] = True
    return low, high, fails


def _levels(
    nodes: Tree, group: Index, feature: Index, nominal: Mask, schema: Schema
) -> tuple[Index, Index]:
    """The levels that meet each condition of a nominal column: whose, and which."""
    sizes = np.where(nominal, schema.n_levels[feature], 0)
    start = np.cumsum(np.append(0, sizes))
    per_entry = np.diff(nodes.surrogate_level_start)
    code = np.arange(int(nodes.surrogate_level_start[-1])) - np.repeat(
        nodes.surrogate_level_start[:-1], per_entry
    )
    failing = nodes.surrogate_level_branch == 1
    at = start[np.repeat(group, per_entry)] + code
    met = np.ones(int(start[-1]), np.bool_)
    met[at[failing]] = False
    found = np.flatnonzero(met)
    whose = np.searchsorted(start, found, side="right") - 1
    return whose, found - start[whose]
