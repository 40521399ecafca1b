"""Splits that must prove themselves before they are made, and codes that must be shorter."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

import treekit
from tests.reference import prune as reference
from treekit.components.pruners import chi_squared, class_bits, holdout, split_bits
from treekit.data.dataset import make_dataset

MELONS = Path(__file__).parent.parent / "examples" / "tables" / "watermelon"
ORDER = ["navel", "color", "root", "sound", "texture", "touch"]
"""The column order that breaks the ties of table 4.2 as the book does."""


def melons(part: str) -> dict[str, list[str]]:
    import csv

    with (MELONS / f"watermelon_2.0_{part}_en.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in [*ORDER, "good"]}


@pytest.mark.parametrize(
    ("pruner", "right"),
    # Zhou 2016, section 4.3 and table 4.2, and figures 4.5 to 4.7.
    [(None, 3), ("holdout", 5), ("reduced_error", 5)],
)
def test_hold_out_accuracies_of_table_4_2_are_the_book_s(pruner, right):
    train, valid = melons("train"), melons("valid")
    levels = {name: sorted(set(melons("train")[name] + valid[name])) for name in ORDER}
    held = {"pruner": pruner, "validation": valid} if pruner else {}
    model = treekit.train(
        train, "good", levels=levels, criterion="entropy", nominal_splits="multiway",
        empty_branches=True, seed=0, **held,
    )  # fmt: skip
    assert ORDER[model.trees[0].feature[0]] == "navel"
    assert (model.predict(valid) == np.array(valid["good"])).sum() == right
    assert model.depth == 1 if pruner == "holdout" else model.depth > 1


def yes(before: Any, children: Any, held: Any) -> bool:
    children, held = np.array(children, float), np.array(held, float)
    return bool(before(children.sum(axis=0), children, held.sum(axis=0), held))


def test_a_split_is_made_only_if_more_held_out_rows_are_answered_right():
    before = holdout(0.25).before
    sides = [[6, 1], [2, 5]]  # the node says class 0, its branches 0 and 1
    assert yes(before, sides, [[3, 0], [1, 2]])
    assert not yes(before, sides, [[3, 0], [2, 2]])  # as many as before
    assert not yes(before, sides, [[3, 0], [2, 1]])
    assert not yes(before, sides, [[0, 0], [0, 0]])
    # A branch without training rows says what the node says.
    assert not yes(before, [*sides, [0, 0]], [[3, 0], [1, 1], [0, 2]])
    assert not yes(before, [[9, 1], [0, 0]], [[3, 0], [0, 2]])


TABLES = st.tuples(st.integers(2, 5), st.integers(2, 4)).flatmap(
    lambda shape: st.lists(
        st.lists(st.integers(0, 40), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0], max_size=shape[0],
    )
)  # fmt: skip


@settings(deadline=None)
@given(TABLES, st.floats(0.001, 0.999))
def test_the_chi_squared_test_decides_as_scipy_s(children, alpha):
    children = np.array(children, float)
    held = children[children.sum(axis=1) > 0][:, children.sum(axis=0) > 0]
    few = held.shape[0] < 2 or held.shape[1] < 2
    p = 1.0 if few else float(chi2_contingency(held, correction=False).pvalue)
    if abs(p - alpha) > 1e-12:
        assert yes(chi_squared(alpha).before, children, np.zeros_like(children)) == (p <= alpha)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("branches", [2, 40, 600])
def test_p_values_are_those_of_scipy_far_out_and_with_many_branches(scale, branches):
    rng = np.random.default_rng(branches)
    children = rng.integers(1, 9, (branches, 3)) * scale
    p = float(chi2_contingency(children, correction=False).pvalue)
    for alpha in (p * (1 - 1e-6), min(p * (1 + 1e-6) + 1e-300, 1.0)):
        assert yes(chi_squared(alpha).before, children, 0 * children) == (p <= alpha)


def table(n: int = 250) -> dict[str, list[Any]]:
    rng = np.random.default_rng(1)
    x, z = rng.random((2, n)).round(3)
    y = (x > 0.5) ^ (rng.random(n) < 0.2)
    c = rng.integers(0, 5, n)
    return {"x": x.tolist(), "z": z.tolist(), "c": ["pqrst"[i] for i in c],
            "y": np.where(y, "yes", "no").tolist()}  # fmt: skip


@pytest.mark.parametrize("pruner", ["holdout", "chi_squared", "mdl"])
def test_noise_is_not_split_and_the_signal_is(pruner):
    model = treekit.train(table(), "y", pruner=pruner, seed=0)
    assert 2 <= model.n_leaves <= 15
    assert model.n_leaves < treekit.train(table(), "y", seed=0).n_leaves / 5
    assert model.schema.names[model.trees[0].feature[0]] == "x"
    assert model.trees[0].threshold[0] == pytest.approx(0.5, abs=0.02)


def slow_class_bits(stats: list[float]) -> float:
    """Mehta, Rissanen and Agrawal 1995, equation 3, and the bit of the leaf."""
    n, k = sum(stats), len(stats)
    if n == 0:
        return 1.0
    data = sum(c * math.log2(n / c) for c in stats if c)
    model = (k - 1) / 2 * math.log2(n / 2) + math.log2(math.pi ** (k / 2) / math.gamma(k / 2))
    return 1.0 + data + max(model, 0.0)


@given(st.lists(st.integers(0, 100), min_size=2, max_size=8))
def test_the_bits_of_a_leaf_are_its_stochastic_complexity(stats):
    found = class_bits(np.array([stats], float))[0]
    assert found == pytest.approx(slow_class_bits(stats), rel=1e-12)


def test_the_bits_of_a_split_count_the_columns_and_the_places_to_divide_one():
    rows = {"x": [1.0, 2.0, 3.0, 4.0, 5.0] * 6, "c": list("klm") * 10, "y": [0, 0, 1, 1, 1] * 6}
    tree = treekit.train(rows, "y", seed=0).trees[0]
    context: Any = SimpleNamespace(table=SimpleNamespace(n_codes=np.array([5, 3])))
    assert tree.feature[0] == 0
    assert split_bits(tree, context)[0] == 1 + math.log2(2) + math.log2(5 - 1)
    assert split_bits(tree, context)[1] == 1


@pytest.mark.parametrize("nominal_splits", ["subset", "multiway"])
def test_the_shortest_of_all_pruned_trees_is_taken(nominal_splits):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        n = 150
        x, c = rng.integers(0, 12, n), rng.integers(0, 4, n)
        y = (x > 5) ^ (c == 1) ^ (rng.random(n) < 0.15)
        rows = {"x": x.astype(float).tolist(), "c": ["klmn"[i] for i in c], "y": y.tolist()}
        settings: dict[str, Any] = {"nominal_splits": nominal_splits, "max_depth": 3, "seed": 0}
        full = treekit.train(rows, "y", **settings).trees[0]
        values = [len(set(rows["x"])), 4]

        def bits(leaves: Any, full: Any = full, values: Any = values) -> float:
            total = sum(slow_class_bits(full.value[leaf].tolist()) for leaf in leaves)
            for node in reference.open_nodes(full, 0, frozenset(leaves)):
                f = int(full.feature[node])
                place = {1: math.log2(values[f] - 1), 2: math.log2(2.0 ** values[f] - 2)}
                total += 1 + math.log2(2) + place.get(int(full.kind[node]), 0.0)
            return total

        best = min(map(bits, reference.prunings(full)))
        pruned = treekit.train(rows, "y", pruner="mdl", **settings).trees[0]
        kept = [leaves for leaves in reference.prunings(full) if bits(leaves) < best + 1e-9]
        assert pruned.n_leaves == min(map(len, kept))


@pytest.mark.parametrize("pruner", ["mdl", "holdout"])
def test_pruners_that_do_not_know_costs_refuse_them_by_name(pruner):
    with pytest.raises(treekit.SettingError, match=f"pruner '{pruner}' does not judge by what"):
        treekit.train(table(60), "y", pruner=pruner, costs="yes>no=3")


def test_a_pruner_stays_out_of_a_training_of_another_kind():
    numbers = make_dataset({"x": [1.0, 2.0], "y": [0.5, 2.5]}, "y")
    with pytest.raises(treekit.SettingError, match="'y' is a regression target"):
        treekit.training.fit(numbers, {"pruner": "holdout"})
