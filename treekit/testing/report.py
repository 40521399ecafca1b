"""What a check says: a verdict on each law, and the error that pytest shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = [
    "Breach",
    "ConformanceError",
    "Law",
    "Paint",
    "Report",
    "Verdict",
    "worded",
]


# ---------------------------------------------------------------- report

IDLE = "declared-law-holds"
"""Under ``strict``, the law that a declared law which does hold breaks."""


@dataclass(frozen=True)
class Law:
    """A promise of the contract.

    Attributes
    ----------
    name : str
        Words and hyphens: ``"purity-is-zero"``; what ``exempt`` names.
    sentence : str
        The law itself.
    look : str
        What to look at where it is broken.
    """

    name: str
    sentence: str
    look: str


@dataclass(frozen=True)
class Breach:
    """The smallest example found that breaks a law.

    Attributes
    ----------
    law : Law
    example : str
        A call with its arguments, or a training in words.
    got, expected : str
    look : str
        What to look at.
    """

    law: Law
    example: str
    got: str
    expected: str
    look: str

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{self.law.name}: {self.law.sentence}",
                f"  smallest example: {_indented(self.example)}",
                f"  got:              {_indented(self.got)}",
                f"  expected:         {_indented(self.expected)}",
                f"  look at:          {_indented(self.look)}",
            )
        )


def _indented(text: str) -> str:
    return text.replace("\n", "\n" + " " * 20)


@dataclass(frozen=True)
class Verdict:
    """What became of one law.

    Attributes
    ----------
    law : Law
    state : str
        ``"holds"``, ``"broken"``, ``"declared"`` (broken, and declared so),
        ``"declared, yet holds"``, ``"does not apply"`` or ``"not judged"``
        (another law had to hold first).
    why : str
        The component's own reason, or the kit's.
    breach : Breach or None
    """

    law: Law
    state: str
    why: str = ""
    breach: Breach | None = None


class ConformanceError(AssertionError):
    """A component breaks laws of the contract; its message shows every breach.

    Attributes
    ----------
    report : Report
    """

    def __init__(self, report: Report) -> None:
        super().__init__(report.complaint())
        self.report = report


@dataclass(frozen=True)
class Report:
    """What a check found.

    Attributes
    ----------
    kind, name, origin : str
        Of the component; origin is its distribution and version, or nothing.
    settings : mapping
        Under which it was checked.
    strict : bool
        Whether a declared law that holds is a breach.
    verdicts : tuple of Verdict
        One for each law, in the contract's order.
    facts : tuple of (str, str)
        What was measured: names and values.
    """

    kind: str
    name: str
    origin: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    verdicts: tuple[Verdict, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """What ``treekit plugin check`` says."""
        return worded(self)

    @property
    def title(self) -> str:
        """``criterion 'hellinger' (treekit-hellinger 0.1.0)``, with settings that were given."""
        place = f" ({self.origin})" if self.origin else ""
        given = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{self.kind} {self.name!r}{place}" + (f" with {given}" if given else "")

    @property
    def breaches(self) -> tuple[Breach, ...]:
        """The undeclared breaches, and under `strict` the idle declarations."""
        found = [v.breach for v in self.verdicts if v.state == "broken" and v.breach is not None]
        return (*found, *(_idle(v) for v in self.idle if self.strict))

    @property
    def idle(self) -> tuple[Verdict, ...]:
        """Laws that the component declares broken, and that hold all the same."""
        return tuple(v for v in self.verdicts if v.state == "declared, yet holds")

    @property
    def declared(self) -> tuple[Verdict, ...]:
        """Laws that are broken as the component declares."""
        return tuple(v for v in self.verdicts if v.state == "declared")

    @property
    def ok(self) -> bool:
        """Whether no law is broken but those declared."""
        return not self.breaches

    def with_verdicts(self, verdicts: Sequence[Verdict]) -> Report:
        """The same report with more verdicts."""
        return replace(self, verdicts=(*self.verdicts, *verdicts))

    def with_facts(self, facts: Sequence[tuple[str, str]]) -> Report:
        """The same report with more facts."""
        return replace(self, facts=(*self.facts, *facts))

    def complaint(self) -> str:
        """Every breach, for the message of an error."""
        judged = sum(v.state != "does not apply" for v in self.verdicts)
        head = f"{self.title} breaks {len(self.breaches)} of {judged} laws of its contract"
        return "\n\n".join((head, *map(str, self.breaches)))

    def settled(self, *, fail: bool) -> Report:
        """The report itself; raises `ConformanceError` if `fail` and a law is broken."""
        if fail and not self.ok:
            raise ConformanceError(self)
        return self


def _idle(verdict: Verdict) -> Breach:
    law = Law(
        IDLE,
        "A law that a component declares broken is broken.",
        f"the record's `exempt`: take {verdict.law.name!r} out of it",
    )
    return Breach(
        law, f"exempt[{verdict.law.name!r}]", "no example breaks it", "a breach", law.look
    )


# ---------------------------------------------------------------- wording
# A report as text: what `print` shows of it, and the command line in colours.

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
