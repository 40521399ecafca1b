"""Decision path of a row through a tree: the test, the decision and the children at each node."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.split_tests import NO_BRANCH, InnerNode, SplitTest, TreeNodes, find_branch
from treekit.model.tree import Split

DecisionReason = Literal["answered", "surrogate", "lost", "divided", "held", "failed"]
"""How the branch at a node was chosen.

``answered``: by the node's own test.  ``surrogate``: by a surrogate.  ``lost``: no test
applied, and the row took the branch for missing values.  ``divided``: no test applied, and
the row was split among all branches.  ``held``, ``failed``: by the conditions of a rule.
"""


class Passage(NamedTuple):
    """A row, or a fractional instance, at an inner node.

    Attributes
    ----------
    node_id : int
        The node.
    node : InnerNode
    reason : DecisionReason
    question_index : int
        Index of the test that applied; -1 if none did.
    child_masses : tuple of (int, int)
        Children, each with its part of the mass.
    mass : int
        Mass of the row or instance at the node; `Model.mass` is a complete row.
    """

    node_id: int
    node: InnerNode
    reason: DecisionReason
    question_index: int
    child_masses: tuple[tuple[int, int], ...]
    mass: int


def trace_row(
    nodes: TreeNodes, row: list[float], mass: int, bounds: npt.NDArray[np.int64] | None
) -> tuple[list[Passage], list[tuple[int, int]]]:
    """Return the passages of a row (parents first, left before right) and the leaves it reaches.

    Parameters
    ----------
    nodes : TreeNodes
    row : (features,) list of float
        Encoded.
    mass : int
        Mass of the row.
    bounds : (nodes, 2) int64, optional
        From `treekit.model.fixed_point.compute_mass_bounds`, for fractional instances.

    Returns
    -------
    passages : list of Passage
    leaves : list of (int, int)
        Leaves and the positive mass that ends in each.
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
        passage = _pass_node(number, node, row, part, bounds)
        passages.append(passage)
        stack += [(child, some) for child, some in reversed(passage.child_masses) if some]
    return passages, leaves


def _pass_node(
    number: int, node: InnerNode, row: list[float], mass: int, bounds: npt.NDArray[np.int64] | None
) -> Passage:
    is_rule = node.kind == Split.RULE
    reason: DecisionReason
    for place, test in enumerate(node.tests):
        branch = find_branch(test, row)
        if branch != NO_BRANCH:
            reason = "failed" if is_rule else "surrogate" if place else "answered"
            return Passage(number, node, reason, place, ((node.children[branch], mass),), mass)
    if bounds is not None and not is_rule:
        return Passage(number, node, "divided", -1, tuple(split_mass(node, mass, bounds)), mass)
    reason = "held" if is_rule else "lost"
    child = node.children[node.missing_branch]
    return Passage(number, node, reason, -1, ((child, mass),), mass)


def split_mass(node: InnerNode, mass: int, bounds: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the children of a node that splits a fractional instance, with the mass of each."""
    limits = [(child, *bounds[child].tolist()) for child in node.children]
    return [(child, (mass * high >> 24) - (mass * low >> 24)) for child, low, high in limits]


def list_deciding_columns(passage: Passage, row: list[float]) -> tuple[int, ...]:
    """Return the columns that decided at a node.

    If a question applied: its columns.  If none did, missing values decided: the columns of the
    node's own question without a value, or all of them if each has one (unseen category,
    infinities that cancel).  A rule that holds depends on all of its conditions.
    """
    if passage.question_index >= 0:
        return passage.node.tests[passage.question_index].columns
    if passage.reason == "held":
        columns = (c for test in passage.node.tests for c in test.columns)
        return tuple(dict.fromkeys(columns))
    own = passage.node.tests[0]
    gone = tuple(column for column in own.columns if not _has_value(own, row[column]))
    return gone or own.columns


def _has_value(test: SplitTest, x: float) -> bool:
    return x == x if test.weights else 0 <= x < len(test.branches)
