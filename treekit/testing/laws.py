"""Laws of the contract, and what is told when a component breaks one.

A law is tested on examples that go from the smallest to larger ones, so that
the first that breaks it is the smallest: nothing has to be shrunk afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from treekit.testing.report import Breach, Law, Report, Verdict

__all__ = ["DECLARED", "Broken", "Inapplicable", "Test", "broken", "inapplicable", "judge"]

Test = Callable[[Any], None]
"""Judges a subject by one law: raises `Broken` or `Inapplicable`, or returns."""

DECLARED = Law(
    "declares-laws-there-are",
    "What `exempt` names are laws of this kind of component, each with a reason.",
    "the record's `exempt`: a mapping of law names, as in this report, to sentences",
)


class Broken(Exception):  # noqa: N818 - a verdict, not an error
    """Raised by a test for the smallest example that breaks a law; see `broken`."""

    def __init__(
        self, example: str, got: str, expected: str, law: str = "", look: str = ""
    ) -> None:
        super().__init__(example)
        self.example, self.got, self.expected = example, got, expected
        self.law, self.look = law, look


class Inapplicable(Exception):  # noqa: N818 - a verdict, not an error
    """Raised by a test that has nothing to say about this component, with the reason."""


def broken(
    example: object, got: object, expected: object, *, law: str = "", look: str = ""
) -> NoReturn:
    """End a test with a breach.

    Parameters
    ----------
    example, got, expected : object
        As they are to be read: a call and its arguments, what it gave, what
        the law wants.
    law : str, optional
        Name of the law that this breaks, where it is not the one under test
        (a function that raises, whatever is being tested).
    look : str, optional
        Where to look, if that is known better than the law itself does.
    """
    raise Broken(str(example), str(got), str(expected), law, look)


def inapplicable(why: str) -> NoReturn:
    """End a test that has nothing to say about this component: `why`, as part of a sentence."""
    raise Inapplicable(why)


def judge(
    report: Report,
    subject: Any,
    laws: Iterable[tuple[Law, Test]],
    exempt: Mapping[str, str],
    gates: Iterable[tuple[Law, Test]] = (),
    then: Iterable[tuple[Law, Test]] = (),
) -> Report:
    """The report with a verdict on every law.

    Parameters
    ----------
    report : Report
        Who is judged, without verdicts.
    subject : object
        What the tests take.
    laws : iterable of (Law, Test)
        In the order of the report; a law may have several tests.
    exempt : mapping
        Laws that the component declares cannot hold, with the reason.
    gates : iterable of (Law, Test)
        What must hold, or be declared, before the others can be judged: the
        report then shows the cause of a fault and not its consequences.
    then : iterable of (Law, Test)
        What is judged only if all of `laws` hold, or are declared, too.
    """
    stages = [list(gates), list(laws), list(then)]
    every = [pair for stage in stages for pair in stage]
    known = {law.name: law for law, _ in every}
    breaches: dict[str, Breach] = {}
    outcomes: dict[str, tuple[str, str]] = {}
    for stage in stages:
        shut = next((name for name in breaches if name not in exempt), "")
        for law, test in stage:
            if shut:
                outcomes.setdefault(law.name, ("not judged", f"{shut} is broken"))
            else:
                _try(law, test, subject, known, breaches, outcomes)
    verdicts = [_declared(exempt, known)]
    verdicts += [_verdict(law, breaches, outcomes, exempt) for law in known.values()]
    return report.with_verdicts(verdicts)


def _try(
    law: Law,
    test: Test,
    subject: Any,
    known: Mapping[str, Law],
    breaches: dict[str, Breach],
    outcomes: dict[str, tuple[str, str]],
) -> None:
    """Put a law's outcome, and what broke it or another one, into the dictionaries."""
    try:
        test(subject)
    except Inapplicable as reason:
        outcomes.setdefault(law.name, ("does not apply", str(reason)))
    except Broken as found:
        other = known[found.law] if found.law else law
        breaches.setdefault(other.name, _breach(other, found))
        if other is not law:
            outcomes[law.name] = ("not judged", f"{other.name} is broken")
    else:
        outcomes[law.name] = ("holds", "")


def _breach(law: Law, found: Broken) -> Breach:
    return Breach(law, found.example, found.got, found.expected, found.look or law.look)


def _verdict(
    law: Law,
    breaches: Mapping[str, Breach],
    outcomes: Mapping[str, tuple[str, str]],
    exempt: Mapping[str, str],
) -> Verdict:
    breach = breaches.get(law.name)
    why = exempt.get(law.name, "")
    if breach is not None:
        return Verdict(law, "declared" if why else "broken", why, breach)
    state, reason = outcomes[law.name]
    if why and state == "holds":
        return Verdict(law, "declared, yet holds", why)
    return Verdict(law, state, why or reason)


def _declared(exempt: Mapping[str, str], known: Mapping[str, Law]) -> Verdict:
    for name in exempt:
        if name not in known:
            breach = Breach(
                DECLARED, f"exempt[{name!r}]", "no such law", ", ".join(known), DECLARED.look
            )
            return Verdict(DECLARED, "broken", "", breach)
    return Verdict(DECLARED, "holds", "")
