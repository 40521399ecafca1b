"""From the tensors that skl2onnx hands on to the matrix that treekit's graphs take.

Numbers come to the model's input type by way of double, as in
`treekit.data.encoding`.  A nominal column comes as its values, text or numbers,
and becomes codes: LabelEncoder for text; for numbers LabelEncoder on float32
too, and then a comparison with the level itself in double, because 0.1 in
double is not the level that float32 makes of it.  What is missing becomes NaN,
and what is no level -1: the graph says what the model does with either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treekit.data.features import LevelIndex
from treekit.data.schema import Column, Schema, level_text
from treekit.errors import ExportError
from treekit.export.onnx.graph import ML_DOMAIN, Graph

__all__ = ["join_inputs"]


class _Piece(NamedTuple):
    """A tensor (N, width): its elements' type, and the first of the schema's columns in it."""

    name: str
    element: int
    first: int
    width: int


def join_inputs(graph: Graph, schema: Schema, inputs: Sequence[Any]) -> dict[str, str]:
    """Add ``X``, (N, features) of the model's input type, from skl2onnx's variables.

    Parameters
    ----------
    graph : Graph
    schema : Schema
    inputs : sequence of skl2onnx.common._topology.Variable
        One tensor of all columns, or several that are these side by side.

    Returns
    -------
    dict
        skl2onnx's name of each tensor that this graph names ``input_0``, ...

    Raises
    ------
    ExportError
        If their columns are not as many as the schema's, or are of a type that
        the column cannot have.
    """
    pieces = _pieces(schema, inputs)
    parts = [part for piece in pieces for part in _parts(graph, schema, piece)]
    if len(parts) == 1:
        graph.add("Identity", parts, "X")
    else:
        graph.add("Concat", parts, "X", axis=1)
    return {f"input_{k}": variable.full_name for k, variable in enumerate(inputs)}


def _pieces(schema: Schema, inputs: Sequence[Any]) -> list[_Piece]:
    pieces, first = [], 0
    for k, variable in enumerate(inputs):
        shape = getattr(variable.type, "shape", None) or [None, None]
        width = shape[1] if len(shape) > 1 else 1
        if not isinstance(width, int):  # unknown: a single input holds all columns
            width = schema.n_features if len(inputs) == 1 else 1
        element = int(variable.type.to_onnx_type().tensor_type.elem_type)
        pieces.append(_Piece(f"input_{k}", element, first, width))
        first += width
    if first != schema.n_features:
        raise ExportError(
            f"skl2onnx: the inputs have {first} columns, and the estimator was fitted on "
            f"{schema.n_features}: give initial types, or rows X, as at fit"
        )
    return pieces


def _parts(graph: Graph, schema: Schema, piece: _Piece) -> list[str]:
    """Runs of numeric columns, and each nominal one, of the model's input type."""
    columns = schema.columns[piece.first : piece.first + piece.width]
    if not any(column.kind == "nominal" for column in columns):
        return [_numbers(graph, schema, piece, piece.name, columns[0])]
    parts, start = [], 0
    for at in range(1, len(columns) + 1):
        run = columns[start:at]
        if at < len(columns) and run[0].kind == columns[at].kind == "numeric":
            continue
        cells = _columns(graph, piece, start, at)
        own = _numbers if run[0].kind == "numeric" else _codes
        parts.append(own(graph, schema, piece, cells, run[0]))
        start = at
    return parts


def _columns(graph: Graph, piece: _Piece, start: int, end: int) -> str:
    """Columns `start` to `end` of a piece."""
    if end - start == piece.width:
        return piece.name
    name = f"columns_{piece.first + start}"
    graph.constant(f"{name}_at", np.arange(start, end))
    return graph.add("Gather", [piece.name, f"{name}_at"], name, axis=1)


def _numbers(graph: Graph, schema: Schema, piece: _Piece, cells: str, column: Column) -> str:
    """Numeric cells rounded to the model's input type."""
    from onnx import TensorProto

    if piece.element == TensorProto.STRING:
        raise ExportError(
            f"skl2onnx: column {column.name!r} is numeric, and the graph's input is text: give "
            "initial types, or rows X, as at fit"
        )
    wanted = TensorProto.FLOAT if schema.dtype == "float32" else TensorProto.DOUBLE
    if piece.element == wanted:
        return cells
    if piece.element not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        cells = graph.add("Cast", [cells], f"{cells}_double", to=TensorProto.DOUBLE)
        if wanted == TensorProto.DOUBLE:
            return cells
    return graph.add("Cast", [cells], f"{cells}_rounded", to=wanted)


def _codes(graph: Graph, schema: Schema, piece: _Piece, cells: str, column: Column) -> str:
    """The code of each cell of a nominal column, of the model's input type."""
    from onnx import TensorProto

    name = f"code_of_{cells}"
    if piece.element == TensorProto.STRING:
        codes = _codes_of_text(graph, schema, cells, column, name)
    else:
        codes = _codes_of_numbers(graph, piece, cells, column, name)
    if schema.dtype == "float32":
        return codes
    return graph.add("Cast", [codes], f"{name}_double", to=TensorProto.DOUBLE)


def _codes_of_text(graph: Graph, schema: Schema, cells: str, column: Column, name: str) -> str:
    """Levels have their codes, marks of missing values NaN, all other text -1."""
    marks = [mark for mark in schema.missing_marks if mark not in column.levels]
    codes = np.append(np.arange(len(column.levels)), np.full(len(marks), np.nan))
    return graph.add(
        "LabelEncoder",
        [cells],
        name,
        domain=ML_DOMAIN,
        keys_strings=[*column.levels, *marks],
        values_floats=codes.astype(np.float32).tolist(),
        default_float=-1.0,
    )


def _codes_of_numbers(graph: Graph, piece: _Piece, cells: str, column: Column, name: str) -> str:
    """Levels that are numbers have their codes, NaN is NaN, all other numbers -1."""
    from onnx import TensorProto

    levels = _level_numbers(column, truth=piece.element == TensorProto.BOOL)
    if piece.element != TensorProto.DOUBLE:
        cells = graph.add("Cast", [cells], f"{name}_cells", to=TensorProto.DOUBLE)
    graph.constant(f"{name}_levels", np.array(list(levels) or [np.nan]))
    graph.constant(f"{name}_zero", np.array(0.0, dtype=np.float32))
    graph.constant(f"{name}_no_level", np.array(-1.0, dtype=np.float32))
    graph.constant(f"{name}_missing", np.array(np.nan, dtype=np.float32))
    graph.add("Cast", [cells], f"{name}_short", to=TensorProto.FLOAT)
    graph.add("Add", [f"{name}_short", f"{name}_zero"], f"{name}_unsigned")  # -0.0 is 0
    graph.add(
        "LabelEncoder",
        [f"{name}_unsigned"],
        f"{name}_place",
        domain=ML_DOMAIN,
        keys_floats=[float(np.float32(level)) for level in levels] or [0.0],
        values_floats=[float(place) for place in range(len(levels))] or [0.0],
        default_float=0.0,
    )
    graph.add("Cast", [f"{name}_place"], f"{name}_at", to=TensorProto.INT64)
    graph.constant(f"{name}_codes", np.array(list(levels.values()) or [-1], dtype=np.float32))
    graph.add("Gather", [f"{name}_levels", f"{name}_at"], f"{name}_level", axis=0)
    graph.add("Gather", [f"{name}_codes", f"{name}_at"], f"{name}_code", axis=0)
    graph.add("Equal", [f"{name}_level", cells], f"{name}_is_level")
    graph.add("Equal", [cells, cells], f"{name}_known")
    graph.add(
        "Where", [f"{name}_known", f"{name}_no_level", f"{name}_missing"], f"{name}_otherwise"
    )
    return graph.add("Where", [f"{name}_is_level", f"{name}_code", f"{name}_otherwise"], name)


def _level_numbers(column: Column, *, truth: bool) -> dict[float, int]:
    """The numbers that mean a level, with its code; of bools, if `truth`, 0 and 1."""
    numbers: dict[float, int] = {}
    for level, code in LevelIndex(column.levels).codes.items():
        if truth and level in ("False", "True"):
            numbers.setdefault(float(level == "True"), code)
            continue
        try:
            number = float(level)
        except ValueError:
            continue
        if math.isfinite(number) and level_text(number) == level:
            numbers[number] = code
    with np.errstate(over="ignore"):
        short = np.array(list(numbers), dtype=np.float64).astype(np.float32)
    if len(np.unique(short)) < len(short):
        raise ExportError(
            f"skl2onnx: levels of column {column.name!r} are one number in float32, which "
            "LabelEncoder takes: make them text"
        )
    return numbers
