"""Pruning by minimum description length (Mehta, Rissanen and Agrawal 1995)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from treekit.contracts import PrunerFunctions
from treekit.kernels.pruning import cheapest_cuts
from treekit.model.tree import Split, Tree
from treekit.pruners.collapse import collapse
from treekit.pruners.context import Context

__all__ = ["class_bits", "mdl", "split_bits"]

Numbers = npt.NDArray[np.float64]


def mdl() -> PrunerFunctions:
    """Bottom up, make a node a leaf where tree and classes are then written in no more bits.

    A node costs one bit (leaf or not), a leaf `class_bits`, a split
    `split_bits`: the code of Mehta, Rissanen and Agrawal, *MDL-based decision
    tree pruning* (KDD 1995), with the splits as Rastogi and Shim write them
    (*PUBLIC*, VLDB 1998, section 2.3).
    """

    def after(tree: Tree, context: Context) -> Tree:
        cut = cheapest_cuts(
            tree.kind, tree.first_child, tree.n_children, class_bits(context.stats),
            # Of the two kinds of node each costs its one bit.
            split_bits(tree, context), 0.0, True,
        )  # fmt: skip
        return collapse(tree, cut)

    return PrunerFunctions(after=after, holdout=None)


def class_bits(stats: Numbers) -> Numbers:
    """(nodes,) one bit, and the classes of the rows of a leaf: their stochastic complexity.

    ``sum n_k log(n / n_k) + (K - 1) / 2 log(n / 2) + log(pi**(K / 2) / gamma(K / 2))``
    (Mehta et al. 1995, equation 3), in bits; the last two terms, which hold
    for many rows, at least 0.

    Parameters
    ----------
    stats : (nodes, classes) float64
        Weight of each class; a row of weight w counts as w rows.
    """
    n, k = stats.sum(axis=1), stats.shape[1]
    full = n > 0
    n = np.where(full, n, 1.0)
    share = stats / n[:, None]
    entropy = -(share * np.log2(np.where(share > 0, share, 1.0))).sum(axis=1)
    constant = k / 2 * math.log2(math.pi) - math.lgamma(k / 2) / math.log(2)
    model = np.maximum((k - 1) / 2 * np.log2(n / 2) + constant, 0.0)
    return np.asarray(np.where(full, 1.0 + n * entropy + model, 1.0))


def split_bits(tree: Tree, context: Context) -> Numbers:
    """(nodes,) one bit, and which column a node asks, and where it divides it; leaves 1.

    Of a column with v values in the training table a threshold is one of v - 1,
    a set of levels one of ``2**v - 2``; one branch a level, and missing or
    not, are one each.  A linear combination takes as much for each of its terms
    as a threshold of that column.
    """
    values = context.table.n_codes.astype(np.float64)
    column = math.log2(len(values))
    threshold = np.log2(np.maximum(values - 1.0, 1.0))
    subset = np.log2(np.maximum(2.0 ** np.minimum(values, 60.0) - 2.0, 1.0))
    subset = np.maximum(subset, np.where(values > 60, values, 0.0))
    bits = np.ones(tree.n_nodes)
    inner = tree.kind != Split.LEAF
    bits[inner] += column
    for kind, own in ((Split.THRESHOLD, threshold), (Split.SUBSET, subset)):
        at = tree.kind == kind
        bits[at] += own[tree.feature[at]]
    owner = np.repeat(np.arange(tree.n_nodes), np.diff(tree.term_start))
    terms = np.bincount(owner, column + threshold[tree.term_feature], minlength=tree.n_nodes)
    return np.asarray(np.where(tree.kind == Split.OBLIQUE, 1.0 + terms, bits))
