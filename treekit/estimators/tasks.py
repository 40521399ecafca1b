"""What classifiers share, and what regressors share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite, column_or_1d, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from treekit.data.dataset import Dataset
from treekit.data.levels import check_text
from treekit.data.schema import python_label
from treekit.errors import DataError
from treekit.estimators.base import EstimatorBase
from treekit.estimators.parameters import ClassParameters
from treekit.model.predict import decide, label_codes, probabilities

__all__ = ["ClassifierBase", "RegressorBase"]


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
