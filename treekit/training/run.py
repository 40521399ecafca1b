"""A plan carried out: code the table, compile the parts, grow and prune."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import DataError
from treekit.grow.builder import GrownTree, Recipe, grow_tree
from treekit.grow.forest import Vote, grow_forest
from treekit.model.ensemble import Model, make_model
from treekit.model.predict import leaf_indices
from treekit.model.tree import Tree
from treekit.model.votes import least_cost, spread
from treekit.training.plan import Plan
from treekit.training.prune import prune
from treekit.training.recipe import make_recipe

__all__ = ["Outcome", "run"]


@dataclass(frozen=True)
class Outcome:
    """Trees, out-of-bag sums, and what is worth keeping in the model's provenance."""

    trees: list[Tree]
    votes: npt.NDArray[np.float64] | None = None
    times: npt.NDArray[np.int64] | None = None
    report: dict[str, Any] = field(default_factory=dict)


def run(dataset: Dataset, plan: Plan, progress: Callable[[int, int], None] | None) -> Outcome:
    """Grow what the plan says."""
    recipe = make_recipe(dataset, plan)
    seed = np.random.SeedSequence(plan.settings["seed"])
    ids = np.arange(dataset.n_rows, dtype=np.uint32)
    if plan.settings["ensemble"] == "tree":
        return _one_tree(dataset, recipe, plan, ids, np.random.default_rng(seed))
    return _forest(dataset, recipe, plan, ids, seed, progress)


def _one_tree(
    dataset: Dataset,
    recipe: Recipe,
    plan: Plan,
    ids: npt.NDArray[np.uint32],
    rng: np.random.Generator,
) -> Outcome:
    share = plan.pruner.functions.holdout if plan.pruner else 0.0
    held_ids = ids[:0]
    if share > 0:
        mixed = rng.permutation(ids)
        size = round(share * len(ids))
        if not 0 < size < len(ids):
            raise DataError(
                f"{len(ids)} rows leave none on one side of a hold-out of {share}; "
                "change the pruner's setting holdout"
            )
        held_ids, ids = np.sort(mixed[:size]), np.sort(mixed[size:])
    grown = grow_tree(
        recipe, recipe.target.rows(ids, None), recipe.target.rows(held_ids, None), rng
    )

    def folds(k: int) -> list[GrownTree]:
        parts = np.array_split(rng.permutation(ids), k)
        if min(len(part) for part in parts) == 0:
            raise DataError(f"{len(ids)} rows cannot make {k} folds; lower the pruner's folds")
        return [_grow_without(recipe, ids, part, rng) for part in parts]

    report: dict[str, Any] = {}
    tree = prune(dataset, plan, grown, folds, report)
    return Outcome([tree], report={"pruner": report} if report else {})


def _grow_without(
    recipe: Recipe,
    ids: npt.NDArray[np.uint32],
    part: npt.NDArray[np.uint32],
    rng: np.random.Generator,
) -> GrownTree:
    rest = np.setdiff1d(ids, part)
    target = recipe.target
    return grow_tree(recipe, target.rows(rest, None), target.rows(np.sort(part), None), rng)


def _forest(
    dataset: Dataset,
    recipe: Recipe,
    plan: Plan,
    ids: npt.NDArray[np.uint32],
    seed: np.random.SeedSequence,
    progress: Callable[[int, int], None] | None,
) -> Outcome:
    settings = plan.settings
    total = settings["trees"]
    score = settings["oob"] and settings["bootstrap"]
    held = plan.pruner is not None and plan.pruner.functions.holdout > 0
    if held and not settings["bootstrap"]:
        raise DataError("a forest's hold-out is its out-of-bag rows; set bootstrap=True")

    def no_folds(k: int) -> list[GrownTree]:
        raise DataError(f"a forest's trees are not regrown in {k} folds; give pruner.alpha")

    pruned = plan.pruner is not None and plan.pruner.functions.after is not None
    matrix = _matrix(dataset) if pruned else np.empty((0, 0))

    def finish(grown: GrownTree) -> GrownTree:
        if held and len(grown.held_ids) == 0:
            return grown  # no row was out of bag to prune by
        tree = prune(dataset, plan, grown, no_folds, {})
        ids = grown.held_ids
        leaf = leaf_indices(make_model(dataset.schema, [tree]), matrix[ids])[:, 0].astype(np.int64)
        return replace(grown, tree=tree, held_leaf=leaf)

    forest = grow_forest(
        recipe,
        ids,
        total,
        seed,
        bootstrap=settings["bootstrap"],
        max_samples=settings["max_samples"],
        n_jobs=settings["n_jobs"],
        vote=_vote(dataset, plan) if score or held else None,
        finish=finish if pruned else None,
        progress=None if progress is None else lambda done: progress(done, total),
    )
    report: dict[str, Any] = {}
    if score and forest.votes is not None and forest.times is not None:
        report["oob"] = oob_score(dataset, forest.votes, forest.times, plan.costs)
        if held:
            report["oob"]["pruned_by_the_same_rows"] = True
    return Outcome(forest.trees, forest.votes, forest.times, report)


def _vote(dataset: Dataset, plan: Plan) -> Vote:
    """What leaves of a tree say out of bag: votes for each class, or numbers."""

    def vote(tree: Tree, leaves: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        if dataset.schema.task == "regression":
            return tree.value[leaves]
        # Of a model of this tree alone: the votes do not depend on how many trees there are.
        alone = Model(
            schema=dataset.schema,
            trees=(tree,),
            units=np.empty((0, 0), dtype=np.int64),
            missing=plan.settings["missing"],
            voting=plan.settings["voting"],
            costs=plan.costs,
        )
        return spread(alone, tree.value[leaves]).astype(np.float64)

    return vote


def _matrix(dataset: Dataset) -> npt.NDArray[Any]:
    """(rows, features) of the model's input type: codes as numbers, NaN = missing."""
    matrix = np.empty((dataset.n_rows, len(dataset.columns)), dtype=dataset.schema.dtype)
    for f, column in enumerate(dataset.columns):
        matrix[:, f] = column
        if column.dtype.kind == "i":
            matrix[column < 0, f] = np.nan
    return matrix


def oob_score(
    dataset: Dataset,
    votes: npt.NDArray[np.float64],
    times: npt.NDArray[np.int64],
    costs: npt.NDArray[np.int64] | None = None,
) -> dict[str, float]:
    """Accuracy, or R squared, on the rows that were out of bag at least once."""
    seen = times > 0
    if not seen.any():
        return {"rows": 0}
    y = np.asarray(dataset.y, dtype=np.float64)[seen]
    w = np.ones(len(y)) if dataset.weights is None else dataset.weights[seen]
    if dataset.schema.task == "classification":
        right = least_cost(votes[seen].astype(np.int64), costs) == y
        return {"rows": int(seen.sum()), "accuracy": float((right * w).sum() / w.sum())}
    # Within float64: training refuses targets whose squares overflow.
    error = (y - votes[seen, 0] / times[seen]) ** 2
    spread = (y - np.average(y, weights=w)) ** 2
    total = float((spread * w).sum())
    r2 = 1.0 - float((error * w).sum()) / total if total > 0 else 0.0
    return {"rows": int(seen.sum()), "r2": r2}
