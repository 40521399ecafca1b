"""Conditions and tests in words; `treekit.rules.read_phrases` reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Schema
from treekit.model.portable import MASS, floor_to
from treekit.rules.clauses import Clause, Linear, Test
from treekit.rules.rulelist import RuleList
from treekit.rules.words import name_text, numerals, quote

__all__ = ["OTHERWISE", "condition_texts", "part_text", "set_text", "test_gist", "test_text"]

OTHERWISE = "; if that is unknown: "
"""Between the clauses of a test."""

_GIST = 60
"""A test of at most so many characters is shown in the rules that ask it."""


def set_text(levels: Sequence[str]) -> str:
    """Levels, quoted, between braces."""
    return "{" + ", ".join(quote(level) for level in levels) + "}"


def part_text(low: int, high: int) -> str:
    """The bounds of a part of a row's mass, and the part in per cent."""
    return f": {low} to {high} ({100 * (high - low) / MASS:.3g}%)"


def test_text(test: Test, schema: Schema) -> str:
    """What a test asks, clause after clause."""
    return OTHERWISE.join(_clause_text(clause, schema) for clause in test)


def test_gist(test: Test, schema: Schema, *, holds: bool) -> str:
    """The first clause of a test as it reads where the test holds, or fails; empty if it is long.

    >>> test_gist(test, schema, holds=False)
    ' (0.5 * density + -1.25 * sugar > 0.875)'
    """
    clause = test[0]
    if isinstance(clause, Linear):
        clause = Linear(
            clause.features, clause.weights, clause.threshold, clause.below ^ (not holds)
        )
        text = _clause_text(clause, schema)
    else:
        side = 0 if holds else 1
        column = schema.columns[clause.feature]
        codes = [code for code, branch in enumerate(clause.branches) if branch == side]
        text = name_text(column.name) + _level_text(column, codes)
    text += " if known" if len(test) > 1 else ""
    return f" ({text})" if len(text) <= _GIST else ""


def _clause_text(clause: Clause, schema: Schema) -> str:
    if not isinstance(clause, Linear):
        return _branches_text(schema.columns[clause.feature], clause.branches)
    names = [name_text(schema.columns[feature].name) for feature in clause.features]
    sign = ">" if clause.below else "<="
    if clause.weights == (1.0,) and floor_to(clause.threshold, schema.dtype) == clause.threshold:
        (at,) = numerals(np.array([clause.threshold]), schema.dtype)
        return f"{names[0]} {sign} {at}"
    weights = numerals(np.array(clause.weights), schema.dtype)
    total = " + ".join(f"{weight} * {name}" for weight, name in zip(weights, names, strict=True))
    (at,) = numerals(np.array([clause.threshold]))
    return f"{total} {sign} {at}"


def _branches_text(column: Column, branches: Sequence[int]) -> str:
    """Levels that hold, and, unless they are all others, those that fail."""
    sides = [[code for code, b in enumerate(branches) if b == side] for side in (0, 1)]
    text = name_text(column.name) + _level_text(column, sides[0])
    if len(sides[0]) + len(sides[1]) == len(branches):
        return text
    return f"{text} rather than one of {set_text([column.levels[c] for c in sides[1]])}"


def _level_text(column: Column, codes: list[int]) -> str:
    levels = [column.levels[code] for code in codes]
    return f" is {quote(levels[0])}" if len(levels) == 1 else f" is one of {set_text(levels)}"


def condition_texts(rules: RuleList, start: int, stop: int) -> list[str]:
    """The conditions from `start` to `stop` in words."""
    table, schema = rules.conditions, rules.schema
    names = [name_text(column.name) for column in schema.columns]
    names += [f"test {number + 1}" for number in range(len(rules.tests))]
    gists = _Gists(rules)
    fields = zip(
        table.column[start:stop].tolist(),
        _bound_texts(rules, table.low[start:stop]),
        _bound_texts(rules, table.high[start:stop]),
        table.known[start:stop].tolist(),
        table.missing[start:stop].tolist(),
        table.part_low[start:stop].tolist(),
        table.part_high[start:stop].tolist(),
        strict=True,
    )
    texts = []
    for at, (number, low, high, known, missing, *part) in enumerate(fields, start):
        name, test = names[number], number - schema.n_features
        fits, dividing = table.codes(at)
        absent = "missing" if test < 0 else "unknown"
        if dividing:
            levels = [schema.columns[number].levels[code] for code in dividing]
            absent += f" or one of {set_text(levels)}"
        if part != [0, MASS]:
            absent += part_text(*part)
        if not known:
            texts.append(f"{name} is {absent}" if missing else f"{name} has no possible value")
            continue
        if test >= 0:
            text = gists.phrase(test, holds=bool(high)) if low or high else " is known"
        elif schema.columns[number].kind == "numeric":
            text = _interval_text(name, low, high)
        elif len(fits) == len(schema.columns[number].levels):
            text = " is known"
        else:
            text = _level_text(schema.columns[number], fits)
        texts.append(f"{name}{text}, or is {absent}" if missing else name + text)
    return texts


class _Gists:
    """Phrases of tests, each made once."""

    def __init__(self, rules: RuleList) -> None:
        self.rules = rules
        self.made: dict[tuple[int, bool], str] = {}

    def phrase(self, test: int, *, holds: bool) -> str:
        if (test, holds) not in self.made:
            gist = test_gist(self.rules.tests[test], self.rules.schema, holds=holds)
            self.made[test, holds] = (" holds" if holds else " fails") + gist
        return self.made[test, holds]


def _interval_text(name: str, low: str, high: str) -> str:
    if low and high:
        return f" > {low} and {name} <= {high}"
    if low or high:
        return f" > {low}" if low else f" <= {high}"
    return " is known"


def _bound_texts(rules: RuleList, bounds: npt.NDArray[np.float64]) -> list[str]:
    """Numerals of the finite bounds, empty texts for the infinite ones."""
    texts = np.full(len(bounds), "", dtype=object)
    finite = np.isfinite(bounds)
    texts[finite] = numerals(bounds[finite], rules.schema.dtype)
    result: list[str] = texts.tolist()
    return result
