"""A second table read as a training table was: its codes, its classes, its input type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.contracts import TaskColumn
from treekit.data.beside import read_beside
from treekit.data.dataset import Dataset, check_weights
from treekit.data.encode import encode_rows
from treekit.data.numbers import Floats, numeric_cells
from treekit.data.schema import Schema
from treekit.data.table import read_table
from treekit.data.target import make_targets
from treekit.errors import DataError

__all__ = ["coded_dataset", "make_validation"]


def make_validation(
    source: Any,
    schema: Schema,
    *,
    weights: str | None = None,
    missing: str = "direction",
    unknown: Literal["missing", "error"] = "missing",
    noun: str = "the validation table",
    beside: Mapping[str, TaskColumn | str] | None = None,
) -> Dataset:
    """Rows to validate a training by, or to score a model on, in the terms of its schema.

    Parameters
    ----------
    source : table
        Anything `treekit.data.table.read_table` takes, target included; other
        columns than the schema's are ignored.
    schema : Schema
        Of the training table.
    weights : str, optional
        Column of row weights; without it each row weighs 1.
    missing, unknown : str
        Policies, as in `treekit.data.encode.encode_rows`: a category that
        training did not see is missing, or an error.
    noun : str
        What errors call the table.
    beside : mapping of str to TaskColumn or str, optional
        What training read beside the target, or the names of such columns.

    Raises
    ------
    DataError
        If the table has no rows, lacks a column, or holds a class that the
        training table does not have.
    """
    table = read_table(source, missing=schema.missing_marks)
    if table.n_rows == 0:
        raise DataError(f"{noun} has no rows; give at least one, or leave it out")
    names = [output.name for output in schema.outputs]
    for name in names:
        table.index(name, "target column", noun)
    matrix = encode_rows(table, schema, missing=missing, unknown=unknown)
    classes = {output.name: output.classes for output in schema.outputs if output.classes}
    try:
        y = make_targets(table, names, schema.task, classes or None).y
        given = beside or {}
        known = {role: c for role, c in given.items() if isinstance(c, TaskColumn)}
        others = {role: c for role, c in given.items() if isinstance(c, str)}
        columns = read_beside(table, {r: c.name for r, c in known.items()} | others, known)
    except DataError as error:
        raise DataError(f"in {noun}, {error}") from error
    own = None
    if weights is not None:
        table.index(weights, "weight column", noun)
        own = check_weights(numeric_cells(table, weights), table.n_rows)
    return replace(coded_dataset(matrix, y, schema, own), beside=columns)


def coded_dataset(
    matrix: Floats,
    y: npt.NDArray[np.int32] | npt.NDArray[np.float64],
    schema: Schema,
    weights: npt.NDArray[np.float64] | None = None,
) -> Dataset:
    """A dataset of encoded rows (rows, features), see `encode_rows`, and of a coded target."""
    columns = []
    for feature, nominal in enumerate(schema.nominal):
        column = matrix[:, feature]
        if nominal:
            known = column == column
            codes = np.full(len(column), -1, dtype=np.int32)
            codes[known] = column[known].astype(np.int32)
            column = codes
        columns.append(column)
    return Dataset(schema, tuple(columns), y, weights)
