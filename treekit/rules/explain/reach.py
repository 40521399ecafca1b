"""The leaves that a row reaches if one or two of its columns change, and for which values.

A tree is walked once, with at most two columns free to leave what the row has.  Each leaf
found is a box: for each column that the way to it asks, the values for which a row comes
there.  All other columns are as in the row, so that a forest becomes small: what is left of
it are the nodes near the row's own ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.rules.explain.questions import SILENT, Node, Question, TreeNodes, answer
from treekit.rules.explain.walk import parts

__all__ = ["Box", "Found", "Reach", "reach"]

Interval = tuple[float, float]
Allowed = Interval | frozenset[int] | None
"""Values of a column: ``low < x <= high``, codes of levels, or None = as in the row, missing."""
Box = dict[int, Allowed]


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


class _At(NamedTuple):
    """A row, or a part of it, in front of a node's question."""

    number: int
    place: int
    mass: int
    changed: tuple[int, ...]
    box: Box


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
    """

    schema: Schema
    row: list[float]
    free: frozenset[int]
    changes: int


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
    stack = [_At(0, 0, mass, (), {})]
    steps = 0
    while stack and steps < most:
        at = stack.pop()
        steps += 1
        node = nodes[at.number]
        if node is None:
            found.append(Found(at.number, at.mass, at.changed, at.box))
        elif at.place == len(node.questions):
            stack += _unanswered(node, at, bounds)
        else:
            question = node.questions[at.place]
            if len(question.columns) > 1:
                together |= {(a, b) for a in question.columns for b in question.columns if a < b}
            stack += [
                _next(node, at._replace(changed=changed, box=box), branch)
                for branch, changed, box in _outcomes(question, at, setting)
            ]
    return Reach(found, together, steps, not stack)


def _next(node: Node, at: _At, branch: int) -> _At:
    if branch == SILENT:
        return at._replace(place=at.place + 1)
    return at._replace(number=node.children[branch], place=0)


def _unanswered(node: Node, at: _At, bounds: npt.NDArray[np.int64] | None) -> list[_At]:
    if bounds is None:
        return [at._replace(number=node.children[node.missing], place=0)]
    shares = parts(node, at.mass, bounds)
    return [at._replace(number=child, place=0, mass=some) for child, some in shares if some]


def _outcomes(
    question: Question, at: _At, setting: Setting
) -> Iterator[tuple[int, tuple[int, ...], Box]]:
    """Branches (or `SILENT`), the columns changed for them, and the boxes from which they come."""
    row, changed = setting.row, at.changed
    moved = [column for column in question.columns if column in changed]
    if len(moved) > 1:
        return  # both of a sum's: see `Reach.together`
    for column in moved:
        for branch, allowed in _sides(question, column, setting):
            if (both := _meet(at.box[column], allowed)) is not None:
                yield branch, changed, at.box | {column: both}
    if moved:
        return
    own = answer(question, row)
    kept = at.box
    for column in question.columns:
        kept = kept | {column: _stay(question, column, own, at.box, setting)}
    yield own, changed, kept
    if len(changed) < setting.changes:
        for column in setting.free.intersection(question.columns):
            now = tuple(sorted((*changed, column)))
            for branch, allowed in _leave(question, column, own, at.box, setting):
                yield branch, now, at.box | {column: allowed}


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
