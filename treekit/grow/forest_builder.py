"""Grow forests: bootstrap samples, threads and out-of-bag votes.

Each tree has a seed of its own, so that a seed gives the same forest for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import numpy.typing as npt

from treekit.grow.recipe import GrownTree, Recipe
from treekit.grow.route import find_leaves
from treekit.grow.target_statistics import (
    TargetStatistics,
    choose_step,
    count_draws,
    multiply_weights,
    round_to_step,
)
from treekit.grow.tree_builder import grow_tree, grow_with_validation
from treekit.kernels.random_numbers import draw_bag
from treekit.kernels.random_splits import MISSING_KEY
from treekit.kernels.records import Rows, Table
from treekit.kernels.route_rows import sum_votes
from treekit.model.fixed_point import MASS
from treekit.model.tree import Tree

Numbers = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
RowIds = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.uint64]

# ---------------------------------------------------------------- forest

VoteFunction = Callable[[Tree, Integers], Numbers]


@dataclass(frozen=True)
class Forest:
    """Trees, and the votes for their out-of-bag rows.

    Attributes
    ----------
    trees : list of Tree
    votes : (rows, values) float64 or None
        Sums over the trees for which the row was out of bag: votes for each class, or
        predictions; exact in any order of the trees.
    times : (rows,) int64 or None
        Number of trees for which each row was out of bag.
    """

    trees: list[Tree]
    votes: Numbers | None
    times: Integers | None


def grow_forest(
    recipe: Recipe,
    ids: RowIds,
    n_trees: int,
    seed: np.random.SeedSequence,
    *,
    sampler: BootstrapSampler | None = None,
    n_jobs: int | None = 1,
    first: int = 0,
    last: int | None = None,
    vote: VoteFunction | None = None,
    vote_step: float = 1.0,
    finish: Callable[[GrownTree, RowIds], GrownTree] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Forest:
    """Grow trees of a forest of `n_trees` trees on the training rows `ids`.

    Parameters
    ----------
    sampler : BootstrapSampler, optional
        Draws the rows of each tree; None: each tree uses all rows.
    n_jobs : int or None
        Number of joblib threads; the kernels release the GIL.
    first, last : int
        Grow the trees from `first` on, up to but not including `last` (None: all); they
        equal those of the complete forest.
    vote : callable, optional
        ``vote(tree, leaves)`` returns the votes of leaves, (leaves, values).  If given,
        votes are summed for each row over the trees for which it is out of bag.
    vote_step : float
        Power of two to a multiple of which votes are rounded, so that their sums are exact.
    finish : callable, optional
        ``finish(grown, ids)`` is applied to each grown tree (a pruner) with its
        out-of-bag rows, to which the `held_*` of its result refer.
    progress : callable, optional
        Called with the number of trees done.
    """
    from joblib import Parallel, delayed

    only_votes = vote is not None and finish is None and can_find_leaves(recipe)

    def grow_one_tree(tree_seed: int) -> tuple[Tree, RowIds, Integers, Numbers]:
        rows, out = _draw_rows(recipe, ids, tree_seed, sampler, vote is not None)
        grow = _grow_with_votes if only_votes else grow_with_validation
        grown = grow(recipe, rows, out, tree_seed)
        if finish is not None:
            grown = finish(grown, out.ids)
        if vote is None:
            return grown.tree, out.ids, grown.held_leaf, np.empty((0, 0))
        leaf_ids, vote_of_entry = number_leaves(grown.held_leaf, grown.tree.n_nodes)
        own_votes = vote(grown.tree, leaf_ids)
        if grown.held_share is not None:  # fractional instances: integer mass keeps votes exact
            scale = MASS if recipe.target.has_class_weights else 1
            own_votes = own_votes[vote_of_entry] * (scale * grown.held_share)[:, None]
            vote_of_entry = np.arange(len(own_votes))
        return grown.tree, grown.held_ids, vote_of_entry, round_to_step(own_votes, vote_step)

    trees: list[Tree] = []
    votes = times = None
    if vote is not None:
        votes = np.zeros((len(recipe.target.values), recipe.target.n_values))
        times = np.zeros(len(votes), dtype=np.int64)
    recipe.prepare()
    # One tree per task: batches of trees would leave threads idle at the end.
    parallel = Parallel(n_jobs=n_jobs, require="sharedmem", return_as="generator", batch_size=1)
    seeds = draw_tree_seeds(seed, n_trees)[first:last]
    for tree, held_ids, vote_of_entry, own_votes in parallel(
        delayed(grow_one_tree)(own) for own in seeds
    ):
        trees.append(tree)
        if votes is not None and times is not None:
            sum_votes(held_ids, vote_of_entry, own_votes, votes)
            # A row of fractional instances may have several entries.
            times[np.unique(held_ids) if recipe.fractional else held_ids] += 1
        if progress is not None:
            progress(len(trees))
    return Forest(trees, votes, times)


def _grow_with_votes(recipe: Recipe, rows: Rows, out: Rows, seed: int) -> GrownTree:
    """Grow a tree, and find the leaves of its out-of-bag rows.

    Votes need these leaves alone: growth would also sum the statistics of the rows at each node.
    """
    none = recipe.target.select_rows(out.ids[:0], None)
    grown = grow_tree(recipe, rows, none, seed)
    leaves = find_leaves(grown.tree, recipe.table, out.ids, recipe.records)
    return replace(grown, held_ids=out.ids, held_leaf=leaves)


def can_find_leaves(recipe: Recipe) -> bool:
    """Return whether `find_leaves` supports the trees, which grow without out-of-bag rows."""
    return (
        recipe.held_out is None
        and recipe.surrogates is None
        and not (recipe.use_before or recipe.fractional or recipe.splitter.sums)
        and bool((recipe.table.n_codes != MISSING_KEY).all())
    )


def number_leaves(leaf: Integers, n_nodes: int) -> tuple[Integers, Integers]:
    """Return the leaves that rows reach, ascending, and the position among them of each row's."""
    reached = np.zeros(n_nodes, np.bool_)
    reached[leaf] = True
    return np.flatnonzero(reached), (np.cumsum(reached) - 1).take(leaf)


def draw_tree_seeds(seed: np.random.SeedSequence, n_trees: int) -> list[int]:
    """Return the seed of each tree, below 2**64; the first ones do not depend on `n_trees`."""
    return [int(child.generate_state(1, np.uint64)[0]) for child in seed.spawn(n_trees)]


def draw_samples(
    recipe: Recipe,
    n_trees: int,
    seed: np.random.SeedSequence,
    max_samples: int | float | None = None,
) -> Iterator[tuple[Rows, RowIds]]:
    """Yield the bootstrap samples that `grow_forest` draws, and the rows out of each bag."""
    ids = np.arange(len(recipe.target.values), dtype=np.uint32)
    sampler = make_sampler(ids, recipe.table, recipe.target, max_samples)
    for tree_seed in draw_tree_seeds(seed, n_trees):
        rows, out = _draw_rows(recipe, ids, tree_seed, sampler, True)
        yield rows, out.ids


def _draw_rows(
    recipe: Recipe, ids: RowIds, seed: int, sampler: BootstrapSampler | None, out_of_bag: bool
) -> tuple[Rows, Rows]:
    """Return the rows of one tree and its out-of-bag rows, both in table order."""
    target = recipe.target
    none = target.select_rows(ids[:0], None)
    if sampler is None:
        return target.select_rows(ids, None), none
    times = sampler.draw_counts(seed)
    rows, out = target.select_rows(sampler.ids, times), none
    if out_of_bag:
        rest = sampler.ids[times == 0]
        own = target.draw_weights
        out = target.select_rows(rest, None if own is None else own[rest] / sampler.unit)
    if recipe.balance_bags:
        _balance_classes(rows, out, target.size)
    return rows, out


def _balance_classes(rows: Rows, out: Rows, n_classes: int) -> None:
    """Multiply weights by factors that give all classes the same total weight in the bag `rows`."""
    present = np.bincount(rows.cells, rows.values[:, 0], minlength=n_classes)
    shared = present.sum() / np.count_nonzero(present)
    factors = np.divide(shared, present, out=np.ones(n_classes), where=present > 0)
    for part in (rows, out):
        weights = part.values[:, 0]
        total = float(factors @ np.bincount(part.cells, weights, minlength=n_classes))
        step = choose_step(2.0 * total)  # sums are exact in any order
        part.values[:, 0] = multiply_weights(weights, factors.take(part.cells), step)


# ---------------------------------------------------------------- bootstrap
# Bootstrap samples that do not depend on the order of the table's rows.
#
# How often a row is drawn depends on its contents, on its number among equal rows, and on the
# tree's seed alone: a forest is the same for any order of the rows and for any division of
# the table, and for a row of weight 3 in place of three equal rows.

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SECOND_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True)
class BootstrapSampler:
    """A sampler that draws each row a Poisson-distributed number of times.

    For many rows this is the bootstrap (Breiman 1996), except that the size n of a sample
    varies by about sqrt(n) (Oza and Russell 2001, *Online bagging and boosting*).

    Attributes
    ----------
    ids : (rows,) uint32
        Training rows of positive weight.
    hashes, first, copies, parts, cumulative
        See `treekit.kernels.random_numbers.draw_bag`.
    unit : float
        Weight of one draw, before a row's factor.
    """

    ids: RowIds
    hashes: Hashes
    first: Hashes
    copies: Integers
    parts: Hashes
    cumulative: Hashes
    unit: float = 1.0

    def draw_counts(self, seed: int) -> Numbers:
        """Draw a sample, as the number of times that each of `ids` occurs: (rows,) float64.

        A sample without rows is drawn again with the next seed.
        """
        counts, drawn = self.draw_once(seed)
        while drawn == 0 and len(counts):
            seed = (seed + 1) % 2**64
            counts, drawn = self.draw_once(seed)
        return counts

    def draw_once(self, seed: int) -> tuple[Numbers, int]:
        """Draw a sample, which may be empty; return the counts and their sum."""
        counts = np.empty(len(self.ids))
        drawn = draw_bag(
            self.hashes, self.first, self.copies, self.parts, self.cumulative,
            np.uint64(seed), counts,
        )  # fmt: skip
        return counts, drawn


def make_sampler(
    ids: RowIds, table: Table, target: TargetStatistics, max_samples: int | float | None = None
) -> BootstrapSampler:
    """Create the sampler of the training rows `ids`.

    `max_samples` is the expected number of rows drawn, or as a float its share of all rows;
    None means all.  All draws have the same weight, except for the factors of their rows (class
    weights).  Rows of weight zero are not drawn.

    Cost: a pass over each column, and one sort of as many integers as rows.
    """
    ids = select_drawn(ids, target)
    copies, parts = count_copies(ids, target)
    n_draws = len(ids) if target.draw_weights is None else count_draws(target.draw_weights[ids])
    parted = bool(parts.any())
    hashes = hash_drawn_rows(ids, table, target, parted=parted)
    first = number_copies(hashes, copies + (parts > 0) if parted else copies)
    table_of_draws = compute_poisson_table(compute_draw_rate(n_draws, max_samples))
    return BootstrapSampler(
        ids, hashes, first, copies, parts if parted else parts[:0], table_of_draws,
        target.draw_unit,
    )  # fmt: skip


def count_copies(ids: RowIds, target: TargetStatistics) -> tuple[Integers, Hashes]:
    """Return the number of copies of each row, and the part of one; see `draw_bag`.

    Both are empty for rows that all count once.
    """
    if target.draw_weights is None:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    rates = target.draw_weights[ids] / target.draw_unit
    copies = np.floor(rates).astype(np.int64)
    return copies, np.ldexp(rates - copies, 64).astype(np.uint64)


def hash_drawn_rows(
    ids: RowIds,
    table: Table,
    target: TargetStatistics,
    *,
    parted: bool,
    present: Sequence[npt.NDArray[np.bool_]] | None = None,
) -> Hashes:
    """Hash the rows of a sampler; `parted`: whether a training row has a part of a copy."""
    hashes = hash_rows(ids, table, target, present=present)
    if parted and target.draw_weights is not None:
        hashes = _mix_bits(hashes ^ target.draw_weights[ids].view(np.uint64))
    return hashes


def select_drawn(ids: RowIds, target: TargetStatistics) -> RowIds:
    """Select the rows that may be drawn: those of positive weight."""
    ids = ids[target.values[ids, 0] > 0]
    return ids if target.draw_weights is None else ids[target.draw_weights[ids] > 0]


def compute_draw_rate(n_draws: int, max_samples: int | float | None) -> float:
    """Return the expected number of times that a row is drawn."""
    if max_samples is None or isinstance(max_samples, float):
        return max_samples or 1.0
    return max_samples / max(n_draws, 1)


def mix_rows(recipe: Recipe, ids: RowIds, seed: int) -> RowIds:
    """Return rows in a random order that depends on their contents and the seed alone."""
    hashes = hash_rows(ids, recipe.table, recipe.target, per_weight=True)
    numbers = number_copies(hashes, np.empty(0, np.int64))
    keys = _mix_bits(_mix_bits(hashes ^ _mix_bits(numbers)) ^ np.uint64(seed % 2**64))
    return ids[np.argsort(keys, kind="stable")]


def number_copies(hashes: Hashes, copies: Integers) -> Hashes:
    """Return the number of each row's first copy among the copies of rows with its hash."""
    first = np.zeros(len(hashes), np.uint64)
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    equal = ordered[1:] == ordered[:-1]
    if not equal.any():
        return first
    before = np.arange(len(order), dtype=np.uint64)
    if len(copies):
        before[1:] = np.cumsum(copies[order])[:-1]
    starts = np.maximum.accumulate(np.where(np.append(False, equal), 0, np.arange(len(order))))
    first[order] = before - before[starts]
    return first


@cache
def compute_poisson_table(rate: float) -> Hashes:
    """Return the probabilities of at most 0, 1, ... draws at this rate, in units of 2**-64.

    Decimal arithmetic gives the same table on every machine.
    """
    with localcontext() as context:
        context.prec = 60
        exact, unit = Decimal(rate), Decimal(2**64)
        term = (-exact).exp()
        total, found = term, []
        while (bound := int(total * unit)) < 2**64 - 1:
            found.append(bound)
            term = term * exact / len(found)
            total += term
            if term * unit < 1 and len(found) > rate:
                break
    return np.array(found, np.uint64)


def find_codes_present(ids: RowIds, table: Table) -> list[npt.NDArray[np.bool_]]:
    """Return which codes some rows have, for each column."""
    found = []
    for f, codes in enumerate(table.codes):
        present = np.zeros(int(table.n_codes[f]) + 1, np.bool_)
        present[codes[ids]] = True
        found.append(present)
    return found


def hash_rows(
    ids: RowIds,
    table: Table,
    target: TargetStatistics,
    *,
    per_weight: bool = False,
    present: Sequence[npt.NDArray[np.bool_]] | None = None,
) -> Hashes:
    """Hash the values and target of each row: (rows,) uint64.

    `per_weight` divides the statistics of a row by its weight first.  `present` are the codes
    that all training rows have, if these are only some of them (`find_codes_present`).

    Trees grow from codes; `treekit.data.dataset.Dataset.hash_rows` hashes the cells of a table, for
    its digest.

    Equal rows, which are interchangeable, have equal hashes.  Others collide once in
    2**64 pairs, and then count as equal rows in the order of the table.
    """
    first, *others = target.get_key_columns(ids, per_weight=per_weight)
    key = _mix_bits(first)
    for column in others:
        key = _mix_bits(key ^ column)
    every = len(ids) == table.codes.shape[1] and bool(np.all(ids[1:] > ids[:-1]))
    at = ids.astype(np.intp)
    for f, codes in enumerate(table.codes):
        code = (codes if every else codes.take(at)).astype(np.intp)
        if table.n_codes[f] == MISSING_KEY:
            key = _mix_bits(key ^ code.view(np.uint64))
            continue
        # Ranks among the values present: codes also count values of rows of weight zero.
        if present is None:
            known = np.zeros(int(table.n_codes[f]) + 1, np.bool_)
            known[code] = True
        else:
            known = present[f]
        key = _mix_bits(key ^ known.cumsum(dtype=np.uint64).take(code))
    return np.asarray(key, dtype=np.uint64)


def _mix_bits(key: Hashes) -> Hashes:
    """Mix the bits of 64-bit keys by a permutation that does not map 0 to itself.

    Not `treekit.kernels.random_numbers.mix_bits`: the bags of all seeds would change.
    """
    key = (key + _MULTIPLIER) * _MULTIPLIER
    key ^= key >> np.uint64(29)
    key *= _SECOND_MULTIPLIER
    key ^= key >> np.uint64(32)
    return key
