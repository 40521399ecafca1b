"""Rule lists: flat arrays for computation, `Rule` records for reading, and as a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Label, Schema
from treekit.errors import ModelError
from treekit.model.builder import make_rule_trees
from treekit.model.fixed_point import MASS, Exponent, Grid, scale_units
from treekit.model.links import Combine, Link
from treekit.model.model import (
    MissingPolicy,
    Model,
    UnknownPolicy,
    Voting,
    count_leaf_units,
    count_part_bits,
    fit_grid,
    predict_labels,
)
from treekit.model.tree import DerivedColumns, concatenate_slices
from treekit.model.validation import check_header, check_model
from treekit.rules.language import ENGLISH, Language, load_language

if TYPE_CHECKING:
    import pandas as pd


# ---------------------------------------------------------------- records


@dataclass(frozen=True)
class Condition:
    """Condition of one rule on one column, or on one test.

    Attributes
    ----------
    column : str
        Empty for a test.
    low, high : float
        Numeric columns: known values must satisfy ``low < x <= high``;
        infinite where there is no bound.  Tests: the same for a column that is 0 where
        the test holds and 1 where it fails.
    levels : tuple of str, optional
        Nominal columns: the categories that match.  None for numeric columns and tests.
    known : bool
        Whether any known value matches.
    missing : bool
        Whether missing values match (and categories that count as missing).
    test : int, optional
        Number of the test in `RuleList.tests`, from 0.
    part : (int, int)
        ``(a, b)``: a matching missing value keeps ``(mass * b >> 24) - (mass * a >> 24)``
        of the row's mass: all of it, except for fractional instances.  (0, 0) if none matches.
    dividing : tuple of str
        Categories that this condition treats as missing values.
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
    """Prediction of one rule for one target.

    Attributes
    ----------
    target : str
    shares : tuple of float
        Classification: each class's share of the votes.
    value : float, optional
        Regression: the leaf value.
    label : bool, int, float or str, optional
        Classification: the class with most votes, the first among equals; or
        the first of least expected cost.
    margins : tuple of float
        Classification by sums: the rule's contribution to each class's margin; the rule has
        no label then.
    """

    target: str
    shares: tuple[float, ...] = ()
    value: float | None = None
    label: Label | None = None
    margins: tuple[float, ...] = ()


@dataclass(frozen=True)
class Rule:
    """A leaf and its decision path.

    Attributes
    ----------
    tree, leaf : int
        Number of the tree, and the leaf's node number in it, from 0.
    conditions : tuple of Condition
        A row matches the rule if it meets all of them.  In the order of the decision
        path: at most one per column, or, with fractional instances, one for each split.
    support : float
        Training weight that reached the leaf.
    units : tuple of int
        The leaf's votes for each class, or its values in fixed-point units; one target
        after the other.
    answers : tuple of Answer
        One for each target.
    as_parent : bool
        No training row reached the leaf; it predicts what its parent node does.
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


# ---------------------------------------------------------------- rule list

Order = Literal["disjoint", "first"]
"""Which rules of a tree predict: all that match (exactly one, except for fractional
instances), or the first match in the order of the list."""


@dataclass(frozen=True, eq=False)
class RuleList(Sequence[Rule]):
    """All rules of a model, tree by tree; can be printed, indexed and evaluated.

    In each tree exactly one rule matches a row, or, with fractional instances,
    several, each with a part of the row's mass; the predictions of the trees are
    summed as described at the end of the text.

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
        Which rules of a tree predict.  ``first``: an ordered list (each tree ends with a rule
        without conditions); weighted lists are many trees of two rules each.
    value : (rules, values) float64, or None
        Statistics of the training rows that a rule predicted, as `Tree.value`: the weight of
        each class, or the mean.  None for parsed text, which does not contain them.
    decisions : bool
        The rules only predict the labels of their model: rules with different shares were
        merged, and each has one vote for its label.
    tests : tuple of Test
        Tests of several columns that conditions refer to.
    tree, leaf : (rules,) int32
    support : (rules,) float64
    as_parent : (rules,) bool
        See `Rule.as_parent`.
    units : (rules, values) int64
    end : (rules,) int64
        Cumulative number of conditions: the end of each rule's conditions.
    conditions : ConditionTable
    """

    schema: Schema
    missing: MissingPolicy
    unknown: UnknownPolicy
    voting: Voting
    costs: npt.NDArray[np.int64] | None
    n_trees: int
    exponent: Exponent
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

    def __len__(self) -> int:
        return len(self.tree)

    @overload
    def __getitem__(self, index: int) -> Rule: ...
    @overload
    def __getitem__(self, index: slice) -> list[Rule]: ...
    def __getitem__(self, index: int | slice) -> Rule | list[Rule]:
        if isinstance(index, slice):
            return [self._make_rule(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no rule {index}: the list has {len(self)} rules")
        return self._make_rule(index % len(self))

    def has_same_text(self, other: RuleList) -> bool:
        """Return whether two lists are written as the same text, which does not show `value`."""
        return all(
            _have_equal_parts(getattr(self, name), getattr(other, name))
            for name in (one.name for one in fields(self))
            if name != "value"
        )

    def of_tree(self, tree: int) -> list[Rule]:
        """Return the rules of one tree."""
        return [self._make_rule(i) for i in np.flatnonzero(self.tree == tree).tolist()]

    def __str__(self) -> str:
        return "".join(self.text())

    def text(self, tree: int | None = None, language: str | Language = ENGLISH) -> Iterator[str]:
        """Generate the text in pieces of many lines, for lists too large to hold as one string.

        With `tree`, only the rules of that tree between the first and last lines, which is for
        reading and cannot be executed.

        Parameters
        ----------
        tree : int, optional
        language : str or Language
            ``en`` or ``zh``.
        """
        from treekit.rules.write_text import generate_text

        return generate_text(self, load_language(language), tree)

    def frame(self) -> pd.DataFrame:
        """Return a dataframe with one line per rule and its training measures.

        See `treekit.documents.dataframe`.
        """
        from treekit.documents import Listing
        from treekit.documents.dataframe import rules_to_frame
        from treekit.rules.measure import training_measures

        return rules_to_frame(Listing(self, training_measures(self)))

    def refused(self, rows: Any) -> npt.NDArray[np.bool_]:
        """Return (rows,) bool: rows that a policy refuses; see `treekit.rules.evaluate`."""
        from treekit.rules.evaluate import find_refused_rows

        return find_refused_rows(self, rows)

    def sums(self, rows: Any) -> npt.NDArray[np.int64]:
        """Return (rows, values) int64: summed units of the rules that match each row, times mass.

        Parameters
        ----------
        rows : (rows, features) float64
            Numbers, codes of categories, NaN for missing values.

        Raises
        ------
        DataError
            If a policy refuses a row.
        """
        from treekit.rules.evaluate import sum_units

        return sum_units(self, rows)

    def model(
        self, settings: Mapping[str, Any] | None = None, provenance: Mapping[str, Any] | None = None
    ) -> Model:
        """Return the list as a model, which can predict, and be saved, exported and verified.

        The rules of each tree are tested in order, and the first match predicts.
        ``model().rules()`` returns this list, with `order` "first".

        Parameters
        ----------
        settings, provenance : mapping, optional
            Settings and origin of the list; see `Model`.

        Raises
        ------
        ModelError
            If the last rule of a tree has conditions (add one without), an earlier rule
            has none, conditions test several columns or split rows into fractional instances,
            or a list has more than `treekit.model.tree.MAX_DEPTH` rules besides the last one.
        """
        _check_convertible(self)
        trees = make_rule_trees(
            self.schema,
            self.tree,
            self.end,
            self.conditions,
            compute_values(self) if self.value is None else self.value,
            self.support,
            margins=self.margins,
        )
        model = Model(
            trees=trees,
            units=np.array(self.units, dtype=np.int64),
            costs=self.costs,
            **copy_header(self),
            settings=dict(settings or {}),
            provenance=dict(provenance or {}),
        )
        check_model(model)
        if model.n_trees != self.n_trees:
            raise ModelError(
                f"the list has rules of {model.n_trees} trees, but n_trees is {self.n_trees}"
            )
        return model

    @property
    def mass(self) -> int:
        """Integer weight of one row in the sums: `MASS` with fractional instances, else 1."""
        return MASS if self.missing == "fractional" else 1

    @property
    def part_bits(self) -> int:
        """Bits that units lose when multiplied by a mass; see `Model.part_bits`."""
        return count_part_bits(self)

    @property
    def margins(self) -> bool:
        """Whether rules add to margins of the classes instead of voting."""
        return self.schema.task == "classification" and self.combine == "sum"

    @property
    def divisor(self) -> int:
        """Divisor of sums of numbers; see `Model.divisor`."""
        return 1 if self.combine == "sum" else self.n_trees

    @property
    def units_each(self) -> int:
        """Classification: votes of a rule for all classes of a target."""
        return count_leaf_units(self)

    @property
    def unit_total(self) -> int:
        """Classification: the sum of one row's votes over the trees and the classes of a target."""
        return self.units_each * self.n_trees * self.mass

    def bounds(self, rule: int) -> tuple[int, int]:
        """Return the first condition of a rule, and the end of its conditions."""
        return (int(self.end[rule - 1]) if rule else 0), int(self.end[rule])

    def _make_rule(self, index: int) -> Rule:
        return Rule(
            int(self.tree[index]),
            int(self.leaf[index]),
            tuple(map(self._make_condition, list_conditions(self, index))),
            float(self.support[index]),
            tuple(self.units[index].tolist()),
            self._make_answers(self.units[index]),
            bool(self.as_parent[index]),
        )

    def _make_answers(self, units: npt.NDArray[np.int64]) -> tuple[Answer, ...]:
        outputs, blocks = self.schema.outputs, itertools.pairwise(self.schema.blocks)
        values = scale_units(units, self.exponent).tolist()
        if self.margins:
            return (Answer(outputs[0].name, margins=tuple(values)),)
        if self.schema.task == "regression":
            return tuple(Answer(o.name, value=v) for o, v in zip(outputs, values, strict=True))
        answers = []
        for output, (first, last) in zip(outputs, blocks, strict=True):
            votes = units[first:last]
            shares = tuple((votes / self.units_each).tolist())
            label = output.classes[int(predict_labels(votes[None], self.costs)[0])]
            answers.append(Answer(output.name, shares, label=label))
        return tuple(answers)

    def _make_condition(self, found: ConditionTuple) -> Condition:
        test = found.column - self.schema.n_features
        column = self.schema.columns[found.column] if test < 0 else None
        levels = column.levels if column else ()
        is_nominal = column is not None and column.kind == "nominal"
        return Condition(
            column=column.name if column else "",
            low=found.low,
            high=found.high,
            levels=tuple(levels[code] for code in found.fits) if is_nominal else None,
            known=found.known,
            missing=found.missing,
            test=test if test >= 0 else None,
            part=found.part,
            dividing=tuple(levels[code] for code in found.dividing),
        )


# ---------------------------------------------------------------- tests of several columns
# A test is a list of clauses; the first whose value is known decides whether the
# test holds (branch 0) or fails (branch 1); if none is known, the test is
# unknown.  An oblique split is one clause, a sum (Murthy, Kasif and Salzberg
# 1994); a split with surrogates is its own clause followed by theirs (Breiman et
# al. 1984, section 5.3).


@dataclass(frozen=True)
class LinearClause:
    """``0.0 + w0 * x0 + w1 * x1 + ...`` in double, in this order, compared with a threshold.

    Attributes
    ----------
    features : tuple of int
        Column numbers.
    weights : tuple of float
    threshold : float
    below : int
        Branch of a sum at or below the threshold; larger sums take the other branch, and
        NaN (a missing value, or infinities that cancel) is unknown.
    """

    features: tuple[int, ...]
    weights: tuple[float, ...]
    threshold: float
    below: int


@dataclass(frozen=True)
class LevelsClause:
    """The branch of each category of a nominal column.

    Attributes
    ----------
    feature : int
        Column number.
    branches : tuple of int
        0, 1, or -1 = unknown, as for a missing value.
    """

    feature: int
    branches: tuple[int, ...]


Clause = LinearClause | LevelsClause
Test = tuple[Clause, ...]


def list_tests(model: Model) -> tuple[Test, ...]:
    """Return the tests of a model, one for each of its derived columns."""
    columns = model.derived
    clauses = [_make_clause(columns, at) for at in range(len(columns.threshold))]
    starts = columns.test_start.tolist()
    return tuple(tuple(clauses[a:b]) for a, b in itertools.pairwise(starts))


def _make_clause(columns: DerivedColumns, at: int) -> Clause:
    if columns.level_feature[at] >= 0:
        first, last = columns.level_start[at : at + 2].tolist()
        branches = columns.level_branch[first:last].tolist()
        return LevelsClause(int(columns.level_feature[at]), tuple(branches))
    first, last = columns.term_start[at : at + 2].tolist()
    return LinearClause(
        tuple(columns.term_feature[first:last].tolist()),
        tuple(columns.term_weight[first:last].tolist()),
        float(columns.threshold[at]),
        int(columns.below[at]),
    )


def evaluate_test(test: Test, matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return (rows,) float64: 0 = holds, 1 = fails, NaN = unknown.

    `matrix` contains numbers of the input type, codes of categories, NaN = missing.
    """
    result = np.full(len(matrix), np.nan)
    for clause in test:
        branch = (
            _evaluate_linear(clause, matrix)
            if isinstance(clause, LinearClause)
            else _evaluate_levels(clause, matrix)
        )
        result = np.where(np.isnan(result), branch, result)
    return result


def _evaluate_linear(
    clause: LinearClause, matrix: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    total = np.zeros(len(matrix))
    with np.errstate(invalid="ignore"):  # infinities that cancel
        for feature, weight in zip(clause.features, clause.weights, strict=True):
            total = total + weight * matrix[:, feature]
    side = np.where(total <= clause.threshold, clause.below, 1 - clause.below)
    return np.where(np.isnan(total), np.nan, side)


def _evaluate_levels(
    clause: LevelsClause, matrix: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    branches = np.array([*clause.branches, -1], dtype=np.float64)
    side = branches[sanitize_codes(matrix[:, clause.feature], len(clause.branches))]
    return np.where(side < 0, np.nan, side)


def sanitize_codes(
    values: npt.NDArray[np.float64], n_levels: int | npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return codes of categories; `n_levels` for missing values and invalid codes."""
    known = (values >= 0) & (values < n_levels) & (values == np.floor(values))
    return np.where(known, values, n_levels).astype(np.int64)


# ---------------------------------------------------------------- conditions


class ConditionTuple(NamedTuple):
    """One condition, by codes; the fields are those of `ConditionTable`.

    `fits` are the codes of the categories that match, ascending, and `dividing` those that are
    treated as missing values; both are empty for numeric columns and tests.
    """

    column: int
    low: float = -np.inf
    high: float = np.inf
    known: bool = False
    missing: bool = False
    part: tuple[int, int] = (0, 0)
    fits: tuple[int, ...] = ()
    dividing: tuple[int, ...] = ()

    def accepts_all(self, n_levels: int, *, refused: bool = False) -> bool:
        """Return whether every value of a column with `n_levels` categories meets the condition.

        With `refused`, missing values are not counted.
        """
        free = self.known and (self.low, self.high) == (-np.inf, np.inf)
        whole = refused or (self.missing and self.part == (0, MASS))
        return free and whole and len(self.fits) == n_levels


def intersect_conditions(one: ConditionTuple, other: ConditionTuple) -> ConditionTuple:
    """Return the intersection of two conditions on a column, without fractional instances.

    It is neither `known` nor `missing` if no value meets both.
    """
    low, high = max(one.low, other.low), min(one.high, other.high)
    fits = tuple(code for code in one.fits if code in set(other.fits))
    nominal = bool(one.fits or other.fits)
    known = one.known and other.known and (bool(fits) if nominal else low < high)
    missing = one.missing and other.missing
    part = one.part if missing else (0, 0)
    if not known:
        return ConditionTuple(one.column, missing=missing, part=part)
    return ConditionTuple(one.column, low, high, known, missing, part, fits)


def merge_conditions(conditions: Iterable[ConditionTuple]) -> tuple[ConditionTuple, ...]:
    """Intersect the conditions on each column, in order of first use."""
    found: dict[int, ConditionTuple] = {}
    for one in conditions:
        before = found.get(one.column, one)
        found[one.column] = one if before == one else intersect_conditions(before, one)
    return tuple(found.values())


def _have_equal_parts(one: Any, other: Any) -> bool:
    """Return whether two values are equal, or two arrays or tables of arrays in all elements."""
    if isinstance(one, ConditionTable):
        return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in one._fields)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


class ConditionTable(NamedTuple):
    """The conditions of all rules, one after the other.

    Attributes
    ----------
    column : (conditions,) int32
        Columns of the schema, and behind them the tests.
    low, high : (conditions,) float64
    known, missing : (conditions,) bool
    part_low, part_high : (conditions,) int32
        Part of a row's mass that a missing value keeps; see `Condition.part`.
    dividing : (conditions,) int64
        Number of a condition's categories, the last ones, that are treated as missing values.
    level_end : (conditions,) int64
        Cumulative number of categories: the end of each condition's categories.
    levels : (codes,) int32
        Categories that match, ascending within a condition, with the dividing ones last.
    """

    column: npt.NDArray[np.int32]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    known: npt.NDArray[np.bool_]
    missing: npt.NDArray[np.bool_]
    part_low: npt.NDArray[np.int32]
    part_high: npt.NDArray[np.int32]
    dividing: npt.NDArray[np.int64]
    level_end: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int32]

    @classmethod
    def from_conditions(cls, conditions: Sequence[ConditionTuple]) -> ConditionTable:
        """Make a table of conditions."""
        column, low, high, known, missing, part, fits, dividing = (
            zip(*conditions, strict=True) if conditions else ((),) * 8
        )
        parts = np.array(part, dtype=np.int32).reshape(-1, 2)
        codes = [a + b for a, b in zip(fits, dividing, strict=True)]
        return cls(
            column=np.array(column, dtype=np.int32),
            low=np.array(low, dtype=np.float64),
            high=np.array(high, dtype=np.float64),
            known=np.array(known, dtype=np.bool_),
            missing=np.array(missing, dtype=np.bool_),
            part_low=parts[:, 0],
            part_high=parts[:, 1],
            dividing=np.array(list(map(len, dividing)), dtype=np.int64),
            level_end=np.cumsum(list(map(len, codes)), dtype=np.int64),
            levels=np.array(list(itertools.chain.from_iterable(codes)), dtype=np.int32),
        )

    @classmethod
    def concatenate(cls, tables: Sequence[ConditionTable]) -> ConditionTable:
        """Concatenate tables."""
        starts = np.cumsum([0] + [len(table.levels) for table in tables])
        moved = [
            table._replace(level_end=table.level_end + start)
            for table, start in zip(tables, starts[:-1], strict=True)
        ]
        return cls(*(np.concatenate(part) for part in zip(*moved, strict=True)))

    def list_codes(self, condition: int) -> tuple[list[int], list[int]]:
        """Return the categories that match a condition, and those for which rows are divided."""
        start = int(self.level_end[condition - 1]) if condition else 0
        end = int(self.level_end[condition])
        middle = end - int(self.dividing[condition])
        return self.levels[start:middle].tolist(), self.levels[middle:end].tolist()

    def iterate_conditions(self, start: int, stop: int) -> Iterator[ConditionTuple]:
        """Iterate over the conditions from `start` to `stop`."""
        first = int(self.level_end[start - 1]) if start else 0
        ends = (self.level_end[start:stop] - first).tolist()
        levels = self.levels[first : first + ends[-1] if ends else first].tolist()
        own = slice(start, stop)
        middles = (self.level_end[own] - first - self.dividing[own]).tolist()
        begins = [0, *ends][:-1]
        return map(
            ConditionTuple,
            *(part[own].tolist() for part in self[:5]),
            zip(self.part_low[own].tolist(), self.part_high[own].tolist(), strict=True),
            (tuple(levels[a:b]) for a, b in zip(begins, middles, strict=True)),
            (tuple(levels[a:b]) for a, b in zip(middles, ends, strict=True)),
        )

    def take(self, which: npt.NDArray[np.int64]) -> ConditionTable:
        """Return the conditions `which`, in that order."""
        sizes = np.diff(self.level_end, prepend=0)[which]
        levels = concatenate_slices(self.levels, self.level_end[which] - sizes, sizes)
        rows = {name: getattr(self, name)[which] for name in self._fields if "level" not in name}
        return ConditionTable(**rows, level_end=np.cumsum(sizes), levels=levels)


# ---------------------------------------------------------------- subsets of rules

Index = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

_RULE_ARRAYS = ("tree", "leaf", "support", "as_parent", "units")


def list_conditions(rules: RuleList, rule: int) -> list[ConditionTuple]:
    """Return the conditions of one rule."""
    return list(rules.conditions.iterate_conditions(*rules.bounds(rule)))


def take_rules(found: RuleList, which: Index) -> RuleList:
    """Return the rules `which`, in that order, each with its tree number."""
    sizes = np.diff(found.end, prepend=0)[which]
    at = concatenate_slices(
        np.arange(len(found.conditions.column)), found.end[which] - sizes, sizes
    )
    return replace(
        found,
        **{name: getattr(found, name)[which] for name in _RULE_ARRAYS},
        end=np.cumsum(sizes),
        conditions=found.conditions.take(at),
        value=None if found.value is None else found.value[which],
    )


def concatenate_rules(parts: Sequence[RuleList]) -> RuleList:
    """Concatenate rule lists; the header is that of the first."""
    starts = np.cumsum([0] + [len(part.conditions.column) for part in parts])
    values = [part.value for part in parts if part.value is not None]
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in _RULE_ARRAYS
    }
    return replace(
        parts[0],
        **arrays,
        end=np.concatenate([p.end + start for p, start in zip(parts, starts[:-1], strict=True)]),
        conditions=ConditionTable.concatenate([part.conditions for part in parts]),
        value=np.concatenate(values) if len(values) == len(parts) else None,
    )


# ---------------------------------------------------------------- lists that are read


class ParsedRule(NamedTuple):
    """A rule read from a file: fields of `RuleList`, and its votes or numbers.

    `training` are the values of training rows, None if the file does not state them.
    """

    tree: int
    leaf: int
    conditions: Sequence[ConditionTuple]
    support: float
    as_parent: bool
    numbers: Sequence[float]
    training: Sequence[float] | None = None


def make_empty_list(schema: Schema, **facts: Any) -> RuleList:
    """Return a list without rules, with the given fields of `RuleList`.

    Raises
    ------
    ModelError
        If no model has these policies.
    """
    empty = RuleList(
        schema=schema,
        tree=np.empty(0, np.int32),
        leaf=np.empty(0, np.int32),
        support=np.empty(0),
        as_parent=np.empty(0, np.bool_),
        units=np.empty((0, schema.n_values), np.int64),
        end=np.empty(0, np.int64),
        conditions=ConditionTable.from_conditions([]),
        **facts,
    )
    check_header(empty)
    return empty


def add_rules(empty: RuleList, parsed: Sequence[ParsedRule], *, fixed_step: bool) -> RuleList:
    """Return a list with rules, sorted by tree.

    Votes are kept.  Numbers are converted to fixed point: in the stated units if these are exact,
    or with `fixed_step`; otherwise in the finest units that can represent the largest number, as
    for a new model.  Each number is exact, or rounded by at most half a step.

    Raises
    ------
    ModelError
        If a tree has no rules.
    """
    parsed = sorted(parsed, key=lambda rule: rule.tree)  # stable: their order in a tree stays
    present = np.unique([rule.tree for rule in parsed])
    if len(present) < empty.n_trees:
        absent = int(np.append(present != np.arange(len(present)), True).argmax())
        raise ModelError(
            f"tree {absent + 1} of {empty.n_trees} has no rules left; add a rule without conditions"
        )
    tree, leaf, conditions, support, as_parent, numbers, training = zip(*parsed, strict=True)
    trees, values = np.array(tree, dtype=np.int32), np.array(numbers, dtype=np.float64)
    exponent = empty.exponent
    if empty.schema.task == "classification" and not empty.margins:
        units = values.astype(np.int64)
    else:
        with np.errstate(over="ignore"):
            steps = np.ldexp(values, -np.asarray(exponent, dtype=np.int32))
        units = np.rint(np.clip(steps, -(2.0**62), 2.0**62)).astype(np.int64)
        if not fixed_step:
            # Zeros are exact in every unit: the stated one is kept.
            finest = _fit_grid(empty, trees, values, finest=True).exponent
            coarse = not values.any() or np.all(np.asarray(exponent) >= np.asarray(finest))
            if not (coarse and bool((units == steps).all())):
                grid = _fit_grid(empty, trees, values)
                units, exponent = grid.to_grid(values), grid.exponent
    return replace(
        empty,
        exponent=exponent,
        tree=trees,
        leaf=np.array(leaf, dtype=np.int32),
        support=np.array(support, dtype=np.float64),
        as_parent=np.array(as_parent, dtype=np.bool_),
        units=units,
        end=np.cumsum(list(map(len, conditions)), dtype=np.int64),
        conditions=ConditionTable.from_conditions(list(itertools.chain(*conditions))),
        value=None if None in training else np.array(training, dtype=np.float64),
    )


def _fit_grid(
    rules: RuleList, trees: npt.NDArray[np.int32], values: Doubles, *, finest: bool = False
) -> Grid:
    """Return the grid for the numbers of a list, (rules, values) float64."""
    return fit_grid(rules, values, np.flatnonzero(np.diff(trees, prepend=-1)), finest=finest)


# ---------------------------------------------------------------- conversion to a model


def copy_header(source: Model | RuleList) -> dict[str, Any]:
    """Return the fields that a model and its rule list have in common, except for costs."""
    names = ("schema", "exponent", "missing", "unknown", "voting", "combine", "link")
    return {name: getattr(source, name) for name in names}


def _check_convertible(rules: RuleList) -> None:
    """Raise `ModelError` for conditions that a model of rule lists cannot express."""
    table = rules.conditions
    asked = table.column >= rules.schema.n_features
    if asked.any():
        rule = int(np.searchsorted(rules.end, np.argmax(asked), "right"))
        raise ModelError(
            f"rule {rule + 1} has a test of several columns, which is not supported in a list; "
            "use the rules of a tree without oblique splits and surrogates"
        )
    whole = np.where(table.missing, MASS, 0)
    parts = (table.part_low != 0) | (table.part_high != whole) | (table.dividing > 0)
    if rules.mass > 1 or parts.any():
        raise ModelError(
            "these rules have fractional instances, but in a list one rule predicts each row; "
            "train with missing='direction', and use its rules"
        )


def compute_values(rules: RuleList) -> npt.NDArray[np.float64]:
    """Return (rules, values) float64: values as in `Tree.value`, computed from the votes."""
    if rules.schema.task == "regression" or rules.margins:
        return scale_units(rules.units, rules.exponent)
    support = np.where(rules.support > 0, rules.support, 1.0)
    return rules.units / rules.units_each * support[:, None]
