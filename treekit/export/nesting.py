"""A lowered tree as nested if/else, in functions that no compiler finds too deep."""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

from treekit.export.lower import LoweredTree, Step

__all__ = ["AS_ASKED", "SMALL", "Form", "Line", "choose_form", "nested"]

Form = Literal["if_else", "table"]
AS_ASKED = "as the setting form asks"
"""The reason of a form that was not chosen."""
SMALL = 2000
"""Most nodes of a model that `choose_form` writes as if/else."""


class Line(NamedTuple):
    """One line of nested source.

    Attributes
    ----------
    op : {"test", "otherwise", "end", "leaf", "call"}
    depth : int
        How deep it is nested in its function.
    at : int
        The node of a test or leaf; the number of the function that is called.
    """

    op: Literal["test", "otherwise", "end", "leaf", "call"]
    depth: int
    at: int


def choose_form(wanted: str, n_nodes: int, most: int = SMALL) -> tuple[Form, str]:
    """Choose the form of the source; the form and the reason in words."""
    if wanted == "if_else":
        return "if_else", AS_ASKED
    if wanted == "table":
        return "table", AS_ASKED
    if n_nodes <= most:
        return "if_else", f"the model has {n_nodes} nodes, and up to {most} can be read as tests"
    return (
        "table",
        f"the model has {n_nodes} nodes; beyond {most}, tables are smaller and ready sooner",
    )


def nested(tree: LoweredTree, deepest: int, most: int | None = None) -> list[list[Line]]:
    """Functions of nested tests; number 0 is the whole tree.

    A subtree at depth `deepest`, and, where a function would hold more than `most`
    tests, the subtrees farthest from its root become functions of their own,
    called with their numbers, which are larger than the caller's.
    """
    roots = deque([0])
    functions: list[list[Line]] = []
    while roots:
        made: list[Line] = []
        root = roots.popleft()
        own = None if most is None else _nearest(tree, root, most)
        todo = [("node", 0, root)]
        while todo:
            op, depth, at = todo.pop()
            if op != "node":
                made.append(Line("end" if op == "end" else "otherwise", depth, at))
            elif tree.kind[at] == Step.LEAF:
                made.append(Line("leaf", depth, at))
            elif depth == deepest or (own is not None and at not in own):
                roots.append(at)
                made.append(Line("call", depth, len(functions) + len(roots)))
            else:
                made.append(Line("test", depth, at))
                todo += [
                    ("end", depth, at),
                    ("node", depth + 1, int(tree.no[at])),
                    ("otherwise", depth, at),
                    ("node", depth + 1, int(tree.yes[at])),
                ]
        functions.append(made)
    return functions


def _nearest(tree: LoweredTree, root: int, most: int) -> set[int]:
    """The `most` tests of a subtree that are nearest to its root."""
    found: set[int] = set()
    todo = deque([root])
    while todo and len(found) < most:
        at = todo.popleft()
        if tree.kind[at] != Step.LEAF:
            found.add(at)
            todo += [int(tree.yes[at]), int(tree.no[at])]
    return found
