"""Whether a splitter keeps the laws of its contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from treekit.contracts import Splitter
from treekit.testing.bounds import BOUNDS, try_bounds
from treekit.testing.component import opened
from treekit.testing.laws import Test, inapplicable, judge
from treekit.testing.report import Report
from treekit.testing.splitter_laws import CLAIMED, FIND_LAWS, Subject
from treekit.testing.splitter_training import GROWN_LAWS, Grower
from treekit.testing.training import LEAF_WEIGHT, trainer

__all__ = ["check_splitter"]


@dataclass(frozen=True)
class _Both(Subject):
    """A splitter, and trainers with it."""

    growers: Grower = ()


def check_splitter(
    splitter: str | Splitter,
    settings: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Judge a splitter by the laws of its contract; see `check_criterion`.

    Its ``find`` is called as plain Python on nodes of small tables, and trees
    of classes and of a number are grown with it.
    """
    found = opened("splitter", splitter, settings, strict)
    if not found.usable:
        return found.report.settled(fail=fail)
    growers = tuple(
        trainer(
            "splitter", found.record, found.settings, task=task, classes=classes,
            criterion=criterion,
        )
        for task, classes, criterion in (
            ("classification", (3,), "gini"),
            ("regression", (0,), "squared_error"),
        )
    )  # fmt: skip
    subject = _Both(found.record, found.functions, found.settings, growers=growers)
    # A split on intervals is a nest of thresholds in the tree: judged when it is proposed.
    nested = (LEAF_WEIGHT, CLAIMED) if found.functions.intervals else ()
    laws = [(law, _of_trees(test)) for law, test in GROWN_LAWS if law not in nested]
    laws.append((BOUNDS, _bounds))
    return judge(found.report, subject, laws, found.record.exempt, gates=FIND_LAWS).settled(
        fail=fail
    )


def _bounds(subject: _Both) -> None:
    """Ask about a few nodes, or grow a few trees, with every setting at its ends."""

    def use(functions: Any) -> None:
        if subject.is_python:
            for _ in replace(subject, functions=functions, proposed=[]).proposals():
                pass

    try_bounds(subject.record, subject.settings, use)
    if not subject.is_python:
        inapplicable("its search is a kernel of treekit's own, judged by the trees it grows")


def _of_trees(test: Test) -> Test:
    return lambda subject: test(subject.growers)
