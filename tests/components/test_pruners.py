"""Pruners compared with slow oracles that try every pruned tree in exact fractions."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

import treekit
from tests.examples import examples
from tests.growing import recipe_of
from tests.reference import error_based as reference_error_based
from tests.reference import prune as reference
from tests.reference.grow import Problem
from treekit import DataError, SettingError, registry
from treekit.components.pruners import (
    count_class_bits,
    count_split_bits,
    make_chi_squared,
    make_error_based,
    make_holdout,
)
from treekit.components.pruning import Context, Losses, collapse, graft, kept_nodes
from treekit.data.binning import encode_columns
from treekit.data.dataset import make_dataset
from treekit.grow.recipe import GrownTree
from treekit.grow.tree_builder import grow_tree
from treekit.kernels.pruning import ErrorBound, estimate_pessimistic_errors
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Split, Tree

# ---------------------------------------------------------------- pruners

TABLES = Path(__file__).parents[2] / "examples" / "tables" / "watermelon"
SEEDS = range(25)


def grown_with_holdout(problem: Problem, held: np.ndarray) -> GrownTree:
    """One tree of the rows that are not `held`, which travel along."""
    recipe = recipe_of(problem)
    ids = np.arange(len(problem.y), dtype=np.uint32)
    rows, held_rows = (recipe.target.select_rows(part, None) for part in (ids[~held], ids[held]))
    return grow_tree(recipe, rows, held_rows, 0)


def random_grown(seed: int, criterion: str) -> GrownTree:
    """A tree of noise, some ten splits, with a hold-out as large as its training rows."""
    rng = np.random.default_rng(seed)
    n = 60
    columns = [rng.integers(0, 6, n).tolist() for _ in range(3)]
    classes = 3 if criterion != "squared_error" else 0
    y = (rng.integers(0, classes, n) if classes else rng.integers(-50, 50, n)).tolist()
    weights = rng.integers(1, 4, n).tolist()
    problem = Problem(
        columns, y, [None, 6, None], criterion, classes, weights,
        multiway=seed % 2 == 0, max_depth=3,
    )  # fmt: skip
    return grown_with_holdout(problem, rng.random(n) < 0.5)


def context_of(grown: GrownTree, task: str, folds: Any = None) -> Context:
    return Context(grown, None, Losses(task, dense=task == "regression"), folds)


def pruned(name: str, grown: GrownTree, context: Context, **settings: Any) -> Tree:
    functions, _ = registry.make(registry.get("pruner", name), settings)
    return functions.after(grown.tree, context)


def exact_risks(task: str, stats: np.ndarray, judged: np.ndarray) -> list[Fraction]:
    """Cost of each node as a leaf, from the definition."""
    costs = []
    for own, other in zip(stats.tolist(), judged.tolist(), strict=True):
        if task == "classification":
            costs.append(Fraction(sum(other)) - Fraction(other[own.index(max(own))]))
        else:
            mean = Fraction(own[1]) / Fraction(own[0])
            costs.append(mean * (mean * Fraction(other[0]) - 2 * Fraction(other[1])))
    return costs


def same_leaves(tree: Tree, full: Tree, leaves: Any) -> None:
    expected = sorted(leaves)
    assert tree.n_leaves == len(expected)
    np.testing.assert_array_equal(tree.value[tree.leaves], full.value[expected])
    np.testing.assert_array_equal(tree.weight[tree.leaves], full.weight[expected])


TASKS = [("gini", "classification"), ("squared_error", "regression")]


@pytest.mark.parametrize(("criterion", "task"), TASKS)
@pytest.mark.parametrize("ties", [False, True])
def test_reduced_error_finds_the_best_of_all_pruned_trees(criterion, task, ties):
    for seed in SEEDS:
        grown = random_grown(seed, criterion)
        risk = exact_risks(task, grown.stats, grown.held_stats)
        best = reference.best_prunings(grown.tree, risk)
        # Strict pruning keeps all that costs nothing, the other rule none of it.
        expected = min(best, key=len) if ties else max(best, key=len)
        tree = pruned("reduced_error", grown, context_of(grown, task), prune_ties=ties)
        same_leaves(tree, grown.tree, expected)


@pytest.mark.parametrize(("criterion", "task"), TASKS)
def test_cost_complexity_prunes_the_weakest_links_first(criterion, task):
    for seed in SEEDS:
        grown = random_grown(seed, criterion)
        risk = exact_risks(task, grown.stats, grown.stats)
        steps = reference.weakest_links(grown.tree, risk)
        weight = Fraction(grown.tree.weight[0])
        alphas = [step[0] / weight for step in steps]
        for (alpha, leaves), after in zip(steps, [*alphas[1:], alphas[-1] + 1], strict=True):
            # Halfway to the next alpha: the figures of a criterion are rounded.
            chosen = float((alpha / weight + after) / 2)
            tree = pruned("cost_complexity", grown, context_of(grown, task), alpha=chosen)
            same_leaves(tree, grown.tree, leaves)


def test_splits_that_reduce_no_risk_are_pruned_at_alpha_0():
    for seed in SEEDS:
        grown = random_grown(seed, "gini")
        risk = exact_risks("classification", grown.stats, grown.stats)
        _, leaves = reference.weakest_links(grown.tree, risk)[0]
        context = context_of(grown, "classification")
        same_leaves(pruned("cost_complexity", grown, context, alpha=0.0), grown.tree, leaves)


@pytest.mark.parametrize(("criterion", "task"), TASKS)
def test_holdout_chooses_the_tree_of_least_risk_of_the_sequence(criterion, task):
    for seed in SEEDS:
        grown = random_grown(seed, criterion)
        held = exact_risks(task, grown.stats, grown.held_stats)
        steps = reference.weakest_links(grown.tree, exact_risks(task, grown.stats, grown.stats))
        costs = [sum(held[leaf] for leaf in leaves) for _, leaves in steps]
        last = max(i for i, cost in enumerate(costs) if cost == min(costs))
        context = context_of(grown, task)
        tree = pruned("cost_complexity", grown, context, holdout=0.5)
        same_leaves(tree, grown.tree, steps[last][1])
        assert context.report["alpha"] == pytest.approx(
            float(steps[last][0] / Fraction(grown.tree.weight[0])), abs=1e-12
        )


def test_cross_validation_scores_each_alpha_on_held_out_folds():
    rng = np.random.default_rng(5)
    n = 90
    x = rng.integers(0, 40, n)
    y = np.where(rng.random(n) < 0.2, 1 - (x > 20), x > 20).astype(int)
    problem = Problem(
        [x.tolist(), rng.integers(0, 9, n).tolist()], y.tolist(), [None] * 2, "gini", 2
    )
    folds = [np.arange(n) % 3 == k for k in range(3)]
    asked: list[int] = []

    def grow_folds(k: int) -> list[GrownTree]:
        asked.append(k)
        return [grown_with_holdout(problem, fold) for fold in folds]

    grown = grown_with_holdout(problem, np.zeros(n, dtype=bool))
    context = context_of(grown, "classification", grow_folds)
    tree = pruned("cost_complexity", grown, context, folds=3)
    alphas, costs = slow_cross_validation(problem, grown, folds)
    last = max(i for i, cost in enumerate(costs) if cost == min(costs))
    assert asked == [3]
    assert context.report["alpha"] == pytest.approx(float(alphas[last]), abs=1e-12)
    assert 1 < tree.n_leaves < grown.tree.n_leaves


def slow_cross_validation(
    problem: Problem, grown: GrownTree, folds: list[np.ndarray]
) -> tuple[list[Fraction], list[Fraction]]:
    """Alphas of the full tree, and what their geometric midpoints cost over the folds."""
    risk = exact_risks("classification", grown.stats, grown.stats)
    alphas = [a / len(problem.y) for a, _ in reference.weakest_links(grown.tree, risk)]
    costs = [Fraction(0)] * len(alphas)
    for fold in folds:
        part = grown_with_holdout(problem, fold)
        steps = reference.weakest_links(
            part.tree, exact_risks("classification", part.stats, part.stats)
        )
        held = exact_risks("classification", part.stats, part.held_stats)
        weight = int(part.tree.weight[0])
        for i, alpha in enumerate(alphas):
            after = float(alphas[i + 1]) if i + 1 < len(alphas) else float("inf")
            between = (float(alpha) * after) ** 0.5 if alpha else 0.0
            taken = [leaves for a, leaves in steps if float(a / weight) <= between][-1]
            costs[i] += sum(held[leaf] for leaf in taken)
    return alphas, costs


def test_collapsing_keeps_values_and_branches_of_remaining_nodes():
    for seed in SEEDS:
        grown = random_grown(seed, "gini")
        full = grown.tree
        rng = np.random.default_rng(seed)
        cut = (rng.random(full.n_nodes) < 0.3) & (full.kind != 0)
        tree = collapse(full, cut)
        reached = reference.leaves_under(full, 0, frozenset(np.flatnonzero(cut).tolist()))
        same_leaves(tree, full, reached)
        # What is kept asks what it asked before.
        inner = sorted(reference.open_nodes(full, 0, frozenset(np.flatnonzero(cut).tolist())))
        at = np.flatnonzero(tree.kind != 0)
        for name in ("kind", "feature", "threshold", "missing", "n_children", "gain"):
            np.testing.assert_array_equal(getattr(tree, name)[at], getattr(full, name)[inner])
        for new, old in zip(at, inner, strict=True):
            np.testing.assert_array_equal(tree.branches(new), full.branches(old))


# ------------------------------------------------------------------ the book

NAMES = ["navel", "color", "root", "sound", "texture", "touch"]
"""The column order that breaks the ties of table 4.2 as the book does."""


def table_4_2() -> tuple[Problem, np.ndarray]:
    rows, held = [], []
    for part in ("train", "valid"):
        with (TABLES / f"watermelon_2.0_{part}_en.csv").open(encoding="utf-8") as file:
            rows += list(csv.DictReader(file))
        held += [part == "valid"] * (len(rows) - len(held))
    known = [sorted({row[name] for row in rows}) for name in NAMES]
    columns = [
        [levels.index(row[name]) for row in rows] for name, levels in zip(NAMES, known, strict=True)
    ]
    y = [int(row["good"] == "yes") for row in rows]
    levels: list[int | None] = [len(part) for part in known]
    return Problem(columns, y, levels, "entropy", 2, multiway=True), np.array(held)


def test_reduced_error_pruning_of_table_4_2_equals_the_book():
    # Zhou 2016, section 4.3: 3 of 7 validation melons before, 5 of 7 after.
    problem, held = table_4_2()
    grown = grown_with_holdout(problem, held)
    context = context_of(grown, "classification")
    assert NAMES[grown.tree.feature[0]] == "navel"
    assert context.held_risk[grown.tree.leaves].sum() == 4.0
    tree = pruned("reduced_error", grown, context)
    leaves = reference.best_prunings(
        grown.tree, exact_risks("classification", grown.stats, grown.held_stats)
    )
    same_leaves(tree, grown.tree, max(leaves, key=len))
    assert min(sum(context.held_risk[list(leaf)]) for leaf in leaves) == 2.0


@pytest.mark.parametrize("name", ["reduced_error", "cost_complexity"])
def test_pruner_without_held_out_rows_names_the_setting_to_raise(name):
    grown = random_grown(0, "gini")
    without = replace(grown, held_stats=np.zeros_like(grown.held_stats))
    empty = context_of(without, "classification")
    with pytest.raises(DataError, match="no hold-out rows: increase its setting holdout"):
        pruned(name, grown, empty, holdout=0.5)


@pytest.mark.parametrize("judged", [{"pruner.folds": 3}, {"pruner.holdout": 0.3}])
def test_poisson_risk_of_an_impossible_count_is_infinite(judged: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    y = rng.poisson(np.exp(1.5 * x - 1)).astype(float)
    model = treekit.train(
        {"x": x, "y": y}, "y", task="regression", criterion="poisson", seed=0, min_gain=-1.0,
        pruner="cost_complexity", **judged,
    )  # fmt: skip
    told = model.provenance["pruner"]["sequence"]
    risk = np.array(told["cv_risk" if "pruner.folds" in judged else "held_risk"])
    assert np.isinf(risk[0])
    assert np.isfinite(risk[-3:]).all()
    smallest = int(np.flatnonzero(risk == risk.min())[-1])
    assert model.n_leaves == told["leaves"][smallest]


def test_folds_and_full_tree_share_one_coded_table(monkeypatch):
    coded, grown_on = [], []

    def counted(*arguments: Any, **settings: Any) -> Any:
        coded.append(encode_columns(*arguments, **settings))
        return coded[-1]

    def watched(recipe: Any, *arguments: Any) -> GrownTree:
        grown_on.append(recipe.table)
        return grow_tree(recipe, *arguments)

    monkeypatch.setattr("treekit.training.prepare.encode_columns", counted)
    monkeypatch.setattr("treekit.training.run.grow_tree", watched)
    rng = np.random.default_rng(0)
    x = rng.random(60)
    table = {"x": x, "z": rng.random(60), "y": np.where(x + 0.4 * rng.random(60) > 0.7, "a", "b")}
    treekit.train(table, "y", pruner="cost_complexity", **{"pruner.folds": 3}, seed=0)
    assert len(coded) == 1
    assert [table is coded[0] for table in grown_on] == [True] * 3


# ---------------------------------------------------------------- error based
# Error-based pruning against a slow oracle, Quinlan's figures, and its own laws.

NO_COSTS = 1.0 - np.eye(2)
Z_25 = 0.6744897501960817


def limit(n: float, e: float, *, release8: bool = False) -> float:
    return float(estimate_pessimistic_errors(n, e, ErrorBound(0.25, Z_25, release8, NO_COSTS)))


@pytest.mark.parametrize(
    ("n", "e", "rate"),
    # Quinlan 1993, page 41: exact binomial limits at 25%; without errors the rule is exact.
    [(6, 0, 0.206), (9, 0, 0.143), (1, 0, 0.750)],
)
def test_error_limits_equal_the_table_of_the_c45_book(n: int, e: int, rate: float) -> None:
    assert round(limit(n, e) / n, 3) == rate
    assert round(limit(n, e, release8=True) / n, 3) == rate


def test_error_estimates_of_the_votes_subtree_equal_the_book() -> None:
    # Page 42: 3.273 errors of the subtree against 2.512 of a leaf (16, 1), of which
    # the normal approximation makes 2.476.
    subtree = limit(6, 0) + limit(9, 0) + limit(1, 0)
    assert round(subtree, 2) == 3.27
    assert round(limit(16, 1), 3) == 2.476


@given(st.floats(1.0, 500.0), st.floats(0.0, 1.0), st.floats(0.01, 0.99))
def test_pessimistic_error_limits_equal_the_reference(
    n: float, share: float, confidence: float
) -> None:
    e = n * share / 2
    z = NormalDist().inv_cdf(1.0 - confidence)
    found = float(estimate_pessimistic_errors(n, e, ErrorBound(confidence, z, False, NO_COSTS)))
    assert found == pytest.approx(
        e + reference_error_based.added_errors(n, e, confidence), rel=1e-12
    )


@pytest.mark.parametrize("release8", [False, True])
@pytest.mark.parametrize(("n", "e"), [(6.0, 0.0), (9.0, 0.4), (10.0, 1.0), (16.0, 3.5)])
def test_error_limits_decrease_continuously_with_confidence(
    n: float, e: float, release8: bool
) -> None:
    """Weka's and Quinlan's errors have no step at a half, where treekit once added none."""
    from treekit.components.pruners import compute_normal_quantile

    factors = [0.1, 0.25, 0.4, 0.4999, 0.5, 0.5001, 0.6, 0.69, 0.9]
    limits = [
        float(
            estimate_pessimistic_errors(
                n, e, ErrorBound(f, compute_normal_quantile(f, release8), release8, NO_COSTS)
            )
        )
        for f in factors
    ]
    assert limits == sorted(limits, reverse=True)
    assert limits[3] - limits[5] < 1e-3 * n
    assert limits[4] > e


@pytest.mark.parametrize("confidence", [0.1, 0.25, 0.4, 0.5, 0.6, 0.69])
def test_error_limits_without_errors_are_exact_binomial_limits(confidence: float) -> None:
    from scipy.stats import beta

    for n in (1, 6, 9, 100):
        z = NormalDist().inv_cdf(1.0 - confidence)
        found = float(
            estimate_pessimistic_errors(float(n), 0.0, ErrorBound(confidence, z, False, NO_COSTS))
        )
        assert found == pytest.approx(n * beta.ppf(1.0 - confidence, 1, n), abs=1e-4)


def test_release_8_error_limits_use_the_tabulated_quantile() -> None:
    # Between 0.84 at 20% and 0.25 at 40%: 0.6925 at 25%, squared in the limit.
    e, n, z2 = 3.0, 20.0, 0.6925**2
    inner = z2 * ((e + 0.5) * (1 - (e + 0.5) / n) + z2 / 4)
    expected = n * (e + 0.5 + z2 / 2 + inner**0.5) / (n + z2)
    found = float(estimate_pessimistic_errors(n, e, ErrorBound(0.25, 0.6925, True, NO_COSTS)))
    assert found == pytest.approx(expected, rel=1e-12)
    assert limit(4.0, 4.0, release8=True) == 4.0
    assert limit(4.0, 3.6, release8=True) == pytest.approx(3.6 + 0.67 * 0.4)


def noisy(seed: int, n: int = 120) -> dict[str, list[Any]]:
    """Two classes, five columns, missing cells, labels of which many are noise."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 9, n).astype(float), rng.normal(size=n).round(1)
    c, d = rng.integers(0, 3, n), rng.integers(0, 4, n)
    y = (a > 4) ^ (c == 1) ^ (rng.random(n) < 0.25)
    gone = rng.random((4, n)) < 0.08
    cells = [a.tolist(), b.tolist(), ["uvw"[i] for i in c], ["klmn"[i] for i in d]]
    for column, lost in zip(cells, gone, strict=True):
        for i in np.flatnonzero(lost):
            column[i] = None
    return dict(zip("abcd", cells, strict=True)) | {"y": np.where(y, "yes", "no").tolist()}


def oracle_table(model: treekit.Model, table: dict[str, list[Any]]) -> reference_error_based.Table:
    x = np.array(
        [
            [
                np.nan if v is None else column.levels.index(v) if column.levels else v
                for column, v in zip(model.schema.columns, row, strict=True)
            ]
            for row in zip(*(table[name] for name in model.schema.names), strict=True)
        ],
        model.schema.dtype,  # as the model rounds them: 0.1 is not above the float32 0.1
    ).astype(float)
    y = [model.schema.classes.index(label) for label in table["y"]]
    return reference_error_based.Table(model.trees[0], x, y, 2, model.missing == "fractional")


def has_raised(tree: Tree, node: reference_error_based.Node) -> bool:
    """Whether some node asks what a node deeper down asked."""
    first = int(tree.first_child[node.asks])
    return any(
        child.asks != first + b or has_raised(tree, child) for b, child in enumerate(node.children)
    )


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("raising", "collapsing", "missing"),
    [
        (True, True, "fractional"),
        (False, True, "direction"),
        (True, False, "direction"),
        (False, False, "fractional"),
        pytest.param(True, True, "direction", marks=pytest.mark.matrix),
        pytest.param(False, True, "fractional", marks=pytest.mark.matrix),
        pytest.param(True, False, "fractional", marks=pytest.mark.matrix),
        pytest.param(False, False, "direction", marks=pytest.mark.matrix),
    ],
)
def test_pruned_trees_equal_the_oracle(missing: str, raising: bool, collapsing: bool) -> None:
    raised = 0
    for seed in range(12):
        table = noisy(seed)
        common: dict[str, Any] = {
            "target": "y", "criterion": "entropy", "missing": missing, "seed": 0,
            "nominal_splits": "multiway" if seed % 2 else "subset", "min_weight_leaf": 2.0,
        }  # fmt: skip
        full = treekit.train(table, **common)
        own = oracle_table(full, table)
        rows = [(i, 1.0) for i in range(len(table["y"]))]
        expected = reference_error_based.prune(
            own, reference_error_based.nested(own, 0, rows), 0.25, raising, collapsing
        )  # fmt: skip
        pruned = treekit.train(
            table, pruner="error_based", **common,
            **{"pruner.raising": raising, "pruner.collapsing": collapsing},
        )  # fmt: skip
        tree = pruned.trees[0]
        assert reference_error_based.shape(tree) == reference_error_based.shape_of(own, expected)
        np.testing.assert_allclose(tree.value.sum(axis=1), tree.weight, atol=1e-9)
        raised += has_raised(own.tree, expected)
    assert (raised > 0) == raising


@pytest.mark.matrix
@pytest.mark.parametrize("ways", [{"missing": "surrogate"}, {"splitter": "oblique"}])
def test_leaf_counts_after_subtree_raising_equal_the_rows_of_the_model(
    ways: dict[str, Any],
) -> None:
    tests = 0
    for seed in (0, 5, 8):
        table = noisy(seed, 300)
        model = treekit.train(
            table, "y", criterion="entropy", pruner="error_based", min_weight_leaf=2.0, seed=0,
            **ways,
        )  # fmt: skip
        tree = model.trees[0]
        tests += len(tree.surrogate_feature) + len(tree.term_feature)
        leaf = leaf_indices(model, make_dataset(table, "y").to_matrix())[:, 0].astype(int)
        reached = np.zeros_like(tree.value)
        label = [model.schema.classes.index(y) for y in table["y"]]
        np.add.at(reached, (leaf, label), 1.0)
        np.testing.assert_array_equal(reached[tree.leaves], tree.value[tree.leaves])
    assert tests > 0


def is_pruned(tree: Tree, full: Tree, node: int = 0, other: int = 0) -> bool:
    """Whether `tree` is `full` with some nodes made leaves."""
    if tree.n_children[node] == 0:
        return bool(np.array_equal(tree.value[node], full.value[other]))
    names = ("kind", "feature", "threshold", "n_children", "missing")
    if any(getattr(tree, n)[node] != getattr(full, n)[other] for n in names if n != "threshold"):
        return False
    first, second = int(tree.first_child[node]), int(full.first_child[other])
    return all(
        is_pruned(tree, full, first + b, second + b) for b in range(int(tree.n_children[node]))
    )


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["error_based", "mdl"]))
def test_pruning_without_subtree_raising_only_collapses_nodes(seed, name) -> None:
    table = noisy(seed, 60)
    full = treekit.train(table, target="y", seed=0).trees[0]
    own = {"pruner.raising": False} if name == "error_based" else {}
    pruned = treekit.train(table, target="y", seed=0, pruner=name, **own).trees[0]
    assert is_pruned(pruned, full)


def test_error_based_pruning_leaves_fewer_leaves_at_lower_confidence() -> None:
    table = noisy(3, 300)
    leaves = [
        treekit.train(
            table, target="y", seed=0, pruner="error_based",
            **{"pruner.confidence": confidence, "pruner.raising": False},
        ).n_leaves
        for confidence in (0.001, 0.05, 0.25, 0.45, 0.5, 0.69, None)
    ]  # fmt: skip
    assert leaves == sorted(leaves)
    assert leaves[0] < leaves[-1]
    assert leaves[-1] <= treekit.train(table, target="y", seed=0).n_leaves


def test_misclassification_costs_keep_a_branch_pruned_without_costs() -> None:
    # 60 of 1000 rows are of the dear class, 30 of them behind x > 0.
    x = [0.0] * 940 + [1.0] * 60
    y = ["no"] * 910 + ["yes"] * 30 + ["no"] * 31 + ["yes"] * 29
    plain = {"target": "y", "pruner": "error_based", "seed": 0}
    assert treekit.train({"x": x, "y": y}, **plain).n_leaves == 1
    assert treekit.train({"x": x, "y": y}, **plain, costs="yes>no=5").n_leaves == 2


def test_classification_pruners_refuse_regression_targets() -> None:
    table = {"x": [1.0, 2.0, 3.0, 4.0], "y": [0.5, 1.5, 2.5, 9.5]}
    for name in ("error_based", "mdl", "holdout", "chi_squared"):
        with pytest.raises(SettingError, match=f"pruner '{name}' is for one target of classif"):
            treekit.train(table, target="y", pruner=name)


def test_moved_subtree_keeps_its_splits_and_values() -> None:
    table = noisy(5)
    tree = treekit.train(table, target="y", seed=0, nominal_splits="multiway").trees[0]
    inner = np.flatnonzero(tree.kind != Split.LEAF)
    child = next(i for i in inner if tree.parent[i] == 0)
    source = np.arange(tree.n_nodes)
    source[0] = child
    kept = kept_nodes(tree, source)
    grafted = graft(tree, source)
    assert grafted.n_nodes == len(kept) == subtree_size(tree, child)
    assert grafted.feature[0] == tree.feature[child]
    np.testing.assert_array_equal(grafted.value[0], tree.value[child])
    same = collapse(tree, np.zeros(tree.n_nodes, bool))
    np.testing.assert_array_equal(same.first_child, tree.first_child)


def subtree_size(tree: Tree, node: int) -> int:
    first, count = int(tree.first_child[node]), int(tree.n_children[node])
    return 1 + sum(subtree_size(tree, child) for child in range(first, first + count))


def test_error_based_pruner_refuses_a_validation_table() -> None:
    assert make_error_based(0.25, True, True, "j48").holdout is None
    with pytest.raises(SettingError, match="does not use held-out rows"):
        treekit.train(noisy(0), target="y", pruner="error_based", validation=noisy(1))
    assert json.loads(json.dumps(treekit.train(
        noisy(0), target="y", pruner="error_based", seed=0
    ).settings))["pruner.confidence"] == 0.25  # fmt: skip


# ---------------------------------------------------------------- prepruning
# Splits that must prove themselves before they are made, and codes that must be shorter.

MELONS = Path(__file__).parents[2] / "examples" / "tables" / "watermelon"
ORDER = ["navel", "color", "root", "sound", "texture", "touch"]
"""The column order that breaks the ties of table 4.2 as the book does."""


def melons(part: str) -> dict[str, list[str]]:
    import csv

    with (MELONS / f"watermelon_2.0_{part}_en.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in [*ORDER, "good"]}


@pytest.mark.parametrize(
    ("pruner", "right"),
    # Zhou 2016, section 4.3 and table 4.2, and figures 4.5 to 4.7.
    [(None, 3), ("holdout", 5), ("reduced_error", 5)],
)
def test_hold_out_accuracies_of_table_4_2_equal_the_book(pruner, right):
    train, valid = melons("train"), melons("valid")
    levels = {name: sorted(set(melons("train")[name] + valid[name])) for name in ORDER}
    held = {"pruner": pruner, "validation": valid} if pruner else {}
    model = treekit.train(
        train, "good", levels=levels, criterion="entropy", nominal_splits="multiway",
        empty_branches=True, seed=0, **held,
    )  # fmt: skip
    assert ORDER[model.trees[0].feature[0]] == "navel"
    assert (model.predict(valid) == np.array(valid["good"])).sum() == right
    assert model.depth == 1 if pruner == "holdout" else model.depth > 1


def yes(before: Any, children: Any, held: Any) -> bool:
    children, held = np.array(children, float), np.array(held, float)
    return bool(before(children.sum(axis=0), children, held.sum(axis=0), held))


def test_holdout_pruner_splits_only_if_held_out_accuracy_increases():
    before = make_holdout(0.25).before
    sides = [[6, 1], [2, 5]]  # the node says class 0, its branches 0 and 1
    assert yes(before, sides, [[3, 0], [1, 2]])
    assert not yes(before, sides, [[3, 0], [2, 2]])  # as many as before
    assert not yes(before, sides, [[3, 0], [2, 1]])
    assert not yes(before, sides, [[0, 0], [0, 0]])
    # A branch without training rows says what the node says.
    assert not yes(before, [*sides, [0, 0]], [[3, 0], [1, 1], [0, 2]])
    assert not yes(before, [[9, 1], [0, 0]], [[3, 0], [0, 2]])


PREPRUNING_TABLES = st.tuples(st.integers(2, 5), st.integers(2, 4)).flatmap(
    lambda shape: st.lists(
        st.lists(st.integers(0, 40), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0], max_size=shape[0],
    )
)  # fmt: skip


@settings(deadline=None)
@given(PREPRUNING_TABLES, st.floats(0.001, 0.999))
def test_chi_squared_pruner_allows_the_splits_that_scipy_allows(children, alpha):
    children = np.array(children, float)
    held = children[children.sum(axis=1) > 0][:, children.sum(axis=0) > 0]
    few = held.shape[0] < 2 or held.shape[1] < 2
    p = 1.0 if few else float(chi2_contingency(held, correction=False).pvalue)
    if abs(p - alpha) > 1e-12:
        assert yes(make_chi_squared(alpha).before, children, np.zeros_like(children)) == (
            p <= alpha
        )


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("branches", [2, 40, 600])
def test_p_values_equal_scipy_in_the_tails_and_with_many_branches(scale, branches):
    rng = np.random.default_rng(branches)
    children = rng.integers(1, 9, (branches, 3)) * scale
    p = float(chi2_contingency(children, correction=False).pvalue)
    for alpha in (p * (1 - 1e-6), min(p * (1 + 1e-6) + 1e-300, 1.0)):
        assert yes(make_chi_squared(alpha).before, children, 0 * children) == (p <= alpha)


def table(n: int = 250) -> dict[str, list[Any]]:
    rng = np.random.default_rng(1)
    x, z = rng.random((2, n)).round(3)
    y = (x > 0.5) ^ (rng.random(n) < 0.2)
    c = rng.integers(0, 5, n)
    return {"x": x.tolist(), "z": z.tolist(), "c": ["pqrst"[i] for i in c],
            "y": np.where(y, "yes", "no").tolist()}  # fmt: skip


@pytest.mark.parametrize(
    "pruner", ["holdout", pytest.param("chi_squared", marks=pytest.mark.matrix), "mdl"]
)
def test_pruners_remove_noise_splits_and_keep_the_signal(pruner):
    model = treekit.train(table(), "y", pruner=pruner, seed=0)
    assert 2 <= model.n_leaves <= 15
    assert model.n_leaves < treekit.train(table(), "y", seed=0).n_leaves / 5
    assert model.schema.names[model.trees[0].feature[0]] == "x"
    assert model.trees[0].threshold[0] == pytest.approx(0.5, abs=0.02)


def slow_class_bits(stats: list[float]) -> float:
    """Mehta, Rissanen and Agrawal 1995, equation 3, and the bit of the leaf."""
    n, k = sum(stats), len(stats)
    if n == 0:
        return 1.0
    data = sum(c * math.log2(n / c) for c in stats if c)
    model = (k - 1) / 2 * math.log2(n / 2) + math.log2(math.pi ** (k / 2) / math.gamma(k / 2))
    return 1.0 + data + max(model, 0.0)


@given(st.lists(st.integers(0, 100), min_size=2, max_size=8))
def test_mdl_bits_of_a_leaf_are_its_stochastic_complexity(stats):
    found = count_class_bits(np.array([stats], float))[0]
    assert found == pytest.approx(slow_class_bits(stats), rel=1e-12)


def test_mdl_bits_of_a_split_count_columns_and_cut_points():
    rows = {"x": [1.0, 2.0, 3.0, 4.0, 5.0] * 6, "c": list("klm") * 10, "y": [0, 0, 1, 1, 1] * 6}
    tree = treekit.train(rows, "y", seed=0).trees[0]
    context: Any = SimpleNamespace(table=SimpleNamespace(n_codes=np.array([5, 3])))
    assert tree.feature[0] == 0
    assert count_split_bits(tree, context)[0] == 1 + math.log2(2) + math.log2(5 - 1)
    assert count_split_bits(tree, context)[1] == 1


@pytest.mark.parametrize("nominal_splits", ["subset", "multiway"])
def test_mdl_pruner_chooses_the_pruned_tree_of_least_description_length(nominal_splits):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        n = 150
        x, c = rng.integers(0, 12, n), rng.integers(0, 4, n)
        y = (x > 5) ^ (c == 1) ^ (rng.random(n) < 0.15)
        rows = {"x": x.astype(float).tolist(), "c": ["klmn"[i] for i in c], "y": y.tolist()}
        settings: dict[str, Any] = {"nominal_splits": nominal_splits, "max_depth": 3, "seed": 0}
        full = treekit.train(rows, "y", **settings).trees[0]
        values = [len(set(rows["x"])), 4]

        def bits(leaves: Any, full: Any = full, values: Any = values) -> float:
            total = sum(slow_class_bits(full.value[leaf].tolist()) for leaf in leaves)
            for node in reference.open_nodes(full, 0, frozenset(leaves)):
                f = int(full.feature[node])
                place = {1: math.log2(values[f] - 1), 2: math.log2(2.0 ** values[f] - 2)}
                total += 1 + math.log2(2) + place.get(int(full.kind[node]), 0.0)
            return total

        best = min(map(bits, reference.prunings(full)))
        pruned = treekit.train(rows, "y", pruner="mdl", **settings).trees[0]
        kept = [leaves for leaves in reference.prunings(full) if bits(leaves) < best + 1e-9]
        assert pruned.n_leaves == min(map(len, kept))


@pytest.mark.parametrize("pruner", ["mdl", "holdout"])
def test_pruners_without_cost_support_refuse_costs(pruner):
    with pytest.raises(treekit.SettingError, match=f"pruner '{pruner}' does not support misc"):
        treekit.train(table(60), "y", pruner=pruner, costs="yes>no=3")


def test_classification_pruner_is_refused_for_a_regression_target():
    numbers = make_dataset({"x": [1.0, 2.0], "y": [0.5, 2.5]}, "y")
    with pytest.raises(treekit.SettingError, match="'y' is a regression target"):
        treekit.training.fit(numbers, {"pruner": "holdout"})
