"""Write rules as text, which auditors can read and `treekit.rules.read_text` can execute.

Numbers are written as the shortest numerals that parse to the same value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from treekit.data.schema import Label
from treekit.model.fixed_point import MASS
from treekit.model.links import LN2_HIGH, LN2_LOW, LOG2_E
from treekit.rules.language import Language
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import (
    OutcomeFormatter,
    find_otherwise_rules,
    format_numbers,
    format_test,
    quote_label,
    quote_name,
    render_conditions,
)

# ---------------------------------------------------------------- write

_RULES_PER_PIECE = 2048


def generate_text(rules: RuleList, words: Language, tree: int | None = None) -> Iterator[str]:
    """Generate the text of `rules`, or of one tree, some thousand rules at a time."""
    yield "\n".join(format_head(rules, words)) + "\n"
    outcomes = OutcomeFormatter(rules, words)
    start, stop = 0, len(rules)
    if tree is not None:  # rules are sorted by tree
        start, stop = np.searchsorted(rules.tree, [tree, tree + 1]).tolist()
    for first in range(start, stop, _RULES_PER_PIECE):
        last = min(first + _RULES_PER_PIECE, stop)
        yield "".join(_write_rules(outcomes, first, last))
    yield "\n" + "\n".join(format_notes(rules, words)) + "\n"


def _write_outcomes(outcomes: OutcomeFormatter, first: int, last: int) -> Iterator[str]:
    """Generate the lines of each rule from 'then' on."""
    rules, words = outcomes.rules, outcomes.words
    suffix = "_shares" if outcomes.has_votes else ""
    then, also = words.sayer(f"rule_then{suffix}"), words.sayer(f"rule_also{suffix}")
    reached = [words.sayer(key) for key in ("rule_support", "rule_as_above")]
    supports = format_numbers(rules.support[first:last])
    as_parent = rules.as_parent[first:last].tolist()
    for row, targets in enumerate(outcomes.format_outcomes(first, last)):
        support, text = reached[as_parent[row]](support=supports[row]), ""
        for one in targets:
            answer = one.text
            if one.target:
                answer = words.say("rule_target", name=one.target, answer=answer)
            shares = outcomes.join_shares(one.shares) if suffix else ""
            write = also if text else then
            text += f"  {write(answer=answer, support=support, shares=shares)}\n"
        yield text


def _write_rules(outcomes: OutcomeFormatter, first: int, last: int) -> Iterator[str]:
    rules, words = outcomes.rules, outcomes.words
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    conditions = render_conditions(rules, start, stop, words)
    places = zip(rules.tree[first:last].tolist(), rules.leaf[first:last].tolist(), strict=True)
    place = words.sayer("rule_place_tree" if rules.n_trees > 1 else "rule_place")
    (if_, end_if), (and_, end_and) = (words.around(k, "condition") for k in ("rule_if", "rule_and"))
    at, otherwise = 0, find_otherwise_rules(rules)
    for number, ((tree, leaf), then) in enumerate(
        zip(places, _write_outcomes(outcomes, first, last), strict=True), first
    ):
        end = int(rules.end[number]) - start
        lines = [f"{and_}{text}{end_and}" for text in conditions[at:end]]
        if lines:
            lines[0] = f"{if_}{conditions[at]}{end_if}"
        else:
            lines = [words.say("rule_otherwise" if otherwise[number] else "rule_always")]
        at = end
        total = {"rules": len(rules), "trees": rules.n_trees}
        head = place(rule=number + 1, tree=tree + 1, node=leaf, **total)
        yield f"\n{head}\n" + "".join(f"  {line}\n" for line in lines) + then


# ---------------------------------------------------------------- head and notes
# Every fact is stated once; explanations follow from the facts, which the parser checks.

_MISSING_NOTES = {
    "direction": ("note_missing",),
    "surrogate": ("note_missing",),
    "fractional": ("note_missing", "note_fractional"),
    "error": ("note_missing_refused",),
}
_UNKNOWN_NOTES = {"missing": "note_unknown", "error": "note_unknown_refused"}
_EXP_CONSTANTS = {"log2_e": repr(LOG2_E), "ln2_high": repr(LN2_HIGH), "ln2_low": repr(LN2_LOW)}


def format_head(rules: RuleList, words: Language) -> list[str]:
    """Return the lines before the first rule: the format, and what the rules predict."""
    outputs = words.phrases["head_next"].join(
        _format_values(output.name, output.classes, not output.classes, words)
        for output in rules.schema.outputs
    )
    key = "head_predicts_trees" if rules.n_trees > 1 else "head_predicts"
    stated = words.say(key, outputs=outputs, rules=len(rules), trees=rules.n_trees)
    return [words.first_line, stated]


def format_notes(rules: RuleList, words: Language) -> list[str]:
    """Return the lines after the last rule: how to read the rules, and their other facts."""
    return [words.phrases["head_reading"], *_NotesWriter(rules, words).write_lines()]


def _format_values(name: str, values: Sequence[Label], numeric: bool, words: Language) -> str:
    """Return a column or target and the kind of its values."""
    key = "head_number" if numeric else "head_levels" if values else "head_no_levels"
    levels = words.phrases["if_comma"].join(quote_label(label, words) for label in values)
    return words.say(key, name=quote_name(name, words), levels=levels)


class _NotesWriter:
    """Writer of the facts of a rule list and their explanations; exact arithmetic comes last."""

    def __init__(self, rules: RuleList, words: Language) -> None:
        self.rules, self.words = rules, words
        self.has_votes = rules.schema.task == "classification" and not rules.margins

    def write_lines(self) -> Iterator[str]:
        """Generate the lines: how to read the rules, tests and columns, and exact facts."""
        rules, schema = self.rules, self.rules.schema
        yield from self.write_reading()
        yield ""
        if rules.tests:
            yield self.format_fact("tests", len(rules.tests))
            for number, test in enumerate(rules.tests, 1):
                name = self.words.say("test_name", number=number)
                clauses = format_test(test, schema, self.words)
                yield self.indent("head_test", test=name, clauses=clauses)
        yield self.format_fact("columns", schema.n_features)
        yield from self.write_columns()
        yield ""
        yield from self.write_policies()
        yield self.format_fact("type", schema.dtype)
        yield from self.format_notes(f"note_{schema.dtype}")
        if rules.tests:
            yield from self.format_notes("note_tests")
        yield from self.write_costs()
        yield from self.write_votes() if self.has_votes else self.write_numbers()

    def format_fact(self, key: str, value: object) -> str:
        """Return the line of a fact."""
        return f"{self.words.facts[key]}{value}"

    def indent(self, key: str, **fields: object) -> str:
        """Return a phrase as a line below a fact."""
        return f"  {self.words.say(key, **fields)}"

    def format_notes(self, *keys: str, **fields: object) -> Iterator[str]:
        """Generate the lines of explanations."""
        for key in keys:
            yield from (f"  {line}" for line in self.words.lines(key, mass=MASS, **fields))

    def write_reading(self) -> Iterator[str]:
        """Generate the explanations that every reader needs."""
        rules = self.rules
        which = "note_first" if rules.order == "first" else "note_one_rule"
        yield from self.format_notes("note_some_mass" if rules.mass > 1 else which)
        yield from self.format_notes(*_MISSING_NOTES[rules.missing])
        if any(column.kind == "nominal" for column in rules.schema.columns):
            yield from self.format_notes(_UNKNOWN_NOTES[rules.unknown])
        yield from self.format_notes("note_support")
        if rules.as_parent.any():
            yield from self.format_notes("note_as_above")
        if self.has_votes:
            yield from self.format_notes("note_shares")
            if rules.decisions:
                yield from self.format_notes("note_decisions")
        elif rules.margins:
            yield from self.format_notes("note_margins")
        else:
            answer = "note_answer" if rules.link == "identity" else "note_margin"
            if rules.mass > 1:
                yield from self.format_notes("note_part_mass")
            yield from self.format_notes(answer, number=self.describe_number())
            if rules.schema.more:
                yield from self.format_notes("note_each_number")

    def write_columns(self) -> Iterator[str]:
        """Generate a line for each column, with its values."""
        for column in self.rules.schema.columns:
            numeric = column.kind == "numeric"
            yield f"  {_format_values(column.name, column.levels, numeric, self.words)}"

    def write_policies(self) -> Iterator[str]:
        """Generate the facts that the explanations for readers put into words."""
        rules = self.rules
        yield self.format_fact("missing", rules.missing)
        yield self.format_fact("unknown", rules.unknown)
        if rules.mass == 1 and rules.order == "first":
            yield self.format_fact("order", rules.order)
        if self.has_votes and rules.decisions:
            yield self.format_fact("says", "labels")

    def write_costs(self) -> Iterator[str]:
        """Generate the table of misclassification costs."""
        if self.rules.costs is None:
            return
        labels = [quote_label(label, self.words) for label in self.rules.schema.classes]
        yield self.format_fact("costs", len(labels))
        for label, row in zip(labels, self.rules.costs.tolist(), strict=True):
            cells = self.words.phrases["rule_comma"].join(
                self.words.say("rule_share", label=other, share=cost)
                for other, cost in zip(labels, row, strict=True)
            )
            yield self.indent("head_cost", label=label, costs=cells)

    def write_votes(self) -> Iterator[str]:
        """Generate the explanation of how the shares of rules combine to a prediction."""
        rules = self.rules
        yield self.format_fact("votes", rules.units_each)
        votes = "note_votes_mass" if rules.mass > 1 else "note_votes"
        decided = "note_majority" if rules.costs is None else "note_least_cost"
        fields = {"units": rules.units_each, "total": rules.unit_total}
        yield from self.format_notes(votes, decided, **fields)
        if rules.schema.more:
            yield from self.format_notes("note_each_votes")

    def write_numbers(self) -> Iterator[str]:
        """Generate the arithmetic of numbers, or margins."""
        rules = self.rules
        if rules.combine == "sum":
            yield self.format_fact("combine", "sum")
        steps = [rules.exponent] if isinstance(rules.exponent, int) else rules.exponent
        yield self.format_fact("step", ", ".join(f"2**{own}" for own in steps))
        yield from self.format_notes("note_step")
        if rules.link != "identity":
            yield self.format_fact("link", rules.link)
            notes = f"note_{rules.link}", "note_exponential"
            yield from self.format_notes(*notes, **_EXP_CONSTANTS)

    def describe_number(self) -> str:
        """Return the explanation of which number is the prediction."""
        rules = self.rules
        if rules.mass > 1:
            return self.words.say("note_sum_mass", trees=rules.n_trees)
        key = "note_sum" if rules.combine == "sum" else "note_mean"
        return self.words.say(key if rules.n_trees > 1 else "note_number", trees=rules.n_trees)
