"""The target "sql": a SELECT, or an expression, that answers the rows of a table.

Everything is made of sqlglot's syntax tree, which quotes each name and text as
the engine wants it.
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
"""How the line begins that says, in JSON, how the file is to be run."""

_DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (SQLite(), DuckDB(), Dialect())
}
_ASKED = {"numeric": "number", "nominal": "text"}
_DEEPEST = 12
"""CASE within each other: SQLite's parser has a stack of 100, of which each takes five."""
_MOST_CASE = 200_000
_AUTO_CASE = {"sqlite": 50_000, "duckdb": 1_000, "postgres": 50_000}
"""Nodes up to which CASE is taken.

4,000 rows in forests of 1,000, 6,000 and 22,000 nodes take, as CASE and as tables:
0.1, 0.3, 1.2 and 2, 13, 29 s in SQLite; 0.1, 0.3, 0.6 and 1, 4, 7 s in PostgreSQL;
0.4, 2.6, 11 and 0.2, 1.6, 0.7 s in DuckDB, whose plan grows with CASE.
Printing takes 0.1 ms a node (measured, on a busy machine)."""


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
        A SELECT with the trees as CASE expressions, or as tables that a
        recursive query walks; or one value, the label or number, for use
        in a query of one's own.
    table : str
        The table that is scored; its columns have the names of the schema.
    keys : str
        Columns of the table that are handed on before the answers: names with
        commas between them, or a JSON list.
    label, probability : str
        What the answers are called; see `answer_names`.
    refuse : {"null", "error"}
        What a row that the model's policies refuse gets: NULL for every answer,
        or an end of the query.

    Raises
    ------
    ExportError
        If the engine cannot hold a name, or express the model in this form.
        Queries for SQLite are tried on an empty table first.
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
                f"{engine.title} says of form={chosen!r}: {problem}; choose another form or target"
            )
        chosen, reason = "table", f"{engine.title} says of CASE: {problem}"


class _Builder:
    """A query of one model."""

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
        """The query in one of the forms; `names` of its answers."""
        if form == "expression":
            return self.expression()
        return self.select(form, keys, names)

    def expression(self) -> Sql:
        """The label or number of a row."""
        query = Query()
        self._sums(query, "expression", {}, "")
        return query.expression(add_label(query, self.model, self.dialect))

    def select(self, form: str, keys: list[str], names: list[str]) -> exp.Select:
        """Keys and answers of every row."""
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
            f"a table of {dialect.title} has up to {dialect.most_columns} columns, and the model "
            f"asks {schema.n_features}: choose another dialect or target"
        )
    answers = len(keys) + schema.n_values + len(schema.outputs)
    if answers > dialect.most_answers:
        raise ExportError(
            f"a query of {dialect.title} answers up to {dialect.most_answers} columns, and the "
            f"model needs {answers}: choose another dialect or target"
        )


def _check_steps(made: exp.Expression, table: str) -> None:
    """The query's own steps may not be called as the table is: they would hide it."""
    steps = {step.alias.casefold() for step in made.find_all(exp.CTE)}
    if table.casefold() in steps:
        raise ExportError(
            f"the query has a step of its own called {table!r}: score a view of the table under "
            "another name"
        )


def _choose(
    form: str,
    model: Model,
    trees: tuple[LoweredTree, ...],
    derived: DerivedColumns,
    dialect: Dialect,
) -> tuple[str, str]:
    """The form, and the reason in words."""
    if not trees:
        if form in ("case", "expression"):
            raise ExportError(
                f"form={form!r} sends each row one way, and the model's missing policy is "
                "'fractional', where rows divide: choose form='table' or 'auto'"
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
            f"form={form!r} needs {size} nodes, nested {deep} deep, and engines take up to "
            f"{_MOST_CASE}, {_DEEPEST} deep: choose form='table' or 'auto'"
        )
    if form == "expression" and model.schema.more:
        raise ExportError(
            "form='expression' is one value, and the model has several targets: choose another form"
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
    """The file: comments of treekit's own words and JSON in ASCII, and what sqlglot prints."""
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
