"""Foreign files: what they begin with, and all of it, within a bound."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from treekit.errors import ModelFileAccessError, ModelFileError, ModelFileNotFoundError

__all__ = ["MAX_BYTES", "beginning", "read_whole"]

MAX_BYTES = 2**31
"""Largest file that is read.

Reading takes a multiple of the file's size, which each importer states; a file
can make no reader take more than that.
"""


def beginning(source: Any, suffixes: tuple[str, ...], n: int = 256) -> bytes:
    """The first `n` bytes of a regular file of one of these endings; nothing of all else.

    Never raises: `source` may be any object, and any path.
    """
    if not isinstance(source, Path) or source.suffix.lower() not in suffixes:
        return b""
    try:
        if not source.is_file():
            return b""
        with source.open("rb") as stream:
            return stream.read(n)
    except (OSError, ValueError):  # a path that no file can have
        return b""


def read_whole(path: Path) -> bytes:
    """All bytes of a file.

    Raises
    ------
    ModelFileError
        If it is larger than `MAX_BYTES`.
    ModelFileNotFoundError, ModelFileAccessError
        If it is not there, or cannot be read.
    """
    try:
        with path.open("rb") as stream:
            # Not all that may be there: a buffer of that size would be made first.
            size = os.fstat(stream.fileno()).st_size
            content = stream.read(min(size, MAX_BYTES) + 1)
    except FileNotFoundError as error:
        raise ModelFileNotFoundError(f"there is no file {str(path)!r}; check the path") from error
    except (OSError, ValueError) as error:
        raise ModelFileAccessError(f"cannot read {str(path)!r}: {error}") from error
    if len(content) > MAX_BYTES:
        raise ModelFileError(f"{str(path)!r} is larger than {MAX_BYTES} bytes, the bound")
    if len(content) > size:
        raise ModelFileAccessError(f"{str(path)!r} is no file, or grows while it is read")
    return content
