"""Bootstrap samples that do not depend on how the table is written down.

Draws go by position in an order of the rows that their contents give.  So a
forest is the same for any order of the rows, and for a row of weight 3 in
place of three equal rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.grow.grid import draws_of
from treekit.grow.target import Target
from treekit.kernels.records import Table

__all__ = ["Bootstrap", "make_bootstrap"]

_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX2 = np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True)
class Bootstrap:
    """How samples are drawn with replacement (Breiman 1996).

    Attributes
    ----------
    ids : (rows,) uint32
        Training rows, in the order of their contents.
    ends : (rows,) float64, or None
        Cumulative weights in that order; None: all rows weigh 1.
    n_draws : int
    unit : float
        Weight of one draw, before a row's factor.
    """

    ids: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.float64] | None
    n_draws: int
    unit: float = 1.0

    def sample(self, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Times that each of `ids` is drawn: (rows,) int64."""
        n = len(self.ids)
        at = rng.random(self.n_draws)
        at *= float(n) if self.ends is None else float(self.ends[-1])
        # Position p falls in the row whose weight spans it; with weights of 1, row floor(p).
        drawn = at.astype(np.int64) if self.ends is None else self.ends.searchsorted(at, "right")
        return np.bincount(drawn, minlength=n)


def make_bootstrap(
    ids: npt.NDArray[np.uint32],
    table: Table,
    target: Target,
    max_samples: int | float | None = None,
) -> Bootstrap:
    """Prepare to draw from the training rows `ids`.

    `max_samples` are the rows drawn: a number, or as float a share of as many
    as there are; None: all of them.  Each draw weighs the same in any case,
    but for the factors of its row (class weights).  Rows that add to no
    statistics are not drawn.

    Cost: a pass over each column, and one sort of as many integers as rows.
    """
    own = target.draw_weights
    ids = ids[target.values[ids, 0] > 0]
    if own is not None:
        ids = ids[own[ids] > 0]
    order = ids[np.argsort(_contents(ids, table, target), kind="stable")]
    if own is None:
        return Bootstrap(order, None, _n_draws(len(ids), max_samples))
    weights = own[order]
    n_draws = _n_draws(draws_of(weights), max_samples)
    return Bootstrap(order, np.cumsum(weights), n_draws, target.draw_unit)


def _n_draws(full: int, max_samples: int | float | None) -> int:
    if max_samples is None:
        return full
    if isinstance(max_samples, float):
        return max(round(max_samples * full), 1)
    return max_samples


def _contents(ids: npt.NDArray[np.uint32], table: Table, target: Target) -> npt.NDArray[np.uint64]:
    """(rows,) uint64: a hash of each row's values and target.

    Equal for equal rows, which are interchangeable.  Others collide once in
    2**64 pairs, and then keep the order of the table.
    """
    if target.dense:
        # What a task placed, not what that weighs: class weights change no draw.
        told = target.values if target.placed is None else target.placed
        several = target.blocks is not None or target.layout is not None
        key = _mixed((told[ids, min(1, told.shape[1] - 1)] + 0.0).view(np.uint64))
        for column in told.T[2:] if several else ():
            key = _mixed(key ^ (column[ids] + 0.0).view(np.uint64))
    else:
        key = _mixed(target.cells[ids].astype(np.uint64))
    every = len(ids) == table.codes.shape[1] and bool(np.all(ids[1:] > ids[:-1]))
    at = ids.astype(np.intp)
    for f, codes in enumerate(table.codes):
        code = (codes if every else codes.take(at)).astype(np.intp)
        # Ranks among the values present: codes also count those of rows without weight.
        present = np.zeros(int(table.n_codes[f]) + 1, dtype=np.uint64)
        present[code] = 1
        key = _mixed(key ^ present.cumsum(dtype=np.uint64).take(code))
    return np.asarray(key, dtype=np.uint64)


def _mixed(key: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A permutation of 64 bits that spreads each of them over all; 0 is not left as it is."""
    key = (key + _MIX) * _MIX
    key ^= key >> np.uint64(29)
    key *= _MIX2
    key ^= key >> np.uint64(32)
    return key
