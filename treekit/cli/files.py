"""Writing results: to a file, whole or not at all, or to the standard output."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from treekit.cli.terminal import shown

__all__ = ["check_place", "write_text"]


def check_place(path: Path) -> None:
    """Refuse a place for a file that is something else, before any work is done.

    Raises
    ------
    click.UsageError
        For a folder, a device or a pipe.
    """
    if path.exists() and not path.is_file():
        raise click.UsageError(f"{str(path)!r} is not a regular file; choose another output")


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
    place = Path(os.path.realpath(path))
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
            click.echo("\n".join(shown(line) for line in piece.split("\n")), nl=False)
        return
    stream = sys.stdout.buffer
    for piece in pieces:
        stream.write(piece.encode())
    stream.flush()
