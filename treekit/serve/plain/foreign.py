"""Rows as JSON objects to the inputs of a foreign ONNX file: one input a column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.serve.errors import InvalidRequestError
from treekit.serve.models.served import Served
from treekit.serve.models.tensors import DATATYPES, Spec, Tensor
from treekit.serve.plain.bodies import near, quoted

__all__ = ["foreign_tensors"]


def foreign_tensors(served: Served, rows: Sequence[dict[str, Any]]) -> list[Tensor]:
    """The inputs of a model for rows of named cells.

    Raises
    ------
    InvalidRequestError
        If an input of the model is no column; and for rows that do not fit, by row, input
        and value.
    """
    for spec in served.inputs:
        if spec.shape not in ((-1,), (-1, 1)):
            raise InvalidRequestError(
                f"input {spec.name!r} of model {served.name!r} has shape {list(spec.shape)} and "
                f"is no column of rows; ask POST /v2/models/{served.name}/infer with tensors"
            )
    names = {spec.name for spec in served.inputs}
    for number, row in enumerate(rows):
        for name in row:
            if name not in names:
                raise InvalidRequestError(
                    f"row {number} (counting from 0) has {quoted(name)}, which is no input of "
                    f"model {served.name!r}; {near(name, names)}"
                )
    return [_tensor(served, spec, rows) for spec in served.inputs]


def _tensor(served: Served, spec: Spec, rows: Sequence[dict[str, Any]]) -> Tensor:
    values = []
    for number, row in enumerate(rows):
        if spec.name not in row:
            raise InvalidRequestError(
                f"row {number} (counting from 0) has no {spec.name!r}, an input of model "
                f"{served.name!r}; give null if its value is missing"
            )
        value = row[spec.name]
        if not _fits(spec.datatype, value):
            raise InvalidRequestError(
                f"row {number} (counting from 0): input {spec.name!r} holds {quoted(value)}, and "
                f"its type is {spec.datatype}"
            )
        values.append(value)
    cells = _cells(spec.datatype, values)
    return Tensor(spec.name, spec.datatype, cells.reshape([len(rows), *spec.shape[1:]]))


def _fits(datatype: str, value: Any) -> bool:
    if value is None:
        return True
    if datatype == "BYTES":
        return type(value) is str
    if datatype == "BOOL":
        return type(value) is bool
    dtype = DATATYPES[datatype]
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return type(value) is int and int(bounds.min) <= value <= int(bounds.max)
    try:
        return type(value) is float or (type(value) is int and math.isfinite(value))
    except OverflowError:
        return False


def _cells(datatype: str, values: list[Any]) -> npt.NDArray[Any]:
    """(rows,) as `Tensor` has them: with nulls doubles, or objects."""
    dtype = DATATYPES[datatype]
    if dtype.hasobject or (datatype == "BOOL" and None in values):
        cells = np.empty(len(values), dtype=object)
        cells[:] = values
        return cells
    if None in values:
        return np.array([np.nan if value is None else value for value in values], np.float64)
    with np.errstate(over="ignore"):
        return np.array(values, dtype=dtype)
