"""Dialects that have the readable form only, and MySQL, which has CASE for forests, too.

They are written by sqlglot, and `treekit verify` runs none of them but MySQL.
"""

from __future__ import annotations

from sqlglot import exp

from treekit.errors import ExportError
from treekit.export.literals import encode_utf8
from treekit_sql.dialects import Dialect, add_zero, make_exponent_literal
from treekit_sql.syntax import Sql, as_sql, combine, make_call, make_case, make_cast

_MAX_THREE_BYTES = 0xFFFF
_LINE_ENDS = "\n\r"
_ALL_ROWS = 2**64 - 1
_NOT_RUN = "This query was parsed by sqlglot, not run: compare some predictions with the model's."


class Warehouse(Dialect):
    """Base class; the defaults are those of Snowflake."""

    forms = ("readable",)
    max_columns = max_result_columns = 1000
    max_name_bytes = 0
    max_name_characters = 255
    reserved_columns = frozenset()
    notes = (_NOT_RUN,)
    double_cast = ("CAST(", " AS DOUBLE)")
    has_bools = allows_lines = True
    rejects_text = False

    def convert_typed_cell(self, cell: Sql) -> Sql:
        """Convert a number to a double, NULL if it is missing."""
        return self.replace_nan(make_cast(cell, "DOUBLE"))

    def make_text(self, content: str) -> Sql:
        """Build a string literal; refuse a NUL."""
        encode_utf8(content)
        if "\0" in content:
            raise ExportError(f"{content[:80]!r} contains a NUL, which {self.title} rejects")
        if not self.allows_lines and {*_LINE_ENDS} & {*content}:  # ";" there, or GO on a line
            raise ExportError(
                f"{content[:80]!r} has several lines, whose ends may end a statement in clients "
                f"of {self.title}: rename it"
            )
        return exp.Literal.string(content)

    def clean_text(self, cell: Sql) -> Sql:
        """Return the cell unchanged: text is compared by bytes."""
        return cell

    def make_label(self, label: bool | int | float | str) -> Sql:
        """Build a class label; 1 and 0 where there are no bools."""
        if isinstance(label, bool) and not self.has_bools:
            return as_sql(int(label))
        return super().make_label(label)


class ExponentDoubles(Warehouse):
    """Engines whose literals with an exponent are doubles."""

    double_cast = ("", "")

    def make_result(self, number: float) -> Sql:
        """Build a double by its exponent."""
        return make_exponent_literal(number)


class Snowflake(Warehouse):
    """Snowflake: NaN equals itself."""

    name, title = "snowflake", "Snowflake"


class BigQuery(ExponentDoubles):
    """BigQuery: NaN does not equal itself."""

    name, title = "bigquery", "BigQuery"
    rejects_text = True
    max_name_characters = 300
    folds_case = True
    forbidden_in_names = '!"$()*,./;?@[\\]^`{}~'

    def convert_typed_cell(self, cell: Sql) -> Sql:
        """Convert a number to a double by a sum, which is an error for text."""
        return self.replace_nan(add_zero(cell))

    def replace_nan(self, value: Sql) -> Sql:
        """Replace NaN by NULL."""
        return make_case([(make_call("IS_NAN", value.copy()), exp.Null())], value)


class Databricks(ExponentDoubles):
    """Databricks: NaN equals itself."""

    name, title = "databricks", "Databricks"
    folds_case = True
    notes = (
        _NOT_RUN,
        "Delta tables need column mapping for names with blanks or brackets.",
        "Without the ANSI mode, text in a column of numbers is missing.",
    )


class SQLServer(ExponentDoubles):
    """SQL Server: no NaN and no bools; blanks at the end of text are not compared."""

    name, title = "tsql", "SQL Server"
    max_name_characters = 128
    forbidden_in_names = _LINE_ENDS
    allows_lines = False
    folds_case = True
    compares_bytes = False
    has_bools = False
    notes = (
        _NOT_RUN,
        "Blanks at the end of text are not compared.  Bools are 1 and 0.",
        "An empty text in a column of numbers counts as 0.",
    )

    def replace_nan(self, value: Sql) -> Sql:
        """Return the value unchanged: there is no NaN."""
        return value

    def make_text(self, content: str) -> Sql:
        """Build a string literal, of Unicode if need be."""
        made = super().make_text(content)
        return made if content.isascii() else exp.National(this=content)

    def clean_text(self, cell: Sql) -> Sql:
        """Compare by code points instead of the collation of the column."""
        return exp.Collate(this=cell, expression=exp.var("Latin1_General_100_BIN2"))


class Oracle(Warehouse):
    """Oracle Database: an empty text is NULL."""

    name, title = "oracle", "Oracle"
    max_name_bytes, max_name_characters = 128, 0
    max_table_parts = 2
    forbidden_in_names = f'"{_LINE_ENDS}'
    allows_lines = False
    has_bools = False
    double_cast = ("TO_BINARY_DOUBLE(", ")")
    notes = (
        _NOT_RUN,
        "An empty text is missing.  Bools are 1 and 0.  In SQL*Plus, SET DEFINE OFF first.",
    )

    def convert_typed_cell(self, cell: Sql) -> Sql:
        """Convert a number to BINARY_DOUBLE, NULL if it is NaN."""
        number = make_call("TO_BINARY_DOUBLE", cell)
        return make_call("NULLIF", number, exp.var("BINARY_DOUBLE_NAN"))


class MySQL(ExponentDoubles):
    """MySQL and MariaDB: no NaN; text is compared by bytes, whatever its collation."""

    name, title = "mysql", "MySQL"
    forms = ("readable", "case")
    max_name_characters = 64
    max_table_parts = 2
    folds_case = True
    notes = (
        "For MySQL 8.0.17 and MariaDB 10.2, or newer; tested on MariaDB 10.11.",
        "Text is compared by its bytes in UTF-8, whatever its collation and character set.",
        "COERCIBILITY below 5 means text or bytes; a date counts as a number.",
    )

    def explain_bad_name(self, name: str) -> str:
        """Return why a name is not allowed: names are of UTF-8 with up to 3 bytes."""
        if name.endswith(" "):
            return "ends with a blank"
        wrong = [c for c in name if ord(c) > _MAX_THREE_BYTES]
        return f"contains {wrong[0]!r}" if wrong else ""

    def make_text(self, content: str) -> Sql:
        """Build a text: by its bytes, and as a comment, if settings change how it is read.

        These are ``sql_mode`` for backslashes, and the character set of the connection.
        """
        encode_utf8(content)
        if content.isascii() and content.isprintable() and "\\" not in content:
            return exp.Literal.string(content)
        made = exp.Introducer(
            this=exp.var("_utf8mb4"), expression=exp.HexString(this=content.encode().hex())
        )
        if content.isprintable() and not {"*", "/"} & {*content}:
            made.comments = [content]
        return made

    def adapt_statement(self, made: Sql) -> None:
        """Compute each step once, by a LIMIT, and keep NOT from binding to what follows it."""
        for step in made.find_all(exp.CTE):
            step.set("materialized", None)
            step.this.set("limit", exp.Limit(expression=as_sql(_ALL_ROWS)))
        for test in made.find_all(exp.Not):  # sql_mode=HIGH_NOT_PRECEDENCE
            test.set("this", exp.Paren(this=test.this))

    def find_text(self, cell: Sql) -> Sql:
        """Test for text and bytes, which a conversion would make 0."""
        return combine(exp.LT, make_call("COERCIBILITY", cell.copy()), 5)

    def replace_nan(self, value: Sql) -> Sql:
        """Return the value unchanged: there is no NaN."""
        return value

    def clean_text(self, cell: Sql) -> Sql:
        """Compare by bytes: other collations ignore case, or blanks at the end."""
        utf8 = exp.DataType(this=exp.DType.CHARACTER_SET, kind=exp.var("utf8mb4"))
        return make_cast(exp.Cast(this=cell, to=utf8), "BINARY")


class ClickHouse(ExponentDoubles):
    """ClickHouse: NaN does not equal itself."""

    name, title = "clickhouse", "ClickHouse"
    rejects_text = True
    max_name_characters = 0
    max_table_parts = 2
    notes = ("Tested in ClickHouse 26.9.",)

    def convert_typed_cell(self, cell: Sql) -> Sql:
        """Convert a number to a double by a sum, which is an error for text."""
        return self.replace_nan(add_zero(cell))

    def replace_nan(self, value: Sql) -> Sql:
        """Replace NaN by NULL."""
        return make_case([(make_call("isNaN", value.copy()), exp.Null())], value)


WAREHOUSES: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        *(Snowflake(), BigQuery(), Databricks(), SQLServer(), Oracle(), MySQL(), ClickHouse()),
    )
}
