"""SQL dialects: PostgreSQL's syntax and types, overridden for the other engines."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from treekit.data.cells import value_text
from treekit.data.features import LevelIndex
from treekit.errors import ExportError
from treekit.export.sql.syntax import (
    Sql,
    binary,
    call,
    cast,
    column,
    either,
    integer,
    none,
    one_of,
    quotient,
    text,
    when,
)

__all__ = [
    "BLANKS",
    "Dialect",
    "DuckDB",
    "SQLite",
    "array",
]


# ---------------------------------------------------------------- sql dialect

BLANKS = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""Whitespace removed by `str.strip`."""


class Dialect:
    """PostgreSQL, and the base class of other dialects.

    Attributes
    ----------
    name : str
        Name of the dialect, the same in sqlglot.
    title : str
    most_columns, most_answers : int
        Maximum number of columns of a table, and of the result of a query.
    longest_name : int
        Maximum bytes of a name; 0 = no limit.
    folds_case : bool
        Whether two quoted names that differ only in case are equal.
    empty_name : bool
        Whether a column may have the name "".
    reserved_columns : frozenset of str
        System columns of every table.
    trim : str
        Function that removes given characters around a text.
    nul : str
        Function that returns a NUL, or "" if text cannot contain one.
    collation : str
        Collation that compares bytes.
    type_of : str
        Function that returns the type name of a value.
    bools, doubles : tuple of str
        Types of bools, and types that write an integer as ``3.0``.
    bool_texts : tuple of str
        Texts of false and of true.
    """

    name = "postgres"
    title = "PostgreSQL"
    most_columns = 1600
    most_answers = 1664
    longest_name = 63
    folds_case = False
    empty_name = False
    reserved_columns = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
    trim = "BTRIM"
    nul = ""
    collation = '"C"'
    type_of = "PG_TYPEOF"
    bools: tuple[str, ...] = ("boolean",)
    bool_texts = ("false", "true")
    doubles: tuple[str, ...] = ()

    def number(self, number: float) -> Sql:
        """Build a finite double, exact in any context."""
        return cast(exp.Literal.number(repr(float(number))), "DOUBLE")

    def bound(self, number: float) -> Sql:
        """Build a finite double next to a double operand, which determines its type."""
        # The literal is NUMERIC, which is exact and converts to a double as its text would.
        return exp.Literal.number(repr(float(number)))

    def text(self, content: str) -> Sql:
        """Build a text literal."""
        return text(content, self.nul)

    def label(self, label: bool | int | float | str) -> Sql:
        """Build a class label."""
        if isinstance(label, bool):
            return exp.Boolean(this=label)
        if isinstance(label, str):
            return self.text(label)
        if isinstance(label, float):
            return self.number(label)
        if not -(2**63) < label < 2**63:
            raise ExportError(f"the class label {label} exceeds the range of a BIGINT: rename it")
        return integer(label)

    def as_number(self, cell: Sql, marks: Sequence[str]) -> Sql:
        """Convert a cell of a numeric column to a double; NULL if it is missing."""
        del marks  # a numeric column contains no text
        return call("NULLIF", cast(cell, "DOUBLE"), self.nan())

    def nan(self) -> Sql:
        """Build NaN, which in this dialect equals itself and is larger than all numbers."""
        return cast(exp.Literal.string("NaN"), "DOUBLE")

    def no_number(self, number: Sql) -> Sql | None:
        """Test whether `as_number` found a non-number; None if the engine raises the error."""
        del number
        return None

    def as_text(self, cell: Sql, index: LevelIndex) -> Sql:
        """Convert a cell to text that is compared byte by byte.

        A value equal to a category that is a number or a bool becomes the text of the category,
        as in `LevelIndex`: bools of any case, integers that end in ``.0``, and the engine's
        own notation of a number.  Other notations (``3.00``, ``1e0``) are unchanged.
        """
        written = cast(cell, "TEXT")
        tests = [*self._bools(cell, written, index), *self._numbers(cell, written, index)]
        # The column may be declared with another collation (NOCASE): override it.
        value = exp.Paren(this=when(tests, written)) if tests else written
        return exp.Paren(this=exp.Collate(this=value, expression=exp.var(self.collation)))

    def _bools(self, cell: Sql, written: Sql, index: LevelIndex) -> Iterator[tuple[Sql, Sql]]:
        """Yield tests whether a cell is false or true, each with the category it is equal to."""
        for value, own in zip(("False", "True"), self.bool_texts, strict=True):
            if value not in index.codes:
                continue
            level = index.levels[index.codes[value]]
            known = [text for text in index.texts if value_text(text) == value and text != level]
            folded = call("LOWER", call("TRIM", written.copy()))
            is_it = binary(exp.EQ, folded, exp.Literal.string(value.lower()))
            is_it = self._but(is_it, written, known)
            typed = bool(known) if own == value.lower() else own not in index.codes
            if typed:
                is_own = binary(exp.EQ, written.copy(), exp.Literal.string(own))
                is_it = either(is_it, self._is_a(cell, self.bools, is_own))
            yield is_it, self.text(level)

    def _numbers(self, cell: Sql, written: Sql, index: LevelIndex) -> Iterator[tuple[Sql, Sql]]:
        """Yield tests for numbers in another notation than a category, with the category's text."""
        for number, code in index.aliases.items():
            if number in ("False", "True"):
                continue
            ways = [number, f"{number}.0"] if _is_whole(number) else [number]
            other = [self.text(way) for way in ways if way not in index.levels]
            yield exp.Paren(this=one_of(written.copy(), other)), self.text(index.levels[code])
        whole = dict.fromkeys(filter(_is_whole, index.levels))
        if not whole:
            return
        fits: Sql = exp.Like(this=written.copy(), expression=exp.Literal.string("%.0"))
        length = exp.Sub(this=call("LENGTH", written.copy()), expression=exp.Literal.number(2))
        cut = call("SUBSTR", written.copy(), exp.Literal.number(1), length)
        if len(whole) < len(index.levels):
            fits = exp.And(this=fits, expression=one_of(cut.copy(), [*map(self.text, whole)]))
        known = [text for text in index.texts if text.endswith(".0") and text[:-2] in whole]
        if not known:
            yield exp.Paren(this=fits), cut
            return
        if self.doubles:
            yield self._is_a(cell, self.doubles, fits.copy()), cut.copy()
        yield self._but(fits, written, known), cut

    def _but(self, condition: Sql, written: Sql, texts: Sequence[str]) -> Sql:
        """Restrict `condition` to cells whose text is not one of `texts`."""
        if not texts:
            return condition
        others = exp.Paren(this=one_of(written.copy(), [*map(self.text, texts)]))
        both = exp.And(this=condition.copy(), expression=exp.Not(this=others))
        return exp.Paren(this=both)

    def _is_a(self, cell: Sql, kinds: Sequence[str], too: Sql) -> Sql:
        """Test whether a cell has one of the types `kinds`, and `too` is true."""
        kind = cast(call(self.type_of, cell.copy()), "TEXT")
        asked = one_of(kind, [exp.Literal.string(name) for name in kinds])
        return exp.Paren(this=exp.And(this=asked, expression=too))

    def is_mark(self, cell: Sql, marks: Sequence[str]) -> Sql | None:
        """Test whether the text of a cell is a marker of missing values."""
        if not marks:
            return None
        stripped = call(self.trim, cast(cell, "TEXT"), self.text(BLANKS))
        return one_of(stripped, [self.text(mark) for mark in marks])

    def greatest(self, values: Sequence[Sql]) -> Sql:
        """Build the maximum of values."""
        return values[0] if len(values) == 1 else call("GREATEST", *values)

    def least(self, values: Sequence[Sql]) -> Sql:
        """Build the minimum of values."""
        return values[0] if len(values) == 1 else call("LEAST", *values)

    def floor(self, value: Sql) -> Sql:
        """Round a double in the range of BIGINT down to a BIGINT."""
        return cast(call("FLOOR", value), "BIGINT")

    def float32(self, x: str) -> dict[str, Sql] | None:
        """Build the intermediate columns of `x` that `to_float32` needs, or None."""
        del x
        return None

    def to_float32(self, x: str) -> Sql:
        """Round a double to the nearest float32, as a double."""
        largest, tiny = 2.0**128 - 2.0**103, 2.0**-150
        # Outside this range the cast would raise an error.
        return when(
            [
                (exp.GTE(this=column(x), expression=self.number(largest)), self.infinity("+")),
                (exp.LTE(this=column(x), expression=self.number(-largest)), self.infinity("-")),
                (
                    exp.Between(this=column(x), low=self.number(-tiny), high=self.number(tiny)),
                    self.number(0.0),
                ),
            ],
            cast(cast(column(x), "FLOAT"), "DOUBLE"),
        )

    def infinity(self, sign: str) -> Sql:
        """Build an infinite double."""
        return cast(exp.Literal.string(f"{sign}infinity"), "DOUBLE")

    def not_nan(self, value: Sql) -> Sql:
        """Replace NaN by NULL."""
        return call("NULLIF", value, self.nan())

    def refuse(self, message: str, witness: Sql) -> Sql:
        """Build a BIGINT expression that stops the query with an error.

        `witness` is any value of the row.
        """
        # It makes the expression depend on the row, so that the planner cannot evaluate it early.
        return cast(call("CONCAT", self.text(message), witness), "BIGINT")

    def problem(self, query: str, table: str, columns: Sequence[str], form: str) -> str:
        """Return the engine's error for a query that exceeds its limits; empty if unknown."""
        del query, table, columns, form  # only SQLite is available in Python
        return ""

    def rows(self, **arrays: npt.NDArray[Any] | list[str | None]) -> exp.Select:
        """Build a table of arrays: int64, float64, or lists of digits (None = NULL)."""
        made = [array(values, "{", "}", self.kind_of(values)) for values in arrays.values()]
        alias = exp.TableAlias(
            this=exp.to_identifier("listed"), columns=[exp.to_identifier(name) for name in arrays]
        )
        return exp.select(*map(column, arrays)).from_(exp.Unnest(expressions=made, alias=alias))

    def kind_of(self, values: npt.NDArray[Any] | list[str | None]) -> str:
        """Return the SQL type of an array."""
        if isinstance(values, list):
            return "TEXT[]"
        return "DOUBLE[]" if values.dtype.kind == "f" else "BIGINT[]"


def array(values: npt.NDArray[Any] | list[str | None], first: str, last: str, kind: str) -> Sql:
    """Build an array from its text representation."""
    cells = values if isinstance(values, list) else map(repr, values.tolist())
    body = ",".join("NULL" if cell is None else cell for cell in cells)
    return cast(exp.Literal.string(f"{first}{body}{last}"), kind)


def _is_whole(level: str) -> bool:
    """Return whether a category is an integer that a column of doubles writes with ``.0``."""
    digits = level.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 16 and str(int(level)) == level


# ---------------------------------------------------------------- duckdb


class DuckDB(Dialect):
    """DuckDB; see `Dialect`."""

    name = "duckdb"
    title = "DuckDB"
    most_columns = most_answers = 100_000
    longest_name = 0
    folds_case = True
    reserved_columns = frozenset()
    trim = "TRIM"
    nul = "CHR"
    collation = '"binary"'
    type_of = "TYPEOF"
    bools, doubles = ("BOOLEAN",), ("DOUBLE", "FLOAT")

    def number(self, number: float) -> Sql:
        """Build a finite double; without an exponent the literal would be a DECIMAL."""
        written = repr(float(number))
        return exp.Literal.number(written if "e" in written else f"{written}e0")

    bound = number

    def refuse(self, message: str, witness: Sql) -> Sql:
        """Build an expression that stops the query with an error."""
        del witness
        return cast(call("ERROR", self.text(message)), "BIGINT")

    def rows(self, **arrays: npt.NDArray[Any] | list[str | None]) -> exp.Select:
        """Build a table of arrays from lists in text."""
        made = {
            name: call("UNNEST", array(values, "[", "]", self.kind_of(values)))
            for name, values in arrays.items()
        }
        return exp.Select(expressions=[exp.alias_(value, name) for name, value in made.items()])


# ---------------------------------------------------------------- sqlite
# Exact doubles and float32 rounding are built from integers and IEEE operations.

_ROUND_BITS = 9
_TOO_MUCH = ("stack overflow", "too large", "too many", "too big", "out of memory")


class SQLite(Dialect):
    """SQLite; see `Dialect`."""

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
    bool_texts = ("0", "1")  # SQLite has no bool type

    def number(self, number: float) -> Sql:
        """Build a decimal if every version of SQLite reads it exactly, else a product of integers.

        SQLite's conversion of decimals is not always correctly rounded (wrong for 547 of 200,000
        doubles, measured with 3.40); integers and powers of two are exact.
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
        """Convert a number to a double; text other than missing markers is unchanged."""
        kinds = [exp.Literal.string(kind) for kind in ("integer", "real")]
        tests = [(one_of(call("TYPEOF", cell), kinds), cast(cell, "DOUBLE"))]
        mark = self.is_mark(cell, marks)
        if mark is not None:
            tests.append((mark, none()))
        return when(tests, cell)

    def no_number(self, number: Sql) -> Sql | None:
        """Test whether `as_number` left text or bytes."""
        kinds = [exp.Literal.string(kind) for kind in ("text", "blob")]
        return one_of(call("TYPEOF", number), kinds)

    def greatest(self, values: Sequence[Sql]) -> Sql:
        """Build the maximum of values."""
        return _grouped("MAX", values)

    def least(self, values: Sequence[Sql]) -> Sql:
        """Build the minimum of values."""
        return _grouped("MIN", values)

    def floor(self, value: Sql) -> Sql:
        """Round down without FLOOR, which some builds lack."""
        cut = cast(value, "BIGINT")
        below = exp.Paren(this=exp.LT(this=value.copy(), expression=cut.copy()))
        return binary(exp.Sub, cut, below)

    def not_nan(self, value: Sql) -> Sql:
        """Return the value unchanged: SQLite stores NaN as NULL."""
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
        """Choose the nearest float32 of the two candidates of `float32`, ties to even.

        `x_other` is `x_near` reflected at x: it has 24 bits, too, only in a
        tie, and then the even one of the two has 23 bits.
        """
        near, other = column(f"{x}_near"), column(f"{x}_other")
        size = call("ABS", column(x))
        tie = exp.EQ(this=_veltkamp(other, 29), expression=other)
        odd = exp.NEQ(this=_veltkamp(near, 30), expression=near)
        raised = self.number(1.5 * 2.0**-97)  # its last bit is the unit of a subnormal float32
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
        """Build an expression that stops the query with an error."""
        # SQLite has no function that raises an error, but an invalid JSON path does, with its text.
        shown = call("COALESCE", witness, self.text(""))
        path = exp.DPipe(this=self.text(f"{message}: "), expression=shown)
        return call("JSON_EXTRACT", exp.Literal.string("{}"), path)

    def problem(self, query: str, table: str, columns: Sequence[str], form: str) -> str:
        """Return SQLite's error for a query that exceeds its limits, tested on an empty table."""

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
            message = str(error)
            # Ignore other errors, such as functions that an old version lacks.
            return message if any(word in message for word in _TOO_MUCH) else ""
        finally:
            connection.close()
        return ""

    def rows(self, **arrays: npt.NDArray[Any] | list[str | None]) -> exp.Select:
        """Build a table from JSON; a double is an integer times a power of two from `powers`."""
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
    """Split doubles into ``whole * 2**exponent``, within 53 bits and -1074 to 971."""
    fraction, exponent = np.frexp(values)
    whole, power = np.ldexp(fraction, 53).astype(np.int64), exponent - 53
    low = np.maximum(-1074 - power, 0)  # subnormal: the bits below are 0
    return (whole >> low).tolist(), (power + low).tolist()


def _reads_exactly(x: float) -> bool:
    """Return whether every algorithm SQLite has used reads the shortest decimal of `x` exactly.

    True for at most 53 bits of digits and powers of ten up to 22, which need one rounding in
    double, unless the number is so close to the midpoint of two doubles that
    double rounding in wider registers would change it.
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
    """Nest calls of `function`, because SQLite allows up to 127 arguments."""
    groups = [values[i : i + 100] for i in range(0, len(values), 100)]
    made = [group[0] if len(group) == 1 else call(function, *group) for group in groups]
    return made[0] if len(made) == 1 else _grouped(function, made)
