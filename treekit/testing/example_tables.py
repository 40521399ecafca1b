"""Small training tables: with ties, missing cells, constant columns and integer weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import CriterionFunctions, Ranks
from treekit.splitting import summarise_ranks

# ---------------------------------------------------------------- tables


@dataclass(frozen=True, eq=False)
class SmallTable:
    """A training table of few rows.

    Attributes
    ----------
    columns : dict of str to list
        ``x`` numbers with ties, ``z`` numbers with missing cells, ``c`` categories
        with missing cells, ``k`` one value only.
    target : list
        Class names, or numbers.
    weights : list of int
        1 to 3.
    call : str
        Call that makes the same table.
    beside : dict of str to list
        Additional columns that a task reads.
    """

    columns: dict[str, list[Any]]
    target: list[Any]
    weights: list[int]
    call: str
    beside: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.target)

    @property
    def source(self) -> dict[str, list[Any]]:
        """Columns, target ``y`` and weights ``w``, as `treekit.train` takes them."""
        return {**self.columns, **self.beside, "y": self.target, "w": self.weights}

    def take(self, order: Any) -> SmallTable:
        """Take rows in the given order, with repetitions."""

        def pick_cells(cells: list[Any]) -> list[Any]:
            return [cells[i] for i in order]

        return SmallTable(
            {name: pick_cells(cells) for name, cells in self.columns.items()},
            pick_cells(self.target),
            pick_cells(self.weights),
            self.call,
            {name: pick_cells(cells) for name, cells in self.beside.items()},
        )

    def repeat_rows(self) -> SmallTable:
        """Repeat each row as many times as its weight, with weight 1."""
        long = self.take(np.repeat(np.arange(self.rows), self.weights))
        return replace(long, weights=[1] * long.rows)

    def with_target(self, target: list[Any], beside: dict[str, list[Any]]) -> SmallTable:
        """Replace the target, and the additional columns of a task."""
        call = f"{self.call} with columns {', '.join(map(repr, beside))} of the task"
        return replace(self, target=target, beside=beside, call=call if beside else self.call)

    def with_columns(self, *names: str) -> SmallTable:
        """Select columns."""
        return replace(self, columns={name: self.columns[name] for name in names})

    def __str__(self) -> str:
        if self.rows > 6:
            return self.call
        return str(self.source)


@cache
def make_small_table(rows: int, classes: int = 0, least: float = -2.0) -> SmallTable:
    """Make a table of `rows` rows; the same for the same arguments.

    Parameters
    ----------
    rows : int
    classes : int
        0: the target is a number.
    least : float
        Smallest number of the target.
    """
    rng = np.random.default_rng([rows, classes])
    x = rng.integers(0, max(2, rows // 2), rows)
    z = np.where(rng.random(rows) < 0.15, np.nan, np.round(rng.normal(size=rows), 1))
    c = rng.integers(0, 4, rows)
    lean = x / max(2, rows // 2) + 0.25 * (c == 1) + 0.35 * rng.normal(size=rows)
    place = np.argsort(np.argsort(lean, kind="stable"), kind="stable")
    target: list[Any]
    if classes:
        target = [f"class {k}" for k in (place * classes // rows).tolist()]
    else:
        target = (least + np.round(4.0 * place / rows, 1) + (place % 3 == 0)).tolist()
    is_missing = rng.random(rows) < 0.1
    levels = [None if away else "abcd"[k] for k, away in zip(c, is_missing, strict=True)]
    columns: dict[str, list[Any]] = {
        "x": x.astype(float).tolist(),
        "z": z.tolist(),
        "c": levels,
        "k": [1.0] * rows,
    }
    call = f"treekit.testing.example_tables.make_small_table({rows}, {classes}, {least})"
    return SmallTable(columns, target, rng.integers(1, 4, rows).tolist(), call)


TABLE_SIZES = (2, 3, 4, 6, 9, 14, 30, 80)


def iter_small_tables(classes: int = 0, least: float = -2.0) -> Iterator[SmallTable]:
    """Yield a small table of each size in `TABLE_SIZES`, ascending."""
    for rows in TABLE_SIZES:
        yield make_small_table(rows, classes if rows >= classes else min(rows, 2), least)


# ---------------------------------------------------------------- examples
# Statistics of nodes and splits as passed to criteria, in ascending size.

Numbers = npt.NDArray[np.float64]
Row = tuple[float, float]
"""Target of a row (class, or number) and its weight."""
Branch = tuple[Row, ...]


@dataclass(frozen=True)
class Counting:
    """Conversion of rows to statistics.

    Attributes
    ----------
    values : tuple of float
        Targets in examples: classes, or a few numbers.
    places : tuple of tuple of float
        Statistics of a row of weight 1 with each of these targets, to be added up.
    dense : bool
        Whether cell 0 is the weight; else the weight is the sum.
    classes : bool
        Whether cells are the weights of classes, which are interchangeable.
    quantile : float or None
        Of rank statistics, which do not add up.
    """

    values: tuple[float, ...]
    places: tuple[tuple[float, ...], ...]
    dense: bool = True
    classes: bool = False
    quantile: float | None = None

    @property
    def size(self) -> int:
        """S, number of cells of a node's statistics."""
        return len(self.places[0])

    @property
    def additive(self) -> bool:
        """Whether statistics of a node are the sums of those of its branches."""
        return self.quantile is None

    def count(self, rows: Sequence[Row]) -> Numbers:
        """Return the statistics (S,) of rows."""
        stats = np.zeros(self.size)
        if self.quantile is not None:
            values = np.array([(w, y, w * y) for y, w in sorted(rows)]).reshape(-1, 3)
            order = np.arange(len(rows), dtype=np.uint32)
            summarise_ranks(values, order, len(rows), self.quantile, stats)
            return stats
        for target, weight in rows:
            stats += weight * np.array(self.places[self.values.index(target)])
        return stats


@dataclass(frozen=True)
class Example:
    """One split of one node.

    Attributes
    ----------
    branches : tuple of tuple of (target, weight)
    parent : (S,) float64
    children : (branches, S) float64
    noise : float
        Largest score of these numbers that counts as 0.
    """

    branches: tuple[Branch, ...]
    parent: Numbers
    children: Numbers
    noise: float

    @property
    def rows(self) -> Branch:
        """The rows of all branches, sorted."""
        return tuple(sorted(row for branch in self.branches for row in branch))

    @property
    def is_pure(self) -> bool:
        """Whether all rows have one target."""
        return len({target for branch in self.branches for target, _ in branch}) == 1

    @property
    def is_useless(self) -> bool:
        """Whether all branches with rows have the same proportions of targets."""
        mixed = [_compute_shares(branch) for branch in self.branches if branch]
        return all(m == mixed[0] for m in mixed)

    @property
    def is_separating(self) -> bool:
        """Whether each of two branches has one target, different from the other's."""
        left, right = ({target for target, _ in branch} for branch in self.branches)
        return len(left) == len(right) == 1 and left != right


def _compute_shares(branch: Branch) -> dict[float, float]:
    total = sum(weight for _, weight in branch)
    shares: dict[float, float] = {}
    for target, weight in branch:
        shares[target] = shares.get(target, 0.0) + weight / total
    return {target: round(share, 12) for target, share in sorted(shares.items())}


def make_counting(task: str, functions: CriterionFunctions, classes: int = 2) -> Counting:
    """Return the counting of a criterion's rows: classes, sums of a number, or its ranks."""
    if task == "classification":
        codes = tuple(map(float, range(classes)))
        return Counting(codes, tuple(map(tuple, np.eye(classes))), dense=False, classes=True)
    if isinstance(functions.statistics, Ranks):
        quantile = functions.statistics.quantile
        return Counting((1.0, 2.0, 4.0, 0.0), ((0.0,) * 4,), quantile=quantile)
    least = -2.0 if functions.statistics.smallest is None else functions.statistics.smallest
    values = (least + 1.0, least + 2.0, least + 4.0, least)
    return Counting(values, tuple((1.0, value) for value in values))


def make_example(of: Counting, branches: Sequence[Branch]) -> Example:
    """Make the example of a split from the rows of its branches."""
    tuples = tuple(tuple(branch) for branch in branches)
    rows = [row for branch in tuples for row in branch]
    largest = max((abs(target) for target, _ in rows), default=1.0) if of.dense else 1.0
    return Example(
        tuples,
        of.count(rows),
        np.array([of.count(branch) for branch in tuples]),
        1e-9 * max(1.0, largest) ** 2,
    )


@cache
def make_examples(of: Counting) -> tuple[Example, ...]:
    """Return splits from one row up: every small one of two and three branches, then random ones.

    For more than three classes, only random ones.
    """
    found = [make_example(of, branches) for branches in _iter_small_branches(of) if any(branches)]
    found.sort(key=lambda e: (sum(map(len, e.branches)), len(e.branches)))
    return (*found, *(make_example(of, branches) for branches in _iter_random_branches(of)))


def _iter_small_branches(of: Counting) -> Iterator[tuple[Branch, ...]]:
    if of.classes and of.size > 3:
        return  # examples of three classes cover absent classes
    few, three = of.values[:3], of.values[:2]
    for values, most, branches in ((of.values[:2], 3, 2), (few, 2, 2), (three, 2, 3)):
        one = [
            tuple((value, 1.0) for value in rows)
            for n in range(most + 1)
            for rows in combinations_with_replacement(values, n)
        ]
        yield from product(one, repeat=branches)


def _iter_random_branches(of: Counting) -> Iterator[tuple[Branch, ...]]:
    rng = np.random.default_rng(0)
    for k in range(40):
        size, unit = 3 + k, (1.0, 0.25, 1e-3, 1e6)[k % 4]
        targets = rng.choice(of.values, size)
        weights = unit * rng.integers(1, 9, size)
        sides = rng.integers(0, 2 + k % 3, size)
        yield tuple(
            tuple(zip(targets[sides == b].tolist(), weights[sides == b].tolist(), strict=True))
            for b in range(2 + k % 3)
        )


def format_numbers(values: Any) -> str:
    """Format numbers as in source code: ``[[2, 0], [0, 1.5]]``."""
    array = np.asarray(values)
    if array.ndim:
        return "[" + ", ".join(map(format_numbers, array)) + "]"
    number = array.item()
    exact = isinstance(number, float) and number == int(number) if np.isfinite(number) else False
    return str(int(number)) if exact and abs(number) < 1e15 else repr(number)


def format_call(name: str, *arguments: Any) -> str:
    """Format a call as in source code: ``impurity([3, 0])``."""
    return f"{name}({', '.join(map(format_numbers, arguments))})"
