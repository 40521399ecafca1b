"""Sets of category codes as bit masks in one table of 32-bit words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError

__all__ = ["set_words"]


def set_words(
    starts: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Pack sets into one table.

    Parameters
    ----------
    starts : (sets + 1,) int64
        Set s owns ``codes[starts[s]:starts[s + 1]]``, ascending, at least one.
    codes : (codes,) int64

    Returns
    -------
    words : (words,) uint32
        A set is the number of its first word, its count of words, and the
        words, 32 codes each; words before and after hold no code.
    offsets : (sets,) int64
        Where each set starts in `words`.
    """
    if len(starts) < 2:
        return np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.int64)
    first, last = codes[starts[:-1]] >> 5, codes[starts[1:] - 1] >> 5
    sizes = last - first + 3
    offsets = np.cumsum(sizes) - sizes
    if sizes.sum() >= 2**31:
        raise ExportError("the category sets of the model need more than 2**31 words of C")
    words = np.zeros(sizes.sum(), dtype=np.uint32)
    words[offsets], words[offsets + 1] = first, sizes - 2
    owner = np.repeat(np.arange(len(sizes)), np.diff(starts))
    bits = np.left_shift(np.uint32(1), (codes & 31).astype(np.uint32))
    np.bitwise_or.at(words, offsets[owner] + 2 + (codes >> 5) - first[owner], bits)
    return words, offsets
