"""Target "sql": a SELECT, or an expression, that scores the rows of a table.

Queries are built as sqlglot syntax trees; sqlglot quotes each name and text for
the engine.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from sqlglot import exp

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.lowering import LoweredTree, lower
from treekit.export.sql.answers import add_answers, add_label
from treekit.export.sql.dialects import Dialect, DuckDB, SQLite
from treekit.export.sql.inputs import (
    add_cells,
    add_rounded,
    answer_names,
    check_names,
    key_names,
    linear_features,
)
from treekit.export.sql.syntax import Query, Sql, call, column, name_of
from treekit.export.sql.trees import (
    ROW,
    add_case_sums,
    add_table_sums,
    nesting,
    used_features,
    value_groups,
)
from treekit.model.derived_features import DerivedColumns, derive
from treekit.model.model import Model

__all__ = [
    "MARK",
    "export_sql",
]

MARK = "-- treekit-sql "
"""Prefix of the line that describes in JSON how to run the file."""

_DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (SQLite(), DuckDB(), Dialect())
}
_ASKED = {"numeric": "number", "nominal": "text"}
_DEEPEST = 12
"""Maximum nesting of CASE: SQLite's parser has a stack of 100, and each CASE takes five."""
_MOST_CASE = 200_000
_AUTO_CASE = {"sqlite": 50_000, "duckdb": 1_000, "postgres": 50_000}
"""Maximum number of nodes for which "auto" chooses CASE.

4,000 rows in forests of 1,000, 6,000 and 22,000 nodes take, with CASE and with tables:
0.1, 0.3, 1.2 and 2, 13, 29 s in SQLite; 0.1, 0.3, 0.6 and 1, 4, 7 s in PostgreSQL;
0.4, 2.6, 11 and 0.2, 1.6, 0.7 s in DuckDB, whose plan grows with CASE.
Printing takes 0.1 ms per node (measured, on a busy machine)."""


def export_sql(
    model: Model,
    name: str,
    *,
    dialect: str = "sqlite",
    form: str = "auto",
    table: str = "rows",
    keys: str = "",
    label: str = "prediction",
    probability: str = "probability",
    refuse: str = "null",
) -> dict[str, bytes]:
    """Write ``name.sql``, in UTF-8.

    Parameters
    ----------
    model : Model
    name : str
        Stem of the file.
    dialect : {"sqlite", "duckdb", "postgres"}
    form : {"auto", "case", "table", "expression"}
        SELECT with the trees as CASE expressions, or as tables traversed by a
        recursive query; or a single value, the label or number, for use
        in another query.
    table : str
        Table to score; its columns have the names of the schema.
    keys : str
        Columns of the table to copy, before the predictions: comma-separated
        names, or a JSON list.
    label, probability : str
        Names of the predictions; see `answer_names`.
    refuse : {"null", "error"}
        Result for a row that the model's policies refuse: NULL for every prediction,
        or an error that stops the query.

    Raises
    ------
    ExportError
        If the engine does not support a name, or the model in this form.
        Queries for SQLite are first tested on an empty table.
    """
    engine = _DIALECTS[dialect]
    handed = key_names(keys)
    _check(model, engine, table, handed)
    derived = derive(model)
    trees = () if model.missing == "fractional" else lower(model, derived)
    builder = _Builder(model, engine, table, derived, trees, refuse)
    answers = answer_names(model.schema, label, probability, handed, engine)
    names = [*answers[0], *answers[1]]
    chosen, reason = _choose(form, model, trees, derived, engine)
    while True:
        made = builder.made(chosen, handed, names)
        _check_steps(made, table)
        told = {"dialect": dialect, "form": chosen, "table": table, "keys": handed}
        content = _written(model.schema, made, told, reason, refuse, engine)
        problem = engine.problem(content.decode(), table, [*model.schema.names, *handed], chosen)
        if not problem:
            return {f"{name}.sql": content}
        if form != "auto" or chosen == "table":
            raise ExportError(
                f"{engine.title} cannot run form={chosen!r}: {problem}: choose another form or "
                "target"
            )
        chosen, reason = "table", f"{engine.title} says of CASE: {problem}"


class _Builder:
    """Builder of the query of a model."""

    def __init__(
        self,
        model: Model,
        dialect: Dialect,
        table: str,
        derived: DerivedColumns,
        trees: tuple[LoweredTree, ...],
        refuse: str,
    ) -> None:
        self.model, self.dialect, self.table = model, dialect, table
        self.derived, self.trees, self.refuse = derived, trees, refuse

    def made(self, form: str, keys: list[str], names: list[str]) -> exp.Expression:
        """Build the query in one of the forms; `names` are those of the predictions."""
        if form == "expression":
            return self.expression()
        return self.select(form, keys, names)

    def expression(self) -> Sql:
        """Build the expression of the label or number of a row."""
        query = Query()
        self._sums(query, "expression", {}, "")
        return query.expression(add_label(query, self.model, self.dialect))

    def select(self, form: str, keys: list[str], names: list[str]) -> exp.Select:
        """Build the SELECT of keys and predictions of all rows."""
        query = Query()
        query.last = "source"
        first: dict[str, Sql] = {
            f"key_{k}": exp.Column(this=name_of(key), table=name_of(self.table))
            for k, key in enumerate(keys)
        }
        if form == "table":
            first[ROW] = exp.Window(this=call("ROW_NUMBER"))
        self._sums(query, form, first, "source")
        labels, numbers = add_answers(query, self.model, self.dialect)
        handed: list[Sql] = [column(f"key_{k}") for k in range(len(keys))]
        final = exp.Select(
            expressions=[
                exp.Alias(this=value, alias=name_of(name))
                for value, name in zip([*handed, *labels, *numbers], [*keys, *names], strict=True)
            ]
        )
        made = query.statement(final)
        if form == "table":
            made = made.order_by(column(ROW), copy=False)
        return made

    def _sums(self, query: Query, form: str, first: dict[str, Sql], source: str) -> None:
        model, derived = self.model, self.derived
        used = _used(model, self.trees, derived)
        cells = add_cells(query, model, self.dialect, self.table, used, first, self.refuse)
        if source:
            query.steps[0][1].set("from_", exp.From(this=exp.Table(this=name_of(self.table))))
        linear = linear_features(model, derived)
        if linear:
            add_rounded(query, cells, self.dialect, used, linear)
        if form == "table":
            add_table_sums(query, model, derived, cells, self.dialect, used)
        else:
            add_case_sums(query, model, self.trees, derived, cells, self.dialect)


def _used(model: Model, trees: tuple[LoweredTree, ...], derived: DerivedColumns) -> set[int]:
    n = model.schema.n_features
    used = used_features(trees, derived, n)
    if not trees:
        asked = np.concatenate([tree.feature for tree in model.trees])
        used |= set(np.unique(asked[asked >= 0]).tolist())
    return used


def _check(model: Model, dialect: Dialect, table: str, keys: list[str]) -> None:
    schema = model.schema
    check_names([table], "the table's name", dialect)
    check_names(schema.names, "the column name", dialect)
    check_names(keys, "the key column", dialect)
    if schema.n_features > dialect.most_columns:
        raise ExportError(
            f"a table of {dialect.title} has up to {dialect.most_columns} columns; the model "
            f"needs {schema.n_features}: choose another dialect or target"
        )
    answers = len(keys) + schema.n_values + len(schema.outputs)
    if answers > dialect.most_answers:
        raise ExportError(
            f"a query of {dialect.title} returns up to {dialect.most_answers} columns; the "
            f"model needs {answers}: choose another dialect or target"
        )


def _check_steps(made: exp.Expression, table: str) -> None:
    """Refuse a table whose name is that of a step of the query, which would hide it."""
    steps = {step.alias.casefold() for step in made.find_all(exp.CTE)}
    if table.casefold() in steps:
        raise ExportError(
            f"the table name {table!r} is used by a step of the query: score a view of the table "
            "with another name"
        )


def _choose(
    form: str,
    model: Model,
    trees: tuple[LoweredTree, ...],
    derived: DerivedColumns,
    dialect: Dialect,
) -> tuple[str, str]:
    """Choose the form; return it and the reason in words."""
    if not trees:
        if form in ("case", "expression"):
            raise ExportError(
                f"form={form!r} sends each row down a single path, and the model uses fractional "
                "instances (missing='fractional'): choose form='table' or 'auto'"
            )
        return "table", "rows divide where a value is missing"
    if form == "table":
        return form, "as the setting form asks"
    copies = len(value_groups(model))
    size = copies * (sum(tree.n_nodes for tree in trees) + len(derived.term_weight))
    deep = max(map(nesting, trees))
    if form == "auto":
        most = _AUTO_CASE[dialect.name]
        if size > most:
            return "table", f"CASE would need {size} nodes, more than {most}"
        if deep > _DEEPEST:
            return "table", f"CASE would nest {deep} deep, more than {_DEEPEST}"
        return "case", f"CASE needs {size} nodes, at most {most}"
    if size > _MOST_CASE or deep > _DEEPEST:
        raise ExportError(
            f"form={form!r} needs {size} nodes, nested {deep} deep; engines support up to "
            f"{_MOST_CASE} nodes, {_DEEPEST} deep: choose form='table' or 'auto'"
        )
    if form == "expression" and model.schema.more:
        raise ExportError(
            "form='expression' is a single value, but the model has several targets: choose "
            "another form"
        )
    return form, "as the setting form asks"


def _written(
    schema: Schema,
    made: exp.Expression,
    told: dict[str, Any],
    reason: str,
    refuse: str,
    dialect: Dialect,
) -> bytes:
    """Write the file: comments in ASCII (fixed text and JSON), then the query."""
    answer = "NULL for all answers" if refuse == "null" else "an error"
    head = [
        "-- Generated by treekit; changes will be lost.",
        f"{MARK}{json.dumps(told)}",
        f"-- Form: {told['form']}; {reason}.",
        f"-- NULL and NaN are missing.  A row that the model refuses: {answer}.",
    ]
    if dialect.name == "postgres":
        head.append(
            "-- Run it with SET jit = off: compiling such a query costs more than it saves."
        )
    kinds = {column.name: _ASKED[column.kind] for column in schema.columns}
    head.append(f"-- Columns: {json.dumps(kinds)}")
    if dialect.name == "sqlite":
        head.append(
            "-- Columns of numbers hold numbers (declared REAL or INTEGER); text in one, but for "
            "a mark of missing values, refuses the row."
        )
    body = made.sql(dialect=dialect.name, pretty=True, copy=False, comments=False)
    end = "" if told["form"] == "expression" else ";"
    return "\n".join([*head, f"{body}{end}", ""]).encode("utf-8")
