"""How every kernel is compiled: one decorator, so that one rule holds for all.

No Python objects, no GIL, IEEE division, and a disk cache where there is a
folder to write it to (`treekit.kernels.compile`).
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

from llvmlite import binding
from numba import njit
from numba.core import caching
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher

if TYPE_CHECKING:
    from numba.core.event import Event

__all__ = [
    "MOST_KEPT",
    "PATIENCE",
    "Compiled",
    "Finder",
    "Linked",
    "compile_notice",
    "compiling",
    "inlined",
    "keep",
    "kernel",
    "merged",
    "watch",
]


# ---------------------------------------------------------------- compile

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
        Of the arguments of `treekit.kernels.axis_splits.find_axis`.
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


# ---------------------------------------------------------------- kept
# Machine code kept on disk, for the processes that come later.
#
# numba checks a cached kernel against its own file only and would not notice a
# change in a helper from another; here what is kept is valid for one state of
# the whole folder of kernels.  And numba tells closures apart by what pickle
# makes of their cells, which is never the same twice where a cell holds compiled
# code; here whoever makes a closure says what tells it from others.

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


# ---------------------------------------------------------------- notice
# What a person is told while kernels compile; all of it on stderr.
#
# The command line says so wherever it writes to; in Python a person at a terminal or
# in a notebook is told, and a program that writes to a file is not.

PATIENCE = 1.5
"""Seconds of compiling before a word is said: a plugin's criterion alone takes less."""


@contextmanager
def compile_notice() -> Iterator[None]:
    """Say so, once, if compiling kernels takes longer than `PATIENCE`.

    Without a cache on disk the first training of a machine compiles for some
    seconds; silence would look like a hang.
    """
    from numba.core.event import install_listener

    notice = _Notice()
    _telling.append(notice)
    try:
        with install_listener("numba:compile", _ear(notice)):
            yield
    finally:
        _telling.remove(notice)
        notice.stop()


def watch() -> None:
    """From now on tell a person what compiles, unless somebody does already, or nobody looks."""
    from numba.core.event import register

    if not _telling and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        _telling.append(_Notice())
        register("numba:compile", _ear(_telling[0]))


_telling: list[_Notice] = []
"""Notices of what compiles now."""


def _ear(notice: _Notice) -> Any:
    """What hears of compilations for a notice."""
    from numba.core.event import Listener

    class Ear(Listener):
        def on_start(self, event: Event) -> None:
            notice.begin(event.data["dispatcher"])

        def on_end(self, event: Event) -> None:
            del event
            notice.end()

    return Ear()


class _Notice:
    """Times the compilations of kernels; all nest, and come from several threads under one lock.

    What is compiled in every process, a component around the kernels, does not count.
    How many kernels there will be is not known: each says what it calls as it compiles.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.timed: int | None = None  # depth of the outermost kernel that compiles
        self.kernels: list[str] = []
        self.spent = 0.0
        self.since = 0.0
        self.said = False
        self.timer: threading.Timer | None = None
        self.lock = threading.Lock()  # of the terminal's line

    def begin(self, dispatcher: Any) -> None:
        """A compilation starts."""
        self.depth += 1
        if not dispatcher.py_func.__module__.startswith("treekit.kernels."):
            return
        self.kernels.append(dispatcher.py_func.__name__.strip("_"))
        if self.timed is None:
            kept = dispatcher.stats.cache_path is not None
            self.timed, self.since = self.depth, monotonic()
            self._later(max(PATIENCE - self.spent, 0.0), kept)

    def end(self) -> None:
        """The compilation that started last is done."""
        if self.timed == self.depth:
            with self.lock:
                self.spent += monotonic() - self.since
                self.timed = None
                self._draw("")
            self._cancel()
        self.depth -= 1

    def _later(self, seconds: float, kept: bool) -> None:
        self.timer = threading.Timer(seconds, self._tell, [kept])
        self.timer.daemon = True
        self.timer.start()

    def _tell(self, kept: bool) -> None:
        with self.lock:
            if self.timed is None:
                return
            if not self.said:
                self.said = True
                later = "; later runs load them from disk" if kept else ""
                _say(f"compiling treekit's kernels for the first time{later}\n")
            seconds = self.spent + monotonic() - self.since
            self._draw(f"kernel {len(self.kernels)}, {self.kernels[-1]}: {seconds:.0f} s")
            self._later(1.0, kept)

    def _draw(self, text: str) -> None:
        """The one line that a terminal shows and then forgets."""
        if self.said and sys.stderr.isatty():
            _say(text, "\r\x1b[K")

    def _cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def stop(self) -> None:
        """Say what it came to, and nothing any more."""
        self._cancel()
        if self.said:
            count = len(self.kernels)
            _say(f"compiled {count} kernels in {self.spent:.0f} s\n")


def _say(text: str, before: str = "") -> None:
    """Words on stderr, dim on a terminal."""
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        text = f"\x1b[2m{text}\x1b[0m"
    sys.stderr.write(before + text)
    sys.stderr.flush()
