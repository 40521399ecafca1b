"""What users of scikit-learn use besides fit and predict."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn.tree
from sklearn import ensemble
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.inspection import partial_dependence

import treekit
from tests.training.test_training import same_tree
from treekit import (
    DataError,
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    ModelError,
    RandomForestClassifier,
    RandomForestRegressor,
    SettingError,
    TreekitWarning,
)
from treekit.interop.sklearn import recognises_sklearn

IRIS = load_iris(return_X_y=True)
DIABETES = tuple(array[:250] for array in load_diabetes(return_X_y=True))  # codes of 8 bits


def both(criterion="gini", **parameters):
    """The same tree from either library; a root without ties between columns."""
    x, y = load_breast_cancer(return_X_y=True)
    x, y = x.astype(np.float32)[:250, [0, 21, 27]], y[:250]
    own = DecisionTreeClassifier(criterion=criterion, random_state=0, **parameters).fit(x, y)
    other = sklearn.tree.DecisionTreeClassifier(criterion=criterion, random_state=0, **parameters)
    return x, own, other.fit(x, y)


def in_order(tree, array):
    """A node array in the order of a walk that goes left first."""
    found, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        found.append(array[node])
        if tree.children_left[node] >= 0:
            waiting += [tree.children_right[node], tree.children_left[node]]
    return np.array(found)


# ------------------------------------------------------------------ tree_


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_arrays_of_a_classification_tree_equal_scikit_learn(criterion):
    _, own, other = both(criterion, max_depth=3)
    for name in ("feature", "n_node_samples", "weighted_n_node_samples", "impurity", "value"):
        mine = in_order(own.tree_, getattr(own.tree_, name))
        theirs = in_order(other.tree_, getattr(other.tree_, name))
        np.testing.assert_allclose(mine, theirs, atol=1e-12, err_msg=name)
    for name in ("node_count", "max_depth", "n_leaves", "n_features", "n_outputs", "max_n_classes"):
        assert getattr(own.tree_, name) == getattr(other.tree_, name), name
    np.testing.assert_allclose(own.feature_importances_, other.feature_importances_, atol=1e-12)
    assert (own.get_depth(), own.get_n_leaves()) == (other.get_depth(), other.get_n_leaves())


def test_arrays_of_a_regression_tree_equal_scikit_learn():
    x, y = DIABETES[0].astype(np.float32), DIABETES[1]
    weights = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    own = DecisionTreeRegressor(max_depth=2).fit(x, y, weights)
    other = sklearn.tree.DecisionTreeRegressor(max_depth=2, random_state=0).fit(x, y, weights)
    for name in ("weighted_n_node_samples", "impurity", "value", "n_node_samples"):
        mine = in_order(own.tree_, getattr(own.tree_, name))
        theirs = in_order(other.tree_, getattr(other.tree_, name))
        if name == "n_node_samples":  # scikit-learn counts rows without weight, too
            assert (mine <= theirs).all()
            assert mine[0] == (weights > 0).sum()
        else:
            np.testing.assert_allclose(mine, theirs, rtol=1e-9)


def test_the_arrays_are_read_only_and_the_tree_is_pickled_with_them():
    _, own, _ = both(max_depth=2)
    with pytest.raises(ValueError, match="read-only"):
        own.tree_.threshold[0] = 1.0
    again = pickle.loads(pickle.dumps(own))
    np.testing.assert_array_equal(again.tree_.threshold, own.tree_.threshold)
    assert not hasattr(clone(own), "_arrays")


def test_tree_arrays_and_to_sklearn_handle_missing_values_equally():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(250, 3)).astype(np.float32)
    y = np.where(np.isnan(x[:, 0]) | (x[:, 1] > 0), 1, 0)
    x[rng.random(x.shape) < 0.2] = np.nan
    y = y ^ np.isnan(x[:, 2])
    own = DecisionTreeClassifier(random_state=0).fit(x, y)
    assert np.isinf(own.tree_.threshold).any()  # a split into missing or not
    np.testing.assert_array_equal(own.tree_.apply(x), own.apply(x))
    np.testing.assert_array_equal(own.to_sklearn().predict(x), own.predict(x))


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "sets of categories"),
        ({"nominal_splits": "multiway"}, "one branch per category"),
    ],
)
def test_models_without_scikit_learn_form_are_refused(parameters, said):
    frame = pd.DataFrame({"town": ["a", "b", "c"] * 20})
    tree = DecisionTreeClassifier(**parameters).fit(frame, [0, 1, 1] * 20)
    with pytest.raises(ModelError, match=said):
        _ = tree.tree_
    assert tree.decision_path(frame).shape == (60, tree.model_.n_nodes)


def test_refitting_creates_new_tree_arrays():
    x, own, _ = both(max_depth=1)
    assert own.tree_.node_count == 3
    own.set_params(max_depth=2).fit(x, x[:, 0] > 14)
    assert own.tree_.node_count == own.model_.n_nodes


# ------------------------------------------------------------------ scikit-learn's own tools


def test_scikit_learn_tools_accept_to_sklearn():
    x, own, other = both(max_depth=3)
    text = sklearn.tree.export_text(own.to_sklearn(), decimals=1)
    assert text == sklearn.tree.export_text(other, decimals=1)
    dot = sklearn.tree.export_graphviz(own.to_sklearn(), impurity=True)
    assert dot.count("gini") == own.tree_.node_count
    np.testing.assert_array_equal(own.to_sklearn().predict(x), own.predict(x))
    np.testing.assert_allclose(own.to_sklearn().predict_proba(x), own.predict_proba(x), atol=1e-7)
    number = DecisionTreeRegressor(max_depth=3).fit(*DIABETES)
    np.testing.assert_allclose(
        number.to_sklearn().predict(DIABETES[0]), number.predict(DIABETES[0])
    )


# ------------------------------------------------------------------ paths


def test_scikit_learn_tools_accept_treekit_trees():
    x, own, other = both(max_depth=2)
    mine, theirs = (sklearn.tree.export_text(tree, decimals=1) for tree in (own, other))
    assert mine == theirs
    assert "gini" in sklearn.tree.export_graphviz(own)
    assert not recognises_sklearn(own)  # its model is at hand
    x, y = DIABETES[0].astype(np.float32), DIABETES[1]
    number = DecisionTreeRegressor(max_depth=3).fit(x, y)
    reference = sklearn.tree.DecisionTreeRegressor(max_depth=3, random_state=0).fit(x, y)
    mine, theirs = (sklearn.tree.export_text(tree, decimals=1) for tree in (number, reference))
    assert mine == theirs


def test_partial_dependence_of_a_regression_tree_equals_scikit_learn():
    x, y = DIABETES[0].astype(np.float32), DIABETES[1]
    own = DecisionTreeRegressor(max_depth=4, min_samples_leaf=9).fit(x, y)
    other = sklearn.tree.DecisionTreeRegressor(max_depth=4, min_samples_leaf=9, random_state=0)
    other.fit(x, y)
    for columns in ([2], [(2, 8)]):
        mine, theirs = (
            partial_dependence(tree, x, columns, grid_resolution=12) for tree in (own, other)
        )
        np.testing.assert_allclose(mine.average, theirs.average, rtol=1e-9)


def test_decision_paths_equal_scikit_learn():
    x, own, other = both(max_depth=4)
    mine, theirs = own.decision_path(x), other.decision_path(x)
    assert mine.shape == theirs.shape
    np.testing.assert_array_equal(mine.sum(axis=1), theirs.sum(axis=1))
    np.testing.assert_array_equal(np.sort(mine.sum(axis=0)), np.sort(theirs.sum(axis=0)))
    leaf = own.apply(x)
    assert (mine[np.arange(len(x)), leaf] == 1).all()
    np.testing.assert_array_equal(own.tree_.decision_path(x).toarray(), mine.toarray())


def test_decision_path_of_a_forest_concatenates_its_trees():
    forest = RandomForestClassifier(3, random_state=0).fit(*IRIS)
    paths, starts = forest.decision_path(IRIS[0])
    assert starts.tolist() == np.cumsum([0, *(t.n_nodes for t in forest.model_.trees)]).tolist()
    assert paths.shape == (150, starts[-1])
    for t, tree in enumerate(forest.estimators_):
        part = paths[:, starts[t] : starts[t + 1]]
        np.testing.assert_array_equal(part.toarray(), tree.decision_path(IRIS[0]).toarray())


# ------------------------------------------------------------------ forests


@pytest.mark.parametrize(
    "cls", [RandomForestRegressor, pytest.param(ExtraTreesRegressor, marks=pytest.mark.matrix)]
)
def test_the_trees_of_a_forest_are_estimators(cls):
    forest = cls(5, random_state=0, max_depth=4).fit(*DIABETES)
    answers = [tree.predict(DIABETES[0]) for tree in forest.estimators_]
    np.testing.assert_allclose(np.mean(answers, axis=0), forest.predict(DIABETES[0]))
    tree = forest.estimators_[0]
    assert isinstance(tree, DecisionTreeRegressor)
    assert (tree.max_depth, tree.get_depth()) == (4, 4)
    assert abs(tree.tree_.n_node_samples[0] - 250) < 80  # 250 expected
    with pytest.raises(AttributeError, match="do not store the variance"):
        _ = tree.tree_.impurity
    assert "value" in sklearn.tree.export_text(tree.to_sklearn())


def test_trees_of_a_classification_forest_predict_its_labels():
    labels = np.array(["a", "b", "c"])[IRIS[1]]
    forest = RandomForestClassifier(4, random_state=0).fit(IRIS[0], labels)
    shares = [tree.predict_proba(IRIS[0]) for tree in forest.estimators_]
    np.testing.assert_allclose(np.mean(shares, axis=0), forest.predict_proba(IRIS[0]), atol=1e-6)
    assert set(forest.estimators_[0].predict(IRIS[0])) <= set(labels)


@pytest.mark.parametrize("cls", [RandomForestClassifier, RandomForestRegressor])
def test_warm_start_grows_the_forest_of_a_single_fit(cls):
    x, y = IRIS if cls is RandomForestClassifier else DIABETES
    parameters = {"oob_score": True, "random_state": 4, "max_depth": 5, "max_samples": 0.6}
    with pytest.warns(TreekitWarning, match="in the bag of every tree"):
        warm = cls(3, warm_start=True, **parameters).fit(x, y)
    for size in (15, 25):
        warm.set_params(n_estimators=size).fit(x, y)
    at_once = cls(25, **parameters).fit(x, y)
    for one, other in zip(warm.model_.trees, at_once.model_.trees, strict=True):
        same_tree(one, other)
    assert warm.model_.settings == at_once.model_.settings
    # Numbers out of bag are added up in another order.
    assert warm.oob_score_ == pytest.approx(at_once.oob_score_, rel=1e-14, abs=0)
    np.testing.assert_array_equal(warm.predict(x), at_once.predict(x))


def test_warm_start_with_changed_settings_or_columns_is_refused():
    forest = RandomForestClassifier(3, warm_start=True, random_state=0).fit(*IRIS)
    with pytest.warns(TreekitWarning, match="without increasing n_estimators"):
        forest.fit(*IRIS)
    with pytest.raises(ValueError, match="n_estimators=2 must be larger or equal to 3"):
        forest.set_params(n_estimators=2).fit(*IRIS)
    forest.set_params(n_estimators=5, max_depth=2)
    with pytest.raises(SettingError, match="max_depth=None, not 2"):
        forest.fit(*IRIS)
    forest.set_params(max_depth=None)
    with pytest.raises(treekit.DataError, match="other columns, levels or classes"):
        forest.fit(IRIS[0][:, :3], IRIS[1])


def test_voting_and_max_samples_are_parameters():
    hard = RandomForestClassifier(9, voting="hard", max_depth=1, random_state=0).fit(*IRIS)
    shares = hard.predict_proba(IRIS[0]) * 9
    np.testing.assert_allclose(shares, np.rint(shares), atol=1e-9)
    few = RandomForestClassifier(4, max_samples=30, random_state=0).fit(*IRIS)
    assert all(5 < tree.weight[0] < 60 for tree in few.model_.trees)  # 30 expected


@pytest.mark.matrix
def test_extra_trees_accuracy_is_close_to_scikit_learn():
    own = ExtraTreesRegressor(30, random_state=0, min_samples_leaf=3).fit(*DIABETES)
    assert own.model_.settings["splitter"] == "random"
    other = ensemble.ExtraTreesRegressor(30, random_state=0, min_samples_leaf=3).fit(*DIABETES)
    assert own.score(*DIABETES) == pytest.approx(other.score(*DIABETES), abs=0.05)


# ------------------------------------------------------------------ splits without a gain


def xor_table():
    """Five by five squares of two classes: no first split gains anything."""
    side = np.indices((10, 10)).reshape(2, -1)
    return side.T.astype(float), (side >= 5).sum(axis=0) % 2


@pytest.mark.kernels
@pytest.mark.parametrize("splitter", ["exact", "histogram", "random"])
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
@pytest.mark.parametrize("max_features", [None, 1])
def test_impure_nodes_are_split_without_a_gain(splitter, criterion, max_features):
    x, y = xor_table()
    own = DecisionTreeClassifier(
        criterion=criterion, splitter=splitter, max_features=max_features, random_state=0
    ).fit(x, y)
    assert own.score(x, y) == 1.0
    assert (own.tree_.impurity[own.tree_.children_left < 0] == 0.0).all()
    other = sklearn.tree.DecisionTreeClassifier(
        criterion=criterion, max_features=max_features, random_state=0
    ).fit(x, y)
    assert other.score(x, y) == 1.0
    needs_gain = DecisionTreeClassifier(criterion=criterion, min_gain=0.0).fit(x, y)
    assert needs_gain.get_n_leaves() == 1
    table = {"a": x[:, 0], "b": x[:, 1], "target": y}
    assert treekit.train(table, "target", criterion=criterion).n_leaves == 1
    assert treekit.train(table, "target", criterion=criterion, min_gain=None).n_leaves > 3


@pytest.mark.kernels
@pytest.mark.parametrize("splitter", ["exact", "histogram", "random"])
@pytest.mark.parametrize(
    "criterion", ["squared_error", "friedman_mse", "poisson", "absolute_error"]
)
def test_impure_regression_nodes_are_split_without_a_gain(splitter, criterion):
    if (splitter, criterion) == ("random", "absolute_error"):
        splitter = "histogram"  # quantiles are no sums, which random splits need
    x, y = xor_table()
    own = DecisionTreeRegressor(criterion=criterion, splitter=splitter, random_state=0)
    # For counts, a branch of zeros alone would predict an impossible mean of 0.
    own.fit(x, y + 1.0)
    np.testing.assert_array_equal(own.predict(x), y + 1.0)


@pytest.mark.kernels
def test_forests_and_several_outputs_are_split_without_a_gain():
    x, y = xor_table()
    both = np.column_stack([y, x[:, 0] >= 5]).astype(int)
    tree = DecisionTreeClassifier().fit(x, both)
    assert tree.score(x, both) == 1.0
    assert tree.get_n_leaves() == 4  # pure nodes stay leaves
    numbers = DecisionTreeRegressor().fit(x, both)
    np.testing.assert_array_equal(numbers.predict(x), both)
    forest = RandomForestClassifier(5, bootstrap=False, max_features=None, random_state=0)
    assert forest.fit(x, y).score(x, y) == 1.0
    assert ExtraTreesClassifier(5, random_state=0).fit(x, y).score(x, y) == 1.0
    assert RandomForestRegressor(20, random_state=0).fit(x, y).score(x, y) > 0.5


def test_equal_rows_and_pure_nodes_are_not_split():
    assert DecisionTreeClassifier().fit(np.zeros((8, 2)), [0, 1] * 4).get_n_leaves() == 1
    assert DecisionTreeClassifier().fit(np.arange(8.0)[:, None], [1] * 8).get_n_leaves() == 1
    assert DecisionTreeRegressor().fit(np.arange(8.0)[:, None], [0.1] * 8).get_n_leaves() == 1
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(60, 2)), rng.random(60)
    assert DecisionTreeRegressor().fit(x, np.full(60, 0.3), weights).get_n_leaves() == 1
    counts = (x[:, 0] > 0).astype(float)  # no leaf of zeros alone, whose deviance is infinite
    own = DecisionTreeRegressor(criterion="poisson").fit(x, counts)
    other = sklearn.tree.DecisionTreeRegressor(criterion="poisson", random_state=0).fit(x, counts)
    assert (own.predict(x) > 0).all()
    assert own.get_n_leaves() == other.get_n_leaves()
    with pytest.raises(SettingError, match=r"choose squared_error or friedman.*multioutput"):
        DecisionTreeRegressor(criterion="absolute_error").fit(x, x)


@pytest.mark.kernels
def test_absolute_error_trees_equal_scikit_learn():
    x, y = [[3], [5], [3], [8], [5]], [6, 7, 3, 4, 3]
    cases = [
        (x, y, [0.6, 0.3, 0.1, 1.0, 0.3], [2.5 / 2.3, 0.3 / 0.7, 1.2 / 1.6], [4, 6, 4]),
        (x, y, np.ones(5), [1.4, 1.5, 4 / 3], [4, 4.5, 4]),
        (x, y, None, [1.4, 1.5, 4 / 3], [4, 4.5, 4]),
        ([[k] for k in range(5)], [1, 1, 3, 1, 2], [3, 3, 2, 1, 2], [6 / 11, 0, 3 / 5], [1, 1, 2]),
    ]
    for rows, target, weights, impurity, value in cases:
        own = DecisionTreeRegressor(criterion="absolute_error", max_leaf_nodes=2)
        own.fit(rows, target, weights)
        np.testing.assert_allclose(own.tree_.impurity, impurity)
        np.testing.assert_array_equal(own.tree_.value.ravel(), value)


@pytest.mark.kernels
@pytest.mark.parametrize(
    "criterion", ["squared_error", "friedman_mse", "poisson", "absolute_error"]
)
@pytest.mark.parametrize("n_rows", [9, 8])
def test_missing_values_take_the_heavier_branch_or_the_right_of_equal_ones(criterion, n_rows):
    x = np.array([[0, 1, 2, 3, 8, 9, 11, 12, 15]]).T[:n_rows]
    y = np.array([0.1, 0.2, 0.3, 0.2, 1.4, 1.4, 1.5, 1.6, 2.6])[:n_rows]
    own = DecisionTreeRegressor(criterion=criterion, max_depth=1).fit(x, y)
    mean = np.median if criterion == "absolute_error" else np.mean
    np.testing.assert_allclose(own.predict([[np.nan]]), mean(y[4:]))
    labels = DecisionTreeClassifier(max_depth=1).fit(x, y > 1)
    assert labels.predict([[np.nan]]).tolist() == [True]


@pytest.mark.kernels
@pytest.mark.parametrize("max_samples", [None, 0.2, 200, 2.0])
def test_min_weight_fraction_leaf_is_a_fraction_of_the_drawn_rows(max_samples):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 10))
    y = x[:, 0] + rng.normal(size=1000)
    parameters = {"max_samples": max_samples, "min_weight_fraction_leaf": 0.1}
    if max_samples == 2.0:
        parameters["min_weight_fraction_leaf"] = 0.05
    drawn = 1000 if max_samples is None else {0.2: 200, 200: 200, 2.0: 2000}[max_samples]
    least = parameters["min_weight_fraction_leaf"] * drawn
    for weights in (None, np.full(1000, 3.0), np.full(1000, 0.37)):
        own = RandomForestRegressor(10, random_state=0, **parameters).fit(x, y, weights)
        weight = [tree.weight[0] for tree in own.model_.trees]
        unit = np.mean(weight) / drawn  # of a drawn row
        if weights is None:
            assert unit == pytest.approx(1.0, rel=0.1)
            assert own.model_.settings["min_weight_leaf"] == least
            sizes = [len(set(leaf)) for leaf in own.apply(x).T]
            other = ensemble.RandomForestRegressor(10, random_state=0, **parameters).fit(x, y)
            peer = [tree.get_n_leaves() for tree in other.estimators_]
            assert np.mean(sizes) == pytest.approx(np.mean(peer), rel=0.25)
        leaves = np.concatenate([t.weight[t.kind == 0] for t in own.model_.trees])
        assert leaves.min() >= 0.99 * own.model_.settings["min_weight_leaf"]


def test_fractional_min_samples_do_not_depend_on_max_samples():
    x, y = DIABETES
    parameters = {"max_samples": 0.4, "min_samples_leaf": 0.05, "min_samples_split": 0.3}
    settings = RandomForestRegressor(2, random_state=0, **parameters).fit(x, y).model_.settings
    assert settings["min_weight_leaf"] == 13.0  # as in scikit-learn, of all 250 rows
    assert settings["min_weight_split"] == 75.0


# ------------------------------------------------------------------ pruning


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_pruning_path_of_a_classifier_equals_scikit_learn(criterion):
    x, own, other = both(criterion, min_samples_leaf=6)
    y = load_breast_cancer().target[:250]
    mine, theirs = (tree.cost_complexity_pruning_path(x, y) for tree in (own, other))
    np.testing.assert_allclose(mine.ccp_alphas, theirs.ccp_alphas, atol=1e-12)
    np.testing.assert_allclose(mine.impurities[[0, -1]], theirs.impurities[[0, -1]], atol=1e-12)
    for k in (3, len(mine.ccp_alphas) // 2, -2):
        alpha = mine.ccp_alphas[k] * (1 + 1e-9)
        pruned = clone(own).set_params(ccp_alpha=alpha).fit(x, y)
        expected = clone(other).set_params(ccp_alpha=alpha).fit(x, y)
        assert pruned.get_n_leaves() == expected.get_n_leaves()
        np.testing.assert_array_equal(pruned.predict(x), expected.predict(x))
        at = np.searchsorted(mine.ccp_alphas, alpha, side="right") - 1
        tree = pruned.tree_
        leaves = tree.children_left < 0
        share = tree.weighted_n_node_samples[leaves] / len(x)
        assert mine.impurities[at] == pytest.approx((share * tree.impurity[leaves]).sum())


def test_pruning_path_of_a_regressor_equals_scikit_learn():
    x, y = DIABETES[0].astype(np.float32)[:, [2, 8]], DIABETES[1]
    own = DecisionTreeRegressor(max_depth=6)
    other = sklearn.tree.DecisionTreeRegressor(max_depth=6, random_state=0)
    mine, theirs = (tree.cost_complexity_pruning_path(x, y) for tree in (own, other))
    np.testing.assert_allclose(mine.ccp_alphas[-20:], theirs.ccp_alphas[-20:], rtol=1e-9)
    np.testing.assert_allclose(mine.impurities[-20:], theirs.impurities[-20:], rtol=1e-9)
    with pytest.raises(NotFittedError):
        own.cost_complexity_pruning_path()
    fitted = own.fit(x, y).cost_complexity_pruning_path()  # the same, and nothing is grown
    np.testing.assert_array_equal(fitted.ccp_alphas, mine.ccp_alphas)
    np.testing.assert_array_equal(fitted.impurities, mine.impurities)
    alpha = float(mine.ccp_alphas[-6:-4].mean())
    pruned = own.set_params(ccp_alpha=alpha).fit(x, y)
    assert pruned.get_n_leaves() == other.set_params(ccp_alpha=alpha).fit(x, y).get_n_leaves() > 1
    with pytest.raises(SettingError, match="was pruned by 'cost_complexity'"):
        pruned.cost_complexity_pruning_path()


def test_ccp_alpha_prunes_each_tree_of_a_forest():
    whole = RandomForestClassifier(4, random_state=0).fit(*IRIS)
    pruned = RandomForestClassifier(4, random_state=0, ccp_alpha=0.02).fit(*IRIS)
    assert 4 < pruned.model_.n_leaves < whole.model_.n_leaves


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"ccp_alpha": -1.0}, "at least 0"),
        ({"ccp_alpha": "big"}, "at least 0"),
        ({"ccp_alpha": 0.1, "pruner": "reduced_error"}, "give one of them"),
    ],
)
def test_unusable_ccp_alpha_is_refused(parameters, said):
    with pytest.raises(SettingError, match=said):
        DecisionTreeClassifier(**parameters).fit(*IRIS)


# ------------------------------------------------------------------ several outputs


@pytest.mark.matrix
def test_score_of_several_outputs_counts_rows_with_all_labels_right():
    x, y = IRIS
    marks = np.column_stack([y > 0, x[:, 0] > 6, x[:, 1] > 3]).astype(int)
    own = DecisionTreeClassifier(max_depth=2).fit(x, marks)
    other = sklearn.tree.DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, marks)
    weights = np.arange(len(y))
    assert own.score(x, marks, weights) == pytest.approx(other.score(x, marks, weights))
    assert own.n_classes_ == other.n_classes_.tolist() == [2, 2, 2]
    both = np.column_stack([y, marks[:, 1]])
    forest = RandomForestClassifier(4, random_state=0).fit(x, both)
    assert forest.score(x, both) == (forest.predict(x) == both).all(axis=1).mean()
    assert DecisionTreeClassifier().fit(x, y).n_classes_ == 3
    with pytest.raises(DataError, match="there are 2 outputs"):
        forest.score(x, y)


def test_importances_of_several_outputs_are_the_mean_over_them():
    x, y = IRIS
    both = np.column_stack([y, x[:, 1] > 3]).astype(int)
    forest = RandomForestClassifier(10, random_state=0, max_features=None).fit(x, both)
    found = forest.permutation_importances(x, both, out_of_bag=True)
    assert found.mean[1] > 0.1
    assert found.mean[2:].sum() > found.mean[0]


# ------------------------------------------------------------------ algorithms


@pytest.mark.parametrize(
    "name",
    [
        "stump",
        "random_forest",
        *(pytest.param(n, marks=pytest.mark.matrix) for n in ("c45", "cart", "extra_trees")),
    ],
)
def test_estimators_with_algorithm_equal_train(name):
    x, y = IRIS
    table = {f"x{f}": x[:, f] for f in range(4)} | {"target": y}
    if name in ("random_forest", "extra_trees"):
        estimator = RandomForestClassifier(4, algorithm=name, random_state=3)
        few = {"trees": 4}
    else:
        estimator = DecisionTreeClassifier(algorithm=name, random_state=3)
        few = {}
    own = estimator.fit(x, y).model_
    model = treekit.train(table, "target", task="classification", algorithm=name, seed=3, **few)
    differ = {key for key in model.settings if own.settings[key] != model.settings[key]}
    assert differ <= {"oob"}
    for one, other in zip(own.trees, model.trees, strict=True):
        same_tree(one, other)


@pytest.mark.matrix
def test_explicit_settings_override_an_algorithm():
    tree = DecisionTreeClassifier(algorithm="c45", max_depth=2, min_samples_leaf=9, pruner="none")
    settings = tree.fit(*IRIS).model_.settings
    assert (settings["max_depth"], settings["min_weight_leaf"]) == (2, 9.0)
    assert (settings["criterion"], settings["pruner"]) == ("gain_ratio", None)
    by_dict = DecisionTreeClassifier(train_settings={"algorithm": "stump", "max_depth": 3})
    assert by_dict.fit(*IRIS).model_.depth == 3
    # A default that is written out cannot be told from one that is not; so it is said there.
    plain = DecisionTreeClassifier(algorithm="id3", train_settings={"criterion": "gini"})
    assert plain.fit(*IRIS).model_.settings["criterion"] == "gini"
    path = DecisionTreeClassifier(algorithm="cart").cost_complexity_pruning_path(*IRIS)
    assert len(path.ccp_alphas) > 2


@pytest.mark.matrix
def test_a_forest_of_an_algorithm_has_the_requested_trees():
    forest = RandomForestClassifier(3, algorithm="cart", random_state=0).fit(*IRIS)
    assert (forest.model_.n_trees, forest.model_.missing) == (3, "surrogate")
    assert forest.model_.settings["pruner"] is None


def test_algorithm_incompatible_with_the_estimator_is_refused():
    with pytest.raises(SettingError, match="is one tree; use RandomForestClassifier"):
        DecisionTreeClassifier(algorithm="bagging").fit(*IRIS)
    with pytest.raises(SettingError, match="one of id3"):
        DecisionTreeClassifier(algorithm="c46").fit(*IRIS)
    x = IRIS[0].copy()
    x[3, 1] = np.nan
    tree = DecisionTreeClassifier(algorithm="id3")
    assert not tree.__sklearn_tags__().input_tags.allow_nan
    with pytest.raises(DataError, match="contains NaN"):
        tree.fit(x, IRIS[1])


# ------------------------------------------------------------------ parameters


def test_costs_priors_and_train_settings_are_passed_to_training():
    tree = DecisionTreeClassifier(
        costs={(0, 1): 5, (2, 1): 2.5}, priors={0: 1, 1: 1, 2: 2}, max_depth=2,
        train_settings={"min_weight_leaf": 10.0},
    ).fit(*IRIS)  # fmt: skip
    assert tree.model_.costs.tolist() == [[0, 10, 2], [2, 0, 2], [2, 5, 0]]
    assert tree.model_.settings["priors"] == {"0": 0.25, "1": 0.25, "2": 0.5}
    assert tree.model_.settings["min_weight_leaf"] == 10.0
    np.testing.assert_array_equal(tree.predict(IRIS[0]), tree.model_.predict(IRIS[0]))
    with pytest.raises(SettingError, match="give a dict of settings by name"):
        DecisionTreeClassifier(train_settings="x").fit(*IRIS)


def test_train_settings_override_every_parameter():
    further = {"voting": "hard", "max_leaves": 3, "class_weight": {0: 3}, "costs": "0>1=4"}
    forest = RandomForestClassifier(2, max_leaf_nodes=9, train_settings=further).fit(*IRIS)
    settings = forest.model_.settings
    assert (settings["voting"], settings["max_leaves"]) == ("hard", 3)
    assert settings["class_weight"] == {"0": 3.0, "1": 1.0, "2": 1.0}
    assert forest.model_.costs[0].tolist() == [0, 4, 1]


def test_every_parameter_is_declared_once_with_the_scikit_learn_default():
    for own, other in (
        (DecisionTreeClassifier, sklearn.tree.DecisionTreeClassifier),
        (DecisionTreeRegressor, sklearn.tree.DecisionTreeRegressor),
        (RandomForestClassifier, ensemble.RandomForestClassifier),
        (RandomForestRegressor, ensemble.RandomForestRegressor),
        (ExtraTreesClassifier, ensemble.ExtraTreesClassifier),
        (ExtraTreesRegressor, ensemble.ExtraTreesRegressor),
    ):
        mine, theirs = own().get_params(), other().get_params()
        shared = (set(mine) & set(theirs)) - {"splitter"}
        assert {name: mine[name] for name in shared} == {name: theirs[name] for name in shared}
        assert len(shared) >= 8
