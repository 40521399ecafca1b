"""Rules as text that an auditor reads and `treekit.rules.read` executes.

Numbers are written as the shortest numerals that read back to them exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from treekit.model.model import least_cost
from treekit.rules.header import header
from treekit.rules.language import Language
from treekit.rules.phrases import condition_texts
from treekit.rules.rulelist import RuleList
from treekit.rules.words import label_text, name_text, numerals, share_text

__all__ = ["AnswerTexts", "pieces"]

_RULES_A_PIECE = 2048


def pieces(rules: RuleList, words: Language, tree: int | None = None) -> Iterator[str]:
    """The text of `rules`, or of those of one tree, some thousand rules at a time."""
    yield "\n".join(header(rules, words)) + "\n"
    answers = AnswerTexts(rules, words)
    start, stop = 0, len(rules)
    if tree is not None:  # the rules of a tree stand together, trees in order
        start, stop = np.searchsorted(rules.tree, [tree, tree + 1]).tolist()
    for first in range(start, stop, _RULES_A_PIECE):
        last = min(first + _RULES_A_PIECE, stop)
        yield "".join(_rule_texts(rules, first, last, answers, words))


class AnswerTexts:
    """The lines of a rule from 'then' on; each distinct share is written once."""

    def __init__(self, rules: RuleList, words: Language) -> None:
        self.rules, self.words = rules, words
        outputs = rules.schema.outputs
        self.names = [
            words.around("rule_target", "answer", name=name_text(o.name, words))
            if rules.schema.more
            else ("", "")
            for o in outputs
        ]
        self.labels = [[label_text(label, words) for label in o.classes] for o in outputs]
        # What stands around the share of a class.
        self.around = [
            [words.around("rule_share", "share", label=label) for label in labels]
            for labels in self.labels
        ]
        self.comma, self.nothing = words.phrases["rule_comma"], words.phrases["rule_nothing"]
        self.shared = rules.schema.task == "classification" and not rules.margins
        self.text: dict[int, str] = {}
        if self.shared:
            distinct, total = np.unique(rules.units).tolist(), rules.units_each
            self.text = {u: share_text(u, total) for u in distinct}

    def lines(self, first: int, last: int) -> Iterator[str]:
        """For each rule from `first` to `last` all that it says."""
        rules, words = self.rules, self.words
        shared = "_shares" if self.shared else ""
        then, also = words.sayer(f"rule_then{shared}"), words.sayer(f"rule_also{shared}")
        reached = [words.sayer(key) for key in ("rule_support", "rule_as_above")]
        supports = numerals(rules.support[first:last])
        columns = [
            self.said(*block, first, last) for block in itertools.pairwise(rules.schema.blocks)
        ]
        as_parent = rules.as_parent[first:last].tolist()
        (before, after), *others = self.names
        for row, (own, *more) in enumerate(zip(*columns, strict=True)):
            answer, shares = own
            support = reached[as_parent[row]](support=supports[row])
            answer = f"{before}{answer}{after}"
            text = f"  {then(answer=answer, support=support, shares=shares)}\n"
            for name, (answer, shares) in zip(others, more, strict=True):
                text += f"  {also(answer=f'{name[0]}{answer}{name[1]}', shares=shares)}\n"
            yield text

    def said(self, start: int, end: int, first: int, last: int) -> list[tuple[str, str]]:
        """For each rule what it says of one target: the answer, and shares."""
        if self.shared:
            return self._shares(start, end, first, last)
        return (
            self._margins(first, last) if self.rules.margins else self._values(start, first, last)
        )

    def _margins(self, first: int, last: int) -> list[tuple[str, str]]:
        units = self.rules.units[first:last]
        texts = iter(numerals(np.ldexp(units[units != 0].astype(np.float64), self.rules.exponent)))
        said = [
            self.comma.join(
                f"{before}{next(texts)}{after}"
                for before, after in (self.around[0][k] for k in np.flatnonzero(row).tolist())
            )
            for row in units
        ]
        return [(text or self.nothing, "") for text in said]

    def _values(self, at: int, first: int, last: int) -> list[tuple[str, str]]:
        units = self.rules.units[first:last, at].astype(np.float64)
        return [(text, "") for text in numerals(np.ldexp(units, self.rules.exponent))]

    def _shares(self, start: int, end: int, first: int, last: int) -> list[tuple[str, str]]:
        output = self.rules.schema.blocks.index(start)
        labels, around, text = self.labels[output], self.around[output], self.text
        votes = self.rules.units[first:last, start:end]
        said = least_cost(votes, self.rules.costs).tolist()
        texts = []
        for label, units in zip(said, votes.tolist(), strict=True):
            named = zip(around, units, strict=True)
            shares = self.comma.join(f"{b}{text[u]}{a}" for (b, a), u in named if u)
            texts.append((labels[label], shares))
        return texts


def _rule_texts(
    rules: RuleList, first: int, last: int, answers: AnswerTexts, words: Language
) -> Iterator[str]:
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    conditions = condition_texts(rules, start, stop, words)
    places = zip(rules.tree[first:last].tolist(), rules.leaf[first:last].tolist(), strict=True)
    several = rules.n_trees > 1
    place = words.sayer("rule_place_tree" if several else "rule_place")
    of = {"rules": len(rules)} | ({"trees": rules.n_trees} if several else {})
    (if_, end_if), (and_, end_and) = (
        words.around(key, "condition") for key in ("rule_if", "rule_and")
    )
    always, otherwise = (f"  {words.phrases[key]}\n" for key in ("rule_always", "rule_otherwise"))
    behind = f"{end_and}\n"
    at, ordered = 0, rules.order == "first"
    for number, ((tree, leaf), then) in enumerate(
        zip(places, answers.lines(first, last), strict=True), first
    ):
        end = int(rules.end[number]) - start
        if end == at:
            behind_others = ordered and number > 0 and rules.tree[number - 1] == tree
            asked = otherwise if behind_others else always
        else:
            one, *others = conditions[at:end]
            asked = f"  {if_}{one}{end_if}\n" + "".join(
                f"  {and_}{other}{behind}" for other in others
            )
        at = end
        head = place(rule=number + 1, tree=tree + 1, node=leaf, **of)
        yield f"\n{head}\n{asked}{then}"
