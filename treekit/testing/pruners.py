"""Whether a pruner keeps the laws of its contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from treekit import registry
from treekit.contracts import Criterion, CriterionFunctions, Pruner, Task
from treekit.errors import SettingError
from treekit.testing.component import opened
from treekit.testing.examples import Counting, counting
from treekit.testing.laws import judge
from treekit.testing.pruner_laws import BEFORE_GATES, BEFORE_LAWS, Subject
from treekit.testing.pruner_trees import AFTER_GATES, AFTER_LAWS
from treekit.testing.report import Report
from treekit.testing.tasks import ground_of
from treekit.testing.training import Trainer, trainer

__all__ = ["check_pruner"]


def check_pruner(
    pruner: str | Pruner,
    settings: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Judge a pruner by the laws of its contract; see `check_criterion`.

    Its ``before`` is called as plain Python on the statistics of small splits,
    its ``after`` on trees grown for it, and trees are trained with it.
    """
    found = opened("pruner", pruner, settings, strict)
    if not found.usable:
        return found.report.settled(fail=fail)
    record = found.record
    trainers, countings = _grounds(record, found.settings)
    subject = Subject(record, found.functions, found.settings, trainers, countings)
    gates = (*BEFORE_GATES, *AFTER_GATES)
    laws = (*BEFORE_LAWS, *AFTER_LAWS)
    return judge(found.report, subject, laws, record.exempt, gates=gates).settled(fail=fail)


def _grounds(
    record: Pruner, settings: Mapping[str, Any]
) -> tuple[tuple[Trainer, ...], tuple[Counting, ...]]:
    """Trainings with the pruner, and how their rows are counted."""
    if isinstance(record.task, Task):
        ground = ground_of(_criterion_for(record.task, record.name), {}, None)
        own = trainer("pruner", record, settings, task=ground.trainer.task)
        parts = {**ground.trainer.parts, **own.parts}
        return (replace(ground.trainer, parts=parts),), (ground.counting,)
    kinds = [
        (task, classes)
        for task, classes in (("classification", (2, 3)), ("regression", (0,)))
        if record.task in (None, task)
    ]
    return (
        tuple(
            trainer("pruner", record, settings, task=task, classes=classes[-1:])
            for task, classes in kinds
        ),
        tuple(counting(task, CriterionFunctions(), k) for task, classes in kinds for k in classes),
    )


def _criterion_for(task: Task, name: str) -> Criterion:
    """The first installed criterion of a task."""
    for component in registry.criteria().values():
        if isinstance(component.record, Criterion) and component.record.task == task:
            return component.record
    raise SettingError(
        f"pruner {name!r} is for {task.name}, and no installed criterion is; install one"
    )
