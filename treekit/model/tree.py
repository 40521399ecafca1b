"""One decision tree as frozen parallel arrays, node by node.

The children of a node have adjacent numbers, and a child comes after its
parent: node 0 is the root, and one pass in order (or backwards) visits parents
first (or last).  Nothing here knows names or labels; `Schema` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "DTYPES",
    "MAX_DEPTH",
    "PER_NODE",
    "Split",
    "Tree",
    "gathered",
    "is_idle",
    "no_entries",
    "node_depths",
    "node_levels",
    "ranges",
    "stretches",
]


# ---------------------------------------------------------------- tree

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
    """``sum(w * x) <= threshold``: branch 0, else branch 1; see `Tree.term_start`."""
    RULE = 6
    """All conditions of a rule are met: branch 0, a leaf; else branch 1, the rules behind it.

    The node's entries in the arrays of surrogates are the conditions: each says 1 where it
    fails, and nothing where it is met.  Such nodes make a chain, and nothing else does."""


_OWNED = ("level", "term", "surrogate")
_NOTHING: npt.NDArray[Any] = np.empty(0)


def _nothing() -> npt.NDArray[Any]:
    """What trees are given that have no terms and no surrogates."""
    return _NOTHING


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A tree of n nodes.

    Attributes
    ----------
    kind : (n,) uint8
        A `Split`.
    feature : (n,) int32
        Column that the node asks (OBLIQUE: its first); -1 in leaves.
    threshold : (n,) float64
        THRESHOLD nodes: a finite number of the model's input type; OBLIQUE
        nodes: any finite number; NaN elsewhere.
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
    value : (n, values) float64
        What the training rows of the node say: the weight of each class, or
        the mean target; one output after the other.
    weight : (n,) float64
        Training weight that reached the node.
    gain : (n,) float64
        Score of the node's split; 0 in leaves.
    term_start : (n + 1,) int64
        OBLIQUE node i owns terms ``term_start[i]:term_start[i + 1]``; others none.
    term_feature : (terms,) int32
        Numeric columns, ascending within a node.
    term_weight : (terms,) float64
        Numbers exact in float32, not 0.  The sum is taken in double, in this
        order, from 0.0; NaN goes the missing way.
    surrogate_start : (n + 1,) int64
        THRESHOLD or SUBSET node i owns surrogates ``surrogate_start[i]`` to
        ``surrogate_start[i + 1]``: what a row is asked whose own value is
        missing, or a level that the node never saw; the first that says a branch
        decides.  RULE nodes own their conditions here, and have no test of their own.
    surrogate_feature : (surrogates,) int32
    surrogate_threshold : (surrogates,) float64
        Numeric columns: a number of the input type.  NaN for nominal columns.
    surrogate_below, surrogate_above : (surrogates,) int32
        Numeric columns: branch of ``x <= threshold``, and of larger values; -1 = says
        nothing.  Surrogates say both: by default, and in nominal columns, where they
        mean nothing, ``above`` is ``1 - below``.
    surrogate_lost : (surrogates,) int32
        Branch of a missing value, or of a level outside the vocabulary that counts as
        one; -1 = says nothing, the default.
    surrogate_level_start : (surrogates + 1,) int64
    surrogate_level_branch : (levels,) int32
        Nominal columns: branch of each level; -1 = says nothing.
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
    term_start: npt.NDArray[np.int64] = field(default_factory=_nothing)
    term_feature: npt.NDArray[np.int32] = field(default_factory=_nothing)
    term_weight: npt.NDArray[np.float64] = field(default_factory=_nothing)
    surrogate_start: npt.NDArray[np.int64] = field(default_factory=_nothing)
    surrogate_feature: npt.NDArray[np.int32] = field(default_factory=_nothing)
    surrogate_threshold: npt.NDArray[np.float64] = field(default_factory=_nothing)
    surrogate_below: npt.NDArray[np.int32] = field(default_factory=_nothing)
    surrogate_level_start: npt.NDArray[np.int64] = field(default_factory=_nothing)
    surrogate_level_branch: npt.NDArray[np.int32] = field(default_factory=_nothing)
    surrogate_above: npt.NDArray[np.int32] = field(default_factory=_nothing)
    surrogate_lost: npt.NDArray[np.int32] = field(default_factory=_nothing)

    def __post_init__(self) -> None:
        for one in fields(self):
            dtype = DTYPES[one.name]
            array = getattr(self, one.name)
            if one.name.endswith("_start"):
                owners = self.surrogate_feature if "surrogate_level" in one.name else self.kind
                if array is _NOTHING or is_idle(np.asarray(array), owners.size):
                    array = no_entries(owners.size)
            elif array is _NOTHING and one.name == "surrogate_above":
                array = 1 - np.asarray(self.surrogate_below)
            elif array is _NOTHING and one.name == "surrogate_lost":
                array = np.full(len(self.surrogate_feature), -1)
            array = np.ascontiguousarray(array, dtype=dtype)
            if array.flags.writeable:
                array = array.view()
                array.flags.writeable = False
            object.__setattr__(self, one.name, array)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.kind)

    @property
    def one_sided(self) -> bool:
        """Whether some entry of the surrogates says something else than a surrogate does."""
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
        """(n,) int64: edges from the root; computed one level of the tree at a time."""
        return node_depths(self, np.zeros(1, dtype=np.int64), self.n_nodes)

    @property
    def depth(self) -> int:
        """Edges from the root to the deepest leaf."""
        return int(self.depths.max())

    def branches(self, node: int) -> npt.NDArray[np.int32]:
        """Branch of each level of a SUBSET or MULTIWAY node (a view; see `level_branch`)."""
        return self.level_branch[self.level_start[node] : self.level_start[node + 1]]

    def take(
        self,
        nodes: npt.NDArray[np.int64],
        closed: npt.NDArray[np.bool_],
        contents: npt.NDArray[np.int64] | None = None,
    ) -> Tree:
        """The tree of some of the nodes, in a new order.

        Parameters
        ----------
        nodes : (m,) int64
            Root first, siblings side by side, children after parents.
        closed : (m,) bool
            Which of them become leaves.
        contents : (m,) int64, optional
            Nodes that take the places of `nodes`, with what they ask and say;
            default `nodes` themselves.
        """
        source = nodes if contents is None else contents
        closed = closed | (self.kind[source] == Split.LEAF)
        number = np.full(self.n_nodes, -1)
        number[nodes] = np.arange(len(nodes))
        level_sizes = np.where(closed, 0, np.diff(self.level_start)[source])
        terms, term_start = ranges(self.term_start, source, closed)
        surrogates, surrogate_start = ranges(self.surrogate_start, source, closed)
        entry_sizes = np.diff(self.surrogate_level_start)[surrogates]
        return Tree(
            kind=np.where(closed, Split.LEAF, self.kind[source]),
            feature=np.where(closed, -1, self.feature[source]),
            threshold=np.where(closed, np.nan, self.threshold[source]),
            first_child=np.where(closed, -1, number[self.first_child[source]]),
            n_children=np.where(closed, 0, self.n_children[source]),
            missing=np.where(closed, 0, self.missing[source]),
            level_start=np.cumsum(np.append(0, level_sizes)),
            level_branch=gathered(self.level_branch, self.level_start[source], level_sizes),
            value=self.value[source],
            weight=self.weight[source],
            gain=np.where(closed, 0.0, self.gain[source]),
            term_start=term_start,
            term_feature=self.term_feature[terms],
            term_weight=self.term_weight[terms],
            surrogate_start=surrogate_start,
            surrogate_feature=self.surrogate_feature[surrogates],
            surrogate_threshold=self.surrogate_threshold[surrogates],
            surrogate_below=self.surrogate_below[surrogates],
            surrogate_above=self.surrogate_above[surrogates],
            surrogate_lost=self.surrogate_lost[surrogates],
            surrogate_level_start=np.cumsum(np.append(0, entry_sizes)),
            surrogate_level_branch=gathered(
                self.surrogate_level_branch, self.surrogate_level_start[surrogates], entry_sizes
            ),
        )

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
    "term_start": np.int64,
    "term_feature": np.int32,
    "term_weight": np.float64,
    "surrogate_start": np.int64,
    "surrogate_feature": np.int32,
    "surrogate_threshold": np.float64,
    "surrogate_below": np.int32,
    "surrogate_level_start": np.int64,
    "surrogate_level_branch": np.int32,
    "surrogate_above": np.int32,
    "surrogate_lost": np.int32,
}

PER_NODE = tuple(name for name in DTYPES if name.partition("_")[0] not in _OWNED)
"""Fields with one entry, or one row, for each node."""


# ---------------------------------------------------------------- idle
# Starts of nodes that own nothing: of trees without levels, terms or surrogates.

_FEWEST = 2**12
_shared: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]


def no_entries(n_owners: int) -> npt.NDArray[np.int64]:
    """(owners + 1,) int64, read-only: the starts of owners that own nothing.

    Views of the same zeros, which all trees share: three such arrays a tree would be
    a third of a forest's memory.
    """
    zeros = _shared[0]  # another thread may replace it
    if len(zeros) <= n_owners:
        zeros = np.zeros(max(2 * n_owners, _FEWEST), np.int64)
        zeros.flags.writeable = False
        _shared[0] = zeros
    return zeros[: n_owners + 1]


def is_idle(start: npt.NDArray[Any], n_owners: int) -> bool:
    """Whether starts say that so many owners own nothing, and are nothing else."""
    return start.shape == (n_owners + 1,) and start.dtype.kind in "iu" and not start.any()


# ---------------------------------------------------------------- levels
# Nodes of trees by their depth, a level at a time.


def node_depths(nodes: Tree, roots: npt.NDArray[np.int64], bound: int) -> npt.NDArray[np.int64]:
    """(n,) int64: edges from the own root of each joined node, a level at a time to `bound`."""
    depth = np.zeros(nodes.n_nodes, dtype=np.int64)
    for at, (_, children) in enumerate(node_levels(nodes, roots), 1):
        if at > bound:
            break
        depth[children] = at
    return depth


def node_levels(
    nodes: Tree, roots: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Inner nodes of each level of joined trees, the roots' first, and all of their children."""
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


# ---------------------------------------------------------------- owned
# What owners, such as nodes, own of one long array, a range each.
#
# Branches of levels may be many times what everything else of a tree takes, and their
# positions twice that again: entries are worked on a stretch at a time.

_MOST = 1 << 16
"""Entries that are worked on at once: their positions stay in the cache."""


def ranges(
    start: npt.NDArray[np.int64],
    owners: npt.NDArray[np.int64],
    without: npt.NDArray[np.bool_] | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """What the `owners` own of an array, where owner i owns ``start[i]:start[i + 1]``.

    Returns
    -------
    positions : (entries,) int64
        Of what they own, but not those of the mask `without`, in the old array.
    starts : (owners + 1,) int64
        Where the entries of each begin in the new one.
    """
    sizes = np.diff(start)[owners]
    if without is not None:
        sizes = np.where(without, 0, sizes)
    return _positions(start[owners], sizes), np.cumsum(np.append(0, sizes))


def gathered(
    array: npt.NDArray[Any], first: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    """(entries,) as `array`: ``array[first[i]:first[i] + sizes[i]]``, one after the other."""
    if len(sizes) and (first[1:] == first[:-1] + sizes[:-1]).all():  # one range, as mostly
        return array[first[0] : first[-1] + sizes[-1]].copy()
    found = np.empty(sizes.sum(), array.dtype)
    at = 0
    for part in stretches(sizes):
        own = _positions(first[part], sizes[part])
        found[at : at + len(own)] = array[own]
        at += len(own)
    return found


def stretches(sizes: npt.NDArray[np.int64]) -> Iterator[slice]:
    """Owners of `sizes` entries each, some at a time: of few entries in all, or just one."""
    ends = np.cumsum(sizes)
    first = before = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, before + _MOST, "right")), first + 1)
        yield slice(first, last)
        first, before = last, int(ends[last - 1])


def _positions(first: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    ends = np.cumsum(sizes)
    n_entries = int(ends[-1]) if len(ends) else 0
    return np.repeat(first - (ends - sizes), sizes) + np.arange(n_entries)
