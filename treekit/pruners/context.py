"""What a pruner may ask about a grown tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Task
from treekit.errors import DataError
from treekit.grow.recipe import GrownTree
from treekit.kernels.records import Table
from treekit.pruners.losses import Losses

__all__ = ["Context"]

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Context:
    """A grown tree's statistics, node by node, in the grown tree's numbering.

    Attributes
    ----------
    grown : GrownTree
        The tree with the sums over its training rows, ``grown.stats`` (nodes,
        S), and over the hold-out rows, ``grown.held_stats`` (zeros without a
        hold-out): class weights, or ``(w, w * (y - center))``.
    table : Table
        Codes of the training columns.
    losses : Losses
        What a wrong answer costs: `costs` of a classification among them.
    folds : callable
        ``folds(k)``: k trees, each grown without one k-th of the rows, which
        are its hold-out.  Raises `DataError` where trees cannot be regrown.
    impurity : callable, optional
        ``impurity(stats)`` of the training's criterion.
    fractional : bool
        Whether rows go down every branch of a split whose value they miss.
    validated : bool
        Whether the hold-out rows are those of a validation table.
    report : dict
        What the pruner chose (an alpha); it becomes part of the model's provenance.
    """

    grown: GrownTree
    table: Table
    losses: Losses
    folds: Callable[[int], list[GrownTree]]
    impurity: Callable[[Numbers], float] | None = None
    fractional: bool = False
    validated: bool = False
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> Task:
        """``classification`` or ``regression``."""
        return self.losses.task

    @property
    def costs(self) -> npt.NDArray[np.int64] | None:
        """(classes, classes) int64, ``costs[i][j]`` for saying j when it is i; None: all 1."""
        return self.losses.costs

    @property
    def stats(self) -> Numbers:
        """(nodes, S) sums over the training rows."""
        return self.grown.stats

    @property
    def held_stats(self) -> Numbers:
        """(nodes, S) sums over the hold-out rows."""
        return self.grown.held_stats

    @property
    def risk(self) -> Numbers:
        """(nodes,) training cost of each node as a leaf; see `Losses.risk`."""
        return self.losses.risk(self.grown, self.stats)

    @property
    def held_risk(self) -> Numbers:
        """(nodes,) hold-out cost of each node as a leaf."""
        return self.losses.risk(self.grown, self.held_stats)

    def need_holdout(self, pruner: str) -> None:
        """Raise `DataError` unless some rows were set aside."""
        if not self.held_stats[0].any():
            raise DataError(
                f"{pruner} has no hold-out rows: raise its setting holdout, or the rows, or give "
                "a validation table"
            )
