"""Branches of many levels: packed, checked, stored and read within the memory of what is made."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tests.reference import evaluate
from treekit.data.schema import Column, Schema
from treekit.errors import ModelError
from treekit.export.c.layouts import packed_nodes
from treekit.export.lowering import leaf_table
from treekit.model.builder import build_tree, leaf, multiway
from treekit.model.derived_features import derive
from treekit.model.model import make_model
from treekit.model.model_file import load, save
from treekit.model.packing import pack
from treekit.model.scoring import sums
from treekit.model.tree import Split, Tree, gathered, ranges, stretches
from treekit.model.validation import check_model, check_trees

LEVELS = tuple(f"level {i}" for i in range(3000))
SCHEMA = Schema(columns=(Column("g", "nominal", LEVELS),), classes=("no", "yes"))


def many_levels(n_inner: int, seed: int, **more) -> Tree:
    """A complete tree, or nearly, of splits by 3,000 levels."""
    rng, n = np.random.default_rng(seed), 2 * n_inner + 1
    inner = np.arange(n) < n_inner
    fields = {
        "kind": np.where(inner, Split.SUBSET, Split.LEAF),
        "feature": np.where(inner, 0, -1),
        "threshold": np.full(n, np.nan),
        "first_child": np.where(inner, 2 * np.arange(n) + 1, -1),
        "n_children": np.where(inner, 2, 0),
        "missing": np.where(inner, rng.integers(0, 2, n), 0),
        "level_start": np.append(0, np.cumsum(np.where(inner, len(LEVELS), 0))),
        "level_branch": rng.integers(-1, 2, n_inner * len(LEVELS), dtype=np.int32),
        "value": rng.integers(1, 9, (n, 2)),
        "weight": np.ones(n),
        "gain": np.zeros(n),
    }
    return Tree(**(fields | more))


def peak_of(function) -> tuple[object, int]:
    """What a function returns, and the bytes that it took at most at a time."""
    function()  # what is imported meanwhile counts, too
    tracemalloc.start()
    result = function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, peak


@pytest.fixture(scope="module")
def model():
    """1.8 million branches of levels: 7 MB."""
    return make_model(SCHEMA, [many_levels(200, seed) for seed in range(3)])


SPARE = 4_000_000
"""Bytes for what is worked on at once, whatever the size of the model."""


def test_packing_takes_the_memory_of_what_is_packed(model):
    packed, peak = peak_of(lambda: pack(model))
    assert packed.trees.table.nbytes == 3 * 200 * 3001
    assert peak < packed.trees.table.nbytes + packed.trees.nodes.nbytes + SPARE


def test_exporting_packed_nodes_takes_less_memory_than_the_model(model):
    leaves, derived = leaf_table(model.units), derive(model)
    _, peak = peak_of(lambda: packed_nodes(model, leaves, derived))
    assert peak < 3 * 200 * 3001 * 9 // 8 + SPARE


def test_checking_takes_hardly_any_memory(model):
    _, peak = peak_of(lambda: check_model(model))
    assert peak < SPARE


def test_saving_and_loading_take_the_memory_of_file_and_model(model, tmp_path):
    path = tmp_path / "m.treekit"
    _, peak = peak_of(lambda: save(model, path))
    size = path.stat().st_size
    assert peak < 4 * size + SPARE
    loaded, peak = peak_of(lambda: load(path))
    branches = sum(tree.level_branch.nbytes for tree in model.trees)
    assert peak < size + branches + SPARE
    for mine, other in zip(model.trees, loaded.trees, strict=True):
        np.testing.assert_array_equal(mine.level_branch, other.level_branch)


def test_taking_nodes_of_a_tree_takes_the_memory_of_the_new_one(model):
    tree = model.trees[0]
    nodes = np.arange(tree.n_nodes)
    same, peak = peak_of(lambda: tree.take(nodes, np.zeros(tree.n_nodes, np.bool_)))
    np.testing.assert_array_equal(same.level_branch, tree.level_branch)
    assert peak < tree.level_branch.nbytes + SPARE


@pytest.mark.parametrize("entry", [0, 70_000, 599_999])
@pytest.mark.parametrize("branch", [-2, 2])
def test_a_branch_that_does_not_exist_is_found_wherever_it_is(entry, branch):
    tree = many_levels(200, 0)
    wrong = tree.level_branch.copy()
    wrong[entry] = branch
    with pytest.raises(ModelError, match="a level goes to a branch that does not exist"):
        check_trees([many_levels(200, 0, level_branch=wrong)], SCHEMA)


@pytest.mark.parametrize(
    ("missing", "n_branches"),
    [
        *(("direction", n) for n in (255, 256, 300)),
        ("fractional", 255),
        *(pytest.param("fractional", n, marks=pytest.mark.matrix) for n in (256, 300)),
    ],
)
def test_splits_of_more_branches_than_a_byte_counts_score_as_the_oracle(n_branches, missing):
    columns = (Column("g", "nominal", LEVELS[: n_branches + 2]),)
    schema = Schema(columns=columns, classes=("no", "yes"))
    parts = {LEVELS[i]: leaf([1 + i, 301 - i]) for i in range(n_branches)}
    model = make_model(schema, [build_tree(multiway("g", parts), schema)], missing=missing)
    rows = np.array([[0.0], [n_branches - 1], [n_branches], [np.nan], [254]], np.float32)
    width = 1 if n_branches <= 255 else 4
    assert pack(model).trees.table.itemsize == width
    expected = [evaluate.sums(model, row) for row in rows.tolist()]
    assert sums(model, rows).tolist() == [list(row) for row in expected]


def test_what_owners_own_is_found_in_stretches(monkeypatch):
    rng = np.random.default_rng(1)
    sizes = rng.integers(0, 5, 40)
    start = np.cumsum(np.append(0, sizes))
    array = rng.integers(0, 99, start[-1])
    owners = rng.permutation(40)
    monkeypatch.setattr("treekit.model.tree._MOST", 4)
    expected = np.concatenate([array[start[i] : start[i + 1]] for i in owners])
    np.testing.assert_array_equal(gathered(array, start[owners], sizes[owners]), expected)
    np.testing.assert_array_equal(array[ranges(start, owners)[0]], expected)
    parts = list(stretches(sizes))
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(40))
    assert all(sizes[part].sum() <= 4 for part in parts)
    assert not list(stretches(sizes[:0]))
