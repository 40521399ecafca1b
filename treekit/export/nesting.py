"""A lowered tree as nested if/else, in functions that no compiler finds too deep."""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

from treekit.export.lower import LoweredTree, Step

__all__ = ["SMALL", "Form", "Line", "choose_form", "nested"]

Form = Literal["if_else", "table"]
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
        return "if_else", "as the setting form asks"
    if wanted == "table":
        return "table", "as the setting form asks"
    if n_nodes <= most:
        return "if_else", f"the model has {n_nodes} nodes, at most {most}"
    return "table", f"the model has {n_nodes} nodes, more than {most}"


def nested(tree: LoweredTree, deepest: int) -> list[list[Line]]:
    """Functions of nested tests; number 0 is the whole tree.

    A subtree at depth `deepest` becomes a function of its own, called with its
    number, which is larger than the caller's.
    """
    roots = deque([0])
    functions: list[list[Line]] = []
    while roots:
        made: list[Line] = []
        todo = [("node", 0, roots.popleft())]
        while todo:
            op, depth, at = todo.pop()
            if op != "node":
                made.append(Line("end" if op == "end" else "otherwise", depth, at))
            elif tree.kind[at] == Step.LEAF:
                made.append(Line("leaf", depth, at))
            elif depth == deepest:
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
