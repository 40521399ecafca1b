"""Which rows of a small table reach each node of a tree: a plain second opinion."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.model.tree import Split, Tree

__all__ = ["rows_of_nodes"]

Ids = npt.NDArray[np.int64]


def rows_of_nodes(tree: Tree, dataset: Dataset) -> dict[int, Ids]:
    """Row numbers by node, whole rows going one way."""
    columns = tuple(dataset.columns)  # each is asked for at many nodes
    reached: dict[int, Ids] = {0: np.arange(dataset.n_rows)}
    for node in range(tree.n_nodes):
        if tree.kind[node] == Split.LEAF:
            continue
        branch = _branches(tree, node, columns, reached[node])
        first = int(tree.first_child[node])
        for b in range(int(tree.n_children[node])):
            reached[first + b] = reached[node][branch == b]
    return reached


def _branches(tree: Tree, node: int, columns: Any, rows: Ids) -> Ids:
    """The branch that each of the rows takes at a node."""
    kind, away = tree.kind[node], int(tree.missing[node])
    own = np.asarray(columns[tree.feature[node]])[rows]
    if own.dtype.kind == "i":
        known = own >= 0
        if kind == Split.MISSING:
            return np.asarray(known, np.int64)
        levels = tree.level_branch[tree.level_start[node] : tree.level_start[node + 1]]
        branch = np.where(known, levels[np.maximum(own, 0)], -1)
        return np.asarray(np.where(branch < 0, away, branch), np.int64)
    value = own.astype(np.float64)
    if kind == Split.MISSING:
        return np.asarray(value == value, np.int64)
    if kind == Split.OBLIQUE:
        value = np.zeros(len(rows))
        for term in range(tree.term_start[node], tree.term_start[node + 1]):
            own = np.asarray(columns[tree.term_feature[term]])[rows].astype(np.float64)
            value += tree.term_weight[term] * own
    branch = np.where(value <= tree.threshold[node], 0, 1)
    return np.asarray(np.where(value == value, branch, away), np.int64)
