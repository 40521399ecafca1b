"""Trees built by hand, from nested nodes.

>>> from treekit.model.builder import build_tree, leaf, threshold
>>> tree = build_tree(threshold(0, 2.5, leaf([9, 1]), leaf([0, 5])), schema)

Works for any depth: nothing here recurses.
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
    """What a row is asked instead.

    Attributes
    ----------
    feature : int or str
    at : float, optional
        Numeric columns: ``x <= at`` takes branch `below`.
    below : int
    levels : mapping of str to int
        Nominal columns: branch of each level; it does not apply to the others.
    above : int, optional
        Numeric columns: branch of ``x > at``; default: the other one.
    lost : int
        Branch of a missing value; -1 = says nothing.
    """

    feature: int | str
    at: float = np.nan
    below: int = 0
    levels: Mapping[str, int] = field(default_factory=dict)
    above: int | None = None
    lost: int = -1


@dataclass(frozen=True, eq=False)
class Node:
    """A node and all below it; made by the functions of this module."""

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
    """A leaf: class weights, or the number of a regression leaf."""
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
    """``x[feature] <= at`` goes left (branch 0); missing values take branch `missing`."""
    own = tuple(surrogates)
    return Node(Split.THRESHOLD, (left, right), feature, float(at), missing, surrogates=own)


def oblique(
    weights: Mapping[int | str, float], at: float, left: Node, right: Node, missing: int = 1
) -> Node:
    """``sum(weight * x) <= at`` goes left; weights are rounded to float32."""
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
    """Levels in `left_levels` go left, others right, those in `absent` the missing way."""
    levels = [(level, 0) for level in left_levels] + [(level, -1) for level in absent]
    return Node(
        Split.SUBSET, (left, right), feature, missing=missing, levels=tuple(levels),
        surrogates=tuple(surrogates),
    )  # fmt: skip


def multiway(feature: int | str, branches: Mapping[str, Node], missing: int = 0) -> Node:
    """One branch a level, in the mapping's order; levels not named go the missing way."""
    levels = tuple((level, branch) for branch, level in enumerate(branches))
    return Node(Split.MULTIWAY, tuple(branches.values()), feature, missing=missing, levels=levels)


def is_missing(feature: int | str, yes: Node, no: Node) -> Node:
    """Missing values of a column go to `yes`, all others to `no`."""
    return Node(Split.MISSING, (yes, no), feature)


def rule(conditions: Sequence[Surrogate], yes: Node, no: Node) -> Node:
    """Rows that no condition says 1 of go to `yes`, a leaf, all others to `no`.

    ``Surrogate("x", at=2.5, below=1, above=-1, lost=1)`` says x > 2.5, and not missing.
    """
    return Node(Split.RULE, (yes, no), conditions[0].feature, surrogates=tuple(conditions))


def build_tree(root: Node, schema: Schema, margins: bool = False) -> Tree:
    """The tree of nested nodes, breadth first.

    With `margins` the values of classes are numbers to be added, and may be negative.

    An inner node's value is the sum of its leaves' class weights (their
    weighted mean for regression); a leaf's weight defaults to the sum of its
    class weights, or 1.
    """
    nodes, first_child = _in_breadth(root)
    n = len(nodes)
    value, weight = _values(nodes, first_child, schema, margins)
    terms = [sorted((_column(f, schema), w) for f, w in node.terms) for node in nodes]
    features = np.array(
        [own[0][0] if own else _column(node.feature, schema)
         for node, own in zip(nodes, terms, strict=True)],
        dtype=np.int32,
    )  # fmt: skip
    surrogates = [surrogate for node in nodes for surrogate in node.surrogates]
    asked = [_column(surrogate.feature, schema) for surrogate in surrogates]
    replies = [_replies(s.levels, f, -1, schema) for s, f in zip(surrogates, asked, strict=True)]
    routes = [_routes(node, int(f), schema) for node, f in zip(nodes, features, strict=True)]
    tree = Tree(
        kind=np.array([node.kind for node in nodes], dtype=np.uint8),
        feature=features,
        threshold=np.array([node.threshold for node in nodes]),
        first_child=np.array(first_child, dtype=np.int32),
        n_children=np.array([len(node.children) for node in nodes], dtype=np.int32),
        missing=np.array([node.missing for node in nodes], dtype=np.int32),
        level_start=_starts(routes),
        level_branch=np.array([b for route in routes for b in route], dtype=np.int32),
        value=value,
        weight=weight,
        gain=np.zeros(n),
        term_start=_starts(terms),
        term_feature=np.array([f for own in terms for f, _ in own], dtype=np.int32),
        term_weight=np.array([w for own in terms for _, w in own]),
        surrogate_start=_starts([node.surrogates for node in nodes]),
        surrogate_feature=np.array(asked, dtype=np.int32),
        surrogate_threshold=np.array([surrogate.at for surrogate in surrogates]),
        surrogate_below=np.array([surrogate.below for surrogate in surrogates], dtype=np.int32),
        surrogate_above=np.array(
            [1 - s.below if s.above is None else s.above for s in surrogates], dtype=np.int32
        ),
        surrogate_lost=np.array([surrogate.lost for surrogate in surrogates], dtype=np.int32),
        surrogate_level_start=_starts(replies),
        surrogate_level_branch=np.array([b for reply in replies for b in reply], dtype=np.int32),
    )
    check_tree(tree, schema, margins)
    return tree


def _in_breadth(root: Node) -> tuple[list[Node], list[int]]:
    nodes, first_child, at = [root], [], 0
    while at < len(nodes):
        children = nodes[at].children
        first_child.append(len(nodes) if children else -1)
        nodes.extend(children)
        at += 1
    return nodes, first_child


def _values(
    nodes: list[Node], first_child: list[int], schema: Schema, margins: bool
) -> tuple[np.ndarray, np.ndarray]:
    classes = schema.task == "classification" and not margins
    value = np.zeros((len(nodes), schema.n_values))
    weight = np.zeros(len(nodes))
    for i in range(len(nodes) - 1, -1, -1):
        node = nodes[i]
        if node.value is not None:
            if len(node.value) != schema.n_values:
                raise ModelError(
                    f"a leaf has {len(node.value)} values; the schema needs {schema.n_values}"
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


def _starts(owned: Sequence[Sequence[object]]) -> np.ndarray:
    return np.cumsum([0] + [len(own) for own in owned]).astype(np.int64)


def _column(feature: int | str, schema: Schema) -> int:
    if isinstance(feature, int):
        return feature
    if feature not in schema.names:
        raise ModelError(f"no column {feature!r}; columns: {', '.join(schema.names)}")
    return schema.names.index(feature)


def _routes(node: Node, feature: int, schema: Schema) -> list[int]:
    if node.kind not in (Split.SUBSET, Split.MULTIWAY):
        return []
    unnamed = 1 if node.kind == Split.SUBSET else -1
    return _replies(dict(node.levels), feature, unnamed, schema)


def _replies(named: Mapping[str, int], feature: int, unnamed: int, schema: Schema) -> list[int]:
    """Branch of each level of a column."""
    vocabulary = schema.columns[feature].levels
    if strangers := set(named) - set(vocabulary):
        raise ModelError(f"{sorted(strangers)!r} are not levels of {schema.names[feature]!r}")
    return [named.get(level, unnamed) for level in vocabulary]
