"""Readable thresholds: few digits, near the midpoint, each training row on its branch."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

import treekit
from tests.reference.thresholds import readable_threshold
from tests.tiers import later
from treekit.data import demo_table
from treekit.data.encoding import encode_rows
from treekit.data.table import read_table
from treekit.kernels.thresholds import (
    MIDPOINT,
    READABLE_FLOAT32,
    READABLE_FLOAT64,
    VALUE_BELOW,
    find_readable_threshold,
)
from treekit.model.fixed_point import place_threshold
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Split
from treekit.rules.wording import format_numbers

TABLES = Path(__file__).parents[1] / "tables"
PLACEMENTS = {np.float32: READABLE_FLOAT32, np.float64: READABLE_FLOAT64}
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def readable(low, high, dtype=np.float64):
    return find_readable_threshold(float(dtype(low)), float(dtype(high)), PLACEMENTS[dtype])


@pytest.mark.parametrize("dtype", PLACEMENTS)
@pytest.mark.parametrize(
    ("low", "high", "threshold"),
    [
        (1.9, 3.0, 2.45),  # the root of every book's tree of iris
        (1.7, 1.8, 1.75),
        (0.36, 0.403, 0.3815),  # density in table 4.3 of Zhou, Machine Learning, 2016
        (29_000, 31_000, 30_000),
        (3, 4, 3.5),
        (31, 50, 40.5),
        (-1, 1, 0.0),
        (1.7, 4123.6, 2100.0),
    ],
)
def test_readable_thresholds_equal_known_examples(low, high, threshold, dtype):
    assert readable(low, high, dtype) == dtype(threshold)


@pytest.mark.parametrize("dtype", PLACEMENTS)
@given(data=st.data())
def test_readable_threshold_keeps_both_values_on_their_branches(data, dtype):
    width = np.finfo(dtype).bits
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=width)
    low, high = sorted(data.draw(st.tuples(numbers, numbers)))
    assume(low < high)
    found = readable(low, high, dtype)
    (placed,) = place_threshold([low], [high], f"float{width}", PLACEMENTS[dtype])
    assert low <= placed < high
    assert placed == dtype(placed)
    assert np.isnan(found) or found == placed


@pytest.mark.parametrize("dtype", PLACEMENTS)
@given(
    start=st.integers(-(10**5), 10**5),
    width=st.integers(1, 10**5),
    places=st.integers(-2, 4),
    more=st.integers(-2, 4),
)
def test_a_readable_threshold_has_the_fewest_digits_near_the_midpoint(
    dtype, start, width, places, more
):
    low, high = dtype(start / 10.0**places), dtype(start / 10.0**places + width / 10.0**more)
    assume(low < high)
    expected = readable_threshold(float(low), float(high), dtype)
    found = readable(low, high, dtype)
    if expected is None:
        assert np.isnan(found)
    else:
        # The kernel rounds the midpoint: of two decimals equally near to it, it may take either.
        apart = abs(found - expected)
        assert apart <= (float(high) - float(low)) / 49
        assert len(digits_of(found, dtype)) <= len(digits_of(expected, dtype))


def digits_of(number, dtype):
    (text,) = format_numbers(np.array([number]), np.dtype(dtype).name)
    return text.partition("e")[0].lstrip("-").replace(".", "").strip("0")


@given(FINITE, FINITE)
def test_other_threshold_placements_use_the_midpoint(low, high):
    assert np.isnan(find_readable_threshold(low, high, MIDPOINT))
    assert np.isnan(find_readable_threshold(low, high, VALUE_BELOW))


# ---------------------------------------------------------------- tables


def csv_table(name):
    with (TABLES / f"{name}.csv").open() as file:
        return next(csv.reader(file))[-1], TABLES / f"{name}.csv"


def sklearn_table(load):
    frame = load(as_frame=True).frame
    return "target", frame


LOADED = {
    "horse colic": lambda: ("surgical_lesion", demo_table()),
    "cpu": lambda: csv_table("cpu"),
    "labor": lambda: csv_table("labor"),
    "iris": lambda: sklearn_table(load_iris),
    "wine": lambda: sklearn_table(load_wine),
    "breast cancer": lambda: sklearn_table(load_breast_cancer),
    "diabetes": lambda: sklearn_table(load_diabetes),
}


WIDE = ("breast cancer", "diabetes")
"""Tables with columns of more than 256 numbers, for which kernels are compiled of their own."""


def mean_digits(model):
    dtype = np.dtype(model.schema.dtype).type
    numbers = np.concatenate([tree.threshold[tree.kind == Split.THRESHOLD] for tree in model.trees])
    return np.mean([len(digits_of(number, dtype)) for number in numbers])


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("name", "missing"),
    [
        pytest.param(
            name, missing,
            marks=[pytest.mark.matrix]
            * (name in WIDE or (name != "horse colic" and missing != "direction")),
        )
        for name in LOADED
        for missing in ("direction", "surrogate", "fractional")
    ],
)  # fmt: skip
def test_readable_thresholds_do_not_change_the_leaf_of_a_training_row(name, missing):
    target, table = LOADED[name]()
    models = [
        treekit.train(table, target, seed=0, missing=missing, thresholds=thresholds)
        for thresholds in ("readable", "midpoint")
    ]
    rows = read_table(table)
    leaves = [leaf_indices(model, encode_rows(rows, model.schema)) for model in models]
    assert np.array_equal(*leaves)
    assert [tree.n_nodes for tree in models[0].trees] == [tree.n_nodes for tree in models[1].trees]
    assert mean_digits(models[0]) < mean_digits(models[1])


@pytest.mark.kernels
@pytest.mark.parametrize("splitter", [later("exact"), "histogram"])
@pytest.mark.parametrize("missing", ["direction", later("surrogate")])
def test_validation_rows_follow_readable_thresholds(splitter, missing):
    # Values between the midpoint and the readable threshold: 0.01 of the gap around it.
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 3)).round(2)
    table = {"a": x[:, 0], "b": x[:, 1], "y": (x @ [1.0, 1.0, 2.0] > 0).astype(str)}
    more = rng.normal(size=(3000, 3)).round(4)
    held = {"a": more[:, 0], "b": more[:, 1], "y": (more @ [1.0, 1.0, 2.0] > 0).astype(str)}
    model = treekit.train(
        table, "y", seed=0, splitter=splitter, missing=missing, pruner="reduced_error",
        validation=held,
    )  # fmt: skip
    risk = model.provenance["pruner"]["held_risk"]
    wrong = np.mean(np.asarray(model.predict(held)) != held["y"])
    assert risk == pytest.approx(wrong, abs=1e-12)
