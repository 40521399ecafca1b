"""Target "python": one file for trees of any depth that needs only the standard library."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.features import LevelIndex
from treekit.data.schema import Label, Output, Schema
from treekit.errors import ExportError
from treekit.export.fractional import build_fractional_table, choose_fractional_form
from treekit.export.literals import (
    Code,
    float_literal,
    identifiers,
    render_template,
    string_literal,
    string_literals,
)
from treekit.export.lowering import (
    LeafTable,
    LoweredTree,
    choose_form,
    leaf_table,
    lower,
    node_table,
    write_source_functions,
)
from treekit.model import links
from treekit.model.model import Model
from treekit.model.tree import DerivedColumns, make_derived_columns

# ---------------------------------------------------------------- python

_TEMPLATE_IMPORTS = {
    "decode": ("array", "base64"),
    "float32": ("struct",),
    "least_cost": ("operator",),
}
_MAX_NESTING = (
    16  # CPython allows fewer than 100 levels of indentation; readable code has far fewer
)


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
        Folder whose ``python/*.jinja`` replace the shipped ones; "" = none.

    Raises
    ------
    ExportError
        If the model exceeds 32-bit tables.
    """
    derived = make_derived_columns(model)
    values = _compute_common_values(model, derived)
    if model.missing == "fractional":
        chosen, reason = choose_fractional_form(form)
        values |= {"form_template": "divided"} | encode_leaf_tables(model)
        values |= encode_fractional_tables(model, derived)
    else:
        trees = lower(model, derived)
        chosen, reason = choose_form(form, sum(tree.n_nodes for tree in trees))
        if chosen == "if_else":
            values |= _compute_if_else_values(model, trees, derived)
        else:
            values |= {"form_template": "table"} | encode_leaf_tables(model)
            values |= encode_node_tables(model, trees, derived)
    tree_parts, answer_parts = _list_tree_parts(model, values), _list_answer_parts(model, values)
    values |= {"form": Code(chosen), "reason": Code(reason)}
    values |= {"tree_parts": tree_parts, "answer_parts": answer_parts}
    values |= {"imports": _list_imports(tree_parts + answer_parts)}
    return {f"{name}.py": render_template("python/module.jinja", templates, **values)}


def _list_tree_parts(model: Model, values: dict[str, Any]) -> list[str]:
    """List the parts of ``trees.jinja`` that the module needs, in order."""
    form, asks_derived = values["form_template"], values["n_derived"] > 0
    names = ["decode"] * (form != "if_else" or asks_derived)
    names += ["float32"] * (asks_derived and model.schema.dtype == "float32")
    names += ["derived"] * asks_derived
    names += ["divided_cell"] * (asks_derived and form == "divided")
    return names + [values[key] for key in ("units_template", "form_template") if key in values]


def _list_answer_parts(model: Model, values: dict[str, Any]) -> list[str]:
    """List the parts of ``answers.jinja`` that the module needs, in order."""
    names = ["exp", f"link_{model.link}"] * (model.link != "identity")
    if model.schema.task == "classification":
        names.append("most_votes" if model.label_costs is None else "least_cost")
        names.append("linked_shares" if model.margins else "shares")
    return [*names, values["answer"]]


def _list_imports(parts: list[str]) -> list[Code]:
    used = {"argparse", "csv", "math", "numbers", "os", "sys"}
    used.update(*(_TEMPLATE_IMPORTS.get(part, ()) for part in parts))
    return [Code(module) for module in sorted(used)]


def _compute_common_values(model: Model, derived: DerivedColumns) -> dict[str, Any]:
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
        "columns": [_describe_column(schema, number) for number in range(schema.n_features)],
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
        "targets": [_describe_target(output) for output in schema.outputs],
        "answer": ("label" if schema.task == "classification" else "number") + several,
        "label_type": Code(type(schema.classes[0]).__name__ if schema.classes else "float"),
        "trees": model.n_trees,
        "outputs": schema.n_values,
        "costs": [] if model.label_costs is None else _format_rows(model.label_costs.tolist()),
        "n_derived": derived.n_columns,
        "derived": encode_derived_tables(derived),
        "term_value": Code(
            "_float32(x[_TERM_COLUMN[term]])" if single else "x[_TERM_COLUMN[term]]"
        ),
        "cell": Code(
            "_cell(cells, question >> 2)" if derived.n_columns else "cells[question >> 2]"
        ),
    } | _compute_number_values(model)


def _describe_column(schema: Schema, number: int) -> dict[str, Any]:
    column = schema.columns[number]
    return {
        "name": string_literal(column.name, "python"),
        "kind": string_literal(column.kind, "python"),
        "nominal": int(column.kind == "nominal"),
        "levels": string_literals(column.levels, "python"),
    }


def _describe_target(output: Output) -> dict[str, Any]:
    return {
        "name": string_literal(output.name, "python"),
        "classes": [_format_label(label) for label in output.classes],
    }


def _format_label(label: Label) -> Code:
    if isinstance(label, str):
        return string_literal(label, "python")
    return float_literal(label) if isinstance(label, float) else Code(repr(label))


def _format_rows(table: list[list[int]]) -> list[Code]:
    return [Code(", ".join(map(str, row))) for row in table]


def _compute_number_values(model: Model) -> dict[str, Any]:
    """Compute the values that turn sums into predictions, and the constants of link functions."""
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
        "coefficients": [float_literal(number) for number in links.EXP_COEFFICIENTS],
        "lowest": float_literal(-links.EXP_LIMIT),
        "largest": float_literal(links.EXP_LIMIT),
        "log2_e": float_literal(links.LOG2_E),
        "ln2_high": float_literal(links.LN2_HIGH),
        "ln2_low": float_literal(links.LN2_LOW),
    }


def _compute_if_else_values(
    model: Model, trees: tuple[LoweredTree, ...], derived: DerivedColumns
) -> dict[str, Any]:
    columns = identifiers(model.schema.names, "in_")
    leaves = make_unmerged_leaf_table(model)
    return {
        "form_template": "if_else",
        "inputs": list(enumerate(columns)),
        "functions": write_source_functions(
            trees, model.schema, leaves, columns, derived, _MAX_NESTING
        ),
        "leaves": _list_leaf_values(model),
    }


def _list_leaf_values(model: Model) -> list[tuple[int, Code]]:
    """List the node of each leaf in its tree, and its value as pairs of position and units."""
    nodes = [int(node) for tree in model.trees for node in tree.leaves]
    start, column, units = make_unmerged_leaf_table(model).sparse()
    pairs = list(map("(%d, %d),".__mod__, zip(column.tolist(), units.tolist(), strict=True)))
    values = [Code(" ".join(pairs[a:b])) for a, b in pairwise(start.tolist())]
    return list(zip(nodes, values, strict=True))


# ---------------------------------------------------------------- python tables
# Source of a million numerals takes the compiler minutes and gigabytes; one
# base64 string costs it nothing (a million nodes import in 0.8 s, measured).

_MAX_ENTRIES = 2**31 - 1
_MISSING_NO, _MISSING_YES, _IN, _MISSING = range(4)


def encode_base64(numbers: npt.NDArray[Any], dtype: str) -> Code:
    """Encode an array as lines of base64, little-endian.

    Parameters
    ----------
    numbers : (n,) array
    dtype : {"f8", "i4", "i8"}
    """
    if dtype == "i4" and len(numbers) and int(numbers.max()) > _MAX_ENTRIES:
        raise ExportError(
            f"the model needs more than {_MAX_ENTRIES} table entries: train fewer trees"
        )
    content = np.ascontiguousarray(numbers, dtype=f"<{dtype}").tobytes()
    return Code(base64.encodebytes(content).decode("ascii").rstrip("\n"))


def encode_leaf_tables(model: Model) -> dict[str, Any]:
    """Encode the leaf values, by row of `Model.units`, and the nodes of the leaves.

    With several classes or outputs, distinct vectors are written once and sparse: few
    entries are nonzero, and most leaves of a fully grown forest share a few vectors.
    """
    nodes = np.concatenate([tree.leaves for tree in model.trees])
    if model.schema.n_values == 1:
        return {
            "units_template": "units_one",
            "leaf_node": encode_base64(nodes, "i4"),
            "leaf_units": encode_base64(model.units[:, 0], "i8"),
        }
    leaves = leaf_table(model.units)
    start, column, units = leaves.sparse()
    return {
        "units_template": "units_many",
        "leaf_node": encode_base64(nodes, "i4"),
        "leaf_vector": encode_base64(leaves.row, "i4"),
        "units_start": encode_base64(start, "i4"),
        "units_column": encode_base64(column, "i4"),
        "units": encode_base64(units, "i8"),
    }


def make_unmerged_leaf_table(model: Model) -> LeafTable:
    """Return a leaf table without merging: the number of a leaf is its row in `Model.units`."""
    return LeafTable(np.arange(model.n_leaves), model.units)


def encode_node_tables(
    model: Model, trees: tuple[LoweredTree, ...], derived: DerivedColumns
) -> dict[str, Any]:
    """Encode the inner nodes for a loop with few cases; see ``python/table.jinja``.

    Missing values get extra cells after those of the row: -inf, which
    is below any threshold, if the missing branch is yes, and 0 or 1 if a
    node tests for missing values.  So all but sets and derived columns need one comparison.
    """
    table = node_table(trees, make_unmerged_leaf_table(model), model.schema)
    feature, kind = table.question >> 2, table.question & 3
    n = model.schema.n_features
    is_set, is_derived = kind == _IN, feature >= n
    low = (kind == _MISSING_YES) & ~is_derived
    gone = kind == _MISSING
    low_columns, low_rank = np.unique(feature[low], return_inverse=True)
    gone_columns, gone_rank = np.unique(feature[gone], return_inverse=True)
    asks, value = feature.copy(), table.value.copy()
    asks[low] = n + low_rank
    asks[gone] = n + len(low_columns) + gone_rank
    set_number = table.value[is_set].astype(np.int64)
    asks[is_set] = -1 - set_number
    asks[is_derived] = -1 - len(set_number) - (feature[is_derived] - n)
    value[is_set] = 0.0
    # Result of a derived column whose test is unknown; 0 takes the yes branch.
    value[is_derived] = kind[is_derived] == _MISSING_NO
    return {
        "low": encode_base64(low_columns, "i4"),
        "gone": encode_base64(gone_columns, "i4"),
        "nodes": {
            "value": encode_base64(value, "f8"),
            "asks": encode_base64(asks, "i4"),
            "yes": encode_base64(table.yes, "i4"),
            "no": encode_base64(table.no, "i4"),
        },
        "roots": encode_base64(table.root, "i4"),
        "set_column": encode_base64(feature[is_set], "i4"),
        "set_start": encode_base64(table.set_start, "i4"),
        "set_codes": encode_base64(table.set_codes, "i4"),
        "and_derived": Code(", or does a derived column say 1" if derived.n_columns else ""),
    }


def encode_fractional_tables(model: Model, derived: DerivedColumns) -> dict[str, Any]:
    """Encode the nodes of a model with fractional instances."""
    table = build_fractional_table(model, make_unmerged_leaf_table(model), derived)
    names = ("question", "child", "low", "high")
    return {
        "nodes": {name: encode_base64(getattr(table, name), "i4") for name in names}
        | {"value": encode_base64(table.value, "f8")},
        "roots": encode_base64(table.root, "i4"),
        "branches": encode_base64(table.level_branch, "i4"),
    }


def encode_derived_tables(derived: DerivedColumns) -> dict[str, Code]:
    """Encode the derived columns; see `treekit.model.tree.DerivedColumns`."""
    by_levels = derived.level_feature >= 0
    arrays: dict[str, tuple[npt.NDArray[Any], str]] = {
        "test_start": (derived.test_start, "i4"),
        "threshold": (np.where(by_levels, 0.0, derived.threshold), "f8"),
        "below": (derived.below, "i4"),
        "above": (derived.above, "i4"),
        "lost": (derived.lost, "i4"),
        "term_start": (derived.term_start, "i4"),
        "term_feature": (derived.term_feature, "i4"),
        "term_weight": (derived.term_weight, "f8"),
        "level_feature": (derived.level_feature, "i4"),
        "level_start": (derived.level_start, "i4"),
        "level_branch": (derived.level_branch, "i4"),
    }
    return {name: encode_base64(numbers, dtype) for name, (numbers, dtype) in arrays.items()}
