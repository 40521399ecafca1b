"""Outputs that tell where a row ends: the leaf of each tree, and the way to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.onnx_graph import Graph
from treekit.model.model import Model
from treekit.model.tree import Tree

if TYPE_CHECKING:
    from onnx import ValueInfoProto

__all__ = ["add_leaves", "add_paths"]

_MOST_TEXT = 2**26
"""Characters of all paths, one for each leaf and node of a tree."""


def add_leaves(graph: Graph, model: Model, reached: str) -> ValueInfoProto:
    """Add ``leaf``: node numbers as of `treekit.model.scoring.leaf_indices`.

    Parameters
    ----------
    reached : str
        (N, trees) int64: rows of `Model.units`.

    Returns
    -------
    ValueInfoProto
        (N, trees) int64.
    """
    from onnx import TensorProto, helper

    graph.constant("node_of_leaf", np.concatenate([tree.leaves for tree in model.trees]))
    graph.add("Gather", ["node_of_leaf", reached], "leaf", axis=0)
    return helper.make_tensor_value_info("leaf", TensorProto.INT64, ["N", model.n_trees])


def add_paths(graph: Graph, model: Model, reached: str) -> ValueInfoProto:
    """Add ``path``: a text for each tree, of a 1 for each node that the row visits, else 0.

    So says skl2onnx what scikit-learn's ``decision_path`` says.  The text has a
    character for each node, in the order of node numbers.

    Returns
    -------
    ValueInfoProto
        (N, trees) texts.
    """
    from onnx import TensorProto, helper

    if model.missing == "fractional":
        raise ExportError(
            "onnx: decision_path=True tells one way through each tree, and rows divide at missing "
            "values (missing='fractional'): ask for leaf=True, the leaf of the largest part"
        )
    size = sum(tree.n_leaves * tree.n_nodes for tree in model.trees)
    if size > _MOST_TEXT:
        raise ExportError(
            "onnx: decision_path=True writes a character for each leaf and node of a tree, "
            f"{size:,} in all, and {_MOST_TEXT:,} are allowed: ask for leaf=True, "
            "which tells as much"
        )
    graph.texts("path_of_leaf", [path for tree in model.trees for path in _paths(tree)])
    graph.add("Gather", ["path_of_leaf", reached], "path", axis=0)
    return helper.make_tensor_value_info("path", TensorProto.STRING, ["N", model.n_trees])


def _paths(tree: Tree) -> list[bytes]:
    """The text of each leaf, in node order."""
    parent = np.full(tree.n_nodes, -1)
    inner = np.flatnonzero(tree.n_children)
    counts = tree.n_children[inner]
    child = np.repeat(tree.first_child[inner] - (np.cumsum(counts) - counts), counts)
    parent[child + np.arange(len(child))] = np.repeat(inner, counts)
    visited: npt.NDArray[np.uint8] = np.full((tree.n_leaves, tree.n_nodes), ord("0"), np.uint8)
    row, node = np.arange(tree.n_leaves), tree.leaves
    while len(row):
        visited[row, node] = ord("1")
        node = parent[node]
        row, node = row[node >= 0], node[node >= 0]
    return [path.tobytes() for path in visited]
