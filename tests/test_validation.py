"""A validation table: held-out rows that are not taken from the training rows."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import treekit
from tests.growing import recipe_of
from tests.reference.grow import Problem
from treekit import DataError, DecisionTreeClassifier, RandomForestRegressor, SettingError
from treekit.data.dataset import make_dataset, make_validation
from treekit.grow.held_out import held_table, held_target
from treekit.grow.tree_builder import grow_tree
from treekit.model.model import make_model
from treekit.model.scoring import leaf_indices


def noisy(n: int, seed: int, *, classes: bool = True) -> dict[str, list[object]]:
    """Two columns and noise; a third of the labels is wrong."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n).round(2)
    color = rng.integers(0, 4, n)
    y = (x + (color == 2) + rng.normal(size=n) * 0.8).round(3)
    names = ["red", "green", "blue", "grey"]
    target = np.where(y > 0, "up", "down").tolist() if classes else y.tolist()
    return {"x": x.tolist(), "color": [names[c] for c in color], "y": target}


def test_a_validation_table_is_read_by_the_training_schema():
    dataset = make_dataset({"x": [1.0, 2.0], "c": ["b", "a"], "y": ["no", "yes"]}, "y")
    other = {"y": ["yes", "yes"], "extra": [1, 2], "c": ["violet", "b"], "x": [None, 2.5]}
    held = make_validation(other, dataset.schema)
    assert held.schema is dataset.schema
    assert held.y.tolist() == [1, 1]  # not 0, as in a table of its own
    assert held.columns[1].tolist() == [-1, 1]
    np.testing.assert_array_equal(held.columns[0], np.array([np.nan, 2.5], np.float32))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"y": ["no", "perhaps"]}, "in the validation table, the target 'y' holds 'perhaps'"),
        ({"y": ["no", None]}, "in the validation table, the target 'y' is missing"),
        ({"x": []} | {"c": [], "y": []}, "the validation table has no rows"),
        ({"drop": "x"}, "has no column 'x'"),
        ({"drop": "y"}, "the validation table has no target column 'y'"),
    ],
)
def test_a_validation_table_that_does_not_fit_is_refused(change, said):
    table = {"x": [1.0, 2.0], "c": ["b", "a"], "y": ["no", "yes"]}
    other = {k: v for k, v in (table | change).items() if k not in (change.get("drop"), "drop")}
    with pytest.raises(DataError, match=said):
        treekit.train(table, target="y", validation=other, pruner="reduced_error")


def test_policies_and_weights_hold_for_the_validation_table():
    table, other = noisy(40, 0), noisy(40, 1)
    other["color"][3] = "violet"
    settings = {"pruner": "reduced_error", "seed": 0, "target": "y"}
    treekit.train(table, validation=other, **settings)
    with pytest.raises(DataError, match="holds 'violet' in row 3"):
        treekit.train(table, validation=other, unknown="error", **settings)
    with pytest.raises(DataError, match="the validation table has no weight column"):
        treekit.train(table | {"w": [1] * 40}, weights="w", validation=other, **settings)
    # Rows of no weight judge nothing: with one row left, its own answer is kept.
    weightless = other | {"w": [1, *[0] * 39]}
    model = treekit.train(table | {"w": [1] * 40}, weights="w", validation=weightless, **settings)
    alone = {name: cells[:1] for name, cells in other.items()}
    same = treekit.train(table, validation=alone, **settings)
    np.testing.assert_array_equal(model.trees[0].weight, same.trees[0].weight)


def test_a_validation_table_that_nothing_looks_at_is_refused():
    table = noisy(20, 0)
    with pytest.raises(SettingError, match="no pruner is chosen"):
        treekit.train(table, target="y", validation=table)


@pytest.mark.parametrize("splitter", ["exact", "histogram"])
@pytest.mark.parametrize("criterion", ["gini", "squared_error"])
def test_held_rows_travel_as_the_finished_tree_sends_them(splitter, criterion):
    # Values between those of the training rows are on the side of the real threshold.
    rng = np.random.default_rng(3)
    classes = 3 if criterion == "gini" else 0
    n, m = 120, 400
    x, color = rng.integers(0, 40, n) * 2.0, rng.integers(0, 5, n)
    y = rng.integers(0, 3, n)
    gone = rng.random(n) < 0.1
    columns = [
        np.where(gone, None, x).tolist(),
        color.tolist(),
        (rng.integers(0, 60, n) / 4).tolist(),
    ]
    problem = Problem(
        columns, y.tolist(), [None, 5, None], criterion, classes,
        max_bins=None if splitter == "exact" else 9,
    )  # fmt: skip
    recipe = recipe_of(problem)
    other = [
        np.where(rng.random(m) < 0.1, np.nan, rng.integers(-3, 83, m)).astype(np.float32),
        rng.integers(-1, 5, m).astype(np.int32),
        (rng.integers(-9, 200, m) / 8).astype(np.float32),
    ]
    table, held = held_table(other, recipe.table, splitter, "float32")
    assert held.codes.dtype == table.codes.dtype
    target = held_target(recipe.target, rng.integers(0, 3, m).astype(np.int32), None)
    ids = np.arange(max(n, m), dtype=np.uint32)

    grown = grow_tree(
        replace(recipe, table=table),
        recipe.target.rows(ids[:n], None),
        target.rows(ids[:m], None),
        np.random.default_rng(0),
        held,
    )
    names = {"a": [0.0, 1.0], "color": list("ab"), "b": [0.0, 1.0], "y": [0, 1]}
    schema = make_dataset(
        names, "y", levels={"color": list("abcde")}, classes=range(3) if classes else None,
        task="classification" if classes else "regression", dtype="float32",
    ).schema  # fmt: skip
    matrix = np.column_stack([other[0], np.where(other[1] < 0, np.nan, other[1]), other[2]])
    leaves = leaf_indices(make_model(schema, [grown.tree]), matrix.astype(np.float32))[:, 0]
    np.testing.assert_array_equal(leaves[grown.held_ids], grown.held_leaf)
    assert grown.tree.n_leaves > 20


def accuracy(model: treekit.Model, table: dict[str, list[object]]) -> float:
    return float((model.predict(table) == np.array(table["y"])).mean())


def test_reduced_error_judges_by_the_validation_table():
    table, other = noisy(200, 0), noisy(200, 1)
    full = treekit.train(table, target="y", seed=0)
    pruned = treekit.train(table, target="y", seed=0, pruner="reduced_error", validation=other)
    # All training rows grow the tree: none is held out of them.
    assert pruned.trees[0].weight[0] == 200
    assert pruned.n_leaves < full.n_leaves
    assert accuracy(pruned, other) > accuracy(full, other)
    np.testing.assert_array_equal(pruned.trees[0].value[0], full.trees[0].value[0])


def test_cost_complexity_chooses_by_the_validation_table_without_folds():
    table, other = noisy(150, 0), noisy(150, 1)
    model = treekit.train(
        table, target="y", seed=0, pruner="cost_complexity", validation=other
    )  # fmt: skip
    best = max(
        accuracy(
            treekit.train(
                table, target="y", pruner="cost_complexity", seed=0, **{"pruner.alpha": alpha}
            ),
            other,
        )
        for alpha in (0.0, *np.geomspace(0.0005, 0.2, 40))
    )
    assert accuracy(model, other) == pytest.approx(best)


@pytest.mark.parametrize("classes", [True, False])
def test_every_tree_of_a_forest_is_pruned_by_the_validation_table(classes):
    table, other = noisy(150, 0, classes=classes), noisy(150, 1, classes=classes)
    settings = {"target": "y", "seed": 0, "ensemble": "forest", "trees": 5}
    full = treekit.train(table, **settings)
    pruned = treekit.train(table, validation=other, pruner="reduced_error", **settings)
    assert pruned.n_leaves < full.n_leaves
    # Out-of-bag rows judge the forest, not the trees one by one.
    assert pruned.provenance["oob"]["rows"] == full.provenance["oob"]["rows"]
    assert "pruned_by_the_same_rows" not in pruned.provenance["oob"]
    without = treekit.train(
        table, validation=other, pruner="reduced_error", bootstrap=False, **settings
    )
    assert without.n_leaves < full.n_leaves


def test_estimators_take_a_validation_pair():
    table, other = noisy(200, 0), noisy(200, 1)
    x, held = ([[a] for a in t["x"]] for t in (table, other))
    tree = DecisionTreeClassifier(pruner="reduced_error", random_state=0)
    plain = {"x": table["x"], "y": table["y"]}
    expected = treekit.train(
        plain, target="y", pruner="reduced_error", seed=0, validation=other
    )  # fmt: skip
    tree.fit(x, table["y"], validation=(held, other["y"]))
    assert tree.get_n_leaves() == expected.n_leaves
    assert (tree.predict(held) == expected.predict(other)).all()
    with pytest.raises(DataError, match="'sideways', which is no label of the training rows"):
        tree.fit(x, table["y"], validation=(held[:1], ["sideways"]))
    with pytest.raises(SettingError, match=r"give a pair \(X, y\)"):
        tree.fit(x, table["y"], validation=held)
    numbers = noisy(100, 2, classes=False)
    rows = [[a] for a in numbers["x"]]
    forest = RandomForestRegressor(3, pruner="reduced_error", random_state=0)
    assert forest.fit(rows, numbers["y"], validation=(rows, numbers["y"])).predict(rows).shape == (
        100,
    )


def test_the_command_line_takes_a_validation_table(tmp_path: Path):
    from click.testing import CliRunner

    from treekit.cli import main

    for name, seed in (("train", 0), ("valid", 1)):
        table = noisy(80, seed)
        lines = ["x,color,y", *(f"{a},{b},{c}" for a, b, c in zip(*table.values(), strict=True))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = [
        "train", str(tmp_path / "train.csv"), "--target", "y", "--seed", "0",
        "--pruner", "reduced_error", "--validation", str(tmp_path / "valid.csv"),
        "-o", str(tmp_path / "m.treekit"),
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = CliRunner().invoke(main, arguments)
    assert outcome.exit_code == 0, outcome.output
    model = treekit.load(tmp_path / "m.treekit")
    same = treekit.train(
        tmp_path / "train.csv", target="y", seed=0, pruner="reduced_error",
        validation=tmp_path / "valid.csv",
    )  # fmt: skip
    assert model.n_leaves == same.n_leaves
    assert model.trees[0].weight[0] == 80


@pytest.mark.parametrize("holdout", [0.25, None])
def test_rows_in_parts_are_judged_in_parts_before_and_after_pruning(holdout):
    table, other = noisy(150, 0), noisy(150, 1)
    for rows in (table, other):
        rows["x"][::7] = [None] * len(rows["x"][::7])
    settings = {
        "target": "y", "seed": 0, "ensemble": "forest", "trees": 4, "missing": "fractional",
        "pruner": "reduced_error",
    }  # fmt: skip
    held = {"pruner.holdout": holdout} if holdout else {"validation": other}
    model = treekit.train(table, **settings, **held)
    full = treekit.train(table, **settings | {"pruner": None})
    assert model.n_leaves < full.n_leaves
    assert model.provenance["oob"]["rows"] == full.provenance["oob"]["rows"]
    assert model.provenance["oob"]["accuracy"] > 0.6
