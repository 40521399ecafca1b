"""The columns of a table as the numbers and codes that the trees ask, and rows refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Sequence

import numpy as np
from sqlglot import exp

from treekit.data.features import LevelIndex
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.export.literals import identifiers
from treekit.export.sql.dialects import Dialect
from treekit.export.sql.syntax import (
    Query,
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

__all__ = [
    "REFUSED",
    "Cells",
    "add_cells",
    "add_rounded",
    "answer_names",
    "check_names",
    "key_names",
    "linear_features",
]


# ---------------------------------------------------------------- sql cells

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


# ---------------------------------------------------------------- sql names
# Names of tables and columns: what an engine would cut, fold or misread is refused by name.


def key_names(keys: str) -> list[str]:
    """Columns that the setting ``keys`` lists: names with commas between them, or a JSON list.

    Raises
    ------
    ExportError
        If the list is no list of text.
    """
    if not keys.lstrip().startswith("["):
        return [name.strip() for name in keys.split(",")] if keys.strip() else []
    try:
        names = json.loads(keys)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ExportError(f'keys={keys!r} is no JSON list of names, such as ["id", "a, b"]')
    return names


def check_names(names: Sequence[str], role: str, dialect: Dialect) -> None:
    """Refuse names that a table of the engine cannot have, alone or together.

    Raises
    ------
    ExportError
    """
    seen: dict[str, str] = {}
    for name in names:
        problem = problem_of(name, dialect)
        if problem:
            raise ExportError(f"{role} {name[:80]!r} {problem}: rename it")
        alike = _folded(name, dialect)
        if alike in seen:
            raise ExportError(
                f"{role}s {seen[alike][:80]!r} and {name[:80]!r} are one name in {dialect.title}: "
                "rename one of them"
            )
        seen[alike] = name


def problem_of(name: str, dialect: Dialect) -> str:
    """Why the engine cannot have the name, as the end of a sentence, or nothing."""
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        return "is not valid Unicode text"
    if "\0" in name:
        return f"holds a NUL, which {dialect.title} cannot have in a name"
    if not name and not dialect.empty_name:
        return f"is empty, which {dialect.title} does not allow"
    if dialect.longest_name and size > dialect.longest_name:
        return f"has {size} bytes, and {dialect.title} cuts names at {dialect.longest_name}"
    if name in dialect.reserved_columns:
        return f"is a column that every table of {dialect.title} has for itself"
    return ""


def _folded(name: str, dialect: Dialect) -> str:
    if not dialect.folds_case:
        return name
    return "".join(c.lower() if c.isascii() else c for c in name)


def answer_names(
    schema: Schema, label: str, probability: str, keys: Sequence[str], dialect: Dialect
) -> tuple[list[str], list[str]]:
    """Names of the labels' columns, and of those of probabilities; numbers are named as labels.

    ``label``, or ``label_TARGET`` of several; ``probability_CLASS``, or
    ``probability_TARGET_CLASS``.  Where a target or class makes no name of the
    engine, or two make the same, all of them are told by their positions.
    """
    told = [output.name for output in schema.outputs]
    places = [str(k) for k in range(len(told))]
    for targets, number in itertools.product((told, places), (False, True)):
        labels = [f"{label}_{target}" for target in targets] if schema.more else [label]
        shares = [
            "_".join([probability, *([target] if schema.more else []), str(k if number else said)])
            for target, output in zip(targets, schema.outputs, strict=True)
            for k, said in enumerate(output.classes)
        ]
        names = [*keys, *labels, *shares]
        folded = {_folded(name, dialect) for name in names}
        if len(folded) == len(names) and not any(problem_of(name, dialect) for name in names):
            return labels, shares
    check_names([*keys, *labels, *shares], "the answer column", dialect)
    return labels, shares
