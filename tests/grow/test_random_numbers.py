"""Random draws depend only on the seed, the tree, the path of the node and the row's contents."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treekit
from tests.growing import grow, recipe_of
from tests.reference import grow as reference
from tests.tiers import later
from treekit.components.splitters import make_random
from treekit.grow.forest_builder import compute_poisson_table, draw_tree_seeds
from treekit.grow.node_generator import make_node_generator
from treekit.grow.target_statistics import sum_upwards
from treekit.grow.tree_builder import grow_tree
from treekit.kernels.random_numbers import draw_bag
from treekit.splitting import (
    Node,
    Split,
    branch_stats,
    code_range,
    draw_features,
    scored,
    threshold_split,
)

ALL = 2**64


def mix(seed: int, at: int) -> int:
    """Number `at` of splitmix64, in whole numbers (Steele, Lea and Flood 2014, figure 17)."""
    z = (seed + (at + 1) * 0x9E3779B97F4A7C15) % ALL
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % ALL
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % ALL
    return z ^ (z >> 31)


def test_splitmix64_gives_the_numbers_of_its_authors() -> None:
    # The first numbers of seed 1234567, from the authors' C code.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    state = np.array([1234567], np.uint64)
    generator = make_node_generator(state)
    assert generator.bit_generator is not None
    drawn = [int(generator.integers(0, ALL, dtype=np.uint64)) for _ in range(3)]
    assert drawn == expected == [mix(1234567, at) for at in range(3)]


# ------------------------------------------------------------------ bags


@pytest.mark.parametrize("rate", [0.05, 0.5, 1.0, 3.7, 30.0])
def test_the_table_of_poisson_probabilities_is_exact(rate: float) -> None:
    table = compute_poisson_table(rate)
    exact = Fraction(rate)
    # exp(-rate) by its series, in fractions: alternating, so that the error is below a term.
    scale = sum((-exact) ** k / math.factorial(k) for k in range(160))
    total = Fraction(0)
    for k, entry in enumerate(table.tolist()):
        total += scale * exact**k / math.factorial(k)
        assert abs(entry - total * ALL) <= 1
    assert ALL - int(table[-1]) < 2**20  # numbers above it draw one more


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_bootstrap_samples_equal_the_plain_loop(data: Any) -> None:
    rows = data.draw(st.integers(1, 30))
    word = st.integers(0, ALL - 1)
    hashes = data.draw(st.lists(word, min_size=rows, max_size=rows))
    first = data.draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows))
    copies = data.draw(st.none() | st.lists(st.integers(0, 5), min_size=rows, max_size=rows))
    parts = data.draw(st.none() | st.lists(word | st.just(0), min_size=rows, max_size=rows))
    seed, rate = data.draw(word), data.draw(st.sampled_from([0.3, 1.0, 2.5]))
    table = compute_poisson_table(rate).tolist()

    def poisson(key: int) -> int:
        return sum(mix(key, 0) >= bound for bound in table)

    expected = []
    for row in range(rows):
        whole = 1 if copies is None else copies[row]
        keys = [mix(hashes[row], first[row] + k) ^ seed for k in range(whole + 1)]
        count = sum(poisson(key) for key in keys[:whole])
        if parts is not None:
            part, key = parts[row], keys[whole]
            count += sum(mix(key, k + 1) < part for k in range(poisson(key)) if part)
        expected.append(count)
    counts = np.empty(rows)
    total = draw_bag(
        np.array(hashes, np.uint64), np.array(first, np.uint64), np.array(copies or [], np.int64),
        np.array(parts or [], np.uint64), compute_poisson_table(rate), np.uint64(seed), counts,
    )  # fmt: skip
    assert counts.tolist() == expected
    assert total == sum(expected)


def test_counts_are_poisson_distributed_and_independent_between_trees() -> None:
    rows, none = 200_000, np.empty(0, np.int64)
    hashes = np.arange(rows, dtype=np.uint64)
    bags = np.empty((2, rows))
    for bag, seed in zip(bags, (5, 6), strict=True):
        draw_bag(
            hashes, np.zeros(rows, np.uint64), none, none.view(np.uint64),
            compute_poisson_table(1.0), np.uint64(seed), bag,
        )  # fmt: skip
    joint = np.histogram2d(*np.minimum(bags, 4), bins=np.arange(6))[0]
    one = np.array([math.exp(-1) / math.factorial(k) for k in range(4)])
    one = np.append(one, 1 - one.sum())
    expected = rows * np.outer(one, one)
    # 24 degrees of freedom: above 60 once in 20,000 seeds; these seeds are fixed.
    assert ((joint - expected) ** 2 / expected).sum() < 60


def test_empty_bootstrap_sample_is_drawn_again() -> None:
    for seed in range(20):
        model = treekit.train(
            {"x": [1.0], "y": ["a"]}, "y", ensemble="forest", trees=3, seed=seed, oob=False
        )
        assert all(tree.weight[0] >= 1 for tree in model.trees)


def test_the_seeds_of_trees_do_not_depend_on_their_number() -> None:
    few, many = (draw_tree_seeds(np.random.SeedSequence(3), n) for n in (4, 9))
    assert few == many[:4]
    assert len(set(many)) == 9


# ------------------------------------------------------------------ nodes


def find_drawn(node: Node, criterion: Any, rng: Any) -> Split | None:
    """Split a drawn column at a drawn code."""
    for feature in draw_features(node, rng):
        lowest, highest, _ = code_range(node, feature)
        if lowest < highest:
            split = threshold_split(feature, lowest + rng.integers(0, highest - lowest))
            return scored(split, criterion.score(node.stats, branch_stats(node, split)) + 1e-3)
    return None


def make_problem(seed: int) -> reference.Problem:
    rng = random.Random(seed)
    columns = [[float(rng.randrange(40)) for _ in range(150)] for _ in range(6)]
    y = [int(columns[0][i] + columns[1][i] > 40) ^ int(rng.random() < 0.2) for i in range(150)]
    return reference.Problem(columns, y, [None] * 6, "gini", 2, min_gain=-1.0)


SEARCHES = {
    "columns": {"n_try": 2},
    "random": {"n_try": 2, "find": make_random().find},
    "plugin": {"n_try": 2, "find": find_drawn},
}


@pytest.mark.parametrize("search", ["columns", later("random"), later("plugin")])
def test_subtree_depends_only_on_its_rows_and_its_seed(search: str) -> None:
    problem, seed = make_problem(1), 12345
    whole = grow(problem, seed, **SEARCHES[search]).tree
    recipe = recipe_of(problem, **SEARCHES[search])
    none = recipe.target.select_rows(np.empty(0, np.uint32), None)
    paths = {0: (seed, np.arange(150))}
    compared = 0
    for node in range(whole.n_nodes):
        own_seed, ids = paths[node]
        alone = grow_tree(recipe, recipe.target.select_rows(ids, None), none, own_seed).tree
        assert (alone.feature[0], alone.weight[0]) == (whole.feature[node], whole.weight[node])
        compared += 1
        if whole.n_children[node] == 0:
            continue
        np.testing.assert_array_equal(alone.threshold[0], whole.threshold[node])
        left = np.array(problem.columns[whole.feature[node]])[ids] <= whole.threshold[node]
        for branch, side in enumerate((ids[left], ids[~left])):
            paths[whole.first_child[node] + branch] = mix(own_seed, branch), side
    assert compared > 20


@pytest.mark.matrix
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(sorted(SEARCHES)))
def test_best_first_growth_draws_as_depth_first_growth(seed: int, search: str) -> None:
    trees = []
    for most in (0, 1000):
        problem = make_problem(seed % 7)
        problem.max_leaves = most
        trees.append(grow(problem, seed, **SEARCHES[search]).tree)
    stack = [(0, 0)]
    while stack:
        a, b = stack.pop()
        assert trees[0].feature[a] == trees[1].feature[b]
        np.testing.assert_array_equal(trees[0].threshold[a], trees[1].threshold[b])
        assert trees[0].n_children[a] == trees[1].n_children[b]
        stack += [
            (trees[0].first_child[a] + branch, trees[1].first_child[b] + branch)
            for branch in range(trees[0].n_children[a])
        ]


# ------------------------------------------------------------------ any order of the rows
# Oblique splits add floating-point numbers in the order of the rows.

TRAININGS: dict[str, dict[str, Any]] = {
    "forest": {"ensemble": "forest", "trees": 3},
    "extra trees": {"ensemble": "forest", "trees": 3, "splitter": "random", "bootstrap": False},
    "drawn extra trees": {"ensemble": "forest", "trees": 3, "splitter": "random"},
    "hold-out": {"pruner": "reduced_error"},
    "random tree, hold-out": {"pruner": "reduced_error", "splitter": "random"},
    "folds": {"pruner": "cost_complexity"},
    "numbers": {"ensemble": "forest", "trees": 3, "task": "regression"},
    "quantile": {"ensemble": "forest", "trees": 2, "criterion": "absolute_error"},
    "fractional": {"ensemble": "forest", "trees": 2, "missing": "fractional"},
}


@pytest.mark.parametrize(
    "training",
    [name if name in ("forest", "hold-out", "numbers") else later(name) for name in TRAININGS],
)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_a_model_is_the_same_for_any_order_of_the_rows(training: str, data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = data.draw(st.integers(30, 90))
    given_settings = TRAININGS[training]
    numbers = "numbers" in training or "quantile" in training
    table = {
        "a": rng.integers(0, 5, rows).astype(float),  # with equal rows
        "b": np.where(rng.random(rows) < 0.2, np.nan, rng.integers(0, 3, rows)),
        "c": rng.choice(["p", "q", "r"], rows),
    }
    y = table["a"] + rng.normal(size=rows).round(1)
    table["y"] = y if numbers else np.where(y > 2, "yes", "no")
    table["y"][:4] = y[:4] if numbers else ["yes", "no", "yes", "no"]
    mixed = rng.permutation(rows)
    first, second = (
        treekit.train(own, "y", seed=1, oob=False, **given_settings)
        if "ensemble" in given_settings
        else treekit.train(own, "y", seed=1, **given_settings)
        for own in (table, {name: cells[mixed] for name, cells in table.items()})
    )
    for one, other in zip(first.trees, second.trees, strict=True):
        for name in ("feature", "threshold", "value", "weight", "gain", "first_child"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=40), st.randoms())
def test_upper_bound_of_a_sum_does_not_depend_on_the_order(
    numbers: list[float], order: Any
) -> None:
    found = sum_upwards(np.array(numbers))
    exact = float(sum(map(Fraction, numbers), Fraction(0)))
    unit = max(max(numbers) / 2**30, 2.0**-1000)
    assert exact * (1 - 1e-15) <= found <= exact * (1 + 1e-15) + len(numbers) * unit
    order.shuffle(numbers)
    assert sum_upwards(np.array(numbers)) == found
