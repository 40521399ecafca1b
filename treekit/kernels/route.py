"""Rows led through a finished tree, whole or in parts."""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import kernel
from treekit.kernels.fractional import cumulative_shares, hand_down
from treekit.kernels.move import longer, more_rows, total
from treekit.kernels.splits import mark_branches

__all__ = ["route"]


@kernel
def route(
    splits,
    upto,
    table,
    rows,
    steps,
    fractional,
    learn,
    start,
    stop,
    stats,
    nodes,
):
    """Lead `rows`, which arrive at node `start`, down to where they stop.

    Parameters
    ----------
    splits : Splits
    upto : (nodes,) float64
        Cumulative share of each node among its siblings, for parts of rows.
    table : Table
    rows : Rows
        Overwritten.
    steps : (columns of values,) float64
        The grid of the parts.
    fractional : bool
        Rows go down every branch of a split whose value they miss; otherwise
        they take its missing way.
    learn : bool
        Shares are those of the rows' own known weight at each split, not `upto`.
    stop : (nodes,) bool
        Leaves, and other nodes to stop at.
    stats : (nodes, S) float64
        Receives the sums of the rows at each node that they pass.
    nodes : (n,) NODE
        Working memory; slices of waiting nodes.

    Returns
    -------
    ids, cells, values, at
        The rows where they stopped, and the node of each.
    """
    zero = np.uint64(0)
    ids, cells, values = rows.ids, rows.cells, rows.values
    ids2, cells2, values2 = ids.copy(), cells.copy(), values.copy()
    done_ids, done_cells, done_values = ids[:0].copy(), cells[:0].copy(), values[:0].copy()
    done_at = np.zeros(0, np.int64)
    done = np.int64(0)
    branch_of = np.empty(len(ids), np.uint32)
    ends = np.zeros(64, np.int64)
    waiting = np.zeros(64, np.int64)
    waiting[zero] = start
    nodes[np.uint64(start)].begin = 0
    nodes[np.uint64(start)].end = len(ids)
    n_waiting = 1
    sides = np.empty(table.codes.shape[1] if len(splits.terms) > 0 else 0, table.codes.dtype)
    while n_waiting > 0:
        n_waiting -= 1
        node = np.uint64(waiting[np.uint64(n_waiting)])
        begin, end = nodes[node].begin, nodes[node].end
        total(cells, values, begin, end, stats[node], None)
        if stop[node]:
            room = done + end - begin
            if room > len(done_ids):
                done_ids, done_values = longer(done_ids, 2 * room), more_rows(done_values, 2 * room)
                done_at = longer(done_at, 2 * room)
                if len(cells) > 0:
                    done_cells = longer(done_cells, 2 * room)
            for i in range(np.uint64(end - begin)):
                source, to = np.uint64(begin) + i, np.uint64(done) + i
                done_ids[to] = ids[source]
                done_at[to] = np.int64(node)
                if len(cells) > 0:
                    done_cells[to] = cells[source]
                for k in range(np.uint64(values.shape[1])):
                    done_values[to, k] = values[source, k]
            done = room
            continue
        first, branches = np.int64(splits.first_child[node]), np.int64(splits.n_children[node])
        if branches > len(ends):
            ends = np.zeros(2 * branches, np.int64)
        mark_branches(splits, node, table, ids, begin, end, fractional, sides, branch_of)
        shares = upto[first : first + branches]
        if learn:
            shares = np.empty(branches)
            cumulative_shares(branch_of, values, begin, end, shares)
        ids, cells, values, ids2, cells2, values2, _, _ = hand_down(
            branch_of,
            shares,
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
            False,
            np.int64(-1),
        )
        if n_waiting + branches > len(waiting):
            waiting = longer(waiting, 2 * (n_waiting + branches))
        for b in range(np.uint64(branches)):
            child = nodes[np.uint64(first) + b]
            child.begin, child.end = begin, ends[b]
            begin = ends[b]
            waiting[np.uint64(n_waiting)] = first + np.int64(b)
            n_waiting += 1
    return (
        done_ids[:done],
        done_cells[: done if len(cells) > 0 else 0],
        done_values[:done],
        done_at[:done],
    )
