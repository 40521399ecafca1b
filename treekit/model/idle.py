"""Starts of nodes that own nothing: of trees without levels, terms or surrogates."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["is_idle", "no_entries"]

_FEWEST = 2**12
_shared: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]


def no_entries(n_owners: int) -> npt.NDArray[np.int64]:
    """(owners + 1,) int64, read-only: the starts of owners that own nothing.

    Views of the same zeros, which all trees share: three such arrays a tree would be
    a third of a forest's memory.
    """
    zeros = _shared[0]  # another thread may replace it
    if len(zeros) <= n_owners:
        zeros = np.zeros(max(2 * n_owners, _FEWEST), np.int64)
        zeros.flags.writeable = False
        _shared[0] = zeros
    return zeros[: n_owners + 1]


def is_idle(start: npt.NDArray[Any], n_owners: int) -> bool:
    """Whether starts say that so many owners own nothing, and are nothing else."""
    return start.shape == (n_owners + 1,) and start.dtype.kind in "iu" and not start.any()
