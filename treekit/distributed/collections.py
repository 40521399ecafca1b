"""Lazy predictions of the partitions of a Dask collection."""

from __future__ import annotations

import hashlib
import itertools
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from treekit.distributed.cluster import locate_part
from treekit.errors import DataError

if TYPE_CHECKING:
    from treekit.data.encoding import Absent
    from treekit.model.model import Model
    from treekit.model.scoring import TransformSums


def predict_lazily(
    model: Model,
    rows: Any,
    method: str,
    transform: TransformSums,
    estimator: Any = None,
    *,
    absent: Absent = "error",
) -> Any:
    """Return lazy predictions of a Dask dataframe, with its index, or of a Dask array.

    Each worker fetches the model once.

    Parameters
    ----------
    model : Model
    rows : Dask dataframe, or two-dimensional Dask array
    method : {"predict", "predict_proba"}
        Of the estimator if one is given, else of the model.
    transform : callable
        See `treekit.model.scoring.transform_sums`; returns arrays of the types of predictions.
    estimator : fitted estimator, optional
    absent : {"error", "missing"}
        See `treekit.model.model.Model.predict`.

    Returns
    -------
    Dask series or dataframe, or array
        A dataframe has a column per output, or per class: named by the class, or
        ``TARGET=CLASS`` for several outputs.  Probabilities of an array are a list of arrays
        for several outputs.

    Raises
    ------
    DataError
        For another collection.
    """
    example = transform(model, np.zeros((1, model.schema.n_values), dtype=np.int64))
    if getattr(rows, "ndim", 0) != 2:
        raise DataError(
            f"expected a Dask dataframe or a two-dimensional Dask array, got {type(rows).__name__}"
        )
    from dask import delayed

    options = {"absent": absent} if estimator is None else {}
    # Dask would name an estimator by its parameters alone.
    predictor = model if estimator is None else estimator
    digest = hashlib.sha256(pickle.dumps(predictor)).hexdigest()
    whole = delayed(predictor, name=f"model-{digest}", traverse=False)
    several = isinstance(example, list)
    if several:
        ends = np.cumsum([0, *(own.shape[1] for own in example)])
        example = np.concatenate(example, axis=1)
    empty = example[:0]
    if hasattr(rows, "map_blocks") and hasattr(rows, "rechunk"):
        rows = rows.rechunk({1: -1})
        width = (
            {"drop_axis": 1} if empty.ndim == 1 else {"chunks": (rows.chunks[0], empty.shape[1])}
        )
        found = rows.map_blocks(
            _predict_block, model=whole, method=method, empty=empty, options=options, meta=empty,
            dtype=empty.dtype, **width,
        )  # fmt: skip
        return [found[:, a:b] for a, b in itertools.pairwise(ends)] if several else found
    meta = _make_frame(example, None, _name_columns(model.schema, method)).iloc[:0]
    return rows.map_partitions(
        _predict_frame, whole, method, empty, options, meta.copy(), meta=meta
    )


def _name_columns(schema: Any, method: str) -> list[str]:
    """Name the columns of predictions: by output, by class, or by both."""
    outputs = schema.outputs
    if method == "predict":
        return [output.name for output in outputs]
    if len(outputs) == 1:
        return [str(label) for label in schema.classes]
    return [f"{own.name}={label}" for own in outputs for label in own.classes]


def _predict(
    model: Any, method: str, rows: Any, empty: Any, options: dict[str, Any], place: str
) -> Any:
    if len(rows) == 0:  # refused by estimators, as by scikit-learn
        return empty
    try:
        found = getattr(model, method)(rows, **options)
    except DataError as error:
        raise locate_part(error, place, len(rows)) from None
    return np.concatenate(found, axis=1) if isinstance(found, list) else found


def _predict_block(
    block: Any,
    model: Any,
    method: str,
    empty: Any,
    options: dict[str, Any],
    block_info: Any = None,
) -> Any:
    number = block_info[0]["chunk-location"][0] if block_info else 0
    return _predict(model, method, np.asarray(block), empty, options, f"block {number}")


def _predict_frame(
    frame: Any,
    model: Any,
    method: str,
    empty: Any,
    options: dict[str, Any],
    like: Any,
    partition_info: Any = None,
) -> Any:
    number = partition_info["number"] if partition_info else 0
    found = _predict(model, method, frame, empty, options, f"partition {number}")
    if like.ndim == 1:  # no rows, or text as objects, do not tell their type
        return _make_frame(found, frame.index, [like.name]).astype(like.dtype)
    made = _make_frame(found, frame.index, list(like.columns))
    return made if method == "predict_proba" else made.astype(dict(like.dtypes))


def _make_frame(found: Any, index: Any, names: list[str]) -> Any:
    """Make a series, or a dataframe, of predictions."""
    import pandas as pd

    if found.ndim == 1:
        return pd.Series(found, index=index, name=names[0])
    return pd.DataFrame(found, index=index, columns=names)
