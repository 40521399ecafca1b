"""The columns of a table as the numbers and codes that the trees ask, and rows refused."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from sqlglot import exp

from treekit.data.features import LevelIndex
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.export.literals import identifiers
from treekit.export.sql_dialect import Dialect
from treekit.export.sql_query import Query
from treekit.export.sql_syntax import (
    Sql,
    cast,
    column,
    integer,
    is_null,
    name_of,
    none,
    switch,
    when,
)
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model

__all__ = ["REFUSED", "Cells", "add_cells", "add_rounded", "linear_features"]

REFUSED = "refused"
"""The column that is 0 in rows that the model answers."""

_UNSEEN = -1


class Cells:
    """Names of the columns that the steps of a query ask.

    Attributes
    ----------
    names : list of str
        Of each column of the schema.
    rounded : dict of int to str
        Where a column's cells are as numbers of the model's input type, for sums.
    """

    def __init__(self, schema: Schema) -> None:
        # Unquoted names are one whether large or small.
        lowered = [name.lower() for name in schema.names]
        self.names = [str(name) for name in identifiers(lowered, "in_")]
        self.rounded: dict[int, str] = {}

    def of(self, feature: int) -> Sql:
        """A column as the trees compare it."""
        return column(self.names[feature])

    def summed(self, feature: int) -> Sql:
        """A column as sums take it."""
        return column(self.rounded.get(feature, self.names[feature]))


def add_cells(
    query: Query,
    model: Model,
    dialect: Dialect,
    source: str,
    used: Collection[int],
    first: dict[str, Sql],
    refuse: str,
) -> Cells:
    """Add the steps that read the table; `query` carries `REFUSED` where rows may be refused.

    Parameters
    ----------
    source : str
        What the table is called in the query.
    used : collection of int
        Columns that the trees ask.
    first : dict
        More columns of the first step, which are carried on.
    refuse : {"null", "error"}
    """
    schema, cells = model.schema, Cells(model.schema)
    asked = [f for f in range(schema.n_features) if f in used or _is_checked(model, f)]
    made = {
        cells.names[f]: _cell(model, dialect, schema.columns[f], _raw(schema, f, source))
        for f in asked
    }
    query.step("cells", first | made)
    query.carried += list(first)
    tests = [test for f in asked for test in _refusals(model, dialect, f, cells, refuse)]
    if tests:
        made = {REFUSED: when(tests, integer(0))}
        query.step("checked", made, [cells.names[f] for f in asked])
        query.carried.append(REFUSED)
    return cells


def add_rounded(
    query: Query, cells: Cells, dialect: Dialect, used: Collection[int], linear: Sequence[int]
) -> None:
    """Add the steps that round the columns `linear` to float32."""
    kept = [cells.names[f] for f in sorted(used)]
    parts = [dialect.float32(cells.names[f]) for f in linear]
    between = {name: value for made in parts if made for name, value in made.items()}
    if between:
        query.step("halves", between, kept)
    rounded = {f: f"{cells.names[f]}_single" for f in linear}
    query.step("singles", {rounded[f]: dialect.to_float32(cells.names[f]) for f in linear}, kept)
    cells.rounded = rounded


def linear_features(model: Model, derived: DerivedColumns) -> list[int]:
    """Columns in sums whose terms are to be rounded to the model's input type.

    A single column of weight 1 is compared with a threshold for doubles instead.
    """
    if model.schema.dtype != "float32":
        return []
    counts = np.diff(derived.term_start)
    summed = np.repeat(counts > 1, counts) | (derived.term_weight != 1.0)
    return list(map(int, np.unique(derived.term_feature[summed])))


def _raw(schema: Schema, feature: int, source: str) -> Sql:
    """The table's own column; with the table's name, for SQLite takes an unknown one for text."""
    name = schema.names[feature]
    if "\0" in name:
        raise ExportError(f"the column name {name[:80]!r} holds a NUL, which SQL cannot: rename it")
    return exp.Column(this=name_of(name), table=name_of(source))


def _is_checked(model: Model, feature: int) -> bool:
    nominal = model.schema.columns[feature].kind == "nominal"
    return model.missing == "error" or (nominal and model.unknown == "error")


def _cell(model: Model, dialect: Dialect, column: Column, raw: Sql) -> Sql:
    marks = model.schema.missing_marks
    if column.kind == "numeric":
        return dialect.as_number(raw, marks)
    tests = [(dialect.text(level), integer(code)) for code, level in enumerate(column.levels)]
    unseen: Sql | None = None
    if model.unknown == "error":
        gone = [(is_null(raw.copy()), none())]
        mark = dialect.is_mark(raw.copy(), marks)
        if mark is not None:
            gone.append((mark, none()))
        unseen = when(gone, integer(_UNSEEN))
    if not tests:
        return unseen or cast(none(), "BIGINT")
    return switch(dialect.as_text(raw, LevelIndex(column.levels, marks)), tests, unseen)


def _refusals(
    model: Model, dialect: Dialect, feature: int, cells: Cells, refuse: str
) -> list[tuple[Sql, Sql]]:
    """Conditions of a row that has no answer, and what `REFUSED` is then."""
    name, nominal = model.schema.names[feature], model.schema.columns[feature].kind == "nominal"
    found: list[tuple[Sql | None, str]] = []
    if nominal and model.unknown == "error":
        unseen = exp.EQ(this=cells.of(feature), expression=integer(_UNSEEN))
        found.append((unseen, f"column {name!r} holds a category that training did not see"))
    if model.missing == "error":
        message = f"column {name!r} is missing, which the model refuses"
        found.append((is_null(cells.of(feature)), message))
    if not nominal:
        strange = dialect.no_number(cells.of(feature))
        found.append((strange, f"column {name!r} holds text, not a number"))
    return [
        (
            condition,
            integer(1)
            if refuse == "null"
            else dialect.refuse(f"treekit: {ascii(message)[1:-1]}", cells.of(feature)),
        )
        for condition, message in found
        if condition is not None
    ]
