"""Laws of the contract, and how they are tested.

A law is tested on examples in ascending size, so that the first that breaks it
is the smallest, and need not be shrunk.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from treekit import registry
from treekit.contracts import Layout, Setting
from treekit.errors import PluginError, SettingError
from treekit.record_checks import KINDS, declared_settings, kind_of
from treekit.settings import resolve
from treekit.testing.example_tables import shown_call, shown_numbers
from treekit.testing.report import Breach, Law, Report, Verdict

__all__ = [
    "ANSWERS",
    "BOUNDS",
    "DECLARED",
    "FINITE",
    "MAKES",
    "NUMBERS",
    "REPEATS",
    "WELL_FORMED",
    "WRITES",
    "Broken",
    "Inapplicable",
    "Opened",
    "Test",
    "asked",
    "broken",
    "inapplicable",
    "judge",
    "look_at",
    "opened",
    "place_of",
    "raised_at",
    "said_by",
    "try_bounds",
]


# ---------------------------------------------------------------- laws

Test = Callable[[Any], None]
"""Tests a subject for one law: raises `Broken` or `Inapplicable`, or returns."""

DECLARED = Law(
    "declares-laws-there-are",
    "Every key of `exempt` is a law of this kind of component, with a reason.",
    "the record's `exempt`: a mapping of law names, as in this report, to reasons",
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
    """Raised by a test that does not apply to this component, with the reason."""


def broken(
    example: object, got: object, expected: object, *, law: str = "", look: str = ""
) -> NoReturn:
    """End a test with a breach.

    Parameters
    ----------
    example, got, expected : object
        Text of a call with its arguments, of its result, and of the result
        that the law requires.
    law : str, optional
        Name of the law broken, if it is not the one under test (a function that
        raises can break any test).
    look : str, optional
        What to look at, if more is known than in the law's own hint.
    """
    raise Broken(str(example), str(got), str(expected), law, look)


def inapplicable(why: str) -> NoReturn:
    """End a test that does not apply to this component: `why`, as part of a sentence."""
    raise Inapplicable(why)


def judge(
    report: Report,
    subject: Any,
    laws: Iterable[tuple[Law, Test]],
    exempt: Mapping[str, str],
    gates: Iterable[tuple[Law, Test]] = (),
    then: Iterable[tuple[Law, Test]] = (),
) -> Report:
    """Add a verdict on every law to a report.

    Parameters
    ----------
    report : Report
        Report on the component, without verdicts.
    subject : object
        Argument of the tests.
    laws : iterable of (Law, Test)
        In the order of the report; a law may have several tests.
    exempt : mapping
        Laws that the component declares cannot hold, with the reason.
    gates : iterable of (Law, Test)
        Laws that must hold, or be declared, before the others can be judged: the
        report then shows the cause of a fault and not its consequences.
    then : iterable of (Law, Test)
        Laws that are judged only if all of `laws` hold, too, or are declared.
    """
    stages = [list(gates), list(laws), list(then)]
    every = [pair for stage in stages for pair in stage]
    law_by_name = {law.name: law for law, _ in every}
    breaches: dict[str, Breach] = {}
    outcomes: dict[str, tuple[str, str]] = {}
    for stage in stages:
        blocking = next((name for name in breaches if name not in exempt), "")
        for law, test in stage:
            if blocking:
                outcomes.setdefault(law.name, ("not judged", f"{blocking} is broken"))
            else:
                _try(law, test, subject, law_by_name, breaches, outcomes)
    verdicts = [_declared(exempt, law_by_name)]
    verdicts += [_verdict(law, breaches, outcomes, exempt) for law in law_by_name.values()]
    return report.with_verdicts(verdicts)


def _try(
    law: Law,
    test: Test,
    subject: Any,
    known: Mapping[str, Law],
    breaches: dict[str, Breach],
    outcomes: dict[str, tuple[str, str]],
) -> None:
    """Run a test; record its outcome, and its breach of this or another law."""
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


# ---------------------------------------------------------------- component to check

WELL_FORMED = Law(
    "record-is-well-formed",
    "The record has valid values in all fields of its kind of component.",
    "the record that the hook lists, and `treekit.contracts`",
)
MAKES = Law(
    "makes-its-functions",
    "`make(**settings)` returns the functions that the contract requires.",
    "the record's `make`",
)


@dataclass(frozen=True)
class Opened:
    """A component with its settings.

    Attributes
    ----------
    record : Criterion, Splitter, Pruner, Exporter or Importer
    functions : object
        Result of ``make``; None for kinds without ``make``, and if the report
        already has a breach.
    settings : dict
        Value of every setting.
    report : Report
        Without verdicts on the laws, except those on the record and its ``make``.
    """

    record: Any
    functions: Any
    settings: dict[str, Any]
    report: Report

    @property
    def usable(self) -> bool:
        """Whether there is a component to judge."""
        return self.report.ok


def opened(
    kind: str,
    wanted: Any,
    settings: Mapping[str, Any] | None,
    strict: bool,
    ground: Callable[[Any, dict[str, Any]], tuple[dict[str, Any], Layout | None]] | None = None,
) -> Opened:
    """Find a component and call its ``make``.

    Parameters
    ----------
    kind : str
        ``"criterion"``, ``"splitter"``, ``"pruner"``, ``"exporter"`` or ``"importer"``.
    wanted : str or record
    settings : mapping or None
        Its own settings; the others take their defaults.
    strict : bool
        See `Report`.
    ground : callable, optional
        ``ground(record, settings)`` returns the completed settings and the layout of a task.

    Raises
    ------
    SettingError
        For a name that is not installed, or an unknown setting of the component:
        errors of the caller, not breaches.
    """
    given = dict(settings or {})
    if isinstance(wanted, str):
        record = getattr(registry, kind)(wanted)
    else:
        record = wanted
        try:
            getattr(registry, kind)(wanted)
        except PluginError as error:
            name = str(getattr(record, "name", record))
            report = Report(kind, name, settings=given, strict=strict)
            return Opened(record, None, given, _failed(report, WELL_FORMED, error))
    owner = registry.origin(record)
    origin = " ".join(owner[key] for key in ("distribution", "version")).strip()
    report = Report(kind, record.name, origin, given, strict)
    report = report.with_verdicts([Verdict(WELL_FORMED, "holds")])
    if "make" not in dict(KINDS[kind].callables):
        where = f"{kind_of(record).name} {record.name!r}"
        return Opened(record, None, resolve(record.settings, given, where), report)
    layout = None
    try:
        if ground is not None:
            given, layout = ground(record, given)
        functions, made = registry.make(record, given, layout)
    except PluginError as error:
        return Opened(record, None, given, _failed(report, MAKES, error))
    return Opened(record, functions, made, report.with_verdicts([Verdict(MAKES, "holds")]))


def _failed(report: Report, law: Law, error: Exception) -> Report:
    breach = Breach(law, report.title, str(error), law.sentence, law.look)
    return report.with_verdicts([Verdict(law, "broken", "", breach)])


# ---------------------------------------------------------------- checked calls

ANSWERS = Law(
    "answers-every-node",
    "No function raises, for one row, one class, empty branches, or tiny and huge weights.",
    "a division by a weight that may be 0, an index out of range, a logarithm of 0",
)
NUMBERS = Law(
    "returns-numbers",
    "A function returns one number (`choose` an integer, `before` true or false).",
    "each `return` of the function, and paths without one",
)
FINITE = Law(
    "finite-values",
    "A function returns neither NaN nor infinity (a loss may be infinite).",
    "0 / 0 and log(0): branches may be empty, classes absent",
)
WRITES = Law(
    "inputs-are-not-written",
    "A function does not change the arrays that it is given.",
    "assignments to an argument's cells, and `+=`, `.sort()`, `out=` on them: copy it first",
)
REPEATS = Law(
    "same-input-same-answer",
    "A function returns the same value for the same arguments.",
    "random numbers, the time, globals and counters that persist between calls",
)


def asked(
    name: str, function: Callable[..., Any], *arguments: Any, kind: type = float, inf: bool = False
) -> Any:
    """Call a plugin's function as plain Python; raise `Broken` for any breach.

    Parameters
    ----------
    name : str
        Name of the function in its record, for the example.
    function : callable
    *arguments : array or number
        Copies of them are passed.
    kind : {float, int, bool}
        Expected type of the result.
    inf : bool
        Whether the result may be infinite.
    """
    core = getattr(function, "py_func", function)
    given = [np.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
    call = shown_call(name, *arguments)
    try:
        with np.errstate(all="ignore"):  # as in compiled code
            answer = core(*given)
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        look = look_at(error, ANSWERS)
        broken(call, said_by(error), f"one {_NAMES[kind]}", law=ANSWERS.name, look=look)
    for before, after in zip(arguments, given, strict=True):
        if isinstance(before, np.ndarray) and not np.array_equal(before, after, equal_nan=True):
            got = f"its argument changed to {shown_numbers(after)}"
            broken(call, got, "the argument unchanged", law=WRITES.name, look=place_of(core))
    if not _is(answer, kind):
        broken(call, repr(answer)[:80], f"one {_NAMES[kind]}", law=NUMBERS.name)
    if kind is not bool and not (math.isfinite(answer) or (inf and not math.isnan(answer))):
        broken(call, float(answer), "a finite number", law=FINITE.name)
    return kind(answer)


_NAMES = {float: "number", int: "integer", bool: "Boolean"}


def _is(answer: Any, kind: type) -> bool:
    if isinstance(answer, np.ndarray) and answer.ndim:
        return False
    if kind is bool:
        return isinstance(answer, bool | np.bool_)
    wanted = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    return isinstance(answer, wanted) or (
        isinstance(answer, np.ndarray) and np.issubdtype(answer.dtype, np.number)
    )


def said_by(error: Exception) -> str:
    """Format an exception: type and message."""
    return f"{type(error).__name__}: {error}"


def raised_at(error: BaseException) -> str:
    """Format the innermost frame with a source line: ``file.py:12: the line``, or nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "treekit/testing" not in Path(f.filename).as_posix()]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}: {own[-1].line}" if own else ""


def look_at(error: Exception, law: Law) -> str:
    """Combine the line that raised with the hint of the law."""
    place = raised_at(error)
    return f"{place}\n{law.look}" if place else law.look


def place_of(function: Any) -> str:
    """Format the position of a function: ``file.py:12``."""
    code = getattr(function, "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else repr(function)


# ---------------------------------------------------------------- settings at their bounds

BOUNDS = Law(
    "settings-work-at-their-bounds",
    "Every value that a setting's declaration accepts works: the bounds, and each choice.",
    "the Setting: exclude a bound for which the formula fails by `above`, or narrow the bounds",
)


def try_bounds(
    record: Any,
    given: Mapping[str, Any],
    use: Callable[[Any], None],
    layout: Layout | None = None,
) -> None:
    """Make a component with each setting at its bounds, and use its functions.

    Parameters
    ----------
    record : Criterion, Splitter or Pruner
    given : mapping
        Settings under which it is judged, one of which is varied at a time.
    use : callable
        Calls the functions; raises `Broken`.
    layout : Layout, optional
        Of a criterion's task.
    """
    varied = [(s, value) for s in declared_settings(record) for value in _ends(s)]
    if not varied:
        inapplicable("it declares no setting that has bounds or choices")
    for setting, value in varied:
        settings = {**given, setting.name: value}
        call = f"make({', '.join(f'{key}={own!r}' for key, own in settings.items())})"
        try:
            functions, _ = registry.make(record, settings, layout)
        except SettingError:  # a combination that the component rejects
            continue
        except PluginError as error:
            broken(call, error, "functions")
        try:
            use(functions)
        except Broken as found:
            broken(f"{call}, then {found.example}", found.got, found.expected, look=found.look)


def _ends(setting: Setting) -> Iterator[Any]:
    """Yield bounds, choices, and both Booleans, except the default."""
    kinds = setting.type if isinstance(setting.type, tuple) else (setting.type,)
    kind = type(setting.default) if setting.type is None else kinds[0]
    ends: list[Any] = list(setting.choices)
    ends += [True, False] if kind is bool else []
    ends += [bound for bound in (setting.minimum, setting.maximum) if bound is not None]
    if setting.above is not None:
        ends.append(setting.above + 1e-6 * max(1.0, abs(setting.above)))
    if type(None) in kinds:
        ends.append(None)
    for end in ends:
        value = end
        if kind is float and type(end) is int:
            value = float(end)
        if kind is int and type(end) is float:
            value = math.ceil(end)
        if value != setting.default:
            yield value
