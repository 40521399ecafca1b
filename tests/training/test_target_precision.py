"""Targets of very different magnitudes keep their digits or are refused."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import treekit
from tests.runtimes import need
from treekit import DataError, DecisionTreeRegressor, RandomForestRegressor
from treekit.explain import explain
from treekit.model.model import hash_model
from treekit.model.model_file import load, save
from treekit.model.scoring import leaf_indices, sum_leaf_values
from treekit.rules import parse_rules

SMALL = np.arange(1, 8) / 10


def train(y, weights=None, **settings):
    table = {"x": np.arange(float(len(y))), "y": np.asarray(y, dtype=np.float64)}
    return treekit.train(table, "y", task="regression", weights=weights, seed=0, **settings)


def find_refusal_or_error(y, weights=None, **settings):
    """Return the message of a refusal, else the largest relative error of a leaf."""
    try:
        model = train(y, weights, **settings)
    except DataError as error:
        return str(error)
    found = model.predict({"x": np.arange(float(len(y)))})
    known = np.asarray(y) != 0.0
    assert model.n_leaves == len(np.unique(y))
    return float(np.abs(found / y - 1.0)[known].max(initial=0.0))


@given(
    power=st.floats(0, 25),
    sign=st.sampled_from([-1, 1]),
    place=st.integers(0, 7),
    dtype=st.sampled_from(["float32", "float64"]),
    weighted=st.booleans(),
)
@example(power=4.25, sign=-1, place=5, dtype="float32", weighted=True)  # a light row's error
def test_outlier_is_refused_or_all_leaves_keep_nine_digits(power, sign, place, dtype, weighted):
    y = np.insert(SMALL, place, sign * 10.0**power)
    weights = np.linspace(0.5, 1.5, 8) if weighted else None
    found = find_refusal_or_error(y, weights, dtype=dtype)
    if isinstance(found, str):
        assert f"row {place} is {y[place]:.6g}" in found
        assert "drop the rows with extreme values if these are errors" in found
        assert power > 3
    else:
        assert found <= 1e-9


@pytest.mark.parametrize("power", [3.0, 3.5, 3.9, 4.2])
def test_rows_of_small_weight_keep_nine_digits_or_the_outlier_is_refused(power):
    y = np.insert(SMALL, 5, -(10.0**power))
    found = find_refusal_or_error(y, np.geomspace(0.1, 1.0, 8))
    assert "row 5 is" in found if isinstance(found, str) else found <= 1e-9


@pytest.mark.parametrize("value", [1e20, -9999e30, 1e120])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.4])
@pytest.mark.parametrize("ensemble", ["tree", "forest"])
def test_fill_values_are_refused_with_their_row(value, share, ensemble):
    rng = np.random.default_rng(0)
    y = rng.normal(size=1000)
    rows = np.sort(rng.permutation(1000)[: int(share * 1000)])
    y[rows] = value
    settings = {"ensemble": ensemble} | ({"trees": 10} if ensemble == "forest" else {})
    with pytest.raises(DataError, match=re.escape(f"row {rows[0]} is {value:.6g}")):
        train(y, **settings)


def test_a_fill_value_in_most_rows_is_refused():
    y = np.where(np.arange(100) % 5 < 3, 1e20, np.random.default_rng(0).normal(size=100))
    with pytest.raises(DataError, match=r"row 0 is 1e\+20"):
        train(y)


@pytest.mark.parametrize("y", [[-1e-3, 1e-3, 1e10], [0.1, 1e20], [5.0, 5.0, 1e20]])
def test_outlier_among_few_rows_is_refused(y):
    with pytest.raises(DataError, match="more than 1e-9 of the value"):
        train(y)


def test_rows_without_weight_do_not_count():
    y, weights = np.r_[SMALL, 1e20, 0.8], np.r_[np.ones(7), 0.0, 1.0]
    model = train(y, weights)
    np.testing.assert_allclose(model.predict({"x": np.arange(7.0)}), SMALL, rtol=1e-9)
    with pytest.raises(DataError, match=r"row 8"):
        train(np.r_[SMALL, 1e20, 1e20], weights)


def test_outliers_are_refused_with_the_name_of_their_output():
    y = np.column_stack([SMALL * 1e15, np.r_[SMALL[:-1], 1e20]])
    x = np.arange(7.0).reshape(-1, 1)
    for estimator in (DecisionTreeRegressor(), RandomForestRegressor(3)):
        with pytest.raises(DataError, match=r"target 'target1' .* row 6"):
            estimator.fit(x, y)


@pytest.mark.parametrize("estimator", [DecisionTreeRegressor(), RandomForestRegressor(3)])
def test_estimators_refuse_an_outlier_in_the_target(estimator):
    x = np.arange(8.0).reshape(-1, 1)
    for far in (1e9, 1e20):
        with pytest.raises(DataError, match="row 7 "):
            estimator.fit(x, np.r_[SMALL, far])


# ---------------------------------------------------------------- ordinary targets

_RNG = np.random.default_rng(0)
ORDINARY = {
    "normal": _RNG.normal(size=1000),
    "incomes": np.exp(_RNG.normal(10, 2, size=1000)),
    "incomes from 1 to 1e6": np.rint(10 ** _RNG.uniform(0, 6, size=1000)),
    "sizes from 1 to 1e6": 10 ** _RNG.uniform(0, 6, size=1000),
    "no claim, or one of 1e6": np.where(np.arange(1000) % 50, 0.0, 1e6),
    "claims": np.where(np.arange(1000) % 9, 0.0, np.exp(_RNG.normal(5, 2, size=1000))),
    "mean 1e8": 1e8 + _RNG.normal(size=1000),
    "constant": np.full(1000, 3.5),
    "zeros and a large number": np.r_[np.zeros(999), 1e20],
    "probabilities": np.exp(-np.linspace(0, 10, 1000)),
}


@pytest.mark.kernels
@pytest.mark.parametrize("missing", ["direction", "fractional"])
@pytest.mark.parametrize("n_trees", [1, 100, pytest.param(1000, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_targets_are_trained_without_error(name, n_trees, missing):
    settings = {"missing": missing, "max_depth": 3}
    if n_trees > 1:
        settings |= {"ensemble": "forest", "trees": n_trees, "oob": False}
    train(ORDINARY[name], **settings)


@given(
    power=st.floats(0, 15),
    rows=st.sampled_from([20, 200]),
    signs=st.sampled_from([(1,), (-1,), (0, 1)]),
    weighted=st.booleans(),
    dtype=st.sampled_from(["float32", "float64"]),
)
@example(power=9.0, rows=200, signs=(1,), weighted=False, dtype="float64")
@example(power=12.0, rows=200, signs=(-1,), weighted=False, dtype="float32")
def test_targets_over_many_magnitudes_keep_nine_digits_or_are_refused(
    power, rows, signs, weighted, dtype
):
    rng = np.random.default_rng(rows)
    y = rng.choice(signs, size=rows) * 10 ** np.r_[power, rng.uniform(0, power, size=rows - 1)]
    weights = np.linspace(0.5, 1.5, rows) if weighted else None
    refused = ""
    try:
        model = train(y, weights, dtype=dtype)
    except DataError as error:
        refused = str(error)
    if refused:
        assert power > 9
        assert re.search(r"row \d+ is .* transform the target, for example by a log", refused)
        return
    known = y != 0.0
    found = model.predict({"x": np.arange(float(rows))})[known]
    np.testing.assert_allclose(found, y[known], rtol=1e-9)


@pytest.mark.kernels
def test_targets_of_both_signs_keep_nine_digits_except_near_0():
    y = np.random.default_rng(1).choice([-1, 1], size=1000) * 10 ** _RNG.uniform(0, 9, size=1000)
    found = train(y).predict({"x": np.arange(1000.0)})
    assert np.quantile(np.abs(found / y - 1.0), 0.95) <= 1e-9


@pytest.mark.kernels
def test_integer_targets_from_1_to_1e9_are_exact():
    y = np.rint(10 ** _RNG.uniform(0, 9, size=1000))
    found = train(y, dtype="float64").predict({"x": np.arange(1000.0)})
    np.testing.assert_array_equal(found, y)


# ---------------------------------------------------------------- exact means
# Sizes from 1 to 1e8: the sums of growth are too coarse, and those of a model exceed 2**53.

SIZES = {
    "x": np.arange(400.0) // 3,
    "z": np.random.default_rng(2).normal(size=400),
    "y": 10 ** np.random.default_rng(3).uniform(0, 8, size=400),
    "w": np.random.default_rng(4).integers(0, 4, size=400).astype(float),
    "part": np.random.default_rng(5).uniform(0.1, 2.0, size=400),
}


HOLES = {
    name: np.where(np.arange(400) % 40 == k, np.nan, SIZES[name]) for k, name in enumerate("xz")
}
HOLES["y"] = -SIZES["y"]  # parts of negative numbers are rounded down, too


def train_sizes(weights=None, *, holes=False, **settings):
    table = {name: SIZES[name] for name in ("x", "z", "y")} | (HOLES if holes else {})
    weights = None if weights is None else SIZES[weights]
    return treekit.train(table, "y", weights=weights, seed=0, min_weight_leaf=2, **settings)


@pytest.mark.kernels
@pytest.mark.parametrize("weights", [None, "w", "part"])
@pytest.mark.parametrize("splitter", ["exact", "histogram"])
def test_leaf_values_are_exact_means_of_their_rows(weights, splitter):
    model = train_sizes(weights, splitter=splitter)
    matrix = np.column_stack([SIZES["x"], SIZES["z"]])
    leaf = leaf_indices(model, matrix)[:, 0]
    w = np.ones(400) if weights is None else SIZES[weights]
    for node in np.unique(leaf[w > 0]).tolist():
        rows = np.flatnonzero((leaf == node) & (w > 0))
        mean = sum(Fraction(w[i]) * Fraction(SIZES["y"][i]) for i in rows)
        mean /= sum(Fraction(w[i]) for i in rows)
        assert abs(model.trees[0].value[node, 0] / float(mean) - 1.0) <= (
            1e-9 if weights == "part" else 1e-14
        ), node


def divide(tree, parts, node=0):
    """Yield leaves and their (row, weight): shares are those of the weight of known values."""
    if tree.n_children[node] == 0:
        yield node, parts
        return
    column = list(HOLES.values())[tree.feature[node]].astype(np.float32)
    known = [(row, w) for row, w in parts if not np.isnan(column[row])]
    is_right = {row: bool(column[row] > tree.threshold[node]) for row, _ in known}
    share = sum(w for row, w in known if is_right[row]) / sum(w for _, w in known)
    for side, own in enumerate((1 - share, share)):
        mine = [(row, w) for row, w in known if is_right[row] == bool(side)]
        mine += [(row, w * own) for row, w in parts if row not in is_right]
        yield from divide(tree, mine, tree.first_child[node] + side)


@pytest.mark.kernels
@pytest.mark.parametrize("weights", [None, "part"])
@pytest.mark.parametrize("splitter", ["exact", "histogram"])
def test_leaf_values_are_exact_means_of_fractional_rows(weights, splitter):
    model = train_sizes(weights, missing="fractional", holes=True, splitter=splitter)
    (tree,) = model.trees
    w = [Fraction(1)] * 400 if weights is None else map(Fraction, SIZES[weights].tolist())
    y = [Fraction(value) for value in HOLES["y"].tolist()]
    kept = np.ldexp(model.units[:, 0].astype(float), model.exponent)
    leaves = dict(divide(tree, list(enumerate(w))))
    assert len(leaves) == model.n_leaves > 50
    for value, node in zip(kept.tolist(), tree.leaves.tolist(), strict=True):
        parts = leaves[node]
        mean = sum(share * y[row] for row, share in parts) / sum(share for _, share in parts)
        assert abs(value / float(mean) - 1.0) <= 1e-9, node


@pytest.mark.kernels
@pytest.mark.parametrize("both", [False, True])
def test_fractional_leaves_of_forests_keep_nine_digits(both):
    rng = np.random.default_rng(7)
    y = 10 ** rng.uniform(0, 6, size=2000) * (rng.choice([-1, 1], size=2000) if both else 1)
    x = np.where(rng.random((2000, 3)) < 0.2, np.nan, rng.normal(size=(2000, 3)))
    table = dict(zip("abcy", [*x.T, y], strict=True))
    model = treekit.train(
        table, "y", missing="fractional", ensemble="forest", trees=20, oob=False, seed=0
    )
    values = np.concatenate([tree.value[tree.leaves, 0] for tree in model.trees])
    kept = np.ldexp(model.units[:, 0].astype(float), model.exponent)
    assert np.quantile(np.abs(kept / values - 1.0), 0.95 if both else 1.0) <= 1e-9


@pytest.mark.kernels
def test_fractional_targets_over_too_many_magnitudes_are_refused():
    y = 10.0 ** np.linspace(0, 10.5, 400)  # refused by the leaves, not by the numbers
    with pytest.raises(DataError, match=r"row 3\d+ is .*transform the target"):
        train(y, missing="fractional")


@pytest.mark.kernels
@pytest.mark.parametrize(
    "settings", [{}, {"ensemble": "forest", "trees": 8}], ids=["tree", "forest"]
)
def test_model_of_wide_targets_is_equal_for_copies_threads_and_row_orders(settings):
    names, repeat = ("x", "z", "y"), SIZES["w"].astype(int)
    model = train_sizes("w", **settings)
    copies = {name: np.repeat(SIZES[name], repeat) for name in names}
    order = np.random.default_rng(0).permutation(len(copies["y"]))
    shuffled = {name: own[order] for name, own in copies.items()}
    options = {"seed": 0, "min_weight_leaf": 2, **settings}
    for other in (
        treekit.train(copies, "y", **options),
        treekit.train(shuffled, "y", **options),
        treekit.train(copies, "y", n_jobs=2, **options),
    ):
        assert hash_model(other) == hash_model(model)


@pytest.mark.kernels
def test_monotonic_constraints_hold_for_targets_of_many_magnitudes():
    model = train_sizes(monotonic={"x": 1}, max_depth=4)
    found = model.predict({"x": np.arange(140.0), "z": np.zeros(140)})
    assert (np.diff(found) >= 0).all()


@pytest.mark.kernels
def test_pruned_leaves_have_exact_means():
    full, pruned = train_sizes(), train_sizes(pruner="cost_complexity")
    assert pruned.n_leaves < full.n_leaves
    np.testing.assert_allclose(pruned.trees[0].value[0], SIZES["y"].mean(), rtol=1e-15)


@pytest.mark.kernels
@pytest.mark.parametrize("missing", ["direction", "fractional"])
@pytest.mark.parametrize("count", [1, 5])
def test_targets_of_many_magnitudes_predict_equal_bits_in_every_export(count, missing, tmp_path):
    need("gcc", "node")
    forest = {"ensemble": "forest", "trees": count, "max_depth": 6} if count > 1 else {}
    model = train_sizes(missing=missing, holes=missing == "fractional", **forest)
    assert model.has_wide_sums
    targets = {"c": "m.c", "python": "m.py", "onnx": "m.onnx", "javascript": "m.mjs"}
    paths = [tmp_path / name for name in targets.values()]
    for target, path in zip(targets, paths, strict=True):
        treekit.export(model, target, path)
    assert treekit.verify(model, paths).equal
    for row in ({"x": 7.0, "z": 0.25}, {"x": None, "z": 0.25}):
        (number,) = explain(model, row, changes=0).sums
        assert number.number(number.total) == model.predict([row])[0]
        cells = np.array([np.nan if row["x"] is None else row["x"], row["z"]], np.float32)
        assert model.scorer()(cells) == model.predict([row])[0]
        assert (
            model.rules().sums(cells)[0].tolist() == sum_leaf_values(model, cells[None])[0].tolist()
        )
    save(model, tmp_path / "m.treekit")
    assert hash_model(load(tmp_path / "m.treekit")) == hash_model(model)
    rules = model.rules()
    assert parse_rules("".join(rules.text())).units.tolist() == rules.units.tolist()


@pytest.mark.kernels
@pytest.mark.parametrize("criterion", ["absolute_error", "poisson"])
def test_outliers_are_refused_for_other_criteria(criterion):
    train(ORDINARY["incomes"], criterion=criterion, max_depth=3)
    with pytest.raises(DataError, match="row 7 "):
        train(np.r_[SMALL, 1e20], criterion=criterion)


# ---------------------------------------------------------------- steps of forests


@pytest.mark.parametrize("n_trees", [10, 100, 1000])
def test_forest_leaf_values_keep_nine_digits(n_trees):
    # Two limbs keep ordinary leaves of few trees, three those of many.
    y = _RNG.normal(size=60)
    model = train(y, ensemble="forest", trees=n_trees, oob=False)
    values = np.concatenate([tree.value[tree.leaves, 0] for tree in model.trees])
    kept = np.ldexp(model.units[:, 0].astype(float), model.exponent)
    assert np.abs(kept - values).max() <= 1e-9 * np.median(np.abs(values))
    assert (np.abs(model.units).max() * n_trees <= 2**53).all()


def test_a_forest_with_three_limbs_is_exported_bit_for_bit(tmp_path):
    need("gcc")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), np.exp(rng.normal(0, 3, size=60))
    forest = RandomForestRegressor(400, max_depth=3, random_state=0).fit(x, y).model_
    assert np.abs(forest.units).max() > (2**24 // 400) << 16
    treekit.export(forest, "onnx", tmp_path / "m.onnx")
    treekit.export(forest, "c", tmp_path / "m.c")
    report = treekit.verify(forest, [tmp_path / "m.onnx", tmp_path / "m.c"])
    assert report.equal
