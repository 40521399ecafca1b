"""The forms of C source: nested tests, tables, and tables of rows that divide.

What each function returns are values of the templates; ``uses`` names the
templates of ``c/helpers`` that the form calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from treekit.data.schema import Schema
from treekit.export.bitsets import set_words
from treekit.export.derived import c_tables
from treekit.export.divided import divided_form, divided_table
from treekit.export.literals import Code, identifiers, lines
from treekit.export.lower import LoweredTree, lower
from treekit.export.nesting import choose_form
from treekit.export.source import SourceLine, source_functions
from treekit.export.table import LeafTable, node_table
from treekit.model.derived import DerivedColumns
from treekit.model.ensemble import Model

__all__ = ["divided_values", "one_way_values"]

_DEEPEST = 24  # far below the 127 nested blocks that C99 5.2.4.1 promises
_FEW = 4  # sets of more codes become bit masks
_ENUM = 1000  # C99 5.2.4.1 promises 1023 constants in one enumeration
_CALLED = {
    "missing_level": "is_level",
    "in_set": "has_code",
    "sum_missing_no": "float32",
    "sum_missing_yes": "float32",
    "derived_missing_no": "derived",
    "derived_missing_yes": "derived",
}


def one_way_values(
    model: Model, leaves: LeafTable, derived: DerivedColumns, form: str, prefix: Code
) -> dict[str, Any]:
    """Nested tests or tables, for models that send each row one way."""
    trees = lower(model, derived)
    chosen, reason = choose_form(form, sum(tree.n_nodes for tree in trees))
    if chosen == "if_else":
        values = _if_else_values(model.schema, trees, leaves, derived, prefix)
    else:
        values = _table_values(model.schema, trees, leaves)
    return values | _with_derived(chosen, reason, derived, prefix)


def divided_values(
    model: Model, leaves: LeafTable, derived: DerivedColumns, form: str, prefix: Code
) -> dict[str, Any]:
    """Tables for models whose rows divide at missing values."""
    chosen, reason = divided_form(form)
    table = divided_table(model, leaves, derived)
    nodes = zip(
        map(repr, table.value.tolist()),
        *(a.tolist() for a in (table.question, table.child, table.low, table.high)),
        strict=True,
    )
    return {
        "form_template": "divided",
        "nodes": Code(",\n".join(map("{%s, %d, %d, %d, %d}".__mod__, nodes))),
        "roots": lines(table.root),
        "branches": lines(table.level_branch) or Code("0"),
        "deepest": max(table.deepest, 1),  # an array needs an element
        "uses": {"is_missing", "cell"},
    } | _with_derived(chosen, reason, derived, prefix)


def _with_derived(form: str, reason: str, derived: DerivedColumns, prefix: Code) -> dict[str, Any]:
    cell = f"{prefix}_cell(x, feature)" if derived.n_columns else "x[feature]"
    return {
        "form": Code(form),
        "reason": Code(reason),
        "derived": c_tables(derived),
        "cell": Code(cell),
    }


def _if_else_values(
    schema: Schema,
    trees: tuple[LoweredTree, ...],
    leaves: LeafTable,
    derived: DerivedColumns,
    prefix: Code,
) -> dict[str, Any]:
    columns: Sequence[Code] = identifiers(schema.names, f"{prefix}_in_")
    functions = source_functions(trees, schema, leaves, columns, derived, _DEEPEST)
    sets = [line for f in functions for line in f.lines if len(line.codes) > _FEW]
    starts = np.cumsum([0, *(len(line.codes) for line in sets)])
    codes = np.array([code for line in sets for code in line.codes], dtype=np.int64)
    words, offsets = set_words(starts, codes)
    offset = iter(offsets.tolist())
    functions = [
        replace(f, lines=tuple(_with_set(line, offset) for line in f.lines)) for f in functions
    ]
    numbered = list(enumerate(columns))
    return {
        "form_template": "if_else",
        "columns": [numbered[i : i + _ENUM] for i in range(0, len(numbered), _ENUM)],
        "functions": functions,
        "set_words": lines(words),
        "uses": {_CALLED.get(line.op, "") for f in functions for line in f.lines},
    }


def _with_set(line: SourceLine, offset: Iterator[int]) -> SourceLine:
    """Turn a line that asks a large set into a look-up at the next offset."""
    if len(line.codes) <= _FEW:
        return line
    return replace(line, op="in_set", at=next(offset))


def _table_values(
    schema: Schema, trees: tuple[LoweredTree, ...], leaves: LeafTable
) -> dict[str, Any]:
    table = node_table(trees, leaves, schema)
    words, offsets = set_words(table.set_start, table.set_codes)
    value = table.value.copy()
    value[table.question % 4 == 2] = offsets
    nodes = zip(
        map(repr, value.tolist()),
        *(a.tolist() for a in (table.question, table.yes, table.no)),
        strict=True,
    )
    return {
        "form_template": "table",
        # An array needs an element even where every tree is one leaf.
        "nodes": Code(",\n".join(map("{%s, %d, %d, %d}".__mod__, nodes)) or "{0.0, 0, -1, -1}"),
        "roots": lines(table.root),
        # The loop names the sets even if no node asks one: an empty set.
        "set_words": lines(words if len(words) else np.zeros(3, dtype=np.uint32)),
        "uses": {"has_code", "is_missing", "cell"},
    }
