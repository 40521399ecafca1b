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
from treekit.export.fractional import choose_fractional_form
from treekit.export.lowering import FORM_REASON, LoweredTree, Step, lower_unless_fractional
from treekit.model.model import Model
from treekit.model.tree import DerivedColumns
from treekit_sql.answers import add_label_steps, add_prediction_steps
from treekit_sql.dialects import DIALECTS, Dialect
from treekit_sql.inputs import (
    InputColumns,
    add_input_steps,
    add_rounding_steps,
    check_names,
    make_prediction_names,
    parse_keys,
    parse_table,
)
from treekit_sql.readable import explain_unreadable_sql, render_readable
from treekit_sql.syntax import (
    HEADER_PREFIX,
    Query,
    Sql,
    as_sql,
    make_call,
    make_table,
    quote_column,
    quote_identifier,
)
from treekit_sql.trees import (
    ROW_COLUMN,
    add_case_steps,
    add_table_steps,
    compute_nesting,
    group_values,
)
from treekit_sql.warehouses import WAREHOUSES

_COLUMN_KINDS = {"numeric": "number", "nominal": "text"}
_MAX_CASE_DEPTH = 12
"""Maximum nesting of CASE: SQLite's parser has a stack of 100, and each CASE takes five."""
_MAX_CASE_NODES = 200_000
_AUTO_CASE_NODES = {"sqlite": _MAX_CASE_NODES, "duckdb": 10_000, "postgres": _MAX_CASE_NODES}
"""Maximum number of nodes for which "auto" chooses CASE.

CASE is faster in SQLite and PostgreSQL at every size: 4,000 rows in forests of 6,000 and 65,000
nodes take 0.07 and 0.8 s, with tables 3 and 39 s, in SQLite; 0.09 and 0.6 s, with tables 1.6 and
5 s, in PostgreSQL; 191,000 nodes take 2.7 and 1.3 s.  DuckDB's plan grows with CASE, and its
tables win where rows are few: CPU seconds for 4,000 and 100,000 rows are 0.4 and 0.7 with CASE,
0.06 and 1.2 with tables, for 6,000 nodes; 1.1 and 2.0, 0.1 and 2.6 for 12,000; 3.2 and 4.5,
0.2 and 4.3 for 27,000.
Printing takes 0.1 ms per node (measured, on a busy machine)."""


def export_sql(
    model: Model,
    name: str,
    *,
    dialect: str = "sqlite",
    form: str = "auto",
    text: str = "auto",
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
    dialect : str
        A key of `DIALECTS`, or of `WAREHOUSES`, which have the forms `Dialect.forms` only.
    form : {"auto", "readable", "case", "table", "expression"}
        A single tree as nested CASE for people; SELECT with the trees as CASE expressions, or
        as tables traversed by a recursive query; or a single value, the label or number, for use
        in another query.
    text : {"auto", "yes", "no"}
        Whether columns of numbers may hold text, and columns of categories other notations and
        marks of missing values; "auto": in all forms but the readable one, and not in MySQL.
    table : str
        Table to score; its columns have the names of the schema.  See `parse_table`.
    keys : str
        Columns of the table to copy, before the predictions: comma-separated
        names, or a JSON list.
    label, probability : str
        Names of the predictions; see `make_prediction_names`.
    refuse : {"null", "error"}
        Result for a row that the model's policies refuse: NULL for every prediction,
        or an error that stops the query.

    Raises
    ------
    ExportError
        If the engine does not support a name, or the model in this form.
        Queries for SQLite are first tested on an empty table.
    """
    engine = (DIALECTS | WAREHOUSES)[dialect]
    handed, place = parse_keys(keys), parse_table(table, engine)
    _check_limits(model, engine, place, handed)
    derived, trees = model.derived, lower_unless_fractional(model)
    answers = make_prediction_names(model.schema, label, probability, handed, engine)
    names = [*answers[0], *answers[1]]
    unreadable = _explain_unreadable(form, text, model, trees, engine)
    if not unreadable:
        body = render_readable(model, trees[0], engine, place, handed, names)
        told = _describe_file(dialect, "readable", place, handed)
        head = _write_readable_head(model.schema, trees[0], told, engine)
        return {f"{name}.sql": "\n".join([*head, f"{body};", ""]).encode()}
    if "table" not in engine.forms:
        _check_case_form(form, text, refuse, trees, derived, engine)
        form, text = "case", "no"
    chosen, reason = _choose_form(form, model, trees, derived, engine)
    while True:
        cells = InputColumns(model, derived, engine, trees, text=text != "no")
        made = _build_query(cells, trees, place, chosen, handed, names, refuse)
        _check_step_names(made, place[-1])
        told = _describe_file(dialect, chosen, place, handed)
        told |= {"text": text} if text == "no" else {}
        content = _format_file(model.schema, made, told, reason, refuse, engine)
        columns = [*model.schema.names, *handed]
        problem = engine.find_problem(content.decode(), place, columns, chosen)
        if not problem:
            return {f"{name}.sql": content}
        if form != "auto" or chosen == "table":
            raise ExportError(
                f"{engine.title} cannot run form={chosen!r}: {problem}: choose another form or "
                "target"
            )
        chosen, reason = "table", f"{engine.title} says of CASE: {problem}"


def _explain_unreadable(
    form: str, text: str, model: Model, trees: tuple[LoweredTree, ...], dialect: Dialect
) -> str:
    """Return why the readable form is not written, empty if it is.

    Raises
    ------
    ExportError
        If it is the only form that the dialect has, or that was asked for.
    """
    only = form == "readable" or "case" not in dialect.forms
    if form not in ("auto", "readable"):
        reason = f"form={form!r} was set"
    elif text == "yes":
        reason = "text='yes' was set"
    else:
        reason = explain_unreadable_sql(model, trees, dialect)
    if reason and only:
        what = f"{dialect.title} has" if "case" not in dialect.forms else "form='readable' is"
        raise ExportError(
            f"{what} nested CASE on columns of numbers and text only, and {reason}: "
            "choose form='auto' and one of the dialects sqlite, duckdb and postgres"
        )
    return reason


def _check_case_form(
    form: str,
    text: str,
    refuse: str,
    trees: tuple[LoweredTree, ...],
    derived: DerivedColumns,
    dialect: Dialect,
) -> None:
    """Raise an error if a dialect of CASE alone cannot express the model."""
    sums = (np.diff(derived.term_start) > 1).any() or (derived.term_weight != 1.0).any()
    reasons = {
        f"form={form!r} was set": form in ("table", "expression"),
        "text='yes' was set": text == "yes",
        "refuse='error' was set": refuse == "error",
        "the model divides rows among branches": not trees,
        "a split sums columns": sums,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ExportError(
                f"for {dialect.title}, models are written as CASE on single columns only, but "
                f"{reason}: choose one of the dialects sqlite, duckdb and postgres"
            )


def _describe_file(dialect: str, form: str, place: list[str], keys: list[str]) -> dict[str, Any]:
    """Return the metadata of a file, which `treekit verify` reads."""
    told = {"dialect": dialect, "form": form, "table": place[-1], "keys": keys}
    return told | ({"inside": place[:-1]} if len(place) > 1 else {})


def _write_readable_head(
    schema: Schema, tree: LoweredTree, told: dict[str, Any], dialect: Dialect
) -> list[str]:
    """Return the comments above a query in the readable form."""
    tested = set(tree.feature[tree.kind != Step.LEAF].tolist())
    kinds = {schema.columns[f].kind for f in tested}
    checked = dialect.find_text(exp.Null()) is not None
    head = [
        "-- Generated by treekit; changes will be lost.",
        f"{HEADER_PREFIX}{json.dumps(told)}",
        f"-- Form: readable; the tree has {tree.n_nodes} nodes.",
    ]
    if "numeric" in kinds:
        text = "is an error" if dialect.rejects_text else "is converted by the engine"
        text = "gives NULL" if checked else text
        advised = "table" in dialect.forms  # forms that read text
        end = ":" if advised else "."
        head.append(
            f"-- Columns of numbers hold numbers; NULL and NaN are missing.  Text {text}{end}"
        )
        if advised:
            head.append("-- for tables with text or marks of missing values, export with text=yes.")
    if "nominal" in kinds:
        head.append("-- Text is compared as it is; a category not seen in training is missing.")
    if schema.dtype == "float32" and "numeric" in kinds:
        head.append("-- A bound such as 2.45 + 1e-07 includes what rounds to the float32 2.45.")
    return [*head, *(f"-- {note}" for note in dialect.notes)]


def _build_query(
    cells: InputColumns,
    trees: tuple[LoweredTree, ...],
    place: list[str],
    form: str,
    keys: list[str],
    names: list[str],
    refuse: str,
) -> exp.Expression:
    """Build the query in one of the forms; `names` are those of the predictions."""
    query, model, dialect = Query(), cells.model, cells.dialect
    first: dict[str, Sql] = {}
    table = place[-1]
    if form != "expression":
        query.last_step = "source"
        for k, key in enumerate(keys):
            first[f"key_{k}"] = quote_column(key, table)
    if form == "table":
        first[ROW_COLUMN] = exp.Window(this=make_call("ROW_NUMBER"))
    add_input_steps(query, cells, table, first, refuse)
    if form != "expression":
        query.steps[0][1].set("from_", exp.From(this=make_table(place)))
    add_rounding_steps(query, cells)
    (add_table_steps if form == "table" else add_case_steps)(query, cells, trees)
    if form == "expression":
        return query.build_expression(add_label_steps(query, model, dialect))
    labels, numbers = add_prediction_steps(query, model, dialect)
    answers = [*(as_sql(f"key_{k}") for k in range(len(keys))), *labels, *numbers]
    final = exp.Select(
        expressions=[
            exp.Alias(this=value, alias=quote_identifier(name))
            for value, name in zip(answers, [*keys, *names], strict=True)
        ]
    )
    made = query.build_statement(final)
    dialect.adapt_statement(made)
    return made.order_by(as_sql(ROW_COLUMN), copy=False) if form == "table" else made


def _check_limits(model: Model, dialect: Dialect, place: list[str], keys: list[str]) -> None:
    schema = model.schema
    for name in place:
        check_names([name], "the table's name", dialect)
    check_names(schema.names, "the column name", dialect)
    check_names(keys, "the key column", dialect)
    if schema.n_features > dialect.max_columns:
        raise ExportError(
            f"a table of {dialect.title} has up to {dialect.max_columns} columns; the model "
            f"needs {schema.n_features}: choose another dialect or target"
        )
    answers = len(keys) + schema.n_values + len(schema.outputs)
    if answers > dialect.max_result_columns:
        raise ExportError(
            f"a query of {dialect.title} returns up to {dialect.max_result_columns} columns; the "
            f"model needs {answers}: choose another dialect or target"
        )


def _check_step_names(made: exp.Expression, table: str) -> None:
    """Refuse a table whose name is that of a step of the query, which would hide it."""
    steps = {step.alias.casefold() for step in made.find_all(exp.CTE)}
    if table.casefold() in steps:
        raise ExportError(
            f"the table name {table!r} is used by a step of the query: score a view of the table "
            "with another name"
        )


def _choose_form(
    form: str,
    model: Model,
    trees: tuple[LoweredTree, ...],
    derived: DerivedColumns,
    dialect: Dialect,
) -> tuple[str, str]:
    """Choose the form; return it and the reason in words."""
    if not trees:
        return choose_fractional_form(form)
    if form == "table":
        return form, FORM_REASON
    copies = len(group_values(model))
    size = copies * (sum(tree.n_nodes for tree in trees) + len(derived.term_weight))
    deep = max(map(compute_nesting, trees))
    if form == "auto":
        most = _AUTO_CASE_NODES[dialect.name]
        if size > most:
            return "table", f"CASE would need {size} nodes, more than {most}"
        if deep > _MAX_CASE_DEPTH:
            return "table", f"CASE would nest {deep} deep, more than {_MAX_CASE_DEPTH}"
        return "case", f"CASE needs {size} nodes, at most {most}"
    if size > _MAX_CASE_NODES or deep > _MAX_CASE_DEPTH:
        raise ExportError(
            f"form={form!r} needs {size} nodes, nested {deep} deep; engines support up to "
            f"{_MAX_CASE_NODES} nodes, {_MAX_CASE_DEPTH} deep: choose form='table' or 'auto', or "
            "another dialect"
        )
    if form == "expression" and model.schema.more:
        raise ExportError(
            "form='expression' is a single value, but the model has several targets: choose "
            "another form"
        )
    return form, FORM_REASON if "table" in dialect.forms else "the model has no shorter one"


def _format_file(
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
        f"{HEADER_PREFIX}{json.dumps(told)}",
        f"-- Form: {told['form']}; {reason}.",
        f"-- NULL and NaN are missing.  A row that the model refuses: {answer}.",
    ]
    if dialect.name == "postgres":
        head += ["-- Columns of numbers have a type of numbers or text, or the query cannot start."]
        head += ["-- Run it with SET jit = off: compiling such a query costs more than it saves."]
    head += [f"-- {note}" for note in dialect.notes]
    kinds = {column.name: _COLUMN_KINDS[column.kind] for column in schema.columns}
    head.append(f"-- Columns: {json.dumps(kinds)}")
    head.append(
        "-- Columns of numbers hold numbers, and those of categories the texts of the training."
        if told.get("text") == "no"
        else "-- Text in a column of numbers is a number as JSON writes it, or a mark of missing "
        "values; any other cell refuses the row."
    )
    body = made.sql(dialect=dialect.name, pretty=True, copy=False, comments=False)
    end = "" if told["form"] == "expression" else ";"
    return "\n".join([*head, f"{body}{end}", ""]).encode("utf-8")
