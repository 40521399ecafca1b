"""Machine code kept on disk, for the processes that come later.

numba checks a cached kernel against its own file only and would not notice a
change in a helper from another; here what is kept is valid for one state of
the whole folder of kernels.  And numba tells closures apart by what pickle
makes of their cells, which is never the same twice where a cell holds compiled
code; here whoever makes a closure says what tells it from others.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import caching
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import FunctionCache

__all__ = ["MOST_KEPT", "keep"]

MOST_KEPT = 100
"""Closures of one function that the disk keeps; the oldest goes first."""


def keep(dispatcher: Any, mark: str | None = None) -> Any:
    """The same dispatcher with a disk cache, where a folder can be written.

    Parameters
    ----------
    dispatcher : numba dispatcher
    mark : str, optional
        Hexadecimal digest of all that the machine code of a closure depends on beside
        its signature and the machine.  None: the function is at module level.
    """
    # Without a folder (a read-only container): compile in each process.
    with contextlib.suppress(RuntimeError, OSError):
        try:
            dispatcher._cache = _Kept(dispatcher.py_func, mark)
        except (AttributeError, TypeError):  # not this numba's inner names
            if mark is None:
                dispatcher.enable_caching()
    return dispatcher


def _with_filled_folder() -> Any:
    """numba's places for a cache, and ``NUMBA_CACHE_DIR`` where it is filled and only read.

    numba passes such a folder over; that of a container's image holds what the image was
    made with.
    """
    kinds: Any = caching.CompileResultCacheImpl
    known = list(getattr(kinds, "_locator_classes", ()))
    if not known or known[0].__name__.lstrip("_") != "UserProvidedCacheLocator":
        return kinds  # not this numba's inner names

    def ensure_cache_path(self: Any) -> None:
        if not Path(self.get_cache_path()).is_dir():
            raise NotADirectoryError(self.get_cache_path())

    filled = type("_Filled", (known[0],), {"ensure_cache_path": ensure_cache_path})
    return type("_Kinds", (kinds,), {"_locator_classes": [known[0], filled, *known[1:]]})


class _Kept(FunctionCache):
    """numba's cache, stamped with all kernels, whose failures cost time only."""

    _impl_class = _with_filled_folder()

    def __init__(self, function: Callable[..., Any], mark: str | None) -> None:
        super().__init__(function)
        self._mark = mark
        index: Any = self._cache_file
        index._source_stamp = (index._source_stamp, _state_of_kernels())
        if mark is not None:
            # A file of its own: two processes that write one index at a time can mix up
            # its entries, and closures of one signature would answer for each other.
            name = self._impl.filename_base
            self._others = f"{name}-{'[0-9a-f]' * 16}"
            self._cache_file: Any = type(index)(
                cache_path=self._cache_path,
                filename_base=f"{name}-{mark[:16]}",
                source_stamp=index._source_stamp,
            )

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        if self._mark is None:
            return super()._index_key(sig, codegen)
        return sig, codegen.magic_tuple(), self._mark

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
            if self._mark is not None:
                self._forget_old()

    def _forget_old(self) -> None:
        """Delete the files of all but the newest closures of this function."""
        indices = Path(self._cache_path).glob(f"{self._others}.nbi")
        for old in sorted(indices, key=lambda path: path.stat().st_mtime)[:-MOST_KEPT]:
            for path in old.parent.glob(f"{old.stem}.*.nbc"):
                path.unlink(missing_ok=True)
            old.unlink(missing_ok=True)


def _number_symbols_apart() -> None:
    """Let numba's numbers of functions, a part of their symbols, begin anywhere.

    It counts from 1 in each process.  Closures of two processes would then have one
    symbol, and where a third process loads both, one's code would answer for the other.
    """
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(6), "big"))


_number_symbols_apart()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_number_symbols_apart)


@cache
def _state_of_kernels() -> str:
    """Digest of names, sizes and times of every file beside this one."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        status = path.stat()
        digest.update(f"{path.name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
