"""Reading large CSV files by kernels: the table and the errors of the csv module and of float."""

from __future__ import annotations

import csv
import struct
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from treekit.data import csv_files, table
from treekit.data.out_of_core import StoredCells
from treekit.data.table import Table, read_table
from treekit.errors import DataError

# ---------------------------------------------------------------- oracle


def read_in_parts(path: Path, rows: int = 5, size: int = 40, *, forbid_csv: bool = False, **how):
    """Read a file as a large one, some rows and bytes at a time."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(table, "LARGE", -8))
        stack.enter_context(patch.multiple(csv_files, _CHUNK=rows, _BLOCK=size))
        if forbid_csv:
            stack.enter_context(patch.object(csv_files, "_TextChunk", None))
        return read_table(path, **how)


def describe(read):
    """Read a table, and return its typed and original cells, or the message of its error."""
    try:
        found: Table = read()
    except DataError as error:
        return str(error)
    cells = [*map(found.get_typed_cells, found.names), *found.cells[:]]
    return found.names, [(str(column.dtype), list(map(repr_cell, column))) for column in cells]


def repr_cell(cell: object) -> str:
    return repr(cell + 0.0 if isinstance(cell, float) else cell)  # -0.0 is 0.0


def assert_same_table(path: Path, rows: int = 5, size: int = 40, **how) -> None:
    expected = describe(lambda: read_table(path, **how))
    assert describe(lambda: read_in_parts(path, rows, size, **how)) == expected


# ---------------------------------------------------------------- files

NUMERALS = [
    "0", "-0", "7", "+7", "-12", "007", "9007199254740993", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "12345678901234567890",
    "0.1", "-0.0", ".5", "5.", "1e5", "1E-5", "2.5e+3", "1e400", "-1e400", "1e-320", "5e-324",
    "2.2250738585072011e-308", "1.7976931348623159e308", "0e999", "1e0000005", "inf", "-Infinity",
    "0.000012345678901234567", "0.1000000000000000055511151231257827", "9007199254740993.0",
    "8.5", " 1", "2 ", "  3.5  ", "\t4", "5\x0b", "\xa06", "1\x1c",
]  # fmt: skip
GAPS = ["", "", "NA", "nan", "NaN", " ? ", "null", "-999", "-999.0", " ", "\xa0nan"]
WORDS = [
    "red", "Zürich", "TRUE", "false", "1_000", "٣", "0x1F", "+", "-", ".", "e5", "1e", "1e+",
    "1.2.3", "--1", "1 2", 'a"b', "\x00", "\ufeff", "\u2028", "北京", "nan1", "in", "x" * 50,
    "1\x85", "'1'",
]  # fmt: skip
QUOTED = [
    '"1"', '"2.5"', '""', '"a,b"', '"a""b"', '"NA"', '" 7 "', '"x\ny"', '"x\r\ny"', '"é"', '"red"',
]  # fmt: skip
BREAKS = ['"', '"1"2', '"a" ', ",", "\n", "\r", '""""', '"\n', ",,", "\r\n\r\n", "\n\n", "\t", ";"]


@st.composite
def csv_texts(draw) -> str:
    """Text of a table whose columns change their kind, with any line ends and some errors."""
    width = draw(st.integers(1, 4))
    n = draw(st.integers(0, 25))
    kinds = [
        st.sampled_from(NUMERALS[:9]),
        st.sampled_from(NUMERALS),
        st.sampled_from(WORDS + QUOTED),
    ]
    columns = []
    for _ in range(width):
        first, then = draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds))
        gaps = draw(st.sampled_from([st.nothing(), st.nothing(), st.sampled_from(GAPS)]))
        change = draw(st.integers(0, 2 * n))
        columns.append([draw((first if i < change else then) | gaps) for i in range(n)])
    names = draw(
        st.sampled_from([[f"c{i}" for i in range(width)], [f'"c,{i}"' for i in range(width)]])
    )
    ends = draw(st.sampled_from([["\n"], ["\r\n"], ["\r"], ["\n", "\r\n", "\n\n", "\r", "\n\r"]]))
    text = draw(st.sampled_from(["", "", "\ufeff", "\n", "\ufeff\r\n\n"]))
    for row in [names, *zip(*columns, strict=True)]:
        text += ",".join(row) + draw(st.sampled_from(ends))
    if draw(st.booleans()):
        text = text.rstrip("\r\n")
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(BREAKS)) + text[at:]
    return text


@given(
    csv_texts(),
    st.integers(1, 9),
    st.sampled_from([4, 17, 64, 4096]),
    st.sampled_from([None, ("",), ("NA", "-999"), ("0", ""), ("7", "red", "nan"), ("1_000", "٣")]),
)
@settings(max_examples=examples(400), deadline=None)
def test_any_text_is_the_table_or_the_error_of_the_csv_module(
    tmp_path_factory, text, rows, size, marks
):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(text.encode())
    assert_same_table(path, rows, size, **({} if marks is None else {"missing": marks}))


@given(st.text('",\n\r a1.é', max_size=30), st.integers(1, 4), st.integers(3, 12))
@settings(max_examples=examples(400), deadline=None)
def test_quotes_and_line_ends_are_those_of_the_csv_module(tmp_path_factory, text, rows, size):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(b"a,b\n" + text.encode())
    assert_same_table(path, rows, size)
    path.write_bytes(b"a\n" + text.encode())
    assert_same_table(path, rows, size)


@given(st.binary(max_size=12), st.integers(0, 40))
@settings(max_examples=examples(100), deadline=None)
def test_bytes_that_are_not_utf8_are_refused_in_the_same_words(tmp_path_factory, noise, at):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    text = "name,größe\r\nZoë,1.5\r\nÅsa,2\r\n".encode()
    path.write_bytes(text[:at] + noise + text[at:])
    assert_same_table(path)


# ---------------------------------------------------------------- numbers


def numerals():
    """Decimal numbers of any length, near the doubles and halfway between two of them."""
    doubles = st.integers(0, 2**64 - 1).map(lambda n: struct.unpack("d", struct.pack("Q", n))[0])
    digits = st.text("0123456789", min_size=1, max_size=22)
    odd = st.integers(2**52, 2**53 - 1).map(lambda n: 2 * n + 1)
    return st.one_of(
        doubles.filter(np.isfinite).map(repr),
        st.floats(-1e6, 1e6).map(repr),
        st.builds("{:.{}e}".format, st.floats(-1e9, 1e9), st.integers(0, 20)),
        st.builds("{}.{}".format, digits, digits),
        st.builds("{}e{}".format, digits, st.integers(-345, 320)),
        st.builds("{}.{}e{}".format, digits, digits, st.integers(-345, 320)),
        st.builds(lambda n, e: str(n * 2**e), odd, st.integers(0, 11)),
        st.builds(lambda n, e: f"{n * 5**e}e-{e}", odd, st.integers(1, 9)),
    )


@given(st.lists(numerals(), min_size=1, max_size=40))
@settings(max_examples=examples(200), deadline=None)
def test_numbers_are_the_doubles_of_float(tmp_path_factory, numbers):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text("x\n" + "\n".join(["0.5", *numbers]) + "\n")
    column = read_in_parts(path, 64, 4096).get_typed_cells("x")
    assert column[1:].tobytes() == np.array(list(map(float, numbers))).tobytes()


def test_integers_keep_all_64_bits(tmp_path):
    path = tmp_path / "t.csv"
    numbers = [2**63 - 1, -(2**63), 2**53 + 1, 0, -7]
    path.write_text("x\n" + "\n".join(map(str, numbers)) + "\n")
    column = read_in_parts(path, forbid_csv=True).get_typed_cells("x")
    assert column.dtype == np.int64
    assert column.tolist() == numbers


# ---------------------------------------------------------------- kernels and csv module


@pytest.mark.parametrize("size", [7, 64, 4096])
def test_usual_files_are_read_without_the_csv_module(tmp_path, size):
    path = tmp_path / "t.csv"
    lines = ["\ufeff", "x,city,note", '1.5,"Oslo, N","a ""b""\nc"', "NA,Bern,", ",,é", "-999,,", ""]
    path.write_bytes("\r\n".join(lines).encode())
    found = read_in_parts(path, 2, size, forbid_csv=True, missing=("", "NA", "-999"))
    assert isinstance(found.cells, StoredCells)
    np.testing.assert_array_equal(found.get_typed_cells("x"), [1.5, np.nan, np.nan, np.nan])
    assert found.get_typed_cells("city").tolist() == ["Oslo, N", "Bern", None, None]
    assert found.get_typed_cells("note").tolist() == ['a "b"\nc', None, "é", None]


def test_rows_that_the_kernels_leave_are_read_by_the_csv_module(tmp_path):
    path = tmp_path / "t.csv"
    long = "é" * (csv.field_size_limit() // 2 + 1)  # more bytes than the limit, fewer characters
    rows = [[str(i), long if i == 7 else "x"] for i in range(12)]
    path.write_text("a,b\n" + "".join(",".join(row) + "\n" for row in rows), encoding="utf-8")
    found = read_in_parts(path)
    assert found.get_typed_cells("a").tolist() == list(range(12))
    assert found.get_typed_cells("b").tolist() == [row[1] for row in rows]


def test_a_quote_that_is_never_closed_is_found_without_reading_the_file_into_memory(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,"2\n' + "3,4\n" * 100_000)
    with pytest.raises(DataError, match=r"line .* field larger than field limit"):
        read_in_parts(path, 64, 4096)
