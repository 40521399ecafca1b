"""Build trees by hand from nested nodes.

>>> from treekit.model.builder import Column, Schema, build_tree, leaf, make_model, threshold
>>> schema = Schema((Column("x"),), classes=("no", "yes"))
>>> tree = build_tree(threshold("x", 2.5, leaf([9, 1]), leaf([0, 5])), schema)
>>> model = make_model(schema, [tree])

Trees may have any depth: no function is recursive.  Ordered and weighted rule lists are
converted to trees, too (`make_rule_trees`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Schema
from treekit.errors import ModelError
from treekit.model.model import make_model
from treekit.model.tree import Split, Tree, split_trees
from treekit.model.validation import check_tree

if TYPE_CHECKING:
    from treekit.rules.rule_list import ConditionTable

__all__ = [
    "Column",
    "Node",
    "Schema",
    "Surrogate",
    "build_tree",
    "is_missing",
    "leaf",
    "make_model",
    "multiway",
    "oblique",
    "rule",
    "subset",
    "threshold",
]


@dataclass(frozen=True)
class Surrogate:
    """A surrogate split of a node, or a condition of a rule.

    Attributes
    ----------
    feature : int or str
    at : float, optional
        Numeric columns: ``x <= at`` takes branch `below`.
    below : int
    levels : mapping of str to int
        Nominal columns: branch of each category; the surrogate does not apply to others.
    above : int, optional
        Numeric columns: branch of ``x > at``; default: the opposite of `below`.
    lost : int
        Branch of a missing value; -1 = the surrogate does not apply.
    """

    feature: int | str
    at: float = np.nan
    below: int = 0
    levels: Mapping[str, int] = field(default_factory=dict)
    above: int | None = None
    lost: int = -1


@dataclass(frozen=True, eq=False)
class Node:
    """A node and its descendants, created by the functions of this module."""

    kind: Split
    children: tuple[Node, ...] = ()
    feature: int | str = -1
    threshold: float = np.nan
    missing: int = 0
    levels: tuple[tuple[str, int], ...] = ()
    value: tuple[float, ...] | None = None
    weight: float | None = None
    terms: tuple[tuple[int | str, float], ...] = ()
    surrogates: tuple[Surrogate, ...] = ()


def leaf(value: float | Sequence[float], weight: float | None = None) -> Node:
    """Create a leaf from its class weights or, for regression, its value."""
    values = tuple(float(v) for v in value) if isinstance(value, Sequence) else (float(value),)
    return Node(Split.LEAF, value=values, weight=weight)


def threshold(
    feature: int | str,
    at: float,
    left: Node,
    right: Node,
    missing: int = 1,
    surrogates: Sequence[Surrogate] = (),
) -> Node:
    """Create a split on ``x[feature] <= at`` (left, branch 0); missing values take `missing`."""
    own = tuple(surrogates)
    return Node(Split.THRESHOLD, (left, right), feature, float(at), missing, surrogates=own)


def oblique(
    weights: Mapping[int | str, float], at: float, left: Node, right: Node, missing: int = 1
) -> Node:
    """Create a split on ``sum(weight * x) <= at`` (left); weights are rounded to float32."""
    terms = tuple((name, float(np.float32(weight))) for name, weight in weights.items())
    return Node(Split.OBLIQUE, (left, right), threshold=float(at), missing=missing, terms=terms)


def subset(
    feature: int | str,
    left_levels: Sequence[str],
    left: Node,
    right: Node,
    missing: int = 1,
    absent: Sequence[str] = (),
    surrogates: Sequence[Surrogate] = (),
) -> Node:
    """Create a split of categories: `left_levels` go left, others right.

    Categories in `absent` take the branch of missing values, number `missing`.
    """
    levels = [(level, 0) for level in left_levels] + [(level, -1) for level in absent]
    return Node(
        Split.SUBSET, (left, right), feature, missing=missing, levels=tuple(levels),
        surrogates=tuple(surrogates),
    )  # fmt: skip


def multiway(feature: int | str, branches: Mapping[str, Node], missing: int = 0) -> Node:
    """Create a split with one branch per category; unlisted ones take branch `missing`."""
    levels = tuple((level, branch) for branch, level in enumerate(branches))
    return Node(Split.MULTIWAY, tuple(branches.values()), feature, missing=missing, levels=levels)


def is_missing(feature: int | str, yes: Node, no: Node) -> Node:
    """Create a split that sends missing values to `yes`, all others to `no`."""
    return Node(Split.MISSING, (yes, no), feature)


def rule(conditions: Sequence[Surrogate], yes: Node, no: Node) -> Node:
    """Create a rule: rows that meet all conditions go to `yes`, a leaf, all others to `no`.

    A condition fails where it gives branch 1, and is met where it gives none (-1):
    ``Surrogate("x", at=2.5, below=1, above=-1, lost=1)`` means x > 2.5 and not missing.
    """
    return Node(Split.RULE, (yes, no), conditions[0].feature, surrogates=tuple(conditions))


def build_tree(root: Node, schema: Schema, margins: bool = False) -> Tree:
    """Convert nested nodes to a tree, numbered breadth-first.

    With `margins` the class values are additive scores and may be negative.

    An inner node's value is the sum of its leaves' class weights (their
    weighted mean for regression); a leaf's weight defaults to the sum of its
    class weights, or 1.
    """
    nodes, first_child = _order_breadth_first(root)
    n = len(nodes)
    value, weight = _compute_values(nodes, first_child, schema, margins)
    terms = [sorted((_find_column(f, schema), w) for f, w in node.terms) for node in nodes]
    features = [
        own[0][0] if own else _find_column(node.feature, schema)
        for node, own in zip(nodes, terms, strict=True)
    ]
    surrogates = [surrogate for node in nodes for surrogate in node.surrogates]
    surrogate_columns = [_find_column(surrogate.feature, schema) for surrogate in surrogates]
    surrogate_branches = [
        _list_level_branches(s.levels, f, -1, schema)
        for s, f in zip(surrogates, surrogate_columns, strict=True)
    ]
    node_branches = [
        _list_node_branches(node, f, schema) for node, f in zip(nodes, features, strict=True)
    ]
    tree = Tree(
        kind=np.array([node.kind for node in nodes]),
        feature=np.array(features),
        threshold=np.array([node.threshold for node in nodes]),
        first_child=np.array(first_child),
        n_children=np.array([len(node.children) for node in nodes]),
        missing=np.array([node.missing for node in nodes]),
        level_offsets=_compute_offsets(node_branches),
        level_branch=np.array([b for route in node_branches for b in route]),
        value=value,
        weight=weight,
        gain=np.zeros(n),
        term_offsets=_compute_offsets(terms),
        term_feature=np.array([f for own in terms for f, _ in own]),
        term_weight=np.array([w for own in terms for _, w in own]),
        surrogate_offsets=_compute_offsets([node.surrogates for node in nodes]),
        surrogate_feature=np.array(surrogate_columns),
        surrogate_threshold=np.array([surrogate.at for surrogate in surrogates]),
        surrogate_below=np.array([surrogate.below for surrogate in surrogates]),
        surrogate_above=np.array([1 - s.below if s.above is None else s.above for s in surrogates]),
        surrogate_lost=np.array([surrogate.lost for surrogate in surrogates]),
        surrogate_level_offsets=_compute_offsets(surrogate_branches),
        surrogate_level_branch=np.array(
            [b for reply in surrogate_branches for b in reply], dtype=np.int32
        ),
    )
    check_tree(tree, schema, margins)
    return tree


def _order_breadth_first(root: Node) -> tuple[list[Node], list[int]]:
    """Return the nodes in breadth-first order and the first child of each, -1 in leaves."""
    nodes, first_child, at = [root], [], 0
    while at < len(nodes):
        children = nodes[at].children
        first_child.append(len(nodes) if children else -1)
        nodes.extend(children)
        at += 1
    return nodes, first_child


def _compute_values(
    nodes: list[Node], first_child: list[int], schema: Schema, margins: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the value and weight of each node, inner ones from their children."""
    classes = schema.task == "classification" and not margins
    value = np.zeros((len(nodes), schema.n_values))
    weight = np.zeros(len(nodes))
    for i in range(len(nodes) - 1, -1, -1):
        node = nodes[i]
        if node.value is not None:
            if len(node.value) != schema.n_values:
                raise ModelError(
                    f"a leaf has {len(node.value)} values; the schema requires {schema.n_values}"
                )
            value[i] = node.value
            default = value[i].sum() if classes else 1.0
            weight[i] = default if node.weight is None else node.weight
            continue
        children = slice(first_child[i], first_child[i] + len(node.children))
        weight[i] = weight[children].sum()
        if classes:
            value[i] = value[children].sum(axis=0)
        elif weight[i] > 0:
            value[i] = (value[children] * weight[children, None]).sum(axis=0) / weight[i]
    return value, weight


def _compute_offsets(owned: Sequence[Sequence[object]]) -> np.ndarray:
    return np.cumsum([0] + [len(own) for own in owned]).astype(np.int64)


def _find_column(feature: int | str, schema: Schema) -> int:
    if isinstance(feature, int):
        return feature
    if feature not in schema.names:
        raise ModelError(f"no column {feature!r}; columns: {', '.join(schema.names)}")
    return schema.names.index(feature)


def _list_node_branches(node: Node, feature: int, schema: Schema) -> list[int]:
    if node.kind not in (Split.SUBSET, Split.MULTIWAY):
        return []
    unnamed = 1 if node.kind == Split.SUBSET else -1
    return _list_level_branches(dict(node.levels), feature, unnamed, schema)


def _list_level_branches(
    named: Mapping[str, int], feature: int, unnamed: int, schema: Schema
) -> list[int]:
    """Return the branch of each category of a column."""
    vocabulary = schema.columns[feature].levels
    if unknown := set(named) - set(vocabulary):
        raise ModelError(
            f"{sorted(unknown)!r} are not categories of column {schema.names[feature]!r}"
        )
    return [named.get(level, unnamed) for level in vocabulary]


# ---------------------------------------------------------------- rule trees


Index = npt.NDArray[np.int64]


def make_rule_trees(
    schema: Schema,
    tree: npt.ArrayLike,
    end: npt.ArrayLike,
    conditions: ConditionTable,
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
    conditions : ConditionTable
        Conditions of all rules, at most one per column and rule.
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
        raise ModelError(
            "tree must number the rule lists in ascending order from 0, without gaps: 0, 0, 1, ..."
        )
    counts = np.diff(end, prepend=0)
    _check_last_rules(tree, counts, last)
    per_condition, entries = _make_entries(schema, conditions)
    # The nodes of a list are: rule, leaf, rule, leaf, ..., leaf of the last rule.
    sizes = np.bincount(tree)
    roots = np.cumsum(np.append(0, 2 * sizes - 1))
    place = np.arange(len(tree)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_rule = np.zeros(int(roots[-1]), np.bool_)
    is_rule[(roots[tree] + 2 * place)[~last]] = True
    # One condition may take two entries: `ends` are the ends of each rule's entries.
    ends = np.append(0, np.cumsum(per_condition))[end]
    n_entries = np.zeros(len(is_rule), np.int64)
    n_entries[is_rule] = np.diff(ends, prepend=0)[~last]
    classes = schema.task == "classification" and not margins
    values, weights = _compute_inner_values(value, weight, sizes, classes=classes)
    starts = np.cumsum(np.append(0, n_entries))
    n, feature = len(is_rule), np.full(len(is_rule), -1)
    feature[is_rule] = entries["surrogate_feature"][starts[:-1][is_rule]]
    nodes = Tree(
        kind=np.where(is_rule, Split.RULE, Split.LEAF).astype(np.uint8),
        feature=feature,
        threshold=np.full(n, np.nan),
        first_child=np.where(is_rule, np.arange(1, n + 1), -1),
        n_children=2 * is_rule,
        missing=np.zeros(n, np.int32),
        level_offsets=np.zeros(n + 1, np.int64),
        level_branch=np.empty(0, np.int32),
        value=_interleave_nodes(is_rule, values[~last], value),
        weight=_interleave_nodes(is_rule, weights[~last], weight),
        gain=np.zeros(n),
        surrogate_offsets=starts,
        **entries,
    )
    return split_trees(nodes, roots)


def _interleave_nodes(
    is_rule: npt.NDArray[np.bool_], of_rules: npt.NDArray[Any], of_leaves: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Interleave values of inner nodes and of leaves, both in the order of the rules."""
    made = np.empty((len(is_rule), *of_leaves.shape[1:]), of_leaves.dtype)
    made[is_rule], made[~is_rule] = of_rules, of_leaves
    return made


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


def _make_entries(
    schema: Schema, conditions: ConditionTable
) -> tuple[Index, dict[str, npt.NDArray[Any]]]:
    """Convert conditions to surrogates: branch 1 where a condition fails, -1 where it is met.

    Returns
    -------
    per_condition : (conditions,) int64
        Number of surrogates of each condition: an interval has one for each bound.
    entries : dict
        The arrays of the surrogates, by the names of `Tree`.
    """
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
    level_start, level_branch = _list_rule_branches(schema, conditions, of, nominal)
    return per_condition, {
        "surrogate_feature": column[of],
        "surrogate_threshold": np.where(nominal, np.nan, threshold),
        "surrogate_below": np.where(nominal, 0, below),
        "surrogate_above": np.where(nominal, 1, above),
        "surrogate_lost": np.where(conditions.missing[of], -1, 1),
        "surrogate_level_offsets": level_start,
        "surrogate_level_branch": level_branch,
    }


def _list_rule_branches(
    schema: Schema, conditions: ConditionTable, of: Index, nominal: npt.NDArray[np.bool_]
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
