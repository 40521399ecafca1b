"""Cost-complexity pruning by impurity, as scikit-learn has it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.kernels.pruning import breaking_links, weakest_links
from treekit.model.tree import Split, Tree

__all__ = ["impurity_path"]


def impurity_path(
    tree: Tree, impurity: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The alphas at which links of an unpruned tree break, one link at a time.

    Breiman, Friedman, Olshen and Stone 1984, section 3.3, with the impurity of
    the leaves as risk.

    Parameters
    ----------
    impurity : (nodes,) float64

    Returns
    -------
    alphas, impurities : (links + 1,) float64
        Ascending from 0 and the whole tree: the alpha that breaks each link,
        and the impurity of the leaves that are then left, by their share of weight.
    """
    weight = tree.weight[0]
    risk = tree.weight * impurity
    alpha_of, _ = weakest_links(
        tree.kind, tree.first_child, tree.n_children, risk, np.empty((0, tree.n_nodes))
    )
    link = breaking_links(tree.kind, tree.parent, alpha_of)
    inner = np.flatnonzero(tree.kind != Split.LEAF)
    lost = np.bincount(link[inner], tree.n_children[inner] - 1.0, minlength=tree.n_nodes)
    breaks = inner[link[inner] == inner]
    breaks = breaks[np.argsort(alpha_of[breaks], kind="stable")]
    # What a link holds back is its alpha times the leaves that go with it.
    gained = np.cumsum(alpha_of[breaks] * lost[breaks])
    whole = risk[0] - (gained[-1] if len(gained) else 0.0)
    alphas = np.concatenate([[0.0], alpha_of[breaks]]) / weight
    return alphas, np.concatenate([[0.0], gained]) / weight + whole / weight
