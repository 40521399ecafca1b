"""Outputs of different magnitude: one fixed-point step each."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treekit
from tests.extremes import EXTREMES
from treekit import DecisionTreeRegressor, RandomForestRegressor
from treekit.data.schema import Column, Output, Schema
from treekit.documents import make_listing, render_listing
from treekit.documents.json_rules import read_json
from treekit.errors import ModelError
from treekit.model.builder import build_tree, leaf, threshold
from treekit.model.fixed_point import fit_regression_grid, fit_sum_grid, list_grid_limits
from treekit.model.model import hash_model, make_model
from treekit.model.validation import check_model
from treekit.rules import parse_rules

UNEQUAL = [name for name in EXTREMES if "unequal" in name]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("ratio", [1.0, 1e3, 1e6, 1e9, 1e13, 1e16, 1e100])
def test_outputs_of_different_magnitudes_keep_their_precision(ratio, dtype):
    x = np.arange(8.0).reshape(-1, 1)
    y = np.c_[np.arange(1, 9) * 1e-3, np.arange(1, 9) * 1e-3 * ratio]
    found = DecisionTreeRegressor(random_state=0, dtype=dtype).fit(x, y).predict(x)
    np.testing.assert_allclose(found, y, rtol=1e-12)


@pytest.mark.parametrize("n_trees", [3, 300])
@pytest.mark.parametrize("weighted", [False, True])
def test_forest_predictions_of_an_output_do_not_depend_on_other_outputs(n_trees, weighted):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    weights = rng.random(60) if weighted else None
    given_ = {"n_estimators": n_trees, "random_state": 0, "max_depth": 4, "max_features": 1}
    given_["bootstrap"] = False  # samples depend on the targets
    alone = RandomForestRegressor(**given_).fit(x, np.c_[y, y], weights)
    beside = RandomForestRegressor(**given_).fit(x, np.c_[y, y * 2.0**50], weights)
    np.testing.assert_array_equal(alone.predict(x)[:, 0], beside.predict(x)[:, 0])
    np.testing.assert_array_equal(beside.predict(x)[:, 1], beside.predict(x)[:, 0] * 2.0**50)


def test_numbers_of_similar_size_share_a_step():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    model = DecisionTreeRegressor(random_state=0).fit(x, np.c_[y, y * 7, y]).model_
    assert isinstance(model.exponent, int)
    np.testing.assert_array_equal(model.units[:, 0], model.units[:, 2])


def test_all_zero_outputs_share_the_step_of_other_outputs():
    limit = list_grid_limits(1, "float32")[0]
    assert fit_regression_grid([1.0, 0.0, 2.0**40, 0.0], limit).exponent == (-48, -8, -8, -8)
    assert fit_regression_grid([0.0, 0.0], limit).exponent == 0
    assert isinstance(fit_sum_grid(np.array([[1.0, 1e20]])).exponent, int)


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=5), st.integers(1, 1000))
def test_output_steps_fit_the_largest_value_and_nearly_the_single_grid(largest, n_trees):
    for limit in list_grid_limits(n_trees, "float32"):
        grid = fit_regression_grid(largest, limit)
        each = np.broadcast_to(grid.exponent, len(largest))
        assert (np.abs(grid.to_grid(largest)) <= grid.bound).all()
        for own, exponent in zip(largest, each.tolist(), strict=True):
            if own > 0:
                alone = fit_regression_grid(own, limit).exponent
                assert alone <= exponent <= alone + 3


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("name", UNEQUAL)
def test_model_file_keeps_the_step_of_each_output(name, tmp_path):
    model = EXTREMES[name]()
    assert len(model.exponent) == 4
    model.save(tmp_path / "model.treekit")
    again = treekit.load(tmp_path / "model.treekit")
    assert again.exponent == model.exponent
    assert hash_model(again) == hash_model(model)
    with zipfile.ZipFile(tmp_path / "model.treekit") as archive:
        assert json.loads(archive.read("model.json"))["version"] == (
            5 if model.has_wide_sums or model.part_bits else 4
        )


@pytest.mark.parametrize("name", UNEQUAL)
def test_rule_text_keeps_the_step_of_each_output(name):
    rules = EXTREMES[name]().rules()
    again = parse_rules("".join(rules.text()))
    assert again.exponent == rules.exponent
    np.testing.assert_array_equal(again.units, rules.units)
    if name != "fractional_unequal":
        again = read_json("".join(render_listing("json", make_listing(EXTREMES[name]()))))
        assert again.exponent == rules.exponent
        np.testing.assert_array_equal(again.units, rules.units)


def test_exponents_must_fit_the_outputs():
    schema = Schema((Column("x"),), task="regression", more=(Output("b"),))
    tree = build_tree(threshold("x", 0.5, leaf([1.0, 1e20]), leaf([2.0, 3e20])), schema)
    model = make_model(schema, [tree])
    check_model(model)
    with pytest.raises(ModelError, match="3 fixed-point exponents"):
        check_model(replace(model, exponent=(-48, 18, 18)))
    with pytest.raises(ModelError, match="out of range"):
        check_model(replace(model, exponent=(-48, 1100)))
