"""LightGBM: its forest mode, and one tree; binning is timed.

- ``boosting="rf"`` for forests. Rows are sampled without replacement; 0.632 of them are
  the distinct rows of a bootstrap sample. One tree on all rows is one boosting round of
  rate 1.
- ``feature_fraction_bynode``: columns that a node tries, rounded by the library.
- ``min_data_in_leaf=1``, ``min_sum_hessian_in_leaf=0``, no penalties: fully grown.
  ``num_leaves`` is bounded by the number of rows and by 131,072.
- ``min_gain_to_split=1e-6``: at 0, rounding gives pure nodes a gain, and a third more
  leaves than scikit-learn's; with it, the numbers of leaves are equal.
- ``histogram_pool_size=256``: without a bound of its histogram cache, so many leaves took
  2.2 GB and 2 to 10 times the CPU seconds.
- 255 bins from 200,000 rows (default ``bin_construct_sample_cnt``).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from benchmarks.data import Rows
from benchmarks.sides.learner import Learner, Work

__all__ = ["made"]


class LightGbm(Learner):
    """lightgbm.train."""

    def refuses(self, work: Work) -> str:
        if work.absolute:
            return "splits by the signs of residuals, not by least absolute error"
        return "its extra_trees draws among bins, with other work" if work.random else ""

    def given(self, rows: Rows) -> Any:
        return rows.frame() if rows.levels else rows.x

    def fit(self, work: Work, given: Any, rows: Rows) -> Any:
        import lightgbm

        classes = rows.n_classes
        goal = {"objective": "regression"} if rows.regression else {"objective": "binary"}
        if classes > 2:
            goal = {"objective": "multiclass", "num_class": classes}
        settings: dict[str, Any] = goal | {
            "num_threads": work.threads,
            "seed": work.seed,
            "verbose": -1,
            "max_depth": -1 if work.depth is None else work.depth,
            "num_leaves": min(len(rows.y), 131_072) if work.depth is None else 2**work.depth,
            "min_data_in_leaf": 1,
            "min_sum_hessian_in_leaf": 0.0,
            "min_gain_to_split": 1e-6,
            "learning_rate": 1.0,
            "histogram_pool_size": 256.0,
        }
        if work.forest:
            settings |= {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.632}
        if work.tried == "sqrt":
            settings["feature_fraction_bynode"] = rows.tried / rows.x.shape[1]
        data = lightgbm.Dataset(given, rows.y, params={"verbose": -1})
        return lightgbm.train(settings, data, num_boost_round=work.trees)

    def answers(self, model: Any, given: Any) -> Any:
        values = model.predict(given)
        if values.ndim == 2:
            return values.argmax(axis=1)
        regression = model.params["objective"] == "regression"
        return values if regression else (values > 0.5).astype(np.int64)

    def leaves(self, model: Any) -> int:
        return sum(map(int, re.findall(r"^num_leaves=(\d+)", model.model_to_string(), re.M)))


def made(side: str) -> Learner:  # noqa: ARG001 - the module has one side
    return LightGbm()
