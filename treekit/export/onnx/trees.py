"""ONNX tree operators, and outputs for the leaf and the decision path of a row.

``TreeEnsembleRegressor`` of ai.onnx.ml 3 (`add_regressor`) computes float32 sums; a
leaf may have a number for each target.  ``TreeEnsemble`` of ai.onnx.ml 5
(`add_tree_ensemble`) sums in the type of its inputs, needs a third of the bytes,
and supports tests of membership; a leaf has one number.  The classifier operator is
not used: with two classes onnxruntime returns wrong labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.lowering import LoweredTree, Step, concatenate_lowered
from treekit.export.onnx.graph import ML_DOMAIN, Graph
from treekit.model.model import Model
from treekit.model.tree import Tree

if TYPE_CHECKING:
    from onnx import AttributeProto, ValueInfoProto


# ---------------------------------------------------------------- onnx trees

_AGGREGATE_SUM, _NO_TRANSFORM = 1, 0
_MODE_LEQ, _MODE_GTE, _MODE_GT, _MODE_MEMBER = 0, 2, 3, 6
"""Mode numbers of ``TreeEnsemble``."""


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
        Target of each entry, and the number that the leaf adds to it.
    """
    at = np.flatnonzero(nodes.is_leaf)[leaf]
    modes = np.array([b"BRANCH_LEQ", b"LEAF"], dtype=object)[nodes.is_leaf.astype(np.int64)]
    numbers, end = (_make_tensor, "_as_tensor") if graph.real == np.float64 else (_make_list, "")
    return graph.add_operator(
        "TreeEnsembleRegressor",
        [columns],
        output,
        attributes=(
            _make_list("nodes_treeids", nodes.tree),
            _make_list("nodes_nodeids", nodes.node),
            _make_list("nodes_featureids", nodes.feature),
            _make_list("nodes_modes", modes),
            numbers(f"nodes_values{end}", nodes.value.astype(graph.real)),
            _make_list("nodes_missing_value_tracks_true", nodes.missing_true),
            _make_list("nodes_truenodeids", nodes.true),
            _make_list("nodes_falsenodeids", nodes.false),
            _make_list("target_treeids", nodes.tree[at]),
            _make_list("target_nodeids", nodes.node[at]),
            _make_list("target_ids", target),
            numbers(f"target_weights{end}", weight.astype(graph.real)),
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

    Inner nodes are in pre-order, the true branch first.  A test for missing values
    is ``x > inf`` where missing tracks true.  A set is a single test: ``x <= code``
    or ``x >= code`` if it contains the first or the last codes, else membership.

    Parameters
    ----------
    number : (leaves,) int64
        Numbers of the leaves of all lowered trees, in order.
    n_levels : (features,) int64
        Size of each vocabulary.
    """
    graph.ml_used = 5
    table = _EnsembleTable(trees)
    kind = table.kind
    mode = np.select([kind == Step.MISSING, kind == Step.IN], [_MODE_GT, _MODE_MEMBER], _MODE_LEQ)
    split = np.where(kind == Step.MISSING, np.inf, np.where(kind == Step.LE, table.threshold, 0.0))
    first, last, size = table.sets
    run = np.flatnonzero(kind == Step.IN)
    joined = last - first + 1 == size
    low = joined & (first == 0)
    high = joined & ~low & (last == n_levels[table.feature[run]] - 1)
    mode[run[low]], split[run[low]] = _MODE_LEQ, last[low]
    mode[run[high]], split[run[high]] = _MODE_GTE, first[high]
    members = np.repeat(~(low | high), size + 1)
    values = table.members[members].astype(graph.real)
    return graph.add_operator(
        "TreeEnsemble",
        [columns],
        output,
        attributes=(
            _make_list("nodes_featureids", table.feature),
            _make_tensor("nodes_modes", mode.astype(np.uint8)),
            _make_tensor("nodes_splits", split.astype(graph.real)),
            *([_make_tensor("membership_values", values)] if len(values) else []),
            _make_list("nodes_missing_value_tracks_true", table.missing_true),
            _make_list("nodes_truenodeids", table.true),
            _make_list("nodes_trueleafs", table.true_is_leaf),
            _make_list("nodes_falsenodeids", table.false),
            _make_list("nodes_falseleafs", table.false_is_leaf),
            _make_list("leaf_targetids", table.tree_of_leaf),
            _make_tensor("leaf_weights", number[table.leaf].astype(graph.real)),
            _make_list("tree_roots", table.root),
        ),
        domain=ML_DOMAIN,
        n_targets=len(trees),
        aggregate_function=_AGGREGATE_SUM,
        post_transform=_NO_TRANSFORM,
    )


class _EnsembleTable:
    """Separate tables of the inner nodes and the leaves of all trees.

    A tree of a single leaf gets an inner node with two copies of the leaf: onnxruntime up to
    1.29 misreads a tree both of whose branches lead to the same leaf.

    Attributes
    ----------
    leaf : (written leaves,) int64
        Position among the leaves of all lowered trees.
    """

    def __init__(self, trees: tuple[LoweredTree, ...]) -> None:
        nodes, first = concatenate_lowered(trees)
        counts = np.diff(first, append=nodes.n_nodes)
        is_leaf = nodes.kind == Step.LEAF
        lone = np.zeros(nodes.n_nodes, dtype=np.bool_)
        lone[first] = counts == 1
        yes, no = (np.where(lone, np.arange(nodes.n_nodes), side) for side in (nodes.yes, nodes.no))
        inner = np.flatnonzero(~is_leaf | lone)
        number = np.cumsum(~is_leaf | lone) - 1  # of inner nodes
        leaf = np.cumsum(is_leaf + lone.astype(np.int64)) - 1
        self.root = number[first]
        self.kind = np.where(lone, Step.LE, nodes.kind)[inner]
        self.threshold = np.where(lone, 0.0, nodes.threshold)[inner]
        self.feature = np.where(lone, 0, nodes.feature)[inner]
        self.missing_true = np.where(lone, False, nodes.missing_yes)[inner]
        self.true_is_leaf, self.false_is_leaf = is_leaf[yes[inner]], is_leaf[no[inner]]
        first_leaf = leaf[yes[inner]] - lone[inner]
        self.true = np.where(self.true_is_leaf, first_leaf, number[yes[inner]])
        self.false = np.where(self.false_is_leaf, leaf[no[inner]], number[no[inner]])
        self.leaf = np.repeat(np.arange(np.count_nonzero(is_leaf)), 1 + lone[is_leaf])
        self.tree_of_leaf = np.repeat(np.arange(len(trees)), counts)[is_leaf][self.leaf]
        # First code, last code and size of each set, and all codes, with NaN after each set.
        codes, size = nodes.set_codes.astype(np.float64), nodes.set_sizes
        end = np.cumsum(size)
        self.sets = codes[end - size], codes[end - 1], size
        self.members = np.insert(codes, end, np.nan)


# `onnx.helper.make_attribute` inspects every element; these functions convert complete arrays.


def _make_list(name: str, values: npt.NDArray[Any]) -> AttributeProto:
    """Make an attribute of integers, floats or texts."""
    from onnx import AttributeProto

    if values.dtype == object:
        kind, field = AttributeProto.STRINGS, "strings"
    elif values.dtype == np.float32:
        kind, field = AttributeProto.FLOATS, "floats"
    else:
        kind, field, values = AttributeProto.INTS, "ints", values.astype(np.int64)
    return AttributeProto(name=name, type=kind, **{field: values.tolist()})


def _make_tensor(name: str, values: npt.NDArray[Any]) -> AttributeProto:
    from onnx import AttributeProto, numpy_helper

    return AttributeProto(
        name=name, type=AttributeProto.TENSOR, t=numpy_helper.from_array(values, name)
    )


# ---------------------------------------------------------------- onnx nodes
# Every test becomes ``BRANCH_LEQ``, the only mode that is correct in every onnxruntime:
#
# LE
#     unchanged, with ``nodes_missing_value_tracks_true`` if missing values take the yes branch.
# MISSING
#     ``x <= inf`` with exchanged branches: only NaN fails it.
# IN
#     a chain with one test for each boundary between members and others.  Codes are
#     ascending, so ``x <= bound`` cuts them off run by run, and NaN falls through to the
#     end of the chain: the no branch.  Codes must be clean: integers
#     of the vocabulary or NaN, see `treekit.export.onnx.inputs`.
#
# A chain of ``BRANCH_EQ``, one test per member, is not used: onnxruntime 1.21 and 1.22
# merge such chains and then misread trees of only such tests (1,253 of 6,060
# random batches wrong; none in 1.20 and 1.31).  Also, a range of any length needs
# at most two tests, and a set at most two per member.
#
# The tests of a chain share children, but only in true branches: onnxruntime
# lays out false branches first and refuses a shared one.


@dataclass(frozen=True, slots=True)
class OnnxNodes:
    """Nodes of all trees, one tree after the other, each tree's root first.

    Attributes
    ----------
    tree, node : (m,) int64
        Number of the tree, and of the node within it.
    is_leaf : (m,) bool
        Leaves; all others are ``BRANCH_LEQ``.
    feature : (m,) int64
        0 in leaves.
    value : (m,) float64
        Threshold, a number of the model's input type; 0 in leaves.
    missing_true : (m,) bool
        Whether NaN takes the true branch.
    true, false : (m,) int64
        Child nodes within the tree; 0 in leaves.
    row : (leaves,) int64
        Row of `Model.units` of each leaf, in order.
    depth : int
        Edges from a root to the deepest leaf; each test of a chain counts.
    """

    tree: npt.NDArray[np.int64]
    node: npt.NDArray[np.int64]
    is_leaf: npt.NDArray[np.bool_]
    feature: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]
    missing_true: npt.NDArray[np.bool_]
    true: npt.NDArray[np.int64]
    false: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    depth: int


def convert_to_onnx_nodes(trees: tuple[LoweredTree, ...]) -> OnnxNodes:
    """Convert lowered trees to nodes of ONNX tree operators, with array operations."""
    nodes, first = concatenate_lowered(trees)
    kind, yes, no = nodes.kind, nodes.yes, nodes.no
    is_set = kind == Step.IN
    bounds, bound_says_yes, chain = _find_boundaries(nodes)

    length = np.ones(len(kind), dtype=np.int64)
    length[is_set] = chain
    start = np.cumsum(length) - length
    source = np.repeat(np.arange(len(kind)), length)
    last = np.zeros(len(source), dtype=np.bool_)
    last[start + length - 1] = True

    emitted = kind[source]
    value = nodes.threshold[source]
    value[emitted == Step.IN] = bounds
    value[emitted == Step.MISSING] = np.inf
    says_yes = emitted == Step.LE
    says_yes[emitted == Step.IN] = bound_says_yes
    other = np.where(emitted == Step.MISSING, yes[source], no[source])
    is_leaf = emitted == Step.LEAF
    following = np.arange(1, len(source) + 1)
    tree_first = np.append(start, len(source))[first]  # in emitted nodes
    tree = np.repeat(np.arange(len(trees)), np.diff(first, append=len(kind)))[source]
    base = tree_first[tree]
    true = start[np.where(says_yes, yes[source], no[source])] - base
    false = np.where(last, start[other], following) - base
    return OnnxNodes(
        tree=tree,
        node=np.arange(len(source)) - base,
        is_leaf=is_leaf,
        feature=np.where(is_leaf, 0, nodes.feature[source]),
        value=np.where(is_leaf, 0.0, value),
        missing_true=nodes.missing_yes[source] & (emitted == Step.LE),
        true=np.where(is_leaf, 0, true),
        false=np.where(is_leaf, 0, false),
        row=nodes.leaf[kind == Step.LEAF],
        depth=_compute_depth(kind == Step.LEAF, yes, no, length, first),
    )


def _find_boundaries(
    nodes: LoweredTree,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return the tests ``code <= bound`` of all IN nodes, in order.

    Returns
    -------
    bounds : (tests,) int64
    says_yes : (tests,) bool
        Whether a code that passes is a member.
    chain : (IN nodes,) int64
        Number of tests of each node.
    """
    codes, sizes = nodes.set_codes.astype(np.int64), nodes.set_sizes
    owner = np.repeat(np.arange(len(sizes)), sizes)
    joined = np.zeros(len(codes) + 1, dtype=np.bool_)  # with the code before
    joined[1:-1] = (np.diff(codes) == 1) & (np.diff(owner) == 0)
    # A run has a boundary before it unless it begins at code 0, and one at its end.
    tests = np.stack([~joined[:-1] & (codes > 0), ~joined[1:]], axis=1)
    bounds = np.stack([codes - 1, codes], axis=1)[tests]
    says_yes = np.broadcast_to(np.array([False, True]), tests.shape)[tests]
    chain = np.bincount(owner, weights=tests.sum(axis=1), minlength=len(sizes))
    return bounds, says_yes, chain.astype(np.int64)


def _compute_depth(
    is_leaf: npt.NDArray[np.bool_],
    yes: npt.NDArray[Any],
    no: npt.NDArray[Any],
    length: npt.NDArray[np.int64],
    roots: npt.NDArray[np.int64],
) -> int:
    """Return the edges to the deepest leaf if node i counts ``length[i]``; breadth-first."""
    level, depth, deepest = roots, np.zeros(len(roots), dtype=np.int64), 0
    while len(level):
        inner = ~is_leaf[level]
        deepest = max(deepest, int(depth.max()))
        level, depth = level[inner], depth[inner]
        depth = np.tile(depth + length[level], 2)
        level = np.concatenate([yes[level], no[level]])
    return deepest


# ---------------------------------------------------------------- onnx leaves

_MAX_PATH_CHARACTERS = 2**26
"""Maximum characters of all paths; each leaf has one for every node of its tree."""


def add_leaves(graph: Graph, model: Model, reached: str) -> ValueInfoProto:
    """Add the output ``leaf``: node numbers as in `treekit.model.scoring.leaf_indices`.

    Parameters
    ----------
    reached : str
        (N, trees) int64: rows of `Model.units`.

    Returns
    -------
    ValueInfoProto
        (N, trees) int64.
    """
    from onnx import TensorProto, helper

    graph.add_constant("node_of_leaf", np.concatenate([tree.leaves for tree in model.trees]))
    graph.add_operator("Gather", ["node_of_leaf", reached], "leaf", axis=0)
    return helper.make_tensor_value_info("leaf", TensorProto.INT64, ["N", model.n_trees])


def add_paths(graph: Graph, model: Model, reached: str) -> ValueInfoProto:
    """Add the output ``path``: a text for each tree, 1 for each visited node, else 0.

    This is skl2onnx's format of scikit-learn's ``decision_path``.  The text has one
    character per node, in the order of node numbers.

    Returns
    -------
    ValueInfoProto
        (N, trees) texts.
    """
    from onnx import TensorProto, helper

    if model.missing == "fractional":
        raise ExportError(
            "onnx: decision_path=True needs a single path through each tree, and the model uses "
            "fractional instances (missing='fractional'): choose leaf=True, the leaf of the "
            "largest part"
        )
    size = sum(tree.n_leaves * tree.n_nodes for tree in model.trees)
    if size > _MAX_PATH_CHARACTERS:
        raise ExportError(
            f"onnx: decision_path=True needs {size:,} characters, one for each pair of a leaf and "
            f"a node of a tree; {_MAX_PATH_CHARACTERS:,} are allowed: choose leaf=True, which "
            "determines the path"
        )
    paths = [path for tree in model.trees for path in _list_paths(tree)]
    graph.add_constant("path_of_leaf", np.array(paths, dtype=object))
    graph.add_operator("Gather", ["path_of_leaf", reached], "path", axis=0)
    return helper.make_tensor_value_info("path", TensorProto.STRING, ["N", model.n_trees])


def _list_paths(tree: Tree) -> list[bytes]:
    """Return the text of the decision path of each leaf, in node order."""
    visited: npt.NDArray[np.uint8] = np.full((tree.n_leaves, tree.n_nodes), ord("0"), np.uint8)
    row, node, parent = np.arange(tree.n_leaves), tree.leaves, tree.parent
    while len(row):
        visited[row, node] = ord("1")
        node = parent[node]
        row, node = row[node >= 0], node[node >= 0]
    return [path.tobytes() for path in visited]
