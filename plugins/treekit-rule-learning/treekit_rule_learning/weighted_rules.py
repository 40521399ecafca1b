"""Weighted rule lists, in which a rule and its "otherwise" are a tree of two rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treekit.model.links import Combine, Link
from treekit.model.model import distribute_votes, fit_grid
from treekit.rules.rule_list import RuleList, concatenate_rules, take_rules

__all__ = [
    "make_weighted_list",
    "sum_rule_units",
]

Doubles = npt.NDArray[np.float64]


def make_weighted_list(
    chosen: RuleList,
    value: Doubles,
    support: Doubles,
    *,
    combine: Combine,
    link: Link = "identity",
    intercept: Doubles | None = None,
    total: float = 0.0,
) -> RuleList:
    """Make an ordered list with one tree per rule, and one more for an intercept.

    Parameters
    ----------
    chosen : RuleList
        Rules without values; see `treekit_rule_learning.candidates`.
    value : (rules, 2, values) float64
        Values for rows that match a rule, and for the others: class weights or numbers to
        average, or amounts to add.
    support : (rules, 2) float64
        Weight of the rows of either kind.
    combine, link : str
        As in `treekit.model.model.Model`.
    intercept : (values,) float64, optional
        Value for every row: the list's first tree, of one rule without conditions.  Required
        for a list without rules.
    total : float
        Weight of all rows.
    """
    n = len(chosen)
    otherwise = _make_unconditional_rules(chosen, n)
    order = np.arange(2 * n).reshape(2, n).T.reshape(-1)
    parts = [take_rules(concatenate_rules([chosen, otherwise]), order)] if n else []
    values, weights = value.reshape(2 * n, chosen.schema.n_values), support.reshape(2 * n)
    trees = np.repeat(np.arange(n), 2)
    if intercept is not None:
        parts.insert(0, _make_unconditional_rules(chosen, 1))
        values = np.concatenate([intercept[None], values])
        weights = np.concatenate([[total], weights])
        trees = np.concatenate([[0], trees + 1])
    bare = replace(
        concatenate_rules(parts),
        n_trees=int(trees[-1]) + 1,
        tree=trees.astype(np.int32),
        leaf=_number_within_trees(trees),
        support=weights,
        order="first",
        combine=combine,
        link=link,
        voting="soft",
        costs=chosen.costs if combine == "mean" else None,
        value=values,
    )
    return _convert_to_units(bare, values)


def _make_unconditional_rules(like: RuleList, n: int) -> RuleList:
    """Make `n` rules without conditions."""
    none = take_rules(like, np.empty(0, dtype=np.int64))
    return replace(
        none,
        tree=np.zeros(n, dtype=np.int32),
        leaf=np.zeros(n, dtype=np.int32),
        support=np.zeros(n),
        as_parent=np.zeros(n, dtype=np.bool_),
        units=np.zeros((n, like.schema.n_values), dtype=np.int64),
        end=np.zeros(n, dtype=np.int64),
    )


def _number_within_trees(trees: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Number the rules within their trees; trees are ascending."""
    return (np.arange(len(trees)) - np.searchsorted(trees, trees)).astype(np.int32)


def _convert_to_units(bare: RuleList, values: Doubles) -> RuleList:
    """Convert the values to the fixed-point units of models."""
    if bare.schema.task == "classification" and bare.combine == "mean":
        return replace(bare, units=distribute_votes(bare, values), exponent=0)
    first = np.flatnonzero(np.diff(bare.tree, prepend=-1))
    grid = fit_grid(bare, values, first)
    return replace(bare, units=grid.to_grid(values), exponent=grid.exponent)


def sum_rule_units(rules: RuleList, met: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return (rows, values) int64: summed units of a list, given the rows that match its rules.

    `met` is (rules with conditions, rows), from `treekit_rule_learning.candidates`.
    """
    conditional = np.flatnonzero(np.diff(rules.end, prepend=0) > 0)
    alone = np.bincount(rules.tree, minlength=rules.n_trees)[rules.tree] == 1
    base = rules.units[alone].sum(axis=0) + rules.units[conditional + 1].sum(axis=0)
    more = rules.units[conditional] - rules.units[conditional + 1]
    result = np.repeat(base[None], met.shape[1], axis=0)
    for own, steps in zip(met, more, strict=True):
        result[own] += steps
    return result
