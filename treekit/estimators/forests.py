"""Random forests as scikit-learn estimators."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from treekit.data.dataset import Dataset
from treekit.errors import SettingError, TreekitWarning
from treekit.estimators.base import (
    ClassifierBase,
    EstimatorBase,
    RegressorBase,
    copy_fitted_attributes,
)
from treekit.estimators.parameters import ForestParameters
from treekit.estimators.tree_arrays import make_path_matrix
from treekit.estimators.trees import DecisionTreeClassifier, DecisionTreeRegressor, TreeBase
from treekit.model.model import make_model
from treekit.training import Fitted
from treekit.training.retrain import require_plugins

if TYPE_CHECKING:
    from treekit.grow.forest_builder import BootstrapSampler


class ForestBase(ForestParameters, EstimatorBase):
    """Base class of all forests."""

    _ensemble = "forest"
    _tree_class: type[TreeBase]
    _sampler: BootstrapSampler | None

    def _has_nothing_to_fit(self) -> bool:
        """Return whether the forest that `warm_start` continues already has all trees."""
        start = self._get_initial_forest()
        if start is None:
            return False
        grown = start.model.n_trees
        if self.n_estimators < grown:
            raise ValueError(
                f"n_estimators={self.n_estimators} must be larger or equal to {grown}, the number "
                "of fitted trees, when warm_start is True; increase n_estimators, or set "
                "warm_start=False"
            )
        if self.n_estimators == grown and self.oob_score and start.oob_votes is None:
            return False
        if self.n_estimators == grown:
            warnings.warn(
                "Warm-start fitting without increasing n_estimators does not fit new trees.",
                TreekitWarning,
                stacklevel=4,
            )
            return True
        # Components given as records, not by name, need no installed plugin.
        components = self.get_params(deep=False)
        components = {key: value for key, value in components.items() if not isinstance(value, str)}
        require_plugins(start.model, {k: v for k, v in components.items() if k != "algorithm"})
        return False

    def _make_settings(self, dataset: Dataset) -> dict[str, Any]:
        if self.oob_score and not self.bootstrap:
            raise SettingError(
                "Out of bag estimation only available if bootstrap=True; set bootstrap=True, or "
                "oob_score=False"
            )
        settings = super()._make_settings(dataset) | {"oob": bool(self.oob_score)}
        start = self._get_initial_forest()
        if start is not None:
            settings["seed"] = start.model.settings["seed"]
        return settings

    def _compute_draw_rate(self, dataset: Dataset) -> float:
        most = self.max_samples
        if not self.bootstrap or not isinstance(most, Real) or not most > 0:
            return 1.0  # training refuses other values
        if not isinstance(most, Integral):
            return float(most)
        from treekit.grow.forest_builder import compute_draw_rate
        from treekit.grow.target_statistics import count_draws

        weights = dataset.weights
        n_draws = dataset.n_rows if weights is None else count_draws(weights)
        return compute_draw_rate(n_draws, int(most))

    def _get_initial_forest(self) -> Fitted | None:
        return getattr(self, "_fitted", None) if self.warm_start else None

    def decision_path(self, X: Any) -> tuple[Any, npt.NDArray[np.int64]]:
        """Return the decision paths in all trees, and the offsets of the trees' nodes.

        Returns
        -------
        paths : (rows, nodes of all trees) CSR matrix
            1 where the row passes through the node.
        starts : (trees + 1,) int64
        """
        from scipy.sparse import hstack

        leaves = self.apply(X)
        trees = self.model_.trees
        paths = [make_path_matrix(tree.parent, leaves[:, t]) for t, tree in enumerate(trees)]
        starts = np.cumsum([0] + [tree.n_nodes for tree in trees])
        return hstack(paths, format="csr"), starts

    @property
    def estimators_(self) -> list[Any]:
        """The trees as fitted estimators, created on access."""
        check_is_fitted(self, "model_")
        model, template = self.model_, self.estimator_
        estimators = [clone(template) for _ in model.trees]
        for estimator, tree in zip(estimators, model.trees, strict=True):
            estimator.model_ = make_model(
                model.schema,
                [tree],
                missing=model.missing,
                unknown=model.unknown,
                costs=model.costs,
                settings=model.settings,
                provenance=model.provenance,
            )
            copy_fitted_attributes(self, estimator)
        return estimators

    @property
    def estimators_samples_(self) -> list[npt.NDArray[np.int32]]:
        """Row numbers of each tree's bootstrap sample, computed on access.

        Not available for forests grown on a cluster.
        """
        check_is_fitted(self, "model_")
        settings, n_trees = self.model_.settings, self.model_.n_trees
        if not settings["bootstrap"]:
            every = np.arange(self.model_.provenance["training_table"]["rows"], dtype=np.int32)
            return [every] * n_trees
        sampler = self._sampler
        if sampler is None:
            raise AttributeError(
                "estimators_samples_ is not available: the forest was grown on a cluster"
            )
        from treekit.grow.forest_builder import draw_tree_seeds

        seeds = draw_tree_seeds(np.random.SeedSequence(settings["seed"]), n_trees)
        counts = (sampler.draw_counts(seed).astype(np.intp) for seed in seeds)
        return [np.repeat(sampler.ids.astype(np.int32), own) for own in counts]

    @property
    def estimator(self) -> Any:
        """An unfitted tree with the forest's parameters."""
        names = {field.name for field in fields(self._tree_class)}
        own = self.get_params(deep=False)
        return self._tree_class(**{name: own[name] for name in own if name in names})

    @property
    def estimator_(self) -> Any:
        """An unfitted tree with the parameters of the fitted forest."""
        check_is_fitted(self, "model_")
        return self.estimator

    def __len__(self) -> int:
        """Return the number of trees."""
        check_is_fitted(self, "model_")
        return int(self.model_.n_trees)

    def __getitem__(self, index: Any) -> Any:
        """Return the tree at an index, or those of a slice, as fitted estimators."""
        return self.estimators_[index]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the trees as fitted estimators."""
        return iter(self.estimators_)

    def _report_progress(self, done: int, total: int) -> None:
        """Print the number of trees grown, ten times in all."""
        if done == total or done % max(total // 10, 1) == 0:
            print(f"{done} of {total} trees")  # noqa: T201 - the parameter asks for it

    def _store_results(self, fitted: Fitted, dataset: Dataset) -> None:
        self._sampler = fitted.sampler
        if self.warm_start:
            self._fitted = fitted
        if not self.oob_score or fitted.oob_votes is None or fitted.oob_times is None:
            return
        votes, times = fitted.oob_votes, fitted.oob_times
        if not times.all():
            warnings.warn(
                f"Some inputs do not have OOB scores (NaN): {int((times == 0).sum())} of "
                f"{len(times)} rows are in the bag of every tree; increase n_estimators",
                TreekitWarning,
                stacklevel=5,
            )
        from treekit.training.run import predict_voted_labels

        model, seen, y = fitted.model, times > 0, dataset.y
        with np.errstate(invalid="ignore"):
            if self._task == "classification":
                self.oob_decision_function_ = _normalize_votes(votes, model.schema.blocks)
                costs = None if model.voting == "hard" else model.costs
                codes = predict_voted_labels(votes, model.schema.blocks, costs)
                predictions, y = self._decode_labels(codes), self._decode_labels(y)
            else:
                predictions = votes / times[:, None]
                predictions = predictions if self.n_outputs_ > 1 else predictions[:, 0]
                self.oob_prediction_ = predictions
        if callable(self.oob_score):
            self.oob_score_ = self.oob_score(y[seen], predictions[seen])
        elif self._task == "classification" and self.n_outputs_ > 1:
            right = (y == predictions)[seen].all(axis=1)
            weights = None if dataset.weights is None else dataset.weights[seen]
            self.oob_score_ = float(np.average(right, weights=weights)) if seen.any() else np.nan
        else:
            report = model.provenance["oob"]
            self.oob_score_ = report.get("accuracy", report.get("r2", np.nan))

    def _count_threads(self) -> int:
        from joblib import effective_n_jobs

        return int(effective_n_jobs(self.n_jobs))


def _normalize_votes(
    votes: npt.NDArray[np.float64], blocks: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """Normalize votes (rows, classes of all outputs): (rows, classes[, outputs])."""
    each = [
        np.asarray(votes[:, a:b] / votes[:, a:b].sum(axis=1, keepdims=True))
        for a, b in pairwise(blocks)
    ]
    if len(each) == 1:
        return each[0]
    shares = np.zeros((len(votes), max(own.shape[1] for own in each), len(each)))
    for k, own in enumerate(each):
        shares[:, : own.shape[1], k] = own
    return shares


@dataclass(kw_only=True, eq=False, repr=False)
class RandomForestClassifier(ClassifierBase, ForestBase):
    """A forest of classification trees (Breiman 2001); with ``max_features=None``, bagging.

    The parameters are those of `DecisionTreeClassifier`, those of
    `treekit.estimators.parameters.ForestParameters`, and:

    Parameters
    ----------
    voting : {"soft", "hard"}
        ``soft``: average the class shares of the leaves; ``hard``: count the trees' labels.

    Attributes
    ----------
    estimators_ : list of DecisionTreeClassifier
        The trees one by one.
    oob_score_ : float
        Out-of-bag accuracy; a row with several outputs counts if all are correct.
    oob_decision_function_ : (rows, classes) float64
        Out-of-bag shares of votes; NaN for rows in the bag of every tree.  For several
        outputs (rows, largest number of classes, outputs).
    """

    _tree_class = DecisionTreeClassifier

    criterion: Any = "gini"
    max_features: Any = "sqrt"
    voting: str = "soft"


@dataclass(kw_only=True, eq=False, repr=False)
class RandomForestRegressor(RegressorBase, ForestBase):
    """A forest of regression trees (Breiman 2001).

    The parameters are those of `DecisionTreeRegressor` and of
    `treekit.estimators.parameters.ForestParameters`.

    Attributes
    ----------
    oob_score_ : float
        Out-of-bag R squared.
    oob_prediction_ : (rows,) or (rows, outputs) float64
        Out-of-bag predictions; NaN for rows in the bag of every tree.
    """

    _tree_class = DecisionTreeRegressor

    criterion: Any = "squared_error"
    max_features: Any = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class ExtraTreesClassifier(RandomForestClassifier):
    """Extremely randomised classification trees (Geurts, Ernst and Wehenkel 2006).

    A `RandomForestClassifier` that draws one random threshold per column and uses all rows.
    """

    splitter: Any = "random"
    bootstrap: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class ExtraTreesRegressor(RandomForestRegressor):
    """Extremely randomised regression trees (Geurts, Ernst and Wehenkel 2006).

    A `RandomForestRegressor` that draws one random threshold per column and uses all rows.
    """

    splitter: Any = "random"
    bootstrap: bool = False
