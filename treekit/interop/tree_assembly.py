"""Foreign node lists as trees: any numbering in, siblings side by side out.

Whole-array work for all trees of a forest at once, linear in nodes.  A node
list is believed in nothing: children in range, each node one parent, no node
of another tree, depth within `MAX_DEPTH`, and what `treekit.model.validation` asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Schema, level_text
from treekit.errors import ModelError
from treekit.model.concatenated import separate
from treekit.model.fixed_point import MAX_TREES
from treekit.model.tree import MAX_DEPTH, Split, Tree

__all__ = [
    "MAX_COLUMNS",
    "MAX_ENTRIES",
    "MAX_RANGE",
    "Nodes",
    "Vocabulary",
    "checked_names",
    "checked_width",
    "columns_of",
    "make_trees",
    "named_vocabulary",
    "whole_vocabulary",
]


# ---------------------------------------------------------------- build

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

MAX_ENTRIES = 2**28
"""Most values of leaves, or branches of levels, that one model may spread out: 2 GiB."""


def _no_codes() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(slots=True)
class Nodes:
    """The nodes of all trees of a forest, in any order within a tree.

    Attributes
    ----------
    roots : (trees,) int64
        The root of each tree.
    tree : (n,) int64
        The tree that each node belongs to.
    left, right : (n,) int64
        Nodes of the branches 0 and 1; -1 in leaves.
    feature : (n,) int64
        Anything in leaves.
    threshold : (n,) float64
        Of splits that are no sets: ``x <= threshold`` takes branch 0.  ``inf``:
        every number does, ``-inf``: none.  Of the model's input type; anything elsewhere.
    missing_left : (n,) bool
        Whether a missing value takes branch 0.
    value : (n, values) float64
    weight, gain : (n,) float64
    set_node : (sets,) int64
        Nodes that ask whether a level is one of a set.
    set_start : (sets + 1,) int64
    set_codes : (codes,) int64
        Set s holds the levels ``set_codes[set_start[s]:set_start[s + 1]]``;
        they take branch 0, all others of the vocabulary branch 1.
    """

    roots: Ints
    tree: Ints
    left: Ints
    right: Ints
    feature: Ints
    threshold: Floats
    missing_left: Mask
    value: Floats
    weight: Floats
    gain: Floats
    set_node: Ints = field(default_factory=_no_codes)
    set_start: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    set_codes: Ints = field(default_factory=_no_codes)

    @property
    def inner(self) -> Mask:
        """(n,) bool: which nodes ask something."""
        return self.left >= 0


def make_trees(nodes: Nodes, schema: Schema, source: str) -> tuple[Tree, ...]:
    """The trees of a node list; nodes that no root leads to are left out.

    Parameters
    ----------
    nodes : Nodes
    schema : Schema
    source : str
        What the nodes come from, for messages: ``"the LightGBM model"``.

    Raises
    ------
    ModelError
        If the nodes form no trees, or more than a model may hold.
    """
    _check_links(nodes, source)
    _check_asked(nodes, schema, source)
    kind = _kinds(nodes)
    left, right = _without_constants(nodes, kind)
    order, ends = _breadth_first(nodes, left, right, source)
    return _arranged(nodes, schema, kind, left, order, ends)


def _require(condition: Any, source: str, message: str) -> None:
    if not bool(condition):
        raise ModelError(f"{source} is damaged: {message}")


def _check_links(nodes: Nodes, source: str) -> None:
    n, n_trees = len(nodes.left), len(nodes.roots)
    if not 1 <= n_trees <= MAX_TREES:
        raise ModelError(f"{source} has {n_trees} trees; a model holds 1 to {MAX_TREES}")
    if nodes.value.size > MAX_ENTRIES:
        raise ModelError(
            f"{source} has {nodes.value.shape[1]} values in each of {n} nodes; "
            f"the bound is {MAX_ENTRIES} in all"
        )
    inner = nodes.inner
    children = np.concatenate([nodes.left[inner], nodes.right[inner]])
    parents = np.tile(np.flatnonzero(inner), 2)
    _require(np.all((children >= 0) & (children < n)), source, "a node's child does not exist")
    _require(np.all(nodes.tree[children] == nodes.tree[parents]), source, "a child of another tree")
    _require(np.all((nodes.roots >= 0) & (nodes.roots < n)), source, "a tree has no root")
    n_parents = np.bincount(children, minlength=n)
    _require(np.all(n_parents <= 1), source, "a node has several parents")
    _require(not np.any(n_parents[nodes.roots]), source, "a root has a parent")


def _check_asked(nodes: Nodes, schema: Schema, source: str) -> None:
    inner = nodes.inner
    asked = nodes.feature[inner]
    known = (asked >= 0) & (asked < schema.n_features)
    _require(np.all(known), source, f"a split asks none of the {schema.n_features} columns")
    _require(not np.any(np.isnan(nodes.threshold[inner])), source, "a threshold is NaN")
    leaf_values = nodes.value[~inner]
    _require(np.all(np.isfinite(leaf_values)), source, "a leaf's value is not finite")
    owners = nodes.set_node
    _require(np.all(inner[owners]), source, "a leaf has a set of categories")
    sizes = schema.n_levels[nodes.feature[owners]]
    if int(sizes.sum()) > MAX_ENTRIES:
        raise ModelError(
            f"{source} asks columns of many categories too often: its splits have "
            f"{int(sizes.sum())} categories in all; the bound is {MAX_ENTRIES}"
        )
    most = np.repeat(sizes, np.diff(nodes.set_start))
    inside = (nodes.set_codes >= 0) & (nodes.set_codes < most)
    _require(np.all(inside), source, "a split names a category that its column does not have")


def _kinds(nodes: Nodes) -> npt.NDArray[np.uint8]:
    """(n,) uint8: `Split`; a threshold that all numbers pass, or none, asks for missing ones."""
    kind = np.full(len(nodes.left), Split.LEAF, dtype=np.uint8)
    kind[nodes.inner] = Split.THRESHOLD
    kind[nodes.inner & np.isinf(nodes.threshold)] = Split.MISSING
    kind[nodes.set_node] = Split.SUBSET
    return kind


def _without_constants(nodes: Nodes, kind: npt.NDArray[np.uint8]) -> tuple[Ints, Ints]:
    """(n,) int64 twice: the branches, past nodes that send every row one way."""
    endless = kind == Split.MISSING
    numbers_left = nodes.threshold > 0
    constant = endless & (numbers_left == nodes.missing_left)
    left, right = nodes.left.copy(), nodes.right.copy()
    # Missing values are branch 0 of a MISSING split, and all others branch 1.
    swap = endless & ~constant & numbers_left
    left[swap], right[swap] = right[swap], left[swap]
    if not constant.any():
        return left, right
    stands_for = np.where(constant, np.where(numbers_left, left, right), np.arange(len(left)))
    for _ in range(len(left).bit_length()):  # doubles the steps that are taken at once
        stands_for = stands_for[stands_for]
    nodes.roots = stands_for[nodes.roots]
    inner = nodes.inner
    left[inner], right[inner] = stands_for[left[inner]], stands_for[right[inner]]
    return left, right


def _breadth_first(nodes: Nodes, left: Ints, right: Ints, source: str) -> tuple[Ints, Ints]:
    """Old numbers in the new order, tree after tree, and (trees + 1,) where each tree begins."""
    level = nodes.roots
    levels, below = [level], 0
    while True:
        level = level[nodes.inner[level]]
        if not len(level):
            break
        below += 1
        if below > MAX_DEPTH:
            raise ModelError(f"{source} has a tree more than {MAX_DEPTH} deep, the bound")
        level = np.stack([left[level], right[level]], axis=1).ravel()
        levels.append(level)
    order = np.concatenate(levels)
    # Stable: siblings stay neighbours, and parents before their children.
    order = order[np.argsort(nodes.tree[order], kind="stable")]
    counts = np.bincount(nodes.tree[order], minlength=len(nodes.roots))
    return order, np.concatenate([[0], np.cumsum(counts)])


def _arranged(
    nodes: Nodes,
    schema: Schema,
    kind: npt.NDArray[np.uint8],
    left: Ints,
    order: Ints,
    ends: Ints,
) -> tuple[Tree, ...]:
    """The trees of the nodes in `order`, whose left branches are `left`."""
    number = np.full(len(left), -1, dtype=np.int64)
    number[order] = np.arange(len(order)) - np.repeat(ends[:-1], np.diff(ends))
    inner = nodes.inner[order]
    asks = kind[order]
    plain = asks == Split.THRESHOLD
    level_start, level_branch = _levels(nodes, schema, order)
    base = np.repeat(ends[:-1], np.diff(ends))
    joined = Tree(
        kind=asks,
        feature=np.where(inner, nodes.feature[order], -1),
        threshold=np.where(plain, nodes.threshold[order] + 0.0, np.nan),
        first_child=np.where(inner, number[left[order]] + base, -1),
        n_children=np.where(inner, 2, 0),
        missing=inner & (asks != Split.MISSING) & ~nodes.missing_left[order],
        level_start=level_start,
        level_branch=level_branch,
        value=_finite(nodes.value[order]),
        weight=np.maximum(_finite(nodes.weight[order]), 0.0),
        gain=np.where(inner, _finite(nodes.gain[order]), 0.0),
    )
    return separate(joined, ends)


def _finite(values: Floats) -> Floats:
    """What inner nodes tell besides their split may be anything, and decides nothing."""
    return np.where(np.isfinite(values), values, 0.0)


def _levels(nodes: Nodes, schema: Schema, order: Ints) -> tuple[Ints, npt.NDArray[np.int32]]:
    """`Tree.level_start` and `Tree.level_branch` in the new order."""
    n = len(nodes.left)
    set_of = np.full(n, -1, dtype=np.int64)
    set_of[nodes.set_node] = np.arange(len(nodes.set_node))
    kept = set_of[order]
    sizes = np.where(kept >= 0, schema.n_levels[np.where(kept >= 0, nodes.feature[order], 0)], 0)
    start = np.concatenate([[0], np.cumsum(sizes)])
    branch = np.ones(int(start[-1]), dtype=np.int32)
    place = np.full(len(nodes.set_node), -1, dtype=np.int64)
    place[kept[kept >= 0]] = start[:-1][kept >= 0]
    owner = np.repeat(np.arange(len(nodes.set_node)), np.diff(nodes.set_start))
    reached = place[owner] >= 0
    branch[(place[owner] + nodes.set_codes)[reached]] = 0
    return start, branch


# ---------------------------------------------------------------- vocabulary
# Columns of foreign models: their names, and the categories behind their codes.

MAX_RANGE = 4096
"""Whole-number categories up to this one become the levels 0, 1, 2, ... without a gap."""

MAX_COLUMNS = 2**20
"""Most columns of a model that is read: a file may say any number of them."""


class Vocabulary:
    """The levels of one nominal column, and the code of each foreign category.

    Attributes
    ----------
    levels : tuple of str
    codes : (levels,) int64
        The foreign number of each level, ascending.
    """

    def __init__(self, levels: Sequence[str], codes: Ints) -> None:
        self.levels = tuple(levels)
        self.codes = codes

    def positions(self, foreign: Ints) -> Ints:
        """The level of each foreign number; -1 for one that has none."""
        if not len(self.codes):
            return np.full(len(foreign), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.codes, foreign), len(self.codes) - 1)
        return np.where(self.codes[at] == foreign, at, -1)


def whole_vocabulary(categories: Ints) -> Vocabulary:
    """Whole numbers as levels.

    Up to `MAX_RANGE` all from 0 to the largest: then the codes of an encoded
    row, which artifacts take, are the numbers themselves.  Beyond, only those
    that occur, in ascending order.
    """
    present = np.unique(categories[categories >= 0])
    if len(present) and present[-1] < MAX_RANGE:
        present = np.arange(int(present[-1]) + 1)
    if not len(present):
        present = np.zeros(1, dtype=np.int64)
    return Vocabulary([str(code) for code in present.tolist()], present)


def named_vocabulary(categories: Sequence[Any], what: str) -> Vocabulary:
    """Categories that have names or numbers of their own, by their position.

    Raises
    ------
    ModelError
        If two of them read the same, or one is missing.
    """
    levels = [level_text(category) for category in categories]
    if any(level is None for level in levels) or len(set(levels)) != len(levels):
        raise ModelError(f"the categories of {what} are missing or read the same: {levels!r:.80}")
    texts = [level for level in levels if level is not None]
    return Vocabulary(texts, np.arange(len(texts)))


def checked_width(n: int, source: str) -> int:
    """`n` columns, unless they are more than `MAX_COLUMNS`, or none."""
    if not 1 <= n <= MAX_COLUMNS:
        raise ModelError(f"{source} has {n} columns; treekit reads 1 to {MAX_COLUMNS}")
    return n


def checked_names(names: Sequence[str] | None, n: int, source: str) -> list[str]:
    """`names`, or ``x0``, ``x1``, ... where there are none; `n` of them, each its own."""
    if not names:
        return [f"x{i}" for i in range(n)]
    if len(names) != n or len(set(names)) != n:
        raise ModelError(f"{source} has {n} columns, but not as many names, each its own")
    return list(names)


def columns_of(
    names: Sequence[str], vocabularies: Sequence[Vocabulary | None]
) -> tuple[Column, ...]:
    """Numeric columns, and nominal ones where there is a vocabulary."""
    return tuple(
        Column(name) if one is None else Column(name, "nominal", one.levels)
        for name, one in zip(names, vocabularies, strict=True)
    )
