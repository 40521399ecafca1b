"""What a forest says of the rows that a tree has not seen."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.grow.forest_builder import Vote
from treekit.model.model import Model, least_cost, spread
from treekit.model.tree import Tree
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
    """Accuracy, or R squared, on the rows that were out of bag at least once.

    Of several targets the mean.  ``majority`` is the accuracy of saying the most frequent class.
    """
    seen = times > 0
    if not seen.any():
        return {"rows": 0}
    y = dataset.y[seen].reshape(int(seen.sum()), -1)
    w = np.ones(len(y)) if dataset.weights is None else dataset.weights[seen]
    if dataset.schema.task == "classification":
        whole = votes[seen].astype(np.int64)
        ends = itertools.pairwise(dataset.schema.blocks)
        said = np.stack([least_cost(whole[:, a:b], costs) for a, b in ends], axis=1)
        right = (said == y).mean(axis=1)
        shares = [np.bincount(column, w).max() / w.sum() for column in y.T]
        return {
            "rows": len(y),
            "accuracy": float((right * w).sum() / w.sum()),
            "majority": float(np.mean(shares)),
        }
    # Within float64: training refuses targets whose squares overflow.
    error = w @ (y - votes[seen] / times[seen, None]) ** 2
    total = w @ (y - np.average(y, weights=w, axis=0)) ** 2
    left = np.divide(error, total, out=np.ones(len(total)), where=total > 0)
    return {"rows": len(y), "r2": float(np.mean(1.0 - left))}
