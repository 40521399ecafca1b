"""A validation table in the terms of a training: rows that are held out of every tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.binning import Coding, make_table
from treekit.data.schema import Dtype
from treekit.grow.target_statistics import Target, class_blocks
from treekit.kernels.records import Rows, Table
from treekit.model.fixed_point import threshold_between

__all__ = [
    "Held",
    "held_table",
    "held_target",
]


@dataclass(frozen=True)
class Held:
    """Rows of a validation table.

    Attributes
    ----------
    table : Table
        Its columns; codes of the same type as those of the training table.
    target : Target
        On the scale of the training target.
    """

    table: Table
    target: Target

    def rows(self) -> Rows:
        """All of them, in arrays of their own: growth permutes them."""
        return self.target.rows(np.arange(len(self.target.values), dtype=np.uint32), None)


def held_table(
    columns: Sequence[npt.NDArray[Any]], table: Table, coding: Coding, dtype: Dtype
) -> tuple[Table, Table]:
    """The training table and a validation table, with codes of one type.

    Exact coding: each value of the validation table has a code of its own, so
    that any threshold divides them as it divides the values.  Histogram
    coding: a value between two bins belongs to the bin on its side of the
    threshold that divides them.

    Parameters
    ----------
    columns : sequence of (rows,) arrays
        As in `treekit.data.binning.make_table`.
    table : Table
        Of the training columns.
    dtype : {"float32", "float64"}
        The model's input type.
    """
    nominal = table.nominal > 0
    n_levels = np.where(nominal, table.n_codes, 0).astype(np.int64)
    held = make_table(columns, n_levels, nominal, "exact")._replace(nominal=table.nominal)
    if coding == "exact":
        common = np.promote_types(table.codes.dtype, held.codes.dtype)
        return (
            table._replace(codes=table.codes.astype(common, copy=False)),
            held._replace(codes=held.codes.astype(common, copy=False)),
        )
    codes = np.empty((len(columns), len(columns[0])), dtype=table.codes.dtype)
    for f, column in enumerate(columns):
        codes[f] = held.codes[f] if nominal[f] else _bin_of(column, table, f, dtype)
    return table, table._replace(codes=codes)


def _bin_of(
    column: npt.NDArray[Any], table: Table, feature: int, dtype: Dtype
) -> npt.NDArray[np.int64]:
    """Training bin of each value; the number of bins for missing ones."""
    start, size = int(table.value_start[feature]), int(table.n_codes[feature])
    if size == 0:
        return np.zeros(len(column), dtype=np.int64)
    bins = slice(start, start + size)
    between = threshold_between(table.high[bins][:-1], table.low[bins][1:], dtype)
    codes = np.searchsorted(between, column.astype(np.float64), side="left")
    return np.where(column != column, size, codes)


def held_target(
    target: Target,
    y: npt.NDArray[np.int32] | npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64] | None,
) -> Target:
    """Other rows' statistics on the scale of a training target.

    Parameters
    ----------
    y : (rows,) or (rows, targets) int32 or float64
        Class codes, or numbers; of a task what its layout places: cells, or (rows, S)
        statistics.
    weights : (rows,) float64, or None = 1
    """
    w = np.ones(len(y)) if weights is None else weights
    if not target.dense:
        return replace(target, cells=y.astype(np.uint32), values=w[:, None], draw_weights=None)
    if target.blocks is not None and target.blocks.classes:
        values = class_blocks(np.asarray(y, dtype=np.int32), target.blocks, w)
        return replace(target, values=values, draw_weights=None)
    if target.layout is not None:
        return replace(target, values=w[:, None] * y, draw_weights=None)
    parts = [w, (w * (y - target.center).T).T]
    if target.quantile is not None:
        parts.insert(1, np.asarray(y, dtype=np.float64))
    values = np.column_stack(parts)
    return replace(target, values=values, draw_weights=None)
