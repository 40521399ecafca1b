"""Oblique splits: directions, cuts, growth, and what is refused."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

import treekit
from tests.examples import examples
from tests.growing import built_in, make_scorer
from tests.reference import evaluate
from treekit import splitting
from treekit.contracts import Splitter, SplitterFunctions
from treekit.errors import PluginError, SettingError
from treekit.kernels.oblique_splits import find_best_cut
from treekit.kernels.records import PLAIN_RULES, Node, Rows, Table
from treekit.model.scoring import encode_table, leaf_indices
from treekit.model.tree import Split


def slanted(n: int, missing: float = 0.0) -> dict[str, Any]:
    """Two classes on either side of ``2 a - b = 0.25``; c tells nothing."""
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, n)).astype(np.float32)
    y = np.where(2 * a - b > 0.25, "above", "below")
    for column in (a, b, c):
        column[rng.random(n) < missing] = np.nan
    return {"a": a, "b": b, "c": c, "y": y}


def train(table: Any, method: str = "linear", **more: Any) -> treekit.Model:
    own = {"splitter": "oblique", "splitter.method": method, "seed": 0, "dtype": "float32"}
    return treekit.train(table, "y", **(own | more))


@pytest.mark.system  # searches for half a minute
@pytest.mark.parametrize("method", ["linear", "coordinate"])
def test_oblique_trees_need_fewer_leaves_for_a_slanted_border(method: str) -> None:
    table = slanted(600)
    oblique, straight = train(table, method), treekit.train(table, "y", splitter="exact", seed=0)
    assert oblique.n_leaves < straight.n_leaves / 2
    tree = oblique.trees[0]
    assert tree.kind[0] == Split.OBLIQUE
    assert tree.term_feature[:2].tolist() == [0, 1]
    assert tree.term_weight[0] * tree.term_weight[1] < 0


def count_digits(numbers: Any) -> list[int]:
    """Significant digits of the shortest decimal of each number."""
    texts = [str(abs(number)).partition("e")[0].replace(".", "") for number in numbers]
    return [len(text.strip("0")) for text in texts]


@pytest.mark.parametrize(
    ("load", "method"),
    [
        pytest.param(load_iris, "linear", marks=pytest.mark.matrix),
        pytest.param(load_wine, "linear", marks=pytest.mark.matrix),
        pytest.param(load_diabetes, "linear", marks=pytest.mark.matrix),
        pytest.param(load_breast_cancer, "linear", marks=pytest.mark.matrix),
        pytest.param(load_wine, "coordinate", marks=pytest.mark.matrix),
        pytest.param(load_wine, "principal", marks=pytest.mark.matrix),
        pytest.param(load_iris, "coordinate", marks=pytest.mark.matrix),
    ],
)
def test_readable_weights_have_few_digits_and_keep_the_branch_of_each_row(
    load: Any, method: str
) -> None:
    frame = load(as_frame=True).frame.rename(columns={"target": "y"})
    if load is not load_diabetes:
        frame = frame.astype({"y": str})
    exact, readable = (
        train(frame, method, thresholds=thresholds, min_weight_leaf=3)
        for thresholds in ("midpoint", "readable")
    )
    rows = encode_table(exact, frame)
    assert np.array_equal(leaf_indices(exact, rows), leaf_indices(readable, rows))
    before, after = exact.trees[0], readable.trees[0]
    assert np.array_equal(before.kind, after.kind)
    assert np.array_equal(before.term_feature, after.term_feature)
    sums = before.kind == Split.OBLIQUE
    assert sums.any()
    assert np.mean(count_digits(before.threshold[sums])) > 15
    assert np.mean(count_digits(after.threshold[sums])) < 5
    # Weights are float32, and of up to three digits where thresholds are midpoints.
    many, few = (count_digits(np.float32(tree.term_weight)) for tree in (before, after))
    assert max(map(int.__sub__, few, many)) <= 0
    assert max(many) <= 3
    assert sum(few) < sum(many) or method == "principal"


@pytest.mark.matrix
def test_principal_splitter_finds_the_axis_along_which_classes_lie() -> None:
    rng = np.random.default_rng(1)
    along, across = rng.normal(size=400), 0.3 * rng.normal(size=400)
    y = np.where(along > 0, "far", "near")
    table = {"a": along + across, "b": along - across, "y": y}
    model = train(table, "principal")
    assert model.trees[0].kind[0] == Split.OBLIQUE
    assert model.n_leaves < treekit.train(table, "y", splitter="exact", seed=0).n_leaves / 2


@pytest.mark.matrix
@pytest.mark.parametrize("method", ["linear", "coordinate", "principal"])
def test_single_column_split_is_preferred_at_equal_gain(method: str) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 300))
    model = train({"a": a, "b": b, "y": np.where(a > 0.1, "yes", "no")}, method)
    assert model.trees[0].kind.tolist() == [Split.THRESHOLD, Split.LEAF, Split.LEAF]


@pytest.mark.matrix
@pytest.mark.parametrize("missing", ["direction", "fractional"])
@pytest.mark.parametrize("method", ["linear", "coordinate", "principal"])
def test_training_rows_reach_the_leaves_they_were_counted_in(method: str, missing: str) -> None:
    table = slanted(150, missing=0.1)
    model = train(table, method, missing=missing)
    assert (model.trees[0].kind == Split.OBLIQUE).any()
    rows = np.column_stack([table["a"], table["b"], table["c"]]).tolist()
    classes = [model.schema.classes.index(label) for label in table["y"].tolist()]
    reached = np.zeros((model.n_leaves, 2))
    for row, code in zip(rows, classes, strict=True):
        for leaf, mass in evaluate.leaf_masses(model, row).items():
            reached[leaf, code] += mass / model.mass
    value = model.trees[0].value[model.trees[0].leaves]
    np.testing.assert_allclose(reached, value, atol=1e-5)


@pytest.mark.matrix
def test_oblique_splits_have_few_columns_and_weights_of_few_digits() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 8))
    y = np.where(x @ rng.normal(size=8) > 0, 1, 0)
    table = {f"x{i}": x[:, i] for i in range(8)} | {"y": y}
    tree = train(table, **{"splitter.terms": 4, "splitter.digits": 2}).trees[0]
    counts = np.diff(tree.term_offsets)
    assert counts.max() == 4
    assert counts[tree.kind == Split.OBLIQUE].min() >= 2
    for weight in tree.term_weight.tolist():
        assert weight == float(np.float32(float(f"{weight:.1e}")))
    largest = np.maximum.reduceat(np.abs(tree.term_weight), tree.term_offsets[:-1][counts > 0])
    assert (largest == 1.0).all()


@pytest.mark.matrix
def test_oblique_regression_trees_are_smaller_and_more_accurate() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 500))
    table = {"a": a, "b": b, "y": np.round(a + b)}
    oblique = train(table, min_weight_leaf=5)
    straight = treekit.train(table, "y", splitter="exact", min_weight_leaf=5, seed=0)
    assert oblique.n_leaves < straight.n_leaves
    worse = ((straight.predict(table) - table["y"]) ** 2).sum()
    assert ((oblique.predict(table) - table["y"]) ** 2).sum() < worse


@pytest.mark.matrix
def test_the_same_seed_gives_the_same_forest_of_oblique_trees() -> None:
    table = slanted(200)
    one, other = (
        train(table, "coordinate", ensemble="forest", trees=5, max_features=2, n_jobs=jobs)
        for jobs in (1, 2)
    )
    assert one.provenance["oob"]["accuracy"] > 0.9
    for first, second in zip(one.trees, other.trees, strict=True):
        np.testing.assert_array_equal(first.term_weight, second.term_weight)
        np.testing.assert_array_equal(first.threshold, second.threshold)


@pytest.mark.matrix
def test_oblique_splits_use_only_the_columns_tried_at_the_node() -> None:
    rng = np.random.default_rng(5)
    table = {f"x{i}": rng.normal(size=150) for i in range(6)}
    table["y"] = np.where(table["x2"] + table["x3"] > 0, "above", "below")
    one = train(table, ensemble="forest", trees=6, max_features=1)
    assert not any(len(tree.term_feature) for tree in one.trees)
    two = train(table, ensemble="forest", trees=30, max_features=2)
    roots = [tuple(tree.term_feature[: tree.term_offsets[1]].tolist()) for tree in two.trees]
    assert (2, 3) in roots
    assert len(set(roots)) > 5


@pytest.mark.matrix
def test_an_oblique_tree_is_pruned_by_cross_validation() -> None:
    table = slanted(300)
    noisy = table | {"y": np.where(np.arange(300) % 9 == 0, "below", table["y"])}
    assert train(noisy, pruner="cost_complexity").n_leaves < train(noisy).n_leaves


def test_a_float64_model_is_refused() -> None:
    with pytest.raises(SettingError, match=r"splitter 'oblique'.*dtype='float32'"):
        train(slanted(50), dtype="float64")


# The best cut along given keys, against trying them all


def gini(classes: list[int]) -> float:
    return 1.0 - sum((classes.count(k) / len(classes)) ** 2 for k in (0, 1))


def slow_best_cut(keys: list[float], classes: list[int]) -> tuple[float, float, float]:
    """Score of the best cut and the keys on either side; unknown rows tried right, then left."""
    known = sorted({key for key in keys if key == key})
    best = (-math.inf, math.nan, math.nan)
    lost = [c for key, c in zip(keys, classes, strict=True) if key != key]
    for unknown_left in (False, True) if lost else (False,):
        for low, high in itertools.pairwise(known):
            left = [c for key, c in zip(keys, classes, strict=True) if key <= low]
            right = [c for key, c in zip(keys, classes, strict=True) if key >= high]
            (left if unknown_left else right).extend(lost)
            after = len(left) * gini(left) + len(right) * gini(right)
            score = gini(classes) - after / len(classes)
            if score > best[0] + 1e-9:
                best = (score, low, high)
    return best


def node_of(classes: list[int]) -> Node:
    n = len(classes)
    table = Table(
        np.zeros((1, n), np.uint8), np.ones(1, np.uint32), np.zeros(1, np.uint8),
        np.zeros(1, np.int64), np.zeros(1), np.zeros(1),
    )  # fmt: skip
    rows = Rows(np.arange(n, dtype=np.uint32), np.array(classes, np.uint32), np.ones((n, 1)))
    stats = np.bincount(classes, minlength=2).astype(float)
    return Node(table, rows, stats, float(n), gini(classes), 0, 1.0, 1, PLAIN_RULES, None)


keys_and_classes = st.lists(
    st.tuples(st.sampled_from([-2.0, -0.5, 0.0, 1.0, 7.5, math.nan]), st.integers(0, 1)),
    min_size=2,
    max_size=12,
)


@pytest.mark.matrix
@given(keys_and_classes)
@settings(max_examples=examples(150), deadline=None)
def test_best_cut_of_projected_rows_equals_the_oracle(pairs: list[tuple[float, int]]) -> None:
    keys, classes = [key for key, _ in pairs], [c for _, c in pairs]
    found = np.empty(4)
    scorer = make_scorer(built_in("gini", 2), 2)
    best = np.array([0.0] * 6 + [-np.inf, np.inf])
    find_best_cut(node_of(classes), np.array(keys), scorer, np.empty(2), best, found)
    wanted = slow_best_cut(keys, classes)
    assert math.isclose(found[0], wanted[0], abs_tol=1e-12) or found[0] == wanted[0]
    if wanted[0] > 1e-9:
        assert tuple(found[1:3]) == wanted[1:]


# Sums proposed by plugins


def find_sum(node, criterion, rng):  # type: ignore[no-untyped-def]
    split = splitting.oblique_split(np.array([0, 1]), np.array([2.0, -1.0]), 0.25)
    children = splitting.branch_stats(node, split)
    if splitting.heavy_enough(node, children):
        return splitting.scored(split, criterion.score(node.stats, children))
    return None


def find_sum_in_python(node, criterion, rng):  # type: ignore[no-untyped-def]
    split = find_sum(node, criterion, rng)
    return None if split is None else type(split)(**split._asdict())


def find_backwards(node, criterion, rng):  # type: ignore[no-untyped-def]
    split = splitting.oblique_split(np.array([1, 0]), np.array([2.0, -1.0]), 0.25)
    return splitting.scored(split, 1.0)


def plugin(find: Any, **more: Any) -> Splitter:
    return Splitter("mine", lambda: SplitterFunctions(find, **more))


@pytest.mark.matrix
def test_compiled_plugin_may_return_oblique_splits() -> None:
    model = treekit.train(slanted(100), "y", splitter=plugin(find_sum, sums=True), seed=0)
    tree = model.trees[0]
    assert tree.kind.tolist() == [Split.OBLIQUE, Split.LEAF, Split.LEAF]
    assert tree.term_weight.tolist() == [2.0, -1.0]
    assert tree.threshold[0] == 0.25
    assert np.count_nonzero(tree.value[1:]) == 2


@pytest.mark.matrix
def test_python_plugin_may_return_oblique_splits() -> None:
    with pytest.warns(treekit.TreekitWarning, match="does not compile"):
        model = treekit.train(
            slanted(100), "y", splitter=plugin(find_sum_in_python, sums=True), seed=0
        )
    assert model.trees[0].kind[0] == Split.OBLIQUE


@pytest.mark.matrix
@pytest.mark.parametrize(("find", "more"), [(find_sum, {}), (find_backwards, {"sums": True})])
def test_invalid_or_undeclared_oblique_split_is_refused(find: Any, more: Any) -> None:
    with pytest.raises(PluginError, match=r"splitter 'mine'"):
        treekit.train(slanted(100), "y", splitter=plugin(find, **more), seed=0)


def test_oblique_splits_of_binned_columns_are_refused() -> None:
    with pytest.raises(PluginError, match="coding='exact'"):
        treekit.train(
            slanted(50), "y", splitter=plugin(find_sum, sums=True, coding="histogram"), seed=0
        )
