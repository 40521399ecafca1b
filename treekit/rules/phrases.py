"""Conditions and tests in words; `treekit.rules.read_phrases` reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Schema
from treekit.model.fixed_point import MASS, floor_to
from treekit.rules.clauses import Clause, Linear, Test
from treekit.rules.language import Language, language
from treekit.rules.rulelist import RuleList
from treekit.rules.words import name_text, numerals

__all__ = ["condition_texts", "levels_text", "part_text", "test_gist", "test_text"]

_GIST = 60
"""A test of at most so many characters is shown in the rules that ask it."""


def levels_text(levels: Sequence[str], words: Language) -> str:
    """Levels as a choice.

    >>> levels_text(["red", "green", "dark blue"], language())
    'red, green or "dark blue"'
    """
    texts = [name_text(level, words) for level in levels]
    say = words.phrases
    if len(texts) < 2:
        return texts[0] if texts else say["if_nothing"]
    return say["if_comma"].join(texts[:-1]) + say["if_or"] + texts[-1]


def part_text(condition: str, low: int, high: int, words: Language) -> str:
    """A condition with the bounds of a part of a row's mass, and the part in per cent."""
    percent = f"{100 * (high - low) / MASS:.3g}"
    said = {"low": str(low), "high": str(high), "percent": percent}
    return words.say("if_part", condition=condition, **said)


def test_text(test: Test, schema: Schema, words: Language | None = None) -> str:  # noqa: PT028
    """What a test asks, clause after clause; by default in English."""
    words = words or language()
    return words.phrases["test_otherwise"].join(
        _clause_text(clause, schema, words) for clause in test
    )


def test_gist(test: Test, schema: Schema, words: Language, *, holds: bool) -> str:
    """The first clause of a test as it reads where the test holds, or fails; empty if it is long.

    >>> test_gist(test, schema, language(), holds=False)
    '0.5 * density + -1.25 * sugar > 0.875'
    """
    clause = test[0]
    if isinstance(clause, Linear):
        below = clause.below ^ (not holds)
        clause = Linear(clause.features, clause.weights, clause.threshold, below)
        text = _clause_text(clause, schema, words)
    else:
        side = 0 if holds else 1
        column = schema.columns[clause.feature]
        codes = [code for code, branch in enumerate(clause.branches) if branch == side]
        text = _choice(column, codes, words)
    text = words.say("test_if_known", gist=text) if len(test) > 1 else text
    return text if len(text) <= _GIST else ""


def _clause_text(clause: Clause, schema: Schema, words: Language) -> str:
    if not isinstance(clause, Linear):
        return _branches_text(schema.columns[clause.feature], clause.branches, words)
    names = [name_text(schema.columns[feature].name, words) for feature in clause.features]
    key = "test_above" if clause.below else "test_upto"
    if clause.weights == (1.0,) and floor_to(clause.threshold, schema.dtype) == clause.threshold:
        (at,) = numerals(np.array([clause.threshold]), schema.dtype)
        return words.say(key, sum=names[0], at=at)
    weights = numerals(np.array(clause.weights), schema.dtype)
    total = " + ".join(f"{weight} * {name}" for weight, name in zip(weights, names, strict=True))
    (at,) = numerals(np.array([clause.threshold]))
    return words.say(key, sum=total, at=at)


def _branches_text(column: Column, branches: Sequence[int], words: Language) -> str:
    """Levels that hold, and, unless they are all others, those that fail."""
    sides = [[code for code, b in enumerate(branches) if b == side] for side in (0, 1)]
    if len(sides[0]) + len(sides[1]) == len(branches):
        return _choice(column, sides[0], words)
    held, failed = (levels_text([column.levels[c] for c in side], words) for side in sides)
    return words.say("test_rather", name=name_text(column.name, words), levels=held, others=failed)


def _choice(column: Column, codes: Sequence[int], words: Language) -> str:
    levels = levels_text([column.levels[code] for code in codes], words)
    return words.say("if_is", name=name_text(column.name, words), levels=levels)


def condition_texts(
    rules: RuleList,
    start: int,
    stop: int,
    words: Language | None = None,
    *,
    whole: bool = False,
) -> list[str]:
    """The conditions from `start` to `stop` in words, by default English ones.

    With `whole` tests are said in full where they are asked, for texts that stand alone:
    ``(age <= 30; if that is unknown: town is Ulm) fails``.  Else by their numbers.
    """
    table = rules.conditions
    fields = zip(
        range(start, stop),
        table.column[start:stop].tolist(),
        _bound_texts(rules, table.low[start:stop]),
        _bound_texts(rules, table.high[start:stop]),
        table.known[start:stop].tolist(),
        table.missing[start:stop].tolist(),
        strict=True,
    )
    told = _Conditions(rules, words or language(), whole=whole)
    return [told.text(*some) for some in fields]


class _Conditions:
    """Says conditions of one list; names, levels and tests are put into words once."""

    def __init__(self, rules: RuleList, words: Language, *, whole: bool) -> None:
        self.rules, self.table, self.words = rules, rules.conditions, words
        self.whole = whole
        self.columns = rules.schema.columns
        self.numeric = [column.kind == "numeric" for column in self.columns]
        self.names = [name_text(column.name, words) for column in self.columns]
        self.test_names: dict[int, str] = {}
        self.is_level, self.is_known = words.sayer("if_is"), words.sayer("if_known")
        self.above, self.upto = words.sayer("if_above"), words.sayer("if_upto")
        self.between, self.or_missing = words.sayer("if_between"), words.sayer("if_or_missing")
        self.choices: dict[tuple[int, ...], str] = {}
        self.outcomes: dict[tuple[int, bool], str] = {}

    def name(self, column: int) -> str:
        """What a column, or a test behind the columns, is called."""
        if column < len(self.columns):
            return self.names[column]
        if column not in self.test_names:
            number = column - len(self.columns)
            if self.whole:
                text = test_text(self.rules.tests[number], self.rules.schema, self.words)
                self.test_names[column] = f"({text})"
            else:
                self.test_names[column] = self.words.say("test_name", number=str(number + 1))
        return self.test_names[column]

    def text(self, at: int, column: int, low: str, high: str, known: bool, missing: bool) -> str:
        """Condition `at`; bounds are empty where there are none."""
        if not known:
            text = self._absent(at, column) if missing else self._never(column)
        else:
            if column >= len(self.columns):
                text = self._outcome(column, low, high)
            elif self.numeric[column]:
                text = self._interval(self.names[column], low, high)
            else:
                text = self._levels(at, column)
            if missing:
                text = self._or_absent(at, column, text)
        if missing and self.rules.mass > 1:
            part = int(self.table.part_low[at]), int(self.table.part_high[at])
            if part != (0, MASS):
                text = part_text(text, *part, self.words)
        return text

    def _interval(self, name: str, low: str, high: str) -> str:
        if low:
            if high:
                return self.between(name=name, low=low, high=high)
            return self.above(name=name, low=low)
        return self.upto(name=name, high=high) if high else self.is_known(name=name)

    def _levels(self, at: int, column: int) -> str:
        fits, _ = self.table.codes(at)
        if len(fits) == len(self.columns[column].levels):
            return self.is_known(name=self.names[column])
        return self.is_level(name=self.names[column], levels=self._choice(column, fits))

    def _choice(self, column: int, codes: list[int]) -> str:
        key = (column, *codes)
        if key not in self.choices:
            levels = self.columns[column].levels
            self.choices[key] = levels_text([levels[code] for code in codes], self.words)
        return self.choices[key]

    def _outcome(self, column: int, low: str, high: str) -> str:
        """Whether a test holds or fails, and, if that is short, what it asks."""
        name = self.name(column)
        if not low and not high:
            return self.words.say("if_decided", test=name)
        key = column, bool(high)
        if key not in self.outcomes and self.whole:
            self.outcomes[key] = self.words.say("if_holds" if high else "if_fails", test=name)
        if key not in self.outcomes:
            test = self.rules.tests[column - len(self.columns)]
            gist = test_gist(test, self.rules.schema, self.words, holds=bool(high))
            phrase = ("if_holds" if high else "if_fails") + ("_as" if gist else "")
            fields = {"gist": gist} if gist else {}
            self.outcomes[key] = self.words.say(phrase, test=name, **fields)
        return self.outcomes[key]

    def _never(self, column: int) -> str:
        if column < len(self.columns):
            return self.words.say("if_never", name=self.names[column])
        return self.words.say("if_undecidable", test=self.name(column))

    def _absent(self, at: int, column: int) -> str:
        name = self.name(column)
        if column >= len(self.columns):
            return self.words.say("if_unknown", test=name)
        if self.table.dividing[at]:
            levels = self._choice(column, self.table.codes(at)[1])
            return self.words.say("if_missing_levels", name=name, levels=levels)
        return self.words.say("if_missing", name=name)

    def _or_absent(self, at: int, column: int, text: str) -> str:
        if column >= len(self.columns):
            return self.words.say("if_or_unknown", condition=text)
        if self.table.dividing[at]:
            levels = self._choice(column, self.table.codes(at)[1])
            return self.words.say("if_or_missing_levels", condition=text, levels=levels)
        return self.or_missing(condition=text)


def _bound_texts(rules: RuleList, bounds: npt.NDArray[np.float64]) -> list[str]:
    """Numerals of the finite bounds, empty texts for the infinite ones."""
    texts = np.full(len(bounds), "", dtype=object)
    finite = np.isfinite(bounds)
    texts[finite] = numerals(bounds[finite], rules.schema.dtype)
    result: list[str] = texts.tolist()
    return result
