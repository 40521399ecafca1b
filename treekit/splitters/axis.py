"""The search along single columns, for every kind of statistics."""

from __future__ import annotations

from treekit.kernels.axis_splits import find_axis, find_axis_of_numbers
from treekit.kernels.compile import Finder
from treekit.kernels.quantile_splits import find_rank_axis

__all__ = ["AXIS"]

AXIS = Finder(find_axis, numbers=find_axis_of_numbers, ranked=find_rank_axis, bounded=True)
