"""Conditions and answers of rules, from JSON that is not trusted."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from treekit.data.schema import Label, Output
from treekit.forms.json import key_of
from treekit.forms.json_values import (
    At,
    JsonError,
    Numeral,
    flag,
    items,
    members,
    numeral,
    string,
    whole,
)
from treekit.model.portable import MASS
from treekit.model.votes import least_cost
from treekit.rules.rulelist import ConditionTable, RuleList
from treekit.rules.words import read_numeral

__all__ = ["Answers", "Conditions", "label_of", "level_codes", "named"]

_ASKS = {"numeric": {"above", "at_most"}, "nominal": {"in"}, "test": {"holds"}}
_ANY = {"above", "at_most", "in", "holds", "known"}
_CONDITION = ("column", "test", *sorted(_ANY), "missing", "part", "dividing")
_WHOLE = re.compile(r"-?[0-9]+")
_SHARE = re.compile(r"[01](?:\.[0-9]{1,60})?(?:[eE]-[0-9]{1,2})?|[1-9]\.[0-9]{1,60}[eE]-[0-9]{1,2}")
_OFF = Fraction(1, 1_000_000)
"""Shares written by hand may miss 1 by so much; the last place of each is rounded."""


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


class Answers:
    """Reads what rules say."""

    def __init__(self, listed: RuleList) -> None:
        self.listed, self.outputs = listed, listed.schema.outputs
        self.names = [output.name for output in self.outputs]
        self.keys = [{key_of(c): k for k, c in enumerate(o.classes)} for o in self.outputs]
        self.labels = [
            {(type(label), label): k for k, label in enumerate(o.classes)} for o in self.outputs
        ]
        self.votes: dict[str, int] = {}

    def read(self, value: Any) -> tuple[list[int], list[float] | None]:
        """Units, and what the training rows say, if the answers of all targets state it."""
        stated = members(value, self.names)
        units: list[int] = []
        training: list[float] | None = []
        for k, output in enumerate(self.outputs):
            with At(output.name):
                answer = members(stated[output.name], (), _answer_keys(self.listed))
                units += self._units(k, output, answer)
                if training is not None and "training" in answer:
                    with At("training"):
                        training = training + self._training(k, output, answer["training"])
                else:
                    training = None
        return units, training

    def _units(self, k: int, output: Output, answer: dict[str, Any]) -> list[int]:
        if self.listed.margins:
            with At("margins"):
                margins = self._by_class(k, answer.get("margins"))
                return [self._steps(margins.get(at, _ZERO)) for at in range(len(output.classes))]
        if not output.classes:
            with At("value"):
                return [self._steps(numeral(answer.get("value")))]
        return self._answer(k, output, answer)

    def _answer(self, k: int, output: Output, answer: dict[str, Any]) -> list[int]:
        label = -1
        if "label" in answer:
            with At("label"):
                value = label_of(answer["label"])
                label = self.labels[k].get((type(value), value), -1)
                if label < 0:
                    raise JsonError(f"{value!r} is not a class")
        if "shares" in answer:
            with At("shares"):
                votes = self._shares(k, answer["shares"])
        elif label >= 0:
            votes = [0] * len(output.classes)
            votes[label] = self.listed.units_each
        else:
            raise JsonError("an answer states a label, or shares, or both")
        best = int(least_cost(np.array([votes]), self.listed.costs)[0])
        if label not in (-1, best):
            rule = "with the largest share" if self.listed.costs is None else "of least cost"
            raise JsonError(f"{output.classes[label]!r} is not the class {rule}; that is "
                        f"{output.classes[best]!r}")  # fmt: skip
        return votes

    def _shares(self, k: int, value: Any) -> list[int]:
        """Whole votes: each share to the nearest.

        If these are too many or too few, the largest remainders are rounded up, as they are
        wherever votes are spread.
        """
        total = self.listed.units_each
        stated = self._by_class(k, value)
        votes = [0] * len(self.keys[k])
        for at, share in stated.items():
            if share not in self.votes:
                self.votes[share] = int(_share(share) * total + Fraction(1, 2))
            votes[at] = self.votes[share]
        if sum(votes) == total:
            return votes
        exact = [_share(stated.get(at, _ZERO)) * total for at in range(len(votes))]
        off = sum(exact, Fraction(0)) - total
        if abs(off) > max(_OFF * total, Fraction(len(votes), 2)):
            raise JsonError(f"the shares add to {float(1 + off / total):.6g}, not to 1")
        votes = [int(some) for some in exact]
        order = sorted(range(len(votes)), key=lambda at: (votes[at] - exact[at], at))
        for at in itertools.islice(itertools.cycle(order), max(total - sum(votes), 0)):
            votes[at] += 1
        return votes

    def _training(self, k: int, output: Output, value: Any) -> list[float]:
        if not output.classes:
            return [read_numeral(numeral(value))]
        weights = self._by_class(k, value)
        return [read_numeral(weights.get(at, _ZERO)) for at in range(len(output.classes))]

    def _by_class(self, k: int, value: Any) -> dict[int, str]:
        """Numbers behind the keys of classes."""
        found = {}
        for key, number in members(value).items():
            found[named(self.keys[k], key, "a class")] = numeral(number, key)
        return found

    def _steps(self, number: str) -> int:
        """The nearest multiple of the step."""
        units = float(np.ldexp(read_numeral(number), -self.listed.exponent))
        if not abs(units) < 2.0**62:
            raise JsonError(f"{number} is too large for the step 2**{self.listed.exponent}")
        return round(units)


_ZERO = Numeral("0")


def _share(said: str) -> Fraction:
    if not _SHARE.fullmatch(said):
        raise JsonError(f"a share is a decimal from 0 to 1, not {said[:70]}")
    return Fraction(said)


def _answer_keys(listed: RuleList) -> tuple[str, ...]:
    if listed.margins:
        return ("margins", "training")
    if listed.schema.task == "regression":
        return ("value", "training")
    return ("label", "shares", "training")
