"""Normalisation factor of gains (Rzepakowski and Jaroszewicz 2012, section 3).

For the Kullback-Leibler divergence, with P^T(A) and P^C(A) the distributions of treated
and control rows over the branches of a test A::

    I(A) = H(N^T/N, N^C/N) KL(P^T(A) : P^C(A)) + N^T/N H(P^T(A)) + N^C/N H(P^C(A)) + 1/2

For the other divergences, J(A) has the Gini index in place of the entropy H and the
divergence in place of KL. With several treatments (section 4), the first term is over all
treated rows together, its share ``between`` over each treatment alone, and each treatment
has its own entropy term.
"""

import math

__all__ = ["branch_weight", "normaliser", "total_weight"]


def normaliser(parent, children, which, between):
    """Return I(A) for ``which == 0``, else J(A): at least 1/2.

    It is infinite if treated rows fill a branch that has no control rows.
    """
    arms, total = parent.shape[0] // 2, total_weight(parent)
    control, treated = _weight(parent, 0), 0.0
    for arm in range(1, arms):
        treated += _weight(parent, arm)
    parted = _mixed(treated, control, which) * _parted(children, 0, which)
    factor = 0.5 + (1.0 - between) * parted + control / total * _spread(children, 0, which)
    for arm in range(1, arms):
        weight = _weight(parent, arm)
        if weight > 0.0:
            factor += weight / total * _spread(children, arm, which)
            if between > 0.0:
                alone = _mixed(weight, control, which) * _parted(children, arm, which)
                factor += between * alone
    return factor


def total_weight(cells):
    """Return the weight of all rows of a node; for few cells a loop is faster than ``sum()``."""
    total = 0.0
    for k in range(cells.shape[0]):
        total += cells[k]
    return total


def _weight(cells, arm):
    return max(cells[2 * arm] + cells[2 * arm + 1], 0.0)


def _mixed(one, other, which):
    """Return the entropy H or the Gini index of two weights."""
    p = one / (one + other)
    if which == 0:
        return _bits(p) + _bits(1.0 - p)
    return 1.0 - p * p - (1.0 - p) * (1.0 - p)


def _bits(p):
    return -p * math.log2(p) if p > 0.0 else 0.0


def _spread(children, arm, which):
    """Return H(P(A)) or Gini(P(A)) of the rows of an arm."""
    total = 0.0
    for b in range(children.shape[0]):
        total += _held(children, b, arm)
    if total <= 0.0:
        return 0.0
    spread = 0.0 if which == 0 else 1.0
    for b in range(children.shape[0]):
        share = _held(children, b, arm) / total
        spread += _bits(share) if which == 0 else -share * share
    return spread


def _parted(children, arm, which):
    """Return the divergence of an arm's P(A) from the control group's; 0 is all treatments."""
    treated, control = 0.0, 0.0
    for b in range(children.shape[0]):
        treated += _given(children, b, arm)
        control += _held(children, b, 0)
    if treated <= 0.0 or control <= 0.0:
        return 0.0
    apart = 0.0
    for b in range(children.shape[0]):
        p, q = _given(children, b, arm) / treated, _held(children, b, 0) / control
        if which == 1:
            apart += (p - q) ** 2
        elif q > 0.0:
            apart += p * math.log2(p / q) if which == 0 and p > 0.0 else 0.0
            apart += (p - q) ** 2 / q if which == 2 else 0.0
        elif p > 0.0:
            return math.inf
    return apart


def branch_weight(children, b):
    """Return the weight of all rows in a branch, read in place: a slice costs more than the sum."""
    total = 0.0
    for k in range(children.shape[1]):
        total += children[b, k]
    return total


def _held(children, b, arm):
    """Return the weight of an arm in a branch."""
    return max(children[b, 2 * arm] + children[b, 2 * arm + 1], 0.0)


def _given(children, b, arm):
    """Return the weight of a treatment in a branch; 0 is all treatments."""
    if arm > 0:
        return _held(children, b, arm)
    return max(branch_weight(children, b) - children[b, 0] - children[b, 1], 0.0)
