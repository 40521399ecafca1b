"""A single tree as nested CASE on the columns of the table, for people to review.

A column of the query is the label or number, and one for each class its probability.  Cells are
compared as they are: columns of numbers hold numbers, and columns of categories the texts of
the training table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from sqlglot import exp

from treekit.data.schema import Column
from treekit.export.lowering import LoweredTree, Step
from treekit.export.readable import explain_unreadable
from treekit.model.links import convert_sums
from treekit.model.model import Model, predict_labels
from treekit_sql.conditions import make_category_test, make_interval_test, write_threshold
from treekit_sql.dialects import Dialect
from treekit_sql.layout import ReviewedQuery, When
from treekit_sql.syntax import Sql, make_null_test
from treekit_sql.trees import compute_nesting, count_subtree_nodes, order_children

_MAX_LINES = 2000
"""Maximum number of tests of all columns of the query."""
_MAX_DEPTH = 12
"""Maximum nesting of CASE, as SQLite's parser allows."""


def explain_unreadable_sql(model: Model, trees: Sequence[LoweredTree], dialect: Dialect) -> str:
    """Return the reason why a model has no nested CASE for people; empty if it has one."""
    if reason := explain_unreadable(model, trees):
        return reason
    n_columns = 1 + len(model.schema.classes)
    if trees[0].n_nodes * n_columns > _MAX_LINES:
        return f"{n_columns} columns of {trees[0].n_nodes} nodes are more than {_MAX_LINES} lines"
    if compute_nesting(trees[0]) > _MAX_DEPTH:
        return f"CASE would nest more than {_MAX_DEPTH} deep"
    return "" if dialect.compares_bytes else _find_equal_levels(model.schema.columns)


def _find_equal_levels(columns: Sequence[Column]) -> str:
    """Return which categories differ only in case or blanks at their end; empty if none do."""
    for column in columns:
        seen: dict[str, str] = {}
        for level in column.levels:
            other = seen.setdefault(level.casefold().rstrip(), level)
            if other != level:
                return f"{other!r} and {level!r} of {column.name!r} may be equal in its collation"
    return ""


def render_readable(
    model: Model,
    tree: LoweredTree,
    dialect: Dialect,
    place: Sequence[str],
    keys: Sequence[str],
    names: Sequence[str],
) -> str:
    """Return the query.

    Parameters
    ----------
    place : sequence of str
        Name of the table, after its catalog and schema.
    keys : sequence of str
        Columns to copy.
    names : sequence of str
        Names of the label or number, and of the probabilities.
    """
    query = ReviewedQuery(model.schema, dialect, keys)
    query.read_cells(np.unique(tree.feature[tree.kind != Step.LEAF]).tolist(), place, text=False)
    printed = _PrintedTree(model, tree, query)
    columns = []
    if model.schema.classes:
        labels = [query.print_sql(dialect.make_label(label)) for label in model.schema.classes]
        codes = predict_labels(model.units, model.label_costs).tolist()
        columns.append(printed.format_values([labels[code] for code in codes]))
    for values in convert_sums(model, model.units).T.tolist():
        case = printed.format_values(list(map(query.print_number, values)))
        columns.append(case.join(dialect.double_cast))
    return query.write(zip(columns, names, strict=True))


class _PrintedTree:
    """The conditions of one tree, each printed once for all columns."""

    def __init__(self, model: Model, tree: LoweredTree, query: ReviewedQuery) -> None:
        self.model, self.tree, self.query = model, tree, query
        sizes = count_subtree_nodes(tree)
        self.order = [
            order_children(tree, sizes, node) if tree.kind[node] != Step.LEAF else (0, 0)
            for node in range(tree.n_nodes)
        ]
        self.conditions = [
            query.print_sql(self._make_test(node, wanted=light == int(tree.yes[node])))
            if tree.kind[node] != Step.LEAF
            else ""
            for node, (light, _) in enumerate(self.order)
        ]

    def format_values(self, values: Sequence[str]) -> str:
        """Return the CASE of a column, from the value of each leaf."""
        single = self._find_single_values(values)
        whens = self._make_whens(0, "  ", single)
        refused = [When([self.query.refusal], "NULL")] if self.query.refusal else []
        return self.query.format_case([*refused, *whens], "  ")

    def _make_whens(self, node: int, indent: str, single: list[str | None]) -> Iterator[When]:
        """Yield the branches of the CASE of a subtree, each for the lighter child of a split."""
        while (same := single[node]) is None:
            light, heavy = self.order[node]
            value = single[light]
            if value is None:
                inner = f"{indent}    "
                value = self.query.format_case(self._make_whens(light, inner, single), inner)
            yield When([self.conditions[node]], value)
            node = heavy
        yield When([], same)

    def _find_single_values(self, values: Sequence[str]) -> list[str | None]:
        """Return for each node the value of all its leaves, None if they differ."""
        tree = self.tree
        single: list[str | None] = [None] * tree.n_nodes
        for node in range(tree.n_nodes - 1, -1, -1):  # children have higher numbers
            if tree.kind[node] == Step.LEAF:
                single[node] = values[int(tree.leaf[node])]
            elif single[tree.yes[node]] == single[tree.no[node]]:
                single[node] = single[tree.yes[node]]
        return single

    def _make_test(self, node: int, *, wanted: bool) -> Sql:
        """Build the condition of the yes branch, or of the no branch."""
        tree, schema, dialect = self.tree, self.model.schema, self.query.dialect
        feature, kind = int(tree.feature[node]), tree.kind[node]
        column, cell = schema.columns[feature], self.query.cells[feature]
        missing = bool(tree.missing_yes[node]) == wanted
        if column.kind == "nominal":  # a category that training did not see is missing
            inside = set(tree.codes(node).tolist()) if kind == Step.IN else set()
            missing = missing if kind == Step.IN else wanted
            asked = [c for c in range(len(column.levels)) if ((c in inside) == wanted) != missing]
            texts = [dialect.make_text(column.levels[code]) for code in asked]
            return make_category_test(cell, texts, outside=missing, or_missing=missing)
        if kind == Step.MISSING:
            return make_null_test(cell) if wanted else exp.Not(this=make_null_test(cell))
        bounds = [None, write_threshold(float(tree.threshold[node]), schema.dtype, dialect)]
        above, upto = bounds if wanted else bounds[::-1]
        return make_interval_test(cell, above, upto, or_missing=missing)
