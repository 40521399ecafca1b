"""How far one value of a column is from another, and numbers that read well.

A number's change counts in spreads of its column, a change of level as 1, and so does a
value in the place of a missing one.  The spread is the range of the model's own
thresholds of the column; where there is but one, its size, or that of the row's value, or
1.  With a table it is the median absolute deviation of the column's cells (Wachter,
Mittelstadt and Russell 2018, the weights of their distance); where that is 0, the mean one.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.features import numeric_cells
from treekit.data.schema import Dtype, Schema
from treekit.data.table import Table

__all__ = ["Scale", "round_numeral", "scales"]

Doubles = npt.NDArray[np.float64]

_FURTHER = 0.01
"""A round number may lie further than the nearest one by this part of the change; whole
numbers, which people count by, may not."""
_WHOLE_LIMIT = 2.0**24
"""Below it each whole number is a float32."""


class Scale(NamedTuple):
    """What changes of a numeric column are measured by.

    Attributes
    ----------
    x : float
        The row's value; NaN if there is none to compare with.
    spread : float
    whole : bool
        Whether the column takes whole numbers only: all of its thresholds are whole
        numbers or lie halfway between two, and the row's value is one.
    dtype : {"float32", "float64"}
    """

    x: float
    spread: float
    whole: bool
    dtype: Dtype

    def nearest(self, low: Doubles, high: Doubles) -> Doubles:
        """For each interval ``low < v <= high`` the value nearest to the row's; NaN: none.

        Where the row has no value: the middle of a bounded interval, else its bound.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            first = np.nextafter(low.astype(self.dtype), np.inf, dtype=self.dtype)
            lowest = np.floor(low) + 1.0 if self.whole else first.astype(np.float64)
            highest = np.floor(high) if self.whole else high
            if math.isnan(self.x):
                middle = np.where(np.isinf(lowest), highest, np.where(
                    np.isinf(highest), lowest, lowest / 2 + highest / 2))  # fmt: skip
                middle = np.where(np.isfinite(middle), middle, 0.0)
                rounded = np.floor(middle) if self.whole else middle.astype(self.dtype)
                value = np.clip(rounded.astype(np.float64), lowest, highest)
            else:
                value = np.clip(self.x, lowest, highest)
        fits = (low < value) & (value <= high) & np.isfinite(value)
        return np.where(fits, value, np.nan)

    def sizes(self, values: Doubles) -> Doubles:
        """How much a change to each of the values counts; infinite for NaN."""
        if math.isnan(self.x):
            return np.where(np.isnan(values), np.inf, 1.0)
        with np.errstate(over="ignore"):
            size = np.abs(values - self.x) / self.spread
        return np.where(np.isnan(values), np.inf, size)


def scales(
    schema: Schema, row: list[float], thresholds: list[Doubles], table: Table | None
) -> list[Scale]:
    """The scale of each column; that of a nominal one means nothing."""
    found = []
    for column, given, at in zip(schema.columns, row, thresholds, strict=True):
        x = given if math.isfinite(given) else math.nan
        whole = _is_whole(at) and (math.isnan(x) or x == math.floor(x))
        spread = _of_cells(table, column.name) if table and column.kind == "numeric" else 0.0
        spread = spread or _of_thresholds(at, x)
        found.append(Scale(x, spread, whole, schema.dtype))
    return found


def _is_whole(at: Doubles) -> bool:
    """Whether thresholds are whole numbers, or lie halfway between two."""
    if not len(at) or not bool(np.all(np.abs(at) < _WHOLE_LIMIT)):
        return False
    return bool(np.all(2 * at == np.rint(2 * at)))


def _of_thresholds(at: Doubles, x: float) -> float:
    if len(at) > 1:
        return float(at[-1] / 2 - at[0] / 2) * 2 or 1.0
    sizes = [abs(float(t)) for t in at] + ([] if math.isnan(x) else [abs(x)])
    return max(sizes, default=0.0) or 1.0


def _of_cells(table: Table, name: str) -> float:
    """The median absolute deviation of a column; 0 if it has no spread, or is not there."""
    if name not in table.names:
        return 0.0
    cells = numeric_cells(table, name).astype(np.float64)
    known = cells[np.isfinite(cells)]
    if not len(known):
        return 0.0
    apart = np.abs(known - np.median(known))
    return float(np.median(apart) or apart.mean())


def round_numeral(scale: Scale, low: float, high: float, nearest: float) -> str:
    """The text of a round number v, ``low < v <= high``, not much further than the nearest one.

    Of whole columns a whole number.  The text reads back, as the input type, to a number in
    the interval.
    """
    with localcontext() as context:
        context.prec = 800  # each double is an exact decimal of fewer digits
        at = Decimal(nearest)
        unknown = math.isnan(scale.x)
        down = not unknown and nearest < scale.x
        part = Decimal(0 if scale.whole else _FURTHER)
        room = Decimal(math.inf) if unknown else abs(at - Decimal(scale.x)) * part
        top = max(at.adjusted() if at else 0, 0) + 1
        for power in range(top, -1 if scale.whole else -340, -1):
            rounding = ROUND_FLOOR if down else ROUND_CEILING
            value = at.quantize(Decimal(1).scaleb(power), rounding) + 0  # -0 becomes 0
            inside = low < _read(value, scale.dtype) <= high
            if inside and (abs(value - at) <= room or (scale.whole and power == 0)):
                plain = power >= -6 and top < 16
                return f"{value:f}" if plain else f"{value.normalize():e}".replace("e+", "e")
        return repr(nearest)


def _read(value: Decimal, dtype: Dtype) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(float(value))) if dtype == "float32" else float(value)
