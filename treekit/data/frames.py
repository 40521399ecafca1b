"""Dataframes and single columns of any library, through narwhals.

narwhals is imported only when something arrives that is no array, dict, list
or path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.cells import is_text, natural_order
from treekit.data.table import Table, make_table, objects
from treekit.errors import DataError, MissingExtraError

__all__ = ["as_cells", "from_arrow", "from_frame"]

Declared = tuple[Any, ...] | None
"""The vocabulary that a column's type declares, in its order, else None."""


def from_frame(source: Any) -> Table | None:
    """The table of a dataframe; None if it is none.

    A lazy frame is collected.  Objects that only speak the Arrow PyCapsule
    interface are read through pyarrow.
    """
    import narwhals.stable.v2 as nw
    from narwhals.exceptions import DuplicateError

    try:
        frame = nw.from_native(source, pass_through=True, allow_series=True)
        if isinstance(frame, nw.LazyFrame):
            frame = frame.collect()
        if isinstance(frame, nw.DataFrame):
            return _from_narwhals(frame)
    except DuplicateError as error:
        names = [str(name) for name in source.columns]
        twice = next((name for name in names if names.count(name) > 1), "?")
        raise DataError(f"column name {twice!r} appears twice; rename one of them") from error
    if isinstance(frame, nw.Series):
        raise DataError(
            f"a single column ({type(source).__name__}) is not a table; "
            "pass a table with named columns, such as {'name': column}"
        )
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return from_arrow(source)
    return None


def from_arrow(source: Any) -> Table:
    """The table of anything that pyarrow can make a table of."""
    import narwhals.stable.v2 as nw

    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError("pyarrow", "arrow") from error
    return _from_narwhals(nw.from_native(pa.table(source), eager_only=True))


def _from_narwhals(frame: Any) -> Table:
    columns, levels = [], {}
    # By position: a frame's name may be a number, which would ask for a row.
    for name, series in zip(frame.columns, frame.iter_columns(), strict=True):
        cells, declared = _series_cells(series)
        columns.append(cells)
        if declared is not None:
            levels[str(name)] = declared
    return make_table(frame.columns, columns, levels=levels)


def as_cells(name: str, values: Any) -> tuple[npt.NDArray[Any], Declared]:
    """One column of any kind: an array, a list, or a series of any library."""
    if isinstance(values, np.ndarray):
        return values, None
    if isinstance(values, (list, tuple, range)):
        return objects(values), None
    import narwhals.stable.v2 as nw

    series = nw.from_native(values, pass_through=True, allow_series=True)
    if isinstance(series, nw.Series):
        return _series_cells(series)
    if type(values).__module__.startswith("pyarrow"):  # an Array; narwhals knows ChunkedArray
        import pyarrow as pa

        return _series_cells(nw.from_native(pa.chunked_array([values]), series_only=True))
    if type(values).__name__ == "Categorical":  # pandas, without its Series
        return objects(list(values)), tuple(values.categories)
    if hasattr(values, "__array__"):
        return np.asarray(values), None
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        return objects(values), None
    raise DataError(
        f"column {name!r} is a {type(values).__name__}; a column must be an array or a list "
        "of cells (for one row, pass a list with one dict)"
    )


def _series_cells(series: Any) -> tuple[npt.NDArray[Any], Declared]:
    import narwhals.stable.v2 as nw

    dtype = series.dtype
    if isinstance(dtype, (nw.Categorical, nw.Enum)):
        values = series.to_list()
        return objects(values), _declared_levels(series, values)
    if len(series) and series.null_count() == len(series):
        return np.full(len(series), np.nan), None
    if isinstance(dtype, nw.Decimal):
        series = series.cast(nw.Float64)
        dtype = series.dtype
    if dtype.is_numeric():
        return np.asarray(series.to_numpy()), None
    if isinstance(dtype, (nw.Datetime, nw.Date, nw.Time)):
        return np.empty(0, dtype="datetime64[s]"), None  # refused by name in `tidy`
    if isinstance(dtype, nw.Duration):
        return np.empty(0, dtype="timedelta64[s]"), None
    return objects(series.to_list()), None


def _declared_levels(series: Any, values: list[Any]) -> tuple[Any, ...]:
    """Levels in declared order; in `natural_order` where the type's is only that of appearance.

    pandas categories, polars enums and ordered Arrow dictionaries are declared.
    """
    import narwhals.stable.v2 as nw

    if (
        isinstance(series.dtype, nw.Enum)
        or series.implementation.is_pandas_like()
        or nw.is_ordered_categorical(series)
    ):
        return tuple(series.cat.get_categories().to_list())
    found = {value for value in values if value is not None}
    return tuple(natural_order(found) if is_text(objects(list(found))) else sorted(found))
