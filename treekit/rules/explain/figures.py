"""What columns add, in figures that add up as they are shown."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from treekit.rules.explain.records import Sums

__all__ = ["figures_of", "total_of"]

_MOST_DECIMALS = 15
"""Of smaller numbers, as of those from 1e15 on, each is written with an exponent."""


def figures_of(one: Sums, parts: Sequence[int]) -> list[str]:
    """The parts, rounded so that those shown add up to the total shown.

    Running totals are rounded, and a part is the difference of two of them: none is off
    by more than one in the last place.
    """
    decimals = _decimals(one, parts)
    if decimals is None:
        texts = [f"{one.number(units):.6g}" for units in parts]
    else:
        scale = 10.0**decimals
        running = [round(one.number(units) * scale) for units in itertools.accumulate(parts)]
        steps = [b - a for a, b in itertools.pairwise([0, *running])]
        texts = [f"{step / scale:.{decimals}f}" for step in steps]
    return [texts[0], *(text if text.startswith("-") else f"+{text}" for text in texts[1:])]


def total_of(one: Sums, parts: Sequence[int]) -> str:
    """The total, written as the parts are."""
    decimals, total = _decimals(one, parts), one.number(one.total)
    return f"{total:.6g}" if decimals is None else f"{total:.{decimals}f}"


def _decimals(one: Sums, parts: Sequence[int]) -> int | None:
    """As many decimals as tell the largest part to four digits; None if exponents tell them."""
    largest = max(abs(one.number(units)) for units in (*parts, one.total))
    if largest == 0:
        return 0
    if not largest < 1e15:
        return None
    votes = one.label is not None and not one.margin
    decimals = 4 if votes else max(3 - math.floor(math.log10(largest)), 0)
    return decimals if decimals <= _MOST_DECIMALS else None
