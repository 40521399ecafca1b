"""Nearest changes of a row to another prediction, compared with a search of all values."""

from __future__ import annotations

import itertools
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treekit_counterfactuals

import treekit
from tests.explain.test_explain import (
    call,
    cells,
    codes,
    model,
    oblique_model,
    rows_of,
    rules_model,
    saved,
    surrogates_model,
)
from tests.reference.models import mixed_schema, random_model
from tests.serve.test_json_routes import MODELS, ask, refusal
from tests.serve.test_page import browser, page, served
from treekit.data.schema import Column, Schema
from treekit.errors import SettingError
from treekit.explain import explain
from treekit.model.builder import (
    Node,
    build_tree,
    leaf,
    oblique,
    threshold,
)
from treekit.model.model import Model, make_model
from treekit.model.scoring import predict_from_sums, sum_leaf_values
from treekit.model.tree import Split
from treekit.rules.language import load_language
from treekit.serve.models.repository import Repository
from treekit.serve.scheduling import Service
from treekit.testing import check_explainer

__all__ = ["browser", "model", "page", "saved", "served"]

NAN = math.nan


def changes_of(found):
    """Return the counterfactuals of an explanation, None if there are none."""
    return dict(found.parts).get("counterfactuals")


# ------------------------------------------------------------------------ nearest changes


def oracle(
    model: Model, row: list[float], most: int, is_met: Any = np.not_equal
) -> tuple[float, float]:
    """Least sizes of changes of one and of two columns, by trying every value that could do."""
    with np.errstate(over="ignore"):
        row = codes(model, row)[0].astype(float).tolist()
    choices = [candidates(model, row, feature) for feature in range(model.schema.n_features)]
    now = model.predict({n: [c] for n, c in cells(model, row).items()})[0]
    best = [math.inf, math.inf]
    for count in range(1, most + 1):
        tried, sizes = [], []
        for columns in itertools.combinations(range(len(row)), count):
            for picked in itertools.product(*(choices[column] for column in columns)):
                other = list(row)
                for column, (value, _) in zip(columns, picked, strict=True):
                    other[column] = value
                tried.append(other)
                sizes.append(sum(size for _, size in picked))
        matrix = np.array(tried, dtype=model.schema.dtype)
        said = predict_from_sums(model, sum_leaf_values(model, matrix))
        met = np.flatnonzero(is_met(said, now))
        best[count - 1] = min((sizes[i] for i in met), default=math.inf)
    return best[0], best[1]


def candidates(model: Model, row: list[float], feature: int) -> list[tuple[float, float]]:
    """Values that a column may change to, and how much each change counts."""
    column, x = model.schema.columns[feature], row[feature]
    if column.kind == "nominal":
        return [(float(c), 1.0) for c in range(len(column.levels)) if c != x]
    found: set[float] = set()
    for tree in model.trees:
        own = (tree.kind == Split.THRESHOLD) & (tree.feature == feature)
        found |= set(tree.threshold[own].tolist())
        found |= set(tree.surrogate_threshold[tree.surrogate_feature == feature].tolist())
    ascending = sorted(found)
    if len(ascending) > 1:
        spread = ascending[-1] / 2 - ascending[0] / 2
        spread = spread * 2 or 1.0
    else:
        spread = max([abs(t) for t in ascending] + [abs(x) if math.isfinite(x) else 0.0]) or 1.0
    kind = np.dtype(model.schema.dtype).type
    with np.errstate(over="ignore"):
        above = [float(np.nextafter(kind(t), kind(np.inf))) for t in ascending]
    if not math.isfinite(x):
        return [(v, 1.0) for v in [*ascending, *above, 0.0] if math.isfinite(v)]
    wanted = [v for v in ascending if v < x] + [v for v in above if v > x and math.isfinite(v)]
    return [(v, abs(v - x) / spread) for v in wanted]


@pytest.mark.parametrize("missing", ["direction", "fractional"])
@pytest.mark.parametrize("seed", range(4))
def test_changes_of_one_or_two_columns_are_the_nearest_of_all_values(
    seed: int, missing: str
) -> None:
    schema = Schema(
        (
            Column("a"),
            Column("b"),
            Column("colour", "nominal", ("red", "green", "blue")),
            Column("d"),
        ),
        classes=("no", "yes", "perhaps"),
    )
    model = random_model(seed, schema, n_trees=4, n_splits=9, missing=missing)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        row = [*(rng.normal(size=2) * 10).tolist(), float(rng.integers(3)), float(rng.normal())]
        if rng.random() < 0.5:
            row[int(rng.integers(4))] = NAN
        single, double = oracle(model, row, 2)
        changes = changes_of(explain(model, cells(model, row)))
        assert changes is not None
        assert changes.complete
        found = changes.single[0].size if changes.single else math.inf
        assert found == pytest.approx(single)
        pair = changes.pair.size if changes.pair else math.inf
        assert pair == pytest.approx(double if double < single else math.inf)


@pytest.mark.parametrize("seed", range(4))
def test_changes_are_the_nearest_for_fractional_instances(seed: int) -> None:
    columns = (Column("a"), Column("b"), Column("colour", "nominal", ("red", "green", "blue")))
    schema = Schema(columns, task="regression")
    model = random_model(seed, schema, n_trees=3, n_splits=7, missing="fractional")
    for row in ([NAN, 0.5, 1.0], [2.0, NAN, 0.0], [-1.0, 0.25, NAN]):
        single, _ = oracle(model, row, 1, np.greater)
        given = cells(model, row)
        now = float(model.predict({name: [cell] for name, cell in given.items()})[0])
        changes = changes_of(explain(model, given, changes=1, wish=f"> {now!r}"))
        found = changes.single[0].size if changes.single else math.inf
        assert found == pytest.approx(single)


def test_changes_are_the_nearest_for_surrogates_and_rule_lists() -> None:
    for one, row in (
        (surrogates_model(), [20.0, 1.0, 7.0]),
        (surrogates_model(), [NAN, 2.0, 1.0]),
        (surrogates_model(), [40.0, NAN, NAN]),
        (rules_model(), [1.0, 0.0]),
        (rules_model(), [3.0, 1.0]),
        (rules_model(), [NAN, 2.0]),
    ):
        single, double = oracle(one, row, 2)
        changes = changes_of(explain(one, cells(one, row)))
        assert changes is not None
        found = changes.single[0].size if changes.single else math.inf
        # Columns of whole numbers take these alone: the least one is not nearer.
        assert math.isinf(found) == math.isinf(single)
        assert found >= single - 1e-9
        if math.isinf(single):
            assert (changes.pair is None) == math.isinf(double)


@pytest.mark.parametrize("seed", range(6))
def test_changes_are_the_nearest_for_oblique_splits(seed: int) -> None:
    schema = Schema(tuple(map(Column, "xyzw")), classes=("no", "yes", "perhaps"))
    rng = np.random.default_rng(seed)
    model = make_model(schema, [build_tree(sums_node(rng, 3), schema) for _ in range(4)])
    row = rng.normal(size=4).astype(np.float32)
    now = predict_from_sums(model, sum_leaf_values(model, row[None]))[0]
    changes = changes_of(explain(model, row.copy()))
    assert changes is not None
    found = {change.cells[0].column: change for change in changes.single}
    for feature, name in enumerate(schema.names):
        rows = np.repeat(row[None], 2001, axis=0)
        rows[:, feature] = np.linspace(row[feature] - 9, row[feature] + 9, 2001)
        moved = np.abs(rows[:, feature].astype(float) - float(row[feature]))
        least = moved[predict_from_sums(model, sum_leaf_values(model, rows)) != now].min(
            initial=math.inf
        )
        if name not in found:
            assert math.isinf(least)
            continue
        said = abs(float(found[name].cells[0].after) - float(row[feature]))
        assert least >= said / 1.1 - 1e-6  # a round number may lie a tenth further


def sums_node(rng: np.random.Generator, depth: int) -> Node:
    if depth == 0:
        return leaf(rng.integers(1, 9, size=3).tolist())
    below = sums_node(rng, depth - 1), sums_node(rng, depth - 1)
    if rng.random() < 0.4:
        return threshold(int(rng.integers(4)), float(np.float32(rng.normal())), *below)
    columns = rng.choice(4, size=rng.integers(2, 4), replace=False)
    weights = {int(column): float(rng.normal()) for column in columns}
    return oblique(weights, float(rng.normal()), *below, missing=int(rng.integers(2)))


def test_pairs_of_columns_of_one_oblique_split_are_omitted_and_reported() -> None:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    tree = build_tree(oblique({"x": 1.0, "y": 1.0}, 3.5, leaf([9, 1]), leaf([4, 1])), schema)
    found = explain(make_model(schema, [tree]), {"x": 1, "y": 1})
    assert changes_of(found) is not None
    assert changes_of(found).apart == 1
    assert "were not searched: 1" in found.text()


def test_changed_values_are_rounded_as_far_as_the_prediction_allows() -> None:
    schema = Schema((Column("age"), Column("price")), classes=("no", "yes"))
    trees = [
        build_tree(threshold("age", 30.5, leaf([1, 0]), leaf([0, 1])), schema),
        build_tree(
            threshold("price", float(np.float32(0.0123)), leaf([1, 0]), leaf([0, 1])), schema
        ),
    ]
    first, second = (make_model(schema, [tree]) for tree in trees)
    assert changed(first, {"age": 28, "price": 1}) == ("age", "28", "31")
    assert changed(first, {"age": 28.25, "price": 1}) == ("age", "28.25", "30.51")
    assert changed(first, {"age": 64, "price": 1}) == ("age", "64", "30")
    assert changed(second, {"age": 1, "price": 0.01}) == ("price", "0.01", "0.01231")
    assert changed(first, {"price": 1})[1] is None


def changed(model: Model, row: dict[str, Any]) -> tuple[str, str | None, str]:
    changes = changes_of(explain(model, row, absent="missing"))
    assert changes is not None
    (cell,) = changes.single[0].cells
    return cell.column, cell.before, cell.after


def test_two_columns_are_changed_if_one_is_not_enough() -> None:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    deep = threshold("y", 5.5, leaf([5, 1]), leaf([0, 9]))
    model = make_model(
        schema, [build_tree(threshold("x", 2.5, leaf([5, 0]), deep), schema)], voting="hard"
    )
    changes = changes_of(explain(model, {"x": 1, "y": 1}))
    assert changes is not None
    assert changes.single == ()
    assert changes.pair is not None
    assert [(c.column, c.after) for c in changes.pair.cells] == [("x", "3"), ("y", "6")]
    assert changes_of(explain(model, {"x": 1, "y": 1}, fixed=["y"])).pair is None  # type: ignore[union-attr]
    one = explain(model, {"x": 1, "y": 1}, changes=1)
    assert "no change of one of the free columns" in one.text()


def test_search_stopped_by_its_budget_is_reported() -> None:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    deep = threshold("y", 5.5, leaf([5, 1]), leaf([0, 9]))
    tree = build_tree(threshold("x", 2.5, leaf([5, 0]), deep), schema)
    model = make_model(schema, [tree])
    stopped = explain(model, {"x": 1, "y": 1}, budget=0)
    assert changes_of(stopped) is not None
    assert not changes_of(stopped).complete
    assert "undecided: the search was stopped" in stopped.text()
    whole = explain(model, {"x": 1, "y": 1})
    assert changes_of(whole) is not None
    assert changes_of(whole).complete
    assert "two columns together: x: 1 to 3 and y: 1 to 6" in whole.text()


def test_distances_are_scaled_by_the_median_deviation_of_the_table() -> None:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    deep = threshold("y", 10.5, leaf([9, 1]), leaf([1, 9]))
    tree = build_tree(threshold("x", 10.5, deep, leaf([0, 9])), schema)
    model = make_model(schema, [tree])
    row = {"x": 5, "y": 6}
    table = {"x": [0.0, 100.0, 200.0, 300.0], "y": [5.0, 6.0, 7.0, 8.0]}
    assert changed(model, row)[0] == "y"
    changes = changes_of(explain(model, row, table=table))
    assert changes is not None
    assert [c.cells[0].column for c in changes.single] == ["x", "y"]
    assert changes.single[0].size == pytest.approx(6 / 100)


def test_requested_predictions_are_labels_or_ranges() -> None:
    model = random_model(1, mixed_schema(("a", "b", "c")), n_trees=1)
    row = cells(model, [0.5, 1.0, 2.0, 3.0, NAN])
    said = explain(model, row).says[0].label
    assert changes_of(explain(model, row, wish=str(said))).met  # type: ignore[union-attr]
    with pytest.raises(SettingError, match="'d' is not a class of 'target'"):
        explain(model, row, wish="d")
    numbers, row = oblique_model(), {"x": 1, "y": None, "z": None}
    assert changes_of(explain(numbers, row)) is None
    with pytest.raises(SettingError, match="not a numeric range"):
        explain(numbers, row, wish="about 3")
    with pytest.raises(SettingError, match="no target 'w'"):
        explain(numbers, row, wish="> 3", target="w")
    with pytest.raises(SettingError, match="no column 'w' to keep"):
        explain(numbers, row, fixed=["w"])
    with pytest.raises(SettingError, match="from 0 to 2"):
        explain(numbers, row, changes=3)


def test_all_changes_have_texts_in_both_languages(model):
    wish = ">= 0" if model.schema.task == "regression" else None
    for row in rows_of(model, 3, seed=2):
        found = explain(model, cells(model, row), tree=0, wish=wish)
        for code in ("en", "zh"):
            text = found.text(load_language(code))
            assert "{" not in text.replace("{" + '"', "").replace('{"', "")
        assert ("counterfactuals" in found.plain()) == (not found.refused)
        json.dumps(found.plain(), allow_nan=False)


def test_phrases_are_complete_in_both_languages():
    folder = Path(treekit_counterfactuals.__file__).parent / "phrases"
    english, chinese = (
        tomllib.loads((folder / f"{code}.toml").read_text()) for code in ("en", "zh")
    )
    assert english.keys() == chinese.keys()
    for key, phrase in english.items():
        assert set(re.findall(r"\{(\w+)\}", chinese[key])) == set(re.findall(r"\{(\w+)\}", phrase))


def test_the_command_finds_changes(saved, tmp_path):
    assert 'town: "Bonn" to "Ulm, old"' in call(saved, "--row", "age=41,town=Bonn")
    fixed = call(saved, "--row", 'age=41,"town=Ulm, old"', "--fixed", "age,town")
    assert "no change of one or two" in fixed
    refused = call(saved, "--row", "age=1,town=Bonn", "--wish", "perhaps", code=2)
    assert "is not a class" in " ".join(refused.split())


def test_explainer_passes_the_contract_checks():
    check_explainer("counterfactuals")


@pytest.mark.parametrize("wish", ["TRUE", "True", "true"])
def test_a_requested_prediction_is_found_in_any_notation(wish):
    rows = {"size": [1, 2, 3, 4] * 5, "windy": [True, False, True, False] * 5}
    model = treekit.train(rows, "windy", seed=0)
    assert model.explain({"size": 2}, wish=wish) == model.explain({"size": 2}, wish="True")


def test_the_server_explains_with_changes(tmp_path):
    MODELS["pulse"]().save(tmp_path / "pulse.treekit")
    repository = Repository([tmp_path])
    repository.refresh()
    service = Service(repository)
    row = {"pulse": "70", "pain": "severe"}
    body = {"model": "pulse", "row": row, "wish": "home", "fixed": ["pain"]}
    given = ask(service, "POST", "/explain", body).json()
    found = explain(MODELS["pulse"](), row, changes=1, wish="home", fixed=["pain"])
    assert given["explanation"] == json.loads(json.dumps(found.plain()))
    (cell,) = changes_of(found).single[0].cells
    assert (cell.column, cell.before) == ("pulse", "70")
    refused = ask(service, "POST", "/explain", body | {"wish": "hom"})
    assert "did you mean 'home'" in refusal(refused)
    refused = ask(service, "POST", "/explain", body | {"target": "wher"})
    assert "did you mean 'where'" in refusal(refused)


@pytest.mark.system
def test_prediction_changes_when_the_nearest_change_is_applied(page):
    page.open("melon", row=json.dumps({"density": "0.5", "sugar": "2"}))
    before = page.settle(to_the_end=True).text("#answer .is")
    promised = page.text("#change li strong")
    page.click("#change li button")
    page.answered()
    assert before != promised
    assert page.text("#answer .is") == promised
    assert page.text("#answer .was") == before
