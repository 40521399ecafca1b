"""Verification of models with sums, surrogates, divided rows, costs and several targets."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import evaluate
from tests.strategies import ALL_KINDS, matrices, models
from treekit.data.schema import Column, Schema
from treekit.export import export
from treekit.model.builder import (
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.model import least_cost, make_model
from treekit.verify import make_probes, verify
from treekit.verify.coverage import measure
from treekit.verify.routing import is_plain, matrix_of, nothing_touched, route_rows, routed
from treekit.verify.rule_boundaries import rule_rows
from treekit.verify.targeted_search import next_to_thresholds, reachable

NAN, INF = float("nan"), float("inf")
MOST = 10**6
SCHEMA = Schema(
    (Column("x"), Column("y"), Column("colour", "nominal", ("red", "green", "blue"))),
    classes=("no", "yes"),
)


def sums_model(**policies):
    inner = oblique({"x": 0.5, "y": -1.25}, 0.875, leaf([3, 1]), leaf([0, 4]), missing=1)
    outer = oblique({"x": 0.3, "y": 0.7}, -0.1, leaf([1, 1]), inner, missing=0)
    return make_model(SCHEMA, [build_tree(outer, SCHEMA)], **policies)


def surrogates_model():
    instead = (
        Surrogate("y", 0.25, below=1),
        Surrogate("colour", levels={"red": 0, "blue": 1}),
    )
    deeper = subset(
        "colour", ["red"], leaf([2, 1]), leaf([1, 2]), 1, surrogates=[Surrogate("y", 1)]
    )
    split = threshold("x", 2.5, leaf([3, 1]), deeper, missing=1, surrogates=instead)
    return make_model(SCHEMA, [build_tree(split, SCHEMA)], missing="surrogate")


def divided_model():
    colours = multiway("colour", {"red": leaf([1, 4]), "blue": leaf([2, 2])})
    known = is_missing("y", leaf([5, 1]), colours)
    root = threshold("x", 2.5, leaf([3, 1]), known)
    return make_model(SCHEMA, [build_tree(root, SCHEMA)] * 2, missing="fractional")


TARGETS = ("onnx", "c", "python", "rules")
MODELS = {"sums": sums_model, "surrogates": surrogates_model, "divided": divided_model}


def touched_by(of, rows):
    touched = nothing_touched(of)
    route_rows(of, matrix_of(of.model, rows), 0, touched)
    return touched


# ------------------------------------------------------------------ routes


@given(st.data())
@settings(max_examples=examples(30))
def test_routes_give_every_row_the_integers_that_the_model_means(data):
    from treekit.kernels.reachability import answers_below

    model = data.draw(models(kinds=ALL_KINDS))
    rows = data.draw(matrices(model, max_rows=6))
    of = routed(model)
    stack, part = (
        np.empty((len(of.routes.nodes) + 1, 2), np.int64),
        np.empty(model.schema.n_values, np.int64),
    )
    for row, cells in zip(rows.tolist(), matrix_of(model, rows), strict=True):
        total = np.zeros(model.schema.n_values, dtype=np.int64)
        for root in of.roots[:-1]:
            answers_below(of.routes, root, cells, stack, part)
            total += part
        assert total.tolist() == evaluate.sums(model, row)


@given(st.data())
@settings(max_examples=examples(50))
def test_no_row_touches_what_is_called_impossible(data):
    model = data.draw(models(kinds=ALL_KINDS))
    of, rows = routed(model), data.draw(matrices(model))
    can, touched = reachable(of), touched_by(of, rows)
    assert not (touched.node >= 0)[~can.node].any()
    assert not (touched.unknown >= 0)[~can.unknown].any()
    assert not (touched.side >= 0)[~can.side].any()
    assert not (touched.level >= 0)[~can.level].any()
    assert not next_to_thresholds(of, matrix_of(model, rows), touched)[~can.near].any()


def test_impossible_parts_below_sums_and_surrogates_are_proved_to_be():
    again = oblique({"x": 1.0, "y": 1.0}, 2.0, leaf([1, 2]), leaf([2, 1]))
    root = oblique({"x": 1.0, "y": 1.0}, 1.0, again, leaf([1, 1]), missing=1)
    model = make_model(SCHEMA, [build_tree(root, SCHEMA)])
    coverage = measure(model, make_probes(model, 0, 0, MOST))
    # A sum of at most 1 is at most 2, and known below a branch that unknown ones do not take.
    second = int(model.trees[0].first_child[1]) + 1
    assert coverage.unreachable == ((0, second),)
    assert coverage.part("leaves").reached == coverage.part("leaves").reachable == 2


# ------------------------------------------------------------------ probes


@given(st.data())
@settings(max_examples=examples(15))
def test_probes_touch_what_any_row_touches(data):
    model = data.draw(models(kinds=ALL_KINDS).filter(lambda m: not is_plain(m)))
    of, rows = routed(model), data.draw(matrices(model, max_rows=30))
    probes = make_probes(model, 0, 0, MOST)
    coverage = measure(model, probes)
    assert probes.complete
    some, mine = touched_by(of, rows), touched_by(of, probes.rows)
    missed = np.count_nonzero((some.node >= 0) & (mine.node < 0))
    assert missed == 0 or coverage.part("leaves").share < 1.0
    assert len(probes.refused) == 0


@pytest.mark.parametrize("name", MODELS)
def test_small_models_are_covered_completely(name):
    model = MODELS[name]()
    probes = make_probes(model, 0, 0, MOST)
    coverage = measure(model, probes)
    assert all(part.share == 1.0 for part in coverage.parts)
    assert probes.wrong_turns[0] > 0
    assert probes.wrong_turns[2] == 0


def test_rows_show_the_last_bit_of_every_weight_of_a_sum():
    """Each weight one float32 up and down: some probe takes the other side."""
    weights, at = {"x": 0.3, "y": 0.7}, -0.1
    split = oblique(weights, at, leaf([3, 1]), leaf([1, 3]), missing=0)
    model = make_model(SCHEMA, [build_tree(split, SCHEMA)])
    rows = matrix_of(model, make_probes(model, 0, 0, MOST).rows)[:, :2]
    rows = rows[np.isfinite(rows).all(axis=1)]
    w = model.trees[0].term_weight
    right = w[0] * rows[:, 0] + w[1] * rows[:, 1] <= at
    for term in (0, 1):
        for towards in (-INF, INF):
            other = w.copy()
            other[term] = np.nextafter(np.float32(w[term]), np.float32(towards))
            assert ((other[0] * rows[:, 0] + other[1] * rows[:, 1] <= at) != right).any()


def test_rows_show_the_last_bit_of_a_sums_threshold():
    split = oblique({"x": 0.3, "y": 0.7, "z": 0.9}, 0.5, leaf([3, 1]), leaf([1, 3]))
    schema = Schema((Column("x"), Column("y"), Column("z")), classes=("no", "yes"))
    model = make_model(schema, [build_tree(split, schema)])
    rows = matrix_of(model, make_probes(model, 0, 0, MOST).rows)
    w = model.trees[0].term_weight
    with np.errstate(invalid="ignore"):
        sums = 0.0 + w[0] * rows[:, 0] + w[1] * rows[:, 1] + w[2] * rows[:, 2]
    assert {0.5, math.nextafter(0.5, INF)} <= set(sums.tolist())


def test_a_bound_on_the_rows_is_reported_honestly():
    model = divided_model()
    assert not make_probes(model, 0, 0, 5).complete


def test_numbers_of_double_are_moved_to_thresholds_exactly():
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"), dtype="float64")
    inner = threshold("y", -1e300, leaf([3, 1]), leaf([1, 3]))
    tree = build_tree(threshold("x", 0.1, leaf([1, 1]), inner), schema)
    model = make_model(schema, [tree], missing="fractional")
    rows = make_probes(model, 0, 0, MOST).rows
    assert {0.1, math.nextafter(0.1, 1)} <= set(rows[:, 0].tolist())
    assert {-1e300, math.nextafter(-1e300, 1)} <= set(rows[:, 1].tolist())


# ------------------------------------------------------------------ rules and artifacts


@pytest.mark.parametrize("name", MODELS)
def test_every_rule_is_met_at_each_of_its_bounds(name):
    model = MODELS[name]()
    probes = make_probes(model, 0, 0, MOST).rows
    rows, probed, total = rule_rows(model, MOST, probes, np.random.default_rng(0))
    assert probed == total == model.n_leaves
    assert len(rows) >= 2 * model.n_leaves
    few, some, _ = rule_rows(model, 8, probes, np.random.default_rng(0))
    assert len(few) <= 8
    assert some < total


@pytest.mark.parametrize("name", MODELS)
def test_artifacts_of_every_kind_of_model_are_equal(tmp_path, name):
    model = MODELS[name]()
    paths = [export(model, target, tmp_path / "model")[0] for target in TARGETS]
    report = verify(model, paths, random_rows=100)
    assert report.equal, str(report)
    assert "coverage is incomplete" not in str(report)


def test_a_report_says_of_how_many_numbers_in_sums_the_last_bit_would_show(tmp_path):
    model = sums_model()
    (path,) = export(model, "rules", tmp_path / "model")[:1]
    report = verify(model, [path], random_rows=0, certificate=tmp_path / "certificate.json")
    shown, tried = report.coverage.last_bits
    assert tried == 2 * 2 * (2 + 1)  # two sums of two weights and a threshold, up and down
    assert 8 <= shown <= tried
    assert f"one bit up or down: {shown} of {tried} would show" in str(report)
    told = json.loads((tmp_path / "certificate.json").read_text())
    assert told["coverage"]["last_bits_of_sums"] == {"shown": shown, "tried": tried}


def test_rows_in_which_one_cost_decides_are_bred():
    costs = np.array([[0, 3, 2], [7, 0, 1], [1, 2, 0]])
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes", "perhaps"))
    rng = np.random.default_rng(1)
    trees = []
    for _ in range(4):
        node = leaf(np.eye(3)[rng.integers(3)].tolist())
        for at in range(6):
            other = leaf(np.eye(3)[rng.integers(3)].tolist())
            node = threshold(int(rng.integers(2)), float(at - 3), other, node)
        trees.append(build_tree(node, schema))
    model = make_model(schema, trees, costs=costs)
    total = np.array(
        [evaluate.sums(model, r) for r in make_probes(model, 0, 0, MOST).rows.tolist()]
    )
    grid = [(x, y) for x in np.arange(-4.0, 5.0) for y in np.arange(-4.0, 5.0)]
    every = np.array([evaluate.sums(model, row) for row in grid])
    for entry in np.ndindex(3, 3):
        for step in (-1, 1):
            other = costs.copy()
            other[entry] += step
            if (least_cost(every, other) != least_cost(every, costs)).any():
                assert (least_cost(total, other) != least_cost(total, costs)).any(), (entry, step)
