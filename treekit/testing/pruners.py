"""Whether a pruner keeps the laws of its contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treekit.contracts import Pruner
from treekit.testing.component import opened
from treekit.testing.laws import judge
from treekit.testing.pruner_laws import BEFORE_GATES, BEFORE_LAWS, Subject
from treekit.testing.pruner_trees import AFTER_GATES, AFTER_LAWS
from treekit.testing.report import Report
from treekit.testing.training import trainer

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
    trainers = tuple(
        trainer("pruner", record, found.settings, task=task, classes=classes)
        for task, classes in (("classification", (3,)), ("regression", (0,)))
        if record.task in (None, task)
    )
    subject = Subject(record, found.functions, found.settings, trainers)
    gates = (*BEFORE_GATES, *AFTER_GATES)
    laws = (*BEFORE_LAWS, *AFTER_LAWS)
    return judge(found.report, subject, laws, record.exempt, gates=gates).settled(fail=fail)
