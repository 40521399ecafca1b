"""Template values of a model: arrays and literals in the syntax of a language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.features import LevelIndex
from treekit.data.schema import Column, Schema
from treekit.data.text_format import SPACES
from treekit.errors import ExportError
from treekit.export.fractional import build_fractional_table, choose_fractional_form
from treekit.export.literals import BLANKS, Array, Code, Language, Tables
from treekit.export.lowering import (
    MAX_IF_ELSE_NODES,
    LeafTable,
    LoweredTree,
    NodeTable,
    TestKind,
    choose_form,
    leaf_table,
    lower,
    node_table,
    replace_large_sets,
    set_words,
    write_source_functions,
)
from treekit.model import links
from treekit.model.fixed_point import scale_units, split_wide_units
from treekit.model.model import Model
from treekit.model.tree import DerivedColumns

# ---------------------------------------------------------------- values

Index = npt.NDArray[np.int64]

ABILITIES = {
    "sums": "splits on sums of columns, or surrogate splits",
    "parts": "fractional instances (missing='fractional')",
    "costs": "misclassification costs that decide the label",
    "targets": "several targets",
    "links": "additive trees and link functions, as in boosting",
    "wide": "leaf values whose sums exceed 2**53, as they differ much in size",
    "floors": "numbers with fractional instances (missing='fractional'), rounded down in parts",
}
"""Optional features of a language; a model that needs a missing one is refused with its name."""


def needs(model: Model) -> list[str]:
    """Return the keys of `ABILITIES` that a model needs."""
    asked = {
        "sums": model.derived.n_columns > 0,
        "parts": model.missing == "fractional",
        "costs": model.label_costs is not None,
        "targets": bool(model.schema.more),
        "links": model.combine == "sum" or model.link != "identity",
        "wide": model.has_wide_sums,
        "floors": model.part_bits > 0,
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
    cells: bool = False,
    trees: tuple[LoweredTree, ...] | None = None,
) -> dict[str, Any]:
    """Compute the template values of a model.

    Arrays are records; ``{{ array }}`` writes the elements, separated by commas (a
    single unread 0 if the array is empty).  If the language packs arrays, ``form`` of
    an array is ``elements`` or ``packed``, a list
    of string literals of ``each`` numbers; ``length`` and ``type`` ("f64",
    "i32", "i64", "u32") and ``base64``, lines without quotes, exist for
    both.  Values of the abilities "sums", "parts",
    "costs", "targets", "links", "wide" and "floors" exist for models that need them.

    Parameters
    ----------
    forms : sequence of str
        Forms that the templates support: "table", and optionally "if_else".
    form : {"auto", "table", "if_else"}
        Requested form; "auto" chooses by the size of the model.
    leaf_nodes : bool
        Whether every leaf has its own number, from which its node can be looked up;
        otherwise leaves with equal values share one.
    cells : bool
        Whether tables test cells with extra cells for missing values, see `encode_cell_tests`,
        instead of questions.

    Returns
    -------
    dict
        ``stem``: identifier similar to the file name.
        ``features``, ``outputs``, ``trees``, ``targets``, ``classes``: number of
        columns, output values, trees, target columns, and classes of all
        targets (0: regression).
        ``columns``: records of ``name`` (literal), ``nominal``, ``levels``
        (literals), and ``aliases``: records of ``text`` (literal) and ``code``, other texts
        of the categories, sorted, see `treekit.data.features.LevelIndex`; ``has_aliases``:
        1 = a column has some; ``alias_codes``: array, the codes of all of them;
        ``level_counts``: array, -1 = numeric column; ``level_offsets``,
        ``level_order``: arrays, the codes of each column's categories, sorted by
        their texts.
        ``target_names``, ``labels``, ``label_values`` (a list for each target): literals,
        of texts and of the values as they are; ``label_type``: "str", "int", "float" or "bool".
        ``version`` (of treekit), ``task``, ``dtype``, ``missing``, ``unknown``: literals;
        ``missing_marks``, ``number_marks``: lists of literals, of nominal and of numeric
        columns; ``blanks``: literal of the white space that is removed around a mark;
        ``tells_missing``: 1 = the model refuses texts that are no categories, unless
        they are marks.
        ``notation``: None if numbers in text are in Python's notation, else literals of
        ``decimal``, ``thousands``, ``separator`` and ``pattern`` of
        `treekit.data.text_format.TextFormat`, and of its ``spaces``.
        ``texts``: all names, labels of each target, categories of each column and, if there
        are any, aliases of each column, in
        one record like an array: ``literals``, or ``packed`` with ``lengths``
        in UTF-16 units; ``text_counts``: array, the numbers of features,
        targets, labels of each target, categories, and aliases of each column.
        ``form``: "table", "if_else", or "parts"; ``answer``: "label", "labels",
        "number" or "numbers"; ``decide``: "most_votes" or "least_cost": names of
        templates to include.  ``reason``: reason for the form.
        ``refuses_missing``, ``refuses_unseen``: 1 = the model refuses such rows.
        ``nodes``: for "table" arrays of `treekit.export.lowering.NodeTable` (value,
        question, yes, no), except that ``value`` of a set is its start in
        ``sets`` (`treekit.export.lowering.set_words`: first word, number of words,
        words of 32 codes); ``root``: root node of each tree; ``asks_sets``: 0 = no node
        uses ``sets``.  For "parts" the arrays of
        `treekit.export.fractional.DividedTable`, and ``level_branch``, ``deepest``.
        ``inputs``, ``functions``: for "if_else" identifiers of the columns, and
        `treekit.export.lowering.SourceFunction` records, callees before callers.
        ``leaves``: arrays start, column, units: the votes of leaf v are entries
        ``start[v] .. start[v + 1]``; a column is a class or an output value.  With
        `leaf_nodes` v is ``row[l]`` of leaf l, and ``node[l]`` its node in its tree.
        ``leaf_values``: for "if_else", with `cells`: node of each leaf, and pairs of column and
        votes; ``leaf_units``: votes of each leaf of a model with one output, with `cells`.
        ``margins``: 1 = classes have margins, scaled as below, instead of votes.
        ``unit_total``: votes of all trees, the divisor of probabilities;
        ``row_total`` and ``scale``: an output value is ``sum / row_total * scale``;
        ``wide``: 1 = sums may exceed 2**53, and are rounded to a double before the division.
        ``sum_columns``: ``outputs``; with wide sums and no 64-bit integers in the language,
        twice that: column k of the leaves has the high part of output k, ``outputs + k`` the
        low part.  With ``floors`` always ``outputs``.
        ``floors``: 1 = a leaf adds ``floor(units * mass / 2**24)`` for a part of a row, 0 = it
        adds ``units * mass``.
        ``link``: link function from output values to predictions, "identity", "exp",
        "sigmoid" or "softmax", and ``exp`` its constants (`treekit.model.links`).
        ``blocks``: array, the classes of target t are blocks[t] .. blocks[t + 1].
        ``costs``: array, cost of predicting class j if the class is i, at ``i * classes + j``;
        ``cost_rows``: lists of integers, for each class i.
        ``derived``: arrays of `treekit.model.tree.DerivedColumns`, columns
        after those of the row; ``derived_count``; ``single``: 1 = the model's
        input dtype is float32, to which terms of sums are rounded.
    """
    schema, tables = model.schema, Tables(language)
    divides = model.part_bits > 0
    in_parts = model.has_wide_sums and language.wide == "double" and not divides
    units = split_wide_units(model.units) if in_parts else model.units
    leaves, derived = leaf_table(units), model.derived
    start, column, units = leaves.sparse()
    arrays = make_arrays(tables, start=start, column=column) | {"units": tables(units, "i64")}
    numbered = leaves
    if leaf_nodes:
        nodes = np.concatenate([tree.leaves for tree in model.trees])
        arrays |= make_arrays(tables, row=leaves.row, node=nodes)
        numbered = replace(leaves, row=np.arange(model.n_leaves))
    own = {"leaf_units": tables(model.units[:, 0], "i64")} if cells and schema.n_values == 1 else {}
    costs = np.zeros((0, 0), np.int64) if model.label_costs is None else model.label_costs
    return (
        compute_schema_values(schema, stem, tables)
        | own
        | {
            "version": language.text(__version__),
            "missing": language.text(model.missing),
            "unknown": language.text(model.unknown),
            "trees": model.n_trees,
            "decide": Code("most_votes" if model.label_costs is None else "least_cost"),
            "refuses_missing": int(model.missing == "error"),
            "refuses_unseen": int(model.unknown == "error"),
            "tells_missing": int(needs_missing_markers(model)),
            "leaves": arrays,
            "margins": int(model.margins),
            "unit_total": language.number(model.unit_total),
            "row_total": language.number(model.divisor),
            "wide": int(model.has_wide_sums),
            "floors": int(divides),
            "sum_columns": leaves.vectors.shape[1],
            **_make_scale_values(model, language),
            "link": Code(model.link),
            "exp": format_exp_constants(language),
            "costs": tables(costs.ravel(), "i64"),
            "cost_rows": costs.tolist(),
            "derived": _make_derived_arrays(derived, tables),
            "derived_count": derived.n_columns,
            "single": int(schema.dtype == "float32"),
        }
        | compute_form_values(model, trees, numbered, tables, forms, form, cells)
    )


def _make_scale_values(model: Model, language: Language) -> dict[str, Any]:
    """Return ``scale``, the step of all outputs, or ``scales``, those of outputs that differ.

    The other is false; a template without ``scales`` cannot write outputs that differ.
    """
    steps = [language.number(step) for step in scale_units(1.0, model.exponents).tolist()]
    if isinstance(model.exponent, int):
        return {"scale": steps[0], "scales": []}
    return {"scale": _NoCommonScale(), "scales": steps}


class _NoCommonScale:
    """The value of ``scale`` in a template if the outputs have different steps."""

    def __str__(self) -> str:
        raise ExportError(
            "the template writes one scale, but the outputs of this model differ in size and have "
            "a step each: use {{ scales }}, a literal for each output, where it is not empty"
        )


def compute_schema_values(schema: Schema, stem: str, tables: Tables) -> dict[str, Any]:
    """Compute the template values that depend on the schema alone."""
    language = tables.language
    labels = [list(map(str, output.classes)) for output in schema.outputs]
    lists = [schema.names, [output.name for output in schema.outputs], *labels]
    lists += [column.levels for column in schema.columns]
    indices = [LevelIndex(column.levels, schema.missing_marks) for column in schema.columns]
    aliases = [sorted(index.aliases.items()) for index in indices]
    has_aliases = any(aliases)
    lists += [[text for text, _ in own] for own in aliases] if has_aliases else []
    start, order = sort_levels(schema)
    several = "s" if schema.more else ""
    columns = [
        _describe_column(column, own, language)
        for column, own in zip(schema.columns, aliases, strict=True)
    ]
    return {
        "stem": language.name(stem, "model"),
        "features": schema.n_features,
        "outputs": schema.n_values,
        "targets": len(schema.outputs),
        "classes": sum(map(len, labels)),
        "columns": columns,
        "has_aliases": int(has_aliases),
        "alias_codes": tables(np.array([code for own in aliases for _, code in own], np.int64)),
        "level_counts": tables(np.where(schema.nominal, schema.n_levels, -1)),
        "level_start": tables(start),
        "level_order": tables(order),
        "target_names": [language.text(output.name) for output in schema.outputs],
        "labels": [[language.text(label) for label in some] for some in labels],
        "texts": tables.make_texts([text for some in lists for text in some]),
        "text_counts": tables(np.array([len(some) for some in lists])),
        "label_values": [list(map(language.value, output.classes)) for output in schema.outputs],
        "label_type": Code(type(schema.classes[0]).__name__ if schema.classes else "float"),
        "task": language.text(schema.task),
        "dtype": language.text(schema.dtype),
        "rounds": int(any(column.rounds for column in schema.columns)),
        "missing_marks": [language.text(mark) for mark in schema.missing_marks],
        "number_marks": [language.text(mark) for mark in schema.number_marks],
        "notation": _describe_notation(schema, language),
        "blanks": language.text(BLANKS),
        "answer": Code(("label" if schema.task == "classification" else "number") + several),
        "blocks": tables(np.array(schema.blocks)),
    }


def _describe_notation(schema: Schema, language: Language) -> dict[str, Code] | None:
    how = schema.text_format
    if how.is_plain:
        return None
    return {
        "decimal": language.text(how.decimal),
        "thousands": language.text(how.thousands),
        "separator": language.text(how.separator),
        "pattern": language.text(how.pattern.pattern),
        "spaces": language.text(SPACES),
    }


def needs_missing_markers(model: Model) -> bool:
    """Return whether a text that is no category is either a mark of missing values or refused."""
    return bool(
        model.unknown == "error" and model.missing != "error" and model.schema.nominal.any()
    )


def _describe_column(
    column: Column, aliases: Sequence[tuple[str, int]], language: Language
) -> dict[str, Any]:
    return {
        "name": language.text(column.name),
        "nominal": int(column.kind == "nominal"),
        "levels": [language.text(level) for level in column.levels],
        "rounds": int(column.rounds == "to_zero") + 2 * int(column.rounds == "float32_down"),
        "aliases": [{"text": language.text(text), "code": code} for text, code in aliases],
    }


def sort_levels(schema: Schema) -> tuple[Index, Index]:
    """Return offsets (features + 1,) of the columns and their codes (levels,), sorted by text."""
    codes: list[int] = []
    for column in schema.columns:
        # Code points sort in the same order as UTF-8 bytes.
        codes += sorted(range(len(column.levels)), key=column.levels.__getitem__)
    return np.cumsum([0, *schema.n_levels]), np.array(codes, dtype=np.int64)


def format_exp_constants(language: Language) -> dict[str, Any]:
    """Return the constants of the exponential function as literals."""
    return {
        "limit": language.number(links.EXP_LIMIT),
        "log2_e": language.number(links.LOG2_E),
        "ln2_high": language.number(links.LN2_HIGH),
        "ln2_low": language.number(links.LN2_LOW),
        "coefficients": [language.number(c) for c in links.EXP_COEFFICIENTS],
    }


def _make_derived_arrays(derived: DerivedColumns, tables: Tables) -> dict[str, Any]:
    arrays = derived._asdict()
    del arrays["column"]  # the nodes refer to derived columns by their feature numbers
    by_levels = derived.level_feature >= 0
    arrays["threshold"] = np.where(by_levels, 0.0, derived.threshold)
    return make_arrays(tables, **arrays)


# ---------------------------------------------------------------- form values


def compute_form_values(
    model: Model,
    trees: tuple[LoweredTree, ...] | None,
    leaves: LeafTable,
    tables: Tables,
    forms: Sequence[str],
    wanted: str,
    cells: bool = False,
) -> dict[str, Any]:
    """Compute the template values of the trees; see `treekit.export.template_values`.

    Parameters
    ----------
    forms : sequence of str
        Forms that the templates support, of "table" and "if_else".
    wanted : {"auto", "table", "if_else"}

    Raises
    ------
    ExportError
        If nested tests are requested and the model is too large or uses fractional instances.
    """
    if model.missing == "fractional":
        reason = choose_fractional_form(wanted)[1]
        divided = build_fractional_table(model, leaves)
        names = ("value", "question", "child", "low", "high")
        return {
            "form": Code("parts"),
            "reason": Code(reason),
            "nodes": make_arrays(tables, **{name: getattr(divided, name) for name in names}),
            "root": tables(divided.root),
            "level_branch": tables(divided.level_branch),
            "deepest": divided.deepest,
            "asks_sets": 0,
        }
    trees = lower(model) if trees is None else trees
    n_nodes = sum(tree.n_nodes for tree in trees)
    if "if_else" not in forms:
        form, reason = "table", "the only form of this target"
    else:
        most = tables.language.limits.if_else_nodes
        form, reason = choose_form(wanted, n_nodes, min(MAX_IF_ELSE_NODES, most))
        if form == "if_else" and n_nodes > most:
            raise ExportError(
                f"form='if_else' supports up to {most} nodes for this target; the model has "
                f"{n_nodes}: choose form='table' or 'auto'"
            )
    chosen = {"form": Code(form), "reason": Code(reason)}
    if form == "if_else":
        values = _compute_if_else_values(model, trees, leaves, tables)
        return chosen | values | ({"leaf_values": _list_leaf_values(model)} if cells else {})
    table = node_table(trees, leaves, model.schema)
    if cells:
        return chosen | encode_cell_tests(table, model, tables)
    words, offsets = set_words(table.set_start, table.set_codes)
    value = table.value.copy()
    value[table.question % 4 == TestKind.IN] = offsets
    return chosen | {
        "nodes": make_arrays(
            tables, value=value, question=table.question, yes=table.yes, no=table.no
        ),
        "root": tables(table.root),
        "sets": tables(words, "u32"),
        "asks_sets": int(len(words) > 0),
    }


def _list_leaf_values(model: Model) -> list[tuple[int, list[tuple[int, int]]]]:
    """List the node of each leaf in its tree, and its votes as pairs of column and number."""
    nodes = [int(node) for tree in model.trees for node in tree.leaves]
    start, column, units = LeafTable(np.arange(model.n_leaves), model.units).sparse()
    pairs = list(zip(column.tolist(), units.tolist(), strict=True))
    bounds = pairwise(start.tolist())
    return [(node, pairs[a:b]) for node, (a, b) in zip(nodes, bounds, strict=True)]


def encode_cell_tests(table: NodeTable, model: Model, tables: Tables) -> dict[str, Any]:
    """Encode the nodes for a loop with few cases, which reads cells instead of questions.

    Missing values get extra cells after those of the row: for each column of ``cells.low`` its
    value or -inf, which is below any threshold, if the missing branch is yes; for each of
    ``cells.gone`` 0 if the value is missing, else 1.  Node i takes the branch yes if cell
    ``asks[i]`` is at most ``value[i]``; if ``asks[i]`` is negative, if the code of
    ``cells.set_column`` is in set ``-1 - asks[i]``, or, beyond the sets, if that derived column
    takes branch 0, where an unknown one counts as ``value[i]``.
    """
    feature, kind, n = table.question >> 2, table.question & 3, model.schema.n_features
    is_set, is_derived = kind == TestKind.IN, feature >= n
    low, gone = (kind == TestKind.LE_MISSING_YES) & ~is_derived, kind == TestKind.MISSING
    low_columns, low_rank = np.unique(feature[low], return_inverse=True)
    gone_columns, gone_rank = np.unique(feature[gone], return_inverse=True)
    asks, value = feature.copy(), table.value.copy()
    asks[low] = n + low_rank
    asks[gone] = n + len(low_columns) + gone_rank
    asks[is_set] = -1 - np.arange(np.count_nonzero(is_set))
    asks[is_derived] = -1 - np.count_nonzero(is_set) - (feature[is_derived] - n)
    value[is_set] = 0.0
    value[is_derived] = kind[is_derived] == TestKind.LE_MISSING_NO
    return {
        "nodes": make_arrays(tables, value=value, asks=asks, yes=table.yes, no=table.no),
        "root": tables(table.root),
        "cells": make_arrays(
            tables,
            low=low_columns,
            gone=gone_columns,
            set_column=feature[is_set],
            set_start=table.set_start,
            set_codes=table.set_codes,
        ),
    }


def _compute_if_else_values(
    model: Model,
    trees: tuple[LoweredTree, ...],
    leaves: LeafTable,
    tables: Tables,
) -> dict[str, Any]:
    language, limits = tables.language, tables.language.limits
    columns = language.column_names(model.schema.names)
    functions = write_source_functions(
        *(trees, model.schema, leaves, columns, model.derived),
        *(limits.depth, limits.function_nodes),
        indent=language.indent,
        outer=language.outer,
    )
    functions, words = replace_large_sets(functions, limits.inline_codes)
    return {
        "inputs": columns,
        "functions": functions,
        "sets": tables(words, "u32"),
        "asks_sets": int(len(words) > 0),
    }


def make_arrays(tables: Tables, **arrays: npt.NDArray[Any]) -> dict[str, Array]:
    """Make an array of each keyword argument."""
    return {name: tables(numbers) for name, numbers in arrays.items()}
