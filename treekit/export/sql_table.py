"""Trees as tables that a recursive query walks: a plan of one size for any model.

A step joins each row, in each tree, with the node that it reached and asks the
node's question; it ends at a negative number, which stands for a leaf.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from treekit.export.divided import divided_table
from treekit.export.lower import lower
from treekit.export.sql_cells import Cells
from treekit.export.sql_dialect import Dialect
from treekit.export.sql_query import Query
from treekit.export.sql_syntax import (
    Sql,
    binary,
    call,
    cast,
    column,
    integer,
    is_null,
    select,
    switch,
    when,
)
from treekit.export.sql_tests import derived_branch
from treekit.export.table import LeafTable, leaf_table, node_table
from treekit.model.derived import DerivedColumns
from treekit.model.ensemble import Model
from treekit.model.portable import MASS

__all__ = ["ROW", "add_table_sums"]

ROW = "row_number"
"""The column that tells the rows of the table apart."""

_DIGITS = 4
"""Of a branch in the text that lists those of a column's levels."""


def add_table_sums(
    query: Query,
    model: Model,
    derived: DerivedColumns,
    cells: Cells,
    dialect: Dialect,
    used: set[int],
) -> None:
    """Add the steps from cells, numbered by `ROW`, to the sums ``s0``, ``s1``, ... of a row."""
    leaves = leaf_table(model.units)
    walk = _Walk(query.last, model, derived, cells, dialect, used)
    source = query.last
    if dialect.name == "sqlite":
        query.beside("powers", _powers())
    _add_leaves(query, leaves, dialect)
    if model.missing == "fractional":
        _add_divided(query, walk, leaves)
    else:
        _add_plain(query, walk, leaves)
    query.recursive = True
    _add_sums(query, model, source)


class _Walk:
    """What a step of the recursion knows.

    Attributes
    ----------
    source : str
        The step of the query that has the cells.
    """

    def __init__(
        self,
        source: str,
        model: Model,
        derived: DerivedColumns,
        cells: Cells,
        dialect: Dialect,
        used: set[int],
    ) -> None:
        self.source, self.model, self.dialect = source, model, dialect
        self.derived, self.cells, self.used = derived, cells, sorted(used)

    def asked(self) -> Sql:
        """The cell, as a double, that the node's ``feature`` names."""
        n, d = self.model.schema.n_features, self.derived.n_columns
        return self._search([*self.used, *range(n, n + d)])

    def _search(self, features: list[int]) -> Sql:
        """By halves: few comparisons, and no deep nest, for thousands of columns."""
        if not features:
            return cast(exp.Null(), "DOUBLE")
        if len(features) == 1:
            return self._cell(features[0])
        middle = len(features) // 2
        below = exp.LT(this=column("feature", "nodes"), expression=integer(features[middle]))
        return when([(below, self._search(features[:middle]))], self._search(features[middle:]))

    def _cell(self, feature: int) -> Sql:
        n = self.model.schema.n_features
        if feature < n:
            return cast(self.cells.of(feature), "DOUBLE")
        tests = derived_branch(self.model, self.derived, feature - n, self.cells, self.dialect)
        value = tests[0] if len(tests) == 1 else call("COALESCE", *tests)
        return cast(value, "DOUBLE")

    def at_most(self, asked: Sql) -> Sql:
        """``asked <= bound``."""
        return exp.LTE(this=asked, expression=column("bound", "nodes"))

    def start(self, more: dict[str, Sql]) -> exp.Select:
        """Each row at the root of each tree."""
        columns = {ROW: column(ROW, self.source), "node": column("node", "roots")} | more
        return select(columns, self.source).join(
            exp.to_table("roots"), join_type="CROSS", copy=False
        )

    def moved(self, columns: dict[str, Sql]) -> exp.Select:
        """Each row, beside the node that it reached, and its cells."""
        made = select({ROW: column(ROW, "steps")} | columns, "steps")
        here = exp.EQ(this=column("node", "nodes"), expression=column("node", "steps"))
        own = exp.EQ(this=column(ROW, self.source), expression=column(ROW, "steps"))
        made = made.join(exp.to_table("nodes"), on=here, copy=False)
        return made.join(exp.to_table(self.source), on=own, copy=False)


def _add_plain(query: Query, walk: _Walk, leaves: LeafTable) -> None:
    """Steps of a model whose rows take one branch."""
    model = walk.model
    table = node_table(lower(model, walk.derived), leaves, model.schema)
    kind = table.question % 4
    missing = np.where((kind == 1) | (kind == 3), table.yes, table.no)
    members = _members(kind, table.set_start, table.set_codes)
    query.beside("roots", walk.dialect.rows(node=table.root))
    query.beside(
        "nodes",
        walk.dialect.rows(
            node=np.arange(len(kind)),
            feature=table.question // 4,
            bound=np.where(kind == 2, 0.0, table.value),
            members=members,
            yes=np.where(kind == 3, table.no, table.yes),
            no=table.no,
            missing=missing,
        ),
    )
    asked = walk.asked()
    in_set = exp.EQ(this=_character("members", asked.copy(), 1), expression=walk.dialect.text("1"))
    listed = exp.Not(this=is_null(column("members", "nodes")))
    yes, no = column("yes", "nodes"), column("no", "nodes")
    tests: list[tuple[Sql, Sql]] = [(is_null(asked.copy()), column("missing", "nodes"))]
    if any(member is not None for member in members):
        tests.append((listed, when([(in_set, yes.copy())], no.copy())))
    tests.append((walk.at_most(asked), yes))
    _recurse(query, walk.start({}), walk.moved({"node": when(tests, no)}))


def _members(
    kind: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]
) -> list[str | None]:
    """For each node that asks a set a text with 1 at the members' places, else None."""
    made: list[str | None] = [None] * len(kind)
    nodes = np.flatnonzero(kind == 2).tolist()
    for node, (first, last) in zip(nodes, pairwise(starts.tolist()), strict=True):
        own = codes[first:last]
        flags = np.zeros(own[-1] + 1, dtype=np.uint8)
        flags[own] = 1
        made[node] = (flags + ord("0")).tobytes().decode("ascii")
    return made


def _character(name: str, code: Sql, width: int) -> Sql:
    """What stands in the text of a node for a level's code; "" beyond its end."""
    at = exp.Mul(this=exp.Paren(this=cast(code, "BIGINT")), expression=integer(width))
    start = cast(exp.Add(this=at, expression=integer(1)), "INT")
    return call("SUBSTR", column(name, "nodes"), start, integer(width))


def _add_divided(query: Query, walk: _Walk, leaves: LeafTable) -> None:
    """Steps of a model whose rows divide: a part of the mass goes on to each branch."""
    dialect = walk.dialect
    table = divided_table(walk.model, leaves, walk.derived)
    inner = np.flatnonzero(table.question >= 0)
    kind = table.question[inner] % 4
    branches, edges = _branches(walk.model, table.child[inner])
    goes = np.where(table.child < 0, table.child, np.arange(len(table.child)))
    texts = _branch_texts(walk.model, table.level_branch, table, inner)
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
    _recurse(query, walk.start({"mass": cast(integer(MASS), "BIGINT")}), moved)


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
    level_branch: npt.NDArray[np.int64],
    table: object,
    inner: npt.NDArray[np.int64],
) -> list[str | None]:
    """For each inner node that asks levels the branch of each plus one, in `_DIGITS`; 0: none."""
    question, value = getattr(table, "question"), getattr(table, "value")  # noqa: B009
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


def _taken(walk: _Walk, texts: list[str | None]) -> Sql:
    """The branch that a row takes, NULL where it divides."""
    asked = walk.asked()
    gone = when([(is_null(asked), integer(0))], integer(1))
    never = exp.EQ(this=column("never", "nodes"), expression=integer(1))
    tests: list[tuple[Sql, Sql]] = [(never, gone)]
    if any(text is not None for text in texts):
        branch = cast(_character("branches", asked.copy(), _DIGITS), "BIGINT")
        known = call("NULLIF", exp.Sub(this=branch, expression=integer(1)), integer(-1))
        present = exp.Not(this=is_null(column("branches", "nodes")))
        listed = when([(exp.Not(this=is_null(asked.copy())), known)])
        tests.append((present, listed))
    tests.append((walk.at_most(asked.copy()), integer(0)))
    above = exp.GT(this=asked.copy(), expression=column("bound", "nodes"))
    return when([*tests, (above, integer(1))])


def _recurse(query: Query, start: exp.Select, moved: exp.Select) -> None:
    query.put("steps", exp.union(start, moved, distinct=False, copy=False))


def _add_leaves(query: Query, leaves: LeafTable, dialect: Dialect) -> None:
    """What is not zero in the distinct leaves, a row a number."""
    start, position, units = leaves.sparse()
    leaf = np.repeat(np.arange(len(start) - 1), np.diff(start))
    query.beside("leaves", dialect.rows(leaf=-1 - leaf, position=position, units=units))


def _add_sums(query: Query, model: Model, source: str) -> None:
    units: Sql = column("units", "leaves")
    if model.missing == "fractional":
        units = exp.Mul(this=column("mass", "steps"), expression=units)
    columns: dict[str, Sql] = {ROW: column(ROW, "steps")}
    for k in range(model.schema.n_values):
        own = [(integer(k), units.copy())]
        term = switch(column("position", "leaves"), own, integer(0))
        columns[f"s{k}"] = cast(call("SUM", term), "BIGINT")
    here = exp.EQ(this=column("leaf", "leaves"), expression=column("node", "steps"))
    ended = exp.LT(this=column("node", "steps"), expression=integer(0))
    totals = (
        select(columns, "steps")
        .join(exp.to_table("leaves"), on=here, join_type="LEFT", copy=False)
        .where(ended, copy=False)
        .group_by(column(ROW, "steps"), copy=False)
    )
    query.put("totals", totals)
    made = {name: column(name, source) for name in query.carried}
    made |= {f"s{k}": column(f"s{k}") for k in range(model.schema.n_values)}
    same = exp.EQ(this=column(ROW, source), expression=column(ROW, "totals"))
    query.put("sums", select(made, source).join(exp.to_table("totals"), on=same, copy=False))


def _powers() -> exp.Union:
    """Powers of two, up and down: as far as doubles go, each from the last, which is exact."""
    start = {"exponent": "0", "up": "1.0", "down": "1.0"}
    begin = select({name: exp.Literal.number(number) for name, number in start.items()})
    following: dict[str, Sql] = {
        "exponent": exp.Add(this=column("exponent"), expression=integer(1)),
        "up": exp.Mul(this=column("up"), expression=exp.Literal.number("2.0")),
        "down": exp.Mul(this=column("down"), expression=exp.Literal.number("0.5")),
    }
    more = exp.LT(this=column("exponent"), expression=integer(1074))
    return exp.union(
        begin, select(following, "powers").where(more, copy=False), distinct=False, copy=False
    )
