"""A single tree as nested CASE: exact in the engines that run it, parsed by other dialects."""

from __future__ import annotations

import itertools
import json
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
from treekit.data.schema import Column, Notation, Schema
from treekit.documents import Listing, render_listing
from treekit.errors import ExportError
from treekit.export.lowering import lower
from treekit.model.builder import build_tree, is_missing, leaf, multiway, subset, threshold
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import Model, make_model
from treekit.rules.measure import training_measures
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


def test_tree_is_written_as_nested_case_with_labels_and_probabilities() -> None:
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


def test_bounds_begin_with_the_digits_of_the_rule_threshold() -> None:
    assert '"petal length (cm)" <= 2.45 + 1.668930049e-07 THEN' in write(small_model())
    assert '"petal length (cm)" <= 2.45 THEN' in write(small_model("float64"))


def test_text_in_a_numeric_column_gives_null_and_collations_are_overridden() -> None:
    query = write(small_model())
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            'CREATE TABLE rows ("petal length (cm)", "Contract" TEXT COLLATE NOCASE)'
        )
        cells = [(9, "Two year"), (9, "TWO YEAR"), ("much", "Two year"), (None, None), (2.45, None)]
        connection.executemany("INSERT INTO rows VALUES (?, ?)", cells)
        labels = [row[0] for row in connection.execute(query)]
    assert labels == ["it's", "no", None, "no", "it's"]


LARGE = [base + k for base in (2**53, 2**54 + 2**30, 10**17) for k in (-1, 0, 1, 2, 3)]
TYPES: dict[str, dict[str, list[Any]]] = {
    "sqlite": {"INTEGER": LARGE},
    "duckdb": {"BIGINT": LARGE, "FLOAT": [2.45, 0.1]},
    "postgres": {"BIGINT": LARGE, "REAL": [2.45, 0.1]},
}
DECIMALS = list(map(Decimal, ("2.45", "2.45000000000000000001", "0.1", "0.10000000000000000001")))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "engine",
    [
        "sqlite",
        pytest.param("duckdb", marks=pytest.mark.matrix),
        pytest.param("postgres", marks=pytest.mark.system),
    ],
)
def test_every_type_of_number_is_read_as_a_double(
    engine: str, dtype: str, request: pytest.FixtureRequest
) -> None:
    need(*(["duckdb"] if engine == "duckdb" else []))
    types = dict(TYPES[engine])
    if engine != "sqlite":
        types["DECIMAL(38, 20)"] = DECIMALS
    for at, (kind, cells), settings_ in itertools.product(
        (2.45, 0.1, float(2**53), float(2**54), 1e17),
        types.items(),
        ({"form": "readable"}, {"form": "case", "text": "no"}, {"form": "rules"}),
    ):
        rounded = float(np.float32(at)) if dtype == "float32" else at
        schema = Schema((Column("x"),), classes=("no", "yes"), dtype=dtype)
        root = threshold(0, rounded, leaf([1, 0]), leaf([0, 1]), missing=1)
        model = make_model(schema, [build_tree(root, schema)])
        if settings_["form"] == "rules":
            form = {"sqlite": "sql"}.get(engine, f"sql-{engine}")
            listing = Listing(model.rules(), training_measures(model.rules()))
            query = "".join(render_listing(form, listing, text=False))
        else:
            query = write(model, dialect=engine, **settings_)
        single = kind in ("FLOAT", "REAL")
        doubles = [float(np.float32(cell)) if single else float(cell) for cell in cells]
        told = run_on_column(engine, kind, cells, query, request)
        assert told == model.predict({"x": np.array(doubles)}).tolist(), (kind, at, settings_)


def run_on_column(
    engine: str, kind: str, cells: list[Any], query: str, request: pytest.FixtureRequest
) -> list[Any]:
    """Return the labels of a query for a table of one column."""
    mark = "%s" if engine == "postgres" else "?"
    if engine == "sqlite":
        connection: Any = sqlite3.connect(":memory:")
    elif engine == "duckdb":
        import duckdb

        connection = duckdb.connect()
    else:
        import psycopg

        connection = psycopg.connect(request.getfixturevalue("postgres"))
    with closing(connection), closing(connection.cursor()) as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE rows (x {kind})")
        cursor.executemany(f"INSERT INTO rows VALUES ({mark})", [[cell] for cell in cells])
        return [row[0] for row in cursor.execute(query).fetchall()]


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("duckdb", marks=pytest.mark.matrix),
        pytest.param("postgres", marks=pytest.mark.system),
    ],
)
def test_typed_table_query_fails_on_a_text_column(
    engine: str, request: pytest.FixtureRequest
) -> None:
    need("duckdb" if engine == "duckdb" else "psycopg")
    schema = Schema((Column("x"),), classes=("no", "yes"), notation=Notation(",", "."))
    root = threshold(0, 1.5, leaf([1, 0]), leaf([0, 1]))
    model = make_model(schema, [build_tree(root, schema)])
    rules = Listing(model.rules(), training_measures(model.rules()))
    for query in (
        write(model, dialect=engine),
        write(model, dialect=engine, form="case", text="no"),
        "".join(render_listing(f"sql-{engine}", rules, text=False)),
    ):
        with pytest.raises(Exception, match=r"No function matches|operator does not exist"):
            run_on_column(engine, "TEXT", ["1.234"], query, request)  # 1234 for the model


def test_text_in_a_numeric_column_makes_every_prediction_column_null() -> None:
    schema = Schema((Column("x"),), classes=("no", "yes"))
    root = threshold(0, 1.5, leaf([2, 1]), leaf([3, 1]))  # the label is always "no"
    query = write(make_model(schema, [build_tree(root, schema)]))
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE rows (x)")
        connection.executemany("INSERT INTO rows VALUES (?)", [["much"], [1.0]])
        text, number = connection.execute(query).fetchall()
    assert text == (None, None, None)
    assert number[0] == "no"


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


def test_forests_and_text_yes_are_not_written_in_the_readable_form() -> None:
    model = small_model()
    forest = make_model(model.schema, model.trees * 2)
    assert '"form": "readable"' in write(model)
    assert '"form": "case"' in write(model, text="yes")
    assert '"form": "case"' in write(forest)
    with pytest.raises(ExportError, match=r"form='readable' is .* the model has 2 trees"):
        write(forest, form="readable")
    with pytest.raises(ExportError, match="text='yes' was set"):
        write(model, form="readable", text="yes")


def test_typed_table_queries_contain_no_text_handling(tmp_path: Path) -> None:
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
def test_queries_in_other_dialects_are_parsed_unchanged(dialect: str) -> None:
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
    hexed = parsed.find_all(sqlglot.exp.HexString)  # of MySQL, which may read \ otherwise
    levels |= {bytes.fromhex(each.this).decode() for each in hexed}
    assert {"it's", "x\\y"} <= levels
    found = {each.name for each in parsed.find_all(sqlglot.exp.Column)}
    assert {column.name for column in columns} <= found
    assert ("-- This query was parsed by sqlglot, not run" in text) == (
        dialect not in ("mysql", "clickhouse")
    )


LONG = ("it's said: " + "blue AND green, " * 9, "it's " * 30, 'say "z", ' * 15, "` " + "[a] " * 30)


@pytest.mark.parametrize("dialect", [*WAREHOUSES, *DIALECTS])
def test_long_lines_are_not_broken_inside_names_and_texts(dialect: str) -> None:
    name = "a column's name OR another's" if dialect == "bigquery" else 'it\'s a `name` OR [b] "c"'
    name = name.replace('"', "") if dialect == "oracle" else name
    schema = Schema((Column(name, "nominal", (*LONG, "z")),), classes=("no", "yes"))
    root = build_tree(subset(0, ["z"], leaf([3, 1]), leaf([1, 4]), missing=0), schema)
    text = write(make_model(schema, [root]), dialect=dialect, keys=json.dumps([name * 2]))
    (parsed,) = sqlglot.parse(text[text.index("WITH") :], read=dialect)
    assert parsed is not None
    assert set(LONG) <= {each.this for each in parsed.find_all(sqlglot.exp.Literal)}
    columns = {each.name for each in parsed.find_all(sqlglot.exp.Column)}
    assert {name, name * 2} <= columns


def tree_of(columns: tuple[Column, ...], **more: Any) -> Model:
    schema = Schema(columns, "kind", classes=(True, False), **more)
    branches = {"it's": leaf([1, 0]), "x\\y": leaf([0, 1]), "z": leaf([3, 1])}
    inner = multiway(columns[1].name, branches, missing=2)
    root = threshold(0, AT, leaf([0, 9]), inner, missing=1)
    return make_model(schema, [build_tree(root, schema)])


def test_other_dialects_refuse_models_they_cannot_compare_exactly() -> None:
    model = small_model()
    with pytest.raises(ExportError, match=r"Snowflake has nested CASE .* the model has 2 trees"):
        write(make_model(model.schema, model.trees * 2), dialect="snowflake")
    with pytest.raises(ExportError, match=r"Oracle has nested CASE .* form='case' was set"):
        write(model, dialect="oracle", form="case")
    levels = ("Yes", "yes ")
    schema = Schema((Column("c", "nominal", levels),), classes=("a", "b"))
    root = build_tree(subset("c", ["Yes"], leaf([1, 0]), leaf([0, 1])), schema)
    with pytest.raises(ExportError, match="'Yes' and 'yes ' of 'c' may be equal"):
        write(make_model(schema, [root]), dialect="tsql")
    assert "= 'Yes' THEN" in write(make_model(schema, [root]), dialect="clickhouse")


def test_each_dialect_converts_numbers_and_text_by_its_functions() -> None:
    texts = {name: write(small_model_of_words(), dialect=name) for name in WAREHOUSES}
    number, nan = 'CAST(t."length" AS DOUBLE)', "CAST('NaN' AS DOUBLE)"
    assert f'NULLIF({number}, {nan}) AS "length"' in texts["snowflake"]
    number = "t.`length` + 0.0e0"
    assert f"CASE WHEN IS_NAN({number}) THEN NULL ELSE {number} END" in texts["bigquery"]
    number = 't."length" + 0.0e0'
    assert f"CASE WHEN isNaN({number}) THEN NULL ELSE {number} END" in texts["clickhouse"]
    assert "CAST(t.[length] AS FLOAT) AS [length]" in texts["tsql"]
    assert "t.[word] COLLATE Latin1_General_100_BIN2 AS [word]" in texts["tsql"]
    assert "CAST(t.`length` AS DOUBLE) AS `length`" in texts["mysql"]
    assert "CAST(CAST(t.`word` AS CHAR CHARACTER SET utf8mb4) AS BINARY)" in texts["mysql"]
    assert "COERCIBILITY(t.`length`) < 5 AS has_text" in texts["mysql"]
    assert 'NULLIF(TO_BINARY_DOUBLE(t."length"), BINARY_DOUBLE_NAN)' in texts["oracle"]
    assert 'FROM "rows" t' in texts["oracle"]
    assert "TO_BINARY_DOUBLE(CASE" in texts["oracle"]
    assert "THEN 1.0e0" in texts["databricks"]


def test_sql_server_texts_are_unicode_literals() -> None:
    schema = Schema((Column("c", "nominal", ("国", "b")),), classes=("非", "yes"))
    root = build_tree(subset("c", ["国"], leaf([1, 0]), leaf([0, 1]), missing=1), schema)
    text = write(make_model(schema, [root]), dialect="tsql")
    assert "WHEN [c] = N'国' THEN N'非'" in text
    assert "ELSE 'yes'" in text


@pytest.mark.parametrize("dialect", ["tsql", "oracle"])
def test_names_and_labels_with_line_breaks_are_refused(dialect: str) -> None:
    attack = "x;\nGO\nDROP TABLE rows;\n"
    for name, level, label in ((attack, "a", "no"), ("c", attack, "no"), ("c", "a", attack)):
        schema = Schema((Column(name, "nominal", (level, "b")),), classes=(label, "yes"))
        root = build_tree(subset(0, [level], leaf([1, 0]), leaf([0, 1]), missing=1), schema)
        with pytest.raises(ExportError, match=r"contains '\\n', which|has several lines"):
            write(make_model(schema, [root]), dialect=dialect)


def small_model_of_words() -> Model:
    schema = Schema(
        (Column("length"), Column("word", "nominal", ("a", "b"))), classes=("no", "yes")
    )
    inner = subset("word", ["a"], leaf([3, 1]), leaf([1, 4]), missing=0)
    root = threshold(0, AT, leaf([0, 9]), inner, missing=1)
    return make_model(schema, [build_tree(root, schema)])
