"""What the four estimators share: from scikit-learn's words to a model and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import (
    assert_all_finite,
    check_consistent_length,
    column_or_1d,
    compute_sample_weight,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from treekit.data.dataset import Dataset, make_dataset_xy
from treekit.data.encode import encode_rows
from treekit.data.levels import check_text
from treekit.data.schema import Schema, python_label
from treekit.data.validation import coded_dataset
from treekit.errors import DataError, SettingError
from treekit.estimators.inputs import column_kinds, read_input
from treekit.estimators.limits import seed_of, weight_limits
from treekit.estimators.parameters import ClassParameters, Parameters
from treekit.model.ensemble import Model
from treekit.model.predict import decide, label_codes, leaf_indices, probabilities, sums
from treekit.model.tree import Split
from treekit.training import Fitted, fit

__all__ = ["ClassifierBase", "EstimatorBase", "RegressorBase"]

_SHARED = (
    "criterion",
    "splitter",
    "pruner",
    "nominal_splits",
    "max_depth",
    "min_gain",
    "max_bins",
    "missing",
    "unknown",
)
"""Parameters that are training settings as they are."""


class EstimatorBase(Parameters, BaseEstimator):
    """Fit and predict of every estimator."""

    _ensemble: Literal["tree", "forest"]
    _task: Literal["classification", "regression"]
    model_: Model

    def fit(self, X: Any, y: Any, sample_weight: Any = None, validation: Any = None) -> Any:
        """Train on inputs `X` (rows, features) and targets `y` (rows,).

        Parameters
        ----------
        X : array-like or dataframe
            Numbers, text and categories; NaN, None and null are missing.
        y : array-like of shape (rows,)
            Labels, or finite numbers.
        sample_weight : array-like of shape (rows,), optional
            Not negative.  A row of whole weight w counts as w rows.
        validation : (X, y), optional
            Rows that pruners judge by, in place of a share of those of `X`.
            Categories that `X` does not have are missing.

        Returns
        -------
        self
        """
        x = read_input(self, X, reset=True)
        target = self._read_target(y)
        check_consistent_length(X, target)
        weights = self._read_weights(sample_weight, target)
        if self._is_complete():
            return self
        kinds = column_kinds(self.categorical, x)
        dataset = self._dataset(x, target, weights, kinds._asdict())
        held = None if validation is None else self._validation(validation, dataset.schema)
        fitted = fit(dataset, self._settings(dataset), validation=held, start=self._start())
        self.model_ = fitted.model
        self.n_outputs_ = 1
        self._keep(fitted, dataset)
        return self

    def apply(self, X: Any) -> npt.NDArray[np.int32]:
        """The node in which each row ends: (rows,) of a tree, (rows, trees) of a forest.

        Where rows divide (``missing="fractional"``), the leaf that gets most of a row.
        """
        matrix = self._encode(X)
        nodes = leaf_indices(self.model_, matrix, self._n_threads())
        return nodes[:, 0] if self._ensemble == "tree" else nodes

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """(features,) float64: each column's share of gain x weight, the mean over the trees.

        Sums to 1, or is all 0 where no tree has a split.
        """
        check_is_fitted(self, "model_")
        total = np.zeros(self.model_.schema.n_features)
        for tree in self.model_.trees:
            inner = tree.kind != Split.LEAF
            share = np.bincount(
                tree.feature[inner], tree.gain[inner] * tree.weight[inner], minlength=len(total)
            )
            total += share / (share.sum() or 1.0)
        return total / (total.sum() or 1.0)

    def _read_target(self, y: Any) -> npt.NDArray[Any]:
        raise NotImplementedError

    def _validation(self, validation: Any, schema: Schema) -> Dataset:
        """The rows ``(X, y)`` in the terms of the training rows."""
        if not isinstance(validation, (tuple, list)) or len(validation) != 2:
            raise SettingError(
                f"validation is a {type(validation).__name__}; give a pair (X, y) of rows as those "
                "to train on"
            )
        x = read_input(self, validation[0], reset=False)
        y = self._held_target(validation[1])
        check_consistent_length(validation[0], y)
        return coded_dataset(encode_rows(x, schema, missing=self.missing), y, schema)

    def _held_target(self, y: Any) -> npt.NDArray[Any]:
        """The target of other rows, coded as the training rows' is."""
        return self._read_target(y)

    def _read_weights(
        self, sample_weight: Any, target: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64] | None:
        if sample_weight is None:
            return None
        weights: npt.NDArray[np.float64] = _check_sample_weight(
            sample_weight, target, dtype=np.float64, ensure_non_negative=True
        )
        return weights

    def _dataset(
        self,
        x: Any,
        target: npt.NDArray[Any],
        weights: npt.NDArray[np.float64] | None,
        kinds: Mapping[str, Any],
    ) -> Dataset:
        return make_dataset_xy(
            x, target, target="target", task=self._task, weights=weights, dtype=self.dtype, **kinds
        )

    def _settings(self, dataset: Dataset) -> dict[str, Any]:
        """The parameters as `treekit.training` takes them."""
        settings = {name: getattr(self, name) for name in _SHARED}
        settings |= {
            "ensemble": self._ensemble,
            "max_features": "all" if self.max_features is None else self.max_features,
            "max_leaves": self.max_leaf_nodes,
            "seed": seed_of(self.random_state),
        }
        settings |= weight_limits(
            self.min_samples_split,
            self.min_samples_leaf,
            self.min_weight_fraction_leaf,
            dataset.n_rows,
            dataset.weights,
        )
        for kind in ("criterion", "splitter", "pruner"):
            own = getattr(self, f"{kind}_settings")
            if own is not None and not isinstance(own, Mapping):
                raise SettingError(
                    f"{kind}_settings is {own!r}; give a dict of the {kind}'s settings by name"
                )
            settings |= {f"{kind}.{name}": value for name, value in (own or {}).items()}
        settings |= self._complexity()
        if self.train_settings is not None and not isinstance(self.train_settings, Mapping):
            raise SettingError(
                f"train_settings is {self.train_settings!r}; give a dict of settings by name"
            )
        return settings | dict(self.train_settings or {})

    def _complexity(self) -> dict[str, Any]:
        """`ccp_alpha` as a pruner."""
        alpha: Any = self.ccp_alpha
        if not isinstance(alpha, Real) or not 0.0 <= float(alpha) < np.inf:
            raise SettingError(f"ccp_alpha is {alpha!r}; give a number of at least 0")
        if alpha == 0.0:
            return {}
        if self.pruner is not None:
            raise SettingError(f"ccp_alpha and pruner={self.pruner!r} both prune; give one of them")
        # The squared error is the impurity of numbers.
        risk = "impurity" if self._task == "classification" else "loss"
        return {"pruner": "cost_complexity", "pruner.alpha": float(alpha), "pruner.risk": risk}

    def _is_complete(self) -> bool:
        """Whether nothing is left to fit."""
        return False

    def _start(self) -> Fitted | None:
        """The forest to continue, if any."""
        return None

    def _keep(self, fitted: Fitted, dataset: Dataset) -> None:
        """Set the attributes that only some estimators have."""

    def _encode(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self, "model_")
        model = self.model_
        x = read_input(self, X, reset=False)
        return encode_rows(x, model.schema, missing=model.missing, unknown=model.unknown)

    def _sums(self, X: Any) -> npt.NDArray[np.int64]:
        matrix = self._encode(X)
        return sums(self.model_, matrix, self._n_threads())

    def _n_threads(self) -> int:
        return 1

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "error"
        # Text cells are taken, too; but scikit-learn's tag `string` promises any object.
        tags.input_tags.categorical = True
        return tags


class ClassifierBase(ClassifierMixin, ClassParameters, EstimatorBase):
    """What all classifiers share."""

    _task = "classification"

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The label of each row: (rows,), of the type of ``classes_``."""
        # The labels in the type that they came in.
        votes = self._sums(X)
        labels: npt.NDArray[Any] = self.classes_[label_codes(self.model_, votes)[:, 0]]
        return labels

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """(rows, classes) float64: the share of the votes, in the order of ``classes_``."""
        votes = self._sums(X)
        shares: npt.NDArray[np.float64] = probabilities(self.model_, votes)
        return shares

    def _read_target(self, y: Any) -> npt.NDArray[Any]:
        """(rows,) int64: the class codes of `y`, whose labels become ``classes_``."""
        _refuse_no_target(self, y)
        labels = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        return codes

    def _held_target(self, y: Any) -> npt.NDArray[Any]:
        """(rows,) int32: codes of labels that all are in ``classes_``."""
        labels = column_or_1d(y, warn=True)
        if not np.isin(labels, self.classes_).all():
            stranger = labels[~np.isin(labels, self.classes_)].tolist()[0]
            raise DataError(
                f"the validation target holds {stranger!r}, which is no label of the training "
                "rows; drop its rows, or train with some"
            )
        codes: npt.NDArray[np.int32] = np.searchsorted(self.classes_, labels).astype(np.int32)
        return codes

    def _read_weights(
        self, sample_weight: Any, target: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64] | None:
        weights = super()._read_weights(sample_weight, target)
        if self.class_weight is None:
            return weights
        by_class: npt.NDArray[np.float64] = compute_sample_weight(
            self.class_weight, self.classes_[target]
        )
        return by_class if weights is None else by_class * weights

    def _settings(self, dataset: Dataset) -> dict[str, Any]:
        return super()._settings(dataset) | {"priors": self.priors, "costs": self.costs}

    def _dataset(
        self,
        x: Any,
        target: npt.NDArray[Any],
        weights: npt.NDArray[np.float64] | None,
        kinds: Mapping[str, Any],
    ) -> Dataset:
        # Codes go in and labels are put back: a label such as "NA" or "?" is
        # no missing value, and 1.0 stays a float.
        codes = range(len(self.classes_))
        dataset = super()._dataset(x, target, weights, {**kinds, "classes": codes})
        labels = tuple(python_label(label) for label in self.classes_.tolist())
        for label in labels:
            if isinstance(label, str):
                check_text(label, "a class label")
        return replace(dataset, schema=msgspec.structs.replace(dataset.schema, classes=labels))


class RegressorBase(RegressorMixin, EstimatorBase):
    """What all regressors share."""

    _task = "regression"

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """The predicted number of each row: (rows,) float64."""
        total = self._sums(X)
        return decide(self.model_, total)

    def _read_target(self, y: Any) -> npt.NDArray[Any]:
        _refuse_no_target(self, y)
        numbers: npt.NDArray[np.float64] = column_or_1d(y, dtype=np.float64, warn=True)
        return numbers


def _refuse_no_target(estimator: Any, y: Any) -> None:
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        )
