"""Targets: the task, the classes in order, and the class codes or numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import TaskColumn
from treekit.data.cells import Cells, is_text, map_cells, normalize_value_text
from treekit.data.features import LevelIndex, check_unicode, convert_to_numbers
from treekit.data.schema import Output, Task, level_text, python_label
from treekit.data.table import Table
from treekit.errors import DataError, SettingError

__all__ = [
    "MAX_INTEGER_CLASSES",
    "CodedTarget",
    "check_no_missing",
    "encode_target",
    "encode_targets",
    "read_task_columns",
]


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
    if len(names) == 1:
        own = classes.get(names[0]) if isinstance(classes, Mapping) else classes
        return encode_target(table, names[0], task, own)
    declared = _get_classes_by_name(names, classes)
    targets = [encode_target(table, name, task, declared.get(name)) for name in names]
    for name, other in zip(names, targets, strict=True):
        if other.task != targets[0].task:
            raise DataError(
                f"the target {names[0]!r} is for {targets[0].task} and {name!r} for {other.task}; "
                "all targets of a model need the same task: set task, or train a model for each"
            )
    outputs = tuple(target.outputs[0] for target in targets)
    y: Any = np.stack([target.y for target in targets], axis=1)
    return CodedTarget(targets[0].task, outputs, y)


def _get_classes_by_name(
    names: Sequence[str], classes: Sequence[Any] | Mapping[str, Sequence[Any]] | None
) -> Mapping[str, Sequence[Any]]:
    if classes is None:
        return {}
    if not isinstance(classes, Mapping):
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
        task = _infer_task(table, name, cells, classes)
    if task == "regression":
        if classes is not None:
            raise SettingError("classes are declared, but the task is regression; drop one of them")
        return CodedTarget(task, (Output(name),), _read_numbers(table, name))
    return _encode_classes(table, name, cells, classes)


def check_no_missing(name: str, cells: Cells, role: str = "the target") -> None:
    """Raise `DataError` if a cell of a target, or of another column of `role`, is missing."""
    gone = cells == None if cells.dtype.kind == "O" else cells != cells  # noqa: E711
    if gone.any():
        raise DataError(
            f"{role} {name!r} is missing in {int(gone.sum())} of {len(cells)} rows, first in "
            f"row {int(gone.argmax())} (counting from 0); fill them in or drop those rows"
        )


def _infer_task(table: Table, name: str, cells: Cells, classes: Sequence[Any] | None) -> Task:
    if classes is not None or name in table.levels or cells.dtype.kind in "Ob":
        return "classification"
    if cells.dtype.kind == "f":
        return "regression"
    few = len(np.unique(cells)) <= MAX_INTEGER_CLASSES
    return "classification" if few else "regression"


def _read_numbers(table: Table, name: str) -> npt.NDArray[np.float64]:
    y = convert_to_numbers(table, name).astype(np.float64, copy=False)
    bad = np.isinf(y)
    if bad.any():
        raise DataError(
            f"the target {name!r} is infinite in row {int(bad.argmax())} (counting from 0); "
            "a regression target must be finite"
        )
    return y


def _encode_classes(
    table: Table, name: str, cells: Cells, classes: Sequence[Any] | None
) -> CodedTarget:
    if cells.dtype.kind == "f":
        if np.isinf(cells).any():
            raise DataError(f"the target {name!r} holds an infinite label; labels must be finite")
        _check_label_size(table, name, cells)
        if np.all(cells == np.floor(cells)):
            cells = cells.astype(np.int64)
    present = sorted(set(cells) if is_text(cells) else np.unique(cells).tolist())
    labels = tuple(python_label(label) for label in _order_labels(table, name, present, classes))
    for label in labels:
        if isinstance(label, str):
            check_unicode(label, f"a label of the target {name!r}")
    code = {label: position for position, label in enumerate(labels)}
    outputs = (Output(name, labels),)
    return CodedTarget("classification", outputs, map_cells(cells, code.__getitem__, np.int32))


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
    """Return the text of a declared class, or that of the equal label in `index`, if any.

    3.0 and "3" declare the label 3, "true" the label True.
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
            f"the declared class {text!r} is not of type {kind.__name__} like the labels of the "
            "rows; correct it, or leave it out"
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
        if np.isinf(values).any():
            row = int(np.isinf(values).argmax())
            raise DataError(
                f"the {role} column {name!r} is infinite in row {row} (counting from 0); its "
                "numbers must be finite"
            )
        return TaskColumn(name, values)
    present = sorted(set(cells.tolist()))
    levels = known.levels if known else tuple(python_label(level) for level in present)
    code = {level: position for position, level in enumerate(levels)}
    if strange := [level for level in present if level not in code]:
        raise DataError(
            f"the {role} column {name!r} holds {strange[0]!r}, which is not a category seen in "
            "training: " + ", ".join(map(repr, levels))
        )
    return TaskColumn(name, map_cells(cells, code.__getitem__, np.int32), levels)
