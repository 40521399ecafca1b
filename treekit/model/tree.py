"""One decision tree as frozen parallel arrays, node by node.

The children of a node have adjacent numbers, and a child comes after its
parent: node 0 is the root, and one pass in order (or backwards) visits parents
first (or last).  Nothing here knows names or labels; `Schema` does.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ModelError

__all__ = ["MAX_DEPTH", "Split", "Tree", "check_forest", "check_tree", "node_depths"]

MAX_DEPTH = 5000
"""Deepest tree that every part must handle; deeper models are refused by name."""


class Split(IntEnum):
    """What a node asks."""

    LEAF = 0
    THRESHOLD = 1
    """``x[feature] <= threshold``: branch 0, else branch 1."""
    SUBSET = 2
    """Two branches; `Tree.level_branch` says which level goes where."""
    MULTIWAY = 3
    """As SUBSET, with any number of branches."""
    MISSING = 4
    """Missing values go to branch 0, all others to branch 1."""
    OBLIQUE = 5
    """Sparse linear combination; no grower or reader makes it yet."""


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A tree of n nodes.

    Attributes
    ----------
    kind : (n,) uint8
        A `Split`.
    feature : (n,) int32
        Column that the node asks; -1 in leaves.
    threshold : (n,) float64
        THRESHOLD nodes: a finite number of the model's input type; NaN elsewhere.
    first_child : (n,) int32
        Node of branch 0; branch b is ``first_child + b``.  -1 in leaves.
    n_children : (n,) int32
        Number of branches; 0 in leaves.
    missing : (n,) int32
        Branch that a missing value takes; 0 in leaves and MISSING nodes.
    level_start : (n + 1,) int64
        Node i owns ``level_branch[level_start[i]:level_start[i + 1]]``: one
        entry for each level of its column in SUBSET and MULTIWAY nodes, else none.
    level_branch : (levels,) int32
        Branch of each level; -1 = the level was absent at the node and goes
        the missing way.
    value : (n, outputs) float64
        What the training rows of the node say: the weight of each class, or
        the mean target.
    weight : (n,) float64
        Training weight that reached the node.
    gain : (n,) float64
        Score of the node's split; 0 in leaves.
    """

    kind: npt.NDArray[np.uint8]
    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    first_child: npt.NDArray[np.int32]
    n_children: npt.NDArray[np.int32]
    missing: npt.NDArray[np.int32]
    level_start: npt.NDArray[np.int64]
    level_branch: npt.NDArray[np.int32]
    value: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]
    gain: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        for field in fields(self):
            dtype = DTYPES[field.name]
            array = np.ascontiguousarray(getattr(self, field.name), dtype=dtype)
            if array.flags.writeable:
                array = array.view()
                array.flags.writeable = False
            object.__setattr__(self, field.name, array)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.kind)

    @property
    def leaves(self) -> npt.NDArray[np.int64]:
        """(leaves,) int64: node numbers of the leaves, ascending."""
        return np.flatnonzero(self.kind == Split.LEAF)

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return int(np.count_nonzero(self.kind == Split.LEAF))

    @property
    def parent(self) -> npt.NDArray[np.int64]:
        """(n,) int64: parent of each node, -1 for the root."""
        inner = np.flatnonzero(self.kind != Split.LEAF)
        counts = self.n_children[inner]
        parent = np.full(self.n_nodes, -1, dtype=np.int64)
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        parent[np.repeat(self.first_child[inner], counts) + offset] = np.repeat(inner, counts)
        return parent

    @property
    def depths(self) -> npt.NDArray[np.int64]:
        """(n,) int64: edges from the root; computed one level of the tree at a time."""
        return node_depths(self, np.zeros(1, dtype=np.int64), self.n_nodes)

    @property
    def depth(self) -> int:
        """Edges from the root to the deepest leaf."""
        return int(self.depths.max())

    def branches(self, node: int) -> npt.NDArray[np.int32]:
        """Branch of each level of a SUBSET or MULTIWAY node (a view; see `level_branch`)."""
        return self.level_branch[self.level_start[node] : self.level_start[node + 1]]

    def with_value(self, value: npt.NDArray[np.float64]) -> Tree:
        """The same tree with other node values, shape (n, outputs)."""
        return replace(self, value=value)


DTYPES: dict[str, type[np.generic]] = {
    "kind": np.uint8,
    "feature": np.int32,
    "threshold": np.float64,
    "first_child": np.int32,
    "n_children": np.int32,
    "missing": np.int32,
    "level_start": np.int64,
    "level_branch": np.int32,
    "value": np.float64,
    "weight": np.float64,
    "gain": np.float64,
}


def node_depths(nodes: Tree, roots: npt.NDArray[np.int64], bound: int) -> npt.NDArray[np.int64]:
    """(n,) int64: edges from the own root of each joined node, a level at a time to `bound`."""
    depth = np.zeros(nodes.n_nodes, dtype=np.int64)
    level = roots
    for at in range(1, bound + 1):
        level = level[nodes.kind[level] != Split.LEAF]
        if not len(level):
            break
        counts = nodes.n_children[level]
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        level = np.repeat(nodes.first_child[level].astype(np.int64), counts) + offset
        depth[level] = at
    return depth


def check_tree(tree: Tree, schema: Schema) -> None:
    """Raise `ModelError` unless `tree` is well formed for `schema`.

    Whole-array checks, linear in nodes: a child after its parent, each node one
    parent, indices in range, thresholds finite and of the input type, one
    branch entry for each level, values finite, depth within `MAX_DEPTH`.
    """
    check_forest(tree, np.array([0, tree.n_nodes]), schema)


def check_forest(nodes: Tree, roots: npt.NDArray[np.int64], schema: Schema) -> None:
    """`check_tree` for all trees of `treekit.model.joined.join` at once.

    Raises
    ------
    ModelError
        If a tree is malformed, or has no node.
    """
    in_order = len(roots) > 1 and roots[0] == 0 and roots[-1] == nodes.n_nodes
    _require(in_order and bool(np.all(np.diff(roots) >= 1)), "a tree needs at least one node")
    for name, shape in _shapes(nodes, schema).items():
        if getattr(nodes, name).shape != shape:
            raise ModelError(f"{name} has shape {getattr(nodes, name).shape}, expected {shape}")
    leaf = nodes.kind == Split.LEAF
    inner = np.flatnonzero(~leaf)
    _require(bool(np.all(nodes.kind <= Split.MISSING)), "a node has an unknown kind of split")
    _check_links(nodes, roots, leaf, inner)
    features = nodes.feature[inner]
    _require(
        bool(np.all((features >= 0) & (features < schema.n_features))),
        "a split asks a column that the schema does not have",
    )
    _check_thresholds(nodes, schema)
    _check_levels(nodes, schema)
    _require(bool(np.all(np.isfinite(nodes.value))), "a node value is not finite")
    weights_ok = np.all(np.isfinite(nodes.weight) & (nodes.weight >= 0))
    _require(bool(weights_ok), "a node weight is negative or not finite")
    if schema.task == "classification":
        _require(bool(np.all(nodes.value >= 0)), "a class weight is negative")
    depths = node_depths(nodes, roots[:-1], MAX_DEPTH)
    if np.any(~leaf[depths == MAX_DEPTH]):
        raise ModelError(f"a tree is more than {MAX_DEPTH} deep, the bound: set max_depth")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ModelError(message)


def _shapes(tree: Tree, schema: Schema) -> dict[str, tuple[int, ...]]:
    n = tree.n_nodes
    shapes: dict[str, tuple[int, ...]] = {
        name: (n,) for name in DTYPES if name not in {"level_start", "level_branch", "value"}
    }
    levels = (
        int(tree.level_start[-1]) if tree.level_start.ndim == 1 and len(tree.level_start) else 0
    )
    return shapes | {
        "level_start": (n + 1,),
        "level_branch": (levels,),
        "value": (n, schema.n_outputs),
    }


def _check_links(
    nodes: Tree,
    roots: npt.NDArray[np.int64],
    leaf: npt.NDArray[np.bool_],
    inner: npt.NDArray[np.int64],
) -> None:
    _require(bool(np.all(nodes.n_children[leaf] == 0)), "a leaf has children")
    _require(bool(np.all(nodes.feature[leaf] == -1)), "a leaf asks a column")
    counts = nodes.n_children[inner].astype(np.int64)
    first = nodes.first_child[inner].astype(np.int64)
    _require(bool(np.all(counts >= 1)), "an inner node has no children")
    two = nodes.kind[inner] != Split.MULTIWAY
    _require(bool(np.all(counts[two] == 2)), "a two-way split does not have two children")
    _require(bool(np.all(first > inner)), "a child does not come after its parent")
    end = roots[np.searchsorted(roots, inner, side="right")]
    _require(bool(np.all(first + counts <= end)), "a child lies outside the tree")
    # Opened minus closed ranges of children: how many parents a node has.
    cover = np.bincount(first, minlength=nodes.n_nodes + 1)
    cover -= np.bincount(first + counts, minlength=nodes.n_nodes + 1)
    parents = np.cumsum(cover)[:-1]
    parents[roots[:-1]] += 1
    _require(bool(np.all(parents == 1)), "a node has no parent or several")
    missing = nodes.missing[inner]
    _require(bool(np.all((missing >= 0) & (missing < counts))), "missing values go to no branch")


def _check_thresholds(tree: Tree, schema: Schema) -> None:
    at = tree.kind == Split.THRESHOLD
    thresholds = tree.threshold[at]
    _require(bool(np.all(np.isfinite(thresholds))), "a threshold is not finite")
    if schema.dtype == "float32":
        exact = np.abs(thresholds) <= np.finfo(np.float32).max
        _require(
            bool(np.all(exact)) and bool(np.all(thresholds.astype(np.float32) == thresholds)),
            "a threshold is not a float32, the model's input type",
        )
    nominal = schema.nominal[tree.feature[at]]
    _require(not bool(np.any(nominal)), "a threshold split asks a nominal column")


def _check_levels(tree: Tree, schema: Schema) -> None:
    sets = (tree.kind == Split.SUBSET) | (tree.kind == Split.MULTIWAY)
    expected = np.zeros(tree.n_nodes, dtype=np.int64)
    expected[sets] = schema.n_levels[tree.feature[sets]]
    _require(
        bool(np.array_equal(np.diff(tree.level_start), expected)) and tree.level_start[0] == 0,
        "a node does not have one branch entry for each level of its column",
    )
    _require(
        bool(np.all(schema.nominal[tree.feature[sets]])), "a level split asks a numeric column"
    )
    owner_children = np.repeat(tree.n_children, expected)
    inside = (tree.level_branch >= -1) & (tree.level_branch < owner_children)
    _require(bool(np.all(inside)), "a level goes to a branch that does not exist")
