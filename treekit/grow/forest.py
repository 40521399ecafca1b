"""Many trees: bootstrap samples, threads, out-of-bag votes.

One `SeedSequence` child a tree: the same seed gives the same forest for any
number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.grow.bootstrap import Bootstrap, make_bootstrap
from treekit.grow.builder import grow_held
from treekit.grow.recipe import GrownTree, Recipe
from treekit.kernels.records import Rows
from treekit.model.fixed_point import MASS
from treekit.model.tree import Tree

__all__ = ["Forest", "Vote", "bags", "grow_forest"]

Vote = Callable[[Tree, npt.NDArray[np.int64]], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Forest:
    """Trees, and what their out-of-bag rows say.

    Attributes
    ----------
    trees : list of Tree
    votes : (rows, values) float64 or None
        Sums over the trees for which the row was out of bag: votes for each
        class (whole numbers, exact in any order), or predictions.
    times : (rows,) int64 or None
        For how many trees each row was out of bag.
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
    vote: Vote | None = None,
    finish: Callable[[GrownTree, npt.NDArray[np.uint32]], GrownTree] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Forest:
    """Grow `n_trees` trees on the training rows `ids`.

    Parameters
    ----------
    bootstrap : bool
        Each tree sees rows drawn with replacement; otherwise all rows.
    max_samples : int or float, optional
        Rows drawn for each tree; see `treekit.grow.bootstrap.make_bootstrap`.
    n_jobs : int or None
        joblib's threads; the kernels release the GIL.
    first : int
        Leave out so many trees, which are there already: the others are those
        that a forest of `n_trees` has in their places.
    vote : callable, optional
        ``vote(tree, leaves)``: what these leaves say, (leaves, values).  If
        given, it is summed for each row over the trees that have not seen it.
    finish : callable, optional
        ``finish(grown, ids)``, applied to each grown tree (a pruner), with its
        out-of-bag rows, to which the `held_*` of the new one belong.
    progress : callable, optional
        Called with the number of trees done.
    """
    from joblib import Parallel, delayed

    draws = None
    if bootstrap:
        draws = make_bootstrap(ids, recipe.table, recipe.target, max_samples)

    def one(
        child: np.random.SeedSequence,
    ) -> tuple[Tree, npt.NDArray[np.uint32], npt.NDArray[np.float64]]:
        rng = np.random.default_rng(child)
        rows, out = _sample(recipe, ids, rng, draws, vote is not None)
        grown = grow_held(recipe, rows, out, rng)
        if finish is not None:
            grown = finish(grown, out.ids)
        if vote is None:
            return grown.tree, out.ids, np.empty((0, 0))
        leaves, at = np.unique(grown.held_leaf, return_inverse=True)
        said = vote(grown.tree, leaves)[at]
        if grown.held_share is not None:
            # Votes stay whole numbers: a part counts as its mass, as in the model.
            unit = MASS if recipe.target.counts_classes else 1
            said = said * (unit * grown.held_share)[:, None]
        return grown.tree, grown.held_ids, said

    trees: list[Tree] = []
    votes = times = None
    if vote is not None:
        votes = np.zeros((len(recipe.target.values), recipe.target.n_values))
        times = np.zeros(len(votes), dtype=np.int64)
    # One at a time: batches of trees would leave threads idle at the end.
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator", batch_size=1)
    children = seed.spawn(n_trees)[first:]
    for tree, held_ids, held_votes in parallel(delayed(one)(c) for c in children):
        trees.append(tree)
        if votes is not None and times is not None:
            seen = np.unique(held_ids)
            if len(seen) == len(held_ids):
                votes[held_ids] += held_votes
            else:  # parts of rows
                np.add.at(votes, held_ids, held_votes)
            times[seen] += 1
        if progress is not None:
            progress(len(trees))
    return Forest(trees, votes, times)


def bags(
    recipe: Recipe,
    n_trees: int,
    seed: np.random.SeedSequence,
    max_samples: int | float | None = None,
) -> Iterator[tuple[Rows, npt.NDArray[np.uint32]]]:
    """The bootstrap samples that `grow_forest` draws of all rows, and the rows out of each bag."""
    ids = np.arange(len(recipe.target.values), dtype=np.uint32)
    draws = make_bootstrap(ids, recipe.table, recipe.target, max_samples)
    for child in seed.spawn(n_trees):
        rows, out = _sample(recipe, ids, np.random.default_rng(child), draws, True)
        yield rows, out.ids


def _sample(
    recipe: Recipe,
    ids: npt.NDArray[np.uint32],
    rng: np.random.Generator,
    draws: Bootstrap | None,
    out_of_bag: bool,
) -> tuple[Rows, Rows]:
    """Rows of one tree, and its out-of-bag rows, both in table order."""
    target = recipe.target
    none = target.rows(ids[:0], None)
    if draws is None:
        return target.rows(ids, None), none
    times = np.zeros(len(target.values))
    times[draws.ids] = draws.sample(rng)
    drawn = np.flatnonzero(times)
    rows = target.rows(drawn, times.take(drawn))
    if not out_of_bag:
        return rows, none
    rest = ids[times[ids] == 0]
    own = target.draw_weights
    return rows, target.rows(rest, None if own is None else own[rest] / draws.unit)
