"""Laws of a criterion's `score`, which compares the branches of a split with their node."""

from __future__ import annotations

import numpy as np

from treekit.testing.criterion_subject import Subject
from treekit.testing.examples import Example, examples, shown_call, shown_numbers
from treekit.testing.laws import Test, broken, inapplicable
from treekit.testing.report import Law

__all__ = ["BRANCH_LAWS", "SCORE_LAWS"]

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
        subject.same(split, Example(split.branches, split.parent, moved, split.noise))


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
        subject.same(split, Example(split.branches, split.parent, more, split.noise))


SCORE_LAWS: tuple[tuple[Law, Test], ...] = ((USELESS, _useless), (LARGER, _larger))
"""What a score says of the best splits and of the worst."""

BRANCH_LAWS: tuple[tuple[Law, Test], ...] = ((BRANCHES, _branches), (EMPTY, _empty))
"""What a score makes of the order and the number of branches."""
