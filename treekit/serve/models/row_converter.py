"""Conversion of the cells of requests to model inputs: JSON rows, and columns of tensors.

Equivalent to `Model.predict` for a table of the same cells, as verified by tests, without making
one, which would take longer than the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.cells import make_object_array, parse_numbers
from treekit.data.encoding import Absent, fill_absent_columns
from treekit.data.features import UNSEEN, LevelIndex, round_to_dtype
from treekit.data.table import suggest_names
from treekit.errors import DataError
from treekit.serve.cancellation import check_cancelled
from treekit.serve.errors import InvalidRequestError, shown

if TYPE_CHECKING:
    from treekit.model.model import Model


Matrix = npt.NDArray[np.floating[Any]]
"""Encoded rows (rows, features)."""

_NAN = math.nan
_MAX_LISTED = 12
_MAX_COMPARED = 1000
"""Maximum columns listed, and names compared, for an error message."""
_INTEGER_RANGE = (-(2**63), 2**64)
"""Range of integers that may be a category: those of a table."""


class RowConverter:
    """Converter of JSON rows and of columns to the input of one model.

    Each cell is converted independently of the others.

    Parameters
    ----------
    model : Model
    name : str
        Name of the model, for messages.
    """

    def __init__(self, model: Model, name: str) -> None:
        schema = model.schema
        self._name, self._schema, self._tested = name, schema, model.tested
        self._dtype = np.dtype(schema.dtype)
        self._columns = [
            (
                column.name,
                None
                if column.kind == "numeric"
                else LevelIndex(column.levels, schema.missing_marks, rounds=column.rounds),
            )
            for column in schema.columns
        ]
        self._names = frozenset(schema.names)
        self._format = schema.text_format
        self._no_missing = model.missing == "error"
        self._no_unknown = model.unknown == "error"

    @property
    def categories(self) -> list[dict[str, int] | None]:
        """Code of each text that is a category of a column; None for a numeric column."""
        return [None if index is None else index.codes for _, index in self._columns]

    def convert_rows(self, rows: Sequence[dict[str, Any]], absent: Absent = "error") -> Matrix:
        """Convert rows to a matrix (rows, features).

        See `treekit.data.encoding.fill_absent_columns` for columns that a row does not have.

        Raises
        ------
        InvalidRequestError
            If a row is invalid; the message names the row (from 0), the column and the value.
        """
        cells = [self._convert_row(number, row, absent) for number, row in enumerate(rows)]
        with np.errstate(over="ignore"):
            return np.array(cells, dtype=np.float64).astype(self._dtype, copy=False)

    def check_row(self, row: dict[str, Any], absent: Absent = "error") -> None:
        """Check a row as `convert_rows`, except for the policies of the model."""
        self._convert_row(0, row, absent, with_policies=False)

    def _convert_row(
        self, number: int, row: dict[str, Any], absent: Absent, *, with_policies: bool = True
    ) -> list[float]:
        check_cancelled()
        filled: dict[str, float] = {}
        if row.keys() != self._names:
            filled = self._fill_row(number, row, absent)
        found = []
        for name, index in self._columns:
            if name not in row and filled[name] == 0.0:
                found.append(0.0)
                continue
            cell = row.get(name)
            found.append(self._convert_named(number, name, index, cell, with_policies))
        return found

    def _convert_named(
        self, number: int, name: str, index: LevelIndex | None, value: Any, with_policies: bool
    ) -> float:
        """Convert a cell; an error names the row, the column and the value."""
        try:
            code = self._convert_cell(index, value)
            if code != code and with_policies:
                self._check_policies(index, value)
        except (ValueError, OverflowError) as error:
            is_large = isinstance(error, OverflowError)
            what = "a number that exceeds the largest double (1.8e308)" if is_large else error
            raise InvalidRequestError(
                f"row {number} (counting from 0): column {name!r} has {what}"
            ) from None
        return code

    def convert_columns(
        self, columns: Mapping[str, npt.NDArray[Any]], absent: Absent = "error"
    ) -> Matrix:
        """Convert columns (rows,) of tensors, of the same length, to a matrix (rows, features).

        Cells are those of `Tensor`; bools of a numeric column are 1 and 0.

        Raises
        ------
        InvalidRequestError
            If a cell is invalid, or a column is absent; the message names it.
        """
        filled: dict[str, float] = {}
        if len(columns) < len(self._columns):
            filled = self._fill_columns(columns, absent)
        rows = len(next(iter(columns.values())))
        if rows == 1:  # cell by cell, in a fifth of the time
            cells = {name: column.item(0) for name, column in columns.items()}
            return self._convert_single(cells, filled)
        matrix: Matrix = np.empty((rows, len(self._columns)), self._dtype)
        for feature, (name, index) in enumerate(self._columns):
            check_cancelled()
            if name in columns:
                matrix[:, feature] = self._convert_column(name, index, columns[name])
            else:
                matrix[:, feature] = filled[name]
                if filled[name] != 0.0 and self._no_missing:
                    self._convert_named(0, name, index, None, True)
        return matrix

    def _convert_single(self, cells: dict[str, Any], filled: dict[str, float]) -> Matrix:
        """Convert the cells of one row of columns to a matrix (1, features)."""
        found = []
        for name, index in self._columns:
            cell = cells.get(name)
            if index is None and type(cell) is bool:
                cell = int(cell)
            is_idle = name not in cells and filled[name] == 0.0
            found.append(0.0 if is_idle else self._convert_named(0, name, index, cell, True))
        with np.errstate(over="ignore"):
            return np.array([found], np.float64).astype(self._dtype, copy=False)

    def _convert_column(
        self, name: str, index: LevelIndex | None, cells: npt.NDArray[Any]
    ) -> npt.NDArray[np.floating[Any]]:
        """Convert one column at once; the cells that remain missing are judged one by one."""
        if index is not None:
            known = index.codes.get
            # Only texts are keys, so that any other cell is left to its own conversion.
            codes = [_NAN if code is None else code for code in map(known, cells.tolist())]
            found = np.array(codes, np.float64)
        elif cells.dtype.kind != "O":
            found = round_to_dtype(cells, self._schema.dtype)
            if not self._no_missing:
                return found
        else:
            is_bool = any(type(cell) is bool for cell in cells)
            numbers = None if is_bool else parse_numbers(cells, self._format)
            if numbers is None:
                cells = make_object_array([int(c) if type(c) is bool else c for c in cells])
                numbers = np.full(len(cells), _NAN)
            with np.errstate(over="ignore"):
                found = numbers.astype(self._dtype)
        gone = np.flatnonzero(found != found)
        if len(gone):
            found = np.array(found)
            for row, cell in zip(gone.tolist(), cells[gone].tolist(), strict=True):
                found[row] = self._convert_named(row, name, index, cell, True)
        return found

    def _convert_cell(self, index: LevelIndex | None, value: Any) -> float:
        """Return a number or a category code, NaN if missing; ValueError if it is invalid."""
        kind = type(value)
        if value is None:
            return _NAN
        if index is not None:
            if kind not in (str, bool, float, int):
                raise ValueError(f"{shown(value)}; expected a string, a number or null")
            if kind is int and not _INTEGER_RANGE[0] <= value < _INTEGER_RANGE[1]:
                raise ValueError("an integer beyond 64 bits; write it as a string")
            code = index.code(value)
            return _NAN if code < 0 else code
        if kind is float or kind is int:
            return float(value)
        if kind is not str:
            raise ValueError(f"{shown(value)}; expected a number or null (1 or 0 for a bool)")
        return self._parse_number(value)

    def _parse_number(self, value: str) -> float:
        """Return the number of a string, NaN if it is missing; ValueError if it is none."""
        if self._format.is_missing_number(value):
            return _NAN
        text = self._format.parse_number(value)
        if text is None:
            raise ValueError(f"the string {shown(value)}, but the column is numeric")
        return float(text)

    def _check_policies(self, index: LevelIndex | None, value: Any) -> None:
        """Reject missing values and unseen categories according to the model's policies."""
        unseen = index is not None and index.code(value) == UNSEEN
        if index is not None and unseen and self._no_unknown:
            hint = suggest_names(str(value), index.levels[:_MAX_COMPARED])
            raise ValueError(f"{shown(value)}, an unseen category; {hint}")
        if self._no_missing:
            what = f"{shown(value)}, which is unknown and" if unseen else "a missing value, which"
            raise ValueError(f"{what} is an error by the model's policy")

    def _fill_columns(self, given: Mapping[str, Any], absent: Absent) -> dict[str, float]:
        """Return the values of the columns without an input."""
        try:
            return fill_absent_columns(self._schema, given, absent, self._tested)
        except DataError:
            needed = fill_absent_columns(self._schema, given, "missing", self._tested)
            name = next(name for name, value in needed.items() if value != 0.0)
            raise InvalidRequestError(
                f"input {name!r} is missing from the request; model {self._name!r} requires "
                "its columns (null for missing values), unless the request has the parameter "
                "absent = 'missing'"
            ) from None

    def _fill_row(self, number: int, row: dict[str, Any], absent: Absent) -> dict[str, float]:
        """Return the values of the columns that a row does not have."""
        model, names = f"model {self._name!r}", self._schema.names
        where = f"row {number} (counting from 0)"
        other = next((key for key in row if key not in self._names), None)
        try:
            filled = fill_absent_columns(self._schema, row, absent, self._tested)
        except DataError:
            needed = fill_absent_columns(self._schema, row, "missing", self._tested)
            lacking = [repr(name) for name, value in needed.items() if value != 0.0]
            more = f" and {len(lacking) - _MAX_LISTED} more" if len(lacking) > _MAX_LISTED else ""
            instead = "" if other is None else f" (it has the unknown column {shown(other)})"
            raise InvalidRequestError(
                f"{where} has no column {', '.join(lacking[:_MAX_LISTED])}"
                f"{more}{instead}, required by {model}; give null where a value is missing, or "
                "'absent': 'missing' with the rows"
            ) from None
        if other is None:
            return filled
        hint = suggest_names(str(other), names[:_MAX_COMPARED])
        if any(other == output.name for output in self._schema.outputs):
            hint = "it is the target of the model: leave it out"
        raise InvalidRequestError(
            f"{where} has column {shown(other)}, which {model} does not have; {hint}"
        )
