"""Numbers as treekit's C source writes them, and in no other way.

What C would read otherwise than this module does is refused: each text of a number
must be the one that the exporter writes, be of its table's type, and each table have
as many as it declares.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.export.c.tables import ROW
from treekit.model.fixed_point import double_threshold

__all__ = ["of_keys", "of_literals", "tables_in"]

Array = npt.NDArray[Any]

_DECIMAL = r"(?:0|-?[1-9][0-9]{0,17})"  # within 64 bits; C would read 061 as 49
_DECIMALS = re.compile(f"{_DECIMAL}(?:, {_DECIMAL})*")
_WORD = "0x[0-9a-f]{16}"
_WORDS = re.compile(f"{_WORD}(?:, {_WORD})*")
_BYTES = r"[ !#-&(->@-\[\]-~]|\\[0-3][0-7]{2}|\\[0-7]{1,2}(?![0-7])"
_TEXTS = re.compile(rf'"(?:{_BYTES})+"(?:\n"(?:{_BYTES})+")*')
"""Bytes of a text: letters but the quotes, \\ and ?, and octal escapes, on some lines."""

_DOUBLE = r"-?(?:0|[1-9][0-9]*)(?:\.(?:0|[0-9]*[1-9])(?:e[+-]?[0-9]+)?|e[+-]?[0-9]+)"
_LITERALS = {
    "double": re.compile(_DOUBLE),
    "float": re.compile(f"{_DOUBLE}f"),
    "uint32_t": re.compile(rf"0x[0-9a-f]{{8}}u /\* {_DOUBLE} \*/"),
    "uint64_t": re.compile(rf"0x[0-9a-f]{{16}}u /\* {_DOUBLE} \*/"),
}


def tables_in(text: str, prefix: str) -> dict[str, Array]:
    """The constant tables of whole numbers that a source declares, by name.

    Parameters
    ----------
    prefix : str
        What all names of the source start with.

    Returns
    -------
    dict of str to array
        Int64 where they are decimals, uint64 where they are words, and uint8 where
        they are texts, whose rows follow each other.

    Raises
    ------
    VerificationError
        If a table is written otherwise than treekit does, or declares another length
        or type than that of what it holds.
    """
    table = re.compile(
        rf"^static const (unsigned char|u?int(?:8|16|32|64)_t) {prefix}_(\w+?)"
        r"\[([1-9][0-9]*)\](?:\[([1-9][0-9]*)\])? = \{\n(.*?)\n\};$",
        re.MULTILINE | re.DOTALL,
    )
    tables: dict[str, Array] = {}
    for type_, name, length, width, content in table.findall(text):
        if name in tables:
            raise VerificationError(f"two tables {name!r}")
        lines = content.split(",\n")
        if width:
            count, tables[name] = _octets(lines, type_, int(width))
        else:
            tables[name] = _numbers(lines, type_)
            count = len(tables[name])
        if count != int(length):
            raise VerificationError(f"the table {name!r} does not have the length it declares")
    return tables


def _numbers(lines: list[str], type_: str) -> Array:
    """Whole numbers: 64-bit ones of sixteen hexadecimal digits each, or decimals."""
    if all(map(_WORDS.fullmatch, lines)) and type_ == "uint64_t":
        digits = re.sub(r"0x|, ", "", "".join(lines))
        return np.frombuffer(bytes.fromhex(digits), dtype=">u8").astype(np.uint64)
    if type_ == "unsigned char" or not all(map(_DECIMALS.fullmatch, lines)):
        raise VerificationError("numbers that treekit does not write")
    numbers = np.array(", ".join(lines).split(", "), dtype=np.int64)
    limits = np.iinfo(type_.removesuffix("_t"))
    if numbers.min() < limits.min or numbers.max() > limits.max:
        raise VerificationError("numbers beyond the type of their table")
    return numbers


def _octets(rows: list[str], type_: str, width: int) -> tuple[int, Array]:
    """How many rows of texts there are, and their bytes; all rows are full but the last."""
    if type_ != "unsigned char" or width != ROW + 1 or not all(map(_TEXTS.fullmatch, rows)):
        raise VerificationError("texts that treekit does not write")
    # Where a literal ends, so does an escape; Python reads nothing where a line goes on.
    read = [row[1:-1].replace('"\n"', "\\\n").encode().decode("unicode_escape") for row in rows]
    if any(len(row) != ROW for row in read[:-1]) or len(read[-1]) > ROW:
        raise VerificationError("texts of another length than treekit's")
    return len(rows), np.frombuffer("".join(read).encode("latin-1"), np.uint8)


def of_keys(key: Array, schema: Schema) -> Array:
    """The doubles that ordered integers stand for; NaN where they are none."""
    if schema.dtype == "float64":
        top = np.uint64(1 << 63)
        number = np.where(key & top, key ^ top, ~key).astype(np.uint64).view(np.float64)
        return np.where(np.isfinite(number), number, np.nan)
    low = key.astype(np.uint32)
    bits = np.where(low >> np.uint32(31), low ^ np.uint32(1 << 31), ~low).astype(np.uint32)
    single = bits.view(np.float32)
    finite = np.isfinite(single)
    return np.where(finite, double_threshold(np.where(finite, single, 0)), np.nan)


def of_literals(literals: list[str], cell: str, schema: Schema) -> Array:
    """Thresholds for inputs in double, of literals of the type of a row's cells.

    Raises
    ------
    VerificationError
        If one is written otherwise than treekit does, or is infinite.
    """
    if cell not in _LITERALS or not all(map(_LITERALS[cell].fullmatch, literals)):
        raise VerificationError("thresholds that treekit does not write")
    if cell.startswith("uint"):
        keys = [int(text.split("u", 1)[0], 16) for text in literals]
        return of_keys(np.array(keys, dtype=np.uint64), schema)
    number = np.array([float(text.removesuffix("f")) for text in literals])
    if cell == "float":
        with np.errstate(over="ignore"):
            number = number.astype(np.float32)
    if not np.isfinite(number).all():
        raise VerificationError("thresholds beyond their type")
    return double_threshold(number) if cell == "float" else number
