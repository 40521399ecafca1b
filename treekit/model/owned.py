"""What owners, such as nodes, own of one long array, a range each.

Branches of levels may be many times what everything else of a tree takes, and their
positions twice that again: entries are worked on a stretch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["gathered", "ranges", "stretches"]

_MOST = 1 << 16
"""Entries that are worked on at once: their positions stay in the cache."""


def ranges(
    start: npt.NDArray[np.int64],
    owners: npt.NDArray[np.int64],
    without: npt.NDArray[np.bool_] | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """What the `owners` own of an array, where owner i owns ``start[i]:start[i + 1]``.

    Returns
    -------
    positions : (entries,) int64
        Of what they own, but not those of the mask `without`, in the old array.
    starts : (owners + 1,) int64
        Where the entries of each begin in the new one.
    """
    sizes = np.diff(start)[owners]
    if without is not None:
        sizes = np.where(without, 0, sizes)
    return _positions(start[owners], sizes), np.cumsum(np.append(0, sizes))


def gathered(
    array: npt.NDArray[Any], first: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    """(entries,) as `array`: ``array[first[i]:first[i] + sizes[i]]``, one after the other."""
    if len(sizes) and (first[1:] == first[:-1] + sizes[:-1]).all():  # one range, as mostly
        return array[first[0] : first[-1] + sizes[-1]].copy()
    found = np.empty(sizes.sum(), array.dtype)
    at = 0
    for part in stretches(sizes):
        own = _positions(first[part], sizes[part])
        found[at : at + len(own)] = array[own]
        at += len(own)
    return found


def stretches(sizes: npt.NDArray[np.int64]) -> Iterator[slice]:
    """Owners of `sizes` entries each, some at a time: of few entries in all, or just one."""
    ends = np.cumsum(sizes)
    first = before = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, before + _MOST, "right")), first + 1)
        yield slice(first, last)
        first, before = last, int(ends[last - 1])


def _positions(first: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    ends = np.cumsum(sizes)
    n_entries = int(ends[-1]) if len(ends) else 0
    return np.repeat(first - (ends - sizes), sizes) + np.arange(n_entries)
