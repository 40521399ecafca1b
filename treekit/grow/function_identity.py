"""Identity of functions for the reuse of compiled code.

numba compiles the values of a closure, and of the globals that a function names, as
constants.  Compiled code may therefore be reused only while all of them are unchanged: a
notebook cell that redefines a constant makes another criterion.
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.types import Type
from numba.extending import _Intrinsic, register_jitable

from treekit.kernels.function_pointers import Pointer

__all__ = [
    "MOST_KEPT",
    "SETTLED",
    "cells_of",
    "fingerprint",
    "fresh",
    "globals_of",
    "home_of",
    "how_compiled",
    "identity",
    "is_copy",
    "names_of",
    "part_of",
    "registered",
    "unchanging",
]


# ---------------------------------------------------------------- identity


def identity(value: Any) -> tuple[Any, ...]:
    """Return a key that is equal for functions that compile to the same machine code.

    Parameters
    ----------
    value : function, or dataclass of functions and plain values
        A function's key covers its code, defaults, closure and the globals that it names,
        also in modules, and recursively helpers of the same package.

    Raises
    ------
    TypeError, ValueError
        If a part cannot be compared by value (`hash` of the key may raise, too), or a
        closure cell is not bound yet.
    """
    return _identity(value, "", {})


Seen = dict[tuple[Any, ...], int]
"""Functions and parts of modules visited so far, with their order."""


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
        return FunctionType, core  # of another package: assumed not to change
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
    """Return keys of the values of names, also inside modules: ``settings.SCALE``."""
    return tuple((name, *_of_name(value, names, home, seen)) for name, value in found)


def _of_name(value: Any, names: tuple[str, ...], home: str, seen: Seen) -> tuple[Any, ...]:
    if not isinstance(value, ModuleType):
        return (_identity(value, home, seen),)
    if home_of(value) in SETTLED:
        return (value,)
    # The key covers only the attributes that this function names.
    if (value, names, home) in seen:  # circular imports
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


# ---------------------------------------------------------------- referenced values
# The values that a function references and a compiler treats as constants, and its helpers.
#
# numba reads globals, closure cells and module attributes while it compiles.  Comparing and
# copying functions use the same rules.

SETTLED = frozenset({"builtins", "llvmlite", "math", "numba", "numpy", "operator"})
"""Packages that change only with their version."""

_ABSENT = object()


def home_of(function: Any) -> str:
    """Return the package of a function, class or module; empty if unknown."""
    name = function.__name__ if isinstance(function, ModuleType) else None
    return (name or getattr(function, "__module__", None) or "").partition(".")[0]


def unchanging(value: Any) -> bool:
    """Check whether a function or module is constant for the process, as treekit's own are."""
    return home_of(value) in SETTLED or home_of(value) == "treekit"


def names_of(code: CodeType) -> tuple[str, ...]:
    """Return the sorted names of globals and attributes used by code and its nested functions."""
    return tuple(sorted(set(_names_of(code))))


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)


def cells_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a function's closure.

    Raises
    ------
    ValueError
        If a cell is not bound yet.
    """
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        yield name, cell.cell_contents


def globals_of(function: FunctionType, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the globals among the names that a function uses; builtins and attributes are not."""
    for name in names:
        value = function.__globals__.get(name, _ABSENT)
        if value is not _ABSENT:
            yield name, value


def part_of(module: ModuleType, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a module among names, also those made on access (PEP 562)."""
    for name in names:
        try:
            value = getattr(module, name, _ABSENT)
        except Exception:  # noqa: BLE001, S112 - a module's `__getattr__` may raise anything
            continue
        if value is not _ABSENT:
            yield name, value


def registered(function: FunctionType) -> tuple[Any, ...]:
    """Return numba's templates of a plain function (`register_jitable`, `overload`), if any."""
    context = cpu_target.typing_context
    context.refresh()
    try:
        known = context.resolve_value_type(function)
    except Exception:  # noqa: BLE001 - numba has errors outside its own hierarchy
        return ()
    return tuple(getattr(known, "templates", (known,)))


def how_compiled(dispatcher: Any) -> tuple[Any, ...]:
    """Return a dispatcher's `numba.njit` options, variable types and, if fixed, signatures."""
    signatures = () if dispatcher._can_compile else dispatcher.nopython_signatures
    return (
        tuple(sorted(dispatcher.targetoptions.items())),
        repr(sorted(dispatcher.locals.items())),
        tuple(map(repr, signatures)),
    )


# ---------------------------------------------------------------- copies
# Copies of a function and its helpers for numba to compile.
#
# numba compiles a helper once per process, with the constants of that time, and links the
# cached code into later callers.  A copy has not been compiled before, so it is compiled
# with the current constants, which its `fingerprint` identifies.

MOST_KEPT = 256
"""Number of helper copies cached for other functions; the oldest is dropped first."""

_kept: dict[Any, Any] = {}
_OURS: set[FunctionType] = set()


def fresh(core: Any) -> Any:
    """Copy `core` and its helpers for compilation.

    Helpers are the plain functions of the same module or package that `core` names or holds
    in its closure, recursively; those of other packages that are registered with numba; and
    all functions decorated with `numba.njit`.  An unchanged helper (see `identity`) is
    compiled once per process.  Objects that are not plain functions are returned unchanged.
    """
    if not isinstance(core, FunctionType):
        return core
    copies = _Copies(home_of(core))
    copy = copies.plain(core)
    copies.finish()
    return copy


def is_copy(function: FunctionType) -> bool:
    """Check whether a helper was copied by `fresh`, so that numba has no older code of it."""
    return function in _OURS


class _Module(ModuleType):
    """A stand-in for a module, with the attributes that one function names."""


class _Copies:
    """Copies of the functions that one function references, each made once."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.plains: dict[FunctionType, FunctionType] = {}
        self.helpers: dict[Any, Any] = {}
        self.modules: dict[tuple[ModuleType, tuple[str, ...]], ModuleType] = {}
        self.waiting: list[FunctionType] = []
        self.signed: list[tuple[Any, Any]] = []
        self.new: dict[Any, Any] = {}

    def finish(self) -> None:
        """Fill all copies (they may reference each other) and cache the new ones."""
        while self.waiting:
            self._fill(self.waiting.pop())
        for copy, original in self.signed:
            for made in original.nopython_signatures:
                copy.compile(made)
            copy.disable_compile()
        for key, copy in self.new.items():
            if len(_kept) >= MOST_KEPT:
                _kept.pop(next(iter(_kept)), None)
            _kept[key] = copy

    def plain(self, function: FunctionType) -> FunctionType:
        """Copy a function; its globals and closure are filled later."""
        if function not in self.plains:
            scope = {
                name: value
                for name, value in function.__globals__.items()
                if name in ("__builtins__", "__name__")
            }
            cells = tuple(CellType() for _ in function.__closure__ or ())
            copy = FunctionType(function.__code__, scope, function.__name__, None, cells)
            copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
            copy.__kwdefaults__ = function.__kwdefaults__
            copy.__dict__.update(function.__dict__)
            self.plains[function] = copy
            self.waiting.append(function)
        return self.plains[function]

    def _fill(self, function: FunctionType) -> None:
        copy, names = self.plains[function], names_of(function.__code__)
        for name, value in globals_of(function, names):
            copy.__globals__[name] = self._standing(value, names)
        if function.__defaults__ is not None:
            copy.__defaults__ = tuple(self._standing(v, names) for v in function.__defaults__)
        for own, cell in zip(copy.__closure__ or (), function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not bound yet: numba will report it
                continue
            own.cell_contents = self._standing(value, names)

    def _standing(self, value: Any, names: tuple[str, ...]) -> Any:
        """Return the replacement of a referenced value in a copy."""
        if isinstance(value, ModuleType):
            return value if unchanging(value) else self._module(value, names)
        if type(value) is CPUDispatcher:
            return value if unchanging(value) else self._shared(value)
        if isinstance(value, FunctionType):
            return self._shared(value) if self._is_helper(value) else value
        if type(value) is tuple:
            return tuple(self._standing(part, names) for part in value)
        return value

    def _module(self, module: ModuleType, names: tuple[str, ...]) -> ModuleType:
        """Return a stand-in for a module with the attributes that one function names."""
        known = self.modules.get((module, names))
        if known is None:
            known = self.modules[module, names] = _Module(module.__name__)
            for name, value in part_of(module, names):
                vars(known)[name] = self._standing(value, names)
        return known

    def _is_helper(self, function: FunctionType) -> bool:
        """Check whether numba compiles a plain function with its caller, from its own body."""
        if home_of(function) != self.home and unchanging(function):
            return False
        templates = registered(function)
        return all(map(_as_it_says, templates)) and (
            home_of(function) == self.home or bool(templates)
        )

    def _shared(self, value: Any) -> Any:
        """Return the copy of a helper, reusing an equal one from the cache."""
        if value in self.helpers:
            return self.helpers[value]
        key: Any = None
        known: Any = None
        try:
            key = self.home, type(value), identity(value)
            known = _kept.get(key)
        except (TypeError, ValueError):  # something in it cannot be hashed, or is not bound
            key = None
        if known is None:
            copied = self._dispatcher if type(value) is CPUDispatcher else self._jitable
            known = copied(value)
            if key is not None:
                self.new[key] = known
        self.helpers[value] = known
        return known

    def _jitable(self, function: FunctionType) -> FunctionType:
        copy = self.plain(function)
        # numba does not pass the caller's options on to helpers.
        options = {"boundscheck": self.home != "treekit"}
        for template in registered(function)[:1]:
            options = template._jit_options
        register_jitable(**options)(copy)
        _OURS.add(copy)
        return copy

    def _dispatcher(self, value: Any) -> Any:
        copy = CPUDispatcher(
            self.plain(value.py_func),
            locals=dict(value.locals),
            targetoptions=dict(value.targetoptions),
            pipeline_class=value._compiler.pipeline_class,
        )
        if not value._can_compile:  # compiled for fixed signatures
            self.signed.append((copy, value))
        return copy


def _as_it_says(template: Any) -> bool:
    """Check whether numba compiles a function from its own body (`register_jitable`)."""
    overload = getattr(template, "_overload_func", None)
    inline = getattr(template, "_inline", None)
    return getattr(overload, "__module__", "") == "numba.core.extending" and getattr(
        inline, "is_never_inline", False
    )


# ---------------------------------------------------------------- fingerprint
# Digests of everything that machine code on disk depends on.
#
# `identity` distinguishes functions within a process; `fingerprint` does so between
# processes, by contents only: a function's file, code, defaults and closure, and the values
# of the globals that it names, with helpers recursively.

LARGEST = 100_000
"""Maximum size in bytes of an array referenced by code that is cached on disk."""

_EDITION = 2
"""Version of the fingerprint format: code of an earlier one is never loaded."""

SeenObjects = dict[Any, int]
"""Functions and parts of modules visited so far, with their order."""


def fingerprint(function: Callable[..., Any], *options: Any) -> str | None:
    """Return a hexadecimal digest that is equal only for functions of the same machine code.

    Parameters
    ----------
    function : callable
        Plain Python, or its dispatcher.
    *options : plain values
        Compilation options.

    Returns
    -------
    str or None
        None if the code must not be cached, since it depends on an object that cannot be
        identified by its contents (an open file, a function that is called as Python, one
        typed into a notebook).
    """
    try:
        core: Any = getattr(function, "py_func", function)
        contents = _EDITION, _versions(), _told(options, {}), _fingerprint_function(core, {})
    except (AttributeError, OSError, RecursionError, TypeError, ValueError):
        return None
    return hashlib.sha256(repr(contents).encode("utf-8", "surrogatepass")).hexdigest()


@cache
def _versions() -> tuple[str, ...]:
    return tuple(version(name) for name in ("llvmlite", "numba", "numpy"))


def _told(value: Any, seen: SeenObjects) -> Any:
    """Describe a value by its contents, as nested tuples of strings and bytes."""
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
        raise TypeError("the address of a pointer is valid in this process only")
    if _settled(value):
        return "settled", value.__module__, value.__qualname__
    if isinstance(value, FunctionType):
        if home_of(value) != "treekit" and not is_copy(value) and registered(value):
            raise TypeError("numba may hold code compiled before a change of the function")
        return _fingerprint_function(value, seen)
    if isinstance(value, Dispatcher):
        return (
            "compiled",
            _told(how_compiled(value), seen),
            _fingerprint_function(value.py_func, seen),
        )
    if isinstance(value, _Intrinsic) and unchanging(value._defn):
        return "intrinsic", _told(value._defn, seen)
    if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
        record: Any = value
        defaults = _told(sorted(record._field_defaults.items()), seen)
        return "record", record.__module__, record.__qualname__, record._fields, defaults
    if isinstance(value, np.dtype | Type) or value is Ellipsis:
        return type(value).__name__, repr(value)
    raise TypeError(f"a {type(value).__name__} cannot be identified by its contents")


def _settled(value: Any) -> bool:
    """Check for a function or class of a package that changes only with its version."""
    kinds = FunctionType | BuiltinFunctionType | type | np.ufunc | type(np.sum)
    return isinstance(value, kinds) and home_of(value) in SETTLED


def _of_array(value: Any) -> tuple[Any, ...]:
    if value.dtype.hasobject or value.nbytes > LARGEST:
        raise TypeError("an array of objects, or a large one")
    flags = value.flags
    layout = flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned
    return "array", value.dtype.str, value.shape, layout, value.tobytes()


def _of_code(code: CodeType, seen: SeenObjects) -> tuple[Any, ...]:
    # Line numbers matter, too: compiled code raises errors with them.
    return (
        "code", code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
        code.co_code, code.co_exceptiontable, code.co_linetable, code.co_firstlineno,
        code.co_filename, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        [_told(constant, seen) for constant in code.co_consts],
    )  # fmt: skip


def _fingerprint_function(function: FunctionType, seen: SeenObjects) -> tuple[Any, ...]:
    if function in seen:  # visited before, or recursive
        return "again", seen[function]
    seen[function] = len(seen)
    code, names = function.__code__, names_of(function.__code__)
    if "objmode" in names:
        raise TypeError("a function called as Python exists in this process only")
    # The file matters, too: it may define how a function compiles (`overload`).
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
    found: Iterable[tuple[str, Any]], names: tuple[str, ...], seen: SeenObjects
) -> list[tuple[str, Any]]:
    """Describe the values of names, also inside modules: ``settings.SCALE``."""
    return [
        (
            name,
            _of_module(value, names, seen) if isinstance(value, ModuleType) else _told(value, seen),
        )
        for name, value in found
        if value is not getattr(builtins, name, _ABSENT)
    ]


def _of_module(module: ModuleType, names: tuple[str, ...], seen: SeenObjects) -> tuple[Any, ...]:
    """Describe the attributes of a module that one function names."""
    if home_of(module) in SETTLED:
        return "module", module.__name__
    if (module, names) in seen:  # circular imports
        return "again", seen[module, names]
    seen[module, names] = len(seen)
    return "module", module.__name__, _of_names(part_of(module, names), names, seen)
