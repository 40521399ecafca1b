"""The facts that the header of a text of rules states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Dtype, Label, Output, Schema
from treekit.model.fixed_point import MASS, units_per_tree
from treekit.model.links import Combine, Link
from treekit.model.model import MissingPolicy, UnknownPolicy, Voting, units_each
from treekit.model.validation import MAX_COST
from treekit.rules.clauses import Test
from treekit.rules.language import Language
from treekit.rules.patterns import SHARE, WHOLE, Atoms, Patterns, cut
from treekit.rules.read_phrases import TestReader
from treekit.rules.records import Rounding
from treekit.rules.rulelist import Order
from treekit.rules.words import read_label, read_name

__all__ = ["Facts", "Lines", "read_header"]


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
    decisions: bool = False
    rounding: Rounding | None = None

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

    def __init__(self, text: str, words: Language) -> None:
        self.lines = text.split("\n")
        self.words = words
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
        line, start = self.next(), self.words.facts[key]
        if not line.startswith(start):
            raise ValueError(f"expected {start.rstrip()!r}")
        return line[len(start) :]

    def states(self, key: str) -> bool:
        """Whether the next line states `key`."""
        return self.begins(self.words.facts[key])

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
    if lines.lines[:2] != [lines.words.first_line, ""]:
        raise ValueError(
            f"a text of rules begins with {lines.words.first_line!r} and an empty line"
        )
    read = _Named(lines)
    (target, *more), task = read.targets()
    columns = tuple(read.column(line) for line in lines.counted("columns"))
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
    if lines.states("tests"):
        tests = read.tests(schema)
        lines.skip_words()
    n_trees = int(_stated(lines, "trees"))
    units_per_tree(n_trees, schema.dtype)  # refuses more than a model holds
    order = _stated(lines, "order") if lines.states("order") else "disjoint"
    if order not in get_args(Order):
        raise ValueError(f"unknown order {order!r}")
    costs = read.costs(schema) if lines.states("costs") else None
    combine = lines.fact("combine") if lines.states("combine") else "mean"
    decisions = lines.states("says")
    if decisions and _stated(lines, "says") != "labels":
        raise ValueError("rules say labels, or labels and numbers")
    in_steps = task == "regression" or combine == "sum"
    votes = _stated(lines, "step" if in_steps else "votes")
    exponent = int(votes.removeprefix("2**")) if in_steps else 0
    if abs(exponent) > 1074:
        raise ValueError("the step is not a double")
    link = _stated(lines, "link") if lines.states("link") else "identity"
    if combine not in get_args(Combine) or link not in get_args(Link):
        raise ValueError(f"unknown way to combine {combine!r}, or link {link!r}")
    rounding = read.rounding() if lines.states("digits") else None
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
        decisions=decisions,
        rounding=rounding,
    )


def _stated(lines: Lines, key: str) -> str:
    """A fact with an explanation behind it."""
    value = lines.fact(key)
    lines.skip_words()
    return value


class _Named:
    """Reads the lines of the header that hold names."""

    def __init__(self, lines: Lines) -> None:
        self.lines, self.words, self.atoms = lines, lines.words, Atoms(lines.words)
        atoms, comma = self.atoms, self.words.phrases["if_comma"]
        known = {"name": atoms.name, "levels": atoms.listed, "costs": ".+", "label": atoms.label}
        keys = ("head_number", "head_levels", "head_no_levels")
        self.kinds = Patterns(self.words, keys, known)
        self.cost = Patterns(self.words, ("head_cost",), known)
        known |= {"share": SHARE, "test": atoms.test, "clauses": ".+"}
        self.share = Patterns(self.words, ("rule_share",), known)
        self.test = Patterns(self.words, ("head_test",), known)
        self.comma = comma

    def targets(self) -> tuple[list[Output], Literal["classification", "regression"]]:
        """The targets, and the task that they make."""
        lines = self.lines
        if not lines.states("targets"):
            name, stated = read_name(lines.fact("target")), lines.fact("classes")
            if stated == self.words.phrases["head_regression"]:
                return [Output(name)], "regression"
            return [Output(name, self.labels(stated))], "classification"
        outputs = []
        for line in lines.counted("targets"):
            key, fields = self.kind(line)
            classes = self.labels(fields["levels"]) if key == "head_levels" else ()
            outputs.append(Output(read_name(fields["name"]), classes))
        return outputs, "classification" if any(o.classes for o in outputs) else "regression"

    def labels(self, text: str) -> tuple[Label, ...]:
        """Class labels in their order."""
        return tuple(read_label(token) for token in cut(text, self.comma))

    def kind(self, line: str) -> tuple[str, dict[str, str]]:
        """What a line says that a name holds."""
        found = self.kinds.read(line[2:]) if line.startswith("  ") else None
        if found is None:
            raise ValueError("expected a name and what it holds")
        return found

    def column(self, line: str) -> Column:
        """A column."""
        key, fields = self.kind(line)
        name = read_name(fields["name"])
        if key == "head_number":
            return Column(name)
        levels = cut(fields["levels"], self.comma) if key == "head_levels" else ()
        return Column(name, "nominal", tuple(read_name(level) for level in levels))

    def rounding(self) -> Rounding:
        """What was done to the thresholds."""
        counts = dict.fromkeys(Rounding._fields, WHOLE)
        digits = int(self.lines.fact("digits"))
        found = Patterns(self.words, ("head_rounded",), counts).read(self.lines.next()[2:])
        if found is None:
            raise ValueError("expected what was done to the thresholds")
        self.lines.skip_words()
        return Rounding(digits, **{field: int(text) for field, text in found[1].items()})

    def tests(self, schema: Schema) -> tuple[Test, ...]:
        """What rules ask beyond single columns."""
        reader, tests = TestReader(schema, self.words), []
        for number, line in enumerate(self.lines.counted("tests"), 1):
            found = self.test.read(line.removeprefix("  "))
            if not found or found[1]["test"] != self.words.say("test_name", number=str(number)):
                raise ValueError(f"expected test {number}")
            tests.append(reader.read(found[1]["clauses"]))
        return tuple(tests)

    def costs(self, schema: Schema) -> npt.NDArray[np.int64]:
        """The table of costs: every class in order, and for each the cost of every answer."""
        rows = []
        for line, label in zip(self.lines.counted("costs"), schema.classes, strict=True):
            found = self.cost.read(line.removeprefix("  "))
            if found is None or read_label(found[1]["label"]) != label:
                raise ValueError("expected the costs of each class in order")
            said = [
                self.share.read(part)
                for part in cut(found[1]["costs"], self.words.phrases["rule_comma"])
            ]
            pairs = [part[1] for part in said if part is not None]
            if [read_label(pair["label"]) for pair in pairs] != list(schema.classes):
                raise ValueError("expected the cost of each answer in order")
            rows.append([int(pair["share"]) for pair in pairs])
        costs = np.array(rows, dtype=np.int64)
        if np.diagonal(costs).any() or costs.max(initial=0) > MAX_COST or schema.more:
            raise ValueError(
                f"costs are from 0 to {MAX_COST}, 0 for a right answer, for one target"
            )
        return costs
