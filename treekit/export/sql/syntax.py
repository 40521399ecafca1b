"""Builders of sqlglot syntax trees; text becomes SQL only through them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from treekit.errors import ExportError

# ---------------------------------------------------------------- sql syntax

Sql = exp.Expression

_MAX_CHAIN = 32
"""Maximum terms of a chain: each adds a level, and engines plan deep expressions slowly."""


def quote_identifier(name: str) -> exp.Identifier:
    """Build a quoted identifier of any name."""
    return exp.Identifier(this=name, quoted=True)


def make_column(name: str, table: str = "") -> Sql:
    """Build a column, optionally of a table; both names are chosen by treekit."""
    own = exp.Identifier(this=name, quoted=False)
    if not table:
        return exp.Column(this=own)
    return exp.Column(this=own, table=exp.Identifier(this=table, quoted=False))


def make_integer(number: int) -> Sql:
    """Build an integer of up to 64 bits."""
    return exp.Literal.number(str(int(number)))


def make_text_literal(content: str, nul: str) -> Sql:
    """Build a text expression; literals cannot contain NUL, so the function `nul` returns it.

    Raises
    ------
    ExportError
        For half a surrogate pair, or a NUL if `nul` is empty.
    """
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        raise ExportError(f"{content[:80]!r} is not valid Unicode text: rename it") from None
    parts: list[Sql] = [exp.Literal.string(part) for part in content.split("\0")]
    if len(parts) > 1 and not nul:
        raise ExportError(
            f"{content[:80]!r} contains a NUL, which PostgreSQL cannot store: rename it"
        )
    made = parts[0]
    for part in parts[1:]:
        made = exp.DPipe(this=made, expression=make_call(nul, make_integer(0)))
        made = exp.DPipe(this=made, expression=part)
    return exp.Paren(this=made) if len(parts) > 1 else made


def make_null() -> Sql:
    """Build NULL."""
    return exp.Null()


def make_call(function: str, *arguments: Sql) -> Sql:
    """Build a call of a function of the engine."""
    return exp.Anonymous(this=function, expressions=list(arguments))


def make_cast(value: Sql, kind: str) -> Sql:
    """Build a conversion to a type of sqlglot: DOUBLE, BIGINT, TEXT, FLOAT, ..."""
    if kind.endswith("[]"):
        return exp.Cast(this=value, to=exp.DataType.build(kind))
    # Not `exp.cast`, which would parse the type name each time.
    return exp.Cast(this=value, to=exp.DataType(this=exp.DType[kind]))


def make_binary(kind: type[exp.Binary], left: Sql, right: Sql) -> Sql:
    """Build a binary operation in parentheses."""
    return exp.Paren(this=kind(this=left, expression=right))


def make_quotient(left: Sql, right: Sql) -> Sql:
    """Build a quotient whose left operand is a double."""
    # Marked as typed, so that sqlglot adds no conversion.
    return exp.Div(this=left, expression=right, typed=True, safe=False)


def make_case(tests: Iterable[tuple[Sql, Sql]], default: Sql | None = None) -> Sql:
    """Build ``CASE WHEN test THEN value ... ELSE default END``."""
    return make_switch(None, tests, default)


def make_switch(
    operand: Sql | None, tests: Iterable[tuple[Sql, Sql]], default: Sql | None = None
) -> Sql:
    """Build ``CASE operand WHEN value THEN value ... ELSE default END``; no tests: `default`."""
    ifs = [exp.If(this=test, true=value) for test, value in tests]
    if not ifs:
        return default or make_null()
    return exp.Case(this=operand, ifs=ifs, default=default)


def make_null_test(value: Sql) -> Sql:
    """Build ``value IS NULL``."""
    return exp.Is(this=value, expression=make_null())


def make_or(left: Sql, right: Sql) -> Sql:
    """Build ``(left OR right)``."""
    return exp.Paren(this=exp.Or(this=left, expression=right))


def make_membership_test(value: Sql, members: Sequence[Sql]) -> Sql:
    """Build ``value IN (members)`` with at least one member."""
    if len(members) == 1:
        return exp.EQ(this=value, expression=members[0])
    return exp.In(this=value, expressions=list(members))


def add_terms(terms: Sequence[Sql]) -> Sql:
    """Build a sum of integers, in groups to limit the nesting depth."""
    groups = [_chain_terms(terms[i : i + _MAX_CHAIN]) for i in range(0, len(terms), _MAX_CHAIN)]
    if len(groups) == 1:
        return groups[0]
    return add_terms([exp.Paren(this=group) for group in groups])


def _chain_terms(terms: Sequence[Sql]) -> Sql:
    made = terms[0]
    for term in terms[1:]:
        made = exp.Add(this=made, expression=term)
    return made


def make_alias(value: Sql, name: str) -> Sql:
    """Build ``value AS name``; the name is chosen by treekit."""
    return exp.Alias(this=value, alias=exp.Identifier(this=name, quoted=False))


def make_select(columns: Mapping[str, Sql], source: str = "") -> exp.Select:
    """Build ``SELECT value AS name, ... FROM source``; all names are chosen by treekit."""
    made = exp.Select(
        expressions=[
            value
            if value.name == name and isinstance(value, exp.Column)
            else make_alias(value, name)
            for name, value in (columns or {"unused": make_null()}).items()
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
    recursive : bool
        Whether a step selects from itself.
    last_step : str
        Name of the last step.
    """

    carried_columns: list[str] = field(default_factory=list)
    steps: list[tuple[str, exp.Select | exp.Union]] = field(default_factory=list)
    recursive: bool = False
    last_step: str = ""

    def add_step(self, name: str, made: Mapping[str, Sql], keep: Iterable[str] = ()) -> None:
        """Add a step that selects `made` and the columns `keep` from the last step."""
        columns = {old: make_column(old) for old in (*self.carried_columns, *keep)}
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
        made = final.from_(exp.to_table(self.last_step), copy=False)
        made.set("with_", exp.With(expressions=parts, recursive=self.recursive))
        return made

    def build_expression(self, final: Sql) -> Sql:
        """Build a single value from nested steps, usable wherever a value is allowed."""
        source: exp.Subquery | None = None
        for name, query in self.steps:
            query.set("from_", None)
            source = self._nest_query(query, source, name)
        return exp.Paren(this=self._set_source(exp.Select(expressions=[final]), source))

    def _nest_query(
        self, query: exp.Select | exp.Union, source: exp.Subquery | None, name: str
    ) -> exp.Subquery:
        made = self._set_source(query, source)
        # OFFSET 0 keeps PostgreSQL from inlining each column's expression at each reference.
        made.set("offset", exp.Offset(expression=make_integer(0)))
        return exp.Subquery(this=made, alias=exp.TableAlias(this=exp.to_identifier(name)))

    @staticmethod
    def _set_source(query: exp.Select | exp.Union, source: exp.Subquery | None) -> exp.Expression:
        if source is not None:
            query.set("from_", exp.From(this=source))
        return query
