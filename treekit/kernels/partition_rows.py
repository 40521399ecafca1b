"""Partition rows: each node owns a slice of them, in the order of its branches.

Also: copies of arrays with more room, because numba cannot resize arrays.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.quantile_statistics import summarise_held_out_rows, summarise_rows

# ---------------------------------------------------------------- complete rows


@kernel
def sum_rows(cells, values, begin, end, stats, quantile):
    """Sum the statistics of rows[begin:end] into `stats` (S,); return their weight.

    If `quantile` is not None, the statistics are those of
    `treekit.kernels.quantile_statistics`.
    """
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


@inlined
def sum_two_branches(cells, values, begin, ends, stats, node, first, nodes):
    """Compute statistics and weights of both branches of a node; `first` is the left one.

    Only the branch with fewer rows is summed.  Sums are exact, and so is the difference
    that remains for the other branch.
    """
    middle = ends[0]
    left, right = np.uint64(first), np.uint64(first) + np.uint64(1)
    if middle - begin <= ends[1] - middle:
        few, many = left, right
        weight = sum_rows(cells, values, begin, middle, stats[few], None)
    else:
        few, many = right, left
        weight = sum_rows(cells, values, middle, ends[1], stats[few], None)
    for k in range(np.uint64(stats.shape[1])):
        stats[many, k] = stats[np.uint64(node), k] - stats[few, k]
    nodes[few].weight = weight
    nodes[many].weight = nodes[np.uint64(node)].weight - weight


@kernel
def sum_held_out_rows(cells, values, begin, end, train_stats, stats, quantile):
    """Compute `total` for held-out rows, or judge them by a quantile of the training rows.

    `train_stats` (S,) are the statistics of the training rows.
    """
    if quantile is not None:
        summarise_held_out_rows(values, begin, end, train_stats[np.uint64(1)], stats)
    else:
        sum_rows(cells, values, begin, end, stats, quantile)


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


@kernel
def partition_rows(
    codes,
    first,
    step,
    n_codes,
    cut,
    missing,
    levels,
    branches,
    ids,
    cells,
    values,
    begin,
    end,
    branch_of,
    ids2,
    cells2,
    values2,
    ends,
):
    """Reorder rows[begin:end] by branch, stably; ``ends[b]`` = end of branch b.

    Parameters
    ----------
    codes, first, step : array of unsigned, uint64, uint64
        Row i has the code ``codes[first + i * step]`` in the split feature.
    n_codes : int
        The code of missing values, which go to branch `missing`.
    cut : int
        Codes up to it go to branch 0, unless `levels` is given.
    levels : (levels,) int32
        Branch of each code, -1 = the missing branch; empty for thresholds.
    branch_of, ids2, cells2, values2 : arrays
        Working memory.
    """
    if branches == 2:
        _partition_in_two(
            codes,
            first,
            step,
            n_codes,
            cut,
            missing,
            levels,
            ids,
            cells,
            values,
            begin,
            end,
            ids2,
            cells2,
            values2,
            ends,
        )
    else:
        _partition_in_many(
            codes,
            first,
            step,
            n_codes,
            missing,
            levels,
            branches,
            ids,
            cells,
            values,
            begin,
            end,
            branch_of,
            ids2,
            cells2,
            values2,
            ends,
        )


@inlined
def _partition_in_two(
    codes,
    first,
    step,
    n_codes,
    cut,
    missing,
    levels,
    ids,
    cells,
    values,
    begin,
    end,
    ids2,
    cells2,
    values2,
    ends,
):
    """Move left rows down in place and right rows through a buffer, branch-free."""
    one = np.uint64(1)
    width = np.uint64(values.shape[1])
    has_cells = len(cells) > 0
    by_level = len(levels) > 0
    left = np.uint64(begin)
    right = np.uint64(0)
    for i in range(np.uint64(begin), np.uint64(end)):
        row = ids[i]
        code = np.int64(codes[first + np.uint64(row) * step])
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


@inlined
def _partition_in_many(
    codes,
    first,
    step,
    n_codes,
    missing,
    levels,
    branches,
    ids,
    cells,
    values,
    begin,
    end,
    branch_of,
    ids2,
    cells2,
    values2,
    ends,
):
    """Reorder rows with a counting sort by branch."""
    width = np.uint64(values.shape[1])
    has_cells = len(cells) > 0
    b0, size = np.uint64(begin), np.uint64(end - begin)
    for b in range(np.uint64(branches)):
        ends[b] = 0
    for i in range(size):
        code = np.int64(codes[first + np.uint64(ids[b0 + i]) * step])
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
def extend_array(array, size):
    """Return a copy of a (n,) array with room for `size` entries."""
    copy = np.zeros(size, array.dtype)
    for i in range(np.uint64(len(array))):
        copy[i] = array[i]
    return copy


@kernel
def extend_rows(array, size):
    """Return a copy of a (n, columns) array with room for `size` rows."""
    copy = np.zeros((size, array.shape[1]), array.dtype)
    for i in range(np.uint64(len(array))):
        for k in range(np.uint64(array.shape[1])):
            copy[i, k] = array[i, k]
    return copy


@inlined
def find_last_code(table, held_table, feature, cut, after, threshold):
    """Return the last code of `held_table` whose values do not exceed the threshold; -1 = none.

    A threshold of NaN is the midpoint between the values of codes `cut` and
    `after` of `table`.
    """
    a = table.high[np.uint64(table.value_start[feature] + cut)]
    b = table.low[np.uint64(table.value_start[feature] + after)]
    # Knuth 1969, section 4.2.2, theorem B: the exact error of the rounded sum.
    double = a + b
    part = double - a
    error = (a - (double - part)) + (b - part)
    start = held_table.value_start[feature]
    low, high = np.int64(-1), np.int64(held_table.n_codes[feature])
    while high - low > 1:
        middle = (low + high) // 2
        value = held_table.low[np.uint64(start + middle)]
        if np.isnan(threshold):
            twice = 2.0 * value
            beyond = twice > double or (twice == double and error < 0.0)
        else:
            beyond = value > threshold
        if beyond:
            high = middle
        else:
            low = middle
    return low


@inlined
def find_value_below(table, feature, cut, after, resolution):
    """Return the largest value of `table` not above the midpoint of the values of two codes.

    A tolerance absorbs rounding, or `resolution`: in decimal, 3.7 is the midpoint of 3.6
    and 3.8; in binary it is slightly above.
    """
    start = table.value_start[feature]
    below = find_last_code(table, table, feature, cut, after, np.nan)
    middle = 0.5 * table.high[np.uint64(start + cut)] + 0.5 * table.low[np.uint64(start + after)]
    middle += resolution
    while below + 1 < after and table.high[np.uint64(start + below + 1)] <= middle:
        below += 1
    return table.high[np.uint64(start + below)]


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


@kernel
def assign_branches(codes, first, step, n_codes, cut, missing, levels, ids, begin, end, branch_of):
    """Write the branch of each of rows[begin:end]; arguments as in `partition_rows`.

    `missing` may be the number of branches, which marks rows that go down all of them.
    """
    for i in range(np.uint64(end - begin)):
        code = np.int64(codes[first + np.uint64(ids[np.uint64(begin) + i]) * step])
        branch = missing
        if code < n_codes:
            branch = np.int64(code > cut)
            if len(levels) > 0:
                branch = np.int64(levels[np.uint64(code)])
                branch = branch if branch >= 0 else missing
        branch_of[i] = np.uint32(branch)


@kernel
def compute_cumulative_shares(branch_of, values, begin, end, upto):
    """Compute the cumulative shares of the branches in the known weight of rows[begin:end].

    ``upto`` (branches,) float64 receives them; the last is exactly 1.  Without
    known weight all branches have equal shares.
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


@kernel
def distribute_rows(
    branch_of, upto, steps, ids, cells, values, begin, end, ids2, cells2, values2, ends
):
    """Gather the branches of rows[begin:end], one after the other, in spare arrays.

    Parameters
    ----------
    branch_of : (rows,) uint32
        From `assign_branches`; ``len(upto)`` = every branch.
    upto : (branches,) float64
        Cumulative shares.
    steps : (columns of values,) float64
        Fixed-point step of each statistic; the first is the weight's.
    ids2, cells2, values2 : arrays
        Filled from 0; replaced by longer ones if they are too short.
    ends : (branches or more,) int64
        Receives the end of each branch in them.

    Returns
    -------
    ids2, cells2, values2
        Without parts of weight 0.
    """
    zero = np.uint64(0)
    branches = np.uint64(len(upto))
    width = np.uint64(values.shape[1])
    has_cells = len(cells) > 0
    b0, size = np.uint64(begin), np.uint64(end - begin)
    for b in range(branches):
        ends[b] = 0
    for i in range(size):
        branch = np.uint64(branch_of[i])
        if branch < branches:
            ends[branch] += 1
            continue
        low = 0.0
        for b in range(branches):
            if _take_part(values[b0 + i, zero], low, upto[b], steps[zero]) > 0.0:
                ends[b] += 1
            low = upto[b]
    at = np.int64(0)
    for b in range(branches):
        count = ends[b]
        ends[b] = at
        at += count
    if at > len(ids2):
        ids2 = np.empty(2 * at, np.uint32)
        values2 = np.empty((2 * at, values.shape[1]))
        if has_cells:
            cells2 = np.empty(2 * at, np.uint32)
    for i in range(size):
        branch = np.uint64(branch_of[i])
        row = b0 + i
        if branch < branches:
            to = np.uint64(ends[branch])
            ends[branch] += 1
            ids2[to] = ids[row]
            if has_cells:
                cells2[to] = cells[row]
            for k in range(width):
                values2[to, k] = values[row, k]
            continue
        low = 0.0
        for b in range(branches):
            weight = _take_part(values[row, zero], low, upto[b], steps[zero])
            if weight > 0.0:
                to = np.uint64(ends[b])
                ends[b] += 1
                ids2[to] = ids[row]
                if has_cells:
                    cells2[to] = cells[row]
                values2[to, zero] = weight
                for k in range(np.uint64(1), width):
                    values2[to, k] = _take_part(values[row, k], low, upto[b], steps[k])
            low = upto[b]
    return ids2, cells2, values2


@kernel
def replace_by_children(
    branch_of,
    upto,
    steps,
    ids,
    cells,
    values,
    begin,
    end,
    ids2,
    cells2,
    values2,
    ends,
    nodes,
    waiting,
    n_waiting,
    held_out,
    top,
):
    """Replace rows[begin:end] of a node by those of its children, side by side.

    Parameters
    ----------
    branch_of, upto, steps, ids2, cells2, values2
        See `distribute_rows`.
    ends : (branches or more,) int64
        Receives the end of each branch in rows.
    nodes, waiting, n_waiting, held
        See `compact_slices`; used in best-first growth only.
    top : int
        First unused row after all slices; -1: depth-first, the node's own slice
        is the last one.

    Returns
    -------
    ids, cells, values, ids2, cells2, values2
        Replaced by longer ones if they were too short.
    first, top
        Begin of branch 0, and the new top.
    """
    branches = np.uint64(len(upto))
    ids2, cells2, values2 = distribute_rows(
        branch_of, upto, steps, ids, cells, values, begin, end, ids2, cells2, values2, ends
    )
    count = ends[branches - np.uint64(1)]
    first = np.int64(begin)
    room = first + count
    if top >= 0:
        room = top + count
        if room > len(ids):
            top = compact_slices(nodes, waiting, n_waiting, held_out, ids, cells, values)
            room = 2 * (top + count)  # leave half of it free: squeezing stays rare
        first = top
        top += count
    ids, cells, values = _write_rows(ids, cells, values, first, ids2, cells2, values2, count, room)
    for b in range(branches):
        ends[b] += first
    return ids, cells, values, ids2, cells2, values2, first, top


@inlined
def _write_rows(ids, cells, values, at, ids2, cells2, values2, count, room):
    """Write `count` gathered rows to rows[at:], in arrays of at least `room` rows."""
    a0 = np.uint64(at)
    if room > len(ids):
        ids, values = extend_array(ids, 2 * room), extend_rows(values, 2 * room)
        if len(cells) > 0:
            cells = extend_array(cells, 2 * room)
    for j in range(np.uint64(count)):
        ids[a0 + j] = ids2[j]
        if len(cells) > 0:
            cells[a0 + j] = cells2[j]
        for k in range(np.uint64(values.shape[1])):
            values[a0 + j, k] = values2[j, k]
    return ids, cells, values


@kernel
def compact_slices(nodes, waiting, n_waiting, held_out, ids, cells, values):
    """Move the slices of the waiting nodes together; return the end of the last one.

    Parameters
    ----------
    nodes, waiting : arrays
        Of `treekit.kernels.grow_tree`; slices are renumbered in place.
    held_out : bool
        Whether the slices are those of the held-out rows.
    """
    begins = np.empty(n_waiting, np.int64)
    for j in range(np.uint64(n_waiting)):
        node = nodes[np.uint64(waiting[j])]
        begins[j] = node.held_begin if held_out else node.begin
    order = np.argsort(begins)
    at = np.int64(0)
    for j in range(np.uint64(n_waiting)):
        node = nodes[np.uint64(waiting[np.uint64(order[j])])]
        begin = node.held_begin if held_out else node.begin
        size = (node.held_end if held_out else node.end) - begin
        for i in range(np.uint64(size)):
            source, to = np.uint64(begin) + i, np.uint64(at) + i
            ids[to] = ids[source]
            if len(cells) > 0:
                cells[to] = cells[source]
            for k in range(np.uint64(values.shape[1])):
                values[to, k] = values[source, k]
        if held_out:
            node.held_begin, node.held_end = at, at + size
        else:
            node.begin, node.end = at, at + size
        at += size
    return at
