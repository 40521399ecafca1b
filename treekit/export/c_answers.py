"""How C source turns integer sums into answers, and what its header says of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.data.schema import Schema
from treekit.export.c_tables import MANY, ROW, CTable, c_table, narrow, text_table
from treekit.export.c_types import CTypes
from treekit.export.literals import Code, float_literal
from treekit.export.table import LeafTable
from treekit.model import links
from treekit.model.model import Model

__all__ = ["answer_values", "leaf_source"]

_ROUND_DOUBLES = "\n * (do not round them to float)"


def leaf_source(model: Model, leaves: LeafTable) -> tuple[str, dict[str, Any], list[CTable]]:
    """Template, values and tables of what leaves say: whole vectors, or what is not zero."""
    start, column, units = leaves.sparse()
    divides = model.missing == "fractional"
    votes = model.schema.task == "classification" and not model.margins
    values = {
        "mass_parameter": Code("int64_t mass, " if divides else ""),
        "times_mass": Code(" * mass" if divides else ""),
        "grid_words": Code(", its votes" if votes else f", in steps of 2**{model.exponent}"),
    }
    parts = {
        "leaf_starts": narrow(start),
        "leaf_columns": narrow(column),
        "leaf_units": _signed(units),
    }
    whole = _signed(leaves.vectors.ravel())
    # Whole vectors need no look-up of where they start, which is worth some bytes.
    if whole.nbytes > 2 * sum(part.nbytes for part in parts.values()):
        return "leaves_sparse", values, [c_table(name, part) for name, part in parts.items()]
    if len(whole) > MANY:
        return "leaves_text", values | _text_values(leaves), [_unit_texts(leaves)]
    return "leaves_dense", values, [c_table("leaf_units", whole)]


def _unit_texts(leaves: LeafTable) -> CTable:
    """Whole vectors as bytes of what each unit is more than the least of all."""
    more = narrow(leaves.vectors.ravel() - leaves.vectors.min())
    return text_table("leaf_units", more.astype(f"<u{more.itemsize}").view(np.uint8))


def _text_values(leaves: LeafTable) -> dict[str, Any]:
    least = int(leaves.vectors.min())
    width = narrow(np.array([int(leaves.vectors.max()) - least])).itemsize
    return {
        "least_unit": Code(str(least)),
        "unit_width": width,
        "units_a_row": ROW // width,
    }


def _signed(units: Any) -> Any:
    """In the narrowest signed type: integers that C adds to signed sums without a warning."""
    low = -abs(units).max(initial=1)
    return units.astype(narrow(np.array([low])).dtype)


def answer_values(model: Model, types: CTypes) -> tuple[dict[str, Any], list[CTable], set[str]]:
    """Values, tables and helpers of what is said to a row.

    Values name the templates of the function that answers, of the ways to call
    it, and of the header.
    """
    schema = model.schema
    classes, several = schema.task == "classification", bool(schema.more)
    labels = several and classes
    kind = "number" if not classes else "labels" if several else "label"
    softmax = model.link == "softmax" and not types.whole
    values = {
        "labels": len(schema.outputs) if labels else 1,
        "value": Code(_value(model, types)),
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
        "header_parts": _header(model, types, kind),
        "all_targets": Code(", one target's classes after the other's" if several else ""),
        "unit_total": Code(str(model.unit_total)),
        "divisor": Code(str(model.divisor)),
        "exponent": model.exponent,
        "link": Code(model.link),
        "whole_words": _whole_words(model),
        "rounding": Code("" if types.cell == "float" else _ROUND_DOUBLES),
    }
    tables, uses = [], set()
    if classes:
        uses.add("most_votes" if model.label_costs is None else "least_cost")
    if labels or softmax:
        tables.append(c_table("blocks", np.array(schema.blocks, dtype=np.int32)))
    if model.label_costs is not None:
        tables.append(c_table("costs", model.label_costs.ravel().astype(np.int64)))
    if model.link != "identity" and not types.whole:
        uses |= {"exp", model.link}
        values |= _constants()
    return values, tables, uses


def _value(model: Model, types: CTypes) -> str:
    """The answer as an expression of ``sums[number]``."""
    if types.whole:
        return "sums[number]"
    if model.schema.task == "classification" and not model.margins:
        return f"(double)sums[number] / {model.unit_total}.0"
    by = "" if model.divisor == 1 else f" / {model.divisor}.0"
    number = f"(double)sums[number]{by} * {float_literal(np.ldexp(1.0, model.exponent))}"
    function = {"exp": "exp", "sigmoid": "sigmoid"}.get(model.link)
    return f"{types.prefix}_{function}({number})" if function else number


def _whole_words(model: Model) -> Code:
    what = "the margin of each class" if model.margins else "the number of each target"
    if model.link != "identity":
        what += f", of which the model takes the {model.link}"
    return Code(what)


def _header(model: Model, types: CTypes, kind: str) -> list[str]:
    schema: Schema = model.schema
    votes = schema.task == "classification" and not model.margins
    out = "votes" if votes else "links" if kind != "number" else "numbers"
    if types.whole:
        out = "whole_votes" if votes else "whole_numbers"
    names = [
        "rows_key" if types.whole else "rows_float",
        f"out_{out}",
        f"api_{kind}",
        "api_batch",
        *([] if model.missing == "fractional" else ["api_leaf"]),
        "api_names_labels" if kind == "labels" else "api_names",
        *(["api_target"] if schema.more else []),
    ]
    return [f"c/header/{name}.jinja" for name in names]


def _constants() -> dict[str, Code]:
    return {
        "coefficients": Code(",\n".join(f"        {c!r}" for c in links.COEFFICIENTS)),
        "least": float_literal(-links.LIMIT),
        "most": float_literal(links.LIMIT),
        "log2_e": float_literal(links.LOG2_E),
        "ln2_high": float_literal(links.LN2_HIGH),
        "ln2_low": float_literal(links.LN2_LOW),
    }
