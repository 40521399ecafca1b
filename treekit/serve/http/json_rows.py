"""Conversion of JSON rows to model inputs, cell by cell, without a table.

Equivalent to `Model.predict` for a list of one mapping, as verified by a test.  Each row is
converted independently of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import numpy as np
import numpy.typing as npt

from treekit.data.encoding import Absent, fill_absent_columns
from treekit.data.features import UNSEEN, LevelIndex
from treekit.data.table import suggest_names
from treekit.errors import DataError
from treekit.serve.cancellation import check_cancelled
from treekit.serve.errors import InvalidRequestError, shown
from treekit.serve.protocol.messages import convert_request, make_unique_dict

if TYPE_CHECKING:
    from treekit.model.model import Model


# ---------------------------------------------------------------- queries

_MAX_PARAMETERS = 20

T = TypeVar("T")


def parse_query(query: bytes, kind: type[T]) -> T:
    """Parse the parameters of a URL, the fields of a struct.

    Raises
    ------
    InvalidRequestError
        If a parameter is unknown, invalid, a duplicate or not UTF-8.
    """
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=_MAX_PARAMETERS,
            errors="strict",
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise InvalidRequestError(f"the URL's parameters cannot be read: {error}") from None
    found: T = convert_request(make_unique_dict(pairs), kind, "URL parameters", strict=False)
    return found


# ---------------------------------------------------------------- rows

_NAN = math.nan
_MAX_LISTED = 12
_MAX_COMPARED = 1000
"""Maximum columns listed, and names compared, for an error message."""
_INTEGER_RANGE = (-(2**63), 2**64)
"""Range of integers that may be a category: those of a table."""


class RowConverter:
    """Converter of JSON rows to the input of one model.

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

    def convert_rows(
        self, rows: Sequence[dict[str, Any]], absent: Absent = "error"
    ) -> npt.NDArray[np.floating[Any]]:
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
            try:
                code = self._convert_cell(index, row.get(name))
                if code != code and with_policies:
                    self._check_policies(index, row.get(name))
            except (ValueError, OverflowError) as error:
                is_large = isinstance(error, OverflowError)
                what = "a number that exceeds the largest double (1.8e308)" if is_large else error
                raise InvalidRequestError(
                    f"row {number} (counting from 0): column {name!r} has {what}"
                ) from None
            found.append(code)
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
