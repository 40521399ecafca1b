"""What tells one function from another to a compiler.

numba takes the values of a closure, and of the globals that a function names, for
constants.  Machine code may therefore serve again only where all of them are as they were:
a cell of a notebook that sets a constant anew makes another criterion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

__all__ = ["identity", "names_of"]


def identity(value: Any) -> tuple[Any, ...]:
    """A key that is equal for functions which compile to the same machine code.

    Parameters
    ----------
    value : function, or dataclass of functions and plain values
        Of functions: code, defaults, closure and the globals that are named, also in
        modules, with helpers of the same package in turn.

    Raises
    ------
    TypeError, ValueError
        If something in it cannot be told by value (`hash` of the key may raise, too),
        or a cell of a closure is not bound yet.
    """
    return _identity(value, "", {})


def _home(function: FunctionType) -> str:
    return (function.__module__ or "").partition(".")[0]


def _identity(value: Any, home: str, seen: dict[int, int]) -> tuple[Any, ...]:
    if is_dataclass(value) and not isinstance(value, type):
        parts = (getattr(value, field.name) for field in fields(value))
        return type(value), *(_identity(part, home, seen) for part in parts)
    core = getattr(value, "py_func", value)
    if isinstance(core, FunctionType):
        return _of_function(core, home or _home(core), seen)
    return _of_value(core, home, seen)


def _of_function(core: FunctionType, home: str, seen: dict[int, int]) -> tuple[Any, ...]:
    if id(core) in seen:  # recursion
        return "again", seen[id(core)]
    seen[id(core)] = len(seen)
    if _home(core) != home:  # another package's: it is its own affair, and does not change
        return FunctionType, core
    names, own = sorted(set(names_of(core.__code__))), core.__code__.co_freevars
    closure = dict(zip(own, (cell.cell_contents for cell in core.__closure__ or ()), strict=True))
    cells = _named(closure, [*own, *names], home, seen)
    named = _named(core.__globals__, names, home, seen)
    defaults = _of_value(core.__defaults__, home, seen)
    return core.__code__, defaults, cells, named


_ABSENT = object()


def _named(
    scope: Mapping[str, Any], names: Sequence[str], home: str, seen: dict[int, int]
) -> tuple[Any, ...]:
    """What names mean in a scope, and in the modules that it names: ``settings.SCALE``."""
    found: list[tuple[Any, ...]] = []
    for name in names:
        value = scope.get(name, _ABSENT)
        if isinstance(value, ModuleType):
            if id(value) in seen:
                continue
            seen[id(value)] = len(seen)
            found.append((name, value, _named(vars(value), names, home, seen)))
        elif value is not _ABSENT:
            found.append((name, _identity(value, home, seen)))
    return tuple(found)


def names_of(code: CodeType) -> Iterator[str]:
    """Names of globals and attributes that code uses, and functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_of(constant)


def _of_value(value: Any, home: str, seen: dict[int, int]) -> tuple[Any, ...]:
    if isinstance(value, float):  # 0.0 and -0.0 are equal
        return type(value), repr(value)
    if isinstance(value, tuple | list):
        return type(value), *(_identity(part, home, seen) for part in value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.dtype.str, value.shape, value.tobytes()
    return type(value), value
