"""Convert ordered and weighted rule lists to trees.

An ordered list becomes one tree, a chain: each node tests all conditions of a rule
(`Split.RULE`), with the rule's leaf on one side and the remaining rules on the other.
A weighted list becomes an ensemble of chains of one rule each, whose second leaf is the
value where the rule does not match.  Rule lists thus predict, and are saved, exported
and verified, like other models.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ModelError
from treekit.model.concatenated import split_trees
from treekit.model.model import Model, make_model
from treekit.model.tree import Split, Tree

__all__ = [
    "Conditions",
    "make_rule_model",
    "make_rule_trees",
]

Index = npt.NDArray[np.int64]


class Conditions(Protocol):
    """Protocol of `treekit.rules.rule_list.ConditionTable`.

    The conditions of all rules, concatenated, at most one per column and rule.
    """

    @property
    def column(self) -> npt.NDArray[np.int32]: ...  # noqa: D102
    @property
    def low(self) -> npt.NDArray[np.float64]: ...  # noqa: D102
    @property
    def high(self) -> npt.NDArray[np.float64]: ...  # noqa: D102
    @property
    def known(self) -> npt.NDArray[np.bool_]: ...  # noqa: D102
    @property
    def missing(self) -> npt.NDArray[np.bool_]: ...  # noqa: D102
    @property
    def level_end(self) -> npt.NDArray[np.int64]: ...  # noqa: D102
    @property
    def levels(self) -> npt.NDArray[np.int32]: ...  # noqa: D102


def make_rule_model(
    schema: Schema,
    tree: npt.ArrayLike,
    end: npt.ArrayLike,
    conditions: Conditions,
    value: npt.NDArray[np.float64],
    weight: npt.NDArray[np.float64],
    **policies: Any,
) -> Model:
    """Make a model of rule lists.

    Parameters
    ----------
    schema : Schema
    tree, end, conditions, value, weight
        See `make_rule_trees`.
    **policies
        See `make_model`.
    """
    margins = policies.get("combine", "mean") != "mean"
    trees = make_rule_trees(schema, tree, end, conditions, value, weight, margins=margins)
    return make_model(schema, trees, **policies)


def make_rule_trees(
    schema: Schema,
    tree: npt.ArrayLike,
    end: npt.ArrayLike,
    conditions: Conditions,
    value: npt.NDArray[np.float64],
    weight: npt.NDArray[np.float64],
    *,
    margins: bool = False,
) -> tuple[Tree, ...]:
    """Convert rule lists to trees; the leaves of all trees are in the order of the rules.

    Takes time linear in the rules and in the entries of their conditions.

    Parameters
    ----------
    schema : Schema
    tree : (rules,) int
        The list of each rule, ascending from 0, each at least once.
    end : (rules,) int
        End of the rule's conditions, which is the start of the next rule's.  The last
        rule of each list, and no other, has no conditions.
    conditions : Conditions
    value : (rules, values) float64
        Class weights, or the number, that a rule predicts.
    weight : (rules,) float64
        Training weight that each rule covers.
    margins : bool
        Whether class values are additive scores.

    Raises
    ------
    ModelError
        If a list does not end in a rule without conditions, or has rules after one, or a
        bound is not a number of the model's type; trees are checked by `make_model`.
    """
    tree, end = np.asarray(tree, np.int64), np.asarray(end, np.int64)
    last = np.append(tree[1:] != tree[:-1], [True] * (len(tree) > 0))
    if not len(tree) or tree[0] != 0 or np.any((np.diff(tree) != 0) & (np.diff(tree) != 1)):
        raise ModelError("rules must be ordered by list, and each list must have a rule")
    counts = np.diff(end, prepend=0)
    _check_last_rules(tree, counts, last)
    entries = _make_entries(schema, conditions)
    # The nodes of a list are: rule, leaf, rule, leaf, ..., leaf of the last rule.
    sizes = np.bincount(tree)
    roots = np.cumsum(np.append(0, 2 * sizes - 1))
    place = np.arange(len(tree)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_rule = np.zeros(int(roots[-1]), np.bool_)
    is_rule[(roots[tree] + 2 * place)[~last]] = True
    # One condition may take two entries: `ends` are the ends of each rule's entries.
    ends = np.append(0, np.cumsum(entries.per_condition))[end]
    n_entries = np.zeros(len(is_rule), np.int64)
    n_entries[is_rule] = np.diff(ends, prepend=0)[~last]
    classes = schema.task == "classification" and not margins
    values, weights = _compute_inner_values(value, weight, sizes, classes=classes)
    nodes = _make_nodes(is_rule, np.cumsum(np.append(0, n_entries)), entries)
    nodes = replace(
        nodes,
        value=_interleave_nodes(is_rule, values[~last], value),
        weight=_interleave_nodes(is_rule, weights[~last], weight),
    )
    return split_trees(nodes, roots)


def _interleave_nodes(
    is_rule: npt.NDArray[np.bool_], of_rules: npt.NDArray[Any], of_leaves: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Interleave values of inner nodes and of leaves, both in the order of the rules."""
    made = np.empty((len(is_rule), *of_leaves.shape[1:]), of_leaves.dtype)
    made[is_rule], made[~is_rule] = of_rules, of_leaves
    return made


def _make_nodes(is_rule: npt.NDArray[np.bool_], starts: Index, entries: _Entries) -> Tree:
    """Make the concatenated nodes, values still 0: each rule, its leaf, then the next rule."""
    n, rule = len(is_rule), np.flatnonzero(is_rule)
    feature = np.full(n, -1, np.int32)
    feature[rule] = entries.feature[starts[rule]]
    return Tree(
        kind=np.where(is_rule, Split.RULE, Split.LEAF).astype(np.uint8),
        feature=feature,
        threshold=np.full(n, np.nan),
        first_child=np.where(is_rule, np.arange(1, n + 1), -1).astype(np.int32),
        n_children=(2 * is_rule).astype(np.int32),
        missing=np.zeros(n, np.int32),
        level_offsets=np.zeros(n + 1, np.int64),
        level_branch=np.empty(0, np.int32),
        value=np.zeros((n, 1)),
        weight=np.zeros(n),
        gain=np.zeros(n),
        surrogate_offsets=starts,
        surrogate_feature=entries.feature,
        surrogate_threshold=entries.threshold,
        surrogate_below=entries.below,
        surrogate_above=entries.above,
        surrogate_lost=entries.lost,
        surrogate_level_offsets=entries.level_offsets,
        surrogate_level_branch=entries.level_branch,
    )


def _check_last_rules(tree: Index, counts: Index, last: npt.NDArray[np.bool_]) -> None:
    """Check that the last rule of each list, and no other, has no conditions."""
    for wrong, what in (
        (last & (counts > 0), "has conditions: add a default rule without conditions"),
        (~last & (counts == 0), "has no conditions and hides all later rules: remove those"),
    ):
        if wrong.any():
            at = int(np.argmax(wrong))
            which = "the last one" if last[at] else "not the last one"
            of_list = f" of list {int(tree[at]) + 1}" if tree[-1] else ""
            raise ModelError(f"rule {at + 1}{of_list}, {which}, {what}")


class _Entries(NamedTuple):
    """Conditions as surrogate entries of a `Tree`: each entry fails on one side."""

    per_condition: Index
    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    below: npt.NDArray[np.int32]
    above: npt.NDArray[np.int32]
    lost: npt.NDArray[np.int32]
    level_offsets: Index
    level_branch: npt.NDArray[np.int32]


def _make_entries(schema: Schema, conditions: Conditions) -> _Entries:
    """Convert conditions to entries: branch 1 where a condition fails, -1 where it is met."""
    column = np.asarray(conditions.column, np.int64)
    low, high, known = conditions.low, conditions.high, conditions.known
    numeric = ~schema.nominal[column]
    if np.any(numeric & ((low == np.inf) | (high == -np.inf) | np.isnan(low) | np.isnan(high))):
        raise ModelError("a bound of a condition is not a number: omit it, or give a finite one")
    has_low = numeric & known & (low > -np.inf)
    has_high = numeric & known & (high < np.inf)
    both = has_low & has_high
    per_condition = 1 + both.astype(np.int64)
    of = np.repeat(np.arange(len(column)), per_condition)
    second = np.append(False, of[1:] == of[:-1])[: len(of)]
    lower = has_low[of] & ~second
    upper = has_high[of] & ~lower
    threshold = np.where(lower, low[of], np.where(upper, high[of], 0.0))
    gone = ~known[of]  # the condition accepts missing values only
    below = np.where(lower | gone, 1, -1)
    above = np.where(upper | gone, 1, -1)
    nominal = ~numeric[of]
    level_start, level_branch = _list_level_branches(schema, conditions, of, nominal)
    return _Entries(
        per_condition=per_condition,
        feature=column[of].astype(np.int32),
        threshold=np.where(nominal, np.nan, threshold),
        below=np.where(nominal, 0, below).astype(np.int32),
        above=np.where(nominal, 1, above).astype(np.int32),
        lost=np.where(conditions.missing[of], -1, 1).astype(np.int32),
        level_offsets=level_start,
        level_branch=level_branch,
    )


def _list_level_branches(
    schema: Schema, conditions: Conditions, of: Index, nominal: npt.NDArray[np.bool_]
) -> tuple[Index, npt.NDArray[np.int32]]:
    """Return the branch of each category: -1 (met) if the condition lists it, else 1 (fails)."""
    sizes = np.where(nominal, schema.n_levels[conditions.column[of]], 0)
    level_start = np.cumsum(np.append(0, sizes))
    branch = np.ones(int(level_start[-1]), np.int32)
    first_entry = np.searchsorted(of, np.arange(len(conditions.column)))
    owner = np.repeat(np.arange(len(conditions.column)), np.diff(conditions.level_end, prepend=0))
    named = nominal[first_entry[owner]] & conditions.known[owner]
    branch[level_start[first_entry[owner[named]]] + conditions.levels[: len(owner)][named]] = -1
    return level_start, branch


def _compute_inner_values(
    value: npt.NDArray[np.float64], weight: npt.NDArray[np.float64], sizes: Index, *, classes: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Aggregate each rule and its successors in the list: sums, or weighted means."""
    parts = value if classes else value * weight[:, None]
    sums, weights = np.empty_like(parts), np.empty_like(weight)
    stop = 0
    for size in sizes.tolist():
        own = slice(stop, stop + size)
        sums[own] = np.cumsum(parts[own][::-1], axis=0)[::-1]
        weights[own] = np.cumsum(weight[own][::-1])[::-1]
        stop += size
    if not classes:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            sums = sums / weights[:, None]
        sums[~np.isfinite(sums)] = 0.0
    return sums, weights
