"""Execution of SQL artifacts: the rows fill a table, and the query reads it."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Label, Output, Schema
from treekit.errors import VerificationError
from treekit.verify.answers import INCONSISTENT, REFUSED, Answers, encode_labels
from treekit.verify.probe_values import make_unseen_text
from treekit.verify.runtime import Job, OutOfTimeError, Run, Runtime

# ---------------------------------------------------------------- SQL engines
# SQLite, DuckDB and PostgreSQL, each with a temporary table for the duration of a job.

POSTGRES = "TREEKIT_POSTGRES"
"""Environment variable with the connection string of a PostgreSQL server, in psycopg's format."""

SqlColumn = tuple[str, str, Sequence[Any]]
"""Name, type (REAL, TEXT or BIGINT) and cells."""


class Engine(Protocol):
    """A connection whose data is discarded when it is closed.

    Attributes
    ----------
    dialect : str
        Dialect, as in the exporter's setting and in sqlglot.
    has_nan : bool
        Whether a column of numbers can contain NaN as well as NULL.
    """

    dialect: str
    has_nan: bool

    def create_table(self, table: str, columns: Sequence[SqlColumn]) -> Sequence[int]:
        """Create a table of cells, replacing the one of that name.

        Return the numbers of the rows in the order in which the table is read;
        nothing if that is the given order.
        """

    def run_query(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Return all rows of a query; `VerificationError` if it fails."""

    def close(self) -> None:
        """Close the connection and discard its data."""


def quote_name(name: str, dialect: str) -> str:
    """Quote a name for a query of the engine."""
    from sqlglot import exp

    return exp.to_identifier(name, quoted=True).sql(dialect=dialect)


def _define_table(
    table: str, columns: Sequence[SqlColumn], dialect: str, types: dict[str, str]
) -> str:
    definitions = [f"{quote_name(name, dialect)} {types[kind]}" for name, kind, _ in columns]
    return f"{quote_name(table, dialect)} ({', '.join(definitions)})"


class SQLiteEngine:
    """An in-memory SQLite database."""

    dialect, has_nan = "sqlite", False

    def __init__(self) -> None:
        import sqlite3

        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.error: type[Exception] = sqlite3.Error

    def create_table(self, table: str, columns: Sequence[SqlColumn]) -> Sequence[int]:
        """Create the table."""
        name = quote_name(table, self.dialect)
        types = {"REAL": "REAL", "TEXT": "TEXT", "BIGINT": "INTEGER"}
        self.connection.execute(f"DROP TABLE IF EXISTS {name}")
        self.connection.execute(
            f"CREATE TABLE {_define_table(table, columns, self.dialect, types)}"
        )
        marks = ", ".join("?" * len(columns))
        self.connection.execute("BEGIN")
        self.connection.executemany(
            f"INSERT INTO {name} VALUES ({marks})",  # noqa: S608 - quoted by sqlglot
            zip(*(cells for _, _, cells in columns), strict=True),
        )
        self.connection.execute("COMMIT")
        return ()

    def run_query(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Run the query; a progress handler stops it at the deadline."""
        over = not math.isinf(deadline)
        self.connection.set_progress_handler(
            (lambda: time.monotonic() > deadline) if over else None, 100_000
        )
        try:
            return self.connection.execute(query).fetchall()
        except (self.error, ValueError) as error:
            raise _make_query_error(error, deadline) from error
        finally:
            self.connection.set_progress_handler(None, 0)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class DuckDBEngine:
    """An in-memory DuckDB database."""

    dialect, has_nan = "duckdb", True

    def __init__(self) -> None:
        import duckdb

        self.connection = duckdb.connect(":memory:")
        self.error: type[Exception] = duckdb.Error

    def create_table(self, table: str, columns: Sequence[SqlColumn]) -> Sequence[int]:
        """Create the table from lists, one a column."""
        types = {"REAL": "DOUBLE", "TEXT": "TEXT", "BIGINT": "BIGINT"}
        definition = _define_table(table, columns, self.dialect, types)
        self.connection.execute(f"CREATE OR REPLACE TABLE {definition}")
        lists = ", ".join(f"UNNEST(CAST(? AS {types[kind]}[]))" for _, kind, _ in columns)
        name = quote_name(table, self.dialect)
        self.connection.execute(
            f"INSERT INTO {name} SELECT {lists}",
            [list(cells) for _, _, cells in columns],
        )
        return ()

    def run_query(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Run the query; a timer interrupts it at the deadline."""
        timer: threading.Timer | None = None
        if not math.isinf(deadline):
            timer = threading.Timer(
                max(deadline - time.monotonic(), 0.01), self.connection.interrupt
            )
            timer.start()
        try:
            return list(self.connection.execute(query).fetchall())
        except self.error as error:
            raise _make_query_error(error, deadline) from error
        finally:
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class PostgresEngine:
    """A transaction on the server given by `POSTGRES`, rolled back at the end."""

    dialect, has_nan = "postgres", True

    def __init__(self) -> None:
        import psycopg

        self.error: type[Exception] = psycopg.Error
        try:
            self.connection = psycopg.connect(os.environ.get(POSTGRES, ""))
        except psycopg.Error as error:
            raise VerificationError(
                f"cannot connect to PostgreSQL by {POSTGRES}: {error}"
            ) from error
        # JIT compilation takes minutes for queries of a thousand columns (measured).
        self.connection.execute("SET LOCAL jit = off")
        self.connection.execute("SAVEPOINT filled")

    def create_table(self, table: str, columns: Sequence[SqlColumn]) -> Sequence[int]:
        """Create a temporary table from arrays, one a column."""
        types = {"REAL": "DOUBLE PRECISION", "TEXT": "TEXT", "BIGINT": "BIGINT"}
        name = quote_name(table, self.dialect)
        definition = _define_table(table, columns, self.dialect, types)
        run = self.connection.execute
        run(f"DROP TABLE IF EXISTS pg_temp.{name}".encode())
        run(f"CREATE TEMPORARY TABLE {definition}".encode())
        arrays = ", ".join(f"%s::{types[kind]}[]" for _, kind, _ in columns)
        # Rows are stored wherever a page has room, and read page by page.
        places = run(
            f"INSERT INTO pg_temp.{name.replace('%', '%%')} "  # noqa: S608 - quoted by sqlglot
            f"SELECT * FROM UNNEST({arrays}) RETURNING CAST(ctid AS TEXT)".encode(),
            [list(cells) for _, _, cells in columns],
        ).fetchall()
        positions = [tuple(map(int, place[1:-1].split(","))) for (place,) in places]
        run(b"SAVEPOINT filled")
        return sorted(range(len(positions)), key=positions.__getitem__)

    def run_query(self, query: str, deadline: float) -> list[tuple[Any, ...]]:
        """Run the query; the server stops it at the deadline."""
        left = 0 if math.isinf(deadline) else max(int((deadline - time.monotonic()) * 1000), 10)
        run = self.connection.execute
        try:
            run(f"SET LOCAL statement_timeout = {left}".encode())
            return run(query.encode()).fetchall()
        except self.error as error:
            run(b"ROLLBACK TO SAVEPOINT filled")
            raise _make_query_error(error, deadline) from error

    def close(self) -> None:
        """Roll back and close the connection."""
        with suppress(self.error):
            self.connection.rollback()
        self.connection.close()


def _make_query_error(error: Exception, deadline: float) -> VerificationError:
    if time.monotonic() >= deadline:
        return OutOfTimeError("the query did not end within the remaining time")
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return VerificationError(lines[0])


# ---------------------------------------------------------------- SQL artifacts

_METADATA_MARK = "-- treekit-sql "
_TITLES = {"sqlite": "SQLite", "duckdb": "DuckDB", "postgres": "PostgreSQL"}
_METADATA_LINES = 10
_SINGLE_ROWS = 3


def _read_metadata(path: Path) -> dict[str, Any]:
    """Read the metadata line of a file: dialect, form, table, keys."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in itertools.islice(stream, _METADATA_LINES):
            if line.startswith(_METADATA_MARK):
                try:
                    metadata = json.loads(line.removeprefix(_METADATA_MARK))
                except ValueError:
                    break
                known = isinstance(metadata, dict) and metadata.get("dialect") in _TITLES
                named = known and isinstance(metadata.get("table"), str)
                return metadata if named and isinstance(metadata.get("keys"), list) else {}
    return {}


def _make_run(make: Callable[[], Engine]) -> Run:
    def run_rows(job: Job, rows: npt.NDArray[np.float64]) -> Iterator[tuple[str, Answers]]:
        metadata = _read_metadata(job.path)
        query = job.path.read_bytes().decode()  # as bytes: names may contain any line end
        with closing(make()) as engine:
            table = _QueriedTable(engine, job, metadata, query)
            table.check_query()
            yield "a table", table.predict_rows(rows)
            alone = [
                table.predict_rows(rows[i : i + 1]) for i in range(min(len(rows), _SINGLE_ROWS))
            ]
            if alone:
                yield "single rows", _concatenate_answers(alone)

    return run_rows


class _QueriedTable:
    """A query, and the table that it reads."""

    def __init__(self, engine: Engine, job: Job, told: dict[str, Any], query: str) -> None:
        self.engine, self.job, self.told = engine, job, told
        self.schema, self.query = job.schema, query
        if told["form"] == "expression":
            table = quote_name(told["table"], engine.dialect)
            self.query = f"SELECT\n{query}\nFROM {table}"
        classes = [bool(output.classes) for output in self.schema.outputs]
        self.n_labels = sum(classes)
        self.n_keys = len(told["keys"])
        self.n_numbers = 0 if told["form"] == "expression" and any(classes) else (
            self.schema.n_values
        )  # fmt: skip

    def check_query(self) -> None:
        """Check that the query runs on an empty table: a failure here is not a refused row."""
        try:
            self._run_on_rows(np.zeros((0, self.schema.n_features)))
        except VerificationError as error:
            raise VerificationError(f"{self.job.path.name!r} cannot be run: {error}") from error

    def predict_rows(self, rows: npt.NDArray[np.float64]) -> Answers:
        """Predict rows in their order; find a row that fails the query by halving."""
        try:
            return self._decode_rows(self._run_on_rows(rows), len(rows))
        except VerificationError as error:
            if type(error) is not VerificationError or not len(rows):
                raise  # out of time
            if len(rows) == 1:
                refused = np.full((1, len(self.schema.outputs)), REFUSED, dtype=np.int64)
                return Answers(refused, np.zeros((1, self.n_numbers)))
        half = len(rows) // 2
        return _concatenate_answers(
            [self.predict_rows(rows[:half]), self.predict_rows(rows[half:])]
        )

    def _run_on_rows(self, rows: npt.NDArray[np.float64]) -> list[tuple[Any, ...]]:
        keys = [key for key in self.told["keys"] if key not in self.schema.names]
        columns = [
            (column.name, *_make_cells(column, rows[:, f], self.schema, self.engine.has_nan))
            for f, column in enumerate(self.schema.columns)
        ]
        numbers = list(range(len(rows)))
        more = [(key, "BIGINT", numbers) for key in keys]
        order = self.engine.create_table(self.told["table"], [*columns, *more])
        found = self.engine.run_query(self.query, self.job.deadline)
        if keys:
            key_column = self.told["keys"].index(keys[0])
            return sorted(found, key=lambda row: row[key_column])
        if len(order) != len(found):
            return found
        return [row for _, row in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]

    def _decode_rows(self, rows_read: list[tuple[Any, ...]], n: int) -> Answers:
        width = self.n_keys + self.n_labels + self.n_numbers
        if len(rows_read) != n or any(len(row) != width for row in rows_read[:1]):
            raise _make_mismatch_error(self.job)
        answers = [row[self.n_keys :] for row in rows_read]
        is_null = np.array([[value is None for value in row] for row in answers], dtype=np.bool_)
        is_null = is_null.reshape(n, width - self.n_keys)
        refused, mixed = is_null.all(axis=1), is_null.any(axis=1)
        label = np.zeros((n, len(self.schema.outputs)), dtype=np.int64)
        for k, output in enumerate(self.schema.outputs[: self.n_labels]):
            label[:, k] = encode_labels(output, [_convert_label(output, row[k]) for row in answers])
        label[mixed] = INCONSISTENT
        label[refused] = REFUSED
        rows = [[_convert_number(x) for x in row[self.n_labels :]] for row in answers]
        return Answers(label, np.array(rows, dtype=np.float64).reshape(n, self.n_numbers))


def _make_mismatch_error(job: Job) -> VerificationError:
    return VerificationError(f"{job.path.name!r} differs from the model in columns or classes")


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
    column: Column, codes: npt.NDArray[np.float64], schema: Schema, has_nan: bool
) -> tuple[str, Sequence[Any]]:
    """Return the type and cells of a column; missing cells alternate between all notations."""
    is_missing = np.isnan(codes)
    if column.kind == "numeric":
        marks = [mark for mark in schema.missing_marks if not _is_number(mark)]
        missing_cells: list[Any] = (
            [None, math.nan] if has_nan else [None, *marks]
        )  # SQLite's columns hold anything
        values = codes.tolist()
    else:
        padded = [f" {mark}\t" for mark in schema.missing_marks]
        texts = [*schema.missing_marks, *padded]
        missing_cells = [None, *(text for text in texts if text not in column.levels)]
        texts = [*column.levels, make_unseen_text(column)]
        with np.errstate(invalid="ignore"):
            known = (codes >= 0) & (codes < len(column.levels)) & (codes == np.floor(codes))
        places = np.where(known, codes, len(column.levels))
        values = [texts[place] for place in places.astype(np.int64).tolist()]
    for turn, row in enumerate(np.flatnonzero(is_missing).tolist()):
        values[row] = missing_cells[turn % len(missing_cells)]
    return ("REAL" if column.kind == "numeric" else "TEXT"), values


def _is_number(mark: str) -> bool:
    try:
        return not math.isnan(float(mark))
    except ValueError:
        return False


def _concatenate_answers(parts: list[Answers]) -> Answers:
    label = np.concatenate([part.label for part in parts])
    return Answers(label, np.concatenate([part.number for part in parts]))


def _make_availability_check(dialect: str, *modules: str) -> Callable[[Path], str]:
    def explain_unavailable(path: Path) -> str:
        dialect_of_file = _read_metadata(path).get("dialect")
        if dialect_of_file is None:
            return "the file has no line with its dialect; export it with treekit"
        if dialect_of_file != dialect:
            return f"the file is written for {_TITLES[dialect_of_file]}"
        for module in modules:
            if importlib.util.find_spec(module) is None:
                return f"{module} is not installed"
        if dialect == "postgres" and POSTGRES not in os.environ:
            return f"the environment variable {POSTGRES} is not set"
        return ""

    return explain_unavailable


def _get_sqlite_version() -> str:
    import sqlite3

    return sqlite3.sqlite_version


def _get_duckdb_version() -> str:
    import duckdb

    return str(duckdb.__version__)


def _get_postgres_version() -> str:
    with closing(PostgresEngine()) as engine:
        return str(engine.run_query("SHOW server_version", math.inf)[0][0])


SQL_RUNTIMES = (
    Runtime(
        "sqlite3",
        _make_run(SQLiteEngine),
        _get_sqlite_version,
        _make_availability_check("sqlite", "sqlglot"),
    ),
    Runtime(
        "duckdb",
        _make_run(DuckDBEngine),
        _get_duckdb_version,
        _make_availability_check("duckdb", "sqlglot", "duckdb"),
    ),
    Runtime(
        "postgres",
        _make_run(PostgresEngine),
        _get_postgres_version,
        _make_availability_check("postgres", "sqlglot", "psycopg"),
    ),
)
