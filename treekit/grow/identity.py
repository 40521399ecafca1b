"""What tells one function from another to a compiler.

numba takes the values of a closure, and of the globals that a function names, for
constants.  Machine code may therefore serve again only where all of them are as they were:
a cell of a notebook that sets a constant anew makes another criterion.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from treekit.grow.named import (
    SETTLED,
    cells_of,
    globals_of,
    home_of,
    how_compiled,
    names_of,
    part_of,
    registered,
    unchanging,
)

__all__ = ["identity"]


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


Seen = dict[tuple[Any, ...], int]
"""Functions, and parts of modules, that were met before, and as which."""


def _identity(value: Any, home: str, seen: Seen) -> tuple[Any, ...]:
    if is_dataclass(value) and not isinstance(value, type):
        parts = (getattr(value, field.name) for field in fields(value))
        return type(value), *(_identity(part, home, seen) for part in parts)
    if isinstance(value, Dispatcher):
        options, *more = how_compiled(value)
        own = _of_function(value.py_func, home or home_of(value), seen, compiled=True)
        return Dispatcher, repr(options), *more, own
    core = getattr(value, "py_func", value)
    if isinstance(core, FunctionType):
        return _of_function(core, home or home_of(core), seen)
    return _of_value(core, home, seen)


def _of_function(
    core: FunctionType, home: str, seen: Seen, *, compiled: bool = False
) -> tuple[Any, ...]:
    if home_of(core) != home and (unchanging(core) or not (compiled or registered(core))):
        return FunctionType, core  # another package's: it is its own affair, and does not change
    if (core, home) in seen:  # recursion
        return "again", seen[core, home]
    seen[core, home] = len(seen)
    names = names_of(core.__code__)
    return (
        core.__code__,
        _of_value(core.__defaults__, home, seen),
        _of_value(tuple(sorted((core.__kwdefaults__ or {}).items())), home, seen),
        _named(cells_of(core), names, home, seen),
        _named(globals_of(core, names), names, home, seen),
    )


def _named(
    found: Iterable[tuple[str, Any]], names: tuple[str, ...], home: str, seen: Seen
) -> tuple[Any, ...]:
    """What names mean, also in the modules that they mean: ``settings.SCALE``."""
    return tuple((name, *_of_name(value, names, home, seen)) for name, value in found)


def _of_name(value: Any, names: tuple[str, ...], home: str, seen: Seen) -> tuple[Any, ...]:
    if not isinstance(value, ModuleType):
        return (_identity(value, home, seen),)
    if home_of(value) in SETTLED:
        return (value,)
    # Other functions name other parts of it.
    if (value, names, home) in seen:  # a circle, as packages have them
        return "again", seen[value, names, home]
    seen[value, names, home] = len(seen)
    return value, _named(part_of(value, names), names, home, seen)


def _of_value(value: Any, home: str, seen: Seen) -> tuple[Any, ...]:
    if isinstance(value, float | complex | np.generic):  # 0.0 and -0.0 are equal
        return type(value), repr(value)
    if isinstance(value, tuple | list):
        return type(value), *(_identity(part, home, seen) for part in value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.dtype.str, value.shape, value.tobytes()
    return type(value), value
