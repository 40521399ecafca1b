"""Monotonic constraints: in growth, after pruning, and in the votes of a forest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import tree as sklearn_tree

import treekit
from tests.examples import examples
from tests.growing import grow
from tests.reference import grow as reference
from treekit.data.schema import Column, Schema
from treekit.estimators import DecisionTreeClassifier, DecisionTreeRegressor
from treekit.grow.tree_builder import clip_tree, is_monotonic
from treekit.model.builder import build_tree, leaf, threshold

SIGNS = st.sampled_from([-1, 0, 1])


def rows_of(seed: int, n: int, *, classes: bool) -> tuple[Any, Any]:
    """Three columns of small numbers, and a target that follows them loosely."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 12, (n, 3)).astype(np.float64)
    y = x[:, 0] - 0.7 * x[:, 1] + 3.0 * np.sin(x[:, 2]) + rng.normal(0, 4, n)
    return x, (y > np.median(y)).astype(int) if classes else y


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("classes", [False, True])
def test_monotonic_trees_equal_scikit_learn(seed: int, classes: bool) -> None:
    x, y = rows_of(seed, 160, classes=classes)
    signs = np.random.default_rng(seed).permutation([1, -1, 0]).tolist()
    # Leaves of some rows, so that no two columns divide a node alike.
    how: dict[str, Any] = {"min_samples_leaf": 7, "random_state": 0}
    own: Any = DecisionTreeClassifier if classes else DecisionTreeRegressor
    other: Any = getattr(sklearn_tree, own.__name__)
    tree = own(monotonic_cst=signs, **how).fit(x, y)
    expected = other(monotonic_cst=signs, **how).fit(x, y)
    says = "predict_proba" if classes else "predict"
    np.testing.assert_allclose(getattr(tree, says)(x), getattr(expected, says)(x), atol=2.0**-23)
    free = own(**how).fit(x, y)
    assert not np.allclose(getattr(free, says)(x), getattr(tree, says)(x))


@st.composite
def bounded_problems(draw: st.DrawFn) -> reference.Problem:
    """Small tables with a number or two, a nominal column, missing cells and weights."""
    n = draw(st.integers(4, 14))
    number = st.one_of(st.none(), st.integers(0, 4).map(float))
    columns: list[list[Any]] = [
        draw(st.lists(number, min_size=n, max_size=n)) for _ in range(draw(st.integers(1, 2)))
    ]
    signs = [draw(SIGNS) for _ in columns]
    levels: list[int | None] = [None] * len(columns)
    if draw(st.booleans()):
        columns.append(draw(st.lists(st.sampled_from([None, 0, 1, 2]), min_size=n, max_size=n)))
        levels.append(3)
        signs.append(0)
    classes = draw(st.booleans())
    y = draw(st.lists(st.integers(0, 1 if classes else 4), min_size=n, max_size=n))
    return reference.Problem(
        columns, y, levels, "gini" if classes else "squared_error", 2 if classes else 0,
        weights=draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)),
        min_weight_leaf=draw(st.sampled_from([1.0, 2.0])), signs=signs,
    )  # fmt: skip


@given(bounded_problems())
@settings(max_examples=examples(150), deadline=None)
def test_splits_and_bounds_equal_the_slow_search(problem: reference.Problem) -> None:
    grown, expected = grow(problem), reference.grow(problem)
    waiting = [(0, expected)]
    while waiting:
        node, want = waiting.pop()
        value = grown.tree.value[node]
        says = value[1] / value.sum() if problem.n_classes else value[0]
        assert abs(says - reference.says_within(problem, want)) < 1e-9
        cut = want.cut
        if cut is None:
            assert grown.tree.kind[node] == 0
            continue
        assert (grown.tree.feature[node], grown.tree.missing[node]) == (cut.feature, cut.missing)
        first = int(grown.tree.first_child[node])
        waiting += [(first + b, child) for b, child in enumerate(want.children)]


def answers(model: treekit.Model, columns: list[str], x: Any) -> Any:
    table = {name: x[:, k] for k, name in enumerate(columns)}
    if model.schema.task == "regression":
        return model.predict(table)
    return model.predict_proba(table)[:, 1]


def assert_rises(model: treekit.Model, x: Any, signs: list[int]) -> None:
    """No answer falls when one cell of a row rises along the constraint of its column.

    In a forest, whose trees' shares are rounded before they are added, by at most a unit: the
    class weights of clipped leaves are rounded with their weight, to shares that differ by an ulp.
    """
    slack = 0.0 if model.n_trees == 1 else 2.0**-23
    names = list(model.schema.names)
    for column, sign in enumerate(signs):
        if sign == 0:
            continue
        grid = np.unique(x[~np.isnan(x[:, column]), column])
        rows = np.repeat(x, len(grid), axis=0)
        rows[:, column] = np.tile(grid, len(x))
        says = answers(model, names, rows).reshape(len(x), len(grid))
        assert (np.diff(says, axis=1) * sign >= -slack).all()


HOW: list[Any] = [
    {"missing": "direction"},
    {"missing": "direction", "splitter": "histogram", "max_bins": 5, "max_leaves": 9},
    pytest.param({"missing": "fractional"}, marks=pytest.mark.matrix),
    pytest.param({"missing": "surrogate"}, marks=pytest.mark.matrix),
    pytest.param(
        {"splitter": "random", "ensemble": "forest", "trees": 5}, marks=pytest.mark.matrix
    ),
    {"ensemble": "forest", "trees": 3, "max_features": 1},
    {"pruner": "cost_complexity", "pruner.alpha": 0.01},
    {"pruner": "reduced_error"},
]


@pytest.mark.kernels
@pytest.mark.parametrize("how", HOW, ids=lambda how: " ".join(map(str, how.values())))
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_predictions_satisfy_monotonic_constraints(task: Any, how: dict[str, Any]) -> None:
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x, y = rows_of(seed, 150, classes=task == "classification")
        x[rng.random(x.shape) < 0.15] = np.nan
        table = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}
        model = treekit.train(table, "y", task=task, monotonic="a=1,b=-1", seed=seed, **how)
        assert model.n_leaves >= 3
        assert_rises(model, x, [1, -1, 0])
        if "ensemble" in how or "pruner" in how:
            continue
        free = treekit.train(table, "y", task=task, seed=seed, **how)
        with pytest.raises(AssertionError):
            assert_rises(free, x, [1, -1, 0])


@pytest.mark.parametrize("seed", range(4))
def test_constraints_hold_after_subtree_raising(seed: int) -> None:
    x, y = rows_of(seed, 200, classes=True)
    table = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}
    how = {"task": "classification", "pruner": "error_based", "seed": 0}
    assert_rises(treekit.train(table, "y", monotonic="a=1,b=-1", **how), x, [1, -1, 0])


def test_clip_tree_averages_leaves_that_violate_a_constraint() -> None:
    schema = Schema(columns=(Column("x"),), target="y", task="regression")
    tree = build_tree(threshold("x", 0.5, leaf(3.0), leaf(1.0)), schema)
    assert is_monotonic(tree, np.array([-1.0]))
    assert not is_monotonic(tree, np.array([1.0]))
    assert clip_tree(tree, np.array([1.0])).value[1:, 0].tolist() == [2.0, 2.0]
    assert clip_tree(tree, np.array([-1.0])).value[1:, 0].tolist() == [3.0, 1.0]


TABLE = {"x": [1.0, 2.0, 3.0, 4.0], "colour": ["a", "b", "a", "b"], "y": ["n", "n", "p", "p"]}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"monotonic": "z=1"}, "column 'z'"),
        ({"monotonic": "x=2"}, "'x' is 2"),
        ({"monotonic": "colour=1"}, "without an order"),
        ({"monotonic": "x=1", "nominal_splits": "multiway"}, "binary splits"),
        ({"monotonic": "x=1", "splitter": "oblique"}, "splitter 'oblique' does not support"),
        ({"monotonic": "x=1", "classes": ["n", "p", "q"]}, "has 3"),
    ],
)
def test_unsatisfiable_monotonic_constraints_are_refused(
    settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(treekit.SettingError, match=says):
        treekit.train(TABLE, "y", **settings)


def test_rank_criteria_and_plugin_splitters_are_refused() -> None:
    table = {"x": TABLE["x"], "y": [1.0, 2.0, 3.0, 5.0]}
    with pytest.raises(treekit.SettingError, match="'absolute_error' computes other leaf values"):
        treekit.train(table, "y", monotonic={"x": 1}, criterion="absolute_error")
    own = treekit.Splitter("own", lambda: treekit.SplitterFunctions(lambda node, c, rng: None))
    with pytest.raises(treekit.SettingError, match="splitter 'own' does not support monotonic"):
        treekit.train(table, "y", monotonic={"x": 1}, splitter=own)


def test_models_record_their_monotonic_constraints() -> None:
    model = treekit.train(TABLE, "y", monotonic={"x": 1}, seed=0)
    assert model.settings["monotonic"] == {"x": 1}
    assert treekit.train(TABLE, "y", monotonic="x=0", seed=0).settings["monotonic"] is None


def test_monotonic_cst_takes_one_sign_per_column() -> None:
    with pytest.raises(treekit.SettingError, match="one sign for each of the 3"):
        DecisionTreeRegressor(monotonic_cst=[1, 0]).fit(np.eye(3), [1.0, 2.0, 3.0])
    by_name = DecisionTreeRegressor(monotonic_cst={"x1": -1}).fit(np.eye(3), [1.0, 2.0, 3.0])
    assert by_name.model_.settings["monotonic"] == {"x1": -1}
