"""Rules as SQL predict as their model in SQLite, DuckDB and PostgreSQL."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from treekit_sql.layout import format_comment
from treekit_sql.run_sql import POSTGRES, DuckDBEngine, PostgresEngine, SQLiteEngine

from tests.documents.test_documents import chinese_model, kinds, latin
from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference.models import mixed_schema, probe_rows, random_model, text_row
from tests.reference.rule_fits import fitting
from tests.rules.test_rule_models import MODELS, WITH_OTHERS, proved_equal
from tests.runtimes import need
from tests.tiers import by_size, later
from treekit.cli import main
from treekit.data.schema import Column, Schema
from treekit.documents import Listing, make_listing, render_listing
from treekit.documents.files import write_rules
from treekit.errors import ExportError, SettingError
from treekit.model.builder import build_tree, is_missing, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.rules import RuleList
from treekit.rules.language import Language, load_language, load_phrases
from treekit.rules.measure import training_measures
from treekit.rules.rule_list import take_rules
from treekit.testing import check_document
from treekit.verify import verify
from treekit.verify.run_artifact import find_runner

NAN = math.nan
KEY = "row number"
FORM = {"sqlite": "sql", "duckdb": "sql-duckdb", "postgres": "sql-postgres"}
NAMES = [
    *("one_leaf", "float32_extremes", "float64_extremes", "float32_neighbours", "missing_only"),
    *("vanishing", "mark_levels", "hostile_names", "hostile_numbers", "surrogates", "fractional"),
    *("refuses_missing", "refuses_unseen", "refuses_both", "boosted_four", "mixed64_numbers"),
]


@pytest.fixture(params=["sqlite", "duckdb", pytest.param("postgres", marks=pytest.mark.system)])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param == "duckdb":
        need("duckdb")
    if request.param == "postgres":
        monkeypatch.setenv(POSTGRES, request.getfixturevalue("postgres"))
    engines = {"sqlite": SQLiteEngine, "duckdb": DuckDBEngine, "postgres": PostgresEngine}
    made = engines[request.param]()
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


def statements(rules: RuleList, form: str = "sql", **settings: Any) -> list[str]:
    """The queries of a document, with their comments."""
    found, begun = [], ""
    for line in "".join(render_listing(form, listing(rules), **settings)).splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun) and begun.strip():
            found.append(begun)
            begun = ""
    assert not begun.strip()
    return found


def selected(engine: Any, rules: RuleList, n_rows: int) -> Any:
    """(rows, rules) bool: which rows meet the conditions of each rule."""
    found = np.zeros((n_rows, len(rules)), dtype=np.bool_)
    first = 0
    for query in statements(rules, FORM[engine.dialect], each=True, keys=json.dumps([KEY])):
        rows = engine.run_query(query, math.inf)
        width = min(len(rules) - first, 100)
        for number, *met in rows:
            assert len(met) == width
            found[number, first : first + width] = met
        first += width
    assert first == len(rules)
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
def test_conditions_select_the_rows_that_match_their_rules(name: str, engine: Any) -> None:
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
def test_conditions_of_random_models_select_the_rows_that_match_their_rules(
    seed: int, engine: Any
) -> None:
    dtype = ("float32", "float64")[seed % 2]
    schema = mixed_schema(("no", "yes", "maybe"), dtype=dtype)
    model = random_model(seed, schema, n_trees=2, n_splits=20)
    rows = some(probe_rows(model, 60, seed), 100)
    filled(engine, model, rows)
    rules = model.rules()
    fits = fitting(rules, rows)
    assert np.array_equal(selected(engine, rules, len(rows)), fits)
    # In each tree one rule fits, and without `each` the query says which.
    (query,) = statements(rules, FORM[engine.dialect], keys=KEY)
    answers = engine.run_query(query, math.inf)
    told = np.array([row[-2:] for row in answers], dtype=float)
    keys = [row[0] for row in answers]
    for tree in range(2):
        own = np.flatnonzero(rules.tree == tree)
        assert np.array_equal(told[:, tree], 1 + own[fits[keys][:, own].argmax(axis=1)])


def small_model() -> Model:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"), dtype="float64")
    inner = threshold(1, 0.5, leaf([3, 1]), leaf([1, 3]), missing=0)
    return make_model(schema, [build_tree(threshold(0, 2.5, inner, leaf([0, 2])), schema)])


def test_first_matching_rule_predicts_in_ordered_lists(engine: Any) -> None:
    model = small_model()
    rules = model.rules()
    overlapping = replace(rules, order="first", end=np.array([1, 2, 2]))
    rows = np.array([[1.0, 5.0], [9.0, 0.0], [NAN, NAN], [3.0, 9.0], [0.0, 0.0]])
    filled(engine, model, rows)
    fits = fitting(overlapping, rows)
    assert fits.sum(axis=1).max() > 1
    (query,) = statements(overlapping, FORM[engine.dialect], keys=KEY, rule=True)
    answers = {row[0]: row[-1] for row in engine.run_query(query, math.inf)}
    assert [answers[k] for k in range(len(rows))] == (1 + fits.argmax(axis=1)).tolist()


LABELS = [
    *("one_leaf", "one_number", "float32_neighbours", "float64_neighbours", "many_levels_each"),
    *("missing_only", "vanishing", "mark_levels", "bool_labels", "int_labels", "float_labels"),
]


@pytest.mark.parametrize("name", [*by_size(LABELS), 0, 1, *map(later, range(2, 6))])
def test_query_of_one_tree_predicts_as_the_model(
    name: str | int, engine: Any, tmp_path: Path
) -> None:
    if isinstance(name, str):
        model = EXTREMES[name]()
    else:
        classes = ("no", "yes", "may\nbe -- '\"") if name % 3 else ()
        schema = mixed_schema(classes, dtype=("float32", "float64")[name % 2])
        model = random_model(name, schema, n_trees=1, n_splits=12)
        policies = ("missing", "error")
        model = replace(
            model, missing=("direction", "error")[name % 4 // 3], unknown=policies[name % 4 // 2]
        )
    form = FORM[engine.dialect]
    share = bool(model.schema.classes)
    for settings in ({}, {"rule": True, "share": share, "keys": "id"}):
        path = write_rules(model, tmp_path / "m.sql", form, settings=settings)
        report = verify(model, [path])
        assert report.equal, str(report)


def test_simplified_case_returns_the_first_matching_rule(engine: Any) -> None:
    schema = mixed_schema(("no", "yes"))
    for seed in range(4):
        model = random_model(seed, schema, n_trees=1, n_splits=15)
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(model.rules()))[:-3]  # some rows match no rule
        rules = replace(take_rules(model.rules(), order), order="first")
        rows = some(probe_rows(model, 60, seed), 150)
        filled(engine, model, rows)
        (query,) = statements(rules, FORM[engine.dialect], keys=KEY, rule=True)
        found = {row[0]: row[-1] for row in engine.run_query(query, math.inf)}
        for row, own in enumerate(fitting(rules, rows)):
            assert found[row] == (1 + own.argmax() if own.any() else None)


def test_categories_are_compared_by_bytes_under_any_collation(engine: Any) -> None:
    schema = Schema((Column("c", "nominal", ("ab", "é")),), task="regression")
    tree = subset("c", ["ab"], leaf(1.0), leaf(2.0), missing=1)
    rules = make_model(schema, [build_tree(tree, schema)]).rules()
    run = engine.connection.execute
    collation = "COLLATE NOCASE"
    if engine.dialect == "postgres":
        run("CREATE COLLATION pg_temp.loose (provider = icu, locale = 'und-u-ks-level1', "
            "deterministic = false)")  # fmt: skip
        collation = "COLLATE pg_temp.loose"
    run(f"CREATE TEMPORARY TABLE rows (c TEXT {collation})")
    run("INSERT INTO rows VALUES ('ab'), ('AB'), ('e'), ('é'), (NULL)")
    for settings in ({}, {"rule": True}):
        (query,) = statements(rules, FORM[engine.dialect], **settings)
        said = [row[0] for row in engine.run_query(query, math.inf)]
        assert said == [1.0, 2.0, 2.0, 2.0, 2.0]


CASE = """\
  CASE
    WHEN refused = 1 THEN NULL
    WHEN "x" <= 2.5 AND ("y" <= 0.5 OR "y" IS NULL) THEN 'no' -- rule 1, support 4
    WHEN "x" <= 2.5 THEN 'yes' -- rule 2, support 4
    ELSE 'yes' -- rule 3, support 2
  END AS "prediction"
"""


@pytest.mark.parametrize("typed", ["sqlite", pytest.param("duckdb", marks=pytest.mark.matrix)])
def test_rules_of_typed_tables_contain_no_text_handling(typed: str, tmp_path: Path) -> None:
    need(*(["duckdb"] if typed == "duckdb" else []))
    model = random_model(3, mixed_schema(("no", "yes")), n_trees=1, n_splits=40)
    (query,) = statements(model.rules(), FORM[typed], text=False)
    assert "blanks" not in query
    assert "blanks" in "".join(statements(model.rules(), FORM[typed]))
    path = write_rules(model, tmp_path / "rules.sql", form=FORM[typed], settings={"text": False})
    rows = extreme_rows(model, most=200)
    told = next(find_runner(path).run_rows(path, model.schema, rows))[1]
    assert told.label.tolist() == wanted(model, rows).label.tolist()


def test_lines_are_short_and_rules_omit_conditions_implied_by_earlier_ones() -> None:
    model = random_model(3, mixed_schema(("no", "yes")), n_trees=1, n_splits=40)
    for settings in ({}, {"rule": True, "share": True, "keys": "id"}, {"each": True}):
        (query,) = statements(model.rules(), **settings)
        assert max(map(len, query.splitlines())) < 120
    (query,) = statements(small_model().rules(), "sql-postgres")
    assert query.split("FROM checked")[0].split("SELECT\n")[-1] == CASE


def test_text_in_numeric_sqlite_columns_is_missing_or_matches_no_rule() -> None:
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


def test_sums_of_columns_are_refused() -> None:
    with pytest.raises(SettingError, match="sums columns"):
        statements(EXTREMES["oblique"]().rules())


def test_share_setting_is_refused_except_for_one_classification_tree() -> None:
    for name in ("boosted_four", "one_number", "fractional", "mixed"):
        with pytest.raises(SettingError, match="share=True needs a query for the labels of one"):
            statements(EXTREMES[name]().rules(), share=True)


def test_columns_may_be_named_like_a_step_or_an_output(engine: Any) -> None:
    names = ("refused", "rule", "key_0", "cells", "unused")
    schema = Schema(tuple(map(Column, names)), classes=("no", "yes"))
    tree = leaf([1, 0])
    for number in range(len(names)):
        tree = threshold(number, 0.5, tree, leaf([0, 1 + number]), missing=number % 2)
    model = make_model(schema, [build_tree(tree, schema)])
    rows = np.array([[0.0] * 5, [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, NAN, 0.0, 1.0]])
    filled(engine, model, rows)
    (query,) = statements(model.rules(), FORM[engine.dialect], keys="cells", rule=True)
    fits = fitting(model.rules(), rows)
    found = engine.run_query(query, math.inf)
    assert sorted((row[0], row[2]) for row in found) == sorted(
        zip(rows[:, 3].tolist(), (1 + fits.argmax(axis=1)).tolist(), strict=True)
    )


def test_texts_cannot_close_a_comment_or_a_literal(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "a\nDROP TABLE rows; --\r*/ \u2028SELECT 1; \x0bx \x85y"
    assert all(line.startswith("-- ") for line in format_comment(hostile).split("\n") if line)
    assert len(format_comment(hostile).splitlines()) == len(format_comment(hostile).split("\n")) - 1
    schema = Schema((Column("x"),), classes=(hostile, "b"), target=hostile)
    model = make_model(schema, [build_tree(threshold(0, 1.0, leaf([1, 0]), leaf([0, 1])), schema)])
    phrases = {"sql_head": "x\nDROP", "sql_case": "y\rDROP", "sql_each": "\u2028DROP"}
    phrases |= {
        "sql_text": "t\nDROP",
        "sql_typed": "u\nDROP",
        "sql_when": "z\nDROP",
        "sql_rule": "{answer}\nDROP",
    }
    hostile_language = Language("xx", load_language("en").phrases | phrases)
    monkeypatch.setattr("treekit_sql.rules.load_phrases", lambda *_: hostile_language)
    made = listing(model.rules())
    for settings in ({}, {"rule": True}, {"each": True}):
        text = "".join(render_listing("sql", made, **settings))
        lines = text.replace(f"'{hostile}'", "''").splitlines()
        assert not any(line.strip().startswith(("DROP", "SELECT 1")) for line in lines)


@pytest.mark.parametrize("code", ["en", "zh"])
def test_comments_are_in_the_requested_language(code: str) -> None:
    made = replace(listing(small_model().rules()), language=load_language(code))
    phrases = load_phrases(load_language(code), "treekit_sql")
    assert phrases.say("sql_case") in "".join(render_listing("sql", made))


def test_every_word_of_a_chinese_comment_is_chinese() -> None:
    text = "".join(render_listing("sql", make_listing(chinese_model(), words="zh")))
    lines = [line for line in text.splitlines() if line[:2] == "--" and "treekit-sql" not in line]
    names = {"SQL", "SQLite", "NULL", "NaN", "rows", "WHEN", "set", "text", "False"}
    assert latin(" ".join(lines), *names) == set()


@pytest.mark.matrix
def test_a_hundred_thousand_rules_are_written_in_seconds() -> None:
    schema = mixed_schema()
    rules = random_model(1, schema, n_trees=1, n_splits=2000).rules()
    begin = time.process_time()
    size = sum(map(len, render_listing("sql", listing(rules))))
    assert size > 0
    assert (time.process_time() - begin) / len(rules) < 1e-3, json.dumps(size)


# ---------------------------------------------------------------- forms and commands


@pytest.mark.parametrize("form", FORM.values())
def test_every_kind_of_rules_is_written_the_same_twice_or_refused(form: str) -> None:
    for (name, _), one in kinds().items():
        if name == "oblique":
            with pytest.raises(SettingError, match="sums columns"):
                "".join(render_listing(form, one))
            continue
        text = "".join(render_listing(form, one))
        assert text.endswith("\n")
        assert text == "".join(render_listing(form, one))
        text.encode()


@pytest.mark.parametrize("form", FORM.values())
def test_documents_pass_the_contract_checks(form: str) -> None:
    check_document(form)


@pytest.mark.parametrize("name", WITH_OTHERS)
def test_rule_lists_predict_equally_in_sql(name: str, tmp_path: Path) -> None:
    need("duckdb")
    targets = [("sql", {"dialect": dialect}) for dialect in ("sqlite", "duckdb")]
    proved_equal(MODELS[name](), tmp_path, targets)


def call(*words: object, code: int = 0) -> str:
    """Run a command in this process; return what it prints."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def test_command_accepts_forms_and_their_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small_model().save("m.treekit")
    Path("rows.csv").write_text("x,y,target\n1,0,no\n9,1,yes\n", encoding="utf-8")
    for form in FORM.values():
        call("rules", "m.treekit", "--as", form, "-o", f"{form}.x", "--table", "rows.csv")
        assert Path(f"{form}.x").read_text(encoding="utf-8").startswith("-- ")
    call("rules", "m.treekit", "-o", "by.sql")
    call("rules", "m.treekit", "-o", "asked", "--as", "sql")
    assert Path("by.sql").read_bytes() == Path("asked").read_bytes()
    call("rules", "m.treekit", "-o", "r.sql", "--set", "each=true", "--set", "keys=id")
    assert 'AS "rule_1"' in Path("r.sql").read_text(encoding="utf-8")
    said = call("rules", "m.treekit", "--as", "sql", "--set", "x=1", code=2)
    assert "form 'sql' has no setting 'x'" in said
    call("verify", "m.treekit", "by.sql")
