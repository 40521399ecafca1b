"""Readable thresholds, found by decimal arithmetic: plain and slow."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import numpy as np

__all__ = ["readable_threshold"]


def readable_threshold(low: float, high: float, dtype: type[np.floating]) -> float | None:
    """Return the number with the fewest decimals within 1% of the gap around the midpoint."""
    with localcontext(prec=400):
        a, b = Decimal(low), Decimal(high)
        middle = (a + b) / 2
        for places in range(-40, 23):
            number = middle.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
            if abs(number.scaleb(places)) >= 2**53:
                return None
            if abs(number - middle) <= (b - a) / 100:
                value = float(dtype(float(number)))
                if low <= value < high:
                    return value + 0.0
    return None
