"""The loop that constructs rows which reach the nodes of a tree and turn each way."""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.kernels.boxes import enter, has_known, leave, possible
from treekit.kernels.compile import kernel
from treekit.kernels.wrongturns import branch_of, fill, number_in, telling_row

__all__ = ["MOST_WRONG_BRANCHES", "probe_rows"]

# Numbers of `treekit.model.tree.Split`, which compiled code cannot read.
_LEAF, _THRESHOLD = 0, 1
MOST_WRONG_BRANCHES = 8
"""So many wrong branches of a multiway split are told apart from the right one."""


@kernel
def _candidate(
    walk: Any, probing: Any, node: int, number: int, n_known: int, rng: Any
) -> tuple[bool, float]:
    """Whether a candidate can reach a split, and its value.

    Candidates are the levels, or the two numbers next to the threshold, or for
    MISSING splits any number; then missing, and an unseen category.
    """
    f = walk.nodes[node].feature
    column = walk.columns[f]
    known = column.no_known == 0
    if number == n_known:
        return column.no_missing == 0, np.nan
    if number > n_known:
        allowed = column.no_missing == 0 and column.nominal and probing.unseen
        return allowed, float(column.n_levels)
    if column.nominal:
        return known and walk.barred[column.first_level + number] == 0, float(number)
    if walk.nodes[node].kind == _THRESHOLD:
        value = probing.around[probing.place[node], number]
        return known and column.low < value <= column.high, value
    return has_known(column), number_in(probing, f, column.low, column.high, rng)


@kernel
def _probe_split(
    walk: Any, probing: Any, depth: int, node: int, rows: Any, count: int, tally: Any, rng: Any
) -> int:
    """Append rows that reach `node` and turn each way; returns how many rows there are."""
    split = walk.nodes[node]
    column = walk.columns[split.feature]
    at_threshold = split.kind == _THRESHOLD
    n_known = column.n_levels if column.nominal else 2 if at_threshold else 1
    n_wrong = max(1, min(split.n_children - 1, MOST_WRONG_BRANCHES))
    for number in range(n_known + 2):
        allowed, value = _candidate(walk, probing, node, number, n_known, rng)
        if not allowed:
            continue
        # An unseen category takes the missing branch of every node.
        meaning = np.nan if number >= n_known else value
        right = branch_of(walk, node, meaning)
        for step in range(1, n_wrong + 1):
            wrong = (right + step) % split.n_children
            row = rows[count]
            tally[telling_row(walk, probing, depth, node, meaning, wrong, row, rng)] += 1
            row[split.feature] = value
            count += 1
        if at_threshold and number < n_known:
            count = _around(walk, probing, node, right, rows, count)
    return count


@kernel
def _around(walk: Any, probing: Any, node: int, side: int, rows: Any, count: int) -> int:
    """Repeat the last row with the other values around the threshold on its `side`."""
    split = walk.nodes[node]
    column = walk.columns[split.feature]
    values = probing.around[probing.place[node]]
    base = count - 1
    for number in range(2, len(values)):
        x = values[number]
        rounded = np.float64(np.float32(x)) if probing.narrow else x
        inside = (rounded > column.low or column.low == -np.inf) and rounded <= column.high
        if inside and (rounded <= split.threshold) == (side == 0):
            for f in range(rows.shape[1]):
                rows[count, f] = rows[base, f]
            rows[count, split.feature] = x
            count += 1
    return count


@kernel
def _note(walk: Any, after: Any, at: int, can: Any) -> None:
    """Mark what inputs can do at a node that some input reaches."""
    can.node[at] = True
    node = walk.nodes[at]
    if node.kind == _LEAF:
        return
    column = walk.columns[node.feature]
    can.missing[at] = column.no_missing == 0
    if column.no_known > 0:
        return
    if node.kind == _THRESHOLD:
        can.at[at] = column.low < node.threshold <= column.high
        can.above[at] = column.low < after[at] <= column.high
    for level in range(node.n_levels):
        can.level[node.level_start + level] = walk.barred[column.first_level + level] == 0


@kernel
def probe_rows(
    walk: Any, probing: Any, after: Any, rows: Any, can: Any, tally: Any, rng: Any
) -> int:
    """Rows that reach the wanted nodes of one tree, and all that inputs can do in it.

    Parameters
    ----------
    walk : treekit.kernels.boxes.Walk
        At the root, and left there; room for three times the depth.
    probing : treekit.kernels.wrongturns.Probing
    after : (nodes,) float64
        The next number of the input type above each threshold.
    rows : (capacity, features) float64
        Output; the caller bounds what a node can need.
    can : treekit.kernels.coverage.Marks
        Output: what some input touches; all False before.
    tally : (3,) int64
        Output, added to: wrong turns that a row shows; that no row can show;
        and those for which the search was given up.
    rng : numpy.random.Generator

    Returns
    -------
    int
        Number of rows.
    """
    # A plain 0 is a type of its own to numba: what it is passed to compiles twice (measured).
    count, depth, node, none = np.int64(0), np.int64(0), np.int64(0), np.int64(-1)
    while node >= 0:
        _note(walk, after, node, can)
        if walk.nodes[node].kind != _LEAF:
            if probing.wanted[node]:
                count = _probe_split(walk, probing, depth, node, rows, count, tally, rng)
            walk.stack[depth].node, walk.stack[depth].tried = node, -1
            depth += 1
        elif probing.wanted[node]:
            fill(walk, probing, rows[count], none, 0.0, rng)
            count += 1
        # The next branch that an input can take, here or further up.
        node = none
        while depth > 0 and node < 0:
            frame = walk.stack[depth - 1]
            above = walk.nodes[frame.node]
            if frame.tried >= 0:
                leave(walk, frame.node, frame.tried, depth - 1)
            frame.tried += 1
            if frame.tried == above.n_children:
                depth -= 1
                continue
            enter(walk, frame.node, frame.tried, depth - 1)
            if possible(walk.columns[above.feature]):
                node = above.first_child + frame.tried
    return count
