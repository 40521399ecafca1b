"""C source as nested tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from treekit.export.bitsets import set_words
from treekit.export.c_form import CForm
from treekit.export.c_tables import CTable, c_table, narrow
from treekit.export.c_tests import most_frames, test_values
from treekit.export.c_types import CTypes
from treekit.export.lower import lower
from treekit.export.source import SourceFunction, SourceLine
from treekit.export.table import LeafTable
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model

__all__ = ["if_else_form"]

_FEW = 4  # sets of more codes become bit masks
_CALLED = {
    "missing_level": "is_level",
    "in_set": "has_code",
    "sum_missing_no": "float32",
    "sum_missing_yes": "float32",
    "derived_missing_no": "derived",
    "derived_missing_yes": "derived",
}


def if_else_form(
    model: Model, leaves: LeafTable, derived: DerivedColumns, reason: str, types: CTypes
) -> CForm:
    """Write each tree as functions of nested tests, which return the number of a leaf."""
    numbered = replace(leaves, row=np.arange(model.n_leaves))
    values, functions = test_values(
        *(model, lower(model, derived), numbered, derived, types),
        "Each tree as nested tests; what it returns is the number of a leaf.",
    )
    functions, sets = _with_sets(functions)
    uses = {_CALLED[line.op] for f in functions for line in f.lines if line.op in _CALLED}
    nodes = np.concatenate([tree.leaves for tree in model.trees]).astype(np.int32)
    tables = [c_table("leaf_rows", narrow(leaves.row)), c_table("leaf_nodes", nodes)]
    return CForm(
        name="if_else",
        reason=reason,
        template="if_else",
        values=values | {"functions": functions},
        tables=[*tables, sets] if "has_code" in uses else tables,
        uses=uses,
        row_stack=most_frames(functions),
    )


def _with_sets(functions: list[SourceFunction]) -> tuple[list[SourceFunction], CTable]:
    """Large sets as look-ups in a table, and the table."""
    sets = [line for f in functions for line in f.lines if len(line.codes) > _FEW]
    starts = np.cumsum([0, *(len(line.codes) for line in sets)])
    codes = np.array([code for line in sets for code in line.codes], dtype=np.int64)
    words, offsets = set_words(starts, codes)
    offset = iter(offsets.tolist())
    made = [replace(f, lines=tuple(_line(line, offset) for line in f.lines)) for f in functions]
    return made, c_table("sets", words)


def _line(line: SourceLine, offset: Iterator[int]) -> SourceLine:
    """Turn a line that asks a large set into a look-up at the next offset."""
    if len(line.codes) > _FEW:
        return replace(line, op="in_set", at=next(offset))
    return line
