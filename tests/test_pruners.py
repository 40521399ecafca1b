"""Pruners against slow oracles that look at every pruned tree, in exact fractions."""

from __future__ import annotations

import csv
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treekit
from tests.growing import recipe_of
from tests.reference import prune as reference
from tests.reference.grow import Problem
from treekit import DataError, registry
from treekit.components.pruning import Context, Losses, collapse
from treekit.data.binning import make_table
from treekit.grow.recipe import GrownTree
from treekit.grow.tree_builder import grow_tree
from treekit.model.tree import Tree

TABLES = Path(__file__).parent.parent / "examples" / "tables" / "watermelon"
SEEDS = range(25)


def grown_with_holdout(problem: Problem, held: np.ndarray) -> GrownTree:
    """One tree of the rows that are not `held`, which travel along."""
    recipe = recipe_of(problem)
    ids = np.arange(len(problem.y), dtype=np.uint32)
    rows, held_rows = (recipe.target.rows(part, None) for part in (ids[~held], ids[held]))
    return grow_tree(recipe, rows, held_rows, np.random.default_rng(0))


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
    functions, _ = registry.make(registry.pruner(name), settings)
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
def test_cost_complexity_cuts_the_weakest_links_first(criterion, task):
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


def test_links_that_cost_nothing_are_cut_at_alpha_zero():
    for seed in SEEDS:
        grown = random_grown(seed, "gini")
        risk = exact_risks("classification", grown.stats, grown.stats)
        _, leaves = reference.weakest_links(grown.tree, risk)[0]
        context = context_of(grown, "classification")
        same_leaves(pruned("cost_complexity", grown, context, alpha=0.0), grown.tree, leaves)


@pytest.mark.parametrize(("criterion", "task"), TASKS)
def test_a_holdout_chooses_the_cheapest_tree_of_the_sequence(criterion, task):
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


def test_cross_validation_judges_each_alpha_by_trees_that_did_not_see_the_rows():
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


def test_a_collapsed_tree_answers_with_the_node_that_was_cut():
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


def test_reduced_error_of_table_4_2_is_the_book_s():
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
def test_a_pruner_without_its_holdout_says_what_to_raise(name):
    grown = random_grown(0, "gini")
    without = replace(grown, held_stats=np.zeros_like(grown.held_stats))
    empty = context_of(without, "classification")
    with pytest.raises(DataError, match="no hold-out rows: raise its setting holdout"):
        pruned(name, grown, empty, holdout=0.5)


@pytest.mark.parametrize("judged", [{"pruner.folds": 3}, {"pruner.holdout": 0.3}])
def test_a_count_that_a_tree_rules_out_costs_without_end(judged: Any) -> None:
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
    assert model.n_leaves == told["leaves"][int(risk.argmin())]


def test_the_folds_and_the_whole_tree_share_one_coded_table(monkeypatch):
    coded, grown_on = [], []

    def counted(*arguments: Any, **settings: Any) -> Any:
        coded.append(make_table(*arguments, **settings))
        return coded[-1]

    def watched(recipe: Any, *arguments: Any) -> GrownTree:
        grown_on.append(recipe.table)
        return grow_tree(recipe, *arguments)

    monkeypatch.setattr("treekit.training.prepare.make_table", counted)
    monkeypatch.setattr("treekit.training.run.grow_tree", watched)
    rng = np.random.default_rng(0)
    x = rng.random(60)
    table = {"x": x, "z": rng.random(60), "y": np.where(x + 0.4 * rng.random(60) > 0.7, "a", "b")}
    treekit.train(table, "y", pruner="cost_complexity", **{"pruner.folds": 3}, seed=0)
    assert len(coded) == 1
    assert [table is coded[0] for table in grown_on] == [True] * 3
