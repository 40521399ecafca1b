"""The one decorator of all kernels."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import treekit
from treekit import splitting
from treekit.components import criteria as classes
from treekit.grow.compile_splitter import _compiled_find
from treekit.grow.function_identity import fingerprint
from treekit.kernels import compile as kept
from treekit.kernels import score_batch as predict
from treekit.kernels.compile import compiling, kernel
from treekit.kernels.function_pointers import Pointer


def from_nowhere():
    """A function of no file: numba finds no folder for its cache, as on a read-only disk."""
    names: dict = {}
    exec(compile("def ratio(a, b):\n    return a / b\n", "<nowhere>", "exec"), names)
    return names["ratio"]


def test_a_kernel_compiles_where_no_cache_can_be_written():
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(from_nowhere())
    assert kernel(from_nowhere())(1.0, 4.0) == 0.25


def test_kernels_divide_as_ieee_says():
    ratio = kernel(from_nowhere())
    assert ratio(1.0, 0.0) == np.inf
    assert np.isnan(ratio(0.0, 0.0))


def test_kernels_release_the_lock_of_the_interpreter_and_are_cached():
    options = predict.add_units.targetoptions
    assert options["nogil"]
    assert options["error_model"] == "numpy"
    assert predict.add_units._cache.cache_path


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
from treekit.grow.compile_plugin import Origin
from treekit.grow.compile_criterion import compile_criterion

told = []
with install_recorder("numba:compile") as recorder:
    for q in map(float, sys.argv[1:]):
        made = compile_criterion(plugin.power(q), 2, True, Origin("criterion", "power", "x 1"))
        told += [made.impurity(np.array([4.0, 1.0])),
                 made.many(np.array([4.0, 1.0]), np.array([[1.0, 1.0], [3.0, 0.0]]), 0)]
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
def test_what_a_process_compiled_of_a_plugin_another_loads_and_never_for_another_setting(asked):
    assert asked(2) == (power_of(2), True)
    assert asked(3) == (power_of(3), True)
    # Both at once: symbols of two processes must not answer for each other.
    assert asked(3, 2) == (power_of(3) + power_of(2), False)
    assert asked(2, scale=5.0) == (power_of(2, scale=5.0), True)


def test_what_is_kept_depends_on_all_that_a_function_names(monkeypatch):
    gini = classes.gini().impurity
    known = fingerprint(gini)
    assert known == fingerprint(classes.gini().impurity)
    assert known != fingerprint(classes.gini().score)
    assert known != fingerprint(gini, "checked")
    ratio = fingerprint(classes.gain_ratio().choose)
    assert ratio != fingerprint(classes.gain_ratio(slack=1e-3).choose)
    monkeypatch.setattr(classes, "_NO_GAIN", 0.5)
    assert ratio != fingerprint(classes.gain_ratio().choose)


@pytest.mark.parametrize(
    "held", [object(), {"a": 1}, np.zeros(10**6), from_nowhere(), kernel(from_nowhere())]
)
def test_what_is_not_told_by_contents_is_not_kept(held):
    def function():
        return held

    assert fingerprint(function) is None


def test_files_of_old_settings_are_deleted(monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "MOST_KEPT", 3)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def times(factor):
        def product(a):
            return factor * a

        return product

    signature = numba.float64(numba.float64)
    for factor in range(6):
        product = times(float(factor))
        assert Pointer(product, signature, mark=fingerprint(product))(2.0) == 2.0 * factor
    assert len(list(tmp_path.rglob("*.nbi"))) == 3
    assert len(list(tmp_path.rglob("*.nbc"))) == 3


def test_python_s_collector_rests_while_kernels_compile_and_is_left_as_it_was():
    usual = gc.get_threshold()
    with compiling():
        assert gc.get_threshold()[0] > 10 * usual[0]
        with compiling():
            pass
        assert gc.get_threshold() != usual
    assert gc.get_threshold() == usual


def first_cut(node, criterion, rng):
    return splitting.threshold(node, 0, 0, criterion.score(node.stats, np.zeros((2, 2))))


def second_cut(node, criterion, rng):
    return splitting.threshold(node, 0, 1, criterion.score(node.stats, np.zeros((2, 2))))


def test_what_a_splitter_compiles_to_is_told_by_contents():
    told = [
        fingerprint(_compiled_find(find, False, False), False)
        for find in (first_cut, first_cut, second_cut)
    ]
    assert None not in told
    assert told[0] == told[1] != told[2]
    assert told[0] != fingerprint(_compiled_find(first_cut, True, False), False)
