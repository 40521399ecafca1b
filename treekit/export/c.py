"""The target "c": C99 source and header; no allocation, no library, reentrant."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.c_forms import divided_values, one_way_values
from treekit.export.literals import Code, float_literal, identifier, lines, string_literals
from treekit.export.render import render
from treekit.export.table import LeafTable, leaf_table
from treekit.model.derived import DerivedColumns, derive
from treekit.model.ensemble import Model

__all__ = ["c_prefix", "export_c"]

_MOST_CLASSES = 100_000  # their sums live on the stack
_HELPERS = (
    *("is_level", "has_code", "is_missing", "float32", "derived", "cell"),
    *("refuses", "accepts", "most_votes", "least_cost"),
)
_USES = {
    "cell": ("derived",),
    "derived": ("float32", "is_level"),
    "is_missing": ("is_level",),
    "refuses": ("is_level",),
}


def c_prefix(name: str) -> str:
    """Tell what all names of the source start with if the file is called `name`."""
    return str(identifier(name, "model"))


def export_c(
    model: Model, name: str, *, form: str = "auto", templates: str = ""
) -> dict[str, bytes]:
    """Write ``name.c`` and ``name.h``.

    Parameters
    ----------
    model : Model
    name : str
        Stem of the files; cleaned by `c_prefix` it starts every global name.
    form : {"auto", "if_else", "table"}
        Nested if/else, or tables and a short loop.
    templates : str
        A folder whose ``c/*.jinja`` replace the shipped ones; "" = none.

    Raises
    ------
    ExportError
        If a name cannot be text in C, or the model outgrows 32-bit tables.
    """
    _check_file_name(name)
    if model.schema.n_values > _MOST_CLASSES:
        raise ExportError(f"the c target handles up to {_MOST_CLASSES} classes")
    leaves, derived = leaf_table(model.units), derive(model)
    values = _common_values(model, name) | _leaf_values(model, leaves)
    prefix = values["p"]
    if model.missing == "fractional":
        values |= divided_values(model, leaves, derived, form, prefix)
    else:
        values |= one_way_values(model, leaves, derived, form, prefix)
    helpers = _helpers(model, derived, values)
    math = [Code("math.h")] * ("c/helpers/derived.jinja" in helpers)  # NAN, no library
    values |= {
        "helpers": helpers,
        "headers": [Code("float.h"), *math, Code("stdint.h")],
        "parts": _parts(model, values),
    }
    return {
        f"{name}.c": render("c/source.jinja", templates, **values),
        f"{name}.h": render("c/header.jinja", templates, **values),
    }


def _check_file_name(name: str) -> None:
    if not name.isprintable() or any(character in name for character in '"\\?/'):
        raise ExportError(
            f"{name!r} cannot stand in an #include line; choose a file name without quotes, "
            "slashes, question marks and control characters"
        )


def _common_values(model: Model, name: str) -> dict[str, Any]:
    schema, prefix = model.schema, identifier(name, "model")
    single = schema.dtype == "float32"
    texts, codes = _sorted_levels(schema)
    counts = schema.n_levels
    starts = np.cumsum(counts) - counts
    labels = [str(label) for output in schema.outputs for label in output.classes]
    several = len(schema.outputs) > 1
    api = "labels" if several and labels else "one"
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
        "target_names": string_literals((o.name for o in schema.outputs) if several else (), "c"),
        "blocks": lines(np.array(schema.blocks)),
        "costs": Code() if model.label_costs is None else lines(model.label_costs.ravel()),
        "levels": lines(np.where(schema.nominal, counts, -1)),
        "level_starts": lines(starts),
        "level_texts": string_literals(texts, "c"),
        "level_codes": lines(np.append(codes, -1)),
        "api": [f"c/api_{api}.jinja"] + ["c/api_targets.jinja"] * several,
        "rounded": Code(f"{prefix}_float32(value)" if single else "value"),
        "refuses_missing": int(model.missing == "error"),
        "refuses_unseen": int(model.unknown == "error"),
    }


def _sorted_levels(schema: Schema) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Level texts of every column in the order of their bytes, and their codes."""
    texts: list[str] = []
    codes: list[int] = []
    for column in schema.columns:
        # UTF-8 sorts as its code points do.
        order = sorted(range(len(column.levels)), key=column.levels.__getitem__)
        texts += [column.levels[code] for code in order]
        codes += order
    return texts, np.array(codes, dtype=np.int64)


def _leaf_values(model: Model, leaves: LeafTable) -> dict[str, Any]:
    start, column, units = leaves.sparse()
    # Sums of a float32 classifier stay within 2**24, all others within 2**53.
    divides = model.missing == "fractional"
    narrow = model.schema.task == "classification" and model.unit_total < 2**31 and not divides
    return {
        "integer": Code("int32_t" if narrow else "int64_t"),
        "mass_parameter": Code("int64_t mass, " if divides else ""),
        "times_mass": Code(" * mass" if divides else ""),
        "leaf_starts": lines(start),
        "leaf_classes": lines(column),
        "leaf_units": lines(units),
        "leaf_numbers": lines(leaves.vectors.ravel()),
        "unit_total": Code(f"{model.unit_total}.0"),
        "rows_total": Code(f"{model.n_trees * model.mass}.0"),
        "scale": float_literal(np.ldexp(1.0, model.exponent)),
    }


def _parts(model: Model, values: dict[str, Any]) -> list[str]:
    """Templates of the source's body, in order."""
    schema = model.schema
    classes = schema.task == "classification"
    answer = ("labels" if schema.more else "one_label") if classes else "number"
    names = [
        "votes" if classes else "numbers",
        values["form_template"],
        "divided_sums" if model.missing == "fractional" else "sums",
        answer,
        *(["target_names"] if schema.more else []),
    ]
    return [f"c/{name}.jinja" for name in names]


def _helpers(model: Model, derived: DerivedColumns, values: dict[str, Any]) -> list[str]:
    """Templates of the small functions that this source uses, in order."""
    refuses = "error" in (model.missing, model.unknown)
    used = set(values["uses"]) | {"refuses" if refuses else "accepts"}
    if model.schema.task == "classification":
        used.add("most_votes" if model.label_costs is None else "least_cost")
    if "cell" in used and not derived.n_columns:
        used.remove("cell")
    for one, others in _USES.items():
        if one in used:
            used |= set(others)
    if model.schema.dtype == "float64":
        used.discard("float32")
    return [f"c/helpers/{name}.jinja" for name in _HELPERS if name in used]
