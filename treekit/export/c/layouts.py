"""Layouts of C source: nested tests, packed tables and fractional instances, and their tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.fractional import DividedTable, build_fractional_table, choose_fractional_form
from treekit.export.literals import (
    C_BYTE_ESCAPES,
    Code,
    float_literal,
    format_lines,
    identifiers,
)
from treekit.export.lowering import (
    LeafTable,
    LoweredTree,
    SourceFunction,
    Step,
    check_table_size,
    format_double_thresholds,
    replace_large_sets,
    write_source_functions,
)
from treekit.model.model import Model
from treekit.model.packing import compute_node_keys, to_ordered_keys
from treekit.model.tree import (
    MAX_DEPTH,
    DerivedColumns,
    Split,
    Tree,
    allocate_level_table,
    batch_trees,
    concatenate_trees,
    fill_level_table,
    find_level_splits,
    node_depths,
)

# ---------------------------------------------------------------- c tables

ROW_BYTES = 2048
"""Bytes per row of a large table."""
MAX_ARRAY_ELEMENTS = 1 << 19
"""A table of more elements is written as string literals."""
_LINE_BYTES = 32  # bytes of a string literal per line
_BLOCK_NUMBERS = 1 << 16  # numbers formatted at a time, to bound memory


@dataclass(frozen=True, slots=True)
class CTable:
    """Constant array.

    Attributes
    ----------
    name : Code
        Name without the prefix and an underscore.
    type : Code
    shape : Code
        Dimensions in brackets, ``[9]``; with the rows of a large table: ``[3][2048]``.
    numbers : Code, or iterator of Code
        Initialiser, or its parts, which are generated as they are written to save memory.
    size : int
        Size in bytes.
    """

    name: Code
    type: Code
    shape: Code
    numbers: Code | Iterator[Code]
    size: int


def make_c_table(name: str, numbers: npt.NDArray[Any]) -> CTable:
    """Make a table of integers or finite doubles, with the element type of the array.

    An empty table gets one 0 that is never read.
    """
    numbers = _ensure_nonempty(numbers)
    type_ = "double" if numbers.dtype == np.float64 else f"{numbers.dtype.name}_t"
    # In blocks: Python's strings take 20 times the memory of the numbers.
    blocks = (
        format_lines(list(map(repr, numbers[at : at + _BLOCK_NUMBERS].tolist())))
        for at in range(0, len(numbers), _BLOCK_NUMBERS)
    )
    return _make_list_table(name, type_, len(numbers), ",\n".join(blocks), numbers.nbytes)


def make_hex_table(name: str, numbers: npt.NDArray[np.uint64]) -> CTable:
    """Make a table of 64-bit integers in hexadecimal, 16 digits each."""
    numbers = _ensure_nonempty(numbers)
    rows = []
    for at in range(0, len(numbers), _BLOCK_NUMBERS):
        digits = numbers[at : at + _BLOCK_NUMBERS].astype(">u8").tobytes().hex(",", 8)
        text = "0x" + digits.replace(",", ", 0x")
        rows += [text[i : i + 78] for i in range(0, len(text), 80)]  # four numbers
    return _make_list_table(name, "uint64_t", len(numbers), ",\n".join(rows), numbers.nbytes)


def make_struct_table(name: str, type_: str, columns: Sequence[npt.NDArray[Any]]) -> CTable:
    """Make a table of structures of integers from one array per member, all of one length."""
    columns = [_ensure_nonempty(column) for column in columns]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    # Without the suffix "u" a decimal of 2**63 or more has no type.
    form = "{" + ", ".join("%du" if c.dtype.kind == "u" else "%d" for c in columns) + "}"
    text, count = ",\n".join(map(form.__mod__, rows)), len(columns[0])
    struct = np.dtype([(f"member_{i}", c.dtype) for i, c in enumerate(columns)], align=True)
    return _make_list_table(name, type_, count, text, count * struct.itemsize)


def _make_list_table(name: str, type_: str, count: int, text: str, size: int) -> CTable:
    return CTable(Code(name), Code(type_), Code(f"[{count}]"), Code(text), size)


def make_text_table(name: str, octets: npt.NDArray[np.uint8]) -> CTable:
    """Make a table of bytes, at least one, as string literals of `ROW_BYTES` bytes each.

    A compiler needs some 15 bytes of memory for each byte, and reads it ten times as fast as
    a number; a string literal may have 4,095 bytes (C99 5.2.4.1).
    """
    rows = -(-len(octets) // ROW_BYTES)
    # One more byte for the terminating NUL: newer compilers warn if it is cut off.
    shape, size = Code(f"[{rows}][{ROW_BYTES + 1}]"), rows * (ROW_BYTES + 1)
    return CTable(Code(name), Code("unsigned char"), shape, _write_rows(octets), size)


def _write_rows(octets: npt.NDArray[np.uint8]) -> Iterator[Code]:
    for at in range(0, len(octets), ROW_BYTES):
        comma = "," if at + ROW_BYTES < len(octets) else ""
        yield Code(_write_row(octets[at : at + ROW_BYTES].tobytes()) + comma)


def _write_row(row: bytes) -> str:
    """Write a row as string literals, with the shortest unambiguous escape of each byte."""
    lines = []
    for at in range(0, len(row), _LINE_BYTES):
        line = row[at : at + _LINE_BYTES]
        # A digit after an octal escape of fewer than three digits would become part of it.
        spelled = [
            (C_BYTE_ESCAPES if ord("0") <= following <= ord("7") else _SHORT_ESCAPES)[byte]
            for byte, following in zip(line, line[1:] + b"\n", strict=True)
        ]
        lines.append("".join(spelled))
    return '"' + '"\n"'.join(lines) + '"'


_SHORT_ESCAPES = tuple(
    f"\\{byte:o}" if len(escape) > 1 else escape for byte, escape in enumerate(C_BYTE_ESCAPES)
)


def narrow_integers(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert integers to the narrowest type that holds them, unsigned if none is negative."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    # An unsigned type is chosen by its maximum, a signed one by the bound that is farther away.
    return numbers.astype(np.min_scalar_type(high if low >= 0 else min(low, -1 - high)))


def _ensure_nonempty(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    check_table_size(len(numbers))
    return numbers if len(numbers) else np.zeros(1, numbers.dtype)  # C has no empty arrays


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
    def address_space(self) -> Code:
        """Macro before the types of tables, which users define for processors with several."""
        return Code(f"{self.prefix.upper()}_ADDRESS_SPACE " if self.integers_only else "")

    @property
    def sum_size(self) -> int:
        """Bytes of an integer sum."""
        return 4 if self.sum_type == "int32_t" else 8

    @property
    def key_dtype(self) -> np.dtype[Any]:
        """Dtype of ordered keys, the order-preserving integers of numbers."""
        return np.dtype(np.uint32 if self.is_float32 else np.uint64)

    def compute_keys(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return the ordered keys of numbers of the input dtype."""
        dtype = np.float32 if self.is_float32 else np.float64
        return to_ordered_keys((numbers + 0.0).astype(dtype))

    def format_thresholds(self, model: Model, tree: LoweredTree) -> list[Code]:
        """Write the threshold of each node as a literal of the cells' type."""
        if self.cell_type == "double":
            return format_double_thresholds(model.schema, tree)
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
            "key": Code(f"uint{bits}_t"),
            "sum": self.sum_type,
            "out": self.sum_type if self.integers_only else Code("double"),
            "space": self.address_space,
            "missing": missing,
            "top": Code(f"0x8{'0' * (bits // 4 - 1)}u"),
            "infinity": Code("0x7f800000u" if self.is_float32 else "0x7ff0000000000000u"),
            "real": Code("float" if self.is_float32 else "double"),
            "number": Code("" if self.integers_only else f"{self.prefix}_number"),
            "order": Code(f"{self.prefix}_{'key' if self.integers_only else 'order'}"),
            "order_is": Code("" if self.integers_only else "static "),
            "zero": Code("0.0f" if self.cell_type == "float" else "0.0"),
            "beyond": Code("2147483648.0f" if self.cell_type == "float" else "2147483648.0"),
            "w": {
                "p": self.prefix,
                "missing": missing,
                "code_end": code_end,
                "integers_only": int(self.integers_only),
            },
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
    # Votes of a float32 model are at most 2**24, all other sums at most 2**60.
    votes = model.schema.task == "classification" and not model.margins
    narrow = votes and model.missing != "fractional" and model.unit_total < 2**31
    return CTypes(prefix, single, whole, Code(cells), Code("int32_t" if narrow else "int64_t"))


def _format_float(number: np.float32) -> str:
    """Return the shortest decimal that round-trips to the same float."""
    text = str(number)
    return text if "." in text or "e" in text else f"{text}.0"


# ---------------------------------------------------------------- c sizes

_FRAME_BYTES = {
    # fact: 64-bit and 32-bit, if_else; table; hybrid; compact
    "always": ((32, 44), (64, 64), (60, 44), (64, 48)),
    "outputs": ((20, 8), (8, 32), (8, 24), (44, 20)),
    "trees": ((28, 32), (36, 44), (64, 44), (40, 20)),
    "interleaved": ((0, 0), (40, 60), (40, 0), (0, 0)),
    "helpers": ((16, 16), (0, 0), (8, 12), (44, 12)),
    "derived": ((0, 0), (76, 8), (12, 20), (0, 0)),
    "link": ((0, 32), (0, 0), (0, 32), (0, 16)),
    "floats": ((0, 20), (4, 28), (32, 12), (8, 12)),
    "integers": ((8, 0), (0, 0), (0, 0), (0, 0)),
    "wide_sums": ((28, 24), (32, 8), (4, 12), (0, 24)),
    "wide_cells": ((0, 0), (0, 0), (0, 40), (24, 16)),
    "sum_bytes": ((0, 0.75), (2, 1), (0.5, 1.5), (0, 0.25)),
    "calls": ((8, 16), (0, 0), (8, 16), (0, 0)),
}
"""Stack bytes without arrays of the deepest chain of calls, on 64-bit and 32-bit processors.

Each layout has a sum over the facts of `_estimate_frames`, fitted to ``gcc -fstack-usage``
(gcc 12, the larger of -O2 and -Os, x86-64 and Cortex-M0) on 422 sources, compact on 192.
"""
_FRACTIONAL_FRAME_BYTES = (48, 128)
_MAX_SPILLED_BYTES = 64  # short arrays of sums are held in registers and on the stack
_BATCH_FRAME_BYTES = 40
_BLOCK_FRAME_BYTES = 384


def compute_size_values(
    model: Model, made: CLayout, tables: list[CTable], types: CTypes, helpers: set[str]
) -> dict[str, Any]:
    """Compute the template values of the tables, their sizes and bounds of the stack."""
    sum_bytes = model.schema.n_values * types.sum_size
    frames = _estimate_frames(model, made, types, helpers, sum_bytes)
    rows = [math.ceil((made.row_stack + sum_bytes + own) / 8) * 8 for own in frames]
    if made.block_rows:
        batches = [max(row, made.batch_stack + _BLOCK_FRAME_BYTES) for row in rows]
    else:
        batches = [row + _BATCH_FRAME_BYTES for row in rows]
    return {
        "tables": {
            str(table.name): replace(table, type=Code(types.address_space + table.type))
            for table in tables
        },
        "table_bytes": sum(table.size for table in tables),
        "stack": rows,
        "batch_stack": batches,
    }


def _estimate_frames(
    model: Model, made: CLayout, types: CTypes, helpers: set[str], sum_bytes: int
) -> list[float]:
    """Return the stack bytes of a row without arrays, on 64-bit and 32-bit processors."""
    if model.missing == "fractional":
        return list(_FRACTIONAL_FRAME_BYTES)
    several, cell_words = model.schema.n_values > 1, types.key_dtype.itemsize // 4
    facts = {
        "always": 1,
        "outputs": several,
        "trees": model.n_trees > 1,
        "interleaved": cell_words * (model.n_trees >= INTERLEAVED_TREES),
        "helpers": not helpers.isdisjoint({"has_code", "is_level", "derived"}),
        "derived": "derived" in helpers,
        "link": "exp" in helpers,
        "floats": not types.integers_only,
        "integers": types.integers_only and model.n_trees > 1,
        "wide_sums": several and types.sum_type == "int64_t",
        "wide_cells": cell_words > 1,
        "sum_bytes": min(sum_bytes, _MAX_SPILLED_BYTES),
        "calls": made.nested_calls - 1,
    }
    layout = ("if_else", "table", "hybrid", "compact").index(made.name)
    return [sum(facts[key] * own[layout][at] for key, own in _FRAME_BYTES.items()) for at in (0, 1)]


def summarize_sizes(header: str) -> str:
    """Summarise the sizes stated in a generated header; empty if it states none."""
    number = r"(?:\(sizeof\(char \*\) > 4 \? )?\(?([0-9]+)"
    names = ("TABLE_BYTES", "TEXT_BYTES", "STACK_BYTES", "BATCH_STACK_BYTES")
    found = [re.search(rf"^#define \w+?_{name} {number}", header, re.MULTILINE) for name in names]
    sizes = [f"{int(size[1]):,}" for size in found if size is not None]
    if len(sizes) < len(names):
        return ""
    return (
        "tables: {} bytes; names and vocabularies: {} bytes and pointers; stack on 64-bit "
        "processors: at most {} bytes a row, {} a batch"
    ).format(*sizes)


# ---------------------------------------------------------------- c layout


@dataclass(frozen=True)
class CLayout:
    """Layout of the C source of a model.

    Attributes
    ----------
    name : {"if_else", "hybrid", "table", "compact"}
    reason : str
    template : str
        Main part: file in ``templates/c/``, and the part's name in it.
    values : dict
        Template values other than tables.
    tables : list of CTable
    helpers : set of str
        Templates of ``c/helpers`` that it calls.
    row_stack, batch_stack : int
        Stack bytes of its arrays, for a row and for a block of a batch.
    nested_calls : int
        Functions of nested tests in the longest chain of calls.
    block_rows : int
        Rows that a batch scores together; 0 = one at a time.
    """

    name: str
    reason: str
    template: str
    values: dict[str, Any]
    tables: list[CTable]
    helpers: set[str]
    row_stack: int = 0
    batch_stack: int = 0
    nested_calls: int = 1
    block_rows: int = 0


# ---------------------------------------------------------------- c if else

_MAX_INLINE_CODES = 4  # sets of more codes become bit masks
_CALLED_HELPERS = {
    "missing_level": "is_level",
    "in_set": "has_code",
    "sum_missing_no": "float32",
    "sum_missing_yes": "float32",
    "derived_missing_no": "derived",
    "derived_missing_yes": "derived",
}


def make_if_else_layout(
    model: Model, trees: tuple[LoweredTree, ...], leaves: LeafTable, reason: str, types: CTypes
) -> CLayout:
    """Make the layout of nested tests: functions that return the number of a leaf."""
    numbered = replace(leaves, row=np.arange(model.n_leaves))
    values, functions = compute_nested_values(
        *(model, trees, numbered, types),
        "Each tree as nested tests; what it returns is the number of a leaf.",
    )
    functions, sets = replace_large_sets(functions, _MAX_INLINE_CODES)
    ops = {line.op for function in functions for line in function.lines}
    uses = {_CALLED_HELPERS[op] for op in ops & _CALLED_HELPERS.keys()}
    nodes = np.concatenate([tree.leaves for tree in model.trees]).astype(np.int32)
    rows = narrow_integers(leaves.row)
    tables = [make_c_table("leaf_rows", rows), make_c_table("leaf_nodes", nodes)]
    return CLayout(
        name="if_else",
        reason=reason,
        template="walk/if_else",
        values=values | {"functions": functions},
        tables=[*tables, make_c_table("sets", sets)] if "has_code" in uses else tables,
        helpers=uses,
        nested_calls=count_nested_calls(functions),
    )


# ---------------------------------------------------------------- c packed

_BLOCK_ROWS = 256  # rows that stay in the L1 cache while a tree is traversed
_MIN_BLOCK_ROWS = 16
_BLOCK_BYTES = 1 << 16
_SMALL_BLOCK_BYTES = 1 << 13  # for processors without floating point, whose stack is small
INTERLEAVED_TREES = 8
"""Number of trees traversed in turns for a row: 1.29 us, against 1.69 us with four (measured)."""


def make_packed_layout(model: Model, leaves: LeafTable, reason: str, types: CTypes) -> CLayout:
    """Make the layout of packed tables; rows are converted to integer cells first."""
    packed, derived = pack_nodes(model, leaves), model.derived
    nominal = np.flatnonzero(model.schema.nominal).astype(np.int32)
    levels = "" if not len(packed.levels) else "set" if packed.binary else "branch"
    block, block_bytes = (0, 0) if derived.n_columns else _size_block(model, types)
    uses = {"number"}
    if len(nominal):
        uses.add("is_level")
    if derived.n_columns:
        uses.add("derived")
    return CLayout(
        name="table",
        reason=reason,
        template="walk/table",
        values={
            "nodes_suffix": _get_template_suffix(packed.nodes),
            "packed": int(packed.packed),
            "levels": levels,
            "levels_suffix": _get_template_suffix(packed.levels) if packed.binary else "",
            "nominal": len(nominal),
            "eight_trees": int(model.n_trees >= INTERLEAVED_TREES),
            "cell_bits": packed.cell_bits,
            "cell_mask": Code(f"{(1 << packed.cell_bits) - 1}u"),
            "step_shift": 2 + packed.cell_bits,
            "word": Code("uint32_t" if packed.packed else "uint64_t"),
            "block": block,
            "walks": [f"walk/{name}" for name in ("next", "encode", "sums_cells")],
        },
        tables=_make_packed_tables(packed, levels, nominal, bool(block)),
        helpers=uses,
        row_stack=(model.schema.n_features + 1) * types.key_dtype.itemsize,
        batch_stack=block_bytes,
        block_rows=block,
    )


def _make_packed_tables(
    packed: PackedNodes, levels: str, nominal: Any, in_blocks: bool
) -> list[CTable]:
    if _get_template_suffix(packed.nodes):
        nodes = make_text_table("nodes", packed.nodes.astype("<u8").view(np.uint8))
    else:
        nodes = make_hex_table("nodes", packed.nodes)
    tables = [nodes, make_c_table("roots", packed.root)]
    if in_blocks:
        tables.append(make_c_table("depths", narrow_integers(packed.depth)))
    if levels == "set":
        write = make_text_table if _get_template_suffix(packed.levels) else make_c_table
        tables.append(write("sets", packed.levels))
    if levels == "branch":
        tables.append(make_c_table("branches", narrow_integers(packed.levels)))
    if len(nominal):
        tables.append(make_c_table("nominal", nominal))
    return tables


def _get_template_suffix(numbers: Any) -> str:
    """Return the suffix of the template name of a table."""
    return "_text" if len(numbers) > MAX_ARRAY_ELEMENTS else ""


def _size_block(model: Model, types: CTypes) -> tuple[int, int]:
    """Return the rows that a batch scores together, and their bytes; 0 if too few to be faster."""
    row = (model.schema.n_features + 1) * types.key_dtype.itemsize
    row += model.schema.n_values * types.sum_size
    most = _SMALL_BLOCK_BYTES if types.integers_only else _BLOCK_BYTES
    block = min(most // row // 8 * 8, _BLOCK_ROWS)
    return (block, block * row) if block >= _MIN_BLOCK_ROWS else (0, 0)


# ---------------------------------------------------------------- c fractional instances

_LE, _LEVELS = 0, 2
_DIVISION_BYTES = 16  # bytes of a mass and a node with C alignment


def make_fractional_layout(model: Model, leaves: LeafTable, wanted: str, types: CTypes) -> CLayout:
    """Make the layout of fractional instances: a table of nodes and a stack of parts of the row."""
    name, reason = choose_fractional_form(wanted)
    table = build_fractional_table(model, leaves)
    others = (table.question, table.child, table.low, table.high)
    members = [_compute_keys(model, table, types), *(other.astype(np.int32) for other in others)]
    return CLayout(
        name=name,
        reason=reason,
        template="divided",
        values={"deepest": table.deepest},
        tables=[
            make_struct_table("nodes", f"struct {types.prefix}_node", members),
            make_c_table("roots", table.root.astype(np.int32)),
            make_c_table("branches", table.level_branch.astype(np.int32)),
        ],
        helpers={"is_missing"} | ({"derived"} if model.derived.n_columns else set()),
        row_stack=_DIVISION_BYTES * table.deepest,
    )


def _compute_keys(model: Model, table: DividedTable, types: CTypes) -> npt.NDArray[Any]:
    """Return the threshold of each node as an ordered key, or the start of its level branches."""
    asks, kind = table.question >= 0, table.question % 4
    key = np.zeros(len(table.question), dtype=types.key_dtype)  # 0 for derived columns
    levels = asks & (kind == _LEVELS)
    key[levels] = table.value[levels].astype(types.key_dtype)
    plain = asks & (kind == _LE) & (table.question // 4 < model.schema.n_features)
    key[plain] = types.compute_keys(np.concatenate([tree.threshold for tree in model.trees])[plain])
    return key


# ---------------------------------------------------------------- c tests

_MAX_DEPTH_NESTED = 24  # far below the 127 nested blocks that C99 5.2.4.1 guarantees
_MAX_FUNCTION_TESTS = 200
"""Tests in one function; with four times as many, compilers take twice as long (gcc 12)."""
_MAX_ENUM_CONSTANTS = 1000  # C99 5.2.4.1 guarantees 1023 constants in one enumeration


def compute_nested_values(
    model: Model,
    trees: tuple[LoweredTree, ...],
    leaves: LeafTable,
    types: CTypes,
    description: str,
) -> tuple[dict[str, Any], list[SourceFunction]]:
    """Compute the values of ``walk/tests``; return them and the functions.

    Parameters
    ----------
    leaves : LeafTable
        Its ``row`` has the return value of each leaf of `trees`.
    description : str
        Comment that describes the functions.
    """
    columns = identifiers(model.schema.names, f"{types.prefix}_in_")
    functions = write_source_functions(
        *(trees, model.schema, leaves, columns, model.derived),
        *(_MAX_DEPTH_NESTED, _MAX_FUNCTION_TESTS),
        thresholds=lambda tree: types.format_thresholds(model, tree),
    )
    numbered = list(enumerate(columns))
    values = {
        "columns": [
            numbered[i : i + _MAX_ENUM_CONSTANTS]
            for i in range(0, len(numbered), _MAX_ENUM_CONSTANTS)
        ],
        "functions": functions,
        "functions_are": Code(description),
    }
    return values, functions


def count_nested_calls(functions: list[SourceFunction]) -> int:
    """Return the functions in the longest chain of calls; callees come before callers."""
    height: dict[tuple[int, int], int] = {}
    for function in functions:
        called = [height[line.tree, line.at] for line in function.lines if line.op == "call"]
        height[function.tree, function.part] = 1 + max(called, default=0)
    return max(height.values())


# ---------------------------------------------------------------- packed nodes
# For branch-free loops that read only nodes and cells.
#
# The nodes of `treekit.model.packing` (see `treekit.kernels.score_batch` for their meaning),
# adapted to source code: steps are relative to the node, so that a traversal needs only
# its position; the key of a leaf is the number of its value, which never moves
# a row because the cell of a leaf is always 0; and categories are looked up in a
# table of bits if every split has two branches.

_FLAG_BITS = 2


@dataclass(frozen=True, slots=True)
class PackedNodes:
    """Nodes of all trees, leaves included, tree after tree, each in its own node order.

    Attributes
    ----------
    nodes : (nodes,) or (2 * nodes,) uint64
        Packed: key in the lower and test in the upper 32 bits.  Otherwise key and test alternate.
    packed : bool
    cell_bits : int
        Width of the cell number in a test, which is stored above two flags and
        below the step.  Cells are the columns, one that is always 0, and then
        the derived columns.
    levels : (entries,) uint
        Branches of categorical splits: 8 per byte if `binary`, the first in the
        lowest bit; otherwise one per entry.  Empty if there are no such splits.
    binary : bool
    root : (trees,) uint32
    depth : (trees,) int64
    """

    nodes: npt.NDArray[np.uint64]
    packed: bool
    cell_bits: int
    levels: npt.NDArray[Any]
    binary: bool
    root: npt.NDArray[np.uint32]
    depth: npt.NDArray[np.int64]


def pack_nodes(model: Model, leaves: LeafTable) -> PackedNodes:
    """Pack the nodes of all trees; the model must not use fractional instances.

    Trees are packed in groups: concatenated, the nodes of a large forest would take as much
    memory as the model.

    Raises
    ------
    ExportError
        If the number of nodes or of category branches exceeds 32 bits.
    """
    sizes, derived = np.array([tree.n_nodes for tree in model.trees]), model.derived
    check_table_size(int(sizes.sum()))
    single, n_features = model.schema.dtype == "float32", model.schema.n_features
    key = np.empty(sizes.sum(), np.uint32 if single else np.uint64)
    test = np.empty(sizes.sum(), np.uint64)
    cell_bits = (n_features + derived.n_columns).bit_length()
    levels = allocate_level_table(model.trees, derived.column < 0)
    check_table_size(len(levels))
    depth: list[npt.NDArray[np.int64]] = []
    first = first_leaf = first_entry = 0
    for trees in batch_trees(model.trees):
        nodes, roots = concatenate_trees(trees)
        own = slice(first, first + nodes.n_nodes)
        part = derived._replace(column=derived.column[own])
        key[own], wrap = compute_node_keys(nodes, part, key.dtype, np.dtype(model.schema.dtype))
        asks = find_level_splits(nodes, derived.column[own] < 0)
        start = fill_level_table(levels, first_entry, nodes, asks)
        key[own][asks], first_entry = start[:-1], int(start[-1])
        leaf = nodes.kind == Split.LEAF
        n_leaves = int(np.count_nonzero(leaf))
        key[own][leaf] = leaves.row[first_leaf : first_leaf + n_leaves]
        test[own] = _compute_tests(nodes, part, wrap | asks, asks, n_features, cell_bits)
        depths = node_depths(nodes, roots[:-1], MAX_DEPTH)
        depth.append(np.maximum.reduceat(depths, roots[:-1]))
        first, first_leaf = own.stop, first_leaf + n_leaves
    packed = single and int(test.max()) < 1 << 32
    if packed:
        test <<= np.uint64(32)  # in place: the nodes of a forest fill memory
        test |= key
        words = test
    else:
        words = np.stack([key.astype(np.uint64), test], axis=1).ravel()
    binary = not len(levels) or int(levels.max()) < 2
    return PackedNodes(
        nodes=words,
        packed=packed,
        cell_bits=cell_bits,
        levels=np.packbits(levels, bitorder="little") if binary else levels,
        binary=binary,
        root=(np.cumsum(sizes) - sizes).astype(np.uint32),
        depth=np.concatenate(depth),
    )


def _compute_tests(
    nodes: Tree,
    derived: DerivedColumns,
    wrap: npt.NDArray[np.bool_],
    asks_levels: npt.NDArray[np.bool_],
    n_features: int,
    cell_bits: int,
) -> npt.NDArray[np.uint64]:
    """Compute the test of each node: step, cell number and two flags."""
    leaf = nodes.kind == Split.LEAF
    own = np.arange(nodes.n_nodes)
    cell = np.where(leaf, n_features, nodes.feature)
    cell = np.where(derived.column < 0, cell, n_features + 1 + derived.column)
    step = np.where(leaf, 0, nodes.first_child - own)
    shift = np.uint64(_FLAG_BITS + cell_bits)
    test = wrap.astype(np.uint64) | asks_levels.astype(np.uint64) << np.uint64(1)
    test |= cell.astype(np.uint64) << np.uint64(_FLAG_BITS)
    test |= step.astype(np.uint64) << shift
    return test
