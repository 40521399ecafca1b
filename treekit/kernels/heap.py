"""A heap of waiting nodes, for best-first growth: the largest priority on top."""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined

__all__ = ["rounded", "sift_down", "sift_up"]


@inlined
def rounded(number):
    """To 31 bits (Veltkamp 1968), so that equal priorities are equal whatever their rounding."""
    shifted = number * 4194305.0
    return shifted - (shifted - number)


@inlined
def sift_up(heap, size, nodes):
    """Put the last of `size` entries of the heap in its place."""
    one = np.uint64(1)
    at = np.uint64(size) - one
    while at > np.uint64(0):
        above = (at - one) >> one
        if not _before(nodes, heap[at], heap[above]):
            break
        heap[at], heap[above] = heap[above], heap[at]
        at = above


@inlined
def sift_down(heap, size, nodes):
    """Put the first of `size` entries of the heap in its place."""
    one, end = np.uint64(1), np.uint64(size)
    at = np.uint64(0)
    while True:
        best = at
        first = (at << one) + one
        for child in range(first, min(first + np.uint64(2), end)):
            if _before(nodes, heap[child], heap[best]):
                best = child
        if best == at:
            return
        heap[at], heap[best] = heap[best], heap[at]
        at = best


@inlined
def _before(nodes, a, b):
    """Larger priority first; equal ones in the order in which they were made."""
    ours, theirs = nodes[np.uint64(a)].priority, nodes[np.uint64(b)].priority
    return ours > theirs or (ours == theirs and a < b)
