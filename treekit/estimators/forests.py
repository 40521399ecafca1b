"""Random forests as scikit-learn estimators."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from treekit.data.dataset import Dataset
from treekit.errors import SettingError, TreekitWarning
from treekit.estimators.base import ClassifierBase, EstimatorBase, RegressorBase
from treekit.training import Fitted

__all__ = ["RandomForestClassifier", "RandomForestRegressor"]


class ForestBase(EstimatorBase):
    """What both forests share."""

    _ensemble = "forest"

    def _settings(self, dataset: Dataset) -> dict[str, Any]:
        if self.oob_score and not self.bootstrap:
            raise SettingError("oob_score needs rows out of bag; set bootstrap=True")
        return super()._settings(dataset) | {
            "trees": self.n_estimators,
            "bootstrap": self.bootstrap,
            "oob": bool(self.oob_score),
            "n_jobs": self.n_jobs,
        }

    def _keep(self, fitted: Fitted) -> None:
        if not self.oob_score or fitted.oob_votes is None or fitted.oob_times is None:
            return
        votes, times = fitted.oob_votes, fitted.oob_times
        if not times.all():
            warnings.warn(
                f"{int((times == 0).sum())} of {len(times)} rows were out of bag for no tree and "
                "have no out-of-bag prediction (NaN); raise n_estimators",
                TreekitWarning,
                stacklevel=4,
            )
        report = fitted.model.provenance["oob"]
        with np.errstate(invalid="ignore"):
            if self._task == "classification":
                self.oob_decision_function_ = votes / votes.sum(axis=1, keepdims=True)
                self.oob_score_ = report.get("accuracy", np.nan)
            else:
                self.oob_prediction_ = votes[:, 0] / times
                self.oob_score_ = report.get("r2", np.nan)

    def _n_threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))


class RandomForestClassifier(ClassifierBase, ForestBase):
    """A forest of classification trees (Breiman 2001).

    Parameters and attributes are those of `DecisionTreeClassifier`, and:

    Parameters
    ----------
    n_estimators : int
        Number of trees.
    bootstrap : bool
        Each tree sees rows drawn with replacement, in proportion to their
        weight; otherwise all rows.
    oob_score : bool
        Judge each row by the trees that did not see it.
    n_jobs : int, optional
        Threads, -1 for all cores; the forest does not depend on it.

    Attributes
    ----------
    oob_score_ : float
        Accuracy, each row judged by the trees that did not see it.
    oob_decision_function_ : (rows, classes) float64
        Shares of their votes; NaN for rows that every tree saw.
    """

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: Any = "gini",
        splitter: Any = "auto",
        max_depth: int | None = None,
        min_samples_split: float = 2,
        min_samples_leaf: float = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: Any = "sqrt",
        random_state: Any = None,
        max_leaf_nodes: int | None = None,
        min_gain: float = 0.0,
        class_weight: Any = None,
        categorical: Any = "from_dtype",
        nominal_splits: str = "subset",
        pruner: Any = None,
        missing: str = "direction",
        unknown: str = "missing",
        dtype: str = "auto",
        criterion_settings: dict[str, Any] | None = None,
        splitter_settings: dict[str, Any] | None = None,
        pruner_settings: dict[str, Any] | None = None,
        max_bins: int = 255,
        bootstrap: bool = True,
        oob_score: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.criterion = criterion
        self.splitter = splitter
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
        self.max_features = max_features
        self.random_state = random_state
        self.max_leaf_nodes = max_leaf_nodes
        self.min_gain = min_gain
        self.class_weight = class_weight
        self.categorical = categorical
        self.nominal_splits = nominal_splits
        self.pruner = pruner
        self.missing = missing
        self.unknown = unknown
        self.dtype = dtype
        self.criterion_settings = criterion_settings
        self.splitter_settings = splitter_settings
        self.pruner_settings = pruner_settings
        self.max_bins = max_bins
        self.bootstrap = bootstrap
        self.oob_score = oob_score
        self.n_jobs = n_jobs


class RandomForestRegressor(RegressorBase, ForestBase):
    """A forest of regression trees (Breiman 2001).

    Parameters and attributes are those of `RandomForestClassifier`, without
    classes and their weights; and:

    Attributes
    ----------
    oob_score_ : float
        R squared, each row judged by the trees that did not see it.
    oob_prediction_ : (rows,) float64
        The mean of their predictions; NaN for rows that every tree saw.
    """

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: Any = "squared_error",
        splitter: Any = "auto",
        max_depth: int | None = None,
        min_samples_split: float = 2,
        min_samples_leaf: float = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: Any = 1.0,
        random_state: Any = None,
        max_leaf_nodes: int | None = None,
        min_gain: float = 0.0,
        categorical: Any = "from_dtype",
        nominal_splits: str = "subset",
        pruner: Any = None,
        missing: str = "direction",
        unknown: str = "missing",
        dtype: str = "auto",
        criterion_settings: dict[str, Any] | None = None,
        splitter_settings: dict[str, Any] | None = None,
        pruner_settings: dict[str, Any] | None = None,
        max_bins: int = 255,
        bootstrap: bool = True,
        oob_score: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.criterion = criterion
        self.splitter = splitter
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
        self.max_features = max_features
        self.random_state = random_state
        self.max_leaf_nodes = max_leaf_nodes
        self.min_gain = min_gain
        self.categorical = categorical
        self.nominal_splits = nominal_splits
        self.pruner = pruner
        self.missing = missing
        self.unknown = unknown
        self.dtype = dtype
        self.criterion_settings = criterion_settings
        self.splitter_settings = splitter_settings
        self.pruner_settings = pruner_settings
        self.max_bins = max_bins
        self.bootstrap = bootstrap
        self.oob_score = oob_score
        self.n_jobs = n_jobs
