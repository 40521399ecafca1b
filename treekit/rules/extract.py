"""From the trees of a model to its rules: one for each leaf, conditions merged."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.model.ensemble import Model
from treekit.model.tree import Tree
from treekit.rules.rulelist import ConditionTable, RuleList

__all__ = ["rules"]


def rules(model: Model) -> RuleList:
    """The rules of a model, tree after tree, leaves from the leftmost path to the rightmost.

    Linear in the nodes and in what the conditions hold.
    """
    ends: list[npt.NDArray[np.int64]] = []
    leaves: list[npt.NDArray[np.int64]] = []
    tables: list[ConditionTable] = []
    units: list[npt.NDArray[np.int64]] = []
    n_conditions = n_levels = 0
    for number, tree in enumerate(model.trees):
        leaf, end, table = _tree_conditions(model, tree)
        leaves.append(leaf)
        ends.append(end + n_conditions)
        tables.append(table._replace(level_end=table.level_end + n_levels))
        units.append(model.tree_units(number)[np.searchsorted(tree.leaves, leaf)])
        n_conditions += len(table.column)
        n_levels += len(table.levels)
    counts = [len(leaf) for leaf in leaves]
    weights = [tree.weight[leaf] for tree, leaf in zip(model.trees, leaves, strict=True)]
    return RuleList(
        schema=model.schema,
        missing=model.missing,
        unknown=model.unknown,
        n_trees=model.n_trees,
        exponent=model.exponent,
        tree=np.repeat(np.arange(model.n_trees, dtype=np.int32), counts),
        leaf=np.concatenate(leaves).astype(np.int32),
        support=np.concatenate(weights),
        units=np.concatenate(units),
        end=np.concatenate(ends),
        conditions=ConditionTable(*(np.concatenate(part) for part in zip(*tables, strict=True))),
    )


def _tree_conditions(
    model: Model, tree: Tree
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], ConditionTable]:
    """Leaves of one tree in depth-first order, ends of their conditions, the conditions."""
    from treekit.kernels.boxes import make_walk
    from treekit.kernels.paths import CONDITION, leaf_conditions

    bar = int(model.missing == "error")
    schema = model.schema
    walk = make_walk(tree, schema.n_levels, schema.nominal, bar, tree.depth + 1)
    leaf, end = np.empty(tree.n_leaves, np.int64), np.empty(tree.n_leaves, np.int64)
    nothing, no_levels = np.empty(0, CONDITION), np.empty(0, np.int32)
    n_conditions, n_levels = leaf_conditions(walk, bar, leaf, end, nothing, no_levels)
    conditions, levels = np.empty(n_conditions, CONDITION), np.empty(n_levels, np.int32)
    leaf_conditions(walk, bar, leaf, end, conditions, levels)
    fields = (np.ascontiguousarray(conditions[name]) for name in CONDITION.names or ())
    return leaf, end, ConditionTable._make((*fields, levels))
