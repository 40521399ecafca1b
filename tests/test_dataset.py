"""From any table to training data: kinds, vocabularies, targets, weights, input type."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.dataset import make_dataset, make_dataset_xy
from treekit.data.encoding import encode_rows
from treekit.data.schema import MISSING_MARKS
from treekit.errors import DataError, SettingError, TreekitError, TreekitWarning

WATERMELON = Path(__file__).parents[1] / "examples" / "tables" / "watermelon"


def kinds(dataset):
    return {column.name: column.kind for column in dataset.schema.columns}


def levels(dataset, name):
    return next(column.levels for column in dataset.schema.columns if column.name == name)


def csv_of(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_mixed_table_is_coded_by_kind():
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


def test_the_chinese_watermelons_are_read_with_their_missing_cells():
    data = make_dataset(WATERMELON / "watermelon_2.0_alpha.csv", "好瓜", ignore=["编号"])
    assert data.schema.names == ("色泽", "根蒂", "敲声", "纹理", "脐部", "触感")
    assert set(kinds(data).values()) == {"nominal"}
    assert sorted(data.schema.classes) == sorted(("是", "否"))
    assert data.columns[0][0] == -1
    data = make_dataset(WATERMELON / "watermelon_3.0.csv", "好瓜", ignore=["编号"])
    assert kinds(data)["密度"] == "numeric"
    assert data.columns[6][0] == np.float32(0.697)


def test_the_shipped_table_becomes_training_data():
    data = make_dataset(demo_table(), DEMO_TARGET)
    assert data.schema.n_features == 20
    assert data.schema.nominal.sum() == 13
    gone = sum(np.sum(c == -1) if c.dtype == np.int32 else np.isnan(c).sum() for c in data.columns)
    assert gone == 1925


def test_every_source_gives_the_same_training_data(tmp_path):
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


def test_declared_levels_come_first_then_the_types_order_then_sorted():
    frame = pd.DataFrame({"c": pd.Categorical(["b", "a"], ["z", "b", "a"]), "t": ["x", "y"]})
    assert levels(make_dataset(frame, "t"), "c") == ("z", "b", "a")
    assert levels(make_dataset(frame, "t", levels={"c": ["a", "b"]}), "c") == ("a", "b")
    assert levels(make_dataset({"c": ["b", "a"], "t": ["x", "y"]}, "t"), "c") == ("a", "b")


def test_levels_that_hold_numbers_are_in_natural_order(tmp_path):
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


def test_forced_nominal_numbers_are_levels_in_order_of_size(tmp_path):
    path = csv_of(tmp_path, "n,z,t\n10,007,a\n9.0,7,b\nNA,12,a\n")
    data = make_dataset(path, "t", nominal=["n", "z"])
    assert levels(data, "n") == ("9", "10")
    assert levels(data, "z") == ("007", "7", "12")
    assert data.columns[0].tolist() == [1, 0, -1]
    array = make_dataset_xy(np.array([[10.0], [9.0], [np.nan]]), ["a", "b", "a"], nominal=["x0"])
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


def test_numeric_levels_may_be_declared_as_numbers():
    data = make_dataset({"c": [3, 1, 2], "t": ["x", "y", "x"]}, "t", levels={"c": [3, 2, 1]})
    assert levels(data, "c") == ("3", "2", "1")
    assert data.columns[0].tolist() == [0, 2, 1]


def test_bools_are_nominal_and_all_missing_columns_numeric():
    empty = {"m": [None, None], "q": ["?", ""], "k": pd.Categorical([None, None])}
    data = make_dataset({"b": [True, None], **empty, "t": ["x", "y"]}, "t")
    assert kinds(data) == {"b": "nominal", "m": "numeric", "q": "numeric", "k": "numeric"}
    assert levels(data, "b") == ("True",)
    assert all(np.isnan(column).all() for column in data.columns[1:])


def test_prediction_codes_training_rows_as_training_did():
    source = {"c": ["b", None, "a"], "n": [0.1, 2, None], "b": [True, False, None], "t": [0, 1, 1]}
    data = make_dataset(source, "t")
    matrix = encode_rows(source, data.schema)
    for feature, column in enumerate(data.columns):
        expected = np.where(column == -1, np.nan, column) if column.dtype == np.int32 else column
        np.testing.assert_array_equal(matrix[:, feature], expected)


TEXT = st.none() | st.text(max_size=4)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.tuples(TEXT, st.floats() | st.none()), min_size=1, max_size=9))
def test_any_cells_are_refused_by_name_or_coded_as_prediction_codes_them(rows):
    source = {"c": [r[0] for r in rows], "n": [r[1] for r in rows]}
    infinite = any(number is not None and np.isinf(number) for _, number in rows)
    broken = any("\ud800" <= letter <= "\udfff" for text, _ in rows for letter in text or "")
    try:
        data = make_dataset_xy(source, ["t"] * len(rows))
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
    data = make_dataset_xy(np.zeros((len(y), 1)), y)
    assert (data.schema.task, data.schema.classes) == (task, classes)
    assert [type(c) for c in data.schema.classes] == [type(c) for c in classes]
    flat = np.ravel(np.asarray(y)).tolist()
    decoded = [classes[code] for code in data.y] if classes else data.y.tolist()
    assert decoded == flat
    assert data.y.dtype == (np.int32 if classes else np.float64)


def test_the_task_of_a_file_follows_from_how_its_numbers_are_written(tmp_path):
    path = csv_of(tmp_path, "x,whole,real,truth\n1,2,2.0,True\n2,3,3.0,FALSE\n")
    assert make_dataset(path, "whole").schema.classes == (2, 3)
    assert make_dataset(path, "real").schema.task == "regression"
    assert make_dataset(path, "truth").schema.classes == (False, True)


def test_the_task_can_be_chosen():
    x = np.zeros((3, 1))
    data = make_dataset_xy(x, [1.0, 2.0, 1.0], task="classification")
    assert data.schema.classes == (1, 2)
    assert isinstance(data.schema.classes[0], int)
    assert make_dataset_xy(x, [0.5, 2.0, 0.5], task="classification").schema.classes == (0.5, 2.0)
    for y in ([1, 0, 1], [True, False, True], ["1", "0", "1"]):
        data = make_dataset_xy(x, y, task="regression")
        assert data.y.tolist() == [1.0, 0.0, 1.0]


def test_classes_can_be_declared_in_order_and_without_rows():
    x = np.zeros((2, 1))
    data = make_dataset_xy(x, ["lo", "hi"], classes=["lo", "mid", "hi"])
    assert data.schema.classes == ("lo", "mid", "hi")
    assert data.y.tolist() == [0, 2]
    # A command line declares text; the labels stay whole numbers.
    assert make_dataset_xy(x, [3, 1], classes=["3", "2", "1"]).schema.classes == (3, 2, 1)


def test_a_series_names_the_target():
    x = np.zeros((2, 1))
    assert make_dataset_xy(x, pd.Series([0, 1], name="income")).schema.target == "income"
    assert make_dataset_xy(x, [0, 1]).schema.target == "target"
    assert make_dataset_xy(x, [0, 1], target="y").schema.target == "y"


# ---------------------------------------------------------------- input type


def test_values_that_float32_keeps_apart_give_float32():
    x = np.random.default_rng(0).normal(size=(20_000, 2))
    data = make_dataset_xy(x, np.zeros(20_000, dtype=int))
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
def test_values_that_float32_would_merge_give_float64(column):
    y = np.zeros(len(column), dtype=int)
    data = make_dataset_xy({"fine": np.zeros(len(column)), "when": column}, y)
    assert data.schema.dtype == "float64"
    np.testing.assert_array_equal(data.columns[1], column)
    assert data.columns[0].dtype == np.float64


def test_float32_on_request_warns_and_names_the_column():
    table = {"fine": np.arange(50), "when": 1.7e9 + np.arange(50.0)}
    with pytest.warns(TreekitWarning, match=r"'when'.*float64"):
        data = make_dataset_xy(table, np.zeros(50, dtype=int), dtype="float32")
    assert data.schema.dtype == "float32"
    with pytest.raises(DataError, match=r"'big'.*float64"):
        make_dataset_xy({"big": [1e300, 1.0]}, [0, 1], dtype="float32")


def test_float64_on_request_keeps_every_double():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = make_dataset_xy(np.array([[0.1], [0.2]]), [0, 1], dtype="float64")
    assert data.columns[0].tolist() == [0.1, 0.2]


def test_a_float32_matrix_is_never_examined_for_merging():
    x = np.full((3, 1), 16777216, dtype=np.float32)
    data = make_dataset_xy(x, [0, 1, 0], dtype="float32")
    assert data.columns[0].dtype == np.float32


# ---------------------------------------------------------------- weights and rows


def test_weights_come_from_an_array_or_a_column_that_is_then_no_input():
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
    make_dataset_xy(x, [0, 1, 0])
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
def test_what_cannot_be_trained_on_gets_an_error_with_a_remedy(source, settings, words):
    chosen = {"target": "t"} | settings
    with pytest.raises(TreekitError) as error:
        make_dataset(source, **chosen)
    assert isinstance(error.value, (DataError, SettingError))
    assert all(word in str(error.value) for word in words), str(error.value)


def test_inputs_and_target_of_different_lengths_are_refused():
    with pytest.raises(DataError, match="target has 2 rows but the inputs have 3"):
        make_dataset_xy(np.zeros((3, 1)), [0, 1])
    with pytest.raises(DataError, match=r"shape \(3, 2, 1\)"):
        make_dataset_xy(np.zeros((3, 1)), np.zeros((3, 2, 1)))
    with pytest.raises(DataError, match=r"shape \(3, 0\)"):
        make_dataset_xy(np.zeros((3, 1)), np.zeros((3, 0)))
    with pytest.raises(DataError, match="no rows"):
        make_dataset_xy(np.zeros((0, 1)), [])


def test_each_column_of_the_target_is_a_target():
    y = pd.DataFrame({"a": ["no", "yes", "no"], "b": ["p", "q", "p"]})
    named = make_dataset_xy(np.zeros((3, 1)), y)
    assert [output.name for output in named.schema.outputs] == ["a", "b"]
    assert named.schema.blocks == (0, 2, 4)
    assert named.y.tolist() == [[0, 0], [1, 1], [0, 0]]
    for unnamed in (y.to_numpy(), y.to_numpy().tolist()):
        same = make_dataset_xy(np.zeros((3, 1)), unnamed)
        assert [output.name for output in same.schema.outputs] == ["target0", "target1"]
        assert same.y.tolist() == named.y.tolist()
    numbers = make_dataset_xy(np.zeros((3, 1)), [[0.5, 1], [2, 3], [4, 5.5]])
    assert numbers.schema.task == "regression"
    assert numbers.y.tolist() == [[0.5, 1], [2, 3], [4, 5.5]]


def test_the_marks_of_missing_values_are_part_of_the_schema(tmp_path):
    path = csv_of(tmp_path, "a,c,t\n1,x,0\nn/a,n/a,1\n")
    schema = make_dataset(path, "t", missing_marks={"n/a", "-"}).schema
    assert schema.missing_marks == ("-", "n/a")
    np.testing.assert_array_equal(encode_rows(path, schema), [[1, 0], [np.nan, np.nan]])
    apart = make_dataset_xy({"a": ["1", "n/a"]}, [0, 1], numeric=["a"], missing_marks=["n/a"])
    assert apart.schema.missing_marks == ("n/a",)
    assert make_dataset({"a": [1], "t": [0]}, "t").schema.missing_marks == MISSING_MARKS


@pytest.mark.parametrize("first", [2**53, 2**63])
def test_huge_whole_labels_stay_apart(first, tmp_path):
    labels = [first, first + 1]
    data = make_dataset({"a": [1, 2], "t": labels}, "t", task="classification")
    assert data.schema.classes == tuple(labels)
    assert make_dataset_xy([[1], [2]], labels, task="classification").y.tolist() == [0, 1]


def test_labels_that_a_double_would_merge_are_refused_by_value(tmp_path):
    labels = [10**20, 10**20 + 1]
    path = csv_of(tmp_path, "a,t\n" + "".join(f"1,{label}\n" for label in labels))
    with pytest.raises(DataError, match=str(labels[0])):
        make_dataset(path, "t", task="classification")
    with pytest.raises(DataError, match="1e\\+20 in row 0"):
        make_dataset({"a": [1, 2], "t": labels}, "t", task="classification")


def test_a_column_whose_whole_numbers_merge_as_doubles_is_named(tmp_path):
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
