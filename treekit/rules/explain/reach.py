"""The leaves that a row reaches if one or two of its columns change, and for which values.

A tree is walked once, with at most two columns free to leave what the row has.  Each leaf
found is a box: for each column that the way to it asks, the values for which a row comes
there.  All other columns are as in the row, so that a forest becomes small: what is left of
it are the nodes near the row's own ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.rules.explain.questions import SILENT, Question, TreeNodes, answer
from treekit.rules.explain.scales import Scale
from treekit.rules.explain.walk import parts

__all__ = ["Box", "Found", "Reach", "reach"]

Interval = tuple[float, float]
Allowed = Interval | frozenset[int] | None
"""Values of a column: ``low < x <= high``, codes of levels, or None = as in the row, missing."""
Box = dict[int, Allowed]


_At: TypeAlias = tuple[int, int, int, tuple[int, ...], Box]
"""A row at a node's question: node, place of the question, mass, columns changed, box."""


class Found(NamedTuple):
    """A leaf, and the rows that come there.

    Attributes
    ----------
    leaf : int
        Its node.
    mass : int
        The part of a row that ends there, of `Model.mass`.
    changed : tuple of int
        Columns that must change for it, ascending: none, one or two.
    box : dict
        Of the columns asked on the way.
    """

    leaf: int
    mass: int
    changed: tuple[int, ...]
    box: Box


class Reach(NamedTuple):
    """What `reach` found in one tree.

    Attributes
    ----------
    found : list of Found
    together : set of (int, int)
        Columns of one weighted sum: where both change, their values are no box, and
        leaves that need this are not among those found.
    steps : int
        Nodes that were looked at.
    complete : bool
        Whether all were: False where the bound on steps ended it.
    """

    found: list[Found]
    together: set[tuple[int, int]]
    steps: int
    complete: bool


class Setting(NamedTuple):
    """What a walk is about.

    Attributes
    ----------
    schema : Schema
    row : (features,) list of float
        Encoded.
    free : frozenset of int
        Columns that may change.
    changes : int
        How many of them at once: 1 or 2.
    scale : sequence of Scale
    bound : float
        Leaves that need changes of this size or more are left out.
    """

    schema: Schema
    row: list[float]
    free: frozenset[int]
    changes: int
    scale: Sequence[Scale]
    bound: float = math.inf


def reach(
    nodes: TreeNodes,
    setting: Setting,
    mass: int,
    bounds: npt.NDArray[np.int64] | None,
    most: int,
) -> Reach:
    """The leaves of a tree that a row reaches with few columns changed.

    Parameters
    ----------
    nodes, mass, bounds
        As in `treekit.rules.explain.walk.walk`.
    setting : Setting
    most : int
        Nodes to look at.
    """
    found: list[Found] = []
    together: set[tuple[int, int]] = set()
    start: _At = (0, 0, mass, (), {})
    stack = [start]
    steps = 0
    while stack and steps < most:
        number, place, part, changed, box = stack.pop()
        steps += 1
        node = nodes[number]
        if node is None:
            found.append(Found(number, part, changed, box))
        elif place < len(node.questions):
            question = node.questions[place]
            if len(question.columns) > 1:
                together |= {(a, b) for a in question.columns for b in question.columns if a < b}
            for branch, now, to in _outcomes(question, changed, box, setting):
                if branch == SILENT:
                    stack.append((number, place + 1, part, now, to))
                else:
                    stack.append((node.children[branch], 0, part, now, to))
        elif bounds is None:
            stack.append((node.children[node.missing], 0, part, changed, box))
        else:
            shares = parts(node, part, bounds)
            stack += [(child, 0, some, changed, box) for child, some in shares if some]
    return Reach(found, together, steps, not stack)


def _outcomes(
    question: Question, changed: tuple[int, ...], box: Box, setting: Setting
) -> Iterator[tuple[int, tuple[int, ...], Box]]:
    """Branches (or `SILENT`), the columns changed for them, and the boxes from which they come."""
    moved = [column for column in question.columns if column in changed]
    if len(moved) > 1:
        return  # both of a sum's: see `Reach.together`
    for column in moved:
        for branch, allowed in _sides(question, column, setting):
            both = _meet(box[column], allowed)
            if both is not None and _is_near(changed, to := box | {column: both}, setting):
                yield branch, changed, to
    if moved:
        return
    own = answer(question, setting.row)
    kept = dict(box)
    for column in question.columns:
        kept[column] = _stay(question, column, own, box, setting)
    yield own, changed, kept
    if len(changed) < setting.changes:
        for column in setting.free.intersection(question.columns):
            now = tuple(sorted((*changed, column)))
            for branch, allowed in _leave(question, column, own, box, setting):
                if _is_near(now, to := box | {column: allowed}, setting):
                    yield branch, now, to


def _is_near(changed: tuple[int, ...], box: Box, setting: Setting) -> bool:
    """Whether changes into a box may count less than the bound."""
    if setting.bound == math.inf:
        return True
    return sum(_least(box[column], column, setting) for column in changed) < setting.bound


def _least(allowed: Allowed, column: int, setting: Setting) -> float:
    """At most what the smallest change of a column to some values counts."""
    if not isinstance(allowed, tuple) or not is_known(setting, column):
        return 1.0
    low, high = allowed
    x = setting.row[column]
    return max(low - x, x - high, 0.0) / setting.scale[column].spread


def _stay(question: Question, column: int, own: int, box: Box, setting: Setting) -> Allowed:
    """The values of a column that did not change for which a row goes on as ours does."""
    if not is_known(setting, column):
        return None
    before = box.get(column, _anything(question))
    for branch, allowed in _sides(question, column, setting):
        if branch == own:
            return _meet(before, allowed)
    return None  # infinities of other columns that cancel: no other value is known to do so


def _leave(
    question: Question, column: int, own: int, box: Box, setting: Setting
) -> Iterator[tuple[int, Allowed]]:
    """Branches for a column that changes here, and the values that lead there."""
    known = is_known(setting, column)
    if not known and column in box:
        return  # it has been asked for before, and was missing there
    before = box.get(column, _anything(question))
    for branch, allowed in _sides(question, column, setting):
        both = _meet(before, allowed)
        if both is not None and (branch != own or not known):
            yield branch, both


def is_known(setting: Setting, column: int) -> bool:
    """Whether the row has a level, or a finite number: something to compare a change with."""
    x, levels = setting.row[column], len(setting.schema.columns[column].levels)
    if setting.schema.columns[column].kind == "nominal":
        return 0 <= x < levels
    return math.isfinite(x)


def _anything(question: Question) -> Allowed:
    return (-math.inf, math.inf) if question.weights else frozenset(range(len(question.branches)))


def _meet(a: Allowed, b: Allowed) -> Allowed:
    """Values in both; None if there are none."""
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return a & b or None
    if isinstance(a, tuple) and isinstance(b, tuple):
        low, high = max(a[0], b[0]), min(a[1], b[1])
        return (low, high) if low < high else None
    return None


def _sides(question: Question, column: int, setting: Setting) -> list[tuple[int, Allowed]]:
    """Each branch of a question, and the values of one of its columns that lead there.

    Other columns are as in the row.
    """
    if not question.weights:
        return _level_sides(question.branches)
    below, above, at = question.below, question.above, question.threshold
    if question.columns != (column,) or question.weights != (1.0,):
        below, above, at = _turning(question, column, setting)
    everything = (-math.inf, math.inf)
    if below == above or not math.isfinite(at):
        return [(below if at > 0 else above, everything)]
    return [(below, (-math.inf, at)), (above, (at, math.inf))]


@lru_cache(maxsize=1 << 12)
def _level_sides(branches: tuple[int, ...]) -> list[tuple[int, Allowed]]:
    by_branch: dict[int, list[int]] = {}
    for code, branch in enumerate(branches):
        by_branch.setdefault(branch, []).append(code)
    return [(branch, frozenset(codes)) for branch, codes in by_branch.items()]


def _turning(question: Question, column: int, setting: Setting) -> tuple[int, int, float]:
    """Branches of small and of large values of a column of a sum, and the last small one.

    Each product and each sum of doubles is monotone in the column, so that the place
    where the branch changes is found by halving the numbers of the input type.
    """
    row = list(setting.row)

    def branch(x: float) -> int:
        row[column] = x
        return answer(question, row)

    bits: type[np.unsignedinteger[Any]] = np.uint32
    real: type[np.floating[Any]] = np.float32
    if setting.schema.dtype == "float64":
        bits, real = np.uint64, np.float64

    def number(place: int) -> float:
        return math.copysign(float(bits(abs(place)).view(real)), place)

    high = int(np.finfo(real).max.view(bits))
    low = -high
    first, last = branch(number(low)), branch(number(high))
    if first == last:
        return first, last, math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if branch(number(middle)) == first else (low, middle)
    return first, last, number(low)
