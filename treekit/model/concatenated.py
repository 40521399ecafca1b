"""Many trees in one set of arrays, for work on whole arrays: scoring, files, checks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError
from treekit.model.tree import DTYPES, PER_NODE, Split, Tree, gathered, no_entries, stretches

__all__ = [
    "GROUP",
    "asks_levels",
    "fill_levels",
    "groups",
    "join",
    "level_room",
    "roots_of",
    "separate",
]


# ---------------------------------------------------------------- joined

GROUP = 2**15
"""Nodes of trees that are worked on at once: a call an array is dear for a small tree, and the
copy of a large forest in one piece for its memory."""

_LEVELS = 16
"""Branches of levels that take as much memory as a node."""

_MOST_NODES = np.iinfo(np.int32).max

# What the nodes own, and what the surrogates own: starts, and the arrays they give out.
_OF_NODES = {
    "level_start": ("level_branch",),
    "term_start": ("term_feature", "term_weight"),
    "surrogate_start": (
        *("surrogate_feature", "surrogate_threshold"),
        *("surrogate_below", "surrogate_above", "surrogate_lost"),
    ),
}
_OF_SURROGATES = {"surrogate_level_start": ("surrogate_level_branch",)}


def groups(trees: Sequence[Tree], most: int) -> Iterator[Sequence[Tree]]:
    """The trees in their order, a few at a time: of up to `most` nodes in all, or just one.

    Branches of levels count as nodes, too, as the memory that they take.
    """
    sizes = [
        tree.n_nodes + (len(tree.level_branch) + len(tree.surrogate_level_branch)) // _LEVELS
        for tree in trees
    ]
    first = 0
    while first < len(trees):
        last, nodes = first + 1, sizes[first]
        while last < len(trees) and nodes + sizes[last] <= most:
            nodes += sizes[last]
            last += 1
        yield trees[first:last]
        first = last


def join(trees: Sequence[Tree]) -> tuple[Tree, npt.NDArray[np.int64]]:
    """All trees in one set of arrays, as `check_forest` takes it; undone by `separate`.

    What a single tree has is not copied.

    Returns
    -------
    nodes : Tree
        Not a tree: children and whatever nodes own count from the first node of all.
    roots : (trees + 1,) int64
        Tree t owns nodes ``roots[t]`` to ``roots[t + 1]``.
    """
    roots = roots_of(trees)
    starts = _OF_NODES | _OF_SURROGATES
    joined = {
        name: _one([getattr(tree, name) for tree in trees]) for name in DTYPES if name not in starts
    }
    shift = np.repeat(roots[:-1], np.diff(roots))
    # A child that no tree can have must not come to lie in one by wrapping around.
    child = np.minimum(joined["first_child"] + shift, _MOST_NODES)
    joined["first_child"] = np.where(joined["kind"] == Split.LEAF, -1, child)
    for name in starts:
        own = [getattr(tree, name) for tree in trees]
        ends = np.cumsum([0] + [int(start[-1]) for start in own])
        if ends[-1] == 0 and not any(start.any() for start in own):
            joined[name] = no_entries(sum(len(start) - 1 for start in own))
            continue
        parts = [start[:-1] + at for start, at in zip(own, ends[:-1], strict=True)]
        joined[name] = np.concatenate([*parts, ends[-1:]])
    return Tree(**joined), roots


def roots_of(trees: Sequence[Tree]) -> npt.NDArray[np.int64]:
    """(trees + 1,) int64: tree t owns nodes ``roots[t]`` to ``roots[t + 1]`` of all trees."""
    roots = np.cumsum([0] + [tree.n_nodes for tree in trees]).astype(np.int64)
    if roots[-1] > _MOST_NODES:
        raise ModelError(f"the trees have {roots[-1]} nodes in all; the bound is 2147483647")
    return roots


def _one(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def separate(nodes: Tree, roots: npt.NDArray[np.int64]) -> tuple[Tree, ...]:
    """The trees that `join` joined; their arrays are views."""
    shift = np.repeat(roots[:-1], np.diff(roots))
    child = np.where(nodes.kind == Split.LEAF, -1, nodes.first_child - shift).astype(np.int32)
    trees = []
    for first, last in itertools.pairwise(roots.tolist()):
        own = {name: getattr(nodes, name)[first:last] for name in PER_NODE}
        own["first_child"] = child[first:last]
        for start, names in _OF_NODES.items():
            own |= _owned(nodes, start, names, first, last)
        bounds = nodes.surrogate_start[[first, last]].tolist()
        for start, names in _OF_SURROGATES.items():
            own |= _owned(nodes, start, names, *bounds)
        trees.append(Tree(**own))
    return tuple(trees)


def _owned(
    nodes: Tree, start: str, names: tuple[str, ...], first: int, last: int
) -> dict[str, npt.NDArray[np.generic]]:
    """Starts of the owners `first` to `last`, and views of what they own."""
    own = getattr(nodes, start)[first : last + 1]
    found = {name: getattr(nodes, name)[own[0] : own[-1]] for name in names}
    return {start: own - own[0], **found}


# ---------------------------------------------------------------- level tables
# Branches of level splits as one table: what walks look up.
#
# A split's entries are the branch of a missing value, then that of each level, as narrow
# as the branches of all splits allow: categories may be many, and nodes, too.

_NARROW = np.iinfo(np.uint8).max
"""Branches at most of a split whose entries take a byte: the last number means none."""


def asks_levels(nodes: Tree, plain: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """(n,) bool: the level splits among the nodes of the mask `plain`."""
    asks: npt.NDArray[np.bool_] = (nodes.kind == Split.SUBSET) | (nodes.kind == Split.MULTIWAY)
    return asks & plain


def level_room(trees: Sequence[Tree], plain: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """The table of the `plain` nodes (nodes,) of all trees, to be filled.

    Returns
    -------
    (entries,) uint8 or uint32
        The largest number of its type is no branch of any node.
    """
    entries = most = at = 0
    for tree in trees:
        asks = asks_levels(tree, plain[at : at + tree.n_nodes])
        at += tree.n_nodes
        if asks.any():
            entries += int(np.diff(tree.level_start)[asks].sum() + np.count_nonzero(asks))
            most = max(most, int(tree.n_children[asks].max()))
    return np.empty(entries, np.uint8 if most <= _NARROW else np.uint32)


def fill_levels(
    table: npt.NDArray[Any],
    at: int,
    nodes: Tree,
    asks: npt.NDArray[np.bool_],
    *,
    divides: bool = False,
) -> npt.NDArray[np.int64]:
    """Write the entries of the nodes of a mask from place `at` of a table on.

    A level that was absent at a node takes the branch of missing values; if rows divide,
    both have the largest number of the table's type.

    Returns
    -------
    (asking nodes + 1,) int64
        Where the entries of each start in `table`, and where the last one's end.
    """
    own = np.flatnonzero(asks)
    first = nodes.level_start[own]
    sizes = nodes.level_start[own + 1] - first
    start = at + np.cumsum(np.append(0, sizes + 1))
    missing = nodes.missing[own].astype(table.dtype)
    if divides:
        missing[:] = np.iinfo(table.dtype).max
    for part in stretches(sizes):
        entries = table[start[part.start] : start[part.stop]]
        is_missing = np.zeros(len(entries), dtype=np.bool_)
        is_missing[start[part] - start[part.start]] = True
        branch = gathered(nodes.level_branch, first[part], sizes[part])
        instead = np.repeat(missing[part], sizes[part])
        entries[is_missing] = missing[part]
        entries[~is_missing] = np.where(branch < 0, instead, branch)
    return start
