"""Terminal output, warnings and exit codes of all commands."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treekit.errors import TreekitError, TreekitWarning

if TYPE_CHECKING:
    from treekit.verify import Report


# ---------------------------------------------------------------- output


def escape_text(text: object) -> str:
    """Escape characters that are not printable, for safe output on a terminal.

    Names, labels and messages may contain characters that move the cursor or change the
    direction of text.
    """
    string = str(text)
    if string.isprintable():
        return string
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in string)


def print_heading(text: str) -> None:
    """Print a heading."""
    click.secho(text, bold=True)


def print_facts(heading: str, facts: Iterable[tuple[str, object]]) -> None:
    """Print a heading, then names and values, one pair per line, with aligned values."""
    print_heading(heading)
    rows = [(escape_text(name), escape_text(value)) for name, value in facts]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        click.echo(f"  {click.style(f'{name:<{width}}', dim=True)}  {value}")


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: wrapped on a terminal, else one line per row, for grep and awk."""
    texts = [[escape_text(cell) for cell in row] for row in rows]
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
    for row in rows:  # as Text, since a name such as [red] must not be parsed as markup
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    Console(highlight=False).print(table)


class Commands(click.Group):
    """Command group that prints `TreekitError` and `OSError` as messages and exits with code 2.

    Parameters
    ----------
    sections : dict of str to list of click.Command
        The commands under each heading of the help, in the order of use.
    """

    def __init__(self, sections: dict[str, list[click.Command]], **options: Any) -> None:
        super().__init__(commands=list(itertools.chain(*sections.values())), **options)
        self.sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of use, not alphabetically."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings."""
        del ctx
        width = max(map(len, self.commands))
        for heading, commands in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(f"{one.name:<{width}}", one.get_short_help_str(100)) for one in commands]
                )

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with _print_warnings_on_one_line(), _handle_signals():
            try:
                return super().invoke(ctx)
            except BrokenPipeError:  # the reader closed the pipe; click exits silently
                raise
            except KeyboardInterrupt as stop:
                click.secho("\nstopped", err=True)
                ctx.exit(128 + (stop.args[0] if stop.args else signal.SIGINT))
            except (TreekitError, OSError) as error:
                if ctx.params["debug"]:
                    traceback.print_exc()
                _print_message("Error", "red", _format_error(error))
                ctx.exit(2)
            except ModuleNotFoundError as error:
                if str(error.name).partition(".")[0] not in _LEFT_OUT_OF_RUNTIME:
                    raise
                _print_message("Error", "red", f"{error.name} is not installed; {_WHOLE}")
                ctx.exit(2)


_WHOLE = (
    "treekit-runtime can only score, explain and serve models; for the rest: "
    "pip uninstall treekit-runtime && pip install treekit-ml"
)

_LEFT_OUT_OF_RUNTIME = frozenset(
    {"joblib", "narwhals", "numba", "onnx", "onnxruntime", "pyarrow", "skl2onnx", "sklearn"}
)
"""Libraries that treekit-ml needs and treekit-runtime does not (``tools/runtime``)."""


@contextmanager
def _handle_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C, SIGTERM and SIGHUP, to remove temporary files and bars."""

    def raise_interrupt(number: int, frame: object) -> None:
        del frame
        raise KeyboardInterrupt(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, raise_interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _format_error(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, TreekitError):
        place, reason = error.filename, error.strerror
        if isinstance(reason, str) and reason:  # libraries derive classes with other arguments
            place = os.fspath(place) if isinstance(place, os.PathLike) else place
            return reason if place is None else f"{place!r}: {reason}"
    return str(error) or type(error).__name__


def _print_message(what: str, colour: str, message: str) -> None:
    # Keep the lines of a message, and escape the text of each.
    text = "\n".join(escape_text(line) for line in message.splitlines())
    click.echo(f"{click.style(f'{what}:', fg=colour, bold=True)} {text}", err=True)


@contextmanager
def _print_warnings_on_one_line() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("always", TreekitWarning)
        others = warnings.showwarning

        def show_warning(
            message: Warning | str, category: type[Warning], *place: Any, **options: Any
        ) -> None:
            if issubclass(category, TreekitWarning):
                _print_message("Warning", "yellow", " ".join(str(message).split()))
            else:
                others(message, category, *place, **options)

        warnings.showwarning = show_warning
        yield


# ---------------------------------------------------------------- files


def check_output_path(path: Path, *inputs: str | Path | None) -> None:
    """Check an output path before any work is done.

    Raises
    ------
    click.UsageError
        If it is a folder, a device or a pipe, or the same file as one of `inputs`, possibly
        through a link.  Inputs that are None are ignored.
    """
    if any(_is_same_file(path, Path(given)) for given in inputs if given):
        raise click.UsageError(
            f"the output {str(path)!r} is an input of this command; choose another name"
        )
    if path.exists() and not path.is_file():
        raise click.UsageError(f"{str(path)!r} is not a regular file; choose another output")
    above = next((parent for parent in path.parents if os.path.lexists(parent)), None)
    if above is not None and above.is_file():
        raise click.UsageError(f"{str(path)!r} cannot be written: {str(above)!r} is not a folder")


def _is_same_file(output: Path, given: Path) -> bool:
    """Check whether two paths denote the same file, which need not exist."""
    try:
        return output.samefile(given)
    except OSError:
        return os.path.realpath(output) == os.path.realpath(given)


def write_text(pieces: Iterable[str], path: Path | None) -> None:
    """Write UTF-8 text atomically: readers see the old file or the complete new one.

    Parameters
    ----------
    pieces : iterable of str
        Parts of the text, written one by one to save memory.
    path : Path, optional
        None: the standard output.  Missing folders are created.

    Raises
    ------
    OSError
        If the file cannot be written; an existing file is then unchanged.
    """
    if path is None:
        _write_to_stdout(pieces)
        return
    from treekit.model.model_file import replace_atomically

    check_output_path(path)
    with replace_atomically(path) as stream:
        for piece in pieces:
            stream.write(piece.encode())


def _write_to_stdout(pieces: Iterable[str]) -> None:
    if sys.stdout.isatty():  # escape text that could act on the terminal
        for piece in pieces:
            lines = piece.replace("\r\n", "\n").split("\n")  # CSV has \r\n
            click.echo("\n".join(map(escape_text, lines)), nl=False)
        return
    stream = sys.stdout.buffer
    for piece in pieces:
        stream.write(piece.encode())
    stream.flush()


# ---------------------------------------------------------------- verification report


def print_report(report: Report) -> None:
    """Print a verification report, with its verdict in green or red."""
    verdict, *rest = str(report).split("\n")
    click.secho(escape_text(verdict), fg="green" if report.equal else "red", bold=True)
    for line in rest:
        click.echo(escape_text(line))
