"""A model as values of templates: arrays and literals of any language.

Trees are tables of plain binary nodes, which a loop of a dozen lines walks at
any depth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Schema
from treekit.export.bitsets import set_words
from treekit.export.divided import divided_table
from treekit.export.language import Language
from treekit.export.literals import Code, identifier
from treekit.export.lower import lower
from treekit.export.table import LeafTable, leaf_table, node_table
from treekit.model.derived import DerivedColumns, derive
from treekit.model.ensemble import Model

__all__ = ["ABILITIES", "needs", "template_values"]

ABILITIES = {
    "sums": "splits on sums of columns, or surrogate splits",
    "parts": "rows that divide at missing values (missing='fractional')",
    "costs": "costs of mistakes that decide the label",
    "targets": "several targets",
    "links": "trees whose values add up, and links, as boosting makes them",
}
"""What not every model needs and templates may leave out: such a model is refused by name."""


def needs(model: Model) -> list[str]:
    """Keys of `ABILITIES` that templates must have for a model."""
    asked = {
        "sums": derive(model).n_columns > 0,
        "parts": model.missing == "fractional",
        "costs": model.label_costs is not None,
        "targets": bool(model.schema.more),
        "links": model.combine == "sum" or model.link != "identity",
    }
    return [ability for ability, needed in asked.items() if needed]


def template_values(model: Model, stem: str, language: Language) -> dict[str, Any]:
    """A model as values of templates.

    Numbers are `Code`: the elements of an array, comma between them, never
    none (an unread 0 stands where there would be none).  What is said of
    "sums", "parts", "costs" and "targets" is there for models that need it.

    Returns
    -------
    dict
        ``stem``: an identifier that looks like the name of the file.
        ``features``, ``outputs``, ``trees``, ``targets``, ``classes``: how many
        columns, numbers of an answer, trees, target columns, and classes of all
        targets (0: the model answers numbers).
        ``columns``: records of ``name`` (literal), ``nominal`` and ``levels``
        (literals); ``level_counts``: an array, -1 = a number.
        ``target_names``, ``labels`` (of each target a list): literals.
        ``form``: "table", or "parts"; ``answer``: "label", "labels", "number" or
        "numbers"; ``decide``: "most_votes" or "least_cost": names of templates to
        include.
        ``refuses_missing``, ``refuses_unseen``: 1 = the model refuses such rows.
        ``nodes``: arrays of `treekit.export.table.NodeTable` (value, question,
        yes, no), but that ``value`` of a set is where it begins in ``sets``
        (`treekit.export.bitsets.set_words`: first word, count of words, words of
        32 codes); ``root``: node of each tree.  For "parts" the arrays of
        `treekit.export.divided.DividedTable`, and ``level_branch``, ``deepest``.
        ``leaves``: arrays start, column, units: the votes of leaf v are entries
        ``start[v] .. start[v + 1]``; a column is a class or a number.
        ``unit_total``: votes of all trees, which a probability divides by;
        ``row_total`` and ``scale``: a number is ``sum / row_total * scale``;
        ``blocks``: array, the classes of target t are blocks[t] .. blocks[t + 1].
        ``costs``: array, of saying class j when it is i, at ``i * classes + j``.
        ``derived``: arrays of `treekit.model.derived.DerivedColumns`, columns
        behind those of the row; ``derived_count``; ``single``: 1 = the model's
        input type is float32, to which terms of sums are rounded.
    """
    schema = model.schema
    leaves, derived = leaf_table(model.units), derive(model)
    start, column, units = leaves.sparse()
    array, labels = language.array, [output.classes for output in schema.outputs]
    values = {
        "stem": identifier(stem, "model"),
        "features": schema.n_features,
        "outputs": schema.n_values,
        "trees": model.n_trees,
        "targets": len(schema.outputs),
        "classes": sum(map(len, labels)),
        "columns": [_column(column, language) for column in schema.columns],
        "level_counts": array(np.where(schema.nominal, schema.n_levels, -1)),
        "target_names": [language.text(output.name) for output in schema.outputs],
        "labels": [[language.text(str(label)) for label in some] for some in labels],
        "answer": _answer(schema),
        "decide": "most_votes" if model.label_costs is None else "least_cost",
        "refuses_missing": int(model.missing == "error"),
        "refuses_unseen": int(model.unknown == "error"),
        "leaves": _arrays(language, start=start, column=column, units=units),
        "unit_total": language.number(model.unit_total),
        "row_total": language.number(model.divisor),
        "scale": language.number(np.ldexp(1.0, model.exponent)),
        "blocks": array(np.array(schema.blocks)),
        "costs": Code("0") if model.label_costs is None else array(model.label_costs.ravel()),
        "derived": _derived_arrays(derived, language),
        "derived_count": derived.n_columns,
        "single": int(schema.dtype == "float32"),
    }
    if model.missing == "fractional":
        return values | _part_values(model, leaves, derived, language)
    return values | _table_values(model, leaves, derived, language)


def _column(column: Column, language: Language) -> dict[str, Any]:
    return {
        "name": language.text(column.name),
        "nominal": int(column.kind == "nominal"),
        "levels": [language.text(level) for level in column.levels],
    }


def _answer(schema: Schema) -> str:
    several = "s" if schema.more else ""
    return ("label" if schema.task == "classification" else "number") + several


def _arrays(language: Language, **arrays: npt.NDArray[Any]) -> dict[str, Code]:
    return {name: language.array(numbers) for name, numbers in arrays.items()}


def _derived_arrays(derived: DerivedColumns, language: Language) -> dict[str, Code]:
    arrays = derived._asdict()
    del arrays["column"]  # the nodes say it
    by_levels = derived.level_feature >= 0
    arrays["threshold"] = np.where(by_levels, 0.0, derived.threshold)
    return _arrays(language, **arrays)


def _table_values(
    model: Model, leaves: LeafTable, derived: DerivedColumns, language: Language
) -> dict[str, Any]:
    table = node_table(lower(model, derived), leaves, model.schema)
    words, offsets = set_words(table.set_start, table.set_codes)
    value = table.value.copy()
    value[table.question % 4 == 2] = offsets
    nodes = _arrays(language, value=value, question=table.question, yes=table.yes, no=table.no)
    return {
        "form": "table",
        "nodes": nodes,
        "root": language.array(table.root),
        "sets": language.array(words),
    }


def _part_values(
    model: Model, leaves: LeafTable, derived: DerivedColumns, language: Language
) -> dict[str, Any]:
    table = divided_table(model, leaves, derived)
    names = ("value", "question", "child", "low", "high")
    return {
        "form": "parts",
        "nodes": _arrays(language, **{name: getattr(table, name) for name in names}),
        "root": language.array(table.root),
        "level_branch": language.array(table.level_branch),
        "deepest": max(table.deepest, 1),
    }
