"""Many trees in one set of arrays, for work on whole arrays: scoring, files, checks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError
from treekit.model.idle import no_entries
from treekit.model.tree import DTYPES, PER_NODE, Split, Tree

__all__ = ["GROUP", "groups", "join", "roots_of", "separate"]

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
