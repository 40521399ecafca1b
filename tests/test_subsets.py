"""How nominal columns split in two: the best subset, or one level against the rest."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import treekit
from tests.growing import grow, level_branches
from tests.reference import grow as reference
from tests.test_grow import check, problem_of
from tests.tiers import later
from treekit.errors import SettingError
from treekit.grow.compile_criterion import share_key
from treekit.model.tree import Split


def levels_problem(
    rng: random.Random, levels: int, n_classes: int, criterion: str, **settings: Any
) -> reference.Problem:
    """One nominal column whose levels lean to classes of their own."""
    leaning = [[rng.random() ** 3 for _ in range(n_classes)] for _ in range(levels)]
    column = [level for level in range(levels) for _ in range(rng.randint(1, 12))]
    y = [rng.choices(range(n_classes), leaning[level])[0] for level in column]
    y[:n_classes] = range(n_classes)
    return reference.Problem([column], y, [levels], criterion, n_classes, max_depth=1, **settings)


def best_gain(problem: reference.Problem) -> float:
    """The best gain of all subsets of a column's levels, one by one."""
    column, y = problem.columns[0], problem.y
    known = sorted(set(column))
    best = 0.0
    for size in range(1, len(known)):
        for left in itertools.combinations(known, size):
            sides = [
                [v for v, level in zip(y, column, strict=True) if (level in left) == inside]
                for inside in (True, False)
            ]
            stats = [[side.count(k) for k in range(problem.n_classes)] for side in sides]
            total = [a + b for a, b in zip(*stats, strict=True)]
            best = max(best, reference.scores(problem, total, stats)[0])
    return best


@pytest.mark.parametrize("criterion", ["gini", later("entropy")])
def test_up_to_the_exact_levels_the_best_of_all_subsets_is_found(criterion: str) -> None:
    rng = random.Random(f"subsets {criterion}")
    for levels in (3, 5, 8):
        problem = levels_problem(rng, levels, rng.choice([3, 4]), criterion)
        assert grow(problem).tree.gain[0] == pytest.approx(best_gain(problem), rel=1e-12)


def test_more_subsets_than_one_scan_walks_through_are_all_tried() -> None:
    rng = random.Random("many subsets")
    problem = levels_problem(rng, 10, 4, "gini")  # 511 subsets, in scans of 256
    assert grow(problem).tree.gain[0] == pytest.approx(best_gain(problem), rel=1e-12)


@pytest.mark.matrix
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_above_the_exact_levels_the_orders_come_close(criterion: str) -> None:
    rng = random.Random(f"orders {criterion}")
    parts = []
    for _ in range(12):
        problem = levels_problem(rng, 9, 4, criterion, exact_levels=2)
        parts.append(grow(problem).tree.gain[0] / best_gain(problem))
    assert max(parts) <= 1 + 1e-12
    assert min(parts) > 0.85
    assert sum(parts) / len(parts) > 0.98


def test_a_subset_that_no_share_orders_is_found_along_the_component() -> None:
    """Classes 0 and 1 against 2 and 3: mixed pairs tell the sides by no single class."""
    rows = np.array(
        [[9.0, 0, 1, 0], [0, 9, 0, 1], [5, 4, 1, 0], [0, 1, 9, 0], [1, 0, 0, 9], [0, 1, 4, 5]]
    )
    keys = np.empty(6)
    share_key(rows, 6, 4, keys)
    left = keys[:3] > 0
    assert left.all() != (~left).all()
    assert np.all((keys[3:] > 0) != left[0])


@pytest.mark.parametrize("scaled", [False, True])
def test_components_equal_those_of_the_covariance(scaled: bool) -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        rows = rng.integers(0, 30, (7, 3)).astype(float) + 1
        keys = np.empty(7)
        share_key(rows, 7, 3 + scaled, keys)
        weights, mean = rows.sum(axis=1), rows.sum(axis=0) / rows.sum()
        apart = (rows / weights[:, None] - mean) / (np.sqrt(mean) if scaled else 1)
        sizes, vectors = np.linalg.eigh((apart.T * weights) @ apart)
        if sizes[-2] > 0.5 * sizes[-1]:
            continue  # two components as large: either will do
        scores = apart @ vectors[:, -1]
        alike = abs(np.corrcoef(keys, scores)[0, 1])
        assert alike > 1 - 1e-6


@pytest.mark.parametrize(
    "criterion", ["gini", *map(later, ("entropy", "gain_ratio", "squared_error"))]
)
def test_trees_of_one_level_against_the_rest_equal_the_oracle(criterion: str) -> None:
    rng = random.Random(f"one {criterion}")
    for _ in range(30):
        check(problem_of(rng, criterion, one_vs_rest=True))


@pytest.mark.matrix
def test_trees_of_the_level_of_the_largest_ratio_equal_the_oracle() -> None:
    rng = random.Random("one by ratio")
    for _ in range(40):
        check(problem_of(rng, "gain_ratio", one_vs_rest=True, level_by="ratio"))


@pytest.mark.parametrize("exact_levels", [2, 3, 6])
def test_trees_of_any_exact_levels_equal_the_oracle(exact_levels: int) -> None:
    rng = random.Random(f"exact {exact_levels}")
    for _ in range(30):
        check(problem_of(rng, "gini", exact_levels=exact_levels))


@pytest.mark.matrix
@pytest.mark.parametrize("criterion", ["gini", "entropy", "squared_error"])
def test_gains_of_known_rows_equal_the_oracle(criterion: str) -> None:
    """What surrogates and divided rows build on; rows whose value is missing follow the heavier."""
    rng = random.Random(f"known {criterion}")
    for _ in range(40):
        check(problem_of(rng, criterion, known_only=True, multiway=rng.random() < 0.3, max_depth=1))


@pytest.mark.matrix
@pytest.mark.parametrize("criterion", ["gini", "entropy", "squared_error"])
def test_nodes_at_or_below_the_least_impurity_are_leaves(criterion: str) -> None:
    rng = random.Random(f"impurity {criterion}")
    for _ in range(40):
        check(problem_of(rng, criterion, min_impurity=rng.choice([0.0, 0.25, 0.5, 1.0])))


def test_a_balanced_node_has_an_entropy_of_at_most_one_bit() -> None:
    """Equal in exact arithmetic: rounding does not make it more."""
    column = [float(i) for i in range(6)]
    for copies in (1, 3, 7):
        y = [0, 1, 0, 1, 0, 1] * copies
        problem = reference.Problem([column * copies], y, [None], "entropy", 2, min_impurity=1.0)
        assert grow(problem).tree.n_nodes == 1


def test_one_level_against_the_rest_names_a_single_level() -> None:
    problem = levels_problem(random.Random(1), 6, 3, "gini", one_vs_rest=True)
    tree = grow(problem).tree
    assert tree.kind[0] == Split.SUBSET
    assert sorted(level_branches(tree, 0).values()) == [0, 1, 1, 1, 1, 1]


def test_the_settings_reach_the_tree() -> None:
    rng = np.random.default_rng(0)
    table = {"a": rng.choice(list("pqrst"), 200), "y": rng.choice(list("xyz"), 200)}
    single = treekit.train(table, "y", nominal_splits="one_vs_rest", max_depth=1)
    assert np.count_nonzero(single.trees[0].branches(0) == 0) == 1
    assert treekit.train(table, "y", min_impurity=0.7).n_nodes == 1
    number = {"a": table["a"], "y": rng.normal(size=200)}
    assert treekit.train(number, "y", min_impurity=9.0).n_nodes == 1
    assert treekit.train(number, "y", min_impurity=0.1).n_nodes > 1


def test_a_criterion_without_impurity_has_no_least_impurity() -> None:
    from treekit.contracts import Criterion, CriterionFunctions

    only_score = Criterion(
        "balance", "classification",
        lambda: CriterionFunctions(score=lambda parent, children: children[0, 0]),
    )  # fmt: skip
    table = {"a": [1.0, 2.0, 3.0, 4.0], "y": list("abab")}
    with pytest.raises(SettingError, match="'balance' measures no impurity"):
        treekit.train(table, "y", criterion=only_score, min_impurity=0.1)
