"""Target "c": C99 source and header; no allocation, no library, reentrant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.c.answers import (
    compute_prediction_values,
    make_derived_source,
    make_leaf_source,
    refuse_sums,
)
from treekit.export.c.fast_layouts import build_complete_trees, make_heap_layout, make_hybrid_layout
from treekit.export.c.layouts import (
    INTERLEAVED_TREES,
    make_fractional_layout,
    make_if_else_layout,
    make_packed_layout,
)
from treekit.export.c.tables import (
    CLayout,
    CTypes,
    choose_c_types,
    compute_size_values,
    make_c_table,
)
from treekit.export.literals import Code, format_lines, identifier, string_literals
from treekit.export.lowering import LeafTable, leaf_table
from treekit.export.nested_tests import FORM_REASON, choose_form
from treekit.export.render import list_template_folders, render_from
from treekit.model.derived_features import DerivedColumns, make_derived_columns
from treekit.model.model import Model

__all__ = [
    "choose_c_layout",
    "export_c",
    "make_c_prefix",
    "render_c_files",
]


# ---------------------------------------------------------------- c

_MAX_CLASSES = 100_000  # the sums of the classes are on the stack
_HELPER_TEMPLATES = (
    *("is_level", "has_code", "order", "number", "is_missing", "float32", "derived"),
    *("refuses", "accepts", "most_votes", "least_cost", "exp", "sigmoid", "softmax"),
)
"""Templates of helper functions, in source order."""
_CALLED_HELPERS = {
    "refuses": {"is_level"},
    "is_missing": {"is_level", "number"},
    "number": {"order"},
}
_KEY_HELPERS = ("is_level", "has_code")
"""Helpers with a different template for integer cells."""


def make_c_prefix(name: str) -> str:
    """Return the prefix of all names in the source of a file called `name`."""
    return str(identifier(name, "model"))


def export_c(
    model: Model,
    name: str,
    *,
    form: str = "auto",
    input: str = "double",  # noqa: A002 - the name of the setting
    arithmetic: str = "float",
    templates: str = "",
) -> dict[str, bytes]:
    """Write ``name.c`` and ``name.h``.

    Parameters
    ----------
    model : Model
    name : str
        Stem of the files; `make_c_prefix` derives the prefix of all global names from it.
    form : {"auto", "if_else", "hybrid", "table"}
        Nested if/else, or tables and a short loop; "hybrid": nested tests for the nodes
        that most training rows visit, tables for the others.  See `choose_c_layout` for "auto".
    input : {"double", "float"}
        Type of the cells of a row.
    arithmetic : {"float", "integer"}
        "integer": no floating point at all; rows are order-preserving integers, which a
        function of the source computes from IEEE 754 bits, and predictions are integer sums.
    templates : str
        Folder whose ``c/*.jinja`` replace the shipped ones; "" = none.

    Raises
    ------
    ExportError
        If a name cannot be a string in C, the model exceeds 32-bit tables, or it does not
        support the requested input type or arithmetic.
    """
    folders = list_template_folders(templates)
    return render_c_files(model, name, folders, form=form, input=input, arithmetic=arithmetic)


def render_c_files(
    model: Model,
    name: str,
    folders: Sequence[Path],
    *,
    form: str = "auto",
    input: str = "double",  # noqa: A002 - the name of the setting
    arithmetic: str = "float",
) -> dict[str, bytes]:
    """Write ``name.c`` and ``name.h`` with the templates of `folders` only; see `export_c`."""
    _check_file_name(name)
    if model.schema.n_values > _MAX_CLASSES:
        raise ExportError(
            f"the target 'c' supports up to {_MAX_CLASSES} classes, got {model.schema.n_values}"
        )
    prefix = identifier(name, "model")
    types = choose_c_types(model, prefix, input, arithmetic)
    leaves, derived = leaf_table(model.units), make_derived_columns(model)
    if types.integers_only:
        refuse_sums(derived)
    made = choose_c_layout(model, leaves, derived, form, types)
    leaf_template, values, leaf_tables = make_leaf_source(model, leaves)
    answers, answer_tables, uses = compute_prediction_values(model, types)
    tables = [make_c_table("levels", _count_levels(model.schema)), *made.tables]
    tables += leaf_tables + answer_tables
    uses |= made.helpers | {"refuses" if "error" in (model.missing, model.unknown) else "accepts"}
    values |= (
        types.make_values() | _compute_name_values(model, name, prefix) | answers | made.values
    )
    if "derived" in uses:
        derived_values, derived_tables, helpers = make_derived_source(derived, model.schema, types)
        values |= derived_values
        tables += derived_tables
        uses |= helpers
    values |= _compute_part_values(
        made, answers, leaf_template, _add_called_helpers(uses, types), types
    )
    values |= compute_size_values(model, made, tables, types)
    return {
        f"{name}.c": render_from(folders, "c/source.jinja", **values),
        f"{name}.h": render_from(folders, "c/header.jinja", **values),
    }


def _check_file_name(name: str) -> None:
    if not name.isprintable() or any(character in name for character in '"\\?/'):
        raise ExportError(
            f"{name!r} cannot be used in an #include line: choose a file name without quotes, "
            "slashes, question marks and control characters"
        )


def _compute_name_values(model: Model, name: str, prefix: Code) -> dict[str, Any]:
    """Compute the template values of sizes, names and vocabularies."""
    schema = model.schema
    texts, codes = _sort_level_texts(schema)
    counts = schema.n_levels
    labels = [str(label) for output in schema.outputs for label in output.classes]
    targets = [output.name for output in schema.outputs] if schema.more else []
    words = [*schema.names, *labels, *targets, *texts]
    return {
        "p": prefix,
        "P": Code(prefix.upper()),
        "file_name": Code(name),
        "features": schema.n_features,
        "targets": len(schema.outputs),
        "classes": len(labels),
        "outputs": schema.n_values,
        "trees": model.n_trees,
        "feature_names": string_literals(schema.names, "c"),
        "class_names": string_literals(labels, "c"),
        "target_names": string_literals(targets, "c"),
        "level_starts": format_lines((np.cumsum(counts) - counts).astype(np.int32)),
        "level_texts": string_literals(texts, "c"),
        "level_codes": format_lines(np.append(codes, -1)),
        "text_bytes": sum(len(word.encode(errors="surrogatepass")) + 1 for word in words)
        + 4 * (schema.n_features + len(codes) + 1),
        "pointers": len(words) + 2,
        "unseen": Code("refused" if model.unknown == "error" else "missing, too"),
        "refuses_missing": int(model.missing == "error"),
        "refuses_unseen": int(model.unknown == "error"),
    }


def _count_levels(schema: Schema) -> Any:
    return np.where(schema.nominal, schema.n_levels, -1).astype(np.int32)


def _sort_level_texts(schema: Schema) -> tuple[list[str], list[int]]:
    """Return the category texts of every column in byte order, and their codes."""
    texts: list[str] = []
    codes: list[int] = []
    for column in schema.columns:
        # UTF-8 bytes sort in the same order as code points.
        order = sorted(range(len(column.levels)), key=column.levels.__getitem__)
        texts += [column.levels[code] for code in order]
        codes += order
    return texts, codes


def _add_called_helpers(uses: set[str], types: CTypes) -> set[str]:
    """Add the helpers that the helpers in use call."""
    for one, others in _CALLED_HELPERS.items():
        if one in uses:
            uses = uses | others
    if types.integers_only:
        uses = (uses | {"order"}) - {"number"}  # the caller computes keys with that function
    return uses


def _compute_part_values(
    made: CLayout, answers: dict[str, Any], leaf_template: str, uses: set[str], types: CTypes
) -> dict[str, Any]:
    """Compute the template values that list the source's templates, in order, and its headers."""
    helpers = [
        f"c/helpers/{name}{'_key' if types.integers_only and name in _KEY_HELPERS else ''}.jinja"
        for name in _HELPER_TEMPLATES
        if name in uses
    ]
    body = [
        *answers["before"],
        leaf_template,
        made.template,
        *("say", answers["predict"]),
        *(made.batch_templates if made.block_rows else ["batch_rows"]),
        *answers["names"],
    ]
    return {
        "form": Code(made.name),
        "reason": Code(made.reason),
        "parts": helpers + [f"c/{name}.jinja" for name in body],
        "guards": [] if types.integers_only else ["c/guards.jinja"],
        "headers": [Code("stdint.h")]
        if types.integers_only
        else [Code("float.h"), Code("stdint.h")],
        "header_includes": [Code("stdint.h")] if types.integers_only else [],
    }


# ---------------------------------------------------------------- c forms


def choose_c_layout(
    model: Model, leaves: LeafTable, derived: DerivedColumns, wanted: str, types: CTypes
) -> CLayout:
    """Choose the layout of the source (nested tests, tables or both) and build it.

    Parameters
    ----------
    wanted : {"auto", "if_else", "hybrid", "table"}
        "auto" chooses nested tests for up to `treekit.export.nested_tests.MAX_IF_ELSE_NODES`
        nodes, which is still readable.  Larger models with fewer trees than are interleaved for a
        row (`treekit.export.c.layouts.INTERLEAVED_TREES`) become hybrids: a single traversal of a
        table stalls at each node, while nested tests benefit from branch prediction.  All others
        become tables, whose interleaved traversals overlap their stalls; if the trees are nearly
        complete, tables without child pointers (`treekit.export.c.fast_layouts`).  Integer
        arithmetic uses neither hybrids nor complete trees: it is for small processors with little
        branch prediction and memory.

    Raises
    ------
    ExportError
        If the model cannot have that form, or exceeds 32-bit tables.
    """
    if model.missing == "fractional":
        return make_fractional_layout(model, leaves, derived, wanted, types)
    if wanted == "hybrid":
        return make_hybrid_layout(model, leaves, derived, FORM_REASON, types)
    name, reason = choose_form(wanted, model.n_nodes)
    if name == "if_else":
        return make_if_else_layout(model, leaves, derived, reason, types)
    if wanted == "auto" and model.n_trees < INTERLEAVED_TREES and not types.integers_only:
        reason = f"the model has {model.n_nodes} nodes, and fewer than {INTERLEAVED_TREES} trees"
        return make_hybrid_layout(model, leaves, derived, reason, types)
    found = (
        None
        if types.integers_only
        else build_complete_trees(model, leaves, derived, INTERLEAVED_TREES)
    )
    if found is not None:
        return make_heap_layout(model, found, reason, types, INTERLEAVED_TREES)
    return make_packed_layout(model, leaves, derived, reason, types)
