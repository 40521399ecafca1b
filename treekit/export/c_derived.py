"""Derived columns as tables of C, which a small function reads.

A test of one column is compared as an ordered key is, and a test of levels looks
its branch up; only true sums compute in doubles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.c_tables import CTable, c_table, struct_table
from treekit.export.c_types import CTypes
from treekit.export.literals import Code
from treekit.model.derived_features import DerivedColumns
from treekit.model.fixed_point import floor_to

__all__ = ["derived_source", "refuse_sums"]

_KINDS = {
    "sum": ("sum", "> 0", {"float32"}),
    "number": ("compared", "== 0", {"number"}),
    "level": ("of_level", "< 0", {"is_level"}),
}
"""Function, how a test's count tells the kind, and helpers."""


def derived_source(
    derived: DerivedColumns, schema: Schema, types: CTypes
) -> tuple[dict[str, Any], list[CTable], set[str]]:
    """Values and tables of ``c/helpers/derived.jinja``, and the helpers that it calls."""
    by_level, first_term = derived.level_feature >= 0, derived.term_start[:-1]
    terms = np.diff(derived.term_start)
    sums = _sums(derived)
    alone = ~by_level & ~sums
    levels = np.diff(derived.level_start)
    column = np.where(by_level, derived.level_feature, -1)
    column[alone] = derived.term_feature[first_term[alone]]
    # How a test's count tells its kind: see the comment in the template.
    count = np.where(by_level, -1 - levels, np.where(alone, 0, terms))
    first = np.where(by_level, derived.level_start[:-1], np.where(sums, first_term, 0))
    members = (derived.below, derived.above, derived.lost, column, first, count)
    tables = [
        c_table("test_starts", derived.test_start.astype(np.int32)),
        struct_table(
            *("tests", f"struct {types.prefix}_test"),
            [_limits(derived, alone, sums, schema, types), *(m.astype(np.int32) for m in members)],
        ),
    ]
    if sums.any():
        tables += [
            c_table("limits", derived.threshold[sums]),
            c_table("weights", derived.term_weight),
            c_table("terms", derived.term_feature.astype(np.int32)),
        ]
    if by_level.any():
        tables.append(c_table("test_branches", derived.level_branch.astype(np.int32)))
    there = {"sum": sums.any(), "number": alone.any(), "level": by_level.any()}
    kinds = [kind for kind, some in there.items() if some]
    values = {
        "derived_kinds": [
            {
                "says": f"c/helpers/derived_{kind}_says.jinja",
                "answers": f"c/helpers/derived_{kind}.jinja",
                "name": Code(_KINDS[kind][0]),
                "told_by": Code(_KINDS[kind][1]),
            }
            for kind in kinds
        ]
    }
    return values, tables, set().union(*(_KINDS[kind][2] for kind in kinds))


def refuse_sums(derived: DerivedColumns) -> None:
    """Raise `ExportError` if a derived column needs floating point."""
    if _sums(derived).any():
        raise ExportError(
            "arithmetic='integer' cannot add up columns, as this model's splits on sums of "
            "columns do: choose arithmetic='float', or train without oblique splits"
        )


def _sums(derived: DerivedColumns) -> npt.NDArray[np.bool_]:
    """(tests,) bool: which of them are more than one column compared with a threshold."""
    terms = np.diff(derived.term_start)
    alone = terms == 1
    alone[alone] = derived.term_weight[derived.term_start[:-1][alone]] == 1.0
    result: npt.NDArray[np.bool_] = (derived.level_feature < 0) & ~alone
    return result


def _limits(
    derived: DerivedColumns,
    alone: npt.NDArray[np.bool_],
    sums: npt.NDArray[np.bool_],
    schema: Schema,
    types: CTypes,
) -> npt.NDArray[Any]:
    """Key that a test of one column compares with, number of a sum's limit; else 0."""
    limit = np.zeros(len(derived.threshold), dtype=types.key_type)
    limit[alone] = types.keys(floor_to(derived.threshold[alone], schema.dtype))
    limit[sums] = np.arange(np.count_nonzero(sums))
    return limit
