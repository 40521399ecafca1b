"""Columns of foreign models: their names, and the categories behind their codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, level_text
from treekit.errors import ModelError

__all__ = [
    "MAX_COLUMNS",
    "MAX_RANGE",
    "Vocabulary",
    "checked_names",
    "checked_width",
    "columns_of",
    "named_vocabulary",
    "whole_vocabulary",
]

MAX_RANGE = 4096
"""Whole-number categories up to this one become the levels 0, 1, 2, ... without a gap."""

MAX_COLUMNS = 2**20
"""Most columns of a model that is read: a file may say any number of them."""

Ints = npt.NDArray[np.int64]


class Vocabulary:
    """The levels of one nominal column, and the code of each foreign category.

    Attributes
    ----------
    levels : tuple of str
    codes : (levels,) int64
        The foreign number of each level, ascending.
    """

    def __init__(self, levels: Sequence[str], codes: Ints) -> None:
        self.levels = tuple(levels)
        self.codes = codes

    def positions(self, foreign: Ints) -> Ints:
        """The level of each foreign number; -1 for one that has none."""
        if not len(self.codes):
            return np.full(len(foreign), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.codes, foreign), len(self.codes) - 1)
        return np.where(self.codes[at] == foreign, at, -1)


def whole_vocabulary(categories: Ints) -> Vocabulary:
    """Whole numbers as levels.

    Up to `MAX_RANGE` all from 0 to the largest: then the codes of an encoded
    row, which artifacts take, are the numbers themselves.  Beyond, only those
    that occur, in ascending order.
    """
    present = np.unique(categories[categories >= 0])
    if len(present) and present[-1] < MAX_RANGE:
        present = np.arange(int(present[-1]) + 1)
    if not len(present):
        present = np.zeros(1, dtype=np.int64)
    return Vocabulary([str(code) for code in present.tolist()], present)


def named_vocabulary(categories: Sequence[Any], what: str) -> Vocabulary:
    """Categories that have names or numbers of their own, by their position.

    Raises
    ------
    ModelError
        If two of them read the same, or one is missing.
    """
    levels = [level_text(category) for category in categories]
    if any(level is None for level in levels) or len(set(levels)) != len(levels):
        raise ModelError(f"the categories of {what} are missing or read the same: {levels!r:.80}")
    texts = [level for level in levels if level is not None]
    return Vocabulary(texts, np.arange(len(texts)))


def checked_width(n: int, source: str) -> int:
    """`n` columns, unless they are more than `MAX_COLUMNS`, or none."""
    if not 1 <= n <= MAX_COLUMNS:
        raise ModelError(f"{source} has {n} columns; treekit reads 1 to {MAX_COLUMNS}")
    return n


def checked_names(names: Sequence[str] | None, n: int, source: str) -> list[str]:
    """`names`, or ``x0``, ``x1``, ... where there are none; `n` of them, each its own."""
    if not names:
        return [f"x{i}" for i in range(n)]
    if len(names) != n or len(set(names)) != n:
        raise ModelError(f"{source} has {n} columns, but not as many names, each its own")
    return list(names)


def columns_of(
    names: Sequence[str], vocabularies: Sequence[Vocabulary | None]
) -> tuple[Column, ...]:
    """Numeric columns, and nominal ones where there is a vocabulary."""
    return tuple(
        Column(name) if one is None else Column(name, "nominal", one.levels)
        for name, one in zip(names, vocabularies, strict=True)
    )
