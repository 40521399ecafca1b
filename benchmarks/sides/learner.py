"""What is asked of every side that learns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.data import Rows

__all__ = ["Learner", "Work"]


@dataclass(frozen=True)
class Work:
    """A model to be grown, said without any library's words.

    Attributes
    ----------
    trees : int
        1: one tree on all rows.  More: a forest, each tree on a bootstrap sample.
    depth : int or None
        None: fully grown, every leaf pure or of one row.
    tried : {"sqrt", "all"}
        Columns that each node tries.
    random : bool
        Extremely randomised: one random threshold a column, no bootstrap.
    absolute : bool
        Numbers: least absolute error in place of least squares.
    threads, seed : int
    """

    trees: int = 1
    depth: int | None = None
    tried: str = "all"
    random: bool = False
    absolute: bool = False
    threads: int = 2
    seed: int = 0

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @property
    def forest(self) -> bool:
        """Whether many trees are asked for, each on a sample."""
        return self.trees > 1 or self.random


class Learner(ABC):
    """One side.  Only `fit` is on the clock; its cost includes all the side makes of `given`.

    Attributes
    ----------
    whole_warm_up : bool
        The warm-up sees all rows, since what is compiled depends on how many
        different numbers a column has; else the first thousand.
    """

    whole_warm_up = False

    def refuses(self, work: Work) -> str:  # noqa: ARG002 - most do all work
        """Why the side cannot do this work; empty if it can."""
        return ""

    @abstractmethod
    def given(self, rows: Rows) -> Any:
        """The table as the library's users hold it, before the clock starts."""

    @abstractmethod
    def fit(self, work: Work, given: Any, rows: Rows) -> Any:
        """A fitted model; `rows` tells the target and its kind."""

    @abstractmethod
    def answers(self, model: Any, given: Any) -> Any:
        """(rows,) labels or numbers."""

    @abstractmethod
    def leaves(self, model: Any) -> int:
        """Leaves of all trees."""

    def megabytes(self, model: Any) -> float | None:  # noqa: ARG002 - not all can tell
        """What the arrays of the trees hold; None if the library does not tell."""
        return None
