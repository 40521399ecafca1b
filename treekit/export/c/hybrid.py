"""Hybrid layout of C source: nested tests for the most visited nodes, a table for the others."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treekit.export.c.layouts import (
    CLayout,
    CTypes,
    compute_nested_values,
    count_nested_calls,
    make_packed_layout,
)
from treekit.export.lowering import LeafTable, LoweredTree, Step
from treekit.model.model import Model
from treekit.model.tree import DerivedColumns, Split, Tree, concatenate_trees

# ---------------------------------------------------------------- c hybrid

_MAX_NESTED_TESTS = 5000
"""Nested tests: gcc 12 compiles them in 1.4 s; 13,000 take 3 s and run 12% faster (measured)."""


def make_hybrid_layout(model: Model, leaves: LeafTable, reason: str, types: CTypes) -> CLayout:
    """Make the hybrid layout: nested tests for the most visited nodes, a table for the others.

    Cells are converted on demand, because a row needs few of them.  Batches use only the
    table, with eight rows in turns, which is faster still.
    """
    made = make_packed_layout(model, leaves, reason, types)
    values, functions = compute_nested_values(
        model,
        extract_frequent_subtrees(model.trees, model.derived, _MAX_NESTED_TESTS),
        replace(leaves, row=np.arange(model.n_nodes)),
        types,
        "The upper tests of each tree; what they return is the number of the next node.",
    )
    in_blocks = made.block_rows > 0
    values["walks"] = ["walk/next", "walk/encode"] * in_blocks
    values["walks"] += ["walk/reach", "walk/tests", "walk/sums_tests"]
    return replace(
        made,
        name="hybrid",
        values=made.values | values,
        tables=[one for one in made.tables if in_blocks or one.name != "nominal"],
        row_stack=0,
        nested_calls=count_nested_calls(functions),
    )


# ---------------------------------------------------------------- frequent subtrees
# The tests that most training rows visit are nested; a table has the others.
#
# Branch prediction works best if each test is an instruction of its own: nested tests
# score a row in half the time of a traversal of a table, which stalls at each node
# (see Asadi, Lin and de Vries, Runtime optimizations for tree-based machine learning
# models, IEEE TKDE 26, 2014).  But compilers take a second for every four thousand tests.


def extract_frequent_subtrees(
    trees: tuple[Tree, ...], derived: DerivedColumns, most: int
) -> tuple[LoweredTree, ...]:
    """Extract the top of each tree: the numeric tests with the largest training weight.

    The ancestors of a chosen test are chosen as well.

    Parameters
    ----------
    trees : tuple of Tree
    derived : DerivedColumns
        Derived columns of the model; their tests remain in the table.
    most : int
        Maximum number of tests in all trees together.

    Returns
    -------
    tuple of LoweredTree
        One per tree, without sets.  ``leaf`` is the next node (a test or
        a leaf), numbered over all trees as in `treekit.model.tree.concatenate_trees`.
    """
    nodes, roots = concatenate_trees(trees)
    plain = (nodes.kind == Split.THRESHOLD) & (derived.column < 0)
    hot = _select_heaviest(nodes, roots, plain, most)
    place = np.empty(nodes.n_nodes, dtype=np.int64)
    return tuple(_build_subtree(nodes, root, hot, place) for root in roots[:-1].tolist())


def _select_heaviest(
    nodes: Tree, roots: npt.NDArray[np.int64], may: npt.NDArray[np.bool_], most: int
) -> npt.NDArray[np.bool_]:
    """Return a mask (nodes,) of the `most` heaviest nodes among `may` with chosen ancestors.

    Ties, as in models without weights, are broken by the distance to the root.
    """
    chosen = np.zeros(nodes.n_nodes, dtype=np.bool_)
    # A heap of Python numbers is fast enough: few nodes are pushed, each once.
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


def _build_subtree(
    nodes: Tree, root: int, hot: npt.NDArray[np.bool_], place: npt.NDArray[np.int64]
) -> LoweredTree:
    """Build a lowered tree of the chosen nodes, their other children as leaves.

    `place` (nodes,) is scratch memory.
    """
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
        set_codes=np.empty(0, dtype=np.int32),
        depth=0,
    )
