"""Fitted trees, forests and boosted trees of scikit-learn as models.

Estimator objects, and what a file of skops says of them (see
`treekit.interop.skops`); never pickles: loading one runs what it says.

How the answers compare with scikit-learn's:

Paths
    equal, always.  scikit-learn casts inputs to float32 and compares them with
    a double threshold; for a float32 x, ``x <= t`` is ``x <= floor32(t)``.
Labels of one tree
    equal; ties go to the first class in both.
Labels of a forest
    equal unless two classes are closer than the last digits: scikit-learn adds
    up shares in double, in the order of the trees, and treekit adds integers,
    T trees of ``floor(2**24 / T)`` units.  An exact tie of shares goes to the
    first class here, and where rounding happens to push it there.
Probabilities
    within ``T / 2**24``, for 100 trees 6e-6.
Regression
    within half a step of the grid, ``2**(exponent - 1)``: for T trees at most
    ``T**2 / 2**48`` of the largest leaf, 4e-11 for 100 trees.

Bagging
    as forests: its trees' shares, or numbers, are averaged.
Gradient boosting
    paths are equal: `GradientBoosting*` compares as its trees do,
    `HistGradientBoosting*` doubles, with its sides for missing values and its sets of
    categories; unseen ones are missing, there and here.
Margins
    scikit-learn adds T doubles one after the other, and the sum here is exact
    but for the grid: they differ by at most ``T * 2**(exponent - 1)`` and
    scikit-learn's rounding, some ``T * 2**-53`` of the largest sum.
Labels of boosted trees
    equal unless two classes are closer than that.  A margin of exactly 0 is
    the first class here and in `HistGradientBoostingClassifier`, the second in
    `GradientBoostingClassifier`.
Probabilities and exponentials of boosted trees
    within 4 ulp of the exact link of the margin (see `treekit.model.links`).

`tests/test_import_sklearn.py` and `tests/test_import_boosting.py` measure them.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.schema import Column, Dtype, Output, Schema, python_label
from treekit.errors import ModelError
from treekit.interop.boosting import Boosted, Outcome, read_boosted
from treekit.interop.tree_assembly import (
    MAX_COLUMNS,
    Nodes,
    Vocabulary,
    checked_names,
    checked_width,
    columns_of,
    named_vocabulary,
)
from treekit.model.fixed_point import floor_to
from treekit.model.model import Model, make_model
from treekit.model.tree import Split, Tree, ranges

__all__ = [
    "KINDS",
    "ROOMS",
    "read_estimator",
    "read_gradient_boosting",
    "read_histogram_boosting",
    "read_sklearn",
    "recognises_sklearn",
    "tree_of",
]


# ---------------------------------------------------------------- sklearn

_TREES = (
    *("DecisionTreeClassifier", "DecisionTreeRegressor"),
    *("ExtraTreeClassifier", "ExtraTreeRegressor"),
)
_FORESTS = (
    *("RandomForestClassifier", "RandomForestRegressor"),
    *("ExtraTreesClassifier", "ExtraTreesRegressor"),
)
_BAGS = ("BaggingClassifier", "BaggingRegressor")
_BOOSTED = ("GradientBoostingClassifier", "GradientBoostingRegressor")
_HISTOGRAMS = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")

KINDS = (*_TREES, *_FORESTS, *_BAGS, *_BOOSTED, *_HISTOGRAMS)
"""The classes of scikit-learn that are read."""

ROOMS = ("sklearn.tree.", "sklearn.ensemble.")
"""Where scikit-learn keeps them."""


def recognises_sklearn(source: Any) -> bool:
    """Whether `source` is an estimator of one of `KINDS`, fitted or not.

    Does not import scikit-learn: an object of a class derived from its classes
    shows that somebody did.
    """
    return _kind(source) is not None


def _kind(source: Any) -> str | None:
    # Derived from its classes: treekit's own trees are only registered as such.
    for kind in type(source).__mro__:
        if kind.__module__.startswith(ROOMS) and kind.__name__ in KINDS:
            return kind.__name__
    return None


def read_sklearn(source: Any, *, dtype: str = "auto", answer: str = "predictions") -> Model:
    """The model of a fitted estimator of one of `KINDS`.

    Parameters
    ----------
    source : estimator
    dtype : {"auto", "float32", "float64"}
        Input type; auto: float64 for `HistGradientBoosting*`, which compares
        doubles, and float32 for all others, which round numbers to it.
    answer : {"predictions", "margins"}
        ``margins``: the raw scores of boosted trees, as numbers.

    Returns
    -------
    Model
        Columns as in ``feature_names_in_``, else ``x0``, ``x1``, ...

    Raises
    ------
    ModelError
        If the estimator is not fitted, or holds a tree that no fit makes.
    """
    kind = _kind(source)
    if kind is None:
        raise ModelError(f"a {type(source).__qualname__} is no tree or forest of scikit-learn")
    version = sys.modules["sklearn"].__version__
    return read_estimator(source, kind, type(source).__name__, version, dtype, answer)


def read_estimator(
    source: Any, kind: str, name: str, version: str, dtype: str, answer: str
) -> Model:
    """The model of an estimator, or of anything that has its attributes.

    Parameters
    ----------
    source : object
    kind : str
        Of `KINDS`.
    name : str
        What it is called: of a class derived from that kind.
    version : str
        Of scikit-learn.
    dtype, answer : str
        As in `read_sklearn`.
    """
    fitted = {_TREES: "tree_", _HISTOGRAMS: "_predictors"}
    needed = next((what for kinds, what in fitted.items() if kind in kinds), "estimators_")
    if not hasattr(source, needed):
        raise ModelError(f"the {name} is not fitted: call fit first")
    settings = _settings(source)
    provenance = {"importer": "scikit-learn", "estimator": name, "scikit-learn": version}
    if kind in _HISTOGRAMS:
        wide: Dtype = "float32" if dtype == "float32" else "float64"
        return read_histogram_boosting(source, name, wide, answer, settings, provenance)
    if dtype == "float64":
        raise ModelError(f"the {name} rounds numbers to float32 itself: dtype='float64' is not its")
    if kind in _BOOSTED:
        return read_gradient_boosting(source, name, answer, settings, provenance)
    if answer == "margins":
        raise ModelError(f"the {name} has no margins: leave out answer='margins'")
    schema = _schema(source, name)
    return make_model(
        schema,
        _members(source, kind, name, schema),
        settings=settings,
        provenance={"treekit": __version__, **provenance},
    )


def _members(source: Any, kind: str, name: str, schema: Schema) -> list[Tree]:
    """The trees of a tree, forest or bag."""
    if kind in _TREES:
        return [tree_of(source.tree_, schema)]
    if kind in _FORESTS:
        return [tree_of(member.tree_, schema) for member in source.estimators_]
    trees = []
    for member, features in zip(source.estimators_, source.estimators_features_, strict=True):
        if not hasattr(member, "tree_") or getattr(member, "n_outputs_", 1) != 1:
            raise ModelError(f"the {name} bags what is no tree of one output; bag decision trees")
        classes = getattr(member, "classes_", None)
        if (classes is not None) != bool(schema.classes):
            raise ModelError(f"the {name} bags trees of another task")
        own = schema if classes is None else _of_classes(schema, classes, name)
        tree = tree_of(member.tree_, own)
        columns = np.asarray(features, dtype=np.int64)
        if np.any(tree.feature >= len(columns)):
            raise ModelError(f"the {name} is damaged: a tree asks a column that it was not given")
        value = tree.value
        if classes is not None:
            value = np.zeros((tree.n_nodes, schema.n_values))
            value[:, np.asarray(classes, dtype=np.int64)] = tree.value
        asked = np.where(tree.feature >= 0, columns[tree.feature], -1).astype(np.int32)
        trees.append(replace(tree, feature=asked, value=value))
    return trees


def _of_classes(schema: Schema, classes: Any, name: str) -> Schema:
    """The schema of a bagged tree, whose classes are positions of those that its rows had."""
    positions = np.asarray(classes)
    if not np.all(np.isin(positions, np.arange(len(schema.classes)))):
        raise ModelError(f"the {name} is damaged: a tree has classes that it has not")
    labels = tuple(schema.classes[int(position)] for position in positions)
    return Schema(columns=schema.columns, classes=labels)


def _schema(source: Any, name: str) -> Schema:
    said = f"the {name}"
    names = getattr(source, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    names = checked_names(names, checked_width(int(source.n_features_in_), said), said)
    columns = tuple(Column(name) for name in names)
    n_outputs = int(getattr(source, "n_outputs_", 1))
    if not 1 <= n_outputs <= MAX_COLUMNS:
        raise ModelError(f"{said} has {n_outputs} outputs; treekit reads 1 to {MAX_COLUMNS}")
    targets = ["target"] if n_outputs == 1 else [f"y{k}" for k in range(n_outputs)]
    if not hasattr(source, "classes_"):
        more = tuple(Output(target) for target in targets[1:])
        return Schema(columns=columns, target=targets[0], task="regression", more=more)
    told = [source.classes_] if n_outputs == 1 else source.classes_
    labels = [tuple(python_label(label) for label in classes) for classes in told]
    more = tuple(map(Output, targets[1:], labels[1:]))
    return Schema(columns=columns, target=targets[0], classes=labels[0], more=more)


def _settings(source: Any) -> dict[str, Any]:
    """The estimator's parameters as plain values; others as text."""
    plain = (bool, int, float, str, type(None))
    return {
        name: value if type(value) in plain else repr(value)
        for name, value in source.get_params(deep=False).items()
    }


# ---------------------------------------------------------------- sklearn trees
# One tree of scikit-learn as a `Tree`: renumbered, its thresholds on float32.

_WHOLE = 2.0**-50
"""A class weight this close to a whole number, relative to the node's, is one."""


def tree_of(tree: Any, schema: Schema) -> Tree:
    """One ``sklearn.tree._tree.Tree``, renumbered, its thresholds on float32."""
    n = tree.node_count
    left, right = tree.children_left, tree.children_right
    inner = np.flatnonzero(left >= 0)
    _check(tree, inner, schema)
    order, first_child = _adjacent_siblings(left, right, inner)
    kind, threshold, missing, exchanged = _splits(tree, inner)
    # A split of missing values whose yes branch is on the right: the sides change places.
    swapped = inner[exchanged]
    pairs = first_child[swapped]
    order[pairs], order[pairs + 1] = right[swapped], left[swapped]
    value = _values(tree, schema)
    return Tree(
        kind=kind[order],
        feature=np.where(left >= 0, tree.feature, -1)[order],
        threshold=threshold[order],
        first_child=first_child[order].astype(np.int32),
        n_children=np.where(left >= 0, 2, 0)[order],
        missing=missing[order],
        level_start=np.zeros(n + 1, dtype=np.int64),
        level_branch=np.zeros(0, dtype=np.int32),
        value=value[order],
        weight=tree.weighted_n_node_samples[order],
        gain=_gains(tree, inner)[order],
    )


def _check(tree: Any, inner: npt.NDArray[np.int64], schema: Schema) -> None:
    """Refuse numbers that no fit makes, before anything is computed from them."""
    weight, asked = tree.weighted_n_node_samples, tree.feature[inner]
    if np.any((asked < 0) | (asked >= schema.n_features)):
        raise ModelError(
            "the scikit-learn tree is damaged: a split asks a column that the schema does not have"
        )
    finite = bool(np.all(np.isfinite(tree.value))) and bool(np.all(np.isfinite(weight)))
    if not finite or np.any(weight < 0):
        raise ModelError(
            "the scikit-learn tree is damaged: a value or weight is not finite; fit it again"
        )


def _adjacent_siblings(
    left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], inner: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A numbering in which siblings are neighbours and follow their parent.

    The j-th inner node gets the children ``2 j + 1`` and ``2 j + 2``.  As each
    child has a higher number than its parent, the parents of inner nodes have
    lower ranks j than their children, and so lower new numbers.

    Returns
    -------
    order : (n,) int64
        Old number of each new node.
    first_child : (n,) int64
        By old number: the new number of the left child; -1 in leaves.
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


def _splits(
    tree: Any, inner: npt.NDArray[np.int64]
) -> tuple[
    npt.NDArray[np.uint8], npt.NDArray[np.float64], npt.NDArray[np.int32], npt.NDArray[np.bool_]
]:
    """Kind, threshold and missing branch of each node, by old number.

    An infinite threshold is scikit-learn's way to ask for missing values:
    all others go to one side.

    Returns
    -------
    kind : (n,) uint8
    threshold : (n,) float64
    missing : (n,) int32
    exchanged : (inner,) bool
        MISSING nodes whose missing values go right in scikit-learn.
    """
    at = floor_to(tree.threshold[inner], "float32")
    missing_left = tree.missing_go_to_left[inner].astype(np.bool_)
    asks_missing = ~np.isfinite(at)
    if np.any(np.isnan(at)) or np.any(asks_missing & (missing_left == (at > 0))):
        raise ModelError(
            "a split of the scikit-learn tree sends every value to one side: fit it again"
        )
    kind = np.full(tree.node_count, Split.LEAF, dtype=np.uint8)
    kind[inner] = np.where(asks_missing, Split.MISSING, Split.THRESHOLD)
    threshold = np.full(tree.node_count, np.nan)
    threshold[inner] = np.where(asks_missing, np.nan, at)
    missing = np.zeros(tree.node_count, dtype=np.int32)
    missing[inner] = ~missing_left & ~asks_missing
    return kind, threshold, missing, asks_missing & ~missing_left


def _values(tree: Any, schema: Schema) -> npt.NDArray[np.float64]:
    """(n, values) float64: class weights, or means, of each output, by old number.

    scikit-learn keeps the share of each class.  Times the node's weight, the
    whole numbers that most fits count come back exactly: the product is off
    by an ulp or two of the node's weight, and is put right.
    """
    sizes = [len(output.classes) or 1 for output in schema.outputs]
    value = np.concatenate([tree.value[:, k, :size] for k, size in enumerate(sizes)], axis=1)
    if schema.task == "regression":
        return value
    node_weight = tree.weighted_n_node_samples[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # what is infinite is refused later
        weights = value * node_weight
        whole = np.rint(weights)
        close = np.abs(weights - whole) <= _WHOLE * node_weight
    result: npt.NDArray[np.float64] = np.where(close, whole, weights)
    return result


def _gains(tree: Any, inner: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """(n,) float64: decrease of impurity by each split, by old number; 0 where there is none."""
    with np.errstate(all="ignore"):
        return _decreases(tree, inner)


def _decreases(tree: Any, inner: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    mass = tree.weighted_n_node_samples * tree.impurity
    left, right = tree.children_left[inner], tree.children_right[inner]
    gain = np.zeros(tree.node_count)
    gain[inner] = (mass[inner] - mass[left] - mass[right]) / tree.weighted_n_node_samples[inner]
    return np.where(np.isfinite(gain), gain, 0.0)


# ---------------------------------------------------------------- sklearn boosting
# scikit-learn's gradient boosting as models: `GradientBoosting*` and `HistGradientBoosting*`.
#
# See `treekit.interop.sklearn` for how the answers compare.

Floats = npt.NDArray[np.float64]

_LOG_LINKS = ("poisson", "gamma")
_ENCODER = "encoder"
"""What `HistGradientBoosting*` calls its OrdinalEncoder."""


def read_gradient_boosting(
    source: Any, kind: str, answer: str, settings: dict[str, Any], provenance: dict[str, Any]
) -> Model:
    """The model of a `GradientBoosting*`, or of what a file says of one."""
    said = f"the {kind}"
    stages = np.asarray(source.estimators_, dtype=object)
    if stages.ndim != 2 or stages.size == 0:
        raise ModelError(f"{said} is damaged: its stages are no table of trees")
    outcome = _outcome(source, said, stages.shape[1])
    names = checked_names(_names(source), checked_width(int(source.n_features_in_), said), said)
    trees = [member.tree_ for member in stages.ravel()]
    return read_boosted(
        Boosted(
            source=said,
            columns=columns_of(names, [None] * len(names)),
            dtype="float32",
            nodes=_plain_nodes(trees, float(source.learning_rate)),
            group=np.arange(len(trees)) % stages.shape[1],
            base=_start(source, outcome, said, stages.shape[1]),
            outcome=outcome,
        ),
        answer=answer,
        settings=settings,
        provenance=provenance,
    )


def _names(source: Any) -> list[str] | None:
    names = getattr(source, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _outcome(source: Any, said: str, n_margins: int) -> Outcome:
    """What the loss makes of the margins."""
    if not hasattr(source, "classes_"):
        return Outcome("exp" if source.loss in _LOG_LINKS else "identity")
    labels = tuple(python_label(label) for label in source.classes_)
    if n_margins != (1 if len(labels) == 2 else len(labels)):
        raise ModelError(f"{said} is damaged: {len(labels)} classes, and {n_margins} margins")
    if source.loss not in ("log_loss", "exponential"):
        raise ModelError(f"{said} has the loss {source.loss!r:.40}, which treekit does not know")
    if len(labels) > 2:
        return Outcome("softmax", labels)
    # Friedman, Hastie and Tibshirani 2000: half the log odds are what it adds up.
    return Outcome("sigmoid", labels, scale=2.0 if source.loss == "exponential" else 1.0)


def _start(source: Any, outcome: Outcome, said: str, n_margins: int) -> Floats:
    """(margins,) float64: the raw prediction that boosting starts from."""
    if isinstance(source.init, str) and source.init == "zero":
        return np.zeros(n_margins)
    first = source.init_
    name = type(first).__name__ if not hasattr(first, "stored_name") else first.stored_name
    if name == "DummyRegressor" and not outcome.labels:
        return np.asarray(first.constant_, dtype=np.float64).reshape(-1)[:1]
    if name != "DummyClassifier" or first.strategy != "prior" or not outcome.labels:
        raise ModelError(
            f"{said} starts from the predictions of a {name}, which depend on the row; train it "
            "without init, or with init='zero'"
        )
    least = float(np.finfo(np.float64).eps)
    share = np.clip(np.asarray(first.class_prior_, dtype=np.float64), least, 1 - least)
    if len(outcome.labels) > 2:
        log: Floats = np.log(share / np.exp(np.mean(np.log(share))))
        return log
    from scipy.special import logit

    return np.asarray([logit(share[1]) / outcome.scale])


def _plain_nodes(trees: list[Any], rate: float) -> Nodes:
    """Nodes of ``sklearn.tree._tree.Tree``s, their leaves times the learning rate."""
    sizes = np.array([len(tree.children_left) for tree in trees], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    of_tree = np.repeat(np.arange(len(trees)), sizes)

    def joined(name: str) -> npt.NDArray[Any]:
        return np.concatenate([np.asarray(getattr(tree, name)) for tree in trees])

    left, right = (joined(f"children_{side}").astype(np.int64) for side in ("left", "right"))
    inner = left >= 0
    shift = first[of_tree]
    value = np.concatenate([np.asarray(tree.value, dtype=np.float64)[:, 0, 0] for tree in trees])
    return Nodes(
        roots=first,
        tree=of_tree,
        left=np.where(inner, left + shift, -1),
        right=np.where(inner, right + shift, -1),
        feature=joined("feature").astype(np.int64),
        threshold=floor_to(joined("threshold"), "float32"),
        missing_left=joined("missing_go_to_left") != 0,
        value=(rate * value)[:, None],
        weight=joined("weighted_n_node_samples").astype(np.float64),
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
    """The model of a `HistGradientBoosting*`, or of what a file says of one."""
    said = f"the {kind}"
    rounds = [list(stage) for stage in source._predictors]
    n_margins = len(rounds[0]) if rounds else 1
    if not rounds or not n_margins or any(len(stage) != n_margins for stage in rounds):
        raise ModelError(f"{said} is damaged: its rounds do not have as many trees each")
    n_features = checked_width(int(source.n_features_in_), said)
    names = checked_names(_names(source), n_features, said)
    order, vocabularies = _categories(source, n_features, said)
    outcome = _outcome(source, said, n_margins)
    base = np.asarray(source._baseline_prediction, dtype=np.float64).reshape(-1)
    if len(base) != n_margins:
        raise ModelError(f"{said} is damaged: {len(base)} baselines of {n_margins} margins")
    predictors = [predictor for stage in rounds for predictor in stage]
    return read_boosted(
        Boosted(
            source=said,
            columns=columns_of(names, vocabularies),
            dtype=dtype,
            nodes=_histogram_nodes(predictors, order, vocabularies, dtype, said),
            group=np.arange(len(predictors)) % n_margins,
            base=base,
            outcome=outcome,
        ),
        answer=answer,
        settings=settings,
        provenance=provenance,
    )


def _categories(
    source: Any, n_features: int, said: str
) -> tuple[npt.NDArray[np.int64], list[Vocabulary | None]]:
    """The column behind each of the estimator's own, and the vocabularies of the columns.

    Its preprocessor puts categorical columns first, as whole numbers.
    """
    found: list[Vocabulary | None] = [None] * n_features
    mask = source.is_categorical_
    if mask is None:
        return np.arange(n_features), found
    if getattr(source, "_preprocessor", None) is None:
        raise ModelError(
            f"{said} was trained on categories by a scikit-learn before 1.4; train it again"
        )
    nominal = np.flatnonzero(np.asarray(mask))
    order = np.concatenate([nominal, np.flatnonzero(~np.asarray(mask, dtype=np.bool_))])
    steps = {name: step for name, step, *_ in source._preprocessor.transformers_}
    told = list(steps[_ENCODER].categories_) if _ENCODER in steps else []
    if len(told) != len(nominal) or len(order) != n_features:
        raise ModelError(f"{said} is damaged: its categories do not fit its columns")
    for column, categories in zip(nominal.tolist(), told, strict=True):
        own = np.asarray(categories, dtype=object).tolist()
        if own and (own[-1] is None or own[-1] != own[-1]):
            own.pop()  # missing, which the encoder puts last
        found[column] = named_vocabulary(own, f"column {column} of {said}")
    return order.astype(np.int64), found


def _histogram_nodes(
    predictors: list[Any],
    order: npt.NDArray[np.int64],
    vocabularies: list[Vocabulary | None],
    dtype: Dtype,
    said: str,
) -> Nodes:
    """Nodes of ``TreePredictor``s; their features are numbers of the preprocessed columns."""
    sizes = np.array([len(one.nodes) for one in predictors], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    of_tree = np.repeat(np.arange(len(predictors)), sizes)
    all_nodes = np.concatenate([one.nodes for one in predictors])
    inner = all_nodes["is_leaf"] == 0
    feature = all_nodes["feature_idx"].astype(np.int64)
    if np.any(feature[inner] >= len(order)) or np.any(feature[inner] < 0):
        raise ModelError(f"{said} is damaged: a split asks a column that it does not have")
    feature = np.where(inner, order[np.where(inner, feature, 0)], -1)
    categorical = inner & (all_nodes["is_categorical"] != 0)
    nominal = np.array([one is not None for one in vocabularies])
    if np.any(nominal[feature[inner]] != categorical[inner]):
        raise ModelError(f"{said} is damaged: a split of categories asks a column of numbers")
    set_node, set_start, set_codes = _bitsets(predictors, all_nodes, of_tree, categorical, said)
    n_levels = np.array([0 if one is None else len(one.levels) for one in vocabularies])
    most = np.repeat(n_levels[feature[set_node]], np.diff(set_start))
    if np.any(set_codes >= most):
        raise ModelError(f"{said} is damaged: a split names a category that it does not have")
    asked = np.where(categorical, 0.0, all_nodes["num_threshold"])
    threshold = floor_to(asked, dtype)
    if np.any(inner & (threshold == -np.inf)):
        raise ModelError(
            f"{said} has a threshold below every finite {dtype}; read it with dtype='float64', or "
            "train it without infinite numbers"
        )
    shift = first[of_tree]
    return Nodes(
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
        set_start=set_start,
        set_codes=set_codes,
    )


def _bitsets(
    predictors: list[Any],
    all_nodes: npt.NDArray[Any],
    of_tree: npt.NDArray[np.int64],
    categorical: npt.NDArray[np.bool_],
    said: str,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Categorical splits, where the categories of each begin, and those that go left."""
    tables = [np.asarray(one.raw_left_cat_bitsets) for one in predictors]
    words = np.ascontiguousarray(np.concatenate([t.reshape(-1, 8) for t in tables]), dtype="<u4")
    counts = np.array([len(table) for table in tables], dtype=np.int64)
    node = np.flatnonzero(categorical)
    own = all_nodes["bitset_idx"][node].astype(np.int64)
    if np.any(own >= counts[of_tree[node]]):
        raise ModelError(f"{said} is damaged: a split of categories has no set")
    row = own + (np.cumsum(counts) - counts)[of_tree[node]]
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").reshape(-1, 256)
    at = np.flatnonzero(bits)
    start = np.searchsorted(at, 256 * np.arange(len(bits) + 1))
    positions, starts = ranges(start, row)
    return node, starts, (at % 256)[positions]
