"""Tables and code matrices that are too large for memory, in unnamed temporary files.

The files are in the folder for temporary files (``TMPDIR``) but are not listed there.  The
system frees them when they are closed, however the process ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError

# ---------------------------------------------------------------- columns


class ColumnStore:
    """Columns of numbers and codes, appended in blocks of rows, read column by column.

    Parameters
    ----------
    on_disk : bool
        Keep the blocks in an unnamed temporary file, else in memory.  The file is read, not
        mapped, as mapped pages count as memory of the process.

    Attributes
    ----------
    n_rows : int
    """

    def __init__(self, *, on_disk: bool) -> None:
        self.n_rows = 0
        self._ends: list[int] = []
        self._blocks: list[list[tuple[int, np.dtype[Any]] | npt.NDArray[Any]]] = []
        self._lock = threading.Lock()
        self._file: Any = None
        if on_disk:
            # Unbuffered: blocks are large.  Windows has no unnamed files, but deletes this one
            # when its last handle is closed, also when the process is killed.
            self._file = tempfile.TemporaryFile(prefix="treekit-table-", buffering=0)  # noqa: SIM115
            weakref.finalize(self, self._file.close)

    def append(self, columns: Sequence[npt.NDArray[Any]]) -> None:
        """Append a block of rows, a column (rows,) of any type each.

        Raises
        ------
        DataError
            If the disk is full.
        """
        self._blocks.append(
            list(columns) if self._file is None else list(map(self._write, columns))
        )
        self.n_rows += len(columns[0])
        self._ends.append(self.n_rows)

    def _write(self, cells: npt.NDArray[Any]) -> tuple[int, np.dtype[Any]]:
        """Append an array to the file; return its offset and type."""
        rest = np.ascontiguousarray(cells).view(np.uint8).data
        try:
            start: int = self._file.seek(0, os.SEEK_END)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise DataError(
                f"cannot write temporary data of a large table to {tempfile.gettempdir()!r}: "
                f"{error.strerror or error}; free space there, or set TMPDIR (on Windows TEMP) to "
                "another folder"
            ) from error
        return start, cells.dtype

    def read(self, position: int, first: int, stop: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return the rows `first` to `stop` of a column, all blocks as one type."""
        cells, at = np.empty(stop - first, dtype), 0
        number = bisect_right(self._ends, first)
        while first < stop:
            begin = self._ends[number - 1] if number else 0
            end = min(self._ends[number], stop)
            own = cells[at : at + end - first]
            block = self._blocks[number][position]
            if not isinstance(block, tuple):
                own[:] = block[first - begin : end - begin]
            elif block[1] == cells.dtype:
                self._read_into(own, block[0], first - begin)
            else:
                stored = np.empty(len(own), block[1])
                self._read_into(stored, block[0], first - begin)
                own[:] = stored
            at += len(own)
            first, number = end, number + 1
        return cells

    def _read_into(self, cells: npt.NDArray[Any], place: int, first: int) -> None:
        """Fill an array by the rows from `first` on of an array in the file."""
        rest = cells.view(np.uint8).data
        with self._lock:
            self._file.seek(place + first * cells.dtype.itemsize)
            while rest:
                n_bytes = self._file.readinto(rest)
                if not n_bytes:
                    raise DataError("the temporary file of a table was truncated; run again")
                rest = rest[n_bytes:]


# ---------------------------------------------------------------- code matrix

SPARE_MEMORY_SHARE = 0.1
"""Share of the free memory that may be used by a copy that only saves time."""

MATRIX_MEMORY_SHARE = 0.5
"""Share of the free memory above which a matrix is mapped from a temporary file."""


def allocate_code_matrix(shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Allocate an uninitialised matrix of codes.

    If it is larger than `MATRIX_MEMORY_SHARE` of the free memory, it is a memory map of a
    temporary file (in ``TMPDIR``), which is deleted with the array: the operating system moves
    pages that are not in use to the file.
    """
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    if _fits(size, MATRIX_MEMORY_SHARE):
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="treekit-codes-") as file:
        return np.memmap(file, dtype, "w+", shape=shape).view(np.ndarray)


def may_use(n_bytes: int) -> bool:
    """Check whether bytes are at most `SPARE_MEMORY_SHARE` of the free memory."""
    return _fits(n_bytes, SPARE_MEMORY_SHARE)


_SMALL_BYTES = 1 << 22
"""Size up to which memory is used without asking how much is free."""


def _fits(n_bytes: int, share: float) -> bool:
    return n_bytes <= _SMALL_BYTES or n_bytes <= share * _get_free_memory()


def copy_row_major(codes: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Copy a code matrix (features, rows) to row-major order: (rows * features,).

    Return None if that would use more than `SPARE_MEMORY_SHARE` of the free memory: kernels
    can use the columns instead, only more slowly.
    """
    if not may_use(codes.nbytes):
        return None
    lines = np.empty(codes.shape[::-1], codes.dtype)
    for first in range(0, len(lines), _BLOCK_ROWS):  # blocks of rows that fit into the cache
        lines[first : first + _BLOCK_ROWS] = codes[:, first : first + _BLOCK_ROWS].T
    return lines.reshape(-1)


_BLOCK_ROWS = 2048


def _get_free_memory() -> float:
    """Return the free memory in bytes, infinite if unknown."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * float(line.split()[1])
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, AttributeError):
        return float("inf")
