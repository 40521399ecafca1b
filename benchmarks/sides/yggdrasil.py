"""YDF (Yggdrasil Decision Forests), as it is and with numbers in 255 bins.

Its defaults stop at depth 16 and at five rows, vote by winners and judge rows
out of bag; none of this is the work of the others:

- ``max_depth=-1``, ``min_examples=1``: fully grown.  Its depth counts nodes,
  the others' edges: one more.
- ``num_candidate_attributes=0`` is the square root (the default of classes),
  -1 all columns.
- ``winner_take_all=False``: leaves give shares, as scikit-learn's do.
- ``compute_oob_performances=False``: nobody is asked for them here.
- It splits classes by information gain and by nothing else: its fully grown
  trees have an eighth fewer leaves than those of the Gini index, as scikit-learn's have
  with ``criterion="entropy"``.  The side of treekit that does its work is `treekit entropy`.
- one tree: a forest of one without bootstrap, so that no rows are held out.
- nominal columns as they are, every level kept.
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
        Numbers in 255 bins, as histograms have them.
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
    """A model of YDF."""
    import ydf

    ydf.verbose(0)
    task = ydf.Task.REGRESSION if rows.regression else ydf.Task.CLASSIFICATION
    learner = ydf.RandomForestLearner(
        TARGET,
        task=task,
        num_trees=work.trees,
        max_depth=-1 if work.depth is None else work.depth + 1,
        min_examples=1,
        num_candidate_attributes=0 if work.tried == "sqrt" else -1,
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
