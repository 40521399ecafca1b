"""Warnings of columns that may be read as something else than they are, each with a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from treekit.data.cells import Cells, is_text
from treekit.data.schema import Column
from treekit.data.table import Table
from treekit.data.text_format import TextFormat

_NUMBERS = 0.9
"""Share of numbers from which a column of names may be one of numbers."""

_UNIQUE = 0.9
"""Share of different names from which a column may identify rows."""

_FEW_ROWS = 20
"""Fewer names may all be different by chance."""

_MANY_ROWS = 100
"""Fewer numbers may be consecutive by chance."""

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
        return InputWarnings(
            _find_merged_texts(table, name) + _find_running_number(table, name, cells)
        )
    # Numbers that are read as names are nearly all different: they come first.
    texts = _find_numbers_among_names(table, name) if is_text(cells) else []
    identifier = find_identifier_warning(name, len(column.levels), n_present, kept=kept)
    if texts or identifier is None:
        return InputWarnings(texts)
    return InputWarnings([identifier], is_identifier=True)


def _find_numbers_among_names(table: Table, name: str, role: str = "column") -> list[str]:
    """Return warnings of a column of names that seems to be one of numbers.

    The column was not declared nominal, and is nominal because of some of its cells.
    """
    if table.levels.get(name):
        return []
    how, counts = table.format, table.count_texts(name)
    present = {t: n for t, n in counts.items() if isinstance(t, str) and not how.is_missing(t)}
    plain = {t for t in present if _is_plain_number(t, how)}
    total = sum(present.values())
    if len(plain) == len(present):
        if not plain or name in table.untyped:
            return []
        return [
            f"{role} {name!r} is text, but all its cells are numbers, such as "
            f"{_show(plain)}: it is read as names; {_declare(name, numeric=True)}"
        ]
    like = {text for text in present if text in plain or _looks_like_number(text)}
    if not total or sum(present[text] for text in like) < _NUMBERS * total:
        return []
    odd = sorted(present.keys() - plain, key=lambda text: (-present[text], text))
    n_odd = sum(present[text] for text in odd)
    what = (
        f"{role} {name!r} is read as names: {n_odd:,} of its {total:,} cells are not numbers in "
        f"Python's notation, such as {_show(odd)}"
    )
    remedies = _suggest_notations(present, how)
    if not remedies:
        marks = ", ".join(map(repr, odd[:_SHOWN]))
        remedies = [f"add {marks} to missing_marks if it means missing"]
        if any(text in like for text in odd):
            remedies = ["write its numbers like 1234.5, or set decimal and thousands"]
    return [f"{what}; {', or '.join(remedies)}; {_declare(name)} if they are names"]


def _suggest_notations(present: Iterable[str], how: TextFormat) -> list[str]:
    """Return the settings that read all cells as numbers."""
    texts = list(present)
    found = []
    for decimal, thousands in _NOTATIONS:
        if all(_is_plain_number(t, TextFormat(how.marks, decimal, thousands)) for t in texts):
            used = [f"decimal={decimal!r}"] if decimal != "." else []
            used += [f"thousands={thousands!r}"] if thousands else []
            found.append("set " + " and ".join(used))
            if not thousands:  # a mark between groups is not needed
                break
    return found[:2]


def _is_plain_number(text: str, how: TextFormat) -> bool:
    return how.is_missing_number(text) or how.parse_number(text) is not None


def _looks_like_number(text: str) -> bool:
    stripped = text.strip()
    return any(map(str.isdigit, stripped)) and _NUMBER_LIKE.fullmatch(stripped) is not None


def _find_merged_texts(table: Table, name: str, role: str = "column") -> list[str]:
    """Return warnings of a column of numbers, some of whose texts are the same number."""
    merged = table.find_merged_texts(name)
    if merged is None:
        return []
    first, second = merged
    return [
        f"{role} {name!r} holds {first!r} and {second!r}, which are one number; "
        f"{_declare(name)} if they are names (codes, versions)"
    ]


def _find_running_number(table: Table, name: str, cells: Cells) -> list[str]:
    """Return warnings of a column that numbers the rows."""
    n = len(cells)
    if not table.named or n < _MANY_ROWS or cells.dtype.kind not in "iu" or len(table.names) < 2:
        return []
    least, most = int(cells.min()), int(cells.max())
    if most - least + 1 != n:
        return []
    found = np.zeros(n, np.bool_)
    found[cells.astype(np.int64) - least if cells.dtype.kind == "i" else cells - least] = True
    if not found.all():
        return []
    return [
        f"column {name!r} is a running number from {least:,} to {most:,}, different in each row; "
        f"if it identifies rows, leave it out: ignore=[{name!r}]"
    ]


def find_identifier_warning(name: str, n_levels: int, n_present: int, *, kept: bool) -> str | None:
    """Return the warning of a nominal column that seems to identify rows, else None."""
    if n_present < _FEW_ROWS or n_levels < _UNIQUE * n_present:
        return None
    what = f"column {name!r} has {n_levels:,} different names in {n_present:,} rows"
    if not kept:
        return (
            f"{what} and is left out, as it seems to identify rows; to keep it, declare it: "
            f"nominal=[{name!r}]"
        )
    return (
        f"{what}: it seems to identify rows; leave it out, or declare it nominal if it is an input"
    )


def find_target_warnings(table: Table, name: str, cells: Cells, *, numeric: bool) -> list[str]:
    """Return warnings of a target whose kind was inferred."""
    if numeric:
        found = _find_merged_texts(table, name, "target")
        return [text.replace(_declare(name), "set task='classification'") for text in found]
    found = _find_numbers_among_names(table, name, "target") if is_text(cells) else []
    return [
        text.replace(_declare(name, numeric=True), "set task='regression' if they are quantities")
        .replace(_declare(name), "set task='classification'")
        .replace("is read as names", "is read as class labels")
        for text in found
    ]


def _declare(name: str, *, numeric: bool = False) -> str:
    if numeric:
        return f"declare it numeric=[{name!r}], or nominal=[{name!r}] if they are names"
    return f"declare it nominal=[{name!r}]"


def _show(texts: Iterable[Any]) -> str:
    shown = sorted(texts, key=str)[:_SHOWN] if isinstance(texts, set) else list(texts)[:_SHOWN]
    return ", ".join(
        repr(text if len(str(text)) < 40 else str(text)[:37] + "...") for text in shown
    )
