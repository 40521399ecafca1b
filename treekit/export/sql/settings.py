"""Settings of the target "sql"; importing them needs no optional library."""

from __future__ import annotations

from treekit.contracts import Setting

__all__ = [
    "SQL_SETTINGS",
]

SQL_SETTINGS = (
    Setting(
        "dialect", "sqlite", "engine that runs the query", choices=("sqlite", "duckdb", "postgres")
    ),
    Setting(
        "form",
        "auto",
        "SELECT with trees as CASE, or as tables traversed by a recursive query; or a single "
        "expression, the label or number; auto: CASE if the engine plans it fast",
        choices=("auto", "case", "table", "expression"),
    ),
    Setting(
        "table",
        "rows",
        "table to score; in SQLite its numeric columns must be REAL or INTEGER",
    ),
    Setting("keys", "", 'columns to copy: comma-separated names, or JSON: ["id", "a, b"]'),
    Setting("label", "prediction", "name of the column of predicted labels or numbers"),
    Setting("probability", "probability", "prefix of the names of probability columns"),
    Setting(
        "refuse",
        "null",
        "result for a row that the model refuses: NULL, or an error that stops the query",
        choices=("null", "error"),
    ),
)
