"""Boxes, updated while a loop walks a tree, and the conditions of rules, read from them.

The set of inputs that reach a node is a box, the product of one set per column: an interval or
some categories, and whether missing values are included.  A node is reachable if and only if none
of these sets is empty, and a row that reaches it may take any member of each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel

# ---------------------------------------------------------------- boxes

# Values of `treekit.model.tree.Split`, which compiled code cannot read.
_LEAF = 0
_THRESHOLD = 1
_SUBSET = 2
_MULTIWAY = 3
_MISSING = 4

NODE_DTYPE = np.dtype(
    [
        *((name, np.int64) for name in ("kind", "feature", "first_child", "n_children")),
        *((name, np.int64) for name in ("missing", "level_start", "n_levels")),
        ("threshold", np.float64),
    ]
)
"""A node, as in `treekit.model.tree.Tree`; ``n_levels``, 0 unless it splits its own column's
categories, is its number of `level_branch` entries.

A negative ``missing`` stands for every branch: missing values are split fractionally.
"""

COLUMN_DTYPE = np.dtype(
    [
        *((name, np.float64) for name in ("low", "high")),
        *((name, np.int64) for name in ("no_missing", "no_known", "asked", "n_open")),
        *((name, np.int64) for name in ("first_level", "n_levels")),
        ("nominal", np.bool_),
    ]
)
"""The set of a column's values in the box.

Known numbers satisfy ``low < x <= high``.  ``no_missing``, ``no_known`` and ``asked``
count the splits of the decision path that exclude missing values, exclude known
values, and test the column at all; ``n_open`` is the number of categories that no split
excludes.
"""

FRAME_DTYPE = np.dtype(
    [*((name, np.int64) for name in ("node", "first", "tried", "phase")), ("saved", np.float64)]
)
"""A split of the decision path: its first branch, the number tried, and the replaced bound."""


class TreeWalk(NamedTuple):
    """One tree and the box of the current node.

    Attributes
    ----------
    nodes : (nodes,) NODE
    level_branch : (entries,) int32
    columns : (features,) COLUMN
    barred : (levels of all columns,) int64
        Number of splits that exclude a category; a column's start at ``first_level``.
    stack : (depth,) FRAME
    """

    nodes: Any
    level_branch: Any
    columns: Any
    barred: Any
    stack: Any


def make_walk(
    tree: Any, n_levels: npt.NDArray[np.int64], nominal: Any, bar: Any, room: int
) -> TreeWalk:
    """Start a walk at the root of a `treekit.model.tree.Tree`, with a stack of `room` frames.

    All values reach the root, missing ones only if `bar`, one for all columns or
    one for each, is 0.
    """
    nodes = np.zeros(tree.n_nodes, dtype=NODE_DTYPE)
    for name in ("kind", "feature", "first_child", "n_children", "missing", "threshold"):
        nodes[name] = getattr(tree, name)
    # A test of several columns is a THRESHOLD on its outcome: its entries are not its column's.
    own_entries = (tree.kind == _SUBSET) | (tree.kind == _MULTIWAY)
    nodes["level_start"] = tree.level_offsets[:-1]
    nodes["n_levels"] = np.where(own_entries, np.diff(tree.level_offsets), 0)
    columns = np.zeros(len(n_levels), dtype=COLUMN_DTYPE)
    columns["low"], columns["high"], columns["no_missing"] = -np.inf, np.inf, bar
    columns["n_levels"] = columns["n_open"] = n_levels
    columns["first_level"] = np.cumsum(n_levels) - n_levels
    columns["nominal"] = nominal
    barred = np.zeros(int(n_levels.sum()), dtype=np.int64)
    branches = tree.level_branch.astype(np.int32)
    return TreeWalk(nodes, branches, columns, barred, np.zeros(room, dtype=FRAME_DTYPE))


@kernel
def enter_branch(walk: Any, above: int, branch: int, depth: int) -> None:
    """Restrict the box to the inputs that take `branch` at node `above`."""
    _count_exclusions(walk, above, branch, 1)
    node = walk.nodes[above]
    column = walk.columns[node.feature]
    if node.kind == _THRESHOLD:
        if branch == 0:
            walk.stack[depth].saved = column.high
            column.high = min(column.high, node.threshold)
        else:
            walk.stack[depth].saved = column.low
            column.low = max(column.low, node.threshold)


@kernel
def leave_branch(walk: Any, above: int, branch: int, depth: int) -> None:
    """Undo `enter_branch`."""
    _count_exclusions(walk, above, branch, -1)
    node = walk.nodes[above]
    if node.kind == _THRESHOLD:
        if branch == 0:
            walk.columns[node.feature].high = walk.stack[depth].saved
        else:
            walk.columns[node.feature].low = walk.stack[depth].saved


@kernel
def _count_exclusions(walk: Any, above: int, branch: int, step: int) -> None:
    """Add `step` to the counts of what the split of node `above` excludes from `branch`."""
    node = walk.nodes[above]
    column = walk.columns[node.feature]
    column.asked += step
    if node.kind == _MISSING and branch == 0:
        column.no_known += step
    elif node.kind == _MISSING or (node.missing != branch and node.missing >= 0):
        column.no_missing += step
    for level in range(node.n_levels):  # none, unless the split is on categories
        goes = walk.level_branch[node.level_start + level]
        goes = node.missing if goes < 0 else goes
        if goes != branch and goes >= 0:
            at = column.first_level + level
            column.n_open -= walk.barred[at] == 0
            walk.barred[at] += step
            column.n_open += walk.barred[at] == 0


@kernel
def enter_next_branch(walk: Any, depth: int) -> tuple[int, int]:
    """Enter the next branch that an input can take, of the last split or of one further up.

    Returns
    -------
    node : int
        The child at the end of the branch; -1 at the end of the walk.
    depth : int
        Number of splits of the decision path: the used frames of the stack.
    """
    while depth > 0:
        frame = walk.stack[depth - 1]
        above = walk.nodes[frame.node]
        if frame.tried >= 0:
            leave_branch(walk, frame.node, frame.tried, depth - 1)
        frame.tried += 1
        if frame.tried == above.n_children:
            depth -= 1
            continue
        enter_branch(walk, frame.node, frame.tried, depth - 1)
        if has_values(walk.columns[above.feature]):
            return np.int64(above.first_child + frame.tried), depth
    return np.int64(-1), depth


@kernel
def has_known_values(column: Any) -> bool:
    """Check whether the box contains any known value of a column."""
    some = column.n_open > 0 if column.nominal else column.low < column.high
    return column.no_known == 0 and some


@kernel
def has_values(column: Any) -> bool:
    """Check whether the box contains any value of a column, including missing."""
    return column.no_missing == 0 or has_known_values(column)


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
    walk : TreeWalk
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
