"""Standard input and output as files, named ``-``."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
import zlib
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import click

from treekit.errors import DataError

STREAM = "-"

_USED, _WRITTEN = "treekit.stdin", "treekit.stdout"


class InputPath(click.ParamType):  # type: ignore[type-arg]
    """The path of a file to read; ``-`` is standard input, kept in a temporary file."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; standard input is read here, and its format found by its content."""
        if value != STREAM or ctx is None or ctx.resilient_parsing:
            return value
        if _USED in ctx.meta:
            raise click.BadParameter(
                "name a file: standard input can be read only once", ctx, param
            )
        ctx.meta[_USED] = True
        path = _make_folder(ctx) / "standard-input"
        with path.open("xb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        return str(path.rename(path.with_suffix(_find_suffix(path))))


INPUT = InputPath()


def _make_folder(ctx: click.Context) -> Path:
    """Make a temporary folder for the time of a command."""
    folder = Path(tempfile.mkdtemp(prefix="treekit-"))
    ctx.call_on_close(partial(shutil.rmtree, folder, ignore_errors=True))
    return folder


_MAGIC = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"PK\x03\x04": ".treekit"}
_HEAD_BYTES = 1 << 16


def _find_suffix(path: Path) -> str:
    """Return the suffix for the content of a file."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        raise DataError("standard input is empty; pipe a file into it")
    if head.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(path, "rb") as packed:
                return f"{_find_text_suffix(packed.read(_HEAD_BYTES))}.gz"
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"standard input cannot be read: {error}") from error
    suffixes = (suffix for magic, suffix in _MAGIC.items() if head.startswith(magic))
    return next(suffixes, None) or _find_text_suffix(head)


def _find_text_suffix(head: bytes) -> str:
    first, _, rest = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    if first.startswith(b"treekit rules"):
        return ".rules.txt"
    if first.startswith(b"{"):
        try:
            json.loads(first)
        except ValueError:
            # An object of several lines; a first row may also be longer than the head.
            return ".json" if rest else ".jsonl"
        return ".jsonl"
    return ".csv"


class OutputPath(click.ParamType):  # type: ignore[type-arg]
    """The path of a file to write; ``-`` is standard output, written only if the command succeeds.

    With ``-``, messages of the command go to standard error.

    Parameters
    ----------
    suffix : str
        Suffix of the temporary file for standard output, for commands that read it.
    refused : dict of str to str
        What to do instead for names that end in a suffix.
    """

    name = "path"

    def __init__(self, suffix: str = "", refused: dict[str, str] | None = None) -> None:
        self.suffix, self.refused = suffix, refused or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path to write."""
        if isinstance(value, Path) or ctx is None or ctx.resilient_parsing:
            return value
        if value != STREAM:
            path = Path(value)
            if remedy := self.refused.get(path.suffix.lower()):
                raise click.BadParameter(f"{value!r}: {remedy}", ctx, param)
            return path
        stream = sys.stdout.buffer
        if sys.stdout.isatty():
            remedy = "redirect it, or name a file"
            raise click.BadParameter(f"standard output is a terminal; {remedy}", ctx, param)
        path = _make_folder(ctx) / f"standard-output{self.suffix}"
        ctx.meta[_WRITTEN] = path
        ctx.call_on_close(partial(_copy_file, path, stream))
        ctx.with_resource(redirect_stdout(sys.stderr))
        return path


def _copy_file(path: Path, stream: BinaryIO) -> None:
    """Copy a file that was written as a whole; without one the command has failed."""
    if path.is_file():
        with path.open("rb") as file:
            shutil.copyfileobj(file, stream)
        stream.flush()


class TextOutputPath(click.ParamType):  # type: ignore[type-arg]
    """The path of a text file to write; ``-`` is None, the standard output."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or None."""
        del param, ctx
        return None if value == STREAM else Path(value)


def is_standard_output(path: Path) -> bool:
    """Check whether a path to write stands for standard output."""
    return bool(click.get_current_context().meta.get(_WRITTEN) == path)


def name_output(path: Path) -> str:
    """Return the name of a written file for messages."""
    return "standard output" if is_standard_output(path) else repr(str(path))


_NO_PICKLE = "a model file is no pickle; name it model.treekit"
_NO_ONNX = "a model file is not ONNX; write one, and run treekit export --to onnx"

MODEL_OUTPUT = OutputPath(
    ".treekit",
    {".pkl": _NO_PICKLE, ".pickle": _NO_PICKLE, ".joblib": _NO_PICKLE, ".onnx": _NO_ONNX},
)
"""The model file to write."""
