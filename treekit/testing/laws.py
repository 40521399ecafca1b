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
from treekit.discovery import KINDS, find_kind, list_settings
from treekit.errors import PluginError, SettingError
from treekit.settings import resolve
from treekit.testing.example_tables import format_call, format_numbers
from treekit.testing.report import Breach, Law, Report, Verdict

# ---------------------------------------------------------------- laws

LawTest = Callable[[Any], None]
"""Tests a subject for one law: raises `LawBroken` or `LawInapplicable`, or returns."""

DECLARED = Law(
    "declares-laws-there-are",
    "Every key of `exempt` is a law of this kind of component, with a reason.",
    "the record's `exempt`: a mapping of law names, as in this report, to reasons",
)


class LawBroken(Exception):  # noqa: N818 - a verdict, not an error
    """Raised by a test for the smallest example that breaks a law; see `break_law`."""

    def __init__(
        self, example: str, got: str, expected: str, law: str = "", look: str = ""
    ) -> None:
        super().__init__(example)
        self.example, self.got, self.expected = example, got, expected
        self.law, self.look = law, look


class LawInapplicable(Exception):  # noqa: N818 - a verdict, not an error
    """Raised by a test that does not apply to this component, with the reason."""


def break_law(
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
    raise LawBroken(str(example), str(got), str(expected), law, look)


def skip_law(why: str) -> NoReturn:
    """End a test that does not apply to this component: `why`, as part of a sentence."""
    raise LawInapplicable(why)


def judge_laws(
    report: Report,
    subject: Any,
    laws: Iterable[tuple[Law, LawTest]],
    exempt: Mapping[str, str],
    first_laws: Iterable[tuple[Law, LawTest]] = (),
    last_laws: Iterable[tuple[Law, LawTest]] = (),
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
    first_laws : iterable of (Law, Test)
        Laws that must hold, or be declared, before the others can be judged: the
        report then shows the cause of a fault and not its consequences.
    last_laws : iterable of (Law, Test)
        Laws that are judged only if all of `laws` hold, too, or are declared.
    """
    stages = [list(first_laws), list(laws), list(last_laws)]
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
                _test_law(law, test, subject, law_by_name, breaches, outcomes)
    verdicts = [_check_exemptions(exempt, law_by_name)]
    verdicts += [_make_verdict(law, breaches, outcomes, exempt) for law in law_by_name.values()]
    return report.with_verdicts(verdicts)


def _test_law(
    law: Law,
    test: LawTest,
    subject: Any,
    known: Mapping[str, Law],
    breaches: dict[str, Breach],
    outcomes: dict[str, tuple[str, str]],
) -> None:
    """Run a test; record its outcome, and its breach of this or another law."""
    try:
        test(subject)
    except LawInapplicable as reason:
        outcomes.setdefault(law.name, ("does not apply", str(reason)))
    except LawBroken as found:
        other = known[found.law] if found.law else law
        breaches.setdefault(other.name, _make_breach(other, found))
        if other is not law:
            outcomes[law.name] = ("not judged", f"{other.name} is broken")
    else:
        outcomes[law.name] = ("holds", "")


def _make_breach(law: Law, found: LawBroken) -> Breach:
    return Breach(law, found.example, found.got, found.expected, found.look or law.look)


def _make_verdict(
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


def _check_exemptions(exempt: Mapping[str, str], known: Mapping[str, Law]) -> Verdict:
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
class OpenedComponent:
    """A component with its settings.

    Attributes
    ----------
    record : Criterion, Splitter, ...
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
    def is_usable(self) -> bool:
        """Whether the component could be opened, so that its laws can be tested."""
        return self.report.ok


def open_component(
    kind: str,
    wanted: Any,
    settings: Mapping[str, Any] | None,
    strict: bool,
    prepare: Callable[[Any, dict[str, Any]], tuple[dict[str, Any], Layout | None]] | None = None,
) -> OpenedComponent:
    """Find a component and call its ``make``.

    Parameters
    ----------
    kind : str
        A key of `treekit.discovery.KINDS`, such as ``"criterion"``.
    wanted : str or record
    settings : mapping or None
        Its own settings; the others take their defaults.
    strict : bool
        See `Report`.
    prepare : callable, optional
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
            return OpenedComponent(record, None, given, _add_breach(report, WELL_FORMED, error))
    owner = registry.origin(record)
    origin = " ".join(owner[key] for key in ("distribution", "version")).strip()
    report = Report(kind, record.name, origin, given, strict)
    report = report.with_verdicts([Verdict(WELL_FORMED, "holds")])
    if "make" not in dict(KINDS[kind].callables):
        where = f"{find_kind(record).name} {record.name!r}"
        return OpenedComponent(record, None, resolve(record.settings, given, where), report)
    layout = None
    try:
        if prepare is not None:
            given, layout = prepare(record, given)
        functions, made = registry.make(record, given, layout)
    except PluginError as error:
        return OpenedComponent(record, None, given, _add_breach(report, MAKES, error))
    return OpenedComponent(record, functions, made, report.with_verdicts([Verdict(MAKES, "holds")]))


def _add_breach(report: Report, law: Law, error: Exception) -> Report:
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


def call_checked(
    name: str,
    function: Callable[..., Any],
    *arguments: Any,
    kind: type = float,
    allow_infinite: bool = False,
) -> Any:
    """Call a plugin's function as plain Python; raise `LawBroken` for any breach.

    Parameters
    ----------
    name : str
        Name of the function in its record, for the example.
    function : callable
    *arguments : array or number
        Copies of them are passed.
    kind : {float, int, bool}
        Expected type of the result.
    allow_infinite : bool
        Whether the result may be infinite.
    """
    core = getattr(function, "py_func", function)
    given = [np.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
    call = format_call(name, *arguments)
    try:
        with np.errstate(all="ignore"):  # as in compiled code
            answer = core(*given)
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        look = format_hint(error, ANSWERS)
        break_law(call, format_exception(error), f"one {_NAMES[kind]}", law=ANSWERS.name, look=look)
    for before, after in zip(arguments, given, strict=True):
        if isinstance(before, np.ndarray) and not np.array_equal(before, after, equal_nan=True):
            got = f"its argument changed to {format_numbers(after)}"
            break_law(
                call, got, "the argument unchanged", law=WRITES.name, look=locate_function(core)
            )
    if not _is_of_kind(answer, kind):
        break_law(call, repr(answer)[:80], f"one {_NAMES[kind]}", law=NUMBERS.name)
    if kind is not bool and not (
        math.isfinite(answer) or (allow_infinite and not math.isnan(answer))
    ):
        break_law(call, float(answer), "a finite number", law=FINITE.name)
    return kind(answer)


_NAMES = {float: "number", int: "integer", bool: "Boolean"}


def _is_of_kind(answer: Any, kind: type) -> bool:
    if isinstance(answer, np.ndarray) and answer.ndim:
        return False
    if kind is bool:
        return isinstance(answer, bool | np.bool_)
    wanted = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    return isinstance(answer, wanted) or (
        isinstance(answer, np.ndarray) and np.issubdtype(answer.dtype, np.number)
    )


def format_exception(error: Exception) -> str:
    """Format an exception: type and message."""
    return f"{type(error).__name__}: {error}"


def locate_error(error: BaseException) -> str:
    """Format the innermost frame with a source line: ``file.py:12: the line``, or nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "treekit/testing" not in Path(f.filename).as_posix()]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}: {own[-1].line}" if own else ""


def format_hint(error: Exception, law: Law) -> str:
    """Combine the line that raised with the hint of the law."""
    place = locate_error(error)
    return f"{place}\n{law.look}" if place else law.look


def locate_function(function: Any) -> str:
    """Format the position of a function: ``file.py:12``."""
    code = getattr(function, "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else repr(function)


# ---------------------------------------------------------------- settings at their bounds

BOUNDS = Law(
    "settings-work-at-their-bounds",
    "Every value that a setting's declaration accepts works: the bounds, and each choice.",
    "the Setting: exclude a bound for which the formula fails by `above`, or narrow the bounds",
)


def check_bounds(
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
        Calls the functions; raises `LawBroken`.
    layout : Layout, optional
        Of a criterion's task.
    """
    varied = [(s, value) for s in list_settings(record) for value in _iter_bounds(s)]
    if not varied:
        skip_law("it declares no setting that has bounds or choices")
    for setting, value in varied:
        settings = {**given, setting.name: value}
        call = f"make({', '.join(f'{key}={own!r}' for key, own in settings.items())})"
        try:
            functions, _ = registry.make(record, settings, layout)
        except SettingError:  # a combination that the component rejects
            continue
        except PluginError as error:
            break_law(call, error, "functions")
        try:
            use(functions)
        except LawBroken as found:
            break_law(f"{call}, then {found.example}", found.got, found.expected, look=found.look)


def _iter_bounds(setting: Setting) -> Iterator[Any]:
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
