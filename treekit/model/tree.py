"""The `Tree`: one decision tree as immutable parallel arrays of nodes.

Siblings have adjacent node numbers, and children come after their parent: node 0 is
the root, and a pass in ascending (descending) order visits parents before (after)
their children.  Names and labels are part of the `Schema`.  This module also concatenates trees
to one set of arrays, and derives the columns of oblique splits, rules and surrogates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError

if TYPE_CHECKING:
    from treekit.model.model import Model


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
    level_branch : (levels,) int8, int16 or int32
        Branch of each category; -1 = the category was absent from the node and is
        treated as missing.  Uses the smallest type that fits, because this array
        dominates the memory of trees with many categories.
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
    level_branch: npt.NDArray[np.int8 | np.int16 | np.int32]
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
        for name, dtype in FIELD_DTYPES.items():
            array = getattr(self, name)
            if name.endswith("_offsets"):
                owners = self.surrogate_feature if "surrogate_level" in name else self.kind
                if array is _UNSET or has_no_entries(np.asarray(array), owners.size):
                    array = empty_offsets(owners.size)
            elif array is _UNSET and name == "surrogate_above" and self.surrogate_feature.size:
                array = 1 - self.surrogate_below
            elif array is _UNSET and name == "surrogate_lost" and self.surrogate_feature.size:
                array = np.full(self.surrogate_feature.size, -1)
            elif array is _UNSET:
                array = _NO_ENTRIES[dtype]
            if name == "level_branch":
                array = _narrow_branches(np.asarray(array))
            else:
                array = np.ascontiguousarray(array, dtype=dtype)
            if array.flags.writeable:
                array = array.view()
                array.flags.writeable = False
            object.__setattr__(self, name, array)

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
        parent[expand_slices(self.first_child[inner], counts)] = np.repeat(inner, counts)
        return parent

    @property
    def depths(self) -> npt.NDArray[np.int64]:
        """(n,) int64: edges from the root to each node."""
        return node_depths(self, np.zeros(1, dtype=np.int64), self.n_nodes)

    @property
    def depth(self) -> int:
        """Edges from the root to the deepest leaf."""
        return int(self.depths.max())

    def branches(self, node: int) -> npt.NDArray[np.int8 | np.int16 | np.int32]:
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
        entries = {
            name: getattr(self, name)[own]
            for start, own in (("term_offsets", terms), ("surrogate_offsets", surrogates))
            for name in NODE_ENTRIES[start]
        }
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
            surrogate_offsets=surrogate_offsets,
            **entries,
            surrogate_level_offsets=np.cumsum(np.append(0, entry_sizes)),
            surrogate_level_branch=concatenate_slices(
                self.surrogate_level_branch, self.surrogate_level_offsets[surrogates], entry_sizes
            ),
        )

    def with_value(self, value: npt.NDArray[np.float64]) -> Tree:
        """Return the tree with other node values (n, outputs)."""
        return replace(self, value=value)


def _narrow_branches(branches: npt.NDArray[Any]) -> npt.NDArray[np.int8 | np.int16 | np.int32]:
    """Convert branches to the smallest declared type that holds them all."""
    if branches.dtype != np.int8:
        low, high = (int(branches.min()), int(branches.max())) if branches.size else (0, 0)
        least = np.min_scalar_type(min(low, ~high))  # a negative number: a signed type
        branches = branches.astype(least if least.itemsize < 4 else np.int32, copy=False)
    return np.ascontiguousarray(branches)


def _find_widest_type(hint: Any) -> type[np.generic]:
    """Return the widest element type in the type hint of an array: the one listed last."""
    widest: type[np.generic] = list(_iterate_element_types(hint))[-1]
    return widest


def _iterate_element_types(hint: Any) -> Iterator[type[np.generic]]:
    """Yield the element types in a type hint; releases of numpy nest them differently."""
    if isinstance(hint, type) and issubclass(hint, np.generic):
        yield hint
    for part in get_args(hint):
        yield from _iterate_element_types(part)


FIELD_DTYPES = {name: _find_widest_type(hint) for name, hint in get_type_hints(Tree).items()}
"""Type of each array, as declared in `Tree`; of `level_branch` the widest."""

_NO_ENTRIES = {dtype: np.zeros(0, dtype) for dtype in FIELD_DTYPES.values()}
for _array in _NO_ENTRIES.values():
    _array.flags.writeable = False

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
    level = roots
    while True:
        level = level[counts[level] > 0]
        if not len(level):
            return
        children = expand_slices(nodes.first_child[level], counts[level])
        yield level, children
        level = children


# ---------------------------------------------------------------- slices of CSR arrays
# Each owner, such as a node, has a slice of a long array, given by CSR offsets.
#
# `Tree.level_branch` may be much larger than the rest of a tree, and positions in it eight
# times as large again, so entries are processed in chunks.

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
    return expand_slices(offsets[owners], sizes), np.cumsum(np.append(0, sizes))


def concatenate_slices(
    array: npt.NDArray[Any], first: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    """Concatenate the slices ``array[first[i]:first[i] + sizes[i]]``."""
    if len(sizes) and (first[1:] == first[:-1] + sizes[:-1]).all():  # usually one slice
        return array[first[0] : first[-1] + sizes[-1]].copy()
    result = np.empty(sizes.sum(), array.dtype)
    at = 0
    for part in iter_chunks(sizes):
        own = expand_slices(first[part], sizes[part])
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


def expand_slices(
    first: npt.NDArray[np.signedinteger[Any]], sizes: npt.NDArray[np.signedinteger[Any]]
) -> npt.NDArray[np.int64]:
    """Return the positions ``first[i], ..., first[i] + sizes[i] - 1`` of each slice i."""
    ends = np.cumsum(sizes)
    n_entries = int(ends[-1]) if len(ends) else 0
    return np.repeat(first - (ends - sizes), sizes) + np.arange(n_entries)


# ---------------------------------------------------------------- concatenated trees

BATCH_NODES = 2**15
"""Nodes that are processed in one batch: one call per tree is slow for small trees, and a copy
of a complete forest takes too much memory."""

_BRANCHES_PER_NODE = 16
"""Entries of `Tree.level_branch` that count as a node in a batch."""

_MAX_NODES = np.iinfo(np.int32).max

# CSR offsets and the arrays that they index, by node and by surrogate.
NODE_ENTRIES = {
    "level_offsets": ("level_branch",),
    "term_offsets": ("term_feature", "term_weight"),
    "surrogate_offsets": (
        *("surrogate_feature", "surrogate_threshold"),
        *("surrogate_below", "surrogate_above", "surrogate_lost"),
    ),
}
SURROGATE_ENTRIES = {"surrogate_level_offsets": ("surrogate_level_branch",)}


def batch_trees(trees: Sequence[Tree]) -> Iterator[Sequence[Tree]]:
    """Yield the trees in order, in batches of up to `BATCH_NODES` nodes, or of one larger tree.

    Entries of `Tree.level_branch` count, too: `_BRANCHES_PER_NODE` of them as one node.
    """
    sizes = [
        tree.n_nodes
        + (len(tree.level_branch) + len(tree.surrogate_level_branch)) // _BRANCHES_PER_NODE
        for tree in trees
    ]
    first = 0
    while first < len(trees):
        last, nodes = first + 1, sizes[first]
        while last < len(trees) and nodes + sizes[last] <= BATCH_NODES:
            nodes += sizes[last]
            last += 1
        yield trees[first:last]
        first = last


def concatenate_trees(trees: Sequence[Tree]) -> tuple[Tree, npt.NDArray[np.int64]]:
    """Concatenate the arrays of all trees; the inverse of `split_trees`.

    The arrays of a single tree are not copied.

    Returns
    -------
    nodes : Tree
        Not a tree: children and offsets are relative to the first node of all trees.
    roots : (trees + 1,) int64
        Tree t consists of the nodes ``roots[t]`` to ``roots[t + 1]``.
    """
    roots = compute_root_offsets(trees)
    starts = NODE_ENTRIES | SURROGATE_ENTRIES
    joined = {}
    for name in FIELD_DTYPES.keys() - starts.keys():
        arrays = [getattr(tree, name) for tree in trees]
        joined[name] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    shift = np.repeat(roots[:-1], np.diff(roots))
    # Clip, so that an invalid child cannot overflow int32 and wrap into a valid range.
    child = np.minimum(joined["first_child"] + shift, _MAX_NODES)
    joined["first_child"] = np.where(joined["kind"] == Split.LEAF, -1, child)
    for name in starts:
        own = [getattr(tree, name) for tree in trees]
        ends = np.cumsum([0] + [int(start[-1]) for start in own])
        if ends[-1] == 0 and not any(start.any() for start in own):
            joined[name] = empty_offsets(sum(len(start) - 1 for start in own))
            continue
        parts = [start[:-1] + at for start, at in zip(own, ends[:-1], strict=True)]
        joined[name] = np.concatenate([*parts, ends[-1:]])
    return Tree(**joined), roots


def compute_root_offsets(trees: Sequence[Tree]) -> npt.NDArray[np.int64]:
    """Return (trees + 1,) int64 offsets: tree t has the nodes ``roots[t]`` to ``roots[t + 1]``."""
    roots = np.cumsum([0] + [tree.n_nodes for tree in trees]).astype(np.int64)
    if roots[-1] > _MAX_NODES:
        raise ModelError(f"the trees have {roots[-1]} nodes in total; the maximum is 2147483647")
    return roots


def split_trees(nodes: Tree, roots: npt.NDArray[np.int64]) -> tuple[Tree, ...]:
    """Split the arrays of `concatenate_trees` into trees; their arrays are views."""
    shift = np.repeat(roots[:-1], np.diff(roots))
    child = np.where(nodes.kind == Split.LEAF, -1, nodes.first_child - shift).astype(np.int32)
    # Most forests have neither terms nor surrogates, whose slices would take half of the time.
    used = [
        start for start in NODE_ENTRIES if start == "level_offsets" or getattr(nodes, start).any()
    ]
    trees = []
    for first, last in itertools.pairwise(roots.tolist()):
        own = {name: getattr(nodes, name)[first:last] for name in PER_NODE_FIELDS}
        own["first_child"] = child[first:last]
        for start in used:
            own |= _slice_entries(nodes, start, NODE_ENTRIES[start], first, last)
        if "surrogate_offsets" in used:
            bounds = nodes.surrogate_offsets[[first, last]].tolist()
            for start, names in SURROGATE_ENTRIES.items():
                own |= _slice_entries(nodes, start, names, *bounds)
        trees.append(Tree(**own))
    return tuple(trees)


def _slice_entries(
    nodes: Tree, start: str, names: tuple[str, ...], first: int, last: int
) -> dict[str, npt.NDArray[np.generic]]:
    """Return the offsets of nodes or surrogates `first` to `last`, and views of their entries."""
    own = getattr(nodes, start)[first : last + 1]
    found = {name: getattr(nodes, name)[own[0] : own[-1]] for name in names}
    return {start: own - own[0], **found}


# ---------------------------------------------------------------- level tables
# One lookup table of branches for all splits on categories.
#
# A split's entries are the branch of a missing value, then that of each category.  The
# entries are as narrow as all branches allow, to save memory.

_MAX_BYTE_BRANCHES = np.iinfo(np.uint8).max
"""Most branches of a split for one-byte entries: the largest value means no branch."""


def find_level_splits(nodes: Tree, plain: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return an (n,) bool mask of the splits on categories among the nodes of mask `plain`."""
    mask: npt.NDArray[np.bool_] = (nodes.kind == Split.SUBSET) | (nodes.kind == Split.MULTIWAY)
    return mask & plain


def allocate_level_table(trees: Sequence[Tree], plain: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Allocate the branch table for the nodes of mask `plain` (nodes,) of all trees.

    Returns
    -------
    (entries,) uint8 or uint32
        Uninitialized; the largest value of the type is not a branch of any node.
    """
    entries = most = at = 0
    for tree in trees:
        level_splits = find_level_splits(tree, plain[at : at + tree.n_nodes])
        at += tree.n_nodes
        if level_splits.any():
            entries += int(
                np.diff(tree.level_offsets)[level_splits].sum() + np.count_nonzero(level_splits)
            )
            most = max(most, int(tree.n_children[level_splits].max()))
    return np.empty(entries, np.uint8 if most <= _MAX_BYTE_BRANCHES else np.uint32)


def fill_level_table(
    table: npt.NDArray[Any],
    at: int,
    nodes: Tree,
    level_splits: npt.NDArray[np.bool_],
    *,
    fractional: bool = False,
) -> npt.NDArray[np.int64]:
    """Write the entries of the nodes of mask `level_splits` to a table, from position `at` on.

    A category that was absent at a node takes the branch of missing values; if `fractional`
    (fractional instances), both entries are the largest value of the table's type.

    Returns
    -------
    (masked nodes + 1,) int64
        Offsets of the entries of each node in `table`.
    """
    own = np.flatnonzero(level_splits)
    first = nodes.level_offsets[own]
    sizes = nodes.level_offsets[own + 1] - first
    start = at + np.cumsum(np.append(0, sizes + 1))
    missing = nodes.missing[own].astype(table.dtype)
    if fractional:
        missing[:] = np.iinfo(table.dtype).max
    for part in iter_chunks(sizes):
        entries = table[start[part.start] : start[part.stop]]
        is_missing = np.zeros(len(entries), dtype=np.bool_)
        is_missing[start[part] - start[part.start]] = True
        branch = concatenate_slices(nodes.level_branch, first[part], sizes[part])
        instead = np.repeat(missing[part], sizes[part])
        entries[is_missing] = missing[part]
        entries[~is_missing] = np.where(branch < 0, instead, branch)
    return start


# ---------------------------------------------------------------- derived columns


class DerivedColumns(NamedTuple):
    """The D derived columns of a model, with T tests in total.

    Attributes
    ----------
    column : (nodes,) int64
        Derived column of each node of the concatenated trees; -1 = a plain node.
    test_start : (D + 1,) int64
        Offsets of the tests of each column.
    threshold : (T,) float64
        Linear tests: threshold of ``0.0 + w0 * x0 + w1 * x1 + ...``, computed in double
        over inputs of the model's type; a NaN sum takes `lost`.
    below, above : (T,) int64
        Linear tests: branch where the sum is at most the threshold, and where it is
        larger; -1 = no branch.
    lost : (T,) int64
        Branch of a sum that is NaN, or of a category that is missing or outside the
        vocabulary; -1 = no branch.
    term_start : (T + 1,) int64
        Offsets of the terms of each linear test; a test of categories has none.
    term_feature : (terms,) int64
    term_weight : (terms,) float64
    level_feature : (T,) int64
        Column of a test of categories; -1 for linear tests.
    level_start : (T + 1,) int64
        Offsets of the branches of each test of categories.
    level_branch : (levels,) int32
        Branch of each category; -1 = no branch.
    """

    column: npt.NDArray[np.int64]
    test_start: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float64]
    below: npt.NDArray[np.int64]
    above: npt.NDArray[np.int64]
    lost: npt.NDArray[np.int64]
    term_start: npt.NDArray[np.int64]
    term_feature: npt.NDArray[np.int64]
    term_weight: npt.NDArray[np.float64]
    level_feature: npt.NDArray[np.int64]
    level_start: npt.NDArray[np.int64]
    level_branch: npt.NDArray[np.int32]

    @property
    def n_columns(self) -> int:
        """D, the number of derived columns."""
        return len(self.test_start) - 1


def make_derived_columns(model: Model) -> DerivedColumns:
    """Return the derived columns of a model's trees in node order, none for plain trees."""
    if not any(len(tree.surrogate_feature) or Split.OBLIQUE in tree.kind for tree in model.trees):
        # Do not concatenate all trees: that would double the memory of a large forest.
        nodes, _ = concatenate_trees(model.trees[:1])
        column = np.broadcast_to(-1, sum(tree.n_nodes for tree in model.trees))
        return _make_columns(nodes, np.empty(0, np.int64), model.schema.nominal)._replace(
            column=column
        )
    nodes, _ = concatenate_trees(model.trees)
    has_tests = (nodes.kind == Split.OBLIQUE) | (np.diff(nodes.surrogate_offsets) > 0)
    return _make_columns(nodes, np.flatnonzero(has_tests), model.schema.nominal)


def make_node_tests(model: Model) -> DerivedColumns:
    """Return a derived column for each inner node, except MISSING nodes: the node's tests.

    The values for categories are branches of the node, of which a MULTIWAY node may have
    more than two.
    """
    nodes, _ = concatenate_trees(model.trees)
    has_tests = (nodes.kind != Split.LEAF) & (nodes.kind != Split.MISSING)
    return _make_columns(nodes, np.flatnonzero(has_tests), model.schema.nominal)


def _make_columns(
    nodes: Tree, owners: npt.NDArray[np.int64], nominal_columns: npt.NDArray[np.bool_]
) -> DerivedColumns:
    """Make a derived column for each of the nodes `owners`."""
    surrogates = np.diff(nodes.surrogate_offsets)
    column = np.full(nodes.n_nodes, -1)
    column[owners] = np.arange(len(owners))
    has_own_test = nodes.kind[owners] != Split.RULE  # a rule has only its conditions, no own test
    sizes = has_own_test + surrogates[owners]
    test_start = np.cumsum(np.append(0, sizes))
    own = np.zeros(test_start[-1], dtype=np.bool_)  # a node's own test comes first
    own[test_start[:-1][has_own_test]] = True
    behind, _ = take_slices(nodes.surrogate_offsets, owners)
    owners = owners[has_own_test]

    def merge_tests(
        of_nodes: npt.NDArray[np.generic], of_surrogates: npt.NDArray[np.generic]
    ) -> Any:
        merged = np.empty(len(own), dtype=np.result_type(of_nodes, of_surrogates))
        merged[own], merged[~own] = of_nodes, of_surrogates
        return merged

    feature = merge_tests(nodes.feature[owners], nodes.surrogate_feature[behind]).astype(np.int64)
    nominal = nominal_columns[feature]
    terms, _ = take_slices(nodes.term_offsets, owners)
    of_owners = np.diff(nodes.term_offsets)[owners]
    own_terms = merge_tests(of_owners, np.zeros(len(behind), np.int64))
    term_counts = np.where(own_terms > 0, own_terms, np.where(nominal, 0, 1))
    term_feature = np.repeat(feature, term_counts)
    term_weight = np.ones(len(term_feature))
    oblique = np.repeat(own_terms > 0, term_counts)
    term_feature[oblique] = nodes.term_feature[terms]
    term_weight[oblique] = nodes.term_weight[terms]
    level_start, level_branch = _collect_level_branches(nodes, owners, behind, own)
    return DerivedColumns(
        column=column,
        test_start=test_start,
        threshold=merge_tests(nodes.threshold[owners], nodes.surrogate_threshold[behind]),
        below=merge_tests(np.zeros(len(owners), np.int64), nodes.surrogate_below[behind]),
        above=merge_tests(np.ones(len(owners), np.int64), nodes.surrogate_above[behind]),
        lost=merge_tests(np.full(len(owners), -1), nodes.surrogate_lost[behind]),
        term_start=np.cumsum(np.append(0, term_counts)),
        term_feature=term_feature,
        term_weight=term_weight,
        level_feature=np.where(nominal, feature, -1),
        level_start=level_start,
        level_branch=level_branch,
    )


def _collect_level_branches(
    nodes: Tree,
    owners: npt.NDArray[np.int64],
    surrogates: npt.NDArray[np.int64],
    own: npt.NDArray[np.bool_],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Collect the category branches of each test.

    Parameters
    ----------
    nodes : Tree
    owners : (own tests,) int64
        Node of each test that is a node's own split.
    surrogates : (other tests,) int64
        Entry of each test that is a surrogate or a condition of a rule.
    own : (tests,) bool
        Which tests are a node's own split.
    """
    sizes, first = (np.empty(len(own), np.int64) for _ in range(2))
    for tests, start, at in (
        (own, nodes.level_offsets, owners),
        (~own, nodes.surrogate_level_offsets, surrogates),
    ):
        first[tests], sizes[tests] = start[at], start[at + 1] - start[at]
    level_start = np.cumsum(np.append(0, sizes))
    level_branch = np.empty(level_start[-1], np.int32)
    for part in iter_chunks(sizes):
        mine, counts, starts = own[part], sizes[part], first[part]
        of_own = np.repeat(mine, counts)
        branch = level_branch[level_start[part.start] : level_start[part.stop]]
        branch[of_own] = concatenate_slices(nodes.level_branch, starts[mine], counts[mine])
        branch[~of_own] = concatenate_slices(
            nodes.surrogate_level_branch, starts[~mine], counts[~mine]
        )
    return level_start, level_branch
