"""treekit: by histogram, and by exact search (`treekit exact`).

`treekit entropy` uses histograms and YDF's criterion, as trees by other criteria have
other sizes. `treekit hellinger` uses a third party's criterion, the plugin
`treekit-hellinger`; its trees differ, so its cost is not comparable with peers'.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.data import Rows
from benchmarks.sides.learner import Learner, Work

__all__ = ["made"]


@dataclass(frozen=True)
class Treekit(Learner):
    """The estimators for a matrix, `treekit.train` for a table with nominal columns."""

    splitter: str = "histogram"
    criterion: str | None = None
    whole_warm_up = True  # the exact splitter's code type depends on the distinct values

    def given(self, rows: Rows) -> Any:
        return rows.frame() if rows.levels else rows.x

    def fit(self, work: Work, given: Any, rows: Rows) -> Any:
        import treekit

        if rows.levels:
            return treekit.train(given.assign(_y=rows.y), "_y", **self._settings(work, rows))
        kind = "Regressor" if rows.regression else "Classifier"
        settings: dict[str, Any] = {"max_depth": work.depth, "random_state": work.seed}
        settings["max_features"] = "sqrt" if work.tried == "sqrt" else None
        criterion = "absolute_error" if work.absolute else self.criterion
        if criterion is not None:
            settings["criterion"] = criterion
        if not work.absolute and not work.random:
            settings["splitter"] = self.splitter
        if not work.forest:
            return getattr(treekit, f"DecisionTree{kind}")(**settings).fit(given, rows.y).model_
        make = getattr(treekit, f"{'ExtraTrees' if work.random else 'RandomForest'}{kind}")
        return make(work.trees, n_jobs=work.threads, **settings).fit(given, rows.y).model_

    def _settings(self, work: Work, rows: Rows) -> dict[str, Any]:
        """Return the work as settings of `treekit.train`."""
        settings: dict[str, Any] = {
            "task": "regression" if rows.regression else "classification",
            "splitter": self.splitter,
            "max_depth": work.depth,
            "max_features": work.tried,
            "seed": work.seed,
        }
        if self.criterion is not None:
            settings["criterion"] = self.criterion
        if work.forest:
            settings |= {"ensemble": "forest", "trees": work.trees}
            settings |= {"n_jobs": work.threads, "oob": False}
        return settings

    def answers(self, model: Any, given: Any) -> Any:
        if not hasattr(given, "columns"):
            given = dict(zip(model.schema.names, given.T, strict=True))
        return model.predict(given)

    def leaves(self, model: Any) -> int:
        return model.n_leaves

    def megabytes(self, model: Any) -> float:
        parts = [getattr(t, f.name) for t in model.trees for f in dataclasses.fields(t)]
        parts.append(model.units)
        return sum(part.nbytes for part in parts if isinstance(part, np.ndarray)) / 2**20


def made(side: str) -> Learner:
    _, _, kind = side.partition(" ")
    if kind in ("", "exact"):
        return Treekit(kind or "histogram")
    return Treekit(criterion=kind)
