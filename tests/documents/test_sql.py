"""A rule's predicate selects the rows that the rule fits, in SQLite, DuckDB and PostgreSQL."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.extremes import EXTREMES, extreme_rows
from tests.postgres import server
from tests.reference.models import mixed_schema, probe_rows, random_model, text_row
from tests.reference.rule_fits import fitting
from tests.runtimes import need
from treekit.data.schema import Column, Schema
from treekit.documents import Listing, render_listing
from treekit.documents.sql import format_comment
from treekit.errors import ExportError, SettingError
from treekit.model.builder import build_tree, is_missing, leaf, threshold
from treekit.model.model import Model, make_model
from treekit.rules import RuleList
from treekit.rules.language import Language
from treekit.rules.measure import training_measures

NAN = math.nan
KEY = "row number"
FORM = {"sqlite": "sql", "duckdb": "sql-duckdb", "postgres": "sql-postgres"}
NAMES = [
    *("one_leaf", "float32_extremes", "float64_extremes", "float32_neighbours", "missing_only"),
    *("vanishing", "mark_levels", "hostile_names", "hostile_numbers", "surrogates", "fractional"),
    *("refuses_missing", "refuses_unseen", "refuses_both", "boosted_four", "mixed64_numbers"),
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    need("psycopg")
    with server() as address:
        yield address


@pytest.fixture(params=["sqlite", "duckdb", pytest.param("postgres", marks=pytest.mark.system)])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    need("sqlglot")
    from treekit.verify import run_sql as sql_engines

    if request.param == "duckdb":
        need("duckdb")
    if request.param == "postgres":
        monkeypatch.setenv(sql_engines.POSTGRES, request.getfixturevalue("postgres"))
    made = {
        "sqlite": sql_engines.SQLiteEngine,
        "duckdb": sql_engines.DuckDBEngine,
        "postgres": sql_engines.PostgresEngine,
    }[request.param]()
    yield made
    made.close()


def filled(engine: Any, model: Model, rows: Any) -> None:
    """The table "rows" of the engine, with a key; every other missing number is NaN if it can."""
    cells = list(zip(*(text_row(model.schema, row) for row in rows), strict=True))
    columns: list[Any] = [(KEY, "BIGINT", list(range(len(rows))))]
    for column, given in zip(model.schema.columns, cells, strict=True):
        own = list(given)
        if column.kind == "numeric" and engine.has_nan:
            own = [NAN if x is None and i % 2 else x for i, x in enumerate(given)]
        columns.append((column.name, "REAL" if column.kind == "numeric" else "TEXT", own))
    engine.create_table("rows", columns)


def selected(engine: Any, rules: RuleList, n_rows: int) -> Any:
    """(rows, rules) bool: which rows each predicate selects."""
    from treekit.documents.sql import render_predicates

    found = np.zeros((n_rows, len(rules)), dtype=np.bool_)
    for number, predicate in enumerate(render_predicates(rules, engine.dialect)):
        query = f'SELECT t."{KEY}" FROM "rows" AS t WHERE {predicate}'
        found[[row for (row,) in engine.run_query(query, math.inf)], number] = True
    return found


def listing(rules: RuleList) -> Listing:
    return Listing(rules, training_measures(rules))


def some(rows: Any, most: int = 60) -> Any:
    return np.asarray(rows)[:: max(len(rows) // most, 1)]


@pytest.mark.parametrize(
    "engine",
    [
        "sqlite",
        pytest.param("duckdb", marks=pytest.mark.matrix),
        pytest.param("postgres", marks=pytest.mark.system),
    ],
    indirect=True,
)
@pytest.mark.parametrize("name", NAMES)
def test_predicates_select_the_rows_that_rules_fit(name: str, engine: Any) -> None:
    model = EXTREMES[name]()
    rules = model.rules()
    if engine.dialect == "postgres" and name.startswith("hostile"):
        with pytest.raises(ExportError, match="bytes, and PostgreSQL truncates names at 63"):
            selected(engine, rules, 0)
        return
    rows = some(extreme_rows(model))
    filled(engine, model, rows)
    assert np.array_equal(selected(engine, rules, len(rows)), fitting(rules, rows))


@pytest.mark.parametrize("seed", range(2))
def test_predicates_of_random_models_select_the_rows_that_rules_fit(seed: int, engine: Any) -> None:
    dtype = ("float32", "float64")[seed % 2]
    schema = mixed_schema(("no", "yes", "maybe"), dtype=dtype)
    model = random_model(seed, schema, n_trees=2, n_splits=20)
    rows = some(probe_rows(model, 60, seed), 100)
    filled(engine, model, rows)
    rules = model.rules()
    fits = fitting(rules, rows)
    assert np.array_equal(selected(engine, rules, len(rows)), fits)
    # In each tree one rule fits, and the file's first query says which.
    query = "".join(render_listing(FORM[engine.dialect], listing(rules))).split(";\n")[0]
    told = np.array([row[-2:] for row in engine.run_query(query, math.inf)], dtype=float)
    keys = [row[0] for row in engine.run_query(query, math.inf)]
    for tree in range(2):
        own = np.flatnonzero(rules.tree == tree)
        assert np.array_equal(told[:, tree], 1 + own[fits[keys][:, own].argmax(axis=1)])


def small_model() -> Model:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    inner = threshold(1, 0.5, leaf([3, 1]), leaf([1, 3]), missing=0)
    return make_model(schema, [build_tree(threshold(0, 2.5, inner, leaf([0, 2])), schema)])


def test_the_first_rule_that_fits_answers_where_order_counts(engine: Any) -> None:
    model = small_model()
    rules = model.rules()
    overlapping = replace(rules, order="first", end=np.array([1, 2, 2]))
    rows = np.array([[1.0, 5.0], [9.0, 0.0], [NAN, NAN], [3.0, 9.0], [0.0, 0.0]])
    filled(engine, model, rows)
    fits = fitting(overlapping, rows)
    assert fits.sum(axis=1).max() > 1
    query = "".join(render_listing(FORM[engine.dialect], listing(overlapping))).split(";\n")[0]
    answers = {row[0]: row[-1] for row in engine.run_query(query, math.inf)}
    assert [answers[k] for k in range(len(rows))] == (1 + fits.argmax(axis=1)).tolist()


def test_every_query_of_a_file_runs_and_selects_its_rule_s_rows() -> None:
    need("sqlglot")
    from treekit.verify.run_sql import SQLiteEngine

    model = EXTREMES["hostile_names"]()
    rules, rows = model.rules(), some(extreme_rows(model), 40)
    engine = SQLiteEngine()
    filled(engine, model, rows)
    text = "".join(render_listing("sql", listing(rules)))
    queries, begun = [], ""
    for line in text.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun) and begun.strip():
            queries.append(begun)
            begun = ""
    assert len(queries) == 1 + len(rules)
    fits = fitting(rules, rows)
    for rule, query in enumerate(queries[1:]):
        keys = sorted(row[0] for row in engine.run_query(query, math.inf))
        assert keys == np.flatnonzero(fits[:, rule]).tolist()


def test_text_in_sqlite_s_columns_of_numbers_is_missing_or_fits_nothing() -> None:
    need("sqlglot")
    from treekit.verify.run_sql import SQLiteEngine

    schema = Schema((Column("x"),), classes=("no", "yes"))
    inner = threshold(0, 2.5, leaf([1, 0]), leaf([0, 1]))
    model = make_model(schema, [build_tree(is_missing(0, leaf([1, 1]), inner), schema)])
    engine = SQLiteEngine()
    cells = [1, 3.5, " NA\t", "", None, "wide", b"\x01", 2**53 + 1, "7"]
    engine.create_table("rows", [(KEY, "BIGINT", list(range(len(cells)))), ("x", "REAL", cells)])
    found = selected(engine, model.rules(), len(cells))
    assert [np.flatnonzero(own).tolist() for own in found] == [
        *([1], [2], [0], [0], [0]),
        *([], [], [2], [2]),
    ]


def test_sums_of_columns_are_refused_by_name() -> None:
    need("sqlglot")
    from treekit.documents.sql import render_predicates

    with pytest.raises(SettingError, match="sums columns"):
        list(render_predicates(EXTREMES["oblique"]().rules()))


def test_no_text_ends_a_comment_or_a_literal() -> None:
    hostile = "a\nDROP TABLE rows; --\r*/ \u2028SELECT 1; \x0bx \x85y"
    assert all(line.startswith("-- ") for line in format_comment(hostile).split("\n") if line)
    assert len(format_comment(hostile).splitlines()) == len(format_comment(hostile).split("\n")) - 1
    need("sqlglot")
    schema = Schema((Column("x"),), classes=(hostile, "b"), target=hostile)
    model = make_model(schema, [build_tree(threshold(0, 1.0, leaf([1, 0]), leaf([0, 1])), schema)])
    phrases = dict.fromkeys(("sql_head", "sql_each_disjoint", "sql_rule"), "{answer}\nDROP")
    fields = {**phrases, "sql_head": "x\nDROP", "sql_each_disjoint": "y\rDROP"}
    made = replace(listing(model.rules()), language=Language("xx", fields))
    lines = "".join(render_listing("sql", made)).splitlines()
    assert not any(line.strip().startswith(("DROP", "SELECT 1")) for line in lines)


@pytest.mark.parametrize("code", ["en", "zh"])
def test_comments_are_in_the_reader_s_language(code: str) -> None:
    need("sqlglot")
    from treekit.rules.language import load_language

    made = replace(listing(small_model().rules()), language=load_language(code))
    assert load_language(code).say("sql_each_disjoint") in "".join(render_listing("sql", made))


@pytest.mark.matrix
def test_a_hundred_thousand_rules_are_written_in_seconds() -> None:
    need("sqlglot")
    from treekit.documents.sql import render_predicates

    schema = mixed_schema()
    rules = random_model(1, schema, n_trees=1, n_splits=2000).rules()
    begin = time.process_time()
    size = sum(map(len, render_predicates(rules)))
    assert size > 0
    assert (time.process_time() - begin) / len(rules) < 1e-3, json.dumps(size)
