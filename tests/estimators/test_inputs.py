"""The estimators read inputs, targets and weights in any container as `treekit.train` does."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treekit
import treekit.estimators.base as estimators
from treekit import (
    DataError,
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    RandomForestClassifier,
    TreekitWarning,
)

X = np.arange(24.0).reshape(-1, 1)


def carriers(values: list[Any], names: tuple[str, str, str]) -> dict[str, Any]:
    """The same values in a list, arrays, and series of each library and backend."""
    numpy, nullable, arrow = names
    objects = np.fromiter(values, object, len(values))
    return {
        "list": values,
        "tuple": tuple(values),
        "numpy": np.array(values, dtype=numpy),
        "object": objects,
        "masked": np.ma.array(np.array(values, dtype=numpy), mask=False),
        "masked object": np.ma.array(objects, mask=False),
        "pandas object": pd.Series(objects, dtype=object),
        "pandas": pd.Series(values, dtype=nullable),
        "pandas array": pd.array(values, dtype=nullable),
        "pandas pyarrow": pd.Series(values, dtype=arrow),
        "category": pd.Series(pd.Categorical(values)),
        "Categorical": pd.Categorical(values),
        "polars": pl.Series(values),
        "arrow": pa.array(values),
        "chunked": pa.chunked_array([pa.array(values[:5]), pa.array(values[5:])]),
    }


LABELS = {
    "bools": ([False, True], ("bool", "boolean", "bool[pyarrow]")),
    "integers": ([-3, 4], ("int64", "Int64", "int64[pyarrow]")),
    "large": ([2**53, 2**53 + 1], ("int64", "Int64", "int64[pyarrow]")),
    "floats": ([1.0, 2.0], ("float64", "Float64", "double[pyarrow]")),
    "text": (["NA", "a", "é 1"], ("U", "string", "string[pyarrow]")),
    "digits": (["01", "1"], ("U", "string", "string[pyarrow]")),
}


@given(st.sampled_from(sorted(LABELS)), st.data())
def test_labels_do_not_depend_on_their_container(kind, data):
    labels, names = LABELS[kind]
    values = data.draw(st.lists(st.sampled_from(labels), min_size=24, max_size=24))
    expected = sorted(set(values))
    for name, y in carriers(values, names).items():
        tree = DecisionTreeClassifier(random_state=0).fit(X, y)
        assert tree.classes_.tolist() == expected, name
        assert type(tree.classes_.tolist()[0]) is type(expected[0]), name
        assert tree.predict(X).tolist() == values, name
        assert tree.model_.schema.classes == tuple(expected), name
        assert tree.score(X, y) == 1.0, name
        found = tree.permutation_importances(X, y, repeats=1)
        assert found.mean.shape == (1,)


@given(st.lists(st.sampled_from([1, 2, None]), min_size=24, max_size=24), st.data())
def test_target_numbers_do_not_depend_on_their_container(column, data):
    other = data.draw(st.lists(st.integers(0, 99), min_size=24, max_size=24))
    y = [k % 3 == 0 for k in range(24)]
    known = np.array([[np.nan if a is None else a, b] for a, b in zip(column, other, strict=True)])
    objects = np.array([list(row) for row in zip(column, other, strict=True)], dtype=object)
    text = np.array([["" if a is None else str(a), str(b)] for a, b in objects])
    frame = pd.DataFrame({"a": pd.Series(column, dtype="Int64"), "b": other})
    hidden = np.where(np.isnan(known), -999, known)
    tables = {
        "object": objects,
        "list": objects.tolist(),
        "masked": np.ma.array(hidden, mask=np.isnan(known)),
        "masked integers": np.ma.array(hidden.astype(int), mask=np.isnan(known)),
        "masked object": np.ma.array(hidden.astype(object), mask=np.isnan(known)),
        "text": text,
        "object text": text.astype(object),
        "list of text": text.tolist(),
        "nullable": frame,
        "pyarrow": frame.astype({"a": "int64[pyarrow]"}),
        "polars": pl.DataFrame({"a": column, "b": other}, schema={"a": pl.Int64, "b": pl.Int64}),
        "arrow": pa.table({"a": pa.array(column, pa.int64()), "b": other}),
    }
    expected = DecisionTreeClassifier(random_state=0).fit(known, y)
    shares = expected.predict_proba(known)
    for name, table in tables.items():
        tree = DecisionTreeClassifier(random_state=0).fit(table, y)
        np.testing.assert_array_equal(tree.predict_proba(table), shares, err_msg=name)
        if not hasattr(tree, "feature_names_in_"):
            np.testing.assert_array_equal(expected.predict_proba(table), shares, err_msg=name)


def test_masked_cells_are_missing_for_every_method():
    y = (X[:, 0] >= 12).astype(int)
    hidden = np.ma.MaskedArray(X.copy(), mask=np.zeros(X.shape, bool))
    hidden.data[::4], hidden.mask[::4] = -999, True
    plain = hidden.filled(np.nan)
    for cls in (DecisionTreeClassifier, RandomForestClassifier):
        a, b = (
            cls(random_state=0, pruner="reduced_error").fit(x, y, validation=(x, y))
            for x in (plain, hidden)
        )
        np.testing.assert_array_equal(a.predict_proba(plain), b.predict_proba(hidden))
        np.testing.assert_array_equal(a.predict_proba(plain), a.predict_proba(hidden))
        np.testing.assert_array_equal(a.apply(plain), a.apply(hidden))
        assert a.score(plain, y) == a.score(hidden, y)
    with pytest.raises(DataError, match="contains NaN, but missing='error'"):
        DecisionTreeClassifier(missing="error").fit(hidden, y)


# ------------------------------------------------------------------ targets


GONE = ["a", None, "b", "a", None, "b"]
NUMBERS = [1, None, 2, 1, None, 2]


@pytest.mark.parametrize(
    "y",
    [
        GONE,
        np.array(["a", np.nan, "b", "a", None, "b"], object),
        pd.Series(GONE, dtype="string"),
        pd.Series(GONE, dtype="category"),
        pd.Series(NUMBERS, dtype="Int64"),
        pd.Series(NUMBERS, dtype="float"),
        pd.Series([True, None, False, True, None, False], dtype="boolean"),
        pd.Series([True, np.nan, False, True, None, False], dtype=object),
        np.ma.array([1, 7, 2, 1, 7, 2], mask=[0, 1, 0, 0, 1, 0]),
        pl.Series(GONE),
        pa.array(NUMBERS),
    ],
)
def test_missing_labels_are_counted_and_located(y):
    message = "is missing in 2 of 6 rows, first in row 1"
    x = X[:6]
    tree = DecisionTreeClassifier().fit(x, ["a", "b"] * 3)
    for fit in (
        lambda: DecisionTreeClassifier().fit(x, y),
        lambda: tree.score(x, y),
        lambda: DecisionTreeClassifier(pruner="reduced_error").fit(x, ["a"] * 6, validation=(x, y)),
        lambda: tree.permutation_importances(x, y),
    ):
        with pytest.raises(DataError, match=f"the target 'target' {message}"):
            fit()
    several = pd.DataFrame({"u": list("abcabc"), "v": pd.Series(y)})
    with pytest.raises(DataError, match=f"the target 'v' {message}"):
        DecisionTreeClassifier().fit(x, several)


def test_outputs_of_a_dataframe_keep_their_types():
    y = pd.DataFrame({
        "flag": pd.Series([True, False] * 12, dtype="boolean"),
        "id": pd.Series([2**53, 2**53 + 1] * 12, dtype="Int64"),
        "name": pd.Series(["a", "b"] * 12, dtype="string"),
    })  # fmt: skip
    tree = DecisionTreeClassifier(random_state=0).fit(X, y)
    assert [own.tolist() for own in tree.classes_] == [
        [False, True], [2**53, 2**53 + 1], ["a", "b"],
    ]  # fmt: skip
    assert tree.predict(X)[:2].tolist() == [[True, 2**53, "a"], [False, 2**53 + 1, "b"]]
    assert tree.score(X, y) == tree.score(X, y.to_numpy()) == 1.0
    assert tree.score(X, y.assign(name="c")) == 0.0


TIMES = pd.Series(pd.to_datetime(["2020-01-01", None] * 12))


@pytest.mark.parametrize("cls", [DecisionTreeClassifier, DecisionTreeRegressor])
@pytest.mark.parametrize(
    "y",
    [
        TIMES,
        TIMES.to_numpy(),
        TIMES.astype(object),
        pl.Series(TIMES),
        pd.DataFrame({"t": TIMES, "u": 1}),
    ],
)
def test_datetimes_are_refused_as_target(cls, y):
    with pytest.raises(DataError, match="holds dates and times; convert it to a number"):
        cls().fit(X, y)


@pytest.mark.parametrize(
    "y",
    [
        pd.Series(range(24), dtype="Int64"),
        pd.Series(range(24), dtype="double[pyarrow]"),
        np.ma.array(range(24)),
        pl.Series(range(24)),
        pa.array(range(24)),
        [str(k) for k in range(24)],
    ],
)
def test_predictions_do_not_depend_on_the_container_of_the_rows(y):
    expected = DecisionTreeRegressor().fit(X, np.arange(24.0))
    tree = DecisionTreeRegressor().fit(X, y)
    np.testing.assert_array_equal(tree.predict(X), expected.predict(X))
    assert tree.score(X, y, pd.Series([2] * 24, dtype="Int64")) == 1.0


def test_labels_of_another_type_are_refused_or_count_as_wrong():
    tree = DecisionTreeClassifier().fit(X, [0, 1] * 12)
    assert tree.score(X, [0, 5] * 12) == 0.5
    with pytest.raises(DataError, match="holds 'a', which is text, but the labels"):
        tree.score(X, ["a"] * 24)
    with pytest.raises(DataError, match="contains 5, which is not a label"):
        tree.permutation_importances(X, [0, 5] * 12)


def test_enum_members_and_intervals_are_labels_by_name():
    colour = enum.Enum("colour", "RED BLUE")
    tree = DecisionTreeClassifier().fit(X, [colour.RED, colour.BLUE] * 12)
    assert tree.classes_.tolist() == ["BLUE", "RED"]
    bands = pd.cut(X[:, 0], 3)
    tree = DecisionTreeClassifier().fit(X, bands)
    assert tree.predict(X).tolist() == [str(band) for band in bands]
    assert tree.score(X, bands) == 1.0


# ------------------------------------------------------------------ weights


@pytest.mark.parametrize(
    "make",
    [
        lambda w: pd.Series(w, dtype="Int64"),
        lambda w: pd.Series(w, dtype="int64[pyarrow]"),
        pl.Series,
        pa.array,
        np.ma.array,
        list,
    ],
)
def test_sample_weights_do_not_depend_on_their_container(make):
    weights = np.arange(24) % 4
    y = np.arange(24) // 5 % 2
    expected = DecisionTreeClassifier(max_depth=2).fit(X, y, weights)
    tree = DecisionTreeClassifier(max_depth=2).fit(X, y, make(weights))
    np.testing.assert_array_equal(tree.predict_proba(X), expected.predict_proba(X))
    assert tree.score(X, y, make(weights)) == expected.score(X, y, weights)
    gone = np.ma.array(weights, mask=weights == 1)
    with pytest.raises(ValueError, match="sample_weight contains NaN"):
        tree.fit(X, y, gone)


# ------------------------------------------------------------------ names of columns


@pytest.mark.parametrize("names", [(0, 1), (1, 0), (10.5, 2), (("a", 1), ("a", 2))])
def test_columns_with_non_text_names_are_matched_by_name(names):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 80))
    y = (a > 0).astype(int)
    first, second = names
    frame = pd.DataFrame({first: a, second: b})
    other = pd.DataFrame({second: b, first: a})
    for estimator in (
        DecisionTreeClassifier(random_state=0, pruner="reduced_error"),
        RandomForestClassifier(3, random_state=0, pruner="reduced_error"),
    ):
        estimator.fit(frame, y, validation=(other, y))
        np.testing.assert_array_equal(estimator.predict(other), estimator.predict(frame))
        assert estimator.score(other, y) > 0.9
        np.testing.assert_array_equal(estimator.predict(frame.to_numpy()), estimator.predict(frame))
        with pytest.raises(DataError, match="the table has no column"):
            estimator.predict(pd.DataFrame({77: a, 88: b}))
        with pytest.raises(ValueError, match="is expecting 2 features"):
            estimator.predict(pd.DataFrame(np.column_stack([a, b, b])))
    tree = estimator.fit(frame.to_numpy(), y)  # by position, as for any array
    np.testing.assert_array_equal(tree.predict(frame), tree.predict(frame.to_numpy()))
    forest = RandomForestClassifier(2, random_state=0).fit(frame, y)
    for one in forest.estimators_:
        np.testing.assert_array_equal(one.predict(other), one.predict(frame))


def test_names_of_two_types_are_refused():
    with pytest.raises(TypeError, match="string names"):
        DecisionTreeClassifier().fit(pd.DataFrame({0: [1, 2], "b": [1, 2]}), [0, 1])


def test_duplicate_names_are_refused():
    y = [0, 1] * 12
    good = DecisionTreeClassifier().fit(pd.DataFrame({"p": X[:, 0], "q": X[:, 0]}), y)
    twice = np.hstack([X, X])
    for frame, name in (
        (pd.DataFrame(twice, columns=["p", "p"]), "p"),
        (pd.DataFrame(twice, columns=[0, 0]), "0"),
        (pa.table([X[:, 0], X[:, 0]], names=["p", "p"]), "p"),
    ):
        for use in (lambda x: DecisionTreeClassifier().fit(x, y), good.predict):
            with pytest.raises(DataError, match=f"column name '{name}' appears twice; rename"):
                use(frame)


def test_train_and_the_estimators_read_text_equally():
    cells = np.array([["1"], ["10"], ["2"], ["20"]])
    new, y = np.array([["3"], ["15"]]), [0, 1, 0, 1]
    for rows, more in ((cells, new), (cells.astype(object), new.astype(object)),
                       (cells.tolist(), new.tolist())):  # fmt: skip
        tree = DecisionTreeClassifier(random_state=0).fit(rows, y)
        assert tree.predict(more).tolist() == [0, 1]
        assert tree.model_.predict(more).tolist() == [0, 1]
    both = [[*row, label] for row, label in zip(cells.tolist(), y, strict=True)]
    model = treekit.train(both, "x1")
    assert model.predict([["3"], ["15"]]).tolist() == [0, 1]
    frame = pd.DataFrame(cells, columns=["a"])
    with pytest.warns(TreekitWarning, match="text cells that are all numbers"):
        tree = DecisionTreeClassifier().fit(frame, y)
    assert tree.model_.schema.columns[0].kind == "nominal"


FRAMES = {
    "floats": {"a": [0.5, 2.5, np.nan], "b": [1.0, -3.0, 4.0]},
    "two types": {"a": np.array([0.5, 2.5, 1.0], np.float32), "b": [1, -3, 4]},
    "integers": {"a": [0, 2**53 + 1, -5], "b": np.array([1, 200, 4], np.uint8)},
    "unsigned": {"a": np.array([0, 2**64 - 1, 5], np.uint64), "b": [1, -3, 4]},
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("missing", ["direction", "error"])
def test_numeric_dataframes_predict_as_on_the_general_path(kind, missing, monkeypatch):
    training = pd.DataFrame({"a": np.arange(20.0), "b": np.arange(20.0) % 3})
    tree = DecisionTreeClassifier(missing=missing).fit(training, np.arange(20) // 5)
    rows = pd.DataFrame(FRAMES[kind])
    read = estimators._read_numeric_frame(tree, rows)
    assert isinstance(read, np.ndarray)
    if missing == "error" and kind == "floats":
        with pytest.raises(DataError, match="'a' is missing in row 2"):
            tree.predict(rows)
        return
    quick = tree.predict_proba(rows)
    monkeypatch.setattr(estimators, "_read_numeric_frame", lambda *_: None)
    np.testing.assert_array_equal(quick, tree.predict_proba(rows))


def test_dataframes_of_other_columns_are_not_read_as_arrays():
    training = pd.DataFrame({"a": np.arange(20.0), "b": np.arange(20.0) % 3})
    tree = DecisionTreeClassifier().fit(training, np.arange(20) // 5)
    two = {"a": [1.0, 2.0], "b": [1.0, 2.0]}
    for rows in (
        pd.DataFrame(two).assign(b=[True, False]),
        pd.DataFrame(two).assign(b=pd.array([1, None], "Int64")),
        pd.DataFrame(two).assign(b=["1", "2"]),
        pd.DataFrame(two).iloc[:0],
        pl.DataFrame(two),
        np.ones((2, 2)),
    ):
        assert estimators._read_numeric_frame(tree, rows) is None
    with pytest.raises(ValueError, match="should match those that were passed during fit"):
        tree.predict(pd.DataFrame(two)[["b", "a"]])
