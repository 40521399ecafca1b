"""What every command shares: safe text, colours, warnings on one line, exit codes."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from treekit.errors import TreekitError, TreekitWarning

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from treekit.verify import Report

__all__ = [
    "Commands",
    "check_place",
    "colour_default",
    "fold_progress",
    "heading",
    "print_facts",
    "print_report",
    "print_table",
    "reading_progress",
    "shown",
    "tree_progress",
    "write_text",
]


# ---------------------------------------------------------------- terminal


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


# ---------------------------------------------------------------- files
# Writing results: to a file, whole or not at all, or to the standard output.


def check_place(path: Path, *inputs: str | Path) -> None:
    """Refuse a place for a file that is something else, before any work is done.

    Raises
    ------
    click.UsageError
        For a folder, a device or a pipe, and for one of the command's `inputs`,
        also by another name.
    """
    if any(_is_same(path, Path(given)) for given in inputs):
        raise click.UsageError(
            f"the output {str(path)!r} is an input of this command; choose another name"
        )
    if path.exists() and not path.is_file():
        raise click.UsageError(f"{str(path)!r} is not a regular file; choose another output")
    above = next((parent for parent in path.parents if os.path.lexists(parent)), None)
    if above is not None and above.is_file():
        raise click.UsageError(f"{str(path)!r} cannot be written: {str(above)!r} is not a folder")


def _is_same(output: Path, given: Path) -> bool:
    """Whether two paths lead to one file; one that is not there yet has its place."""
    try:
        return output.samefile(given)
    except OSError:
        return os.path.realpath(output) == os.path.realpath(given)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let errors of files name the one that was asked for, not a draft beside it."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TreekitError) or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(pieces: Iterable[str], path: Path | None) -> None:
    """Write UTF-8 text; a reader of `path` sees the old file or the new one, whole.

    Parameters
    ----------
    pieces : iterable of str
        Consumed one by one: the whole is never held.
    path : Path, optional
        None: the standard output.  Missing folders are made.

    Raises
    ------
    OSError
        If the file cannot be written; an existing one is then as it was.
    """
    if path is None:
        _to_stdout(pieces)
        return
    check_place(path)
    with _named(path):
        _replace(pieces, Path(os.path.realpath(path)))


def _replace(pieces: Iterable[str], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f".{place.name}.{secrets.token_hex(8)}.tmp")
    try:
        with draft.open("xb") as stream:
            for piece in pieces:
                stream.write(piece.encode())
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


def _to_stdout(pieces: Iterable[str]) -> None:
    if sys.stdout.isatty():  # a person reads: labels must not act on the terminal
        for piece in pieces:
            lines = piece.replace("\r\n", "\n").split("\n")  # CSV ends its lines so
            click.echo("\n".join(map(shown, lines)), nl=False)
        return
    stream = sys.stdout.buffer
    for piece in pieces:
        stream.write(piece.encode())
    stream.flush()


# ---------------------------------------------------------------- waiting
# Progress of reading and training, on stderr.


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


# ---------------------------------------------------------------- report
# A verification's report on the terminal.


def print_report(report: Report) -> None:
    """Print the report, its verdict green or red."""
    verdict, *rest = str(report).split("\n")
    click.secho(shown(verdict), fg="green" if report.equal else "red", bold=True)
    for line in rest:
        click.echo(shown(line))
