"""Lowered trees as the node lists of ONNX's tree operators.

Every question becomes ``BRANCH_LEQ``, the one mode that every runtime has
always run right:

LE
    as it is, ``nodes_missing_value_tracks_true`` where missing values say yes.
MISSING
    ``x <= inf``, branches exchanged: only NaN fails it.
IN
    a chain of one test a boundary between members and others.  Codes count
    up, so ``x <= bound`` cuts them off run by run, and NaN falls through to the
    end of the chain: the no branch.  Codes must be clean by then, whole numbers
    of the vocabulary or NaN; `treekit.export.onnx` puts that in front.

Why not a chain of ``BRANCH_EQ``, one test a member: onnxruntime 1.21 and 1.22
merge such chains and then misread trees that hold nothing else (1,253 of 6,060
random batches wrong; none in 1.20 and 1.31).  A range of any length also costs
two tests at most, and no set more than two a member.

The tests of a chain share their targets.  Only true branches do: onnxruntime
lays out false branches first and refuses a shared one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.export.lower import LoweredTree, Step

__all__ = ["OnnxNodes", "onnx_nodes"]


@dataclass(frozen=True, slots=True)
class OnnxNodes:
    """Nodes of all trees, one tree after the other, each tree's root first.

    Attributes
    ----------
    tree, node : (m,) int64
        Number of the tree, and of the node within it.
    is_leaf : (m,) bool
        Leaves; all others are ``BRANCH_LEQ``.
    feature : (m,) int64
        0 in leaves.
    value : (m,) float64
        Threshold, a number of the model's input type; 0 in leaves.
    missing_true : (m,) bool
        Whether NaN takes the true branch.
    true, false : (m,) int64
        Numbers within the tree; 0 in leaves.
    row : (leaves,) int64
        Row of `Model.units` of each leaf, in order.
    depth : int
        Edges from a root to the deepest leaf, each test of a chain counted.
    """

    tree: npt.NDArray[np.int64]
    node: npt.NDArray[np.int64]
    is_leaf: npt.NDArray[np.bool_]
    feature: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]
    missing_true: npt.NDArray[np.bool_]
    true: npt.NDArray[np.int64]
    false: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    depth: int


def onnx_nodes(trees: tuple[LoweredTree, ...]) -> OnnxNodes:
    """The nodes of lowered trees; whole-array work only."""
    counts = np.array([tree.n_nodes for tree in trees], dtype=np.int64)
    first = np.cumsum(counts) - counts  # where each tree begins
    kind = np.concatenate([tree.kind for tree in trees])
    yes = np.concatenate([tree.yes + at for tree, at in zip(trees, first, strict=True)])
    no = np.concatenate([tree.no + at for tree, at in zip(trees, first, strict=True)])
    is_set = kind == Step.IN
    bounds, bound_says_yes, chain = _boundaries(trees)

    length = np.ones(len(kind), dtype=np.int64)
    length[is_set] = chain
    start = np.cumsum(length) - length
    source = np.repeat(np.arange(len(kind)), length)
    last = np.zeros(len(source), dtype=np.bool_)
    last[start + length - 1] = True

    emitted = kind[source]
    value = np.concatenate([tree.threshold for tree in trees])[source]
    value[emitted == Step.IN] = bounds
    value[emitted == Step.MISSING] = np.inf
    says_yes = emitted == Step.LE
    says_yes[emitted == Step.IN] = bound_says_yes
    other = np.where(emitted == Step.MISSING, yes[source], no[source])
    is_leaf = emitted == Step.LEAF
    following = np.arange(1, len(source) + 1)
    tree_first = np.append(start, len(source))[first]  # in emitted nodes
    tree = np.repeat(np.arange(len(trees)), counts)[source]
    base = tree_first[tree]
    true = start[np.where(says_yes, yes[source], no[source])] - base
    false = np.where(last, start[other], following) - base
    missing_yes = np.concatenate([one.missing_yes for one in trees])[source]
    return OnnxNodes(
        tree=tree,
        node=np.arange(len(source)) - base,
        is_leaf=is_leaf,
        feature=np.where(is_leaf, 0, np.concatenate([one.feature for one in trees])[source]),
        value=np.where(is_leaf, 0.0, value),
        missing_true=missing_yes & (emitted == Step.LE),
        true=np.where(is_leaf, 0, true),
        false=np.where(is_leaf, 0, false),
        row=np.concatenate([one.leaf for one in trees])[kind == Step.LEAF],
        depth=_depth(kind == Step.LEAF, yes, no, length, first),
    )


def _boundaries(
    trees: tuple[LoweredTree, ...],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """The tests ``code <= bound`` of all IN nodes, in order.

    Returns
    -------
    bounds : (tests,) int64
    says_yes : (tests,) bool
        Whether a code that passes is a member.
    chain : (IN nodes,) int64
        Number of tests of each node.
    """
    codes = np.concatenate([tree.set_codes for tree in trees]).astype(np.int64)
    sizes = np.concatenate([np.diff(tree.set_start)[tree.kind == Step.IN] for tree in trees])
    owner = np.repeat(np.arange(len(sizes)), sizes)
    joined = np.zeros(len(codes) + 1, dtype=np.bool_)  # with the code before
    joined[1:-1] = (np.diff(codes) == 1) & (np.diff(owner) == 0)
    # Before a run that does not begin at code 0 come others; at its end, it ends.
    tests = np.stack([~joined[:-1] & (codes > 0), ~joined[1:]], axis=1)
    bounds = np.stack([codes - 1, codes], axis=1)[tests]
    says_yes = np.broadcast_to(np.array([False, True]), tests.shape)[tests]
    chain = np.bincount(owner, weights=tests.sum(axis=1), minlength=len(sizes))
    return bounds, says_yes, chain.astype(np.int64)


def _depth(
    is_leaf: npt.NDArray[np.bool_],
    yes: npt.NDArray[np.int64],
    no: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
    roots: npt.NDArray[np.int64],
) -> int:
    """Edges to the deepest leaf if node i costs ``length[i]``; all trees level by level."""
    level, depth, deepest = roots, np.zeros(len(roots), dtype=np.int64), 0
    while len(level):
        inner = ~is_leaf[level]
        deepest = max(deepest, int(depth.max()))
        level, depth = level[inner], depth[inner]
        depth = np.tile(depth + length[level], 2)
        level = np.concatenate([yes[level], no[level]])
    return deepest
