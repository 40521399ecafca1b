"""DuckDB's ways."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from sqlglot import exp

from treekit.export.sql_dialect import Dialect, array
from treekit.export.sql_syntax import Sql, call, cast

__all__ = ["DuckDB"]


class DuckDB(Dialect):
    """See `Dialect`."""

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
        """A double: without an exponent it would be a DECIMAL."""
        written = repr(float(number))
        return exp.Literal.number(written if "e" in written else f"{written}e0")

    bound = number

    def refuse(self, message: str, witness: Sql) -> Sql:
        """An expression that stops the query."""
        del witness
        return cast(call("ERROR", self.text(message)), "BIGINT")

    def rows(self, **arrays: npt.NDArray[Any] | list[str | None]) -> exp.Select:
        """A table of arrays, from lists in text."""
        made = {
            name: call("UNNEST", array(values, "[", "]", self.kind_of(values)))
            for name, values in arrays.items()
        }
        return exp.Select(expressions=[exp.alias_(value, name) for name, value in made.items()])
