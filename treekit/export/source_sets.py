"""Nested tests that ask large sets of categories, as look-ups in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treekit.export.bitsets import set_words
from treekit.export.source import SourceFunction, SourceLine

__all__ = ["with_sets"]

_FEW = 4
"""Sets of more codes become bit masks."""


def with_sets(
    functions: Sequence[SourceFunction],
) -> tuple[list[SourceFunction], npt.NDArray[np.uint32]]:
    """Turn the lines that ask large sets into look-ups, ``in_set``.

    Returns
    -------
    functions : list of SourceFunction
        ``at`` of such a line is where its set starts in `words`.
    words : (words,) uint32
        See `treekit.export.bitsets`.
    """
    sets = [line.codes for f in functions for line in f.lines if len(line.codes) > _FEW]
    starts = np.cumsum([0, *map(len, sets)])
    words, offsets = set_words(starts, np.array([c for codes in sets for c in codes], np.int64))
    offset = iter(offsets.tolist())

    def looked_up(line: SourceLine) -> SourceLine:
        asks_set = len(line.codes) > _FEW
        return replace(line, op="in_set", at=next(offset)) if asks_set else line

    made = [replace(f, lines=tuple(map(looked_up, f.lines))) for f in functions]
    return made, words
