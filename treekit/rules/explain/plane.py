"""What a forest answers where one or two columns of a row change: a line, or a plane, of cells.

The sums of a cell are those of the cell before, and what begins or ends there: each leaf
is added at the corners of its box, and running totals do the rest, in integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treekit.rules.explain.reach import Allowed, Reach
from treekit.rules.explain.states import States
from treekit.rules.explain.wish import Wish

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["Plane"]

Index = npt.NDArray[np.int64]
Fits = npt.NDArray[np.bool_]

_AT_ONCE = 1 << 22
"""Integers of a part of the plane that is held at once: 32 MB."""


class Plane:
    """The leaves that were found in all trees, and what they add where."""

    def __init__(self, model: Model, found: Sequence[Reach], wish: Wish) -> None:
        self.model, self.wish = model, wish
        self.together = {pair for one in found for pair in one.together}
        rows: list[Index] = []
        mass: list[int] = []
        self.asked: dict[int, list[tuple[int, Allowed]]] = {}
        groups: dict[tuple[int, ...], list[int]] = {}
        for number, one in enumerate(found):
            own = np.searchsorted(model.trees[number].leaves, [leaf.leaf for leaf in one.found])
            rows.append(own + model.leaf_offsets[number])
            for leaf in one.found:
                groups.setdefault(leaf.changed, []).append(len(mass))
                for column, allowed in leaf.box.items():
                    self.asked.setdefault(column, []).append((len(mass), allowed))
                mass.append(leaf.mass)
        self.units = model.units[np.concatenate(rows)] * np.array(mass, np.int64)[:, None]
        self.groups = {key: np.array(leaves) for key, leaves in groups.items()}
        self.n_leaves = len(mass)

    def leaves(self, *columns: int) -> Index:
        """Leaves that need no other column to change, ascending."""
        keys: list[tuple[int, ...]] = [(), *((column,) for column in columns), columns]
        parts = [self.groups[key] for key in dict.fromkeys(keys) if key in self.groups]
        return np.sort(np.concatenate(parts))

    def line(self, column: int, states: States) -> Fits:
        """(states,) bool: where the sums answer as wished."""
        leaves = self.leaves(column)
        runs, of = _expand(states.start, leaves)
        change = np.zeros((len(states.size) + 1, self.units.shape[1]), dtype=np.int64)
        np.add.at(change, states.first[runs], self.units[of])
        np.subtract.at(change, states.last[runs], self.units[of])
        return self.wish.met(self.model, np.cumsum(change, axis=0)[:-1])

    def planes(
        self, columns: tuple[int, int], states: tuple[States, States], windows: list[slice]
    ) -> Iterator[tuple[int, int, Fits]]:
        """Parts of the plane: first states of both columns, and where sums answer as wished."""
        leaves = self.leaves(*columns)
        runs, of, behind = _products(states, leaves)
        ends = [(s.first[r], s.last[r]) for s, r in zip(states, (runs, behind), strict=True)]
        start, stop = windows[1].start, windows[1].stop
        width, values = stop - start, self.units.shape[1]
        height = max(_AT_ONCE // ((width + 1) * values), 1)
        for top in range(windows[0].start, windows[0].stop, height):
            rows = min(height, windows[0].stop - top)
            a, b = (np.clip(end - top, 0, rows) for end in ends[0])
            c, d = (np.clip(end - start, 0, width) for end in ends[1])
            some = np.flatnonzero((a < b) & (c < d))
            change = np.zeros(((rows + 1) * (width + 1), values), dtype=np.int64)
            add = self.units[of[some]]
            for x, y, sign in ((a, c, 1), (b, c, -1), (a, d, -1), (b, d, 1)):
                np.add.at(change, x[some] * (width + 1) + y[some], sign * add)
            sums = change.reshape(rows + 1, width + 1, values)
            sums = sums.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
            met = self.wish.met(self.model, sums.reshape(-1, values))
            yield top, start, met.reshape(rows, width)


def _expand(start: Index, leaves: Index) -> tuple[Index, Index]:
    """Runs of some leaves, and the leaf of each."""
    counts = start[leaves + 1] - start[leaves]
    of = np.repeat(leaves, counts)
    offset = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return start[of] + offset, of


def _products(states: tuple[States, States], leaves: Index) -> tuple[Index, Index, Index]:
    """Each run of the first column with each of the second, leaf by leaf; and the leaves."""
    runs, of = _expand(states[0].start, leaves)
    start = states[1].start
    counts = start[of + 1] - start[of]
    pair = np.repeat(np.arange(len(of)), counts)
    offset = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    return runs[pair], of[pair], start[of[pair]] + offset
