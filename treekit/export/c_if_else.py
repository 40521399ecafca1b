"""C source as nested tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from treekit.export.bitsets import set_words
from treekit.export.c_form import CForm
from treekit.export.c_tables import CTable, c_table, narrow
from treekit.export.c_types import CTypes
from treekit.export.literals import Code, identifiers
from treekit.export.lower import lower
from treekit.export.source import SourceFunction, SourceLine, source_functions
from treekit.export.table import LeafTable
from treekit.model.derived import DerivedColumns
from treekit.model.ensemble import Model

__all__ = ["if_else_form"]

_DEEPEST = 24  # far below the 127 nested blocks that C99 5.2.4.1 promises
_FEW = 4  # sets of more codes become bit masks
_ENUM = 1000  # C99 5.2.4.1 promises 1023 constants in one enumeration
_FRAME = 192  # bytes of a call on the stack; s390x saves 160 of registers
_CALLED = {
    "missing_level": "is_level",
    "in_set": "has_code",
    "sum_missing_no": "float32",
    "sum_missing_yes": "float32",
    "derived_missing_no": "derived",
    "derived_missing_yes": "derived",
}
_BY_KEY = ("le_missing_yes", "missing_number")
"""Lines that are written otherwise where a missing value is not NaN but a number."""


def if_else_form(
    model: Model, leaves: LeafTable, derived: DerivedColumns, reason: str, types: CTypes
) -> CForm:
    """Write each tree as functions of nested tests, which return the number of a leaf."""
    columns = identifiers(model.schema.names, f"{types.prefix}_in_")
    functions, sets = _with_sets(_functions(model, leaves, derived, columns, types), types)
    uses = {_CALLED[line.op] for f in functions for line in f.lines if line.op in _CALLED}
    numbered = list(enumerate(columns))
    nodes = np.concatenate([tree.leaves for tree in model.trees]).astype(np.int32)
    tables = [c_table("leaf_rows", narrow(leaves.row)), c_table("leaf_nodes", nodes)]
    return CForm(
        name="if_else",
        reason=reason,
        template="if_else",
        values={
            "columns": [numbered[i : i + _ENUM] for i in range(0, len(numbered), _ENUM)],
            "functions": functions,
        },
        tables=[*tables, sets] if "has_code" in uses else tables,
        uses=uses,
        row_stack=_FRAME * (1 + max(function.part for function in functions)),
    )


def _functions(
    model: Model,
    leaves: LeafTable,
    derived: DerivedColumns,
    columns: list[Code],
    types: CTypes,
) -> list[SourceFunction]:
    numbered = replace(leaves, row=np.arange(model.n_leaves))
    return source_functions(
        *(lower(model, derived), model.schema, numbered, columns, derived, _DEEPEST),
        thresholds=lambda tree: types.thresholds(model, tree),
    )


def _with_sets(
    functions: list[SourceFunction], types: CTypes
) -> tuple[list[SourceFunction], CTable]:
    """Large sets as look-ups in a table, and the table."""
    sets = [line for f in functions for line in f.lines if len(line.codes) > _FEW]
    starts = np.cumsum([0, *(len(line.codes) for line in sets)])
    codes = np.array([code for line in sets for code in line.codes], dtype=np.int64)
    words, offsets = set_words(starts, codes)
    offset = iter(offsets.tolist())
    made = [
        replace(f, lines=tuple(_line(line, offset, types) for line in f.lines)) for f in functions
    ]
    return made, c_table("sets", words)


def _line(line: SourceLine, offset: Iterator[int], types: CTypes) -> SourceLine:
    """Turn a line that asks a large set into a look-up at the next offset; name keys' lines."""
    if len(line.codes) > _FEW:
        return replace(line, op="in_set", at=next(offset))
    if types.whole and line.op in _BY_KEY:
        return replace(line, op=f"{line.op}_by_key")
    return line
