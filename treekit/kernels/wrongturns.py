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

from treekit.kernels.boxes import enter, has_known, leave, possible
from treekit.kernels.compile import kernel

__all__ = ["Probing", "branch_of", "fill", "number_in", "telling_row"]

# Numbers of `treekit.model.tree.Split`, which compiled code cannot read.
_LEAF, _THRESHOLD, _MISSING = 0, 1, 4
_SHOWN, _NEVER_SHOWN, _GIVEN_UP = 0, 1, 2


class Probing(NamedTuple):
    """What to probe a tree with.

    Attributes
    ----------
    wanted : (nodes,) bool
        The nodes that get rows.
    place : (nodes,) int64
        A leaf's row of `units`; a wanted threshold's row of `around`.
    units : (leaves, outputs) int64
    around : (splits, candidates) float64
        The threshold, the next number of the input type above it, then other
        values around it; NaN = none.
    pool : (thresholds, 2) float64
        The thresholds of all trees, ascending in each column, and the next
        number of the input type above each.
    pool_start : (features + 1,) int64
    unseen : bool
        Whether a category outside the vocabulary is accepted, as missing.
    narrow : bool
        Whether numbers are rounded to float32.
    budget : int
        Pairs of leaves to compare before a search is given up.
    """

    wanted: Any
    place: Any
    units: Any
    around: Any
    pool: Any
    pool_start: Any
    unseen: Any
    narrow: Any
    budget: Any


@kernel
def number_in(probing: Any, f: int, low: float, high: float, rng: Any) -> float:
    """A number in ``(low, high]``, a threshold or the next number above one if there are any."""
    start, end = probing.pool_start[f], probing.pool_start[f + 1]
    thresholds = probing.pool[start:end, 0]
    first = np.searchsorted(thresholds, low, side="right")
    last = np.searchsorted(thresholds, high, side="right")
    if first < last:
        k = first + int(rng.random() * (last - first))
        if thresholds[k] < high and rng.random() < 0.5:
            return probing.pool[start + k, 1]
        return thresholds[k]
    if first > 0:  # nothing is asked above `low`
        return probing.pool[start + first - 1, 1]
    return np.floor(rng.random() * 7.0) - 3.0


@kernel
def fill(walk: Any, probing: Any, row: Any, fixed: int, value: float, rng: Any) -> None:
    """Choose a row of the box, column `fixed` at `value`."""
    for f in range(len(row)):
        column = walk.columns[f]
        if f == fixed:
            row[f] = value
        elif column.no_missing == 0 and (not has_known(column) or rng.random() < 0.1):
            row[f] = np.nan
        elif column.nominal:
            level = int(rng.random() * column.n_levels)
            while walk.barred[column.first_level + level] > 0:
                level = (level + 1) % column.n_levels
            row[f] = level
        else:
            row[f] = number_in(probing, f, column.low, column.high, rng)


@kernel
def branch_of(walk: Any, at: int, value: float) -> int:
    """The branch that `value` takes; it is a number of the input type, or a code."""
    node = walk.nodes[at]
    if node.kind == _MISSING:
        return 0 if np.isnan(value) else 1
    if node.kind == _THRESHOLD:
        if np.isnan(value):
            return node.missing
        return 0 if value <= node.threshold else 1
    if 0 <= value < node.n_levels:
        goes = walk.level_branch[node.level_start + int(value)]
        if goes >= 0:
            return goes
    return node.missing


@kernel
def telling_row(
    walk: Any, probing: Any, depth: int, node: int, value: float, wrong: int, row: Any, rng: Any
) -> int:
    """Fill `row` so that it reaches `node` with `value`, and branch `wrong` would show.

    Depth-first over the leaves below the right branch and, for each, those
    below the wrong one, within one box.  Nodes that ask the fixed column have
    no choice.  `depth` frames of the stack are in use and stay.
    """
    f = walk.nodes[node].feature
    first_child = walk.nodes[node].first_child
    at, right = first_child + branch_of(walk, node, value), np.int64(-1)
    top, pairs = depth, 0
    result = _NEVER_SHOWN
    while True:
        while walk.nodes[at].kind != _LEAF and walk.nodes[at].feature == f:
            at = walk.nodes[at].first_child + branch_of(walk, at, value)
        if walk.nodes[at].kind != _LEAF:
            frame = walk.stack[top]
            frame.node, frame.tried = at, 0
            frame.first = int(rng.random() * walk.nodes[at].n_children)
            frame.phase = 0 if right < 0 else 1
            top += 1
        elif right < 0:
            right, at = at, first_child + wrong
            continue
        else:
            pairs += 1
            a, b = probing.place[right], probing.place[at]
            for k in range(probing.units.shape[1]):
                if probing.units[a, k] != probing.units[b, k]:
                    result = _SHOWN
            if result != _SHOWN and pairs >= probing.budget:
                result = _GIVEN_UP
            if result != _NEVER_SHOWN:
                break
        top, at, right = _next_branch(walk, depth, top, right)
        if top == depth:
            break
    fill(walk, probing, row, f, value, rng)
    while top > depth:
        top -= 1
        _leave_frame(walk, top)
    return result


@kernel
def _leave_frame(walk: Any, depth: int) -> None:
    """Undo the branch that the frame tried last."""
    frame = walk.stack[depth]
    n = walk.nodes[frame.node].n_children
    leave(walk, frame.node, (frame.first + frame.tried - 1) % n, depth)


@kernel
def _next_branch(walk: Any, depth: int, top: int, right: int) -> tuple[int, int, int]:
    """Enter the next possible branch of the uppermost frame; ``top == depth`` if none is left."""
    while top > depth:
        frame = walk.stack[top - 1]
        node = walk.nodes[frame.node]
        if frame.tried > 0:
            _leave_frame(walk, top - 1)
        if frame.phase == 0:
            right = -1
        while frame.tried < node.n_children:
            branch = (frame.first + frame.tried) % node.n_children
            frame.tried += 1
            enter(walk, frame.node, branch, top - 1)
            if possible(walk.columns[node.feature]):
                return top, node.first_child + branch, right
            _leave_frame(walk, top - 1)
        top -= 1
    return top, -1, right
