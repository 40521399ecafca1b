"""Laws of a pruner's `before`, judged by calling it as plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from treekit.contracts import Pruner, PrunerFunctions
from treekit.testing.bounds import BOUNDS, try_bounds
from treekit.testing.calls import ANSWERS, NUMBERS, REPEATS, WRITES, asked
from treekit.testing.examples import Counting, Example, examples, shown_call
from treekit.testing.laws import Test, broken, inapplicable
from treekit.testing.report import Law
from treekit.testing.training import Trainer

__all__ = ["BEFORE_GATES", "BEFORE_LAWS", "DOUBLING", "Subject"]

Arguments = tuple[Any, Any, Any, Any]


@dataclass(frozen=True)
class Subject:
    """A pruner, its functions, trainers with it, and how their rows are counted."""

    record: Pruner
    functions: PrunerFunctions
    settings: dict[str, Any]
    trainers: tuple[Trainer, ...]
    countings: tuple[Counting, ...]

    def questions(self) -> Iterator[tuple[Counting, Example, Arguments]]:
        """Every example, without held-out rows and with some, small ones first."""
        if self.functions.before is None:
            inapplicable("it has no `before`")
        for of in self.countings:
            for split in examples(of):
                nothing = np.zeros_like(split.children)
                held = np.ascontiguousarray(split.children[::-1])
                yield of, split, (split.parent, split.children, nothing[0], nothing)
                yield of, split, (split.parent, split.children, split.parent, held)

    def before(self, arguments: Arguments) -> bool:
        """What `before` says, checked."""
        assert self.functions.before is not None  # noqa: S101 - `questions` has seen to it
        said: bool = asked("before", self.functions.before, *arguments, kind=bool)
        return said


def _answers(subject: Subject) -> None:
    for _, _, arguments in subject.questions():
        subject.before(arguments)


def _repeats(subject: Subject) -> None:
    for _, _, arguments in subject.questions():
        first = subject.before(arguments)
        if subject.before(arguments) != first:
            broken(shown_call("before", *arguments), f"{first}, then {not first}", "one answer")


DOUBLING = Law(
    "doubling-weights-changes-nothing",
    "With every weight doubled the same splits are kept.",
    "absolute weights: compare shares (a test of significance declares this law)",
)


def _doubling(subject: Subject) -> None:
    for _, _, arguments in subject.questions():
        doubled: Any = tuple(2.0 * array for array in arguments)
        _same(subject, arguments, doubled)


BRANCHES = Law(
    "permuting-branches-changes-nothing",
    "Whether a split is made does not depend on the order of its branches.",
    "children that are told apart by their position",
)


def _branches(subject: Subject) -> None:
    for _, _, (parent, children, held, held_children) in subject.questions():
        turned = (
            np.ascontiguousarray(children[::-1]),
            held,
            np.ascontiguousarray(held_children[::-1]),
        )
        _same(subject, (parent, children, held, held_children), (parent, *turned))


EMPTY = Law(
    "empty-branches-change-nothing",
    "A branch without rows, training or held out, does not decide about a split.",
    "what is counted for each branch (degrees of freedom): skip those of no weight",
)


def _empty(subject: Subject) -> None:
    for of, _, (parent, children, held, held_children) in subject.questions():
        none = np.zeros((1, of.size))
        more = (parent, np.vstack([children, none]), held, np.vstack([held_children, none]))
        _same(subject, (parent, children, held, held_children), more)


def _same(subject: Subject, one: Arguments, other: Arguments) -> None:
    first, second = subject.before(one), subject.before(other)
    if first != second:
        got = f"{first}, and {second} for {shown_call('before', *other)}"
        broken(shown_call("before", *one), got, "the same")


def _bounds(subject: Subject) -> None:
    """Ask with every setting at its ends."""

    def use(functions: PrunerFunctions) -> None:
        other = replace(subject, functions=functions)
        if functions.before is not None:
            for _, _, arguments in islice(other.questions(), 200):
                other.before(arguments)

    try_bounds(subject.record, subject.settings, use)


BEFORE_GATES: tuple[tuple[Law, Test], ...] = (
    (ANSWERS, _answers),
    (NUMBERS, _answers),
    (WRITES, _answers),
    (REPEATS, _repeats),
)
BEFORE_LAWS: tuple[tuple[Law, Test], ...] = (
    (DOUBLING, _doubling),
    (BRANCHES, _branches),
    (EMPTY, _empty),
    (BOUNDS, _bounds),
)
