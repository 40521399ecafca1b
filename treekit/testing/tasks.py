"""Criteria of a task of their own: tables that suit them, and how their rows are counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import Criterion, Layout, Task
from treekit.errors import DataError, SettingError
from treekit.record_checks import task_of
from treekit.registry import settings_of
from treekit.testing.examples import Counting, Row
from treekit.testing.tables import Small, small_table
from treekit.testing.training import Trainer, trainer
from treekit.training.tasks import fit_layout, place_rows

__all__ = ["Ground", "ground_of"]

ROWS = 30
"""Of the table that a layout is fitted to."""

_MAKERS: dict[str, Any] = {
    "numbers 0 and 1": lambda k: float(k % 2),
    "labels 'control' and 'treated'": lambda k: ("control", "treated")[k % 2],
    "labels 'a', 'b' and 'c'": lambda k: "abc"[k % 3],
    "numbers 0.5, 1.5, ...": lambda k: 0.5 + k % 7,
}


@dataclass(frozen=True)
class Ground:
    """What a criterion of a task is judged on.

    Attributes
    ----------
    layout : Layout
        Fitted to a table of `ROWS` rows.
    settings : dict
        Those given, and columns for the task's settings that name some.
    counting : Counting
        How some rows of that table are counted.
    trainer : Trainer
    """

    layout: Layout
    settings: dict[str, Any]
    counting: Counting
    trainer: Trainer


def ground_of(
    record: Criterion, given: Mapping[str, Any], rows: Mapping[str, Sequence[Any]] | None
) -> Ground:
    """A table that the task accepts, and its layout.

    Parameters
    ----------
    record : Criterion
        Of a `Task`.
    given : mapping
        Settings.
    rows : mapping of str to sequence, optional
        Target ``y`` and the task's columns by role; None: targets and columns
        of several kinds are tried.

    Raises
    ------
    SettingError
        If the task accepts none of them.
    PluginError
        If the layout is no good.
    """
    task = task_of(record)
    assert task is not None  # noqa: S101 - asked for criteria of tasks only
    settings = {**given, **{role: given.get(role) or f"the {role}" for role in task.columns}}
    refused = ""
    for table, classes in _tables(task, settings, rows):
        by = trainer(
            "criterion", record, settings_of(record, settings), task=task.target,
            classes=(classes,), least=1.0, beside={r: settings[r] for r in task.columns},
            table=table, answers=task.answers,
        )  # fmt: skip
        try:
            dataset = by.dataset(table)
            layout = fit_layout(record, settings, dataset)
            assert layout is not None  # noqa: S101 - for the type checker
            placed = place_rows(record, layout, dataset)
        except (DataError, SettingError) as error:
            refused = refused or str(error)
            continue
        return Ground(layout, settings, _counting(layout, placed), by)
    raise SettingError(
        f"criterion {record.name!r} is for {task.name}, and accepts none of the tables made here "
        f"({refused}); call check_criterion with rows={{'y': [...], "
        + ", ".join(f"{role!r}: [...]" for role in task.columns)
        + "}"
    )


def _tables(
    task: Task, settings: Mapping[str, Any], rows: Mapping[str, Sequence[Any]] | None
) -> Iterator[tuple[Small, int]]:
    """Tables to try, and their numbers of classes."""
    if rows is not None:
        own = {settings[role]: list(rows[role]) for role in task.columns}
        target = list(rows["y"])
        table = small_table(len(target), 0).answering(target, own)
        classes = len(set(target)) if task.target == "classification" else 0
        yield table, classes
        return
    for classes in (2, 3) if task.target == "classification" else (0,):
        base = small_table(ROWS, classes, 1.0)
        picks = np.random.default_rng(classes).permutation(base.rows)
        for make in _MAKERS.values():
            cells = [make(int(k)) for k in picks]
            own = {settings[role]: cells for role in task.columns}
            yield base.answering(base.target, own), classes


def _counting(layout: Layout, placed: npt.NDArray[Any]) -> Counting:
    """How up to four rows, placed differently, are counted."""
    if placed.ndim == 1:
        placed = np.eye(layout.size)[placed]
        dense = False
    else:
        dense = True
    _, first = np.unique(placed, axis=0, return_index=True)
    kept = placed[np.sort(first)[:4]]

    def count(rows: Sequence[Row]) -> npt.NDArray[np.float64]:
        stats = np.zeros(layout.size)
        for target, weight in rows:
            stats += weight * kept[int(target)]
        return stats

    return Counting(layout.size, tuple(map(float, range(len(kept)))), dense, False, True, count)
