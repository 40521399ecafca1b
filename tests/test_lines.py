"""Codes read along the lines of the table, or down its columns: the same trees."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.growing import recipe_of
from tests.reference.grow import Problem
from treekit.components.criteria import quantile_loss
from treekit.data import out_of_core as room
from treekit.data.out_of_core import lines_of
from treekit.grow.compile_criterion import compile_criterion
from treekit.grow.compile_plugin import Origin
from treekit.grow.recipe import GrownTree, Recipe
from treekit.grow.tree_builder import grow_tree
from treekit.kernels.compile import Finder
from treekit.kernels.random_splits import find_random

ROWS = 1_500


def problem(**more: Any) -> Problem:
    """Numbers, some of them missing, and levels; half of the nodes have few rows."""
    rng = np.random.default_rng(4)
    x, levels = rng.normal(size=(ROWS, 4)).round(2), rng.integers(0, 9, ROWS)
    number = x @ [1.0, -1.0, 0.5, 0.0] + levels % 3 + rng.normal(size=ROWS)
    x[rng.random(x.shape) < 0.1] = np.nan
    columns = [[None if np.isnan(v) else v for v in column] for column in x.T.tolist()]
    y = number.round(3) if more["criterion"] in ("squared_error", "quantile") else number > 0
    return Problem([*columns, levels.tolist()], y.tolist(), [None] * 4 + [9], **more)


DRAWN = Finder(find_random, bounded=True)
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "exact": ({"criterion": "gini", "n_classes": 2}, {}),
    "histogram": ({"criterion": "gini", "n_classes": 2, "max_bins": 40}, {}),
    "few columns": ({"criterion": "entropy", "n_classes": 2}, {"n_try": 2}),
    "numbers": ({"criterion": "squared_error", "multiway": True}, {}),
    "quantiles": ({"criterion": "quantile", "quantile": Fraction(1, 2)}, {}),
    "drawn": ({"criterion": "gini", "n_classes": 2}, {"find": DRAWN, "n_try": 3}),
    "surrogates": (
        {"criterion": "gini", "n_classes": 2, "known_only": True, "max_bins": 200},
        {"surrogates": 3},
    ),
    "parts": (
        {"criterion": "gini", "n_classes": 2, "known_only": True, "max_bins": 200},
        {"fractional": True},
    ),
}  # fmt: skip


def grown_by(recipe: Recipe) -> GrownTree:
    """A tree of three quarters of the rows; the others are held out."""
    ids = np.arange(ROWS, dtype=np.uint32)
    held = ids % 4 == 0
    rows = recipe.target.rows(ids[~held], None), recipe.target.rows(ids[held], None)
    return grow_tree(recipe, *rows, np.random.default_rng(1))


COMPILED = ("histogram", "surrogates", "parts")


@pytest.mark.parametrize(
    "kind", [k if k in COMPILED else pytest.param(k, marks=pytest.mark.matrix) for k in KINDS]
)
def test_trees_are_the_same_along_lines_and_down_columns(kind: str) -> None:
    given, parts = KINDS[kind]
    if "quantile" in given:
        origin = Origin("criterion", "quantile")
        parts = {"criterion": compile_criterion(quantile_loss(0.5), 4, True, origin)}
    recipe = recipe_of(problem(**given), **parts)
    assert recipe.lines is not None
    along, down = grown_by(recipe), grown_by(replace(recipe, lines=None))
    assert along.tree.n_leaves > 50
    for field in fields(along.tree):
        ours, theirs = getattr(along.tree, field.name), getattr(down.tree, field.name)
        assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"), field.name
    assert np.array_equal(along.held_leaf, down.held_leaf)
    assert np.array_equal(along.held_stats, down.held_stats)


@pytest.mark.parametrize("rows", [1, 7, 2_048, 5_000])
def test_lines_are_the_matrix_row_by_row(rows: int) -> None:
    codes = np.random.default_rng(0).integers(0, 255, (3, rows)).astype(np.uint8)
    lines = lines_of(codes)
    assert lines is not None
    assert lines.tolist() == codes.T.reshape(-1).tolist()


def test_there_are_no_lines_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_free_memory", lambda: 1_000.0)
    assert lines_of(np.zeros((2, 51), np.uint8)) is None
    assert lines_of(np.zeros((2, 50), np.uint8)) is not None
