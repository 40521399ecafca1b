"""How the boxes of rules lie to each other: pairs, shadows, gaps, rules that never answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.rules.covering import Budget, sure_cover, uncovered
from treekit.rules.spaces import Boxes, Space

__all__ = [
    "EMPTY",
    "NEVER",
    "REACHED",
    "UNDECIDED",
    "gap_of",
    "meeting_pairs",
    "reach_of",
    "shadows_of",
]

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

EMPTY, REACHED, NEVER, UNDECIDED = 0, 1, 2, 3
"""Whether a rule ever answers."""

_CELLS = 1 << 22
"""Cells of boxes that are compared at once."""

_PAIRS = 1 << 17
_FEW = 16
"""Steps after which a search for a gap in front of a rule pauses to count cells."""


def meeting_pairs(space: Space, alive: Mask) -> Index:
    """(pairs, 2) int64: boxes that meet, the earlier first, in order."""
    n, found = len(space.boxes), []
    width = sum(space.boxes.levels.shape[1:]) + 4 * len(space.intervals) + 1
    step = max(_CELLS // (width * max(n, 1)), 1)
    for first in range(0, n, step):
        some = np.arange(first, min(first + step, n))
        behind = space.boxes.take(slice(first, None))
        one = Boxes(*(part[some][:, None] for part in _parts(space.boxes)))
        meet = space.meets(behind, one) & alive[some][:, None] & alive[None, first:]
        rows, others = np.nonzero(np.triu(meet, 1))
        found.append(np.stack([rows + first, others + first], axis=1))
    return np.concatenate(found)


def _parts(boxes: Boxes) -> tuple[npt.NDArray[Any], ...]:
    return boxes.low, boxes.high, boxes.missing, boxes.levels


def shadows_of(space: Space, pairs: Index, *, ordered: bool) -> Index:
    """(boxes,) int64: the first box that holds each; -1 if none does."""
    n = len(space.boxes)
    first = np.full(n, n, dtype=np.int64)
    for at in range(0, len(pairs), _PAIRS):
        earlier, later = pairs[at : at + _PAIRS].T
        one, other = space.boxes.take(earlier), space.boxes.take(later)
        inside = space.holds(one, other)
        np.minimum.at(first, later[inside], earlier[inside])
        if not ordered:
            inside = space.holds(other, one) & ~inside
            np.minimum.at(first, earlier[inside], later[inside])
    return np.where(first < n, first, -1)


def _full(space: Space, alive: Mask, pairs: Index) -> int | None:
    """How many boxes at the head of a list, of which no two meet, hold all; None if they do not.

    Their cells are counted.
    """
    alone = int(pairs[:, 1].min(initial=len(alive)))
    head = np.flatnonzero(alive[:alone])
    full = sum(space.volumes(space.boxes.take(head))) == space.volumes(space.whole)[0]
    return alone if full else None


def gap_of(
    space: Space, alive: Mask, pairs: Index, budget: Budget
) -> tuple[bool | None, Boxes | None]:
    """Whether some row meets no box, None if that is not decided; and the box of such rows."""
    if _full(space, alive, pairs) is not None:
        return False, None
    try:
        left = uncovered(space, space.whole, space.boxes.take(alive), budget)
    except TimeoutError:  # boxes that share nothing, and are too small together, leave a gap
        return (None if len(pairs) else True), None
    return left is not None, left


def reach_of(
    space: Space, alive: Mask, pairs: Index, shadowed: Index, budget: Budget
) -> npt.NDArray[np.int64]:
    """(boxes,) int64: codes of `REACHED` and others; a box that meets no earlier one is reached."""
    code = np.where(alive, REACHED, EMPTY)
    code[shadowed >= 0] = NEVER
    # Whole trees come first where a list was put together of trees: the rest is silent.
    full = _full(space, alive, pairs)
    if full is not None:
        code[full:][alive[full:]] = NEVER
    order = np.argsort(pairs[:, 1], kind="stable")
    starts = np.searchsorted(pairs[order, 1], np.arange(len(alive) + 1))
    for rule in np.flatnonzero((code == REACHED) & (np.diff(starts) > 0)).tolist():
        earlier = pairs[order[starts[rule] : starts[rule + 1]], 0]
        box = space.boxes.take(slice(rule, rule + 1))
        code[rule] = _taken(space, box, space.boxes.take(np.sort(earlier)), budget)
    return code


def _taken(space: Space, box: Boxes, earlier: Boxes, budget: Budget) -> int:
    """Whether a box is reached: a few steps, then a count of cells, then many steps."""
    for share in (_FEW, budget.steps // 20):
        own = Budget(min(share, budget.steps))
        allowed = own.steps
        try:
            return NEVER if uncovered(space, box, earlier, own) is None else REACHED
        except TimeoutError:
            pass
        finally:
            budget.steps -= allowed - own.steps
        if share == _FEW and sure_cover(space, box, earlier, budget):
            return NEVER
    return UNDECIDED
