"""Small numeric arrays are trained in fewer steps into the same model."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import clone

import treekit
import treekit.data.dataset
from treekit import DataError, DecisionTreeClassifier, DecisionTreeRegressor, TreekitWarning
from treekit.data.binning import encode_columns

CELLS = [0.0, -0.0, 1.0, 0.1, -2.5, 16777216.0, 16777217.0, 3.0, 3.00000001, float("nan"), 1e6]


def read_file(model, folder):
    """The bytes of a model's file."""
    path = folder / "model.treekit"
    model.save(path)
    return path.read_bytes()


def fit_both(make, x, y, monkeypatch, **fit):
    """Fit in fewer steps, and column by column; give the warnings, or the error, of both."""
    found = []
    for few in (True, False):
        with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            if not few:
                patch.setattr(treekit.data.dataset, "read_small_matrix", lambda *_: None)
            try:
                fitted = make().fit(x, y, **fit)
            except DataError as error:
                found.append((None, str(error)))
                continue
            found.append((fitted, [str(each.message) for each in told]))
    return found


@st.composite
def tables(draw):
    """A matrix of few values, with ties, gaps and numbers that float32 does not tell apart."""
    dtype = draw(st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]))
    shape = draw(st.integers(2, 40)), draw(st.integers(1, 4))
    if dtype in (np.float64, np.float32):
        return draw(hnp.arrays(dtype, shape, elements=st.sampled_from(CELLS)))
    return draw(hnp.arrays(dtype, shape, elements=st.integers(0, 1 if dtype == np.bool_ else 50)))


@settings(max_examples=60, deadline=None)
@given(x=tables(), data=st.data())
def test_models_equal_those_of_tables_read_column_by_column(tmp_path_factory, x, data):
    folder, n = tmp_path_factory.mktemp("models"), len(x)
    regression = data.draw(st.booleans())
    options = data.draw(
        st.fixed_dictionaries(
            {
                "random_state": st.just(0),
                "max_depth": st.sampled_from([None, 2]),
                "dtype": st.sampled_from(["auto", "float32", "float64"]),
            }
        )
    )
    if regression:
        y = data.draw(hnp.arrays(np.float64, n, elements=st.sampled_from([0.0, 1.5, -7.0, 1e5])))
        y[0] = 2.0
    else:
        y = data.draw(hnp.arrays(np.int64, n, elements=st.integers(-1, 3)))
    w = data.draw(st.none() | hnp.arrays(np.float64, n, elements=st.sampled_from([0.5, 1.0, 3.0])))
    make = DecisionTreeRegressor if regression else DecisionTreeClassifier
    with pytest.MonkeyPatch.context() as patch:
        (quick, told), (slow, also_told) = fit_both(
            lambda: make(**options), x, y, patch, sample_weight=w
        )
    assert told == also_told
    if quick is None:
        return
    assert read_file(quick.model_, folder) == read_file(slow.model_, folder)
    assert np.array_equal(quick.tree_.n_node_samples, slow.tree_.n_node_samples)
    assert np.array_equal(quick.tree_.impurity, slow.tree_.impurity)
    assert np.array_equal(quick.predict(x), slow.predict(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, pd.Series, lambda y: y[:, None]])
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_changing_arrays_after_fit_does_not_change_the_model(dtype, kind, tmp_path):
    x, y = np.array([[1.0], [2.0], [3.0], [4.0]], dtype), np.array([0.5, 1.0, 3.0, 4.0])
    given = kind(y)
    make = DecisionTreeRegressor(random_state=0, dtype=np.dtype(dtype).name)
    early, late = clone(make).fit(x, given), clone(make).fit(x, given)
    kept = read_file(early.model_, tmp_path), early.tree_.impurity.tolist()
    x[:], y[:] = 7.0, -1.0
    assert (read_file(late.model_, tmp_path), late.tree_.impurity.tolist()) == kept


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_copies_and_pickles_keep_the_model(duplicate, tmp_path):
    x, y = np.array([[1.0], [2.0], [3.0]]), np.array([0.5, 1.0, 3.0])
    fitted = DecisionTreeRegressor(random_state=0).fit(x, y)
    other = duplicate(fitted)
    assert read_file(other.model_, tmp_path) == read_file(fitted.model_, tmp_path)
    assert other.tree_.impurity.tolist() == fitted.tree_.impurity.tolist()
    assert other.predict(x).tolist() == fitted.predict(x).tolist()


@pytest.mark.parametrize(
    "y",
    [
        np.array([0.5, 1e-30, 1e30, 2.0]),
        np.geomspace(1, 1e12, 60),  # of the grown tree, not of the rows alone
        np.append(-np.geomspace(1, 1e7, 30), np.geomspace(1, 1e10, 30)),
    ],
)
def test_target_values_out_of_range_are_refused_by_fit(y, monkeypatch):
    x = np.arange(float(len(y)))[:, None]
    with pytest.raises(DataError) as told:
        DecisionTreeRegressor(random_state=0).fit(x, np.array(y))
    monkeypatch.setattr(treekit.data.dataset, "read_small_matrix", lambda *_: None)
    with pytest.raises(DataError) as also_told:
        DecisionTreeRegressor(random_state=0).fit(x, np.array(y))
    assert str(told.value) == str(also_told.value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 200, 300])
def test_columns_coded_together_have_the_codes_of_each_alone(dtype, n):
    rng = np.random.default_rng(n)
    x = rng.integers(-5, 90, (4, n)).astype(dtype) / 7
    x[0, :2] = [-0.0, 0.0][:n]
    x[1, rng.random(n) < 0.2] = np.nan
    x[2] = np.nan
    x[3] = rng.permutation(n) if n == 200 else x[3]
    kinds = np.zeros(4, np.int64), np.zeros(4, bool)
    for at_once, alone in zip(
        encode_columns(x, *kinds, "exact"), encode_columns(list(x), *kinds, "exact"), strict=True
    ):
        assert at_once.dtype == alone.dtype
        assert np.array_equal(at_once, alone, equal_nan=True)


def test_numbers_merged_by_float32_are_trained_in_float64():
    x = np.array([[1.0], [1.00000001], [1.00000002]])
    fitted = DecisionTreeClassifier(random_state=0).fit(x, [0, 1, 0])
    assert fitted.model_.schema.dtype == "float64"
    assert fitted.predict(x).tolist() == [0, 1, 0]


def test_integers_merged_by_float64_warn():
    x = np.array([[2**60], [2**60 + 1], [5]])
    with pytest.warns(TreekitWarning, match="which float64 cannot tell apart"):
        DecisionTreeClassifier().fit(x, [0, 1, 1])


def test_infinite_cells_are_refused():
    with pytest.raises(DataError, match=r"column 'x1' is infinite in row 1"):
        DecisionTreeClassifier().fit(np.array([[1.0, 2.0], [3.0, np.inf]]), [0, 1])


def test_unfitted_trees_have_no_model():
    assert not hasattr(DecisionTreeClassifier(), "model_")


def test_array_without_feature_names_warns_and_refit_removes_the_names():
    x, y = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]]), [0, 1, 1]
    fitted = DecisionTreeClassifier(random_state=0).fit(pd.DataFrame(x, columns=["a", "b"]), y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        fitted.predict(x)
    fitted.fit(x, y)
    assert not hasattr(fitted, "feature_names_in_")
    with pytest.raises(ValueError, match=r"X has 1 features, but .* is expecting 2"):
        fitted.predict(x[:, :1])
