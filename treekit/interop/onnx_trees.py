"""ONNX's tree operators as node lists: versions 1 to 3 of ai.onnx.ml, and 5.

Versions 1 to 3 (``TreeEnsembleRegressor``, ``TreeEnsembleClassifier``) name nodes
by a tree and a number; version 5 (``TreeEnsemble``) has places of nodes, and
leaves apart.  Nodes may have several parents: each gets a copy, up to a bound.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError, ModelFileError
from treekit.interop.build import MAX_ENTRIES
from treekit.interop.onnx_graph import SOURCE, Attributes
from treekit.model.fixed_point import MAX_TREES
from treekit.model.tree import MAX_DEPTH

__all__ = [
    "EQ",
    "GT",
    "GTE",
    "LEQ",
    "LT",
    "MEMBER",
    "NEQ",
    "OnnxTrees",
    "copied",
    "listed",
    "placed",
]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)
"""Modes, by the numbers of version 5."""
_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
_Kind = TypeVar("_Kind", bound=np.generic)
_COPIES = 16
_SMALL = 2**20
"""Nodes that any model may be copied to, and how many times those of a larger one."""


class OnnxTrees(NamedTuple):
    """The nodes of all trees.

    Attributes
    ----------
    roots : (trees,) int64
    tree : (n,) int64
        Empty before `copied`.
    mode : (n,) int64
    feature : (n,) int64
    split : (n,) float64
    true, false : (n,) int64
        -1 in leaves.
    missing_true : (n,) bool
    value : (n, targets) float64
    used : tuple of int
        Targets that any leaf adds to.
    members : dict of int to (members,) float64
        Of nodes of the mode MEMBER.
    """

    roots: Ints
    tree: Ints
    mode: Ints
    feature: Ints
    split: Floats
    true: Ints
    false: Ints
    missing_true: npt.NDArray[np.bool_]
    value: Floats
    used: tuple[int, ...]
    members: dict[int, Floats]


def _require(condition: object, message: str) -> None:
    if not bool(condition):
        raise ModelFileError(f"{SOURCE} is damaged: {message}")


def listed(attributes: Attributes, prefix: str, n_targets: int, *, one: bool = False) -> OnnxTrees:
    """The trees of versions 1 to 3, as they are: nodes may have several parents.

    Parameters
    ----------
    prefix : {"class", "target"}
    one : bool
        Add all targets' weights up, where each tree has a target of its own.
    """
    tree_ids, node_ids = attributes.ints("nodes_treeids"), attributes.ints("nodes_nodeids")
    n = len(tree_ids)
    _require(n and len(node_ids) == n, "it has no nodes, or not as many trees as nodes")
    names = attributes.texts("nodes_modes")
    _require(len(names) == n, f"nodes_modes has {len(names)} entries of {n}")
    number = {f"BRANCH_{name}": mode for mode, name in enumerate(_MODES[:6])} | {"LEAF": LEAF}
    if strange := sorted(set(names) - set(number)):
        raise ModelError(f"{SOURCE} has the unknown mode {strange[0]!r:.60}")
    mode = np.array([number[name] for name in names], dtype=np.int64)
    where = _Places(tree_ids, node_ids)
    inner = mode != LEAF
    true, false = (
        where.find(tree_ids, _of(attributes.ints(f"nodes_{side}nodeids"), n, side), inner)
        for side in ("true", "false")
    )
    children = np.concatenate([true[inner], false[inner]])
    is_child = np.zeros(n, dtype=np.bool_)
    is_child[children] = True
    roots = np.flatnonzero(~is_child)
    trees, counts = np.unique(tree_ids[roots], return_counts=True)
    _require(
        np.array_equal(trees, where.trees) and np.all(counts == 1), "a tree has no root, or several"
    )
    told = [attributes.ints(f"{prefix}_{name}") for name in ("treeids", "nodeids", "ids")]
    weight = attributes.numbers(f"{prefix}_weights")
    _require(len({len(weight), *map(len, told)}) == 1, "the leaves' weights do not fit")
    leaf = where.find(told[0], told[1], np.ones(len(weight), dtype=np.bool_))
    _require(not np.any(inner[leaf]), "an inner node has a weight")
    missing = attributes.ints("nodes_missing_value_tracks_true")
    return OnnxTrees(
        roots=roots,
        tree=np.zeros(0, dtype=np.int64),
        mode=mode,
        feature=_of(attributes.ints("nodes_featureids"), n, "nodes_featureids"),
        split=_of(attributes.numbers("nodes_values"), n, "nodes_values").astype(np.float64),
        true=true,
        false=false,
        missing_true=_of(missing if len(missing) else 0 * mode, n, "missing_value") != 0,
        value=_values(n, n_targets, leaf, told[2], weight, one),
        used=tuple(np.unique(told[2]).tolist()),
        members={},
    )


def placed(attributes: Attributes, n_targets: int, *, one: bool = False) -> OnnxTrees:
    """The trees of version 5, as they are; see `listed`."""
    mode = attributes.ints("nodes_modes")
    n = len(mode)
    _require(n and np.all((mode >= 0) & (mode <= MEMBER)), "it has no nodes, or unknown modes")
    weight = attributes.numbers("leaf_weights").astype(np.float64)
    target = attributes.ints("leaf_targetids")
    n_leaves = len(weight)
    _require(n_leaves and len(target) == n_leaves, "the leaves' weights do not fit")
    sides = []
    for side in ("true", "false"):
        child = _of(attributes.ints(f"nodes_{side}nodeids"), n, f"nodes_{side}nodeids")
        is_leaf = _of(attributes.ints(f"nodes_{side}leafs"), n, f"nodes_{side}leafs") != 0
        inside = (child >= 0) & (child < np.where(is_leaf, n_leaves, n))
        _require(np.all(inside), "a node's child does not exist")
        sides.append(np.concatenate([child + n * is_leaf, np.full(n_leaves, -1)]))
    roots = attributes.ints("tree_roots")
    _require(len(roots) and np.all((roots >= 0) & (roots < n)), "a tree has no root")
    missing = attributes.ints("nodes_missing_value_tracks_true")
    missing = _of(missing if len(missing) else 0 * mode, n, "missing_value")
    none = np.zeros(n_leaves, dtype=np.int64)
    splits = _of(attributes.numbers("nodes_splits"), n, "nodes_splits").astype(np.float64)
    return OnnxTrees(
        roots=roots,
        tree=np.zeros(0, dtype=np.int64),
        mode=np.concatenate([mode, none + LEAF]),
        feature=np.concatenate([_of(attributes.ints("nodes_featureids"), n, "features"), none]),
        split=np.concatenate([splits, none]),
        true=sides[0],
        false=sides[1],
        missing_true=np.concatenate([missing, none]) != 0,
        value=_values(n + n_leaves, n_targets, n + np.arange(n_leaves), target, weight, one),
        used=tuple(np.unique(target).tolist()),
        members=_members(attributes.numbers("membership_values").astype(np.float64), mode),
    )


def _of(values: npt.NDArray[_Kind], n: int, name: str) -> npt.NDArray[_Kind]:
    """`values`, if there are `n` of them."""
    _require(len(values) == n, f"{name} has {len(values)} entries of {n}")
    return values


def _members(values: Floats, mode: Ints) -> dict[int, Floats]:
    """The sets of the nodes that ask for members, in order, each ended by NaN."""
    nodes = np.flatnonzero(mode == MEMBER)
    parts = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    ended = [part[:-1] for part in parts[:-1]]
    if len(parts[-1]):  # the last set's end may be left out
        ended.append(parts[-1])
    _require(len(ended) == len(nodes), f"{len(ended)} sets of {len(nodes)} nodes")
    return dict(zip(nodes.tolist(), ended, strict=True))


def _values(n: int, n_targets: int, leaf: Ints, target: Ints, weight: Floats, one: bool) -> Floats:
    """(n, targets) float64: what each node adds, of all targets in one if asked."""
    _require(np.all((target >= 0) & (target < n_targets)), "a leaf adds to no target")
    if one:
        n_targets, target = 1, 0 * target
    if n * n_targets > MAX_ENTRIES:
        raise ModelError(
            f"{SOURCE} has {n} nodes and {n_targets} targets; the bound of their product is "
            f"{MAX_ENTRIES}"
        )
    value = np.zeros((n, n_targets))
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is refused later
        np.add.at(value, (leaf, target), weight)
    return value


class _Places:
    """Where a node stands that has a tree's number and its own."""

    def __init__(self, trees: Ints, nodes: Ints) -> None:
        self.trees, self.nodes = np.unique(trees), np.unique(nodes)
        keys = self._keys(trees, nodes)
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        _require(np.all(np.diff(self.keys) > 0), "a node is there twice")

    def _keys(self, trees: Ints, nodes: Ints) -> Ints:
        """-1 for a tree or a number that no node has."""
        tree = np.minimum(np.searchsorted(self.trees, trees), len(self.trees) - 1)
        node = np.minimum(np.searchsorted(self.nodes, nodes), len(self.nodes) - 1)
        known = (self.trees[tree] == trees) & (self.nodes[node] == nodes)
        return np.where(known, tree * len(self.nodes) + node, -1)

    def find(self, trees: Ints, nodes: Ints, wanted: npt.NDArray[np.bool_]) -> Ints:
        """(n,) int64: the places of nodes, -1 where none is wanted."""
        keys = self._keys(trees, nodes)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        _require(np.all((self.keys[at] == keys) | ~wanted), "a node leads to none of its tree")
        return np.where(wanted, self.order[at], -1)


def copied(trees: OnnxTrees) -> OnnxTrees:
    """The same trees with a node for each way to it, in breadth first order."""
    n = len(trees.mode)
    most = max(_SMALL, _COPIES * n)
    _require(len(trees.roots) <= MAX_TREES, f"it has more than {MAX_TREES} trees")
    tree = np.arange(len(trees.roots))
    level, sources, owners, total = trees.roots, [trees.roots], [tree], len(tree)
    true = [np.zeros(0, dtype=np.int64)]
    depth = 0
    while True:
        inner = trees.mode[level] != LEAF
        first = np.where(inner, total + 2 * (np.cumsum(inner) - 1), -1)
        true.append(first)
        if not inner.any():
            break
        depth += 1
        level, tree = level[inner], tree[inner]
        level = np.stack([trees.true[level], trees.false[level]], axis=1).ravel()
        tree = np.repeat(tree, 2)
        total += len(level)
        if depth > MAX_DEPTH or total > most or total * trees.value.shape[1] > MAX_ENTRIES:
            raise ModelError(
                f"{SOURCE} has trees that are deeper than {MAX_DEPTH}, go in circles, or share "
                f"nodes so often that copies of them are more than {most}, the bound"
            )
        sources.append(level)
        owners.append(tree)
    source, first = np.concatenate(sources), np.concatenate(true)
    copies = np.flatnonzero(trees.mode[source] == MEMBER).tolist()
    return trees._replace(
        roots=np.arange(len(trees.roots)),
        tree=np.concatenate(owners),
        mode=trees.mode[source],
        feature=trees.feature[source],
        split=trees.split[source],
        true=first,
        false=np.where(first >= 0, first + 1, -1),
        missing_true=trees.missing_true[source],
        value=trees.value[source],
        members={node: trees.members[int(source[node])] for node in copies},
    )
