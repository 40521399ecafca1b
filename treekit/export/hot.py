"""The tests that most training rows met, as trees of their own above the table of all nodes.

A processor guesses where a test leads, and guesses best where each test is an
instruction of its own: nested tests answer a row in half the time that a walk
through a table takes, which waits for each node (see Asadi, Lin and de Vries,
Runtime optimizations for tree-based machine learning models, IEEE TKDE 26, 2014).
But compilers take a second for each four thousand of them.  So the tests that are
met most often are nested, and a table has the others.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from treekit.export.lower import LoweredTree, Step
from treekit.model.concatenated import join
from treekit.model.derived_features import DerivedColumns
from treekit.model.tree import Split, Tree

__all__ = ["hot_trees"]

_NO_SETS: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)


def hot_trees(
    trees: tuple[Tree, ...], derived: DerivedColumns, most: int
) -> tuple[LoweredTree, ...]:
    """The heaviest nodes of all trees that compare a number, with all their ancestors.

    Parameters
    ----------
    trees : tuple of Tree
    derived : DerivedColumns
        Of the model of the trees: its columns are asked by tables alone.
    most : int
        Tests of all trees together.

    Returns
    -------
    tuple of LoweredTree
        One a tree, without sets.  ``leaf`` is the node that is asked next, or is
        the leaf, counted over all trees as `treekit.model.concatenated.join` counts.
    """
    nodes, roots = join(trees)
    hot = _heaviest(nodes, roots, (nodes.kind == Split.THRESHOLD) & (derived.column < 0), most)
    place = np.empty(nodes.n_nodes, dtype=np.int64)
    return tuple(_above(nodes, root, hot, place) for root in roots[:-1].tolist())


def _heaviest(
    nodes: Tree, roots: npt.NDArray[np.int64], may: npt.NDArray[np.bool_], most: int
) -> npt.NDArray[np.bool_]:
    """(nodes,) bool: `most` of those that `may` be chosen, each below chosen ones alone.

    Of nodes of one weight, as in models that lack weights, those nearest to a root.
    """
    chosen = np.zeros(nodes.n_nodes, dtype=np.bool_)
    # A heap of Python's numbers: a node is pushed once, and few of them are.
    heap = [(-float(nodes.weight[root]), 0, root) for root in roots[:-1].tolist() if may[root]]
    heapq.heapify(heap)
    for _ in range(most):
        if not heap:
            break
        _, depth, at = heapq.heappop(heap)
        chosen[at] = True
        first = int(nodes.first_child[at])
        for child in (first, first + 1):
            if may[child]:
                heapq.heappush(heap, (-float(nodes.weight[child]), depth + 1, child))
    return chosen


def _above(
    nodes: Tree, root: int, hot: npt.NDArray[np.bool_], place: npt.NDArray[np.int64]
) -> LoweredTree:
    """The chosen nodes of one tree, and what follows them as leaves; `place` (nodes,) is lent."""
    order, todo = [], [root]
    while todo:
        at = todo.pop()
        order.append(at)
        if hot[at]:
            first = int(nodes.first_child[at])
            todo += [first + 1, first]
    own = np.array(order)
    place[own] = np.arange(len(own))
    inner = hot[own]
    yes = np.where(inner, place[nodes.first_child[own]], -1)
    no = np.where(inner, place[nodes.first_child[own] + inner], -1)
    return LoweredTree(
        kind=np.where(inner, Step.LE, Step.LEAF).astype(np.uint8),
        feature=np.where(inner, nodes.feature[own], -1).astype(np.int32),
        threshold=np.where(inner, nodes.threshold[own], np.nan),
        missing_yes=inner & (nodes.missing[own] == 0),
        yes=yes.astype(np.int32),
        no=no.astype(np.int32),
        leaf=np.where(inner, -1, own),
        set_start=np.zeros(len(own) + 1, dtype=np.int64),
        set_codes=_NO_SETS,
        depth=0,
    )
