"""The target "c": C99 source and header; no allocation, no library, reentrant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.bitsets import set_words
from treekit.export.literals import (
    Code,
    float_literal,
    identifier,
    identifiers,
    lines,
    string_literals,
)
from treekit.export.lower import LoweredTree, Step, lower
from treekit.export.nesting import choose_form
from treekit.export.render import render
from treekit.export.source import SourceLine, source_functions
from treekit.export.table import LeafTable, leaf_table, node_table
from treekit.model.ensemble import Model

__all__ = ["c_prefix", "export_c"]

_DEEPEST = 24  # far below the 127 nested blocks that C99 5.2.4.1 promises
_FEW = 4  # sets of more codes become bit masks
_MOST_CLASSES = 100_000  # their sums live on the stack
_ENUM = 1000  # C99 5.2.4.1 promises 1023 constants in one enumeration


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
    trees, leaves = lower(model), leaf_table(model.units)
    chosen, reason = choose_form(form, sum(tree.n_nodes for tree in trees))
    values = _common_values(model, name)
    values |= {"form": Code(chosen), "reason": Code(reason)}
    values |= _leaf_values(model, leaves)
    values |= (
        _if_else_values(model.schema, trees, leaves, values["p"])
        if chosen == "if_else"
        else _table_values(model.schema, trees, leaves)
    )
    values["helpers"] = list(_helpers(model, trees, values))
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
    texts, codes = _sorted_levels(schema)
    counts = schema.n_levels
    starts = np.cumsum(counts) - counts
    answer = "classes" if schema.task == "classification" else "number"
    return {
        "p": prefix,
        "P": Code(prefix.upper()),
        "file_name": Code(name),
        "features": schema.n_features,
        "classes": len(schema.classes),
        "outputs": schema.n_values,
        "trees": model.n_trees,
        "feature_names": string_literals(schema.names, "c"),
        "class_names": string_literals(map(str, schema.classes), "c"),
        "levels": lines(np.where(schema.nominal, counts, -1)),
        "level_starts": lines(starts),
        "level_texts": string_literals(texts, "c"),
        "level_codes": lines(np.append(codes, -1)),
        "answer_template": f"c/{answer}.jinja",
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
    narrow = model.schema.task == "classification" and model.unit_total < 2**31
    return {
        "integer": Code("int32_t" if narrow else "int64_t"),
        "leaf_starts": lines(start),
        "leaf_classes": lines(column),
        "leaf_units": lines(units),
        "leaf_numbers": lines(leaves.vectors[:, 0]),
        "unit_total": Code(f"{model.unit_total}.0"),
        "scale": float_literal(np.ldexp(1.0, model.exponent)),
    }


def _if_else_values(
    schema: Schema, trees: tuple[LoweredTree, ...], leaves: LeafTable, prefix: Code
) -> dict[str, Any]:
    columns = identifiers(schema.names, f"{prefix}_in_")
    functions = source_functions(trees, schema, leaves, columns, _DEEPEST)
    sets = [line for f in functions for line in f.lines if len(line.codes) > _FEW]
    starts = np.cumsum([0, *(len(line.codes) for line in sets)])
    codes = np.array([code for line in sets for code in line.codes], dtype=np.int64)
    words, offsets = set_words(starts, codes)
    offset = iter(offsets.tolist())
    numbered = list(enumerate(columns))
    return {
        "form_template": "c/if_else.jinja",
        "columns": [numbered[i : i + _ENUM] for i in range(0, len(numbered), _ENUM)],
        "functions": [
            replace(f, lines=tuple(_with_set(line, offset) for line in f.lines)) for f in functions
        ],
        "set_words": lines(words),
        "n_set_words": len(words),
    }


def _with_set(line: SourceLine, offset: Iterator[int]) -> SourceLine:
    """Turn a line that asks a large set into a look-up at the next offset."""
    if len(line.codes) <= _FEW:
        return line
    return replace(line, op="in_set", at=next(offset))


def _table_values(
    schema: Schema, trees: tuple[LoweredTree, ...], leaves: LeafTable
) -> dict[str, Any]:
    table = node_table(trees, leaves, schema.dtype)
    words, offsets = set_words(table.set_start, table.set_codes)
    value = table.value.copy()
    value[table.question % 4 == 2] = offsets
    nodes = zip(
        map(repr, value.tolist()),
        table.question.tolist(),
        table.yes.tolist(),
        table.no.tolist(),
        strict=True,
    )
    return {
        "form_template": "c/table.jinja",
        # An array needs an element even where every tree is one leaf.
        "nodes": Code(",\n".join(map("{%s, %d, %d, %d}".__mod__, nodes)) or "{0.0, 0, -1, -1}"),
        "roots": lines(table.root),
        # The loop names the sets even if no node asks one: an empty set.
        "set_words": lines(words if len(words) else np.zeros(3, dtype=np.uint32)),
        "n_set_words": max(len(words), 3),
    }


def _helpers(model: Model, trees: Sequence[LoweredTree], values: dict[str, Any]) -> Iterator[str]:
    """Templates of the small functions that this source uses, in order."""
    table = values["form"] == "table"
    asks_missing_level = any(
        np.any(model.schema.nominal[tree.feature[tree.kind == Step.MISSING]]) for tree in trees
    )
    refuses = "error" in (model.missing, model.unknown)
    if table or refuses or asks_missing_level:
        yield "c/helpers/is_level.jinja"
    if values["n_set_words"]:
        yield "c/helpers/has_code.jinja"
    yield "c/helpers/refuses.jinja" if refuses else "c/helpers/accepts.jinja"
