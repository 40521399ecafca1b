"""Importances of columns by gain, by permutation and out of bag; split scores."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.inspection import permutation_importance

import treekit
from treekit import (
    CriterionFunctions,
    DataError,
    RandomForestClassifier,
    RandomForestRegressor,
    SettingError,
)
from treekit.data.dataset import make_dataset
from treekit.data.schema import Column, Schema
from treekit.grow.forest_builder import draw_samples
from treekit.model.builder import build_tree, leaf, oblique, threshold
from treekit.model.model import make_model
from treekit.model.tree import Split
from treekit.training import fit
from treekit.training.class_weights import apply_class_weights
from treekit.training.importance import Importances
from treekit.training.plan import make_plan
from treekit.training.prepare import make_recipe
from treekit.training.split_scores import SplitScores

# ---------------------------------------------------------------- importances

RNG = np.random.default_rng(4)
N = 250  # codes of 8 bits


def table(task="classification"):
    """One column decides, another helps, the third is noise."""
    strong, weak, noise = RNG.normal(size=(3, N))
    total = 2.0 * strong + weak
    y = np.where(total > 0, "yes", "no").tolist() if task == "classification" else total.tolist()
    return {"noise": noise, "weak": weak, "strong": strong, "y": y}


def test_a_table_without_the_target_is_reported():
    rows = table()
    model = treekit.train(rows, "y", max_depth=1)
    del rows["y"]
    with pytest.raises(DataError, match=r"^the table has no target column 'y'; there are: 'noise'"):
        treekit.permutation_importances(model, rows)
    with pytest.raises(DataError, match=r"^in the table, the target 'y' holds 'perhaps'"):
        treekit.permutation_importances(model, rows | {"y": ["perhaps"] * N})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"class_weight": "balanced"},
        pytest.param({"missing": "fractional"}, marks=pytest.mark.matrix),
    ],
)
def test_out_of_bag_importances_rank_informative_columns_first(settings):
    rows = table()
    forest = treekit.train(rows, "y", ensemble="forest", trees=20, seed=1, **settings)
    found = treekit.permutation_importances(forest, rows, out_of_bag=True)
    assert (found.columns, found.measure) == (("noise", "weak", "strong"), "accuracy")
    noise, weak, strong = found.mean
    assert strong > weak > noise
    assert abs(noise) < 4 * found.standard_error[0] + 0.01
    assert found.decreases.shape == (3, 20)
    assert 0.7 < found.score <= forest.provenance["oob"]["accuracy"] + 0.02


@pytest.mark.parametrize("settings", [{}, {"max_samples": 0.3}, {"priors": "yes=0.2,no=0.8"}])
def test_redrawn_bootstrap_samples_equal_those_of_training(settings):
    # Breiman 2001, section 10: each tree alone, on the rows that it has not seen.
    rows = table()
    dataset = make_dataset(rows, "y")
    given = {"ensemble": "forest", "trees": 6, "seed": 7} | settings
    fitted = fit(dataset, given)
    plan = make_plan(dataset, given)
    recipe = make_recipe(apply_class_weights(dataset, plan.class_weights), plan)
    drawn = list(draw_samples(recipe, 6, np.random.SeedSequence(7), settings.get("max_samples")))
    times = np.zeros(N, dtype=int)
    scores = []
    for tree, (_, out) in zip(fitted.model.trees, drawn, strict=True):
        times[out] += 1
        cells = {name: np.take(rows[name], out) for name in rows}
        right = make_model(dataset.schema, [tree]).predict(cells) == cells["y"]
        scores.append(right.mean())  # whatever the classes weigh
    np.testing.assert_array_equal(times, fitted.oob_times)
    found = treekit.permutation_importances(fitted.model, rows, out_of_bag=True)
    assert found.score == pytest.approx(np.mean(scores))


def test_importances_of_regression_use_r_squared():
    rows = table("regression")
    forest = treekit.train(rows, "y", ensemble="forest", trees=10, seed=1)
    found = treekit.permutation_importances(forest, rows, out_of_bag=True)
    assert found.measure == "r2"
    # A shuffled column x of y = 2 a + b costs twice its variance: 2 * 4 / 5 of R squared for a.
    assert found.mean[2] == pytest.approx(1.6, abs=0.25)
    assert found.mean[1] == pytest.approx(0.4, abs=0.15)
    assert abs(found.mean[0]) < 0.05


def test_permutation_importances_are_close_to_scikit_learn():
    x, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(30, random_state=0).fit(x, y)
    own = forest.permutation_importances(x, y, repeats=20)
    other = permutation_importance(forest, x, y, n_repeats=20, random_state=0)
    assert own.score == forest.score(x, y)
    np.testing.assert_allclose(own.mean, other.importances_mean, atol=0.02)


def test_out_of_bag_importances_of_estimators_reproduce_weighted_bootstraps():
    x, y = load_iris(return_X_y=True)
    weights = RNG.integers(0, 4, len(y))
    forest = RandomForestClassifier(10, random_state=0, class_weight={0: 2.0, 1: 1.0, 2: 0.5})
    forest.fit(x, y, weights)
    found = forest.permutation_importances(x, y, weights, out_of_bag=True)
    assert found.mean[2:].min() > found.mean[:2].max()
    with pytest.raises(DataError, match="not the one that the forest was trained on"):
        forest.permutation_importances(x, y, out_of_bag=True)


def test_the_result_depends_on_the_seed_and_not_on_threads():
    rows = table("regression")
    x, y = np.column_stack([rows[n] for n in ("noise", "weak", "strong")]), rows["y"]
    forest = RandomForestRegressor(6, random_state=0).fit(x, y)
    one, two = (
        clone_with(forest, n_jobs).permutation_importances(x, y, out_of_bag=True)
        for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.decreases, two.decreases)
    other = forest.permutation_importances(x, y, out_of_bag=True, random_state=1)
    assert not np.array_equal(one.decreases, other.decreases)


def clone_with(forest, n_jobs):
    return forest.set_params(n_jobs=n_jobs)


def test_unavailable_importances_are_refused_with_a_remedy():
    rows = table()
    forest = treekit.train(rows, "y", ensemble="forest", trees=3, seed=0)
    ask = treekit.permutation_importances
    changed = rows | {"strong": rows["strong"][::-1]}
    with pytest.raises(DataError, match="not the one that the forest was trained on"):
        ask(forest, changed, out_of_bag=True)
    for settings in ({}, {"ensemble": "forest", "bootstrap": False, "trees": 2}):
        model = treekit.train(rows, "y", seed=0, **settings)
        with pytest.raises(SettingError, match="no out-of-bag rows"):
            ask(model, rows, out_of_bag=True)
    for name, value in [
        ("repeats", 0),
        ("repeats", "3"),
        ("repeats", 2.0),
        ("n_jobs", "x"),
        ("n_jobs", 0),
        ("seed", -1),
    ]:
        with pytest.raises(SettingError, match=f"^{name} is {value!r}; give an integer"):
            ask(forest, rows, **{name: value})
    with pytest.raises(DataError, match="'y'"):
        ask(forest, {name: rows[name] for name in rows if name != "y"})


def test_importances_show_the_largest_first():
    decreases = np.zeros((12, 2))
    decreases[3], decreases[5] = (0.5, 0.3), 0.1
    names = (*(f"c{i}" for i in range(11)), "line\nbreak")
    lines = repr(Importances(names, "accuracy", 0.9, decreases)).splitlines()
    assert lines[0] == "Importances: accuracy 0.9000, and its decrease per column"
    assert lines[1].split() == ["c3", "0.4000", "+-", "0.1000"]
    assert lines[2].split() == ["c5", "0.1000", "+-", "0.0000"]
    assert lines[-1] == "  and 2 more columns"
    assert len(lines) == 12
    single = repr(Importances(names[-1:], "r2", 1.0, np.zeros((1, 1))))
    assert single.endswith("\n  'line\\nbreak'  0.0000")


def test_gains_of_oblique_splits_are_shared_and_unused_columns_have_none():
    schema = Schema(columns=tuple(map(Column, "abcd")), classes=("n", "p"), target="y")
    inner = threshold("c", 0.5, leaf([4, 0]), leaf([0, 4]))
    tree = build_tree(oblique({"a": 1.0, "b": -2.0}, 0.0, inner, leaf([0, 8])), schema)
    gain = np.where(tree.kind == 0, 0.0, 0.5)
    gain[tree.kind == Split.THRESHOLD] = 0.25
    model = make_model(schema, [replace(tree, gain=gain)])
    # The root: 16 x 0.5, shared by a and b; below it 8 x 0.25.
    np.testing.assert_allclose(treekit.gain_importances(model), [0.4, 0.4, 0.2, 0.0])
    cells = {name: RNG.normal(size=50) for name in "abcd"}
    cells["y"] = model.predict(cells)
    found = treekit.permutation_importances(model, cells)
    assert found.score == 1.0
    assert found.mean[:3].min() > 0.0 == found.mean[3] == found.standard_error[3]
    assert np.isnan(treekit.permutation_importances(model, cells, repeats=1).standard_error).all()


# ---------------------------------------------------------------- split scores
# What each column is worth at a node: the figures of textbooks, and of the trees themselves.

MELONS = Path(__file__).resolve().parents[2] / "examples" / "tables" / "watermelon"


def melons(table: str, criterion: str = "entropy", **settings) -> SplitScores:
    """Every column of a watermelon table, nominal ones branching at every level."""
    settings = {"ignore": ["id"], "nominal_splits": "multiway"} | settings
    return treekit.split_scores(MELONS / table, "good", criterion=criterion, **settings)


def rounded(scores: SplitScores, digits: int = 3) -> dict[str, float]:
    return {name: round(own.gain, digits) for name, own in scores.items()}


# ---------------------------------------------------------------- Zhou 2016, chapter 4


def test_gains_of_table_4_1_equal_the_book():
    # Pages 76 and 77; color is printed as 0.109, from rounded parts.
    scores = melons("watermelon_2.0_en.csv")
    assert round(scores.impurity, 3) == 0.998
    assert rounded(scores) == {
        "color": 0.108,
        "root": 0.143,
        "sound": 0.141,
        "texture": 0.381,
        "navel": 0.289,
        "touch": 0.006,
    }
    assert scores.ranked()[0].column == "texture"
    assert scores["texture"].branches == (("blurry",), ("clear",), ("slightly_blurry",))
    assert scores["texture"].weights == (3, 9, 5)
    assert scores["texture"].values == ((3, 0), (2, 7), (4, 1))


def test_gains_of_the_rows_with_clear_texture_equal_the_book():
    # Page 77: root, navel and touch tie at 0.458.
    with (MELONS / "watermelon_2.0_en.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["texture"] == "clear"]
    table = {name: [row[name] for row in rows] for name in rows[0] if name not in ("id", "texture")}
    scores = treekit.split_scores(table, "good", criterion="entropy", nominal_splits="multiway")
    assert rounded(scores) == {
        "color": 0.043,
        "root": 0.458,
        "sound": 0.331,
        "navel": 0.458,
        "touch": 0.458,
    }


@pytest.mark.parametrize(
    ("column", "own"),
    # Page 78: the entropy of the split itself.
    [("touch", 0.874), ("color", 1.580), ("id", 4.087)],
)
def test_intrinsic_values_of_table_4_1_equal_the_book(column: str, own: float):
    scores = melons("watermelon_2.0_en.csv", "gain_ratio", ignore=[], nominal=["id"])
    assert round(scores[column].gain / scores[column].score, 3) == own


def test_gini_indices_of_table_4_1_equal_the_book():
    # Equation 4.6: what is left of the index after the split.
    scores = melons("watermelon_2.0_en.csv", "gini")
    left = {name: round(scores.impurity - own.gain, 3) for name, own in scores.items()}
    assert left == {
        "color": 0.427,
        "root": 0.422,
        "sound": 0.424,
        "texture": 0.277,
        "navel": 0.345,
        "touch": 0.494,
    }


def test_gains_of_numeric_columns_of_table_4_3_equal_the_book():
    # Page 85.
    scores = melons("watermelon_3.0_en.csv")
    assert rounded(scores)["density"] == 0.262
    assert rounded(scores)["sugar"] == 0.349
    assert scores["density"].threshold == pytest.approx(0.3815)
    assert scores["sugar"].threshold == pytest.approx(0.126)
    assert scores["texture"].threshold is None


# ---------------------------------------------------------------- and of the trees


@pytest.mark.parametrize("criterion", ["gini", "entropy", "gain_ratio"])
@pytest.mark.parametrize("splits", ["subset", "multiway"])
def test_best_scored_column_is_the_root_split(criterion: str, splits: str):
    rng = np.random.default_rng(7)
    n = 60
    table = {
        "a": rng.normal(size=n),
        "b": rng.choice(["p", "q", "r", "s"], n),
        "c": np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 5, n)),
    }
    table["y"] = np.where(table["a"] + (table["b"] == "p") + rng.normal(size=n) > 0.5, "u", "v")
    settings = {"criterion": criterion, "nominal_splits": splits}
    scores = treekit.split_scores(table, "y", **settings)
    tree = treekit.train(table, "y", max_depth=1, **settings).trees[0]
    best = scores.ranked()[0]
    if criterion != "gain_ratio":  # which asks columns of average gain only
        assert best.column == list(scores)[tree.feature[0]]
    own = scores[list(scores)[tree.feature[0]]]
    assert own.gain == pytest.approx(tree.gain[0], rel=1e-12)
    assert own.kind == tree.kind[0]
    assert own.weights == tuple(tree.weight[1:])


def test_unsplittable_column_has_no_score_and_column_without_gain_has_zero():
    table = {"one": ["a"] * 4, "idle": ["a", "b", "a", "b"], "y": ["u", "u", "v", "v"]}
    scores = treekit.split_scores(table, "y", nominal_splits="multiway")
    assert math.isnan(scores["one"].score)
    assert (scores["one"].kind, scores["one"].weights) == (Split.LEAF, ())
    assert scores["idle"].score == pytest.approx(0.0, abs=1e-12)
    assert [score.column for score in scores.ranked()] == ["idle"]


def test_split_scores_support_regression():
    table = {"x": [1.0, 2.0, 3.0, 4.0], "y": [0.0, 0.0, 8.0, 8.0]}
    scores = treekit.split_scores(table, "y")
    assert scores.criterion == "squared_error"
    assert scores.impurity is None
    assert scores["x"].score == pytest.approx(16.0)  # all of the variance
    assert scores["x"].values == ((0.0,), (8.0,))


@pytest.mark.matrix
def test_split_scores_accept_a_custom_criterion():
    own = treekit.Criterion(
        "share_of_first",
        "classification",
        lambda: CriterionFunctions(impurity=lambda stats: stats[0] / (stats[0] + stats[1])),
    )
    table = {"x": [1.0, 2.0, 3.0, 4.0], "y": ["u", "u", "v", "v"]}
    scores = treekit.split_scores(table, "y", criterion=own)
    assert scores.criterion == "share_of_first"
    assert scores.impurity == 0.5


def test_split_scores_ignore_size_pruning_and_forest_settings():
    table = {"x": [1.0, 2.0, 3.0, 4.0], "y": ["u", "u", "v", "v"]}
    idle = {"pruner": "reduced_error", "pruner.holdout": 0.5, "max_leaves": 1, "trees": 7}
    plain = treekit.split_scores(table, "y")
    assert treekit.split_scores(table, "y", max_depth=0, ensemble="forest", **idle) == plain
    with pytest.raises(SettingError, match="has no setting 'criteron'"):
        treekit.split_scores(table, "y", criteron="gini")


def test_integer_weights_equal_repeated_rows():
    table = {"x": [1.0, 2.0, 3.0], "y": ["u", "v", "v"]}
    twice = {"x": [1.0, 2.0, 2.0, 3.0], "y": ["u", "v", "v", "v"]}
    weighted = treekit.split_scores(table, "y", weights=[1, 2, 1])
    assert weighted.weight == 4
    assert weighted["x"] == treekit.split_scores(twice, "y")["x"]


def test_the_printed_table_has_a_line_for_each_column():
    text = str(melons("watermelon_3.0_en.csv")).splitlines()
    assert text[0] == "impurity 0.997503, weight 17"
    assert text[1].split() == ["column", "gain", "entropy", "split"]
    assert text[5] == "texture    0.380592    0.380592  blurry | clear | slightly_blurry"
    assert text[-1] == "sugar      0.349294    0.349294  <= 0.126"
    assert len(text) == 10


def test_hostile_names_are_escaped_in_the_printed_table():
    table = {"a\nb": ["x\x1b", "y", "x\x1b", "y"], "y": ["u", "v", "u", "v"]}
    text = str(treekit.split_scores(table, "y", nominal_splits="multiway"))
    assert len(text.splitlines()) == 3
    assert "\x1b" not in text
