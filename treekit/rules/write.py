"""Rules as text that an auditor reads and `treekit.rules.read` executes.

Numbers are written as the shortest numerals that read back to them exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from treekit.model.votes import least_cost
from treekit.rules.header import header
from treekit.rules.phrases import condition_texts
from treekit.rules.rulelist import RuleList
from treekit.rules.words import label_text, name_text, numerals, share_text

__all__ = ["ALWAYS", "AS_PARENT", "NOTHING", "OTHERWISE", "pieces"]

ALWAYS, OTHERWISE = "always", "otherwise"
"""A rule without conditions: the only one of its tree, or the last one of an ordered list."""

AS_PARENT = " (as above)"
NOTHING = "nothing"

_RULES_A_PIECE = 2048


def pieces(rules: RuleList, tree: int | None = None) -> Iterator[str]:
    """The text of `rules`, or of those of one tree, some thousand rules at a time."""
    yield "\n".join(header(rules)) + "\n"
    answers = _Answers(rules)
    start, stop = 0, len(rules)
    if tree is not None:  # the rules of a tree stand together, trees in order
        start, stop = np.searchsorted(rules.tree, [tree, tree + 1]).tolist()
    for first in range(start, stop, _RULES_A_PIECE):
        last = min(first + _RULES_A_PIECE, stop)
        yield "".join(_rule_texts(rules, first, last, answers))


class _Answers:
    """The lines of a rule from 'then' on; each distinct share is written once."""

    def __init__(self, rules: RuleList) -> None:
        self.rules = rules
        outputs = rules.schema.outputs
        self.names = [f"{name_text(o.name)}: " if rules.schema.more else "" for o in outputs]
        self.labels = [[label_text(label) for label in output.classes] for output in outputs]
        self.text: dict[int, str] = {}
        if rules.schema.task == "classification" and not rules.margins:
            distinct, total = np.unique(rules.units).tolist(), rules.units_each
            self.text = {u: share_text(u, total) for u in distinct}

    def lines(self, first: int, last: int) -> Iterator[str]:
        """For each rule from `first` to `last` all that it says."""
        rules = self.rules
        supports = numerals(rules.support[first:last])
        columns = [
            self._said(*block, first, last) for block in itertools.pairwise(rules.schema.blocks)
        ]
        as_parent = rules.as_parent[first:last].tolist()
        for row, (own, *more) in enumerate(zip(*columns, strict=True)):
            label, shares = own
            support = f"   support {supports[row]}{AS_PARENT if as_parent[row] else ''}"
            text = f"  then {self.names[0]}{label}{support}{shares}\n"
            for name, (label, shares) in zip(self.names[1:], more, strict=True):
                text += f"       {name}{label}{shares}\n"
            yield text

    def _said(self, start: int, end: int, first: int, last: int) -> list[tuple[str, str]]:
        """For each rule what it says of one target, before and after the support."""
        if self.text:
            return self._shares(start, end, first, last)
        return (
            self._margins(first, last) if self.rules.margins else self._values(start, first, last)
        )

    def _margins(self, first: int, last: int) -> list[tuple[str, str]]:
        units = self.rules.units[first:last]
        texts = iter(numerals(np.ldexp(units[units != 0].astype(np.float64), self.rules.exponent)))
        said = [
            ", ".join(f"{self.labels[0][k]}: {next(texts)}" for k in np.flatnonzero(row).tolist())
            for row in units
        ]
        return [(text or NOTHING, "") for text in said]

    def _values(self, at: int, first: int, last: int) -> list[tuple[str, str]]:
        units = self.rules.units[first:last, at].astype(np.float64)
        return [(text, "") for text in numerals(np.ldexp(units, self.rules.exponent))]

    def _shares(self, start: int, end: int, first: int, last: int) -> list[tuple[str, str]]:
        labels = self.labels[self.rules.schema.blocks.index(start)]
        votes = self.rules.units[first:last, start:end]
        said = least_cost(votes, self.rules.costs).tolist()
        texts = []
        for label, units in zip(said, votes.tolist(), strict=True):
            named = zip(labels, units, strict=True)
            shares = ", ".join(f"{name}: {self.text[u]}" for name, u in named if u)
            texts.append((labels[label], "   " + shares))
        return texts


def _rule_texts(rules: RuleList, first: int, last: int, answers: _Answers) -> Iterator[str]:
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    conditions = condition_texts(rules, start, stop)
    places = zip(rules.tree[first:last].tolist(), rules.leaf[first:last].tolist(), strict=True)
    at, ordered = 0, rules.order == "first"
    for number, ((tree, leaf), then) in enumerate(
        zip(places, answers.lines(first, last), strict=True), first
    ):
        of_tree = f", tree {tree + 1} of {rules.n_trees}" if rules.n_trees > 1 else ""
        end = int(rules.end[number]) - start
        mine = "\n  and ".join(conditions[at:end])
        behind = ordered and number > 0 and rules.tree[number - 1] == tree
        without = OTHERWISE if behind else ALWAYS
        condition = f"  if  {mine}\n" if mine else f"  {without}\n"
        at = end
        yield f"\nrule {number + 1} of {len(rules)}{of_tree}, node {leaf}\n{condition}{then}"
