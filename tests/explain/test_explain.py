"""Explanations: exact sums of contributions, decision paths, texts."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from tests.reference.models import mixed_schema, probe_rows, random_model, text_row
from treekit.cli import main
from treekit.data.schema import Column, Output, Schema
from treekit.errors import DataError
from treekit.explain import explain
from treekit.model.builder import (
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    rule,
    subset,
    threshold,
)
from treekit.model.model import Model, make_model
from treekit.model.scoring import leaf_indices, sum_leaf_values
from treekit.rules.language import load_language
from treekit.rules.wording import render_conditions

NAN = math.nan


def surrogates_model() -> Model:
    schema = Schema(
        (Column("age"), Column("town", "nominal", ("a", "b", "c")), Column("size")),
        classes=("no", "yes"),
    )
    other = [
        Surrogate("size", 3.5, 1),
        Surrogate("town", levels={"a": 0, "b": 1}),
    ]
    inner = subset("town", ["a"], leaf([3, 1]), leaf([1, 9]), absent=["c"], surrogates=other[:1])
    root = threshold("age", 30.5, leaf([8, 1]), inner, missing=1, surrogates=other)
    return make_model(schema, [build_tree(root, schema)] * 2, missing="surrogate")


def oblique_model() -> Model:
    schema = Schema((Column("x"), Column("y"), Column("z")), task="regression")
    deep = oblique({"x": 0.5, "z": -2.0}, 1.25, leaf(1.5, 3), leaf(-7.25, 4))
    root = oblique({"x": 1.0, "y": -0.75, "z": 0.1}, 0.5, leaf(2.0, 5), deep, missing=0)
    other = threshold("y", 2.0, leaf(1.0), leaf(4.0))
    return make_model(schema, [build_tree(root, schema), build_tree(other, schema)])


def rules_model() -> Model:
    schema = Schema((Column("x"), Column("town", "nominal", ("a", "b", "c"))), classes=(0, 1))
    first = [Surrogate("x", 2.5, 1, above=-1, lost=1), Surrogate("town", levels={"a": 1}, lost=1)]
    second = [Surrogate("x", 9.0, -1, above=1, lost=-1)]
    chain = rule(first, leaf([1, 8]), rule(second, leaf([5, 1]), leaf([2, 3])))
    return make_model(schema, [build_tree(chain, schema)])


def targets_model() -> Model:
    schema = Schema(
        (Column("x"), Column("y")),
        "first",
        classes=("a", "b"),
        more=(Output("second", (1, 2, 3)),),
    )
    deep = threshold("y", 2.5, leaf([3, 1, 0, 2, 2]), leaf([0, 5, 5, 0, 0]), missing=0)
    trees = [threshold("x", at, leaf([6, 1, 2, 2, 3]), deep) for at in (0.5, 1.5, 7.5)]
    return make_model(schema, [build_tree(root, schema) for root in trees])


def margins_model() -> Model:
    schema = Schema((Column("x"), Column("y")), classes=("a", "b", "c"))
    deep = threshold("y", 2.5, leaf([0.3, -1.25, 4.0], 2), leaf([0.1, 0.7, -3.0]), missing=0)
    trees = [threshold("x", at, leaf([-1.5, 0.1, 0.2], 5), deep) for at in (0.5, 1.5, 7.5)]
    built = [build_tree(root, schema, margins=True) for root in trees]
    return make_model(schema, built, combine="sum", link="softmax")


CASES = {
    "votes": lambda: random_model(0, mixed_schema()),
    "one tree": lambda: random_model(1, mixed_schema(("a", "b", "c")), n_trees=1),
    "float64": lambda: random_model(2, mixed_schema(dtype="float64")),
    "hard": lambda: random_model(3, mixed_schema(("a", "b", "c")), voting="hard"),
    "costs": lambda: random_model(4, mixed_schema(), costs=[[0, 5], [1, 0]]),
    "several targets": targets_model,
    "divided": lambda: random_model(6, mixed_schema(), missing="fractional"),
    "divided numbers": lambda: random_model(7, mixed_schema(()), missing="fractional"),
    "numbers": lambda: random_model(8, mixed_schema(())),
    "sums": lambda: random_model(9, mixed_schema(()), combine="sum", link="exp"),
    "margins": margins_model,
    "surrogates": surrogates_model,
    "oblique": oblique_model,
    "rules": rules_model,
}


@pytest.fixture(params=CASES, scope="module")
def model(request: pytest.FixtureRequest) -> Model:
    return CASES[request.param]()


def rows_of(model: Model, n: int, seed: int = 1) -> list[list[float]]:
    """Rows beside thresholds, with missing cells, unseen levels and infinities among them."""
    rows = probe_rows(model, 40, seed)
    return [rows[i] for i in np.random.default_rng(seed).choice(len(rows), n, replace=False)]


def cells(model: Model, row: list[float]) -> dict[str, Any]:
    return dict(zip(model.schema.names, text_row(model.schema, row), strict=True))


def codes(model: Model, row: list[float]) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.array([row]).astype(model.schema.dtype)


# ------------------------------------------------------------------ contributions and ways


def test_contributions_add_up_to_the_integers_of_the_model(model: Model) -> None:
    for row in rows_of(model, 12):
        with np.errstate(over="ignore"):
            found = explain(model, cells(model, row), changes=0)
            expected = sum_leaf_values(model, codes(model, row))[0].tolist()
        for one, total in zip(found.sums, expected, strict=True):
            assert one.bias + sum(units for _, units in one.columns) == one.total
            fine = one.total // total if total else 1
            assert one.total == fine * total
            assert fine == 1 or model.voting == "hard"


def test_contributions_sum_to_the_prediction(model: Model) -> None:
    row = rows_of(model, 1)[0]
    given = cells(model, row)
    found = explain(model, given, changes=0)
    numbers = [one.number(one.total) for one in found.sums]
    if model.margins:
        assert found.says[0].label == model.predict({n: [c] for n, c in given.items()})[0]
    elif model.schema.task == "classification":
        said = model.predict_proba({name: [cell] for name, cell in given.items()})
        assert numbers == np.concatenate([np.ravel(part) for part in said]).tolist()
        assert [s.label for s in found.says] == np.ravel(
            model.predict({name: [cell] for name, cell in given.items()})
        ).tolist()
    elif model.link == "identity":
        answered = model.predict({name: [cell] for name, cell in given.items()})
        assert numbers == np.ravel(answered).tolist() == [one.value for one in found.says]


def test_contributions_are_the_changes_along_the_decision_path() -> None:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    deep = threshold("y", 2.0, leaf([4, 0]), leaf([0, 4]))
    tree = build_tree(threshold("x", 1.0, leaf([6, 2]), deep), schema)
    found = explain(make_model(schema, [tree]), {"x": 5, "y": 7}, changes=0)
    yes = found.sums[1]
    shares = {name: yes.number(units) for name, units in yes.columns}
    assert yes.number(yes.bias) == pytest.approx(6 / 16)
    assert shares == pytest.approx({"x": 4 / 8 - 6 / 16, "y": 1 - 4 / 8})


def test_contributions_of_an_oblique_split_are_shared_equally() -> None:
    model = oblique_model()
    found = explain(model, {"x": 1.0, "y": -3.0, "z": 0.0}, changes=0, tree=0)
    step = found.path[0]
    assert [name for name, _ in step.decided] == ["x", "y", "z"]
    missing = explain(model, {"x": 1.0, "y": None, "z": 0.0}, changes=0, tree=0)
    assert [name for name, _ in missing.path[0].decided] == ["y"]
    assert missing.path[0].why == "lost"


def test_decision_path_ends_in_the_leaf_of_apply(model: Model) -> None:
    for row in rows_of(model, 6):
        found = explain(model, cells(model, row), changes=0, tree=0)
        assert found.leaves[0].node == leaf_indices(model, codes(model, row))[0, 0]
        assert sum(one.part for one in found.leaves) == 1.0
        nodes = [0, *(node for step in found.path for node, _ in step.goes)]
        assert {step.node for step in found.path} | {one.node for one in found.leaves} == set(nodes)


def test_votes_are_counts_of_trees() -> None:
    schema = Schema((Column("x"),), classes=("no", "yes"))
    trees = [
        build_tree(threshold("x", float(t), leaf([3, 1]), leaf([1, 2])), schema) for t in range(5)
    ]
    found = explain(make_model(schema, trees), {"x": 2.5}, changes=0)
    assert found.votes[0].trees == (("no", 2), ("yes", 3))
    numbers = Schema((Column("x"),), task="regression")
    trees = [build_tree(leaf(float(t)), numbers) for t in range(5)]
    found = explain(make_model(numbers, trees), {"x": 2.5}, changes=0)
    assert found.votes[0].quantiles == (0, 1, 2, 3, 4)


def test_a_missing_value_is_explained_with_its_branch_and_reason() -> None:
    model = surrogates_model()
    by_size = explain(model, {"size": 2, "town": "b"}, absent="missing", tree=0)
    assert [step.why for step in by_size.path] == ["surrogate", "answered"]
    assert by_size.path[0].decided == (("size", "2"),)
    lost = explain(model, {"town": "c"}, absent="missing", tree=0)
    assert [step.why for step in lost.path] == ["lost", "lost"]
    assert lost.path[1].decided == (("town", "c"),)
    assert "a category not seen at this node: follows the branch town is" in lost.text()
    assert " is missing: follows the branch " in lost.text()
    divided = random_model(6, mixed_schema(), missing="fractional")
    row = {"size": None, "age": 3.0, "colour": "mauve"}
    found = explain(divided, row, absent="missing", tree=0)
    first = next(step for step in found.path if step.why == "divided")
    assert sum(part for _, part in first.goes) <= 1
    assert [cell.state for cell in found.row[:2]] == ["missing", "unseen"]


def test_unmatched_rule_is_attributed_to_its_failed_condition() -> None:
    model = rules_model()
    found = explain(model, {"x": 1.0, "town": "b"}, changes=0)
    assert [step.why for step in found.path] == ["failed", "held"]
    assert found.path[0].decided == (("x", "1"),)
    assert {name for name, _ in found.sums[0].columns} == {"x"}
    fits = explain(model, {"x": 3.0, "town": "b"}, changes=0)
    assert [step.why for step in fits.path] == ["held"]
    assert {name for name, _ in fits.sums[0].columns} == {"x", "town"}


def test_a_refused_row_names_the_cell_and_the_rule() -> None:
    schema = mixed_schema()
    model = random_model(0, schema, missing="error", unknown="error")
    found = explain(model, {"size": 1.0, "colour": "mauve"}, absent="missing")
    assert found.refused
    assert not found.says
    assert [cell.column for cell in found.row if cell.refused] == [
        "colour", "age", "town", "void",
    ]  # fmt: skip
    text = found.text()
    assert 'colour is "mauve", a category not seen in training' in text
    assert "age is missing, and the model's missing policy is 'error'" in text


# ------------------------------------------------------------------------- rows and texts


def test_rows_of_all_kinds_are_explained_equally() -> None:
    model = oblique_model()
    said = explain(model, {"x": 1.0, "y": 2.5, "z": -1}).says
    assert said == explain(model, np.array([1.0, 2.5, -1])).says
    assert said == explain(model, {"x": "1", "y": "2.5", "z": "-1"}).says
    assert said == explain(model, {"x": [1.0], "y": [2.5], "z": [-1.0]}).says == model.explain(
        [[1.0, 2.5, -1.0]]
    ).says  # fmt: skip
    frame = pd.DataFrame({"x": [1.0], "y": [2.5], "z": [-1.0], "other": ["?"]})
    assert said == explain(model, frame.iloc[0]).says == explain(model, frame).says
    with pytest.raises(DataError, match="no column 'xx'"):
        explain(model, {"xx": 1})
    with pytest.raises(DataError, match="expected one row to explain, got 2"):
        explain(model, np.zeros((2, 3)))
    with pytest.raises(DataError, match="the row has no column of the model"):
        explain(model, {"target": 1})


def test_explanation_phrases_exist_in_both_languages() -> None:
    english, chinese = (load_language(code).phrases for code in ("en", "zh"))
    prefixes = ("choice_", "explain_")
    own = {key for key in english if key.startswith(prefixes)}
    assert own == {key for key in chinese if key.startswith(prefixes)}
    fields = {key: set(re.findall(r"\{(\w+)\}", english[key])) for key in own}
    for key in own:
        assert set(re.findall(r"\{(\w+)\}", chinese[key])) == fields[key], key


@pytest.mark.parametrize("code", ["en", "zh"])
def test_conditions_are_worded_as_in_the_rules(code: str) -> None:
    town = Column("town", "nominal", ("a b", "missing", "c"))
    schema = Schema((Column("age"), town), classes=("no", "yes"))
    deep = subset("town", ["a b", "missing"], leaf([4, 1]), leaf([2, 3]), missing=0)
    inner = threshold("age", 9.5, deep, leaf([1, 1]))
    model = make_model(schema, [build_tree(threshold("age", 2.5, leaf([1, 3]), inner), schema)])
    text = explain(model, {"age": 5, "town": "missing"}, changes=0).text(load_language(code))
    listed = model.rules()
    number = next(k for k, one in enumerate(listed) if one.conditions[-1].levels == town.levels[:2])
    start, stop = listed.bounds(number)
    for condition in render_conditions(listed, start, stop, load_language(code)):
        assert f"  {condition}\n" in text


def test_long_list_of_categories_is_truncated_with_a_count() -> None:
    levels = tuple(f"level{k}" for k in range(40))
    schema = Schema((Column("kind", "nominal", levels),), classes=("no", "yes"))
    split = subset("kind", levels[:30], leaf([4, 1]), leaf([2, 3]))
    text = explain(make_model(schema, [build_tree(split, schema)]), {"kind": "level3"}).text()
    assert "level10, level11 or 18 more" in text


def test_every_explanation_can_be_written_as_text(model: Model) -> None:
    for row in rows_of(model, 3, seed=2):
        found = explain(model, cells(model, row), tree=0)
        for code in ("en", "zh"):
            text = found.text(load_language(code))
            assert "{" not in text.replace("{" + '"', "").replace('{"', "")
        json.dumps(found.plain(), allow_nan=False)


def test_rounded_contributions_sum_to_the_shown_total() -> None:
    model = random_model(8, mixed_schema(()))
    for row in rows_of(model, 8):
        found = explain(model, cells(model, row), changes=0)
        part = found.text().split("Feature contributions")[1].split("\n\n")[0].splitlines()[1:]
        figures = [line.split("  ") for line in part]
        numbers = [next(float(cell) for cell in line if is_figure(cell)) for line in figures]
        assert sum(numbers[:-1]) == pytest.approx(
            numbers[-1], abs=1e-9 * max(1, *map(abs, numbers))
        )


def is_figure(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def test_hostile_names_are_escaped() -> None:
    name, level = "age\u202e\n\nsays {target}", 'b"{value}\x1b[31m'
    schema = Schema(
        (Column(name), Column("{column}", "nominal", ("a", level))), "t\n{x}", classes=("n\t", "y")
    )
    deep = multiway("{column}", {"a": leaf([0, 3]), level: leaf([3, 1])})
    root = is_missing(name, leaf([1, 1]), threshold(name, 1.5, leaf([4, 0]), deep))
    model = make_model(schema, [build_tree(root, schema)])
    found = explain(model, {name: 3, "{column}": level})
    for code in ("en", "zh"):
        text = found.text(load_language(code))
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert r'"age\u202e\n\nsays {target}"' in text
        assert all(line.isprintable() for line in text.split("\n"))
        assert r"b\"{value}\u001b[31m" in text


# ----------------------------------------------------------------------- the command line


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    schema = Schema(
        (Column("age"), Column("town", "nominal", ("Bonn", "Ulm, old"))), classes=("no", "yes")
    )
    deep = subset("town", ["Bonn"], leaf([3, 1]), leaf([0, 9]))
    model = make_model(schema, [build_tree(threshold("age", 30.5, leaf([8, 1]), deep), schema)])
    path = tmp_path_factory.mktemp("explain") / "m.treekit"
    model.save(path)
    return path


def call(*args: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["explain", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_the_command_explains_a_row(saved: Path, tmp_path: Path) -> None:
    text = call(saved, "--row", "age=41,town=Bonn")
    assert text.startswith("target is no, with probability 0.7500\n")
    assert "1  age > 30.5     it is 41\n  2  town is Bonn   it is" in text
    assert call(saved, "--row", 'age=41,"town=Ulm, old"') == call(
        saved, "--set", "age=41", "--set", "town=Ulm, old"
    )
    partial = call(saved, "--row", "age=41", "--absent", "missing")
    assert "town" in partial.split("Missing")[1]
    assert "回答" in call(saved, "--row", "age=41,town=Bonn", "--lang", "zh")
    call(saved, "--row", "age=41,town=Bonn", "-o", tmp_path / "e.txt")
    assert (tmp_path / "e.txt").read_text() == text


def test_the_command_reads_json_and_rows_of_a_table(saved: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text('age,town,other\n3,Bonn,1\n41,"Ulm, old",2\n')
    plain = json.loads(call(saved, "--row", '{"age": 41, "town": "Ulm, old"}', "--json"))
    assert plain["says"][0]["label"] == "yes"
    numbered = json.loads(call(saved, "--table", table, "--row", 1, "--json"))
    assert numbered["sums"] == plain["sums"]
    said = call(saved, "--table", table, "--row", 2, code=2)
    assert "there is no row 2; rows are numbered from 0 to 1" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "no row is given; use --row 'age=..."),
        (("--row", "agee=41"), "did you mean 'age'?"),
        (("--row", "age=41,age=42"), "names 'age' twice"),
        (("--row", "41"), "add --table to choose a row by number"),
        (("--row", "{"), "not a JSON object"),
        (("--row", '{"age":' + "[" * 50_000), "not a JSON object"),
        (("--row", '{"age": [1]}'), "a cell must be a single value"),
        (("--row", "age=old,town=Bonn"), "numeric but row 0"),
        (("--row", "age=41"), "the row has no column 'town'"),
        (("--row", "age=1", "--tree", 2), "there is no tree 2"),
        (("--row", "age=1", "--lang", "tlh"), "unknown language 'tlh'"),
        (("--row", "age=1", "--fixed", "ag"), "did you mean 'age'?"),
    ],
)
def test_invalid_arguments_are_reported(
    saved: Path, options: tuple[object, ...], said: str
) -> None:
    assert said in " ".join(call(saved, *options, code=2).split())


@pytest.mark.parametrize("scale", [1e-100, 1e-20, 1.0, 1e200])
def test_numbers_of_any_size_are_written_with_few_digits(scale: float) -> None:
    schema = Schema((Column("a"),), task="regression", dtype="float64")
    tree = threshold("a", 1.5, leaf(scale, weight=1.0), leaf(-4 * scale, weight=1.0))
    text = explain(make_model(schema, [build_tree(tree, schema)]), {"a": 1}).text()
    average, added, together = (line.split()[1:] for line in text.split("\n")[-4:-1])
    assert float(average[-1]) == pytest.approx(-1.5 * scale, rel=1e-3)
    assert float(added[0]) == pytest.approx(2.5 * scale, rel=1e-3)
    assert float(together[0]) == pytest.approx(scale, rel=1e-3)
    assert max(map(len, (average[-1], added[0], together[0]))) < 16
