"""Extremely randomised trees: how thresholds and categories are drawn and chosen."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.model_selection import cross_val_score

import treekit
from tests.examples import examples
from tests.training.test_training import noisy, same_tree
from treekit import RandomForestClassifier, RandomForestRegressor
from treekit.data.binning import encode_columns, encode_keys
from treekit.data.encoding import encode_rows
from treekit.grow.target_statistics import ClassTarget
from treekit.grow.tree_builder import allocate_scratch
from treekit.kernels.node_statistics import UNIT_WEIGHTS, pack_statistics, sum_side
from treekit.kernels.random_splits import MISSING_KEY
from treekit.model.fixed_point import floor_to_dtype
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Split


def grown(table, seed=0, **settings):
    return treekit.train(table, "y", splitter="random", seed=seed, **settings)


def rows_of_nodes(model, table):
    """For each node, a mask of the rows that pass through it."""
    tree = model.trees[0]
    leaf = leaf_indices(model, encode_rows(table, model.schema, missing="direction"))[:, 0]
    inside = np.zeros((tree.n_nodes, len(leaf)), bool)
    inside[leaf, np.arange(len(leaf))] = True
    for node in range(tree.n_nodes - 1, 0, -1):
        inside[tree.parent[node]] |= inside[node]
    return inside


@pytest.mark.matrix
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("nominal_splits", ["subset", "multiway"])
def test_a_threshold_lies_between_the_values_of_its_node(task, nominal_splits):
    table = noisy(400, seed=3, task=task)
    model = grown(table, nominal_splits=nominal_splits)
    tree, inside = model.trees[0], rows_of_nodes(model, table)
    x = encode_rows(table, model.schema, missing="direction")
    seen = Counter()
    for node in np.flatnonzero(tree.kind != Split.LEAF):
        values = x[inside[node], tree.feature[node]]
        seen[Split(tree.kind[node])] += 1
        if tree.kind[node] == Split.THRESHOLD:
            assert np.nanmin(values) <= tree.threshold[node] < np.nanmax(values)
        # The model sends the rows where training counted them.
        assert tree.weight[node] == inside[node].sum()
    assert {Split.THRESHOLD, Split[nominal_splits.upper()]} <= set(seen)


@pytest.mark.matrix
def test_random_threshold_is_uniform_between_the_extremes_of_a_column():
    rng = np.random.default_rng(0)
    x = np.sort(rng.exponential(size=80))
    table = {"x": x, "y": np.arange(80) + 0.5}  # every cut is of use; useless ones are drawn again
    cuts = [grown(table, seed, max_depth=1).trees[0].threshold[0] for seed in range(400)]
    low, span = np.float32(x[0]), np.float32(x[-1]) - np.float32(x[0])
    assert stats.kstest(cuts, "uniform", (low, span)).pvalue > 0.01


@pytest.mark.matrix
def test_every_binary_split_of_categories_is_equally_likely():
    levels = ["a", "b", "c", "d"] * 30
    y = [0.5, 1.5, 3.5, 7.5] * 30
    drawn = Counter()
    for seed in range(350):
        tree = grown({"x": levels, "y": y}, seed, max_depth=1).trees[0]
        side = tree.branches(0)
        drawn[tuple(side == side[0])] += 1
    assert len(drawn) == 7
    assert stats.chisquare(list(drawn.values())).pvalue > 0.01


@pytest.mark.matrix
def test_one_vs_rest_categories_are_drawn_with_equal_probability():
    levels = ["a", "b", "c", "d", None] * 30
    y = [0.5, 1.5, 3.5, 7.5, 2.5] * 30
    drawn = Counter()
    for seed in range(300):
        model = grown({"x": levels, "y": y}, seed, nominal_splits="one_vs_rest", max_depth=1)
        side = model.trees[0].branches(0)
        assert (side == 0).sum() == 1
        drawn[int(side.argmin())] += 1
    assert len(drawn) == 4
    assert stats.chisquare(list(drawn.values())).pvalue > 0.01


@pytest.mark.matrix
def test_category_absent_from_a_node_is_with_the_rest():
    table = {"x": list("abc") * 20, "z": [0.0, 0.0, 1.0] * 20, "y": [0, 1, 5] * 20}
    seen = 0
    for seed in range(20):
        tree = grown(table, seed, nominal_splits="one_vs_rest").trees[0]
        for node in np.flatnonzero(tree.kind == Split.SUBSET):
            side = tree.branches(node)
            assert sorted(side.tolist()) == [0, 1, 1]
            seen += node > 0
    assert seen > 0


@pytest.mark.matrix
def test_missing_values_take_the_branch_with_the_better_score():
    x = [1.0, 2.0, None, None, 9.0, 9.5]
    model = grown({"x": x, "y": ["a", "a", "b", "b", "b", "b"]}, max_depth=1)
    tree = model.trees[0]
    assert (tree.kind[0], tree.missing[0]) == (Split.THRESHOLD, 1)
    model = grown({"x": x, "y": ["a", "a", "a", "a", "b", "b"]}, max_depth=1)
    assert model.trees[0].missing[0] == 0
    # One value or none: that is the question.
    tree = grown({"x": [3.0, 3.0, None], "y": ["a", "a", "b"]}).trees[0]
    assert (tree.kind[0], tree.n_leaves) == (Split.MISSING, 2)


@pytest.mark.matrix
def test_both_branches_reach_the_minimum_weight_and_pure_nodes_are_leaves():
    table = noisy(300)
    bounded = grown(table, min_weight_leaf=12).trees[0]
    assert bounded.weight[bounded.leaves].min() >= 12
    assert bounded.n_leaves > 5
    model = grown(table)
    assert (model.predict(table) == np.array(table["y"])).all()


@pytest.mark.matrix
@pytest.mark.parametrize("criterion", ["entropy", "gain_ratio"])
def test_every_criterion_scores_drawn_splits(criterion):
    table = noisy(300)
    model = grown(table, criterion=criterion, nominal_splits="multiway", max_depth=4)
    tree = model.trees[0]
    inner = tree.kind != Split.LEAF
    assert (tree.gain[inner] > 0).all()
    assert (model.predict(table) == np.array(table["y"])).mean() > 0.75


@pytest.mark.matrix
def test_best_of_the_drawn_splits_is_kept():
    table = noisy(600)
    gains = {
        tried: np.mean([
            grown(table, seed, max_depth=1, max_features=tried).trees[0].gain[0]
            for seed in range(40)
        ])
        for tried in (1, 3)
    }  # fmt: skip
    assert gains[3] > 1.5 * gains[1]


@pytest.mark.matrix
@settings(max_examples=examples(25))
@given(
    st.lists(st.floats(-1e308, 1e308) | st.none(), min_size=2, max_size=30), st.integers(0, 2**32)
)
def test_thresholds_are_drawn_for_extreme_values_and_tiny_gaps(values, seed):
    y = ["a" if i % 3 else "b" for i in range(len(values))]
    known = [v for v in values if v is not None]
    model = treekit.train(
        {"x": [None if v is None else float(v) for v in values], "z": [0.0] * len(y), "y": y},
        "y", numeric=["x"], classes=["a", "b"], dtype="float64", splitter="random", seed=seed,
    )  # fmt: skip
    tree = model.trees[0]
    cuts = tree.threshold[tree.kind == Split.THRESHOLD]
    assert all(min(known) <= cut < max(known) for cut in cuts)
    inside = rows_of_nodes(model, {"x": values, "z": [0.0] * len(y)})
    np.testing.assert_array_equal(tree.weight, inside.sum(axis=1))


@pytest.mark.matrix
def test_a_forest_is_the_same_for_any_number_of_threads():
    one, two = (
        grown(noisy(300), ensemble="forest", trees=6, bootstrap=False, n_jobs=n) for n in (1, 2)
    )
    for a, b in zip(one.trees, two.trees, strict=True):
        same_tree(a, b)
    assert len({tree.n_nodes for tree in one.trees}) > 1


@settings(max_examples=examples(60))
@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_sort_keys_have_the_order_of_the_numbers(values):
    column = np.array(values, np.float32)
    keys = encode_keys(column).astype(np.int64)
    assert (keys[np.isnan(column)] == MISSING_KEY).all()
    known = ~np.isnan(column)
    number, key = column[known], keys[known]
    assert ((number[:, None] < number) == (key[:, None] < key)).all()
    assert (key < MISSING_KEY).all()


@pytest.mark.matrix
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("way", ["subset", "multiway", "one_vs_rest"])
def test_sort_keys_and_ranks_grow_equal_trees(task, way):
    table = noisy(500, seed=4, task=task)
    rng = np.random.default_rng(4)
    for name in [name for name in table if np.asarray(table[name]).dtype.kind == "f"]:
        if name != "y":
            table[name] = np.float32(np.round(np.asarray(table[name], float) * 8) / 8)
    table["tiny"] = np.float32(rng.choice([-1e-45, -0.0, 0.0, 1e-45, np.nan], 500))
    given = {"nominal_splits": way, "min_weight_leaf": 2}
    # Trees of float64 are grown by ranks.
    keyed = grown(table, 1, dtype="float32", **given).trees[0]
    ranked = grown(table, 1, dtype="float64", **given).trees[0]
    assert keyed.n_leaves > 20
    for name in ("kind", "feature", "first_child", "missing", "level_branch", "weight", "gain"):
        np.testing.assert_array_equal(getattr(keyed, name), getattr(ranked, name), err_msg=name)
    np.testing.assert_array_equal(keyed.threshold, floor_to_dtype(ranked.threshold, "float32"))


@pytest.mark.matrix
def test_classes_are_counted_equally_in_integers_and_in_floats():
    """Weights are added up in one word a row, those too heavy for it in a cell for each class."""
    weights = np.random.default_rng(6).integers(1, 4, 300).astype(float)
    light, heavy = (
        grown(noisy(300, seed=6), 2, weights=weights * unit, min_weight_leaf=3 * unit).trees[0]
        for unit in (1.0, 2.0**40)
    )
    np.testing.assert_array_equal(light.feature, heavy.feature)
    np.testing.assert_array_equal(light.threshold, heavy.threshold)
    np.testing.assert_array_equal(light.weight * 2.0**40, heavy.weight)


@pytest.mark.parametrize("kind", ["whole weights", "halves", "alike numbers", "weighted numbers"])
def test_statistics_of_a_branch_are_the_sum_of_its_rows(kind):
    rng = np.random.default_rng(7)
    for m in (1, 2, 3, 4, 7, 30):
        s = 2 if kind == "alike numbers" else 3
        codes = np.where(rng.random(m) < 0.2, MISSING_KEY, rng.integers(0, 5, m)).astype(np.uint32)
        values = rng.integers(-8, 9, (m, s)) / 4
        values[:, 0] = 1.0 if kind == "alike numbers" else rng.integers(1, 4, m)
        cells = np.empty(0, np.uint32)
        if not kind.endswith("numbers"):
            cells = rng.integers(0, s, m).astype(np.uint32)
            values = values[:, :1] * (0.5 if kind == "halves" else 1.0)
        rows, packed, sums = np.uint64(m), np.empty(m, np.uint64), np.empty(s)
        total = float(values[:, 0].sum())
        with np.errstate(over="ignore"):  # of unsigned numbers, which wrap around
            form = pack_statistics.py_func(cells, values, rows, np.uint64(s), total, packed)
            for least, most in ((0, 2), (0, MISSING_KEY), (MISSING_KEY, MISSING_KEY)):
                ends = np.uint32(least), np.uint32(most)
                words = form, packed
                sum_side.py_func(codes, *ends, cells, values, words, rows, np.uint64(s), sums)
                inside = (codes >= least) & (codes <= most)
                own = values[inside]
                if len(cells):
                    own = own * np.eye(s)[cells[inside]]
                np.testing.assert_array_equal(sums, own.sum(axis=0))
    if kind == "alike numbers":
        assert form == UNIT_WEIGHTS
    if kind == "weighted numbers":
        assert form == 0


@pytest.mark.matrix
def test_accuracy_is_close_to_scikit_learn_extra_trees():
    x, y = load_breast_cancer(return_X_y=True)
    own = RandomForestClassifier(40, splitter="random", bootstrap=False, random_state=0)
    other = ExtraTreesClassifier(40, random_state=0)
    assert (
        cross_val_score(own, x, y, cv=4).mean() > cross_val_score(other, x, y, cv=4).mean() - 0.02
    )
    x, y = load_diabetes(return_X_y=True)
    number = RandomForestRegressor(40, splitter="random", bootstrap=False, random_state=0)
    other = ExtraTreesRegressor(40, random_state=0)
    difference = cross_val_score(number, x, y, cv=4) - cross_val_score(other, x, y, cv=4)
    assert difference.mean() > -0.05


def test_sort_keys_use_no_working_memory_per_key():
    columns = [np.arange(10, dtype=np.float32), np.arange(10) % 3]
    table = encode_columns(columns, np.array([0, 3]), np.array([False, True]), "keys")
    scratch = allocate_scratch(table, ClassTarget.scale(10, 2, None), 10, 1)
    batches = [*scratch.batch, *scratch.scan]
    arrays = [part for part in scratch if isinstance(part, np.ndarray)]
    assert len(arrays) + 2 == len(scratch)
    assert sum(array.nbytes for array in [*arrays, *batches]) < 150_000
