"""A single tree as nested CASE: exact in the engines that run it, parsed by other dialects."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlglot
from hypothesis import example, given, settings
from hypothesis import strategies as st
from treekit_sql.conditions import write_bound
from treekit_sql.dialects import DIALECTS, SQLite
from treekit_sql.exporter import export_sql
from treekit_sql.readable import explain_unreadable_sql
from treekit_sql.warehouses import WAREHOUSES

from tests.examples import examples
from tests.extremes import extreme_rows, wanted
from tests.runtimes import need
from tests.strategies import matrices, models
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.export.lowering import lower
from treekit.model.builder import build_tree, is_missing, leaf, multiway, subset, threshold
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import Model, make_model
from treekit.rules.wording import format_number
from treekit.verify.answers import differing
from treekit.verify.run_artifact import find_runner

AT = float(np.float32(2.45))
COLUMNS = (Column("petal length (cm)"), Column("Contract", "nominal", ("One year", "Two year")))


def small_model(dtype: str = "float32", **more: Any) -> Model:
    at = 2.45 if dtype == "float64" else AT
    schema = Schema(COLUMNS, "kind", classes=("no", "it's"), dtype=dtype, **more)
    inner = subset("Contract", ["One year"], leaf([3, 1]), leaf([1, 4]), missing=0)
    return make_model(
        schema, [build_tree(threshold(0, at, leaf([0, 9]), inner, missing=1), schema)]
    )


def write(model: Model, **settings: Any) -> str:
    return export_sql(model, "m", **settings)["m.sql"].decode()


def test_a_tree_reads_as_nested_case_with_labels_and_probabilities() -> None:
    text = write(small_model("float64"), keys="id", table="main.rows")
    assert (
        text[text.index("WITH") :]
        == """\
WITH cells AS (
  SELECT
    t."id" AS key_0,
    CAST(t."petal length (cm)" AS REAL) AS "petal length (cm)",
    t."Contract" COLLATE BINARY AS "Contract",
    TYPEOF(t."petal length (cm)") IN ('text', 'blob') AS has_text
  FROM "main"."rows" AS t
)
SELECT
  key_0 AS "id",
  CASE
    WHEN has_text THEN NULL
    WHEN "petal length (cm)" <= 2.45 THEN 'it''s'
    WHEN "Contract" = 'Two year' THEN 'it''s'
    ELSE 'no'
  END AS "prediction",
  CASE
    WHEN has_text THEN NULL
    WHEN "petal length (cm)" <= 2.45 THEN 0.0
    WHEN "Contract" = 'Two year' THEN 0.2 - 4.4e-17
    ELSE 0.75
  END AS "probability_no",
  CASE
    WHEN has_text THEN NULL
    WHEN "petal length (cm)" <= 2.45 THEN 1.0
    WHEN "Contract" = 'Two year' THEN 0.8
    ELSE 0.25
  END AS "probability_it's"
FROM cells;
"""
    )


@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("duckdb", marks=pytest.mark.matrix)])
def test_any_single_tree_predicts_with_equal_bits(dialect: str, tmp_path: Path) -> None:
    need(*(["duckdb"] if dialect == "duckdb" else []))

    @given(st.data())
    @settings(max_examples=examples(25), deadline=None)
    def check(data: st.DataObject) -> None:
        model = data.draw(models())
        trees = lower(model) if model.missing != "fractional" else ()
        if not trees or explain_unreadable_sql(model, trees, DIALECTS[dialect]):
            return
        content = write(model, dialect=dialect, form="readable")
        path = tmp_path / "m.sql"
        path.write_bytes(content.encode())
        rows = np.vstack([data.draw(matrices(model, max_rows=5)), extreme_rows(model, most=60)])
        _, told = next(find_runner(path).run_rows(path, model.schema, rows))
        assert not len(differing(wanted(model, rows), told))

    check()


finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(finite)
@example(-53.56694030761719)  # the shortest sum of doubles is not exact in decimals
@settings(max_examples=examples(200))
def test_bounds_are_exact_as_doubles_and_as_decimals(at: float) -> None:
    bound = float(to_double_threshold(at))
    made = write_bound(format_number(at, "float32"), bound, SQLite()).sql(dialect="duckdb")
    if "/" in made or "*" in made or not math.isfinite(bound):  # of integers, exact as well
        return
    parts = made.replace("- ", "+ -").split(" + ") if " " in made else [made]
    assert sum(map(float, parts)) == bound
    assert float(sum(map(Decimal, parts))) == bound


def test_bounds_begin_with_the_threshold_of_the_rules() -> None:
    assert '"petal length (cm)" <= 2.45 + 1.668930049e-07 THEN' in write(small_model())
    assert '"petal length (cm)" <= 2.45 THEN' in write(small_model("float64"))


def test_text_among_numbers_gives_null_and_collations_are_overridden() -> None:
    query = write(small_model())
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            'CREATE TABLE rows ("petal length (cm)", "Contract" TEXT COLLATE NOCASE)'
        )
        cells = [(9, "Two year"), (9, "TWO YEAR"), ("much", "Two year"), (None, None), (2.45, None)]
        connection.executemany("INSERT INTO rows VALUES (?, ?)", cells)
        labels = [row[0] for row in connection.execute(query)]
    assert labels == ["it's", "no", None, "no", "it's"]


@pytest.mark.matrix
def test_nan_is_missing_and_text_is_an_error_in_duckdb() -> None:
    need("duckdb")
    import duckdb

    schema = Schema((Column("x"),), classes=("no", "yes"))
    root = is_missing("x", leaf([1, 0]), threshold("x", 1.5, leaf([1, 0]), leaf([0, 1])))
    query = write(make_model(schema, [build_tree(root, schema)]), dialect="duckdb")
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE rows AS SELECT unnest([1.0, 2.0, 'nan'::DOUBLE]) AS x")
        assert [row[0] for row in connection.execute(query).fetchall()] == ["no", "yes", "no"]
        connection.execute("CREATE OR REPLACE TABLE rows AS SELECT 'abc' AS x")
        with pytest.raises(duckdb.Error):
            connection.execute(query)


def test_forests_and_text_among_numbers_take_other_forms() -> None:
    model = small_model()
    forest = make_model(model.schema, model.trees * 2)
    assert '"form": "readable"' in write(model)
    assert '"form": "case"' in write(model, text="yes")
    assert '"form": "case"' in write(forest)
    with pytest.raises(ExportError, match=r"form='readable' is .* the model has 2 trees"):
        write(forest, form="readable")
    with pytest.raises(ExportError, match="text='yes' was set"):
        write(model, form="readable", text="yes")


def test_typed_tables_need_no_handling_of_text(tmp_path: Path) -> None:
    model = small_model()
    forest = make_model(model.schema, model.trees * 2)
    lines = {text: len(write(forest, text=text).splitlines()) for text in ("no", "yes")}
    assert lines["no"] < lines["yes"] - 8
    for dialect in ("sqlite", "duckdb"):
        if dialect == "duckdb":
            pytest.importorskip("duckdb")
        path = tmp_path / f"{dialect}.sql"
        path.write_text(write(forest, text="no", dialect=dialect, form="case"), encoding="utf-8")
        rows = extreme_rows(forest)
        _, told = next(find_runner(path).run_rows(path, forest.schema, rows))
        assert not len(differing(wanted(forest, rows), told))


# ---------------------------------------------------------------- dialects that are not run


@pytest.mark.parametrize("dialect", WAREHOUSES)
def test_other_dialects_are_parsed_as_they_were_written(dialect: str) -> None:
    columns = (Column("length"), Column("it is`[a]", "nominal", ("it's", "x\\y", "z")))
    if dialect == "bigquery":
        with pytest.raises(ExportError, match=r"contains '\['?.* BigQuery does not allow"):
            write(tree_of(columns), dialect=dialect)
        columns = (columns[0], Column("it is", "nominal", ("it's", "x\\y", "z")))
    model = tree_of(columns)
    text = write(model, dialect=dialect, table="s.rows", keys="id")
    body = text[text.index("WITH") :]
    (parsed,) = sqlglot.parse(body, read=dialect)
    assert parsed is not None
    names = {cte.alias for cte in parsed.find_all(sqlglot.exp.CTE)}
    assert names == {"cells"}
    levels = {each.this for each in parsed.find_all(sqlglot.exp.Literal) if each.is_string}
    assert {"it's", "x\\y"} <= levels
    found = {each.name for each in parsed.find_all(sqlglot.exp.Column)}
    assert {column.name for column in columns} <= found
    assert "-- This query was parsed by sqlglot, not run" in text


def tree_of(columns: tuple[Column, ...], **more: Any) -> Model:
    schema = Schema(columns, "kind", classes=(True, False), **more)
    branches = {"it's": leaf([1, 0]), "x\\y": leaf([0, 1]), "z": leaf([3, 1])}
    inner = multiway(columns[1].name, branches, missing=2)
    root = threshold(0, AT, leaf([0, 9]), inner, missing=1)
    return make_model(schema, [build_tree(root, schema)])


def test_other_dialects_refuse_by_name_what_they_cannot_compare() -> None:
    model = small_model()
    with pytest.raises(ExportError, match=r"Snowflake has nested CASE .* the model has 2 trees"):
        write(make_model(model.schema, model.trees * 2), dialect="snowflake")
    with pytest.raises(ExportError, match=r"Oracle has nested CASE .* form='case' was set"):
        write(model, dialect="oracle", form="case")
    levels = ("Yes", "yes ")
    schema = Schema((Column("c", "nominal", levels),), classes=("a", "b"))
    root = build_tree(subset("c", ["Yes"], leaf([1, 0]), leaf([0, 1])), schema)
    for dialect in ("tsql", "mysql"):
        with pytest.raises(ExportError, match="'Yes' and 'yes ' of 'c' may be equal"):
            write(make_model(schema, [root]), dialect=dialect)
    assert "= 'Yes' THEN" in write(make_model(schema, [root]), dialect="clickhouse")


def test_each_dialect_cleans_numbers_and_text_in_its_way() -> None:
    texts = {name: write(small_model_of_words(), dialect=name) for name in WAREHOUSES}
    assert 'NULLIF(t."length", CAST(\'NaN\' AS DOUBLE)) AS "length"' in texts["snowflake"]
    assert "CASE WHEN IS_NAN(t.`length`) THEN NULL ELSE t.`length` END" in texts["bigquery"]
    assert 'CASE WHEN isNaN(t."length") THEN NULL' in texts["clickhouse"]
    assert "t.[length] AS [length]" in texts["tsql"]
    assert "t.[word] COLLATE Latin1_General_100_BIN2 AS [word]" in texts["tsql"]
    assert "t.`word` COLLATE utf8mb4_bin AS `word`" in texts["mysql"]
    assert 'NULLIF(TO_BINARY_DOUBLE(t."length"), BINARY_DOUBLE_NAN)' in texts["oracle"]
    assert 'FROM "rows" t' in texts["oracle"]
    assert "TO_BINARY_DOUBLE(CASE" in texts["oracle"]
    assert "THEN 1.0e0" in texts["databricks"]


def small_model_of_words() -> Model:
    schema = Schema(
        (Column("length"), Column("word", "nominal", ("a", "b"))), classes=("no", "yes")
    )
    inner = subset("word", ["a"], leaf([3, 1]), leaf([1, 4]), missing=0)
    root = threshold(0, AT, leaf([0, 9]), inner, missing=1)
    return make_model(schema, [build_tree(root, schema)])
