"""Conditions of rules as flat arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.tree import gathered

__all__ = ["ConditionTable"]


class ConditionTable(NamedTuple):
    """The conditions of all rules, one after the other.

    Attributes
    ----------
    column : (conditions,) int32
        Columns of the schema, and behind them the tests.
    low, high : (conditions,) float64
    known, missing : (conditions,) bool
    part_low, part_high : (conditions,) int32
        What a missing value keeps of a row's mass; see `Condition.part`.
    dividing : (conditions,) int64
        How many of a condition's levels, the last ones, divide a row as a missing value does.
    level_end : (conditions,) int64
        A condition's levels end here and start where the previous one's end.
    levels : (codes,) int32
        Levels that fit, ascending within a condition, the dividing ones apart.
    """

    column: npt.NDArray[np.int32]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    known: npt.NDArray[np.bool_]
    missing: npt.NDArray[np.bool_]
    part_low: npt.NDArray[np.int32]
    part_high: npt.NDArray[np.int32]
    dividing: npt.NDArray[np.int64]
    level_end: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int32]

    def codes(self, condition: int) -> tuple[list[int], list[int]]:
        """The levels that fit a condition, and those that divide a row there."""
        start = int(self.level_end[condition - 1]) if condition else 0
        end = int(self.level_end[condition])
        middle = end - int(self.dividing[condition])
        return self.levels[start:middle].tolist(), self.levels[middle:end].tolist()

    def take(self, which: npt.NDArray[np.int64]) -> ConditionTable:
        """The conditions `which`, in that order."""
        sizes = np.diff(self.level_end, prepend=0)[which]
        levels = gathered(self.levels, self.level_end[which] - sizes, sizes)
        rows = {name: getattr(self, name)[which] for name in self._fields if "level" not in name}
        return ConditionTable(**rows, level_end=np.cumsum(sizes), levels=levels)
