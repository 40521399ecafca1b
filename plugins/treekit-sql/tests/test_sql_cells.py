"""Categorical cells match in SQL, and in a DuckDB function, as in the model."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from treekit_sql.duckdb import register
from treekit_sql.run_sql import POSTGRES, PostgresEngine

import treekit
from tests.data.test_category_cells import CELLS, VOCABULARIES, expected, level_model
from tests.runtimes import need
from treekit.data.features import LevelIndex
from treekit.data.schema import Column, Notation, Schema
from treekit.model.builder import build_tree, is_missing, leaf, threshold
from treekit.model.model import Model, make_model


@pytest.fixture(params=VOCABULARIES)
def levels(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return VOCABULARIES[request.param]


SQL_CELLS = [cell for cell in CELLS if str(cell) != "-0.0"]
"""Doubles of engines keep the sign of zero, which Python's text of a whole number lacks."""


@pytest.mark.parametrize("form", ["select", "rules"])
def test_category_cells_match_the_model_in_sqlite(
    levels: tuple[str, ...], form: str, tmp_path: Path
) -> None:
    model = level_model(levels)
    known = LevelIndex(levels).codes.keys()
    # SQLite makes 1 of True; where 1 is a level it is that one, else a bool.
    unlike = int if {"True", "False"} & known and not {"0", "1"} & known else bool
    cells = [cell for cell in SQL_CELLS if cell not in (0, 1) or type(cell) is not unlike]
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE rows (c)")
    connection.executemany("INSERT INTO rows VALUES (?)", [[cell] for cell in cells])
    if form == "select":
        path = treekit.export(model, "sql", tmp_path / "m.sql", text="yes")[0]
    else:
        path = treekit.write_rules(model, tmp_path / "m.sql")
    said = [row[0] for row in connection.execute(path.read_text(encoding="utf-8"))]
    connection.close()
    assert said == expected(cells, levels)


@pytest.mark.system
def test_category_cells_match_the_model_in_postgresql(
    levels: tuple[str, ...], postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(POSTGRES, postgres)
    files = treekit.export(
        level_model(levels), "sql", tmp_path / "m.sql", dialect="postgres", text="yes"
    )
    query = files[0].read_text(encoding="utf-8")
    types = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE PRECISION"}
    said, engine = [], PostgresEngine()
    try:
        for cell in SQL_CELLS:
            engine.connection.execute("DROP TABLE IF EXISTS rows")
            kind = types.get(type(cell), "TEXT")
            engine.connection.execute(f"CREATE TEMPORARY TABLE rows (c {kind})")
            engine.connection.execute("INSERT INTO rows VALUES (%s)", [cell])
            said += [row[0] for row in engine.run_query(query, math.inf)]
    finally:
        engine.close()
    assert said == expected(SQL_CELLS, levels)


@pytest.mark.matrix
def test_category_cells_match_the_model_in_duckdb(levels: tuple[str, ...], tmp_path: Path) -> None:
    need("duckdb")
    import duckdb

    model = level_model(levels)
    files = treekit.export(model, "sql", tmp_path / "m.sql", dialect="duckdb", text="yes")
    query = files[0].read_text(encoding="utf-8")
    types = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR", type(None): "VARCHAR"}
    said = []
    with duckdb.connect() as connection:
        for cell in SQL_CELLS:
            connection.execute(f"CREATE OR REPLACE TABLE rows (c {types[type(cell)]})")
            connection.execute("INSERT INTO rows VALUES (?)", [cell])
            said += [row[0] for row in connection.execute(query).fetchall()]
    assert said == expected(SQL_CELLS, levels)


@pytest.mark.matrix
def test_category_cells_match_the_model_in_a_duckdb_function(levels: tuple[str, ...]) -> None:
    need("duckdb")
    import duckdb

    texts = [cell for cell in CELLS if cell is None or isinstance(cell, str)]
    with duckdb.connect() as connection:
        call = register(connection, level_model(levels), "answer")
        connection.execute("CREATE TABLE rows (n INTEGER, c VARCHAR)")
        connection.executemany("INSERT INTO rows VALUES (?, ?)", [*enumerate(texts)])
        said = connection.execute(f"SELECT {call} FROM rows ORDER BY n").fetchall()
    assert [row[0] for row in said] == expected(texts, levels)


NUMBER_CELLS = [None, "", "N/A", " NULL\u3000", "#N/A", "-1.#IND", "<NA>", "?"]


def number_model(**more: Any) -> Model:
    root = is_missing("x", leaf(-1.0), threshold("x", 1.75, leaf(0.0), leaf(1.0)))
    schema = Schema((Column("x"),), task="regression", **more)
    return make_model(schema, [build_tree(root, schema)])


@pytest.mark.parametrize("form", ["select", "rules"])
def test_missing_value_marks_in_a_numeric_column_are_missing_in_sqlite(
    form: str, tmp_path: Path
) -> None:
    if form == "select":
        path = treekit.export(number_model(), "sql", tmp_path / "m.sql", text="yes")[0]
    else:
        path = treekit.write_rules(number_model(), tmp_path / "m.sql")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE rows (x)")
        cells = [[cell] for cell in (*NUMBER_CELLS, 1.5, 2, "n/A")]
        connection.executemany("INSERT INTO rows VALUES (?)", cells)
        said = [row[0] for row in connection.execute(path.read_text(encoding="utf-8"))]
    assert said == [-1.0] * len(NUMBER_CELLS) + [0.0, 1.0, None]


@pytest.mark.matrix
def test_missing_value_marks_in_a_numeric_column_are_missing_in_duckdb(tmp_path: Path) -> None:
    need("duckdb")
    import duckdb

    files = treekit.export(number_model(), "sql", tmp_path / "m.sql", dialect="duckdb", text="yes")
    query = files[0].read_text(encoding="utf-8")
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE rows (x VARCHAR)")
        cells = [[cell] for cell in (*NUMBER_CELLS, "1.5", "2")]
        connection.executemany("INSERT INTO rows VALUES (?)", cells)
        said = [row[0] for row in connection.execute(query).fetchall()]
        assert said == [-1.0] * len(NUMBER_CELLS) + [0.0, 1.0]
        connection.execute("CREATE OR REPLACE TABLE rows AS SELECT 1.5::DOUBLE AS x")
        assert connection.execute(query).fetchall() == [(0.0,)]


@pytest.mark.matrix
@pytest.mark.parametrize("form", ["select", "rules"])
def test_number_text_in_another_notation_refuses_the_row_in_duckdb(
    form: str, tmp_path: Path
) -> None:
    need("duckdb")
    import duckdb

    model = number_model(notation=Notation(",", "."))
    if form == "select":
        path = treekit.export(model, "sql", tmp_path / "m.sql", dialect="duckdb", text="yes")[0]
    else:
        path = treekit.write_rules(model, tmp_path / "m.sql", form="sql-duckdb")
    query = path.read_text(encoding="utf-8")
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE rows AS SELECT 1.5::DOUBLE AS x")
        assert connection.execute(query).fetchall() == [(0.0,)]
        connection.execute("CREATE OR REPLACE TABLE rows AS SELECT '1.234' AS x")
        assert connection.execute(query).fetchall() == [(None,)]  # the row is refused


@pytest.mark.system
@pytest.mark.parametrize("form", ["select", "rules"])
def test_number_text_in_another_notation_is_refused_by_postgresql(
    form: str, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(POSTGRES, postgres)
    model = number_model(notation=Notation(",", "."))
    if form == "select":
        path = treekit.export(model, "sql", tmp_path / "m.sql", dialect="postgres", text="yes")[0]
    else:
        path = treekit.write_rules(model, tmp_path / "m.sql", form="sql-postgres")
    query, engine = path.read_text(encoding="utf-8"), PostgresEngine()
    try:
        engine.connection.execute("CREATE TEMPORARY TABLE rows (x DOUBLE PRECISION)")
        engine.connection.execute("INSERT INTO rows VALUES (1.5)")
        assert engine.run_query(query, math.inf) == [(0.0,)]
        engine.connection.execute("DROP TABLE rows")
        engine.connection.execute("CREATE TEMPORARY TABLE rows (x TEXT)")
        engine.connection.execute("INSERT INTO rows VALUES ('1.234')")
        assert engine.run_query(query, math.inf) == [(None,)]  # the row is refused
    finally:
        engine.close()
