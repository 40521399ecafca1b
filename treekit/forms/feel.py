"""FEEL, the language of DMN: names, literals, and tests of one input.

FEEL's numbers are decimals of 34 digits (DMN 1.3, section 10.3.4.2: IEEE 754-2008), while
a model reads a decimal as the nearest double, and rounds that to its input type.  A bound
is written so that both ways agree for every number that FEEL holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from decimal import ROUND_FLOOR, Context, Decimal

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype, Label
from treekit.model.fixed_point import double_threshold

__all__ = [
    "Bound",
    "bounds",
    "feel_names",
    "interval",
    "levels_test",
    "literal",
    "number",
    "string",
]

Bound = tuple[str, bool]
"""A decimal, and whether what equals it is below the bound (or at it), as what is less."""

_EXACT = Context(prec=2000)  # doubles have up to 767 digits
_FEEL = Context(prec=34, rounding=ROUND_FLOOR)
_NAME = re.compile(r"[A-Za-z_\u4e00-\u9fff][A-Za-z0-9_\u4e00-\u9fff]*")
_WORDS = frozenset(
    (
        *("abs", "after", "all", "and", "any", "append", "before", "between", "boolean"),
        *("ceiling", "coincides", "concatenate", "contains", "context", "count", "date", "day"),
        *("days", "decimal", "distinct", "duration", "during", "else", "ends", "even", "every"),
        *("exp", "external", "false", "finished", "finishes", "flatten", "floor", "for"),
        *("function", "get", "hours", "if", "in", "includes", "index", "insert", "instance"),
        *("is", "item", "java", "length", "list", "log", "lower", "matches", "max", "mean"),
        *("median", "meets", "met", "min", "minutes", "mode", "modulo", "month", "months", "not"),
        *("null", "number", "odd", "of", "or", "overlaps", "partial", "pmml", "product"),
        *("range", "remove", "replace", "return", "reverse", "satisfies", "seconds", "some"),
        *("sort", "split", "sqrt", "started", "starts", "stddev", "string", "sublist"),
        *("substring", "sum", "then", "time", "timezone", "today", "now", "true", "union"),
        *("upper", "value", "week", "weekday", "with", "year", "years"),
    )
)


def feel_names(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """Variables for some columns: a plain word stays, for any other there is ``x1``, ``x2``, ...

    Parameters
    ----------
    names : sequence of str
    taken : collection of str
        Variables that there are already.
    """
    plain = [
        bool(_NAME.fullmatch(name)) and name.lower() not in _WORDS and name not in taken
        for name in names
    ]
    used = {name for name, ok in zip(names, plain, strict=True) if ok} | set(taken)
    made = []
    for place, (name, ok) in enumerate(zip(names, plain, strict=True), 1):
        variable = name if ok else f"x{place}"
        while not ok and variable in used:
            variable += "_"
        used.add(variable)
        made.append(variable)
    return made


def string(text: str) -> str:
    """A string literal in printable characters."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_character(c) for c in text) + '"'


def _character(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    # Always six digits: engines disagree on where four of them end.
    return char if char.isprintable() else f"\\U{ord(char):06x}"


def number(value: float) -> str:
    """A decimal that reads back to a double; FEEL 1.3 has no exponents."""
    return _plain(Decimal(repr(float(value))))


def literal(label: Label) -> str:
    """A class label."""
    if isinstance(label, bool):
        return "true" if label else "false"
    return string(label) if isinstance(label, str) else _plain(Decimal(repr(label)))


def bounds(thresholds: npt.NDArray[np.float64], dtype: Dtype) -> dict[float, Bound]:
    """For each finite threshold the bound that decimals must not exceed.

    The model takes x for the double d nearest to it, ties to even, and asks, for an equal
    t' (see `double_threshold`), whether d <= t'.  That is to ask whether x is below the
    middle of t' and the next double, or at it if t' is even.  Where the middle has more than
    34 digits no x lies between it and the decimal below.
    """
    distinct = np.unique(thresholds[np.isfinite(thresholds)]) + 0.0
    doubles = double_threshold(distinct) if dtype == "float32" else distinct
    return {
        t: _bound(double) for t, double in zip(distinct.tolist(), doubles.tolist(), strict=True)
    }


def _bound(double: float) -> Bound:
    top = double == np.finfo(np.float64).max
    following = Decimal(2**1024) if top else Decimal(float(np.nextafter(double, np.inf)))
    middle = _EXACT.divide(_EXACT.add(Decimal(double), following), Decimal(2))
    written = _FEEL.plus(middle)
    even = not np.float64(double).view(np.int64) & 1
    return _plain(written), bool(even or written != middle)


def _plain(value: Decimal) -> str:
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def interval(low: Bound | None, high: Bound | None, *, known: bool, missing: bool) -> str:
    """A unary test of a number above `low` and not above `high`, or missing."""
    if not known:
        return "null" if missing else "false"
    if low and high:
        text = f"{'(' if low[1] else '['}{low[0]}..{high[0]}{']' if high[1] else ')'}"
    elif low:
        text = f"{'>' if low[1] else '>='} {low[0]}"
    elif high:
        text = f"{'<=' if high[1] else '<'} {high[0]}"
    else:
        return "-" if missing else "? != null"
    return f"null, {text}" if missing else text


def levels_test(fits: Sequence[str], others: Sequence[str], *, missing: bool) -> str:
    """A unary test of a text that is one of `fits`; or missing, or in neither list."""
    if not missing:
        return ",".join(map(string, fits)) or "false"
    if not others:
        return "-"
    if len(others) == 1:
        return f"? = null or ? != {string(others[0])}"
    return f"? = null or not(? in ({','.join(map(string, others))}))"
