"""Criterion that maximises the effect of a treatment (Rzepakowski and Jaroszewicz 2012).

Section 3 of the paper, "Decision trees for uplift modeling with single and multiple
treatments", Knowledge and Information Systems 32, pp. 303-327: the gain is the
divergence of the outcome under treatment from the outcome under control after the
split, less that before it. The statistics of a node are its failures and successes
in each arm, the control group first.
"""

import math

from treekit import CriterionFunctions, Setting
from treekit_uplift.normalisation import branch_weight, normaliser, total_weight

__all__ = ["DIVERGENCES", "EXEMPT", "SETTINGS", "make"]

DIVERGENCES = ("kl", "euclidean", "chi_squared")

SETTINGS = (
    Setting(
        "divergence", "euclidean",
        "divergence of treated from control outcomes: " + ", ".join(DIVERGENCES),
        choices=DIVERGENCES,
    ),
    Setting(
        "normalise", True,
        "divide the gain by the paper's factor, which is large for splits that separate treated "
        "from control rows or have many branches",
    ),
    Setting(
        "prior", 10.0,
        "number of rows per arm by which the rates of a branch are shrunk to those of its node",
        minimum=0.0,
    ),
    Setting(
        "between", 0.0,
        "with several treatments, share of the divergence between treatments; "
        "the rest is their divergence from the control group",
        minimum=0.0, maximum=1.0,
    ),
)  # fmt: skip

EXEMPT = {
    "doubling-weights-changes-nothing": "the prior counts rows: twice the weight is more evidence",
}

_SMALLEST = 1e-6


def make(layout, divergence, normalise, prior, between):
    """Return the criterion's functions; see `SETTINGS`, and `treekit_uplift.task` for cells."""
    which = DIVERGENCES.index(divergence)
    shares = layout.extra
    between = between if len(shares) > 2 else 0.0

    def score(parent, children):
        """Return the gain in divergence, normalised if `normalise` is true."""
        if not _compares(parent):
            return 0.0
        after = total = 0.0
        for b in range(children.shape[0]):
            weight = branch_weight(children, b)
            if weight > 0.0:
                total += weight
                after += weight * _divergence(children, b, parent, prior, which, between)
        gain = after / total - _divergence(children, -1, parent, prior, which, between)
        return gain / normaliser(parent, children, which, between) if normalise else gain

    def order(stats):
        """Return the effect of all treatments together, shrunk to 0 if an arm is small."""
        control = max(stats[0] + stats[1], 0.0)
        treated = max(total_weight(stats) - control, 0.0)
        if control <= 0.0 or treated <= 0.0:
            return 0.0
        came = 0.0
        for arm in range(1, stats.shape[0] // 2):
            came += stats[2 * arm + 1]
        fewer = min(control, treated)
        return (came / treated - stats[1] / control) * fewer / (fewer + prior)

    def loss(stats, judged):
        """Compute the squared error of the effects against the transformed outcome.

        The transformed outcome is ``1 / e`` for a treated success, ``-1 / e_control``
        for a success in the control group and 0 for a failure, where e is the share of
        the arm among the training rows. Its mean is the effect (Athey and Imbens 2015,
        "Machine learning methods for estimating heterogeneous causal effects", section 3).
        """
        control = (stats[1] + 1.0) / (stats[0] + stats[1] + 2.0)
        failed = came = squares = 0.0
        for arm in range(1, stats.shape[0] // 2):
            cell = 2 * arm
            rate = (stats[cell + 1] + 1.0) / (stats[cell] + stats[cell + 1] + 2.0)
            effect = rate - control
            came = judged[cell + 1] * (1.0 / shares[arm] - effect) ** 2
            came += judged[1] * (1.0 / shares[0] + effect) ** 2
            failed = total_weight(judged) - judged[cell + 1] - judged[1]
            squares += came + failed * effect**2
        return squares / (stats.shape[0] // 2 - 1)

    return CriterionFunctions(score=score, order=order, loss=loss)


def _compares(parent):
    """Return whether a node holds rows of the control group and of a treatment."""
    control = parent[0] + parent[1]
    return control > 0.0 and total_weight(parent) - control > 0.0


def _rate(children, b, parent, arm, prior):
    """Return an arm's rate in a branch, shrunk to that of the node; b = -1 is the node itself."""
    cell = 2 * arm
    usual = parent[cell + 1] / (parent[cell] + parent[cell + 1])
    if b < 0:
        return usual
    came = children[b, cell + 1]
    n = children[b, cell] + came + prior
    # A weight computed by subtraction may be slightly negative.
    return min(max((came + prior * usual) / n, 0.0), 1.0) if n > 0.0 else usual


def _divergence(children, b, parent, prior, which, between):
    """Compute the mean divergence from the control group over the treatments in the node.

    The share `between` of it is the mean over pairs of treatments (section 4).
    """
    control = _rate(children, b, parent, 0, prior)
    held, apart, pairs, parted = 0, 0.0, 0, 0.0
    for arm in range(1, parent.shape[0] // 2):
        if parent[2 * arm] + parent[2 * arm + 1] > 0.0:
            rate = _rate(children, b, parent, arm, prior)
            held += 1
            apart += _apart(rate, control, which)
            if between > 0.0:
                for other in range(1, parent.shape[0] // 2):
                    if other != arm and parent[2 * other] + parent[2 * other + 1] > 0.0:
                        pairs += 1
                        parted += _apart(rate, _rate(children, b, parent, other, prior), which)
    return (1.0 - between) * apart / held + (between * parted / pairs if pairs else 0.0)


def _apart(p, q, which):
    """Compute the divergence of a binary distribution of share p from one of share q.

    Kullback-Leibler in bits, squared Euclidean, or chi-squared. A share q of 0 or 1
    could be infinitely far from p: q is kept one in a million away from both.
    """
    if which == 1:
        return 2.0 * (p - q) ** 2
    q = min(max(q, _SMALLEST), 1.0 - _SMALLEST)
    if which == 2:
        return (p - q) ** 2 / (q * (1.0 - q))
    bits = 0.0
    if p > 0.0:
        bits += p * math.log2(p / q)
    if p < 1.0:
        bits += (1.0 - p) * math.log2((1.0 - p) / (1.0 - q))
    return bits
