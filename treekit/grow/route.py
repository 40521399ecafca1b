"""Route rows of the coded table through a tree, also as fractional instances.

Used by pruners and out-of-bag scores, where a row may go down several branches
(``missing="fractional"``; Quinlan 1993, section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.grow.target_statistics import choose_part_steps
from treekit.kernels.grow_tree import NODE_DTYPE
from treekit.kernels.records import Rows, Table
from treekit.kernels.route_rows import CodedSplits, RoutedTree, find_row_leaves, route_rows
from treekit.kernels.row_records import RecordTable
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


def compute_leaf_shares(
    tree: Tree, table: Table, ids: npt.NDArray[np.uint32], *, fractional: bool
) -> LeafShares:
    """Compute the leaves that rows reach, with the shares that predictions use.

    Parameters
    ----------
    ids : (rows,) uint32
        Row numbers of `table`, each at most once.
    """
    rows = Rows(ids.copy(), np.zeros(len(ids), np.uint32), np.full((len(ids), 1), float(MASS)))
    upto, n = compute_mass_bounds(tree)[:, 1] / MASS, tree.n_nodes
    reached, _, values, leaf = route_rows(
        prepare_routing(tree, table, rows, np.ones(1), fractional=fractional), rows, upto, False,
        0, tree.kind == Split.LEAF, np.zeros((n, 1)), np.zeros(n, NODE_DTYPE),
    )  # fmt: skip
    return LeafShares(reached, leaf, values[:, 0] / MASS)


def find_weighed_leaves(
    tree: Tree, table: Table, rows: Rows
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the leaves that the training rows of a tree reached as fractional instances.

    Returns
    -------
    ids : (entries,) uint32
        One entry for each row and leaf.
    leaf : (entries,) int64
    weight : (entries,) float64
        That of the part of the row, as in growth.
    """
    weights = rows.values[:, :1].copy()
    own, n = Rows(rows.ids.copy(), np.zeros(len(weights), np.uint32), weights), tree.n_nodes
    routing = prepare_routing(tree, table, own, choose_part_steps(weights), fractional=True)
    ids, _, values, leaf = route_rows(
        routing, own, np.empty(n), True,
        0, tree.kind == Split.LEAF, np.zeros((n, 1)), np.zeros(n, NODE_DTYPE),
    )  # fmt: skip
    return ids, leaf, values[:, 0]


def find_leaves(
    tree: Tree, table: Table, ids: npt.NDArray[np.uint32], records: RecordTable | None = None
) -> npt.NDArray[np.int64]:
    """Return the leaves of rows, (rows,) int64; not for oblique splits, surrogates or keys.

    `records` are the table's rows as records, in which the codes of a row lie side by side.
    """
    leaves = np.empty(len(ids), np.int64)
    codes, row_step, column_step = table.codes.reshape(-1), 1, table.codes.shape[1]
    if records is not None:
        lines = records.words.view(np.uint8)
        codes, row_step, column_step = lines.reshape(-1), lines.shape[1], 1
    find_row_leaves(
        encode_splits(tree, table), table.n_codes, codes, np.uint64(row_step),
        np.uint64(column_step), ids, leaves,
    )  # fmt: skip
    return leaves


def prepare_routing(
    tree: Tree, table: Table, rows: Rows, steps: npt.NDArray[np.float64], *, fractional: bool
) -> RoutedTree:
    """Return a tree through which kernels route `rows` of a table."""
    splits = encode_splits(tree, table)
    n_sides = table.codes.shape[1] if len(splits.terms) else 0
    sides, branch_of = np.empty(n_sides, table.codes.dtype), np.empty(len(rows.ids), np.uint32)
    return RoutedTree(splits, table, steps, fractional, sides, branch_of)


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
        tree.first_child, tree.n_children, tree.missing, tree.level_offsets,
        tree.level_branch.astype(np.int32), tree.term_offsets, terms,
        tree.surrogate_offsets, surrogates, tree.surrogate_level_branch,
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
