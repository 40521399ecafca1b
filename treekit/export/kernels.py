"""Lowering of the nodes of a tree to binary nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.kernels.compile import kernel

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
