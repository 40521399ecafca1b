"""Progress of reading and training, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["fold_progress", "reading_progress", "tree_progress"]


@contextmanager
def tree_progress() -> Iterator[Callable[[int, int], None] | None]:
    """A callback for `treekit.train` that draws a bar, or None where stderr is no terminal."""
    with _bar("trees", counted=True) as show:
        yield show


@contextmanager
def fold_progress() -> Iterator[Callable[[int, int], None] | None]:
    """A callback for `treekit.evaluate`; see `tree_progress`."""
    with _bar("folds", counted=True) as show:
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
