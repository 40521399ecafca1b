"""Base classes of the estimators, and the conversion of their inputs."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from numbers import Number, Real
from typing import Any, Literal, TypeGuard

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    column_or_1d,
    compute_class_weight,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from treekit import registry
from treekit.contracts import CriterionFunctions
from treekit.data.cells import Cells, fill_masked, is_named_by_text, is_text, map_cells
from treekit.data.dataset import (
    CodedTarget,
    Dataset,
    add_inputs,
    check_no_missing,
    encode_targets,
    make_coded_dataset,
    read_targets,
)
from treekit.data.encoding import encode_rows
from treekit.data.features import check_unicode, convert_to_numbers
from treekit.data.schema import Output, Schema, python_label
from treekit.data.sparse import SparseColumns, is_sparse
from treekit.data.table import (
    Table,
    convert_to_cells,
    is_dask_collection,
    is_dataframe,
    make_table,
    read_table,
    suggest_names,
)
from treekit.errors import DataError, SettingError
from treekit.estimators.parameters import (
    COMPONENT_NAMES,
    PARAMETERS_OF_SETTINGS,
    ClassParameters,
    Parameters,
    compute_weight_limits,
    drop_algorithm_settings,
    make_seed,
    name_monotonic_signs,
    resolve_parameter,
)
from treekit.model.model import Model
from treekit.model.scoring import (
    compute_label_codes,
    compute_probabilities,
    leaf_indices,
    predict_from_sums,
    transform_sums,
)
from treekit.model.tree import Split, Tree
from treekit.training import Fitted, fit
from treekit.training.class_weights import (
    BALANCED_BAGS,
    apply_class_weights,
    compute_class_weights,
    rescale_factors,
)
from treekit.training.importance import Importances, gain_importances, measure_importances
from treekit.training.plan import COMPONENT_KINDS
from treekit.training.settings import count_features_to_try, select_settings
from treekit.training.tasks import predicts_numbers

# ---------------------------------------------------------------- inputs


def read_input(estimator: Any, x: Any, *, reset: bool) -> npt.NDArray[Any] | Table:
    """Check the inputs of ``fit`` (`reset`) or ``predict`` like scikit-learn.

    Sets or checks ``n_features_in_`` and ``feature_names_in_``.  Columns are then
    identified by position, because scikit-learn has checked names and order; only columns
    of a dataframe whose names are not text, which it does not check, are matched by name.

    Returns
    -------
    (rows, features) array, or Table
        An array unchanged (bools as numbers, masked cells missing), a dataframe or sparse
        matrix as a table.

    Raises
    ------
    ValueError, TypeError
        Raised by scikit-learn for invalid shapes, names and cells.
    """
    if is_dask_collection(x):
        raise DataError(
            "expected rows in memory, got a Dask collection; pass X.compute() (only fit, predict "
            "and predict_proba accept Dask collections)"
        )
    if is_sparse(x):
        return _read_sparse(estimator, x, reset=reset)
    if is_dataframe(x):
        table = read_table(x)
        validate_data(estimator, x, reset=reset, skip_check_array=True)
        if 0 in x.shape:
            check_array(np.empty(x.shape), estimator=estimator, input_name="X")
        if reset:
            estimator._matches_names = not hasattr(estimator, "feature_names_in_")
        return replace(table, named=getattr(estimator, "_matches_names", False))
    if reset:
        estimator._matches_names = False
    if isinstance(x, np.ma.MaskedArray):
        x = fill_masked(x)
    cells: npt.NDArray[Any] = x
    if not _is_plain_matrix(estimator, x, reset=reset):
        cells = validate_data(estimator, x, reset=reset, dtype=None, ensure_all_finite=False)
    if cells.dtype.kind == "b":
        return cells.astype(np.float64)
    if cells.dtype.kind == "O":
        _reject_invalid_cells(cells)
    finite_only = cells.dtype.kind == "f" and resolve_parameter(estimator, "missing") == "error"
    if finite_only and not np.isfinite(cells).all():
        found = "NaN" if np.isnan(cells).any() else "infinity"
        raise DataError(
            f"Input X contains {found}, but missing='error' takes finite numbers only; impute the "
            "cells, or use missing='direction'"
        )
    return cells


def _is_plain_matrix(estimator: Any, x: Any, *, reset: bool) -> bool:
    """Check for a float array that `validate_data` would return unchanged.

    Sets ``n_features_in_`` if `reset`.
    """
    # Searching the array for feature names would take a tenth of a small fit.
    if type(x) is not np.ndarray or x.ndim != 2 or x.dtype.kind != "f" or 0 in x.shape:
        return False
    if hasattr(estimator, "feature_names_in_"):
        return False
    if reset:
        estimator.n_features_in_ = x.shape[1]
    return bool(x.shape[1] == getattr(estimator, "n_features_in_", None))


def _read_numeric_frame(estimator: Any, x: Any) -> npt.NDArray[Any] | None:
    """Return the numbers of a pandas dataframe with the columns of training; None for others.

    Reading it as an array is four times as fast as reading it as a table.
    """
    library = type(x).__module__.partition(".")[0]
    if library != "pandas" or not hasattr(estimator, "feature_names_in_"):
        return None
    if not is_dataframe(x) or 0 in x.shape or not x.columns.is_unique:
        return None
    if any(dtype.kind not in "fiu" for dtype in x.dtypes):
        return None
    validate_data(estimator, x, reset=False, skip_check_array=True)  # names, in the same order
    cells: npt.NDArray[Any] = x.to_numpy()
    return cells if cells.dtype.kind in "fiu" else None


def _read_sparse(estimator: Any, x: Any, *, reset: bool) -> Table:
    """Check a sparse matrix like scikit-learn; a zero is a number, NaN is missing."""
    matrix = check_array(
        x, accept_sparse="csc", ensure_all_finite=False, estimator=estimator, input_name="X"
    )
    validate_data(estimator, matrix, reset=reset, skip_check_array=True)
    if resolve_parameter(estimator, "missing") == "error":
        assert_all_finite(matrix.data, input_name="X")
    return read_table(matrix)


def _reject_invalid_cells(cells: npt.NDArray[Any]) -> None:
    """Raise scikit-learn's TypeError for cells that are not text, numbers or missing."""
    missing = ("NoneType", "NAType", "NaTType", "MaskedConstant")
    for found in set(map(type, cells.ravel().tolist())):
        known = issubclass(found, (str, Number, np.generic)) or is_named_by_text(found)
        if not known and found.__name__ not in missing:
            raise TypeError(
                f"a cell of X is a {found.__name__}; give numbers, text or missing values (float() "
                "argument must be a string or a real number)"
            )


def resolve_column_kinds(
    estimator: Parameters, x: npt.NDArray[Any] | Table
) -> dict[str, list[str]]:
    """Determine the nominal and numeric columns from `categorical` or `categorical_features`.

    Parameters
    ----------
    x : array or Table
        The output of `read_input`.

    Raises
    ------
    SettingError
        If both parameters are given, or the given one is of another form than documented, or
        names an unknown column.
    """
    given = {
        name: value
        for name in ("categorical", "categorical_features")
        if not isinstance(value := getattr(estimator, name), str) or value != "from_dtype"
    }
    if not given:
        return {"nominal": [], "numeric": _list_bools(x)}
    if len(given) > 1:
        raise SettingError(
            "categorical and categorical_features both select the nominal columns; give one of them"
        )
    ((parameter, categorical),) = given.items()
    if isinstance(categorical, str):
        raise SettingError(
            f"{parameter} is {categorical!r}; give 'from_dtype', None, or the nominal columns as a "
            f"list of names, a list of positions or a Boolean mask, as in [{categorical!r}]"
        )
    names = list(x.names) if isinstance(x, Table) else [f"x{j}" for j in range(x.shape[1])]
    chosen = set(_resolve_positions(parameter, [] if categorical is None else categorical, names))
    return {
        "nominal": [name for j, name in enumerate(names) if j in chosen],
        "numeric": [name for j, name in enumerate(names) if j not in chosen],
    }


def _list_bools(x: npt.NDArray[Any] | Table) -> list[str]:
    """Return the columns of bools, which `treekit.data` would take as nominal."""
    if not isinstance(x, Table):
        if x.dtype.kind != "O":
            return []
        x = read_table(x)
    if isinstance(x.cells, SparseColumns):
        return []
    return [
        name
        for name, cells in zip(x.names, x.cells, strict=True)
        if cells.dtype.kind in "Ob" and not is_text(cells) and not x.levels.get(name)
    ]


def _resolve_positions(parameter: str, categorical: Any, names: list[str]) -> list[int]:
    chosen = np.asarray(categorical)
    entries = chosen.tolist() if chosen.ndim == 1 else [categorical]
    if entries and chosen.dtype.kind == "b":
        if chosen.shape == (len(names),):
            return np.flatnonzero(chosen).tolist()
        raise SettingError(
            f"{parameter} is a mask of {len(entries)} columns, but X has {len(names)}"
        )
    if entries and chosen.ndim == 1 and chosen.dtype.kind in "iu":
        if outside := [j for j in entries if not 0 <= j < len(names)]:
            raise SettingError(
                f"{parameter} contains position {outside[0]}; valid positions are 0 to "
                f"{len(names) - 1}"
            )
        return entries
    for name in entries:
        if not isinstance(name, str) or name not in names:
            wrong = f"{name!r}; give names, positions or a mask of columns"
            if isinstance(name, str):
                wrong = f"column {name!r}; {suggest_names(name, names)}"
            raise SettingError(f"{parameter} contains {wrong}")
    return [names.index(name) for name in entries]


# ---------------------------------------------------------------- class weights
# A training setting for one output, factors of the row weights for several outputs.

Numbers = npt.NDArray[np.float64]


def compute_class_factors(
    class_weight: Any, labels: Sequence[npt.NDArray[Any]], codes: npt.NDArray[Any]
) -> list[Numbers]:
    """Compute the class weights (classes,) of each output.

    Parameters
    ----------
    class_weight : dict, "balanced", or a sequence of these for several outputs
        ``balanced``: ``n_rows / (n_classes * n_rows_of_class)``, unweighted, as in
        scikit-learn.
    labels : sequence of (classes,) arrays
        Labels of each output.
    codes : (rows,) or (rows, outputs) int
        Codes of the training rows; all classes occur.

    Raises
    ------
    SettingError
        If the length of `class_weight` is not the number of outputs.
    """
    columns = codes.reshape(len(codes), -1).T
    each = [class_weight] * len(labels)
    if len(labels) > 1 and class_weight != "balanced":
        each = list(class_weight) if isinstance(class_weight, (list, tuple)) else []
        if len(each) != len(labels):
            raise SettingError(
                f"class_weight is {class_weight!r}, but there are {len(labels)} outputs; give "
                "'balanced', or a list of one dict per output"
            )
    return [
        compute_class_weight(given, classes=own, y=own[code])
        for given, own, code in zip(each, labels, columns, strict=True)
    ]


# ---------------------------------------------------------------- all estimators


class EstimatorBase(Parameters, BaseEstimator):
    """Base class of all estimators."""

    _ensemble: Literal["tree", "forest"]
    _task: Literal["classification", "regression"]
    _target_names: Sequence[str] = ()
    _trained: Fitted
    _doc_link_module = "treekit"

    def __new__(cls, *args: Any, **parameters: Any) -> Any:
        """Make an estimator; refuse settings of components by name."""
        del args
        for name in parameters:
            kind, sign, setting = name.partition("__")
            if sign and kind in COMPONENT_KINDS:
                raise TypeError(
                    f"pass {kind}_settings={{{setting!r}: ...}} to the constructor; {name} works "
                    "only in set_params and searches such as GridSearchCV"
                )
        return super().__new__(cls)

    @property
    def _doc_link_template(self) -> str:
        """The address of a class in the documentation, for scikit-learn's display in notebooks."""
        home = find_documentation()
        return home and home + "generated/api/treekit.{estimator_name}.html"

    @property
    def model_(self) -> Model:
        """The fitted `Model`, to save, export or verify."""
        return self._trained.model

    @model_.setter
    def model_(self, model: Model) -> None:
        self._trained = Fitted(model)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with `deep` also settings of components, as criterion__NAME."""
        found: dict[str, Any] = super().get_params(deep)
        for kind in COMPONENT_KINDS if deep else ():
            own = found.get(f"{kind}_settings")
            if isinstance(own, Mapping):
                found |= {f"{kind}__{name}": value for name, value in own.items()}
        return found

    def set_params(self, **parameters: Any) -> Any:
        """Set parameters, and settings of components as criterion__NAME."""
        own = {}
        for name in list(parameters):
            kind, sign, setting = name.partition("__")
            if sign and kind in COMPONENT_KINDS:
                own[kind, setting] = parameters.pop(name)
        super().set_params(**parameters)
        for (kind, setting), value in own.items():
            given = self._get_settings(f"{kind}_settings")
            setattr(self, f"{kind}_settings", given | {setting: value})
        return self

    def fit(self, X: Any, y: Any, sample_weight: Any = None, validation: Any = None) -> Any:
        """Fit to inputs `X` (rows, features) and targets `y` (rows,) or (rows, outputs).

        Parameters
        ----------
        X : array-like or dataframe
            Numbers, text and categories; NaN, None and null are missing.  Dask dataframes
            and arrays are trained on by the workers of the active client.
        y : array-like of shape (rows,) or (rows, outputs)
            Labels, or finite numbers; one model predicts all outputs.
        sample_weight : array-like of shape (rows,), optional
            Non-negative.  If all are integers, a row of weight w counts as w rows; otherwise
            only their ratios matter.
        validation : (X, y), optional
            Validation rows for pruners, in place of a share of the rows of `X`.
            Their weight is 1, times the class weights of the training rows.
            Categories that `X` does not have are treated as set by `unknown`.

        Returns
        -------
        self
        """
        pair = validation if isinstance(validation, (tuple, list)) else (validation,)
        if any(map(is_dask_collection, (X, y, sample_weight, *pair))):
            return self._fit_collections(X, y, sample_weight, validation)
        prepared = self._prepare_fit(X, y, sample_weight, validation)
        if prepared is None:
            return self
        dataset, validation, settings = prepared
        progress = self._report_progress if getattr(self, "verbose", 0) else None
        fitted = fit(dataset, settings, progress, validation, self._get_initial_forest())
        return self._finish_fit(fitted, dataset)

    def _prepare_fit(
        self, X: Any, y: Any, sample_weight: Any, validation: Any
    ) -> tuple[Dataset, Dataset | None, dict[str, Any]] | None:
        """Return the training and validation datasets, and the settings; None: nothing to fit."""
        x = read_input(self, X, reset=True)
        if len(getattr(y, "shape", ())) == 2 and y.shape[1] == 1:
            column_or_1d(np.empty(y.shape), warn=True)
        target = self._read_target(y)
        self._target_names = () if isinstance(y, np.ndarray | list) else read_targets(y).names
        check_consistent_length(X, target)
        weights = self._compute_training_weights(sample_weight, target)
        if self._has_nothing_to_fit():
            return None
        kinds = resolve_column_kinds(self, x)
        dataset = self._make_dataset(x, target, weights, kinds)
        if validation is not None:
            validation = self._make_validation_set(validation, dataset.schema, target)
        settings = drop_algorithm_settings(
            self, self._make_settings(dataset) | self._get_settings("train_settings")
        )
        if self._task == "classification" and predicts_numbers(settings):
            who = registry.described(registry.get("criterion", settings["criterion"]))
            raise SettingError(
                f"{who} predicts numbers instead of classes, which a classifier does not support; "
                "use treekit.train"
            )
        return dataset, validation, settings

    def _fit_collections(self, X: Any, y: Any, sample_weight: Any, validation: Any) -> Any:
        """Fit to Dask collections, on the cluster of the active client."""
        from treekit.distributed.whole_trees import fit_estimator

        if self._get_initial_forest() is not None:
            raise SettingError(
                "warm_start continues no forest on Dask collections; set warm_start=False, or "
                "fit to X.compute() and y.compute()"
            )
        held = (None, None) if validation is None else validation
        if not isinstance(held, (tuple, list)) or len(held) != 2:
            raise SettingError("validation must be a pair (X, y) with the training columns")
        fitted = fit_estimator(self, (X, y, sample_weight, *held), make_seed(self.random_state))
        given = self.get_params(deep=False)
        for name, value in vars(fitted).items():
            if name not in given:
                setattr(self, name, value)
        return self

    def _finish_fit(self, fitted: Fitted, dataset: Dataset) -> Any:
        """Set the fitted attributes."""
        self._trained = fitted
        self.n_outputs_ = len(dataset.schema.outputs)
        self._store_results(fitted, dataset)
        return self

    def apply(self, X: Any) -> npt.NDArray[np.int32]:
        """Return the leaf of each row: (rows,) for a tree, (rows, trees) for a forest.

        With ``missing="fractional"``, it is the leaf with the largest share of the row.
        """
        threads = self._count_threads()
        nodes = np.concatenate(
            [leaf_indices(self.model_, matrix, threads) for matrix in self._encode_rows(X)]
        )
        return nodes[:, 0] if self._ensemble == "tree" else nodes

    @property
    def max_features_(self) -> int:
        """Number of columns tried at each node."""
        check_is_fitted(self, "model_")
        tried = self.model_.settings["max_features"]  # an algorithm may have set it
        return count_features_to_try(tried, self.model_.schema.n_features)

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """(features,) float64: each column's share of gain x weight, averaged over the trees.

        See `treekit.gain_importances`, and `treekit.permutation_importances` for another kind.
        """
        check_is_fitted(self, "model_")
        return gain_importances(self.model_)

    def _read_target(self, y: Any) -> npt.NDArray[Any]:
        """Check the training target, and encode class labels as integers."""
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
        """Compute the decrease of the score on `X` and `y` when a column is shuffled.

        See `treekit.permutation_importances`; with `out_of_bag`, pass the rows and
        weights of the fit.
        """
        check_is_fitted(self, "model_")
        y = self._read_evaluation_target(y)
        # Bags for several outputs were drawn by weights times class weights; for one output
        # the class weights are in the model.  Scores on other rows use the rows' weights only.
        read = self._compute_training_weights if out_of_bag else self._check_row_weights
        return measure_importances(
            self.model_,
            self._encode_dataset(X, y, self.model_.schema, read(sample_weight, y)),
            out_of_bag=out_of_bag,
            repeats=repeats,
            seed=make_seed(random_state),
            n_jobs=self._count_threads(),
        )

    def _make_validation_set(
        self, validation: Any, schema: Schema, target: npt.NDArray[Any]
    ) -> Dataset:
        """Encode validation rows ``(X, y)`` with the schema of the training rows."""
        if not isinstance(validation, (tuple, list)) or len(validation) != 2:
            raise SettingError(
                f"validation is a {type(validation).__name__}; give a pair (X, y) with the "
                "columns of the training data"
            )
        y = self._read_evaluation_target(validation[1])
        return self._encode_dataset(
            validation[0], y, schema, self._compute_label_weights(y, target)
        )

    def _encode_dataset(
        self,
        X: Any,
        y: npt.NDArray[Any],
        schema: Schema,
        weights: npt.NDArray[np.float64] | None = None,
    ) -> Dataset:
        """Encode rows with a schema, and combine them with their coded target."""
        x = read_input(self, X, reset=False)
        check_consistent_length(X, y)
        matrix = encode_rows(
            x, schema, missing=resolve_parameter(self, "missing"), unknown=self.unknown
        )
        return make_coded_dataset(matrix, y, schema, weights)

    def _read_evaluation_target(self, y: Any) -> npt.NDArray[Any]:
        """Check and code the target of rows other than the training rows."""
        return self._read_target(y)

    def _compute_training_weights(
        self, sample_weight: Any, target: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64] | None:
        """Return the training weights of rows."""
        weights = self._check_row_weights(sample_weight, target)
        by_label = self._compute_label_weights(target, target)
        if weights is None or by_label is None:
            return by_label if weights is None else weights
        return by_label * weights

    def _check_row_weights(
        self, sample_weight: Any, target: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64] | None:
        """Check `sample_weight`."""
        if sample_weight is None:
            return None
        if not isinstance(sample_weight, Number):
            cells, _ = convert_to_cells("sample_weight", sample_weight)
            if cells.ndim == 1:
                table = make_table(["sample_weight"], [cells])
                sample_weight = convert_to_numbers(table, "sample_weight")
        weights: npt.NDArray[np.float64] = _check_sample_weight(
            sample_weight, target, dtype=np.float64, ensure_non_negative=True
        )
        return weights

    def _compute_label_weights(
        self, y: npt.NDArray[Any], target: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64] | None:
        """Return row weights by labels `y` and training `target`, if no setting covers them."""
        del y, target
        return None

    def _compute_node_weights(self, dataset: Dataset) -> npt.NDArray[np.float64] | None:
        """Return the weights with which training rows count in a node."""
        return dataset.weights

    def _compute_draw_rate(self, dataset: Dataset) -> float:
        """Return the expected number of times that a tree draws each row."""
        del dataset
        return 1.0

    def _make_dataset(
        self,
        x: Any,
        target: npt.NDArray[Any],
        weights: npt.NDArray[np.float64] | None,
        kinds: Mapping[str, Any],
    ) -> Dataset:
        """Make the training dataset of read inputs, a coded target and kinds of columns."""
        classes = self._list_classes(1 if target.ndim == 1 else target.shape[1])
        known = x.names if isinstance(x, Table) else [f"x{j}" for j in range(x.shape[1])]
        names = [name for name in self._target_names if name not in known]
        if len(names) != len(classes):
            names = [f"target{k}" for k in range(len(classes))] if len(classes) > 1 else ["target"]
        outputs = tuple(map(Output, names, classes))
        coded = CodedTarget(self._task, outputs, target)
        return add_inputs(coded, x, weights=weights, dtype=self.dtype, **kinds)

    def _list_classes(self, n_outputs: int) -> list[tuple[Any, ...]]:
        """Return the class labels of each output; none for regression."""
        return [()] * n_outputs

    def _make_settings(self, dataset: Dataset) -> dict[str, Any]:
        """Convert the parameters to settings of `treekit.training`."""
        settings = {
            setting: getattr(self, names[0])
            for setting, names in PARAMETERS_OF_SETTINGS.items()
            if hasattr(self, names[0])
        }
        for kind, names in COMPONENT_NAMES.items():
            if isinstance(settings[kind], str):
                settings[kind] = names.get(settings[kind], settings[kind])
        settings |= {
            "ensemble": self._ensemble,
            "max_features": "all" if self.max_features is None else self.max_features,
            "seed": make_seed(self.random_state),
            "monotonic": name_monotonic_signs(self.monotonic_cst, dataset.schema.names),
        }
        settings |= compute_weight_limits(
            self.min_samples_split,
            self.min_samples_leaf,
            self.min_weight_fraction_leaf,
            dataset.n_rows,
            self._compute_node_weights(dataset.scale_weights()),
            self._compute_draw_rate(dataset),
        )
        for kind in COMPONENT_KINDS:
            own = self._get_settings(f"{kind}_settings")
            settings |= {f"{kind}.{name}": value for name, value in own.items()}
        return settings | self._make_pruner_settings()

    def _get_settings(self, parameter: str) -> dict[str, Any]:
        """Return a parameter that holds settings by name."""
        given = getattr(self, parameter)
        if given is not None and not isinstance(given, Mapping):
            raise SettingError(f"{parameter} is {given!r}; give a dict of settings by name")
        return dict(given or {})

    def _make_pruner_settings(self) -> dict[str, Any]:
        """Convert `ccp_alpha` to settings of a pruner."""
        alpha: Any = self.ccp_alpha
        if not isinstance(alpha, Real) or not 0.0 <= float(alpha) < np.inf:
            raise SettingError(f"ccp_alpha is {alpha!r}; give a number of at least 0")
        if alpha == 0.0:
            return {}
        if self.pruner is not None:
            raise SettingError(f"ccp_alpha and pruner={self.pruner!r} both prune; give one of them")
        # For regression the loss, the squared error, is the impurity.
        risk = "impurity" if self._task == "classification" else "loss"
        return {"pruner": "cost_complexity", "pruner.alpha": float(alpha), "pruner.risk": risk}

    def _has_nothing_to_fit(self) -> bool:
        """Return whether nothing is left to fit."""
        return False

    def _get_initial_forest(self) -> Fitted | None:
        """Return the forest to continue, if any."""
        return None

    def _report_progress(self, done: int, total: int) -> None:
        """Show how far training is."""

    def _store_results(self, fitted: Fitted, dataset: Dataset) -> None:
        """Set fitted attributes that only some estimators have."""

    def _encode_rows(self, X: Any) -> Iterator[npt.NDArray[Any]]:
        """Encode rows for the fitted model: those of a sparse matrix in blocks."""
        check_is_fitted(self, "model_")
        model = self.model_
        numbers = None if model.schema.nominal.any() else _read_numeric_frame(self, X)
        x = read_input(self, X, reset=False) if numbers is None else numbers
        parts: Iterable[Any] = [x]
        if isinstance(x, Table) and isinstance(x.cells, SparseColumns):
            parts = x.iterate_blocks(x.n_rows)
        return (
            encode_rows(part, model.schema, missing=model.missing, unknown=model.unknown)
            for part in parts
        )

    def _transform_sums(
        self, X: Any, transform: Callable[[Model, npt.NDArray[np.int64]], Any], method: str
    ) -> Any:
        """Apply `transform` to the rows' sums; see `treekit.model.scoring.transform_sums`.

        Dask collections have lazy predictions, by the public method named `method`.
        """
        if is_dask_collection(X):
            from treekit.distributed.collections import predict_lazily

            check_is_fitted(self, "model_")
            return predict_lazily(self.model_, X, method, transform, self)
        blocks = self._encode_rows(X)  # first, because it checks that the estimator is fitted
        found = [
            transform_sums(self.model_, matrix, transform, self._count_threads())
            for matrix in blocks
        ]
        if len(found) == 1:
            return found[0]
        if isinstance(found[0], list):  # several outputs
            return [np.concatenate(parts) for parts in zip(*found, strict=True)]
        return np.concatenate(found)

    def _count_threads(self) -> int:
        return 1

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = resolve_parameter(self, "missing") != "error"
        # Text is supported as well, but scikit-learn's tag ``string`` implies any object.
        tags.input_tags.categorical = True
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        return tags


@functools.cache
def find_documentation() -> str:
    """Return the address of the documentation, as the distribution states it, or ``""``."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        for line in metadata.metadata("treekit-ml").get_all("Project-URL") or ():
            name, _, address = line.partition(", ")
            if name == "Documentation":
                return str(address)
    return ""


def copy_fitted_attributes(source: Any, target: Any) -> None:
    """Copy scikit-learn's attributes of inputs and outputs to another estimator."""
    for name in (
        "n_features_in_", "feature_names_in_", "_matches_names", "n_outputs_", "classes_"
    ):  # fmt: skip
        if hasattr(source, name):
            setattr(target, name, getattr(source, name))


# ---------------------------------------------------------------- classifiers and regressors


class ClassifierBase(ClassifierMixin, ClassParameters, EstimatorBase):
    """Base class of all classifiers."""

    _task = "classification"
    classes_: Any

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict the label of each row: (rows,) or (rows, outputs), typed as ``classes_``."""
        labels: npt.NDArray[Any] = self._transform_sums(X, self._choose_labels, "predict")
        return labels

    def _choose_labels(self, model: Model, sums: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return self._decode_labels(compute_label_codes(model, sums))

    def _decode_labels(self, codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the labels of codes (rows, outputs): (rows,) for one output."""
        codes = codes.reshape(len(codes), -1)
        labels = [own[codes[:, k]] for k, own in enumerate(self._list_labels())]
        if len({own.dtype.kind for own in labels}) > 1:  # one type could not hold all of them
            labels = [own.astype(object) for own in labels]
        return labels[0] if len(labels) == 1 else np.column_stack(labels)

    def predict_proba(self, X: Any) -> Any:
        """Predict class probabilities (rows, classes), in the order of ``classes_``.

        Returns a list of such arrays for several outputs.
        """
        return self._transform_sums(X, compute_probabilities, "predict_proba")

    def predict_log_proba(self, X: Any) -> Any:
        """Predict the logarithms of the class probabilities; see `predict_proba`."""
        shares = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return [np.log(own) for own in shares] if isinstance(shares, list) else np.log(shares)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the accuracy; for several outputs, all labels of a row must be correct."""
        predictions = np.asarray(self.predict(X))
        codes = self._encode_labels(y)
        check_consistent_length(predictions, codes)
        known = [own[codes[:, k]] for k, own in enumerate(self._list_labels())]
        columns = predictions.reshape(codes.shape).T
        right = [own == found for own, found in zip(known, columns, strict=True)]
        correct = (np.column_stack(right) & (codes >= 0)).all(axis=1)
        return float(np.average(correct, weights=self._check_row_weights(sample_weight, codes)))

    @property
    def n_classes_(self) -> int | list[int]:
        """Number of classes; a list for several outputs."""
        sizes = [len(labels) for labels in self._list_labels()]
        return sizes if isinstance(self.classes_, list) else sizes[0]

    def _list_labels(self) -> list[npt.NDArray[Any]]:
        """Return the labels of each output."""
        return self.classes_ if isinstance(self.classes_, list) else [self.classes_]

    def _read_target(self, y: Any) -> npt.NDArray[Any]:
        """Return the codes of `y`, (rows,) or (rows, outputs) int32, and set ``classes_``."""
        columns = list(_read_labels(self, y).values())
        coded = []
        for labels in columns:
            if labels.dtype.kind == "f":
                assert_all_finite(labels, input_name="y")
            present, own = np.unique(labels, return_inverse=True)
            coded.append((present, own.astype(np.int32)))
            # Integers are always classes; scikit-learn warns only if they are many.
            is_plain = labels.dtype.kind in "bi" and len(coded[-1][0]) <= len(labels) // 2
            if not is_plain and (labels.dtype.kind == "f" or len(columns) == 1):
                check_classification_targets(labels)
        classes, codes = zip(*coded, strict=True)
        self.classes_ = list(classes) if len(columns) > 1 else classes[0]
        return np.column_stack(codes) if len(columns) > 1 else codes[0]

    def _read_evaluation_target(self, y: Any) -> npt.NDArray[Any]:
        """Return the codes of `y`, int32; all labels must be in ``classes_``."""
        codes = self._encode_labels(y)
        if (codes < 0).any():
            row, k = map(int, np.argwhere(codes < 0)[0])
            unknown = list(_read_labels(self, y).values())[k][row : row + 1].tolist()[0]
            raise DataError(
                f"the validation target contains {unknown!r}, which is not a label of the "
                "training rows; drop these rows, or add such rows for training"
            )
        return codes if codes.shape[1] > 1 else codes[:, 0]

    def _encode_labels(self, y: Any) -> npt.NDArray[np.int32]:
        """Return the codes of labels (rows, outputs), -1 for those that are not in ``classes_``."""
        columns, each = _read_labels(self, y), self._list_labels()
        if len(columns) != len(each):
            raise DataError(
                f"y has {len(columns)} columns, but there are {len(each)} outputs; give one "
                "column of labels per output"
            )
        codes = []
        for (name, labels), classes in zip(columns.items(), each, strict=True):
            if len(labels) and (labels.dtype.kind in "OUT") != (classes.dtype.kind in "OUT"):
                text = "text" if labels.dtype.kind in "OUT" else "no text"
                raise DataError(
                    f"the target {name!r} holds {labels[:1].tolist()[0]!r}, which is {text}, but "
                    f"the labels of the training rows are like {classes[:1].tolist()[0]!r}; give "
                    "labels of one type"
                )
            code = {label: position for position, label in enumerate(classes.tolist())}
            codes.append(map_cells(labels, partial(_get_code, code), np.int32))
        return np.column_stack(codes)

    def _compute_label_weights(
        self, y: npt.NDArray[Any], target: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64] | None:
        # Training supports class weights for one output only.  For several outputs, as in
        # scikit-learn, a row's factor is the product of the class weights of its labels.
        if self.class_weight is None or target.ndim == 1:
            return None
        factors = compute_class_factors(self.class_weight, self._list_labels(), target)
        each = [own[codes] for own, codes in zip(factors, y.T, strict=True)]
        return np.asarray(np.prod(each, axis=0), dtype=np.float64)

    def _compute_node_weights(self, dataset: Dataset) -> npt.NDArray[np.float64] | None:
        factors = compute_class_weights(dataset, self._make_class_weight_setting(dataset), None)
        if factors is not None:
            factors = rescale_factors(dataset, factors)
        return apply_class_weights(dataset, factors).statistical_weights

    def _make_class_weight_setting(self, dataset: Dataset) -> Any:
        """Return `class_weight` as the training setting, None for several outputs.

        They differ in ``balanced`` only, which `treekit.train` bases on the row weights.
        """
        given = self.class_weight
        if given is None or dataset.schema.more:
            return None
        if isinstance(given, str) and given == BALANCED_BAGS:
            return given
        if isinstance(given, str) and given == "balanced" and dataset.weights is None:
            return given
        (factors,) = compute_class_factors(given, self._list_labels(), dataset.y)
        return dict(zip(dataset.schema.classes, factors.tolist(), strict=True))

    def _make_settings(self, dataset: Dataset) -> dict[str, Any]:
        class_weight = self._make_class_weight_setting(dataset)
        return super()._make_settings(dataset) | {"class_weight": class_weight}

    def _list_classes(self, n_outputs: int) -> list[tuple[Any, ...]]:
        del n_outputs
        each = [tuple(map(python_label, own.tolist())) for own in self._list_labels()]
        for label in itertools.chain(*each):
            if isinstance(label, str):
                check_unicode(label, "a class label")
        return each


class RegressorBase(RegressorMixin, EstimatorBase):
    """Base class of all regressors."""

    _task = "regression"

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Predict the target of each row: (rows,) or (rows, outputs) float64."""
        numbers: npt.NDArray[np.float64] = self._transform_sums(X, predict_from_sums, "predict")
        return numbers

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute R squared; the mean over several outputs."""
        target = self._read_target(y)
        weights = self._check_row_weights(sample_weight, target)
        return float(super().score(X, target, weights))

    def _read_target(self, y: Any) -> npt.NDArray[Any]:
        if _is_plain_array(y, "f") and np.isfinite(y).all():
            return y.astype(np.float64)
        table = _read_targets(self, y)
        return encode_targets(table, table.names, "regression").y


# ---------------------------------------------------------------- targets


def _get_code(codes: Mapping[Any, int], label: Any) -> int:
    return codes.get(label, -1)


def _is_plain_array(y: Any, kinds: str) -> TypeGuard[npt.NDArray[Any]]:
    """Check for a one-dimensional array of some kinds of numbers, which needs no reading."""
    return type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in kinds and y.itemsize <= 8


def _read_targets(estimator: Any, y: Any) -> Table:
    """Read the target, or several, like `treekit.train`; none may be missing."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        )
    if is_sparse(y):
        check_array(y, input_name="y")  # raises
    table = read_targets(y)
    for name, cells in zip(table.names, table.cells, strict=True):
        check_no_missing(name, cells)
    return table


def _read_labels(estimator: Any, y: Any) -> dict[str, Cells]:
    """Read the labels of each output, by its name; text of lists and arrays keeps NumPy's type."""
    if _is_plain_array(y, "biu"):
        return {"target": y}
    table = _read_targets(estimator, y)
    columns = dict(zip(table.names, table.cells, strict=True))
    if isinstance(y, (list, tuple)) or (isinstance(y, np.ndarray) and y.dtype.kind in "UT"):
        dtype = y.dtype if isinstance(y, np.ndarray) else np.str_
        for name, cells in columns.items():
            texts = cells.astype(dtype) if is_text(cells) else cells
            if np.array_equal(texts, cells):  # NumPy's type would lose a final "\0"
                columns[name] = texts
    return columns


# ---------------------------------------------------------------- node statistics
# Statistics of the training rows that a model does not store.


def compute_node_statistics(
    model: Model, dataset: Dataset
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64] | None] | None:
    """Count the training rows of each node of a single tree, and compute their spread.

    Returns
    -------
    n_samples : (nodes,) int64
        Unweighted.
    spread : (nodes,) float64, or None
        Variance (criterion ``absolute_error``: mean absolute error), averaged over the
        outputs; None for classes, whose impurity follows from the tree, see
        `compute_class_impurity`.

    With fractional instances, None is returned.
    """
    if model.missing == "fractional":
        return None
    tree = model.trees[0]
    factors = compute_class_weights(
        dataset, model.settings["class_weight"], model.settings["priors"]
    )
    weights = apply_class_weights(dataset, factors).statistical_weights
    if weights is None and model.schema.classes and tree.weight[0] == dataset.n_rows:
        return tree.weight.astype(np.int64), None
    from treekit.kernels.pruning import sum_leaves_below

    unweighted = weights is None
    weights = np.ones(dataset.n_rows) if weights is None else weights
    counted = weights > 0
    blocks = [leaf_indices(model, matrix)[:, 0] for matrix in dataset.iterate_matrices()]
    leaf = np.concatenate(blocks)[counted]

    def sum_rows(part: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        in_leaves = np.bincount(leaf, part, minlength=tree.n_nodes)
        return np.asarray(sum_leaves_below(tree.kind, tree.first_child, tree.n_children, in_leaves))

    count = sum_rows(np.ones(len(leaf)))
    n_samples = count.astype(np.int64)
    if model.schema.task == "classification":
        return n_samples, None
    w = weights[counted]
    weight = np.maximum(count if unweighted else sum_rows(w), 5e-324)
    targets = np.asarray(dataset.y, dtype=np.float64)[counted].reshape(len(leaf), -1)
    if model.settings["criterion"] == "absolute_error":
        error = np.zeros(tree.n_nodes)
        node = leaf.astype(np.int64)
        parent = tree.parent
        while len(node):  # each row's leaf, then the leaf's parent, up to the root
            deviation = np.abs(targets - tree.value[node]).mean(axis=1)
            error += np.bincount(node, w * deviation, minlength=tree.n_nodes)
            node = parent[node]
            above = node >= 0
            node, targets, w = node[above], targets[above], w[above]
        return n_samples, error / weight
    variances = []
    for y in targets.T:
        deviation = y - np.average(y, weights=w)
        mean = sum_rows(w * deviation) / weight
        square = sum_rows(w * deviation * deviation) / weight
        variances.append(np.maximum(square - mean**2, 0.0))
    return n_samples, np.mean(variances, axis=0)


def compute_class_impurity(model: Model, tree: Tree) -> npt.NDArray[np.float64]:
    """Compute the criterion's impurity of each node (nodes,), averaged over the outputs.

    For criteria without impurity, it is the Gini index.
    """
    functions: CriterionFunctions
    record = registry.get("criterion", model.settings["criterion"])
    functions, _ = registry.make(record, select_settings("criterion", model.settings))
    blocks = model.schema.blocks
    total = np.zeros(tree.n_nodes)
    for first, last in itertools.pairwise(blocks):
        weights = tree.value[:, first:last]
        if functions.impurity is None:
            shares = weights / weights.sum(axis=1, keepdims=True)
            total += 1.0 - (shares * shares).sum(axis=1)
        else:
            total += [functions.impurity(stats) for stats in weights]
    return total / (len(blocks) - 1)


# ---------------------------------------------------------------- cost-complexity pruning
# Pruning by impurity, as in scikit-learn.


def compute_pruning_path(
    tree: Tree, impurity: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Compute the alphas at which subtrees of an unpruned tree are pruned, one at a time.

    Breiman, Friedman, Olshen and Stone 1984, section 3.3, with the impurity of
    the leaves as risk.

    Parameters
    ----------
    impurity : (nodes,) float64

    Returns
    -------
    alphas, impurities : (links + 1,) float64
        Ascending from alpha 0, the complete tree: the alpha that prunes each subtree,
        and the weighted impurity of the remaining leaves.
    """
    from treekit.kernels.pruning import find_breaking_links, find_weakest_links

    weight = tree.weight[0]
    risk = tree.weight * impurity
    alpha_of, _ = find_weakest_links(
        tree.kind, tree.first_child, tree.n_children, risk, np.empty((0, tree.n_nodes))
    )
    link = find_breaking_links(tree.kind, tree.parent, alpha_of)
    inner = np.flatnonzero(tree.kind != Split.LEAF)
    lost = np.bincount(link[inner], tree.n_children[inner] - 1.0, minlength=tree.n_nodes)
    breaks = inner[link[inner] == inner]
    breaks = breaks[np.argsort(alpha_of[breaks], kind="stable")]
    # The risk increase of a pruning step is its alpha times the number of removed leaves.
    gained = np.cumsum(alpha_of[breaks] * lost[breaks])
    full_impurity = risk[0] - (gained[-1] if len(gained) else 0.0)
    alphas = np.concatenate([[0.0], alpha_of[breaks]]) / weight
    return alphas, np.concatenate([[0.0], gained]) / weight + full_impurity / weight
