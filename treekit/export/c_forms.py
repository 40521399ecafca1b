"""The choice between the forms of C source: nested tests, or tables."""

from __future__ import annotations

from treekit.export.c_divided import divided_source_form
from treekit.export.c_form import CForm
from treekit.export.c_if_else import if_else_form
from treekit.export.c_packed import packed_form
from treekit.export.c_types import CTypes
from treekit.export.nesting import choose_form
from treekit.export.table import LeafTable
from treekit.model.derived import DerivedColumns
from treekit.model.ensemble import Model

__all__ = ["c_form"]


def c_form(
    model: Model, leaves: LeafTable, derived: DerivedColumns, wanted: str, types: CTypes
) -> CForm:
    """Choose a form for a model, and make it.

    Parameters
    ----------
    wanted : {"auto", "if_else", "table"}

    Raises
    ------
    ExportError
        If the model cannot have that form, or outgrows 32-bit tables.
    """
    if model.missing == "fractional":
        return divided_source_form(model, leaves, derived, wanted, types)
    name, reason = choose_form(wanted, model.n_nodes)
    make = if_else_form if name == "if_else" else packed_form
    return make(model, leaves, derived, reason, types)
