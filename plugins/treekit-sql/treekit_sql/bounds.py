"""Bounds for doubles that begin with the threshold of the rules."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext

from sqlglot import exp

from treekit_sql.dialects import Dialect
from treekit_sql.syntax import Sql, combine


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
    """Return the shortest number that added to `shown` gives `bound`, in doubles and decimals."""
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
