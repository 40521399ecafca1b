"""Several files written at once: all of them, or none."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from treekit.errors import ExportError

__all__ = ["write_files"]


def write_files(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write `contents` (by file name) into `folder`.

    All are written beside their places first and moved there last, so that a
    full disk leaves earlier files as they were.  Names are plain; see
    `treekit.export.contents`.

    Raises
    ------
    ExportError
        If there is a folder in the place of a file, or the disk refuses.
    """
    places = [folder / name for name in contents]
    if folders := [place for place in places if place.is_dir()]:
        raise ExportError(f"cannot write {str(folders[0])!r}: it is a folder")
    token = secrets.token_hex(4)
    drafts = [folder / f".treekit-{token}-{i}.tmp" for i in range(len(places))]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for draft, content in zip(drafts, contents.values(), strict=True):
            _write_new(draft, content)
        for draft, place in zip(drafts, places, strict=True):
            draft.replace(place)
    except OSError as error:
        raise ExportError(f"cannot write {str(places[0])!r}: {error.strerror}") from error
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)
    return places


def _write_new(path: Path, content: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(content)
        stream.flush()
        # Without it a crash may leave the final name on an empty file.
        os.fsync(stream.fileno())
