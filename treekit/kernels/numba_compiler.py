"""Compilation of kernels by numba: dispatchers, and their disk cache.

All kernels are compiled with the same options: no Python objects, no GIL, IEEE
division, and a disk cache if its folder is writable.  Nothing imports this module, and with it
numba, before a function must be compiled: see `treekit.kernels.compile`.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import inspect
import itertools
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llvmlite import binding
from numba import njit
from numba.core import event
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher

from treekit.kernels.library import digest_file, digest_sources
from treekit.progress import reports_compilation

# ---------------------------------------------------------------- dispatchers


def make_dispatcher(function: Callable[..., Any], kind: str) -> Any:
    """Return numba's dispatcher of a decorated function; see `treekit.kernels.compile`."""
    importlib.import_module("treekit.kernels.intrinsics")  # known before numba types their names
    if kind == "kernel":
        return enable_disk_cache(KernelDispatcher(function))
    if kind == "llvm_inlined":
        return KernelDispatcher(function, forceinline=True, no_cpython_wrapper=True)
    if kind == "called":
        return KernelDispatcher(function, no_cpython_wrapper=True)
    if kind == "inlined":
        return njit(error_model="numpy", inline="always")(function)
    return njit(function)


class KernelDispatcher(CPUDispatcher):
    """A dispatcher with the options of all kernels: nopython, nogil, IEEE division."""

    def __init__(self, function: Callable[..., Any], **more: bool) -> None:
        options = {"nopython": True, "nogil": True, "error_model": "numpy", "boundscheck": None}
        # Only a `FunctionPointer` needs the wrapper for C.  Without a value of its own,
        # `forceinline` would be that of the kernel compiled at the time.
        options |= {"no_cfunc_wrapper": True, "forceinline": False}
        super().__init__(function, {}, options | more)

    def compile(self, sig: Any) -> Any:
        """Compile for a signature, or load the machine code from disk."""
        with relax_garbage_collection():
            return super().compile(sig)

    def __reduce__(self) -> Any:
        """Pickle a function of a module by its name; another process compiles it again."""
        name = self.py_func.__qualname__
        if "<locals>" in name:
            return super().__reduce__()
        return _find_kernel, (self.py_func.__module__, name)


def _find_kernel(module: str, name: str) -> Any:
    """Return a pickled kernel."""
    return getattr(importlib.import_module(module), name)


class LinkedFunction(KernelDispatcher):
    """A function called by generated wrappers, which can unroll its loops again.

    LLVM unrolls a loop over an unknown number of cells and then forbids further
    unrolling.  In a wrapper the number is known: without the ban a scan of 2 to 7
    cells takes two thirds of the time (measured).
    """

    def compile(self, sig: Any) -> Any:
        """Compile for a signature, and drop the unroll metadata from the module to link."""
        made = super().compile(sig)
        for result in self.overloads.values():
            library = result.library
            # Private names of numba, which another release may lack.
            with contextlib.suppress(AttributeError, RuntimeError):
                text = str(library._get_module_for_linking())
                if "!llvm.loop " in text:
                    text = re.sub(r", !llvm\.loop !\d+", "", text)
                    library._shared_module = binding.parse_assembly(text)
        return made


@contextmanager
def relax_garbage_collection() -> Iterator[None]:
    """Collect garbage cycles rarely during a compilation, in any thread.

    numba creates millions of small objects that live until it is done; collecting them
    repeatedly takes a quarter of all compile time.  Disabling the collector is not
    faster than running it rarely, and takes 150 MB more (both measured).
    """
    with _running.lock:
        _running.depth += 1
        if _running.depth == 1:
            _running.usual_threshold = gc.get_threshold()
            if _running.usual_threshold[0] > 0:  # 0: disabled by the user
                gc.set_threshold(*_RARE_COLLECTION)
    try:
        yield
    finally:
        with _running.lock:
            _running.depth -= 1
            if _running.depth == 0 and gc.get_threshold() == _RARE_COLLECTION:
                gc.set_threshold(*_running.usual_threshold)


_RARE_COLLECTION = (200_000, 20, 100)


class _CompilationCount:
    """Number of running compilations, and the collector's thresholds before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.usual_threshold = gc.get_threshold()


_running = _CompilationCount()


# ---------------------------------------------------------------- disk cache
# numba's own cache, with three differences.  Code is valid for one state of all kernels, not of
# its own file alone.  The caller identifies a closure by a digest: numba compares pickles of its
# cells, which differ every time if one holds compiled code.  And each signature has an index of
# its own: two processes that write one index at a time can mix it up.

MAX_CACHED_CLOSURES = 100
"""Maximum number of cached closures per function; the oldest are deleted first."""

_ANNOTATION = 4
"""Place of the annotated source, a fifth of what numba stores, after library and descriptor."""


def enable_disk_cache(dispatcher: Any, mark: str | None = None) -> Any:
    """Enable the disk cache of a dispatcher if its folder is writable, and return it.

    Parameters
    ----------
    dispatcher : numba dispatcher
    mark : str, optional
        Hexadecimal digest of everything that the machine code of a closure depends
        on, except its signature and the machine.  None: a function at module level.
    """
    # Without a writable folder (a read-only container): compile in each process.
    with contextlib.suppress(RuntimeError, OSError):
        try:
            dispatcher._cache = _KernelCache(dispatcher.py_func, mark)
        except (AttributeError, TypeError):  # private names of numba, missing in this release
            if mark is None:
                dispatcher.enable_caching()
    return dispatcher


class _KernelCache(FunctionCache):
    """The cache of a function; its failures only cost time."""

    def __init__(self, function: Callable[..., Any], mark: str | None) -> None:
        super().__init__(function)
        self._mark = mark
        self._index_class: Any = type(self._cache_file)
        self._stamp = digest_file(inspect.getfile(function)), digest_sources()

    def _find_index(self, sig: Any, codegen: Any) -> tuple[Any, Any]:
        """Return the index of a signature, and the key of its code."""
        if self._mark is None:
            key = self._index_key(sig, codegen)
        else:
            key = sig, codegen.magic_tuple(), self._mark
        # What has changed replaces its former state: neither stamp nor bytecode are in the name.
        named = hashlib.sha256(repr((*key[:2], self._mark)).encode()).hexdigest()[:16]
        index = self._index_class(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}-{named}",
            source_stamp=self._stamp,
        )
        return index, key

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the compiled code or None; clear what is unreadable."""
        target_context.refresh()
        index, key = self._find_index(signature, target_context.codegen())
        try:
            data = index.load(key)
            return None if data is None else self._impl.rebuild(target_context, data)
        except Exception:  # noqa: BLE001 - a truncated pickle raises anything
            with contextlib.suppress(OSError):
                index.flush()
        return None

    def save_overload(self, signature: Any, data: Any) -> None:
        """Save compiled code if the disk allows."""
        if not self._impl.check_cachable(data):
            return
        with contextlib.suppress(OSError):
            index, key = self._find_index(signature, data.codegen)
            self._impl.locator.ensure_cache_path()
            library, descriptor, *others = self._impl.reduce(data)
            if len(others) > _ANNOTATION and isinstance(others[_ANNOTATION], str):
                others[_ANNOTATION] = ""
            index.save(key, (library, descriptor, *others))
            self._delete_oldest()

    def _delete_oldest(self) -> None:
        """Delete the files of all but the newest closures of this function."""
        folder, base = Path(self._cache_path), self._impl.filename_base
        indices = folder.glob(f"{base}-{'[0-9a-f]' * 16}.nbi")
        for old in sorted(indices, key=lambda path: path.stat().st_mtime)[:-MAX_CACHED_CLOSURES]:
            for path in folder.glob(f"{old.stem}.*.nbc"):
                path.unlink(missing_ok=True)
            old.unlink(missing_ok=True)


def _randomize_function_ids() -> None:
    """Start numba's function ids, which are part of symbol names, at a random number.

    numba counts from 1 in each process.  Closures from two processes would then share a
    symbol name, and in a third process that loads both, one would run the other's code.
    """
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(6), "big"))


_randomize_function_ids()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_randomize_function_ids)


# ---------------------------------------------------------------- notice


class CompilationNotice(event.Listener):
    """Prints one line when this process first compiles a kernel, on a terminal or in a notebook."""

    def __init__(self) -> None:
        self.is_printed = False

    def on_start(self, started: event.Event) -> None:
        """Print the line; a function made by exec has no module."""
        module = f"{started.data['dispatcher'].py_func.__module__}."
        is_kernel = module.startswith("treekit.") and ".kernels." in module
        if self.is_printed or not is_kernel or not reports_compilation():
            return
        self.is_printed = True
        text = "compiling kernels that the installation lacks; later runs load them from disk\n"
        with contextlib.suppress(OSError):  # nobody reads stderr any more
            sys.stderr.write(text)
            sys.stderr.flush()

    def on_end(self, ended: event.Event) -> None:
        """Do nothing."""


notice = CompilationNotice()
event.register("numba:compile", notice)
