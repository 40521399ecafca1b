"""What a criterion costs: a million evaluations, beside those of a built-in one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numba as nb

from treekit.components.criteria import gini, squared_error
from treekit.testing.compiling import Made, frozen, told
from treekit.testing.examples import Counting, Example, examples

__all__ = ["speed_facts"]

SPLITS = 64
"""Two-way splits that are evaluated by turns."""

CALLS = 50_000
PYTHON_CALLS = 400


def speed_facts(subject: Any) -> tuple[tuple[str, str], ...]:
    """For each function that kernels call: compiled or why not, and its cost.

    The statistics are of the size of the subject's second counting, or of its
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
    """Seconds of a million scores of a built-in criterion of the same size."""
    score = gini().score if name == "gini" else squared_error().score
    assert score is not None  # noqa: S101 - both have one
    jitted = nb.njit(error_model="numpy")(score)
    return _compiled_cost(jitted, _arguments("score", of))


def _arguments(name: str, of: Counting) -> list[tuple[Any, ...]]:
    """Splits of both kinds of rows, or their nodes."""
    two = [e for e in examples(of) if len(e.branches) == 2 and all(e.branches) and not e.pure]
    chosen: list[Example] = (two * SPLITS)[:SPLITS]
    if name == "impurity":
        return [(frozen(e.parent),) for e in chosen]
    return [(frozen(e.parent), frozen(e.children)) for e in chosen]


def _cost(function: Callable[..., Any], made: Made, arguments: list[tuple[Any, ...]]) -> float:
    """Seconds of a million evaluations."""
    if made.jitted is not None:
        return _compiled_cost(made.jitted, arguments)
    core = getattr(function, "py_func", function)
    start = time.perf_counter()
    for i in range(PYTHON_CALLS):
        core(*arguments[i % SPLITS])
    return (time.perf_counter() - start) / PYTHON_CALLS * 1e6


def _compiled_cost(jitted: Any, arguments: list[tuple[Any, ...]]) -> float:
    """The least of five rounds: other processes only ever add to a time."""
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
