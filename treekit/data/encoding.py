"""Encode rows of any table as the input matrix of a model and its artifacts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.data.features import UNSEEN, Floats, convert_to_numbers, encode_levels, round_to_dtype
from treekit.data.schema import Schema
from treekit.data.sparse import SparseColumns
from treekit.data.table import Table, read_table, suggest_names
from treekit.errors import DataError


def encode_rows(
    rows: Any,
    schema: Schema,
    *,
    missing: str = "direction",
    unknown: Literal["missing", "error"] = "missing",
    missing_marks: Collection[str] | None = None,
) -> Floats:
    """Encode the rows of any table for prediction.

    Columns are matched by name, in any order, and others are ignored; columns of a bare
    array or a list of lists are matched by position.

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
    positions = _match_columns(table, schema)
    if isinstance(table.cells, SparseColumns) and not schema.nominal.any():
        matrix = np.ascontiguousarray(round_to_dtype(table.cells.to_dense(), schema.dtype))
        return _check_missing(matrix, schema, missing, table.first_row)
    matrix = np.empty((table.n_rows, schema.n_features), dtype=schema.dtype)
    for feature, (position, column) in enumerate(zip(positions, schema.columns, strict=True)):
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


def _match_columns(table: Table, schema: Schema) -> list[int]:
    """Return the position in the table of each column of the schema."""
    if not table.named:
        _check_width(len(table.names), schema)
        return list(range(schema.n_features))
    position = {name: i for i, name in enumerate(table.names)}
    for name in schema.names:
        if name not in position:
            raise DataError(
                f"the table has no column {name!r}, which the model needs; "
                f"{suggest_names(name, table.names)}"
            )
    return [position[name] for name in schema.names]


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
