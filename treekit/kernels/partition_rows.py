"""Partition rows: each node owns a slice of them, in the order of its branches.

Also: copies of arrays with more room, because numba cannot resize arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import inlined, kernel, llvm_inlined
from treekit.kernels.function_pointers import borrow_arrays
from treekit.kernels.quantile_statistics import summarise_held_out_rows, summarise_rows
from treekit.kernels.records import Column, Rows

# ---------------------------------------------------------------- complete rows


@kernel
def take_rows(ids, repeats, cells, values, out):
    """Copy those of the rows `ids` (n,) uint32 whose weight is positive; return their number.

    `repeats` (n,) float64 multiply the `values` of rows; if empty, they are 1.  `out` has room
    for n rows.
    """
    n = np.uint64(0)
    for k in range(np.uint64(len(ids))):
        i = np.uint64(ids[k])
        times = 1.0
        if len(repeats) > 0:
            times = repeats[k]
        out.ids[n] = ids[k]
        if len(cells) > 0:
            out.cells[n] = cells[i]
        for j in range(np.uint64(values.shape[1])):
            out.values[n, j] = values[i, j] * times
        # No branch: whether a row is in a bag cannot be predicted.
        n += np.uint64(out.values[n, np.uint64(0)] > 0.0)
    return n


@kernel
def sum_rows(rows, begin, end, stats, quantile):
    """Sum the statistics of rows[begin:end] into `stats` (S,); return their weight.

    If `quantile` is not None, the statistics are those of
    `treekit.kernels.quantile_statistics`.
    """
    cells, values = rows.cells, rows.values
    if quantile is not None:
        return summarise_rows(values, None, begin, end, quantile, stats)
    zero = np.uint64(0)
    s = np.uint64(len(stats))
    for k in range(s):
        stats[k] = 0.0
    if len(cells) > 0:
        for i in range(np.uint64(begin), np.uint64(end)):
            stats[np.uint64(cells[i])] += values[i, zero]
        weight = 0.0
        for k in range(s):
            weight += stats[k]
        return weight
    if values.shape[1] == len(stats):  # false for a cell target without rows
        for i in range(np.uint64(begin), np.uint64(end)):
            for k in range(s):
                stats[k] += values[i, k]
    return stats[zero]


@kernel
def sum_held_out_rows(rows, begin, end, train_stats, stats, quantile):
    """Sum the statistics of held-out rows; for a rank target, about the training rows' quantile.

    `train_stats` (S,) are the statistics of the training rows.
    """
    if quantile is not None:
        summarise_held_out_rows(rows.values, begin, end, train_stats[np.uint64(1)], stats)
    else:
        sum_rows(rows, begin, end, stats, quantile)


@kernel
def compute_variance(values, begin, end, stats):
    """Compute the mean squared error of a target, from dense rows[begin:end] with sums `stats`.

    With several targets it is their mean.  Deviations are squared, because the
    difference of sums of squares would cancel at large means.
    """
    zero, one = np.uint64(0), np.uint64(1)
    cells = np.uint64(len(stats))
    squares = 0.0
    for k in range(one, cells):
        mean = stats[k] / stats[zero]
        for i in range(np.uint64(begin), np.uint64(end)):
            weight = values[i, zero]
            distance = values[i, k] / weight - mean
            squares += weight * distance * distance
    return squares / stats[zero] / np.float64(cells - one)


class Route(NamedTuple):
    """How the rows of a node reach its branches.

    Attributes
    ----------
    column : Column
        Codes of the split feature.
    cut : int
        Codes up to it go to branch 0, unless `levels` is given.
    missing : int
        Branch of missing values.
    levels : (levels,) int32
        Branch of each code, -1 = the missing branch; empty for thresholds.
    """

    column: Column
    cut: int
    missing: int
    levels: npt.NDArray[np.int32]


@llvm_inlined
def find_branch(route, row):
    """Return the branch of a row; -1 if its value is missing or of a category without a branch."""
    column = route.column
    code = np.int64(column.codes[column.first + np.uint64(row) * column.step])
    if code >= np.int64(column.n_codes):
        return np.int64(-1)
    if len(route.levels) > 0:
        return np.int64(route.levels[np.uint64(code)])
    return np.int64(code > route.cut)


@llvm_inlined
def copy_row(source, i, target, to):
    """Copy row `i` of `source` to row `to` of `target`."""
    target.ids[to] = source.ids[i]
    if len(source.cells) > 0:
        target.cells[to] = source.cells[i]
        target.values[to, np.uint64(0)] = source.values[i, np.uint64(0)]
        return
    for k in range(np.uint64(source.values.shape[1])):
        target.values[to, k] = source.values[i, k]


@inlined
def copy_slice(source, begin, end, target, to):
    """Copy rows[begin:end] of `source` to those of `target` from `to` on."""
    source, target = borrow_arrays(source), borrow_arrays(target)
    for i in range(np.uint64(end - begin)):
        copy_row(source, np.uint64(begin) + i, target, np.uint64(to) + i)


@kernel
def partition_rows(route, branches, rows, begin, end, branch_of, spare, offsets):
    """Reorder rows[begin:end] by branch, stably; branch b is rows[offsets[b]:offsets[b + 1]].

    Parameters
    ----------
    route : Route
    branch_of : (rows,) uint32
    spare : Rows
        Working memory.
    """
    route, rows, spare = borrow_arrays(route), borrow_arrays(rows), borrow_arrays(spare)
    if branches == 2:
        _partition_in_two(route, rows, begin, end, spare, offsets)
        return
    assign_branches(route, route.missing, rows.ids, begin, end, branch_of)
    distribute_rows(branch_of, branches, None, None, rows, begin, end, spare, offsets)
    copy_slice(spare, 0, end - begin, rows, begin)
    for b in range(np.uint64(branches + 1)):
        offsets[b] += begin


@inlined
def _partition_in_two(route, rows, begin, end, spare, offsets):
    """Move left rows down in place and right rows through a buffer, branch-free."""
    zero, one = np.uint64(0), np.uint64(1)
    codes, first, step, n_codes = route.column
    cut, missing, levels = route.cut, route.missing, route.levels
    ids, cells, values = rows
    ids2, cells2, values2 = spare
    has_cells, by_level, lost = len(cells) > 0, len(levels) > 0, np.int64(n_codes)
    left, right = np.uint64(begin), zero
    for i in range(np.uint64(begin), np.uint64(end)):
        row = ids[i]
        code = np.int64(codes[first + np.uint64(row) * step])
        side = np.int64(code > cut)
        if by_level:
            side = np.int64(levels[np.uint64(min(code, lost - 1))])
            side = side if side >= 0 else missing
        goes_right = np.uint64(missing if code == lost else side)
        ids2[right] = ids[left] = row
        if has_cells:
            cells2[right] = cells[left] = cells[i]
            values2[right, zero] = values[left, zero] = values[i, zero]
        else:
            for k in range(np.uint64(values.shape[1])):
                values2[right, k] = values[left, k] = values[i, k]
        right += goes_right
        left += one - goes_right
    for j in range(right):
        copy_row(spare, j, rows, left + j)
    offsets[0], offsets[1], offsets[2] = begin, np.int64(left), end


@kernel
def extend_array(array, size):
    """Return a copy of a (n,) array with room for `size` entries; the rest is uninitialised."""
    copy = np.empty(size, array.dtype)
    for i in range(np.uint64(len(array))):
        copy[i] = array[i]
    return copy


@kernel
def extend_rows(array, size):
    """Return a copy of a (n, columns) array with room for `size` rows, as `extend_array`."""
    copy = np.empty((size, array.shape[1]), array.dtype)
    for i in range(np.uint64(len(array))):
        for k in range(np.uint64(array.shape[1])):
            copy[i, k] = array[i, k]
    return copy


@kernel
def copy_rows(rows):
    """Return rows with arrays of their own."""
    return Rows(rows.ids.copy(), rows.cells.copy(), rows.values.copy())


@kernel
def reserve_rows(rows, size):
    """Return rows with room for at least `size`; twice as many if they are copied."""
    if size <= len(rows.ids):
        return rows
    cells = rows.cells if len(rows.cells) == 0 else extend_array(rows.cells, 2 * size)
    return Rows(extend_array(rows.ids, 2 * size), cells, extend_rows(rows.values, 2 * size))


# ---------------------------------------------------------------- fractional instances
# Rows whose value is missing go down every branch, each part with its share of the weight.
#
# Quinlan 1993, *C4.5*, section 3.2.  Parts are multiples of the fixed-point step of the
# statistics, so that they add up to the row exactly, as do all sums of a tree: with
# C the cumulative shares of the branches, branch b gets
# ``floor(w * C[b + 1]) - floor(w * C[b])`` steps.
#
# Rows multiply.  A node's children are gathered in spare arrays, then written
# back: over the node itself, which is the last slice in depth-first growth, or
# else to the end, where unused slices are squeezed out before more memory is
# allocated.


@inlined
def assign_branches(route, missing, ids, begin, end, branch_of):
    """Write the branch of each of the rows ``ids[begin:end]``.

    `missing` is the branch of rows with a missing value; it may be the number of branches,
    which marks rows that go down all of them.
    """
    route = borrow_arrays(route)
    for i in range(np.uint64(end - begin)):
        branch = find_branch(route, ids[np.uint64(begin) + i])
        branch_of[i] = np.uint32(branch if branch >= 0 else missing)


@kernel
def compute_cumulative_shares(branch_of, values, begin, end, upto):
    """Compute the cumulative shares of the branches in the known weight of rows[begin:end].

    They are written to ``upto`` (branches,) float64; the last is exactly 1.  If no row has
    a known value, all branches have equal shares.
    """
    branches = np.uint64(len(upto))
    for b in range(branches):
        upto[b] = 0.0
    for i in range(np.uint64(end - begin)):
        branch = np.uint64(branch_of[i])
        if branch < branches:
            upto[branch] += values[np.uint64(begin) + i, np.uint64(0)]
    total = 0.0
    for b in range(branches):
        total += upto[b]
        upto[b] = total
    for b in range(branches):
        upto[b] = upto[b] / total if total > 0.0 else np.float64(b + np.uint64(1)) / branches


@inlined
def _take_part(value, low, high, step):
    """Return the part of a statistic between two cumulative shares, an integer number of steps.

    The last part is the remainder, so that parts add up for any step.
    """
    n_steps = value / step
    above = n_steps if high >= 1.0 else np.floor(n_steps * high)
    return (above - np.floor(n_steps * low)) * step


@llvm_inlined
def distribute_rows(branch_of, branches, upto, steps, rows, begin, end, spare, offsets):
    """Gather the branches of rows[begin:end], one after the other, in spare rows.

    Parameters
    ----------
    branch_of : (rows,) uint32
        From `assign_branches`; `branches` = every branch.
    upto : (branches,) float64, or None
        Cumulative shares; None = no row goes down every branch.
    steps : (columns of values,) float64, or None
        Fixed-point step of each statistic; the first is the weight's.
    spare : Rows
        Filled from 0; replaced by longer ones if they are too short.
    offsets : (branches + 1 or more,) int64
        Output: the offsets of the branches in `spare`.

    Returns
    -------
    spare
        Without parts of weight 0.
    """
    zero, rows = np.uint64(0), borrow_arrays(rows)
    b0, size, ends = np.uint64(begin), np.uint64(end - begin), offsets[1:]
    for b in range(np.uint64(branches + 1)):
        offsets[b] = 0
    for i in range(size):
        branch = np.uint64(branch_of[i])
        if branch < np.uint64(branches):
            ends[branch] += 1
            continue
        if upto is not None:
            low = 0.0
            for b in range(np.uint64(branches)):
                if _take_part(rows.values[b0 + i, zero], low, upto[b], steps[zero]) > 0.0:
                    ends[b] += 1
                low = upto[b]
    at = np.int64(0)
    for b in range(np.uint64(branches)):
        count = ends[b]
        ends[b] = at
        at += count
    if upto is not None:
        spare = reserve_rows(spare, at)
    target = borrow_arrays(spare)
    for i in range(size):
        branch = np.uint64(branch_of[i])
        row = b0 + i
        if branch < np.uint64(branches):
            copy_row(rows, row, target, np.uint64(ends[branch]))
            ends[branch] += 1
            continue
        if upto is not None:
            low = 0.0
            for b in range(np.uint64(branches)):
                weight = _take_part(rows.values[row, zero], low, upto[b], steps[zero])
                if weight > 0.0:
                    to = np.uint64(ends[b])
                    ends[b] += 1
                    copy_row(rows, row, target, to)
                    target.values[to, zero] = weight
                    for k in range(np.uint64(1), np.uint64(len(steps))):
                        target.values[to, k] = _take_part(
                            rows.values[row, k], low, upto[b], steps[k]
                        )
                low = upto[b]
    return spare


class WaitingSlices(NamedTuple):
    """The slices of rows that stay in best-first growth, when a node's is replaced.

    Attributes
    ----------
    nodes : (capacity,) NODE
        Of `treekit.kernels.grow_tree`; slices are renumbered in place.
    waiting : (waiting nodes,) int64
    held_out : bool
        Whether the slices are those of the held-out rows.
    tops : (2,) int64
        First unused row after all slices of training and of held-out rows; -1: depth-first,
        the node's slice is the last one.
    """

    nodes: npt.NDArray[np.void]
    waiting: npt.NDArray[np.int64]
    held_out: bool
    tops: npt.NDArray[np.int64]


@kernel
def replace_by_children(branch_of, upto, steps, rows, begin, end, spare, offsets, slices):
    """Replace rows[begin:end] of a node by those of its children, side by side.

    Parameters
    ----------
    branch_of, upto, steps, spare
        See `distribute_rows`.
    offsets : (branches + 1 or more,) int64
        Output: the offsets of the branches in rows.
    slices : WaitingSlices

    Returns
    -------
    rows, spare
        Replaced by longer ones if they were too short.
    """
    branches = len(upto)
    spare = distribute_rows(branch_of, branches, upto, steps, rows, begin, end, spare, offsets)
    count = offsets[np.uint64(branches)]
    first = np.int64(begin)
    size = first + count
    top = slices.tops[np.uint64(slices.held_out)]
    if top >= 0:
        size = top + count
        if size > len(rows.ids):
            top = compact_slices(slices, rows)
            size = 2 * (top + count)  # leave half of it free: squeezing stays rare
        first = top
        slices.tops[np.uint64(slices.held_out)] = top + count
    rows = reserve_rows(rows, size)
    copy_slice(spare, 0, count, rows, first)
    for b in range(np.uint64(branches + 1)):
        offsets[b] += first
    return rows, spare


@kernel
def compact_slices(slices, rows):
    """Move the slices of the waiting nodes together; return the end of the last one."""
    nodes, waiting, held_out = slices.nodes, slices.waiting, slices.held_out
    begins = np.empty(len(waiting), np.int64)
    for j in range(np.uint64(len(waiting))):
        node = nodes[np.uint64(waiting[j])]
        begins[j] = node.held_begin if held_out else node.begin
    order = np.argsort(begins)
    at = np.int64(0)
    for j in range(np.uint64(len(waiting))):
        node = nodes[np.uint64(waiting[np.uint64(order[j])])]
        begin = node.held_begin if held_out else node.begin
        size = (node.held_end if held_out else node.end) - begin
        copy_slice(rows, begin, begin + size, rows, at)
        if held_out:
            node.held_begin, node.held_end = at, at + size
        else:
            node.begin, node.end = at, at + size
        at += size
    return at
