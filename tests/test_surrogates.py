"""Surrogate splits: which columns stand in for a missing value, and where its rows go."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import treekit
from tests.growing import grow, level_branches, recipe_of
from tests.reference import grow as reference
from tests.reference import surrogates as slow
from tests.test_grow import problem_of
from treekit.data.dataset import make_dataset
from treekit.grow.recipe import GrownTree, SurrogateRule
from treekit.grow.route import route
from treekit.grow.tree_builder import grow_tree
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Split, Tree
from treekit.training import fit
from treekit.training.plan import make_plan
from treekit.training.prepare import make_recipe


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
    for k in range(tree.surrogate_start[node], tree.surrogate_start[node + 1]):
        levels = slice(tree.surrogate_level_start[k], tree.surrogate_level_start[k + 1])
        branch_of = dict(enumerate(tree.surrogate_level_branch[levels].tolist()))
        if branch_of:
            said: tuple[Any, ...] = ({v: b for v, b in branch_of.items() if b >= 0},)
        else:
            said = (float(tree.surrogate_threshold[k]), int(tree.surrogate_below[k]))
        found.append((int(tree.surrogate_feature[k]), *said))
    return found


def check(problem: reference.Problem, grown: GrownTree, rule: SurrogateRule) -> None:
    """Walk the tree with the slow search: the same surrogates, and the rows that they send."""
    tree = grown.tree
    weights = problem.weights or [1] * len(problem.y)
    rows_of = {0: [i for i in range(len(problem.y)) if weights[i] > 0]}
    for node in range(tree.n_nodes):
        rows = rows_of[node]
        assert tree.weight[node] == sum(weights[i] for i in rows)
        if tree.kind[node] == Split.LEAF:
            assert tree.surrogate_start[node] == tree.surrogate_start[node + 1]
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


@pytest.mark.parametrize("criterion", ["gini", "squared_error"])
def test_surrogates_and_the_rows_they_send_equal_the_slow_search(criterion: str) -> None:
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
        check(problem, grown, rule)
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
        check(problem, grow(problem, surrogates=rule), rule)


def test_a_reversed_copy_stands_in_with_the_larger_values_left() -> None:
    values = [float(i) for i in range(8)]
    columns: list[list[Any]] = [[*values, None], [*(7.0 - v for v in values), 6.0]]
    y = [0, 0, 0, 0, 1, 1, 1, 1, 0]
    problem = reference.Problem(columns, y, [None, None], "gini", 2, known_only=True)
    tree = grow(with_category(problem), surrogates=5).tree
    assert tree.feature[0] == 1  # the one without gaps
    assert kept(tree, 0) == [(0, 3.5, 1)]
    assert tree.value[tree.leaves].tolist() == [[0.0, 4.0], [5.0, 0.0]]


def test_a_column_that_is_often_missing_itself_comes_after_one_that_agrees_less() -> None:
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


def test_a_surrogate_cuts_between_values_of_all_rows_of_the_node() -> None:
    """Rows whose own value is missing are of the node, too; of equal cuts the first."""
    primary: list[Any] = [0.0] * 4 + [1.0] * 4 + [None] * 2
    other: list[Any] = [0.0, 1.0, 2.0, 3.0, 9.0, 9.0, 9.0, 9.0, 5.0, 7.0]
    problem = reference.Problem(
        [primary, other], [0] * 4 + [1] * 5 + [0], [None, None], "gini", 2, known_only=True,
        max_depth=1,
    )  # fmt: skip
    assert kept(grow(with_category(problem), surrogates=5).tree, 0) == [(1, 4.0, 0)]


def test_rpart_wants_nominal_surrogates_that_err_twice() -> None:
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


def test_a_column_no_better_than_the_majority_is_no_surrogate() -> None:
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


@pytest.mark.parametrize("splitter", [pytest.param("exact", marks=pytest.mark.matrix), "histogram"])
def test_rows_go_in_growth_where_the_model_sends_them(splitter: str) -> None:
    dataset = make_dataset(mixed_table(400, 1), "y")
    settings = {"missing": "surrogate", "splitter": splitter, "max_bins": 9, "seed": 0}
    model = fit(dataset, settings).model
    tree = model.trees[0]
    assert len(tree.surrogate_feature) > 5
    ends = leaf_indices(model, matrix_of(dataset))[:, 0]
    assert np.bincount(ends, minlength=tree.n_nodes)[tree.leaves].tolist() == (
        tree.weight[tree.leaves].tolist()
    )


@pytest.mark.parametrize("splitter", [pytest.param("exact", marks=pytest.mark.matrix), "histogram"])
def test_held_out_rows_go_where_the_model_sends_them(splitter: str) -> None:
    dataset = make_dataset(mixed_table(400, 2), "y")
    settings = {"missing": "surrogate", "splitter": splitter, "max_bins": 9, "seed": 0}
    recipe = make_recipe(dataset, make_plan(dataset, settings))
    ids = np.arange(400, dtype=np.uint32)
    rows, held = recipe.target.rows(ids[:250], None), recipe.target.rows(ids[250:], None)
    grown = grow_tree(recipe, rows, held, np.random.default_rng(0))
    model = treekit.model.model.make_model(dataset.schema, [grown.tree], missing="surrogate")
    ends = leaf_indices(model, matrix_of(dataset)[grown.held_ids])[:, 0]
    assert ends.tolist() == grown.held_leaf.tolist()
    again = route(grown.tree, recipe.table, rows, 2, fractional=False)
    np.testing.assert_array_equal(again, grown.stats)


def matrix_of(dataset: Any) -> Any:
    """(rows, columns) as models take them: levels by number, NaN = missing."""
    columns = [
        np.where(column < 0, np.nan, column) if column.dtype.kind == "i" else column
        for column in dataset.columns
    ]
    return np.column_stack(columns).astype(dataset.schema.dtype)


def test_trees_without_the_policy_have_no_surrogates() -> None:
    model = treekit.train(mixed_table(200, 3), "y", seed=0)
    assert len(model.trees[0].surrogate_feature) == 0


@pytest.mark.matrix
def test_surrogates_predict_better_than_the_majority_way() -> None:
    """Three columns tell the same: what one lost, the others know."""
    table, fresh = mixed_table(250, 4), mixed_table(600, 5)
    right = {}
    for most in (0, 5):
        model = treekit.train(table, "y", missing="surrogate", surrogates=most, max_depth=1, seed=0)
        right[most] = np.mean(model.predict(fresh) == fresh["y"])
    assert right[5] > right[0] + 0.03


def test_recipes_say_how_many_surrogates() -> None:
    problem = reference.Problem([[0.0, 1.0]], [0, 1], [None], "gini", 2)
    assert recipe_of(problem).surrogates is None
