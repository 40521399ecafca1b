"""CSV files: tables and errors equal those of the csv module and of float."""

from __future__ import annotations

import csv
import io
import struct
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from treekit.data import csv_files, table
from treekit.data.cells import make_object_array, parse_untyped
from treekit.data.table import Table, read_table
from treekit.data.text_format import TextFormat
from treekit.errors import DataError

# ---------------------------------------------------------------- oracle


@contextmanager
def small_blocks(size: int = 40):
    """Read every file as a large one, `size` bytes at a time."""
    with patch.object(table, "LARGE", -8), patch.object(csv_files, "BLOCK", size):
        yield


def read_by_csv_module(path: Path, how: TextFormat):
    """Read a file by the csv module and float: names, typed and original cells; or an error."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (csv.Error, UnicodeDecodeError):
        return "error"
    names = next((row for row in rows if row), None)
    rows = rows[rows.index(names) + 1 :] if names else []
    rows = [row or [""] for row in rows if row or len(names) == 1]
    if not rows or {len(row) for row in rows} != {len(names)}:
        return "error"
    if len(set(names)) < len(names) or not all(name.strip() for name in names):
        return "error"
    columns = [make_object_array(list(column)) for column in zip(*rows, strict=True)]
    return tuple(names), describe_cells([*(parse_untyped(c, how) for c in columns), *columns])


def describe_cells(columns):
    return [(str(column.dtype), list(map(repr_cell, column))) for column in columns]


def repr_cell(cell: object) -> str:
    return repr(cell + 0.0 if isinstance(cell, float) else cell)  # -0.0 is 0.0


def describe(path: Path, **how):
    """Read a table, and return its typed and original cells, or the message of its error."""
    try:
        found: Table = read_table(path, **how)
    except DataError as error:
        return str(error)
    return found.names, describe_cells([*map(found.get_typed_cells, found.names), *found.cells[:]])


def assert_same_table(path: Path, size: int = 40, marks=None) -> None:
    """Compare with the csv module; a file that it reads may be refused for its quotes only."""
    how = {} if marks is None else {"missing": marks}
    found = describe(path, **how)
    with small_blocks(size):
        in_blocks = describe(path, **how)
    assert in_blocks == found
    expected = read_by_csv_module(
        path, TextFormat() if marks is None else TextFormat(frozenset(marks))
    )
    if isinstance(found, str):
        assert expected == "error" or "programs read differently" in found or ";" in found, found
    else:
        assert found == expected


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
    st.sampled_from([4, 17, 64, 4096]),
    st.sampled_from([None, ("",), ("NA", "-999"), ("0", ""), ("7", "red", "nan"), ("1_000", "٣")]),
)
@settings(max_examples=examples(400), deadline=None)
def test_any_csv_text_gives_the_table_or_error_of_the_csv_module(
    tmp_path_factory, text, size, marks
):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(text.encode())
    assert_same_table(path, size, marks)


@given(st.text('",\n\r a1.é', max_size=30), st.integers(3, 12))
@settings(max_examples=examples(400), deadline=None)
def test_quotes_and_line_ends_are_read_as_by_the_csv_module(tmp_path_factory, text, size):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(b"a,b\n" + text.encode())
    assert_same_table(path, size)
    path.write_bytes(b"a\n" + text.encode())
    assert_same_table(path, size)


@given(st.binary(max_size=12), st.integers(0, 40))
@settings(max_examples=examples(100), deadline=None)
def test_invalid_utf8_is_refused_with_the_message_of_the_csv_module(tmp_path_factory, noise, at):
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
def test_csv_numbers_equal_python_float(tmp_path_factory, numbers):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text("x\n" + "\n".join(["0.5", *numbers]) + "\n")
    column = read_table(path).get_typed_cells("x")
    assert column[1:].tobytes() == (np.array(list(map(float, numbers))) + 0.0).tobytes()


def test_integer_columns_of_a_file_keep_all_64_bits(tmp_path):
    path = tmp_path / "t.csv"
    numbers = [2**63 - 1, -(2**63), 2**53 + 1, 0, -7]
    path.write_text("x\n" + "\n".join(map(str, numbers)) + "\n")
    with small_blocks():
        column = read_table(path).get_typed_cells("x")
    assert column.dtype == np.int64
    assert column.tolist() == numbers


@pytest.mark.parametrize(
    ("decimal", "thousands", "texts", "numbers"),
    [
        (",", "", ["1,5", "-0,25", "3", "1e3"], [1.5, -0.25, 3, 1000]),
        (",", ".", ["1.234,5", "1.234.567", "12", "0,5"], [1234.5, 1234567, 12, 0.5]),
        (".", ",", ["1,234.5", "12,34,567", "7"], [1234.5, 1234567, 7]),
        (".", "'", ["1'234.5", "7"], [1234.5, 7]),
        (",", " ", ["1\u202f234,5", "1 234", "1\u00a0234"], [1234.5, 1234, 1234]),
    ],
)
def test_numbers_with_decimal_and_thousands_separators_are_read(
    tmp_path, decimal, thousands, texts, numbers
):
    path = tmp_path / "t.csv"
    rows = "".join(f'"{text}",{at}\n' for at, text in enumerate([*texts, "NULL"]))
    path.write_text("x,at\n" + rows, encoding="utf-8")
    for size in (4, 4096):
        with small_blocks(size):
            found = read_table(path, decimal=decimal, thousands=thousands)
            np.testing.assert_array_equal(found.get_typed_cells("x"), [*numbers, np.nan])
            assert found.cells[0].tolist() == [*texts, "NULL"]


@pytest.mark.parametrize("text", ["1.23,4", "1.2345", "12.34.567,8.9", "1,234.5", "1 234,5"])
def test_misplaced_thousands_separators_are_not_a_number(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(f'x,y\n"{text}",1\n2,3\n')
    cells = read_table(path, decimal=",", thousands=".").get_typed_cells("x")
    assert cells.tolist() == [text, "2"]


# ---------------------------------------------------------------- rows and quotes


@pytest.mark.parametrize("size", [7, 64, 4096])
def test_quotes_line_ends_and_missing_marks_are_read_in_any_block_size(tmp_path, size):
    path = tmp_path / "t.csv"
    lines = ["\ufeff", "x,city,note", '1.5,"Oslo, N","a ""b""\nc"', "NA,Bern,", ",,é", "-999,,", ""]
    path.write_bytes("\r\n".join(lines).encode())
    with small_blocks(size):
        found = read_table(path, missing=("", "NA", "-999"))
        np.testing.assert_array_equal(found.get_typed_cells("x"), [1.5, np.nan, np.nan, np.nan])
        assert found.get_typed_cells("city").tolist() == ["Oslo, N", "Bern", None, None]
        assert found.get_typed_cells("note").tolist() == ['a "b"\nc', None, "é", None]


@pytest.fixture
def short_fields():
    """A low limit of the csv module, which imported libraries may have raised."""
    limit = csv.field_size_limit(1000)
    yield 1000
    assert csv.field_size_limit(limit) == 1000


def test_a_cell_may_be_longer_than_the_limit_of_the_csv_module(tmp_path, short_fields):
    path = tmp_path / "t.csv"
    long = "é" * 2 * short_fields
    rows = [[str(i), long if i in (0, 7) else "x"] for i in range(12)]
    path.write_text("a,b\n" + "".join(",".join(row) + "\n" for row in rows), encoding="utf-8")
    for size in (64, 4096):
        with small_blocks(size):
            found = read_table(path)
            assert found.get_typed_cells("a").tolist() == list(range(12))
            assert found.get_typed_cells("b").tolist() == [row[1] for row in rows]


def test_unclosed_quote_is_refused_with_its_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n0,1\n1,"2\n' + "3,4\n" * 100_000)
    with pytest.raises(DataError, match=r"line 3: a quote is opened and never closed"):
        read_table(path)


@pytest.mark.parametrize("line", ["sep=;", "SEP=;", '"sep=;"', "\ufeffsep=;"])
def test_sep_line_of_excel_sets_the_separator(tmp_path, line):
    path = tmp_path / "t.csv"
    path.write_text(line + "\r\nx;y\r\n1,5;a\r\n2,5;b\r\n", encoding="utf-8")
    found = read_table(path, decimal=",")
    assert found.names == ("x", "y")
    assert found.get_typed_cells("x").tolist() == [1.5, 2.5]
    path.write_text(line + "\r\nx;y\r\n1;a\r\n2\r\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 4 has 1 cells"):
        read_table(path)


@pytest.mark.parametrize(("encoding", "word"), [("utf-16", "UTF-16"), ("latin-1", "Latin-1")])
def test_other_encodings_are_refused_with_their_name(tmp_path, encoding, word):
    path = tmp_path / "t.csv"
    path.write_bytes("größe,b\n1,2\n".encode(encoding))
    with pytest.raises(DataError, match=rf"not UTF-8 .*{word}"):
        read_table(path)


@pytest.mark.parametrize(
    "cells", [["-0", "1"], ["-0", "1.5"], ["-0.0", "1.5"], ["-0", ""], ["-0"] * 9 + ["0.5"]]
)
def test_negative_zero_is_read_as_zero_in_any_block_size(tmp_path, cells):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{cell},1\n" for cell in cells))
    for size in (4, 4096):
        with small_blocks(size):
            numbers = read_table(path).get_typed_cells("x")
        assert not np.signbit(numbers[numbers == 0]).any()


# ---------------------------------------------------------------- texts that are one number


@pytest.mark.parametrize(
    ("cells", "merged"),
    [
        (["250.1", "401.9", "250.10"], ("250.1", "250.10")),
        (["01", "1", "2"], ("01", "1")),
        (["1", "2", "1.0"], ("1", "1.0")),
        (["008.45", "8.45", "1"], ("008.45", "8.45")),
        (["-01", "-1", "2"], ("-01", "-1")),
        (["+7", "7", "2"], ("+7", "7")),
        (["1E3", "1000", "2"], ("1000", "1E3")),
        (["89460000000000000001", "89460000000000000002"], None),
        (["9007199254740993", "9007199254740992", ""], None),
        (["1.50", "2.25", "3.10"], None),
        (["1.0", "2.5", "3.0"], None),
        (["007", "012"], None),
        (["1e-05", "2.5", "0.3"], None),
        ([" 1", "1", "2"], None),
        (["-0.000", "0.000", "1.25"], None),
    ],
)
@pytest.mark.parametrize("n", [1, 30])
def test_different_texts_of_one_number_are_found(tmp_path, cells, merged, n):
    path = tmp_path / "t.csv"
    if merged is None and cells[0].startswith(("894", "900")):
        merged = tuple(sorted(cells[:2]))
    rows = [*cells[:1] * n, *cells[1:]]
    path.write_text("x,y\n" + "".join(f"{cell},1\n" for cell in rows))
    for size in (4, 64, 4096):
        with small_blocks(size):
            assert read_table(path).find_merged_texts("x") == merged
    untyped = read_table(np.array([[cell, "1"] for cell in rows]))
    assert untyped.find_merged_texts("x0") == merged


@given(
    st.lists(st.text("0123.-+eE ", max_size=6), min_size=1, max_size=8), st.sampled_from([4, 64])
)
@settings(max_examples=examples(300), deadline=None)
def test_merged_texts_equal_the_plain_search(tmp_path_factory, cells, size):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text("x,y\n" + "".join(f"{cell},1\n" for cell in cells))
    with small_blocks(size):
        found = read_table(path)
        if found.get_typed_cells("x").dtype.kind in "if":
            known: dict[float, set[str]] = {}
            for text in {cell.strip() for cell in cells} - {""}:
                if text.startswith("-") and float(text) == 0.0:
                    continue
                known.setdefault(float(text), set()).add(text)
            merged = [texts for texts in known.values() if len(texts) > 1]
            pair = found.find_merged_texts("x")
            assert (pair is None) == (not merged)
            assert pair is None or any(set(pair) <= texts for texts in merged)
