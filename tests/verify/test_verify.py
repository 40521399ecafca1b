"""Verification: rows that cover the model, runners, reports and certificates."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import platform
import re
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import treekit
from tests.examples import examples
from tests.reference import evaluate
from tests.reference.models import chain, mixed_schema, random_model
from tests.runtimes import need
from tests.strategies import ALL_KINDS, matrices, models
from tests.verify.models import SCHEMA, divided_model, sums_model, surrogates_model
from treekit.cli import main
from treekit.data import demo_table
from treekit.data.schema import Column, Output, Schema
from treekit.errors import VerificationError
from treekit.export import export
from treekit.model.builder import (
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import hash_model, make_model, predict_labels
from treekit.model.scoring import leaf_indices, sum_leaf_values
from treekit.model.tree import Split
from treekit.rules import rules
from treekit.verify import Report, make_probes, runtime, verify
from treekit.verify.answers import Answers, differing, expected
from treekit.verify.boxes import demand_leaves, draw_rows, intersect, make_boxes
from treekit.verify.probe_values import find_next_above
from treekit.verify.probes import make_rule_rows
from treekit.verify.report import _format_percent, make_certificate
from treekit.verify.run_artifact import ReferenceRows, find_runner, run_artifact
from treekit.verify.run_onnx import ONNX_RUNTIMES
from treekit.verify.runtime import Job, OutOfTimeError, Runner, Runtime, read_version

# ---------------------------------------------------------------- verify

MOST = 10**7


def exported(model, folder, *targets, **settings):
    if "c" in targets:
        need("gcc")
    return [export(model, target, folder / "model", **settings)[0] for target in targets]


def small_model(**policies):
    schema = Schema(
        (Column("x"), Column("colour", "nominal", ("red", "blue"))), classes=("no", "yes")
    )
    below = subset("colour", ["red"], leaf([3, 1]), leaf([1, 1]), missing=0)
    return make_model(
        schema, [build_tree(threshold("x", 0.5, leaf([1, 3]), below), schema)], **policies
    )


def test_verify_without_artifacts_is_refused():
    with pytest.raises(VerificationError, match=r"no artifacts to verify; pass .*treekit\.export"):
        verify(small_model(), [])


def test_returned_paths_of_export_can_be_verified(tmp_path):
    need("gcc")
    model = small_model()
    files = export(model, "c", tmp_path / "model")
    assert sorted(file.suffix for file in files) == [".c", ".h"]
    assert verify(model, files, random_rows=50).equal
    assert verify(model, str(files[0]), random_rows=50).equal
    files[0].unlink()
    with pytest.raises(VerificationError, match=r"cannot run 'model\.h'"):
        verify(model, [tmp_path / "model.h"])


# ------------------------------------------------------------------ probes


@given(models())
@settings(max_examples=examples(60))
def test_every_branch_and_leaf_is_reached_or_proved_unreachable(model):
    probes = make_probes(model, 0, 0, MOST)
    coverage = probes.coverage
    assert all(part.share == 1.0 for part in coverage.parts)
    reached = leaf_indices(model, probes.rows)
    unreachable = set(coverage.unreachable)
    for t, tree in enumerate(model.trees):
        seen = set(reached[:, t].tolist())
        for node in tree.leaves.tolist():
            assert (node in seen) != ((t, node) in unreachable)


@given(models())
@settings(max_examples=examples(40))
def test_wrong_branches_not_shown_by_verification_rows_change_no_prediction(model):
    """Force a split the wrong way for one sort of value; if an answer changes, a probe knew."""
    probes = make_probes(model, 0, 0, MOST)
    tree = model.trees[0]
    rows = make_probes(model, 300, 1, MOST).rows
    for node in np.flatnonzero(tree.kind == Split.THRESHOLD)[:4]:
        flipped = tree.missing.copy()
        flipped[node] = 1 - flipped[node]
        other = dataclasses.replace(
            model, trees=(dataclasses.replace(tree, missing=flipped), *model.trees[1:])
        )
        if differs(model, other, rows):
            assert differs(model, other, probes.rows)


def differs(a, b, rows):
    return any(evaluate.sums(a, row) != evaluate.sums(b, row) for row in rows.tolist())


def test_nodes_that_no_input_can_reach_are_listed():
    schema = Schema((Column("x"), Column("c", "nominal", ("a", "b"))), classes=("no", "yes"))
    above = threshold("x", 3.0, leaf([1, 0]), leaf([0, 1]), missing=0)
    known = subset("c", ["a"], leaf([1, 0]), leaf([0, 1]), missing=1)
    again = is_missing("c", leaf([5, 1]), known)
    never = is_missing("c", leaf([1, 1]), leaf([1, 2]))
    root = threshold("x", 5.0, is_missing("c", leaf([2, 1]), never), above, missing=0)
    trees = [build_tree(root, schema), build_tree(again, schema)]
    coverage = make_probes(make_model(schema, trees), 0, 0, MOST).coverage
    dead = {(t, n) for t, n in coverage.unreachable}
    first = trees[0]
    right = int(first.first_child[0]) + 1
    inner = int(first.first_child[int(first.first_child[0])]) + 1
    assert dead == {(0, int(first.first_child[right])), (0, int(first.first_child[inner]))}
    assert coverage.part("leaves").reached == coverage.part("leaves").reachable


def test_verification_rows_contain_thresholds_their_neighbours_and_extremes():
    schema = Schema((Column("x"),), classes=("no", "yes"))
    model = make_model(
        schema, [build_tree(threshold("x", 0.5, leaf([1, 3]), leaf([3, 1])), schema)]
    )
    values = set(make_probes(model, 0, 0, MOST).rows[:, 0].tolist())
    up, down = (float(np.nextafter(np.float32(0.5), np.float32(s))) for s in (1, 0))
    edge = (0.5 + up) / 2  # rounds to 0.5, the even neighbour
    wanted = {0.5, up, down, edge, math.nextafter(edge, 1), math.inf, -math.inf}
    assert wanted | {math.nextafter(0.5, 0), math.nextafter(0.5, 1)} <= values
    assert any(math.isnan(x) for x in values)


def test_both_zeros_are_tried_at_a_threshold_of_zero():
    schema = Schema((Column("x"),), classes=("no", "yes"), dtype="float64")
    model = make_model(
        schema, [build_tree(threshold("x", 0.0, leaf([1, 3]), leaf([3, 1])), schema)]
    )
    zeros = [x for x in make_probes(model, 0, 0, MOST).rows[:, 0].tolist() if x == 0]
    assert {math.copysign(1, x) for x in zeros} == {1.0, -1.0}


def test_unseen_categories_are_tried_if_they_count_as_missing():
    codes = make_probes(small_model(), 0, 0, MOST).rows[:, 1]
    assert 2.0 in codes
    careful = make_probes(small_model(unknown="error"), 500, 0, MOST)
    assert set(np.unique(careful.rows[:, 1][~np.isnan(careful.rows[:, 1])])) == {0.0, 1.0}
    assert {-1.0, 2.0} <= set(careful.refused[:, 1].tolist())


def test_same_seed_makes_the_same_verification_rows():
    model = random_model(1, mixed_schema())
    first, second, other = (make_probes(model, 100, seed, MOST).rows for seed in (4, 4, 5))
    assert np.array_equal(first, second, equal_nan=True)
    assert not np.array_equal(first, other, equal_nan=True)


def test_max_rows_is_respected_and_incomplete_coverage_reported():
    model = chain(300, Schema((Column("x"),), classes=("no", "yes")))
    assert make_probes(model, 0, 0, MOST).coverage.complete
    for most in (50, 500):
        probes = make_probes(model, 0, 0, most)
        assert len(probes.rows) <= most
        assert not probes.coverage.complete
        part = probes.coverage.part("number just above it")
        assert part.reachable == 300
        reached = find_touched(model, probes.rows)
        assert part.reached == len(reached["number just above it"])


def test_each_number_at_and_above_a_threshold_is_tried_in_both_types():
    model = chain(40, Schema((Column("x"),), classes=("no", "yes")))
    probes = make_probes(model, 0, 0, MOST)
    for name in ("number at a threshold", "number just above it", "missing value at a split"):
        assert len(find_touched(model, probes.rows)[name]) == 40
        assert probes.coverage.part(name).reached == 40
    thresholds = model.trees[0].threshold[model.trees[0].kind == Split.THRESHOLD]
    edges = to_double_threshold(thresholds)
    assert set(edges.tolist()) <= set(probes.rows[:, 0].tolist())
    assert set(np.nextafter(edges, np.inf).tolist()) <= set(probes.rows[:, 0].tolist())


def test_demands_satisfied_only_by_a_missing_value_get_one():
    schema = Schema((Column("x"),), classes=("no", "yes"))
    low = threshold("x", 0.0, leaf([1, 0]), leaf([0, 1]), missing=0)
    high = threshold("x", 5.0, leaf([1, 0]), leaf([0, 1]), missing=1)
    boxes = make_boxes(make_model(schema, [build_tree(low, schema), build_tree(high, schema)]))
    first, last = (demand_leaves(boxes, np.full(200, at)) for at in (0, 3))
    both, possible = intersect(boxes, first, last)
    assert possible.all()
    assert np.isnan(draw_rows(boxes, both, np.random.default_rng(0))).all()
    _, possible = intersect(boxes, first, demand_leaves(boxes, np.full(200, 1)))
    assert not possible.any()


def test_one_row_covers_nodes_of_several_trees():
    """Each row is as many probes as its columns allow; the limit counts rows, not probes."""
    schema = Schema(tuple(Column(f"x{i}") for i in range(6)), classes=("a", "b", "c"))
    rng = np.random.default_rng(0)
    alone = [make_model(schema, [balanced_tree(rng, schema, 20)]) for _ in range(30)]
    model = make_model(schema, [own.trees[0] for own in alone])
    n_alone = sum(len(make_probes(own, 0, 0, MOST).rows) for own in alone)
    probes = make_probes(model, 0, 0, MOST)
    assert len(probes.rows) < n_alone
    assert probes.coverage.complete
    touched = find_touched(model, probes.rows)
    for name, parts in touched.items():
        assert probes.coverage.part(name).reached == len(parts), name


@pytest.mark.matrix
def test_ten_thousand_leaves_are_covered_completely():
    rng = np.random.default_rng(0)
    schema = Schema(tuple(Column(f"x{i}") for i in range(6)), classes=("a", "b", "c"))
    model = make_model(schema, [balanced_tree(rng, schema, 10_500)])
    coverage = make_probes(model, 0, 0, MOST).coverage
    assert coverage.part("leaves").reachable > 1000
    assert all(part.share == 1.0 for part in coverage.parts)


def balanced_tree(rng, schema, n_leaves):
    """Thresholds that halve by turns what is left of the unit cube, roughly."""
    boxes = [(np.zeros(6), np.ones(6))]
    splits = []
    for at in range(n_leaves - 1):
        low, high = boxes[at]
        f = int(np.argmax(high - low + rng.random(6) * 0.1))
        t = float(np.float32((low[f] + high[f]) / 2 + rng.normal() * 1e-3))
        left, right = high.copy(), low.copy()
        left[f] = right[f] = t
        splits.append((f, t))
        boxes += [(low, left), (right, high)]
    nodes = [leaf((rng.integers(0, 4, 3) + 1).tolist()) for _ in boxes]
    for at in reversed(range(len(splits))):
        nodes[at] = threshold(*splits[at], nodes[2 * at + 1], nodes[2 * at + 2])
    return build_tree(nodes[0], schema)


def test_every_rule_is_matched_at_its_bounds_and_not_just_beyond():
    schema = Schema((Column("x"), Column("c", "nominal", ("a", "b", "d"))), classes=("no", "yes"))
    inner = subset("c", ["a", "d"], leaf([1, 0]), leaf([1, 1]), missing=1)
    root = threshold("x", 1.0, leaf([0, 1]), threshold("x", 2.0, inner, leaf([2, 1])), missing=1)
    model = make_model(schema, [build_tree(root, schema)])
    rows, probed, total = make_rule_rows(model, MOST, np.random.default_rng(0))
    assert probed == total == 4
    above = [float(np.nextafter(np.float32(t), np.float32(9))) for t in (1, 2)]
    x, c = rows.T
    # The rule "1 < x <= 2 and c in {a, d}": at its bounds, its levels, and beyond each.
    is_inside = (x > 1) & (x <= 2)
    for level in (0.0, 2.0):
        assert (is_inside & (c == level)).any()
    for number in (2.0, above[0], 1.0, above[1]):
        assert ((x == number) & np.isin(c, (0, 2))).any()
    assert (is_inside & (c == 1)).any()
    assert (is_inside & np.isnan(c)).any()


@given(models())
@settings(max_examples=examples(40))
def test_each_bound_of_a_rule_is_tried_on_both_sides_with_the_rest_matching(model):
    schema = model.schema
    rows, _, _ = make_rule_rows(model, MOST, np.random.default_rng(0))
    cells = round_cells(model, rows)
    unreachable = set(make_probes(model, 0, 0, MOST).coverage.unreachable)
    for rule in rules(model):
        if (rule.tree, rule.leaf) in unreachable:
            continue
        for number, condition in enumerate(rule.conditions):
            fits = np.ones(len(rows), dtype=np.bool_)
            for other in rule.conditions[:number] + rule.conditions[number + 1 :]:
                fits &= match_condition(schema, cells, other)
            column = schema.names.index(condition.column)
            tried = set(rows[fits, column].tolist())
            if condition.levels is not None:
                assert set(range(len(schema.columns[column].levels))) <= tried
            else:
                bounds = [x for x in (condition.low, condition.high) if math.isfinite(x)]
                assert set(bounds) <= tried
                assert set(find_next_above(np.array(bounds), schema.dtype).tolist()) <= tried
            assert any(x != x for x in tried) or model.missing == "error"


def round_cells(model, rows):
    """Round rows as trees do, and replace codes that are no category by NaN."""
    with np.errstate(over="ignore", under="ignore"):
        cells = rows.astype(model.schema.dtype).astype(np.float64)
    for f, column in enumerate(model.schema.columns):
        if column.kind == "nominal":
            cells[~np.isin(cells[:, f], np.arange(len(column.levels))), f] = math.nan
    return cells


def find_touched(model, rows):
    """Walk plain trees row by row; return the parts that rows touch, as `Coverage` names them."""
    touched = {
        name: set()
        for name in (
            *("number at a threshold", "number just above it"),
            *("missing value at a split", "category at a split"),
        )
    }
    for t, tree in enumerate(model.trees):
        above = find_next_above(tree.threshold, model.schema.dtype)
        for row in round_cells(model, rows).tolist():
            node = 0
            while tree.kind[node] != Split.LEAF:
                x, branch = row[tree.feature[node]], int(tree.missing[node])
                if x != x:
                    touched["missing value at a split"].add((t, node))
                elif tree.kind[node] == Split.THRESHOLD:
                    branch = int(x > tree.threshold[node])
                    if x == tree.threshold[node]:
                        touched["number at a threshold"].add((t, node))
                    if x == above[node]:
                        touched["number just above it"].add((t, node))
                elif tree.kind[node] != Split.MISSING:
                    touched["category at a split"].add((t, node, int(x)))
                    goes = int(tree.branches(node)[int(x)])
                    branch = goes if goes >= 0 else branch
                if tree.kind[node] == Split.MISSING:
                    branch = int(x == x)
                node = int(tree.first_child[node]) + branch
    return touched


@given(st.data())
@settings(max_examples=examples(30))
def test_verification_rows_reach_all_parts_that_any_row_reaches(data):
    model = data.draw(models())
    probes = make_probes(model, 0, 0, MOST)
    mine, other = find_touched(model, probes.rows), data.draw(matrices(model, max_rows=30))
    for name, parts in find_touched(model, other).items():
        assert parts <= mine[name], name
    assert probes.coverage.complete
    for name, parts in mine.items():
        assert probes.coverage.part(name).reached == len(parts), name


def match_condition(schema, cells, condition):
    """Mark the rows of cells that match a condition of a rule, one comparison after the other."""
    column = schema.names.index(condition.column)
    levels = schema.columns[column].levels
    marks = []
    for x in cells[:, column].tolist():
        if x != x:
            marks.append(condition.missing)
        elif condition.levels is not None:
            marks.append(levels[int(x)] in condition.levels)
        else:
            above = x > condition.low or condition.low == -math.inf
            marks.append(condition.known and above and x <= condition.high)
    return np.array(marks, dtype=np.bool_)


def test_rules_left_without_rows_at_their_bounds_are_reported(tmp_path):
    model = chain(300, Schema((Column("x"),), classes=("no", "yes")))
    (path,) = exported(model, tmp_path, "rules")
    report = verify(model, [path], max_rows=1000)
    assert report.artifacts[0].fresh
    assert "rows at the bounds" not in str(report)  # the rules that are read are the model's
    (tree,) = model.trees
    heavy = dataclasses.replace(tree, weight=tree.weight * 2)
    model = dataclasses.replace(model, trees=(heavy,))  # with other supports
    report = verify(model, [path], max_rows=1000)
    assert report.equal
    assert not report.artifacts[0].fresh
    assert re.search(r"rows at the bounds of \d+ of 301 rules; raise max_rows", str(report))
    assert verify(model, [path]).artifacts[0].note == ""


def test_every_leaf_is_reached_by_a_row_with_divided_votes_if_possible():
    """All votes for one class would hide one vote too many in float32."""
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    rare = threshold("y", 1.0, leaf([1, 0]), threshold("y", 1.5, leaf([0, 1]), leaf([1, 0])))
    trees = [threshold("x", 0.5, leaf([1, 0]), leaf([0, 1])), rare]
    model = make_model(schema, [build_tree(tree, schema) for tree in trees])
    for seed in range(10):
        rows = make_probes(model, 0, seed, MOST).rows
        divided = rows[sum_leaf_values(model, rows).max(axis=1) < model.unit_total]
        reached = leaf_indices(model, divided)
        for t, tree in enumerate(model.trees):
            assert set(tree.leaves.tolist()) <= set(reached[:, t].tolist())


def list_flipped(model):
    """Yield trees with one branch of a category or a missing value changed, and their numbers."""
    for number, tree in enumerate(model.trees):
        for field, sizes in (
            ("missing", tree.n_children),
            ("level_branch", np.repeat(tree.n_children, np.diff(tree.level_offsets)) + 1),
        ):
            branches = getattr(tree, field)
            for at in np.flatnonzero(sizes > 1).tolist():
                changed = branches.copy()
                lowest = -1 if field == "level_branch" else 0
                changed[at] = (changed[at] - lowest + 1) % sizes[at] + lowest
                yield number, dataclasses.replace(tree, **{field: changed})


def test_rows_of_a_forest_show_each_changed_branch_that_many_random_rows_show(monkeypatch):
    monkeypatch.setattr("treekit.verify.probes._USUAL_ROWS", 0)  # one row for each target
    model = treekit.train(demo_table(), "surgical_lesion", ensemble="forest", trees=20, seed=0)
    few = make_probes(model, 100, 0, MOST).rows
    many = make_probes(model, 20_000, 1, MOST).rows[-20_000:]
    first = np.cumsum([0, *(tree.n_leaves for tree in model.trees)]).tolist()
    seen = []
    for number, tree in itertools.islice(list_flipped(model), 0, None, 7):
        units = model.units[first[number] : first[number + 1]]
        pair = [
            dataclasses.replace(model, trees=(one,), units=units)
            for one in (model.trees[number], tree)
        ]
        seen.append(
            [
                not np.array_equal(*(sum_leaf_values(one, rows) for one in pair))
                for rows in (few, many)
            ]
        )
    by_few, by_many = np.array(seen).T
    assert by_many.sum() > 100
    assert not (by_many & ~by_few).any()
    assert len(few) < 1600  # rows at thresholds reach most other targets by chance


# ------------------------------------------------------------------ artifacts


@pytest.mark.parametrize(
    "classes",
    [
        ("b", "a", "c"),
        (),
        *(pytest.param(c, marks=pytest.mark.matrix) for c in ((3, 1), (True, False), ("one",))),
    ],
)
def test_all_artifacts_of_a_float32_model_are_equal(tmp_path, classes):
    model = random_model(7, mixed_schema(classes), n_trees=3, n_splits=20)
    report = verify(model, exported(model, tmp_path, "onnx", "c", "python", "rules"))
    assert report.equal, str(report)
    assert report.exit_code == 0
    assert [artifact.kind for artifact in report.artifacts] == ["onnx", "c", "python", "rules"]
    assert all(part.share == 1.0 for part in report.coverage.parts)


@pytest.mark.parametrize("classes", [("b", "a"), pytest.param((), marks=pytest.mark.matrix)])
def test_all_artifacts_of_a_float64_model_are_equal(tmp_path, classes):
    model = random_model(8, mixed_schema(classes, dtype="float64"), n_trees=2)
    report = verify(model, exported(model, tmp_path, "c", "python", "rules"))
    assert report.equal, str(report)


@pytest.mark.parametrize(
    ("missing", "unknown"),
    [
        pytest.param("error", "missing", marks=pytest.mark.matrix),
        ("direction", "error"),
        pytest.param("error", "error", marks=pytest.mark.matrix),
    ],
)
def test_rows_refused_by_a_policy_are_refused_by_every_artifact(tmp_path, missing, unknown):
    full = mixed_schema()
    schema = Schema(full.columns[:4], classes=full.classes)
    model = random_model(9, schema, missing=missing, unknown=unknown)
    report = verify(model, exported(model, tmp_path, "onnx", "c", "python", "rules"))
    assert report.equal, str(report)
    assert 0 < report.probes["refused"] < report.probes["rows"]


def test_model_that_refuses_every_row_is_verified(tmp_path):
    model = random_model(9, mixed_schema(), missing="error")  # one column has no levels
    report = verify(model, exported(model, tmp_path, "onnx", "c", "python", "rules"))
    assert report.equal, str(report)
    assert report.probes["refused"] == report.probes["rows"] > 0
    assert len(report.coverage.unreachable) == model.n_nodes


def test_artifact_that_predicts_a_refused_row_differs(tmp_path):
    artifacts = exported(small_model(), tmp_path, "onnx", "c", "python", "rules")
    report = verify(small_model(missing="error"), artifacts)
    assert [artifact.equal for artifact in report.artifacts] == [False] * 4
    assert report.artifacts[1].first.expected == "row refused"


@pytest.mark.matrix
def test_chain_of_depth_900_is_verified_in_c_and_rules(tmp_path):
    model = chain(900, Schema((Column("x"),), classes=("no", "yes")))
    report = verify(model, exported(model, tmp_path, "c", "rules"), random_rows=50)
    assert report.equal, str(report)
    assert report.coverage.part("number at a threshold").reached == 900


def test_single_leaf_is_verified_equal(tmp_path):
    schema = Schema((Column("x"),), classes=("no", "yes"))
    model = make_model(schema, [build_tree(leaf([1, 3]), schema)])
    report = verify(model, exported(model, tmp_path, "onnx", "c", "python", "rules"))
    assert report.equal, str(report)
    assert report.coverage.part("branches of splits").reachable == 0


def test_the_first_differing_row_is_shown_by_column_names(tmp_path):
    model = small_model()
    (path,) = exported(model, tmp_path, "rules")
    text = path.read_text()
    path.write_text(
        text.replace("colour is red, or is missing", "colour is red").replace(
            "colour is blue\n", "colour is blue, or is missing\n"
        )
    )
    report = verify(model, [path])
    (artifact,) = report.artifacts
    assert not report.equal
    assert report.exit_code == 1
    assert 0 < artifact.differing < artifact.rows
    assert artifact.first.row["colour"] in (None, "red~")
    said = str(report)
    assert "NOT equal" in said
    assert "first differing row" in said
    assert "model:     'no', probabilities [0.75, 0.25]" in said


def test_threshold_changed_by_one_ulp_in_c_is_detected(tmp_path):
    model = small_model()
    (path,) = exported(model, tmp_path, "c", form="full")
    text = path.read_text()
    edge = "0.5000000298023224"
    assert edge in text
    path.write_text(text.replace(edge, repr(math.nextafter(float(edge), 1))))
    report = verify(model, [path])
    assert report.artifacts[0].differing > 0


def test_artifact_that_cannot_run_is_reported_without_an_exception(tmp_path):
    model = small_model()
    onnx, c, python, rules = exported(model, tmp_path, "onnx", "c", "python", "rules")
    onnx.write_bytes(onnx.read_bytes()[:100])
    c.write_text(c.read_text() + "\n#error stop\n")
    python.write_text(python.read_text() + "\nraise SystemExit(3)\n")
    rules.write_text(rules.read_text()[:-20])
    report = verify(model, [onnx, c, python, rules])
    assert not report.equal
    assert f"onnxruntime {onnxruntime.__version__} cannot run" in report.artifacts[0].error
    assert "#error stop" in report.artifacts[1].error
    assert "exit code 3" in report.artifacts[2].error
    assert "cannot be read" in report.artifacts[3].error
    assert str(report).count("could not run") == 4


def test_failed_runs_are_reported_separately_from_differences(tmp_path):
    model = small_model()
    python, rules = exported(model, tmp_path, "python", "rules")
    text = python.read_text()
    python.write_text(text + "\nraise SystemExit(3)\n")
    report = verify(model, [python, rules])
    assert report.exit_code == 1
    assert str(report).startswith("1 of 2 artifacts could not be run\n")
    assert "rows reach of the model" in str(report)
    rules.write_text(
        rules.read_text().replace("x <= 0.5", "x <= 0.75").replace("x > 0.5", "x > 0.75")
    )
    said = str(verify(model, [python, rules]))
    head = "1 of 2 artifacts is NOT equal to the model; 1 of 2 artifacts could not be run\n"
    assert said.startswith(head)
    alone = verify(model, [python])
    assert alone.exit_code == 1
    assert str(alone).startswith("the artifact could not be run\n")
    assert "rows reach of" not in str(alone)
    assert "NOT equal" not in str(alone)


@pytest.mark.parametrize(
    "schema",
    [
        Schema((Column("x"),), classes=("no", "yes")),
        Schema(
            (Column("x"), Column("colour", "nominal", ("red", "blue"))), classes=("a", "b", "c")
        ),
        Schema((Column("x"), Column("colour", "nominal", ("red", "blue"))), task="regression"),
    ],
    ids=["columns", "classes", "task"],
)
def test_artifact_of_another_model_is_reported_as_such(tmp_path, schema):
    other = random_model(0, schema)
    report = verify(small_model(), exported(other, tmp_path, "onnx", "c", "python", "rules"))
    for artifact in report.artifacts:
        assert "differs from the model in columns or classes" in artifact.error


def test_verify_and_export_accept_fitted_estimators_but_no_other_objects(tmp_path):
    estimator = treekit.DecisionTreeClassifier()
    with pytest.raises(TypeError, match="got DecisionTreeClassifier; fit"):
        export(estimator, "rules", tmp_path / "m")
    estimator.fit([[0.0], [1.0]], [0, 1])
    (path,) = export(estimator, "rules", tmp_path / "m")
    assert verify(estimator, [path]).equal
    with pytest.raises(TypeError, match=r"got str; .* treekit\.load"):
        verify("m.treekit", [path])
    with pytest.raises(TypeError, match="got NoneType; pass the result of treekit"):
        export(None, "rules", tmp_path / "m")


def test_crashing_c_file_is_reported_without_stopping_verification(tmp_path):
    model = small_model()
    (path,) = exported(model, tmp_path, "c", form="full")
    text = path.read_text()
    path.write_text(
        text.replace(
            "int model_predict(const double *x, double *out)\n{",
            ("#include <stdlib.h>\nint model_predict(const double *x, double *out)\n{ abort();"),
        )
    )
    report = verify(model, [path])
    assert "exit code -6" in report.artifacts[0].error


def test_a_c_file_without_its_header_names_the_header(tmp_path):
    model = small_model()
    (path,) = exported(model, tmp_path, "c")
    path.with_suffix(".h").unlink()
    assert "header 'model.h' in its folder" in verify(model, [path]).artifacts[0].error


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"red"', '"rot"', "categories"),
        ('"colour"', '"color"', "names"),
        ('"yes"', '"ja"', "names"),
    ],
)
def test_names_and_categories_of_a_c_file_are_compared(tmp_path, old, new, said):
    model = small_model()
    (path,) = exported(model, tmp_path, "c", form="full")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert said in verify(model, [path]).artifacts[0].error


def test_label_of_another_type_differs(tmp_path):
    schema = Schema((Column("x"),), classes=(0, 1))
    model = make_model(schema, [build_tree(leaf([1, 3]), schema)])
    (path,) = exported(model, tmp_path, "python", form="auto")
    path.write_text(path.read_text().replace("return 1", "return True"))
    (artifact,) = verify(model, [path]).artifacts
    assert artifact.differing == artifact.rows
    assert artifact.first.given.startswith("a label that is not one of the classes")


def test_unknown_file_kinds_and_missing_files_are_refused(tmp_path):
    model = small_model()
    with pytest.raises(VerificationError, match=r"cannot run 'model\.exe'.*\.onnx, \.c, .*\.py"):
        verify(model, [tmp_path / "model.exe"])
    with pytest.raises(VerificationError, match="no such file"):
        verify(model, [tmp_path / "model.c"])
    with pytest.raises(VerificationError, match="max_rows must be at least 1"):
        verify(model, exported(model, tmp_path, "rules"), max_rows=0)


@pytest.mark.parametrize("target", ["c", "go", "java", "javascript", "onnx", "python", "rust"])
@pytest.mark.parametrize("form", ["auto", "table", "if_else"])
def test_kind_of_a_file_is_detected_from_its_start(tmp_path, target, form):
    schema = mixed_schema()
    settings = {} if target == "onnx" else {"form": form}
    small = small_model()
    large = random_model(3, schema, n_trees=3)
    for number, model in enumerate((small, large)):
        path = export(model, target, tmp_path / f"m{number}", **settings)[0]
        kind = find_runner(path).kind
        other = path.rename(tmp_path / f"other{number}.rules.txt")
        assert find_runner(other).kind == kind == target


def test_files_of_any_name_are_verified_by_their_content(tmp_path):
    need("gcc")
    model = small_model()
    wanted = []
    names = {"c": "model.txt", "python": "model.script", "onnx": "graph.py", "rules": "rules.txt"}
    for target, name in names.items():
        (path,) = exported(model, tmp_path, target)
        wanted.append(path.rename(tmp_path / name))
    report = verify(model, wanted, random_rows=50)
    assert report.equal
    assert [one.kind for one in report.artifacts] == list(names)
    assert [one.path for one in report.artifacts] == [str(path) for path in wanted]
    chinese = tmp_path / "zh.txt"
    treekit.write_rules(model, chinese, "text", language="zh")
    assert find_runner(chinese).kind == "rules"
    model.save(tmp_path / "saved.onnx")
    with pytest.raises(VerificationError, match=r"is a treekit model, not an artifact"):
        verify(model, [tmp_path / "saved.onnx"])


def test_certificate_of_any_name_is_skipped(tmp_path):
    model = small_model()
    model.save(tmp_path / "m.treekit")
    (rules,) = exported(model, tmp_path, "rules")
    command, proof = ["verify", str(tmp_path / "m.treekit"), str(rules)], str(tmp_path / "proof")
    assert CliRunner().invoke(main, [*command, "--certificate", proof]).exit_code == 0
    result = CliRunner().invoke(main, [*command, proof, "--json"])
    assert [one["kind"] for one in json.loads(result.stdout)["artifacts"]] == ["rules"]


def test_certificate_contains_digests_counts_and_versions(tmp_path):
    model = small_model()
    artifacts = exported(model, tmp_path, "c", "rules")
    report = verify(model, artifacts, random_rows=30, certificate=tmp_path / "proof.json")
    proof = json.loads((tmp_path / "proof.json").read_text())
    assert proof["equal"] is True
    assert proof["model_sha256"] == hash_model(model) == report.model_sha256
    c, rules = proof["artifacts"]
    for name in ("model.c", "model.h"):
        digest = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        assert c["sha256"][name] == digest
    assert (c["rows"], c["differing"]) == (report.probes["rows"], 0)
    assert rules["kind"] == "rules"
    assert {"treekit", "numpy", "python", "gcc"} <= set(proof["versions"])
    assert proof["versions"]["python"] == platform.python_version()
    assert proof["coverage"]["complete"] is True
    assert {p["name"] for p in proof["coverage"]["parts"]} >= {"leaves", "branches of splits"}
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *("model.c", "model.h", "model.rules.txt", "proof.json")
    ]


def test_a_certificate_of_a_difference_is_valid_json_even_with_infinities(tmp_path):
    schema = Schema((Column("x"),), classes=("no", "yes"))
    largest = float(np.finfo(np.float32).max)
    split = threshold("x", largest, leaf([1, 3]), leaf([3, 1]), missing=0)
    model = make_model(schema, [build_tree(split, schema)])
    (path,) = exported(make_model(schema, [build_tree(leaf([1, 3]), schema)]), tmp_path, "rules")
    report = verify(model, [path], random_rows=0, certificate=tmp_path / "proof.json")
    assert report.artifacts[0].first.row == {"x": math.inf}
    proof = json.loads((tmp_path / "proof.json").read_text(), parse_constant=pytest.fail)
    assert proof["equal"] is False
    assert proof["artifacts"][0]["first"]["row"] == {"x": "inf"}


def test_unwritable_certificate_is_reported(tmp_path):
    artifacts = exported(small_model(), tmp_path, "rules")
    with pytest.raises(VerificationError, match="cannot write"):
        verify(small_model(), artifacts, certificate=artifacts[0] / "proof.json")


def test_digest_of_a_model_changes_with_its_predictions():
    model = small_model()
    tree = model.trees[0]
    flipped = dataclasses.replace(tree, missing=np.where(tree.kind == 1, 0, tree.missing))
    units = model.units.copy()
    units[0, 0] += 1
    others = [
        dataclasses.replace(model, trees=(flipped,)),
        dataclasses.replace(model, units=units),
        small_model(missing="error"),
        small_model(unknown="error"),
    ]
    assert len({hash_model(m) for m in [model, *others]}) == 5
    assert hash_model(small_model()) == hash_model(model)


def test_incomplete_coverage_is_never_rounded_to_100_percent(tmp_path):
    model = chain(300, Schema((Column("x"),), classes=("a", "b")))
    report = verify(model, exported(model, tmp_path, "rules"), max_rows=890)
    assert isinstance(report, Report)
    share = report.coverage.part("number just above it").share
    assert share < 1.0
    assert "a sample of the splits got rows; raise max_rows" in str(report)
    report = verify(model, exported(model, tmp_path, "c"), max_rows=890)
    assert "the same bytes as a new export, and all rows run agree" in str(report)
    assert not make_certificate(report)["coverage"]["complete"]
    full = report.coverage.parts[0]
    part = dataclasses.replace(full, reached=full.reachable - 1)
    missed = dataclasses.replace(report.coverage, cut="", parts=(part,))
    assert not missed.complete
    assert [_format_percent(x) for x in (0.9996, 0.9994, 1.0, 0.5)] == [
        "<100%",
        "99.9%",
        "100%",
        "50%",
    ]


def test_each_branch_of_a_multiway_split_is_distinguished(tmp_path):
    schema = Schema((Column("c", "nominal", tuple("abcdefghijkl")),), classes=("no", "yes"))
    node = multiway("c", {level: leaf([i + 1, 1]) for i, level in enumerate("abcdefghijk")}, 4)
    model = make_model(schema, [build_tree(node, schema)])
    report = verify(model, exported(model, tmp_path, "c", "python", "rules", "onnx"))
    assert report.equal, str(report)
    assert report.coverage.part("category at a split").reached == 12


# ------------------------------------------------------------------ several targets


def several_targets(task):
    columns = (Column("x"), Column("colour", "nominal", ("red", "blue")), Column("y"))
    if task == "regression":
        schema = Schema(columns, task=task, more=(Output("second"),))
        said = [leaf([1e9, -0.1], 3), leaf([0.3, 7.0], 1), leaf([-2.0, 0.0], 2)]
    else:
        schema = Schema(columns, classes=("no", "yes"), more=(Output("second", (1, 2, 3)),))
        said = [leaf([3, 1, 0, 2, 2]), leaf([0, 5, 1, 1, 7]), leaf([2, 2, 9, 0, 1])]
    root = subset("colour", ["red"], threshold("x", 0.5, *said[:2]), said[2])
    return make_model(schema, [build_tree(root, schema)] * 3, unknown="error")


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("target", ["c", "python"])
def test_each_target_of_an_artifact_is_compared(tmp_path, target, task):
    model = several_targets(task)
    rows = np.array([[0.5, 0, 1], [0.6, 0, 1], [np.nan, np.nan, 1], [0, 1, 0], [0, 7, 0]])
    (path,) = exported(model, tmp_path, target)
    wanted = expected(model, rows, n_refused=1)
    assert wanted.label.shape == (5, 2)
    for how, answers in find_runner(path).run_rows(path, model.schema, rows):
        assert len(differing(answers, wanted)) == 0, how
    text = path.read_text()
    path.write_text(text.replace("second", "other"))
    if target == "c":
        with pytest.raises(VerificationError, match="from the model in column or class names"):
            list(find_runner(path).run_rows(path, model.schema, rows))


# ---------------------------------------------------------------- verify wide
# Verification of models with sums, surrogates, divided rows, costs and several targets.

NAN, INF = float("nan"), float("inf")
VERIFY_WIDE_MOST = 10**6
TARGETS = ("onnx", "c", "python", "rules")
MODELS = {"sums": sums_model, "surrogates": surrogates_model, "divided": divided_model}


def test_unreachable_nodes_below_oblique_splits_are_listed():
    again = oblique({"x": 1.0, "y": 1.0}, 2.0, leaf([1, 2]), leaf([2, 1]))
    root = oblique({"x": 1.0, "y": 1.0}, 1.0, again, leaf([1, 1]), missing=1)
    model = make_model(SCHEMA, [build_tree(root, SCHEMA)])
    coverage = make_probes(model, 0, 0, VERIFY_WIDE_MOST).coverage
    # A sum of at most 1 is at most 2, and known below a branch that unknown ones do not take.
    second = int(model.trees[0].first_child[1]) + 1
    assert coverage.unreachable == ((0, second),)
    assert coverage.part("leaves").reached == coverage.part("leaves").reachable == 2


# ------------------------------------------------------------------ probes


@given(st.data())
@settings(max_examples=examples(15))
def test_verification_rows_reach_all_reachable_leaves(data):
    model = data.draw(models(kinds=ALL_KINDS))
    rows = data.draw(matrices(model, max_rows=30))
    probes = make_probes(model, 200, 0, VERIFY_WIDE_MOST)
    mine, other = leaf_indices(model, probes.rows), leaf_indices(model, rows)
    unreachable = set(probes.coverage.unreachable)
    for t in range(model.n_trees):
        reached = set(other[:, t].tolist())
        assert not {(t, node) for node in reached} & unreachable
        missed = reached - set(mine[:, t].tolist())
        assert not missed or probes.coverage.part("leaves").share < 1.0
    assert len(probes.refused) == 0


@pytest.mark.parametrize("name", MODELS)
def test_small_models_are_covered_completely(name):
    model = MODELS[name]()
    probes = make_probes(model, 0, 0, VERIFY_WIDE_MOST)
    assert all(part.share == 1.0 for part in probes.coverage.parts), probes.coverage
    n_splits = sum(tree.n_nodes - tree.n_leaves for tree in model.trees)
    assert probes.coverage.part("missing value at a split").reached == n_splits


def test_surrogate_thresholds_and_categories_are_tried():
    rows = make_probes(surrogates_model(), 0, 0, VERIFY_WIDE_MOST).rows
    x, y, colour = round_cells(surrogates_model(), rows).T
    above = float(np.nextafter(np.float32(0.25), np.float32(1)))
    assert {0.25, above} <= set(y[np.isnan(x)].tolist())
    assert {0.0, 2.0} <= set(colour[np.isnan(x) & np.isnan(y)].tolist())
    assert (np.isnan(x) & np.isnan(y) & np.isnan(colour)).any()


def test_verification_rows_detect_the_last_bit_of_oblique_weights():
    """Each weight one float32 up and down: some probe takes the other side."""
    weights, at = {"x": 0.3, "y": 0.7}, -0.1
    split = oblique(weights, at, leaf([3, 1]), leaf([1, 3]), missing=0)
    model = make_model(SCHEMA, [build_tree(split, SCHEMA)])
    rows = round_cells(model, make_probes(model, 0, 0, VERIFY_WIDE_MOST).rows)[:, :2]
    rows = rows[np.isfinite(rows).all(axis=1)]
    w = model.trees[0].term_weight
    right = w[0] * rows[:, 0] + w[1] * rows[:, 1] <= at
    for term in (0, 1):
        for towards in (-INF, INF):
            other = w.copy()
            other[term] = np.nextafter(np.float32(w[term]), np.float32(towards))
            assert ((other[0] * rows[:, 0] + other[1] * rows[:, 1] <= at) != right).any()


def test_verification_rows_detect_the_last_bit_of_an_oblique_threshold():
    split = oblique({"x": 0.3, "y": 0.7, "z": 0.9}, 0.5, leaf([3, 1]), leaf([1, 3]))
    schema = Schema((Column("x"), Column("y"), Column("z")), classes=("no", "yes"))
    model = make_model(schema, [build_tree(split, schema)])
    rows = round_cells(model, make_probes(model, 0, 0, VERIFY_WIDE_MOST).rows)
    w = model.trees[0].term_weight
    with np.errstate(invalid="ignore"):
        sums = 0.0 + w[0] * rows[:, 0] + w[1] * rows[:, 1] + w[2] * rows[:, 2]
    assert {0.5, math.nextafter(0.5, INF)} <= set(sums.tolist())


def test_float64_thresholds_and_their_neighbours_are_tried():
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"), dtype="float64")
    inner = threshold("y", -1e300, leaf([3, 1]), leaf([1, 3]))
    tree = build_tree(threshold("x", 0.1, leaf([1, 1]), inner), schema)
    model = make_model(schema, [tree], missing="fractional")
    rows = make_probes(model, 0, 0, VERIFY_WIDE_MOST).rows
    assert {0.1, math.nextafter(0.1, 1)} <= set(rows[:, 0].tolist())
    assert {-1e300, math.nextafter(-1e300, 1)} <= set(rows[:, 1].tolist())


# ------------------------------------------------------------------ rules and artifacts


@pytest.mark.parametrize("name", MODELS)
def test_every_rule_has_rows_at_its_bounds(name):
    model = MODELS[name]()
    rows, probed, total = make_rule_rows(model, VERIFY_WIDE_MOST, np.random.default_rng(0))
    assert probed == total == model.n_leaves
    few, some, _ = make_rule_rows(model, 4, np.random.default_rng(0))
    assert len(few) <= 4
    assert some < total or len(rows) <= 4


@pytest.mark.parametrize("name", MODELS)
def test_artifacts_of_every_kind_of_model_are_equal(tmp_path, name):
    need("gcc")
    model = MODELS[name]()
    paths = [export(model, target, tmp_path / "model")[0] for target in TARGETS]
    report = verify(model, paths, random_rows=100)
    assert report.equal, str(report)
    assert "coverage is incomplete" not in str(report)


def test_verification_rows_detect_changes_of_every_deciding_cost():
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
        [evaluate.sums(model, r) for r in make_probes(model, 0, 0, VERIFY_WIDE_MOST).rows.tolist()]
    )
    grid = [(x, y) for x in np.arange(-4.0, 5.0) for y in np.arange(-4.0, 5.0)]
    every = np.array([evaluate.sums(model, row) for row in grid])
    for entry in np.ndindex(3, 3):
        for step in (-1, 1):
            other = costs.copy()
            other[entry] += step
            if (predict_labels(every, other) != predict_labels(every, costs)).any():
                assert (predict_labels(total, other) != predict_labels(total, costs)).any(), (
                    entry,
                    step,
                )


# ---------------------------------------------------------------- verify runtimes
# Verification says what it ran artifacts with, what it did not try, and what time cut.


def verify_runtimes_small_model():
    schema = Schema((Column("x"),), classes=("no", "yes"))
    return make_model(schema, [build_tree(threshold("x", 0.5, leaf([1, 3]), leaf([3, 1])), schema)])


def verify_runtimes_exported(model, folder, target):
    return export(model, target, folder / "model")[0]


def test_artifact_runs_on_one_runtime_and_the_others_are_listed(tmp_path):
    need("gcc")
    report = verify(
        verify_runtimes_small_model(),
        [verify_runtimes_exported(verify_runtimes_small_model(), tmp_path, "c")],
    )
    assert [artifact.runtime for artifact in report.artifacts] == ["gcc"]
    assert ("clang", "not requested") in {(one.runtime, one.why) for one in report.untried}
    assert "not tried" not in str(report)
    report = verify(
        verify_runtimes_small_model(),
        [verify_runtimes_exported(verify_runtimes_small_model(), tmp_path, "c")],
        without=["clang"],
    )
    assert "not tried: clang (excluded on request)\n" in str(report)


@pytest.mark.matrix
def test_all_runtimes_of_a_machine_are_tried_on_request(tmp_path):
    need("gcc", "clang")
    paths = [
        verify_runtimes_exported(verify_runtimes_small_model(), tmp_path, target)
        for target in ("c", "python")
    ]
    proof = tmp_path / "proof.json"
    report = verify(verify_runtimes_small_model(), paths, runtimes="all", certificate=proof)
    assert report.equal, str(report)
    assert {"gcc", "clang", "python"} <= {artifact.runtime for artifact in report.artifacts}
    assert str(report).startswith("all 2 artifacts are equal to the model")
    told = json.loads(proof.read_text())
    assert {"gcc", "clang"} <= set(told["versions"])
    assert {"gcc", "clang"} <= {artifact["runtime"] for artifact in told["artifacts"]}


@pytest.mark.matrix
def test_runtimes_chosen_by_name_apply_to_their_kind_only(tmp_path):
    need("gcc", "clang")
    paths = [
        verify_runtimes_exported(verify_runtimes_small_model(), tmp_path, target)
        for target in ("c", "python")
    ]
    report = verify(verify_runtimes_small_model(), paths, runtimes=["clang"])
    assert [artifact.runtime for artifact in report.artifacts] == ["clang", "python"]
    report = verify(verify_runtimes_small_model(), paths[:1], without=["gcc"])
    assert [artifact.runtime for artifact in report.artifacts] == ["clang"]
    assert "gcc (excluded on request)" in str(report)


def test_missing_compiler_is_reported_and_nothing_is_verified(tmp_path, monkeypatch):
    path = verify_runtimes_exported(verify_runtimes_small_model(), tmp_path, "c")
    monkeypatch.setenv("PATH", str(tmp_path))
    report = verify(verify_runtimes_small_model(), [path])
    assert report.exit_code == 1
    assert "gcc is not installed, clang is not installed" in report.artifacts[0].error
    (asked,) = verify(verify_runtimes_small_model(), [path], runtimes=["clang"]).artifacts
    assert asked.error == "'model.c' cannot be run here: clang is not installed"


def divided_verify_model(**policies):
    schema = Schema(
        (Column("x"), Column("c", "nominal", ("a", "b", "c"))), classes=("no", "yes", "maybe")
    )
    below = multiway("c", {"a": leaf([5, 1, 1]), "b": leaf([1, 7, 0]), "c": leaf([1, 1, 3])})
    tree = build_tree(threshold("x", 0.5, below, leaf([1, 3, 2])), schema)
    return make_model(schema, [tree, tree], missing="fractional", **policies)


def test_the_reference_evaluator_of_onnx_runs_graphs_if_named(tmp_path):
    for number, model in enumerate([verify_runtimes_small_model(), divided_verify_model()]):
        (path,) = exported(model, tmp_path / str(number), "onnx")
        report = verify(model, path, runtimes=["reference"], random_rows=50)
        assert [artifact.runtime for artifact in report.artifacts] == ["reference"]
        assert report.equal, str(report)
        assert report.versions["reference"] == onnx.__version__
        everywhere = verify(model, path, runtimes="all", random_rows=50)
        assert [artifact.runtime for artifact in everywhere.artifacts] == ["onnxruntime"]


def test_a_graph_of_another_model_differs_in_the_named_runtime_and_version(tmp_path):
    small_model().save(tmp_path / "m.treekit")
    (path,) = exported(small_model(missing="error"), tmp_path, "onnx")
    command = ["verify", str(tmp_path / "m.treekit"), str(path), "--runtime", "reference"]
    done = CliRunner().invoke(main, [*command, "--rows", "20"])
    assert done.exit_code == 1
    assert f"  runtime:   reference, version {onnx.__version__}" in done.output


def test_missing_onnx_runtime_is_reported_with_its_package(tmp_path, monkeypatch):
    path = verify_runtimes_exported(verify_runtimes_small_model(), tmp_path, "onnx")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (asked,) = verify(verify_runtimes_small_model(), [path], runtimes=["openvino"]).artifacts
    why = "openvino is not installed: pip install openvino"
    assert asked.error == f"'model.onnx' cannot be run here: {why}"


@pytest.mark.matrix
def test_openvino_refuses_trees_and_rounds_fractional_instances(tmp_path):
    openvino = pytest.importorskip("openvino")
    model = verify_runtimes_small_model()
    (path,) = exported(model, tmp_path / "tree", "onnx")
    report = verify(model, path, runtimes=["openvino"])
    assert report.exit_code == 1
    assert report.artifacts[0].error.startswith(
        f"openvino {openvino.__version__} cannot run 'model.onnx': "
    )
    assert "TreeEnsembleRegressor" in report.artifacts[0].error

    costs = np.array([[0, 1, 1], [5, 0, 1], [2, 1, 0]])
    for number, policies in enumerate([{}, {"unknown": "error"}, {"costs": costs}]):
        model = divided_verify_model(**policies)
        (path,) = exported(model, tmp_path / str(number), "onnx")
        rows = make_probes(model, 200, 0, 1000).rows
        refused = np.array([[np.nan, 3.0], [0.0, -1.0]] if "unknown" in policies else [])
        rows = np.concatenate([rows, refused.reshape(-1, 2)])
        wanted = expected(model, rows, len(refused))
        how, given = next(ONNX_RUNTIMES[1].run(Job(path, model.schema, tmp_path), rows))
        assert how == "batches"
        np.testing.assert_array_equal(given.label, wanted.label)  # refused rows are refused
        answered = wanted.label[:, 0] >= 0
        np.testing.assert_allclose(given.number[answered], wanted.number[answered], atol=2e-7)
        assert differing(wanted, given).size


def test_a_function_of_the_user_runs_graphs(tmp_path, monkeypatch):
    model = verify_runtimes_small_model()
    path = verify_runtimes_exported(model, tmp_path, "onnx")
    (tmp_path / "own_runtime.py").write_text(
        "import onnxruntime\n"
        "__version__ = '7.5'\n"
        "def open_graph(path):\n"
        "    return onnxruntime.InferenceSession(path).run\n"
        "def open_wrong_graph(path):\n"
        "    run = open_graph(path)\n"
        "    return lambda names, feeds: [some[::-1] for some in run(names, feeds)]\n"
        "def repeat(path):\n"
        "    run = open_graph(path)\n"
        "    return lambda names, feeds: [[*some, *some] for some in run(names, feeds)]\n"
        "def refuse(path):\n"
        "    raise RuntimeError('no trees here')\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    report = verify(model, path, runtimes=["own_runtime:open_graph"])
    assert report.equal, str(report)
    assert report.versions["own_runtime:open_graph"] == "7.5"
    report = verify(model, path, runtimes=["own_runtime:open_wrong_graph"])
    assert report.exit_code == 1
    assert "runtime:   own_runtime:open_wrong_graph, version 7.5" in str(report)
    (result,) = verify(model, path, runtimes=["own_runtime:refuse"]).artifacts
    assert result.error == "own_runtime:refuse 7.5 cannot run 'model.onnx': no trees here"
    (result,) = verify(model, path, runtimes=["own_runtime:repeat"]).artifacts
    assert " rows for " in result.error
    for name, fault in [
        ("own_runtime:absent", "cannot be imported: .*; name a function as module:function"),
        ("no_such_module:f", "cannot be imported: No module named 'no_such_module'"),
        ("own_runtime:number", "is not a function: name one that takes the path"),
    ]:
        with pytest.raises(VerificationError, match=fault):
            verify(model, path, runtimes=[name])


def test_unknown_runtime_is_refused_with_a_suggestion(tmp_path):
    path = verify_runtimes_exported(verify_runtimes_small_model(), tmp_path, "python")
    with pytest.raises(VerificationError, match=r"unknown runtime 'gccc'; did you mean 'gcc'"):
        verify(verify_runtimes_small_model(), [path], runtimes=["gccc"])


def test_the_command_line_chooses_runtimes_and_bounds_the_time(tmp_path):
    verify_runtimes_small_model().save(tmp_path / "m.treekit")
    path = verify_runtimes_exported(verify_runtimes_small_model(), tmp_path, "python")
    command = ["verify", str(tmp_path / "m.treekit"), str(path), "--budget", "100"]
    done = CliRunner().invoke(main, [*command, "--with", "python"])
    assert (done.exit_code, "equal to the model" in done.output) == (0, True)
    done = CliRunner().invoke(main, [*command, "--without", "python"])
    assert (done.exit_code, "excluded on request" in done.output) == (1, True)


# ------------------------------------------------------------------ time


def questions(n):
    model = verify_runtimes_small_model()
    rows = np.random.default_rng(0).normal(size=(n, 1))
    return model.schema, ReferenceRows(rows, expected(model, rows, 0))


def verify_with_deadline(answer, n, deadline, tmp_path):
    """What a runtime answers that is a function of the job and the rows."""
    schema, asked = questions(n)
    path = tmp_path / "m.txt"
    path.write_text("")
    runtime = Runtime("fake", answer, lambda: "1")
    return run_artifact(path, Runner("fake", ".txt", (runtime,)), runtime, schema, asked, deadline)


def right(job, rows):
    yield "right", expected(verify_runtimes_small_model(), rows, 0)


def test_time_budget_runs_the_first_rows_and_reports_the_rest(tmp_path):
    result = verify_with_deadline(right, 20_000, time.monotonic(), tmp_path)
    assert result.equal
    assert result.rows == 2000
    assert "2,000 of 20,000 rows were run on fake within the time budget" in result.note
    assert verify_with_deadline(right, 20_000, math.inf, tmp_path).rows == 20_000


def test_first_differing_row_is_reported_for_any_order_of_rows(tmp_path):
    _, asked = questions(20_000)
    above = np.sort(asked.rows[asked.rows > 0.5])[-50:]

    def wrong(job, rows):
        said = expected(verify_runtimes_small_model(), rows, 0)
        label = np.where(np.isin(rows, above), 1 - said.label, said.label)
        yield "wrong", Answers(label, said.number)

    result = verify_with_deadline(wrong, 20_000, math.inf, tmp_path)
    assert result.differing == 50
    first = asked.rows[np.isin(asked.rows, above)][0]
    assert result.first.row == {"x": first}


def test_a_runtime_compiles_once_for_all_blocks_of_rows(tmp_path):
    seen = []

    def counting(job, rows):
        seen.append((job.folder / "made").exists())
        (job.folder / "made").touch()
        yield from right(job, rows)

    assert verify_with_deadline(counting, 5000, math.inf, tmp_path).rows == 5000
    assert seen == [False, True]


def test_hanging_program_is_stopped(tmp_path):
    job = Job(
        tmp_path / "m", verify_runtimes_small_model().schema, tmp_path, time.monotonic() + 0.2
    )
    with pytest.raises(OutOfTimeError, match="'m' did not end within the remaining time"):
        job.run_program(["sleep", "20"])
    path = verify_runtimes_exported(verify_runtimes_small_model(), tmp_path, "python")
    path.write_text(path.read_text() + "\nwhile True: pass\n")
    make_probes(verify_runtimes_small_model(), 0, 0, 100)  # compiles kernels
    began = time.monotonic()
    report = verify(verify_runtimes_small_model(), [path], budget=0.5)
    assert "did not end within the remaining time" in report.artifacts[0].error
    assert time.monotonic() - began < 10


def test_hanging_or_missing_version_command_leaves_the_version_unknown(monkeypatch):
    monkeypatch.setattr(runtime, "_VERSION_SECONDS", 0.2)
    assert read_version(["sleep", "20"]) == read_version(["no such program"]) == "unknown"
    assert read_version(["sleep", "--version"]).startswith("sleep")


def test_non_positive_time_budget_is_refused():
    for wrong in (0, -1, math.nan):
        with pytest.raises(VerificationError, match="a positive number of seconds"):
            verify(small_model(), ["model.c"], budget=wrong)


def test_verification_stopped_by_the_budget_is_reported_incomplete(tmp_path):
    model = chain(300, Schema((Column("x"),), classes=("no", "yes")))
    report = verify(model, [verify_runtimes_exported(model, tmp_path, "rules")], budget=1e-6)
    assert report.equal
    assert "on the rows run; coverage is incomplete" in str(report)
    assert "within the time budget" in str(report)
