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

from treekit.components.criteria import make_gini, make_squared_error
from treekit.grow.compile_criterion import FROZEN_CELLS, FROZEN_MATRIX, PENALTY_SIGNATURE
from treekit.grow.compile_plugin import CompileFailure, try_compile
from treekit.testing.example_tables import Counting, Example, format_call, make_examples
from treekit.testing.laws import break_law, skip_law
from treekit.testing.report import Law

__all__ = [
    "COMPILED",
    "Compilation",
    "CompiledFunctions",
    "check_compiled_equal",
    "check_same_number",
    "copy_frozen",
    "format_complaint",
    "measure_speed",
]


# ---------------------------------------------------------------- compilation

ARGUMENT_TYPES: dict[str, tuple[Any, ...]] = {
    "impurity": (FROZEN_CELLS,),
    "score": (FROZEN_CELLS, FROZEN_MATRIX),
    "choose": (FROZEN_CELLS,) * 3,
    "order": (FROZEN_CELLS,),
    "priority": (FROZEN_CELLS,),
    "penalty": PENALTY_SIGNATURE.args,
    "before": (FROZEN_CELLS, FROZEN_MATRIX, FROZEN_CELLS, FROZEN_MATRIX),
}
"""Functions called by kernels, with the numba types of their arguments."""

RETURN_TYPES: dict[str, type] = {"choose": int, "before": bool}
"""Their types of results other than float."""

COMPILED = Law(
    "compiled-equals-plain",
    "A function compiled by numba returns the same value as in Python.",
    "integers beyond 64 bits, globals that change, `//` and `%` of negative or zero numbers",
)


@dataclass(frozen=True)
class Compilation:
    """Compilation of a function: the dispatcher, or None and the reason; and its seconds."""

    dispatcher: Any
    complaint: CompileFailure | None
    seconds: float


@dataclass(frozen=True)
class CompiledFunctions:
    """Compiled functions by name; each is compiled on first use."""

    compilations: dict[str, Compilation] = field(default_factory=dict)

    def compile_function(self, name: str, function: Callable[..., Any]) -> Compilation:
        """Return the compilation of a function of that name."""
        if name not in self.compilations:
            start = time.perf_counter()
            checked = not (getattr(function, "__module__", None) or "").startswith("treekit.")
            returns = RETURN_TYPES.get(name, float)
            jitted, complaint = try_compile(
                function, ARGUMENT_TYPES[name], returns, checked=checked
            )
            self.compilations[name] = Compilation(jitted, complaint, time.perf_counter() - start)
        return self.compilations[name]

    def iter_compilations(self, functions: Any) -> Iterator[tuple[str, Compilation]]:
        """Yield every function of a component that kernels call."""
        for name in ARGUMENT_TYPES:
            function = getattr(functions, name, None)
            if function is not None:
                yield name, self.compile_function(name, function)


def check_compiled_equal(subject: Any) -> None:
    """Compare impurity and score, compiled and plain, on every example."""
    functions, machine = subject.functions, subject.machine
    dispatchers = {
        name: made.dispatcher
        for name, made in machine.iter_compilations(functions)
        if made.dispatcher is not None and name in ("impurity", "score")
    }
    if not dispatchers:
        skip_law("numba compiles none of its functions, which run as Python")
    for _, split in subject.iter_splits():
        for name, arguments, value in subject.iter_measures(split):
            if name in dispatchers:
                check_same_number(name, dispatchers[name], arguments, value, split.noise)


def check_same_number(
    name: str, jitted: Any, arguments: tuple[Any, ...], value: float, noise: float = 1e-9
) -> None:
    """Raise `LawBroken` unless a compiled function returns `value`."""
    try:
        answer = jitted(*map(copy_frozen, arguments))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        break_law(format_call(name, *arguments), f"{value!r}, and compiled {error!r}", "the same")
    if not abs(answer - value) <= noise + 1e-9 * abs(value):
        call = format_call(name, *arguments)
        break_law(call, f"{value!r}, and compiled {answer!r}", "the same")


def copy_frozen(array: Any) -> Any:
    """Return a contiguous read-only copy, as kernels pass it."""
    copy = np.array(array, dtype=np.float64, order="C")
    copy.flags.writeable = False
    return copy


def format_complaint(complaint: CompileFailure) -> str:
    """Format where numba stopped: ``file.py:12: `the line`: the reason``."""
    if not complaint.file:
        return complaint.reason
    line = linecache.getline(complaint.file, complaint.line).strip()
    source = f" `{line}`" if line else ""
    return f"{Path(complaint.file).name}:{complaint.line}:{source} {complaint.reason}"


# ---------------------------------------------------------------- speed
# Seconds of a million evaluations of a criterion, compared with a built-in one.

N_SPLITS = 64
"""Number of two-way splits that are evaluated in turn."""

N_CALLS = 50_000
N_PYTHON_CALLS = 400


def measure_speed(subject: Any) -> tuple[tuple[str, str], ...]:
    """Return for each function that kernels call: compiled or why not, and its cost.

    The statistics have the size of the subject's second counting, or of its
    only one: two-way splits, as a scan of cuts evaluates them.
    """
    of = subject.countings[:2][-1]
    built_in = "squared_error" if of.dense else "gini"
    base = _measure_reference(built_in, of)
    facts = []
    for name, made in subject.machine.iter_compilations(subject.functions):
        how = f"compiled in {made.seconds:.2f} s"
        if made.complaint is not None:
            how = f"runs as Python, slower: {format_complaint(made.complaint)}"
        if name in ("impurity", "score"):
            cost = _measure_cost(getattr(subject.functions, name), made, _make_arguments(name, of))
            how += (
                f"; a million evaluations of {of.size} cells take {cost:.3g} s, "
                f"{cost / base:.3g} times {built_in}'s"
            )
        facts.append((name, how))
    return tuple(facts)


@cache
def _measure_reference(name: str, of: Counting) -> float:
    """Measure seconds of a million scores of a built-in criterion of the same size."""
    score = make_gini().score if name == "gini" else make_squared_error().score
    assert score is not None  # noqa: S101 - both have one
    jitted = nb.njit(error_model="numpy")(score)
    return _measure_compiled_cost(jitted, _make_arguments("score", of))


def _make_arguments(name: str, of: Counting) -> list[tuple[Any, ...]]:
    """Return splits of two mixed branches, or their nodes."""
    two = [
        e for e in make_examples(of) if len(e.branches) == 2 and all(e.branches) and not e.is_pure
    ]
    chosen: list[Example] = (two * N_SPLITS)[:N_SPLITS]
    if name == "impurity":
        return [(copy_frozen(e.parent),) for e in chosen]
    return [(copy_frozen(e.parent), copy_frozen(e.children)) for e in chosen]


def _measure_cost(
    function: Callable[..., Any], made: Compilation, arguments: list[tuple[Any, ...]]
) -> float:
    """Measure seconds of a million evaluations."""
    if made.dispatcher is not None:
        return _measure_compiled_cost(made.dispatcher, arguments)
    core = getattr(function, "py_func", function)
    start = time.perf_counter()
    for i in range(N_PYTHON_CALLS):
        core(*arguments[i % N_SPLITS])
    return (time.perf_counter() - start) / N_PYTHON_CALLS * 1e6


def _measure_compiled_cost(jitted: Any, arguments: list[tuple[Any, ...]]) -> float:
    """Measure the fastest of five rounds, as other processes can only slow it down."""
    parents = copy_frozen([a[0] for a in arguments])
    if len(arguments[0]) == 1:
        given: tuple[Any, ...] = (parents,)
        loop = _compile_impurity_loop(jitted)
    else:
        given = (parents, copy_frozen([a[1] for a in arguments]))
        loop = _compile_score_loop(jitted)
    loop(*given, 1)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        loop(*given, N_CALLS // N_SPLITS)
        times.append(time.perf_counter() - start)
    return min(times) / (N_CALLS // N_SPLITS * N_SPLITS) * 1e6


def _compile_score_loop(score: Any) -> Any:
    @nb.njit(error_model="numpy")
    def loop_scores(parents, children, rounds):  # type: ignore[no-untyped-def]
        total = 0.0
        for _ in range(rounds):
            for i in range(parents.shape[0]):
                total += score(parents[i], children[i])
        return total

    return loop_scores


def _compile_impurity_loop(impurity: Any) -> Any:
    @nb.njit(error_model="numpy")
    def loop_impurities(parents, rounds):  # type: ignore[no-untyped-def]
        total = 0.0
        for _ in range(rounds):
            for i in range(parents.shape[0]):
                total += impurity(parents[i])
        return total

    return loop_impurities
