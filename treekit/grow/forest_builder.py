"""Grow forests: bootstrap samples, threads and out-of-bag votes.

Each tree has its own `SeedSequence` child, so that a seed gives the same forest for any
number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.grow.recipe import GrownTree, Recipe
from treekit.grow.target_statistics import TargetStatistics, count_draws
from treekit.grow.tree_builder import grow_with_validation
from treekit.kernels.records import Rows, Table
from treekit.model.fixed_point import MASS
from treekit.model.tree import Tree

# ---------------------------------------------------------------- forest

VoteFunction = Callable[[Tree, npt.NDArray[np.int64]], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Forest:
    """Trees, and the votes for their out-of-bag rows.

    Attributes
    ----------
    trees : list of Tree
    votes : (rows, values) float64 or None
        Sums over the trees for which the row was out of bag: votes for each
        class (integers, exact in any order), or predictions.
    times : (rows,) int64 or None
        Number of trees for which each row was out of bag.
    """

    trees: list[Tree]
    votes: npt.NDArray[np.float64] | None
    times: npt.NDArray[np.int64] | None


def grow_forest(
    recipe: Recipe,
    ids: npt.NDArray[np.uint32],
    n_trees: int,
    seed: np.random.SeedSequence,
    *,
    bootstrap: bool = True,
    max_samples: int | float | None = None,
    n_jobs: int | None = 1,
    first: int = 0,
    vote: VoteFunction | None = None,
    finish: Callable[[GrownTree, npt.NDArray[np.uint32]], GrownTree] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Forest:
    """Grow `n_trees` trees on the training rows `ids`.

    Parameters
    ----------
    bootstrap : bool
        Draw the rows of each tree with replacement; otherwise use all rows.
    max_samples : int or float, optional
        Rows drawn for each tree; see `treekit.grow.forest_builder.make_sampler`.
    n_jobs : int or None
        Number of joblib threads; the kernels release the GIL.
    first : int
        Number of trees to skip because they exist already; the others equal those of a
        complete forest of `n_trees`.
    vote : callable, optional
        ``vote(tree, leaves)`` returns the votes of leaves, (leaves, values).  If given,
        votes are summed for each row over the trees for which it is out of bag.
    finish : callable, optional
        ``finish(grown, ids)`` is applied to each grown tree (a pruner) with its
        out-of-bag rows, to which the `held_*` of its result refer.
    progress : callable, optional
        Called with the number of trees done.
    """
    from joblib import Parallel, delayed

    draws = None
    if bootstrap:
        draws = make_sampler(ids, recipe.table, recipe.target, max_samples)

    def grow_one_tree(
        child: np.random.SeedSequence,
    ) -> tuple[Tree, npt.NDArray[np.uint32], npt.NDArray[np.float64]]:
        rng = np.random.default_rng(child)
        rows, out = _draw_rows(recipe, ids, rng, draws, vote is not None)
        grown = grow_with_validation(recipe, rows, out, rng)
        if finish is not None:
            grown = finish(grown, out.ids)
        if vote is None:
            return grown.tree, out.ids, np.empty((0, 0))
        leaf_ids, leaf_of_row = np.unique(grown.held_leaf, return_inverse=True)
        row_votes = vote(grown.tree, leaf_ids)[leaf_of_row]
        if grown.held_share is not None:  # fractional instances: integer mass keeps votes exact
            scale = MASS if recipe.target.has_class_weights else 1
            row_votes = row_votes * (scale * grown.held_share)[:, None]
        return grown.tree, grown.held_ids, row_votes

    trees: list[Tree] = []
    votes = times = None
    if vote is not None:
        votes = np.zeros((len(recipe.target.values), recipe.target.n_values))
        times = np.zeros(len(votes), dtype=np.int64)
    # One tree per task: batches of trees would leave threads idle at the end.
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator", batch_size=1)
    children = seed.spawn(n_trees)[first:]
    for tree, held_ids, held_votes in parallel(delayed(grow_one_tree)(c) for c in children):
        trees.append(tree)
        if votes is not None and times is not None:
            seen = np.unique(held_ids)
            if len(seen) == len(held_ids):
                votes[held_ids] += held_votes
            else:  # fractional instances: a row may have several entries
                np.add.at(votes, held_ids, held_votes)
            times[seen] += 1
        if progress is not None:
            progress(len(trees))
    return Forest(trees, votes, times)


def draw_samples(
    recipe: Recipe,
    n_trees: int,
    seed: np.random.SeedSequence,
    max_samples: int | float | None = None,
) -> Iterator[tuple[Rows, npt.NDArray[np.uint32]]]:
    """Yield the bootstrap samples that `grow_forest` draws, and the rows out of each bag."""
    ids = np.arange(len(recipe.target.values), dtype=np.uint32)
    draws = make_sampler(ids, recipe.table, recipe.target, max_samples)
    for child in seed.spawn(n_trees):
        rows, out = _draw_rows(recipe, ids, np.random.default_rng(child), draws, True)
        yield rows, out.ids


def _draw_rows(
    recipe: Recipe,
    ids: npt.NDArray[np.uint32],
    rng: np.random.Generator,
    draws: BootstrapSampler | None,
    out_of_bag: bool,
) -> tuple[Rows, Rows]:
    """Return the rows of one tree and its out-of-bag rows, both in table order."""
    target = recipe.target
    none = target.select_rows(ids[:0], None)
    if draws is None:
        return target.select_rows(ids, None), none
    times = np.zeros(len(target.values))
    times[draws.ids] = draws.draw_counts(rng)
    drawn = np.flatnonzero(times)
    rows = target.select_rows(drawn, times.take(drawn))
    if not out_of_bag:
        return rows, none
    rest = ids[times[ids] == 0]
    own = target.draw_weights
    return rows, target.select_rows(rest, None if own is None else own[rest] / draws.unit)


# ---------------------------------------------------------------- bootstrap
# Bootstrap samples that do not depend on the order of the table's rows.
#
# Rows are drawn by position in an order given by their contents: a forest is the same for
# any order of the rows, and for a row of weight 3 in place of three equal rows.

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SECOND_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True)
class BootstrapSampler:
    """A sampler that draws rows with replacement (Breiman 1996).

    Attributes
    ----------
    ids : (rows,) uint32
        Training rows, ordered by their contents.
    ends : (rows,) float64, or None
        Cumulative weights in that order; None if all rows have weight 1.
    n_draws : int
    unit : float
        Weight of one draw, before a row's factor.
    """

    ids: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.float64] | None
    n_draws: int
    unit: float = 1.0

    def draw_counts(self, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Draw a sample, as the number of times that each of `ids` occurs: (rows,) int64."""
        n = len(self.ids)
        at = rng.random(self.n_draws)
        at *= float(n) if self.ends is None else float(self.ends[-1])
        # Position p selects the row whose cumulative weight spans it; for weights of 1, floor(p).
        drawn = at.astype(np.int64) if self.ends is None else self.ends.searchsorted(at, "right")
        return np.bincount(drawn, minlength=n)


def make_sampler(
    ids: npt.NDArray[np.uint32],
    table: Table,
    target: TargetStatistics,
    max_samples: int | float | None = None,
) -> BootstrapSampler:
    """Create the sampler of the training rows `ids`.

    `max_samples` is the number of rows drawn, or as a float their share of all rows; None
    means all.  All draws have the same weight, except for the factors of their rows (class
    weights).  Rows of weight zero are not drawn.

    Cost: a pass over each column, and one sort of as many integers as rows.
    """
    own = target.draw_weights
    ids = ids[target.values[ids, 0] > 0]
    if own is not None:
        ids = ids[own[ids] > 0]
    order = ids[np.argsort(_hash_rows(ids, table, target), kind="stable")]
    if own is None:
        return BootstrapSampler(order, None, _resolve_max_samples(len(ids), max_samples))
    weights = own[order]
    n_draws = _resolve_max_samples(count_draws(weights), max_samples)
    return BootstrapSampler(order, np.cumsum(weights), n_draws, target.draw_unit)


def _resolve_max_samples(full: int, max_samples: int | float | None) -> int:
    if max_samples is None:
        return full
    if isinstance(max_samples, float):
        return max(round(max_samples * full), 1)
    return max_samples


def _hash_rows(
    ids: npt.NDArray[np.uint32], table: Table, target: TargetStatistics
) -> npt.NDArray[np.uint64]:
    """Hash the values and target of each row: (rows,) uint64.

    Equal rows, which are interchangeable, have equal hashes.  Others collide once in
    2**64 pairs, and then keep the order of the table.
    """
    if target.is_dense:
        # Statistics before weights: class weights must not change the draws.
        stats = target.values if target.placed is None else target.placed
        several = target.blocks is not None or target.layout is not None
        key = _mix_bits((stats[ids, min(1, stats.shape[1] - 1)] + 0.0).view(np.uint64))
        for column in stats.T[2:] if several else ():
            key = _mix_bits(key ^ (column[ids] + 0.0).view(np.uint64))
    else:
        key = _mix_bits(target.cells[ids].astype(np.uint64))
    every = len(ids) == table.codes.shape[1] and bool(np.all(ids[1:] > ids[:-1]))
    at = ids.astype(np.intp)
    for f, codes in enumerate(table.codes):
        code = (codes if every else codes.take(at)).astype(np.intp)
        # Ranks among the values present: codes also count values of rows of weight zero.
        present = np.zeros(int(table.n_codes[f]) + 1, dtype=np.uint64)
        present[code] = 1
        key = _mix_bits(key ^ present.cumsum(dtype=np.uint64).take(code))
    return np.asarray(key, dtype=np.uint64)


def _mix_bits(key: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of 64-bit keys by a permutation that does not map 0 to itself."""
    key = (key + _MULTIPLIER) * _MULTIPLIER
    key ^= key >> np.uint64(29)
    key *= _SECOND_MULTIPLIER
    key ^= key >> np.uint64(32)
    return key
