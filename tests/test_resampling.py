"""The bootstrap of any statistic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treekit
from treekit import DataError, SettingError, resampling

DATA = np.random.default_rng(5).exponential(size=60)


def test_the_standard_error_of_a_mean_is_the_textbook_s():
    # Efron and Tibshirani 1993, section 2.1: the plug-in spread over the root of n.
    found = treekit.bootstrap(np.mean, DATA, 4000, seed=0)
    assert found.estimate == DATA.mean()
    assert found.standard_error == pytest.approx(DATA.std() / 60**0.5, rel=0.05)
    assert found.variance == pytest.approx(found.standard_error**2)
    assert abs(found.bias) < found.standard_error / 10
    low, high = found.interval
    assert low < DATA.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * found.standard_error, rel=0.06)
    assert found.replicates.shape == (4000,)


def test_a_sample_leaves_out_a_share_of_one_over_e_of_the_rows():
    # Zhou 2016, equation 2.1.
    def left_out(rows):
        return 1 - len(np.unique(rows)) / 500

    found = treekit.bootstrap(left_out, np.arange(500), 300, seed=1)
    assert found.mean == pytest.approx(np.exp(-1), abs=0.002)


@pytest.mark.parametrize("cells", [1, 700, 1 << 21])
def test_samples_do_not_depend_on_how_they_are_taken(monkeypatch, cells):
    monkeypatch.setattr(resampling, "_CELLS", cells)
    at_once = treekit.bootstrap(np.median, DATA, 50, seed=3)
    apart = treekit.bootstrap(np.median, DATA, 50, seed=3, vectorized=False)
    np.testing.assert_array_equal(at_once.replicates, apart.replicates)


def test_columns_are_drawn_together_and_a_statistic_may_be_a_vector():
    x = np.arange(40.0)

    def line(x, y):
        return np.polyfit(x, y, 1)

    found = treekit.bootstrap(line, (x, 3 * x + 1), 30, seed=0)
    np.testing.assert_allclose(found.replicates, np.tile([3.0, 1.0], (30, 1)), atol=1e-9)
    means = treekit.bootstrap(np.mean, np.column_stack([x, -x]), 30, seed=0)
    assert means.mean.shape == means.interval[0].shape == means.estimate.shape == (2,)
    np.testing.assert_allclose(means.replicates[:, 0], -means.replicates[:, 1])


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_tables_of_any_library_are_drawn_from(frame):
    table = frame({"x": DATA, "y": DATA * 2})
    found = treekit.bootstrap(lambda t: float((t["y"] - t["x"]).mean()), table, 20, seed=2)
    plain = treekit.bootstrap(lambda rows: rows.mean(), DATA, 20, seed=2)
    np.testing.assert_allclose(found.replicates, plain.replicates)


def test_a_model_s_accuracy_has_a_bootstrap_distribution():
    table = {"x": DATA.tolist(), "y": np.where(DATA > 0.7, "a", "b").tolist()}
    model = treekit.train(table, "y", max_depth=1, seed=0)
    right = model.predict(table) == np.array(table["y"])
    assert treekit.bootstrap(np.mean, right, 100, seed=0).mean > 0.95


def test_text_is_drawn_from_for_a_statistic_of_text_and_fractions_are_numbers():
    found = treekit.bootstrap(lambda names: (names == "a").mean(), ["a", "b", "a"], 20, seed=0)
    assert found.estimate == pytest.approx(2 / 3)
    half = treekit.bootstrap(lambda rows: Fraction(1, 2), DATA, 2, seed=0)
    assert half.mean == 0.5


def test_the_outcome_shows_all_but_its_replicates():
    found = treekit.bootstrap(np.mean, [1.0, 2.0, 3.0], 500, seed=0)
    assert repr(found).startswith("Bootstrapped(estimate=2, mean=")
    assert repr(found).endswith(
        f"interval=({found.interval[0]:.6g}, {found.interval[1]:.6g}), B=500)"
    )
    wide = treekit.bootstrap(np.mean, np.zeros((3, 100)), 5, seed=0)
    assert len(repr(wide)) < 300
    assert "estimate=[0., 0., ..., 0., 0.]" in repr(wide)


def test_the_same_seed_draws_the_same_samples():
    one, two, other = (treekit.bootstrap(np.mean, DATA, 9, seed=s).mean for s in (1, 1, 2))
    assert one == two != other


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.integers(2, 30))
def test_replicates_of_an_extreme_lie_within_the_data(values, size):
    found = treekit.bootstrap(np.max, values, size, seed=0)
    assert set(found.replicates) <= set(values)
    assert found.estimate == max(values)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"data": []}, DataError, "at least 1"),
        ({"data": (DATA, DATA[:3])}, DataError, "3 and 60 rows"),
        ({"data": 3.0}, DataError, "holds 3.0, of type float; give an array or a dataframe"),
        ({"data": {"x": [1.0]}}, DataError, "of type dict; give an array or a dataframe"),
        ({"data": [[1.0], [1.0, 2.0]]}, DataError, "rows are of different lengths"),
        ({"data": ["a", "b"], "statistic": np.mean}, DataError, "data holds what is no number"),
        ({"B": "10"}, SettingError, "B is '10'; give a whole number"),
        ({"B": True}, SettingError, "B is True; give a whole number"),
        ({"seed": -1}, SettingError, "seed is -1; give a whole number of at least 0"),
        ({"confidence": "x"}, SettingError, "confidence is 'x'"),
        ({"statistic": 3.0}, SettingError, "statistic is 3.0; give a function"),
        ({"statistic": lambda rows: "x"}, DataError, "statistic of the data is 'x'; it must be a"),
        ({"statistic": lambda rows: 1j}, DataError, "is 1j; it must be a number"),
        ({"statistic": lambda rows: [[1], [1, 2]]}, DataError, "parts are of equal lengths"),
        ({"statistic": np.unique, "vectorized": False}, DataError, "as many numbers for every"),
        (
            {"statistic": lambda rows, axis=0: 1.0},
            DataError,
            r"has shape \(\); it must give one row",
        ),
        ({"B": 1}, SettingError, "at least 2"),
        ({"B": 2.5}, SettingError, "at least 2"),
        ({"confidence": 1.0}, SettingError, "between 0 and 1"),
        ({"statistic": lambda rows: np.nan}, DataError, "sample 0 is nan"),
        ({"data": pd.DataFrame({"x": DATA}), "vectorized": True}, SettingError, "take arrays"),
    ],
)
def test_mistakes_are_told(change, error, said):
    arguments = {"statistic": lambda rows: rows.mean(), "data": DATA, "B": 5} | change
    with pytest.raises(error, match=said):
        treekit.bootstrap(**arguments)
