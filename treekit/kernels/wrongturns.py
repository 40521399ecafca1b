"""The search for rows that show whether a split sends them the right way.

A row that merely reaches a split does not prove it: if both sides happen to
give that row the same answer, a wrong turn goes unseen.  So for each value
that a split could send the wrong way, a search over pairs of leaves, one on
the right side and one on the wrong, looks for a row whose answers differ.  It
is complete up to a budget: if it ends without a row, no row exists.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treekit.kernels.boxes import enter, leave, possible
from treekit.kernels.compile import kernel

__all__ = ["Columns", "Leaves", "Search", "branch_of", "fill", "number_in", "telling_row"]

# Numbers of `treekit.model.tree.Split`, which compiled code cannot read.
_LEAF, _THRESHOLD, _MISSING = 0, 1, 4
_SHOWN, _NEVER_SHOWN, _GIVEN_UP = 0, 1, 2


class Columns(NamedTuple):
    """What a row may hold.

    Attributes
    ----------
    nominal : (features,) bool
    unseen : bool
        Whether a category outside the vocabulary is accepted, as missing.
    narrow : bool
        Whether numbers are rounded to float32.
    pool, after : (thresholds,) float64
        The thresholds of all trees, ascending in each column, and the next
        number of the input type above each.
    pool_start : (features + 1,) int64
    """

    nominal: Any
    unseen: Any
    narrow: Any
    pool: Any
    after: Any
    pool_start: Any


class Leaves(NamedTuple):
    """What a tree's leaves say: ``units[row_of[node]]``, (leaves, outputs) int64."""

    row_of: Any
    units: Any


class Search(NamedTuple):
    """Scratch space of `telling_row`: node, first branch, branches tried, phase."""

    path: Any
    first: Any
    tried: Any
    phase: Any


@kernel
def number_in(columns: Any, f: int, low: float, high: float, rng: Any) -> float:
    """A number in ``(low, high]``, a threshold or the next number above one if there are any."""
    start, end = columns.pool_start[f], columns.pool_start[f + 1]
    pool = columns.pool[start:end]
    first = np.searchsorted(pool, low, side="right")
    last = np.searchsorted(pool, high, side="right")
    if first < last:
        k = first + int(rng.random() * (last - first))
        if pool[k] < high and rng.random() < 0.5:
            return columns.after[start + k]
        return pool[k]
    if first > 0:  # nothing is asked above `low`
        return columns.after[start + first - 1]
    return np.floor(rng.random() * 7.0) - 3.0


@kernel
def fill(box: Any, columns: Any, row: Any, fixed: int, value: float, rng: Any) -> None:
    """A row of the box, column `fixed` at `value`."""
    for f in range(len(row)):
        nominal = columns.nominal[f]
        some = box.n_open[f] > 0 if nominal else box.low[f] < box.high[f]
        known = box.no_known[f] == 0 and some
        if f == fixed:
            row[f] = value
        elif box.no_missing[f] == 0 and (not known or rng.random() < 0.1):
            row[f] = np.nan
        elif nominal:
            start = box.first_level[f]
            n_levels = box.first_level[f + 1] - start
            level = int(rng.random() * n_levels)
            while box.barred[start + level] > 0:
                level = (level + 1) % n_levels
            row[f] = level
        else:
            row[f] = number_in(columns, f, box.low[f], box.high[f], rng)


@kernel
def branch_of(nodes: Any, node: int, value: float) -> int:
    """The branch that `value` takes; it is a number of the input type, or a code."""
    if nodes.kind[node] == _MISSING:
        return 0 if np.isnan(value) else 1
    if nodes.kind[node] == _THRESHOLD:
        if np.isnan(value):
            return nodes.missing[node]
        return 0 if value <= nodes.threshold[node] else 1
    start = nodes.level_start[node]
    if 0 <= value < nodes.level_start[node + 1] - start:
        goes = nodes.level_branch[start + int(value)]
        if goes >= 0:
            return goes
    return nodes.missing[node]


@kernel
def telling_row(
    nodes: Any,
    leaves: Any,
    box: Any,
    columns: Any,
    budget: int,
    search: Any,
    begin: int,
    node: int,
    value: float,
    wrong: int,
    row: Any,
    rng: Any,
) -> int:
    """Fill `row` so that it reaches `node` with `value` and branch `wrong` would show.

    Depth-first over the leaves below the right branch and, for each, those
    below the wrong one, within one box.  Nodes that ask the fixed column have
    no choice.
    """
    f = nodes.feature[node]
    top = nodes.first_child[node]
    other = top + wrong
    at, right, depth, pairs = top + branch_of(nodes, node, value), -1, begin, 0
    result = _NEVER_SHOWN
    while True:
        while nodes.kind[at] != _LEAF and nodes.feature[at] == f:
            at = nodes.first_child[at] + branch_of(nodes, at, value)
        if nodes.kind[at] != _LEAF:
            search.path[depth] = at
            search.first[depth] = int(rng.random() * nodes.n_children[at])
            search.tried[depth] = 0
            search.phase[depth] = 0 if right < 0 else 1
            depth += 1
        elif right < 0:
            right, at = at, other
            continue
        else:
            pairs += 1
            a, b = leaves.units[leaves.row_of[right]], leaves.units[leaves.row_of[at]]
            for k in range(len(a)):
                if a[k] != b[k]:
                    result = _SHOWN
            if result != _SHOWN and pairs >= budget:
                result = _GIVEN_UP
            if result != _NEVER_SHOWN:
                break
        depth, at, right = _next_branch(nodes, box, columns.nominal, search, begin, depth, right)
        if depth == begin:
            break
    fill(box, columns, row, f, value, rng)
    while depth > begin:
        depth -= 1
        above = search.path[depth]
        n = nodes.n_children[above]
        leave(nodes, box, above, (search.first[depth] + search.tried[depth] - 1) % n, depth)
    return result


@kernel
def _next_branch(
    nodes: Any, box: Any, nominal: Any, search: Any, begin: int, depth: int, right: int
) -> tuple[int, int, int]:
    """Enter the next possible branch of the deepest open node; depth `begin` = none is left."""
    while depth > begin:
        d = depth - 1
        above = search.path[d]
        n = nodes.n_children[above]
        if search.tried[d] > 0:
            leave(nodes, box, above, (search.first[d] + search.tried[d] - 1) % n, d)
        if search.phase[d] == 0:
            right = -1
        while search.tried[d] < n:
            branch = (search.first[d] + search.tried[d]) % n
            search.tried[d] += 1
            enter(nodes, box, above, branch, d)
            if possible(box, nominal, nodes.feature[above]):
                return depth, nodes.first_child[above] + branch, right
            leave(nodes, box, above, branch, d)
        depth -= 1
    return depth, -1, right
