"""Error-based pruning against a slow oracle, Quinlan's figures, and its own laws."""

from __future__ import annotations

import json
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treekit
from tests.examples import examples
from tests.reference import error_based as reference
from treekit import SettingError
from treekit.components.error_based import error_based
from treekit.components.pruning import collapse, graft, kept_nodes
from treekit.data.dataset import make_dataset
from treekit.kernels.pruning import Bound, pessimistic
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Split, Tree

NO_COSTS = 1.0 - np.eye(2)
Z_25 = 0.6744897501960817


def limit(n: float, e: float, *, release8: bool = False) -> float:
    return float(pessimistic(n, e, Bound(0.25, Z_25, release8, NO_COSTS)))


@pytest.mark.parametrize(
    ("n", "e", "rate"),
    # Quinlan 1993, page 41: exact binomial limits at 25%; without errors the rule is exact.
    [(6, 0, 0.206), (9, 0, 0.143), (1, 0, 0.750)],
)
def test_limits_without_errors_are_the_book_s(n: int, e: int, rate: float) -> None:
    assert round(limit(n, e) / n, 3) == rate
    assert round(limit(n, e, release8=True) / n, 3) == rate


def test_the_book_s_subtree_of_16_votes_becomes_a_leaf() -> None:
    # Page 42: 3.273 errors of the subtree against 2.512 of a leaf (16, 1), of which
    # the normal approximation makes 2.476.
    subtree = limit(6, 0) + limit(9, 0) + limit(1, 0)
    assert round(subtree, 2) == 3.27
    assert round(limit(16, 1), 3) == 2.476


@given(st.floats(1.0, 500.0), st.floats(0.0, 1.0), st.floats(0.01, 0.99))
def test_limits_are_those_of_the_description(n: float, share: float, confidence: float) -> None:
    e = n * share / 2
    z = NormalDist().inv_cdf(1.0 - confidence)
    found = float(pessimistic(n, e, Bound(confidence, z, False, NO_COSTS)))
    assert found == pytest.approx(e + reference.added_errors(n, e, confidence), rel=1e-12)


@pytest.mark.parametrize("release8", [False, True])
@pytest.mark.parametrize(("n", "e"), [(6.0, 0.0), (9.0, 0.4), (10.0, 1.0), (16.0, 3.5)])
def test_limits_fall_evenly_as_the_confidence_rises_to_one(
    n: float, e: float, release8: bool
) -> None:
    """Weka's and Quinlan's errors have no step at a half, where treekit once added none."""
    from treekit.components.error_based import quantile_of

    factors = [0.1, 0.25, 0.4, 0.4999, 0.5, 0.5001, 0.6, 0.69, 0.9]
    limits = [
        float(pessimistic(n, e, Bound(f, quantile_of(f, release8), release8, NO_COSTS)))
        for f in factors
    ]
    assert limits == sorted(limits, reverse=True)
    assert limits[3] - limits[5] < 1e-3 * n
    assert limits[4] > e


@pytest.mark.parametrize("confidence", [0.1, 0.25, 0.4, 0.5, 0.6, 0.69])
def test_limits_without_errors_are_the_exact_binomial_ones(confidence: float) -> None:
    from scipy.stats import beta

    for n in (1, 6, 9, 100):
        z = NormalDist().inv_cdf(1.0 - confidence)
        found = float(pessimistic(float(n), 0.0, Bound(confidence, z, False, NO_COSTS)))
        assert found == pytest.approx(n * beta.ppf(1.0 - confidence, 1, n), abs=1e-4)


def test_release_8_reads_its_quantile_from_a_table() -> None:
    # Between 0.84 at 20% and 0.25 at 40%: 0.6925 at 25%, squared in the limit.
    e, n, z2 = 3.0, 20.0, 0.6925**2
    inner = z2 * ((e + 0.5) * (1 - (e + 0.5) / n) + z2 / 4)
    expected = n * (e + 0.5 + z2 / 2 + inner**0.5) / (n + z2)
    found = float(pessimistic(n, e, Bound(0.25, 0.6925, True, NO_COSTS)))
    assert found == pytest.approx(expected, rel=1e-12)
    assert limit(4.0, 4.0, release8=True) == 4.0
    assert limit(4.0, 3.6, release8=True) == pytest.approx(3.6 + 0.67 * 0.4)


def noisy(seed: int, n: int = 120) -> dict[str, list[Any]]:
    """Two classes, five columns, missing cells, labels of which many are noise."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 9, n).astype(float), rng.normal(size=n).round(1)
    c, d = rng.integers(0, 3, n), rng.integers(0, 4, n)
    y = (a > 4) ^ (c == 1) ^ (rng.random(n) < 0.25)
    gone = rng.random((4, n)) < 0.08
    cells = [a.tolist(), b.tolist(), ["uvw"[i] for i in c], ["klmn"[i] for i in d]]
    for column, lost in zip(cells, gone, strict=True):
        for i in np.flatnonzero(lost):
            column[i] = None
    return dict(zip("abcd", cells, strict=True)) | {"y": np.where(y, "yes", "no").tolist()}


def oracle_table(model: treekit.Model, table: dict[str, list[Any]]) -> reference.Table:
    x = np.array(
        [
            [
                np.nan if v is None else column.levels.index(v) if column.levels else v
                for column, v in zip(model.schema.columns, row, strict=True)
            ]
            for row in zip(*(table[name] for name in model.schema.names), strict=True)
        ],
        float,
    )
    y = [model.schema.classes.index(label) for label in table["y"]]
    return reference.Table(model.trees[0], x, y, 2, model.missing == "fractional")


def has_raised(tree: Tree, node: reference.Node) -> bool:
    """Whether some node asks what a node deeper down asked."""
    first = int(tree.first_child[node.asks])
    return any(
        child.asks != first + b or has_raised(tree, child) for b, child in enumerate(node.children)
    )


@pytest.mark.parametrize(
    ("raising", "collapsing", "missing"),
    [
        (True, True, "fractional"),
        (False, True, "direction"),
        (True, False, "direction"),
        (False, False, "fractional"),
        pytest.param(True, True, "direction", marks=pytest.mark.matrix),
        pytest.param(False, True, "fractional", marks=pytest.mark.matrix),
        pytest.param(True, False, "fractional", marks=pytest.mark.matrix),
        pytest.param(False, False, "direction", marks=pytest.mark.matrix),
    ],
)
def test_pruned_trees_equal_the_oracle_s(missing: str, raising: bool, collapsing: bool) -> None:
    raised = 0
    for seed in range(12):
        table = noisy(seed)
        common: dict[str, Any] = {
            "target": "y", "criterion": "entropy", "missing": missing, "seed": 0,
            "nominal_splits": "multiway" if seed % 2 else "subset", "min_weight_leaf": 2.0,
        }  # fmt: skip
        full = treekit.train(table, **common)
        own = oracle_table(full, table)
        rows = [(i, 1.0) for i in range(len(table["y"]))]
        expected = reference.prune(
            own, reference.nested(own, 0, rows), 0.25, raising, collapsing
        )  # fmt: skip
        pruned = treekit.train(
            table, pruner="error_based", **common,
            **{"pruner.raising": raising, "pruner.collapsing": collapsing},
        )  # fmt: skip
        tree = pruned.trees[0]
        assert reference.shape(tree) == reference.shape_of(own, expected)
        np.testing.assert_allclose(tree.value.sum(axis=1), tree.weight, atol=1e-9)
        raised += has_raised(own.tree, expected)
    assert (raised > 0) == raising


@pytest.mark.matrix
@pytest.mark.parametrize("ways", [{"missing": "surrogate"}, {"splitter": "oblique"}])
def test_leaves_below_raised_nodes_hold_the_rows_that_the_model_sends_there(
    ways: dict[str, Any],
) -> None:
    tests = 0
    for seed in (0, 5, 8):
        table = noisy(seed, 300)
        model = treekit.train(
            table, "y", criterion="entropy", pruner="error_based", min_weight_leaf=2.0, seed=0,
            **ways,
        )  # fmt: skip
        tree = model.trees[0]
        tests += len(tree.surrogate_feature) + len(tree.term_feature)
        leaf = leaf_indices(model, make_dataset(table, "y").matrix())[:, 0].astype(int)
        reached = np.zeros_like(tree.value)
        label = [model.schema.classes.index(y) for y in table["y"]]
        np.add.at(reached, (leaf, label), 1.0)
        np.testing.assert_array_equal(reached[tree.leaves], tree.value[tree.leaves])
    assert tests > 0


def is_pruned(tree: Tree, full: Tree, node: int = 0, other: int = 0) -> bool:
    """Whether `tree` is `full` with some nodes made leaves."""
    if tree.n_children[node] == 0:
        return bool(np.array_equal(tree.value[node], full.value[other]))
    names = ("kind", "feature", "threshold", "n_children", "missing")
    if any(getattr(tree, n)[node] != getattr(full, n)[other] for n in names if n != "threshold"):
        return False
    first, second = int(tree.first_child[node]), int(full.first_child[other])
    return all(
        is_pruned(tree, full, first + b, second + b) for b in range(int(tree.n_children[node]))
    )


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["error_based", "mdl"]))
def test_without_raising_a_pruned_tree_is_the_tree_with_some_nodes_closed(seed, name) -> None:
    table = noisy(seed, 60)
    full = treekit.train(table, target="y", seed=0).trees[0]
    own = {"pruner.raising": False} if name == "error_based" else {}
    pruned = treekit.train(table, target="y", seed=0, pruner=name, **own).trees[0]
    assert is_pruned(pruned, full)


def test_less_confidence_leaves_a_smaller_tree_and_full_confidence_the_collapsed_one() -> None:
    table = noisy(3, 300)
    leaves = [
        treekit.train(
            table, target="y", seed=0, pruner="error_based",
            **{"pruner.confidence": confidence, "pruner.raising": False},
        ).n_leaves
        for confidence in (0.001, 0.05, 0.25, 0.45, 0.5, 0.69, None)
    ]  # fmt: skip
    assert leaves == sorted(leaves)
    assert leaves[0] < leaves[-1]
    assert leaves[-1] <= treekit.train(table, target="y", seed=0).n_leaves


def test_dear_mistakes_keep_branches_that_cheap_ones_lose() -> None:
    # 60 of 1000 rows are of the dear class, 30 of them behind x > 0.
    x = [0.0] * 940 + [1.0] * 60
    y = ["no"] * 910 + ["yes"] * 30 + ["no"] * 31 + ["yes"] * 29
    plain = {"target": "y", "pruner": "error_based", "seed": 0}
    assert treekit.train({"x": x, "y": y}, **plain).n_leaves == 1
    assert treekit.train({"x": x, "y": y}, **plain, costs="yes>no=5").n_leaves == 2


def test_pruners_of_classes_refuse_numbers_by_name() -> None:
    table = {"x": [1.0, 2.0, 3.0, 4.0], "y": [0.5, 1.5, 2.5, 9.5]}
    for name in ("error_based", "mdl", "holdout", "chi_squared"):
        with pytest.raises(SettingError, match=f"pruner '{name}' is for one target of classif"):
            treekit.train(table, target="y", pruner=name)


def test_a_grafted_subtree_keeps_what_it_asks_and_says() -> None:
    table = noisy(5)
    tree = treekit.train(table, target="y", seed=0, nominal_splits="multiway").trees[0]
    inner = np.flatnonzero(tree.kind != Split.LEAF)
    child = next(i for i in inner if tree.parent[i] == 0)
    source = np.arange(tree.n_nodes)
    source[0] = child
    kept = kept_nodes(tree, source)
    grafted = graft(tree, source)
    assert grafted.n_nodes == len(kept) == subtree_size(tree, child)
    assert grafted.feature[0] == tree.feature[child]
    np.testing.assert_array_equal(grafted.value[0], tree.value[child])
    same = collapse(tree, np.zeros(tree.n_nodes, bool))
    np.testing.assert_array_equal(same.first_child, tree.first_child)


def subtree_size(tree: Tree, node: int) -> int:
    first, count = int(tree.first_child[node]), int(tree.n_children[node])
    return 1 + sum(subtree_size(tree, child) for child in range(first, first + count))


def test_the_record_s_functions_take_no_held_out_rows() -> None:
    assert error_based(0.25, True, True, "j48").holdout is None
    with pytest.raises(SettingError, match="does not judge by held-out rows"):
        treekit.train(noisy(0), target="y", pruner="error_based", validation=noisy(1))
    assert json.loads(json.dumps(treekit.train(
        noisy(0), target="y", pruner="error_based", seed=0
    ).settings))["pruner.confidence"] == 0.25  # fmt: skip
