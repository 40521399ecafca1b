"""ONNX models of tree ensembles as models, whatever wrote them.

A file is parsed without onnxruntime.  Reading takes about 30 times the file's
size in memory; trees that share nodes are copied to at most 16 times theirs.

How the answers compare with the graph's, run by onnxruntime:

Paths
    equal: numbers of the input's type are compared as the operator does, all
    of ``BRANCH_LEQ``, ``LT``, ``GTE``, ``GT``, ``EQ``, ``NEQ`` and ``MEMBER``, NaN by
    ``nodes_missing_value_tracks_true``; without it NaN fails every test but ``NEQ``.
Categories
    a column that is asked by ``EQ``, ``NEQ`` and ``MEMBER`` alone is nominal, of the
    levels 0, 1, 2, ...; numbers beyond fail ``EQ``.  Where that is not the way of
    NaN, the model refuses them (``unknown="error"``).
Margins
    onnxruntime adds T weights in float32, in an order of its own; the sum of
    the same weights is exact here but for the grid of ``2**exponent``.  So they
    differ by onnxruntime's rounding, at most ``T * 2**-24`` of the sum of the
    weights' magnitudes.
treekit's own
    graphs hold the model's integers, schema and policies: the model that is read
    answers every row as the exported one did, to the last bit.
Labels
    equal unless two classes are closer than that.  Of two classes that both
    have weights onnxruntime names the second wherever its score is above 0;
    here, as specified, the first of the largest score.
Probabilities
    weights that are shares of votes (``post_transform`` NONE, each tree's leaves
    adding up to the same) are read as votes, within ``T / 2**24``; LOGISTIC and
    SOFTMAX as links of margins.

`tests/test_import_onnx.py` measures them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.schema import Label, Schema
from treekit.errors import ModelError, ModelFileError
from treekit.interop.boosting import Boosted, Outcome, read_boosted
from treekit.interop.onnx_nodes import (
    GTE,
    LEQ,
    MEMBER,
    OPERATORS,
    SOURCE,
    Attributes,
    OnnxTrees,
    TreeOperator,
    copied,
    listed,
    nodes_of,
    opened,
    placed,
    recognises_onnx,
    tensor_values,
    tree_operator,
    vocabularies_of,
)
from treekit.interop.tree_assembly import (
    Nodes,
    Vocabulary,
    checked_names,
    checked_width,
    columns_of,
    make_trees,
)
from treekit.model.links import Combine, Link
from treekit.model.model import MissingPolicy, Model, UnknownPolicy, Voting, make_model
from treekit.model.tree import Tree
from treekit.model.validation import check_model

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

__all__ = [
    "is_own",
    "read_onnx",
    "read_own",
    "recognises_onnx",
]


# ---------------------------------------------------------------- onnx

Floats = npt.NDArray[np.float64]

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_SHARE = 1e-4
"""Weights of float32 are shares of votes if their sums are this close to equal."""


def read_onnx(source: Any, *, answer: str = "predictions") -> Model:
    """The model of an ONNX graph that is a tree ensemble.

    Parameters
    ----------
    source : pathlib.Path or onnx.ModelProto
    answer : {"predictions", "margins"}
        ``margins``: the sums of the weights of each class, as numbers.

    Raises
    ------
    ModelError
        If it is no such graph, is damaged, or has what treekit cannot express.
    """
    proto = opened(source)
    if is_own(proto):
        return read_own(proto, answer)
    operator = tree_operator(proto.graph)
    labels, trees, transform, aggregate = _understood(operator)
    told = operator.n_features or int(trees.feature[trees.true >= 0].max(initial=0)) + 1
    n_features = checked_width(told, SOURCE)
    names = checked_names(None, n_features, SOURCE)
    vocabularies = vocabularies_of(trees, n_features)
    nodes, unseen_is_missing = nodes_of(trees, operator.dtype, vocabularies)
    base = operator.attributes.numbers("base_values").astype(np.float64)
    provenance = {"importer": "onnx", "operator": operator.kind, "producer": proto.producer_name}
    columns = columns_of(names, vocabularies)
    policy: UnknownPolicy = "missing" if unseen_is_missing else "error"
    shares = None
    if labels and transform == "NONE" and answer == "predictions" and not np.any(base):
        shares = _shares(nodes, trees.used, len(labels))
    if shares is not None:
        schema = Schema(columns, classes=labels, dtype=operator.dtype)
        nodes.value = shares
        return make_model(
            schema,
            make_trees(nodes, schema, SOURCE),
            unknown=policy,
            provenance={"treekit": __version__, **provenance},
        )
    margins, outcome = _outcome(labels, transform, trees.used, base, operator)
    nodes.value = nodes.value[:, margins]
    n_trees = len(trees.roots)
    return read_boosted(
        Boosted(
            source=SOURCE,
            columns=columns,
            dtype=operator.dtype,
            nodes=nodes,
            group=np.zeros(n_trees, dtype=np.int64),
            base=_base(base, len(margins)),
            outcome=outcome,
            divisor=n_trees if aggregate == "AVERAGE" else 1,
            unknown=policy,
        ),
        answer=answer,
        settings={"post_transform": transform, "aggregate_function": aggregate},
        provenance=provenance,
    )


def _understood(operator: TreeOperator) -> tuple[tuple[Label, ...], OnnxTrees, str, str]:
    """Labels (none of a regressor), trees, post transform and aggregate function."""
    attributes = operator.attributes
    if operator.kind == "TreeEnsemble":
        transform = _name(attributes.whole("post_transform", 0), _TRANSFORMS, "post_transform")
        aggregate = _name(attributes.whole("aggregate_function", 1), _AGGREGATES, "aggregate")
        trees = copied(placed(attributes, _targets(attributes)))
        return (), trees, transform, _known(aggregate)
    transform = attributes.text("post_transform", "NONE")
    if operator.kind == "TreeEnsembleClassifier":
        labels = _labels(attributes)
        return labels, copied(listed(attributes, "class", len(labels))), transform, "SUM"
    aggregate = _known(attributes.text("aggregate_function", "SUM"))
    return (), copied(listed(attributes, "target", _targets(attributes))), transform, aggregate


def _name(number: int, names: tuple[str, ...], what: str) -> str:
    if not 0 <= number < len(names):
        raise ModelFileError(f"{SOURCE} is damaged: {what} is {number}")
    return names[number]


def _known(aggregate: str) -> str:
    if aggregate not in ("SUM", "AVERAGE"):
        raise ModelError(
            f"{SOURCE} combines its trees by {aggregate!r:.40}, and treekit by SUM and AVERAGE"
        )
    return aggregate


def _targets(attributes: Attributes) -> int:
    n = attributes.whole("n_targets", 1)
    if not 1 <= n <= 2**24:
        raise ModelFileError(f"{SOURCE} is damaged: it has {n} targets")
    return n


def _labels(attributes: Attributes) -> tuple[Label, ...]:
    numbers = attributes.ints("classlabels_int64s").tolist()
    labels = tuple(numbers or attributes.texts("classlabels_strings"))
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise ModelError(f"{SOURCE} has {len(labels)} classes, or one twice; treekit needs two")
    return labels


def _shares(nodes: Nodes, used: tuple[int, ...], n_classes: int) -> Floats | None:
    """(n, classes) float64: weights as shares of votes; None if they are none.

    Every tree spreads the same whole over the classes.  Of two classes a graph
    may have the second's shares alone, as the scores of its one target.
    """
    leaf = ~nodes.inner
    weight = nodes.value[leaf]
    whole = 1.0 / len(nodes.roots)
    if np.any(weight < 0):
        return None
    if n_classes == 2 and len(used) == 1:
        second = nodes.value[:, used[0]]
        if np.any(second[leaf] > whole * (1 + _SHARE)):
            return None
        return np.stack([np.maximum(whole - second, 0.0), second], axis=1)
    equal = np.abs(weight.sum(axis=1) - whole) <= whole * _SHARE
    return nodes.value if bool(np.all(equal)) else None


def _outcome(
    labels: tuple[Label, ...],
    transform: str,
    used: tuple[int, ...],
    base: Floats,
    operator: TreeOperator,
) -> tuple[list[int], Outcome]:
    """The targets that are margins, and what becomes of them."""
    refused = f"its post_transform is {transform!r:.40}"
    if not labels:
        every = list(range(_targets(operator.attributes)))
        link = {"NONE": "identity", "LOGISTIC": "sigmoid"}.get(transform)
        return every, Outcome("sigmoid" if link == "sigmoid" else "identity",
                              refused="" if link else refused)  # fmt: skip
    if len(labels) == 2 and len(used) == 1:
        if len(base) > 1 or (len(base) == 1 and used[0] == 1):
            raise ModelError(
                f"{SOURCE} has weights of one class of two, and base values that are not its own"
            )
        return [used[0]], Outcome(
            "sigmoid", labels, refused="" if transform == "LOGISTIC" else refused
        )
    link = {"SOFTMAX": "softmax", "LOGISTIC": "sigmoid"}.get(transform)
    if transform == "NONE":
        refused = "the weights of its classes are no shares of votes"
    return list(range(len(labels))), Outcome(
        "sigmoid" if link == "sigmoid" else "softmax", labels, refused="" if link else refused
    )


def _base(base: Floats, n_margins: int) -> Floats:
    if len(base) not in (0, n_margins):
        raise ModelFileError(f"{SOURCE} is damaged: {len(base)} base values of {n_margins} margins")
    return base if len(base) else np.zeros(n_margins)


# ---------------------------------------------------------------- onnx own
# treekit's own ONNX graphs, back as models that answer every row as before.
#
# The graph holds the trees and the integers of the leaves, its metadata the
# schema and the policies.  What an exported graph no longer has is not made up:
# the training weights of nodes, settings, and what derived columns were made of
# (oblique tests, surrogates, rows that divide), which are refused by name.

Ints = npt.NDArray[np.int64]


class _Policies(msgspec.Struct):
    """``treekit.policies`` of the metadata."""

    missing: MissingPolicy
    unknown: UnknownPolicy
    voting: Voting
    combine: Combine
    costs: list[list[int]] | None


class _Units(msgspec.Struct):
    """``treekit.units`` of the metadata."""

    exponent: int = 0
    link: Link = "identity"


def is_own(proto: ModelProto) -> bool:
    """Whether treekit made a graph, and its metadata tell the policies."""
    keys = {one.key for one in proto.metadata_props}
    return proto.producer_name == "treekit" and "treekit.policies" in keys


def read_own(proto: ModelProto, answer: str) -> Model:
    """The model of a graph that treekit made.

    Raises
    ------
    ModelError
        If it is damaged, or cannot be had back; the message names why.
    """
    told = {one.key: one.value for one in proto.metadata_props}
    try:
        schema = msgspec.json.decode(told.get("treekit.schema", ""), type=Schema)
        policies = msgspec.json.decode(told["treekit.policies"], type=_Policies)
        of_units = msgspec.json.decode(told.get("treekit.units", ""), type=_Units)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: its metadata: {error}") from error
    operators = [node for node in proto.graph.node if node.op_type in OPERATORS]
    if answer != "predictions" or len(operators) != 1 or policies.missing == "surrogate":
        raise ModelError(
            f"{SOURCE} is treekit's own and cannot be had back: its rows divide or it asks "
            "surrogates, or its margins are asked for; read the model file that it was made of"
        )
    constants = {one.name: one for one in proto.graph.initializer}
    raw, first, units = _integers(operators[0], constants, schema)
    trees = copied(_without_chains(raw, schema))
    if np.any(trees.feature[trees.true >= 0] >= schema.n_features):
        raise ModelError(
            f"{SOURCE} is treekit's own and asks derived columns, which cannot be had back; read "
            "the model file that it was made of"
        )
    codes = [
        Vocabulary(one.levels, np.arange(len(one.levels))) if one.kind == "nominal" else None
        for one in schema.columns
    ]
    nodes, _ = nodes_of(trees, schema.dtype, codes)
    read = make_trees(nodes, schema, SOURCE)
    rows = list(_rows(read, first, len(units)))
    grid = (
        0 if schema.task == "classification" and policies.combine == "mean" else of_units.exponent
    )
    if not -1100 <= grid <= 1100:
        raise ModelFileError(f"{SOURCE} is damaged: its exponent is {grid}")
    valued = [_valued(tree, units[own], grid) for tree, own in zip(read, rows, strict=True)]
    model = Model(
        schema=schema,
        trees=tuple(valued),
        units=units[np.concatenate(rows)],
        exponent=grid,
        missing=policies.missing,
        unknown=policies.unknown,
        voting=policies.voting,
        combine=policies.combine,
        link=of_units.link,
        costs=None if policies.costs is None else _cost_table(policies.costs),
        provenance={"treekit": __version__, "importer": "onnx", "operator": operators[0].op_type},
    )
    check_model(model)
    return model


def _integers(
    node: NodeProto, constants: dict[str, Any], schema: Schema
) -> tuple[OnnxTrees, Ints, Ints]:
    """Trees whose leaves name their integers, where each tree's begin, and the integers.

    Returns
    -------
    trees : OnnxTrees
        Of values (n, 1): rows of `units`, counted from `first` of the tree.
    first : (trees,) int64
    units : (rows, values) int64
    """
    attributes, width = Attributes(node), schema.n_values
    as_rows = list(node.output) == ["leaf_numbers"]
    n_targets = attributes.whole("n_targets", 1)
    if not 1 <= n_targets <= 2**24:
        raise ModelFileError(f"{SOURCE} is damaged: it has {n_targets} targets")
    if node.op_type == "TreeEnsemble":
        trees = placed(attributes, n_targets, one=as_rows)
    else:
        trees = listed(attributes, "target", n_targets, one=as_rows)
    if as_rows:
        first, units = (_constant(constants, name) for name in ("first_leaf", "units"))
        if len(units) % width or len(first) != len(trees.roots):
            raise ModelFileError(f"{SOURCE} is damaged: the integers of its leaves do not fit")
        return trees, first, units.reshape(-1, width)
    if trees.value.shape[1] == 1 and width == 2:  # the first class has the rest of the votes
        votes, rest = (_constant(constants, name).ravel() for name in ("rest", "unit_total"))
        if len(votes) != 2 or votes[0] != rest[0] or rest[0] % len(trees.roots):
            raise ModelFileError(f"{SOURCE} is damaged: its votes do not add up to {rest[0]}")
        second = trees.value[:, 0]
        first_class = np.where(trees.true < 0, rest[0] // len(trees.roots) - second, 0.0)
        trees = trees._replace(value=np.stack([first_class, second], axis=1))
    if trees.value.shape[1] % width:
        raise ModelFileError(f"{SOURCE} is damaged: {n_targets} targets of {width} values")
    n_limbs = trees.value.shape[1] // width
    base = 0
    if n_limbs > 1:
        product = _constant(constants, "product" if "product" in constants else "base").ravel()
        base = int(product[width * width] if product.size == n_limbs * width**2 else product[0])
    if not (np.all(np.abs(trees.value) <= 2.0**53) and 0 <= base <= 2**25 and n_limbs <= 8):
        raise ModelFileError(f"{SOURCE} is damaged: its leaves hold no integers")
    total = np.zeros((len(trees.mode), width), dtype=np.int64)
    with np.errstate(over="ignore"):  # refused by `check_model`
        for number in range(n_limbs - 1, -1, -1):
            limb = trees.value[:, number * width : (number + 1) * width].astype(np.int64)
            total = total * base + limb
    numbered = trees._replace(value=np.arange(len(trees.mode), dtype=np.float64)[:, None])
    return numbered, np.zeros(len(trees.roots), dtype=np.int64), total


def _constant(constants: dict[str, Any], name: str) -> Ints:
    if name not in constants:
        raise ModelFileError(f"{SOURCE} is damaged: it has no constant {name!r}")
    values = tensor_values(constants[name], name)
    if not len(values) or not np.all(values == np.floor(values)):
        raise ModelFileError(f"{SOURCE} is damaged: {name!r} holds no whole numbers")
    return values.astype(np.int64)


def _cost_table(costs: list[list[int]]) -> Ints:
    try:
        return np.array(costs, dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: its costs are no table: {error}") from error


def _rows(trees: tuple[Tree, ...], first: Ints, n_rows: int) -> Iterator[Ints]:
    """The rows of the integers that the leaves of each tree stand for."""
    for tree, start in zip(trees, first.tolist(), strict=True):
        number = tree.value[tree.leaves, 0]
        if not np.all((number >= 0) & (number < n_rows) & (number == np.floor(number))):
            raise ModelFileError(f"{SOURCE} is damaged: a leaf has no integers")
        rows = number.astype(np.int64) + start
        if not np.all((rows >= 0) & (rows < n_rows)):
            raise ModelFileError(f"{SOURCE} is damaged: a leaf has no integers")
        yield rows


def _valued(tree: Tree, units: Ints, exponent: int) -> Tree:
    """The tree whose leaves say what their integers mean."""
    value = np.zeros((tree.n_nodes, units.shape[1]))
    with np.errstate(over="ignore"):  # refused by `check_model`
        value[tree.leaves] = np.ldexp(units.astype(np.float64), exponent)
    return replace(tree, value=value)


def _without_chains(trees: OnnxTrees, schema: Schema) -> OnnxTrees:
    """Tests of codes as sets; a chain of tests that leads to two places is one set.

    `treekit.export.onnx.trees` writes a set as the bounds between members and
    others: the false branch goes on, and the true ones share their places.
    """
    n = len(trees.mode)
    inner = np.flatnonzero(trees.true >= 0)
    known = inner[(trees.feature[inner] >= 0) & (trees.feature[inner] < schema.n_features)]
    asks = np.zeros(n, dtype=np.bool_)
    asks[known] = schema.nominal[trees.feature[known]] & ~np.isinf(trees.split[known])
    n_parents = np.bincount(np.concatenate([trees.true[inner], trees.false[inner]]), minlength=n)
    follows = np.full(n, -1, dtype=np.int64)
    tests = np.flatnonzero(asks & (trees.mode == LEQ))
    after, yes = trees.false[tests], trees.true[tests]
    same = asks[after] & (trees.mode[after] == LEQ) & (n_parents[after] == 1)
    same &= (trees.feature[after] == trees.feature[tests]) & (n_parents[yes] > 1)
    follows[tests[same]] = after[same]
    goes_on = np.zeros(n, dtype=np.bool_)
    goes_on[after[same]] = True
    members, true, false = dict(trees.members), trees.true.copy(), trees.false.copy()
    for head in np.flatnonzero(asks & ~goes_on & (trees.mode != MEMBER)).tolist():
        n_levels = int(schema.n_levels[trees.feature[head]])
        members[head], true[head], false[head] = _chain(trees, head, follows, n_levels)
    mode = np.where(asks, MEMBER, trees.mode)
    return trees._replace(mode=mode, true=true, false=false, members=members)


def _chain(
    trees: OnnxTrees, head: int, follows: Ints, n_levels: int
) -> tuple[npt.NDArray[np.float64], int, int]:
    """The codes that a chain sends one way, that way, and the other."""
    ways, at, end = np.full(n_levels, -1), head, -1
    while at >= 0:
        code = np.clip(trees.split[at], -1, n_levels)
        own = np.arange(n_levels) >= code if trees.mode[at] == GTE else np.arange(n_levels) <= code
        ways[own & (ways < 0)] = trees.true[at]
        end, at = int(trees.false[at]), int(follows[at])
    members = np.flatnonzero((ways >= 0) & (ways != end)).astype(np.float64)
    yes = np.unique(ways[members.astype(np.int64)])
    if len(yes) > 1:
        raise ModelFileError(f"{SOURCE} is damaged: a set of categories leads to several places")
    return members, int(yes[0]) if len(yes) else int(trees.true[head]), end
