"""The settings of the target "sql", which need no library."""

from __future__ import annotations

from treekit.contracts import Setting

__all__ = [
    "SQL_SETTINGS",
]

SQL_SETTINGS = (
    Setting(
        "dialect", "sqlite", "the engine that runs it", choices=("sqlite", "duckdb", "postgres")
    ),
    Setting(
        "form",
        "auto",
        "a SELECT with trees as CASE, or as tables that a recursive query walks; or one "
        "expression, the label or number; auto: CASE if the engine plans it fast",
        choices=("auto", "case", "table", "expression"),
    ),
    Setting(
        "table",
        "rows",
        "the table that is scored; in SQLite its columns of numbers are REAL or INTEGER",
    ),
    Setting("keys", "", 'columns to hand on: names with commas between, or JSON: ["id", "a, b"]'),
    Setting("label", "prediction", "name of the column of labels, or of numbers"),
    Setting("probability", "probability", "how the names of the probabilities' columns begin"),
    Setting(
        "refuse",
        "null",
        "what a row gets that the model refuses: NULL, or an error that ends the query",
        choices=("null", "error"),
    ),
)
