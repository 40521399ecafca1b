"""The target "python": one file that needs the standard library only, for any depth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.export.derived import python_tests
from treekit.export.divided import divided_form, divided_table
from treekit.export.literals import (
    Code,
    float_literal,
    identifiers,
    lines,
    string_literal,
    string_literals,
)
from treekit.export.lower import LoweredTree, lower
from treekit.export.nesting import choose_form
from treekit.export.render import render
from treekit.export.source import source_functions
from treekit.export.table import LeafTable, leaf_table, node_table
from treekit.model.derived import DerivedColumns, derive
from treekit.model.ensemble import Model

__all__ = ["export_python"]

_IMPORTED = {"table": "array", "divided": "array", "float32": "struct"}
_DEEPEST = 16  # CPython refuses 100 levels of indentation, people far fewer


def export_python(
    model: Model, name: str, *, form: str = "auto", templates: str = ""
) -> dict[str, bytes]:
    """Write ``name.py``, in ASCII.

    Parameters
    ----------
    model : Model
    name : str
        Stem of the file.
    form : {"auto", "if_else", "table"}
        Nested if/else, or tables and a short loop.
    templates : str
        A folder whose ``python/*.jinja`` replace the shipped ones; "" = none.

    Raises
    ------
    ExportError
        If the model outgrows 32-bit tables.
    """
    leaves, derived = leaf_table(model.units), derive(model)
    values = _common_values(model, leaves, derived)
    if model.missing == "fractional":
        chosen, reason = divided_form(form)
        values |= _divided_values(model, leaves, derived)
    else:
        trees = lower(model, derived)
        chosen, reason = choose_form(form, sum(tree.n_nodes for tree in trees))
        values |= (
            _if_else_values(model.schema, trees, leaves, derived)
            if chosen == "if_else"
            else _table_values(model.schema, trees, leaves)
        )
    parts = _parts(model, values)
    values |= {"form": Code(chosen), "reason": Code(reason)}
    values |= {"parts": [f"python/{part}.jinja" for part in parts], "imports": _imports(parts)}
    return {f"{name}.py": render("python/module.jinja", templates, **values)}


def _parts(model: Model, values: dict[str, Any]) -> list[str]:
    """Templates of the module's body, in order."""
    schema, form = model.schema, values["form_template"]
    several, divides = bool(schema.more), model.missing == "fractional"
    asks_derived = values["n_derived"] > 0
    names = ["float32"] * (asks_derived and schema.dtype == "float32")
    names += ["derived"] * asks_derived
    names += ["cell"] * (asks_derived and form != "if_else")
    names += [form, "units", "divided_sums" if divides else "sums"]
    if schema.task == "classification":
        names.append("most_votes" if model.label_costs is None else "least_cost")
        names.append("labels" if several else "one_label")
    else:
        names.append("numbers" if several else "number")
    return names


def _imports(parts: list[str]) -> list[Code]:
    used = {"csv", "math", "numbers", "sys"}
    used |= {_IMPORTED[part] for part in parts if part in _IMPORTED}
    return [Code(module) for module in sorted(used)]


def _common_values(model: Model, leaves: LeafTable, derived: DerivedColumns) -> dict[str, Any]:
    schema = model.schema
    cell = "cells[question >> 2]" if not derived.n_columns else "_cell(cells, question >> 2)"
    single = schema.dtype == "float32"
    return {
        "trees": model.n_trees,
        "outputs": schema.n_values,
        "features": string_literals(schema.names, "python"),
        "levels": [
            (string_literal(column.name, "python"), string_literals(column.levels, "python"))
            for column in schema.columns
            if column.kind == "nominal"
        ],
        "marks": string_literals(schema.missing_marks, "python"),
        "names_template": f"python/{'targets' if schema.more else 'one_target'}.jinja",
        "target_names": string_literals((output.name for output in schema.outputs), "python"),
        "classes": [_label(label) for label in schema.classes] if not schema.more else [],
        "blocks": [[_label(label) for label in output.classes] for output in schema.outputs],
        "refuses_missing": _flag(model.missing == "error"),
        "refuses_unseen": _flag(model.unknown == "error"),
        "leaf_units": _units(leaves),
        "unit_total": model.unit_total,
        "rows_total": model.n_trees * model.mass,
        "scale": float_literal(np.ldexp(1.0, model.exponent)),
        "costs": Code() if model.label_costs is None else _rows(model.label_costs),
        "n_derived": derived.n_columns,
        "derived": python_tests(derived),
        "rounded": Code("_float32(x[column])" if single else "x[column]"),
        "cell": Code(cell),
    }


def _label(label: bool | int | float | str) -> Code:
    return string_literal(label, "python") if isinstance(label, str) else Code(repr(label))


def _flag(value: bool) -> Code:
    return Code(repr(value))


def _rows(table: npt.NDArray[np.int64]) -> Code:
    return Code("\n".join(" ".join(map(str, row)) for row in table.tolist()))


def _units(leaves: LeafTable) -> Code:
    """One line a leaf vector: position and units, position and units, ..."""
    start, column, units = leaves.sparse()
    texts = list(map("%d %d".__mod__, zip(column.tolist(), units.tolist(), strict=True)))
    ends = start.tolist()
    return Code("\n".join(" ".join(texts[a:b]) for a, b in pairwise(ends)))


def _if_else_values(
    schema: Schema, trees: tuple[LoweredTree, ...], leaves: LeafTable, derived: DerivedColumns
) -> dict[str, Any]:
    columns: Sequence[Code] = identifiers(schema.names, "in_")
    return {
        "form_template": "if_else",
        "columns": list(enumerate(columns)),
        "functions": source_functions(trees, schema, leaves, columns, derived, _DEEPEST),
    }


def _table_values(
    schema: Schema, trees: tuple[LoweredTree, ...], leaves: LeafTable
) -> dict[str, Any]:
    table = node_table(trees, leaves, schema)
    codes = list(map(repr, table.set_codes.tolist()))
    ends = table.set_start.tolist()
    sets = [" ".join(codes[a:b]) for a, b in pairwise(ends)]
    return {
        "form_template": "table",
        "nodes": {
            name: lines(getattr(table, name), " ") for name in ("value", "question", "yes", "no")
        },
        "roots": lines(table.root, " "),
        "sets": Code("\n".join(sets)),
    }


def _divided_values(model: Model, leaves: LeafTable, derived: DerivedColumns) -> dict[str, Any]:
    table = divided_table(model, leaves, derived)
    names = ("value", "question", "child", "low", "high")
    return {
        "form_template": "divided",
        "nodes": {name: lines(getattr(table, name), " ") for name in names},
        "roots": lines(table.root, " "),
        "branches": lines(table.level_branch, " "),
    }
