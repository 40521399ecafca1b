"""How every kernel is compiled: one decorator, so that one rule holds for all.

No Python objects, no GIL, IEEE division, and a disk cache where there is a
folder to write it to (`treekit.kernels.kept`).
"""

from __future__ import annotations

import contextlib
import gc
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from llvmlite import binding
from numba import njit
from numba.core.registry import CPUDispatcher

from treekit.kernels.kept import keep
from treekit.kernels.notice import watch

__all__ = ["Compiled", "Finder", "Linked", "compiling", "inlined", "kernel", "merged"]

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` on first use, for the argument types in use.

    Subscripts in kernels are unsigned: numba's handling of negative ones
    costs 1.1 to 1.6 times (measured).
    """
    return cast(F, keep(Compiled(function)))


def merged(function: F) -> F:
    """A helper of several callers, or of many arguments, that becomes a part of them.

    LLVM puts it there, once types are known: that costs less than `inlined` for
    each caller but the first, and a call with arrays costs as much as a few rows.
    """
    return cast(F, Compiled(function, forceinline=True))


class Compiled(CPUDispatcher):
    """A function without Python objects, GIL or exceptions of division."""

    def __init__(self, function: Callable[..., Any], **more: bool) -> None:
        options = {"nopython": True, "nogil": True, "error_model": "numpy", "boundscheck": None}
        super().__init__(function, {}, options | more)

    def compile(self, sig: Any) -> Any:
        """The machine code for a signature, from the disk if it is there."""
        with compiling():
            return super().compile(sig)


class Linked(Compiled):
    """A function for wrappers to call, whose loops unroll once more in them.

    LLVM unrolls a loop over cells of a number that it does not know, and forbids
    doing so again.  In a wrapper the number is known: without the ban a scan of
    2 to 7 cells takes two thirds of the time (measured).
    """

    def compile(self, sig: Any) -> Any:
        """The machine code for a signature, and the form that wrappers link."""
        made = super().compile(sig)
        for result in self.overloads.values():
            library = result.library
            with contextlib.suppress(AttributeError, RuntimeError):  # not this numba's inner names
                text = str(library._get_module_for_linking())
                if "!llvm.loop " in text:
                    text = re.sub(r", !llvm\.loop !\d+", "", text)
                    library._shared_module = binding.parse_assembly(text)
        return made


@contextmanager
def compiling() -> Iterator[None]:
    """Let Python's collector of cycles run rarely while something compiles, in any thread.

    numba makes millions of small objects that live until it is done, and the
    collector visits them time and again: a quarter of all compile time.
    Never is no faster than rarely, and takes 150 MB more (both measured).
    """
    with _busy.lock:
        _busy.depth += 1
        if _busy.depth == 1:
            watch()
            _busy.usual = gc.get_threshold()
            if _busy.usual[0] > 0:  # 0: somebody turned it off
                gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        with _busy.lock:
            _busy.depth -= 1
            if _busy.depth == 0 and gc.get_threshold() == _RARELY:
                gc.set_threshold(*_busy.usual)


_RARELY = (200_000, 20, 100)


class _Busy:
    """How many compilations are under way, and what the collector did before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.usual = gc.get_threshold()


_busy = _Busy()


@dataclass(frozen=True)
class Finder:
    """A built-in splitter's ``find``: a kernel that fills the builder's own arrays.

    Attributes
    ----------
    kernel : callable
        Of the arguments of `treekit.kernels.axis.find_axis`.
    options : tuple of float
        What it finds in ``scratch.options``.  A closure over them would be
        compiled in every process.
    numbers : callable or None
        What serves tables without nominal columns, compiled in less time; None: `kernel`.
    ranked : callable or None
        What serves a rank target in place of a search that adds statistics up;
        None: nothing does.
    bounded : bool
        Whether it keeps to monotonic constraints (`treekit.kernels.monotonic`).
    keys : bool
        Whether it finds the same splits by keys in place of exact codes
        (`treekit.data.binning`), which nobody needs to sort columns for.
    """

    kernel: Callable[..., Any]
    options: tuple[float, ...] = ()
    numbers: Callable[..., Any] | None = None
    ranked: Callable[..., Any] | None = None
    bounded: bool = False
    keys: bool = False

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel."""
        return self.kernel(*arguments)


def inlined(function: F) -> F:
    """A helper with one caller, put into it before types are inferred.

    It is then compiled once, not once alone and once more in its caller.
    """
    return cast(F, njit(error_model="numpy", inline="always")(function))
