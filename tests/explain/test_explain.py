"""Explanations add up exactly, their ways are the model's, and no nearer change exists."""

from __future__ import annotations

import itertools
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
from treekit.errors import DataError, SettingError
from treekit.explain import explain
from treekit.model.builder import (
    Node,
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
from treekit.model.scoring import leaf_indices, predict_from_sums, sum_leaf_values
from treekit.model.tree import Split
from treekit.rules.language import load_language

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


def test_contributions_are_numbers_of_the_answer(model: Model) -> None:
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


def test_what_a_column_adds_is_the_change_along_the_way() -> None:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    deep = threshold("y", 2.0, leaf([4, 0]), leaf([0, 4]))
    tree = build_tree(threshold("x", 1.0, leaf([6, 2]), deep), schema)
    found = explain(make_model(schema, [tree]), {"x": 5, "y": 7}, changes=0)
    yes = found.sums[1]
    shares = {name: yes.number(units) for name, units in yes.columns}
    assert yes.number(yes.bias) == pytest.approx(6 / 16)
    assert shares == pytest.approx({"x": 4 / 8 - 6 / 16, "y": 1 - 4 / 8})


def test_a_sum_shares_its_change_alike_and_the_rest_goes_to_the_first() -> None:
    model = oblique_model()
    found = explain(model, {"x": 1.0, "y": -3.0, "z": 0.0}, changes=0, tree=0)
    step = found.path[0]
    assert [name for name, _ in step.decided] == ["x", "y", "z"]
    missing = explain(model, {"x": 1.0, "z": 0.0}, changes=0, tree=0)
    assert [name for name, _ in missing.path[0].decided] == ["y"]
    assert missing.path[0].why == "lost"


def test_the_way_told_ends_in_the_leaf_of_the_model(model: Model) -> None:
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


def test_a_missing_value_says_where_it_went_and_why() -> None:
    model = surrogates_model()
    by_size = explain(model, {"size": 2, "town": "b"}, changes=0, tree=0)
    assert [step.why for step in by_size.path] == ["surrogate", "answered"]
    assert by_size.path[0].decided == (("size", "2"),)
    lost = explain(model, {"town": "c"}, changes=0, tree=0)
    assert [step.why for step in lost.path] == ["lost", "lost"]
    assert lost.path[1].decided == (("town", "c"),)
    assert "which the node has not seen" in lost.text()
    divided = random_model(6, mixed_schema(), missing="fractional")
    found = explain(divided, {"size": None, "age": 3.0, "colour": "mauve"}, changes=0, tree=0)
    first = next(step for step in found.path if step.why == "divided")
    assert sum(part for _, part in first.goes) <= 1
    assert [cell.state for cell in found.row[:2]] == ["missing", "unseen"]


def test_a_rule_that_does_not_fit_is_due_to_its_condition() -> None:
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
    found = explain(model, {"size": 1.0, "colour": "mauve"})
    assert found.refused
    assert not found.says
    assert [cell.column for cell in found.row if cell.refused] == [
        "colour", "age", "town", "void",
    ]  # fmt: skip
    text = found.text()
    assert 'colour is "mauve", a category that training did not see' in text
    assert "age is missing, and the model's missing policy is 'error'" in text


# ------------------------------------------------------------------------ nearest changes


def oracle(model: Model, row: list[float], most: int) -> tuple[float, float]:
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
        met = np.flatnonzero(said != now)
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
def test_no_nearer_change_of_one_or_two_columns_exists(seed: int, missing: str) -> None:
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
        changes = explain(model, cells(model, row)).changes
        assert changes is not None
        assert changes.complete
        found = changes.single[0].size if changes.single else math.inf
        assert found == pytest.approx(single)
        pair = changes.pair.size if changes.pair else math.inf
        assert pair == pytest.approx(double if double < single else math.inf)


def test_nearest_changes_of_surrogates_and_rules_are_the_least() -> None:
    for model, row in (
        (surrogates_model(), [20.0, 1.0, 7.0]),
        (surrogates_model(), [NAN, 2.0, 1.0]),
        (surrogates_model(), [40.0, NAN, NAN]),
        (rules_model(), [1.0, 0.0]),
        (rules_model(), [3.0, 1.0]),
        (rules_model(), [NAN, 2.0]),
    ):
        single, double = oracle(model, row, 2)
        changes = explain(model, cells(model, row)).changes
        assert changes is not None
        found = changes.single[0].size if changes.single else math.inf
        # Columns of whole numbers take these alone: the least one is not nearer.
        assert math.isinf(found) == math.isinf(single)
        assert found >= single - 1e-9
        if math.isinf(single):
            assert (changes.pair is None) == math.isinf(double)


@pytest.mark.parametrize("seed", range(6))
def test_no_nearer_value_of_a_column_in_sums_alters_the_answer(seed: int) -> None:
    schema = Schema(tuple(map(Column, "xyzw")), classes=("no", "yes", "perhaps"))
    rng = np.random.default_rng(seed)
    model = make_model(schema, [build_tree(sums_node(rng, 3), schema) for _ in range(4)])
    row = rng.normal(size=4).astype(np.float32)
    now = predict_from_sums(model, sum_leaf_values(model, row[None]))[0]
    changes = explain(model, row.copy()).changes
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


def test_pairs_that_one_sum_asks_for_are_left_out_and_said() -> None:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    tree = build_tree(oblique({"x": 1.0, "y": 1.0}, 3.5, leaf([9, 1]), leaf([4, 1])), schema)
    found = explain(make_model(schema, [tree]), {"x": 1, "y": 1})
    assert found.changes is not None
    assert found.changes.apart == 1
    assert "were not searched: 1" in found.text()


def test_changes_are_said_in_round_numbers_that_do() -> None:
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
    changes = explain(model, row).changes
    assert changes is not None
    (cell,) = changes.single[0].cells
    return cell.column, cell.before, cell.after


def test_two_columns_change_where_one_is_not_enough() -> None:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    deep = threshold("y", 5.5, leaf([5, 1]), leaf([0, 9]))
    model = make_model(
        schema, [build_tree(threshold("x", 2.5, leaf([5, 0]), deep), schema)], voting="hard"
    )
    changes = explain(model, {"x": 1, "y": 1}).changes
    assert changes is not None
    assert changes.single == ()
    assert changes.pair is not None
    assert [(c.column, c.after) for c in changes.pair.cells] == [("x", "3"), ("y", "6")]
    assert explain(model, {"x": 1, "y": 1}, fixed=["y"]).changes.pair is None  # type: ignore[union-attr]
    one = explain(model, {"x": 1, "y": 1}, changes=1)
    assert "no change of one of the columns" in one.text()


def test_a_search_that_is_stopped_says_so() -> None:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    deep = threshold("y", 5.5, leaf([5, 1]), leaf([0, 9]))
    tree = build_tree(threshold("x", 2.5, leaf([5, 0]), deep), schema)
    model = make_model(schema, [tree])
    stopped = explain(model, {"x": 1, "y": 1}, budget=0)
    assert stopped.changes is not None
    assert not stopped.changes.complete
    assert "not decided" in stopped.text()
    whole = explain(model, {"x": 1, "y": 1})
    assert whole.changes is not None
    assert whole.changes.complete
    assert "two columns together: x: 1 to 3 and y: 1 to 6" in whole.text()


def test_a_table_measures_by_its_median_deviation() -> None:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    deep = threshold("y", 10.5, leaf([9, 1]), leaf([1, 9]))
    tree = build_tree(threshold("x", 10.5, deep, leaf([0, 9])), schema)
    model = make_model(schema, [tree])
    row = {"x": 5, "y": 6}
    table = {"x": [0.0, 100.0, 200.0, 300.0], "y": [5.0, 6.0, 7.0, 8.0]}
    assert changed(model, row)[0] == "y"
    changes = explain(model, row, table=table).changes
    assert changes is not None
    assert [c.cells[0].column for c in changes.single] == ["x", "y"]
    assert changes.single[0].size == pytest.approx(6 / 100)


def test_wishes_are_labels_or_ranges() -> None:
    model = random_model(1, mixed_schema(("a", "b", "c")), n_trees=1)
    row = cells(model, [0.5, 1.0, 2.0, 3.0, NAN])
    said = explain(model, row).says[0].label
    assert explain(model, row, wish=str(said)).changes.met  # type: ignore[union-attr]
    with pytest.raises(SettingError, match="'d' is not a class of 'target'"):
        explain(model, row, wish="d")
    numbers = oblique_model()
    assert explain(numbers, {"x": 1}).changes is None
    with pytest.raises(SettingError, match="not a numeric range"):
        explain(numbers, {"x": 1}, wish="about 3")
    with pytest.raises(SettingError, match="no target 'w'"):
        explain(numbers, {"x": 1}, wish="> 3", target="w")
    with pytest.raises(SettingError, match="no column 'w' to keep"):
        explain(numbers, {"x": 1}, fixed=["w"])
    with pytest.raises(SettingError, match="0, 1 or 2"):
        explain(numbers, {"x": 1}, changes=3)


# ------------------------------------------------------------------------- rows and texts


def test_rows_of_many_kinds_say_the_same() -> None:
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


def test_texts_have_every_phrase_in_both_languages() -> None:
    english, chinese = (load_language(code).phrases for code in ("en", "zh"))
    own = {key for key in english if key.startswith("explain_")}
    assert own == {key for key in chinese if key.startswith("explain_")}
    fields = {key: set(re.findall(r"\{(\w+)\}", english[key])) for key in own}
    for key in own:
        assert set(re.findall(r"\{(\w+)\}", chinese[key])) == fields[key], key


def test_all_that_is_found_can_be_said(model: Model) -> None:
    wish = ">= 0" if model.schema.task == "regression" else None
    for row in rows_of(model, 3, seed=2):
        found = explain(model, cells(model, row), tree=0, wish=wish)
        for code in ("en", "zh"):
            text = found.text(load_language(code))
            assert "{" not in text.replace("{" + '"', "").replace('{"', "")
        json.dumps(found.plain(), allow_nan=False)


def test_shown_figures_add_up() -> None:
    model = random_model(8, mixed_schema(()))
    for row in rows_of(model, 8):
        found = explain(model, cells(model, row), changes=0)
        part = found.text().split("What each column adds")[1].split("\n\n")[0].splitlines()[1:]
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


def test_hostile_names_stay_names() -> None:
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
    assert text.startswith('"target" is no, with probability 0.7500\n')
    assert "1  age > 30.5       it is 41" in text
    assert 'town: "Bonn" to "Ulm, old"' in text
    assert call(saved, "--row", 'age=41,"town=Ulm, old"') == call(
        saved, "--set", "age=41", "--set", "town=Ulm, old"
    )
    assert "town" in call(saved, "--row", "age=41").split("Missing")[1]
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
    assert "there is no row 2; the table has 2" in call(saved, "--table", table, "--row", 2, code=2)
    fixed = call(saved, "--table", table, "--row", 1, "--fixed", "age,town")
    assert "no change of one or two" in fixed


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
        (("--row", "age=old"), "numeric but row 0"),
        (("--row", "age=1", "--tree", 2), "there is no tree 2"),
        (("--row", "age=1", "--wish", "perhaps"), "is not a class"),
        (("--row", "age=1", "--lang", "tlh"), "unknown language 'tlh'"),
        (("--row", "age=1", "--fixed", "ag"), "did you mean 'age'?"),
    ],
)
def test_mistakes_are_named(saved: Path, options: tuple[object, ...], said: str) -> None:
    assert said in " ".join(call(saved, *options, code=2).split())


@pytest.mark.parametrize("scale", [1e-100, 1e-20, 1.0, 1e200])
def test_numbers_of_any_size_are_told_in_figures_of_a_few_digits(scale: float) -> None:
    schema = Schema((Column("a"),), task="regression", dtype="float64")
    tree = threshold("a", 1.5, leaf(scale, weight=1.0), leaf(-4 * scale, weight=1.0))
    text = explain(make_model(schema, [build_tree(tree, schema)]), {"a": 1}).text()
    average, added, together = (line.split()[1:] for line in text.split("\n")[-4:-1])
    assert float(average[-1]) == pytest.approx(-1.5 * scale, rel=1e-3)
    assert float(added[0]) == pytest.approx(2.5 * scale, rel=1e-3)
    assert float(together[0]) == pytest.approx(scale, rel=1e-3)
    assert max(map(len, (average[-1], added[0], together[0]))) < 16
