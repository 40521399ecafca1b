"""Whether one tree is what is left of another."""

from __future__ import annotations

from functools import cache

import numpy as np

from treekit.model.tree import Split, Tree

__all__ = ["is_subtree"]


def is_subtree(pruned: Tree, grown: Tree, *, values: bool) -> bool:
    """Whether `pruned` results from `grown` by cutting nodes off, or raising nodes below them.

    Parameters
    ----------
    values : bool
        Leaves must also say what the nodes said that they stand for: the cut
        node, or the one raised in its place.

    Notes
    -----
    A node stands for a node of `grown` or for one below it that asks the same;
    its branches then for the branches of that one.  Pairs of nodes are
    judged once: at most one for each two nodes.
    """
    below = [_below(grown, node) for node in range(grown.n_nodes)]

    @cache
    def stands_for(node: int, own: int) -> bool:
        if pruned.kind[node] == Split.LEAF:
            return not values or any(
                np.allclose(pruned.value[node], grown.value[at], rtol=1e-9, atol=1e-9)
                for at in below[own]
            )
        return any(_as(node, at) for at in below[own])

    def _as(node: int, at: int) -> bool:
        if not _asks_alike(pruned, node, grown, at):
            return False
        first, origin = int(pruned.first_child[node]), int(grown.first_child[at])
        return all(stands_for(first + b, origin + b) for b in range(int(grown.n_children[at])))

    return stands_for(0, 0)


def _below(tree: Tree, node: int) -> list[int]:
    """A node and all below it, itself first."""
    found = [node]
    for at in found:
        first = int(tree.first_child[at])
        found += range(first, first + int(tree.n_children[at]))
    return found


def _asks_alike(one: Tree, a: int, other: Tree, b: int) -> bool:
    for name in ("kind", "feature", "n_children", "missing"):
        if getattr(one, name)[a] != getattr(other, name)[b]:
            return False
    if one.kind[a] == Split.THRESHOLD and one.threshold[a] != other.threshold[b]:
        return False
    mine = one.level_branch[one.level_start[a] : one.level_start[a + 1]]
    return np.array_equal(mine, other.level_branch[other.level_start[b] : other.level_start[b + 1]])
