"""Compilation of kernels by numba: dispatchers, their disk cache, and the progress of compilation.

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
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from llvmlite import binding
from numba import njit
from numba.core import caching, config, event
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher

from treekit.kernels import compile as kernels
from treekit.kernels import prebuilt
from treekit.progress import get_console, reports_compilation

if TYPE_CHECKING:
    from rich.progress import Progress

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
# numba invalidates a cached kernel only if its own file changes, not if a helper in
# another file does; this cache is valid for one state of all files of the folder.
# numba identifies closures by their pickled cells, which differ every time if a cell
# holds compiled code; here the caller passes a digest that identifies the closure.
# numba writes one index for all signatures of a function, which two processes writing at
# a time can mix up; here each signature has an index of its own.
# numba's folder depends on the path of the source; here all environments and clones with
# the same kernels, numba and Python share one.
# Machine code that came with the wheel is looked up first (`treekit.kernels.prebuilt`).

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


MAX_CACHED_STATES = 4
"""Maximum number of states of the kernels in the user's cache; the oldest are deleted first."""


def find_cache_folder() -> Path | None:
    """Return the folder of the kernels' machine code; None if the user has no folder for caches.

    It is in ``NUMBA_CACHE_DIR`` if that is set, else in the user's folder for caches.
    """
    state = _digest_state()
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR, f"treekit-{state}")
    try:
        if sys.platform == "win32":
            own = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        elif sys.platform == "darwin":
            own = Path.home() / "Library" / "Caches"
        else:
            own = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # the user has no home
        return None
    return Path(own, "treekit", f"kernels-{state}")


@cache
def _digest_state() -> str:
    """Return a digest of all that the kernels' machine code depends on, except the processor."""
    facts = sorted(prebuilt.describe_process().items())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _make_cache_folder(folder: Path) -> None:
    """Make the folder of a state in the user's cache, and delete the oldest states."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    states = sorted(folder.parent.glob("kernels-*"), key=lambda path: path.stat().st_mtime)
    for old in states[:-MAX_CACHED_STATES]:
        shutil.rmtree(old, ignore_errors=True)


def _extend_locators() -> Any:
    """Return numba's cache locators, extended to a shared and to a read-only folder, and to wheels.

    numba skips a folder that is not writable; in a container image it may hold
    the kernels that were compiled when the image was built.
    """
    kinds: Any = caching.CompileResultCacheImpl
    known = list(getattr(kinds, "_locator_classes", ()))
    if not known or known[0].__name__.lstrip("_") != "UserProvidedCacheLocator":
        return kinds  # private names of numba, missing in this release

    def ensure_filled(self: Any) -> None:
        if not Path(self.get_cache_path()).is_dir():
            raise NotADirectoryError(self.get_cache_path())

    def find_shared(kind: Any, function: Callable[..., Any], file: str) -> Any:
        folder = find_cache_folder()
        if folder is None or not function.__module__.startswith("treekit."):
            return None
        with contextlib.suppress(OSError):
            if not config.CACHE_DIR and not folder.exists():
                _make_cache_folder(folder)
            locator = kind(function, file)
            locator._cache_path = str(folder / Path(file).parent.name)
            locator.ensure_cache_path()
            return locator if Path(file).exists() else None
        return None

    def find_named(kind: Any, function: Callable[..., Any], file: str) -> Any:
        # A read-only folder is meant if it was named; another could not grow.
        return find_shared(kind, function, file) if config.CACHE_DIR else None

    def set_place(self: Any, function: Callable[..., Any], file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno

    def find_packaged(kind: Any, function: Callable[..., Any], file: str) -> Any:
        return kind(function, file) if prebuilt.find_store() and Path(file).exists() else None

    def refuse_writing(self: Any) -> None:
        raise PermissionError("no folder for compiled code is writable")

    filled = type("_Filled", (known[0],), {"ensure_cache_path": ensure_filled})
    shared = {"__init__": set_place, "from_function": classmethod(find_shared)}
    shared_kind = type("_Shared", (known[0],), shared)
    read_only = {"ensure_cache_path": ensure_filled, "from_function": classmethod(find_named)}
    shared_filled = type("_SharedFilled", (shared_kind,), read_only)
    # Without any writable folder, the machine code of a wheel still counts.
    packaged = {
        "__init__": set_place,
        "from_function": classmethod(find_packaged),
        "get_cache_path": lambda self: str(prebuilt.FOLDER),
        "ensure_cache_path": refuse_writing,
    }
    locators = [shared_kind, shared_filled, known[0], filled, *known[1:]]
    locators.append(type("_Packaged", (known[0],), packaged))
    return type("_Kinds", (kinds,), {"_locator_classes": locators})


class _KernelCache(FunctionCache):
    """numba's cache, invalidated when any kernel file changes; its failures only cost time."""

    _impl_class = _extend_locators()

    def __init__(self, function: Callable[..., Any], mark: str | None) -> None:
        super().__init__(function)
        self._mark = mark
        self._index_class: Any = type(self._cache_file)
        self._stamp = (
            prebuilt.digest_file(inspect.getfile(function)),
            prebuilt.digest_kernel_sources(),
        )

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        if self._mark is None:
            return super()._index_key(sig, codegen)
        return sig, codegen.magic_tuple(), self._mark

    def _iterate_places(self, sig: Any, codegen: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the indices that may hold the code for a signature, with its key in each."""
        key = self._index_key(sig, codegen)
        store = prebuilt.find_store()
        if store is not None and self._py_func.__module__.startswith("treekit."):
            room = Path(inspect.getfile(self._py_func)).parent.name
            yield self._make_index(store.folder / room, (sig, store.target, key[2]))
        if store is None or not store.recorded:
            yield self._make_index(Path(self._cache_path), key)

    def has_code(self) -> bool:
        """Return whether the folder or the wheel has machine code for any signature."""
        store, pattern = prebuilt.find_store(), f"{self._impl.filename_base}-*.nbc"
        room = Path(inspect.getfile(self._py_func)).parent.name
        folders = [Path(self._cache_path), *([] if store is None else [store.folder / room])]
        return any(True for folder in folders for _ in folder.glob(pattern))

    def _make_index(self, folder: Path, key: Any) -> tuple[Any, Any]:
        # What has changed replaces its former state: neither stamp nor bytecode are in the name.
        named = (*key[:2], self._mark)
        name = f"{self._impl.filename_base}-{hashlib.sha256(repr(named).encode()).hexdigest()[:16]}"
        index = self._index_class(
            cache_path=str(folder), filename_base=name, source_stamp=self._stamp
        )
        return index, key

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the compiled code or None; clear what is unreadable."""
        target_context.refresh()
        for index, key in self._iterate_places(signature, target_context.codegen()):
            try:
                data = index.load(key)
                if data is not None:
                    return self._impl.rebuild(target_context, data)
            except Exception:  # noqa: BLE001 - a truncated pickle raises anything
                with contextlib.suppress(OSError):
                    index.flush()
        return None

    def save_overload(self, signature: Any, data: Any) -> None:
        """Save compiled code if the disk allows."""
        if not self._impl.check_cachable(data):
            return
        with contextlib.suppress(OSError):
            *_, (index, key) = self._iterate_places(signature, data.codegen)
            folder = Path(index._cache_path)
            if folder == Path(self._cache_path):
                self._impl.locator.ensure_cache_path()
            folder.mkdir(parents=True, exist_ok=True)
            library, descriptor, *others = self._impl.reduce(data)
            if len(others) > _ANNOTATION and isinstance(others[_ANNOTATION], str):
                others[_ANNOTATION] = ""
            index.save(key, (library, descriptor, *others))
            self._delete_oldest(folder)

    def _delete_oldest(self, folder: Path) -> None:
        """Delete the files of all but the newest closures of this function."""
        indices = folder.glob(f"{self._impl.filename_base}-{'[0-9a-f]' * 16}.nbi")
        for old in sorted(indices, key=lambda path: path.stat().st_mtime)[:-MAX_CACHED_CLOSURES]:
            for path in old.parent.glob(f"{old.stem}.*.nbc"):
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


# ---------------------------------------------------------------- progress of compilation

REPORT_DELAY = 1.5
"""Compile time in seconds before a message appears; a plugin's criterion alone takes less."""

_BAR_INTERVAL = 0.5
"""Seconds between updates of the bar, also before the first one."""

_USUAL_SECONDS: Mapping[str, float] = {
    "sort_keys": 0.5,
    "find_axis_split": 15.5,
    "find_numeric_axis_split": 12.0,
    "find_simple_axis_split": 10.3,
    "find_simple_numeric_axis_split": 8.6,
    "find_binned_split": 17.0,
    "find_simple_binned_split": 16.0,
    "find_simple_numeric_binned_split": 12.0,
    "find_quantile_split": 13.1,
    "find_random_split": 13.9,
    "find_oblique_split": 47.9,
    "find_numeric_oblique_split": 44.4,
    "grow_nodes": 12.0,
    "find_surrogates": 5.0,
    "replace_by_children": 7.7,
    "route_rows": 3.4,
    "find_weakest_links": 1.6,
    "prune_and_raise": 8.4,
    "add_leaf_units": 3.3,
    "lower_nodes": 3.2,
    "merge_leaf_conditions": 1.4,
    "write_rows": 8.5,
    "compare_with_tables": 3.0,
}
"""Usual seconds to compile each kernel, measured by ``tools/measure_compile_times.py``.

They include the functions that it calls, except kernels with an entry of their own here.
"""


class CompilationReport(event.Listener):
    """Report of kernel compilation: a line of text, and on a terminal a bar.

    One compilation may start others.  Threads may compile, too, one at a time (numba's lock).
    Criteria and other components, which are compiled in every process, are not reported.

    The seconds left are the usual seconds of the running kernel and of the expected ones, scaled
    by how fast this machine has compiled so far.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.timed_depth: int | None = None  # depth of the outermost kernel being compiled
        self.started_at = 0.0
        self.usual_seconds = 0.0  # of the outermost kernel
        self.expected: Sequence[Any] = kernels.get_expected_kernels()
        self.started: set[str] = set()
        self.spent_seconds = 0.0  # by finished kernels
        self.measured = [1.0, 1.0]  # seconds and usual seconds of finished kernels, and 1 each
        self.announced = False
        self.timer: threading.Timer | None = None
        self.bar: Progress | None = None
        self.lock = threading.Lock()  # guards the bar

    def on_start(self, started: event.Event) -> None:
        """Record the start of a compilation."""
        dispatcher = started.data["dispatcher"]
        self.depth += 1
        # Any function of the process that numba compiles; one made by exec has no module.
        if not str(dispatcher.py_func.__module__).startswith("treekit.kernels."):
            return
        name = dispatcher.py_func.__name__
        usual = _USUAL_SECONDS.get(name, 0.0)
        self.started.add(name)
        if self.timed_depth is not None:
            self.usual_seconds += usual
            return
        self.timed_depth, self.started_at = self.depth, monotonic()
        self.usual_seconds = usual
        if reports_compilation():
            stored = dispatcher.stats.cache_path is not None
            self._schedule_update(max(REPORT_DELAY - self.spent_seconds, _BAR_INTERVAL), stored)

    def on_end(self, ended: event.Event) -> None:
        """Record the end of the innermost compilation."""
        if self.timed_depth == self.depth:
            with self.lock:
                seconds = monotonic() - self.started_at
                self.spent_seconds += seconds
                if self.usual_seconds:
                    self.measured[0] += seconds
                    self.measured[1] += self.usual_seconds
                self.timed_depth = None
                if self.bar is not None:
                    self.bar.stop()
                    self.bar = None
            if self.timer is not None:
                self.timer.cancel()
        self.depth -= 1

    def _schedule_update(self, seconds: float, stored: bool) -> None:
        self.timer = threading.Timer(seconds, self._show_progress, [stored])
        self.timer.daemon = True
        with contextlib.suppress(RuntimeError):  # no threads at the end of the interpreter
            self.timer.start()

    def _show_progress(self, stored: bool) -> None:
        with self.lock:
            if self.timed_depth is None:
                return
            spent, left = self._estimate_seconds()
            if not self.announced:
                self.announced = True
                time = f", about {left:.0f} s" if left >= 1 else ""
                later = "; later runs load them from disk" if stored else ""
                with contextlib.suppress(OSError):  # nobody reads stderr any more
                    text = f"compiling treekit's kernels for the first time{time}{later}\n"
                    sys.stderr.write(text)
                    sys.stderr.flush()
            if sys.stderr.isatty():
                self._draw_bar(spent, left)
                self._schedule_update(_BAR_INTERVAL, stored)

    def _estimate_seconds(self) -> tuple[float, float]:
        """Return the seconds spent and left; 0 left: unknown, or longer than usual."""
        seconds = monotonic() - self.started_at
        pace, usual = self.measured[0] / self.measured[1], self.usual_seconds
        if usual:
            pace = max(pace, seconds / usual)
            usual -= seconds / pace
        return self.spent_seconds + seconds, pace * (usual + self._sum_expected())

    def _sum_expected(self) -> float:
        """Return the usual seconds of the expected kernels that are not compiled yet."""
        return sum(
            _USUAL_SECONDS.get(kernel.py_func.__name__, 0.0)
            for kernel in self.expected
            if kernel.py_func.__name__ not in self.started and not _is_stored(kernel)
        )

    def _draw_bar(self, spent: float, left: float) -> None:
        from rich.progress import BarColumn, Progress

        if self.bar is None:
            self.bar = Progress(
                "compiling", BarColumn(), "{task.description}",
                console=get_console(), auto_refresh=False, transient=True,
                redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self.bar.add_task("")
            self.bar.start()
        task = self.bar.tasks[0]
        task.completed = spent
        task.total = spent + left if left >= 1 else None
        task.description = f"about {left:.0f} s left" if left >= 1 else f"{spent:.0f} s so far"
        self.bar.refresh()


def _is_stored(kernel: Any) -> bool:
    """Return whether machine code of a kernel is on disk, for any signature."""
    return isinstance(kernel._cache, _KernelCache) and kernel._cache.has_code()


_report = CompilationReport()
event.register("numba:compile", _report)
