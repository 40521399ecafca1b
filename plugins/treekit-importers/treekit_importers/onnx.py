"""Import ONNX models of tree ensembles, from any converter.

A file is parsed without onnxruntime.  Reading takes about 30 times the file's
size in memory; trees that share nodes are copied, to at most 16 times their size.

Comparison with the graph's predictions in onnxruntime:

Decision paths
    equal: numbers of the input's type are compared like the operator does, by
    ``BRANCH_LEQ``, ``LT``, ``GTE``, ``GT``, ``EQ``, ``NEQ`` and ``MEMBER``, NaN by
    ``nodes_missing_value_tracks_true``; without it NaN fails all tests but ``NEQ``.
Categories
    a column that is only tested by ``EQ``, ``NEQ`` and ``MEMBER`` is nominal, with the
    categories 0, 1, 2, ...; other numbers fail ``EQ``.  Where NaN takes the other
    branch, the model rejects them (``unknown="error"``).
Margins
    onnxruntime adds T weights in float32, in its own order; the sum of the same
    weights is exact here except for rounding to multiples of ``2**exponent``.  The
    difference is onnxruntime's rounding error, at most ``T * 2**-24`` of the sum of
    the weights' magnitudes.
treekit's own graphs
    contain the model's integers, schema and policies: the imported model predicts
    like the exported one, to the last bit.
Labels
    equal unless two classes are closer than that.  For two classes that both
    have weights, onnxruntime predicts the second wherever its score is above 0;
    here it is, as specified, the first class with the largest score.
Probabilities
    weights that are shares of votes (``post_transform`` NONE, the leaves of all trees
    having equal sums) are read as votes, within ``T / 2**24``; LOGISTIC and
    SOFTMAX as link functions of margins.

`tests/test_onnx.py` measures these differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.schema import Label, Schema
from treekit.errors import ModelError, ModelFileError
from treekit.interop import refuse_unknown
from treekit.interop.tree_assembly import (
    NodeTable,
    Outcome,
    check_names,
    floor_thresholds,
    make_boosted_model,
    make_columns,
    make_trees,
)
from treekit.model.fixed_point import scale_units
from treekit.model.links import Combine, Link
from treekit.model.model import MissingPolicy, Model, UnknownPolicy, Voting, make_model
from treekit.model.validation import check_model
from treekit_importers.onnx_nodes import (
    GTE,
    LEQ,
    MEMBER,
    OPERATORS,
    SOURCE,
    Attributes,
    OnnxTrees,
    check_versions,
    find_tree_operator,
    load_proto,
    make_nodes,
    read_id_trees,
    read_position_trees,
    read_tensor,
    recognises_onnx,
)

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

__all__ = [
    "is_treekit_graph",
    "read_onnx",
    "read_treekit_graph",
    "recognises_onnx",
]


# ---------------------------------------------------------------- onnx models

Floats = npt.NDArray[np.float64]

_TRANSFORMS = dict(enumerate(("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")))
_AGGREGATES = dict(enumerate(("AVERAGE", "SUM", "MIN", "MAX")))
_SHARE_TOLERANCE = 1e-4
"""Relative tolerance for equal sums of float32 weights that are shares of votes."""


def read_onnx(source: Any, *, answer: str = "predictions") -> Model:
    """Read an ONNX graph that is a tree ensemble.

    Parameters
    ----------
    source : pathlib.Path or onnx.ModelProto
    answer : {"predictions", "margins"}
        ``margins``: the sums of the weights of each class, as numbers.

    Raises
    ------
    ModelError
        If the source is not such a graph, is damaged, or uses unsupported features.
    """
    proto = load_proto(source)
    check_versions(proto)
    if is_treekit_graph(proto):
        return read_treekit_graph(proto, answer)
    attributes, dtype, n_features = find_tree_operator(proto.graph)
    labels, trees, transform, aggregate = _interpret_operator(attributes)
    nodes = make_nodes(trees)
    width = n_features or int(nodes.feature[nodes.inner].max(initial=0)) + 1
    columns = make_columns(nodes, check_names((), width, SOURCE), SOURCE)
    floor_thresholds(nodes, dtype, SOURCE)
    base = attributes.get_floats("base_values")
    provenance = {
        "importer": "onnx",
        "operator": attributes.operator,
        "producer": proto.producer_name,
    }
    # Unseen numbers are in no set, so they take branch 1.
    is_error = bool(np.any(nodes.missing_left[nodes.set_node]))
    policy: UnknownPolicy = "error" if is_error else "missing"
    shares = None
    if labels and transform == "NONE" and answer == "predictions" and not np.any(base):
        shares = _find_vote_shares(nodes, trees.used_targets, len(labels))
    if shares is not None:
        schema = Schema(columns, classes=labels, dtype=dtype)
        nodes.value = shares
        return make_model(
            schema,
            make_trees(nodes, schema, SOURCE),
            unknown=policy,
            provenance={"treekit": __version__, **provenance},
        )
    margins, outcome = _make_outcome(labels, transform, trees.used_targets, base, attributes)
    if len(base) not in (0, len(margins)):
        raise ModelFileError(
            f"{SOURCE} is damaged: {len(base)} base values for {len(margins)} margins"
        )
    nodes.value = nodes.value[:, margins]
    n_trees = len(trees.roots)
    return make_boosted_model(
        nodes,
        columns,
        outcome,
        source=SOURCE,
        dtype=dtype,
        margin_of_tree=np.zeros(n_trees, dtype=np.int64),
        initial_margins=base if len(base) else np.zeros(len(margins)),
        divisor=n_trees if aggregate == "AVERAGE" else 1,
        unknown=policy,
        answer=answer,
        settings={"post_transform": transform, "aggregate_function": aggregate},
        provenance=provenance,
    )


def _interpret_operator(
    attributes: Attributes,
) -> tuple[tuple[Label, ...], OnnxTrees, str, str]:
    """Return labels (none for a regressor), trees, post transform and aggregate function."""
    labels: tuple[Label, ...] = ()
    if attributes.operator == "TreeEnsemble":
        try:
            transform = _TRANSFORMS[attributes.get_integer("post_transform", 0)]
            aggregate = _AGGREGATES[attributes.get_integer("aggregate_function", 1)]
        except KeyError as error:
            raise ModelFileError(
                f"{SOURCE} is damaged: it has no post_transform or aggregate_function {error}"
            ) from error
        trees = read_position_trees(attributes, _count_targets(attributes))
    else:
        transform = attributes.get_string("post_transform", "NONE")
        aggregate = attributes.get_string("aggregate_function", "SUM")
        if attributes.operator == "TreeEnsembleClassifier":
            labels = _read_labels(attributes)
            trees = read_id_trees(attributes, "class", len(labels))
        else:
            trees = read_id_trees(attributes, "target", _count_targets(attributes))
    if aggregate not in ("SUM", "AVERAGE"):
        raise ModelError(
            f"{SOURCE} combines its trees by {aggregate!r:.40}; treekit supports SUM and AVERAGE"
        )
    return labels, trees, transform, aggregate


def _count_targets(attributes: Attributes) -> int:
    n = attributes.get_integer("n_targets", 1)
    if not 1 <= n <= 2**24:
        raise ModelFileError(f"{SOURCE} is damaged: it has {n} targets")
    return n


def _read_labels(attributes: Attributes) -> tuple[Label, ...]:
    numbers = attributes.get_integers("classlabels_int64s").tolist()
    labels = tuple(numbers or attributes.get_strings("classlabels_strings"))
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise ModelError(
            f"{SOURCE} has {len(labels)} classes, or duplicate ones; treekit requires two or more"
        )
    return labels


def _find_vote_shares(nodes: NodeTable, used: tuple[int, ...], n_classes: int) -> Floats | None:
    """Return the weights (n, classes) if they are shares of votes, else None.

    Each tree distributes the same total over the classes.  For two classes, a graph
    may have only the shares of the second, as the scores of its single target.
    """
    leaf = ~nodes.inner
    weight = nodes.value[leaf]
    total = 1.0 / len(nodes.roots)
    if np.any(weight < 0):
        return None
    if n_classes == 2 and len(used) == 1:
        second = nodes.value[:, used[0]]
        if np.any(second[leaf] > total * (1 + _SHARE_TOLERANCE)):
            return None
        return np.stack([np.maximum(total - second, 0.0), second], axis=1)
    equal = np.abs(weight.sum(axis=1) - total) <= total * _SHARE_TOLERANCE
    return nodes.value if bool(np.all(equal)) else None


def _make_outcome(
    labels: tuple[Label, ...],
    transform: str,
    used: tuple[int, ...],
    base: Floats,
    attributes: Attributes,
) -> tuple[list[int], Outcome]:
    """Return the targets that are margins, and their conversion to predictions."""
    reason = f"its post_transform is {transform!r:.40}"
    link: Link = "sigmoid" if transform == "LOGISTIC" else "softmax"
    margins, known = list(range(len(labels))), transform in ("LOGISTIC", "SOFTMAX")
    if not labels:
        margins = list(range(_count_targets(attributes)))
        link = "sigmoid" if transform == "LOGISTIC" else "identity"
        known = transform in ("LOGISTIC", "NONE")
    elif len(labels) == 2 and len(used) == 1:
        if len(base) > 1 or (len(base) == 1 and used[0] == 1):
            raise ModelError(
                f"{SOURCE} has weights of one of two classes, but base values that do not match it"
            )
        margins, link, known = list(used), "sigmoid", transform == "LOGISTIC"
    elif transform == "NONE":
        reason = "its class weights are not shares of votes"
    return margins, Outcome(link, labels, unsupported_reason="" if known else reason)


# ---------------------------------------------------------------- onnx models of treekit
# Graphs that treekit exported, imported with bit-identical predictions.
#
# The graph contains the trees and the fixed-point leaf values, its metadata the
# schema and the policies.  Information that is lost by the export remains lost: the
# training weights of nodes, and settings.  Graphs with derived columns (oblique
# splits, surrogates) or fractional instances are rejected.

Ints = npt.NDArray[np.int64]


_METADATA = tuple(
    f"treekit.{name}"
    for name in (
        *("classes", "features", "inputs", "policies", "runtime", "schema", "units", "version"),
    )
)


class _Policies(msgspec.Struct, forbid_unknown_fields=True):
    """``treekit.policies`` of the metadata."""

    missing: MissingPolicy
    unknown: UnknownPolicy
    voting: Voting
    combine: Combine
    costs: list[list[int]] | None


class _Units(msgspec.Struct, forbid_unknown_fields=True):
    """``treekit.units`` of the metadata; those of type Any follow from the others."""

    exponent: int | tuple[int, ...] = 0
    link: Link = "identity"
    divisor: Any = None
    trees: Any = None
    unit_total: Any = None


def is_treekit_graph(proto: ModelProto) -> bool:
    """Return whether treekit exported a graph, and its metadata have the policies."""
    keys = {one.key for one in proto.metadata_props}
    return proto.producer_name == "treekit" and "treekit.policies" in keys


def read_treekit_graph(proto: ModelProto, answer: str) -> Model:
    """Read a graph that treekit exported.

    Raises
    ------
    ModelError
        If it is damaged, or cannot be converted back.
    """
    metadata = {one.key: one.value for one in proto.metadata_props}
    own = {key: value for key, value in metadata.items() if key.startswith("treekit.")}
    refuse_unknown(own, _METADATA, SOURCE, "metadata ")
    try:
        schema = msgspec.json.decode(metadata.get("treekit.schema", ""), type=Schema)
        policies = msgspec.json.decode(metadata["treekit.policies"], type=_Policies)
        of_units = msgspec.json.decode(metadata.get("treekit.units", ""), type=_Units)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModelFileError(
            f"{SOURCE} is damaged: its metadata cannot be read: {error}"
        ) from error
    operators = [node for node in proto.graph.node if node.op_type in OPERATORS]
    if answer != "predictions" or len(operators) != 1 or policies.missing == "surrogate":
        raise ModelError(
            f"{SOURCE} was exported by treekit and cannot be imported: it has fractional instances "
            "or surrogates, or margins were requested; read the original model file"
        )
    constants = {one.name: one for one in proto.graph.initializer}
    raw, first, units = _read_units(operators[0], constants, schema)
    if np.any(raw.feature[raw.true >= 0] >= schema.n_features):
        raise ModelError(
            f"{SOURCE} was exported by treekit with derived columns, which cannot be imported; "
            "read the original model file"
        )
    nodes = make_nodes(_merge_chains(raw, schema))
    named = {f: one.levels for f, one in enumerate(schema.columns) if one.kind == "nominal"}
    make_columns(nodes, schema.names, SOURCE, named=named)
    floor_thresholds(nodes, schema.dtype, SOURCE)
    read = make_trees(nodes, schema, SOURCE)
    counts = [tree.n_leaves for tree in read]
    number = np.concatenate([tree.value[tree.leaves, 0] for tree in read])
    rows = number + np.repeat(first, counts)
    if not np.all((number >= 0) & (number == np.floor(number)) & (rows >= 0) & (rows < len(units))):
        raise ModelFileError(f"{SOURCE} is damaged: a leaf has no integers")
    units = units[rows.astype(np.int64)]
    grid = (
        0 if schema.task == "classification" and policies.combine == "mean" else of_units.exponent
    )
    each = (grid,) * units.shape[1] if isinstance(grid, int) else grid
    if len(each) != units.shape[1] or not all(-1100 <= own <= 1100 for own in each):
        raise ModelFileError(f"{SOURCE} is damaged: its exponent is {grid}")
    with np.errstate(over="ignore"):  # rejected by `check_model`
        leaf_values = scale_units(units, grid)
    valued = []
    for tree, own in zip(read, np.split(leaf_values, np.cumsum(counts)[:-1]), strict=True):
        value = np.zeros((tree.n_nodes, units.shape[1]))
        value[tree.leaves] = own
        valued.append(tree.with_value(value))
    model = Model(
        schema=schema,
        trees=tuple(valued),
        units=units,
        exponent=grid,
        missing=policies.missing,
        unknown=policies.unknown,
        voting=policies.voting,
        combine=policies.combine,
        link=of_units.link,
        costs=None if policies.costs is None else _parse_costs(policies.costs),
        provenance={"treekit": __version__, "importer": "onnx", "operator": operators[0].op_type},
    )
    check_model(model)
    return model


def _read_units(
    node: NodeProto, constants: dict[str, Any], schema: Schema
) -> tuple[OnnxTrees, Ints, Ints]:
    """Return the trees and the table of integer leaf values, to whose rows their leaves refer.

    Returns
    -------
    trees : OnnxTrees
        Values (n, 1) are rows of `units`, relative to `first` of the tree.
    first : (trees,) int64
    units : (rows, values) int64
    """
    attributes, width = Attributes(node), schema.n_values
    as_rows = list(node.output) == ["leaf_numbers"]
    n_targets = _count_targets(attributes)
    if node.op_type == "TreeEnsemble":
        trees = read_position_trees(attributes, n_targets, sum_targets=as_rows)
    else:
        trees = read_id_trees(attributes, "target", n_targets, sum_targets=as_rows)
    if as_rows:
        first, units = _read_constant(constants, "first_leaf"), _read_leaf_units(constants)
        if len(units) % width or len(first) != len(trees.roots):
            raise ModelFileError(f"{SOURCE} is damaged: inconsistent sizes of its leaf values")
        return trees, first, units.reshape(-1, width)
    if trees.value.shape[1] == 1 and width == 2:  # the first class gets the remaining votes
        votes, rest = (_read_constant(constants, name).ravel() for name in ("rest", "unit_total"))
        if len(votes) != 2 or votes[0] != rest[0] or rest[0] % len(trees.roots):
            raise ModelFileError(f"{SOURCE} is damaged: its votes do not sum to {rest[0]}")
        second = trees.value[:, 0]
        first_class = np.where(trees.true < 0, rest[0] // len(trees.roots) - second, 0.0)
        trees = trees._replace(value=np.stack([first_class, second], axis=1))
    if trees.value.shape[1] % width:
        raise ModelFileError(f"{SOURCE} is damaged: {n_targets} targets for {width} values")
    n_limbs = trees.value.shape[1] // width
    base = 0
    if n_limbs > 1:
        product = _read_constant(constants, "product" if "product" in constants else "base").ravel()
        base = int(product[width * width] if product.size == n_limbs * width**2 else product[0])
    if not (np.all(np.abs(trees.value) <= 2.0**53) and 0 <= base <= 2**25 and n_limbs <= 8):
        raise ModelFileError(f"{SOURCE} is damaged: its leaf values are not integers")
    total = np.zeros((len(trees.mode), width), dtype=np.int64)
    with np.errstate(over="ignore"):  # rejected by `check_model` in `read_treekit_graph`
        for number in range(n_limbs - 1, -1, -1):
            limb = trees.value[:, number * width : (number + 1) * width].astype(np.int64)
            total = total * base + limb
    numbered = trees._replace(value=np.arange(len(trees.mode), dtype=np.float64)[:, None])
    return numbered, np.zeros(len(trees.roots), dtype=np.int64), total


def _read_leaf_units(constants: dict[str, Any]) -> Ints:
    """Read the integer leaf values, which may be written in two parts."""
    if "high_units" not in constants:
        return _read_constant(constants, "units")
    names = "high_units", "high_unit", "low_units"
    high, unit, low = (_read_constant(constants, name) for name in names)
    if high.shape != low.shape or unit.size != 1:
        raise ModelFileError(f"{SOURCE} is damaged: inconsistent sizes of its leaf values")
    with np.errstate(over="ignore"):  # rejected by `check_model` in `read_treekit_graph`
        return high * unit + low


def _read_constant(constants: dict[str, Any], name: str) -> Ints:
    if name not in constants:
        raise ModelFileError(f"{SOURCE} is damaged: it has no constant {name!r}")
    values = read_tensor(constants[name], name)
    if not len(values) or not np.all(values == np.floor(values)):
        raise ModelFileError(f"{SOURCE} is damaged: {name!r} does not contain integers")
    return values.astype(np.int64)


def _parse_costs(costs: list[list[int]]) -> Ints:
    try:
        return np.array(costs, dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: its costs are not a matrix: {error}") from error


def _merge_chains(trees: OnnxTrees, schema: Schema) -> OnnxTrees:
    """Convert tests of category codes to sets, and merge chains of tests to one set.

    `treekit.export.onnx.trees` writes a set as a chain of thresholds between members and
    non-members: the false branch continues the chain, and the true branches share nodes.
    """
    n = len(trees.mode)
    inner = np.flatnonzero(trees.true >= 0)
    known = inner[(trees.feature[inner] >= 0) & (trees.feature[inner] < schema.n_features)]
    is_code_test = np.zeros(n, dtype=np.bool_)
    is_code_test[known] = schema.nominal[trees.feature[known]] & ~np.isinf(trees.split[known])
    n_parents = np.bincount(np.concatenate([trees.true[inner], trees.false[inner]]), minlength=n)
    follows = np.full(n, -1, dtype=np.int64)
    tests = np.flatnonzero(is_code_test & (trees.mode == LEQ))
    after, yes = trees.false[tests], trees.true[tests]
    same = is_code_test[after] & (trees.mode[after] == LEQ) & (n_parents[after] == 1)
    same &= (trees.feature[after] == trees.feature[tests]) & (n_parents[yes] > 1)
    follows[tests[same]] = after[same]
    goes_on = np.zeros(n, dtype=np.bool_)
    goes_on[after[same]] = True
    members, true, false = dict(trees.members), trees.true.copy(), trees.false.copy()
    for head in np.flatnonzero(is_code_test & ~goes_on & (trees.mode != MEMBER)).tolist():
        n_levels = int(schema.n_levels[trees.feature[head]])
        members[head], true[head], false[head] = _merge_chain(trees, head, follows, n_levels)
    mode = np.where(is_code_test, MEMBER, trees.mode)
    return trees._replace(mode=mode, true=true, false=false, members=members)


def _merge_chain(
    trees: OnnxTrees, head: int, follows: Ints, n_levels: int
) -> tuple[npt.NDArray[np.float64], int, int]:
    """Return the codes that a chain sends to one node, that node, and the other one."""
    targets, at, end = np.full(n_levels, -1), head, -1
    while at >= 0:
        code = np.clip(trees.split[at], -1, n_levels)
        own = np.arange(n_levels) >= code if trees.mode[at] == GTE else np.arange(n_levels) <= code
        targets[own & (targets < 0)] = trees.true[at]
        end, at = int(trees.false[at]), int(follows[at])
    members = np.flatnonzero((targets >= 0) & (targets != end)).astype(np.float64)
    yes = np.unique(targets[members.astype(np.int64)])
    if len(yes) > 1:
        raise ModelFileError(f"{SOURCE} is damaged: a set of categories has several branches")
    return members, int(yes[0]) if len(yes) else int(trees.true[head]), end
