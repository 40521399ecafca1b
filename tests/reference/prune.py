"""Slow pruning by enumeration of all pruned trees, in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

from treekit.model.tree import Tree

__all__ = ["best_prunings", "cuts", "leaves_under", "prunings", "weakest_links"]


def children(tree: Tree, node: int) -> list[int]:
    """List the children of a node."""
    first = int(tree.first_child[node])
    return list(range(first, first + int(tree.n_children[node])))


def leaves_under(tree: Tree, node: int, cut: frozenset[int]) -> list[int]:
    """List the leaves at or below a node if the nodes `cut` are leaves."""
    if node in cut or not children(tree, node):
        return [node]
    return [leaf for child in children(tree, node) for leaf in leaves_under(tree, child, cut)]


def prunings(tree: Tree, node: int = 0) -> Iterator[frozenset[int]]:
    """Yield all prunings of the subtree of a node, as sets of leaves."""
    yield frozenset([node])
    below = [list(prunings(tree, child)) for child in children(tree, node)]
    if below:
        for parts in product(*below):
            yield frozenset().union(*parts)


def best_prunings(tree: Tree, risk: Sequence[Fraction]) -> list[frozenset[int]]:
    """List the leaf sets with minimum total risk."""
    every = list(prunings(tree))
    unit = math.lcm(*(part.denominator for part in risk))
    whole = [int(part * unit) for part in risk]  # integer sums are exact and fast
    costs = [sum(whole[leaf] for leaf in leaves) for leaves in every]
    least = min(costs)
    return [leaves for leaves, cost in zip(every, costs, strict=True) if cost == least]


def weakest_links(tree: Tree, risk: Sequence[Fraction]) -> list[tuple[Fraction, list[int]]]:
    """Return alphas and leaves of the nested sequence (Breiman et al. 1984, section 3.3).

    It starts with alpha 0 and the smallest tree with the risk of the full one; each step cuts
    all weakest links.
    """
    cut: frozenset[int] = frozenset()
    alpha = Fraction(0)
    steps = []
    while True:
        strength = {}
        for node in open_nodes(tree, 0, cut):
            leaves = leaves_under(tree, node, cut)
            gain = risk[node] - sum((risk[leaf] for leaf in leaves), Fraction(0))
            strength[node] = gain / (len(leaves) - 1)
        weakest = min(strength.values(), default=None)
        if weakest is None or weakest > alpha:
            steps.append((alpha, leaves_under(tree, 0, cut)))
            if weakest is None:
                return steps
            alpha = weakest
        cut |= {node for node, link in strength.items() if link <= alpha}


def open_nodes(tree: Tree, node: int, cut: frozenset[int]) -> list[int]:
    """List the inner nodes at or below a node that are not cut off."""
    if node in cut or not children(tree, node):
        return []
    below = [open_nodes(tree, child, cut) for child in children(tree, node)]
    return [node, *(inner for part in below for inner in part)]


def cuts(tree: Tree, leaves: Sequence[int] | frozenset[int]) -> list[int]:
    """List the inner nodes of the full tree among `leaves`, ascending."""
    return sorted(leaf for leaf in leaves if children(tree, leaf))
