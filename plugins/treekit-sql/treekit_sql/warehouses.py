"""Dialects that are written by sqlglot, and not run by `treekit verify`.

They have the readable form only; see `treekit_sql.readable`.
"""

from __future__ import annotations

from sqlglot import exp

from treekit.errors import ExportError
from treekit.export.literals import encode_utf8
from treekit_sql.dialects import Dialect, make_exponent_literal
from treekit_sql.syntax import Sql, as_sql, make_call, make_case

_NOT_RUN = "This query was parsed by sqlglot, not run: compare some predictions with the model's."


class Warehouse(Dialect):
    """Base class; the defaults are those of Snowflake."""

    executed = False
    max_columns = max_result_columns = 1000
    max_name_bytes = 255
    reserved_columns = frozenset()
    notes = (_NOT_RUN,)
    double_cast = ("CAST(", " AS DOUBLE)")
    has_bools = True

    def make_text(self, content: str) -> Sql:
        """Build a string literal; refuse a NUL."""
        encode_utf8(content)
        if "\0" in content:
            raise ExportError(f"{content[:80]!r} contains a NUL, which {self.title} rejects")
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
    max_name_bytes = 300
    folds_case = True
    forbidden_in_names = '!"$()*,./;?@[\\]^`{}~'

    def replace_nan(self, value: Sql) -> Sql:
        """Replace NaN by NULL."""
        return make_case([(make_call("IS_NAN", value.copy()), exp.Null())], value)


class Databricks(ExponentDoubles):
    """Databricks: NaN equals itself."""

    name, title = "databricks", "Databricks"
    folds_case = True
    notes = (_NOT_RUN, "Delta tables need column mapping for names with blanks or brackets.")


class SQLServer(ExponentDoubles):
    """SQL Server: no NaN and no bools; blanks at the end of text are not compared."""

    name, title = "tsql", "SQL Server"
    max_name_bytes = 128
    folds_case = True
    compares_bytes = False
    has_bools = False
    notes = (_NOT_RUN, "Blanks at the end of text are not compared.  Bools are 1 and 0.")

    def replace_nan(self, value: Sql) -> Sql:
        """Return the value unchanged: there is no NaN."""
        return value

    def clean_text(self, cell: Sql) -> Sql:
        """Compare by code points instead of the collation of the column."""
        return exp.Collate(this=cell, expression=exp.var("Latin1_General_100_BIN2"))


class Oracle(Warehouse):
    """Oracle Database: an empty text is NULL."""

    name, title = "oracle", "Oracle"
    max_name_bytes = 128
    max_table_parts = 2
    forbidden_in_names = '"'
    has_bools = False
    double_cast = ("TO_BINARY_DOUBLE(", ")")
    notes = (_NOT_RUN, "An empty text is missing.  Bools are 1 and 0.")

    def replace_nan(self, value: Sql) -> Sql:
        """Replace NaN by NULL; other numbers become BINARY_DOUBLE."""
        number = make_call("TO_BINARY_DOUBLE", value)
        return make_call("NULLIF", number, exp.var("BINARY_DOUBLE_NAN"))


class MySQL(ExponentDoubles):
    """MySQL and MariaDB: no NaN; text is compared without case unless it is told otherwise."""

    name, title = "mysql", "MySQL"
    max_name_bytes = 64
    max_table_parts = 2
    folds_case = True
    compares_bytes = False
    notes = (_NOT_RUN, "Columns of text are compared as utf8mb4; others need CONVERT.")

    def replace_nan(self, value: Sql) -> Sql:
        """Return the value unchanged: there is no NaN."""
        return value

    def clean_text(self, cell: Sql) -> Sql:
        """Compare by bytes instead of the collation of the column."""
        return exp.Collate(this=cell, expression=exp.var("utf8mb4_bin"))


class ClickHouse(ExponentDoubles):
    """ClickHouse: NaN does not equal itself."""

    name, title = "clickhouse", "ClickHouse"
    max_name_bytes = 0
    max_table_parts = 2

    def replace_nan(self, value: Sql) -> Sql:
        """Replace NaN by NULL."""
        return make_case([(make_call("isNaN", value.copy()), exp.Null())], value)


WAREHOUSES: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        *(Snowflake(), BigQuery(), Databricks(), SQLServer(), Oracle(), MySQL(), ClickHouse()),
    )
}
