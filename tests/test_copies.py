"""What a function names counts as it is now: in its identity, on disk and in machine code."""

from __future__ import annotations

import re
import sys
import types
from collections import namedtuple

import numba as nb
import numpy as np
import pytest
from numba.extending import overload

from treekit import CriterionFunctions
from treekit.grow import function_identity as copies
from treekit.grow.compile_criterion import compile_criterion
from treekit.grow.compile_plugin import Origin, attempt
from treekit.grow.function_identity import fingerprint, identity

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
def test_what_a_function_names_makes_another_identity_and_another_mark(text, path, order):
    scope = scope_of(order(text))
    told = identity(scope["f"]), fingerprint(scope["f"])
    assert told[1] is not None
    restore = changed(scope, path)
    assert identity(scope["f"]) != told[0]
    assert fingerprint(scope["f"]) != told[1]
    restore()
    assert (identity(scope["f"]), fingerprint(scope["f"])) == told


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
def test_machine_code_has_constants_as_they_are_now_and_so_has_the_disk(case, disk, monkeypatch):
    text, path = NAMED[case]
    scope = scope_of(text)
    for name in ("own", "tool"):  # what comes from the disk asks for its module
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))

    def ask():
        jitted, complaint = attempt(scope["f"], (nb.float64,))
        assert complaint is None
        return jitted(3.0), sum(jitted.stats.cache_hits.values())

    before, hits = ask()
    assert hits == 0
    changed(scope, path)
    assert ask() == (2.0 * before, 0)
    copies._kept.clear()  # as in another process
    assert ask() == (2.0 * before, 1)


def test_a_helper_that_is_what_it_was_is_compiled_once():
    scope = scope_of("def f(x): return a(x)\ndef g(x): return a(x) + 1.0\ndef a(x): return K * x")
    made = [copies.fresh(scope[name]) for name in ("f", "g")]
    assert made[0].__globals__["a"] is made[1].__globals__["a"] is not scope["a"]
    scope["K"] = 4.0
    assert copies.fresh(scope["f"]).__globals__["a"] is not made[0].__globals__["a"]


def test_helpers_that_call_each_other_are_copied_once_each():
    scope = scope_of(
        "def f(n): return odd(n)\ndef odd(n): return even(n)\ndef even(n): return odd(n) or f(n)"
    )
    copy = copies.fresh(scope["f"])
    odd = copy.__globals__["odd"]
    assert odd.__globals__["even"].__globals__["odd"] is odd
    assert odd.__globals__["even"].__globals__["f"] is copy


def test_a_helper_keeps_its_defaults_its_variable_arguments_and_its_signatures():
    scope = scope_of(
        "import numba\n"
        "def f(x): return a(x) + a(x, 5.0) + a(x, 1.0, 2.0) + whole(7.9)\n"
        "def a(x, scale=K, *more): return x * scale + len(more)\n"
        "@numba.njit('int64(int64)')\ndef whole(x): return x"
    )
    jitted, complaint = attempt(scope["f"], (nb.float64,))
    assert complaint is None
    assert jitted(2.0) == 4.0 + 10.0 + 3.0 + 7.0


def test_a_helper_whose_author_says_how_it_compiles_does_so_and_stays_off_the_disk(disk):
    scope = scope_of("def f(x): return table(x)\ndef table(x): return {}[x]")

    @overload(scope["table"])
    def _table(x):
        return lambda x: 10.0 * x

    jitted, complaint = attempt(scope["f"], (nb.float64,))
    assert complaint is None
    assert jitted(4.0) == 40.0
    assert not list(disk.rglob("*.nbi"))


def test_an_object_with_attributes_is_asked_as_python_and_stays_off_the_disk():
    scope = scope_of("class Settings: K = 2.0\ndef f(x): return Settings.K * x")
    assert attempt(scope["f"], (nb.float64,))[0] is None
    assert fingerprint(scope["f"]) is None


def test_attributes_that_a_module_makes_when_asked_count():
    lazy = module("lazy", "def __getattr__(name):\n    return held[name]", held={"K": 2.0})
    scope = scope_of("def f(x): return lazy.K * x")
    scope["lazy"] = lazy
    told = identity(scope["f"]), fingerprint(scope["f"])
    lazy.held["K"] = 4.0
    assert identity(scope["f"]) != told[0]
    assert fingerprint(scope["f"]) not in (None, told[1])
    assert attempt(scope["f"], (nb.float64,))[0](3.0) == 12.0


@pytest.mark.matrix
def test_all_that_a_criterion_answers_may_be_comparisons():
    functions = CriterionFunctions(
        impurity=lambda stats: stats[0] > 0.0 and stats[1] > 0.0,
        score=lambda parent, children: children[0, 0] > children[1, 0],
        choose=lambda gains, scores, levels: 0,
        priority=lambda stats: stats[0] > 3.0,
        order=lambda stats: stats[1] > stats[0],
        penalty=lambda candidates, weight: weight > 3.0,
    )
    made = compile_criterion(functions, 2, False, Origin("criterion", "own"))
    mixed, pure = np.array([4.0, 4.0]), np.array([[4.0, 0.0], [0.0, 4.0]])
    assert [made.impurity(mixed), made.impurity(pure[0])] == [1.0, 0.0]
    assert [made.priority(mixed), made.priority(pure[1])] == [1.0, 0.0]
    assert [made.score(mixed, pure), made.score(mixed, pure[::-1].copy())] == [1.0, 0.0]
    assert made.many(mixed, pure, 0) == 1.0  # the decrease of impurity
    assert made.penalty(2, 4.0) == 1.0
    keys, best = np.empty(2), np.zeros(6)
    made.key(pure, 2, 0, keys)
    assert keys.tolist() == [0.0, 1.0]
    assert made.scan(pure, 1, np.zeros(2), mixed, 1.0, 1.0, best) == 0
    assert best[0] == 1.0
