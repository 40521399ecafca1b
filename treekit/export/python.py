"""The target "python": one file that needs the standard library only, for any depth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from treekit.data.schema import Schema
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
from treekit.model.ensemble import Model

__all__ = ["export_python"]

_IMPORTS = [Code("csv"), Code("math"), Code("numbers"), Code("sys")]
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
    trees, leaves = lower(model), leaf_table(model.units)
    chosen, reason = choose_form(form, sum(tree.n_nodes for tree in trees))
    values = _common_values(model, leaves)
    values |= {"form": Code(chosen), "reason": Code(reason)}
    values |= (
        _if_else_values(model.schema, trees, leaves)
        if chosen == "if_else"
        else _table_values(model.schema, trees, leaves)
    )
    return {f"{name}.py": render("python/module.jinja", templates, **values)}


def _common_values(model: Model, leaves: LeafTable) -> dict[str, Any]:
    schema = model.schema
    answer = "classes" if schema.task == "classification" else "number"
    return {
        "trees": model.n_trees,
        "features": string_literals(schema.names, "python"),
        "levels": [
            (string_literal(column.name, "python"), string_literals(column.levels, "python"))
            for column in schema.columns
            if column.kind == "nominal"
        ],
        "marks": string_literals(schema.missing_marks, "python"),
        "classes": [_label(label) for label in schema.classes],
        "refuses_missing": _flag(model.missing == "error"),
        "refuses_unseen": _flag(model.unknown == "error"),
        "answer_template": f"python/{answer}.jinja",
        "leaf_votes": _votes(leaves),
        "leaf_numbers": lines(leaves.vectors[:, 0], " "),
        "unit_total": model.unit_total,
        "scale": float_literal(np.ldexp(1.0, model.exponent)),
    }


def _label(label: bool | int | float | str) -> Code:
    return string_literal(label, "python") if isinstance(label, str) else Code(repr(label))


def _flag(value: bool) -> Code:
    return Code(repr(value))


def _votes(leaves: LeafTable) -> Code:
    """One line a leaf vector: class and votes, class and votes, ..."""
    start, column, units = leaves.sparse()
    texts = list(map("%d %d".__mod__, zip(column.tolist(), units.tolist(), strict=True)))
    ends = start.tolist()
    return Code("\n".join(" ".join(texts[a:b]) for a, b in pairwise(ends)))


def _if_else_values(
    schema: Schema, trees: tuple[LoweredTree, ...], leaves: LeafTable
) -> dict[str, Any]:
    columns: Sequence[Code] = identifiers(schema.names, "in_")
    return {
        "imports": _IMPORTS,
        "form_template": "python/if_else.jinja",
        "columns": list(enumerate(columns)),
        "functions": source_functions(trees, schema, leaves, columns, _DEEPEST),
    }


def _table_values(
    schema: Schema, trees: tuple[LoweredTree, ...], leaves: LeafTable
) -> dict[str, Any]:
    table = node_table(trees, leaves, schema.dtype)
    codes = list(map(repr, table.set_codes.tolist()))
    ends = table.set_start.tolist()
    sets = [" ".join(codes[a:b]) for a, b in pairwise(ends)]
    return {
        "imports": [Code("array"), *_IMPORTS],
        "form_template": "python/table.jinja",
        "nodes": {
            "value": lines(table.value, " "),
            "question": lines(table.question, " "),
            "yes": lines(table.yes, " "),
            "no": lines(table.no, " "),
        },
        "roots": lines(table.root, " "),
        "sets": Code("\n".join(sets)),
    }
