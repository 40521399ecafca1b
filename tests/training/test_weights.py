"""The unit of row weights: integers are repeated rows, others are relative."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treekit
from treekit import DecisionTreeClassifier, DecisionTreeRegressor, RandomForestClassifier
from treekit.data.dataset import are_copies, find_weight_unit
from treekit.errors import TreekitWarning

FACTORS = [2.0**-40, 2.0**500, 1e-300, 1e290, 1 / 3, 0.1, 7.3]


def make_table(task="classification", rows=200):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2)).round(2)
    y = x.sum(axis=1) + rng.normal(size=rows) / 2
    labels = np.where(y > 0, "yes", "no") if task == "classification" else y
    return {"a": x[:, 0], "b": x[:, 1], "y": labels}


def make_weights(rows=200):
    weights = np.random.default_rng(1).random(rows)
    weights[:10] = 0.0
    return weights


def make_file(model, folder: Path) -> bytes:
    model.save(folder / "model.treekit")
    return (folder / "model.treekit").read_bytes()


SETTINGS = {
    "a tree": {},
    "limits": {"min_weight_leaf": 3.0, "min_weight_split": 10.0, "min_impurity_decrease": 1e-3},
    "a forest": {"ensemble": "forest", "trees": 4, "max_samples": 0.5},
    "bins": {"splitter": "histogram", "max_bins": 20},
    "cross-validation": {"pruner": "cost_complexity"},
    "a hold-out": {"pruner": "reduced_error"},
}


@pytest.mark.kernels
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_constant_factor_of_weights_does_not_change_the_model(settings, task, tmp_path):
    def train(weights):
        return treekit.train(make_table(task), "y", weights=weights, seed=0, **settings)

    weights = make_weights()
    expected = train(weights)
    assert expected.trees[0].n_leaves > 1
    for factor in [*FACTORS, 1 / weights.sum()]:
        assert make_file(train(weights * factor), tmp_path) == make_file(expected, tmp_path)


@pytest.mark.parametrize("weight", [1 / 200, 1e-200, 1e200, 0.3, 1e-310])
@pytest.mark.parametrize("ensemble", ["tree", "forest"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_equal_relative_weights_have_no_effect(weight, ensemble, task):
    given_ = {"ensemble": ensemble, "seed": 0} | ({"trees": 3} if ensemble == "forest" else {})
    table = make_table(task)
    plain = treekit.train(table, "y", **given_)
    weighed = treekit.train(table, "y", weights=np.full(200, weight), **given_)
    np.testing.assert_array_equal(plain.units, weighed.units)
    for one, other in zip(plain.trees, weighed.trees, strict=True):
        np.testing.assert_array_equal(one.threshold, other.threshold)
        np.testing.assert_array_equal(one.weight, other.weight)


def test_integer_weights_count_as_repeated_rows():
    weights = np.random.default_rng(0).integers(0, 4, 200)
    tree = treekit.train(make_table(), "y", weights=weights, seed=0).trees[0]
    assert tree.weight[0] == weights.sum()


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("limits", [{}, {"min_samples_leaf": 5}, {"min_weight_fraction_leaf": 0.1}])
def test_estimators_and_train_scale_relative_weights_equally(factor, limits):
    table, weights = make_table(), make_weights() * factor
    x = np.column_stack([table["a"], table["b"]])
    estimator = DecisionTreeClassifier(random_state=0, **limits).fit(x, table["y"], weights)
    # 190 rows have a positive weight.
    least = {"min_samples_leaf": 5.0, "min_weight_fraction_leaf": 19.0}
    ours = [least[name] for name in limits] or [None]
    model = treekit.train(table, "y", weights=weights, seed=0, min_weight_leaf=ours[0])
    np.testing.assert_array_equal(estimator.model_.units, model.units)
    np.testing.assert_array_equal(estimator.model_.trees[0].threshold, model.trees[0].threshold)


def test_class_weights_do_not_change_the_unit_of_integer_weights():
    table, weights = make_table(), np.full(200, 3)
    x = np.column_stack([table["a"], table["b"]])
    given_ = {"class_weight": {"yes": 2.5}, "random_state": 0}
    heavy = DecisionTreeClassifier(min_samples_leaf=30, **given_).fit(x, table["y"], weights)
    copies = DecisionTreeClassifier(min_samples_leaf=30, **given_)
    copies.fit(np.repeat(x, 3, axis=0), np.repeat(table["y"], 3))
    np.testing.assert_array_equal(heavy.model_.units, copies.model_.units)


def test_relative_weights_of_a_validation_table_are_scaled_equally(tmp_path):
    table, weights = make_table(), make_weights() + 0.5
    held = make_table() | {"w": np.arange(200) % 3 + 1.0}
    files = set()
    for factor in (1.0, 0.25, 1e-5):
        model = treekit.train(
            table | {"w": weights * factor}, "y", weights="w", seed=0, pruner="cost_complexity",
            validation=held | {"w": held["w"] * factor}, **{"pruner.rule": "one_se"},
        )  # fmt: skip
        files.add(make_file(model, tmp_path))
    assert len(files) == 1


def test_out_of_bag_importances_accept_the_relatively_weighted_training_rows():
    table = make_table() | {"w": make_weights() / 1e4}
    model = treekit.train(table, "y", weights="w", ensemble="forest", trees=5, seed=0)
    found = treekit.permutation_importances(model, table, weights="w", out_of_bag=True)
    assert found.score > 0.6
    x = np.column_stack([table["a"], table["b"]])
    forest = RandomForestClassifier(5, random_state=0).fit(x, table["y"], table["w"])
    forest.permutation_importances(x, table["y"], table["w"], out_of_bag=True)


def test_split_scores_do_not_depend_on_the_scale_of_weights():
    table, weights = make_table(), make_weights()
    one, other = (
        treekit.split_scores(table, "y", weights=weights * factor) for factor in (1.0, 1e-9)
    )
    assert one == other
    assert one.weight == pytest.approx(190)


# ---------------------------------------------------------------- limits and messages


def test_integer_weights_below_the_minimum_node_weight_warn():
    table = make_table(rows=20)
    expected = (
        r"add up to 20, but a split needs 50 \(min_weight_split\).*lower min_weight_split, or"
    )
    with pytest.warns(TreekitWarning, match=expected):
        model = treekit.train(table, "y", weights=np.ones(20), min_weight_split=50, seed=0)
    assert model.n_leaves == 1
    with pytest.warns(TreekitWarning, match=r"needs 22 \(twice min_weight_leaf\)"):
        treekit.train(table, "y", weights=np.ones(20), min_weight_leaf=11, seed=0)
    with pytest.warns(TreekitWarning, match=r"needs 50 \(min_weight_split\)"):
        DecisionTreeRegressor(min_samples_split=50).fit(np.eye(20), np.arange(20), np.ones(20))


def test_a_leaf_of_exactly_k_mean_weights_satisfies_a_limit_of_k():
    # Sums of rounded weights may be just below the limit.
    x = np.arange(20.0)
    weights = np.tile([0.1, 0.3, 0.2], 7)[:20]
    weights = np.r_[weights[:9], weights[:9], 0.2, 0.2]
    weights *= 20 / weights.sum()
    for factor in FACTORS:
        model = treekit.train(
            {"x": x, "y": x >= 9}, "y", weights=weights * factor, min_weight_leaf=9.0, seed=0
        )
        assert model.n_leaves == 2


def test_help_states_the_unit_of_weights():
    from treekit.training import SETTINGS as ALL

    help_text = {setting.name: setting.help for setting in ALL}["min_weight_split"]
    assert "copies of rows" in help_text
    assert "mean 1" in help_text


# ---------------------------------------------------------------- unit


@given(
    st.lists(st.floats(0, 1e6) | st.sampled_from([0.1, 0.25, 1 / 3]), min_size=2, max_size=50),
    st.integers(-900, 900),
    st.randoms(),
)
def test_scaled_weights_do_not_depend_on_order_nor_powers_of_two(given_, power, random):
    weights = np.array(given_)
    weights[weights < 1e-30] = 0.0  # its products would be subnormal
    unit = find_weight_unit(weights)
    if not weights.any() or unit is None:
        assert are_copies(weights)
        return
    scaled = unit.scale(weights)
    positive = weights > 0
    assert scaled[positive].mean() == pytest.approx(1.0, rel=1e-9)
    np.testing.assert_allclose(
        scaled[positive] / scaled.max(), weights[positive] / weights.max(), rtol=5e-10
    )
    order = random.sample(range(len(weights)), len(weights))
    other = np.ldexp(weights[order], power)
    found = find_weight_unit(other, relative=True)
    assert found is not None
    np.testing.assert_array_equal(found.scale(other), scaled[order])
