"""ONNX's tree operators: nodes of all trees as attributes, each leaf with its numbers.

``TreeEnsembleRegressor`` of ai.onnx.ml 3 (`add_regressor`) gives float32 sums; a
leaf may have a number for any of the targets.  ``TreeEnsemble`` of ai.onnx.ml 5
(`add_tree_ensemble`) sums in the type of its inputs, needs a third of the bytes,
and has tests of membership; a leaf has one number.  The classifier operator is
not used: with two classes onnxruntime gives wrong labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.export.lower import LoweredTree, Step
from treekit.export.onnx_graph import ML_DOMAIN, Graph
from treekit.export.onnx_nodes import OnnxNodes

if TYPE_CHECKING:
    from onnx import AttributeProto

__all__ = ["add_regressor", "add_tree_ensemble"]

_SUM, _NONE = 1, 0
_LEQ, _GTE, _GT, _MEMBER = 0, 2, 3, 6
"""Numbers of the modes of ``TreeEnsemble``."""


def add_regressor(
    graph: Graph,
    columns: str,
    nodes: OnnxNodes,
    leaf: npt.NDArray[np.int64],
    target: npt.NDArray[np.int64],
    weight: npt.NDArray[np.int64],
    n_targets: int,
    output: str,
) -> str:
    """Add ``TreeEnsembleRegressor``: (N, targets) float32 sums over the trees.

    Parameters
    ----------
    columns : str
        (N, columns) of the graph's type.
    leaf : (entries,) int64
        Position among the leaves of all trees, ascending; each leaf at least once.
    target, weight : (entries,) int64
        What the leaf adds to which target.
    """
    at = np.flatnonzero(nodes.is_leaf)[leaf]
    modes = np.array([b"BRANCH_LEQ", b"LEAF"], dtype=object)[nodes.is_leaf.astype(np.int64)]
    double = graph.real == np.float64
    numbers = _doubles if double else _floats
    end = "_as_tensor" if double else ""
    return graph.add(
        "TreeEnsembleRegressor",
        [columns],
        output,
        attributes=(
            _ints("nodes_treeids", nodes.tree),
            _ints("nodes_nodeids", nodes.node),
            _ints("nodes_featureids", nodes.feature),
            _strings("nodes_modes", modes),
            numbers(f"nodes_values{end}", nodes.value),
            _ints("nodes_missing_value_tracks_true", nodes.missing_true),
            _ints("nodes_truenodeids", nodes.true),
            _ints("nodes_falsenodeids", nodes.false),
            _ints("target_treeids", nodes.tree[at]),
            _ints("target_nodeids", nodes.node[at]),
            _ints("target_ids", target),
            numbers(f"target_weights{end}", weight),
        ),
        domain=ML_DOMAIN,
        n_targets=n_targets,
        aggregate_function="SUM",
        post_transform="NONE",
    )


def add_tree_ensemble(
    graph: Graph,
    columns: str,
    trees: tuple[LoweredTree, ...],
    number: npt.NDArray[np.int64],
    n_levels: npt.NDArray[np.int64],
    output: str,
) -> str:
    """Add ``TreeEnsemble``: (N, trees), the number of the leaf that a row reaches in each tree.

    Inner nodes are in pre-order, the true branch first.  A test "is it missing?"
    is ``x > inf`` where missing tracks true.  A set is a single test: ``x <= code``
    or ``x >= code`` if it holds the first codes or the last, else of membership.

    Parameters
    ----------
    number : (leaves,) int64
        Of the leaves of all lowered trees, in order.
    n_levels : (features,) int64
        Size of each vocabulary.
    """
    graph.ml_used = 5
    table = _Table(trees)
    kind = table.kind
    mode = np.select([kind == Step.MISSING, kind == Step.IN], [_GT, _MEMBER], _LEQ)
    split = np.where(kind == Step.MISSING, np.inf, np.where(kind == Step.LE, table.threshold, 0.0))
    first, last, size = table.sets
    run = np.flatnonzero(kind == Step.IN)
    joined = last - first + 1 == size
    low = joined & (first == 0)
    high = joined & ~low & (last == n_levels[table.feature[run]] - 1)
    mode[run[low]], split[run[low]] = _LEQ, last[low]
    mode[run[high]], split[run[high]] = _GTE, first[high]
    members = np.repeat(~(low | high), size + 1)
    values = table.members[members].astype(graph.real)
    return graph.add(
        "TreeEnsemble",
        [columns],
        output,
        attributes=(
            _ints("nodes_featureids", table.feature),
            _tensor("nodes_modes", mode.astype(np.uint8)),
            _tensor("nodes_splits", split.astype(graph.real)),
            *([_tensor("membership_values", values)] if len(values) else []),
            _ints("nodes_missing_value_tracks_true", table.missing_true),
            _ints("nodes_truenodeids", table.true),
            _ints("nodes_trueleafs", table.true_is_leaf),
            _ints("nodes_falsenodeids", table.false),
            _ints("nodes_falseleafs", table.false_is_leaf),
            _ints("leaf_targetids", table.tree_of_leaf),
            _tensor("leaf_weights", number[table.leaf].astype(graph.real)),
            _ints("tree_roots", table.root),
        ),
        domain=ML_DOMAIN,
        n_targets=len(trees),
        aggregate_function=_SUM,
        post_transform=_NONE,
    )


class _Table:
    """Inner nodes and leaves apart, of all trees.

    A tree of one leaf gets a node above it, and its leaf a second time: up to 1.29
    onnxruntime misreads a tree both of whose branches lead to one leaf.

    Attributes
    ----------
    leaf : (written leaves,) int64
        Position among the leaves of all lowered trees.
    """

    def __init__(self, trees: tuple[LoweredTree, ...]) -> None:
        counts = np.array([tree.n_nodes for tree in trees])
        first = np.cumsum(counts) - counts
        kind = np.concatenate([tree.kind for tree in trees])
        yes = np.concatenate([tree.yes + at for tree, at in zip(trees, first, strict=True)])
        no = np.concatenate([tree.no + at for tree, at in zip(trees, first, strict=True)])
        is_leaf = kind == Step.LEAF
        lone = np.zeros(len(kind), dtype=np.bool_)
        lone[first] = counts == 1
        yes[lone] = no[lone] = np.flatnonzero(lone)
        inner = np.flatnonzero(~is_leaf | lone)
        number = np.cumsum(~is_leaf | lone) - 1  # of inner nodes
        leaf = np.cumsum(is_leaf + lone.astype(np.int64)) - 1
        self.root = number[first]
        self.kind = np.where(lone, Step.LE, kind)[inner]
        self.threshold = self._each(trees, "threshold", lone, 0.0)[inner]
        self.feature = self._each(trees, "feature", lone, 0)[inner]
        self.missing_true = self._each(trees, "missing_yes", lone, False)[inner]
        self.true_is_leaf, self.false_is_leaf = is_leaf[yes[inner]], is_leaf[no[inner]]
        first_leaf = leaf[yes[inner]] - lone[inner]
        self.true = np.where(self.true_is_leaf, first_leaf, number[yes[inner]])
        self.false = np.where(self.false_is_leaf, leaf[no[inner]], number[no[inner]])
        self.leaf = np.repeat(np.arange(np.count_nonzero(is_leaf)), 1 + lone[is_leaf])
        tree = np.repeat(np.arange(len(trees)), counts)
        self.tree_of_leaf = tree[is_leaf][self.leaf]
        self.sets, self.members = self._sets(trees)

    @staticmethod
    def _each(
        trees: tuple[LoweredTree, ...], name: str, lone: npt.NDArray[np.bool_], other: Any
    ) -> npt.NDArray[Any]:
        return np.where(lone, other, np.concatenate([getattr(tree, name) for tree in trees]))

    @staticmethod
    def _sets(trees: tuple[LoweredTree, ...]) -> tuple[tuple[Any, Any, Any], npt.NDArray[Any]]:
        """First and last code, and size, of each set; and all codes, a NaN behind each set."""
        codes = np.concatenate([tree.set_codes for tree in trees]).astype(np.float64)
        size = np.concatenate([np.diff(tree.set_start)[tree.kind == Step.IN] for tree in trees])
        end = np.cumsum(size)
        members = np.insert(codes, end, np.nan)
        return (codes[end - size], codes[end - 1], size), members


# `onnx.helper.make_attribute` looks at every element; these take arrays whole.


def _ints(name: str, values: npt.NDArray[Any]) -> AttributeProto:
    from onnx import AttributeProto

    return AttributeProto(
        name=name, type=AttributeProto.INTS, ints=values.astype(np.int64).tolist()
    )


def _floats(name: str, values: npt.NDArray[Any]) -> AttributeProto:
    from onnx import AttributeProto

    return AttributeProto(
        name=name, type=AttributeProto.FLOATS, floats=values.astype(np.float32).tolist()
    )


def _doubles(name: str, values: npt.NDArray[Any]) -> AttributeProto:
    return _tensor(name, values.astype(np.float64))


def _strings(name: str, values: npt.NDArray[Any]) -> AttributeProto:
    from onnx import AttributeProto

    return AttributeProto(name=name, type=AttributeProto.STRINGS, strings=values.tolist())


def _tensor(name: str, values: npt.NDArray[Any]) -> AttributeProto:
    from onnx import AttributeProto, numpy_helper

    return AttributeProto(
        name=name, type=AttributeProto.TENSOR, t=numpy_helper.from_array(values, name)
    )
