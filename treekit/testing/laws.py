"""Laws of the contract, and their tests.

A law is tested on examples in ascending size, so that the first example that breaks it
is the smallest.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.contracts import Setting
from treekit.errors import PluginError, SettingError
from treekit.registry.kinds import list_settings
from treekit.testing.example_tables import Counting, Example, format_call, format_numbers
from treekit.testing.report import Breach, Law, Verdict

if TYPE_CHECKING:
    from treekit.testing.training import Trainer

# ---------------------------------------------------------------- laws

LawTest = Callable[[Any], None]
"""Tests a subject for one law: raises `LawBroken` or `LawInapplicable`, or returns."""

Laws = tuple[tuple[LawTest, *tuple[Law, ...]], ...]
"""Tests, each with the laws that it finds broken, in the order of the report."""

DECLARED = Law(
    "declares-laws-there-are",
    "Every key of `exempt` is a law of this kind of component, with a reason.",
    "the record's `exempt`: a mapping of law names, as in this report, to reasons",
)
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
class Subject:
    """A component under test.

    Attributes
    ----------
    record : Criterion, Splitter, ...
    settings : dict
        Value of every setting.
    functions : object
        Result of ``make``; None for kinds without ``make``.
    layout : Layout or None
        Of a criterion's task.
    trainers : tuple of Trainer
        Trainings with the component.
    """

    record: Any
    settings: Mapping[str, Any]
    functions: Any = None
    layout: Any = None
    trainers: tuple[Trainer, ...] = ()

    def use_functions(self) -> None:
        """Call the functions for a few examples; raise `LawBroken` for any breach."""

    def find_remedy(self, test: LawTest) -> str:
        """Return what else to look at after `test` found a breach, or an empty text."""
        del test
        return ""

    def measure(self) -> tuple[tuple[str, str], ...]:
        """Return facts for the report on a component without a breach, such as times."""
        return ()


class LawBroken(Exception):  # noqa: N818 - a verdict, not an error
    """Raised by a test for the smallest example that breaks a law; see `break_law`."""

    def __init__(self, example: str, got: str, expected: str, law: Law | None, look: str) -> None:
        super().__init__(example)
        self.example, self.got, self.expected = example, got, expected
        self.law, self.look = law, look


class LawInapplicable(Exception):  # noqa: N818 - a verdict, not an error
    """Raised by a test that does not apply to this component, with the reason."""


def break_law(
    example: object, got: object, expected: object, *, law: Law | None = None, look: str = ""
) -> NoReturn:
    """End a test with a breach.

    Parameters
    ----------
    example, got, expected : object
        Text of a call with its arguments, of its result, and of the result
        that the law requires.
    law : Law, optional
        The law broken, if it is not the one under test (a function that
        raises can break any test).
    look : str, optional
        What to look at, if more is known than in the law's own hint.
    """
    raise LawBroken(str(example), str(got), str(expected), law, look)


def blame_error(example: str, error: Exception, expected: object, law: Law) -> NoReturn:
    """End a test with an exception of the component; the line that raised it is to be looked at."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "treekit/testing" not in Path(f.filename).as_posix()]
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}: {own[-1].line}" if own else ""
    alone = place and isinstance(error, NameError)  # the line shows the cause
    look = place if alone else f"{place}\n{law.look}".lstrip()
    break_law(example, format_exception(error), expected, law=law, look=look)


def skip_law(why: str) -> NoReturn:
    """End a test that does not apply to this component: `why`, as part of a sentence."""
    raise LawInapplicable(why)


def judge_laws(subject: Subject, stages: Sequence[Laws]) -> list[Verdict]:
    """Return a verdict on every law of a component.

    Parameters
    ----------
    subject : Subject
    stages : sequence of Laws
        Groups of laws, tested in order.  A group is tested only if every law of the earlier
        groups holds or is exempt, so that the report shows the cause of a fault and not its
        consequences.
    """
    exempt = subject.record.exempt
    laws = {law.name: law for stage in stages for _, *own in stage for law in own}
    verdicts: dict[str, Verdict] = {}
    for stage in stages:
        broken = (v for name, v in verdicts.items() if v.breach and name not in exempt)
        blocking = next(broken, None)
        for test, *own in stage:
            found = (
                _leave_unjudged(own, blocking) if blocking else _test_laws(test, own, subject, laws)
            )
            for verdict in found:
                former = verdicts.setdefault(verdict.law.name, verdict)
                if not former.breach and verdict.state in ("holds", "broken"):
                    verdicts[verdict.law.name] = verdict
    unknown = next((name for name in exempt if name not in laws), None)
    declared = Verdict(DECLARED, "holds")
    if unknown is not None:
        example, known = f"exempt[{unknown!r}]", ", ".join(laws)
        breach = Breach(DECLARED, example, "no such law", known, DECLARED.look)
        declared = Verdict(DECLARED, "broken", "", breach)
    return [declared, *(_apply_exemption(verdicts[name], exempt) for name in laws)]


def _test_laws(
    test: LawTest, laws: Sequence[Law], subject: Subject, known: Mapping[str, Law]
) -> list[Verdict]:
    """Run one test; return a verdict on each of its `laws`, and on any other law found broken."""
    try:
        test(subject)
    except LawInapplicable as reason:
        return [Verdict(law, "does not apply", str(reason)) for law in laws]
    except LawBroken as found:
        law = known[found.law.name] if found.law else laws[0]
        look = "\n".join(filter(None, (found.look or law.look, subject.find_remedy(test))))
        breach = Breach(law, found.example, found.got, found.expected, look)
        verdict = Verdict(law, "broken", "", breach)
        return [verdict, *_leave_unjudged(laws, verdict)]
    return [Verdict(law, "holds") for law in laws]


def _leave_unjudged(laws: Sequence[Law], blocking: Verdict) -> list[Verdict]:
    return [Verdict(law, "not judged", f"{blocking.law.name} is broken") for law in laws]


def _apply_exemption(verdict: Verdict, exempt: Mapping[str, str]) -> Verdict:
    why = exempt.get(verdict.law.name, "")
    states = {"broken": "declared", "holds": "declared, yet holds"}
    if not why:
        return verdict
    return replace(verdict, state=states.get(verdict.state, verdict.state), why=why)


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
        blame_error(call, error, f"one {_NAMES[kind]}", ANSWERS)
    for before, after in zip(arguments, given, strict=True):
        if isinstance(before, np.ndarray) and not np.array_equal(before, after, equal_nan=True):
            got = f"its argument changed to {format_numbers(after)}"
            code = getattr(core, "__code__", None)
            look = f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else repr(core)
            break_law(call, got, "the argument unchanged", law=WRITES, look=look)
    if not _is_of_kind(answer, kind):
        break_law(call, repr(answer)[:80], f"one {_NAMES[kind]}", law=NUMBERS)
    if kind is not bool and not (
        math.isfinite(answer) or (allow_infinite and not math.isnan(answer))
    ):
        break_law(call, float(answer), "a finite number", law=FINITE)
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


# ---------------------------------------------------------------- settings at their bounds

BOUNDS = Law(
    "settings-work-at-their-bounds",
    "Every value that a setting's declaration accepts works: the bounds, and each choice.",
    "the Setting: exclude a bound for which the formula fails by `above`, or narrow the bounds",
)


def check_bounds(subject: Subject) -> None:
    """Make a component with each setting at its bounds, and use its functions."""
    varied = [(s, value) for s in list_settings(subject.record) for value in _iter_bounds(s)]
    if not varied:
        skip_law("it declares no setting that has bounds or choices")
    for setting, value in varied:
        settings = {**subject.settings, setting.name: value}
        call = f"make({', '.join(f'{key}={own!r}' for key, own in settings.items())})"
        try:
            functions, _ = registry.make(subject.record, settings, subject.layout)
            replace(subject, functions=functions).use_functions()
        except SettingError:  # a combination that the component rejects
            continue
        except PluginError as error:
            break_law(call, error, "functions")
        except LawBroken as found:
            break_law(f"{call}, then {found.example}", found.got, found.expected, look=found.look)


def _iter_bounds(setting: Setting) -> Iterator[Any]:
    """Yield bounds, choices, and both Booleans, except the default."""
    kinds = setting.type if isinstance(setting.type, tuple) else (setting.type,)
    kind = type(setting.default) if setting.type is None else kinds[0]
    ends = [*setting.choices, setting.minimum, setting.maximum]
    ends += [True, False] if kind is bool else []
    if setting.above is not None:
        ends.append(setting.above + 1e-6 * max(1.0, abs(setting.above)))
    for end in ends:
        if end is None:
            continue
        value = float(end) if kind is float and type(end) is int else end
        value = math.ceil(end) if kind is int and type(end) is float else value
        if value != setting.default:
            yield value
    if type(None) in kinds and setting.default is not None:
        yield None


# ---------------------------------------------------------------- changes without an effect

DOUBLING = Law(
    "doubling-weights-changes-nothing",
    "With every weight doubled, impurity, score and leaf value stay the same.",
    "absolute weights: divide by the node's weight (a test of significance declares this law)",
)
BRANCHES = Law(
    "permuting-branches-changes-nothing",
    "The order of its branches changes neither the score of a split nor whether it is made.",
    "children that are treated by their position",
)
EMPTY = Law(
    "empty-branches-change-nothing",
    "A branch without rows, as of an absent category, does not change the result for a split.",
    "counts of branches: skip those of weight 0",
)

Change = Callable[[Counting, npt.NDArray[np.float64]], npt.NDArray[np.float64]]
"""Change of the statistics of a node, (S,), or of branches, (branches, S)."""


@dataclass(frozen=True)
class StatisticsSubject(Subject):
    """A component whose functions take statistics of nodes and splits.

    Attributes
    ----------
    countings : tuple of Counting
        Kinds of statistics for the examples, such as the weights of two classes; those with
        the fewest numbers first.
    """

    countings: tuple[Counting, ...] = ()

    def iter_calls(self, *names: str) -> Iterator[tuple[Counting, Example, str, tuple[Any, ...]]]:
        """Yield functions of some names with their arguments for every example, small ones first.

        Without names, for all functions of statistics.
        """
        raise NotImplementedError

    def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Return the checked result of a function."""
        raise NotImplementedError

    def check_calls(self) -> None:
        """Call every function on every example."""
        for _, _, name, arguments in self.iter_calls():
            self.call(name, arguments)


def check_invariance(
    subject: StatisticsSubject, change: Change, names: tuple[str, ...] = ()
) -> None:
    """Raise `LawBroken` if a change of all statistics changes the result of a function."""
    for of, split, name, arguments in subject.iter_calls(*names):
        changed = tuple(change(of, array) for array in arguments)
        one, other = subject.call(name, arguments), subject.call(name, changed)
        if abs(other - one) > split.noise + 1e-9 * abs(one):
            got = f"{one!r}, and {other!r} for {format_call(name, *changed)}"
            break_law(format_call(name, *arguments), got, "the same")


def keep_statistics(_: Counting, array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Change nothing: a function must return the same value again."""
    return array


def double_weights(of: Counting, array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Double the weight of every row."""
    times = np.full(of.size, 2.0)
    if not of.additive:
        times[1] = 1.0  # a quantile is no sum
    return np.asarray(array * times)


def reverse_branches(_: Counting, array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Reverse the order of the branches."""
    return np.ascontiguousarray(array[::-1]) if array.ndim == 2 else array


def add_empty_branch(of: Counting, array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Add a branch without rows."""
    return np.vstack([array, np.zeros((1, of.size))]) if array.ndim == 2 else array
