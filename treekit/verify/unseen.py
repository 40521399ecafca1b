"""A category that no training row had, as text."""

from __future__ import annotations

from treekit.data.schema import Column

__all__ = ["unseen_text"]


def unseen_text(column: Column) -> str:
    """A text outside the vocabulary of a nominal column, near to one inside it."""
    text = (column.levels[0] if column.levels else "") + "~"
    while text in column.levels:
        text += "~"
    return text
