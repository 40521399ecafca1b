"""Route rows through a finished tree, complete or as fractional instances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.function_pointers import borrow_arrays
from treekit.kernels.oblique_splits import OBLIQUE, project_rows
from treekit.kernels.partition_rows import (
    Route,
    WaitingSlices,
    assign_branches,
    compute_cumulative_shares,
    copy_rows,
    copy_slice,
    extend_array,
    replace_by_children,
    reserve_rows,
    sum_rows,
)
from treekit.kernels.records import MISSING, Column, Rows, Table

# ---------------------------------------------------------------- routing


@kernel
def route_rows(routed, rows, upto, learn, start, stop, stats, nodes):
    """Route `rows` from node `start` to the nodes where they stop.

    Parameters
    ----------
    routed : RoutedTree
    rows : Rows
        Overwritten.
    upto : (nodes,) float64
        Cumulative share of each node among its siblings, for fractional instances.
    learn : bool
        Compute the shares of the branches from the rows with known values, instead of
        reading them from `upto`.
    stop : (nodes,) bool
        Leaves, and other nodes at which rows stop.
    stats : (nodes, S) float64
        Output: the summed statistics of the rows that pass each node.
    nodes : (n,) NODE
        Working memory: the slice of rows of each node to be processed.

    Returns
    -------
    ids, cells, values, at
        The rows at the nodes where they stopped, and the node of each.
    """
    routed = borrow_arrays(routed)
    splits, branch_of = routed.splits, routed.branch_of
    spare = copy_rows(rows)
    done = Rows(rows.ids[:1].copy(), rows.cells[:1].copy(), rows.values[:1].copy())
    done_at = np.zeros(0, np.int64)
    n_done = np.int64(0)
    offsets, tops = np.zeros(64, np.int64), np.full(2, np.int64(-1))
    waiting = np.zeros(64, np.int64)
    waiting[np.uint64(0)] = start
    nodes[np.uint64(start)].begin = 0
    nodes[np.uint64(start)].end = len(rows.ids)
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        node = np.uint64(waiting[np.uint64(n_waiting)])
        begin, end = nodes[node].begin, nodes[node].end
        sum_rows(rows, begin, end, stats[node], None)
        if stop[node]:
            done = reserve_rows(done, n_done + end - begin)
            if len(done.ids) > len(done_at):
                done_at = extend_array(done_at, len(done.ids))
            copy_slice(rows, begin, end, done, n_done)
            done_at[n_done : n_done + end - begin] = np.int64(node)
            n_done += end - begin
            continue
        first, branches = np.int64(splits.first_child[node]), np.int64(splits.n_children[node])
        if branches >= len(offsets):
            offsets = np.zeros(2 * branches, np.int64)
        assign_node_branches(routed, node, rows.ids, begin, end)
        shares = upto[first : first + branches]
        if learn:
            shares = np.empty(branches)
            compute_cumulative_shares(branch_of, rows.values, begin, end, shares)
        rows, spare = replace_by_children(
            branch_of, shares, routed.steps, rows, begin, end, spare, offsets,
            WaitingSlices(nodes, waiting[:n_waiting], False, tops),
        )  # fmt: skip
        if n_waiting + branches > len(waiting):
            waiting = extend_array(waiting, 2 * (n_waiting + branches))
        for b in range(np.uint64(branches)):
            child = nodes[np.uint64(first) + b]
            child.begin, child.end = offsets[b], offsets[b + np.uint64(1)]
            waiting[np.uint64(n_waiting)] = first + np.int64(b)
            n_waiting += 1
    n_cells = n_done if len(rows.cells) > 0 else 0
    return done.ids[:n_done], done.cells[:n_cells], done.values[:n_done], done_at[:n_done]


# ---------------------------------------------------------------- splits on codes


class CodedSplits(NamedTuple):
    """The splits of a tree; see `treekit.model.tree.Tree`.

    Attributes
    ----------
    cut : (nodes,) int64
        The last code that goes to branch 0 of a THRESHOLD node, -1 elsewhere.
    terms : (2 * terms,) int32
        Of the oblique splits, in the form that `treekit.kernels.oblique_splits.project_rows` takes.
    surrogates : (surrogates + 1, 4) int64
        Column, last code that takes the branch below, that branch, and the offset of its
        categories; the last row holds the end of all categories.
    """

    kind: npt.NDArray[np.uint8]
    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    cut: npt.NDArray[np.int64]
    first_child: npt.NDArray[np.int32]
    n_children: npt.NDArray[np.int32]
    missing: npt.NDArray[np.int32]
    level_offsets: npt.NDArray[np.int64]
    level_branch: npt.NDArray[np.int32]
    term_offsets: npt.NDArray[np.int64]
    terms: npt.NDArray[np.int32]
    surrogate_offsets: npt.NDArray[np.int64]
    surrogates: npt.NDArray[np.int64]
    surrogate_levels: npt.NDArray[np.int32]


class RoutedTree(NamedTuple):
    """A finished tree, and how rows of a table are routed through it.

    Attributes
    ----------
    splits : CodedSplits
    table : Table
    steps : (columns of values,) float64
        Fixed-point steps of fractional instances.
    fractional : bool
        Whether a row with a missing value is split among all branches of a node; otherwise it
        takes the branch of the split's first surrogate with a known value, or its missing branch.
    sides : (all rows,) of the codes' type
        Working memory; empty for a tree without oblique splits.
    branch_of : (rows,) uint32
        Receives the branch of each of a node's rows, the number of branches = all of them.
    """

    splits: CodedSplits
    table: Table
    steps: npt.NDArray[np.float64]
    fractional: bool
    sides: npt.NDArray[np.uint8]
    branch_of: npt.NDArray[np.uint32]


@kernel
def find_row_leaves(splits, n_codes, codes, row_step, column_step, ids, leaves):
    """Find the leaf of each row, for trees without oblique splits and surrogates.

    Parameters
    ----------
    splits : CodedSplits
    n_codes : (columns,) uint32
    codes : (cells,) unsigned
    row_step, column_step : uint64
        Distances in `codes` of neighbouring rows and columns.
    ids : (rows,) uint32
    leaves : (rows,) int64
        Output.
    """
    one = np.uint64(1)
    for i in range(np.uint64(len(ids))):
        node, at = np.uint64(0), np.uint64(ids[i]) * row_step
        while splits.n_children[node] > 0:
            column = np.uint64(splits.feature[node])
            code = np.int64(codes[at + column * column_step])
            branch = np.int64(splits.missing[node])
            if code < np.int64(n_codes[column]):
                start, end = splits.level_offsets[node], splits.level_offsets[node + one]
                if end > start:
                    of_level = np.int64(splits.level_branch[np.uint64(start + code)])
                    branch = of_level if of_level >= 0 else branch
                else:
                    branch = np.int64(code > splits.cut[node])
            node = np.uint64(splits.first_child[node]) + np.uint64(branch)
        leaves[i] = np.int64(node)


@kernel
def sum_votes(ids, vote_of_entry, votes, sums):
    """Add ``votes[vote_of_entry[k]]`` to ``sums[ids[k]]`` for each entry k; ids may repeat."""
    for k in range(np.uint64(len(ids))):
        vote, row = np.uint64(vote_of_entry[k]), np.uint64(ids[k])
        for j in range(np.uint64(sums.shape[1])):
            sums[row, j] += votes[vote, j]


@kernel
def assign_node_branches(routed, node, ids, begin, end):
    """Write the branch of each of the rows ``ids[begin:end]`` at a node to ``branch_of``."""
    splits, table, branch_of = routed.splits, routed.table, routed.branch_of
    node = np.uint64(node)
    one = np.uint64(1)
    column = np.uint64(splits.feature[node])
    lost = np.int64(splits.missing[node])
    has_surrogates = splits.surrogate_offsets[node + one] > splits.surrogate_offsets[node]
    if has_surrogates or (routed.fractional and splits.kind[node] != MISSING):
        lost = np.int64(splits.n_children[node])
    codes, n_codes, cut = table.codes[column], table.n_codes[column], splits.cut[node]
    levels = splits.level_branch[splits.level_offsets[node] : splits.level_offsets[node + one]]
    if splits.kind[node] == OBLIQUE:
        terms = splits.terms[2 * splits.term_offsets[node] : 2 * splits.term_offsets[node + one]]
        project_rows(table, terms, splits.threshold[node], ids, begin, end, routed.sides)
        codes, n_codes, cut = routed.sides, np.uint32(2), np.int64(0)
    route = Route(Column(codes, np.uint64(0), one, n_codes), cut, lost, levels)
    assign_branches(route, lost, ids, begin, end, branch_of)
    if has_surrogates:
        for i in range(np.uint64(end - begin)):
            if np.int64(branch_of[i]) == lost:
                row = np.uint64(ids[np.uint64(begin) + i])
                branch_of[i] = np.uint32(_find_surrogate_branch(splits, node, table, row))


@inlined
def _find_surrogate_branch(splits, node, table, row):
    """Return the branch of the first surrogate that is known for the row, or the missing branch."""
    zero, one, two, three = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
    first, last = splits.surrogate_offsets[node], splits.surrogate_offsets[node + one]
    for k in range(np.uint64(first), np.uint64(last)):
        test = splits.surrogates[k]
        column = np.uint64(test[zero])
        code = np.int64(table.codes[column, row])
        if code >= np.int64(table.n_codes[column]):
            continue
        if test[three] == splits.surrogates[k + one, three]:
            return test[two] if code <= test[one] else 1 - test[two]
        branch = np.int64(splits.surrogate_levels[np.uint64(test[three] + code)])
        if branch >= 0:
            return branch
    return np.int64(splits.missing[node])
