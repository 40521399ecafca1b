"""How every kernel is compiled: one decorator, so that one rule holds for all.

No Python objects, no GIL, IEEE division, and a disk cache where there is a
folder to write it to.  A helper that a kernel calls belongs into the same
module: numba checks a cached kernel against its own file only, and would not
notice a change in another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["inlined", "kernel"]

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` on first use, for the argument types in use.

    Subscripts in kernels are unsigned: numba's handling of negative ones
    costs 1.1 to 1.6 times (measured).
    """
    try:
        compiled = njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:
        # No folder is writable (a read-only container): compile in each process.
        compiled = njit(nogil=True, error_model="numpy")(function)
    return cast(F, compiled)


def inlined(function: F) -> F:
    """A helper that is always compiled into its caller.

    For helpers that take whole records: passed between functions, a record of
    thirty arrays is two hundred arguments.
    """
    return cast(F, njit(error_model="numpy", forceinline=True)(function))
