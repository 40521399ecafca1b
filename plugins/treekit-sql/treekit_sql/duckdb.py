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
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.data.features import UNSEEN, LevelIndex
from treekit.data.schema import Column, Output
from treekit.errors import ExportError
from treekit.model.model import Model, as_model
from treekit.model.scoring import compute_label_codes, sum_leaf_values

__all__ = ["register"]

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
            "pip install 'treekit-sql[duckdb]'"
        )
    schema = model.schema
    if answer == "probability" and schema.task != "classification":
        raise ExportError("a regression model has no probabilities: use answer='label'")
    results = [_get_sql_type(output, answer) for output in schema.outputs]
    named = zip((output.name for output in schema.outputs), results, strict=True)
    fields = ", ".join(f"{_quote_identifier(name)} {kind}" for name, kind in named)
    kinds = ["DOUBLE" if c.kind == "numeric" else "VARCHAR" for c in schema.columns]

    def score_columns(*columns: Any) -> Any:
        return _score(model, columns, answer, refuse)

    # DuckDB counts the parameters of the signature.
    own = [inspect.Parameter(f"c{k}", inspect.Parameter.POSITIONAL_ONLY) for k in range(len(kinds))]
    score_columns.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    query = "SELECT count(*) FROM duckdb_functions() WHERE function_name = ?"
    if connection.execute(query, [name]).fetchall()[0][0]:
        connection.remove_function(name)
    connection.create_function(
        name,
        score_columns,
        list(map(connection.dtype, kinds)),
        connection.dtype(f"STRUCT({fields})" if schema.more else results[0]),
        type="arrow",
        null_handling="special",
    )
    return f"{_quote_identifier(name)}({', '.join(map(_quote_identifier, schema.names))})"


def _quote_identifier(name: str) -> str:
    """Quote an identifier."""
    if "\0" in name:
        raise ExportError(
            f"{name[:80]!r} contains a NUL, which DuckDB does not allow in names: rename it"
        )
    return '"' + name.replace('"', '""') + '"'


def _get_sql_type(output: Output, answer: str) -> str:
    """Return the DuckDB type of an output."""
    if answer == "probability":
        return "DOUBLE[]"
    if not output.classes:
        return "DOUBLE"
    for label in output.classes:
        if isinstance(label, int) and not -(2**63) <= label < 2**63:
            raise ExportError(f"the class label {label} exceeds a BIGINT: rename it")
    return _SQL_TYPES[type(output.classes[0])]


def _score(model: Model, columns: tuple[Any, ...], answer: str, refuse: str) -> Any:
    """Score the rows of Arrow arrays; rejected rows are NULL."""
    import pyarrow as pa

    schema = model.schema
    matrix = np.empty((len(columns[0]), schema.n_features))
    refused = np.zeros(len(matrix), dtype=np.bool_)
    for f, (column, cells) in enumerate(zip(schema.columns, columns, strict=True)):
        matrix[:, f], unseen = _encode_cells(column, cells, schema.missing_marks)
        if model.unknown == "error":
            refused |= unseen
        if model.missing == "error":
            refused |= np.isnan(matrix[:, f])
    if refuse == "error" and refused.any():
        raise ValueError("the model rejects a row: a cell is missing, or an unseen category")
    at = pa.array(np.cumsum(~refused) - 1, mask=refused)
    sums = sum_leaf_values(model, matrix[~refused])
    arrays = [values.take(at) for values in _make_arrays(model, sums, answer)]
    if not schema.more:
        return arrays[0]
    return pa.StructArray.from_arrays(arrays, names=[output.name for output in schema.outputs])


def _make_arrays(model: Model, sums: npt.NDArray[np.int64], answer: str) -> list[Any]:
    """Return an Arrow array for each target: labels, numbers, or lists of probabilities."""
    import pyarrow as pa

    from treekit.model.links import convert_sums

    schema = model.schema
    if answer == "label" and schema.task == "classification":
        codes = compute_label_codes(model, sums)
        return [
            pa.array(output.classes).take(pa.array(codes[:, k]))
            for k, output in enumerate(schema.outputs)
        ]
    numbers = convert_sums(model, sums)
    blocks = [numbers[:, a:b] for a, b in itertools.pairwise(schema.blocks)]
    if answer == "label":
        return [pa.array(block[:, 0]) for block in blocks]
    starts = np.arange(len(numbers) + 1, dtype=np.int32)
    return [
        pa.ListArray.from_arrays(pa.array(starts * block.shape[1]), pa.array(block.ravel()))
        for block in blocks
    ]


def _encode_cells(
    column: Column, cells: Any, marks: tuple[str, ...]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return numbers or codes, NaN = missing, and a mask of unseen categories."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.kind == "numeric":
        values = pc.fill_null(cells.cast(pa.float64()), np.nan)
        return values.to_numpy(), np.zeros(len(cells), dtype=np.bool_)
    index = LevelIndex(column.levels, marks, rounds=column.rounds)
    texts = cells.cast(pa.string())
    distinct = pc.unique(texts)
    code = np.array([index.code(text) for text in distinct.to_pylist()], dtype=np.int32)
    codes = code[pc.index_in(texts, value_set=distinct).to_numpy()]
    return np.where(codes < 0, np.nan, codes), codes == UNSEEN
