"""Verify that tables of binary nodes predict like the trees, on every path.

The inputs that reach a leaf of a tree are a box (see `treekit.rules.kernels`).
The tables are walked with the complete box: if it lies on one side of a test, the walk
goes on there; otherwise both sides are walked with their part of the box.  If all
ends have the value of the leaf, tables and trees agree on every input of the
box; if not, any member of that part of the box is a counterexample.
Tables generated from the trees never split a box, so that this takes one walk per leaf.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treekit.kernels.compile import kernel
from treekit.rules.kernels import enter_next_branch, has_known_values

# Values of `treekit.model.tree.Split`, which compiled code cannot read.
_LEAF = 0
_LE_NO, _LE_YES, _IN, _MISSING, _EQ_NO, _EQ_YES = range(6)

BACKTRACK_DTYPE = np.dtype(
    [*((name, np.int64) for name in ("node", "side")), ("saved", np.float64)]
)
"""A test that splits the box: its node, the side being walked, and the replaced bound."""


class BinaryNodes(NamedTuple):
    """Binary nodes of all trees; a child comes after its parent.

    Attributes
    ----------
    feature : (nodes,) int64
    kind : (nodes,) int64
        Condition of the `yes` branch.  0: ``x <= value``; 1: ``x <= value`` or missing;
        2: the code is in the node's set; 3: missing; 4: ``x == value``; 5: ``x == value``
        or missing.
    value : (nodes,) float64
    yes, no : (nodes,) int64
        Next nodes, or ``-1 - v`` for leaf v.
    root : (trees,) int64
    set_offsets : (nodes + 1,) int64
    set_codes : (codes,) int64
    value_ids : (leaves,) int64
        Id of each leaf's value.
    """

    feature: Any
    kind: Any
    value: Any
    yes: Any
    no: Any
    root: Any
    set_offsets: Any
    set_codes: Any
    value_ids: Any


@kernel
def compute_depth(yes: Any, no: Any) -> int:
    """Return the depth of the deepest leaf; -1 if a child does not come after its parent."""
    depth = np.zeros(len(yes) + 1, dtype=np.int64)
    deepest = np.int64(0)
    for node in range(len(yes)):
        for child in (yes[node], no[node]):
            if child >= 0:
                if child <= node or child >= len(yes):
                    return np.int64(-1)
                depth[child] = max(depth[child], depth[node] + 1)
        deepest = max(deepest, depth[node] + 1)
    return deepest


@kernel
def _is_yes_for_category(tables: Any, at: int, level: int) -> bool:
    """Check whether a category takes the yes branch."""
    kind = tables.kind[at]
    if kind in (_LE_NO, _LE_YES):
        return level <= tables.value[at]
    if kind in (_EQ_NO, _EQ_YES):
        return level == tables.value[at]
    first, last = tables.set_offsets[at], tables.set_offsets[at + 1]
    place = first + np.searchsorted(tables.set_codes[first:last], level)
    return place < last and tables.set_codes[place] == level


@kernel
def _is_yes_for_missing(tables: Any, at: int) -> bool:
    kind = tables.kind[at]
    return kind in (_LE_YES, _MISSING, _EQ_YES)


@kernel
def _find_known_sides(walk: Any, tables: Any, at: int) -> tuple[bool, bool]:
    """Check whether known values of the box take the yes branch, and the no branch."""
    column = walk.columns[tables.feature[at]]
    kind, value = tables.kind[at], tables.value[at]
    if not has_known_values(column):
        return False, False
    if kind == _MISSING:
        return False, True
    if not column.nominal:
        if kind in (_LE_NO, _LE_YES):
            return column.low < value, value < column.high
        inside = column.low < value <= column.high
        return inside, not inside or column.low < np.nextafter(column.high, -np.inf)
    if kind == _IN:
        members = np.int64(0)
        for place in range(tables.set_offsets[at], tables.set_offsets[at + 1]):
            code = tables.set_codes[place]
            if 0 <= code < column.n_levels and walk.barred[column.first_level + code] == 0:
                members += 1
        return members > 0, members < column.n_open
    some, others = False, False
    for level in range(column.n_levels):
        if walk.barred[column.first_level + level] == 0:
            if _is_yes_for_category(tables, at, level):
                some = True
            else:
                others = True
    return some, others


@kernel
def _restrict_box(walk: Any, tables: Any, end: Any, step: int) -> None:
    """Restrict the box to one side of a test (step 1), or undo that (step -1)."""
    at, yes = end.node, end.side == 0
    column = walk.columns[tables.feature[at]]
    kind, value = tables.kind[at], tables.value[at]
    if _is_yes_for_missing(tables, at) != yes:
        column.no_missing += step
    if kind == _MISSING:
        if yes:
            column.no_known += step
    elif column.nominal:
        for level in range(column.n_levels):
            if _is_yes_for_category(tables, at, level) != yes:
                place = column.first_level + level
                column.n_open -= step if walk.barred[place] == (0 if step > 0 else 1) else 0
                walk.barred[place] += step
    elif step < 0:
        if yes:
            column.high = end.saved
        else:
            column.low = end.saved
    elif yes:
        end.saved, column.high = column.high, min(column.high, value)
    else:
        end.saved, column.low = column.low, max(column.low, value)


@kernel
def _fill_row(walk: Any, row: Any) -> None:
    """Write a member of the box to `row`."""
    for f in range(len(row)):
        column = walk.columns[f]
        row[f] = np.nan
        if not has_known_values(column):
            continue
        if column.nominal:
            for level in range(column.n_levels):
                if walk.barred[column.first_level + level] == 0:
                    row[f] = level
                    break
        elif column.high < np.inf:
            row[f] = column.high
        else:
            row[f] = np.nextafter(column.low, np.inf) if column.low > -np.inf else 0.0


@kernel
def _compare_leaf(walk: Any, tables: Any, root: int, value_id: int, ends: Any, row: Any) -> int:
    """Return the steps of the walk with the box; negative if an end has another value."""
    at, top, steps = root, np.int64(0), np.int64(0)
    while True:
        while at >= 0:
            steps += 1
            known_yes, known_no = _find_known_sides(walk, tables, at)
            missing = walk.columns[tables.feature[at]].no_missing == 0
            missing_yes = _is_yes_for_missing(tables, at)
            some_yes = known_yes or (missing and missing_yes)
            some_no = known_no or (missing and not missing_yes)
            if some_yes and some_no:
                ends[top].node, ends[top].side = at, 0
                _restrict_box(walk, tables, ends[top], 1)
                top += 1
                at = tables.yes[at]
            elif some_yes:
                at = tables.yes[at]
            else:
                at = tables.no[at]
        equal = tables.value_ids[-1 - at] == value_id
        if not equal:
            _fill_row(walk, row)
        going = False
        while top > 0 and not going:
            end = ends[top - 1]
            _restrict_box(walk, tables, end, -1)
            if end.side == 0 and equal:
                end.side = 1
                _restrict_box(walk, tables, end, 1)
                at, going = tables.no[end.node], True
            else:
                top -= 1
        if not equal:
            return -steps
        if not going:
            return steps


@kernel
def compare_with_tables(
    walk: Any, roots: Any, value_ids: Any, tables: Any, ends: Any, most: int, rows: Any
) -> tuple[int, int, int]:
    """Compare tables with trees, on every path.

    Parameters
    ----------
    walk : treekit.rules.kernels.TreeWalk
        The nodes of all trees concatenated, at no node, with room for the depth.
    roots : (trees,) int64
    value_ids : (nodes,) int64
        Id of each leaf's value, in the trees.
    tables : BinaryNodes
    ends : (depth,) END
    most : int
        Steps after which the comparison is stopped.
    rows : (rows, features) float64
        Output: a row for each path that differs, until it is full.

    Returns
    -------
    trees, paths, differing : int
        Number of trees compared, of paths that agree, and of paths that differ.
    """
    paths, differing, steps = np.int64(0), np.int64(0), np.int64(0)
    depth = np.int64(0)
    for tree in range(len(roots)):
        node = roots[tree]
        while node >= 0:
            if walk.nodes[node].kind != _LEAF:
                walk.stack[depth].node, walk.stack[depth].tried = node, -1
                depth += 1
            else:
                taken = _compare_leaf(
                    walk, tables, tables.root[tree], value_ids[node], ends, rows[differing]
                )
                steps += abs(taken)
                if taken < 0 or (
                    taken == 0 and tables.value_ids[-1 - tables.root[tree]] != value_ids[node]
                ):
                    differing += 1
                else:
                    paths += 1
                if differing == len(rows) or steps > most:
                    return tree, paths, differing
            node, depth = enter_next_branch(walk, depth)
    return len(roots), paths, differing
