"""Grow one tree from plain lists with the real kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.reference import grow as reference
from treekit.compiling.criterion import (
    CompiledCriterion,
    TargetBlocks,
    compile_criterion,
    get_unconditional_pointer,
)
from treekit.compiling.functions import Origin
from treekit.compiling.splitter import compile_splitter
from treekit.components.criteria import make_entropy, make_gain_ratio, make_gini, make_squared_error
from treekit.components.splitters import AXIS_SPLITTER, BINNED_SPLITTER
from treekit.contracts import CriterionFunctions, SplitterFunctions
from treekit.data.binning import encode_columns
from treekit.grow.recipe import GrownTree, Recipe, SurrogateRule
from treekit.grow.route import prepare_routing
from treekit.grow.target_statistics import (
    ClassTarget,
    NumberTarget,
    RankTarget,
    TargetStatistics,
    choose_part_steps,
    copy_rows,
)
from treekit.grow.tree_builder import allocate_scratch, grow_tree
from treekit.kernels.cut_batches import CutScorer, allocate_batch
from treekit.kernels.grow_tree import NODE_DTYPE
from treekit.kernels.records import PLAIN_RULES, Limits, Rows, SplitRules, Table
from treekit.kernels.route_rows import route_rows
from treekit.model.tree import Split, Tree

BUILT_IN: dict[str, Callable[..., CriterionFunctions]] = {
    "gini": make_gini,
    "entropy": make_entropy,
    "gain_ratio": make_gain_ratio,
    "squared_error": make_squared_error,
}


def make_scorer(criterion: CompiledCriterion, cells: int) -> CutScorer:
    """Make the function of a criterion for batches of cuts, and memory for one."""
    batch = allocate_batch(cells, cells, 1)
    own = batch.sums, batch.scores, batch.cuts, batch.left
    return CutScorer(criterion.pointers.score_cuts, *own)


@cache
def built_in(
    name: str,
    cells: int,
    known_only: bool = False,
    blocks: TargetBlocks | None = None,
    nominal: bool = True,
    **settings: Any,
) -> CompiledCriterion:
    """Compile a built-in criterion, once for all tests."""
    dense = name == "squared_error" or blocks is not None
    functions = BUILT_IN[name](**settings)
    origin = Origin("criterion", name)
    return compile_criterion(
        functions, cells, dense, origin,
        known_only=known_only, blocks=blocks, nominal=nominal,
    )  # fmt: skip


def target_of(problem: reference.Problem) -> TargetStatistics:
    weights = None if problem.weights is None else np.array(problem.weights, float)
    n_classes = problem.several if problem.several and problem.several[0] else problem.n_classes
    if n_classes:
        codes = np.array(problem.y, np.int32)
        return ClassTarget.scale(len(codes), n_classes, weights).place(codes, weights)
    y = np.array(problem.y, float)
    if problem.quantile is not None:
        return RankTarget.make(y, weights, float(problem.quantile))
    return NumberTarget.scale(y, weights).place(y, weights)


def node_statistics(
    tree: Tree, table: Table, rows: Rows, size: int, *, fractional: bool
) -> npt.NDArray[np.float64]:
    """Sum the statistics of rows at every node by the kernel `route_rows`."""
    stats = np.zeros((tree.n_nodes, size))
    steps = choose_part_steps(rows.values)
    route_rows(
        prepare_routing(tree, table, rows, steps, fractional=fractional), copy_rows(rows),
        np.ones(tree.n_nodes), True, 0, tree.kind == Split.LEAF, stats,
        np.zeros(tree.n_nodes, NODE_DTYPE),
    )  # fmt: skip
    return stats


def recipe_of(
    problem: reference.Problem,
    criterion: CompiledCriterion | None = None,
    find: Callable[..., Any] | None = None,
    n_try: int | None = None,
    rules: SplitRules = PLAIN_RULES,
    fractional: bool = False,
    surrogates: int | SurrogateRule | None = None,
) -> Recipe:
    """Make the recipe of a problem for `grow_tree`."""
    columns = [
        np.array([np.nan if v is None else v for v in column], np.float32)
        if size is None
        else np.array([-1 if v is None else v for v in column], np.int32)
        for column, size in zip(problem.columns, problem.levels, strict=True)
    ]
    exact = problem.max_bins is None
    if find is None:
        find = AXIS_SPLITTER if exact else BINNED_SPLITTER
    table = encode_columns(
        columns,
        np.array([size or 0 for size in problem.levels], np.int64),
        np.array([size is not None for size in problem.levels]),
        "exact" if exact else "histogram",
        nominal_splits=problem.nominal_splits,
        max_bins=problem.max_bins or 255,
    )
    target = target_of(problem)
    limits = Limits(
        problem.max_depth,
        float(problem.min_weight_split),
        float(problem.min_weight_leaf),
        float(problem.min_gain),
        problem.max_leaves,
        len(columns) if n_try is None else n_try,
        problem.min_impurity if problem.n_classes else -1.0,
        -1.0 if problem.n_classes else problem.min_impurity,
    )
    if rules is PLAIN_RULES:
        rules = SplitRules(problem.known_only, exact_levels=problem.exact_levels)
    own = {"level_by": problem.level_by} if problem.criterion == "gain_ratio" else {}
    levels = any(size is not None for size in problem.levels)
    compiled = criterion or built_in(
        problem.criterion, target.size, rules.known_only, target.blocks, levels, **own
    )
    splitter = compile_splitter(
        SplitterFunctions(
            find, "exact" if exact else "histogram", sums=bool(getattr(find, "options", ()))
        ),
        table,
        target.select_rows(np.empty(0, np.uint32), None),
        allocate_scratch(table, target, 1, 1),
        Origin("splitter", getattr(find, "__name__", "axis")),
        target.quantile,
    )
    return Recipe(
        table,
        target,
        "float32",
        compiled,
        splitter,
        get_unconditional_pointer(),
        False,
        limits,
        rules,
        fractional,
        surrogates=SurrogateRule(surrogates) if isinstance(surrogates, int) else surrogates,
        monotonic_signs=None if problem.signs is None else np.array(problem.signs, float),
    )


def grow(problem: reference.Problem, seed: int = 0, **parts: Any) -> GrownTree:
    """Grow a tree on all rows."""
    recipe = recipe_of(problem, **parts)
    ids = np.arange(len(problem.y), dtype=np.uint32)
    rows, none = recipe.target.select_rows(ids, None), recipe.target.select_rows(ids[:0], None)
    return grow_tree(recipe, rows, none, seed)


KINDS = {Split.THRESHOLD: "threshold", Split.SUBSET: "subset", Split.MULTIWAY: "multiway"}


def same_tree(
    problem: reference.Problem,
    grown: GrownTree,
    expected: reference.Grown,
    *,
    parts: bool = False,
) -> None:
    """Assert that two trees are equal: structure, thresholds, missing branches, statistics.

    With `parts` (fractional instances), statistics are equal up to rounding.
    """
    tree = grown.tree
    waiting = [(0, expected)]
    seen = 0
    while waiting:
        node, want = waiting.pop()
        seen += 1
        _same_statistics(problem, grown, node, want, parts)
        if want.cut is None:
            assert tree.kind[node] == Split.LEAF, f"node {node} was split"
            continue
        cut = want.cut
        kind = KINDS.get(Split(tree.kind[node]), "missing")
        assert tree.kind[node] != Split.LEAF, f"node {node} was not split: {cut}"
        found = (kind, tree.feature[node], tree.n_children[node])
        assert found == (cut.kind, cut.feature, cut.branches), cut
        assert parts or tree.missing[node] == cut.missing  # fractional instances do not use it
        assert abs(tree.gain[node] - cut.gain) <= 1e-9 * max(1.0, abs(cut.gain))
        if cut.kind == "threshold":
            assert tree.threshold[node] == cut.threshold
        elif cut.kind != "missing":
            assert level_branches(tree, node) == cut.branch_of
        first = int(tree.first_child[node])
        waiting += [(first + b, child) for b, child in enumerate(want.children)]
    assert seen == tree.n_nodes


def level_branches(tree: Tree, node: int) -> dict[int, int]:
    """Return the branch of each category of a subset or multiway split."""
    owned = tree.level_branch[tree.level_offsets[node] : tree.level_offsets[node + 1]]
    return {level: int(branch) for level, branch in enumerate(owned) if branch >= 0}


def _same_statistics(
    problem: reference.Problem,
    grown: GrownTree,
    node: int,
    want: reference.Grown,
    parts: bool,
) -> None:
    if parts:
        expected = [float(s) for s in want.stats]
        if problem.n_classes:
            np.testing.assert_allclose(grown.stats[node], expected, rtol=1e-9, atol=1e-9)
        assert abs(grown.tree.weight[node] - reference.weight_of(problem, want.stats)) < 1e-9
        return
    assert grown.tree.weight[node] == float(reference.weight_of(problem, want.stats))
    value = grown.tree.value[node]
    if problem.several:
        parts_of = [
            reference.own_stats(problem, want.stats, k) for k in range(len(problem.several))
        ]
        sizes = zip(problem.several, parts_of, strict=True)
        says = [float(s) for size, own in sizes for s in (own if size else [own[1] / own[0]])]
        np.testing.assert_allclose(value, says, rtol=1e-12, atol=1e-12)
        return
    if problem.n_classes:
        assert value.tolist() == [float(s) for s in want.stats]
    else:
        says = want.stats[1] if problem.quantile is not None else want.stats[1] / want.stats[0]
        assert abs(value[0] - float(says)) <= 1e-12 * max(1.0, abs(float(says)))
