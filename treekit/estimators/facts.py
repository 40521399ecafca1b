"""What a model does not keep of its training rows: how many a node had, and how they spread."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.contracts import CriterionFunctions
from treekit.data.dataset import Dataset
from treekit.model.model import Model
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Tree, node_levels
from treekit.training.class_weights import class_weights

__all__ = ["NodeFacts", "class_impurity", "facts_of_rows", "facts_of_weights"]


@dataclass(frozen=True)
class NodeFacts:
    """Facts of the nodes of one tree.

    Attributes
    ----------
    samples : (nodes,) int64
        Training rows that reached the node, whatever they weigh.
    impurity : (nodes,) float64, or None
        Impurity of the node's training rows.
    """

    samples: npt.NDArray[np.int64]
    impurity: npt.NDArray[np.float64] | None = None


def facts_of_weights(tree: Tree) -> NodeFacts:
    """What the tree itself tells: its weights are numbers of rows drawn."""
    return NodeFacts(np.rint(tree.weight).astype(np.int64))


def facts_of_rows(model: Model, dataset: Dataset) -> NodeFacts | None:
    """The facts of a single tree's training rows; None where rows go down several branches.

    The impurity of numbers is their variance, the mean over the outputs; that
    of classes follows from the tree, see `class_impurity`.
    """
    if model.missing == "fractional":
        return None
    tree = model.trees[0]
    weights = _weights(model, dataset)
    counted = weights > 0
    leaf = leaf_indices(model, dataset.matrix())[counted, 0]
    sums = [np.ones(len(leaf))]
    numbers = model.schema.task == "regression"
    if numbers:
        w = weights[counted]
        sums.append(w)
        for y in np.asarray(dataset.y, dtype=np.float64)[counted].reshape(len(leaf), -1).T:
            apart = y - np.average(y, weights=w)
            sums += [w * apart, w * apart * apart]
    total = _upwards(tree, leaf, sums)
    impurity = _variance(total[1], total[2::2], total[3::2]) if numbers else None
    return NodeFacts(total[0].astype(np.int64), impurity)


def _weights(model: Model, dataset: Dataset) -> npt.NDArray[np.float64]:
    """(rows,) what the training rows weigh, times what is asked of their classes."""
    factors = class_weights(dataset, model.settings["class_weight"], model.settings["priors"])
    weights = np.ones(dataset.n_rows) if dataset.weights is None else dataset.weights
    return weights if factors is None else weights * factors[dataset.y]


def _variance(
    weight: npt.NDArray[np.float64],
    first: npt.NDArray[np.float64],
    second: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """(nodes,) of numbers, the mean over the outputs, from sums and sums of squares of each."""
    weight = np.maximum(weight, 5e-324)
    return np.asarray(np.maximum(second / weight - (first / weight) ** 2, 0.0).mean(axis=0))


def _upwards(
    tree: Tree, leaf: npt.NDArray[np.int32], parts: Sequence[npt.NDArray[np.float64]]
) -> npt.NDArray[np.float64]:
    """(parts, nodes) float64: sums of each part (rows,) over the rows that pass a node."""
    total = np.empty((tree.n_nodes, len(parts)))
    for column, part in zip(total.T, parts, strict=True):
        column[:] = np.bincount(leaf, part, minlength=tree.n_nodes)
    for parents, _ in reversed(list(node_levels(tree, np.zeros(1, np.int64)))):
        first, counts = tree.first_child[parents], tree.n_children[parents]
        summed = total.take(first, axis=0)
        for branch in range(1, int(counts.max())):
            # One after the other, in the order of the branches: sums are rounded.
            has = counts > branch
            summed[has] += total.take(first[has] + branch, axis=0)
        total[parents] = summed
    return total.T


def class_impurity(model: Model, tree: Tree) -> npt.NDArray[np.float64]:
    """(nodes,) float64: the criterion's impurity of each node, the mean over the outputs.

    The Gini index stands in for criteria that have none.
    """
    settings = model.settings
    own = {
        key.partition(".")[2]: value
        for key, value in settings.items()
        if key.startswith("criterion.")
    }
    functions: CriterionFunctions
    functions, _ = registry.make(registry.criterion(settings["criterion"]), own)
    blocks = model.schema.blocks
    total = np.zeros(tree.n_nodes)
    for first, last in itertools.pairwise(blocks):
        weights = tree.value[:, first:last]
        if functions.impurity is None:
            shares = weights / weights.sum(axis=1, keepdims=True)
            total += 1.0 - (shares * shares).sum(axis=1)
        else:
            total += [functions.impurity(stats) for stats in weights]
    return total / (len(blocks) - 1)
