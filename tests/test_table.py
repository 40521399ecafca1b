"""Reading tables from arrays, dicts, rows, dataframes and files."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import math
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.dataset import make_dataset, make_dataset_xy
from treekit.data.table import Table, read_table
from treekit.errors import DataError, MissingExtraError, TreekitError


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
def test_every_kind_of_table_reads_the_same(source):
    table = read_table(source)
    assert set(table.names) == set(COLUMNS)
    assert table.n_rows == 3
    for name, expected in COLUMNS.items():
        assert cells(table.column(name)) == expected
    assert table.column("age").dtype == np.float64
    assert table.column("sure").dtype == np.bool_


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "tsv.gz", "CSV", "parquet", "feather"])
def test_every_kind_of_file_reads_the_same(tmp_path, ending):
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
        assert cells(table.column(name)) == expected


def test_a_bare_array_names_its_columns_by_position():
    table = read_table(np.array([[1.0, np.nan], [3.0, 4.0]], dtype=np.float32))
    assert table.names == ("x0", "x1")
    assert not table.named
    assert table.column("x1").dtype == np.float32
    assert cells(table.column("x1")) == [None, 4.0]


def test_a_structured_array_keeps_its_names_and_types():
    array = np.array([(1, 2.5, "a"), (2, np.nan, "b")], dtype="i4,f8,U3")
    table = read_table(array)
    assert table.names == ("f0", "f1", "f2")
    assert [cells(table.column(n)) for n in table.names] == [[1, 2], [2.5, None], ["a", "b"]]


def test_lists_of_rows_and_object_arrays_find_the_type_of_each_column():
    rows = [[1, "a", None], [2.5, "?", True]]
    for source in (rows, np.array(rows, dtype=object)):
        table = read_table(source)
        assert [cells(table.column(n)) for n in table.names] == [
            [1, 2.5],
            ["a", None],
            [None, True],
        ]
        assert not table.named


def test_a_masked_array_has_missing_cells():
    masked = np.ma.masked_array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
    assert cells(read_table(masked).column("x1")) == [None, 4.0]
    text = np.ma.masked_array(["a", "b"], mask=[1, 0])
    assert cells(read_table({"t": text}).column("t")) == [None, "b"]


def test_an_array_of_text_reads_like_a_file():
    table = read_table(np.array([["1", "a"], ["NA", "TRUE"]]))
    assert cells(table.column("x0")) == [1.0, None]
    assert cells(table.column("x1")) == ["a", "TRUE"]


def test_a_dict_may_hold_series_of_any_library():
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
    assert [cells(table.column(n)) for n in "abcdef"] == [
        [1, 2], [1.5, None], ["x", None], ["u", "v"], [0, 1], [1, 2],
    ]  # fmt: skip
    assert table.levels["d"] == ("v", "u")


def test_declared_orders_of_categories_are_kept_and_orders_of_appearance_are_not():
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
        assert cells(read_table(source).column("c")) == values


def test_whole_number_categories_stay_numbers():
    table = read_table(pd.DataFrame({"c": pd.Categorical([2, 1], categories=[3, 2, 1])}))
    assert cells(table.column("c")) == [2, 1]
    assert table.levels["c"] == (3, 2, 1)


def test_marks_of_missing_values_are_found_within_blanks_and_can_be_chosen(tmp_path):
    path = written(tmp_path / "t.csv", "a,b\n 1 , ?\nNA,x\n-999,null\n")
    table = read_table(path)
    assert cells(table.column("a")) == [1.0, None, -999.0]
    assert cells(table.column("b")) == [None, "x", None]
    table = read_table(path, missing=["-999", "NA"])
    assert cells(table.column("a")) == [1.0, None, None]
    assert cells(table.column("b")) == [" ?", "x", "null"]


def test_numbers_of_a_file_are_the_nearest_doubles_and_odd_numerals_stay_text(tmp_path):
    path = written(
        tmp_path / "t.csv", "a,b,c,d,e\n0.1,1_0,١,1e400,9007199254740993\n1e-3,2,3,-inf,2\n"
    )
    table = read_table(path)
    assert cells(table.column("a")) == [0.1, 0.001]
    assert cells(table.column("b")) == ["1_0", "2"]
    assert cells(table.column("c")) == ["١", "3"]
    assert cells(table.column("d")) == [math.inf, -math.inf]
    assert cells(table.column("e")) == [9007199254740993, 2]


@pytest.mark.parametrize("digits", [400, 5000])
def test_whole_numbers_beyond_the_doubles_are_infinite_and_refused_by_name(tmp_path, digits):
    path = written(tmp_path / "t.csv", "a,y\n" + "1" * digits + ",p\n2,q\n")
    assert read_table(path).column("a").tolist() == [np.inf, 2]
    with pytest.raises(DataError, match="column 'a' is infinite in row 0"):
        make_dataset(path, "y")


@pytest.mark.parametrize("digits", [400, 5000])
def test_levels_may_be_whole_numbers_of_any_length(tmp_path, digits):
    huge = ["1" * digits, "1" * (digits - 1) + "2"]
    path = written(tmp_path / "t.csv", f"a,y\n{huge[0]},p\n{huge[1]},q\nx,q\n")
    schema = make_dataset(path, "y", nominal=["a"]).schema
    assert schema.columns[0].levels == (*huge, "x")


def test_truth_values_of_a_file_are_bools_as_dataframes_read_them(tmp_path):
    path = written(tmp_path / "t.csv", "a,b\nTRUE,true\nfalse,\n")
    table = read_table(path)
    assert cells(table.column("a")) == [True, False]
    assert cells(table.column("b")) == [True, None]


def test_mixed_objects_are_numbers_only_if_all_are(tmp_path):
    table = read_table({"a": [1, "?", 2.5], "b": [1, "x", None], "c": [Decimal("1.5"), 2, np.nan]})
    assert cells(table.column("a")) == [1.0, None, 2.5]
    assert cells(table.column("b")) == ["1", "x", None]
    assert cells(table.column("c")) == [1.5, 2.0, None]


def test_typed_text_stays_text_even_if_it_looks_like_a_number():
    for source in (
        {"z": ["01", "2"]},
        pd.DataFrame({"z": ["01", "2"]}),
        {"z": np.array(["01", "2"])},
    ):
        assert cells(read_table(source).column("z")) == ["01", "2"]


def test_a_column_without_any_value_is_a_column_of_missing_numbers(tmp_path):
    path = written(tmp_path / "t.csv", "a,b\n,1\nNA,2\n")
    sources = [
        path, {"a": [None, None], "b": [1, 2]}, {"a": [pd.NA, pd.NaT], "b": [1, 2]},
        pl.DataFrame({"a": [None, None], "b": [1, 2]}), pa.table({"a": pa.nulls(2), "b": [1, 2]}),
        pl.DataFrame({"a": [None, None], "b": [1, 2]}, schema={"a": pl.String, "b": pl.Int8}),
        pd.DataFrame({"a": [None, None], "b": [1, 2]}),
    ]  # fmt: skip
    for source in sources:
        column = read_table(source).column("a")
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


def test_hostile_names_and_cells_survive_a_file(tmp_path):
    path = tmp_path / "hostile.csv"
    pd.DataFrame(dict.fromkeys(HOSTILE, HOSTILE)).to_csv(path, index=False)
    table = read_table(path)
    assert table.names == tuple(HOSTILE)
    for name in HOSTILE:
        assert cells(table.column(name)) == HOSTILE


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(lambda t: "t" + t)
FLOATS = st.floats(allow_nan=False) | st.none()


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(FLOATS, st.none() | TEXT, st.integers(-(2**62), 2**62)), min_size=1),
    st.sampled_from([pd.DataFrame, pl.DataFrame, pa.table, dict]),
)
def test_a_written_file_reads_back_equal_to_the_table_it_came_from(tmp_path_factory, rows, make):
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
        assert cells(memory.column(name)) == cells(file.column(name)) == expected


def test_more_rows_than_one_chunk_are_read_in_order(tmp_path):
    n = 40_000
    path = written(tmp_path / "t.csv", "a,b\n" + "".join(f"{i},v{i}\n" for i in range(n)))
    table = read_table(path)
    assert table.n_rows == n
    assert np.array_equal(table.column("a"), np.arange(n))
    assert table.column("b")[-1] == f"v{n - 1}"


def test_blank_lines_are_skipped_except_in_a_file_of_one_column(tmp_path):
    assert read_table(written(tmp_path / "a.csv", "\na,b\n1,2\n\n3,4\n\n")).n_rows == 2
    assert cells(read_table(written(tmp_path / "b.csv", "a\n1\n\n3\n")).column("a")) == [1, None, 3]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
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
def test_a_bad_file_says_what_is_wrong_and_where(tmp_path, text, words):
    with pytest.raises(DataError) as error:
        read_table(written(tmp_path / "bad.csv", text))
    assert all(word in str(error.value) for word in ["bad.csv", *words])


def test_a_file_that_is_not_utf8_says_so(tmp_path):
    with pytest.raises(DataError, match=r"not UTF-8.*0x") as error:
        read_table(written(tmp_path / "t.csv", "名,b\n1,2\n", "gbk"))
    assert "dataframe" in str(error.value)


def test_a_corrupt_archive_says_so(tmp_path):
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 5000)
    for name, content in (("cut.csv.gz", whole[: len(whole) // 2]), ("no.csv.gz", b"a,b\n1,2\n")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match="cannot be read"):
            read_table(tmp_path / name)
    (tmp_path / "t.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="not a readable parquet"):
        read_table(tmp_path / "t.parquet")


def test_a_file_that_is_not_there_or_of_unknown_kind_says_so(tmp_path):
    with pytest.raises(DataError, match=r"no file '.*none\.csv'"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"'t\.xlsx'.*known: \.csv"):
        read_table(tmp_path / "t.xlsx")


def test_a_parquet_file_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pa.table({"a": [1]}), path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"treekit-ml\[arrow\]"):
        read_table(path)


@pytest.mark.parametrize("name", ["\r", " ", "\t\n", "\u2003"])
def test_a_name_of_white_space_alone_is_refused_by_name(tmp_path, name):
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
        make_dataset_xy({"a": [1, 2]}, pd.Series(["u", "v"], name=name))


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
def test_what_is_no_table_gets_an_error_with_a_remedy(source, words):
    with pytest.raises(TreekitError) as error:
        read_table(source)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_sparse_matrix_is_refused_with_the_remedy():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(DataError, match="toarray"):
        read_table(sparse.csr_matrix(np.eye(2)))


def test_an_unknown_column_lists_near_names():
    table = read_table({"income": [1], "age": [2]})
    with pytest.raises(DataError, match=r"'incom'; did you mean 'income'\?"):
        table.column("incom")
    with pytest.raises(DataError, match="there are: 'income', 'age'"):
        table.index("zzz")


def test_taking_rows_keeps_names_and_types():
    table = read_table({"a": [1, 2, 3], "b": ["x", None, "?"]}).take(np.array([2, 0]))
    assert isinstance(table, Table)
    assert cells(table.column("a")) == [3, 1]
    assert cells(table.column("b")) == [None, "x"]


def test_the_shipped_table_has_numbers_categories_and_missing_values():
    table = read_table(demo_table())
    kinds = {table.column(name).dtype.kind for name in table.names}
    assert kinds == {"f", "O"}
    assert DEMO_TARGET in table.names
    assert demo_table().stat().st_size < 300_000
    text = io.StringIO(demo_table().with_name("README.md").read_text(encoding="utf-8")).read()
    assert "CC BY 4.0" in text


def test_no_dataframe_library_is_imported_before_a_dataframe_arrives():
    code = (
        "import sys, numpy; from treekit.data.dataset import make_dataset_xy as make;"
        "make(numpy.zeros((2, 1)), [0, 1]);"
        "print({'narwhals', 'pandas', 'polars', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("others", [["1", "2"], ["1", "?"], ["", "2.5"]])
def test_a_mark_that_reads_as_a_number_is_missing_whatever_the_other_cells_are(others, tmp_path):
    path = written(tmp_path / "t.csv", "\n".join(["a,b", *(f"{c},x" for c in others), " -999,x"]))
    numbers = read_table(path, missing=["-999", "?", ""]).column("a")
    assert math.isnan(numbers[2])
    assert not np.any(numbers == -999)


@pytest.mark.parametrize("marks", ["n/a", [-999], [None]])
def test_marks_that_are_no_list_of_texts_are_refused(marks):
    with pytest.raises(DataError, match="list of texts"):
        read_table({"a": ["1"]}, missing=marks)


def test_whole_numbers_beyond_int64_stay_exact_while_an_array_type_holds_them():
    values = [2**63, 2**63 + 1]
    assert read_table({"a": values}).column("a").tolist() == values
