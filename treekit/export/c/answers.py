"""Conversion of integer sums to predictions in C source and header."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.c.tables import (
    MAX_ARRAY_ELEMENTS,
    ROW_BYTES,
    CTable,
    CTypes,
    make_c_table,
    make_struct_table,
    make_text_table,
    narrow_integers,
)
from treekit.export.literals import Code, float_literal
from treekit.export.lowering import LeafTable
from treekit.model import links
from treekit.model.derived_features import DerivedColumns
from treekit.model.fixed_point import floor_to_dtype
from treekit.model.model import Model

__all__ = [
    "compute_prediction_values",
    "make_derived_source",
    "make_leaf_source",
    "refuse_sums",
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
        return "leaves_sparse", values, [make_c_table(name, part) for name, part in parts.items()]
    if len(whole) > MAX_ARRAY_ELEMENTS:
        return "leaves_text", values | _compute_unit_values(leaves), [_make_unit_table(leaves)]
    return "leaves_dense", values, [make_c_table("leaf_units", whole)]


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
            f"c/say/{'no_label' if not classes else kind}.jinja",
            "c/say/values.jinja",
            *(["c/say/softmax.jinja"] if softmax else []),
        ],
        "before": ["blocks"] if labels or softmax else [],
        "predict": "predict_labels" if labels else "predict_one",
        "names": [
            "class_name_labels" if labels else "class_name_one",
            *(["target_names"] if several else []),
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
    names = [
        "rows_key" if types.integers_only else "rows_float",
        f"out_{out}",
        f"api_{kind}",
        "api_batch",
        *([] if model.missing == "fractional" else ["api_leaf"]),
        "api_names_labels" if kind == "labels" else "api_names",
        *(["api_target"] if schema.more else []),
    ]
    return [f"c/header/{name}.jinja" for name in names]


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
    """Return values and tables of ``c/helpers/derived.jinja``, and the helpers that it calls."""
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
                "says": f"c/helpers/derived_{kind}_says.jinja",
                "answers": f"c/helpers/derived_{kind}.jinja",
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
