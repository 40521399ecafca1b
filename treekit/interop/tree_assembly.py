"""Assemble trees from node lists of other libraries, in any numbering.

All trees of a forest are processed at once, vectorized and linear in nodes.  Node
lists are untrusted: children must be in range and in the same tree, nodes must have one
parent, and depth must be within `MAX_DEPTH`, besides the checks of
`treekit.model.validation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Schema, level_text
from treekit.errors import ModelError
from treekit.model.fixed_point import MAX_TREES
from treekit.model.tree import MAX_DEPTH, Split, Tree, split_trees

# ---------------------------------------------------------------- trees

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

MAX_ENTRIES = 2**28
"""Maximum number of leaf values, or of category branches, of one model: 2 GiB."""


def _make_empty_codes() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(slots=True)
class NodeList:
    """The nodes of all trees of a forest, in any order within a tree.

    Attributes
    ----------
    roots : (trees,) int64
        Root of each tree.
    tree : (n,) int64
        Tree of each node.
    left, right : (n,) int64
        Nodes of the branches 0 and 1; -1 in leaves.
    feature : (n,) int64
        Split feature; ignored in leaves.
    threshold : (n,) float64
        ``x <= threshold`` takes branch 0, with ``inf`` all numbers, with ``-inf`` no
        number.  Of the model's input type; ignored in leaves and nodes with sets.
    missing_left : (n,) bool
        Whether a missing value takes branch 0.
    value : (n, values) float64
    weight, gain : (n,) float64
    set_node : (sets,) int64
        Nodes that split by a set of categories.
    set_offsets : (sets + 1,) int64
    set_codes : (codes,) int64
        Categories ``set_codes[set_start[s]:set_start[s + 1]]`` of set s take branch 0,
        all other categories of the vocabulary branch 1.
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
    set_node: Ints = field(default_factory=_make_empty_codes)
    set_offsets: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    set_codes: Ints = field(default_factory=_make_empty_codes)

    @property
    def inner(self) -> Mask:
        """(n,) bool: mask of inner nodes."""
        return self.left >= 0


def make_trees(nodes: NodeList, schema: Schema, source: str) -> tuple[Tree, ...]:
    """Make the trees of a node list; unreachable nodes are dropped.

    Parameters
    ----------
    nodes : Nodes
    schema : Schema
    source : str
        Description of the source in messages: ``"the LightGBM model"``.

    Raises
    ------
    ModelError
        If the nodes do not form valid trees, or exceed the limits of a model.
    """
    _check_structure(nodes, source)
    _check_splits(nodes, schema, source)
    kind = _compute_kinds(nodes)
    left, right = _skip_constant_splits(nodes, kind)
    order, ends = _order_breadth_first(nodes, left, right, source)
    return _build_trees(nodes, schema, kind, left, order, ends)


def _raise_unless(condition: Any, source: str, message: str) -> None:
    if not bool(condition):
        raise ModelError(f"{source} is damaged: {message}")


def _check_structure(nodes: NodeList, source: str) -> None:
    n, n_trees = len(nodes.left), len(nodes.roots)
    if not 1 <= n_trees <= MAX_TREES:
        raise ModelError(f"{source} has {n_trees} trees; a model must have 1 to {MAX_TREES}")
    if nodes.value.size > MAX_ENTRIES:
        raise ModelError(
            f"{source} has {nodes.value.shape[1]} values in each of {n} nodes; "
            f"the maximum is {MAX_ENTRIES} in total"
        )
    inner = nodes.inner
    children = np.concatenate([nodes.left[inner], nodes.right[inner]])
    parents = np.tile(np.flatnonzero(inner), 2)
    _raise_unless(np.all((children >= 0) & (children < n)), source, "a node's child does not exist")
    _raise_unless(
        np.all(nodes.tree[children] == nodes.tree[parents]), source, "a child of another tree"
    )
    _raise_unless(np.all((nodes.roots >= 0) & (nodes.roots < n)), source, "a tree has no root")
    n_parents = np.bincount(children, minlength=n)
    _raise_unless(np.all(n_parents <= 1), source, "a node has several parents")
    _raise_unless(not np.any(n_parents[nodes.roots]), source, "a root has a parent")


def _check_splits(nodes: NodeList, schema: Schema, source: str) -> None:
    inner = nodes.inner
    split_features = nodes.feature[inner]
    known = (split_features >= 0) & (split_features < schema.n_features)
    _raise_unless(np.all(known), source, f"a split uses none of the {schema.n_features} columns")
    _raise_unless(not np.any(np.isnan(nodes.threshold[inner])), source, "a threshold is NaN")
    leaf_values = nodes.value[~inner]
    _raise_unless(np.all(np.isfinite(leaf_values)), source, "a leaf's value is not finite")
    owners = nodes.set_node
    _raise_unless(np.all(inner[owners]), source, "a leaf has a set of categories")
    sizes = schema.n_levels[nodes.feature[owners]]
    if int(sizes.sum()) > MAX_ENTRIES:
        raise ModelError(
            f"{source} has too many splits on columns of many categories: they have "
            f"{int(sizes.sum())} categories in total; the maximum is {MAX_ENTRIES}"
        )
    most = np.repeat(sizes, np.diff(nodes.set_offsets))
    inside = (nodes.set_codes >= 0) & (nodes.set_codes < most)
    _raise_unless(np.all(inside), source, "a split has a category that its column does not have")


def _compute_kinds(nodes: NodeList) -> npt.NDArray[np.uint8]:
    """Return the `Split` of each node (n,) uint8; infinite thresholds split on missing values."""
    kind = np.full(len(nodes.left), Split.LEAF, dtype=np.uint8)
    kind[nodes.inner] = Split.THRESHOLD
    kind[nodes.inner & np.isinf(nodes.threshold)] = Split.MISSING
    kind[nodes.set_node] = Split.SUBSET
    return kind


def _skip_constant_splits(nodes: NodeList, kind: npt.NDArray[np.uint8]) -> tuple[Ints, Ints]:
    """Return the branches (n,), skipping nodes that send all rows to one branch."""
    endless = kind == Split.MISSING
    numbers_left = nodes.threshold > 0
    constant = endless & (numbers_left == nodes.missing_left)
    left, right = nodes.left.copy(), nodes.right.copy()
    # Missing values take branch 0 of a MISSING split, all others branch 1.
    swap = endless & ~constant & numbers_left
    left[swap], right[swap] = right[swap], left[swap]
    if not constant.any():
        return left, right
    stands_for = np.where(constant, np.where(numbers_left, left, right), np.arange(len(left)))
    for _ in range(len(left).bit_length()):  # pointer jumping: each pass doubles the steps
        stands_for = stands_for[stands_for]
    nodes.roots = stands_for[nodes.roots]
    inner = nodes.inner
    left[inner], right[inner] = stands_for[left[inner]], stands_for[right[inner]]
    return left, right


def _order_breadth_first(
    nodes: NodeList, left: Ints, right: Ints, source: str
) -> tuple[Ints, Ints]:
    """Return old node numbers in the new order, and the offsets (trees + 1,) of the trees."""
    level = nodes.roots
    levels, below = [level], 0
    while True:
        level = level[nodes.inner[level]]
        if not len(level):
            break
        below += 1
        if below > MAX_DEPTH:
            raise ModelError(f"{source} has a tree deeper than {MAX_DEPTH}, the maximum")
        level = np.stack([left[level], right[level]], axis=1).ravel()
        levels.append(level)
    order = np.concatenate(levels)
    # A stable sort keeps siblings adjacent, and parents before their children.
    order = order[np.argsort(nodes.tree[order], kind="stable")]
    counts = np.bincount(nodes.tree[order], minlength=len(nodes.roots))
    return order, np.concatenate([[0], np.cumsum(counts)])


def _build_trees(
    nodes: NodeList,
    schema: Schema,
    kind: npt.NDArray[np.uint8],
    left: Ints,
    order: Ints,
    ends: Ints,
) -> tuple[Tree, ...]:
    """Make the trees of the nodes in `order`, whose left branches are `left`."""
    number = np.full(len(left), -1, dtype=np.int64)
    number[order] = np.arange(len(order)) - np.repeat(ends[:-1], np.diff(ends))
    inner = nodes.inner[order]
    kinds = kind[order]
    plain = kinds == Split.THRESHOLD
    level_start, level_branch = _make_level_branches(nodes, schema, order)
    base = np.repeat(ends[:-1], np.diff(ends))
    joined = Tree(
        kind=kinds,
        feature=np.where(inner, nodes.feature[order], -1),
        threshold=np.where(plain, nodes.threshold[order] + 0.0, np.nan),
        first_child=np.where(inner, number[left[order]] + base, -1),
        n_children=np.where(inner, 2, 0),
        missing=inner & (kinds != Split.MISSING) & ~nodes.missing_left[order],
        level_offsets=level_start,
        level_branch=level_branch,
        value=_replace_non_finite(nodes.value[order]),
        weight=np.maximum(_replace_non_finite(nodes.weight[order]), 0.0),
        gain=np.where(inner, _replace_non_finite(nodes.gain[order]), 0.0),
    )
    return split_trees(joined, ends)


def _replace_non_finite(values: Floats) -> Floats:
    """Replace non-finite numbers by 0, for fields of inner nodes that predictions ignore."""
    return np.where(np.isfinite(values), values, 0.0)


def _make_level_branches(
    nodes: NodeList, schema: Schema, order: Ints
) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Compute `Tree.level_offsets` and `Tree.level_branch` in the new order."""
    n = len(nodes.left)
    set_of = np.full(n, -1, dtype=np.int64)
    set_of[nodes.set_node] = np.arange(len(nodes.set_node))
    set_of_node = set_of[order]
    sizes = np.where(
        set_of_node >= 0, schema.n_levels[np.where(set_of_node >= 0, nodes.feature[order], 0)], 0
    )
    start = np.concatenate([[0], np.cumsum(sizes)])
    branch = np.ones(int(start[-1]), dtype=np.int32)
    place = np.full(len(nodes.set_node), -1, dtype=np.int64)
    place[set_of_node[set_of_node >= 0]] = start[:-1][set_of_node >= 0]
    owner = np.repeat(np.arange(len(nodes.set_node)), np.diff(nodes.set_offsets))
    reached = place[owner] >= 0
    branch[(place[owner] + nodes.set_codes)[reached]] = 0
    return start, branch


# ---------------------------------------------------------------- columns and vocabularies

MAX_INTEGER_CATEGORIES = 4096
"""Integer categories below this limit become the levels 0, 1, 2, ... without gaps."""

MAX_COLUMNS = 2**20
"""Maximum number of columns of an imported model."""


class Vocabulary:
    """The categories of a nominal column, and their codes in the other library.

    Attributes
    ----------
    levels : tuple of str
    codes : (levels,) int64
        The other library's code of each category, ascending.
    """

    def __init__(self, levels: Sequence[str], codes: Ints) -> None:
        self.levels = tuple(levels)
        self.codes = codes

    def map_to_levels(self, foreign: Ints) -> Ints:
        """Map codes of the other library to positions of categories; -1 if unknown."""
        if not len(self.codes):
            return np.full(len(foreign), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.codes, foreign), len(self.codes) - 1)
        return np.where(self.codes[at] == foreign, at, -1)


def make_integer_vocabulary(categories: Ints) -> Vocabulary:
    """Make a vocabulary of integers.

    Below `MAX_RANGE`, it has all integers from 0 to the largest, so that the codes of
    encoded rows, the input of artifacts, equal the integers.  Otherwise it has only
    the integers that occur, in ascending order.
    """
    present = np.unique(categories[categories >= 0])
    if len(present) and present[-1] < MAX_INTEGER_CATEGORIES:
        present = np.arange(int(present[-1]) + 1)
    if not len(present):
        present = np.zeros(1, dtype=np.int64)
    return Vocabulary([str(code) for code in present.tolist()], present)


def make_named_vocabulary(categories: Sequence[Any], what: str) -> Vocabulary:
    """Make a vocabulary of arbitrary categories, coded by position.

    Raises
    ------
    ModelError
        If two categories have equal text, or one is missing.
    """
    levels = [level_text(category) for category in categories]
    if any(level is None for level in levels) or len(set(levels)) != len(levels):
        raise ModelError(f"the categories of {what} are missing or have equal text: {levels!r:.80}")
    texts = [level for level in levels if level is not None]
    return Vocabulary(texts, np.arange(len(texts)))


def check_width(n: int, source: str) -> int:
    """Check that the number of columns is 1 to `MAX_COLUMNS`, and return it."""
    if not 1 <= n <= MAX_COLUMNS:
        raise ModelError(f"{source} has {n} columns; treekit reads 1 to {MAX_COLUMNS}")
    return n


def check_names(names: Sequence[str] | None, n: int, source: str) -> list[str]:
    """Check that there are `n` distinct names; default ``x0``, ``x1``, ..."""
    if not names:
        return [f"x{i}" for i in range(n)]
    if len(names) != n or len(set(names)) != n:
        raise ModelError(f"{source} has {n} columns, but not {n} distinct names")
    return list(names)


def make_columns(
    names: Sequence[str], vocabularies: Sequence[Vocabulary | None]
) -> tuple[Column, ...]:
    """Make the columns: nominal with a vocabulary, numeric without."""
    return tuple(
        Column(name) if one is None else Column(name, "nominal", one.levels)
        for name, one in zip(names, vocabularies, strict=True)
    )
