"""Rows as JSON objects to what a model computes with, cell by cell, without a table.

The same as `Model.predict` of a list of one mapping; a test says so.  Each row is read alone:
what stands in others never alters it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from treekit.data.features import LevelIndex
from treekit.serve.errors import InvalidRequestError
from treekit.serve.models.served import Batch
from treekit.serve.plain.bodies import near, quoted

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["Rows", "checked_rows"]

_NAN = math.nan
_MOST_LISTED = 12
"""Columns that an error names."""
_WHOLE = (-(2**63), 2**64)
"""Whole numbers that name a level: those that a table holds."""


def checked_rows(rows: Any) -> list[dict[str, Any]]:
    """Rows of a request: a list of one object or more."""
    if type(rows) is not list:
        raise InvalidRequestError(f"'rows' is a list of objects, not {quoted(rows)}")
    if not rows:
        raise InvalidRequestError("'rows' holds no row; give one or more")
    for number, row in enumerate(rows):
        if type(row) is not dict:
            raise InvalidRequestError(
                f"row {number} (counting from 0) is {quoted(row)}; a row is an object of columns "
                'and values, such as {"age": 41}'
            )
    return rows


class Rows:
    """Reads rows for one model.

    Parameters
    ----------
    model : Model
    name : str
        Of the model, for messages.
    """

    def __init__(self, model: Model, name: str) -> None:
        schema = model.schema
        self._name, self._schema = name, schema
        self._dtype = np.dtype(schema.dtype)
        self._columns = [
            (
                column.name,
                None
                if column.kind == "numeric"
                else LevelIndex(column.levels, schema.missing_marks),
            )
            for column in schema.columns
        ]
        self._marks = frozenset(schema.missing_marks)
        self._no_missing = model.missing == "error"
        self._no_unknown = model.unknown == "error"

    def batch(self, rows: Sequence[dict[str, Any]]) -> Batch:
        """The rows as the model takes them.

        Raises
        ------
        InvalidRequestError
            Names the row, from 0, the column and the value.
        """
        cells = [self._row(number, row) for number, row in enumerate(rows)]
        with np.errstate(over="ignore"):
            matrix = np.array(cells, dtype=np.float64).astype(self._dtype, copy=False)
        return Batch(len(cells), (matrix,))

    def check(self, row: dict[str, Any]) -> None:
        """Refuse what `batch` refuses of one row, but for what the model's policies do."""
        for name, index in self._columns:
            if name not in row:
                raise self._absent(0, name, row)
            self._cell(0, name, index, row[name])
        if len(row) > len(self._columns):
            raise self._unknown(0, row)

    def _row(self, number: int, row: dict[str, Any]) -> list[float]:
        found = []
        for name, index in self._columns:
            try:
                value = row[name]
            except KeyError:
                raise self._absent(number, name, row) from None
            code = self._cell(number, name, index, value)
            if code != code:
                self._allowed(number, name, index, value)
            found.append(code)
        if len(row) > len(found):
            raise self._unknown(number, row)
        return found

    def _cell(self, number: int, name: str, index: LevelIndex | None, value: Any) -> float:
        """A number or the code of a level, NaN where it is missing."""
        kind = type(value)
        if index is None:
            if kind is float or kind is int:
                return self._number(number, name, value)
            if kind is str:
                return self._decimal(number, name, value)
            if value is None:
                return _NAN
        elif value is None or kind is str or kind is bool or kind is float or kind is int:
            if kind is int and not _WHOLE[0] <= value < _WHOLE[1]:
                raise _refused(number, name, "a whole number beyond 64 bits; write it as a text")
            code = index.code(value)
            return _NAN if code < 0 else code
        what = "a number" if index is None else "a text or a number"
        remedy = "; write 1 or 0" if kind is bool else ""
        raise _refused(number, name, f"{quoted(value)}, and a value is {what} or null{remedy}")

    def _number(self, number: int, name: str, value: float) -> float:
        try:
            return float(value)
        except OverflowError:
            what = "a number beyond the largest that computers take (1.8e308)"
            raise _refused(number, name, what) from None

    def _decimal(self, number: int, name: str, text: str) -> float:
        """As a cell of a CSV file: a decimal numeral, or a mark of a missing value."""
        if text.strip() in self._marks:
            return _NAN
        try:
            # float() also reads 1_000 and digits of other scripts; no dataframe does.
            if text.isascii() and "_" not in text:
                return float(text)
        except ValueError:
            pass
        raise _refused(number, name, f"the text {quoted(text)}, and the column is numeric")

    def _allowed(self, number: int, name: str, index: LevelIndex | None, value: Any) -> None:
        """Refuse a missing cell, or a category of no vocabulary, if the model does."""
        unseen = index is not None and value is not None
        if unseen and type(value) is str:
            unseen = value.strip() not in self._marks
        if unseen and self._no_unknown:
            hint = near(str(value), index.levels if index else ())
            raise _refused(number, name, f"{quoted(value)}, a category that is new to it; {hint}")
        if self._no_missing:
            what = f"{quoted(value)}, which is unknown and" if unseen else "a missing value, which"
            raise _refused(number, name, f"{what} is an error by the model's policy")

    def _absent(self, number: int, name: str, row: dict[str, Any]) -> InvalidRequestError:
        names = {own for own, _ in self._columns}
        other = next((key for key in row if key not in names), None)
        instead = "" if other is None else f" (it has {quoted(other)}, which the model does not)"
        absent = [own for own, _ in self._columns if own not in row]
        if len(absent) == 1:
            what, null = f"column {name!r}", "if its value is missing"
        else:
            more = f" and {len(absent) - _MOST_LISTED} more" if len(absent) > _MOST_LISTED else ""
            listed = ", ".join(map(repr, absent[:_MOST_LISTED]))
            what, null = f"columns {listed}{more}", "where a value is missing"
        return InvalidRequestError(
            f"row {number} (counting from 0) has no {what}{instead}, which model "
            f"{self._name!r} needs; give null {null}"
        )

    def _unknown(self, number: int, row: dict[str, Any]) -> InvalidRequestError:
        names = {name for name, _ in self._columns}
        other = next(key for key in row if key not in names)
        hint = near(other, self._schema.names)
        if any(other == output.name for output in self._schema.outputs):
            hint = "it is what the model predicts: leave it out"
        return InvalidRequestError(
            f"row {number} (counting from 0) has a column {quoted(other)}, which model "
            f"{self._name!r} does not have; {hint}"
        )


def _refused(number: int, name: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"row {number} (counting from 0): column {name!r} holds {what}")
