"""Room for the matrix of codes: in memory, or in a file that the system pages."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["lines_of", "matrix_room"]

SPARE = 0.1
"""Share of the free memory that a copy may take which saves time only."""

SHARE = 0.5
"""Share of the memory that is free above which a matrix lies in a temporary file."""


def matrix_room(shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array to be filled.

    One that is larger than `SHARE` of the free memory is mapped from a file in
    the folder for temporary files (``TMPDIR``), which goes with the array: the
    system writes out what is not in use.
    """
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    if size <= SHARE * _free_memory():
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="treekit-codes-") as file:
        return np.memmap(file, dtype, "w+", shape=shape).view(np.ndarray)


def lines_of(codes: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """A matrix of codes (features, rows) once more, row by row: (rows * features,).

    None where that would take more than `SPARE` of the free memory: what is read
    along it may be read down the columns, only more slowly.
    """
    if codes.nbytes > SPARE * _free_memory():
        return None
    lines = np.empty(codes.shape[::-1], codes.dtype)
    for first in range(0, len(lines), _BLOCK):  # of rows that the cache holds
        lines[first : first + _BLOCK] = codes[:, first : first + _BLOCK].T
    return lines.reshape(-1)


_BLOCK = 2048


def _free_memory() -> float:
    """Bytes that the system could hand out; infinite where it does not say."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * float(line.split()[1])
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, AttributeError):
        return float("inf")
