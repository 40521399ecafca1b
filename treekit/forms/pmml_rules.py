"""A list of one tree, or an ordered list, as a RuleSetModel of PMML 4.4.

The first rule whose predicate is true answers (selection ``firstHit``): of rules that do not
overlap the only one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from treekit.errors import SettingError
from treekit.forms.outcomes import label_codes, shares
from treekit.forms.pmml_fields import Fields
from treekit.forms.xml import Xml, visible
from treekit.model.fixed_point import double_threshold
from treekit.rules.rule_list import RuleList

if TYPE_CHECKING:
    from treekit.forms import Listing

__all__ = ["ruleset_pieces"]

_RULES_A_PIECE = 1024


def ruleset_pieces(listing: Listing) -> Iterator[str]:
    """The XML of `listing`; a rule's id is its number, from 1.

    Raises
    ------
    SettingError
        For what a rule set cannot say: numbers, several trees or targets, divided rows, and
        tests beyond single columns.
    """
    rules = listing.rules
    _check(rules)
    xml = Xml()
    fields = Fields(xml, rules.schema, rules.missing, rules.unknown)
    fields.begin(visible(listing.title or rules.schema.target))
    told = {"functionName": "classification", "algorithmName": "treekit"}
    xml.begin("RuleSetModel", told)
    fields.mining_schema()
    _outputs(fields)
    xml.begin("RuleSet")
    xml.leaf("RuleSelectionMethod", "", {"criterion": "firstHit"})
    if fields.guarded:
        xml.begin("CompoundRule")
        fields.guard()
    predicates = _Predicates(rules, fields)
    codes, parts = label_codes(rules)[0].tolist(), shares(rules)
    support = rules.support.tolist()
    for number, code in enumerate(codes):
        own = parts[number].tolist()
        told = {"id": str(number + 1), "score": fields.classes[code]}
        told |= {"recordCount": repr(support[number]), "confidence": repr(own[code])}
        xml.begin("SimpleRule", told)
        predicates.write(number)
        for label, part in zip(fields.classes, own, strict=True):
            weight = {"recordCount": repr(part * support[number]), "probability": repr(part)}
            xml.leaf("ScoreDistribution", "", {"value": label, **weight})
        xml.end()
        if number % _RULES_A_PIECE == 0:
            yield xml.take()
    for _ in range(4 if fields.guarded else 3):
        xml.end()
    yield xml.take() + "\n"


def _check(rules: RuleList) -> None:
    if rules.schema.task == "regression" or rules.margins:
        raise SettingError(
            "a rule set of PMML answers classes, and these rules say numbers to be added or "
            "answered: write form 'pmml' of a tree of numbers, else 'text'"
        )
    if rules.n_trees > 1:
        raise SettingError(
            f"a rule set of PMML is one list, and these are the rules of {rules.n_trees} trees: "
            "write form 'pmml' of a forest, else 'text'"
        )
    if rules.mass > 1:
        raise SettingError(
            "PMML cannot divide rows as exactly as the missing policy 'fractional' does: "
            "write form 'text'"
        )
    if rules.tests:
        raise SettingError("the rules have tests beyond single columns: write form 'text'")


def _outputs(fields: Fields) -> None:
    """The answer, and the number of the rule that gives it."""
    xml = fields.xml
    xml.begin("Output")
    told = {"name": fields.unused("rule"), "optype": "categorical", "dataType": "string"}
    xml.leaf("OutputField", "", {**told, "feature": "entityId"})
    xml.end()


class _Predicates:
    """The predicates of rules."""

    def __init__(self, rules: RuleList, fields: Fields) -> None:
        self.rules, self.fields = rules, fields
        table = rules.conditions
        ends = [table.low, table.high]
        if rules.schema.dtype == "float32":
            ends = [
                np.where(
                    np.isfinite(end), double_threshold(np.where(np.isfinite(end), end, 0)), end
                )
                for end in ends
            ]
        self.low, self.high = (end.tolist() for end in ends)
        self.known, self.missing = table.known.tolist(), table.missing.tolist()
        self.column = table.column.tolist()

    def write(self, rule: int) -> None:
        """All conditions of a rule."""
        first, last = self.rules.bounds(rule)
        xml = self.fields.xml
        if first == last:
            xml.leaf("True")
            return
        if last - first > 1:
            xml.begin("CompoundPredicate", {"booleanOperator": "and"})
        for at in range(first, last):
            self._condition(at)
        if last - first > 1:
            xml.end()

    def _condition(self, at: int) -> None:
        column, fields, xml = self.column[at], self.fields, self.fields.xml
        nominal = fields.schema.columns[column].kind == "nominal"
        levels = [
            fields.schema.columns[column].levels[c] for c in self.rules.conditions.codes(at)[0]
        ]
        known = bool(levels) if nominal else self.known[at]
        if self.missing[at]:
            if not known:
                self._missing(column, nominal)
                return
            xml.begin("CompoundPredicate", {"booleanOperator": "or"})
            self._missing(column, nominal)
        if nominal:
            fields.one_of(column, levels)
        elif not known:
            xml.leaf("False")
        else:
            self._interval(column, self.low[at], self.high[at])
        if self.missing[at]:
            xml.end()

    def _missing(self, column: int, nominal: bool) -> None:
        """Whether a value is missing: always, where no category is known."""
        if nominal and not self.fields.schema.columns[column].levels:
            self.fields.xml.leaf("True")
        else:
            self.fields.compared(column, "isMissing")

    def _interval(self, column: int, low: float, high: float) -> None:
        fields, both = self.fields, np.isfinite(low) and np.isfinite(high)
        if both:
            fields.xml.begin("CompoundPredicate", {"booleanOperator": "and"})
        if np.isfinite(low):
            fields.compared(column, "greaterThan", repr(low))
        if np.isfinite(high):
            fields.compared(column, "lessOrEqual", repr(high))
        if both:
            fields.xml.end()
        elif not (np.isfinite(low) or np.isfinite(high)):
            fields.compared(column, "isNotMissing")
