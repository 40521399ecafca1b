"""Constant tables of C source, and their sizes in bytes.

Large tables are arrays of plain integers: a compiler needs some 200 bytes of memory for
each element, whatever its type, and a structure with a double in it takes ten
times the memory and time of one 64-bit integer (measured, gcc 12, clang 14).
Very large tables are string literals of bytes, the cheapest to compile.
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
"""Bytes per row of a large table."""
MANY = 1 << 19
"""A table of more elements is written as string literals."""
_LINE = 32  # bytes of a string literal per line
_BLOCK = 1 << 16  # numbers formatted at a time, to bound memory
_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_TYPES = {np.dtype(f"{sign}{n}"): n for sign in "iu" for n in (1, 2, 4, 8)}


class Texts:
    """Bytes as rows of string literals, generated lazily to save memory."""

    def __init__(self, octets: npt.NDArray[np.uint8]) -> None:
        self._octets = octets

    def __iter__(self) -> Iterator[Code]:
        for at in range(0, len(self._octets), ROW):
            comma = "," if at + ROW < len(self._octets) else ""
            yield Code(_text(self._octets[at : at + ROW]) + comma)


@dataclass(frozen=True, slots=True)
class CTable:
    """Constant array.

    Attributes
    ----------
    name : Code
        Name without the prefix and an underscore.
    type : Code
    count : int
        Number of elements, at least one.
    shape : Code
        Dimensions in brackets, ``[9]``; with the rows of a large table: ``[3][2048]``.
    numbers : Code, or iterable of Code
        Initialiser, or its parts, which are generated lazily.
    size : int
        Size in bytes.
    """

    name: Code
    type: Code
    count: int
    shape: Code
    numbers: Code | Texts
    size: int


def c_table(name: str, numbers: npt.NDArray[Any]) -> CTable:
    """Make a table of integers or finite doubles, with the element type of the array.

    An empty table gets one 0 that is never read.
    """
    numbers = _some(numbers)
    text = Code(",\n".join(", ".join(row) for row in _rows(numbers, 8)))
    return CTable(Code(name), _type(numbers.dtype), *_length(numbers), text, numbers.nbytes)


def hex_table(name: str, numbers: npt.NDArray[np.uint64]) -> CTable:
    """Make a table of 64-bit integers in hexadecimal, formatted with array operations."""
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
    """Make a table of structures of integers from one array per member, all of one length."""
    columns = [_some(column) for column in columns]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    # Without the suffix "u" a decimal of 2**63 or more has no type.
    form = "{" + ", ".join("%du" if c.dtype.kind == "u" else "%d" for c in columns) + "}"
    text = Code(",\n".join(map(form.__mod__, rows)))
    size = np.dtype(
        {"names": [str(i) for i in range(len(columns))], "formats": [c.dtype for c in columns]},
        align=True,
    ).itemsize
    return CTable(Code(name), Code(type_), *_length(columns[0]), text, len(columns[0]) * size)


def text_table(name: str, octets: npt.NDArray[np.uint8]) -> CTable:
    """Make a table of bytes, at least one, as string literals of `ROW` bytes each.

    A compiler needs some 15 bytes of memory for each byte, and reads it ten times as fast as
    a number; a string literal may have 4,095 bytes (C99 5.2.4.1).
    """
    rows = -(-len(octets) // ROW)
    # One more byte for the terminating NUL: newer compilers warn if it is cut off.
    shape, size = Code(f"[{rows}][{ROW + 1}]"), rows * (ROW + 1)
    return CTable(Code(name), Code("unsigned char"), rows, shape, Texts(octets), size)


def _text(row: npt.NDArray[np.uint8]) -> str:
    """Write a row as string literals, with the shortest unambiguous escape of each byte."""
    before_digit = np.zeros(len(row), dtype=np.intp)
    before_digit[:-1] = (row[1:] >= ord("0")) & (row[1:] <= ord("7"))
    before_digit[_LINE - 1 :: _LINE] = 0  # the last byte of a literal
    spelled, length = _SPELLED[before_digit, row], _LENGTHS[before_digit, row]
    written = np.arange(4) < length[:, None]
    lines = []
    for at in range(0, len(row), _LINE):
        own = slice(at, at + _LINE)
        lines.append(spelled[own][written[own]].tobytes().decode("ascii"))
    return '"' + '"\n"'.join(lines) + '"'


def _spellings() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
    """Return the spelling (2, 256, 4) of each byte in a string literal, and its length (2, 256).

    Index 1 is for bytes before a digit, which would become part of an octal escape of
    fewer than three digits.
    """
    letters, lengths = np.zeros((2, 256, 4), np.uint8), np.zeros((2, 256), np.intp)
    for before_digit, byte in np.ndindex(2, 256):
        text = f"\\{byte:03o}" if before_digit else f"\\{byte:o}"
        if 32 <= byte < 127 and chr(byte) not in "\"'\\?":  # ??/ and the like are trigraphs
            text = chr(byte)
        letters[before_digit, byte, : len(text)] = np.frombuffer(text.encode(), np.uint8)
        lengths[before_digit, byte] = len(text)
    return letters, lengths


_SPELLED, _LENGTHS = _spellings()


def _length(numbers: npt.NDArray[Any]) -> tuple[int, Code]:
    return len(numbers), Code(f"[{len(numbers)}]")


def narrow(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert integers to the narrowest type that holds them, unsigned if none is negative."""
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
    return numbers if len(numbers) else np.zeros(1, numbers.dtype)  # C has no empty arrays


def _type(dtype: np.dtype[Any]) -> Code:
    if dtype == np.float64:
        return Code("double")
    return Code(f"{'u' if dtype.kind == 'u' else ''}int{8 * _TYPES[dtype]}_t")


def _rows(numbers: npt.NDArray[Any], per_line: int) -> Iterator[list[str]]:
    """Format numbers in blocks: Python's strings take 20 times the memory of the numbers."""
    for at in range(0, len(numbers), _BLOCK):
        texts = list(map(repr, numbers[at : at + _BLOCK].tolist()))
        for first in range(0, len(texts), per_line):
            yield texts[first : first + per_line]


# ---------------------------------------------------------------- c types


@dataclass(frozen=True, slots=True)
class CTypes:
    """Types and arithmetic of a C source.

    Attributes
    ----------
    prefix : Code
    single : bool
        Whether the model's input dtype is float32.
    whole : bool
        Whether the source uses integers only: rows are ordered keys, predictions integer sums.
    cell : {"double", "float", "uint32_t", "uint64_t"}
        Type of the cells of a row.
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
        """Dtype of ordered keys, the order-preserving integers of numbers."""
        return np.dtype(np.uint32 if self.single else np.uint64)

    @property
    def key(self) -> Code:
        """C type of ordered keys."""
        return Code(f"uint{8 * self.key_type.itemsize}_t")

    @property
    def number(self) -> Code:
        """Function that converts a cell to its key; empty if cells are keys."""
        return Code("" if self.whole else f"{self.prefix}_number")

    def keys(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return the ordered keys of numbers of the input dtype."""
        return ordered_keys((numbers + 0.0).astype(np.float32 if self.single else np.float64))

    def thresholds(self, model: Model, tree: LoweredTree) -> list[Code]:
        """Write the threshold of each node as a literal of the cells' type."""
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
        """Return the template values."""
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
        If cells of type float would lose precision that the model needs, or are requested
        with integer arithmetic.
    """
    single = model.schema.dtype == "float32"
    whole = arithmetic == "integer"
    if cells == "float" and not single:
        raise ExportError(
            "input='float' would round the rows, but the input type of the model is float64: "
            "choose input='double', or train with dtype='float32'"
        )
    if whole and cells == "float":
        raise ExportError(
            "input='float' needs floating-point rows, but with arithmetic='integer' rows are "
            "integer keys: leave out input"
        )
    if whole:
        cells = "uint32_t" if single else "uint64_t"
    # Votes of a float32 model are at most 2**24, all other sums at most 2**53.
    votes = model.schema.task == "classification" and not model.margins
    narrow = votes and model.missing != "fractional" and model.unit_total < 2**31
    return CTypes(prefix, single, whole, Code(cells), Code("int32_t" if narrow else "int64_t"))


def _shortest_float(number: np.float32) -> str:
    """Return the shortest decimal that round-trips to the same float."""
    text = str(number)
    return text if "." in text or "e" in text else f"{text}.0"


# ---------------------------------------------------------------- c sizes

_FRAMES = 1024
"""Stack bytes without arrays in a chain of calls, for any optimising compiler."""


def size_values(model: Model, made: CForm, tables: list[CTable], types: CTypes) -> dict[str, Any]:
    """Compute the template values of the tables, their sizes and bounds of the stack."""
    row = made.row_stack + model.schema.n_values * (4 if types.sum == "int32_t" else 8) + _FRAMES
    return {
        "tables": {str(table.name): table for table in tables},
        "counted": [table.name for table in tables],
        "table_bytes": sum(table.size for table in tables),
        "stack": row,
        "batch_stack": max(row, made.batch_stack + _FRAMES) if made.block else row,
    }


def sizes_in(header: str) -> str:
    """Summarise the sizes stated in a generated header; empty if it states none."""
    matches = {
        name: re.search(rf"^#define \w+?_{name} \(?([0-9]+)", header, re.MULTILINE)
        for name in ("TABLE_BYTES", "TEXT_BYTES", "STACK_BYTES", "BATCH_STACK_BYTES")
    }
    sizes = {name: f"{int(found[1]):,}" for name, found in matches.items() if found is not None}
    if len(sizes) < len(matches):
        return ""
    return (
        f"tables: {sizes['TABLE_BYTES']} bytes; names and vocabularies: {sizes['TEXT_BYTES']} "
        f"bytes and pointers; stack: at most {sizes['STACK_BYTES']} bytes a row, "
        f"{sizes['BATCH_STACK_BYTES']} a batch"
    )


# ---------------------------------------------------------------- c layout


@dataclass(frozen=True)
class CForm:
    """Layout of the C source of a model.

    Attributes
    ----------
    name : {"if_else", "hybrid", "table"}
    reason : str
    template : str
        Main template in ``c/``.
    values : dict
        Template values other than tables.
    tables : list of CTable
    uses : set of str
        Templates of ``c/helpers`` that it calls.
    row_stack, batch_stack : int
        Stack bytes of its arrays and of the frames of a chain of calls,
        for a row and for a block of a batch.
    block : int
        Rows that a batch scores together; 0 = one at a time.
    batch : tuple of str
        Templates of batch scoring.
    leaves : bool
        Whether the source can return the leaf of each tree.
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
