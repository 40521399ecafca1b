"""Slow encoding, one cell at a time, as specified by `treekit.data.encoding`."""

from __future__ import annotations

import re
import struct

from treekit.data.schema import MISSING_MARKS, Schema, level_text

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def value_of(text):
    """Parse a text as a type and a bool or number; None for other texts."""
    text = text.strip()
    if text.lower() in ("true", "false"):
        return bool, text.lower() == "true"
    if re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        return float, int(text)
    return (float, float(text)) if NUMBER.fullmatch(text) else None


def level_of(cell, levels, marks=MISSING_MARKS):
    """Find a cell's category index by its text, else by its value; None if there is none."""
    text = level_text(cell)
    if text is None or text in levels:
        return None if text is None else levels.index(text)
    if isinstance(cell, str) and text.strip() in marks:
        return None
    value = value_of(text)
    named = [level for level in levels if not re.match(r"\s*[+-]?0\d", level)]
    same = [level for level in named if value is not None and value_of(level) == value]
    if len(same) > 1:  # prefer Python's notation of the number
        same = [level for level in same if level == level_text(value[1])]
    return levels.index(same[0]) if same else None


def encode_cell(cell, column, dtype):
    """Encode one typed cell as an artifact's input number (None or NaN = missing)."""
    if cell is None or cell != cell:
        return float("nan")
    if column.kind == "nominal":
        level = level_of(cell, column.levels)
        return float("nan") if level is None else float(level)
    number = float(cell)
    if dtype == "float64":
        return number
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def encode(rows: list[dict], schema: Schema) -> list[list[float]]:
    """Encode rows of named cells as lists of numbers."""
    return [
        [encode_cell(row.get(column.name), column, schema.dtype) for column in schema.columns]
        for row in rows
    ]
