"""Growing one tree: the loop over nodes, and the moving of rows.

No recursion; depth and rows are bounded by memory alone (row numbers are
uint32).  Depth-first by a stack, or best-first by a heap when the number of
leaves is bounded.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel
from treekit.kernels.node import Node, Rows

__all__ = ["Grown", "grow"]


class Grown(NamedTuple):
    """A grown tree of n nodes; arrays may be longer than n.

    `begin`, `end` are the node's slice of the training rows, `held_begin`,
    `held_end` of the held-out ones; `cut`, `after` as in `find_axis`.
    `stats`, `held_stats`: (n, S).
    """

    n: int
    kind: npt.NDArray[np.uint8]
    feature: npt.NDArray[np.int32]
    cut: npt.NDArray[np.int64]
    after: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float64]
    first_child: npt.NDArray[np.int32]
    n_children: npt.NDArray[np.int32]
    missing: npt.NDArray[np.int32]
    level_start: npt.NDArray[np.int64]
    n_levels: npt.NDArray[np.int64]
    level_branch: npt.NDArray[np.int32]
    stats: npt.NDArray[np.float64]
    held_stats: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]
    gain: npt.NDArray[np.float64]
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    held_begin: npt.NDArray[np.int64]
    held_end: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int32]
    priority: npt.NDArray[np.float64]


@kernel
def _resized(array, size):
    longer = np.zeros(size, array.dtype)
    longer[: len(array)] = array
    return longer


@kernel
def _resized_rows(array, size):
    longer = np.zeros((size, array.shape[1]), array.dtype)
    longer[: len(array)] = array
    return longer


@kernel
def _empty(capacity, s):
    i64 = np.int64
    return Grown(
        0,
        np.zeros(capacity, np.uint8),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, i64),
        np.zeros(capacity, i64),
        np.zeros(capacity, np.float64),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, i64),
        np.zeros(capacity, i64),
        np.zeros(16, np.int32),
        np.zeros((capacity, s), np.float64),
        np.zeros((capacity, s), np.float64),
        np.zeros(capacity, np.float64),
        np.zeros(capacity, np.float64),
        np.zeros(capacity, i64),
        np.zeros(capacity, i64),
        np.zeros(capacity, i64),
        np.zeros(capacity, i64),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.float64),
    )


@kernel
def _with_room(g, n, nodes, levels):
    """The same tree, n nodes, with room for `nodes` more and `levels` more level entries."""
    capacity = len(g.kind)
    pool = len(g.level_branch)
    if n + nodes > capacity:
        capacity = max(2 * capacity, n + nodes)
    if levels > pool:
        pool = max(2 * pool, levels)
    if capacity == len(g.kind) and pool == len(g.level_branch):
        return g
    branch = g.level_branch
    if pool > len(branch):
        branch = _resized(branch, pool)
    if capacity == len(g.kind):
        return Grown(
            n, g.kind, g.feature, g.cut, g.after, g.threshold, g.first_child, g.n_children, g.missing,
            g.level_start, g.n_levels, branch, g.stats, g.held_stats, g.weight, g.gain, g.begin,
            g.end, g.held_begin, g.held_end, g.depth, g.priority,
        )
    c = capacity
    return Grown(
        n, _resized(g.kind, c), _resized(g.feature, c), _resized(g.cut, c),
        _resized(g.after, c), _resized(g.threshold, c), _resized(g.first_child, c), _resized(g.n_children, c),
        _resized(g.missing, c), _resized(g.level_start, c), _resized(g.n_levels, c), branch,
        _resized_rows(g.stats, c), _resized_rows(g.held_stats, c), _resized(g.weight, c),
        _resized(g.gain, c), _resized(g.begin, c), _resized(g.end, c), _resized(g.held_begin, c),
        _resized(g.held_end, c), _resized(g.depth, c), _resized(g.priority, c),
    )


@kernel
def _total(rows, begin, end, stats):
    """Sum of the statistics of rows[begin:end] into `stats`."""
    for k in range(np.uint64(len(stats))):
        stats[k] = 0.0
    if len(rows.cells) > 0:
        for i in range(np.uint64(begin), np.uint64(end)):
            stats[np.uint64(rows.cells[i])] += rows.values[i, np.uint64(0)]
    else:
        for i in range(np.uint64(begin), np.uint64(end)):
            for k in range(np.uint64(rows.values.shape[1])):
                stats[k] += rows.values[i, k]


@kernel
def _is_pure(rows, begin, end, stats):
    """All rows alike: one cell, or proportional dense statistics."""
    if len(rows.cells) > 0:
        occupied = 0
        for k in range(np.uint64(len(stats))):
            occupied += 1 if stats[k] > 0.0 else 0
        return occupied <= 1
    first = np.uint64(begin)
    for i in range(np.uint64(begin) + np.uint64(1), np.uint64(end)):
        for k in range(np.uint64(1), np.uint64(rows.values.shape[1])):
            here = rows.values[i, k] * rows.values[first, np.uint64(0)]
            if here != rows.values[first, k] * rows.values[i, np.uint64(0)]:
                return False
    return True


@kernel
def _branch_of(g, node, code, n_codes):
    if code == n_codes:
        return np.int64(g.missing[node])
    kind = g.kind[node]
    if kind == 1:
        return np.int64(0) if np.int64(code) <= g.cut[node] else np.int64(1)
    if kind == 4:
        return np.int64(1)
    branch = g.level_branch[np.uint64(g.level_start[node]) + np.uint64(code)]
    return np.int64(branch) if branch >= 0 else np.int64(g.missing[node])


@kernel
def _partition(table, g, node, rows, begin, end, scratch, ends):
    """Move rows[begin:end] into branch order, stable; ``ends[b]`` = end of branch b."""
    feature = np.uint64(g.feature[node])
    codes = table.codes[feature]
    n_codes = np.uint32(table.n_codes[feature])
    branches = np.uint64(g.n_children[node])
    width = np.uint64(rows.values.shape[1])
    has_cells = len(rows.cells) > 0
    b0, b1 = np.uint64(begin), np.uint64(end)
    for b in range(branches):
        ends[b] = 0
    for i in range(b0, b1):
        branch = np.uint64(_branch_of(g, node, np.uint32(codes[rows.ids[i]]), n_codes))
        scratch.order[i - b0] = np.uint32(branch)
        ends[branch] += 1
    at = np.int64(0)
    for b in range(branches):
        size = ends[b]
        ends[b] = at
        at += size
    for i in range(b0, b1):
        branch = np.uint64(scratch.order[i - b0])
        to = np.uint64(ends[branch])
        ends[branch] += 1
        scratch.ids2[to] = rows.ids[i]
        if has_cells:
            scratch.cells2[to] = rows.cells[i]
        for k in range(width):
            scratch.values2[to, k] = rows.values[i, k]
    for i in range(b1 - b0):
        to = b0 + i
        rows.ids[to] = scratch.ids2[i]
        if has_cells:
            rows.cells[to] = scratch.cells2[i]
        for k in range(width):
            rows.values[to, k] = scratch.values2[i, k]
    for b in range(branches):
        ends[b] += begin


@kernel
def _sift_up(heap, size, priority):
    at = size - 1
    while at > 0:
        above = (at - 1) // 2
        if not _before(priority, heap[at], heap[above]):
            break
        heap[at], heap[above] = heap[above], heap[at]
        at = above


@kernel
def _sift_down(heap, size, priority):
    at = 0
    while True:
        best = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size and _before(priority, heap[child], heap[best]):
                best = child
        if best == at:
            return
        heap[at], heap[best] = heap[best], heap[at]
        at = best


@kernel
def _before(priority, a, b):
    """Larger priority first; equal ones in the order in which they were made."""
    return priority[a] > priority[b] or (priority[a] == priority[b] and a < b)


@kernel
def _evaluate(
    table, rows, g, node, limits, find, scan, many, key, choose, n_keys, use_choose,
    score, impurity, rng, scratch, out, numbers,
):
    """Find the split of `node` into `out` and `numbers`; ``out[0]`` 0 = stays a leaf."""
    out[0] = 0
    begin, end = g.begin[node], g.end[node]
    weight = g.weight[node]
    if (
        (limits.max_depth >= 0 and g.depth[node] >= limits.max_depth)
        or weight < limits.min_weight_split
        or weight < 2.0 * limits.min_weight_leaf
        or end - begin < 2
        or _is_pure(rows, begin, end, g.stats[node])
    ):
        return
    own = impurity(g.stats[node])
    view = Rows(rows.ids[begin:end], rows.cells[begin:end], rows.values[begin:end])
    if len(rows.cells) == 0:
        view = Rows(rows.ids[begin:end], rows.cells, rows.values[begin:end])
    it = Node(
        table, view, g.stats[node], weight, own, np.int64(g.depth[node]),
        limits.min_weight_leaf, limits.n_try, scratch,
    )
    find(it, scan, many, key, choose, n_keys, use_choose, score, rng, out, numbers)
    if out[0] > 0 and not numbers[1] > max(limits.min_gain, 1e-12 * own):
        out[0] = 0


@kernel
def _record(table, g, node, out, numbers, scratch, used):
    """Write the found split into the tree; returns level entries in use."""
    g.kind[node] = out[0]
    g.feature[node] = out[1]
    g.cut[node] = out[2]
    g.after[node] = out[6]
    g.missing[node] = out[3]
    g.n_children[node] = out[4]
    g.level_start[node] = used
    g.n_levels[node] = out[5]
    g.gain[node] = numbers[1]
    g.threshold[node] = numbers[0]
    for level in range(np.uint64(out[5])):
        g.level_branch[np.uint64(used) + level] = scratch.best_levels[level]
    return used + out[5]


@kernel
def _undo(g, node):
    """Make a node a leaf again."""
    g.kind[node] = 0
    g.n_children[node] = 0
    g.n_levels[node] = 0
    g.gain[node] = 0.0


@kernel
def _open(g, n, node, rows, held, ends, held_ends):
    """Make the children of `node`, numbered from n, with their rows and statistics."""
    begin, held_begin = g.begin[node], g.held_begin[node]
    for b in range(np.int64(g.n_children[node])):
        child = n + b
        g.begin[child], g.end[child] = begin, ends[b]
        g.held_begin[child], g.held_end[child] = held_begin, held_ends[b]
        begin, held_begin = ends[b], held_ends[b]
        g.depth[child] = g.depth[node] + 1
        _close(g, child, rows, held)


@kernel
def _close(g, node, rows, held):
    """Statistics and weight of a node whose rows are in place."""
    _total(rows, g.begin[node], g.end[node], g.stats[node])
    _total(held, g.held_begin[node], g.held_end[node], g.held_stats[node])
    weight = 0.0
    if len(rows.cells) > 0:
        for k in range(np.uint64(g.stats.shape[1])):
            weight += g.stats[node, k]
    else:
        weight = g.stats[node, 0]
    g.weight[node] = weight
    g.kind[node] = 0
    g.n_children[node] = 0
    g.gain[node] = 0.0


@kernel
def grow(
    table, rows, held, s, limits, find, scan, many, key, choose, n_keys, use_choose,
    score, impurity, priority, use_priority, before, use_before, rng, scratch,
):
    """Grow one tree; `rows` and `held` are permuted into leaf order.

    Returns ``(Grown, status)``: status 0, or 1 = the criterion gave NaN
    (its statistics are in ``scratch.best``), 2 = a splitter named an
    impossible split.
    """
    g = _empty(64, s)
    n = 1
    used = 0
    out = np.zeros(7, np.int64)
    numbers = np.zeros(2, np.float64)
    ends = np.zeros(2, np.int64)
    held_ends = np.zeros(2, np.int64)
    waiting = np.zeros(64, np.int64)
    best_first = limits.max_leaves > 0
    g.end[0], g.held_end[0] = len(rows.ids), len(held.ids)
    _close(g, 0, rows, held)
    waiting[0] = 0
    n_waiting = 1
    leaves = 1
    if best_first:
        _evaluate(
            table, rows, g, 0, limits, find, scan, many, key, choose, n_keys, use_choose,
            score, impurity, rng, scratch, out, numbers,
        )
        if out[0] < 0:
            return g, 1
        if out[0] == 0:
            n_waiting = 0
        else:
            g = _with_room(g, n, 0, used + out[5])
            used = _record(table, g, 0, out, numbers, scratch, used)
    while n_waiting > 0:
        if best_first:
            node = waiting[0]
            n_waiting -= 1
            waiting[0] = waiting[n_waiting]
            _sift_down(waiting, n_waiting, g.priority)
        else:
            n_waiting -= 1
            node = waiting[n_waiting]
            _evaluate(
                table, rows, g, node, limits, find, scan, many, key, choose, n_keys, use_choose,
                score, impurity, rng, scratch, out, numbers,
            )
            if out[0] < 0:
                return g, 1
            if out[0] == 0:
                continue
            g = _with_room(g, n, 0, used + out[5])
            used = _record(table, g, node, out, numbers, scratch, used)
        branches = np.int64(g.n_children[node])
        if best_first and leaves + branches - 1 > limits.max_leaves:
            _undo(g, node)
            continue
        if branches > len(ends):
            ends = np.zeros(2 * branches, np.int64)
            held_ends = np.zeros(2 * branches, np.int64)
        _partition(table, g, node, rows, g.begin[node], g.end[node], scratch, ends)
        _partition(table, g, node, held, g.held_begin[node], g.held_end[node], scratch, held_ends)
        g = _with_room(g, n, branches, 0)
        _open(g, n, node, rows, held, ends, held_ends)
        refused = False
        for b in range(branches):
            if g.end[n + b] == g.begin[n + b] and g.kind[node] != 3:
                return g, 2
        if use_before:
            refused = not before(
                g.stats[node], g.stats[n : n + branches],
                g.held_stats[node], g.held_stats[n : n + branches],
            )
        if refused:
            _undo(g, node)
            continue
        g.first_child[node] = n
        first, n = n, n + branches
        leaves += branches - 1
        if n_waiting + branches > len(waiting):
            waiting = _resized(waiting, 2 * (n_waiting + branches))
        for b in range(branches - 1, -1, -1):
            child = first + b
            if best_first:
                _evaluate(
                    table, rows, g, child, limits, find, scan, many, key, choose, n_keys,
                    use_choose, score, impurity, rng, scratch, out, numbers,
                )
                if out[0] < 0:
                    return g, 1
                if out[0] == 0:
                    continue
                g = _with_room(g, n, 0, used + out[5])
                used = _record(table, g, child, out, numbers, scratch, used)
                g.priority[child] = g.gain[child] * g.weight[child]
                if use_priority:
                    g.priority[child] = priority(g.stats[child])
            waiting[n_waiting] = child
            n_waiting += 1
            if best_first:
                _sift_up(waiting, n_waiting, g.priority)
    return (
        Grown(
            n, g.kind, g.feature, g.cut, g.after, g.threshold, g.first_child, g.n_children, g.missing,
            g.level_start, g.n_levels, g.level_branch, g.stats, g.held_stats, g.weight, g.gain,
            g.begin, g.end, g.held_begin, g.held_end, g.depth, g.priority,
        ),
        0,
    )
