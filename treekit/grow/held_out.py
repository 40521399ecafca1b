"""Validation tables in the codes of a training: rows held out of every tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.binning import Coding, encode_columns
from treekit.data.cells import Columns
from treekit.data.schema import Dtype
from treekit.grow.target_statistics import TargetStatistics
from treekit.kernels.records import Rows, Table
from treekit.model.fixed_point import place_threshold


@dataclass(frozen=True)
class HeldOutRows:
    """The rows of a validation table.

    Attributes
    ----------
    table : Table
        Validation columns; codes have the type of the training table's codes.
    target : TargetStatistics
        Validation target, on the scale of the training target.
    """

    table: Table
    target: TargetStatistics

    def copy_rows(self) -> Rows:
        """Return a copy of all rows, since growth permutes them."""
        return self.target.select_rows(np.arange(len(self.target.values), dtype=np.uint32), None)


def encode_held_table(
    columns: Columns, table: Table, coding: Coding, dtype: Dtype, placement: int
) -> tuple[Table, Table]:
    """Encode validation columns; return the training and validation tables, with one code type.

    Exact coding: each distinct value of the validation table has its own code, so that any
    threshold separates codes as it separates values.  Histogram coding: a value between two
    bins belongs to the bin on its side of the threshold between them.

    Parameters
    ----------
    columns : sequence of (rows,) arrays
        Validation columns, as in `treekit.data.binning.encode_columns`.
    table : Table
        The coded training columns.
    dtype : {"float32", "float64"}
        The model's input type.
    placement : int
        Place of thresholds; see `treekit.kernels.thresholds`.
    """
    nominal = table.nominal > 0
    n_levels = np.where(nominal, table.n_codes, 0).astype(np.int64)
    held = encode_columns(columns, n_levels, nominal, "exact")._replace(nominal=table.nominal)
    if coding == "exact":
        common = np.promote_types(table.codes.dtype, held.codes.dtype)
        return (
            table._replace(codes=table.codes.astype(common, copy=False)),
            held._replace(codes=held.codes.astype(common, copy=False)),
        )
    codes = np.empty((len(columns), len(columns[0])), dtype=table.codes.dtype)
    for f, column in enumerate(columns):
        codes[f] = held.codes[f] if nominal[f] else _find_bins(column, table, f, dtype, placement)
    return table, table._replace(codes=codes)


def _find_bins(
    column: npt.NDArray[Any], table: Table, feature: int, dtype: Dtype, placement: int
) -> npt.NDArray[np.int64]:
    """Return the training bin of each value; missing values get the number of bins."""
    start, size = int(table.value_start[feature]), int(table.n_codes[feature])
    if size == 0:
        return np.zeros(len(column), dtype=np.int64)
    bins = slice(start, start + size)
    between = place_threshold(table.high[bins][:-1], table.low[bins][1:], dtype, placement)
    codes = np.searchsorted(between, column.astype(np.float64), side="left")
    return np.where(column != column, size, codes)
