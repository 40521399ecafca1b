"""Identity of functions for the reuse of compiled code.

numba compiles the values of a closure, and of the globals that a function names, as
constants.  Compiled code may therefore be reused only while all of them are unchanged: a
notebook cell that redefines a constant makes another criterion.

A pickle by value (cloudpickle) does not identify a function: it names modules, so that
``settings.SCALE`` may change unnoticed, and has a random identifier for each jitted helper.
"""

from __future__ import annotations

import builtins
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from treekit.kernels.compile import Kernel
from treekit.kernels.function_pointers import Intrinsic
from treekit.kernels.library import digest_file, digest_sources

# ---------------------------------------------------------------- identity
# Descriptions of everything that machine code depends on: a function's code, defaults and
# closure, and the values of the globals that it names, with helpers recursively.

MAX_ARRAY_BYTES = 100_000
"""Maximum size in bytes of an array referenced by code that is cached on disk."""

_FORMAT_VERSION = 5
"""Version of the fingerprint format: code of an earlier one is never loaded."""


def compute_identity(value: Any) -> tuple[Any, ...]:
    """Return a key that is equal, in this process, for functions of the same machine code.

    Parameters
    ----------
    value : function, or dataclass of functions and plain values

    Raises
    ------
    TypeError, ValueError
        If a part cannot be compared by value (`hash` of the key may raise, too), or a
        closure cell is not bound yet.
    """
    if is_dataclass(value) and not isinstance(value, type):
        parts = (getattr(value, field.name) for field in fields(value))
        return type(value), *map(compute_identity, parts)
    return _Description().describe(value)


def compute_fingerprint(function: Callable[..., Any], *options: Any) -> str | None:
    """Return a hexadecimal digest that differs for functions with different machine code.

    The digest is the same in every process: it is computed from the contents of the function
    and of the values to which it refers, and from the states of their source files.

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
        identified by its contents: an open file, a function that runs in the interpreter, or
        a function defined in a notebook.
    """
    description = _Description()
    try:
        core: Any = getattr(function, "py_func", function)
        contents = (
            _FORMAT_VERSION,
            _get_versions(),
            description.describe(options),
            description.describe_function(core),
        )
    except (AttributeError, RecursionError, TypeError, ValueError):
        return None
    if not description.is_portable:
        return None
    return hashlib.sha256(repr(contents).encode("utf-8", "surrogatepass")).hexdigest()


@cache
def _get_versions() -> tuple[str, ...]:
    # numpy's arrays are laid out alike within a major version; its functions are numba's own.
    return version("llvmlite"), version("numba"), version("numpy").partition(".")[0]


@dataclass(frozen=True, eq=False)
class NumberArgument:
    """A number in a closure that compiled code reads from memory.

    numba must not take it for a constant: comparing it raises TypeError.

    Attributes
    ----------
    place : int
        Its place among the numbers of a criterion.
    kind : {int, float}
    """

    place: int
    kind: type

    def __eq__(self, other: object) -> bool:
        raise TypeError("a number is known when the code runs")

    def __bool__(self) -> bool:
        raise TypeError("a number is known when the code runs")

    __hash__ = object.__hash__


class _Description:
    """A description of values by their contents, as nested tuples.

    Attributes
    ----------
    is_portable : bool
        Whether what is described so far is valid in other processes.  Objects whose contents
        cannot be compared are described by their identity.
    """

    def __init__(self) -> None:
        self.is_portable = True
        self.seen: dict[Any, int] = {}  # functions and parts of modules, with their order

    def describe(self, value: Any) -> tuple[Any, ...]:
        """Describe a value."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return type(value).__name__, repr(value)
        if isinstance(value, NumberArgument):
            return "argument", value.place, value.kind.__name__
        if isinstance(value, tuple | list):
            parts = tuple(map(self.describe, value))
            named = hasattr(value, "_fields")
            return (self.describe(type(value)) if named else type(value).__name__), parts
        if isinstance(value, frozenset):
            return "set", tuple(sorted(repr(self.describe(part)) for part in value))
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            return self._describe_array(value)
        if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            record: Any = value
            defaults = self.describe(tuple(sorted(record._field_defaults.items())))
            return "record", record.__module__, record.__qualname__, record._fields, defaults
        if isinstance(value, np.dtype) or value is Ellipsis or is_numba(value, "Type"):
            return type(value).__name__, repr(value)
        if isinstance(value, Kernel) or is_numba(value, "Dispatcher"):
            if _is_own(value.py_func):
                return "compiled", *self._describe_own(value.py_func)
            compilation = repr(describe_compilation(value))
            return "compiled", compilation, self.describe_function(value.py_func)
        if _is_stable(value):
            return "settled", value.__module__, value.__qualname__
        if isinstance(value, FunctionType):
            if _is_own(value):
                return "own", *self._describe_own(value)
            self.is_portable &= not _may_be_outdated(value)
            return self.describe_function(value)
        if isinstance(value, CodeType):
            return self._describe_code(value)
        if isinstance(value, Intrinsic):
            value = value.intrinsic
        if is_numba(value, "_Intrinsic") and is_unchanging(value._defn):
            return "intrinsic", self.describe(value._defn)
        self.is_portable = False
        return type(value), value

    def _describe_array(self, value: Any) -> tuple[Any, ...]:
        self.is_portable &= value.nbytes <= MAX_ARRAY_BYTES
        flags = value.flags
        layout = flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned
        return "array", value.dtype.str, value.shape, layout, value.tobytes()

    def _describe_own(self, function: FunctionType) -> tuple[Any, ...]:
        """Describe a function of treekit's modules, which never changes in a process."""
        file = digest_file(function.__code__.co_filename)
        return function.__module__, function.__qualname__, file, digest_sources()

    def describe_function(self, function: FunctionType) -> tuple[Any, ...]:
        """Describe a function: its code, and all values that the code references."""
        if function in self.seen:  # visited before, or recursive
            return "again", self.seen[function]
        self.seen[function] = len(self.seen)
        code, names = function.__code__, list_names(function.__code__)
        if "objmode" in names:
            self.is_portable = False
        place: tuple[Any, ...] = ()
        try:
            # The file matters, too: it may define how a function compiles (`overload`).
            place = function.__module__, function.__qualname__, *_identify_file(code.co_filename)
        except OSError:  # defined in a notebook
            self.is_portable = False
        return (
            "function",
            place,
            self.describe(code),
            self.describe(function.__defaults__),
            self.describe(tuple(sorted((function.__kwdefaults__ or {}).items()))),
            self._describe_references(iterate_closure(function), names),
            self._describe_references(iterate_globals(function, names), names),
        )

    def _describe_code(self, code: CodeType) -> tuple[Any, ...]:
        # Line numbers matter, too: compiled code raises errors with them.
        return (
            "code", code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
            code.co_flags, code.co_code, code.co_exceptiontable, code.co_linetable,
            code.co_firstlineno, code.co_names, code.co_varnames, code.co_freevars,
            code.co_cellvars, self.describe(code.co_consts),
        )  # fmt: skip

    def _describe_references(
        self, found: Iterable[tuple[str, Any]], names: tuple[str, ...]
    ) -> tuple[Any, ...]:
        """Describe the values of names, also inside modules: ``settings.SCALE``."""
        return tuple(
            (
                name,
                self._describe_module(value, names)
                if isinstance(value, ModuleType)
                else self.describe(value),
            )
            for name, value in found
            if value is not getattr(builtins, name, _ABSENT)
        )

    def _describe_module(self, module: ModuleType, names: tuple[str, ...]) -> tuple[Any, ...]:
        """Describe the attributes of a module that one function names."""
        if get_package(module) in STABLE_PACKAGES:
            return "module", module.__name__
        if (module, names) in self.seen:  # circular imports
            return "again", self.seen[module, names]
        self.seen[module, names] = len(self.seen)
        found = iterate_attributes(module, names)
        return "module", module.__name__, self._describe_references(found, names)


def _identify_file(path: str) -> tuple[Any, ...]:
    """Identify the state of a source file: treekit's own by its contents, others by their time."""
    own = Path(path)
    if own.is_relative_to(_HOME):
        return own.relative_to(_HOME).as_posix(), digest_file(path)
    status = own.stat()
    return path, status.st_size, status.st_mtime_ns


_HOME = Path(__file__).parents[1]


def _is_own(function: FunctionType) -> bool:
    """Check for a function at the level of a module of treekit."""
    return get_package(function) == "treekit" and "<locals>" not in function.__qualname__


def _may_be_outdated(function: FunctionType) -> bool:
    """Check whether numba may have cached code of an earlier state of a plugin's function."""
    foreign = get_package(function) != "treekit" and not is_copy(function)
    return foreign and bool(find_templates(function))


def _is_stable(value: Any) -> bool:
    """Check for a function or class of a package that changes only with its version."""
    kinds = FunctionType | BuiltinFunctionType | type | np.ufunc | type(np.sum)
    return isinstance(value, kinds) and get_package(value) in STABLE_PACKAGES


# ---------------------------------------------------------------- referenced values
# The values that a function references and a compiler treats as constants, and its helpers.
#
# numba reads globals, closure cells and module attributes while it compiles.  Comparing and
# copying functions use the same rules.

STABLE_PACKAGES = frozenset({"builtins", "llvmlite", "math", "numba", "numpy", "operator"})
"""Packages that change only with their version."""

_ABSENT = object()


def get_package(function: Any) -> str:
    """Return the package of a function, class or module; empty if unknown."""
    name = function.__name__ if isinstance(function, ModuleType) else None
    return (name or getattr(function, "__module__", None) or "").partition(".")[0]


def is_unchanging(value: Any) -> bool:
    """Check whether a function or module is constant for the process, as treekit's own are."""
    return get_package(value) in STABLE_PACKAGES or get_package(value) == "treekit"


def list_names(code: CodeType) -> tuple[str, ...]:
    """Return the sorted names of globals and attributes used by code and its nested functions."""
    return tuple(sorted(set(_iterate_names(code))))


def _iterate_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _iterate_names(constant)


def iterate_closure(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a function's closure.

    Raises
    ------
    ValueError
        If a cell is not bound yet.
    """
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        yield name, cell.cell_contents


def iterate_globals(function: FunctionType, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the names that are globals of the function, and their values; skip all others."""
    for name in names:
        value = function.__globals__.get(name, _ABSENT)
        if value is not _ABSENT:
            yield name, value


def iterate_attributes(module: ModuleType, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a module among names, also those made on access (PEP 562)."""
    for name in names:
        try:
            value = getattr(module, name, _ABSENT)
        except Exception:  # noqa: BLE001, S112 - a module's `__getattr__` may raise anything
            continue
        if value is not _ABSENT:
            yield name, value


def is_numba(value: Any, kind: str) -> bool:
    """Check for an object of numba's: a ``Dispatcher``, a ``Type`` or an ``_Intrinsic``."""
    if "numba" not in sys.modules:
        return False
    from numba.core.dispatcher import Dispatcher
    from numba.core.types import Type
    from numba.extending import _Intrinsic

    return isinstance(
        value, {"Dispatcher": Dispatcher, "Type": Type, "_Intrinsic": _Intrinsic}[kind]
    )


def is_plain_dispatcher(value: Any) -> bool:
    """Check for a function decorated with `numba.njit`, not one of treekit's dispatchers."""
    if "numba" not in sys.modules:
        return False
    from numba.core.registry import CPUDispatcher

    return type(value) is CPUDispatcher


def find_templates(function: FunctionType) -> tuple[Any, ...]:
    """Return numba's templates of a plain function (`register_jitable`, `overload`), if any."""
    if "numba" not in sys.modules:
        return ()
    from numba.core.registry import cpu_target

    context = cpu_target.typing_context
    context.refresh()
    try:
        known = context.resolve_value_type(function)
    except Exception:  # noqa: BLE001 - numba has errors outside its own hierarchy
        return ()
    return tuple(getattr(known, "templates", (known,)))


def describe_compilation(dispatcher: Any) -> tuple[Any, ...]:
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
# with the current constants, which its `compute_fingerprint` identifies.

MAX_CACHED_HELPERS = 256
"""Number of helper copies cached for other functions; the oldest is dropped first."""

_cached_helpers: dict[Any, Any] = {}
_COPIED_FUNCTIONS: set[FunctionType] = set()


def copy_for_compilation(core: Any) -> Any:
    """Copy `core` and its helpers for compilation.

    Helpers are the plain functions of the same module or package that `core` names or holds
    in its closure, recursively; those of other packages that are registered with numba; and
    all functions decorated with `numba.njit`.  An unchanged helper (see `compute_identity`) is
    compiled once per process.  Objects that are not plain functions are returned unchanged.
    """
    if not isinstance(core, FunctionType):
        return core
    copies = _FunctionCopier(get_package(core))
    copy = copies.copy_function(core)
    copies.fill_copies()
    return copy


def is_copy(function: FunctionType) -> bool:
    """Check whether a helper is a copy by `copy_for_compilation`, unknown to numba."""
    return function in _COPIED_FUNCTIONS


class _ModuleView(ModuleType):
    """A stand-in for a module, with the attributes that one function names."""


class _FunctionCopier:
    """Copies of the functions that one function references, each made once."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.function_copies: dict[FunctionType, FunctionType] = {}
        self.helper_copies: dict[Any, Any] = {}
        self.module_views: dict[tuple[ModuleType, tuple[str, ...]], ModuleType] = {}
        self.pending: list[FunctionType] = []
        self.fixed_signatures: list[tuple[Any, Any]] = []
        self.new_helpers: dict[Any, Any] = {}

    def fill_copies(self) -> None:
        """Fill all copies (they may reference each other) and cache the new ones."""
        while self.pending:
            self._fill_copy(self.pending.pop())
        for copy, original in self.fixed_signatures:
            for made in original.nopython_signatures:
                copy.compile(made)
            copy.disable_compile()
        for key, copy in self.new_helpers.items():
            if len(_cached_helpers) >= MAX_CACHED_HELPERS:
                _cached_helpers.pop(next(iter(_cached_helpers)), None)
            _cached_helpers[key] = copy

    def copy_function(self, function: FunctionType) -> FunctionType:
        """Copy a function; its globals and closure are filled later."""
        if function not in self.function_copies:
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
            self.function_copies[function] = copy
            self.pending.append(function)
        return self.function_copies[function]

    def _fill_copy(self, function: FunctionType) -> None:
        copy, names = self.function_copies[function], list_names(function.__code__)
        for name, value in iterate_globals(function, names):
            copy.__globals__[name] = self._replace_value(value, names)
        if function.__defaults__ is not None:
            copy.__defaults__ = tuple(self._replace_value(v, names) for v in function.__defaults__)
        for own, cell in zip(copy.__closure__ or (), function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not bound yet: numba will report it
                continue
            own.cell_contents = self._replace_value(value, names)

    def _replace_value(self, value: Any, names: tuple[str, ...]) -> Any:
        """Return the value that replaces `value`, to which a function refers, in its copy."""
        if isinstance(value, ModuleType):
            return value if is_unchanging(value) else self._copy_module(value, names)
        if is_plain_dispatcher(value):
            return value if is_unchanging(value) else self._copy_helper(value)
        if isinstance(value, FunctionType):
            return self._copy_helper(value) if self._is_helper(value) else value
        if type(value) is tuple:
            return tuple(self._replace_value(part, names) for part in value)
        return value

    def _copy_module(self, module: ModuleType, names: tuple[str, ...]) -> ModuleType:
        """Return a stand-in for a module with the attributes that one function names."""
        known = self.module_views.get((module, names))
        if known is None:
            known = self.module_views[module, names] = _ModuleView(module.__name__)
            for name, value in iterate_attributes(module, names):
                vars(known)[name] = self._replace_value(value, names)
        return known

    def _is_helper(self, function: FunctionType) -> bool:
        """Check whether numba compiles a plain function with its caller, from its own body."""
        if get_package(function) != self.home and is_unchanging(function):
            return False
        templates = find_templates(function)
        return all(map(_is_plain_jitable, templates)) and (
            get_package(function) == self.home or bool(templates)
        )

    def _copy_helper(self, value: Any) -> Any:
        """Return the copy of a helper, reusing an equal one from the cache."""
        if value in self.helper_copies:
            return self.helper_copies[value]
        key: Any = None
        known: Any = None
        try:
            key = self.home, type(value), compute_identity(value)
            known = _cached_helpers.get(key)
        except (TypeError, ValueError):  # something in it cannot be hashed, or is not bound
            key = None
        if known is None:
            copied = self._copy_dispatcher if is_plain_dispatcher(value) else self._copy_jitable
            known = copied(value)
            if key is not None:
                self.new_helpers[key] = known
        self.helper_copies[value] = known
        return known

    def _copy_jitable(self, function: FunctionType) -> FunctionType:
        copy = self.copy_function(function)
        # numba does not pass the caller's options on to helpers.
        options = {"boundscheck": self.home != "treekit"}
        for template in find_templates(function)[:1]:
            options = template._jit_options
        from numba.extending import register_jitable

        register_jitable(**options)(copy)
        _COPIED_FUNCTIONS.add(copy)
        return copy

    def _copy_dispatcher(self, value: Any) -> Any:
        from numba.core.registry import CPUDispatcher

        copy = CPUDispatcher(
            self.copy_function(value.py_func),
            locals=dict(value.locals),
            targetoptions=dict(value.targetoptions),
            pipeline_class=value._compiler.pipeline_class,
        )
        if not value._can_compile:  # compiled for fixed signatures
            self.fixed_signatures.append((copy, value))
        return copy


def _is_plain_jitable(template: Any) -> bool:
    """Check whether numba compiles a function from its own body (`register_jitable`)."""
    overload = getattr(template, "_overload_func", None)
    inline = getattr(template, "_inline", None)
    return getattr(overload, "__module__", "") == "numba.core.extending" and getattr(
        inline, "is_never_inline", False
    )
