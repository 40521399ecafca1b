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

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.schema import Dtype, Label, Schema
from treekit.errors import ModelError, ModelFileError
from treekit.interop.boosted import Boosted, Outcome, read_boosted
from treekit.interop.build import Nodes, make_trees
from treekit.interop.onnx_graph import (
    SOURCE,
    Attributes,
    TreeOperator,
    opened,
    recognises_onnx,
    tree_operator,
)
from treekit.interop.onnx_trees import EQ, GT, GTE, LT, MEMBER, NEQ, OnnxTrees, listed, placed
from treekit.interop.vocabulary import (
    Vocabulary,
    checked_names,
    checked_width,
    columns_of,
    whole_vocabulary,
)
from treekit.model.ensemble import Model, UnknownPolicy, make_model
from treekit.model.portable import floor_to

__all__ = ["read_onnx", "recognises_onnx"]

Ints = npt.NDArray[np.int64]
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
    operator = tree_operator(proto.graph)
    labels, trees, transform, aggregate = _understood(operator)
    told = operator.n_features or int(trees.feature[trees.true >= 0].max(initial=0)) + 1
    n_features = checked_width(told, SOURCE)
    names = checked_names(None, n_features, SOURCE)
    vocabularies = _vocabularies(trees, n_features)
    nodes, unseen_is_missing = _nodes(trees, operator.dtype, vocabularies)
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
        return (), placed(attributes, _targets(attributes)), transform, _known(aggregate)
    transform = attributes.text("post_transform", "NONE")
    if operator.kind == "TreeEnsembleClassifier":
        labels = _labels(attributes)
        return labels, listed(attributes, "class", len(labels)), transform, "SUM"
    aggregate = _known(attributes.text("aggregate_function", "SUM"))
    return (), listed(attributes, "target", _targets(attributes)), transform, aggregate


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


def _vocabularies(trees: OnnxTrees, n_features: int) -> list[Vocabulary | None]:
    """Of the columns that are asked whether they equal a number; None for the others."""
    found: list[Vocabulary | None] = [None] * n_features
    nodes, start, values = _questions(trees)
    asks = np.zeros(len(trees.mode), dtype=np.bool_)
    asks[nodes] = True
    owner = np.repeat(trees.feature[nodes], np.diff(start))
    compared = np.unique(trees.feature[(trees.true >= 0) & ~asks])
    for feature in np.unique(trees.feature[nodes]).tolist():
        if not 0 <= feature < n_features:
            raise ModelFileError(f"{SOURCE} is damaged: a split asks none of {n_features} columns")
        if feature in compared:
            raise ModelError(
                f"{SOURCE} compares column {feature} by order and by equality (EQ, NEQ, MEMBER), "
                "which no column of treekit's is asked by"
            )
        own = values[owner == feature]
        whole = (own >= 0) & (own < 2**24) & (own == np.floor(own))
        if not np.all(whole):
            raise ModelError(
                f"{SOURCE} asks whether column {feature} equals {own[~whole][0]}; treekit reads "
                "whole numbers from 0, as codes of categories"
            )
        found[feature] = whole_vocabulary(own.astype(np.int64))
    return found


def _questions(trees: OnnxTrees) -> tuple[Ints, Ints, Floats]:
    """Nodes of EQ, NEQ and MEMBER, where the numbers of each begin, and the numbers."""
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


def _nodes(
    trees: OnnxTrees, dtype: Dtype, vocabularies: list[Vocabulary | None]
) -> tuple[Nodes, bool]:
    """The nodes with ``<=`` and sets alone, and whether unseen numbers go the way of NaN."""
    mode, inner = trees.mode, trees.true >= 0
    sets, set_start, values = _questions(trees)
    # Branch 0 is "at most", or "one of them": the false branch of the opposite questions.
    turned = (mode == GTE) | (mode == GT) | (mode == NEQ)
    with np.errstate(over="ignore"):
        below = np.nextafter(trees.split, -np.inf)
    asked = np.where((mode == LT) | (mode == GTE), below, trees.split)
    asked[sets] = 0.0
    threshold = floor_to(asked, dtype)
    if np.any(inner & (threshold == -np.inf)):
        raise ModelError(
            f"{SOURCE} has a threshold that minus infinity alone is below, which no split of "
            "treekit's can ask"
        )
    missing_true = trees.missing_true | (mode == NEQ)
    set_codes = np.full(len(values), -1, dtype=np.int64)
    owner = np.repeat(trees.feature[sets], np.diff(set_start))
    for feature in np.unique(owner).tolist():
        vocabulary, own = vocabularies[feature], owner == feature
        if vocabulary is not None:
            set_codes[own] = vocabulary.positions(values[own].astype(np.int64))
    nodes = Nodes(
        roots=trees.roots,
        tree=trees.tree,
        left=np.where(turned, trees.false, trees.true),
        right=np.where(turned, trees.true, trees.false),
        feature=trees.feature,
        threshold=threshold,
        missing_left=missing_true != turned,
        value=trees.value,
        weight=np.zeros(len(mode)),
        gain=np.zeros(len(mode)),
        set_node=sets,
        set_start=set_start,
        set_codes=set_codes,
    )
    # Numbers that no node asks for are no members: they take branch 1.
    return nodes, not bool(np.any(nodes.missing_left[sets]))
