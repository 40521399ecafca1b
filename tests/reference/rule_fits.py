"""Rules matching a row, evaluated condition by condition from the rule records."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.rules import RuleList
from treekit.rules.rule_list import Condition, evaluate_test

__all__ = ["fitting"]


def fitting(rules: RuleList, rows: Any) -> npt.NDArray[np.bool_]:
    """Return as (rows, rules) bool whether a row is accepted and meets all conditions of a rule."""
    matrix = np.array(rows, dtype=np.float64)
    if rules.schema.dtype == "float32":
        with np.errstate(over="ignore", under="ignore"):
            rounded = matrix.astype(np.float32).astype(np.float64)
        matrix = np.where(rules.schema.nominal, matrix, rounded)
    met = [
        np.all([_meets(rules, c, matrix) for c in rule.conditions] or [True], axis=0)
        for rule in rules
    ]
    found = np.stack([np.broadcast_to(one, len(matrix)) for one in met], axis=1)
    return found & ~rules.refused(rows)[:, None]


def _meets(rules: RuleList, condition: Condition, matrix: Any) -> npt.NDArray[np.bool_]:
    if condition.test is not None:
        values = evaluate_test(rules.tests[condition.test], matrix)
    else:
        number = rules.schema.names.index(condition.column)
        values = matrix[:, number]
        if condition.levels is not None:
            levels = rules.schema.columns[number].levels
            fits = {*condition.levels, *condition.dividing}
            known = [0 <= x < len(levels) and x == int(x) for x in values]
            return np.array(
                [
                    levels[int(x)] in fits if ok else condition.missing
                    for x, ok in zip(values, known, strict=True)
                ]
            )
    inside = condition.known & (condition.low < values) & (values <= condition.high)
    inside |= condition.known & (condition.low == -np.inf) & (values == -np.inf)
    return np.where(np.isnan(values), condition.missing, inside)
