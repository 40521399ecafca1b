"""What machine code on disk depends on, as a digest.

`treekit.grow.identity` tells functions apart within a process; here they are told
apart between processes, by contents alone: of a function its file, code, defaults and
closure, and what the globals that it names stand for, with helpers in turn.
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.types import Type
from numba.extending import _Intrinsic

from treekit.grow.copies import is_copy
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
from treekit.kernels.function_pointers import Pointer

__all__ = ["fingerprint"]

LARGEST = 100_000
"""Bytes of an array up to which numba keeps code that names it."""

_EDITION = 2
"""Of this module: what an earlier one marked is never loaded again."""

_ABSENT = object()

Seen = dict[Any, int]
"""Functions, and parts of modules, that were met before, and as which."""


def fingerprint(function: Callable[..., Any], *options: Any) -> str | None:
    """Hexadecimal digest that is equal only for functions of the same machine code.

    Parameters
    ----------
    function : callable
        Plain Python, or its dispatcher.
    *options : plain values
        How it is compiled.

    Returns
    -------
    str or None
        None: it depends on something that is not told by contents (an open file, a function
        that is called as Python, one typed into a notebook), and must not be kept.
    """
    try:
        core: Any = getattr(function, "py_func", function)
        told = _EDITION, _versions(), _told(options, {}), _of_function(core, {})
    except (AttributeError, OSError, RecursionError, TypeError, ValueError):
        return None
    return hashlib.sha256(repr(told).encode("utf-8", "surrogatepass")).hexdigest()


@cache
def _versions() -> tuple[str, ...]:
    return tuple(version(name) for name in ("llvmlite", "numba", "numpy"))


def _told(value: Any, seen: Seen) -> Any:
    """Nested tuples of texts and bytes that tell a value by its contents."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return type(value).__name__, repr(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _told(type(value), seen), [_told(part, seen) for part in value]
    if isinstance(value, tuple | list):
        return type(value).__name__, [_told(part, seen) for part in value]
    if isinstance(value, frozenset):
        return "set", sorted(repr(_told(part, seen)) for part in value)
    if isinstance(value, np.ndarray | np.generic):
        return _of_array(value)
    if isinstance(value, CodeType):
        return _of_code(value, seen)
    if isinstance(value, Pointer):
        raise TypeError("a pointer's address is of this process")
    if _settled(value):
        return "settled", value.__module__, value.__qualname__
    if isinstance(value, FunctionType):
        if home_of(value) != "treekit" and not is_copy(value) and registered(value):
            raise TypeError("numba may hold code of it that was compiled before a change")
        return _of_function(value, seen)
    if isinstance(value, Dispatcher):
        return "compiled", _told(how_compiled(value), seen), _of_function(value.py_func, seen)
    if isinstance(value, _Intrinsic) and unchanging(value._defn):
        return "intrinsic", _told(value._defn, seen)
    if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
        record: Any = value
        defaults = _told(sorted(record._field_defaults.items()), seen)
        return "record", record.__module__, record.__qualname__, record._fields, defaults
    if isinstance(value, np.dtype | Type) or value is Ellipsis:
        return type(value).__name__, repr(value)
    raise TypeError(f"a {type(value).__name__} is not told by contents")


def _settled(value: Any) -> bool:
    """A function or class of a package that changes with its version alone."""
    kinds = FunctionType | BuiltinFunctionType | type | np.ufunc | type(np.sum)
    return isinstance(value, kinds) and home_of(value) in SETTLED


def _of_array(value: Any) -> tuple[Any, ...]:
    if value.dtype.hasobject or value.nbytes > LARGEST:
        raise TypeError("an array of objects, or a large one")
    flags = value.flags
    layout = flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned
    return "array", value.dtype.str, value.shape, layout, value.tobytes()


def _of_code(code: CodeType, seen: Seen) -> tuple[Any, ...]:
    # Lines are in the errors that it raises.
    return (
        "code", code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
        code.co_code, code.co_exceptiontable, code.co_linetable, code.co_firstlineno,
        code.co_filename, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        [_told(constant, seen) for constant in code.co_consts],
    )  # fmt: skip


def _of_function(function: FunctionType, seen: Seen) -> tuple[Any, ...]:
    if function in seen:  # again, or recursion
        return "again", seen[function]
    seen[function] = len(seen)
    code, names = function.__code__, names_of(function.__code__)
    if "objmode" in names:
        raise TypeError("what is called as Python is of this process")
    # The file, too: it may say how a function compiles that code does not show (`overload`).
    status = Path(code.co_filename).stat()
    return (
        "function", function.__module__, function.__qualname__, status.st_size, status.st_mtime_ns,
        _of_code(code, seen),
        _told(function.__defaults__, seen),
        _told(sorted((function.__kwdefaults__ or {}).items()), seen),
        _of_names(cells_of(function), names, seen),
        _of_names(globals_of(function, names), names, seen),
    )  # fmt: skip


def _of_names(
    found: Iterable[tuple[str, Any]], names: tuple[str, ...], seen: Seen
) -> list[tuple[str, Any]]:
    """What names mean, also in the modules that they mean: ``settings.SCALE``."""
    return [
        (
            name,
            _of_module(value, names, seen) if isinstance(value, ModuleType) else _told(value, seen),
        )
        for name, value in found
        if value is not getattr(builtins, name, _ABSENT)
    ]


def _of_module(module: ModuleType, names: tuple[str, ...], seen: Seen) -> tuple[Any, ...]:
    """What one function names of a module; other functions name other parts of it."""
    if home_of(module) in SETTLED:
        return "module", module.__name__
    if (module, names) in seen:  # a circle, as packages have them
        return "again", seen[module, names]
    seen[module, names] = len(seen)
    return "module", module.__name__, _of_names(part_of(module, names), names, seen)
