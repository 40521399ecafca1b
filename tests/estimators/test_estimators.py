"""The estimators: scikit-learn's checks, and trees equal to those of `treekit.train`."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn import ensemble as sk_ensemble
from sklearn import tree as sk_tree
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_classification, make_regression
from sklearn.ensemble import AdaBoostClassifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import treekit
from treekit import (
    DataError,
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    SettingError,
    TreekitWarning,
)
from treekit.estimators.base import find_documentation

CLASSIFIERS = [DecisionTreeClassifier, RandomForestClassifier, ExtraTreesClassifier]
REGRESSORS = [DecisionTreeRegressor, RandomForestRegressor, ExtraTreesRegressor]
FORESTS = [cls for cls in (*CLASSIFIERS, *REGRESSORS) if hasattr(cls, "n_estimators")]
ALL = [*CLASSIFIERS, *REGRESSORS]


def each(classes):
    """Estimators for a test; the kernel of extra trees is not compiled before the run."""
    drawn = (ExtraTreesClassifier, ExtraTreesRegressor)
    return [pytest.param(c, marks=pytest.mark.matrix) if c in drawn else c for c in classes]


def small(cls, **parameters):
    """An estimator with a fixed seed; a forest of few trees."""
    if cls in FORESTS:
        parameters = {"n_estimators": 8} | parameters
    return cls(**({"random_state": 0} | parameters))


# ------------------------------------------------------------------ scikit-learn's checks

EXPECTED_FAILED_CHECKS: dict[str, str] = {}

PRUNED = {"pruner": "cost_complexity", "pruner_settings": {"alpha": 1e-3}, "categorical": [0]}


class _Numbers:
    """The tag `categorical` makes scikit-learn round its data: check unrounded data, too."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = False
        return tags


class NumbersTreeClassifier(_Numbers, DecisionTreeClassifier):
    pass


class NumbersTreeRegressor(_Numbers, DecisionTreeRegressor):
    pass


class NumbersForestClassifier(_Numbers, RandomForestClassifier):
    pass


class NumbersExtraTreesRegressor(_Numbers, ExtraTreesRegressor):
    pass


CHECKED = [
    DecisionTreeClassifier(),
    DecisionTreeRegressor(),
    RandomForestRegressor(n_estimators=5),
    NumbersTreeClassifier(),
    NumbersTreeRegressor(),
    NumbersForestClassifier(n_estimators=10),
    ExtraTreesClassifier(n_estimators=10),
    NumbersExtraTreesRegressor(n_estimators=5),
    DecisionTreeClassifier(**PRUNED),
    NumbersTreeRegressor(**PRUNED),
    NumbersTreeClassifier(missing="error"),
]
"""Every class, both tags, and the settings that fit otherwise."""

FIRST = (
    "check_class_weight_classifiers",
    "check_classifiers_classes",
    "check_dict_unchanged",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_estimators_unfitted",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_subset_invariance",
    "check_n_features_in",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_pipeline_consistency",
    "check_readonly_memmap_input",
    "check_sample_weight_equivalence_on_dense_data",
    "check_supervised_y_2d",
)
"""Checks that run first, on the first and the third estimator; others with ``-m matrix``."""

NEEDS_ARRAY_API = "check_array_api_input"
"""Runs only where SCIPY_ARRAY_API was set before scipy was imported: in a process of its own."""


def checks():
    """Every check of every estimator, each with a name."""
    cases = []
    for k, estimator in enumerate(CHECKED):
        for instance, check in estimator_checks_generator(estimator):
            name = check.func.__name__
            detail = ",".join(f"{key}={value}" for key, value in check.keywords.items())
            marks = () if k in (0, 2) and name in FIRST else pytest.mark.matrix
            if name != NEEDS_ARRAY_API:
                case_id = f"{estimator}-{name}-{detail}"
                cases.append(pytest.param(instance, check, id=case_id, marks=marks))
    return cases


@pytest.mark.parametrize(("estimator", "check"), checks())
def test_scikit_learn_estimator_check_passes(estimator, check):
    check(estimator)


def test_no_scikit_learn_check_is_expected_to_fail():
    assert EXPECTED_FAILED_CHECKS == {}


@pytest.mark.system
def test_numpy_input_passes_under_array_api_dispatch():
    code = (
        "from sklearn.utils.estimator_checks import estimator_checks_generator as checks\n"
        "import treekit\n"
        "ran = 0\n"
        "for name in ('DecisionTreeClassifier', 'DecisionTreeRegressor'):\n"
        "    for estimator, check in checks(getattr(treekit, name)()):\n"
        f"        if check.func.__name__ == {NEEDS_ARRAY_API!r}:\n"
        "            check(estimator)\n"
        "            ran += 1\n"
        "assert ran == 2, ran\n"
    )
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------ the front door's trees


def table(n=250, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    age = rng.integers(0, 80, n).astype(float)
    town = rng.choice(["Oslo", "Bergen", "Tromsø"], n)
    age[rng.random(n) < 0.2] = np.nan
    frame = pd.DataFrame({"size": size, "age": age, "town": town})
    frame.loc[rng.random(n) < 0.1, "town"] = None
    signal = size + (town == "Oslo") + rng.normal(size=n) / 2
    return frame, np.where(signal > 0.4, "yes", "no"), signal


def same_trees(a, b):
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        for name in (
            "kind",
            "feature",
            "threshold",
            "first_child",
            "level_branch",
            "value",
            "gain",
        ):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (DecisionTreeClassifier, {}),
        (DecisionTreeRegressor, {"ensemble": "tree"}),
        (RandomForestClassifier, {"ensemble": "forest", "trees": 8}),
        (RandomForestRegressor, {"ensemble": "forest", "trees": 8, "max_features": 1.0}),
    ],
)
def test_estimators_grow_the_trees_of_train(cls, settings):
    frame, labels, numbers = table()
    y = labels if cls in CLASSIFIERS else numbers
    estimator = small(cls).fit(frame, y)
    table_ = frame.assign(target=y)
    model = treekit.train(table_, "target", seed=0, min_gain=None, **settings)
    same_trees(estimator.model_.trees, model.trees)
    assert estimator.model_.schema == model.schema
    np.testing.assert_array_equal(estimator.predict(frame), model.predict(frame))
    if cls in CLASSIFIERS:
        np.testing.assert_array_equal(estimator.predict_proba(frame), model.predict_proba(frame))


@pytest.mark.kernels
def test_scikit_learn_parameters_set_the_settings_of_train():
    frame, y, _ = table()
    estimator = DecisionTreeClassifier(
        criterion="entropy", criterion_settings={"base": 3.0}, max_depth=6, min_samples_split=20,
        min_samples_leaf=7, min_gain=0.001, max_features=2, max_leaf_nodes=9, random_state=4,
        nominal_splits="multiway", splitter="histogram", max_bins=20, pruner="cost_complexity",
        pruner_settings={"alpha": 0.001}, unknown="error", dtype="float64",
    ).fit(frame, y)  # fmt: skip
    model = treekit.train(
        frame.assign(target=y), "target", criterion="entropy", max_depth=6, min_weight_split=20,
        min_weight_leaf=7, min_gain=0.001, max_features=2, max_leaves=9, seed=4,
        nominal_splits="multiway", splitter="histogram", max_bins=20, pruner="cost_complexity",
        unknown="error", dtype="float64", **{"criterion.base": 3.0, "pruner.alpha": 0.001},
    )  # fmt: skip
    same_trees(estimator.model_.trees, model.trees)
    assert estimator.model_.settings == model.settings


def test_components_may_be_passed_as_records():
    from treekit import registry

    frame, y, _ = table()
    by_name = small(DecisionTreeClassifier, criterion="entropy", pruner="reduced_error")
    by_record = small(
        DecisionTreeClassifier,
        criterion=registry.get("criterion", "entropy"),
        pruner=registry.get("pruner", "reduced_error"),
        splitter=registry.get("splitter", "exact"),
    )
    same_trees(by_name.fit(frame, y).model_.trees, by_record.fit(frame, y).model_.trees)


# ------------------------------------------------------------------ inside scikit-learn


def test_grid_search_over_pruner_settings_runs():
    frame, y, _ = table()
    grid = {"pruner_settings": [{"alpha": 0.0}, {"alpha": 0.02}], "max_depth": [2, None]}
    search = GridSearchCV(small(DecisionTreeClassifier, pruner="cost_complexity"), grid, cv=3)
    search.fit(frame, y)
    assert search.best_score_ > 0.7
    assert (
        search.best_estimator_.model_.settings["pruner.alpha"]
        == (search.best_params_["pruner_settings"]["alpha"])
    )


@pytest.mark.parametrize("cls", each(ALL))
def test_a_pipeline_is_cross_validated(cls):
    make = make_classification if cls in CLASSIFIERS else make_regression
    x, y = make(200, 6, n_informative=3, random_state=0)
    scores = cross_val_score(make_pipeline(StandardScaler(), small(cls)), x, y, cv=3)
    assert scores.mean() > (0.75 if cls in CLASSIFIERS else 0.6)


@pytest.mark.parametrize("cls", each(ALL))
def test_a_clone_fits_the_same_trees(cls):
    frame, labels, numbers = table()
    y = labels if cls in CLASSIFIERS else numbers
    estimator = small(cls, max_features=0.5).fit(frame, y)
    copy = clone(estimator)
    assert not hasattr(copy, "model_")
    same_trees(copy.fit(frame, y).model_.trees, estimator.model_.trees)


@pytest.mark.parametrize("cls", each(ALL))
def test_a_pickled_estimator_predicts_equally(cls):
    frame, labels, numbers = table()
    estimator = small(cls).fit(frame, labels if cls in CLASSIFIERS else numbers)
    before = estimator.predict(frame)
    again = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(again.predict(frame), before)
    assert again.model_.schema == estimator.model_.schema


def test_sample_weights_that_sum_to_one_do_not_prevent_splits():
    x, y = make_classification(240, random_state=1)
    boosted = AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=10)
    single = DecisionTreeClassifier(max_depth=2).fit(x, y)
    assert boosted.fit(x, y).score(x, y) > single.score(x, y)
    scaled = DecisionTreeClassifier(max_depth=2).fit(x, y, np.full(240, 1 / 240))
    np.testing.assert_array_equal(
        scaled.model_.trees[0].threshold, single.model_.trees[0].threshold
    )


# ------------------------------------------------------------------ seeds


@pytest.mark.parametrize("cls", each(FORESTS))
def test_a_forest_is_the_same_for_any_number_of_threads(cls):
    frame, labels, numbers = table()
    y = labels if cls in CLASSIFIERS else numbers
    one, two = (small(cls, n_jobs=n_jobs).fit(frame, y) for n_jobs in (1, 2))
    same_trees(one.model_.trees, two.model_.trees)
    np.testing.assert_array_equal(one.predict(frame), two.predict(frame))


def test_random_states_are_numbers_generators_or_the_global_one():
    frame, y, _ = table()

    def gains(random_state):
        estimator = RandomForestClassifier(n_estimators=2, random_state=random_state)
        return estimator.fit(frame, y).model_.trees[0].gain.tolist()

    assert gains(7) == gains(np.int64(7)) != gains(8)
    assert gains(np.random.RandomState(3)) == gains(np.random.RandomState(3))
    generator = np.random.RandomState(3)
    assert gains(generator) != gains(generator)
    assert gains(None) != gains(None)
    with pytest.raises(ValueError, match="cannot be used to seed"):
        gains("seven")


# ------------------------------------------------------------------ labels


@pytest.mark.parametrize("cls", each(CLASSIFIERS))
@pytest.mark.parametrize(
    "labels",
    [
        np.array(["b", "a", "ß"]),
        np.array(["NA", "?", ""], dtype=object),
        np.array([3, -1, 7]),
        np.array([2.0, 1.0, 5.0]),
        np.array([True, False, True]),
        pd.Series(["x", "y", "z"], dtype="category"),
    ],
    ids=["text", "marks", "whole", "floats", "bools", "categories"],
)
def test_predicted_labels_have_their_original_type(cls, labels):
    x, codes = make_classification(
        150, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=0
    )
    y = labels.iloc[codes].reset_index(drop=True) if hasattr(labels, "iloc") else labels[codes]
    estimator = small(cls).fit(x, y)
    answers = estimator.predict(x)
    assert answers.dtype == estimator.classes_.dtype == np.asarray(y).dtype
    np.testing.assert_array_equal(estimator.classes_, np.unique(np.asarray(y)))
    assert (answers == np.asarray(y)).mean() > 0.95
    assert list(estimator.model_.schema.classes) == estimator.classes_.tolist()
    assert estimator.model_.predict(x).tolist() == answers.tolist()


def test_continuous_and_missing_labels_are_refused():
    x = np.zeros((3, 1))
    with pytest.raises(ValueError, match="Unknown label type"):
        DecisionTreeClassifier().fit(x, [0.5, 1.5, 2.5])
    with pytest.raises(ValueError, match="missing in 1 of 3 rows, first in row 2"):
        DecisionTreeClassifier().fit(x, [0.0, 1.0, np.nan])
    with pytest.raises(ValueError, match="infinit"):
        DecisionTreeRegressor().fit(x, [0.0, 1.0, np.inf])


# ------------------------------------------------------------------ tables


@pytest.mark.parametrize("cls", each(ALL))
def test_dataframes_of_any_library_train_equal_trees(cls):
    frame, labels, numbers = table()
    y = labels if cls in CLASSIFIERS else numbers
    expected = small(cls).fit(frame, y)
    columns = {name: [None if v != v else v for v in frame[name]] for name in frame}
    for other in (
        frame.astype({"town": "category"}),
        frame.astype({"town": "string"}),
        pl.DataFrame(columns),
        pl.DataFrame(columns).with_columns(pl.col("town").cast(pl.Categorical)),
        pa.table(columns),
    ):
        estimator = small(cls).fit(other, y)
        same_trees(estimator.model_.trees, expected.model_.trees)
        assert estimator.feature_names_in_.tolist() == ["size", "age", "town"]
        np.testing.assert_array_equal(estimator.predict(other), expected.predict(frame))


def test_text_in_arrays_and_lists_is_nominal():
    frame, y, _ = table()
    expected = small(DecisionTreeClassifier).fit(frame, y)
    rows = frame.astype(object).where(frame.notna(), None)
    for x in (rows.to_numpy(), rows.to_numpy().tolist()):
        estimator = small(DecisionTreeClassifier).fit(x, y)
        same_trees(estimator.model_.trees, expected.model_.trees)
        np.testing.assert_array_equal(estimator.predict(x), expected.predict(frame))
        assert not hasattr(estimator, "feature_names_in_")


@pytest.mark.parametrize("parameter", ["categorical", "categorical_features"])
@pytest.mark.parametrize("given", [["town"], [2], np.array([2]), [False, False, True]])
def test_categorical_columns_are_given_by_name_position_or_mask(parameter, given):
    frame, y, _ = table()
    codes = frame.assign(town=frame["town"].map({"Oslo": 1, "Bergen": 0, "Tromsø": 2}))
    estimator = small(DecisionTreeClassifier, **{parameter: given}).fit(codes, y)
    expected = small(DecisionTreeClassifier).fit(frame, y)
    same_trees(estimator.model_.trees, expected.model_.trees)
    assert estimator.model_.schema.columns[2].levels == ("0", "1", "2")
    np.testing.assert_array_equal(estimator.predict(codes), expected.predict(frame))


@pytest.mark.parametrize(
    "given", ["from_dtype", None, [], ["b"], [0, 2], np.array([2]), np.array([True, False, True])]
)
def test_categorical_features_selects_the_columns_that_scikit_learn_selects(given):
    codes = np.arange(40) % 3
    frame = pd.DataFrame({"a": codes, "b": codes, "c": pd.Categorical(codes)})
    theirs = sk_ensemble.HistGradientBoostingClassifier(max_iter=1, categorical_features=given)
    theirs.fit(frame, codes)
    ours = small(DecisionTreeClassifier, categorical_features=given).fit(frame, codes)
    selected = np.zeros(3, bool) if theirs.is_categorical_ is None else theirs.is_categorical_
    assert ours.model_.schema.nominal.tolist() == selected.tolist()


def test_categorical_columns_given_twice_are_refused():
    frame, y, _ = table()
    estimator = small(DecisionTreeClassifier, categorical=["town"], categorical_features=None)
    with pytest.raises(SettingError, match="both select the nominal columns; give one"):
        estimator.fit(frame, y)


def test_text_raises_an_error_if_categorical_is_empty():
    frame, y, _ = table()
    for categorical in (None, [], ["size"]):
        with pytest.raises(DataError, match="'town' is numeric but row"):
            small(DecisionTreeClassifier, categorical=categorical).fit(frame, y)


@pytest.mark.parametrize(
    ("categorical", "message"),
    [
        ("town", r"as in \['town'\]"),
        (["twon"], "did you mean 'town'"),
        ([3], "position 3; valid positions are 0 to 2"),
        ([-1], "position -1"),
        ([True], "mask of 1 columns"),
        ([1.5], "contains 1.5"),
        (5, "contains 5"),
    ],
)
def test_invalid_categorical_parameter_is_refused(categorical, message):
    frame, y, _ = table()
    for parameter in ("categorical", "categorical_features"):
        with pytest.raises(SettingError, match=f"^{parameter} .*{message}"):
            small(DecisionTreeClassifier, **{parameter: categorical}).fit(frame, y)


def test_bools_are_numeric_in_arrays_and_dataframes():
    x = np.array([[True], [False], [True], [False]] * 5)
    y = [1, 0, 1, 0] * 5
    by_array = DecisionTreeClassifier().fit(x, y)
    by_frame = DecisionTreeClassifier().fit(pd.DataFrame({"x0": x[:, 0]}), y)
    same_trees(by_array.model_.trees, by_frame.model_.trees)
    assert by_array.predict([[1.0], [0.0]]).tolist() == [1, 0]


def test_unseen_categories_count_as_missing_or_are_refused():
    frame, y, _ = table()
    new = frame.assign(town="Paris")
    gone = frame.assign(town=pd.Series([None] * len(frame), dtype=object))
    estimator = small(DecisionTreeClassifier).fit(frame, y)
    np.testing.assert_array_equal(estimator.predict(new), estimator.predict(gone))
    strict = small(DecisionTreeClassifier, unknown="error").fit(frame, y)
    with pytest.raises(DataError, match="'Paris'"):
        strict.predict(new)


def test_feature_names_and_counts_are_checked_as_in_scikit_learn():
    frame, y, _ = table()
    estimator = small(DecisionTreeClassifier).fit(frame, y)
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.predict(frame[["age", "size", "town"]])
    with pytest.raises(ValueError, match="expecting 2 features"):
        DecisionTreeClassifier().fit(np.eye(2), [0, 1]).predict(np.eye(3))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        by_position = estimator.predict(frame.astype(object).to_numpy())
    np.testing.assert_array_equal(by_position, estimator.predict(frame))
    with pytest.raises(NotFittedError):
        DecisionTreeClassifier().predict(frame)


def test_infinite_values_are_refused_in_fit_and_ordered_in_predict():
    x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
    with pytest.raises(DataError, match="'x0' is infinite in row 1"):
        DecisionTreeClassifier().fit([[0.0], [np.inf], [1.0], [2.0]], y)
    estimator = DecisionTreeClassifier().fit(x, y)
    assert estimator.predict([[-np.inf], [np.inf]]).tolist() == [0, 1]


# ------------------------------------------------------------------ sizes and weights


def test_fractional_min_samples_are_shares_of_the_rows():
    x, y = make_classification(200, random_state=0)
    tree = DecisionTreeClassifier(min_samples_leaf=0.1, min_samples_split=0.3).fit(x, y)
    by_count = DecisionTreeClassifier(min_samples_leaf=20, min_samples_split=60).fit(x, y)
    by_fraction = DecisionTreeClassifier(min_weight_fraction_leaf=0.1, min_samples_split=60)
    same_trees(tree.model_.trees, by_count.model_.trees)
    same_trees(tree.model_.trees, by_fraction.fit(x, y).model_.trees)
    assert tree.model_.trees[0].weight.min() >= 20


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_samples_leaf", 0), ("min_samples_leaf", 1.5), ("min_samples_leaf", True),
        ("min_samples_split", 1), ("min_samples_split", "two"), ("min_weight_fraction_leaf", 0.6),
    ],
)  # fmt: skip
def test_sizes_out_of_range_are_refused(name, value):
    with pytest.raises(SettingError, match=name):
        DecisionTreeClassifier(**{name: value}).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize("cls", each(CLASSIFIERS))
def test_class_weights_are_weights_of_the_rows(cls):
    x, y = make_classification(250, weights=[0.9], flip_y=0.1, random_state=0)
    by_class = small(cls, class_weight={0: 1, 1: 4}, max_depth=3).fit(x, y)
    if cls is not RandomForestClassifier:  # class weights do not draw rows, row weights do
        by_row = small(cls, max_depth=3).fit(x, y, np.where(y == 1, 4, 1))
        for one, other in zip(by_class.model_.trees, by_row.model_.trees, strict=True):
            np.testing.assert_array_equal(one.feature, other.feature)
            np.testing.assert_array_equal(one.threshold, other.threshold)
            np.testing.assert_allclose(
                one.value / one.weight[:, None], other.value / other.weight[:, None], atol=1e-12
            )
    balanced = small(cls, class_weight="balanced", max_depth=3).fit(x, y)
    plain = small(cls, max_depth=3).fit(x, y)
    assert (balanced.predict(x) == 1).sum() > (plain.predict(x) == 1).sum()
    root = balanced.model_.trees[0].value[0]
    assert root[0] / root.sum() == pytest.approx(0.5, abs=0.08)


# ------------------------------------------------------------------ attributes


def test_importances_are_gain_times_weight_as_in_scikit_learn():
    x, y = make_classification(200, 5, n_informative=3, n_redundant=0, random_state=0)
    ours = DecisionTreeClassifier(max_depth=3).fit(x, y).feature_importances_
    theirs = sk_tree.DecisionTreeClassifier(max_depth=3, random_state=0).fit(x, y)
    np.testing.assert_allclose(ours, theirs.feature_importances_, atol=1e-9)
    forest = small(RandomForestClassifier).fit(x, y)
    assert forest.feature_importances_.sum() == pytest.approx(1.0)
    constant = DecisionTreeClassifier().fit(np.zeros((5, 2)), [0, 1, 0, 1, 0])
    assert constant.feature_importances_.tolist() == [0.0, 0.0]


def test_get_depth_get_n_leaves_and_apply_equal_the_model():
    frame, y, _ = table()
    tree = small(DecisionTreeClassifier).fit(frame, y)
    nodes = tree.apply(frame)
    model = tree.model_
    assert tree.get_depth() == model.depth
    assert tree.get_n_leaves() == model.n_leaves == len(set(nodes.tolist()))
    values = model.trees[0].value[nodes]
    np.testing.assert_array_equal(tree.classes_[values.argmax(axis=1)], tree.predict(frame))
    forest = small(RandomForestClassifier).fit(frame, y)
    assert forest.apply(frame).shape == (len(frame), 8)
    np.testing.assert_array_equal(
        np.bincount(nodes, minlength=model.n_nodes)[model.trees[0].leaves],
        model.trees[0].weight[model.trees[0].leaves],
    )


def test_out_of_bag_attributes_of_a_classifier():
    frame, y, _ = table()
    forest = RandomForestClassifier(60, oob_score=True, random_state=0).fit(frame, y)
    votes = forest.oob_decision_function_
    assert votes.shape == (250, 2)
    np.testing.assert_allclose(votes.sum(axis=1), 1.0)
    right = forest.classes_[votes.argmax(axis=1)] == y
    assert forest.oob_score_ == right.mean()
    assert 0.7 < forest.oob_score_ < forest.score(frame, y)
    assert not hasattr(small(RandomForestClassifier).fit(frame, y), "oob_score_")


def test_out_of_bag_attributes_of_a_regressor():
    frame, _, y = table()
    forest = RandomForestRegressor(60, oob_score=True, random_state=0).fit(frame, y)
    error = ((forest.oob_prediction_ - y) ** 2).mean()
    assert forest.oob_score_ == pytest.approx(1 - error / y.var())
    assert 0.4 < forest.oob_score_ < forest.score(frame, y)


@pytest.mark.parametrize("weights", [None, [0.0, 1.0, 2.0, 0.5] * 30])
def test_estimators_samples_are_the_rows_the_trees_were_grown_on(weights):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 3)), rng.integers(0, 3, 120)
    forest = RandomForestClassifier(n_estimators=5, random_state=0, max_samples=0.7, oob_score=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TreekitWarning)
        forest.fit(x, y, weights)
    samples = pickle.loads(pickle.dumps(forest)).estimators_samples_
    unseen = np.ones((5, 120), bool)
    for sample, tree, own in zip(samples, forest.model_.trees, unseen, strict=True):
        np.testing.assert_allclose(
            np.bincount(y[sample], minlength=3) / len(sample), tree.value[0] / tree.weight[0]
        )
        own[sample] = False
    told = ~np.isnan(forest.oob_decision_function_[:, 0])
    drawn = np.ones(120, bool) if weights is None else np.array(weights) > 0
    np.testing.assert_array_equal(told, unseen.any(axis=0) & drawn)
    whole = RandomForestClassifier(n_estimators=2, bootstrap=False).fit(x, y)
    assert [own.tolist() for own in whole.estimators_samples_] == [list(range(120))] * 2


def test_rows_in_every_bootstrap_sample_have_no_out_of_bag_prediction():
    frame, y, _ = table()
    with pytest.warns(TreekitWarning, match="increase n_estimators"):
        forest = RandomForestClassifier(2, oob_score=True, random_state=0).fit(frame, y)
    gone = np.isnan(forest.oob_decision_function_[:, 0])
    assert 0 < gone.sum() < 250
    with pytest.raises(SettingError, match="only available if bootstrap=True"):
        RandomForestClassifier(2, oob_score=True, bootstrap=False).fit(frame, y)


# ------------------------------------------------------------------ beside scikit-learn


@pytest.mark.matrix
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_tree_accuracy_is_close_to_scikit_learn(seed):
    x, y = make_classification(800, 10, n_informative=5, flip_y=0.05, random_state=seed)
    ours = DecisionTreeClassifier(max_depth=6).fit(x[:400], y[:400])
    theirs = sk_tree.DecisionTreeClassifier(max_depth=6, random_state=0).fit(x[:400], y[:400])
    assert abs(ours.score(x[400:], y[400:]) - theirs.score(x[400:], y[400:])) < 0.04
    x, y = make_regression(800, 6, noise=20, random_state=seed)
    regressor = DecisionTreeRegressor(max_depth=6).fit(x[:400], y[:400])
    peer = sk_tree.DecisionTreeRegressor(max_depth=6, random_state=0).fit(x[:400], y[:400])
    assert abs(regressor.score(x[400:], y[400:]) - peer.score(x[400:], y[400:])) < 0.04


@pytest.mark.matrix
@pytest.mark.parametrize("seed", [0, 1])
def test_forest_accuracy_is_close_to_scikit_learn(seed):
    x, y = make_classification(900, 12, n_informative=6, flip_y=0.05, random_state=seed)
    ours = RandomForestClassifier(60, random_state=0).fit(x[:400], y[:400])
    theirs = sk_ensemble.RandomForestClassifier(60, random_state=0).fit(x[:400], y[:400])
    assert abs(ours.score(x[400:], y[400:]) - theirs.score(x[400:], y[400:])) < 0.03
    x, y = make_regression(900, 8, noise=20, random_state=seed)
    regressor = RandomForestRegressor(60, random_state=0).fit(x[:400], y[:400])
    peer = sk_ensemble.RandomForestRegressor(60, random_state=0).fit(x[:400], y[:400])
    assert abs(regressor.score(x[400:], y[400:]) - peer.score(x[400:], y[400:])) < 0.03


def test_pruned_regression_trees_equal_scikit_learn_cost_complexity_path():
    x, y = make_regression(150, 4, noise=30, random_state=0)
    x = x.astype(np.float32)
    path = sk_tree.DecisionTreeRegressor(random_state=0).cost_complexity_pruning_path(x, y)
    alphas = path.ccp_alphas
    for at in range(0, len(alphas) - 1, 9):
        alpha = float(alphas[at : at + 2].mean())
        theirs = sk_tree.DecisionTreeRegressor(random_state=0, ccp_alpha=alpha).fit(x, y)
        ours = DecisionTreeRegressor(pruner="cost_complexity", pruner_settings={"alpha": alpha})
        assert ours.fit(x, y).get_n_leaves() == theirs.get_n_leaves()


@pytest.mark.parametrize("cls", each(REGRESSORS))
def test_target_with_a_large_mean_is_predicted_as_accurately(cls):
    x, y = make_regression(300, 5, noise=5, random_state=0)
    plain = small(cls).fit(x[:200], y[:200]).score(x[200:], y[200:])
    offset = small(cls).fit(x[:200], y[:200] + 1e8).score(x[200:], y[200:] + 1e8)
    assert abs(plain - offset) < 0.05  # other contents, other samples


def test_small_fits_are_fast():
    # CPU time, so that a busy machine does not fail it; 2 to 3 ms measured.
    import time

    x, y = make_classification(100, 4, random_state=0)
    estimator = DecisionTreeClassifier(random_state=0).fit(x, y)
    times = []
    for _ in range(15):
        start = time.thread_time()
        estimator.fit(x, y)
        times.append(time.thread_time() - start)
    assert min(times) < 0.02


# ---------------------------------------------------------------- scikit-learn's names


def test_scikit_learn_names_of_criteria_and_splitters_are_accepted():
    x, y = make_classification(200, 5, random_state=0)
    entropy = DecisionTreeClassifier(criterion="log_loss", splitter="best").fit(x, y)
    assert entropy.model_.settings["criterion"] == "entropy"
    assert entropy.model_.settings["splitter"] == "exact"
    x, y = make_regression(200, 5, noise=10, random_state=0)
    x = x.astype(np.float32)
    friedman = DecisionTreeRegressor(criterion="friedman_mse", max_depth=3).fit(x, y)
    theirs = sk_tree.DecisionTreeRegressor(max_depth=3, random_state=0)
    assert friedman.model_.settings["criterion"] == "friedman"
    assert np.allclose(friedman.predict(x), theirs.fit(x, y).predict(x))


def test_forest_supports_len_iteration_and_indexing_of_its_trees():
    x, y = make_classification(200, 9, random_state=0)
    forest = RandomForestClassifier(5, random_state=0).fit(x, y)
    assert len(forest) == len(list(forest)) == 5
    assert np.array_equal(forest[2].predict_proba(x), list(forest)[2].predict_proba(x))
    assert [tree.get_depth() for tree in forest[1:3]] == [forest[k].get_depth() for k in (1, 2)]
    assert forest.max_features_ == forest[0].max_features_ == 3
    third = RandomForestRegressor(2, algorithm="random_forest", random_state=0).fit(x, y)
    assert third.max_features_ == 3
    assert isinstance(forest.estimator_, DecisionTreeClassifier)
    assert forest.estimator_.max_features == "sqrt"
    assert RandomForestClassifier(max_depth=3).estimator.max_depth == 3
    with pytest.raises(NotFittedError):
        len(RandomForestClassifier())


def test_predict_log_proba_is_the_logarithm_of_predict_proba():
    x, y = make_classification(200, 5, random_state=0)
    forest = RandomForestClassifier(5, random_state=0).fit(x, y)
    assert np.array_equal(np.exp(forest.predict_log_proba(x)) > 0, forest.predict_proba(x) > 0)
    assert np.allclose(np.exp(forest.predict_log_proba(x)), forest.predict_proba(x))
    several = RandomForestClassifier(5, random_state=0).fit(x, np.column_stack([y, 1 - y]))
    assert [own.shape for own in several.predict_log_proba(x)] == [(200, 2), (200, 2)]


def test_the_out_of_bag_score_may_be_any_function():
    x, y = make_classification(200, 5, random_state=0)
    labels = np.where(y == 1, "yes", "no")
    plain = RandomForestClassifier(60, oob_score=True, random_state=0).fit(x, labels)

    def share_of_errors(truth, said):
        assert set(truth) == set(said) == {"yes", "no"}
        return np.mean(truth != said)

    own = RandomForestClassifier(60, oob_score=share_of_errors, random_state=0).fit(x, labels)
    assert own.oob_score_ == pytest.approx(1 - plain.oob_score_)
    numbers = RandomForestRegressor(60, oob_score=mean_absolute_error, random_state=0).fit(x, y)
    assert numbers.oob_score_ == mean_absolute_error(y, numbers.oob_prediction_)


def test_the_out_of_bag_score_of_several_outputs_is_their_score():
    x, y = make_classification(250, 6, n_classes=3, n_informative=4, random_state=0)
    both = np.column_stack([y, y % 2])
    forest = RandomForestClassifier(60, oob_score=True, random_state=0).fit(x, both)
    said = forest.oob_decision_function_.argmax(axis=1)
    assert forest.oob_score_ == (said == both).all(axis=1).mean()
    assert forest.oob_score_ < (said == both).mean()


def test_a_warm_start_may_request_the_out_of_bag_score_later():
    x, y = make_classification(200, 5, random_state=0)
    whole = RandomForestClassifier(60, oob_score=True, random_state=0).fit(x, y)
    for first in (60, 40):
        later = RandomForestClassifier(first, warm_start=True, random_state=0).fit(x, y)
        later.set_params(n_estimators=60, oob_score=True).fit(x, y)
        assert later.oob_score_ == whole.oob_score_
        assert np.array_equal(later.predict_proba(x), whole.predict_proba(x))


def test_a_forest_shows_its_progress(capsys):
    x, y = make_classification(60, 3, n_redundant=0, random_state=0)
    RandomForestClassifier(20, verbose=1, random_state=0).fit(x, y)
    assert capsys.readouterr().out.splitlines() == [f"{k} of 20 trees" for k in range(2, 21, 2)]


@pytest.mark.matrix
def test_impurities_and_depths_of_absolute_error_equal_scikit_learn():
    x, y = make_regression(150, 4, noise=30, random_state=0)
    x = x.astype(np.float32)
    ours = DecisionTreeRegressor(criterion="absolute_error", max_depth=4).fit(x, y)
    theirs = sk_tree.DecisionTreeRegressor(
        criterion="absolute_error", max_depth=4, random_state=0
    ).fit(x, y)
    assert np.allclose(sorted(ours.tree_.impurity), sorted(theirs.tree_.impurity))
    alphas = ours.cost_complexity_pruning_path().ccp_alphas
    assert np.allclose(alphas, theirs.cost_complexity_pruning_path(x, y).ccp_alphas)
    depths = ours.tree_.compute_node_depths()
    assert sorted(depths) == sorted(theirs.tree_.compute_node_depths())
    assert depths.max() == ours.get_depth() + 1
    np.testing.assert_array_equal(ours.tree_.apply(sparse.csc_matrix(x)), ours.tree_.apply(x))


@pytest.mark.parametrize("decrease", [0.001, 0.01, 0.05])
@pytest.mark.parametrize("weighted", [False, True])
def test_min_impurity_decrease_equals_scikit_learn(decrease, weighted):
    x, y = (part[:250] for part in load_breast_cancer(return_X_y=True))  # codes of 8 bits
    weights = np.random.default_rng(0).integers(1, 4, len(y)) if weighted else None
    x = x.astype(np.float32)
    ours = DecisionTreeClassifier(splitter="exact", min_impurity_decrease=decrease)
    theirs = sk_tree.DecisionTreeClassifier(random_state=0, min_impurity_decrease=decrease)
    leaves = theirs.fit(x, y, weights).get_n_leaves()
    assert ours.fit(x, y, weights).get_n_leaves() == leaves > 1


@pytest.mark.kernels
@pytest.mark.parametrize("missing", ["direction", "surrogate", "error"])
@pytest.mark.parametrize("pruner", [None, "reduced_error", "cost_complexity", "holdout"])
def test_n_node_samples_counts_the_rows_of_each_node(missing, pruner):
    rng = np.random.default_rng(3)
    x = rng.integers(0, 6, (300, 3)).astype(float)
    y = (x[:, 0] + x[:, 1] * rng.random(300) > 4).astype(int)
    if missing != "error":
        x[rng.random(x.shape) < 0.2] = np.nan
    tree = DecisionTreeClassifier(missing=missing, pruner=pruner, random_state=0).fit(x, y)
    tree = pickle.loads(pickle.dumps(tree))
    counts = np.bincount(tree.apply(x), minlength=tree.model_.n_nodes)
    for node in range(tree.model_.n_nodes - 1, 0, -1):  # a parent has a lower number
        counts[tree.model_.trees[0].parent[node]] += counts[node]
    n_samples, _ = tree._statistics.value
    np.testing.assert_array_equal(n_samples, counts)


def test_the_display_in_notebooks_links_to_the_documentation(monkeypatch):
    tree = DecisionTreeClassifier()
    link = "https://example.org/treekit/generated/api/treekit.DecisionTreeClassifier.html"
    home = {
        "Project-URL": [
            "Issues, https://example.org/i",
            "Documentation, https://example.org/treekit/",
        ]
    }
    for urls, expected in ((home, link), ({}, "")):
        find_documentation.cache_clear()
        monkeypatch.setattr("importlib.metadata.metadata", lambda _, urls=urls: Message(urls))
        assert tree._get_doc_link() == expected
        assert (link in tree._repr_html_()) == bool(expected)
    find_documentation.cache_clear()


class Message(dict):
    """Metadata of a distribution, whose fields may be repeated."""

    get_all = dict.get


# ------------------------------------------------------------------ settings of components


def test_settings_of_components_can_be_searched():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    y = x[:, 0] + rng.normal(size=120) > 0
    grid = {"pruner__alpha": [0.0, 0.02, 0.5], "criterion__base": [2.0]}
    tree = DecisionTreeClassifier(
        criterion="entropy", pruner="cost_complexity", pruner_settings={"risk": "impurity"}
    )
    search = GridSearchCV(tree, grid, cv=3).fit(x, y)
    best = search.best_estimator_
    assert best.pruner_settings == {"risk": "impurity", "alpha": best.get_params()["pruner__alpha"]}
    assert best.model_.settings["criterion.base"] == 2.0
    assert best.model_.settings["pruner.alpha"] == search.best_params_["pruner__alpha"]
    assert clone(best).get_params() == best.get_params()
    assert tree.pruner_settings == {"risk": "impurity"}  # a search changes copies
    assert "pruner__alpha" not in best.get_params(deep=False)
    with pytest.raises(treekit.errors.SettingError, match="no setting 'alpa'; did you mean"):
        tree.set_params(pruner__alpa=1.0).fit(x, y)


def test_the_constructor_explains_settings_of_components():
    with pytest.raises(TypeError, match=r"pass criterion_settings=\{'balance': \.\.\.\} to"):
        DecisionTreeClassifier(criterion="ks", criterion__balance=1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'critrion__balance'"):
        DecisionTreeClassifier(critrion__balance=1.0)


@pytest.mark.parametrize("make", [pd.Series, pl.Series])
def test_name_of_the_target_is_stored_in_the_schema(make):
    x = pd.DataFrame({"a": np.arange(20.0)})
    y = np.arange(20) // 10
    series = make(y, name="ill") if make is pd.Series else make("ill", y)
    tree = DecisionTreeClassifier().fit(x, series)
    assert tree.model_.schema.target == "ill"
    assert "Predicts ill" in str(tree.model_.rules())
    assert DecisionTreeRegressor().fit(x, series).model_.schema.target == "ill"
    assert DecisionTreeClassifier().fit(x, make(y)).model_.schema.target == "target"
    several = pd.DataFrame({"u": y, "v": y % 3})
    names = [one.name for one in DecisionTreeClassifier().fit(x, several).model_.schema.outputs]
    assert names == ["u", "v"]
    # A column of the inputs keeps its name alone.
    own = DecisionTreeRegressor().fit(x, x["a"])
    assert own.model_.schema.target == "target"
    tree.score(x, make(y))
    assert tree.model_.schema.target == "ill"
