"""Sets as bits: the members of many sets in 64-bit words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["packed"]


def packed(members: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """(sets, words) uint64, from (sets, things) bool: bit ``k & 63`` of word ``k >> 6`` is k's."""
    some = np.packbits(members, axis=1, bitorder="little")
    padded = np.zeros((len(some), -(-some.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : some.shape[1]] = some
    return padded.view("<u8").astype(np.uint64, copy=False)
