"""Slow evaluation of weighted rule lists: check conditions one by one, and sum values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treekit.rules.rule_list import Rule, RuleList

__all__ = ["adds", "meets", "table_of"]


def meets(rule: Rule, row: dict[str, Any]) -> bool:
    """Whether a row of named cells (None = missing) meets every condition."""
    for condition in rule.conditions:
        cell = row[condition.column]
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            met = condition.missing
        elif condition.levels is not None:
            met = condition.known and cell in condition.levels
        else:
            met = condition.known and condition.low < np.float32(cell) <= condition.high
        if not met:
            return False
    return True


def adds(rules: RuleList, row: dict[str, Any]) -> list[Rule]:
    """Return the first matching rule of each tree."""
    return [
        next(rule for rule in rules.of_tree(tree) if meets(rule, row))
        for tree in range(rules.n_trees)
    ]


def table_of(columns: dict[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Convert a table of columns to rows."""
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
