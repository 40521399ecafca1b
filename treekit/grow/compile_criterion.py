"""Compile a criterion's functions into the pointers that the kernels call.

The user writes a scalar function of one node or one split.  It is wrapped in the loop
over candidate cuts, so that one pointer call evaluates a complete column of a node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt
from numba import types

from treekit.contracts import CriterionFunctions, Ranks
from treekit.errors import PluginError
from treekit.grow.compile_plugin import Origin, compiled
from treekit.grow.function_identity import fingerprint
from treekit.kernels.axis_splits import first_component
from treekit.kernels.compile import Linked
from treekit.kernels.function_pointers import (
    CELLS,
    MATRIX,
    Pointer,
    read_only,
    stack_cells,
    stack_matrix,
)  # fmt: skip
from treekit.kernels.monotonic import CUTS, HIGHEST, LOWEST, SIGN, fits
from treekit.kernels.records import finite

__all__ = [
    "Blocks",
    "CompiledCriterion",
    "always",
    "block_key",
    "cell_key",
    "compile_before",
    "compile_criterion",
    "mean_impurity",
    "mean_key",
    "mean_score",
    "no_choice",
    "no_key",
    "no_penalty",
    "no_value",
    "plain_mean",
    "quantile_key",
    "share_key",
    "standing",
]


# ---------------------------------------------------------------- criterion

FROZEN_CELLS = CELLS.copy(readonly=True)
FROZEN_MATRIX = MATRIX.copy(readonly=True)
_F8 = types.float64
SCORE = _F8(FROZEN_CELLS, FROZEN_MATRIX)
CELL_VALUE = _F8(CELLS)
MANY = _F8(CELLS, MATRIX, types.int64)
KEY = types.void(MATRIX, types.int64, types.int64, CELLS)
CHOOSE = types.int64(CELLS, CELLS, CELLS)
PENALTY = _F8(types.int64, _F8)
SCAN = types.int64(MATRIX, types.int64, CELLS, CELLS, _F8, _F8, CELLS)
TOLERANCE = 1e-9
COMPONENTS = 2
"""Category orders tried besides one by each class's share; see
`treekit.grow.compile_criterion.share_key`.
"""

MOST_ON_STACK = 64
"""Largest number of cells kept on the stack: compile time is quadratic in them."""


@dataclass(frozen=True)
class CompiledCriterion:
    """A compiled criterion: pointers and flags in the order of the kernels' arguments."""

    scan: Pointer
    many: Pointer
    key: Pointer
    choose: Pointer
    penalty: Pointer
    n_keys: int
    use_choose: bool
    use_penalty: bool
    score: Pointer
    impurity: Pointer
    priority: Pointer
    use_priority: bool
    origin: Origin
    functions: CriterionFunctions


def compile_criterion(
    functions: CriterionFunctions,
    cells: int,
    dense: bool,
    origin: Origin,
    *,
    known_only: bool = False,
    blocks: Blocks | None = None,
    bounded: bool = False,
    nominal: bool = True,
) -> CompiledCriterion:
    """Compile a criterion for node statistics of `cells` cells.

    Parameters
    ----------
    functions : CriterionFunctions
    cells : int
        S, the length of a node's statistics.
    dense : bool
        Whether cell 0 is the weight (regression); otherwise the weight is the sum of cells.
    origin : Origin
        Named in errors and warnings.
    known_only : bool
        Score splits by the rows whose value is known; rows with a missing value may be
        in no branch.  See `CriterionFunctions`.
    blocks : Blocks, optional
        Layout of the (`dense`) statistics of several targets.  The criterion is called
        with the statistics of one target at a time, and its results are averaged.
    bounded : bool
        Respect monotonic constraints; see `treekit.kernels.monotonic`.
    nominal : bool
        Whether there are nominal columns; without them additive statistics need no `key`.
    """
    if functions.score is None and functions.impurity is None:
        raise PluginError(f"{origin} gives neither impurity nor score")
    if functions.choose is not None and (functions.score is None or functions.impurity is None):
        raise PluginError(f"{origin} gives choose, which needs both impurity and score")
    impurity = gain = score = None
    if functions.impurity is not None:
        impurity = compiled(functions.impurity, (FROZEN_CELLS,), origin, "impurity")
        impurity = impurity if blocks is None else mean_impurity(impurity, blocks)
        gain = _gain(impurity, dense)
    if functions.score is not None:
        score = compiled(functions.score, (FROZEN_CELLS, FROZEN_MATRIX), origin, "score")
        score = score if blocks is None else mean_score(score, blocks)
    final = score if score is not None else gain
    rank = gain if functions.choose is not None else final
    whole = final  # score of all branches together, as splitter plugins call it
    branches = rank
    ranked = isinstance(functions.statistics, Ranks)
    if known_only and not ranked:  # ranks do not add up: the kernel computes them from the rows
        branches = _among_known(rank, dense)
        whole = branches if functions.choose is None else _among_known(final, dense)
        final = final if functions.choose is not None else branches
    ordered = dense or functions.order is not None or cells <= 2
    attempts = 1 if ordered else cells + COMPONENTS
    if blocks is not None:
        attempts = cells - 1 if functions.order is None else blocks.count
    sums_scan = partial(_make_scan, cells=cells, dense=dense, bounded=bounded)
    make_scan = _make_rank_scan if ranked else sums_scan
    scan = make_scan(rank, tolerance=functions.tolerance)
    return CompiledCriterion(
        scan=_kept(scan, SCAN),
        many=_kept(_make_many(branches, final), MANY),
        key=_key(functions, dense, origin, blocks) if nominal or ranked else standing(no_key, KEY),
        choose=_choose(functions, origin),
        penalty=_penalty(functions, origin),
        n_keys=attempts,
        use_choose=functions.choose is not None,
        use_penalty=functions.penalty is not None,
        score=_kept(_make_score(whole), SCORE),
        impurity=_value(impurity),
        priority=_priority(functions, origin, blocks),
        use_priority=functions.priority is not None,
        origin=origin,
        functions=functions,
    )


def _kept(function: Any, signature: Any) -> Pointer:
    """Return the pointer to a closure over a criterion's functions, cached on disk if possible."""
    return Pointer(function, signature, mark=fingerprint(function))


def _gain(impurity: Any, dense: bool) -> Any:
    """Return the impurity decrease as a score function (Breiman et al. 1984, section 2.4)."""

    @Linked
    def gain(parent, children):  # type: ignore[no-untyped-def]
        weight = parent[0] if dense else parent.sum()
        left = 0.0
        for b in range(children.shape[0]):
            share = children[b, 0]
            if not dense:
                for k in range(1, children.shape[1]):
                    share += children[b, k]
            if share > 0.0:
                left += share * impurity(children[b])
        return impurity(parent) - left / weight

    return gain


def _among_known(rank: Any, dense: bool) -> Any:
    """Return a score of the rows with a known value, times their share of the node's weight."""

    @Linked
    def among_known(parent, children):  # type: ignore[no-untyped-def]
        known = np.zeros(len(parent))
        for b in range(children.shape[0]):
            for k in range(len(parent)):
                known[k] += children[b, k]
        share = known[0] / parent[0] if dense else known.sum() / parent.sum()
        return share * rank(read_only(known), children)

    return among_known


@nb.njit
def _heap_matrix(rows, columns):  # type: ignore[no-untyped-def]
    return np.empty((rows, columns))


@nb.njit
def _heap_cells(cells):  # type: ignore[no-untyped-def]
    return np.empty(cells)


def _make_scan(rank: Any, cells: int, dense: bool, bounded: bool, tolerance: float) -> Any:
    """Return the loop over the cuts of one column at one node.

    ``scan(rows, count, start, totals, limit, impurity, best)``: `rows` (codes, S) are
    ascending; `start` is on the left before the first cut; both sides need the weight
    `limit`.  The result is the position of the best cut (the first of tied ones), -1 if
    there is none, or -2 if the criterion returned a number that is not finite.  `best`
    receives score, left weight and left statistics; if `bounded`, it holds the monotonic
    constraint of the column on entry.
    """
    weigh = cells if not dense else 1
    constraint = cells + 2  # offset of the monotonic constraint in `best`
    small = cells <= MOST_ON_STACK
    new_matrix, new_cells = (stack_matrix, stack_cells) if small else (_heap_matrix, _heap_cells)

    def scan(rows, count, start, totals, limit, impurity, best):  # type: ignore[no-untyped-def]
        children = new_matrix(2, cells)
        view = read_only(children)
        own = new_cells(cells)
        parent = read_only(own)
        zero, one = np.uint64(0), np.uint64(1)
        for k in range(np.uint64(cells)):
            own[k] = totals[k]
            children[zero, k] = start[k]
            children[one, k] = totals[k] - start[k]
        whole, left = 0.0, 0.0
        for k in range(np.uint64(weigh)):
            whole += totals[k]
            left += start[k]
        best_at = np.int64(-1)
        best_score, bar, best_left = -np.inf, -np.inf, 0.0
        for i in range(np.uint64(count)):
            for k in range(np.uint64(cells)):
                value = rows[i, k]
                children[zero, k] += value
                children[one, k] -= value
            for k in range(np.uint64(weigh)):
                left += rows[i, k]
            if left < limit or whole - left < limit:  # sums are exact
                continue
            if bounded:
                sign = best[np.uint64(constraint + SIGN)]
                if not fits(
                    children[zero, one] / left,
                    children[one, one] / (whole - left),
                    sign if i < np.uint64(best[np.uint64(constraint + CUTS)]) else 0.0,
                    best[np.uint64(constraint + LOWEST)],
                    best[np.uint64(constraint + HIGHEST)],
                ):
                    continue
            score = 1.0 * rank(parent, view)
            if score > bar and score < np.inf:
                best_score, best_at, best_left = score, np.int64(i), left
                bar = score + max(TOLERANCE * max(abs(score), impurity), tolerance)
            elif not finite(score):
                best_at = np.int64(-2)
                best_left = left
                break
        best[zero] = best_score
        best[one] = best_left
        if best_at == -2:
            for k in range(np.uint64(cells)):
                best[k + np.uint64(2)] = children[zero, k]
        elif best_at >= 0:
            for k in range(np.uint64(cells)):
                total = start[k]
                for i in range(np.uint64(best_at) + one):
                    total += rows[i, k]
                best[k + np.uint64(2)] = total
        return best_at

    return scan


def _make_rank_scan(rank: Any, tolerance: float) -> Any:
    """Return the loop over cuts with given sides: left in row 2i of `rows`, right in row 2i + 1."""

    def scan(rows, count, start, totals, limit, impurity, best):  # type: ignore[no-untyped-def]
        children, own = stack_matrix(2, 4), stack_cells(4)
        view, parent = read_only(children), read_only(own)
        zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
        for k in range(np.uint64(4)):
            own[k] = totals[k]
        best_at = np.int64(-1)
        best_score, bar = -np.inf, -np.inf
        for i in range(np.uint64(count)):
            left, right = two * i, two * i + one
            if rows[left, zero] < limit or rows[right, zero] < limit:
                continue
            for k in range(np.uint64(4)):
                children[zero, k] = rows[left, k]
                children[one, k] = rows[right, k]
            score = 1.0 * rank(parent, view)
            if score > bar and score < np.inf:
                best_score, best_at = score, np.int64(i)
                bar = score + max(TOLERANCE * max(abs(score), impurity), tolerance)
            elif not finite(score):
                best_at = np.int64(-2)
                for k in range(np.uint64(4)):
                    best[k + two] = children[zero, k]
                break
        best[zero] = best_score
        return best_at

    return scan


def _make_many(rank: Any, final: Any) -> Any:
    def many(parent, children, which):  # type: ignore[no-untyped-def]
        if which == 0:
            return 1.0 * rank(read_only(parent), read_only(children))
        return 1.0 * final(read_only(parent), read_only(children))

    return many


def _make_score(final: Any) -> Any:
    def score(parent, children):  # type: ignore[no-untyped-def]
        return 1.0 * final(parent, children)

    return score


def _value(function: Any) -> Pointer:
    if function is None:
        return standing(no_value, CELL_VALUE)

    def value(stats):  # type: ignore[no-untyped-def]
        return 1.0 * function(read_only(stats))

    return _kept(value, CELL_VALUE)


def _priority(functions: CriterionFunctions, origin: Origin, blocks: Blocks | None) -> Pointer:
    if functions.priority is None:
        return _value(None)
    priority = compiled(functions.priority, (FROZEN_CELLS,), origin, "priority")
    return _value(priority if blocks is None else mean_impurity(priority, blocks))


def _key(
    functions: CriterionFunctions, dense: bool, origin: Origin, blocks: Blocks | None
) -> Pointer:
    """Return the pointer to the sort keys of categories for subset splits."""
    if functions.order is None:
        if blocks is not None:
            return standing(cell_key, KEY)
        if isinstance(functions.statistics, Ranks):
            return standing(quantile_key, KEY)
        return standing(mean_key if dense else share_key, KEY)
    order = compiled(functions.order, (FROZEN_CELLS,), origin, "order")
    if blocks is not None:
        return _kept(block_key(order, blocks).py_func, KEY)

    def own_key(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
        for i in range(np.uint64(count)):
            keys[i] = 1.0 * order(read_only(rows[i]))

    return _kept(own_key, KEY)


def _choose(functions: CriterionFunctions, origin: Origin) -> Pointer:
    if functions.choose is None:
        return standing(no_choice, CHOOSE)
    choose = compiled(functions.choose, (FROZEN_CELLS,) * 3, origin, "choose", int)

    def chosen(gains, scores, levels):  # type: ignore[no-untyped-def]
        return np.int64(choose(read_only(gains), read_only(scores), read_only(levels)))

    return _kept(chosen, CHOOSE)


def _penalty(functions: CriterionFunctions, origin: Origin) -> Pointer:
    if functions.penalty is None:
        return standing(no_penalty, PENALTY)
    penalty = compiled(functions.penalty, PENALTY.args, origin, "penalty")

    def taken(candidates, weight):  # type: ignore[no-untyped-def]
        return 1.0 * penalty(candidates, weight)

    return _kept(taken, PENALTY)


# ---------------------------------------------------------------- defaults
# Fallbacks for a criterion's optional functions.
#
# They are at module level so that their machine code comes from the disk cache: a new
# process compiles only the functions of the criterion itself.


@cache
def standing(function: Callable[..., Any], signature: Any) -> Pointer:
    """Return the pointer to a function of this module, cached for the process."""
    return Pointer(function, signature, cache=True)


def no_value(stats):  # type: ignore[no-untyped-def]
    """Return 0.0: the impurity or priority of a criterion without one."""
    return 0.0


def no_penalty(candidates, weight):  # type: ignore[no-untyped-def]
    """Return 0.0 (placeholder, never called): cuts have no penalty."""
    return 0.0


def no_choice(gains, scores, levels):  # type: ignore[no-untyped-def]
    """Return -1 (placeholder, never called): the column with the best score is chosen."""
    return -1


def no_key(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
    """Do nothing (placeholder, never called): there are no nominal columns."""


def mean_key(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
    """Order categories by the mean of the target: exact for squared error (Fisher 1958)."""
    for i in range(np.uint64(count)):
        keys[i] = rows[i, np.uint64(1)] / rows[i, np.uint64(0)]


def quantile_key(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
    """Order categories by the quantile of the target: not always optimal for its loss."""
    for i in range(np.uint64(count)):
        keys[i] = rows[i, np.uint64(1)]


def cell_key(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
    """Order categories by one cell of several targets per attempt: a class share, or a mean."""
    cell = np.uint64(attempt) + np.uint64(1)
    for i in range(np.uint64(count)):
        keys[i] = rows[i, cell] / rows[i, np.uint64(0)]


def share_key(rows, count, attempt, keys):  # type: ignore[no-untyped-def]
    """Order categories by the share of one class, or along the first component of all shares.

    With two classes, order by the share of the second: this order contains the best
    subset if the impurity is concave (Breiman et al. 1984, theorem 4.5).  With more
    classes, try the share of each class and then two components, a heuristic: on random
    tables of 12 categories and 3 to 10 classes its Gini gain was on average 0.9998 of
    the best subset's (shares alone 0.995), its entropy gain 0.996 (0.98).
    """
    cells = np.uint64(rows.shape[1])
    if attempt >= rows.shape[1]:
        first_component(rows, count, attempt > rows.shape[1], keys)
        return
    cell = np.uint64(1) if cells == np.uint64(2) else np.uint64(attempt)
    for i in range(np.uint64(count)):
        total = 0.0
        for k in range(cells):
            total += rows[i, k]
        keys[i] = rows[i, cell] / total


# ---------------------------------------------------------------- blocks
# Single-target criteria applied to several targets: to each block of statistics, averaged.
#
# Statistics of several targets are ``[w | block 1 | block 2 ...]``: the weight of each
# class of a target, or one ``w * y``.

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Blocks:
    """Layout of the statistics of several targets.

    Attributes
    ----------
    ends : tuple of int
        Start of the first block and end of each block, not counting the weight:
        (0, 3, 5) are targets of 3 and of 2 classes.
    classes : bool
        Whether blocks are class weights; otherwise each is one ``w * y``.
    """

    ends: tuple[int, ...]
    classes: bool

    @property
    def count(self) -> int:
        """Number of targets."""
        return len(self.ends) - 1

    @property
    def cells(self) -> int:
        """S, the number of cells of a node's statistics: the weight and all blocks."""
        return 1 + self.ends[-1]

    @property
    def starts(self) -> tuple[int, ...]:
        """First cell of each block in a node's statistics."""
        return tuple(1 + end for end in self.ends[:-1])

    @property
    def groups(self) -> dict[int, tuple[int, ...]]:
        """For each block size, the first cell of every block of this size, -1 for other blocks.

        Code is compiled once per size, not once per target.
        """
        sizes = [b - a for a, b in pairwise(self.ends)]
        return {
            size: tuple(
                start if own == size else -1 for own, start in zip(sizes, self.starts, strict=True)
            )
            for size in sorted(set(sizes))
        }

    def own(self, stats: Numbers, k: int) -> Numbers:
        """Extract the statistics (nodes, cells) of target k from those of all, (nodes, S)."""
        first, last = self.starts[k], 1 + self.ends[k + 1]
        columns = range(first, last) if self.classes else (0, first)
        return np.ascontiguousarray(stats[:, columns])


def plain_mean(impurity: Callable[[Numbers], float], blocks: Blocks) -> Callable[[Numbers], float]:
    """Return `mean_impurity` as plain Python, for a few nodes."""

    def mean(stats: Numbers) -> float:
        own = (blocks.own(stats[None, :], k)[0] for k in range(blocks.count))
        return sum(float(impurity(each)) for each in own) / blocks.count

    return mean


def mean_impurity(impurity: Any, blocks: Blocks) -> Any:
    """Return ``impurity(stats)`` as the mean over several targets."""
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
    """Return ``score(parent, children)`` as the mean over several targets."""
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
    """Return sort keys of categories by a criterion's `order`, one target per attempt."""
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


def _block_impurity(impurity: Any, size: int, classes: bool) -> Any:
    """Return ``block(stats, first)``: the impurity of the block of `size` cells at `first`."""
    cells, shift = (size, 0) if classes else (2, 1)  # of a number: the weight, then ``w * y``
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
    """Return ``block(parent, children, first)``: the score of the `size` cells at `first`."""
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


# ---------------------------------------------------------------- pre-pruning
# A pruner's `before` function, compiled into the pointer that `grow` calls.

BEFORE = types.boolean(CELLS, MATRIX, CELLS, MATRIX)


@cache
def always() -> Pointer:
    """Return the pointer that allows every split."""
    return Pointer(_yes, BEFORE, cache=True)


def _yes(parent, children, held_parent, held_children):  # type: ignore[no-untyped-def]
    return True


def compile_before(function: Callable[..., bool], origin: Origin) -> Pointer:
    """Compile ``before(parent, children, held_parent, held_children)``."""
    shapes = (FROZEN_CELLS, FROZEN_MATRIX, FROZEN_CELLS, FROZEN_MATRIX)
    inner: Any = compiled(function, shapes, origin, "before", bool)

    def before(parent, children, held_parent, held_children):  # type: ignore[no-untyped-def]
        return bool(
            inner(
                read_only(parent), read_only(children),
                read_only(held_parent), read_only(held_children),
            )
        )  # fmt: skip

    pointer = Pointer(before, BEFORE, mark=fingerprint(before))
    pointer.origin = origin
    return pointer
