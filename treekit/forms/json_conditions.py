"""Conditions of rules, from JSON that is not trusted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from treekit.data.schema import Label
from treekit.forms.json_values import (
    At,
    JsonError,
    flag,
    items,
    members,
    numeral,
    string,
    whole,
)
from treekit.model.fixed_point import MASS
from treekit.rules.rule_list import ConditionTable, RuleList
from treekit.rules.wording import read_numeral

__all__ = ["Conditions", "label_of", "level_codes", "named"]

_ASKS = {"numeric": {"above", "at_most"}, "nominal": {"in"}, "test": {"holds"}}
_ANY = {"above", "at_most", "in", "holds", "known"}
_CONDITION = ("column", "test", *sorted(_ANY), "missing", "part", "dividing")
_WHOLE = re.compile(r"-?[0-9]+")


def named(codes: dict[str, int], name: Any, what: str, *path: str) -> int:
    """The number behind a name, which stands at `path`."""
    if type(name) is str and name in codes:
        return codes[name]
    with At(*path):
        raise JsonError(f"{string(name)!r} is not {what}")


def level_codes(codes: dict[str, int], value: Any) -> list[int]:
    """The codes of levels, ascending; none twice."""
    known = [codes.get(level, -1) for level in items(value) if type(level) is str]
    if len(known) == len(value) and -1 not in known and len(set(known)) == len(known):
        return sorted(known)
    found = []
    for at, level in enumerate(value):
        with At(at):
            found.append(named(codes, level, "a level of its column"))
    if len(set(found)) != len(found):
        raise JsonError("a level is named twice")
    return sorted(found)


def label_of(value: Any) -> Label:
    """A label as a value of its type: ``3`` is a whole number, ``3.0`` is not."""
    if isinstance(value, bool) or type(value) is str:
        return value
    said = numeral(value)
    return int(said) if _WHOLE.fullmatch(said) else float(said)


class Conditions:
    """Reads the conditions of rules, and gathers them for a table."""

    def __init__(self, listed: RuleList) -> None:
        schema = listed.schema
        self.dtype, self.divides = schema.dtype, listed.mass > 1
        self.n_features, self.n_tests = schema.n_features, len(listed.tests)
        self.columns = {column.name: number for number, column in enumerate(schema.columns)}
        self.kinds = [str(column.kind) for column in schema.columns]
        self.codes = [{level: k for k, level in enumerate(c.levels)} for c in schema.columns]
        self.fields: list[tuple[int, float, float, bool, bool, int, int, int, int]] = []
        self.levels: list[int] = []
        self.numbers: dict[str, float] = {}

    def rule(self, value: Any) -> int:
        """Read the conditions of a rule; how many have been read by now."""
        first = len(self.fields)
        for at, condition in enumerate(items(value)):
            with At(at):
                self._add(members(condition, (), _CONDITION))
        asked = {fields[0] for fields in self.fields[first:]}
        if len(asked) < len(self.fields) - first and not self.divides:
            raise JsonError("a column is asked twice; make one condition of the two")
        return len(self.fields)

    def table(self) -> ConditionTable:
        """All that has been read."""
        columns = list(zip(*self.fields, strict=True)) if self.fields else [()] * 9
        column, low, high, known, missing, part_low, part_high, dividing, end = columns
        return ConditionTable(
            np.array(column, dtype=np.int32),
            np.array(low, dtype=np.float64),
            np.array(high, dtype=np.float64),
            np.array(known, dtype=np.bool_),
            np.array(missing, dtype=np.bool_),
            np.array(part_low, dtype=np.int32),
            np.array(part_high, dtype=np.int32),
            np.array(dividing, dtype=np.int64),
            np.array(end, dtype=np.int64),
            np.array(self.levels, dtype=np.int32),
        )

    def _add(self, stated: dict[str, Any]) -> None:
        number, kind = self._asked(stated)
        low, high, known = self._bounds(stated, kind)
        fits: Sequence[int] = ()
        if "in" in stated:
            with At("in"):
                fits = level_codes(self.codes[number], stated["in"])
        elif kind == "nominal" and known:
            fits = range(len(self.codes[number]))
        missing = flag(stated.get("missing", False), "missing")
        part = self._part(stated, missing)
        dividing: list[int] = []
        if "dividing" in stated:
            with At("dividing"):
                if not (self.divides and missing and kind == "nominal"):
                    raise JsonError("levels divide a row only where its missing values do")
                dividing = level_codes(self.codes[number], stated["dividing"])
                if set(dividing) & set(fits):
                    raise JsonError("a level both fits and divides")
        self.levels.extend(fits)
        self.levels.extend(dividing)
        end = len(self.levels)
        self.fields.append((number, low, high, known, missing, *part, len(dividing), end))

    def _asked(self, stated: dict[str, Any]) -> tuple[int, str]:
        """Number and kind of the column or test."""
        if ("column" in stated) == ("test" in stated):
            raise JsonError("a condition asks either a column or a test")
        if "test" in stated:
            with At("test"):
                return self.n_features + whole(stated["test"], 1, self.n_tests) - 1, "test"
        number = named(self.columns, stated["column"], "a column", "column")
        return number, self.kinds[number]

    def _bounds(self, stated: dict[str, Any], kind: str) -> tuple[float, float, bool]:
        """Bounds, and whether any known value fits."""
        asks = stated.keys() & _ANY
        low, high = -np.inf, np.inf
        if asks == {"known"}:
            return low, high, flag(stated["known"], "known")
        if not asks or not asks <= _ASKS[kind]:
            suits = ", ".join(sorted(_ASKS[kind]))
            raise JsonError(
                f"a condition on this column states {suits}; or 'known', which stands alone"
            )
        if kind == "test":
            holds = flag(stated["holds"], "holds")
            return (-np.inf, 0.0, True) if holds else (0.0, np.inf, True)
        if stated.get("above") is not None:
            low = self._number(stated, "above")
        if stated.get("at_most") is not None:
            high = self._number(stated, "at_most")
        return low, high, True

    def _number(self, stated: dict[str, Any], key: str) -> float:
        said = numeral(stated[key], key)
        if said not in self.numbers:
            with At(key):
                self.numbers[said] = read_numeral(said, self.dtype)
        return self.numbers[said]

    def _part(self, stated: dict[str, Any], missing: bool) -> tuple[int, int]:
        """What a missing value keeps of a row."""
        if "part" not in stated:
            return (0, MASS) if missing else (0, 0)
        with At("part"):
            part = [whole(bound, 0, MASS) for bound in items(stated["part"])]
            if not (self.divides and missing) or len(part) != 2 or part[0] >= part[1]:
                raise JsonError("it is two bounds, the lower first, where missing values divide")
        return part[0], part[1]
