"""Strict, validating reader of the format of `treekit.documents.write_json`."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from types import TracebackType
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from treekit.data.schema import MISSING_MARKS, Column, Dtype, Label, Output, Schema
from treekit.documents.write_json import FORMAT, VERSION, key_of
from treekit.errors import DataError, ModelError, ModelFileError
from treekit.model.fixed_point import MASS, units_per_tree
from treekit.model.links import Combine, Link
from treekit.model.model import MissingPolicy, UnknownPolicy, Voting, least_cost
from treekit.model.validation import MAX_COST
from treekit.rules.read_edited import on_grid
from treekit.rules.rule_list import (
    Clause,
    ConditionTable,
    Levels,
    Linear,
    Order,
    Rounding,
    RuleList,
    Test,
)
from treekit.rules.simplify_thresholds import MOST_DIGITS
from treekit.rules.wording import read_numeral

__all__ = [
    "Answers",
    "At",
    "Conditions",
    "JsonError",
    "Numeral",
    "flag",
    "items",
    "label_of",
    "level_codes",
    "loads",
    "members",
    "named",
    "numeral",
    "read_json",
    "string",
    "whole",
    "without_rules",
]


# ---------------------------------------------------------------- read json

_REQUIRED = ("format", "version", "targets", "columns", "type", "missing", "unknown", "rules")
_OPTIONAL = (
    *("missing_marks", "voting", "order", "costs", "trees", "combine", "link", "exponent"),
    *("tests", "decisions", "rounding"),
)
_RULE, _RULE_OPTIONAL = ("if", "then"), ("tree", "node", "support", "as_parent")
_MOST_NODES = 2**31 - 1


def read_json(text: str) -> RuleList:
    """Parse rules from JSON text.

    Raises
    ------
    ModelFileError
        If the text does not follow the format of `treekit.documents.write_json`; names the path
        in the text, such as ``$.rules[3].if[0]`` (counted from 0).
    """
    try:
        with At():
            return _read(loads(text))
    except JsonError as fault:
        raise ModelFileError(
            f"{fault.place} of the rules cannot be read: {fault}; correct it, or export the "
            "rules again from their model"
        ) from fault


def _read(whole_text: Any) -> RuleList:
    facts = members(whole_text, _REQUIRED, _OPTIONAL)
    with At("format"):
        string(facts["format"], (FORMAT,))
    with At("version"):
        whole(facts["version"], VERSION, VERSION)
    listed = without_rules(facts)
    with At("rules"):
        return _rules(items(facts["rules"]), listed)


def _rules(stated: list[Any], listed: RuleList) -> RuleList:
    conditions, answers = Conditions(listed), Answers(listed)
    tree: list[int] = []
    leaf: list[int] = []
    support, as_parent, outcomes, training_values, end = [], [], [], [], [0]
    for number, value in enumerate(stated):
        with At(number):
            rule = members(value, _RULE, _RULE_OPTIONAL)
            tree.append(_tree(rule, tree[-1] if tree else -1, listed.n_trees))
            leaf.append(_node(rule, leaf[-1] if tree[-2:-1] == tree[-1:] else -1))
            support.append(_support(rule))
            as_parent.append(_flag(rule, "as_parent"))
            if as_parent[-1] and support[-1]:
                raise JsonError("'as_parent' is true, but the rule has support")
            with At("if"):
                end.append(conditions.rule(rule["if"]))
            with At("then"):
                answer, training = answers.read(rule["then"])
            outcomes.append(answer)
            training_values.append(training)
    if not tree or tree[-1] != listed.n_trees - 1:
        raise JsonError(f"there are {listed.n_trees} trees, and each needs at least one rule")
    if listed.order == "first":
        last = np.flatnonzero(np.diff(tree, append=-1))
        if (conditional := last[np.diff(end)[last] > 0]).size:
            path = (int(conditional[0]), "if")
            raise JsonError("the last rule of an ordered list must have no conditions", path)
    trees = np.array(tree, dtype=np.int32)
    units, exponent = on_grid(np.array(outcomes, dtype=np.float64), trees, listed)
    return replace(
        listed,
        exponent=exponent,
        tree=trees,
        leaf=np.array(leaf, dtype=np.int32),
        support=np.array(support, dtype=np.float64),
        as_parent=np.array(as_parent, dtype=np.bool_),
        units=units,
        end=np.array(end[1:], dtype=np.int64),
        conditions=conditions.table(),
        value=None if None in training_values else np.array(training_values, dtype=np.float64),
    )


def _tree(rule: dict[str, Any], before: int, n_trees: int) -> int:
    with At("tree"):
        tree = whole(rule.get("tree", Numeral("1")), 1, n_trees) - 1
        if tree not in (before, before + 1) or tree < 0:
            raise JsonError("rules must be in the order of their trees, without gaps")
        return tree


def _node(rule: dict[str, Any], before: int) -> int:
    if "node" not in rule:
        return before + 1
    with At("node"):
        return whole(rule["node"], 0, _MOST_NODES)


def _support(rule: dict[str, Any]) -> float:
    if "support" not in rule:
        return 0.0
    with At("support"):
        support = read_numeral(numeral(rule["support"]))
        if support < 0:
            raise JsonError("support must not be negative")
        return support


def _flag(rule: dict[str, Any], key: str) -> bool:
    if key not in rule:
        return False
    with At(key):
        return flag(rule[key])


# ---------------------------------------------------------------- json values
# Checks of untrusted JSON values, with the path of each in the text.
#
# Numbers are kept as text, so that each reader chooses the precision.

_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MOST_DIGITS = 400


class Numeral(str):
    """A number as it is written in the text."""

    __slots__ = ()


class JsonError(ValueError):
    """An invalid value, with the keys and indices that lead to it."""

    def __init__(self, said: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(said)
        self.path = path

    @property
    def place(self) -> str:
        """Path from the root: ``$.rules[3].if``."""
        return "$" + "".join(map(_step, self.path))


def _step(piece: str | int) -> str:
    if isinstance(piece, int):
        return f"[{piece}]"
    return f".{piece}" if _KEY.fullmatch(piece) else f"[{json.dumps(piece)}]"


class At:
    """Context that prefixes the path of errors: ``with At("rules", 3):``."""

    __slots__ = ("path",)

    def __init__(self, *path: str | int) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, JsonError):
            error.path = self.path + error.path
        elif isinstance(error, (ValueError, OverflowError, DataError, ModelError)):
            raise JsonError(str(error), self.path) from error


class _Repeated(dict[str, Any]):
    """A JSON object with a duplicate key."""

    key: str = ""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated, seen = _Repeated(), set[str]()
    for name, _ in pairs:
        if name in seen:
            repeated.key = name
        seen.add(name)
    return repeated


def _refuse(constant: str) -> Any:
    raise JsonError(f"{constant} is not a JSON number")


def loads(source: str) -> Any:
    """Parse JSON text (RFC 8259), with numbers as `Numeral`.

    Raises
    ------
    JsonError
        If it is not valid, or nested too deeply.
    """
    try:
        return json.loads(
            source.removeprefix("\ufeff"),
            parse_int=Numeral,
            parse_float=Numeral,
            parse_constant=_refuse,
            object_pairs_hook=_once,
        )
    except RecursionError:
        raise JsonError("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"not valid JSON: {error}") from error


def members(
    value: Any, required: Collection[str] | None = None, optional: Collection[str] = ()
) -> dict[str, Any]:
    """Check that a value is an object and, with `required`, that its keys are valid.

    All `required` keys must be there, and no others except `optional` ones.
    """
    if type(value) is _Repeated:
        raise JsonError(f"the key {value.key!r} appears twice")
    if type(value) is not dict:
        raise JsonError(f"expected an object, not {_kind(value)}")
    if required is None:
        return value
    for key in required:
        if key not in value:
            raise JsonError(f"the key {key!r} is missing")
    for key in value:
        if key not in required and key not in optional:
            known = ", ".join([*required, *optional])
            raise JsonError(f"the key {key!r} is not known; known: {known}")
    return value


def items(value: Any) -> list[Any]:
    """Check that a value is an array."""
    if type(value) is not list:
        raise JsonError(f"expected an array, not {_kind(value)}")
    return value


def string(value: Any, choices: Collection[str] | None = None) -> str:
    """Check that a value is a string, one of `choices` if given."""
    if type(value) is not str:
        raise JsonError(f"expected a string, not {_kind(value)}")
    if choices is not None and value not in choices:
        raise JsonError(f"{value!r} is not one of: {', '.join(choices)}")
    return value


def flag(value: Any, *path: str | int) -> bool:
    """Check that a value, at `path`, is a boolean."""
    if type(value) is not bool:
        raise JsonError(f"expected true or false, not {_kind(value)}", path)
    return value


def numeral(value: Any, *path: str | int) -> str:
    """Check that a value, at `path`, is a number; return its text."""
    if type(value) is not Numeral:
        raise JsonError(f"expected a number, not {_kind(value)}", path)
    if len(value) > _MOST_DIGITS:
        raise JsonError(f"a number has more than {_MOST_DIGITS} digits", path)
    return value


def whole(value: Any, low: int, high: int) -> int:
    """Parse an integer from `low` to `high`."""
    text = numeral(value)
    number = int(text) if text.lstrip("-").isdigit() else None
    if number is None or not low <= number <= high:
        raise JsonError(f"expected an integer from {low} to {high}, not {text}")
    return number


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Numeral):
        return f"the number {value[:30]}"
    if isinstance(value, str):
        return f"the string {value[:30]!r}"
    return "an array" if isinstance(value, list) else "an object"


# ---------------------------------------------------------------- json outcomes

_SHARE = re.compile(r"[01](?:\.[0-9]{1,60})?(?:[eE]-[0-9]{1,2})?|[1-9]\.[0-9]{1,60}[eE]-[0-9]{1,2}")
_OFF = Fraction(1, 1_000_000)
"""Tolerance for the sum of shares written by hand, whose last digits are rounded."""


class Answers:
    """Reader of the outcomes of rules."""

    def __init__(self, listed: RuleList) -> None:
        self.listed, self.outputs = listed, listed.schema.outputs
        self.names = [output.name for output in self.outputs]
        self.keys = [{key_of(c): k for k, c in enumerate(o.classes)} for o in self.outputs]
        self.labels = [
            {(type(label), label): k for k, label in enumerate(o.classes)} for o in self.outputs
        ]
        self.votes: dict[str, int] = {}

    def read(self, value: Any) -> tuple[list[float], list[float] | None]:
        """Return votes or numbers, and the training values if all targets have them."""
        stated = members(value, self.names)
        outcome: list[float] = []
        training: list[float] | None = []
        for k, output in enumerate(self.outputs):
            with At(output.name):
                answer = members(stated[output.name], (), _answer_keys(self.listed))
                outcome += self._said(k, output, answer)
                if training is not None and "training" in answer:
                    with At("training"):
                        training = training + self._training(k, output, answer["training"])
                else:
                    training = None
        return outcome, training

    def _said(self, k: int, output: Output, answer: dict[str, Any]) -> Sequence[float]:
        if self.listed.margins:
            with At("margins"):
                margins = self._by_class(k, answer.get("margins"))
                return [read_numeral(margins.get(at, _ZERO)) for at in range(len(output.classes))]
        if not output.classes:
            with At("value"):
                return [read_numeral(numeral(answer.get("value")))]
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
            raise JsonError("an outcome needs 'label', 'shares' or both")
        best = int(least_cost(np.array([votes]), self.listed.costs)[0])
        if label not in (-1, best):
            rule = "with the largest share" if self.listed.costs is None else "of least cost"
            raise JsonError(f"{output.classes[label]!r} is not the class {rule}; that is "
                        f"{output.classes[best]!r}")  # fmt: skip
        return votes

    def _shares(self, k: int, value: Any) -> list[int]:
        """Return integer votes: each share rounded to the nearest.

        If they do not add up to the total, the largest remainders are rounded up, as everywhere
        when votes are distributed.
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
            raise JsonError(f"the shares sum to {float(1 + off / total):.6g}, not 1")
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
        """Return numbers by class index."""
        found = {}
        for key, number in members(value).items():
            found[named(self.keys[k], key, "a class")] = numeral(number, key)
        return found


_ZERO = Numeral("0")


def _share(said: str) -> Fraction:
    if not _SHARE.fullmatch(said):
        raise JsonError(f"expected a share as a decimal from 0 to 1, not {said[:70]}")
    return Fraction(said)


def _answer_keys(listed: RuleList) -> tuple[str, ...]:
    if listed.margins:
        return ("margins", "training")
    if listed.schema.task == "regression":
        return ("value", "training")
    return ("label", "shares", "training")


# ---------------------------------------------------------------- json conditions

_ASKS = {"numeric": {"above", "at_most"}, "nominal": {"in"}, "test": {"holds"}}
_ANY = {"above", "at_most", "in", "holds", "known"}
_CONDITION = ("column", "test", *sorted(_ANY), "missing", "part", "dividing")
_WHOLE = re.compile(r"-?[0-9]+")


def named(codes: dict[str, int], name: Any, what: str, *path: str) -> int:
    """Return the code of a name; errors refer to `path`."""
    if type(name) is str and name in codes:
        return codes[name]
    with At(*path):
        raise JsonError(f"{string(name)!r} is not {what}")


def level_codes(codes: dict[str, int], value: Any) -> list[int]:
    """Return the codes of distinct categories, ascending."""
    known = [codes.get(level, -1) for level in items(value) if type(level) is str]
    if len(known) == len(value) and -1 not in known and len(set(known)) == len(known):
        return sorted(known)
    found = []
    for at, level in enumerate(value):
        with At(at):
            found.append(named(codes, level, "a category of its column"))
    if len(set(found)) != len(found):
        raise JsonError("a category is listed twice")
    return sorted(found)


def label_of(value: Any) -> Label:
    """Return a label of the written type: ``3`` is an integer, ``3.0`` is a float."""
    if isinstance(value, bool) or type(value) is str:
        return value
    text = numeral(value)
    return int(text) if _WHOLE.fullmatch(text) else float(text)


class Conditions:
    """Reader of the conditions of rules, which it collects into a table."""

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
        """Read the conditions of a rule; return the number of conditions read so far."""
        first = len(self.fields)
        for at, condition in enumerate(items(value)):
            with At(at):
                self._add(members(condition, (), _CONDITION))
        columns = {fields[0] for fields in self.fields[first:]}
        if len(columns) < len(self.fields) - first and not self.divides:
            raise JsonError("two conditions on one column or test; merge them")
        return len(self.fields)

    def table(self) -> ConditionTable:
        """Return all conditions read."""
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
                    raise JsonError(
                        "'dividing' needs the missing policy 'fractional', a nominal column and "
                        "'missing': true"
                    )
                dividing = level_codes(self.codes[number], stated["dividing"])
                if set(dividing) & set(fits):
                    raise JsonError("a category of 'dividing' already fits")
        self.levels.extend(fits)
        self.levels.extend(dividing)
        end = len(self.levels)
        self.fields.append((number, low, high, known, missing, *part, len(dividing), end))

    def _asked(self, stated: dict[str, Any]) -> tuple[int, str]:
        """Return index and kind of the column or test."""
        if ("column" in stated) == ("test" in stated):
            raise JsonError("a condition needs exactly one of 'column' and 'test'")
        if "test" in stated:
            with At("test"):
                return self.n_features + whole(stated["test"], 1, self.n_tests) - 1, "test"
        number = named(self.columns, stated["column"], "a column", "column")
        return number, self.kinds[number]

    def _bounds(self, stated: dict[str, Any], kind: str) -> tuple[float, float, bool]:
        """Return the bounds, and whether any known value fits."""
        keys = stated.keys() & _ANY
        low, high = -np.inf, np.inf
        if keys == {"known"}:
            return low, high, flag(stated["known"], "known")
        if not keys or not keys <= _ASKS[kind]:
            suits = ", ".join(sorted(_ASKS[kind]))
            raise JsonError(f"a condition on this column needs {suits}, or 'known' alone")
        if kind == "test":
            holds = flag(stated["holds"], "holds")
            return (-np.inf, 0.0, True) if holds else (0.0, np.inf, True)
        if stated.get("above") is not None:
            low = self._number(stated, "above")
        if stated.get("at_most") is not None:
            high = self._number(stated, "at_most")
        return low, high, True

    def _number(self, stated: dict[str, Any], key: str) -> float:
        text = numeral(stated[key], key)
        if text not in self.numbers:
            with At(key):
                self.numbers[text] = read_numeral(text, self.dtype)
        return self.numbers[text]

    def _part(self, stated: dict[str, Any], missing: bool) -> tuple[int, int]:
        """Return the bounds of the row's mass that a missing value keeps."""
        if "part" not in stated:
            return (0, MASS) if missing else (0, 0)
        with At("part"):
            part = [whole(bound, 0, MASS) for bound in items(stated["part"])]
            if not (self.divides and missing) or len(part) != 2 or part[0] >= part[1]:
                raise JsonError(
                    "expected two ascending bounds, with the missing policy 'fractional' and "
                    "'missing': true"
                )
        return part[0], part[1]


# ---------------------------------------------------------------- json header

_DEFAULTS = {"voting": "soft", "order": "disjoint", "combine": "mean", "link": "identity"}
_CLAUSE = ("column", "sum", "at_most", "above", "holds", "fails")
_MOST_TREES = 2**31 - 1
_MOST_COUNTED = 2**63 - 1
_NO_CONDITIONS = ConditionTable(
    np.empty(0, np.int32),
    np.empty(0),
    np.empty(0),
    np.empty(0, np.bool_),
    np.empty(0, np.bool_),
    np.empty(0, np.int32),
    np.empty(0, np.int32),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.int32),
)


def without_rules(facts: dict[str, Any]) -> RuleList:
    """Return a rule list without rules, made from the header fields of the JSON.

    Raises
    ------
    JsonError
        If a field is invalid; names its path.
    """
    schema = _schema(facts)
    with At("trees"):
        n_trees = whole(facts.get("trees", Numeral("1")), 1, _MOST_TREES)
        units_per_tree(n_trees, schema.dtype)  # raises if a model cannot hold as many trees
    with At("exponent"):
        exponent = whole(facts.get("exponent", Numeral("0")), -1074, 1074)
    with At("tests"):
        reader = _Tests(schema)
        stated = enumerate(items(facts.get("tests", [])))
        tests = tuple(reader.read(number, test) for number, test in stated)
    listed = RuleList(
        schema=schema,
        missing=cast(MissingPolicy, _choice(facts, "missing", get_args(MissingPolicy))),
        unknown=cast(UnknownPolicy, _choice(facts, "unknown", get_args(UnknownPolicy))),
        voting=cast(Voting, _choice(facts, "voting", get_args(Voting))),
        costs=_costs(facts.get("costs"), schema),
        n_trees=n_trees,
        exponent=exponent,
        tests=tests,
        tree=np.empty(0, np.int32),
        leaf=np.empty(0, np.int32),
        support=np.empty(0),
        as_parent=np.empty(0, np.bool_),
        units=np.empty((0, schema.n_values), np.int64),
        end=np.empty(0, np.int64),
        conditions=_NO_CONDITIONS,
        combine=cast(Combine, _choice(facts, "combine", get_args(Combine))),
        link=cast(Link, _choice(facts, "link", get_args(Link))),
        order=cast(Order, _choice(facts, "order", get_args(Order))),
        decisions=_decisions(facts),
        rounding=_rounding(facts.get("rounding")),
    )
    votes = schema.task == "classification" and not listed.margins
    if (votes and exponent) or (not votes and listed.voting == "hard"):
        raise JsonError("votes need exponent 0, and numbers need voting 'soft'")
    if listed.decisions and not votes:
        raise JsonError("'decisions' needs rules that predict labels", ("decisions",))
    return listed


def _decisions(facts: dict[str, Any]) -> bool:
    return "decisions" in facts and flag(facts["decisions"], "decisions")


def _rounding(value: Any) -> Rounding | None:
    if value is None:
        return None
    with At("rounding"):
        stated = members(value, Rounding._fields)
        counts = []
        for key in Rounding._fields:
            with At(key):
                counts.append(whole(stated[key], int(key in ("digits", "rows")), _MOST_COUNTED))
        found = Rounding(*counts)
        if found.digits > MOST_DIGITS or max(found.shortened, found.longer) > found.thresholds:
            raise JsonError(f"digits are at most {MOST_DIGITS}, and counts at most thresholds")
        return found


def _choice(facts: dict[str, Any], key: str, choices: tuple[str, ...]) -> str:
    if key not in facts:
        return _DEFAULTS[key]
    with At(key):
        return string(facts[key], choices)


def _schema(facts: dict[str, Any]) -> Schema:
    targets = [_target(k, value) for k, value in enumerate(_listed(facts, "targets"))]
    columns = [_column(k, value) for k, value in enumerate(_listed(facts, "columns"))]
    marks: tuple[str, ...] = MISSING_MARKS
    if "missing_marks" in facts:
        with At("missing_marks"):
            marks = tuple(string(mark) for mark in items(facts["missing_marks"]))
    return Schema(
        columns=tuple(columns),
        target=targets[0].name,
        task="classification" if any(target.classes for target in targets) else "regression",
        classes=targets[0].classes,
        dtype=cast(Dtype, _choice(facts, "type", get_args(Dtype))),
        missing_marks=marks,
        more=tuple(targets[1:]),
    )


def _listed(facts: dict[str, Any], key: str) -> list[Any]:
    with At(key):
        if not items(facts[key]):
            raise JsonError("expected at least one element")
    return items(facts[key])


def _target(k: int, value: Any) -> Output:
    with At("targets", k):
        stated = members(value, ("name",), ("classes",))
        classes = tuple(label_of(label) for label in items(stated.get("classes", [])))
        return Output(string(stated["name"]), classes)


def _column(k: int, value: Any) -> Column:
    with At("columns", k):
        stated = members(value, ("name",), ("levels",))
        name = string(stated["name"])
        if "levels" not in stated:
            return Column(name)
        return Column(name, "nominal", tuple(string(level) for level in items(stated["levels"])))


def _costs(value: Any, schema: Schema) -> npt.NDArray[np.int64] | None:
    if value is None:
        return None
    with At("costs"):
        size = len(schema.classes)
        rows = [[whole(cost, 0, MAX_COST) for cost in items(row)] for row in items(value)]
        if [len(row) for row in rows] != [size] * size or schema.more or not size:
            raise JsonError("expected a square matrix over the classes of a single target")
        costs = np.array(rows, dtype=np.int64)
        if np.diagonal(costs).any():
            raise JsonError("the cost of a correct prediction must be 0")
        return costs


class _Tests:
    """Reader of tests on the columns of a schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.features = {column.name: k for k, column in enumerate(schema.columns)}

    def read(self, number: int, value: Any) -> Test:
        """Read one test."""
        clauses: list[Clause] = []
        with At(number):
            for at, stated in enumerate(items(value)):
                with At(at):
                    clause = members(stated, (), _CLAUSE)
                    levels = clause.keys() == {"column", "holds", "fails"}
                    clauses.append(self._levels(clause) if levels else self._sum(clause))
            if not clauses:
                raise JsonError("a test needs at least one clause")
        return tuple(clauses)

    def _sum(self, stated: dict[str, Any]) -> Linear:
        dtype = self.schema.dtype
        side = next((side for side in ("at_most", "above") if side in stated), "")
        below = int(side == "above")
        if stated.keys() == {"column", side}:
            at = read_numeral(numeral(stated[side]), dtype)
            return Linear((self._column(stated["column"], "numeric"),), (1.0,), at, below)
        if stated.keys() != {"sum", side}:
            raise JsonError(
                "a clause needs 'column' or 'sum' with 'at_most' or 'above', or 'column' with "
                "'holds' and 'fails'"
            )
        features, weights = [], []
        for place, term in enumerate(items(stated["sum"])):
            with At("sum", place):
                if len(items(term)) != 2:
                    raise JsonError("expected a term of a column and its weight")
                features.append(self._column(term[0], "numeric"))
                weights.append(read_numeral(numeral(term[1]), dtype))
        if not weights or 0.0 in weights:
            raise JsonError("a sum needs terms with weights other than 0")
        return Linear(tuple(features), tuple(weights), read_numeral(numeral(stated[side])), below)

    def _levels(self, stated: dict[str, Any]) -> Levels:
        feature = self._column(stated["column"], "nominal")
        codes = {level: code for code, level in enumerate(self.schema.columns[feature].levels)}
        branches = [-1] * len(codes)
        for branch, side in enumerate(("holds", "fails")):
            with At(side):
                for code in level_codes(codes, stated[side]):
                    if branches[code] >= 0:
                        raise JsonError("a category is in both 'holds' and 'fails'")
                    branches[code] = branch
        return Levels(feature, tuple(branches))

    def _column(self, name: Any, kind: str) -> int:
        feature = named(self.features, name, "a column")
        if self.schema.columns[feature].kind != kind:
            raise JsonError(f"{name!r} is not {kind}")
        return feature
