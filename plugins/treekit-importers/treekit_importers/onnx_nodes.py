"""Find the tree operator of an ONNX graph, and convert its trees to node lists.

A graph is supported if it consists of one tree ensemble and of casts, reshapes and a
ZipMap, which do not change predictions; other operators are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.errors import ModelError, ModelFileError
from treekit.interop import (
    UNKNOWN_REMEDY,
    beginning,
    find_class_name,
    read_whole,
    refuse_unknown,
)
from treekit.interop.tree_assembly import MAX_ENTRIES, NodeTable
from treekit.model.fixed_point import MAX_TREES
from treekit.model.tree import MAX_DEPTH

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


# ---------------------------------------------------------------- onnx graph

SOURCE = "the ONNX model"
OPERATORS = ("TreeEnsembleRegressor", "TreeEnsembleClassifier", "TreeEnsemble")
"""Tree operators of ai.onnx.ml."""
_TREE_DOMAIN, _NEWEST_TREE_VERSION = "ai.onnx.ml", 5
_STANDARD_DOMAINS = ("", "ai.onnx")
_FLOATS, _INTS, _STRINGS = ("floats", "tensor"), ("ints",), ("strings",)
_TREE_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_truenodeids"),
            *("nodes_falsenodeids", "nodes_missing_value_tracks_true"),
        ),
        _INTS,
    ),
    **dict.fromkeys(
        (
            *("nodes_values", "nodes_values_as_tensor", "base_values", "base_values_as_tensor"),
            *("nodes_hitrates", "nodes_hitrates_as_tensor"),
        ),
        _FLOATS,
    ),
    "nodes_modes": _STRINGS,
    "post_transform": ("string",),
}
_ATTRIBUTES: dict[str, dict[str, tuple[str, ...]]] = {
    "TreeEnsembleRegressor": {
        **_TREE_ATTRIBUTES,
        **dict.fromkeys(("target_treeids", "target_nodeids", "target_ids"), _INTS),
        **dict.fromkeys(("target_weights", "target_weights_as_tensor"), _FLOATS),
        "n_targets": ("int",),
        "aggregate_function": ("string",),
    },
    "TreeEnsembleClassifier": {
        **_TREE_ATTRIBUTES,
        **dict.fromkeys(("class_treeids", "class_nodeids", "class_ids"), _INTS),
        **dict.fromkeys(("class_weights", "class_weights_as_tensor"), _FLOATS),
        "classlabels_int64s": _INTS,
        "classlabels_strings": _STRINGS,
    },
    "TreeEnsemble": {
        **dict.fromkeys(
            (
                *("tree_roots", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids"),
                *("nodes_trueleafs", "nodes_falseleafs", "nodes_missing_value_tracks_true"),
                "leaf_targetids",
            ),
            _INTS,
        ),
        **dict.fromkeys(
            (
                *("nodes_modes", "nodes_splits", "nodes_hitrates", "membership_values"),
                "leaf_weights",
            ),
            ("tensor",),
        ),
        **dict.fromkeys(("n_targets", "aggregate_function", "post_transform"), ("int",)),
    },
    "Cast": {"to": ("int",), "saturate": ("int",), "round_mode": ("string",)},
}
"""Attributes of the operators and their types, up to version 5 of ai.onnx.ml and 28 of ai.onnx;
those of other operators change only shapes.
"""
_FLOAT, _INT32, _INT64, _DOUBLE = 1, 6, 7, 11
"""Values of `TensorProto.DataType`."""
_EXTERNAL_DATA = 1
_SHAPE_OPERATORS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")


def recognises_onnx(source: Any) -> bool:
    """Return whether `source` is an ONNX file (``.onnx``), or a `ModelProto`."""
    # A ModelProto starts with its field 1, the version of the format.
    return beginning(source, (".onnx",), 1) == b"\x08" or _is_proto(source)


def _is_proto(source: Any) -> bool:
    return find_class_name(source, "onnx", ("ModelProto",)) is not None


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
    """Typed access to the attributes of an operator; those that are absent are empty."""

    def __init__(self, node: NodeProto) -> None:
        self.operator = node.op_type
        self.by_name: dict[str, Any] = {one.name: one for one in node.attribute}
        check_attributes(node)

    def get_integers(self, name: str) -> npt.NDArray[np.int64]:
        """Return integers of a list or a tensor."""
        found = self._get_array(name, "ints")
        if found.dtype.kind == "f" and len(found):
            raise ModelFileError(f"{SOURCE} is damaged: {name} does not contain integers")
        return found.astype(np.int64)

    def get_floats(self, name: str) -> npt.NDArray[np.float64]:
        """Return the numbers of attribute `name`, or ``{name}_as_tensor`` if there is one."""
        wide = f"{name}_as_tensor"
        return self._get_array(wide if wide in self.by_name else name, "floats").astype(np.float64)

    def get_strings(self, name: str) -> list[str]:
        """Return strings."""
        try:
            texts = self.by_name[name].strings if name in self.by_name else ()
            return [text.decode("utf-8") for text in texts]
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{SOURCE} is damaged: {name}: {error}") from error

    def get_string(self, name: str, default: str) -> str:
        """Return a string."""
        return self.by_name[name].s.decode("utf-8", "replace") if name in self.by_name else default

    def get_integer(self, name: str, default: int) -> int:
        """Return an integer."""
        return int(self.by_name[name].i) if name in self.by_name else default

    def _get_array(self, name: str, field: str) -> npt.NDArray[Any]:
        if name not in self.by_name:
            return np.zeros(0)
        attribute = self.by_name[name]
        return (
            read_tensor(attribute.t, name)
            if attribute.HasField("t")
            else np.array(getattr(attribute, field))
        )


def check_attributes(node: NodeProto) -> None:
    """Check that an operator has only attributes that are known, each once and of its type."""
    known = _ATTRIBUTES[node.op_type]
    seen: set[str] = set()
    for one in node.attribute:
        type_name = one.AttributeType.Name(one.type).lower()
        value = f"{type_name} attribute"
        if one.name not in known:
            value = list(one.strings or one.ints or one.floats) or one.s or one.f or one.i or value
        refuse_unknown({one.name: value}, known, SOURCE, f"{node.op_type}.")
        if one.name in seen or one.ref_attr_name or type_name not in known[one.name]:
            raise ModelFileError(
                f"{SOURCE} is damaged: the {type_name} {one.name} of its {node.op_type}, expected "
                f"one {' or '.join(known[one.name])}"
            )
        seen.add(one.name)


def check_versions(proto: ModelProto) -> None:
    """Check that a model contains nothing that is later than this importer, or of its own.

    Raises
    ------
    ModelError
        If it has a later version of ai.onnx.ml, a field that the installed package onnx does not
        know, or functions, which may replace operators.
    """
    from google.protobuf.unknown_fields import UnknownFieldSet

    for one in proto.opset_import:
        if one.domain == _TREE_DOMAIN and not 1 <= one.version <= _NEWEST_TREE_VERSION:
            raise ModelError(
                f"{SOURCE} has version {one.version} of {_TREE_DOMAIN}; treekit reads 1 to "
                f"{_NEWEST_TREE_VERSION}: {UNKNOWN_REMEDY}"
            )
    parts = [proto, proto.graph]
    for node in proto.graph.node:
        parts += [node, *node.attribute]
    for part in parts:
        for field in UnknownFieldSet(part):
            raise ModelError(
                f"{SOURCE} has the unknown field {field.field_number} in a {type(part).__name__}, "
                f"which may change predictions; update onnx, or {UNKNOWN_REMEDY}"
            )
    if proto.functions:
        raise ModelError(
            f"{SOURCE} has the function {proto.functions[0].name!r:.60} of its own, which may "
            "replace an operator; convert only the trees, without functions"
        )


def read_tensor(tensor: Any, name: str) -> npt.NDArray[Any]:
    """Return a tensor's numbers, flat; external files are not read."""
    from onnx import numpy_helper

    if tensor.data_location == _EXTERNAL_DATA:
        raise ModelError(f"{SOURCE} stores {name} in another file; save it in one file")
    try:
        values = np.asarray(numpy_helper.to_array(tensor)).ravel()
    except (ValueError, TypeError, LookupError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: {name}: {error}") from error
    if values.dtype.kind not in "fiu":
        raise ModelError(f"{SOURCE} stores {name} as {values.dtype}; treekit reads numbers")
    return values


def find_tree_operator(graph: GraphProto) -> tuple[Attributes, Dtype, int]:
    """Find the only tree operator of a graph.

    Returns
    -------
    attributes : Attributes
    dtype : {"float32", "float64"}
        Type of the numbers that it compares.
    n_features : int
        Columns of the input, 0 if unknown.

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
    if tree.domain != _TREE_DOMAIN:
        raise ModelError(
            f"{SOURCE} has a {tree.op_type} of the unknown domain {tree.domain!r:.60}; treekit "
            f"reads those of {_TREE_DOMAIN}: convert the model with another converter"
        )
    ancestors, start = _list_ancestors(graph, tree)
    _check_outputs(graph, tree, ancestors)
    return Attributes(tree), *_find_input(graph, ancestors, start)


def _list_ancestors(graph: GraphProto, tree: NodeProto) -> tuple[list[NodeProto], str]:
    """List the nodes before the trees, the nearest first, and the name that they start from."""
    makers = {name: node for node in graph.node for name in node.output}
    nodes: list[NodeProto] = []
    at = tree.input[0] if tree.input else ""
    while at in makers and len(nodes) <= len(graph.node):
        nodes.append(makers[at])
        at = makers[at].input[0] if makers[at].input else ""
    return nodes, at


def _get_cast_type(node: NodeProto) -> int:
    """Return the type that a Cast converts to; 0 for other operators."""
    if node.op_type != "Cast" or node.domain not in _STANDARD_DOMAINS:
        return 0
    check_attributes(node)
    return next((int(one.i) for one in node.attribute if one.name == "to"), 0)


def _find_input(graph: GraphProto, ancestors: Sequence[NodeProto], start: str) -> tuple[Dtype, int]:
    """Return the type of the numbers that the trees compare, and the number of columns."""
    for node in ancestors:
        is_identity = node.op_type == "Identity" and node.domain in _STANDARD_DOMAINS
        if not is_identity and _get_cast_type(node) not in (_FLOAT, _DOUBLE):
            raise _make_operator_error(node, "before its trees")
    constants = {one.name for one in graph.initializer}
    inputs = {one.name: one for one in graph.input if one.name not in constants}
    if len(inputs) != 1 or start not in inputs:
        raise ModelError(f"{SOURCE} has {len(inputs)} inputs; treekit reads models with one tensor")
    tensor = inputs[start].type.tensor_type
    if tensor.elem_type not in (_FLOAT, _DOUBLE, _INT32, _INT64):
        raise ModelError(
            f"{SOURCE} has an input of type {tensor.elem_type}, not float, double, int32 or int64"
        )
    narrowed = any(_get_cast_type(node) == _FLOAT for node in ancestors)
    wide = tensor.elem_type == _DOUBLE and not narrowed
    width = tensor.shape.dim[1].dim_value if len(tensor.shape.dim) == 2 else 0
    return "float64" if wide else "float32", int(width)


def _check_outputs(graph: GraphProto, tree: NodeProto, ancestors: Sequence[NodeProto]) -> None:
    """Check that operators after the trees change only shapes and types."""
    contents = dict.fromkeys(tree.output, "scores")
    if tree.op_type == "TreeEnsembleClassifier" and tree.output:
        contents[tree.output[0]] = "label"
    for node in graph.node:
        if node is tree or any(node is one for one in ancestors):
            continue
        content = contents.get(node.input[0] if node.input else "")
        if content is None and node.op_type == "Constant":
            continue
        casts = (_INT64,) if content == "label" else (_FLOAT, _DOUBLE)
        shaped = node.op_type in _SHAPE_OPERATORS and node.domain in _STANDARD_DOMAINS
        plain = shaped or _get_cast_type(node) in casts
        zipped = (node.op_type, node.domain, content) == ("ZipMap", _TREE_DOMAIN, "scores")
        if content is None or not (plain or zipped):
            raise _make_operator_error(node, "after its trees")
        contents |= dict.fromkeys(node.output, content)


def _make_operator_error(node: NodeProto, where: str) -> ModelError:
    """Return the error for an unsupported operator."""
    is_usual = node.domain in (*_STANDARD_DOMAINS, _TREE_DOMAIN)
    domain = "" if is_usual else f" of {node.domain!r:.60}"
    return ModelError(
        f"{SOURCE} has the operator {node.op_type!r:.60}{domain} {where}, which treekit does not "
        "support; convert only the trees, without scaling and post-processing"
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
_MAX_COPIES = 16
_MIN_COPY_LIMIT = 2**20
"""Limits of nodes after copying: `_MAX_COPIES` times the nodes, but at least `_MIN_COPY_LIMIT`."""


class OnnxTrees(NamedTuple):
    """The nodes of all trees; nodes may have several parents.

    Attributes
    ----------
    roots : (trees,) int64
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


def _read_fields(attributes: Attributes, n: int, splits: str) -> dict[str, Any]:
    """Read feature, threshold and missing branch of `n` nodes, whose thresholds are `splits`."""
    missing = attributes.get_integers("nodes_missing_value_tracks_true")
    return {
        "feature": _check_length(attributes.get_integers("nodes_featureids"), n, "features"),
        "split": _check_length(attributes.get_floats(splits), n, splits),
        "missing_true": _check_length(missing if len(missing) else np.zeros(n), n, "missing") != 0,
    }


def read_id_trees(
    attributes: Attributes, prefix: str, n_targets: int, *, sum_targets: bool = False
) -> OnnxTrees:
    """Read the trees of versions 1 to 3.

    Parameters
    ----------
    prefix : {"class", "target"}
    sum_targets : bool
        Sum the weights of all targets, for graphs with one target per tree.
    """
    tree_ids = attributes.get_integers("nodes_treeids")
    node_ids = attributes.get_integers("nodes_nodeids")
    n = len(tree_ids)
    _raise_unless(n and len(node_ids) == n, "it has no nodes, or inconsistent numbers of ids")
    names = attributes.get_strings("nodes_modes")
    _raise_unless(len(names) == n, f"nodes_modes has {len(names)} entries for {n} nodes")
    number = {f"BRANCH_{name}": mode for mode, name in enumerate(_MODES[:6])} | {"LEAF": LEAF}
    if strange := sorted(set(names) - set(number)):
        raise ModelError(
            f"{SOURCE} has the unknown mode {strange[0]!r:.60}; known: {', '.join(number)}"
        )
    mode = np.array([number[name] for name in names], dtype=np.int64)
    find_positions = _index_nodes(tree_ids, node_ids)
    inner = mode != LEAF
    true, false = np.full(n, -1), np.full(n, -1)
    for side, child in (("true", true), ("false", false)):
        ids = _check_length(attributes.get_integers(f"nodes_{side}nodeids"), n, side)
        child[inner] = find_positions(tree_ids[inner], ids[inner])
    n_parents = np.bincount(np.concatenate([true[inner], false[inner]]), minlength=n)
    roots = np.flatnonzero(n_parents == 0)
    trees, counts = np.unique(tree_ids[roots], return_counts=True)
    _raise_unless(
        np.array_equal(trees, np.unique(tree_ids)) and np.all(counts == 1),
        "a tree has no root, or several",
    )
    leaf_trees, leaf_nodes, targets = (
        attributes.get_integers(f"{prefix}_{name}") for name in ("treeids", "nodeids", "ids")
    )
    weight = attributes.get_floats(f"{prefix}_weights")
    _raise_unless(
        len(weight) == len(leaf_trees) == len(leaf_nodes) == len(targets),
        "inconsistent sizes of leaf weights",
    )
    leaf = find_positions(leaf_trees, leaf_nodes)
    _raise_unless(not np.any(inner[leaf]), "an inner node has a weight")
    return OnnxTrees(
        roots=roots,
        mode=mode,
        true=true,
        false=false,
        value=_sum_leaf_weights(n, n_targets, leaf, targets, weight, sum_targets),
        used_targets=tuple(np.unique(targets).tolist()),
        members={},
        **_read_fields(attributes, n, "nodes_values"),
    )


def read_position_trees(
    attributes: Attributes, n_targets: int, *, sum_targets: bool = False
) -> OnnxTrees:
    """Read the trees of version 5; see `read_id_trees`."""
    mode = attributes.get_integers("nodes_modes")
    n = len(mode)
    _raise_unless(n and np.all((mode >= 0) & (mode <= MEMBER)), "it has no nodes, or unknown modes")
    weight = attributes.get_floats("leaf_weights")
    target = attributes.get_integers("leaf_targetids")
    n_leaves = len(weight)
    _raise_unless(n_leaves and len(target) == n_leaves, "inconsistent sizes of leaf weights")
    none = np.zeros(n_leaves, dtype=np.int64)
    children = {}
    for side in ("true", "false"):
        child, is_leaf = (
            _check_length(attributes.get_integers(f"nodes_{side}{what}"), n, f"{side} {what}")
            for what in ("nodeids", "leafs")
        )
        inside = (child >= 0) & (child < np.where(is_leaf != 0, n_leaves, n))
        _raise_unless(np.all(inside), "a node's child does not exist")
        children[side] = np.concatenate([child + n * (is_leaf != 0), none - 1])
    roots = attributes.get_integers("tree_roots")
    _raise_unless(len(roots) and np.all((roots >= 0) & (roots < n)), "a tree has no root")
    leaf = n + np.arange(n_leaves)
    fields = _read_fields(attributes, n, "nodes_splits")
    return OnnxTrees(
        roots=roots,
        mode=np.append(mode, none + LEAF),
        value=_sum_leaf_weights(n + n_leaves, n_targets, leaf, target, weight, sum_targets),
        used_targets=tuple(np.unique(target).tolist()),
        members=_split_members(attributes.get_floats("membership_values"), mode),
        **children,
        **{name: np.append(own, none.astype(own.dtype)) for name, own in fields.items()},
    )


def _check_length(values: npt.NDArray[Any], n: int, name: str) -> npt.NDArray[Any]:
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


def _index_nodes(trees: Ints, nodes: Ints) -> Callable[[Ints, Ints], Ints]:
    """Return a function that finds the positions (n,) of nodes by tree id and node id."""

    def make_keys(trees: Ints, nodes: Ints) -> Ints:
        both = np.stack([trees, nodes])
        _raise_unless(np.all((both >= 0) & (both < 2**31)), "an id is not from 0 to 2**31 - 1")
        return (trees << 32) | nodes

    keys = make_keys(trees, nodes)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    _raise_unless(np.all(np.diff(keys) > 0), "duplicate nodes")

    def find_positions(trees: Ints, nodes: Ints) -> Ints:
        wanted = make_keys(trees, nodes)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        _raise_unless(np.all(keys[at] == wanted), "a node's child is not in its tree")
        return order[at]

    return find_positions


def _copy_shared_nodes(trees: OnnxTrees) -> tuple[Ints, Ints, Ints]:
    """Copy nodes with several parents, and order the nodes of all trees breadth-first.

    Returns
    -------
    source, tree, first : (copies,) int64
        The node that each is a copy of, its tree, and its true branch, which its false
        branch follows; -1 in leaves.
    """
    n = len(trees.mode)
    most = max(_MIN_COPY_LIMIT, _MAX_COPIES * n)
    _raise_unless(len(trees.roots) <= MAX_TREES, f"it has more than {MAX_TREES} trees")
    level, tree = trees.roots, np.arange(len(trees.roots))
    sources, owners, firsts, total = [level], [tree], [level[:0]], len(tree)
    while True:
        inner = trees.mode[level] != LEAF
        firsts.append(np.where(inner, total + 2 * (np.cumsum(inner) - 1), -1))
        if not inner.any():
            return np.concatenate(sources), np.concatenate(owners), np.concatenate(firsts)
        level = np.stack([trees.true[level[inner]], trees.false[level[inner]]], axis=1).ravel()
        tree = np.repeat(tree[inner], 2)
        total += len(level)
        too_many = total > most or total * trees.value.shape[1] > MAX_ENTRIES
        if too_many or len(sources) > MAX_DEPTH:
            raise ModelError(
                f"{SOURCE} has trees that are deeper than {MAX_DEPTH}, contain cycles, or share "
                f"nodes so often that copying them exceeds {most} nodes, the maximum"
            )
        sources.append(level)
        owners.append(tree)


def make_nodes(trees: OnnxTrees) -> NodeTable:
    """Convert all modes to ``<=`` and sets, and copy nodes with several parents."""
    source, tree, true = _copy_shared_nodes(trees)
    false = np.where(true >= 0, true + 1, -1)
    mode, feature, split = trees.mode[source], trees.feature[source], trees.split[source]
    sets = np.flatnonzero((mode == EQ) | (mode == NEQ) | (mode == MEMBER))
    parts = [trees.members.get(old, trees.split[old : old + 1]) for old in source[sets].tolist()]
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    values = np.concatenate([split[:0], *parts])
    is_code = (values >= 0) & (values < 2**24) & (values == np.floor(values))
    if not np.all(is_code):
        column = np.repeat(feature[sets], sizes)[~is_code][0]
        raise ModelError(
            f"{SOURCE} tests whether column {column} equals {values[~is_code][0]}; treekit reads "
            "such tests as codes of categories, which are integers from 0 to 2**24 - 1"
        )
    with np.errstate(over="ignore"):
        below = np.nextafter(split, -np.inf)
    threshold = np.where((mode == LT) | (mode == GTE), below, split)
    threshold[sets] = 0.0
    # Branch 0 is "at most", or "in the set": the false branch of the opposite modes.
    is_inverted = (mode == GTE) | (mode == GT) | (mode == NEQ)
    return NodeTable(
        left=np.where(is_inverted, false, true),
        right=np.where(is_inverted, true, false),
        feature=feature,
        threshold=threshold,
        missing_left=(trees.missing_true[source] | (mode == NEQ)) != is_inverted,
        value=trees.value[source],
        set_node=sets,
        set_sizes=sizes,
        set_codes=values.astype(np.int64),
        roots=np.arange(len(trees.roots)),
        tree=tree,
    )
