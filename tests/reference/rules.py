"""Slow oracle of rules: every rule is evaluated on every row by its definition."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.reference.evaluate import to_float32
from treekit.rules import Condition, Rule, RuleList
from treekit.rules.rule_list import LinearClause, Test

__all__ = ["fitting", "masses", "sums"]

MASS = 2**24
Cell = float | str | None


def fitting(rules: RuleList, row: Sequence[float]) -> list[Rule]:
    """List the rules that the row matches at least in part."""
    return [rule for rule, mass in masses(rules, row) if mass > 0]


def masses(rules: RuleList, row: Sequence[float]) -> list[tuple[Rule, int]]:
    """Return every rule with the mass of the instance that matches it.

    In an ordered list, the first matching rule of a tree takes all of the mass.
    """
    cells: dict[str | int, Cell] = {}
    for column, x in zip(rules.schema.columns, row, strict=True):
        if column.kind == "nominal":
            cells[column.name] = column.levels[int(x)] if x in range(len(column.levels)) else None
        elif math.isnan(x):
            cells[column.name] = None
        else:
            cells[column.name] = to_float32(x) if rules.schema.dtype == "float32" else x
    for number, test in enumerate(rules.tests):
        cells[number] = _outcome(rules, test, cells)
    found, answered = [], set()
    for rule in rules:
        mass = 0 if rule.tree in answered else MASS
        for condition in rule.conditions:
            name = condition.column if condition.test is None else condition.test
            mass = _left(mass, cells[name], condition)
        if rules.order == "first" and mass > 0:
            answered.add(rule.tree)
        found.append((rule, mass))
    return found


def sums(rules: RuleList, row: Sequence[float]) -> list[int]:
    """Sum the units of all matching rules, weighted by mass; parts of numbers round down."""
    total = [0] * rules.schema.n_values
    for rule, mass in masses(rules, row):
        votes = rules.missing == "fractional" and rules.schema.task == "classification"
        parts = [mass * b // (1 if votes else MASS) for b in rule.units]
        total = [a + b for a, b in zip(total, parts, strict=True)]
    return total


def _left(mass: int, cell: Cell, condition: Condition) -> int:
    low, high = condition.part
    if cell is None or cell in condition.dividing:
        return mass * high // MASS - mass * low // MASS if condition.missing else 0
    if not condition.known:
        return 0
    if condition.levels is not None:
        return mass if cell in condition.levels else 0
    assert isinstance(cell, float)
    above = condition.low == -math.inf or cell > condition.low
    return mass if above and cell <= condition.high else 0


def _outcome(rules: RuleList, test: Test, cells: dict[str | int, Cell]) -> float | None:
    """0.0 = holds, 1.0 = fails, None = unknown."""
    columns = rules.schema.columns
    for clause in test:
        if isinstance(clause, LinearClause):
            values = [cells[columns[feature].name] for feature in clause.features]
            total = 0.0
            for weight, value in zip(clause.weights, values, strict=True):
                total += weight * (math.nan if value is None else float(value))
            if total == total:
                return float(clause.below if total <= clause.threshold else 1 - clause.below)
        else:
            column = columns[clause.feature]
            level = cells[column.name]
            branch = -1 if level is None else clause.branches[column.levels.index(str(level))]
            if branch >= 0:
                return float(branch)
    return None
