"""Scoring inside DuckDB: register a model as a SQL function.

>>> call = register(connection, model, "adult")
>>> connection.sql(f"SELECT id, {call} AS income FROM people")

DuckDB passes columns as Arrow arrays in chunks of 2,048 rows, so that no Python code
runs per row; a forest of 100 trees scores a million rows in seconds.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.data.features import UNSEEN, LevelIndex
from treekit.data.schema import Column, Output
from treekit.errors import ExportError
from treekit.model.model import Model, as_model
from treekit.model.scoring import compute_label_codes, sum_leaf_values

__all__ = ["register"]

Codes = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_SQL_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


def register(
    connection: Any,
    model: Any,
    name: str,
    *,
    answer: Literal["label", "probability"] = "label",
    refuse: Literal["null", "error"] = "null",
) -> str:
    """Register a model as a SQL function of the schema's columns in order.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
    model : Model or fitted treekit estimator
    name : str
        Name of the function; an existing function of that name is replaced.
    answer : {"label", "probability"}
        Return the label or number, or a list of class probabilities in schema
        order.  Several targets are fields of a STRUCT.
    refuse : {"null", "error"}
        For a row that the model's policies reject, return NULL or fail the query.

    Returns
    -------
    str
        The function call with the quoted column names of the schema, for use in a
        query.

    Raises
    ------
    ExportError
        If pyarrow is not installed, a label exceeds 64 bits, or probabilities of a
        regression model are requested.
    TypeError
        If `model` is neither a `Model` nor a fitted estimator.
    """
    model = as_model(model)
    if importlib.util.find_spec("pyarrow") is None:
        raise ExportError(
            "scoring inside DuckDB requires pyarrow, which is not installed: "
            "pip install 'treekit-ml[duckdb]'"
        )
    scorer = _ArrowScorer(model, answer, refuse)
    kinds = ["DOUBLE" if c.kind == "numeric" else "VARCHAR" for c in model.schema.columns]
    query = "SELECT count(*) FROM duckdb_functions() WHERE function_name = ?"
    if connection.execute(query, [name]).fetchall()[0][0]:
        connection.remove_function(name)
    connection.create_function(
        name,
        _wrap_scorer(scorer, len(kinds)),
        list(map(connection.dtype, kinds)),
        connection.dtype(scorer.sql_type),
        type="arrow",
        null_handling="special",
    )
    return f"{_quote_identifier(name)}({', '.join(map(_quote_identifier, model.schema.names))})"


def _quote_identifier(name: str) -> str:
    """Quote an identifier."""
    if "\0" in name:
        raise ExportError(
            f"{name[:80]!r} contains a NUL, which DuckDB does not allow in names: rename it"
        )
    return '"' + name.replace('"', '""') + '"'


def _wrap_scorer(scorer: _ArrowScorer, width: int) -> Callable[..., Any]:
    """Wrap a scorer in a function of `width` parameters; DuckDB inspects the signature."""

    def score_columns(*columns: Any) -> Any:
        return scorer(columns)

    own = [inspect.Parameter(f"c{k}", inspect.Parameter.POSITIONAL_ONLY) for k in range(width)]
    score_columns.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return score_columns


class _ArrowScorer:
    """Score Arrow arrays.

    Attributes
    ----------
    sql_type : str
        DuckDB type of the result.
    """

    def __init__(self, model: Model, answer: str, refuse: str) -> None:
        schema = model.schema
        if answer == "probability" and schema.task != "classification":
            raise ExportError("a regression model has no probabilities: use answer='label'")
        self.model, self.answer, self.refuse = model, answer, refuse
        kinds = [self._get_sql_type(output) for output in schema.outputs]
        named = zip((output.name for output in schema.outputs), kinds, strict=True)
        fields = ", ".join(f"{_quote_identifier(name)} {kind}" for name, kind in named)
        self.sql_type = f"STRUCT({fields})" if schema.more else kinds[0]

    def _get_sql_type(self, output: Output) -> str:
        """Return the DuckDB type of an output."""
        if self.answer == "probability":
            return "DOUBLE[]"
        if not output.classes:
            return "DOUBLE"
        for label in output.classes:
            if isinstance(label, int) and not -(2**63) <= label < 2**63:
                raise ExportError(f"the class label {label} exceeds a BIGINT: rename it")
        return _SQL_TYPES[type(output.classes[0])]

    def __call__(self, columns: tuple[Any, ...]) -> Any:
        """Score the rows of Arrow arrays."""
        import pyarrow as pa

        schema = self.model.schema
        matrix = np.empty((len(columns[0]), schema.n_features))
        refused = np.zeros(len(matrix), dtype=np.bool_)
        for f, (column, cells) in enumerate(zip(schema.columns, columns, strict=True)):
            matrix[:, f], unseen = _encode_cells(column, cells, schema.missing_marks)
            if self.model.unknown == "error":
                refused |= unseen
            if self.model.missing == "error":
                refused |= np.isnan(matrix[:, f])
        if self.refuse == "error" and refused.any():
            raise ValueError("the model rejects a row: a cell is missing, or an unseen category")
        total = sum_leaf_values(self.model, matrix[~refused])
        arrays = self._make_arrays(total, np.flatnonzero(~refused), len(refused))
        if len(arrays) == 1:
            return arrays[0]
        return pa.StructArray.from_arrays(arrays, names=[output.name for output in schema.outputs])

    def _make_arrays(
        self, total: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], n: int
    ) -> list[Any]:
        """Return an array of length n for each target, NULL except for `rows`."""
        import pyarrow as pa

        from treekit.model.links import convert_sums

        place = np.full(n, -1)
        place[rows] = np.arange(len(rows))
        at = pa.array(place, mask=place < 0)
        if self.answer == "probability" or self.model.schema.task == "regression":
            numbers = convert_sums(self.model, total)
            blocks = itertools.pairwise(self.model.schema.blocks)
            arrays = [_to_arrow(numbers[:, a:b], self.answer == "probability") for a, b in blocks]
        else:
            codes = compute_label_codes(self.model, total)
            outputs = self.model.schema.outputs
            arrays = [
                pa.array(output.classes).take(pa.array(codes[:, k]))
                for k, output in enumerate(outputs)
            ]
        return [values.take(at) for values in arrays]


def _to_arrow(numbers: Codes, several: bool) -> Any:
    """Convert numbers (rows, classes) to an Arrow array, of lists if `several`."""
    import pyarrow as pa

    if not several:
        return pa.array(numbers[:, 0])
    rows, width = numbers.shape
    starts = np.arange(rows + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(
        pa.array(starts), pa.array(np.ascontiguousarray(numbers).ravel())
    )


def _encode_cells(column: Column, cells: Any, marks: tuple[str, ...]) -> tuple[Codes, Mask]:
    """Return numbers or codes, NaN = missing, and a mask of unseen categories."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.kind == "numeric":
        values = pc.fill_null(cells.cast(pa.float64()), np.nan)
        return values.to_numpy(), np.zeros(len(cells), dtype=np.bool_)
    index = LevelIndex(column.levels, marks)
    texts = cells.cast(pa.string())
    distinct = pc.unique(texts)
    code = np.array([index.code(text) for text in distinct.to_pylist()], dtype=np.int32)
    codes = code[pc.index_in(texts, value_set=distinct).to_numpy()]
    return np.where(codes < 0, np.nan, codes), codes == UNSEEN
