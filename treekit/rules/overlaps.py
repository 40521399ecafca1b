"""What rules of a list say of the same rows: overlaps, conflicts, shadows, gaps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError
from treekit.rules.covering import Budget
from treekit.rules.fired import fired, fits
from treekit.rules.language import Language
from treekit.rules.measure import labels_of
from treekit.rules.meeting import gap_of, meeting_pairs, reach_of, shadows_of
from treekit.rules.rulelist import RuleList
from treekit.rules.spaces import Boxes, Space, space_of
from treekit.rules.tables import rows_of

__all__ = ["Counts", "Overlaps", "overlapping_rules"]

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Reach = Literal["reached", "empty", "never", "undecided"]
Cell = float | str | None

STEPS = 6_000


class Counts(NamedTuple):
    """What the rows of a table met.

    Attributes
    ----------
    rows, refused : int
    none : int
        Rows that no rule fits.
    several : int
        Rows that more than one rule fits, not counting the rule for the rest.
    conflicting : int
        Rows that rules with different answers fit, not counting that one.
    answered : (rules,) int64
        Rows that each rule answers.
    """

    rows: int
    refused: int
    none: int
    several: int
    conflicting: int
    answered: Index


@dataclass(frozen=True, eq=False)
class Overlaps:
    """How the rules of one tree lie to each other; numbers of rules are those of the list.

    Attributes
    ----------
    rules : RuleList
    tree : int
    numbers : (n,) int64
        The rules of the tree.
    exact : bool
        False if rules ask tests of several columns: the outcomes of tests are taken as free
        of the columns and of each other, so that what is said to meet only may.
    pairs : (pairs, 2) int64
        Rules that fit some row both, the earlier one first; without the rule for the rest:
        the last one of an ordered list if it asks nothing, which is there to meet all others.
    conflicts : (pairs,) bool
        Which of the pairs have different answers.
    shadowed : (n,) int64
        The first rule that fits every row that this one fits: an earlier one; -1 if there
        is none.  In a list without order, any other, of equal rules the earlier one.
    reach : (n,) of {"reached", "empty", "never", "undecided"}
        Whether a rule ever answers: ``empty`` fits no row at all; ``never`` is fitted by
        rows that earlier rules answer.  ``undecided`` where the budget ended.
    gap : bool or None
        Whether there is a row that no rule fits; None where the budget ended.
    witness : dict of str to (float, str or None), or None
        Such a row, by the columns that rules ask; None = missing.  Others may hold anything.
    counts : Counts or None
        Of a table, if one was given.
    """

    rules: RuleList = field(repr=False)
    tree: int
    numbers: Index = field(repr=False)
    exact: bool
    pairs: Index = field(repr=False)
    conflicts: Mask = field(repr=False)
    shadowed: Index = field(repr=False)
    reach: tuple[Reach, ...] = field(repr=False)
    gap: bool | None
    witness: dict[str, Cell] | None
    counts: Counts | None = None

    def text(self, language: str | Language = "en", most: int = 20) -> str:
        """The report in words, at most so many lines of each kind."""
        from treekit.rules.overlaps_text import overlaps_text

        return overlaps_text(self, language, most)

    def plain(self) -> dict[str, Any]:
        """The report as numbers, texts and lists, for JSON; rules count from 1 as in texts."""
        unreached = zip(self.numbers.tolist(), self.reach, strict=True)
        shadows = zip(self.numbers.tolist(), self.shadowed.tolist(), strict=True)
        return {
            "tree": self.tree + 1,
            "rules": len(self.numbers),
            "exact": self.exact,
            "overlapping": (self.pairs + 1).tolist(),
            "conflicts": (self.pairs[self.conflicts] + 1).tolist(),
            "shadowed": [[a + 1, b + 1] for a, b in shadows if b >= 0],
            "reach": {str(k + 1): said for k, said in unreached if said != "reached"},
            "gap": self.gap,
            "witness": self.witness,
            "counts": None if self.counts is None else _plain_counts(self.counts),
        }


def _plain_counts(counts: Counts) -> dict[str, Any]:
    return counts._asdict() | {"answered": counts.answered.tolist()}


def overlapping_rules(
    rules: RuleList, tree: int | None = None, *, table: Any = None, steps: int = STEPS
) -> Overlaps:
    """How the rules of a list overlap, by exact arithmetic on what their conditions take.

    Parameters
    ----------
    rules : RuleList
    tree : int, optional
        From 0; needed if the list is of several trees.
    table : table, optional
        Anything `treekit.data.table.read_table` takes: what its rows meet is counted.
    steps : int
        Boxes to look at for the rules that never answer and for rows that none fits.

    Raises
    ------
    DataError
        If rows divide among the rules, or no tree is named where there are several.
    """
    number = _tree(rules, tree)
    numbers = np.flatnonzero(rules.tree == number)
    space = space_of(rules, numbers)
    alive = space.meets(space.boxes, space.boxes)
    pairs = meeting_pairs(space, alive)
    shadowed = shadows_of(space, pairs, ordered=rules.order == "first")
    gap, witness = gap_of(space, alive, pairs, Budget(steps // 2))
    reach = alive.astype(np.int64)
    if rules.order == "first":
        reach = reach_of(space, alive, pairs, shadowed, Budget(steps - steps // 2))
    pairs = pairs[numbers[pairs[:, 1]] != _rest(rules, numbers)]
    units = labels_of(rules) if _labelled(rules) else rules.units
    said = units[numbers]
    return Overlaps(
        rules=rules,
        tree=number,
        numbers=numbers,
        exact=not (space.intervals >= rules.schema.n_features).any(),
        pairs=numbers[pairs],
        conflicts=(said[pairs[:, 0]] != said[pairs[:, 1]]).any(axis=1),
        shadowed=np.where(shadowed >= 0, numbers[shadowed], -1),
        reach=tuple(_REACH[int(code)] for code in reach),
        gap=gap,
        witness=None if witness is None else _named(rules, space, witness),
        counts=None if table is None else _counts(rules, number, table, said, numbers),
    )


_REACH: tuple[Reach, ...] = ("empty", "reached", "never", "undecided")


def _tree(rules: RuleList, tree: int | None) -> int:
    if rules.mass > 1:
        raise DataError(
            "the model divides rows with missing values among its rules, so that rules share "
            "rows by design; nothing is to be said of overlaps"
        )
    if tree is None and rules.n_trees > 1:
        raise DataError(
            f"the list has rules of {rules.n_trees} trees, and each row has an answer in each; "
            "name one tree"
        )
    if tree is not None and not 0 <= tree < rules.n_trees:
        raise DataError(f"there is no tree {tree}; trees are 0 to {rules.n_trees - 1}")
    return tree or 0


def _rest(rules: RuleList, numbers: Index) -> int:
    """The last rule of an ordered list if it asks nothing, which answers what is left; or -1."""
    last = int(numbers[-1])
    asks = bool(np.diff(rules.end, prepend=0)[last])
    return -1 if asks or rules.order != "first" else last


def _labelled(rules: RuleList) -> bool:
    return rules.schema.task == "classification" and not rules.margins


def _named(rules: RuleList, space: Space, box: Boxes) -> dict[str, Cell]:
    """A row of a box, with names; of the columns that only tests ask nothing is said."""
    schema, found = rules.schema, {}
    for column, cell in sorted(space.row(box).items()):
        if column >= schema.n_features:
            continue
        value: Cell = None
        if isinstance(cell, tuple):
            value = _number(*cell, schema.dtype)
        elif cell is not None:
            value = schema.columns[column].levels[cell]
        found[schema.columns[column].name] = value
    return found


def _number(low: float, high: float, dtype: str) -> float:
    """A plain number of the input type with ``low < x <= high``."""
    if high != np.inf:
        return float(high)
    if low == -np.inf:
        return 0.0
    plain = float(np.floor(low) + 1.0)
    if np.dtype(dtype).type(plain) == plain and plain > low:
        return plain
    with np.errstate(over="ignore"):  # behind the largest number is infinity alone
        return float(np.nextafter(np.dtype(dtype).type(low), np.dtype(dtype).type(np.inf)))


def _counts(
    rules: RuleList, tree: int, table: Any, said: npt.NDArray[np.int64], numbers: Index
) -> Counts:
    """What the rows of a table meet."""
    rest = _rest(rules, numbers)
    matrix = rows_of(rules.schema, table)
    refused = rules.refused(matrix)
    fitting, conflict = np.zeros(len(matrix), np.int64), np.zeros(len(matrix), np.bool_)
    answer = np.unique(said, axis=0, return_inverse=True)[1].reshape(-1)
    first = np.full(len(matrix), -1, dtype=np.int64)
    for piece in fits(rules, matrix):
        mine = (rules.tree[piece.rule] == tree) & (piece.rule != rest)
        row, own = piece.row[mine], answer[np.searchsorted(numbers, piece.rule[mine])]
        fitting += np.bincount(row, minlength=len(matrix))
        new = first[row] < 0
        first[row[new]] = own[new]
        conflict[row[first[row] != own]] = True
    answered = np.zeros(len(numbers), dtype=np.int64)
    for piece in fired(rules, matrix):
        mine = rules.tree[piece.rule] == tree
        at = np.searchsorted(numbers, piece.rule[mine])
        answered += np.bincount(at, minlength=len(numbers))
    return Counts(
        rows=len(matrix),
        refused=int(refused.sum()),
        none=int(((fitting == 0) & ~refused).sum()) if rest < 0 else 0,
        several=int((fitting > 1).sum()),
        conflicting=int(conflict.sum()),
        answered=answered,
    )
