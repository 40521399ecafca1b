"""What a function names: the values that a compiler takes for constants, and its helpers.

numba reads globals, the cells of a closure and the attributes of modules while it compiles.
Whatever tells functions apart, or copies them, looks at the same values by these rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from numba.core.registry import cpu_target

__all__ = [
    "SETTLED",
    "cells_of",
    "globals_of",
    "home_of",
    "how_compiled",
    "names_of",
    "part_of",
    "registered",
    "unchanging",
]

SETTLED = frozenset({"builtins", "llvmlite", "math", "numba", "numpy", "operator"})
"""Packages that change with their version alone."""

_ABSENT = object()


def home_of(function: Any) -> str:
    """The package of a function, a class or a module; empty if it does not say."""
    name = function.__name__ if isinstance(function, ModuleType) else None
    return (name or getattr(function, "__module__", None) or "").partition(".")[0]


def unchanging(value: Any) -> bool:
    """Whether a function or module is as it was when the process began; treekit's are, too."""
    return home_of(value) in SETTLED or home_of(value) == "treekit"


def names_of(code: CodeType) -> tuple[str, ...]:
    """Names of globals and attributes that code uses, and functions within it; ascending."""
    return tuple(sorted(set(_names_of(code))))


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)


def cells_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function's closure holds.

    Raises
    ------
    ValueError
        If a cell is not bound yet.
    """
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        yield name, cell.cell_contents


def globals_of(function: FunctionType, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """What names mean to a function; one that is no global may be Python's, or an attribute."""
    for name in names:
        value = function.__globals__.get(name, _ABSENT)
        if value is not _ABSENT:
            yield name, value


def part_of(module: ModuleType, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """What names mean as attributes of a module, which may make them when asked (PEP 562)."""
    for name in names:
        try:
            value = getattr(module, name, _ABSENT)
        except Exception:  # noqa: BLE001, S112 - a stranger's `__getattr__` may raise anything
            continue
        if value is not _ABSENT:
            yield name, value


def registered(function: FunctionType) -> tuple[Any, ...]:
    """numba's templates of a plain function (`register_jitable`, `overload`); mostly none."""
    context = cpu_target.typing_context
    context.refresh()
    try:
        known = context.resolve_value_type(function)
    except Exception:  # noqa: BLE001 - numba has errors outside its own hierarchy
        return ()
    return tuple(getattr(known, "templates", (known,)))


def how_compiled(dispatcher: Any) -> tuple[Any, ...]:
    """Options of `numba.njit`, types of variables, and signatures if it has no others."""
    signatures = () if dispatcher._can_compile else dispatcher.nopython_signatures
    return (
        tuple(sorted(dispatcher.targetoptions.items())),
        repr(sorted(dispatcher.locals.items())),
        tuple(map(repr, signatures)),
    )
