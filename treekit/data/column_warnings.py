"""Warnings of columns that may be read as something else than they are, each with a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from treekit.data.cells import Cells, is_text
from treekit.data.schema import Column
from treekit.data.table import Table
from treekit.data.text_format import MISSING_MARKS, TextFormat

_NUMBERS = 0.9
"""Share of numbers from which a column of names may be one of numbers."""

_UNIQUE = 0.9
"""Share of different names from which a column may identify rows."""

_FEW_ROWS = 20
"""Fewer names may all be different by chance."""

_MANY_ROWS = 100
"""Fewer numbers may be consecutive by chance."""

_FEW_LABELS = 20
"""Text of so many different numbers may well be class labels."""

_SHOWN = 3
"""Number of cells that a warning shows."""

_LONG_TEXT = 40
"""Number of characters from which a cell is cut in a warning."""

_CURRENCIES = "$€£¥₹₽₩₺₪₫฿¢"
_NUMBER_LIKE = re.compile(
    rf"[({_CURRENCIES}]*\s?[+\-−]?[{_CURRENCIES}]?\s?"
    r"(?:[0-9]{1,3}(?:[.,'’_\s][0-9]{3})+|[0-9]{1,2}(?:,[0-9]{2})*,[0-9]{3}|[0-9]+)?"
    rf"(?:[.,][0-9]*)?(?:[eE][+-]?[0-9]+)?\s?[%‰{_CURRENCIES}]?\)?"
)
"""A number in the notation of any country: groups of digits, a decimal comma, currencies."""

_NOTATIONS = [
    (decimal, thousands)
    for decimal, others in ((",", ("", ".", " ", "'")), (".", (",", " ", "'", "_")))
    for thousands in others
]


class InputWarnings(NamedTuple):
    """Warnings of an input whose kind was not declared, and whether it seems to identify rows."""

    texts: list[str]
    is_identifier: bool = False


def find_input_warnings(
    table: Table, column: Column, cells: Cells, n_present: int, *, kept: bool
) -> InputWarnings:
    """Return the warnings of an input whose kind was not declared.

    Parameters
    ----------
    column : Column
        As it is read.
    cells : (rows,) array
        Typed cells.
    n_present : int
        Number of cells that are not missing.
    kept : bool
        Whether a column that identifies rows stays an input.
    """
    name = column.name
    if column.kind == "numeric":
        return InputWarnings(_find_merged_texts(table, name) + _find_row_index(table, name, cells))
    # Numbers that are read as names are nearly all different: they come first.
    texts = _find_numbers_among_names(table, name) if is_text(cells) else []
    identifier = find_identifier_warning(name, len(column.levels), n_present, kept=kept)
    if texts or identifier is None:
        return InputWarnings(texts)
    return InputWarnings([identifier], is_identifier=True)


class _Role(NamedTuple):
    """Words of a message for an input or a target."""

    noun: str
    read_as: str
    keep: str
    make_numeric: str


_INPUT = _Role("column", "categories", "nominal=[{}]", "numeric=[{}]")
_TARGET = _Role("target", "class labels", "task='classification'", "task='regression'")


def _find_numbers_among_names(table: Table, name: str, role: _Role = _INPUT) -> list[str]:
    """Return warnings of a column of categories that seems to be one of numbers."""
    if table.levels.get(name):
        return []
    how, counts = table.format, table.count_texts(name)
    present = {t: n for t, n in counts.items() if isinstance(t, str) and not how.is_missing(t)}
    plain = {text for text in present if _is_number(text, how)}
    keep = role.keep.format(repr(name))
    if len(plain) == len(present):
        if not plain or name in table.untyped or (role is _TARGET and len(plain) <= _FEW_LABELS):
            return []
        return [
            f"{role.noun} {name!r} has text cells that are all numbers, such as {_show(plain)}, "
            f"and is read as {role.read_as}; set {role.make_numeric.format(repr(name))}, or "
            f"confirm this with {keep}"
        ]
    total = sum(present.values())
    like = {text for text in present if text in plain or _looks_like_number(text)}
    if sum(present[text] for text in like) < _NUMBERS * total:
        return []
    odd = sorted(present.keys() - plain, key=lambda text: (-present[text], text))
    n_odd = sum(present[text] for text in odd)
    used = "" if how.is_plain else f" with decimal={how.decimal!r}, thousands={how.thousands!r}"
    gone = [
        text.strip() for text in counts if isinstance(text, str) and how.is_missing_number(text)
    ]
    remedy = _suggest_notation(present, how)
    if not remedy and any(text in like for text in odd):
        remedy = "write all its numbers like 1234.5" if how.is_plain else "use one notation"
    elif not remedy and role is _TARGET:
        remedy = "for regression, correct or drop these rows"
    elif not remedy:
        marks = list(dict.fromkeys([*odd[:_SHOWN], *MISSING_MARKS, *gone]))
        remedy = f"if {_join(odd[:_SHOWN])} means missing, set missing_marks={marks!r}"
    return [
        f"{role.noun} {name!r} is read as {role.read_as}: {n_odd:,} of its {total:,} cells are not "
        f"numbers{used}, such as {_show(odd)}; {remedy}; to keep the {role.read_as}, set {keep}"
    ]


def _suggest_notation(present: Iterable[str], how: TextFormat) -> str:
    """Return the settings that read all cells as numbers, "" if there are none."""
    texts = list(present)
    found = []
    for decimal, thousands in _NOTATIONS:
        other = TextFormat(how.marks, decimal, thousands)
        if all(_is_number(text, other) for text in texts):
            used = [f"decimal={decimal!r}"] if decimal != "." else []
            used += [f"thousands={thousands!r}"] if thousands else []
            found.append(" and ".join(used))
            if not thousands:  # a mark between groups is not needed
                break
    return "set " + ", or ".join(found[:2]) if found else ""


def _is_number(text: str, how: TextFormat) -> bool:
    return how.is_missing_number(text) or how.parse_number(text) is not None


def _looks_like_number(text: str) -> bool:
    stripped = text.strip()
    return any(map(str.isdigit, stripped)) and _NUMBER_LIKE.fullmatch(stripped) is not None


def _find_merged_texts(table: Table, name: str, role: _Role = _INPUT) -> list[str]:
    """Return warnings of a column of numbers, two of whose texts are the same number."""
    merged = table.find_merged_texts(name)
    if merged is None:
        return []
    first, second = merged
    return [
        f"{role.noun} {name!r} has both {first!r} and {second!r}, which are read as the same "
        f"number; to keep them apart, set {role.keep.format(repr(name))}"
    ]


def _find_row_index(table: Table, name: str, cells: Cells) -> list[str]:
    """Return warnings of a column that numbers the rows."""
    n = len(cells)
    if not table.named or n < _MANY_ROWS or cells.dtype.kind not in "iu" or len(table.names) < 2:
        return []
    least, most = int(cells.min()), int(cells.max())
    if most - least + 1 != n or len(np.unique(cells)) != n:
        return []
    return [
        f"column {name!r} contains each integer from {least:,} to {most:,} once, like a row index; "
        f"if it is one, set ignore=[{name!r}]"
    ]


def find_identifier_warning(name: str, n_levels: int, n_present: int, *, kept: bool) -> str | None:
    """Return the warning of a nominal column that seems to identify rows, else None."""
    if n_present < _FEW_ROWS or n_levels < _UNIQUE * n_present:
        return None
    what = f"{n_levels:,} categories in {n_present:,} rows look like an identifier"
    if kept:
        return (
            f"column {name!r}: {what}; leave the column out (ignore=[{name!r}]), or declare it "
            f"(nominal=[{name!r}]) to keep it without this warning"
        )
    return f"column {name!r} is left out: {what}; to use it, set nominal=[{name!r}]"


def find_target_warnings(table: Table, name: str, cells: Cells, *, numeric: bool) -> list[str]:
    """Return warnings of a target whose kind was inferred."""
    if numeric:
        return _find_merged_texts(table, name, _TARGET)
    return _find_numbers_among_names(table, name, _TARGET) if is_text(cells) else []


def _join(texts: Iterable[str]) -> str:
    return " or ".join(map(repr, texts))


def _show(texts: Iterable[str]) -> str:
    some = sorted(texts)[:_SHOWN] if isinstance(texts, set) else list(texts)[:_SHOWN]
    cut = (text if len(text) < _LONG_TEXT else text[: _LONG_TEXT - 3] + "..." for text in some)
    return ", ".join(map(repr, cut))
