"""One rule as a reader wants it, with names and labels; and what was done to a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from treekit.data.schema import Label

__all__ = ["Answer", "Condition", "Rounding", "Rule"]


@dataclass(frozen=True)
class Condition:
    """What one rule asks of one column, or of one test.

    Attributes
    ----------
    column : str
        Empty if a test is asked.
    low, high : float
        Numeric columns: known values must lie in ``low < x <= high``;
        infinite where there is no bound.  Tests: as columns that are 0 where
        the test holds and 1 where it fails.
    levels : tuple of str, optional
        Nominal columns: the levels that fit.  None for numeric columns and tests.
    known : bool
        Whether any known value fits.
    missing : bool
        Whether missing values fit (and categories that count as missing).
    test : int, optional
        Number of the test in `RuleList.tests`, from 0.
    part : (int, int)
        ``(a, b)``: a missing value that fits keeps ``(mass * b >> 24) - (mass * a >> 24)``
        of the row's mass: all of it, unless the model divides rows.  (0, 0) if none fits.
    dividing : tuple of str
        Levels that are to this condition what a missing value is.
    """

    column: str
    low: float
    high: float
    levels: tuple[str, ...] | None
    known: bool
    missing: bool
    test: int | None = None
    part: tuple[int, int] = (0, 0)
    dividing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What one rule says of one target.

    Attributes
    ----------
    target : str
    shares : tuple of float
        Classification: each class's part of the votes.
    value : float, optional
        Regression: the number the leaf says.
    label : bool, int, float or str, optional
        Classification: the class with most votes, the first among equals; or
        the first of least expected cost.
    margins : tuple of float
        Classification by sums: what the rule adds to each class's margin; it names
        no label of its own then.
    """

    target: str
    shares: tuple[float, ...] = ()
    value: float | None = None
    label: Label | None = None
    margins: tuple[float, ...] = ()


@dataclass(frozen=True)
class Rule:
    """One leaf and the way to it.

    Attributes
    ----------
    tree, leaf : int
        Number of the tree, and the leaf's node number in it, from 0.
    conditions : tuple of Condition
        A row fits the rule if it meets all of them.  In the order the path
        asks them: at most one a column, unless the model divides rows; then
        one for each split of the path.
    support : float
        Training weight that reached the leaf.
    units : tuple of int
        The leaf's votes for each class, or its values on the grid; one target
        after the other.
    answers : tuple of Answer
        One for each target.
    as_parent : bool
        No training row reached the leaf; it says what the node above it does.
    """

    tree: int
    leaf: int
    conditions: tuple[Condition, ...]
    support: float
    units: tuple[int, ...]
    answers: tuple[Answer, ...]
    as_parent: bool = False

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of the first target."""
        return self.answers[0].shares

    @property
    def value(self) -> float | None:
        """Number of the first target."""
        return self.answers[0].value

    @property
    def label(self) -> Label | None:
        """Label of the first target."""
        return self.answers[0].label


class Rounding(NamedTuple):
    """Thresholds that were shortened, which `treekit.rules.rounded` does.

    Attributes
    ----------
    digits : int
        Significant digits that were asked for.
    thresholds, shortened, longer : int
        Distinct thresholds of all columns, those that changed, and those that have more
        digits, because with fewer a condition would select other rows.
    rows : int
        Rows that were looked at: for these alone the list is sure to answer as before.
    """

    digits: int
    thresholds: int
    shortened: int
    longer: int
    rows: int
