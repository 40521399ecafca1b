"""Find the tree operator of an ONNX graph, and convert its trees to node lists.

A graph is supported if it consists of one tree ensemble and of casts, reshapes and a
ZipMap, which do not change predictions; other operators are rejected.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.errors import ModelError, ModelFileError
from treekit.interop import beginning, read_whole
from treekit.interop.tree_assembly import MAX_ENTRIES, NodeList, Vocabulary, make_integer_vocabulary
from treekit.model.fixed_point import MAX_TREES, floor_to_dtype
from treekit.model.tree import MAX_DEPTH

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto


# ---------------------------------------------------------------- onnx graph

SOURCE = "the ONNX model"
OPERATORS = ("TreeEnsembleRegressor", "TreeEnsembleClassifier", "TreeEnsemble")
"""Tree operators of ai.onnx.ml."""
_FLOAT, _UINT8, _INT32, _INT64, _DOUBLE = 1, 2, 6, 7, 11
"""Values of `TensorProto.DataType`."""
_TENSOR_DTYPES = {_FLOAT: "<f4", _DOUBLE: "<f8", _UINT8: "u1", _INT32: "<i4", _INT64: "<i8"}
_EXTERNAL_DATA = 1
_SHAPE_OPERATORS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")


def recognises_onnx(source: Any) -> bool:
    """Return whether `source` is an ONNX file (``.onnx``), or a `ModelProto`."""
    # A ModelProto starts with its field 1, the version of the format.
    return beginning(source, (".onnx",), 1) == b"\x08" or _is_proto(source)


def _is_proto(source: Any) -> bool:
    kind = type(source)
    return kind.__name__ == "ModelProto" and kind.__module__.partition(".")[0] == "onnx"


def load_proto(source: Any) -> ModelProto:
    """Parse a file, or return an object."""
    if _is_proto(source):
        proto: ModelProto = source
        return proto
    if not isinstance(source, Path) or not recognises_onnx(source):
        raise ModelError(f"expected an ONNX model, got {type(source).__qualname__}")
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    parsed = ModelProto()
    try:
        parsed.ParseFromString(read_whole(source))
    except (DecodeError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"{SOURCE} is damaged, or not an ONNX model: {error}") from error
    _check_texts(parsed)
    return parsed


def _check_texts(proto: ModelProto) -> None:
    """Check that texts are UTF-8; the parser returns invalid ones as bytes."""
    named = [*proto.graph.input, *proto.graph.output, *proto.graph.initializer]
    texts: list[Any] = [proto.producer_name, *(one.name for one in named)]
    for node in proto.graph.node:
        texts += [node.op_type, node.domain, node.name, *node.input, *node.output]
        texts += [attribute.name for attribute in node.attribute]
    for entry in proto.metadata_props:
        texts += [entry.key, entry.value]
    if not all(isinstance(text, str) for text in texts):
        raise ModelFileError(f"{SOURCE} is damaged: it contains text that is not UTF-8")


class Attributes:
    """Typed access to the attributes of an operator."""

    def __init__(self, node: NodeProto) -> None:
        self.by_name: dict[str, AttributeProto] = {one.name: one for one in node.attribute}

    def get_integers(self, name: str) -> npt.NDArray[np.int64]:
        """Return integers of a list or a tensor; empty if absent."""
        found = self._get_array(name, "ints", np.int64)
        if found.dtype.kind == "f":
            raise ModelFileError(f"{SOURCE} is damaged: {name} does not contain integers")
        return found.astype(np.int64)

    def get_floats(self, name: str) -> npt.NDArray[np.float64]:
        """Return numbers of a list, a tensor, or the ``_as_tensor`` of that name."""
        wide = f"{name}_as_tensor"
        return self._get_array(wide if wide in self.by_name else name, "floats", np.float64)

    def get_strings(self, name: str) -> list[str]:
        """Return strings; empty if absent."""
        try:
            return (
                [text.decode("utf-8") for text in self.by_name[name].strings]
                if name in self.by_name
                else []
            )
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{SOURCE} is damaged: {name}: {error}") from error

    def get_string(self, name: str, default: str) -> str:
        """Return a string."""
        return self.by_name[name].s.decode("utf-8", "replace") if name in self.by_name else default

    def get_integer(self, name: str, default: int) -> int:
        """Return an integer."""
        return int(self.by_name[name].i) if name in self.by_name else default

    def _get_array(self, name: str, field: str, dtype: Any) -> npt.NDArray[Any]:
        if name not in self.by_name:
            return np.zeros(0, dtype=dtype)
        attribute = self.by_name[name]
        if attribute.HasField("t"):
            return read_tensor(attribute.t, name)
        return np.array(getattr(attribute, field), dtype=dtype)


def read_tensor(tensor: Any, name: str) -> npt.NDArray[Any]:
    """Return a tensor's numbers, flat; external files are not read."""
    if tensor.data_location == _EXTERNAL_DATA or tensor.data_type not in _TENSOR_DTYPES:
        raise ModelError(
            f"{SOURCE} stores {name} in another file, or in a type other than float, double, "
            "uint8, int32 and int64; save it in one file"
        )
    dtype = np.dtype(_TENSOR_DTYPES[tensor.data_type])
    if tensor.raw_data:
        if len(tensor.raw_data) % dtype.itemsize:
            raise ModelFileError(f"{SOURCE} is damaged: {name} is truncated")
        return np.frombuffer(tensor.raw_data, dtype=dtype)
    typed = {
        _FLOAT: "float_data",
        _DOUBLE: "double_data",
        _UINT8: "int32_data",
        _INT32: "int32_data",
    }
    values = np.array(getattr(tensor, typed.get(tensor.data_type, "int64_data")))
    return values.astype(dtype) if values.size else np.zeros(0, dtype=dtype)


@dataclass(frozen=True, slots=True)
class TreeOperator:
    """A tree operator and its input.

    Attributes
    ----------
    kind : str
        The operator's name.
    attributes : Attributes
    dtype : {"float32", "float64"}
        Type of the numbers that it compares.
    n_features : int
        Columns of the input, 0 if unknown.
    """

    kind: str
    attributes: Attributes
    dtype: Dtype
    n_features: int


def find_tree_operator(graph: GraphProto) -> TreeOperator:
    """Find the only tree operator of a graph.

    Raises
    ------
    ModelError
        If there are several, or another operator could change predictions.
    """
    trees = [node for node in graph.node if node.op_type in OPERATORS]
    if len(trees) != 1:
        others = ", ".join(sorted({node.op_type for node in graph.node})[:8]) or "none"
        raise ModelError(
            f"{SOURCE} has {len(trees)} tree operators ({', '.join(OPERATORS)}), but treekit "
            f"reads models with one; its operators: {others}"
        )
    (tree,) = trees
    dtype, n_features = _find_input(graph, tree)
    _check_outputs(graph, tree)
    return TreeOperator(tree.op_type, Attributes(tree), dtype, n_features)


def _find_input(graph: GraphProto, tree: NodeProto) -> tuple[Dtype, int]:
    """Return the type of the numbers that the trees compare, and the number of columns."""
    constants = {one.name for one in graph.initializer}
    inputs = {one.name: one for one in graph.input if one.name not in constants}
    makers = {name: node for node in graph.node for name in node.output}
    narrowed, at = False, tree.input[0] if tree.input else ""
    for _ in range(len(graph.node) + 1):
        if at in inputs or at not in makers:
            break
        node = makers[at]
        to = next((one.i for one in node.attribute if one.name == "to"), 0)
        cast = node.op_type == "Cast" and to in (_FLOAT, _DOUBLE)
        if not cast and node.op_type != "Identity":
            raise _make_operator_error(node, "before its trees")
        narrowed |= cast and to == _FLOAT
        at = node.input[0] if node.input else ""
    if len(inputs) != 1 or at not in inputs:
        raise ModelError(f"{SOURCE} has {len(inputs)} inputs; treekit reads models with one tensor")
    tensor = inputs[at].type.tensor_type
    if tensor.elem_type not in (_FLOAT, _DOUBLE, _INT32, _INT64):
        raise ModelError(
            f"{SOURCE} has an input of type {tensor.elem_type}, not float, double, int32 or int64"
        )
    wide = tensor.elem_type == _DOUBLE and not narrowed
    width = tensor.shape.dim[1].dim_value if len(tensor.shape.dim) == 2 else 0
    return "float64" if wide else "float32", int(width)


def _check_outputs(graph: GraphProto, tree: NodeProto) -> None:
    """Check that operators after the trees change only shapes and types."""
    labels = tree.op_type == "TreeEnsembleClassifier"
    contents = dict.fromkeys(tree.output, "scores")
    if labels and tree.output:
        contents[tree.output[0]] = "label"
    before = _find_ancestors(graph, tree)
    for node in graph.node:
        if node is tree or any(name in before for name in node.output):
            continue
        content = contents.get(node.input[0] if node.input else "")
        if content is None and node.op_type == "Constant":
            continue
        to = next((one.i for one in node.attribute if one.name == "to"), 0)
        casts = (_INT64,) if content == "label" else (_FLOAT, _DOUBLE)
        plain = node.op_type in _SHAPE_OPERATORS or (node.op_type == "Cast" and to in casts)
        zipped = node.op_type == "ZipMap" and content == "scores"
        if content is None or not (plain or zipped):
            raise _make_operator_error(node, "after its trees")
        contents |= dict.fromkeys(node.output, content)


def _find_ancestors(graph: GraphProto, tree: NodeProto) -> set[str]:
    """Return the outputs of the nodes between the graph's input and its trees."""
    makers = {name: node for node in graph.node for name in node.output}
    found: set[str] = set()
    at = tree.input[0] if tree.input else ""
    while at in makers and at not in found:
        found.add(at)
        at = makers[at].input[0] if makers[at].input else ""
    return found


def _make_operator_error(node: NodeProto, where: str) -> ModelError:
    """Return the error for an unsupported operator."""
    return ModelError(
        f"{SOURCE} has the operator {node.op_type!r:.60} {where}, which treekit does not support; "
        "convert only the trees, without scaling and post-processing"
    )


# ---------------------------------------------------------------- onnx trees
# ONNX's tree operators as node lists: versions 1 to 3 of ai.onnx.ml, and 5.
#
# Versions 1 to 3 (``TreeEnsembleRegressor``, ``TreeEnsembleClassifier``) identify nodes
# by tree and node id; version 5 (``TreeEnsemble``) by position, with separate leaves.
# Nodes may have several parents: each parent gets a copy, up to a limit.

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)
"""Modes, numbered as in version 5."""
_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
_Kind = TypeVar("_Kind", bound=np.generic)
_MAX_COPIES = 16
_MIN_COPY_LIMIT = 2**20
"""Limits of nodes after copying: `_MAX_COPIES` times the nodes, but at least `_MIN_COPY_LIMIT`."""


class OnnxTrees(NamedTuple):
    """The nodes of all trees.

    Attributes
    ----------
    roots : (trees,) int64
    tree : (n,) int64
        Empty before `copy_shared_nodes`.
    mode : (n,) int64
    feature : (n,) int64
    split : (n,) float64
    true, false : (n,) int64
        -1 in leaves.
    missing_true : (n,) bool
    value : (n, targets) float64
    used_targets : tuple of int
        Targets that leaves add to.
    members : dict of int to (members,) float64
        Sets of the MEMBER nodes.
    """

    roots: Ints
    tree: Ints
    mode: Ints
    feature: Ints
    split: Floats
    true: Ints
    false: Ints
    missing_true: npt.NDArray[np.bool_]
    value: Floats
    used_targets: tuple[int, ...]
    members: dict[int, Floats]


def _raise_unless(condition: object, message: str) -> None:
    if not bool(condition):
        raise ModelFileError(f"{SOURCE} is damaged: {message}")


def read_id_trees(
    attributes: Attributes, prefix: str, n_targets: int, *, sum_targets: bool = False
) -> OnnxTrees:
    """Read the trees of versions 1 to 3; nodes may have several parents.

    Parameters
    ----------
    prefix : {"class", "target"}
    sum_targets : bool
        Sum the weights of all targets, for graphs with one target per tree.
    """
    tree_ids, node_ids = (
        attributes.get_integers("nodes_treeids"),
        attributes.get_integers("nodes_nodeids"),
    )
    n = len(tree_ids)
    _raise_unless(n and len(node_ids) == n, "it has no nodes, or inconsistent numbers of ids")
    names = attributes.get_strings("nodes_modes")
    _raise_unless(len(names) == n, f"nodes_modes has {len(names)} entries of {n}")
    number = {f"BRANCH_{name}": mode for mode, name in enumerate(_MODES[:6])} | {"LEAF": LEAF}
    if strange := sorted(set(names) - set(number)):
        raise ModelError(f"{SOURCE} has the unknown mode {strange[0]!r:.60}")
    mode = np.array([number[name] for name in names], dtype=np.int64)
    where = _NodeIndex(tree_ids, node_ids)
    inner = mode != LEAF
    true, false = (
        where.find_positions(
            tree_ids, _check_length(attributes.get_integers(f"nodes_{side}nodeids"), n, side), inner
        )
        for side in ("true", "false")
    )
    children = np.concatenate([true[inner], false[inner]])
    is_child = np.zeros(n, dtype=np.bool_)
    is_child[children] = True
    roots = np.flatnonzero(~is_child)
    trees, counts = np.unique(tree_ids[roots], return_counts=True)
    _raise_unless(
        np.array_equal(trees, where.trees) and np.all(counts == 1), "a tree has no root, or several"
    )
    leaf_ids = [
        attributes.get_integers(f"{prefix}_{name}") for name in ("treeids", "nodeids", "ids")
    ]
    weight = attributes.get_floats(f"{prefix}_weights")
    _raise_unless(
        len({len(weight), *map(len, leaf_ids)}) == 1, "inconsistent sizes of leaf weights"
    )
    leaf = where.find_positions(leaf_ids[0], leaf_ids[1], np.ones(len(weight), dtype=np.bool_))
    _raise_unless(not np.any(inner[leaf]), "an inner node has a weight")
    missing = attributes.get_integers("nodes_missing_value_tracks_true")
    return OnnxTrees(
        roots=roots,
        tree=np.zeros(0, dtype=np.int64),
        mode=mode,
        feature=_check_length(attributes.get_integers("nodes_featureids"), n, "nodes_featureids"),
        split=_check_length(attributes.get_floats("nodes_values"), n, "nodes_values").astype(
            np.float64
        ),
        true=true,
        false=false,
        missing_true=_check_length(missing if len(missing) else 0 * mode, n, "missing_value") != 0,
        value=_sum_leaf_weights(n, n_targets, leaf, leaf_ids[2], weight, sum_targets),
        used_targets=tuple(np.unique(leaf_ids[2]).tolist()),
        members={},
    )


def read_position_trees(
    attributes: Attributes, n_targets: int, *, sum_targets: bool = False
) -> OnnxTrees:
    """Read the trees of version 5; see `read_id_trees`."""
    mode = attributes.get_integers("nodes_modes")
    n = len(mode)
    _raise_unless(n and np.all((mode >= 0) & (mode <= MEMBER)), "it has no nodes, or unknown modes")
    weight = attributes.get_floats("leaf_weights").astype(np.float64)
    target = attributes.get_integers("leaf_targetids")
    n_leaves = len(weight)
    _raise_unless(n_leaves and len(target) == n_leaves, "inconsistent sizes of leaf weights")
    sides = []
    for side in ("true", "false"):
        child = _check_length(
            attributes.get_integers(f"nodes_{side}nodeids"), n, f"nodes_{side}nodeids"
        )
        is_leaf = (
            _check_length(attributes.get_integers(f"nodes_{side}leafs"), n, f"nodes_{side}leafs")
            != 0
        )
        inside = (child >= 0) & (child < np.where(is_leaf, n_leaves, n))
        _raise_unless(np.all(inside), "a node's child does not exist")
        sides.append(np.concatenate([child + n * is_leaf, np.full(n_leaves, -1)]))
    roots = attributes.get_integers("tree_roots")
    _raise_unless(len(roots) and np.all((roots >= 0) & (roots < n)), "a tree has no root")
    missing = attributes.get_integers("nodes_missing_value_tracks_true")
    missing = _check_length(missing if len(missing) else 0 * mode, n, "missing_value")
    none = np.zeros(n_leaves, dtype=np.int64)
    splits = _check_length(attributes.get_floats("nodes_splits"), n, "nodes_splits").astype(
        np.float64
    )
    return OnnxTrees(
        roots=roots,
        tree=np.zeros(0, dtype=np.int64),
        mode=np.concatenate([mode, none + LEAF]),
        feature=np.concatenate(
            [_check_length(attributes.get_integers("nodes_featureids"), n, "features"), none]
        ),
        split=np.concatenate([splits, none]),
        true=sides[0],
        false=sides[1],
        missing_true=np.concatenate([missing, none]) != 0,
        value=_sum_leaf_weights(
            n + n_leaves, n_targets, n + np.arange(n_leaves), target, weight, sum_targets
        ),
        used_targets=tuple(np.unique(target).tolist()),
        members=_split_members(attributes.get_floats("membership_values").astype(np.float64), mode),
    )


def _check_length(values: npt.NDArray[_Kind], n: int, name: str) -> npt.NDArray[_Kind]:
    """Check that there are `n` values, and return them."""
    _raise_unless(len(values) == n, f"{name} has {len(values)} entries of {n}")
    return values


def _split_members(values: Floats, mode: Ints) -> dict[int, Floats]:
    """Split the sets of the MEMBER nodes, in order, each terminated by NaN."""
    nodes = np.flatnonzero(mode == MEMBER)
    parts = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    ended = [part[:-1] for part in parts[:-1]]
    if len(parts[-1]):  # the last set may lack a terminator
        ended.append(parts[-1])
    _raise_unless(len(ended) == len(nodes), f"{len(ended)} sets for {len(nodes)} nodes")
    return dict(zip(nodes.tolist(), ended, strict=True))


def _sum_leaf_weights(
    n: int, n_targets: int, leaf: Ints, target: Ints, weight: Floats, sum_targets: bool
) -> Floats:
    """Sum the weights of each node (n, targets), in one column if `sum_targets`."""
    _raise_unless(np.all((target >= 0) & (target < n_targets)), "a leaf has an invalid target")
    if sum_targets:
        n_targets, target = 1, 0 * target
    if n * n_targets > MAX_ENTRIES:
        raise ModelError(
            f"{SOURCE} has {n} nodes and {n_targets} targets; the maximum of their product is "
            f"{MAX_ENTRIES}"
        )
    value = np.zeros((n, n_targets))
    with np.errstate(invalid="ignore", over="ignore"):  # make_trees rejects infinities and NaN
        np.add.at(value, (leaf, target), weight)
    return value


class _NodeIndex:
    """Index of nodes by tree id and node id."""

    def __init__(self, trees: Ints, nodes: Ints) -> None:
        self.trees, self.nodes = np.unique(trees), np.unique(nodes)
        keys = self._make_keys(trees, nodes)
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        _raise_unless(np.all(np.diff(self.keys) > 0), "duplicate nodes")

    def _make_keys(self, trees: Ints, nodes: Ints) -> Ints:
        """Return keys of (tree id, node id), -1 for unknown ids."""
        tree = np.minimum(np.searchsorted(self.trees, trees), len(self.trees) - 1)
        node = np.minimum(np.searchsorted(self.nodes, nodes), len(self.nodes) - 1)
        known = (self.trees[tree] == trees) & (self.nodes[node] == nodes)
        return np.where(known, tree * len(self.nodes) + node, -1)

    def find_positions(self, trees: Ints, nodes: Ints, wanted: npt.NDArray[np.bool_]) -> Ints:
        """Return the positions (n,) of nodes, -1 where `wanted` is False."""
        keys = self._make_keys(trees, nodes)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        _raise_unless(
            np.all((self.keys[at] == keys) | ~wanted), "a node's child is not in its tree"
        )
        return np.where(wanted, self.order[at], -1)


def copy_shared_nodes(trees: OnnxTrees) -> OnnxTrees:
    """Copy nodes with several parents, and order the nodes of all trees breadth-first."""
    n = len(trees.mode)
    most = max(_MIN_COPY_LIMIT, _MAX_COPIES * n)
    _raise_unless(len(trees.roots) <= MAX_TREES, f"it has more than {MAX_TREES} trees")
    tree = np.arange(len(trees.roots))
    level, sources, owners, total = trees.roots, [trees.roots], [tree], len(tree)
    true = [np.zeros(0, dtype=np.int64)]
    depth = 0
    while True:
        inner = trees.mode[level] != LEAF
        first = np.where(inner, total + 2 * (np.cumsum(inner) - 1), -1)
        true.append(first)
        if not inner.any():
            break
        depth += 1
        level, tree = level[inner], tree[inner]
        level = np.stack([trees.true[level], trees.false[level]], axis=1).ravel()
        tree = np.repeat(tree, 2)
        total += len(level)
        if depth > MAX_DEPTH or total > most or total * trees.value.shape[1] > MAX_ENTRIES:
            raise ModelError(
                f"{SOURCE} has trees that are deeper than {MAX_DEPTH}, contain cycles, or share "
                f"nodes so often that copying them exceeds {most} nodes, the maximum"
            )
        sources.append(level)
        owners.append(tree)
    source, first = np.concatenate(sources), np.concatenate(true)
    copies = np.flatnonzero(trees.mode[source] == MEMBER).tolist()
    return trees._replace(
        roots=np.arange(len(trees.roots)),
        tree=np.concatenate(owners),
        mode=trees.mode[source],
        feature=trees.feature[source],
        split=trees.split[source],
        true=first,
        false=np.where(first >= 0, first + 1, -1),
        missing_true=trees.missing_true[source],
        value=trees.value[source],
        members={node: trees.members[int(source[node])] for node in copies},
    )


# ---------------------------------------------------------------- onnx splits
# Tests of ONNX nodes as thresholds and sets of codes.


def collect_vocabularies(trees: OnnxTrees, n_features: int) -> list[Vocabulary | None]:
    """Return the vocabularies of columns that are tested for equality, None for others."""
    vocabularies: list[Vocabulary | None] = [None] * n_features
    nodes, start, values = _find_equality_tests(trees)
    is_equality_test = np.zeros(len(trees.mode), dtype=np.bool_)
    is_equality_test[nodes] = True
    owner = np.repeat(trees.feature[nodes], np.diff(start))
    compared = np.unique(trees.feature[(trees.true >= 0) & ~is_equality_test])
    for feature in np.unique(trees.feature[nodes]).tolist():
        if not 0 <= feature < n_features:
            raise ModelFileError(
                f"{SOURCE} is damaged: a split uses column {feature} of {n_features}"
            )
        if feature in compared:
            raise ModelError(
                f"{SOURCE} compares column {feature} both by order and by equality (EQ, NEQ, "
                "MEMBER), which treekit does not support"
            )
        own = values[owner == feature]
        is_code = (own >= 0) & (own < 2**24) & (own == np.floor(own))
        if not np.all(is_code):
            raise ModelError(
                f"{SOURCE} tests whether column {feature} equals {own[~is_code][0]}; treekit reads "
                "such tests as codes of categories, which are integers from 0 to 2**24 - 1"
            )
        vocabularies[feature] = make_integer_vocabulary(own.astype(np.int64))
    return vocabularies


def _find_equality_tests(trees: OnnxTrees) -> tuple[Ints, Ints, Floats]:
    """Return the EQ, NEQ and MEMBER nodes, the offsets of their numbers, and the numbers."""
    single = np.flatnonzero((trees.mode == EQ) | (trees.mode == NEQ))
    several = np.flatnonzero(trees.mode == MEMBER)
    sizes = np.ones(len(trees.mode), dtype=np.int64)
    parts = [trees.members[node] for node in several.tolist()]
    sizes[several] = [len(part) for part in parts]
    nodes = np.concatenate([single, several])
    owner = np.repeat(nodes, sizes[nodes])
    values = np.concatenate([trees.split[single], *parts])
    order = np.argsort(owner, kind="stable")
    nodes = np.sort(nodes)
    return nodes, np.concatenate([[0], np.cumsum(sizes[nodes])]), values[order]


def make_nodes(
    trees: OnnxTrees, dtype: Dtype, vocabularies: list[Vocabulary | None]
) -> tuple[NodeList, bool]:
    """Convert all modes to ``<=`` and sets; also return whether unseen numbers act as NaN."""
    mode, inner = trees.mode, trees.true >= 0
    sets, set_start, values = _find_equality_tests(trees)
    # Branch 0 is "at most", or "in the set": the false branch of the opposite modes.
    is_inverted = (mode == GTE) | (mode == GT) | (mode == NEQ)
    with np.errstate(over="ignore"):
        below = np.nextafter(trees.split, -np.inf)
    limits = np.where((mode == LT) | (mode == GTE), below, trees.split)
    limits[sets] = 0.0
    threshold = floor_to_dtype(limits, dtype)
    if np.any(inner & (threshold == -np.inf)):
        raise ModelError(
            f"{SOURCE} has a threshold that only minus infinity is below, which treekit does not "
            "support"
        )
    missing_true = trees.missing_true | (mode == NEQ)
    set_codes = np.full(len(values), -1, dtype=np.int64)
    owner = np.repeat(trees.feature[sets], np.diff(set_start))
    for feature in np.unique(owner).tolist():
        vocabulary, own = vocabularies[feature], owner == feature
        if vocabulary is not None:
            set_codes[own] = vocabulary.map_to_levels(values[own].astype(np.int64))
    nodes = NodeList(
        roots=trees.roots,
        tree=trees.tree,
        left=np.where(is_inverted, trees.false, trees.true),
        right=np.where(is_inverted, trees.true, trees.false),
        feature=trees.feature,
        threshold=threshold,
        missing_left=missing_true != is_inverted,
        value=trees.value,
        weight=np.zeros(len(mode)),
        gain=np.zeros(len(mode)),
        set_node=sets,
        set_offsets=set_start,
        set_codes=set_codes,
    )
    # Unseen numbers are in no set, so they take branch 1.
    return nodes, not bool(np.any(nodes.missing_left[sets]))
