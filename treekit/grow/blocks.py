"""Criteria of one target, applied to several: to each block of statistics, and averaged.

Statistics of several targets are ``[w | block 1 | block 2 ...]``: the weight of
each class of a target, or one ``w * y``.  A criterion sees those of one target
at a time, just as if it were the only one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from treekit.kernels.function_pointers import read_only, stack_cells, stack_matrix

__all__ = ["Blocks", "block_key", "mean_impurity", "mean_score", "plain_mean"]

Numbers = npt.NDArray[np.float64]

MOST_ON_STACK = 64
"""Cells of a block up to which its statistics are on the stack (see `treekit.grow.criterion`)."""


@dataclass(frozen=True)
class Blocks:
    """How the statistics of several targets lie behind one another.

    Attributes
    ----------
    ends : tuple of int
        Where the first block starts, and where each one ends, the weight not
        counted: (0, 3, 5) are targets of 3 and of 2 classes.
    classes : bool
        Blocks of class weights; else each is one ``w * y``.
    """

    ends: tuple[int, ...]
    classes: bool

    @property
    def count(self) -> int:
        """Number of targets."""
        return len(self.ends) - 1

    @property
    def cells(self) -> int:
        """S, cells of a node's statistics: the weight and all blocks."""
        return 1 + self.ends[-1]

    @property
    def starts(self) -> tuple[int, ...]:
        """First cell of each block in a node's statistics."""
        return tuple(1 + end for end in self.ends[:-1])

    @property
    def groups(self) -> dict[int, tuple[int, ...]]:
        """Sizes of blocks, and the first cell of each block that has it; -1 for one of another.

        Code is compiled once a size, not once a target.
        """
        sizes = [b - a for a, b in pairwise(self.ends)]
        return {
            size: tuple(
                start if own == size else -1 for own, start in zip(sizes, self.starts, strict=True)
            )
            for size in sorted(set(sizes))
        }

    def own(self, stats: Numbers, k: int) -> Numbers:
        """Statistics (nodes, S) of target k as its criterion sees them: (nodes, cells)."""
        first, last = self.starts[k], 1 + self.ends[k + 1]
        columns = range(first, last) if self.classes else (0, first)
        return np.ascontiguousarray(stats[:, columns])


def plain_mean(impurity: Callable[[Numbers], float], blocks: Blocks) -> Callable[[Numbers], float]:
    """`mean_impurity` as plain Python, for a few nodes."""

    def mean(stats: Numbers) -> float:
        own = (blocks.own(stats[None, :], k)[0] for k in range(blocks.count))
        return sum(float(impurity(each)) for each in own) / blocks.count

    return mean


def mean_impurity(impurity: Any, blocks: Blocks) -> Any:
    """``impurity(stats)`` of several targets: the mean over them."""
    total: Any = _no_impurity
    for size, starts in blocks.groups.items():
        firsts = tuple(first for first in starts if first >= 0)
        total = _and_impurities(total, _block_impurity(impurity, size, blocks.classes), firsts)
    count = float(blocks.count)

    @nb.njit(error_model="numpy")
    def mean(stats):  # type: ignore[no-untyped-def]
        return total(stats) / count

    return mean


def mean_score(score: Any, blocks: Blocks) -> Any:
    """``score(parent, children)`` of several targets: the mean over them."""
    total: Any = _no_score
    for size, starts in blocks.groups.items():
        firsts = tuple(first for first in starts if first >= 0)
        total = _and_scores(total, _block_score(score, size, blocks.classes), firsts)
    count = float(blocks.count)

    @nb.njit(error_model="numpy")
    def mean(parent, children):  # type: ignore[no-untyped-def]
        return total(parent, children) / count

    return mean


def block_key(order: Any, blocks: Blocks) -> Any:
    """Sort keys of categories by a criterion's own `order`: by each target in its turn."""
    key: Any = _no_key
    for size, starts in blocks.groups.items():
        key = _or_key(key, _block_impurity(order, size, blocks.classes), starts)
    return key


@nb.njit
def _no_impurity(stats):  # type: ignore[no-untyped-def]
    return 0.0


@nb.njit
def _no_score(parent, children):  # type: ignore[no-untyped-def]
    return 0.0


@nb.njit
def _no_key(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
    pass


def _and_impurities(before: Any, block: Any, firsts: tuple[int, ...]) -> Any:
    @nb.njit(error_model="numpy")
    def total(stats):  # type: ignore[no-untyped-def]
        value = before(stats)
        for first in firsts:
            value += block(stats, np.uint64(first))
        return value

    return total


def _and_scores(before: Any, block: Any, firsts: tuple[int, ...]) -> Any:
    @nb.njit(error_model="numpy")
    def total(parent, children):  # type: ignore[no-untyped-def]
        value = before(parent, children)
        for first in firsts:
            value += block(parent, children, np.uint64(first))
        return value

    return total


def _or_key(otherwise: Any, block: Any, starts: tuple[int, ...]) -> Any:
    @nb.njit(error_model="numpy")
    def key(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
        first = starts[attempt]
        if first >= 0:
            for i in range(np.uint64(count)):
                keys[i] = block(rows[i], np.uint64(first))
        else:
            otherwise(rows, count, attempt, keys)

    return key


@nb.njit
def _heap_matrix(rows, columns):  # type: ignore[no-untyped-def]
    return np.empty((rows, columns))


@nb.njit
def _heap_cells(cells):  # type: ignore[no-untyped-def]
    return np.empty(cells)


def _block_impurity(impurity: Any, size: int, classes: bool) -> Any:
    """``(stats, first)``: the impurity of the block of `size` cells from `first` on."""
    cells, shift = (size, 0) if classes else (2, 1)  # a number's own cell is its second one
    new_cells = stack_cells if cells <= MOST_ON_STACK else _heap_cells

    @nb.njit(error_model="numpy")
    def block(stats, first):  # type: ignore[no-untyped-def]
        own = new_cells(cells)
        own[np.uint64(0)] = stats[np.uint64(0)]  # a number's weight
        for k in range(np.uint64(shift), np.uint64(cells)):
            own[k] = stats[first + k - np.uint64(shift)]
        return 1.0 * impurity(read_only(own))

    return block


def _block_score(score: Any, size: int, classes: bool) -> Any:
    """``(parent, children, first)``: the score of the block of `size` cells from `first` on."""
    cells, shift = (size, 0) if classes else (2, 1)
    small = cells <= MOST_ON_STACK
    new_cells = stack_cells if small else _heap_cells
    new_matrix = stack_matrix if small else _heap_matrix

    @nb.njit(error_model="numpy")
    def fill(parent, children, first, own, sides):  # type: ignore[no-untyped-def]
        zero = np.uint64(0)
        branches = np.uint64(children.shape[0])
        own[zero] = parent[zero]
        for b in range(branches):
            sides[b, zero] = children[b, zero]
        for k in range(np.uint64(shift), np.uint64(cells)):
            at = first + k - np.uint64(shift)
            own[k] = parent[at]
            for b in range(branches):
                sides[b, k] = children[b, at]

    @nb.njit(error_model="numpy")
    def block(parent, children, first):  # type: ignore[no-untyped-def]
        own = new_cells(cells)
        if children.shape[0] == 2:
            pair = new_matrix(2, cells)
            fill(parent, children, first, own, pair)
            return 1.0 * score(read_only(own), read_only(pair))
        sides = _heap_matrix(children.shape[0], cells)
        fill(parent, children, first, own, sides)
        return 1.0 * score(read_only(own), read_only(sides))

    return block
