"""YDF (Yggdrasil Decision Forests), with exact search and with numbers in 255 bins.

Its defaults stop at depth 16 and at five rows, use hard votes and score rows out of bag,
which differs from the work of the others:

- ``max_depth=-1``, ``min_examples=1``: fully grown. Its depth counts nodes, the others'
  counts edges: one less.
- ``num_candidate_attributes`` is one less than the number of columns that the others try,
  as YDF tries one more than it is asked for (0 would be the square root, -1 is all).
- ``winner_take_all=False``: leaves give shares, as in scikit-learn.
- ``compute_oob_performances=False``: no other side computes them here.
- It only splits classes by information gain: its fully grown trees have an eighth fewer
  leaves than with the Gini index, as scikit-learn's with ``criterion="entropy"``. The side
  of treekit with the same work is `treekit entropy`.
- One tree is a forest of one without bootstrap, so that no rows are held out.
- Nominal columns are passed unchanged, with all categories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.data import Rows
from benchmarks.sides.learner import Learner, Work

__all__ = ["fitted", "made"]

TARGET = "_y"


@dataclass(frozen=True)
class Ydf(Learner):
    """RandomForestLearner.

    Attributes
    ----------
    discretized : bool
        Whether numbers are put into 255 bins, as in histograms.
    """

    discretized: bool = False

    def refuses(self, work: Work) -> str:
        if work.absolute:
            return "has no forests of least absolute error"
        return "has no extremely randomised trees of one threshold a column" if work.random else ""

    def given(self, rows: Rows) -> Any:
        return rows.columns(text=True)

    def fit(self, work: Work, given: Any, rows: Rows) -> Any:
        return fitted(work, given, rows, discretize_numerical_columns=self.discretized)

    def answers(self, model: Any, given: Any) -> Any:
        import ydf

        if model.task() == ydf.Task.REGRESSION:
            return model.predict(given)
        return model.predict_class(given).astype(np.int64)

    def leaves(self, model: Any) -> int:
        return (model.num_nodes() + model.num_trees()) // 2


def fitted(work: Work, given: Any, rows: Rows, **settings: Any) -> Any:
    """Fit a model of YDF."""
    import ydf

    ydf.verbose(0)
    task = ydf.Task.REGRESSION if rows.regression else ydf.Task.CLASSIFICATION
    learner = ydf.RandomForestLearner(
        TARGET,
        task=task,
        num_trees=work.trees,
        max_depth=-1 if work.depth is None else work.depth + 1,
        min_examples=1,
        num_candidate_attributes=max(rows.tried - 1, 1) if work.tried == "sqrt" else -1,
        bootstrap_training_dataset=work.forest,
        winner_take_all=False,
        compute_oob_performances=False,
        max_vocab_count=-1,
        min_vocab_frequency=1,
        num_threads=work.threads,
        random_seed=work.seed,
        **settings,
    )
    return learner.train({**given, TARGET: rows.y})


def made(side: str) -> Learner:
    return Ydf(discretized="discretized" in side)
