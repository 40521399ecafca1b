"""The parts of an explanation, as plain records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from treekit.data.schema import Label

if TYPE_CHECKING:
    from treekit.rules.explain.walk import Why

__all__ = [
    "Change",
    "Changed",
    "Changes",
    "Clause",
    "Ending",
    "Given",
    "Said",
    "Step",
    "Sums",
    "Votes",
]


@dataclass(frozen=True)
class Given:
    """One cell of the row.

    Attributes
    ----------
    column : str
    text : str, optional
        As it was given; None if it is missing.
    state : {"known", "missing", "absent", "unseen"}
        ``absent``: missing, as the row has no such column.  ``unseen``: a category that is
        not in the model's vocabulary, and counts as missing.
    asked : bool
        Whether a node on the row's way asked for it.
    refused : bool
        Whether the model's policy refuses the row for this cell.
    """

    column: str
    text: str | None
    state: Literal["known", "missing", "absent", "unseen"]
    asked: bool = False
    refused: bool = False


@dataclass(frozen=True)
class Clause:
    """A condition: of one column, or of a weighted sum.

    Attributes
    ----------
    columns : tuple of str
    weights : tuple of float
        Of a sum; empty for one column.
    low, high : float
        Numbers: ``low < x <= high``.
    levels : tuple of str, optional
        Nominal columns: those that fit.
    known, missing : bool
        Whether any known value fits, and whether a missing one does.
    """

    columns: tuple[str, ...]
    weights: tuple[float, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    levels: tuple[str, ...] | None = None
    known: bool = True
    missing: bool = False


@dataclass(frozen=True)
class Step:
    """A node on the row's way.

    Attributes
    ----------
    node : int
    why : str
        What decided; see `treekit.rules.explain.walk.Why`.
    asked : tuple of (str, str or None)
        Columns that the node asked first, and the row's cells.
    decided : tuple of (str, str or None)
        Columns that decided, and the row's cells.
    clause : Clause, optional
        What holds on the branch taken: of the question that decided, or, where none
        answered, of the node's own.  None where parts of the row go down each branch.
    goes : tuple of (int, float)
        The next nodes, and the part of the whole row that each gets.
    """

    node: int
    why: Why
    asked: tuple[tuple[str, str | None], ...]
    decided: tuple[tuple[str, str | None], ...]
    clause: Clause | None
    goes: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Said:
    """An answer for one target: a label with shares of the classes, or a number."""

    target: str
    label: Label | None = None
    value: float | None = None
    shares: tuple[tuple[Label, float], ...] = ()


@dataclass(frozen=True)
class Ending:
    """A leaf that the row, or the given part of it, reaches.

    Attributes
    ----------
    node : int
    part : float
    support : float
        Training weight of the leaf.
    says : tuple of Said
        Of a forest: what this tree alone says.
    """

    node: int
    part: float
    support: float
    says: tuple[Said, ...]


@dataclass(frozen=True)
class Votes:
    """What the single trees of a forest say of one target.

    Attributes
    ----------
    target : str
    trees : tuple of (label, int)
        Classification: how many trees say each class.
    quantiles : tuple of float
        Regression: least, lower quartile, median, upper quartile and largest of the
        trees' numbers.
    """

    target: str
    trees: tuple[tuple[Label, int], ...] = ()
    quantiles: tuple[float, ...] = ()


@dataclass(frozen=True)
class Sums:
    """What each column adds to one value of the answer: integers that add up exactly.

    ``bias + sum(of columns) == total``; an integer i means ``i / divisor * 2**exponent``.

    Attributes
    ----------
    target : str
    label : label, optional
        The class whose probability, or margin, it is.
    margin : bool
        Whether the numbers are those before the model's link.
    bias, total, divisor, exponent : int
    columns : tuple of (str, int)
        Largest first.
    """

    target: str
    label: Label | None
    margin: bool
    bias: int
    total: int
    divisor: int
    exponent: int
    columns: tuple[tuple[str, int], ...]

    def number(self, units: int) -> float:
        """The number that an integer means."""
        return math.ldexp(units / self.divisor, self.exponent)


@dataclass(frozen=True)
class Changed:
    """A column that changes: from the row's cell, None if missing, to a text."""

    column: str
    before: str | None
    after: str


@dataclass(frozen=True)
class Change:
    """A change of the row that alters the decision; predicted again before it is said.

    Attributes
    ----------
    cells : tuple of Changed
        One or two.
    size : float
        Of the nearest value that would do; see `treekit.rules.explain.scales`.
    says : tuple of Said
        The answer then.
    """

    cells: tuple[Changed, ...]
    size: float
    says: tuple[Said, ...]


@dataclass(frozen=True)
class Changes:
    """The nearest changes that lead to a wished answer.

    Attributes
    ----------
    target : str
    wish : str
        A label or a range of numbers; empty: any other label.
    met : bool
        Whether the row is answered so as it is.
    most : int
        How many columns might change at once.
    single : tuple of Change
        Of one column each, smallest first.
    pair : Change, optional
        Of two columns, where that is a smaller one than any of one.
    apart : int
        Pairs of columns left out because a weighted sum asks for both.
    complete : bool
        False if the budget ended the search before all changes had been looked at.
    """

    target: str
    wish: str
    met: bool
    most: int
    single: tuple[Change, ...] = ()
    pair: Change | None = None
    apart: int = 0
    complete: bool = True
