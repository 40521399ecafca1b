"""Write rules as text, which auditors can read and `treekit.rules.read_text` can execute.

Numbers are written as the shortest numerals that parse to the same value.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from treekit.data.schema import Column, Output
from treekit.model.fixed_point import MASS
from treekit.model.links import LN2_HIGH, LN2_LOW, LOG2_E
from treekit.model.model import predict_labels
from treekit.rules.language import Language
from treekit.rules.rule_list import Rounding, RuleList
from treekit.rules.wording import (
    format_numbers,
    format_share,
    format_test,
    quote_label,
    quote_name,
    render_conditions,
)

# ---------------------------------------------------------------- write

_RULES_PER_PIECE = 2048


def generate_text(rules: RuleList, words: Language, tree: int | None = None) -> Iterator[str]:
    """Generate the text of `rules`, or of one tree, some thousand rules at a time."""
    yield "\n".join(format_header(rules, words)) + "\n"
    answers = AnswerWriter(rules, words)
    start, stop = 0, len(rules)
    if tree is not None:  # rules are sorted by tree
        start, stop = np.searchsorted(rules.tree, [tree, tree + 1]).tolist()
    for first in range(start, stop, _RULES_PER_PIECE):
        last = min(first + _RULES_PER_PIECE, stop)
        yield "".join(_write_rules(rules, first, last, answers, words))


class AnswerWriter:
    """Writer of the lines of a rule from 'then' on; each distinct share is formatted once."""

    def __init__(self, rules: RuleList, words: Language) -> None:
        self.rules, self.words = rules, words
        outputs = rules.schema.outputs
        self.names = [
            words.around("rule_target", "answer", name=quote_name(o.name, words))
            if rules.schema.more
            else ("", "")
            for o in outputs
        ]
        self.labels = [[quote_label(label, words) for label in o.classes] for o in outputs]
        # Texts before and after the share of a class.
        self.around = [
            [words.around("rule_share", "share", label=label) for label in labels]
            for labels in self.labels
        ]
        self.comma, self.nothing = words.phrases["rule_comma"], words.phrases["rule_nothing"]
        self.shared = rules.schema.task == "classification" and not rules.margins
        self.text: dict[int, str] = {}
        if self.shared:
            distinct, total = np.unique(rules.units).tolist(), rules.units_each
            self.text = {u: format_share(u, total) for u in distinct}

    def write_answers(self, first: int, last: int) -> Iterator[str]:
        """Generate the prediction lines of each rule from `first` to `last`."""
        rules, words = self.rules, self.words
        shared = "_shares" if self.shared else ""
        then, also = words.sayer(f"rule_then{shared}"), words.sayer(f"rule_also{shared}")
        reached = [words.sayer(key) for key in ("rule_support", "rule_as_above")]
        supports = format_numbers(rules.support[first:last])
        columns = [
            self.format_answers(*block, first, last)
            for block in itertools.pairwise(rules.schema.blocks)
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

    def format_answers(self, start: int, end: int, first: int, last: int) -> list[tuple[str, str]]:
        """Return the prediction and shares of each rule for one target."""
        if self.shared:
            return self._format_shares(start, end, first, last)
        return (
            self._format_margins(first, last)
            if self.rules.margins
            else self._format_values(start, first, last)
        )

    def _format_margins(self, first: int, last: int) -> list[tuple[str, str]]:
        units = self.rules.units[first:last]
        texts = iter(
            format_numbers(np.ldexp(units[units != 0].astype(np.float64), self.rules.exponent))
        )
        answers = [
            self.comma.join(
                f"{before}{next(texts)}{after}"
                for before, after in (self.around[0][k] for k in np.flatnonzero(row).tolist())
            )
            for row in units
        ]
        return [(text or self.nothing, "") for text in answers]

    def _format_values(self, at: int, first: int, last: int) -> list[tuple[str, str]]:
        units = self.rules.units[first:last, at].astype(np.float64)
        return [(text, "") for text in format_numbers(np.ldexp(units, self.rules.exponent))]

    def _format_shares(self, start: int, end: int, first: int, last: int) -> list[tuple[str, str]]:
        output = self.rules.schema.blocks.index(start)
        labels, around, text = self.labels[output], self.around[output], self.text
        votes = self.rules.units[first:last, start:end]
        predicted = predict_labels(votes, self.rules.costs).tolist()
        texts = []
        for label, units in zip(predicted, votes.tolist(), strict=True):
            named = zip(around, units, strict=True)
            shares = self.comma.join(f"{b}{text[u]}{a}" for (b, a), u in named if u)
            texts.append((labels[label], shares))
        return texts


def _write_rules(
    rules: RuleList, first: int, last: int, answers: AnswerWriter, words: Language
) -> Iterator[str]:
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    conditions = render_conditions(rules, start, stop, words)
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
        zip(places, answers.write_answers(first, last), strict=True), first
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


# ---------------------------------------------------------------- header
# Every fact is stated once; explanations follow from the facts, which the parser checks.

_MISSING_NOTES = {
    "direction": ("note_missing",),
    "surrogate": ("note_missing",),
    "fractional": ("note_missing", "note_fractional"),
    "error": ("note_missing_refused",),
}
_UNKNOWN_NOTES = {"missing": "note_unknown", "error": "note_unknown_refused"}
_EXP_CONSTANTS = {"log2_e": repr(LOG2_E), "ln2_high": repr(LN2_HIGH), "ln2_low": repr(LN2_LOW)}


def format_header(rules: RuleList, words: Language) -> list[str]:
    """Return the lines before the first rule: the facts of the complete list."""
    return [words.first_line, "", *_HeaderWriter(rules, words).write_lines()]


class _HeaderWriter:
    """Writer of the header: facts of a rule list and their explanations."""

    def __init__(self, rules: RuleList, words: Language) -> None:
        self.rules, self.words = rules, words

    def write_lines(self) -> Iterator[str]:
        """Generate all but the first two lines."""
        rules, schema = self.rules, self.rules.schema
        yield from self.write_targets()
        yield self.format_fact("columns", schema.n_features)
        yield from (f"  {self.format_column(column)}" for column in schema.columns)
        yield self.format_fact("type", schema.dtype)
        yield from self.format_notes(f"note_{schema.dtype}")
        yield self.format_fact("missing", rules.missing)
        yield from self.format_notes(*_MISSING_NOTES[rules.missing])
        yield self.format_fact("unknown", rules.unknown)
        yield from self.format_notes(_UNKNOWN_NOTES[rules.unknown])
        yield from self.write_tests()
        yield self.format_fact("trees", rules.n_trees)
        if rules.mass > 1:
            yield from self.format_notes("note_some_mass")
        elif rules.order == "first":
            yield self.format_fact("order", rules.order)
            yield from self.format_notes("note_first")
        else:
            yield from self.format_notes("note_one_rule")
        yield from self.write_costs()
        yield from self.write_vote()
        yield from self.format_notes("note_support")
        if rules.as_parent.any():
            yield from self.format_notes("note_as_above")
        yield from self.write_rounding()
        yield self.format_fact("rules", len(rules))

    def format_fact(self, key: str, value: object) -> str:
        """Return the line of a fact."""
        return f"{self.words.facts[key]}{value}"

    def format_notes(self, *keys: str, **fields: object) -> Iterator[str]:
        """Generate the lines of explanations."""
        texts = {"mass": str(MASS)} | {name: str(value) for name, value in fields.items()}
        for key in keys:
            yield from (f"  {line}" for line in self.words.lines(key, **texts))

    def write_targets(self) -> Iterator[str]:
        """Generate the target and its classes, or one line for each of several targets."""
        first, *more = self.rules.schema.outputs
        if not more:
            yield self.format_fact("target", quote_name(first.name, self.words))
            none = self.words.phrases["head_regression"]
            yield self.format_fact("classes", self.format_labels(first) if first.classes else none)
            return
        yield self.format_fact("targets", len(more) + 1)
        for output in (first, *more):
            name = quote_name(output.name, self.words)
            key = "head_levels" if output.classes else "head_number"
            fields = {"levels": self.format_labels(output)} if output.classes else {}
            yield "  " + self.words.say(key, name=name, **fields)

    def format_labels(self, output: Output) -> str:
        """Return the classes in their order."""
        labels = [quote_label(label, self.words) for label in output.classes]
        return self.words.phrases["if_comma"].join(labels)

    def format_column(self, column: Column) -> str:
        """Return a column and the kind of its values."""
        name = quote_name(column.name, self.words)
        if column.kind == "numeric":
            return self.words.say("head_number", name=name)
        if not column.levels:
            return self.words.say("head_no_levels", name=name)
        levels = [quote_name(level, self.words) for level in column.levels]
        all_levels = self.words.phrases["if_comma"].join(levels)
        return self.words.say("head_levels", name=name, levels=all_levels)

    def write_tests(self) -> Iterator[str]:
        """Generate the tests of several columns."""
        if not self.rules.tests:
            return
        yield self.format_fact("tests", len(self.rules.tests))
        for number, test in enumerate(self.rules.tests, 1):
            name = self.words.say("test_name", number=str(number))
            clauses = format_test(test, self.rules.schema, self.words)
            yield "  " + self.words.say("head_test", test=name, clauses=clauses)
        yield from self.format_notes("note_tests")

    def write_costs(self) -> Iterator[str]:
        """Generate the table of misclassification costs."""
        if self.rules.costs is None:
            return
        labels = [quote_label(label, self.words) for label in self.rules.schema.classes]
        yield self.format_fact("costs", len(labels))
        for label, row in zip(labels, self.rules.costs.tolist(), strict=True):
            cells = self.words.phrases["rule_comma"].join(
                self.words.say("rule_share", label=other, share=str(cost))
                for other, cost in zip(labels, row, strict=True)
            )
            yield "  " + self.words.say("head_cost", label=label, costs=cells)

    def write_vote(self) -> Iterator[str]:
        """Generate the explanation of how rules combine to a prediction."""
        rules = self.rules
        if rules.margins:
            yield from (*self.write_step(), *self.format_notes("note_margins"), *self.write_link())
            return
        several = bool(rules.schema.more)
        if rules.schema.task == "regression":
            answer = "note_answer" if rules.link == "identity" else "note_margin"
            yield from self.write_step()
            yield from self.format_notes(answer, number=self.describe_number())
            if several:
                yield from self.format_notes("note_each_number")
            yield from self.write_link()
            return
        if rules.decisions:
            yield self.format_fact("says", "labels")
            yield from self.format_notes("note_decisions")
        yield self.format_fact("votes", rules.units_each)
        votes = "note_votes_mass" if rules.mass > 1 else "note_votes"
        decided = "note_majority" if rules.costs is None else "note_least_cost"
        fields = {"units": rules.units_each, "total": rules.unit_total}
        yield from self.format_notes("note_shares", votes, decided, **fields)
        if several:
            yield from self.format_notes("note_each_votes")

    def write_rounding(self) -> Iterator[str]:
        """Generate the summary of shortened thresholds."""
        if self.rules.rounding is not None:
            digits, *counts = map(str, self.rules.rounding)
            fields = dict(zip(Rounding._fields[1:], counts, strict=True))
            yield self.format_fact("digits", digits)
            yield "  " + self.words.say("head_rounded", **fields)
            yield from self.format_notes("note_rounded")

    def write_step(self) -> Iterator[str]:
        """Generate the fixed-point unit of numbers."""
        if self.rules.combine == "sum":
            yield self.format_fact("combine", "sum")
        yield self.format_fact("step", f"2**{self.rules.exponent}")
        yield from self.format_notes("note_step")

    def write_link(self) -> Iterator[str]:
        """Generate the link function of margins."""
        if self.rules.link != "identity":
            yield self.format_fact("link", self.rules.link)
            yield from self.format_notes(
                f"note_{self.rules.link}", "note_exponential", **_EXP_CONSTANTS
            )

    def describe_number(self) -> str:
        """Return the explanation of which number is the prediction."""
        rules, trees = self.rules, str(self.rules.n_trees)
        if rules.mass > 1:
            return self.words.say("note_sum_mass", total=str(rules.n_trees * MASS))
        if rules.n_trees == 1:
            return self.words.say("note_number")
        return self.words.say("note_sum" if rules.combine == "sum" else "note_mean", trees=trees)
