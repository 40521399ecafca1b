"""Numbers of generated C are read as C reads them, or not at all."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from treekit.data.schema import Column, Schema
from treekit.errors import VerificationError
from treekit.export.c.tables import ROW, c_table, hex_table, text_table
from treekit.verify.read_c import of_literals, tables_in


def source_of(table):
    """A table as the templates write it."""
    rows = [table.numbers] if isinstance(table.numbers, str) else list(table.numbers)
    content = "\n".join(rows)
    return f"static const {table.type} m_{table.name}{table.shape} = {{\n{content}\n}};\n"


@pytest.mark.parametrize(
    "numbers",
    [np.array([0], np.uint8), np.arange(-300, 300, dtype=np.int16), np.array([2**31 - 1] * 9)],
    ids=["one", "some", "large"],
)
def test_decimals_are_read(numbers):
    assert np.array_equal(tables_in(source_of(c_table("t", numbers)), "m")["t"], numbers)


def test_words_are_read():
    words = np.random.default_rng(3).integers(0, 2**64 - 1, 31, dtype=np.uint64)
    assert np.array_equal(tables_in(source_of(hex_table("t", words)), "m")["t"], words)


@pytest.mark.parametrize("size", [1, 32, ROW, ROW + 1, 3 * ROW - 5])
def test_texts_are_read_whatever_their_bytes(size):
    octets = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    read = tables_in(source_of(text_table("t", octets)), "m")["t"]
    assert np.array_equal(read, octets)


@pytest.mark.parametrize(
    "table",
    [
        "uint8_t m_t[1] = {\n061\n}",
        "uint8_t m_t[1] = {\n256\n}",
        "uint8_t m_t[1] = {\n-1\n}",
        "int8_t m_t[1] = {\n-129\n}",
        "int8_t m_t[1] = {\n-0\n}",
        "uint8_t m_t[1] = {\n1u\n}",
        "uint8_t m_t[1] = {\n1.5\n}",
        "uint8_t m_t[1] = {\n1e1\n}",
        "uint8_t m_t[1] = {\n\n}",
        "uint8_t m_t[1] = {\n1,\n}",
        "uint8_t m_t[2] = {\n1 2\n}",
        "uint8_t m_t[3] = {\n1, 2\n}",
        "uint8_t m_t[02] = {\n1, 2\n}",
        "uint64_t m_t[1] = {\n9999999999999999999\n}",
        "uint32_t m_t[1] = {\n0x0000000000000001\n}",
        "uint64_t m_t[1] = {\n0x000000000000001\n}",
        "uint64_t m_t[1] = {\n0x00000000,0000001\n}",
        "uint64_t m_t[2] = {\n0x0000000000000001, 1\n}",
        'uint8_t m_t[1][2049] = {\n"a"\n}',
        'unsigned char m_t[1][2048] = {\n"a"\n}',
        'unsigned char m_t[2][2049] = {\n"a"\n}',
        'unsigned char m_t[1] = {\n"a"\n}',
        'unsigned char m_t[1][2049] = {\n"\\400"\n}',
        'unsigned char m_t[1][2049] = {\n"\\x41"\n}',
        'unsigned char m_t[1][2049] = {\n"??/"\n}',
        'unsigned char m_t[1][2049] = {\n"a" "b"\n}',
        'unsigned char m_t[1][2049] = {\nu"a"\n}',
        'unsigned char m_t[2][2049] = {\n"a",\n"b"\n}',
        "unsigned char m_t[1][2049] = {\n1\n}",
    ],
)
def test_what_treekit_does_not_write_is_refused(table):
    source = f"static const {table};\n"
    with suppress(VerificationError):
        assert tables_in(source, "m") == {}  # it is not even a table


def test_a_table_counts_once():
    table = source_of(c_table("t", np.arange(3)))
    with pytest.raises(VerificationError, match="two tables 't'"):
        tables_in(table + table, "m")


SINGLE = Schema((Column("x"),), classes=("no", "yes"))


def test_thresholds_are_of_the_type_of_cells():
    schema = Schema((Column("x"),), classes=("no", "yes"), dtype="float64")
    assert of_literals(["2.5", "-1e-07", "1e300"], "double", schema).tolist() == [
        2.5,
        -1e-07,
        1e300,
    ]
    assert of_literals(["0xc004000000000000u /* 2.5 */"], "uint64_t", schema).tolist() == [2.5]
    assert float(np.float32(of_literals(["2.5f"], "float", SINGLE)[0])) == 2.5


@pytest.mark.parametrize(
    ("literals", "cell"),
    [
        (["2.5f", "2.51"], "float"),
        (["2.5", "2.5f"], "double"),
        (["2"], "double"),
        (["02.5"], "double"),
        (["2.5.5"], "double"),
        (["2.5"], "long"),
        (["1e999"], "double"),
        (["1e39f"], "float"),
        (["0xc0200000u /* 2.5 */"], "double"),
        (["0xc020000u /* 2.5 */"], "uint32_t"),
        (["2.5"], "uint32_t"),
    ],
)
def test_thresholds_that_treekit_does_not_write_are_refused(literals, cell):
    with pytest.raises(VerificationError, match="thresholds"):
        of_literals(literals, cell, SINGLE)
