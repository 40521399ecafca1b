"""Read JSON lines: an object per row, whose keys are the column names."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any, NoReturn

from treekit.errors import DataError


def read_json_rows(path: Path, *, packed: bool) -> list[dict[str, Any]]:
    """Read the rows of a file: names and cells, each a number, text, true, false or null.

    Parameters
    ----------
    packed : bool
        The file is compressed by gzip.

    Raises
    ------
    DataError
        For a line that is not a JSON object of single cells; names the line and the key.
    """
    rows = []
    try:
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                text = line.removeprefix(b"\xef\xbb\xbf").strip()
                if text:
                    rows.append(_parse_row(text, f"line {number} of {path.name!r}"))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path.name!r} cannot be read: {error}") from error
    if not rows:
        raise DataError(f"{path.name!r} has no rows; write one JSON object per line")
    return rows


def _parse_row(text: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(text, object_pairs_hook=_join_pairs, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f'{where} is not an object; write {{"column": cell, ...}} per row')
    for name, cell in row.items():
        if isinstance(cell, dict | list):
            raise DataError(
                f"{where} holds {json.dumps(cell):.40} in column {name!r}; a cell must be a "
                "number, text, true, false or null"
            )
    return row


def _join_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is given twice")
    return row


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number; write null for a missing cell")
