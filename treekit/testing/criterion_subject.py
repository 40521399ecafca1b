"""A criterion under judgement: its functions, asked with care, and examples to ask about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from treekit.contracts import Criterion, CriterionFunctions, Layout
from treekit.testing.calls import asked
from treekit.testing.compiling import Machine
from treekit.testing.examples import Counting, Example, examples, shown_call
from treekit.testing.laws import broken
from treekit.testing.training import Trainer

__all__ = ["Subject"]


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

    def same(self, one: Example, other: Example) -> None:
        """A breach of the law under test unless two examples measure alike."""
        for (name, arguments, value), (_, moved, again) in zip(
            self.measures(one), self.measures(other), strict=True
        ):
            if abs(again - value) > one.noise + 1e-9 * abs(value):
                got = f"{value!r}, and {again!r} for {shown_call(name, *moved)}"
                broken(shown_call(name, *arguments), got, "the same")


def _given(function: Callable[..., Any] | None) -> Callable[..., Any]:
    assert function is not None  # noqa: S101 - asked for by name, for the type checker
    return function
