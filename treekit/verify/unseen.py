"""Rows of codes as people write them, with the text of categories, unseen ones too."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Schema

__all__ = ["cells_of", "unseen_text"]


def unseen_text(column: Column) -> str:
    """A text outside the vocabulary of a nominal column, near to one inside it."""
    text = (column.levels[0] if column.levels else "") + "~"
    while text in column.levels:
        text += "~"
    return text


def cells_of(schema: Schema, row: npt.NDArray[np.float64]) -> list[float | str | None]:
    """The cells of a row (features,) of numbers and codes; None = missing."""
    cells: list[float | str | None] = []
    for column, x in zip(schema.columns, row.tolist(), strict=True):
        if x != x:
            cells.append(None)
        elif column.kind == "numeric":
            cells.append(x)
        else:
            known = 0 <= x < len(column.levels) and x == int(x)
            cells.append(column.levels[int(x)] if known else unseen_text(column))
    return cells
