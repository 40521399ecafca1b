"""Decorators of kernels: Python functions that run from the library of kernels, or by numba.

A kernel is called from the library that was built with the package (`treekit.kernels.library`)
if it has the variant for the types of its arguments.  Otherwise numba is imported and compiles
it.  Decorating imports neither numba nor the library.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from treekit.kernels import library
from treekit.kernels.function_pointers import compile_pointers

# ---------------------------------------------------------------- decorators

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Make a kernel, compiled for its argument types.

    Subscripts in kernels are unsigned or constants: numba's handling of negative subscripts
    costs 1.1 to 1.6 times (measured).
    """
    return cast(F, Kernel(function, "kernel"))


def llvm_inlined(function: F) -> F:
    """Compile a helper for other kernels only, and let LLVM inline it into its callers.

    For helpers with several callers, many arguments or much code.  This takes less compile
    time than `inlined` for each caller but the first, for long helpers, and for helpers that
    inline others: numba copies their code at every level.  A call with arrays costs as much as
    processing a few rows.
    """
    return cast(F, Kernel(function, "llvm_inlined"))


def called(function: F) -> F:
    """Compile a helper once, which other kernels call.

    For long helpers that are called once a node, with few arguments.
    """
    return cast(F, Kernel(function, "called"))


def inlined(function: F) -> F:
    """Inline a helper with a single caller before type inference.

    It is then compiled once, instead of once alone and once more in its caller.
    """
    return cast(F, Kernel(function, "inlined"))


def jitted(function: F) -> F:
    """Compile a helper of compiled criteria and splitters with numba's own options."""
    return cast(F, Kernel(function, "jitted"))


class Kernel:
    """A decorated function.  numba takes it for its dispatcher, which is made on demand.

    numba reads the attributes ``_numba_type_``, ``targetoptions`` and ``py_func`` of the functions
    that a kernel calls; all attributes but ``py_func`` are those of the dispatcher.
    """

    def __init__(self, function: Callable[..., Any], kind: str) -> None:
        functools.update_wrapper(self, function)
        del self.__wrapped__  # the signature of a kernel is that of its dispatcher
        self.py_func = function
        self.kind = kind
        self._made: Any = None
        self._variants: dict[Any, Any] = {}

    @property
    def dispatcher(self) -> Any:
        """numba's dispatcher."""
        if self._made is None:
            from treekit.kernels.numba_compiler import make_dispatcher

            self._made = make_dispatcher(self.py_func, self.kind)
        return self._made

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the kernel: the variant of the library, if it has one for these types."""
        if not named:
            types: list[Any] = []
            words: list[Any] = []
            library.flatten(arguments, types, words)
            variant = self._find_variant(tuple(types), arguments)
            if variant is not None:
                return variant.call(words)
        return self.call_compiled(*arguments, **named)

    def _find_variant(self, types: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
        """Return the library's variant for arguments of some types, or None."""
        try:
            return self._variants[types]
        except KeyError:
            loaded = library.get_library()
            place = f"{self.__module__}.{self.__qualname__}"
            name = place.removeprefix("treekit.").removeprefix("kernels.")
            variant = None if loaded is None else loaded.find_variant(name, arguments)
            if variant is None:
                library.note_missing(f"{name}{library.describe_types(arguments)}")
            self._variants[types] = variant
            return variant

    def find_call(self, arguments: tuple[Any, ...]) -> Callable[[], Any] | None:
        """Return a call of the library's variant with some arguments; None if it has none."""
        types: list[Any] = []
        words: list[Any] = []
        library.flatten(arguments, types, words)
        variant = self._find_variant(tuple(types), arguments)
        return None if variant is None else functools.partial(variant.call, words)

    def bind(self, *arguments: Any) -> Callable[[Any, Any], Any]:
        """Return the kernel as a function of its first and its last argument, both arrays.

        They must have the types of those given here, and the kernel must return a number.  A call
        takes 2 us less, as the other arguments are flattened once.
        """
        types: list[Any] = []
        words: list[Any] = []
        library.flatten(arguments, types, words)
        variant = self._find_variant(tuple(types), arguments)
        middle = arguments[1:-1]
        if variant is not None:
            return library.bind_words(variant, words[1:-1], middle)
        dispatcher, middle = self.dispatcher, compile_pointers(middle)
        return lambda first, last: dispatcher(first, *middle, last)

    def call_compiled(self, *arguments: Any, **named: Any) -> Any:
        """Call the kernel as compiled by numba."""
        return self.dispatcher(*compile_pointers(arguments), **named)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the dispatcher."""
        if name.startswith("__") or name == "_made":
            raise AttributeError(name)
        return getattr(self.dispatcher, name)

    def __repr__(self) -> str:
        """Return the name of the function."""
        return f"<kernel {self.__module__}.{self.__qualname__}>"

    def __reduce__(self) -> Any:
        """Pickle a function of a module by its name; another process compiles it again."""
        if "<locals>" in self.__qualname__:
            return Kernel, (self.py_func, self.kind)
        return _find_kernel, (self.__module__, self.__qualname__)


def _find_kernel(module: str, name: str) -> Any:
    """Return a pickled kernel."""
    return getattr(importlib.import_module(module), name)


def unwrap_kernel(function: Any) -> Any:
    """Return the dispatcher of a kernel; other objects are returned unchanged."""
    return function.dispatcher if isinstance(function, Kernel) else function


def LinkedFunction(function: Callable[..., Any], **options: bool) -> Any:  # noqa: N802
    """Compile a function that generated wrappers call; see `treekit.kernels.numba_compiler`."""
    from treekit.kernels import numba_compiler

    return numba_compiler.LinkedFunction(function, **options)


@dataclass(frozen=True)
class SplitterKernel:
    """A built-in splitter's ``find``: a kernel that fills the builder's arrays.

    Attributes
    ----------
    kernel : callable
        With the arguments of `treekit.kernels.axis_splits.find_axis_split`.
    options : tuple of float
        Values for ``scratch.options``.  A closure over them would be compiled in
        every process.
    quantile_kernel : callable or None
        Kernel for rank targets, whose statistics do not add up; None: rank targets
        are not supported.
    supports_monotonic : bool
        Whether it respects monotonic constraints (`treekit.kernels.monotonic`).
    supports_keys : bool
        Whether it finds the same splits on keys instead of exact codes
        (`treekit.data.binning`), which need no sorting of the columns.
    records_kernel : callable or None
        Kernel for codes of 8 bits, which also searches records
        (`treekit.kernels.row_records`); None: `kernel` is used, and only row numbers move.
    """

    kernel: Callable[..., Any]
    options: tuple[float, ...] = ()
    quantile_kernel: Callable[..., Any] | None = None
    supports_monotonic: bool = False
    supports_keys: bool = False
    records_kernel: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel."""
        return self.kernel(*arguments)


def __getattr__(name: str) -> Any:
    """Return a name of `treekit.kernels.numba_compiler`, which imports numba."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module("treekit.kernels.numba_compiler"), name)
