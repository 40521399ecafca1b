"""Encoded matrices that a model may score: of its width and type, and of cells that it allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import DataError

if TYPE_CHECKING:
    from treekit.model.ensemble import Model

__all__ = ["Matrix", "accepted"]

Matrix = npt.NDArray[np.floating[Any]]


def accepted(model: Model, matrix: Matrix) -> Matrix:
    """`matrix` in the model's input type and C order, if its policies allow each cell.

    Raises
    ------
    DataError
        If the shape or type is wrong, or the model's policy refuses a cell.
    """
    schema = model.schema
    if getattr(matrix, "dtype", None) not in (np.float32, np.float64):
        raise DataError(
            "an encoded matrix is a float32 or float64 array; "
            "use predict for tables, or encode_rows first"
        )
    if matrix.ndim != 2 or matrix.shape[1] != schema.n_features:
        raise DataError(
            f"the matrix has shape {matrix.shape}; the model needs (rows, {schema.n_features})"
        )
    with np.errstate(over="ignore"):  # beyond the largest float32 is infinite there too
        result = np.ascontiguousarray(matrix, dtype=schema.dtype)
    if model.unknown == "error":
        _refuse_unknown(result, schema)
    if model.missing == "error":
        _refuse_missing(result, schema)
    return result


def _unknown_codes(codes: npt.NDArray[Any], n_levels: int) -> npt.NDArray[np.bool_]:
    known = (codes >= 0) & (codes < n_levels) & (codes == np.floor(codes))
    unknown: npt.NDArray[np.bool_] = ~known & ~np.isnan(codes)
    return unknown


def _refuse_unknown(matrix: Matrix, schema: Schema) -> None:
    for f in np.flatnonzero(schema.nominal):
        column = schema.columns[f]
        unknown = _unknown_codes(matrix[:, f], len(column.levels))
        if unknown.any():
            row = int(unknown.argmax())
            raise DataError(
                f"row {row}: {matrix[row, f]} is not a code of column {column.name!r} "
                f"({len(column.levels)} levels), and the model's unknown policy is 'error'"
            )


def _refuse_missing(matrix: Matrix, schema: Schema) -> None:
    for f, column in enumerate(schema.columns):
        missing = np.isnan(matrix[:, f])
        if column.kind == "nominal":
            missing |= _unknown_codes(matrix[:, f], len(column.levels))
        if missing.any():
            raise DataError(
                f"row {int(missing.argmax())}: column {column.name!r} is missing, and the "
                "model's missing policy is 'error'; fill it, or train with missing='direction'"
            )
