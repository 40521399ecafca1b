"""What all estimators share: from scikit-learn's words to a model and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import (
    check_consistent_length,
)
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from treekit import registry
from treekit.data.dataset import Dataset, coded_dataset, make_dataset_xy
from treekit.data.encoding import encode_rows
from treekit.data.schema import Schema
from treekit.errors import SettingError
from treekit.estimators.algorithms import by_algorithm, effective
from treekit.estimators.inputs import column_kinds, read_input
from treekit.estimators.limits import seed_of, signs_by_name, weight_limits
from treekit.estimators.parameters import Parameters
from treekit.model.model import Model
from treekit.model.scoring import answers, leaf_indices
from treekit.training import Fitted, fit
from treekit.training.importance import Importances, gain_importances, measure_importances
from treekit.training.tasks import answers_numbers

__all__ = ["EstimatorBase"]

_SHARED = (
    "algorithm",
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
        """Train on inputs `X` (rows, features) and targets `y` (rows,) or (rows, outputs).

        Parameters
        ----------
        X : array-like or dataframe
            Numbers, text and categories; NaN, None and null are missing.
        y : array-like of shape (rows,) or (rows, outputs)
            Labels, or finite numbers; one model predicts all outputs.
        sample_weight : array-like of shape (rows,), optional
            Not negative.  A row of whole weight w counts as w rows.
        validation : (X, y), optional
            Rows that pruners judge by, in place of a share of those of `X`.
            They weigh 1, times what the training rows' classes weigh.
            Of categories that `X` does not have, `unknown` says what they are.

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
        held = None if validation is None else self._validation(validation, dataset.schema, target)
        settings = by_algorithm(self, self._settings(dataset) | self._further())
        if self._task == "classification" and answers_numbers(settings):
            who = registry.described(registry.criterion(self.criterion))
            raise SettingError(
                f"{who} answers numbers of its own, and this is a classifier; use treekit.train"
            )
        fitted = fit(dataset, settings, validation=held, start=self._start())
        self.model_ = fitted.model
        self.n_outputs_ = len(dataset.schema.outputs)
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

        See `treekit.gain_importances`; `treekit.permutation_importances` are others.
        """
        check_is_fitted(self, "model_")
        return gain_importances(self.model_)

    def _read_target(self, y: Any) -> npt.NDArray[Any]:
        raise NotImplementedError

    def permutation_importances(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        out_of_bag: bool = False,
        repeats: int = 5,
        random_state: Any = 0,
    ) -> Importances:
        """What the score on `X` and `y` loses when a column's cells are shuffled.

        See `treekit.permutation_importances`; if `out_of_bag`, the rows and
        weights are those of the fit.
        """
        check_is_fitted(self, "model_")
        y = self._held_target(y)
        # The bags of several outputs were drawn by weights times class weights; those of
        # one know its class weights from the model.  Other scores know the rows' own.
        read = self._read_weights if out_of_bag else self._row_weights
        return measure_importances(
            self.model_,
            self._coded(X, y, self.model_.schema, read(sample_weight, y)),
            out_of_bag=out_of_bag,
            repeats=repeats,
            seed=seed_of(random_state),
            n_jobs=self._n_threads(),
        )

    def _validation(self, validation: Any, schema: Schema, target: npt.NDArray[Any]) -> Dataset:
        """The rows ``(X, y)`` in the terms of the training rows, which have this `target`."""
        if not isinstance(validation, (tuple, list)) or len(validation) != 2:
            raise SettingError(
                f"validation is a {type(validation).__name__}; give a pair (X, y) of rows as those "
                "to train on"
            )
        y = self._held_target(validation[1])
        return self._coded(validation[0], y, schema, self._weights_of_labels(y, target))

    def _coded(
        self,
        X: Any,
        y: npt.NDArray[Any],
        schema: Schema,
        weights: npt.NDArray[np.float64] | None = None,
    ) -> Dataset:
        """Rows and their coded target in the terms of the schema."""
        x = read_input(self, X, reset=False)
        check_consistent_length(X, y)
        matrix = encode_rows(x, schema, missing=effective(self, "missing"), unknown=self.unknown)
        return coded_dataset(matrix, y, schema, weights)

    def _held_target(self, y: Any) -> npt.NDArray[Any]:
        """The target of other rows, coded as the training rows' is."""
        return self._read_target(y)

    def _read_weights(
        self, sample_weight: Any, target: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64] | None:
        """Weights to train by."""
        return self._row_weights(sample_weight, target)

    def _row_weights(
        self, sample_weight: Any, target: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64] | None:
        if sample_weight is None:
            return None
        weights: npt.NDArray[np.float64] = _check_sample_weight(
            sample_weight, target, dtype=np.float64, ensure_non_negative=True
        )
        return weights

    def _weights_of_labels(
        self, y: npt.NDArray[Any], target: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64] | None:
        """What rows weigh by their labels `y`, where that is no setting; by training's `target`."""
        del y, target
        return None

    def _counted_weights(self, dataset: Dataset) -> npt.NDArray[np.float64] | None:
        """What the training rows weigh in a node."""
        return dataset.weights

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
            "monotonic": signs_by_name(self.monotonic_cst, dataset.schema.names),
        }
        settings |= weight_limits(
            self.min_samples_split,
            self.min_samples_leaf,
            self.min_weight_fraction_leaf,
            dataset.n_rows,
            self._counted_weights(dataset),
        )
        for kind in ("criterion", "splitter", "pruner"):
            own = getattr(self, f"{kind}_settings")
            if own is not None and not isinstance(own, Mapping):
                raise SettingError(
                    f"{kind}_settings is {own!r}; give a dict of the {kind}'s settings by name"
                )
            settings |= {f"{kind}.{name}": value for name, value in (own or {}).items()}
        return settings | self._complexity()

    def _further(self) -> dict[str, Any]:
        """`train_settings`, which win over the parameters."""
        if self.train_settings is not None and not isinstance(self.train_settings, Mapping):
            raise SettingError(
                f"train_settings is {self.train_settings!r}; give a dict of settings by name"
            )
        return dict(self.train_settings or {})

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

    def _answers(self, X: Any, say: Callable[[Model, npt.NDArray[np.int64]], Any]) -> Any:
        """What `say` makes of the rows' sums; see `treekit.model.scoring.answers`."""
        matrix = self._encode(X)  # says first whether there is a model
        return answers(self.model_, matrix, say, self._n_threads())

    def _n_threads(self) -> int:
        return 1

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = effective(self, "missing") != "error"
        # Text cells are taken, too; but scikit-learn's tag `string` promises any object.
        tags.input_tags.categorical = True
        tags.target_tags.multi_output = True
        return tags
