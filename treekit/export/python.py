"""The target "python": one file that needs the standard library only, for any depth."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from treekit._version import __version__
from treekit.data.features import LevelIndex
from treekit.data.schema import Label, Output, Schema
from treekit.export.divided import divided_form
from treekit.export.literals import (
    Code,
    float_literal,
    identifiers,
    string_literal,
    string_literals,
)
from treekit.export.lower import LoweredTree, lower
from treekit.export.nesting import choose_form
from treekit.export.python_tables import (
    derived_tables,
    divided_tables,
    each_leaf,
    leaf_tables,
    node_tables,
)
from treekit.export.render import render
from treekit.export.source import source_functions
from treekit.model import links
from treekit.model.derived_features import DerivedColumns, derive
from treekit.model.model import Model

__all__ = ["export_python"]

_IMPORTED = {
    "decode": ("array", "base64"),
    "float32": ("struct",),
    "least_cost": ("operator",),
}
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
    derived = derive(model)
    values = _common_values(model, derived)
    if model.missing == "fractional":
        chosen, reason = divided_form(form)
        values |= {"form_template": "divided"} | leaf_tables(model)
        values |= divided_tables(model, derived)
    else:
        trees = lower(model, derived)
        chosen, reason = choose_form(form, sum(tree.n_nodes for tree in trees))
        if chosen == "if_else":
            values |= _if_else_values(model, trees, derived)
        else:
            values |= {"form_template": "table"} | leaf_tables(model)
            values |= node_tables(model, trees, derived)
    parts = _parts(model, values)
    values |= {"form": Code(chosen), "reason": Code(reason)}
    values |= {"parts": [f"python/{part}.jinja" for part in parts], "imports": _imports(parts)}
    return {f"{name}.py": render("python/module.jinja", templates, **values)}


def _parts(model: Model, values: dict[str, Any]) -> list[str]:
    """Templates of the module's body, in order."""
    schema, form = model.schema, values["form_template"]
    asks_derived = values["n_derived"] > 0
    names = ["decode"] * (form != "if_else" or asks_derived)
    names += ["float32"] * (asks_derived and schema.dtype == "float32")
    names += ["derived"] * asks_derived
    names += ["divided_cell"] * (asks_derived and form == "divided")
    names += [values[key] for key in ("units_template", "form_template") if key in values]
    names += ["exp", f"link_{model.link}"] * (model.link != "identity")
    if schema.task == "classification":
        names.append("most_votes" if model.label_costs is None else "least_cost")
        names.append("linked_shares" if model.margins else "shares")
    return [*names, values["answer"]]


def _imports(parts: list[str]) -> list[Code]:
    used = {"argparse", "csv", "math", "numbers", "os", "sys"}
    used.update(*(_IMPORTED.get(part, ()) for part in parts))
    return [Code(module) for module in sorted(used)]


def _common_values(model: Model, derived: DerivedColumns) -> dict[str, Any]:
    schema = model.schema
    single = schema.dtype == "float32"
    several = "s" if schema.more else ""
    indexes = [LevelIndex(column.levels, schema.missing_marks) for column in schema.columns]
    return {
        "pad": Code("    "),
        "version": string_literal(__version__, "python"),
        "task": string_literal(schema.task, "python"),
        "dtype": string_literal(schema.dtype, "python"),
        "missing": string_literal(model.missing, "python"),
        "unknown": string_literal(model.unknown, "python"),
        "marks": string_literals(schema.missing_marks, "python"),
        "columns": [_column(schema, number) for number in range(schema.n_features)],
        "has_values": int(any(index.has_values for index in indexes)),
        "aliases": [
            {
                "name": string_literal(column.name, "python"),
                "text": string_literal(text, "python"),
                "code": code,
            }
            for column, index in zip(schema.columns, indexes, strict=True)
            for text, code in index.aliases.items()
        ],
        "targets": [_target(output) for output in schema.outputs],
        "answer": ("label" if schema.task == "classification" else "number") + several,
        "label_type": Code(type(schema.classes[0]).__name__ if schema.classes else "float"),
        "trees": model.n_trees,
        "outputs": schema.n_values,
        "costs": [] if model.label_costs is None else _rows(model.label_costs.tolist()),
        "n_derived": derived.n_columns,
        "derived": derived_tables(derived),
        "term_value": Code(
            "_float32(x[_TERM_COLUMN[term]])" if single else "x[_TERM_COLUMN[term]]"
        ),
        "cell": Code(
            "_cell(cells, question >> 2)" if derived.n_columns else "cells[question >> 2]"
        ),
    } | _number_values(model)


def _column(schema: Schema, number: int) -> dict[str, Any]:
    column = schema.columns[number]
    return {
        "name": string_literal(column.name, "python"),
        "kind": string_literal(column.kind, "python"),
        "nominal": int(column.kind == "nominal"),
        "levels": string_literals(column.levels, "python"),
    }


def _target(output: Output) -> dict[str, Any]:
    return {
        "name": string_literal(output.name, "python"),
        "classes": [_label(label) for label in output.classes],
    }


def _label(label: Label) -> Code:
    if isinstance(label, str):
        return string_literal(label, "python")
    return float_literal(label) if isinstance(label, float) else Code(repr(label))


def _rows(table: list[list[int]]) -> list[Code]:
    return [Code(", ".join(map(str, row))) for row in table]


def _number_values(model: Model) -> dict[str, Any]:
    """How sums become numbers or probabilities, and the constants of links."""
    scale = float_literal(np.ldexp(1.0, model.exponent))
    linked = model.link != "identity"
    one, each = (f"{steps} / {model.divisor} * {scale}" for steps in ("_sums(row)[0]", "steps"))
    several = f"[{each} for steps in _sums(row)]"
    return {
        "unit_total": 0 if model.margins else model.unit_total,
        "divisor": model.divisor,
        "scale": scale,
        "number_of_row": Code(f"_linked([{one}])[0]" if linked else one),
        "numbers_of_row": Code(f"_linked({several})" if linked else several),
        "coefficients": [float_literal(number) for number in links.COEFFICIENTS],
        "lowest": float_literal(-links.LIMIT),
        "largest": float_literal(links.LIMIT),
        "log2_e": float_literal(links.LOG2_E),
        "ln2_high": float_literal(links.LN2_HIGH),
        "ln2_low": float_literal(links.LN2_LOW),
    }


def _if_else_values(
    model: Model, trees: tuple[LoweredTree, ...], derived: DerivedColumns
) -> dict[str, Any]:
    columns = identifiers(model.schema.names, "in_")
    leaves = each_leaf(model)
    return {
        "form_template": "if_else",
        "inputs": list(enumerate(columns)),
        "functions": source_functions(trees, model.schema, leaves, columns, derived, _DEEPEST),
        "leaves": _leaves(model),
    }


def _leaves(model: Model) -> list[tuple[int, Code]]:
    """Node of each leaf in its tree, and what it says: pairs of position and units."""
    nodes = [int(node) for tree in model.trees for node in tree.leaves]
    start, column, units = each_leaf(model).sparse()
    pairs = list(map("(%d, %d),".__mod__, zip(column.tolist(), units.tolist(), strict=True)))
    said = [Code(" ".join(pairs[a:b])) for a, b in pairwise(start.tolist())]
    return list(zip(nodes, said, strict=True))
