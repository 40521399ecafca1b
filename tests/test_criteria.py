"""The criteria of the literature: their formulas, their trees, and what they refuse."""

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
from treekit.criteria.cart import misclassification, twoing
from treekit.criteria.numbers import friedman, poisson
from treekit.model.tree import Split

WEIGHTS = st.lists(st.integers(0, 9), min_size=3, max_size=3)
BRANCHES = st.lists(WEIGHTS.filter(any), min_size=2, max_size=4)


def array(rows: Any) -> np.ndarray:
    return np.array(rows, dtype=np.float64)


@given(BRANCHES)
def test_misclassification_scores_the_rows_that_change_to_the_right_label(branches: Any) -> None:
    functions = misclassification()
    parent = array(branches).sum(axis=0)
    wrong = sum(sum(b) - max(b) for b in branches)
    assert functions.impurity is not None
    assert functions.score is not None
    assert functions.impurity(parent) == pytest.approx(1 - parent.max() / parent.sum())
    decrease = (parent.sum() - parent.max() - wrong) / parent.sum()
    assert functions.score(parent, array(branches)) == pytest.approx(decrease)


@given(st.lists(WEIGHTS.filter(any), min_size=2, max_size=2))
def test_twoing_is_the_best_gini_decrease_of_any_two_superclasses(branches: Any) -> None:
    # Breiman et al. 1984, theorem 4.10, with the impurity p(1 - p) of two classes.
    left, right = array(branches)
    total = left + right
    weights = left.sum(), right.sum(), total.sum()

    def decrease(first: tuple[int, ...]) -> float:
        parts = [side[list(first)].sum() for side in (left, right, total)]
        below, above, own = (w * (p / w) * (1 - p / w) for p, w in zip(parts, weights, strict=True))
        return float((own - below - above) / weights[2])

    best = max(decrease(c) for n in (1, 2) for c in combinations(range(3), n))
    score = twoing().score
    assert score is not None
    assert score(total, array(branches)) == pytest.approx(best, abs=1e-12)


@given(BRANCHES)
def test_twoing_of_many_branches_is_their_distance_from_the_whole(branches: Any) -> None:
    parts = array(branches)
    total = parts.sum(axis=0)
    share = parts.sum(axis=1) / total.sum()
    apart = np.abs(parts / parts.sum(axis=1, keepdims=True) - total / total.sum()).sum(axis=1)
    score = twoing().score
    assert score is not None
    assert score(total, parts) == pytest.approx(float((share * apart**2).sum() / 4), abs=1e-12)


def test_friedmans_improvement_is_equation_35_for_each_unit_of_weight() -> None:
    left, right = (3.0, 3.0 * 5.0), (2.0, 2.0 * -1.0)
    improvement = 3 * 2 / (3 + 2) * (5 - -1) ** 2
    score = friedman().score
    assert score is not None
    assert score(array([5.0, 13.0]), array([left, right])) == pytest.approx(improvement / 5)


def test_poisson_scores_the_decrease_of_half_the_deviance() -> None:
    y = [[1.0, 0.0, 2.0], [7.0, 4.0]]

    def deviance(values: list[float], mean: float) -> float:
        return sum((v * math.log(v / mean) if v else 0.0) - v + mean for v in values)

    whole = y[0] + y[1]
    after = sum(deviance(part, sum(part) / len(part)) for part in y)
    decrease = (deviance(whole, sum(whole) / len(whole)) - after) / len(whole)
    score = poisson().score
    assert score is not None
    stats = array([[len(part), sum(part)] for part in y])
    assert score(stats.sum(axis=0), stats) == pytest.approx(decrease)


def counts(rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
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
    same_as_sklearn(treekit.DecisionTreeRegressor(**settings).fit(x, y), x, theirs)


def test_friedman_grows_the_tree_of_the_squared_error() -> None:
    x, y = counts()
    one, other = (
        treekit.DecisionTreeRegressor(criterion=name, max_leaf_nodes=9).fit(x, y).model_.trees[0]
        for name in ("friedman", "squared_error")
    )
    np.testing.assert_array_equal(one.threshold, other.threshold)
    np.testing.assert_allclose(one.gain, other.gain)


def test_poisson_never_predicts_that_nothing_can_happen() -> None:
    x, y = counts()
    tree = treekit.DecisionTreeRegressor(criterion="poisson").fit(x, y).model_.trees[0]
    assert (y == 0).any()
    assert tree.value.min() > 0


def test_poisson_refuses_a_negative_count_by_row_and_name() -> None:
    table = {"x": [1.0, 2.0, 3.0], "claims": [2.0, -1.0, 0.5]}
    with pytest.raises(treekit.DataError, match=r"'poisson'.*'claims' is -1 in row 1"):
        treekit.train(table, "claims", task="regression", criterion="poisson")


def test_twoing_groups_classes_where_gini_splits_one_off() -> None:
    # Of ten classes, twoing looks for two halves (Breiman et al. 1984, section 4.4).
    table = {"x": [float(i) for i in range(20)], "y": [f"c{i // 2}" for i in range(20)]}
    model = treekit.train(table, "y", criterion="twoing", max_depth=1, seed=0)
    assert model.trees[0].threshold[0] == 9.5


def test_misclassification_stops_where_no_label_changes() -> None:
    table = {"x": [1, 2, 3, 4], "y": ["a", "a", "a", "b"]}
    purer = treekit.train(table, "y", criterion="gini", max_depth=1, min_weight_leaf=2, seed=0)
    assert purer.n_leaves == 2
    same = treekit.train(
        table, "y", criterion="misclassification", max_depth=1, min_weight_leaf=2, seed=0
    )
    assert same.n_leaves == 1


def test_a_criterion_may_ask_for_the_target_as_it_is() -> None:
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
        ("regression", {"statistics": treekit.Ranks(1.0)}, "lies between 0 and 1"),
        ("classification", {"statistics": treekit.Ranks()}, "weights of the classes"),
        ("regression", {"statistics": treekit.Ranks()}, "neither impurity nor loss"),
    ],
)
def test_statistics_that_do_not_exist_are_refused_by_name(
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
