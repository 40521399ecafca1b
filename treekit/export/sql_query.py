"""A query in steps: each a SELECT from the one before, under names of treekit's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from treekit.export.sql_syntax import Sql, column, integer, select

__all__ = ["Query"]


@dataclass
class Query:
    """Steps of a query, the last of which is open.

    Attributes
    ----------
    carried : list of str
        Columns that every step hands on.
    steps : list of (str, SELECT)
        Names, and what each selects.
    recursive : bool
        Whether a step selects from itself.
    """

    carried: list[str] = field(default_factory=list)
    steps: list[tuple[str, exp.Select | exp.Union]] = field(default_factory=list)
    recursive: bool = False
    last: str = ""

    def step(self, name: str, made: Mapping[str, Sql], keep: Iterable[str] = ()) -> None:
        """Select `made` and the columns `keep` from the last step."""
        columns = {old: column(old) for old in (*self.carried, *keep)}
        self.put(name, select(columns | dict(made), self.last))

    def put(self, name: str, query: exp.Select | exp.Union) -> None:
        """Any query as the last step."""
        self.steps.append((name, query))
        self.last = name

    def beside(self, name: str, query: exp.Select | exp.Union) -> None:
        """A table that later steps name, before the last step."""
        self.steps.insert(0, (name, query))

    def statement(self, final: exp.Select) -> exp.Select:
        """All steps as common table expressions of a SELECT from the last one."""
        parts = [
            # Each step is worked out once, and not again wherever it is named.
            exp.CTE(
                this=query,
                alias=exp.TableAlias(this=exp.to_identifier(name)),
                materialized=None if isinstance(query, exp.Union) else True,
            )
            for name, query in self.steps
        ]
        made = final.from_(exp.to_table(self.last), copy=False)
        made.set("with_", exp.With(expressions=parts, recursive=self.recursive))
        return made

    def expression(self, final: Sql) -> Sql:
        """One value, worked out by steps within each other: usable wherever a value is."""
        source: exp.Subquery | None = None
        for name, query in self.steps:
            query.set("from_", None)
            source = self._within(query, source, name)
        return exp.Paren(this=self._from(exp.Select(expressions=[final]), source))

    def _within(
        self, query: exp.Select | exp.Union, source: exp.Subquery | None, name: str
    ) -> exp.Subquery:
        made = self._from(query, source)
        # PostgreSQL would write each column's expression wherever it is named.
        made.set("offset", exp.Offset(expression=integer(0)))
        return exp.Subquery(this=made, alias=exp.TableAlias(this=exp.to_identifier(name)))

    @staticmethod
    def _from(query: exp.Select | exp.Union, source: exp.Subquery | None) -> exp.Expression:
        if source is not None:
            query.set("from_", exp.From(this=source))
        return query
