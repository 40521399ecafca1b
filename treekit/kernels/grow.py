"""Growing one tree: the loop over nodes, and the moving of rows.

No recursion; depth and rows are bounded by memory alone (row numbers are
uint32).  Depth-first by a stack, or best-first by a heap when the number of
leaves is bounded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.node import Node, Rows, Scratch, Table
from treekit.kernels.pointers import borrowed

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


@inlined
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


@inlined
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


@inlined
def _partition(table, g, node, rows, begin, end, scratch, ends):
    """Move rows[begin:end] into branch order, stable; ``ends[b]`` = end of branch b."""
    feature = np.uint64(g.feature[node])
    missing = np.int64(g.missing[node])
    n_codes = np.int64(table.n_codes[feature])
    if g.n_children[node] == 2:
        cut = g.cut[node]
        levels = g.level_branch[g.level_start[node] : g.level_start[node] + g.n_levels[node]]
        if g.kind[node] == 4:
            cut = np.int64(-1)  # every known code to the right
        _partition_two(
            table.codes[feature], n_codes, cut, missing, levels, rows.ids, rows.cells,
            rows.values, begin, end, scratch.ids2, scratch.cells2, scratch.values2, ends,
        )
        return
    levels = g.level_branch[g.level_start[node] : g.level_start[node] + g.n_levels[node]]
    _partition_many(
        table.codes[feature], n_codes, missing, levels, np.int64(g.n_children[node]), rows.ids,
        rows.cells, rows.values, begin, end, scratch.order, scratch.ids2, scratch.cells2,
        scratch.values2, ends,
    )


@kernel
def _partition_two(
    codes, n_codes, cut, missing, levels, ids, cells, values, begin, end,
    ids2, cells2, values2, ends,
):
    """Left rows move down in place, right rows through a buffer; no branches taken."""
    one = np.uint64(1)
    width = np.uint64(values.shape[1])
    has_cells = len(cells) > 0
    by_level = len(levels) > 0
    left = np.uint64(begin)
    right = np.uint64(0)
    for i in range(np.uint64(begin), np.uint64(end)):
        row = ids[i]
        code = np.int64(codes[row])
        side = np.int64(code > cut)
        if by_level:
            side = np.int64(levels[np.uint64(min(code, n_codes - 1))])
            side = side if side >= 0 else missing
        goes_right = np.uint64(missing if code == n_codes else side)
        ids2[right] = row
        ids[left] = row
        if has_cells:
            cell = cells[i]
            cells2[right] = cell
            cells[left] = cell
            value = values[i, np.uint64(0)]
            values2[right, np.uint64(0)] = value
            values[left, np.uint64(0)] = value
        else:
            for k in range(width):
                value = values[i, k]
                values2[right, k] = value
                values[left, k] = value
        right += goes_right
        left += one - goes_right
    for j in range(right):
        ids[left + j] = ids2[j]
        if has_cells:
            cells[left + j] = cells2[j]
        for k in range(width):
            values[left + j, k] = values2[j, k]
    ends[0] = np.int64(left)
    ends[1] = end


@kernel
def _partition_many(
    codes, n_codes, missing, levels, branches, ids, cells, values, begin, end,
    branch_of, ids2, cells2, values2, ends,
):
    """A counting sort by branch."""
    width = np.uint64(values.shape[1])
    has_cells = len(cells) > 0
    b0, size = np.uint64(begin), np.uint64(end - begin)
    for b in range(np.uint64(branches)):
        ends[b] = 0
    for i in range(size):
        code = np.int64(codes[ids[b0 + i]])
        branch = missing
        if code < n_codes and levels[np.uint64(code)] >= 0:
            branch = np.int64(levels[np.uint64(code)])
        branch_of[i] = np.uint32(branch)
        ends[np.uint64(branch)] += 1
    at = np.int64(0)
    for b in range(np.uint64(branches)):
        count = ends[b]
        ends[b] = at
        at += count
    for i in range(size):
        branch = np.uint64(branch_of[i])
        to = np.uint64(ends[branch])
        ends[branch] += 1
        ids2[to] = ids[b0 + i]
        if has_cells:
            cells2[to] = cells[b0 + i]
        for k in range(width):
            values2[to, k] = values[b0 + i, k]
    for i in range(size):
        ids[b0 + i] = ids2[i]
        if has_cells:
            cells[b0 + i] = cells2[i]
        for k in range(width):
            values[b0 + i, k] = values2[i, k]
    for b in range(np.uint64(branches)):
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


@inlined
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


@inlined
def _record(g, node, out, numbers, scratch, used):
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


@inlined
def _undo(g, node):
    """Make a node a leaf again."""
    g.kind[node] = 0
    g.n_children[node] = 0
    g.n_levels[node] = 0
    g.gain[node] = 0.0


@inlined
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


@inlined
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

    Every node is evaluated when it is made; those with a split wait, on a
    stack or (`max_leaves`) on a heap, to be opened.

    Returns ``(Grown, status)``: status 0, or 1 = the criterion gave NaN
    (its statistics are in ``scratch.best``), 2 = a splitter named an
    impossible split.
    """
    table = Table(
        borrowed(table.codes), borrowed(table.n_codes), borrowed(table.nominal),
        borrowed(table.value_start), borrowed(table.low), borrowed(table.high),
    )
    rows = Rows(borrowed(rows.ids), borrowed(rows.cells), borrowed(rows.values))
    scratch = _borrowed_scratch(scratch)
    g = _empty(64, s)
    n, fresh, used, leaves = 1, 0, 0, 1
    out = np.zeros(7, np.int64)
    numbers = np.zeros(2, np.float64)
    ends = np.zeros(2, np.int64)
    held_ends = np.zeros(2, np.int64)
    waiting = np.zeros(64, np.int64)
    n_waiting = 0
    best_first = limits.max_leaves > 0
    g.end[0], g.held_end[0] = len(rows.ids), len(held.ids)
    _close(g, 0, rows, held)
    while True:
        for node in range(fresh, n):
            _evaluate(
                table, rows, g, node, limits, find, scan, many, key, choose, n_keys, use_choose,
                score, impurity, rng, scratch, out, numbers,
            )
            if out[0] < 0:
                return g, 1 if out[0] == -1 else 2
            if out[0] == 0:
                continue
            if used + out[5] > len(g.level_branch):
                g = _with_room(g, n, 0, used + out[5])
            used = _record(g, node, out, numbers, scratch, used)
            if n_waiting == len(waiting):
                waiting = _resized(waiting, 2 * n_waiting)
            waiting[n_waiting] = node
            n_waiting += 1
            if best_first:
                g.priority[node] = g.gain[node] * g.weight[node]
                if use_priority:
                    g.priority[node] = priority(g.stats[node])
                _sift_up(waiting, n_waiting, g.priority)
        fresh = n
        if n_waiting == 0:
            break
        n_waiting -= 1
        node = waiting[n_waiting]
        if best_first:
            node, waiting[0] = waiting[0], node
            _sift_down(waiting, n_waiting, g.priority)
        branches = np.int64(g.n_children[node])
        if best_first and leaves + branches - 1 > limits.max_leaves:
            _undo(g, node)
            continue
        if branches > len(ends):
            ends = np.zeros(2 * branches, np.int64)
            held_ends = np.zeros(2 * branches, np.int64)
        if n + branches > len(g.kind):
            g = _with_room(g, n, branches, 0)
        _partition(table, g, node, rows, g.begin[node], g.end[node], scratch, ends)
        if len(held.ids) > 0:
            _partition(
                table, g, node, held, g.held_begin[node], g.held_end[node], scratch, held_ends
            )
        else:
            held_ends[:branches] = 0
        _open(g, n, node, rows, held, ends, held_ends)
        for b in range(branches):
            if g.end[n + b] == g.begin[n + b] and g.kind[node] != 3:
                return g, 2
        if use_before and not before(
            g.stats[node], g.stats[n : n + branches],
            g.held_stats[node], g.held_stats[n : n + branches],
        ):
            _undo(g, node)
            continue
        g.first_child[node] = n
        n += branches
        leaves += branches - 1
    return (
        Grown(
            n, g.kind, g.feature, g.cut, g.after, g.threshold, g.first_child, g.n_children,
            g.missing, g.level_start, g.n_levels, g.level_branch, g.stats, g.held_stats, g.weight,
            g.gain, g.begin, g.end, g.held_begin, g.held_end, g.depth, g.priority,
        ),
        0,
    )


@inlined
def _borrowed_scratch(x):
    return Scratch(
        borrowed(x.features), borrowed(x.codes), borrowed(x.order), borrowed(x.order2),
        borrowed(x.counts), borrowed(x.words), borrowed(x.compact), borrowed(x.sorted),
        borrowed(x.flat), borrowed(x.start), borrowed(x.pair), borrowed(x.code_of),
        borrowed(x.keys), borrowed(x.best), borrowed(x.levels), borrowed(x.best_levels),
        borrowed(x.ids2), borrowed(x.cells2), borrowed(x.values2), borrowed(x.feature_score),
        borrowed(x.feature_gain),
    )
