"""Kernels: unsigned subscripts, the cache, sums of histograms, scans."""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba as nb
import numpy as np
import pytest
from numba.core import ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass

from tests.growing import grow, node_statistics, recipe_of
from tests.reference.grow import Problem
from treekit.compiling.criterion import compile_criterion
from treekit.compiling.functions import Origin
from treekit.components.criteria import make_entropy, make_gini, make_quantile_loss
from treekit.contracts import MAX_COUNT, CriterionExtras, CriterionFunctions
from treekit.data import out_of_core as room
from treekit.data.out_of_core import copy_row_major
from treekit.data.schema import Column, Schema
from treekit.grow.recipe import GrownTree, Recipe
from treekit.grow.tree_builder import grow_tree, has_exact_terms
from treekit.kernels import axis_splits as axis
from treekit.kernels import feature_codes as keys
from treekit.kernels import grow_tree as growing
from treekit.kernels import node_statistics as tally
from treekit.kernels import partition_rows as fractional
from treekit.kernels import partition_rows as move
from treekit.kernels import quantile_splits, records
from treekit.kernels import quantile_statistics as ranks
from treekit.kernels import route_rows as leading
from treekit.kernels import score_batch as derived
from treekit.kernels import score_batch as divided
from treekit.kernels import score_batch as predict
from treekit.kernels import score_batch as straight
from treekit.kernels import score_row as single
from treekit.kernels.compile import (
    KernelDispatcher,
    LinkedFunction,
    SplitterKernel,
)
from treekit.kernels.node_statistics import (
    CODE_OF,
    CODES,
    ORDER,
    count_lane_words,
    pack_lanes,
    sort_rows,
    sum_lanes,
    sum_values,
    unpack_lanes,
)
from treekit.kernels.node_statistics import tally_codes as tally_tally
from treekit.kernels.random_splits import find_random_split
from treekit.kernels.records import SPLIT_DTYPE, Rows, Scratch, SplitRules
from treekit.kernels.row_records import STEP
from treekit.model import scoring as scorer
from treekit.model.builder import build_tree, leaf, oblique, subset, threshold
from treekit.model.model import make_model

# ---------------------------------------------------------------- kernel style

PACKAGE = Path(axis.__file__).parent.parent


class Captured(Exception):
    """Carries the inferred types out of the compiler."""


@register_pass(mutates_CFG=False, analysis_only=True)
class Capture(FunctionPass):
    """Ends a compilation once types are known."""

    _name = "capture"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        raise Captured(list(subscripts(state.func_ir, state.typemap)))


class TypesOnly(CompilerBase):
    """numba's own pipeline as far as type inference."""

    def define_pipelines(self) -> list[PassManager]:
        manager = PassManager("types only")
        manager.passes.extend(DefaultPassBuilder.define_untyped_pipeline(self.state).passes)
        typed = DefaultPassBuilder.define_typed_pipeline(self.state).passes
        manager.passes.extend(typed[:1])
        manager.add_pass(Capture, "capture")
        manager.finalize()
        return [manager]


def subscripts(function: ir.FunctionIR, typed: Any) -> Iterator[tuple[str, Any]]:
    """Place and index type of every subscript of an array, after inlining."""
    for block in function.blocks.values():
        for statement in block.body:
            if isinstance(statement, ir.SetItem):
                array, index = statement.target, statement.index
            elif isinstance(statement, ir.Assign) and getattr(statement.value, "op", "") in (
                "getitem",
                "static_getitem",
            ):
                value = statement.value
                array = value.value
                index = value.index if value.op == "getitem" else value.index_var
            else:
                continue
            if index is not None and isinstance(typed[array.name], types.Array):
                yield f"{statement.loc.filename}:{statement.loc.line}", typed[index.name]


def signed_subscripts(function: Callable[..., Any], arguments: Any) -> list[str]:
    """Subscripts for which numba emits a check for negative values."""
    with pytest.raises(Captured) as captured:
        nb.njit(error_model="numpy", pipeline_class=TypesOnly)(function).compile(arguments)
    found = []
    for place, index in captured.value.args[0]:
        parts = list(index) if isinstance(index, types.BaseTuple) else [index]
        for part in parts:
            literal = isinstance(part, types.IntegerLiteral) and part.literal_value >= 0
            if isinstance(part, types.Integer) and part.signed and not literal:
                found.append(f"{place}: {part}")
    return found


def signed_in(*modules: Any) -> tuple[list[str], int]:
    """Signed subscripts in all kernels of these modules that were compiled, and how many were.

    Kernels from the disk cache bring those that they call along only when they
    are typed again, which finding their subscripts does.  Signatures that differ
    by the widths of codes are one: numba promotes unsigned numbers of 8, 16 and
    32 bits alike.
    """
    found: list[str] = []
    done: set[Any] = set()
    while True:
        kernels = [(m, name, kernel) for m in modules for name, kernel in vars(m).items()]
        new = {
            (module, name, re.sub("uint(8|16|32)", "uint", str(signature))): (kernel, signature)
            for module, name, kernel in kernels
            for signature in getattr(kernel, "signatures", [])
        }
        if new.keys() <= done:
            return found, len(done)
        for key in new.keys() - done:
            kernel, signature = new[key]
            found += [f"{key[1]}: {s}" for s in signed_subscripts(kernel.py_func, signature)]
        done |= new.keys()


@pytest.mark.system
@pytest.mark.usefixtures("numba_alone")
def test_subscripts_in_growth_are_unsigned() -> None:
    rng = random.Random(0)
    columns = [[rng.random() for _ in range(40)], [rng.randrange(3) for _ in range(40)]]
    problem = Problem(columns, [rng.randrange(2) for _ in range(40)], [None, 3], "gini", 2)
    recipe = recipe_of(problem)
    grow(problem)
    parts = grow(problem, rules=SplitRules(known_only=True), fractional=True)
    node_statistics(parts.tree, recipe.table, parts.rows, 2, fractional=True)
    signed = signed_subscripts(
        axis.find_axis_split.py_func, recipe.splitter.find.pointer_signature.args
    )
    more, checked = signed_in(growing, move, tally, axis, fractional, leading)
    assert signed + more == []
    assert checked >= 8  # the search, the loop over nodes, parts, and what they call


@pytest.mark.system
@pytest.mark.usefixtures("numba_alone")
def test_subscripts_in_searches_of_quantiles_are_unsigned() -> None:
    rng = random.Random(0)
    columns = [[rng.random() for _ in range(40)], [rng.randrange(3) for _ in range(40)]]
    level = Fraction(1, 2)
    y = [rng.random() for _ in range(40)]
    problem = Problem(columns, y, [None, 3], "quantile", quantile=level)
    part = compile_criterion(make_quantile_loss(0.5), 4, True, Origin("criterion", "quantile"))
    search: Any = quantile_splits.find_quantile_split
    search.compile(recipe_of(problem, part).splitter.find.pointer_signature.args)
    signed, checked = signed_in(quantile_splits, ranks)
    assert signed == []
    assert checked >= 8


@pytest.mark.system
@pytest.mark.usefixtures("numba_alone")
@pytest.mark.parametrize("missing", ["surrogate", "fractional"])
def test_subscripts_in_scoring_are_unsigned(missing: Any) -> None:
    schema = Schema((Column("x"), Column("c", "nominal", ("a", "b"))), classes=(0, 1))
    below = oblique({"x": 2.0}, 1.0, leaf([1, 0]), leaf([0, 1]))
    tree = build_tree(subset("c", ["a"], below, leaf([1, 1])), schema)
    model = make_model(schema, [tree], missing=missing)
    scorer.sum_leaf_values(model, np.zeros((20, 2)))
    scorer.leaf_indices(model, np.zeros((20, 2)))
    modules = (divided, keys) if missing == "fractional" else (predict, derived, keys)
    signed, checked = signed_in(*modules)
    assert signed == []
    assert checked >= 4


@pytest.mark.system
@pytest.mark.usefixtures("numba_alone")
def test_subscripts_in_scoring_a_row_or_a_single_tree_are_unsigned() -> None:
    schema = Schema((Column("x"),), classes=(0, 1))
    model = make_model(schema, [build_tree(threshold(0, 1.0, leaf([1, 0]), leaf([0, 1])), schema)])
    model.scorer()(np.zeros(1, np.float32))
    scorer.leaf_indices(model, np.zeros((20, 1)))
    signed, checked = signed_in(single, straight)
    assert signed == []
    assert checked >= 2


def test_subscript_check_finds_a_signed_subscript() -> None:
    cells = types.float64[::1]

    def signed(a: Any, n: Any) -> None:
        for i in range(n):
            a[i] = 0.0

    def unsigned(a: Any, n: Any) -> None:
        for i in range(np.uint64(n)):
            a[i] = 0.0

    assert len(signed_subscripts(signed, (cells, types.int64))) == 1
    assert signed_subscripts(unsigned, (cells, types.int64)) == []


KERNEL = """
from house.kernels.compile import kernel
from house.kernels.helper import helper

@kernel
def total(x):
    return helper(x) + 1
"""
HELPER = """
from house.kernels.compile import kernel

@kernel
def helper(x):
    return x * {factor}
"""


@pytest.fixture
def copy_of_kernels(tmp_path: Path) -> Path:
    """A package of its own that compiles as ours does, and two kernels in different files."""
    folder = tmp_path / "house" / "kernels"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    for path in (PACKAGE / "kernels").glob("*.py"):
        text = path.read_text().replace("treekit.kernels", "house.kernels")
        (folder / path.name).write_text(text)
    (folder / "total.py").write_text(KERNEL)
    (folder / "helper.py").write_text(HELPER.format(factor=10))
    return folder


def run(folder: Path, code: str = "", **settings: str) -> str:
    script = code + (
        "\nfrom house.kernels.total import total\n"
        "print(total(4), sum(total.stats.cache_hits.values()))"
    )
    environment = dict(os.environ, PYTHONPATH=f"{folder.parents[1]}{os.pathsep}{PACKAGE.parent}")
    environment.pop("NUMBA_CACHE_DIR", None)
    environment |= settings
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.system
def test_a_second_process_loads_the_kernel_from_disk(copy_of_kernels: Path) -> None:
    assert run(copy_of_kernels) == "41 0"
    assert run(copy_of_kernels) == "41 1"


@pytest.mark.system
def test_cache_is_invalidated_by_a_change_in_an_imported_helper(copy_of_kernels: Path) -> None:
    assert run(copy_of_kernels) == "41 0"
    (copy_of_kernels / "helper.py").write_text(HELPER.format(factor=100))
    assert run(copy_of_kernels) == "401 0"


@pytest.mark.system
def test_cache_does_not_depend_on_file_times(copy_of_kernels: Path) -> None:
    assert run(copy_of_kernels) == "41 0"
    os.utime(copy_of_kernels / "helper.py", (1, 1))
    assert run(copy_of_kernels) == "41 1"


@pytest.mark.system
def test_damaged_cache_is_recompiled(copy_of_kernels: Path) -> None:
    assert run(copy_of_kernels) == "41 0"
    files = list((copy_of_kernels / "__pycache__").glob("*.nb?"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:40])
    assert run(copy_of_kernels) == "41 0"
    assert run(copy_of_kernels) == "41 1"


@pytest.mark.system
def test_kernels_run_without_a_cache_folder(copy_of_kernels: Path) -> None:
    nowhere = """
from numba.core.caching import CacheImpl
CacheImpl._locator_classes = []
"""
    assert run(copy_of_kernels, nowhere) == "41 0"


@pytest.mark.system
def test_kernels_run_if_the_cache_cannot_be_written(copy_of_kernels: Path) -> None:
    full = """
from numba.core.caching import IndexDataCacheFile
def save(*_): raise OSError(28, "No space left on device")
IndexDataCacheFile.save = save
"""
    assert run(copy_of_kernels, full) == "41 0"


@pytest.mark.system
def test_numba_cache_is_used_if_numba_internals_differ(copy_of_kernels: Path) -> None:
    other = """
from numba.core.caching import FunctionCache
plain = FunctionCache.__init__
def renamed(self, function):
    plain(self, function)
    if type(self) is not FunctionCache:
        del self._cache_file
FunctionCache.__init__ = renamed
"""
    assert run(copy_of_kernels, other) == "41 0"
    assert run(copy_of_kernels, other) == "41 1"


# ---------------------------------------------------------------- lines
# Codes read along the lines of the table, or down its columns: the same trees.

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


DRAWN = SplitterKernel(find_random_split, supports_monotonic=True)
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
    rows = recipe.target.select_rows(ids[~held], None), recipe.target.select_rows(ids[held], None)
    return grow_tree(recipe, *rows, 1)


COMPILED = ("histogram", "surrogates", "parts")


@pytest.mark.kernels
@pytest.mark.parametrize(
    "kind", [k if k in COMPILED else pytest.param(k, marks=pytest.mark.matrix) for k in KINDS]
)
def test_row_major_and_column_major_codes_grow_equal_trees(kind: str) -> None:
    given, parts = KINDS[kind]
    if "quantile" in given:
        origin = Origin("criterion", "quantile")
        parts = {"criterion": compile_criterion(make_quantile_loss(0.5), 4, True, origin)}
    recipe = recipe_of(problem(**given), **parts)
    assert recipe.row_major_codes is not None
    column_major = replace(recipe)
    for own in (recipe, column_major):
        vars(own)["records"] = None
    vars(column_major)["row_major_codes"] = None
    along, down = grown_by(recipe), grown_by(column_major)
    assert along.tree.n_leaves > 50
    for field in fields(along.tree):
        ours, theirs = getattr(along.tree, field.name), getattr(down.tree, field.name)
        assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"), field.name
    assert np.array_equal(along.held_leaf, down.held_leaf)
    assert np.array_equal(along.held_stats, down.held_stats)


@pytest.mark.parametrize("rows", [1, 7, 2_048, 5_000])
def test_copy_row_major_returns_the_matrix_row_by_row(rows: int) -> None:
    codes = np.random.default_rng(0).integers(0, 255, (3, rows)).astype(np.uint8)
    lines = copy_row_major(codes)
    assert lines is not None
    assert lines.tolist() == codes.T.reshape(-1).tolist()


def test_copy_row_major_returns_none_if_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_get_free_memory", lambda: 1_000.0)
    monkeypatch.setattr(room, "_SMALL_BYTES", 0)
    assert copy_row_major(np.zeros((2, 51), np.uint8)) is None
    assert copy_row_major(np.zeros((2, 50), np.uint8)) is not None


# ---------------------------------------------------------------- tally
# Statistics of a node's rows by code: every way against plain sums.


@nb.njit(error_model="numpy")
def tallied(column, rows, s, weight, scratch):  # type: ignore[no-untyped-def]
    """`tally_codes` as a search calls it: the codes present, and the width of lanes."""
    m, s = np.uint64(len(rows.ids)), np.uint64(s)
    width = pack_lanes(rows, m, s, weight, scratch)
    return tally_tally(column, rows, s, width, scratch), width


def memory_of(rows: int, codes: int, cells: int) -> Scratch:
    """Working memory of one size, used time and again as a tree does."""
    none, flat = np.empty(0), np.full((max(rows, 256) + 2) * cells, np.nan)
    return Scratch(
        features=np.empty(0, np.int64),
        state=np.empty(0, np.uint64),
        words=np.empty(max(2 * (codes // 64 + 1), 64), np.uint64),
        lanes=np.empty(rows, np.uint64),
        slots=np.empty(rows, np.uint16),
        packed=np.zeros(256 * cells, np.uint64),
        work=np.empty((4, max(rows, 256) + 2), np.uint32),
        counts=np.empty(2050, np.uint32),
        compact=flat.reshape(-1, cells),
        flat=flat,
        ordered=np.empty((0, cells)),
        keys=none,
        start=none,
        best=none,
        pair=np.empty((0, cells)),
        offers=np.empty((0, 0)),
        levels=np.empty(0, np.int32),
        options=none,
        lines=np.empty(0, np.uint8),
        layout=np.zeros(5, np.uint64),
        split=np.zeros(1, SPLIT_DTYPE),
        offsets=np.zeros((2, 0), np.int64),
    )


def by_code(codes: Any, rows: Any) -> dict[int, list[float]]:
    """The oracle: a sum of rows for each code, in plain Python."""
    sums: dict[int, list[float]] = {}
    for code, row in zip(codes.tolist(), rows.tolist(), strict=True):
        own = sums.setdefault(code, [0.0] * len(row))
        for k, value in enumerate(row):
            own[k] += value
    return dict(sorted(sums.items()))


SIZES = (2, 3, 4, 5, 8, 9, 17, 60, 500, 700, 2500)
SPREADS = (1, 2, 7, 200, 255, 3_000, 60_000)


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32])
@pytest.mark.parametrize("kind", ["whole", "parts", "numbers"])
def test_every_histogram_kernel_equals_plain_sums(dtype: Any, kind: str) -> None:
    rng = np.random.default_rng(5)
    many, widths, ranges = 9_000, set(), set()
    for cells in (2, 3, 7) if kind != "numbers" else (2, 4):
        for spread in SPREADS:
            n_codes = min(spread, 255) if dtype == np.uint8 else spread
            memory = memory_of(max(SIZES), n_codes, cells)
            table = rng.integers(0, n_codes + 1, (many, 3)).astype(dtype)
            column = table[:, 1]  # among others, down its column or along the lines
            for m in SIZES:
                ids = np.sort(rng.permutation(many)[:m]).astype(np.uint32)
                whole = rng.integers(1, 4, m).astype(float)
                if kind == "numbers":
                    own = np.empty(0, np.uint32)
                    values = np.column_stack([whole, rng.integers(-9, 9, (m, cells - 1)) / 8.0])
                    rows = values
                else:
                    own = rng.integers(0, cells, m).astype(np.uint32)
                    values = (whole if kind == "whole" else whole / 4.0)[:, None]
                    rows = np.zeros((m, cells))
                    rows[np.arange(m), own] = values[:, 0]
                place = (table.ravel(), 1, 3) if m % 2 else (table.T.ravel(), many, 1)
                codes, first, step = place
                of = records.Column(codes, np.uint64(first), np.uint64(step), np.uint32(n_codes))
                count, width = tallied(of, Rows(ids, own, values), cells, rows.sum(), memory)
                wanted = by_code(column[ids], rows)
                assert memory.work[CODE_OF, :count].tolist() == list(wanted)
                if count > 1:  # nobody needs statistics of a constant column
                    got = memory.flat[: count * cells].reshape(count, cells)
                    assert got.tolist() == list(wanted.values())
                assert not memory.packed.any()
                widths.add(int(width))
                ranges.add(count)
    assert len(ranges) > 20
    assert (max(widths) > 0) == (kind == "whole")
    assert 0 in widths or kind == "whole"


@pytest.mark.matrix
@pytest.mark.parametrize("cells", [2, 3, 7, 10, 32])
def test_packed_histogram_lanes_hold_the_largest_sum(cells: int) -> None:
    for weight, bits in (
        (65_535.0, 32 if cells == 2 else 16),
        (65_536.0, 32),
        (2.0**31 - 1.0, 32),
        (2.0**31, 0),
    ):
        values = np.array([[weight - 1.0], [1.0]])
        own = np.array([0, cells - 1], np.uint32)
        memory = memory_of(2, 255, cells)
        codes = np.array([3, 4], np.uint8)
        column = records.Column(codes, np.uint64(0), np.uint64(1), np.uint32(255))
        rows = Rows(np.arange(2, dtype=np.uint32), own, values)
        count, width = tallied(column, rows, cells, weight, memory)
        assert (width, count) == (bits, 2)
        assert memory.flat[0] == weight - 1.0
        assert memory.flat[2 * cells - 1] == 1.0


@pytest.mark.matrix
def test_histograms_of_too_many_classes_are_not_packed() -> None:
    rows = Rows(np.zeros(1, np.uint32), np.zeros(1, np.uint32), np.ones((1, 1)))
    column = records.Column(np.zeros(1, np.uint8), np.uint64(0), np.uint64(1), np.uint32(255))
    assert tallied(column, rows, 33, 1.0, memory_of(1, 255, 33))[1] == 0


@nb.njit(error_model="numpy")
def summed_up(rows, at, s, scratch, sums, words, code_of, n):  # type: ignore[no-untyped-def]
    """Running totals of a column by lanes, if there are any, else by statistics."""
    m = np.uint64(len(rows.values))
    width = pack_lanes(rows, m, s, rows.values[:, 0].sum(), scratch)
    if width == 0:
        return sum_values(scratch, at, rows, s, sums, code_of, n)
    count = sum_lanes(scratch, at, m, count_lane_words(s, width), words, code_of, n)
    unpack_lanes(words, n + count, width, sums)
    return count


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["whole", "large", "parts", "numbers"])
def test_running_totals_equal_plain_sums(kind: str) -> None:
    rng = np.random.default_rng(8)
    for cells in (2, 3, 7, 32) if kind != "numbers" else (2, 4):
        for spread in (1, 2, 7, 256):
            memory = memory_of(max(SIZES), 256, cells)
            sums = np.full((cells, 600), np.nan)
            words = np.zeros((-(-cells // 2), 600), np.uint64)
            for m in SIZES:
                lines = rng.integers(0, spread, (m + 2, 5)).astype(np.uint8)
                whole = rng.integers(1, 90_000 if kind == "large" else 4, m).astype(float)
                own = rng.integers(0, cells, m).astype(np.uint32)
                values = (whole / 4.0 if kind == "parts" else whole)[:, None]
                rows = np.zeros((m, cells))
                rows[np.arange(m), own] = values[:, 0]
                if kind == "numbers":
                    own = np.empty(0, np.uint32)
                    rows = values = np.column_stack(
                        [whole, rng.integers(-9, 9, (m, cells - 1)) / 8]
                    )
                code_of, n = np.zeros(600, np.uint32), 40
                given = memory._replace(lines=lines.reshape(-1))
                given.layout[STEP] = 5
                count = summed_up(
                    Rows(np.arange(m, dtype=np.uint32), own, values), np.uint64(2 * 5 + 3),
                    np.uint64(cells), given, sums, words, code_of, np.uint64(n),
                )  # fmt: skip
                wanted = by_code(lines[2:, 3], rows)
                assert code_of[n : n + count].tolist() == list(wanted)
                totals = np.cumsum(list(wanted.values()), axis=0)
                assert sums[:, n : n + count].T.tolist() == totals.tolist()
                assert not memory.packed.any()


def test_inlined_loops_may_be_unrolled_again() -> None:
    def squares(stats):  # type: ignore[no-untyped-def]
        total = 0.0
        for k in range(stats.shape[0]):
            total += stats[k] * stats[k]
        return total

    vector = nb.float64[::1]
    for kind, banned in ((KernelDispatcher, True), (LinkedFunction, False)):
        dispatcher: Any = kind(squares)
        dispatcher.compile((vector,))
        linked = dispatcher.overloads[(vector,)].library._get_module_for_linking()
        assert (", !llvm.loop !" in str(linked)) == banned
        assert dispatcher(np.array([1.0, 2.0])) == 5.0


# ---------------------------------------------------------------- rows in the order of a column


@nb.njit(error_model="numpy")
def sorted_rows(column, ids, scratch):  # type: ignore[no-untyped-def]
    return sort_rows(column, ids, scratch)


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32])
def test_rows_are_sorted_by_code_with_missing_last(dtype: Any) -> None:
    rng = np.random.default_rng(6)
    many, ranges = 9_000, set()
    for spread in SPREADS:
        n_codes = min(spread, 255) if dtype == np.uint8 else spread
        memory = memory_of(max(SIZES), n_codes, 2)
        table = rng.integers(0, n_codes + 1, many).astype(dtype)
        column = records.Column(table, np.uint64(0), np.uint64(1), np.uint32(n_codes))
        for m in SIZES:
            ids = np.sort(rng.permutation(many)[:m]).astype(np.uint32)
            known = sorted_rows(column, ids, memory)
            own = table[ids]
            if len(set(own.tolist())) == 1:
                assert known == -1
                continue
            assert known == (own < n_codes).sum()
            assert memory.work[ORDER, :m].tolist() == np.argsort(own, kind="stable").tolist()
            assert memory.work[CODES, :m].tolist() == own.tolist()
            ranges.add(known)
    assert len(ranges) > 20


def scan_plainly(  # type: ignore[no-untyped-def]
    functions, order, codes, cells, weights, last, start, totals, limit, impurity
):
    """The oracle: every cut by the plain score of its two branches."""
    left, best, bar = start.copy(), (-1, -np.inf), -np.inf
    for i in range(last):
        left[cells[order[i]]] += weights[order[i]]
        ends = i + 1 < len(order) and codes[order[i + 1]] == codes[order[i]]
        if ends or left.sum() < limit or (totals - left).sum() < limit:
            continue
        score = functions.score(totals, np.array([left, totals - left]))
        if score > bar:
            best, bar = (i, score), score + 1e-9 * max(abs(score), impurity)
    return best


@pytest.mark.parametrize("classes", [5, 7, 50])
def test_incremental_gini_scan_finds_the_cut_of_the_plain_score_bit_for_bit(classes: int) -> None:
    functions = make_gini()
    made = compile_criterion(functions, classes, False, Origin("criterion", "gini")).pointers
    assert made.use_terms
    rng, found = np.random.default_rng(classes), set()
    for trial in range(200):
        m = int(rng.integers(2, 60))
        codes = rng.integers(0, rng.integers(2, 40), m).astype(np.uint32)
        cells = rng.integers(0, classes, m).astype(np.uint32)
        weights = rng.integers(1, 4, m).astype(float)
        order = np.argsort(codes, kind="stable").astype(np.uint32)
        lost = int(rng.integers(0, 3)) if trial % 2 else 0
        totals = np.bincount(cells, weights, classes).astype(float)
        start = np.zeros(classes)
        if lost:  # rows with missing values, on the left
            start += rng.integers(0, 3, classes)
            totals += start
        last, limit = m - 1, float(rng.integers(1, 5))
        best = np.zeros(classes + 6)
        at = made.row_scan(
            order, codes, cells, weights[:, None], last, start, totals, limit, 0.5, best
        )
        wanted = scan_plainly(
            functions, order, codes, cells, weights, last, start, totals, limit, 0.5
        )
        assert (at, best[0]) == wanted
        found.add(at)
    assert -1 in found
    assert len(found) > 20


def test_incremental_terms_are_used_only_for_exact_sums() -> None:
    criterion = compile_criterion(make_gini(), 5, False, Origin("criterion", "gini"))
    recipe = SimpleNamespace(criterion=criterion, fractional=False)

    def judge(*weights: float, **changes: Any) -> bool:
        values = np.array(weights)[:, None]
        rows = Rows(np.empty(0, np.uint32), np.empty(0, np.uint32), values)
        return has_exact_terms(SimpleNamespace(**{**vars(recipe), **changes}), rows)  # type: ignore[arg-type]

    assert judge(1.0, 3.0)
    assert not judge(1.0, 0.5)
    assert judge(2.0**26)
    assert not judge(2.0**26, 2.0**26)
    assert not judge(1.0, 3.0, fractional=True)
    few = compile_criterion(make_gini(), 4, False, Origin("criterion", "gini"))
    assert not judge(1.0, 3.0, criterion=few)


@pytest.mark.parametrize("distribution", ["treekit 1", "own 1"])
@pytest.mark.parametrize("classes", [2, 3])
def test_counts_are_scored_by_count_score_and_other_sums_by_score(
    classes: int, distribution: str
) -> None:
    functions = CriterionFunctions(
        score=lambda parent, children: 1.0,
        extras=CriterionExtras(count_score=lambda parent, children: 2.0),
    )
    origin = Origin("criterion", "own", distribution)
    pointers = compile_criterion(functions, classes, False, origin, nominal=False).pointers

    def score(sums: list[float], total: float) -> list[float]:
        cuts, scores = np.zeros((classes, 8)), np.zeros(8)
        cuts[0, :], cuts[-1, : len(sums)] = 1.0, sums
        totals = np.full(classes, 3.0)
        totals[-1] = total
        pointers.score_cuts(cuts, 8, totals, scores)
        return sorted(set(scores.tolist()))

    most = float(MAX_COUNT - 3 * (classes - 1))
    assert score([0.0, 3.0, most], most) == [2.0]
    assert score([0.0], most + 1.0) == [1.0]
    assert score([0.0], most - 0.5) == [1.0]
    for other in (0.5, -1.0, most + 1.0, math.nan):
        assert score([0.0, 1.0, other], most) == [1.0]


@pytest.mark.parametrize("classes", [2, 5])
def test_entropy_of_counts_equals_entropy_of_weights_bit_for_bit(classes: int) -> None:
    score, rng = make_entropy().score, np.random.default_rng(classes)
    count_score = make_entropy().extras.count_score
    assert score is not None
    assert count_score is not None
    for _ in range(500):
        left, right = rng.integers(0, MAX_COUNT // classes // 2, (2, classes)).astype(float)
        given = left + right, np.array([left, right])
        assert count_score(*given) == score(*given)
    ends = np.zeros((2, classes))
    ends[0, 0] = MAX_COUNT
    assert count_score(ends[0], ends) == score(ends[0], ends) == 0.0
