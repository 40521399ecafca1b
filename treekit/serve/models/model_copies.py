"""Copies of the files of served models, so that a new worker serves what its server serves.

A file may be damaged, or its folder detached, when a worker starts; then the others still serve
the previous version, which a new worker reads from here.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

_logger = logging.getLogger("treekit.serve.models")


class ModelCopy(msgspec.Struct, frozen=True):
    """Content of a model file, its place and the name of its model, as in file names."""

    name: bytes
    version: str | None
    path: bytes
    is_explicit: bool
    data: bytes


class ModelCopies:
    """Folder of copies, shared by the workers of a server.

    Parameters
    ----------
    folder : Path
        Created if it does not exist, for this user only.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def save(self, copy: ModelCopy) -> None:
        """Replace the copy of a model; without space, there is none, and a warning."""
        place = self._locate(copy.name, copy.version)
        draft = self._folder / f".{os.getpid()}"
        try:
            data = msgspec.msgpack.encode(copy)
            if place.is_file() and place.read_bytes() == data:  # of another worker
                return
            draft.write_bytes(data)
            draft.replace(place)
        except (OSError, ValueError) as error:  # ValueError: beyond 4 GB
            for path in (draft, place):  # an older version is none to serve
                with contextlib.suppress(OSError):
                    path.unlink()
            _logger.warning(
                "cannot keep a copy of model %r in %s: %s; a new worker can only serve it if its "
                "file is valid",
                os.fsdecode(copy.name),
                self._folder,
                error,
            )

    def remove(self, name: str, version: str | None) -> None:
        """Remove the copy of a model."""
        self._locate(os.fsencode(name), version).unlink(missing_ok=True)

    def read_all(self) -> Iterator[ModelCopy]:
        """Yield all copies; drafts of workers that were killed are ignored."""
        for path in sorted(self._folder.glob("[!.]*")):
            with contextlib.suppress(OSError, msgspec.DecodeError):  # removed by another worker
                yield msgspec.msgpack.decode(path.read_bytes(), type=ModelCopy)

    def _locate(self, name: bytes, version: str | None) -> Path:
        return self._folder / hashlib.sha256(b"%b/%b" % (str(version).encode(), name)).hexdigest()
