"""Low-latency scoring of single rows.

>>> score = model.scorer()
>>> rows = score.rows({"age": [41.0, 29.0], "town": ["Ulm", None]})  # or any other table
>>> score(rows[0])
'yes'
>>> score.proba(rows[0])
array([0.13, 0.87])

For models with numeric columns only, a row is an array of numbers, NaN = missing:
``np.array([41.0, 3.5], score.dtype)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError
from treekit.model.scoring import (
    compute_label_codes,
    compute_probabilities,
    encode_table,
    predict_from_sums,
    sum_leaf_values,
    validate_matrix,
)

if TYPE_CHECKING:
    from treekit.data.encoding import Absent
    from treekit.model.model import Model


Sums = npt.NDArray[np.int64]


class Scorer:
    """Score single rows, bit-identical to `Model.predict` and `Model.predict_proba`.

    A row is an array of the model's input type, (features,) or (1, features), of numbers
    and category codes (positions among the levels of the column), as returned by `rows`.
    Only the type, the width and the model's policies are checked: a number that is not
    a code counts as missing.  The scorer is thread-safe.

    A forest of 100 trees of depth 8 takes about 3 us per row.  Fractional instances,
    oblique splits and surrogates take as long as `Model.predict` on a small table.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._dtype = np.dtype(model.schema.dtype)
        self._shapes = (model.schema.n_features,), (1, model.schema.n_features)
        votes = model.schema.task == "classification" and not model.margins
        self._unit_total = model.unit_total if votes and not model.schema.more else 0
        self._predict = _make_predictor(model)
        self._n_values = model.units.shape[1]
        # Cells are as wide as the keys, which need 64 bits for many columns or nodes.
        self._cell_dtype = np.dtype(f"f{model.packed.trees.nodes.itemsize}")
        self._kernel = _bind_kernel(model, self._cell_dtype)
        self._is_key_dtype = self._cell_dtype == self._dtype

    def __call__(self, row: npt.NDArray[np.floating[Any]]) -> Any:
        """Return the predicted label or number of a row; an array (outputs,) for several outputs.

        Raises
        ------
        DataError
            If `row` is not an array of the model's type and width, or a policy rejects a cell.
        """
        first, total = self._sum_row(row)
        return self._predict(first, total)

    def proba(self, row: npt.NDArray[np.floating[Any]]) -> Any:
        """Predict class probabilities (classes,); a list of such arrays for several outputs.

        Raises
        ------
        DataError
            See `__call__`.
        ModelError
            For a regression model.
        """
        _, total = self._sum_row(row)
        if self._unit_total:
            return total / self._unit_total
        shares = compute_probabilities(self._model, total[None])
        return [own[0] for own in shares] if isinstance(shares, list) else shares[0]

    def sums(self, row: npt.NDArray[np.floating[Any]]) -> Sums:
        """Return the integer sums (values,) of the row; see `scoring.sum_leaf_values`.

        Raises
        ------
        DataError
            See `__call__`.
        """
        return self._sum_row(row)[1]

    def rows(self, table: Any, *, absent: Absent = "error") -> npt.NDArray[np.floating[Any]]:
        """Encode any table that `Model.predict` accepts as rows (rows, features) of `dtype`.

        Raises
        ------
        DataError
            If the table does not fit; the message names the column, and any row and value.
        """
        return encode_table(self._model, table, absent=absent)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of rows: the model's input type."""
        return self._dtype

    def __reduce__(self) -> tuple[type[Scorer], tuple[Model]]:
        return type(self), (self._model,)

    def __repr__(self) -> str:
        (width,) = self._shapes[0]
        return f"<Scorer of rows ({width},) of {self._dtype}>"

    def _sum_row(self, row: npt.NDArray[np.floating[Any]]) -> tuple[int, Sums]:
        """Return the position of the first largest sum, and the sums (values,)."""
        narrow, wide = self._shapes
        if type(row) is not np.ndarray or row.dtype != self._dtype:
            raise DataError(
                f"a row must be a plain array of {self._dtype}, got {_describe_type(row)}; "
                "encode a table with rows(), or use predict"
            )
        if row.shape == wide:
            row = row[0]
        elif row.shape != narrow:
            raise DataError(f"the row has shape {row.shape}; the model requires {narrow} or {wide}")
        flags = row.flags
        if not (flags.c_contiguous and flags.writeable and flags.aligned):
            row = row.copy()  # the kernel is compiled for one array type
        total = np.empty(self._n_values, np.int64)
        return self.sum_new_row(row, total), total

    def sum_new_row(self, row: npt.NDArray[np.floating[Any]], total: Sums) -> int:
        """Write the sums (values,) of a row to `total`, without checks.

        This saves 1 us for rows made by the caller: contiguous arrays (features,) of `dtype`.

        Returns
        -------
        int
            Position of the first largest sum.

        Raises
        ------
        DataError
            If a policy rejects a cell.
        """
        if not self._is_key_dtype:
            row = row.astype(self._cell_dtype)
        if self._kernel is None:
            total[:] = sum_leaf_values(self._model, row[None])[0]
            return int(total.argmax())
        first: int = self._kernel(row, total)
        if first < 0:
            validate_matrix(self._model, row[None])  # raises an error that names the rejected cell
        return first


def _describe_type(row: Any) -> str:
    """Describe the type of an invalid row for a message."""
    name = type(row).__name__
    return f"{name} of {row.dtype}" if hasattr(row, "dtype") and row.ndim else name


def _make_predictor(model: Model) -> Callable[[int, Sums], Any]:
    """Return a function that predicts from the position of the first maximum and the sums."""
    schema = model.schema
    if schema.more:
        return lambda _, total: predict_from_sums(model, total[None])[0]
    if schema.task == "classification":
        labels = schema.classes
        if model.label_costs is None:
            return lambda first, _: labels[first]
        return lambda _, total: labels[compute_label_codes(model, total[None]).item()]
    if model.link != "identity":
        return lambda _, total: predict_from_sums(model, total[None]).item()
    divisor, (exponent,) = model.divisor, model.exponents
    return lambda _, total: math.ldexp(float(total.item()) / divisor, exponent)


def _bind_kernel(
    model: Model, dtype: np.dtype[Any]
) -> Callable[[npt.NDArray[Any], Sums], int] | None:
    """Return the kernel as a function of row and sums; None if it is not applicable."""
    trees = model.packed.trees
    if trees.derived is not None:
        return None
    from treekit.kernels.score_row import REFUSE_MISSING, REFUSE_UNKNOWN, sum_row

    schema = model.schema
    refuse = REFUSE_MISSING * (model.missing == "error")
    refuse |= REFUSE_UNKNOWN * (model.unknown == "error")
    kernel: Any = sum_row
    bound: Callable[[npt.NDArray[Any], Sums], int] = kernel.bind(
        np.empty(model.schema.n_features, dtype),
        *(trees.nodes, trees.roots, trees.table, trees.child_shift),
        *(trees.columns, trees.n_codes),
        np.where(schema.nominal, schema.n_levels + 1, 0).astype(np.uint64),
        np.uint64(refuse),
        model.units,
        np.empty(model.units.shape[1], np.int64),
    )
    return bound
