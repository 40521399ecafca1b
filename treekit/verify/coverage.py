"""Coverage of a model by a set of rows, measured by routing them through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from treekit.model.model import Model
from treekit.model.tree import Split, Tree
from treekit.verify.probe_values import find_next_above
from treekit.verify.probes import Probes, split_rows
from treekit.verify.routing import (
    RoutedModel,
    is_plain,
    make_empty_coverage,
    make_matrix,
    make_routed_model,
    route_rows,
)
from treekit.verify.targeted_search import mark_adjacent_sides

if TYPE_CHECKING:
    from treekit.kernels.reachability import ReachableOutcomes, TreeCoverage


_CHUNK_ROWS = 50_000


@dataclass(frozen=True)
class Part:
    """Number of parts of one kind that were reached, and that inputs can reach."""

    name: str
    reached: int
    reachable: int

    @property
    def share(self) -> float:
        """Share reached, from 0 to 1; 1 if nothing is reachable."""
        return self.reached / self.reachable if self.reachable else 1.0


@dataclass(frozen=True)
class Coverage:
    """Coverage of a model by its probes.

    Attributes
    ----------
    parts : tuple of Part
    unreachable : tuple of (int, int)
        Tree and node of every node that no input can reach: on its path the
        set of values left for some column is empty.  For a child of a split this
        is the side of the split.  Below oblique and surrogate splits, further
        unreachable nodes may count as reachable.
    wrong_turns : tuple of three int
        Wrong turns (a row sent to the wrong branch of one split), counted by effect:
        visible in the prediction of a probe, invisible for every input, undecided.
    cut : str
        Why some nodes and sides got no probes; empty if all did.
    last_bits : (int, int)
        As in `treekit.verify.probes.Probes`.
    """

    parts: tuple[Part, ...]
    unreachable: tuple[tuple[int, int], ...]
    wrong_turns: tuple[int, int, int]
    cut: str = ""
    last_bits: tuple[int, int] = (0, 0)

    @property
    def complete(self) -> bool:
        """Whether every node and side got its probes."""
        return not self.cut

    def part(self, name: str) -> Part:
        """Return a part by name."""
        return next(part for part in self.parts if part.name == name)


def measure_coverage(model: Model, probes: Probes) -> Coverage:
    """Route the rows of `probes` through every tree and count the parts they reach."""
    if not is_plain(model):
        return _measure_routed(model, probes)
    counts: dict[str, list[int]] = {}
    unreachable: list[tuple[int, int]] = []
    possible = cast("tuple[TreeCoverage, ...]", probes.reachable)
    seen = [_make_empty_marks(can) for can in possible]
    for rows in split_rows(probes.rows, _CHUNK_ROWS):
        cells = make_matrix(model, rows)
        for tree, marks in zip(model.trees, seen, strict=True):
            _mark_chunk(model, tree, cells, marks)
    for number, (tree, can, marks) in enumerate(zip(model.trees, possible, seen, strict=True)):
        _count_parts(tree, can, marks, counts)
        unreachable += [(number, int(node)) for node in np.flatnonzero(~can.node)]
    return Coverage(
        tuple(Part(name, *pair) for name, pair in counts.items()),
        tuple(unreachable),
        tuple(probes.wrong_turns.tolist()),
        probes.cut,
    )


def _make_empty_marks(marks: TreeCoverage) -> TreeCoverage:
    return type(marks)(*(np.zeros_like(part) for part in marks))


def _mark_chunk(
    model: Model, tree: Tree, cells: npt.NDArray[np.float64], marks: TreeCoverage
) -> None:
    from treekit.kernels.reachability import make_walk, mark_rows

    schema = model.schema
    walk = make_walk(tree, schema.n_levels, schema.nominal, 0, 0)
    mark_rows(
        walk.nodes, walk.level_branch, find_next_above(tree.threshold, schema.dtype), cells, marks
    )


def _count_parts(
    tree: Tree, can: TreeCoverage, seen: TreeCoverage, counts: dict[str, list[int]]
) -> None:
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


def _measure_routed(model: Model, probes: Probes) -> Coverage:
    """Measure coverage of a model that is not plain."""
    of, can = make_routed_model(model), cast("ReachableOutcomes", probes.reachable)
    cells = make_matrix(model, probes.rows)
    touched = make_empty_coverage(of)
    route_rows(of, cells, 0, touched)
    near = mark_adjacent_sides(of, cells, touched)
    leaf = of.routes.nodes["n_children"] == 0
    is_child = of.routes.nodes["parent"] >= 0
    unknown = "rows divided at a split" if of.routes.fractional else "missing at a split"
    by_surrogate = _mark_surrogate_branches(of, touched.side >= 0, touched.level >= 0)
    counted = {
        "sides of splits": (touched.node[is_child] >= 0, can.node[is_child]),
        "leaves": (touched.node[leaf] >= 0, can.node[leaf]),
        "at the threshold": (near[:, 0], can.near[:, 0]),
        "one step above it": (near[:, 1], can.near[:, 1]),
        unknown: (touched.unknown >= 0, can.unknown),
        "levels at a split": (touched.level >= 0, can.level),
        "surrogates and conditions": (
            by_surrogate,
            _mark_surrogate_branches(of, can.side, can.level),
        ),
    }
    return Coverage(
        tuple(
            Part(name, int(np.count_nonzero(reached & possible)), int(np.count_nonzero(possible)))
            for name, (reached, possible) in counted.items()
        ),
        _locate_nodes(of, np.flatnonzero(~can.node)),
        tuple(probes.wrong_turns.tolist()),
        probes.cut,
        probes.last_bits,
    )


def _mark_surrogate_branches(
    of: RoutedModel, side: npt.NDArray[np.bool_], level: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Mark the branches that surrogates and rule conditions choose, (surrogates, 2) bool."""
    tests = of.tests
    decides = np.zeros_like(side)
    for column, branch in enumerate((tests.below, tests.above)):
        at = np.flatnonzero(of.is_linear & (branch >= 0))
        decides[at, branch[at]] |= side[at, column]
    entries = np.flatnonzero(level & (tests.level_branch >= 0))
    owner = np.searchsorted(tests.level_start, entries, side="right") - 1
    entries, owner = entries[~of.is_primary[owner]], owner[~of.is_primary[owner]]
    decides[owner, tests.level_branch[entries]] = True
    return decides[~of.is_primary]


def _locate_nodes(of: RoutedModel, nodes: npt.NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Convert node numbers to pairs of a tree and a node in it."""
    tree = np.searchsorted(of.roots, nodes, side="right") - 1
    return tuple(zip(tree.tolist(), (nodes - of.roots[tree]).tolist(), strict=True))
