"""Slow encoding, one cell at a time, as specified by `treekit.data.encoding`."""

from __future__ import annotations

import re
import struct

from treekit.data.schema import MISSING_MARKS, Schema, level_text

OTHERS = re.compile(r"(?P<whole>0|-?[1-9]\d*)(?P<point>\.0)?", re.ASCII)


def notations(text):
    """List the texts that are the same category in some program, with the text itself."""
    if text.lower() in ("true", "false") and text in (text.title(), text.lower(), text.upper()):
        return {text.title(), text.lower(), text.upper()}
    found = OTHERS.fullmatch(text)
    return {found["whole"], found["whole"] + ".0"} if found else {text}


def state_of(cell, levels, marks=MISSING_MARKS):
    """Find a cell's category index; "missing" or "unseen" if there is none."""
    text = level_text(cell)
    if text in levels:
        return levels.index(text)
    if text is None or text.strip() in marks:
        return "missing"
    same = [level for level in levels if level in notations(text)]
    return levels.index(same[0]) if len(same) == 1 else "unseen"


def level_of(cell, levels, marks=MISSING_MARKS):
    """Find a cell's category index; None if there is none."""
    state = state_of(cell, levels, marks)
    return None if isinstance(state, str) else state


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
