"""Builders of sqlglot syntax trees; text becomes SQL only through them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

from sqlglot import exp

HEADER_PREFIX = "-- treekit-sql "
"""Prefix of the line that describes in JSON how to run the file."""

# ---------------------------------------------------------------- sql syntax

Sql = exp.Expression

Operand = Sql | str | int
"""Expression, an integer of up to 64 bits, or the name of a column chosen by treekit, with its
table: ``table.column``.
"""

_MAX_CHAIN = 32
"""Maximum terms of a chain: each adds a level, and engines plan deep expressions slowly."""


def quote_identifier(name: str) -> exp.Identifier:
    """Build a quoted identifier of any name."""
    return exp.Identifier(this=name, quoted=True)


def quote_column(name: str, table: str) -> exp.Column:
    """Build a column of a table, both quoted."""
    return exp.Column(this=quote_identifier(name), table=quote_identifier(table))


def make_table(parts: Sequence[str]) -> exp.Table:
    """Build a table from its name, after its schema and catalog, all quoted."""
    names = [quote_identifier(part) for part in parts]
    return exp.Table(**dict(zip(("this", "db", "catalog"), names[::-1], strict=False)))


def as_sql(value: Operand) -> Sql:
    """Convert an operand to an expression; copy one that is already part of another."""
    if isinstance(value, str):
        table, _, name = value.rpartition(".")
        own = exp.Identifier(this=name, quoted=False)
        if not table:
            return exp.Column(this=own)
        return exp.Column(this=own, table=exp.Identifier(this=table, quoted=False))
    if isinstance(value, int):
        return exp.Literal.number(str(value))
    return value if value.parent is None else value.copy()


def combine(kind: type[Sql], left: Operand, right: Operand) -> Sql:
    """Build a binary operation."""
    return kind(this=as_sql(left), expression=as_sql(right))


def make_binary(kind: type[Sql], left: Operand, right: Operand) -> Sql:
    """Build a binary operation in parentheses."""
    return exp.Paren(this=combine(kind, left, right))


def make_call(function: str, *arguments: Operand) -> Sql:
    """Build a call of a function of the engine."""
    return exp.Anonymous(this=function, expressions=list(map(as_sql, arguments)))


def make_cast(value: Operand, kind: str) -> Sql:
    """Build a conversion to a type of sqlglot: DOUBLE, BIGINT, TEXT, FLOAT, ..."""
    # Not `exp.cast`, which would parse the type name each time.
    array = kind.endswith("[]")
    to = exp.DataType.build(kind) if array else exp.DataType(this=exp.DType[kind])
    return exp.Cast(this=as_sql(value), to=to)


def make_quotient(left: Operand, right: Operand) -> Sql:
    """Build a quotient whose left operand is a double."""
    # Marked as typed, so that sqlglot adds no conversion.
    return exp.Div(this=as_sql(left), expression=as_sql(right), typed=True, safe=False)


def make_case(tests: Iterable[tuple[Sql, Operand]], default: Operand | None = None) -> Sql:
    """Build ``CASE WHEN test THEN value ... ELSE default END``."""
    return make_switch(None, tests, default)


def make_switch(
    operand: Operand | None,
    tests: Iterable[tuple[Operand, Operand]],
    default: Operand | None = None,
) -> Sql:
    """Build ``CASE operand WHEN value THEN value ... ELSE default END``.

    Without `tests`, return `default`.
    """
    ifs = [exp.If(this=as_sql(test), true=as_sql(value)) for test, value in tests]
    end = None if default is None else as_sql(default)
    if not ifs:
        return end or exp.Null()
    return exp.Case(this=None if operand is None else as_sql(operand), ifs=ifs, default=end)


def make_null_test(value: Operand) -> Sql:
    """Build ``value IS NULL``."""
    return combine(exp.Is, value, exp.Null())


def make_or(left: Operand, right: Operand) -> Sql:
    """Build ``(left OR right)``."""
    return make_binary(exp.Or, left, right)


def make_membership_test(value: Operand, members: Sequence[Operand]) -> Sql:
    """Build ``value IN (members)`` with at least one member."""
    if len(members) == 1:
        return combine(exp.EQ, value, members[0])
    return exp.In(this=as_sql(value), expressions=list(map(as_sql, members)))


def add_terms(terms: Sequence[Operand]) -> Sql:
    """Build a sum of integers, in groups to limit the nesting depth."""
    groups = [chain_terms(terms[i : i + _MAX_CHAIN]) for i in range(0, len(terms), _MAX_CHAIN)]
    if len(groups) == 1:
        return groups[0]
    return add_terms([exp.Paren(this=group) for group in groups])


def chain_terms(terms: Sequence[Operand]) -> Sql:
    """Build a sum from left to right."""
    return reduce(partial(combine, exp.Add), terms[1:], as_sql(terms[0]))


def make_select(columns: Mapping[str, Sql], source: str = "") -> exp.Select:
    """Build ``SELECT value AS name, ... FROM source``; all names are chosen by treekit."""
    made = exp.Select(
        expressions=[
            as_sql(value)
            if value.name == name and isinstance(value, exp.Column)
            else exp.Alias(this=as_sql(value), alias=exp.Identifier(this=name, quoted=False))
            for name, value in (columns or {"unused": exp.Null()}).items()
        ]
    )
    return made.from_(exp.to_table(source), copy=False) if source else made


# ---------------------------------------------------------------- sql query


@dataclass
class Query:
    """Query in named steps, each a SELECT from the previous one.

    Attributes
    ----------
    carried_columns : list of str
        Columns that every step copies from the previous one.
    steps : list of (str, SELECT)
        Name and SELECT of each step.
    last_step : str
        Name of the last step.
    """

    carried_columns: list[str] = field(default_factory=list)
    steps: list[tuple[str, exp.Select | exp.Union]] = field(default_factory=list)
    last_step: str = ""

    def add_step(self, name: str, made: Mapping[str, Sql], keep: Iterable[str] = ()) -> None:
        """Add a step that selects `made` and the columns `keep` from the last step."""
        columns = {old: as_sql(old) for old in (*self.carried_columns, *keep)}
        self.append_query(name, make_select(columns | dict(made), self.last_step))

    def append_query(self, name: str, query: exp.Select | exp.Union) -> None:
        """Append any query as the last step."""
        self.steps.append((name, query))
        self.last_step = name

    def add_table(self, name: str, query: exp.Select | exp.Union) -> None:
        """Insert a table before all steps, for use in later steps."""
        self.steps.insert(0, (name, query))

    def build_statement(self, final: exp.Select) -> exp.Select:
        """Build a SELECT from the last step, with all steps as common table expressions."""
        parts = [
            # MATERIALIZED: each step is computed once, not again at each reference.
            exp.CTE(
                this=query,
                alias=exp.TableAlias(this=exp.to_identifier(name)),
                materialized=None if isinstance(query, exp.Union) else True,
            )
            for name, query in self.steps
        ]
        recursive = any(isinstance(query, exp.Union) for _, query in self.steps)
        made = final.from_(exp.to_table(self.last_step), copy=False)
        made.set("with_", exp.With(expressions=parts, recursive=recursive))
        return made

    def build_expression(self, final: Sql) -> Sql:
        """Build a single value from nested steps, usable wherever a value is allowed."""
        source: exp.From | None = None
        for name, query in self.steps:
            query.set("from_", source)
            # OFFSET 0 keeps PostgreSQL from inlining each column's expression at each reference.
            query.set("offset", exp.Offset(expression=as_sql(0)))
            alias = exp.TableAlias(this=exp.to_identifier(name))
            source = exp.From(this=exp.Subquery(this=query, alias=alias))
        made = exp.Select(expressions=[final])
        made.set("from_", source)
        return exp.Paren(this=made)
