"""Hellinger distance as a split criterion (Cieslak and Chawla 2008).

D. A. Cieslak and N. V. Chawla, "Learning decision trees for unbalanced data",
ECML PKDD 2008, LNAI 5211, pp. 241-256, section 3.
"""

import math

from treekit import Criterion, CriterionFunctions, hookimpl


def score(parent, children):
    """Return the Hellinger distance of two classes' distributions over the branches, 0 to sqrt(2).

    For two classes, with p and n their rows in the node and p_b and n_b those in
    branch b: ``sqrt(sum_b (sqrt(p_b / p) - sqrt(n_b / n))**2)``. Rows count by their
    share of their class, so that a rare class weighs as much as a frequent one. With
    more classes, the largest distance of any two.

    Parameters
    ----------
    parent : (S,) float64
        Weight of each class at the node.
    children : (branches, S) float64
        The same in each branch.

    Returns
    -------
    float
        0 if the node holds fewer than two classes.
    """
    best = 0.0
    for i in range(parent.shape[0]):
        for j in range(i):
            apart = 0.0
            for b in range(children.shape[0]):
                # Both roots times sqrt(p * n): exactly 0 for equal shares, and for an absent
                # class. A weight computed by subtraction may be slightly negative.
                p = math.sqrt(max(children[b, i], 0.0) * parent[j])
                n = math.sqrt(max(children[b, j], 0.0) * parent[i])
                apart += (p - n) ** 2
            best = max(best, apart / max(parent[i] * parent[j], 1e-300))
    return math.sqrt(best)


def make():
    """Return the criterion's functions."""
    return CriterionFunctions(score=score)


@hookimpl
def treekit_criteria():
    """Register the criterion."""
    return [Criterion("hellinger", "classification", make, summary="imbalanced classes")]
