"""A plan carried out: code the table, compile the parts, grow and prune."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import DataError, SettingError
from treekit.grow.forest_builder import grow_forest
from treekit.grow.recipe import GrownTree, Recipe
from treekit.grow.route import leaf_shares
from treekit.grow.tree_builder import grow_held, grow_tree
from treekit.model.model import make_model
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Tree
from treekit.training.holdout import split_folds, split_off
from treekit.training.oob import oob_score, vote_of
from treekit.training.plan import Plan
from treekit.training.prune import prune
from treekit.training.recipe import make_recipe
from treekit.training.tasks import answering

__all__ = ["Outcome", "run"]


@dataclass(frozen=True)
class Outcome:
    """Trees, out-of-bag sums, and what is worth keeping in the model's provenance."""

    trees: list[Tree]
    votes: npt.NDArray[np.float64] | None = None
    times: npt.NDArray[np.int64] | None = None
    report: dict[str, Any] = field(default_factory=dict)


def run(
    dataset: Dataset,
    plan: Plan,
    progress: Callable[[int, int], None] | None,
    validation: Dataset | None = None,
    start: Outcome | None = None,
) -> Outcome:
    """Grow what the plan says, after the trees of `start`.

    The rows of `validation` are held out of every tree.
    """
    recipe = make_recipe(dataset, plan, validation)
    dataset = answering(dataset, plan.criterion.record, plan.criterion.layout)
    seed = np.random.SeedSequence(plan.settings["seed"])
    ids = np.arange(dataset.n_rows, dtype=np.uint32)
    if plan.settings["ensemble"] == "tree":
        return _one_tree(dataset, recipe, plan, ids, np.random.default_rng(seed))
    return _forest(dataset, recipe, plan, ids, seed, progress, start or Outcome([]))


def _one_tree(
    dataset: Dataset,
    recipe: Recipe,
    plan: Plan,
    ids: npt.NDArray[np.uint32],
    rng: np.random.Generator,
) -> Outcome:
    target = recipe.target
    held_ids = ids[:0]
    if plan.holdout > 0 and recipe.held is None:
        ids, held_ids = split_off(ids, plan.holdout, rng)
    grown = grow_held(recipe, target.rows(ids, None), target.rows(held_ids, None), rng)

    def folds(k: int) -> list[GrownTree]:
        parts = split_folds(ids, k, rng, None if target.dense else target.cells)
        return [
            grow_tree(recipe, target.rows(rest, None), target.rows(part, None), rng)
            for rest, part in parts
        ]

    report: dict[str, Any] = {}
    tree = prune(dataset, plan, recipe, grown, folds, report)
    return Outcome([tree], report={"pruner": report} if report else {})


def _forest(
    dataset: Dataset,
    recipe: Recipe,
    plan: Plan,
    ids: npt.NDArray[np.uint32],
    seed: np.random.SeedSequence,
    progress: Callable[[int, int], None] | None,
    start: Outcome,
) -> Outcome:
    settings = plan.settings
    total, first = settings["trees"], len(start.trees)
    score = settings["oob"] and settings["bootstrap"]
    held = plan.holdout > 0 and recipe.held is None
    if held and not settings["bootstrap"]:
        raise DataError("a forest's hold-out is its out-of-bag rows; set bootstrap=True")

    def no_folds(k: int) -> list[GrownTree]:
        raise DataError(f"a forest's trees are not regrown in {k} folds; give pruner.alpha")

    # Out-of-bag rows did not travel through a tree that was pruned, or grown beside others.
    changed = recipe.held is not None
    changed |= plan.pruner is not None and plan.pruner.functions.after is not None
    matrix = dataset.matrix() if changed and not recipe.fractional else np.empty((0, 0))

    def finish(grown: GrownTree, out: npt.NDArray[np.uint32]) -> GrownTree:
        tree = grown.tree
        if not (held and len(out) == 0):  # else no row was out of bag to prune by
            tree = prune(dataset, plan, recipe, grown, no_folds, {})
        if len(out) == 0:
            return replace(grown, tree=tree)
        if recipe.fractional:
            at = leaf_shares(tree, recipe.table, out, fractional=True)
            return replace(
                grown, tree=tree, held_ids=at.ids, held_leaf=at.leaf, held_share=at.share
            )
        alone = make_model(dataset.schema, [tree], missing=settings["missing"])
        leaf = leaf_indices(alone, matrix[out])[:, 0].astype(np.int64)
        return replace(grown, tree=tree, held_ids=out, held_leaf=leaf)

    forest = grow_forest(
        recipe,
        ids,
        total,
        seed,
        bootstrap=settings["bootstrap"],
        max_samples=settings["max_samples"],
        n_jobs=settings["n_jobs"],
        first=first,
        vote=vote_of(dataset, plan) if score or held else None,
        finish=finish if changed else None,
        progress=None if progress is None else lambda done: progress(first + done, total),
    )
    votes, times = forest.votes, forest.times
    if start.trees and votes is not None and times is not None:
        if start.votes is None or start.times is None:
            raise SettingError("the forest to continue was not scored out of bag; start anew")
        votes, times = votes + start.votes, times + start.times
    report: dict[str, Any] = {}
    if score and votes is not None and times is not None:
        label_costs = None if settings["voting"] == "hard" else plan.costs
        report["oob"] = oob_score(dataset, votes, times, label_costs)
        if held:
            report["oob"]["pruned_by_the_same_rows"] = True
    return Outcome(start.trees + forest.trees, votes, times, report)
