"""Node values computed again, for targets whose values differ much in size.

Growth sums the distances of the target values from a center on one grid, whose step the largest
values determine: too coarse for nodes of small values.  Here each target value is split into a
multiple of such a step and a remainder, and the two parts are summed separately.  Both sums are
exact in any order, so that node values depend neither on the order of the rows nor on threads.
Parts of rows (fractional instances) have the weights of growth; their products with target values
are rounded like those of other fractional weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.grow.recipe import GrownTree, Recipe
from treekit.grow.route import find_weighed_leaves
from treekit.grow.target_statistics import (
    NumberTarget,
    bound_sums,
    choose_step,
    round_to_step,
)
from treekit.grow.tree_builder import clip_tree
from treekit.model.model import MissingPolicy, make_model
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Tree, node_levels

Numbers = npt.NDArray[np.float64]


class NumberGrids(NamedTuple):
    """The grids of exact sums of target values.

    Attributes
    ----------
    steps, rests : (targets,) float64
        Grid step of the target values, and of their remainders.
    copies : bool
        Whether a row of weight w counts as w copies of a row.
    """

    steps: Numbers
    rests: Numbers
    copies: bool


def choose_number_grids(dataset: Dataset, *, copies: bool, drawn: bool) -> NumberGrids:
    """Choose the grids from all training rows.

    `drawn`: whether rows are drawn in proportion to their weight, not weighted by it.
    """
    y = dataset.y.astype(np.float64, copy=False)
    scale = NumberTarget.scale(y, dataset.weights, drawn=drawn, centred=False)
    steps = np.broadcast_to(scale.step, y.shape[1] if y.ndim > 1 else 1)
    # The remainder of each row, or copy of a row, is less than one step.
    most = float(max(dataset.n_rows, scale.total_weight or 0.0))
    rests = np.array([choose_step(bound_sums(most, most) * step) for step in steps.tolist()])
    return NumberGrids(steps, rests, copies)


def sum_leaf_numbers(
    grids: NumberGrids, leaf: npt.NDArray[np.signedinteger[Any]], y: Numbers, w: Numbers, n: int
) -> Numbers:
    """Sum the weights, and both parts of the target values, of the rows of each leaf.

    Parameters
    ----------
    leaf : (rows,) int
        The node that each row reaches.
    y : (rows, targets) float64
    w : (rows,) float64
    n : int
        Number of nodes.

    Returns
    -------
    (1 + 2 * targets, nodes) float64
        Exact; those of parts of the rows add up to those of all.
    """
    sums = [np.bincount(leaf, w, n)]
    for own, step, rest in zip(y.T, grids.steps, grids.rests, strict=True):
        if grids.copies:
            high = round_to_step(own, step)
            parts = w * high, w * round_to_step(own - high, rest)
        else:
            high = round_to_step(w * own, step)
            parts = high, round_to_step(w * own - high, rest)
        sums += [np.bincount(leaf, part, n) for part in parts]
    return np.array(sums, dtype=np.float64)


def set_means(tree: Tree, sums: Numbers, signs: Numbers | None) -> Tree:
    """Return a tree with exact means as the values of its nodes.

    Parameters
    ----------
    sums : (1 + 2 * targets, nodes) float64
        From `sum_leaf_numbers`.
    signs : (features,) float64, or None
        Monotonic constraints.
    """
    parent, sums = tree.parent, sums.copy()
    for _, children in reversed(list(node_levels(tree, np.zeros(1, np.int64)))):
        for own in sums:
            np.add.at(own, parent[children], own[children])
    weight, values = sums[0], tree.value.copy()
    reached = weight > 0.0
    for k, (high, low) in enumerate(zip(sums[1::2], sums[2::2], strict=True)):
        values[reached, k] = (high[reached] + low[reached]) / weight[reached]
    for node in np.flatnonzero(~reached):  # a parent has a lower number
        values[node] = values[parent[node]]
    tree = replace(tree, value=values)
    return tree if signs is None else clip_tree(tree, signs)


class ExactMeans:
    """Exact means of the rows of grown trees, for a table in memory."""

    def __init__(
        self, dataset: Dataset, recipe: Recipe, missing: MissingPolicy, *, drawn: bool
    ) -> None:
        self._schema, self._missing, self._recipe = dataset.schema, missing, recipe
        copies = recipe.target.noise == 0.0 and not recipe.fractional
        self._grids = choose_number_grids(dataset, copies=copies, drawn=drawn)
        self._matrix = np.empty((0, 0)) if recipe.fractional else dataset.to_matrix()
        self._y = dataset.y.astype(np.float64, copy=False).reshape(dataset.n_rows, -1)

    def set_values(self, grown: GrownTree) -> GrownTree:
        """Return the tree with the exact mean of its training rows as the value of each node."""
        tree, ids, w = grown.tree, grown.rows.ids, grown.rows.values[:, 0]
        if self._recipe.fractional:
            ids, leaf, w = find_weighed_leaves(tree, self._recipe.table, grown.rows)
        else:
            alone = make_model(self._schema, [tree], missing=self._missing)
            leaf = leaf_indices(alone, self._matrix[ids])[:, 0].astype(np.int64)
        sums = sum_leaf_numbers(self._grids, leaf, self._y[ids], w, tree.n_nodes)
        return replace(grown, tree=set_means(tree, sums, self._recipe.monotonic_signs))
