"""Execution of SQL artifacts: the rows fill a table, and the query reads it."""

from __future__ import annotations

import importlib.util
import itertools
import math
import operator
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import numpy as np
import numpy.typing as npt
from sqlglot import exp

from treekit.data.schema import Column, Label, Output, Schema
from treekit.data.text_format import is_number
from treekit.errors import VerificationError
from treekit.verify.answers import (
    INCONSISTENT,
    REFUSED,
    Answers,
    concatenate_answers,
    encode_labels,
    make_refusals,
)
from treekit.verify.probe_values import find_levels, make_unseen_text
from treekit.verify.runtime import Job, OutOfTimeError, Runner, Runtime

# ---------------------------------------------------------------- SQL engines
# SQLite, DuckDB, PostgreSQL and MySQL, each with a temporary table for the duration of a job.

POSTGRES = "TREEKIT_POSTGRES"
"""Environment variable with the connection string of a PostgreSQL server, in psycopg's format."""

MYSQL = "TREEKIT_MYSQL"
"""Environment variable with the URL of a server of MySQL or MariaDB:
``mysql://user:password@host:3306/database?unix_socket=/path``."""

Place = str | Sequence[str]
"""Name of a table, or its catalog, schema and name."""

SqlColumn = tuple[str, str, Sequence[Any]]
"""Name, type (REAL, TEXT or BIGINT) and cells."""


def quote_name(name: str, dialect: str) -> str:
    """Quote a name for a query of the engine."""
    return exp.to_identifier(name, quoted=True).sql(dialect=dialect)


def quote_table(place: Sequence[str], dialect: str) -> str:
    """Quote the catalog, the schema and the name of a table."""
    return ".".join(quote_name(name, dialect) for name in place)


class Engine:
    """A connection whose data is discarded when it is closed.

    Attributes
    ----------
    dialect : str
        Dialect, as in the exporter's setting and in sqlglot.
    has_nan, has_infinity : bool
        Whether a column of numbers can contain NaN as well as NULL, and infinities.
    types : dict of str to str
        Types of the dialect.
    connection : Any
    error : type
        Base class of the errors of the connection.
    """

    dialect: str
    has_nan = has_infinity = True
    types: Mapping[str, str]
    connection: Any
    error: type[Exception]

    def create_table(
        self, table: str | Sequence[str], columns: Sequence[SqlColumn]
    ) -> Sequence[int]:
        """Create a table of cells, replacing the one of that name.

        Return the numbers of the rows in the order in which the table is read;
        nothing if that is the given order.
        """
        raise NotImplementedError

    def run_query(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Return all rows of a query, which is stopped at the deadline.

        Raises
        ------
        VerificationError
            If it fails.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection and discard its data."""
        self.connection.close()

    def define_table(self, table: Sequence[str], columns: Sequence[SqlColumn]) -> str:
        """Return the quoted name of a table, and its columns with their types."""
        definitions = [
            f"{quote_name(name, self.dialect)} {self.types[kind]}" for name, kind, _ in columns
        ]
        return f"{quote_table(table, self.dialect)} ({', '.join(definitions)})"


class SQLiteEngine(Engine):
    """An in-memory SQLite database."""

    dialect, has_nan = "sqlite", False
    types: Mapping[str, str] = {"REAL": "REAL", "TEXT": "TEXT", "BIGINT": "INTEGER"}

    def __init__(self) -> None:
        import sqlite3

        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.error = sqlite3.Error

    def create_table(
        self, table: str | Sequence[str], columns: Sequence[SqlColumn]
    ) -> Sequence[int]:
        """Create the table, in an attached database if its schema is another one."""
        table = [table] if isinstance(table, str) else table
        name = quote_table(table, self.dialect)
        run = self.connection.execute
        for schema in table[:-1]:
            if schema.lower() not in {row[1].lower() for row in run("PRAGMA database_list")}:
                run(f"ATTACH ':memory:' AS {quote_name(schema, self.dialect)}")
        run(f"DROP TABLE IF EXISTS {name}")
        run(f"CREATE TABLE {self.define_table(table, columns)}")
        run("BEGIN")
        self.connection.executemany(
            f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})",  # noqa: S608 - quoted
            zip(*(cells for _, _, cells in columns), strict=True),
        )
        run("COMMIT")
        return ()

    def run_query(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Run the query; a progress handler stops it at the deadline."""
        self.connection.set_progress_handler(lambda: time.monotonic() > deadline, 100_000)
        try:
            rows: list[tuple[Any, ...]] = self.connection.execute(query).fetchall()
        except (self.error, ValueError) as error:
            raise _make_query_error(error, deadline) from error
        finally:
            self.connection.set_progress_handler(None, 0)
        return rows


class DuckDBEngine(Engine):
    """An in-memory DuckDB database."""

    dialect = "duckdb"
    types: Mapping[str, str] = {"REAL": "DOUBLE", "TEXT": "TEXT", "BIGINT": "BIGINT"}

    def __init__(self) -> None:
        import duckdb

        self.connection = duckdb.connect(":memory:")
        self.error = duckdb.Error

    def create_table(
        self, table: str | Sequence[str], columns: Sequence[SqlColumn]
    ) -> Sequence[int]:
        """Create the table from lists, one a column."""
        table = [table] if isinstance(table, str) else table
        if len(table) > 2:
            catalog = quote_name(table[0], self.dialect)
            self.connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {catalog}")
        if len(table) > 1:
            schema = quote_table(table[:-1], self.dialect)
            self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        self.connection.execute(f"CREATE OR REPLACE TABLE {self.define_table(table, columns)}")
        lists = ", ".join(f"UNNEST(CAST(? AS {self.types[kind]}[]))" for _, kind, _ in columns)
        self.connection.execute(
            f"INSERT INTO {quote_table(table, self.dialect)} SELECT {lists}",
            [list(cells) for _, _, cells in columns],
        )
        return ()

    def run_query(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Run the query; a timer interrupts it at the deadline."""
        left = min(max(deadline - time.monotonic(), 0.01), threading.TIMEOUT_MAX)
        timer = threading.Timer(left, self.connection.interrupt)
        timer.start()
        try:
            return list(self.connection.execute(query).fetchall())
        except self.error as error:
            raise _make_query_error(error, deadline) from error
        finally:
            timer.cancel()


class PostgresEngine(Engine):
    """A transaction on the server given by `POSTGRES`, rolled back at the end."""

    dialect = "postgres"
    types: Mapping[str, str] = {"REAL": "DOUBLE PRECISION", "TEXT": "TEXT", "BIGINT": "BIGINT"}

    def __init__(self) -> None:
        import psycopg

        self.error = psycopg.Error
        self.made: tuple[str, ...] = ()
        try:
            self.connection = psycopg.connect(os.environ.get(POSTGRES, ""))
        except psycopg.Error as error:
            raise VerificationError(
                f"cannot connect to PostgreSQL by {POSTGRES}: {error}"
            ) from error
        # JIT compilation takes minutes for queries of a thousand columns (measured).
        self.connection.execute("SET LOCAL jit = off")
        self.connection.execute("SAVEPOINT filled")

    def create_table(
        self, table: str | Sequence[str], columns: Sequence[SqlColumn]
    ) -> Sequence[int]:
        """Create a table from arrays, one a column: temporary, or in its schema until the end."""
        table = [table] if isinstance(table, str) else table
        run = self.connection.execute
        if len(table) == 1:
            run(f"DROP TABLE IF EXISTS pg_temp.{quote_name(table[0], self.dialect)}".encode())
            run(f"CREATE TEMPORARY TABLE {self.define_table(table, columns)}".encode())
            name = f"pg_temp.{quote_name(table[0], self.dialect)}"
        else:
            name = quote_table(table, self.dialect)
            self._make_schema(table, name)
            run(f"CREATE TABLE {self.define_table(table, columns)}".encode())
        arrays = ", ".join(f"%s::{self.types[kind]}[]" for _, kind, _ in columns)
        # Rows are stored wherever a page has room, and read page by page.
        places = run(
            f"INSERT INTO {name.replace('%', '%%')} "  # noqa: S608 - quoted by sqlglot
            f"SELECT * FROM UNNEST({arrays}) RETURNING CAST(ctid AS TEXT)".encode(),
            [list(cells) for _, _, cells in columns],
        ).fetchall()
        positions = [tuple(map(int, place[1:-1].split(","))) for (place,) in places]
        run(b"SAVEPOINT filled")
        return sorted(range(len(positions)), key=positions.__getitem__)

    def _make_schema(self, table: Sequence[str], name: str) -> None:
        """Make the schema of a table that does not exist; a table of the server is never touched.

        Raises
        ------
        VerificationError
            If the server has such a table.
        """
        run = self.connection.execute
        exists = run("SELECT to_regclass(%s)", [name]).fetchone()[0] is not None
        if exists and tuple(table) != self.made:
            raise VerificationError(
                f"the server of {POSTGRES} has a table {name}: verify on a server without it"
            )
        if exists:
            run(f"DROP TABLE {name}".encode())
        run(f"CREATE SCHEMA IF NOT EXISTS {quote_name(table[-2], self.dialect)}".encode())
        self.made = tuple(table)

    def run_query(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Run the query; the server stops it at the deadline."""
        left = 0 if math.isinf(deadline) else max(int((deadline - time.monotonic()) * 1000), 10)
        run = self.connection.execute
        try:
            run(f"SET LOCAL statement_timeout = {left}".encode())
            return list(run(query.encode()).fetchall())
        except self.error as error:
            run(b"ROLLBACK TO SAVEPOINT filled")
            raise _make_query_error(error, deadline) from error

    def close(self) -> None:
        """Roll back and close the connection."""
        with suppress(self.error):
            self.connection.rollback()
        super().close()


class MySQLEngine(Engine):
    """A connection to the server given by `MYSQL`, with temporary tables.

    An infinity, which its columns cannot hold, is the largest double.
    """

    dialect, has_nan, has_infinity = "mysql", False, False
    types: Mapping[str, str] = {
        "REAL": "DOUBLE",
        "TEXT": "LONGTEXT CHARACTER SET utf8mb4",
        "BIGINT": "BIGINT",
    }

    def __init__(self) -> None:
        import pymysql

        self.error = pymysql.Error
        url = urlsplit(os.environ.get(MYSQL, ""))
        given = {
            "user": unquote(url.username or ""),
            "password": unquote(url.password or ""),
            "host": url.hostname,
            "port": url.port,
            "database": unquote(url.path.lstrip("/")),
            "unix_socket": dict(parse_qsl(url.query)).get("unix_socket"),
        }
        try:
            self.connection = pymysql.connect(
                charset="utf8mb4", **{name: value for name, value in given.items() if value}
            )
        except (pymysql.Error, RuntimeError) as error:
            raise VerificationError(f"cannot connect to MySQL by {MYSQL}: {error}") from error

    def _run(self, query: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def create_table(
        self, table: str | Sequence[str], columns: Sequence[SqlColumn]
    ) -> Sequence[int]:
        """Create a temporary table, which hides the table of that name."""
        table = [table] if isinstance(table, str) else table
        name = quote_table(table, self.dialect)
        self._run(f"DROP TEMPORARY TABLE IF EXISTS {name}")
        self._run(f"CREATE TEMPORARY TABLE {self.define_table(table, columns)}")
        marks = ", ".join(["%s"] * len(columns))
        with self.connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {name.replace('%', '%%')} VALUES ({marks})",  # noqa: S608 - quoted
                list(zip(*(cells for _, _, cells in columns), strict=True)),
            )
        return ()

    def run_query(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Run the query; the server stops it at the deadline."""
        left = 0.0 if math.isinf(deadline) else max(deadline - time.monotonic(), 0.01)
        maria = "MariaDB" in self.connection.get_server_info()
        limit = (
            f"max_statement_time = {left:.3f}"
            if maria
            else (f"max_execution_time = {left * 1000:.0f}")
        )
        try:
            self._run(f"SET SESSION {limit}")
            return self._run(query)
        except self.error as error:
            raise _make_query_error(error, deadline) from error


def _make_query_error(error: Exception, deadline: float) -> VerificationError:
    if time.monotonic() >= deadline:
        return OutOfTimeError("the query did not end within the remaining time")
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return VerificationError(lines[0])


# ---------------------------------------------------------------- SQL artifacts

_METADATA_MARK = "-- treekit-sql "
_TITLES = {"sqlite": "SQLite", "duckdb": "DuckDB", "postgres": "PostgreSQL", "mysql": "MySQL"}
_METADATA_LINES = 10
_SINGLE_ROWS = 3


class _Metadata(msgspec.Struct):
    """The metadata line of a file."""

    dialect: str
    form: str
    table: str
    keys: list[str]
    rule: bool = False
    inside: list[str] = []
    text: str = "yes"

    @property
    def place(self) -> tuple[str, ...]:
        """Catalog, schema and name of the table."""
        return (*self.inside, self.table)


def _read_metadata(path: Path) -> _Metadata | None:
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in itertools.islice(stream, _METADATA_LINES):
            if line.startswith(_METADATA_MARK):
                with suppress(msgspec.MsgspecError, RecursionError):
                    return msgspec.json.decode(line.removeprefix(_METADATA_MARK), type=_Metadata)
                break
    return None


class _QueriedTable:
    """The query of an artifact, and the table that it reads."""

    def __init__(self, engine: Engine, job: Job) -> None:
        metadata = _read_metadata(job.path)
        if metadata is None:
            raise VerificationError(_NO_METADATA)
        self.engine, self.job, self.metadata, self.schema = engine, job, metadata, job.schema
        self.query = job.path.read_bytes().decode()  # as bytes: names may contain any line end
        if metadata.form == "expression":
            table = quote_table(metadata.place, engine.dialect)
            self.query = f"SELECT\n{self.query}\nFROM {table}"
        self.n_labels = sum(bool(output.classes) for output in self.schema.outputs)
        alone = metadata.form in ("expression", "labels") and self.n_labels
        self.n_numbers = 0 if alone else self.schema.n_values

    def check_query(self) -> None:
        """Check that the query runs on an empty table: a failure here is not a refused row."""
        try:
            self._run_on_rows(np.zeros((0, self.schema.n_features)))
        except OutOfTimeError:
            raise
        except VerificationError as error:
            raise VerificationError(f"{self.job.path.name!r} cannot be run: {error}") from error

    def predict_rows(self, rows: npt.NDArray[np.float64]) -> Answers:
        """Predict rows in order; find a row that makes the query fail by halving the batch."""
        try:
            return self._decode_rows(self._run_on_rows(rows), len(rows))
        except OutOfTimeError:
            raise
        except VerificationError:
            if not len(rows):
                raise
            if len(rows) == 1:
                return make_refusals(1, self.schema, self.n_numbers)
        half = len(rows) // 2
        return concatenate_answers([self.predict_rows(rows[:half]), self.predict_rows(rows[half:])])

    def _run_on_rows(self, rows: npt.NDArray[np.float64]) -> list[tuple[Any, ...]]:
        keys = [key for key in self.metadata.keys if key not in self.schema.names]
        columns: list[SqlColumn] = [
            (column.name, *self._make_cells(column, rows[:, f]))
            for f, column in enumerate(self.schema.columns)
        ]
        columns += [(key, "BIGINT", range(len(rows))) for key in keys]
        try:
            order = self.engine.create_table(self.metadata.place, columns)
        except self.engine.error as error:
            raise _make_query_error(error, self.job.deadline) from error
        found = self.engine.run_query(self.query, self.job.deadline)
        if keys:
            return sorted(found, key=operator.itemgetter(self.metadata.keys.index(keys[0])))
        if len(order) != len(found):
            return found
        return [found[place] for place in np.argsort(order)]

    def _make_cells(
        self, column: Column, codes: npt.NDArray[np.float64]
    ) -> tuple[str, Sequence[Any]]:
        """Return the type and cells of a column; without text in the readable form."""
        text = self.metadata.form != "readable" and self.metadata.text != "no"
        if not self.engine.has_infinity:
            largest = np.finfo(np.float64).max
            codes = np.clip(codes, -largest, largest)  # keeps NaN
        return _make_cells(column, codes, self.schema, self.engine.has_nan, text=text)

    def _decode_rows(self, found: list[tuple[Any, ...]], n: int) -> Answers:
        n_keys = len(self.metadata.keys)
        width = n_keys + self.n_labels + self.n_numbers
        if len(found) != n or any(len(row) != width + self.metadata.rule for row in found[:1]):
            raise VerificationError(
                f"{self.job.path.name!r} differs from the model in columns or classes"
            )
        answers = [row[n_keys:width] for row in found]
        is_null = np.array([[value is None for value in row] for row in answers], dtype=np.bool_)
        is_null = is_null.reshape(n, width - n_keys)
        label = np.zeros((n, len(self.schema.outputs)), dtype=np.int64)
        for k, output in enumerate(self.schema.outputs[: self.n_labels]):
            label[:, k] = encode_labels(output, [_convert_label(output, row[k]) for row in answers])
        label[is_null.any(axis=1)] = INCONSISTENT
        label[is_null.all(axis=1)] = REFUSED
        numbers = [[_convert_number(x) for x in row[self.n_labels :]] for row in answers]
        return Answers(label, np.array(numbers, dtype=np.float64).reshape(n, self.n_numbers))


def _convert_label(output: Output, value: Any) -> Label:
    """Convert a value to a label of the schema; SQLite's truth values are numbers."""
    if isinstance(output.classes[0], bool) and value in (0, 1):
        return bool(value)
    label: Label = value if value is not None else ""
    return label


def _convert_number(value: Any) -> float:
    if value is None:
        return math.nan
    if not isinstance(value, float):
        raise VerificationError(f"expected a double from the query, got {value!r}")
    return value


def _make_cells(
    column: Column, codes: npt.NDArray[np.float64], schema: Schema, has_nan: bool, *, text: bool
) -> tuple[str, Sequence[Any]]:
    """Return the type and cells of a column; missing cells alternate between all notations."""
    if column.kind == "numeric":
        marks = [mark for mark in schema.number_marks if not is_number(mark)]
        # SQLite's columns hold anything.
        missing_cells: list[Any] = [None, math.nan] if has_nan else [None, *(marks if text else ())]
        values = codes.tolist()
    else:
        marks = [*schema.missing_marks, *(f" {mark}\t" for mark in schema.missing_marks)]
        marks = [mark for mark in marks if mark not in column.levels]
        missing_cells = [None, *(marks if text else ())]
        texts = [*column.levels, make_unseen_text(column)]
        values = [texts[place] for place in find_levels(column, codes).tolist()]
    for turn, row in enumerate(np.flatnonzero(np.isnan(codes)).tolist()):
        values[row] = missing_cells[turn % len(missing_cells)]
    return ("REAL" if column.kind == "numeric" else "TEXT"), values


# ---------------------------------------------------------------- runtimes

_NO_METADATA = "the file has no line with its dialect; export it with treekit"


def _make_runtime(name: str, engine_class: type[Engine], *modules: str) -> Runtime:
    dialect = engine_class.dialect

    def run_rows(job: Job, rows: npt.NDArray[np.float64]) -> Iterator[tuple[str, Answers]]:
        with closing(engine_class()) as engine:
            table = _QueriedTable(engine, job)
            table.check_query()
            yield "a table", table.predict_rows(rows)
            alone = [
                table.predict_rows(rows[i : i + 1]) for i in range(min(len(rows), _SINGLE_ROWS))
            ]
            if alone:
                yield "single rows", concatenate_answers(alone)

    def get_version() -> str:
        try:
            with closing(engine_class()) as engine:
                return str(engine.run_query(_VERSION_QUERIES[dialect], math.inf)[0][0])
        except VerificationError:  # a server that does not answer
            return "unknown"

    def explain_unavailable(path: Path) -> str:
        metadata = _read_metadata(path)
        if metadata is None:
            return _NO_METADATA
        if metadata.dialect != dialect:
            return f"the file is written for {_TITLES.get(metadata.dialect, metadata.dialect)}"
        for module in modules:
            if importlib.util.find_spec(module) is None:
                return f"{module} is not installed"
        if dialect in _SERVERS and _SERVERS[dialect] not in os.environ:
            return f"the environment variable {_SERVERS[dialect]} is not set"
        return ""

    return Runtime(name, run_rows, get_version, explain_unavailable)


_SERVERS = {"postgres": POSTGRES, "mysql": MYSQL}
_VERSION_QUERIES = {
    "sqlite": "SELECT sqlite_version()",
    "duckdb": "SELECT ltrim(version(), 'v')",
    "postgres": "SHOW server_version",
    "mysql": "SELECT version()",
}

SQL_RUNNER = Runner(
    "sql",
    ".sql",
    (
        _make_runtime("sqlite3", SQLiteEngine),
        _make_runtime("duckdb", DuckDBEngine, "duckdb"),
        _make_runtime("postgres", PostgresEngine, "psycopg"),
        _make_runtime("mysql", MySQLEngine, "pymysql"),
    ),
)
