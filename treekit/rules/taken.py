"""Some of the rules of a list, in an order of one's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treekit.model.tree import gathered
from treekit.rules.rulelist import RuleList

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
        conditions=found.conditions.take(at),
        value=None if found.value is None else found.value[which],
    )
