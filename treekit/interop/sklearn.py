"""Import fitted trees, forests and boosted trees of scikit-learn.

Sources are estimator objects, and skops files, read without skops, but not
pickles, because loading a pickle executes code.

Comparison with scikit-learn's predictions:

Decision paths
    always equal.  scikit-learn casts inputs to float32 and compares them with
    a double threshold; for a float32 x, ``x <= t`` is ``x <= floor32(t)``.
Labels of one tree
    equal; ties go to the first class in both.
Labels of a forest
    equal unless two classes differ only in the last digits: scikit-learn adds
    shares in double, in the order of the trees, and treekit adds integers,
    ``floor(2**24 / T)`` units for each of T trees.  An exact tie goes to the first
    class here; in scikit-learn it depends on rounding.
Probabilities
    within ``T / 2**24``, for 100 trees 6e-6.
Regression
    within half a fixed-point step, ``2**(exponent - 1)``: for T trees at most
    ``T**2 / 2**48`` of the largest leaf, 4e-11 for 100 trees.

Bagging
    like forests: shares, or numbers, of the trees are averaged.
Gradient boosting
    equal decision paths: `GradientBoosting*` compares like its trees,
    `HistGradientBoosting*` compares doubles, with its branches for missing values and
    its sets of categories; unseen categories are missing in both.
Margins
    scikit-learn adds T doubles in sequence; the sum here is exact except for rounding
    to fixed-point units: they differ by at most ``T * 2**(exponent - 1)`` and
    scikit-learn's rounding error, about ``T * 2**-53`` of the largest sum.
Labels of boosted trees
    equal unless two classes are closer than that.  A margin of exactly 0 is
    the first class here and in `HistGradientBoostingClassifier`, the second in
    `GradientBoostingClassifier`.
Probabilities and exponentials of boosted trees
    within 4 ulp of the exact link function of the margin (see `treekit.model.links`).

`tests/test_import_sklearn.py` and `tests/test_import_boosting.py` measure these
differences.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.schema import Column, Dtype, Output, Schema, python_label
from treekit.errors import ModelError, ModelFileError, TreekitError
from treekit.interop import beginning
from treekit.interop.boosting import BoostedTrees, Outcome, make_boosted_model
from treekit.interop.tree_assembly import (
    MAX_COLUMNS,
    NodeList,
    Vocabulary,
    check_names,
    check_width,
    make_columns,
    make_named_vocabulary,
)
from treekit.model.fixed_point import floor_to_dtype
from treekit.model.model import Model, make_model
from treekit.model.model_file import read_entries
from treekit.model.tree import Split, Tree, take_slices

# ---------------------------------------------------------------- estimators

_TREES = (
    *("DecisionTreeClassifier", "DecisionTreeRegressor"),
    *("ExtraTreeClassifier", "ExtraTreeRegressor"),
)
_FORESTS = (
    *("RandomForestClassifier", "RandomForestRegressor"),
    *("ExtraTreesClassifier", "ExtraTreesRegressor"),
)
_BAGGING = ("BaggingClassifier", "BaggingRegressor")
_BOOSTED = ("GradientBoostingClassifier", "GradientBoostingRegressor")
_HISTOGRAMS = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")

CLASS_NAMES = (*_TREES, *_FORESTS, *_BAGGING, *_BOOSTED, *_HISTOGRAMS)
"""Supported classes of scikit-learn."""

MODULE_PREFIXES = ("sklearn.tree.", "sklearn.ensemble.")
"""Prefixes of their modules."""


def recognises_sklearn(source: Any) -> bool:
    """Return whether `source` is an estimator of one of `KINDS`, fitted or not.

    Does not import scikit-learn, which is already imported if `source` is one of its
    objects.
    """
    return _find_class_name(source) is not None


def _find_class_name(source: Any) -> str | None:
    # Not isinstance: treekit's trees are registered as virtual subclasses.
    for kind in type(source).__mro__:
        if kind.__module__.startswith(MODULE_PREFIXES) and kind.__name__ in CLASS_NAMES:
            return kind.__name__
    return None


def read_sklearn(source: Any, *, dtype: str = "auto", answer: str = "predictions") -> Model:
    """Read a fitted estimator of one of `KINDS`.

    Parameters
    ----------
    source : estimator
    dtype : {"auto", "float32", "float64"}
        Input type; auto: float64 for `HistGradientBoosting*`, which compares
        doubles, and float32 for all others, which round numbers to float32.
    answer : {"predictions", "margins"}
        ``margins``: the raw scores of boosted trees, as numbers.

    Returns
    -------
    Model
        Columns as in ``feature_names_in_``, else ``x0``, ``x1``, ...

    Raises
    ------
    ModelError
        If the estimator is not fitted, or has an invalid tree.
    """
    kind = _find_class_name(source)
    if kind is None:
        raise ModelError(
            f"expected a tree or forest of scikit-learn, got {type(source).__qualname__}"
        )
    version = sys.modules["sklearn"].__version__
    return read_estimator(source, kind, type(source).__name__, version, dtype, answer)


def read_estimator(
    source: Any, kind: str, name: str, version: str, dtype: str, answer: str
) -> Model:
    """Read an estimator, or an object with its attributes.

    Parameters
    ----------
    source : object
    kind : str
        One of `KINDS`.
    name : str
        Name of the class, which may be a subclass of `kind`.
    version : str
        Version of scikit-learn.
    dtype, answer : str
        See `read_sklearn`.
    """
    fitted = {_TREES: "tree_", _HISTOGRAMS: "_predictors"}
    needed = next((what for kinds, what in fitted.items() if kind in kinds), "estimators_")
    if not hasattr(source, needed):
        raise ModelError(f"the {name} is not fitted: call fit first")
    settings = _collect_parameters(source)
    provenance = {"importer": "scikit-learn", "estimator": name, "scikit-learn": version}
    if kind in _HISTOGRAMS:
        input_type: Dtype = "float32" if dtype == "float32" else "float64"
        return read_histogram_boosting(source, name, input_type, answer, settings, provenance)
    if dtype == "float64":
        raise ModelError(f"the {name} rounds numbers to float32: omit dtype='float64'")
    if kind in _BOOSTED:
        return read_gradient_boosting(source, name, answer, settings, provenance)
    if answer == "margins":
        raise ModelError(f"the {name} has no margins: omit answer='margins'")
    schema = _make_schema(source, name)
    return make_model(
        schema,
        _convert_trees(source, kind, name, schema),
        settings=settings,
        provenance={"treekit": __version__, **provenance},
    )


def _convert_trees(source: Any, kind: str, name: str, schema: Schema) -> list[Tree]:
    """Convert the trees of a tree, forest or bagging estimator."""
    if kind in _TREES:
        return [convert_tree(source.tree_, schema)]
    if kind in _FORESTS:
        return [convert_tree(member.tree_, schema) for member in source.estimators_]
    trees = []
    for member, features in zip(source.estimators_, source.estimators_features_, strict=True):
        if not hasattr(member, "tree_") or getattr(member, "n_outputs_", 1) != 1:
            raise ModelError(
                f"the {name} has members that are not decision trees with one output; "
                "bag decision trees"
            )
        classes = getattr(member, "classes_", None)
        if (classes is not None) != bool(schema.classes):
            raise ModelError(f"the {name} bags trees of another task")
        own = schema if classes is None else _restrict_classes(schema, classes, name)
        tree = convert_tree(member.tree_, own)
        columns = np.asarray(features, dtype=np.int64)
        if np.any(tree.feature >= len(columns)):
            raise ModelError(f"the {name} is damaged: a tree uses a column that does not exist")
        value = tree.value
        if classes is not None:
            value = np.zeros((tree.n_nodes, schema.n_values))
            value[:, np.asarray(classes, dtype=np.int64)] = tree.value
        split_feature = np.where(tree.feature >= 0, columns[tree.feature], -1).astype(np.int32)
        trees.append(replace(tree, feature=split_feature, value=value))
    return trees


def _restrict_classes(schema: Schema, classes: Any, name: str) -> Schema:
    """Return the schema of a bagged tree, whose classes are positions in the bag's classes."""
    positions = np.asarray(classes)
    if not np.all(np.isin(positions, np.arange(len(schema.classes)))):
        raise ModelError(f"the {name} is damaged: a tree has unknown classes")
    labels = tuple(schema.classes[int(position)] for position in positions)
    return Schema(columns=schema.columns, classes=labels)


def _make_schema(source: Any, name: str) -> Schema:
    """Make the schema of a tree, forest or bagging estimator."""
    source_name = f"the {name}"
    names = getattr(source, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    names = check_names(names, check_width(int(source.n_features_in_), source_name), source_name)
    columns = tuple(Column(name) for name in names)
    n_outputs = int(getattr(source, "n_outputs_", 1))
    if not 1 <= n_outputs <= MAX_COLUMNS:
        raise ModelError(f"{source_name} has {n_outputs} outputs; treekit reads 1 to {MAX_COLUMNS}")
    targets = ["target"] if n_outputs == 1 else [f"y{k}" for k in range(n_outputs)]
    if not hasattr(source, "classes_"):
        more = tuple(Output(target) for target in targets[1:])
        return Schema(columns=columns, target=targets[0], task="regression", more=more)
    class_arrays = [source.classes_] if n_outputs == 1 else source.classes_
    labels = [tuple(python_label(label) for label in classes) for classes in class_arrays]
    more = tuple(map(Output, targets[1:], labels[1:]))
    return Schema(columns=columns, target=targets[0], classes=labels[0], more=more)


def _collect_parameters(source: Any) -> dict[str, Any]:
    """Return the estimator's parameters as plain values, or as their `repr`."""
    plain = (bool, int, float, str, type(None))
    return {
        name: value if type(value) in plain else repr(value)
        for name, value in source.get_params(deep=False).items()
    }


# ---------------------------------------------------------------- trees

_INTEGER_TOLERANCE = 2.0**-50
"""Class weights this close to an integer, relative to the node's weight, are rounded."""


def convert_tree(tree: Any, schema: Schema) -> Tree:
    """Convert a ``sklearn.tree._tree.Tree``: renumber nodes, and floor thresholds to float32."""
    n = tree.node_count
    left, right = tree.children_left, tree.children_right
    inner = np.flatnonzero(left >= 0)
    _check_tree(tree, inner, schema)
    order, first_child = _renumber_nodes(left, right, inner)
    kind, threshold, missing, exchanged = _convert_splits(tree, inner)
    # Swap the sides of splits on missing values whose missing branch is the right one.
    swapped = inner[exchanged]
    pairs = first_child[swapped]
    order[pairs], order[pairs + 1] = right[swapped], left[swapped]
    value = _compute_values(tree, schema)
    return Tree(
        kind=kind[order],
        feature=np.where(left >= 0, tree.feature, -1)[order],
        threshold=threshold[order],
        first_child=first_child[order].astype(np.int32),
        n_children=np.where(left >= 0, 2, 0)[order],
        missing=missing[order],
        level_offsets=np.zeros(n + 1, dtype=np.int64),
        level_branch=np.zeros(0, dtype=np.int32),
        value=value[order],
        weight=tree.weighted_n_node_samples[order],
        gain=_compute_gains(tree, inner)[order],
    )


def _check_tree(tree: Any, inner: npt.NDArray[np.int64], schema: Schema) -> None:
    """Check that the numbers are valid, before they are used."""
    weight, split_features = tree.weighted_n_node_samples, tree.feature[inner]
    if np.any((split_features < 0) | (split_features >= schema.n_features)):
        raise ModelError(
            "the scikit-learn tree is damaged: a split uses a column that the schema does not have"
        )
    finite = bool(np.all(np.isfinite(tree.value))) and bool(np.all(np.isfinite(weight)))
    if not finite or np.any(weight < 0):
        raise ModelError(
            "the scikit-learn tree is damaged: a value or weight is not finite; fit it again"
        )


def _renumber_nodes(
    left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], inner: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Renumber nodes such that siblings are adjacent and follow their parent.

    The j-th inner node gets the children ``2 j + 1`` and ``2 j + 2``.  As each
    child has a higher number than its parent, the parents of inner nodes have
    lower ranks j than their children, and so lower new numbers.

    Returns
    -------
    order : (n,) int64
        Old number of each new node.
    first_child : (n,) int64
        New number of the left child by old number; -1 in leaves.
    """
    n = len(left)
    children = np.stack([left[inner], right[inner]], axis=1)
    order = np.concatenate([[0], children.ravel()])
    once = len(order) == n and np.array_equal(np.sort(order), np.arange(n))
    if not once or np.any(children <= inner[:, None]):
        raise ModelError("the scikit-learn tree is damaged: fit it again")
    first_child = np.full(n, -1, dtype=np.int64)
    first_child[inner] = 2 * np.arange(len(inner)) + 1
    return order, first_child


def _convert_splits(
    tree: Any, inner: npt.NDArray[np.int64]
) -> tuple[
    npt.NDArray[np.uint8], npt.NDArray[np.float64], npt.NDArray[np.int32], npt.NDArray[np.bool_]
]:
    """Return kind, threshold and missing branch of each node, by old number.

    An infinite threshold is scikit-learn's form of a split on missing values, with all
    other values on one side.

    Returns
    -------
    kind : (n,) uint8
    threshold : (n,) float64
    missing : (n,) int32
    exchanged : (inner,) bool
        MISSING nodes whose missing values go right in scikit-learn.
    """
    at = floor_to_dtype(tree.threshold[inner], "float32")
    missing_left = tree.missing_go_to_left[inner].astype(np.bool_)
    asks_missing = ~np.isfinite(at)
    if np.any(np.isnan(at)) or np.any(asks_missing & (missing_left == (at > 0))):
        raise ModelError(
            "a split of the scikit-learn tree sends all values to one side: fit it again"
        )
    kind = np.full(tree.node_count, Split.LEAF, dtype=np.uint8)
    kind[inner] = np.where(asks_missing, Split.MISSING, Split.THRESHOLD)
    threshold = np.full(tree.node_count, np.nan)
    threshold[inner] = np.where(asks_missing, np.nan, at)
    missing = np.zeros(tree.node_count, dtype=np.int32)
    missing[inner] = ~missing_left & ~asks_missing
    return kind, threshold, missing, asks_missing & ~missing_left


def _compute_values(tree: Any, schema: Schema) -> npt.NDArray[np.float64]:
    """Return class weights or means (n, values) of each output, by old number.

    scikit-learn stores the share of each class.  The product with the node's weight is
    off by an ulp or two, and is rounded where the class weight is an integer, as in
    most fits.
    """
    sizes = [len(output.classes) or 1 for output in schema.outputs]
    value = np.concatenate([tree.value[:, k, :size] for k, size in enumerate(sizes)], axis=1)
    if schema.task == "regression":
        return value
    node_weight = tree.weighted_n_node_samples[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # infinities are rejected later
        weights = value * node_weight
        whole = np.rint(weights)
        close = np.abs(weights - whole) <= _INTEGER_TOLERANCE * node_weight
    result: npt.NDArray[np.float64] = np.where(close, whole, weights)
    return result


def _compute_gains(tree: Any, inner: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the impurity decrease of each split (n,), by old number; 0 in leaves."""
    with np.errstate(all="ignore"):
        return _compute_decreases(tree, inner)


def _compute_decreases(tree: Any, inner: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    mass = tree.weighted_n_node_samples * tree.impurity
    left, right = tree.children_left[inner], tree.children_right[inner]
    gain = np.zeros(tree.node_count)
    gain[inner] = (mass[inner] - mass[left] - mass[right]) / tree.weighted_n_node_samples[inner]
    return np.where(np.isfinite(gain), gain, 0.0)


# ---------------------------------------------------------------- gradient boosting

Floats = npt.NDArray[np.float64]

_LOG_LINKS = ("poisson", "gamma")
_ENCODER = "encoder"
"""Name of the OrdinalEncoder of `HistGradientBoosting*`."""


def read_gradient_boosting(
    source: Any, kind: str, answer: str, settings: dict[str, Any], provenance: dict[str, Any]
) -> Model:
    """Read a `GradientBoosting*` estimator, or an object with its attributes."""
    source_name = f"the {kind}"
    stages = np.asarray(source.estimators_, dtype=object)
    if stages.ndim != 2 or stages.size == 0:
        raise ModelError(f"{source_name} is damaged: its stages are not a 2-d array of trees")
    outcome = _make_outcome(source, source_name, stages.shape[1])
    names = check_names(
        _get_feature_names(source),
        check_width(int(source.n_features_in_), source_name),
        source_name,
    )
    trees = [member.tree_ for member in stages.ravel()]
    return make_boosted_model(
        BoostedTrees(
            source=source_name,
            columns=make_columns(names, [None] * len(names)),
            dtype="float32",
            nodes=_make_gradient_nodes(trees, float(source.learning_rate)),
            margin_of_tree=np.arange(len(trees)) % stages.shape[1],
            initial_margins=_compute_initial_margins(source, outcome, source_name, stages.shape[1]),
            outcome=outcome,
        ),
        answer=answer,
        settings=settings,
        provenance=provenance,
    )


def _get_feature_names(source: Any) -> list[str] | None:
    """Return the feature names as text, if any."""
    names = getattr(source, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _make_outcome(source: Any, source_name: str, n_margins: int) -> Outcome:
    """Return the conversion of margins to predictions by the loss."""
    if not hasattr(source, "classes_"):
        return Outcome("exp" if source.loss in _LOG_LINKS else "identity")
    labels = tuple(python_label(label) for label in source.classes_)
    if n_margins != (1 if len(labels) == 2 else len(labels)):
        raise ModelError(
            f"{source_name} is damaged: {len(labels)} classes, but {n_margins} margins"
        )
    if source.loss not in ("log_loss", "exponential"):
        raise ModelError(f"{source_name} has the unknown loss {source.loss!r:.40}")
    if len(labels) > 2:
        return Outcome("softmax", labels)
    # The exponential loss fits half the log odds (Friedman, Hastie and Tibshirani 2000).
    return Outcome("sigmoid", labels, scale=2.0 if source.loss == "exponential" else 1.0)


def _compute_initial_margins(
    source: Any, outcome: Outcome, source_name: str, n_margins: int
) -> Floats:
    """Return the initial raw prediction (margins,) float64."""
    if isinstance(source.init, str) and source.init == "zero":
        return np.zeros(n_margins)
    first = source.init_
    name = type(first).__name__ if not hasattr(first, "stored_name") else first.stored_name
    if name == "DummyRegressor" and not outcome.labels:
        return np.asarray(first.constant_, dtype=np.float64).reshape(-1)[:1]
    if name != "DummyClassifier" or first.strategy != "prior" or not outcome.labels:
        raise ModelError(
            f"{source_name} has a {name} as init, whose predictions depend on the row; train it "
            "without init, or with init='zero'"
        )
    least = float(np.finfo(np.float64).eps)
    share = np.clip(np.asarray(first.class_prior_, dtype=np.float64), least, 1 - least)
    if len(outcome.labels) > 2:
        log: Floats = np.log(share / np.exp(np.mean(np.log(share))))
        return log
    from scipy.special import logit

    return np.asarray([logit(share[1]) / outcome.scale])


def _make_gradient_nodes(trees: list[Any], rate: float) -> NodeList:
    """Make nodes of ``sklearn.tree._tree.Tree``s, with leaves times the learning rate."""
    sizes = np.array([len(tree.children_left) for tree in trees], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    of_tree = np.repeat(np.arange(len(trees)), sizes)

    def concatenate_field(name: str) -> npt.NDArray[Any]:
        return np.concatenate([np.asarray(getattr(tree, name)) for tree in trees])

    left, right = (
        concatenate_field(f"children_{side}").astype(np.int64) for side in ("left", "right")
    )
    inner = left >= 0
    shift = first[of_tree]
    value = np.concatenate([np.asarray(tree.value, dtype=np.float64)[:, 0, 0] for tree in trees])
    return NodeList(
        roots=first,
        tree=of_tree,
        left=np.where(inner, left + shift, -1),
        right=np.where(inner, right + shift, -1),
        feature=concatenate_field("feature").astype(np.int64),
        threshold=floor_to_dtype(concatenate_field("threshold"), "float32"),
        missing_left=concatenate_field("missing_go_to_left") != 0,
        value=(rate * value)[:, None],
        weight=concatenate_field("weighted_n_node_samples").astype(np.float64),
        gain=np.zeros(len(left)),
    )


def read_histogram_boosting(
    source: Any,
    kind: str,
    dtype: Dtype,
    answer: str,
    settings: dict[str, Any],
    provenance: dict[str, Any],
) -> Model:
    """Read a `HistGradientBoosting*` estimator, or an object with its attributes."""
    source_name = f"the {kind}"
    rounds = [list(stage) for stage in source._predictors]
    n_margins = len(rounds[0]) if rounds else 1
    if not rounds or not n_margins or any(len(stage) != n_margins for stage in rounds):
        raise ModelError(f"{source_name} is damaged: its rounds have different numbers of trees")
    n_features = check_width(int(source.n_features_in_), source_name)
    names = check_names(_get_feature_names(source), n_features, source_name)
    order, vocabularies = _collect_vocabularies(source, n_features, source_name)
    outcome = _make_outcome(source, source_name, n_margins)
    base = np.asarray(source._baseline_prediction, dtype=np.float64).reshape(-1)
    if len(base) != n_margins:
        raise ModelError(f"{source_name} is damaged: {len(base)} baselines for {n_margins} margins")
    predictors = [predictor for stage in rounds for predictor in stage]
    return make_boosted_model(
        BoostedTrees(
            source=source_name,
            columns=make_columns(names, vocabularies),
            dtype=dtype,
            nodes=_make_histogram_nodes(predictors, order, vocabularies, dtype, source_name),
            margin_of_tree=np.arange(len(predictors)) % n_margins,
            initial_margins=base,
            outcome=outcome,
        ),
        answer=answer,
        settings=settings,
        provenance=provenance,
    )


def _collect_vocabularies(
    source: Any, n_features: int, source_name: str
) -> tuple[npt.NDArray[np.int64], list[Vocabulary | None]]:
    """Return the input column of each preprocessed column, and the columns' vocabularies.

    The preprocessor encodes categorical columns as integers and puts them first.
    """
    vocabularies: list[Vocabulary | None] = [None] * n_features
    mask = source.is_categorical_
    if mask is None:
        return np.arange(n_features), vocabularies
    if getattr(source, "_preprocessor", None) is None:
        raise ModelError(
            f"{source_name} was trained on categories by scikit-learn before 1.4; train it again"
        )
    nominal = np.flatnonzero(np.asarray(mask))
    order = np.concatenate([nominal, np.flatnonzero(~np.asarray(mask, dtype=np.bool_))])
    steps = {name: step for name, step, *_ in source._preprocessor.transformers_}
    encoder_categories = list(steps[_ENCODER].categories_) if _ENCODER in steps else []
    if len(encoder_categories) != len(nominal) or len(order) != n_features:
        raise ModelError(f"{source_name} is damaged: its categories do not match its columns")
    for column, categories in zip(nominal.tolist(), encoder_categories, strict=True):
        own = np.asarray(categories, dtype=object).tolist()
        if own and (own[-1] is None or own[-1] != own[-1]):
            own.pop()  # the missing category, which the encoder puts last
        vocabularies[column] = make_named_vocabulary(own, f"column {column} of {source_name}")
    return order.astype(np.int64), vocabularies


def _make_histogram_nodes(
    predictors: list[Any],
    order: npt.NDArray[np.int64],
    vocabularies: list[Vocabulary | None],
    dtype: Dtype,
    source_name: str,
) -> NodeList:
    """Make nodes of ``TreePredictor``s, whose features are preprocessed columns."""
    sizes = np.array([len(one.nodes) for one in predictors], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    of_tree = np.repeat(np.arange(len(predictors)), sizes)
    all_nodes = np.concatenate([one.nodes for one in predictors])
    inner = all_nodes["is_leaf"] == 0
    feature = all_nodes["feature_idx"].astype(np.int64)
    if np.any(feature[inner] >= len(order)) or np.any(feature[inner] < 0):
        raise ModelError(f"{source_name} is damaged: a split uses a column that does not exist")
    feature = np.where(inner, order[np.where(inner, feature, 0)], -1)
    categorical = inner & (all_nodes["is_categorical"] != 0)
    nominal = np.array([one is not None for one in vocabularies])
    if np.any(nominal[feature[inner]] != categorical[inner]):
        raise ModelError(f"{source_name} is damaged: kinds of splits and columns do not match")
    set_node, set_start, set_codes = _decode_bitsets(
        predictors, all_nodes, of_tree, categorical, source_name
    )
    n_levels = np.array([0 if one is None else len(one.levels) for one in vocabularies])
    most = np.repeat(n_levels[feature[set_node]], np.diff(set_start))
    if np.any(set_codes >= most):
        raise ModelError(f"{source_name} is damaged: a split has an unknown category")
    limits = np.where(categorical, 0.0, all_nodes["num_threshold"])
    threshold = floor_to_dtype(limits, dtype)
    if np.any(inner & (threshold == -np.inf)):
        raise ModelError(
            f"{source_name} has a threshold below all finite {dtype} numbers; read it with "
            "dtype='float64', or train it without infinite numbers"
        )
    shift = first[of_tree]
    return NodeList(
        roots=first,
        tree=of_tree,
        left=np.where(inner, all_nodes["left"].astype(np.int64) + shift, -1),
        right=np.where(inner, all_nodes["right"].astype(np.int64) + shift, -1),
        feature=feature,
        threshold=threshold,
        missing_left=all_nodes["missing_go_to_left"] != 0,
        value=all_nodes["value"].astype(np.float64)[:, None],
        weight=all_nodes["count"].astype(np.float64),
        gain=all_nodes["gain"].astype(np.float64),
        set_node=set_node,
        set_offsets=set_start,
        set_codes=set_codes,
    )


def _decode_bitsets(
    predictors: list[Any],
    all_nodes: npt.NDArray[Any],
    of_tree: npt.NDArray[np.int64],
    categorical: npt.NDArray[np.bool_],
    source_name: str,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the categorical splits, the offsets of their categories, and those that go left."""
    tables = [np.asarray(one.raw_left_cat_bitsets) for one in predictors]
    words = np.ascontiguousarray(np.concatenate([t.reshape(-1, 8) for t in tables]), dtype="<u4")
    counts = np.array([len(table) for table in tables], dtype=np.int64)
    node = np.flatnonzero(categorical)
    own = all_nodes["bitset_idx"][node].astype(np.int64)
    if np.any(own >= counts[of_tree[node]]):
        raise ModelError(f"{source_name} is damaged: a categorical split has no set")
    row = own + (np.cumsum(counts) - counts)[of_tree[node]]
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").reshape(-1, 256)
    at = np.flatnonzero(bits)
    start = np.searchsorted(at, 256 * np.arange(len(bits) + 1))
    positions, starts = take_slices(start, row)
    return node, starts, (at % 256)[positions]


# ---------------------------------------------------------------- estimators

# Exceptions that were observed for damaged attributes.
_DAMAGE_ERRORS = (
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
)


def recognises_skops(source: Any) -> bool:
    """Return whether `source` is a skops file (``.skops``)."""
    return beginning(source, (".skops",), 4) == b"PK\x03\x04"


def read_skops(source: Any, *, dtype: str = "auto", answer: str = "predictions") -> Model:
    """Read a skops file with a tree model of scikit-learn.

    Parameters
    ----------
    source : pathlib.Path
    dtype, answer : str
        See `treekit.interop.sklearn.read_sklearn`.

    Raises
    ------
    ModelError
        If it contains another object, is damaged, or uses unsupported features.
    """
    if not isinstance(source, Path) or not recognises_skops(source):
        raise ModelError(f"expected a skops file, got {type(source).__qualname__}")
    estimator = parse_schema(read_entries(source))
    name, module = estimator.stored_name, estimator.stored_module
    if name not in CLASS_NAMES or not module.startswith(MODULE_PREFIXES):
        raise ModelError(
            f"the skops file contains a {module:.60}.{name:.60}; treekit reads "
            f"{', '.join(CLASS_NAMES)}"
        )
    try:
        version = str(getattr(estimator, "_sklearn_version", "unknown"))
        return read_estimator(estimator, name, name, version, dtype, answer)
    except TreekitError:
        raise
    except _DAMAGE_ERRORS as error:
        raise ModelFileError(f"the skops file is damaged: {error}") from error


# ---------------------------------------------------------------- skops file
# Skops files are parsed as data; nothing is imported or called.
#
# skops writes a zip of ``schema.json``, which describes all objects, and of NumPy
# arrays.  Its loader builds the objects, including scikit-learn's compiled trees, which
# malformed arrays can crash.  Here, attributes are parsed on access only.

_MAX_NESTING = 12
"""Maximum nesting of lists in an attribute; scikit-learn's estimators need four."""

_PROTOCOLS = (0, 1, 2)
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NPY_HEADER = re.compile(
    rb"\{'descr': (.{3,4000}?), 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,12}, ?){0,7}(?:\d{1,12})?)\), \} *\n"
)
_DTYPE_PATTERN = re.compile(rb"'([<|=][biufU]\d{1,5})'")
_FIELDS_PATTERN = re.compile(rb"\[(?:\('\w{0,40}', '[<|=][biufV]\d{1,5}'\)(?:, )?){1,40}\]")
_FIELD_PATTERN = re.compile(rb"\('(\w{0,40})', '([<|=][biufV]\d{1,5})'\)")


class StoredObject:
    """An object of a file: the name of its class, and its attributes."""

    __slots__ = ("_attributes", "_entries", "_parsed", "stored_module", "stored_name")

    def __init__(self, node: Mapping[str, Any], entries: Mapping[str, bytes]) -> None:
        self.stored_name = str(node.get("__class__"))
        self.stored_module = str(node.get("__module__"))
        self._entries = entries
        self._attributes: dict[str, Any] = {}
        content = node.get("content")
        if isinstance(content, dict) and content.get("__loader__") == "DictNode":
            inside = content.get("content")
            self._attributes = inside if isinstance(inside, dict) else {}
        self._parsed: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._attributes:
            raise AttributeError(name)
        if name not in self._parsed:
            self._parsed[name] = _build_value(self._attributes[name], self._entries, 0)
        return self._parsed[name]

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return the plain parameters: attributes that are not set by fitting."""
        del deep
        names = [name for name in self._attributes if name[:1] != "_" and name[-1:] != "_"]
        loaders = {
            name: self._attributes[name]
            for name in names
            if isinstance(self._attributes[name], dict)
        }
        plain = [name for name, one in loaders.items() if one.get("__loader__") == "JsonNode"]
        return {name: getattr(self, name) for name in plain}


class StoredTree:
    """The arrays of a ``sklearn.tree._tree.Tree``."""

    def __init__(self, state: StoredObject) -> None:
        nodes, values = state.nodes, state.values
        if nodes.ndim != 1 or values.ndim != 3 or len(values) != len(nodes):
            raise ModelFileError("the skops file is damaged: a tree has inconsistent arrays")
        self.node_count = len(nodes)
        self.children_left, self.children_right = nodes["left_child"], nodes["right_child"]
        self.feature, self.threshold = nodes["feature"], nodes["threshold"]
        self.impurity = nodes["impurity"]
        self.weighted_n_node_samples = nodes["weighted_n_node_samples"]
        none = np.zeros(len(nodes), dtype=np.uint8)  # the field is absent before scikit-learn 1.3
        field_names = nodes.dtype.names or ()
        self.missing_go_to_left = (
            nodes["missing_go_to_left"] if _MISSING_FIELD in field_names else none
        )
        self.value = values


_MISSING_FIELD = "missing_go_to_left"


def parse_schema(entries: Mapping[str, bytes]) -> StoredObject:
    """Parse the outermost object of a file's entries.

    Raises
    ------
    ModelFileError
        If there is none, or the file has a later protocol.
    """
    if "schema.json" not in entries:
        raise ModelFileError("not a skops file: no entry 'schema.json'")
    try:
        schema = msgspec.json.decode(entries["schema.json"])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ModelFileError(f"the skops file is damaged: schema.json: {error}") from error
    if not isinstance(schema, dict) or schema.get("__loader__") != "ObjectNode":
        raise ModelFileError("the skops file contains no estimator")
    if schema.get("protocol", 0) not in _PROTOCOLS:
        raise ModelFileError(
            f"the skops file has protocol {schema['protocol']!r:.20}; treekit reads up to 2"
        )
    return StoredObject(schema, entries)


def _build_value(node: Any, entries: Mapping[str, bytes], depth: int) -> Any:
    """Return the value of a node of the schema; None for unsupported kinds."""
    if not isinstance(node, dict) or depth > _MAX_NESTING:
        raise ModelFileError("the skops file is damaged: an object is invalid, or nested too deep")
    loader, content = node.get("__loader__"), node.get("content")
    if loader == "JsonNode":
        return _parse_json_text(content)
    if loader == "NdArrayNode" and node.get("type") == "numpy":
        return _read_array(entries, str(node.get("file")))
    if loader in ("ListNode", "TupleNode") or (loader == "NdArrayNode" and content is not None):
        if not isinstance(content, list):
            raise ModelFileError(
                f"the skops file is damaged: the content of a {loader} is not a list"
            )
        return [_build_value(one, entries, depth + 1) for one in content]
    if loader == "ObjectNode":
        return StoredObject(node, entries)
    if loader == "TreeNode":
        return StoredTree(StoredObject(node, entries))
    return None


def _parse_json_text(content: Any) -> Any:
    """Parse a value that is stored as JSON text."""
    if content in _NON_FINITE:
        return _NON_FINITE[content]
    try:
        return msgspec.json.decode(str(content))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModelFileError(f"the skops file is damaged: {error}") from error


def _read_array(entries: Mapping[str, bytes], name: str) -> npt.NDArray[Any]:
    """Read the array of a ``.npy`` entry, without evaluating or trusting its header."""
    content = entries.get(name, b"")
    wide = content[6:7] == b"\x02"
    first = 12 if wide else 10
    end = first + int.from_bytes(content[8:first], "little")
    header = _NPY_HEADER.fullmatch(content[first:end]) if content[:6] == b"\x93NUMPY" else None
    dtype = _parse_dtype(header[1]) if header else None
    if header is None or dtype is None or dtype.itemsize == 0:
        raise ModelFileError(
            f"the skops file is damaged: {name!r:.60} is not an array of plain numbers"
        )
    shape = tuple(int(text) for text in header[3].decode("ascii").replace(",", " ").split())
    if math.prod(shape) * dtype.itemsize != len(content) - end:
        raise ModelFileError(f"the skops file is damaged: {name!r:.60} does not fit shape {shape}")
    array = np.frombuffer(content, dtype=dtype, offset=end)
    if dtype.kind == "U":
        points = np.frombuffer(
            content, dtype=np.dtype("u4").newbyteorder(dtype.byteorder), offset=end
        )
        if np.any(points > sys.maxunicode):
            raise ModelFileError(f"the skops file is damaged: {name!r:.60} contains invalid text")
    return array.reshape(shape, order="F" if header[2] == b"True" else "C")


def _parse_dtype(description: bytes) -> np.dtype[Any] | None:
    """Parse the dtype of a header: numbers, text, or records of numbers."""
    if plain := _DTYPE_PATTERN.fullmatch(description):
        return np.dtype(plain[1].decode("ascii"))
    if not _FIELDS_PATTERN.fullmatch(description):
        return None
    names, formats, offsets, at = [], [], [], 0
    for name, code in _FIELD_PATTERN.findall(description):
        one = np.dtype(code.decode("ascii"))
        if name and name.decode() not in names:  # unnamed fields are padding
            names.append(name.decode("ascii", "replace"))
            formats.append(one)
            offsets.append(at)
        at += one.itemsize
    fields = {"names": names, "formats": formats, "offsets": offsets, "itemsize": at}
    return np.dtype(fields)  # type: ignore[call-overload,no-any-return]
