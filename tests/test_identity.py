"""Machine code serves again where a function is what it was, and only there."""

import math
import types

import numpy as np
import pytest

import treekit
from treekit import Criterion, CriterionFunctions
from treekit.grow.function_identity import identity
from treekit.training import prepare as compiled

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
def test_a_cell_that_is_run_again_is_not_compiled_again():
    n_leaves(cell())
    kept = len(compiled._kept)
    assert n_leaves(cell()) > 1
    assert len(compiled._kept) == kept


@pytest.mark.matrix
def test_a_constant_that_was_set_anew_counts_from_then_on():
    scope = cell()
    assert n_leaves(scope) > 1
    scope["SCALE"] = 0.0
    assert n_leaves(scope) == 1


@pytest.mark.matrix
def test_a_helper_that_was_written_anew_counts_from_then_on():
    scope = cell()
    assert n_leaves(scope) > 1
    exec("def shares(stats):\n    return stats / stats.sum() * 0.0 + 1.0", scope)
    scope["SCALE"] = -0.0
    assert n_leaves(scope) == 1


def test_a_constant_of_a_module_that_was_set_anew_counts_from_then_on():
    settings = types.ModuleType("own_settings")
    settings.deeper = types.ModuleType("own_settings.deeper")
    settings.deeper.settings = settings  # a circle, as packages have them
    settings.SCALE, settings.deeper.LEAST = 1.0, 0.0
    text = "def impurity(stats):\n    return settings.SCALE + settings.deeper.LEAST"
    scope = cell(text)
    scope["settings"] = settings
    keys = {identity(scope["impurity"])}
    settings.SCALE = 2.0
    keys.add(identity(scope["impurity"]))
    settings.deeper.LEAST = 1.0
    keys.add(identity(scope["impurity"]))
    assert len(keys) == 3
    assert identity(scope["impurity"]) in keys


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
def test_functions_that_compile_to_other_code_have_other_identities(one, other):
    scope = {"np": np, "math": math, "A": 1, "B": 2}
    made = [identity(eval(text, scope)) for text in (one, other)]
    assert made[0] != made[1]
    again = identity(eval(one, scope))
    assert made[0] == again
    assert hash(made[0]) == hash(again)


def test_functions_that_call_each_other_have_an_identity():
    scope = {}
    exec("def odd(n): return n and even(n - 1)\ndef even(n): return not n or odd(n - 1)", scope)
    assert hash(identity(scope["odd"])) != hash(identity(scope["even"]))
