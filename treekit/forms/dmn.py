"""Rules as decision tables of DMN 1.3 (OMG formal/2021-01-02).

A list of one tree is one table: hit policy UNIQUE, or FIRST where order counts.  Of several
trees each is a table of whole numbers, and a decision sums them.  A test is a decision that
a table takes in, and so is the refusal of rows by a policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from treekit.forms.dmn_answers import check_sayable, outputs_of, rule_answers, summed, votes_of
from treekit.forms.dmn_entries import REFUSED, Entries
from treekit.forms.wording import rules_said
from treekit.forms.xml import Xml, visible
from treekit.rules.wording import numerals

if TYPE_CHECKING:
    from treekit.forms import Listing

__all__ = ["dmn_pieces"]

_MODEL = "https://www.omg.org/spec/DMN/20191111/MODEL/"
_RULES_A_PIECE = 1024


def dmn_pieces(listing: Listing) -> Iterator[str]:
    """The XML of `listing`.

    Inputs have the names of the columns, or ``x1``, ``x2``, ... where FEEL cannot carry a
    name; their labels are the names.  A missing value is null.

    Raises
    ------
    SettingError
        For rules that divide rows, that add up columns, or whose numbers go through a link.
    """
    check_sayable(listing.rules)
    yield from _Document(listing).pieces()


class _Document:
    """One file: what is written, and what its decisions are called."""

    def __init__(self, listing: Listing) -> None:
        self.listing, self.rules = listing, listing.rules
        self.entries = Entries(listing.rules)
        self.refusals = self.entries.refusals()
        self.xml = Xml()

    def pieces(self) -> Iterator[str]:
        rules, xml, say = self.rules, self.xml, self._say
        name = visible(self.listing.title or rules.schema.target) or "rules"
        own = {"xmlns": _MODEL, "id": "rules", "name": name, "namespace": "urn:treekit:rules"}
        xml.begin("definitions", own)
        xml.leaf("description", say("dmn_head"))
        self._inputs()
        if self.refusals:
            columns = range(rules.schema.n_features)
            self._expression(REFUSED, self.refusals, columns, "boolean", say("dmn_refused"))
        for test in range(len(rules.tests)):
            variable = self.entries.variables[rules.schema.n_features + test]
            asked = self.entries.columns_of(test)
            self._expression(variable, self.entries.test(test), asked, "number", "")
        if rules.n_trees == 1:
            yield from self._table("answer", 0, len(rules), outputs_of(rules), rule_answers(rules))
        else:
            yield from self._forest()
        xml.end()
        yield xml.take() + "\n"

    def _say(self, key: str) -> str:
        return visible(self.listing.language.say(key))

    def _inputs(self) -> None:
        columns = zip(self.rules.schema.columns, self.entries.variables, strict=False)
        for place, (column, name) in enumerate(columns, 1):
            kind = "number" if column.kind == "numeric" else "string"
            told = {"id": f"input_{place}", "name": name, "label": visible(column.name)}
            self.xml.begin("inputData", told)
            own = {"id": f"variable_{place}", "name": name, "typeRef": kind}
            self.xml.leaf("variable", "", own)
            self.xml.end()

    def _decision(
        self, name: str, columns: Sequence[int], decisions: Sequence[str], kind: str, told: str
    ) -> None:
        """Begin a decision up to its logic; it asks columns and other decisions."""
        xml = self.xml
        xml.begin("decision", {"id": f"d_{name}", "name": name})
        if told:
            xml.leaf("description", told)
        xml.leaf("variable", "", {"id": f"v_{name}", "name": name, "typeRef": kind})
        required = [("requiredInput", f"#input_{column + 1}") for column in columns]
        required += [("requiredDecision", f"#d_{decision}") for decision in decisions]
        for place, (element, href) in enumerate(required):
            xml.begin("informationRequirement", {"id": f"r_{name}_{place}"})
            xml.leaf(element, "", {"href": href})
            xml.end()

    def _expression(
        self, name: str, text: str, columns: Sequence[int], kind: str, told: str
    ) -> None:
        self._decision(name, columns, [], kind, told)
        self._literal(text, kind)

    def _literal(self, text: str, kind: str) -> None:
        self.xml.begin("literalExpression", {"typeRef": kind})
        self.xml.leaf("text", text)
        self.xml.end()
        self.xml.end()

    def _forest(self) -> Iterator[str]:
        rules, own = self.rules, []
        outputs = [(f"v_{k + 1}", "number", "") for k in range(rules.schema.n_values)]
        votes = votes_of(rules)
        for tree in range(rules.n_trees):
            first, last = np.searchsorted(rules.tree, [tree, tree + 1]).tolist()
            own.append(f"tree_{tree + 1}")
            yield from self._table(own[-1], first, last, outputs, votes)
        decisions = [*own, *([REFUSED] if self.refusals else [])]
        text = summed(rules)
        if self.refusals:
            text = f"if {REFUSED} then null else {text}"
        self._decision("answer", [], decisions, "Any", self._say("dmn_sum"))
        self._literal(text, "Any")

    def _table(
        self,
        name: str,
        first: int,
        last: int,
        outputs: Sequence[tuple[str, str, str]],
        answers: Iterator[list[str]],
    ) -> Iterator[str]:
        """The table of the rules from `first` to `last`; takes as many `answers`."""
        rules, xml, n = self.rules, self.xml, self.rules.schema.n_features
        asked = self.entries.asked(first, last)
        variables = self.entries.variables
        decisions = [variables[c] for c in asked if c >= n]
        if self.refusals:
            decisions.append(REFUSED)
        kind = outputs[0][1] if len(outputs) == 1 else "Any"
        self._decision(name, [c for c in asked if c < n], decisions, kind, "")
        policy = "UNIQUE" if rules.order == "disjoint" else "FIRST"
        xml.begin("decisionTable", {"id": f"t_{name}", "hitPolicy": policy})
        for column in asked:
            self._input(column)
        if self.refusals:
            self._clause(REFUSED, "boolean", REFUSED)
        for output, type_of, label in outputs:
            told = {"name": output, "typeRef": type_of, "label": visible(label)}
            xml.leaf("output", "", {key: text for key, text in told.items() if text})
        said = ("rule", "conditions", "support", "confidence")
        for key in said:
            xml.leaf("annotation", "", {"name": self._say(f"dmn_{key}")})
        place = {column: at for at, column in enumerate(asked)}
        for begin in range(first, last, _RULES_A_PIECE):
            end = min(begin + _RULES_A_PIECE, last)
            for rule, told_of in zip(range(begin, end), self._annotations(begin, end), strict=True):
                self._rule(rule, place, next(answers), told_of)
            yield xml.take()
        xml.end()
        xml.end()

    def _input(self, column: int) -> None:
        schema, variable = self.rules.schema, self.entries.variables[column]
        if column >= schema.n_features:
            self._clause(variable, "number", variable)
            return
        told = schema.columns[column]
        kind = "number" if told.kind == "numeric" else "string"
        self._clause(variable, kind, visible(told.name))

    def _clause(self, variable: str, kind: str, label: str) -> None:
        self.xml.begin("input", {"label": label})
        self.xml.begin("inputExpression", {"typeRef": kind})
        self.xml.leaf("text", variable)
        self.xml.end()
        self.xml.end()

    def _rule(
        self, rule: int, place: dict[int, int], answer: list[str], told: Sequence[str]
    ) -> None:
        entries = ["-"] * len(place) + ["false"] * bool(self.refusals)
        for at in range(*self.rules.bounds(rule)):
            column, text = self.entries.entry(at)
            entries[place[column]] = text
        xml = self.xml
        xml.begin("rule")
        for element, texts in (
            ("inputEntry", entries),
            ("outputEntry", answer),
            ("annotationEntry", told),
        ):
            for text in texts:
                xml.begin(element)
                xml.leaf("text", text)
                xml.end()
        xml.end()

    def _annotations(self, first: int, last: int) -> Iterator[tuple[str, str, str, str]]:
        """Number, conditions in words, support and confidence of some rules."""
        measures = self.listing.measures
        asked = rules_said(self.listing, first, last)
        support = numerals(measures.weight[first:last])
        confidence = [
            "" if np.isnan(x) else f"{x:.4g}" for x in measures.confidence[first:last, 0].tolist()
        ]
        for number in range(first, last):
            at = number - first
            yield str(number + 1), asked[at], support[at], confidence[at]
