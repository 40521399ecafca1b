"""The way of one row through a tree: what each node asked, what decided, and where the row went."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.tree import Split
from treekit.rules.explain.questions import SILENT, Node, Question, TreeNodes, answer

__all__ = ["Passage", "Why", "columns_of", "walk"]

Why = Literal["answered", "surrogate", "lost", "divided", "held", "failed"]
"""What decided at a node.

``answered``: the node's own question.  ``surrogate``: one behind it.  ``lost``: no
question answered, and the row went the missing way.  ``divided``: the same, and parts of
the row went down every branch.  ``held``, ``failed``: the conditions of a rule.
"""


class Passage(NamedTuple):
    """A row, or a part of it, at an inner node.

    Attributes
    ----------
    number : int
        The node.
    node : Node
    why : Why
    decided : int
        Which question decided, by its place; -1 if none did.
    goes : tuple of (int, int)
        Children and the mass that each gets.
    mass : int
        What came to the node, of `Model.mass`.
    """

    number: int
    node: Node
    why: Why
    decided: int
    goes: tuple[tuple[int, int], ...]
    mass: int


def walk(
    nodes: TreeNodes, row: list[float], mass: int, bounds: npt.NDArray[np.int64] | None
) -> tuple[list[Passage], list[tuple[int, int]]]:
    """The passages of a row, parents first and left before right, and the leaves it reaches.

    Parameters
    ----------
    nodes : TreeNodes
    row : (features,) list of float
        Encoded.
    mass : int
        What the row weighs.
    bounds : (nodes, 2) int64, optional
        Of `treekit.model.fixed_point.mass_bounds`, where rows divide.

    Returns
    -------
    passages : list of Passage
    leaves : list of (int, int)
        Leaves and the mass that ends in each, none of them 0.
    """
    passages: list[Passage] = []
    leaves: list[tuple[int, int]] = []
    stack = [(0, mass)]
    while stack:
        number, part = stack.pop()
        node = nodes[number]
        if node is None:
            leaves.append((number, part))
            continue
        passage = _passage(number, node, row, part, bounds)
        passages.append(passage)
        stack += [(child, some) for child, some in reversed(passage.goes) if some]
    return passages, leaves


def _passage(
    number: int, node: Node, row: list[float], mass: int, bounds: npt.NDArray[np.int64] | None
) -> Passage:
    for place, question in enumerate(node.questions):
        branch = answer(question, row)
        if branch != SILENT:
            why: Why = "surrogate" if place else "answered"
            if node.kind == Split.RULE:
                why = "failed"
            return Passage(number, node, why, place, ((node.children[branch], mass),), mass)
    if node.kind == Split.RULE:
        return Passage(number, node, "held", -1, ((node.children[node.missing], mass),), mass)
    if bounds is None:
        return Passage(number, node, "lost", -1, ((node.children[node.missing], mass),), mass)
    return Passage(number, node, "divided", -1, tuple(parts(node, mass, bounds)), mass)


def parts(node: Node, mass: int, bounds: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Children of a node that divides a row, and what each gets of a mass."""
    found = []
    for child in node.children:
        low, high = bounds[child].tolist()
        found.append((child, (mass * high >> 24) - (mass * low >> 24)))
    return found


def columns_of(passage: Passage, row: list[float]) -> tuple[int, ...]:
    """The columns that decided at a node.

    Of a question that answered: those that it asks.  Where none answered, what was
    missing decided: of the node's own question the columns without a value (all of them
    if each has one: a level that the node never saw, infinities that cancel).  A rule that
    holds is due to all of its conditions.
    """
    if passage.decided >= 0:
        return passage.node.questions[passage.decided].columns
    if passage.why == "held":
        asked = (c for question in passage.node.questions for c in question.columns)
        return tuple(dict.fromkeys(asked))
    own = passage.node.questions[0]
    gone = tuple(column for column in own.columns if not _has(own, row[column]))
    return gone or own.columns


def _has(question: Question, x: float) -> bool:
    return x == x if question.weights else 0 <= x < len(question.branches)
