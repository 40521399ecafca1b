"""What a person is told while reading and training take their time; all of it on stderr."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from numba.core.event import Event
    from rich.progress import Progress, TaskID

__all__ = ["PATIENCE", "compile_notice", "reading_progress", "tree_progress"]

PATIENCE = 1.5
"""Seconds of compiling before a word is said: a plugin's criterion alone takes less."""


@contextmanager
def compile_notice() -> Iterator[None]:
    """Say so, once, if compiling kernels takes longer than `PATIENCE`.

    Without a cache on disk the first training of a machine compiles for some
    seconds; silence would look like a hang.
    """
    from numba.core.event import Listener, install_listener

    notice = _Notice()

    class Ear(Listener):  # type: ignore[misc]  # numba's types are not read
        def on_start(self, event: Event) -> None:
            notice.begin(event.data["dispatcher"])

        def on_end(self, event: Event) -> None:
            del event
            notice.end()

    try:
        with install_listener("numba:compile", Ear()):
            yield
    finally:
        notice.stop()


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
                click.secho(f"compiling kernels for the first time{later}", dim=True, err=True)
            seconds = self.spent + monotonic() - self.since
            self._draw(f"kernel {len(self.kernels)}, {self.kernels[-1]}: {seconds:.0f} s")
            self._later(1.0, kept)

    def _draw(self, text: str) -> None:
        """The one line that a terminal shows and then forgets."""
        if self.said and sys.stderr.isatty():
            click.secho(f"\r\x1b[K{text}", dim=True, err=True, nl=False)

    def _cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def stop(self) -> None:
        """Say what it came to, and nothing any more."""
        self._cancel()
        if self.said:
            count = len(self.kernels)
            click.secho(f"compiled {count} kernels in {self.spent:.0f} s", dim=True, err=True)


@contextmanager
def tree_progress() -> Iterator[Callable[[int, int], None] | None]:
    """A callback for `treekit.train` that draws a bar, or None where stderr is no terminal."""
    with _bar("trees", counted=True) as show:
        yield show


@contextmanager
def reading_progress() -> Iterator[Callable[[int, int], None] | None]:
    """A callback for `treekit.data.table.read_table`; see `tree_progress`."""
    with _bar("reading", counted=False) as show:
        yield show


@contextmanager
def _bar(title: str, *, counted: bool) -> Iterator[Callable[[int, int], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(title, counted)
    try:
        yield bar.show
    finally:
        bar.stop()


class _Bar:
    """Drawn from the first step on, so that the notice of compiling stands above it."""

    def __init__(self, title: str, counted: bool) -> None:
        self.title, self.counted = title, counted
        self.progress: Progress | None = None
        self.task: TaskID | None = None

    def show(self, done: int, total: int) -> None:
        """Steps done, of how many."""
        if self.progress is None or self.task is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TaskProgressColumn,
                TimeRemainingColumn,
            )

            told = MofNCompleteColumn() if self.counted else TaskProgressColumn()
            columns = (self.title, BarColumn(), told, TimeRemainingColumn())
            self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self.task = self.progress.add_task("", total=total)
            self.progress.start()
        self.progress.update(self.task, completed=done)

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self.progress is not None:
            self.progress.stop()
