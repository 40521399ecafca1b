"""Passes over a tree: lowering to binary nodes, and merged conditions of the leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.kernels.compile import kernel
from treekit.kernels.reachability import enter_branch, has_known_values, leave_branch

# ---------------------------------------------------------------- lowering

# Values of `treekit.model.tree.Split` and `treekit.export.lowering.Step`, which
# compiled code cannot read from the enumerations.
_SPLIT_LEAF, _SPLIT_THRESHOLD, _SPLIT_MISSING = 0, 1, 4
_LEAF = 0
_LE = 1
_IN = 2
_MISSING = 3


@kernel
def _group_levels_by_child(
    first_child: Any, level_offsets: Any, level_branch: Any
) -> tuple[Any, Any]:
    """Return the categories that lead to each node, as CSR over nodes, ascending within a node."""
    n = len(first_child)
    start = np.zeros(n + 1, dtype=np.int64)
    for node in range(n):
        for at in range(level_offsets[node], level_offsets[node + 1]):
            if level_branch[at] >= 0:
                start[first_child[node] + level_branch[at] + 1] += 1
    for node in range(n):
        start[node + 1] += start[node]
    fill = start[:n].copy()
    codes = np.empty(start[n], dtype=np.int32)
    for node in range(n):
        for at in range(level_offsets[node], level_offsets[node + 1]):
            if level_branch[at] >= 0:
                child = first_child[node] + level_branch[at]
                codes[fill[child]] = at - level_offsets[node]
                fill[child] += 1
    return start, codes


@kernel
def lower_nodes(
    split: Any,
    first_child: Any,
    n_children: Any,
    missing: Any,
    level_offsets: Any,
    level_branch: Any,
    bound: int,
) -> tuple[Any, Any, Any, Any, Any, int]:
    """Lower one tree to binary nodes, in pre-order, the yes branch first.

    Parameters
    ----------
    split, first_child, n_children, missing, level_offsets, level_branch : arrays
        As in `treekit.model.tree.Tree`.
    bound : int
        At least the number of binary nodes.

    Returns
    -------
    kind : (m,) uint8
        Value of a `treekit.export.lowering.Step`.
    source : (m,) int32
        Node of the n-ary tree behind each binary node.
    no : (m,) int32
        Node of the no branch, -1 in leaves.  The yes branch is the next node.
    set_start : (m + 1,) int64
    set_codes : (codes,) int32
    depth : int
    """
    n = len(split)
    child_start, child_codes = _group_levels_by_child(first_child, level_offsets, level_branch)
    kind = np.empty(bound, dtype=np.uint8)
    source = np.empty(bound, dtype=np.int32)
    no = np.full(bound, -1, dtype=np.int32)
    set_start = np.zeros(bound + 1, dtype=np.int64)
    set_codes = np.empty(len(child_codes), dtype=np.int32)
    # Pending work: a node, the branch to continue from, the binary node whose no branch it
    # is, and its depth.  Each entry has a different node.
    waiting = np.empty((n, 4), dtype=np.int64)
    waiting[0] = (0, 0, -1, 0)
    left, made, coded, deepest = 1, 0, 0, 0
    while left > 0:
        left -= 1
        node, branch, above, depth = waiting[left]
        if above >= 0:
            no[above] = made
        while True:
            first = first_child[node]
            if split[node] == _SPLIT_LEAF:
                kind[made] = _LEAF
                source[made] = node
                set_start[made + 1] = coded
                made += 1
                deepest = max(deepest, depth)
                break
            if split[node] == _SPLIT_THRESHOLD or split[node] == _SPLIT_MISSING:
                kind[made] = _LE if split[node] == _SPLIT_THRESHOLD else _MISSING
                waiting[left] = (first + 1, 0, made, depth + 1)
                following = first
            else:
                while branch < n_children[node] and (
                    branch == missing[node]
                    or child_start[first + branch] == child_start[first + branch + 1]
                ):
                    branch += 1
                if branch == n_children[node]:  # the remaining inputs take the missing branch
                    node, branch = first + missing[node], 0
                    continue
                following = first + branch
                kind[made] = _IN
                for at in range(child_start[following], child_start[following + 1]):
                    set_codes[coded] = child_codes[at]
                    coded += 1
                waiting[left] = (node, branch + 1, made, depth + 1)
            source[made] = node
            set_start[made + 1] = coded
            made += 1
            left += 1
            node, branch, depth = following, 0, depth + 1
    return (
        kind[:made].copy(),
        source[:made].copy(),
        no[:made].copy(),
        set_start[: made + 1].copy(),
        set_codes[:coded].copy(),
        deepest,
    )


# ---------------------------------------------------------------- merged conditions of leaves
# A depth-first walk updates the box of the current node, so that the work is linear in
# the nodes and in the size of the output.

CONDITION_DTYPE = np.dtype(
    [
        ("column", np.int32),
        ("low", np.float64),
        ("high", np.float64),
        ("known", np.bool_),
        ("missing", np.bool_),
        ("level_end", np.int64),
    ]
)
"""A condition, as in `treekit.rules.rule_list.ConditionTable`."""


@kernel
def _write_leaf_conditions(
    walk: Any, bar: Any, path: Any, conditions: Any, levels: Any, at: int, coded: int
) -> tuple[int, int]:
    """Append the conditions of one leaf; return the number of conditions and categories so far."""
    for f in path:
        column = walk.columns[f]
        any_known = has_known_values(column)
        if column.nominal:
            free = column.n_open == column.n_levels
        else:
            free = column.low == -np.inf and column.high == np.inf
        if free and column.no_known == 0 and column.no_missing == bar[f]:
            continue
        n_coded = column.n_open if column.nominal and any_known else 0
        if at < len(conditions):
            condition = conditions[at]
            condition.column = f
            condition.low = column.low if any_known else -np.inf
            condition.high = column.high if any_known else np.inf
            condition.known = any_known
            condition.missing = column.no_missing == 0
            condition.level_end = coded + n_coded
            to = coded
            for level in range(column.n_levels if n_coded > 0 else 0):
                if walk.barred[column.first_level + level] == 0:
                    levels[to] = level
                    to += 1
        at += 1
        coded += n_coded
    return at, coded


@kernel
def merge_leaf_conditions(
    walk: Any, bar: Any, leaf: Any, end: Any, conditions: Any, levels: Any
) -> tuple[int, int]:
    """Merge the conditions of the decision path of every leaf, leaves in depth-first order.

    Call it with empty outputs to get their sizes, then again to fill them.

    Parameters
    ----------
    walk : treekit.kernels.reachability.TreeWalk
        At the root before and after; room for the depth plus one.
    bar : (columns,) int64
        1 if the model rejects missing values.
    leaf, end : (leaves,) int64
        Output: node number, and the number of conditions up to and including it.
    conditions : (conditions,) CONDITION
        Output: columns in the order of the path.
    levels : (codes,) int32
        Output: the categories that nominal conditions accept.

    Returns
    -------
    n_conditions, n_levels : int
    """
    path = np.zeros(len(walk.columns), dtype=np.int64)
    # For numba a literal 0 has its own type: functions called with it compile twice (measured).
    at, coded, depth, node = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    n_path, row = 0, 0
    while True:
        if walk.nodes[node].kind == _LEAF:
            at, coded = _write_leaf_conditions(
                walk, bar, path[:n_path], conditions, levels, at, coded
            )
            leaf[row] = node
            end[row] = at
            row += 1
            while depth > 0:  # up to the next pending branch
                depth -= 1
                frame = walk.stack[depth]
                leave_branch(walk, frame.node, frame.tried, depth)
                above = walk.nodes[frame.node]
                n_path -= walk.columns[above.feature].asked == 0
                frame.tried += 1
                if frame.tried < above.n_children:
                    break
            else:
                return at, coded
        else:
            walk.stack[depth].node, walk.stack[depth].tried = node, 0
        frame = walk.stack[depth]
        above = walk.nodes[frame.node]
        if walk.columns[above.feature].asked == 0:
            path[n_path] = above.feature
            n_path += 1
        enter_branch(walk, frame.node, frame.tried, depth)
        node = above.first_child + frame.tried
        depth += 1
