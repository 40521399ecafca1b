"""Sets of small whole numbers as bits, under words that say which words are not empty.

Level 0 has a bit for each number, each further level one for each word of the
level before, and all lie in one array one after the other.  The member after or
before a number is then found in a few steps, however far away it is.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.pointers import highest_bit, lowest_bit

__all__ = ["above", "below", "discard", "fill", "insert", "words_for"]


def words_for(size: int) -> int:
    """Words of a set of the numbers below `size`."""
    words = 0
    while True:
        size = (size + 63) // 64
        words += size
        if size <= 1:
            return words


@kernel
def fill(words, size, full):
    """Make `words` the set of all numbers below `size`, or of none; returns how many it has."""
    start, one, six, low = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)
    while True:
        members = size
        size = (size + low) >> six
        for w in range(size):
            words[start + w] = ~np.uint64(0) if full else np.uint64(0)
        if full and members & low:
            words[start + size - one] = (one << (members & low)) - one
        start += size
        if size <= one:
            return start


@kernel
def insert(words, size, number):
    """Add `number` to the set."""
    start, one, six, low = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)
    while True:
        size = (size + low) >> six
        w = start + (number >> six)
        bit = one << (number & low)
        others = words[w] & ~bit
        words[w] = others | bit
        if others or size <= one:
            return
        start += size
        number >>= six


@kernel
def discard(words, size, number):
    """Take `number` out of the set."""
    start, one, six, low = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)
    while True:
        size = (size + low) >> six
        w = start + (number >> six)
        left = words[w] & ~(one << (number & low))
        words[w] = left
        if left or size <= one:
            return
        start += size
        number >>= six


@inlined
def above(words, size, number):
    """The smallest member above `number`, which need not be one; `size` if there is none."""
    word = (words[number >> np.uint64(6)] >> (number & np.uint64(63))) >> np.uint64(1)
    if word:
        return number + np.uint64(1) + lowest_bit(word)
    return _climb(words, size, number, True)


@inlined
def below(words, size, number):
    """The largest member below `number`, which need not be one; `size` if there is none."""
    bit = np.uint64(1) << (number & np.uint64(63))
    word = words[number >> np.uint64(6)] & (bit - np.uint64(1))
    if word:
        return (number & ~np.uint64(63)) + highest_bit(word)
    return _climb(words, size, number, False)


@kernel
def _climb(words, size, number, up):
    """`above` or `below`, where the number's own word has no such member."""
    one, six, low = np.uint64(1), np.uint64(6), np.uint64(63)
    start, level, there = np.uint64(0), np.uint64(0), number >> six
    extent = (size + low) >> six
    while True:
        if extent <= one:
            return size
        start += extent
        extent = (extent + low) >> six
        level += one
        bit = there & low
        there >>= six
        word = words[start + there]
        word = (word >> bit) >> one if up else word & ((one << bit) - one)
        if word:
            there <<= six
            there += bit + one + lowest_bit(word) if up else highest_bit(word)
            break
    while level > np.uint64(0):  # down again: `there` is a word of the level below
        level -= one
        start, extent = np.uint64(0), (size + low) >> six
        for _ in range(level):
            start += extent
            extent = (extent + low) >> six
        word = words[start + there]
        there = (there << six) + (lowest_bit(word) if up else highest_bit(word))
    return there
