"""A single tree of thresholds as `treekit.kernels.straight` walks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.tree import Split

if TYPE_CHECKING:
    from treekit.model.ensemble import Model

__all__ = ["StraightTree", "straight_tree"]


class StraightTree(NamedTuple):
    """What `treekit.kernels.straight.leaves_of_rows` takes, and what leaves are called.

    Attributes
    ----------
    walk : tuple
        Its first four arguments.
    leaf : (nodes,) int32
        Which leaf a node is, counted from the first; what inner nodes hold means nothing.
    node : (nodes,) int32
        The nodes themselves.
    """

    walk: tuple[npt.NDArray[Any], npt.NDArray[Any], np.uint64, np.uint64]
    leaf: npt.NDArray[np.int32]
    node: npt.NDArray[np.int32]


def straight_tree(model: Model) -> StraightTree | None:
    """The tree of a model; None if there are more, or nodes that ask for more than a number."""
    tree = model.trees[0]
    inner = tree.kind != Split.LEAF
    plain = model.n_trees == 1 and model.missing in ("direction", "error")
    if not plain or bool(np.any(tree.kind[inner] != Split.THRESHOLD)):
        return None
    column_bits = max(model.schema.n_features - 1, 1).bit_length()
    wide = tree.n_nodes.bit_length() + column_bits + 1 > 32
    child = np.where(inner, tree.first_child, np.arange(tree.n_nodes)).astype(np.uint64)
    column = np.where(inner, tree.feature, 0).astype(np.uint64)
    right = (inner & (tree.missing == 1)).astype(np.uint64)
    tests = right | column << np.uint64(1) | child << np.uint64(column_bits + 1)
    limits = np.where(inner, tree.threshold, np.inf).astype(model.schema.dtype)
    walk = (
        limits,
        tests if wide else tests.astype(np.uint32),
        np.uint64(column_bits),
        np.uint64(tree.depth),
    )
    number = np.cumsum(~inner) - 1
    return StraightTree(walk, number.astype(np.int32), np.arange(tree.n_nodes, dtype=np.int32))
