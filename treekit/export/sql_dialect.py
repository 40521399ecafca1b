"""What an engine calls, reads and stores in its own way: PostgreSQL's, which others override."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt
from sqlglot import exp

from treekit.data.cells import value_text
from treekit.data.features import LevelIndex
from treekit.errors import ExportError
from treekit.export.sql_syntax import (
    Sql,
    binary,
    call,
    cast,
    column,
    either,
    integer,
    one_of,
    text,
    when,
)

__all__ = ["BLANKS", "Dialect", "array"]

BLANKS = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""What `str.strip` drops around a cell."""


class Dialect:
    """PostgreSQL's and DuckDB's common ways; what differs is overridden.

    Attributes
    ----------
    name : str
        Also sqlglot's name of it.
    title : str
    most_columns, most_answers : int
        Columns that a table, and the result of a query, may have.
    longest_name : int
        Bytes; 0 = no limit.
    folds_case : bool
        Whether two quoted names that differ in case only are one.
    empty_name : bool
        Whether a column may have the name "".
    reserved_columns : frozenset of str
        Names that every table has for itself.
    trim : str
        The function that drops some characters around a text.
    nul : str
        The function that makes a NUL, or "" if text cannot hold one.
    collation : str
        The one that compares bytes.
    type_of : str
        The function that names the type of a value.
    bools, doubles : tuple of str
        Types of bools, and those whose text is ``3.0`` for a whole number.
    bool_texts : tuple of str
        The texts of a false and of a true one.
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
        """A finite double that is read back to the last bit, wherever it stands."""
        return cast(exp.Literal.number(repr(float(number))), "DOUBLE")

    def bound(self, number: float) -> Sql:
        """The same where a double stands beside it, which gives it its type."""
        # NUMERIC is exact, and becomes a double as its text would.
        return exp.Literal.number(repr(float(number)))

    def text(self, content: str) -> Sql:
        """A text literal."""
        return text(content, self.nul)

    def label(self, label: bool | int | float | str) -> Sql:
        """A class label."""
        if isinstance(label, bool):
            return exp.Boolean(this=label)
        if isinstance(label, str):
            return self.text(label)
        if isinstance(label, float):
            return self.number(label)
        if not -(2**63) < label < 2**63:
            raise ExportError(
                f"the class label {label} is beyond what SQL writes as a BIGINT: rename it"
            )
        return integer(label)

    def as_number(self, cell: Sql, marks: Sequence[str]) -> Sql:
        """A cell of a numeric column as a double; NULL if it is missing."""
        del marks  # a column of numbers holds no text
        return call("NULLIF", cast(cell, "DOUBLE"), self.nan())

    def nan(self) -> Sql:
        """NaN, which equals itself and is above all numbers here."""
        return cast(exp.Literal.string("NaN"), "DOUBLE")

    def no_number(self, number: Sql) -> Sql | None:
        """Whether `as_number` found what is no number; None if the engine says so itself."""
        del number
        return None

    def as_text(self, cell: Sql, index: LevelIndex) -> Sql:
        """A cell as text that is compared byte by byte.

        What means a level that is a number or a bool becomes its text, as `LevelIndex` finds
        it: bools of any case, whole numbers that end in ``.0``, and what the engine writes
        for a number.  Numbers written otherwise (``3.00``, ``1e0``) stay.
        """
        written = cast(cell, "TEXT")
        tests = [*self._bools(cell, written, index), *self._numbers(cell, written, index)]
        # A column may be declared to compare otherwise (NOCASE): not here.
        said = exp.Paren(this=when(tests, written)) if tests else written
        return exp.Paren(this=exp.Collate(this=said, expression=exp.var(self.collation)))

    def _bools(self, cell: Sql, written: Sql, index: LevelIndex) -> Iterator[tuple[Sql, Sql]]:
        """Whether a cell is false or true, each with the level that means it."""
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
        """Whether a cell is a number in other words than a level's, with the level's text."""
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
        """`condition`, unless the cell is written as one of `texts`."""
        if not texts:
            return condition
        others = exp.Paren(this=one_of(written.copy(), [*map(self.text, texts)]))
        both = exp.And(this=condition.copy(), expression=exp.Not(this=others))
        return exp.Paren(this=both)

    def _is_a(self, cell: Sql, kinds: Sequence[str], too: Sql) -> Sql:
        """Whether a cell is of one of some types, and `too`."""
        kind = cast(call(self.type_of, cell.copy()), "TEXT")
        asked = one_of(kind, [exp.Literal.string(name) for name in kinds])
        return exp.Paren(this=exp.And(this=asked, expression=too))

    def is_mark(self, cell: Sql, marks: Sequence[str]) -> Sql | None:
        """Whether a cell's text means that it is missing."""
        if not marks:
            return None
        stripped = call(self.trim, cast(cell, "TEXT"), self.text(BLANKS))
        return one_of(stripped, [self.text(mark) for mark in marks])

    def greatest(self, values: Sequence[Sql]) -> Sql:
        """The largest of some values."""
        return values[0] if len(values) == 1 else call("GREATEST", *values)

    def least(self, values: Sequence[Sql]) -> Sql:
        """The smallest of some values."""
        return values[0] if len(values) == 1 else call("LEAST", *values)

    def floor(self, value: Sql) -> Sql:
        """The whole number below a double that a BIGINT can hold, as one."""
        return cast(call("FLOOR", value), "BIGINT")

    def float32(self, x: str) -> dict[str, Sql] | None:
        """Columns to make of column `x` before `to_float32`, or None."""
        del x
        return None

    def to_float32(self, x: str) -> Sql:
        """The float32 nearest to a double, as a double."""
        largest, tiny = 2.0**128 - 2.0**103, 2.0**-150
        # The cast itself would be an error beyond the range.
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
        """An infinite double."""
        return cast(exp.Literal.string(f"{sign}infinity"), "DOUBLE")

    def not_nan(self, value: Sql) -> Sql:
        """NULL for NaN."""
        return call("NULLIF", value, self.nan())

    def refuse(self, message: str, witness: Sql) -> Sql:
        """An expression of a BIGINT that stops the query, whatever `witness` is."""
        # The witness keeps the planner from working it out before any row is read.
        return cast(call("CONCAT", self.text(message), witness), "BIGINT")

    def problem(self, query: str, table: str, columns: Sequence[str], form: str) -> str:
        """What the engine would say of a query that is too much for it; empty if unknown."""
        del query, table, columns, form  # only SQLite comes with Python
        return ""

    def rows(self, **arrays: npt.NDArray[Any] | list[str | None]) -> exp.Select:
        """A table of arrays: int64, float64, or lists of digits (None = NULL)."""
        made = [array(values, "{", "}", self.kind_of(values)) for values in arrays.values()]
        alias = exp.TableAlias(
            this=exp.to_identifier("listed"), columns=[exp.to_identifier(name) for name in arrays]
        )
        return exp.select(*map(column, arrays)).from_(exp.Unnest(expressions=made, alias=alias))

    def kind_of(self, values: npt.NDArray[Any] | list[str | None]) -> str:
        """The type of an array."""
        if isinstance(values, list):
            return "TEXT[]"
        return "DOUBLE[]" if values.dtype.kind == "f" else "BIGINT[]"


def array(values: npt.NDArray[Any] | list[str | None], first: str, last: str, kind: str) -> Sql:
    """An array, as the engine reads it from a text."""
    cells = values if isinstance(values, list) else map(repr, values.tolist())
    body = ",".join("NULL" if cell is None else cell for cell in cells)
    return cast(exp.Literal.string(f"{first}{body}{last}"), kind)


def _is_whole(level: str) -> bool:
    """Whether a level is a whole number that a column of doubles writes with ``.0``."""
    digits = level.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 16 and str(int(level)) == level
