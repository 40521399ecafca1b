"""The slow oracle: one row through one model, straight from the definition.

Works on the n-ary trees with Python numbers only; shares no code with the
scorer, the lowering or the exporters.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from treekit.model.ensemble import Model
from treekit.model.tree import Split, Tree

LEAF, THRESHOLD, MISSING = int(Split.LEAF), int(Split.THRESHOLD), int(Split.MISSING)
_PLAIN: dict[int, tuple[Tree, dict[str, list[Any]]]] = {}

__all__ = ["Refused", "leaf_rows", "predict", "probabilities", "sums", "to_float32"]


class Refused(Exception):
    """The model's policies refuse the row."""


def to_float32(x: float) -> float:
    """The nearest float32, ties to even, infinities on overflow."""
    if math.isnan(x) or math.isinf(x):
        return x
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)
    return rounded


def leaf_rows(model: Model, row: Sequence[float]) -> list[int]:
    """Row of ``model.units`` that each tree reaches; nominal inputs are codes."""
    cells = [_cell(model, feature, float(x)) for feature, x in enumerate(row)]
    rows, offset = [], 0
    for tree in model.trees:
        leaf = _walk(tree, cells)
        is_leaf = tree.kind == Split.LEAF
        rows.append(offset + int(is_leaf[:leaf].sum()))
        offset += int(is_leaf.sum())
    return rows


def sums(model: Model, row: Sequence[float]) -> list[int]:
    """Exact integer sum of the leaf vectors of all trees."""
    total = [0] * model.schema.n_values
    for leaf in leaf_rows(model, row):
        total = [a + int(b) for a, b in zip(total, model.units[leaf], strict=True)]
    return total


def probabilities(model: Model, row: Sequence[float]) -> list[float]:
    """Share of the votes of each class, each rounded once."""
    return [float(Fraction(votes, model.unit_total)) for votes in sums(model, row)]


def predict(model: Model, row: Sequence[float]) -> int | float:
    """Class number (first of the largest sums), or the number of a regression."""
    total = sums(model, row)
    if model.schema.task == "classification":
        return total.index(max(total))
    return math.ldexp(float(Fraction(total[0], len(model.trees))), model.exponent)


def _cell(model: Model, feature: int, x: float) -> float | None:
    """The value of a cell as the trees see it; None = missing."""
    column = model.schema.columns[feature]
    if math.isnan(x):
        if model.missing == "error":
            raise Refused(column.name)
        return None
    if column.kind == "numeric":
        return to_float32(x) if model.schema.dtype == "float32" else x
    if x in range(len(column.levels)):
        return x
    if model.unknown == "error":
        raise Refused(column.name)
    if model.missing == "error":
        raise Refused(column.name)
    return None


def _walk(tree: Tree, cells: Sequence[float | None]) -> int:
    nodes = _plain(tree)
    node = 0
    while nodes["kind"][node] != LEAF:
        x = cells[nodes["feature"][node]]
        if nodes["kind"][node] == MISSING:
            branch = 0 if x is None else 1
        elif x is None:
            branch = nodes["missing"][node]
        elif nodes["kind"][node] == THRESHOLD:
            branch = 0 if x <= nodes["threshold"][node] else 1
        else:
            branch = nodes["level_branch"][nodes["level_start"][node] + int(x)]
            if branch == -1:
                branch = nodes["missing"][node]
        node = nodes["first_child"][node] + branch
    return node


def _plain(tree: Tree) -> dict[str, list[Any]]:
    """The arrays of a tree as lists, made once: NumPy scalars are slow."""
    if id(tree) not in _PLAIN:
        names = ("kind", "feature", "missing", "threshold", "first_child", "level_start")
        lists = {name: getattr(tree, name).tolist() for name in (*names, "level_branch")}
        _PLAIN[id(tree)] = tree, lists  # the tree stays alive, so does its id
    return _PLAIN[id(tree)][1]
