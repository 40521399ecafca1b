"""Numbers of a target that are far from the others: kept, warned of or refused by name."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import treekit
from treekit import DataError, DecisionTreeRegressor, RandomForestRegressor
from treekit.errors import TreekitWarning

SMALL = np.arange(1, 8) / 10


def train(y, weights=None, **settings):
    table = {"x": np.arange(float(len(y))), "y": np.asarray(y, dtype=np.float64)}
    return treekit.train(table, "y", task="regression", weights=weights, seed=0, **settings)


def find_refusal_or_error(y, weights=None, **settings):
    """Return the message of a refusal or warning, else the largest relative error of a leaf."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", TreekitWarning)
        try:
            model = train(y, weights, **settings)
        except (DataError, TreekitWarning) as error:
            return str(error)
    found = model.predict({"x": np.arange(float(len(y)))})
    known = np.asarray(y) != 0.0
    assert model.n_leaves == len(np.unique(y))
    return float(np.abs(found / y - 1.0)[known].max(initial=0.0))


@given(
    power=st.floats(0, 25),
    sign=st.sampled_from([-1, 1]),
    place=st.integers(0, 7),
    dtype=st.sampled_from(["float32", "float64"]),
    weighted=st.booleans(),
)
@example(power=4.25, sign=-1, place=5, dtype="float32", weighted=True)  # a light row's error
def test_a_far_number_is_named_or_all_leaves_keep_nine_digits(power, sign, place, dtype, weighted):
    y = np.insert(SMALL, place, sign * 10.0**power)
    weights = np.linspace(0.5, 1.5, 8) if weighted else None
    found = find_refusal_or_error(y, weights, dtype=dtype)
    if isinstance(found, str):
        assert f"row {place} is {y[place]:.6g}" in found
        assert "drop the rows with extreme values if these are errors" in found
        assert power > 3
    else:
        assert found <= 1e-9


@pytest.mark.parametrize("power", [3.0, 3.5, 3.9, 4.2])
def test_rows_of_light_weight_keep_nine_digits_or_the_far_number_is_named(power):
    y = np.insert(SMALL, 5, -(10.0**power))
    found = find_refusal_or_error(y, np.geomspace(0.1, 1.0, 8))
    assert "row 5 is" in found if isinstance(found, str) else found <= 1e-9


@pytest.mark.parametrize("value", [1e20, -9999e30, 1e120])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.4])
@pytest.mark.parametrize("ensemble", ["tree", "forest"])
def test_fill_values_are_refused_by_row(value, share, ensemble):
    rng = np.random.default_rng(0)
    y = rng.normal(size=1000)
    rows = np.sort(rng.permutation(1000)[: int(share * 1000)])
    y[rows] = value
    settings = {"ensemble": ensemble} | ({"trees": 10} if ensemble == "forest" else {})
    with pytest.raises(DataError, match=re.escape(f"row {rows[0]} is {value:.6g}")):
        train(y, **settings)


def test_a_fill_value_in_most_rows_warns():
    y = np.where(np.arange(100) % 5 < 3, 1e20, np.random.default_rng(0).normal(size=100))
    with pytest.warns(TreekitWarning, match=r"row 0 is 1e\+20"):
        train(y)


@pytest.mark.parametrize("y", [[-1e-3, 1e-3, 1e10], [0.1, 1e20], [5.0, 5.0, 1e20]])
def test_the_same_holds_for_few_rows(y):
    with pytest.raises(DataError, match="too much for ordinary values"):
        train(y)


def test_rows_without_weight_do_not_count():
    y, weights = np.r_[SMALL, 1e20, 0.8], np.r_[np.ones(7), 0.0, 1.0]
    model = train(y, weights)
    np.testing.assert_allclose(model.predict({"x": np.arange(7.0)}), SMALL, rtol=1e-9)
    with pytest.raises(DataError, match=r"row 8"):
        train(np.r_[SMALL, 1e20, 1e20], weights)


def test_each_output_is_checked_and_named():
    y = np.column_stack([SMALL * 1e15, np.r_[SMALL[:-1], 1e20]])
    x = np.arange(7.0).reshape(-1, 1)
    for estimator in (DecisionTreeRegressor(), RandomForestRegressor(3)):
        with pytest.raises(DataError, match=r"target 'target1' .* row 6"):
            estimator.fit(x, y)


@pytest.mark.parametrize("estimator", [DecisionTreeRegressor(), RandomForestRegressor(3)])
def test_estimators_warn_and_refuse(estimator):
    x = np.arange(8.0).reshape(-1, 1)
    with pytest.raises(DataError, match="row 7 "):
        estimator.fit(x, np.r_[SMALL, 1e20])
    with pytest.warns(TreekitWarning, match="row 7 "):
        estimator.fit(x, np.r_[SMALL, 1e9])


# ---------------------------------------------------------------- ordinary targets

_RNG = np.random.default_rng(0)
ORDINARY = {
    "normal": _RNG.normal(size=1000),
    "incomes": np.exp(_RNG.normal(10, 2, size=1000)),
    "incomes from 1 to 1e6": np.rint(10 ** _RNG.uniform(0, 6, size=1000)),
    "sizes from 1 to 1e6": 10 ** _RNG.uniform(0, 6, size=1000),
    "no claim, or one of 1e6": np.where(np.arange(1000) % 50, 0.0, 1e6),
    "claims": np.where(np.arange(1000) % 9, 0.0, np.exp(_RNG.normal(5, 2, size=1000))),
    "mean 1e8": 1e8 + _RNG.normal(size=1000),
    "constant": np.full(1000, 3.5),
    "zeros and a large number": np.r_[np.zeros(999), 1e20],
    "probabilities": np.exp(-np.linspace(0, 10, 1000)),
}


@pytest.mark.parametrize("missing", ["direction", "fractional"])
@pytest.mark.parametrize("n_trees", [1, 100, pytest.param(1000, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_targets_are_trained_without_a_word(name, n_trees, missing):
    settings = {"missing": missing, "max_depth": 3}
    if n_trees > 1:
        settings |= {"ensemble": "forest", "trees": n_trees, "oob": False}
    if missing == "fractional" and n_trees > 1 and "from 1" in name:
        # The mass of a row takes 24 bits: numbers near 1 are lost.
        with pytest.warns(TreekitWarning, match="in .* rows; drop"):
            train(ORDINARY[name], **settings)
        return
    train(ORDINARY[name], **settings)


@given(
    power=st.floats(0, 15),
    rows=st.sampled_from([20, 200]),
    signs=st.sampled_from([(1,), (-1,), (0, 1)]),
    weighted=st.booleans(),
    dtype=st.sampled_from(["float32", "float64"]),
)
@example(power=9.0, rows=200, signs=(1,), weighted=False, dtype="float64")
@example(power=12.0, rows=200, signs=(-1,), weighted=False, dtype="float32")
def test_sizes_over_many_powers_of_ten_keep_their_digits_or_are_named(
    power, rows, signs, weighted, dtype
):
    rng = np.random.default_rng(rows)
    y = rng.choice(signs, size=rows) * 10 ** np.r_[power, rng.uniform(0, power, size=rows - 1)]
    weights = np.linspace(0.5, 1.5, rows) if weighted else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = train(y, weights, dtype=dtype)
    if caught:
        assert "transform the target, for example by a logarithm" in str(caught[0].message)
        assert power > 6
        return
    known = y != 0.0
    found = model.predict({"x": np.arange(float(rows))})[known]
    errors = np.abs(found / y[known] - 1.0)
    assert np.count_nonzero(errors > 1e-6) <= 0.05 * np.count_nonzero(known)
    assert errors.max() <= 1e-2


def test_whole_sizes_from_1_to_1e9_are_exact():
    y = np.rint(10 ** _RNG.uniform(0, 9, size=1000))
    found = train(y, dtype="float64").predict({"x": np.arange(1000.0)})
    np.testing.assert_allclose(found, y, rtol=1e-7)


@pytest.mark.parametrize("criterion", ["absolute_error", "poisson"])
def test_other_criteria_are_checked(criterion):
    train(ORDINARY["incomes"], criterion=criterion, max_depth=3)
    with pytest.raises(DataError, match="row 7 "):
        train(np.r_[SMALL, 1e20], criterion=criterion)


# ---------------------------------------------------------------- steps of forests


@pytest.mark.parametrize("n_trees", [10, 100, 1000])
def test_leaves_of_forests_are_kept_to_nine_digits(n_trees):
    # Two limbs keep ordinary leaves of few trees, three those of many.
    y = _RNG.normal(size=60)
    model = train(y, ensemble="forest", trees=n_trees, oob=False)
    values = np.concatenate([tree.value[tree.leaves, 0] for tree in model.trees])
    kept = np.ldexp(model.units[:, 0].astype(float), model.exponent)
    assert np.abs(kept - values).max() <= 1e-9 * np.median(np.abs(values))
    assert (np.abs(model.units).max() * n_trees <= 2**53).all()


def test_a_forest_with_three_limbs_is_exported_bit_for_bit(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), np.exp(rng.normal(0, 3, size=60))
    forest = RandomForestRegressor(400, max_depth=3, random_state=0).fit(x, y).model_
    assert np.abs(forest.units).max() > (2**24 // 400) << 16
    treekit.export(forest, "onnx", tmp_path / "m.onnx")
    treekit.export(forest, "c", tmp_path / "m.c")
    report = treekit.verify(forest, [tmp_path / "m.onnx", tmp_path / "m.c"])
    assert report.equal
