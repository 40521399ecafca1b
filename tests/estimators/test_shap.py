"""SHAP values of converted models equal their definition, and those of scikit-learn's trees."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn import ensemble as sk_ensemble
from sklearn.datasets import load_iris, make_regression

import treekit
from treekit import AbsentError, DecisionTreeRegressor, RandomForestClassifier
from treekit.data import DEMO_TARGET, demo_table
from treekit.model.tree import Split

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import shap

pytestmark = pytest.mark.matrix


def find_branch(tree: Any, node: int, value: float) -> int:
    """Return the branch that a cell takes at a node."""
    if math.isnan(value):
        return int(tree.missing[node])
    if tree.kind[node] == Split.MISSING:
        return 1
    if tree.kind[node] == Split.THRESHOLD:
        return int(value > tree.threshold[node])
    branch = int(tree.level_branch[tree.level_offsets[node] + int(value)])
    return branch if branch >= 0 else int(tree.missing[node])


def expect(model: Any, tree: Any, units: Any, row: Any, known: set[int], node: int = 0) -> Any:
    """Return a tree's expected leaf value, given the cells of some columns (Lundberg 2020)."""
    if tree.kind[node] == Split.LEAF:
        return units[np.searchsorted(tree.leaves, node)]
    first, count = tree.first_child[node], tree.n_children[node]
    if int(tree.feature[node]) in known:
        branch = find_branch(tree, node, row[tree.feature[node]])
        return expect(model, tree, units, row, known, first + branch)
    children = range(first, first + count)
    parts = [tree.weight[c] * expect(model, tree, units, row, known, c) for c in children]
    return sum(parts) / tree.weight[node]


def shapley_values(model: Any, row: Any) -> Any:
    """Compute Shapley values by all subsets of the columns."""
    n = len(row)
    total = np.zeros((n, model.units.shape[1]))
    for at, tree in enumerate(model.trees):
        units = model.tree_units(at) / (model.units_each * model.n_trees)
        found = {
            known: expect(model, tree, units, row, set(known))
            for size in range(n + 1)
            for known in itertools.combinations(range(n), size)
        }
        for known, value in found.items():
            for own in set(range(n)) - set(known):
                rest = n - len(known) - 1
                share = math.factorial(len(known)) * math.factorial(rest) / math.factorial(n)
                total[own] += share * (found[tuple(sorted((*known, own)))] - value)
    return total


@pytest.mark.parametrize("nominal_splits", ["subset", "multiway", "one_vs_rest"])
def test_shap_values_with_categories_and_missing_values_equal_the_definition(
    nominal_splits: str,
) -> None:
    rng = np.random.default_rng(0)
    n = 160
    x, z = rng.normal(size=(2, n))
    x[rng.random(n) < 0.2] = np.nan
    colour = rng.choice(["red", "green", "blue", "white", "black"], n).astype(object)
    colour[rng.random(n) < 0.1] = None
    y = (np.nan_to_num(x, nan=1.0) + z > 0) ^ np.isin(colour, ["green", "black"])
    rows = {"x": x, "colour": colour, "z": z}
    model = treekit.train(
        {**rows, "y": y}, "y", ensemble="forest", trees=3, seed=0, max_depth=5,
        nominal_splits=nominal_splits,
    )  # fmt: skip
    assert any((tree.kind == Split.MISSING).any() for tree in model.trees) or np.isnan(x).any()
    cells = treekit.shap_inputs(model, rows)
    explainer = shap.TreeExplainer(treekit.to_shap(model))
    values = explainer(cells).values
    np.testing.assert_allclose(
        values.sum(axis=1) + explainer.expected_value, model.predict_proba(rows), atol=1e-9
    )
    for at in range(0, n, 16):
        np.testing.assert_allclose(
            values[at], shapley_values(model, cells.to_numpy()[at]), atol=1e-9
        )


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_imported_scikit_learn_forest_has_its_shap_values(task: str) -> None:
    x, y = make_regression(200, 6, noise=10, random_state=0)
    x = x.astype(np.float32)
    theirs = sk_ensemble.RandomForestRegressor(10, max_depth=5, random_state=0)
    if task == "classification":
        y = np.digitize(y, [-50, 50])
        theirs = sk_ensemble.RandomForestClassifier(10, max_depth=5, random_state=0)
    other = shap.TreeExplainer(theirs.fit(x, y))(x).values
    own = shap.Explainer(treekit.to_shap(treekit.read_model(theirs)))(x).values
    np.testing.assert_allclose(own.reshape(other.shape), other, rtol=1e-6, atol=1e-6)


def test_to_shap_gives_equal_values_for_estimator_and_model() -> None:
    x, y = make_regression(200, 5, noise=10, random_state=0)
    tree = DecisionTreeRegressor(max_depth=5, random_state=0).fit(x, y)
    explainer = shap.TreeExplainer(treekit.to_shap(tree))
    values = explainer(x).values.reshape(x.shape)
    base = np.ravel(explainer.expected_value)
    np.testing.assert_allclose(values.sum(axis=1) + base, tree.predict(x), rtol=1e-9)


def test_to_shap_explains_the_demo_forest() -> None:
    model = treekit.train(demo_table(), DEMO_TARGET, ensemble="forest", trees=20, seed=0)
    explainer = shap.TreeExplainer(treekit.to_shap(model))
    cells = treekit.shap_inputs(model, demo_table())
    found = explainer(cells)
    np.testing.assert_allclose(
        found.values.sum(axis=1) + explainer.expected_value,
        model.predict_proba(demo_table()),
        atol=1e-9,
    )


def test_models_without_shap_form_are_refused() -> None:
    x, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(3, splitter="oblique", random_state=0).fit(x, y)
    with pytest.raises(AbsentError, match="splits on sums of columns"):
        treekit.to_shap(forest)
    holes = RandomForestClassifier(3, missing="fractional", random_state=0).fit(x, y)
    with pytest.raises(AbsentError, match="missing='fractional'"):
        treekit.to_shap(holes)
    with pytest.raises(TypeError, match="got list"):
        treekit.to_shap([])
