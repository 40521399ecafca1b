"""Rules as flat arrays for programs, and as a sequence of records for readers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.model.fixed_point import MASS
from treekit.model.links import Combine, Link
from treekit.model.model import MissingPolicy, Model, UnknownPolicy, Voting, least_cost, units_each
from treekit.rules.clauses import Test
from treekit.rules.conditions import ConditionTable
from treekit.rules.language import ENGLISH, Language
from treekit.rules.records import Answer, Condition, Rounding, Rule

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Order", "RuleList"]

Order = Literal["disjoint", "first"]
"""Which rules of a tree answer: those whose conditions are met (exactly one, but for parts
of rows), or the first of them in the order of the list."""


@dataclass(frozen=True, eq=False)
class RuleList(Sequence[Rule]):
    """Every rule of a model, tree after tree; ``print`` it, index it, or run it.

    In each tree exactly one rule fits a row, or, if the model divides rows
    with missing values, several, each with a part of the row's mass; the
    answers of the trees are summed as the header of the text says.

    Attributes
    ----------
    schema : Schema
    missing, unknown, voting : str
        As in `treekit.model.model.Model`.
    costs : (classes, classes) int64, or None
    n_trees, exponent : int
        As in `Model`.
    combine, link : str
        As in `Model`.
    order : {"disjoint", "first"}
        Which rules of a tree answer.  ``first``: an ordered list (each tree ends with a rule
        without conditions); lists with weights are many trees of two rules each.
    value : (rules, values) float64, or None
        What the training rows that a rule answered say, as `Tree.value`: the weight of each
        class, or the mean.  None where a text was read, which does not state it.
    decisions : bool
        The rules give the labels of their model and nothing more: rules of different shares
        were joined, and each has one vote for its label.
    rounding : Rounding, optional
        Of lists whose thresholds were shortened: they are not sure to equal their model.
    tests : tuple of Test
        What conditions ask beyond single columns.
    tree, leaf : (rules,) int32
    support : (rules,) float64
    as_parent : (rules,) bool
        See `Rule.as_parent`.
    units : (rules, values) int64
    end : (rules,) int64
        A rule's conditions end here and start where the previous one's end.
    conditions : ConditionTable
    """

    schema: Schema
    missing: MissingPolicy
    unknown: UnknownPolicy
    voting: Voting
    costs: npt.NDArray[np.int64] | None
    n_trees: int
    exponent: int
    tests: tuple[Test, ...] = field(repr=False)
    tree: npt.NDArray[np.int32] = field(repr=False)
    leaf: npt.NDArray[np.int32] = field(repr=False)
    support: npt.NDArray[np.float64] = field(repr=False)
    as_parent: npt.NDArray[np.bool_] = field(repr=False)
    units: npt.NDArray[np.int64] = field(repr=False)
    end: npt.NDArray[np.int64] = field(repr=False)
    conditions: ConditionTable = field(repr=False)
    combine: Combine = "mean"
    link: Link = "identity"
    order: Order = "disjoint"
    value: npt.NDArray[np.float64] | None = field(default=None, repr=False)
    decisions: bool = False
    rounding: Rounding | None = None

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

    def text(
        self, tree: int | None = None, language: str | Path | Language = ENGLISH
    ) -> Iterator[str]:
        """The text in pieces of many lines, for files too large to hold at once.

        With `tree`, the header and the rules of that tree alone: to be read,
        not to be executed.

        Parameters
        ----------
        tree : int, optional
        language : str, Path or Language
            A code of `treekit.rules.language`, or a catalogue file that ends with ``.toml``.
        """
        from treekit.rules import language as languages
        from treekit.rules.write import pieces

        return pieces(self, languages.language(language), tree)

    def frame(self) -> pd.DataFrame:
        """A line for each rule, with what the training rows say; see `treekit.forms.frame`."""
        from treekit.forms import Listing
        from treekit.forms.frame import to_frame
        from treekit.rules.measure import training_measures

        return to_frame(Listing(self, training_measures(self)))

    def _repr_html_(self) -> str:
        from treekit.forms.notebook import notebook

        return notebook(self)

    def refused(self, rows: Any) -> npt.NDArray[np.bool_]:
        """(rows,) bool: rows that a policy refuses; see `treekit.rules.policies`."""
        from treekit.rules.policies import refused

        return refused(self, rows)

    def sums(self, rows: Any) -> npt.NDArray[np.int64]:
        """(rows, values) int64: summed units of the rules that fit each row, times its mass.

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

    def model(
        self, settings: Mapping[str, Any] | None = None, provenance: Mapping[str, Any] | None = None
    ) -> Model:
        """The list as a model, which predicts, is saved, exported and verified as any other.

        The rules of each tree are asked in their order, and the first that is met answers.
        ``model().rules()`` is this list again, with `order` "first".

        Parameters
        ----------
        settings, provenance : mapping, optional
            What made the list; see `Model`.

        Raises
        ------
        ModelError
            If the last rule of a tree has conditions (add one without), a rule before it
            has none, conditions ask tests of several columns or divide rows, or a list has
            more than `treekit.model.tree.MAX_DEPTH` rules besides the last one.
        """
        from treekit.rules.as_model import as_model

        return as_model(self, settings, provenance)

    @property
    def mass(self) -> int:
        """What a row weighs in the sums: `MASS` if it may divide, else 1."""
        return MASS if self.missing == "fractional" else 1

    @property
    def margins(self) -> bool:
        """Whether rules add to margins of the classes, and do not vote."""
        return self.schema.task == "classification" and self.combine == "sum"

    @property
    def divisor(self) -> int:
        """What sums of numbers are divided by; see `Model.divisor`."""
        return self.mass if self.combine == "sum" else self.n_trees * self.mass

    @property
    def units_each(self) -> int:
        """Classification: votes that a rule spreads over the classes of a target."""
        return units_each(self)

    @property
    def unit_total(self) -> int:
        """Classification: the votes of one row, summed over the classes of a target and trees."""
        return self.units_each * self.n_trees * self.mass

    def bounds(self, rule: int) -> tuple[int, int]:
        """First condition of a rule, and the one after its last."""
        return (int(self.end[rule - 1]) if rule else 0), int(self.end[rule])

    def _rule(self, index: int) -> Rule:
        return Rule(
            int(self.tree[index]),
            int(self.leaf[index]),
            tuple(self._condition(at) for at in range(*self.bounds(index))),
            float(self.support[index]),
            tuple(self.units[index].tolist()),
            self._answers(self.units[index]),
            bool(self.as_parent[index]),
        )

    def _answers(self, units: npt.NDArray[np.int64]) -> tuple[Answer, ...]:
        outputs, blocks = self.schema.outputs, itertools.pairwise(self.schema.blocks)
        if self.margins:
            added = tuple(np.ldexp(units.astype(np.float64), self.exponent).tolist())
            return (Answer(outputs[0].name, margins=added),)
        if self.schema.task == "regression":
            values = np.ldexp(units.astype(np.float64), self.exponent).tolist()
            return tuple(Answer(o.name, value=v) for o, v in zip(outputs, values, strict=True))
        answers = []
        for output, (first, last) in zip(outputs, blocks, strict=True):
            votes = units[first:last]
            shares = tuple((votes / self.units_each).tolist())
            label = output.classes[int(least_cost(votes[None], self.costs)[0])]
            answers.append(Answer(output.name, shares, label=label))
        return tuple(answers)

    def _condition(self, at: int) -> Condition:
        table = self.conditions
        number = int(table.column[at])
        test = number - self.schema.n_features
        column = self.schema.columns[number] if test < 0 else None
        fits, dividing = table.codes(at)
        vocabulary = column.levels if column else ()
        return Condition(
            column.name if column else "",
            float(table.low[at]),
            float(table.high[at]),
            tuple(vocabulary[c] for c in fits) if column and column.kind == "nominal" else None,
            bool(table.known[at]),
            bool(table.missing[at]),
            test if test >= 0 else None,
            (int(table.part_low[at]), int(table.part_high[at])),
            tuple(vocabulary[c] for c in dividing),
        )
