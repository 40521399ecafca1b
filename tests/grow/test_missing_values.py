"""Fractional instances and surrogates: rows with missing values in growth."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treekit
from tests.examples import examples
from tests.grow.test_grow_tree import problem_of
from tests.growing import (
    built_in,
    grow,
    level_branches,
    node_statistics,
    recipe_of,
    same_tree,
    target_of,
)
from tests.reference import fractional as oracle
from tests.reference import grow as reference
from tests.reference import surrogates as slow
from tests.reference.grow import Problem
from tests.tiers import later
from treekit.data.dataset import make_dataset
from treekit.grow.recipe import GrownTree, Recipe, SurrogateRule
from treekit.grow.route import compute_leaf_shares
from treekit.grow.tree_builder import grow_tree
from treekit.kernels.records import SplitRules
from treekit.kernels.thresholds import MIDPOINT, VALUE_BELOW
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Split, Tree
from treekit.training import fit
from treekit.training.plan import make_plan
from treekit.training.prepare import make_recipe

# ---------------------------------------------------------------- fractional

NEARLY = 1.0 - 1e-6
C45 = {"slack": 1e-3, "mdl": True, "many_levels": 0.3}
RULES = ("slack", "mdl", "missing_branch", "many_levels", "tolerance")


def parts_recipe(p: Problem, rules: oracle.Rules = oracle.Rules()) -> Recipe:  # noqa: B008
    ratio = {}
    if p.criterion == "gain_ratio":
        ratio = {name: getattr(rules, name) for name in RULES} | {"level_by": p.level_by}
    cells = target_of(p).size
    recipe = recipe_of(
        p,
        criterion=built_in(p.criterion, cells, True, **ratio),
        rules=SplitRules(
            known_only=True,
            empty_branches=rules.empty,
            min_side_share=0.1 / cells if rules.c45_side else 0.0,
            resolution=rules.resolution,
        ),
        fractional=True,
    )
    limits = recipe.limits
    return replace(
        recipe,
        limits=limits._replace(
            min_weight_split=limits.min_weight_split * NEARLY,
            min_weight_leaf=limits.min_weight_leaf * NEARLY,
        ),
    )


def all_rows(recipe: Recipe) -> Any:
    return recipe.target.select_rows(np.arange(len(recipe.target.values), dtype=np.uint32), None)


def grow_parts(recipe: Recipe, held: Any = None, **changes: Any) -> GrownTree:
    recipe = replace(recipe, limits=recipe.limits._replace(**changes))
    none = recipe.target.select_rows(np.empty(0, np.uint32), None)
    held = none if held is None else held
    return grow_tree(recipe, all_rows(recipe), held, 0)


def check(problem: Problem, rules: oracle.Rules = oracle.Rules()) -> None:  # noqa: B008
    grown = grow_parts(parts_recipe(problem, rules))
    same_tree(problem, grown, oracle.grow(problem, rules), parts=True)


def small_problem(rng: random.Random, criterion: str, n_classes: int, **changes: Any) -> Problem:
    """One that exact fractions can follow, with a column of levels.

    Rows in parts of numbers alone compile anew.
    """
    while True:
        problem = problem_of(rng, criterion, **changes)
        if len(problem.y) <= 30 and problem.n_classes == n_classes and any(problem.levels):
            return problem


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("criterion", "n_classes"),
    [
        ("gini", 3),
        later("entropy", 2),
        later("gain_ratio", 2),
        later("squared_error", 0),
    ],
)
@pytest.mark.parametrize("multiway", [False, True])
def test_fractional_instance_trees_equal_the_oracle(
    criterion: str, n_classes: int, multiway: bool
) -> None:
    rng = random.Random(f"parts {criterion} {multiway}")
    for _ in range(25):
        leaf = rng.choice([1, 2, 3])
        check(
            small_problem(
                rng, criterion, n_classes, multiway=multiway, min_weight_leaf=leaf, max_depth=5
            ),
            oracle.Rules(empty=multiway and rng.random() < 0.5),
        )


@pytest.mark.matrix
def test_fractional_instance_trees_of_numeric_columns_equal_the_oracle() -> None:
    rng = random.Random("numbers in parts")
    for _ in range(20):
        problem = small_problem(rng, "gini", 2, max_depth=5)
        kept = [c for c, size in zip(problem.columns, problem.levels, strict=True) if not size]
        columns = kept or [[1.0] * len(problem.y)]
        problem = replace(problem, columns=columns, levels=[None] * len(columns))
        check(problem)


RELEASE8 = oracle.Rules(
    empty=True, c45_side=True, resolution=0.3, slack=1e-3, mdl=True, many_levels=0.3
)


@pytest.mark.matrix
@pytest.mark.parametrize(
    "rules",
    [
        RELEASE8,
        pytest.param(replace(RELEASE8, tolerance=1e-6), marks=pytest.mark.matrix),
        pytest.param(oracle.Rules(missing_branch=False), marks=pytest.mark.matrix),
    ],
    ids=["release 8", "j48", "book"],
)
def test_c45_rules_equal_the_oracle(rules: oracle.Rules) -> None:
    rng = random.Random("c45")
    for _ in range(25):
        leaf, gain = rng.choice([1, 2]), rng.choice([0.0, -1e-3])
        problem = small_problem(rng, "gain_ratio", 2, multiway=True, max_depth=4)
        check(replace(problem, min_weight_leaf=leaf, min_gain=gain), rules)


def with_levels_for_numbers(rng: random.Random, p: Problem) -> Problem:
    """A column of five levels in the place of each number, missing where it was."""
    columns = [
        [v if size or v is None else rng.randrange(5) for v in column]
        for column, size in zip(p.columns, p.levels, strict=True)
    ]
    return replace(p, columns=columns, levels=[size or 5 for size in p.levels])


@pytest.mark.kernels
@pytest.mark.parametrize("level_by", [pytest.param("gain", marks=pytest.mark.matrix), "ratio"])
@pytest.mark.parametrize("tolerance", [0.0, pytest.param(0.1, marks=pytest.mark.matrix)])
def test_fractional_one_vs_rest_trees_equal_the_oracle(level_by: str, tolerance: float) -> None:
    rng = random.Random(f"one level by {level_by}")
    rules = replace(RELEASE8, empty=False, tolerance=tolerance)
    for _ in range(15):
        problem = small_problem(
            rng, "gain_ratio", 2, one_vs_rest=True, level_by=level_by, max_depth=4
        )
        if tolerance:
            problem = with_levels_for_numbers(rng, problem)
        check(replace(problem, min_weight_leaf=rng.choice([1, 2])), rules)


@st.composite
def problems(draw: st.DrawFn, missing: bool = True) -> Problem:
    """Small tables of numbers and levels, often missing."""
    rows = draw(st.integers(2, 25))
    criterion = draw(st.sampled_from(["entropy", "squared_error"]))
    n_classes = 2 if criterion == "entropy" else 0
    cell = st.one_of(st.none(), st.integers(0, 3)) if missing else st.integers(0, 3)
    column = st.lists(cell, min_size=rows, max_size=rows)
    columns = draw(st.lists(column, min_size=1, max_size=3))
    levels = [4, *(draw(st.sampled_from([None, 4])) for _ in columns[1:])]
    y = draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows))
    return Problem(columns, y, levels, criterion, n_classes, multiway=draw(st.booleans()))


few = settings(max_examples=examples(40), deadline=None)


@pytest.mark.kernels
@few
@given(problems())
def test_fractions_of_a_row_sum_exactly_to_its_weight(problem: Problem) -> None:
    recipe = parts_recipe(problem)
    grown = grow_parts(recipe)
    tree = grown.tree
    for node in np.flatnonzero(tree.kind != Split.LEAF):
        first, count = int(tree.first_child[node]), int(tree.n_children[node])
        assert grown.stats[first : first + count, 0].sum() == grown.stats[node, 0]
        assert tree.weight[first : first + count].sum() == tree.weight[node]
    ids = np.arange(len(problem.y), dtype=np.uint32)
    reached = compute_leaf_shares(tree, recipe.table, ids, fractional=True)
    assert np.bincount(reached.ids, reached.share).tolist() == [1.0] * len(ids)


@pytest.mark.kernels
@few
@given(problems())
def test_node_statistics_of_the_training_rows_equal_those_of_growth(problem: Problem) -> None:
    recipe = parts_recipe(problem)
    grown = grow_parts(recipe)
    rows = all_rows(recipe)
    again = node_statistics(grown.tree, recipe.table, rows, recipe.target.size, fractional=True)
    np.testing.assert_array_equal(again, grown.stats)


@pytest.mark.kernels
@few
@given(problems())
def test_doubled_weights_grow_the_same_tree(problem: Problem) -> None:
    once = grow_parts(parts_recipe(problem))
    doubled = replace(
        problem, weights=[2] * len(problem.y), min_weight_leaf=2.0, min_weight_split=4.0
    )
    twice = grow_parts(parts_recipe(doubled))
    for name in ("kind", "feature", "threshold", "n_children", "level_branch"):
        np.testing.assert_array_equal(getattr(once.tree, name), getattr(twice.tree, name), name)
    np.testing.assert_allclose(twice.stats, 2 * once.stats, atol=1e-9)


@pytest.mark.kernels
@few
@given(problems(missing=False))
def test_without_missing_values_fractional_equals_missing_direction(problem: Problem) -> None:
    parts, sides = grow_parts(parts_recipe(problem)), grow(problem)
    for name in ("kind", "feature", "threshold", "missing", "level_branch", "value"):
        np.testing.assert_array_equal(getattr(parts.tree, name), getattr(sides.tree, name), name)


@pytest.mark.kernels
@few
@given(problems(), st.randoms())
def test_tree_does_not_depend_on_the_order_of_rows(problem: Problem, rng: random.Random) -> None:
    order = list(range(len(problem.y)))
    rng.shuffle(order)
    shuffled = replace(
        problem,
        columns=[[column[i] for i in order] for column in problem.columns],
        y=[problem.y[i] for i in order],
    )
    one, other = grow_parts(parts_recipe(problem)), grow_parts(parts_recipe(shuffled))
    np.testing.assert_array_equal(one.stats, other.stats)
    np.testing.assert_array_equal(one.tree.threshold, other.tree.threshold)


def holes(rng: random.Random, rows: int, share: float) -> Problem:
    columns = [[rng.choice(range(9)) if rng.random() > share else None for _ in range(rows)]
               for _ in range(6)]  # fmt: skip
    y = [int(sum(v or 0 for v in row) % 3 > 0) for row in zip(*columns, strict=True)]
    return Problem(columns, y, [None, None, None, 9, 9, 9], "gini", 2, multiway=True)


@pytest.mark.kernels
@pytest.mark.parametrize("max_depth", [3, 4])
def test_best_first_growth_of_all_leaves_is_depth_first_growth(max_depth: int) -> None:
    # With a bound on leaves slices lie anywhere, and are squeezed together.
    recipe = parts_recipe(holes(random.Random(1), 300, 0.4))
    held = all_rows(recipe)
    deep = grow_parts(recipe, held, max_depth=max_depth)
    best = grow_parts(recipe, all_rows(recipe), max_depth=max_depth, max_leaves=10**6)
    assert deep.tree.n_leaves == best.tree.n_leaves > 100
    for ours, theirs in ((deep.stats, best.stats), (deep.held_stats, best.held_stats)):
        np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])


@pytest.mark.kernels
def test_fractional_held_out_rows_do_not_change_the_tree() -> None:
    problem = holes(random.Random(2), 200, 0.3)
    recipe = parts_recipe(problem)
    ids = np.arange(200, dtype=np.uint32)
    kept, out = (
        recipe.target.select_rows(ids[:120], None),
        recipe.target.select_rows(ids[120:], None),
    )
    none = recipe.target.select_rows(ids[:0], None)
    alone = grow_tree(recipe, recipe.target.select_rows(ids[:120], None), none, 0)
    grown = grow_tree(recipe, kept, out, 0)
    np.testing.assert_array_equal(grown.stats, alone.stats)
    assert grown.held_share is not None
    assert grown.held_share.min() < 1.0
    assert np.bincount(grown.held_ids, grown.held_share)[120:].tolist() == [1.0] * 80
    # Growth divides by the known weight, the model by that of the leaves: equal up to 2**-24.
    for leaf in grown.tree.leaves:
        here = grown.held_leaf == leaf
        classes = np.asarray(problem.y)[grown.held_ids[here]]
        sums = np.bincount(classes, grown.held_values[here, 0], minlength=2)
        np.testing.assert_allclose(grown.held_stats[leaf], sums, atol=1e-4)


def test_an_empty_branch_predicts_as_its_parent_with_weight_0() -> None:
    column, y = [0, 0, 0, 2, 2], [0, 0, 1, 1, 1]
    for criterion, classes, said in (("entropy", 2, [2.0, 3.0]), ("squared_error", 0, [0.6])):
        problem = Problem([column], y, [4], criterion, classes, multiway=True)
        recipe = recipe_of(problem, rules=SplitRules(empty_branches=True))
        tree = grow_parts(recipe).tree
        assert tree.n_children[0] == 4
        assert tree.weight[1:].tolist() == [3.0, 0.0, 2.0, 0.0]
        assert tree.level_branch.tolist() == [0, 1, 2, 3]
        np.testing.assert_allclose(tree.value[[2, 4]], [said, said])
        assert tree.missing[0] == 0


@pytest.mark.kernels
def test_a_nominal_column_is_tested_once_on_a_path_even_with_missing_values() -> None:
    rng = random.Random(3)
    for parts in (False, True):
        problem = holes(rng, 150, 0.3)
        problem = replace(problem, columns=problem.columns[3:], levels=[9, 9, 9])
        tree = grow_parts(parts_recipe(problem)).tree if parts else grow(problem).tree
        asked: dict[int, set[int]] = {0: set()}
        parent = tree.parent
        assert tree.depth >= 2
        for node in range(1, tree.n_nodes):
            above = int(parent[node])
            asked[node] = asked[above] | {int(tree.feature[above])}
            assert int(tree.feature[node]) not in asked[node]


def test_thresholds_may_be_the_largest_training_value_below_the_midpoint() -> None:
    # 2.4 is in the table, but not at the node that is split between 2 and 3.
    kind, x = [0, 0, 0, 1, 1, 1, 1], [1.0, 2.0, 3.0, 2.4, 2.4, 2.4, 2.4]
    problem = Problem([kind, x], [0, 0, 1, 2, 2, 2, 2], [None, None], "gini", 3)
    for below, threshold in ((False, 2.5), (True, np.float32(2.4))):
        tree = grow_parts(
            recipe_of(problem, rules=SplitRules(placement=VALUE_BELOW if below else MIDPOINT))
        ).tree
        assert tree.feature.tolist()[:2] == [0, 1]
        assert tree.threshold[:2].tolist() == [0.0 if below else 0.5, threshold]


def test_values_closer_than_the_resolution_are_not_separated() -> None:
    column, y = [0.0, 1.0, 1.25, 1.5, 3.0, 3.25], [0, 0, 1, 0, 1, 1]
    problem = Problem([column], y, [None], "gini", 2)
    tree = grow_parts(recipe_of(problem, rules=SplitRules(resolution=0.25))).tree
    assert sorted(tree.threshold[tree.kind == Split.THRESHOLD]) == [0.5, 2.25]


# ---------------------------------------------------------------- surrogates
# Surrogate splits: which columns stand in for a missing value, and where its rows go.


def own_branch(tree: Tree, node: int, value: Any) -> int | None:
    """The branch of a value by the node's own test, None if it cannot tell."""
    if value is None:
        return None
    if tree.kind[node] == Split.THRESHOLD:
        return int(value > tree.threshold[node])
    return level_branches(tree, node).get(value)


def kept(tree: Tree, node: int) -> list[tuple[Any, ...]]:
    """A node's surrogates: feature, threshold and branch below it, or branches of levels."""
    found: list[tuple[Any, ...]] = []
    for k in range(tree.surrogate_offsets[node], tree.surrogate_offsets[node + 1]):
        levels = slice(tree.surrogate_level_offsets[k], tree.surrogate_level_offsets[k + 1])
        branch_of = dict(enumerate(tree.surrogate_level_branch[levels].tolist()))
        if branch_of:
            said: tuple[Any, ...] = ({v: b for v, b in branch_of.items() if b >= 0},)
        else:
            said = (float(tree.surrogate_threshold[k]), int(tree.surrogate_below[k]))
        found.append((int(tree.surrogate_feature[k]), *said))
    return found


def surrogates_check(problem: reference.Problem, grown: GrownTree, rule: SurrogateRule) -> None:
    """Walk the tree with the slow search: the same surrogates, and the rows that they send."""
    tree = grown.tree
    weights = problem.weights or [1] * len(problem.y)
    rows_of = {0: [i for i in range(len(problem.y)) if weights[i] > 0]}
    for node in range(tree.n_nodes):
        rows = rows_of[node]
        assert tree.weight[node] == sum(weights[i] for i in rows)
        if tree.kind[node] == Split.LEAF:
            assert tree.surrogate_offsets[node] == tree.surrogate_offsets[node + 1]
            continue
        f = int(tree.feature[node])
        column = problem.columns[f]
        told = {i: own_branch(tree, node, column[i]) for i in rows}
        side = {i: branch for i, branch in told.items() if branch is not None}
        found = slow.surrogates(problem, f, side, rule, rows)
        assert kept(tree, node) == [
            (s.feature, s.branch_of)
            if s.branch_of is not None
            else (s.feature, s.threshold, s.below)
            for s in found
        ]
        for i in rows:
            answers = [side.get(i), *(s.branch(problem.columns[s.feature][i]) for s in found)]
            branch = next((a for a in answers if a is not None), int(tree.missing[node]))
            rows_of.setdefault(int(tree.first_child[node]) + branch, []).append(i)


def with_category(problem: reference.Problem) -> reference.Problem:
    """Add a column of one category: trees of numbers alone have kernels of their own."""
    columns = [*problem.columns, [0.0] * len(problem.y)]
    return replace(problem, columns=columns, levels=[*problem.levels, 1])


@pytest.mark.kernels
@pytest.mark.parametrize("criterion", ["gini", "squared_error"])
def test_surrogates_and_their_row_counts_equal_the_slow_search(criterion: str) -> None:
    rng = random.Random(f"surrogates {criterion}")
    seen = 0
    for _ in range(80):
        rule = SurrogateRule(
            rng.choice([0, 1, 2, 5]), rng.random() < 0.4, right_and_wrong=rng.random() < 0.4
        )
        problem = problem_of(rng, criterion, known_only=True)
        while not any(problem.levels):  # numbers alone compile anew
            problem = problem_of(rng, criterion, known_only=True)
        if rng.random() < 0.5:  # a column that nearly repeats the first
            copy = [v if rng.random() < 0.8 else rng.choice(problem.columns[0]) for v in
                    problem.columns[0]]  # fmt: skip
            problem = replace(
                problem, columns=[*problem.columns, copy],
                levels=[*problem.levels, problem.levels[0]],
            )  # fmt: skip
        grown = grow(problem, surrogates=rule)
        surrogates_check(problem, grown, rule)
        seen += len(grown.tree.surrogate_feature)
    assert seen > 15


@pytest.mark.matrix
@pytest.mark.parametrize("criterion", ["gini", "squared_error"])
def test_surrogates_of_numbers_alone_equal_the_slow_search(criterion: str) -> None:
    rng = random.Random(f"numbers {criterion}")
    rule = SurrogateRule(5)
    for _ in range(20):
        problem = problem_of(rng, criterion, known_only=True)
        gone = [column for column in problem.columns if not all(v is None for v in column)]
        problem = replace(problem, columns=gone or [[1.0] * len(problem.y)])
        problem = replace(problem, levels=[None] * len(problem.columns))
        surrogates_check(problem, grow(problem, surrogates=rule), rule)


@pytest.mark.kernels
def test_reversed_copy_of_a_column_is_a_surrogate_with_reversed_branches() -> None:
    values = [float(i) for i in range(8)]
    columns: list[list[Any]] = [[*values, None], [*(7.0 - v for v in values), 6.0]]
    y = [0, 0, 0, 0, 1, 1, 1, 1, 0]
    problem = reference.Problem(columns, y, [None, None], "gini", 2, known_only=True)
    tree = grow(with_category(problem), surrogates=5).tree
    assert tree.feature[0] == 1  # the one without gaps
    assert kept(tree, 0) == [(0, 3.5, 1)]
    assert tree.value[tree.leaves].tolist() == [[0.0, 4.0], [5.0, 0.0]]


@pytest.mark.kernels
def test_rows_missing_in_a_surrogate_count_against_it_unless_of_known() -> None:
    """As in rpart: rows where the candidate is missing count against it."""
    primary: list[Any] = [0.0] * 10 + [1.0] * 10
    sparse: list[Any] = [0.0] * 6 + [None] * 4 + [1.0] * 6 + [None] * 4
    full: list[Any] = [0.0] * 8 + [1.0] * 12
    problem = reference.Problem(
        [primary, sparse, full], [0] * 10 + [1] * 10, [None] * 3, "gini", 2, known_only=True
    )
    tree = grow(with_category(problem), surrogates=5).tree
    assert tree.surrogate_feature[:2].tolist() == [2, 1]
    tree = grow(with_category(problem), surrogates=SurrogateRule(5, of_known=True)).tree
    assert tree.surrogate_feature[:2].tolist() == [1, 2]


@pytest.mark.kernels
def test_surrogate_thresholds_lie_between_values_of_all_rows_of_a_node() -> None:
    """Rows whose own value is missing are of the node, too; of equal cuts the first."""
    primary: list[Any] = [0.0] * 4 + [1.0] * 4 + [None] * 2
    other: list[Any] = [0.0, 1.0, 2.0, 3.0, 9.0, 9.0, 9.0, 9.0, 5.0, 7.0]
    problem = reference.Problem(
        [primary, other], [0] * 4 + [1] * 5 + [0], [None, None], "gini", 2, known_only=True,
        max_depth=1,
    )  # fmt: skip
    assert kept(grow(with_category(problem), surrogates=5).tree, 0) == [(1, 4.0, 0)]


@pytest.mark.kernels
def test_right_and_wrong_rule_refuses_surrogates_without_two_errors() -> None:
    primary: list[Any] = [0.0] * 8 + [1.0] * 8
    faultless: list[Any] = [0] * 8 + [1] * 8
    twice_wrong: list[Any] = [1] * 2 + [0] * 6 + [1] * 8
    problem = reference.Problem(
        [primary, faultless, twice_wrong], [0] * 8 + [1] * 8, [None, 2, 2], "gini", 2,
        known_only=True,
    )  # fmt: skip
    assert grow(problem, surrogates=5).tree.surrogate_feature.tolist() == [1, 2]
    rule = SurrogateRule(5, right_and_wrong=True)
    assert grow(problem, surrogates=rule).tree.surrogate_feature.tolist() == [2]


@pytest.mark.kernels
def test_a_column_no_better_than_the_majority_is_not_a_surrogate() -> None:
    primary: list[Any] = [0.0] * 8 + [1.0] * 3
    other: list[Any] = [0.0, 1.0] * 4 + [0.0, 1.0, 1.0]
    problem = reference.Problem(
        [primary, other], [0] * 8 + [1] * 3, [None, None], "gini", 2, known_only=True
    )
    assert len(grow(with_category(problem), surrogates=5).tree.surrogate_feature) == 0


def mixed_table(rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=rows)
    table: dict[str, Any] = {
        "a": a,
        "b": -a + rng.normal(scale=0.3, size=rows),
        "c": np.array(list("uvwx"), dtype=object)[np.digitize(a, [-1, 0, 1])],
        "d": rng.normal(size=rows),
    }
    table["y"] = np.array(["no", "yes"])[(a + 0.3 * table["d"] > 0.2).astype(int)]
    for name in "abcd":
        lost = rng.random(rows) < 0.25
        table[name] = [None if gone else v for gone, v in zip(lost, table[name], strict=True)]
    return table


@pytest.mark.kernels
@pytest.mark.parametrize("splitter", [pytest.param("exact", marks=pytest.mark.matrix), "histogram"])
def test_training_rows_reach_the_leaves_of_the_model_by_surrogates(splitter: str) -> None:
    dataset = make_dataset(mixed_table(400, 1), "y")
    settings = {"missing": "surrogate", "splitter": splitter, "max_bins": 9, "seed": 0}
    model = fit(dataset, settings).model
    tree = model.trees[0]
    assert len(tree.surrogate_feature) > 5
    ends = leaf_indices(model, matrix_of(dataset))[:, 0]
    assert np.bincount(ends, minlength=tree.n_nodes)[tree.leaves].tolist() == (
        tree.weight[tree.leaves].tolist()
    )


@pytest.mark.kernels
@pytest.mark.parametrize("splitter", [pytest.param("exact", marks=pytest.mark.matrix), "histogram"])
def test_held_out_rows_reach_the_leaves_of_the_model_by_surrogates(splitter: str) -> None:
    dataset = make_dataset(mixed_table(400, 2), "y")
    settings = {"missing": "surrogate", "splitter": splitter, "max_bins": 9, "seed": 0}
    recipe = make_recipe(dataset, make_plan(dataset, settings))
    ids = np.arange(400, dtype=np.uint32)
    rows, held = (
        recipe.target.select_rows(ids[:250], None),
        recipe.target.select_rows(ids[250:], None),
    )
    grown = grow_tree(recipe, rows, held, 0)
    model = treekit.model.model.make_model(dataset.schema, [grown.tree], missing="surrogate")
    ends = leaf_indices(model, matrix_of(dataset)[grown.held_ids])[:, 0]
    assert ends.tolist() == grown.held_leaf.tolist()
    again = node_statistics(grown.tree, recipe.table, rows, 2, fractional=False)
    np.testing.assert_array_equal(again, grown.stats)


def matrix_of(dataset: Any) -> Any:
    """(rows, columns) as models take them: levels by number, NaN = missing."""
    columns = [
        np.where(column < 0, np.nan, column) if column.dtype.kind == "i" else column
        for column in dataset.columns
    ]
    return np.column_stack(columns).astype(dataset.schema.dtype)


def test_trees_have_no_surrogates_unless_missing_is_surrogate() -> None:
    model = treekit.train(mixed_table(200, 3), "y", seed=0)
    assert len(model.trees[0].surrogate_feature) == 0


@pytest.mark.matrix
def test_surrogates_predict_better_than_the_majority_branch() -> None:
    """Three columns tell the same: what one lost, the others know."""
    table, fresh = mixed_table(250, 4), mixed_table(600, 5)
    right = {}
    for most in (0, 5):
        model = treekit.train(table, "y", missing="surrogate", surrogates=most, max_depth=1, seed=0)
        right[most] = np.mean(model.predict(fresh) == fresh["y"])
    assert right[5] > right[0] + 0.03


def test_recipes_state_the_number_of_surrogates() -> None:
    problem = reference.Problem([[0.0, 1.0]], [0, 1], [None], "gini", 2)
    assert recipe_of(problem).surrogates is None
