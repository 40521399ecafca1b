"""Reading what `treekit.rules.phrases` writes: conditions and tests."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from treekit.data.schema import Column, Schema
from treekit.model.fixed_point import MASS
from treekit.rules.clauses import Clause, Levels, Linear, Test
from treekit.rules.language import Language
from treekit.rules.patterns import NUMBER, WHOLE, Atoms, Patterns, cut
from treekit.rules.phrases import part_text, test_gist
from treekit.rules.words import read_name, read_numeral

__all__ = ["ConditionReader", "Fields", "TestReader"]

CORE = (
    *("if_above", "if_upto", "if_between", "if_known", "if_missing", "if_missing_levels"),
    *("if_is", "if_never", "if_holds", "if_holds_as", "if_fails", "if_fails_as"),
    *("if_decided", "if_unknown", "if_undecidable"),
)
TAILS = ("if_or_missing_levels", "if_or_missing", "if_or_unknown")
_OF_NUMBERS = ("if_above", "if_upto", "if_between")
_ABSENT = ("if_missing", "if_missing_levels", "if_unknown")
_NEVER = ("if_never", "if_undecidable")


class Fields(NamedTuple):
    """One condition, as `treekit.rules.conditions.ConditionTable` has it."""

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

    def __init__(
        self, schema: Schema, tests: tuple[Test, ...], words: Language, *, divides: bool
    ) -> None:
        self.schema, self.tests, self.words, self.divides = schema, tests, words, divides
        self.columns = {column.name: i for i, column in enumerate(schema.columns)}
        self.codes = [
            {level: code for code, level in enumerate(column.levels)} for column in schema.columns
        ]
        numbers = range(1, len(tests) + 1)
        self.of_test = {words.say("test_name", number=str(number)): number for number in numbers}
        self.atoms = Atoms(words)
        self.core = Patterns(words, CORE, self.atoms.known)
        self.tail = Patterns(words, TAILS, self.atoms.known)
        bounds = {"low": WHOLE, "high": WHOLE}
        self.part = Patterns(words, ("if_part",), self.atoms.known | bounds)
        self.known: dict[str, Fields] = {}

    def read(self, text: str) -> Fields:
        """The condition that a text states."""
        if text not in self.known:
            self.known[text] = self._read(text)
        return self.known[text]

    def _read(self, text: str) -> Fields:
        part = self.part.read(text) if self.divides else None
        if part is None:
            return self._whole(text)
        low, high, condition = int(part[1]["low"]), int(part[1]["high"]), part[1]["condition"]
        if part_text(condition, low, high, self.words) != text:
            raise ValueError("the percentage does not follow from its bounds")
        if not 0 <= low < high <= MASS:
            raise ValueError(f"{text!r} does not state a part of a row")
        found = self._whole(condition, (low, high))
        if not found.missing:
            raise ValueError(f"{text!r} does not state a part of a row")
        return found

    def _whole(self, text: str, part: tuple[int, int] = (0, MASS)) -> Fields:
        """A condition of which a missing value keeps such a part."""
        core = self.core.read(text)
        if core is not None:
            return self._core(text, *core, part)
        tail = self.tail.read(text)
        core = self.core.read(tail[1]["condition"]) if tail is not None else None
        if core is None or tail is None:
            cut = self.part.read(text) is not None
            said = "does not state a part of a row" if cut else "is not a condition"
            raise ValueError(f"{text!r} {said}; such are {self._forms()}")
        found = self._core(text, *core, part)
        if not found.known or (tail[0] == "if_or_unknown") != self._asks_test(found):
            raise ValueError(f"{text!r} does not suit the kind of its column")
        found = found._replace(missing=True, part=part)
        return self._divided(text, found, tail[1].get("levels"))

    def _forms(self) -> str:
        """Conditions as they may be written, of columns x and c."""
        say = self.words.say
        either = f"a{self.words.phrases['if_or']}b"
        known = say("if_upto", name="x", high="3")
        return ", ".join(
            repr(form)
            for form in (
                *(known, say("if_above", name="x", low="3")),
                say("if_between", name="x", low="1", high="3"),
                *(say("if_is", name="c", levels=either), say("if_missing", name="x")),
                say("if_or_missing", condition=known),
            )
        )

    def _core(self, text: str, key: str, said: dict[str, str], part: tuple[int, int]) -> Fields:
        if "test" in said:
            return self._outcome(key, said, part)
        column = self.columns[read_name(said["name"])]
        if key in _ABSENT:
            found = Fields(column, missing=True, part=part)
            return self._divided(text, found, said.get("levels"))
        if key in _NEVER:
            return Fields(column)
        numeric = self.schema.columns[column].kind == "numeric"
        if key in _OF_NUMBERS and numeric:
            low, high = said.get("low"), said.get("high")
            return Fields(column, self._bound(low, -np.inf), self._bound(high, np.inf), known=True)
        if key == "if_known":
            return Fields(column, known=True, fits=tuple(range(len(self.codes[column]))))
        if key == "if_is" and not numeric:
            return Fields(column, known=True, fits=self._codes(column, said["levels"]))
        raise ValueError(f"{text!r} does not suit the kind of its column")

    def _outcome(self, key: str, said: dict[str, str], part: tuple[int, int]) -> Fields:
        """What a test came to."""
        if said["test"] not in self.of_test:
            raise ValueError(f"there is no {said['test']}")
        number = self.of_test[said["test"]] - 1
        column = self.schema.n_features + number
        if key in _ABSENT:
            return Fields(column, missing=True, part=part)
        if key in _NEVER:
            return Fields(column)
        if key == "if_decided":
            return Fields(column, known=True)
        holds = key in ("if_holds", "if_holds_as")
        gist = said.get("gist", "")
        if gist != test_gist(self.tests[number], self.schema, self.words, holds=holds):
            raise ValueError(f"{gist!r} does not follow from the test")
        bounds = (-np.inf, 0.0) if holds else (0.0, np.inf)
        return Fields(column, *bounds, known=True)

    def _divided(self, text: str, found: Fields, levels: str | None) -> Fields:
        """A condition with the levels that divide a row there."""
        if levels is None:
            return found
        if not self.divides or self._asks_test(found):
            raise ValueError(f"{text!r} does not state a part of a row")
        dividing = self._codes(found.column, levels)
        if not dividing or set(dividing) & set(found.fits):
            raise ValueError("a level is named twice, or none")
        return found._replace(dividing=dividing)

    def _asks_test(self, found: Fields) -> bool:
        return found.column >= self.schema.n_features

    def _bound(self, numeral: str | None, none: float) -> float:
        return none if numeral is None else read_numeral(numeral, self.schema.dtype)

    def _codes(self, column: int, levels: str) -> tuple[int, ...]:
        return _ordered(tuple(self.codes[column][name] for name in self.atoms.levels_of(levels)))


class TestReader:
    """Reads what tests ask."""

    __test__ = False

    def __init__(self, schema: Schema, words: Language) -> None:
        self.schema, self.words, self.atoms = schema, words, Atoms(words)
        name = self.atoms.name
        self.term = re.compile(rf"({NUMBER}) \* ({name})")
        terms = rf"{NUMBER} \* {name}(?: \+ {NUMBER} \* {name})*"
        atoms = self.atoms.known | {"sum": rf"(?:{name}|{terms})", "at": NUMBER}
        self.clause = Patterns(words, ("test_above", "test_upto", "test_rather", "if_is"), atoms)

    def read(self, text: str) -> Test:
        """The test that a text states."""
        clauses: list[Clause] = []
        for part in cut(text, self.words.phrases["test_otherwise"]):
            found = self.clause.read(part)
            if found is None:
                raise ValueError(f"{part!r} is not a test")
            key, said = found
            is_sum = key in ("test_above", "test_upto")
            clauses.append(self._sum(key, said) if is_sum else self._branches(said))
        return tuple(clauses)

    def _sum(self, key: str, said: dict[str, str]) -> Linear:
        below = int(key == "test_above")
        terms = self.term.findall(said["sum"])
        if not terms:
            at = read_numeral(said["at"], self.schema.dtype)
            return Linear((self._column(said["sum"], "numeric")[0],), (1.0,), at, below)
        features = tuple(self._column(name, "numeric")[0] for _, name in terms)
        weights = tuple(read_numeral(weight, self.schema.dtype) for weight, _ in terms)
        if any(weight == 0 for weight in weights):
            raise ValueError("a weight is 0")
        return Linear(features, weights, read_numeral(said["at"]), below)

    def _branches(self, said: dict[str, str]) -> Levels:
        feature, column = self._column(said["name"], "nominal")
        branches = [-1 if "others" in said else 1] * len(column.levels)
        for branch, field in enumerate(("levels", "others")):
            named = self.atoms.levels_of(said[field]) if field in said else ()
            for code in _ordered(tuple(column.levels.index(name) for name in named)):
                branches[code] = branch
        return Levels(feature, tuple(branches))

    def _column(self, token: str, kind: str) -> tuple[int, Column]:
        feature = self.schema.names.index(read_name(token))
        column = self.schema.columns[feature]
        if column.kind != kind:
            raise ValueError(
                f"{token} {'is not a number' if kind == 'numeric' else 'has no levels'}"
            )
        return feature, column


def _ordered(codes: tuple[int, ...]) -> tuple[int, ...]:
    if any(a >= b for a, b in pairwise(codes)):
        raise ValueError("levels are not in declared order")
    return codes
