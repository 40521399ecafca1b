"""All that is said of one row's answer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal

from treekit.data.schema import Dtype, Label

if TYPE_CHECKING:
    from treekit.explain.decision_path import Why
    from treekit.rules.language import Language

__all__ = [
    "Change",
    "Changed",
    "Changes",
    "Clause",
    "Ending",
    "Explanation",
    "Given",
    "Said",
    "Step",
    "Sums",
    "Votes",
]


# ---------------------------------------------------------------- explanation


@dataclass(frozen=True)
class Explanation:
    """Why a model answers a row as it does; ``print`` it, or ask for `text` or `plain`.

    Attributes
    ----------
    says : tuple of Said
        The answer, for each target; empty if the row is refused.
    row : tuple of Given
    dtype : {"float32", "float64"}
        The model's input type.
    trees : int
        Of the model.
    tree : int, optional
        The tree of `path`, `leaves` and `rule`, from 0; None: a forest, of which none
        was asked for.
    path : tuple of Step
    leaves : tuple of Ending
        Largest part first.
    rule : tuple of Clause
        The conditions of the leaf's rule, at most one a column; empty where parts of the row
        end in several leaves, and for lists of rules.
    votes : tuple of Votes
        Of forests that vote, or whose trees' mean is taken.
    sums : tuple of Sums
        For each class, or number, of each target.
    changes : Changes, optional
        None if they were not asked for, or without a wish for a number.
    """

    says: tuple[Said, ...]
    row: tuple[Given, ...]
    dtype: Dtype
    trees: int
    tree: int | None = None
    path: tuple[Step, ...] = ()
    leaves: tuple[Ending, ...] = ()
    rule: tuple[Clause, ...] = ()
    votes: tuple[Votes, ...] = ()
    sums: tuple[Sums, ...] = ()
    changes: Changes | None = None

    @property
    def refused(self) -> bool:
        """Whether the model refuses the row."""
        return any(cell.refused for cell in self.row)

    def plain(self) -> dict[str, Any]:
        """The same as dicts, lists, texts and numbers, for JSON: infinities are None."""
        plain: dict[str, Any] = _plain(self)
        return {"refused": self.refused, **plain}

    def lines(self, language: Language | None = None) -> Iterator[tuple[str, bool]]:
        """The lines of the text, and whether each is a heading."""
        from treekit.explain.text import lines

        return lines(self, language)

    def text(self, language: Language | None = None) -> str:
        """What a person reads, in a language; default English."""
        return "".join(f"{line}\n" for line, _ in self.lines(language))

    def __str__(self) -> str:
        return self.text()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        own = {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
        if isinstance(value, Sums):
            own["numbers"] = {
                "bias": value.number(value.bias),
                "columns": [[name, value.number(units)] for name, units in value.columns],
                "total": value.number(value.total),
            }
        return own
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---------------------------------------------------------------- records
# The parts of an explanation, as plain records.


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
        What decided; see `treekit.explain.decision_path.Why`.
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
        Of the nearest value that would do; see `treekit.explain.reachable_leaves`.
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
