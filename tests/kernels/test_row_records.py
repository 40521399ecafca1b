"""Trees from row records equal trees from row numbers."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numba as nb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.growing import recipe_of
from tests.reference.grow import Problem
from treekit.compiling.criterion import compile_criterion
from treekit.compiling.functions import Origin
from treekit.contracts import CriterionExtras, CriterionFunctions
from treekit.data import out_of_core
from treekit.grow.recipe import GrownTree, Recipe
from treekit.grow.route import find_leaves
from treekit.grow.target_statistics import copy_rows
from treekit.grow.tree_builder import grow_tree
from treekit.kernels.partition_rows import Route
from treekit.kernels.records import Column, Rows
from treekit.kernels.row_records import (
    FORM,
    LONG,
    N_WORDS,
    PLAIN,
    SHORT,
    gather_records,
    make_record_table,
    partition_records,
    sum_records,
    unpack_records,
)

ROWS = 900


# ---------------------------------------------------------------- trees


def problem(
    seed: int = 0, *, classes: int = 0, missing: float = 0.0, levels: bool = False,
    weights: str = "", columns: int = 4, **more: Any,
) -> Problem:  # fmt: skip
    """A table of numbers in up to 40 bins."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, columns)).round(1)
    number = x @ rng.normal(size=columns) + rng.normal(size=ROWS)
    x[rng.random(x.shape) < missing] = np.nan
    given: list[list[Any]] = [
        [None if np.isnan(v) else v for v in column] for column in x.T.tolist()
    ]
    sizes: list[int | None] = [None] * columns
    if levels:
        given.append(rng.integers(0, 7, ROWS).tolist())
        sizes.append(7)
    y: Any = number.round(2)
    if classes:
        y = np.clip((number * classes / 6 + classes / 2).astype(int), 0, classes - 1)
        more |= {"n_classes": classes}
    own = {
        "": None,
        "whole": rng.integers(1, 9, ROWS).tolist(),
        "large": rng.integers(100, 70_000, ROWS).tolist(),
        "quarters": (rng.integers(1, 9, ROWS) / 4).tolist(),
    }[weights]
    if own is not None:
        own = [Fraction(weight) for weight in own]
    more = {"criterion": "gini" if classes else "squared_error", "max_bins": 40} | more
    return Problem(given, y.tolist(), sizes, weights=own, **more)


def grown_by(recipe: Recipe, *, held_out: bool = False, seed: int = 1) -> GrownTree:
    ids = np.arange(ROWS, dtype=np.uint32)
    is_held = (ids % 5 == 0) & held_out
    rows = recipe.target.select_rows(ids[~is_held], None)
    held = recipe.target.select_rows(ids[is_held], None)
    return grow_tree(recipe, rows, held, seed)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "two classes": ({"classes": 2}, {}, PLAIN),
    "three classes": ({"classes": 3}, {}, PLAIN),
    "nine classes": ({"classes": 9}, {}, PLAIN),
    "many classes": ({"classes": 40}, {}, SHORT),
    "missing values": ({"classes": 2, "missing": 0.2}, {}, PLAIN),
    "five classes and missing values": ({"classes": 5, "missing": 0.1}, {}, PLAIN),
    "hardly a value known": ({"classes": 2, "missing": 0.97}, {}, PLAIN),
    "whole weights": ({"classes": 3, "weights": "whole"}, {}, PLAIN),
    "large weights": ({"classes": 3, "weights": "large"}, {}, LONG),
    "weights of quarters": ({"classes": 3, "weights": "quarters"}, {}, LONG),
    "quarters and missing values": (
        {"classes": 2, "weights": "quarters", "missing": 0.1}, {}, LONG,
    ),
    "categories": ({"classes": 2, "levels": True, "missing": 0.1}, {}, SHORT),
    "a branch a category": (
        {"classes": 3, "levels": True, "multiway": True}, {}, SHORT,
    ),
    "drawn columns": ({"classes": 2, "missing": 0.1}, {"n_try": 2}, PLAIN),
    "heavy leaves": ({"classes": 4, "missing": 0.1, "min_weight_leaf": 11}, {}, PLAIN),
    "heavy leaves, quarters": (
        {"classes": 2, "missing": 0.1, "min_weight_leaf": 5, "weights": "quarters"}, {}, LONG,
    ),
    "best first": ({"classes": 3, "max_leaves": 30}, {}, PLAIN),
    "numbers": ({}, {}, LONG),
    "numbers and missing values": ({"missing": 0.2, "min_weight_leaf": 3}, {}, LONG),
    "numbers and weights": ({"weights": "quarters"}, {}, LONG),
    "numbers and categories": ({"levels": True}, {}, LONG),
    "rising": ({"signs": [1, 0, -1, 0]}, {}, LONG),
    "entropy": ({"classes": 3, "criterion": "entropy", "missing": 0.1}, {}, PLAIN),
    "gain ratio": ({"classes": 2, "criterion": "gain_ratio"}, {}, SHORT),
    "long records": ({"classes": 2, "columns": 70}, {"n_try": 9}, PLAIN),
    "long records of numbers": ({"columns": 70}, {"n_try": 9}, LONG),
}  # fmt: skip


@pytest.mark.kernels
@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_trees_from_records_equal_trees_from_row_numbers(case: str, held_out: bool) -> None:
    given, parts, form = CASES[case]
    recipe = recipe_of(problem(**given), **parts)
    assert recipe.records is not None
    rows = recipe.target.select_rows(np.arange(ROWS, dtype=np.uint32), None)
    assert gather_records(recipe.records, rows).layout[FORM] == form
    other = replace(recipe)
    vars(other)["records"] = None
    ours, theirs = grown_by(recipe, held_out=held_out), grown_by(other, held_out=held_out)
    assert ours.tree.n_leaves > 5
    for field in fields(ours.tree):
        one, two = getattr(ours.tree, field.name), getattr(theirs.tree, field.name)
        assert np.array_equal(one, two, equal_nan=one.dtype.kind == "f"), field.name
    assert np.array_equal(ours.held_leaf, theirs.held_leaf)
    assert np.array_equal(ours.held_stats, theirs.held_stats)
    for records in (recipe.records, None):
        leaves = find_leaves(ours.tree, recipe.table, ours.held_ids, records)
        assert np.array_equal(leaves, ours.held_leaf)


def test_records_are_not_used_if_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of(problem(classes=2))
    most = 32 * ROWS * (1 + 2 * (os.cpu_count() or 1))  # the table, and two for each tree
    monkeypatch.setattr(out_of_core, "_get_free_memory", lambda: most * 10.0 + 1.0)
    monkeypatch.setattr(out_of_core, "_SMALL_BYTES", 0)
    assert recipe.records is not None
    monkeypatch.setattr(out_of_core, "_get_free_memory", lambda: most * 10.0 - 100.0)
    assert replace(recipe).records is None


def gini(stats: Any) -> float:
    weight = stats.sum()
    return float(1.0 - (stats * stats).sum() / (weight * weight))


@pytest.mark.kernels
@pytest.mark.parametrize("max_bins", [None, 40])
@pytest.mark.parametrize("missing", [0, 3])
def test_tolerance_applies_only_to_cuts_of_the_same_column(
    max_bins: int | None, missing: int
) -> None:
    """A column that scores less than the tolerance below the best one is not taken for it."""
    functions = CriterionFunctions(impurity=gini, extras=CriterionExtras(tolerance=0.2))
    criterion = compile_criterion(functions, 2, False, Origin("criterion", "own"), nominal=False)
    y = [0] * 20 + [1] * 20
    best: list[Any] = list(range(40))
    other: list[Any] = best[2:] + best[:2]  # two rows of class 0 among those of class 1
    for column in (best, other):
        column[: missing // 2] = [None] * (missing // 2)
    columns, levels = [other, best], [None, None]
    recipe = recipe_of(
        Problem(columns, y, levels, criterion="gini", n_classes=2, max_bins=max_bins, max_depth=1),
        criterion=criterion,
    )
    ids = np.arange(40, dtype=np.uint32)
    rows, none = recipe.target.select_rows(ids, None), recipe.target.select_rows(ids[:0], None)
    assert grow_tree(recipe, rows, none, 1).tree.feature[0] == 1


def test_unsuitable_tables_use_no_records() -> None:
    assert recipe_of(problem(classes=2, columns=300)).records is None
    assert recipe_of(problem(classes=300)).records is None
    assert recipe_of(problem(classes=2, max_bins=None)).records is None
    assert recipe_of(problem(classes=2, known_only=True), fractional=True).records is None


@pytest.mark.kernels
@pytest.mark.parametrize("max_bins", [None, 200])
def test_columns_without_an_allowed_cut_are_skipped(max_bins: int | None) -> None:
    """More of them than a batch has cuts."""
    rng = np.random.default_rng(0)
    columns = 250 if max_bins else 4_000
    x = np.zeros((60, columns))
    x[rng.integers(0, 60, columns), np.arange(columns)] = 1.0
    x[:, columns // 2] = np.arange(60)
    tree = recipe_of(
        Problem(
            x.T.tolist(), (np.arange(60) > 40).astype(int).tolist(), [None] * columns,
            criterion="gini", n_classes=2, max_bins=max_bins, min_weight_leaf=5,
        )
    )  # fmt: skip
    ids = np.arange(60, dtype=np.uint32)
    rows, none = tree.target.select_rows(ids, None), tree.target.select_rows(ids[:0], None)
    grown = grow_tree(tree, rows, none, 1).tree
    assert grown.feature.tolist() == [columns // 2, -1, -1]
    assert grown.threshold[0] == 40.5


# ---------------------------------------------------------------- kernels


@nb.njit(error_model="numpy")
def run_partition(*given):  # type: ignore[no-untyped-def]
    """Call a helper that only kernels may call."""
    partition_records(*given)


@nb.njit(error_model="numpy")
def run_unpack(*given):  # type: ignore[no-untyped-def]
    unpack_records(*given)


@nb.njit(error_model="numpy")
def run_sum(*given):  # type: ignore[no-untyped-def]
    return sum_records(*given)


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray, Rows, int]:
    """A code matrix, some of its rows in any order, and the number of statistics."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    columns, n = draw(st.integers(1, 70)), draw(st.integers(1, 60))
    s = draw(st.integers(2, 9))
    codes = rng.integers(0, 6, (columns, 80)).astype(np.uint8)
    ids = rng.integers(0, 80, n).astype(np.uint32)
    kind = draw(st.sampled_from(["short", "cells", "dense"]))
    if kind == "dense":
        values = np.column_stack([np.ones(n), rng.integers(-9, 9, (n, s - 1)) / 8])
        return codes, Rows(ids, np.empty(0, np.uint32), values), s
    values = rng.integers(1, 255, (n, 1)) / (1 if kind == "short" else 8)
    return codes, Rows(ids, rng.integers(0, s, n).astype(np.uint32), values), s


@settings(max_examples=examples(60), deadline=None)
@given(tables(), st.data())
def test_partitioned_records_contain_the_rows(table: Any, data: st.DataObject) -> None:
    codes, rows, s = table
    n, has_cells = len(rows.ids), len(rows.cells) > 0
    records_of = make_record_table(codes, False)
    assert records_of is not None
    records = gather_records(records_of, rows)
    step = int(records.layout[N_WORDS]) * 8
    begin = data.draw(st.integers(0, n - 1))
    end = data.draw(st.integers(begin + 1, n))
    column = data.draw(st.integers(0, len(codes) - 1))
    branches = data.draw(st.integers(2, 4))
    by_level = branches > 2 or data.draw(st.booleans())
    cut, missing = data.draw(st.integers(-1, 4)), data.draw(st.integers(0, branches - 1))
    levels = np.array(
        data.draw(st.lists(st.integers(-1, branches - 1), min_size=5, max_size=5))
        if by_level
        else [],
        np.int32,
    )

    def find_branch(code: int) -> int:  # 5 is missing
        if code == 5:
            return missing
        if by_level:
            return int(levels[code]) if levels[code] >= 0 else missing
        return int(code > cut)

    place = Column(records.codes, np.uint64(column), np.uint64(step), np.uint32(5))
    offsets = np.zeros(branches + 1, np.int64)
    run_partition(
        Route(place, cut, missing, levels), branches, records, np.arange(n, dtype=np.uint32),
        begin, end, np.zeros(n, np.uint32), offsets,
    )  # fmt: skip
    own = codes[column, rows.ids[begin:end]].tolist()
    order = sorted(range(end - begin), key=lambda i: find_branch(own[i]))  # stable
    moved = np.concatenate([np.arange(begin), begin + np.array(order), np.arange(end, n)])
    sizes = [sum(find_branch(code) == b for code in own) for b in range(branches)]
    assert offsets.tolist() == (begin + np.cumsum([0, *sizes])).tolist()
    lines = records.codes.reshape(n, step)[:, : len(codes)]
    assert np.array_equal(lines, codes[:, rows.ids[moved]].T)
    found = copy_rows(rows)
    found.values[:], found.cells[:] = 0, 0
    run_unpack(records, 0, n, found.cells, found.values)
    assert np.array_equal(found.values, rows.values[moved])
    assert np.array_equal(found.cells, rows.cells[moved] if has_cells else rows.cells)
    stats = np.full(s, np.nan)
    weight = run_sum(records, begin, end, rows.values.shape[1], has_cells, stats)
    assert weight == rows.values[moved][begin:end, 0].sum()
    if has_cells:
        wanted = np.bincount(
            rows.cells[moved][begin:end], rows.values[moved][begin:end, 0], minlength=s
        )
    else:
        wanted = rows.values[moved][begin:end].sum(axis=0)
    assert stats.tolist() == wanted.tolist()
