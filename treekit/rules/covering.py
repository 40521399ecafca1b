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

__all__ = ["Budget", "sure_cover", "uncovered"]

_SETS = 8
"""Sets of levels that are tried for a cut of one column."""


@dataclass
class Budget:
    """Steps that are left; a step looks at one box."""

    steps: int


Cut = tuple[float, Boxes, Boxes]
Index = npt.NDArray[np.int64]


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


def sure_cover(space: Space, box: Boxes, boxes: Boxes, budget: Budget) -> bool:
    """Whether those of `boxes` that share nothing with an earlier one hold all of `box`.

    Their cells are counted, a step for each: a short proof where they are rules of one tree.
    False proves nothing.
    """
    parts = space.cut(boxes.take(space.meets(boxes, box)), box)
    left, chosen = np.ones(len(parts), dtype=np.bool_), []
    while left.any() and budget.steps > 0:
        budget.steps -= 1
        first = int(left.argmax())
        chosen.append(first)
        left[first] = False
        left &= ~space.meets(parts, parts.take(slice(first, first + 1)))
    return sum(space.volumes(parts.take(np.array(chosen, np.int64)))) == space.volumes(box)[0]


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
    """Between two cells of column k, missing values on either side."""
    first, last = int(box.low[0, k]), int(box.high[0, k])
    low, high = boxes.low[:, k], np.maximum(boxes.low[:, k], boxes.high[:, k])
    faces = np.concatenate([low, high])
    at = np.unique(faces[(faces > first) & (faces < last)])
    if not len(at):
        return None
    absent = boxes.missing[:, k] & box.missing[0, k]
    n_absent = np.count_nonzero(absent)
    left, right = _sides(low, high, at)
    only_left, only_right = (
        (left, right) if not n_absent else _sides(low[~absent], high[~absent], at)
    )
    costs = np.stack([_cost(only_left + n_absent, right), _cost(left, only_right + n_absent)])
    upwards, best = divmod(int(costs.argmin()), len(at))
    lower, upper = box.high.copy(), box.low.copy()
    lower[0, k] = upper[0, k] = at[best]
    known = box.missing.copy()
    known[0, k] = False
    sides = (known, box.missing) if upwards else (box.missing, known)
    halves = replace(box, high=lower, missing=sides[0]), replace(box, low=upper, missing=sides[1])
    return float(costs[upwards, best]), *halves


def _sides(low: Index, high: Index, at: Index) -> tuple[Index, Index]:
    """How many intervals begin before, and how many end after each place."""
    left = np.searchsorted(np.sort(low), at)
    right = len(high) - np.searchsorted(np.sort(high), at, "right")
    return left, right


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
