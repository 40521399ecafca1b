"""Interface of the learners, and the work they do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.data import Rows

__all__ = ["Learner", "Work"]


@dataclass(frozen=True)
class Work:
    """Description of a model to grow, independent of a library.

    Attributes
    ----------
    trees : int
        1: one tree on all rows. More: a forest, each tree on a bootstrap sample.
    depth : int or None
        None: fully grown, every leaf pure or of one row.
    tried : {"sqrt", "all"}
        Columns that each node tries.
    random : bool
        Extremely randomised: one random threshold per column, no bootstrap.
    absolute : bool
        For regression: least absolute error instead of least squares.
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
        """Return the fields as JSON values."""
        return asdict(self)

    @property
    def forest(self) -> bool:
        """Whether the model is a forest."""
        return self.trees > 1 or self.random


class Learner(ABC):
    """Learner of one side. Only `fit` is timed, including its preparation of `given`.

    Attributes
    ----------
    whole_warm_up : bool
        Whether the warm-up needs all rows, because compiled code depends on the number of
        distinct values of a column; else it gets the first thousand.
    """

    whole_warm_up = False

    def refuses(self, work: Work) -> str:  # noqa: ARG002 - most do all work
        """Return the reason why the side does not support this work; empty if it does."""
        return ""

    @abstractmethod
    def given(self, rows: Rows) -> Any:
        """Return the table in the library's usual input format, before timing."""

    @abstractmethod
    def fit(self, work: Work, given: Any, rows: Rows) -> Any:
        """Fit a model; `rows` holds the target and its kind."""

    @abstractmethod
    def answers(self, model: Any, given: Any) -> Any:
        """Predict labels or numbers, (rows,)."""

    @abstractmethod
    def leaves(self, model: Any) -> int:
        """Count the leaves of all trees."""

    def megabytes(self, model: Any) -> float | None:  # noqa: ARG002 - not all can tell
        """Return the megabytes of the trees' arrays; None if the library does not expose them."""
        return None
