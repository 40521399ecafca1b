"""What a set of rows touches in a model, measured by routing them through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treekit.model.ensemble import Model
from treekit.model.tree import Split, Tree
from treekit.verify.probes import Probes, chunks, next_above

if TYPE_CHECKING:
    from treekit.kernels.coverage import Marks

__all__ = ["Coverage", "Part", "measure"]

_ROWS = 50_000


@dataclass(frozen=True)
class Part:
    """How much of one kind of thing was reached, out of what inputs can reach."""

    name: str
    reached: int
    reachable: int

    @property
    def share(self) -> float:
        """From 0 to 1; 1 if there was nothing to reach."""
        return self.reached / self.reachable if self.reachable else 1.0


@dataclass(frozen=True)
class Coverage:
    """What the probes reached.

    Attributes
    ----------
    parts : tuple of Part
    unreachable : tuple of (int, int)
        Tree and node of every node that no input can reach: on its path the
        set of values left for some column is empty.  For a split's child this
        is the side of the split.
    wrong_turns : tuple of three int
        Wrong turns of single splits that a probe shows in the answer; that no
        input can show; and that could be neither shown nor excluded.
    complete : bool
        Whether every node and side got its probes within the bound of rows.
    """

    parts: tuple[Part, ...]
    unreachable: tuple[tuple[int, int], ...]
    wrong_turns: tuple[int, int, int]
    complete: bool

    def part(self, name: str) -> Part:
        """One part by name."""
        return next(part for part in self.parts if part.name == name)


def measure(model: Model, probes: Probes) -> Coverage:
    """Route the rows of `probes` through every tree and count what they touch."""
    counts: dict[str, list[int]] = {}
    unreachable: list[tuple[int, int]] = []
    seen = [_no_marks_like(can) for can in probes.reachable]
    for rows in chunks(probes.rows, _ROWS):
        cells = _cells(model, rows)
        for tree, marks in zip(model.trees, seen, strict=True):
            _mark(model, tree, cells, marks)
    for number, (tree, can, marks) in enumerate(
        zip(model.trees, probes.reachable, seen, strict=True)
    ):
        _count(tree, can, marks, counts)
        unreachable += [(number, int(node)) for node in np.flatnonzero(~can.node)]
    return Coverage(
        tuple(Part(name, *pair) for name, pair in counts.items()),
        tuple(unreachable),
        tuple(probes.wrong_turns.tolist()),
        probes.complete,
    )


def _no_marks_like(marks: Marks) -> Marks:
    return type(marks)(*(np.zeros_like(part) for part in marks))


def _cells(model: Model, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Rows as the trees see them: rounded, unseen categories missing."""
    with np.errstate(over="ignore", under="ignore"):
        cells = rows.astype(model.schema.dtype).astype(np.float64)
    nominal = model.schema.nominal
    codes = cells[:, nominal]
    coded = (codes >= 0) & (codes < model.schema.n_levels[nominal]) & (codes == np.floor(codes))
    cells[:, nominal] = np.where(coded, codes, np.nan)
    return cells


def _mark(model: Model, tree: Tree, cells: npt.NDArray[np.float64], marks: Marks) -> None:
    from treekit.kernels.boxes import make_walk
    from treekit.kernels.coverage import mark

    schema = model.schema
    walk = make_walk(tree, schema.n_levels, schema.nominal, 0, 0)
    mark(walk.nodes, walk.level_branch, next_above(tree.threshold, schema.dtype), cells, marks)


def _count(tree: Tree, can: Marks, seen: Marks, counts: dict[str, list[int]]) -> None:
    leaf = tree.kind == Split.LEAF
    side = np.arange(tree.n_nodes) > 0
    for name, reached, reachable in (
        ("sides of splits", seen.node[side], can.node[side]),
        ("leaves", seen.node[leaf], can.node[leaf]),
        ("at the threshold", seen.at, can.at),
        ("one step above it", seen.above, can.above),
        ("missing at a split", seen.missing, can.missing),
        ("levels at a split", seen.level, can.level),
    ):
        total = counts.setdefault(name, [0, 0])
        total[0] += int(np.count_nonzero(reached & reachable))
        total[1] += int(np.count_nonzero(reachable))
