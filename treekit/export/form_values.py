"""The trees of a model as values of templates: tables, nested tests, or rows that divide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.arrays import Array, Tables
from treekit.export.bitsets import set_words
from treekit.export.divided import divided_form, divided_table
from treekit.export.literals import Code
from treekit.export.lower import LoweredTree, lower
from treekit.export.nesting import SMALL, choose_form
from treekit.export.source import source_functions
from treekit.export.source_sets import with_sets
from treekit.export.table import LeafTable, node_table
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model

__all__ = ["arrays_of", "form_values"]


def form_values(
    model: Model,
    leaves: LeafTable,
    derived: DerivedColumns,
    tables: Tables,
    forms: Sequence[str],
    wanted: str,
) -> dict[str, Any]:
    """What templates need to write the trees, as `treekit.export.values` tells.

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
