"""Built-in exporters, registered through the same hook as those of plugins.

The libraries of an exporter are imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treekit import registry
from treekit.contracts import Exporter, Setting
from treekit.errors import ExportError
from treekit.export.languages import TEMPLATES_SETTING, load_known_languages
from treekit.export.onnx import ONNX_SETTINGS
from treekit.export.triton import TRITON_SETTINGS, TRITON_SUFFIX
from treekit.hookspecs import hookimpl
from treekit.model.model import Model
from treekit.rules import RULES_SETTINGS

# ---------------------------------------------------------------- settings of SQL


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


# ---------------------------------------------------------------- builtin


_FORM_SETTING = Setting(
    "form",
    "auto",
    "nested if/else, or tables and a short loop; auto: if/else up to 2,000 nodes",
    choices=("auto", "if_else", "table"),
)
_C_SETTINGS = (
    Setting(
        "form",
        "auto",
        "nested if/else, tables and a short loop, or both; auto: if/else up to 2,000 nodes, "
        "hybrid for fewer than 8 trees",
        choices=("auto", "if_else", "hybrid", "table"),
    ),
    Setting(
        "input",
        "double",
        "type of the cells of a row; float only for models whose input type is float32",
        choices=("double", "float"),
    ),
    Setting(
        "arithmetic",
        "float",
        "integer: no floating point; rows and predictions are integers",
        choices=("float", "integer"),
    ),
)


def _export_onnx(model: Model, name: str, **settings: Any) -> Mapping[str, bytes]:
    from treekit.export.onnx import export_onnx

    return export_onnx(model, name, **settings)


def _export_triton(model: Model, name: str, **settings: Any) -> Mapping[str, bytes]:
    from treekit.export.triton import export_triton

    return export_triton(model, name, **settings)


def _export_c(model: Model, name: str, **settings: Any) -> Mapping[str, bytes]:
    from treekit.export.c import export_c

    return export_c(model, name, **settings)


def _export_python(model: Model, name: str, **settings: Any) -> Mapping[str, bytes]:
    from treekit.export.python import export_python

    return export_python(model, name, **settings)


def _export_rules(model: Model, name: str, **settings: Any) -> Mapping[str, bytes]:
    from treekit.rules import export_rules

    return export_rules(model, name, **settings)


def _export_sql(model: Model, name: str, **settings: Any) -> Mapping[str, bytes]:
    try:
        import sqlglot  # noqa: F401
    except ImportError:
        raise ExportError(
            "the target 'sql' needs sqlglot, which is not installed: pip install 'treekit-ml[sql]'"
        ) from None
    from treekit.export.sql.exporter import export_sql

    return export_sql(model, name, **settings)


@hookimpl
def treekit_exporters() -> list[Exporter]:
    """Return the built-in exporters."""
    own = [
        Exporter("onnx", ".onnx", _export_onnx, ONNX_SETTINGS, "one graph for every ONNX runtime"),
        Exporter(
            "triton",
            TRITON_SUFFIX,
            _export_triton,
            TRITON_SETTINGS,
            "a model folder for NVIDIA Triton",
        ),
        Exporter(
            "c",
            ".c",
            _export_c,
            (*_C_SETTINGS, TEMPLATES_SETTING),
            "C99 source and header, no libraries",
        ),
        Exporter(
            "python",
            ".py",
            _export_python,
            (_FORM_SETTING, TEMPLATES_SETTING),
            "one file, standard library only",
        ),
        Exporter(
            "sql", ".sql", _export_sql, SQL_SETTINGS, "a query for SQLite, DuckDB or PostgreSQL"
        ),
        Exporter("rules", ".rules.txt", _export_rules, RULES_SETTINGS, "human-readable rules"),
    ]
    return own + load_known_languages({exporter.name for exporter in own}, registry.leave_out)
