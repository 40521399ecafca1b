"""Conversion of the sums of a row to labels, probabilities and numbers."""

from __future__ import annotations

import itertools
import math
from functools import partial, reduce

from sqlglot import exp

from treekit.model.links import EXP_COEFFICIENTS, EXP_LIMIT, LN2_HIGH, LN2_LOW, LOG2_E
from treekit.model.model import Model
from treekit_sql.dialects import Dialect
from treekit_sql.inputs import REFUSED_COLUMN
from treekit_sql.syntax import (
    Query,
    Sql,
    add_terms,
    as_sql,
    chain_terms,
    combine,
    make_binary,
    make_call,
    make_case,
    make_cast,
    make_quotient,
    make_switch,
)

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
        numbers = [make_quotient(make_cast(name, "DOUBLE"), total) for name in sums]
    else:
        numbers = _add_link_steps(query, model, dialect, sums, labels)
        labels = [as_sql(f"label_{k}") for k in range(len(labels))]
    refusing = partial(_null_if_refused, query)
    return list(map(refusing, labels)), list(map(refusing, numbers))


def _null_if_refused(query: Query, answer: Sql) -> Sql:
    if REFUSED_COLUMN not in query.carried_columns:
        return answer
    return make_case([(combine(exp.EQ, REFUSED_COLUMN, 0), answer)])


def _add_cost_step(query: Query, model: Model, sums: list[str]) -> list[str]:
    """Return the columns of votes, or of expected costs; the label has the largest, or smallest."""
    costs = model.label_costs
    if costs is None:
        return sums
    expected = {}
    for j, column in enumerate(costs.T.tolist()):
        pairs = zip(sums, column, strict=True)
        terms = [combine(exp.Mul, name, cost) for name, cost in pairs if cost]
        expected[f"cost_{j}"] = add_terms(terms) if terms else make_cast(0, "BIGINT")
    query.add_step("costs", expected, sums)
    return list(expected)


def _make_labels(query: Query, model: Model, dialect: Dialect, sums: list[str]) -> list[Sql]:
    """Return the label of each target: the first class with most votes, or least cost."""
    ballots = _add_cost_step(query, model, sums)
    blocks = list(itertools.pairwise(model.schema.blocks))
    least = model.label_costs is not None
    best: dict[str, Sql] = {
        f"best_{b}": dialect.make_extreme(list(map(as_sql, ballots[first:last])), least=least)
        for b, (first, last) in enumerate(blocks)
        if last - first > 2
    }
    if best:
        query.add_step("best", best, dict.fromkeys([*sums, *ballots]))
    labels = []
    for b, (output, (first, last)) in enumerate(zip(model.schema.outputs, blocks, strict=True)):
        own = [dialect.make_label(label) for label in output.classes]
        values = list(map(as_sql, ballots[first:last]))
        if len(own) > 2:
            labels.append(make_switch(f"best_{b}", zip(values, own, strict=True)))
        elif len(own) == 2:
            wins = combine(exp.LTE if least else exp.GTE, values[0], values[1])
            labels.append(make_case([(wins, own[0])], own[1]))
        else:
            labels.append(own[0])
    return labels


def _add_link_steps(
    query: Query, model: Model, dialect: Dialect, sums: list[str], labels: list[Sql]
) -> list[Sql]:
    """Add the steps that scale the sums and apply the link function; keep labels as label_k."""
    made: dict[str, Sql] = {f"label_{k}": label for k, label in enumerate(labels)}
    numbers = {
        f"m{k}": _scale_sum(model, dialect, total, exponent)
        for k, (total, exponent) in enumerate(zip(sums, model.exponents, strict=True))
    }
    query.add_step("numbers", made | numbers)
    names, kept = list(numbers), list(made)
    if model.link == "identity":
        return list(map(as_sql, names))
    if model.link == "exp":
        exponents = {f"e{k}": as_sql(m) for k, m in enumerate(names)}
        add_exponential_steps(query, dialect, exponents, kept)
        return list(map(as_sql, exponents))
    if model.link == "sigmoid":
        sizes: dict[str, Sql] = {
            f"e{k}": exp.Neg(this=make_call("ABS", m)) for k, m in enumerate(names)
        }
        add_exponential_steps(query, dialect, sizes, [*kept, *names])
        return [_make_sigmoid(dialect, k) for k in range(len(sums))]
    return _add_softmax_steps(query, model, dialect, names, kept)


def _scale_sum(model: Model, dialect: Dialect, total: str, exponent: int) -> Sql:
    made: Sql = make_cast(total, "DOUBLE")
    if model.divisor != 1:
        made = make_quotient(made, dialect.make_number(float(model.divisor)))
    if exponent != 0:
        step = dialect.make_number(math.ldexp(1.0, exponent))
        made = combine(exp.Mul, exp.Paren(this=made), step)
    return made


def _make_sigmoid(dialect: Dialect, k: int) -> Sql:
    e, one = as_sql(f"e{k}"), dialect.make_number(1.0)
    above = combine(exp.GTE, f"m{k}", dialect.make_number(0.0))
    share = make_binary(exp.Add, one, e)
    return make_quotient(exp.Paren(this=make_case([(above, one)], e)), share)


def _add_softmax_steps(
    query: Query, model: Model, dialect: Dialect, names: list[str], kept: list[str]
) -> list[Sql]:
    blocks = list(itertools.pairwise(model.schema.blocks))
    largest = {
        f"largest_{b}": dialect.make_extreme(list(map(as_sql, names[first:last])))
        for b, (first, last) in enumerate(blocks)
    }
    query.add_step("largest", largest, [*kept, *names])
    owner = [b for b, (first, last) in enumerate(blocks) for _ in range(first, last)]
    arguments: dict[str, Sql] = {
        f"e{k}": combine(exp.Sub, names[k], f"largest_{b}") for k, b in enumerate(owner)
    }
    add_exponential_steps(query, dialect, arguments, kept)
    terms = list(arguments)
    for b, (first, last) in enumerate(blocks):
        _add_ordered_sum(query, f"total_{b}", terms[first:last], [*kept, *terms])
        kept = [*kept, f"total_{b}"]
    return [make_quotient(f"e{k}", f"total_{b}") for k, b in enumerate(owner)]


_MAX_CHAIN = 300


def _add_ordered_sum(query: Query, name: str, terms: list[str], keep: list[str]) -> None:
    """Add steps that sum doubles in order, without expressions too deep for an engine."""
    before: list[str] = []
    for at in range(0, len(terms), _MAX_CHAIN):
        partial_sum = f"{name}_{at}"
        made = chain_terms([*before, *terms[at : at + _MAX_CHAIN]])
        query.add_step(partial_sum, {partial_sum: made}, [*keep, *before])
        before = [partial_sum]
    query.add_step(name, {name: as_sql(before[0])}, keep)


# ---------------------------------------------------------------- sql links
# Link functions of `treekit.model.links` in SQL, operation by operation.

_MIN_ARGUMENT = 1e-100
"""Smaller arguments count as 0: their exp is 1, and an underflow is an error in PostgreSQL."""
_EXPONENT_BITS = 10


def add_exponential_steps(
    query: Query, dialect: Dialect, arguments: dict[str, Sql], keep: list[str]
) -> None:
    """Add the steps that compute exp of each argument, under its name; keep the columns `keep`."""
    names, number = list(arguments), dialect.make_number
    clamped = {}
    for name, value in arguments.items():
        size = make_call("ABS", value)
        limits = [
            (combine(exp.LT, size, number(_MIN_ARGUMENT)), number(0.0)),
            (combine(exp.GT, value, number(EXP_LIMIT)), number(EXP_LIMIT)),
            (combine(exp.LT, value, number(-EXP_LIMIT)), number(-EXP_LIMIT)),
        ]
        clamped[f"{name}_x"] = make_case(limits, value)
    query.add_step("clamped", clamped, keep)
    wholes = {}
    for name in names:
        scaled = combine(exp.Mul, f"{name}_x", number(LOG2_E))
        wholes[f"{name}_n"] = dialect.make_floor(make_binary(exp.Add, scaled, number(0.5)))
    query.add_step("wholes", wholes, [*keep, *clamped])
    remainders = {f"{name}_r": _make_remainder(name, dialect) for name in names}
    query.add_step("remainders", remainders, [*keep, *wholes])
    factors = {f"{name}_p": _make_polynomial(f"{name}_r", dialect) for name in names}
    factors |= {f"{name}_2": _make_power(f"{name}_n", dialect) for name in names}
    query.add_step("scaled", factors, [*keep, *wholes])
    query.add_step("exponentials", {name: _make_exponential(name) for name in names}, keep)


def _make_remainder(name: str, dialect: Dialect) -> Sql:
    n = make_cast(f"{name}_n", "DOUBLE")
    high = combine(exp.Mul, n, dialect.make_number(LN2_HIGH))
    low = combine(exp.Mul, n, dialect.make_number(LN2_LOW))
    return make_binary(exp.Sub, make_binary(exp.Sub, f"{name}_x", high), low)


def _make_polynomial(r: str, dialect: Dialect) -> Sql:
    made = dialect.make_number(EXP_COEFFICIENTS[0])
    for coefficient in EXP_COEFFICIENTS[1:]:
        product = combine(exp.Mul, made, r)
        made = make_binary(exp.Add, product, dialect.make_number(coefficient))
    return made


def _make_power(n: str, dialect: Dialect) -> Sql:
    """Build ``2**abs(n)``, exact: a product with one power of two per bit."""
    factors = []
    for bit in range(_EXPONENT_BITS):
        masked = make_binary(exp.BitwiseAnd, make_call("ABS", n), 1 << bit)
        power = dialect.make_number(2.0 ** (1 << bit))
        factors.append(make_case([(combine(exp.NEQ, masked, 0), power)], dialect.make_number(1.0)))
    return reduce(partial(combine, exp.Mul), factors)


def _make_exponential(name: str) -> Sql:
    p, power = as_sql(f"{name}_p"), as_sql(f"{name}_2")
    negative = combine(exp.LT, f"{name}_n", 0)
    return make_case([(negative, make_quotient(p, power))], combine(exp.Mul, p, power))
