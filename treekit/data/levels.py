"""Vocabularies of nominal columns, and the codes of their cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.cells import canonical_text, is_text, map_cells
from treekit.data.schema import level_text
from treekit.data.table import Table
from treekit.errors import DataError

__all__ = ["UNSEEN", "check_text", "level_codes", "vocabulary"]

UNSEEN = -2
"""Code of a cell that is in no vocabulary; -1 is a missing cell."""


def level_codes(table: Table, name: str, levels: Sequence[str]) -> npt.NDArray[np.int32]:
    """Position of each cell of column `name` in a vocabulary.

    A text that is a level is that level, even if it is also a mark of a
    missing value; text of an untyped source may also mean a level as a number
    or a bool (``3.0`` is ``3``).

    Returns
    -------
    (rows,) int32
        -1 = missing, `UNSEEN` = not in the vocabulary.
    """
    code = {level: position for position, level in enumerate(levels)}
    cells = table.cells[table.index(name)]
    untyped = name in table.untyped

    def code_of(value: Any) -> int:
        text = level_text(value)
        if text is None:
            return -1
        found = code.get(text)
        if found is None and isinstance(value, str):
            if text.strip() in table.missing:
                return -1
            if untyped:
                found = code.get(canonical_text(text))
        return UNSEEN if found is None else found

    return map_cells(cells, code_of, np.int32)


def vocabulary(table: Table, name: str, declared: Sequence[Any] | None) -> tuple[str, ...]:
    """The levels of a nominal column.

    `declared` first, else the levels of the column's own type, else what is
    there: numbers and bools ascending, text by code point.

    Raises
    ------
    DataError
        If `declared` repeats a level, or nothing is declared and every cell is missing.
    """
    if declared is not None:
        levels = [level_text(level) for level in declared]
        if None in levels:
            raise DataError(f"the declared levels of {name!r} hold a missing value; leave it out")
        texts = tuple(level for level in levels if level is not None)
    elif name in table.levels:
        own = [level_text(level) for level in table.levels[name]]
        texts = tuple(dict.fromkeys(t for t in own if t is not None and t not in table.missing))
    else:
        texts = tuple(map(str, _present_levels(table, name)))
    if not texts:
        raise DataError(
            f"column {name!r} is nominal but has no value; declare its levels or leave it out"
        )
    for text in texts:
        check_text(text, f"a level of column {name!r}")
    return texts


def _present_levels(table: Table, name: str) -> list[str | None]:
    typed = table.column(name)
    if is_text(typed):
        return sorted(set(typed) - {None})
    if name in table.untyped and _has_leading_zeros(table, name):
        # 007 is a name, not seven: a forced nominal column keeps it as written.
        raw = table.cells[table.index(name)]
        return sorted(v for v in set(raw) if v is not None and v.strip() not in table.missing)
    distinct = set(typed) - {None} if typed.dtype.kind == "O" else np.unique(typed)
    texts = [level_text(value) for value in sorted(distinct)]
    return list(dict.fromkeys(text for text in texts if text is not None))


def _has_leading_zeros(table: Table, name: str) -> bool:
    digits = (text.strip().lstrip("+-") for text in set(table.cells[table.index(name)]) if text)
    return any(text[:1] == "0" and text[1:2].isdigit() for text in digits)


def check_text(text: str, role: str) -> None:
    """Refuse text that no file could hold (lone surrogates)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{role} is not valid Unicode: {text!r}; replace its lone surrogates"
        ) from error
