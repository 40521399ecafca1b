"""Trees as CASE expressions, and sums of votes of all trees.

A CASE follows the path to the heavier child, so that what it nests is at most
half as large: 20 levels hold a million leaves, and a chain of any depth is one
flat CASE.  (Heavy paths: Sleator and Tarjan 1983, section 5.)
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from treekit.export.lower import LoweredTree, Step
from treekit.export.sql_cells import Cells
from treekit.export.sql_dialect import Dialect
from treekit.export.sql_query import Query
from treekit.export.sql_syntax import Sql, added, cast, column, integer, when
from treekit.export.sql_tests import Tests
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model

__all__ = ["add_case_sums", "nesting", "value_groups"]

_BITS = 31
"""Of one of two sums of votes that share a BIGINT."""


def value_groups(model: Model) -> list[list[int]]:
    """Which of the sums each copy of the trees adds up: one, or two in one BIGINT.

    Of the votes for one target's classes the last sum follows from the others.
    """
    schema = model.schema
    votes = schema.task == "classification" and not model.margins
    size = 2 if votes and model.unit_total < 1 << _BITS else 1
    groups: list[list[int]] = []
    for first, last in itertools.pairwise(schema.blocks):
        if votes:
            own = range(first, last - 1)
        elif model.margins and last - first == 2:
            own = range(first + 1, last)  # the first one's margin is 0
        else:
            own = range(first, last)
        groups += [list(own[i : i + size]) for i in range(0, len(own), size)]
    return groups


def add_case_sums(
    query: Query,
    model: Model,
    trees: tuple[LoweredTree, ...],
    derived: DerivedColumns,
    cells: Cells,
    dialect: Dialect,
) -> None:
    """Add the steps from cells to the sums ``s0``, ``s1``, ... of the model's values."""
    groups = value_groups(model)
    shift = np.array([1, 1 << _BITS])
    packed = [(model.units[:, own] * shift[: len(own)]).sum(axis=1).tolist() for own in groups]
    tests = [Tests(model, tree, derived, cells, dialect) for tree in trees]
    sizes = [_sizes(tree) for tree in trees]
    made: dict[str, Sql] = {}
    for number, values in enumerate(packed):
        terms = [
            # Whole numbers that fit 32 bits would overflow them in sums.
            cast(_case(own, size, values, 0), "BIGINT")
            for own, size in zip(tests, sizes, strict=True)
        ]
        made[f"g{number}"] = added(terms)
    query.step("trees", made)
    query.step("sums", _unpacked(model, groups))


def _unpacked(model: Model, groups: list[list[int]]) -> dict[str, Sql]:
    """The sum of each of the model's values."""
    schema = model.schema
    made: dict[int, Sql] = {}
    for number, own in enumerate(groups):
        group = column(f"g{number}")
        if len(own) == 1:
            made[own[0]] = group
            continue
        low = integer((1 << _BITS) - 1)
        made[own[0]] = exp.Paren(this=exp.BitwiseAnd(this=group, expression=low))
        made[own[1]] = exp.Paren(
            this=exp.BitwiseRightShift(this=group.copy(), expression=integer(_BITS))
        )
    for first, last in itertools.pairwise(schema.blocks):
        others = [made[k].copy() for k in range(first, last) if k in made]
        if model.margins and len(others) < last - first:
            made[first] = cast(integer(0), "BIGINT")
        elif len(others) < last - first:
            total = cast(integer(model.unit_total), "BIGINT")
            if others:
                total = exp.Sub(this=total, expression=exp.Paren(this=added(others)))
            made[last - 1] = total
    return {f"s{k}": made[k] for k in range(schema.n_values)}


def _sizes(tree: LoweredTree) -> list[int]:
    """Nodes below and at each node."""
    sizes = [1] * tree.n_nodes
    yes, no, kind = tree.yes.tolist(), tree.no.tolist(), tree.kind.tolist()
    for node in range(tree.n_nodes - 1, -1, -1):
        if kind[node] != Step.LEAF:
            sizes[node] = 1 + sizes[yes[node]] + sizes[no[node]]
    return sizes


def nesting(tree: LoweredTree) -> int:
    """CASE expressions within each other."""
    deep: npt.NDArray[np.int64] = np.zeros(tree.n_nodes, dtype=np.int64)
    sizes = _sizes(tree)
    for node in range(tree.n_nodes - 1, -1, -1):
        if tree.kind[node] != Step.LEAF:
            light, heavy = _sides(tree, sizes, node)
            deep[node] = max(1, deep[light] + 1, deep[heavy])
    return int(deep[0])


def _sides(tree: LoweredTree, sizes: list[int], node: int) -> tuple[int, int]:
    """The lighter and the heavier child."""
    yes, no = int(tree.yes[node]), int(tree.no[node])
    return (yes, no) if sizes[yes] <= sizes[no] else (no, yes)


def _case(tests: Tests, sizes: list[int], values: list[int], node: int) -> Sql:
    tree = tests.tree
    found: list[tuple[Sql, Sql]] = []
    while tree.kind[node] != Step.LEAF:
        light, heavy = _sides(tree, sizes, node)
        condition = tests.condition(node, light == int(tree.yes[node]))
        found.append((condition, _case(tests, sizes, values, light)))
        node = heavy
    return when(found, integer(values[int(tree.leaf[node])]))
