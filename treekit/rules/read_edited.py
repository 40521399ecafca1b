"""Parser for rule text that a person has edited.

`treekit.rules.read_text` accepts a text only as treekit writes it.  Here the header must
still be one of treekit's, and conditions and predictions must use its phrases.  However,
numbers of rules and nodes are ignored, rules may be added, moved and deleted, supports and
shares may be left out, and blank lines and lines that begin with ``#`` are allowed anywhere.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.table import suggest_names
from treekit.errors import DataError, ModelError, ModelFileError
from treekit.model.fixed_point import fit_regression_grid, fit_sum_grid
from treekit.model.model import predict_labels
from treekit.rules import language as languages
from treekit.rules.language import Language
from treekit.rules.read_text import (
    AnswerReader,
    ConditionReader,
    HeaderFacts,
    LineReader,
    ParsedCondition,
    detect_language,
    make_condition_table,
    read_header,
)
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import INTEGER_PATTERN, OPENED_PATTERN, PhrasePatterns, parse_number
from treekit.rules.write_text import format_header

# ---------------------------------------------------------------- edited rules

Line = tuple[int, str]
"""Number, from 1, and text."""


class _RuleBlock(NamedTuple):
    """The lines of one rule."""

    place: Line
    body: list[Line]


class _EditedRule(NamedTuple):
    tree: int
    conditions: list[ParsedCondition]
    support: float
    values: list[float]


def read_edited(text: str, language: str | Language | None = None) -> RuleList:
    """Parse an edited text as an ordered list.

    Conditions of one rule on one column are intersected; a rule without shares gives all votes
    to its label.  Numbers that are not multiples of the step get a finer or a coarser
    fixed-point unit, as those of a new model would.

    Parameters
    ----------
    text : str
    language : str or Language, optional
        As for `treekit.rules.parse_rules`.

    Raises
    ------
    ModelFileError
        For a line that cannot be parsed; names it.
    SettingError
        If the language is unknown.
    """
    rows = re.split(r"\r?\n", text.removeprefix("\ufeff"))
    lines = [(n, row.rstrip()) for n, row in enumerate(rows, 1) if row.lstrip()[:1] != "#"]
    first = next((row for _, row in lines if row), "")
    words = detect_language(first) if language is None else languages.load_language(language)
    reader = _EditedTextReader(lines, words)
    try:
        return reader.read_rules()
    except (ValueError, KeyError, IndexError, OverflowError, DataError, ModelError) as error:
        raise ModelFileError(f"line {reader.at} of the edited rules: {error}") from error


class _EditedTextReader:
    """Parser of the lines of an edited text; `at` is the number of the current line."""

    def __init__(self, lines: list[Line], words: Language) -> None:
        self.words, self.at = words, 1
        start = words.phrases["rule_place"].partition("{")[0].strip()
        self.bare = re.compile(rf"{re.escape(start)}\s*[0-9]*" if start else r"(?!)")
        numbers = dict.fromkeys(("rule", "rules", "tree", "trees", "node"), INTEGER_PATTERN)
        self.place = PhrasePatterns(words, ("rule_place_tree", "rule_place"), numbers)
        places = [i for i, (_, row) in enumerate(lines) if self._is_rule_start(row)]
        if not places:
            raise ModelFileError(
                "the edited text contains no rule; begin each rule with a line such as "
                f"{words.say('rule_place', rule='1', rules='1', node='0')!r}"
            )
        self.head = lines[: places[0]]
        ends = [*places[1:], len(lines)]
        self.blocks = [
            _RuleBlock(lines[a], [line for line in lines[a + 1 : b] if line[1].strip()])
            for a, b in zip(places, ends, strict=True)
        ]
        self.conditions: ConditionReader
        self.answers: EditedAnswerReader
        self.starts = [
            [part.strip() for part in words.around(key, "condition")]
            for key in ("rule_if", "rule_and")
        ]
        self.without = [words.phrases[key] for key in ("rule_always", "rule_otherwise")]
        self.then = words.phrases["rule_then"].partition("{answer}")[0].strip()

    def read_rules(self) -> RuleList:
        """Return the list of all blocks."""
        facts = self._parse_header()
        self.conditions = ConditionReader(
            facts.schema, facts.tests, self.words, divides=facts.mass > 1
        )
        self.answers = EditedAnswerReader(facts, self.words)
        rules = [self._parse_rule(block, facts) for block in self.blocks]
        rules.sort(key=lambda rule: rule.tree)  # stable: their order in a tree stays
        trees = np.array([rule.tree for rule in rules], dtype=np.int32)
        if len(absent := np.setdiff1d(np.arange(facts.n_trees), trees)):
            raise ValueError(
                f"tree {absent[0] + 1} of {facts.n_trees} has no rules left; add a rule such as "
                f"{self.without[0]!r}"
            )
        fields = [one for rule in rules for one in rule.conditions]
        values = np.array([rule.values for rule in rules], dtype=np.float64)
        units, exponent = to_fixed_point(values, trees, facts)
        found = RuleList(
            schema=facts.schema,
            missing=facts.missing,
            unknown=facts.unknown,
            voting=facts.voting,
            costs=facts.costs,
            n_trees=facts.n_trees,
            exponent=exponent,
            tests=facts.tests,
            tree=trees,
            leaf=np.concatenate([np.arange(n, dtype=np.int32) for n in np.bincount(trees)]),
            support=np.array([rule.support for rule in rules]),
            as_parent=np.zeros(len(rules), dtype=np.bool_),
            units=units,
            end=np.cumsum([len(rule.conditions) for rule in rules], dtype=np.int64),
            conditions=make_condition_table(fields),
            combine=facts.combine,
            link=facts.link,
            order="first",
            decisions=facts.decisions,
        )
        self._check_facts(found, facts)
        return found

    def _check_facts(self, found: RuleList, facts: HeaderFacts) -> None:
        """Check that the header states only facts that treekit would write."""
        stated = replace(found, order=facts.order, exponent=facts.exponent, rounding=facts.rounding)
        count = self.words.facts["rules"]
        lines = [row for row in format_header(stated, self.words) if _is_stated_fact(row, count)]
        theirs = [line for line in self.head if _is_stated_fact(line[1], count)]
        for (self.at, row), line in zip(theirs, lines, strict=False):
            if row != line.rstrip():
                raise ValueError(f"{row!r} should be {line!r}; edit the rules, not the header")

    def _parse_header(self) -> HeaderFacts:
        """Parse the header, with the actual number of rules."""
        first, *others = [line for line in self.head if line[1]] or [(1, "")]
        count = self.words.facts["rules"]
        if others and others[-1][1].startswith(count):
            others.pop()
        rows = [first[1], "", *(row for _, row in others), f"{count}{len(self.blocks)}"]
        places = [first[0], first[0], *(n for n, _ in others), self.blocks[0].place[0]]
        lines = LineReader("\n".join(rows), self.words)
        # `read_header` refuses more rules than lines: placeholders for the lines of the rules.
        lines.lines.extend([""] * len(self.blocks))
        try:
            return read_header(lines)
        finally:
            self.at = places[min(lines.at, len(places)) - 1]

    def _is_rule_start(self, row: str) -> bool:
        return self.bare.fullmatch(row) is not None or self.place.match_phrase(row) is not None

    def _parse_rule(self, block: _RuleBlock, facts: HeaderFacts) -> _EditedRule:
        self.at, place = block.place
        found = self.place.match_phrase(place)
        tree = 0
        if facts.n_trees > 1:
            if found is None or "tree" not in found[1]:
                raise ValueError(
                    f"the rule names no tree; the list has {facts.n_trees} trees, so name one"
                )
            tree = int(found[1]["tree"]) - 1
            if not 0 <= tree < facts.n_trees:
                raise ValueError(f"unknown tree {tree + 1}; trees are 1 to {facts.n_trees}")
        body = iter(block.body)
        conditions: list[ParsedCondition] = []
        for self.at, row in body:
            parsed = self._parse_condition_line(row.strip())
            if parsed is None:
                answer_lines = [(self.at, row), *body]
                break
            conditions.extend(parsed)
        else:
            raise ValueError(f"the rule ends without a line '{self.then} ...'")
        support, units = self._parse_answer(answer_lines)
        if facts.mass == 1:  # fractional instances may need several conditions on a column
            conditions = _intersect_conditions(conditions)
        return _EditedRule(tree, conditions, support, units)

    def _parse_condition_line(self, row: str) -> list[ParsedCondition] | None:
        """Parse the conditions of a line; return None for a line with a prediction."""
        if row in self.without:
            return []
        for start, end in self.starts:
            if row.startswith(f"{start} ") and row.endswith(end):
                text = row[len(start) : len(row) - len(end)].strip()
                return [self._parse_condition(text)]
        if row.startswith(f"{self.then} "):
            return None
        starts = ", ".join(repr(start) for start, _ in self.starts)
        raise ValueError(
            f"{row!r} must begin with one of {starts}, {self.then!r}, or be one of {self.without}"
        )

    def _parse_condition(self, text: str) -> ParsedCondition:
        try:
            return self.conditions.parse_condition(text)
        except KeyError as error:
            schema = self.conditions.schema
            names = dict.fromkeys(n for c in schema.columns for n in (c.name, *c.levels))
            name = str(error.args[0])
            raise ValueError(
                f"{text!r} names {name!r}, which is neither a column nor a category; "
                f"{suggest_names(name, list(names))}"
            ) from error

    def _parse_answer(self, lines: list[Line]) -> tuple[float, list[float]]:
        """Return support, and votes or numbers; `lines` begin with the 'then' line."""
        outputs = len(self.answers.around)
        for self.at, row in lines[outputs:]:
            raise ValueError(f"unexpected line {row.strip()!r} after the prediction of a rule")
        self.at = lines[0][0]
        return self.answers.parse_answers([row for _, row in lines])


def _is_stated_fact(row: str, count: str) -> bool:
    """Return whether a header line states a fact other than the number of rules."""
    return bool(row) and not row.startswith((" ", count.rstrip()))


def _intersect_conditions(conditions: list[ParsedCondition]) -> list[ParsedCondition]:
    """Intersect the conditions on each column."""
    found: dict[int, ParsedCondition] = {}
    for one in conditions:
        before = found.get(one.column)
        if before is None or before == one:
            found[one.column] = one
            continue
        both = _intersect_pair(before, one)
        if not (both.known or both.missing):
            raise ValueError("no value satisfies all conditions on one column; delete the rule")
        found[one.column] = both
    return list(found.values())


def _intersect_pair(a: ParsedCondition, b: ParsedCondition) -> ParsedCondition:
    low, high = max(a.low, b.low), min(a.high, b.high)
    fits = tuple(code for code in a.fits if code in b.fits)
    nominal = bool(a.fits or b.fits)
    known = a.known and b.known and (bool(fits) if nominal else low < high)
    missing = a.missing and b.missing
    return ParsedCondition(
        a.column,
        low if known else -np.inf,
        high if known else np.inf,
        known,
        missing,
        a.part if missing else (0, 0),
        fits if known else (),
    )


# ---------------------------------------------------------------- edited predictions

_SHARE_PRECISION = 1_000_000
"""Shares written by hand may add to 1 with an error of one part in this number."""
_PART_SEPARATOR = re.compile(rf"{OPENED_PATTERN}|( {{2,}}|\t+)")


class EditedAnswerReader(AnswerReader):
    """Parser of predictions whose support and shares may be left out."""

    def __init__(self, facts: HeaderFacts, words: Language) -> None:
        super().__init__(facts, words)
        self.whole = facts.units_each if self.shared else 0
        self.begin = words.phrases["rule_then"].partition("{answer}")[0].strip()

    def parse_answers(self, texts: list[str]) -> tuple[float, list[float]]:
        """Return support, and votes or numbers, for all targets.

        Parameters
        ----------
        texts : list of str
            One line per target: as treekit writes it, or the prediction, followed in any order
            by the support and the shares, each after two blanks or more; both are optional.
        """
        outputs = self.facts.schema.outputs
        if len(texts) != len(outputs):
            raise ValueError(f"the rule predicts {len(texts)} of {len(outputs)} targets")
        support, values = 0.0, []
        for k, text in enumerate(texts):
            found = self._split_line(k, text)
            reached = self.support.match_phrase(found["support"]) if "support" in found else None
            if reached is not None:
                support = parse_number(reached[1]["support"])
            values += self._parse_values(k, found["answer"], found.get("shares", ""))
        return support, values

    def _split_line(self, k: int, text: str) -> dict[str, str]:
        """Split a line into its parts."""
        pattern = self.also if k else self.then
        exact = pattern.match_phrase(text.removeprefix("  "))
        if exact is not None:
            return exact[1]
        text = text.strip().removeprefix("" if k else self.begin).strip()
        answer, *rest = _split_parts(text)
        reached = [part for part in rest if self.support.match_phrase(part) is not None]
        shares = [part for part in rest if part not in reached]
        if len(reached) > 1 or len(shares) > 1:
            raise ValueError(f"{text!r} is not a prediction, a support and shares")
        found = {"answer": answer, "shares": "".join(shares)}
        return found | ({"support": reached[0]} if reached else {})

    def _parse_values(self, k: int, answer: str, shares: str) -> list[float]:
        if self.facts.margins:
            return [float(value) for value in self._parse_margins(answer)]
        if not self.shared:
            return [float(value) for value in self._parse_output(k, {"answer": answer})]
        if not shares:
            start, end = self.around[k]
            label = answer[len(start) : len(answer) - len(end)]
            votes = [0] * len(self.classes[k])
            votes[self._find_class(k, label)] = self.whole
            return [float(vote) for vote in votes]
        try:
            votes = self._parse_output(k, {"answer": answer, "shares": shares})
        except ValueError as error:
            raise ValueError(f"{error}; change the shares as well, or delete them") from error
        return [float(vote) for vote in votes]

    def _find_class(self, k: int, label: str) -> int:
        try:
            return self._find_class_code(k, label)
        except KeyError:
            known = ", ".join(str(one) for _, one in self.classes[k])
            raise ValueError(f"unknown class {label!r}; known: {known}") from None

    def _check_votes(self, votes: list[int], said: int) -> list[int]:
        """Return votes that add up to the total, correcting rounding of the decimals.

        One class gets or loses the difference: the one with most votes for which the rule still
        predicts `said`.
        """
        missed = self.whole - sum(votes)
        if not missed:
            return votes
        if abs(missed) <= max(len(votes), self.whole // _SHARE_PRECISION):
            for at in sorted(range(len(votes)), key=lambda at: -votes[at]):
                even = [*votes[:at], votes[at] + missed, *votes[at + 1 :]]
                if min(even) >= 0 and predict_labels(np.array([even]), self.facts.costs)[0] == said:
                    return even
        raise ValueError(f"the shares add to {sum(votes) / self.whole:.6g}; they must add to 1")

    def _parse_steps(self, numeral: str) -> float:  # type: ignore[override]  # `to_fixed_point` converts later
        return parse_number(numeral)


def _split_parts(text: str) -> list[str]:
    """Split a text at two blanks or more outside of quotes."""
    parts, at = [], 0
    for match in _PART_SEPARATOR.finditer(text):
        if match[1]:
            parts.append(text[at : match.start()])
            at = match.end()
    return [*parts, text[at:]]


def to_fixed_point(
    values: npt.NDArray[np.float64], trees: npt.NDArray[np.int32], facts: HeaderFacts | RuleList
) -> tuple[npt.NDArray[np.int64], int]:
    """Return units and exponent: votes unchanged, numbers in the stated units if these are exact.

    Otherwise the new unit is the finest that can represent the largest number, as for a new
    model: each number is exact, or rounded by at most half a step.

    Parameters
    ----------
    values : (rules, values) float64
    trees : (rules,) int32
        Ascending.
    facts : HeaderFacts or RuleList
        States the unit, and how trees are combined.

    Returns
    -------
    units : (rules, values) int64
    exponent : int
    """
    if facts.schema.task == "classification" and not facts.margins:
        return values.astype(np.int64), facts.exponent
    first = np.flatnonzero(np.diff(trees, prepend=-1))
    largest = np.maximum.reduceat(np.abs(values), first, axis=0)
    if facts.combine == "sum":
        grid = fit_sum_grid(largest)
    else:
        dtype = facts.schema.dtype
        grid = fit_regression_grid(float(largest.max()), facts.n_trees, dtype, facts.mass)
    units = np.ldexp(values, -facts.exponent)
    # Zeros are exact in every unit: the stated one is kept.
    fits = facts.exponent >= grid.exponent or not values.any()
    if fits and bool(np.all(units == np.floor(units))):
        return units.astype(np.int64), facts.exponent
    return grid.to_grid(values), grid.exponent
