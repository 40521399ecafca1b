"""Pruner that makes only significant splits (Quinlan 1986, section 5).

J. R. Quinlan, "Induction of decision trees", Machine Learning 1, pp. 81-106:
a split is made only if a chi-squared test rejects the independence of class and
branch. The p-value is the finite sum of Abramowitz and Stegun 1964, 26.4.4 and
26.4.5.
"""

import math

from treekit import Pruner, PrunerFunctions, Setting, hookimpl


def make(alpha):
    """Return the pruner's functions for a significance level.

    Parameters
    ----------
    alpha : float
        Largest p-value at which a split is made, 0 to 1.

    Returns
    -------
    PrunerFunctions
    """

    def before(parent, children, held_parent, held_children):  # noqa: ARG001 - the contract's
        """Return whether class and branch are dependent at the level `alpha`.

        Parameters
        ----------
        parent : (S,) float64
            Weight of each class at the node; not used, as rows in no branch carry no
            evidence. The test assumes rows of weight 1.
        children : (branches, S) float64
            The same in each branch.
        held_parent, held_children : float64
            Held-out rows; not used.
        """
        total = children.sum()
        branches = classes = 0
        for b in range(children.shape[0]):
            branches += children[b].sum() > 0.0
        chi = 0.0
        for k in range(children.shape[1]):
            in_class = children[:, k].sum()
            classes += in_class > 0.0
            for b in range(children.shape[0]):
                in_branch = children[b].sum()
                if in_class > 0.0 and in_branch > 0.0:
                    expected = in_class * in_branch / total
                    chi += (children[b, k] - expected) ** 2 / expected
        freedom = (branches - 1) * (classes - 1)
        if freedom < 1 or chi <= 0.0:
            return alpha >= 1.0
        # P(chi-squared > chi), one term per two degrees of freedom; in logarithms,
        # because with many degrees of freedom the terms leave the range of doubles.
        half, step, p_value = chi / 2.0, 0.0, 0.0
        if freedom % 2 == 1:
            p_value, step = math.erfc(math.sqrt(half)), 0.5
        while step < freedom / 2.0:
            p_value += math.exp(step * math.log(half) - half - math.lgamma(step + 1.0))
            step += 1.0
        return p_value <= alpha

    return PrunerFunctions(before=before)


ALPHA = Setting("alpha", 0.05, "largest p-value at which a split is made", minimum=0.0, maximum=1.0)


@hookimpl
def treekit_pruners():
    """Register the pruner."""
    return [
        Pruner(
            "significance",
            make,
            (ALPHA,),
            "chi-squared test before a split",
            task="classification",
            exempt={"doubling-weights-changes-nothing": "twice the rows are stronger evidence"},
        )
    ]
