"""Built-in exporters, registered through the same hook as those of plugins.

The libraries of an exporter are imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from treekit import registry
from treekit.contracts import Exporter, Setting
from treekit.errors import ExportError
from treekit.export.languages import API_SETTING, TEMPLATES_SETTING, load_known_languages
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
    API_SETTING,
)


def _import_later(module: str, function: str, library: str = "") -> Callable[..., Any]:
    """Return an export function that imports its module, and the library it needs, when called."""

    def export(model: Model, name: str, **settings: Any) -> Mapping[str, bytes]:
        if library and find_spec(library) is None:
            raise ExportError(
                f"the target {function.removeprefix('export_')!r} needs {library}, which is not "
                f"installed: pip install 'treekit-ml[{function.removeprefix('export_')}]'"
            )
        made: Mapping[str, bytes] = getattr(import_module(module), function)(
            model, name, **settings
        )
        return made

    return export


@hookimpl
def treekit_exporters() -> list[Exporter]:
    """Return the built-in exporters."""
    onnx = _import_later("treekit.export.onnx", "export_onnx")
    triton = _import_later("treekit.export.triton", "export_triton")
    c = _import_later("treekit.export.c", "export_c")
    sql = _import_later("treekit.export.sql.exporter", "export_sql", "sqlglot")
    rules = _import_later("treekit.rules", "export_rules")
    c_settings = (*_C_SETTINGS, TEMPLATES_SETTING)
    own = [
        Exporter("onnx", ".onnx", onnx, ONNX_SETTINGS, "one graph for every ONNX runtime"),
        Exporter(
            *("triton", TRITON_SUFFIX, triton, TRITON_SETTINGS, "a model folder for NVIDIA Triton")
        ),
        Exporter("c", ".c", c, c_settings, "C99 source and header, no libraries"),
        Exporter("sql", ".sql", sql, SQL_SETTINGS, "a query for SQLite, DuckDB or PostgreSQL"),
        Exporter("rules", ".rules.txt", rules, RULES_SETTINGS, "human-readable rules"),
    ]
    return own + load_known_languages({exporter.name for exporter in own}, registry.leave_out)
