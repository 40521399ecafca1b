"""scikit-learn: its defaults define the work; nominal columns are codes."""

from __future__ import annotations

from typing import Any

from benchmarks.data import Rows
from benchmarks.sides.learner import Learner, Work

__all__ = ["made"]


class ScikitLearn(Learner):
    """RandomForest, ExtraTrees and DecisionTree."""

    def given(self, rows: Rows) -> Any:
        return rows.x

    def fit(self, work: Work, given: Any, rows: Rows) -> Any:
        from sklearn import ensemble, tree

        kind = "Regressor" if rows.regression else "Classifier"
        settings: dict[str, Any] = {"max_depth": work.depth, "random_state": work.seed}
        settings["max_features"] = "sqrt" if work.tried == "sqrt" else None
        if work.absolute:
            settings["criterion"] = "absolute_error"
        if not work.forest:
            return getattr(tree, f"DecisionTree{kind}")(**settings).fit(given, rows.y)
        make = getattr(ensemble, f"{'ExtraTrees' if work.random else 'RandomForest'}{kind}")
        return make(work.trees, n_jobs=work.threads, **settings).fit(given, rows.y)

    def answers(self, model: Any, given: Any) -> Any:
        return model.predict(given)

    def leaves(self, model: Any) -> int:
        return sum(tree.n_leaves for tree in _trees(model))

    def megabytes(self, model: Any) -> float:
        states = [tree.__getstate__() for tree in _trees(model)]
        return sum(s["nodes"].nbytes + s["values"].nbytes for s in states) / 2**20


def _trees(model: Any) -> list[Any]:
    return [one.tree_ for one in getattr(model, "estimators_", [model])]


def made(side: str) -> Learner:  # noqa: ARG001 - the module has one side
    return ScikitLearn()
