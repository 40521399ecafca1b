"""Writing results: to a file, whole or not at all, or to the standard output."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from treekit.cli.terminal import shown
from treekit.errors import TreekitError

__all__ = ["check_place", "write_text"]


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
