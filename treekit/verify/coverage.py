"""Coverage of a model by a set of rows, measured by routing them through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from treekit.model.model import Model
from treekit.model.tree import Split, compute_root_offsets
from treekit.verify.probe_values import find_next_above
from treekit.verify.probes import Probes
from treekit.verify.routing import (
    RoutedModel,
    is_plain,
    make_empty_coverage,
    make_matrix,
    make_routed_model,
)
from treekit.verify.targeted_search import mark_adjacent_sides

if TYPE_CHECKING:
    from treekit.verify.kernels.reachability import ReachableOutcomes, TreeCoverage


Mask = npt.NDArray[np.bool_]
Marks = dict[str, tuple[Mask, Mask]]
"""Parts by name: whether rows reach each, and whether inputs can."""

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
        """Whether the rows reached every part that inputs can reach, and none were left out."""
        return not self.cut and all(part.share == 1.0 for part in self.parts)

    def part(self, name: str) -> Part:
        """Return a part by name."""
        return next(part for part in self.parts if part.name == name)


def measure_coverage(model: Model, probes: Probes) -> Coverage:
    """Route the rows of `probes` through every tree and count the parts they reach."""
    roots = compute_root_offsets(model.trees)
    if is_plain(model):
        counted, can_reach = _mark_plain(model, probes, roots)
    else:
        counted, can_reach = _mark_routed(model, probes)
    never = np.flatnonzero(~can_reach)
    tree = np.searchsorted(roots, never, side="right") - 1
    return Coverage(
        tuple(
            Part(name, int(np.count_nonzero(reached & possible)), int(np.count_nonzero(possible)))
            for name, (reached, possible) in counted.items()
        ),
        tuple(zip(tree.tolist(), (never - roots[tree]).tolist(), strict=True)),
        tuple(probes.wrong_turns.tolist()),
        probes.cut,
        probes.last_bits,
    )


def _mark_plain(model: Model, probes: Probes, roots: npt.NDArray[np.int64]) -> tuple[Marks, Mask]:
    """Mark the parts of a plain model that the rows reach, and the parts that inputs can reach."""
    from treekit.rules.kernels import make_walk
    from treekit.verify.kernels.reachability import TreeCoverage, mark_rows

    schema = model.schema
    possible = cast("tuple[TreeCoverage, ...]", probes.reachable)
    marks = [TreeCoverage(*map(np.zeros_like, can)) for can in possible]
    for at in range(0, len(probes.rows), _CHUNK_ROWS):
        cells = make_matrix(model, probes.rows[at : at + _CHUNK_ROWS])
        for tree, own in zip(model.trees, marks, strict=True):
            walk = make_walk(tree, schema.n_levels, schema.nominal, 0, 0)
            above = find_next_above(tree.threshold, schema.dtype)
            mark_rows(walk.nodes, walk.level_branch, above, cells, own)
    seen, can = (
        TreeCoverage(*map(np.concatenate, zip(*parts, strict=True))) for parts in (marks, possible)
    )
    leaf = np.concatenate([tree.kind for tree in model.trees]) == Split.LEAF
    is_side = np.ones(len(leaf), dtype=np.bool_)
    is_side[roots[:-1]] = False
    return {
        "sides of splits": (seen.node[is_side], can.node[is_side]),
        "leaves": (seen.node[leaf], can.node[leaf]),
        "at the threshold": (seen.at, can.at),
        "one step above it": (seen.above, can.above),
        "missing at a split": (seen.missing, can.missing),
        "levels at a split": (seen.level, can.level),
    }, can.node


def _mark_routed(model: Model, probes: Probes) -> tuple[Marks, Mask]:
    """Mark reached and reachable parts, as `_mark_plain` does, for models that are not plain."""
    from treekit.verify.kernels.reachability import trace_rows

    of, can = make_routed_model(model), cast("ReachableOutcomes", probes.reachable)
    cells = make_matrix(model, probes.rows)
    touched = make_empty_coverage(of)
    trace_rows(of.routes, of.roots, cells, 0, touched)
    near = mark_adjacent_sides(of, cells, touched)
    leaf = of.routes.nodes["n_children"] == 0
    is_side = of.routes.nodes["parent"] >= 0
    unknown = "rows divided at a split" if of.routes.fractional else "missing at a split"
    by_surrogate = _mark_surrogate_branches(of, touched.side >= 0, touched.level >= 0)
    return {
        "sides of splits": (touched.node[is_side] >= 0, can.node[is_side]),
        "leaves": (touched.node[leaf] >= 0, can.node[leaf]),
        "at the threshold": (near[:, 0], can.near[:, 0]),
        "one step above it": (near[:, 1], can.near[:, 1]),
        unknown: (touched.unknown >= 0, can.unknown),
        "levels at a split": (touched.level >= 0, can.level),
        "surrogates and conditions": (
            by_surrogate,
            _mark_surrogate_branches(of, can.side, can.level),
        ),
    }, can.node


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
