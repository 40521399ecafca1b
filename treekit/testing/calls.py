"""Calls of a plugin's functions that notice whatever they do beside answering."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from treekit.testing.examples import shown_call, shown_numbers
from treekit.testing.laws import broken
from treekit.testing.report import Law

__all__ = [
    "ANSWERS",
    "FINITE",
    "NUMBERS",
    "REPEATS",
    "WRITES",
    "asked",
    "look_at",
    "place_of",
    "raised_at",
    "said_by",
]

ANSWERS = Law(
    "answers-every-node",
    "No function raises: not for one row, one class, an empty branch or tiny and huge weights.",
    "a division by a weight that may be 0, an index past the cells, a logarithm of 0",
)
NUMBERS = Law(
    "returns-numbers",
    "What a function returns is one number (of `choose` a whole one, of `before` true or false).",
    "each `return` of the function: also the one that is missing",
)
FINITE = Law(
    "finite-values",
    "What a function returns is neither NaN nor infinite (a loss may be infinite).",
    "0 / 0 and log(0): branches may be empty, classes absent",
)
WRITES = Law(
    "inputs-are-not-written",
    "A function leaves the arrays that it is given as they are.",
    "assignments to an argument's cells, and `+=`, `.sort()`, `out=` on them: take a copy first",
)
REPEATS = Law(
    "same-input-same-answer",
    "A function of the same arguments gives the same answer every time.",
    "random numbers, the time, globals and counters that outlive a call",
)


def asked(
    name: str, function: Callable[..., Any], *arguments: Any, kind: type = float, inf: bool = False
) -> Any:
    """What a plugin's function answers, called as plain Python, with a breach for all it may not.

    Parameters
    ----------
    name : str
        Of the function in its record, for the example.
    function : callable
    *arguments : array or number
        Copies are handed over.
    kind : {float, int, bool}
        What it is to return.
    inf : bool
        Whether the answer may be infinite.
    """
    core = getattr(function, "py_func", function)
    given = [np.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
    call = shown_call(name, *arguments)
    try:
        with np.errstate(all="ignore"):  # as where it is compiled
            answer = core(*given)
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        look = look_at(error, ANSWERS)
        broken(call, said_by(error), f"a {_NAMES[kind]}", law=ANSWERS.name, look=look)
    for before, after in zip(arguments, given, strict=True):
        if isinstance(before, np.ndarray) and not np.array_equal(before, after, equal_nan=True):
            got = f"its argument becomes {shown_numbers(after)}"
            broken(call, got, "the argument as it was", law=WRITES.name, look=place_of(core))
    if not _is(answer, kind):
        broken(call, repr(answer)[:80], f"one {_NAMES[kind]}", law=NUMBERS.name)
    if kind is not bool and not (math.isfinite(answer) or (inf and not math.isnan(answer))):
        broken(call, float(answer), "a finite number", law=FINITE.name)
    return kind(answer)


_NAMES = {float: "number", int: "whole number", bool: "truth value"}


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
    """Kind and message of an exception."""
    return f"{type(error).__name__}: {error}"


def raised_at(error: BaseException) -> str:
    """``file.py:12: the line`` of the innermost frame that has a source line, or nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "treekit/testing" not in Path(f.filename).as_posix()]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}: {own[-1].line}" if own else ""


def look_at(error: Exception, law: Law) -> str:
    """The line that raised, and what else the law says to look at."""
    place = raised_at(error)
    return f"{place}\n{law.look}" if place else law.look


def place_of(function: Any) -> str:
    """``file.py:12`` where a function begins."""
    code = getattr(function, "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else repr(function)
