"""How much data stands behind each rule, and how right it is.

The measures are those of association rules (Agrawal, Imielinski and Swami 1993;
lift: Brin et al. 1997), with the rule's answer in the place of the consequent.
"""

from __future__ import annotations

import itertools
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.votes import least_cost
from treekit.rules.rulelist import RuleList

__all__ = ["Measures", "training_measures"]

Numbers = npt.NDArray[np.float64]


class Measures(NamedTuple):
    """What rows say of the rules of a list.

    Attributes
    ----------
    source : {"training", "table"}
        Rows that the model was trained on, as its leaves keep them, or a table's.
    rows : (rules,) int64, or None
        Rows that a rule answers; None where only their weight is kept.
    weight : (rules,) float64
        Weight of these rows (their mass, where a row may divide).
    coverage : (rules,) float64
        That weight as a part of all weight in the rule's tree.
    confidence : (rules, targets) float64
        Classification: the part of the weight whose class is the rule's label.
    lift : (rules, targets) float64
        Confidence divided by that label's part of all weight.
    mean, spread : (rules, targets) float64
        Regression: mean of the target and its standard deviation (of the population).

    What does not apply or is not known is NaN.
    """

    source: Literal["training", "table"]
    rows: npt.NDArray[np.int64] | None
    weight: Numbers
    coverage: Numbers
    confidence: Numbers
    lift: Numbers
    mean: Numbers
    spread: Numbers


def training_measures(rules: RuleList) -> Measures:
    """The measures that the model itself keeps of its training rows."""
    weight = rules.support
    total: Numbers = np.bincount(rules.tree, weight, rules.n_trees).astype(np.float64)[rules.tree]
    empty = np.full((len(rules), len(rules.schema.outputs)), np.nan)
    confidence, lift, mean = empty, empty, empty
    if rules.schema.task == "regression":
        known = rules.value is not None and rules.combine == "mean"
        mean = rules.value if known and rules.value is not None else empty
    elif not rules.margins:
        confidence, lift = _shares(rules)
    return Measures("training", None, weight, _part(weight, total), confidence, lift, mean, empty)


def _shares(rules: RuleList) -> tuple[Numbers, Numbers]:
    """Confidence and lift of each rule's label for each target."""
    value = rules.value
    if value is None:  # a text states the shares of the votes, and the support
        value = rules.units / rules.units_each * rules.support[:, None]
    whole = np.zeros((rules.n_trees, value.shape[1]))
    np.add.at(whole, rules.tree, value)
    found = []
    for first, last in itertools.pairwise(rules.schema.blocks):
        label = least_cost(rules.units[:, first:last], rules.costs)[:, None]
        mine = value[:, first:last]
        own = _part(np.take_along_axis(mine, label, 1)[:, 0], mine.sum(axis=1))
        all_rows = whole[rules.tree, first:last]
        prior = _part(np.take_along_axis(all_rows, label, 1)[:, 0], all_rows.sum(axis=1))
        found.append((own, _part(own, prior)))
    confidence, lift = (np.stack(part, axis=1) for part in zip(*found, strict=True))
    return confidence, lift


def _part(some: Numbers, whole: Numbers) -> Numbers:
    """Quotients; NaN where there is nothing to divide by."""
    quotient = np.full(some.shape, np.nan)
    np.divide(some, whole, out=quotient, where=whole > 0)
    return quotient
