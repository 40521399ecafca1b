"""What the nodes of a tree say, from their statistics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from treekit.grow.criterion import CompiledCriterion
from treekit.grow.target import Target

__all__ = ["node_values"]


def node_values(
    target: Target, criterion: CompiledCriterion, stats: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """(nodes, values) float64: class weights, or a number for each target, of (nodes, S)."""
    if not target.dense:
        return stats
    if target.counts_classes:
        return stats[:, 1:]
    leaf_value = criterion.functions.leaf_value
    if leaf_value is not None:
        blocks = target.blocks
        own = [stats] if blocks is None else [blocks.own(stats, k) for k in range(blocks.count)]
        values = [_own_values(criterion, leaf_value, each) for each in own]
        return np.stack(values, axis=1) + target.center
    if target.quantile is not None:
        return stats[:, 1:2]
    return np.asarray(stats[:, 1:] / stats[:, :1] + target.center)


def _own_values(
    criterion: CompiledCriterion,
    leaf_value: Callable[..., float],
    stats: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """A criterion's own leaf values, one call a node."""
    rows = stats.copy()
    rows.flags.writeable = False
    origin = criterion.origin
    try:
        values = np.array([float(leaf_value(row)) for row in rows])
    except Exception as error:
        raise origin.error(f"raised {type(error).__name__} in leaf_value: {error}") from error
    if not np.all(np.isfinite(values)):
        given = rows[~np.isfinite(values)][0].tolist()
        raise origin.error(f"returned a leaf value that is not finite for the statistics {given}")
    return values
