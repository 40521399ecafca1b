"""Conversion of the sums of a row to labels, probabilities and numbers."""

from __future__ import annotations

import itertools
import math

from sqlglot import exp

from treekit.export.sql.dialects import Dialect
from treekit.export.sql.inputs import REFUSED_COLUMN
from treekit.export.sql.syntax import (
    Query,
    Sql,
    add_terms,
    make_binary,
    make_call,
    make_case,
    make_cast,
    make_column,
    make_integer,
    make_quotient,
    make_switch,
)
from treekit.model.links import EXP_COEFFICIENTS, EXP_LIMIT, LN2_HIGH, LN2_LOW, LOG2_E
from treekit.model.model import Model

# ---------------------------------------------------------------- sql answers


def add_label_steps(query: Query, model: Model, dialect: Dialect) -> Sql:
    """Add the steps after the sums for the label or number of the first target."""
    if model.schema.task != "classification":
        return add_prediction_steps(query, model, dialect)[1][0]
    labels = _make_labels(query, model, dialect, [f"s{k}" for k in range(model.schema.n_values)])
    return _null_if_refused(query, labels[0])


def add_prediction_steps(
    query: Query, model: Model, dialect: Dialect
) -> tuple[list[Sql], list[Sql]]:
    """Add the steps after the sums; return the labels, and the probabilities or numbers.

    All of them are NULL for a row that the model refuses.
    """
    schema = model.schema
    sums = [f"s{k}" for k in range(schema.n_values)]
    votes = schema.task == "classification" and not model.margins
    labels = _make_labels(query, model, dialect, sums) if schema.task == "classification" else []
    if votes:
        total = dialect.make_number(float(model.unit_total))
        numbers = [_divide_sum(name, total.copy()) for name in sums]
    else:
        numbers = _add_link_steps(query, model, dialect, sums, labels)
    labels = (
        labels if not labels or votes else [make_column(f"label_{k}") for k in range(len(labels))]
    )
    return [_null_if_refused(query, a) for a in labels], [
        _null_if_refused(query, a) for a in numbers
    ]


def _null_if_refused(query: Query, answer: Sql) -> Sql:
    if REFUSED_COLUMN not in query.carried_columns:
        return answer
    return make_case(
        [(exp.EQ(this=make_column(REFUSED_COLUMN), expression=make_integer(0)), answer)]
    )


def _divide_sum(name: str, total: Sql) -> Sql:
    return make_quotient(make_cast(make_column(name), "DOUBLE"), total)


def _add_cost_step(query: Query, model: Model, sums: list[str]) -> list[str]:
    """Return the columns of votes, or of expected costs; the label has the largest, or smallest."""
    costs = model.label_costs
    if costs is None:
        return sums
    expected = {}
    for j in range(costs.shape[1]):
        terms = [
            exp.Mul(this=make_column(name), expression=make_integer(cost))
            for name, cost in zip(sums, costs[:, j].tolist(), strict=True)
            if cost
        ]
        expected[f"cost_{j}"] = add_terms(terms) if terms else make_cast(make_integer(0), "BIGINT")
    query.add_step("costs", expected, sums)
    return list(expected)


def _make_labels(query: Query, model: Model, dialect: Dialect, sums: list[str]) -> list[Sql]:
    """Return the label of each target: the first class with most votes, or least cost."""
    ballots = _add_cost_step(query, model, sums)
    blocks = list(itertools.pairwise(model.schema.blocks))
    choose = dialect.make_greatest if model.label_costs is None else dialect.make_least
    best: dict[str, Sql] = {
        f"best_{b}": choose(list(map(make_column, ballots[first:last])))
        for b, (first, last) in enumerate(blocks)
        if last - first > 2
    }
    if best:
        query.add_step("best", best, dict.fromkeys([*sums, *ballots]))
    labels = []
    for b, (output, (first, last)) in enumerate(zip(model.schema.outputs, blocks, strict=True)):
        own = [dialect.make_label(label) for label in output.classes]
        values = list(map(make_column, ballots[first:last]))
        if len(own) > 2:
            labels.append(make_switch(make_column(f"best_{b}"), zip(values, own, strict=True)))
        elif len(own) == 2:
            wins = exp.GTE if model.label_costs is None else exp.LTE
            labels.append(make_case([(wins(this=values[0], expression=values[1]), own[0])], own[1]))
        else:
            labels.append(own[0])
    return labels


def _add_link_steps(
    query: Query, model: Model, dialect: Dialect, sums: list[str], labels: list[Sql]
) -> list[Sql]:
    """Add the steps that scale the sums and apply the link function; keep labels as label_k."""
    made: dict[str, Sql] = {f"label_{k}": label for k, label in enumerate(labels)}
    query.add_step(
        "numbers", made | {f"m{k}": _scale_sum(model, dialect, s) for k, s in enumerate(sums)}
    )
    names, kept = [f"m{k}" for k in range(len(sums))], list(made)
    if model.link == "identity":
        return list(map(make_column, names))
    if model.link == "exp":
        add_exponential_steps(
            query, dialect, {f"e{k}": make_column(m) for k, m in enumerate(names)}, kept
        )
        return [make_column(f"e{k}") for k in range(len(sums))]
    if model.link == "sigmoid":
        arguments: dict[str, Sql] = {
            f"e{k}": exp.Neg(this=make_call("ABS", make_column(m))) for k, m in enumerate(names)
        }
        add_exponential_steps(query, dialect, arguments, [*kept, *names])
        return [_make_sigmoid(dialect, k) for k in range(len(sums))]
    return _add_softmax_steps(query, model, dialect, names, kept)


def _scale_sum(model: Model, dialect: Dialect, total: str) -> Sql:
    made: Sql = make_cast(make_column(total), "DOUBLE")
    if model.divisor != 1:
        made = make_quotient(made, dialect.make_number(float(model.divisor)))
    if model.exponent == 0:
        return made
    return exp.Mul(
        this=exp.Paren(this=made), expression=dialect.make_number(math.ldexp(1.0, model.exponent))
    )


def _make_sigmoid(dialect: Dialect, k: int) -> Sql:
    e, one = make_column(f"e{k}"), dialect.make_number(1.0)
    above = exp.GTE(this=make_column(f"m{k}"), expression=dialect.make_number(0.0))
    share = make_binary(exp.Add, one, e)
    return make_quotient(exp.Paren(this=make_case([(above, one.copy())], e.copy())), share)


def _add_softmax_steps(
    query: Query, model: Model, dialect: Dialect, names: list[str], kept: list[str]
) -> list[Sql]:
    blocks = list(itertools.pairwise(model.schema.blocks))
    largest = {
        f"largest_{b}": dialect.make_greatest(list(map(make_column, names[first:last])))
        for b, (first, last) in enumerate(blocks)
    }
    query.add_step("largest", largest, [*kept, *names])
    arguments: dict[str, Sql] = {
        f"e{k}": exp.Sub(this=make_column(names[k]), expression=make_column(f"largest_{b}"))
        for b, (first, last) in enumerate(blocks)
        for k in range(first, last)
    }
    add_exponential_steps(query, dialect, arguments, kept)
    terms = [f"e{k}" for k in range(len(names))]
    for b, (first, last) in enumerate(blocks):
        _add_ordered_sum(query, f"total_{b}", terms[first:last], [*kept, *terms])
        kept = [*kept, f"total_{b}"]
    return [
        make_quotient(make_column(f"e{k}"), make_column(f"total_{b}"))
        for b, (first, last) in enumerate(blocks)
        for k in range(first, last)
    ]


_MAX_CHAIN = 300


def _add_ordered_sum(query: Query, name: str, terms: list[str], keep: list[str]) -> None:
    """Add steps that sum doubles in order, without expressions too deep for an engine."""
    made: Sql | None = None
    for at in range(0, len(terms), _MAX_CHAIN):
        for term in terms[at : at + _MAX_CHAIN]:
            made = (
                make_column(term)
                if made is None
                else exp.Add(this=made, expression=make_column(term))
            )
        assert made is not None  # noqa: S101 - a target has a class
        partial = f"{name}_{at}"
        query.add_step(
            partial, {partial: made}, [*keep, *([f"{name}_{at - _MAX_CHAIN}"] if at else [])]
        )
        made = make_column(partial)
    assert made is not None  # noqa: S101
    query.add_step(name, {name: made}, keep)


# ---------------------------------------------------------------- sql links
# Link functions of `treekit.model.links` in SQL, operation by operation.

_MIN_ARGUMENT = 1e-100
"""Smaller arguments count as 0: their exp is 1, and an underflow is an error in PostgreSQL."""
_EXPONENT_BITS = 10


def add_exponential_steps(
    query: Query, dialect: Dialect, arguments: dict[str, Sql], keep: list[str]
) -> None:
    """Add the steps that compute exp of each argument, under its name; keep the columns `keep`."""
    names = list(arguments)
    clamped = {}
    for name, value in arguments.items():
        size = make_call("ABS", value.copy())
        limits: list[tuple[Sql, Sql]] = [
            (
                exp.LT(this=size, expression=dialect.make_number(_MIN_ARGUMENT)),
                dialect.make_number(0.0),
            ),
            (
                exp.GT(this=value.copy(), expression=dialect.make_number(EXP_LIMIT)),
                dialect.make_number(EXP_LIMIT),
            ),
            (
                exp.LT(this=value.copy(), expression=dialect.make_number(-EXP_LIMIT)),
                dialect.make_number(-EXP_LIMIT),
            ),
        ]
        clamped[f"{name}_x"] = make_case(limits, value)
    query.add_step("clamped", clamped, keep)
    query.add_step(
        "wholes",
        {
            f"{name}_n": dialect.make_floor(
                make_binary(
                    exp.Add,
                    exp.Mul(this=make_column(f"{name}_x"), expression=dialect.make_number(LOG2_E)),
                    dialect.make_number(0.5),
                )
            )
            for name in names
        },
        [*keep, *(f"{name}_x" for name in names)],
    )
    query.add_step(
        "remainders",
        {f"{name}_r": _make_remainder(name, dialect) for name in names},
        [*keep, *(f"{name}_n" for name in names)],
    )
    query.add_step(
        "scaled",
        {f"{name}_p": _make_polynomial(f"{name}_r", dialect) for name in names}
        | {f"{name}_2": _make_power(f"{name}_n", dialect) for name in names},
        [*keep, *(f"{name}_n" for name in names)],
    )
    query.add_step("exponentials", {name: _make_exponential(name) for name in names}, keep)


def _make_remainder(name: str, dialect: Dialect) -> Sql:
    n = make_cast(make_column(f"{name}_n"), "DOUBLE")
    high = exp.Mul(this=n, expression=dialect.make_number(LN2_HIGH))
    low = exp.Mul(this=n.copy(), expression=dialect.make_number(LN2_LOW))
    return make_binary(exp.Sub, make_binary(exp.Sub, make_column(f"{name}_x"), high), low)


def _make_polynomial(r: str, dialect: Dialect) -> Sql:
    made = dialect.make_number(EXP_COEFFICIENTS[0])
    for coefficient in EXP_COEFFICIENTS[1:]:
        product = exp.Mul(this=made, expression=make_column(r))
        made = make_binary(exp.Add, product, dialect.make_number(coefficient))
    return made


def _make_power(n: str, dialect: Dialect) -> Sql:
    """Build ``2**abs(n)``, exact: a product with one power of two per bit."""
    made: Sql | None = None
    for bit in range(_EXPONENT_BITS):
        masked = exp.BitwiseAnd(
            this=make_call("ABS", make_column(n)), expression=make_integer(1 << bit)
        )
        has = exp.NEQ(this=exp.Paren(this=masked), expression=make_integer(0))
        factor = make_case(
            [(has, dialect.make_number(2.0 ** (1 << bit)))], dialect.make_number(1.0)
        )
        made = factor if made is None else exp.Mul(this=made, expression=factor)
    assert made is not None  # noqa: S101 - ten bits
    return made


def _make_exponential(name: str) -> Sql:
    p, power = make_column(f"{name}_p"), make_column(f"{name}_2")
    negative = exp.LT(this=make_column(f"{name}_n"), expression=make_integer(0))
    return make_case(
        [(negative, make_quotient(p, power))],
        exp.Mul(this=p.copy(), expression=power.copy()),
    )
