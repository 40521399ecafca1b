"""Laws of a criterion's functions, judged by calling them as plain Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treekit.testing.bounds import BOUNDS, try_bounds
from treekit.testing.calls import ANSWERS, FINITE, NUMBERS, REPEATS, WRITES, asked
from treekit.testing.compiling import COMPILED, compiled_equal
from treekit.testing.criterion_subject import Subject
from treekit.testing.criterion_training import TRAINING_LAWS, classes_permuted, doubled
from treekit.testing.examples import Counting, Example, shown_call, shown_numbers
from treekit.testing.laws import Test, broken, inapplicable
from treekit.testing.report import Law
from treekit.testing.score_laws import BRANCH_LAWS, SCORE_LAWS

__all__ = ["GATES", "LAWS", "TREE_LAWS"]


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
        if before < -split.noise:  # upside down: mixing is what it takes for order
            broken(shown_call("impurity", split.parent), repr(before), "0 or more",
                   law=NOT_NEGATIVE.name)  # fmt: skip
        after = float(left / weights.sum())
        if after > before + split.noise + 1e-9 * abs(before):
            call = f"{shown_call('impurity', split.parent)} split into "
            got = f"{before!r}, and {after!r} after the split"
            broken(call + shown_numbers(split.children), got, "no more after it")


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
            subject.same(split, moved)


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
    *SCORE_LAWS,
    (DOUBLING, _doubling),
    (CLASSES, _classes),
    *BRANCH_LAWS,
    (LOSS, _loss),
    (CHOICE, _choice),
    (BOUNDS, _bounds),
    (COMPILED, compiled_equal),
)
TREE_LAWS: tuple[tuple[Law, Test], ...] = tuple(
    (law, _by_training(test))
    for law, test in (
        *TRAINING_LAWS,
        (DOUBLING, doubled),
        (CLASSES, classes_permuted),
    )
)
"""What costs trainings, and is judged when the functions are in order."""
