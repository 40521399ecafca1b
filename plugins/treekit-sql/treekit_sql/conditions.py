"""Conditions on cells, for models and rules: bounds, sets of categories, missing cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal, localcontext

import numpy as np
from sqlglot import exp

from treekit.model.fixed_point import to_double_threshold
from treekit.rules.wording import format_number
from treekit_sql.dialects import Dialect
from treekit_sql.syntax import (
    Operand,
    Sql,
    combine,
    make_case,
    make_cast,
    make_membership_test,
    make_null_test,
)

# ---------------------------------------------------------------- sql bounds


def write_threshold(threshold: float, dtype: str, dialect: Dialect) -> Sql:
    """Write the bound for doubles of a threshold for numbers of type `dtype`."""
    bound = float(to_double_threshold(np.float64(threshold))) if dtype == "float32" else threshold
    return write_bound(format_number(threshold, dtype), bound, dialect)


def write_bound(shown: str, bound: float, dialect: Dialect) -> Sql:
    """Write a bound for doubles, near the threshold that the rules show.

    A model with float32 inputs compares cells after they are rounded: all that round to 2.45 are
    at most 2.45.  The bound is then the sum ``2.45 + 1.67e-07``, which engines that add
    doubles, and those that add decimals, convert to the same double.
    """
    if float(shown) == bound and dialect.reads_exactly(bound):
        return exp.Literal.number(shown)
    rest = _find_rest(shown, bound)
    exact = dialect.reads_exactly(float(shown)) and dialect.reads_exactly(rest or 0.0)
    if rest is None or not exact:
        return dialect.make_bound(bound)
    kind = exp.Add if rest > 0 else exp.Sub
    return combine(kind, exp.Literal.number(shown), exp.Literal.number(repr(abs(rest))))


def _find_rest(shown: str, bound: float) -> float | None:
    """Return the shortest literal d with ``shown + d == bound``, in doubles and in decimals."""
    if not math.isfinite(bound):
        return None
    with localcontext(Context(prec=800)):
        difference = Decimal(bound) - Decimal(shown)
        for digits in range(1, 18):
            rest = float(f"{difference:.{digits - 1}e}")
            decimal = Decimal(shown) + Decimal(repr(rest))
            if float(shown) + rest == bound and float(decimal) == bound:
                return rest
    return None


# ---------------------------------------------------------------- sql conditions
# A condition is TRUE, or FALSE or NULL, which are equivalent in a CASE.


def make_interval_test(
    cell: Operand, above: Sql | None, upto: Sql | None, *, or_missing: bool = False
) -> Sql:
    """Test whether a number is above one bound and at most another, or is missing."""
    parts = [combine(exp.GT, cell, above)] if above is not None else []
    if upto is not None:
        parts.append(combine(exp.LTE, cell, upto))
    test = exp.Not(this=make_null_test(cell)) if not parts else parts[0]
    if len(parts) > 1:
        test = combine(exp.And, *parts)
    return combine(exp.Or, test, make_null_test(cell)) if or_missing else test


def make_category_test(
    cell: Operand, categories: Sequence[Operand], *, outside: bool = False, or_missing: bool = False
) -> Sql:
    """Test whether a category is, or is not, one of some, or is missing."""
    if not categories and or_missing == outside:
        return combine(exp.EQ, 1, 1 if outside else 0)
    if not categories:
        return exp.Not(this=make_null_test(cell)) if outside else make_null_test(cell)
    test = make_membership_test(cell, categories)
    test = exp.Not(this=test) if outside else test
    return combine(exp.Or, test, make_null_test(cell)) if or_missing else test


def make_threshold_sides(value: Sql, bound: Sql, below: int, above: int, lost: int = -1) -> Sql:
    """Map a number at most or above a bound, or missing, to its branch, 0 or 1; map -1 to NULL."""
    return _make_sides(
        value,
        [(combine(exp.LTE, value, bound), below), (combine(exp.GT, value, bound), above)],
        lost,
    )


def make_category_sides(
    cell: Sql, categories: Sequence[Operand], sides: Sequence[int], lost: int = -1
) -> Sql:
    """Map each category, or a missing cell, to its branch, 0 or 1; map -1 to NULL."""
    members = [[x for x, own in zip(categories, sides, strict=True) if own == k] for k in (0, 1)]
    tests = [(make_membership_test(cell, own), k) for k, own in enumerate(members) if own]
    return _make_sides(cell, tests, lost)


def _make_sides(value: Sql, tests: Iterable[tuple[Sql, int]], lost: int) -> Sql:
    known = [(test, side) for test, side in (*tests, (make_null_test(value), lost)) if side >= 0]
    return make_case(known) if known else make_cast(exp.Null(), "BIGINT")
