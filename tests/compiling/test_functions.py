"""Compilation and caching of kernels and of plugins' functions."""

from __future__ import annotations

import gc
import math
import os
import random
import re
import subprocess
import sys
import types
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numba as nb
import numpy as np
import pytest
from numba.extending import overload

import treekit
from tests.growing import built_in, grow, recipe_of, same_tree
from tests.reference import grow as reference
from treekit import Criterion, CriterionExtras, CriterionFunctions, splitting
from treekit.compiling import identity as copies
from treekit.compiling.criterion import CompiledCriterion, compile_criterion
from treekit.compiling.functions import Origin, try_compile
from treekit.compiling.identity import compute_fingerprint, compute_identity
from treekit.compiling.splitter import _make_compiled_find
from treekit.components import criteria as classes
from treekit.errors import PluginError, TreekitWarning
from treekit.grow.tree_builder import grow_tree
from treekit.kernels import numba_compiler as kept
from treekit.kernels import score_batch as predict
from treekit.kernels.compile import kernel, relax_garbage_collection
from treekit.kernels.intrinsics import CompiledPointer
from treekit.model.tree import Split
from treekit.splitting import (
    branch_stats,
    code_range,
    heavy_enough,
    level_split,
    missing_split,
    missing_to,
    scored,
    threshold_split,
)
from treekit.training import prepare as compiled

# ---------------------------------------------------------------- compile


def from_nowhere():
    """A function of no file: numba finds no folder for its cache, as on a read-only disk."""
    names: dict = {}
    exec(compile("def ratio(a, b):\n    return a / b\n", "<nowhere>", "exec"), names)
    return names["ratio"]


def test_kernel_compiles_without_a_writable_cache():
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(from_nowhere())
    assert kernel(from_nowhere())(1.0, 4.0) == 0.25


def test_kernels_divide_as_in_ieee_754():
    ratio = kernel(from_nowhere())
    assert ratio(1.0, 0.0) == np.inf
    assert np.isnan(ratio(0.0, 0.0))


def test_kernels_release_the_gil_and_are_cached():
    options = predict.add_leaf_units.targetoptions
    assert options["nogil"]
    assert options["error_model"] == "numpy"
    assert predict.add_leaf_units._cache.cache_path


PLUGIN = '''
"""A criterion of somebody else's, with a setting, a constant and a helper."""
from treekit.contracts import CriterionFunctions

SCALE = 1.0


def share(stats):
    return stats[1] / stats[0]


def power(q):
    def impurity(stats):
        return SCALE * (1.0 - share(stats) ** q - (1.0 - share(stats)) ** q)

    return CriterionFunctions(impurity=impurity)
'''

ASKED = """
import sys
import numpy as np
from numba.core.event import install_recorder
import plugin
from treekit.compiling.functions import Origin
from treekit.compiling.criterion import compile_criterion

told = []
with install_recorder("numba:compile") as recorder:
    for q in map(float, sys.argv[1:]):
        made = compile_criterion(plugin.power(q), 2, True, Origin("criterion", "power", "x 1"))
        made = made.pointers
        told += [made.impurity(np.array([4.0, 1.0])),
                 made.branch_score(np.array([4.0, 1.0]), np.array([[1.0, 1.0], [3.0, 0.0]]), 0)]
print(*told, len(recorder.buffer) > 0)
"""


@pytest.fixture
def asked(tmp_path):
    """Ask criteria of a plugin's file, in a process of its own."""
    plugin = tmp_path / "plugin.py"
    paths = os.pathsep.join([str(tmp_path), str(Path(treekit.__file__).parents[1])])
    own = {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}

    def ask(*powers, scale=1.0):
        text = PLUGIN.replace("SCALE = 1.0", f"SCALE = {scale}")
        if not plugin.exists() or plugin.read_text() != text:
            plugin.write_text(text)
        call = [sys.executable, "-c", ASKED, *map(str, powers)]
        said = subprocess.run(
            call, env=os.environ | own, capture_output=True, text=True, check=False
        )
        assert said.returncode == 0, said.stderr
        *numbers, compiled = said.stdout.split()
        return [float(number) for number in numbers], compiled == "True"

    return ask


def power_of(q, scale=1.0):
    impurity = scale * (1.0 - 0.25**q - 0.75**q)
    return [pytest.approx(impurity), pytest.approx(impurity)]


@pytest.mark.system
def test_cached_plugin_code_is_reused_only_for_equal_settings(asked):
    assert asked(2) == (power_of(2), True)
    assert asked(3) == (power_of(3), True)
    # Both at once: symbols of two processes must not answer for each other.
    assert asked(3, 2) == (power_of(3) + power_of(2), False)
    assert asked(2, scale=5.0) == (power_of(2, scale=5.0), True)


def test_fingerprint_depends_on_all_names_a_function_uses(monkeypatch):
    gini = classes.make_gini().impurity
    known = compute_fingerprint(gini)
    assert known == compute_fingerprint(classes.make_gini().impurity)
    assert known != compute_fingerprint(classes.make_gini().score)
    assert known != compute_fingerprint(gini, "checked")
    ratio = compute_fingerprint(classes.make_gain_ratio().extras.choose)
    assert ratio != compute_fingerprint(classes.make_gain_ratio(slack=1e-3).extras.choose)
    monkeypatch.setattr(classes, "_NO_GAIN", 0.5)
    assert ratio != compute_fingerprint(classes.make_gain_ratio().extras.choose)


@pytest.mark.parametrize(
    "held", [object(), {"a": 1}, np.zeros(10**6), from_nowhere(), kernel(from_nowhere())]
)
def test_functions_without_a_fingerprint_are_not_cached(held):
    def function():
        return held

    assert compute_fingerprint(function) is None


def test_cache_files_of_old_settings_are_deleted(monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "MAX_CACHED_CLOSURES", 3)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def times(factor):
        def product(a):
            return factor * a

        return product

    signature = numba.float64(numba.float64)
    for factor in range(6):
        product = times(float(factor))
        assert (
            CompiledPointer(product, signature, mark=compute_fingerprint(product))(2.0)
            == 2.0 * factor
        )
    assert len(list(tmp_path.rglob("*.nbi"))) == 3
    assert len(list(tmp_path.rglob("*.nbc"))) == 3


def test_garbage_collection_is_relaxed_during_compilation_and_restored():
    usual = gc.get_threshold()
    with relax_garbage_collection():
        assert gc.get_threshold()[0] > 10 * usual[0]
        with relax_garbage_collection():
            pass
        assert gc.get_threshold() != usual
    assert gc.get_threshold() == usual


def first_cut(node, criterion, rng):
    return splitting.threshold(node, 0, 0, criterion.score(node.stats, np.zeros((2, 2))))


def second_cut(node, criterion, rng):
    return splitting.threshold(node, 0, 1, criterion.score(node.stats, np.zeros((2, 2))))


def test_fingerprint_of_a_compiled_splitter_depends_on_its_code():
    told = [
        compute_fingerprint(_make_compiled_find(find, False, False), False)
        for find in (first_cut, first_cut, second_cut)
    ]
    assert None not in told
    assert told[0] == told[1] != told[2]
    assert told[0] != compute_fingerprint(_make_compiled_find(first_cut, True, False), False)


# ---------------------------------------------------------------- copies
# What a function names counts as it is now: in its identity, on disk and in machine code.

Pair = namedtuple("Pair", ["x", "y"])
Turned = namedtuple("Pair", ["y", "x"])


def module(name, text="", **named):
    """A module of that name; its functions are of this file, which is there to be looked at."""
    made = types.ModuleType(name)
    vars(made).update(named)
    exec(compile(text, __file__, "exec"), vars(made))
    return made


def package():
    """A package with constants at three depths, a circle, and a function for numba."""
    pkg = module("strange", K=2.0, pair=Pair(3.0, 5.0))
    pkg.sub = module("strange.sub", K=7.0, top=pkg)
    pkg.sub.deep = module("strange.deep", K=11.0, top=pkg)
    text = "def weigh(x):\n    return K * helper(x)\ndef helper(x):\n    return L * x"
    pkg.tool = module("tool", text, K=13.0, L=17.0)
    pkg.tool.helper = nb.njit(pkg.tool.helper)
    pkg.tool.weigh = nb.njit(pkg.tool.weigh)
    return pkg


NAMED = {
    "a constant": ("def f(x): return K * x", "K"),
    "a helper's constant": ("def f(x): return a(x)\ndef a(x): return K * x", "K"),
    "the constant of a helper's helper": (
        "def f(x): return a(x)\ndef a(x): return b(x)\ndef b(x): return K * x",
        "K",
    ),
    "a helper's constant of a module": (
        "def f(x): return a(x) * pkg.L\ndef a(x): return pkg.K * x\npkg.L = 1.0",
        "pkg.K",
    ),
    "a caller's constant of its helper's module": (
        "def f(x): return pkg.K * z(x)\ndef z(x): return pkg.L * x\npkg.L = 1.0",
        "pkg.K",
    ),
    "the second helper's constant of one module": (
        "def f(x): return a(x) + z(x)\ndef a(x): return pkg.L\ndef z(x): return pkg.K\npkg.L = 1.0",
        "pkg.K",
    ),
    "the first helper's constant of one module": (
        "def f(x): return a(x) + z(x)\ndef a(x): return pkg.K\ndef z(x): return pkg.L\npkg.L = 1.0",
        "pkg.K",
    ),
    "a constant of a part of a package": (
        "def f(x): return pkg.sub.L * z(x)\ndef z(x): return pkg.sub.K * x\npkg.sub.L = 1.0",
        "pkg.sub.K",
    ),
    "a constant further down than the caller's": (
        "def f(x): return pkg.sub.K * a(x)\ndef a(x): return pkg.sub.deep.M\npkg.sub.deep.M = 1.0",
        "pkg.sub.deep.M",
    ),
    "a constant in a circle of modules": (
        "def f(x): return a(x) + pkg.K\ndef a(x): return pkg.sub.top.M\npkg.M = 1.0",
        "pkg.M",
    ),
    "a field of a module's record": (
        "def f(x): return pkg.K * a(x)\ndef a(x): return pkg.pair.x * x",
        "pkg.pair",
    ),
    "a constant of a compiled function": (
        "def f(x): return weigh(x)\nweigh = tool.weigh",
        "tool.K",
    ),
    "a constant of a module's compiled function": (
        "def f(x): return a(x) * tool.K\ndef a(x): return tool.weigh(x)",
        "tool.L",
    ),
    "a constant in a closure's module": (
        "def make(m):\n    def f(x): return a(x) * m.L\n    def a(x): return m.K * x\n"
        "    return f\npkg.L = 1.0\nf = make(pkg)",
        "pkg.K",
    ),
}


def scope_of(text):
    pkg = package()
    return vars(module("own", text, K=2.0, pkg=pkg, tool=pkg.tool))


def changed(scope, path):
    """Set what a path of names leads to anew: twice the number, or a record of other fields."""
    *parts, last = path.split(".")
    place = scope
    for part in parts:
        place = vars(place[part])
    old = place[last]
    place[last] = Turned(*old) if isinstance(old, tuple) else 2.0 * old
    return lambda: place.update({last: old})


def turned(text):
    """The same with other names of helpers: before the names of modules, or behind."""
    return re.sub(r"\b([az])\(", lambda found: "za"["az".index(found[1])] + "(", text)


@pytest.mark.parametrize(("text", "path"), NAMED.values(), ids=NAMED)
@pytest.mark.parametrize("order", [str, turned])
def test_changing_a_global_changes_identity_and_fingerprint(text, path, order):
    scope = scope_of(order(text))
    told = compute_identity(scope["f"]), compute_fingerprint(scope["f"])
    assert told[1] is not None
    restore = changed(scope, path)
    assert compute_identity(scope["f"]) != told[0]
    assert compute_fingerprint(scope["f"]) != told[1]
    restore()
    assert (compute_identity(scope["f"]), compute_fingerprint(scope["f"])) == told


CONSTANTS = [
    "a helper's constant",
    "the constant of a helper's helper",
    "a helper's constant of a module",
    "a constant of a module's compiled function",
    "a constant in a closure's module",
]


@pytest.fixture
def disk(monkeypatch, tmp_path):
    monkeypatch.setattr(nb.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.matrix
@pytest.mark.parametrize("case", CONSTANTS)
def test_changed_constants_are_recompiled_in_memory_and_on_disk(case, disk, monkeypatch):
    text, path = NAMED[case]
    scope = scope_of(text)
    for name in ("own", "tool"):  # what comes from the disk asks for its module
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))

    def ask():
        jitted, complaint = try_compile(scope["f"], (nb.float64,))
        assert complaint is None
        return jitted(3.0), sum(jitted.stats.cache_hits.values())

    before, hits = ask()
    assert hits == 0
    changed(scope, path)
    assert ask() == (2.0 * before, 0)
    copies._cached_helpers.clear()  # as in another process
    assert ask() == (2.0 * before, 1)


def test_unchanged_helper_function_is_compiled_once():
    scope = scope_of("def f(x): return a(x)\ndef g(x): return a(x) + 1.0\ndef a(x): return K * x")
    made = [copies.copy_for_compilation(scope[name]) for name in ("f", "g")]
    assert made[0].__globals__["a"] is made[1].__globals__["a"] is not scope["a"]
    scope["K"] = 4.0
    assert copies.copy_for_compilation(scope["f"]).__globals__["a"] is not made[0].__globals__["a"]


def test_mutually_recursive_helpers_are_copied_once():
    scope = scope_of(
        "def f(n): return odd(n)\ndef odd(n): return even(n)\ndef even(n): return odd(n) or f(n)"
    )
    copy = copies.copy_for_compilation(scope["f"])
    odd = copy.__globals__["odd"]
    assert odd.__globals__["even"].__globals__["odd"] is odd
    assert odd.__globals__["even"].__globals__["f"] is copy


def test_copied_helper_keeps_defaults_varargs_and_signatures():
    scope = scope_of(
        "import numba\n"
        "def f(x): return a(x) + a(x, 5.0) + a(x, 1.0, 2.0) + whole(7.9)\n"
        "def a(x, scale=K, *more): return x * scale + len(more)\n"
        "@numba.njit('int64(int64)')\ndef whole(x): return x"
    )
    jitted, complaint = try_compile(scope["f"], (nb.float64,))
    assert complaint is None
    assert jitted(2.0) == 4.0 + 10.0 + 3.0 + 7.0


def test_helper_with_its_own_compile_options_is_not_cached(disk):
    scope = scope_of("def f(x): return table(x)\ndef table(x): return {}[x]")

    @overload(scope["table"])
    def _table(x):
        return lambda x: 10.0 * x

    jitted, complaint = try_compile(scope["f"], (nb.float64,))
    assert complaint is None
    assert jitted(4.0) == 40.0
    assert not list(disk.rglob("*.nbi"))


def test_an_object_with_attributes_runs_as_python_and_is_not_cached():
    scope = scope_of("class Settings: K = 2.0\ndef f(x): return Settings.K * x")
    assert try_compile(scope["f"], (nb.float64,))[0] is None
    assert compute_fingerprint(scope["f"]) is None


def test_identity_includes_attributes_from_module_getattr():
    lazy = module("lazy", "def __getattr__(name):\n    return held[name]", held={"K": 2.0})
    scope = scope_of("def f(x): return lazy.K * x")
    scope["lazy"] = lazy
    told = compute_identity(scope["f"]), compute_fingerprint(scope["f"])
    lazy.held["K"] = 4.0
    assert compute_identity(scope["f"]) != told[0]
    assert compute_fingerprint(scope["f"]) not in (None, told[1])
    assert try_compile(scope["f"], (nb.float64,))[0](3.0) == 12.0


@pytest.mark.matrix
def test_criterion_functions_may_return_booleans():
    functions = CriterionFunctions(
        impurity=lambda stats: stats[0] > 0.0 and stats[1] > 0.0,
        score=lambda parent, children: children[0, 0] > children[1, 0],
        priority=lambda stats: stats[0] > 3.0,
        order=lambda stats: stats[1] > stats[0],
        extras=CriterionExtras(
            choose=lambda gains, scores, levels: 0, penalty=lambda candidates, weight: weight > 3.0
        ),
    )
    made = compile_criterion(functions, 2, False, Origin("criterion", "own")).pointers
    mixed, pure = np.array([4.0, 4.0]), np.array([[4.0, 0.0], [0.0, 4.0]])
    assert [made.impurity(mixed), made.impurity(pure[0])] == [1.0, 0.0]
    assert [made.priority(mixed), made.priority(pure[1])] == [1.0, 0.0]
    assert [made.score(mixed, pure), made.score(mixed, pure[::-1].copy())] == [1.0, 0.0]
    assert made.branch_score(mixed, pure, 0) == 1.0  # the decrease of impurity
    assert made.penalty(2, 4.0) == 1.0
    keys, scores = np.empty(2), np.zeros(2)
    made.category_keys(pure, 2, 0, keys)
    assert keys.tolist() == [0.0, 1.0]
    made.score_cuts(np.array([[4.0, 0.0], [0.0, 4.0]]), 2, mixed, scores)
    assert scores.tolist() == [1.0, 1.0]  # the decrease of impurity, as it chooses columns


# ---------------------------------------------------------------- identity
# Machine code serves again where a function is what it was, and only there.

RNG = np.random.default_rng(0)
DATA = {"x": RNG.random(60), "y": RNG.integers(0, 2, 60)}
CELL = """
SCALE = 1.0

def shares(stats):
    return stats / stats.sum()

def impurity(stats):
    return SCALE * (1.0 - (shares(stats) ** 2).sum())
"""


def cell(text=CELL):
    scope = {"__name__": "__main__"}
    exec(compile(text, "<cell>", "exec"), scope)
    return scope


def criterion(scope):
    return Criterion(
        "own", "classification", lambda: CriterionFunctions(impurity=scope["impurity"])
    )


def n_leaves(scope):
    return treekit.train(DATA, "y", criterion=criterion(scope)).n_leaves


@pytest.mark.matrix
def test_rerunning_a_notebook_cell_does_not_recompile_its_criterion():
    n_leaves(cell())
    kept = len(compiled._cached_components)
    assert n_leaves(cell()) > 1
    assert len(compiled._cached_components) == kept


@pytest.mark.matrix
def test_reassigned_constant_is_used_by_the_next_training():
    scope = cell()
    assert n_leaves(scope) > 1
    scope["SCALE"] = 0.0
    assert n_leaves(scope) == 1


@pytest.mark.matrix
def test_redefined_helper_is_used_by_the_next_training():
    scope = cell()
    assert n_leaves(scope) > 1
    exec("def shares(stats):\n    return stats / stats.sum() * 0.0 + 1.0", scope)
    scope["SCALE"] = -0.0
    assert n_leaves(scope) == 1


def test_reassigned_constant_of_a_module_changes_the_identity():
    settings = types.ModuleType("own_settings")
    settings.deeper = types.ModuleType("own_settings.deeper")
    settings.deeper.settings = settings  # a circle, as packages have them
    settings.SCALE, settings.deeper.LEAST = 1.0, 0.0
    text = "def impurity(stats):\n    return settings.SCALE + settings.deeper.LEAST"
    scope = cell(text)
    scope["settings"] = settings
    keys = {compute_identity(scope["impurity"])}
    settings.SCALE = 2.0
    keys.add(compute_identity(scope["impurity"]))
    settings.deeper.LEAST = 1.0
    keys.add(compute_identity(scope["impurity"]))
    assert len(keys) == 3
    assert compute_identity(scope["impurity"]) in keys


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("lambda: 1", "lambda: 1.0"),
        ("lambda: 0.0", "lambda: -0.0"),
        ("lambda a=1: a", "lambda a=True: a"),
        ("(lambda c: lambda: c)(1)", "(lambda c: lambda: c)(1.0)"),
        ("(lambda c: lambda: c)((1,))", "(lambda c: lambda: c)((True,))"),
        ("(lambda c: lambda: c[0])(np.zeros(2))", "(lambda c: lambda: c[0])(np.ones(2))"),
        ("(lambda c: lambda: c[0])(np.zeros(2))", "(lambda c: lambda: c[0])(np.zeros(2, int))"),
        ("lambda: [i + A for i in (1,)]", "lambda: [i + B for i in (1,)]"),
    ],
)
def test_functions_that_compile_to_different_code_differ_in_identity(one, other):
    scope = {"np": np, "math": math, "A": 1, "B": 2}
    made = [compute_identity(eval(text, scope)) for text in (one, other)]
    assert made[0] != made[1]
    again = compute_identity(eval(one, scope))
    assert made[0] == again
    assert hash(made[0]) == hash(again)


def test_mutually_recursive_functions_have_an_identity():
    scope = {}
    exec("def odd(n): return n and even(n - 1)\ndef even(n): return not n or odd(n - 1)", scope)
    assert hash(compute_identity(scope["odd"])) != hash(compute_identity(scope["even"]))


# ---------------------------------------------------------------- grow plugins
# Criteria and splitters of third parties: good ones grow right trees, bad ones are named.

TWO = reference.Problem([[0.0, 1.0, 2.0, 3.0]], [0, 0, 1, 1], [None], "gini", 2)


def grow_plugins_criterion(**functions: Callable[..., Any]) -> CompiledCriterion:
    return compile_criterion(
        CriterionFunctions(**functions), 2, False, Origin("criterion", "mine", "their-package 1.2")
    )


def plain_gini(stats: Any) -> float:
    weight = stats.sum()
    return 1.0 - (stats * stats).sum() / (weight * weight)


def test_gini_in_plain_python_grows_the_tree_of_the_built_in_gini() -> None:
    rng = random.Random(1)
    x = [[rng.randrange(9) / 2 for _ in range(50)] for _ in range(3)]
    y = [int(a + b > 4) for a, b, _ in zip(*x, strict=True)]
    problem = reference.Problem(x, y, [None] * 3, "gini", 2)
    same_tree(
        problem,
        grow(problem, criterion=grow_plugins_criterion(impurity=plain_gini)),
        reference.grow(problem),
    )


def test_functions_numba_cannot_compile_run_as_python_with_a_warning() -> None:
    def by_words(stats: Any) -> float:
        label = f"{stats[0]:.1f}".strip()  # numba has no such format
        return 1.0 - max(float(label), stats[1]) / stats.sum()

    with pytest.warns(TreekitWarning, match=r"criterion 'mine'.*test_functions.py, line \d+"):
        slow = grow_plugins_criterion(impurity=by_words)
    assert grow(TWO, criterion=slow).tree.threshold[0] == 1.5


def test_nan_score_raises_an_error_naming_plugin_and_statistics() -> None:
    bad = grow_plugins_criterion(score=lambda parent, children: math.nan)
    with pytest.raises(PluginError, match=r"criterion 'mine' \(from their-package 1.2\).*NaN") as e:
        grow(TWO, criterion=bad)
    assert "[1.0, 0.0]" in str(e.value)


def test_exception_in_a_criterion_raises_an_error_naming_the_plugin() -> None:
    def refuses(parent: Any, children: Any) -> float:
        if parent[0] > 1:
            raise ValueError("no such split")
        return 0.0

    with pytest.raises(PluginError, match=r"criterion 'mine'.*ValueError: no such split"):
        grow(TWO, criterion=grow_plugins_criterion(score=refuses))


def test_function_that_always_raises_is_reported_with_its_line() -> None:
    def refuses(parent: Any, children: Any) -> float:
        raise ValueError("not yet")

    line = refuses.__code__.co_firstlineno + 1
    with pytest.raises(PluginError, match=rf"ValueError: not yet in score \(.*, line {line}\)"):
        grow(TWO, criterion=grow_plugins_criterion(score=refuses))


def test_an_undefined_name_is_an_error_that_names_it_and_its_line() -> None:
    def has_undefined_name(stats: Any) -> float:
        return 1.0 - stats[0] / wieght  # noqa: F821

    line = has_undefined_name.__code__.co_firstlineno + 1
    said = rf"the undefined name 'wieght' in impurity \(.*functions.py, line {line}\)"
    with pytest.raises(PluginError, match=said):
        grow_plugins_criterion(impurity=has_undefined_name)


def divides_in_place(stats: Any) -> float:
    stats /= stats.sum()
    return 1.0 - (stats * stats).sum()


def compares_an_array(stats: Any) -> float:
    return abs(stats - stats.sum())


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (divides_in_place, "it changes a read-only array, such as its arguments; copy the array"),
        (compares_an_array, r"line \d+: numba has no abs\(array\(float64, 1d, C\)\)$"),
    ],
)
def test_warning_of_a_failed_compilation_ends_with_the_full_reason(
    function: Any, said: str
) -> None:
    with pytest.warns(TreekitWarning, match=f"runs as Python, much slower: .*{said}"):
        grow_plugins_criterion(impurity=function)


@pytest.mark.matrix
def test_exception_in_an_uncompiled_criterion_raises_plugin_error() -> None:
    def refuses(stats: Any) -> float:
        raise KeyError(f"{stats!r}"[:5])

    with pytest.warns(TreekitWarning, match="criterion 'mine'"):
        slow = grow_plugins_criterion(impurity=refuses)
    with pytest.raises(PluginError, match=r"criterion 'mine'.*KeyError"):
        grow(TWO, criterion=slow)


@pytest.mark.matrix
def test_criterion_that_writes_to_its_statistics_raises_an_error() -> None:
    def writes(parent: Any, children: Any) -> float:
        children[0, 0] = 0.0
        return 1.0

    with pytest.warns(TreekitWarning, match="criterion 'mine'"):
        slow = grow_plugins_criterion(score=writes)
    with pytest.raises(PluginError, match=r"criterion 'mine'.*read-only"):
        grow(TWO, criterion=slow)


@pytest.mark.matrix
def test_an_infinite_score_is_reported_with_the_statistics_of_the_cut() -> None:
    def lopsided(parent: Any, children: Any) -> float:
        return 1.0 / (children[0].sum() - 1.0)  # 1/0 at the first cut

    with pytest.raises(PluginError, match=r"'mine'.* returned an infinite number from sc") as e:
        grow(TWO, criterion=grow_plugins_criterion(score=lopsided))
    assert "[2.0, 2.0] and [[1.0, 0.0], [1.0, 2.0]]" in str(e.value)


@pytest.mark.matrix
def test_callable_object_is_accepted_as_a_criterion_function() -> None:
    class Scaled:
        def __call__(self, stats: Any) -> float:
            return 2.0 * plain_gini(stats)

    with pytest.warns(TreekitWarning, match="criterion 'mine'.*runs as Python"):
        slow = grow_plugins_criterion(impurity=Scaled())
    assert grow(TWO, criterion=slow).tree.threshold[0] == 1.5


def test_priority_function_orders_best_first_growth() -> None:
    # The root's children weigh 5 and 3; only one more split is allowed.
    y = [0, 0, 1, 0, 0, 1, 1, 0]
    columns = [[0.0] * 5 + [1.0] * 3, [0, 0, 1, 0, 0, 0, 0, 1]]
    problem = reference.Problem(columns, y, [None, None], "gini", 2, max_leaves=3)
    heavy = grow_plugins_criterion(impurity=plain_gini, priority=lambda stats: stats.sum())
    light = grow_plugins_criterion(impurity=plain_gini, priority=lambda stats: -stats.sum())
    for criterion, opened in ((heavy, 5.0), (light, 3.0)):
        tree = grow(problem, criterion=criterion).tree
        assert tree.n_leaves == 3
        inner = tree.kind != Split.LEAF
        assert tree.weight[inner].tolist() == [8.0, opened]


def find_every_cut(node: Any, criterion: Any, rng: Any) -> Any:
    """The exact numeric search, written with the public makers."""
    best = missing_split(0)
    best_score = 0.0
    for feature in range(len(node.table.n_codes)):
        low, high, missing = code_range(node, feature)
        for cut in range(low, high):
            for side in range(1 if missing else -1, -2 if not missing else -1, -1):
                split = threshold_split(feature, cut)
                if missing:
                    split = missing_to(split, side)
                children = branch_stats(node, split)
                if heavy_enough(node, children):
                    score = criterion.score(node.stats, children)
                    if score > best_score + 1e-9 * max(best_score, node.impurity):
                        best, best_score = scored(split, score), score
                if not missing:
                    break
    if best_score > 0.0:
        return best
    return None


def find_every_cut_as_python(node: Any, criterion: Any, rng: Any) -> Any:
    f"{node.weight:.1f}".strip()  # numba has no such format
    return find_every_cut(node, criterion, rng)


def table_of_numbers(seed: int) -> reference.Problem:
    rng = random.Random(seed)
    x = [[rng.choice([None, 0.0, 1.0, 2.0, 3.0, 4.5]) for _ in range(40)] for _ in range(2)]
    x[0] = [4.0 if v is None else v for v in x[0]]
    y = [int(a > 2) ^ int(rng.random() < 0.2) for a in x[0]]
    return reference.Problem(x, y, [None, None], "gini", 2)


@pytest.mark.matrix
def test_compiled_splitter_finds_the_best_root_split_of_the_oracle() -> None:
    problem = table_of_numbers(1)
    ours = grow(problem, find=find_every_cut)
    expected = reference.grow(problem)
    assert expected.cut is not None
    assert ours.tree.threshold[0] == expected.cut.threshold
    assert ours.tree.gain[0] == pytest.approx(expected.cut.gain)
    assert ours.tree.weight[ours.tree.leaves].sum() == 40


@pytest.mark.matrix
def test_compiled_and_python_splitter_grow_equal_trees() -> None:
    problem = table_of_numbers(2)
    fast = grow(problem, find=find_every_cut).tree
    with pytest.warns(TreekitWarning, match="splitter 'find_every_cut_as_python'.*runs as Python"):
        slow = grow(problem, find=find_every_cut_as_python).tree
    assert fast.kind.tolist() == slow.kind.tolist()
    np.testing.assert_array_equal(fast.threshold, slow.threshold)
    np.testing.assert_array_equal(fast.value, slow.value)


def find_lowest(node: Any, criterion: Any, rng: Any) -> Any:
    low, high, _ = code_range(node, 0)
    return scored(threshold_split(0, low), 1.0) if low < high else None


@pytest.mark.matrix
def test_splitter_may_grow_a_chain_of_depth_3000() -> None:
    n = 3000
    problem = reference.Problem([list(range(n))], [i % 2 for i in range(n)], [None], "gini", 2)
    tree = grow(problem, find=find_lowest).tree
    # The last two rows and all before them are told apart one by one.
    assert tree.n_nodes == 2 * n - 1
    first = tree.first_child
    node = depth = 0
    while first[node] >= 0:
        node, depth = int(first[node]) + 1, depth + 1
    assert depth == n - 1


IMPOSSIBLE = [
    "no such column",
    "a cut above all codes",
    "a threshold outside its cut",
    "a threshold on levels",
    "a branch without rows",
    "a level in no branch",
    "too few levels",
]


def find_impossible(node: Any, criterion: Any, rng: Any) -> Any:
    which = node.n_try  # one function for all: each compilation takes a second
    if which == 0:
        return scored(threshold_split(7, 0), 1.0)
    if which == 1:
        return scored(threshold_split(0, 3), 1.0)
    if which == 2:
        return scored(threshold_split(0, 0, 2.5), 1.0)
    if which == 3:
        return scored(threshold_split(1, 0), 1.0)
    if which == 4:
        return scored(missing_split(0), 1.0)
    if which == 5:
        return scored(level_split(1, np.array([0, 1, 2], np.int32), 2), 1.0)
    return scored(level_split(1, np.array([0, 1], np.int32), 2), 1.0)


@pytest.mark.matrix
def test_an_impossible_split_is_refused() -> None:
    problem = reference.Problem(
        [[0.0, 1.0, 2.0, 3.0], [0, 1, 2, 0]], [0, 0, 1, 1], [None, 3], "gini", 2
    )
    recipe = recipe_of(problem, find=find_impossible)
    rows = np.arange(4, dtype=np.uint32)
    some, none = recipe.target.select_rows(rows, None), recipe.target.select_rows(rows[:0], None)
    for which in range(len(IMPOSSIBLE)):
        asked = replace(recipe, limits=recipe.limits._replace(n_try=which))
        with pytest.raises(PluginError, match=r"splitter 'find_impossible'.*impossible"):
            grow_tree(asked, some, none, 0)


def find_and_raise(node: Any, criterion: Any, rng: Any) -> Any:
    if node.depth == 0:
        raise RuntimeError("lost")
    return scored(threshold_split(0, 0), 1.0)


@pytest.mark.matrix
def test_splitter_that_raises_is_reported() -> None:
    with pytest.raises(PluginError, match=r"splitter 'find_and_raise'.*RuntimeError"):
        grow(TWO, find=find_and_raise)


@pytest.mark.matrix
def test_built_in_splitter_grows_the_same_tree_after_a_plugin_was_used() -> None:
    grow(TWO, find=find_lowest)
    same_tree(TWO, grow(TWO, criterion=built_in("gini", 2)), reference.grow(TWO))
