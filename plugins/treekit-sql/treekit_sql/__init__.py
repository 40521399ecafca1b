"""Models and rules as SQL for SQLite, DuckDB and PostgreSQL, and models for MySQL.

Modules are imported on first use: treekit imports this one at start-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from treekit import Document, Exporter, Setting, hookimpl

if TYPE_CHECKING:
    from treekit.documents import Listing
    from treekit.model.model import Model
    from treekit.verify.runtime import Runner

__all__ = ["treekit_documents", "treekit_exporters"]

treekit_contract = 2

_KEYS = Setting("keys", "", 'columns to copy: comma-separated names, or JSON: ["id", "a, b"]')
_EXPORT_SETTINGS = (
    Setting(
        "dialect",
        "sqlite",
        "engine that runs the query; from snowflake on: one tree, in the readable form",
        choices=(
            *("sqlite", "duckdb", "postgres", "mysql", "snowflake", "bigquery", "databricks"),
            *("tsql", "oracle", "clickhouse"),
        ),
    ),
    Setting(
        "form",
        "auto",
        "one tree as nested CASE for people; SELECT with trees as CASE, or as tables traversed by "
        "a recursive query; or a single expression, the label or number; auto: the readable form "
        "if there is one, else CASE if the engine plans it fast",
        choices=("auto", "readable", "case", "table", "expression"),
    ),
    Setting(
        "text",
        "auto",
        "whether columns of numbers may hold text, and those of categories other notations; "
        "auto: in all forms but the readable one",
        choices=("auto", "yes", "no"),
    ),
    Setting(
        "table",
        "rows",
        "table to score, with its schema: s.rows; quote a name that contains a dot: '\"a.b\"'",
    ),
    _KEYS,
    Setting("label", "prediction", "name of the column of predicted labels or numbers"),
    Setting("probability", "probability", "prefix of the names of probability columns"),
    Setting(
        "refuse",
        "null",
        "result for a row that the model refuses: NULL, or an error that stops the query",
        choices=("null", "error"),
    ),
)
_RULE_SETTINGS = (
    _KEYS,
    Setting("rule", False, "add the number of the rule that a row matches"),
    Setting("share", False, "add the share of each class"),
    Setting("text", True, "read text in columns of numbers, and other notations of categories"),
    Setting("each", False, "instead, a column for each rule: 1 where a row meets it"),
)


def _export(model: Model, name: str, **settings: Any) -> dict[str, bytes]:
    from treekit_sql.exporter import export_sql

    return export_sql(model, name, **settings)


def _get_runner() -> Runner:
    from treekit_sql.run_sql import SQL_RUNNER

    return SQL_RUNNER


def _render(listing: Listing, *, dialect: str, **settings: Any) -> Iterator[str]:
    from treekit_sql.rules import render_sql

    return render_sql(listing, dialect, **settings)


@hookimpl
def treekit_exporters() -> list[Exporter]:
    """Register the exporter, with what runs its files and those of the documents."""
    summary = "a query for SQLite, DuckDB, PostgreSQL or MySQL"
    return [Exporter("sql", ".sql", _export, _EXPORT_SETTINGS, summary, runner=_get_runner)]


@hookimpl
def treekit_documents() -> list[Document]:
    """Register the document forms, one for each engine."""
    forms = (
        ("sql", "sqlite", "a query for the label, one WHEN per rule, for SQLite"),
        ("sql-duckdb", "duckdb", "the same for DuckDB"),
        ("sql-postgres", "postgres", "the same for PostgreSQL"),
    )
    return [
        Document(name, ".sql", partial(_render, dialect=dialect), _RULE_SETTINGS, summary=summary)
        for name, dialect, summary in forms
    ]
