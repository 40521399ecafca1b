"""Lowering of n-ary trees to the plain binary nodes that every target writes.

A lowered node is a leaf or one of three tests.  The test also covers missing values,
unseen categories and categories absent from the node's training rows: a value that
`Step.IN` does not list takes the no branch.

Oblique splits and splits with surrogates become tests of derived columns
(see `treekit.model.derived_features`), which follow the columns of the row.
Fractional instances are written by `treekit.export.fractional`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.model.derived_features import DerivedColumns, make_derived_columns
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import Model
from treekit.model.tree import MAX_DEPTH, Split, Tree

__all__ = [
    "LeafTable",
    "LoweredTree",
    "NodeTable",
    "Step",
    "compute_double_thresholds",
    "leaf_table",
    "lower",
    "node_table",
    "require_depth",
    "set_words",
]


# ---------------------------------------------------------------- lower

_MAX_NODES = 2**31 - 1


class Step(IntEnum):
    """Kind of a lowered node."""

    LEAF = 0
    LE = 1
    """``x[feature] <= threshold``: yes.  Missing: yes if `LoweredTree.missing_yes`."""
    IN = 2
    """The category code of ``x[feature]`` is in the node's set: yes.  Otherwise,
    missing and unseen values included: no."""
    MISSING = 3
    """``x[feature]`` is missing: yes.  In a nominal column every value that is
    not an integer in ``[0, levels)`` is missing."""


@dataclass(frozen=True, slots=True)
class LoweredTree:
    """A tree of m binary nodes in pre-order, the yes branch first.

    Attributes
    ----------
    kind : (m,) uint8
        A `Step`.
    feature : (m,) int32
        Split feature; -1 in leaves.  With F input columns, F + d is
        derived column d: 0.0, 1.0 or missing, tested by LE nodes only.
    threshold : (m,) float64
        LE nodes: a finite number of the model's input dtype, 0.0 for derived
        columns; NaN elsewhere.
    missing_yes : (m,) bool
        LE nodes: whether a missing value takes the yes branch; True in MISSING
        nodes, False elsewhere.
    yes, no : (m,) int32
        Child nodes, -1 in leaves; ``yes`` of an inner node is the node after it.
    leaf : (m,) int64
        Row of `Model.units`; -1 in inner nodes.
    set_start : (m + 1,) int64
        IN node i owns ``set_codes[set_start[i]:set_start[i + 1]]``.
    set_codes : (codes,) int32
        Category codes, ascending within a node, at least one in each IN node.
    depth : int
        Edges from the root to the deepest leaf; each node of a chain of IN nodes counts.
    """

    kind: npt.NDArray[np.uint8]
    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    missing_yes: npt.NDArray[np.bool_]
    yes: npt.NDArray[np.int32]
    no: npt.NDArray[np.int32]
    leaf: npt.NDArray[np.int64]
    set_start: npt.NDArray[np.int64]
    set_codes: npt.NDArray[np.int32]
    depth: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def n_nodes(self) -> int:
        """Number of nodes, leaves included."""
        return len(self.kind)

    def codes(self, node: int) -> npt.NDArray[np.int32]:
        """Return the category codes of an IN node (a view)."""
        return self.set_codes[self.set_start[node] : self.set_start[node + 1]]


def lower(model: Model, derived: DerivedColumns | None = None) -> tuple[LoweredTree, ...]:
    """Lower the trees of a model to plain binary nodes.

    A multiway split becomes a chain of IN nodes, one for each branch that some
    category takes; the chain ends in the missing branch.  A split
    whose categories all take the missing branch is dropped.

    Parameters
    ----------
    model : Model
    derived : DerivedColumns, optional
        Result of `derive` for the model, if the caller already has it.

    Raises
    ------
    ExportError
        If the model uses fractional instances, which such nodes cannot express, or
        a tree has too many nodes.
    """
    if model.missing == "fractional":
        raise ExportError(
            "this target sends each row to one leaf, and the model uses fractional instances "
            "(missing='fractional'): export to another target, or train with "
            "missing='direction'"
        )
    columns = (make_derived_columns(model) if derived is None else derived).column
    ends = np.cumsum([tree.n_nodes for tree in model.trees])
    return tuple(
        _lower_tree(tree, int(offset), columns[end - tree.n_nodes : end], model.schema.n_features)
        for tree, offset, end in zip(
            model.trees, model.leaf_offsets[:-1], ends.tolist(), strict=True
        )
    )


def require_depth(trees: tuple[LoweredTree, ...], target: str) -> None:
    """Raise `ExportError` if a lowered tree is deeper than `MAX_DEPTH`."""
    deepest = max(tree.depth for tree in trees)
    if deepest > MAX_DEPTH:
        raise ExportError(
            f"{target} supports trees up to {MAX_DEPTH} binary splits deep; this model needs "
            f"{deepest} (a multiway split counts one for each branch): set max_depth"
        )


def _lower_tree(
    tree: Tree, first_row: int, column: npt.NDArray[np.int64], n_features: int
) -> LoweredTree:
    """Lower one tree; `column` (n,) is the derived column of each node, -1 = none."""
    from treekit.kernels.tree_passes import lower_nodes

    asks_derived = column >= 0
    inner = tree.kind != Split.LEAF
    bound = tree.n_leaves + int((tree.n_children[inner].astype(np.int64) - 1).sum())
    if bound > _MAX_NODES:
        raise ExportError(f"a tree has more than {_MAX_NODES} binary nodes: set max_depth")
    kind, source, no, set_start, set_codes, depth = lower_nodes(
        np.where(asks_derived, np.uint8(Split.THRESHOLD), tree.kind),
        tree.first_child,
        tree.n_children,
        tree.missing,
        tree.level_offsets,
        tree.level_branch,
        bound,
    )
    row_of_node = first_row - 1 + np.cumsum(~inner)
    is_leaf, is_le = kind == Step.LEAF, kind == Step.LE
    feature = np.where(asks_derived, n_features + column, tree.feature).astype(np.int32)
    threshold = np.where(asks_derived, 0.0, tree.threshold)
    return LoweredTree(
        kind=kind,
        feature=feature[source],
        threshold=np.where(is_le, threshold[source], np.nan),
        missing_yes=(is_le & (tree.missing[source] == 0)) | (kind == Step.MISSING),
        yes=np.where(is_leaf, -1, np.arange(1, len(kind) + 1)).astype(np.int32),
        no=no,
        leaf=np.where(is_leaf, row_of_node[source], -1),
        set_start=set_start,
        set_codes=set_codes,
        depth=int(depth),
    )


# ---------------------------------------------------------------- tables
# Flat tables, traversed by a short loop in any language and for any depth.

_MAX_ENTRIES = 2**31 - 1
_LE_MISSING_NO, _LE_MISSING_YES, _IN, _MISSING = range(4)


@dataclass(frozen=True, slots=True)
class LeafTable:
    """Distinct leaf vectors of a model.

    Attributes
    ----------
    row : (leaves,) int64
        Index of the distinct vector of each row of `Model.units`.
    vectors : (distinct, outputs) int64
        Vectors in order of first appearance.
    """

    row: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.int64]

    def sparse(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the nonzero entries as CSR arrays ``(start, column, units)``."""
        vector, column = np.nonzero(self.vectors)
        start = np.searchsorted(vector, np.arange(len(self.vectors) + 1))
        return start, column, self.vectors[vector, column]


@dataclass(frozen=True, slots=True)
class NodeTable:
    """Inner nodes of all trees, in pre-order, tree after tree.

    Attributes
    ----------
    value : (nodes,) float64
        Threshold of a test, for inputs in double; index of the set
        of an IN node; otherwise 0.
    question : (nodes,) int64
        ``4 * feature + k``, where features beyond those of the row are derived
        columns: k = 0 ``x <= value``, missing no; 1 ``x <= value``,
        missing yes; 2 in the set; 3 missing.
    yes, no : (nodes,) int64
        Child node, or ``-1 - v`` for the leaf vector v.
    root : (trees,) int64
        Root of each tree, in the same encoding.
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


def compute_double_thresholds(tree: LoweredTree, schema: Schema) -> npt.NDArray[np.float64]:
    """Return thresholds (m,) for unrounded inputs in double; 0 for other nodes.

    Tests of derived columns have 0, too.
    """
    result = np.zeros(tree.n_nodes)
    at = (tree.kind == Step.LE) & (tree.feature < schema.n_features)
    t = tree.threshold[at]
    result[at] = to_double_threshold(t) if schema.dtype == "float32" else t
    return result


def leaf_table(units: npt.NDArray[np.int64]) -> LeafTable:
    """Find the distinct rows of ``Model.units``, shape (leaves, outputs).

    In fully grown forests most leaves are pure and share a few vectors.
    """
    # Sorting complete rows is slow for many classes, so rows are compared by a
    # hash; if two different rows collide, all rows are kept.
    factors = np.random.default_rng(0).integers(1, 2**62, size=units.shape[1]) * 2 + 1
    _, first, inverse = np.unique(units @ factors, return_index=True, return_inverse=True)
    if not np.array_equal(units[first[inverse]], units):
        first = inverse = np.arange(len(units))
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return LeafTable(rank[inverse], units[first[order]])


def node_table(trees: tuple[LoweredTree, ...], leaves: LeafTable, schema: Schema) -> NodeTable:
    """Build one table of the inner nodes of all trees.

    Raises
    ------
    ExportError
        If the number of nodes or leaves exceeds 32 bits.
    """
    inner = [tree.kind != Step.LEAF for tree in trees]
    sizes = np.array([np.count_nonzero(mask) for mask in inner], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    columns = max(int(tree.feature.max()) for tree in trees) + 1
    if max(int(sizes.sum()), len(leaves.vectors), 4 * columns) > _MAX_ENTRIES:
        raise ExportError(
            f"the model needs more than {_MAX_ENTRIES} table entries: train fewer trees"
        )
    code = [
        np.where(mask, start - 1 + np.cumsum(mask), -1 - leaves.row[tree.leaf])
        for mask, start, tree in zip(inner, starts, trees, strict=True)
    ]

    def gather_inner(arrays: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.concatenate([a[mask] for a, mask in zip(arrays, inner, strict=True)])

    kinds = gather_inner(map(_encode_tests, trees))
    value = gather_inner(compute_double_thresholds(tree, schema) for tree in trees)
    is_set = kinds == _IN
    value[is_set] = np.arange(np.count_nonzero(is_set))
    lengths = np.concatenate([np.diff(tree.set_start)[tree.kind == Step.IN] for tree in trees])
    return NodeTable(
        value=value,
        question=4 * gather_inner(tree.feature.astype(np.int64) for tree in trees) + kinds,
        yes=gather_inner(c[tree.yes] for c, tree in zip(code, trees, strict=True)),
        no=gather_inner(c[tree.no] for c, tree in zip(code, trees, strict=True)),
        root=np.array([c[0] for c in code], dtype=np.int64),
        set_start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        set_codes=np.concatenate([tree.set_codes for tree in trees]).astype(np.int64),
    )


def _encode_tests(tree: LoweredTree) -> npt.NDArray[np.int64]:
    by_step = np.array([0, _LE_MISSING_NO, _IN, _MISSING])
    missing_yes = (tree.kind == Step.LE) & tree.missing_yes
    return np.where(missing_yes, _LE_MISSING_YES, by_step[tree.kind])


# ---------------------------------------------------------------- bitsets


def set_words(
    starts: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Pack sets of category codes as bit masks into one table of 32-bit words.

    Parameters
    ----------
    starts : (sets + 1,) int64
        Set s owns ``codes[starts[s]:starts[s + 1]]``, ascending, at least one.
    codes : (codes,) int64

    Returns
    -------
    words : (words,) uint32
        A set is stored as the index of its first mask word, the number of mask words, and the
        mask words, 32 codes each; words outside this range are 0.
    offsets : (sets,) int64
        Start of each set in `words`.
    """
    if len(starts) < 2:
        return np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.int64)
    first, last = codes[starts[:-1]] >> 5, codes[starts[1:] - 1] >> 5
    sizes = last - first + 3
    offsets = np.cumsum(sizes) - sizes
    if sizes.sum() >= 2**31:
        raise ExportError("the category sets of the model need more than 2**31 words of C")
    words = np.zeros(sizes.sum(), dtype=np.uint32)
    words[offsets], words[offsets + 1] = first, sizes - 2
    owner = np.repeat(np.arange(len(sizes)), np.diff(starts))
    bits = np.left_shift(np.uint32(1), (codes & 31).astype(np.uint32))
    np.bitwise_or.at(words, offsets[owner] + 2 + (codes >> 5) - first[owner], bits)
    return words, offsets
