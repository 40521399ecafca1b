"""A function as it is now: a copy for numba to compile, with copies of its helpers.

numba compiles a helper once in a process, with the constants of that time, and later
callers link what it kept.  A copy has no past: it holds the constants as they are now, and
a mark that is made from the copy (`treekit.grow.fingerprint`) tells what was compiled.
"""

from __future__ import annotations

from types import CellType, FunctionType, ModuleType
from typing import Any

from numba.core.registry import CPUDispatcher
from numba.extending import register_jitable

from treekit.grow.identity import identity
from treekit.grow.named import globals_of, home_of, names_of, part_of, registered, unchanging

__all__ = ["MOST_KEPT", "fresh", "is_copy"]

MOST_KEPT = 256
"""Copies of helpers that serve again for other functions; the oldest goes first."""

_kept: dict[Any, Any] = {}
_OURS: set[FunctionType] = set()


def fresh(core: Any) -> Any:
    """A copy of `core` that compiles along with copies of its helpers.

    Helpers are the plain functions that it names, or that its closure holds, of its own
    module or package, and theirs in turn; those of other packages that are registered with
    numba; and what was decorated with `numba.njit`, wherever it is.  A helper that is what it
    was (`treekit.grow.identity`) is compiled once in a process.  What is no plain function
    is handed back.
    """
    if not isinstance(core, FunctionType):
        return core
    copies = _Copies(home_of(core))
    copy = copies.plain(core)
    copies.finish()
    return copy


def is_copy(function: FunctionType) -> bool:
    """Whether a helper was made by `fresh`, and has no past."""
    return function in _OURS


class _Module(ModuleType):
    """The attributes of a module that one function names."""


class _Copies:
    """Copies of the functions that one function leads to, each made once."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.plains: dict[FunctionType, FunctionType] = {}
        self.helpers: dict[Any, Any] = {}
        self.modules: dict[tuple[ModuleType, tuple[str, ...]], ModuleType] = {}
        self.waiting: list[FunctionType] = []
        self.signed: list[tuple[Any, Any]] = []
        self.new: dict[Any, Any] = {}

    def finish(self) -> None:
        """Fill copies, which may name each other, until all are whole."""
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
        """A copy whose scope and closure are filled later."""
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
            except ValueError:  # not bound yet: numba says so
                continue
            own.cell_contents = self._standing(value, names)

    def _standing(self, value: Any, names: tuple[str, ...]) -> Any:
        """What stands for a value in a copy."""
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
        """The part of a module that one function names."""
        known = self.modules.get((module, names))
        if known is None:
            known = self.modules[module, names] = _Module(module.__name__)
            for name, value in part_of(module, names):
                vars(known)[name] = self._standing(value, names)
        return known

    def _is_helper(self, function: FunctionType) -> bool:
        """Whether a plain function compiles along, and as what it says."""
        if home_of(function) != self.home and unchanging(function):
            return False
        templates = registered(function)
        return all(map(_as_it_says, templates)) and (
            home_of(function) == self.home or bool(templates)
        )

    def _shared(self, value: Any) -> Any:
        """The copy of a helper: of earlier, where that is the same."""
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
        # Options of the caller do not reach what it calls.
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
        if not value._can_compile:  # of signatures that its author gave
            self.signed.append((copy, value))
        return copy


def _as_it_says(template: Any) -> bool:
    """Whether numba takes a plain function for its own body: `register_jitable`."""
    says = getattr(template, "_overload_func", None)
    inline = getattr(template, "_inline", None)
    return getattr(says, "__module__", "") == "numba.core.extending" and getattr(
        inline, "is_never_inline", False
    )
