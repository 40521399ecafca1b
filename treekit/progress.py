"""Progress bars on stderr, and the switch for reports of kernel compilation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "get_console",
    "report_compilation",
    "reports_compilation",
    "show_progress",
    "show_waiting",
]

_choice: dict[str, bool] = {}


def report_compilation(on: bool) -> None:
    """Turn reports of kernel compilation on or off in this process."""
    _choice["reporting"] = on


def reports_compilation() -> bool:
    """Return whether to report kernel compilation.

    Unless `report_compilation` was called: only on a terminal or in a notebook.
    """
    watched = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    return _choice.get("reporting", watched)


@cache
def get_console() -> Console:
    """Return the console that all bars share, so that rich stacks them."""
    from rich.console import Console

    return Console(stderr=True)


@contextmanager
def show_progress(
    title: str, *, counted: bool = True
) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback ``progress(done, total)`` that draws a bar, or None without a terminal.

    The bar is drawn from the first step on, so that messages of the preparation are above it.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TimeRemainingColumn,
    )

    counter = MofNCompleteColumn() if counted else TaskProgressColumn()
    columns = (title, BarColumn(), counter, TimeRemainingColumn())
    bar = Progress(*columns, console=get_console(), transient=True)
    task = bar.add_task("", start=False)

    def update_bar(done: int, total: int) -> None:
        bar.start_task(task)
        bar.update(task, total=total, completed=done)
        bar.start()

    try:
        yield update_bar
    finally:
        bar.stop()


@contextmanager
def show_waiting() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a line on a terminal or in a notebook, or none for no text."""
    if not reports_compilation():
        yield lambda _: None
        return
    from rich.status import Status
    from rich.text import Text

    line = Status("", console=get_console())

    def show(text: str) -> None:
        if text:
            line.update(Text(text))
            line.start()
        else:
            line.stop()

    try:
        yield show
    finally:
        line.stop()
