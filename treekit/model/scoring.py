"""Scoring in this process: integer sums of the leaves, then one decision.

`sums` works on an encoded matrix (see `treekit.data.encoding`); `predict` and
`predict_proba` take any table.  The loops are in `treekit.kernels.score_batch`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Output, Schema
from treekit.errors import DataError, ModelError
from treekit.model.links import values_of
from treekit.model.model import least_cost

if TYPE_CHECKING:
    from treekit.kernels.score_batch import PackedTrees
    from treekit.model.model import Model

__all__ = [
    "Matrix",
    "accepted",
    "answers",
    "decide",
    "encoded",
    "label_codes",
    "leaf_indices",
    "predict",
    "predict_proba",
    "probabilities",
    "sums",
]


# ---------------------------------------------------------------- predict

_CACHE_BYTES = 1 << 20
"""Up to this size all packed nodes stay in the second cache between blocks of rows."""


def predict(model: Model, rows: Any, n_threads: int = 1) -> npt.NDArray[Any]:
    """The label, or the number, of each row of any table.

    Returns
    -------
    (rows,) array
        Labels of the schema's type, or float64 for regression; (rows, outputs)
        if the model has several outputs.

    Raises
    ------
    DataError
        If the rows do not fit the schema, or a policy refuses a cell.
    """
    said: npt.NDArray[Any] = answers(model, encoded(model, rows), decide, n_threads)
    return said


def predict_proba(model: Model, rows: Any, n_threads: int = 1) -> Any:
    """(rows, classes) float64: the probability of each class, in schema order.

    A list of such arrays if the model has several outputs.
    """
    return answers(model, encoded(model, rows), probabilities, n_threads)


def answers(
    model: Model,
    matrix: Matrix,
    say: Callable[[Model, npt.NDArray[np.int64]], Any],
    n_threads: int = 1,
) -> Any:
    """What `say`, such as `decide`, makes of the sums of each row.

    Of a single tree whose rows do not divide, the sums are those of a leaf, and `say`
    is asked once a leaf.  `matrix`, `n_threads` and errors are those of `sums`.

    Returns
    -------
    (rows, ...) array, or list of such, as `say` returns
    """
    if model.n_trees > 1 or model.mass > 1:
        return say(model, sums(model, matrix, n_threads))
    leaf = _leaves(model, matrix, n_threads)[:, 0]
    if len(leaf) < model.n_leaves:
        return say(model, model.units[leaf])
    said = say(model, model.units)
    if isinstance(said, list):
        return [own.take(leaf, axis=0) for own in said]
    return said.take(leaf, axis=0)


def decide(model: Model, sums: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The answers that integer `sums` (rows, values) stand for.

    Classification: the first class with the largest sum, or of least expected
    cost.  Regression: one division by the number of trees (times the mass of a
    row; none where they add up), an exact scaling, and the link.

    Returns
    -------
    (rows,) array, or (rows, outputs) if the model has several outputs
    """
    schema = model.schema
    if schema.task == "regression":
        numbers = values_of(model, sums)
        return numbers if schema.more else numbers[:, 0]
    codes = label_codes(model, sums)
    answers = [_label_array(output)[codes[:, k]] for k, output in enumerate(schema.outputs)]
    if not schema.more:
        return answers[0]
    same = len({answer.dtype.kind for answer in answers}) == 1
    return np.stack(answers if same else [a.astype(object) for a in answers], axis=1)


def label_codes(model: Model, sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(rows, outputs) int64: position of the label of each output among its classes."""
    blocks = itertools.pairwise(model.schema.blocks)
    return np.stack([least_cost(sums[:, a:b], model.label_costs) for a, b in blocks], axis=1)


def probabilities(model: Model, sums: npt.NDArray[np.int64]) -> Any:
    """(rows, classes) float64: one correctly rounded division of `sums` by all votes.

    With margins, what the link makes of them; see `treekit.model.links`.  A list of
    such arrays if the model has several outputs.
    """
    if model.schema.task != "classification":
        raise ModelError("a regression model has no class probabilities; use predict")
    shares = values_of(model, sums)
    if not model.schema.more:
        return shares
    return [shares[:, a:b] for a, b in itertools.pairwise(model.schema.blocks)]


def sums(model: Model, matrix: Matrix, n_threads: int = 1) -> npt.NDArray[np.int64]:
    """Sum the integer leaf values of all trees.

    Parameters
    ----------
    model : Model
    matrix : (rows, features) float32 or float64
        Encoded rows: numbers, and codes of nominal columns.  Numbers are
        rounded to the model's input type; NaN, and whatever is not a code of
        the column's vocabulary, is missing.
    n_threads : int
        Threads that share the rows; the result does not depend on it.

    Returns
    -------
    (rows, values) int64

    Raises
    ------
    DataError
        If the shape or type is wrong, or the model's policy refuses a cell.
    """
    from treekit.kernels.score_batch import add_units
    from treekit.kernels.score_fractional import add_divided_units

    if model.straight is not None:
        return model.units.take(_leaves(model, matrix, n_threads)[:, 0], axis=0)
    checked = accepted(model, matrix)
    trees, _, shares = model.packed
    result = np.zeros((len(checked), model.schema.n_values), dtype=np.int64)
    cells, block = _cells(trees, checked)

    def score(part: slice) -> None:
        given = trees, cells[part], block, model.units
        if shares is None:
            add_units(*given, result[part])
        else:
            add_divided_units(*given, shares, _most_leaves(model), result[part])

    _share(score, len(checked), n_threads)
    return result


def leaf_indices(model: Model, matrix: Matrix, n_threads: int = 1) -> npt.NDArray[np.int32]:
    """(rows, trees) int32: the node of each tree in which each row ends.

    Where a row divides (missing policy ``fractional``): the leaf that gets most
    of its mass, of equal ones the lowest node.

    Parameters and errors are those of `sums`.
    """
    return _leaves(model, matrix, n_threads, nodes=True)


def _leaves(
    model: Model, matrix: Matrix, n_threads: int, *, nodes: bool = False
) -> npt.NDArray[np.int32]:
    """(rows, trees) int32: the leaf of each row, as a row of `Model.units` or as a node."""
    from treekit.kernels.score_batch import leaf_rows, leaves_of_rows
    from treekit.kernels.score_fractional import largest_parts

    cells = accepted(model, matrix)
    result = np.empty((len(cells), model.n_trees), dtype=np.int32)
    straight = model.straight
    if straight is not None:
        said = straight.node if nodes else straight.leaf

        def walk(part: slice) -> None:
            leaves_of_rows(*straight.walk, said, cells[part], result[part, 0])

        _share(walk, len(cells), n_threads)
        return result
    trees, node_of_leaf, shares = model.packed
    said = node_of_leaf if nodes else np.arange(model.n_leaves, dtype=np.int32)
    cells, block = _cells(trees, cells)

    def find(part: slice) -> None:
        given = trees, cells[part], block, said
        if shares is None:
            leaf_rows(*given, result[part])
        else:
            largest_parts(*given, shares, _most_leaves(model), result[part])

    _share(find, len(cells), n_threads)
    return result


def _most_leaves(model: Model) -> np.uint64:
    """Leaves of the tree that has most."""
    return np.uint64(np.diff(model.leaf_offsets).max())


def encoded(model: Model, rows: Any) -> Matrix:
    """(rows, features) of the model's input type: rows of any table, by its policies."""
    from treekit.data.encoding import encode_rows

    return encode_rows(rows, model.schema, missing=model.missing, unknown=model.unknown)


def _label_array(output: Output) -> npt.NDArray[Any]:
    """(classes,) labels in the narrowest array type that keeps each of them as it is."""
    labels = np.array(output.classes)
    kept = labels.tolist()
    same = kept == list(output.classes) and isinstance(kept[0], type(output.classes[0]))
    if not same:  # huge integers, text that ends in NUL
        labels = np.empty(len(output.classes), dtype=object)
        labels[:] = output.classes
    return labels


def _cells(packed: PackedTrees, matrix: Matrix) -> tuple[Matrix, np.uint64]:
    """`matrix` as wide as the keys, and the block size for trees of this size."""
    real = np.float32 if packed.nodes.dtype == np.uint32 else np.float64
    # Small models: the trees stay in the second cache, so that few rows may stay in the
    # first.  Large ones: each tree comes from memory once a block.
    block = 64 if packed.nodes.nbytes <= _CACHE_BYTES else 4096
    return matrix.astype(real, copy=False), np.uint64(block)


def _share(work: Callable[[slice], None], n_rows: int, n_threads: int) -> None:
    """Call `work` on slices that cover the rows, on up to `n_threads` threads."""
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


# ---------------------------------------------------------------- accepted
# Encoded matrices that a model may score: of its width and type, and of cells that it allows.

Matrix = npt.NDArray[np.floating[Any]]


def accepted(model: Model, matrix: Matrix) -> Matrix:
    """`matrix` in the model's input type and C order, if its policies allow each cell.

    Raises
    ------
    DataError
        If the shape or type is wrong, or the model's policy refuses a cell.
    """
    schema = model.schema
    if getattr(matrix, "dtype", None) not in (np.float32, np.float64):
        raise DataError(
            "an encoded matrix is a float32 or float64 array; "
            "use predict for tables, or encode_rows first"
        )
    if matrix.ndim != 2 or matrix.shape[1] != schema.n_features:
        raise DataError(
            f"the matrix has shape {matrix.shape}; the model needs (rows, {schema.n_features})"
        )
    with np.errstate(over="ignore"):  # beyond the largest float32 is infinite there too
        result = np.ascontiguousarray(matrix, dtype=schema.dtype)
    if model.unknown == "error":
        _refuse_unknown(result, schema)
    if model.missing == "error":
        _refuse_missing(result, schema)
    return result


def _unknown_codes(codes: npt.NDArray[Any], n_levels: int) -> npt.NDArray[np.bool_]:
    known = (codes >= 0) & (codes < n_levels) & (codes == np.floor(codes))
    unknown: npt.NDArray[np.bool_] = ~known & ~np.isnan(codes)
    return unknown


def _refuse_unknown(matrix: Matrix, schema: Schema) -> None:
    for f in np.flatnonzero(schema.nominal):
        column = schema.columns[f]
        unknown = _unknown_codes(matrix[:, f], len(column.levels))
        if unknown.any():
            row = int(unknown.argmax())
            raise DataError(
                f"row {row}: {matrix[row, f]} is not a code of column {column.name!r} "
                f"({len(column.levels)} levels), and the model's unknown policy is 'error'"
            )


def _refuse_missing(matrix: Matrix, schema: Schema) -> None:
    for f, column in enumerate(schema.columns):
        missing = np.isnan(matrix[:, f])
        if column.kind == "nominal":
            missing |= _unknown_codes(matrix[:, f], len(column.levels))
        if missing.any():
            raise DataError(
                f"row {int(missing.argmax())}: column {column.name!r} is missing, and the "
                "model's missing policy is 'error'; fill it, or train with missing='direction'"
            )
