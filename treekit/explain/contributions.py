"""Feature contributions to the prediction for a row, in the model's own integers.

The path decomposition of Saabas (2014, "Interpreting random forests", the package
treeinterpreter): the value of a tree changes from node to node along the decision path, and
each change is attributed to the column that decided there.  The value of an inner node is the
weighted mean of its leaves, rounded to their fixed-point step; a leaf has its own value.  A part
of a row (fractional instance) changes by its parts of the values, as the model rounds them.
Differences of integers telescope, so that bias and contributions add up to the row's integer
sums exactly.

Known bias of the method (Lundberg and Lee 2017; Lundberg et al. 2020): a column tested near
the root gets less than an equally important one tested further down, and interactions are
attributed to the column tested last.

A change at a weighted sum of columns is divided evenly among the columns that decided; the
remainder goes to the first ones, one unit each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.explain.decision_path import Passage, list_deciding_columns
from treekit.explain.explanation import Sums
from treekit.model.fixed_point import apportion, count_tree_units, multiply_by_mass
from treekit.model.tree import Tree, node_levels

if TYPE_CHECKING:
    from treekit.model.model import Model


# ---------------------------------------------------------------- contributions

Integers = npt.NDArray[np.int64]


class Contributions(NamedTuple):
    """Integers with ``bias + sum(by_column)`` equal to `compute_unit_factor` times the row's sums.

    Attributes
    ----------
    bias : list of int
        For each value of a leaf: the sum of the trees' root values.
    by_column : dict of int to list of int
        For each column on the decision path.
    """

    bias: list[int]
    by_column: dict[int, list[int]]


def compute_unit_factor(model: Model) -> int:
    """Return the factor by which contributions are finer than the integers of leaf values.

    It is 1, except for hard votes: a leaf has one vote, but an inner node, as the mean of its
    leaves, has fractions of votes.
    """
    return count_tree_units(model.n_trees, "float32") if model.voting == "hard" else 1


def compute_node_units(model: Model, number: int) -> Integers:
    """Return (nodes, values) int64: the values of a tree's nodes, times `compute_unit_factor`."""
    tree, leaf_units = model.trees[number], model.tree_units(number)
    means, factor = _average_leaves(tree, leaf_units), compute_unit_factor(model)
    if model.schema.task == "regression" or model.margins:
        found = np.rint(means).astype(np.int64)
    else:
        blocks, each = itertools.pairwise(model.schema.blocks), model.units_each * factor
        found = np.concatenate([apportion(means[:, a:b], each) for a, b in blocks], axis=1)
    found[tree.leaves] = leaf_units * factor
    return found


def _average_leaves(tree: Tree, units: Integers) -> npt.NDArray[np.float64]:
    """Return (nodes, values): the mean of the leaves below each node, weighted by training weight.

    If no training weight reached the children of a node, they have equal weight.
    """
    means = np.zeros((tree.n_nodes, units.shape[1]))
    means[tree.leaves] = units
    for inner, children in reversed([*node_levels(tree, np.zeros(1, dtype=np.int64))]):
        sizes = tree.n_children[inner]
        starts = np.cumsum(sizes) - sizes
        total = np.add.reduceat(tree.weight[children], starts)
        weight = np.where(np.repeat(total > 0, sizes), tree.weight[children], 1.0)
        share = weight / np.repeat(np.add.reduceat(weight, starts), sizes)
        means[inner] = np.add.reduceat(means[children] * share[:, None], starts)
    return means


def sum_contributions(
    model: Model, walks: Sequence[tuple[Integers, Sequence[Passage]]], row: list[float]
) -> Contributions:
    """Sum the contributions over all trees.

    Parameters
    ----------
    model : Model
    walks : sequence of ((nodes, values) int64, sequence of Passage)
        Node values, from `compute_node_units`, and passages of each tree.
    row : (features,) list of float
    """
    bits = model.part_bits
    bias = [0] * model.schema.n_values
    by_column: dict[int, list[int]] = {}
    for units, passages in walks:
        own = multiply_by_mass(units[0], model.mass, bits)
        bias = [a + b for a, b in zip(bias, own.tolist(), strict=True)]
        for passage in passages:
            change = -multiply_by_mass(units[passage.node_id], passage.mass, bits)
            for child, some in passage.child_masses:
                change += multiply_by_mass(units[child], some, bits)
            _divide_change(change.tolist(), list_deciding_columns(passage, row), by_column)
    return Contributions(bias, by_column)


def _divide_change(
    change: list[int], columns: tuple[int, ...], by_column: dict[int, list[int]]
) -> None:
    """Divide a change evenly among columns; remainders go to the first ones."""
    n = len(columns)
    for place, column in enumerate(columns):
        contribution = by_column.setdefault(column, [0] * len(change))
        for k, value in enumerate(change):
            quotient, remainder = divmod(value, n)
            contribution[k] += quotient + (place < remainder)


# ---------------------------------------------------------------- figures

_MAX_DECIMALS = 15
"""Maximum; smaller numbers, like those from 1e15 on, are written with an exponent."""


def format_contributions(one: Sums, parts: Sequence[int]) -> list[str]:
    """Format the parts and the total, rounded so that the figures shown add up.

    Running totals are rounded and a part is the difference of two of them, so that each is off
    by at most one in the last place.
    """
    decimals, total = _choose_decimals(one, parts), one.number(one.total)
    if decimals is None:
        texts = [f"{one.number(units):.6g}" for units in parts]
        total_text = f"{total:.6g}"
    else:
        scale = 10.0**decimals
        running = [round(one.number(units) * scale) for units in itertools.accumulate(parts)]
        steps = [b - a for a, b in itertools.pairwise([0, *running])]
        texts = [f"{step / scale:.{decimals}f}" for step in steps]
        total_text = f"{total:.{decimals}f}"
    signed = (text if text.startswith("-") else f"+{text}" for text in texts[1:])
    return [texts[0], *signed, total_text]


def _choose_decimals(one: Sums, parts: Sequence[int]) -> int | None:
    """Choose decimals that show four digits of the largest part; None for exponent notation."""
    largest = max(abs(one.number(units)) for units in (*parts, one.total))
    if largest == 0:
        return 0
    if not largest < 1e15:
        return None
    votes = one.label is not None and not one.margin
    decimals = 4 if votes else max(3 - math.floor(math.log10(largest)), 0)
    return decimals if decimals <= _MAX_DECIMALS else None
