"""Rows whose value is missing go down every branch, each part with its share of the weight.

Quinlan 1993, *C4.5*, section 3.2.  Parts are cut on the grid of the statistics
so that they add up to the row exactly, and with them all sums of a tree: with
C the cumulative shares of the branches, branch b gets
``floor(w * C[b + 1]) - floor(w * C[b])`` steps of the grid.

Rows multiply.  A node's children are gathered in spare arrays, then written
back: over the node itself, which is the top-most slice when the tree grows
depth first, or else to the end, where slices out of use are squeezed out
before more memory is taken.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.move import longer, more_rows

__all__ = ["cumulative_shares", "hand_down", "mark", "send"]


@kernel
def mark(codes, first, step, n_codes, cut, missing, levels, ids, begin, end, branch_of):
    """Branch of each of rows[begin:end]; arguments as `treekit.kernels.move.partition`.

    `missing` may be the number of branches: a mark of its own for rows that
    will go down all of them.
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
def cumulative_shares(branch_of, values, begin, end, upto):
    """Shares of the branches in the known weight of rows[begin:end], added up in order.

    ``upto`` (branches,) float64 receives them; the last is 1 exactly.  Without
    any known weight the branches are alike.
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
def _part(value, low, high, step):
    """The part of a statistic between two cumulative shares, in whole steps.

    The last part is what the others leave, so that they add up whatever the grid.
    """
    units = value / step
    above = units if high >= 1.0 else np.floor(units * high)
    return (above - np.floor(units * low)) * step


@kernel
def send(branch_of, upto, steps, ids, cells, values, begin, end, ids2, cells2, values2, ends):
    """Gather the branches of rows[begin:end], one after the other, in spare arrays.

    Parameters
    ----------
    branch_of : (rows,) uint32
        As `mark` leaves it; ``len(upto)`` = every branch.
    upto : (branches,) float64
        Cumulative shares.
    steps : (columns of values,) float64
        Grid of each statistic; the first is the weight's.
    ids2, cells2, values2 : arrays
        Filled from 0; longer ones are made where they are too short.
    ends : (branches or more,) int64
        Receives where each branch ends in them.

    Returns
    -------
    ids2, cells2, values2
        Parts of no weight are left out.
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
            if _part(values[b0 + i, zero], low, upto[b], steps[zero]) > 0.0:
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
            weight = _part(values[row, zero], low, upto[b], steps[zero])
            if weight > 0.0:
                to = np.uint64(ends[b])
                ends[b] += 1
                ids2[to] = ids[row]
                if has_cells:
                    cells2[to] = cells[row]
                values2[to, zero] = weight
                for k in range(np.uint64(1), width):
                    values2[to, k] = _part(values[row, k], low, upto[b], steps[k])
            low = upto[b]
    return ids2, cells2, values2


@kernel
def hand_down(
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
    held,
    top,
):
    """Replace rows[begin:end] of a node by those of its children, side by side.

    Parameters
    ----------
    branch_of, upto, steps, ids2, cells2, values2
        See `send`.
    ends : (branches or more,) int64
        Receives the end of each branch in rows.
    nodes, waiting, n_waiting, held
        See `squeeze`; read in best-first growth only.
    top : int
        First of the rows out of use after all slices; -1: depth-first, the
        node's own slice is the last one.

    Returns
    -------
    ids, cells, values, ids2, cells2, values2
        Longer ones where they were too short.
    first, top
        Where branch 0 begins, and the new top.
    """
    branches = np.uint64(len(upto))
    ids2, cells2, values2 = send(
        branch_of, upto, steps, ids, cells, values, begin, end, ids2, cells2, values2, ends
    )
    count = ends[branches - np.uint64(1)]
    first = np.int64(begin)
    room = first + count
    if top >= 0:
        room = top + count
        if room > len(ids):
            top = squeeze(nodes, waiting, n_waiting, held, ids, cells, values)
            room = 2 * (top + count)  # half of it free, so that squeezing stays rare
        first = top
        top += count
    ids, cells, values = _place(ids, cells, values, first, ids2, cells2, values2, count, room)
    for b in range(branches):
        ends[b] += first
    return ids, cells, values, ids2, cells2, values2, first, top


@inlined
def _place(ids, cells, values, at, ids2, cells2, values2, count, room):
    """Write `count` gathered rows to rows[at:], in arrays of at least `room` rows."""
    a0 = np.uint64(at)
    if room > len(ids):
        ids, values = longer(ids, 2 * room), more_rows(values, 2 * room)
        if len(cells) > 0:
            cells = longer(cells, 2 * room)
    for j in range(np.uint64(count)):
        ids[a0 + j] = ids2[j]
        if len(cells) > 0:
            cells[a0 + j] = cells2[j]
        for k in range(np.uint64(values.shape[1])):
            values[a0 + j, k] = values2[j, k]
    return ids, cells, values


@kernel
def squeeze(nodes, waiting, n_waiting, held, ids, cells, values):
    """Move the slices of the waiting nodes together; returns where the last one ends.

    Parameters
    ----------
    nodes, waiting : arrays
        Of `treekit.kernels.grow`; slices are renumbered in place.
    held : bool
        Whether the slices are those of the held-out rows.
    """
    begins = np.empty(n_waiting, np.int64)
    for j in range(np.uint64(n_waiting)):
        node = nodes[np.uint64(waiting[j])]
        begins[j] = node.held_begin if held else node.begin
    order = np.argsort(begins)
    at = np.int64(0)
    for j in range(np.uint64(n_waiting)):
        node = nodes[np.uint64(waiting[np.uint64(order[j])])]
        begin = node.held_begin if held else node.begin
        size = (node.held_end if held else node.end) - begin
        for i in range(np.uint64(size)):
            source, to = np.uint64(begin) + i, np.uint64(at) + i
            ids[to] = ids[source]
            if len(cells) > 0:
                cells[to] = cells[source]
            for k in range(np.uint64(values.shape[1])):
                values[to, k] = values[source, k]
        if held:
            node.held_begin, node.held_end = at, at + size
        else:
            node.begin, node.end = at, at + size
        at += size
    return at
