"""Target "c": C99 source and header; no allocation, no library, reentrant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.c.fast_layouts import build_complete_trees, make_heap_layout, make_hybrid_layout
from treekit.export.c.layouts import (
    INTERLEAVED_TREES,
    MAX_ARRAY_ELEMENTS,
    ROW_BYTES,
    CLayout,
    CTable,
    CTypes,
    choose_c_types,
    compute_size_values,
    make_c_table,
    make_fractional_layout,
    make_if_else_layout,
    make_packed_layout,
    make_struct_table,
    make_text_table,
    narrow_integers,
)
from treekit.export.literals import (
    Code,
    float_literal,
    format_lines,
    identifier,
    list_template_folders,
    render_from,
    string_literals,
)
from treekit.export.lowering import FORM_REASON, LeafTable, choose_form, leaf_table
from treekit.model import links
from treekit.model.fixed_point import floor_to_dtype
from treekit.model.model import Model
from treekit.model.tree import DerivedColumns, make_derived_columns

__all__ = [
    "choose_c_layout",
    "compute_prediction_values",
    "export_c",
    "make_c_prefix",
    "make_derived_source",
    "make_leaf_source",
    "refuse_sums",
    "render_c_files",
]


# ---------------------------------------------------------------- c answers

_ROUNDING_NOTE = "\n * (do not round them to float)"


def make_leaf_source(model: Model, leaves: LeafTable) -> tuple[str, dict[str, Any], list[CTable]]:
    """Return template, values and tables of the leaf values: dense vectors or nonzero entries."""
    start, column, units = leaves.sparse()
    divides = model.missing == "fractional"
    votes = model.schema.task == "classification" and not model.margins
    values = {
        "mass_parameter": Code("int64_t mass, " if divides else ""),
        "times_mass": Code(" * mass" if divides else ""),
        "grid_words": Code(", its votes" if votes else f", in steps of 2**{model.exponent}"),
    }
    parts = {
        "leaf_starts": narrow_integers(start),
        "leaf_columns": narrow_integers(column),
        "leaf_units": _narrow_signed(units),
    }
    whole = _narrow_signed(leaves.vectors.ravel())
    # Dense vectors need no lookup of their start, which is worth twice the bytes.
    if whole.nbytes > 2 * sum(part.nbytes for part in parts.values()):
        return "leaves/sparse", values, [make_c_table(name, part) for name, part in parts.items()]
    if len(whole) > MAX_ARRAY_ELEMENTS:
        return "leaves/text", values | _compute_unit_values(leaves), [_make_unit_table(leaves)]
    return "leaves/dense", values, [make_c_table("leaf_units", whole)]


def _make_unit_table(leaves: LeafTable) -> CTable:
    """Make a table of the dense vectors as bytes of the difference to the smallest unit."""
    more = narrow_integers(leaves.vectors.ravel() - leaves.vectors.min())
    return make_text_table("leaf_units", more.astype(f"<u{more.itemsize}").view(np.uint8))


def _compute_unit_values(leaves: LeafTable) -> dict[str, Any]:
    least = int(leaves.vectors.min())
    width = narrow_integers(np.array([int(leaves.vectors.max()) - least])).itemsize
    return {
        "least_unit": Code(str(least)),
        "unit_width": width,
        "units_a_row": ROW_BYTES // width,
    }


def _narrow_signed(units: Any) -> Any:
    """Convert to the narrowest signed type, which C adds to signed sums without a warning."""
    low = -abs(units).max(initial=1)
    return units.astype(narrow_integers(np.array([low])).dtype)


def compute_prediction_values(
    model: Model, types: CTypes
) -> tuple[dict[str, Any], list[CTable], set[str]]:
    """Return values, tables and helpers of predictions.

    The values list the templates of the prediction function, of its callers
    and of the header.
    """
    schema = model.schema
    classes, several = schema.task == "classification", bool(schema.more)
    labels = several and classes
    kind = "number" if not classes else "labels" if several else "label"
    softmax = model.link == "softmax" and not types.integers_only
    values = {
        "labels": len(schema.outputs) if labels else 1,
        "value": Code(_format_prediction(model, types)),
        "say_parts": [
            f"answers/say_{'no_label' if not classes else kind}",
            "answers/say_values",
            *(["answers/say_softmax"] if softmax else []),
        ],
        "before": ["answers/blocks"] if labels or softmax else [],
        "predict": "answers/predict_labels" if labels else "answers/predict_one",
        "names": [
            "answers/class_name_labels" if labels else "answers/class_name_one",
            *(["answers/target_names"] if several else []),
        ],
        "header_parts": _list_header_templates(model, types, kind),
        "all_targets": Code(", one target's classes after the other's" if several else ""),
        "unit_total": Code(str(model.unit_total)),
        "divisor": Code(str(model.divisor)),
        "exponent": model.exponent,
        "link": Code(model.link),
        "whole_words": _describe_integers(model),
        "rounding": Code("" if types.cell_type == "float" else _ROUNDING_NOTE),
    }
    tables, uses = [], set()
    if classes:
        uses.add("most_votes" if model.label_costs is None else "least_cost")
    if labels or softmax:
        tables.append(make_c_table("blocks", np.array(schema.blocks, dtype=np.int32)))
    if model.label_costs is not None:
        tables.append(make_c_table("costs", model.label_costs.ravel().astype(np.int64)))
    if model.link != "identity" and not types.integers_only:
        uses |= {"exp", model.link}
        values |= _format_link_constants()
    return values, tables, uses


def _format_prediction(model: Model, types: CTypes) -> str:
    """Return the prediction as an expression of ``sums[number]``."""
    if types.integers_only:
        return "sums[number]"
    if model.schema.task == "classification" and not model.margins:
        return f"(double)sums[number] / {model.unit_total}.0"
    by = "" if model.divisor == 1 else f" / {model.divisor}.0"
    number = f"(double)sums[number]{by} * {float_literal(np.ldexp(1.0, model.exponent))}"
    function = {"exp": "exp", "sigmoid": "sigmoid"}.get(model.link)
    return f"{types.prefix}_{function}({number})" if function else number


def _describe_integers(model: Model) -> Code:
    what = "the margin of each class" if model.margins else "the number of each target"
    if model.link != "identity":
        what += f", of which the model takes the {model.link}"
    return Code(what)


def _list_header_templates(model: Model, types: CTypes, kind: str) -> list[str]:
    schema: Schema = model.schema
    votes = schema.task == "classification" and not model.margins
    out = "votes" if votes else "links" if kind != "number" else "numbers"
    if types.integers_only:
        out = "whole_votes" if votes else "whole_numbers"
    return [
        "rows_key" if types.integers_only else "rows_float",
        f"out_{out}",
        f"api_{kind}",
        "api_batch",
        *([] if model.missing == "fractional" else ["api_leaf"]),
        "api_names_labels" if kind == "labels" else "api_names",
        *(["api_target"] if schema.more else []),
    ]


def _format_link_constants() -> dict[str, Code]:
    return {
        "coefficients": Code(",\n".join(f"        {c!r}" for c in links.EXP_COEFFICIENTS)),
        "least": float_literal(-links.EXP_LIMIT),
        "most": float_literal(links.EXP_LIMIT),
        "log2_e": float_literal(links.LOG2_E),
        "ln2_high": float_literal(links.LN2_HIGH),
        "ln2_low": float_literal(links.LN2_LOW),
    }


# ---------------------------------------------------------------- c derived columns
# Derived columns are tables, read by a small function.  Tests of one column compare
# ordered keys and tests of categories look up a branch; only real sums use doubles.

_DERIVED_KINDS = {
    "sum": ("sum", "> 0", {"float32"}),
    "number": ("compared", "== 0", {"number"}),
    "level": ("of_level", "< 0", {"is_level"}),
}
"""Function, condition on the count of a test, and helpers, by kind of test."""


def make_derived_source(
    derived: DerivedColumns, schema: Schema, types: CTypes
) -> tuple[dict[str, Any], list[CTable], set[str]]:
    """Return values and tables of ``helpers/derived``, and the helpers that it calls."""
    by_level, first_term = derived.level_feature >= 0, derived.term_start[:-1]
    terms = np.diff(derived.term_start)
    sums = _find_sums(derived)
    alone = ~by_level & ~sums
    levels = np.diff(derived.level_start)
    column = np.where(by_level, derived.level_feature, -1)
    column[alone] = derived.term_feature[first_term[alone]]
    # The count encodes the kind of a test, see the comment in the template.
    count = np.where(by_level, -1 - levels, np.where(alone, 0, terms))
    first = np.where(by_level, derived.level_start[:-1], np.where(sums, first_term, 0))
    members = (derived.below, derived.above, derived.lost, column, first, count)
    tables = [
        make_c_table("test_starts", derived.test_start.astype(np.int32)),
        make_struct_table(
            *("tests", f"struct {types.prefix}_test"),
            [
                _compute_test_keys(derived, alone, sums, schema, types),
                *(m.astype(np.int32) for m in members),
            ],
        ),
    ]
    if sums.any():
        tables += [
            make_c_table("limits", derived.threshold[sums]),
            make_c_table("weights", derived.term_weight),
            make_c_table("terms", derived.term_feature.astype(np.int32)),
        ]
    if by_level.any():
        tables.append(make_c_table("test_branches", derived.level_branch.astype(np.int32)))
    there = {"sum": sums.any(), "number": alone.any(), "level": by_level.any()}
    kinds = [kind for kind, some in there.items() if some]
    values = {
        "derived_kinds": [
            {
                "says": f"helpers/derived_{kind}_says",
                "answers": f"helpers/derived_{kind}",
                "name": Code(_DERIVED_KINDS[kind][0]),
                "told_by": Code(_DERIVED_KINDS[kind][1]),
            }
            for kind in kinds
        ]
    }
    return values, tables, set().union(*(_DERIVED_KINDS[kind][2] for kind in kinds))


def refuse_sums(derived: DerivedColumns) -> None:
    """Raise `ExportError` if a derived column needs floating point."""
    if _find_sums(derived).any():
        raise ExportError(
            "arithmetic='integer' does not support splits on sums of columns, which this model "
            "has: choose arithmetic='float', or train without oblique splits"
        )


def _find_sums(derived: DerivedColumns) -> npt.NDArray[np.bool_]:
    """Return a mask (tests,) of tests that are not a single column compared with a threshold."""
    terms = np.diff(derived.term_start)
    alone = terms == 1
    alone[alone] = derived.term_weight[derived.term_start[:-1][alone]] == 1.0
    result: npt.NDArray[np.bool_] = (derived.level_feature < 0) & ~alone
    return result


def _compute_test_keys(
    derived: DerivedColumns,
    alone: npt.NDArray[np.bool_],
    sums: npt.NDArray[np.bool_],
    schema: Schema,
    types: CTypes,
) -> npt.NDArray[Any]:
    """Return the key of the threshold of one-column tests, the limit index of sums; else 0."""
    limit = np.zeros(len(derived.threshold), dtype=types.key_dtype)
    limit[alone] = types.compute_keys(floor_to_dtype(derived.threshold[alone], schema.dtype))
    limit[sums] = np.arange(np.count_nonzero(sums))
    return limit


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
        f"helpers/{name}{'_key' if types.integers_only and name in _KEY_HELPERS else ''}"
        for name in _HELPER_TEMPLATES
        if name in uses
    ]
    body = [
        *answers["before"],
        leaf_template,
        made.template,
        *("answers/say", answers["predict"]),
        *(made.batch_templates if made.block_rows else ["walk/batch_rows"]),
        *answers["names"],
    ]
    return {
        "form": Code(made.name),
        "reason": Code(made.reason),
        "parts": helpers + body,
        "uses_floats": int(not types.integers_only),
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
        "auto" chooses nested tests for up to `treekit.export.lowering.MAX_IF_ELSE_NODES`
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
