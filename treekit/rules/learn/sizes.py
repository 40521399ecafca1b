"""How many rules are enough, and whether another sample would have given the same ones.

Bénard et al. 2021, section 4: the size is chosen by cross-validation, of error and of
stability, which is the Dice-Sorensen index of lists from different folds.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from treekit.rules.learn.drawing import Drawing
from treekit.rules.learn.folds import fewest, folds_of
from treekit.rules.learn.given import Weighed, rows_and_weights
from treekit.rules.learn.indicators import indicators
from treekit.rules.learn.report import r_squared
from treekit.rules.learn.said import staged
from treekit.rules.learn.short import mean_auc
from treekit.rules.learn.stable import dice, drawn
from treekit.rules.rule_list import RuleList, taken

__all__ = ["chosen_size", "stability_of_halves"]


def chosen_size(task: Drawing, most: int, seed: int) -> tuple[int, float]:
    """The smallest number of rules that answer about as well as any number up to `most`.

    Each fold is left out once: a list is drawn from a forest of the other rows (or from
    the forest given, whose rules are fitted to the other rows), and judged by the fold.
    The error is 1 - AUC, or the unexplained part of the variance; `fewest` chooses.

    Returns
    -------
    size : int
    stability : float
        Mean Dice-Sorensen index of the lists of that size of any two folds.
    """
    fold = folds_of(task.dataset.n_rows, seed)
    errors = np.full((int(fold.max()) + 1, most), np.nan)
    lists: list[RuleList] = []
    for number in range(len(errors)):
        known = rows_and_weights(task.dataset.take(np.flatnonzero(fold != number)))
        held = rows_and_weights(task.dataset.take(np.flatnonzero(fold == number)))
        found = task.frequent(task.on(np.flatnonzero(fold != number)))
        chosen, met, _ = drawn(found, known, most, task.above)
        lists.append(chosen)
        for at, said in enumerate(staged(chosen, met, known, indicators(chosen, held.matrix))):
            errors[number, at] = _error(chosen, said, held)
    if np.isnan(errors).all():  # a class alone in each fold, or no rules: all sizes are equal
        return 1, np.nan
    size = fewest(errors[:, ~np.isnan(errors).all(axis=0)])
    short = [taken(own, np.arange(min(size, len(own)))) for own in lists]
    pairs = [dice(a, b) for a, b in itertools.combinations(short, 2)]
    return size, float(np.mean(pairs)) if pairs else np.nan


def _error(like: RuleList, said: npt.NDArray[np.float64], rows: Weighed) -> float:
    """1 - AUC, or 1 - R squared; the mean over several targets."""
    if like.schema.task == "regression":
        over = range(rows.y.shape[1])
        return 1 - float(np.mean([r_squared(said[:, k], rows.y[:, k], rows.weight) for k in over]))
    blocks = enumerate(itertools.pairwise(like.schema.blocks))
    return 1 - float(
        np.mean([mean_auc(said[:, a:b], rows.y[:, k], rows.weight) for k, (a, b) in blocks])
    )


def stability_of_halves(task: Drawing, size: int) -> float:
    """Dice-Sorensen index of the lists from every other tree of the forest and from the rest."""
    if task.forest.n_trees < 2:
        return np.nan
    rows = rows_and_weights(task.dataset)
    halves = [
        drawn(task.frequent(task.forest, slice(start, None, 2)), rows, size, task.above)[0]
        for start in (0, 1)
    ]
    return dice(*halves)
