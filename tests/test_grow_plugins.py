"""Criteria and splitters of third parties: good ones grow right trees, bad ones are named."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.growing import AXIS, built_in, grow, recipe_of, same_tree
from tests.reference import grow as reference
from treekit.contracts import CriterionFunctions
from treekit.errors import PluginError, TreekitWarning
from treekit.grow.compile_criterion import CompiledCriterion, compile_criterion
from treekit.grow.compile_plugin import Origin
from treekit.grow.tree_builder import grow_tree
from treekit.model.tree import Split
from treekit.splitting import (
    branch_stats,
    code_range,
    heavy_enough,
    level_split,
    missing_split,
    missing_to,
    scored,
    threshold_split,
)

TWO = reference.Problem([[0.0, 1.0, 2.0, 3.0]], [0, 0, 1, 1], [None], "gini", 2)


def criterion(**functions: Callable[..., Any]) -> CompiledCriterion:
    return compile_criterion(
        CriterionFunctions(**functions), 2, False, Origin("criterion", "mine", "their-package 1.2")
    )


def plain_gini(stats: Any) -> float:
    weight = stats.sum()
    return 1.0 - (stats * stats).sum() / (weight * weight)


def test_an_impurity_written_in_plain_python_grows_the_built_in_tree() -> None:
    rng = random.Random(1)
    x = [[rng.randrange(9) / 2 for _ in range(50)] for _ in range(3)]
    y = [int(a + b > 4) for a, b, _ in zip(*x, strict=True)]
    problem = reference.Problem(x, y, [None] * 3, "gini", 2)
    same_tree(
        problem, grow(problem, criterion=criterion(impurity=plain_gini)), reference.grow(problem)
    )


def test_what_numba_cannot_compile_runs_as_python_with_a_warning_that_names_the_line() -> None:
    def by_words(stats: Any) -> float:
        label = f"{stats[0]:.1f}".strip()  # numba has no such format
        return 1.0 - max(float(label), stats[1]) / stats.sum()

    with pytest.warns(TreekitWarning, match=r"criterion 'mine'.*test_grow_plugins.py, line \d+"):
        slow = criterion(impurity=by_words)
    assert grow(TWO, criterion=slow).tree.threshold[0] == 1.5


def test_nan_stops_the_training_and_names_plugin_and_statistics() -> None:
    bad = criterion(score=lambda parent, children: math.nan)
    with pytest.raises(PluginError, match=r"criterion 'mine' \(from their-package 1.2\).*NaN") as e:
        grow(TWO, criterion=bad)
    assert "[1.0, 0.0]" in str(e.value)


def test_an_exception_stops_the_training_under_the_plugins_name() -> None:
    def refuses(parent: Any, children: Any) -> float:
        if parent[0] > 1:
            raise ValueError("no such split")
        return 0.0

    with pytest.raises(PluginError, match=r"criterion 'mine'.*ValueError: no such split"):
        grow(TWO, criterion=criterion(score=refuses))


@pytest.mark.matrix
def test_an_exception_of_the_python_path_stops_the_training_too() -> None:
    def refuses(stats: Any) -> float:
        raise KeyError(f"{stats!r}"[:5])

    with pytest.warns(TreekitWarning, match="criterion 'mine'"):
        slow = criterion(impurity=refuses)
    with pytest.raises(PluginError, match=r"criterion 'mine'.*KeyError"):
        grow(TWO, criterion=slow)


@pytest.mark.matrix
def test_a_criterion_that_writes_to_its_statistics_is_stopped() -> None:
    def writes(parent: Any, children: Any) -> float:
        children[0, 0] = 0.0
        return 1.0

    with pytest.warns(TreekitWarning, match="criterion 'mine'"):
        slow = criterion(score=writes)
    with pytest.raises(PluginError, match=r"criterion 'mine'.*read-only"):
        grow(TWO, criterion=slow)


@pytest.mark.matrix
def test_an_infinite_score_is_told_with_the_statistics_of_the_cut() -> None:
    def lopsided(parent: Any, children: Any) -> float:
        return 1.0 / (children[0].sum() - 1.0)  # 1/0 at the first cut

    with pytest.raises(PluginError, match=r"'mine'.* returned an infinite number from sc") as e:
        grow(TWO, criterion=criterion(score=lopsided))
    assert "[2.0, 2.0] and [[1.0, 0.0], [1.0, 2.0]]" in str(e.value)


@pytest.mark.matrix
def test_an_object_that_is_called_is_a_criterion_too() -> None:
    class Scaled:
        def __call__(self, stats: Any) -> float:
            return 2.0 * plain_gini(stats)

    with pytest.warns(TreekitWarning, match="criterion 'mine'.*runs as Python"):
        slow = criterion(impurity=Scaled())
    assert grow(TWO, criterion=slow).tree.threshold[0] == 1.5


def test_a_priority_orders_best_first_growth() -> None:
    # The root's children weigh 5 and 3; only one more split is allowed.
    y = [0, 0, 1, 0, 0, 1, 1, 0]
    columns = [[0.0] * 5 + [1.0] * 3, [0, 0, 1, 0, 0, 0, 0, 1]]
    problem = reference.Problem(columns, y, [None, None], "gini", 2, max_leaves=3)
    heavy = criterion(impurity=plain_gini, priority=lambda stats: stats.sum())
    light = criterion(impurity=plain_gini, priority=lambda stats: -stats.sum())
    for compiled, opened in ((heavy, 5.0), (light, 3.0)):
        tree = grow(problem, criterion=compiled).tree
        assert tree.n_leaves == 3
        inner = tree.kind != Split.LEAF
        assert tree.weight[inner].tolist() == [8.0, opened]


def find_every_cut(node: Any, criterion: Any, rng: Any) -> Any:
    """The exact numeric search, written with the public makers."""
    best = missing_split(0)
    best_score = 0.0
    for feature in range(len(node.table.n_codes)):
        low, high, missing = code_range(node, feature)
        for cut in range(low, high):
            for side in range(1 if missing else -1, -2 if not missing else -1, -1):
                split = threshold_split(feature, cut)
                if missing:
                    split = missing_to(split, side)
                children = branch_stats(node, split)
                if heavy_enough(node, children):
                    score = criterion.score(node.stats, children)
                    if score > best_score + 1e-9 * max(best_score, node.impurity):
                        best, best_score = scored(split, score), score
                if not missing:
                    break
    if best_score > 0.0:
        return best
    return None


def find_every_cut_as_python(node: Any, criterion: Any, rng: Any) -> Any:
    f"{node.weight:.1f}".strip()  # numba has no such format
    return find_every_cut(node, criterion, rng)


def table_of_numbers(seed: int) -> reference.Problem:
    rng = random.Random(seed)
    x = [[rng.choice([None, 0.0, 1.0, 2.0, 3.0, 4.5]) for _ in range(40)] for _ in range(2)]
    x[0] = [4.0 if v is None else v for v in x[0]]
    y = [int(a > 2) ^ int(rng.random() < 0.2) for a in x[0]]
    return reference.Problem(x, y, [None, None], "gini", 2)


@pytest.mark.matrix
def test_a_compiled_splitter_grows_a_valid_tree_as_good_at_the_root() -> None:
    problem = table_of_numbers(1)
    ours = grow(problem, find=find_every_cut)
    expected = reference.grow(problem)
    assert expected.cut is not None
    assert ours.tree.threshold[0] == expected.cut.threshold
    assert ours.tree.gain[0] == pytest.approx(expected.cut.gain)
    assert ours.tree.weight[ours.tree.leaves].sum() == 40


@pytest.mark.matrix
def test_the_same_splitter_as_python_grows_the_same_tree() -> None:
    problem = table_of_numbers(2)
    fast = grow(problem, find=find_every_cut).tree
    with pytest.warns(TreekitWarning, match="splitter 'find_every_cut_as_python'.*runs as Python"):
        slow = grow(problem, find=find_every_cut_as_python).tree
    assert fast.kind.tolist() == slow.kind.tolist()
    np.testing.assert_array_equal(fast.threshold, slow.threshold)
    np.testing.assert_array_equal(fast.value, slow.value)


def find_lowest(node: Any, criterion: Any, rng: Any) -> Any:
    low, high, _ = code_range(node, 0)
    return scored(threshold_split(0, low), 1.0) if low < high else None


@pytest.mark.matrix
def test_a_splitter_may_make_a_chain_three_thousand_deep() -> None:
    n = 3000
    problem = reference.Problem([list(range(n))], [i % 2 for i in range(n)], [None], "gini", 2)
    tree = grow(problem, find=find_lowest).tree
    # The last two rows and all before them are told apart one by one.
    assert tree.n_nodes == 2 * n - 1
    first = tree.first_child
    node = depth = 0
    while first[node] >= 0:
        node, depth = int(first[node]) + 1, depth + 1
    assert depth == n - 1


IMPOSSIBLE = [
    "no such column",
    "a cut above all codes",
    "a threshold outside its cut",
    "a threshold on levels",
    "a branch without rows",
    "a level in no branch",
    "too few levels",
]


def find_impossible(node: Any, criterion: Any, rng: Any) -> Any:
    which = node.n_try  # one function for all: each compilation takes a second
    if which == 0:
        return scored(threshold_split(7, 0), 1.0)
    if which == 1:
        return scored(threshold_split(0, 3), 1.0)
    if which == 2:
        return scored(threshold_split(0, 0, 2.5), 1.0)
    if which == 3:
        return scored(threshold_split(1, 0), 1.0)
    if which == 4:
        return scored(missing_split(0), 1.0)
    if which == 5:
        return scored(level_split(1, np.array([0, 1, 2], np.int32), 2), 1.0)
    return scored(level_split(1, np.array([0, 1], np.int32), 2), 1.0)


@pytest.mark.matrix
def test_an_impossible_split_is_refused_by_name() -> None:
    problem = reference.Problem(
        [[0.0, 1.0, 2.0, 3.0], [0, 1, 2, 0]], [0, 0, 1, 1], [None, 3], "gini", 2
    )
    recipe = recipe_of(problem, find=find_impossible)
    rows = np.arange(4, dtype=np.uint32)
    some, none = recipe.target.rows(rows, None), recipe.target.rows(rows[:0], None)
    for which in range(len(IMPOSSIBLE)):
        asked = replace(recipe, limits=recipe.limits._replace(n_try=which))
        with pytest.raises(PluginError, match=r"splitter 'find_impossible'.*impossible"):
            grow_tree(asked, some, none, np.random.default_rng(0))


def find_and_raise(node: Any, criterion: Any, rng: Any) -> Any:
    if node.depth == 0:
        raise RuntimeError("lost")
    return scored(threshold_split(0, 0), 1.0)


@pytest.mark.matrix
def test_a_splitter_that_raises_is_named() -> None:
    with pytest.raises(PluginError, match=r"splitter 'find_and_raise'.*RuntimeError"):
        grow(TWO, find=find_and_raise)


@pytest.mark.matrix
def test_the_built_in_splitter_after_a_plugin_is_untouched() -> None:
    grow(TWO, find=find_lowest)
    same_tree(TWO, grow(TWO, find=AXIS, criterion=built_in("gini", 2)), reference.grow(TWO))
