"""A model as values of templates: arrays and literals of any language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.features import LevelIndex
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.export.fractional import divided_form, divided_table
from treekit.export.literals import Array, Code, Language, Tables
from treekit.export.lowering import LeafTable, LoweredTree, leaf_table, lower, node_table, set_words
from treekit.export.nested_tests import SMALL, choose_form, source_functions, with_sets
from treekit.model import links
from treekit.model.derived_features import DerivedColumns, derive
from treekit.model.model import Model

__all__ = [
    "ABILITIES",
    "arrays_of",
    "form_values",
    "needs",
    "schema_values",
    "template_values",
]


# ---------------------------------------------------------------- values

Index = npt.NDArray[np.int64]

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


def template_values(
    model: Model,
    stem: str,
    language: Language,
    forms: Sequence[str] = ("table",),
    form: str = "auto",
    *,
    leaf_nodes: bool = False,
) -> dict[str, Any]:
    """A model as values of templates.

    Arrays are records that write their elements, comma between them, never
    none (an unread 0 stands where there would be none).  Where a language
    packs, ``form`` of an array tells how: ``elements``, or ``packed``, a list
    of string literals of ``each`` numbers; ``length`` and ``type`` ("f64",
    "i32", "i64", "u32") are there for both.  What is said of "sums", "parts",
    "costs", "targets" and "links" is there for models that need it.

    Parameters
    ----------
    forms : sequence of str
        Those that the templates have: "table", and maybe "if_else".
    form : {"auto", "table", "if_else"}
        The one that is wanted; auto: by the size of the model.
    leaf_nodes : bool
        Whether every leaf has a number of its own, so that its node can be told;
        else leaves that say the same share one.

    Returns
    -------
    dict
        ``stem``: an identifier that looks like the name of the file.
        ``features``, ``outputs``, ``trees``, ``targets``, ``classes``: how many
        columns, numbers of an answer, trees, target columns, and classes of all
        targets (0: the model answers numbers).
        ``columns``: records of ``name`` (literal), ``nominal``, ``levels``
        (literals), ``has_values`` (1 = a level is a number or bool), and ``aliases``:
        records of ``text`` (literal) and ``code``, see
        `treekit.data.features.LevelIndex`; ``has_values``: 1 = that of a column is;
        ``level_counts``: an array, -1 = a number; ``level_start``,
        ``level_order``: arrays, the codes of each column's levels in the order of
        their texts.
        ``target_names``, ``labels`` (of each target a list): literals.
        ``texts``: all names, labels of each target and levels of each column at
        once, a record like an array: ``literals``, or ``packed`` with ``lengths``
        in UTF-16 units; ``text_counts``: array, how many of each: of features,
        targets, each target's labels, and each column's levels.
        ``form``: "table", "if_else", or "parts"; ``answer``: "label", "labels",
        "number" or "numbers"; ``decide``: "most_votes" or "least_cost": names of
        templates to include.  ``reason``: why that form.
        ``refuses_missing``, ``refuses_unseen``: 1 = the model refuses such rows.
        ``nodes``: for "table" arrays of `treekit.export.lowering.NodeTable` (value,
        question, yes, no), but that ``value`` of a set is where it begins in
        ``sets`` (`treekit.export.lowering.set_words`: first word, count of words,
        words of 32 codes); ``root``: node of each tree; ``asks_sets``: 0 = nothing
        reads ``sets``.  For "parts" the arrays of
        `treekit.export.fractional.DividedTable`, and ``level_branch``, ``deepest``.
        ``inputs``, ``functions``: for "if_else" identifiers of the columns, and
        `treekit.export.nested_tests.SourceFunction` records, a called one first.
        ``leaves``: arrays start, column, units: the votes of leaf v are entries
        ``start[v] .. start[v + 1]``; a column is a class or a number.  With
        `leaf_nodes` v is ``row[l]`` of leaf l, and ``node[l]`` its node in its tree.
        ``margins``: 1 = classes have no votes but margins, numbers as below.
        ``unit_total``: votes of all trees, which a probability divides by;
        ``row_total`` and ``scale``: a number is ``sum / row_total * scale``;
        ``link``: "identity", "exp", "sigmoid" or "softmax", what turns numbers
        into answers, and ``exp`` its constants (`treekit.model.links`).
        ``blocks``: array, the classes of target t are blocks[t] .. blocks[t + 1].
        ``costs``: array, of saying class j when it is i, at ``i * classes + j``.
        ``derived``: arrays of `treekit.model.derived_features.DerivedColumns`, columns
        behind those of the row; ``derived_count``; ``single``: 1 = the model's
        input type is float32, to which terms of sums are rounded.
    """
    schema, tables = model.schema, Tables(language)
    leaves, derived = leaf_table(model.units), derive(model)
    start, column, units = leaves.sparse()
    arrays = arrays_of(tables, start=start, column=column) | {"units": tables(units, "i64")}
    numbered = leaves
    if leaf_nodes:
        nodes = np.concatenate([tree.leaves for tree in model.trees])
        arrays |= arrays_of(tables, row=leaves.row, node=nodes)
        numbered = replace(leaves, row=np.arange(model.n_leaves))
    costs = np.zeros(0, dtype=np.int64) if model.label_costs is None else model.label_costs.ravel()
    return (
        schema_values(schema, stem, tables)
        | {
            "trees": model.n_trees,
            "decide": Code("most_votes" if model.label_costs is None else "least_cost"),
            "refuses_missing": int(model.missing == "error"),
            "refuses_unseen": int(model.unknown == "error"),
            "leaves": arrays,
            "margins": int(model.margins),
            "unit_total": language.number(model.unit_total),
            "row_total": language.number(model.divisor),
            "scale": language.number(np.ldexp(1.0, model.exponent)),
            "link": Code(model.link),
            "exp": _exp_constants(language),
            "costs": tables(costs, "i64"),
            "derived": _derived_arrays(derived, tables),
            "derived_count": derived.n_columns,
            "single": int(schema.dtype == "float32"),
        }
        | form_values(model, numbered, derived, tables, forms, form)
    )


def schema_values(schema: Schema, stem: str, tables: Tables) -> dict[str, Any]:
    """Those of the values that the schema alone tells."""
    language = tables.language
    labels = [list(map(str, output.classes)) for output in schema.outputs]
    lists = [schema.names, [output.name for output in schema.outputs], *labels]
    lists += [column.levels for column in schema.columns]
    start, order = _level_order(schema)
    several = "s" if schema.more else ""
    columns = [_column(column, schema.missing_marks, language) for column in schema.columns]
    return {
        "stem": language.name(stem, "model"),
        "features": schema.n_features,
        "outputs": schema.n_values,
        "targets": len(schema.outputs),
        "classes": sum(map(len, labels)),
        "columns": columns,
        "has_values": int(any(column["has_values"] for column in columns)),
        "level_counts": tables(np.where(schema.nominal, schema.n_levels, -1)),
        "level_start": tables(start),
        "level_order": tables(order),
        "target_names": [language.text(output.name) for output in schema.outputs],
        "labels": [[language.text(label) for label in some] for some in labels],
        "texts": tables.texts([text for some in lists for text in some]),
        "text_counts": tables(np.array([len(some) for some in lists])),
        "answer": Code(("label" if schema.task == "classification" else "number") + several),
        "blocks": tables(np.array(schema.blocks)),
    }


def _column(column: Column, marks: Sequence[str], language: Language) -> dict[str, Any]:
    index = LevelIndex(column.levels, marks)
    return {
        "name": language.text(column.name),
        "nominal": int(column.kind == "nominal"),
        "levels": [language.text(level) for level in column.levels],
        "has_values": int(index.has_values),
        "aliases": [
            {"text": language.text(text), "code": code} for text, code in index.aliases.items()
        ],
    }


def _level_order(schema: Schema) -> tuple[Index, Index]:
    """(features + 1,) and (levels,): where a column's levels start, and their codes in order."""
    codes: list[int] = []
    for column in schema.columns:
        # Code points sort as the bytes of UTF-8 do.
        codes += sorted(range(len(column.levels)), key=column.levels.__getitem__)
    return np.cumsum([0, *schema.n_levels]), np.array(codes, dtype=np.int64)


def _exp_constants(language: Language) -> dict[str, Any]:
    names = ("limit", "log2_e", "ln2_high", "ln2_low")
    constants: dict[str, Any] = {n: language.number(getattr(links, n.upper())) for n in names}
    return constants | {"coefficients": [language.number(c) for c in links.COEFFICIENTS]}


def _derived_arrays(derived: DerivedColumns, tables: Tables) -> dict[str, Any]:
    arrays = derived._asdict()
    del arrays["column"]  # the nodes say it
    by_levels = derived.level_feature >= 0
    arrays["threshold"] = np.where(by_levels, 0.0, derived.threshold)
    return arrays_of(tables, **arrays)


# ---------------------------------------------------------------- form values
# The trees of a model as values of templates: tables, nested tests, or rows that divide.


def form_values(
    model: Model,
    leaves: LeafTable,
    derived: DerivedColumns,
    tables: Tables,
    forms: Sequence[str],
    wanted: str,
) -> dict[str, Any]:
    """What templates need to write the trees, as `treekit.export.template_values` tells.

    Parameters
    ----------
    forms : sequence of str
        Those that the templates have, of "table" and "if_else".
    wanted : {"auto", "table", "if_else"}

    Raises
    ------
    ExportError
        If nested tests are asked for and the model is too large, or its rows divide.
    """
    if model.missing == "fractional":
        reason = divided_form(wanted)[1]
        return {"form": Code("parts"), "reason": Code(reason)} | _parts(
            model, leaves, derived, tables
        )
    trees = lower(model, derived)
    n_nodes = sum(tree.n_nodes for tree in trees)
    if "if_else" not in forms:
        form, reason = "table", "the only one of this target"
    else:
        most = tables.language.limits.if_else_nodes
        form, reason = choose_form(wanted, n_nodes, min(SMALL, most))
        if form == "if_else" and n_nodes > most:
            raise ExportError(
                f"form='if_else' writes up to {most} nodes for this target, and the model has "
                f"{n_nodes}: choose form='table' or 'auto'"
            )
    told = {"form": Code(form), "reason": Code(reason)}
    if form == "if_else":
        return told | _nested_tests(model, trees, leaves, derived, tables)
    return told | _node_tables(model, trees, leaves, tables)


def _node_tables(
    model: Model,
    trees: tuple[LoweredTree, ...],
    leaves: LeafTable,
    tables: Tables,
) -> dict[str, Any]:
    table = node_table(trees, leaves, model.schema)
    words, offsets = set_words(table.set_start, table.set_codes)
    value = table.value.copy()
    value[table.question % 4 == 2] = offsets
    return {
        "nodes": arrays_of(
            tables, value=value, question=table.question, yes=table.yes, no=table.no
        ),
        "root": tables(table.root),
        "sets": tables(words, "u32"),
        "asks_sets": int(len(words) > 0),
    }


def _nested_tests(
    model: Model,
    trees: tuple[LoweredTree, ...],
    leaves: LeafTable,
    derived: DerivedColumns,
    tables: Tables,
) -> dict[str, Any]:
    language = tables.language
    columns = language.column_names(model.schema.names)
    functions, words = with_sets(
        source_functions(
            *(trees, model.schema, leaves, columns, derived, language.limits.depth),
            most=language.limits.function_nodes,
            indent=language.indent,
            outer=language.outer,
        )
    )
    return {
        "inputs": columns,
        "functions": functions,
        "sets": tables(words, "u32"),
        "asks_sets": int(len(words) > 0),
    }


def _parts(
    model: Model, leaves: LeafTable, derived: DerivedColumns, tables: Tables
) -> dict[str, Any]:
    table = divided_table(model, leaves, derived)
    names = ("value", "question", "child", "low", "high")
    return {
        "nodes": arrays_of(tables, **{name: getattr(table, name) for name in names}),
        "root": tables(table.root),
        "level_branch": tables(table.level_branch),
        "deepest": max(table.deepest, 1),
        "asks_sets": 0,
    }


def arrays_of(tables: Tables, **arrays: npt.NDArray[Any]) -> dict[str, Array]:
    """An array of each name."""
    return {name: tables(numbers) for name, numbers in arrays.items()}
