"""Datasets: targets, and a schema with coded columns, a target and weights."""

from __future__ import annotations

import hashlib
import math
import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.contracts import TaskColumn
from treekit.data.cells import Cells, Columns, is_text, map_cells, normalize_value_text
from treekit.data.column_warnings import find_target_warnings
from treekit.data.encoding import encode_rows, read_rows_for
from treekit.data.features import (
    DeclaredKinds,
    Floats,
    InputType,
    LazyColumns,
    LevelIndex,
    check_not_infinite,
    check_unicode,
    convert_to_numbers,
    read_inputs,
    read_small_matrix,
    round_to_dtype,
    sort_texts,
)
from treekit.data.schema import (
    MISSING_MARKS,
    Column,
    Dtype,
    Notation,
    Output,
    Schema,
    Task,
    level_text,
    python_label,
)
from treekit.data.sparse import SparseColumns
from treekit.data.table import Table, convert_to_cells, is_dataframe, make_table, read_table
from treekit.data.text_format import TextFormat
from treekit.errors import DataError, SettingError, find_repeated, warn

# ---------------------------------------------------------------- target

MAX_INTEGER_CLASSES = 20
"""An integer column with more distinct values than this is a regression target."""


@dataclass(frozen=True, eq=False)
class CodedTarget:
    """One or several coded target columns.

    Attributes
    ----------
    task : {"classification", "regression"}
    outputs : tuple of Output
        Names, and class labels (none for regression).
    y : (rows,) int32 or float64
        Class codes, or numbers; (rows, outputs) for several targets.
    """

    task: Task
    outputs: tuple[Output, ...]
    y: npt.NDArray[np.int32] | npt.NDArray[np.float64]


def encode_targets(
    table: Table,
    names: Sequence[str],
    task: Task | None = None,
    classes: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
) -> CodedTarget:
    """Encode the target columns `names`, all classes or all numbers; see `encode_target`.

    Parameters
    ----------
    classes : sequence, or mapping of str to sequence
        Declared classes; for several targets a mapping by name.

    Raises
    ------
    DataError
        If some targets are classes and others numbers.
    SettingError
        If there are several targets and `classes` is not a mapping by name.
    """
    declared = _get_classes_by_name(names, classes)
    targets = [encode_target(table, name, task, declared.get(name)) for name in names]
    for name, other in zip(names, targets, strict=True):
        if other.task != targets[0].task:
            raise DataError(
                f"the target {names[0]!r} is for {targets[0].task} and {name!r} for {other.task}; "
                "all targets of a model need the same task: set task, or train a model for each"
            )
    if len(targets) == 1:
        return targets[0]
    outputs = tuple(target.outputs[0] for target in targets)
    y: Any = np.stack([target.y for target in targets], axis=1)
    return CodedTarget(targets[0].task, outputs, y)


def _get_classes_by_name(
    names: Sequence[str], classes: Sequence[Any] | Mapping[str, Sequence[Any]] | None
) -> Mapping[str, Sequence[Any]]:
    if classes is None:
        return {}
    if not isinstance(classes, Mapping):
        if len(names) == 1:
            return {names[0]: classes}
        raise SettingError(
            f"classes are declared, but there are {len(names)} targets; give the classes of each "
            f"by name, such as {{{names[0]!r}: [...]}}"
        )
    if strangers := [name for name in classes if name not in names]:
        raise SettingError(f"classes are declared for {strangers[0]!r}, which is not a target")
    return classes


def encode_target(
    table: Table, name: str, task: Task | None = None, classes: Sequence[Any] | None = None
) -> CodedTarget:
    """Encode the target column `name`.

    Without `task`, text, bools and categories are classes, floats are numbers, and integers
    are classes if there are at most `MAX_INTEGER_CLASSES` different ones.

    Raises
    ------
    DataError
        For missing or infinite values (gives count and first row), and for labels not
        declared in `classes`.
    """
    if task not in (None, "classification", "regression"):
        raise SettingError(f"unknown task {task!r}; known: classification, regression")
    cells = table.get_typed_cells(name)
    check_no_missing(name, cells)
    if task is None:
        task = infer_task(table, name, cells, classes)
        if classes is None:
            numeric = task == "regression"
            for text in find_target_warnings(table, name, cells, numeric=numeric):
                warn(text)
    if task == "regression":
        if classes is not None:
            raise SettingError("classes are declared, but the task is regression; drop one of them")
        y = convert_to_numbers(table, name).astype(np.float64, copy=False)
        check_not_infinite(y, f"the target {name!r}", "a regression target must be finite")
        return CodedTarget(task, (Output(name),), y)
    return _encode_classes(table, name, cells, classes)


def check_no_missing(name: str, cells: Cells, role: str = "the target") -> None:
    """Raise `DataError` if a cell of a target, or of another column of `role`, is missing."""
    gone = cells == None if cells.dtype.kind == "O" else cells != cells  # noqa: E711
    if gone.any():
        raise DataError(
            f"{role} {name!r} is missing in {int(gone.sum())} of {len(cells)} rows, first in "
            f"row {int(gone.argmax())} (counting from 0); fill in the values, or drop the rows"
        )


def infer_task(table: Table, name: str, cells: Cells, classes: Sequence[Any] | None) -> Task:
    """Return the task of a target of these typed cells; see `encode_target`."""
    if classes is not None or name in table.levels or cells.dtype.kind in "Ob":
        return "classification"
    if cells.dtype.kind == "f":
        return "regression"
    few = len(np.unique(cells)) <= MAX_INTEGER_CLASSES
    return "classification" if few else "regression"


def _encode_classes(
    table: Table, name: str, cells: Cells, classes: Sequence[Any] | None
) -> CodedTarget:
    is_number_text = name in table.untyped and cells.dtype.kind in "iuf"
    if is_number_text:
        cells = _keep_label_texts(table, name, cells)
    if cells.dtype.kind == "f":
        if np.isinf(cells).any():
            raise DataError(f"the target {name!r} holds an infinite label; labels must be finite")
        _check_label_size(table, name, cells)
        if name not in table.untyped and np.all(cells == np.floor(cells)):
            cells = cells.astype(np.int64)
    if not is_text(cells):
        present = np.unique(cells).tolist()
    else:
        present = sort_texts(set(cells)) if is_number_text else sorted(set(cells))
    labels = tuple(python_label(label) for label in _order_labels(table, name, present, classes))
    for label in labels:
        if isinstance(label, str):
            check_unicode(label, f"a label of the target {name!r}")
    code = {label: position for position, label in enumerate(labels)}
    outputs = (Output(name, labels),)
    return CodedTarget("classification", outputs, map_cells(cells, code.__getitem__, np.int32))


def _keep_label_texts(table: Table, name: str, cells: Cells) -> Cells:
    """Return the labels of an untyped column as texts, unless all are as Python writes numbers.

    ``01`` and ``1`` are two labels, and so are ``1.10`` and ``1.1``.
    """
    write = repr if cells.dtype.kind == "f" else str
    known = {write(value) for value in np.unique(cells).tolist()}
    if {text.strip() for text in table.count_texts(name)} <= known:
        return cells
    return table.cells[table.find_column(name)]


def _check_label_size(table: Table, name: str, cells: npt.NDArray[np.floating[Any]]) -> None:
    """Raise `DataError` for labels from 2**53 on: as float64, different ones may be equal."""
    huge = np.abs(cells) >= 2.0**53
    if huge.any():
        row = int(huge.argmax())
        value = table.cells[table.find_column(name)][row : row + 1].tolist()[0]
        raise DataError(
            f"the target {name!r} holds the label {value!r} in row {row} (counting from 0); from "
            "2**53 on, different numbers may be equal as float64: give the labels as text"
        )


def _order_labels(
    table: Table, name: str, present: list[Any], classes: Sequence[Any] | None
) -> list[Any]:
    """Return the labels in declared order, as values of the column's type."""
    by_text = {level_text(label): label for label in present}
    if classes is None:
        order = [level_text(level) for level in table.levels.get(name, ())]
        declared = [by_text[text] for text in order if text in by_text]
        return declared if len(declared) == len(present) else present
    kind = type(present[0])
    index = LevelIndex([text for text in by_text if text is not None])
    order = [_match_declared_class(label, index, kind) for label in classes]
    if len(set(order)) != len(order) or None in order:
        raise DataError(
            f"the declared classes {list(classes)!r} repeat a label or hold a missing one"
        )
    unknown = [label for text, label in by_text.items() if text not in order]
    if unknown:
        raise DataError(
            f"the target {name!r} holds {unknown[0]!r}, which is not among the declared classes "
            f"{list(classes)!r}; declare it, or drop its rows"
        )
    return [
        by_text[text] if text in by_text else _cast_label(text, kind)
        for text in order
        if text is not None
    ]


def _match_declared_class(label: Any, index: LevelIndex, kind: type) -> str | None:
    """Return the text of the label in `index` that equals a declared class, else the class's text.

    3.0 and "3" are equal to the label 3, "true" to the label True.  None if the class is missing.
    """
    at, text = index.code(label), level_text(label)
    if at >= 0:
        return index.levels[at]
    return text if text is None or kind is str else normalize_value_text(text) or text


def _cast_label(text: str, kind: type) -> Any:
    """Convert a declared class without rows to the type of the other labels.

    The text must be that label's exact notation: 3.5 is not an integer, and only ``True``
    and ``False`` are bools.
    """
    try:
        label = text == "True" if kind is bool else kind(text)
    except ValueError:
        label = None
    if level_text(label) != text:
        raise DataError(
            f"the declared class {text!r} is not of type {kind.__name__}, the type of the target's "
            "labels; correct it, or leave it out"
        )
    return label


# ---------------------------------------------------------------- additional columns
# Columns that a task reads besides the target: an event, a treatment, a protected group.


def read_task_columns(
    table: Table, names: Mapping[str, str], known: Mapping[str, TaskColumn] | None = None
) -> dict[str, TaskColumn]:
    """Read the columns `names` (role to name) of a table, by role.

    Parameters
    ----------
    known : mapping of str to TaskColumn, optional
        The columns of the training table, whose categories define the codes of text.

    Raises
    ------
    DataError
        If a column does not exist, or a cell is missing, infinite, or a category not seen
        in training.
    """
    known = known or {}
    return {
        role: _read_task_column(table, role, name, known.get(role)) for role, name in names.items()
    }


def _read_task_column(table: Table, role: str, name: str, known: TaskColumn | None) -> TaskColumn:
    table.find_column(name, f"{role} column")
    cells = table.get_typed_cells(name)
    check_no_missing(name, cells, f"the {role} column")
    labelled = is_text(cells) or cells.dtype.kind in "Ob" or bool(table.levels.get(name))
    if known is not None and labelled != bool(known.levels):
        raise DataError(
            f"the {role} column {name!r} held {'labels' if known.levels else 'numbers'} in "
            f"training and holds {'labels' if labelled else 'numbers'} here; use the same type"
        )
    if not labelled:
        values = convert_to_numbers(table, name).astype(np.float64)
        check_not_infinite(values, f"the {role} column {name!r}", "its numbers must be finite")
        return TaskColumn(name, values)
    present = sorted(set(cells.tolist()))
    levels = known.levels if known else tuple(python_label(level) for level in present)
    code = {level: position for position, level in enumerate(levels)}
    if strange := [level for level in present if level not in code]:
        raise DataError(
            f"the {role} column {name!r} holds {strange[0]!r}; expected one of the categories "
            "seen in training: " + ", ".join(map(repr, levels))
        )
    return TaskColumn(name, map_cells(cells, code.__getitem__, np.int32), levels)


# ---------------------------------------------------------------- dataset


@dataclass(frozen=True, eq=False)
class Dataset:
    """Coded rows for training.

    Attributes
    ----------
    schema : Schema
    columns : sequence of (rows,) arrays, or (features, rows) array of numbers
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
    columns: Columns
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

    def iterate_matrices(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the input matrix, in blocks of rows if the inputs are a sparse matrix."""
        table = self.columns.table if isinstance(self.columns, LazyColumns) else None
        if table is None or not isinstance(table.cells, SparseColumns) or self.schema.nominal.any():
            yield self.to_matrix()
            return
        for _, part in table.cells.iterate_blocks():
            yield np.ascontiguousarray(round_to_dtype(part.to_dense(), self.schema.dtype))

    def compute_digest(self) -> str:
        """Return a digest of inputs and target, the same for any order of the rows."""
        return digest_rows(self.schema, [np.sort(self.hash_rows())])

    def hash_rows(self) -> npt.NDArray[np.uint64]:
        """Return a hash of inputs and target of each row."""
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
        return rows

    def take(self, rows: npt.NDArray[Any] | slice) -> Dataset:
        """Select rows, by number, by a bool for each row or by a slice."""
        task_columns = {
            role: replace(column, values=column.values[rows])
            for role, column in self.task_columns.items()
        }
        return replace(
            self,
            columns=tuple(column[rows] for column in self.columns),
            y=self.y[rows],
            weights=None if self.weights is None else self.weights[rows],
            factors=None if self.factors is None else self.factors[rows],
            task_columns=task_columns,
        )

    def scale_weights(self, *, relative: bool = False) -> Dataset:
        """Scale relative weights to mean 1, for a training; see `find_weight_unit`."""
        if self.weights is None:
            return self
        unit = find_weight_unit(self.weights, relative=relative)
        return self if unit is None else replace(self, weights=unit.scale(self.weights))

    @property
    def has_relative_weights(self) -> bool:
        """Whether some weight is not a whole number, after `scale_weights`."""
        return self.weights is not None and not are_copies(self.weights)

    @property
    def statistical_weights(self) -> npt.NDArray[np.float64] | None:
        """Row weights of the node statistics: weights times factors, (rows,); None if all are 1."""
        if self.factors is None or self.weights is None:
            return self.weights if self.factors is None else self.factors
        return np.asarray(self.weights * self.factors)


def digest_rows(schema: Schema, ordered: Iterable[npt.NDArray[np.uint64]]) -> str:
    """Return the digest of a table from the hashes of its rows, ascending, in some arrays."""
    names = "\0".join([*schema.names, *(output.name for output in schema.outputs)])
    digest = hashlib.sha256(names.encode() + b"\0")
    for hashes in ordered:
        digest.update(hashes.astype("<u8", copy=False).data)
    return digest.hexdigest()


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
    missing_marks: Collection[str] | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    task_columns: Mapping[str, str] | None = None,
    keep_identifiers: bool = False,
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
        Default: inferred from the target; see `treekit.data.dataset.encode_target`.
    nominal, numeric : sequence of str, optional
        Columns of this kind, whatever their cells are.
    levels : mapping of str to sequence, optional
        Categories in declared order; makes the columns nominal.
    classes : sequence, or mapping of str to sequence, optional
        All class labels in declared order (ties go to the first); for several targets a
        mapping by name.
    weights : str or (rows,) array, optional
        Name of a column (which is then no input), or the weights themselves.  Whole numbers
        count copies of rows; others are relative (`find_weight_unit`).
    ignore : collection of str
        Columns that are not inputs.
    dtype : {"auto", "float32", "float64"}
        Input type; ``auto`` is float32 unless a column would lose precision or range.
    missing_marks : collection of str, optional
        Texts that mean missing, here and in all later inputs of the model; default: the usual
        ones (`treekit.data.text_format`), of which those of pandas and Arrow count among numbers.
    decimal, thousands : str, optional
        Notation of numbers in text, here and in all later inputs: the decimal mark, and the
        mark between groups of digits.
    task_columns : mapping of str to str, optional
        Additional columns that a task reads, by role; they are not inputs.
    keep_identifiers : bool
        Keep undeclared nominal columns with nearly as many categories as rows.

    Raises
    ------
    DataError
        For tables, columns, targets or weights that cannot be used.
    """
    table = read_table(source, missing=missing_marks, decimal=decimal, thousands=thousands)
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
        _assemble_dataset(
            table, inputs, kinds, coded, weights, dtype, keep_identifiers=keep_identifiers
        ),
        task_columns=columns,
    )


def _parse_target_names(target: str | Sequence[str]) -> list[str]:
    if not isinstance(target, (list, tuple)):
        if np.ndim(target) > 0:
            shown = " ".join(reprlib.repr(target).split())
            raise DataError(
                f"target is {shown}; give the name of a column, or for arrays use "
                "DecisionTreeClassifier().fit(X, y)"
            )
        return [str(target)]
    names = [str(name) for name in target]
    if not names:
        raise DataError("no target is given; name the column to predict")
    if (twice := find_repeated(names)) is not None:
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
    missing_marks: Collection[str] | None = None,
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
    targets = read_table(read_targets(y, target), missing=missing_marks)
    _check_has_rows(table)
    if targets.n_rows != table.n_rows:
        raise DataError(f"the target has {targets.n_rows} rows, but the inputs have {table.n_rows}")
    return add_inputs(
        encode_targets(targets, targets.names, task, classes),
        table,
        nominal=nominal,
        numeric=numeric,
        levels=levels,
        weights=weights,
        dtype=dtype,
    )


def add_inputs(
    target: CodedTarget,
    x: Any,
    *,
    nominal: Sequence[str] | None = None,
    numeric: Sequence[str] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
    weights: Any = None,
    dtype: InputType = "auto",
) -> Dataset:
    """Make training data from an encoded target and its inputs.

    The other parameters are those of `make_dataset_from_xy`.
    """
    small = None if nominal or levels else read_small_matrix(x, dtype)
    if small is not None:
        input_type, cells = small
        columns = tuple(Column(f"x{j}") for j in range(len(cells)))
        target = replace(target, y=target.y.copy())  # all is a copy: the model may be made later
        return _join_dataset(columns, input_type, cells, target, weights)
    table = read_table(x)
    _check_has_rows(table)
    kinds = DeclaredKinds(nominal or (), numeric or (), levels or {})
    return _assemble_dataset(
        table, list(table.names), kinds, target, weights, dtype, keep_identifiers=True
    )


def read_targets(y: Any, target: str | None = None) -> Table:
    """Read one or several targets as a table; see `make_dataset_from_xy` for their names.

    Parameters
    ----------
    y : array, list, series or dataframe
        (rows,), or (rows, outputs); each column of a dataframe keeps its type.
    target : str, optional
        Name of the target, or the first part of the names of several; a dataframe of
        several targets has its own.

    Raises
    ------
    DataError
        For other shapes, and cells that are not text, numbers, bools or missing.
    """
    name = target or getattr(y, "name", None)
    name = name if isinstance(name, str) and name else "target"
    if is_dataframe(y):
        table = read_table(y)
        if len(table.names) > 1 or target is None:
            return table
        levels = dict.fromkeys([name], *table.levels.values()) if table.levels else {}
        untyped = frozenset([name] if table.untyped else [])
        return replace(table, names=(name,), levels=levels, untyped=untyped)
    if isinstance(y, (list, tuple)) and y and isinstance(y[0], (list, tuple, np.ndarray)):
        y = np.array(y, dtype=object)  # rows of several targets
    cells, declared = convert_to_cells(name, y)
    if cells.ndim == 1:
        return make_table([name], [cells], levels=None if declared is None else {name: declared})
    if cells.ndim != 2 or cells.shape[1] == 0:
        raise DataError(
            f"the target has shape {cells.shape}; it must be (rows,) or (rows, outputs)"
        )
    several = cells.shape[1] > 1
    names = [f"{name}{k}" if several else name for k in range(cells.shape[1])]
    return make_table(names, cells.T)


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
    *,
    keep_identifiers: bool,
) -> Dataset:
    if not inputs:
        raise DataError("no input columns remain besides the target; a model needs at least one")
    kinds.check_names(inputs)
    for name in inputs:
        check_unicode(name, "a column name")
    columns, input_type, cells = read_inputs(
        table, inputs, kinds, dtype, keep_identifiers=keep_identifiers
    )
    return _join_dataset(columns, input_type, cells, target, weights, table.format)


def _join_dataset(
    columns: tuple[Column, ...],
    input_type: Dtype,
    cells: Columns,
    target: CodedTarget,
    weights: Any,
    how: TextFormat | None = None,
) -> Dataset:
    """Make the dataset of inputs as read and a coded target; `how` is the format of text."""
    for output in target.outputs:
        check_unicode(output.name, "a column name")
    form: dict[str, Any] = (
        {}
        if how is None
        else {
            "missing_marks": _sort_marks(how.marks),
            "notation": msgspec.UNSET if how.is_plain else Notation(how.decimal, how.thousands),
        }
    )
    schema = Schema(
        columns=columns,
        target=target.outputs[0].name,
        task=target.task,
        classes=target.outputs[0].classes,
        dtype=input_type,
        more=target.outputs[1:],
        **form,
    )
    return Dataset(schema, cells, target.y, check_weights(weights, len(target.y)))


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
    check_weight_range(values)
    check_some_weight(values)
    return values


def check_weight_range(values: npt.NDArray[np.float64]) -> None:
    """Raise `DataError` if a weight is negative or not finite."""
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"the weight of row {row} (counting from 0) is {values[row]}; weights must be finite "
            "and not negative"
        )


def check_some_weight(values: npt.NDArray[np.float64]) -> None:
    """Raise `DataError` if all weights are zero."""
    if not values.any():
        raise DataError("all weights are zero; at least one row needs a positive weight")


# ---------------------------------------------------------------- unit of weights
# The one rule for all trainings.  If all weights are whole numbers, a row of weight w counts as w
# copies of it.  Otherwise only the ratios of weights matter, such as those of surveys and of
# boosting, which often sum to 1: they are scaled to a mean of 1 over the rows of positive weight.

_MAX_COPIES = 2.0**52
"""Total from which whole numbers are relative, too: their sums would not be exact."""

_WEIGHT_BITS = 32
"""Significant bits of scaled weights, an accuracy of 2.3e-10.

The product with a constant rounds weights to 53 bits.  Fewer bits hide this, so that weights
times a constant are (but for one row in a million) the same scaled weights.
"""


@dataclass(frozen=True)
class WeightUnit:
    """The mean of relative weights, ``2**exponent / factor``; powers of two cannot overflow."""

    exponent: int
    factor: float

    def scale(self, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Divide weights by the unit, and round them to 32 bits; positive ones stay positive."""
        scaled = np.ldexp(weights, -self.exponent) * self.factor
        fraction, exponent = np.frexp(scaled)
        fraction = np.ldexp(np.rint(np.ldexp(fraction, _WEIGHT_BITS)), -_WEIGHT_BITS)
        least = np.where(weights > 0, np.finfo(np.float64).tiny, 0.0)
        return np.maximum(np.ldexp(fraction, exponent), least)


def are_copies(weights: npt.NDArray[np.float64]) -> bool:
    """Return whether weights count copies of rows: whole numbers whose sums are exact."""
    return bool(np.all(weights == np.floor(weights))) and bool(weights.sum() < _MAX_COPIES)


def find_weight_unit(
    weights: npt.NDArray[np.float64], *, relative: bool = False
) -> WeightUnit | None:
    """Return the unit of relative weights, None for numbers of copies.

    Parameters
    ----------
    weights : (rows,) float64
        Of all rows: neither their order nor a power of two as a factor changes scaled weights.
    relative : bool
        Whether whole numbers are relative, too.
    """
    if not relative and are_copies(weights):
        return None
    exponent = math.frexp(float(weights.max()))[1]
    total = n_positive = 0
    for start in range(0, len(weights), 1 << 18):
        own = weights[start : start + (1 << 18)]
        # Integers below 2**60 in two parts, whose sums are exact in any order.
        high, low = np.divmod(np.floor(np.ldexp(own, 60 - exponent)), 2.0**30)
        total += (int(high.astype(np.int64).sum()) << 30) + int(low.astype(np.int64).sum())
        n_positive += int(np.count_nonzero(own))
    return WeightUnit(exponent, math.ldexp(n_positive / total, 60))


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
    tested: npt.NDArray[np.bool_] | None = None,
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
    tested : (features,) bool, optional
        Columns that the table must have, as those that a model tests; default: all.

    Raises
    ------
    DataError
        If the table has no rows, lacks a column, or holds a class that is not in the
        training table.
    """
    table = read_rows_for(source, schema)
    if table.n_rows == 0:
        raise DataError(f"{noun} has no rows; give at least one, or leave it out")
    names = [output.name for output in schema.outputs]
    for name in names:
        table.find_column(name, "target column", noun)
    matrix = encode_rows(table, schema, missing=missing, unknown=unknown, tested=tested)
    classes = {output.name: output.classes for output in schema.outputs if output.classes}
    try:
        y = encode_targets(table, names, schema.task, classes or None).y
        given = task_columns or {}
        known = {role: c for role, c in given.items() if isinstance(c, TaskColumn)}
        asked = {role: c if isinstance(c, str) else c.name for role, c in given.items()}
        columns = read_task_columns(table, asked, known)
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
