"""Tests with stand-ins for unknown values as SQL: the first clause that is known decides."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from treekit.errors import SettingError
from treekit.export.sql_dialect import Dialect
from treekit.export.sql_syntax import Sql
from treekit.model.fixed_point import double_threshold
from treekit.rules.rule_list import Clause, Linear, RuleList

__all__ = ["branch_value"]


class _Cells(Protocol):
    dialect: Dialect

    def cell(self, number: int) -> tuple[str, str, str]: ...
    def text(self, number: int) -> tuple[str, list[str]]: ...
    def printed(self, value: Sql) -> str: ...


def branch_value(cells: _Cells, rules: RuleList, number: int) -> str:
    """0 where a test holds, 1 where it fails, NULL where all that it asks is unknown.

    Raises
    ------
    SettingError
        If it adds up columns, or weighs one.
    """
    made = [_clause(cells, rules, clause, number) for clause in rules.tests[number]]
    return made[0] if len(made) == 1 else f"COALESCE({', '.join(made)})"


def _clause(cells: _Cells, rules: RuleList, clause: Clause, number: int) -> str:
    if isinstance(clause, Linear):
        if clause.weights != (1.0,):
            raise SettingError(
                f"test {number + 1} of the rules adds up columns, which a predicate cannot do as "
                "the model does: write form 'text', or export the model to sql"
            )
        value, known, _ = cells.cell(clause.features[0])
        at = clause.threshold
        if rules.schema.dtype == "float32":
            at = float(double_threshold(np.float64(at)))
        bound = cells.printed(cells.dialect.bound(at))
        inside = f"WHEN {value} <= {bound} THEN {clause.below}"
        return f"CASE WHEN NOT {known} THEN NULL {inside} ELSE {1 - clause.below} END"
    text, levels = cells.text(clause.feature)
    whens = []
    for side in (0, 1):
        own = [
            level for level, branch in zip(levels, clause.branches, strict=True) if branch == side
        ]
        if own:
            whens.append(f"WHEN {text} IN ({', '.join(own)}) THEN {side}")
    return f"CASE {' '.join(whens)} END" if whens else "CAST(NULL AS INTEGER)"
