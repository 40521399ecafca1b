"""Whether a criterion keeps the laws of its contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treekit.contracts import Criterion, Layout
from treekit.record_checks import task_of
from treekit.testing.component import opened
from treekit.testing.criterion_laws import GATES, LAWS, TREE_LAWS
from treekit.testing.criterion_subject import Subject
from treekit.testing.examples import Counting, counting
from treekit.testing.laws import judge
from treekit.testing.layout_laws import LAYOUT_GATES
from treekit.testing.report import Report
from treekit.testing.speed import speed_facts
from treekit.testing.tasks import Ground, ground_of
from treekit.testing.training import for_criterion

__all__ = ["check_criterion"]


def check_criterion(
    criterion: str | Criterion,
    settings: Mapping[str, Any] | None = None,
    *,
    rows: Mapping[str, Sequence[Any]] | None = None,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Judge a criterion by the laws of its contract.

    Parameters
    ----------
    criterion : str or Criterion
        An installed name, or a record.
    settings : mapping, optional
        The criterion's own settings; the others take their defaults.
    rows : mapping of str to sequence, optional
        For a `Task` that cannot be judged by generated tables: some 30 rows of
        its target, ``y``, and of its columns, by role.
    strict : bool
        A law that the criterion declares broken, and that holds, is a breach.
    fail : bool
        Raise for a breach; False: return the report whatever it says.

    Returns
    -------
    Report

    Raises
    ------
    ConformanceError
        An AssertionError, whose message shows every breach.
    SettingError
        For a name that is not installed, or an unknown setting.

    Examples
    --------
    >>> from treekit.testing import check_criterion
    >>> check_criterion("gini").ok
    True
    """
    grounds: list[Ground] = []

    def ground(record: Criterion, given: dict[str, Any]) -> tuple[dict[str, Any], Layout | None]:
        if task_of(record) is None:
            return given, None
        grounds.append(ground_of(record, given, rows))
        return grounds[0].settings, grounds[0].layout

    found = opened("criterion", criterion, settings, strict, ground)
    if not found.usable:
        return found.report.settled(fail=fail)
    record, functions = found.record, found.functions
    gates, layout = GATES, None
    if grounds:
        gates, layout = (*LAYOUT_GATES, *GATES), grounds[0].layout
        countings: tuple[Counting, ...] = (grounds[0].counting,)
        by = grounds[0].trainer
    else:
        sizes = (2, 3, 1, 5) if record.task == "classification" else (2,)
        countings = tuple(counting(record.task, functions, k) for k in sizes)
        by = for_criterion(record, functions, found.settings)
    subject = Subject(record, functions, found.settings, countings, by, layout)
    report = judge(found.report, subject, LAWS, record.exempt, gates=gates, then=TREE_LAWS)
    if report.ok:
        report = report.with_facts(speed_facts(subject))
    return report.settled(fail=fail)
