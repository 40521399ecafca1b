"""Trees grown by the compiled kernels, compared with a plain oracle in exact fractions."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numba as nb
import numpy as np
import pytest

import treekit
from tests.growing import grow, level_branches, recipe_of, same_tree
from tests.reference import grow as reference
from tests.tiers import later
from treekit.compiling.criterion import CompiledCriterion, compile_criterion, order_by_share
from treekit.compiling.functions import Origin
from treekit.components.criteria import make_quantile_loss
from treekit.errors import SettingError
from treekit.grow import tree_builder
from treekit.grow.route import find_leaves
from treekit.grow.tree_builder import grow_tree
from treekit.kernels import node_statistics as tally
from treekit.kernels import quantile_splits
from treekit.kernels import quantile_statistics as ranks
from treekit.kernels.records import Column, Rows
from treekit.model.tree import Split

# ---------------------------------------------------------------- grow

CLASSES = ["gini", "entropy", "gain_ratio"]


def problem_of(
    rng: random.Random, criterion: str, *, wide: bool = False, **settings: Any
) -> reference.Problem:
    """A small table with everything awkward in it: ties, gaps, constants, lost columns.

    A wide one may have more levels than codes of 8 bits hold, and several classes for any
    criterion: each compiles anew.
    """
    rows = rng.choice([1, 2, 3, 5, 12, 30, 60])
    n_classes = 0 if criterion == "squared_error" else rng.choice([2, 3, 5])
    if criterion != "gini" and not wide:
        n_classes = min(n_classes, 2)
    columns: list[list[Any]] = []
    levels: list[int | None] = []
    for _ in range(rng.randint(1, 4)):
        size = rng.choice([None, None, None, 2, 5, 300 if wide else 200])
        spread = rng.choice([1, 2, 4, 1000])
        share = rng.choice([0.0, 0.0, 0.15, 0.5, 1.0])
        levels.append(size)
        columns.append(
            [
                None
                if rng.random() < share
                else rng.randrange(min(size, spread))
                if size
                else rng.randrange(spread) / 4 - 1
                for _ in range(rows)
            ]
        )
    if rng.random() < 0.3:  # a copy, for ties between columns
        columns.append(list(columns[0]))
        levels.append(levels[0])
    y = [rng.randrange(n_classes or 6) for _ in range(rows)]
    weights = rng.choice([None, [rng.choice([0, 1, 1, 2, 3]) for _ in y]])
    if weights is not None and not any(weights):
        weights = None
    return replace(reference.Problem(columns, y, levels, criterion, n_classes, weights), **settings)


def check(problem: reference.Problem) -> None:
    same_tree(problem, grow(problem), reference.grow(problem))


@pytest.mark.parametrize(
    ("criterion", "multiway"),
    [
        ("gini", True),
        ("squared_error", False),
        *(later("gini", False), later("squared_error", True)),
        *(later("gain_ratio", False), later("gain_ratio", True)),
        *(later("entropy", False), later("entropy", True)),
    ],
)
def test_exact_trees_equal_the_oracle(criterion: str, multiway: bool) -> None:
    rng = random.Random(f"exact {criterion} {multiway}")
    for _ in range(60):
        check(problem_of(rng, criterion, multiway=multiway))


@pytest.mark.system  # compiles kernels of its own
@pytest.mark.parametrize("criterion", [*CLASSES, "squared_error"])
def test_trees_of_wide_tables_equal_the_oracle(criterion: str) -> None:
    rng = random.Random(f"wide {criterion}")
    for _ in range(30):
        check(problem_of(rng, criterion, wide=True, multiway=rng.random() < 0.5))


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("criterion", "max_bins"),
    [
        *(("gini", 5), ("squared_error", 255)),
        *(later("gini", 2), later("gini", 255), later("squared_error", 2)),
        *(later("squared_error", 5), later("gain_ratio", 2), later("gain_ratio", 5)),
        later("gain_ratio", 255),
    ],
)
def test_histogram_trees_equal_the_oracle(criterion: str, max_bins: int) -> None:
    rng = random.Random(f"histogram {criterion} {max_bins}")
    for _ in range(25):
        check(problem_of(rng, criterion, max_bins=max_bins))


@pytest.mark.parametrize("criterion", ["gini", later("gain_ratio"), later("squared_error")])
def test_stopping_rules_equal_the_oracle(criterion: str) -> None:
    rng = random.Random(f"limits {criterion}")
    for _ in range(60):
        check(
            problem_of(
                rng,
                criterion,
                multiway=rng.random() < 0.3,
                max_depth=rng.choice([0, 1, 3, 5000]),
                min_weight_split=rng.choice([2, 5, 11]),
                min_weight_leaf=rng.choice([1, 2, 5]),
                min_gain=rng.choice([0.0, 0.01, 0.1]),
            )
        )


@pytest.mark.parametrize("criterion", ["gini", "squared_error"])
def test_best_first_growth_equals_the_oracle(criterion: str) -> None:
    rng = random.Random(f"leaves {criterion}")
    for _ in range(60):
        check(
            problem_of(
                rng,
                criterion,
                multiway=rng.random() < 0.3,
                max_leaves=rng.choice([1, 2, 3, 5, 9]),
            )
        )


@pytest.mark.matrix
@pytest.mark.parametrize("criterion", ["gini", "gain_ratio", "squared_error"])
def test_tree_does_not_depend_on_the_order_of_rows(criterion: str) -> None:
    rng = random.Random(f"order {criterion}")
    for _ in range(20):
        problem = problem_of(rng, criterion)
        order = list(range(len(problem.y)))
        rng.shuffle(order)
        shuffled = replace(
            problem,
            columns=[[column[i] for i in order] for column in problem.columns],
            y=[problem.y[i] for i in order],
            weights=None if problem.weights is None else [problem.weights[i] for i in order],
        )
        assert_equal_trees(grow(problem).tree, grow(shuffled).tree)


@pytest.mark.parametrize("criterion", ["gini", "squared_error"])
def test_row_of_weight_3_equals_three_rows(criterion: str) -> None:
    rng = random.Random(f"copies {criterion}")
    for _ in range(20):
        problem = problem_of(rng, criterion, min_weight_leaf=2, min_weight_split=5)
        y = [value + 0.1 for value in problem.y] if criterion == "squared_error" else problem.y
        weights = problem.weights or [1] * len(y)
        copied = [i for i, times in enumerate(weights) for _ in range(times)]
        copies = replace(
            problem,
            columns=[[column[i] for i in copied] for column in problem.columns],
            y=[y[i] for i in copied],
            weights=None,
        )
        weighted = replace(problem, y=y, weights=weights)
        assert_equal_trees(grow(weighted).tree, grow(copies).tree)


def assert_equal_trees(a: Any, b: Any) -> None:
    for name in ("kind", "feature", "threshold", "missing", "n_children", "level_branch"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    np.testing.assert_array_equal(a.value, b.value)
    np.testing.assert_array_equal(a.weight, b.weight)


@pytest.mark.matrix
def test_alternating_classes_are_separated_row_by_row() -> None:
    n = 3000
    problem = reference.Problem([list(range(n))], [i % 2 for i in range(n)], [None], "gini", 2)
    tree = grow(problem).tree
    assert tree.n_leaves == n
    assert sorted(tree.threshold[tree.kind == Split.THRESHOLD]) == [i + 0.5 for i in range(n - 1)]


@pytest.mark.matrix
def test_trees_on_columns_of_many_values_equal_the_reference() -> None:
    rng = random.Random(7)
    # Insertion sort, narrow digits, wide digits; the oracle's time is quadratic in rows.
    for n, width, depth in ((40, 2, 2), (300, 2, 2), (2100, 1, 1)):
        columns = [[float(rng.randrange(10**6)) for _ in range(n)] for _ in range(width)]
        y = [
            int(sum(row) > width * 5 * 10**5) ^ (rng.random() < 0.1)
            for row in zip(*columns, strict=True)
        ]
        check(reference.Problem(columns, y, [None] * width, "gini", 2, max_depth=depth))


@pytest.mark.matrix
def test_codes_above_16_bits_give_the_root_split_of_the_oracle() -> None:
    n = 66_000
    values = np.random.default_rng(3).permutation(n).astype(float)
    y = (values >= 41_234).astype(int)
    problem = reference.Problem([values.tolist()], y.tolist(), [None], "gini", 2)
    assert recipe_of(problem).table.codes.dtype == np.uint32
    tree = grow(problem).tree
    assert tree.n_leaves == 2
    assert tree.threshold[0] == 41_233.5


@pytest.mark.matrix
def test_column_of_300_categories_is_split_by_wide_codes() -> None:
    rng = random.Random(11)
    n = 900
    column = [rng.randrange(300) for _ in range(n)]
    y = [int(level % 3 == 0) for level in column]
    problem = reference.Problem([column], y, [300], "gini", 2)
    assert recipe_of(problem).table.codes.dtype == np.uint32
    check(problem)
    assert grow(problem).tree.n_leaves == 2


@pytest.mark.parametrize("multiway", [False, True])
def test_nodes_without_most_of_the_categories_equal_the_oracle(multiway: bool) -> None:
    rng = random.Random(13)
    n = 600
    levels = [0, 249, *(rng.randrange(250) for _ in range(n - 2))]
    columns = [levels, [rng.randrange(99) for _ in range(n)]]
    y = [rng.randrange(2) for _ in range(n)]
    problem = reference.Problem(columns, y, [250, None], "gini", 2, multiway=multiway)
    check(problem)
    tree = grow(problem).tree
    assert tree.level_branch.dtype == (np.int16 if multiway else np.int8)
    absent = np.count_nonzero(tree.level_branch < 0)
    assert absent > (0 if multiway else len(tree.level_branch) // 2)


def test_grown_tree_does_not_keep_working_memory_alive() -> None:
    rng = random.Random(12)
    column = [rng.randrange(200) for _ in range(900)]
    y = [rng.randrange(2) for _ in column]
    tree = grow(reference.Problem([column], y, [200], "gini", 2)).tree
    for name in ("level_branch", "term_feature", "term_weight", "value", "weight", "gain"):
        array = memory = getattr(tree, name)
        while isinstance(memory.base, np.ndarray):
            memory = memory.base
        assert memory.nbytes <= array.nbytes + 64, name


def test_pure_nodes_stay_leaves_under_fractional_weights() -> None:
    rng = np.random.default_rng(0)
    n = 200
    x = rng.integers(0, 2, n)
    noise = rng.random(n)
    problem = reference.Problem(
        [x.tolist(), noise.tolist()],
        (x * 0.7 + 1e6).tolist(),
        [None, None],
        "squared_error",
        weights=(rng.random(n) + 1e-3).tolist(),
    )
    assert grow(problem).tree.n_leaves == 2


def test_target_with_a_large_mean_is_split() -> None:
    # The textbook sum of squares loses all digits here.
    x = list(range(40))
    problem = reference.Problem([x], [1e8 + (i >= 13) for i in x], [None], "squared_error")
    tree = grow(problem).tree
    assert tree.threshold[0] == 12.5
    assert tree.n_leaves == 2
    assert tree.value[tree.leaves, 0].tolist() == [1e8, 1e8 + 1]


def test_columns_without_gain_are_not_split() -> None:
    x = [0, 0, 1, 1] * 3  # exclusive or: no first split gains anything
    z = [0, 1, 0, 1] * 3
    y = [a ^ b for a, b in zip(x, z, strict=True)]
    for criterion in ("gini", "entropy"):
        assert grow(reference.Problem([x, z], y, [None, None], criterion, 2)).tree.n_nodes == 1
    regression = reference.Problem([x, z], [v / 3 for v in y], [None, None], "squared_error")
    assert grow(regression).tree.n_nodes == 1


def test_missing_versus_known_is_a_possible_split() -> None:
    column = [None, 1.0, None, 2.0, 3.0, None]
    y = [1, 0, 1, 0, 0, 1]
    tree = grow(reference.Problem([column], y, [None], "gini", 2)).tree
    assert tree.kind.tolist() == [Split.MISSING, Split.LEAF, Split.LEAF]
    assert tree.value[1].tolist() == [0, 3]


def test_missing_values_take_the_learned_branch() -> None:
    for lost_class, side in ((0, 0), (1, 1)):
        column = [0.0, 1.0, 2.0, 3.0, None]
        y = [0, 0, 1, 1, lost_class]
        tree = grow(reference.Problem([column], y, [None], "gini", 2)).tree
        assert tree.threshold[0] == 1.5
        assert tree.missing[0] == side


def test_missing_branch_is_the_heavier_one_if_nothing_was_missing() -> None:
    for y, side in (([0, 0, 0, 1], 0), ([0, 1, 1, 1], 1), ([0, 0, 1, 1], 0)):
        tree = grow(reference.Problem([[0.0, 1.0, 2.0, 3.0]], y, [None], "gini", 2)).tree
        assert tree.missing[0] == side


def test_only_n_try_columns_are_tried_at_a_node() -> None:
    columns = [[0.0, 1.0] * 8, [1.0] * 16, [0.0] * 8 + [1.0] * 8]
    problem = reference.Problem(columns, [0] * 8 + [1] * 8, [None] * 3, "gini", 2)
    firsts = {int(grow(problem, seed, n_try=1).tree.feature[0]) for seed in range(40)}
    assert firsts == {-1, 2}  # column 0 gains nothing; the constant one is no try
    assert {int(grow(problem, seed, n_try=2).tree.feature[0]) for seed in range(20)} == {2}


def test_held_out_rows_reach_leaves_without_changing_the_tree() -> None:
    rng = random.Random(5)
    problem = problem_of(rng, "gini")
    while len(problem.y) < 30 or problem.weights is not None:
        problem = problem_of(rng, "gini")
    recipe = recipe_of(problem)
    ids = np.arange(len(problem.y), dtype=np.uint32)
    kept, out = ids[::2], ids[1::2]
    none = recipe.target.select_rows(ids[:0], None)
    with_held = grow_tree(
        recipe,
        recipe.target.select_rows(kept, None),
        recipe.target.select_rows(out, None),
        0,
    )
    alone = grow_tree(recipe, recipe.target.select_rows(kept, None), none, 0)
    assert_equal_trees(with_held.tree, alone.tree)
    assert sorted(with_held.held_ids.tolist()) == out.tolist()
    for leaf in np.unique(with_held.held_leaf):
        members = with_held.held_ids[with_held.held_leaf == leaf]
        classes = np.bincount([problem.y[i] for i in members], minlength=problem.n_classes)
        assert with_held.held_stats[leaf].tolist() == classes.tolist()


def test_held_out_rows_of_absent_categories_reach_the_leaves_of_the_model() -> None:
    rng, sizes = random.Random(14), [20, 15, 9]
    columns = [[rng.randrange(size) for _ in range(800)] for size in sizes]
    y = [rng.randrange(2) for _ in range(800)]
    recipe = recipe_of(reference.Problem(columns, y, list(sizes), "gini", 2))
    ids = np.arange(800, dtype=np.uint32)
    kept, held = recipe.target.select_rows(ids[::2], None), ids[1::2]
    grown = grow_tree(recipe, kept, recipe.target.select_rows(held, None), 0)
    leaves = find_leaves(grown.tree, recipe.table, grown.held_ids)
    np.testing.assert_array_equal(grown.held_leaf, leaves)


LEVELS = [Fraction(1, 2), Fraction(3, 10)]


@cache
def quantile_criterion(level: Fraction) -> CompiledCriterion:
    functions = make_quantile_loss(float(level))
    return compile_criterion(functions, 4, True, Origin("criterion", "quantile"))


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("level", "max_bins", "multiway"), list(product(LEVELS, [None, 5], [False, True]))
)
def test_trees_by_quantile_loss_equal_the_oracle(
    level: Fraction, max_bins: int | None, multiway: bool
) -> None:
    rng = random.Random(f"quantile {level} {max_bins} {multiway}")
    for _ in range(25):
        problem = problem_of(rng, "squared_error", multiway=multiway, max_bins=max_bins)
        if problem.weights and rng.random() < 0.5:
            # So unequal that quantiles are found in a tree of sums.
            problem.weights = [w * rng.choice([1, 1, 100]) for w in problem.weights]
        problem = replace(
            problem,
            criterion="quantile",
            quantile=level,
            known_only=rng.random() < 0.3,
            min_weight_leaf=rng.choice([1, 2, 5]),
            max_leaves=rng.choice([0, 0, 4]),
        )
        grown = grow(problem, criterion=quantile_criterion(level))
        same_tree(problem, grown, reference.grow(problem))


@pytest.mark.matrix  # compiles the searches apart from the kernel that calls them
@pytest.mark.parametrize("rows", [2, 3, 17, 64, 65, 200, 5000])
def test_quantile_statistics_of_both_sides_equal_the_reference(rows: int) -> None:
    rng = np.random.default_rng(rows)
    w = rng.integers(1, 9, rows).astype(float)
    y = np.sort(rng.integers(0, 12 * rows, rows)).astype(float)
    values = np.column_stack([w, y, w * (y - 5)])
    order = rng.permutation(rows).astype(np.uint32)
    ends = np.unique(np.append(rng.integers(1, rows, rows // 2), [1, rows])).astype(np.uint32)
    ranked = ranks.lay_out_rows(values, 0.3, np.empty(6 * rows + 6))
    words = np.empty(rows + 1, np.uint64)
    for aside, joins in ((-1, True), (len(ends) - 1, True), (len(ends) - 1, False)):
        cuts = len(ends) - 1 - (aside >= 0)
        if cuts < 1:
            continue
        found = np.empty((2, 2 * cuts + 1, 4))
        for size, sides in zip((0, rows + 1), found, strict=True):
            given = ranked._replace(n=np.uint64(rows), at=np.uint64(ranked.at))
            given = given._replace(tree=np.empty((size, 2)))
            quantile_splits.sweep_cuts(given, order, ends, aside, joins, cuts, words, sides)
        known = 2 * cuts + (aside >= 0)
        for sides in found[1:]:
            np.testing.assert_array_equal(sides[:known], found[0, :known])
        last = order[ends[-2] :] if aside >= 0 else order[:0]
        for cut in rng.choice(cuts, min(cuts, 20), replace=False):
            rest = order[ends[cut] : len(order) - len(last)]
            left = np.append(order[: ends[cut]], last) if joins else order[: ends[cut]]
            for side, chosen in enumerate((left, rest)):
                own = [(int(y[i]), int(w[i])) for i in chosen]  # whole numbers
                expected = [float(s) for s in reference.quantile_stats(own, Fraction(3, 10))]
                assert found[0, 2 * cut + side] == pytest.approx(expected, abs=1e-9)


@pytest.mark.matrix
@pytest.mark.parametrize("rows", [2, 9, 64, 65, 300])
@pytest.mark.parametrize("largest", [0, 3, 300, 1 << 20, (1 << 32) - 2])
def test_rows_are_grouped_by_code_in_their_own_order(rows: int, largest: int) -> None:
    rng = np.random.default_rng(rows)
    codes = rng.integers(0, largest + 1, 2 * rows).astype(np.uint32)
    ids = rng.permutation(2 * rows)[:rows].astype(np.uint32)
    work = np.empty((quantile_splits.GROUP_ORDER + 1, rows), np.uint32)
    counts, words = np.empty(100_000, np.uint32), np.empty(2000, np.uint64)
    column = Column(codes, np.uint64(0), np.uint64(1), np.uint32(largest + 1))
    count = quantile_splits.group_rows(column, ids, work, counts, words)
    present, sizes = np.unique(codes[ids], return_counts=True)
    assert count == len(present)
    if count > 1:
        assert work[tally.CODE_OF, :count].tolist() == present.tolist()
        assert work[quantile_splits.GROUP_ENDS, :count].tolist() == sizes.cumsum().tolist()
        assert work[tally.ORDER].tolist() == np.argsort(codes[ids], kind="stable").tolist()


def test_search_tree_of_sums_is_built_for_unequal_weights_only() -> None:
    counts = np.random.default_rng(0).poisson(1.0, 1000) + 1.0
    column = np.zeros(1000)
    memory = np.empty(6006)
    for lightest, planted in ((counts[0], 0), (0.01, 1001)):
        counts[0] = lightest
        values = np.column_stack([counts, column, column])
        tree = ranks.lay_out_rows(values, 0.5, memory).tree
        assert tree.shape == (planted, 2)


# ---------------------------------------------------------------- subsets
# How nominal columns split in two: the best subset, or one level against the rest.


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
def test_best_category_subset_is_found_up_to_exact_levels(criterion: str) -> None:
    rng = random.Random(f"subsets {criterion}")
    for levels in (3, 5, 8):
        problem = levels_problem(rng, levels, rng.choice([3, 4]), criterion)
        assert grow(problem).tree.gain[0] == pytest.approx(best_gain(problem), rel=1e-12)


def test_all_category_subsets_are_tried_beyond_one_scan() -> None:
    rng = random.Random("many subsets")
    problem = levels_problem(rng, 10, 4, "gini")  # 511 subsets, in scans of 256
    assert grow(problem).tree.gain[0] == pytest.approx(best_gain(problem), rel=1e-12)


@pytest.mark.matrix
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_category_orders_find_nearly_the_best_subset_above_exact_levels(criterion: str) -> None:
    rng = random.Random(f"orders {criterion}")
    parts = []
    for _ in range(12):
        problem = levels_problem(rng, 9, 4, criterion, exact_levels=2)
        parts.append(grow(problem).tree.gain[0] / best_gain(problem))
    assert max(parts) <= 1 + 1e-12
    assert min(parts) > 0.85
    assert sum(parts) / len(parts) > 0.98


def test_principal_component_finds_a_subset_no_class_share_orders() -> None:
    """Classes 0 and 1 against 2 and 3: mixed pairs tell the sides by no single class."""
    rows = np.array(
        [[9.0, 0, 1, 0], [0, 9, 0, 1], [5, 4, 1, 0], [0, 1, 9, 0], [1, 0, 0, 9], [0, 1, 4, 5]]
    )
    keys = np.empty(6)
    order_by_share(rows, 6, 4, keys)
    left = keys[:3] > 0
    assert left.all() != (~left).all()
    assert np.all((keys[3:] > 0) != left[0])


@pytest.mark.parametrize("scaled", [False, True])
def test_principal_components_equal_those_of_the_covariance(scaled: bool) -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        rows = rng.integers(0, 30, (7, 3)).astype(float) + 1
        keys = np.empty(7)
        order_by_share(rows, 7, 3 + scaled, keys)
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
def test_one_vs_rest_trees_equal_the_oracle(criterion: str) -> None:
    rng = random.Random(f"one {criterion}")
    for _ in range(30):
        check(problem_of(rng, criterion, one_vs_rest=True))


@pytest.mark.matrix
def test_one_vs_rest_trees_by_gain_ratio_equal_the_oracle() -> None:
    rng = random.Random("one by ratio")
    for _ in range(40):
        check(problem_of(rng, "gain_ratio", one_vs_rest=True, level_by="ratio"))


@pytest.mark.parametrize("exact_levels", [2, 3, 6])
def test_trees_with_any_exact_levels_equal_the_oracle(exact_levels: int) -> None:
    rng = random.Random(f"exact {exact_levels}")
    for _ in range(30):
        check(problem_of(rng, "gini", exact_levels=exact_levels))


@pytest.mark.matrix
@pytest.mark.parametrize("criterion", ["gini", "entropy", "squared_error"])
def test_gains_of_rows_with_known_values_equal_the_oracle(criterion: str) -> None:
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


def test_entropy_of_a_balanced_node_does_not_exceed_one_bit() -> None:
    """Equal in exact arithmetic: rounding does not make it more."""
    column = [float(i) for i in range(6)]
    for copies in (1, 3, 7):
        y = [0, 1, 0, 1, 0, 1] * copies
        problem = reference.Problem([column * copies], y, [None], "entropy", 2, min_impurity=1.0)
        assert grow(problem).tree.n_nodes == 1


def test_one_vs_rest_split_separates_a_single_category() -> None:
    problem = levels_problem(random.Random(1), 6, 3, "gini", one_vs_rest=True)
    tree = grow(problem).tree
    assert tree.kind[0] == Split.SUBSET
    assert sorted(level_branches(tree, 0).values()) == [0, 1, 1, 1, 1, 1]


def test_train_passes_settings_to_tree_growth() -> None:
    rng = np.random.default_rng(0)
    table = {"a": rng.choice(list("pqrst"), 200), "y": rng.choice(list("xyz"), 200)}
    single = treekit.train(table, "y", nominal_splits="one_vs_rest", max_depth=1)
    assert np.count_nonzero(single.trees[0].branches(0) == 0) == 1
    assert treekit.train(table, "y", min_impurity=0.7).n_nodes == 1
    number = {"a": table["a"], "y": rng.normal(size=200)}
    assert treekit.train(number, "y", min_impurity=9.0).n_nodes == 1
    assert treekit.train(number, "y", min_impurity=0.1).n_nodes > 1


def test_min_impurity_is_refused_for_a_criterion_without_impurity() -> None:
    from treekit.contracts import Criterion, CriterionFunctions

    only_score = Criterion(
        "balance", "classification",
        lambda: CriterionFunctions(score=lambda parent, children: children[0, 0]),
    )  # fmt: skip
    table = {"a": [1.0, 2.0, 3.0, 4.0], "y": list("abab")}
    with pytest.raises(SettingError, match="'balance' defines no impurity"):
        treekit.train(table, "y", criterion=only_score, min_impurity=0.1)


def test_argument_descriptions_distinguish_numba_types() -> None:
    plain = np.zeros((3, 2))
    frozen = np.zeros((3, 2))
    frozen.flags.writeable = False
    packed = np.zeros(17, np.uint8)
    values: list[Any] = [
        plain, plain[1:], plain[:, 0], plain.T, plain[::2], frozen, plain.astype(np.float32),
        np.zeros(3), np.zeros(0), packed[1:].view(np.float64), None, True, 1, 2, 0.5, 2.5,
        np.float64(1.0), np.random.default_rng(0), (plain, None), (plain.T, None),
        Rows(np.zeros(1, np.uint32), np.zeros(1, np.uint32), plain),
        Rows(np.zeros(2, np.uint32), np.zeros(0, np.uint32), plain[1:]),
    ]  # fmt: skip
    for one, other in itertools.product(values, repeat=2):
        if tree_builder._describe_types(one) == tree_builder._describe_types(other):
            assert nb.typeof(one) == nb.typeof(other), (one, other)
    assert len({tree_builder._describe_types(value) for value in values}) >= 14
