"""In-process scoring: integer sums of leaf values, and their conversion to predictions.

`sums` takes an encoded matrix (see `treekit.data.encoding`); `predict` and
`predict_proba` take any table.

Rows are scored in one of four ways, with equal results: by packed nodes and encoded cells; by
floats as they are, for a single tree of thresholds (`Model.straight`: encoding a row takes three
times as long as walking one tree); by packed nodes with masses, for fractional instances; and one
row at a time in all trees together (`treekit.model.row_scorer`).  The kernels are in
`treekit.kernels.score_batch` and `treekit.kernels.score_row`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Output, Schema
from treekit.data.table import is_dask_collection
from treekit.errors import DataError, ModelError
from treekit.model.links import convert_sums
from treekit.model.model import predict_labels

if TYPE_CHECKING:
    from treekit.data.encoding import Absent
    from treekit.model.model import Model

    TransformSums = Callable[[Model, npt.NDArray[np.int64]], Any]

# ---------------------------------------------------------------- prediction

_CACHE_BYTES = 1 << 20
"""Packed nodes up to this size stay in the L2 cache between blocks of rows."""


def predict(
    model: Model, rows: Any, n_threads: int = 1, *, absent: Absent = "error"
) -> npt.NDArray[Any]:
    """Predict the label or number of each row of any table; lazily, of a Dask collection.

    See `Model.predict` for `absent`.

    Returns
    -------
    (rows,) array
        Labels of the schema's type, or float64 for regression; (rows, outputs)
        if the model has several outputs.

    Raises
    ------
    DataError
        If the rows do not fit the schema, or a policy rejects a cell.
    """
    predictions: npt.NDArray[Any] = _predict(
        model, rows, "predict", predict_from_sums, n_threads, absent
    )
    return predictions


def predict_proba(model: Model, rows: Any, n_threads: int = 1, *, absent: Absent = "error") -> Any:
    """Predict class probabilities (rows, classes), in schema order; see `Model.predict`.

    Returns a list of such arrays if the model has several outputs.
    """
    return _predict(model, rows, "predict_proba", compute_probabilities, n_threads, absent)


def _predict(
    model: Model, rows: Any, method: str, transform: TransformSums, n_threads: int, absent: Absent
) -> Any:
    if is_dask_collection(rows):
        from treekit.distributed.collections import predict_lazily

        return predict_lazily(model, rows, method, transform, absent=absent)
    matrix = encode_table(model, rows, absent=absent)
    return transform_sums(model, matrix, transform, n_threads)


def transform_sums(
    model: Model,
    matrix: Matrix,
    transform: TransformSums,
    n_threads: int = 1,
) -> Any:
    """Apply a function such as `predict_from_sums` to the sums of each row.

    For a single tree without fractional instances, the sums are those of one leaf, and
    `transform` is applied once per leaf.  See `sums` for `matrix`, `n_threads` and errors.

    Returns
    -------
    (rows, ...) array, or list of arrays, as returned by `transform`
    """
    if model.n_trees > 1 or model.mass > 1:
        return transform(model, sum_leaf_values(model, matrix, n_threads))
    leaf = _find_leaves(model, matrix, n_threads)[:, 0]
    if len(leaf) < model.n_leaves:
        return transform(model, model.units[leaf])
    per_leaf = transform(model, model.units)
    if isinstance(per_leaf, list):
        return [own.take(leaf, axis=0) for own in per_leaf]
    return per_leaf.take(leaf, axis=0)


def predict_from_sums(model: Model, sums: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Convert integer `sums` (rows, values) to labels or numbers.

    Classification: the first class with the largest sum, or with least expected
    cost.  Regression: one division by the number of trees (none for
    ``combine="sum"``), an exact scaling, and the link function.

    Returns
    -------
    (rows,) array, or (rows, outputs) if the model has several outputs
    """
    schema = model.schema
    if schema.task == "regression":
        numbers = convert_sums(model, sums)
        return numbers if schema.more else numbers[:, 0]
    codes = compute_label_codes(model, sums)
    labels = [_make_label_array(output)[codes[:, k]] for k, output in enumerate(schema.outputs)]
    if not schema.more:
        return labels[0]
    same = len({answer.dtype.kind for answer in labels}) == 1
    return np.stack(labels if same else [a.astype(object) for a in labels], axis=1)


def compute_label_codes(model: Model, sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the class position of the label of each output, (rows, outputs) int64."""
    blocks = itertools.pairwise(model.schema.blocks)
    return np.stack([predict_labels(sums[:, a:b], model.label_costs) for a, b in blocks], axis=1)


def compute_probabilities(model: Model, sums: npt.NDArray[np.int64]) -> Any:
    """Convert `sums` to class probabilities (rows, classes).

    Votes take one correctly rounded division by all votes, margins the link function;
    see `treekit.model.links`.  Returns a list of arrays if the model has several outputs.
    """
    if model.schema.task != "classification":
        raise ModelError("a regression model has no class probabilities; use predict")
    shares = convert_sums(model, sums)
    if not model.schema.more:
        return shares
    return [shares[:, a:b] for a, b in itertools.pairwise(model.schema.blocks)]


def sum_leaf_values(model: Model, matrix: Matrix, n_threads: int = 1) -> npt.NDArray[np.int64]:
    """Sum the integer leaf values of all trees.

    Parameters
    ----------
    model : Model
    matrix : (rows, features) float32 or float64
        Encoded rows: numbers, and codes of nominal columns.  Numbers are
        rounded to the model's input type; NaN and invalid codes are missing.
    n_threads : int
        Number of threads; the result does not depend on it.

    Returns
    -------
    (rows, values) int64

    Raises
    ------
    DataError
        If the shape or type is wrong, or the model's policy rejects a cell.
    """
    from treekit.kernels.score_batch import add_fractional_units, add_leaf_units

    if model.straight is not None:
        return model.units.take(_find_leaves(model, matrix, n_threads)[:, 0], axis=0)
    cells = validate_matrix(model, matrix)
    result = np.zeros((len(cells), model.schema.n_values), dtype=np.int64)
    kernels = add_leaf_units, add_fractional_units
    bits = np.uint64(model.part_bits)
    _score_packed(model, cells, kernels, model.units, result, n_threads, bits)
    return result


def leaf_indices(model: Model, matrix: Matrix, n_threads: int = 1) -> npt.NDArray[np.int32]:
    """Return the leaf node of each row in each tree, (rows, trees) int32.

    For fractional instances (missing policy ``fractional``): the leaf with most of the
    row's mass, the lowest node of equal ones.

    See `sums` for parameters and errors.
    """
    return _find_leaves(model, matrix, n_threads, nodes=True)


def _find_leaves(
    model: Model, matrix: Matrix, n_threads: int, *, nodes: bool = False
) -> npt.NDArray[np.int32]:
    """Return the leaves (rows, trees) int32, as rows of `Model.units` or as nodes."""
    from treekit.kernels.score_batch import (
        gather_heaviest_leaf_values,
        gather_leaf_values,
        gather_unpacked_values,
    )

    cells = validate_matrix(model, matrix)
    result = np.empty((len(cells), model.n_trees), dtype=np.int32)
    straight = model.straight
    if straight is not None:
        leaf_ids = straight.node_ids if nodes else straight.leaf_ids

        def traverse_slice(part: slice) -> None:
            gather_unpacked_values(
                *straight.kernel_arguments, leaf_ids, cells[part], result[part, 0]
            )

        _run_in_threads(traverse_slice, len(cells), n_threads)
        return result
    leaf_ids = model.packed.node_of_leaf if nodes else np.arange(model.n_leaves, dtype=np.int32)
    kernels = gather_leaf_values, gather_heaviest_leaf_values
    _score_packed(model, cells, kernels, leaf_ids, result, n_threads)
    return result


def _score_packed(
    model: Model,
    matrix: Matrix,
    kernels: tuple[Callable[..., None], Callable[..., None]],
    leaf_values: npt.NDArray[Any],
    result: npt.NDArray[Any],
    n_threads: int,
    *further: Any,
) -> None:
    """Fill `result` (rows, ...) by a kernel for the packed trees.

    Parameters
    ----------
    matrix : (rows, features)
        Checked by `validate_matrix`.
    kernels : tuple of two kernels
        For rows that reach one leaf of each tree, and for fractional instances.
    leaf_values : (leaves, ...)
    *further
        Arguments of the kernel for fractional instances.
    """
    trees, _, shares = model.packed
    # Small models stay in the L2 cache, so small blocks keep their rows in L1.  Large
    # models are read from memory once per block, so blocks are large.
    block = np.uint64(64 if trees.nodes.nbytes <= _CACHE_BYTES else 4096)
    cells = matrix.astype(np.float32 if trees.nodes.dtype == np.uint32 else np.float64, copy=False)
    own: tuple[Any, ...] = ()
    kernel = kernels[0]
    if shares is not None:
        most = np.uint64(np.diff(model.leaf_offsets).max())
        kernel, own = kernels[1], (shares, most, *further)

    def score_slice(part: slice) -> None:
        kernel(trees, cells[part], block, leaf_values, *own, result[part])

    _run_in_threads(score_slice, len(cells), n_threads)


def encode_table(
    model: Model,
    rows: Any,
    *,
    absent: Absent = "error",
    missing_marks: Collection[str] | None = None,
) -> Matrix:
    """Encode any table as a matrix (rows, features), with the model's type and policies.

    Columns that no tree tests may be absent; see `treekit.data.encoding.encode_rows` for the
    parameters and errors.
    """
    from treekit.data.encoding import encode_rows

    return encode_rows(
        rows, model.schema, missing=model.missing, unknown=model.unknown,
        missing_marks=missing_marks, absent=absent, tested=model.tested,
    )  # fmt: skip


def _make_label_array(output: Output) -> npt.NDArray[Any]:
    """Return the labels of an output in the narrowest array type that preserves them."""
    labels = np.array(output.classes)
    converted = labels.tolist()
    same = converted == list(output.classes) and isinstance(converted[0], type(output.classes[0]))
    if not same:  # huge integers, or text that ends in NUL, which NumPy strips
        labels = np.empty(len(output.classes), dtype=object)
        labels[:] = output.classes
    return labels


def _run_in_threads(work: Callable[[slice], None], n_rows: int, n_threads: int) -> None:
    """Call `work` on slices that cover all rows, in up to `n_threads` threads."""
    if n_threads < 1:
        raise DataError(f"n_threads is {n_threads}; give 1 or more")
    n_parts = min(n_threads, max(n_rows // 256, 1))
    if n_parts == 1:
        work(slice(0, n_rows))
        return
    edges = np.linspace(0, n_rows, n_parts + 1).astype(np.int64)
    parts = [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]
    with ThreadPoolExecutor(n_parts) as pool:
        list(pool.map(work, parts))


# ---------------------------------------------------------------- input validation

Matrix = npt.NDArray[np.floating[Any]]


def validate_matrix(model: Model, matrix: Matrix) -> Matrix:
    """Check `matrix` and convert it to the model's input type in C order.

    Raises
    ------
    DataError
        If the shape or type is wrong, or the model's policy rejects a cell.
    """
    schema = model.schema
    if getattr(matrix, "dtype", None) not in (np.float32, np.float64):
        raise DataError(
            "an encoded matrix must be a float32 or float64 array; "
            "use predict for tables, or call encode_rows first"
        )
    if matrix.ndim != 2 or matrix.shape[1] != schema.n_features:
        raise DataError(
            f"the matrix has shape {matrix.shape}; the model requires (rows, {schema.n_features})"
        )
    with np.errstate(over="ignore"):  # overflow to infinity is intended, as in the kernels
        result = np.ascontiguousarray(matrix, dtype=schema.dtype)
    if model.unknown == "error":
        _reject_unknown_codes(result, schema)
    if model.missing == "error":
        _reject_missing_values(result, schema)
    return result


def _is_unknown_code(codes: npt.NDArray[Any], n_levels: int) -> npt.NDArray[np.bool_]:
    known = (codes >= 0) & (codes < n_levels) & (codes == np.floor(codes))
    unknown: npt.NDArray[np.bool_] = ~known & ~np.isnan(codes)
    return unknown


def _reject_unknown_codes(matrix: Matrix, schema: Schema) -> None:
    for f in np.flatnonzero(schema.nominal):
        column = schema.columns[f]
        unknown = _is_unknown_code(matrix[:, f], len(column.levels))
        if unknown.any():
            row = int(unknown.argmax())
            raise DataError(
                f"row {row}: {matrix[row, f]} is not a code of column {column.name!r} "
                f"({len(column.levels)} categories), and the model's unknown policy is 'error'"
            )


def _reject_missing_values(matrix: Matrix, schema: Schema) -> None:
    for f, column in enumerate(schema.columns):
        missing = np.isnan(matrix[:, f])
        if column.kind == "nominal":
            missing |= _is_unknown_code(matrix[:, f], len(column.levels))
        if missing.any():
            raise DataError(
                f"row {int(missing.argmax())}: column {column.name!r} is missing, and the "
                "model's missing policy is 'error'; impute it, or train with missing='direction'"
            )
