"""Input columns: numeric or nominal kind, categories, and precision lost in float32."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from ctypes import c_float
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import UNSET, UnsetType

from treekit.data.cells import (
    Cells,
    is_text,
    map_cells,
    parse_numbers,
    sort_naturally,
)
from treekit.data.column_warnings import find_input_warnings
from treekit.data.schema import Column, Dtype, Rounding, level_text
from treekit.data.table import FileColumns, Table, suggest_names
from treekit.data.text_format import TextFormat, is_number
from treekit.errors import DataError, SettingError, TreekitWarning, warn

# ---------------------------------------------------------------- inputs

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class DeclaredKinds:
    """Kinds and categories of columns declared by the caller."""

    nominal: Sequence[str]
    numeric: Sequence[str]
    levels: Mapping[str, Sequence[Any]]

    def check_names(self, inputs: Collection[str]) -> None:
        """Raise `DataError` for names that are not inputs, or are declared as both kinds."""
        roles = {"nominal": self.nominal, "numeric": self.numeric, "levels": self.levels}
        for role, names in roles.items():
            for name in names:
                if name not in inputs:
                    raise DataError(
                        f"{role} names {name!r}, which is not an input column; "
                        + suggest_names(name, inputs)
                    )
        both = set(self.numeric) & (set(self.nominal) | set(self.levels))
        if both:
            raise DataError(
                f"column {min(both)!r} is declared both numeric and nominal; choose one"
            )

    def declares(self, name: str) -> bool:
        """Check whether the kind of a column is declared."""
        return name in self.nominal or name in self.numeric or name in self.levels

    def is_nominal(self, table: Table, name: str, cells: Cells) -> bool:
        """Check whether a column, of these typed cells, is nominal."""
        if name in self.numeric:
            return False
        if name in self.nominal or name in self.levels or table.levels.get(name):
            return True
        return cells.dtype.kind in "Ob"


def read_inputs(
    table: Table,
    names: Sequence[str],
    kinds: DeclaredKinds,
    dtype: InputType,
    *,
    keep_identifiers: bool,
) -> tuple[tuple[Column, ...], Dtype, LazyColumns]:
    """Return the columns and input type of a schema, and the cells; read each column once.

    What a column whose kind is not declared may be instead is a warning
    (`treekit.data.column_warnings`).  A nominal one with nearly as many categories as rows
    is left out, unless `keep_identifiers` or it is the only input.

    Raises
    ------
    DataError
        For cells that training cannot use; names the column, row and value.
    """
    if dtype not in ("auto", "float32", "float64"):
        raise SettingError(f"unknown input type {dtype!r}; known: auto, float32, float64")
    columns: list[Column] = []
    sources: list[ColumnArray | str] = []
    losses: dict[str, RoundingLoss] = {}
    lossy = False
    for name in names:
        cells = table.get_typed_cells(name)  # read only once from a file
        source: ColumnArray | str
        if kinds.is_nominal(table, name, cells):
            column, codes = _read_nominal(table, name, kinds.levels.get(name))
            smallest = np.min_scalar_type(~int(codes.max(initial=0)))
            source = codes.astype(smallest, copy=False)
            n_present = int(np.count_nonzero(codes >= 0))
        else:
            column, values = Column(name), _read_numeric(table, name, cells)
            if dtype == "float32" or (dtype == "auto" and not lossy):
                losses[name] = find_loss(values)
                lossy = lossy or bool(losses[name])
            # Keep numbers parsed from text: parsing them again would cost more than the memory.
            source, n_present = values if cells.dtype.kind == "O" else name, len(values)
        if not kinds.declares(name):
            kept = keep_identifiers or len(names) == 1
            found = find_input_warnings(table, column, cells, n_present, kept=kept)
            for text in found.texts:
                warn(text)
            if found.is_identifier and not kept:
                continue
        columns.append(column)
        sources.append(source)
    if not columns:
        raise DataError(
            "no input is left: all columns look like identifiers; declare those to use, for "
            f"example nominal=[{names[0]!r}]"
        )
    input_type = choose_dtype(losses, dtype)
    return tuple(columns), input_type, LazyColumns(table, sources, input_type)


def read_small_matrix(cells: Any, dtype: InputType) -> tuple[Dtype, Floats] | None:
    """Read a small numeric matrix at once, with the results of `read_inputs`.

    Returns
    -------
    dtype and (features, rows) array, or None
        None for anything else, and if a column needs a warning, an error, or a closer look to
        choose the dtype.
    """
    if type(cells) is not np.ndarray or cells.ndim != 2 or not 0 < cells.size <= _FEW_CELLS:
        return None
    if cells.dtype.kind not in "fiu" or cells.dtype.itemsize > 8:
        return None
    exact = cells.dtype in (np.float32, np.float64)
    columns = np.array(cells.T, cells.dtype if exact else np.float64, order="C")
    is_huge = cells.dtype.kind in "iu" and bool((np.abs(columns) >= 2.0**53).any())
    if is_huge or dtype not in ("auto", "float32", "float64") or np.isinf(columns).any():
        return None
    input_type: Dtype = "float64" if dtype == "float64" else "float32"
    rounded = round_to_dtype(columns, input_type)
    if not (_are_equal(rounded, columns) or _keeps_all_values(columns)):
        return None
    rounded.flags.writeable = False
    return input_type, rounded


def _read_nominal(table: Table, name: str, declared: Sequence[Any] | None) -> tuple[Column, Codes]:
    levels = find_levels(table, name, declared)
    codes = encode_levels(table, name, levels)
    unseen = codes == UNSEEN
    if unseen.any():
        row = int(unseen.argmax())
        value = table.cells[table.find_column(name)][row]
        raise DataError(
            f"column {name!r} holds {value!r} in row {row} (counting from 0), which is not among "
            "its declared levels; declare it too"
        )
    return Column(name, "nominal", levels), codes


def _read_numeric(table: Table, name: str, cells: Cells) -> Floats:
    values = _convert_cells(table, name, cells)
    remedy = "training needs finite or missing numbers: correct the cell, or make it missing"
    check_not_infinite(values, f"column {name!r}", remedy)
    _warn_if_merged(name, cells)
    return values


_FEW_CELLS = 1 << 16
"""Cells that are sorted in no time and take little memory."""

# ---------------------------------------------------------------- lazy columns

ColumnArray = npt.NDArray[Any]


class LazyColumns(Sequence[ColumnArray]):
    """The input columns (rows,) of a dataset, each created on access; small ones are kept.

    A large column that must be rounded, or that is in a file, would take four bytes per cell or
    more for the life of the dataset, and encoding uses one column at a time.

    Parameters
    ----------
    table : Table
    sources : sequence of arrays or str
        Category codes, -1 = missing; numbers; or the name of a numeric column of `table`.
    dtype : {"float32", "float64"}
        Type of the numbers.  Columns are read only, since they may be views of the table.
    """

    def __init__(self, table: Table, sources: Sequence[ColumnArray | str], dtype: Dtype) -> None:
        self.table, self._sources, self._dtype = table, tuple(sources), dtype
        self._kept: dict[int, ColumnArray] = {}

    def __reduce__(self) -> Any:
        """Pickle the columns of a file: another process may not have it."""
        if isinstance(self.table.cells, FileColumns):
            return tuple, (tuple(self),)
        return LazyColumns, (self.table, self._sources, self._dtype)

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return LazyColumns(self.table, self._sources[position], self._dtype)
        if position in self._kept:
            return self._kept[position]
        column = self._make_column(self._sources[position])
        if len(column) * len(self) <= _FEW_CELLS:
            self._kept[position] = column
        return column

    def _make_column(self, source: ColumnArray | str) -> ColumnArray:
        if isinstance(source, str):
            source = convert_to_numbers(self.table, source)
        elif source.dtype.kind == "i":
            return source.astype(np.int32, copy=False)
        return round_to_dtype(source, self._dtype)


# ---------------------------------------------------------------- categories

UNSEEN = -2
"""Code of a cell that is not in the vocabulary; -1 is a missing cell."""


class LevelIndex:
    """Map cells of tables, requests and settings to categories, the same in every artifact.

    The first rule that applies decides; a cell is

    1. the category with exactly its text.  A number or bool has Python's text, a whole
       number without a point (`treekit.data.schema.level_text`): ``3``, ``2.5``, ``True``;
    2. missing, if it is None, NaN or, without surrounding white space (`str.strip`), a mark
       of missing values;
    3. the category that is the same value as other programs write it: a whole number with
       or without ``.0``, and ``True``, ``true`` and ``TRUE``, or ``False``, ``false`` and
       ``FALSE``.  A whole number is ``0`` or digits that do not start with 0, after an
       optional ``-``.  The rule applies to a value that one category has in these
       notations, and to texts that are no marks;
    4. unseen.

    All other texts are different names: ``007`` and ``7``, ``250.1`` and ``250.10``, ``3``
    and ``3.00``, ``+3`` or `` 3``, ``True`` and ``tRUE``.

    Parameters
    ----------
    levels : sequence of str
    marks : collection of str
        Texts that mean missing, unless they are categories.
    rounds : {"to_zero", "float32_down"}, optional
        How a number that is no category is rounded; see `treekit.data.schema.Column`.

    Attributes
    ----------
    levels : tuple of str
    marks : frozenset of str
    codes : dict of str to int
        Position of the category of each text: those of rule 1, then `aliases`.
    aliases : dict of str to int
        The texts of rule 3: ``3.0`` for the category ``3``.
    """

    def __init__(
        self,
        levels: Sequence[str],
        marks: Collection[str] = (),
        *,
        rounds: Rounding | UnsetType = UNSET,
    ) -> None:
        self.rounds = rounds
        self.levels, self.marks = tuple(levels), frozenset(marks)
        self.codes = {level: code for code, level in enumerate(self.levels)}
        self.aliases = {
            other: code
            for level, code in self.codes.items()
            for other in _list_other_notations(level, self.codes)
            if other not in self.marks
        }
        self.codes |= self.aliases

    def code(self, cell: Any) -> int:
        """Return the position of a cell's category; -1 = missing, `UNSEEN` = not known."""
        text = level_text(cell)
        if text is None:
            return -1
        found = self.codes.get(text)
        if found is None and text.strip() in self.marks:
            return -1
        if found is None and self.rounds and (whole := round_text(text, self.rounds)) is not None:
            found = self.codes.get(whole)
        return UNSEEN if found is None else found


_WHOLE_NUMBER = re.compile(r"(0|-?[1-9][0-9]*)(\.0)?")
_BOOL_NOTATIONS = (("True", "true", "TRUE"), ("False", "false", "FALSE"))


def _list_other_notations(level: str, levels: Collection[str]) -> tuple[str, ...]:
    """Return the other notations of a category's value, none if one of them is a category."""
    number = _WHOLE_NUMBER.fullmatch(level)
    if number:
        others: tuple[str, ...] = (number[1] if number[2] else f"{level}.0",)
    else:
        words = next((words for words in _BOOL_NOTATIONS if level in words), ())
        others = tuple(word for word in words if word != level)
    return () if any(other in levels for other in others) else others


def round_text(text: str, rounds: Rounding) -> str | None:
    """Return a number as a whole number, both as text; None for any other text."""
    plain = text.strip()
    if not is_number(plain):
        return None
    number = c_float(float(plain)).value if rounds == "float32_down" else float(plain)
    if not math.isfinite(number):
        return None
    return str(math.floor(number) if rounds == "float32_down" else math.trunc(number))


def encode_levels(
    table: Table, name: str, levels: Sequence[str], *, rounds: Rounding | UnsetType = UNSET
) -> npt.NDArray[np.int32]:
    """Return the category code of each cell of column `name`; see `LevelIndex`.

    Returns
    -------
    (rows,) int32
        -1 = missing, `UNSEEN` = not in the vocabulary.
    """
    index = LevelIndex(levels, table.missing, rounds=rounds)
    return map_cells(table.cells[table.find_column(name)], index.code, np.int32)


def find_levels(table: Table, name: str, declared: Sequence[Any] | None) -> tuple[str, ...]:
    """Return the categories of a nominal column.

    They are the `declared` ones, else those of the column's type, else the values present:
    numbers and bools ascending, text in `sort_naturally`.  Bools of an untyped source keep
    its notation (``FALSE``, ``TRUE``) if it is consistent.

    Raises
    ------
    DataError
        If `declared` repeats a category, or nothing is declared and every cell is missing.
    """
    if declared is not None:
        levels = [level_text(level) for level in declared]
        if None in levels:
            raise DataError(
                f"the declared levels of {name!r} include a missing value; leave it out"
            )
        texts = tuple(level for level in levels if level is not None)
    elif name in table.levels:
        own = [level_text(level) for level in table.levels[name]]
        texts = tuple(dict.fromkeys(t for t in own if t is not None and t not in table.missing))
    else:
        texts = tuple(_find_present_levels(table, name))
    if not texts:
        raise DataError(
            f"column {name!r} is nominal but has no value; declare its levels, or leave it out"
        )
    for text in texts:
        check_unicode(text, f"a level of column {name!r}")
    return texts


def _find_present_levels(table: Table, name: str) -> list[str]:
    typed = table.get_typed_cells(name)
    if is_text(typed):
        return sort_texts(set(typed) - {None})
    if name in table.untyped:  # the texts are names: 007 is not 7, nor 250.10 250.1
        present = {text for text in table.count_texts(name) if not table.format.is_missing(text)}
        return _sort_bools(present) if typed.dtype.kind in "Ob" else sort_texts(present)
    distinct = set(typed) - {None} if typed.dtype.kind == "O" else np.unique(typed)
    texts = [level_text(value) for value in sorted(distinct)]
    return list(dict.fromkeys(text for text in texts if text is not None))


def _sort_bools(texts: Collection[str]) -> list[str]:
    """Sort bools, false first; in Python's notation if one value is in several (`LevelIndex`)."""
    words = sorted(texts, key=str.casefold)
    python = ["False", "True"]
    if len({word.casefold() for word in words}) < len(words) and all(
        LevelIndex(python).code(word) >= 0 for word in words
    ):
        return python
    return words


def sort_texts(texts: Collection[str]) -> list[str]:
    """Sort numbers by value, then text; other texts naturally."""
    plain = TextFormat()
    if all(is_number(text) and plain.parse_number(text) is not None for text in texts):
        return sorted(texts, key=lambda text: (float(text), text))
    return sort_naturally(texts)


def check_unicode(text: str, role: str) -> None:
    """Raise `DataError` for text that cannot be encoded as UTF-8 (lone surrogates)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{role} is not valid Unicode: {text!r}; replace its lone surrogates"
        ) from error


# ---------------------------------------------------------------- numbers

Floats: TypeAlias = npt.NDArray[Any]
"""float32 or float64."""

InputType: TypeAlias = Literal["auto", "float32", "float64"]
RoundingLoss: TypeAlias = Literal["values", "range"] | None
"""Loss of a column in float32: None, distinct values, or range."""

_PART_ROWS = 1 << 18
"""Number of rows processed at once."""


def convert_to_numbers(table: Table, name: str) -> Floats:
    """Convert column `name` to numbers, NaN = missing.

    Decimal text is parsed as float64; bools become 0 and 1.

    Returns
    -------
    (rows,) float32 or float64
        float32 only if the source is.

    Raises
    ------
    DataError
        For text that is not a number; names the first such cell.
    """
    return _convert_cells(table, name, table.get_typed_cells(name))


def _convert_cells(table: Table, name: str, cells: Cells) -> Floats:
    if cells.dtype.kind != "O":
        exact = cells.dtype in (np.float32, np.float64)
        return cells if exact else cells.astype(np.float64)
    if not is_text(cells):  # bools and None
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
    numbers = parse_numbers(cells, table.format)
    if numbers is None:
        rows = range(len(cells))
        row = next(i for i in rows if parse_numbers(cells[i : i + 1], table.format) is None)
        raise DataError(
            f"column {name!r} is numeric but row {table.first_row + row} (counting from 0) holds "
            f"{cells[row]!r}; correct the cell, or list its text and all other marks of missing "
            "values in missing_marks"
        )
    return numbers.astype(np.float64, copy=False)


def check_not_infinite(values: Floats, what: str, remedy: str) -> None:
    """Raise `DataError` if a number is infinite; names the row."""
    bad = np.isinf(values)
    if bad.any():
        row = int(bad.argmax())
        raise DataError(f"{what} is infinite in row {row} (counting from 0); {remedy}")


def _warn_if_merged(name: str, cells: Cells) -> None:
    """Warn if distinct integers of a column become equal as float64."""
    if cells.dtype.kind not in "iu" or cells.dtype.itemsize < 8:
        return
    huge = np.unique(cells[(cells >= 2**53) | (cells <= -(2**53))])
    doubles = huge.astype(np.float64)
    merged = doubles[1:] == doubles[:-1]
    if merged.any():
        first = int(merged.argmax())
        warnings.warn(
            f"column {name!r} holds {huge[first]} and {huge[first + 1]}, which float64 cannot tell "
            f"apart; set nominal=[{name!r}] if they are codes, or subtract a constant from the "
            "column to make the numbers smaller",
            TreekitWarning,
            stacklevel=6,
        )


def round_to_dtype(values: npt.NDArray[Any], dtype: Dtype) -> Floats:
    """Round numbers to the input type, after rounding to float64 as all artifacts do.

    A float array of that type is returned without a copy.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.kind != "f" or values.dtype.itemsize > 8:
            values = values.astype(np.float64)
        return values.astype(dtype, copy=False)


def find_loss(column: Floats) -> RoundingLoss:
    """Return the loss of rounding a finite numeric column (NaN = missing) to float32.

    ``"range"``: a number is out of range for float32.  ``"values"``: values that a split
    could need to separate become equal, namely values more than a millionth of the column's
    range apart, or more than half of the distinct values.  In a long column of real numbers
    a few neighbours always become equal (84 of 100,000 normal ones); no split needs them,
    so they must not force float64.
    """
    rounded = round_to_dtype(column, "float32")
    if rounded is column or (len(column) <= _FEW_CELLS and _keeps_all_values(column)):
        return None
    head = slice(0, 1000)  # often enough
    if _are_equal(rounded[head], column[head]) and _are_equal(rounded, column):
        return None
    zeros = column == 0.0
    if 2 * np.count_nonzero(zeros) > len(column):  # only distinct values matter: one zero is enough
        column = np.append(column[~zeros], np.zeros(1, column.dtype))
        rounded = round_to_dtype(column, "float32")
    least, most = float(np.fmin.reduce(column)), float(np.fmax.reduce(column))
    if not np.isfinite(round_to_dtype(np.array([least, most]), "float32")).all():
        return "range"
    known = column == column
    # Numbers that round to the same float32 differ by at most the spacing at the largest one.
    apart = max(max(-least, most) * 2.0**-23, 2.0**-149)
    if apart < 0.99e-6 * (most - least):
        singles = rounded if known.all() else rounded[known]
        if 2 * count_some_distinct(singles) >= len(singles):
            return None  # found faster than by `_loses_values`
    return "values" if _loses_values(np.sort(column[known])) else None


def _keeps_all_values(columns: Floats) -> bool:
    """Return whether distinct numbers of a column, (..., rows), stay so and finite in float32."""
    ordered = np.sort(columns)
    singles = round_to_dtype(ordered, "float32")
    merged = (singles[..., 1:] == singles[..., :-1]) & (ordered[..., 1:] != ordered[..., :-1])
    return not (merged.any() or np.isinf(singles).any())


def _are_equal(rounded: npt.NDArray[np.float32], column: Floats) -> bool:
    """Return whether numbers are equal where they are not NaN."""
    return bool(np.all((rounded == column) | (column != column)))


def count_some_distinct(singles: npt.NDArray[np.float32]) -> int:
    """Return at most the number of distinct values: the number of their distinct hashes."""
    bits = len(singles).bit_length()  # a larger table would leave the cache
    positive = singles + np.float32(0)  # -0.0 is 0.0
    hashes = (positive.view(np.uint32) * np.uint32(0x9E3779B1)) >> np.uint32(max(32 - bits, 0))
    taken = np.zeros(1 << bits, np.bool_)
    taken[hashes] = True
    return int(np.count_nonzero(taken))


def _loses_values(ordered: npt.NDArray[np.float64]) -> bool:
    """Check whether ascending numbers need float64; see `find_loss`."""
    extent = ordered[-1] / 2 - ordered[0] / 2
    widest, n_merged, n_distinct = 0.0, 0, 0
    for first in range(0, len(ordered) - 1, _PART_ROWS):
        part = ordered[first : first + _PART_ROWS + 1]
        low = round_to_dtype(part, "float32")
        gaps = part[1:] / 2 - part[:-1] / 2  # halves: the range may overflow
        merged = (gaps > 0) & (low[1:] == low[:-1])
        widest = max(widest, float(gaps[merged].max(initial=0.0)))
        n_merged += int(np.count_nonzero(merged))
        n_distinct += int(np.count_nonzero(gaps))
    return n_merged > 0 and bool(widest > extent * 1e-6 or 2 * n_merged > n_distinct + 1)


def choose_dtype(losses: Mapping[str, RoundingLoss], dtype: InputType) -> Dtype:
    """Choose the input type, given what rounding to float32 loses in each numeric column.

    ``auto``: float32, unless a column loses precision or range.  ``float32``: a column that
    loses precision raises a warning, and one that loses range an error.
    """
    if dtype == "float64":
        return "float64"
    for name, loss in losses.items():
        if loss is None:
            continue
        if dtype == "auto":
            return "float64"
        if loss == "range":
            raise DataError(
                f"column {name!r} holds numbers beyond the largest float32; use dtype='float64'"
            )
        warnings.warn(
            f"rounding column {name!r} to float32 merges values that differ; dtype='auto' or "
            "'float64' keeps them apart, or subtract a constant from the column",
            TreekitWarning,
            stacklevel=5,
        )
    return "float32"
