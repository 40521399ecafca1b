"""Working memory for the growth of one tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.grow.target import Target
from treekit.kernels.axis_splits import STEPS
from treekit.kernels.quantile_splits import PLACES, words_for
from treekit.kernels.quantile_statistics import START
from treekit.kernels.random_splits import KEYS
from treekit.kernels.records import Scratch, Table

__all__ = ["make_scratch"]


def make_scratch(
    table: Table,
    target: Target,
    most: int,
    seed: int,
    options: tuple[float, ...] = (),
    signs: npt.NDArray[np.float64] | None = None,
    *,
    intervals: bool = False,
    lines: npt.NDArray[Any] | None = None,
) -> Scratch:
    """Working memory for nodes of up to `most` rows; `seed` draws columns.

    `intervals`: with room for as many cuts as a column has codes.
    """
    s = target.size
    room = max(most, 256) + 2
    # Keys are numbers, not places in an array: nothing is tallied by them.
    codes = int(table.n_codes.max(initial=0, where=table.n_codes != KEYS)) + 1
    compact = np.empty((max(min(codes, room), 256) + 2, s))
    # Branches of levels, or a column and a weight for each term of a sum.
    levels = max(int(table.n_codes[table.nominal > 0].max(initial=0)), 2 * len(table.n_codes)) + 2
    n_features = len(table.n_codes)
    scratch = Scratch(
        features=np.arange(n_features),
        state=np.array([seed], np.uint64),
        words=np.empty(max(2 * (codes // 64 + 1), 64), np.uint64),
        lanes=np.empty(0 if target.dense else most, np.uint64),
        packed=np.zeros(256, np.uint64),
        work=np.empty((4, room), np.uint32),
        counts=np.empty(2050, np.uint32),
        compact=compact,
        flat=compact.reshape(-1),
        ordered=np.empty((max(levels, STEPS + 1), s)),
        keys=np.empty(levels),
        start=np.empty(s),
        best=np.append(np.empty(s + 2), [0.0, 0.0, -np.inf, np.inf]),
        pair=np.empty((2, s)),
        offers=_offers(table, target, signs),
        levels=np.empty(max(levels, codes) if intervals else levels, np.int32),
        options=np.array(options),
        lines=np.empty(0, table.codes.dtype) if lines is None else lines,
    )
    return scratch if target.quantile is None else _for_ranks(scratch, codes, room)


def _for_ranks(scratch: Scratch, codes: int, room: int) -> Scratch:
    """The same for a rank target, whose search sorts rows and knows both sides of each cut.

    Words hold the codes present, then the rows on either side; counts are of codes,
    too; `ordered` has both sides of each cut, and `start` the rows of a node
    (`treekit.kernels.quantile_statistics`).
    """
    cuts = min(codes, room)
    return scratch._replace(
        words=np.empty(max(codes // 64 + 1, 2 * words_for(room)), np.uint64),
        work=np.empty((PLACES + 1, room), np.uint32),
        counts=np.empty(max(len(scratch.counts), codes), np.uint32),
        ordered=np.empty((max(len(scratch.keys), 2 * cuts + 1), 4)),
        start=np.empty(START + 8 * room + 4),  # trees of sums, of which most nodes need none, last
    )


def _offers(
    table: Table, target: Target, signs: npt.NDArray[np.float64] | None
) -> npt.NDArray[np.float64]:
    """Two rows to be filled at each node, levels per training weight, and constraints."""
    total = max(float(target.values[:, 0].sum()), 1e-300)
    levels = np.where(table.nominal > 0, table.n_codes / total, 0.0)
    free = np.zeros(len(levels))
    return np.vstack([np.empty((2, len(levels))), levels, free if signs is None else signs])
