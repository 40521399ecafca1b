"""One temporary file without a name: what is too large for memory, piece by piece.

It lies in the folder for temporary files (``TMPDIR``) but is not listed there.  The
system frees it when nothing holds it open any more, however the process ends.
"""

from __future__ import annotations

import tempfile
import threading
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError

__all__ = ["Spill"]


class Spill:
    """A file of arrays, written one behind the other and read in any order, by any thread."""

    def __init__(self) -> None:
        # Unbuffered: pieces are large.  Windows has no file without a name, but takes this
        # one away when its last handle is closed, if need be by the system.
        self._file = tempfile.TemporaryFile(prefix="treekit-table-", buffering=0)  # noqa: SIM115
        self._lock = threading.Lock()
        self._size = 0
        weakref.finalize(self, self._file.close)

    def write(self, cells: npt.NDArray[Any], place: int | None = None) -> int:
        """Write the bytes of an array (n,) at a place, by default behind all others; the place.

        Raises
        ------
        DataError
            If there is no room for them.
        """
        rest = np.ascontiguousarray(cells).view(np.uint8).data
        with self._lock:
            start = self._size if place is None else place
            try:
                self._file.seek(start)
                while rest:
                    rest = rest[self._file.write(rest) :]
            except OSError as error:
                raise DataError(
                    f"a table that is too large for memory cannot be stored in the folder for "
                    f"temporary files, {tempfile.gettempdir()!r}: {error.strerror or error}; "
                    "make room there, or set TMPDIR to another folder"
                ) from error
            self._size = max(self._size, self._file.tell())
        return start

    def read(self, cells: npt.NDArray[Any], place: int) -> None:
        """Fill a contiguous array (n,) with the bytes from a place on."""
        rest = cells.view(np.uint8).data
        with self._lock:
            self._file.seek(place)
            while rest:
                n_bytes = self._file.readinto(rest)
                if not n_bytes:
                    raise DataError("the temporary file of a large table ends early; start again")
                rest = rest[n_bytes:]
