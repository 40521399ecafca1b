"""Reading what `treekit.rules.phrases` writes: conditions and tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from treekit.data.schema import Schema
from treekit.model.portable import MASS
from treekit.rules.clauses import Clause, Levels, Linear, Test
from treekit.rules.phrases import OTHERWISE, part_text, test_gist
from treekit.rules.words import NAME, read_name, read_numeral, unquote

__all__ = [
    "LABEL",
    "NUMBER",
    "SET",
    "ConditionReader",
    "Fields",
    "read_pairs",
    "read_set",
    "read_test",
]

NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"
LABEL = rf"(?:{NAME}|{NUMBER})"
_TEXT = r'"(?:[^"\\]|\\.)*"'
SET = rf"\{{(?:{_TEXT}(?:, {_TEXT})*)?\}}"
_PART = r"(?:: ([0-9]+) to ([0-9]+) \([0-9.e+-]+%\))?"
_CONDITION = re.compile(
    rf"({NAME}|test [0-9]+) (?:(is known)|is ({_TEXT})|is one of ({SET})"
    rf"|> ({NUMBER})(?: and \1 <= ({NUMBER}))?|<= ({NUMBER})|(holds|fails)( \(.+?\))?)"
    rf"(, or is (?:missing|unknown)(?: or one of ({SET}))?{_PART})?"
)
_ABSENT = re.compile(
    rf"({NAME}|test [0-9]+) (?:has no possible value"
    rf"|is (missing|unknown)(?: or one of ({SET}))?{_PART})"
)
_TERM = rf"{NUMBER} \* {NAME}"
_SUM = re.compile(rf"({_TERM}(?: \+ {_TERM})*) (<=|>) ({NUMBER})")
_PLAIN = re.compile(rf"({NAME}) (<=|>) ({NUMBER})")
_BRANCHES = re.compile(
    rf"({NAME}) (?:is ({_TEXT})|is one of ({SET}))(?: rather than one of ({SET}))?"
)
_SHARE = re.compile(rf"({LABEL}): ([0-9]+(?:\.[0-9]+)?)")


class Fields(NamedTuple):
    """One condition, as `treekit.rules.rulelist.ConditionTable` has it."""

    column: int
    low: float = -np.inf
    high: float = np.inf
    known: bool = False
    missing: bool = False
    part: tuple[int, int] = (0, 0)
    fits: tuple[int, ...] = ()
    dividing: tuple[int, ...] = ()


class ConditionReader:
    """Reads what follows 'if' and 'and'; the same text once."""

    def __init__(self, schema: Schema, tests: tuple[Test, ...], *, divides: bool) -> None:
        self.schema, self.tests, self.divides = schema, tests, divides
        self.columns = {column.name: i for i, column in enumerate(schema.columns)}
        self.codes = [
            {level: code for code, level in enumerate(column.levels)} for column in schema.columns
        ]
        self.known: dict[str, Fields] = {}

    def read(self, text: str) -> Fields:
        """The condition that a text states."""
        if text not in self.known:
            found = _CONDITION.fullmatch(text)
            if found is not None:
                self.known[text] = self._condition(text, found)
            elif (found := _ABSENT.fullmatch(text)) is not None:
                self.known[text] = self._absent(text, found)
            else:
                raise ValueError(f"{text!r} is not a condition")
        return self.known[text]

    def _condition(self, text: str, match: re.Match[str]) -> Fields:
        name, known, level, levels, low, between, high, side, gist, absent, *part = match.groups()
        column, kind = self._column(name)
        high = between or high
        asked = (
            "nominal" if level or levels else "numeric" if low or high else "test" if side else kind
        )
        word = "missing" if kind != "test" else "unknown"
        if asked != kind or (absent and not absent.startswith(f", or is {word}")):
            raise ValueError(f"{text!r} does not suit the kind of its column")
        dtype = self.schema.dtype
        bounds = (
            -np.inf if low is None else read_numeral(low, dtype),
            np.inf if high is None else read_numeral(high, dtype),
        )
        if side:
            bounds = (-np.inf, 0.0) if side == "holds" else (0.0, np.inf)
            self._check_gist(column, gist or "", holds=side == "holds")
        fits: tuple[int, ...] = ()
        if kind == "nominal":
            every = range(len(self.codes[column]))
            fits = tuple(every) if known else self._codes(column, levels or f"{{{level}}}")
        return self._with_part(Fields(column, *bounds, known=True, fits=fits), text, absent, part)

    def _absent(self, text: str, match: re.Match[str]) -> Fields:
        name, word, *part = match.groups()
        column, kind = self._column(name)
        if word and (word == "unknown") != (kind == "test"):
            raise ValueError(f"{text!r} does not suit the kind of its column")
        return self._with_part(Fields(column), text, word, part)

    def _with_part(
        self, fields: Fields, text: str, absent: str | None, part: list[str | None]
    ) -> Fields:
        """The condition, with what a missing value keeps of a row."""
        levels, low, high = part
        if not absent:
            return fields
        stated = (0, MASS) if low is None or high is None else (int(low), int(high))
        if low is not None and not text.endswith(part_text(*stated)):
            raise ValueError("the percentage does not follow from its bounds")
        divided = low is not None or levels is not None
        if not 0 <= stated[0] < stated[1] <= MASS or (divided and not self.divides):
            raise ValueError(f"{text!r} does not state a part of a row")
        dividing = self._codes(fields.column, levels) if levels else ()
        if set(dividing) & set(fields.fits):
            raise ValueError("a level is named twice")
        return fields._replace(missing=True, part=stated, dividing=dividing)

    def _column(self, name: str) -> tuple[int, str]:
        if name.startswith("test "):
            number = int(name[5:])
            if not 1 <= number <= len(self.tests):
                raise ValueError(f"there is no {name}")
            return self.schema.n_features + number - 1, "test"
        column = self.columns[read_name(name)]
        return column, self.schema.columns[column].kind

    def _check_gist(self, column: int, gist: str, *, holds: bool) -> None:
        test = self.tests[column - self.schema.n_features]
        if gist != test_gist(test, self.schema, holds=holds):
            raise ValueError(f"{gist!r} does not follow from the test")

    def _codes(self, column: int, levels: str) -> tuple[int, ...]:
        return _ordered(tuple(self.codes[column][name] for name in read_set(levels)))


def read_test(text: str, schema: Schema) -> Test:
    """The test that a text states."""
    clauses: list[Clause] = []
    at = 0
    while True:
        for pattern, read in ((_SUM, _sum), (_PLAIN, _plain), (_BRANCHES, _branches)):
            if match := pattern.match(text, at):
                clauses.append(read(match, schema))
                break
        else:
            raise ValueError(f"{text[at:]!r} is not a test")
        at = match.end()
        if at == len(text):
            return tuple(clauses)
        if not text.startswith(OTHERWISE, at):
            raise ValueError(f"{text[at:]!r} is not a test")
        at += len(OTHERWISE)


def _sum(match: re.Match[str], schema: Schema) -> Linear:
    terms = re.findall(rf"({NUMBER}) \* ({NAME})", match[1])
    features = tuple(_numeric(name, schema) for _, name in terms)
    weights = tuple(read_numeral(weight, schema.dtype) for weight, _ in terms)
    if any(weight == 0 for weight in weights):
        raise ValueError("a weight is 0")
    return Linear(features, weights, read_numeral(match[3]), int(match[2] == ">"))


def _plain(match: re.Match[str], schema: Schema) -> Linear:
    at = read_numeral(match[3], schema.dtype)
    return Linear((_numeric(match[1], schema),), (1.0,), at, int(match[2] == ">"))


def _numeric(name: str, schema: Schema) -> int:
    feature = schema.names.index(read_name(name))
    if schema.columns[feature].kind != "numeric":
        raise ValueError(f"{name} is not a number")
    return feature


def _branches(match: re.Match[str], schema: Schema) -> Levels:
    name, level, levels, others = match.groups()
    feature = schema.names.index(read_name(name))
    column = schema.columns[feature]
    if column.kind != "nominal":
        raise ValueError(f"{name} has no levels")
    branches = [1 if others is None else -1] * len(column.levels)
    for branch, side in ((0, levels or f"{{{level or ''}}}"), (1, others or "{}")):
        for code in _ordered(tuple(column.levels.index(name) for name in read_set(side))):
            branches[code] = branch
    return Levels(feature, tuple(branches))


def _ordered(codes: tuple[int, ...]) -> tuple[int, ...]:
    if any(a >= b for a, b in pairwise(codes)):
        raise ValueError("levels are not in declared order")
    return codes


def read_set(text: str) -> list[str]:
    """The texts between braces."""
    return [unquote(match[0]) for match in re.finditer(_TEXT, text)]


def read_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Labels and the decimals behind them."""
    at = 0
    while match := _SHARE.match(text, at):
        yield match[1], match[2]
        at = match.end()
        if at == len(text):
            return
        if not text.startswith(", ", at):
            break
        at += 2
    raise ValueError(f"{text!r} are not decimals of classes")
