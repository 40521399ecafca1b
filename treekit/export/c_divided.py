"""C source as tables of rows that divide where a value is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.export.c_form import CForm
from treekit.export.c_tables import c_table, struct_table
from treekit.export.c_types import CTypes
from treekit.export.divided import DividedTable, divided_form, divided_table
from treekit.export.literals import Code
from treekit.export.table import LeafTable
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model

__all__ = ["divided_source_form"]

_LE, _LEVELS = 0, 2
_DIVISION = 16  # bytes of a mass and a node, as C aligns them


def divided_source_form(
    model: Model, leaves: LeafTable, derived: DerivedColumns, wanted: str, types: CTypes
) -> CForm:
    """Write one table of n-ary nodes, and a loop that needs a stack of divisions."""
    name, reason = divided_form(wanted)
    table = divided_table(model, leaves, derived)
    members = (table.question, table.child, table.low, table.high)
    own = [_keys(model, table, types), *(member.astype(np.int32) for member in members)]
    cell, uses = f"{types.number}(x[feature])", {"is_missing"}
    if derived.n_columns:
        first = f"{types.prefix.upper()}_FEATURES"
        asked = f"{types.prefix}_derived(x, feature - {first})"
        cell = f"feature < {first} ? {cell} : {asked}"
        uses.add("derived")
    deepest = max(table.deepest, 1)  # an array needs an element
    return CForm(
        name=name,
        reason=reason,
        template="divided",
        values={"deepest": deepest, "cell": Code(cell)},
        tables=[
            struct_table("nodes", f"struct {types.prefix}_node", own),
            c_table("roots", table.root.astype(np.int32)),
            c_table("branches", table.level_branch.astype(np.int32)),
        ],
        uses=uses,
        row_stack=_DIVISION * deepest,
        leaves=False,
    )


def _keys(model: Model, table: DividedTable, types: CTypes) -> npt.NDArray[Any]:
    """What each node compares with, as an ordered key, or where its branches of levels start."""
    asks, kind = table.question >= 0, table.question % 4
    key = np.zeros(len(table.question), dtype=types.key_type)  # 0: a derived column's
    levels = asks & (kind == _LEVELS)
    key[levels] = table.value[levels].astype(types.key_type)
    plain = asks & (kind == _LE) & (table.question // 4 < model.schema.n_features)
    key[plain] = types.keys(np.concatenate([tree.threshold for tree in model.trees])[plain])
    return key
