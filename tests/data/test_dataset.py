"""From any table to training data: kinds, vocabularies, targets, weights, input type."""

from __future__ import annotations

import importlib.util
import math
import warnings
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import treekit
from tests.examples import examples
from tests.growing import recipe_of
from tests.kernels.test_kernels import signed_in
from tests.reference.coding import code_column
from tests.reference.grow import Problem
from treekit import DecisionTreeClassifier, RandomForestRegressor
from treekit.data import DEMO_TARGET, demo_table, features
from treekit.data import binning as matrix
from treekit.data import out_of_core as room
from treekit.data.binning import encode_columns
from treekit.data.dataset import make_dataset, make_dataset_from_xy, make_validation
from treekit.data.encoding import encode_rows
from treekit.data.features import count_some_distinct
from treekit.data.schema import MISSING_MARKS, Column, Schema
from treekit.errors import DataError, SettingError, TreekitError, TreekitWarning
from treekit.grow.held_out import encode_held_table
from treekit.grow.tree_builder import grow_tree
from treekit.kernels import feature_codes as kernels
from treekit.kernels.records import SplitRules
from treekit.kernels.thresholds import MIDPOINT, READABLE_FLOAT32
from treekit.model.model import make_model
from treekit.model.scoring import leaf_indices

# ---------------------------------------------------------------- dataset

WATERMELON = Path(__file__).parents[2] / "examples" / "tables" / "watermelon"


def kinds(dataset):
    return {column.name: column.kind for column in dataset.schema.columns}


def levels(dataset, name):
    return next(column.levels for column in dataset.schema.columns if column.name == name)


def csv_of(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_numeric_and_nominal_columns_are_coded_by_kind():
    data = make_dataset({"n": [1, None, 3], "c": ["b", "a", "?"], "t": ["no", "yes", "no"]}, "t")
    assert kinds(data) == {"n": "numeric", "c": "nominal"}
    assert levels(data, "c") == ("a", "b")
    assert (data.schema.target, data.schema.task, data.schema.classes) == (
        "t", "classification", ("no", "yes"),
    )  # fmt: skip
    number, city = data.columns
    assert (number.dtype, city.dtype, data.y.dtype) == (np.float32, np.int32, np.int32)
    np.testing.assert_array_equal(number, [1, np.nan, 3])
    assert city.tolist() == [1, 0, -1]
    assert data.y.tolist() == [0, 1, 0]
    assert data.weights is None
    assert data.n_rows == 3


def test_chinese_watermelon_table_is_read_with_missing_cells():
    data = make_dataset(WATERMELON / "watermelon_2.0_alpha.csv", "好瓜", ignore=["编号"])
    assert data.schema.names == ("色泽", "根蒂", "敲声", "纹理", "脐部", "触感")
    assert set(kinds(data).values()) == {"nominal"}
    assert sorted(data.schema.classes) == sorted(("是", "否"))
    assert data.columns[0][0] == -1
    data = make_dataset(WATERMELON / "watermelon_3.0.csv", "好瓜", ignore=["编号"])
    assert kinds(data)["密度"] == "numeric"
    assert data.columns[6][0] == np.float32(0.697)


def test_demo_table_becomes_training_data():
    data = make_dataset(demo_table(), DEMO_TARGET)
    assert data.schema.n_features == 20
    assert data.schema.nominal.sum() == 13
    gone = sum(np.sum(c == -1) if c.dtype == np.int32 else np.isnan(c).sum() for c in data.columns)
    assert gone == 1925


def test_every_table_type_gives_the_same_training_data(tmp_path):
    frame = pd.DataFrame(
        {"n": [1.5, None, 3.0, 0.1], "c": ["b", None, "a", "é"], "sure": [True, False, True, True],
         "k": [3, 1, 2, 2], "t": ["u", "v", "u", "v"]}
    )  # fmt: skip
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    expected = make_dataset(frame, "t")
    records = pl.from_pandas(frame)
    for source in (path, records, records.to_arrow(), records.to_dicts(), records.to_dict()):
        data = make_dataset(source, "t")
        assert data.schema == expected.schema
        assert data.y.tolist() == expected.y.tolist()
        for a, b in zip(data.columns, expected.columns, strict=True):
            np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------- kinds and vocabularies


def test_category_order_is_declared_then_of_the_type_then_sorted():
    frame = pd.DataFrame({"c": pd.Categorical(["b", "a"], ["z", "b", "a"]), "t": ["x", "y"]})
    assert levels(make_dataset(frame, "t"), "c") == ("z", "b", "a")
    assert levels(make_dataset(frame, "t", levels={"c": ["a", "b"]}), "c") == ("a", "b")
    assert levels(make_dataset({"c": ["b", "a"], "t": ["x", "y"]}, "t"), "c") == ("a", "b")


def test_numeric_categories_are_in_natural_order(tmp_path):
    own = ["10-14", "5-9", "0-4", "a10", "a9", "a09", "a", "9" * 5000, "0-4"]
    wanted = ("0-4", "5-9", "10-14", "9" * 5000, "a", "a09", "a9", "a10")
    columns = {"c": own, "t": ["x", "y", "z"] * 3}
    pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    frame = pl.DataFrame(columns)
    coded = frame.with_columns(pl.col("c").cast(pl.Categorical))
    table = pa.table(columns)
    pooled = table.set_column(0, "c", table["c"].dictionary_encode())
    for source in (columns, tmp_path / "t.csv", frame, coded, table, pooled):
        assert levels(make_dataset(source, "t"), "c") == wanted
    numbers = pa.table({"c": pa.array([10, 9]).dictionary_encode(), "t": ["x", "y"]})
    assert levels(make_dataset(numbers, "t"), "c") == ("9", "10")


def test_numbers_of_a_forced_nominal_column_are_sorted_categories(tmp_path):
    path = csv_of(tmp_path, "n,z,t\n10,007,a\n9.0,7,b\nNA,12,a\n")
    data = make_dataset(path, "t", nominal=["n", "z"])
    assert levels(data, "n") == ("9.0", "10")
    assert levels(data, "z") == ("007", "7", "12")
    assert data.columns[0].tolist() == [1, 0, -1]
    array = make_dataset_from_xy(
        np.array([[10.0], [9.0], [np.nan]]), ["a", "b", "a"], nominal=["x0"]
    )
    assert levels(array, "x0") == ("9", "10")
    assert array.columns[0].tolist() == [1, 0, -1]


def test_a_forced_numeric_column_parses_its_text():
    data = make_dataset({"c": ["1", "?", "2.5"], "t": ["x", "y", "x"]}, "t", numeric=["c"])
    np.testing.assert_array_equal(data.columns[0], np.array([1, np.nan, 2.5], np.float32))
    data = make_dataset({"c": [True, False, None], "t": ["x", "y", "x"]}, "t", numeric=["c"])
    np.testing.assert_array_equal(data.columns[0], [1, 0, np.nan])
    frame = pd.DataFrame({"c": pd.Categorical([5, 3]), "t": ["x", "y"]})
    assert kinds(make_dataset(frame, "t")) == {"c": "nominal"}
    np.testing.assert_array_equal(make_dataset(frame, "t", numeric=["c"]).columns[0], [5, 3])


def test_numeric_categories_may_be_declared_as_numbers():
    data = make_dataset({"c": [3, 1, 2], "t": ["x", "y", "x"]}, "t", levels={"c": [3, 2, 1]})
    assert levels(data, "c") == ("3", "2", "1")
    assert data.columns[0].tolist() == [0, 2, 1]


def test_bools_are_nominal_and_all_missing_columns_numeric():
    empty = {"m": [None, None], "q": ["?", ""], "k": pd.Categorical([None, None])}
    data = make_dataset({"b": [True, None], **empty, "t": ["x", "y"]}, "t")
    assert kinds(data) == {"b": "nominal", "m": "numeric", "q": "numeric", "k": "numeric"}
    assert levels(data, "b") == ("True",)
    assert all(np.isnan(column).all() for column in data.columns[1:])


def test_training_rows_are_encoded_equally_at_prediction():
    source = {"c": ["b", None, "a"], "n": [0.1, 2, None], "b": [True, False, None], "t": [0, 1, 1]}
    data = make_dataset(source, "t")
    matrix = encode_rows(source, data.schema)
    for feature, column in enumerate(data.columns):
        expected = np.where(column == -1, np.nan, column) if column.dtype == np.int32 else column
        np.testing.assert_array_equal(matrix[:, feature], expected)


TEXT = st.none() | st.text(max_size=4)


@pytest.mark.filterwarnings("ignore:column 'c':treekit.errors.TreekitWarning")  # texts of digits
@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.tuples(TEXT, st.floats() | st.none()), min_size=1, max_size=9))
@example([("0", None)])
def test_any_cells_are_refused_or_coded_as_at_prediction(rows):
    source = {"c": [r[0] for r in rows], "n": [r[1] for r in rows]}
    infinite = any(number is not None and np.isinf(number) for _, number in rows)
    broken = any("\ud800" <= letter <= "\udfff" for text, _ in rows for letter in text or "")
    try:
        data = make_dataset_from_xy(source, ["t"] * len(rows))
    except DataError:
        data = None
    assert (data is None) == (infinite or broken)
    if data is None:
        return
    matrix = encode_rows(source, data.schema, unknown="error")
    for feature, column in enumerate(data.columns):
        expected = np.where(column == -1, np.nan, column) if column.dtype == np.int32 else column
        np.testing.assert_array_equal(matrix[:, feature], expected)


# ---------------------------------------------------------------- target


@pytest.mark.parametrize(
    ("y", "task", "classes"),
    [
        (["b", "a", "b"], "classification", ("a", "b")),
        ([True, False, True], "classification", (False, True)),
        ([3, 1, 3], "classification", (1, 3)),
        ([1.0, 2.5, 1.0], "regression", ()),
        ([1.0, 2.0, 1.0], "regression", ()),
        (list(range(20)), "classification", tuple(range(20))),
        (list(range(21)), "regression", ()),
        (["only"] * 3, "classification", ("only",)),
        ([4], "classification", (4,)),
        (np.array(["b", "a"]), "classification", ("a", "b")),
        (np.array([[1], [0]], dtype=np.uint8), "classification", (0, 1)),
        (
            pl.Series("size", ["S", "L"], dtype=pl.Enum(["S", "M", "L"])),
            "classification",
            ("S", "L"),
        ),
        (pd.Series([2, 1], dtype="Int64"), "classification", (1, 2)),
        (pa.array([2.5, 1.5]), "regression", ()),
    ],
)
def test_the_task_follows_from_the_target(y, task, classes):
    data = make_dataset_from_xy(np.zeros((len(y), 1)), y)
    assert (data.schema.task, data.schema.classes) == (task, classes)
    assert [type(c) for c in data.schema.classes] == [type(c) for c in classes]
    flat = np.ravel(np.asarray(y)).tolist()
    decoded = [classes[code] for code in data.y] if classes else data.y.tolist()
    assert decoded == flat
    assert data.y.dtype == (np.int32 if classes else np.float64)


def test_task_of_a_file_depends_on_the_notation_of_its_numbers(tmp_path):
    path = csv_of(tmp_path, "x,whole,real,truth\n1,2,2.0,True\n2,3,3.0,FALSE\n")
    assert make_dataset(path, "whole").schema.classes == (2, 3)
    assert make_dataset(path, "real").schema.task == "regression"
    assert make_dataset(path, "truth").schema.classes == (False, True)


def test_the_task_can_be_chosen():
    x = np.zeros((3, 1))
    data = make_dataset_from_xy(x, [1.0, 2.0, 1.0], task="classification")
    assert data.schema.classes == (1, 2)
    assert isinstance(data.schema.classes[0], int)
    assert make_dataset_from_xy(x, [0.5, 2.0, 0.5], task="classification").schema.classes == (
        0.5,
        2.0,
    )
    for y in ([1, 0, 1], [True, False, True], ["1", "0", "1"]):
        data = make_dataset_from_xy(x, y, task="regression")
        assert data.y.tolist() == [1.0, 0.0, 1.0]


def test_classes_can_be_declared_in_order_including_absent_ones():
    x = np.zeros((2, 1))
    data = make_dataset_from_xy(x, ["lo", "hi"], classes=["lo", "mid", "hi"])
    assert data.schema.classes == ("lo", "mid", "hi")
    assert data.y.tolist() == [0, 2]
    # A command line declares text; the labels stay whole numbers.
    assert make_dataset_from_xy(x, [3, 1], classes=["3", "2", "1"]).schema.classes == (3, 2, 1)


def test_array_as_target_name_is_refused_with_a_short_message():
    for y in (np.zeros(5000, int), pd.Series(range(5000))):
        with pytest.raises(DataError, match=r"^target is .{1,60}; .*Classifier\(\)\.fit") as found:
            treekit.train(np.zeros((5000, 2)), y)
        assert "\n" not in str(found.value)


def test_name_of_a_series_is_the_target_name():
    x = np.zeros((2, 1))
    assert make_dataset_from_xy(x, pd.Series([0, 1], name="income")).schema.target == "income"
    assert make_dataset_from_xy(x, [0, 1]).schema.target == "target"
    assert make_dataset_from_xy(x, [0, 1], target="y").schema.target == "y"


# ---------------------------------------------------------------- input type


def test_values_distinct_in_float32_give_float32():
    x = np.random.default_rng(0).normal(size=(20_000, 2))
    data = make_dataset_from_xy(x, np.zeros(20_000, dtype=int))
    assert data.schema.dtype == "float32"
    np.testing.assert_array_equal(data.columns[1], x[:, 1].astype(np.float32))


@pytest.mark.parametrize(
    "column",
    [
        1.7e9 + np.arange(50.0),
        1.7e9 + np.arange(50),
        np.array([1e300, 1.0, np.nan]),
        np.array([1.0, 1.0 + 2**-40]),
    ],
    ids=["seconds", "whole seconds", "overflow", "neighbours"],
)
def test_values_merged_by_float32_give_float64(column):
    y = np.zeros(len(column), dtype=int)
    data = make_dataset_from_xy({"fine": np.zeros(len(column)), "when": column}, y)
    assert data.schema.dtype == "float64"
    np.testing.assert_array_equal(data.columns[1], column)
    assert data.columns[0].dtype == np.float64


@given(
    st.lists(st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0]), max_size=300)
)
@settings(max_examples=examples(100), deadline=None)
def test_quick_distinct_count_never_exceeds_the_true_count(numbers):
    column = np.array(numbers, np.float32)
    assert count_some_distinct(column) <= len(np.unique(column))


def test_quick_distinct_count_finds_most_of_many_values():
    column = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    assert count_some_distinct(column) > 0.6 * len(column)
    assert count_some_distinct(np.arange(100_000, dtype=np.float32)) > 50_000


def test_float32_on_request_warns_and_names_the_column():
    table = {"fine": np.arange(50), "when": 1.7e9 + np.arange(50.0)}
    with pytest.warns(TreekitWarning, match=r"'when'.*float64"):
        data = make_dataset_from_xy(table, np.zeros(50, dtype=int), dtype="float32")
    assert data.schema.dtype == "float32"
    with pytest.raises(DataError, match=r"'big'.*float64"):
        make_dataset_from_xy({"big": [1e300, 1.0]}, [0, 1], dtype="float32")


def test_float64_on_request_keeps_every_double():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = make_dataset_from_xy(np.array([[0.1], [0.2]]), [0, 1], dtype="float64")
    assert data.columns[0].tolist() == [0.1, 0.2]


def test_float32_matrix_is_not_checked_for_merged_values():
    x = np.full((3, 1), 16777216, dtype=np.float32)
    data = make_dataset_from_xy(x, [0, 1, 0], dtype="float32")
    assert data.columns[0].dtype == np.float32


# ---------------------------------------------------------------- weights and rows


def test_weights_are_an_array_or_a_column_excluded_from_inputs():
    table = {"a": [1, 2], "w": [0.5, 2], "t": ["x", "y"]}
    by_name = make_dataset(table, "t", weights="w")
    assert by_name.schema.names == ("a",)
    assert by_name.weights.tolist() == [0.5, 2.0]
    by_array = make_dataset(table, "t", weights=pd.Series([1, 0]))
    assert by_array.schema.names == ("a", "w")
    assert by_array.weights.tolist() == [1.0, 0.0]


def test_taking_rows_keeps_the_schema():
    data = make_dataset({"a": [1, 2, 3], "t": ["x", "y", "x"]}, "t", weights=[1, 2, 3])
    part = data.take(np.array([2, 0]))
    assert part.schema is data.schema
    assert part.columns[0].tolist() == [3, 1]
    assert (part.y.tolist(), part.weights.tolist()) == ([0, 0], [3, 1])
    assert data.take(np.array([True, False, False])).n_rows == 1


def test_the_callers_array_is_not_changed():
    x = np.arange(6.0).reshape(3, 2)
    before = x.copy()
    make_dataset_from_xy(x, [0, 1, 0])
    np.testing.assert_array_equal(x, before)


T = {"a": [1, 2, 3], "c": ["x", "y", "x"], "t": ["u", "v", "u"]}


@pytest.mark.parametrize(
    ("source", "settings", "words"),
    [
        (T, {"target": "tt"}, ["target column 'tt'", "did you mean 't'"]),
        (T, {"ignore": ["b"]}, ["column to ignore 'b'", "there are"]),
        (T, {"ignore": ["a", "c"]}, ["no input columns"]),
        (T, {"nominal": ["q"]}, ["nominal names 'q'", "there are: 'a', 'c'"]),
        (T, {"numeric": ["t"]}, ["numeric names 't'"]),
        (T, {"levels": {"q": []}}, ["levels names 'q'"]),
        (T, {"numeric": ["c"], "nominal": ["c"]}, ["'c'", "both"]),
        (T, {"numeric": ["c"]}, ["'c' is numeric", "row 0", "'x'"]),
        (T, {"levels": {"c": ["x"]}}, ["'c' holds 'y' in row 1", "declare"]),
        (T, {"levels": {"c": ["x", "x", "y"]}}, ["'c'", "twice"]),
        (T, {"levels": {"c": ["x", None]}}, ["'c'", "missing"]),
        ({"m": [None, None], "t": [0, 1]}, {"nominal": ["m"]}, ["'m'", "no value", "levels"]),
        ({"a": [1, np.inf], "t": [0, 1]}, {}, ["'a' is infinite in row 1", "missing"]),
        ({"a": [1, 10**400], "t": [0, 1]}, {}, ["'a' is infinite in row 1"]),
        ({"a": [1, 2, 3], "t": ["u", None, "?"]}, {}, ["missing in 2 of 3", "row 1", "drop"]),
        ({"a": [1, 2], "t": [0.5, np.nan]}, {}, ["missing in 1 of 2"]),
        ({"a": [1, 2], "t": [0.5, np.inf]}, {}, ["infinite in row 1"]),
        ({"a": [1, 2], "t": [0.5, np.inf]}, {"task": "classification"}, ["infinite label"]),
        (T, {"task": "regression"}, ["'t' is numeric", "'u'"]),
        (T, {"task": "ranking"}, ["unknown task 'ranking'", "regression"]),
        (T, {"dtype": "float16"}, ["'float16'", "auto"]),
        (T, {"classes": ["u"]}, ["holds 'v'", "declared classes"]),
        (T, {"classes": ["u", "v", "u"]}, ["repeat"]),
        ({"a": [1, 2], "t": [1, 2]}, {"classes": [1, 2, "x"]}, ["'x'", "int"]),
        ({"a": [1.5, 2], "t": [1.5, 2]}, {"classes": [1.5], "task": "regression"}, ["classes"]),
        (T, {"weights": [1, 2]}, ["(2,)", "(3,)"]),
        (T, {"weights": [1, -1, 2]}, ["row 1", "-1", "not negative"]),
        (T, {"weights": [1, np.nan, 2]}, ["row 1", "nan"]),
        (T, {"weights": [0, 0, 0]}, ["all weights are zero"]),
        (T, {"weights": "wt"}, ["weight column 'wt'"]),
        ({"a\ud800": [1], "t": [0]}, {}, ["not valid Unicode", "surrogates"]),
        ({"a": ["\ud800"], "t": [0]}, {}, ["level of column 'a'", "surrogates"]),
        ({"a": [1], "t": ["\ud800"]}, {}, ["label of the target 't'", "surrogates"]),
        (pd.DataFrame({"a": [], "t": []}), {}, ["no rows"]),
    ],
)
def test_untrainable_tables_raise_errors_with_a_remedy(source, settings, words):
    chosen = {"target": "t"} | settings
    with pytest.raises(TreekitError) as error:
        make_dataset(source, **chosen)
    assert isinstance(error.value, (DataError, SettingError))
    assert all(word in str(error.value) for word in words), str(error.value)


def test_inputs_and_target_of_different_lengths_are_refused():
    with pytest.raises(DataError, match="target has 2 rows, but the inputs have 3"):
        make_dataset_from_xy(np.zeros((3, 1)), [0, 1])
    with pytest.raises(DataError, match=r"shape \(3, 2, 1\)"):
        make_dataset_from_xy(np.zeros((3, 1)), np.zeros((3, 2, 1)))
    with pytest.raises(DataError, match=r"shape \(3, 0\)"):
        make_dataset_from_xy(np.zeros((3, 1)), np.zeros((3, 0)))
    with pytest.raises(DataError, match="no rows"):
        make_dataset_from_xy(np.zeros((0, 1)), [])


def test_each_column_of_a_target_matrix_is_a_target():
    y = pd.DataFrame({"a": ["no", "yes", "no"], "b": ["p", "q", "p"]})
    named = make_dataset_from_xy(np.zeros((3, 1)), y)
    assert [output.name for output in named.schema.outputs] == ["a", "b"]
    assert named.schema.blocks == (0, 2, 4)
    assert named.y.tolist() == [[0, 0], [1, 1], [0, 0]]
    for unnamed in (y.to_numpy(), y.to_numpy().tolist()):
        same = make_dataset_from_xy(np.zeros((3, 1)), unnamed)
        assert [output.name for output in same.schema.outputs] == ["target0", "target1"]
        assert same.y.tolist() == named.y.tolist()
    numbers = make_dataset_from_xy(np.zeros((3, 1)), [[0.5, 1], [2, 3], [4, 5.5]])
    assert numbers.schema.task == "regression"
    assert numbers.y.tolist() == [[0.5, 1], [2, 3], [4, 5.5]]


def test_missing_value_marks_are_stored_in_the_schema(tmp_path):
    path = csv_of(tmp_path, "a,c,t\n1,x,0\nn/a,n/a,1\n")
    schema = make_dataset(path, "t", missing_marks={"n/a", "-"}).schema
    assert schema.missing_marks == ("-", "n/a")
    np.testing.assert_array_equal(encode_rows(path, schema), [[1, 0], [np.nan, np.nan]])
    apart = make_dataset_from_xy({"a": ["1", "n/a"]}, [0, 1], numeric=["a"], missing_marks=["n/a"])
    assert apart.schema.missing_marks == ("n/a",)
    assert make_dataset({"a": [1], "t": [0]}, "t").schema.missing_marks == MISSING_MARKS


@pytest.mark.parametrize("first", [2**53, 2**63])
def test_huge_integer_labels_are_not_merged(first, tmp_path):
    labels = [first, first + 1]
    data = make_dataset({"a": [1, 2], "t": labels}, "t", task="classification")
    assert data.schema.classes == tuple(labels)
    assert make_dataset_from_xy([[1], [2]], labels, task="classification").y.tolist() == [0, 1]


def test_labels_merged_as_doubles_are_texts_in_a_file_and_refused_in_memory(tmp_path):
    labels = [10**20, 10**20 + 1]
    path = csv_of(tmp_path, "a,t\n" + "".join(f"1,{label}\n" for label in labels))
    data = make_dataset(path, "t", task="classification")
    assert data.schema.classes == tuple(map(str, labels))
    with pytest.raises(DataError, match="1e\\+20 in row 0"):
        make_dataset({"a": [1, 2], "t": labels}, "t", task="classification")


def test_integers_merged_as_doubles_warn_with_their_column(tmp_path):
    ids = [2**53, 2**53 + 1, -5]
    path = csv_of(tmp_path, "id,t\n" + "".join(f"{value},0\n" for value in ids))
    for source in ({"id": np.array(ids), "t": [0, 1, 0]}, path):
        with pytest.warns(TreekitWarning, match=f"'id' holds {2**53} and {2**53 + 1}"):
            make_dataset(source, "t", task="classification")
    apart = make_dataset({"id": np.array([2**53, 2**53 + 2]), "t": [0, 1]}, "t")
    assert apart.columns[0].tolist() == [2**53, 2**53 + 2]


@pytest.mark.parametrize("declared", [["False", "True"], ["false", "true"], [False, True]])
@pytest.mark.parametrize("target", [[True, False], [True, True]])
def test_classes_of_a_bool_target_may_be_declared_as_text(declared, target):
    data = make_dataset({"a": [1, 2], "t": target}, "t", classes=declared)
    assert data.schema.classes == (False, True)
    assert data.y.tolist() == [int(label) for label in target]


@pytest.mark.parametrize(
    ("target", "wrong"),
    [([1, 2], 3.5), ([1, 2], True), ([1, 2], "1_0"), ([1.5, 2], True), ([True, True], "no")],
)
def test_a_declared_class_of_another_type_is_refused(target, wrong):
    with pytest.raises(DataError, match=f"declared class '{wrong}'"):
        make_dataset({"a": [1, 2], "t": target}, "t", classes=[*dict.fromkeys(target), wrong])


# ---------------------------------------------------------------- validation
# A validation table: held-out rows that are not taken from the training rows.


def noisy(n: int, seed: int, *, classes: bool = True) -> dict[str, list[object]]:
    """Two columns and noise; a third of the labels is wrong."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n).round(2)
    color = rng.integers(0, 4, n)
    y = (x + (color == 2) + rng.normal(size=n) * 0.8).round(3)
    names = ["red", "green", "blue", "grey"]
    target = np.where(y > 0, "up", "down").tolist() if classes else y.tolist()
    return {"x": x.tolist(), "color": [names[c] for c in color], "y": target}


def test_a_validation_table_is_read_by_the_training_schema():
    dataset = make_dataset({"x": [1.0, 2.0], "c": ["b", "a"], "y": ["no", "yes"]}, "y")
    other = {"y": ["yes", "yes"], "extra": [1, 2], "c": ["violet", "b"], "x": [None, 2.5]}
    held = make_validation(other, dataset.schema)
    assert held.schema is dataset.schema
    assert held.y.tolist() == [1, 1]  # not 0, as in a table of its own
    assert held.columns[1].tolist() == [-1, 1]
    np.testing.assert_array_equal(held.columns[0], np.array([np.nan, 2.5], np.float32))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"y": ["no", "perhaps"]}, "in the validation table, the target 'y' holds 'perhaps'"),
        ({"y": ["no", None]}, "in the validation table, the target 'y' is missing"),
        ({"x": []} | {"c": [], "y": []}, "the validation table has no rows"),
        ({"drop": "x"}, "has no column 'x'"),
        ({"drop": "y"}, "the validation table has no target column 'y'"),
    ],
)
def test_validation_table_of_another_schema_is_refused(change, said):
    table = {"x": [1.0, 2.0], "c": ["b", "a"], "y": ["no", "yes"]}
    other = {k: v for k, v in (table | change).items() if k not in (change.get("drop"), "drop")}
    with pytest.raises(DataError, match=said):
        treekit.train(table, target="y", validation=other, pruner="reduced_error")


def test_policies_and_weights_apply_to_the_validation_table():
    table, other = noisy(40, 0), noisy(40, 1)
    other["color"][3] = "violet"
    settings = {"pruner": "reduced_error", "seed": 0, "target": "y"}
    treekit.train(table, validation=other, **settings)
    with pytest.raises(DataError, match="holds 'violet' in row 3"):
        treekit.train(table, validation=other, unknown="error", **settings)
    with pytest.raises(DataError, match="the validation table has no weight column"):
        treekit.train(table | {"w": [1] * 40}, weights="w", validation=other, **settings)
    # Rows of no weight judge nothing: with one row left, its own answer is kept.
    weightless = other | {"w": [1, *[0] * 39]}
    model = treekit.train(table | {"w": [1] * 40}, weights="w", validation=weightless, **settings)
    alone = {name: cells[:1] for name, cells in other.items()}
    same = treekit.train(table, validation=alone, **settings)
    np.testing.assert_array_equal(model.trees[0].weight, same.trees[0].weight)


def test_validation_table_without_a_pruner_is_refused():
    table = noisy(20, 0)
    with pytest.raises(SettingError, match="no pruner is chosen"):
        treekit.train(table, target="y", validation=table)


@pytest.mark.kernels
@pytest.mark.parametrize("splitter", ["exact", "histogram"])
@pytest.mark.parametrize("criterion", ["gini", "squared_error"])
@pytest.mark.parametrize("placement", [MIDPOINT, READABLE_FLOAT32])
def test_held_out_rows_reach_the_leaves_of_the_final_tree(splitter, criterion, placement):
    # Values between those of the training rows are on the side of the real threshold.
    rng = np.random.default_rng(3)
    classes = 3 if criterion == "gini" else 0
    # Of 37.123, the midpoint of 36.123 and 38.123, the readable threshold is 37.12.
    n, m = 120, 400
    x, color = rng.integers(0, 40, n) * 2.0 + 0.123, rng.integers(0, 5, n)
    y = rng.integers(0, 3, n)
    gone = rng.random(n) < 0.1
    columns = [
        np.where(gone, None, x).tolist(),
        color.tolist(),
        (rng.integers(0, 60, n) / 4 + 0.0313).tolist(),
    ]
    problem = Problem(
        columns, y.tolist(), [None, 5, None], criterion, classes,
        max_bins=None if splitter == "exact" else 9,
    )  # fmt: skip
    recipe = recipe_of(problem, rules=SplitRules(placement=placement))
    other = [
        np.where(rng.random(m) < 0.1, np.nan, rng.integers(-3, 83, m) + 0.121).astype(np.float32),
        rng.integers(-1, 5, m).astype(np.int32),
        (rng.integers(-9, 200, m) / 8 + 0.0311).astype(np.float32),
    ]
    table, held = encode_held_table(other, recipe.table, splitter, "float32", placement)
    assert held.codes.dtype == table.codes.dtype
    target = recipe.target.hold_out(rng.integers(0, 3, m).astype(np.int32), None)
    ids = np.arange(max(n, m), dtype=np.uint32)

    grown = grow_tree(
        replace(recipe, table=table),
        recipe.target.select_rows(ids[:n], None),
        target.select_rows(ids[:m], None),
        0,
        held,
    )
    names = {"a": [0.0, 1.0], "color": list("ab"), "b": [0.0, 1.0], "y": [0, 1]}
    schema = make_dataset(
        names, "y", levels={"color": list("abcde")}, classes=range(3) if classes else None,
        task="classification" if classes else "regression", dtype="float32",
    ).schema  # fmt: skip
    matrix = np.column_stack([other[0], np.where(other[1] < 0, np.nan, other[1]), other[2]])
    leaves = leaf_indices(make_model(schema, [grown.tree]), matrix.astype(np.float32))[:, 0]
    np.testing.assert_array_equal(leaves[grown.held_ids], grown.held_leaf)
    assert grown.tree.n_leaves > 20


def accuracy(model: treekit.Model, table: dict[str, list[object]]) -> float:
    return float((model.predict(table) == np.array(table["y"])).mean())


def test_reduced_error_pruning_uses_the_validation_table():
    table, other = noisy(200, 0), noisy(200, 1)
    full = treekit.train(table, target="y", seed=0)
    pruned = treekit.train(table, target="y", seed=0, pruner="reduced_error", validation=other)
    # All training rows grow the tree: none is held out of them.
    assert pruned.trees[0].weight[0] == 200
    assert pruned.n_leaves < full.n_leaves
    assert accuracy(pruned, other) > accuracy(full, other)
    np.testing.assert_array_equal(pruned.trees[0].value[0], full.trees[0].value[0])


def test_cost_complexity_pruning_uses_the_validation_table_without_folds():
    table, other = noisy(150, 0), noisy(150, 1)
    model = treekit.train(
        table, target="y", seed=0, pruner="cost_complexity", validation=other
    )  # fmt: skip
    best = max(
        accuracy(
            treekit.train(
                table, target="y", pruner="cost_complexity", seed=0, **{"pruner.alpha": alpha}
            ),
            other,
        )
        for alpha in (0.0, *np.geomspace(0.0005, 0.2, 40))
    )
    assert accuracy(model, other) == pytest.approx(best)


@pytest.mark.parametrize("classes", [True, False])
def test_every_tree_of_a_forest_is_pruned_by_the_validation_table(classes):
    table, other = noisy(150, 0, classes=classes), noisy(150, 1, classes=classes)
    settings = {"target": "y", "seed": 0, "ensemble": "forest", "trees": 5}
    full = treekit.train(table, **settings)
    pruned = treekit.train(table, validation=other, pruner="reduced_error", **settings)
    assert pruned.n_leaves < full.n_leaves
    # Out-of-bag rows judge the forest, not the trees one by one.
    assert pruned.provenance["oob"]["rows"] == full.provenance["oob"]["rows"]
    assert "pruned_by_the_same_rows" not in pruned.provenance["oob"]
    without = treekit.train(
        table, validation=other, pruner="reduced_error", bootstrap=False, **settings
    )
    assert without.n_leaves < full.n_leaves


def test_estimators_accept_a_validation_pair():
    table, other = noisy(200, 0), noisy(200, 1)
    x, held = ([[a] for a in t["x"]] for t in (table, other))
    tree = DecisionTreeClassifier(pruner="reduced_error", random_state=0)
    plain = {"x": table["x"], "y": table["y"]}
    expected = treekit.train(
        plain, target="y", pruner="reduced_error", seed=0, validation=other
    )  # fmt: skip
    tree.fit(x, table["y"], validation=(held, other["y"]))
    assert tree.get_n_leaves() == expected.n_leaves
    assert (tree.predict(held) == expected.predict(other)).all()
    with pytest.raises(DataError, match="'sideways', which is not a label of the training rows"):
        tree.fit(x, table["y"], validation=(held[:1], ["sideways"]))
    with pytest.raises(SettingError, match=r"give a pair \(X, y\)"):
        tree.fit(x, table["y"], validation=held)
    numbers = noisy(100, 2, classes=False)
    rows = [[a] for a in numbers["x"]]
    forest = RandomForestRegressor(3, pruner="reduced_error", random_state=0)
    assert forest.fit(rows, numbers["y"], validation=(rows, numbers["y"])).predict(rows).shape == (
        100,
    )


def test_command_line_accepts_a_validation_table(tmp_path: Path):
    from click.testing import CliRunner

    from treekit.cli import main

    for name, seed in (("train", 0), ("valid", 1)):
        table = noisy(80, seed)
        lines = ["x,color,y", *(f"{a},{b},{c}" for a, b, c in zip(*table.values(), strict=True))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = [
        "train", str(tmp_path / "train.csv"), "--target", "y", "--seed", "0",
        "--pruner", "reduced_error", "--validation", str(tmp_path / "valid.csv"),
        "-o", str(tmp_path / "m.treekit"),
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = CliRunner().invoke(main, arguments)
    assert outcome.exit_code == 0, outcome.output
    model = treekit.load(tmp_path / "m.treekit")
    same = treekit.train(
        tmp_path / "train.csv", target="y", seed=0, pruner="reduced_error",
        validation=tmp_path / "valid.csv",
    )  # fmt: skip
    assert model.n_leaves == same.n_leaves
    assert model.trees[0].weight[0] == 80


@pytest.mark.kernels
@pytest.mark.parametrize("holdout", [0.25, None])
def test_fractional_rows_are_scored_by_weight_before_and_after_pruning(holdout):
    table, other = noisy(150, 0), noisy(150, 1)
    for rows in (table, other):
        rows["x"][::7] = [None] * len(rows["x"][::7])
    settings = {
        "target": "y", "seed": 0, "ensemble": "forest", "trees": 4, "missing": "fractional",
        "pruner": "reduced_error",
    }  # fmt: skip
    held = {"pruner.holdout": holdout} if holdout else {"validation": other}
    model = treekit.train(table, **settings, **held)
    full = treekit.train(table, **settings | {"pruner": None})
    assert model.n_leaves < full.n_leaves
    assert model.provenance["oob"]["rows"] == full.provenance["oob"]["rows"]
    assert model.provenance["oob"]["accuracy"] > 0.6


# ---------------------------------------------------------------- encode
# Rows of any table as the matrix that every artifact takes.

_spec = importlib.util.spec_from_file_location(
    "reference_encode", Path(__file__).parents[1] / "reference" / "encode.py"
)
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)


def schema_of(*columns, dtype="float32"):
    return Schema(columns=columns, classes=("no", "yes"), dtype=dtype)


MIXED = schema_of(Column("age"), Column("city", "nominal", ("Oslo", "北京", "None")))
NUMBERS = schema_of(Column("a"), Column("b"))


def test_columns_are_matched_by_name_and_others_ignored():
    frame = pd.DataFrame(
        {"city": ["北京", "Rome", None], "target": [0, 1, 0], "age": [1, 2, np.nan]}
    )
    expected = np.array([[1, 1], [2, np.nan], [np.nan, np.nan]], dtype=np.float32)
    for rows in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), frame.to_dict("list"),
                 frame.to_dict("records")):  # fmt: skip
        matrix = encode_rows(rows, MIXED)
        np.testing.assert_array_equal(matrix, expected)
        assert matrix.dtype == np.float32
        assert matrix.flags.c_contiguous


def test_columns_of_a_bare_array_are_matched_by_position():
    matrix = encode_rows(np.array([["7", "Oslo"], ["?", "x"]], dtype=object), MIXED)
    np.testing.assert_array_equal(matrix, [[7, 0], [np.nan, np.nan]])
    matrix = encode_rows([[7, "Oslo"], [None, None]], MIXED)
    np.testing.assert_array_equal(matrix, [[7, 0], [np.nan, np.nan]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_float_matrix_of_the_right_type_is_not_copied(dtype):
    schema = schema_of(Column("a"), Column("b"), dtype=dtype)
    matrix = np.arange(6, dtype=dtype).reshape(3, 2)
    assert np.shares_memory(encode_rows(matrix, schema), matrix)
    assert encode_rows(np.asfortranarray(matrix), schema).flags.c_contiguous


def test_numbers_are_rounded_to_double_and_then_to_the_input_type():
    # 2**60 + 2**36 + 1 lies just above a tie of float32, but is a tie once it is a double.
    whole = np.array([[2**60 + 2**36 + 1, 16777217]])
    expected = whole.astype(np.float64).astype(np.float32)
    assert expected[0, 0] != whole.astype(np.float32)[0, 0]
    np.testing.assert_array_equal(encode_rows(whole, NUMBERS), expected)
    np.testing.assert_array_equal(
        encode_rows({"a": whole[:, 0], "b": whole[:, 1]}, NUMBERS), expected
    )


def test_infinities_and_overflow_are_allowed_at_prediction():
    matrix = encode_rows(np.array([[np.inf, -1e300], [-0.0, 1e-50]]), NUMBERS)
    assert matrix.tolist() == [[math.inf, -math.inf], [0.0, 0.0]]
    assert np.signbit(matrix[1, 0])


def test_numbers_of_a_float_matrix_match_categories_in_nominal_columns():
    schema = schema_of(Column("a"), Column("n", "nominal", ("10", "3", "2.5")))
    for dtype in (np.float32, np.float64):
        matrix = encode_rows(
            np.array([[0, 3.0], [0, 2.5], [0, np.nan], [0, 4], [0, 10]], dtype), schema
        )
        np.testing.assert_array_equal(matrix[:, 1], [1, 2, np.nan, np.nan, 0])


def test_category_is_found_by_its_text_or_another_common_notation(tmp_path):
    schema = schema_of(Column("n", "nominal", ("3", "2.5", "True", "007")))
    path = tmp_path / "t.csv"
    path.write_text("n\n3\n3.0\n2.5\n 2.50\nTRUE\n007\n7\n3.00\nx\n", encoding="utf-8")
    codes = encode_rows(path, schema)[:, 0]
    nan = np.nan
    np.testing.assert_array_equal(codes, [0, 0, 1, nan, 2, 3, nan, nan, nan])
    # The same row alone means the same: nothing depends on its neighbours.
    for text, code in (("3.0", 0), ("TRUE", 2), ("007", 3)):
        path.write_text(f"n\n{text}\n", encoding="utf-8")
        assert encode_rows(path, schema).tolist() == [[code]]


def test_category_equal_to_a_missing_value_mark_is_kept():
    np.testing.assert_array_equal(
        encode_rows({"age": [1, 2, 3], "city": ["None", "NA", "?"]}, MIXED)[:, 1],
        [2, np.nan, np.nan],
    )


def test_numeric_text_is_read_as_a_double_from_any_source():
    rows = [{"a": "0.1", "b": "NA"}, {"a": " 2 ", "b": "1e3"}]
    expected = np.array([[0.1, np.nan], [2, 1000]], dtype=np.float32)
    np.testing.assert_array_equal(encode_rows(rows, NUMBERS), expected)
    np.testing.assert_array_equal(encode_rows(pl.DataFrame(rows), NUMBERS), expected)


def test_bools_are_0_and_1_in_numeric_and_categories_in_nominal_columns():
    schema = schema_of(Column("a"), Column("b", "nominal", ("False", "True")))
    matrix = encode_rows({"a": [True, None], "b": [True, None]}, schema)
    np.testing.assert_array_equal(matrix, [[1, 1], [np.nan, np.nan]])


def test_no_rows_give_an_empty_matrix():
    assert encode_rows(np.empty((0, 2)), NUMBERS).shape == (0, 2)
    assert encode_rows(pd.DataFrame({"age": [], "city": []}), MIXED).shape == (0, 2)


@pytest.mark.parametrize(
    ("rows", "settings", "words"),
    [
        ({"age": [1]}, {}, ["no column 'city'", "needs"]),
        ({"age": [1], "City": ["x"]}, {}, ["no column 'city'", "did you mean 'City'"]),
        (np.zeros((1, 3)), {}, ["3 columns", "takes 2", "'age', 'city'"]),
        ([[1]], {}, ["1 columns", "takes 2"]),
        (np.zeros(2), {}, ["(2,)", "reshape"]),
        ({"age": [1, "old"], "city": ["Oslo", "Oslo"]}, {}, ["'age'", "row 1", "'old'"]),
        (
            {"age": [1, 2], "city": ["Oslo", "Rom"]},
            {"unknown": "error"},
            ["'city'", "'Rom'", "row 1"],
        ),
        ({"age": [1, None], "city": ["Oslo", "Oslo"]}, {"missing": "error"}, ["'age'", "row 1"]),
        ({"age": [1, 2], "city": ["Oslo", None]}, {"missing": "error"}, ["'city'", "row 1"]),
        ({"age": [1], "city": ["Rom"]}, {"missing": "error"}, ["'city'", "row 0"]),
    ],
)
def test_invalid_rows_raise_an_error_naming_row_and_column(rows, settings, words):
    with pytest.raises(DataError) as error:
        encode_rows(rows, MIXED, **settings)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_missing_and_unknown_policies_apply_on_the_fast_path():
    with pytest.raises(DataError, match="'b' is missing in row 1"):
        encode_rows(np.array([[1, 2], [3, np.nan]], dtype=np.float32), NUMBERS, missing="error")
    with pytest.raises(DataError, match="3 columns"):
        encode_rows(np.zeros((2, 3), dtype=np.float32), NUMBERS)


def test_missing_values_do_not_count_as_unseen_categories():
    matrix = encode_rows({"age": [1], "city": [None]}, MIXED, unknown="error")
    assert np.isnan(matrix[0, 1])


LEVELS = ("b", "a", "3", "é", " x")
ROW = st.fixed_dictionaries(
    {
        "f": st.none() | st.floats(),
        "i": st.integers(-(2**62), 2**62),
        "t": st.none() | st.sampled_from([*LEVELS, "unseen"]),
    }
)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(ROW, min_size=1, max_size=8),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["rows", "pandas", "polars", "arrow"]),
)
def test_every_table_type_is_encoded_as_by_the_reference(rows, dtype, kind):
    schema = schema_of(Column("t", "nominal", LEVELS), Column("f"), Column("i"), dtype=dtype)
    types = {"f": pl.Float64, "i": pl.Int64, "t": pl.String}
    columns = {name: [row[name] for row in rows] for name in types}
    source = {
        "rows": lambda: rows,
        "pandas": lambda: pd.DataFrame(columns),
        "polars": lambda: pl.DataFrame(columns, schema=types),
        "arrow": lambda: pa.table(columns),
    }[kind]()
    np.testing.assert_array_equal(encode_rows(source, schema), reference.encode(rows, schema))


def test_missing_value_marks_default_to_the_schema_unless_given():
    schema = Schema(
        (Column("a"), Column("c", "nominal", ("-", "x"))), classes=(0, 1), missing_marks=("-",)
    )
    rows = {"a": ["-", "1"], "c": ["-", "x"]}
    np.testing.assert_array_equal(encode_rows(rows, schema), [[np.nan, 0], [1, 1]])
    with pytest.raises(DataError, match="'-'"):
        encode_rows(rows, schema, missing_marks=["?"])


def test_schema_stored_without_missing_marks_gets_the_usual_ones():
    old = msgspec.to_builtins(NUMBERS)
    del old["missing_marks"]
    assert msgspec.convert(old, Schema) == NUMBERS
    np.testing.assert_array_equal(encode_rows({"a": ["NA"], "b": ["2"]}, NUMBERS), [[np.nan, 2]])


# ---------------------------------------------------------------- coding
# Columns as codes: the kernels give what sorting lists gives, whatever the values.

FEW = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, -2.5, 1e-45, -1e-45, 3e38, -3e38, np.nan])
CELLS = st.one_of(FEW, st.floats(allow_infinity=False, width=32))
WEIGHTS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])


@st.composite
def tables(draw):
    """A numeric column of each type, and weights or none."""
    n = draw(st.integers(1, 60))
    columns = [draw(hnp.arrays(dtype, n, elements=CELLS)) for dtype in (np.float32, np.float64)]
    weights = draw(st.none() | hnp.arrays(np.float64, n, elements=WEIGHTS))
    return columns, weights


@given(tables(), st.none() | st.integers(2, 255))
@settings(max_examples=examples(150))
def test_codes_and_values_equal_sorted_lists(table, max_bins):
    columns, weights = table
    if max_bins is not None and weights is None and max_bins < 20:
        columns = [np.concatenate([column, column + 1]) for column in columns]
    coding = "exact" if max_bins is None else "histogram"
    coded = encode_columns(
        columns, np.zeros(2, np.int64), np.zeros(2, bool), coding,
        max_bins=max_bins or 255, weights=weights,
    )  # fmt: skip
    for f, column in enumerate(columns):
        own = None if weights is None else weights.tolist()
        codes, low, high = code_column(column.astype(float).tolist(), max_bins, own)
        start, n = coded.value_start[f], coded.n_codes[f]
        assert coded.codes[f].tolist() == codes
        assert coded.low[start : start + n].tolist() == low
        assert coded.high[start : start + n].tolist() == high


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("coding", ["exact", "histogram"])
def test_long_columns_are_coded_equally_for_any_number_of_threads(dtype, coding):
    rng = np.random.default_rng(0)
    columns = [
        rng.normal(size=3000).astype(dtype),
        np.exp(20 * rng.normal(size=3000)).astype(dtype)[::-1],
        np.where(rng.random(3000) < 0.3, np.nan, rng.integers(-300, 300, 3000)).astype(dtype),
        rng.integers(-1, 400, 3000).astype(np.int32),
    ]
    n_levels, nominal = np.array([0, 0, 0, 400]), np.array([False, False, False, True])
    one, two = (encode_columns(columns, n_levels, nominal, coding, n_jobs=jobs) for jobs in (1, 2))
    for a, b in zip(one, two, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    for f, column in enumerate(columns[:3]):
        expected = code_column(column.astype(float).tolist(), 255 if coding != "exact" else None)
        assert one.codes[f].tolist() == expected[0]
    assert one.codes[3].tolist() == np.where(columns[3] < 0, 400, columns[3]).tolist()
    assert one.codes.dtype == np.uint32


def test_read_only_and_strided_columns_compile_no_other_kernel():
    wide = np.arange(12.0).reshape(4, 3)
    wide.flags.writeable = False
    seen = []
    for columns in ([column.copy() for column in wide.T], list(wide.T)):
        coded = encode_columns(columns, np.zeros(3, np.int64), np.zeros(3, bool), "histogram")
        assert coded.codes.tolist() == [[0, 1, 2, 3]] * 3
        seen.append(len(kernels.sort_keys.overloads))
    assert seen[0] == seen[1]


def test_codes_larger_than_memory_are_stored_in_a_file(monkeypatch):
    columns = [np.arange(300.0), np.arange(300.0) % 7]
    arguments = (columns, np.zeros(2, np.int64), np.zeros(2, bool), "exact")
    inside = encode_columns(*arguments)
    monkeypatch.setattr(room, "_get_free_memory", lambda: 600)
    monkeypatch.setattr(room, "_SMALL_BYTES", 0)
    mapped = encode_columns(*arguments)
    assert isinstance(mapped.codes.base, np.memmap)
    assert not isinstance(inside.codes.base, np.memmap)
    np.testing.assert_array_equal(inside.codes, mapped.codes)


@pytest.mark.matrix
@pytest.mark.usefixtures("numba_alone")
def test_subscripts_of_the_coding_kernels_are_unsigned():
    columns = [np.arange(5, dtype=np.float32), np.arange(5.0)]
    for coding in ("exact", "histogram"):
        encode_columns(columns, np.zeros(2, np.int64), np.zeros(2, bool), coding)
    found, checked = signed_in(kernels)
    assert not found
    assert checked
    assert matrix.MAX_BINS == 255


@given(
    st.lists(
        st.one_of(
            st.floats(-1e39, 1e39),
            st.sampled_from([0.0, -0.0, 1.0, 1.0 + 2.0**-30, 1e-60, np.nan]),
        ),
        min_size=1,
    )
)
def test_input_type_of_few_numbers_equals_the_complete_check(numbers):
    column = np.array(numbers)
    quick = features.find_loss(column)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column of NaN alone
        patch.setattr(features, "_FEW_CELLS", 0)
        assert quick == features.find_loss(column)
