"""Conversion of the sums of a row to labels, probabilities and numbers."""

from __future__ import annotations

import itertools
import math

from sqlglot import exp

from treekit.export.sql.dialects import Dialect
from treekit.export.sql.inputs import REFUSED
from treekit.export.sql.syntax import (
    Query,
    Sql,
    added,
    binary,
    call,
    cast,
    column,
    integer,
    quotient,
    switch,
    when,
)
from treekit.model.links import COEFFICIENTS, LIMIT, LN2_HIGH, LN2_LOW, LOG2_E
from treekit.model.model import Model

__all__ = [
    "add_answers",
    "add_exponentials",
    "add_label",
]


# ---------------------------------------------------------------- sql answers


def add_label(query: Query, model: Model, dialect: Dialect) -> Sql:
    """Add the steps after the sums for the label or number of the first target."""
    if model.schema.task != "classification":
        return add_answers(query, model, dialect)[1][0]
    labels = _labels(query, model, dialect, [f"s{k}" for k in range(model.schema.n_values)])
    return _unless_refused(query, labels[0])


def add_answers(query: Query, model: Model, dialect: Dialect) -> tuple[list[Sql], list[Sql]]:
    """Add the steps after the sums; return the labels, and the probabilities or numbers.

    All of them are NULL for a row that the model refuses.
    """
    schema = model.schema
    sums = [f"s{k}" for k in range(schema.n_values)]
    votes = schema.task == "classification" and not model.margins
    labels = _labels(query, model, dialect, sums) if schema.task == "classification" else []
    if votes:
        total = dialect.number(float(model.unit_total))
        numbers = [_quotient(name, total.copy()) for name in sums]
    else:
        numbers = _add_link(query, model, dialect, sums, labels)
    labels = labels if not labels or votes else [column(f"label_{k}") for k in range(len(labels))]
    return [_unless_refused(query, a) for a in labels], [_unless_refused(query, a) for a in numbers]


def _unless_refused(query: Query, answer: Sql) -> Sql:
    if REFUSED not in query.carried:
        return answer
    return when([(exp.EQ(this=column(REFUSED), expression=integer(0)), answer)])


def _quotient(name: str, total: Sql) -> Sql:
    return quotient(cast(column(name), "DOUBLE"), total)


def _add_costs(query: Query, model: Model, sums: list[str]) -> list[str]:
    """Return the columns of votes, or of expected costs; the label has the largest, or smallest."""
    costs = model.label_costs
    if costs is None:
        return sums
    expected = {}
    for j in range(costs.shape[1]):
        terms = [
            exp.Mul(this=column(name), expression=integer(cost))
            for name, cost in zip(sums, costs[:, j].tolist(), strict=True)
            if cost
        ]
        expected[f"cost_{j}"] = added(terms) if terms else cast(integer(0), "BIGINT")
    query.step("costs", expected, sums)
    return list(expected)


def _labels(query: Query, model: Model, dialect: Dialect, sums: list[str]) -> list[Sql]:
    """Return the label of each target: the first class with most votes, or least cost."""
    ballots = _add_costs(query, model, sums)
    blocks = list(itertools.pairwise(model.schema.blocks))
    choose = dialect.greatest if model.label_costs is None else dialect.least
    best: dict[str, Sql] = {
        f"best_{b}": choose(list(map(column, ballots[first:last])))
        for b, (first, last) in enumerate(blocks)
        if last - first > 2
    }
    if best:
        query.step("best", best, dict.fromkeys([*sums, *ballots]))
    labels = []
    for b, (output, (first, last)) in enumerate(zip(model.schema.outputs, blocks, strict=True)):
        own = [dialect.label(label) for label in output.classes]
        values = list(map(column, ballots[first:last]))
        if len(own) > 2:
            labels.append(switch(column(f"best_{b}"), zip(values, own, strict=True)))
        elif len(own) == 2:
            wins = exp.GTE if model.label_costs is None else exp.LTE
            labels.append(when([(wins(this=values[0], expression=values[1]), own[0])], own[1]))
        else:
            labels.append(own[0])
    return labels


def _add_link(
    query: Query, model: Model, dialect: Dialect, sums: list[str], labels: list[Sql]
) -> list[Sql]:
    """Add the steps that scale the sums and apply the link function; keep labels as label_k."""
    made: dict[str, Sql] = {f"label_{k}": label for k, label in enumerate(labels)}
    query.step("numbers", made | {f"m{k}": _number(model, dialect, s) for k, s in enumerate(sums)})
    names, kept = [f"m{k}" for k in range(len(sums))], list(made)
    if model.link == "identity":
        return list(map(column, names))
    if model.link == "exp":
        add_exponentials(query, dialect, {f"e{k}": column(m) for k, m in enumerate(names)}, kept)
        return [column(f"e{k}") for k in range(len(sums))]
    if model.link == "sigmoid":
        arguments: dict[str, Sql] = {
            f"e{k}": exp.Neg(this=call("ABS", column(m))) for k, m in enumerate(names)
        }
        add_exponentials(query, dialect, arguments, [*kept, *names])
        return [_sigmoid(dialect, k) for k in range(len(sums))]
    return _softmax(query, model, dialect, names, kept)


def _number(model: Model, dialect: Dialect, total: str) -> Sql:
    made: Sql = cast(column(total), "DOUBLE")
    if model.divisor != 1:
        made = quotient(made, dialect.number(float(model.divisor)))
    if model.exponent == 0:
        return made
    return exp.Mul(
        this=exp.Paren(this=made), expression=dialect.number(math.ldexp(1.0, model.exponent))
    )


def _sigmoid(dialect: Dialect, k: int) -> Sql:
    e, one = column(f"e{k}"), dialect.number(1.0)
    above = exp.GTE(this=column(f"m{k}"), expression=dialect.number(0.0))
    share = binary(exp.Add, one, e)
    return quotient(exp.Paren(this=when([(above, one.copy())], e.copy())), share)


def _softmax(
    query: Query, model: Model, dialect: Dialect, names: list[str], kept: list[str]
) -> list[Sql]:
    blocks = list(itertools.pairwise(model.schema.blocks))
    largest = {
        f"largest_{b}": dialect.greatest(list(map(column, names[first:last])))
        for b, (first, last) in enumerate(blocks)
    }
    query.step("largest", largest, [*kept, *names])
    arguments: dict[str, Sql] = {
        f"e{k}": exp.Sub(this=column(names[k]), expression=column(f"largest_{b}"))
        for b, (first, last) in enumerate(blocks)
        for k in range(first, last)
    }
    add_exponentials(query, dialect, arguments, kept)
    terms = [f"e{k}" for k in range(len(names))]
    for b, (first, last) in enumerate(blocks):
        _add_chain(query, f"total_{b}", terms[first:last], [*kept, *terms])
        kept = [*kept, f"total_{b}"]
    return [
        quotient(column(f"e{k}"), column(f"total_{b}"))
        for b, (first, last) in enumerate(blocks)
        for k in range(first, last)
    ]


_CHAIN = 300


def _add_chain(query: Query, name: str, terms: list[str], keep: list[str]) -> None:
    """Add steps that sum doubles in order, without expressions too deep for an engine."""
    made: Sql | None = None
    for at in range(0, len(terms), _CHAIN):
        for term in terms[at : at + _CHAIN]:
            made = column(term) if made is None else exp.Add(this=made, expression=column(term))
        assert made is not None  # noqa: S101 - a target has a class
        partial = f"{name}_{at}"
        query.step(partial, {partial: made}, [*keep, *([f"{name}_{at - _CHAIN}"] if at else [])])
        made = column(partial)
    assert made is not None  # noqa: S101
    query.step(name, {name: made}, keep)


# ---------------------------------------------------------------- sql links
# Link functions of `treekit.model.links` in SQL, operation by operation.

_TINY = 1e-100
"""Smaller arguments count as 0: their exp is 1, and an underflow is an error in PostgreSQL."""
_BITS = 10


def add_exponentials(
    query: Query, dialect: Dialect, arguments: dict[str, Sql], keep: list[str]
) -> None:
    """Add the steps that compute exp of each argument, under its name; keep the columns `keep`."""
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
    """Build ``2**abs(n)``, exact: a product with one power of two per bit."""
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
