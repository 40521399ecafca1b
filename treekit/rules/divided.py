"""The conditions of rules that keep a part of a row: one for each split of the path.

Where missing values divide a row (Quinlan 1993, chapter 3), what is left of it
depends on every split on the way, so nothing is merged.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import MASS, mass_bounds
from treekit.model.tree import Split, Tree, ranges
from treekit.rules.conditions import ConditionTable

__all__ = ["depth_first", "divided_conditions", "node_paths", "steps"]

Index = npt.NDArray[np.int64]


def divided_conditions(plain: Tree, n_levels: Index) -> tuple[Index, Index, ConditionTable]:
    """The conditions of every leaf of one tree, leaves in depth-first order.

    Parameters
    ----------
    plain : Tree
        With derived columns in the place of tests.
    n_levels : (columns,) int64
        Of each column, the derived ones behind the others; 0 for numbers.

    Returns
    -------
    leaf, end : (leaves,) int64
        Node numbers, and the number of conditions up to and with each leaf.
    conditions : ConditionTable
    """
    asked = steps(plain, mass_bounds(plain), n_levels)
    leaf = depth_first(plain)
    path, end = node_paths(plain, leaf)
    levels, starts = ranges(np.append(0, asked.level_end), path)
    fields = {name: part[path] for name, part in asked._asdict().items() if name != "levels"}
    fields |= {"level_end": starts[1:], "levels": asked.levels[levels]}
    return leaf, end, ConditionTable(**fields)


def steps(plain: Tree, bounds: Index, n_levels: Index) -> ConditionTable:
    """What the step from its parent to each node asks: a condition a node, idle for the root.

    Parameters
    ----------
    plain, n_levels
        As in `divided_conditions`.
    bounds : (nodes, 2) int64
        What a missing value keeps of a row's mass, see `mass_bounds`; equal if nothing.
    """
    parent = plain.parent
    up = np.maximum(parent, 0)
    kind, column = plain.kind[up], np.where(parent < 0, 0, plain.feature[up])
    branch = np.arange(plain.n_nodes) - plain.first_child[up]
    at_threshold, absence = kind == Split.THRESHOLD, kind == Split.MISSING
    part = np.where(absence[:, None], np.where(branch == 0, 1, 0)[:, None] * [0, MASS], bounds)
    some = part[:, 1] > part[:, 0]
    levels, dividing, level_end = _levels(plain, n_levels, branch, some)
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


def _levels(
    plain: Tree, n_levels: Index, branch: Index, some: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int32], Index, Index]:
    """Levels that fit each node's step and then those that divide, how many do, where they end."""
    parent = plain.parent
    up = np.maximum(parent, 0)
    sets = np.isin(plain.kind[up], (Split.SUBSET, Split.MULTIWAY))
    known = (plain.kind[up] == Split.MISSING) & (branch == 1)  # every level
    asks = (parent >= 0) & (sets | known)
    counts = np.where(asks, n_levels[plain.feature[up]], 0)
    owner = np.repeat(np.arange(plain.n_nodes), counts)
    code = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    goes, listed = branch[owner], sets[owner]
    goes[listed] = plain.level_branch[(plain.level_start[up[owner]] + code)[listed]]
    whole, divides = goes == branch[owner], (goes < 0) & some[owner]
    kept = np.flatnonzero(whole | divides)
    kept = kept[np.lexsort((divides[kept], owner[kept]))]  # stable: codes stay in order
    ends = np.cumsum(np.bincount(owner[kept], minlength=plain.n_nodes))
    dividing = np.bincount(owner[kept], weights=divides[kept], minlength=plain.n_nodes)
    return code[kept].astype(np.int32), dividing.astype(np.int64), ends


def depth_first(plain: Tree) -> Index:
    """(leaves,) int64: the leaves from the leftmost path to the rightmost."""
    parent, depths = plain.parent, plain.depths
    below = (plain.kind == Split.LEAF).astype(np.int64)
    order = np.argsort(depths, kind="stable")  # siblings side by side
    levels = np.split(order, np.searchsorted(depths[order], np.arange(1, plain.depth + 1)))
    for nodes in levels[:0:-1]:
        np.add.at(below, parent[nodes], below[nodes])
    place = np.zeros(plain.n_nodes, dtype=np.int64)  # leaves to the left of a node
    for nodes in levels[1:]:
        before = np.cumsum(below[nodes]) - below[nodes]
        family = np.flatnonzero(np.diff(parent[nodes], prepend=-1))
        eldest = np.repeat(before[family], np.diff(np.append(family, len(nodes))))
        place[nodes] = place[parent[nodes]] + before - eldest
    leaves = plain.leaves
    return leaves[np.argsort(place[leaves])]


def node_paths(plain: Tree, leaf: Index) -> tuple[Index, Index]:
    """The nodes from below the root to each leaf, one path after the other, and their ends."""
    parent, depths = plain.parent, plain.depths
    end = np.cumsum(depths[leaf])
    path = np.empty(int(end[-1]), dtype=np.int64)
    node, to = leaf, end - 1
    while len(inside := np.flatnonzero(parent[node] >= 0)):
        node, to = node[inside], to[inside]
        path[to] = node
        node, to = parent[node], to - 1
    return path, end
