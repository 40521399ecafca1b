"""Scoring inside DuckDB: a model as a function of SQL, over treekit's own scorer.

>>> call = register(connection, model, "adult")
>>> connection.sql(f"SELECT id, {call} AS income FROM people")

DuckDB hands over the columns of 2,048 rows at a time as Arrow arrays, so that no
Python runs for a row; a forest of 100 trees answers a million rows in seconds.
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
from treekit.model.model import Model, model_of
from treekit.model.scoring import label_codes, sums

__all__ = ["register"]

Codes = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


def register(
    connection: Any,
    model: Any,
    name: str,
    *,
    answer: Literal["label", "probability"] = "label",
    refuse: Literal["null", "error"] = "null",
) -> str:
    """Make a model a function of a connection, of the model's columns in their order.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
    model : Model or fitted treekit estimator
    name : str
        Of the function; one of that name is replaced.
    answer : {"label", "probability"}
        The label, or the number; or a list of the probabilities of the classes
        in schema order.  Several targets are fields of a STRUCT.
    refuse : {"null", "error"}
        What a row gets that the model's policies refuse: NULL, or an end of
        the query.

    Returns
    -------
    str
        The call of the function with the columns of the schema by their names,
        quoted, to be used in a query.

    Raises
    ------
    ExportError
        If pyarrow is not installed, a label is beyond 64 bits, or a model of
        numbers is asked for probabilities.
    TypeError
        If there is no model in what is given as one.
    """
    model = model_of(model)
    if importlib.util.find_spec("pyarrow") is None:
        raise ExportError(
            "scoring inside DuckDB needs pyarrow, which is not installed: "
            "pip install 'treekit-ml[duckdb]'"
        )
    scorer = _Scorer(model, answer, refuse)
    kinds = ["DOUBLE" if c.kind == "numeric" else "VARCHAR" for c in model.schema.columns]
    known = "SELECT count(*) FROM duckdb_functions() WHERE function_name = ?"
    if connection.execute(known, [name]).fetchall()[0][0]:
        connection.remove_function(name)
    connection.create_function(
        name,
        _of_width(scorer, len(kinds)),
        list(map(connection.dtype, kinds)),
        connection.dtype(scorer.kind),
        type="arrow",
        null_handling="special",
    )
    return f"{_quoted(name)}({', '.join(map(_quoted, model.schema.names))})"


def _quoted(name: str) -> str:
    """A name in quotes, the one way in which DuckDB reads it as nothing else."""
    if "\0" in name:
        raise ExportError(f"{name[:80]!r} holds a NUL, which DuckDB cannot have in a name")
    return '"' + name.replace('"', '""') + '"'


def _of_width(scorer: _Scorer, width: int) -> Callable[..., Any]:
    """A function of so many columns: DuckDB looks at how many it takes."""

    def score(*columns: Any) -> Any:
        return scorer(columns)

    own = [inspect.Parameter(f"c{k}", inspect.Parameter.POSITIONAL_ONLY) for k in range(width)]
    score.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return score


class _Scorer:
    """Arrow columns to Arrow answers.

    Attributes
    ----------
    kind : str
        DuckDB's type of an answer.
    """

    def __init__(self, model: Model, answer: str, refuse: str) -> None:
        schema = model.schema
        if answer == "probability" and schema.task != "classification":
            raise ExportError("a model of numbers has no probabilities: ask for answer='label'")
        self.model, self.answer, self.refuse = model, answer, refuse
        kinds = [self._kind(output) for output in schema.outputs]
        named = zip((output.name for output in schema.outputs), kinds, strict=True)
        fields = ", ".join(f"{_quoted(name)} {kind}" for name, kind in named)
        self.kind = f"STRUCT({fields})" if schema.more else kinds[0]

    def _kind(self, output: Output) -> str:
        if self.answer == "probability":
            return "DOUBLE[]"
        if not output.classes:
            return "DOUBLE"
        for label in output.classes:
            if isinstance(label, int) and not -(2**63) <= label < 2**63:
                raise ExportError(f"the class label {label} is beyond a BIGINT: rename it")
        return _TYPES[type(output.classes[0])]

    def __call__(self, columns: tuple[Any, ...]) -> Any:
        """Answers to the rows of some arrays."""
        import pyarrow as pa

        schema = self.model.schema
        matrix = np.empty((len(columns[0]), schema.n_features))
        refused = np.zeros(len(matrix), dtype=np.bool_)
        for f, (column, cells) in enumerate(zip(schema.columns, columns, strict=True)):
            matrix[:, f], unseen = _encoded(column, cells, schema.missing_marks)
            if self.model.unknown == "error":
                refused |= unseen
            if self.model.missing == "error":
                refused |= np.isnan(matrix[:, f])
        if self.refuse == "error" and refused.any():
            raise ValueError("the model refuses a row: a cell is missing, or an unseen category")
        total = sums(self.model, matrix[~refused])
        made = self._answers(total, np.flatnonzero(~refused), len(refused))
        if len(made) == 1:
            return made[0]
        return pa.StructArray.from_arrays(made, names=[output.name for output in schema.outputs])

    def _answers(
        self, total: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], n: int
    ) -> list[Any]:
        """An array of n answers for each target; NULL but for `rows`."""
        import pyarrow as pa

        from treekit.model.links import values_of

        place = np.full(n, -1)
        place[rows] = np.arange(len(rows))
        at = pa.array(place, mask=place < 0)
        if self.answer == "probability" or self.model.schema.task == "regression":
            numbers = values_of(self.model, total)
            blocks = itertools.pairwise(self.model.schema.blocks)
            found = [_lists(numbers[:, a:b], self.answer == "probability") for a, b in blocks]
        else:
            codes = label_codes(self.model, total)
            outputs = self.model.schema.outputs
            found = [
                pa.array(output.classes).take(pa.array(codes[:, k]))
                for k, output in enumerate(outputs)
            ]
        return [values.take(at) for values in found]


def _lists(numbers: Codes, several: bool) -> Any:
    """Numbers (rows, classes) as a list a row, or as they are."""
    import pyarrow as pa

    if not several:
        return pa.array(numbers[:, 0])
    rows, width = numbers.shape
    starts = np.arange(rows + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(
        pa.array(starts), pa.array(np.ascontiguousarray(numbers).ravel())
    )


def _encoded(column: Column, cells: Any, marks: tuple[str, ...]) -> tuple[Codes, Mask]:
    """Numbers or codes, NaN = missing; and which cells hold an unseen category."""
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
