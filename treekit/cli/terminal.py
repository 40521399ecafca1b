"""What every command shares: safe text, colours, warnings on one line, exit codes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click

from treekit.errors import TreekitError, TreekitWarning

__all__ = ["Commands", "colour_default", "heading", "print_facts", "print_table", "shown"]


def shown(text: object) -> str:
    """Text of a stranger as a terminal may print it: controls and such as escapes.

    Names, labels and messages may hold what moves the cursor, or turns the
    direction of the text around.
    """
    said = str(text)
    if said.isprintable():
        return said
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in said)


def colour_default() -> bool | None:
    """False where the user wants no colours (https://no-color.org); None: on terminals only."""
    return False if os.environ.get("NO_COLOR") else None


def heading(text: str) -> None:
    """Print a line that begins a part."""
    click.secho(text, bold=True)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair a line, the values in a column."""
    rows = [(shown(name), shown(value)) for name, value in facts]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        click.echo(f"  {click.style(f'{name:<{width}}', dim=True)}  {value}")


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: wrapped on a terminal, one line a row elsewhere, for grep and awk."""
    texts = [[shown(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_wrapped(head, texts)
        return
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    for row in [head, *texts]:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _print_wrapped(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*head, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for row in rows:  # as Text: a name such as [red] is no markup
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    Console(highlight=False).print(table)


class Commands(click.Group):
    """The commands; errors of treekit and of files become a message and exit code 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of use, not of the alphabet."""
        del ctx
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with _warnings_on_one_line(), _ended_gently():
            try:
                return super().invoke(ctx)
            except BrokenPipeError:  # the reader has seen enough; click ends quietly
                raise
            except KeyboardInterrupt as stop:
                click.secho("\nstopped", err=True)
                ctx.exit(128 + (stop.number if isinstance(stop, _Ended) else signal.SIGINT))
            except (TreekitError, OSError) as error:
                if ctx.params["debug"]:
                    traceback.print_exc()
                _complain("Error", "red", _message(error))
                ctx.exit(2)


class _Ended(KeyboardInterrupt):
    """A signal that ends the process, and which."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def _ended_gently() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does: temporary files and bars go with it."""

    def end(number: int, frame: object) -> None:
        del frame
        raise _Ended(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, TreekitError) and error.strerror:
        place = f"{os.fspath(error.filename)!r}: " if error.filename is not None else ""
        return f"{place}{error.strerror}"
    return str(error)


def _complain(what: str, colour: str, message: str) -> None:
    # Lines of a message stay lines; what stands in them cannot add any effect.
    text = "\n".join(shown(line) for line in message.splitlines())
    click.echo(f"{click.style(f'{what}:', fg=colour, bold=True)} {text}", err=True)


@contextmanager
def _warnings_on_one_line() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("always", TreekitWarning)
        others = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, TreekitWarning):
                _complain("Warning", "yellow", " ".join(str(message).split()))
            else:
                others(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
