"""Many trees in one set of arrays, for work on whole arrays: scoring, files, checks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError
from treekit.model.tree import DTYPES, Split, Tree

__all__ = ["join", "separate"]


def join(trees: Sequence[Tree]) -> tuple[Tree, npt.NDArray[np.int64]]:
    """All trees in one set of arrays, as `check_forest` takes it; undone by `separate`.

    Returns
    -------
    nodes : Tree
        Not a tree: children and level entries count from the first node of all.
    roots : (trees + 1,) int64
        Tree t owns nodes ``roots[t]`` to ``roots[t + 1]``.
    """
    roots = np.cumsum([0] + [tree.n_nodes for tree in trees]).astype(np.int64)
    entries = np.cumsum([0] + [len(tree.level_branch) for tree in trees])
    if roots[-1] > np.iinfo(np.int32).max:
        raise ModelError(f"the trees have {roots[-1]} nodes in all; the bound is 2147483647")
    joined = {name: np.concatenate([getattr(tree, name) for tree in trees]) for name in DTYPES}
    shift = np.repeat(roots[:-1], np.diff(roots))
    joined["first_child"] = np.where(
        joined["kind"] == Split.LEAF, -1, joined["first_child"] + shift
    )
    starts = [tree.level_start[:-1] + at for tree, at in zip(trees, entries[:-1], strict=True)]
    joined["level_start"] = np.concatenate([*starts, entries[-1:]])
    return Tree(**joined), roots


def separate(nodes: Tree, roots: npt.NDArray[np.int64]) -> tuple[Tree, ...]:
    """The trees that `join` joined; their arrays are views."""
    shift = np.repeat(roots[:-1], np.diff(roots))
    child = np.where(nodes.kind == Split.LEAF, -1, nodes.first_child - shift).astype(np.int32)
    trees = []
    for first, last in itertools.pairwise(roots.tolist()):
        start = nodes.level_start[first : last + 1]
        own = {name: getattr(nodes, name)[first:last] for name in DTYPES}
        own["first_child"] = child[first:last]
        own["level_start"] = start - start[0]
        own["level_branch"] = nodes.level_branch[start[0] : start[-1]]
        trees.append(Tree(**own))
    return tuple(trees)
