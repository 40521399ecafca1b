"""SQL predicts equal bits in SQLite, DuckDB and PostgreSQL."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import runpy
import shlex
import sqlite3
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from treekit_sql.dialects import DIALECTS, _split_doubles
from treekit_sql.duckdb import register
from treekit_sql.exporter import export_sql
from treekit_sql.inputs import parse_table
from treekit_sql.run_sql import DuckDBEngine, PostgresEngine, SQLiteEngine

import treekit
from tests.export.test_all_targets import OTHER_VERSIONS, QUICK, changed_lines
from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference.models import chain, mixed_schema, random_model
from tests.runtimes import need
from tests.snapshots.artifacts import digest_lines, stored_lines, uses
from tests.snapshots.make_models import MODELS, model_path
from tests.tiers import later
from treekit.cli import main
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.schema import Column, Output, Schema
from treekit.errors import ExportError
from treekit.export import export
from treekit.model.builder import (
    build_tree,
    is_missing,
    leaf,
    oblique,
    subset,
    threshold,
)
from treekit.model.model import Model, make_model
from treekit.testing import check_exporter
from treekit.verify import verify
from treekit.verify.answers import Answers, describe_answer, differing
from treekit.verify.probe_values import decode_cells
from treekit.verify.run_artifact import find_runner
from treekit.verify.runtime import Job, OutOfTimeError

NAN = math.nan
TIER = {"sqlite": (), "duckdb": pytest.mark.matrix, "postgres": pytest.mark.system}
ENGINE_OF = {"sqlite": SQLiteEngine, "duckdb": DuckDBEngine, "postgres": PostgresEngine}
ENGINES = [pytest.param(name, marks=marks) for name, marks in TIER.items()]
LARGE_ELSEWHERE = {
    *(("five_thousand_trees", "sqlite"), ("deep_left", "sqlite")),
    *(("thousand_classes", "duckdb"), ("deep_left", "duckdb")),
}
"""What takes seconds, and has another engine or another test of the same form."""
SMALL = [
    *("one_leaf", "vanishing", "several_labels", "oblique", "surrogates", "costs"),
    *("refuses_both", "boosted_four", "boosted_counts", "mixed"),
]


@pytest.fixture(params=ENGINES)
def dialect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "duckdb":
        need("duckdb")
    if request.param == "postgres":
        monkeypatch.setenv("TREEKIT_POSTGRES", request.getfixturevalue("postgres"))
    return str(request.param)


def written(model: Model, folder: Path, **settings: Any) -> tuple[Path, str]:
    (path,) = export(model, "sql", folder / "m.sql", **settings)
    return path, path.read_bytes().decode()


def check(model: Model, folder: Path, rows: Any, **settings: Any) -> None:
    """Every answer has the bits of the model's."""
    rows = np.asarray(rows, dtype=np.float64)
    expected = wanted(model, rows)
    path, _ = written(model, folder, **settings)
    for how, given in find_runner(path).run_rows(path, model.schema, rows):
        n = len(given.label)
        wrong = differing(Answers(expected.label[:n], expected.number[:n]), given)
        assert len(wrong) == 0, (
            f"{how}: {rows[wrong[0]][:9]} is "
            f"{describe_answer(model.schema, expected, wrong[0])[:300]}, "
            f"not {describe_answer(model.schema, given, wrong[0])[:300]}"
        )


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        pytest.param(name, dialect, marks=TIER[dialect] or pytest.mark.matrix)
        for dialect in TIER
        for name in EXTREMES
        if (name, dialect) not in LARGE_ELSEWHERE
    ],
    indirect=["dialect"],
)
def test_extreme_models_predict_the_same_bits_or_are_refused(
    name: str, dialect: str, tmp_path: Path
) -> None:
    model = EXTREMES[name]()
    if dialect == "postgres" and name in ("hostile_names", "hostile_numbers"):
        with pytest.raises(ExportError, match="bytes, and PostgreSQL truncates names at 63"):
            written(model, tmp_path, dialect=dialect)
        return
    if dialect == "postgres" and name == "two_thousand_features":
        with pytest.raises(ExportError, match="up to 1600 columns"):
            written(model, tmp_path, dialect=dialect)
        return
    rows = extreme_rows(model)
    most = 10 if model.n_nodes > 1000 or model.schema.n_features > 40 else 150
    check(model, tmp_path, rows[:: max(len(rows) // most, 1)], dialect=dialect)


@pytest.mark.parametrize("form", ["case", "table", "expression"])
@pytest.mark.parametrize("name", SMALL)
def test_every_form_predicts_the_same_bits(
    name: str, form: str, dialect: str, tmp_path: Path
) -> None:
    model = EXTREMES[name]()
    if form == "expression" and model.schema.more:
        with pytest.raises(ExportError, match="several targets"):
            written(model, tmp_path, dialect=dialect, form=form)
        return
    check(model, tmp_path, extreme_rows(model)[:60], dialect=dialect, form=form)


def test_deep_chain_predicts_equal_bits_in_the_case_form(dialect: str, tmp_path: Path) -> None:
    # SQLite takes expressions of up to 1000 levels.
    model = chain(1200, Schema((Column("x"),), classes=("no", "yes")), 0)
    rows = [[float(x)] for x in (*range(-2, 1203, 97), 1199, 1200)] + [[NAN]]
    check(model, tmp_path, rows, dialect=dialect, form="case")


def test_key_columns_are_returned_and_identify_rows(dialect: str, tmp_path: Path) -> None:
    model = random_model(5, mixed_schema(), n_trees=2, n_splits=9)
    for form in ("case", "table"):
        check(
            model, tmp_path, extreme_rows(model)[:100],
            dialect=dialect, form=form, keys='["id", "a, \\"b\\""]', table='it\'s "it"; --',
        )  # fmt: skip
    _, text = written(model, tmp_path, dialect=dialect, keys="id,size")
    told = json.loads(text.splitlines()[1].removeprefix("-- treekit-sql "))
    assert told == {"dialect": dialect, "form": "case", "table": "rows", "keys": ["id", "size"]}


def test_categories_of_many_lengths_predict_the_same_bits(dialect: str, tmp_path: Path) -> None:
    # PostgreSQL puts short rows where long ones left room, and reads page by page.
    levels = tuple("x" * (1 + k * 37 % 900) + str(k) for k in range(90))
    schema = Schema((Column("c", "nominal", levels), Column("x")), task="regression")
    tree = subset("c", levels[::2], leaf(1.0), threshold(1, 0.5, leaf(2.0), leaf(3.0)))
    model = make_model(schema, [build_tree(tree, schema)])
    rows = [[k * 7 % 90, k % 2] for k in range(1500)]
    check(model, tmp_path, rows, dialect=dialect)


def test_output_columns_are_named_after_classes_and_targets_if_valid(tmp_path: Path) -> None:
    schema = Schema((Column("x"),), classes=("no", "yes"), more=(Output("second", ("a", "A")),))
    model = make_model(schema, [build_tree(leaf([1.0, 2.0, 3.0, 4.0]), schema)])

    def names(dialect: str, **settings: str) -> list[str]:
        _, text = written(model, tmp_path, dialect=dialect, **settings)
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE TABLE rows (x REAL, id INTEGER)")
        answer = connection.execute(text)
        connection.close()
        return [column[0] for column in answer.description]

    # "a" and "A" are one name in SQLite, so classes are told by their positions.
    assert names("sqlite", keys="id") == [
        *("id", "prediction_target", "prediction_second"),
        *("probability_target_0", "probability_target_1"),
        *("probability_second_0", "probability_second_1"),
    ]
    assert names("sqlite", label="says", probability="p")[:3] == [
        *("says_target", "says_second", "p_target_0"),
    ]
    _, text = written(model, tmp_path, dialect="postgres")
    assert '"probability_second_A"' in text


@pytest.mark.parametrize(
    ("names", "dialect", "message"),
    [
        (["Age", "age"], "sqlite", "'Age' and 'age' are equal in SQLite"),
        (["Age", "age"], "duckdb", "are equal in DuckDB"),
        (["a\0b"], "sqlite", "contains a NUL"),
        ([""], "postgres", "is empty"),
        (["ctid"], "postgres", "a system column of every table of PostgreSQL"),
        (["é" * 32], "postgres", "has 64 bytes"),
        (["\ud800"], "duckdb", "not valid Unicode"),
    ],
)
def test_names_unsupported_by_an_engine_are_refused(
    names: list[str], dialect: str, message: str, tmp_path: Path
) -> None:
    schema = Schema(tuple(map(Column, names)), task="regression")
    model = make_model(schema, [build_tree(leaf(1.0), schema)])
    with pytest.raises(ExportError, match=message):
        written(model, tmp_path, dialect=dialect)


@pytest.mark.system
def test_columns_that_differ_only_in_case_are_distinct_in_postgresql(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREEKIT_POSTGRES", postgres)
    schema = Schema((Column("Age"), Column("age")), task="regression")
    tree = threshold(0, 0.5, threshold(1, 0.5, leaf(1.0), leaf(2.0)), leaf(3.0))
    model = make_model(schema, [build_tree(tree, schema)])
    for form in ("case", "table"):
        check(model, tmp_path, [[0, 0], [0, 1], [1, 0], [1, 1]], dialect="postgres", form=form)


def test_category_with_nul_is_compared_or_refused_by_postgresql(
    dialect: str, tmp_path: Path
) -> None:
    schema = Schema((Column("c", "nominal", ("a\0b", "a", "")),), classes=("x\0", "y"))
    tree = build_tree(subset("c", ["a\0b"], leaf([9.0, 1.0]), leaf([1.0, 2.0])), schema)
    model = make_model(schema, [tree])
    if dialect == "postgres":
        with pytest.raises(ExportError, match="contains a NUL, which PostgreSQL cannot store"):
            written(model, tmp_path, dialect=dialect)
    else:
        check(model, tmp_path, [[0], [1], [2], [3], [NAN]], dialect=dialect)


def list_extreme_doubles() -> list[float]:
    """Doubles that are hard to read, and their neighbours."""
    rng = random.Random(0)
    drawn = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(100)]
    drawn += [rng.uniform(-100, 100) for _ in range(100)]
    drawn += [
        0.0,
        5e-324,
        2.2250738585072014e-308,
        1.7976931348623157e308,
        0.1,
        1e22,
        1e23,
        2.0**62,
    ]
    drawn += [
        9007199254740993.0,
        123456789012345680.0,
        1e-22,
        1e-23,
        8.41e21,
        5e-309,
        6929495644600920.0,
    ]
    near = [
        y for x in drawn for y in (x, math.nextafter(x, math.inf), math.nextafter(x, -math.inf))
    ]
    return sorted({x for x in near if math.isfinite(x)})


@pytest.mark.parametrize("form", ["case", "table"])
def test_every_threshold_is_read_with_equal_bits(form: str, dialect: str, tmp_path: Path) -> None:
    schema = Schema((Column("x"),), task="regression", dtype="float64")
    at = list_extreme_doubles()[:: 1 if form == "case" else 9]

    def between(first: int, last: int) -> Any:
        if first == last:
            return leaf(float(first))
        middle = (first + last) // 2
        return threshold(0, at[middle], between(first, middle), between(middle + 1, last))

    model = make_model(schema, [build_tree(between(0, len(at)), schema)])
    check(model, tmp_path, [[x] for x in at], dialect=dialect, form=form)


def test_sums_of_float32_round_ties_to_even_and_beyond_the_range(
    dialect: str, tmp_path: Path
) -> None:
    schema = Schema((Column("x"), Column("y")), task="regression")
    tiny, largest = 2.0**-149, float(np.finfo(np.float32).max)
    steps = [2.0**-24, 2.0**-23 - 2.0**-24, tiny / 2, tiny, 1.0]
    ends = [1.0, 1.0 + 2.0**-23, 2.0, 3.0, 0.1, 2.0**-126, tiny, 3 * tiny, largest, 2.0**127, 1e-3]
    values = {
        sign * (a + b * s) for a in ends for b in steps for s in (-1, 1, a) for sign in (-1, 1)
    }
    values |= {math.nextafter(x, end) for x in list(values) for end in (-math.inf, math.inf)}
    values |= {2.0**128 - 2.0**103, math.nextafter(2.0**128 - 2.0**103, 0.0), math.inf, -math.inf}
    with np.errstate(over="ignore", under="ignore"):
        rounded = np.unique(np.float32(sorted(values)))
    at = [float(x) for x in rounded[np.isfinite(rounded)]]
    tree = leaf(0.0)
    rng = np.random.default_rng(0)
    for number, t in enumerate(rng.permutation(at)[:60].tolist()):
        tree = oblique({"x": 1.0, "y": 1.0}, t, leaf(number + 1.0), tree)
    model = make_model(schema, [build_tree(tree, schema)])
    rows = [[x, y] for x in sorted(values) for y in (0.0, NAN)]
    check(model, tmp_path, rows, dialect=dialect, form="case")


def test_numbers_and_bools_in_a_nominal_column_match_their_categories(dialect: str) -> None:
    schema = Schema(
        (Column("n", "nominal", ("1", "2", "-3")), Column("b", "nominal", ("False", "True"))),
        task="regression",
    )
    tree = subset("n", ["1"], subset("b", ["True"], leaf(1.0), leaf(2.0)), leaf(3.0))
    model = make_model(schema, [build_tree(tree, schema)], missing="error", unknown="error")
    (content,) = export_sql(model, "m", dialect=dialect).values()
    engine = ENGINE_OF[dialect]()
    try:
        if dialect != "sqlite":  # it has no truth values of its own
            engine.connection.execute("CREATE TEMPORARY TABLE rows (n BIGINT, b BOOLEAN)")
            engine.connection.execute(
                "INSERT INTO rows VALUES (1, TRUE), (1, FALSE), (-3, TRUE), (4, TRUE), (NULL, TRUE)"
            )
            answers = [(1.0,), (2.0,), (3.0,), (None,), (None,)]
            assert engine.run_query(content.decode(), math.inf) == answers
        if dialect != "postgres":  # there a double that is whole is written as one
            engine.connection.execute("DROP TABLE IF EXISTS rows")
        engine.create_table("rows", [("n", "REAL", [1.0, 2.0, -3.0]), ("b", "TEXT", ["True"] * 3)])
        assert engine.run_query(content.decode(), math.inf) == [(1.0,), (3.0,), (3.0,)]
    finally:
        engine.close()


def test_text_of_a_number_or_bool_matches_its_category(dialect: str) -> None:
    schema = Schema(
        (Column("n", "nominal", ("3", "10")), Column("b", "nominal", ("False", "True"))),
        task="regression",
    )
    tree = subset("n", ["3"], leaf(1.0), subset("b", ["True"], leaf(2.0), leaf(3.0)), missing=1)
    model = make_model(schema, [build_tree(tree, schema)])
    (content,) = export_sql(model, "m", dialect=dialect).values()
    engine = ENGINE_OF[dialect]()
    texts = ["3", "3.0", "10", "10.0"], ["true", "true", "True", "true"]
    rows = {"n": texts[0], "b": texts[1]}
    try:
        engine.create_table("rows", [("n", "TEXT", texts[0]), ("b", "TEXT", texts[1])])
        said = [row[0] for row in engine.run_query(content.decode(), math.inf)]
        assert said == model.predict(rows).tolist() == [1.0, 1.0, 2.0, 2.0]
    finally:
        engine.close()


@pytest.mark.parametrize(("form", "table"), [("case", "cells"), ("table", "Nodes")])
def test_table_named_like_a_step_of_the_query_is_refused(
    form: str, table: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match="a view of the table with another name"):
        written(EXTREMES["mixed"](), tmp_path, dialect="duckdb", form=form, table=table)


def test_categories_are_compared_by_bytes_under_any_collation(dialect: str) -> None:
    schema = Schema((Column("c", "nominal", ("ab", "é")),), task="regression")
    tree = subset("c", ["ab"], leaf(1.0), leaf(2.0), missing=1)
    model = make_model(schema, [build_tree(tree, schema)])
    engine = ENGINE_OF[dialect]()
    run = engine.connection.execute
    try:
        collation = "COLLATE NOCASE"
        if dialect == "postgres":
            run("CREATE COLLATION pg_temp.loose (provider = icu, locale = 'und-u-ks-level1', "
                "deterministic = false)")  # fmt: skip
            collation = "COLLATE pg_temp.loose"
        run(f"CREATE TEMPORARY TABLE rows (c TEXT {collation})")
        run("INSERT INTO rows VALUES ('ab'), ('AB'), ('e'), ('é')")
        assert [row[0] for row in run("SELECT c = 'Ab' FROM rows").fetchall()][:2] == [1, 1]
        (content,) = export_sql(model, "m", dialect=dialect).values()
        assert engine.run_query(content.decode(), math.inf) == [(1.0,), (2.0,), (2.0,), (2.0,)]
    finally:
        engine.close()


def test_postgresql_statement_timeout_is_the_remaining_time() -> None:
    engine, asked = PostgresEngine.__new__(PostgresEngine), []
    engine.error = RuntimeError
    engine.connection = SimpleNamespace(
        execute=lambda query: asked.append(query.decode()) or SimpleNamespace(fetchall=list)
    )
    engine.run_query("SELECT 1", time.monotonic() + 5)
    limit, query = asked
    assert query == "SELECT 1"
    assert 4000 < int(limit.removeprefix("SET LOCAL statement_timeout = ")) <= 5000
    engine.run_query("SELECT 1", math.inf)
    assert asked[2:] == ["SET LOCAL statement_timeout = 0", "SELECT 1"]


def test_refused_row_raises_an_error_with_refuse_error(dialect: str, tmp_path: Path) -> None:
    model = EXTREMES["refuses_both"]()
    rows = extreme_rows(model)[:24]
    for form in ("case", "table"):
        check(model, tmp_path, rows, dialect=dialect, form=form, refuse="error")
    path, _ = written(model, tmp_path, dialect=dialect, refuse="error")
    _, told = next(find_runner(path).run_rows(path, model.schema, rows))
    assert (told.label < 0).any()
    assert (told.label >= 0).any()


def test_non_numeric_text_refuses_the_row_in_sqlite() -> None:
    schema = Schema((Column("x"),), task="regression")
    model = make_model(schema, [build_tree(threshold(0, 1.0, leaf(1.0), leaf(2.0), 0), schema)])
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE rows (x)")
    cells = [0, 2, 2.5, None, " NA ", "?", "much", b"2", "2"]
    connection.executemany("INSERT INTO rows VALUES (?)", [(x,) for x in cells])
    found = {}
    for text in ("yes", "auto"):
        (content,) = export_sql(model, "m", text=text).values()
        found[text] = [row[0] for row in connection.execute(content.decode())]
    connection.close()
    assert found["yes"] == [1.0, 2.0, 2.0, 1.0, 1.0, 1.0, None, None, 2.0]
    assert found["auto"] == [1.0, 2.0, 2.0, 1.0, None, None, None, None, None]


ODD_CELLS = {
    **dict.fromkeys(["abc", "inf", "-Infinity", "1_000", "05", ".5", "5.", "+5", "0x5"], None),
    **dict.fromkeys(["2020-01-01", "1,5", "5 %", "true", "[5]", '"5"', "1e", "--5", "５"], None),
    **dict.fromkeys(["", " ", "NA", " ?\t", "NaN", " nan "], "missing"),
    "5": 5.0,
    " 5 ": 5.0,
    "\u00a05": 5.0,
    "-1.5e3": -1500.0,
    "1E2": 100.0,
    "0": 0.0,
    "1e999": math.inf,
    "-1e999": -math.inf,
    "1e-999": 0.0,
    "9e307": 9e307,
    "5e-324": 5e-324,
    "1" + "0" * 400: math.inf,
    "0." + "0" * 400 + "1": 0.0,
    "9007199254740993": 2.0**53,
    "123456789012345678901234567890.5": 123456789012345678901234567890.5,
}
"""Texts in a column of numbers, and the number each is, "missing", or None: refused."""


@pytest.mark.parametrize("form", ["case", "table", "rules"])
def test_engines_agree_on_unusual_cells_without_errors(
    form: str, dialect: str, tmp_path: Path
) -> None:
    schema = Schema((Column("x"),), classes=("gone", "low", "high"), dtype="float64")
    bounds = (-1e300, -10.0, 0.0, 1.0, 7.0, 2.0**53, 1e300)
    texts = list(ODD_CELLS)
    cells = [NAN if value in ("missing", None) else value for value in ODD_CELLS.values()]
    for bound in bounds:
        inner = threshold(0, bound, leaf([0, 1, 0]), leaf([0, 0, 1]))
        model = make_model(schema, [build_tree(is_missing(0, leaf([1, 0, 0]), inner), schema)])
        wanted_labels = model.predict(np.array(cells)[:, None]).tolist()
        expected = [
            None if value is None else label
            for value, label in zip(ODD_CELLS.values(), wanted_labels, strict=True)
        ]
        if form == "rules":
            kind = "sql" if dialect == "sqlite" else f"sql-{dialect}"
            path = treekit.write_rules(model, tmp_path / "m.sql", kind, settings={"keys": "id"})
            query = path.read_text(encoding="utf-8")
        else:
            _, query = written(model, tmp_path, dialect=dialect, form=form, keys="id")
        engine = ENGINE_OF[dialect]()
        try:
            columns = [("x", "TEXT", texts), ("id", "BIGINT", list(range(len(texts))))]
            engine.create_table("rows", columns)
            found = {row[0]: row[1] for row in engine.run_query(query, math.inf)}
        finally:
            engine.close()
        wrong = [
            (text, found[number], label)
            for number, (text, label) in enumerate(zip(texts, expected, strict=True))
            if found[number] != label
        ]
        assert wrong == [], bound


TYPED = {
    "duckdb": {
        "TRUE": "high", "DATE '2020-01-01'": None, "'5'::BLOB": None, "[5]": None,
        "5::DECIMAL(38, 2)": "high", "9007199254740993": "high", "-5::HUGEINT": "low",
        "'nan'::DOUBLE": "gone", "'inf'::FLOAT": "high", "NULL": "gone",
    },
    "postgres": {
        "5::NUMERIC": "high", "1e400::NUMERIC": "high", "-1e400::NUMERIC": "low",
        "'nan'::NUMERIC": "gone", "'nan'::FLOAT4": "gone", "'infinity'::FLOAT8": "high",
        "9007199254740993::BIGINT": "high", "0.1::FLOAT4": "low", "1e-400::NUMERIC": "low",
        "'abc'::VARCHAR(9)": None, "NULL::INTEGER": "gone", "5::SMALLINT": "high",
    },
}  # fmt: skip


@pytest.mark.parametrize("form", ["case", "table", "expression"])
def test_columns_of_every_type_are_read(form: str, dialect: str, tmp_path: Path) -> None:
    schema = Schema((Column("x"),), classes=("gone", "low", "high"), dtype="float64")
    inner = threshold(0, 0.5, leaf([0, 1, 0]), leaf([0, 0, 1]))
    model = make_model(schema, [build_tree(is_missing(0, leaf([1, 0, 0]), inner), schema)])
    _, query = written(model, tmp_path, dialect=dialect, form=form)
    query = f"SELECT {query} FROM rows" if form == "expression" else query
    for value, label in TYPED.get(dialect, {}).items():
        engine = ENGINE_OF[dialect]()
        try:
            command = f"CREATE TEMPORARY TABLE rows AS SELECT {value} AS x"
            engine.connection.execute(command)
            assert engine.run_query(query, math.inf)[0][0] == label, value
        finally:
            engine.close()


def test_missing_column_raises_an_error_and_is_not_read_as_text() -> None:
    schema = Schema((Column("x"),), task="regression")
    model = make_model(schema, [build_tree(threshold(0, 1.0, leaf(1.0), leaf(2.0)), schema)])
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE rows (y REAL)")
    for form in ("case", "table"):
        (content,) = export_sql(model, "m", form=form).values()
        with pytest.raises(sqlite3.OperationalError, match="no such column"):
            connection.execute(content.decode())
    connection.close()


def test_auto_states_why_it_chooses_a_form() -> None:
    model = EXTREMES["five_thousand_trees"]()

    def form_of(**settings: Any) -> str:
        (content,) = export_sql(model, "m", **settings).values()
        return content.decode().splitlines()[2]

    assert form_of().startswith("-- Form: case; CASE needs ")
    assert "more than 10000" in form_of(dialect="duckdb")
    with pytest.raises(ExportError, match=r"missing='fractional'\): choose form='table'"):
        export_sql(EXTREMES["fractional"](), "m", form="case")


def test_query_written_for_another_model_differs_in_every_row(tmp_path: Path) -> None:
    first, second = EXTREMES["int_labels"](), EXTREMES["float_labels"]()
    path, _ = written(first, tmp_path)
    rows = extreme_rows(second)[:20]
    ((_, given), *_) = find_runner(path).run_rows(path, second.schema, rows)
    assert len(differing(wanted(second, rows), given)) == len(rows)


def test_doubles_are_split_into_53_bit_integers_and_powers_of_two() -> None:
    values = np.array([*list_extreme_doubles(), 0.0])
    whole, power = _split_doubles(values)
    assert [math.ldexp(m, p) for m, p in zip(whole, power, strict=True)] == values.tolist()
    assert all(-1074 <= p <= 1023 for p in power)
    assert list(itertools.accumulate(map(abs, whole), max))[-1] < 2**53


@pytest.mark.matrix
def test_query_beyond_the_parser_stack_of_sqlite_is_refused_at_export() -> None:
    schema = Schema((Column("x"),), task="regression")
    at = [float(x) for x in range(2047)]

    def between(first: int, last: int) -> Any:
        if first == last:
            return leaf(float(first))
        middle = (first + last) // 2
        return threshold(0, at[middle], between(first, middle), between(middle + 1, last))

    tree = build_tree(between(0, len(at)), schema)
    model = make_model(schema, [tree], combine="sum", link="exp")
    with pytest.raises(ExportError, match="SQLite cannot run form='expression': parser stack"):
        export_sql(model, "m", form="expression")
    (content,) = export_sql(model, "m").values()
    assert b"Form: case; CASE needs" in content


def test_registered_duckdb_function_predicts_as_the_model() -> None:
    need("duckdb")
    need("pyarrow")
    import duckdb

    for name in ("mixed", "refuses_both", "several_labels", "int_labels", "boosted_four"):
        model = EXTREMES[name]()
        schema, rows = model.schema, extreme_rows(model)[:100]
        expected = wanted(model, rows)
        engine = DuckDBEngine()
        cells = zip(*(decode_cells(schema, row) for row in rows), strict=True)
        engine.create_table(
            "rows",
            [
                (column.name, "REAL" if column.kind == "numeric" else "TEXT", own)
                for column, own in zip(schema.columns, cells, strict=True)
            ],
        )
        register(engine.connection, EXTREMES["one_leaf"](), 'the "model"')
        label = register(engine.connection, model, 'the "model"')
        share = register(engine.connection, model, "shares", answer="probability")
        said = engine.connection.execute(f"SELECT {label}, {share} FROM rows").fetchall()
        for row, (got, shares) in enumerate(said):
            if expected.label[row, 0] < 0:
                assert (got, shares) == (None, None)
                continue
            labels = [
                o.classes[k] for o, k in zip(schema.outputs, expected.label[row], strict=True)
            ]
            assert (list(got.values()) if schema.more else [got]) == labels
            numbers = [*itertools.chain(*shares.values())] if schema.more else shares
            assert numbers == expected.number[row].tolist()
        if name == "refuses_both":
            call = register(engine.connection, model, "strict", refuse="error")
            with pytest.raises(duckdb.Error, match="the model rejects a row"):
                engine.connection.execute(f"SELECT {call} FROM rows").fetchall()
        engine.close()


def test_registered_duckdb_regression_returns_a_number_without_probabilities() -> None:
    need("duckdb")
    need("pyarrow")
    import duckdb

    model = EXTREMES["wide_numbers64"]()
    connection = duckdb.connect()
    with pytest.raises(ExportError, match="no probabilities"):
        register(connection, model, "f", answer="probability")
    call = register(connection, model, "f")
    found = connection.execute(
        f"SELECT {call} FROM (SELECT CAST(1.0 AS DOUBLE) AS x, 'red' AS colour)"
    ).fetchall()
    assert found == [(wanted(model, np.array([[1.0, 0.0]])).number[0, 0],)]
    connection.close()


@pytest.mark.matrix
def test_verify_states_what_is_missing_to_run_a_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("psycopg")
    monkeypatch.delenv("TREEKIT_POSTGRES", raising=False)
    model = EXTREMES["one_leaf"]()
    path, _ = written(model, tmp_path, dialect="postgres")
    report = verify(model, [path])
    assert not report.equal
    assert "the environment variable TREEKIT_POSTGRES is not set" in str(report)
    path, _ = written(model, tmp_path, dialect="sqlite")
    report = verify(model, [path], runtimes="all")
    assert report.equal
    assert [untried.why for untried in report.untried] == ["the file is written for SQLite"] * 3
    path.write_text("SELECT 1", encoding="utf-8")
    assert "has no line with its dialect" in str(verify(model, [path]))


@pytest.mark.matrix
def test_unreachable_postgresql_fails_its_run_without_stopping_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("psycopg")
    monkeypatch.setenv("TREEKIT_POSTGRES", f"host={tmp_path} connect_timeout=1")
    model = EXTREMES["one_leaf"]()
    paths = [written(model, tmp_path, dialect="postgres")[0]]
    paths += export(model, "rules", tmp_path / "m.rules.txt")
    report = verify(model, paths)
    absent, present = report.artifacts
    assert "cannot connect to PostgreSQL by TREEKIT_POSTGRES" in absent.error
    assert present.equal
    assert report.versions["postgres"] == "unknown"


def test_first_query_beyond_the_time_limit_raises_out_of_time(tmp_path: Path) -> None:
    model = EXTREMES["one_leaf"]()
    path, text = written(model, tmp_path, dialect="sqlite")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    (mark,) = [line for line in text.splitlines() if line.startswith("-- treekit-sql ")]
    path.write_text(f"{mark}\n{endless}", encoding="utf-8")
    runtime = find_runner(path).runtimes[0]
    job = Job(path, model.schema, tmp_path, time.monotonic() + 0.2)
    with pytest.raises(OutOfTimeError, match="the query did not end within the remaining time"):
        list(runtime.run(job, np.zeros((1, model.schema.n_features))))


# ---------------------------------------------------------------- contract, commands and pages

PLUGIN = Path(__file__).parents[1]


def test_exporter_passes_the_contract_checks_with_equal_bits() -> None:
    report = check_exporter("sql")
    assert report.ok
    assert [one.state for one in report.verdicts if one.law.name == "equal-bits"] == ["holds"]


@pytest.mark.parametrize("name", [name if name in QUICK else later(name) for name in MODELS])
def test_artifacts_have_the_stored_digests(name: str) -> None:
    own = ["sqlglot", "treekit-sql"]
    if set(own) & set(OTHER_VERSIONS):
        pytest.skip("artifacts.txt was written with another version of sqlglot or treekit-sql")
    made = digest_lines(treekit.load(model_path(name)), made_by=own)
    stored = {group: line for group, line in stored_lines()[name].items() if uses(group, own)}
    assert stored
    assert not list(changed_lines(stored, made))


def call(*words: object) -> str:
    """Run a command in this process; return what it prints."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def test_command_lists_settings_and_verifies_a_file(tmp_path: Path) -> None:
    own = call("export", "--help-settings", "--to", "sql")
    assert "dialect" in own
    assert "arithmetic" not in own
    model, query = tmp_path / "m.treekit", tmp_path / "m.sql"
    EXTREMES["mixed"]().save(model)
    call("export", model, "--to", "sql", "-o", query)
    assert "sqlite3" in call("verify", model, query)


def test_readme_function_scores_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("duckdb", "pyarrow")
    import duckdb

    text = (PLUGIN / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    table = pd.read_csv(demo_table(), na_values=["?"])
    table.insert(0, "id", range(len(table)))
    Path("rows").mkdir()
    for k in range(3):
        table[k::3].to_parquet(f"rows/part-{k}.parquet")
    settings = {"ensemble": "forest", "trees": 20, "seed": 0}
    model = treekit.train(table, DEMO_TARGET, ignore=["id"], **settings)
    model.save("m.treekit")
    block = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    command = re.search(r"`treekit (export m\.treekit --to sql .*?)`", text, re.DOTALL)
    assert block is not None
    assert command is not None
    exec(block[1], {})
    said = pd.read_parquet("predictions.parquet").sort_values("id")
    np.testing.assert_array_equal(said["prediction"], model.predict(table))
    call(*shlex.split(command[1]))
    with duckdb.connect() as connection:
        found = connection.sql(Path("m.sql").read_text("utf-8")).df().sort_values("id")
    np.testing.assert_array_equal(found["prediction"], model.predict(table))
    shares = found[["probability_no", "probability_yes"]]
    np.testing.assert_array_equal(shares, model.predict_proba(table))


@pytest.mark.system
def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    need("duckdb", "pyarrow")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(PLUGIN / "score_in_duckdb.py"), run_name="__main__")
    assert "bit for bit" in capfd.readouterr().out
    assert list(tmp_path.iterdir()) == []


PLACES = [
    ("main.rows", "sqlite", ["main", "rows"]),
    ("sales.rows", "sqlite", ["sales", "rows"]),
    ("s.rows", "duckdb", ["s", "rows"]),
    ("other.s.rows", "duckdb", ["other", "s", "rows"]),
    ("s.rows", "postgres", ["s", "rows"]),
    ('s."a.b"', "duckdb", ["s", "a.b"]),
    ('"s.t".rows', "sqlite", ["s.t", "rows"]),
    ('"a.b"', "sqlite", ["a.b"]),
    ('"say ""x"""."r"', "duckdb", ['say "x"', "r"]),
    ("my rows", "sqlite", ["my rows"]),
    ("a b.c", "duckdb", ["a b.c"]),
    ("rows.parquet", "duckdb", ["rows.parquet"]),
    ("data/rows.parquet", "duckdb", ["data/rows.parquet"]),
    ("s.色泽", "duckdb", ["s", "色泽"]),
    ('x"; DROP TABLE rows; --', "sqlite", ['x"; DROP TABLE rows; --']),
    ('s.x"; DROP TABLE rows; --', "duckdb", ['s.x"; DROP TABLE rows; --']),
    ('"', "duckdb", ['"']),
    ("s.", "sqlite", ["s."]),
    (".s", "sqlite", [".s"]),
]


@pytest.mark.parametrize(("table", "dialect", "place"), PLACES)
def test_table_setting_accepts_a_schema(
    table: str, dialect: str, place: list[str], tmp_path: Path, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert parse_table(table, DIALECTS[dialect]) == place
    if dialect == "postgres":
        monkeypatch.setenv("TREEKIT_POSTGRES", request.getfixturevalue("postgres"))
    model = EXTREMES["mixed"]()
    rows = extreme_rows(model, most=20).tolist()
    for form in ("case", "table", "expression"):
        check(model, tmp_path, rows, dialect=dialect, table=table, form=form)


@pytest.mark.parametrize(("table", "dialect"), [("a.b.c", "sqlite"), ("a.b.c.d", "postgres")])
def test_table_names_with_too_many_parts_are_refused(table: str, dialect: str) -> None:
    with pytest.raises(ExportError, match="quote a name that contains dots"):
        parse_table(table, DIALECTS[dialect])


def test_verify_does_not_change_an_existing_table_of_the_server(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setenv("TREEKIT_POSTGRES", postgres)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA own; CREATE TABLE own.rows AS SELECT 1 AS x")
        try:
            path, _ = written(EXTREMES["mixed"](), tmp_path, dialect="postgres", table="own.rows")
            report = verify(EXTREMES["mixed"](), [path])
            assert "has a table" in str(report.artifacts[0].error)
            assert connection.execute("SELECT * FROM own.rows").fetchall() == [(1,)]
        finally:
            connection.execute("DROP SCHEMA own CASCADE")
