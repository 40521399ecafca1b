"""Rules by how many trees of a forest ask them: the first half of SIRUS.

Bénard, Biau, da Veiga and Scornet 2021, "SIRUS: Stable and interpretable rule set for
classification", Electronic Journal of Statistics 15, section 2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.model.fixed_point import MASS
from treekit.model.model import Model
from treekit.rules.learn.bare import candidate_rules, interned, joined
from treekit.rules.learn.dependence import independent
from treekit.rules.learn.given import Weighed
from treekit.rules.learn.indicators import indicators
from treekit.rules.learn.quantiles import Cuts
from treekit.rules.rule_list import RuleList, taken

__all__ = ["Frequent", "dice", "drawn", "frequent_rules", "never_missing"]


class Frequent(NamedTuple):
    """Distinct rules, the most frequent first; of equals the shallow, then the first met.

    Attributes
    ----------
    rules : RuleList
    frequency : (rules,) float64
        The part of the trees that have such a path.
    """

    rules: RuleList
    frequency: npt.NDArray[np.float64]


def never_missing(dataset: Dataset) -> npt.NDArray[np.bool_]:
    """(features,) bool: the columns without a missing value."""
    return np.array(
        [not ((c < 0) if c.dtype.kind == "i" else np.isnan(c)).any() for c in dataset.columns],
        dtype=np.bool_,
    )


def frequent_rules(
    model: Model,
    depth: int,
    cuts: Cuts | None,
    complete: npt.NDArray[np.bool_],
    trees: slice = slice(None),
) -> Frequent:
    """The paths of a forest's trees down to a depth, counted.

    Parameters
    ----------
    model : Model
    depth : int
    cuts : Cuts, optional
        Where bounds are moved to first; None: they are there already.
    complete : (features,) bool
        Columns whose values are all known.  Where a missing value goes in them is chance,
        and no reason to tell paths apart: it meets no condition.
    trees : slice
        Which of them.
    """
    some = replace(model, trees=model.trees[trees])
    found = candidate_rules(some, depth)
    found = found if cuts is None else cuts.snapped(found)
    table = found.conditions
    sure = complete[table.column] & table.known
    missing = table.missing & ~sure
    whole = np.where(missing, MASS, 0).astype(np.int32)
    found = replace(found, conditions=table._replace(missing=missing, part_high=whole))
    found = taken(found, np.flatnonzero(_possible(found)))
    key = interned(found)
    # A path counts once a tree: snapped bounds may make two nodes' paths one.
    pairs = np.unique(np.column_stack([key, found.tree]), axis=0)
    count = np.bincount(pairs[:, 0])
    first = np.unique(key, return_index=True)[1]
    order = np.lexsort((first, -count))
    return Frequent(taken(found, first[order]), count[order] / some.n_trees)


def _possible(found: RuleList) -> npt.NDArray[np.bool_]:
    """(rules,) bool: those that some value meets; bounds that were moved may have met."""
    table = found.conditions
    owner = np.repeat(np.arange(len(found)), np.diff(found.end, prepend=0))
    empty = np.bincount(owner, ~table.known & ~table.missing, len(found))
    possible: npt.NDArray[np.bool_] = empty == 0
    return possible


def drawn(
    frequent: Frequent, rows: Weighed, most: int, above: float
) -> tuple[RuleList, npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """The first rules that are no linear combination of those before them.

    Parameters
    ----------
    frequent : Frequent
    rows : Weighed
        The functions are compared on these rows.
    most : int
        How many are kept at most.
    above : float
        Rules of this frequency or a lower one are not.

    Returns
    -------
    rules : RuleList
    met : (rules, rows) bool
    frequency : (rules,) float64
    """
    n = int(np.count_nonzero(frequent.frequency > above))
    step = max(4 * most, 64)
    kept: list[tuple[RuleList, npt.NDArray[np.bool_]]] = []
    numbers = np.empty(0, dtype=np.int64)
    for first in range(0, n, step):
        block = taken(frequent.rules, np.arange(first, min(first + step, n)))
        before = [met for _, met in kept]
        met = np.concatenate([*before, indicators(block, rows.matrix)])
        found = independent(met, most)
        new = found[found >= len(numbers)] - len(numbers)
        kept.append((taken(block, new), met[len(numbers) :][new]))
        numbers = np.append(numbers, first + new)
        if len(numbers) >= most:
            break
    if not kept:
        none = taken(frequent.rules, numbers)
        return none, np.empty((0, len(rows.weight)), dtype=np.bool_), np.empty(0)
    chosen = joined([own for own, _ in kept])
    return chosen, np.concatenate([met for _, met in kept]), frequent.frequency[numbers]


def dice(first: RuleList, second: RuleList) -> float:
    """The Dice-Sorensen index of two lists' sets of rules: 1 if they are equal, 0 if disjoint.

    Twice the number of rules in both, divided by the sum of their numbers.
    """
    if not len(first) and not len(second):
        return 1.0
    key = interned(joined([first, second]))
    both = np.intersect1d(key[: len(first)], key[len(first) :])
    return 2 * len(both) / (len(first) + len(second))
