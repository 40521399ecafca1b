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
from treekit.documents.layout import label_codes, numbers, rules_said, shares
from treekit.documents.pmml import Xml, visible
from treekit.errors import SettingError
from treekit.model.fixed_point import double_threshold
from treekit.rules.rule_list import Clause, Linear, RuleList
from treekit.rules.wording import numerals

if TYPE_CHECKING:
    from treekit.documents import Listing

__all__ = [
    "REFUSED",
    "Bound",
    "Entries",
    "bounds",
    "check_sayable",
    "dmn_pieces",
    "feel_names",
    "interval",
    "levels_test",
    "literal",
    "number",
    "outputs_of",
    "rule_answers",
    "string",
    "summed",
    "votes_of",
]


# ---------------------------------------------------------------- dmn

_MODEL = "https://www.omg.org/spec/DMN/20191111/MODEL/"
_RULES_A_PIECE = 1024


def dmn_pieces(listing: Listing) -> Iterator[str]:
    """Return the XML of `listing` in pieces.

    Inputs are named as the columns, or ``x1``, ``x2``, ... where FEEL does not allow a name;
    their labels are the column names.  A missing value is null.

    Raises
    ------
    SettingError
        For rules with fractional instances, sums of columns, or a link function for numbers.
    """
    check_sayable(listing.rules)
    yield from _Document(listing).pieces()


class _Document:
    """One DMN file: its rules, input entries and XML."""

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
            attributes = {"id": f"input_{place}", "name": name, "label": visible(column.name)}
            self.xml.begin("inputData", attributes)
            own = {"id": f"variable_{place}", "name": name, "typeRef": kind}
            self.xml.leaf("variable", "", own)
            self.xml.end()

    def _decision(
        self, name: str, columns: Sequence[int], decisions: Sequence[str], kind: str, told: str
    ) -> None:
        """Open a decision, up to its logic, with the columns and decisions that it requires."""
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
        """Write the table of the rules from `first` to `last`, taking one of `answers` per rule."""
        rules, xml, n = self.rules, self.xml, self.rules.schema.n_features
        inputs = self.entries.asked(first, last)
        variables = self.entries.variables
        decisions = [variables[c] for c in inputs if c >= n]
        if self.refusals:
            decisions.append(REFUSED)
        kind = outputs[0][1] if len(outputs) == 1 else "Any"
        self._decision(name, [c for c in inputs if c < n], decisions, kind, "")
        policy = "UNIQUE" if rules.order == "disjoint" else "FIRST"
        xml.begin("decisionTable", {"id": f"t_{name}", "hitPolicy": policy})
        for column in inputs:
            self._input(column)
        if self.refusals:
            self._clause(REFUSED, "boolean", REFUSED)
        for output, type_of, label in outputs:
            attributes = {"name": output, "typeRef": type_of, "label": visible(label)}
            xml.leaf("output", "", {key: text for key, text in attributes.items() if text})
        said = ("rule", "conditions", "support", "confidence")
        for key in said:
            xml.leaf("annotation", "", {"name": self._say(f"dmn_{key}")})
        place = {column: at for at, column in enumerate(inputs)}
        for begin in range(first, last, _RULES_A_PIECE):
            end = min(begin + _RULES_A_PIECE, last)
            for rule, notes in zip(range(begin, end), self._annotations(begin, end), strict=True):
                self._rule(rule, place, next(answers), notes)
            yield xml.take()
        xml.end()
        xml.end()

    def _input(self, column: int) -> None:
        schema, variable = self.rules.schema, self.entries.variables[column]
        if column >= schema.n_features:
            self._clause(variable, "number", variable)
            return
        described = schema.columns[column]
        kind = "number" if described.kind == "numeric" else "string"
        self._clause(variable, kind, visible(described.name))

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
        """Yield number, conditions in words, support and confidence of some rules."""
        measures = self.listing.measures
        conditions = rules_said(self.listing, first, last)
        support = numerals(measures.weight[first:last])
        confidence = [
            "" if np.isnan(x) else f"{x:.4g}" for x in measures.confidence[first:last, 0].tolist()
        ]
        for number in range(first, last):
            at = number - first
            yield str(number + 1), conditions[at], support[at], confidence[at]


# ---------------------------------------------------------------- dmn outputs

Output = tuple[str, str, str]
"""Name, type and label of an output."""


def outputs_of(rules: RuleList) -> list[Output]:
    """Return the outputs: labels and probabilities of each target, or numbers."""
    schema, made = rules.schema, []
    for place, output in enumerate(schema.outputs, 1):
        own = f"_{place}" if schema.more else ""
        if schema.task == "regression":
            made.append((f"value{own}", "number", output.name))
            continue
        made.append((f"label{own}", _type(output.classes[0]), output.name))
        kind = "margin" if rules.margins else "probability"
        for code, label in enumerate(output.classes, 1):
            made.append((f"{kind}{own}_{code}", "number", f"{kind}: {output.name} = {label}"))
    return made


def _type(label: object) -> str:
    if isinstance(label, bool):
        return "boolean"
    return "string" if isinstance(label, str) else "number"


def rule_answers(rules: RuleList) -> Iterator[list[str]]:
    """Yield, for each rule of one tree, the literals of `outputs_of`."""
    if rules.schema.task == "regression":
        yield from ([number(x) for x in row] for row in numbers(rules).tolist())
        return
    cache: dict[float, str] = {}
    values = numbers(rules) if rules.margins else shares(rules)
    labels = [[literal(v) for v in output.classes] for output in rules.schema.outputs]
    codes, blocks = label_codes(rules), list(itertools.pairwise(rules.schema.blocks))
    for place, row in enumerate(values.tolist()):
        texts = [cache[x] if x in cache else cache.setdefault(x, number(x)) for x in row]
        answer = []
        for own, code, (first, last) in zip(labels, codes, blocks, strict=True):
            answer += [own[int(code[place])], *texts[first:last]]
        yield answer


def votes_of(rules: RuleList) -> Iterator[list[str]]:
    """Yield the fixed-point units of each rule, to be summed over the trees."""
    return ([str(unit) for unit in row] for row in rules.units.tolist())


def summed(rules: RuleList) -> str:
    """Return an expression that combines the trees' decisions into the output, a context.

    Sums of integers are exact; a single division follows.
    """
    schema = rules.schema
    single = schema.n_values == 1
    trees = [f"tree_{tree + 1}" for tree in range(rules.n_trees)]
    votes = [
        "sum([" + ", ".join(tree if single else f"{tree}.v_{k + 1}" for tree in trees) + "])"
        for k in range(schema.n_values)
    ]
    parts = [f"s_{k + 1}: {vote}" for k, vote in enumerate(votes)]
    names = iter(name for name, _, _ in outputs_of(rules))
    for output, (first, last) in zip(
        schema.outputs, itertools.pairwise(schema.blocks), strict=True
    ):
        own = [f"s_{k + 1}" for k in range(first, last)]
        if output.classes:
            parts.append(f"{next(names)}: {_label(rules, output.classes, own)}")
        parts += [f"{next(names)}: {_scaled(rules, one)}" for one in own]
    return "{" + ", ".join(parts) + "}"


def _label(rules: RuleList, classes: tuple[bool | int | float | str, ...], sums: list[str]) -> str:
    labels = ", ".join(map(literal, classes))
    least, those = "max", sums
    if rules.costs is not None:
        least = "min"
        those = [
            " + ".join(f"{cost} * {one}" for cost, one in zip(column, sums, strict=True))
            for column in rules.costs.T.tolist()
        ]
    listed = "[" + ", ".join(those) + "]"
    return f"[{labels}][index of({listed}, {least}({listed}))[1]]"


def _scaled(rules: RuleList, total: str) -> str:
    """Return the expression that scales a sum to the predicted number."""
    if rules.schema.task == "classification" and not rules.margins:
        return f"{total} / {rules.unit_total}"
    above, below = 1, 1 if rules.margins else rules.divisor
    if rules.exponent >= 0:
        above <<= rules.exponent
    else:
        below <<= -rules.exponent
    return total + (f" * {above}" if above > 1 else "") + (f" / {below}" if below > 1 else "")


def check_sayable(rules: RuleList) -> None:
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
    if not np.isfinite(numbers(rules)).all():
        raise SettingError("FEEL has no infinite numbers; write form 'text'")


# ---------------------------------------------------------------- dmn entries

REFUSED = "refused"
"""Name of the decision that is true if a policy refuses the row."""


class Entries:
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
        own = {REFUSED, "answer", *trees, *tests}
        self.variables = [*feel_names(rules.schema.names, own), *tests]
        linear = [
            clause.threshold
            for test in rules.tests
            for clause in test
            if isinstance(clause, Linear)
        ]
        self.bounds = bounds(np.concatenate([table.low, table.high, linear]), rules.schema.dtype)
        self.made: dict[tuple[int, float, float, bool, bool], str] = {}
        self.sets: dict[tuple[int, bool, tuple[int, ...]], str] = {}

    def entry(self, at: int) -> tuple[int, str]:
        """Return the column of condition `at`, and its unary tests."""
        table, schema = self.rules.conditions, self.rules.schema
        number, missing = int(table.column[at]), bool(table.missing[at])
        if number < schema.n_features and schema.columns[number].kind == "nominal":
            fits, _ = table.codes(at)
            wanted = (number, missing, tuple(fits))
            if wanted not in self.sets:
                levels, chosen = schema.columns[number].levels, set(fits)
                others = [level for code, level in enumerate(levels) if code not in chosen]
                own = [levels[code] for code in fits]
                self.sets[wanted] = levels_test(own, others, missing=missing)
            return number, self.sets[wanted]
        low, high, known = float(table.low[at]), float(table.high[at]), bool(table.known[at])
        key = (number, low, high, known, missing)
        if key not in self.made:
            made = self._interval if number < schema.n_features else self._sides
            self.made[key] = made(low, high, known, missing)
        return number, self.made[key]

    def _interval(self, low: float, high: float, known: bool, missing: bool) -> str:
        ends = [self.bounds[end + 0.0] if np.isfinite(end) else None for end in (low, high)]
        return interval(ends[0], ends[1], known=known, missing=missing)

    def _sides(self, low: float, high: float, known: bool, missing: bool) -> str:
        sides = [str(side) for side in (0, 1) if known and low < side <= high]
        return ",".join(["null"] * missing + sides) or "false"

    def test(self, number: int) -> str:
        """Return an expression: 0 where a test holds, 1 where it fails, null if it is unknown."""
        text = "null"
        for clause in reversed(self.rules.tests[number]):
            text = self._clause(clause, number, text)
        return text

    def _clause(self, clause: Clause, number: int, otherwise: str) -> str:
        if isinstance(clause, Linear):
            if clause.weights != (1.0,):
                raise SettingError(
                    f"test {number + 1} of the rules sums columns in double precision, which "
                    "FEEL's decimals cannot reproduce; write form 'text'"
                )
            variable = self.variables[clause.features[0]]
            decimal, closed = self.bounds[clause.threshold + 0.0]
            compared = f"{variable} {'<=' if closed else '<'} {decimal}"
            known = f"if {compared} then {clause.below} else {1 - clause.below}"
            return f"if {variable} = null then {otherwise} else {known}"
        variable = self.variables[clause.feature]
        levels = self.rules.schema.columns[clause.feature].levels
        for side in (1, 0):
            own = [string(v) for v, b in zip(levels, clause.branches, strict=True) if b == side]
            if own:
                member = f"list contains([{','.join(own)}], {variable})"
                otherwise = f"if {member} then {side} else {otherwise}"
        return otherwise

    def refusals(self) -> str:
        """Return the condition under which a policy refuses a row; empty if none does."""
        rules, found = self.rules, []
        for column, variable in zip(rules.schema.columns, self.variables, strict=False):
            absent = f"{variable} = null"
            if rules.missing == "error":
                found.append(absent)
            if column.kind == "nominal" and "error" in (rules.missing, rules.unknown):
                known = f"list contains([{','.join(map(string, column.levels))}], {variable})"
                found.append(f"{variable} != null and not({known})")
        return " or ".join(found)

    def asked(self, first: int, last: int) -> list[int]:
        """Return the columns and tests used by some rules, ascending."""
        start, stop = self.rules.bounds(first)[0], self.rules.bounds(last - 1)[1]
        numbers: list[int] = np.unique(self.rules.conditions.column[start:stop]).tolist()
        return numbers

    def columns_of(self, test: int) -> list[int]:
        """Return the columns used by a test."""
        parts: list[Sequence[int]] = [
            clause.features if isinstance(clause, Linear) else (clause.feature,)
            for clause in self.rules.tests[test]
        ]
        return sorted(set(itertools.chain.from_iterable(parts)))


# ---------------------------------------------------------------- feel
# Names, literals and unary tests in FEEL, the expression language of DMN.
#
# FEEL numbers are decimals of 34 digits (DMN 1.3, section 10.3.4.2: IEEE 754-2008), while
# a model reads a decimal as the nearest double and rounds that to its input type.  Bounds
# are written so that both agree for every FEEL number.

Bound = tuple[str, bool]
"""A decimal, and whether the bound includes a number equal to it."""

_EXACT = Context(prec=2000)  # doubles have up to 767 digits
_FEEL = Context(prec=34, rounding=ROUND_FLOOR)
_NAME = re.compile(r"[A-Za-z_\u4e00-\u9fff][A-Za-z0-9_\u4e00-\u9fff]*")
_WORDS = frozenset(
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


def feel_names(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """Return variable names: plain words stay, any other column becomes ``x1``, ``x2``, ...

    Parameters
    ----------
    names : sequence of str
    taken : collection of str
        Variables already in use.
    """
    plain = [
        bool(_NAME.fullmatch(name)) and name.lower() not in _WORDS and name not in taken
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


def string(text: str) -> str:
    """Return a string literal in printable characters."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_character(c) for c in text) + '"'


def _character(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    # Always six digits: engines disagree on where a four-digit escape ends.
    return char if char.isprintable() else f"\\U{ord(char):06x}"


def number(value: float) -> str:
    """Return a decimal that reads back to the same double; FEEL 1.3 has no exponents."""
    return _plain(Decimal(repr(float(value))))


def literal(label: Label) -> str:
    """Return the literal of a class label."""
    if isinstance(label, bool):
        return "true" if label else "false"
    return string(label) if isinstance(label, str) else _plain(Decimal(repr(label)))


def bounds(thresholds: npt.NDArray[np.float64], dtype: Dtype) -> dict[float, Bound]:
    """Return, for each finite threshold, the equivalent bound for decimals.

    The model rounds x to the nearest double d, ties to even, and tests d <= t' for an
    equivalent double t' (see `double_threshold`).  This holds if x is below the midpoint of t'
    and the next double, or equals it and t' is even.  Where the midpoint has more than 34
    digits, no x lies between it and the decimal below.
    """
    distinct = np.unique(thresholds[np.isfinite(thresholds)]) + 0.0
    doubles = double_threshold(distinct) if dtype == "float32" else distinct
    return {
        t: _bound(double) for t, double in zip(distinct.tolist(), doubles.tolist(), strict=True)
    }


def _bound(double: float) -> Bound:
    top = double == np.finfo(np.float64).max
    following = Decimal(2**1024) if top else Decimal(float(np.nextafter(double, np.inf)))
    middle = _EXACT.divide(_EXACT.add(Decimal(double), following), Decimal(2))
    written = _FEEL.plus(middle)
    even = not np.float64(double).view(np.int64) & 1
    return _plain(written), bool(even or written != middle)


def _plain(value: Decimal) -> str:
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def interval(low: Bound | None, high: Bound | None, *, known: bool, missing: bool) -> str:
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


def levels_test(fits: Sequence[str], others: Sequence[str], *, missing: bool) -> str:
    """Return a unary test for a category in `fits`; if `missing`, for one not in `others`."""
    if not missing:
        return ",".join(map(string, fits)) or "false"
    if not others:
        return "-"
    if len(others) == 1:
        return f"? = null or ? != {string(others[0])}"
    return f"? = null or not(? in ({','.join(map(string, others))}))"
