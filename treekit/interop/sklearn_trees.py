"""One tree of scikit-learn as a `Tree`: renumbered, its thresholds on float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ModelError
from treekit.model.fixed_point import floor_to
from treekit.model.tree import Split, Tree

__all__ = ["tree_of"]

_WHOLE = 2.0**-50
"""A class weight this close to a whole number, relative to the node's, is one."""


def tree_of(tree: Any, schema: Schema) -> Tree:
    """One ``sklearn.tree._tree.Tree``, renumbered, its thresholds on float32."""
    n = tree.node_count
    left, right = tree.children_left, tree.children_right
    inner = np.flatnonzero(left >= 0)
    _check(tree, inner, schema)
    order, first_child = _adjacent_siblings(left, right, inner)
    kind, threshold, missing, exchanged = _splits(tree, inner)
    # A split of missing values whose yes branch is on the right: the sides change places.
    swapped = inner[exchanged]
    pairs = first_child[swapped]
    order[pairs], order[pairs + 1] = right[swapped], left[swapped]
    value = _values(tree, schema)
    return Tree(
        kind=kind[order],
        feature=np.where(left >= 0, tree.feature, -1)[order],
        threshold=threshold[order],
        first_child=first_child[order].astype(np.int32),
        n_children=np.where(left >= 0, 2, 0)[order],
        missing=missing[order],
        level_start=np.zeros(n + 1, dtype=np.int64),
        level_branch=np.zeros(0, dtype=np.int32),
        value=value[order],
        weight=tree.weighted_n_node_samples[order],
        gain=_gains(tree, inner)[order],
    )


def _check(tree: Any, inner: npt.NDArray[np.int64], schema: Schema) -> None:
    """Refuse numbers that no fit makes, before anything is computed from them."""
    weight, asked = tree.weighted_n_node_samples, tree.feature[inner]
    if np.any((asked < 0) | (asked >= schema.n_features)):
        raise ModelError(
            "the scikit-learn tree is damaged: a split asks a column that the schema does not have"
        )
    finite = bool(np.all(np.isfinite(tree.value))) and bool(np.all(np.isfinite(weight)))
    if not finite or np.any(weight < 0):
        raise ModelError(
            "the scikit-learn tree is damaged: a value or weight is not finite; fit it again"
        )


def _adjacent_siblings(
    left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], inner: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A numbering in which siblings are neighbours and follow their parent.

    The j-th inner node gets the children ``2 j + 1`` and ``2 j + 2``.  As each
    child has a higher number than its parent, the parents of inner nodes have
    lower ranks j than their children, and so lower new numbers.

    Returns
    -------
    order : (n,) int64
        Old number of each new node.
    first_child : (n,) int64
        By old number: the new number of the left child; -1 in leaves.
    """
    n = len(left)
    children = np.stack([left[inner], right[inner]], axis=1)
    order = np.concatenate([[0], children.ravel()])
    once = len(order) == n and np.array_equal(np.sort(order), np.arange(n))
    if not once or np.any(children <= inner[:, None]):
        raise ModelError("the scikit-learn tree is damaged: fit it again")
    first_child = np.full(n, -1, dtype=np.int64)
    first_child[inner] = 2 * np.arange(len(inner)) + 1
    return order, first_child


def _splits(
    tree: Any, inner: npt.NDArray[np.int64]
) -> tuple[
    npt.NDArray[np.uint8], npt.NDArray[np.float64], npt.NDArray[np.int32], npt.NDArray[np.bool_]
]:
    """Kind, threshold and missing branch of each node, by old number.

    An infinite threshold is scikit-learn's way to ask for missing values:
    all others go to one side.

    Returns
    -------
    kind : (n,) uint8
    threshold : (n,) float64
    missing : (n,) int32
    exchanged : (inner,) bool
        MISSING nodes whose missing values go right in scikit-learn.
    """
    at = floor_to(tree.threshold[inner], "float32")
    missing_left = tree.missing_go_to_left[inner].astype(np.bool_)
    asks_missing = ~np.isfinite(at)
    if np.any(np.isnan(at)) or np.any(asks_missing & (missing_left == (at > 0))):
        raise ModelError(
            "a split of the scikit-learn tree sends every value to one side: fit it again"
        )
    kind = np.full(tree.node_count, Split.LEAF, dtype=np.uint8)
    kind[inner] = np.where(asks_missing, Split.MISSING, Split.THRESHOLD)
    threshold = np.full(tree.node_count, np.nan)
    threshold[inner] = np.where(asks_missing, np.nan, at)
    missing = np.zeros(tree.node_count, dtype=np.int32)
    missing[inner] = ~missing_left & ~asks_missing
    return kind, threshold, missing, asks_missing & ~missing_left


def _values(tree: Any, schema: Schema) -> npt.NDArray[np.float64]:
    """(n, values) float64: class weights, or means, of each output, by old number.

    scikit-learn keeps the share of each class.  Times the node's weight, the
    whole numbers that most fits count come back exactly: the product is off
    by an ulp or two of the node's weight, and is put right.
    """
    sizes = [len(output.classes) or 1 for output in schema.outputs]
    value = np.concatenate([tree.value[:, k, :size] for k, size in enumerate(sizes)], axis=1)
    if schema.task == "regression":
        return value
    node_weight = tree.weighted_n_node_samples[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # what is infinite is refused later
        weights = value * node_weight
        whole = np.rint(weights)
        close = np.abs(weights - whole) <= _WHOLE * node_weight
    result: npt.NDArray[np.float64] = np.where(close, whole, weights)
    return result


def _gains(tree: Any, inner: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """(n,) float64: decrease of impurity by each split, by old number; 0 where there is none."""
    with np.errstate(all="ignore"):
        return _decreases(tree, inner)


def _decreases(tree: Any, inner: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    mass = tree.weighted_n_node_samples * tree.impurity
    left, right = tree.children_left[inner], tree.children_right[inner]
    gain = np.zeros(tree.node_count)
    gain[inner] = (mass[inner] - mass[left] - mass[right]) / tree.weighted_n_node_samples[inner]
    return np.where(np.isfinite(gain), gain, 0.0)
