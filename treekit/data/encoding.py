"""Encode rows of any table as the input matrix of a model and its artifacts."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from treekit.data.features import UNSEEN, Floats, convert_to_numbers, encode_levels, round_to_dtype
from treekit.data.schema import Schema
from treekit.data.sparse import SparseColumns
from treekit.data.table import Table, read_table, suggest_names
from treekit.errors import DataError

Absent: TypeAlias = Literal["error", "missing"]
"""Columns that rows do not have but a tree tests: an error, or missing."""


def encode_rows(
    rows: Any,
    schema: Schema,
    *,
    missing: str = "direction",
    unknown: Literal["missing", "error"] = "missing",
    missing_marks: Collection[str] | None = None,
    absent: Absent | None = None,
    tested: npt.NDArray[np.bool_] | None = None,
) -> Floats:
    """Encode the rows of any table for prediction.

    Columns are matched by name, in any order, and others are ignored; columns of a bare
    array or a list of lists are matched by position.  Columns that `tested` excludes may be
    absent from a table with names.

    Parameters
    ----------
    rows : table
        Anything accepted by `treekit.data.table.read_table`.
    schema : Schema
    missing : str
        A model's missing policy; ``error`` rejects rows with a missing cell.
    unknown : {"missing", "error"}
        Treatment of a category outside the vocabulary.
    missing_marks : collection of str, optional
        Texts that mean missing, unless they are categories of the column; default:
        those of the schema.
    absent : {"error", "missing"}, optional
        Treatment of columns that the rows do not have; see `fill_absent_columns`.
    tested : (features,) bool, optional
        Columns that a tree tests (`treekit.model.model.Model.tested`); default: all.

    Returns
    -------
    (rows, features) float32 or float64
        C-contiguous, of ``schema.dtype``: numbers (NaN = missing, infinities
        allowed) and codes of categories.  It may be `rows` itself: do not modify it.

    Raises
    ------
    DataError
        Names the column and, if there is one, the row and value.
    """
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.names is None:
        _check_width(rows.shape[1], schema)
        plain = rows.dtype.kind in "fiub" and not isinstance(rows, np.ma.MaskedArray)
        if plain and not schema.nominal.any():
            matrix = np.ascontiguousarray(round_to_dtype(rows, schema.dtype))
            return _check_missing(matrix, schema, missing)
    table = read_rows_for(rows, schema, missing_marks)
    positions, filled = _match_columns(table, schema, absent, tested)
    if isinstance(table.cells, SparseColumns) and not schema.nominal.any() and not filled:
        matrix = np.ascontiguousarray(round_to_dtype(table.cells.to_dense(), schema.dtype))
        return _check_missing(matrix, schema, missing, table.first_row)
    matrix = np.empty((table.n_rows, schema.n_features), dtype=schema.dtype)
    for feature, (position, column) in enumerate(zip(positions, schema.columns, strict=True)):
        if position is None:
            matrix[:, feature] = filled[column.name]
            continue
        name = table.names[position]
        if column.kind == "nominal":
            codes = encode_levels(table, name, column.levels, rounds=column.rounds)
            matrix[:, feature] = _convert_codes(table, name, codes, unknown)
        else:
            matrix[:, feature] = round_to_dtype(convert_to_numbers(table, name), schema.dtype)
    return _check_missing(matrix, schema, missing, table.first_row)


def read_rows_for(rows: Any, schema: Schema, marks: Collection[str] | None = None) -> Table:
    """Read a table as the training table was read, by default with its marks of missing values."""
    how = schema.text_format
    return read_table(
        rows,
        missing=how.marks if marks is None else marks,
        decimal=how.decimal,
        thousands=how.thousands,
    )


def _match_columns(
    table: Table, schema: Schema, absent: Absent | None, tested: npt.NDArray[np.bool_] | None
) -> tuple[list[int | None], dict[str, float]]:
    """Return the position in the table of each column of the schema, and values of absent ones."""
    if not table.named:
        _check_width(len(table.names), schema)
        return list(range(schema.n_features)), {}
    position = {name: i for i, name in enumerate(table.names)}
    filled = fill_absent_columns(schema, position, absent, tested)
    return [position.get(name) for name in schema.names], filled


def fill_absent_columns(
    schema: Schema,
    given: Collection[str],
    absent: Absent | None,
    tested: npt.NDArray[np.bool_] | None = None,
    what: str = "the table",
) -> dict[str, float]:
    """Return the encoded value of each column of a schema that is not `given`.

    A column that no tree tests is 0, which every policy accepts; any other is NaN, missing.

    Parameters
    ----------
    schema : Schema
    given : collection of str
        Names of columns.
    absent : {"error", "missing"}, optional
        None: an error, of a caller who does not offer the choice.
    tested : (features,) bool, optional
        Columns that a tree tests; default: all.
    what : str
        What should have the columns, for the message.

    Raises
    ------
    DataError
        If a column that a tree tests is absent, unless `absent` is ``"missing"``.
    """
    if absent not in (None, *get_args(Absent)):
        raise DataError(f"absent is {absent!r}; expected 'error' or 'missing'")
    remedy = "" if absent is None else "; absent='missing' takes it as missing in all rows"
    filled = {}
    for feature, name in enumerate(schema.names):
        if name in given:
            continue
        is_tested = tested is None or bool(tested[feature])
        if is_tested and absent != "missing":
            raise DataError(
                f"{what} has no column {name!r}, which the model needs; "
                f"{suggest_names(name, given)}{remedy}"
            )
        filled[name] = math.nan if is_tested else 0.0
    return filled


def _check_width(width: int, schema: Schema) -> None:
    if width != schema.n_features:
        shown = ", ".join(map(repr, schema.names[:8])) + (", ..." if schema.n_features > 8 else "")
        raise DataError(
            f"the array has {width} columns but the model takes {schema.n_features}, in this "
            f"order: {shown}"
        )


def _convert_codes(
    table: Table, name: str, codes: npt.NDArray[np.int32], unknown: str
) -> npt.NDArray[np.float64]:
    unseen = codes == UNSEEN
    if unknown == "error" and unseen.any():
        row = int(unseen.argmax())
        value = table.cells[table.find_column(name)][row]
        raise DataError(
            f"column {name!r} holds {value!r} in row {table.first_row + row} (counting from 0), a "
            "category not seen in training; correct it, or train with unknown='missing'"
        )
    return np.where(codes < 0, np.nan, codes)


def _check_missing(matrix: Floats, schema: Schema, missing: str, first_row: int = 0) -> Floats:
    if missing == "error":
        gone = np.isnan(matrix)
        if gone.any():
            row, feature = map(int, np.argwhere(gone)[0])
            raise DataError(
                f"column {schema.names[feature]!r} is missing in row {first_row + row} (counting "
                "from 0), and the model's policy is missing='error'; fill it in, or train with "
                "another policy"
            )
    return matrix
