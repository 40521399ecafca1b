"""Feature importances by the gain of splits, or by permutation.

L. Breiman, "Random forests", Machine Learning 45, 2001, section 10; Breiman,
Friedman, Olshen and Stone 1984, section 5.3.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset, make_validation
from treekit.data.schema import Task
from treekit.errors import DataError, SettingError
from treekit.model.model import Model, make_model
from treekit.model.scoring import (
    compute_label_codes,
    leaf_indices,
    predict_from_sums,
    sum_leaf_values,
)
from treekit.model.tree import Split, Tree
from treekit.settings import check_integer
from treekit.training.class_weights import apply_class_weights
from treekit.training.plan import make_plan
from treekit.training.settings import check_n_jobs
from treekit.training.tasks import check_scorable, get_reading_options

Matrix = npt.NDArray[np.floating[Any]]


_MAX_SHOWN = 10
"""Number of columns shown by `repr`."""


@dataclass(frozen=True, eq=False, repr=False)
class Importances:
    """Permutation importances: the decrease of a score when one column is shuffled.

    Attributes
    ----------
    columns : tuple of str
    measure : {"accuracy", "r2"}
        Weighted accuracy, or R squared; the mean for several targets.
    score : float
        Score on the original rows; out of bag, the mean over the trees.
    decreases : (columns, samples) float64
        Decrease of the score for each shuffle, or out of bag for each tree.
    """

    columns: tuple[str, ...]
    measure: str
    score: float
    decreases: npt.NDArray[np.float64]

    def __repr__(self) -> str:
        """Return the score, and the largest importances with their standard errors."""
        names = [name if name.isprintable() else ascii(name) for name in self.columns]
        order = np.argsort(-self.mean, kind="stable")[:_MAX_SHOWN].tolist()
        width = max((len(names[f]) for f in order), default=0)
        errors = self.standard_error
        lines = [f"Importances: {self.measure} {self.score:.4f}, and its decrease per column"]
        for f in order:
            spread = "" if np.isnan(errors[f]) else f" +- {errors[f]:.4f}"
            lines.append(f"  {names[f]:<{width}}  {self.mean[f]:.4f}{spread}")
        if more := len(names) - len(order):
            lines.append(f"  and {more} more columns")
        return "\n".join(lines)

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """The importances, (columns,) float64."""
        return np.asarray(self.decreases.mean(axis=1))

    @property
    def standard_error(self) -> npt.NDArray[np.float64]:
        """Standard error of the mean, (columns,) float64; NaN for a single sample."""
        n = self.decreases.shape[1]
        if n < 2:
            return np.full(len(self.decreases), np.nan)
        return np.asarray(self.decreases.std(axis=1, ddof=1) / n**0.5)


def gain_importances(model: Model) -> npt.NDArray[np.float64]:
    """Compute each column's share of gain x weight, averaged over the trees: (columns,) float64.

    The shares add up to 1, or are all 0 if no tree has a split.  The columns of an oblique
    split share its gain equally, since weights of columns of different scales cannot be
    compared.
    """
    total = np.zeros(model.schema.n_features)
    for tree in model.trees:
        share = _sum_gains(tree, len(total))
        total += share / (share.sum() or 1.0)
    return total / (total.sum() or 1.0)


def _sum_gains(tree: Tree, n_features: int) -> npt.NDArray[np.float64]:
    # C4.5 allows splits without gain, whose gain may be below 0 by rounding.
    earned = np.maximum(tree.gain, 0.0) * tree.weight
    plain = (tree.kind != Split.LEAF) & (tree.kind != Split.OBLIQUE)
    terms = np.diff(tree.term_offsets)
    each = np.repeat(earned / np.maximum(terms, 1), terms)
    by_column = np.bincount(tree.feature[plain], earned[plain], minlength=n_features)
    of_sums = np.bincount(tree.term_feature, each, minlength=n_features)
    return np.asarray(by_column + of_sums, dtype=np.float64)


def permutation_importances(
    model: Model,
    source: Any,
    *,
    out_of_bag: bool = False,
    repeats: int = 5,
    weights: str | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
) -> Importances:
    """Compute permutation importances of a model on a table.

    Parameters
    ----------
    model : Model
    source : table
        Rows with the target, preferably not seen in training.
    out_of_bag : bool
        `source` is the training table of the forest, and each tree is scored on the rows
        for which it is out of bag (Breiman 2001, section 10).
    repeats : int
        Number of shuffles of each column; out of bag, each tree shuffles once.
    weights : str, optional
        Column of row weights; with `out_of_bag` that of the training.
    seed : int
    n_jobs : int, optional
        Number of threads, -1 for all cores; the result does not depend on it.

    Raises
    ------
    DataError
        If the table lacks a column or the target or, out of bag, is not the training
        table of the forest.
    SettingError
        If no rows are out of bag, or for invalid `repeats`, `seed` or `n_jobs`.
    """
    check_scorable(model, "accuracy or R squared")
    dataset = make_validation(
        source, model.schema, weights=weights, missing=model.missing, unknown=model.unknown,
        noun="the table", tested=model.tested,
        task_columns=get_reading_options(model.settings).get("task_columns") if
        out_of_bag else None,
    )  # fmt: skip
    return measure_importances(
        model, dataset, out_of_bag=out_of_bag, repeats=repeats, seed=seed, n_jobs=n_jobs
    )


def measure_importances(
    model: Model,
    dataset: Dataset,
    *,
    out_of_bag: bool = False,
    repeats: int = 5,
    seed: int = 0,
    n_jobs: int | None = None,
) -> Importances:
    """Compute `permutation_importances` on a `Dataset` of the model's schema."""
    repeats, seed = check_integer("repeats", repeats, 1), check_integer("seed", seed, 0)
    check_n_jobs(n_jobs)
    from joblib import Parallel, delayed

    weights = np.ones(dataset.n_rows) if dataset.weights is None else dataset.weights
    cases: list[Case] = [(model, dataset.to_matrix(), dataset.y, weights)] * repeats
    if out_of_bag:
        cases = list(_make_tree_cases(model, dataset, weights))
    seeds = np.random.SeedSequence(seed).spawn(len(cases))
    parallel = Parallel(n_jobs=n_jobs, require="sharedmem")
    lost = parallel(
        delayed(_measure_decrease)(*case, child) for case, child in zip(cases, seeds, strict=True)
    )
    scores, decreases = zip(*lost, strict=True)
    measure = "accuracy" if model.schema.task == "classification" else "r2"
    names = tuple(model.schema.names)
    return Importances(names, measure, float(np.mean(scores)), np.stack(decreases, axis=1))


Case = tuple[Model, Matrix, npt.NDArray[Any], npt.NDArray[np.float64]]
"""A model with the rows, targets and weights to score it on."""


def _make_tree_cases(
    model: Model, dataset: Dataset, weights: npt.NDArray[np.float64]
) -> Iterator[Case]:
    """Yield each tree as a model, with its out-of-bag rows, drawn again from the seed."""
    from treekit.grow.forest_builder import draw_samples
    from treekit.training.prepare import make_recipe

    settings = model.settings
    if settings.get("ensemble") != "forest" or not settings.get("bootstrap"):
        raise SettingError(
            "the model has no out-of-bag rows: it is not a treekit forest trained on bootstrap "
            "samples; leave out_of_bag out, and give rows not seen in training"
        )
    dataset = dataset.scale_weights()
    plan = make_plan(dataset, settings)
    recipe = make_recipe(apply_class_weights(dataset, plan.class_weights), plan)
    seed = np.random.SeedSequence(settings["seed"])
    drawn = draw_samples(recipe, model.n_trees, seed, settings["max_samples"])
    matrix = dataset.to_matrix()
    for tree, (sample, out) in zip(model.trees, drawn, strict=True):
        alone = make_model(
            model.schema, [tree], missing=model.missing, unknown=model.unknown,
            voting=model.voting, costs=model.costs,
        )  # fmt: skip
        _check_sample(alone, matrix[sample.ids], sample.values[:, 0])
        if weights[out].sum() > 0.0:
            yield alone, matrix[out], dataset.y[out], weights[out]


def _check_sample(model: Model, matrix: Matrix, weights: npt.NDArray[np.float64]) -> None:
    """Raise `DataError` if a sample is not the one that the model's only tree was grown on."""
    tree = model.trees[0]
    own, found = tree.weight[:1], weights.sum(keepdims=True)
    if model.missing != "fractional":  # otherwise a row may reach several leaves
        leaf = leaf_indices(model, matrix)[:, 0]
        found = np.bincount(leaf, weights, minlength=tree.n_nodes)[tree.leaves]
        own = tree.weight[tree.leaves]
    if not np.allclose(own, found, rtol=1e-6):
        raise DataError(
            "the table is not the one that the forest was trained on: the weights of its leaves "
            "differ; give the training table with its weights, or leave out_of_bag out"
        )


def _measure_decrease(
    model: Model,
    matrix: Matrix,
    y: npt.NDArray[Any],
    weights: npt.NDArray[np.float64],
    seed: np.random.SeedSequence,
) -> tuple[float, npt.NDArray[np.float64]]:
    """Return the model's score, and its decrease when each column is shuffled once."""
    rng = np.random.default_rng(seed)
    predict = compute_label_codes if model.schema.task == "classification" else predict_from_sums

    def score_rows(rows: Matrix) -> float:
        predicted = predict(model, sum_leaf_values(model, rows))
        return compute_score(model.schema.task, y, predicted, weights)

    score = score_rows(matrix)
    decrease = np.zeros(matrix.shape[1])
    shuffled = matrix.copy()
    for f in np.flatnonzero(model.tested):  # shuffling others has no effect
        shuffled[:, f] = rng.permutation(matrix[:, f])
        decrease[f] = score - score_rows(shuffled)
        shuffled[:, f] = matrix[:, f]
    return score, decrease


def compute_score(
    task: Task,
    y: npt.NDArray[Any],
    predicted: npt.NDArray[Any],
    weights: npt.NDArray[np.float64] | None,
) -> float:
    """Compute the weighted accuracy, or R squared; the mean of several targets.

    Uses few arrays as long as the table: 8 bytes a row for an accuracy without weights.
    """
    y = y.reshape(len(y), -1)
    predicted = predicted.reshape(y.shape)
    if task == "classification":
        return float(np.average((predicted == y).mean(axis=1), weights=weights))
    if weights is None:
        weights = np.ones(len(y))
    mean = np.average(y, weights=weights, axis=0)
    # No overflow: training rejects targets whose squares leave float64.
    distance = y - predicted
    error = weights @ np.square(distance, out=distance)
    np.subtract(y, mean, out=distance)
    total = weights @ np.square(distance, out=distance)
    left = np.divide(error, total, out=np.ones(len(total)), where=total > 0)
    return float(np.mean(1.0 - left))
