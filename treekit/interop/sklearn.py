"""Import fitted trees, forests and boosted trees of scikit-learn.

Sources are estimator objects, but not pickles, because loading a pickle executes code.

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
    the first class here and in ``HistGradientBoostingClassifier``, the second in
    ``GradientBoostingClassifier``.
Probabilities and exponentials of boosted trees
    within 4 ulp of the exact link function of the margin (see `treekit.model.links`).

`tests/interop/test_sklearn.py` and `tests/interop/test_boosting.py` measure these
differences.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.contracts import Importer
from treekit.data.schema import Column, Dtype, Output, Schema, python_label
from treekit.errors import ModelError
from treekit.hookspecs import hookimpl
from treekit.interop import UNKNOWN_REMEDY, find_class_name, refuse_overrides, refuse_unknown
from treekit.interop.tree_assembly import (
    ANSWER_SETTING,
    DTYPE_SETTING,
    MAX_COLUMNS,
    NodeTable,
    Outcome,
    check_levels,
    check_names,
    concatenate_tables,
    floor_thresholds,
    make_boosted_model,
    make_columns,
    make_trees,
)
from treekit.model.model import Model, make_model
from treekit.model.tree import Tree

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# ---------------------------------------------------------------- estimators

_FAMILIES = {
    "tree": ("DecisionTree", "ExtraTree"),
    "forest": ("RandomForest", "ExtraTrees"),
    "bagging": ("Bagging",),
    "boosting": ("GradientBoosting",),
    "histograms": ("HistGradientBoosting",),
}
_FAMILY_OF_CLASS = {
    f"{name}{task}": family
    for family, names in _FAMILIES.items()
    for name in names
    for task in ("Classifier", "Regressor")
}
CLASS_NAMES = tuple(_FAMILY_OF_CLASS)
"""Supported classes of scikit-learn."""


_TREE_CLASSES = tuple(name for name, family in _FAMILY_OF_CLASS.items() if family == "tree")
_TREE = (
    *("ccp_alpha", "class_weight", "criterion", "max_depth", "max_features", "max_leaf_nodes"),
    *("min_impurity_decrease", "min_impurity_split", "min_samples_leaf", "min_samples_split"),
    *("min_weight_fraction_leaf", "monotonic_cst", "random_state"),
)
_FITTED = (
    *("classes_", "feature_names_in_", "max_features_", "n_classes_", "n_features_"),
    *("n_features_in_", "n_outputs_", "_estimator_type", "_metadata_requests"),
    *("_sklearn_output_config", "_sklearn_version"),
)
_ENSEMBLE = (
    *("base_estimator", "base_estimator_", "bootstrap", "estimator", "estimator_"),
    *("estimator_params", "estimators_", "max_samples", "n_estimators", "n_jobs"),
    *("oob_decision_function_", "oob_prediction_", "oob_score", "oob_score_", "verbose"),
    *("warm_start", "_n_samples", "_n_samples_bootstrap", "_sample_weight"),
)
_ROUNDS = (
    *("learning_rate", "loss", "n_iter_no_change", "n_trees_per_iteration_", "tol", "train_score_"),
    *("validation_fraction", "verbose", "warm_start", "_loss"),
)
_ATTRIBUTES = {
    "tree": {*_TREE, *_FITTED, "splitter", "tree_"},
    "forest": {*_TREE, *_FITTED, *_ENSEMBLE},
    "bagging": {
        *_FITTED,
        *_ENSEMBLE,
        *("bootstrap_features", "estimators_features_", "max_features", "random_state"),
        *("_max_features", "_max_samples", "_seeds"),
    },
    "boosting": {
        *_TREE,
        *_FITTED,
        *_ROUNDS,
        *("alpha", "estimators_", "init", "init_", "loss_", "n_estimators", "n_estimators_"),
        *("oob_improvement_", "oob_score_", "oob_scores_", "subsample", "_rng"),
    },
    "histograms": {
        *_TREE,
        *_FITTED,
        *_ROUNDS,
        *("categorical_features", "do_early_stopping_", "early_stopping", "interaction_cst"),
        *("is_categorical_", "l2_regularization", "max_bins", "max_iter", "quantile", "scoring"),
        *("validation_score_", "_baseline_prediction", "_bin_mapper", "_feature_subsample_rng"),
        *("_in_fit", "_is_categorical_remapped", "_label_encoder", "_n_features", "_predictors"),
        *("_preprocessor", "_random_seed", "_scorer", "_use_validation_data"),
    },
}
"""Known parameters and fitted attributes of each family."""
_NODE_FIELDS = frozenset(
    (
        *("left_child", "right_child", "feature", "threshold", "impurity", "n_node_samples"),
        *("weighted_n_node_samples", "missing_go_to_left"),
    )
)
_PREDICTOR_FIELDS = frozenset(
    (
        *("value", "count", "feature_idx", "num_threshold", "missing_go_to_left", "left", "right"),
        *("gain", "depth", "is_leaf", "bin_threshold", "is_categorical", "bitset_idx"),
    )
)
"""Known fields of the nodes of trees, and of histogram boosting."""
_TREE_STATE = frozenset(("max_depth", "node_count", "nodes", "values"))
_PREDICTOR_STATE = frozenset(("nodes", "binned_left_cat_bitsets", "raw_left_cat_bitsets"))


@hookimpl
def treekit_importers() -> list[Importer]:
    """Return the importer of scikit-learn."""
    return [
        Importer(
            name="scikit-learn",
            recognises=recognises_sklearn,
            read=read_sklearn,
            settings=(DTYPE_SETTING, ANSWER_SETTING),
            summary="fitted scikit-learn trees, forests, bagged and boosted trees",
        ),
    ]


def recognises_sklearn(source: Any) -> bool:
    """Return whether `source` is an estimator of one of `CLASS_NAMES`, fitted or not.

    Does not import scikit-learn, which is already imported if `source` is one of its
    objects.
    """
    return find_class_name(source, "sklearn", CLASS_NAMES) is not None


def read_sklearn(source: Any, *, dtype: str = "auto", answer: str = "predictions") -> Model:
    """Read a fitted estimator of one of `CLASS_NAMES`.

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
    kind = find_class_name(source, "sklearn", CLASS_NAMES)
    if kind is None:
        raise ModelError(
            f"expected a tree or forest of scikit-learn, got {type(source).__qualname__}"
        )
    refuse_overrides(source, "sklearn")
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
        One of `CLASS_NAMES`.
    name : str
        Name of the class, which may be a subclass of `kind`.
    version : str
        Version of scikit-learn.
    dtype, answer : str
        See `read_sklearn`.
    """
    family = _FAMILY_OF_CLASS[kind]
    needed = {"tree": "tree_", "histograms": "_predictors"}.get(family, "estimators_")
    if not hasattr(source, needed):
        raise ModelError(f"the {name} is not fitted: call fit first")
    source_name = f"the {name}"
    refuse_unknown(
        _list_attributes(source),
        _ATTRIBUTES[family],
        source_name,
        remedy=f"delete it if it is yours, or {UNKNOWN_REMEDY}",
    )
    is_boosted = family in ("boosting", "histograms")
    if dtype == "float64" and family != "histograms":
        raise ModelError(f"{source_name} rounds numbers to float32: omit dtype='float64'")
    if answer == "margins" and not is_boosted:
        raise ModelError(f"{source_name} has no margins: omit answer='margins'")
    plain = (bool, int, float, str, type(None))
    settings = {
        parameter: value if type(value) in plain else repr(value)
        for parameter, value in source.get_params(deep=False).items()
    }
    provenance = {"importer": "scikit-learn", "estimator": name, "scikit-learn": version}
    given = getattr(source, "feature_names_in_", None)
    names = [] if given is None else list(map(str, given))
    names = check_names(names, int(source.n_features_in_), source_name)
    if not is_boosted:
        schema = _make_schema(source, names, source_name)
        return make_model(
            schema,
            convert_trees(_make_tables(source, family, schema, source_name), schema, source_name),
            settings=settings,
            provenance={"treekit": __version__, **provenance},
        )
    rounds = [list(stage) for stage in getattr(source, needed)]
    n_margins = len(rounds[0]) if rounds else 0
    if not n_margins or any(len(stage) != n_margins for stage in rounds):
        raise ModelError(f"{source_name} is damaged: its rounds have different numbers of trees")
    outcome = _make_outcome(source, source_name, n_margins)
    members = [member for stage in rounds for member in stage]
    named: dict[int, tuple[str, ...]] = {}
    if family == "histograms":
        order, named = _read_categories(source, len(names), source_name)
        tables = [_make_predictor_table(member, order, source_name) for member in members]
        margins = np.asarray(source._baseline_prediction, dtype=np.float64).reshape(-1)
        input_type: Dtype = "float32" if dtype == "float32" else "float64"
    else:
        tables = [make_tree_table(_get_tree(member, source_name), [0]) for member in members]
        margins = _compute_initial_margins(source, outcome, source_name, n_margins)
        input_type = "float32"
    if len(margins) != n_margins:
        raise ModelError(f"{source_name} is damaged: {len(margins)} baselines, not {n_margins}")
    nodes = concatenate_tables(tables, source_name)
    if family == "boosting":
        nodes.value = float(source.learning_rate) * nodes.value
        nodes.gain = np.zeros(len(nodes.left))
    columns = make_columns(nodes, names, source_name, named=named)
    floor_thresholds(nodes, input_type, source_name)
    return make_boosted_model(
        nodes,
        columns,
        outcome,
        source=source_name,
        dtype=input_type,
        margin_of_tree=np.arange(len(tables)) % n_margins,
        initial_margins=margins,
        answer=answer,
        settings=settings,
        provenance=provenance,
    )


def _list_attributes(source: Any) -> dict[str, Any]:
    """Return the attributes of an estimator that scikit-learn sets: parameters and fitted ones.

    An attribute of another name, without an underscore at an end, is the user's.
    """
    if hasattr(source, "stored_attributes"):
        stored: dict[str, Any] = source.stored_attributes
        return stored
    base = next(kind for kind in type(source).__mro__ if kind.__module__.startswith("sklearn."))
    parameters = base._get_param_names()  # type: ignore[attr-defined]
    return {
        name: value
        for name, value in vars(source).items()
        if name in parameters or (name.strip("_") != name and not name.startswith("__"))
    }


def _get_tree(member: Any, source_name: str) -> Any:
    """Return the ``tree_`` of a decision tree; raise `ModelError` if it has unknown parts."""
    tree = member.tree_
    if not hasattr(member, "stored_name"):
        if find_class_name(member, "sklearn", _TREE_CLASSES) is None:
            raise ModelError(
                f"{source_name} has a {type(member).__name__} as a member, which treekit does not "
                "know; use decision trees of scikit-learn"
            )
        refuse_overrides(member, "sklearn")
    state = tree.__getstate__()
    refuse_unknown(state, _TREE_STATE, source_name, "tree_.")
    nodes = state["nodes"]
    refuse_unknown(
        {name: nodes[name] for name in nodes.dtype.names}, _NODE_FIELDS, source_name, "tree_.nodes."
    )
    return tree


# ---------------------------------------------------------------- trees

_INTEGER_TOLERANCE = 2.0**-50
"""Class weights this close to an integer, relative to the node's weight, are rounded."""


def _make_schema(source: Any, names: list[str], source_name: str) -> Schema:
    """Make the schema of a tree, forest or bagging estimator."""
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


def _make_tables(source: Any, family: str, schema: Schema, source_name: str) -> list[NodeTable]:
    """Make the tables of a tree, forest or bagging estimator."""
    if family != "bagging":
        sizes = [len(output.classes) for output in schema.outputs]
        members = [source] if family == "tree" else source.estimators_
        return [make_tree_table(_get_tree(member, source_name), sizes) for member in members]
    tables = []
    for member, features in zip(source.estimators_, source.estimators_features_, strict=True):
        if not hasattr(member, "tree_") or getattr(member, "n_outputs_", 1) != 1:
            raise ModelError(
                f"{source_name} has members that are not decision trees with one output; "
                "bag decision trees"
            )
        classes = getattr(member, "classes_", None)
        if (classes is not None) != bool(schema.classes):
            raise ModelError(f"{source_name} bags trees of another task")
        tree = _get_tree(member, source_name)
        table = make_tree_table(tree, [0 if classes is None else len(classes)])
        table.feature = _map_features(table.feature, np.asarray(features, dtype=np.int64))
        if classes is not None:  # positions in the classes of the bag
            if not np.all(np.isin(classes, np.arange(len(schema.classes)))):
                raise ModelError(f"{source_name} is damaged: a tree has unknown classes")
            shares = table.value
            table.value = np.zeros((len(shares), len(schema.classes)))
            table.value[:, np.asarray(classes, dtype=np.int64)] = shares
        tables.append(table)
    return tables


def _map_features(features: Ints, columns: Ints) -> Ints:
    """Return the column of each feature; -1, which `make_columns` rejects, if there is none."""
    is_known = (features >= 0) & (features < len(columns))
    return np.append(columns, -1)[np.where(is_known, features, -1)]


def convert_trees(tables: list[NodeTable], schema: Schema, source_name: str) -> tuple[Tree, ...]:
    """Convert the tables of `make_tree_table` to trees."""
    nodes = concatenate_tables(tables, source_name)
    constant = np.isinf(nodes.threshold) & (nodes.missing_left == (nodes.threshold > 0))
    if np.any(nodes.inner & constant):
        raise ModelError(f"a split of {source_name} sends all values to one side: fit it again")
    with np.errstate(all="ignore"):  # make_trees ignores gains of leaves, and those not finite
        mass = nodes.weight * nodes.gain
        nodes.gain = (mass - mass[nodes.left] - mass[nodes.right]) / nodes.weight
    make_columns(nodes, schema.names, source_name)
    return make_trees(nodes, schema, source_name, breadth_first=False)


def make_tree_table(tree: Any, sizes: Sequence[int]) -> NodeTable:
    """Make the nodes of a ``sklearn.tree._tree.Tree``, with its impurities in place of gains.

    Parameters
    ----------
    tree : sklearn.tree._tree.Tree
        An infinite threshold is scikit-learn's form of a split on missing values, with all
        other values on one side.
    sizes : sequence of int
        Number of classes of each output; 0 for numbers.
    """
    return NodeTable(
        left=np.asarray(tree.children_left, dtype=np.int64),
        right=np.asarray(tree.children_right, dtype=np.int64),
        feature=np.asarray(tree.feature, dtype=np.int64),
        threshold=np.asarray(tree.threshold, dtype=np.float64),
        missing_left=np.asarray(tree.missing_go_to_left) != 0,
        value=_compute_values(tree, sizes),
        weight=np.asarray(tree.weighted_n_node_samples, dtype=np.float64),
        gain=np.asarray(tree.impurity, dtype=np.float64),
    )


def _compute_values(tree: Any, sizes: Sequence[int]) -> Floats:
    """Return class weights or means (n, values) of each output.

    scikit-learn stores the share of each class.  The product with the node's weight is
    off by an ulp or two, and is rounded where the class weight is an integer, as in
    most fits.
    """
    if not any(sizes):
        return np.asarray(tree.value[:, : len(sizes), 0], dtype=np.float64)
    parts = [tree.value[:, k, :size] for k, size in enumerate(sizes)]
    shares = np.concatenate(parts, axis=1).astype(np.float64)
    node_weight = tree.weighted_n_node_samples[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # make_trees rejects infinities
        weights = shares * node_weight
        whole = np.rint(weights)
        close = np.abs(weights - whole) <= _INTEGER_TOLERANCE * node_weight
    values: Floats = np.where(close, whole, weights)
    return values


# ---------------------------------------------------------------- gradient boosting

_LOG_LINKS = ("poisson", "gamma")
_LOSSES = ("squared_error", "absolute_error", "huber", "quantile", *_LOG_LINKS)
_ENCODER = "encoder"
"""Name of the OrdinalEncoder of `HistGradientBoosting*`."""


def _make_outcome(source: Any, source_name: str, n_margins: int) -> Outcome:
    """Return the conversion of margins to predictions by the loss."""
    is_regression = not hasattr(source, "classes_")
    known = _LOSSES if is_regression else ("log_loss", "exponential")
    if source.loss not in known:
        raise ModelError(
            f"{source_name} has the unknown loss {source.loss!r:.40}; treekit reads "
            f"{', '.join(known)}: {UNKNOWN_REMEDY}"
        )
    if is_regression:
        return Outcome("exp" if source.loss in _LOG_LINKS else "identity")
    labels = tuple(python_label(label) for label in source.classes_)
    if n_margins != (1 if len(labels) == 2 else len(labels)):
        raise ModelError(
            f"{source_name} is damaged: {len(labels)} classes, but {n_margins} margins"
        )
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


def _read_categories(
    source: Any, n_features: int, source_name: str
) -> tuple[Ints, dict[int, tuple[str, ...]]]:
    """Return the input column of each preprocessed column, and the categories of nominal ones.

    The preprocessor encodes categorical columns as integers and puts them first.
    """
    if source.is_categorical_ is None:
        return np.arange(n_features), {}
    mask = np.asarray(source.is_categorical_, dtype=np.bool_)
    if getattr(source, "_preprocessor", None) is None:
        raise ModelError(
            f"{source_name} was trained on categories by scikit-learn before 1.4; train it again"
        )
    nominal = np.flatnonzero(mask)
    steps = {name: step for name, step, *_ in source._preprocessor.transformers_}
    encoded = list(steps[_ENCODER].categories_) if _ENCODER in steps else []
    if len(encoded) != len(nominal) or len(mask) != n_features:
        raise ModelError(f"{source_name} is damaged: its categories do not match its columns")
    named = {}
    for column, categories in zip(nominal.tolist(), encoded, strict=True):
        own = np.asarray(categories, dtype=object).tolist()
        if own and (own[-1] is None or own[-1] != own[-1]):
            own.pop()  # the missing category, which the encoder puts last
        named[column] = check_levels(own, f"column {column} of {source_name}")
    return np.concatenate([nominal, np.flatnonzero(~mask)]), named


def _make_predictor_table(predictor: Any, order: Ints, source_name: str) -> NodeTable:
    """Make the nodes of a ``TreePredictor``, whose features are preprocessed columns."""
    nodes = predictor.nodes
    parts = getattr(predictor, "stored_attributes", None) or vars(predictor)
    refuse_unknown(parts, _PREDICTOR_STATE, source_name, "_predictors.")
    fields = {name: nodes[name] for name in nodes.dtype.names}
    refuse_unknown(fields, _PREDICTOR_FIELDS, source_name, "_predictors.nodes.")
    inner = nodes["is_leaf"] == 0
    categorical = inner & (nodes["is_categorical"] != 0)
    sets = np.asarray(predictor.raw_left_cat_bitsets).reshape(-1, 8)
    own = nodes["bitset_idx"][categorical].astype(np.int64)
    if np.any(own >= len(sets)):
        raise ModelError(f"{source_name} is damaged: a categorical split has no set")
    words = np.ascontiguousarray(sets[own], dtype="<u4")
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    return NodeTable(
        left=np.where(inner, nodes["left"].astype(np.int64), -1),
        right=np.where(inner, nodes["right"].astype(np.int64), -1),
        feature=_map_features(nodes["feature_idx"].astype(np.int64), order),
        threshold=np.where(categorical, 0.0, nodes["num_threshold"]),
        missing_left=nodes["missing_go_to_left"] != 0,
        value=nodes["value"].astype(np.float64)[:, None],
        weight=nodes["count"].astype(np.float64),
        gain=nodes["gain"].astype(np.float64),
        set_node=np.flatnonzero(categorical),
        set_sizes=bits.sum(axis=1, dtype=np.int64),
        set_codes=np.nonzero(bits)[1],
    )
