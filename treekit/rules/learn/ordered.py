"""Conditions and class weights put together to an ordered `RuleList`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import MASS
from treekit.model.model import Model, spread
from treekit.rules.learn.conditions import Asked
from treekit.rules.rule_list import ConditionTable, RuleList

__all__ = ["condition_table", "ordered_list"]

Numbers = npt.NDArray[np.float64]


def ordered_list(model: Model, rules: Sequence[Sequence[Asked]], weight: Numbers) -> RuleList:
    """A list of order "first" that answers rows of a model of classes.

    Where the model divides rows of missing values, the list does not: a missing value meets
    the conditions that say so.

    Parameters
    ----------
    model : Model
        Whose schema and other policies are kept.
    rules : sequence of sequence of Asked
        Conditions of each rule but the last, which has none.
    weight : (rules, classes) float64
        Weights of the rows that each rule answers, those of the last one included.
    """
    n = len(weight)
    made = RuleList(
        schema=model.schema,
        missing="direction" if model.missing == "fractional" else model.missing,
        unknown=model.unknown,
        voting=model.voting,
        costs=None,
        n_trees=1,
        exponent=0,
        tests=(),
        tree=np.zeros(n, np.int32),
        # As the nodes of a chain: rule, leaf, rule, leaf, ..., the last leaf.
        leaf=np.append(2 * np.arange(n - 1) + 1, 2 * n - 2).astype(np.int32),
        support=weight.sum(axis=1),
        as_parent=np.zeros(n, np.bool_),
        units=np.zeros(weight.shape, np.int64),
        end=np.cumsum([*(len(rule) for rule in rules), 0]).astype(np.int64),
        conditions=condition_table([each for rule in rules for each in rule]),
        order="first",
        value=weight,
    )
    return replace(made, units=spread(made, weight))


def condition_table(conditions: Sequence[Asked]) -> ConditionTable:
    """Conditions that divide no row, one after the other."""
    missing = np.array([each.missing for each in conditions], dtype=np.bool_)
    sizes = [len(each.levels) for each in conditions]
    return ConditionTable(
        column=np.array([each.column for each in conditions], dtype=np.int32),
        low=np.array([each.low for each in conditions], dtype=np.float64),
        high=np.array([each.high for each in conditions], dtype=np.float64),
        known=np.array([each.known for each in conditions], dtype=np.bool_),
        missing=missing,
        part_low=np.zeros(len(conditions), np.int32),
        part_high=np.where(missing, MASS, 0).astype(np.int32),
        dividing=np.zeros(len(conditions), np.int64),
        level_end=np.cumsum(sizes, dtype=np.int64),
        levels=np.array([code for each in conditions for code in each.levels], dtype=np.int32),
    )
