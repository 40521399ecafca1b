"""What each step of a recursive query does: a row asks the question of the node it reached."""

from __future__ import annotations

from sqlglot import exp

from treekit.export.sql_cells import Cells
from treekit.export.sql_dialect import Dialect
from treekit.export.sql_query import Query
from treekit.export.sql_syntax import Sql, call, cast, column, integer, select, when
from treekit.export.sql_tests import derived_branch
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model

__all__ = ["ROW", "Walk", "character", "recurse"]

ROW = "row_number"
"""The column that tells the rows of the table apart."""


class Walk:
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


def character(name: str, code: Sql, width: int) -> Sql:
    """What stands in the text of a node for a level's code; "" beyond its end."""
    at = exp.Mul(this=exp.Paren(this=cast(code, "BIGINT")), expression=integer(width))
    start = cast(exp.Add(this=at, expression=integer(1)), "INT")
    return call("SUBSTR", column(name, "nodes"), start, integer(width))


def recurse(query: Query, start: exp.Select, moved: exp.Select) -> None:
    """Add the step that begins with `start` and goes on with `moved` as long as a row moves."""
    query.put("steps", exp.union(start, moved, distinct=False, copy=False))
