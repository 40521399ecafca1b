"""Vocabularies of nominal columns, and the codes of their cells."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.cells import is_text, map_cells, natural_order, value_text
from treekit.data.schema import level_text
from treekit.data.table import Table
from treekit.errors import DataError

__all__ = ["UNSEEN", "LevelIndex", "check_text", "level_codes", "vocabulary"]

UNSEEN = -2
"""Code of a cell that is in no vocabulary; -1 is a missing cell."""


class LevelIndex:
    """Finds the level that a cell is: the same in tables, requests and settings.

    In this order a cell is

    1. the level of exactly its text (`treekit.data.schema.level_text`);
    2. missing, if it is None, NaN or a mark of a missing value;
    3. the level that is the same number or bool: ``True``, ``"TRUE"`` and ``" true"`` are
       one, as are ``3``, ``3.0`` and ``"3.0"``.

    Other texts that differ in blanks or case are different categories, and so is ``007``,
    a name, from the number 7. Of several levels that are one number or bool, only the one
    written as Python writes it (``3``, ``True``) is found by 3.

    Parameters
    ----------
    levels : sequence of str
    marks : collection of str
        Texts that mean missing.

    Attributes
    ----------
    levels : tuple of str
    texts : tuple of str
        Levels and marks, which are read before numbers and bools are.
    codes : dict of str to int
        Position of each level, and that of the entries of `aliases`.
    aliases : dict of str to int
        Position of the levels that are numbers or bools in other words than Python's, by
        Python's: ``True`` of ``TRUE``.
    has_values : bool
        Whether a level is a number or a bool.
    """

    def __init__(self, levels: Sequence[str], marks: Collection[str] = ()) -> None:
        self.levels = tuple(levels)
        self.texts = (*self.levels, *sorted(marks))
        self._marks = frozenset(marks)
        own = {level: code for code, level in enumerate(levels)}
        values: dict[str, list[int]] = {}
        for level, code in own.items():
            value = None if _has_leading_zero(level) else value_text(level)
            if value is not None:
                values.setdefault(value, []).append(code)
        self.has_values = bool(values)
        self.aliases = {
            value: codes[0]
            for value, codes in values.items()
            if len(codes) == 1 and value not in own and value not in self._marks
        }
        self.codes = own | self.aliases

    def code(self, cell: Any) -> int:
        """Position of a cell's level; -1 = missing, `UNSEEN` = none of the vocabulary."""
        text = level_text(cell)
        if text is None:
            return -1
        found = self.codes.get(text)
        if found is None and isinstance(cell, str):
            if text.strip() in self._marks:
                return -1
            found = self.codes.get(value_text(text) or text)
        return UNSEEN if found is None else found


def level_codes(table: Table, name: str, levels: Sequence[str]) -> npt.NDArray[np.int32]:
    """Position of each cell of column `name` in a vocabulary; see `LevelIndex`.

    Returns
    -------
    (rows,) int32
        -1 = missing, `UNSEEN` = not in the vocabulary.
    """
    index = LevelIndex(levels, table.missing)
    return map_cells(table.cells[table.index(name)], index.code, np.int32)


def vocabulary(table: Table, name: str, declared: Sequence[Any] | None) -> tuple[str, ...]:
    """The levels of a nominal column.

    `declared` first, else the levels of the column's own type, else what is
    there: numbers and bools ascending, text in `natural_order`.  Bools of a source
    without types keep its words (``FALSE``, ``TRUE``) if it has one for each.

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
        texts = tuple(_present_levels(table, name))
    if not texts:
        raise DataError(
            f"column {name!r} is nominal but has no value; declare its levels or leave it out"
        )
    for text in texts:
        check_text(text, f"a level of column {name!r}")
    return texts


def _present_levels(table: Table, name: str) -> list[str]:
    typed = table.column(name)
    if is_text(typed):
        return natural_order(set(typed) - {None})
    if name in table.untyped:
        raw = set(table.cells[table.index(name)])
        present = {v for v in raw if v is not None and v.strip() not in table.missing}
        if any(map(_has_leading_zero, present)):
            # 007 is a name, not seven: a forced nominal column keeps it as written.
            return natural_order(present)
        if typed.dtype.kind in "Ob":  # bools, in the words of the file: FALSE before TRUE
            words = sorted({text.strip() for text in present}, key=str.casefold)
            if len({word.casefold() for word in words}) == len(words):
                return words
    distinct = set(typed) - {None} if typed.dtype.kind == "O" else np.unique(typed)
    texts = [level_text(value) for value in sorted(distinct)]
    return list(dict.fromkeys(text for text in texts if text is not None))


def _has_leading_zero(text: str) -> bool:
    digits = text.strip().lstrip("+-")
    return digits[:1] == "0" and digits[1:2].isdigit()


def check_text(text: str, role: str) -> None:
    """Refuse text that no file could hold (lone surrogates)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{role} is not valid Unicode: {text!r}; replace its lone surrogates"
        ) from error
