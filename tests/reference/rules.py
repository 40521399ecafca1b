"""The slow oracle of rules: each rule against each row, as a person would read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.reference.evaluate import to_float32
from treekit.rules import Condition, Rule, RuleList

__all__ = ["fitting", "sums"]


def fitting(rules: RuleList, row: Sequence[float]) -> list[Rule]:
    """All rules whose conditions the row meets."""
    cells = {}
    for column, x in zip(rules.schema.columns, row, strict=True):
        if column.kind == "nominal":
            cells[column.name] = column.levels[int(x)] if x in range(len(column.levels)) else None
        elif math.isnan(x):
            cells[column.name] = None
        else:
            cells[column.name] = to_float32(x) if rules.schema.dtype == "float32" else x
    return [rule for rule in rules if all(_meets(cells[c.column], c) for c in rule.conditions)]


def _meets(cell: float | str | None, condition: Condition) -> bool:
    if cell is None:
        return condition.missing
    if not condition.known:
        return False
    if condition.levels is not None:
        return cell in condition.levels
    above = condition.low == -math.inf or cell > condition.low
    return above and cell <= condition.high


def sums(rules: RuleList, row: Sequence[float]) -> list[int]:
    """Units of all fitting rules, summed."""
    total = [0] * rules.schema.n_values
    for rule in fitting(rules, row):
        total = [a + b for a, b in zip(total, rule.units, strict=True)]
    return total
