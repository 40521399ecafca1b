"""Numeric settings of a plugin's criterion: arguments of code that is compiled once."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.event import install_recorder

import treekit
from tests.kernels.library_flows import digest_model
from treekit import Criterion, CriterionFunctions, Setting
from treekit.compiling import settings as setting_arguments
from treekit.errors import PluginError
from treekit.training import prepare

SCALE = 1.0


def make_linear(balance: float) -> CriterionFunctions:
    def score(parent: Any, children: Any) -> float:
        gap = abs(children[0, 0] / parent[0] - children[0, 1] / parent[1])
        return gap * SCALE - balance * abs(children[0].sum() / parent.sum() - 0.5)

    return CriterionFunctions(score=score)


def make_power(q: float) -> CriterionFunctions:
    def impurity(stats: Any) -> float:
        total = 0.0
        for k in range(len(stats)):
            total += (stats[k] / stats.sum()) ** q
        return (1.0 - total) / (q - 1.0)

    return CriterionFunctions(impurity=impurity)


def make_derived_power(q: float) -> CriterionFunctions:
    def score(parent: Any, children: Any) -> float:
        shares = children[:, 1] / (children[:, 0] + children[:, 1])
        return abs(shares[0] - shares[1]) ** (q - 1.0)

    return CriterionFunctions(score=score)


def make_int_power(power: int) -> CriterionFunctions:
    def score(parent: Any, children: Any) -> float:
        return abs(children[0, 0] / parent[0] - children[0, 1] / parent[1]) ** power

    return CriterionFunctions(score=score)


def make_ranged(steps: int) -> CriterionFunctions:
    def score(parent: Any, children: Any) -> float:
        total = 0.0
        for step in range(steps):
            share = children[0, step % 2] / parent[step % 2]
            total += abs(share - children[0].sum() / parent.sum()) / (step + 1.0)
        return total

    return CriterionFunctions(score=score)


def make_branched(limit: float) -> CriterionFunctions:
    highest = math.inf if limit > 1.0 else limit

    def score(parent: Any, children: Any) -> float:
        gap = abs(children[0, 0] / parent[0] - children[0, 1] / parent[1])
        if highest == 0.0:
            return gap
        return min(gap, highest)

    return CriterionFunctions(score=score)


def make_nested(weight: float) -> CriterionFunctions:
    def impurity_of(share: float) -> float:
        return share * (1.0 - share) + weight * min(share, 1.0 - share)

    def impurity(stats: Any) -> float:
        return impurity_of(stats[0] / stats.sum())

    def priority(stats: Any) -> float:
        return impurity(stats) * stats.sum()

    return CriterionFunctions(impurity=impurity, priority=priority)


def make_fast(balance: float) -> CriterionFunctions:
    @numba.njit(fastmath=True)
    def divide(number: float, by: float) -> float:
        return number / by

    def score(parent: Any, children: Any) -> float:
        return divide(abs(children[0, 0] / parent[0] - children[0, 1] / parent[1]), balance)

    return CriterionFunctions(score=score)


def make_constant(place: int) -> CriterionFunctions:
    kinds = (0.25, 1)  # only a constant index has a type

    def score(parent: Any, children: Any) -> float:
        gap = abs(children[0, 0] / parent[0] - children[0, 1] / parent[1])
        return gap * kinds[place]

    return CriterionFunctions(score=score)


CRITERIA: dict[str, tuple[Callable[..., CriterionFunctions], str, list[Any]]] = {
    "a float": (make_linear, "balance", [0.1, -0.0]),
    "an exponent": (make_power, "q", [1.3, math.e]),
    "a length of a loop": (make_ranged, "steps", [1, 7]),
    "a branch": (make_branched, "limit", [0.0, 2.0]),
    "a helper": (make_nested, "weight", [0.1, 1e300]),
}

CONSTANTS: dict[str, tuple[Callable[..., CriterionFunctions], str, list[Any]]] = {
    "an exponent without pow": (make_power, "q", [2.0, 0.5]),
    "a computed exponent": (make_derived_power, "q", [3.0, 2.7]),
    "an int exponent": (make_int_power, "power", [3, -2]),
    "fast mathematics": (make_fast, "balance", [3.0, 7.0]),
    "a place in a tuple": (make_constant, "place", [0, 1]),
}


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Forget the criteria compiled before, also those on disk."""
    monkeypatch.setattr(prepare, "_cached_components", {})
    monkeypatch.setattr(setting_arguments, "_codes", {})
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "kept"))


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    y = x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=300) > 0.3
    return {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y.astype(int)}


def train(table: Any, make: Callable[..., CriterionFunctions], **values: Any) -> treekit.Model:
    settings = tuple(Setting(name, value, "a number") for name, value in values.items())
    own = Criterion("own", "classification", make, settings)
    return treekit.train(table, "y", criterion=own, splitter="exact", max_depth=5)


def count_compilations(train_models: Callable[[], Any]) -> int:
    with install_recorder("numba:compile") as recorder:
        train_models()
    return len(recorder.buffer)


def compare(
    table: Any, make: Any, name: str, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> int:
    """Compare models with those of constants; return the compilations for the second value."""

    def train_all(own: list[Any]) -> list[str]:
        return [digest_model(train(table, make, **{name: value})) for value in own]

    digests = train_all(values[:1])
    count = count_compilations(lambda: digests.extend(train_all(values[1:])))
    monkeypatch.setattr(prepare, "_cached_components", {})
    monkeypatch.setattr(setting_arguments, "_get_code", lambda *_: None)
    assert train_all(values) == digests
    return count


@pytest.mark.kernels
@pytest.mark.parametrize(("make", "name", "values"), CRITERIA.values(), ids=CRITERIA)
def test_numeric_settings_compile_once_and_train_as_constants_do(
    table: Any, make: Any, name: str, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compare(table, make, name, values, monkeypatch) == 0


@pytest.mark.matrix
@pytest.mark.parametrize(("make", "name", "values"), CONSTANTS.values(), ids=CONSTANTS)
def test_numbers_required_as_constants_are_recompiled(
    table: Any, make: Any, name: str, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compare(table, make, name, values, monkeypatch) > 0


@pytest.mark.kernels
def test_concurrent_trainings_use_their_own_settings(table: Any) -> None:
    values = [0.05 * k for k in range(12)]
    expected = [digest_model(train(table, make_linear, balance=value)) for value in values]
    assert len(set(expected)) > 4
    prepare._cached_components.clear()
    setting_arguments._codes.clear()
    with ThreadPoolExecutor(4) as pool:
        models = pool.map(lambda value: train(table, make_linear, balance=value), values * 3)
        assert [digest_model(model) for model in models] == expected * 3


def test_compiled_functions_keep_their_settings_while_others_are_loaded() -> None:
    def compile_for(balance: float) -> Any:
        functions = make_linear(balance)
        origin = prepare.Origin("criterion", "own", "their-package 1.2")
        own = setting_arguments.compile_for_all_values(
            functions, 2, False, origin, {}, nominal=False
        )
        return own.pointers.score, functions.score

    parent, children = np.array([4.0, 2.0]), np.array([[3.0, 1.0], [1.0, 1.0]])
    pointers = [compile_for(balance) for balance in (0.5, -0.0, math.inf, math.nan)]
    for pointer, score in pointers:
        np.testing.assert_equal(pointer(parent, children), score(parent, children))


@pytest.mark.kernels
def test_changed_constant_or_type_recompiles(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = train(table, make_linear, balance=0.3)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert count_compilations(lambda: train(table, make_linear, balance=0.4)) > 0
    changed = train(table, make_linear, balance=0.3)
    assert digest_model(changed) != digest_model(before)
    assert count_compilations(lambda: train(table, make_linear, balance=1)) > 0


@pytest.mark.kernels
def test_integers_that_are_not_settings_are_constants(table: Any) -> None:
    def make(steps: int) -> CriterionFunctions:
        doubled = 2 * steps
        return make_ranged(doubled)

    train(table, make, steps=1)
    assert count_compilations(lambda: train(table, make, steps=2)) > 0


@pytest.mark.kernels
def test_python_objects_in_a_function_get_the_value_of_the_setting(table: Any, capfd: Any) -> None:
    def make(balance: float) -> CriterionFunctions:
        def score(parent: Any, children: Any) -> float:
            if children[0].sum() == 1.0:
                print("one row and", balance)
            return abs(children[0, 0] / parent[0] - children[0, 1] / parent[1])

        return CriterionFunctions(score=score)

    train(table, make, balance=0.25)
    assert "one row and 0.25" in capfd.readouterr().out


@pytest.mark.kernels
def test_exception_in_a_function_with_settings_names_the_statistics(table: Any) -> None:
    def make(limit: float) -> CriterionFunctions:
        def score(parent: Any, children: Any) -> float:
            if children[0].sum() > limit:
                raise ValueError("too many rows")
            return 0.0

        return CriterionFunctions(score=score)

    with pytest.raises(PluginError, match=r"ValueError: too many rows in score .*statistics"):
        train(table, make, limit=17.0)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("call double @llvm.pow.f64(double %x, double 1.500000e+00)", set()),
        ("call double @llvm.pow.f64(double %x, double %own)", {1}),
        ("call double @pow(double %x, double %merged)", {0, 1}),
        ("call double @llvm.pow.f64(double %x, double %kept)", {1}),
        ("call double @llvm.pow.f64(double %x, double %sum)", None),
        ("call double @llvm.pow.f64(double %x, double %some)", None),
        ("call double @llvm.pow.f64(double %x, double %data)", None),
        ("call double @llvm.pow.f64(double %x, double %other)", None),
        ("call <2 x double> @llvm.pow.v2f64(<2 x double> %x, <2 x double> %y)", None),
        ("call double @exp2(double %own)", None),
    ],
)
def test_literal_exponents_in_llvm_code_are_found(text: str, places: set[int] | None) -> None:
    body = f"""
define double @f(double %x, ptr %p) {{
  %own = load double, ptr getelementptr inbounds nuw (i8, ptr @treekit_settings, i64 8), align 8
  %first = load double, ptr @treekit_settings, align 8, !invariant.load !1
  %merged = phi double [ %own, %A ], [ %first, %B ]
  %kept = freeze double %own
  %some = phi double [ %own, %A ], [ 2.000000e+00, %B ]
  %sum = fadd double %own, 1.000000e+00
  %data = load double, ptr %p, align 8
  %other = load double, ptr getelementptr ([64 x i64], ptr @treekit_settings, i64 0, i64 1), align 8
  %r = {text}
}}
declare double @llvm.pow.f64(double, double)
"""
    assert setting_arguments._find_exponents(body) == places


PLUGIN = """
from treekit import CriterionFunctions

def make(balance):
    def score(parent, children):
        gap = abs(children[0, 0] / parent[0] - children[0, 1] / parent[1])
        return gap - balance * abs(children[0].sum() / parent.sum() - 0.5)

    return CriterionFunctions(score=score)
"""

TRAINING = """
import sys
from numba.core.event import install_recorder
import plugin
from treekit import Criterion, Setting, train
from tests.kernels.library_flows import digest_model

own = Criterion("own", "classification", plugin.make, (Setting("balance", 0.1, "a number"),))
table = {"x": list(range(90)), "y": [0, 1, 1, 0, 1, 0, 0, 1, 1] * 10}
with install_recorder("numba:compile") as recorder:
    settings = {"criterion.balance": float(sys.argv[1])}
    model = train(table, "y", criterion=own, splitter="exact", **settings)
print(len(recorder.buffer), digest_model(model))
"""


@pytest.mark.system
def test_cached_code_is_reused_by_another_process_for_another_value(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(PLUGIN)
    paths = os.pathsep.join([str(tmp_path), str(Path(treekit.__file__).parents[1])])

    def train_alone(balance: float, cache: str = "kept") -> tuple[int, str]:
        own = {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(tmp_path / cache)}
        done = subprocess.run(
            [sys.executable, "-c", TRAINING, str(balance)],
            env=os.environ | own, capture_output=True, text=True, check=True,
        )  # fmt: skip
        count, digest = done.stdout.split()
        return int(count), digest

    first, digest = train_alone(0.1)
    again, other = train_alone(5.0)
    assert first > 0
    assert again == 0
    assert digest != other
    assert train_alone(5.0, "another") == (first, other)
    plugin.write_text(PLUGIN.replace("0.5", "0.25"))
    assert train_alone(5.0)[0] > 0
