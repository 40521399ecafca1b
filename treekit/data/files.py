"""Tables in files: what a file is by its ending, and who reads it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from treekit.data.table import Table
from treekit.errors import DataError

__all__ = ["read_file"]

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_ARROW = {".parquet": "parquet", ".feather": "feather", ".arrow": "feather", ".ipc": "feather"}


def read_file(
    source: str | os.PathLike[str],
    marks: frozenset[str],
    progress: Callable[[int, int], None] | None = None,
) -> Table:
    """The table in a file, by its ending.

    ``.csv`` (commas) and ``.tsv`` or ``.tab`` (tabs), also with ``.gz``:
    UTF-8 with or without a byte order mark, a header line, quotes as in
    RFC 4180.  Blank lines are skipped (in a file of one column they are a
    missing cell).  ``.parquet``, ``.feather``, ``.arrow``, ``.ipc``: pyarrow.
    The columns of a large file are stored in a temporary file without a name
    (in ``TMPDIR``, as long as the table lives) and read from there one at a time.

    Parameters
    ----------
    marks : frozenset of str
        Texts that mean missing.
    progress : callable, optional
        ``progress(done, total)`` while a large file is read.
    """
    path = Path(source)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    ending = (suffixes[:-1] if packed else suffixes)[-1:] or [""]
    if ending[0] not in _SEPARATORS and (packed or ending[0] not in _ARROW):
        known = ", ".join([*_SEPARATORS, ".csv.gz", *_ARROW])
        raise DataError(f"cannot tell what {path.name!r} is by its ending; known: {known}")
    if not path.is_file():
        raise DataError(f"there is no file {os.fspath(source)!r}; check the path")
    if ending[0] in _ARROW:
        from treekit.data.arrow_files import read_arrow

        return read_arrow(path, _ARROW[ending[0]], marks, progress)
    from treekit.data.csv_files import read_csv

    return read_csv(path, _SEPARATORS[ending[0]], packed, marks, progress)
