"""Fractional instances (Quinlan): models exported as one table of n-ary nodes.

A row has the mass 2**24 in each tree.  At a node whose test is unknown
every branch gets the part ``(mass * high >> 24) - (mass * low >> 24)`` of the
incoming mass; the parts add up to it.  A leaf is multiplied by the mass that reaches
it.  A loop over this table needs a stack of `DividedTable.deepest` entries: the
next branch and the mass of each division above the current node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.lowering import Form, LeafTable, check_table_size
from treekit.model.fixed_point import compute_mass_bounds, to_double_threshold
from treekit.model.model import Model
from treekit.model.tree import Split, concatenate_trees

_LE, _LEVELS, _MISSING = 0, 2, 3


@dataclass(frozen=True, slots=True)
class DividedTable:
    """Nodes of all trees, leaves included, tree after tree.

    Attributes
    ----------
    value : (nodes,) float64
        Threshold of a test, for inputs in double; start of the branches of a
        categorical split in `level_branch`; otherwise 0.
    question : (nodes,) int64
        ``4 * feature + k``, where features beyond those of the row are derived
        columns: k = 0 ``x <= value`` takes branch 0, else 1; 2 the branch of the
        category; 3 missing takes branch 0, else 1 (and never divides).  -1 in leaves.
    child : (nodes,) int64
        Node of branch 0, the other branches follow; ``-1 - v`` in leaves of vector v.
    low, high : (nodes,) int64
        Bounds of the node's part of a mass that divides at its parent; ``high``
        is 2**24 from the last branch with a nonzero part onwards.
    root : (trees,) int64
    level_branch : (levels,) int64
        Branch of each category; -1 = the instance is divided.
    deepest : int
        Upper bound of the divisions on a path, at least 1: C has no empty arrays.
    """

    value: npt.NDArray[np.float64]
    question: npt.NDArray[np.int64]
    child: npt.NDArray[np.int64]
    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]
    root: npt.NDArray[np.int64]
    level_branch: npt.NDArray[np.int64]
    deepest: int


def choose_fractional_form(wanted: str) -> tuple[Form, str]:
    """Return the form, always "table", and its reason.

    Nested tests send a row down a single path, so they cannot express fractional instances.
    """
    if wanted not in ("auto", "table"):
        raise ExportError(
            f"form={wanted!r} sends each row down a single path, and the model uses fractional "
            "instances (missing='fractional'): choose form='table' or 'auto'"
        )
    return "table", "rows are divided where a value is missing"


def build_fractional_table(model: Model, leaves: LeafTable) -> DividedTable:
    """Build one table of the nodes of all trees.

    Raises
    ------
    ExportError
        If the number of nodes or of category branches exceeds 32 bits.
    """
    derived = model.derived
    nodes, roots = concatenate_trees(model.trees)
    is_leaf = nodes.kind == Split.LEAF
    asks_derived = derived.column >= 0
    feature = np.where(asks_derived, model.schema.n_features + derived.column, nodes.feature)
    check_table_size(max(4 * (int(feature.max()) + 1), len(nodes.level_branch), nodes.n_nodes))
    kind = np.full(nodes.n_nodes, _LE)
    kind[nodes.kind == Split.MISSING] = _MISSING
    asks_levels = (nodes.kind == Split.SUBSET) | (nodes.kind == Split.MULTIWAY)
    asks_levels &= ~asks_derived
    kind[asks_levels] = _LEVELS
    value = np.zeros(nodes.n_nodes)
    at = (nodes.kind == Split.THRESHOLD) & ~asks_derived
    t = nodes.threshold[at]
    value[at] = to_double_threshold(t) if model.schema.dtype == "float32" else t
    value[asks_levels] = nodes.level_offsets[:-1][asks_levels]
    child = nodes.first_child.astype(np.int64)
    child[is_leaf] = -1 - leaves.row
    bounds = np.concatenate([compute_mass_bounds(tree) for tree in model.trees])
    return DividedTable(
        value=value,
        question=np.where(is_leaf, -1, 4 * feature.astype(np.int64) + kind),
        child=child,
        low=bounds[:, 0],
        high=bounds[:, 1],
        root=roots[:-1],
        level_branch=nodes.level_branch.astype(np.int64),
        deepest=max(model.depth, 1),
    )
