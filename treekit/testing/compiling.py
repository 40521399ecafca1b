"""A plugin's functions as numba compiles them, beside the plain ones."""

from __future__ import annotations

import linecache
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from treekit.grow.compile_criterion import FROZEN_CELLS, FROZEN_MATRIX, PENALTY
from treekit.grow.compile_plugin import Complaint, attempt
from treekit.testing.examples import shown_call
from treekit.testing.laws import broken, inapplicable
from treekit.testing.report import Law

__all__ = ["COMPILED", "Machine", "Made", "compiled_equal", "frozen", "same_number", "told"]

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "impurity": (FROZEN_CELLS,),
    "score": (FROZEN_CELLS, FROZEN_MATRIX),
    "choose": (FROZEN_CELLS,) * 3,
    "order": (FROZEN_CELLS,),
    "priority": (FROZEN_CELLS,),
    "penalty": PENALTY.args,
    "before": (FROZEN_CELLS, FROZEN_MATRIX, FROZEN_CELLS, FROZEN_MATRIX),
}
"""The functions that kernels call, and the numba types of their arguments."""

RETURNS: dict[str, type] = {"choose": int, "before": bool}
"""What they return, where it is not a number with a fraction."""

COMPILED = Law(
    "compiled-equals-plain",
    "A function compiled by numba answers as the same function called as Python.",
    "whole numbers beyond 64 bits, globals that change, `//` and `%` of negative or zero numbers",
)


@dataclass(frozen=True)
class Made:
    """A function's compilation: the dispatcher, or None and why; and the seconds it took."""

    jitted: Any
    complaint: Complaint | None
    seconds: float


@dataclass(frozen=True)
class Machine:
    """Compiled functions by name; each is compiled when first asked for."""

    made: dict[str, Made] = field(default_factory=dict)

    def of(self, name: str, function: Callable[..., Any]) -> Made:
        """The compilation of a function of that name."""
        if name not in self.made:
            start = time.perf_counter()
            checked = not (getattr(function, "__module__", None) or "").startswith("treekit.")
            returns = RETURNS.get(name, float)
            jitted, complaint = attempt(function, ARGUMENTS[name], returns, checked=checked)
            self.made[name] = Made(jitted, complaint, time.perf_counter() - start)
        return self.made[name]

    def functions(self, functions: Any) -> Iterator[tuple[str, Made]]:
        """Every function of a component that kernels call."""
        for name in ARGUMENTS:
            function = getattr(functions, name, None)
            if function is not None:
                yield name, self.of(name, function)


def compiled_equal(subject: Any) -> None:
    """Compare impurity and score, compiled and plain, on every example."""
    functions, machine = subject.functions, subject.machine
    natively = {
        name: made.jitted
        for name, made in machine.functions(functions)
        if made.jitted is not None and name in ("impurity", "score")
    }
    if not natively:
        inapplicable("numba compiles none of its functions, which run as Python")
    for _, split in subject.splits():
        for name, arguments, value in subject.measures(split):
            if name in natively:
                same_number(name, natively[name], arguments, value, split.noise)


def same_number(
    name: str, jitted: Any, arguments: tuple[Any, ...], value: float, noise: float = 1e-9
) -> None:
    """A breach of the law unless a compiled function gives `value`."""
    try:
        answer = jitted(*map(frozen, arguments))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        broken(shown_call(name, *arguments), f"{value!r}, and compiled {error!r}", "the same")
    if not abs(answer - value) <= noise + 1e-9 * abs(value):
        call = shown_call(name, *arguments)
        broken(call, f"{value!r}, and compiled {answer!r}", "the same")


def frozen(array: Any) -> Any:
    """A contiguous copy that cannot be written to, as kernels hand it over."""
    copy = np.array(array, dtype=np.float64, order="C")
    copy.flags.writeable = False
    return copy


def told(complaint: Complaint) -> str:
    """Where numba stopped: ``file.py:12: `the line`: the reason``."""
    if not complaint.file:
        return complaint.reason
    line = linecache.getline(complaint.file, complaint.line).strip()
    source = f" `{line}`" if line else ""
    return f"{Path(complaint.file).name}:{complaint.line}:{source} {complaint.reason}"
