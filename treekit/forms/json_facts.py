"""What JSON that is not trusted says of a list before its rules."""

from __future__ import annotations

from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from treekit.data.schema import MISSING_MARKS, Column, Dtype, Output, Schema
from treekit.forms.json_conditions import label_of, level_codes, named
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
from treekit.model.fixed_point import units_per_tree
from treekit.model.links import Combine, Link
from treekit.model.model import MissingPolicy, UnknownPolicy, Voting
from treekit.model.validation import MAX_COST
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

__all__ = ["without_rules"]

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
    """The list that these facts describe, without its rules.

    Raises
    ------
    JsonError
        Names the place among the facts.
    """
    schema = _schema(facts)
    with At("trees"):
        n_trees = whole(facts.get("trees", Numeral("1")), 1, _MOST_TREES)
        units_per_tree(n_trees, schema.dtype)  # refuses more than a model holds
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
        raise JsonError("votes have no exponent, and numbers are not voted on")
    if listed.decisions and not votes:
        raise JsonError("only rules of labels can be decisions", ("decisions",))
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
            raise JsonError(f"digits are at most {MOST_DIGITS}, and no count is beyond thresholds")
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
            raise JsonError("at least one is needed")
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
            raise JsonError("costs are a row for each class of one target, a cost for each answer")
        costs = np.array(rows, dtype=np.int64)
        if np.diagonal(costs).any():
            raise JsonError("the cost of a right answer is 0")
        return costs


class _Tests:
    """Reads tests over the columns of a schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.features = {column.name: k for k, column in enumerate(schema.columns)}

    def read(self, number: int, value: Any) -> Test:
        """One test."""
        clauses: list[Clause] = []
        with At(number):
            for at, stated in enumerate(items(value)):
                with At(at):
                    clause = members(stated, (), _CLAUSE)
                    levels = clause.keys() == {"column", "holds", "fails"}
                    clauses.append(self._levels(clause) if levels else self._sum(clause))
            if not clauses:
                raise JsonError("a test has at least one clause")
        return tuple(clauses)

    def _sum(self, stated: dict[str, Any]) -> Linear:
        dtype = self.schema.dtype
        side = next((side for side in ("at_most", "above") if side in stated), "")
        below = int(side == "above")
        if stated.keys() == {"column", side}:
            at = read_numeral(numeral(stated[side]), dtype)
            return Linear((self._column(stated["column"], "numeric"),), (1.0,), at, below)
        if stated.keys() != {"sum", side}:
            raise JsonError("a clause states a column or a sum, and at_most or above; or levels")
        features, weights = [], []
        for place, term in enumerate(items(stated["sum"])):
            with At("sum", place):
                if len(items(term)) != 2:
                    raise JsonError("a term is a column and its weight")
                features.append(self._column(term[0], "numeric"))
                weights.append(read_numeral(numeral(term[1]), dtype))
        if not weights or 0.0 in weights:
            raise JsonError("a sum has terms, whose weights are not 0")
        return Linear(tuple(features), tuple(weights), read_numeral(numeral(stated[side])), below)

    def _levels(self, stated: dict[str, Any]) -> Levels:
        feature = self._column(stated["column"], "nominal")
        codes = {level: code for code, level in enumerate(self.schema.columns[feature].levels)}
        branches = [-1] * len(codes)
        for branch, side in enumerate(("holds", "fails")):
            with At(side):
                for code in level_codes(codes, stated[side]):
                    if branches[code] >= 0:
                        raise JsonError("a level both holds and fails")
                    branches[code] = branch
        return Levels(feature, tuple(branches))

    def _column(self, name: Any, kind: str) -> int:
        feature = named(self.features, name, "a column")
        if self.schema.columns[feature].kind != kind:
            raise JsonError(f"{name!r} is not {kind}")
        return feature
