"""SQL dialects: PostgreSQL's syntax and types, overridden for the other engines."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from treekit.data.features import LevelIndex
from treekit.data.schema import level_text
from treekit.errors import ExportError
from treekit.export.literals import BLANKS, encode_utf8
from treekit_sql.syntax import (
    Operand,
    Sql,
    as_sql,
    combine,
    make_binary,
    make_call,
    make_case,
    make_cast,
    make_membership_test,
    make_null_test,
    make_or,
    make_quotient,
    make_select,
)

# ---------------------------------------------------------------- sql dialect


_NUMBER = r"-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]{1,4})?"
"""Numbers in text, as JSON writes them; SQLite's JSON functions know no others."""
_SAFE_NUMBER = r"-?(0|[1-9][0-9]{0,199})([.][0-9]{1,90})?([eE][+-]?[0-9]{1,2})?"
"""Numbers whose digits and exponents keep them within the range of doubles."""
_TINY = "2.4703282292062328e-324"
"""Numbers below it are nearer to 0 than to the least double."""
_NUMBER_TYPES = ("double precision", "real", "bigint", "integer", "smallint")
_REGTYPE = exp.DataType(this=exp.DType.USERDEFINED, kind="REGTYPE")


class Dialect:
    """PostgreSQL, and the base class of other dialects.

    Attributes
    ----------
    name : str
        Name of the dialect, the same in sqlglot.
    title : str
    max_columns, max_result_columns : int
        Maximum number of columns of a table, and of the result of a query.
    max_name_bytes, max_name_characters : int
        Maximum length of a name; 0 = no limit.
    max_table_parts : int
        Maximum parts of the name of a table: catalog, schema, table.
    folds_case : bool
        Whether two quoted names that differ only in case are equal.
    allows_empty_name : bool
        Whether a column may have the name "".
    reserved_columns : frozenset of str
        System columns of every table.
    trim_function : str
        Function that removes given characters around a text.
    nul_function : str
        Function that returns a NUL, or "" if text cannot contain one.
    collation : str
        Collation that compares bytes.
    type_function : str
        Function that returns the type name of a value.
    bool_types, double_types : tuple of str
        Types of bools, and of binary floating-point numbers.
    bool_texts : tuple of str
        Texts of false and of true.
    forms : tuple of str
        Forms that are written.
    forbidden_in_names : str
        Characters that no name may have.
    rejects_text : bool
        Whether text in a column of numbers stops a query, if `find_text` does not find it.
    compares_bytes : bool
        Whether two texts are equal only if their bytes are.
    double_cast : (str, str)
        Text around an expression of `make_result` that makes it a double.
    notes : tuple of str
        What the engine does otherwise, for the head of a file.
    """

    name = "postgres"
    title = "PostgreSQL"
    max_columns = 1600
    max_result_columns = 1664
    max_name_bytes = 63
    max_name_characters = 0
    max_table_parts = 3
    folds_case = False
    allows_empty_name = False
    reserved_columns = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
    trim_function = "BTRIM"
    nul_function = ""
    collation = '"C"'
    type_function = "PG_TYPEOF"
    bool_types: tuple[str, ...] = ("boolean",)
    bool_texts = ("false", "true")
    double_types: tuple[str, ...] = ("double precision", "real")
    rejects_text = True
    compares_bytes = True
    forms: tuple[str, ...] = ("readable", "case", "table", "expression")
    forbidden_in_names = ""
    double_cast = ("CAST(", " AS DOUBLE PRECISION)")
    notes: tuple[str, ...] = ()

    def explain_bad_name(self, name: str) -> str:
        """Return why a name is not allowed, as the end of a sentence; empty if it is."""
        wrong = [c for c in self.forbidden_in_names if c in name]
        return f"contains {wrong[0]!r}" if wrong else ""

    def make_number(self, number: float) -> Sql:
        """Build a finite double, exact in any context."""
        return make_cast(exp.Literal.number(repr(float(number))), "DOUBLE")

    def make_bound(self, number: float) -> Sql:
        """Build a finite double next to a double operand, which determines its type."""
        # The literal is NUMERIC, which is exact and converts to a double as its text would.
        return exp.Literal.number(repr(float(number)))

    def make_result(self, number: float) -> Sql:
        """Build a finite double among the values of a CASE; see `double_cast`."""
        return exp.Literal.number(repr(float(number)))

    def reads_exactly(self, number: float) -> bool:
        """Return whether every version of the engine reads the shortest decimal exactly."""
        del number
        return True

    def convert_typed_cell(self, cell: Sql) -> Sql:
        """Convert a number to a double, as the model does; NULL if it is missing.

        A cast would read some texts as numbers, and not as the model does.
        """
        return self.replace_nan(cell)  # with a double, all numbers but REAL are doubles

    def find_text(self, cell: Sql) -> Sql | None:
        """Test whether a cell of a column of numbers holds text; None if it cannot."""
        del cell
        return None

    def clean_text(self, cell: Sql) -> Sql:
        """Compare a cell of text by bytes instead of the collation of its column."""
        return exp.Collate(this=cell, expression=exp.var(self.collation))

    def make_text(self, content: str) -> Sql:
        """Build a string expression; each NUL becomes a call of `nul_function`.

        Raises
        ------
        ExportError
            For half a surrogate pair, or a NUL if text cannot contain one.
        """
        encode_utf8(content)
        parts: list[Sql] = [exp.Literal.string(part) for part in content.split("\0")]
        made, *others = parts
        if others and not self.nul_function:
            raise ExportError(
                f"{content[:80]!r} contains a NUL, which PostgreSQL cannot store: rename it"
            )
        for part in others:
            made = combine(exp.DPipe, made, make_call(self.nul_function, 0))
            made = combine(exp.DPipe, made, part)
        return exp.Paren(this=made) if others else made

    def make_characters(self, content: str) -> Sql:
        """Build a text by the numbers of its characters, all printable in the query."""
        return reduce(partial(combine, exp.DPipe), [make_call("CHR", ord(c)) for c in content])

    def make_label(self, label: bool | int | float | str) -> Sql:
        """Build a class label."""
        if isinstance(label, bool):
            return exp.Boolean(this=label)
        if isinstance(label, str):
            return self.make_text(label)
        if isinstance(label, float):
            return self.make_number(label)
        if not -(2**63) < label < 2**63:
            raise ExportError(f"the class label {label} exceeds the range of a BIGINT: rename it")
        return as_sql(label)

    def convert_to_number(self, cell: Sql, marks: Sequence[str], *, plain: bool = True) -> Sql:
        """Convert a cell of a numeric column to a double, NULL if it is missing.

        Text is a number as JSON writes it, or a mark of a missing value; NaN stands for
        any other cell, and for every number in text unless `plain`: the model's text is in
        another notation.  No cell raises an error.
        """
        tests = [(self._is_typed_number(cell), self._convert_typed_number(cell))]
        missing = make_null_test(cell.copy())
        mark = self.is_missing_marker(cell.copy(), marks)
        tests.append((missing if mark is None else make_or(missing, mark), exp.Null()))
        text = make_call(self.trim_function, make_cast(cell, "TEXT"), self.make_text(BLANKS))
        if not plain:
            tests.append((self._is_text(cell), self.make_nan()))
        return make_case([*tests, *self._convert_number_text(cell, text)], self.make_nan())

    def _is_text(self, cell: Sql) -> Sql:
        """Test whether a cell has a type of text."""
        kinds = ("text", "character varying", "character", "unknown")
        types = [exp.Cast(this=exp.Literal.string(kind), to=_REGTYPE.copy()) for kind in kinds]
        return make_membership_test(make_call("PG_TYPEOF", cell.copy()), types)

    def _is_typed_number(self, cell: Sql) -> Sql:
        """Test whether a cell has a type whose values are all doubles."""
        kinds = [exp.Cast(this=exp.Literal.string(kind), to=_REGTYPE) for kind in _NUMBER_TYPES]
        return make_membership_test(make_call("PG_TYPEOF", cell), [kind.copy() for kind in kinds])

    def _convert_typed_number(self, cell: Sql) -> Sql:
        return make_call("NULLIF", make_cast(cell, "DOUBLE"), self.make_nan())

    def _convert_number_text(self, cell: Sql, text: Sql) -> list[tuple[Sql, Sql]]:
        """Return conversions of a cell that is not `_is_typed_number`, each with its condition."""
        del cell
        # A cast raises an error for numbers beyond the range, which a NUMERIC can hold.
        number = make_cast(text.copy(), "DECIMAL")
        infinite, tiny = (exp.Literal.number(bound) for bound in ("1.7976931348623158e308", _TINY))
        above, below = (make_cast(exp.Literal.string(f"{sign}infinity"), "DOUBLE") for sign in "+-")
        tests = [
            (combine(exp.GTE, number, infinite), above),
            (combine(exp.LTE, number.copy(), exp.Neg(this=infinite.copy())), below),
            (combine(exp.LT, make_call("ABS", number.copy()), tiny), self.make_number(0.0)),
        ]
        bounded = make_case(tests, make_cast(number.copy(), "DOUBLE"))
        return [
            (self._matches(text, _SAFE_NUMBER), make_cast(text.copy(), "DOUBLE")),
            (self._matches(text, _NUMBER), bounded),
        ]

    def _matches(self, text: Sql, pattern: str) -> Sql:
        """Test whether a regular expression matches a text from its start to its end."""
        return combine(exp.RegexpLike, text.copy(), exp.Literal.string(f"^({pattern})$"))

    def make_nan(self) -> Sql:
        """Build NaN, which in this dialect equals itself and is larger than all numbers."""
        return make_cast(exp.Literal.string("NaN"), "DOUBLE")

    def is_not_number(self, number: Sql) -> Sql:
        """Test for the mark of a cell that `convert_to_number` cannot convert."""
        return combine(exp.EQ, number, self.make_nan())

    def convert_to_text(self, cell: Sql, index: LevelIndex) -> Sql:
        """Convert a cell to text that is compared byte by byte.

        Another notation of a category becomes the category, by the rules of `LevelIndex`.
        """
        written = make_cast(cell, "TEXT")
        tests = [*self._make_typed_tests(cell, written, index), *self._make_tests(written, index)]
        # The column may be declared with another collation (NOCASE): override it.
        value = exp.Paren(this=make_case(tests, written)) if tests else written
        return exp.Paren(this=exp.Collate(this=value, expression=exp.var(self.collation)))

    def _make_typed_tests(
        self, cell: Sql, written: Sql, index: LevelIndex
    ) -> Iterator[tuple[Sql, Sql]]:
        """Yield tests for bools and doubles whose text in the engine is not that of Python.

        Each comes with the category of Python's text, or that text if there is none.
        """
        codes, levels = index.codes, index.levels
        for text, own in zip(("False", "True"), self.bool_texts, strict=True):
            is_number = own in codes and own not in ("false", "true")
            if codes.get(own) != codes.get(text) and not is_number:
                is_own = make_binary(exp.EQ, written, exp.Literal.string(own))
                meant = levels[codes[text]] if text in codes else text
                yield self._has_type(cell, self.bool_types, is_own), self.make_text(meant)
        for text, code in codes.items():
            number = _parse_double_text(text)
            if number is not None and codes.get(self.write_double(number)) != code:
                is_it = self.is_double(cell, written, number)
                yield self._has_type(cell, self.double_types, is_it), self.make_text(levels[code])

    def _make_tests(self, written: Sql, index: LevelIndex) -> Iterator[tuple[Sql, Sql]]:
        """Yield tests for other notations of categories, each with the category."""
        others = {text: code for text, code in index.aliases.items() if not text.endswith(".0")}
        for code in sorted(set(others.values())):
            texts = [self.make_text(text) for text, own in others.items() if own == code]
            is_other = exp.Paren(this=make_membership_test(written, texts))
            yield is_other, self.make_text(index.levels[code])
        whole = [text.removesuffix(".0") for text in index.aliases if text.endswith(".0")]
        if whole:
            is_whole: Sql = combine(exp.Like, written, exp.Literal.string("%.0"))
            length = combine(exp.Sub, make_call("LENGTH", written), exp.Literal.number(2))
            cut = make_call("SUBSTR", written, exp.Literal.number(1), length)
            if len(whole) < len(index.levels):  # else the text before .0 is a category or unseen
                known = make_membership_test(cut, [*map(self.make_text, whole)])
                is_whole = combine(exp.And, is_whole, known)
            yield exp.Paren(this=is_whole), cut

    def write_double(self, number: float) -> str:
        """Write a double as the engine converts it to text."""
        text = repr(number).removesuffix(".0")
        if 1e15 <= abs(number) < 1e16:  # Python writes an exponent from 1e16 on
            digits = text.removeprefix("-")
            fraction = f".{digits[1:]}".rstrip("0").rstrip(".")
            text = f"{'-' if number < 0 else ''}{digits[0]}{fraction}e+15"
        return text

    def is_double(self, cell: Sql, written: Sql, number: float) -> Sql:
        """Test whether a cell that is a double equals `number`."""
        del cell
        return make_binary(exp.EQ, written, exp.Literal.string(self.write_double(number)))

    def _has_type(self, cell: Sql, kinds: Sequence[str], too: Sql) -> Sql:
        """Test whether a cell has one of the types `kinds`, and `too` is true."""
        kind = make_cast(make_call(self.type_function, cell), "TEXT")
        asked = make_membership_test(kind, [exp.Literal.string(name) for name in kinds])
        return make_binary(exp.And, asked, too)

    def is_missing_marker(self, cell: Sql, marks: Sequence[str]) -> Sql | None:
        """Test whether the text of a cell is a marker of missing values."""
        if not marks:
            return None
        stripped = make_call(self.trim_function, make_cast(cell, "TEXT"), self.make_text(BLANKS))
        return make_membership_test(stripped, [self.make_text(mark) for mark in marks])

    def adapt_statement(self, made: Sql) -> None:
        """Change a statement in steps where the engine reads it otherwise."""

    def make_extreme(self, values: Sequence[Sql], *, least: bool = False) -> Sql:
        """Build the maximum, or the minimum, of values."""
        function = "LEAST" if least else "GREATEST"
        return values[0] if len(values) == 1 else make_call(function, *values)

    def make_floor(self, value: Sql) -> Sql:
        """Round a double in the range of BIGINT down to a BIGINT."""
        return make_cast(make_call("FLOOR", value), "BIGINT")

    def make_float32_parts(self, x: str) -> dict[str, Sql]:
        """Build the intermediate columns of `x` that `round_to_float32` needs."""
        del x
        return {}

    def round_to_float32(self, x: str) -> Sql:
        """Round a double to the nearest float32, as a double."""
        number, largest, tiny = self.make_number, 2.0**128 - 2.0**103, 2.0**-150
        above, below = (make_cast(exp.Literal.string(f"{sign}infinity"), "DOUBLE") for sign in "+-")
        # Outside this range the cast would raise an error.
        tests = [
            (combine(exp.GTE, x, number(largest)), above),
            (combine(exp.LTE, x, number(-largest)), below),
            (exp.Between(this=as_sql(x), low=number(-tiny), high=number(tiny)), number(0.0)),
        ]
        return make_case(tests, make_cast(make_cast(x, "FLOAT"), "DOUBLE"))

    def replace_nan(self, value: Sql) -> Sql:
        """Replace NaN by NULL."""
        return make_call("NULLIF", value, self.make_nan())

    def make_refusal(self, message: str, witness: Sql) -> Sql:
        """Build a BIGINT expression that stops the query with an error.

        `witness` is any value of the row.
        """
        # It makes the expression depend on the row, so that the planner cannot evaluate it early.
        return make_cast(make_call("CONCAT", self.make_text(message), witness), "BIGINT")

    def find_problem(
        self, query: str, table: Sequence[str], columns: Sequence[str], form: str
    ) -> str:
        """Return the engine's error for a query that exceeds its limits; empty if unknown."""
        del query, table, columns, form  # only SQLite is available in Python
        return ""

    def make_row_table(self, **arrays: npt.NDArray[Any] | list[str | None]) -> exp.Select:
        """Build a table of arrays: int64, float64, or lists of digits (None = NULL)."""
        made = [_make_array(values, "{}") for values in arrays.values()]
        alias = exp.TableAlias(
            this=exp.to_identifier("listed"), columns=[exp.to_identifier(name) for name in arrays]
        )
        return exp.select(*map(as_sql, arrays)).from_(exp.Unnest(expressions=made, alias=alias))


def _make_array(values: npt.NDArray[Any] | list[str | None], brackets: str) -> Sql:
    """Build an array from its text representation: integers, doubles or texts of digits."""
    if isinstance(values, list):
        kind, cells = "TEXT[]", ["NULL" if cell is None else cell for cell in values]
    else:
        kind = "DOUBLE[]" if values.dtype.kind == "f" else "BIGINT[]"
        cells = list(map(repr, values.tolist()))
    return make_cast(exp.Literal.string(f"{brackets[0]}{','.join(cells)}{brackets[1]}"), kind)


def _parse_double_text(text: str) -> float | None:
    """Return the double that has the text as a category, if there is one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and level_text(number) == text else None


# ---------------------------------------------------------------- duckdb


_DUCKDB_INTEGERS = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT")


def _try_cast(value: Sql) -> Sql:
    """Build a conversion to a double that is NULL where it fails."""
    return exp.TryCast(this=value.copy(), to=exp.DataType(this=exp.DType.DOUBLE))


def make_exponent_literal(number: float) -> Sql:
    """Build a literal with an exponent, which is a double where decimals have another type."""
    written = repr(abs(float(number)))
    literal = exp.Literal.number(written if "e" in written else f"{written}e0")
    return exp.Neg(this=literal) if math.copysign(1.0, number) < 0 else literal


def add_zero(cell: Sql) -> Sql:
    """Build the sum of a cell and 0, as a double."""
    return combine(exp.Add, cell, make_exponent_literal(0.0))


class DuckDB(Dialect):
    """DuckDB; see `Dialect`."""

    name = "duckdb"
    title = "DuckDB"
    max_columns = max_result_columns = 100_000
    max_name_bytes = 0
    folds_case = True
    reserved_columns = frozenset()
    trim_function = "TRIM"
    nul_function = "CHR"
    collation = '"binary"'
    type_function = "TYPEOF"
    bool_types, double_types = ("BOOLEAN",), ("DOUBLE", "FLOAT")

    def make_number(self, number: float) -> Sql:
        """Build a finite double; without an exponent the literal would be a DECIMAL."""
        return make_exponent_literal(number)

    make_result = make_bound = make_number
    double_cast = ("", "")

    def convert_typed_cell(self, cell: Sql) -> Sql:
        """Convert a number to a double by a sum, which is an error for text."""
        return self.replace_nan(add_zero(cell))

    def write_double(self, number: float) -> str:
        """Write a double as the engine converts it to text."""
        return repr(number)

    def _is_typed_number(self, cell: Sql) -> Sql:
        kinds = ["DOUBLE", "FLOAT", "BOOLEAN", "HUGEINT", "UHUGEINT"]
        kinds += [f"{sign}{size}" for size in _DUCKDB_INTEGERS for sign in ("", "U")]
        names = [exp.Literal.string(kind) for kind in kinds]
        return make_membership_test(make_call("TYPEOF", cell), names)

    def _convert_typed_number(self, cell: Sql) -> Sql:
        return make_call("NULLIF", _try_cast(cell), self.make_nan())

    def _is_text(self, cell: Sql) -> Sql:
        return combine(exp.EQ, make_call("TYPEOF", cell.copy()), exp.Literal.string("VARCHAR"))

    def _convert_number_text(self, cell: Sql, text: Sql) -> list[tuple[Sql, Sql]]:
        number = make_case([(self._matches(text, _NUMBER), _try_cast(text))], self.make_nan())
        # DECIMAL, or a type that is no number: the conversion is NULL.
        other = make_call("COALESCE", _try_cast(cell), self.make_nan())
        return [(self._is_text(cell), number), (exp.true(), other)]

    def _matches(self, text: Sql, pattern: str) -> Sql:
        return make_call("REGEXP_FULL_MATCH", text.copy(), exp.Literal.string(pattern))

    def make_refusal(self, message: str, witness: Sql) -> Sql:
        """Build an expression that stops the query with an error."""
        del witness
        return make_cast(make_call("ERROR", self.make_text(message)), "BIGINT")

    def make_row_table(self, **arrays: npt.NDArray[Any] | list[str | None]) -> exp.Select:
        """Build a table of arrays from lists in text."""
        cells = {name: _make_array(values, "[]") for name, values in arrays.items()}
        return make_select({name: make_call("UNNEST", cell) for name, cell in cells.items()})


# ---------------------------------------------------------------- sqlite
# Exact doubles and float32 rounding are built from integers and IEEE operations.

_ROUNDING_BITS = 9
_LIMIT_ERRORS = ("stack overflow", "too large", "too many", "too big", "out of memory")


class SQLite(Dialect):
    """SQLite; see `Dialect`."""

    name = "sqlite"
    title = "SQLite"
    max_table_parts = 2
    max_columns = max_result_columns = 2000
    max_name_bytes = 0
    folds_case = True
    allows_empty_name = True
    reserved_columns = frozenset()
    trim_function = "TRIM"
    nul_function = "CHAR"
    collation = "BINARY"
    type_function = "TYPEOF"
    bool_types, double_types = ("integer",), ("real",)
    bool_texts = ("0", "1")  # SQLite has no bool type

    def make_number(self, number: float) -> Sql:
        """Build a decimal if every version of SQLite reads it exactly, else a product of integers.

        SQLite's conversion of decimals is not always correctly rounded (wrong for 547 of 200,000
        doubles, measured with 3.40); integers and powers of two are exact.
        """
        x = float(number)
        if _is_read_exactly(x):
            return exp.Literal.number(repr(x))
        above, below = x.as_integer_ratio()
        shift = below.bit_length() - 1
        while above % 2 == 0:
            above, shift = above // 2, shift - 1
        made: Sql = exp.Literal.number(repr(float(above)))
        for start in range(0, abs(shift), 62):
            power = as_sql(1 << min(abs(shift) - start, 62))
            made = make_quotient(made, power) if shift > 0 else combine(exp.Mul, made, power)
        return exp.Paren(this=made)

    make_result = make_bound = make_number
    double_cast = ("", "")

    def reads_exactly(self, number: float) -> bool:
        """Return whether every version of SQLite reads the shortest decimal exactly."""
        return _is_read_exactly(number)

    def convert_typed_cell(self, cell: Sql) -> Sql:
        """Convert a number to a double; text, which `find_text` finds, becomes any number."""
        return make_cast(cell, "DOUBLE")

    def find_text(self, cell: Sql) -> Sql | None:
        """Test for text and bytes, which any column of SQLite may hold."""
        kinds = [exp.Literal.string(kind) for kind in ("text", "blob")]
        return make_membership_test(make_call("TYPEOF", cell), kinds)

    def write_double(self, number: float) -> str:
        """Write a double as the engine converts it to text, with up to 15 digits."""
        digits, e, exponent = f"{number:.15g}".partition("e")
        return f"{digits}{'' if '.' in digits else '.0'}{e}{exponent}"

    def is_double(self, cell: Sql, written: Sql, number: float) -> Sql:
        """Test whether a cell that is a double equals `number`, which several texts may mean."""
        del written
        return make_binary(exp.EQ, cell, self.make_number(number))

    def make_characters(self, content: str) -> Sql:
        """Build a text by the numbers of its characters."""
        return make_call("CHAR", *map(ord, content))

    def convert_to_number(self, cell: Sql, marks: Sequence[str], *, plain: bool = True) -> Sql:
        """Convert a number to a double; text that is none, and no marker, is unchanged."""
        kinds = [exp.Literal.string(kind) for kind in ("integer", "real")]
        is_number = make_membership_test(make_call("TYPEOF", cell), kinds)
        tests = [(is_number, make_cast(cell, "DOUBLE"))]
        mark = self.is_missing_marker(cell, marks)
        if mark is not None:
            tests.append((mark, exp.Null()))
        if not plain:
            return make_case(tests, cell)
        text = make_call(self.trim_function, cell, self.make_text(BLANKS))
        found = make_membership_test(make_call("JSON_TYPE", text), [kind.copy() for kind in kinds])
        # Nested: JSON_TYPE raises an error for text that is not JSON.
        valid = make_case([(make_call("JSON_VALID", text.copy()), found)], as_sql(0))
        is_text = combine(exp.EQ, make_call("TYPEOF", cell), exp.Literal.string("text"))
        tests.append((make_case([(is_text, valid)], as_sql(0)), make_cast(text.copy(), "DOUBLE")))
        return make_case(tests, cell)

    def is_not_number(self, number: Sql) -> Sql:
        """Test whether `convert_to_number` left text or bytes."""
        kinds = [exp.Literal.string(kind) for kind in ("text", "blob")]
        return make_membership_test(make_call("TYPEOF", number), kinds)

    def make_extreme(self, values: Sequence[Sql], *, least: bool = False) -> Sql:
        """Build the maximum, or the minimum, of values."""
        return _nest_calls("MIN" if least else "MAX", values)

    def make_floor(self, value: Sql) -> Sql:
        """Round down without FLOOR, which some builds lack."""
        cut = make_cast(value, "BIGINT")
        below = make_binary(exp.LT, value, cut)
        return make_binary(exp.Sub, cut, below)

    def replace_nan(self, value: Sql) -> Sql:
        """Return the value unchanged: SQLite stores NaN as NULL."""
        return value

    def make_float32_parts(self, x: str) -> dict[str, Sql]:
        """Split a double at 24 bits (Veltkamp 1968); it may round a tie to odd."""
        near, twice = _split_veltkamp(as_sql(x), 29), make_binary(exp.Add, x, x)
        return {f"{x}_near": near, f"{x}_other": make_binary(exp.Sub, twice, near.copy())}

    def round_to_float32(self, x: str) -> Sql:
        """Choose the nearest float32 of the two candidates of `make_float32_parts`, ties to even.

        `x_other` is `x_near` reflected at x: it has 24 bits, too, only in a
        tie, and then the even one of the two has 23 bits.
        """
        near, other = as_sql(f"{x}_near"), as_sql(f"{x}_other")
        size = make_call("ABS", x)
        tie = combine(exp.EQ, _split_veltkamp(other, 29), other)
        odd = combine(exp.NEQ, _split_veltkamp(near, 30), near)
        raised = self.make_number(1.5 * 2.0**-97)  # its last bit is the unit of a subnormal float32
        subnormal = make_binary(exp.Sub, make_binary(exp.Add, x, raised), raised)
        large, largest = self.make_number(1e300), self.make_number(2.0**128 - 2.0**103)
        infinite = make_binary(exp.Mul, make_binary(exp.Mul, x, large), large)
        tests: list[tuple[Sql, Operand]] = [
            (combine(exp.GTE, size, largest), infinite),
            (combine(exp.LT, size, self.make_number(2.0**-126)), subnormal),
            (combine(exp.And, tie, odd), f"{x}_other"),
        ]
        return make_case(tests, f"{x}_near")

    def make_refusal(self, message: str, witness: Sql) -> Sql:
        """Build an expression that stops the query with an error."""
        # SQLite has no function that raises an error, but an invalid JSON path does, with its text.
        shown = make_call("COALESCE", witness, self.make_text(""))
        path = combine(exp.DPipe, self.make_text(f"{message}: "), shown)
        return make_call("JSON_EXTRACT", exp.Literal.string("{}"), path)

    def find_problem(
        self, query: str, table: Sequence[str], columns: Sequence[str], form: str
    ) -> str:
        """Return SQLite's error for a query that exceeds its limits, tested on an empty table."""

        def quote_name(name: str) -> str:
            return exp.to_identifier(name, quoted=True).sql(dialect=self.name)

        own = ", ".join(map(quote_name, dict.fromkeys(columns)))
        name = ".".join(map(quote_name, table))
        if form == "expression":
            query = f"SELECT\n{query}\nFROM {name}"
        with closing(sqlite3.connect(":memory:")) as connection:
            try:
                for schema in table[:-1]:
                    if schema.lower() not in ("main", "temp"):
                        connection.execute(f"ATTACH ':memory:' AS {quote_name(schema)}")
                connection.execute(f"CREATE TABLE {name} ({own})")
                connection.execute(f"EXPLAIN {query}")
            except sqlite3.Error as error:
                # Ignore other errors, such as functions that an old version lacks.
                return str(error) if any(word in str(error) for word in _LIMIT_ERRORS) else ""
        return ""

    def make_row_table(self, **arrays: npt.NDArray[Any] | list[str | None]) -> exp.Select:
        """Build a table from JSON; a double is an integer times a power of two from `powers`."""
        cells: list[list[str]] = []
        made: dict[str, Sql] = {}
        power = ""
        for name, values in arrays.items():
            value = _extract_cell(f"$[{len(cells)}]")
            if isinstance(values, list):
                cells.append(["null" if cell is None else f'"{cell}"' for cell in values])
            elif values.dtype.kind == "f":
                whole, exponents = _split_doubles(values)
                cells += [list(map(str, whole)), list(map(str, exponents))]
                power = f"$[{len(cells) - 1}]"
                value = combine(exp.Mul, value, _select_power(power))
            else:
                cells.append(list(map(str, values.tolist())))
            made[name] = value
        body = ",".join(map("[%s]".__mod__, map(",".join, zip(*cells, strict=True))))
        listed = exp.Table(
            this=make_call("JSON_EACH", exp.Literal.string(f"[{body}]")),
            alias=exp.TableAlias(this=exp.to_identifier("listed")),
        )
        query = make_select(made).from_(listed, copy=False)
        if power:
            on = combine(exp.EQ, "powers.exponent", make_call("ABS", _extract_cell(power)))
            query = query.join(exp.to_table("powers"), on=on, copy=False)
        return query


def _extract_cell(path: str) -> Sql:
    return make_call("JSON_EXTRACT", "listed.value", exp.Literal.string(path))


def _select_power(path: str) -> Sql:
    negative = combine(exp.LT, _extract_cell(path), 0)
    return make_case([(negative, "powers.down")], "powers.up")


def _split_doubles(values: npt.NDArray[np.float64]) -> tuple[list[int], list[int]]:
    """Split doubles into ``whole * 2**exponent``: 53-bit integers, exponents of -1074 to 971."""
    fraction, exponent = np.frexp(values)
    whole, power = np.ldexp(fraction, 53).astype(np.int64), exponent - 53
    low = np.maximum(-1074 - power, 0)  # subnormal: the bits below are 0
    return (whole >> low).tolist(), (power + low).tolist()


def _is_read_exactly(x: float) -> bool:
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
    return error <= Fraction(math.ulp(x)) * (half - Fraction(1, 1 << _ROUNDING_BITS))


def _split_veltkamp(x: Sql, bits: int) -> Sql:
    scaled = make_binary(exp.Mul, x, make_cast((1 << bits) + 1, "DOUBLE"))
    return make_binary(exp.Sub, scaled, make_binary(exp.Sub, scaled, x))


def _nest_calls(function: str, values: Sequence[Sql]) -> Sql:
    """Nest calls of `function`, because SQLite allows up to 127 arguments."""
    groups = [values[i : i + 100] for i in range(0, len(values), 100)]
    made = [group[0] if len(group) == 1 else make_call(function, *group) for group in groups]
    return made[0] if len(made) == 1 else _nest_calls(function, made)


DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (SQLite(), DuckDB(), Dialect())
}
