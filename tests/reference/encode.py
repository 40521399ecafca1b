"""Encoding, one cell at a time: the plain meaning of `treekit.data.encode`."""

from __future__ import annotations

import struct

from treekit.data.schema import Schema, level_text


def encode_cell(cell, column, dtype):
    """The number that an artifact gets for one typed cell (None or NaN = missing)."""
    if cell is None or cell != cell:
        return float("nan")
    if column.kind == "nominal":
        text = level_text(cell)
        return float(column.levels.index(text)) if text in column.levels else float("nan")
    number = float(cell)
    if dtype == "float64":
        return number
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def encode(rows: list[dict], schema: Schema) -> list[list[float]]:
    """Rows of named cells as lists of numbers."""
    return [
        [encode_cell(row.get(column.name), column, schema.dtype) for column in schema.columns]
        for row in rows
    ]
