"""A model as flat tables: what a short loop walks in any language, at any depth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.lower import LoweredTree, Step
from treekit.model.fixed_point import double_threshold

__all__ = ["LeafTable", "NodeTable", "leaf_table", "node_table", "plain_thresholds"]

_MOST = 2**31 - 1
_LE_MISSING_NO, _LE_MISSING_YES, _IN, _MISSING = range(4)


@dataclass(frozen=True, slots=True)
class LeafTable:
    """The distinct leaf vectors of a model.

    Attributes
    ----------
    row : (leaves,) int64
        Distinct vector of each row of `Model.units`.
    vectors : (distinct, outputs) int64
        In order of first appearance.
    """

    row: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.int64]

    def sparse(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """``(start, column, units)``: what is not zero, as CSR over the vectors."""
        vector, column = np.nonzero(self.vectors)
        start = np.searchsorted(vector, np.arange(len(self.vectors) + 1))
        return start, column, self.vectors[vector, column]


@dataclass(frozen=True, slots=True)
class NodeTable:
    """The inner nodes of all trees, in pre-order, tree after tree.

    Attributes
    ----------
    value : (nodes,) float64
        The threshold of a test, for inputs in double; the number of the set
        of an IN node; 0 else.
    question : (nodes,) int64
        ``4 * feature + k``, where features beyond those of the row are derived
        columns: k = 0 ``x <= value``, missing no; 1 ``x <= value``,
        missing yes; 2 in the set; 3 missing.
    yes, no : (nodes,) int64
        The next node, or ``-1 - v`` for the leaf vector v.
    root : (trees,) int64
        Where each tree starts, in the same code.
    set_start : (sets + 1,) int64
    set_codes : (codes,) int64
        Members of each set, ascending.
    """

    value: npt.NDArray[np.float64]
    question: npt.NDArray[np.int64]
    yes: npt.NDArray[np.int64]
    no: npt.NDArray[np.int64]
    root: npt.NDArray[np.int64]
    set_start: npt.NDArray[np.int64]
    set_codes: npt.NDArray[np.int64]


def plain_thresholds(tree: LoweredTree, schema: Schema) -> npt.NDArray[np.float64]:
    """(m,) float64: thresholds for inputs in double that nobody rounded; 0 where none.

    0 for derived columns, too.
    """
    result = np.zeros(tree.n_nodes)
    at = (tree.kind == Step.LE) & (tree.feature < schema.n_features)
    t = tree.threshold[at]
    result[at] = double_threshold(t) if schema.dtype == "float32" else t
    return result


def leaf_table(units: npt.NDArray[np.int64]) -> LeafTable:
    """Distinct rows of ``Model.units``, shape (leaves, outputs).

    In fully grown forests most leaves are pure and share a few vectors.
    """
    # Sorting whole rows is slow for many classes, so rows are compared by a
    # hash, and the hash is then checked against the rows themselves.
    factors = np.random.default_rng(0).integers(1, 2**62, size=units.shape[1]) * 2 + 1
    _, first, inverse = np.unique(units @ factors, return_index=True, return_inverse=True)
    if not np.array_equal(units[first[inverse]], units):
        first = inverse = np.arange(len(units))
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return LeafTable(rank[inverse], units[first[order]])


def node_table(trees: tuple[LoweredTree, ...], leaves: LeafTable, schema: Schema) -> NodeTable:
    """Put the inner nodes of all trees in one table.

    Raises
    ------
    ExportError
        If there are more nodes or leaves than 32 bits count.
    """
    inner = [tree.kind != Step.LEAF for tree in trees]
    sizes = np.array([np.count_nonzero(mask) for mask in inner], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    columns = max(int(tree.feature.max()) for tree in trees) + 1
    if max(int(sizes.sum()), len(leaves.vectors), 4 * columns) > _MOST:
        raise ExportError(f"the model needs more than {_MOST} table entries: train fewer trees")
    code = [
        np.where(mask, start - 1 + np.cumsum(mask), -1 - leaves.row[tree.leaf])
        for mask, start, tree in zip(inner, starts, trees, strict=True)
    ]

    def of_inner(arrays: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.concatenate([a[mask] for a, mask in zip(arrays, inner, strict=True)])

    kinds = of_inner(map(_questions, trees))
    value = of_inner(plain_thresholds(tree, schema) for tree in trees)
    is_set = kinds == _IN
    value[is_set] = np.arange(np.count_nonzero(is_set))
    lengths = np.concatenate([np.diff(tree.set_start)[tree.kind == Step.IN] for tree in trees])
    return NodeTable(
        value=value,
        question=4 * of_inner(tree.feature.astype(np.int64) for tree in trees) + kinds,
        yes=of_inner(c[tree.yes] for c, tree in zip(code, trees, strict=True)),
        no=of_inner(c[tree.no] for c, tree in zip(code, trees, strict=True)),
        root=np.array([c[0] for c in code], dtype=np.int64),
        set_start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        set_codes=np.concatenate([tree.set_codes for tree in trees]).astype(np.int64),
    )


def _questions(tree: LoweredTree) -> npt.NDArray[np.int64]:
    by_step = np.array([0, _LE_MISSING_NO, _IN, _MISSING])
    missing_yes = (tree.kind == Step.LE) & tree.missing_yes
    return np.where(missing_yes, _LE_MISSING_YES, by_step[tree.kind])
