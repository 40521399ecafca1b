"""Run a training plan: encode the table, compile the components, grow and prune the trees."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.compiling.criterion import make_python_mean_impurity
from treekit.compiling.functions import call_checked, make_read_only
from treekit.components.pruning import Context, losses_of
from treekit.contracts import CriterionFunctions
from treekit.data.dataset import Dataset
from treekit.data.schema import Schema
from treekit.errors import DataError, ModelError, PluginError, SettingError, TreekitWarning
from treekit.grow.forest_builder import (
    BootstrapSampler,
    VoteFunction,
    draw_tree_seeds,
    grow_forest,
    make_sampler,
    mix_rows,
)
from treekit.grow.recipe import GrownTree, Recipe
from treekit.grow.route import compute_leaf_shares
from treekit.grow.target_statistics import ClassTarget, TargetStatistics, choose_step
from treekit.grow.tree_builder import clip_tree, grow_tree, is_monotonic, start_with_validation
from treekit.kernels.records import Table
from treekit.model.json_values import to_json
from treekit.model.model import Model, distribute_votes, make_model, predict_labels
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Tree
from treekit.model.validation import check_tree
from treekit.registry.isolation import FOREIGN_ERRORS, describe_error
from treekit.training.importance import compute_score
from treekit.training.later import Later
from treekit.training.leaf_values import ExactMeans
from treekit.training.plan import Plan
from treekit.training.prepare import get_origin, make_recipe
from treekit.training.tasks import use_prediction_schema

# ---------------------------------------------------------------- run


@dataclass(frozen=True)
class Outcome:
    """Grown trees, out-of-bag votes, a report for the model's provenance, and their sampler."""

    trees: Sequence[Tree]
    votes: npt.NDArray[np.float64] | None = None
    times: npt.NDArray[np.int64] | None = None
    report: dict[str, Any] = field(default_factory=dict)
    sampler: BootstrapSampler | None = None


class LaterTree(Sequence[Tree]):
    """A tree built from its grown nodes on first access."""

    def __init__(self, make: Callable[[], Tree]) -> None:
        self._tree = Later(make)

    def __len__(self) -> int:
        return 1

    def __getitem__(self, position: Any) -> Any:
        return (self._tree.value,)[position]


def run_plan(
    dataset: Dataset,
    plan: Plan,
    progress: Callable[[int, int], None] | None,
    validation: Dataset | None,
    start: Outcome,
) -> Outcome:
    """Grow the trees of a plan, continuing those of `start`.

    The rows of `validation` are held out of every tree.
    """
    recipe = make_recipe(dataset, plan, validation)
    dataset = use_prediction_schema(dataset, plan.criterion.record, plan.criterion.layout)
    if plan.settings["ensemble"] == "tree":
        outcome = _grow_single_tree(dataset, recipe, plan)
        _warn_of_negative_scores(recipe, plan, outcome.trees)
        return outcome
    done, total = len(start.trees), plan.settings["trees"]
    sampler = make_forest_sampler(plan, recipe.table, recipe.target)
    grown = grow_share(
        dataset, recipe, plan, done, total,
        None if progress is None else lambda more: progress(done + more, total), sampler,
    )  # fmt: skip
    _warn_of_negative_scores(recipe, plan, grown.trees)
    joined = replace(join_outcomes([start, grown]), sampler=sampler)
    return score_outcome(dataset, plan, joined, validation is not None)


def _warn_of_negative_scores(recipe: Recipe, plan: Plan, trees: Sequence[Tree]) -> None:
    """Warn if trees are single leaves because a plugin's score has the wrong sign."""
    origin, functions, target = get_origin(plan.criterion), plan.criterion.functions, recipe.target
    if not origin.is_foreign or any(tree.n_nodes > 1 for tree in trees):
        return
    limits = recipe.limits._replace(max_depth=1, max_leaves=0, min_gain=-np.inf, min_decrease=0.0)
    ids = np.arange(len(target.values), dtype=np.uint32)
    rows, none = target.select_rows(ids, None), target.select_rows(ids[:0], None)
    tree = grow_tree(replace(recipe, limits=limits), rows, none, 0).tree
    if tree.n_nodes == 1:
        return  # no column can be split
    score, what = tree.gain[0], "every split of the root"
    of_classes = isinstance(target, ClassTarget) and not target.is_dense
    if of_classes and functions.score is not None:
        first = tree.value[0] * (np.arange(tree.value.shape[1]) == tree.value[0].argmax())
        score = functions.score(tree.value[0].copy(), np.stack([first, tree.value[0] - first]))
        what = "a split into pure branches"
    if score < 0.0:
        warnings.warn(
            f"{origin}: the score of {what} is {score:.3g}, below 0, so that each tree is one "
            "leaf; return larger scores for better splits, such as a loss times -1",
            TreekitWarning,
            stacklevel=2,
        )


def join_outcomes(outcomes: Sequence[Outcome]) -> Outcome:
    """Join the trees of a forest's shares, in order, and add up their votes."""
    trees = [tree for outcome in outcomes for tree in outcome.trees]
    votes = [outcome.votes for outcome in outcomes if outcome.votes is not None]
    times = [outcome.times for outcome in outcomes if outcome.times is not None]
    return Outcome(
        trees,
        sum(votes[1:], votes[0]) if votes else None,
        sum(times[1:], times[0]) if times else None,
    )


def score_outcome(dataset: Dataset, plan: Plan, outcome: Outcome, validated: bool) -> Outcome:
    """Add the out-of-bag score of a complete forest to its report.

    `validated`: whether a validation table, not the out-of-bag rows, pruned the trees.
    """
    settings, report = plan.settings, dict(outcome.report)
    if settings["oob"] and outcome.votes is not None and outcome.times is not None:
        report["oob"] = compute_oob_score(
            dataset, *predict_out_of_bag(dataset.schema, plan, outcome.votes, outcome.times)
        )
        if plan.holdout_share > 0 and not validated:
            report["oob"]["pruned_by_the_same_rows"] = True
    return replace(outcome, report=report)


def _grow_single_tree(dataset: Dataset, recipe: Recipe, plan: Plan) -> Outcome:
    target = recipe.target
    ids = np.arange(dataset.n_rows, dtype=np.uint32)
    seed = draw_tree_seeds(np.random.SeedSequence(plan.settings["seed"]), 1)[0]
    held_ids = ids[:0]
    if plan.holdout_share > 0 and recipe.held_out is None:
        ids, held_ids = split_holdout(mix_rows(recipe, ids, seed), plan.holdout_share)
    finish = start_with_validation(
        recipe, target.select_rows(ids, None), target.select_rows(held_ids, None), seed
    )
    if not (recipe.needs_exact_means or has_finish(plan, validated=False)):
        return Outcome(LaterTree(lambda: finish().tree))
    grown = finish()
    if recipe.needs_exact_means:
        missing = plan.settings["missing"]
        grown = ExactMeans(dataset, recipe, missing, drawn=False).set_values(grown)

    def grow_folds(k: int) -> list[GrownTree]:
        mixed = mix_rows(recipe, ids, seed + k)
        parts = split_folds(mixed, k, None if target.is_dense else target.cells)
        return [
            grow_tree(recipe, target.select_rows(rest, None), target.select_rows(part, None), seed)
            for rest, part in parts
        ]

    report: dict[str, Any] = {}
    tree = prune_tree(dataset, plan, recipe, grown, grow_folds, report)
    return Outcome([tree], report={"pruner": report} if report else {})


def grow_share(
    dataset: Dataset,
    recipe: Recipe,
    plan: Plan,
    first: int,
    last: int,
    progress: Callable[[int], None] | None,
    sampler: BootstrapSampler | None,
) -> Outcome:
    """Grow the trees of a forest from `first` on, up to but not including `last`.

    Parameters
    ----------
    progress : callable, optional
        Called with the number of trees done.
    sampler : BootstrapSampler or None
        See `make_forest_sampler`.
    """
    settings = plan.settings
    score = settings["oob"] and settings["bootstrap"]
    held = plan.holdout_share > 0 and recipe.held_out is None
    if held and not settings["bootstrap"]:
        raise DataError("a forest uses out-of-bag rows as its hold-out; set bootstrap=True")

    def refuse_folds(k: int) -> list[GrownTree]:
        raise DataError(
            f"the pruner uses cross-validation with {k} folds, which a forest does not support; "
            "set pruner.alpha"
        )

    # Growth routes out-of-bag rows through unpruned trees, and not at all if validation rows
    # are held out instead: route them again.
    means = None
    if recipe.needs_exact_means:
        missing, drawn = settings["missing"], plan.draws_rows
        means = ExactMeans(dataset, recipe, missing, drawn=drawn)
    pruned = has_finish(plan, validated=recipe.held_out is not None)
    matrix = dataset.to_matrix() if pruned and not recipe.fractional else np.empty((0, 0))

    def finish_tree(grown: GrownTree, out: npt.NDArray[np.uint32]) -> GrownTree:
        if means is not None:
            grown = means.set_values(grown)
        if not pruned:
            return grown
        tree = grown.tree
        if len(out) > 0 or not held:  # without out-of-bag rows there is nothing to prune by
            tree = prune_tree(dataset, plan, recipe, grown, refuse_folds, {})
        if len(out) == 0:
            return replace(grown, tree=tree)
        if recipe.fractional:
            at = compute_leaf_shares(tree, recipe.table, out, fractional=True)
            return replace(
                grown, tree=tree, held_ids=at.ids, held_leaf=at.leaf, held_share=at.share
            )
        alone = make_model(dataset.schema, [tree], missing=settings["missing"])
        leaf = leaf_indices(alone, matrix[out])[:, 0].astype(np.int64)
        return replace(grown, tree=tree, held_ids=out, held_leaf=leaf)

    forest = grow_forest(
        recipe,
        np.arange(dataset.n_rows, dtype=np.uint32),
        settings["trees"],
        np.random.SeedSequence(settings["seed"]),
        sampler=sampler,
        n_jobs=settings["n_jobs"],
        first=first,
        last=last,
        vote=make_vote_function(dataset, plan) if score or held else None,
        vote_step=choose_vote_step(dataset, settings["trees"]),
        finish=finish_tree if pruned or means is not None else None,
        progress=progress,
    )
    return Outcome(forest.trees, forest.votes, forest.times)


def has_finish(plan: Plan, *, validated: bool) -> bool:
    """Check whether grown trees are pruned, or their rows routed again: both read the columns."""
    return validated or (plan.pruner is not None and plan.pruner.functions.after is not None)


def make_forest_sampler(
    plan: Plan, table: Table, target: TargetStatistics
) -> BootstrapSampler | None:
    """Create the sampler of a forest's rows; None if each tree uses all rows."""
    if not plan.settings["bootstrap"]:
        return None
    ids = np.arange(len(target.values), dtype=np.uint32)
    return make_sampler(ids, table, target, plan.settings["max_samples"])


def choose_vote_step(dataset: Dataset, n_trees: int) -> float:
    """Return the power of two of which predictions of numbers are multiples when they are added."""
    if dataset.schema.task == "classification":
        return 1.0
    y = dataset.y
    largest = max(-float(y.min(initial=0.0)), float(y.max(initial=0.0)))
    return choose_step(4.0 * n_trees * largest)


# ---------------------------------------------------------------- hold-out and folds

Ids = npt.NDArray[np.uint32]


def split_holdout(mixed: Ids, share: float) -> tuple[Ids, Ids]:
    """Split rows in random order into those to train on and a `share` to hold out, ascending.

    Raises
    ------
    DataError
        If either would be empty.
    """
    size = round(share * len(mixed))
    if not 0 < size < len(mixed):
        raise DataError(
            f"a hold-out of {share} of {len(mixed)} rows leaves one side empty; "
            "change the pruner's setting holdout"
        )
    return np.sort(mixed[size:]), np.sort(mixed[:size])


def split_folds(mixed: Ids, k: int, cells: npt.NDArray[np.uint32] | None) -> list[tuple[Ids, Ids]]:
    """Return the rows to train on and those to hold out, ascending, for each of k folds.

    With `cells`, folds are stratified: they differ by at most one row in size and in the rows
    of each cell (Kohavi 1995, *A study of cross-validation and bootstrap*, found such folds
    better in bias and variance).

    Parameters
    ----------
    mixed : (rows,) uint32
        Rows in random order.
    cells : (all rows,) uint32, or None
        The class of each row.

    Raises
    ------
    DataError
        If there are fewer rows than folds.
    """
    if len(mixed) < k:
        raise DataError(f"{len(mixed)} rows are too few for {k} folds; reduce the pruner's folds")
    if cells is not None:
        mixed = mixed[np.argsort(cells[mixed], kind="stable")]
    fold = np.arange(len(mixed)) % k
    return [(np.sort(mixed[fold != part]), np.sort(mixed[fold == part])) for part in range(k)]


# ---------------------------------------------------------------- out-of-bag score


def make_vote_function(dataset: Dataset, plan: Plan) -> VoteFunction:
    """Return the function that computes out-of-bag votes of leaves: class votes, or numbers."""

    def compute_votes(tree: Tree, leaves: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        if dataset.schema.task == "regression":
            return tree.value[leaves]
        # A model of this tree alone: its votes do not depend on the number of trees.
        alone = Model(
            schema=dataset.schema,
            trees=(tree,),
            units=np.empty((0, 0), dtype=np.int64),
            missing=plan.settings["missing"],
            voting=plan.settings["voting"],
            costs=plan.costs,
        )
        return distribute_votes(alone, tree.value[leaves]).astype(np.float64)

    return compute_votes


def predict_out_of_bag(
    schema: Schema, plan: Plan, votes: npt.NDArray[np.float64], times: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
    """Return which rows were out of bag at least once, and the prediction of each of them.

    Predictions are codes of labels, or numbers: (rows, outputs).
    """
    seen = times > 0
    if schema.task == "regression":
        return seen, votes[seen] / times[seen, None]
    costs = None if plan.settings["voting"] == "hard" else plan.costs
    return seen, predict_voted_labels(votes[seen], schema.blocks, costs)


def compute_oob_score(
    dataset: Dataset, seen: npt.NDArray[np.bool_], predicted: npt.NDArray[Any]
) -> dict[str, float]:
    """Compute accuracy, or R squared, on the rows that were out of bag at least once.

    With several targets it is their mean.  ``majority`` is the accuracy of always predicting
    the most frequent class.  The other parameters are as returned by `predict_out_of_bag`.
    """
    if not seen.any():
        return {"rows": 0}
    rows: Any = slice(None) if seen.all() else seen  # a slice copies nothing
    y = dataset.y[rows]
    w = None if dataset.weights is None else dataset.weights[rows]
    score = compute_score(dataset.schema.task, y, predicted, w)
    if dataset.schema.task == "regression":
        return {"rows": len(y), "r2": score}
    total = len(y) if w is None else w.sum()
    shares = [np.bincount(column, w).max() / total for column in y.reshape(len(y), -1).T]
    return {"rows": len(y), "accuracy": score, "majority": float(np.mean(shares))}


def predict_voted_labels(
    votes: npt.NDArray[np.float64],
    blocks: Sequence[int],
    costs: npt.NDArray[np.int64] | None = None,
) -> npt.NDArray[np.int64]:
    """Return the code of each output's label (rows, outputs), by the votes for all classes."""
    whole = votes.astype(np.int64)
    labels = [predict_labels(whole[:, a:b], costs) for a, b in itertools.pairwise(blocks)]
    return np.stack(labels, axis=1)


# ---------------------------------------------------------------- pruning


def prune_tree(
    dataset: Dataset,
    plan: Plan,
    recipe: Recipe,
    grown: GrownTree,
    folds: Callable[[int], list[GrownTree]],
    report: dict[str, Any],
) -> Tree:
    """Prune `grown` by the plan's pruner, which writes its choices to `report`."""
    pruner = plan.pruner
    if pruner is None or pruner.functions.after is None:
        return grown.tree
    origin = get_origin(pruner)
    functions, target = _wrap_criterion_functions(plan), recipe.target
    impurity, layout = functions.impurity, plan.criterion.layout
    if impurity is not None and target.blocks is not None:
        impurity = make_python_mean_impurity(impurity, target.blocks)
    context = Context(
        grown,
        recipe.table,
        losses_of(dataset.schema, functions, plan.costs, layout, dense=target.is_dense),
        folds,
        impurity=impurity,
        fractional=recipe.fractional,
        validated=recipe.held_out is not None,
        report=report,
    )
    if origin.is_foreign:  # a plugin must not modify shared arrays
        context = replace(context, grown=make_read_only(grown), table=make_read_only(recipe.table))
    tree: Tree
    try:
        tree = pruner.functions.after(grown.tree, context)
        if origin.is_foreign:
            _check_pruned_tree(tree, dataset, report)
    except (DataError, PluginError, SettingError):
        raise
    except FOREIGN_ERRORS as error:
        raise origin.make_error(f"failed in after with {describe_error(error)}") from error
    if recipe.monotonic_signs is not None and not is_monotonic(tree, recipe.monotonic_signs):
        tree = clip_tree(tree, recipe.monotonic_signs)
    return tree


def _wrap_criterion_functions(plan: Plan) -> CriterionFunctions:
    """Return the criterion's functions; for a plugin, wrapped to validate their results."""
    functions: CriterionFunctions = plan.criterion.functions
    origin = get_origin(plan.criterion)
    if not origin.is_foreign:
        return functions
    loss, impurity = functions.loss, functions.impurity
    return replace(
        functions,
        loss=loss and partial(call_checked, origin, "loss", loss, infinite=True),
        impurity=impurity and partial(call_checked, origin, "impurity", impurity),
    )


def _check_pruned_tree(tree: Any, dataset: Dataset, report: dict[str, Any]) -> None:
    """Raise unless a pruner returned a valid tree of this schema and a serialisable report."""
    if not isinstance(tree, Tree):
        raise TypeError(f"after returned {tree!r:.80}, not a Tree")
    check_tree(tree, dataset.schema)
    if not np.isfinite(tree.gain).all():
        raise ValueError("after returned a tree with a gain that is NaN or infinite")
    for key, value in report.items():
        try:
            to_json({key: value})
        except (ModelError, RecursionError) as error:
            raise ValueError(f"context.report[{key!r}] cannot be saved: {error}") from None
