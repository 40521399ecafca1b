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

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.schema import Label, Schema
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
from treekit.interop.onnx_own import is_own, read_own
from treekit.interop.onnx_questions import nodes_of, vocabularies_of
from treekit.interop.onnx_trees import OnnxTrees, copied, listed, placed
from treekit.interop.vocabulary import checked_names, checked_width, columns_of
from treekit.model.model import Model, UnknownPolicy, make_model

__all__ = ["read_onnx", "recognises_onnx"]

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
