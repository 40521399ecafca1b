"""The `Tree`: one decision tree as immutable parallel arrays of nodes.

Siblings have adjacent node numbers, and children come after their parent: node 0 is
the root, and a pass in ascending (descending) order visits parents before (after)
their children.  Names and labels are part of the `Schema`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "FIELD_DTYPES",
    "MAX_DEPTH",
    "PER_NODE_FIELDS",
    "Split",
    "Tree",
    "concatenate_slices",
    "empty_offsets",
    "has_no_entries",
    "iter_chunks",
    "node_depths",
    "node_levels",
    "take_slices",
]


# ---------------------------------------------------------------- tree

MAX_DEPTH = 5000
"""Maximum depth of a tree, which all modules support; deeper models are rejected."""


class Split(IntEnum):
    """Kinds of nodes."""

    LEAF = 0
    THRESHOLD = 1
    """``x[feature] <= threshold``: branch 0, else branch 1."""
    SUBSET = 2
    """Two branches; `Tree.level_branch` is the branch of each category."""
    MULTIWAY = 3
    """Like SUBSET, with any number of branches."""
    MISSING = 4
    """Missing values go to branch 0, all others to branch 1."""
    OBLIQUE = 5
    """``sum(w * x) <= threshold``: branch 0, else branch 1; see `Tree.term_offsets`."""
    RULE = 6
    """All conditions of a rule are met: branch 0, a leaf; else branch 1, the remaining rules.

    The node's surrogate entries are the conditions: branch 1 where a condition fails, -1
    where it is met.  A tree with RULE nodes is a chain without other kinds of split."""


_ENTRY_PREFIXES = ("level", "term", "surrogate")
_UNSET: npt.NDArray[Any] = np.empty(0)


def _get_unset() -> npt.NDArray[Any]:
    """Return the default of optional arrays: no terms or surrogates."""
    return _UNSET


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A tree of n nodes.

    Attributes
    ----------
    kind : (n,) uint8
        A `Split`.
    feature : (n,) int32
        Split feature (OBLIQUE: the first one); -1 in leaves.
    threshold : (n,) float64
        THRESHOLD nodes: a finite number of the model's input type; OBLIQUE
        nodes: any finite number; NaN elsewhere.
    first_child : (n,) int32
        Node of branch 0; branch b is ``first_child + b``.  -1 in leaves.
    n_children : (n,) int32
        Number of branches; 0 in leaves.
    missing : (n,) int32
        Branch that a missing value takes; 0 in leaves and MISSING nodes.
    level_offsets : (n + 1,) int64
        Offsets into `level_branch`: SUBSET and MULTIWAY nodes have one entry for
        each category of their column, other nodes none.
    level_branch : (levels,) int32
        Branch of each category; -1 = the category was absent at the node and is
        treated as missing.
    value : (n, values) float64
        Value of the node's training rows: the weight of each class, or the mean
        target; one output after the other.
    weight : (n,) float64
        Training weight that reached the node.
    gain : (n,) float64
        Score of the node's split; 0 in leaves.
    term_offsets : (n + 1,) int64
        Offsets of the terms of OBLIQUE nodes; other nodes have none.
    term_feature : (terms,) int32
        Numeric columns, ascending within a node.
    term_weight : (terms,) float64
        Non-zero numbers exact in float32.  The sum is computed in double, in this
        order, from 0.0; a NaN sum is treated as missing.
    surrogate_offsets : (n + 1,) int64
        Offsets of the surrogates of THRESHOLD and SUBSET nodes, for rows whose value is
        missing, or is a category absent at the node; the first surrogate that gives a
        branch decides.  The surrogates of RULE nodes are their conditions.
    surrogate_feature : (surrogates,) int32
    surrogate_threshold : (surrogates,) float64
        Numeric columns: a number of the input type.  NaN for nominal columns.
    surrogate_below, surrogate_above : (surrogates,) int32
        Numeric columns: branch of ``x <= threshold``, and of larger values; -1 = no
        branch.  By default, and for nominal columns, where they are unused,
        ``above`` is ``1 - below``.
    surrogate_lost : (surrogates,) int32
        Branch of a missing value, or of a category outside the vocabulary that counts
        as missing; -1 = no branch, the default.
    surrogate_level_offsets : (surrogates + 1,) int64
        Offsets of the categories of each surrogate.
    surrogate_level_branch : (levels,) int32
        Nominal columns: branch of each category; -1 = no branch.
    """

    kind: npt.NDArray[np.uint8]
    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    first_child: npt.NDArray[np.int32]
    n_children: npt.NDArray[np.int32]
    missing: npt.NDArray[np.int32]
    level_offsets: npt.NDArray[np.int64]
    level_branch: npt.NDArray[np.int32]
    value: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]
    gain: npt.NDArray[np.float64]
    term_offsets: npt.NDArray[np.int64] = field(default_factory=_get_unset)
    term_feature: npt.NDArray[np.int32] = field(default_factory=_get_unset)
    term_weight: npt.NDArray[np.float64] = field(default_factory=_get_unset)
    surrogate_offsets: npt.NDArray[np.int64] = field(default_factory=_get_unset)
    surrogate_feature: npt.NDArray[np.int32] = field(default_factory=_get_unset)
    surrogate_threshold: npt.NDArray[np.float64] = field(default_factory=_get_unset)
    surrogate_below: npt.NDArray[np.int32] = field(default_factory=_get_unset)
    surrogate_level_offsets: npt.NDArray[np.int64] = field(default_factory=_get_unset)
    surrogate_level_branch: npt.NDArray[np.int32] = field(default_factory=_get_unset)
    surrogate_above: npt.NDArray[np.int32] = field(default_factory=_get_unset)
    surrogate_lost: npt.NDArray[np.int32] = field(default_factory=_get_unset)

    def __post_init__(self) -> None:
        for attribute in fields(self):
            dtype = FIELD_DTYPES[attribute.name]
            array = getattr(self, attribute.name)
            if attribute.name.endswith("_offsets"):
                owners = (
                    self.surrogate_feature if "surrogate_level" in attribute.name else self.kind
                )
                if array is _UNSET or has_no_entries(np.asarray(array), owners.size):
                    array = empty_offsets(owners.size)
            elif array is _UNSET and attribute.name == "surrogate_above":
                array = 1 - np.asarray(self.surrogate_below)
            elif array is _UNSET and attribute.name == "surrogate_lost":
                array = np.full(len(self.surrogate_feature), -1)
            array = np.ascontiguousarray(array, dtype=dtype)
            if array.flags.writeable:
                array = array.view()
                array.flags.writeable = False
            object.__setattr__(self, attribute.name, array)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.kind)

    @property
    def one_sided(self) -> bool:
        """Whether any surrogate entry is one-sided, like the conditions of rules."""
        two = (self.surrogate_lost == -1) & (self.surrogate_above == 1 - self.surrogate_below)
        return not bool(np.all(two))

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
        """(n,) int64: edges from the root to each node."""
        return node_depths(self, np.zeros(1, dtype=np.int64), self.n_nodes)

    @property
    def depth(self) -> int:
        """Edges from the root to the deepest leaf."""
        return int(self.depths.max())

    def branches(self, node: int) -> npt.NDArray[np.int32]:
        """Return the branch of each category of a SUBSET or MULTIWAY node, as a view."""
        return self.level_branch[self.level_offsets[node] : self.level_offsets[node + 1]]

    def take(
        self,
        nodes: npt.NDArray[np.int64],
        closed: npt.NDArray[np.bool_],
        contents: npt.NDArray[np.int64] | None = None,
    ) -> Tree:
        """Return the tree of a subset of the nodes, in a new order.

        Parameters
        ----------
        nodes : (m,) int64
            Root first, siblings adjacent, children after parents.
        closed : (m,) bool
            Nodes that become leaves.
        contents : (m,) int64, optional
            Nodes whose splits and values replace those of `nodes`; default `nodes`.
        """
        source = nodes if contents is None else contents
        closed = closed | (self.kind[source] == Split.LEAF)
        number = np.full(self.n_nodes, -1)
        number[nodes] = np.arange(len(nodes))
        level_sizes = np.where(closed, 0, np.diff(self.level_offsets)[source])
        terms, term_offsets = take_slices(self.term_offsets, source, closed)
        surrogates, surrogate_offsets = take_slices(self.surrogate_offsets, source, closed)
        entry_sizes = np.diff(self.surrogate_level_offsets)[surrogates]
        return Tree(
            kind=np.where(closed, Split.LEAF, self.kind[source]),
            feature=np.where(closed, -1, self.feature[source]),
            threshold=np.where(closed, np.nan, self.threshold[source]),
            first_child=np.where(closed, -1, number[self.first_child[source]]),
            n_children=np.where(closed, 0, self.n_children[source]),
            missing=np.where(closed, 0, self.missing[source]),
            level_offsets=np.cumsum(np.append(0, level_sizes)),
            level_branch=concatenate_slices(
                self.level_branch, self.level_offsets[source], level_sizes
            ),
            value=self.value[source],
            weight=self.weight[source],
            gain=np.where(closed, 0.0, self.gain[source]),
            term_offsets=term_offsets,
            term_feature=self.term_feature[terms],
            term_weight=self.term_weight[terms],
            surrogate_offsets=surrogate_offsets,
            surrogate_feature=self.surrogate_feature[surrogates],
            surrogate_threshold=self.surrogate_threshold[surrogates],
            surrogate_below=self.surrogate_below[surrogates],
            surrogate_above=self.surrogate_above[surrogates],
            surrogate_lost=self.surrogate_lost[surrogates],
            surrogate_level_offsets=np.cumsum(np.append(0, entry_sizes)),
            surrogate_level_branch=concatenate_slices(
                self.surrogate_level_branch, self.surrogate_level_offsets[surrogates], entry_sizes
            ),
        )

    def with_value(self, value: npt.NDArray[np.float64]) -> Tree:
        """Return the tree with other node values (n, outputs)."""
        return replace(self, value=value)


FIELD_DTYPES: dict[str, type[np.generic]] = {
    "kind": np.uint8,
    "feature": np.int32,
    "threshold": np.float64,
    "first_child": np.int32,
    "n_children": np.int32,
    "missing": np.int32,
    "level_offsets": np.int64,
    "level_branch": np.int32,
    "value": np.float64,
    "weight": np.float64,
    "gain": np.float64,
    "term_offsets": np.int64,
    "term_feature": np.int32,
    "term_weight": np.float64,
    "surrogate_offsets": np.int64,
    "surrogate_feature": np.int32,
    "surrogate_threshold": np.float64,
    "surrogate_below": np.int32,
    "surrogate_level_offsets": np.int64,
    "surrogate_level_branch": np.int32,
    "surrogate_above": np.int32,
    "surrogate_lost": np.int32,
}

PER_NODE_FIELDS = tuple(
    name for name in FIELD_DTYPES if name.partition("_")[0] not in _ENTRY_PREFIXES
)
"""Fields with one entry, or one row, per node."""


# ---------------------------------------------------------------- empty offsets

_MIN_SHARED = 2**12
_shared_zeros: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]


def empty_offsets(n_owners: int) -> npt.NDArray[np.int64]:
    """Return read-only CSR offsets (owners + 1,) int64 for nodes without entries.

    They are views of zeros that all trees share: three such arrays per tree would take
    a third of a forest's memory.
    """
    zeros = _shared_zeros[0]  # a local reference, because another thread may replace it
    if len(zeros) <= n_owners:
        zeros = np.zeros(max(2 * n_owners, _MIN_SHARED), np.int64)
        zeros.flags.writeable = False
        _shared_zeros[0] = zeros
    return zeros[: n_owners + 1]


def has_no_entries(start: npt.NDArray[Any], n_owners: int) -> bool:
    """Return whether `start` are valid CSR offsets of `n_owners` owners without entries."""
    return start.shape == (n_owners + 1,) and start.dtype.kind in "iu" and not start.any()


# ---------------------------------------------------------------- nodes by depth


def node_depths(nodes: Tree, roots: npt.NDArray[np.int64], bound: int) -> npt.NDArray[np.int64]:
    """Return the depth (n,) int64 of each concatenated node in its tree, up to `bound`."""
    depth = np.zeros(nodes.n_nodes, dtype=np.int64)
    for at, (_, children) in enumerate(node_levels(nodes, roots), 1):
        if at > bound:
            break
        depth[children] = at
    return depth


def node_levels(
    nodes: Tree, roots: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield the inner nodes of each level of concatenated trees, and all of their children."""
    counts = nodes.n_children
    two = bool(np.all((counts == 2) | (counts == 0)))
    level = roots
    while True:
        level = level[counts[level] > 0]
        if not len(level):
            return
        first = nodes.first_child[level].astype(np.int64)
        if two:
            children = np.empty(2 * len(first), np.int64)
            children[::2] = first
            np.add(first, 1, out=children[1::2])
        else:
            own = counts[level]
            offset = np.arange(own.sum()) - np.repeat(np.cumsum(own) - own, own)
            children = np.repeat(first, own) + offset
        yield level, children
        level = children


# ---------------------------------------------------------------- slices of CSR arrays
# Each owner, such as a node, has a slice of a long array, given by CSR offsets.
#
# `Tree.level_branch` may be much larger than the rest of a tree, and positions in it twice
# as large again, so entries are processed in chunks.

_CHUNK_ENTRIES = 1 << 16
"""Entries that are processed at once: their positions stay in the cache."""


def take_slices(
    offsets: npt.NDArray[np.int64],
    owners: npt.NDArray[np.int64],
    excluded: npt.NDArray[np.bool_] | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the positions of the entries ``start[i]:start[i + 1]`` of each owner i of `owners`.

    Returns
    -------
    positions : (entries,) int64
        Positions in the old array, without those of owners in mask `excluded`.
    starts : (owners + 1,) int64
        Offsets of each owner's entries in the new array.
    """
    sizes = np.diff(offsets)[owners]
    if excluded is not None:
        sizes = np.where(excluded, 0, sizes)
    return _expand_slices(offsets[owners], sizes), np.cumsum(np.append(0, sizes))


def concatenate_slices(
    array: npt.NDArray[Any], first: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    """Concatenate the slices ``array[first[i]:first[i] + sizes[i]]``."""
    if len(sizes) and (first[1:] == first[:-1] + sizes[:-1]).all():  # usually one slice
        return array[first[0] : first[-1] + sizes[-1]].copy()
    result = np.empty(sizes.sum(), array.dtype)
    at = 0
    for part in iter_chunks(sizes):
        own = _expand_slices(first[part], sizes[part])
        result[at : at + len(own)] = array[own]
        at += len(own)
    return result


def iter_chunks(sizes: npt.NDArray[np.int64]) -> Iterator[slice]:
    """Yield slices of owners with `sizes` entries each: few entries in total, or one owner."""
    ends = np.cumsum(sizes)
    first = before = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, before + _CHUNK_ENTRIES, "right")), first + 1)
        yield slice(first, last)
        first, before = last, int(ends[last - 1])


def _expand_slices(
    first: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    ends = np.cumsum(sizes)
    n_entries = int(ends[-1]) if len(ends) else 0
    return np.repeat(first - (ends - sizes), sizes) + np.arange(n_entries)
