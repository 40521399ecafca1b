"""Criterion that separates classes but not groups (Kamiran, Calders and Pechenizkiy 2010).

Section 3 of the paper: IGC is the information gain of a split about the class, IGS that
about the group, both as the decrease of an impurity. The criterion is their difference,
their ratio, or their sum; the sum makes leaves of one class and one group for `relabel`.
"""

import math

from treekit import CriterionFunctions, Setting

__all__ = ["COMBINE", "LITTLE", "MEASURES", "SETTINGS", "make"]

COMBINE = ("difference", "ratio", "sum")
MEASURES = ("entropy", "gini")

LITTLE = 1e-3
"""Lower bound of the group gain in a ratio; dividing by 0 would accept any split."""

SETTINGS = (
    Setting(
        "combine", "difference",
        "how class gain and group gain are combined: difference, ratio, or sum (for relabel)",
        choices=COMBINE,
    ),
    Setting(
        "strength", 1.0,
        "weight of the group gain: a factor, or the exponent in a ratio; 0 ignores groups",
        minimum=0.0,
    ),
    Setting("measure", "entropy", "impurity: entropy (in bits) or gini", choices=MEASURES),
)  # fmt: skip


def make(layout, combine, strength, measure):
    """Return the criterion's functions; see `SETTINGS`, and `treekit_fairness.task` for cells."""
    classes, groups = layout.extra.classes, layout.extra.groups
    how, which = COMBINE.index(combine), MEASURES.index(measure)

    def score(parent, children):
        """Return IGC - strength * IGS, IGC / IGS**strength, or IGC + strength * IGS."""
        of_class = _gain(parent, children, classes, groups, True, which)
        if strength == 0.0:
            return of_class
        of_group = _gain(parent, children, classes, groups, False, which)
        if how == 0:
            return of_class - strength * of_group
        if how == 1:
            return of_class / max(of_group, LITTLE) ** strength
        return of_class + strength * of_group

    return CriterionFunctions(score=score)


def _gain(parent, children, classes, groups, by_class, which):
    """Compute the decrease of the impurity of classes, or of groups.

    Cells are read in place: a slice per branch would cost more than the sums.
    """
    kinds, others = (classes, groups) if by_class else (groups, classes)
    step, stride = (groups, 1) if by_class else (1, groups)
    total = parts = 0.0
    for kind in range(kinds):
        own = 0.0
        for other in range(others):
            own += parent[kind * step + other * stride]
        total += own
        parts += _part(own, which)
    gain = _spread(total, parts, which)
    for b in range(children.shape[0]):
        weight = parts = 0.0
        for kind in range(kinds):
            own = 0.0
            for other in range(others):
                own += children[b, kind * step + other * stride]
            weight += own
            parts += _part(own, which)
        gain -= _spread(weight, parts, which)
    return gain / total


def _part(own, which):
    """Return the term of one class or group in `_spread`."""
    if which == 1:
        return own * own
    # A weight computed by subtraction may be slightly negative.
    return own * math.log2(own) if own > 0.0 else 0.0


def _spread(weight, parts, which):
    """Return weight times impurity: w H in bits, or w (1 - sum p**2)."""
    if weight <= 0.0:
        return 0.0
    return weight * math.log2(weight) - parts if which == 0 else weight - parts / weight
