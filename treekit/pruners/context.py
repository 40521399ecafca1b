"""What a pruner may ask about a grown tree, and how it cuts one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Task
from treekit.errors import DataError
from treekit.grow.builder import GrownTree
from treekit.model.tree import Split, Tree

__all__ = ["Context", "collapse"]


@dataclass(frozen=True)
class Context:
    """A grown tree's statistics, node by node, in the grown tree's numbering.

    Attributes
    ----------
    task : {"classification", "regression"}
    stats, held_stats : (nodes, S) float64
        Sums over the training rows and over the hold-out rows (zeros without a
        hold-out): class weights, or ``(w, w * (y - center))``.
    folds : callable
        ``folds(k)``: k trees, each grown without one k-th of the rows, which
        are its hold-out.  Raises `DataError` where trees cannot be regrown.
    report : dict
        What the pruner chose (an alpha); it becomes part of the model's provenance.
    """

    task: Task
    stats: npt.NDArray[np.float64]
    held_stats: npt.NDArray[np.float64]
    folds: Callable[[int], list[GrownTree]]
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def risk(self) -> npt.NDArray[np.float64]:
        """(nodes,) training cost of each node as a leaf; see `risks`."""
        return risks(self.task, self.stats, self.stats)

    @property
    def held_risk(self) -> npt.NDArray[np.float64]:
        """(nodes,) hold-out cost of each node as a leaf."""
        return risks(self.task, self.stats, self.held_stats)

    def need_holdout(self, pruner: str) -> None:
        """Raise `DataError` unless some rows were set aside."""
        if not self.held_stats[0].any():
            raise DataError(
                f"{pruner} has no hold-out rows: raise its setting holdout, or the rows"
            )


def risks(
    task: Task, stats: npt.NDArray[np.float64], judged: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Cost of `judged` rows at each node when it answers as its training `stats` say.

    Classes: the weight of rows not of the node's label.  Numbers: the squared
    error less ``sum(w * y**2)``, which is the same for every way to cut the tree.
    """
    if task == "classification":
        label = stats.argmax(axis=1)
        right = np.take_along_axis(judged, label[:, None], axis=1)[:, 0]
        return np.asarray(judged.sum(axis=1) - right)
    mean = stats[:, 1] / stats[:, 0]
    return np.asarray(mean * (mean * judged[:, 0] - 2.0 * judged[:, 1]))


def collapse(tree: Tree, cut: npt.NDArray[np.bool_]) -> Tree:
    """The tree in which every node of the mask `cut` (nodes,) is a leaf.

    Nodes below a cut go; the others keep their order.
    """
    parent = tree.parent
    gone = np.zeros(tree.n_nodes, dtype=np.bool_)
    closed = cut | (tree.kind == Split.LEAF)
    level = np.flatnonzero(parent < 0)
    kept = [level]
    # One level of the tree at a time, so that depth costs no recursion.
    while len(level := level[~closed[level]]):
        counts = tree.n_children[level]
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        level = np.repeat(tree.first_child[level].astype(np.int64), counts) + offset
        kept.append(level)
    gone[:] = True
    gone[np.concatenate(kept)] = False
    keep = np.flatnonzero(~gone)
    return tree.take(keep, closed[keep])
