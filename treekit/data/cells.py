"""Cells of a column: missing values, numbers, bools and categories.

A tidy column is one of: a bool, integer or float array; an object array of ``str`` and
None; an object array of ``bool`` and None.  `tidy_column` returns nothing else, and all other
code relies on it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt

from treekit.data.schema import level_text
from treekit.data.text_format import TextFormat
from treekit.errors import DataError

Cells: TypeAlias = npt.NDArray[Any]
"""A tidy column."""
Columns: TypeAlias = Sequence[Cells] | Cells
"""Arrays (rows,), one for each column, or numbers (columns, rows)."""

_BOOL_WORDS = {"true": True, "false": False}
_NUMBER_TYPES = (int, float, np.integer, np.floating, Decimal)
_BOOL_TYPES = (bool, np.bool_)
_MISSING_TYPES = {"NoneType", "NAType", "NaTType", "MaskedConstant"}
_REMEDIES = {
    "M": "dates and times; convert it to a number, such as days since a date, or leave it out",
    "m": "durations; convert it to a number, such as seconds, or leave it out",
    "c": "complex numbers; give the real and the imaginary part a column each",
    "S": "bytes; decode it to text first, as in column.decode('utf-8')",
    "V": "records; give each of their fields a column",
}


def tidy_column(name: str, cells: npt.NDArray[Any]) -> tuple[Cells, bool]:
    """Convert the column `name` to a tidy array, and report whether its type is a guess.

    Numbers mixed with text become text that may still be parsed as numbers (the guess):
    ``[1, 2, "?"]`` is read like the same column of a CSV file.  So do integers from 2**53 on
    beside missing cells, which may be names and would be equal as floats.  Members of an
    enumeration are text by name, UUIDs and intervals (of ``pandas.cut``) as they are printed.

    Raises
    ------
    DataError
        For dates, complex numbers, bytes and other objects, with a remedy.
    """
    kind = cells.dtype.kind
    if kind in _REMEDIES:
        raise DataError(f"column {name!r} holds {_REMEDIES[kind]}")
    if isinstance(cells, np.ma.MaskedArray):
        cells = fill_masked(cells)
        kind = cells.dtype.kind
    if kind in "UT":
        cells, kind = cells.astype(object), "O"
    if kind == "f" and cells.dtype.itemsize > 8:
        return np.asarray(cells, dtype=np.float64), False
    return _tidy_objects(name, cells) if kind == "O" else (cells, False)


def fill_masked(cells: Any) -> npt.NDArray[Any]:
    """Return a masked array of any shape without its mask: masked cells are NaN, or None."""
    if not np.ma.getmaskarray(cells).any():
        return np.asarray(cells.data)
    large = cells.dtype.kind in "iu" and np.abs(cells).max() >= 2**53
    if cells.dtype.kind in "fiu" and not large:
        return np.asarray(cells.astype(np.float64).filled(np.nan))
    # Not `filled(None)`, which fills in "?".
    return np.asarray(np.where(np.ma.getmaskarray(cells), None, cells.data.astype(object)))


def _tidy_objects(name: str, cells: npt.NDArray[Any]) -> tuple[Cells, bool]:
    values = cells.tolist()
    types = set(map(type, values))
    named = {t for t in types if is_named_by_text(t)}
    if named:
        values = [level_text(v) if type(v) in named else v for v in values]
        cells, types = make_object_array(values), set(map(type, values))
    gone = {t for t in types if t.__name__ in _MISSING_TYPES}
    present = types - gone
    for found in present:
        if not issubclass(found, (str, *_NUMBER_TYPES, *_BOOL_TYPES)):
            raise DataError(f"column {name!r} holds {_describe_remedy(found)}")
    texts = {t for t in present if issubclass(t, str)}
    numbers = present - texts
    if gone and not present:
        return np.full(len(values), np.nan), False
    if not texts and gone and _hold_large_integers(values, numbers, gone):
        return make_object_array([None if type(v) in gone else str(int(v)) for v in values]), True
    if not texts:
        return _tidy_numbers(values, numbers, gone), False
    if types == {str}:
        return cells, False
    # str.__str__: a member of an enumeration of texts is its text.
    plain = [
        None if type(v) in gone else str.__str__(v) if isinstance(v, str) else v for v in values
    ]
    if numbers and any(not isinstance(v, str) and v == v for v in plain if v is not None):
        plain = [float(v) if isinstance(v, Decimal) else v for v in plain]
        return make_object_array(list(map(level_text, plain))), True
    return make_object_array([v if isinstance(v, str) else None for v in plain]), False


def is_named_by_text(found: type) -> bool:
    """Check for a type whose values are names, which `level_text` gives."""
    if issubclass(found, Enum):
        return not issubclass(found, (str, *_NUMBER_TYPES))
    return issubclass(found, UUID) or is_interval_type(found)


def is_interval_type(found: type) -> bool:
    """Check for pandas' intervals, without importing pandas."""
    return found.__name__ == "Interval" and hasattr(found, "closed_left")


def list_intervals(values: Iterable[Any]) -> tuple[Any, ...] | None:
    """Return the distinct intervals among cells in their order, None if the cells are others."""
    first = next((v for v in values if type(v).__name__ not in _MISSING_TYPES and v == v), None)
    if first is None or not is_interval_type(type(first)):
        return None
    return tuple(sorted({v for v in values if is_interval_type(type(v))}))


def _hold_large_integers(values: list[Any], numbers: set[type], gone: set[type]) -> bool:
    plain = all(issubclass(t, (int, np.integer)) and t is not bool for t in numbers)
    return plain and any(abs(int(v)) >= 2**53 for v in values if type(v) not in gone)


def _tidy_numbers(values: list[Any], numbers: set[type], gone: set[type]) -> Cells:
    floats = {t for t in numbers if issubclass(t, (float, np.floating))}
    truths = {t for t in numbers if issubclass(t, _BOOL_TYPES)}
    mixed = truths and floats and numbers == truths | floats
    if mixed and all(v != v for v in values if type(v) in floats):  # NaN is a missing bool
        numbers, gone = truths, gone | floats
    if all(issubclass(t, _BOOL_TYPES) for t in numbers):
        if not gone:
            return np.array(values, dtype=np.bool_)
        return make_object_array([None if type(v) in gone else bool(v) for v in values])
    if not gone and all(issubclass(t, (int, np.integer)) for t in numbers):
        for dtype in (np.int64, np.uint64):
            try:
                return np.array(list(map(int, values)), dtype=dtype)
            except OverflowError:
                continue
    return np.array([np.nan if type(v) in gone else _convert_to_float(v) for v in values])


def _convert_to_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an int beyond float64: rejected later as infinite, naming the column
        return np.inf if value > 0 else -np.inf


def _describe_remedy(found: type) -> str:
    if issubclass(found, (complex, np.complexfloating)):
        return _REMEDIES["c"]
    if issubclass(found, (bytes, bytearray)):
        return _REMEDIES["S"]
    if issubclass(found, (date, time, np.datetime64)) or found.__name__ == "Period":
        return _REMEDIES["M"]
    if issubclass(found, (timedelta, np.timedelta64)):
        return _REMEDIES["m"]
    return (
        f"objects of type {found.__name__}; a cell must be text, a number, a bool or "
        "missing: convert the column or leave it out"
    )


def make_object_array(values: Collection[Any]) -> Cells:
    """Convert values of any type to an object array (rows,), without unpacking sequences."""
    return np.fromiter(values, object, len(values))


def is_text(cells: Cells) -> bool:
    """Check whether the cells are text; an object array may also hold numbers or bools."""
    if cells.dtype.kind != "O":
        return False
    return isinstance(next((value for value in cells if value is not None), ""), str)


def map_cells(
    cells: Cells, function: Callable[[Any], Any], dtype: npt.DTypeLike
) -> npt.NDArray[Any]:
    """Apply `function` to every cell, calling it once for each distinct value.

    Returns
    -------
    (rows,) array of `dtype`
    """
    if cells.dtype.kind == "O":
        values = {value: function(value) for value in set(cells)}
        return np.fromiter(map(values.__getitem__, cells), dtype=dtype, count=len(cells))
    distinct, position = np.unique(cells, return_inverse=True)
    return np.array([function(value) for value in distinct], dtype=dtype)[position]


def parse_numbers(cells: Cells, how: TextFormat) -> npt.NDArray[Any] | None:
    """Parse text as numbers; return None unless all non-missing cells are numbers.

    Parameters
    ----------
    cells : (rows,) object
        ``str`` or None.
    how : TextFormat

    Returns
    -------
    (rows,) int64 or float64, or None
        int64 if every cell is written as an integer (and fits) and none is missing;
        otherwise the nearest double of each decimal text, NaN = missing.
    """
    values: list[Any] = cells.tolist()
    # A mark such as -999 must not count as a number.
    numbers = None if how.has_number_marks or not how.is_plain else _parse_floats(values)
    if numbers is None:
        plain: dict[Any, str | None] = {}
        for value in set(values):
            plain[value] = "nan" if how.is_missing_number(value) else how.parse_number(value)
        if None in plain.values():
            return None
        values = [plain[value] for value in values]
        numbers = _parse_floats(values)
    if numbers is None or np.isnan(numbers).any():
        return numbers
    letters = "".join(values)
    if not any(mark in letters for mark in ".eEiI"):
        try:
            return np.array(list(map(int, values)), dtype=np.int64)
        except (OverflowError, ValueError):  # ValueError: more digits than int() accepts
            pass
    return numbers


def _parse_floats(values: list[Any]) -> npt.NDArray[np.float64] | None:
    try:
        numbers = np.array(list(map(float, values)))
    except (TypeError, ValueError):
        return None
    # float() also accepts 1_000 and digits of other scripts; dataframe libraries do not.
    letters = "".join(values)
    return numbers + 0.0 if letters.isascii() and "_" not in letters else None


def find_merged_texts(cells: Cells, how: TextFormat) -> tuple[str, str] | None:
    """Return two different texts that are one number; None if there are none.

    Parameters
    ----------
    cells : (rows,) object
        Text of numbers; other cells are ignored.
    """
    known: dict[float, str] = {}
    for text in sorted({cell.strip() for cell in cells if isinstance(cell, str)}):
        plain = None if how.is_missing_number(text) else how.parse_number(text)
        if plain is None or (text.startswith("-") and float(plain) == 0.0):  # a rounded number
            continue
        if known.setdefault(float(plain), text) != text:
            return known[float(plain)], text
    return None


def parse_untyped(cells: Cells, how: TextFormat) -> Cells:
    """Infer the type of cells of an untyped source (CSV).

    The result is numbers if every non-missing cell is one, bools if each is ``true`` or
    ``false`` in any case, else text.  Missing cells are NaN or None.
    """
    numbers = parse_numbers(cells, how)
    if numbers is not None:
        return numbers
    distinct = set(cells)
    gone = {value for value in distinct if how.is_missing(value)}
    if all(value.strip().casefold() in _BOOL_WORDS for value in distinct - gone):
        truth = {v: None if v in gone else _BOOL_WORDS[v.strip().casefold()] for v in distinct}
        column = map_cells(cells, truth.__getitem__, object)
        return column if gone else column.astype(np.bool_)
    return replace_marks(cells, how)


def replace_marks(cells: Cells, how: TextFormat) -> Cells:
    """Replace marks of missing values among text cells by None.

    A column without any value becomes missing numbers, as from a file.
    """
    distinct = set(cells)
    gone = {value for value in distinct if how.is_missing(value)}
    if gone == distinct:
        return np.full(len(cells), np.nan)
    if gone <= {None}:
        return cells
    return make_object_array([None if value in gone else value for value in cells.tolist()])


def normalize_value_text(text: str) -> str | None:
    """Return the category text of a number or bool in any notation, None for other text.

    ``"3.0"`` is ``"3"`` and ``"TRUE"`` is ``"True"``, as in a dataframe that has read the
    same file.
    """
    stripped = text.strip()
    if stripped.casefold() in _BOOL_WORDS:
        return str(_BOOL_WORDS[stripped.casefold()])
    if not stripped.isascii() or "_" in stripped:
        return None
    try:
        return str(int(stripped))
    except ValueError:
        pass
    try:
        number = float(stripped)
    except ValueError:
        return None
    if math.isinf(number) and stripped.lstrip("+-").isdigit():
        return stripped  # more digits than int() accepts
    return level_text(number)


def sort_naturally(texts: Iterable[str]) -> list[str]:
    """Sort texts by code point, and integers within them by value.

    >>> natural_order(["10-14", "5-9", "0-4"])
    ['0-4', '5-9', '10-14']
    """
    return sorted(texts, key=_make_natural_key)


def _make_natural_key(text: str) -> tuple[list[Any], str]:
    parts: list[Any] = re.split("([0-9]+)", text)
    for at in range(1, len(parts), 2):  # compare digits by length first: int() has a limit
        digits = parts[at].lstrip("0")
        parts[at] = len(digits), digits
    return parts, text
