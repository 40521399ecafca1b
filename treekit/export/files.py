"""Several files written at once: all of them, or none."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from treekit.errors import ExportError

__all__ = ["write_files"]


def write_files(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write `contents` (by file name, or path with ``/``) into `folder`.

    All are written beside their places first and moved there last, so that a
    full disk leaves earlier files as they were; the main file, the first, is moved
    after the others, which it may speak of.  Names are plain; see
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
    drafts = [place.with_name(f".treekit-{token}-{i}.tmp") for i, place in enumerate(places)]
    made: list[Path] = []
    try:
        for parent in dict.fromkeys([folder, *(place.parent for place in places)]):
            made += _make_folder(parent)
        for draft, content in zip(drafts, contents.values(), strict=True):
            _write_new(draft, content)
        for draft, place in reversed(list(zip(drafts, places, strict=True))):
            draft.replace(place)
        made.clear()
    except OSError as error:
        raise ExportError(f"cannot write {str(places[0])!r}: {error.strerror}") from error
    finally:
        for draft in drafts:
            if draft.parent.is_dir():
                draft.unlink(missing_ok=True)
        for empty in reversed(made):
            with contextlib.suppress(OSError):
                empty.rmdir()
    return places


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder and those above it; returns those that were not there, the highest first."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()][::-1]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _write_new(path: Path, content: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(content)
        stream.flush()
        # Without it a crash may leave the final name on an empty file.
        os.fsync(stream.fileno())
