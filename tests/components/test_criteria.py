"""Criteria of the literature: their formulas, their trees, and what they refuse."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeRegressor

import treekit
from tests.tiers import later
from treekit.components import criteria as classes
from treekit.components.criteria import (
    make_friedman,
    make_misclassification,
    make_poisson,
    make_twoing,
)
from treekit.model.tree import Split
from treekit.splitting import branch_stats, heavy_enough, scored, threshold_split

WEIGHTS = st.lists(st.integers(0, 9), min_size=3, max_size=3)
BRANCHES = st.lists(WEIGHTS.filter(any), min_size=2, max_size=4)


def array(rows: Any) -> np.ndarray:
    return np.array(rows, dtype=np.float64)


@given(BRANCHES)
def test_misclassification_scores_the_decrease_of_wrongly_labelled_rows(branches: Any) -> None:
    functions = make_misclassification()
    parent = array(branches).sum(axis=0)
    wrong = sum(sum(b) - max(b) for b in branches)
    assert functions.impurity is not None
    assert functions.score is not None
    assert functions.impurity(parent) == pytest.approx(1 - parent.max() / parent.sum())
    decrease = (parent.sum() - parent.max() - wrong) / parent.sum()
    assert functions.score(parent, array(branches)) == pytest.approx(decrease)


@given(st.lists(WEIGHTS.filter(any), min_size=2, max_size=2))
def test_twoing_equals_the_best_gini_decrease_of_two_superclasses(branches: Any) -> None:
    # Breiman et al. 1984, theorem 4.10, with the impurity p(1 - p) of two classes.
    left, right = array(branches)
    total = left + right
    weights = left.sum(), right.sum(), total.sum()

    def decrease(first: tuple[int, ...]) -> float:
        parts = [side[list(first)].sum() for side in (left, right, total)]
        below, above, own = (w * (p / w) * (1 - p / w) for p, w in zip(parts, weights, strict=True))
        return float((own - below - above) / weights[2])

    best = max(decrease(c) for n in (1, 2) for c in combinations(range(3), n))
    score = make_twoing().score
    assert score is not None
    assert score(total, array(branches)) == pytest.approx(best, abs=1e-12)


@given(BRANCHES)
def test_twoing_of_several_branches_is_their_distance_from_the_parent(branches: Any) -> None:
    parts = array(branches)
    total = parts.sum(axis=0)
    share = parts.sum(axis=1) / total.sum()
    apart = np.abs(parts / parts.sum(axis=1, keepdims=True) - total / total.sum()).sum(axis=1)
    score = make_twoing().score
    assert score is not None
    assert score(total, parts) == pytest.approx(float((share * apart**2).sum() / 4), abs=1e-12)


def test_friedman_mse_equals_equation_35_per_unit_of_weight() -> None:
    left, right = (3.0, 3.0 * 5.0), (2.0, 2.0 * -1.0)
    improvement = 3 * 2 / (3 + 2) * (5 - -1) ** 2
    score = make_friedman().score
    assert score is not None
    assert score(array([5.0, 13.0]), array([left, right])) == pytest.approx(improvement / 5)


def test_poisson_scores_the_decrease_of_half_the_deviance() -> None:
    y = [[1.0, 0.0, 2.0], [7.0, 4.0]]

    def deviance(values: list[float], mean: float) -> float:
        return sum((v * math.log(v / mean) if v else 0.0) - v + mean for v in values)

    whole = y[0] + y[1]
    after = sum(deviance(part, sum(part) / len(part)) for part in y)
    decrease = (deviance(whole, sum(whole) / len(whole)) - after) / len(whole)
    score = make_poisson().score
    assert score is not None
    stats = array([[len(part), sum(part)] for part in y])
    assert score(stats.sum(axis=0), stats) == pytest.approx(decrease)


def counts(rows: int = 240) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    return x, rng.poisson(np.exp(x[:, 0] + 0.5 * np.sin(3 * x[:, 1]))).astype(float)


def same_as_sklearn(ours: Any, x: np.ndarray, theirs: Any) -> None:
    """Equal splits and leaf values of two trees on continuous columns."""
    tree, other = ours.model_.trees[0], theirs.tree_
    pairs = [(0, 0)]
    seen = 0
    while pairs:
        a, b = pairs.pop()
        seen += 1
        assert tree.value[a] == pytest.approx(other.value[b].ravel(), rel=1e-9, abs=1e-12)
        if other.children_left[b] < 0:
            assert tree.kind[a] == Split.LEAF
            continue
        assert tree.feature[a] == other.feature[b]
        assert tree.threshold[a] == pytest.approx(other.threshold[b], rel=1e-6)
        first = int(tree.first_child[a])
        pairs += [(first, other.children_left[b]), (first + 1, other.children_right[b])]
    assert seen == tree.n_nodes


@pytest.mark.parametrize("name", ["poisson", "squared_error"])
def test_trees_of_counts_equal_those_of_scikit_learn(name: str) -> None:
    x, y = counts()
    settings = {"criterion": name, "min_samples_leaf": 12}
    theirs = DecisionTreeRegressor(random_state=0, **settings).fit(x, y)
    ours = treekit.DecisionTreeRegressor(**settings, train_settings={"thresholds": "midpoint"})
    same_as_sklearn(ours.fit(x, y), x, theirs)


@pytest.mark.matrix
def test_friedman_mse_and_squared_error_grow_equal_trees() -> None:
    x, y = counts()
    one, other = (
        treekit.DecisionTreeRegressor(criterion=name, max_leaf_nodes=9).fit(x, y).model_.trees[0]
        for name in ("friedman", "squared_error")
    )
    np.testing.assert_array_equal(one.threshold, other.threshold)
    np.testing.assert_allclose(one.gain, other.gain)


def test_poisson_never_predicts_zero() -> None:
    x, y = counts()
    tree = treekit.DecisionTreeRegressor(criterion="poisson").fit(x, y).model_.trees[0]
    assert (y == 0).any()
    assert tree.value.min() > 0


def test_poisson_refuses_negative_counts_with_column_and_row() -> None:
    table = {"x": [1.0, 2.0, 3.0], "claims": [2.0, -1.0, 0.5]}
    with pytest.raises(treekit.DataError, match=r"'poisson'.*'claims' is -1 in row 1"):
        treekit.train(table, "claims", task="regression", criterion="poisson")


def test_twoing_groups_classes_where_gini_splits_one_off() -> None:
    # Of ten classes, twoing looks for two halves (Breiman et al. 1984, section 4.4).
    table = {"x": [float(i) for i in range(20)], "y": [f"c{i // 2}" for i in range(20)]}
    model = treekit.train(table, "y", criterion="twoing", max_depth=1, seed=0)
    assert model.trees[0].threshold[0] == 9.5


@pytest.mark.matrix
def test_misclassification_stops_where_no_label_changes() -> None:
    table = {"x": [1, 2, 3, 4], "y": ["a", "a", "a", "b"]}
    purer = treekit.train(table, "y", criterion="gini", max_depth=1, min_weight_leaf=2, seed=0)
    assert purer.n_leaves == 2
    same = treekit.train(
        table, "y", criterion="misclassification", max_depth=1, min_weight_leaf=2, seed=0
    )
    assert same.n_leaves == 1


@pytest.mark.matrix
def test_criterion_may_request_the_raw_target_values() -> None:
    def score(parent: Any, children: Any) -> float:
        # Were y centred, sums of both signs would appear.
        return float(min(children[0, 1], children[1, 1]))

    own = treekit.Criterion(
        "least_sum",
        "regression",
        lambda: treekit.CriterionFunctions(score=score, statistics=treekit.Sums(centred=False)),
    )
    table = {"x": [1.0, 2.0, 3.0, 4.0], "y": [10.5, 20.5, 30.5, 40.5]}
    model = treekit.train(table, "y", criterion=own, max_depth=1, seed=0)
    assert model.trees[0].gain[0] == 40.5
    assert model.trees[0].threshold[0] == 3.5


@pytest.mark.parametrize(
    ("task", "functions", "complaint"),
    [
        ("regression", {"statistics": "sums"}, "known: treekit.Sums, treekit.Ranks"),
        ("regression", {"statistics": treekit.Ranks(1.0)}, "must be between 0 and 1"),
        ("classification", {"statistics": treekit.Ranks()}, "weights of the classes"),
        ("regression", {"statistics": treekit.Ranks()}, "neither impurity nor loss"),
    ],
)
def test_criterion_of_unknown_statistics_is_refused(
    task: Any, functions: dict[str, Any], complaint: str
) -> None:
    def score(parent: Any, children: Any) -> float:
        return 0.0

    def make() -> treekit.CriterionFunctions:
        return treekit.CriterionFunctions(score=score, **functions)

    own = treekit.Criterion("own", task, make)
    table = {"x": [1.0, 2.0], "y": [1.5, 2.5] if task == "regression" else ["a", "b"]}
    with pytest.raises(treekit.PluginError, match=complaint):
        treekit.train(table, "y", criterion=own)


def skewed(rows: int = 240) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    return x, 2 * x[:, 0] + np.abs(x[:, 1]) + rng.gamma(1.0, size=rows)


@pytest.mark.matrix
@pytest.mark.parametrize("weighted", [False, True])
def test_trees_by_absolute_error_equal_those_of_scikit_learn(weighted: bool) -> None:
    x, y = skewed()
    weights = np.random.default_rng(1).integers(1, 4, len(y)).astype(float) if weighted else None
    settings = {"criterion": "absolute_error", "min_samples_leaf": 20, "max_depth": 4}
    midpoint = {"thresholds": "midpoint"}
    ours = treekit.DecisionTreeRegressor(**settings, train_settings=midpoint)
    ours.fit(x, y, sample_weight=weights)
    if weights is not None:  # scikit-learn counts rows, not their weight
        x, y = np.repeat(x, weights.astype(int), axis=0), np.repeat(y, weights.astype(int))
    theirs = DecisionTreeRegressor(random_state=0, **settings).fit(x, y)
    same_as_sklearn(ours, x, theirs)


@pytest.mark.matrix
def test_a_leaf_predicts_the_exact_median() -> None:
    table = {"x": [0.0] * 5 + [1.0] * 4, "y": [0.1, 0.3, 0.7, 9.9, 1e6, 0.1, 0.2, 0.4, 0.7]}
    model = treekit.train(table, "y", criterion="absolute_error", max_depth=1, seed=0)
    left, right = model.trees[0].value[model.trees[0].leaves][:, 0]
    assert left == 0.7
    assert right == 0.5 * 0.2 + 0.5 * 0.4  # the mean of the middle two


@pytest.mark.matrix
@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_share_of_rows_below_a_quantile_leaf_equals_the_quantile(quantile: float) -> None:
    x, y = skewed()
    tree = treekit.DecisionTreeRegressor(
        criterion="quantile",
        criterion_settings={"quantile": quantile},
        min_samples_leaf=24,
    ).fit(x, y)
    says, leaf = tree.predict(x), tree.apply(x)
    for node in np.unique(leaf):
        own = leaf == node
        assert (y[own] < says[own]).mean() == pytest.approx(quantile, abs=1 / own.sum())


@pytest.mark.matrix
def test_fractional_weights_of_quantile_loss_are_relative() -> None:
    x, y = skewed()
    w = np.random.default_rng(2).integers(1, 50, len(y)).astype(float)
    settings = {"criterion": "quantile", "criterion_settings": {"quantile": 0.25}, "max_depth": 5}
    one, other = (
        treekit.DecisionTreeRegressor(**settings).fit(x, y, sample_weight=w * unit).model_
        for unit in (1.0, 0.37)
    )
    np.testing.assert_array_equal(one.trees[0].threshold, other.trees[0].threshold)
    np.testing.assert_allclose(one.trees[0].value, other.trees[0].value)


@pytest.mark.matrix
def test_a_forest_by_absolute_error_scores_its_out_of_bag_rows() -> None:
    x, y = skewed()
    forest = treekit.RandomForestRegressor(
        20, criterion="absolute_error", oob_score=True, random_state=0
    ).fit(x, y)
    assert 0.5 < forest.oob_score_ < 1.0


@pytest.mark.matrix
def test_categories_are_ordered_by_their_median() -> None:
    # By their means b (one far row) would come last.
    rows = {"a": [5.0, 5.0, 6.0], "b": [1.0, 1.0, 99.0], "c": [1.5, 2.0, 2.0], "d": [7.0, 7.5, 7.0]}
    table = {
        "x": [level for level, y in rows.items() for _ in y],
        "y": [value for y in rows.values() for value in y],
    }
    model = treekit.train(table, "y", criterion="absolute_error", max_depth=1, seed=0)
    assert model.trees[0].level_branch.tolist() == [1, 0, 0, 1]


@pytest.mark.matrix
def test_missing_values_take_the_branch_of_least_loss() -> None:
    table = {"x": [1.0, 2.0, None, 3.0, 4.0, None], "y": [1.0, 1.5, 1.2, 9.0, 8.5, 0.8]}
    model = treekit.train(table, "y", criterion="absolute_error", max_depth=1, seed=0)
    assert (model.trees[0].threshold[0], model.trees[0].missing[0]) == (2.5, 0)


@pytest.mark.matrix
def test_custom_rank_criterion_compiles_and_prunes() -> None:
    def impurity(stats: Any) -> float:
        return float(max(stats[2], stats[3]) / stats[0])

    own = treekit.Criterion(
        "worse_side",
        "regression",
        lambda: treekit.CriterionFunctions(impurity=impurity, statistics=treekit.Ranks(0.5)),
    )
    x, y = skewed()
    table = {f"x{i}": x[:, i] for i in range(4)} | {"y": y}
    full = treekit.train(table, "y", criterion=own, seed=0)
    ties = {"pruner.prune_ties": True}
    less = treekit.train(table, "y", criterion=own, pruner="reduced_error", seed=0, **ties)
    assert full.n_leaves > 100
    assert 1 < less.n_leaves < full.n_leaves / 2


@pytest.mark.matrix
def test_pruning_by_absolute_error_uses_the_loss_of_held_out_rows() -> None:
    rng = np.random.default_rng(3)
    x = rng.random(250)
    y = np.where(x < 0.5, 0.0, 10.0) + rng.normal(size=250) / 2
    y[::20] += 1e6  # far rows, which squared errors would chase
    table = {"x": x, "y": y}
    model = treekit.train(table, "y", criterion="absolute_error", pruner="reduced_error", seed=1)
    low, high = model.predict({"x": [0.25, 0.75]})
    assert low == pytest.approx(0.0, abs=1.0)
    assert high == pytest.approx(10.0, abs=1.0)


@pytest.mark.matrix
def test_custom_splitter_receives_rank_statistics() -> None:
    def find(node: Any, criterion: Any, rng: Any) -> Any:
        best = None
        highest = 0.0
        for cut in range(np.int64(node.table.n_codes[0]) - 1):
            split = threshold_split(0, cut)
            children = branch_stats(node, split)
            if heavy_enough(node, children):
                score = criterion.score(node.stats, children)
                if score > highest:
                    highest = score
                    best = scored(split, score)
        return best

    slow = treekit.Splitter("slow", lambda: treekit.SplitterFunctions(find))
    x, y = skewed(60)
    table = {"x": x[:, 0], "y": y}
    settings: dict[str, Any] = {"criterion": "absolute_error", "min_weight_leaf": 6, "seed": 0}
    one = treekit.train(table, "y", splitter=slow, **settings).trees[0]
    other = treekit.train(table, "y", splitter="exact", **settings).trees[0]
    np.testing.assert_array_equal(one.threshold, other.threshold)


@pytest.mark.parametrize(
    "settings",
    [{"missing": "fractional"}, {"resolution": 0.5}, {"nominal_splits": "one_vs_rest"}],
)
def test_settings_for_additive_statistics_are_refused_for_rank_criteria(
    settings: dict[str, Any],
) -> None:
    table = {"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 4.0]}
    name = next(iter(settings))
    with pytest.raises(treekit.SettingError, match=f"{name}=.*'absolute_error' uses quantiles"):
        treekit.train(table, "y", task="regression", criterion="absolute_error", **settings)


@pytest.mark.matrix
def test_branch_of_an_unseen_category_predicts_the_parent_median() -> None:
    table = {"x": ["a"] * 3 + ["c"] * 4, "y": [1.0, 1.5, 9.0, 4.0, 5.0, 5.5, 6.0]}
    model = treekit.train(
        table, "y", criterion="absolute_error", levels={"x": ["a", "b", "c"]}, seed=0,
        nominal_splits="multiway", empty_branches=True, max_depth=1,
    )  # fmt: skip
    assert model.predict({"x": ["a", "b", "c"]}).tolist() == [1.5, 5.0, 5.25]


@pytest.mark.parametrize("splitter", ["random", "oblique"])
def test_splitters_with_additive_statistics_are_refused_for_rank_criteria(splitter: str) -> None:
    x, y = skewed(60)
    table = {"x": x[:, 0], "y": y}
    with pytest.raises(treekit.SettingError, match=f"'{splitter}'.* needs additive statistics"):
        treekit.train(table, "y", criterion="absolute_error", splitter=splitter)


@pytest.mark.parametrize("criterion", [later("absolute_error"), "poisson"])
def test_one_se_rule_is_refused_with_a_holdout_if_losses_are_not_per_row(criterion: str) -> None:
    x, y = skewed()
    table = {"x": x[:, 0], "y": np.abs(y).round()}
    how: dict[str, Any] = {"pruner": "cost_complexity", "pruner.rule": "one_se", "seed": 0}
    with pytest.raises(treekit.SettingError, match="rule='one_se' on hold-out rows"):
        treekit.train(table, "y", task="regression", criterion=criterion, **how,
                      **{"pruner.holdout": 0.3})  # fmt: skip
    crossed = treekit.train(table, "y", task="regression", criterion=criterion, **how)
    assert crossed.n_leaves >= 1


@pytest.mark.matrix
def test_missing_values_follow_surrogates_in_absolute_error_trees() -> None:
    x, y = skewed()
    x[:, 1] = x[:, 0] + 0.01 * x[:, 1]  # as good as the same column
    gone = x.copy()
    gone[::5, 0] = np.nan
    names = ("a", "b", "c", "d")
    settings: dict[str, Any] = {"criterion": "absolute_error", "max_depth": 3, "seed": 0}
    table = dict(zip(names, gone.T, strict=True)) | {"y": y}
    model = treekit.train(table, "y", missing="surrogate", min_weight_leaf=20, **settings)
    tree = model.trees[0]
    assert len(tree.surrogate_feature) > 0
    whole = treekit.train(
        dict(zip(names, x.T, strict=True)) | {"y": y}, "y", min_weight_leaf=20, **settings
    )
    said, wanted = (m.predict(dict(zip(names, rows.T, strict=True))) for m, rows in (
        (model, gone), (whole, x)))  # fmt: skip
    assert np.abs(said - y).mean() < 1.1 * np.abs(wanted - y).mean()


def test_tabulated_logarithms_equal_the_formula() -> None:
    for weight in [*range(1, 4100), 1e9, 0.5, 4095.5, 1e-300]:
        assert classes._multiply_by_log(float(weight)) == weight * math.log(weight)
    assert classes._multiply_by_log(0.0) == 0.0
