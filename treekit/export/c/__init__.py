"""Target "c": C99 source and header; no allocation, no library, reentrant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.c.answers import answer_values, derived_source, leaf_source, refuse_sums
from treekit.export.c.fast_layouts import heap_form, heaps, hybrid_form
from treekit.export.c.layouts import EIGHT, divided_source_form, if_else_form, packed_form
from treekit.export.c.tables import CForm, CTypes, c_table, c_types, size_values
from treekit.export.literals import Code, identifier, lines, string_literals
from treekit.export.lowering import LeafTable, leaf_table
from treekit.export.nested_tests import AS_ASKED, choose_form
from treekit.export.render import render_from, template_folders
from treekit.model.derived_features import DerivedColumns, derive
from treekit.model.model import Model

__all__ = [
    "c_contents",
    "c_form",
    "c_prefix",
    "export_c",
]


# ---------------------------------------------------------------- c

_MOST_CLASSES = 100_000  # the sums of the classes are on the stack
_HELPERS = (
    *("is_level", "has_code", "order", "number", "is_missing", "float32", "derived"),
    *("refuses", "accepts", "most_votes", "least_cost", "exp", "sigmoid", "softmax"),
)
"""Templates of helper functions, in source order."""
_USES = {
    "refuses": {"is_level"},
    "is_missing": {"is_level", "number"},
    "number": {"order"},
}
_BY_KEY = ("is_level", "has_code")
"""Helpers with a different template for integer cells."""


def c_prefix(name: str) -> str:
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
        Stem of the files; `c_prefix` derives the prefix of all global names from it.
    form : {"auto", "if_else", "hybrid", "table"}
        Nested if/else, or tables and a short loop; "hybrid": nested tests for the nodes
        that most training rows visit, tables for the others.  See `c_form` for "auto".
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
    folders = template_folders(templates)
    return c_contents(model, name, folders, form=form, input=input, arithmetic=arithmetic)


def c_contents(
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
    if model.schema.n_values > _MOST_CLASSES:
        raise ExportError(
            f"the target 'c' supports up to {_MOST_CLASSES} classes, got {model.schema.n_values}"
        )
    prefix = identifier(name, "model")
    types = c_types(model, prefix, input, arithmetic)
    leaves, derived = leaf_table(model.units), derive(model)
    if types.whole:
        refuse_sums(derived)
    made = c_form(model, leaves, derived, form, types)
    leaf_template, values, leaf_tables = leaf_source(model, leaves)
    answers, answer_tables, uses = answer_values(model, types)
    tables = [c_table("levels", _level_counts(model.schema)), *made.tables]
    tables += leaf_tables + answer_tables
    uses |= made.uses | {"refuses" if "error" in (model.missing, model.unknown) else "accepts"}
    values |= types.values() | _names(model, name, prefix) | answers | made.values
    if "derived" in uses:
        derived_values, derived_tables, helpers = derived_source(derived, model.schema, types)
        values |= derived_values
        tables += derived_tables
        uses |= helpers
    values |= _parts(made, answers, leaf_template, _with_called(uses, types), types)
    values |= size_values(model, made, tables, types)
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


def _names(model: Model, name: str, prefix: Code) -> dict[str, Any]:
    """Compute the template values of sizes, names and vocabularies."""
    schema = model.schema
    texts, codes = _sorted_levels(schema)
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
        "level_starts": lines((np.cumsum(counts) - counts).astype(np.int32)),
        "level_texts": string_literals(texts, "c"),
        "level_codes": lines(np.append(codes, -1)),
        "text_bytes": sum(len(word.encode(errors="surrogatepass")) + 1 for word in words)
        + 4 * (schema.n_features + len(codes) + 1),
        "pointers": len(words) + 2,
        "unseen": Code("refused" if model.unknown == "error" else "missing, too"),
        "refuses_missing": int(model.missing == "error"),
        "refuses_unseen": int(model.unknown == "error"),
    }


def _level_counts(schema: Schema) -> Any:
    return np.where(schema.nominal, schema.n_levels, -1).astype(np.int32)


def _sorted_levels(schema: Schema) -> tuple[list[str], list[int]]:
    """Return the category texts of every column in byte order, and their codes."""
    texts: list[str] = []
    codes: list[int] = []
    for column in schema.columns:
        # UTF-8 bytes sort in the same order as code points.
        order = sorted(range(len(column.levels)), key=column.levels.__getitem__)
        texts += [column.levels[code] for code in order]
        codes += order
    return texts, codes


def _with_called(uses: set[str], types: CTypes) -> set[str]:
    """Add the helpers that the helpers in use call."""
    for one, others in _USES.items():
        if one in uses:
            uses = uses | others
    if types.whole:
        uses = (uses | {"order"}) - {"number"}  # the caller computes keys with that function
    return uses


def _parts(
    made: CForm, answers: dict[str, Any], leaf_template: str, uses: set[str], types: CTypes
) -> dict[str, Any]:
    """Compute the template values that list the source's templates, in order, and its headers."""
    helpers = [
        f"c/helpers/{name}{'_key' if types.whole and name in _BY_KEY else ''}.jinja"
        for name in _HELPERS
        if name in uses
    ]
    body = [
        *answers["before"],
        leaf_template,
        made.template,
        *("say", answers["predict"]),
        *(made.batch if made.block else ["batch_rows"]),
        *answers["names"],
    ]
    return {
        "form": Code(made.name),
        "reason": Code(made.reason),
        "parts": helpers + [f"c/{name}.jinja" for name in body],
        "guards": [] if types.whole else ["c/guards.jinja"],
        "headers": [Code("stdint.h")] if types.whole else [Code("float.h"), Code("stdint.h")],
        "header_includes": [Code("stdint.h")] if types.whole else [],
    }


# ---------------------------------------------------------------- c forms


def c_form(
    model: Model, leaves: LeafTable, derived: DerivedColumns, wanted: str, types: CTypes
) -> CForm:
    """Choose the layout of the source (nested tests, tables or both) and build it.

    Parameters
    ----------
    wanted : {"auto", "if_else", "hybrid", "table"}
        "auto" chooses nested tests for up to `treekit.export.nested_tests.SMALL` nodes, which
        is still readable.  Larger models with fewer trees than are interleaved for a row
        (`treekit.export.c.layouts.EIGHT`) become hybrids: a single traversal of a table stalls
        at each node, while nested tests benefit from branch prediction.  All others become
        tables, whose interleaved traversals overlap their stalls; if the trees are nearly
        complete, tables without child pointers (`treekit.export.c.fast_layouts`).  Integer
        arithmetic uses neither hybrids nor complete trees: it is for small processors with
        little branch prediction and memory.

    Raises
    ------
    ExportError
        If the model cannot have that form, or exceeds 32-bit tables.
    """
    if model.missing == "fractional":
        return divided_source_form(model, leaves, derived, wanted, types)
    if wanted == "hybrid":
        return hybrid_form(model, leaves, derived, AS_ASKED, types)
    name, reason = choose_form(wanted, model.n_nodes)
    if name == "if_else":
        return if_else_form(model, leaves, derived, reason, types)
    if wanted == "auto" and model.n_trees < EIGHT and not types.whole:
        reason = f"the model has {model.n_nodes} nodes, and fewer than {EIGHT} trees"
        return hybrid_form(model, leaves, derived, reason, types)
    found = None if types.whole else heaps(model, leaves, derived, EIGHT)
    if found is not None:
        return heap_form(model, found, reason, types, EIGHT)
    return packed_form(model, leaves, derived, reason, types)
