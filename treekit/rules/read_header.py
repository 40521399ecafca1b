"""The facts that the header of a text of rules states."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Dtype, Label, Output, Schema
from treekit.model.ensemble import MissingPolicy, UnknownPolicy, Voting
from treekit.model.links import Combine, Link
from treekit.model.policies import MAX_COST
from treekit.model.portable import MASS, units_per_tree
from treekit.model.votes import units_each
from treekit.rules.clauses import Test
from treekit.rules.header import FIRST_LINE
from treekit.rules.read_phrases import LABEL, SET, read_pairs, read_set, read_test
from treekit.rules.rulelist import Order
from treekit.rules.words import NAME, read_label, read_name

__all__ = ["Facts", "Lines", "read_header"]

_COLUMN = re.compile(rf"  ({NAME}): (?:(a number)|one of ({SET}))")
_LABELS = rf"{LABEL}(?:, {LABEL})*"
_TARGET = re.compile(rf"  ({NAME}): (?:(a number)|one of ({_LABELS}))")
_COST = re.compile(rf"  when it is ({LABEL}), what each answer costs   (.+)")


@dataclass(frozen=True)
class Facts:
    """The facts, as `treekit.rules.rulelist.RuleList` names them."""

    schema: Schema
    missing: MissingPolicy
    unknown: UnknownPolicy
    voting: Voting
    costs: npt.NDArray[np.int64] | None
    n_trees: int
    exponent: int
    tests: tuple[Test, ...]
    n_rules: int
    combine: Combine
    link: Link
    order: Order = "disjoint"

    @property
    def mass(self) -> int:
        """What a row weighs."""
        return MASS if self.missing == "fractional" else 1

    @property
    def margins(self) -> bool:
        """Whether rules add to margins of the classes."""
        return self.schema.task == "classification" and self.combine == "sum"

    @property
    def units_each(self) -> int:
        """Votes of one rule."""
        return units_each(self)


class Lines:
    """One pass over the lines of a text; `at` is the number of the next one."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.at = 0

    def next(self) -> str:
        """Take the next line."""
        if self.at >= len(self.lines):
            raise ValueError("the text ends too early")
        self.at += 1
        return self.lines[self.at - 1]

    def begins(self, start: str) -> bool:
        """Whether the next line begins so."""
        return self.at < len(self.lines) and self.lines[self.at].startswith(start)

    def fact(self, key: str) -> str:
        """What the next line states for `key`."""
        line = self.next()
        if not line.startswith(f"{key:<9}"):
            raise ValueError(f"expected {key!r}")
        return line[9:]

    def counted(self, key: str) -> list[str]:
        """As many lines as the next one states for `key`."""
        return [self.next() for _ in range(int(self.fact(key)))]

    def skip_words(self) -> None:
        """Pass explanations."""
        while self.begins("  "):
            self.at += 1


def read_header(lines: Lines) -> Facts:
    """The facts of a header; ValueError or KeyError if it is none."""
    lines.at = 2
    if lines.lines[:2] != [FIRST_LINE, ""]:
        raise ValueError(f"a text of rules begins with {FIRST_LINE!r} and an empty line")
    (target, *more), task = _targets(lines)
    columns = tuple(_column(line) for line in lines.counted("columns"))
    dtype = lines.fact("type")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"unknown type {dtype!r}")
    schema = Schema(
        columns=columns,
        target=target.name,
        task=task,
        classes=target.classes,
        dtype=cast(Dtype, dtype),
        more=tuple(more),
    )
    lines.skip_words()
    missing, unknown = _stated(lines, "missing"), _stated(lines, "unknown")
    tests: tuple[Test, ...] = ()
    if lines.begins("tests "):
        stated = enumerate(lines.counted("tests"), 1)
        tests = tuple(read_test(_numbered(line, number), schema) for number, line in stated)
        lines.skip_words()
    n_trees = int(_stated(lines, "trees"))
    units_per_tree(n_trees, schema.dtype)  # refuses more than a model holds
    order = _stated(lines, "order") if lines.begins("order ") else "disjoint"
    if order not in get_args(Order):
        raise ValueError(f"unknown order {order!r}")
    costs = _costs(lines, schema) if lines.begins("costs ") else None
    combine = lines.fact("combine") if lines.begins("combine ") else "mean"
    in_steps = task == "regression" or combine == "sum"
    votes = _stated(lines, "step" if in_steps else "votes")
    exponent = int(votes.removeprefix("2**")) if in_steps else 0
    if abs(exponent) > 1074:
        raise ValueError("the step is not a double")
    link = _stated(lines, "link") if lines.begins("link ") else "identity"
    if combine not in get_args(Combine) or link not in get_args(Link):
        raise ValueError(f"unknown way to combine {combine!r}, or link {link!r}")
    n_rules = int(lines.fact("rules"))
    if not 0 < n_rules <= len(lines.lines):
        raise ValueError("the number of rules is not that of the text")
    return Facts(
        schema=schema,
        missing=cast(MissingPolicy, missing),
        unknown=cast(UnknownPolicy, unknown),
        voting="hard" if votes == "1" else "soft",
        costs=costs,
        n_trees=n_trees,
        exponent=exponent,
        tests=tests,
        n_rules=n_rules,
        combine=cast(Combine, combine),
        link=cast(Link, link),
        order=cast(Order, order),
    )


def _stated(lines: Lines, key: str) -> str:
    """A fact with an explanation behind it."""
    value = lines.fact(key)
    lines.skip_words()
    return value


def _targets(lines: Lines) -> tuple[list[Output], Literal["classification", "regression"]]:
    if not lines.begins("targets "):
        name, stated = read_name(lines.fact("target")), lines.fact("classes")
        if stated.startswith("none:"):
            return [Output(name)], "regression"
        return [Output(name, _labels(stated))], "classification"
    outputs = []
    for line in lines.counted("targets"):
        match = _TARGET.fullmatch(line)
        if match is None:
            raise ValueError("expected a target")
        outputs.append(Output(read_name(match[1]), () if match[2] else _labels(match[3])))
    return outputs, "classification" if any(o.classes for o in outputs) else "regression"


def _labels(text: str) -> tuple[Label, ...]:
    if not re.fullmatch(_LABELS, text):
        raise ValueError("expected class labels")
    return tuple(read_label(match[0]) for match in re.finditer(LABEL, text))


def _column(line: str) -> Column:
    match = _COLUMN.fullmatch(line)
    if match is None:
        raise ValueError("expected a column")
    name = read_name(match[1])
    return Column(name) if match[2] else Column(name, "nominal", tuple(read_set(match[3])))


def _numbered(line: str, number: int) -> str:
    """What stands behind the number of a test."""
    start = f"  test {number}: "
    if not line.startswith(start):
        raise ValueError(f"expected test {number}")
    return line[len(start) :]


def _costs(lines: Lines, schema: Schema) -> npt.NDArray[np.int64]:
    """The table of costs: every class in order, and for each the cost of every answer."""
    rows = []
    for line, label in zip(lines.counted("costs"), schema.classes, strict=True):
        match = _COST.fullmatch(line)
        if match is None or read_label(match[1]) != label:
            raise ValueError("expected the costs of each class in order")
        said = list(read_pairs(match[2]))
        if [read_label(other) for other, _ in said] != list(schema.classes):
            raise ValueError("expected the cost of each answer in order")
        rows.append([int(cost) for _, cost in said])
    costs = np.array(rows, dtype=np.int64)
    if np.diagonal(costs).any() or costs.max(initial=0) > MAX_COST or schema.more:
        raise ValueError(f"costs are from 0 to {MAX_COST}, 0 for a right answer, for one target")
    return costs
