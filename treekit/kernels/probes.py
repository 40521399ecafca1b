"""The loop that constructs rows which reach the nodes of a tree and turn each way."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treekit.kernels.boxes import enter, leave, possible
from treekit.kernels.compile import kernel
from treekit.kernels.wrongturns import Search, branch_of, fill, number_in, telling_row

__all__ = ["MOST_WRONG_BRANCHES", "Targets", "probe_rows"]

# Numbers of `treekit.model.tree.Split`, which compiled code cannot read.
_LEAF, _THRESHOLD = 0, 1
MOST_WRONG_BRANCHES = 8
"""So many wrong branches of a multiway split are told apart from the right one."""


class Targets(NamedTuple):
    """What to probe.

    Attributes
    ----------
    wanted : (nodes,) bool
    after : (nodes,) float64
        The next number of the input type above each threshold.
    place : (nodes,) int64
        Row of `values` of each wanted THRESHOLD node.
    values : (splits, candidates) float64
        The threshold, the next number of the input type above it, then other
        values around it; NaN = none.
    budget : int
        Pairs of leaves to compare before a search is given up.
    """

    wanted: Any
    after: Any
    place: Any
    values: Any
    budget: Any


@kernel
def _probe_split(
    nodes: Any,
    leaves: Any,
    box: Any,
    columns: Any,
    targets: Any,
    search: Any,
    depth: int,
    node: int,
    rows: Any,
    count: int,
    tally: Any,
    rng: Any,
) -> int:
    """Append rows that reach `node` and turn each way; returns how many rows there are."""
    f, n = nodes.feature[node], nodes.n_children[node]
    n_levels = box.first_level[f + 1] - box.first_level[f]
    low, high = box.low[f], box.high[f]
    known = box.no_known[f] == 0
    at_threshold = nodes.kind[node] == _THRESHOLD
    # A candidate is a level, a missing value, an unseen category, or one of the
    # two numbers next to the threshold.
    n_known = n_levels if columns.nominal[f] else 2
    for candidate in range(n_known + 2):
        missing = candidate >= n_known
        if missing:
            allowed = box.no_missing[f] == 0 and (
                candidate == n_known or (columns.nominal[f] and columns.unseen)
            )
            value = np.nan if candidate == n_known else float(n_levels)
        elif columns.nominal[f]:
            allowed = known and box.barred[box.first_level[f] + candidate] == 0
            value = float(candidate)
        elif at_threshold:
            value = targets.values[targets.place[node], candidate]
            allowed = known and low < value <= high
        else:
            allowed = known and low < high and candidate == 0
            value = number_in(columns, f, low, high, rng)
        if not allowed:
            continue
        # An unseen category takes the missing branch of every node.
        meaning = np.nan if missing else value
        right = branch_of(nodes, node, meaning)
        for step in range(1, max(2, min(n, MOST_WRONG_BRANCHES + 1))):
            wrong = (right + step) % n
            status = telling_row(
                nodes, leaves, box, columns, targets.budget, search, depth, node,
                meaning, wrong, rows[count], rng,
            )  # fmt: skip
            tally[status] += 1
            rows[count, f] = value
            count += 1
        if at_threshold and not missing:
            count = _around(columns, targets, low, high, node, right, nodes, rows, count)
    return count


@kernel
def _around(
    columns: Any,
    targets: Any,
    low: float,
    high: float,
    node: int,
    side: int,
    nodes: Any,
    rows: Any,
    count: int,
) -> int:
    """Repeat the last row with the other values around the threshold on its `side`."""
    f, t = nodes.feature[node], nodes.threshold[node]
    values = targets.values[targets.place[node]]
    base = count - 1
    for candidate in range(2, len(values)):
        x = values[candidate]
        rounded = np.float64(np.float32(x)) if columns.narrow else x
        inside = (rounded > low or low == -np.inf) and rounded <= high
        if inside and (rounded <= t) == (side == 0):
            rows[count] = rows[base]
            rows[count, f] = x
            count += 1
    return count


@kernel
def _note(nodes: Any, box: Any, nominal: Any, after: Any, node: int, can: Any) -> None:
    """Mark what inputs can do at a node that some input reaches."""
    can.node[node] = True
    if nodes.kind[node] == _LEAF:
        return
    f = nodes.feature[node]
    can.missing[node] = box.no_missing[f] == 0
    if box.no_known[f] > 0:
        return
    if nodes.kind[node] == _THRESHOLD:
        can.at[node] = box.low[f] < nodes.threshold[node] <= box.high[f]
        can.above[node] = box.low[f] < after[node] <= box.high[f]
    elif nominal[f]:
        start = nodes.level_start[node]
        for level in range(nodes.level_start[node + 1] - start):
            can.level[start + level] = box.barred[box.first_level[f] + level] == 0


@kernel
def probe_rows(
    nodes: Any,
    leaves: Any,
    box: Any,
    columns: Any,
    targets: Any,
    rows: Any,
    can: Any,
    tally: Any,
    rng: Any,
) -> int:
    """Rows that reach the wanted nodes of one tree, and all that inputs can do in it.

    Parameters
    ----------
    nodes : treekit.kernels.boxes.Nodes
    leaves : Leaves
    box : treekit.kernels.boxes.Box
        Of the root, with room for three times the depth; left as it was.
    columns : Columns
    targets : Targets
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
    bound = len(box.saved) + 1
    path, taken = np.zeros(bound, dtype=np.int64), np.zeros(bound, dtype=np.int64)
    scratch = np.zeros((4, bound), dtype=np.int64)
    search = Search(scratch[0], scratch[1], scratch[2], scratch[3])
    count, depth, node = 0, 0, 0
    while True:
        _note(nodes, box, columns.nominal, targets.after, node, can)
        if nodes.kind[node] != _LEAF:
            if targets.wanted[node]:
                count = _probe_split(
                    nodes, leaves, box, columns, targets, search, depth, node,
                    rows, count, tally, rng,
                )  # fmt: skip
            path[depth], taken[depth] = node, 0
            depth += 1
        else:
            if targets.wanted[node]:
                fill(box, columns, rows[count], -1, 0.0, rng)
                count += 1
            if depth > 0:
                leave(nodes, box, path[depth - 1], taken[depth - 1], depth - 1)
                taken[depth - 1] += 1
        # The next branch that an input can take, here or further up.
        node = -1
        while depth > 0 and node < 0:
            above = path[depth - 1]
            if taken[depth - 1] == nodes.n_children[above]:
                depth -= 1
                if depth > 0:
                    leave(nodes, box, path[depth - 1], taken[depth - 1], depth - 1)
                    taken[depth - 1] += 1
                continue
            enter(nodes, box, above, taken[depth - 1], depth - 1)
            child = nodes.first_child[above] + taken[depth - 1]
            if possible(box, columns.nominal, nodes.feature[above]):
                node = child
            else:
                leave(nodes, box, above, taken[depth - 1], depth - 1)
                taken[depth - 1] += 1
        if node < 0:
            break
    return count
