"""Whether boxes together hold another box, exactly, with a witness where they do not.

The box is cut in two along a face of some box, and each half asked again of the boxes that
meet it, until one of them holds it or none meets it: the search of a solver (Davis,
Logemann and Loveland 1962) over intervals and sets in the place of truth values.  The cut
that leaves the fewest boxes to look at on both sides comes first, so that the boxes of a
tree take about as many steps as the tree has nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from treekit.rules.spaces import Boxes, Space

__all__ = ["Budget", "uncovered"]

_SETS = 8
"""Sets of levels that are tried for a cut of one column."""


@dataclass
class Budget:
    """Steps that are left; a step looks at one box."""

    steps: int


Cut = tuple[float, Boxes, Boxes]


def uncovered(space: Space, box: Boxes, boxes: Boxes, budget: Budget) -> Boxes | None:
    """A part of `box`, which is not empty, that none of `boxes` meets; None if there is none.

    Raises
    ------
    TimeoutError
        If the budget ends before that is known.
    """
    waiting = [(box, boxes.take(space.meets(boxes, box)))]
    while waiting:
        part, some = waiting.pop()
        if not len(some):
            return part
        if space.holds(some, part).any():
            continue
        if budget.steps <= 0:
            raise TimeoutError
        budget.steps -= 1
        halves = _halves(space, part, some)
        waiting.extend((half, some.take(space.meets(some, half))) for half in halves)
    return None


def _halves(space: Space, box: Boxes, boxes: Boxes) -> tuple[Boxes, Boxes]:
    """The best cut of a box that some boxes meet and none of them holds."""
    best: Cut | None = None
    for k in range(len(space.intervals)):
        for cut in (_at_bound(box, boxes, k), _at_missing(box, boxes, k)):
            if cut is not None and (best is None or cut[0] < best[0]):
                best = cut
    for k in range(len(space.nominal)):
        cut = _at_levels(space, box, boxes, k)
        if cut is not None and (best is None or cut[0] < best[0]):
            best = cut
    assert best is not None  # noqa: S101 - a box that meets and does not hold has a face inside
    return best[1:]


def _cost(left: npt.ArrayLike, right: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Boxes to look at on both sides; among equals the more even cut."""
    a, b = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    return a + b + 0.25 * np.abs(a - b)


def _at_bound(box: Boxes, boxes: Boxes, k: int) -> Cut | None:
    """Between two cells of column k, missing values with the lower ones."""
    first, last = int(box.low[0, k]), int(box.high[0, k])
    low, high = boxes.low[:, k], boxes.high[:, k]
    faces = np.concatenate([low, high])
    at = np.unique(faces[(faces > first) & (faces < last)])
    if not len(at):
        return None
    begins, ends = np.sort(low), np.sort(np.maximum(high, low))
    left = np.searchsorted(begins, at)
    right = len(boxes) - np.searchsorted(ends, at, "right")
    cost = _cost(left, right)
    best = int(cost.argmin())
    lower, upper = box.high.copy(), box.low.copy()
    lower[0, k] = upper[0, k] = at[best]
    known = box.missing.copy()
    known[0, k] = False
    return float(cost[best]), replace(box, high=lower), replace(box, low=upper, missing=known)


def _at_missing(box: Boxes, boxes: Boxes, k: int) -> Cut | None:
    """Missing values of column k on one side."""
    if not box.missing[0, k] or box.low[0, k] >= box.high[0, k]:
        return None
    known = np.maximum(boxes.low[:, k], box.low[0, k]) < np.minimum(
        boxes.high[:, k], box.high[0, k]
    )
    if (known & boxes.missing[:, k]).all():
        return None
    low, missing = box.low.copy(), box.missing.copy()
    low[0, k] = box.high[0, k]
    missing[0, k] = False
    cost = _cost(np.count_nonzero(boxes.missing[:, k]), np.count_nonzero(known))
    return float(cost), replace(box, low=low), replace(box, missing=missing)


def _at_levels(space: Space, box: Boxes, boxes: Boxes, k: int) -> Cut | None:
    """The levels of column k that some box takes on one side."""
    own = slice(*space.words[k : k + 2].tolist())
    whole = box.levels[0, own]
    sets = boxes.levels[:, own] & whole
    partial = np.unique(sets[(sets != whole).any(axis=1)], axis=0)
    best: tuple[float, npt.NDArray[np.uint64]] | None = None
    for chosen in partial[:: -(-len(partial) // _SETS) or 1]:
        inside = (sets & chosen).any(axis=1)
        outside = (sets & ~chosen).any(axis=1)
        cost = float(_cost(np.count_nonzero(inside), np.count_nonzero(outside)))
        if best is None or cost < best[0]:
            best = cost, chosen
    if best is None:
        return None
    taken, others = box.levels.copy(), box.levels.copy()
    taken[0, own], others[0, own] = best[1], whole & ~best[1]
    return best[0], replace(box, levels=taken), replace(box, levels=others)
