"""What the trees of a model ask on the way to their nodes: candidates for short lists.

Every node but the roots is the rule of all that is asked on the way to it (Friedman and
Popescu 2008, "Predictive learning via rule ensembles", section 3), in merged conditions:
at most one a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError, ModelError
from treekit.model.model import Model, make_model
from treekit.model.tree import Tree
from treekit.rules.extract import is_listed, rules
from treekit.rules.rule_list import ConditionTable, RuleList, taken

__all__ = ["candidate_rules", "interned", "joined", "refuse_lists"]

Index = npt.NDArray[np.int64]


def candidate_rules(model: Model, depth: int) -> RuleList:
    """The rules of the nodes down to `depth` edges from the roots, but not of the roots.

    Parameters
    ----------
    model : Model
        Missing values go the way that is stored in each split, also where the model divides
        rows or asks surrogates.  Nodes below a sum of columns are left out: it is no
        condition on a column.
    depth : int
        At least 1.

    Returns
    -------
    RuleList
        With the number of its tree and its training weight for each rule, and with units
        of 0: what the rules answer is for others to say.  Shallow rules first.

    Raises
    ------
    DataError
        If nothing is left.
    ModelError
        If the model is a list of rules.
    """
    refuse_lists(model)
    plain = [_plain(tree) for tree in model.trees]
    parts = [_of_depth(model, plain, k) for k in range(1, depth + 1) if k <= model.depth]
    parts = [part for part in parts if len(part)]
    if not parts:
        raise DataError(
            "the model has no rules to choose from: its trees are single leaves, or all split "
            "by sums of columns; train a forest with splits on single columns"
        )
    return joined(parts)


def refuse_lists(model: Model) -> None:
    """Raise `ModelError` for a model that is a list of rules, which has no paths."""
    if is_listed(model):
        raise ModelError(
            "the model is a list of rules already, and has no trees to take paths from; give "
            "the tree or the forest that the list was made from"
        )


def _plain(tree: Tree) -> Tree:
    """A tree without surrogates, whose nodes each ask one column of a row or a sum."""
    if not len(tree.surrogate_feature):
        return tree
    none = np.zeros(tree.n_nodes + 1, dtype=np.int64)
    empty, no_numbers = np.empty(0, dtype=np.int32), np.empty(0)
    return replace(
        tree, surrogate_start=none, surrogate_feature=empty, surrogate_threshold=no_numbers,
        surrogate_below=empty, surrogate_above=empty, surrogate_lost=empty,
        surrogate_level_start=none[:1], surrogate_level_branch=empty,
    )  # fmt: skip


def _of_depth(model: Model, trees: Sequence[Tree], depth: int) -> RuleList:
    """The rules of the nodes that lie exactly `depth` edges below a root."""
    cut, at_depth = [], []
    for tree in trees:
        depths = tree.depths
        nodes = np.flatnonzero(depths <= depth)
        cut.append(tree.take(nodes, depths[nodes] == depth))
        at_depth.append(depths[nodes] == depth)
    found = rules(
        make_model(
            model.schema, cut, unknown=model.unknown, combine=model.combine, link=model.link,
            missing="error" if model.missing == "error" else "direction",
        )
    )  # fmt: skip
    first = np.cumsum([0] + [tree.n_nodes for tree in cut])
    here = np.concatenate(at_depth)[first[found.tree] + found.leaf]
    sums = found.conditions.column >= model.schema.n_features
    asked = np.add.reduceat(np.append(sums, False), _starts(found)) > 0
    # A leaf of a tree that is one leaf has no conditions, and reduceat takes the next one's.
    asked &= found.end > _starts(found)
    bare = taken(found, np.flatnonzero(here & ~asked))
    return replace(bare, tests=(), units=np.zeros_like(bare.units), value=None)


def _starts(found: RuleList) -> Index:
    """(rules,) int64: where the conditions of each rule begin."""
    return np.append(0, found.end[:-1])


def joined(parts: Iterable[RuleList]) -> RuleList:
    """The rules of several lists of one schema, one after the other."""
    parts = list(parts)
    n_conditions = np.cumsum([0] + [len(part.conditions.column) for part in parts])
    n_levels = np.cumsum([0] + [len(part.conditions.levels) for part in parts])
    tables = [
        part.conditions._replace(level_end=part.conditions.level_end + n)
        for part, n in zip(parts, n_levels, strict=False)
    ]
    ends = [part.end + n for part, n in zip(parts, n_conditions, strict=False)]
    return replace(
        parts[0],
        tree=np.concatenate([part.tree for part in parts]),
        leaf=np.concatenate([part.leaf for part in parts]),
        support=np.concatenate([part.support for part in parts]),
        as_parent=np.concatenate([part.as_parent for part in parts]),
        units=np.concatenate([part.units for part in parts]),
        end=np.concatenate(ends),
        conditions=ConditionTable(*(np.concatenate(own) for own in zip(*tables, strict=True))),
        value=None,
    )


def interned(found: RuleList) -> Index:
    """(rules,) int64: equal numbers for rules of equal conditions, in whatever order."""
    if not len(found):
        return np.empty(0, dtype=np.int64)
    table = found.conditions
    sets: dict[bytes, int] = {}
    begins = np.append(0, table.level_end[:-1])
    level_set = np.zeros(len(table.column), dtype=np.int64)
    for at in np.flatnonzero(found.schema.nominal[table.column]).tolist():
        own = table.levels[begins[at] : table.level_end[at]].tobytes()
        level_set[at] = sets.setdefault(own, len(sets))
    keys = np.column_stack(
        [table.column, table.low, table.high, table.known, table.missing, level_set]
    )
    number = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    sizes = np.diff(found.end, prepend=0)
    wide = np.full((len(found), int(sizes.max(initial=1))), -1)
    owner = np.repeat(np.arange(len(found)), sizes)
    wide[owner, np.arange(len(owner)) - np.repeat(found.end - sizes, sizes)] = number
    wide.sort(axis=1)
    return np.unique(wide, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
