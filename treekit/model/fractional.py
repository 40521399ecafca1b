"""Shares of a row's mass, where missing values go down every branch (Quinlan 1993, ch. 3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.model.portable import MASS, quotas
from treekit.model.tree import Split, Tree

__all__ = ["mass_bounds"]


def mass_bounds(tree: Tree) -> npt.NDArray[np.int64]:
    """The part of its parent's mass that each node gets of a row that divides there.

    A node of bounds (low, high) gets ``(mass * high >> 24) - (mass * low >> 24)``
    of a row of integer `mass`.  The bounds of siblings are adjacent, from 0 to
    2**24, so that the parts add up to the mass, and each is computed alone.
    They are in proportion to the training weights of the siblings (alike where
    no weight reached any).

    Returns
    -------
    (n, 2) int64
        (0, 2**24) for the root.  The children of a MISSING node, which never
        divides a row, have bounds, too.
    """
    bounds = np.zeros((tree.n_nodes, 2), dtype=np.int64)
    bounds[0, 1] = MASS
    inner = np.flatnonzero(tree.kind != Split.LEAF)
    for count in np.unique(tree.n_children[inner]).tolist():
        parents = inner[tree.n_children[inner] == count]
        children = tree.first_child[parents][:, None].astype(np.int64) + np.arange(count)
        weights = tree.weight[children]
        weights[~weights.any(axis=1)] = 1.0
        ends = np.cumsum(quotas(weights, MASS), axis=1)
        bounds[children, 1] = ends
        bounds[children[:, 1:], 0] = ends[:, :-1]
    return bounds
