"""Small tables to train on: with ties, missing cells, constant columns and whole weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

__all__ = ["Small", "small_table", "small_tables"]


@dataclass(frozen=True, eq=False)
class Small:
    """A training table of few rows.

    Attributes
    ----------
    columns : dict of str to list
        ``x`` numbers with ties, ``z`` numbers with missing cells, ``c`` levels
        with missing cells, ``k`` one value only.
    target : list
        Class names, or numbers.
    weights : list of int
        1 to 3.
    call : str
        What makes the same table again.
    beside : dict of str to list
        Columns that a task reads beside the target.
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

    def taken(self, order: Any) -> Small:
        """The rows of that order, with repetitions."""

        def picked(cells: list[Any]) -> list[Any]:
            return [cells[i] for i in order]

        return Small(
            {name: picked(cells) for name, cells in self.columns.items()},
            picked(self.target),
            picked(self.weights),
            self.call,
            {name: picked(cells) for name, cells in self.beside.items()},
        )

    def repeated(self) -> Small:
        """Each row as many times as it weighs, of weight 1."""
        long = self.taken(np.repeat(np.arange(self.rows), self.weights))
        return replace(long, weights=[1] * long.rows)

    def answering(self, target: list[Any], beside: dict[str, list[Any]]) -> Small:
        """The same columns with another target, and columns beside it."""
        call = f"{self.call} with columns {', '.join(map(repr, beside))} beside the target"
        return replace(self, target=target, beside=beside, call=call if beside else self.call)

    def with_columns(self, *names: str) -> Small:
        """The same rows with these columns only."""
        return replace(self, columns={name: self.columns[name] for name in names})

    def __str__(self) -> str:
        if self.rows > 6:
            return self.call
        return str(self.source)


@cache
def small_table(rows: int, classes: int = 0, least: float = -2.0) -> Small:
    """A table of so many rows; the same for the same arguments.

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
    gone = rng.random(rows) < 0.1
    levels = [None if away else "abcd"[k] for k, away in zip(c, gone, strict=True)]
    columns: dict[str, list[Any]] = {
        "x": x.astype(float).tolist(),
        "z": z.tolist(),
        "c": levels,
        "k": [1.0] * rows,
    }
    call = f"treekit.testing.tables.small_table({rows}, {classes}, {least})"
    return Small(columns, target, rng.integers(1, 4, rows).tolist(), call)


SIZES = (2, 3, 4, 6, 9, 14, 30, 80)


def small_tables(classes: int = 0, least: float = -2.0) -> Iterator[Small]:
    """Tables from two rows up."""
    for rows in SIZES:
        yield small_table(rows, classes if rows >= classes else min(rows, 2), least)
