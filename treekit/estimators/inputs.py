"""Convert scikit-learn inputs to the types of `treekit.data`.

Checks and messages are scikit-learn's where they exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_array, compute_class_weight
from sklearn.utils.validation import validate_data

from treekit.data.cells import is_text
from treekit.data.dataset import Dataset
from treekit.data.table import Table, read_table, suggest_names
from treekit.errors import DataError, SettingError
from treekit.estimators.parameters import resolve_parameter

__all__ = [
    "ColumnKinds",
    "compute_class_factors",
    "compute_row_factors",
    "make_class_weight_setting",
    "read_input",
    "resolve_column_kinds",
]


# ---------------------------------------------------------------- inputs


class ColumnKinds(NamedTuple):
    """Names of the columns that are declared nominal and numeric."""

    nominal: list[str]
    numeric: list[str]


def read_input(estimator: Any, x: Any, *, reset: bool) -> npt.NDArray[Any] | Table:
    """Check the inputs of ``fit`` (`reset`) or ``predict`` like scikit-learn.

    Sets or checks ``n_features_in_`` and ``feature_names_in_``.  Columns are then
    identified by position, because scikit-learn has checked names and order.

    Returns
    -------
    (rows, features) array, or Table
        An array unchanged (bools as numbers), a dataframe as a table.

    Raises
    ------
    ValueError, TypeError
        Raised by scikit-learn for invalid shapes, names and cells; `DataError`
        for sparse matrices.
    """
    if hasattr(x, "tocsr"):
        raise DataError(
            f"{type(estimator).__name__} does not take sparse data, because a zero is a number, "
            "not an absent cell; pass a dense table, X.toarray(), or avoid sparse output: "
            "OneHotEncoder(sparse_output=False), ColumnTransformer(..., sparse_threshold=0)"
        )
    if _is_dataframe(x):
        validate_data(estimator, x, reset=reset, skip_check_array=True)
        if 0 in x.shape:
            check_array(np.empty(x.shape), estimator=estimator, input_name="X")
        return replace(read_table(x), named=False)
    cells: npt.NDArray[Any] = check_array(
        x, dtype=None, ensure_all_finite=False, estimator=estimator, input_name="X"
    )
    validate_data(estimator, cells, reset=reset, skip_check_array=True)
    if cells.dtype.kind == "b":
        return cells.astype(np.float64)
    if cells.dtype.kind == "O":
        _reject_invalid_cells(cells)
    if cells.dtype.kind == "f" and resolve_parameter(estimator, "missing") == "error":
        _reject_non_finite(cells)
    return cells


def _reject_non_finite(cells: npt.NDArray[Any]) -> None:
    """Reject NaN and infinity for ``missing="error"``, also in rows to predict."""
    if np.isfinite(cells).all():
        return
    found = "NaN" if np.isnan(cells).any() else "infinity"
    raise DataError(
        f"Input X contains {found}, but missing='error' takes finite numbers only; impute the "
        "cells, or use missing='direction'"
    )


def _is_dataframe(x: Any) -> bool:
    if isinstance(x, (np.ndarray, list, tuple)):
        return False
    from narwhals.stable.v2.dependencies import is_into_dataframe

    return bool(is_into_dataframe(x))


def _reject_invalid_cells(cells: npt.NDArray[Any]) -> None:
    """Raise scikit-learn's TypeError for cells that are not text, numbers or missing."""
    missing = ("NoneType", "NAType", "NaTType")
    for found in set(map(type, cells.ravel().tolist())):
        if not issubclass(found, (str, Number, np.generic)) and found.__name__ not in missing:
            raise TypeError(
                f"a cell of X is a {found.__name__}; float() argument must be a string or a real "
                "number, or the cell must be text or missing"
            )


def resolve_column_kinds(categorical: Any, x: npt.NDArray[Any] | Table) -> ColumnKinds:
    """Determine the nominal columns from the estimators' parameter `categorical`.

    Parameters
    ----------
    categorical : {"from_dtype"}, None, or sequence
        ``from_dtype``: columns of text and of a categorical type.  None: no columns.
        Otherwise names, positions or a mask of the nominal columns; all other
        columns are numeric.
    x : array or Table
        The output of `read_input`.

    Raises
    ------
    SettingError
        If `categorical` is of another form, or names an unknown column.
    """
    if isinstance(categorical, str):
        if categorical == "from_dtype":
            return _infer_kinds(x)
        raise SettingError(
            f"categorical is {categorical!r}; give 'from_dtype', None, or a list of the names, "
            f"the positions or a mask of the nominal columns, as in [{categorical!r}]"
        )
    names = list(x.names) if isinstance(x, Table) else [f"x{j}" for j in range(x.shape[1])]
    chosen = set(_resolve_positions([] if categorical is None else categorical, names))
    return ColumnKinds(
        [name for j, name in enumerate(names) if j in chosen],
        [name for j, name in enumerate(names) if j not in chosen],
    )


def _infer_kinds(x: npt.NDArray[Any] | Table) -> ColumnKinds:
    """Infer the kinds from dtypes by the rules of `treekit.data`, except that bools are numeric."""
    if not isinstance(x, Table):
        if x.dtype.kind not in "O":
            return ColumnKinds([], [])
        x = read_table(x)
    bools = [
        name
        for name, cells in zip(x.names, x.cells, strict=True)
        if cells.dtype.kind in "Ob" and not is_text(cells) and not x.levels.get(name)
    ]
    return ColumnKinds([], bools)


def _resolve_positions(categorical: Any, names: list[str]) -> list[int]:
    chosen = np.asarray(categorical)
    if chosen.ndim == 1 and len(chosen) == 0:
        return []
    if chosen.ndim == 1 and chosen.dtype.kind == "b":
        if len(chosen) == len(names):
            return [int(j) for j in np.flatnonzero(chosen)]
        raise SettingError(
            f"categorical is a mask of {len(chosen)} columns, but X has {len(names)}"
        )
    if chosen.ndim == 1 and chosen.dtype.kind in "iu":
        outside = chosen[(chosen < 0) | (chosen >= len(names))]
        if len(outside):
            raise SettingError(
                f"categorical contains position {outside[0]}; valid positions are 0 to "
                f"{len(names) - 1}"
            )
        return [int(j) for j in chosen]
    entries = chosen.tolist() if chosen.ndim == 1 else [categorical]
    for name in entries:
        if not isinstance(name, str):
            raise SettingError(
                f"categorical contains {name!r}; give names, positions or a mask of columns"
            )
        if name not in names:
            raise SettingError(
                f"categorical contains column {name!r}; {suggest_names(name, names)}"
            )
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
    if len(labels) > 1 and not isinstance(class_weight, str):
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


def compute_row_factors(factors: Sequence[Numbers], codes: npt.NDArray[Any]) -> Numbers:
    """Return the product over the outputs of each row's class weight, (rows,)."""
    columns = codes.reshape(len(codes), -1).T
    each = [own[code] for own, code in zip(factors, columns, strict=True)]
    return np.asarray(np.prod(each, axis=0), dtype=np.float64)


def make_class_weight_setting(
    class_weight: Any, labels: npt.NDArray[Any], dataset: Dataset
) -> str | Mapping[Any, float] | None:
    """Convert `class_weight` of a single output to the setting of `treekit.train`.

    They differ in ``balanced`` only, which `treekit.train` bases on the row weights.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced" and dataset.weights is None:
        return class_weight
    (factors,) = compute_class_factors(class_weight, [labels], dataset.y)
    return dict(zip(dataset.schema.classes, factors.tolist(), strict=True))
