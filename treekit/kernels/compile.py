"""How every kernel is compiled: one decorator, so that one rule holds for all.

No Python objects, no GIL, IEEE division, and a disk cache where there is a
folder to write it to.  numba checks a cached kernel against its own file only
and would not notice a change in a helper from another; here the cache is
valid for one state of the whole folder of kernels.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core.caching import FunctionCache

__all__ = ["Finder", "cached", "inlined", "kernel"]

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` on first use, for the argument types in use.

    Subscripts in kernels are unsigned: numba's handling of negative ones
    costs 1.1 to 1.6 times (measured).
    """
    return cast(F, cached(njit(nogil=True, error_model="numpy")(function)))


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
    ranked : callable or None
        What serves a rank target in place of a search that adds statistics up;
        None: nothing does.
    bounded : bool
        Whether it keeps to monotonic constraints (`treekit.kernels.monotonic`).
    """

    kernel: Callable[..., Any]
    options: tuple[float, ...] = ()
    ranked: Callable[..., Any] | None = None
    bounded: bool = False

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel."""
        return self.kernel(*arguments)


def inlined(function: F) -> F:
    """A helper with one caller, put into it before types are inferred.

    It is then compiled once, not once alone and once more in its caller.
    """
    return cast(F, njit(error_model="numpy", inline="always")(function))


def cached(dispatcher: Any) -> Any:
    """The same dispatcher with a disk cache, where a folder can be written."""
    # Without a folder (a read-only container): compile in each process.
    with contextlib.suppress(RuntimeError, OSError):
        try:
            dispatcher._cache = _KernelCache(dispatcher.py_func)
        except (AttributeError, TypeError):  # not this numba's inner names
            dispatcher.enable_caching()
    return dispatcher


class _KernelCache(FunctionCache):
    """numba's cache, stamped with all kernels, whose failures cost time only."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        index = self._cache_file
        index._source_stamp = (index._source_stamp, _state_of_kernels())

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled code, or None if there is none; an unreadable cache is emptied."""
        try:
            return super().load_overload(signature, target_context)
        except Exception:  # noqa: BLE001 - a truncated pickle raises anything
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        """Keep compiled code if the disk allows."""
        with contextlib.suppress(OSError):
            super().save_overload(signature, data)


@cache
def _state_of_kernels() -> str:
    """Digest of names, sizes and times of every file beside this one."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        status = path.stat()
        digest.update(f"{path.name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
