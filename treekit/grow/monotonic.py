"""Trees that rise or fall with a column: answers put within the bounds of their splits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.kernels.monotonic import in_order, within
from treekit.model.tree import Tree

__all__ = ["constrained", "constrained_stats", "is_monotonic"]

Numbers = npt.NDArray[np.float64]


def constrained(tree: Tree, signs: Numbers) -> Tree:
    """The tree whose nodes answer within the bounds that constrained splits hand down.

    Parameters
    ----------
    tree : Tree
        Of a number, or of two classes.
    signs : (features,) float64
        1: answers rise with the column, -1: they fall, 0: it is free.
    """
    if tree.value.shape[1] == 2:
        return tree.with_value(constrained_stats(tree, signs, tree.value, dense=False))
    return tree.with_value(_within(tree, signs, _answers(tree))[:, None])


def constrained_stats(tree: Tree, signs: Numbers, said: Numbers, *, dense: bool) -> Numbers:
    """The statistics that nodes answer by, changed where they pass a bound.

    Parameters
    ----------
    said : (nodes, S) float64
        ``(weight, weight * y, ...)`` if `dense`, else the weights of two classes.
    """
    weight = said[:, 0] if dense else said.sum(axis=1)
    answers = said[:, 1] / weight
    kept = _within(tree, signs, answers)
    moved = kept != answers
    said = said.copy()
    said[moved, 1] = weight[moved] * kept[moved]
    if not dense:
        said[moved, 0] = weight[moved] * (1.0 - kept[moved])
    return said


def is_monotonic(tree: Tree, signs: Numbers) -> bool:
    """Whether no leaf on one side of a constrained split passes a leaf of the other.

    Pruners that move rows, or regrow, may break what growth kept.
    """
    shape = (tree.kind, tree.feature, tree.first_child, tree.n_children)
    return bool(in_order(*shape, signs, _answers(tree)))


def _within(tree: Tree, signs: Numbers, answers: Numbers) -> Numbers:
    shape = (tree.kind, tree.feature, tree.first_child, tree.n_children)
    return np.asarray(within(*shape, signs, answers))


def _answers(tree: Tree) -> Numbers:
    """(nodes,) float64: a number, or the share of the second of two classes."""
    if tree.value.shape[1] == 1:
        return np.ascontiguousarray(tree.value[:, 0])
    return np.asarray(tree.value[:, 1] / tree.value.sum(axis=1))
