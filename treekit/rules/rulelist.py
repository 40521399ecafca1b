"""Rules as records for readers, over flat arrays for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Label, Schema
from treekit.model.ensemble import MissingPolicy, UnknownPolicy
from treekit.model.portable import units_per_tree

__all__ = ["Condition", "ConditionTable", "Rule", "RuleList"]


@dataclass(frozen=True)
class Condition:
    """What one rule asks of one column.

    Attributes
    ----------
    column : str
    low, high : float
        Numeric columns: known values must lie in ``low < x <= high``;
        infinite where there is no bound.
    levels : tuple of str, optional
        Nominal columns: the levels that fit.  None for numeric columns.
    known : bool
        Whether any known value fits.
    missing : bool
        Whether missing values fit (and categories that count as missing).
    """

    column: str
    low: float
    high: float
    levels: tuple[str, ...] | None
    known: bool
    missing: bool


@dataclass(frozen=True)
class Rule:
    """One leaf and the way to it.

    Attributes
    ----------
    tree, leaf : int
        Number of the tree, and the leaf's node number in it, from 0.
    conditions : tuple of Condition
        At most one a column, in the order the path asks them; a row fits the
        rule if it meets all of them.
    support : float
        Training weight that reached the leaf.
    units : tuple of int
        The leaf's votes for each class, or its one value on the grid.
    shares : tuple of float
        Classification: each class's part of the votes.
    value : float, optional
        Regression: the number the leaf says.
    label : bool, int, float or str, optional
        Classification: the class with most votes, the first among equals.
    """

    tree: int
    leaf: int
    conditions: tuple[Condition, ...]
    support: float
    units: tuple[int, ...]
    shares: tuple[float, ...] = ()
    value: float | None = None
    label: Label | None = None


class ConditionTable(NamedTuple):
    """The conditions of all rules, one after the other.

    Attributes
    ----------
    column : (conditions,) int32
    low, high : (conditions,) float64
    known, missing : (conditions,) bool
    level_end : (conditions,) int64
        A condition's levels end here and start where the previous one's end.
    levels : (codes,) int32
        Levels that fit, ascending within a condition.
    """

    column: npt.NDArray[np.int32]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    known: npt.NDArray[np.bool_]
    missing: npt.NDArray[np.bool_]
    level_end: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int32]

    def level_start(self, condition: int) -> int:
        """Where the levels of a condition start in `levels`."""
        return int(self.level_end[condition - 1]) if condition else 0


@dataclass(frozen=True, eq=False)
class RuleList(Sequence[Rule]):
    """Every rule of a model, tree after tree; ``print`` it, index it, or run it.

    In each tree exactly one rule fits a row; the answers of the trees are
    summed as the header of the text says.

    Attributes
    ----------
    schema : Schema
    missing, unknown : str
        Policies, as in `treekit.model.ensemble.Model`.
    n_trees, exponent : int
        As in `Model`.
    tree, leaf : (rules,) int32
    support : (rules,) float64
    units : (rules, outputs) int64
    end : (rules,) int64
        A rule's conditions end here and start where the previous one's end.
    conditions : ConditionTable
    """

    schema: Schema
    missing: MissingPolicy
    unknown: UnknownPolicy
    n_trees: int
    exponent: int
    tree: npt.NDArray[np.int32] = field(repr=False)
    leaf: npt.NDArray[np.int32] = field(repr=False)
    support: npt.NDArray[np.float64] = field(repr=False)
    units: npt.NDArray[np.int64] = field(repr=False)
    end: npt.NDArray[np.int64] = field(repr=False)
    conditions: ConditionTable = field(repr=False)

    def __len__(self) -> int:
        return len(self.tree)

    @overload
    def __getitem__(self, index: int) -> Rule: ...
    @overload
    def __getitem__(self, index: slice) -> list[Rule]: ...
    def __getitem__(self, index: int | slice) -> Rule | list[Rule]:
        if isinstance(index, slice):
            return [self._rule(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"rule {index} of {len(self)} rules")
        return self._rule(index % len(self))

    def of_tree(self, tree: int) -> list[Rule]:
        """The rules of one tree."""
        return [self._rule(i) for i in np.flatnonzero(self.tree == tree).tolist()]

    def __str__(self) -> str:
        return "".join(self.text())

    def text(self, tree: int | None = None) -> Iterator[str]:
        """The text in pieces of many lines, for files too large to hold at once.

        With `tree`, the header and the rules of that tree alone: to be read,
        not to be executed.
        """
        from treekit.rules.write import pieces

        return pieces(self, tree)

    def refused(self, rows: Any) -> npt.NDArray[np.bool_]:
        """(rows,) bool: rows that a policy refuses; see `treekit.rules.evaluate`."""
        from treekit.rules.evaluate import refused

        return refused(self, rows)

    def sums(self, rows: Any) -> npt.NDArray[np.int64]:
        """(rows, outputs) int64: summed units of the rules that fit each row.

        Parameters
        ----------
        rows : (rows, features) float64
            Numbers as they are, codes of levels, NaN for missing values.

        Raises
        ------
        DataError
            If a policy refuses a row.
        """
        from treekit.rules.evaluate import sums

        return sums(self, rows)

    @property
    def unit_total(self) -> int:
        """Classification: the votes of one row, summed over classes and trees."""
        return units_per_tree(self.n_trees, self.schema.dtype) * self.n_trees

    def bounds(self, rule: int) -> tuple[int, int]:
        """First condition of a rule, and the one after its last."""
        return (int(self.end[rule - 1]) if rule else 0), int(self.end[rule])

    def _rule(self, index: int) -> Rule:
        first, last = self.bounds(index)
        units = tuple(self.units[index].tolist())
        common = (
            int(self.tree[index]),
            int(self.leaf[index]),
            tuple(self._condition(at) for at in range(first, last)),
            float(self.support[index]),
            units,
        )
        if self.schema.task == "regression":
            return Rule(*common, value=float(np.ldexp(float(units[0]), self.exponent)))
        total = units_per_tree(self.n_trees, self.schema.dtype)
        label = self.schema.classes[int(np.argmax(units))]
        return Rule(*common, shares=tuple(u / total for u in units), label=label)

    def _condition(self, at: int) -> Condition:
        table = self.conditions
        column = self.schema.columns[table.column[at]]
        codes = table.levels[table.level_start(at) : int(table.level_end[at])].tolist()
        levels = tuple(column.levels[code] for code in codes)
        return Condition(
            column.name,
            float(table.low[at]),
            float(table.high[at]),
            levels if column.kind == "nominal" else None,
            bool(table.known[at]),
            bool(table.missing[at]),
        )
