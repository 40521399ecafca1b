"""Tasks of plugins: additional columns, layouts of statistics, and named predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.contracts import Criterion, Layout, Task, TaskColumn
from treekit.data.dataset import Dataset
from treekit.data.features import check_unicode
from treekit.data.schema import Output, Schema
from treekit.errors import DataError, PluginError, SettingError
from treekit.model.model import Model
from treekit.registry.isolation import FOREIGN_ERRORS, call_isolated, describe_error
from treekit.registry.kinds import find_custom_task
from treekit.training.settings import select_settings

MAX_CELLS = 4096
"""Maximum number of cells of a node's statistics in a layout."""

Placed = npt.NDArray[np.int64] | npt.NDArray[np.float64]


def get_reading_options(settings: Mapping[str, Any], task: str | None = None) -> dict[str, Any]:
    """Return the arguments of `make_dataset` that the chosen criterion needs.

    Parameters
    ----------
    settings : mapping
        Training settings, as given.
    task : {"classification", "regression"}, optional
        As given by the user; a criterion's custom task defines how its target is read.

    Raises
    ------
    SettingError
        If `task` contradicts the criterion's, or a required column is not named.
    """
    record, own = _get_criterion_task(settings)
    if record is None or own is None:
        return {"task": task}
    if task not in (None, own.target):
        raise SettingError(
            f"criterion {record.name!r} is for {own.name}, which needs a {own.target} "
            f"target, but task is {task!r}; leave task out"
        )
    values = registry.settings_of(record, select_settings("criterion", settings))
    return {"task": own.target, "task_columns": {role: values[role] for role in own.columns}}


def predicts_numbers(settings: Mapping[str, Any]) -> bool:
    """Check whether the criterion has a plugin's task that predicts numbers, each with a name."""
    own = _get_criterion_task(settings)[1]
    return own is not None and own.answers == "regression"


def _get_criterion_task(settings: Mapping[str, Any]) -> tuple[Criterion | None, Task | None]:
    wanted = settings.get("criterion")
    record = None if wanted is None else registry.get("criterion", wanted)
    return record, find_custom_task(record)


def fit_layout(record: Criterion, given: Mapping[str, Any], dataset: Dataset) -> Layout | None:
    """Fit the layout of a criterion's custom task to the training rows; None without one."""
    task = find_custom_task(record)
    if task is None:
        return None
    where = _name_task(record, task)
    _check_target(where, task, dataset)
    settings = registry.settings_of(record, given)
    own = {s.name: settings[s.name] for s in task.settings if s.name not in task.columns}
    layout = _call_plugin(where, "lay_out", lambda: task.lay_out(*_get_task_inputs(dataset), **own))
    _check_layout(layout, task, where)
    return layout  # type: ignore[no-any-return]


def place_rows(record: Criterion, layout: Layout, dataset: Dataset) -> Placed:
    """Compute the cell of each row of a dataset, (rows,), or its statistics, (rows, S)."""
    task = find_custom_task(record)
    assert task is not None  # noqa: S101 - for the type checker
    where = _name_task(record, task)
    placed = _call_plugin(where, "place", lambda: layout.place(*_get_task_inputs(dataset)))
    placed = np.asarray(placed)
    if placed.shape == (dataset.n_rows,) and placed.dtype.kind in "iu":
        if outside := [int(c) for c in (placed.min(), placed.max()) if not 0 <= c < layout.size]:
            raise PluginError(
                f"{where} placed a row in cell {outside[0]}; cells are 0 to {layout.size - 1}"
            )
        return placed.astype(np.int64)
    if placed.shape != (dataset.n_rows, layout.size) or placed.dtype.kind != "f":
        raise PluginError(
            f"{where} placed rows by {placed.dtype} values of shape {placed.shape}; place must "
            f"return integers ({dataset.n_rows},), or float64 ({dataset.n_rows}, {layout.size})"
        )
    if not np.isfinite(placed).all() or not (placed[:, 0] == 1.0).all():
        raise PluginError(
            f"{where} placed rows whose first statistic is not 1, or with others not finite"
        )
    return placed.astype(np.float64)


def use_prediction_schema(dataset: Dataset, record: Criterion, layout: Layout | None) -> Dataset:
    """Replace the schema of a dataset by that of the model's predictions."""
    task = find_custom_task(record)
    if layout is None or task is None or task.answers == "classification":
        return dataset
    first, *others = [Output(name) for name in layout.names]
    schema: Schema = msgspec.structs.replace(
        dataset.schema, task="regression", target=first.name, classes=(), more=tuple(others)
    )
    return replace(dataset, schema=schema)


def describe_task(dataset: Dataset, record: Criterion) -> dict[str, Any]:
    """Return the task's name, target and additional columns, for a model's provenance."""
    task = find_custom_task(record)
    if task is None:
        return {}
    columns = {role: column.name for role, column in dataset.task_columns.items()}
    return {"task": {"name": task.name, "target": dataset.schema.target, **columns}}


def check_scorable(model: Model, score: str) -> None:
    """Raise `DataError` for a model whose predictions cannot be compared with a column."""
    task = model.provenance.get("task")
    if isinstance(task, dict) and model.schema.task == "regression":
        names = ", ".join(repr(output.name) for output in model.schema.outputs[:3])
        raise DataError(
            f"the model predicts {names} of the task {task.get('name')!r}, which are not columns "
            f"of a table: {score} is not defined; use the measures of the task's plugin"
        )


def _name_task(record: Criterion, task: Task) -> str:
    return f"the task {task.name!r} of {registry.described(record)}"


def _get_task_inputs(dataset: Dataset) -> tuple[TaskColumn, dict[str, TaskColumn]]:
    """Return read-only views of the target and the additional columns."""
    from treekit.compiling.functions import make_read_only  # imports numba

    schema = dataset.schema
    target = TaskColumn(schema.target, dataset.y, schema.classes, dataset.weights)
    return make_read_only(target), {
        role: make_read_only(column) for role, column in dataset.task_columns.items()
    }


def _check_target(where: str, task: Task, dataset: Dataset) -> None:
    schema = dataset.schema
    if schema.more:
        raise SettingError(f"{where} needs one target, but {1 + len(schema.more)} are given")
    if schema.task != task.target:
        raise SettingError(
            f"{where} needs a {task.target} target, but {schema.target!r} is a {schema.task} target"
        )
    if absent := [role for role in task.columns if role not in dataset.task_columns]:
        raise SettingError(
            f"{where} needs the column named by its setting {absent[0]!r}, but only inputs and "
            "target are given; use treekit.train with a table that contains this column"
        )


def _check_layout(layout: Any, task: Task, where: str) -> None:
    if not isinstance(layout, Layout):
        raise PluginError(f"{where} laid out a {type(layout).__name__}, not a treekit.Layout")
    size: Any = layout.size
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_CELLS:
        raise PluginError(
            f"{where} has a layout of {size!r} cells; give an integer from 1 to {MAX_CELLS}"
        )
    for name in ("place", "answer"):
        if not callable(getattr(layout, name)):
            raise PluginError(
                f"{where} has a layout whose {name!r} is of type "
                f"{type(getattr(layout, name)).__name__}; give a function"
            )
    names: Any = layout.names
    if (
        not isinstance(names, tuple)
        or not all(isinstance(name, str) and name for name in names)
        or len(set(names)) != len(names)
        or bool(names) != (task.answers == "regression")
    ):
        raise PluginError(
            f"{where} names its answers {names!r}; give a tuple of different names, one for each "
            "number, and an empty tuple for a classification task"
        )
    for name in names:
        check_unicode(name, f"an answer of {where}")


def _call_plugin(where: str, function: str, call: Callable[[], Any]) -> Any:
    """Call a function of a plugin; name the plugin in its errors."""
    try:
        return call_isolated(where, call)
    except (DataError, SettingError):
        raise
    except FOREIGN_ERRORS as error:
        raise PluginError(f"{where} failed in {function}: {describe_error(error)}") from error
