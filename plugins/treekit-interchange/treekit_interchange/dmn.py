"""Rules as DMN 1.3 decision tables (OMG formal/2021-01-02).

The rules of one tree are one table: hit policy UNIQUE, or FIRST where order counts.  With
several trees each is a table of integers, and a further decision sums them.  Tests, and the
refusal of rows by a policy, are decisions used by the tables.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype, Label
from treekit.documents.layout import (
    compute_shares,
    decode_numbers,
    format_rules,
    predict_rule_labels,
)
from treekit.errors import SettingError
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import expand_exponent
from treekit.rules.language import load_phrases
from treekit.rules.rule_list import Clause, LinearClause, RuleList
from treekit.rules.wording import format_numbers
from treekit_interchange.pmml import XmlWriter, escape_unprintable

if TYPE_CHECKING:
    from treekit.documents import Listing

__all__ = [
    "REFUSAL_NAME",
    "DecimalBound",
    "InputEntries",
    "check_expressible",
    "compute_decimal_bounds",
    "format_forest_output",
    "format_interval",
    "format_levels_test",
    "format_literal",
    "format_number",
    "format_rule_outputs",
    "format_string",
    "format_votes",
    "list_outputs",
    "make_feel_names",
    "render_dmn",
]


# ---------------------------------------------------------------- dmn

_MODEL_NAMESPACE = "https://www.omg.org/spec/DMN/20191111/MODEL/"
_RULES_PER_PIECE = 1024


def render_dmn(listing: Listing) -> Iterator[str]:
    """Return the XML of `listing` in pieces.

    Inputs are named as the columns, or ``x1``, ``x2``, ... where FEEL does not allow a name;
    their labels are the column names.  A missing value is null.

    Raises
    ------
    SettingError
        For one tree of a forest, and for rules with fractional instances, sums of columns, or a
        link function for numbers.
    """
    if listing.tree is not None and listing.rules.n_trees > 1:
        raise SettingError("a DMN table predicts with all trees of the model; leave the tree out")
    check_expressible(listing.rules)
    yield from _DmnDocument(listing).render_pieces()


class _DmnDocument:
    """One DMN file: its rules, input entries and XML."""

    def __init__(self, listing: Listing) -> None:
        self.listing, self.rules = listing, listing.rules
        self.language = load_phrases(listing.language, "treekit_interchange")
        self.entries = InputEntries(listing.rules)
        self.refusals = self.entries.format_refusal()
        self.xml = XmlWriter()

    def render_pieces(self) -> Iterator[str]:
        rules, xml, say = self.rules, self.xml, self._get_phrase
        name = escape_unprintable(self.listing.title or rules.schema.target) or "rules"
        own = {
            "xmlns": _MODEL_NAMESPACE,
            "id": "rules",
            "name": name,
            "namespace": "urn:treekit:rules",
        }
        xml.begin_element("definitions", own)
        xml.write_element("description", say("dmn_head"))
        self._write_inputs()
        if self.refusals:
            columns = range(rules.schema.n_features)
            self._write_expression(
                REFUSAL_NAME, self.refusals, columns, "boolean", say("dmn_refused")
            )
        for test in range(len(rules.tests)):
            variable = self.entries.variables[rules.schema.n_features + test]
            asked = self.entries.list_test_columns(test)
            self._write_expression(variable, self.entries.format_test(test), asked, "number", "")
        if rules.n_trees == 1:
            yield from self._write_table(
                "answer", 0, len(rules), list_outputs(rules), format_rule_outputs(rules)
            )
        else:
            yield from self._write_forest()
        xml.end_element()
        yield xml.take_text() + "\n"

    def _get_phrase(self, key: str) -> str:
        return escape_unprintable(self.language.say(key))

    def _write_inputs(self) -> None:
        columns = zip(self.rules.schema.columns, self.entries.variables, strict=False)
        for place, (column, name) in enumerate(columns, 1):
            kind = "number" if column.kind == "numeric" else "string"
            attributes = {
                "id": f"input_{place}",
                "name": name,
                "label": escape_unprintable(column.name),
            }
            self.xml.begin_element("inputData", attributes)
            own = {"id": f"variable_{place}", "name": name, "typeRef": kind}
            self.xml.write_element("variable", "", own)
            self.xml.end_element()

    def _begin_decision(
        self,
        name: str,
        columns: Sequence[int],
        decisions: Sequence[str],
        kind: str,
        description: str,
    ) -> None:
        """Open a decision, up to its logic, with the columns and decisions that it requires."""
        xml = self.xml
        xml.begin_element("decision", {"id": f"d_{name}", "name": name})
        if description:
            xml.write_element("description", description)
        xml.write_element("variable", "", {"id": f"v_{name}", "name": name, "typeRef": kind})
        required = [("requiredInput", f"#input_{column + 1}") for column in columns]
        required += [("requiredDecision", f"#d_{decision}") for decision in decisions]
        for place, (element, href) in enumerate(required):
            xml.begin_element("informationRequirement", {"id": f"r_{name}_{place}"})
            xml.write_element(element, "", {"href": href})
            xml.end_element()

    def _write_expression(
        self, name: str, text: str, columns: Sequence[int], kind: str, description: str
    ) -> None:
        self._begin_decision(name, columns, [], kind, description)
        self._write_literal(text, kind)

    def _write_literal(self, text: str, kind: str) -> None:
        self.xml.begin_element("literalExpression", {"typeRef": kind})
        self.xml.write_element("text", text)
        self.xml.end_element()
        self.xml.end_element()

    def _write_forest(self) -> Iterator[str]:
        rules, own = self.rules, []
        outputs = [(f"v_{k + 1}", "number", "") for k in range(rules.schema.n_values)]
        votes = format_votes(rules)
        for tree in range(rules.n_trees):
            first, last = np.searchsorted(rules.tree, [tree, tree + 1]).tolist()
            own.append(f"tree_{tree + 1}")
            yield from self._write_table(own[-1], first, last, outputs, votes)
        decisions = [*own, *([REFUSAL_NAME] if self.refusals else [])]
        text = format_forest_output(rules)
        if self.refusals:
            text = f"if {REFUSAL_NAME} then null else {text}"
        self._begin_decision("answer", [], decisions, "Any", self._get_phrase("dmn_sum"))
        self._write_literal(text, "Any")

    def _write_table(
        self,
        name: str,
        first: int,
        last: int,
        outputs: Sequence[tuple[str, str, str]],
        answers: Iterator[list[str]],
    ) -> Iterator[str]:
        """Write the table of rules `first` to `last`; `answers` yields the outputs of each rule."""
        rules, xml, n = self.rules, self.xml, self.rules.schema.n_features
        inputs = self.entries.list_inputs(first, last)
        variables = self.entries.variables
        decisions = [variables[c] for c in inputs if c >= n]
        if self.refusals:
            decisions.append(REFUSAL_NAME)
        kind = outputs[0][1] if len(outputs) == 1 else "Any"
        self._begin_decision(name, [c for c in inputs if c < n], decisions, kind, "")
        policy = "UNIQUE" if rules.order == "disjoint" else "FIRST"
        xml.begin_element("decisionTable", {"id": f"t_{name}", "hitPolicy": policy})
        for column in inputs:
            self._write_input(column)
        if self.refusals:
            self._write_input_clause(REFUSAL_NAME, "boolean", REFUSAL_NAME)
        for output, type_of, label in outputs:
            attributes = {"name": output, "typeRef": type_of, "label": escape_unprintable(label)}
            xml.write_element("output", "", {key: text for key, text in attributes.items() if text})
        said = ("rule", "conditions", "support", "confidence")
        for key in said:
            xml.write_element("annotation", "", {"name": self._get_phrase(f"dmn_{key}")})
        place = {column: at for at, column in enumerate(inputs)}
        for begin in range(first, last, _RULES_PER_PIECE):
            end = min(begin + _RULES_PER_PIECE, last)
            for rule, notes in zip(
                range(begin, end), self._list_annotations(begin, end), strict=True
            ):
                self._write_rule(rule, place, next(answers), notes)
            yield xml.take_text()
        xml.end_element()
        xml.end_element()

    def _write_input(self, column: int) -> None:
        schema, variable = self.rules.schema, self.entries.variables[column]
        if column >= schema.n_features:
            self._write_input_clause(variable, "number", variable)
            return
        described = schema.columns[column]
        kind = "number" if described.kind == "numeric" else "string"
        self._write_input_clause(variable, kind, escape_unprintable(described.name))

    def _write_input_clause(self, variable: str, kind: str, label: str) -> None:
        self.xml.begin_element("input", {"label": label})
        self.xml.begin_element("inputExpression", {"typeRef": kind})
        self.xml.write_element("text", variable)
        self.xml.end_element()
        self.xml.end_element()

    def _write_rule(
        self, rule: int, place: dict[int, int], answer: list[str], annotation_texts: Sequence[str]
    ) -> None:
        entries = ["-"] * len(place) + ["false"] * bool(self.refusals)
        for at in range(*self.rules.bounds(rule)):
            column, text = self.entries.format_entry(at)
            entries[place[column]] = text
        xml = self.xml
        xml.begin_element("rule")
        for element, texts in (
            ("inputEntry", entries),
            ("outputEntry", answer),
            ("annotationEntry", annotation_texts),
        ):
            for text in texts:
                xml.begin_element(element)
                xml.write_element("text", text)
                xml.end_element()
        xml.end_element()

    def _list_annotations(self, first: int, last: int) -> Iterator[tuple[str, str, str, str]]:
        """Yield number, conditions in words, support and confidence of some rules."""
        measures = self.listing.measures
        conditions = format_rules(self.listing, first, last)
        support = format_numbers(measures.weight[first:last])
        confidence = [
            "" if np.isnan(x) else f"{x:.4g}" for x in measures.confidence[first:last, 0].tolist()
        ]
        for number in range(first, last):
            at = number - first
            yield str(number + 1), conditions[at], support[at], confidence[at]


# ---------------------------------------------------------------- dmn outputs

OutputSpec = tuple[str, str, str]
"""Name, type and label of an output."""


def list_outputs(rules: RuleList) -> list[OutputSpec]:
    """Return the outputs: labels and probabilities of each target, or numbers."""
    schema, made = rules.schema, []
    for place, output in enumerate(schema.outputs, 1):
        own = f"_{place}" if schema.more else ""
        if schema.task == "regression":
            made.append((f"value{own}", "number", output.name))
            continue
        made.append((f"label{own}", _infer_feel_type(output.classes[0]), output.name))
        kind = "margin" if rules.margins else "probability"
        for code, label in enumerate(output.classes, 1):
            made.append((f"{kind}{own}_{code}", "number", f"{kind}: {output.name} = {label}"))
    return made


def _infer_feel_type(label: object) -> str:
    if isinstance(label, bool):
        return "boolean"
    return "string" if isinstance(label, str) else "number"


def format_rule_outputs(rules: RuleList) -> Iterator[list[str]]:
    """Yield, for each rule of one tree, the literals of `list_outputs`."""
    if rules.schema.task == "regression":
        yield from ([format_number(x) for x in row] for row in decode_numbers(rules).tolist())
        return
    cache: dict[float, str] = {}
    values = decode_numbers(rules) if rules.margins else compute_shares(rules)
    labels = [[format_literal(v) for v in output.classes] for output in rules.schema.outputs]
    codes, blocks = predict_rule_labels(rules), list(itertools.pairwise(rules.schema.blocks))
    for place, row in enumerate(values.tolist()):
        texts = [cache[x] if x in cache else cache.setdefault(x, format_number(x)) for x in row]
        answer = []
        for own, code, (first, last) in zip(labels, codes, blocks, strict=True):
            answer += [own[int(code[place])], *texts[first:last]]
        yield answer


def format_votes(rules: RuleList) -> Iterator[list[str]]:
    """Yield the fixed-point units of each rule, to be summed over the trees."""
    return ([str(unit) for unit in row] for row in rules.units.tolist())


def format_forest_output(rules: RuleList) -> str:
    """Return a FEEL context: the expression that computes the outputs from the trees' decisions.

    Sums of integers are exact; a single division follows.
    """
    schema = rules.schema
    single = schema.n_values == 1
    trees = [f"tree_{tree + 1}" for tree in range(rules.n_trees)]
    votes = [
        "sum([" + ", ".join(tree if single else f"{tree}.v_{k + 1}" for tree in trees) + "])"
        for k in range(schema.n_values)
    ]
    exponents = expand_exponent(rules)
    parts = [f"s_{k + 1}: {vote}" for k, vote in enumerate(votes)]
    names = iter(name for name, _, _ in list_outputs(rules))
    for output, (first, last) in zip(
        schema.outputs, itertools.pairwise(schema.blocks), strict=True
    ):
        own = [f"s_{k + 1}" for k in range(first, last)]
        if output.classes:
            parts.append(f"{next(names)}: {_format_label_choice(rules, output.classes, own)}")
        parts += [
            f"{next(names)}: {_format_scaled_sum(rules, one, exponent)}"
            for one, exponent in zip(own, exponents[first:last], strict=True)
        ]
    return "{" + ", ".join(parts) + "}"


def _format_label_choice(
    rules: RuleList, classes: tuple[bool | int | float | str, ...], sums: list[str]
) -> str:
    labels = ", ".join(map(format_literal, classes))
    least, those = "max", sums
    if rules.costs is not None:
        least = "min"
        those = [
            " + ".join(f"{cost} * {one}" for cost, one in zip(column, sums, strict=True))
            for column in rules.costs.T.tolist()
        ]
    listed = "[" + ", ".join(those) + "]"
    return f"[{labels}][index of({listed}, {least}({listed}))[1]]"


def _format_scaled_sum(rules: RuleList, total: str, exponent: int) -> str:
    """Return the expression that scales a sum to the predicted number."""
    if rules.schema.task == "classification" and not rules.margins:
        return f"{total} / {rules.unit_total}"
    above, below = 1, 1 if rules.margins else rules.divisor
    if exponent >= 0:
        above <<= exponent
    else:
        below <<= -exponent
    return total + (f" * {above}" if above > 1 else "") + (f" / {below}" if below > 1 else "")


def check_expressible(rules: RuleList) -> None:
    """Check that FEEL can represent the rules exactly.

    Raises
    ------
    SettingError
    """
    if rules.mass > 1:
        raise SettingError(
            "DMN decision tables do not support fractional instances (missing policy "
            "'fractional'); write form 'text'"
        )
    if rules.link != "identity" and rules.schema.task == "regression":
        raise SettingError(
            f"FEEL cannot evaluate the link {rules.link!r} exactly; write form 'text'"
        )
    if not np.isfinite(decode_numbers(rules)).all():
        raise SettingError("FEEL has no infinite numbers; write form 'text'")


# ---------------------------------------------------------------- dmn entries

REFUSAL_NAME = "refused"
"""Name of the decision that is true if a policy refuses the row."""


class InputEntries:
    """Input entries of the rules in FEEL; each distinct one is made once.

    Attributes
    ----------
    variables : list of str
        Names of the columns, followed by those of the tests.
    """

    def __init__(self, rules: RuleList) -> None:
        self.rules = rules
        n_tests, table = len(rules.tests), rules.conditions
        trees = [f"tree_{tree + 1}" for tree in range(rules.n_trees)]
        tests = [f"test_{test + 1}" for test in range(n_tests)]
        own = {REFUSAL_NAME, "answer", *trees, *tests}
        self.variables = [*make_feel_names(rules.schema.names, own), *tests]
        linear = [
            clause.threshold
            for test in rules.tests
            for clause in test
            if isinstance(clause, LinearClause)
        ]
        self.decimal_bounds = compute_decimal_bounds(
            np.concatenate([table.low, table.high, linear]), rules.schema.dtype
        )
        self.entry_texts: dict[tuple[int, float, float, bool, bool], str] = {}
        self.level_texts: dict[tuple[int, bool, tuple[int, ...]], str] = {}

    def format_entry(self, at: int) -> tuple[int, str]:
        """Return the column of condition `at`, and its unary tests."""
        table, schema = self.rules.conditions, self.rules.schema
        number, missing = int(table.column[at]), bool(table.missing[at])
        if number < schema.n_features and schema.columns[number].kind == "nominal":
            fits, _ = table.list_codes(at)
            wanted = (number, missing, tuple(fits))
            if wanted not in self.level_texts:
                levels, chosen = schema.columns[number].levels, set(fits)
                others = [level for code, level in enumerate(levels) if code not in chosen]
                own = [levels[code] for code in fits]
                self.level_texts[wanted] = format_levels_test(own, others, missing=missing)
            return number, self.level_texts[wanted]
        low, high, known = float(table.low[at]), float(table.high[at]), bool(table.known[at])
        key = (number, low, high, known, missing)
        if key not in self.entry_texts:
            made = self._format_interval if number < schema.n_features else self._format_sides
            self.entry_texts[key] = made(low, high, known, missing)
        return number, self.entry_texts[key]

    def _format_interval(self, low: float, high: float, known: bool, missing: bool) -> str:
        ends = [self.decimal_bounds[end + 0.0] if np.isfinite(end) else None for end in (low, high)]
        return format_interval(ends[0], ends[1], known=known, missing=missing)

    def _format_sides(self, low: float, high: float, known: bool, missing: bool) -> str:
        sides = [str(side) for side in (0, 1) if known and low < side <= high]
        return ",".join(["null"] * missing + sides) or "false"

    def format_test(self, number: int) -> str:
        """Return an expression: 0 where a test holds, 1 where it fails, null if it is unknown."""
        text = "null"
        for clause in reversed(self.rules.tests[number]):
            text = self._format_clause(clause, number, text)
        return text

    def _format_clause(self, clause: Clause, number: int, otherwise: str) -> str:
        if isinstance(clause, LinearClause):
            if clause.weights != (1.0,):
                raise SettingError(
                    f"test {number + 1} of the rules sums columns in double precision, which "
                    "FEEL's decimals cannot reproduce; write form 'text'"
                )
            variable = self.variables[clause.features[0]]
            decimal, closed = self.decimal_bounds[clause.threshold + 0.0]
            compared = f"{variable} {'<=' if closed else '<'} {decimal}"
            known = f"if {compared} then {clause.below} else {1 - clause.below}"
            return f"if {variable} = null then {otherwise} else {known}"
        variable = self.variables[clause.feature]
        levels = self.rules.schema.columns[clause.feature].levels
        for side in (1, 0):
            own = [
                format_string(v) for v, b in zip(levels, clause.branches, strict=True) if b == side
            ]
            if own:
                member = f"list contains([{','.join(own)}], {variable})"
                otherwise = f"if {member} then {side} else {otherwise}"
        return otherwise

    def format_refusal(self) -> str:
        """Return the condition under which a policy refuses a row; empty if none does."""
        rules, found = self.rules, []
        for column, variable in zip(rules.schema.columns, self.variables, strict=False):
            absent = f"{variable} = null"
            if rules.missing == "error":
                found.append(absent)
            if column.kind == "nominal" and "error" in (rules.missing, rules.unknown):
                known = (
                    f"list contains([{','.join(map(format_string, column.levels))}], {variable})"
                )
                found.append(f"{variable} != null and not({known})")
        return " or ".join(found)

    def list_inputs(self, first: int, last: int) -> list[int]:
        """Return the columns and tests used by some rules, ascending."""
        start, stop = self.rules.bounds(first)[0], self.rules.bounds(last - 1)[1]
        numbers: list[int] = np.unique(self.rules.conditions.column[start:stop]).tolist()
        return numbers

    def list_test_columns(self, test: int) -> list[int]:
        """Return the columns used by a test."""
        parts: list[Sequence[int]] = [
            clause.features if isinstance(clause, LinearClause) else (clause.feature,)
            for clause in self.rules.tests[test]
        ]
        return sorted(set(itertools.chain.from_iterable(parts)))


# ---------------------------------------------------------------- feel
# Names, literals and unary tests in FEEL, the expression language of DMN.
#
# FEEL numbers are decimals of 34 digits (DMN 1.3, section 10.3.4.2: IEEE 754-2008), while
# a model reads a decimal as the nearest double and rounds that to its input type.  Bounds
# are written so that both agree for every FEEL number.

DecimalBound = tuple[str, bool]
"""A decimal, and whether the bound includes a number equal to it."""

_EXACT_CONTEXT = Context(prec=2000)  # doubles have up to 767 digits
_FEEL_CONTEXT = Context(prec=34, rounding=ROUND_FLOOR)
_FEEL_NAME = re.compile(r"[A-Za-z_\u4e00-\u9fff][A-Za-z0-9_\u4e00-\u9fff]*")
_RESERVED_WORDS = frozenset(
    (
        *("abs", "after", "all", "and", "any", "append", "before", "between", "boolean"),
        *("ceiling", "coincides", "concatenate", "contains", "context", "count", "date", "day"),
        *("days", "decimal", "distinct", "duration", "during", "else", "ends", "even", "every"),
        *("exp", "external", "false", "finished", "finishes", "flatten", "floor", "for"),
        *("function", "get", "hours", "if", "in", "includes", "index", "insert", "instance"),
        *("is", "item", "java", "length", "list", "log", "lower", "matches", "max", "mean"),
        *("median", "meets", "met", "min", "minutes", "mode", "modulo", "month", "months", "not"),
        *("null", "number", "odd", "of", "or", "overlaps", "partial", "pmml", "product"),
        *("range", "remove", "replace", "return", "reverse", "satisfies", "seconds", "some"),
        *("sort", "split", "sqrt", "started", "starts", "stddev", "string", "sublist"),
        *("substring", "sum", "then", "time", "timezone", "today", "now", "true", "union"),
        *("upper", "value", "week", "weekday", "with", "year", "years"),
    )
)


def make_feel_names(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """Return variable names: plain words stay, any other column becomes ``x1``, ``x2``, ...

    Parameters
    ----------
    names : sequence of str
    taken : collection of str
        Variables already in use.
    """
    plain = [
        bool(_FEEL_NAME.fullmatch(name))
        and name.lower() not in _RESERVED_WORDS
        and name not in taken
        for name in names
    ]
    used = {name for name, ok in zip(names, plain, strict=True) if ok} | set(taken)
    made = []
    for place, (name, ok) in enumerate(zip(names, plain, strict=True), 1):
        variable = name if ok else f"x{place}"
        while not ok and variable in used:
            variable += "_"
        used.add(variable)
        made.append(variable)
    return made


def format_string(text: str) -> str:
    """Return a string literal in printable characters."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escape_character(c) for c in text) + '"'


def _escape_character(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    # Always six digits: engines disagree on where a four-digit escape ends.
    return char if char.isprintable() else f"\\U{ord(char):06x}"


def format_number(value: float) -> str:
    """Return a decimal that reads back to the same double; FEEL 1.3 has no exponents."""
    return _format_decimal(Decimal(repr(float(value))))


def format_literal(label: Label) -> str:
    """Return the literal of a class label."""
    if isinstance(label, bool):
        return "true" if label else "false"
    return format_string(label) if isinstance(label, str) else _format_decimal(Decimal(repr(label)))


def compute_decimal_bounds(
    thresholds: npt.NDArray[np.float64], dtype: Dtype
) -> dict[float, DecimalBound]:
    """Return, for each finite threshold, the equivalent bound for decimals.

    The model rounds x to the nearest double d, ties to even, and tests d <= t' for an
    equivalent double t' (see `to_double_threshold`).  This holds if x is below the midpoint of t'
    and the next double, or equals it and t' is even.  Where the midpoint has more than 34
    digits, no x lies between it and the decimal below.
    """
    distinct = np.unique(thresholds[np.isfinite(thresholds)]) + 0.0
    doubles = to_double_threshold(distinct) if dtype == "float32" else distinct
    return {
        t: _compute_decimal_bound(double)
        for t, double in zip(distinct.tolist(), doubles.tolist(), strict=True)
    }


def _compute_decimal_bound(double: float) -> DecimalBound:
    top = double == np.finfo(np.float64).max
    following = Decimal(2**1024) if top else Decimal(float(np.nextafter(double, np.inf)))
    middle = _EXACT_CONTEXT.divide(_EXACT_CONTEXT.add(Decimal(double), following), Decimal(2))
    written = _FEEL_CONTEXT.plus(middle)
    even = not np.float64(double).view(np.int64) & 1
    return _format_decimal(written), bool(even or written != middle)


def _format_decimal(value: Decimal) -> str:
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def format_interval(
    low: DecimalBound | None, high: DecimalBound | None, *, known: bool, missing: bool
) -> str:
    """Return a unary test for a number above `low` and not above `high`, or missing."""
    if not known:
        return "null" if missing else "false"
    if low and high:
        text = f"{'(' if low[1] else '['}{low[0]}..{high[0]}{']' if high[1] else ')'}"
    elif low:
        text = f"{'>' if low[1] else '>='} {low[0]}"
    elif high:
        text = f"{'<=' if high[1] else '<'} {high[0]}"
    else:
        return "-" if missing else "? != null"
    return f"null, {text}" if missing else text


def format_levels_test(fits: Sequence[str], others: Sequence[str], *, missing: bool) -> str:
    """Return a unary test for a category in `fits`; if `missing`, for one not in `others`."""
    if not missing:
        return ",".join(map(format_string, fits)) or "false"
    if not others:
        return "-"
    if len(others) == 1:
        return f"? = null or ? != {format_string(others[0])}"
    return f"? = null or not(? in ({','.join(map(format_string, others))}))"
