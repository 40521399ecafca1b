"""Running SQL artifacts: the rows go into a table, the query answers them."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Label, Output, Schema
from treekit.errors import VerificationError
from treekit.verify.answers import INCONSISTENT, REFUSED, Answers, label_codes
from treekit.verify.runtime import Job, Run, Runtime
from treekit.verify.sql_engines import (
    POSTGRES,
    DuckDBEngine,
    Engine,
    PostgresEngine,
    SQLiteEngine,
    quoted,
)
from treekit.verify.unseen import unseen_text

__all__ = ["SQL_RUNTIMES"]

_MARK = "-- treekit-sql "
_TITLES = {"sqlite": "SQLite", "duckdb": "DuckDB", "postgres": "PostgreSQL"}
_LINES = 10
_SINGLE_ROWS = 3


def _told(path: Path) -> dict[str, Any]:
    """What the file says of itself: dialect, form, table, keys."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in itertools.islice(stream, _LINES):
            if line.startswith(_MARK):
                try:
                    told = json.loads(line.removeprefix(_MARK))
                except ValueError:
                    break
                known = isinstance(told, dict) and told.get("dialect") in _TITLES
                named = known and isinstance(told.get("table"), str)
                return told if named and isinstance(told.get("keys"), list) else {}
    return {}


def _run(make: Callable[[], Engine]) -> Run:
    def run(job: Job, rows: npt.NDArray[np.float64]) -> Iterator[tuple[str, Answers]]:
        told = _told(job.path)
        query = job.path.read_bytes().decode()  # as it is: names may hold any end of a line
        with closing(make()) as engine:
            table = _Table(engine, job, told, query)
            table.check()
            yield "a table", table.answers(rows)
            alone = [table.answers(rows[i : i + 1]) for i in range(min(len(rows), _SINGLE_ROWS))]
            if alone:
                yield "single rows", _joined(alone)

    return run


class _Table:
    """A query, and the table that it asks."""

    def __init__(self, engine: Engine, job: Job, told: dict[str, Any], query: str) -> None:
        self.engine, self.job, self.told = engine, job, told
        self.schema, self.query = job.schema, query
        if told["form"] == "expression":
            table = quoted(told["table"], engine.dialect)
            self.query = f"SELECT\n{query}\nFROM {table}"
        classes = [bool(output.classes) for output in self.schema.outputs]
        self.n_labels = sum(classes)
        self.n_keys = len(told["keys"])
        self.n_numbers = 0 if told["form"] == "expression" and any(classes) else (
            self.schema.n_values
        )  # fmt: skip

    def check(self) -> None:
        """Whether the query runs without any row: what fails then refuses no rows."""
        try:
            self._ask(np.zeros((0, self.schema.n_features)))
        except VerificationError as error:
            raise VerificationError(f"{self.job.path.name!r} cannot be run: {error}") from error

    def answers(self, rows: npt.NDArray[np.float64]) -> Answers:
        """Answers in the order of the rows; a row that stops the query is found by halving."""
        try:
            return self._read(self._ask(rows), len(rows))
        except VerificationError as error:
            if type(error) is not VerificationError or not len(rows):
                raise  # there is no time left
            if len(rows) == 1:
                refused = np.full((1, len(self.schema.outputs)), REFUSED, dtype=np.int64)
                return Answers(refused, np.zeros((1, self.n_numbers)))
        half = len(rows) // 2
        return _joined([self.answers(rows[:half]), self.answers(rows[half:])])

    def _ask(self, rows: npt.NDArray[np.float64]) -> list[tuple[Any, ...]]:
        keys = [key for key in self.told["keys"] if key not in self.schema.names]
        columns = [
            (column.name, *_cells(column, rows[:, f], self.schema, self.engine.has_nan))
            for f, column in enumerate(self.schema.columns)
        ]
        numbers = list(range(len(rows)))
        more = [(key, "BIGINT", numbers) for key in keys]
        order = self.engine.fill(self.told["table"], [*columns, *more])
        said = self.engine.ask(self.query, self.job.deadline)
        if keys:
            own = self.told["keys"].index(keys[0])
            return sorted(said, key=lambda row: row[own])
        if len(order) != len(said):
            return said
        return [row for _, row in sorted(zip(order, said, strict=True), key=lambda pair: pair[0])]

    def _read(self, said: list[tuple[Any, ...]], n: int) -> Answers:
        width = self.n_keys + self.n_labels + self.n_numbers
        if len(said) != n or any(len(row) != width for row in said[:1]):
            raise _other(self.job)
        answers = [row[self.n_keys :] for row in said]
        gone = np.array([[value is None for value in row] for row in answers], dtype=np.bool_)
        gone = gone.reshape(n, width - self.n_keys)
        refused, mixed = gone.all(axis=1), gone.any(axis=1)
        label = np.zeros((n, len(self.schema.outputs)), dtype=np.int64)
        for k, output in enumerate(self.schema.outputs[: self.n_labels]):
            label[:, k] = label_codes(output, [_label(output, row[k]) for row in answers])
        label[mixed] = INCONSISTENT
        label[refused] = REFUSED
        rows = [[_number(x) for x in row[self.n_labels :]] for row in answers]
        return Answers(label, np.array(rows, dtype=np.float64).reshape(n, self.n_numbers))


def _other(job: Job) -> VerificationError:
    return VerificationError(f"{job.path.name!r} has other columns or classes than the model")


def _label(output: Output, value: Any) -> Label:
    """A label as the schema has it: SQLite's truth values are numbers."""
    if isinstance(output.classes[0], bool) and value in (0, 1):
        return bool(value)
    label: Label = value if value is not None else ""
    return label


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if not isinstance(value, float):
        raise VerificationError(f"an answer is {value!r}, which is no double")
    return value


def _cells(
    column: Column, codes: npt.NDArray[np.float64], schema: Schema, has_nan: bool
) -> tuple[str, Sequence[Any]]:
    """The type and cells of a column; what is missing is told in every way, by turns."""
    gone = np.isnan(codes)
    if column.kind == "numeric":
        marks = [mark for mark in schema.missing_marks if not _reads_as_number(mark)]
        ways: list[Any] = (
            [None, math.nan] if has_nan else [None, *marks]
        )  # SQLite's columns hold anything
        values = codes.tolist()
    else:
        padded = [f" {mark}\t" for mark in schema.missing_marks]
        texts = [*schema.missing_marks, *padded]
        ways = [None, *(text for text in texts if text not in column.levels)]
        texts = [*column.levels, unseen_text(column)]
        with np.errstate(invalid="ignore"):
            known = (codes >= 0) & (codes < len(column.levels)) & (codes == np.floor(codes))
        places = np.where(known, codes, len(column.levels))
        values = [texts[place] for place in places.astype(np.int64).tolist()]
    for turn, row in enumerate(np.flatnonzero(gone).tolist()):
        values[row] = ways[turn % len(ways)]
    return ("REAL" if column.kind == "numeric" else "TEXT"), values


def _reads_as_number(mark: str) -> bool:
    try:
        return not math.isnan(float(mark))
    except ValueError:
        return False


def _joined(parts: list[Answers]) -> Answers:
    label = np.concatenate([part.label for part in parts])
    return Answers(label, np.concatenate([part.number for part in parts]))


def _lacking(dialect: str, *modules: str) -> Callable[[Path], str]:
    def lacking(path: Path) -> str:
        told = _told(path).get("dialect")
        if told is None:
            return "the file does not say its dialect, as treekit's do"
        if told != dialect:
            return f"the file is written for {_TITLES[told]}"
        for module in modules:
            if importlib.util.find_spec(module) is None:
                return f"{module} is not installed"
        if dialect == "postgres" and POSTGRES not in os.environ:
            return f"the environment variable {POSTGRES} names no server"
        return ""

    return lacking


def _sqlite_version() -> str:
    import sqlite3

    return sqlite3.sqlite_version


def _duckdb_version() -> str:
    import duckdb

    return str(duckdb.__version__)


def _postgres_version() -> str:
    with closing(PostgresEngine()) as engine:
        return str(engine.ask("SHOW server_version", math.inf)[0][0])


SQL_RUNTIMES = (
    Runtime("sqlite3", _run(SQLiteEngine), _sqlite_version, _lacking("sqlite", "sqlglot")),
    Runtime("duckdb", _run(DuckDBEngine), _duckdb_version, _lacking("duckdb", "sqlglot", "duckdb")),
    Runtime(
        "postgres",
        _run(PostgresEngine),
        _postgres_version,
        _lacking("postgres", "sqlglot", "psycopg"),
    ),
)
