"""Rows of any table as the matrix that every artifact takes."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from treekit.data.encoding import encode_rows
from treekit.data.schema import Column, Schema
from treekit.errors import DataError

_spec = importlib.util.spec_from_file_location(
    "reference_encode", Path(__file__).parent / "reference" / "encode.py"
)
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)


def schema_of(*columns, dtype="float32"):
    return Schema(columns=columns, classes=("no", "yes"), dtype=dtype)


MIXED = schema_of(Column("age"), Column("city", "nominal", ("Oslo", "北京", "None")))
NUMBERS = schema_of(Column("a"), Column("b"))


def test_columns_are_found_by_name_and_others_ignored():
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


def test_a_bare_array_is_taken_by_position():
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


def test_numbers_are_rounded_to_a_double_and_then_to_the_input_type():
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


def test_cells_of_a_float_matrix_are_level_texts_in_nominal_columns():
    schema = schema_of(Column("a"), Column("n", "nominal", ("10", "3", "2.5")))
    for dtype in (np.float32, np.float64):
        matrix = encode_rows(
            np.array([[0, 3.0], [0, 2.5], [0, np.nan], [0, 4], [0, 10]], dtype), schema
        )
        np.testing.assert_array_equal(matrix[:, 1], [1, 2, np.nan, np.nan, 0])


def test_a_level_is_found_however_its_number_is_written(tmp_path):
    schema = schema_of(Column("n", "nominal", ("3", "2.5", "True", "007")))
    path = tmp_path / "t.csv"
    path.write_text("n\n3\n3.0\n 2.50\nTRUE\n007\n7\nx\n", encoding="utf-8")
    codes = encode_rows(path, schema)[:, 0]
    np.testing.assert_array_equal(codes, [0, 0, 1, 2, 3, np.nan, np.nan])
    # The same row alone means the same: nothing depends on its neighbours.
    for text, code in (("3.0", 0), ("TRUE", 2), ("007", 3)):
        path.write_text(f"n\n{text}\n", encoding="utf-8")
        assert encode_rows(path, schema).tolist() == [[code]]


def test_a_level_that_is_also_a_mark_of_missing_values_stays_a_level():
    np.testing.assert_array_equal(
        encode_rows({"age": [1, 2, 3], "city": ["None", "NA", "?"]}, MIXED)[:, 1],
        [2, np.nan, np.nan],
    )


def test_numeric_text_is_read_as_a_double_from_any_source():
    rows = [{"a": "0.1", "b": "NA"}, {"a": " 2 ", "b": "1e3"}]
    expected = np.array([[0.1, np.nan], [2, 1000]], dtype=np.float32)
    np.testing.assert_array_equal(encode_rows(rows, NUMBERS), expected)
    np.testing.assert_array_equal(encode_rows(pl.DataFrame(rows), NUMBERS), expected)


def test_bools_are_zero_and_one_in_numeric_columns_and_levels_in_nominal_ones():
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
def test_rows_that_do_not_fit_get_an_error_that_names_the_place(rows, settings, words):
    with pytest.raises(DataError) as error:
        encode_rows(rows, MIXED, **settings)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_the_policies_hold_on_the_fast_path_too():
    with pytest.raises(DataError, match="'b' is missing in row 1"):
        encode_rows(np.array([[1, 2], [3, np.nan]], dtype=np.float32), NUMBERS, missing="error")
    with pytest.raises(DataError, match="3 columns"):
        encode_rows(np.zeros((2, 3), dtype=np.float32), NUMBERS)


def test_missing_values_are_no_unseen_categories():
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
def test_every_source_is_encoded_as_the_plain_reference_does(rows, dtype, kind):
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


def test_the_marks_of_the_schema_are_the_default_and_given_ones_win():
    schema = Schema(
        (Column("a"), Column("c", "nominal", ("-", "x"))), classes=(0, 1), missing_marks=("-",)
    )
    rows = {"a": ["-", "1"], "c": ["-", "x"]}
    np.testing.assert_array_equal(encode_rows(rows, schema), [[np.nan, 0], [1, 1]])
    with pytest.raises(DataError, match="'-'"):
        encode_rows(rows, schema, missing_marks=["?"])


def test_a_schema_written_without_marks_has_the_usual_ones():
    old = msgspec.to_builtins(NUMBERS)
    del old["missing_marks"]
    assert msgspec.convert(old, Schema) == NUMBERS
    np.testing.assert_array_equal(encode_rows({"a": ["NA"], "b": ["2"]}, NUMBERS), [[np.nan, 2]])
