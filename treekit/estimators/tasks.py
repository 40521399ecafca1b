"""What classifiers share, and what regressors share."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    column_or_1d,
)
from sklearn.utils.multiclass import check_classification_targets

from treekit.data.dataset import Dataset
from treekit.data.features import check_text
from treekit.data.schema import Output, python_label
from treekit.errors import DataError
from treekit.estimators.base import EstimatorBase
from treekit.estimators.classes import class_factors, class_weight_setting, row_factors
from treekit.estimators.parameters import ClassParameters
from treekit.model.scoring import decide, label_codes, probabilities
from treekit.training.plan import make_plan

__all__ = ["ClassifierBase", "RegressorBase"]


class ClassifierBase(ClassifierMixin, ClassParameters, EstimatorBase):
    """What all classifiers share."""

    _task = "classification"
    classes_: Any

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The label of each row: (rows,) or (rows, outputs), of the type of ``classes_``."""
        # The labels in the type that they came in.
        codes = self._answers(X, label_codes)
        said = [labels[codes[:, k]] for k, labels in enumerate(self._labels())]
        return said[0] if len(said) == 1 else np.column_stack(said)

    def predict_proba(self, X: Any) -> Any:
        """(rows, classes) float64: the share of the votes, in the order of ``classes_``.

        Of several outputs a list of such arrays.
        """
        return self._answers(X, probabilities)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; of several outputs the share of rows whose labels all are right."""
        said = self.predict(X)
        if said.ndim == 1:
            return float(super().score(X, y, sample_weight))
        labels = _targets(self, y)
        check_consistent_length(said, labels, sample_weight)
        if labels.shape != said.shape:
            raise DataError(
                f"y has shape {labels.shape}, but there are {said.shape[1]} outputs; give a column "
                "of labels for each"
            )
        return float(np.average((said == labels).all(axis=1), weights=sample_weight))

    @property
    def n_classes_(self) -> int | list[int]:
        """Number of classes; of several outputs a list."""
        sizes = [len(labels) for labels in self._labels()]
        return sizes if isinstance(self.classes_, list) else sizes[0]

    def _labels(self) -> list[npt.NDArray[Any]]:
        """The labels of each output."""
        return self.classes_ if isinstance(self.classes_, list) else [self.classes_]

    def _read_target(self, y: Any) -> npt.NDArray[Any]:
        """(rows,) or (rows, outputs) int64: codes of `y`, whose labels become ``classes_``."""
        labels = _targets(self, y)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        if labels.ndim == 1:
            self.classes_, codes = np.unique(labels, return_inverse=True)
            return codes
        each = [np.unique(own, return_inverse=True) for own in labels.T]
        self.classes_ = [classes for classes, _ in each]
        return np.column_stack([codes for _, codes in each])

    def _held_target(self, y: Any) -> npt.NDArray[Any]:
        """Codes of labels that all are in ``classes_``: (rows,) or (rows, outputs) int32."""
        labels = _targets(self, y)
        columns = labels.reshape(len(labels), -1).T
        if len(columns) != len(self._labels()):
            raise DataError(
                f"the validation target has {len(columns)} columns and that of the training rows "
                f"{len(self._labels())}; give as many"
            )
        codes = np.empty(columns.T.shape, dtype=np.int32)
        for k, (own, classes) in enumerate(zip(columns, self._labels(), strict=True)):
            known = np.isin(own, classes)
            if not known.all():
                stranger = own[~known].tolist()[0]
                raise DataError(
                    f"the validation target holds {stranger!r}, which is no label of the training "
                    "rows; drop its rows, or train with some"
                )
            codes[:, k] = np.searchsorted(classes, own)
        return codes if labels.ndim == 2 else codes[:, 0]

    def _read_weights(
        self, sample_weight: Any, target: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64] | None:
        weights = super()._read_weights(sample_weight, target)
        by_label = self._weights_of_labels(target, target)
        if weights is None or by_label is None:
            return by_label if weights is None else weights
        return by_label * weights

    def _weights_of_labels(
        self, y: npt.NDArray[Any], target: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64] | None:
        # Training has class weights for one output.  Of several, scikit-learn's are
        # the product of what a row's labels weigh.
        if self.class_weight is None or target.ndim == 1:
            return None
        return row_factors(class_factors(self.class_weight, self._labels(), target), y)

    def _counted_weights(self, dataset: Dataset) -> npt.NDArray[np.float64] | None:
        class_weight = self._class_weight(dataset)
        if class_weight is None:
            return dataset.weights
        # The factors that training takes, whatever it makes of those that are asked for.
        factors = make_plan(dataset, {"class_weight": class_weight}).class_weights
        if factors is None:
            return dataset.weights
        by_class = row_factors([factors], dataset.y)
        return by_class if dataset.weights is None else by_class * dataset.weights

    def _class_weight(self, dataset: Dataset) -> Any:
        """`class_weight` as the setting of training, which knows it for one output."""
        if dataset.schema.more:
            return None
        return class_weight_setting(self.class_weight, self._labels()[0], dataset)

    def _settings(self, dataset: Dataset) -> dict[str, Any]:
        return super()._settings(dataset) | {
            "class_weight": self._class_weight(dataset),
            "priors": self.priors,
            "costs": self.costs,
        }

    def _dataset(
        self,
        x: Any,
        target: npt.NDArray[Any],
        weights: npt.NDArray[np.float64] | None,
        kinds: Mapping[str, Any],
    ) -> Dataset:
        # Codes go in and labels are put back: a label such as "NA" or "?" is
        # no missing value, and 1.0 stays a float.
        sizes = [len(own) for own in self._labels()]
        codes: Any = range(sizes[0])
        if target.ndim == 2:
            codes = {f"target{k}": range(size) for k, size in enumerate(sizes)}
        dataset = super()._dataset(x, target, weights, {**kinds, "classes": codes})
        first, *more = [
            tuple(python_label(label) for label in own.tolist()) for own in self._labels()
        ]
        for label in itertools.chain(first, *more):
            if isinstance(label, str):
                check_text(label, "a class label")
        others = zip(dataset.schema.more, more, strict=True)
        schema = msgspec.structs.replace(
            dataset.schema,
            classes=first,
            more=tuple(Output(output.name, labels) for output, labels in others),
        )
        return replace(dataset, schema=schema)


class RegressorBase(RegressorMixin, EstimatorBase):
    """What all regressors share."""

    _task = "regression"

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """The predicted number of each row: (rows,) or (rows, outputs) float64."""
        numbers: npt.NDArray[np.float64] = self._answers(X, decide)
        return numbers

    def _read_target(self, y: Any) -> npt.NDArray[Any]:
        numbers: npt.NDArray[np.float64] = _targets(self, y, np.float64)
        return numbers


def _targets(estimator: Any, y: Any, dtype: Any = None) -> npt.NDArray[Any]:
    """(rows,), or (rows, outputs) of more outputs than one."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        )
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        several: npt.NDArray[Any] = check_array(y, dtype=dtype, input_name="y")
        return several
    one: npt.NDArray[Any] = column_or_1d(y, dtype=dtype, warn=True)
    return one
