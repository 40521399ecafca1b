"""Build trees by hand from nested nodes.

>>> from treekit.model.builder import build_tree, leaf, threshold
>>> tree = build_tree(threshold(0, 2.5, leaf([9, 1]), leaf([0, 5])), schema)

Trees may have any depth: no function is recursive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from treekit.data.schema import Schema
from treekit.errors import ModelError
from treekit.model.tree import Split, Tree
from treekit.model.validation import check_tree

__all__ = [
    "Node",
    "Surrogate",
    "build_tree",
    "is_missing",
    "leaf",
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
    """Create a split that sends `left_levels` left, `absent` with missing values, others right."""
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
    features = np.array(
        [own[0][0] if own else _find_column(node.feature, schema)
         for node, own in zip(nodes, terms, strict=True)],
        dtype=np.int32,
    )  # fmt: skip
    surrogates = [surrogate for node in nodes for surrogate in node.surrogates]
    surrogate_columns = [_find_column(surrogate.feature, schema) for surrogate in surrogates]
    surrogate_branches = [
        _list_level_branches(s.levels, f, -1, schema)
        for s, f in zip(surrogates, surrogate_columns, strict=True)
    ]
    node_branches = [
        _list_node_branches(node, int(f), schema) for node, f in zip(nodes, features, strict=True)
    ]
    tree = Tree(
        kind=np.array([node.kind for node in nodes], dtype=np.uint8),
        feature=features,
        threshold=np.array([node.threshold for node in nodes]),
        first_child=np.array(first_child, dtype=np.int32),
        n_children=np.array([len(node.children) for node in nodes], dtype=np.int32),
        missing=np.array([node.missing for node in nodes], dtype=np.int32),
        level_offsets=_compute_offsets(node_branches),
        level_branch=np.array([b for route in node_branches for b in route], dtype=np.int32),
        value=value,
        weight=weight,
        gain=np.zeros(n),
        term_offsets=_compute_offsets(terms),
        term_feature=np.array([f for own in terms for f, _ in own], dtype=np.int32),
        term_weight=np.array([w for own in terms for _, w in own]),
        surrogate_offsets=_compute_offsets([node.surrogates for node in nodes]),
        surrogate_feature=np.array(surrogate_columns, dtype=np.int32),
        surrogate_threshold=np.array([surrogate.at for surrogate in surrogates]),
        surrogate_below=np.array([surrogate.below for surrogate in surrogates], dtype=np.int32),
        surrogate_above=np.array(
            [1 - s.below if s.above is None else s.above for s in surrogates], dtype=np.int32
        ),
        surrogate_lost=np.array([surrogate.lost for surrogate in surrogates], dtype=np.int32),
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
