"""The choice between the forms of C source: nested tests, tables, or both."""

from __future__ import annotations

from treekit.export.c_divided import divided_source_form
from treekit.export.c_form import CForm
from treekit.export.c_heaps import heap_form
from treekit.export.c_hybrid import hybrid_form
from treekit.export.c_if_else import if_else_form
from treekit.export.c_packed import EIGHT, packed_form
from treekit.export.c_types import CTypes
from treekit.export.heaps import heaps
from treekit.export.nesting import AS_ASKED, choose_form
from treekit.export.table import LeafTable
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model

__all__ = ["c_form"]


def c_form(
    model: Model, leaves: LeafTable, derived: DerivedColumns, wanted: str, types: CTypes
) -> CForm:
    """Choose a form for a model, and make it.

    Parameters
    ----------
    wanted : {"auto", "if_else", "hybrid", "table"}
        "auto" takes nested tests up to `treekit.export.nesting.SMALL` nodes, which
        people can read.  Of larger models those of fewer trees than a row walks by
        turns (`treekit.export.c_packed.EIGHT`) are hybrids: one walk waits for each
        node of the table, where nested tests are guessed.  All others are tables,
        whose walks wait together; of trees that are nearly complete, tables without
        numbers of children (`treekit.export.heaps`).  Sources of integer arithmetic
        are neither hybrids nor complete trees: they are for small processors, which
        guess little and have no room.

    Raises
    ------
    ExportError
        If the model cannot have that form, or outgrows 32-bit tables.
    """
    if model.missing == "fractional":
        return divided_source_form(model, leaves, derived, wanted, types)
    if wanted == "hybrid":
        return hybrid_form(model, leaves, derived, AS_ASKED, types)
    name, reason = choose_form(wanted, model.n_nodes)
    if name == "if_else":
        return if_else_form(model, leaves, derived, reason, types)
    if wanted == "auto" and model.n_trees < EIGHT and not types.whole:
        reason = f"the model has {model.n_nodes} nodes, and fewer than {EIGHT} trees"
        return hybrid_form(model, leaves, derived, reason, types)
    found = None if types.whole else heaps(model, leaves, derived, EIGHT)
    if found is not None:
        return heap_form(model, found, reason, types, EIGHT)
    return packed_form(model, leaves, derived, reason, types)
