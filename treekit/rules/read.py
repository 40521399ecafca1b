"""Reading the text of rules: strictly, line by line, nothing taken on trust."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, cast

import numpy as np

from treekit.data.schema import Column, Label, Schema
from treekit.errors import DataError, ModelError, ModelFileError
from treekit.model.portable import units_per_tree
from treekit.rules.rulelist import ConditionTable, RuleList
from treekit.rules.words import NAME, read_label, read_name, read_numeral, read_share, unquote
from treekit.rules.write import FIRST_LINE, header

__all__ = ["parse_rules"]

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"
_LABEL = rf"(?:{NAME}|{_NUMBER})"
_TEXT = r'"(?:[^"\\]|\\.)*"'
_SET = rf"\{{(?:{_TEXT}(?:, {_TEXT})*)?\}}"
_COLUMN = re.compile(rf"  ({NAME}): (?:(a number)|one of ({_SET}))")
_RULE = re.compile(r"rule ([0-9]+) of ([0-9]+)(?:, tree ([0-9]+) of ([0-9]+))?, node ([0-9]+)")
_CONDITION = re.compile(
    rf"({NAME}) (?:(is missing|has no possible value)|(?:(is known)|is ({_TEXT})|is one of ({_SET})"
    rf"|> ({_NUMBER})(?: and \1 <= ({_NUMBER}))?|<= ({_NUMBER}))(, or is missing)?)"
)
_THEN = re.compile(rf"  then ({_LABEL})   support ({_NUMBER})(?:   (.+))?")
_SHARE = re.compile(rf"({_LABEL}): ([0-9]+(?:\.[0-9]+)?)")

_Fields = tuple[int, float, float, bool, bool, tuple[int, ...]]


def parse_rules(text: str) -> RuleList:
    """The rules that a text states; ``str`` of the result is the text again.

    Raises
    ------
    ModelFileError
        For any line that `treekit.rules.write` does not write; names the line.
    """
    return _Reader(text).rules()


class _Reader:
    """One pass over the lines; `at` is the number of the next one."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.at = 0
        self.known_conditions: dict[str, _Fields] = {}

    def rules(self) -> RuleList:
        try:
            schema, facts = self._header()
            return self._rules(schema, facts)
        except (ValueError, KeyError, IndexError, OverflowError, DataError, ModelError) as error:
            raise self._bad(str(error)) from error

    def _bad(self, why: str) -> ModelFileError:
        return ModelFileError(
            f"line {self.at} of the rules cannot be read ({why}); "
            "export the rules again: they are executed exactly as written or not at all"
        )

    def _next(self) -> str:
        if self.at >= len(self.lines):
            raise ValueError("the text ends too early")
        self.at += 1
        return self.lines[self.at - 1]

    def _fact(self, key: str) -> str:
        line = self._next()
        if not line.startswith(f"{key:<9}"):
            raise ValueError(f"expected {key!r}")
        return line[9:]

    def _skip_words(self) -> None:
        while self.at < len(self.lines) and self.lines[self.at].startswith("  "):
            self.at += 1

    def _header(self) -> tuple[Schema, dict[str, Any]]:
        self.at = 2
        if self.lines[:2] != [FIRST_LINE, ""]:
            raise ValueError(f"a text of rules begins with {FIRST_LINE!r} and an empty line")
        target = read_name(self._fact("target"))
        stated = self._fact("classes")
        task = "regression" if stated.startswith("none:") else "classification"
        classes = () if task == "regression" else _labels(stated)
        columns = tuple(_column(self._next()) for _ in range(int(self._fact("columns"))))
        facts: dict[str, Any] = {}
        for key in ("type", "missing", "unknown", "trees"):
            facts[key] = self._fact(key)
            self._skip_words()
        facts["trees"] = int(facts["trees"])
        stated = self._fact("votes" if classes else "step")
        facts["exponent"] = 0 if classes else int(stated.removeprefix("2**"))
        if abs(facts["exponent"]) > 1074:
            raise ValueError("the step is not a double")
        self._skip_words()
        facts["rules"] = int(self._fact("rules"))
        if facts["type"] not in ("float32", "float64"):
            raise ValueError(f"unknown type {facts['type']!r}")
        schema = Schema(
            columns=columns,
            target=target,
            task=cast(Literal["classification", "regression"], task),
            classes=classes,
            dtype=facts["type"],
        )
        return schema, facts

    def _rules(self, schema: Schema, facts: dict[str, Any]) -> RuleList:
        if not 0 < facts["rules"] <= len(self.lines):
            raise ValueError("the number of rules is not that of the text")
        n, end_of_header = facts["rules"], self.at
        places, ends = np.zeros((n, 2), np.int32), np.zeros(n, np.int64)
        support = np.zeros(n)
        units = np.zeros((n, schema.n_values), dtype=np.int64)
        conditions: list[_Fields] = []
        reader = _Then(schema, facts)
        rule = _Condition(schema)
        for number in range(n):
            places[number] = self._place(number + 1, facts)
            for condition in self._conditions():
                if condition not in self.known_conditions:
                    self.known_conditions[condition] = rule.read(condition)
                conditions.append(self.known_conditions[condition])
            ends[number] = len(conditions)
            support[number], units[number] = reader.read(self._next())
        if self.lines[self.at :] != [""]:
            raise ValueError("the text goes on after its last rule")
        result = RuleList(
            schema=schema,
            missing=facts["missing"],
            unknown=facts["unknown"],
            n_trees=facts["trees"],
            exponent=facts["exponent"],
            tree=places[:, 0],
            leaf=places[:, 1],
            support=support,
            units=units,
            end=ends,
            conditions=_table(conditions),
        )
        if header(result) != self.lines[:end_of_header]:
            raise ValueError("the header's explanations do not follow from its facts")
        return result

    def _place(self, number: int, facts: dict[str, Any]) -> tuple[int, int]:
        if self._next() != "":
            raise ValueError("expected an empty line before a rule")
        match = _RULE.fullmatch(self._next())
        if match is None:
            raise ValueError("expected a line 'rule ... of ..., node ...'")
        stated, of, tree, trees, node = match.groups()
        one = tree is None and facts["trees"] == 1
        in_forest = tree is not None and int(trees) == facts["trees"] and facts["trees"] > 1
        if int(stated) != number or int(of) != facts["rules"] or not (one or in_forest):
            raise ValueError("a rule is out of place")
        return (0 if one else int(tree) - 1), int(node)

    def _conditions(self) -> Iterator[str]:
        line = self._next()
        if line == "  always":
            return
        if not line.startswith("  if  "):
            raise ValueError("expected '  if  ' or '  always'")
        yield line[6:]
        while self.at < len(self.lines) and self.lines[self.at].startswith("  and "):
            yield self._next()[6:]


class _Condition:
    """Reads what follows 'if' and 'and'."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.columns = {column.name: i for i, column in enumerate(schema.columns)}
        self.codes = [
            {level: code for code, level in enumerate(column.levels)} for column in schema.columns
        ]

    def read(self, text: str) -> _Fields:
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a condition")
        name, flat, known, level, levels, low, between, high, missing = match.groups()
        column = self.columns[read_name(name)]
        if flat:
            return column, -np.inf, np.inf, False, flat == "is missing", ()
        nominal = self.schema.columns[column].kind == "nominal"
        if known is None and nominal == (level is None and levels is None):
            raise ValueError(f"{text!r} does not suit the kind of its column")
        high = between or high
        dtype = self.schema.dtype
        return (
            column,
            -np.inf if low is None else read_numeral(low, dtype),
            np.inf if high is None else read_numeral(high, dtype),
            True,
            missing is not None,
            self._codes(column, level, levels) if nominal else (),
        )

    def _codes(self, column: int, level: str | None, levels: str | None) -> tuple[int, ...]:
        if level is None and levels is None:  # 'is known'
            return tuple(range(len(self.codes[column])))
        names = [unquote(level)] if level is not None else _set(levels or "{}")
        codes = tuple(self.codes[column][name] for name in names)
        if any(a >= b for a, b in pairwise(codes)):
            raise ValueError("levels are not in declared order")
        return codes


class _Then:
    """Reads the last line of a rule."""

    def __init__(self, schema: Schema, facts: dict[str, Any]) -> None:
        self.schema = schema
        self.exponent = facts["exponent"]
        self.total = units_per_tree(facts["trees"], schema.dtype)
        self.classes = {(type(label), label): i for i, label in enumerate(schema.classes)}
        self.units: dict[str, int] = {}

    def read(self, line: str) -> tuple[float, list[int]]:
        match = _THEN.fullmatch(line)
        if match is None or (match[3] is None) == (self.schema.task == "classification"):
            raise ValueError("expected a line 'then ...'")
        support = read_numeral(match[2])
        if self.schema.task == "regression":
            units = np.ldexp(read_numeral(match[1]), -self.exponent)
            if not units.is_integer() or abs(units) >= 2.0**62:
                raise ValueError(f"{match[1]} is not a multiple of the step")
            return support, [int(units)]
        shares = [0] * len(self.classes)
        for label, share in _pairs(match[3]):
            if share not in self.units:
                self.units[share] = read_share(share, self.total)
            shares[self._class(label)] = self.units[share]
        if shares.index(max(shares)) != self._class(match[1]):
            raise ValueError(f"{match[1]} is not the class with the largest share")
        return support, shares

    def _class(self, token: str) -> int:
        label = read_label(token)
        return self.classes[type(label), label]


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while match := _SHARE.match(text, at):
        yield match[1], match[2]
        at = match.end()
        if at == len(text):
            return
        if not text.startswith(", ", at):
            break
        at += 2
    raise ValueError(f"{text!r} are not shares of classes")


def _labels(text: str) -> tuple[Label, ...]:
    if not re.fullmatch(rf"{_LABEL}(?:, {_LABEL})*", text):
        raise ValueError("expected class labels")
    return tuple(read_label(match[0]) for match in re.finditer(_LABEL, text))


def _set(text: str) -> list[str]:
    return [unquote(match[0]) for match in re.finditer(_TEXT, text)]


def _column(line: str) -> Column:
    match = _COLUMN.fullmatch(line)
    if match is None:
        raise ValueError("expected a column")
    name = read_name(match[1])
    return Column(name) if match[2] else Column(name, "nominal", tuple(_set(match[3])))


def _table(conditions: list[_Fields]) -> ConditionTable:
    column, low, high, known, missing, codes = (
        zip(*conditions, strict=True) if conditions else (((),) * 6)
    )
    return ConditionTable(
        np.array(column, dtype=np.int32),
        np.array(low, dtype=np.float64),
        np.array(high, dtype=np.float64),
        np.array(known, dtype=np.bool_),
        np.array(missing, dtype=np.bool_),
        np.cumsum([len(some) for some in codes], dtype=np.int64),
        np.array([code for some in codes for code in some], dtype=np.int32),
    )
