"""C source as nested tests above, and packed tables below."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treekit.export.c_form import CForm
from treekit.export.c_packed import packed_form
from treekit.export.c_tests import most_frames, test_values
from treekit.export.c_types import CTypes
from treekit.export.hot import hot_trees
from treekit.export.literals import Code
from treekit.export.table import LeafTable
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model

__all__ = ["hybrid_form"]

_MOST = 5000
"""Nested tests: gcc 12 takes 1.4 s for them; 3 s for 13,000, which are 12% faster (measured)."""


def hybrid_form(
    model: Model, leaves: LeafTable, derived: DerivedColumns, reason: str, types: CTypes
) -> CForm:
    """Nest the tests that most training rows met; a table of all nodes has the others.

    A row is read as it is asked: few of its cells are.  Batches walk the table
    alone, eight rows by turns, which is faster still.
    """
    made = packed_form(model, leaves, derived, reason, types)
    values, functions = test_values(
        model,
        hot_trees(model.trees, derived, _MOST),
        replace(leaves, row=np.arange(sum(tree.n_nodes for tree in model.trees))),
        derived,
        types,
        "The upper tests of each tree; what they return is the number of the next node.",
    )
    in_blocks, nominal = made.block > 0, bool(made.values["nominal_tables"])
    last = f"{types.prefix.upper()}_FEATURES"
    asked = f"{types.prefix}_derived(x, (int32_t)number - {last} - 1)"
    encodes = ["c/walk/next.jinja", "c/walk/encode.jinja"] if in_blocks else []
    return replace(
        made,
        name="hybrid",
        values=made.values
        | values
        | {
            "walks": [
                *encodes,
                *("c/walk/reach.jinja", "c/tests.jinja", "c/walk/sums_tests.jinja"),
            ],
            "behind_columns": Code(f"number > {last} ? {asked} : 0" if derived.n_columns else "0"),
            "cell_levels": ["c/walk/cell_levels.jinja"] if nominal else [],
        },
        tables=[one for one in made.tables if in_blocks or one.name != "nominal"],
        row_stack=most_frames(functions),
    )
