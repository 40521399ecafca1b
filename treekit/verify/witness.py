"""The search for rows that reach every part of models that are not plain.

Random rows first; they are changed until every outcome of every test at every
node was seen (`treekit.verify.hunt`).  What boxes do not exclude and no row
reached is asked of a linear programme (`treekit.verify.linear`).  Rows that
show a wrong turn in the answer are preferred to others, and, at sums, rows
that show the last bit of each number.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import double_threshold
from treekit.model.model import Model
from treekit.verify.hunt import Hunt, drawn
from treekit.verify.possible import reachable
from treekit.verify.routed import Routed, accepts_any, routed
from treekit.verify.unanimous import divided_rows
from treekit.verify.wishes import uniform_nodes, wishes_of

if TYPE_CHECKING:
    from treekit.kernels.reachability import Can

__all__ = ["Witnesses", "search"]

Array = npt.NDArray[np.float64]

_START_ROWS = 500
_EXACT_TRIES = 50_000
"""About so many tries, but 4 to 60 a wish, go to last bits of doubles, which few inputs show."""


@dataclass(frozen=True)
class Witnesses:
    """What the search found.

    Attributes
    ----------
    rows : (rows, features) float64
    can : Can
        What inputs can touch.
    wrong_turns : (3,) int64
        As in `treekit.verify.probes.Probes`.
    last_bits : (int, int)
        As in `treekit.verify.probes.Probes`.
    complete : bool
        Whether every wish was tried within the bounds of rows and time.
    """

    rows: Array
    can: Can
    wrong_turns: npt.NDArray[np.int64]
    last_bits: tuple[int, int]
    complete: bool


def search(
    model: Model,
    n_random: int,
    max_rows: int,
    rng: np.random.Generator,
    until: float = math.inf,
) -> Witnesses:
    """Search for rows, at most some `max_rows` besides the random ones, until a time."""
    from treekit.kernels.witness_search import EXACT, SHARP, TELLS, UNKNOWN

    of = routed(model)
    can = reachable(of)
    wishes = wishes_of(of)
    complete = len(wishes) <= max_rows
    if not complete:
        # One wrong branch of each value comes first; of the rest every k-th.
        wishes = wishes[np.argsort(wishes["step"], kind="stable")]
        wishes = wishes[:: -(-len(wishes) // max_rows)]
    start = drawn(of, max(n_random, _START_ROWS), rng)
    hunt = Hunt(of, wishes, start, rng, until)
    hunt.run(np.where(wishes["sharp"], SHARP, TELLS), can)
    rounds = int(np.clip(_EXACT_TRIES // max(int(wishes["sharp"].sum()), 1), 4, 60))
    hunt.run(np.where(wishes["sharp"], EXACT, 0), rounds=rounds)
    rows = [start[:n_random], hunt.touching(), hunt.best[hunt.outcome > 0]]
    rows.append(_rounding(of, hunt.best[(hunt.outcome > 0) & (wishes["term"] < 0)], rng))
    complete &= time.monotonic() < until
    if complete and accepts_any(model):
        rows.append(divided_rows(model, np.concatenate(rows), partial(_reaching, hunt)))
    sharp = wishes["sharp"] & (wishes["goal"] != UNKNOWN)
    last_bits = int(np.count_nonzero(hunt.outcome[sharp] >= SHARP)), int(np.count_nonzero(sharp))
    return Witnesses(np.concatenate(rows), can, _wrong_turns(hunt), last_bits, complete)


def _reaching(hunt: Hunt, tree: int, wanted: npt.NDArray[np.bool_]) -> Array:
    """Rows anew for wanted nodes of a tree; some may miss theirs."""
    nodes = hunt.of.roots[tree] + np.flatnonzero(wanted)
    return hunt.varied(nodes[hunt.touched.node[nodes] >= 0])[0]


def _rounding(of: Routed, rows: Array, rng: np.random.Generator) -> Array:
    """Rows of the furthest doubles that round to each number, up or down; none in float64."""
    if not of.narrow:
        return rows[:0]
    known = np.where(np.abs(rows) <= np.finfo(np.float32).max, rows, 0.0)
    upper, lower = double_threshold(known), -double_threshold(-known)
    moved = np.where(rng.random(rows.shape) < 0.5, upper, lower)
    with np.errstate(over="ignore"):
        same = moved.astype(np.float32).astype(np.float64) == rows
    numeric = ~of.model.schema.nominal
    return np.where(same & numeric, moved, rows)


def _wrong_turns(hunt: Hunt) -> npt.NDArray[np.int64]:
    """Wishes whose row tells; whose row cannot; and whose row does not, though it might."""
    from treekit.kernels.witness_search import REACHED, TELLS

    once = ~hunt.wishes["sharp"]
    reached = (hunt.outcome == REACHED) & once
    never = uniform_nodes(hunt.of)[hunt.wishes["node"]]
    return np.array(
        [
            np.count_nonzero((hunt.outcome >= TELLS) & once),
            np.count_nonzero(reached & never),
            np.count_nonzero(reached & ~never),
        ]
    )
