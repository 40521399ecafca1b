"""Trees as tables that a recursive query walks: a plan of one size for any model.

A step joins each row, in each tree, with the node that it reached and asks the
node's question; it ends at a negative number, which stands for a leaf.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from treekit.export.lower import lower
from treekit.export.sql_cells import Cells
from treekit.export.sql_dialect import Dialect
from treekit.export.sql_divided import add_divided
from treekit.export.sql_query import Query
from treekit.export.sql_syntax import (
    Sql,
    call,
    cast,
    column,
    integer,
    is_null,
    select,
    switch,
    when,
)
from treekit.export.sql_walk import ROW, Walk, character, recurse
from treekit.export.table import LeafTable, leaf_table, node_table
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model

__all__ = ["add_table_sums"]


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
    walk = Walk(query.last, model, derived, cells, dialect, used)
    source = query.last
    if dialect.name == "sqlite":
        query.beside("powers", _powers())
    _add_leaves(query, leaves, dialect)
    if model.missing == "fractional":
        add_divided(query, walk, leaves)
    else:
        _add_plain(query, walk, leaves)
    query.recursive = True
    _add_sums(query, model, source)


def _add_plain(query: Query, walk: Walk, leaves: LeafTable) -> None:
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
    in_set = exp.EQ(this=character("members", asked.copy(), 1), expression=walk.dialect.text("1"))
    listed = exp.Not(this=is_null(column("members", "nodes")))
    yes, no = column("yes", "nodes"), column("no", "nodes")
    tests: list[tuple[Sql, Sql]] = [(is_null(asked.copy()), column("missing", "nodes"))]
    if any(member is not None for member in members):
        tests.append((listed, when([(in_set, yes.copy())], no.copy())))
    tests.append((walk.at_most(asked), yes))
    recurse(query, walk.start({}), walk.moved({"node": when(tests, no)}))


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
