"""Conversion of JSON rows to model inputs, cell by cell, without a table.

Equivalent to `Model.predict` for a list of one mapping, as verified by a test.  Each row is
converted independently of the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np

from treekit.data.features import LevelIndex
from treekit.data.table import suggest_names
from treekit.serve.errors import InvalidRequestError
from treekit.serve.models.served_model import Batch
from treekit.serve.protocol.messages import parse_constant, parse_finite

if TYPE_CHECKING:
    from treekit.model.model import Model


# ---------------------------------------------------------------- bodies and queries
# Strict parsing of bodies and queries written by people, with precise error messages.
#
# Unlike `msgspec`, used by the protocol's endpoints, this parser rejects duplicate keys of an
# object, so that no value of a column is dropped silently.

_MAX_QUOTED = 80
_MAX_PARAMETERS = 20


def parse_json(body: bytes | bytearray) -> Any:
    """Decode a JSON body in UTF-8 without duplicate keys and lone surrogates.

    NaN is read as null and Infinity as a number: JSON has neither, but many clients write them.

    Raises
    ------
    InvalidRequestError
        If the body is not such JSON.
    """
    if not body.strip():
        raise InvalidRequestError("the body is empty; expected JSON")
    try:
        text = body.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_unique_pairs,
            parse_float=parse_finite,
            parse_constant=parse_constant,
        )
        if "\\ud" in text or "\\uD" in text:  # a lone surrogate cannot be encoded in a response
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequestError("the body contains a lone surrogate; escape both") from None
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the body is not UTF-8 from byte {error.start} on") from None
    except RecursionError:
        raise InvalidRequestError("the body's JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidRequestError(f"the body is not JSON: {error.msg} ({where})") from None
    except ValueError:  # of `int`: more digits than Python converts
        raise InvalidRequestError(
            "the body contains an integer of thousands of digits, which no model accepts"
        ) from None
    return value


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidRequestError(
            f"an object of the body has the duplicate key {quote_value(twice)}"
        )
    return found


def check_object(value: Any, types: Mapping[str, tuple[type, ...]], what: str) -> dict[str, Any]:
    """Check an object against the keys and value types in `types`; drop keys with null."""
    if type(value) is not dict:
        raise InvalidRequestError(f"{what} must be a JSON object, got {quote_value(value)}")
    found = {}
    for key, own in value.items():
        if key not in types:
            raise InvalidRequestError(
                f"unknown key {quote_value(key)} in {what}; {suggest_short_names(key, types)}"
            )
        if own is None:
            continue
        if type(own) not in types[key]:
            expected = " or ".join(_TYPE_NAMES[kind] for kind in types[key])
            raise InvalidRequestError(f"{key!r} must be {expected}, got {quote_value(own)}")
        found[key] = own
    return found


_TYPE_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def parse_query(query: bytes, names: Collection[str]) -> dict[str, str]:
    """Parse the parameters of a URL, each of `names` at most once.

    Raises
    ------
    InvalidRequestError
        If a parameter is unknown, a duplicate or not UTF-8.
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
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in names:
            hint = suggest_short_names(name, names) if names else "this path has no parameters"
            raise InvalidRequestError(f"unknown parameter {quote_value(name)}; {hint}")
        if name in found:
            raise InvalidRequestError(f"duplicate parameter {name!r}")
        found[name] = value
    return found


def parse_integer(name: str, text: str, least: int, most: int) -> int:
    """Parse an integer between bounds."""
    if text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most:
        return int(text)
    raise InvalidRequestError(f"{name!r} must be {least} to {most}, got {quote_value(text)}")


def quote_value(value: Any) -> str:
    """Format a value of a request for an error message, truncated."""
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= _MAX_QUOTED else f"{value[:_MAX_QUOTED]!r}..."
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."


def suggest_short_names(name: str, names: Collection[str]) -> str:
    """Return the hint of `suggest_names` for a possibly long name and many names."""
    return suggest_names(name[:_MAX_QUOTED], list(names)[:1000])


# ---------------------------------------------------------------- rows

_NAN = math.nan
_MAX_LISTED = 12
"""Maximum columns listed in an error message."""
_INTEGER_RANGE = (-(2**63), 2**64)
"""Range of integers that may be a category: those of a table."""


def check_rows(rows: Any) -> list[dict[str, Any]]:
    """Check that the rows of a request are a non-empty list of objects."""
    if type(rows) is not list:
        raise InvalidRequestError(f"'rows' must be a list of objects, got {quote_value(rows)}")
    if not rows:
        raise InvalidRequestError("'rows' is empty; give one row or more")
    for number, row in enumerate(rows):
        if type(row) is not dict:
            raise InvalidRequestError(
                f"row {number} (counting from 0) is {quote_value(row)}; a row is an object of "
                "columns "
                'and values, such as {"age": 41}'
            )
    return rows


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

    def convert_rows(self, rows: Sequence[dict[str, Any]]) -> Batch:
        """Convert rows to a batch.

        Raises
        ------
        InvalidRequestError
            If a row is invalid; the message names the row (from 0), the column and the value.
        """
        cells = [self._convert_row(number, row) for number, row in enumerate(rows)]
        with np.errstate(over="ignore"):
            matrix = np.array(cells, dtype=np.float64).astype(self._dtype, copy=False)
        return Batch(len(cells), (matrix,))

    def check_row(self, row: dict[str, Any]) -> None:
        """Check a row as `convert_rows`, except for the policies of the model."""
        for name, index in self._columns:
            if name not in row:
                raise self._missing_column_error(0, name, row)
            self._convert_cell(0, name, index, row[name])
        if len(row) > len(self._columns):
            raise self._unknown_column_error(0, row)

    def _convert_row(self, number: int, row: dict[str, Any]) -> list[float]:
        found = []
        for name, index in self._columns:
            try:
                value = row[name]
            except KeyError:
                raise self._missing_column_error(number, name, row) from None
            code = self._convert_cell(number, name, index, value)
            if code != code:
                self._check_policies(number, name, index, value)
            found.append(code)
        if len(row) > len(found):
            raise self._unknown_column_error(number, row)
        return found

    def _convert_cell(self, number: int, name: str, index: LevelIndex | None, value: Any) -> float:
        """Return a number or a category code, NaN if missing."""
        kind = type(value)
        if index is None:
            if kind is float or kind is int:
                return self._convert_number(number, name, value)
            if kind is str:
                return self._parse_decimal(number, name, value)
            if value is None:
                return _NAN
        elif value is None or kind is str or kind is bool or kind is float or kind is int:
            if kind is int and not _INTEGER_RANGE[0] <= value < _INTEGER_RANGE[1]:
                raise _cell_error(number, name, "an integer beyond 64 bits; write it as a string")
            code = index.code(value)
            return _NAN if code < 0 else code
        what = "a number" if index is None else "a string or a number"
        remedy = "; write 1 or 0" if kind is bool else ""
        raise _cell_error(number, name, f"{quote_value(value)}; expected {what} or null{remedy}")

    def _convert_number(self, number: int, name: str, value: float) -> float:
        try:
            return float(value)
        except OverflowError:
            what = "a number that exceeds the largest double (1.8e308)"
            raise _cell_error(number, name, what) from None

    def _parse_decimal(self, number: int, name: str, text: str) -> float:
        """Parse a string as in a CSV file: a decimal number, or a missing-value mark."""
        if text.strip() in self._marks:
            return _NAN
        try:
            # float() also accepts 1_000 and digits of other scripts; dataframes do not.
            if text.isascii() and "_" not in text:
                return float(text)
        except ValueError:
            pass
        raise _cell_error(
            number, name, f"the string {quote_value(text)}, but the column is numeric"
        )

    def _check_policies(self, number: int, name: str, index: LevelIndex | None, value: Any) -> None:
        """Reject missing values and unseen categories according to the model's policies."""
        unseen = index is not None and value is not None
        if unseen and type(value) is str:
            unseen = value.strip() not in self._marks
        if unseen and self._no_unknown:
            hint = suggest_short_names(str(value), index.levels if index else ())
            raise _cell_error(number, name, f"{quote_value(value)}, an unseen category; {hint}")
        if self._no_missing:
            what = (
                f"{quote_value(value)}, which is unknown and"
                if unseen
                else "a missing value, which"
            )
            raise _cell_error(number, name, f"{what} is an error by the model's policy")

    def _missing_column_error(
        self, number: int, name: str, row: dict[str, Any]
    ) -> InvalidRequestError:
        names = {own for own, _ in self._columns}
        other = next((key for key in row if key not in names), None)
        instead = "" if other is None else f" (it has the unknown column {quote_value(other)})"
        absent = [own for own, _ in self._columns if own not in row]
        if len(absent) == 1:
            what, null = f"column {name!r}", "if its value is missing"
        else:
            more = f" and {len(absent) - _MAX_LISTED} more" if len(absent) > _MAX_LISTED else ""
            listed = ", ".join(map(repr, absent[:_MAX_LISTED]))
            what, null = f"columns {listed}{more}", "where a value is missing"
        return InvalidRequestError(
            f"row {number} (counting from 0) has no {what}{instead}, required by model "
            f"{self._name!r}; give null {null}"
        )

    def _unknown_column_error(self, number: int, row: dict[str, Any]) -> InvalidRequestError:
        names = {name for name, _ in self._columns}
        other = next(key for key in row if key not in names)
        hint = suggest_short_names(other, self._schema.names)
        if any(other == output.name for output in self._schema.outputs):
            hint = "it is the target of the model: leave it out"
        return InvalidRequestError(
            f"row {number} (counting from 0) has column {quote_value(other)}, which model "
            f"{self._name!r} does not have; {hint}"
        )


def _cell_error(number: int, name: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"row {number} (counting from 0): column {name!r} has {what}")
