"""Rows that grew out of others, and what they touch.

For all that is wished of a node that some row reaches, that row is changed
(`treekit.kernels.witness_search`); one whose wish came true may reach new nodes.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import floor_to
from treekit.verify.linear import inner_points
from treekit.verify.routed import Routed, matrix_of, nothing_touched, route_rows
from treekit.verify.spread import random_rows

if TYPE_CHECKING:
    from treekit.kernels.reachability import Can, Touched

__all__ = ["Hunt", "drawn"]

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

_ROUNDS = 60
_IDLE_ROUNDS = 12
"""So many rounds without anything new end the search, or call for a linear programme."""


class Hunt:
    """Rows found so far, and for each wish the best of them.

    Attributes
    ----------
    cells : (rows, features) float64
        Every row, of the input type.
    touched : Touched
        What they touch.
    best : (wishes, features) float64
        The row of each wish that came true.
    outcome : (wishes,) int64
        0, or as `treekit.kernels.witness_search` says.
    until : float
        When to stop, as `time.monotonic` counts.
    """

    def __init__(
        self,
        of: Routed,
        wishes: npt.NDArray[np.void],
        start: Array,
        rng: np.random.Generator,
        until: float = math.inf,
    ) -> None:
        self.of, self.wishes, self.rng, self.until = of, wishes, rng, until
        self.cells = np.empty((0, of.model.schema.n_features))
        self.touched: Touched = nothing_touched(of)
        self.add(start)
        self.best = np.zeros((len(wishes), of.model.schema.n_features))
        self.outcome = np.zeros(len(wishes), dtype=np.int64)

    def add(self, rows: Array) -> None:
        """Route more rows."""
        cells = matrix_of(self.of.model, rows)
        route_rows(self.of, cells, len(self.cells), self.touched)
        self.cells = np.concatenate([self.cells, cells])

    def run(self, wanted: Index, can: Can | None = None, rounds: int = _ROUNDS) -> None:
        """Grant wishes until each has the outcome `wanted` of it or nothing more comes true.

        With `can`, linear programmes are asked for nodes that no row reaches,
        and without anything new the search ends early.
        """
        idle = 0
        for _ in range(rounds):
            if time.monotonic() > self.until:
                break
            reached = self.touched.node[self.wishes["target"]] >= 0
            left = np.flatnonzero((self.outcome < wanted) & reached)
            if not len(left) and can is None:
                break
            idle = 0 if self._round(left) else idle + 1
            if (can is not None and idle == _IDLE_ROUNDS) or not len(left):
                idle = 0
                if can is None or not self._ask_for_points(can):
                    break

    def _round(self, left: Index) -> bool:
        """Try to grant some wishes; whether any came true that had not, or better."""
        from treekit.kernels.witness_search import ABOVE, AT_MOST, UNKNOWN, grant, make_bits

        wishes = self.wishes[left]
        either = np.flatnonzero(wishes["sharp"] & (wishes["goal"] != UNKNOWN))
        wishes["goal"][either] = self.rng.choice([AT_MOST, ABOVE], len(either))
        rows, spare = self.varied(wishes["target"])
        outcome = np.zeros(len(left), dtype=np.int64)
        takes_missing = self.of.model.missing != "error"
        bits = make_bits(self.of.narrow)
        grant(self.of.routes, wishes, rows, spare, takes_missing, self.rng, bits, outcome)
        better = np.flatnonzero(outcome > self.outcome[left])
        if not len(better):
            return False
        self.best[left[better]] = rows[better]
        self.outcome[left[better]] = outcome[better]
        self.add(rows[better])
        return True

    def varied(self, nodes: Index) -> tuple[Array, Array]:
        """For each node, which some row reaches, such a row, and one of known values.

        Half of the rows take some values of the other, to find other answers;
        they may not reach the node any more.
        """
        rows = self.cells[self.touched.node[nodes]]
        spare = self.known(len(nodes))
        share = np.maximum(self.rng.random((len(nodes), 1)) * 1.6 - 0.8, 0.0)
        change = self.rng.random(rows.shape) < share
        return np.where(change, spare, rows), spare

    def known(self, n: int) -> Array:
        """Rows of known values, of the input type."""
        rows = matrix_of(self.of.model, drawn(self.of, n, self.rng))
        for f, column in enumerate(self.of.model.schema.columns):
            unknown = ~np.isfinite(rows[:, f])
            if column.kind == "numeric":
                rows[unknown, f] = np.rint(self.rng.normal(size=int(unknown.sum())) * 3)
            elif column.levels:
                rows[unknown, f] = self.rng.integers(len(column.levels), size=int(unknown.sum()))
        return rows

    def _ask_for_points(self, can: Can) -> bool:
        """Rows of linear programmes for nodes not reached; whether any of them is now."""
        lacking = np.flatnonzero(can.node & (self.touched.node < 0))
        if not len(lacking):
            return False
        self.add(inner_points(self.of, lacking, self.known(len(lacking)), self.until))
        return bool((self.touched.node[lacking] >= 0).any())

    def touching(self) -> Array:
        """Rows that together touch all that any row does."""
        parts = [part.ravel() for part in self.touched if part.dtype == np.int64]
        numbers = np.unique(np.concatenate(parts))
        found: Array = self.cells[numbers[numbers >= 0]]
        return found


def drawn(of: Routed, n: int, rng: np.random.Generator) -> Array:
    """Random rows around the thresholds, some of them with many missing values."""
    model = of.model
    pools = [_pool(of, f) for f in range(model.schema.n_features)]
    rows = random_rows(model, pools, n, rng)
    if model.missing != "error":
        often = rng.random(n) < 0.25
        rows[often[:, None] & (rng.random(rows.shape) < 0.4)] = np.nan
    return rows


def _pool(of: Routed, feature: int) -> Array:
    """Where tests of a column turn, or would if it were alone in its sum."""
    tests = of.tests
    at = np.flatnonzero(tests.term_feature == feature)
    test = np.searchsorted(tests.term_start, at, side="right") - 1
    with np.errstate(over="ignore"):
        values = floor_to(tests.threshold[test] / tests.term_weight[at], of.model.schema.dtype)
    return np.unique(values[np.isfinite(values)])
