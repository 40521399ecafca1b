"""Lazy predictions of the partitions of a Dask collection."""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.distributed.cluster import locate_part
from treekit.errors import DataError


def map_partitions(model: Any, rows: Any, method: str) -> Any:
    """Return lazy predictions of a Dask dataframe, with its index, or of a Dask array.

    Each worker fetches the model once.

    Parameters
    ----------
    model : Model
    rows : Dask dataframe, or two-dimensional Dask array
    method : {"predict", "predict_proba"}

    Returns
    -------
    Dask series or dataframe (a column per class, or per output), or array

    Raises
    ------
    DataError
        For another collection, or a model of several outputs with classes.
    """
    if getattr(rows, "ndim", 0) != 2:
        raise DataError(
            f"expected a Dask dataframe or a two-dimensional Dask array, got {type(rows).__name__}"
        )
    schema = model.schema
    if schema.more:
        raise DataError(
            "predictions of a Dask collection support one output, but the model has several; use "
            "rows.map_partitions(model.predict)"
        )
    from dask import delayed

    whole = delayed(model, pure=True)
    classes = schema.classes if method == "predict_proba" else None
    empty = getattr(model, method)({name: [] for name in schema.names})
    if hasattr(rows, "map_blocks") and hasattr(rows, "rechunk"):
        rows = rows.rechunk({1: -1})
        width = {"drop_axis": 1} if classes is None else {"chunks": (rows.chunks[0], len(classes))}
        return rows.map_blocks(
            _predict_block, model=whole, method=method, meta=empty, dtype=empty.dtype, **width
        )
    import pandas as pd

    if classes is None:
        meta: Any = pd.Series(empty, name=schema.target)
    else:
        meta = pd.DataFrame(empty, columns=list(map(str, classes)))
    return rows.map_partitions(_predict_frame, whole, method, meta=meta)


def _predict_block(block: Any, model: Any, method: str, block_info: Any = None) -> Any:
    try:
        return getattr(model, method)(np.asarray(block))
    except DataError as error:
        number = block_info[0]["chunk-location"][0] if block_info else 0
        raise locate_part(error, f"block {number}", len(block)) from None


def _predict_frame(frame: Any, model: Any, method: str, partition_info: Any = None) -> Any:
    import pandas as pd

    try:
        found = getattr(model, method)(frame)
    except DataError as error:
        number = partition_info["number"] if partition_info else 0
        raise locate_part(error, f"partition {number}", len(frame)) from None
    if method == "predict":
        return pd.Series(found, index=frame.index, name=model.schema.target)
    return pd.DataFrame(found, index=frame.index, columns=list(map(str, model.schema.classes)))
