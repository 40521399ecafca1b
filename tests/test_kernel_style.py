"""House rules of kernels: unsigned subscripts, and a cache that notices every change."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import pytest
from numba.core import ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass

from tests.growing import grow, recipe_of
from tests.reference.grow import Problem
from treekit.components.criteria import quantile_loss
from treekit.data.schema import Column, Schema
from treekit.grow.compile_criterion import compile_criterion
from treekit.grow.compile_plugin import Origin
from treekit.grow.route import route
from treekit.kernels import axis_splits as axis
from treekit.kernels import feature_codes as keys
from treekit.kernels import grow_tree as growing
from treekit.kernels import node_statistics as tally
from treekit.kernels import partition_rows as fractional
from treekit.kernels import partition_rows as move
from treekit.kernels import quantile_splits as bitset
from treekit.kernels import quantile_splits as rank_axis
from treekit.kernels import quantile_splits as rank_groups
from treekit.kernels import quantile_splits as rank_levels
from treekit.kernels import quantile_splits as rank_many
from treekit.kernels import quantile_statistics as ranks
from treekit.kernels import route_rows as leading
from treekit.kernels import rule_bitsets as dropping
from treekit.kernels import score_batch as derived
from treekit.kernels import score_batch as predict
from treekit.kernels import score_batch as straight
from treekit.kernels import score_fractional as divided
from treekit.kernels import score_row as single
from treekit.kernels.records import Ways
from treekit.model import scoring as scorer
from treekit.model.builder import build_tree, leaf, oblique, subset, threshold
from treekit.model.model import make_model
from treekit.rule_learning.c45rules import rate_bound

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
def test_subscripts_in_growth_are_unsigned() -> None:
    rng = random.Random(0)
    columns = [[rng.random() for _ in range(40)], [rng.randrange(3) for _ in range(40)]]
    problem = Problem(columns, [rng.randrange(2) for _ in range(40)], [None, 3], "gini", 2)
    recipe = recipe_of(problem)
    grow(problem)
    parts = grow(problem, ways=Ways(known_only=True), fractional=True)
    route(parts.tree, recipe.table, parts.rows, 2, fractional=True)
    signed = signed_subscripts(axis.find_axis.py_func, recipe.splitter.find.pointer_signature.args)
    more, checked = signed_in(growing, move, tally, axis, fractional, leading)
    assert signed + more == []
    assert checked >= 8  # the search, the loop over nodes, parts, and what they call


@pytest.mark.system
def test_subscripts_in_searches_of_quantiles_are_unsigned() -> None:
    rng = random.Random(0)
    columns = [[rng.random() for _ in range(40)], [rng.randrange(3) for _ in range(40)]]
    level = Fraction(1, 2)
    y = [rng.random() for _ in range(40)]
    problem = Problem(columns, y, [None, 3], "quantile", quantile=level)
    part = compile_criterion(quantile_loss(0.5), 4, True, Origin("criterion", "quantile"))
    search: Any = rank_axis.find_rank_axis
    search.compile(recipe_of(problem, part).splitter.find.pointer_signature.args)
    signed, checked = signed_in(rank_axis, rank_groups, rank_levels, rank_many, ranks, bitset)
    assert signed == []
    assert checked >= 8


@pytest.mark.system
@pytest.mark.parametrize("missing", ["surrogate", "fractional"])
def test_subscripts_in_scoring_are_unsigned(missing: Any) -> None:
    schema = Schema((Column("x"), Column("c", "nominal", ("a", "b"))), classes=(0, 1))
    below = oblique({"x": 2.0}, 1.0, leaf([1, 0]), leaf([0, 1]))
    tree = build_tree(subset("c", ["a"], below, leaf([1, 1])), schema)
    model = make_model(schema, [tree], missing=missing)
    scorer.sums(model, np.zeros((20, 2)))
    scorer.leaf_indices(model, np.zeros((20, 2)))
    modules = (divided, keys) if missing == "fractional" else (predict, derived, keys)
    signed, checked = signed_in(*modules)
    assert signed == []
    assert checked >= 4


@pytest.mark.system
def test_subscripts_in_scoring_a_row_or_a_single_tree_are_unsigned() -> None:
    schema = Schema((Column("x"),), classes=(0, 1))
    model = make_model(schema, [build_tree(threshold(0, 1.0, leaf([1, 0]), leaf([0, 1])), schema)])
    model.scorer()(np.zeros(1, np.float32))
    scorer.leaf_indices(model, np.zeros((20, 1)))
    signed, checked = signed_in(single, straight)
    assert signed == []
    assert checked >= 2


@pytest.mark.system
def test_subscripts_in_dropping_conditions_are_unsigned() -> None:
    sets, node = np.zeros((3, 1), np.uint64), np.array([1, 2])
    bound = rate_bound(0.25)
    kept, rates = np.zeros(2, np.bool_), np.zeros(2)
    classes = sets[:2].copy()
    dropping.drop_conditions(
        sets, node, node, node - 1, classes, sets[0].copy(), rates[:0], bound, kept, rates
    )
    dropping.weigh(sets, rates, np.zeros(3))
    signed, checked = signed_in(dropping)
    assert signed == []
    assert checked >= 4


def test_the_rule_sees_a_signed_subscript() -> None:
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
from house.compile import kernel
from house.helper import helper

@kernel
def total(x):
    return helper(x) + 1
"""
HELPER = """
from house.compile import kernel

@kernel
def helper(x):
    return x * {factor}
"""


@pytest.fixture
def copy_of_kernels(tmp_path: Path) -> Path:
    """A package of its own that compiles as ours does, and two kernels in different files."""
    folder = tmp_path / "house"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for name in ("compile.py", "kept.py", "notice.py"):
        text = (PACKAGE / "kernels" / name).read_text()
        (folder / name).write_text(text.replace("treekit.kernels", "house"))
    (folder / "total.py").write_text(KERNEL)
    (folder / "helper.py").write_text(HELPER.format(factor=10))
    return folder


def run(folder: Path, code: str = "") -> str:
    script = code + (
        "\nfrom house.total import total\nprint(total(4), sum(total.stats.cache_hits.values()))"
    )
    environment = dict(os.environ, PYTHONPATH=str(folder.parent))
    environment.pop("NUMBA_CACHE_DIR", None)
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
def test_the_cache_notices_a_change_in_a_helper_of_another_file(copy_of_kernels: Path) -> None:
    assert run(copy_of_kernels) == "41 0"
    (copy_of_kernels / "helper.py").write_text(HELPER.format(factor=100))
    assert run(copy_of_kernels) == "401 0"


@pytest.mark.system
def test_a_damaged_cache_costs_time_only(copy_of_kernels: Path) -> None:
    assert run(copy_of_kernels) == "41 0"
    for file in (copy_of_kernels / "__pycache__").glob("*.nb?"):
        file.write_bytes(file.read_bytes()[:40])
    assert run(copy_of_kernels) == "41 0"
    assert run(copy_of_kernels) == "41 1"


@pytest.mark.system
def test_without_a_folder_for_the_cache_kernels_still_run(copy_of_kernels: Path) -> None:
    nowhere = """
from numba.core.caching import CacheImpl
CacheImpl._locator_classes = []
"""
    assert run(copy_of_kernels, nowhere) == "41 0"


@pytest.mark.system
def test_a_full_disk_stops_no_kernel(copy_of_kernels: Path) -> None:
    full = """
from numba.core.caching import IndexDataCacheFile
def save(*_): raise OSError(28, "No space left on device")
IndexDataCacheFile.save = save
"""
    assert run(copy_of_kernels, full) == "41 0"


@pytest.mark.system
def test_a_numba_with_other_inner_names_uses_its_own_cache(copy_of_kernels: Path) -> None:
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
