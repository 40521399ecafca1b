"""Columns of a table as the inputs of whatever model, and its outputs as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.features import numeric_cells
from treekit.data.schema import level_text
from treekit.data.table import Table, near_names
from treekit.errors import DataError
from treekit.serve.models.tensors import Spec, Tensor, numpy_type

__all__ = ["columns_said", "inputs_of"]


def inputs_of(table: Table, specs: Sequence[Spec]) -> list[Tensor]:
    """The inputs of a model, by their names; a single one may take all columns in their order.

    Raises
    ------
    DataError
        If the table has no such columns, or cells that are not of their type.
    """
    if len(specs) == 1 and specs[0].name not in table.names:
        return [_whole(table, specs[0])]
    return [_one(table, spec) for spec in specs]


def _whole(table: Table, spec: Spec) -> Tensor:
    width = math.prod(spec.shape[1:])
    if len(spec.shape) > 2 or (width >= 0 and width != len(table.names)):
        raise DataError(
            f"the model takes one input {spec.name!r} of shape {list(spec.shape)}, and the table "
            f"has {len(table.names)} columns; give those that it takes, in its order"
        )
    cells = [_cells(table, name, spec.datatype) for name in table.names]
    stacked = np.stack(cells, axis=1) if len(spec.shape) == 2 else cells[0]
    return Tensor(spec.name, spec.datatype, stacked)


def _one(table: Table, spec: Spec) -> Tensor:
    if len(spec.shape) not in (1, 2) or math.prod(spec.shape[1:]) not in (1, -1):
        raise DataError(
            f"the model's input {spec.name!r} has shape {list(spec.shape)}, which is no column "
            "of a table; ask it by a client of your own"
        )
    if spec.name not in table.names:
        raise DataError(
            f"the table has no column {spec.name!r}, which the model needs; "
            f"{near_names(spec.name, table.names)}"
        )
    cells = _cells(table, spec.name, spec.datatype)
    return Tensor(spec.name, spec.datatype, cells.reshape(-1, *[1] * (len(spec.shape) - 1)))


def _cells(table: Table, name: str, datatype: str) -> npt.NDArray[Any]:
    """(rows,) of a column as the datatype has them; missing texts are empty."""
    dtype = numpy_type(name, datatype)
    if dtype.hasobject:
        texts = np.empty(table.n_rows, dtype=object)
        texts[:] = [level_text(cell) or "" for cell in table.cells[table.index(name)].tolist()]
        return texts
    typed = table.column(name)
    numbers = typed if typed.dtype.kind in "iu" else numeric_cells(table, name)
    with np.errstate(over="ignore", invalid="ignore"):
        cells: npt.NDArray[Any] = numbers.astype(dtype)
    if dtype.kind != "f":
        wrong = cells != numbers
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"column {name!r} holds {numbers[row]} in row {table.first_row + row} (counting "
                f"from 0), and the model takes {datatype} there"
            )
    return cells


def columns_said(outputs: Sequence[Tensor]) -> tuple[list[str], list[list[Any]]]:
    """Names and cells of the columns that outputs are: a wide one has its places in brackets."""
    names: list[str] = []
    columns: list[list[Any]] = []
    for output in outputs:
        wide = output.cells.reshape(len(output.cells), math.prod(output.shape[1:]))
        width = wide.shape[1]
        names += [f"{output.name}[{k}]" for k in range(width)] if width != 1 else [output.name]
        columns += wide.T.tolist()
    return names, columns
