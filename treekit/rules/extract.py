"""From the trees of a model to its rules: one for each leaf."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.model.derived_features import derive
from treekit.model.fixed_point import MASS
from treekit.model.model import Model, spread
from treekit.model.tree import Split, Tree
from treekit.rules.clauses import tests_of
from treekit.rules.conditions import ConditionTable
from treekit.rules.divided import divided_conditions
from treekit.rules.listed import is_listed, listed_conditions
from treekit.rules.rulelist import RuleList

__all__ = ["rules"]

Conditions = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], ConditionTable]


def rules(model: Model) -> RuleList:
    """The rules of a model, tree after tree, leaves from the leftmost path to the rightmost.

    Of a model that is lists of rules, these rules, in their order.  Linear in the nodes and
    in what the conditions hold.
    """
    if is_listed(model):
        return _listed(model)
    column = derive(model).column
    first = np.cumsum([0] + [tree.n_nodes for tree in model.trees])
    ends: list[npt.NDArray[np.int64]] = []
    leaves: list[npt.NDArray[np.int64]] = []
    tables: list[ConditionTable] = []
    units: list[npt.NDArray[np.int64]] = []
    n_conditions = n_levels = 0
    for number, tree in enumerate(model.trees):
        leaf, end, table = _tree_conditions(model, tree, column[first[number] : first[number + 1]])
        leaves.append(leaf)
        ends.append(end + n_conditions)
        tables.append(table._replace(level_end=table.level_end + n_levels))
        units.append(model.tree_units(number)[np.searchsorted(tree.leaves, leaf)])
        n_conditions += len(table.column)
        n_levels += len(table.levels)
    counts = [len(leaf) for leaf in leaves]
    own = list(zip(model.trees, leaves, units, strict=True))
    return RuleList(
        schema=model.schema,
        missing=model.missing,
        unknown=model.unknown,
        voting=model.voting,
        costs=model.label_costs,
        n_trees=model.n_trees,
        exponent=model.exponent,
        tests=tests_of(model),
        tree=np.repeat(np.arange(model.n_trees, dtype=np.int32), counts),
        leaf=np.concatenate(leaves).astype(np.int32),
        support=np.concatenate([tree.weight[leaf] for tree, leaf, _ in own]),
        as_parent=np.concatenate([_as_parent(model, *some) for some in own]),
        units=np.concatenate(units),
        end=np.concatenate(ends),
        conditions=ConditionTable(*(np.concatenate(part) for part in zip(*tables, strict=True))),
        combine=model.combine,
        link=model.link,
        value=np.concatenate([tree.value[leaf] for tree, leaf, _ in own]),
    )


def _listed(model: Model) -> RuleList:
    """The rules of lists; `RuleList.model` undone."""
    end, conditions = listed_conditions(model)
    leaves = [tree.leaves for tree in model.trees]
    return RuleList(
        schema=model.schema,
        missing=model.missing,
        unknown=model.unknown,
        voting=model.voting,
        costs=model.label_costs,
        n_trees=model.n_trees,
        exponent=model.exponent,
        tests=(),
        tree=np.repeat(np.arange(model.n_trees, dtype=np.int32), [len(own) for own in leaves]),
        leaf=np.concatenate(leaves).astype(np.int32),
        support=np.concatenate(
            [tree.weight[own] for tree, own in zip(model.trees, leaves, strict=True)]
        ),
        as_parent=np.zeros(len(end), np.bool_),
        units=model.units,
        end=end,
        conditions=conditions,
        combine=model.combine,
        link=model.link,
        order="first",
        value=np.concatenate(
            [tree.value[own] for tree, own in zip(model.trees, leaves, strict=True)]
        ),
    )


def _tree_conditions(model: Model, tree: Tree, column: npt.NDArray[np.int64]) -> Conditions:
    """Leaves of one tree in depth-first order, ends of their conditions, the conditions.

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
        leaf, end, table = divided_conditions(plain, n_levels)
    else:
        leaf, end, table = _merged_conditions(model, plain, n_levels)
    behind = table.column >= n_features
    return leaf, end, table._replace(column=np.where(behind, table.column + first, table.column))


def _merged_conditions(model: Model, plain: Tree, n_levels: npt.NDArray[np.int64]) -> Conditions:
    """At most one condition a column: the box of each leaf."""
    from treekit.kernels.reachability import make_walk
    from treekit.kernels.tree_passes import CONDITION, leaf_conditions

    # A test may be unknown even where nothing is missing: infinities that cancel.
    bar = np.zeros(len(n_levels), dtype=np.int64)
    bar[: model.schema.n_features] = model.missing == "error"
    nominal = np.zeros(len(n_levels), dtype=np.bool_)
    nominal[: model.schema.n_features] = model.schema.nominal
    walk = make_walk(plain, n_levels, nominal, bar, plain.depth + 1)
    leaf, end = np.empty(plain.n_leaves, np.int64), np.empty(plain.n_leaves, np.int64)
    none, no_levels = np.empty(0, CONDITION), np.empty(0, np.int32)
    n_conditions, n_coded = leaf_conditions(walk, bar, leaf, end, none, no_levels)
    found, levels = np.empty(n_conditions, CONDITION), np.empty(n_coded, np.int32)
    leaf_conditions(walk, bar, leaf, end, found, levels)
    fields = {name: np.ascontiguousarray(found[name]) for name in CONDITION.names or ()}
    table = ConditionTable(
        **fields,
        part_low=np.zeros(n_conditions, np.int32),
        part_high=np.where(fields["missing"], MASS, 0).astype(np.int32),
        dividing=np.zeros(n_conditions, np.int64),
        levels=levels,
    )
    return leaf, end, table


def _as_parent(
    model: Model, tree: Tree, leaf: npt.NDArray[np.int64], units: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """(leaves,) bool: which leaves no training row reached that say what their parent does."""
    parent = tree.parent[leaf]
    empty = np.flatnonzero((tree.weight[leaf] == 0) & (parent >= 0))
    values = tree.value[parent[empty]]
    if model.schema.task == "classification" and not model.margins:
        blocks = np.array(model.schema.blocks)
        said: Any = np.all(np.add.reduceat(values, blocks[:-1], axis=1) > 0, axis=1)
        values = np.where(said[:, None], values, 1.0)
        theirs = spread(model, values)
    else:
        said = np.ones(len(values), dtype=np.bool_)
        theirs = model.grid.to_grid(values)
    found = np.zeros(len(leaf), dtype=np.bool_)
    found[empty] = said & (theirs == units[empty]).all(axis=1)
    return found
