"""Slow error-based pruning of C4.5, with nested nodes and lists of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from treekit.model.tree import Split, Tree

__all__ = ["Node", "added_errors", "nested", "prune", "shape"]

Row = tuple[int, float]
"""Number and weight."""


def added_errors(n: float, e: float, cf: float) -> float:
    """Compute the expected errors beyond the `e` observed in `n`, by J48's documented rule."""
    if e < 1.0:
        none = n * (1.0 - cf ** (1.0 / n))
        return none if e == 0.0 else none + e * (added_errors(n, 1.0, cf) - none)
    if e + 0.5 >= n:
        return max(n - e, 0.0)
    z = NormalDist().inv_cdf(1.0 - cf)
    f = (e + 0.5) / n
    root = math.sqrt(f / n - f**2 / n + z**2 / (4 * n**2))
    return (f + z**2 / (2 * n) + z * root) / (1 + z**2 / n) * n - e


@dataclass
class Node:
    """Node with the id of the tree node that defines its split (`asks`), and its rows."""

    asks: int
    children: list[Node] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


@dataclass
class Table:
    """Rows of values (NaN = missing) and their classes."""

    tree: Tree
    x: np.ndarray
    y: list[int]
    n_classes: int
    fractional: bool

    def parts(self, node: int, rows: list[Row], branches: int) -> list[list[Row]]:
        """Distribute rows over the branches of a split."""
        tree = self.tree
        known: list[list[Row]] = [[] for _ in range(branches)]
        lost: list[Row] = []
        for row, weight in rows:
            value = self.x[row, tree.feature[node]]
            if tree.kind[node] == Split.MISSING:
                known[0 if math.isnan(value) else 1].append((row, weight))
                continue
            if math.isnan(value):
                branch = -1
            elif tree.kind[node] == Split.THRESHOLD:
                branch = 0 if value <= tree.threshold[node] else 1
            else:
                branch = int(tree.branches(node)[int(value)])
            (lost if branch < 0 else known[branch]).append((row, weight))
        if not self.fractional:
            known[int(tree.missing[node])] += lost
            return known
        weights = [sum(w for _, w in part) for part in known]
        total = sum(weights)
        for row, weight in lost:
            for branch, own in enumerate(weights):
                share = own / total if total else 1 / branches
                if share > 0:
                    known[branch].append((row, weight * share))
        return known

    def wrong(self, rows: list[Row]) -> tuple[float, float]:
        """Compute the errors of a leaf with these rows, and their weight."""
        by_class = [0.0] * self.n_classes
        for row, weight in rows:
            by_class[self.y[row]] += weight
        return sum(by_class) - max(by_class), sum(by_class)

    def expected(self, rows: list[Row], cf: float) -> float:
        """Compute the pessimistic errors of a leaf with these rows."""
        wrong, weight = self.wrong(rows)
        return 0.0 if weight < 1e-6 else wrong + added_errors(weight, wrong, cf)


def nested(table: Table, node: int, rows: list[Row]) -> Node:
    """Build the subtree of a node, with the rows of each node."""
    first, count = int(table.tree.first_child[node]), int(table.tree.n_children[node])
    made = Node(node, rows=rows)
    if count:
        for branch, part in enumerate(table.parts(node, rows, count)):
            made.children.append(nested(table, first + branch, part))
    return made


def prune(table: Table, node: Node, cf: float, raising: bool, collapsing: bool) -> Node:
    """Prune a tree in place and return its root."""
    if collapsing:
        _collapse(table, node)
    _prune(table, node, cf, raising)
    return node


def _collapse(table: Table, node: Node) -> None:
    if not node.children:
        return
    if _training_errors(table, node) >= table.wrong(node.rows)[0] - 1e-3:
        node.children = []
    for child in node.children:
        _collapse(table, child)


def _training_errors(table: Table, node: Node) -> float:
    if not node.children:
        return table.wrong(node.rows)[0]
    return sum(_training_errors(table, child) for child in node.children)


def _prune(table: Table, node: Node, cf: float, raising: bool) -> None:
    if not node.children:
        return
    for child in node.children:
        _prune(table, child, cf, raising)
    weights = [sum(w for _, w in child.rows) for child in node.children]
    heaviest = [b for b, w in enumerate(weights) if w > max(weights) - 1e-6]
    largest = node.children[heaviest[-1]]
    leaf = table.expected(node.rows, cf)
    tree = _expected(table, node, cf)
    branch = math.inf
    if raising:
        branch = _expected(table, _led(table, largest, node.rows), cf)
    if leaf <= tree + 0.1 + 1e-6 and leaf <= branch + 0.1 + 1e-6:
        node.children = []
    elif branch <= tree + 0.1 + 1e-6:
        instead = _led(table, largest, node.rows)
        node.asks, node.children = instead.asks, instead.children
        _prune(table, node, cf, raising)


def _expected(table: Table, node: Node, cf: float) -> float:
    if not node.children:
        return table.expected(node.rows, cf)
    return sum(_expected(table, child, cf) for child in node.children)


def _led(table: Table, node: Node, rows: list[Row]) -> Node:
    """Copy a subtree and route other rows through it."""
    made = Node(node.asks, rows=rows)
    if node.children:
        parts = table.parts(node.asks, rows, len(node.children))
        made.children = [_led(table, c, p) for c, p in zip(node.children, parts, strict=True)]
    return made


def shape(tree: Tree, node: int = 0) -> tuple[object, ...]:
    """Return split features and node weights of a tree, for comparison with `shape_of`."""
    first, count = int(tree.first_child[node]), int(tree.n_children[node])
    return (
        int(tree.feature[node]) if count else -1,
        round(float(tree.weight[node]), 6),
        *(shape(tree, child) for child in range(first, first + count)),
    )


def shape_of(table: Table, node: Node) -> tuple[object, ...]:
    """Return split features and node weights of nested nodes, as `shape` does."""
    return (
        int(table.tree.feature[node.asks]) if node.children else -1,
        round(sum(w for _, w in node.rows), 6),
        *(shape_of(table, child) for child in node.children),
    )
