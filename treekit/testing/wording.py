"""A report as text: what `print` shows of it, and the command line in colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treekit.testing.report import Report

__all__ = ["Paint", "worded"]

Paint = Callable[[str, str], str]
"""``paint(text, role)``: the text as it is to be shown; a role is ``"title"``, ``"holds"``,
``"broken"``, ``"declared"``, ``"fact"`` (the name of one) or ``"text"``."""

_MARKS = {
    "holds": ("ok", "holds"),
    "broken": ("BROKEN", "broken"),
    "declared": ("declared", "declared"),
    "declared, yet holds": ("declared, yet holds", "declared"),
    "does not apply": ("does not apply", "text"),
    "not judged": ("not judged", "text"),
}


def _plain(text: str, role: str) -> str:
    del role
    return text


def worded(report: Report, every: bool = False, paint: Paint = _plain) -> str:
    """The report in lines, each breach with its example.

    Parameters
    ----------
    report : Report
    every : bool
        Name every law, not only those that are worth a look.
    paint : callable
        See `Paint`; everything that is not treekit's own wording goes through it.
    """
    return "\n".join(_lines(report, every, paint))


def _lines(report: Report, every: bool, paint: Paint) -> Iterator[str]:
    yield paint(report.title, "title")
    for verdict in report.verdicts:
        if every or verdict.state not in ("holds", "does not apply"):
            why = f": {paint(verdict.why, 'text')}" if verdict.why else ""
            yield f"  {paint(*_MARKS[verdict.state])} {verdict.law.name}{why}"
    for breach in report.breaches:
        head, *rest = str(breach).splitlines()
        yield ""
        yield f"  {paint(head, 'broken')}"
        yield from (f"  {paint(line, 'text')}" for line in rest)
    if report.facts:
        yield ""
    width = max((len(name) for name, _ in report.facts), default=0)
    for name, value in report.facts:
        yield f"  {paint(f'{name:<{width}}', 'fact')}  {paint(value, 'text')}"
    held = sum(verdict.state == "holds" for verdict in report.verdicts)
    aside = sum(verdict.state == "does not apply" for verdict in report.verdicts)
    yield (
        f"  {held} laws hold, {len(report.breaches)} broken, {len(report.declared)} declared, "
        f"{aside} do not apply"
    )
