"""Types of cells beyond numbers, bools and text: categories, intervals, enumerations, dates."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treekit import DataError
from treekit.data.dataset import make_dataset, make_dataset_from_xy
from treekit.data.encoding import encode_rows
from treekit.errors import TreekitWarning


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Letter(enum.StrEnum):
    A = "a"
    B = "b"


def read(column, **settings):
    """The column as the only input of a table."""
    return make_dataset({"c": column, "y": np.arange(len(column)) % 2}, "y", **settings)


def levels_and_codes(column):
    data = read(column)
    return list(data.schema.columns[0].levels), data.columns[0].tolist()


CATEGORIES = st.one_of(
    st.just([False, True]),
    st.lists(st.integers(-(2**62), 2**62), min_size=2, max_size=4, unique=True),
    st.just([2**53, 2**53 + 1]),
    st.lists(
        st.floats(-1e9, 1e9).map(lambda x: round(x, 3) + 0.0), min_size=2, max_size=4, unique=True
    ),
    st.lists(st.text("abc01.", min_size=1, max_size=4), min_size=2, max_size=4, unique=True),
)


@given(CATEGORIES, st.data())
def test_pandas_categorical_keeps_its_order_and_missing_cells(categories, data):
    order = data.draw(st.permutations(categories))
    picked = data.draw(st.lists(st.integers(-1, len(order) - 1), min_size=2, max_size=9))
    if max(picked) < 0:
        picked.append(0)
    cells = pd.Categorical.from_codes(picked, order, ordered=data.draw(st.booleans()))
    for column in (cells, pd.Series(cells), pd.CategoricalIndex(cells)):
        levels, codes = levels_and_codes(column)
        assert codes == picked
        assert len(levels) == len(order)
        if isinstance(order[0], str | bool):
            assert levels == list(map(str, order))


def test_pandas_categorical_of_bools_has_two_categories_and_missing_cells():
    column = pd.Categorical([True, False, True, None])
    assert levels_and_codes(column) == (["False", "True"], [1, 0, 1, -1])
    data = make_dataset(pd.DataFrame({"c": column, "y": [0, 1, 0, 1]}), "y")
    assert data.columns[0].tolist() == [1, 0, 1, -1]
    # The same cells as pandas reads them from a file: bools and NaN.
    assert levels_and_codes(np.array([True, False, np.nan, None], object))[1] == [1, 0, -1, -1]


AGES = pd.cut([21, 45, 70, 33], [18, 30, 50, 90])
BANDS = ["(18, 30]", "(30, 50]", "(50, 90]"]


@pytest.mark.parametrize(
    "column",
    [
        AGES,
        pd.Series(AGES),
        pd.Series(list(AGES), dtype=object),
        pd.IntervalIndex(AGES),
        pd.Series(pd.IntervalIndex(AGES)),
        list(AGES),
        np.array(list(AGES), dtype=object),
        pl.Series([21, 45, 70, 33]).bin_intervals([30, 50], labels=BANDS),
    ],
    ids=["Categorical", "series", "object", "index", "interval", "list", "array", "polars"],
)
def test_intervals_are_ordered_categories_as_pandas_writes_them(column):
    assert levels_and_codes(column) == (BANDS, [0, 1, 2, 1])
    target = make_dataset({"a": [1, 2, 3, 4], "t": column}, "t")
    assert target.schema.classes == tuple(BANDS)
    assert target.y.tolist() == [0, 1, 2, 1]
    schema = read(AGES).schema
    assert encode_rows({"c": column}, schema)[:, 0].tolist() == [0, 1, 2, 1]
    assert encode_rows({"c": ["(30, 50]", "(90, 99]"]}, schema)[0, 0] == 1


def test_intervals_are_in_the_order_of_their_bounds():
    column = pd.Series(pd.IntervalIndex.from_breaks([-30.0, -5.0, 0.5, 9.0, 90.0]))
    expected = ["(-30.0, -5.0]", "(-5.0, 0.5]", "(0.5, 9.0]", "(9.0, 90.0]"]
    assert levels_and_codes(column[::-1]) == (expected, [3, 2, 1, 0])
    missing = pd.Series(pd.cut([21, 700, np.nan], [18, 30, 50]))
    assert levels_and_codes(missing) == (BANDS[:2], [0, -1, -1])
    quarters = pd.qcut([1.5, 2.25, 3.1, 4.9], 2)
    assert levels_and_codes(quarters) == (["(1.499, 2.675]", "(2.675, 4.9]"], [0, 0, 1, 1])


def test_enum_members_and_uuids_are_categories():
    assert levels_and_codes([Colour.RED, Colour.BLUE, None]) == (["BLUE", "RED"], [1, 0, -1])
    assert levels_and_codes([Letter.A, Letter.B, None]) == (["a", "b"], [0, 1, -1])
    members = pd.Categorical([Colour.RED, Colour.BLUE], categories=[Colour.RED, Colour.BLUE])
    assert levels_and_codes(members) == (["RED", "BLUE"], [0, 1])
    ids = [uuid.UUID(int=k) for k in (2, 1)]
    for column in (ids, pd.Series(ids), np.array(ids, object)):
        assert levels_and_codes(column) == ([str(ids[1]), str(ids[0])], [1, 0])
    declared = read([Colour.RED, Colour.BLUE], levels={"c": [Colour.RED, Colour.BLUE]})
    assert declared.schema.columns[0].levels == ("RED", "BLUE")
    assert read([decimal.Decimal("1.5"), None]).columns[0].tolist()[0] == 1.5


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([dt.date(2020, 1, 1)] * 2, "dates and times"),
        ([dt.time(1)] * 2, "dates and times"),
        (pd.to_datetime(["2020-01-01", None]), "dates and times"),
        (pd.Series(pd.to_datetime(["2020-01-01", None])).astype(object), "dates and times"),
        (pd.Series(pd.Categorical(pd.to_datetime(["2020", "2021"]))), "dates and times"),
        (pd.period_range("2020", periods=2), "dates and times"),
        (pl.Series([dt.datetime(2020, 1, 1)] * 2), "dates and times"),
        ([dt.timedelta(1)] * 2, "durations"),
        (pd.Series(pd.to_timedelta([1, 2])), "durations"),
        (pa.array([1, 2], pa.duration("s")), "durations"),
    ],
)
def test_datetimes_are_refused_with_a_remedy(column, words):
    for table, target in (({"c": column, "y": [0, 1]}, "y"), ({"a": [1, 2], "c": column}, "c")):
        with pytest.raises(DataError, match=f"'c' holds {words}; convert it to a number"):
            make_dataset(table, target)


def test_large_integers_beside_missing_cells_are_not_merged():
    values = [2**53, None, 2**53 + 1, 7]
    for column in (
        values,
        np.array(values, object),
        np.ma.array([2**53, 0, 2**53 + 1, 7], mask=[0, 1, 0, 0]),
        pd.Series(values, dtype="Int64"),
        pd.Series(values, dtype="int64[pyarrow]"),
        pl.Series(values),
        pa.array(values),
        pd.Series(pd.Categorical(values)),
    ):
        data = read(column, levels={"c": [7, 2**53, 2**53 + 1]})
        assert data.schema.columns[0].levels == ("7", str(2**53), str(2**53 + 1))
        assert data.columns[0].tolist() == [1, -1, 2, 0]
        numbers = read(column, numeric=["c"]).columns[0]
        assert numbers.tolist()[::3] == [2.0**53, 7.0]
        assert np.isnan(numbers[1])


def test_masked_cell_of_any_type_is_missing():
    mask = [True, False, False]
    for values, expected in (
        ([9, 1, 2], [np.nan, 1.0, 2.0]),
        ([True, False, True], [-1, 0, 1]),
        (["x", "a", "b"], [-1, 0, 1]),
        (np.array(["x", "a", "b"], object), [-1, 0, 1]),
    ):
        column = np.ma.array(values, mask=mask)
        np.testing.assert_array_equal(read(column).columns[0], expected)
        with pytest.raises(DataError, match="'c' is missing in 1 of 3 rows, first in row 0"):
            make_dataset({"a": [1, 2, 3], "c": column}, "c")
    assert read(np.ma.array([2**53 + 1, 1])).columns[0][0] == np.float32(2**53)


def test_numeric_text_is_parsed_in_arrays_but_not_in_text_columns():
    cells = np.array([["1"], ["10"], ["?"]])
    for rows in (cells, cells.astype(object), cells.tolist()):
        data = make_dataset_from_xy(rows, [0, 1, 0])
        assert data.schema.columns[0].kind == "numeric"
        np.testing.assert_array_equal(data.columns[0], [1, 10, np.nan])
    mixed = [[1, "1"], [2.5, "x"], [None, "?"]]
    for rows in (mixed, np.array(mixed, object)):
        own = make_dataset_from_xy(rows, [0, 1, 0], nominal=["x0", "x1"])
        assert [c.levels for c in own.schema.columns] == [("1", "2.5"), ("1", "x")]
    for column in (cells[:, 0], cells[:, 0].astype(object), cells[:, 0].tolist()):
        with pytest.warns(TreekitWarning, match="text cells that are all numbers"):
            assert read(column).schema.columns[0].levels == ("1", "10")
