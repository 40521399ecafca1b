"""A recursive query over rows that divide at missing values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from treekit.export.divided import DividedTable, divided_table
from treekit.export.sql_query import Query
from treekit.export.sql_syntax import (
    Sql,
    binary,
    call,
    cast,
    column,
    integer,
    is_null,
    when,
)
from treekit.export.sql_walk import Walk, character, recurse
from treekit.export.table import LeafTable
from treekit.model.fixed_point import MASS
from treekit.model.model import Model

__all__ = ["add_divided"]

_DIGITS = 4
"""Of a branch in the text that lists those of a column's levels."""


def add_divided(query: Query, walk: Walk, leaves: LeafTable) -> None:
    """Steps of a model whose rows divide: a part of the mass goes on to each branch."""
    dialect = walk.dialect
    table = divided_table(walk.model, leaves, walk.derived)
    inner = np.flatnonzero(table.question >= 0)
    kind = table.question[inner] % 4
    branches, edges = _branches(walk.model, table.child[inner])
    goes = np.where(table.child < 0, table.child, np.arange(len(table.child)))
    texts = _branch_texts(walk.model, table, inner)
    query.beside("roots", dialect.rows(node=goes[table.root]))
    query.beside(
        "nodes",
        dialect.rows(
            node=inner,
            feature=table.question[inner] // 4,
            bound=np.where(kind == 2, 0.0, table.value[inner]),
            never=(kind == 3).astype(np.int64),
            branches=texts,
        ),
    )
    query.beside(
        "edges",
        dialect.rows(
            parent=np.repeat(inner, branches),
            branch=np.concatenate([np.arange(n) for n in branches]) if len(inner) else inner,
            child=goes[edges],
            low=table.low[edges],
            high=table.high[edges],
        ),
    )
    taken = _taken(walk, texts)
    bits = integer(MASS.bit_length() - 1)
    parts = [
        exp.Paren(
            this=exp.BitwiseRightShift(
                this=binary(exp.Mul, column("mass", "steps"), column(end, "edges")),
                expression=bits.copy(),
            )
        )
        for end in ("high", "low")
    ]
    part = exp.Sub(this=parts[0], expression=parts[1])
    mass = when([(is_null(taken), part)], column("mass", "steps"))
    moved = walk.moved({"node": column("child", "edges"), "mass": mass})
    here = exp.EQ(this=column("parent", "edges"), expression=column("node", "steps"))
    goes_on = exp.EQ(
        this=call("COALESCE", taken.copy(), column("branch", "edges")),
        expression=column("branch", "edges"),
    )
    moved = moved.join(exp.to_table("edges"), on=here, copy=False).where(
        exp.GT(this=column("mass", "steps"), expression=integer(0)), goes_on, copy=False
    )
    recurse(query, walk.start({"mass": cast(integer(MASS), "BIGINT")}), moved)


def _branches(
    model: Model, first: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How many branches each inner node has, and the node of each branch."""
    counts = np.concatenate([tree.n_children for tree in model.trees]).astype(np.int64)
    counts = counts[counts > 0]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return counts, np.repeat(first, counts) + within


def _branch_texts(
    model: Model,
    table: DividedTable,
    inner: npt.NDArray[np.int64],
) -> list[str | None]:
    """For each inner node that asks levels the branch of each plus one, in `_DIGITS`; 0: none."""
    question, value, level_branch = table.question, table.value, table.level_branch
    sizes = model.schema.n_levels
    made: list[str | None] = []
    for node in inner.tolist():
        if question[node] % 4 != 2:
            made.append(None)
            continue
        first = int(value[node])
        own = level_branch[first : first + int(sizes[question[node] // 4])]
        made.append("".join(f"{branch + 1:0{_DIGITS}d}" for branch in own.tolist()))
    return made


def _taken(walk: Walk, texts: list[str | None]) -> Sql:
    """The branch that a row takes, NULL where it divides."""
    asked = walk.asked()
    gone = when([(is_null(asked), integer(0))], integer(1))
    never = exp.EQ(this=column("never", "nodes"), expression=integer(1))
    tests: list[tuple[Sql, Sql]] = [(never, gone)]
    if any(text is not None for text in texts):
        branch = cast(character("branches", asked.copy(), _DIGITS), "BIGINT")
        known = call("NULLIF", exp.Sub(this=branch, expression=integer(1)), integer(-1))
        present = exp.Not(this=is_null(column("branches", "nodes")))
        listed = when([(exp.Not(this=is_null(asked.copy())), known)])
        tests.append((present, listed))
    tests.append((walk.at_most(asked.copy()), integer(0)))
    above = exp.GT(this=asked.copy(), expression=column("bound", "nodes"))
    return when([*tests, (above, integer(1))])
