"""What a person is told while kernels compile; all of it on stderr.

The command line says so wherever it writes to; in Python a person at a terminal or
in a notebook is told, and a program that writes to a file is not.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numba.core.event import Event

__all__ = ["PATIENCE", "compile_notice", "watch"]

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
