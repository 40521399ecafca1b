"""Verification: probes that reach everything, runners, reports and certificates."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
import re

import numpy as np
import pytest
from hypothesis import given, settings

import treekit
from tests.examples import examples
from tests.reference import evaluate
from tests.reference.models import chain, mixed_schema, random_model
from tests.strategies import models
from treekit.data.schema import Column, Output, Schema
from treekit.errors import VerificationError
from treekit.export import export
from treekit.model.builder import build_tree, is_missing, leaf, multiway, subset, threshold
from treekit.model.model import make_model
from treekit.model.scoring import leaf_indices, sums
from treekit.model.tree import Split
from treekit.verify import Report, make_probes, verify
from treekit.verify.answers import differing, expected
from treekit.verify.coverage import measure
from treekit.verify.report import _percent, model_sha256
from treekit.verify.rule_boundaries import rule_rows
from treekit.verify.run_artifact import runner_of

MOST = 10**7


def exported(model, folder, *targets):
    return [export(model, target, folder / "model")[0] for target in targets]


def small_model(**policies):
    schema = Schema(
        (Column("x"), Column("colour", "nominal", ("red", "blue"))), classes=("no", "yes")
    )
    below = subset("colour", ["red"], leaf([3, 1]), leaf([1, 1]), missing=0)
    return make_model(
        schema, [build_tree(threshold("x", 0.5, leaf([1, 3]), below), schema)], **policies
    )


def test_nothing_to_verify_is_no_proof():
    with pytest.raises(VerificationError, match=r"no artifact to verify; give .*treekit\.export"):
        verify(small_model(), [])


# ------------------------------------------------------------------ probes


@given(models())
@settings(max_examples=examples(60))
def test_every_side_and_leaf_is_reached_or_proved_unreachable(model):
    probes = make_probes(model, 0, 0, MOST)
    coverage = measure(model, probes)
    assert all(part.share == 1.0 for part in coverage.parts)
    reached = leaf_indices(model, probes.rows)
    unreachable = set(coverage.unreachable)
    for t, tree in enumerate(model.trees):
        seen = set(reached[:, t].tolist())
        for node in tree.leaves.tolist():
            assert (node in seen) != ((t, node) in unreachable)


@given(models())
@settings(max_examples=examples(40))
def test_a_wrong_turn_that_no_probe_shows_can_never_show(model):
    """Force a split the wrong way for one sort of value; if an answer changes, a probe knew."""
    probes = make_probes(model, 0, 0, MOST)
    assert probes.wrong_turns[2] == 0
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
    coverage = measure(
        make_model(schema, trees), make_probes(make_model(schema, trees), 0, 0, MOST)
    )
    dead = {(t, n) for t, n in coverage.unreachable}
    first = trees[0]
    right = int(first.first_child[0]) + 1
    inner = int(first.first_child[int(first.first_child[0])]) + 1
    assert dead == {(0, int(first.first_child[right])), (0, int(first.first_child[inner]))}
    assert coverage.part("leaves").reached == coverage.part("leaves").reachable


def test_the_sharpest_values_stand_among_the_probes():
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


def test_both_zeros_are_probed_at_a_threshold_of_zero():
    schema = Schema((Column("x"),), classes=("no", "yes"), dtype="float64")
    model = make_model(
        schema, [build_tree(threshold("x", 0.0, leaf([1, 3]), leaf([3, 1])), schema)]
    )
    zeros = [x for x in make_probes(model, 0, 0, MOST).rows[:, 0].tolist() if x == 0]
    assert {math.copysign(1, x) for x in zeros} == {1.0, -1.0}


def test_unseen_categories_are_probed_where_the_policy_takes_them_as_missing():
    codes = make_probes(small_model(), 0, 0, MOST).rows[:, 1]
    assert 2.0 in codes
    careful = make_probes(small_model(unknown="error"), 500, 0, MOST)
    assert set(np.unique(careful.rows[:, 1][~np.isnan(careful.rows[:, 1])])) == {0.0, 1.0}
    assert {-1.0, 2.0} <= set(careful.refused[:, 1].tolist())


def test_the_same_seed_makes_the_same_probes():
    model = random_model(1, mixed_schema())
    first, second, other = (make_probes(model, 100, seed, MOST).rows for seed in (4, 4, 5))
    assert np.array_equal(first, second, equal_nan=True)
    assert not np.array_equal(first, other, equal_nan=True)


def test_a_bound_on_the_rows_is_kept_and_reported_honestly():
    model = chain(300, Schema((Column("x"),), classes=("no", "yes")))
    enough = measure(model, make_probes(model, 0, 0, MOST))
    assert enough.complete
    probes = make_probes(model, 0, 0, 500)
    assert len(probes.rows) <= 500
    some = measure(model, probes)
    assert not some.complete
    assert some.part("leaves").share == some.part("sides of splits").share == 1.0
    assert some.part("one step above it").share < 1.0
    few = measure(model, make_probes(model, 0, 0, 50))
    assert few.part("leaves").share < 1.0


@pytest.mark.matrix
def test_ten_thousand_leaves_are_covered_completely():
    rng = np.random.default_rng(0)
    schema = Schema(tuple(Column(f"x{i}") for i in range(6)), classes=("a", "b", "c"))
    model = make_model(schema, [balanced_tree(rng, schema, 10_500)])
    coverage = measure(model, make_probes(model, 0, 0, MOST))
    assert coverage.part("leaves").reachable > 1000
    assert all(part.share == 1.0 for part in coverage.parts)
    assert coverage.wrong_turns[2] == 0


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


def test_every_rule_is_met_at_each_of_its_bounds_and_missed_just_beyond():
    schema = Schema((Column("x"), Column("c", "nominal", ("a", "b", "d"))), classes=("no", "yes"))
    inner = subset("c", ["a", "d"], leaf([1, 0]), leaf([1, 1]), missing=1)
    root = threshold("x", 1.0, leaf([0, 1]), threshold("x", 2.0, inner, leaf([2, 1])), missing=1)
    model = make_model(schema, [build_tree(root, schema)])
    rows, probed, total = rule_rows(model, MOST, np.empty((0, 2)), np.random.default_rng(0))
    assert probed == total == 4
    above = [float(np.nextafter(np.float32(t), np.float32(9))) for t in (1, 2)]
    seen = {(x, c) for x, c in rows.tolist() if x == x and c == c}
    # The rule "1 < x <= 2 and c in {a, d}": at its bounds, its levels, and beyond each.
    assert {(2.0, 0.0), (above[0], 0.0), (2.0, 2.0), (1.0, 0.0), (above[1], 0.0)} <= seen
    assert (2.0, 1.0) in seen
    assert any(x == 2.0 and c != c for x, c in rows.tolist())


def test_rules_left_without_rows_at_their_bounds_are_reported(tmp_path):
    model = chain(300, Schema((Column("x"),), classes=("no", "yes")))
    (path,) = exported(model, tmp_path, "rules")
    report = verify(model, [path], max_rows=1000)
    assert report.equal
    assert re.search(r"bounds of \d+ of 301 rules; raise max_rows", str(report))
    assert verify(model, [path]).artifacts[0].note == ""


def test_every_leaf_is_seen_with_divided_votes_where_they_can_be():
    """All votes for one class would hide one vote too many in float32."""
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    rare = threshold("y", 1.0, leaf([1, 0]), threshold("y", 1.5, leaf([0, 1]), leaf([1, 0])))
    trees = [threshold("x", 0.5, leaf([1, 0]), leaf([0, 1])), rare]
    model = make_model(schema, [build_tree(tree, schema) for tree in trees])
    for seed in range(10):
        rows = make_probes(model, 0, seed, MOST).rows
        divided = rows[sums(model, rows).max(axis=1) < model.unit_total]
        reached = leaf_indices(model, divided)
        for t, tree in enumerate(model.trees):
            assert set(tree.leaves.tolist()) <= set(reached[:, t].tolist())


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
def test_rows_that_a_policy_refuses_are_refused_by_every_artifact(tmp_path, missing, unknown):
    full = mixed_schema()
    schema = Schema(full.columns[:4], classes=full.classes)
    model = random_model(9, schema, missing=missing, unknown=unknown)
    report = verify(model, exported(model, tmp_path, "onnx", "c", "python", "rules"))
    assert report.equal, str(report)
    assert 0 < report.probes["refused"] < report.probes["rows"]


def test_a_model_that_refuses_every_row_is_proved_to(tmp_path):
    model = random_model(9, mixed_schema(), missing="error")  # one column has no levels
    report = verify(model, exported(model, tmp_path, "onnx", "c", "python", "rules"))
    assert report.equal, str(report)
    assert report.probes["refused"] == report.probes["rows"] > 0
    assert len(report.coverage.unreachable) == model.n_nodes


def test_an_artifact_that_answers_where_the_model_refuses_differs(tmp_path):
    artifacts = exported(small_model(), tmp_path, "onnx", "c", "python", "rules")
    report = verify(small_model(missing="error"), artifacts)
    assert [artifact.equal for artifact in report.artifacts] == [False] * 4
    assert report.artifacts[1].first.expected == "that it refuses the row"


@pytest.mark.matrix
def test_a_chain_of_depth_900_is_proved_in_c_and_rules(tmp_path):
    model = chain(900, Schema((Column("x"),), classes=("no", "yes")))
    report = verify(model, exported(model, tmp_path, "c", "rules"), random_rows=50)
    assert report.equal, str(report)
    assert report.coverage.part("at the threshold").reached == 900


def test_a_single_leaf_has_nothing_to_split_and_is_equal(tmp_path):
    schema = Schema((Column("x"),), classes=("no", "yes"))
    model = make_model(schema, [build_tree(leaf([1, 3]), schema)])
    report = verify(model, exported(model, tmp_path, "onnx", "c", "python", "rules"))
    assert report.equal, str(report)
    assert report.coverage.part("sides of splits").reachable == 0


def test_the_first_differing_row_is_shown_by_column_names(tmp_path):
    model = small_model()
    (path,) = exported(model, tmp_path, "rules")
    text = path.read_text()
    path.write_text(text.replace("colour is red, or is missing", "colour is red"))
    report = verify(model, [path])
    (artifact,) = report.artifacts
    assert not report.equal
    assert report.exit_code == 1
    assert 0 < artifact.differing < artifact.rows
    assert artifact.first.row["colour"] in (None, "red~")
    said = str(report)
    assert "NOT equal" in said
    assert "first differing row" in said
    assert "the model says     'no', probabilities [0.75, 0.25]" in said


def test_a_threshold_in_the_c_file_moved_by_one_double_is_seen(tmp_path):
    model = small_model()
    (path,) = exported(model, tmp_path, "c")
    text = path.read_text()
    edge = "0.5000000298023224"
    assert edge in text
    path.write_text(text.replace(edge, repr(math.nextafter(float(edge), 1))))
    report = verify(model, [path])
    assert report.artifacts[0].differing > 0


def test_an_artifact_that_cannot_run_is_a_result_not_an_exception(tmp_path):
    model = small_model()
    onnx, c, python, rules = exported(model, tmp_path, "onnx", "c", "python", "rules")
    onnx.write_bytes(onnx.read_bytes()[:100])
    c.write_text(c.read_text() + "\n#error stop\n")
    python.write_text(python.read_text() + "\nraise SystemExit(3)\n")
    rules.write_text(rules.read_text()[:-20])
    report = verify(model, [onnx, c, python, rules])
    assert not report.equal
    assert "onnxruntime cannot run" in report.artifacts[0].error
    assert "#error stop" in report.artifacts[1].error
    assert "exit code 3" in report.artifacts[2].error
    assert "cannot be read" in report.artifacts[3].error
    assert str(report).count("could not run") == 4


def test_what_could_not_run_is_told_apart_from_what_differs(tmp_path):
    model = small_model()
    python, rules = exported(model, tmp_path, "python", "rules")
    text = python.read_text()
    python.write_text(text + "\nraise SystemExit(3)\n")
    report = verify(model, [python, rules])
    assert report.exit_code == 1
    assert str(report).startswith("1 of 2 artifacts could not be run\n")
    assert "coverage of" in str(report)
    rules.write_text(rules.read_text().replace("is red, or is missing", "is red"))
    said = str(verify(model, [python, rules]))
    head = "1 of 2 artifacts is NOT equal to the model; 1 of 2 artifacts could not be run\n"
    assert said.startswith(head)
    alone = verify(model, [python])
    assert alone.exit_code == 1
    assert str(alone).startswith("the artifact could not be run\n")
    assert "coverage" not in str(alone)
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
def test_an_artifact_of_another_model_is_called_that(tmp_path, schema):
    other = random_model(0, schema)
    report = verify(small_model(), exported(other, tmp_path, "onnx", "c", "python", "rules"))
    for artifact in report.artifacts:
        assert "has other columns or classes than the model" in artifact.error


def test_an_estimator_stands_for_its_model_and_nothing_else_does(tmp_path):
    estimator = treekit.DecisionTreeClassifier()
    with pytest.raises(TypeError, match="not DecisionTreeClassifier; fit"):
        export(estimator, "rules", tmp_path / "m")
    estimator.fit([[0.0], [1.0]], [0, 1])
    (path,) = export(estimator, "rules", tmp_path / "m")
    assert verify(estimator, [path]).equal
    with pytest.raises(TypeError, match=r"not str; .* treekit\.load"):
        verify("m.treekit", [path])
    with pytest.raises(TypeError, match="not NoneType; give what treekit"):
        export(None, "rules", tmp_path / "m")


def test_a_c_file_that_crashes_does_not_take_the_verification_down(tmp_path):
    model = small_model()
    (path,) = exported(model, tmp_path, "c")
    text = path.read_text()
    path.write_text(
        text.replace(
            "int model_predict(const double *x, double *out)\n{",
            ("#include <stdlib.h>\nint model_predict(const double *x, double *out)\n{ abort();"),
        )
    )
    report = verify(model, [path])
    assert "exit code -6" in report.artifacts[0].error


def test_a_c_file_without_its_header_says_what_it_needs(tmp_path):
    model = small_model()
    (path,) = exported(model, tmp_path, "c")
    path.with_suffix(".h").unlink()
    assert "header 'model.h' beside it" in verify(model, [path]).artifacts[0].error


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"red"', '"rot"', "categories"),
        ('"colour"', '"color"', "names"),
        ('"yes"', '"ja"', "names"),
    ],
)
def test_names_and_categories_of_a_c_file_are_compared_too(tmp_path, old, new, said):
    model = small_model()
    (path,) = exported(model, tmp_path, "c")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert said in verify(model, [path]).artifacts[0].error


def test_a_label_of_another_type_is_not_equal(tmp_path):
    schema = Schema((Column("x"),), classes=(0, 1))
    model = make_model(schema, [build_tree(leaf([1, 3]), schema)])
    (path,) = exported(model, tmp_path, "python")
    path.write_text(path.read_text().replace("    1,\n", "    True,\n"))
    (artifact,) = verify(model, [path]).artifacts
    assert artifact.differing == artifact.rows
    assert artifact.first.given.startswith("a label that is none of the classes")


def test_unknown_kinds_and_absent_files_are_named(tmp_path):
    model = small_model()
    with pytest.raises(VerificationError, match=r"cannot run 'model\.exe'.*\.onnx, \.c, \.py"):
        verify(model, [tmp_path / "model.exe"])
    with pytest.raises(VerificationError, match="there is no file"):
        verify(model, [tmp_path / "model.c"])
    with pytest.raises(VerificationError, match="max_rows of at least 1"):
        verify(model, exported(model, tmp_path, "rules"), max_rows=0)


def test_the_certificate_holds_digests_counts_and_versions(tmp_path):
    model = small_model()
    artifacts = exported(model, tmp_path, "c", "rules")
    report = verify(model, artifacts, random_rows=30, certificate=tmp_path / "proof.json")
    proof = json.loads((tmp_path / "proof.json").read_text())
    assert proof["equal"] is True
    assert proof["model_sha256"] == model_sha256(model) == report.model_sha256
    c, rules = proof["artifacts"]
    for name in ("model.c", "model.h"):
        digest = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        assert c["sha256"][name] == digest
    assert (c["rows"], c["differing"]) == (report.probes["rows"], 0)
    assert rules["kind"] == "rules"
    assert {"treekit", "numpy", "python", "gcc"} <= set(proof["versions"])
    assert proof["versions"]["python"] == platform.python_version()
    assert proof["coverage"]["complete"] is True
    assert {p["name"] for p in proof["coverage"]["parts"]} >= {"leaves", "sides of splits"}
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


def test_a_certificate_that_cannot_be_written_is_named(tmp_path):
    artifacts = exported(small_model(), tmp_path, "rules")
    with pytest.raises(VerificationError, match="cannot write"):
        verify(small_model(), artifacts, certificate=tmp_path / "absent" / "proof.json")


def test_the_digest_of_a_model_follows_every_answer_it_gives():
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
    assert len({model_sha256(m) for m in [model, *others]}) == 5
    assert model_sha256(small_model()) == model_sha256(model)


def test_the_report_never_rounds_coverage_up_to_all_of_it(tmp_path):
    model = chain(300, Schema((Column("x"),), classes=("a", "b")))
    report = verify(model, exported(model, tmp_path, "rules"), max_rows=890)
    assert isinstance(report, Report)
    share = report.coverage.part("one step above it").share
    assert share < 1.0
    assert "some splits got no rows: raise max_rows" in str(report)
    assert [_percent(x) for x in (0.9996, 0.9994, 1.0, 0.5)] == ["<100%", "99.9%", "100%", "50%"]


def test_each_branch_of_a_multiway_split_is_told_from_the_others(tmp_path):
    schema = Schema((Column("c", "nominal", tuple("abcdefghijkl")),), classes=("no", "yes"))
    node = multiway("c", {level: leaf([i + 1, 1]) for i, level in enumerate("abcdefghijk")}, 4)
    model = make_model(schema, [build_tree(node, schema)])
    report = verify(model, exported(model, tmp_path, "c", "python", "rules", "onnx"))
    assert report.equal, str(report)
    assert report.coverage.part("levels at a split").reached == 12


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
def test_an_artifact_of_several_targets_is_asked_for_each(tmp_path, target, task):
    model = several_targets(task)
    rows = np.array([[0.5, 0, 1], [0.6, 0, 1], [np.nan, np.nan, 1], [0, 1, 0], [0, 7, 0]])
    (path,) = exported(model, tmp_path, target)
    wanted = expected(model, rows, n_refused=1)
    assert wanted.label.shape == (5, 2)
    for how, answers in runner_of(path).run(path, model.schema, rows):
        assert len(differing(answers, wanted)) == 0, how
    text = path.read_text()
    path.write_text(text.replace("second", "other"))
    if target == "c":
        with pytest.raises(VerificationError, match="names its columns or classes otherwise"):
            list(runner_of(path).run(path, model.schema, rows))
