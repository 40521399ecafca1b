"""Report of a conformance check: a verdict on each law, and the error that pytest shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

# ---------------------------------------------------------------- report

HOLDING_LAW = "declared-law-holds"
"""Under ``strict``, the law broken by a declared law that holds."""


@dataclass(frozen=True)
class Law:
    """A requirement of the contract.

    Attributes
    ----------
    name : str
        Words and hyphens: ``"purity-is-zero"``; the key in ``exempt``.
    sentence : str
        The requirement.
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
        A call with its arguments, or a description of a training run.
    got, expected : str
    look : str
        Part of the component to check for the cause.
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
                f"  smallest example: {_indent_lines(self.example)}",
                f"  got:              {_indent_lines(self.got)}",
                f"  expected:         {_indent_lines(self.expected)}",
                f"  look at:          {_indent_lines(self.look)}",
            )
        )


def _indent_lines(text: str) -> str:
    return text.replace("\n", "\n" + " " * 20)


@dataclass(frozen=True)
class Verdict:
    """Result of checking one law.

    Attributes
    ----------
    law : Law
    state : str
        ``"holds"``, ``"broken"``, ``"declared"`` (broken, and declared so),
        ``"declared, yet holds"``, ``"does not apply"`` or ``"not judged"``
        (another law is broken that must hold first).
    why : str
        Reason given by the component, or by the check.
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
    """Result of a conformance check.

    Attributes
    ----------
    kind, name, origin : str
        Of the component; origin is its distribution and version, or empty.
    settings : mapping
        Settings that it was checked with.
    strict : bool
        Whether a declared law that holds is a breach.
    verdicts : tuple of Verdict
        One for each law, in the contract's order.
    facts : tuple of (str, str)
        Names and values of measurements.
    """

    kind: str
    name: str
    origin: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    verdicts: tuple[Verdict, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Format the report as ``treekit plugin check`` does."""
        return format_report(self)

    @property
    def title(self) -> str:
        """``criterion 'hellinger' (treekit-hellinger 0.1.0)``, with the given settings."""
        place = f" ({self.origin})" if self.origin else ""
        given = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{self.kind} {self.name!r}{place}" + (f" with {given}" if given else "")

    @property
    def breaches(self) -> tuple[Breach, ...]:
        """Undeclared breaches, and under `strict` the declared laws that hold."""
        found = [v.breach for v in self.verdicts if v.state == "broken" and v.breach is not None]
        return (*found, *(_make_idle_breach(v) for v in self.idle if self.strict))

    @property
    def idle(self) -> tuple[Verdict, ...]:
        """Laws that the component declares broken, but that hold."""
        return tuple(v for v in self.verdicts if v.state == "declared, yet holds")

    @property
    def declared(self) -> tuple[Verdict, ...]:
        """Laws that are broken and declared so."""
        return tuple(v for v in self.verdicts if v.state == "declared")

    @property
    def unjudged(self) -> str:
        """``, 21 not judged``, as another law must hold first; empty if all were judged."""
        n_laws = sum(verdict.state == "not judged" for verdict in self.verdicts)
        return f", {n_laws} not judged" if n_laws else ""

    @property
    def ok(self) -> bool:
        """Whether no law is broken but declared ones."""
        return not self.breaches

    def with_verdicts(self, verdicts: Sequence[Verdict]) -> Report:
        """Return the report with additional verdicts."""
        return replace(self, verdicts=(*self.verdicts, *verdicts))

    def with_facts(self, facts: Sequence[tuple[str, str]]) -> Report:
        """Return the report with additional facts."""
        return replace(self, facts=(*self.facts, *facts))

    def complaint(self) -> str:
        """Format every breach, for the message of an error."""
        laws = "1 law" if len(self.breaches) == 1 else f"{len(self.breaches)} laws"
        head = f"{self.title} breaks {laws} of its contract{self.unjudged}"
        return "\n\n".join((head, *map(str, self.breaches)))

    def settled(self, *, fail: bool) -> Report:
        """Return the report itself; raise `ConformanceError` if `fail` and a law is broken."""
        if fail and not self.ok:
            raise ConformanceError(self)
        return self


def _make_idle_breach(verdict: Verdict) -> Breach:
    law = Law(
        HOLDING_LAW,
        "A law that is declared broken is broken.",
        f"the record's `exempt`: remove {verdict.law.name!r}",
    )
    return Breach(
        law, f"exempt[{verdict.law.name!r}]", "no example breaks it", "a breach", law.look
    )


# ---------------------------------------------------------------- text of a report

Paint = Callable[[str, str], str]
"""``paint(text, role)`` returns the text with colours; a role is ``"title"``, ``"holds"``,
``"broken"``, ``"declared"``, ``"fact"`` (the name of one) or ``"text"``.
"""

_MARKS = {
    "holds": ("ok", "holds"),
    "broken": ("BROKEN", "broken"),
    "declared": ("declared", "declared"),
    "declared, yet holds": ("declared, yet holds", "declared"),
    "does not apply": ("does not apply", "text"),
    "not judged": ("not judged", "text"),
}


def _leave_plain(text: str, role: str) -> str:
    del role
    return text


def format_report(report: Report, every: bool = False, paint: Paint = _leave_plain) -> str:
    """Format the report, each breach with its example.

    Parameters
    ----------
    report : Report
    every : bool
        Include laws that hold or do not apply.
    paint : callable
        See `Paint`; applied to everything other than treekit's own wording.
    """
    return "\n".join(_format_lines(report, every, paint))


def _format_lines(report: Report, every: bool, paint: Paint) -> Iterator[str]:
    yield paint(report.title, "title")
    hidden = () if every else ("holds", "does not apply", "not judged")
    for verdict in report.verdicts:
        if verdict.state not in hidden:
            why = f": {paint(verdict.why, 'text')}" if verdict.why else ""
            yield f"  {paint(*_MARKS[verdict.state])} {verdict.law.name}{why}"
    left = [verdict.why for verdict in report.verdicts if verdict.state == "not judged"]
    if left and not every:
        count = "1 law" if len(left) == 1 else f"{len(left)} laws"
        why = paint(", ".join(dict.fromkeys(left)), "text")
        yield f"  {paint(*_MARKS['not judged'])} {count}: {why}"
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
    n_hold = sum(verdict.state == "holds" for verdict in report.verdicts)
    n_inapplicable = sum(verdict.state == "does not apply" for verdict in report.verdicts)
    yield (
        f"  {n_hold} laws hold, {len(report.breaches)} broken, {len(report.declared)} declared, "
        f"{n_inapplicable} do not apply{report.unjudged}"
    )
