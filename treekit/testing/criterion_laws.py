"""Laws of a criterion's functions, judged by calling them as plain Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from treekit.contracts import Criterion, CriterionFunctions, Layout
from treekit.testing import criterion_training as training
from treekit.testing.bounds import BOUNDS, try_bounds
from treekit.testing.calls import ANSWERS, FINITE, NUMBERS, REPEATS, WRITES, asked
from treekit.testing.compiling import COMPILED, Machine, compiled_equal
from treekit.testing.examples import Counting, Example, examples, shown_call, shown_numbers
from treekit.testing.laws import Test, broken, inapplicable
from treekit.testing.report import Law
from treekit.testing.training import Trainer

__all__ = ["GATES", "LAWS", "TREE_LAWS", "Subject"]


@dataclass(frozen=True)
class Subject:
    """A criterion, and how its rows are counted.

    Attributes
    ----------
    record : Criterion
    functions : CriterionFunctions
    settings : dict
    countings : tuple of Counting
        Few cells first.
    trainer : Trainer
    layout : Layout or None
        Of the criterion's task.
    machine : Machine
        The functions as numba compiles them.
    """

    record: Criterion
    functions: CriterionFunctions
    settings: dict[str, Any]
    countings: tuple[Counting, ...]
    trainer: Trainer
    layout: Layout | None = None
    machine: Machine = field(default_factory=Machine)

    def splits(self) -> Iterator[tuple[Counting, Example]]:
        """Every example of every size of statistics, small ones first."""
        for of in self.countings:
            for example in examples(of):
                yield of, example

    def impurity(self, stats: Any) -> float:
        """The impurity of a node, checked."""
        value: float = asked("impurity", _given(self.functions.impurity), stats)
        return value

    def score(self, parent: Any, children: Any) -> float:
        """The score of a split, checked."""
        value: float = asked("score", _given(self.functions.score), parent, children)
        return value

    def measures(self, split: Example) -> Iterator[tuple[str, tuple[Any, ...], float]]:
        """Name, arguments and value of what the criterion says of a split."""
        if self.functions.impurity is not None:
            yield "impurity", (split.parent,), self.impurity(split.parent)
        if self.functions.score is not None:
            arguments = (split.parent, split.children)
            yield "score", arguments, self.score(*arguments)


def _given(function: Callable[..., Any] | None) -> Callable[..., Any]:
    assert function is not None  # noqa: S101 - asked for by name, for the type checker
    return function


def _answers(subject: Subject) -> None:
    """Call every function on every example: `asked` judges."""
    functions = subject.functions
    for _, split in subject.splits():
        for _ in subject.measures(split):
            pass
        for name in ("order", "leaf_value", "priority"):
            function = getattr(functions, name)
            if function is not None:
                asked(name, function, split.parent)
        if functions.loss is not None:
            for judged in split.children:
                asked("loss", functions.loss, split.parent, judged, inf=True)
    if functions.penalty is not None:
        for candidates, weight in ((1, 1.0), (2, 0.5), (1000, 1e6)):
            asked("penalty", functions.penalty, candidates, weight)


def _repeats(subject: Subject) -> None:
    for _, split in subject.splits():
        for name, arguments, value in subject.measures(split):
            again = asked(name, getattr(subject.functions, name), *arguments)
            if again != value:
                broken(shown_call(name, *arguments), f"{value!r}, then {again!r}", "one answer")


PURITY = Law(
    "purity-is-zero",
    "A node whose rows all say the same has impurity 0, and no split of it scores.",
    "the value at the statistics of one class (or one number) only",
)


def _purity(subject: Subject) -> None:
    if subject.layout is not None:
        inapplicable("what its rows say is known to its task only")
    for _, split in subject.splits():
        if split.pure:
            for name, arguments, value in subject.measures(split):
                if abs(value) > split.noise:
                    broken(shown_call(name, *arguments), repr(value), "0")


NOT_NEGATIVE = Law(
    "impurity-is-not-negative",
    "No node has an impurity below 0.",
    "signs, and differences that cancel: 1 - sum(p * p) and not sum(p * p) - 1",
)


def _not_negative(subject: Subject) -> None:
    if subject.functions.impurity is None:
        inapplicable("it has no impurity")
    for _, split in subject.splits():
        value = subject.impurity(split.parent)
        if value < -split.noise:
            broken(shown_call("impurity", split.parent), repr(value), "0 or more")


CONCAVE = Law(
    "splitting-never-mixes",
    "No split leaves its branches more impure, on the average by weight, than their node was.",
    "classes weighed anew inside `impurity`: branches are averaged by the weight of their rows, "
    "so write a `score`, which weighs them as it likes",
)


def _concave(subject: Subject) -> None:
    if subject.functions.impurity is None:
        inapplicable("it has no impurity")
    for of, split in subject.splits():
        weights = split.children[:, 0] if of.dense else split.children.sum(axis=1)
        left = sum(
            weight * subject.impurity(child)
            for weight, child in zip(weights, split.children, strict=True)
            if weight > 0.0
        )
        before = subject.impurity(split.parent)
        if left / weights.sum() > before + split.noise + 1e-9 * abs(before):
            call = f"{shown_call('impurity', split.parent)} split into "
            got = f"{before!r}, and {left / weights.sum()!r} after the split"
            broken(call + shown_numbers(split.children), got, "no more after it")


USELESS = Law(
    "useless-split-scores-zero",
    "A split whose branches are mixed as their node is scores 0.",
    "what the score subtracts: it compares branches with the node, or with each other",
)


def _useless(subject: Subject) -> None:
    if subject.functions.score is None:
        inapplicable("its score is the decrease of its impurity")
    for _, split in subject.splits():
        if split.useless:
            value = subject.score(split.parent, split.children)
            if abs(value) > split.noise:
                broken(shown_call("score", split.parent, split.children), repr(value), "0")


LARGER = Law(
    "larger-is-better",
    "A split that tells all rows apart scores above 0, and above every split that mixes them.",
    "the sign of the score, and the direction of each of its terms",
)


def _larger(subject: Subject) -> None:
    if subject.layout is not None:
        inapplicable("which rows should part is known to its task only")
    if subject.functions.score is None:
        inapplicable("its score is the decrease of its impurity")
    for of in subject.countings:
        two = [e for e in examples(of) if len(e.branches) == 2 and all(e.branches)]
        perfect = {split.rows: split for split in two if _tells_apart(split)}
        for split in two:
            best = perfect.get(split.rows)
            if best is None:
                continue
            call = shown_call("score", best.parent, best.children)
            most = subject.score(best.parent, best.children)
            value = subject.score(split.parent, split.children)
            if most <= split.noise:
                broken(call, repr(most), "a number above 0")
            if value > most + split.noise:
                other = shown_numbers(split.children)
                broken(call, f"{most!r}, and {value!r} for {other}", "the larger of the two")


def _tells_apart(split: Example) -> bool:
    """Whether each of two branches holds one target, and not the same."""
    left, right = ({target for target, _ in branch} for branch in split.branches)
    return len(left) == len(right) == 1 and left != right


DOUBLING = Law(
    "doubling-weights-changes-nothing",
    "With every weight doubled, impurity, score and leaf value stay as they are.",
    "absolute weights: divide by the node's weight (a test of significance declares this law)",
)


def _doubling(subject: Subject) -> None:
    for of, split in subject.splits():
        doubled = _twice(of, split)
        for (name, arguments, value), (_, twice, other) in zip(
            subject.measures(split), subject.measures(doubled), strict=True
        ):
            if abs(other - value) > split.noise + 1e-9 * abs(value):
                call = shown_call(name, *arguments)
                broken(call, f"{value!r}, and {other!r} for {shown_call(name, *twice)}", "the same")
        leaf_value = subject.functions.leaf_value
        if leaf_value is not None:
            value = asked("leaf_value", leaf_value, split.parent)
            other = asked("leaf_value", leaf_value, doubled.parent)
            if abs(other - value) > 1e-9 * max(1.0, abs(value)):
                call = shown_call("leaf_value", split.parent)
                broken(call, f"{value!r}, and {other!r} at twice the weight", "the same")


def _twice(of: Counting, split: Example) -> Example:
    times = np.full(of.size, 2.0)
    if not of.additive:
        times[1] = 1.0  # a quantile is no sum
    return Example(split.branches, split.parent * times, split.children * times, split.noise)


CLASSES = Law(
    "permuting-classes-changes-nothing",
    "Classes are alike: in another order they give the same impurity and score.",
    "cells that are treated by their position (a criterion with costs of classes declares this)",
)


def _classes(subject: Subject) -> None:
    if not subject.countings[0].classes:
        inapplicable("its statistics are not those of classes")
    for of, split in subject.splits():
        for turn in range(1, of.size):
            moved = Example(
                split.branches,
                np.roll(split.parent, turn),
                np.ascontiguousarray(np.roll(split.children, turn, axis=1)),
                split.noise,
            )
            _same(subject, split, moved)


BRANCHES = Law(
    "permuting-branches-changes-nothing",
    "A split scores the same whatever the order of its branches.",
    "children that are told apart by their position",
)


def _branches(subject: Subject) -> None:
    if subject.functions.score is None:
        inapplicable("its score is the decrease of its impurity")
    for _, split in subject.splits():
        moved = np.ascontiguousarray(split.children[::-1])
        _same(subject, split, Example(split.branches, split.parent, moved, split.noise))


EMPTY = Law(
    "empty-branches-change-nothing",
    "A branch without rows adds nothing to a score: levels may be absent from a node.",
    "what is counted for each branch: skip those of no weight",
)


def _empty(subject: Subject) -> None:
    if subject.functions.score is None:
        inapplicable("its score is the decrease of its impurity")
    for of, split in subject.splits():
        more = np.vstack([split.children, np.zeros((1, of.size))])
        _same(subject, split, Example(split.branches, split.parent, more, split.noise))


def _same(subject: Subject, one: Example, other: Example) -> None:
    for (name, arguments, value), (_, moved, again) in zip(
        subject.measures(one), subject.measures(other), strict=True
    ):
        if abs(again - value) > one.noise + 1e-9 * abs(value):
            got = f"{value!r}, and {again!r} for {shown_call(name, *moved)}"
            broken(shown_call(name, *arguments), got, "the same")


LOSS = Law(
    "loss-adds-up",
    "The loss of rows asked together is the sum of their losses.",
    "`judged`: statistics, whose weight stands for that many rows",
)


def _loss(subject: Subject) -> None:
    loss = subject.functions.loss
    if loss is None:
        inapplicable("it has no loss of its own")
    if not subject.countings[0].additive:
        inapplicable("quantiles of rows do not add up")
    for _, split in subject.splits():
        together = asked("loss", loss, split.parent, split.parent, inf=True)
        apart = sum(asked("loss", loss, split.parent, child, inf=True) for child in split.children)
        if together != apart and not abs(together - apart) <= split.noise + 1e-9 * abs(together):
            call = shown_call("loss", split.parent, split.parent)
            broken(call, f"{together!r}, and {apart!r} for its branches", "the same")


CHOICE = Law(
    "chooses-among-columns",
    "`choose` gives the position of a column that has a split, or -1.",
    "columns whose gain is NaN: they have no split, and there may be no other",
)


def _choice(subject: Subject) -> None:
    choose = subject.functions.choose
    if choose is None:
        inapplicable("it does not choose between columns")
    nan = np.nan
    for gains in ([nan], [0.0], [0.5], [nan, 0.5], [0.5, nan], [0.2, 0.5], [0.0, 0.0],
                  [0.5, 0.5], [nan, nan, nan], [1e-15, nan, 0.3, 0.3]):  # fmt: skip
        given = [np.array(gains), 2.0 * np.array(gains), np.zeros(len(gains))]
        pick = asked("choose", choose, *given, kind=int)
        offered = -1 <= pick < len(gains) and (pick < 0 or not np.isnan(gains[pick]))
        if not offered:
            broken(shown_call("choose", *given), pick, "a column whose gain is a number, or -1")


def _bounds(subject: Subject) -> None:
    """Call the functions with every setting at its ends."""
    try_bounds(
        subject.record,
        subject.settings,
        lambda functions: _answers(replace(subject, functions=functions)),
        subject.layout,
    )


def _by_training(test: Test) -> Test:
    return lambda subject: test(subject.trainer)


GATES: tuple[tuple[Law, Test], ...] = (
    (ANSWERS, _answers),
    (NUMBERS, _answers),
    (FINITE, _answers),
    (WRITES, _answers),
    (REPEATS, _repeats),
)
"""What must hold before anything else can be judged."""

LAWS: tuple[tuple[Law, Test], ...] = (
    (PURITY, _purity),
    (NOT_NEGATIVE, _not_negative),
    (CONCAVE, _concave),
    (USELESS, _useless),
    (LARGER, _larger),
    (DOUBLING, _doubling),
    (CLASSES, _classes),
    (BRANCHES, _branches),
    (EMPTY, _empty),
    (LOSS, _loss),
    (CHOICE, _choice),
    (BOUNDS, _bounds),
    (COMPILED, compiled_equal),
)
TREE_LAWS: tuple[tuple[Law, Test], ...] = tuple(
    (law, _by_training(test))
    for law, test in (
        *training.TRAINING_LAWS,
        (DOUBLING, training.doubled),
        (CLASSES, training.classes_permuted),
    )
)
"""What costs trainings, and is judged when the functions are in order."""
