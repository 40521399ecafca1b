"""XGBoost: forests of one round, and one tree; binning is timed.

- ``num_parallel_tree`` trees in one round of rate 1, which averages them. Rows are
  sampled without replacement (0.632, as for LightGBM), columns at each node.
- ``max_depth=0`` with ``tree_method="hist"`` is unbounded; with ``min_child_weight=0`` and
  ``reg_lambda=0``, trees are fully grown.
- ``gamma=1e-4``: at 0, rounding gives pure nodes a gain (see `light`).
- 256 bins, the default.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from benchmarks.data import Rows
from benchmarks.sides.learner import Learner, Work

__all__ = ["made"]


class XgBoost(Learner):
    """xgboost.train."""

    def refuses(self, work: Work) -> str:
        if work.absolute:
            return "splits by the signs of residuals, not by least absolute error"
        return "has no extremely randomised trees" if work.random else ""

    def given(self, rows: Rows) -> Any:
        return rows.frame() if rows.levels else rows.x

    def fit(self, work: Work, given: Any, rows: Rows) -> Any:
        import xgboost

        goal = "reg:squarederror" if rows.regression else "binary:logistic"
        settings: dict[str, Any] = {"objective": goal}
        if rows.n_classes > 2:
            settings = {"objective": "multi:softprob", "num_class": rows.n_classes}
        settings |= {
            "tree_method": "hist",
            "nthread": work.threads,
            "seed": work.seed,
            "num_parallel_tree": work.trees,
            "learning_rate": 1.0,
            "max_depth": work.depth or 0,
            "min_child_weight": 0.0,
            "reg_lambda": 0.0,
            "gamma": 1e-4,
        }
        if work.forest:
            settings["subsample"] = 0.632
        if work.tried == "sqrt":
            settings["colsample_bynode"] = rows.tried / rows.x.shape[1]
        data = xgboost.QuantileDMatrix(
            given, rows.y, nthread=work.threads, enable_categorical=bool(rows.levels)
        )
        return xgboost.train(settings, data, num_boost_round=1)

    def answers(self, model: Any, given: Any) -> Any:
        import xgboost

        data = xgboost.DMatrix(given, enable_categorical=hasattr(given, "columns"))
        values = model.predict(data)
        if values.ndim == 2:
            return values.argmax(axis=1)
        if '"reg:squarederror"' in model.save_config():
            return values
        return (values > 0.5).astype(np.int64)

    def leaves(self, model: Any) -> int:
        text = model.save_raw("json").decode()
        return sum((int(n) + 1) // 2 for n in re.findall(r'"num_nodes":"(\d+)"', text))


def made(side: str) -> Learner:  # noqa: ARG001 - the module has one side
    return XgBoost()
