"""Random thresholds compared with the paper, and accuracy compared with extra trees."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier

import treekit
from treekit import registry


def table(rows, seed, missing=0.0):
    x, y = make_classification(rows, 10, n_informative=6, random_state=seed)
    x[np.random.default_rng(seed).random(x.shape) < missing] = np.nan
    return {f"x{i}": x[:, i].astype(np.float32) for i in range(10)} | {"y": y}


def forest(data, **settings):
    defaults = {"ensemble": "forest", "trees": 40, "seed": 0, "bootstrap": False}
    return treekit.train(data, "y", splitter="random_threshold", **(defaults | settings))


def test_splitter_is_registered_by_its_distribution():
    component = registry.list("splitter")["random_threshold"]
    assert component.distribution == "treekit-random-threshold"


def test_tree_size_and_forest_accuracy_match_extra_trees():
    data, new = table(3000, 1), table(3000, 1)
    fit, test = slice(0, 2000), slice(2000, 3000)
    train = {name: column[fit] for name, column in data.items()}
    x = np.column_stack([new[f"x{i}"] for i in range(10)])
    ours = [forest(train, seed=seed) for seed in range(3)]
    theirs = [
        ExtraTreesClassifier(40, random_state=seed).fit(x[fit], new["y"][fit]) for seed in range(3)
    ]
    leaves = np.mean([model.n_leaves for model in ours])
    peer = np.mean([sum(tree.get_n_leaves() for tree in model.estimators_) for model in theirs])
    assert leaves == pytest.approx(peer, rel=0.1)
    accuracy = np.mean([(model.predict(x[test]) == new["y"][test]).mean() for model in ours])
    assert accuracy > np.mean([model.score(x[test], new["y"][test]) for model in theirs]) - 0.02


def test_thresholds_are_drawn_between_the_smallest_and_largest_value():
    data = {"x": [0.0, 1.0], "y": ["a", "b"]}
    cuts = [forest(data, trees=1, seed=seed).trees[0].threshold[0] for seed in range(200)]
    assert 0.0 <= min(cuts) < 0.1
    assert 0.9 < max(cuts) < 1.0
    assert np.mean(cuts) == pytest.approx(0.5, abs=0.08)


def test_only_max_features_columns_are_tried():
    rng = np.random.default_rng(0)
    noise = {f"n{i}": rng.random(400) for i in range(9)}
    data = {"x": np.arange(400.0), **noise, "y": np.arange(400) >= 200}
    few = forest(data, max_features=1, trees=60, max_depth=1)
    roots = [int(tree.feature[0]) for tree in few.trees]
    assert 1 <= roots.count(0) < 20  # about one in ten is drawn by chance
    every = forest(data, max_features="all", trees=60, max_depth=1)
    assert [int(tree.feature[0]) for tree in every.trees].count(0) > 50


def test_categories_draw_branches_and_missing_values_take_the_better_one():
    data = {"c": ["a", "b", "c", None] * 50, "y": [0, 1, 1, 0] * 50}
    model = forest(data, trees=20)
    assert list(model.predict({"c": ["a", "b", "c", None]})) == [0, 1, 1, 0]


def test_a_column_of_one_value_is_split_into_missing_or_not():
    model = forest({"x": [7.0, np.nan] * 20, "y": [0, 1] * 20}, trees=1)
    assert list(model.predict({"x": [7.0, np.nan, 3.0]})) == [0, 1, 0]


def test_both_sides_of_a_split_reach_the_minimum_weight():
    model = forest(table(500, 2, missing=0.1), min_weight_leaf=20, trees=10)
    for tree in model.trees:
        assert tree.weight[tree.leaves].min() >= 20


def test_same_seed_grows_the_same_forest_for_any_number_of_threads():
    data = table(400, 3, missing=0.1)
    one, two = forest(data, n_jobs=1), forest(data, n_jobs=2)
    assert np.array_equal(one.units, two.units)


def test_exports_are_verified_equal(tmp_path):
    model = forest(table(300, 4, missing=0.1), trees=5)
    files = [treekit.export(model, "onnx", tmp_path / "m.onnx")[0]]
    files += [treekit.export(model, "python", tmp_path / "m.py")[0]]
    assert treekit.verify(model, files).equal
