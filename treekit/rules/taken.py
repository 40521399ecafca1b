"""Some of the rules of a list, in an order of one's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treekit.model.owned import gathered
from treekit.rules.rulelist import ConditionTable, RuleList

__all__ = ["taken"]

Index = npt.NDArray[np.int64]


def taken(found: RuleList, which: Index) -> RuleList:
    """The rules `which`, in that order, each still of its tree."""
    sizes = np.diff(found.end, prepend=0)[which]
    at = gathered(np.arange(len(found.conditions.column)), found.end[which] - sizes, sizes)
    return replace(
        found,
        tree=found.tree[which],
        leaf=found.leaf[which],
        support=found.support[which],
        as_parent=found.as_parent[which],
        units=found.units[which],
        end=np.cumsum(sizes),
        conditions=_conditions(found.conditions, at),
        value=None if found.value is None else found.value[which],
    )


def _conditions(table: ConditionTable, at: Index) -> ConditionTable:
    """The conditions `at`, in that order."""
    sizes = np.diff(table.level_end, prepend=0)[at]
    levels = gathered(table.levels, table.level_end[at] - sizes, sizes)
    rows = {name: getattr(table, name)[at] for name in table._fields if "level" not in name}
    return ConditionTable(**rows, level_end=np.cumsum(sizes), levels=levels)
