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
from treekit.export.lowering import LoweredTree, Step, compute_double_thresholds
from treekit.model.model import Model
from treekit.model.packing import to_ordered_keys

__all__ = [
    "MAX_ARRAY_ELEMENTS",
    "ROW_BYTES",
    "CLayout",
    "CTable",
    "CTypes",
    "choose_c_types",
    "compute_size_values",
    "make_c_table",
    "make_hex_table",
    "make_struct_table",
    "make_text_table",
    "narrow_integers",
    "summarize_sizes",
]


# ---------------------------------------------------------------- c tables

_MAX_ENTRIES = 2**31 - 1
ROW_BYTES = 2048
"""Bytes per row of a large table."""
MAX_ARRAY_ELEMENTS = 1 << 19
"""A table of more elements is written as string literals."""
_LINE_BYTES = 32  # bytes of a string literal per line
_BLOCK_NUMBERS = 1 << 16  # numbers formatted at a time, to bound memory
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_INTEGER_WIDTHS = {np.dtype(f"{sign}{n}"): n for sign in "iu" for n in (1, 2, 4, 8)}


class ByteRows:
    """Bytes as rows of string literals, generated lazily to save memory."""

    def __init__(self, octets: npt.NDArray[np.uint8]) -> None:
        self._octets = octets

    def __iter__(self) -> Iterator[Code]:
        for at in range(0, len(self._octets), ROW_BYTES):
            comma = "," if at + ROW_BYTES < len(self._octets) else ""
            yield Code(_write_row(self._octets[at : at + ROW_BYTES]) + comma)


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
    numbers: Code | ByteRows
    size: int


def make_c_table(name: str, numbers: npt.NDArray[Any]) -> CTable:
    """Make a table of integers or finite doubles, with the element type of the array.

    An empty table gets one 0 that is never read.
    """
    numbers = _ensure_nonempty(numbers)
    text = Code(",\n".join(", ".join(row) for row in _format_rows(numbers, 8)))
    return CTable(
        Code(name), _get_c_type(numbers.dtype), *_get_length(numbers), text, numbers.nbytes
    )


def make_hex_table(name: str, numbers: npt.NDArray[np.uint64]) -> CTable:
    """Make a table of 64-bit integers in hexadecimal, formatted with array operations."""
    numbers = _ensure_nonempty(numbers)
    texts = []
    for at in range(0, len(numbers), _BLOCK_NUMBERS):
        part = numbers[at : at + _BLOCK_NUMBERS]
        text = np.empty((len(part), 20), dtype=np.uint8)
        text[:] = np.frombuffer(b"0x" + 16 * b"0" + b", ", dtype=np.uint8)
        places = np.arange(60, -1, -4, dtype=np.uint64)
        text[:, 2:18] = _HEX_DIGITS[(part[:, None] >> places) & np.uint64(15)]
        text[3::4, 19] = ord("\n")
        texts.append(text.tobytes().decode("ascii"))
    written = "".join(texts)[:-2]
    return CTable(
        Code(name), _get_c_type(numbers.dtype), *_get_length(numbers), Code(written), numbers.nbytes
    )


def make_struct_table(name: str, type_: str, columns: Sequence[npt.NDArray[Any]]) -> CTable:
    """Make a table of structures of integers from one array per member, all of one length."""
    columns = [_ensure_nonempty(column) for column in columns]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    # Without the suffix "u" a decimal of 2**63 or more has no type.
    form = "{" + ", ".join("%du" if c.dtype.kind == "u" else "%d" for c in columns) + "}"
    text = Code(",\n".join(map(form.__mod__, rows)))
    size = np.dtype(
        {"names": [str(i) for i in range(len(columns))], "formats": [c.dtype for c in columns]},
        align=True,
    ).itemsize
    return CTable(Code(name), Code(type_), *_get_length(columns[0]), text, len(columns[0]) * size)


def make_text_table(name: str, octets: npt.NDArray[np.uint8]) -> CTable:
    """Make a table of bytes, at least one, as string literals of `ROW` bytes each.

    A compiler needs some 15 bytes of memory for each byte, and reads it ten times as fast as
    a number; a string literal may have 4,095 bytes (C99 5.2.4.1).
    """
    rows = -(-len(octets) // ROW_BYTES)
    # One more byte for the terminating NUL: newer compilers warn if it is cut off.
    shape, size = Code(f"[{rows}][{ROW_BYTES + 1}]"), rows * (ROW_BYTES + 1)
    return CTable(Code(name), Code("unsigned char"), rows, shape, ByteRows(octets), size)


def _write_row(row: npt.NDArray[np.uint8]) -> str:
    """Write a row as string literals, with the shortest unambiguous escape of each byte."""
    before_digit = np.zeros(len(row), dtype=np.intp)
    before_digit[:-1] = (row[1:] >= ord("0")) & (row[1:] <= ord("7"))
    before_digit[_LINE_BYTES - 1 :: _LINE_BYTES] = 0  # the last byte of a literal
    spelled, length = _SPELLED[before_digit, row], _LENGTHS[before_digit, row]
    written = np.arange(4) < length[:, None]
    lines = []
    for at in range(0, len(row), _LINE_BYTES):
        own = slice(at, at + _LINE_BYTES)
        lines.append(spelled[own][written[own]].tobytes().decode("ascii"))
    return '"' + '"\n"'.join(lines) + '"'


def _make_spellings() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
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


_SPELLED, _LENGTHS = _make_spellings()


def _get_length(numbers: npt.NDArray[Any]) -> tuple[int, Code]:
    return len(numbers), Code(f"[{len(numbers)}]")


def narrow_integers(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert integers to the narrowest type that holds them, unsigned if none is negative."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    kinds = "u" if low >= 0 else "i"
    for width in (1, 2, 4, 8):
        info = np.iinfo(f"{kinds}{width}")
        if info.min <= low and high <= info.max:
            return numbers.astype(info.dtype)
    raise ExportError("a table holds integers beyond 64 bits")


def _ensure_nonempty(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if len(numbers) > _MAX_ENTRIES:
        raise ExportError(
            f"the model needs more than {_MAX_ENTRIES} table entries: train fewer trees"
        )
    return numbers if len(numbers) else np.zeros(1, numbers.dtype)  # C has no empty arrays


def _get_c_type(dtype: np.dtype[Any]) -> Code:
    if dtype == np.float64:
        return Code("double")
    return Code(f"{'u' if dtype.kind == 'u' else ''}int{8 * _INTEGER_WIDTHS[dtype]}_t")


def _format_rows(numbers: npt.NDArray[Any], per_line: int) -> Iterator[list[str]]:
    """Format numbers in blocks: Python's strings take 20 times the memory of the numbers."""
    for at in range(0, len(numbers), _BLOCK_NUMBERS):
        texts = list(map(repr, numbers[at : at + _BLOCK_NUMBERS].tolist()))
        for first in range(0, len(texts), per_line):
            yield texts[first : first + per_line]


# ---------------------------------------------------------------- c types


@dataclass(frozen=True, slots=True)
class CTypes:
    """Types and arithmetic of a C source.

    Attributes
    ----------
    prefix : Code
    is_float32 : bool
        Whether the model's input dtype is float32.
    integers_only : bool
        Whether the source uses integers only: rows are ordered keys, predictions integer sums.
    cell_type : {"double", "float", "uint32_t", "uint64_t"}
        Type of the cells of a row.
    sum_type : {"int32_t", "int64_t"}
        Type of the integer sums.
    """

    prefix: Code
    is_float32: bool
    integers_only: bool
    cell_type: Code
    sum_type: Code

    @property
    def key_dtype(self) -> np.dtype[Any]:
        """Dtype of ordered keys, the order-preserving integers of numbers."""
        return np.dtype(np.uint32 if self.is_float32 else np.uint64)

    @property
    def key_c_type(self) -> Code:
        """C type of ordered keys."""
        return Code(f"uint{8 * self.key_dtype.itemsize}_t")

    @property
    def number_function(self) -> Code:
        """Function that converts a cell to its key; empty if cells are keys."""
        return Code("" if self.integers_only else f"{self.prefix}_number")

    def compute_keys(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return the ordered keys of numbers of the input dtype."""
        return to_ordered_keys(
            (numbers + 0.0).astype(np.float32 if self.is_float32 else np.float64)
        )

    def format_thresholds(self, model: Model, tree: LoweredTree) -> list[Code]:
        """Write the threshold of each node as a literal of the cells' type."""
        if self.cell_type == "double":
            return [
                float_literal(t) for t in compute_double_thresholds(tree, model.schema).tolist()
            ]
        asks = (tree.kind == Step.LE) & (tree.feature < model.schema.n_features)
        own = np.where(asks, tree.threshold, 0.0) + 0.0
        if self.cell_type == "float":
            return [Code(f"{text}f") for text in map(_format_float, own.astype(np.float32))]
        keys = self.compute_keys(own).tolist()
        digits = self.key_dtype.itemsize * 2
        return [
            Code(f"0x{key:0{digits}x}u /* {float_literal(t)} */")
            for key, t in zip(keys, own.tolist(), strict=True)
        ]

    def make_values(self) -> dict[str, Any]:
        """Return the template values."""
        bits = self.key_dtype.itemsize * 8
        missing = Code(f"UINT{bits}_MAX")
        code_end = Code({"double": ".0", "float": ".0f"}.get(str(self.cell_type), "u"))
        return {
            "x": self.cell_type,
            "key": self.key_c_type,
            "sum": self.sum_type,
            "out": self.sum_type if self.integers_only else Code("double"),
            "missing": missing,
            "top": Code(f"0x8{'0' * (bits // 4 - 1)}u"),
            "infinity": Code("0x7f800000u" if self.is_float32 else "0x7ff0000000000000u"),
            "real": Code("float" if self.is_float32 else "double"),
            "number": self.number_function,
            "order": Code(f"{self.prefix}_{'key' if self.integers_only else 'order'}"),
            "order_is": Code("" if self.integers_only else "static "),
            "zero": Code("0.0f" if self.cell_type == "float" else "0.0"),
            "beyond": Code("2147483648.0f" if self.cell_type == "float" else "2147483648.0"),
            "w": {"p": self.prefix, "missing": missing, "code_end": code_end},
            "is_nan": Code(
                f"x[feature] == {missing}" if self.integers_only else "x[feature] != x[feature]"
            ),
        }


def choose_c_types(model: Model, prefix: Code, cells: str, arithmetic: str) -> CTypes:
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


def _format_float(number: np.float32) -> str:
    """Return the shortest decimal that round-trips to the same float."""
    text = str(number)
    return text if "." in text or "e" in text else f"{text}.0"


# ---------------------------------------------------------------- c sizes

_FRAME_STACK_BYTES = 1024
"""Stack bytes without arrays in a chain of calls, for any optimising compiler."""


def compute_size_values(
    model: Model, made: CLayout, tables: list[CTable], types: CTypes
) -> dict[str, Any]:
    """Compute the template values of the tables, their sizes and bounds of the stack."""
    row = (
        made.row_stack
        + model.schema.n_values * (4 if types.sum_type == "int32_t" else 8)
        + _FRAME_STACK_BYTES
    )
    return {
        "tables": {str(table.name): table for table in tables},
        "counted": [table.name for table in tables],
        "table_bytes": sum(table.size for table in tables),
        "stack": row,
        "batch_stack": max(row, made.batch_stack + _FRAME_STACK_BYTES) if made.block_rows else row,
    }


def summarize_sizes(header: str) -> str:
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
class CLayout:
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
    helpers : set of str
        Templates of ``c/helpers`` that it calls.
    row_stack, batch_stack : int
        Stack bytes of its arrays and of the frames of a chain of calls,
        for a row and for a block of a batch.
    block_rows : int
        Rows that a batch scores together; 0 = one at a time.
    batch_templates : tuple of str
        Templates of batch scoring.
    leaves : bool
        Whether the source can return the leaf of each tree.
    """

    name: str
    reason: str
    template: str
    values: dict[str, Any]
    tables: list[CTable]
    helpers: set[str]
    row_stack: int = 0
    batch_stack: int = 0
    block_rows: int = 0
    batch_templates: tuple[str, ...] = ("block", "batch_blocks")
    leaves: bool = True
