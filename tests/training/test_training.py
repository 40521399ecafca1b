"""Training: the effect of each setting, errors with remedies, reproducibility."""

from __future__ import annotations

import pickle
import time
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

import treekit
from tests.reference.evaluate import leaf_rows
from treekit import (
    Criterion,
    CriterionFunctions,
    DataError,
    DecisionTreeClassifier,
    RandomForestClassifier,
    SettingError,
    TreekitWarning,
)
from treekit.data.dataset import make_dataset, make_dataset_from_xy
from treekit.data.encoding import encode_rows
from treekit.model.tree import Split, Tree
from treekit.model.validation import MAX_COST
from treekit.training import Fitted, fit
from treekit.training.class_weights import (
    format_named_numbers,
    parse_named_numbers,
    parse_number_pairs,
    scale_costs_to_integers,
)
from treekit.training.importance import measure_importances
from treekit.training.settings import count_features_to_try

# ---------------------------------------------------------------- training

ARRAYS = (
    "kind", "feature", "threshold", "first_child", "n_children", "missing", "level_offsets",
    "level_branch", "value", "weight", "gain",
)  # fmt: skip


def few(ensemble: str) -> dict[str, int]:
    """Three trees, where there is a choice."""
    return {"trees": 3} if ensemble == "forest" else {}


def noisy(n: int = 240, seed: int = 0, task: str = "classification") -> dict[str, list]:
    """Two numeric columns (one with gaps), a nominal one, and a noisy target.

    Up to 255 rows have codes of 8 bits, for which the kernels are compiled before the run.
    """
    rng = np.random.default_rng(seed)
    size, age = rng.normal(size=n), rng.integers(0, 80, n).astype(float)
    town = rng.choice(["Oslo", "Bergen", "Tromsø"], n)
    signal = size + (town == "Oslo") + rng.normal(size=n) / 2
    age[rng.random(n) < 0.2] = np.nan
    y = signal if task == "regression" else np.where(signal > 0.4, "yes", "no")
    return {"size": size, "age": age, "town": town.tolist(), "y": y.tolist()}


def same_tree(a: Tree, b: Tree) -> None:
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def tree_of(**settings) -> Tree:
    return treekit.train(noisy(), "y", seed=0, **settings).trees[0]


# ------------------------------------------------------------------ settings


def test_max_depth_bounds_the_depth():
    assert tree_of().depth > 3
    assert tree_of(max_depth=3).depth == 3
    assert tree_of(max_depth=0).n_nodes == 1


def test_max_leaves_grows_the_best_splits_first():
    tree = tree_of(max_leaves=5)
    assert tree.n_leaves == 5
    full = tree_of()
    taken = (full.gain * full.weight)[full.kind != Split.LEAF]
    assert (tree.gain * tree.weight).sum() <= np.sort(taken)[-4:].sum() + 1e-9


def test_minimum_weights_are_respected_in_every_node():
    tree = tree_of(min_weight_split=40, min_weight_leaf=15)
    assert tree.weight[tree.leaves].min() >= 15
    assert tree.weight[tree.kind != Split.LEAF].min() >= 40
    assert tree_of().weight.min() < 15


def test_every_split_exceeds_min_gain():
    tree = tree_of(min_gain=0.02)
    assert tree.gain[tree.kind != Split.LEAF].min() > 0.02
    assert tree_of().gain[tree_of().kind != Split.LEAF].min() <= 0.02


def test_nominal_columns_split_in_sets_or_in_branches():
    kinds = set(tree_of().kind.tolist())
    assert Split.SUBSET in kinds
    assert Split.MULTIWAY not in kinds
    tree = tree_of(nominal_splits="multiway")
    assert Split.MULTIWAY in set(tree.kind.tolist())
    assert tree.n_children.max() == 3


def test_criterion_setting_changes_the_splits():
    gains = {name: tree_of(criterion=name, max_depth=1).gain[0] for name in ("gini", "entropy")}
    assert gains["entropy"] > gains["gini"]
    # Nats are bits times log 2.
    nats = tree_of(criterion="entropy", max_depth=1, **{"criterion.base": float(np.e)}).gain[0]
    assert nats == pytest.approx(gains["entropy"] * np.log(2))


def test_criterion_may_be_a_custom_record():
    def make():
        def score(parent, children):
            return 1.0 if children[0].sum() == 7.0 else 0.0

        return CriterionFunctions(score=score)

    tree = tree_of(criterion=Criterion("seven", "classification", make), max_depth=1)
    assert tree.weight[1] == 7


def cuts_of(**settings):
    table = {"x": np.arange(2000.0), "y": np.arange(2000.0) % 97}
    model = treekit.train(table, "y", task="regression", seed=0, **settings)
    return len(set(model.trees[0].threshold[model.trees[0].kind == Split.THRESHOLD]))


@pytest.mark.kernels
def test_max_bins_bounds_the_cuts_of_the_histogram_splitter():
    assert cuts_of(splitter="histogram", max_bins=16) <= 15
    assert 16 < cuts_of(splitter="histogram") <= 254


@pytest.mark.matrix
def test_exact_splitter_tries_more_than_254_thresholds():
    assert cuts_of(splitter="exact") > 254


@pytest.mark.kernels
def test_auto_is_exact_for_small_tables_and_histogram_for_large_ones():
    for n, name in [(50, "exact"), (10_001, "histogram")]:
        table = {"x": np.arange(float(n)), "y": (np.arange(n) > n // 3).astype(int)}
        assert treekit.train(table, "y", seed=0, max_depth=1).settings["splitter"] == name


def test_max_features_is_a_name_a_number_or_a_share():
    assert count_features_to_try("sqrt", 28) == 5
    assert count_features_to_try("log2", 28) == 4
    assert count_features_to_try("all", 28) == 28
    assert count_features_to_try(3, 28) == 3
    assert count_features_to_try(99, 28) == 28
    assert count_features_to_try(0.5, 28) == 14
    assert count_features_to_try(0.001, 28) == 1


def test_a_model_records_how_many_columns_its_nodes_tried():
    number = noisy(task="regression")
    assert treekit.train(noisy(), "y").settings["max_features"] == "all"
    forest = {"ensemble": "forest", "trees": 2}
    assert treekit.train(noisy(), "y", **forest).settings["max_features"] == "sqrt"
    assert treekit.train(number, "y", **forest).settings["max_features"] == "all"


@pytest.mark.parametrize("wrong", [0, -1, 0.0, 1.5, -0.5])
def test_max_features_out_of_range_is_refused(wrong):
    with pytest.raises(SettingError, match="max_features is"):
        tree_of(max_features=wrong)


def test_fewer_columns_tried_make_trees_differ():
    first = {tree_of(max_features=1, max_depth=1).feature[0]}
    for seed in range(12):
        model = treekit.train(noisy(), "y", seed=seed, max_features=1, max_depth=1)
        first.add(int(model.trees[0].feature[0]))
    assert len(first) > 1


def test_unknown_error_refuses_new_categories_at_prediction():
    rows = {"size": [0.0], "age": [1.0], "town": ["Paris"]}
    assert treekit.train(noisy(), "y", seed=0).predict(rows)[0] in ("yes", "no")
    strict = treekit.train(noisy(), "y", seed=0, unknown="error")
    with pytest.raises(DataError, match="'Paris'"):
        strict.predict(rows)


def test_every_setting_is_kept_in_the_model_with_the_drawn_seed():
    model = treekit.train(noisy(), "y", pruner="cost_complexity", **{"pruner.alpha": 0.01})
    assert model.settings["pruner"] == "cost_complexity"
    assert model.settings["pruner.alpha"] == 0.01
    assert model.settings["criterion"] == "gini"
    again = treekit.train(noisy(), "y", **model.settings)
    same_tree(again.trees[0], model.trees[0])
    assert {part["name"] for part in model.provenance["components"]} == {
        "gini", "exact", "cost_complexity",
    }  # fmt: skip


def test_cross_validated_pruning_keeps_the_signal_and_removes_the_noise():
    full = tree_of()
    model = treekit.train(noisy(), "y", seed=0, pruner="cost_complexity")
    assert 2 <= model.n_leaves < full.n_leaves / 3
    alpha = model.provenance["pruner"]["alpha"]
    explicit = tree_of(pruner="cost_complexity", **{"pruner.alpha": alpha})
    same_tree(model.trees[0], explicit)


def test_a_forest_is_pruned_tree_by_tree_on_its_out_of_bag_rows():
    settings = {"ensemble": "forest", "trees": 5, "seed": 0}
    full = treekit.train(noisy(), "y", **settings)
    pruned = treekit.train(noisy(), "y", pruner="reduced_error", **settings)
    assert all(
        small.n_leaves < large.n_leaves
        for small, large in zip(pruned.trees, full.trees, strict=True)
    )


# ------------------------------------------------------------------ mistakes


def refused(error, match, **settings):
    with pytest.raises(error, match=match):
        treekit.train(noisy(), "y", **settings)


def test_criterion_of_the_wrong_task_is_refused():
    refused(SettingError, "'squared_error' is for regression", criterion="squared_error")


def test_n_jobs_0_is_refused():
    refused(SettingError, "n_jobs is 0; give an integer number of threads, -1 for all", n_jobs=0)


def test_an_unknown_setting_suggests_the_nearest():
    refused(SettingError, "did you mean 'max_depth'", max_dept=3)
    refused(SettingError, "did you mean 'gini'", criterion="ginni")
    refused(SettingError, "no setting 'bas'", criterion="entropy", **{"criterion.bas": 2.0})
    refused(SettingError, "begin with 'criterion.'", **{"criterium.base": 2.0})


def test_pruner_settings_without_a_pruner_are_refused():
    refused(SettingError, "no pruner is chosen", **{"pruner.alpha": 0.1})


@pytest.mark.parametrize(
    "settings",
    [{"max_depth": -1}, {"max_depth": 2.5}, {"trees": 0}, {"missing": "drop"}, {"seed": -1}],
)
def test_setting_values_out_of_range_are_refused(settings):
    refused(SettingError, f"setting '{next(iter(settings))}' of training must be", **settings)


def test_missing_error_names_the_column_and_the_first_missing_row():
    first = int(np.isnan(noisy()["age"]).argmax())
    refused(DataError, f"'age' has .* missing cells, the first in row {first}", missing="error")


def test_missing_error_allows_complete_tables():
    table = {name: column for name, column in noisy().items() if name != "age"}
    model = treekit.train(table, "y", seed=0, missing="error")
    with pytest.raises(DataError, match="missing"):
        model.predict({"size": [None], "town": ["Oslo"]})


def test_a_holdout_of_too_few_rows_is_refused():
    table = {"x": [1.0], "y": ["a"]}
    with pytest.raises(DataError, match=r"a hold-out of .* leaves one side empty"):
        treekit.train(table, "y", pruner="reduced_error")
    with pytest.raises(DataError, match="too few for 10 folds"):
        treekit.train({"x": [1.0, 2.0], "y": ["a", "b"]}, "y", pruner="cost_complexity")


def test_a_forest_is_not_pruned_by_folds_or_without_out_of_bag_rows():
    refused(DataError, "set pruner.alpha", ensemble="forest", trees=2, pruner="cost_complexity")
    refused(
        DataError, "set bootstrap=True",
        ensemble="forest", trees=2, bootstrap=False, pruner="reduced_error",
    )  # fmt: skip


# ------------------------------------------------------------------ forests


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_same_seed_writes_the_same_file_for_any_number_of_threads(task, tmp_path):
    written = []
    for n_jobs in (1, 2):
        model = treekit.train(
            noisy(task=task), "y", ensemble="forest", trees=8, seed=3, n_jobs=n_jobs
        )
        model.save(tmp_path / f"{n_jobs}.treekit")
        written.append((tmp_path / f"{n_jobs}.treekit").read_bytes())
    assert written[0] == written[1]


def test_another_seed_grows_another_forest():
    forests = [
        treekit.train(noisy(), "y", ensemble="forest", trees=3, seed=seed).n_nodes
        for seed in range(4)
    ]
    assert len(set(forests)) > 1


def test_progress_counts_the_trees():
    seen = []
    treekit.train(
        noisy(), "y", ensemble="forest", trees=4, seed=0,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_out_of_bag_score_uses_the_trees_not_trained_on_a_row(task):
    dataset = make_dataset(noisy(120, task=task), "y")
    fitted = fit(dataset, {"ensemble": "forest", "trees": 12, "seed": 1})
    unseen = rows_out_of_bag(dataset, 12, 1)
    assert 0.3 < unseen.mean() < 0.45
    np.testing.assert_array_equal(fitted.oob_times, unseen.sum(axis=0))
    votes = slow_votes(fitted, noisy(120, task=task), unseen)
    if task == "classification":  # out of bag each tree has finer votes than in the forest
        scale = np.maximum(votes.sum(axis=1, keepdims=True), 1.0)  # a row may be in every bag
        votes = votes / scale * fitted.oob_votes.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.oob_votes, votes, rtol=1e-5)
    report = fitted.model.provenance["oob"]
    if task == "classification":
        right = votes.argmax(axis=1) == dataset.y
        assert report["accuracy"] == right[unseen.any(axis=0)].mean()
    else:
        mean = votes[:, 0] / unseen.sum(axis=0)
        ratio = ((dataset.y - mean) ** 2).sum() / ((dataset.y - dataset.y.mean()) ** 2).sum()
        assert report["r2"] == pytest.approx(1 - ratio, rel=1e-6)
    assert report["rows"] == unseen.any(axis=0).sum() > 110


def rows_out_of_bag(dataset, trees: int, seed: int) -> np.ndarray:
    """(trees, rows) bool: the rows that the trees' own bootstrap draws leave out."""
    from treekit.grow.forest_builder import draw_tree_seeds, make_sampler
    from treekit.training.plan import make_plan
    from treekit.training.run import make_recipe

    recipe = make_recipe(dataset, make_plan(dataset, {"ensemble": "forest", "seed": seed}))
    ids = np.arange(dataset.n_rows, dtype=np.uint32)
    draws = make_sampler(ids, recipe.table, recipe.target)
    unseen = np.ones((trees, dataset.n_rows), dtype=bool)
    for tree, own_seed in enumerate(draw_tree_seeds(np.random.SeedSequence(seed), trees)):
        times = draws.draw_counts(own_seed)
        assert abs(times.sum() - dataset.n_rows) < 6 * dataset.n_rows**0.5
        unseen[tree, draws.ids[times > 0]] = False
    return unseen


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_pickled_data_grow_the_same_trees(task: str) -> None:
    from treekit.training.plan import make_plan
    from treekit.training.prepare import encode_data
    from treekit.training.run import grow_share, make_forest_sampler

    dataset = make_dataset(noisy(task=task), "y")
    settings = {"ensemble": "forest", "trees": 3, "seed": 0, "pruner": "cost_complexity"}
    data = encode_data(dataset, make_plan(dataset, {**settings, "pruner.alpha": 0.01}))
    copy = pickle.loads(pickle.dumps(data))
    assert copy.plan.recorded_settings == data.plan.recorded_settings
    assert copy.plan.component_origins == data.plan.component_origins
    sampler = make_forest_sampler(copy.plan, copy.table, copy.target)
    recipe = data()
    expected = grow_share(
        dataset, recipe, data.plan, 0, 3, None,
        make_forest_sampler(data.plan, recipe.table, recipe.target),
    )  # fmt: skip
    found = grow_share(dataset, copy(), copy.plan, 0, 3, None, sampler)
    assert len(expected.trees) == 3
    for ours, theirs in zip(found.trees, expected.trees, strict=True):
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    np.testing.assert_array_equal(found.votes, expected.votes)


@given(st.lists(st.integers(0, 30), max_size=60))
def test_number_leaves_equals_numpy_unique(leaf: list[int]) -> None:
    from treekit.grow.forest_builder import number_leaves

    at = np.array(leaf, dtype=np.int64)
    for found, expected in zip(
        number_leaves(at, 31), np.unique(at, return_inverse=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def slow_votes(fitted: Fitted, table: dict[str, list], unseen: np.ndarray) -> np.ndarray:
    """Sums over the trees that did not see a row, walked by the oracle."""
    model = fitted.model
    rows = {name: column for name, column in table.items() if name != "y"}
    matrix = encode_rows(rows, model.schema).tolist()
    votes = np.zeros((len(matrix), model.schema.n_values))
    scale = 1.0 if model.schema.task == "classification" else 2.0**model.exponent
    for row, cells in enumerate(matrix):
        for tree, leaf in enumerate(leaf_rows(model, cells)):
            if unseen[tree, row]:
                votes[row] += model.units[leaf] * scale
    return votes


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_forest_does_not_depend_on_the_order_of_the_rows(task):
    table = noisy(task=task)
    mixed = np.random.default_rng(0).permutation(240)
    shuffled = {name: [column[i] for i in mixed] for name, column in table.items()}
    first, second = (
        treekit.train(t, "y", ensemble="forest", trees=4, seed=0) for t in (table, shuffled)
    )
    for a, b in zip(first.trees, second.trees, strict=True):
        same_tree(a, b)


def test_a_forest_of_a_few_categories_does_not_depend_on_the_order_of_the_rows():
    rng = np.random.default_rng(0)  # the contents of a row are told apart though they are few
    table = {
        name: rng.integers(0, n, 200).astype(str) for name, n in (("a", 4), ("b", 3), ("y", 2))
    }
    mixed = rng.permutation(200)
    first, second = (
        treekit.train(t, "y", nominal=["a", "b"], ensemble="forest", trees=5, seed=0)
        for t in (table, {name: column[mixed] for name, column in table.items()})
    )
    for a, b in zip(first.trees, second.trees, strict=True):
        same_tree(a, b)


# ------------------------------------------------------------------ weights


@pytest.mark.kernels
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(
    "settings",
    [
        {"splitter": "exact"},
        {"splitter": "exact", "min_weight_leaf": 9, "max_leaves": 12},
        {"splitter": "histogram", "max_bins": 12},
        {"ensemble": "forest", "trees": 3, "max_features": 2},
        {"ensemble": "forest", "trees": 3, "bootstrap": False, "max_features": 1},
    ],
)
def test_integer_weights_equal_repeated_rows(task, settings):
    table = noisy(120, task=task)
    weights = np.random.default_rng(1).integers(0, 4, 120)
    rows = np.repeat(np.arange(120), weights)
    repeated = {name: [column[i] for i in rows] for name, column in table.items()}
    heavy = treekit.train(table, "y", weights=weights, seed=0, **settings)
    many = treekit.train(repeated, "y", seed=0, **settings)
    for a, b in zip(heavy.trees, many.trees, strict=True):
        same_tree(a, b)


def test_mean_weight_of_forest_trees_equals_that_of_the_table():
    table = noisy(200)
    weights = np.random.default_rng(1).random(200) * 7
    model = treekit.train(table, "y", weights=weights, ensemble="forest", trees=40, seed=0)
    totals = [tree.weight[0] for tree in model.trees]
    for tree in model.trees:
        assert tree.weight[tree.leaves].sum() == pytest.approx(tree.weight[0])
    # The mean of 40 samples of about 200 draws differs by 1.1% (one standard deviation).
    # Relative weights have a mean of 1.
    assert np.mean(totals) == pytest.approx(200, rel=0.04)


@pytest.mark.parametrize("weight", [1e9, 3e9 + 1, 1e15, 1e60, 1e-60])
def test_large_weights_do_not_round_the_target(weight):
    y = np.random.default_rng(0).normal(size=100)
    dataset = make_dataset_from_xy(np.arange(100.0)[:, None], y, weights=np.full(100, weight))
    settings = {"seed": 0, "min_weight_leaf": 0, "min_weight_split": 0}
    tree = fit(dataset, settings).model.trees[0]
    assert tree.n_leaves == 100
    np.testing.assert_allclose(np.sort(tree.value[tree.leaves, 0]), np.sort(y), rtol=0, atol=1e-12)


def test_large_weights_grow_the_same_tree_for_any_order_of_rows():
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(200, 2)), rng.normal(size=200), rng.integers(1, 10**12, 200)
    mixed = rng.permutation(200)
    same_tree(
        *(
            fit(make_dataset_from_xy(x[i], y[i], weights=w[i]), {"seed": 0}).model.trees[0]
            for i in (np.arange(200), mixed)
        )
    )


@pytest.mark.parametrize("ensemble", ["tree", "forest"])
@pytest.mark.parametrize("scale", [1e-200, 1e-170, 1e160, 1e300])
def test_targets_whose_squares_overflow_or_underflow_are_refused(scale, ensemble):
    y = np.arange(40) % 7 * scale
    with pytest.raises(DataError, match=r"the target .*(overflow|underflow)"):
        treekit.train(
            {"x": np.arange(40.0), "y": y}, "y", ensemble=ensemble, seed=0, **few(ensemble)
        )


@pytest.mark.parametrize("scale", [2.0**-440, 2.0**-100, 2.0**440])
def test_targets_of_any_allowed_size_grow_the_same_splits(scale):
    table = noisy(task="regression")
    settings = {"seed": 0}
    plain = treekit.train(table, "y", **settings)
    scaled = treekit.train(table | {"y": (np.array(table["y"]) * scale).tolist()}, "y", **settings)
    for a, b in zip(plain.trees, scaled.trees, strict=True):
        np.testing.assert_array_equal(a.threshold, b.threshold)
        np.testing.assert_array_equal(a.value * scale, b.value)


def test_rows_of_weight_0_may_have_any_target():
    table = noisy(task="regression")
    weights = np.ones(240)
    weights[0] = 0
    models = []
    for value in (0.0, 1e300):
        table["y"][0] = value
        models.append(
            treekit.train(table, "y", weights=weights, ensemble="forest", trees=3, seed=0)
        )
    for a, b in zip(models[0].trees, models[1].trees, strict=True):
        same_tree(a, b)


@pytest.mark.matrix
def test_a_target_of_thousands_of_classes_compiles_at_once():
    x = np.arange(6000.0)
    start = time.process_time()
    model = fit(
        make_dataset_from_xy(x[:, None], np.arange(6000)), {"seed": 0, "max_depth": 1}
    ).model
    assert time.process_time() - start < 60  # code for each class would take many minutes
    assert model.n_nodes == 3


# ------------------------------------------------------------------ odd tables


@pytest.mark.kernels
def test_all_missing_column_is_never_split():
    table = noisy() | {"void": [None] * 240}
    for settings in ({}, {"splitter": "histogram"}, {"ensemble": "forest", "trees": 3}):
        model = treekit.train(table, "y", seed=0, **settings)
        asked = {model.schema.names[f] for tree in model.trees for f in tree.feature if f >= 0}
        assert "void" in model.schema.names
        assert "void" not in asked


@pytest.mark.parametrize("pruner", [None, "cost_complexity", "reduced_error"])
@pytest.mark.parametrize("constant", ["yes", 3.5])
def test_constant_target_grows_one_leaf(constant, pruner):
    table = noisy() | {"y": [constant] * 240}
    model = treekit.train(table, "y", seed=0, pruner=pruner)
    assert model.n_nodes == 1
    assert model.predict(table)[:3].tolist() == [constant] * 3


@pytest.mark.parametrize("ensemble", ["tree", "forest"])
def test_one_row_grows_one_leaf(ensemble):
    table = {"x": [1.0], "town": ["Oslo"], "y": ["a"]}
    model = treekit.train(table, "y", ensemble=ensemble, seed=0, **few(ensemble))
    assert model.n_nodes == model.n_trees
    assert model.predict({"x": [None], "town": ["Bergen"]}).tolist() == ["a"]


def test_epoch_seconds_are_trained_in_float64_and_split_between_seconds():
    start = 1_700_000_000
    table = {"at": np.arange(start, start + 64), "y": ["a"] * 33 + ["b"] * 31}
    model = treekit.train(table, "y", seed=0)
    assert model.schema.dtype == "float64"
    assert model.trees[0].threshold[0] == start + 32.5
    assert model.predict({"at": [start + 32, start + 33]}).tolist() == ["a", "b"]


def test_float32_columns_stay_float32():
    x = np.linspace(0, 1, 50, dtype=np.float32)
    dataset = make_dataset_from_xy(x[:, None], (x > 0.5).astype(int))
    assert fit(dataset, {"seed": 0}).model.schema.dtype == "float32"


def test_adding_a_large_mean_to_the_target_keeps_the_splits():
    table = noisy(task="regression")
    plain = treekit.train(table, "y", seed=0, max_leaves=20)
    y = np.round(np.array(table["y"]) * 2**20) / 2**20
    small, large = (
        treekit.train(table | {"y": (y + offset).tolist()}, "y", seed=0, max_leaves=20)
        for offset in (0.0, 1e8)
    )
    assert small.n_leaves == large.n_leaves == plain.n_leaves
    np.testing.assert_array_equal(small.trees[0].threshold, large.trees[0].threshold)
    np.testing.assert_allclose(large.trees[0].value - 1e8, small.trees[0].value, atol=1e-7, rtol=0)


def test_the_out_of_bag_score_is_of_the_pruned_trees():
    table = noisy()
    settings = {"ensemble": "forest", "trees": 30, "seed": 0}
    model = treekit.train(table, "y", pruner="cost_complexity", **settings, **{"pruner.alpha": 1.0})
    assert model.n_leaves == 30
    labels, counts = np.unique(np.asarray(table["y"]), return_counts=True)
    assert len(labels) == 2
    assert model.provenance["oob"]["accuracy"] <= counts.max() / counts.sum()


def test_trees_without_a_forest_are_refused():
    with pytest.raises(SettingError, match="set ensemble='forest'"):
        treekit.train(noisy(), "y", trees=5)


# ---------------------------------------------------------------- class weights
# Class weights and priors: what they are worth in rows, and what is refused.


def trained(table=None, **settings):
    return treekit.train(table or noisy(), "y", seed=0, **settings)


UNBOUND = {"min_weight_split": 0.0, "min_weight_leaf": 0.0}


def same_splits(a, b):
    """Trees of the same weights up to their unit."""
    for name in ("kind", "feature", "threshold", "first_child", "missing", "level_branch"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    unit = a.weight[0] / b.weight[0]
    np.testing.assert_allclose(a.weight, b.weight * unit, rtol=1e-9)
    np.testing.assert_allclose(a.value, b.value * unit, rtol=1e-9, atol=1e-9)


def root(model):
    return dict(zip(model.schema.classes, model.trees[0].value[0].tolist(), strict=True))


def test_integer_class_weights_equal_repeated_rows():
    table = noisy()
    rows = np.repeat(np.arange(240), np.where(np.array(table["y"]) == "yes", 2, 1))
    copies = {name: [cells[row] for row in rows] for name, cells in table.items()}
    weighed = trained(table, class_weight="yes=2", **UNBOUND)
    same_splits(weighed.trees[0], trained(copies, **UNBOUND).trees[0])


def test_class_weights_multiply_row_weights_and_keep_their_sum():
    weights = np.random.default_rng(0).integers(1, 4, 240).astype(float)
    labels = np.array(noisy()["y"])
    by_row = weights * np.where(labels == "yes", 3, 1)
    own = treekit.train(noisy(), "y", seed=0, weights=by_row, **UNBOUND)
    named = treekit.train(noisy(), "y", seed=0, weights=weights, class_weight={"yes": 3}, **UNBOUND)
    same_splits(own.trees[0], named.trees[0])
    assert named.trees[0].weight[0] == pytest.approx(weights.sum(), rel=1e-9)


@pytest.mark.parametrize("settings", [{}, {"ensemble": "forest", "trees": 3}])
def test_only_the_ratio_of_class_weights_matters(settings):
    plain = trained(**settings)
    for s in (1, 0.1, 0.01, 1e200):
        for one, other in zip(
            trained(class_weight={"no": s, "yes": s}, **settings).trees, plain.trees, strict=True
        ):
            same_tree(one, other)
    small, large = (trained(class_weight={"no": s, "yes": 20 * s}, **settings) for s in (0.001, 2))
    for one, other in zip(small.trees, large.trees, strict=True):
        same_splits(one, other)


def test_priors_equal_to_class_shares_do_not_change_the_tree():
    share = float(np.mean(np.array(noisy()["y"]) == "yes"))
    for unit in (1, 3, 7, 0.1):
        again = trained(priors={"yes": share * unit, "no": (1 - share) * unit}).trees[0]
        same_splits(again, trained().trees[0])


# ------------------------------------------------------------------ bootstrap samples


def test_class_weights_do_not_change_bootstrap_samples_and_their_score():
    dataset = make_dataset(noisy(), "y")
    given = {"ensemble": "forest", "trees": 8, "seed": 0}
    plain = fit(dataset, given)
    for weights in ({"no": 1, "yes": 20}, {"no": 2, "yes": 40}, {"no": 1, "yes": 0.3}):
        found = fit(dataset, given | {"class_weight": weights})
        np.testing.assert_array_equal(found.oob_times, plain.oob_times)
        report = found.model.provenance["oob"]
        seen = found.oob_times > 0
        assert report["rows"] == seen.sum() > 220
        right = found.oob_votes.argmax(axis=1) == dataset.y
        assert report["accuracy"] == pytest.approx(right[seen].mean())


def test_class_weights_multiply_bootstrap_counts():
    weights = np.random.default_rng(0).integers(0, 4, 240).astype(float)
    dataset = make_dataset(noisy(), "y", weights=weights)
    given = {"ensemble": "forest", "trees": 4, "seed": 0, "pruner": "none"}
    plain, heavy = fit(dataset, given), fit(dataset, given | {"class_weight": "yes=5"})
    np.testing.assert_array_equal(heavy.oob_times, plain.oob_times)
    for one, other in zip(heavy.model.trees, plain.model.trees, strict=True):
        ratio = one.value[0] / other.value[0]
        assert ratio[1] / ratio[0] == pytest.approx(5)


@pytest.mark.kernels
@pytest.mark.parametrize("splitter", ["exact", "histogram"])
def test_class_of_weight_0_is_ignored(splitter):
    # Three classes, of which one neither is drawn nor shapes codes.
    table = noisy()
    table["y"] = ["odd" if row % 5 == 0 else label for row, label in enumerate(table["y"])]
    kept = [row for row, label in enumerate(table["y"]) if label != "odd"]
    rest = {name: [cells[row] for row in kept] for name, cells in table.items()}
    settings = {"ensemble": "forest", "trees": 3, "splitter": splitter, "max_bins": 20, "seed": 0}
    classes = ["no", "yes", "odd"]
    without = treekit.train(rest, "y", classes=classes, **settings)
    weightless = treekit.train(
        table, "y", classes=classes, class_weight={"odd": 0}, **settings, **UNBOUND
    )
    for one, other in zip(weightless.trees, without.trees, strict=True):
        np.testing.assert_array_equal(one.feature, other.feature)
        np.testing.assert_array_equal(one.threshold, other.threshold)
    assert weightless.provenance["oob"] == without.provenance["oob"]


def test_balanced_classes_have_equal_weight_and_keep_the_sum():
    found = root(trained(class_weight="balanced"))
    assert found == pytest.approx({"no": 120, "yes": 120}, rel=1e-9)


@pytest.mark.parametrize("weights", [None, "w"])
def test_classes_have_equal_weight_in_the_bag_of_each_tree(weights):
    table = noisy() | {"w": np.random.default_rng(0).choice([0.0, 0.3, 1 / 7, 1.7], 240)}
    given = {"ensemble": "forest", "trees": 5, "seed": 0, "weights": weights, "ignore": ["w"]}
    if weights:
        del given["ignore"]
    model = treekit.train(table, "y", class_weight="balanced_subsample", **given)
    plain = treekit.train(table, "y", **given)
    for tree, other in zip(model.trees, plain.trees, strict=True):
        assert tree.value[0] == pytest.approx(np.full(2, other.weight[0] / 2), rel=1e-6)
        assert tree.weight[0] == tree.value[0].sum()
    assert model.settings["class_weight"] == "balanced_subsample"
    dataset = make_dataset(table, "y", weights=weights, ignore=given.get("ignore", ()))
    # The same bags: importances draw them again, and compare them with the trees.
    found = measure_importances(model, dataset, out_of_bag=True, repeats=1)
    assert np.isfinite(found.mean).all()


def test_bootstrap_samples_without_a_class_balance_the_others():
    table = {"x": list(range(40)), "y": ["rare"] + ["a", "b", "b"] * 13}
    model = treekit.train(
        table, "y", ensemble="forest", trees=9, seed=0, class_weight="balanced_subsample"
    )
    shares = np.array([tree.value[0] / tree.weight[0] for tree in model.trees])
    counts = (shares > 0).sum(axis=1)
    assert set(counts.tolist()) == {2, 3}
    np.testing.assert_allclose(shares, (shares > 0) / counts[:, None])


def test_balanced_subsample_without_bootstrap_equals_balanced():
    given = {"ensemble": "forest", "trees": 2, "seed": 0, "bootstrap": False, "oob": False}
    one, other = (
        treekit.train(noisy(), "y", class_weight=w, **given)
        for w in ("balanced_subsample", "balanced")
    )
    same_tree(one.trees[1], other.trees[1])


def test_balanced_subsample_is_refused_without_a_forest():
    with pytest.raises(SettingError, match="for a tree, set class_weight='balanced'"):
        trained(class_weight="balanced_subsample")
    dataset = make_dataset(noisy(), "y")
    given = {"ensemble": "forest", "trees": 2, "pruner": "reduced_error", "seed": 0}
    with pytest.raises(SettingError, match="cannot be used with a validation table"):
        fit(dataset, given | {"class_weight": "balanced_subsample"}, None, dataset)
    x, y = np.arange(20.0)[:, None], np.arange(40).reshape(20, 2) % 3
    forest = RandomForestClassifier(n_estimators=2, class_weight="balanced_subsample")
    with pytest.raises(SettingError, match="there are 2 outputs; give 'balanced', or a list"):
        forest.fit(x, y)


def test_priors_set_the_class_shares_of_weight():
    model = trained(priors="yes=1,no=3")
    assert root(model) == pytest.approx({"no": 180, "yes": 60}, rel=1e-9)
    assert model.settings["priors"] == pytest.approx({"no": 0.75, "yes": 0.25})
    # Breiman et al. 1984, section 4.4: priors as they are in the data change nothing.
    share = float(np.mean(np.array(noisy()["y"]) == "yes"))
    same = trained(priors={"yes": share, "no": 1 - share})
    np.testing.assert_array_equal(same.trees[0].feature, trained().trees[0].feature)


def test_weights_are_recorded_as_plain_values_that_may_be_given_again():
    model = trained(class_weight="yes=2.5")
    assert model.settings["class_weight"] == {"no": 1.0, "yes": 2.5}
    same_tree(trained(class_weight=model.settings["class_weight"]).trees[0], model.trees[0])
    balanced = trained(class_weight="balanced")
    again = trained(class_weight=balanced.settings["class_weight"])
    same_tree(again.trees[0], balanced.trees[0])


def test_estimators_with_class_weights_equal_train():
    table = noisy()
    x = np.column_stack([table["size"], table["age"]])
    by_dict = DecisionTreeClassifier(random_state=0, class_weight={"yes": 3, "no": 1})
    cells = {"a": x[:, 0], "b": x[:, 1], "y": table["y"]}
    front = treekit.train(cells, "y", seed=0, class_weight="yes=3", **UNBOUND)
    same_splits(by_dict.fit(x, table["y"]).model_.trees[0], front.trees[0])


def halves():
    """Rows to train on and rows to validate by, of two columns and labels 0 and 1, a fifth 1."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(400, 2))
    y = (x[:, 0] + rng.normal(size=400) > 1.2).astype(int)
    return (x[:200], y[:200]), (x[200:], y[200:])


@pytest.mark.parametrize("class_weight", [{0: 1, 1: 4}, "balanced"])
def test_class_weights_of_an_estimator_apply_to_validation_and_are_recorded(class_weight):
    (x, y), (xv, yv) = halves()
    how = {"class_weight": class_weight, "pruner": "reduced_error", "dtype": "float64"}
    tree = DecisionTreeClassifier(**how, random_state=0).fit(x, y, validation=(xv, yv))
    table, held = ({"x0": a[:, 0], "x1": a[:, 1], "target": b} for a, b in ((x, y), (xv, yv)))
    limits = {name: tree.model_.settings[name] for name in ("min_weight_split", "min_weight_leaf")}
    front = treekit.train(
        table, "target", task="classification", seed=0, validation=held, min_gain=None, **how,
        **limits,
    )  # fmt: skip
    same_tree(tree.model_.trees[0], front.trees[0])
    assert tree.model_.settings == front.settings
    factors = compute_class_weight(class_weight, classes=np.array([0, 1]), y=y)
    told = tree.model_.settings["class_weight"]
    assert told == pytest.approx({"0": factors[0], "1": factors[1]})


@pytest.mark.matrix
def test_several_outputs_weigh_rows_to_validate_by_the_product_of_their_labels():
    (x, y), (xv, yv) = halves()
    both, held = np.column_stack([y, x[:, 1] > 1]), np.column_stack([yv, xv[:, 1] > 1])
    one = DecisionTreeClassifier(
        pruner="reduced_error", random_state=0, class_weight=[{0: 1, 1: 4}, {0: 1, 1: 2}]
    )
    one.fit(x, both, validation=(xv, held))
    copies = np.repeat(np.arange(200), (1 + 3 * held[:, 0]) * (1 + held[:, 1]))
    other = DecisionTreeClassifier(pruner="reduced_error", random_state=0)
    weights = (1 + 3 * both[:, 0]) * (1 + both[:, 1])
    other.fit(x, both, weights, validation=(xv[copies], held[copies]))
    same_tree(one.model_.trees[0], other.model_.trees[0])
    with pytest.raises(SettingError, match="there are 2 outputs; give 'balanced', or a list"):
        one.set_params(class_weight={0: 1, 1: 4}).fit(x, both)


@pytest.mark.matrix
def test_several_outputs_are_balanced_by_the_training_rows_when_they_validate():
    (x, y), (xv, yv) = halves()
    both, held = np.column_stack([y, y]), np.column_stack([yv, yv])
    by_word, by_number = (
        DecisionTreeClassifier(pruner="reduced_error", random_state=0, class_weight=given)
        for given in (
            "balanced",
            [dict(enumerate(compute_class_weight("balanced", classes=np.array([0, 1]), y=y)))] * 2,
        )
    )
    by_word.fit(x, both, validation=(xv[yv == 1], held[yv == 1]))
    by_number.fit(x, both, validation=(xv[yv == 1], held[yv == 1]))
    same_tree(by_word.model_.trees[0], by_number.model_.trees[0])


def test_an_estimator_balances_by_numbers_of_rows_as_scikit_learn_does():
    (x, y), _ = halves()
    weights = np.where(x[:, 1] > 0, 3.0, 1.0)
    tree = DecisionTreeClassifier(class_weight="balanced", max_depth=3).fit(x, y, weights)
    factors = compute_class_weight("balanced", classes=np.array([0, 1]), y=y)
    assert tree.model_.settings["class_weight"] == {"0": factors[0], "1": factors[1]}
    weighed = np.bincount(y, weights) * factors
    value = tree.model_.trees[0].value[0]
    np.testing.assert_allclose(value / value.sum(), weighed / weighed.sum(), rtol=1e-9)


def test_rows_of_a_class_of_weight_0_are_not_samples_of_a_node():
    (x, y), _ = halves()
    tree = DecisionTreeClassifier(class_weight={0: 0, 1: 1}).fit(x, y)
    assert tree.tree_.n_node_samples.tolist() == [y.sum()]


@pytest.mark.parametrize("where", ["parameters", "train_settings"])
def test_an_estimator_refuses_priors_beside_class_weights(where):
    (x, y), _ = halves()
    priors = {"priors": {0: 1, 1: 1}}
    given = priors if where == "parameters" else {"train_settings": priors}
    with pytest.raises(SettingError, match="class_weight and priors both weigh the classes"):
        DecisionTreeClassifier(class_weight="balanced", **given).fit(x, y)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"class_weight": "ye=2"}, "class_weight names unknown class 'ye'; did you mean 'yes'"),
        ({"class_weight": "yes"}, "'yes'; write NAME=NUMBER"),
        ({"class_weight": "yes=1,yes=2"}, "'yes' twice"),
        ({"class_weight": "yes=much"}, "'yes' the value 'much'; give a finite number"),
        ({"class_weight": {"yes": True}}, "the value True"),
        ({"class_weight": "yes=nan"}, "'nan'; give a finite number"),
        ({"class_weight": "yes=-1"}, "'yes' is -1; give 0 or more"),
        ({"class_weight": "yes=0,no=0"}, "is 0 for all rows"),
        ({"class_weight": 3}, "is 3; give NAME=NUMBER"),
        ({"class_weight": '"yes=3'}, "write NAME=NUMBER"),
        ({"priors": "yes=0.5"}, "priors lack the class 'no'"),
        ({"priors": "yes=1,no=0"}, "the prior of 'no' is 0; give more than 0"),
        ({"priors": "yes=1,no=1", "class_weight": "balanced"}, "give one of them"),
    ],
)
def test_invalid_class_weights_are_refused_with_a_remedy(settings, said):
    with pytest.raises(SettingError, match=said):
        trained(**settings)


def test_class_weights_are_refused_for_regression():
    for settings in ({"class_weight": "balanced"}, {"priors": "a=1"}):
        with pytest.raises(SettingError, match="is for classification, but the target 'y' is a"):
            treekit.train(noisy(task="regression"), "y", **settings)


def test_labels_with_separators_are_quoted_and_numbers_match_their_text():
    names = ("a,b", "x=y", "3")
    assert parse_named_numbers('"a,b=2",x=y=0.5, 3.0=1e2', names, "w") == {0: 2.0, 1: 0.5, 2: 100.0}
    assert parse_named_numbers({"a,b": 1, 3.0: 7}, names, "w") == {0: 1.0, 2: 7.0}
    with pytest.raises(SettingError, match="3 twice"):
        parse_named_numbers({"3": 1, 3: 7}, names, "w")


NAMES = ("no", "yes", "per,haps", 'a "b"', "a\rb", "a\nb")


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(-1e300, 1e300)))
def test_named_numbers_are_formatted_and_parsed_equal(numbers):
    wanted = {NAMES.index(n): v for n, v in numbers.items()}
    assert parse_named_numbers(format_named_numbers(numbers), NAMES, "w") == wanted


# ------------------------------------------------------------------ how many rows are drawn


def in_bag(**settings):
    model = trained(ensemble="forest", trees=3, oob=False, **settings)
    return [float(tree.weight[0]) for tree in model.trees]


def test_a_forest_draws_the_requested_rows_on_average():
    for most, expected in ((None, 240), (40, 40), (0.25, 60), (1.5, 360), (600, 600)):
        sizes = in_bag(max_samples=most)
        assert len(set(sizes)) > 1
        assert np.abs(np.array(sizes) - expected).max() < 5 * expected**0.5
    assert in_bag(max_samples=1.0) == in_bag()


@pytest.mark.parametrize("wanted", [0, 0.0, -0.5])
def test_invalid_max_samples_is_refused(wanted):
    with pytest.raises(SettingError, match=r"share above 0\.0|at least 0"):
        in_bag(max_samples=wanted)


@pytest.mark.parametrize("settings", [{}, {"ensemble": "forest", "bootstrap": False}])
def test_max_samples_without_bootstrap_is_refused(settings):
    with pytest.raises(SettingError, match="set ensemble='forest' and bootstrap=True"):
        trained(max_samples=10, **settings)


# ------------------------------------------------------------------ costs and votes


def test_costs_are_scaled_to_integers_of_equal_ratios():
    def whole(*rows):
        return scale_costs_to_integers(np.array(rows, float)).tolist()

    assert whole([0, 5], [1, 0]) == [[0, 5], [1, 0]]
    assert whole([0, 2.5], [1, 0]) == [[0, 5], [2, 0]]
    assert whole([0, 0.1], [0.25, 0]) == [[0, 2], [5, 0]]
    assert whole([0, 20_000], [5_000, 0]) == [[0, 4], [1, 0]]
    assert whole([0, 2**0.5], [1, 0]) == [[0, MAX_COST], [round(MAX_COST / 2**0.5), 0]]


@given(st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=6))
def test_scaled_costs_keep_their_ratios_within_half_a_step(values):
    k = len(values)
    matrix = np.zeros((k, k))
    matrix[np.arange(k), (np.arange(k) + 1) % k] = values
    found = scale_costs_to_integers(matrix)
    assert ((found > 0) == (matrix > 0)).all()
    assert found.max() <= MAX_COST
    scale = found.max() / matrix.max()
    assert np.abs(found - matrix * scale).max() <= 0.5 + 1e-6


def test_costs_reduce_the_predictions_of_a_costly_mistake():
    table = noisy()
    plain, careful = trained(table, max_depth=1), trained(table, max_depth=1, costs="yes>no=20")
    assert careful.costs.tolist() == [[0, 1], [20, 0]] == careful.settings["costs"]
    same_tree(plain.trees[0], careful.trees[0])
    said = careful.predict(table)
    assert (said == "yes").sum() > (plain.predict(table) == "yes").sum()
    # Label of least expected cost: yes where its share exceeds 1/21.
    share = careful.predict_proba(table)[:, 1]
    np.testing.assert_array_equal(said == "yes", share * 20 > 1 - share)


def test_costs_are_given_as_text_pairs_or_a_matrix():
    for costs in ("yes>no=3", {("yes", "no"): 3}, [[0, 1], [3, 0]], np.array([[0.0, 1], [3, 0]])):
        assert trained(costs=costs, max_depth=1).costs.tolist() == [[0, 1], [3, 0]]


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ("yes=2", "write TRUE>PREDICTED=COST"),
        ("yes>n=2", "names unknown class 'n'"),
        ("yes>no=-2", "predicting 'no' for 'yes' is -2"),
        ({("yes", "yes"): 1}, "is not a mistake; its cost must be 0"),
        ({("yes",): 1}, "is not a pair"),
        ("yes>no=0,no>yes=0", "all costs are 0"),
        ("yes>no=20000,no>yes=0.5", "the largest may be at most 16,384 times the smallest"),
        ([[0, 1]], "a matrix of finite numbers, 2 x 2"),
        ([[0, np.nan], [1, 0]], "a matrix of finite numbers, 2 x 2"),
    ],
)
def test_invalid_costs_are_refused(costs, said):
    with pytest.raises(SettingError, match=said):
        trained(costs=costs)


def test_cost_labels_containing_the_separator_are_read_if_unambiguous():
    assert parse_number_pairs("a>b>c=2", ("a>b", "c"), "costs") == {(0, 1): 2.0}
    with pytest.raises(SettingError, match="can be split in 2 ways"):
        parse_number_pairs("a>b>c=2", ("a>b", "c", "a", "b>c"), "costs")


def test_out_of_bag_labels_use_costs_and_votes():
    table = noisy()
    forest = {"ensemble": "forest", "trees": 15}
    plain = trained(table, **forest).provenance["oob"]["accuracy"]
    careful = trained(table, **forest, costs="yes>no=30").provenance["oob"]["accuracy"]
    assert careful < plain
    hard = trained(table, **forest, voting="hard", max_depth=2)
    assert set(np.unique(hard.units)) == {0, 1}


def test_hard_voting_applies_costs_only_in_the_leaves():
    costs = [[0, 1, 1], [0, 0, 5], [5, 1, 0]]
    table = {"x": [0.0] * 10 + [1.0], "y": ["b"] * 6 + ["c"] * 4 + ["a"]}
    told = {}
    for voting in ("soft", "hard"):
        model = treekit.train(
            table, "y", classes=["a", "b", "c"], costs=costs, voting=voting, seed=0
        )
        told[voting] = model.predict({"x": [0.0]}).tolist(), model.predict_proba({"x": [0.0]})[0]
    assert told["soft"][0] == told["hard"][0] == ["b"]
    assert told["hard"][1].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("forest", [{}, {"ensemble": "forest", "trees": 3}])
def test_criterion_score_of_the_wrong_sign_warns(forest):
    def score(parent, children):
        error = 0.0
        for b in range(children.shape[0]):
            error += children[b].sum() - children[b].max()
        return (error - (parent.sum() - parent.max())) / parent.sum()

    turned = Criterion("turned", "classification", lambda: CriterionFunctions(score=score))
    x = np.arange(60.0)
    with pytest.warns(TreekitWarning, match="pure branches is -0.35, below 0"):
        model = treekit.train({"x": x, "y": x > 20}, "y", criterion=turned, **forest)
    assert model.n_leaves == len(model.trees)
    with warnings.catch_warnings():  # nothing to split: no warning
        warnings.simplefilter("error")
        treekit.train({"x": np.ones(60), "y": x > 20}, "y", criterion=turned, **forest)


def test_target_with_nearly_unique_labels_warns():
    names = [f"case {n // 2}" for n in range(300)]  # 150 classes: half of the rows
    x = [n // 2 for n in range(300)]  # codes of 8 bits: those of 16 bits compile all kernels anew
    treekit.train({"x": x, "y": names}, "y", max_depth=1)
    with pytest.warns(TreekitWarning, match="target 'y' has 151 classes in 300 rows"):
        treekit.train({"x": x, "y": ["case", *names[1:]]}, "y", max_depth=1)


# ------------------------------------------------------------------ rng


def test_rng_setting_draws_the_seed():
    x, y = np.arange(20.0)[:, None], np.arange(20) % 2
    table = {"x": x[:, 0], "y": y.astype(str)}
    settings = {"ensemble": "forest", "trees": 2}
    drawn = [
        treekit.train(table, "y", rng=rng, **settings) for rng in (7, np.random.default_rng(7))
    ]
    seeds = [model.settings["seed"] for model in drawn]
    assert seeds[0] == seeds[1] != 7
    again = treekit.train(table, "y", seed=seeds[0], **settings)
    assert np.array_equal(again.units, drawn[0].units)
    score = treekit.evaluate(table, target="y", cv=2, rng=7, **settings)
    assert str(score) == str(treekit.evaluate(table, target="y", cv=2, seed=seeds[0], **settings))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rng": "x"}, "rng is 'x'; give a non-negative integer"),
        ({"rng": -1}, "rng is -1; give a non-negative integer"),
        ({"rng": 1, "seed": 0}, "seed and rng are both given; give one of them"),
    ],
)
def test_invalid_rng_is_refused(given, message):
    with pytest.raises(SettingError, match=message):
        treekit.train({"x": [1.0, 2.0], "y": ["a", "b"]}, "y", **given)
