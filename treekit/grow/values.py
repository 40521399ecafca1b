"""What the nodes of a tree say, from their statistics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from treekit.contracts import Layout
from treekit.grow.asking import asked
from treekit.grow.criterion import CompiledCriterion
from treekit.grow.target import Target
from treekit.isolation import FOREIGN, cause, isolated

__all__ = ["node_values"]


def node_values(
    target: Target, criterion: CompiledCriterion, stats: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """(nodes, values) float64: class weights, or a number for each target, of (nodes, S)."""
    if target.layout is not None:
        return _answers(target.layout, target.n_answers, criterion, stats)
    if not target.dense:
        return stats.copy()  # of the nodes alone, not of what growth had room for
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


def _answers(
    layout: Layout, n_answers: int, criterion: CompiledCriterion, stats: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """What a task says of nodes, checked."""
    origin = criterion.origin
    rows = stats.copy()
    rows.flags.writeable = False
    try:
        said = np.array(isolated(str(origin), layout.answer, rows), dtype=np.float64)
    except FOREIGN as error:
        raise origin.error(f"raised {cause(error)} in answer") from error
    if said.shape != (len(rows), n_answers):
        raise origin.error(
            f"answered the statistics of {len(rows)} nodes by numbers of shape {said.shape}, not "
            f"({len(rows)}, {n_answers})"
        )
    least = -np.inf if layout.names else 0.0
    wrong = ~(np.isfinite(said) & (said >= least)).all(axis=1)
    if not layout.names:
        wrong |= ~(said.sum(axis=1) > 0.0)
    if wrong.any():
        at = int(wrong.argmax())
        kind = "that are finite" if layout.names else "of classes, not negative and not all 0"
        raise origin.error(
            f"answered the statistics {rows[at].tolist()} by {said[at].tolist()}; it is to answer "
            f"numbers {kind}"
        )
    return said


def _own_values(
    criterion: CompiledCriterion,
    leaf_value: Callable[..., float],
    stats: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """A criterion's own leaf values, one call a node."""
    origin = criterion.origin
    return np.array([asked(origin, "leaf_value", leaf_value, row) for row in stats])
