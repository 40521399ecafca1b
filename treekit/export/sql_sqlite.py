"""SQLite's ways: exact numbers and float32 from whole numbers and IEEE operations."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from treekit.export.sql_dialect import Dialect
from treekit.export.sql_syntax import (
    Sql,
    binary,
    call,
    cast,
    column,
    integer,
    none,
    one_of,
    quotient,
    when,
)

__all__ = ["SQLite"]

_ROUND_BITS = 9
_TOO_MUCH = ("stack overflow", "too large", "too many", "too big", "out of memory")


class SQLite(Dialect):
    """See `Dialect`."""

    name = "sqlite"
    title = "SQLite"
    most_columns = most_answers = 2000
    longest_name = 0
    folds_case = True
    empty_name = True
    reserved_columns = frozenset()
    trim = "TRIM"
    nul = "CHAR"
    collation = "BINARY"
    type_of = "TYPEOF"
    bools, doubles = ("integer",), ("real",)
    bool_texts = ("0", "1")  # it has no bools of its own

    def number(self, number: float) -> Sql:
        """A decimal where every version of SQLite reads it exactly, else whole numbers.

        SQLite's reader of decimals is not always correctly rounded (547 of 200,000
        doubles, measured with 3.40); whole numbers and powers of two are exact.
        """
        x = float(number)
        if _reads_exactly(x):
            return exp.Literal.number(repr(x))
        above, below = x.as_integer_ratio()
        shift = below.bit_length() - 1
        while above % 2 == 0:
            above, shift = above // 2, shift - 1
        made: Sql = cast(integer(above), "DOUBLE")
        for start in range(0, abs(shift), 62):
            power = integer(1 << min(abs(shift) - start, 62))
            made = quotient(made, power) if shift > 0 else exp.Mul(this=made, expression=power)
        return exp.Paren(this=made)

    bound = number

    def as_number(self, cell: Sql, marks: Sequence[str]) -> Sql:
        """A cell that is a number as a double; text that is no mark stays text."""
        kinds = [exp.Literal.string(kind) for kind in ("integer", "real")]
        tests = [(one_of(call("TYPEOF", cell), kinds), cast(cell, "DOUBLE"))]
        mark = self.is_mark(cell, marks)
        if mark is not None:
            tests.append((mark, none()))
        return when(tests, cell)

    def no_number(self, number: Sql) -> Sql | None:
        """Whether `as_number` left text, or bytes."""
        kinds = [exp.Literal.string(kind) for kind in ("text", "blob")]
        return one_of(call("TYPEOF", number), kinds)

    def greatest(self, values: Sequence[Sql]) -> Sql:
        """The largest of some values."""
        return _grouped("MAX", values)

    def least(self, values: Sequence[Sql]) -> Sql:
        """The smallest of some values."""
        return _grouped("MIN", values)

    def floor(self, value: Sql) -> Sql:
        """The whole number below; FLOOR is missing from some builds."""
        cut = cast(value, "BIGINT")
        below = exp.Paren(this=exp.LT(this=value.copy(), expression=cut.copy()))
        return binary(exp.Sub, cut, below)

    def not_nan(self, value: Sql) -> Sql:
        """The value itself: NaN is stored as NULL."""
        return value

    def float32(self, x: str) -> dict[str, Sql] | None:
        """Split a double at 24 bits (Veltkamp 1968); it may round a tie to odd."""
        return {
            f"{x}_near": _veltkamp(column(x), 29),
            f"{x}_other": binary(
                exp.Sub, binary(exp.Add, column(x), column(x)), _veltkamp(column(x), 29)
            ),
        }

    def to_float32(self, x: str) -> Sql:
        """The nearest float32 from the two candidates of `float32`, ties to even.

        `x_other` is the mirror image of `x_near` at x: in a tie, and only then,
        it has 24 bits too, and of the two the even one has 23.
        """
        near, other = column(f"{x}_near"), column(f"{x}_other")
        size = call("ABS", column(x))
        tie = exp.EQ(this=_veltkamp(other, 29), expression=other)
        odd = exp.NEQ(this=_veltkamp(near, 30), expression=near)
        raised = self.number(1.5 * 2.0**-97)  # whose last bit is that of a subnormal float32
        subnormal = binary(exp.Sub, binary(exp.Add, column(x), raised), raised.copy())
        infinite = binary(exp.Mul, column(x), self.number(1e300))
        largest = self.number(2.0**128 - 2.0**103)
        return when(
            [
                (
                    exp.GTE(this=size, expression=largest),
                    binary(exp.Mul, infinite, self.number(1e300)),
                ),
                (exp.LT(this=size.copy(), expression=self.number(2.0**-126)), subnormal),
                (exp.And(this=tie, expression=odd), column(f"{x}_other")),
            ],
            column(f"{x}_near"),
        )

    def refuse(self, message: str, witness: Sql) -> Sql:
        """An expression that stops the query."""
        # SQLite has no function that fails, but a path that is none does, and names it.
        shown = call("COALESCE", witness, self.text(""))
        path = exp.DPipe(this=self.text(f"{message}: "), expression=shown)
        return call("JSON_EXTRACT", exp.Literal.string("{}"), path)

    def problem(self, query: str, table: str, columns: Sequence[str], form: str) -> str:
        """What SQLite says of a query that is too much for it, on an empty table; or nothing."""

        def quoted(name: str) -> str:
            return exp.to_identifier(name, quoted=True).sql(dialect=self.name)

        own = ", ".join(map(quoted, dict.fromkeys(columns)))
        if form == "expression":
            query = f"SELECT\n{query}\nFROM {quoted(table)}"
        connection = sqlite3.connect(":memory:")
        try:
            connection.execute(f"CREATE TABLE {quoted(table)} ({own})")
            connection.execute(f"EXPLAIN {query}")
        except sqlite3.Error as error:
            told = str(error)
            # What an old version does not know is no fault of the query's size.
            return told if any(word in told for word in _TOO_MUCH) else ""
        finally:
            connection.close()
        return ""

    def rows(self, **arrays: npt.NDArray[Any] | list[str | None]) -> exp.Select:
        """As JSON, where a double is a whole number and a power of two, from `powers`."""
        cells: list[list[str]] = []
        made: dict[str, Sql] = {}
        power = ""
        for name, values in arrays.items():
            value = _listed(f"$[{len(cells)}]")
            if isinstance(values, list):
                cells.append(["null" if cell is None else f'"{cell}"' for cell in values])
            elif values.dtype.kind == "f":
                whole, exponents = _whole(values)
                cells += [list(map(str, whole)), list(map(str, exponents))]
                power = f"$[{len(cells) - 1}]"
                value = exp.Mul(this=value, expression=_power(power))
            else:
                cells.append(list(map(str, values.tolist())))
            made[name] = value
        body = ",".join(map("[%s]".__mod__, map(",".join, zip(*cells, strict=True))))
        listed = exp.Table(
            this=call("JSON_EACH", exp.Literal.string(f"[{body}]")),
            alias=exp.TableAlias(this=exp.to_identifier("listed")),
        )
        query = exp.Select(expressions=[exp.alias_(value, name) for name, value in made.items()])
        query = query.from_(listed, copy=False)
        if power:
            on = exp.EQ(this=column("exponent", "powers"), expression=call("ABS", _listed(power)))
            query = query.join(exp.to_table("powers"), on=on, copy=False)
        return query


def _listed(path: str) -> Sql:
    return call("JSON_EXTRACT", column("value", "listed"), exp.Literal.string(path))


def _power(path: str) -> Sql:
    negative = exp.LT(this=_listed(path), expression=integer(0))
    return when([(negative, column("down", "powers"))], column("up", "powers"))


def _whole(values: npt.NDArray[np.float64]) -> tuple[list[int], list[int]]:
    """Doubles as ``whole * 2**exponent``, within 53 bits and -1074 to 971."""
    fraction, exponent = np.frexp(values)
    whole, power = np.ldexp(fraction, 53).astype(np.int64), exponent - 53
    low = np.maximum(-1074 - power, 0)  # subnormal: the bits below are 0
    return (whole >> low).tolist(), (power + low).tolist()


def _reads_exactly(x: float) -> bool:
    """Whether each way in which SQLite has read decimals gives `x` for its shortest one.

    True for at most 53 bits of digits and powers of ten up to 22, one rounding in
    double, unless the number is so near to the middle of two doubles that a
    rounding in wider registers first would decide.
    """
    mantissa, _, exponent = repr(x).lstrip("-").partition("e")
    whole, _, part = mantissa.partition(".")
    part = part.rstrip("0")
    digits, power = int(whole + part), int(exponent or 0) - len(part)
    if digits >= 2**53 or abs(power) > 22:
        return False
    error = abs(Fraction(digits) * Fraction(10) ** power - Fraction(abs(x)))
    # Below a power of two doubles are twice as dense.
    half = Fraction(1, 4 if math.frexp(x)[0] in (0.5, -0.5) else 2)
    return error <= Fraction(math.ulp(x)) * (half - Fraction(1, 1 << _ROUND_BITS))


def _veltkamp(x: Sql, bits: int) -> Sql:
    scaled = binary(exp.Mul, x.copy(), cast(integer((1 << bits) + 1), "DOUBLE"))
    return binary(exp.Sub, scaled, binary(exp.Sub, scaled.copy(), x.copy()))


def _grouped(function: str, values: Sequence[Sql]) -> Sql:
    """SQLite's functions take up to 127 arguments."""
    groups = [values[i : i + 100] for i in range(0, len(values), 100)]
    made = [group[0] if len(group) == 1 else call(function, *group) for group in groups]
    return made[0] if len(made) == 1 else _grouped(function, made)
