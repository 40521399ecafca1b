"""Constant tables of C source, and how many bytes they take.

Large tables are arrays of plain integers: a compiler holds some 200 bytes for
each element, whatever its type, and a structure with a double in it takes ten
times the memory and the time of one 64-bit integer (measured, gcc 12, clang 14).
Very large ones are texts of bytes, which take the least.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.literals import Code, float_literal
from treekit.export.lowering import LoweredTree, Step, plain_thresholds
from treekit.model.model import Model
from treekit.model.packing import ordered_keys

__all__ = [
    "MANY",
    "ROW",
    "CForm",
    "CTable",
    "CTypes",
    "c_table",
    "c_types",
    "hex_table",
    "narrow",
    "size_values",
    "sizes_in",
    "struct_table",
    "text_table",
]


# ---------------------------------------------------------------- c tables

_MOST = 2**31 - 1
ROW = 2048
"""Bytes of a row of a large table."""
MANY = 1 << 19
"""A table of more elements is written as texts."""
_LINE = 32  # bytes of a text on a line
_BLOCK = 1 << 16  # numbers whose texts are in memory at a time
_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_TYPES = {np.dtype(f"{sign}{n}"): n for sign in "iu" for n in (1, 2, 4, 8)}


class Texts:
    """Bytes as rows of string literals; all rows at once would take thrice their memory."""

    def __init__(self, octets: npt.NDArray[np.uint8]) -> None:
        self._octets = octets

    def __iter__(self) -> Iterator[Code]:
        for at in range(0, len(self._octets), ROW):
            comma = "," if at + ROW < len(self._octets) else ""
            yield Code(_text(self._octets[at : at + ROW]) + comma)


@dataclass(frozen=True, slots=True)
class CTable:
    """A constant array.

    Attributes
    ----------
    name : Code
        What comes after the prefix and an underscore.
    type : Code
    count : int
        Elements, at least one.
    shape : Code
        The same in brackets, ``[9]``; rows of a large table too: ``[3][2048]``.
    numbers : Code, or iterable of Code
        The initialiser, or its parts, which are made when they are written.
    size : int
        Bytes.
    """

    name: Code
    type: Code
    count: int
    shape: Code
    numbers: Code | Texts
    size: int


def c_table(name: str, numbers: npt.NDArray[Any]) -> CTable:
    """The table of an array of integers or finite doubles, each of the array's type.

    A table that would be empty has one 0 that nobody reads.
    """
    numbers = _some(numbers)
    text = Code(",\n".join(", ".join(row) for row in _rows(numbers, 8)))
    return CTable(Code(name), _type(numbers.dtype), *_length(numbers), text, numbers.nbytes)


def hex_table(name: str, numbers: npt.NDArray[np.uint64]) -> CTable:
    """The table of an array of 64-bit integers, in hexadecimal: written as fast as it is read."""
    numbers = _some(numbers)
    texts = []
    for at in range(0, len(numbers), _BLOCK):
        part = numbers[at : at + _BLOCK]
        text = np.empty((len(part), 20), dtype=np.uint8)
        text[:] = np.frombuffer(b"0x" + 16 * b"0" + b", ", dtype=np.uint8)
        places = np.arange(60, -1, -4, dtype=np.uint64)
        text[:, 2:18] = _DIGITS[(part[:, None] >> places) & np.uint64(15)]
        text[3::4, 19] = ord("\n")
        texts.append(text.tobytes().decode("ascii"))
    written = "".join(texts)[:-2]
    return CTable(
        Code(name), _type(numbers.dtype), *_length(numbers), Code(written), numbers.nbytes
    )


def struct_table(name: str, type_: str, columns: Sequence[npt.NDArray[Any]]) -> CTable:
    """The table of structures of integers, one array for each member, all of one length."""
    columns = [_some(column) for column in columns]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    # Without the letter a decimal beyond 2**63 has no type.
    form = "{" + ", ".join("%du" if c.dtype.kind == "u" else "%d" for c in columns) + "}"
    text = Code(",\n".join(map(form.__mod__, rows)))
    size = np.dtype(
        {"names": [str(i) for i in range(len(columns))], "formats": [c.dtype for c in columns]},
        align=True,
    ).itemsize
    return CTable(Code(name), Code(type_), *_length(columns[0]), text, len(columns[0]) * size)


def text_table(name: str, octets: npt.NDArray[np.uint8]) -> CTable:
    """The table of many bytes, at least one, as texts of `ROW` bytes each.

    A compiler holds some 15 bytes for each byte, and reads it ten times as fast as a
    number; a text may have 4,095 (C99 5.2.4.1).
    """
    rows = -(-len(octets) // ROW)
    # One byte more, which ends a text, or newer compilers warn of it.
    shape, size = Code(f"[{rows}][{ROW + 1}]"), rows * (ROW + 1)
    return CTable(Code(name), Code("unsigned char"), rows, shape, Texts(octets), size)


def _text(row: npt.NDArray[np.uint8]) -> str:
    """A row as string literals, each byte in the fewest letters that no next one changes."""
    before_digit = np.zeros(len(row), dtype=np.intp)
    before_digit[:-1] = (row[1:] >= ord("0")) & (row[1:] <= ord("7"))
    before_digit[_LINE - 1 :: _LINE] = 0  # there a literal ends
    spelled, length = _SPELLED[before_digit, row], _LENGTHS[before_digit, row]
    written = np.arange(4) < length[:, None]
    lines = []
    for at in range(0, len(row), _LINE):
        own = slice(at, at + _LINE)
        lines.append(spelled[own][written[own]].tobytes().decode("ascii"))
    return '"' + '"\n"'.join(lines) + '"'


def _spellings() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
    """Letters (2, 256, 4) of each byte in a string literal, and their numbers (2, 256).

    The second of each is for bytes before a digit, which an octal escape of fewer
    than three digits would swallow.
    """
    letters, lengths = np.zeros((2, 256, 4), np.uint8), np.zeros((2, 256), np.intp)
    for before_digit, byte in np.ndindex(2, 256):
        text = f"\\{byte:03o}" if before_digit else f"\\{byte:o}"
        if 32 <= byte < 127 and chr(byte) not in "\"'\\?":  # ??/ and its kin are trigraphs
            text = chr(byte)
        letters[before_digit, byte, : len(text)] = np.frombuffer(text.encode(), np.uint8)
        lengths[before_digit, byte] = len(text)
    return letters, lengths


_SPELLED, _LENGTHS = _spellings()


def _length(numbers: npt.NDArray[Any]) -> tuple[int, Code]:
    return len(numbers), Code(f"[{len(numbers)}]")


def narrow(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same integers in the narrowest type that holds them, unsigned if none is negative."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    kinds = "u" if low >= 0 else "i"
    for width in (1, 2, 4, 8):
        info = np.iinfo(f"{kinds}{width}")
        if info.min <= low and high <= info.max:
            return numbers.astype(info.dtype)
    raise ExportError("a table holds integers beyond 64 bits")


def _some(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if len(numbers) > _MOST:
        raise ExportError(f"the model needs more than {_MOST} table entries: train fewer trees")
    return numbers if len(numbers) else np.zeros(1, numbers.dtype)


def _type(dtype: np.dtype[Any]) -> Code:
    if dtype == np.float64:
        return Code("double")
    return Code(f"{'u' if dtype.kind == 'u' else ''}int{8 * _TYPES[dtype]}_t")


def _rows(numbers: npt.NDArray[Any], per_line: int) -> Iterator[list[str]]:
    """Texts of the numbers, some at a time: Python's own take 20 times their memory."""
    for at in range(0, len(numbers), _BLOCK):
        texts = list(map(repr, numbers[at : at + _BLOCK].tolist()))
        for first in range(0, len(texts), per_line):
            yield texts[first : first + per_line]


# ---------------------------------------------------------------- c types
# The types and the arithmetic of one C source.


@dataclass(frozen=True, slots=True)
class CTypes:
    """How a source computes.

    Attributes
    ----------
    prefix : Code
    single : bool
        The model's input type is float32.
    whole : bool
        No floating point: rows are ordered keys, answers are integer sums.
    cell : {"double", "float", "uint32_t", "uint64_t"}
        Type of a row's cells.
    sum : {"int32_t", "int64_t"}
        Type of the integer sums.
    """

    prefix: Code
    single: bool
    whole: bool
    cell: Code
    sum: Code

    @property
    def key_type(self) -> np.dtype[Any]:
        """Of numbers as integers in their order."""
        return np.dtype(np.uint32 if self.single else np.uint64)

    @property
    def key(self) -> Code:
        """That type in C."""
        return Code(f"uint{8 * self.key_type.itemsize}_t")

    @property
    def number(self) -> Code:
        """What is written before ``(cell)`` for the key of a number."""
        return Code("" if self.whole else f"{self.prefix}_number")

    def keys(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Keys of numbers of the input type."""
        return ordered_keys((numbers + 0.0).astype(np.float32 if self.single else np.float64))

    def thresholds(self, model: Model, tree: LoweredTree) -> list[Code]:
        """What rows are compared with in each node, as literals of the cells' type."""
        if self.cell == "double":
            return [float_literal(t) for t in plain_thresholds(tree, model.schema).tolist()]
        asks = (tree.kind == Step.LE) & (tree.feature < model.schema.n_features)
        own = np.where(asks, tree.threshold, 0.0) + 0.0
        if self.cell == "float":
            return [Code(f"{text}f") for text in map(_shortest_float, own.astype(np.float32))]
        keys = self.keys(own).tolist()
        digits = self.key_type.itemsize * 2
        return [
            Code(f"0x{key:0{digits}x}u /* {float_literal(t)} */")
            for key, t in zip(keys, own.tolist(), strict=True)
        ]

    def values(self) -> dict[str, Any]:
        """What templates write of it."""
        bits = self.key_type.itemsize * 8
        missing = Code(f"UINT{bits}_MAX")
        code_end = Code({"double": ".0", "float": ".0f"}.get(str(self.cell), "u"))
        return {
            "x": self.cell,
            "key": self.key,
            "sum": self.sum,
            "out": self.sum if self.whole else Code("double"),
            "missing": missing,
            "top": Code(f"0x8{'0' * (bits // 4 - 1)}u"),
            "infinity": Code("0x7f800000u" if self.single else "0x7ff0000000000000u"),
            "real": Code("float" if self.single else "double"),
            "number": self.number,
            "order": Code(f"{self.prefix}_{'key' if self.whole else 'order'}"),
            "order_is": Code("" if self.whole else "static "),
            "zero": Code("0.0f" if self.cell == "float" else "0.0"),
            "beyond": Code("2147483648.0f" if self.cell == "float" else "2147483648.0"),
            "w": {"p": self.prefix, "missing": missing, "code_end": code_end},
            "is_nan": Code(
                f"x[feature] == {missing}" if self.whole else "x[feature] != x[feature]"
            ),
        }


def c_types(model: Model, prefix: Code, cells: str, arithmetic: str) -> CTypes:
    """Choose the types for a model.

    Parameters
    ----------
    cells : {"double", "float"}
    arithmetic : {"float", "integer"}

    Raises
    ------
    ExportError
        If float cells would round what the model distinguishes, or there are
        no cells of floating point.
    """
    single = model.schema.dtype == "float32"
    whole = arithmetic == "integer"
    if cells == "float" and not single:
        raise ExportError(
            "input='float' would round the rows, and the model tells numbers apart that are one "
            "float (its input type is float64): choose input='double', or train with "
            "dtype='float32'"
        )
    if whole and cells == "float":
        raise ExportError(
            "input='float' is for rows of floating point, and with arithmetic='integer' rows are "
            "integer keys: leave input out"
        )
    if whole:
        cells = "uint32_t" if single else "uint64_t"
    # Votes of a float32 model stay within 2**24, all other sums within 2**53.
    votes = model.schema.task == "classification" and not model.margins
    narrow = votes and model.missing != "fractional" and model.unit_total < 2**31
    return CTypes(prefix, single, whole, Code(cells), Code("int32_t" if narrow else "int64_t"))


def _shortest_float(number: np.float32) -> str:
    """The shortest decimal that reads back as the same float."""
    text = str(number)
    return text if "." in text or "e" in text else f"{text}.0"


# ---------------------------------------------------------------- c sizes
# How many bytes the tables and the stack of C source take: computed, written, and read again.

_FRAMES = 1024
"""Bytes of what is on the stack but arrays, in a chain of calls, for any optimising compiler."""


def size_values(model: Model, made: CForm, tables: list[CTable], types: CTypes) -> dict[str, Any]:
    """The tables that scoring reads, what they take, and bounds of the stack."""
    row = made.row_stack + model.schema.n_values * (4 if types.sum == "int32_t" else 8) + _FRAMES
    return {
        "tables": {str(table.name): table for table in tables},
        "counted": [table.name for table in tables],
        "table_bytes": sum(table.size for table in tables),
        "stack": row,
        "batch_stack": max(row, made.batch_stack + _FRAMES) if made.block else row,
    }


def sizes_in(header: str) -> str:
    """What a generated header says of bytes, in words; empty if it is no such header."""
    told = {
        name: re.search(rf"^#define \w+?_{name} \(?([0-9]+)", header, re.MULTILINE)
        for name in ("TABLE_BYTES", "TEXT_BYTES", "STACK_BYTES", "BATCH_STACK_BYTES")
    }
    sizes = {name: f"{int(found[1]):,}" for name, found in told.items() if found is not None}
    if len(sizes) < len(told):
        return ""
    return (
        f"tables: {sizes['TABLE_BYTES']} bytes; names and vocabularies: {sizes['TEXT_BYTES']} "
        f"bytes and pointers; stack: at most {sizes['STACK_BYTES']} bytes a row, "
        f"{sizes['BATCH_STACK_BYTES']} a batch"
    )


# ---------------------------------------------------------------- c form
# What a form of C source says of itself.


@dataclass(frozen=True)
class CForm:
    """A form of source for one model.

    Attributes
    ----------
    name : {"if_else", "hybrid", "table"}
    reason : str
    template : str
        Of ``c/``.
    values : dict
        Of its templates, tables apart.
    tables : list of CTable
    uses : set of str
        Templates of ``c/helpers`` that it calls.
    row_stack, batch_stack : int
        Bytes of its arrays on the stack, and of the frames of a chain of calls,
        for a row and for a block of a batch.
    block : int
        Rows that a batch scores together; 0 = each alone.
    batch : tuple of str
        Templates of how it does.
    leaves : bool
        Whether it tells the leaf of each tree.
    """

    name: str
    reason: str
    template: str
    values: dict[str, Any]
    tables: list[CTable]
    uses: set[str]
    row_stack: int = 0
    batch_stack: int = 0
    block: int = 0
    batch: tuple[str, ...] = ("block", "batch_blocks")
    leaves: bool = True
