"""SQLite, DuckDB and PostgreSQL, each with a table of its own for the length of a job."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from treekit.errors import VerificationError
from treekit.verify.runtime import OutOfTimeError

__all__ = ["POSTGRES", "DuckDBEngine", "Engine", "PostgresEngine", "SQLiteEngine"]

POSTGRES = "TREEKIT_POSTGRES"
"""The environment variable that says how to reach a PostgreSQL server, as psycopg takes it."""

Column = tuple[str, str, Sequence[Any]]
"""Name, type (REAL, TEXT or BIGINT) and cells."""


class Engine(Protocol):
    """A connection that is thrown away with all that it holds.

    Attributes
    ----------
    dialect : str
        As the setting of the exporter; sqlglot's, too.
    has_nan : bool
        Whether a column of numbers can hold NaN besides NULL.
    """

    dialect: str
    has_nan: bool

    def fill(self, table: str, columns: Sequence[Column]) -> Sequence[int]:
        """Make a table of cells, in place of the one of that name.

        Which row comes first, second, ... when the table is read; nothing if
        they come as they were given.
        """

    def ask(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Every row of a query's answer; `VerificationError` if it has none."""

    def close(self) -> None:
        """Forget all of it."""


def quoted(name: str, dialect: str) -> str:
    """A name as the engine wants it in a query."""
    from sqlglot import exp

    return exp.to_identifier(name, quoted=True).sql(dialect=dialect)


def _definition(table: str, columns: Sequence[Column], dialect: str, types: dict[str, str]) -> str:
    own = [f"{quoted(name, dialect)} {types[kind]}" for name, kind, _ in columns]
    return f"{quoted(table, dialect)} ({', '.join(own)})"


class SQLiteEngine:
    """A database in memory."""

    dialect, has_nan = "sqlite", False

    def __init__(self) -> None:
        import sqlite3

        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.error: type[Exception] = sqlite3.Error

    def fill(self, table: str, columns: Sequence[Column]) -> Sequence[int]:
        """Make the table."""
        name = quoted(table, self.dialect)
        types = {"REAL": "REAL", "TEXT": "TEXT", "BIGINT": "INTEGER"}
        self.connection.execute(f"DROP TABLE IF EXISTS {name}")
        self.connection.execute(f"CREATE TABLE {_definition(table, columns, self.dialect, types)}")
        marks = ", ".join("?" * len(columns))
        self.connection.execute("BEGIN")
        self.connection.executemany(
            f"INSERT INTO {name} VALUES ({marks})",  # noqa: S608 - quoted by sqlglot
            zip(*(cells for _, _, cells in columns), strict=True),
        )
        self.connection.execute("COMMIT")
        return ()

    def ask(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Run the query, looking at the clock now and then."""
        over = not math.isinf(deadline)
        self.connection.set_progress_handler(
            (lambda: time.monotonic() > deadline) if over else None, 100_000
        )
        try:
            return self.connection.execute(query).fetchall()
        except (self.error, ValueError) as error:
            raise _failed(error, deadline) from error
        finally:
            self.connection.set_progress_handler(None, 0)

    def close(self) -> None:
        """Close it."""
        self.connection.close()


class DuckDBEngine:
    """A database in memory."""

    dialect, has_nan = "duckdb", True

    def __init__(self) -> None:
        import duckdb

        self.connection = duckdb.connect(":memory:")
        self.error: type[Exception] = duckdb.Error

    def fill(self, table: str, columns: Sequence[Column]) -> Sequence[int]:
        """Make the table from lists, one a column."""
        types = {"REAL": "DOUBLE", "TEXT": "TEXT", "BIGINT": "BIGINT"}
        definition = _definition(table, columns, self.dialect, types)
        self.connection.execute(f"CREATE OR REPLACE TABLE {definition}")
        lists = ", ".join(f"UNNEST(CAST(? AS {types[kind]}[]))" for _, kind, _ in columns)
        name = quoted(table, self.dialect)
        self.connection.execute(
            f"INSERT INTO {name} SELECT {lists}",
            [list(cells) for _, _, cells in columns],
        )
        return ()

    def ask(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Run the query, and stop it when the time is over."""
        timer: threading.Timer | None = None
        if not math.isinf(deadline):
            timer = threading.Timer(
                max(deadline - time.monotonic(), 0.01), self.connection.interrupt
            )
            timer.start()
        try:
            return list(self.connection.execute(query).fetchall())
        except self.error as error:
            raise _failed(error, deadline) from error
        finally:
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """Close it."""
        self.connection.close()


class PostgresEngine:
    """A transaction that is rolled back, on the server that `POSTGRES` names."""

    dialect, has_nan = "postgres", True

    def __init__(self) -> None:
        import psycopg

        self.error: type[Exception] = psycopg.Error
        try:
            self.connection = psycopg.connect(os.environ.get(POSTGRES, ""))
        except psycopg.Error as error:
            raise VerificationError(f"PostgreSQL cannot be reached: {error}") from error
        # Its compiler takes minutes for queries of a thousand columns (measured).
        self.connection.execute("SET LOCAL jit = off")
        self.connection.execute("SAVEPOINT filled")

    def fill(self, table: str, columns: Sequence[Column]) -> Sequence[int]:
        """Make a temporary table from arrays, one a column."""
        types = {"REAL": "DOUBLE PRECISION", "TEXT": "TEXT", "BIGINT": "BIGINT"}
        name = quoted(table, self.dialect)
        definition = _definition(table, columns, self.dialect, types)
        run = self.connection.execute
        run(f"DROP TABLE IF EXISTS pg_temp.{name}".encode())
        run(f"CREATE TEMPORARY TABLE {definition}".encode())
        arrays = ", ".join(f"%s::{types[kind]}[]" for _, kind, _ in columns)
        # Rows are put wherever a page has room, and read page by page.
        places = run(
            f"INSERT INTO pg_temp.{name.replace('%', '%%')} "  # noqa: S608 - quoted by sqlglot
            f"SELECT * FROM UNNEST({arrays}) RETURNING CAST(ctid AS TEXT)".encode(),
            [list(cells) for _, _, cells in columns],
        ).fetchall()
        told = [tuple(map(int, place[1:-1].split(","))) for (place,) in places]
        run(b"SAVEPOINT filled")
        return sorted(range(len(told)), key=told.__getitem__)

    def ask(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Run the query, which the server stops when the time is over."""
        left = 0 if math.isinf(deadline) else max(int((deadline - time.monotonic()) * 1000), 10)
        run = self.connection.execute
        try:
            run(f"SET LOCAL statement_timeout = {left}".encode())
            return run(query.encode()).fetchall()
        except self.error as error:
            run(b"ROLLBACK TO SAVEPOINT filled")
            raise _failed(error, deadline) from error

    def close(self) -> None:
        """Undo it."""
        with suppress(self.error):
            self.connection.rollback()
        self.connection.close()


def _failed(error: Exception, deadline: float) -> VerificationError:
    if time.monotonic() >= deadline:
        return OutOfTimeError("the query did not end within the time that was left")
    told = str(error).strip().splitlines() or [type(error).__name__]
    return VerificationError(told[0])
