"""Trees grown by levels over partitions equal those of one process in every array."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treekit.data.dataset import make_dataset
from treekit.distributed.level_builder import LevelSizes, LocalEngine, Partition, grow_by_levels
from treekit.errors import PluginError
from treekit.grow.forest_builder import BootstrapSampler, draw_tree_seeds, make_sampler
from treekit.grow.recipe import Recipe
from treekit.grow.tree_builder import grow_tree
from treekit.model.tree import Tree
from treekit.training import prepare_fit
from treekit.training.prepare import make_recipe
from treekit.training.tasks import get_reading_options

pytestmark = pytest.mark.matrix


def make_table(rows: int, seed: int) -> dict[str, Any]:
    """Return a table with missing cells, categories, and nearly constant columns."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, rows))
    z[rng.random(rows) < 0.2] = np.nan
    colour = rng.choice(["red", "green", "blue", "grey"], rows)
    number = x + np.nan_to_num(z) + (colour == "red") + rng.normal(size=rows)
    rare = np.zeros(rows)
    rare[:2] = 1.0
    table = {
        "x": x.round(1), "z": z, "colour": colour, "rare": rare,
        "few": (rng.random(rows) < 0.05) * 1.0,
        "y": np.where(number > 1, "p", np.where(number > 0, "q", "r")), "number": number,
        "other": number + rng.normal(size=rows), "w": rng.integers(0, 4, rows),
        "part": rng.choice([0.0, 0.3, 1 / 7, 1.7], rows), "two": number > 0,
        "arm": rng.choice(["control", "new"], rows), "event": rng.random(rows) < 0.7,
        "time": rng.exponential(np.exp(-x)).round(2) + 0.01,
    }  # fmt: skip
    # Every task has what it needs: weights, both outcomes, both arms and an event.
    table["w"][:2], table["part"][:2], table["event"][:2] = 1, 0.3, True
    table["two"][:2], table["arm"][:2] = [False, True], ["control", "new"]
    return table


def make_problem(
    rows: int, seed: int, target: str | list[str], **given: Any
) -> tuple[Recipe, BootstrapSampler | None]:
    """Return the recipe of a forest, and the sampler of its rows."""
    table = make_table(rows, seed)
    weights = {False: None, True: "w", "part": "part"}[given.pop("weighted", False)]
    targets = {target} if isinstance(target, str) else set(target)
    ignore = (
        {"y", "number", "other", "w", "part", "two", "arm", "event", "time"} - targets - {weights}
    )
    if given.get("criterion") in ("uplift", "log_rank", "relative_risk"):
        pytest.importorskip("treekit_uplift")
        pytest.importorskip("treekit_survival")
    reading = get_reading_options(given)
    dataset = make_dataset(table, target, weights=weights, ignore=sorted(ignore), **reading)
    wanted = {"splitter": "histogram", "ensemble": "forest", "seed": seed, **given}
    dataset, plan, _ = prepare_fit(dataset, None, wanted)
    recipe = make_recipe(dataset, plan)
    if not plan.settings["bootstrap"]:
        return recipe, None
    ids = np.arange(rows, dtype=np.uint32)
    return recipe, make_sampler(ids, recipe.table, recipe.target, plan.settings["max_samples"])


def grow_alone(recipe: Recipe, sampler: BootstrapSampler | None, seed: int) -> Tree:
    """Grow a tree in one process."""
    target = recipe.target
    times = np.ones(len(target.values)) if sampler is None else np.zeros(len(target.values))
    if sampler is not None:
        times[sampler.ids] = sampler.draw_counts(seed)
    drawn = np.flatnonzero(times)
    rows, none = target.select_rows(drawn, times[drawn]), target.select_rows(drawn[:0], None)
    return grow_tree(recipe, rows, none, seed).tree


def split_rows(
    recipe: Recipe, sampler: BootstrapSampler | None, ends: list[int]
) -> tuple[Recipe, list[Partition]]:
    """Return a recipe without rows, and the rows in partitions that end before `ends`."""
    table, target, parts = recipe.table, recipe.target, []
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        if begin == end and not target.is_dense:
            continue  # training leaves out partitions without rows
        own = None
        if sampler is not None:
            here = (sampler.ids >= begin) & (sampler.ids < end)
            own = replace(
                sampler, ids=sampler.ids[here] - np.uint32(begin), hashes=sampler.hashes[here],
                first=sampler.first[here],
                copies=sampler.copies[here] if len(sampler.copies) else sampler.copies,
                parts=sampler.parts[here] if len(sampler.parts) else sampler.parts,
            )  # fmt: skip
        rows = replace(target, cells=target.cells[begin:end], values=target.values[begin:end])
        codes = np.ascontiguousarray(table.codes[:, begin:end])
        parts.append(Partition(table._replace(codes=codes), rows, own))
    total = float(target.values[:, 0].sum())
    none = replace(target, cells=target.cells[:1], values=target.values[:0], total_weight=total)
    table = table._replace(codes=table.codes[:, :0].copy())
    return replace(recipe, table=table, target=none), parts


def assert_same(
    problem: tuple[Recipe, BootstrapSampler | None], ends: list[int], sizes: LevelSizes
) -> None:
    """Assert that two trees are equal if they are grown by levels."""
    recipe, sampler = problem
    seeds = draw_tree_seeds(np.random.SeedSequence(3), 2)
    bare, parts = split_rows(recipe, sampler, ends)
    trees, _ = grow_by_levels(LocalEngine(), bare, lambda: bare, parts, seeds, sizes)
    for seed, tree in zip(seeds, trees, strict=True):
        expected = grow_alone(recipe, sampler, seed)
        for field in fields(Tree):
            ours, theirs = getattr(tree, field.name), getattr(expected, field.name)
            np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
            assert ours.dtype == theirs.dtype


UPLIFT = {"target": "two", "criterion": "uplift", "criterion.treatment": "arm"}
SURVIVAL = {"target": "time", "criterion": "log_rank", "criterion.event": "event"}
PROBLEMS: dict[str, dict[str, Any]] = {
    "gini": {"target": "y"},
    "all columns": {"target": "y", "criterion": "entropy", "max_features": "all"},
    "twoing": {"target": "y", "criterion": "twoing", "weighted": True},
    "misclassification": {"target": "y", "criterion": "misclassification", "max_depth": 5},
    "c45": {"target": "y", "algorithm": "c45", "missing": "direction", "pruner": "none"},
    "class weights": {"target": "y", "class_weight": "balanced", "bootstrap": False},
    "branches": {"target": "y", "nominal_splits": "multiway", "empty_branches": True},
    "one against the rest": {"target": "y", "nominal_splits": "one_vs_rest", "max_bins": 9},
    "pre-pruning": {"target": "y", "pruner": "chi_squared"},
    "impurity": {"target": "y", "min_impurity": 0.3, "min_weight_leaf": 3},
    "close values": {"target": "y", "resolution": 0.15},
    "numbers": {"target": "number"},
    "weighted numbers": {"target": "number", "criterion": "friedman", "weighted": True},
    "one column": {"target": "number", "max_features": 1, "max_samples": 0.4},
    "two numbers": {"target": ["number", "other"]},
    "uplift": {**UPLIFT, "weighted": True},
    "uplift by fractions": {**UPLIFT, "weighted": "part"},
    "survival": SURVIVAL,
    "survival of all rows": {**SURVIVAL, "weighted": "part", "bootstrap": False},
    "rates": {**SURVIVAL, "criterion": "relative_risk", "weighted": True},
    "rates by fractions": {**SURVIVAL, "criterion": "relative_risk", "weighted": "part"},
    "decrease": {"target": "y", "min_impurity_decrease": 0.004, "weighted": True},
    "monotonic": {"target": "number", "monotonic": "x=1,z=-1"},
    "monotonic classes": {"target": "two", "monotonic": "x=1", "max_features": "all"},
    "fractional weights": {"target": "y", "weighted": "part"},
    "fractional numbers": {"target": "number", "weighted": "part", "bootstrap": False},
    "drawn numbers": {"target": ["number", "other"], "weighted": "part"},
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(
    ("ends", "sizes"),
    [
        ([300], LevelSizes(0.0)),
        ([0, 1, 1, 140, 300], LevelSizes(20.0, blocks=3, small_blocks=4)),
        ([100, 300], LevelSizes(60.0, count_bytes=1, small_blocks=2)),
        ([50, 300], LevelSizes(1e9)),
    ],
)
def test_trees_by_levels_equal_those_of_one_process(
    problem: str, ends: list[int], sizes: LevelSizes
) -> None:
    assert_same(make_problem(300, 1, **PROBLEMS[problem]), ends, sizes)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(2, 120),
    seed=st.integers(0, 1000),
    target=st.sampled_from(["y", "number", "uplift", "log_rank", "relative_risk"]),
    weighted=st.sampled_from([False, True, "part"]),
    decrease=st.sampled_from([0.0, 0.01]),
    constrained=st.booleans(),
    bootstrap=st.booleans(),
    max_features=st.sampled_from(["sqrt", "all", 1]),
    parts=st.lists(st.floats(0, 1), max_size=6),
    small=st.sampled_from([0.0, 3.0, 30.0]),
    count_bytes=st.sampled_from([1, 20_000, 1 << 28]),
    blocks=st.integers(1, 4),
)
def test_trees_do_not_depend_on_the_partitioning(
    rows: int, seed: int, target: str, weighted: Any, decrease: float, constrained: bool,
    bootstrap: bool, max_features: Any, parts: list[float], small: float, count_bytes: int,
    blocks: int,
) -> None:  # fmt: skip
    tasks = {"uplift": UPLIFT, "log_rank": SURVIVAL, "relative_risk": SURVIVAL}
    given = tasks[target] | {"criterion": target} if target in tasks else {"target": target}
    problem = make_problem(
        rows, seed, **given, weighted=weighted, bootstrap=bootstrap,
        max_features=max_features, min_impurity_decrease=decrease,
        monotonic="x=1,z=-1" if target == "number" and constrained else None,
    )  # fmt: skip
    ends = [*sorted(int(part * rows) for part in parts), rows]
    assert_same(problem, ends, LevelSizes(small, count_bytes, blocks, blocks))


def test_empty_bootstrap_sample_is_drawn_again() -> None:
    recipe, sampler = make_problem(40, 0, "y", max_samples=0.01)
    assert sampler is not None
    bare, parts = split_rows(recipe, sampler, [10, 40])
    empty = [seed for seed in range(20) if not sampler.draw_once(seed)[1]]
    assert empty
    trees, drawn = grow_by_levels(LocalEngine(), bare, lambda: bare, parts, empty, LevelSizes(1e9))
    assert all(used > seed for used, seed in zip(drawn, empty, strict=True))
    assert [tree.n_nodes for tree in trees] == [
        grow_alone(recipe, sampler, seed).n_nodes for seed in empty
    ]


def test_failing_criterion_is_reported_with_its_name() -> None:
    import treekit
    from treekit import CriterionFunctions

    def make() -> CriterionFunctions:
        def impurity(stats: Any) -> float:
            return stats[0] * np.nan  # type: ignore[no-any-return]

        return CriterionFunctions(impurity=impurity)

    bad = treekit.Criterion(name="bad", make=make, summary="Always NaN.", task="classification")
    recipe, sampler = make_problem(60, 0, "y", criterion=bad)
    bare, parts = split_rows(recipe, sampler, [30, 60])
    with pytest.raises(PluginError, match=r"criterion 'bad'.* impurity"):
        grow_by_levels(LocalEngine(), bare, lambda: bare, parts, [1], LevelSizes(0.0))
