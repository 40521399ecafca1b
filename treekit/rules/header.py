"""What the text of rules says before the first rule.

Every fact stands once; explanations follow from the facts, and the reader
checks that they do.
"""

from __future__ import annotations

from collections.abc import Iterator

from treekit.data.schema import Column, Output
from treekit.model.fixed_point import MASS
from treekit.model.links import LN2_HIGH, LN2_LOW, LOG2_E
from treekit.rules.language import Language
from treekit.rules.phrases import test_text
from treekit.rules.records import Rounding
from treekit.rules.rulelist import RuleList
from treekit.rules.words import label_text, name_text

__all__ = ["header"]

_MISSING = {
    "direction": ("note_missing",),
    "surrogate": ("note_missing",),
    "fractional": ("note_missing", "note_fractional"),
    "error": ("note_missing_refused",),
}
_UNKNOWN = {"missing": "note_unknown", "error": "note_unknown_refused"}
_EXP = {"log2_e": repr(LOG2_E), "ln2_high": repr(LN2_HIGH), "ln2_low": repr(LN2_LOW)}


def header(rules: RuleList, words: Language) -> list[str]:
    """The lines before the first rule: all that holds for every rule."""
    return [words.first_line, "", *_Header(rules, words).lines()]


class _Header:
    """Facts of a list of rules, and what follows from them, in one language."""

    def __init__(self, rules: RuleList, words: Language) -> None:
        self.rules, self.words = rules, words

    def lines(self) -> Iterator[str]:
        """All but the first two lines."""
        rules, schema = self.rules, self.rules.schema
        yield from self.targets()
        yield self.fact("columns", schema.n_features)
        yield from (f"  {self.column(column)}" for column in schema.columns)
        yield self.fact("type", schema.dtype)
        yield from self.notes(f"note_{schema.dtype}")
        yield self.fact("missing", rules.missing)
        yield from self.notes(*_MISSING[rules.missing])
        yield self.fact("unknown", rules.unknown)
        yield from self.notes(_UNKNOWN[rules.unknown])
        yield from self.tests()
        yield self.fact("trees", rules.n_trees)
        if rules.mass > 1:
            yield from self.notes("note_some_mass")
        elif rules.order == "first":
            yield self.fact("order", rules.order)
            yield from self.notes("note_first")
        else:
            yield from self.notes("note_one_rule")
        yield from self.costs()
        yield from self.vote()
        yield from self.notes("note_support")
        if rules.as_parent.any():
            yield from self.notes("note_as_above")
        yield from self.rounding()
        yield self.fact("rules", len(rules))

    def fact(self, key: str, value: object) -> str:
        """The line of a fact."""
        return f"{self.words.facts[key]}{value}"

    def notes(self, *keys: str, **fields: object) -> Iterator[str]:
        """The lines of explanations."""
        texts = {"mass": str(MASS)} | {name: str(value) for name, value in fields.items()}
        for key in keys:
            yield from (f"  {line}" for line in self.words.lines(key, **texts))

    def targets(self) -> Iterator[str]:
        """The target and its classes, or one line for each of several."""
        first, *more = self.rules.schema.outputs
        if not more:
            yield self.fact("target", name_text(first.name, self.words))
            none = self.words.phrases["head_regression"]
            yield self.fact("classes", self.labels(first) if first.classes else none)
            return
        yield self.fact("targets", len(more) + 1)
        for output in (first, *more):
            name = name_text(output.name, self.words)
            key = "head_levels" if output.classes else "head_number"
            fields = {"levels": self.labels(output)} if output.classes else {}
            yield "  " + self.words.say(key, name=name, **fields)

    def labels(self, output: Output) -> str:
        """The classes in their order."""
        labels = [label_text(label, self.words) for label in output.classes]
        return self.words.phrases["if_comma"].join(labels)

    def column(self, column: Column) -> str:
        """A column and what it holds."""
        name = name_text(column.name, self.words)
        if column.kind == "numeric":
            return self.words.say("head_number", name=name)
        if not column.levels:
            return self.words.say("head_no_levels", name=name)
        levels = [name_text(level, self.words) for level in column.levels]
        all_levels = self.words.phrases["if_comma"].join(levels)
        return self.words.say("head_levels", name=name, levels=all_levels)

    def tests(self) -> Iterator[str]:
        """What rules ask beyond single columns."""
        if not self.rules.tests:
            return
        yield self.fact("tests", len(self.rules.tests))
        for number, test in enumerate(self.rules.tests, 1):
            name = self.words.say("test_name", number=str(number))
            clauses = test_text(test, self.rules.schema, self.words)
            yield "  " + self.words.say("head_test", test=name, clauses=clauses)
        yield from self.notes("note_tests")

    def costs(self) -> Iterator[str]:
        """The table of costs."""
        if self.rules.costs is None:
            return
        labels = [label_text(label, self.words) for label in self.rules.schema.classes]
        yield self.fact("costs", len(labels))
        for label, row in zip(labels, self.rules.costs.tolist(), strict=True):
            said = self.words.phrases["rule_comma"].join(
                self.words.say("rule_share", label=other, share=str(cost))
                for other, cost in zip(labels, row, strict=True)
            )
            yield "  " + self.words.say("head_cost", label=label, costs=said)

    def vote(self) -> Iterator[str]:
        """How the rules that fit a row make an answer."""
        rules = self.rules
        if rules.margins:
            yield from (*self.step(), *self.notes("note_margins"), *self.link())
            return
        several = bool(rules.schema.more)
        if rules.schema.task == "regression":
            answer = "note_answer" if rules.link == "identity" else "note_margin"
            yield from self.step()
            yield from self.notes(answer, number=self.number())
            if several:
                yield from self.notes("note_each_number")
            yield from self.link()
            return
        if rules.decisions:
            yield self.fact("says", "labels")
            yield from self.notes("note_decisions")
        yield self.fact("votes", rules.units_each)
        votes = "note_votes_mass" if rules.mass > 1 else "note_votes"
        decided = "note_majority" if rules.costs is None else "note_least_cost"
        fields = {"units": rules.units_each, "total": rules.unit_total}
        yield from self.notes("note_shares", votes, decided, **fields)
        if several:
            yield from self.notes("note_each_votes")

    def rounding(self) -> Iterator[str]:
        """What shortened thresholds are worth."""
        if self.rules.rounding is not None:
            digits, *counts = map(str, self.rules.rounding)
            fields = dict(zip(Rounding._fields[1:], counts, strict=True))
            yield self.fact("digits", digits)
            yield "  " + self.words.say("head_rounded", **fields)
            yield from self.notes("note_rounded")

    def step(self) -> Iterator[str]:
        """The grid of numbers."""
        if self.rules.combine == "sum":
            yield self.fact("combine", "sum")
        yield self.fact("step", f"2**{self.rules.exponent}")
        yield from self.notes("note_step")

    def link(self) -> Iterator[str]:
        """What a margin becomes."""
        if self.rules.link != "identity":
            yield self.fact("link", self.rules.link)
            yield from self.notes(f"note_{self.rules.link}", "note_exponential", **_EXP)

    def number(self) -> str:
        """Which number of the rules that fit is the answer."""
        rules, trees = self.rules, str(self.rules.n_trees)
        if rules.mass > 1:
            return self.words.say("note_sum_mass", total=str(rules.n_trees * MASS))
        if rules.n_trees == 1:
            return self.words.say("note_number")
        return self.words.say("note_sum" if rules.combine == "sum" else "note_mean", trees=trees)
