"""Concatenate trees into one set of arrays, for vectorized scoring, files and checks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError
from treekit.model.tree import (
    FIELD_DTYPES,
    PER_NODE_FIELDS,
    Split,
    Tree,
    concatenate_slices,
    empty_offsets,
    iter_chunks,
)

__all__ = [
    "BATCH_NODES",
    "allocate_level_table",
    "batch_trees",
    "compute_root_offsets",
    "concatenate_trees",
    "fill_level_table",
    "find_level_splits",
    "split_trees",
]


# ---------------------------------------------------------------- concatenated trees

BATCH_NODES = 2**15
"""Nodes that are processed in one batch: one call per tree is slow for small trees, and a copy
of a complete forest takes too much memory."""

_BRANCHES_PER_NODE = 16
"""Entries of `Tree.level_branch` that take as much memory as a node."""

_MAX_NODES = np.iinfo(np.int32).max

# CSR offsets and the arrays that they index, by node and by surrogate.
_NODE_ENTRIES = {
    "level_offsets": ("level_branch",),
    "term_offsets": ("term_feature", "term_weight"),
    "surrogate_offsets": (
        *("surrogate_feature", "surrogate_threshold"),
        *("surrogate_below", "surrogate_above", "surrogate_lost"),
    ),
}
_SURROGATE_ENTRIES = {"surrogate_level_offsets": ("surrogate_level_branch",)}


def batch_trees(trees: Sequence[Tree], max_nodes: int) -> Iterator[Sequence[Tree]]:
    """Yield the trees in order, in batches of up to `max_nodes` nodes, or of one larger tree.

    Entries of `Tree.level_branch` count as nodes in proportion to their memory.
    """
    sizes = [
        tree.n_nodes
        + (len(tree.level_branch) + len(tree.surrogate_level_branch)) // _BRANCHES_PER_NODE
        for tree in trees
    ]
    first = 0
    while first < len(trees):
        last, nodes = first + 1, sizes[first]
        while last < len(trees) and nodes + sizes[last] <= max_nodes:
            nodes += sizes[last]
            last += 1
        yield trees[first:last]
        first = last


def concatenate_trees(trees: Sequence[Tree]) -> tuple[Tree, npt.NDArray[np.int64]]:
    """Concatenate the arrays of all trees; the inverse of `split_trees`.

    The arrays of a single tree are not copied.

    Returns
    -------
    nodes : Tree
        Not a tree: children and offsets are relative to the first node of all trees.
    roots : (trees + 1,) int64
        Tree t consists of the nodes ``roots[t]`` to ``roots[t + 1]``.
    """
    roots = compute_root_offsets(trees)
    starts = _NODE_ENTRIES | _SURROGATE_ENTRIES
    joined = {
        name: _concatenate_arrays([getattr(tree, name) for tree in trees])
        for name in FIELD_DTYPES
        if name not in starts
    }
    shift = np.repeat(roots[:-1], np.diff(roots))
    # Clip, so that an invalid child cannot overflow int32 and wrap into a valid range.
    child = np.minimum(joined["first_child"] + shift, _MAX_NODES)
    joined["first_child"] = np.where(joined["kind"] == Split.LEAF, -1, child)
    for name in starts:
        own = [getattr(tree, name) for tree in trees]
        ends = np.cumsum([0] + [int(start[-1]) for start in own])
        if ends[-1] == 0 and not any(start.any() for start in own):
            joined[name] = empty_offsets(sum(len(start) - 1 for start in own))
            continue
        parts = [start[:-1] + at for start, at in zip(own, ends[:-1], strict=True)]
        joined[name] = np.concatenate([*parts, ends[-1:]])
    return Tree(**joined), roots


def compute_root_offsets(trees: Sequence[Tree]) -> npt.NDArray[np.int64]:
    """Return (trees + 1,) int64 offsets: tree t has the nodes ``roots[t]`` to ``roots[t + 1]``."""
    roots = np.cumsum([0] + [tree.n_nodes for tree in trees]).astype(np.int64)
    if roots[-1] > _MAX_NODES:
        raise ModelError(f"the trees have {roots[-1]} nodes in total; the maximum is 2147483647")
    return roots


def _concatenate_arrays(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def split_trees(nodes: Tree, roots: npt.NDArray[np.int64]) -> tuple[Tree, ...]:
    """Split the arrays of `concatenate_trees` into trees; their arrays are views."""
    shift = np.repeat(roots[:-1], np.diff(roots))
    child = np.where(nodes.kind == Split.LEAF, -1, nodes.first_child - shift).astype(np.int32)
    trees = []
    for first, last in itertools.pairwise(roots.tolist()):
        own = {name: getattr(nodes, name)[first:last] for name in PER_NODE_FIELDS}
        own["first_child"] = child[first:last]
        for start, names in _NODE_ENTRIES.items():
            own |= _slice_entries(nodes, start, names, first, last)
        bounds = nodes.surrogate_offsets[[first, last]].tolist()
        for start, names in _SURROGATE_ENTRIES.items():
            own |= _slice_entries(nodes, start, names, *bounds)
        trees.append(Tree(**own))
    return tuple(trees)


def _slice_entries(
    nodes: Tree, start: str, names: tuple[str, ...], first: int, last: int
) -> dict[str, npt.NDArray[np.generic]]:
    """Return the offsets of nodes or surrogates `first` to `last`, and views of their entries."""
    own = getattr(nodes, start)[first : last + 1]
    found = {name: getattr(nodes, name)[own[0] : own[-1]] for name in names}
    return {start: own - own[0], **found}


# ---------------------------------------------------------------- level tables
# One lookup table of branches for all splits on categories.
#
# A split's entries are the branch of a missing value, then that of each category.  The
# entries are as narrow as all branches allow, to save memory.

_MAX_BYTE_BRANCHES = np.iinfo(np.uint8).max
"""Most branches of a split for one-byte entries: the largest value means no branch."""


def find_level_splits(nodes: Tree, plain: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return an (n,) bool mask of the splits on categories among the nodes of mask `plain`."""
    mask: npt.NDArray[np.bool_] = (nodes.kind == Split.SUBSET) | (nodes.kind == Split.MULTIWAY)
    return mask & plain


def allocate_level_table(trees: Sequence[Tree], plain: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Allocate the branch table for the nodes of mask `plain` (nodes,) of all trees.

    Returns
    -------
    (entries,) uint8 or uint32
        Uninitialized; the largest value of the type is not a branch of any node.
    """
    entries = most = at = 0
    for tree in trees:
        level_splits = find_level_splits(tree, plain[at : at + tree.n_nodes])
        at += tree.n_nodes
        if level_splits.any():
            entries += int(
                np.diff(tree.level_offsets)[level_splits].sum() + np.count_nonzero(level_splits)
            )
            most = max(most, int(tree.n_children[level_splits].max()))
    return np.empty(entries, np.uint8 if most <= _MAX_BYTE_BRANCHES else np.uint32)


def fill_level_table(
    table: npt.NDArray[Any],
    at: int,
    nodes: Tree,
    level_splits: npt.NDArray[np.bool_],
    *,
    fractional: bool = False,
) -> npt.NDArray[np.int64]:
    """Write the entries of the nodes of mask `level_splits` to a table, from position `at` on.

    A category that was absent at a node takes the branch of missing values; if `fractional`
    (fractional instances), both entries are the largest value of the table's type.

    Returns
    -------
    (masked nodes + 1,) int64
        Offsets of the entries of each node in `table`.
    """
    own = np.flatnonzero(level_splits)
    first = nodes.level_offsets[own]
    sizes = nodes.level_offsets[own + 1] - first
    start = at + np.cumsum(np.append(0, sizes + 1))
    missing = nodes.missing[own].astype(table.dtype)
    if fractional:
        missing[:] = np.iinfo(table.dtype).max
    for part in iter_chunks(sizes):
        entries = table[start[part.start] : start[part.stop]]
        is_missing = np.zeros(len(entries), dtype=np.bool_)
        is_missing[start[part] - start[part.start]] = True
        branch = concatenate_slices(nodes.level_branch, first[part], sizes[part])
        instead = np.repeat(missing[part], sizes[part])
        entries[is_missing] = missing[part]
        entries[~is_missing] = np.where(branch < 0, instead, branch)
    return start
