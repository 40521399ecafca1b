"""What a forest says of the rows that a tree has not seen."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.grow.forest import Vote
from treekit.model.ensemble import Model
from treekit.model.tree import Tree
from treekit.model.votes import least_cost, spread
from treekit.training.plan import Plan

__all__ = ["oob_score", "vote_of"]


def vote_of(dataset: Dataset, plan: Plan) -> Vote:
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
