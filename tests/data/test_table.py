"""Reading tables from arrays, dicts, rows, dataframes and files."""

from __future__ import annotations

import csv
import datetime as dt
import errno
import gzip
import io
import math
import os
import random
import subprocess
import sys
import tempfile
import warnings
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from treekit.cli import main
from treekit.data import DEMO_TARGET, csv_files, demo_table
from treekit.data import table as arrow_files
from treekit.data.binning import encode_columns
from treekit.data.dataset import make_dataset, make_dataset_from_xy
from treekit.data.encoding import encode_rows
from treekit.data.out_of_core import ColumnStore
from treekit.data.table import FileColumns, Table, read_table
from treekit.errors import DataError, TreekitError, TreekitWarning
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import make_model

# ---------------------------------------------------------------- table


def cells(column):
    """A column as a list with None for missing, so that lists compare."""
    return [None if v is None or v != v else v for v in column.tolist()]


def written(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


COLUMNS = {"age": [31.0, None, 7.5], "city": ["Oslo", None, "北京"], "sure": [True, False, True]}


@pytest.mark.parametrize(
    "source",
    [
        COLUMNS,
        [{"age": 31.0, "city": "Oslo", "sure": True}, {"city": None, "sure": False},
         {"age": 7.5, "city": "北京", "sure": True}],
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS).convert_dtypes(),
        pl.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS).lazy(),
        pa.table(COLUMNS),
        pa.record_batch(COLUMNS),
        read_table(COLUMNS),
    ],
    ids=["dict", "rows", "pandas", "nullable", "polars", "lazy", "arrow", "batch", "Table"],
)  # fmt: skip
def test_every_table_type_is_read_equally(source):
    table = read_table(source)
    assert set(table.names) == set(COLUMNS)
    assert table.n_rows == 3
    for name, expected in COLUMNS.items():
        assert cells(table.get_typed_cells(name)) == expected
    assert table.get_typed_cells("age").dtype == np.float64
    assert table.get_typed_cells("sure").dtype == np.bool_


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "tsv.gz", "CSV", "parquet", "feather"])
def test_every_file_format_is_read_equally(tmp_path, ending):
    path = tmp_path / f"table.{ending}"
    if ending == "parquet":
        pyarrow.parquet.write_table(pa.table(COLUMNS), path)
    elif ending == "feather":
        pyarrow.feather.write_feather(pa.table(COLUMNS), path)
    else:
        sep = "\t" if "tsv" in ending else ","
        compression = "gzip" if ending.endswith("gz") else None
        pd.DataFrame(COLUMNS).to_csv(path, index=False, sep=sep, compression=compression)
    table = read_table(str(path))
    assert table.names == tuple(COLUMNS)
    for name, expected in COLUMNS.items():
        assert cells(table.get_typed_cells(name)) == expected


def test_a_bare_array_names_its_columns_by_position():
    table = read_table(np.array([[1.0, np.nan], [3.0, 4.0]], dtype=np.float32))
    assert table.names == ("x0", "x1")
    assert not table.named
    assert table.get_typed_cells("x1").dtype == np.float32
    assert cells(table.get_typed_cells("x1")) == [None, 4.0]


def test_a_structured_array_keeps_its_names_and_types():
    array = np.array([(1, 2.5, "a"), (2, np.nan, "b")], dtype="i4,f8,U3")
    table = read_table(array)
    assert table.names == ("f0", "f1", "f2")
    assert [cells(table.get_typed_cells(n)) for n in table.names] == [
        [1, 2],
        [2.5, None],
        ["a", "b"],
    ]


def test_lists_of_rows_and_object_arrays_find_the_type_of_each_column():
    rows = [[1, "a", None], [2.5, "?", True]]
    for source in (rows, np.array(rows, dtype=object)):
        table = read_table(source)
        assert [cells(table.get_typed_cells(n)) for n in table.names] == [
            [1, 2.5],
            ["a", None],
            [None, True],
        ]
        assert not table.named


def test_a_masked_array_has_missing_cells():
    masked = np.ma.masked_array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
    assert cells(read_table(masked).get_typed_cells("x1")) == [None, 4.0]
    text = np.ma.masked_array(["a", "b"], mask=[1, 0])
    assert cells(read_table({"t": text}).get_typed_cells("t")) == [None, "b"]


def test_an_array_of_text_reads_like_a_file():
    table = read_table(np.array([["1", "a"], ["NA", "TRUE"]]))
    assert cells(table.get_typed_cells("x0")) == [1.0, None]
    assert cells(table.get_typed_cells("x1")) == ["a", "TRUE"]


def test_dict_of_series_of_any_library_is_a_table():
    table = read_table(
        {
            "a": pd.Series([1, 2]),
            "b": pl.Series([1.5, None]),
            "c": pa.array(["x", None]),
            "d": pd.Categorical(["u", "v"], categories=["v", "u"]),
            "e": range(2),
            "f": pa.chunked_array([[1], [2]]),
        }
    )
    assert [cells(table.get_typed_cells(n)) for n in "abcdef"] == [
        [1, 2], [1.5, None], ["x", None], ["u", "v"], [0, 1], [1, 2],
    ]  # fmt: skip
    assert table.levels["d"] == ("v", "u")


def test_declared_category_order_is_kept_and_order_of_appearance_is_not():
    values = ["b", None, "a"]
    pandas = pd.DataFrame({"c": pd.Categorical(values, categories=["z", "b", "a"])})
    enum = pl.DataFrame({"c": pl.Series(values, dtype=pl.Enum(["z", "b", "a"]))})
    plain = pl.DataFrame({"c": pl.Series(values, dtype=pl.Categorical)})
    arrow = pa.table({"c": pa.array(values).dictionary_encode()})
    assert read_table(pandas).levels["c"] == ("z", "b", "a")
    assert read_table(enum).levels["c"] == ("z", "b", "a")
    assert read_table(plain).levels["c"] == ("a", "b")
    assert read_table(arrow).levels["c"] == ("a", "b")
    for source in (pandas, enum, plain, arrow):
        assert cells(read_table(source).get_typed_cells("c")) == values


def test_integer_categories_stay_numbers():
    table = read_table(pd.DataFrame({"c": pd.Categorical([2, 1], categories=[3, 2, 1])}))
    assert cells(table.get_typed_cells("c")) == [2, 1]
    assert table.levels["c"] == (3, 2, 1)


def test_missing_value_marks_are_found_within_blanks_and_can_be_set(tmp_path):
    path = written(tmp_path / "t.csv", "a,b\n 1 , ?\nNA,x\n-999,null\n")
    table = read_table(path)
    assert cells(table.get_typed_cells("a")) == [1.0, None, -999.0]
    assert cells(table.get_typed_cells("b")) == [None, "x", None]
    table = read_table(path, missing=["-999", "NA"])
    assert cells(table.get_typed_cells("a")) == [1.0, None, None]
    assert cells(table.get_typed_cells("b")) == [" ?", "x", "null"]


def test_csv_numbers_are_nearest_doubles_and_unusual_numerals_stay_text(tmp_path):
    path = written(
        tmp_path / "t.csv", "a,b,c,d,e\n0.1,1_0,١,1e400,9007199254740993\n1e-3,2,3,-inf,2\n"
    )
    table = read_table(path)
    assert cells(table.get_typed_cells("a")) == [0.1, 0.001]
    assert cells(table.get_typed_cells("b")) == ["1_0", "2"]
    assert cells(table.get_typed_cells("c")) == ["١", "3"]
    assert cells(table.get_typed_cells("d")) == [math.inf, -math.inf]
    assert cells(table.get_typed_cells("e")) == [9007199254740993, 2]


@pytest.mark.parametrize("digits", [400, 5000])
def test_integers_beyond_double_range_are_infinite_and_refused(tmp_path, digits):
    path = written(tmp_path / "t.csv", "a,y\n" + "1" * digits + ",p\n2,q\n")
    assert read_table(path).get_typed_cells("a").tolist() == [np.inf, 2]
    with pytest.raises(DataError, match="column 'a' is infinite in row 0"):
        make_dataset(path, "y")


@pytest.mark.parametrize("digits", [400, 5000])
def test_categories_may_be_integers_of_any_length(tmp_path, digits):
    huge = ["1" * digits, "1" * (digits - 1) + "2"]
    path = written(tmp_path / "t.csv", f"a,y\n{huge[0]},p\n{huge[1]},q\nx,q\n")
    schema = make_dataset(path, "y", nominal=["a"]).schema
    assert schema.columns[0].levels == (*huge, "x")


def test_true_and_false_of_a_file_are_bools_as_in_pandas(tmp_path):
    path = written(tmp_path / "t.csv", "a,b\nTRUE,true\nfalse,\n")
    table = read_table(path)
    assert cells(table.get_typed_cells("a")) == [True, False]
    assert cells(table.get_typed_cells("b")) == [True, None]


def test_mixed_objects_are_numeric_only_if_all_are_numbers(tmp_path):
    table = read_table({"a": [1, "?", 2.5], "b": [1, "x", None], "c": [Decimal("1.5"), 2, np.nan]})
    assert cells(table.get_typed_cells("a")) == [1.0, None, 2.5]
    assert cells(table.get_typed_cells("b")) == ["1", "x", None]
    assert cells(table.get_typed_cells("c")) == [1.5, 2.0, None]


def test_text_columns_stay_text_even_if_they_contain_numbers():
    for source in (
        {"z": ["01", "2"]},
        pd.DataFrame({"z": ["01", "2"]}),
        {"z": np.array(["01", "2"])},
    ):
        assert cells(read_table(source).get_typed_cells("z")) == ["01", "2"]


def test_column_without_values_is_numeric_and_missing(tmp_path):
    path = written(tmp_path / "t.csv", "a,b\n,1\nNA,2\n")
    sources = [
        path, {"a": [None, None], "b": [1, 2]}, {"a": [pd.NA, pd.NaT], "b": [1, 2]},
        pl.DataFrame({"a": [None, None], "b": [1, 2]}), pa.table({"a": pa.nulls(2), "b": [1, 2]}),
        pl.DataFrame({"a": [None, None], "b": [1, 2]}, schema={"a": pl.String, "b": pl.Int8}),
        pd.DataFrame({"a": [None, None], "b": [1, 2]}),
    ]  # fmt: skip
    for source in sources:
        column = read_table(source).get_typed_cells("a")
        assert column.dtype == np.float64
        assert np.isnan(column).all()


HOSTILE = [
    "a,b",
    'say "hi"',
    "two\nlines",
    "tab\t",
    " blanks ",
    "*/",
    "//\\",
    "{{ x }}",
    "??/",
    "'; DROP TABLE x; --",
    "北京",
    "🍉",
    "\r\nx",
    "=1+1",
    "null.",
    "<script>",
    "\\",
]


def test_hostile_names_and_cells_are_read_back_unchanged(tmp_path):
    path = tmp_path / "hostile.csv"
    pd.DataFrame(dict.fromkeys(HOSTILE, HOSTILE)).to_csv(path, index=False)
    table = read_table(path)
    assert table.names == tuple(HOSTILE)
    for name in HOSTILE:
        assert cells(table.get_typed_cells(name)) == HOSTILE


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(lambda t: "t" + t)
FLOATS = st.floats(allow_nan=False) | st.none()


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(FLOATS, st.none() | TEXT, st.integers(-(2**62), 2**62)), min_size=1),
    st.sampled_from([pd.DataFrame, pl.DataFrame, pa.table, dict]),
)
def test_written_file_is_read_back_equal_to_its_table(tmp_path_factory, rows, make):
    columns = {"数": [r[0] for r in rows], "t,": [r[1] for r in rows], "i": [r[2] for r in rows]}
    source = columns
    if make is pl.DataFrame:
        source = pl.DataFrame(columns, schema={"数": pl.Float64, "t,": pl.String, "i": pl.Int64})
    elif make is pa.table:
        source = pa.table(columns)
    elif make is pd.DataFrame:
        source = pd.DataFrame(columns)
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(rows)
    memory, file = read_table(source), read_table(path)
    assert memory.names == file.names
    for name, expected in columns.items():
        assert cells(memory.get_typed_cells(name)) == cells(file.get_typed_cells(name)) == expected


def test_more_rows_than_one_chunk_are_read_in_order(tmp_path):
    n = 40_000
    path = written(tmp_path / "t.csv", "a,b\n" + "".join(f"{i},v{i}\n" for i in range(n)))
    table = read_table(path)
    assert table.n_rows == n
    assert np.array_equal(table.get_typed_cells("a"), np.arange(n))
    assert table.get_typed_cells("b")[-1] == f"v{n - 1}"


def test_blank_lines_are_skipped_except_in_a_file_of_one_column(tmp_path):
    assert read_table(written(tmp_path / "a.csv", "\na,b\n1,2\n\n3,4\n\n")).n_rows == 2
    assert cells(read_table(written(tmp_path / "b.csv", "a\n1\n\n3\n")).get_typed_cells("a")) == [
        1,
        None,
        3,
    ]


def test_a_byte_order_mark_is_not_part_of_the_first_name(tmp_path):
    assert read_table(written(tmp_path / "t.csv", "é,b\n1,2\n", "utf-8-sig")).names == ("é", "b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty", "header"]),
        ("\n\n", ["empty"]),
        ("a,b\n", ["no rows"]),
        ("a,a\n1,2\n", ["'a'", "twice"]),
        ("a,\n1,2\n", ["column 2", "empty", "index=False"]),
        (",a\n0,2\n", ["column 1", "empty"]),
        ('a,b\n1,2\n"x\ny",2\n1,2,3\n', ["line 5", "3 cells", "header has 2"]),
        ("a,b\n1\n", ["line 2", "1 cells"]),
        ('a,b\n1,"2\n', ["line", "quotes"]),
        ("a;b\n1;2\n", ["separated by ';'"]),
    ],
)
def test_a_damaged_file_raises_an_error_with_cause_and_place(tmp_path, text, words):
    with pytest.raises(DataError) as error:
        read_table(written(tmp_path / "bad.csv", text))
    assert all(word in str(error.value) for word in ["bad.csv", *words])


def test_a_file_that_is_not_utf8_raises_an_error(tmp_path):
    with pytest.raises(DataError, match=r"not UTF-8.*0x") as error:
        read_table(written(tmp_path / "t.csv", "名,b\n1,2\n", "gbk"))
    assert "dataframe" in str(error.value)


def test_a_corrupt_archive_raises_an_error(tmp_path):
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 5000)
    for name, content in (("cut.csv.gz", whole[: len(whole) // 2]), ("no.csv.gz", b"a,b\n1,2\n")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match="cannot be read"):
            read_table(tmp_path / name)
    (tmp_path / "t.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="not a readable parquet"):
        read_table(tmp_path / "t.parquet")


def test_a_missing_file_or_unknown_kind_raises_an_error(tmp_path):
    with pytest.raises(DataError, match=r"no file '.*none\.csv'"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"'t\.xlsx'.*known: \.csv"):
        read_table(tmp_path / "t.xlsx")


@pytest.mark.parametrize("name", ["\r", " ", "\t\n", "\u2003"])
def test_column_name_of_only_white_space_is_refused(tmp_path, name):
    columns = {"a": [1, 2], name: [3, 4]}
    paths = [tmp_path / "t.csv", tmp_path / "t.csv.gz", tmp_path / "t.parquet"]
    for path in paths[:2]:
        pd.DataFrame(columns).to_csv(path, index=False, quoting=csv.QUOTE_ALL)
    pyarrow.parquet.write_table(pa.table(columns), paths[2])
    frames = [pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)]
    record = np.zeros(2, dtype=[("a", "f8"), (name, "f8")])
    for source in (columns, [{"a": 1, name: 2}], record, *frames, *paths):
        with pytest.raises(DataError) as error:
            read_table(source)
        assert f"the name of column 2 is {name!r}, only white space; rename it" in str(error.value)
    with pytest.raises(DataError, match="only white space"):
        make_dataset_from_xy({"a": [1, 2]}, pd.Series(["u", "v"], name=name))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (np.zeros(3), ["(3,)", "reshape(-1, 1)"]),
        (np.zeros((2, 2, 2)), ["(2, 2, 2)"]),
        (np.zeros((3, 0)), ["no columns"]),
        ({}, ["no columns"]),
        ([], ["no rows"]),
        ({"a": [1, 2], "b": [1]}, ["'b' has 1 rows", "'a' has 2"]),
        ({"a": np.zeros((2, 2))}, ["'a'", "(2, 2)"]),
        ({"a": 3}, ["'a'", "int", "one row"]),
        ({"a": "text"}, ["'a'", "str"]),
        ({"": [1]}, ["column 1", "empty"]),
        ({1: [1], "1": [2]}, ["'1'", "twice"]),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ["'a'", "twice"]),
        ([[1, 2], [3]], ["row 1 has 1 cells", "row 0 has 2"]),
        ([1, 2], ["row 0 is a int"]),
        ([{"a": 1}, [1]], ["row 0 is a dict"]),
        (pd.Series([1, 2]), ["single column", "Series"]),
        (3, ["int is not a table"]),
        (np.zeros((2, 2), dtype=complex), ["'x0'", "complex", "column each"]),
        ({"a": [1j]}, ["'a'", "complex"]),
        ({"when": np.array(["2020-01-01"], dtype="M8[D]")}, ["'when'", "dates", "number"]),
        ({"when": [dt.datetime(2020, 1, 1)]}, ["'when'", "dates", "number"]),
        (pd.DataFrame({"when": pd.to_datetime(["2020"])}), ["'when'", "dates", "number"]),
        (pl.DataFrame({"d": [dt.timedelta(1)]}), ["'d'", "durations", "seconds"]),
        ({"d": [dt.timedelta(1)]}, ["'d'", "durations"]),
        ({"b": np.array([b"x"])}, ["'b'", "bytes", "decode"]),
        ({"b": [b"x"]}, ["'b'", "bytes", "decode"]),
        ({"o": [object()]}, ["'o'", "object", "convert"]),
        (pl.DataFrame({"l": [[1, 2]]}), ["'l'", "objects of type"]),
    ],
)  # fmt: skip
def test_invalid_tables_raise_errors_with_a_remedy(source, words):
    with pytest.raises(TreekitError) as error:
        read_table(source)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_an_unknown_column_lists_near_names():
    table = read_table({"income": [1], "age": [2]})
    with pytest.raises(DataError, match=r"'incom'; did you mean 'income'\?"):
        table.get_typed_cells("incom")
    with pytest.raises(DataError, match="there are: 'income', 'age'"):
        table.find_column("zzz")


def test_taking_rows_keeps_names_and_types():
    table = read_table({"a": [1, 2, 3], "b": ["x", None, "?"]}).take(np.array([2, 0]))
    assert isinstance(table, Table)
    assert cells(table.get_typed_cells("a")) == [3, 1]
    assert cells(table.get_typed_cells("b")) == [None, "x"]


def test_demo_table_has_numbers_categories_and_missing_values():
    table = read_table(demo_table())
    kinds = {table.get_typed_cells(name).dtype.kind for name in table.names}
    assert kinds == {"f", "O"}
    assert DEMO_TARGET in table.names
    assert demo_table().stat().st_size < 300_000
    text = io.StringIO(demo_table().with_name("README.md").read_text(encoding="utf-8")).read()
    assert "CC BY 4.0" in text


def test_no_dataframe_library_is_imported_before_a_dataframe_arrives():
    code = (
        "import sys, numpy; from treekit.data.dataset import make_dataset_from_xy as make;"
        "make(numpy.zeros((2, 1)), [0, 1]);"
        "print({'narwhals', 'pandas', 'polars', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("others", [["1", "2"], ["1", "?"], ["", "2.5"]])
def test_numeric_missing_value_mark_is_missing_in_any_column(others, tmp_path):
    path = written(tmp_path / "t.csv", "\n".join(["a,b", *(f"{c},x" for c in others), " -999,x"]))
    numbers = read_table(path, missing=["-999", "?", ""]).get_typed_cells("a")
    assert math.isnan(numbers[2])
    assert not np.any(numbers == -999)


@pytest.mark.parametrize("marks", ["n/a", [-999], [None]])
def test_marks_that_are_not_a_list_of_texts_are_refused(marks):
    with pytest.raises(DataError, match="list of texts"):
        read_table({"a": ["1"]}, missing=marks)


def test_integers_beyond_int64_are_exact_if_an_array_type_holds_them():
    values = [2**63, 2**63 + 1]
    assert read_table({"a": values}).get_typed_cells("a").tolist() == values


# ---------------------------------------------------------------- stored
# Large files: columns in files of their own, and the very table that memory would hold.

CELLS = {
    "whole": ["1", "-2", "007", "1000000000000", "9007199254740993"],
    "real": ["1", "0.1", "-2.5e3", " 4 ", "1e-320"],
    "text": ["red", "blue", "7", "naïve", 'a "quote", and\nlines'],
    "bool": ["true", "FALSE", "True"],
    "odd": ["1_000", "inf", "nan", "-0", "true", "1", "-999"],
    "gone": ["", "NA", " ? ", "-999"],
}


@st.composite
def written_tables(draw) -> tuple[list[list[str]], list[str]]:
    """Rows of text whose columns are of many kinds, some of them only after a while."""
    kinds = draw(st.lists(st.sampled_from(list(CELLS)), min_size=1, max_size=4))
    n = draw(st.integers(1, 24))
    columns = []
    for kind in kinds:
        late = draw(st.sampled_from([kind, kind, "text", "real", "gone"]))
        gaps = draw(st.sampled_from([[], [], CELLS["gone"][:2]]))
        first = draw(st.integers(0, n))
        part = st.sampled_from(CELLS[kind] + gaps)
        rest = st.sampled_from(CELLS[late] + gaps)
        columns.append([draw(part if i < first else rest) for i in range(n)])
    return [list(row) for row in zip(*columns, strict=True)], kinds


def as_csv(rows: list[list[str]]) -> str:
    quoted = [['"' + cell.replace('"', '""') + '"' for cell in row] for row in rows]
    header = ",".join(f"c{i}" for i in range(len(rows[0])))
    return "\n".join([header, *(",".join(row) for row in quoted)]) + "\n"


@contextmanager
def small_parts():
    """Every file is a large one, read a few rows at a time."""
    with patch.object(arrow_files, "LARGE", -8), patch.object(csv_files, "BLOCK", 64):
        yield


def both(path: Path, **arguments):
    """A table as memory holds it, and in files."""
    plain = read_table(path, **arguments)
    with small_parts():
        stored = read_table(path, **arguments)
    assert isinstance(stored.cells, FileColumns)
    return plain, stored


def assert_equal_cells(a, b) -> None:
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)


def assert_equal_tables(plain, stored) -> None:
    assert (stored.names, stored.untyped, stored.named) == (plain.names, plain.untyped, plain.named)
    assert dict(stored.levels) == dict(plain.levels)
    assert (stored.n_rows, stored.format) == (plain.n_rows, plain.format)
    for position, name in enumerate(plain.names):
        assert_equal_cells(stored.get_typed_cells(name), plain.get_typed_cells(name))
        assert_equal_cells(stored.cells[position], plain.cells[position])


@given(written_tables(), st.sampled_from([None, ("", "NA", "-999"), ("red",)]))
@settings(max_examples=examples(120), deadline=None)
def test_csv_file_read_in_chunks_equals_the_table_in_memory(tmp_path_factory, table, marks):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text(as_csv(table[0]), encoding="utf-8")
    plain, stored = both(path, **({} if marks is None else {"missing": marks}))
    assert_equal_tables(plain, stored)
    other = ("?", "1")
    assert_equal_tables(read_table(plain, missing=other), read_table(stored, missing=other))


def outcome(function):
    """What a function returns, or the words it raises."""
    try:
        return function()
    except DataError as error:
        return str(error)


@given(written_tables(), st.sampled_from(["nominal", "numeric", None]))
@settings(max_examples=examples(60), deadline=None)
def test_schema_codes_and_errors_equal_those_of_the_table_in_memory(tmp_path_factory, table, kind):
    rows = [[*row, "a" if i % 3 else "b"] for i, row in enumerate(table[0])]
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text(as_csv(rows), encoding="utf-8")
    declared = {} if kind is None else {kind: ["c0"]}
    tables = both(path)
    target = tables[0].names[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TreekitWarning)
        plain, stored = (outcome(lambda t=t: make_dataset(t, target, **declared)) for t in tables)
    if isinstance(plain, str):
        assert stored == plain
        return
    assert stored.schema == plain.schema
    assert_equal_cells(stored.y, plain.y)
    arguments = (plain.schema.n_levels, plain.schema.nominal, "histogram")
    coded = [encode_columns(d.columns, *arguments, n_rows=d.n_rows) for d in (plain, stored)]
    for a, b in zip(*coded, strict=True):
        assert_equal_cells(a, b)
    blocks = [encode_rows(block, plain.schema) for block in tables[1].iterate_blocks(5)]
    assert_equal_cells(np.concatenate(blocks), encode_rows(tables[0], plain.schema))


def arrow_table(n: int, seed: int) -> pa.Table:
    """A column of every plain type, with and without nulls, some of them long gone at first."""
    draw = random.Random(seed)

    def column(values, dtype, gaps=0.3, first=0):
        cells = [
            None if i < first or draw.random() < gaps else draw.choice(values) for i in range(n)
        ]
        return pa.array(cells, type=dtype)

    columns = {
        "whole": column([1, -2, 2**60 + 1], pa.int64(), 0),
        "gaps": column([1, -2, 300], pa.int64(), 0.2, draw.choice([0, 7])),
        "late": pa.array([1] * (n - 1) + [None], type=pa.int8()),
        "short": column([0, 255], pa.uint8(), 0),
        "single": column([0.1, 1e30], pa.float32(), 0.3, 7),
        "double": column([0.1, -0.0, 1e300], pa.float64()),
        "yes": column([True, False], pa.bool_(), draw.choice([0, 0.4]), draw.choice([0, 7])),
        "name": column(["x", "y", "NA", " ?"], pa.string(), 0.2, draw.choice([0, 7])),
        "level": column(["n", "m", "k"], pa.string(), 0.2).dictionary_encode(),
        "cents": pa.array([draw.randrange(999) for _ in range(n)]).cast(pa.decimal128(30, 2)),
        "nothing": pa.array([None] * n, type=pa.string()),
    }
    return pa.table(columns)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("seed", range(4))
def test_parquet_and_arrow_in_batches_equal_the_table_in_memory(tmp_path, ending, seed):
    table = arrow_table(23, seed)
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        pa.parquet.write_table(table, path, row_group_size=9)
    else:
        pa.feather.write_feather(table, path, chunksize=6, compression="uncompressed")
    assert_equal_tables(*both(path))


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_columns_named_like_nested_paths_are_distinguished(tmp_path, ending):
    names = ["a", "a.b", "a.b.c", ".", "ü", "a*"]
    table = pa.table({name: [i] * 12 for i, name in enumerate(names)})
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.feather.write_feather(table, path, compression="lz4")
    assert_equal_tables(*both(path))


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_large_file_is_read_within_the_memory_of_a_column(tmp_path, ending):
    rows = 50_000  # one row group, or batch, of 40 columns: 16 MB
    rng = np.random.default_rng(0)
    table = pa.table({f"x{i}": rng.normal(size=rows) for i in range(40)})
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        pa.parquet.write_table(table, path, compression="none")
    else:
        pa.feather.write_feather(table, path, chunksize=rows, compression="uncompressed")
    del table
    largest = [0]

    def progress():
        largest[0] = max(largest[0], pa.total_allocated_bytes() - before)

    before = pa.total_allocated_bytes()
    with patch.multiple(arrow_files, LARGE=-1):
        table = read_table(path)
        for name in table.names:
            table.get_typed_cells(name)
            progress()
    assert largest[0] < 8_000_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n3\n", "line 3 has 1 cells, but the header has 2"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 cells"),
        ('a\n"1', "line 2: .*double each quote"),
        ("a,b\n", "has a header but no rows"),
        ("", "is empty"),
    ],
)
def test_invalid_tables_are_refused_with_the_same_message(tmp_path, text, words):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    for parts in (nullcontext(), small_parts()):
        with parts, pytest.raises(DataError, match=words):
            read_table(path)


def test_compressed_file_is_read_in_chunks_with_progress_in_bytes(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(as_csv([["1", "x"]] * 12).encode()))
    seen: list[tuple[int, int]] = []
    with small_parts():
        table = read_table(path, progress=lambda done, total: seen.append((done, total)))
    assert table.get_typed_cells("c0").tolist() == [1] * 12
    assert len(seen) == 2
    assert seen[-1][0] <= seen[-1][1] == path.stat().st_size


def test_temporary_file_of_a_table_is_removed_however_the_process_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    path = tmp_path / "t.csv"
    path.write_text(as_csv([["1", "x"]] * 12), encoding="utf-8")
    with small_parts():
        table = read_table(path)
    assert table.get_typed_cells("c1").tolist() == ["x"] * 12
    if os.name == "posix":
        assert list((tmp_path / "temporary").iterdir()) == []


def test_a_csv_file_that_changes_between_readings_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    text = as_csv([["01", "p"], ["2", "q"]] * 20)
    path.write_text(text, encoding="utf-8")
    with small_parts():
        table = read_table(path)
        assert len(make_dataset(table, "c1", nominal=["c0"]).y) == 40
        table = read_table(path)
        path.write_text(text + '"3","q"\n', encoding="utf-8")
        with pytest.raises(DataError, match="has changed while treekit was reading it"):
            make_dataset(table, "c1", nominal=["c0"])


def test_a_csv_file_that_changes_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(as_csv([["1", "p"], ["2", "q"]] * 20), encoding="utf-8")

    def grow(done, _):
        if done < 999:
            with path.open("a", encoding="utf-8") as file:
                file.write('"3","q"\n' * 200)

    with small_parts(), pytest.raises(DataError, match="has changed"):
        read_table(path, progress=grow)


@pytest.mark.parametrize("codes", [[0] * 6 + [1] * 6, [1] * 6 + [0] * 6, [1] * 12])
def test_batches_of_a_null_category_are_missing_cells(tmp_path, codes):
    level = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(["a", None]))
    path = tmp_path / "t.arrow"
    table = pa.table({"d": level, "x": list(range(12))})
    pa.feather.write_feather(table, path, chunksize=6, compression="uncompressed")
    assert_equal_tables(*both(path))


def test_predictions_for_a_large_file_are_written_block_by_block(tmp_path, monkeypatch):
    rows = [[f"{i % 7}", "xyz"[i % 3], "ab"[i % 2]] for i in range(40)]
    path = tmp_path / "t.csv"
    path.write_text(as_csv(rows), encoding="utf-8")
    schema = make_dataset(path, "c2").schema
    tree = build_tree(
        threshold("c0", 3.0, subset("c1", ["x"], leaf([1, 0]), leaf([1, 2])), leaf([0, 1])), schema
    )
    make_model(schema, [tree], unknown="error").save(tmp_path / "m.treekit")
    command = ["predict", str(tmp_path / "m.treekit"), str(path), "--proba"]
    at_once = CliRunner().invoke(main, command)
    monkeypatch.setattr("treekit.cli.predict._ROWS_PER_BLOCK", 7)
    with small_parts():
        in_blocks = CliRunner().invoke(main, command)
    assert in_blocks.exit_code == at_once.exit_code == 0
    assert in_blocks.stdout == at_once.stdout
    assert len(in_blocks.stdout.splitlines()) == 41
    path.write_text(as_csv([*rows, ["1", "w", "a"]]), encoding="utf-8")
    with small_parts():
        refused = CliRunner().invoke(main, command)
    assert "holds 'w' in row 40 (counting from 0)" in refused.stderr


FRAMES: dict[str, Any] = {
    "floats": pd.DataFrame({"a": [1.5, math.nan], "b": [0.1, 2.0]}),
    "types": pd.DataFrame(
        {"a": [1.5, 2], "b": [1, 2], "c": np.array([1, 2], np.float32), "d": [True, False]}
    ),
    "nullable": pd.DataFrame(
        {
            "a": pd.array([1, None], "Int64"),
            "b": pd.array([2**60 + 1, 2], "Int64"),
            "c": pd.array([None, None], "Float64"),
            "d": pd.array([1.5, None], "float64[pyarrow]"),
        }
    ),
    "polars": pl.DataFrame({"a": [1, None], "b": [2**60 + 1, 2], "c": [None, 2.5]}),
    "arrow": pa.table({"a": pa.array([None, None], pa.int64()), "b": [2**60 + 1, 2]}),
    "texts": pl.DataFrame(
        {"a": ["x", None], "b": [1, 2], "c": [3, 4], "d": [Decimal("1.5"), None]}
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_small_dataframe_gives_the_cells_of_a_large_one(name: str) -> None:
    together = arrow_files.read_frame(FRAMES[name])
    with patch.object(arrow_files, "_SMALL_FRAME", -1):
        by_columns = arrow_files.read_frame(FRAMES[name])
    assert together is not None
    assert by_columns is not None
    assert together.names == by_columns.names
    for own, other in zip(together.cells, by_columns.cells, strict=True):
        assert own.dtype == other.dtype
        np.testing.assert_array_equal(own, other)


def test_large_file_keeps_categories_of_its_types_and_refuses_used_dates(
    tmp_path,
):
    ordered = pa.array(["b", "a"]).dictionary_encode()
    ordered = ordered.cast(pa.dictionary(pa.int32(), pa.string(), ordered=True))
    path = tmp_path / "t.parquet"
    times = pa.array([0, 1]).cast(pa.timestamp("s"))
    pa.parquet.write_table(pa.table({"o": ordered, "when": times, "y": [0, 1]}), path)
    with patch.multiple(arrow_files, LARGE=-1):
        table = read_table(path)
        assert dict(table.levels) == {"o": ("b", "a")}
        with pytest.raises(DataError, match="'when' holds date"):
            make_dataset(table, "y")
        assert make_dataset(table, "y", ignore=["when"]).schema.names == ("o",)


def test_the_temporary_file_is_closed_with_the_table():
    store = ColumnStore(on_disk=True)
    store.append([np.arange(3)])
    file = store._file
    assert store.read(0, 0, 3, np.int64).tolist() == [0, 1, 2]
    del store
    assert file.closed


def test_full_temporary_folder_raises_an_error_with_a_remedy():
    class Full(io.BytesIO):
        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

    with patch("tempfile.TemporaryFile", lambda **_: Full()):
        store = ColumnStore(on_disk=True)
    with pytest.raises(DataError, match="No space left on device; free space there, or set TMPDIR"):
        store.append([np.arange(3)])


@pytest.mark.parametrize("on_disk", [False, True])
def test_blocks_of_columns_are_read_completely_and_partly(on_disk):
    store, rng = ColumnStore(on_disk=on_disk), np.random.default_rng(0)
    kept = [np.empty(0, np.int64), np.empty(0), np.empty(0, np.int32)]
    for size in (4, 1, 7, 3):
        block = [rng.integers(-9, 9, size).astype(own.dtype) for own in kept]
        store.append(block)
        kept = [np.append(own, new) for own, new in zip(kept, block, strict=True)]
    for position, cells in enumerate(kept):
        for first in range(16):
            for stop in range(first, 16):
                part = store.read(position, first, stop, cells.dtype)
                assert_equal_cells(part, cells[first:stop])
                part = store.read(position, first, stop, np.float64)
                assert_equal_cells(part, cells[first:stop].astype(np.float64))
