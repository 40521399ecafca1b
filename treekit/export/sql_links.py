"""Links of `treekit.model.links` in SQL, operation by operation."""

from __future__ import annotations

from sqlglot import exp

from treekit.export.sql_dialect import Dialect
from treekit.export.sql_query import Query
from treekit.export.sql_syntax import Sql, binary, call, cast, column, integer, quotient, when
from treekit.model.links import COEFFICIENTS, LIMIT, LN2_HIGH, LN2_LOW, LOG2_E

__all__ = ["add_exponentials"]

_TINY = 1e-100
"""Below it exp is 1, and PostgreSQL's products would underflow, which is an error there."""
_BITS = 10


def add_exponentials(
    query: Query, dialect: Dialect, arguments: dict[str, Sql], keep: list[str]
) -> None:
    """Add the steps that work out exp of each argument, under its name; `keep` is handed on."""
    names = list(arguments)
    clamped = {}
    for name, value in arguments.items():
        size = call("ABS", value.copy())
        limits: list[tuple[Sql, Sql]] = [
            (exp.LT(this=size, expression=dialect.number(_TINY)), dialect.number(0.0)),
            (exp.GT(this=value.copy(), expression=dialect.number(LIMIT)), dialect.number(LIMIT)),
            (exp.LT(this=value.copy(), expression=dialect.number(-LIMIT)), dialect.number(-LIMIT)),
        ]
        clamped[f"{name}_x"] = when(limits, value)
    query.step("clamped", clamped, keep)
    query.step(
        "wholes",
        {
            f"{name}_n": dialect.floor(
                binary(
                    exp.Add,
                    exp.Mul(this=column(f"{name}_x"), expression=dialect.number(LOG2_E)),
                    dialect.number(0.5),
                )
            )
            for name in names
        },
        [*keep, *(f"{name}_x" for name in names)],
    )
    query.step(
        "remainders",
        {f"{name}_r": _remainder(name, dialect) for name in names},
        [*keep, *(f"{name}_n" for name in names)],
    )
    query.step(
        "scaled",
        {f"{name}_p": _polynomial(f"{name}_r", dialect) for name in names}
        | {f"{name}_2": _power(f"{name}_n", dialect) for name in names},
        [*keep, *(f"{name}_n" for name in names)],
    )
    query.step("exponentials", {name: _exponential(name) for name in names}, keep)


def _remainder(name: str, dialect: Dialect) -> Sql:
    n = cast(column(f"{name}_n"), "DOUBLE")
    high = exp.Mul(this=n, expression=dialect.number(LN2_HIGH))
    low = exp.Mul(this=n.copy(), expression=dialect.number(LN2_LOW))
    return binary(exp.Sub, binary(exp.Sub, column(f"{name}_x"), high), low)


def _polynomial(r: str, dialect: Dialect) -> Sql:
    made = dialect.number(COEFFICIENTS[0])
    for coefficient in COEFFICIENTS[1:]:
        product = exp.Mul(this=made, expression=column(r))
        made = binary(exp.Add, product, dialect.number(coefficient))
    return made


def _power(n: str, dialect: Dialect) -> Sql:
    """``2**abs(n)``, exact: the product of a power of two for each bit."""
    made: Sql | None = None
    for bit in range(_BITS):
        masked = exp.BitwiseAnd(this=call("ABS", column(n)), expression=integer(1 << bit))
        has = exp.NEQ(this=exp.Paren(this=masked), expression=integer(0))
        factor = when([(has, dialect.number(2.0 ** (1 << bit)))], dialect.number(1.0))
        made = factor if made is None else exp.Mul(this=made, expression=factor)
    assert made is not None  # noqa: S101 - ten bits
    return made


def _exponential(name: str) -> Sql:
    p, power = column(f"{name}_p"), column(f"{name}_2")
    negative = exp.LT(this=column(f"{name}_n"), expression=integer(0))
    return when(
        [(negative, quotient(p, power))],
        exp.Mul(this=p.copy(), expression=power.copy()),
    )
