"""The test compared with scipy's; trees without noise splits."""

import subprocess
import sys
import warnings
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency
from treekit_significance import make

import treekit
from treekit import registry
from treekit.errors import SettingError


def allows(children, alpha=0.05, function=None):
    children = np.asarray(children, dtype=np.float64)
    before = function or make(alpha).before
    none = np.zeros_like(children)
    return bool(before(children.sum(axis=0), children, none[0], none))


def p_value(children):
    """Compute scipy's p-value of the non-empty rows and columns."""
    children = np.asarray(children, dtype=np.float64)
    held = children[children.sum(axis=1) > 0][:, children.sum(axis=0) > 0]
    return chi2_contingency(held, correction=False).pvalue if held.size else 1.0


def measured(children):
    """Find the p-value as the smallest alpha at which the split is made."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if allows(children, middle) else (middle, high)
    return high


TABLES = st.integers(1, 4).flatmap(
    lambda classes: st.lists(
        st.lists(st.integers(0, 60), min_size=classes, max_size=classes), min_size=2, max_size=6
    )
)


@settings(deadline=None)
@given(TABLES)
def test_p_value_equals_scipy(children):
    assert measured(children) == pytest.approx(p_value(children), abs=1e-12)


def test_p_value_of_a_wide_table_neither_underflows_nor_overflows():
    rng = np.random.default_rng(5)
    children = rng.poisson(40.0, size=(1200, 3)).astype(np.float64)
    assert measured(children) == pytest.approx(p_value(children), rel=1e-9)


def test_dependent_classes_may_be_split_and_independent_ones_not():
    assert allows([[90, 10], [10, 90]])
    assert not allows([[50, 50], [49, 51]])


def test_split_is_allowed_if_p_value_is_at_most_alpha():
    children = [[30, 20], [18, 32]]
    assert p_value(children) == pytest.approx(0.0163, abs=1e-4)
    assert allows(children, 0.02)
    assert not allows(children, 0.01)
    assert not allows(children, 0.0)
    assert allows([[5, 5], [5, 5]], 1.0)


@pytest.mark.parametrize("children", [[[3, 4], [0, 0]], [[3, 0], [4, 0]], [[7], [2]]])
def test_contingency_table_of_one_row_or_column_allows_no_split(children):
    assert not allows(children)


def test_compiled_test_equals_the_python_test():
    compiled = numba.njit(error_model="numpy")(make(0.05).before)
    rng = np.random.default_rng(0)
    for _ in range(200):
        children = rng.integers(0, 30, size=(2, 3)).astype(np.float64)
        assert allows(children, function=compiled) == allows(children)


def test_pruner_is_registered_by_its_distribution():
    component = registry.list("pruner")["significance"]
    assert component.distribution == "treekit-significance"


def test_alpha_outside_0_to_1_is_refused():
    with pytest.raises(SettingError, match="'alpha' of pruner 'significance' must be a number"):
        registry.make(registry.get("pruner", "significance"), {"alpha": 1.5})


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    """Make a table whose class depends on `x` alone; `y` and `z` are noise."""
    rng = np.random.default_rng(1)
    x, y, z = rng.random((3, 1500))
    label = np.where((x > 0.5) ^ (rng.random(1500) < 0.2), "b", "a")
    lines = [f"{a:.6f},{b:.6f},{c:.6f},{k}" for a, b, c, k in zip(x, y, z, label, strict=True)]
    path = tmp_path / "noise.csv"
    path.write_text("\n".join(["x,y,z,label", *lines]) + "\n", encoding="utf-8")
    return path


def test_smaller_alpha_makes_a_smaller_tree_that_keeps_the_signal(noise: Path):
    leaves = [treekit.train(noise, target="label", seed=0).n_leaves]
    for alpha in (0.05, 1e-6):
        chosen = {"pruner": "significance", "pruner.alpha": alpha}
        model = treekit.train(noise, target="label", seed=0, **chosen)
        leaves.append(model.n_leaves)
    assert leaves[0] > leaves[1] > leaves[2]
    assert leaves[2] >= 2
    assert (model.trees[0].feature[0], model.trees[0].threshold[0]) == (
        0,
        pytest.approx(0.5, abs=0.02),
    )


def test_pruner_compiles_without_a_warning(noise: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        treekit.train(noise, target="label", pruner="significance", seed=0)


def test_regression_target_is_refused(noise: Path):
    with pytest.raises(SettingError, match="'significance' is for one target of classification"):
        treekit.train(noise, target="z", ignore=["label"], pruner="significance", seed=0)


def test_command_line_trains_with_the_pruner(noise: Path, tmp_path: Path):
    treekit_command = Path(sys.executable).with_name("treekit")
    model = tmp_path / "noise.treekit"
    train = [treekit_command, "train", noise, "--target", "label", "--set", "pruner=significance"]
    chosen = ["--set", "pruner.alpha=0.001", "-o", model]
    subprocess.run([*train, *chosen], check=True, capture_output=True)
    assert treekit.load(model).settings["pruner"] == "significance"
