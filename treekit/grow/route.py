"""Route rows of the coded table through a tree, also as fractional instances.

Used by pruners, subtree raising and out-of-bag scores where a row may go down several
branches (``missing="fractional"``; Quinlan 1993, section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.grow.target_statistics import choose_part_steps
from treekit.kernels.grow_tree import NODE_DTYPE
from treekit.kernels.records import Rows, Table
from treekit.kernels.route_rows import CodedSplits, find_row_leaves
from treekit.kernels.route_rows import route_rows as route_kernel
from treekit.model.fixed_point import MASS, compute_mass_bounds
from treekit.model.tree import Split, Tree


@dataclass(frozen=True)
class LeafShares:
    """The leaves that rows reach, with one entry for each row and leaf.

    Attributes
    ----------
    ids : (entries,) uint32
    leaf : (entries,) int64
    share : (entries,) float64
        Share of the row, a multiple of 2**-24; the shares of a row add up to 1.
    """

    ids: npt.NDArray[np.uint32]
    leaf: npt.NDArray[np.int64]
    share: npt.NDArray[np.float64]


def compute_node_statistics(
    tree: Tree, table: Table, rows: Rows, size: int, *, fractional: bool, start: int = 0
) -> npt.NDArray[np.float64]:
    """Compute the statistics of `rows` at every node of their decision paths.

    Parameters
    ----------
    tree : Tree
        A tree grown on the table, with thresholds between the table's values.
    rows : Rows
        Row numbers of `table`, with their statistics; not changed.
    size : int
        S, the number of cells of a node's statistics.
    fractional : bool
        Send a row with a missing value down every branch as fractional instances, in
        proportion to the known weight of `rows` there; otherwise down the split's
        missing branch.
    start : int
        The node at which the rows start.

    Returns
    -------
    (nodes, S) float64
        Zeros at nodes that no row reaches.
    """
    stop = tree.kind == Split.LEAF
    return _route_rows(tree, table, rows, size, fractional, start, stop)[0]


def partition_node_rows(
    tree: Tree, table: Table, rows: Rows, node: int, *, fractional: bool
) -> list[Rows]:
    """Partition the rows of `node` among its children; see `compute_node_statistics`."""
    first, count = int(tree.first_child[node]), int(tree.n_children[node])
    stop = tree.kind == Split.LEAF
    stop[first : first + count] = True
    cells = rows.cells
    size = int(cells.max()) + 1 if len(cells) else rows.values.shape[1]
    _, led, at = _route_rows(tree, table, rows, size, fractional, node, stop)
    parts = []
    for child in range(first, first + count):
        own = at == child
        cells = led.cells[own] if len(led.cells) else led.cells
        parts.append(Rows(led.ids[own], cells, led.values[own]))
    return parts


def compute_leaf_shares(
    tree: Tree, table: Table, ids: npt.NDArray[np.uint32], *, fractional: bool
) -> LeafShares:
    """Compute the leaves that rows reach, with the shares that predictions use.

    Parameters
    ----------
    ids : (rows,) uint32
        Row numbers of `table`, each at most once.
    """
    values = np.full((len(ids), 1), float(MASS))
    rows = Rows(ids, np.zeros(len(ids), np.uint32), values)
    upto = compute_mass_bounds(tree)[:, 1] / MASS
    stop = tree.kind == Split.LEAF
    _, led, leaf = _route_rows(tree, table, rows, 1, fractional, 0, stop, upto, np.ones(1))
    return LeafShares(led.ids, leaf, led.values[:, 0] / MASS)


def find_leaves(tree: Tree, table: Table, ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Find the leaves of rows, (rows,) int64, without oblique splits and surrogates."""
    leaves = np.empty(len(ids), np.int64)
    find_row_leaves(encode_splits(tree, table), table, ids, leaves)
    return leaves


def _route_rows(
    tree: Tree,
    table: Table,
    rows: Rows,
    size: int,
    fractional: bool,
    start: int,
    stop: npt.NDArray[np.bool_],
    upto: npt.NDArray[np.float64] | None = None,
    steps: npt.NDArray[np.float64] | None = None,
) -> tuple[npt.NDArray[np.float64], Rows, npt.NDArray[np.int64]]:
    """Return the statistics of all nodes, and the rows with the nodes where they stopped.

    Without `upto` the branch shares of a split are those of the known weight there.
    """
    stats = np.zeros((tree.n_nodes, size))
    ids, cells, values, at = route_kernel(
        encode_splits(tree, table),
        np.ones(tree.n_nodes) if upto is None else upto,
        table, Rows(rows.ids.copy(), rows.cells.copy(), rows.values.copy()),
        choose_part_steps(rows.values) if steps is None else steps,
        fractional, upto is None, start, stop, stats, np.zeros(tree.n_nodes, NODE_DTYPE),
    )  # fmt: skip
    return stats, Rows(ids, cells, values), at


def encode_splits(tree: Tree, table: Table) -> CodedSplits:
    """Convert the splits of a tree to tests on a table's codes, for kernels."""
    terms = np.empty(2 * len(tree.term_feature), dtype=np.int32)
    terms[::2] = tree.term_feature
    terms[1::2] = tree.term_weight.astype(np.float32).view(np.int32)
    surrogates = np.zeros((len(tree.surrogate_feature) + 1, 4), dtype=np.int64)
    surrogates[:-1, 0] = tree.surrogate_feature
    surrogates[:-1, 1] = _find_cut_codes(tree.surrogate_feature, tree.surrogate_threshold, table)
    surrogates[:-1, 2] = tree.surrogate_below
    surrogates[:, 3] = tree.surrogate_level_offsets
    thresholds = np.where(tree.kind == Split.THRESHOLD, tree.threshold, np.nan)
    return CodedSplits(
        tree.kind, tree.feature, tree.threshold, _find_cut_codes(tree.feature, thresholds, table),
        tree.first_child, tree.n_children, tree.missing, tree.level_offsets, tree.level_branch,
        tree.term_offsets, terms, tree.surrogate_offsets, surrogates, tree.surrogate_level_branch,
    )  # fmt: skip


def _find_cut_codes(
    feature: npt.NDArray[np.int32], threshold: npt.NDArray[np.float64], table: Table
) -> npt.NDArray[np.int64]:
    """Return the last code whose values do not exceed each threshold; -1 where it is NaN."""
    cuts = np.full(len(feature), -1, dtype=np.int64)
    numeric = ~np.isnan(threshold)
    for f in np.unique(feature[numeric]).tolist():
        nodes = numeric & (feature == f)
        start = int(table.value_start[f])
        low = table.low[start : start + int(table.n_codes[f])]
        cuts[nodes] = np.searchsorted(low, threshold[nodes], side="right") - 1
    return cuts
