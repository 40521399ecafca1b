"""Which rules of a model an edited list still has."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.model.model import Model
from treekit.rules.extract import rules
from treekit.rules.joined import joined
from treekit.rules.merging import Asked, asked
from treekit.rules.rulelist import RuleList

__all__ = ["Matched", "matched"]

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Matched:
    """An edited list beside the one that it was made from.

    Attributes
    ----------
    before : RuleList
        Of the model: what was edited.
    after : RuleList
        The edited list.
    home : (leaves,) int64
        The rule of `before` that each leaf of the model is said by, in the order of
        `treekit.rules.rules`.
    origin : (rules of after,) int64
        The rule of `before` with the same conditions in the same tree, or -1.
    kept : (trees,) bool
        Trees that ask what they asked: each of their rules is there once, and those of an
        ordered list stand in their order.
    """

    before: RuleList
    after: RuleList
    home: Index
    origin: Index
    kept: npt.NDArray[np.bool_]


def matched(model: Model, edited: RuleList) -> Matched:
    """The edited list beside the rules of `model` that it is most like.

    A text may say each leaf in a rule of its own, or join leaves that say the same.
    """
    if edited.decisions:
        found = joined(model, decisions=True)
        return _beside(found.rules, edited, found.home)
    found = joined(model)
    short = _beside(found.rules, edited, found.home)
    if short.kept.all():
        return short
    leaves = rules(model)
    long = _beside(leaves, edited, np.arange(len(leaves)))
    return max(
        (short, long), key=lambda some: (int(some.kept.sum()), int((some.origin >= 0).sum()))
    )


def _beside(before: RuleList, after: RuleList, home: Index) -> Matched:
    origin = np.full(len(after), -1)
    if before.tests == after.tests:
        known: defaultdict[tuple[int, frozenset[Asked]], list[int]] = defaultdict(list)
        for rule in reversed(range(len(before))):
            known[_key(before, rule)].append(rule)
        for rule in range(len(after)):
            if same := known.get(_key(after, rule)):
                origin[rule] = same.pop()
    policies = (before.missing, before.unknown) == (after.missing, after.unknown)
    bounds = np.arange(before.n_trees + 1)
    old, new = np.searchsorted(before.tree, bounds), np.searchsorted(after.tree, bounds)
    kept = (np.diff(old) == np.diff(new)) & policies
    # Whether every rule of a tree has its origin there follows from the counts.
    np.logical_and.at(kept, after.tree, origin >= 0)
    if before.order == "first":
        np.logical_and.at(kept, after.tree[1:], (np.diff(origin) > 0) | (np.diff(after.tree) > 0))
    return Matched(before, after, home, origin, kept)


def _key(rules: RuleList, rule: int) -> tuple[int, frozenset[Asked]]:
    return int(rules.tree[rule]), frozenset(asked(rules, rule))
