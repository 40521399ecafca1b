"""Compare the criterion with the paper; check its size and its entry point."""

import ast
import inspect
import math
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
import treekit_hellinger
from hypothesis import given, settings
from hypothesis import strategies as st
from treekit_hellinger import score

import treekit
from treekit import registry


def plain(children):
    """Compute the formula of Cieslak and Chawla 2008, section 3, for two classes."""
    shares = children / children.sum(axis=0)
    return math.sqrt(((np.sqrt(shares[:, 0]) - np.sqrt(shares[:, 1])) ** 2).sum())


def measured(children):
    children = np.asarray(children, dtype=np.float64)
    return score(children.sum(axis=0), children)


def tables(classes):
    """Draw weights of `classes` classes in two to five branches, each class present."""
    row = st.lists(st.integers(0, 1000), min_size=classes, max_size=classes)
    tables = st.lists(row, min_size=2, max_size=5).map(lambda rows: np.array(rows, float))
    return tables.filter(lambda table: table.sum(axis=0).min() > 0)


@settings(deadline=None)
@given(tables(2))
def test_distance_of_two_classes_equals_the_paper(children):
    assert measured(children) == pytest.approx(plain(children), abs=1e-9)


@settings(deadline=None)
@given(tables(4))
def test_distance_of_several_classes_is_the_largest_of_two(children):
    pairs = [plain(children[:, [i, j]]) for i in range(4) for j in range(i)]
    assert measured(children) == pytest.approx(max(pairs), abs=1e-9)


@given(tables(2), st.integers(2, 1000))
def test_score_does_not_depend_on_class_frequencies(children, times):
    rarer = children * [1, times]
    assert measured(rarer) == pytest.approx(measured(children), rel=1e-9, abs=1e-7)


@given(st.integers(1, 99), st.integers(1, 99), st.integers(1, 99), st.integers(1, 99))
def test_split_with_equal_class_shares_scores_exactly_zero(left, right, a, b):
    assert measured([[left * a, left * b], [right * a, right * b]]) == 0.0


def test_perfect_split_has_the_highest_score():
    assert measured([[7, 0], [0, 3]]) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("children", [[[3, 0], [4, 0]], [[0, 0], [0, 0]], [[5], [2]]])
def test_a_node_without_two_classes_scores_zero(children):
    assert measured(children) == 0.0


def test_statistics_rounded_below_zero_count_as_zero():
    parent, children = np.array([0.3, 0.3]), np.array([[0.3, 0.3], [-5e-17, 0.0]])
    assert score(parent, children) == pytest.approx(0.0, abs=1e-7)


def test_compiled_score_equals_the_python_score():
    compiled = numba.njit(error_model="numpy")(score)
    children = np.array([[9.0, 1.0, 4.0], [2.0, 8.0, 4.0]])
    assert compiled(children.sum(axis=0), children) == measured(children)


def test_criterion_is_registered_by_its_distribution():
    component = registry.list("criterion")["hellinger"]
    assert (component.plugin, component.distribution) == ("hellinger", "treekit-hellinger")
    assert (
        registry.origin(registry.get("criterion", "hellinger"))["distribution"]
        == "treekit-hellinger"
    )


def code_lines(module):
    """Return the lines of code, without docstrings, comments and blank lines."""
    source = ast.parse(inspect.getsource(module))
    for node in ast.walk(source):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node):
            del node.body[0]
    return ast.unparse(source).replace("\n\n", "\n").splitlines()


def test_plugin_has_at_most_20_lines_of_code():
    lines = [line for line in code_lines(treekit_hellinger) if line.strip()]
    assert len(lines) <= 20
    body = [line for line in lines if line.startswith(" ")]
    assert len(body) <= 15


def test_plugin_imports_only_math_and_public_names_of_treekit():
    imports = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(treekit_hellinger)))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    assert [ast.unparse(node).split()[1] for node in imports] == ["math", "treekit"]
    assert {alias.name for alias in imports[1].names} <= set(dir(treekit))


@pytest.fixture
def rare(tmp_path: Path) -> Path:
    """Make a table of 2,000 rows with 1% of fraud, likely for `amount` above 900."""
    rng = np.random.default_rng(3)
    amount, hour = rng.integers(0, 1000, 2000), rng.integers(0, 24, 2000)
    fraud = (amount > 900) & (rng.random(2000) < 0.1)
    lines = [f"{a},{h},{'yes' if f else 'no'}" for a, h, f in zip(amount, hour, fraud, strict=True)]
    path = tmp_path / "rare.csv"
    path.write_text("\n".join(["amount,hour,fraud", *lines]) + "\n", encoding="utf-8")
    return path


def test_root_split_has_the_largest_distance(rare: Path):
    model = treekit.train(rare, target="fraud", criterion="hellinger", splitter="exact", seed=0)
    rows = [line.split(",") for line in rare.read_text(encoding="utf-8").splitlines()[1:]]
    classes = np.array([row[2] == "yes" for row in rows])
    best = -1.0
    for column in (0, 1):
        values = np.array([float(row[column]) for row in rows])
        for low in np.unique(values)[:-1]:
            left = values <= low
            counts = [[(side & ~classes).sum(), (side & classes).sum()] for side in (left, ~left)]
            best = max(best, plain(np.array(counts, dtype=np.float64)))
    assert model.trees[0].gain[0] == pytest.approx(best, rel=1e-9)
    assert model.trees[0].feature[0] == 0


def test_command_line_trains_with_the_criterion(rare: Path, tmp_path: Path):
    treekit_command = Path(sys.executable).with_name("treekit")
    model = tmp_path / "rare.treekit"
    train = [treekit_command, "train", rare, "--target", "fraud", "--set", "criterion=hellinger"]
    subprocess.run([*train, "-o", model], check=True, capture_output=True)
    assert treekit.load(model).settings["criterion"] == "hellinger"
