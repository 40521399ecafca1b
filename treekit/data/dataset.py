"""Datasets: a schema with coded columns, a target and weights."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.contracts import TaskColumn
from treekit.data.cells import MISSING_MARKS
from treekit.data.encoding import encode_rows
from treekit.data.features import (
    DeclaredKinds,
    Floats,
    InputType,
    check_unicode,
    convert_to_numbers,
    read_inputs,
)
from treekit.data.schema import Schema, Task
from treekit.data.table import Table, convert_to_cells, make_table, read_table
from treekit.data.target import CodedTarget, encode_targets, read_task_columns
from treekit.errors import DataError

__all__ = [
    "Dataset",
    "check_weights",
    "make_coded_dataset",
    "make_dataset",
    "make_dataset_from_xy",
    "make_validation",
]


# ---------------------------------------------------------------- dataset


@dataclass(frozen=True, eq=False)
class Dataset:
    """Coded rows for training.

    Attributes
    ----------
    schema : Schema
    columns : sequence of (rows,) arrays
        Numeric: ``schema.dtype``, finite or NaN (missing).  Nominal: int32
        codes, -1 = missing.  Read only; each access may create the column again
        (`treekit.data.features`).
    y : (rows,) int32 class codes or float64
        (rows, outputs) for several targets.
    weights : (rows,) float64, or None
        Row weights.
    factors : (rows,) float64, or None
        Additional factors of row weights in node statistics, such as class weights;
        they do not affect bootstrap samples or scores.
    task_columns : mapping of str to TaskColumn
        Additional columns that a task reads, by role.
    """

    schema: Schema
    columns: Sequence[npt.NDArray[Any]]
    y: npt.NDArray[np.int32] | npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64] | None = None
    factors: npt.NDArray[np.float64] | None = None
    task_columns: Mapping[str, TaskColumn] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    def to_matrix(self) -> npt.NDArray[Any]:
        """Return the input matrix (rows, features): codes as numbers, NaN = missing."""
        matrix = np.empty((self.n_rows, len(self.columns)), dtype=self.schema.dtype)
        for f, column in enumerate(self.columns):
            matrix[:, f] = column
            if column.dtype.kind == "i":
                matrix[column < 0, f] = np.nan
        return matrix

    def compute_digest(self) -> str:
        """Return a digest of inputs and target, the same for any order of the rows."""
        rows = np.zeros(self.n_rows, dtype=np.uint64)  # a hash of each row
        for column in [*self.columns, *self.y.reshape(self.n_rows, -1).T]:
            if column.dtype.kind == "i":
                rows ^= column.astype(np.int64).view(np.uint64)
            else:
                number = column.astype(np.float64) + 0.0  # -0.0 is 0.0
                number[np.isnan(number)] = np.nan  # one bit pattern for every NaN
                rows ^= number.view(np.uint64)
            rows *= np.uint64(0x9E3779B97F4A7C15)
            rows ^= rows >> np.uint64(32)
        rows.sort()
        names = "\0".join([*self.schema.names, *(one.name for one in self.schema.outputs)])
        return hashlib.sha256(names.encode() + b"\0" + rows.astype("<u8").tobytes()).hexdigest()

    def take(self, rows: npt.NDArray[Any]) -> Dataset:
        """Select rows, by number or by a bool for each row."""
        weights = None if self.weights is None else self.weights[rows]
        factors = None if self.factors is None else self.factors[rows]
        columns = tuple(column[rows] for column in self.columns)
        task_columns = {
            role: replace(column, values=column.values[rows])
            for role, column in self.task_columns.items()
        }
        return replace(
            self,
            columns=columns,
            y=self.y[rows],
            weights=weights,
            factors=factors,
            task_columns=task_columns,
        )

    @property
    def statistical_weights(self) -> npt.NDArray[np.float64] | None:
        """Weights times factors, (rows,) float64; None if all are 1."""
        if self.factors is None or self.weights is None:
            return self.weights if self.factors is None else self.factors
        return np.asarray(self.weights * self.factors)


def make_dataset(
    source: Any,
    target: str | Sequence[str],
    *,
    task: Task | None = None,
    nominal: Sequence[str] | None = None,
    numeric: Sequence[str] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
    classes: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    weights: Any = None,
    ignore: Collection[str] = (),
    dtype: InputType = "auto",
    missing_marks: Collection[str] = MISSING_MARKS,
    task_columns: Mapping[str, str] | None = None,
) -> Dataset:
    """Make training data from a table that contains the target.

    Text, bools and categories are nominal, numbers numeric; a CSV column is numeric if
    every non-missing cell is a number.

    Parameters
    ----------
    source : table
        Anything accepted by `treekit.data.table.read_table`.
    target : str, or sequence of str
        Name of the target column, or names of several: all classes or all numbers.
    task : {"classification", "regression"}, optional
        Default: inferred from the target; see `treekit.data.target.encode_target`.
    nominal, numeric : sequence of str, optional
        Columns of this kind, whatever their cells are.
    levels : mapping of str to sequence, optional
        Categories in declared order; makes the columns nominal.
    classes : sequence, or mapping of str to sequence, optional
        All class labels in declared order (ties go to the first); for several targets a
        mapping by name.
    weights : str or (rows,) array, optional
        Name of a column (which is then no input), or the weights themselves.
    ignore : collection of str
        Columns that are not inputs.
    dtype : {"auto", "float32", "float64"}
        Input type; ``auto`` is float32 unless a column would lose precision or range.
    missing_marks : collection of str
        Texts that mean missing, here and in all later inputs of the model.
    task_columns : mapping of str to str, optional
        Additional columns that a task reads, by role; they are not inputs.

    Raises
    ------
    DataError
        For tables, columns, targets or weights that cannot be used.
    """
    table = read_table(source, missing=missing_marks)
    names = _parse_target_names(target)
    for name in names:
        table.find_column(name, "target column")
    _check_has_rows(table)
    outside = set(names)
    for name in ignore:
        table.find_column(name, "column to ignore")
        outside.add(name)
    if isinstance(weights, str):
        table.find_column(weights, "weight column")
        outside.add(weights)
        weights = convert_to_numbers(table, weights)
    columns = read_task_columns(table, task_columns or {})
    for role, column in columns.items():
        if column.name in names:
            raise DataError(f"column {column.name!r} is the target; choose another as {role}")
        outside.add(column.name)
    inputs = [name for name in table.names if name not in outside]
    kinds = DeclaredKinds(nominal or (), numeric or (), levels or {})
    coded = encode_targets(table, names, task, classes)
    return replace(
        _assemble_dataset(table, inputs, kinds, coded, weights, dtype), task_columns=columns
    )


def _parse_target_names(target: str | Sequence[str]) -> list[str]:
    if not isinstance(target, (list, tuple)):
        return [str(target)]
    names = [str(name) for name in target]
    if not names:
        raise DataError("no target is given; name the column to predict")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"the target {twice!r} is named twice; name each target once")
    return names


def make_dataset_from_xy(
    x: Any,
    y: Any,
    *,
    target: str | None = None,
    task: Task | None = None,
    nominal: Sequence[str] | None = None,
    numeric: Sequence[str] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
    classes: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    weights: Any = None,
    dtype: InputType = "auto",
    missing_marks: Collection[str] = MISSING_MARKS,
) -> Dataset:
    """Make training data from separate inputs and target, as in scikit-learn.

    Parameters
    ----------
    x : table
        All columns are inputs; those of a bare array are named ``x0, x1, ...``.
    y : (rows,) or (rows, outputs) array, list, series or dataframe
    target : str, optional
        Name of the target; default: the name of the series, else ``target``.  Several
        targets have the names of the dataframe's columns, else ``target0``, ``target1``, ...

    The other parameters are those of `make_dataset`.
    """
    table = read_table(x, missing=missing_marks)
    _check_has_rows(table)
    named = _name_targets(y, target)
    rows = len(named[0][1])
    if rows != table.n_rows:
        raise DataError(f"the target has {rows} rows, but the inputs have {table.n_rows}")
    names = [name for name, _, _ in named]
    declared = {name: levels for name, _, levels in named if levels is not None}
    column = make_table(names, [cells for _, cells, _ in named], levels=declared or None)
    coded = encode_targets(read_table(column, missing=missing_marks), names, task, classes)
    kinds = DeclaredKinds(nominal or (), numeric or (), levels or {})
    return _assemble_dataset(table, list(table.names), kinds, coded, weights, dtype)


def _name_targets(y: Any, target: str | None) -> list[tuple[str, Any, Any]]:
    """Return the name, cells and declared categories of each target of `y`."""
    name = target or getattr(y, "name", None)
    name = name if isinstance(name, str) and name else "target"
    if isinstance(y, (list, tuple)) and y and isinstance(y[0], (list, tuple)):
        y = np.array(y, dtype=object)  # rows of several targets
    cells, declared = convert_to_cells(name, y)
    if cells.ndim == 1:
        return [(name, cells, declared)]
    if cells.ndim != 2 or cells.shape[1] == 0:
        raise DataError(
            f"the target has shape {cells.shape}; it must be (rows,) or (rows, outputs)"
        )
    if cells.shape[1] == 1:
        return [(name, cells[:, 0], declared)]
    columns = [str(column) for column in getattr(y, "columns", ())]
    if len(set(columns)) != cells.shape[1]:
        columns = [f"{name}{k}" for k in range(cells.shape[1])]
    return [(columns[k], cells[:, k], None) for k in range(cells.shape[1])]


def _check_has_rows(table: Table) -> None:
    if table.n_rows == 0:
        raise DataError("the table has no rows; training needs at least one")


def _assemble_dataset(
    table: Table,
    inputs: list[str],
    kinds: DeclaredKinds,
    target: CodedTarget,
    weights: Any,
    dtype: InputType,
) -> Dataset:
    if not inputs:
        raise DataError("no input columns remain besides the target; a model needs at least one")
    kinds.check_names(inputs)
    for name in (*inputs, *(output.name for output in target.outputs)):
        check_unicode(name, "a column name")
    columns, input_type, cells = read_inputs(table, inputs, kinds, dtype)
    schema = Schema(
        columns=columns,
        target=target.outputs[0].name,
        task=target.task,
        classes=target.outputs[0].classes,
        dtype=input_type,
        missing_marks=_sort_marks(table.missing),
        more=target.outputs[1:],
    )
    return Dataset(schema, cells, target.y, check_weights(weights, table.n_rows))


def _sort_marks(marks: frozenset[str]) -> tuple[str, ...]:
    """Sort marks of missing values, so that equal models are equal files."""
    for mark in marks:
        check_unicode(mark, "a mark of missing values")
    return MISSING_MARKS if marks == frozenset(MISSING_MARKS) else tuple(sorted(marks))


def check_weights(weights: Any, n_rows: int) -> npt.NDArray[np.float64] | None:
    """Validate weights (rows,) and convert them to float64.

    Raises
    ------
    DataError
        If a weight is negative or not finite (names the row), or all are zero.
    """
    if weights is None:
        return None
    cells, _ = convert_to_cells("weights", weights)
    if cells.shape != (n_rows,):
        raise DataError(
            f"weights have shape {cells.shape}, not ({n_rows},); give one number per row"
        )
    values = convert_to_numbers(make_table(["weights"], [cells]), "weights").astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"the weight of row {row} (counting from 0) is {values[row]}; weights must be finite "
            "and not negative"
        )
    if not values.any():
        raise DataError("all weights are zero; at least one row needs a positive weight")
    return values


# ---------------------------------------------------------------- validation
# Further tables in the codes, classes and input type of a training table.


def make_validation(
    source: Any,
    schema: Schema,
    *,
    weights: str | None = None,
    missing: str = "direction",
    unknown: Literal["missing", "error"] = "missing",
    noun: str = "the validation table",
    task_columns: Mapping[str, TaskColumn | str] | None = None,
) -> Dataset:
    """Encode rows by a model's schema, to validate a training or to score a model.

    Parameters
    ----------
    source : table
        Anything accepted by `treekit.data.table.read_table`, with the target; columns
        that are not in the schema are ignored.
    schema : Schema
        Schema of the training table.
    weights : str, optional
        Column of row weights; by default each row has weight 1.
    missing, unknown : str
        Policies, as in `treekit.data.encoding.encode_rows`: a category not seen in
        training is missing, or an error.
    noun : str
        Name of the table in error messages.
    task_columns : mapping of str to TaskColumn or str, optional
        Additional columns that a task read in training, or their names.

    Raises
    ------
    DataError
        If the table has no rows, lacks a column, or holds a class that is not in the
        training table.
    """
    table = read_table(source, missing=schema.missing_marks)
    if table.n_rows == 0:
        raise DataError(f"{noun} has no rows; give at least one, or leave it out")
    names = [output.name for output in schema.outputs]
    for name in names:
        table.find_column(name, "target column", noun)
    matrix = encode_rows(table, schema, missing=missing, unknown=unknown)
    classes = {output.name: output.classes for output in schema.outputs if output.classes}
    try:
        y = encode_targets(table, names, schema.task, classes or None).y
        given = task_columns or {}
        known = {role: c for role, c in given.items() if isinstance(c, TaskColumn)}
        others = {role: c for role, c in given.items() if isinstance(c, str)}
        columns = read_task_columns(table, {r: c.name for r, c in known.items()} | others, known)
    except DataError as error:
        raise DataError(f"in {noun}, {error}") from error
    own = None
    if weights is not None:
        table.find_column(weights, "weight column", noun)
        own = check_weights(convert_to_numbers(table, weights), table.n_rows)
    return replace(make_coded_dataset(matrix, y, schema, own), task_columns=columns)


def make_coded_dataset(
    matrix: Floats,
    y: npt.NDArray[np.int32] | npt.NDArray[np.float64],
    schema: Schema,
    weights: npt.NDArray[np.float64] | None = None,
) -> Dataset:
    """Make a dataset of encoded rows (rows, features), see `encode_rows`, and a coded target."""
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
