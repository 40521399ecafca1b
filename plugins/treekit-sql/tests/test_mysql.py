"""SQL for MySQL predicts equal bits on a server of MariaDB."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from treekit_sql.exporter import export_sql
from treekit_sql.run_sql import MYSQL, MySQLEngine

from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference.models import mixed_schema, probe_rows, random_model
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.verify import verify
from treekit.verify.answers import differing
from treekit.verify.run_artifact import find_runner

LARGEST = float(np.finfo(np.float64).max)
WORDS = (
    "a",
    "A",
    "a ",
    "á",
    "it's",
    'x"y',
    "x\\y",
    "\\",
    "\\'",
    "%s",
    "国",
    "😀",
    "a\nb",
    "n\0",
    "",
)

FRACTIONAL = ("fractional", "fractional_numbers", "fractional_wide", "fractional_unequal")
REFUSED = {
    "a query of MySQL returns up to 1000 columns": ("thousand_classes",),
    "a table of MySQL has up to 1000 columns": ("two_thousand_features",),
    "contains '🐧', which MySQL does not allow": ("hostile_names", "hostile_numbers"),
    "for MySQL, models are written as CASE .* a split sums columns": ("oblique",),
    "for MySQL, models are written as CASE .* divides rows among branches": FRACTIONAL,
}


@pytest.fixture
def engine(mysql: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MySQLEngine]:
    monkeypatch.setenv(MYSQL, mysql)
    made = MySQLEngine()
    yield made
    made.close()


def write(model: Model, **settings: Any) -> str:
    return export_sql(model, "m", dialect="mysql", **settings)["m.sql"].decode()


def check(model: Model, folder: Path, rows: Any, **settings: Any) -> None:
    path = folder / "m.sql"
    path.write_text(write(model, **settings), encoding="utf-8", newline="")
    rows = np.clip(np.asarray(rows, dtype=np.float64), -LARGEST, LARGEST)
    expected = wanted(model, rows)
    ((_, told), _) = find_runner(path).run_rows(path, model.schema, rows)
    assert not len(differing(expected, told))


@pytest.mark.system
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_models_predict_the_same_bits_or_are_refused(name: str, tmp_path: Path) -> None:
    model = EXTREMES[name]()
    refused = [message for message, names in REFUSED.items() if name in names]
    if refused:
        with pytest.raises(ExportError, match=refused[0]):
            write(model)
        return
    small = model.n_nodes < 1000
    check(model, tmp_path, extreme_rows(model, most=300 if small else 20))
    if small:
        check(model, tmp_path, extreme_rows(model, most=20), form="case")


@pytest.mark.system
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("seed", range(8))
def test_random_models_predict_the_same_bits(seed: int, tmp_path: Path) -> None:
    classes = ("no", "yes", "may\nbe -- '\\\"") if seed % 3 else ()
    schema = mixed_schema(classes, dtype=("float32", "float64")[seed % 2])
    model = random_model(seed, schema, n_trees=1 + seed // 4 * 9, n_splits=12)
    missing, unknown = ("direction", "error")[seed // 2 % 2], ("missing", "error")[seed % 2]
    model = replace(model, missing=missing, unknown=unknown)
    check(model, tmp_path, probe_rows(model, 60, seed))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"form": "table"}, "form='table' was set"),
        ({"form": "expression"}, "form='expression' was set"),
        ({"text": "yes"}, "text='yes' was set"),
        ({"refuse": "error"}, "refuse='error' was set"),
    ],
)
def test_settings_of_other_engines_are_refused(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ExportError, match=f"for MySQL, .* {reason}: choose one of the dialects"):
        write(random_model(0, mixed_schema(), n_trees=2, n_splits=3), **settings)


def model_of_words(words: Sequence[str]) -> Model:
    """Return a model whose label is the category of a cell, and "other" for others."""
    schema = Schema((Column("c", "nominal", tuple(words)),), classes=(*words, "other"))
    leaves = [leaf(row) for row in np.eye(len(words) + 1).tolist()]
    root = leaves.pop()
    for word, own in zip(words, leaves, strict=True):
        root = subset("c", [word], own, root, missing=1)
    return make_model(schema, [build_tree(root, schema)])


def fill(engine: MySQLEngine, kind: str, cells: Sequence[Any], column: str = "c") -> None:
    with engine.connection.cursor() as cursor:
        cursor.execute("DROP TEMPORARY TABLE IF EXISTS `rows`")
        cursor.execute(f"CREATE TEMPORARY TABLE `rows` (`{column}` {kind})")
        cursor.executemany("INSERT INTO `rows` VALUES (%s)", [[cell] for cell in cells])


def predict(engine: MySQLEngine, query: str) -> list[Any]:
    return [row[0] for row in engine.run_query(query, math.inf)]


@pytest.mark.system
@pytest.mark.parametrize("mode", ["", "NO_BACKSLASH_ESCAPES", "HIGH_NOT_PRECEDENCE", "ANSI_QUOTES"])
@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_bin"])
def test_categories_are_compared_by_bytes_under_any_collation_and_sql_mode(
    collation: str, mode: str, engine: MySQLEngine
) -> None:
    fill(
        engine, f"VARCHAR(20) CHARACTER SET utf8mb4 COLLATE {collation}", [*WORDS, "B", "á ", None]
    )
    engine.connection.query(f"SET sql_mode = '{mode}'")
    for form in ("readable", "case"):
        answers = predict(engine, write(model_of_words(WORDS), form=form))
        assert answers == [*WORDS, "other", "other", "other"]


@pytest.mark.system
def test_columns_of_other_character_sets_match_the_same_categories(engine: MySQLEngine) -> None:
    words = ("a", "A", "é", "É")
    query = write(model_of_words(words))
    for kind in ("VARCHAR(9) CHARACTER SET latin1", "TEXT CHARACTER SET utf16"):
        fill(engine, kind, [*words, "e"])
        assert predict(engine, query) == [*words, "other"]
    fill(engine, "ENUM('A', 'é') CHARACTER SET latin1", ["A", "é"])
    assert predict(engine, query) == ["A", "é"]


def model_of_letter(letter: str) -> Model:
    """Return a model that predicts 1 for a category, 3 for the others, 2 for no category."""
    schema = Schema((Column("c", "nominal", (letter, "b", "c")),), task="regression")
    rest = subset("c", ["b", "c"], leaf(3.0), leaf(2.0), missing=1)
    return make_model(schema, [build_tree(subset("c", [letter], leaf(1.0), rest, 1), schema)])


@pytest.mark.system
def test_utf8_file_predicts_equally_over_a_latin1_connection(engine: MySQLEngine) -> None:
    fill(engine, "VARCHAR(9) CHARACTER SET utf8mb4", ["é", "b", "e", None])
    engine.connection.query("SET NAMES latin1")
    query = write(model_of_letter("é"))
    for encoding in ("utf-8", "latin1"):  # the bytes of a file, or of the text
        engine.connection.encoding = encoding
        assert predict(engine, query) == [1.0, 3.0, 2.0, 2.0]


@pytest.mark.system
def test_exclusions_do_not_depend_on_the_precedence_of_not(engine: MySQLEngine) -> None:
    schema = Schema((Column("c", "nominal", ("a", "b", "c")),), task="regression")
    rest = subset("c", ["b"], leaf(2.0), leaf(3.0), missing=0)
    root = build_tree(subset("c", ["a", "b"], rest, leaf(1.0), missing=1), schema)
    model = make_model(schema, [root])
    fill(engine, "VARCHAR(9)", ["a", "b", "c", "d", None])
    expected = model.predict({"c": ["a", "b", "c", "d", None]}).tolist()
    engine.connection.query("SET sql_mode = 'HIGH_NOT_PRECEDENCE'")
    for form in ("readable", "case"):
        query = write(model, form=form)
        assert "NOT" in query
        assert predict(engine, query) == expected


def test_non_ascii_categories_are_shown_in_comments_they_cannot_close() -> None:
    assert "`c` = _utf8mb4 x'e59bbd' /* 国 */ THEN" in write(model_of_letter("国"))
    for letter in ("国*/ DROP", "国/*", "!国", "M!国", "国\n", "国--"):
        query = write(model_of_letter(letter))
        body = query[query.index("WITH") :]
        shown = letter.isprintable() and not {"*", "/"} & {*letter}
        assert body.count("/*") == body.count("*/") == shown
        assert "/*!" not in body
        assert "/*M!" not in body


def test_steps_of_a_forest_are_computed_once() -> None:
    query = write(random_model(0, mixed_schema(), n_trees=2, n_splits=3))
    assert query.count("LIMIT 18446744073709551615") == query.count(" AS (") > 2
    assert "MATERIALIZED" not in query


def numbers_model(at: float, dtype: str) -> Model:
    schema = Schema((Column("x"),), classes=("no", "yes"), dtype=dtype)
    return make_model(schema, [build_tree(threshold(0, at, leaf([1, 0]), leaf([0, 1]), 1), schema)])


LARGE = [base + k for base in (2**53, 2**54 + 2**30, 10**17) for k in (-1, 0, 1, 2, 3)]
NUMBERS: list[tuple[str, list[Any]]] = [
    ("DOUBLE", [2.45, 2.4500000476837163, math.nextafter(2.45, 3), 1e308, 5e-324, -0.0]),
    ("FLOAT", [2.45, 0.1, 2.0]),
    ("BIGINT", LARGE),
    ("BIGINT UNSIGNED", [2**64 - 1, *LARGE]),
    ("DECIMAL(40, 20)", [Decimal("2.45"), Decimal("2.45000000000000000001"), Decimal("0.1")]),
    ("BOOLEAN", [True, False]),
]


@pytest.mark.system
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("kind", "cells"), NUMBERS, ids=[kind for kind, _ in NUMBERS])
def test_every_type_of_number_is_read_as_a_double(
    kind: str, cells: list[Any], dtype: str, engine: MySQLEngine
) -> None:
    for at in (2.45, 0.1, 0.5, float(2**53), float(2**54), 1e17):
        rounded = float(np.float32(at)) if dtype == "float32" else at
        model = numbers_model(rounded, dtype)
        fill(engine, kind, [*cells, None], "x")
        single = kind == "FLOAT"
        doubles = [float(np.float32(cell)) if single else float(cell) for cell in cells]
        expected = model.predict({"x": np.array([*doubles, math.nan])}).tolist()
        for form in ("readable", "case"):
            assert predict(engine, write(model, form=form)) == expected


@pytest.mark.system
@pytest.mark.parametrize("kind", ["VARCHAR(9)", "LONGTEXT", "VARBINARY(9)", "ENUM('abc', '2')"])
def test_text_in_a_numeric_column_gives_null(kind: str, engine: MySQLEngine) -> None:
    fill(engine, kind, ["abc", "2", None], "x")
    for form in ("readable", "case"):
        assert predict(engine, write(numbers_model(2.5, "float64"), form=form)) == [None] * 3


HOSTILE = "x`; DROP TABLE `rows`; -- ' \" \\ %s {y}"


@pytest.mark.system
def test_hostile_names_are_quoted(engine: MySQLEngine) -> None:
    schema = Schema((Column(HOSTILE),), "y", classes=("*/ no -- ", "'; DROP TABLE `rows`; --"))
    model = make_model(schema, [build_tree(threshold(0, 0.5, leaf([1, 0]), leaf([0, 1])), schema)])
    engine.create_table("rows", [(HOSTILE, "REAL", [0.0, 1.0])])
    assert predict(engine, write(model)) == list(schema.classes)
    assert len(engine.run_query("SELECT * FROM `rows`", math.inf)) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [("x ", "ends with a blank"), ("😀", "contains '😀'"), ("é" * 65, "has 65 characters")],
)
def test_names_that_mysql_rejects_are_refused(name: str, message: str) -> None:
    schema = Schema((Column(name),), task="regression")
    model = make_model(schema, [build_tree(threshold(0, 0.5, leaf(1.0), leaf(2.0)), schema)])
    with pytest.raises(ExportError, match=f"{message}.* MySQL"):
        write(model)


def test_names_that_differ_only_in_case_are_refused() -> None:
    schema = Schema((Column("é"), Column("É")), task="regression")
    model = make_model(schema, [build_tree(threshold(0, 0.5, leaf(1.0), leaf(2.0)), schema)])
    with pytest.raises(ExportError, match="'é' and 'É' are equal in MySQL"):
        write(model)


@pytest.mark.system
def test_verify_runs_a_file_on_the_server_named_in_the_environment(
    engine: MySQLEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del engine
    schema = Schema((Column("x"), Column("c", "nominal", ("a", "A"))), classes=("no", "yes"))
    inner = subset("c", ["a"], leaf([3, 1]), leaf([1, 4]), missing=0)
    model = make_model(schema, [build_tree(threshold(0, 2.5, leaf([0, 9]), inner), schema)])
    path = tmp_path / "m.sql"
    path.write_text(write(model, keys="id"), encoding="utf-8")
    report = verify(model, [path])
    assert report.equal, str(report)
    assert "MariaDB" in report.versions["mysql"]
    path.write_text(write(model).replace("'no'", "'yes'"), encoding="utf-8")
    assert not verify(model, [path]).equal
    monkeypatch.delenv(MYSQL)
    assert f"{MYSQL} is not set" in str(verify(model, [path]))
