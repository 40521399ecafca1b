"""Node values computed again, for targets whose values differ much in size.

Growth sums the distances of the target values from a center on one grid, whose step the largest
values determine: too coarse for nodes of small values.  Here each target value is split into a
multiple of such a step and a remainder, and the two parts are summed separately.  Both sums are
exact in any order, so that node values depend neither on the order of the rows nor on threads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.data.schema import Schema
from treekit.grow.recipe import GrownTree, Recipe
from treekit.grow.target_statistics import (
    bound_sums,
    choose_step,
    round_to_step,
    scale_number_target,
)
from treekit.grow.tree_builder import clip_tree
from treekit.model.model import MissingPolicy, make_model
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Tree, node_levels

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ExactMeans:
    """What exact means are computed from.

    Attributes
    ----------
    recipe : Recipe
    schema : Schema
    missing : str
        Treatment of missing cells.
    matrix : (rows, features)
        The encoded training rows.
    y : (rows, targets) float64
    steps, rests : (targets,) float64
        Grid step of the target values, and of their remainders.
    """

    recipe: Recipe
    schema: Schema
    missing: MissingPolicy
    matrix: npt.NDArray[Any]
    y: Numbers
    steps: Numbers
    rests: Numbers

    def set_values(self, grown: GrownTree) -> GrownTree:
        """Return the tree with the exact mean of its training rows as the value of each node."""
        tree, ids, w = grown.tree, grown.rows.ids, grown.rows.values[:, 0]
        alone = make_model(self.schema, [tree], missing=self.missing)
        leaf = leaf_indices(alone, self.matrix[ids])[:, 0]
        weight = _sum_over_nodes(tree, leaf, w)
        reached, values = weight > 0.0, tree.value.copy()
        for k, (step, rest) in enumerate(zip(self.steps, self.rests, strict=True)):
            high, low = (
                _sum_over_nodes(tree, leaf, own)
                for own in self._split_numbers(self.y[ids, k], w, step, rest)
            )
            values[reached, k] = (high[reached] + low[reached]) / weight[reached]
        parent = tree.parent
        for node in np.flatnonzero(~reached):  # a parent has a lower number
            values[node] = values[parent[node]]
        tree = replace(tree, value=values)
        if self.recipe.monotonic_signs is not None:
            tree = clip_tree(tree, self.recipe.monotonic_signs)
        return replace(grown, tree=tree)

    def _split_numbers(
        self, y: Numbers, w: Numbers, step: float, rest: float
    ) -> tuple[Numbers, Numbers]:
        """Return weighted target values (rows,) as multiples of `step` and of `rest`."""
        if self.recipe.target.noise == 0.0:  # w copies of a row add up to a row of weight w
            high = round_to_step(y, step)
            return w * high, w * round_to_step(y - high, rest)
        product = w * y
        high = round_to_step(product, step)
        return high, round_to_step(product - high, rest)


def make_exact_means(
    dataset: Dataset, recipe: Recipe, missing: MissingPolicy, *, drawn: bool
) -> ExactMeans:
    """Choose the grids of exact means from all training rows.

    `drawn`: whether rows are drawn in proportion to their weight, not weighted by it.
    """
    y = dataset.y.astype(np.float64, copy=False)
    scale = scale_number_target(y, dataset.weights, drawn=drawn, centred=False)
    steps = np.broadcast_to(scale.step, y.reshape(dataset.n_rows, -1).shape[1])
    # The remainder of each row, or copy of a row, is less than one step.
    most = float(max(dataset.n_rows, scale.total_weight or 0.0, recipe.target.values[:, 0].max()))
    rests = np.array([choose_step(bound_sums(most, most) * step) for step in steps.tolist()])
    rows = y.reshape(dataset.n_rows, -1)
    return ExactMeans(recipe, dataset.schema, missing, dataset.to_matrix(), rows, steps, rests)


def _sum_over_nodes(tree: Tree, leaf: npt.NDArray[np.int32], rows: Numbers) -> Numbers:
    """Return the sums (nodes,) of numbers of rows, whose leaves are given."""
    sums = np.bincount(leaf, rows, tree.n_nodes).astype(np.float64, copy=False)
    parent = tree.parent
    for _, children in reversed(list(node_levels(tree, np.zeros(1, np.int64)))):
        np.add.at(sums, parent[children], sums[children])
    return sums
