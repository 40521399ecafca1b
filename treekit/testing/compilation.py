"""A plugin's functions as compiled by numba, compared with the plain ones."""

from __future__ import annotations

import linecache
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np

from treekit.components.criteria import gini, squared_error
from treekit.grow.compile_criterion import FROZEN_CELLS, FROZEN_MATRIX, PENALTY
from treekit.grow.compile_plugin import Complaint, attempt
from treekit.testing.example_tables import Counting, Example, examples, shown_call
from treekit.testing.laws import broken, inapplicable
from treekit.testing.report import Law

__all__ = [
    "COMPILED",
    "Machine",
    "Made",
    "compiled_equal",
    "frozen",
    "same_number",
    "speed_facts",
    "told",
]


# ---------------------------------------------------------------- compilation

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "impurity": (FROZEN_CELLS,),
    "score": (FROZEN_CELLS, FROZEN_MATRIX),
    "choose": (FROZEN_CELLS,) * 3,
    "order": (FROZEN_CELLS,),
    "priority": (FROZEN_CELLS,),
    "penalty": PENALTY.args,
    "before": (FROZEN_CELLS, FROZEN_MATRIX, FROZEN_CELLS, FROZEN_MATRIX),
}
"""Functions called by kernels, with the numba types of their arguments."""

RETURNS: dict[str, type] = {"choose": int, "before": bool}
"""Their types of results other than float."""

COMPILED = Law(
    "compiled-equals-plain",
    "A function compiled by numba returns the same value as in Python.",
    "integers beyond 64 bits, globals that change, `//` and `%` of negative or zero numbers",
)


@dataclass(frozen=True)
class Made:
    """Compilation of a function: the dispatcher, or None and the reason; and its seconds."""

    jitted: Any
    complaint: Complaint | None
    seconds: float


@dataclass(frozen=True)
class Machine:
    """Compiled functions by name; each is compiled on first use."""

    made: dict[str, Made] = field(default_factory=dict)

    def of(self, name: str, function: Callable[..., Any]) -> Made:
        """Return the compilation of a function of that name."""
        if name not in self.made:
            start = time.perf_counter()
            checked = not (getattr(function, "__module__", None) or "").startswith("treekit.")
            returns = RETURNS.get(name, float)
            jitted, complaint = attempt(function, ARGUMENTS[name], returns, checked=checked)
            self.made[name] = Made(jitted, complaint, time.perf_counter() - start)
        return self.made[name]

    def functions(self, functions: Any) -> Iterator[tuple[str, Made]]:
        """Yield every function of a component that kernels call."""
        for name in ARGUMENTS:
            function = getattr(functions, name, None)
            if function is not None:
                yield name, self.of(name, function)


def compiled_equal(subject: Any) -> None:
    """Compare impurity and score, compiled and plain, on every example."""
    functions, machine = subject.functions, subject.machine
    dispatchers = {
        name: made.jitted
        for name, made in machine.functions(functions)
        if made.jitted is not None and name in ("impurity", "score")
    }
    if not dispatchers:
        inapplicable("numba compiles none of its functions, which run as Python")
    for _, split in subject.splits():
        for name, arguments, value in subject.measures(split):
            if name in dispatchers:
                same_number(name, dispatchers[name], arguments, value, split.noise)


def same_number(
    name: str, jitted: Any, arguments: tuple[Any, ...], value: float, noise: float = 1e-9
) -> None:
    """Raise `Broken` unless a compiled function returns `value`."""
    try:
        answer = jitted(*map(frozen, arguments))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        broken(shown_call(name, *arguments), f"{value!r}, and compiled {error!r}", "the same")
    if not abs(answer - value) <= noise + 1e-9 * abs(value):
        call = shown_call(name, *arguments)
        broken(call, f"{value!r}, and compiled {answer!r}", "the same")


def frozen(array: Any) -> Any:
    """Return a contiguous read-only copy, as kernels pass it."""
    copy = np.array(array, dtype=np.float64, order="C")
    copy.flags.writeable = False
    return copy


def told(complaint: Complaint) -> str:
    """Format where numba stopped: ``file.py:12: `the line`: the reason``."""
    if not complaint.file:
        return complaint.reason
    line = linecache.getline(complaint.file, complaint.line).strip()
    source = f" `{line}`" if line else ""
    return f"{Path(complaint.file).name}:{complaint.line}:{source} {complaint.reason}"


# ---------------------------------------------------------------- speed
# Seconds of a million evaluations of a criterion, compared with a built-in one.

SPLITS = 64
"""Number of two-way splits that are evaluated in turn."""

CALLS = 50_000
PYTHON_CALLS = 400


def speed_facts(subject: Any) -> tuple[tuple[str, str], ...]:
    """Return for each function that kernels call: compiled or why not, and its cost.

    The statistics have the size of the subject's second counting, or of its
    only one: two-way splits, as a scan of cuts evaluates them.
    """
    of = subject.countings[:2][-1]
    built_in = "squared_error" if of.dense else "gini"
    base = _reference(built_in, of)
    facts = []
    for name, made in subject.machine.functions(subject.functions):
        how = f"compiled in {made.seconds:.2f} s"
        if made.complaint is not None:
            how = f"runs as Python, slower: {told(made.complaint)}"
        if name in ("impurity", "score"):
            cost = _cost(getattr(subject.functions, name), made, _arguments(name, of))
            how += (
                f"; a million evaluations of {of.size} cells take {cost:.3g} s, "
                f"{cost / base:.3g} times {built_in}'s"
            )
        facts.append((name, how))
    return tuple(facts)


@cache
def _reference(name: str, of: Counting) -> float:
    """Measure seconds of a million scores of a built-in criterion of the same size."""
    score = gini().score if name == "gini" else squared_error().score
    assert score is not None  # noqa: S101 - both have one
    jitted = nb.njit(error_model="numpy")(score)
    return _compiled_cost(jitted, _arguments("score", of))


def _arguments(name: str, of: Counting) -> list[tuple[Any, ...]]:
    """Return splits of two mixed branches, or their nodes."""
    two = [e for e in examples(of) if len(e.branches) == 2 and all(e.branches) and not e.pure]
    chosen: list[Example] = (two * SPLITS)[:SPLITS]
    if name == "impurity":
        return [(frozen(e.parent),) for e in chosen]
    return [(frozen(e.parent), frozen(e.children)) for e in chosen]


def _cost(function: Callable[..., Any], made: Made, arguments: list[tuple[Any, ...]]) -> float:
    """Measure seconds of a million evaluations."""
    if made.jitted is not None:
        return _compiled_cost(made.jitted, arguments)
    core = getattr(function, "py_func", function)
    start = time.perf_counter()
    for i in range(PYTHON_CALLS):
        core(*arguments[i % SPLITS])
    return (time.perf_counter() - start) / PYTHON_CALLS * 1e6


def _compiled_cost(jitted: Any, arguments: list[tuple[Any, ...]]) -> float:
    """Measure the fastest of five rounds, as other processes can only slow it down."""
    parents = frozen([a[0] for a in arguments])
    if len(arguments[0]) == 1:
        given: tuple[Any, ...] = (parents,)
        loop = _impurities(jitted)
    else:
        given = (parents, frozen([a[1] for a in arguments]))
        loop = _scores(jitted)
    loop(*given, 1)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        loop(*given, CALLS // SPLITS)
        times.append(time.perf_counter() - start)
    return min(times) / (CALLS // SPLITS * SPLITS) * 1e6


def _scores(score: Any) -> Any:
    @nb.njit(error_model="numpy")
    def loop(parents, children, rounds):  # type: ignore[no-untyped-def]
        total = 0.0
        for _ in range(rounds):
            for i in range(parents.shape[0]):
                total += score(parents[i], children[i])
        return total

    return loop


def _impurities(impurity: Any) -> Any:
    @nb.njit(error_model="numpy")
    def loop(parents, rounds):  # type: ignore[no-untyped-def]
        total = 0.0
        for _ in range(rounds):
            for i in range(parents.shape[0]):
                total += impurity(parents[i])
        return total

    return loop
