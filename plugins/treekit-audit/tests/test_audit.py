"""Overlaps, conflicts, unreachable rules and gaps, compared with every cell of a grid."""

from __future__ import annotations

import itertools
import json
import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from treekit_audit import overlapping_rules, rules_against

import treekit
from tests.examples import examples
from tests.reference import rules as oracle
from tests.strategies import models
from treekit.cli import main
from treekit.data.schema import Column, Output, Schema
from treekit.errors import DataError, SettingError
from treekit.model.builder import build_tree, leaf, oblique, threshold
from treekit.model.model import make_model
from treekit.rules import (
    parse_rules,
    rules,
)
from treekit.rules.merge import ConditionTuple, regroup_rules
from treekit.testing import check_document

# ---------------------------------------------------------------- rules overlaps

NAN = math.nan
COLUMNS = (Column("x"), Column("colour", "nominal", ("red", "green", "blue")), Column("y"))


def rule_list(*boxes, order="first", missing="direction", dtype="float32", labels=None):
    """A list with one rule for each mapping of columns to what it takes; '?' = missing too."""
    schema = Schema(COLUMNS, classes=("a", "b"), dtype=dtype)
    model = make_model(schema, [build_tree(leaf([1, 2]), schema)], missing=missing)
    one = rules(model)
    labels = labels or [0] * len(boxes)
    many = replace(
        one,
        order=order,
        **{name: np.repeat(getattr(one, name), len(boxes), axis=0)
           for name in ("tree", "leaf", "support", "as_parent", "value")},
        units=np.eye(2, dtype=np.int64)[labels] * 2**24,
        end=np.zeros(len(boxes), dtype=np.int64),
    )  # fmt: skip
    found = {k: [asked(c, *what) for c, what in box.items()] for k, box in enumerate(boxes)}
    return regroup_rules(many, np.arange(len(boxes)), found)[0]


def asked(column, takes, missing=False):
    number = [c.name for c in COLUMNS].index(column)
    part = (0, 2**24) if missing else (0, 0)
    if takes is None:
        return ConditionTuple(number, -math.inf, math.inf, False, missing, part, (), ())
    if column == "colour":
        codes = tuple(sorted(COLUMNS[1].levels.index(level) for level in takes))
        return ConditionTuple(number, -math.inf, math.inf, bool(codes), missing, part, codes, ())
    return ConditionTuple(number, *map(float, takes), True, missing, part, (), ())


@st.composite
def boxes(draw):
    ends = st.sampled_from([-math.inf, 0.0, 1.0, 2.0, 3.0, math.inf])
    box = {}
    for column in draw(st.sets(st.sampled_from(["x", "colour", "y"]))):
        missing = draw(st.booleans())
        if column == "colour":
            takes = draw(st.sets(st.sampled_from(COLUMNS[1].levels), min_size=0))
            box[column] = (takes or None, missing)
        else:
            low, high = draw(ends), draw(ends)
            known = low < high
            box[column] = ((low, high) if known else None, missing)
    return box


NUMBERS = (0.0, 1.0, 2.0, 3.0, 4.0, NAN)
GRID = [*itertools.product(NUMBERS, (0.0, 1.0, 2.0, NAN), NUMBERS)]


@given(st.lists(boxes(), min_size=1, max_size=6), st.booleans(), st.booleans(), st.data())
@settings(max_examples=examples(40))
def test_overlaps_conflicts_and_gaps_equal_those_counted_on_a_grid(found, ordered, refusing, data):
    labels = [data.draw(st.integers(0, 1)) for _ in found]
    listed = rule_list(
        *found,
        order="first" if ordered else "disjoint",
        missing="error" if refusing else "direction",
        labels=labels,
    )
    report = overlapping_rules(listed)
    rows = np.array(GRID)
    rows = rows[~listed.refused(rows)]
    alone = replace(listed, order="disjoint")  # what rules fit, whichever answers
    fit = np.array([[mass > 0 for _, mass in oracle.masses(alone, row)] for row in rows])
    n = len(found)
    told = n - 1 if ordered and not found[-1] else n  # a last rule for the rest is no news
    met = [(i, j) for i in range(n) for j in range(i + 1, told) if (fit[:, i] & fit[:, j]).any()]
    assert report.exact
    assert [tuple(pair) for pair in report.pairs.tolist()] == met
    assert report.conflicts.tolist() == [labels[i] != labels[j] for i, j in met]
    for k in range(n):
        own = fit[:, k]
        inside = [
            j for j in range(n)
            if j != k and own.any() and not (own & ~fit[:, j]).any()
            and (j < k or (not ordered and not (fit[:, j] == own).all()))
        ]  # fmt: skip
        assert report.shadowed[k] == (inside[0] if inside else -1)
        if not own.any():
            assert report.reach[k] == "empty"
        elif ordered and not (own & ~fit[:, :k].any(axis=1)).any():
            assert report.reach[k] == "never"
        else:
            assert report.reach[k] == "reached"
    assert report.gap == (not fit.any(axis=1).all())
    if report.gap:
        codes = {level: code for code, level in enumerate(COLUMNS[1].levels)}
        row = [report.witness.get(c.name, 0.0) for c in COLUMNS]
        cells = [NAN if v is None else codes.get(v, v) for v in row]
        assert not any(mass for _, mass in oracle.masses(listed, cells))


@given(st.data())
@settings(max_examples=examples(15))
def test_rules_of_trees_neither_overlap_nor_leave_a_gap(data):
    model = data.draw(models())
    listed = rules(model)
    for tree in range(model.n_trees):
        report = overlapping_rules(listed, tree)
        assert len(report.pairs) == 0
        assert report.gap is False
        assert not report.conflicts.any()


def test_rule_is_empty_if_no_float32_lies_between_its_bounds():
    tiny = {"x": ((1.0, 1.0 + 1e-12), False)}
    assert overlapping_rules(rule_list(tiny, {})).reach == ("empty", "reached")
    assert overlapping_rules(rule_list(tiny, {}, dtype="float64")).reach == ("reached", "reached")


def test_report_text_lists_conflicts_and_unreachable_rules():
    listed = rule_list(
        {"x": ((-math.inf, 2.0), False)},
        {"x": ((1.0, 3.0), False), "colour": (["red"], False)},
        {"x": ((0.0, 1.0), False)},
        {"x": (None, False)},
        labels=[0, 1, 0, 0],
    )
    table = {"x": [1.5, 9.0, 0.5, None], "colour": ["red"] * 4, "y": [0, 0, 0, 0]}
    report = overlapping_rules(listed, table=table)
    assert report.text().splitlines() == [
        "Overlaps of 4 rules",
        "Rules 1 and 2 overlap and predict differently.",
        "Rules 1 and 3 overlap and predict the same.",
        "Rule 3 is shadowed: every row that it matches also matches rule 1.",
        "Rule 3 never predicts: earlier rules match all of its rows.",
        "Rule 4 matches no row: its conditions exclude each other.",
        f"No rule matches this row: {said(report)}.",
        "Of 4 rows in the table 0 are rejected, 2 match no rule, and 2 match several, 1 of them "
        "with different predictions.",
    ]
    assert report.counts.answered.tolist() == [2, 0, 0, 0]
    assert "规则 1 与规则 2 重叠，结论相互矛盾。" in report.text("zh")
    assert "... and 1 more" in report.text(most=1)
    plain = report.plain()
    assert plain["conflicts"] == [[1, 2]]
    assert plain["reach"] == {"3": "never", "4": "empty"}


def said(report):
    kinds = {float: lambda v: f"{v:g}", str: lambda v: f'"{v}"', type(None): lambda v: "missing"}
    return ", ".join(f"{name} = {kinds[type(v)](v)}" for name, v in report.witness.items())


def test_report_states_that_the_budget_was_exhausted():
    listed = rule_list(
        {"x": ((-math.inf, 2.0), True)}, {"x": ((1.0, math.inf), False)}, {"y": ((0, 1), False)}
    )
    assert overlapping_rules(listed).reach[2] == "never"
    report = overlapping_rules(listed, steps=0)
    assert report.gap is None
    assert report.reach == ("reached", "undecided", "undecided")
    assert "Undecided within the step limit" in report.text()


def test_default_rule_has_no_overlap_and_no_conflict():
    found = {"x": ((-math.inf, 1.0), False)}, {"x": ((1.0, 2.0), False)}, {}
    table = {"x": [0.5, 1.5, 9.0], "colour": ["red"] * 3, "y": [0] * 3}
    report = overlapping_rules(rule_list(*found, labels=[0, 0, 1]), table=table)
    assert report.text().splitlines() == [
        "Overlaps of 3 rules",
        "No two rules with conditions match a common row.",
        "Every row matches a rule.",
        "Of 3 rows in the table 0 are rejected, 0 match no rule, and 0 match several, 0 of them "
        "with different predictions.",
    ]
    assert report.counts.answered.tolist() == [1, 1, 1]
    # It is news where nothing is left for it, where it is not the last, and without an order.
    late = overlapping_rules(rule_list({"x": ((-math.inf, math.inf), True)}, {}, labels=[0, 1]))
    assert late.reach == ("reached", "never")
    assert late.shadowed.tolist() == [-1, 0]
    early = overlapping_rules(rule_list({}, found[0], labels=[1, 0]))
    assert early.conflicts.tolist() == [True]
    free = overlapping_rules(rule_list(*found, order="disjoint", labels=[0, 0, 1]), table=table)
    assert free.pairs.tolist() == [[0, 2], [1, 2]]
    assert free.conflicts.tolist() == [True, True]
    assert free.counts.conflicting == 2


def test_oblique_conditions_are_reported_as_possible_overlaps():
    schema = Schema((Column("x"), Column("y")), classes=("a", "b"))
    inner = oblique({"x": 1.0, "y": 1.0}, 0.0, leaf([1, 0]), leaf([0, 1]))
    root = oblique({"x": 1.0, "y": -1.0}, 0.0, inner, leaf([2, 1]))
    listed = rules(make_model(schema, [build_tree(root, schema)]))
    report = overlapping_rules(listed)
    assert not report.exact
    assert report.gap is False
    assert "may not occur" in report.text()


def test_models_without_a_single_list_are_refused():
    schema = Schema((Column("x"),), classes=("a", "b"))
    tree = build_tree(threshold("x", 1.0, leaf([1, 0]), leaf([0, 1])), schema)
    with pytest.raises(DataError, match="give a tree"):
        overlapping_rules(rules(make_model(schema, [tree] * 2)))
    with pytest.raises(DataError, match="no tree 2"):
        overlapping_rules(rules(make_model(schema, [tree] * 2)), 2)
    with pytest.raises(DataError, match="share rows by design"):
        overlapping_rules(rules(make_model(schema, [tree], missing="fractional")))


def test_gap_and_overlap_of_an_edited_rule_text_are_reported():
    schema = Schema((Column("x"),), classes=("a", "b"))
    tree = build_tree(threshold("x", 1.0, leaf([1, 0]), leaf([0, 1])), schema)
    text = str(rules(make_model(schema, [tree])))
    wider = overlapping_rules(parse_rules(text.replace("x <= 1\n", "x <= 2\n")))
    assert wider.pairs.tolist() == [[0, 1]]
    assert wider.gap is False
    narrow = overlapping_rules(parse_rules(text.replace("x <= 1\n", "x <= 0.5\n")))
    assert narrow.gap
    assert narrow.witness == {"x": 1.0}


def test_gap_above_the_largest_float32_has_infinity_as_example():
    largest = float(np.finfo(np.float32).max)
    report = overlapping_rules(rule_list({"x": ((-math.inf, largest), True)}))
    assert report.gap
    assert report.witness == {"x": math.inf}


@pytest.mark.matrix
def test_overlaps_of_2000_random_rules_are_found_in_seconds():
    rng = np.random.default_rng(0)
    low = rng.normal(size=(2000, 2))
    found = [{"x": ((a, a + 0.2), False), "y": ((b, b + 0.2), False)} for a, b in low.tolist()]
    begun = time.process_time()
    report = overlapping_rules(rule_list(*found, dtype="float64"), steps=500)
    assert time.process_time() - begun < 20
    assert report.gap
    x, y = low.T
    near = (abs(x[:, None] - x) < 0.2) & (abs(y[:, None] - y) < 0.2)
    assert len(report.pairs) == np.triu(near, 1).sum()


# ---------------------------------------------------------------- rules against
# Rules held against a table: live figures, tests of drift, stability of shares.


def schema_of(**other):
    return Schema((Column("x"),), **{"target": "ripe", "classes": ("raw", "good")} | other)


def model_of(**policies):
    root = threshold("x", 1.0, leaf([80, 20]), leaf([30, 70]), missing=0)
    return make_model(schema_of(), [build_tree(root, schema_of())], **policies)


def table(low_right, low_wrong, high_right, high_wrong):
    counts = [low_right, low_wrong, high_right, high_wrong]
    x = np.repeat([0.0, 0.0, 2.0, 2.0], counts)
    return {"x": x, "ripe": np.repeat(["raw", "good", "good", "raw"], counts)}


def test_no_drift_is_reported_for_a_table_like_the_training_rows():
    report = rules_against(rules(model_of()), table(40, 10, 35, 15))
    assert not report.drift.any()
    assert np.allclose(report.difference, 0.0)
    assert report.p_value.tolist() == [[1.0], [1.0]]
    assert report.stability() == "stable"
    assert report.overall[0].accuracy == 0.75
    assert (report.rows, report.refused, report.unanswered) == (100, 0, 0)


def test_drift_of_a_rule_has_the_p_value_of_the_two_proportion_z_test():
    report = rules_against(rules(model_of()), table(30, 70, 68, 32))
    assert report.drift.tolist() == [True, False]
    pooled = (80 + 30) / 200
    z = 0.5 / math.sqrt(pooled * (1 - pooled) * (2 / 100))
    assert math.isclose(report.p_value[0, 0], 2 * stats.norm.sf(z), rel_tol=1e-12)
    wanted = stats.binomtest(30, 100).proportion_ci(method="wilson")
    assert np.allclose([report.low[0, 0], report.high[0, 0]], [wanted.low, wanted.high])
    assert report.stability() == "stable"


def test_stability_index_equals_its_formula():
    report = rules_against(rules(model_of()), table(720, 180, 70, 30))
    was, now = np.array([0.5, 0.5]), np.array([900.5, 100.5]) / 1001
    index = ((now - was) * np.log(now / was)).sum()
    assert math.isclose(report.stability_index[0], index)
    assert math.isclose(
        report.by_chance[0], stats.chi2.ppf(0.95, 1) * (1 / 200 + 1 / 1000), rel_tol=0.05
    )
    assert report.stability() == "shifted"
    assert not report.drift.any()
    few = rules_against(rules(model_of()), table(4, 1, 1, 1))
    assert few.stability_index[0] > 0.1
    assert few.stability() == "stable"  # so few rows say nothing


def test_refused_rows_rows_without_a_rule_and_unknown_targets_are_counted():
    text = str(rules(model_of(missing="error")))
    listed = parse_rules(text.replace("x <= 1\n", "x <= 0.5\n"))
    rows = {"x": [0.0, 0.7, 2.0, NAN, 2.0], "ripe": ["raw", "raw", "good", "raw", None]}
    report = rules_against(listed, rows)
    assert (report.rows, report.refused, report.unanswered) == (5, 1, 1)
    assert report.overall[0][:3] == ("ripe", 2, 1.0)
    assert report.live.rows.tolist() == [1, 2]
    assert report.live.confidence[:, 0].tolist() == [1.0, 1.0]


def test_drift_report_of_a_regression_has_means_r_squared_and_standard_error():
    schema = schema_of(task="regression", classes=())
    root = threshold("x", 1.0, leaf(10.0, 50), leaf(20.0, 50))
    listed = rules(make_model(schema, [build_tree(root, schema)]))
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(10, 1, 60), rng.normal(23, 1, 60)])
    report = rules_against(listed, {"x": np.repeat([0.0, 2.0], 60), "ripe": y})
    assert report.drift.tolist() == [False, True]
    said = np.repeat([10.0, 20.0], 60)
    assert math.isclose(report.overall[0].mean_error, abs(y - said).mean())
    fit = 1 - ((y - said) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert math.isclose(report.overall[0].r_squared, fit)
    error = math.sqrt(y[60:].var(ddof=1) * (1 / 50 + 1 / 60))
    assert math.isclose(report.p_value[1, 0], 2 * stats.norm.sf((y[60:].mean() - 20) / error))
    assert "R squared" in report.text()


def test_drift_report_of_fractional_instances_uses_model_predictions():
    schema = schema_of(task="regression", classes=())
    root = threshold("x", 1.0, leaf(-1 / 3, 50), leaf(10.0, 70))
    model = make_model(schema, [build_tree(root, schema)], missing="fractional")
    rows = {"x": [0.0, 2.0, math.nan], "ripe": [1.0, 2.0, 3.0]}
    quality = rules_against(rules(model), rows).overall[0]
    errors = np.abs(model.predict({"x": rows["x"]}) - rows["ripe"])
    assert quality.rows == 3
    assert math.isclose(quality.mean_error, errors.mean(), rel_tol=1e-14)


def test_totals_of_the_drift_report_use_row_weights():
    rows, weight = table(4, 1, 3, 2), np.array([1.0] * 5 + [2.0] * 3 + [0.0, 7.0])
    report = rules_against(rules(model_of()), rows, weight=weight)
    assert math.isclose(report.overall[0].accuracy, (4 + 6) / 18)
    assert math.isnan(rules_against(rules(model_of()), rows, weight=0 * weight).overall[0].accuracy)
    schema = schema_of(task="regression", classes=())
    listed = rules(make_model(schema, [build_tree(leaf(10.0, 50), schema)]))
    y, w = np.array([8.0, 11.0, math.inf]), np.array([1.0, 3.0, 9.0])
    quality = rules_against(listed, {"x": [0.0] * 3, "ripe": y}, weight=w).overall[0]
    centre = (8 + 3 * 11) / 4
    fit = 1 - (4 + 3) / ((8 - centre) ** 2 + 3 * (11 - centre) ** 2)
    assert (quality.rows, quality.mean_error) == (2, (2 + 3) / 4)  # infinite ones are not known
    assert math.isclose(quality.r_squared, fit)


def test_drift_report_of_a_multi_output_forest_has_a_line_per_rule_and_target():
    schema = schema_of(more=(Output("size", (1, 2)),))
    root = threshold("x", 1.0, leaf([8, 2, 5, 5]), leaf([3, 7, 1, 9]))
    listed = rules(make_model(schema, [build_tree(root, schema)] * 2))
    rows = {"x": [0.0, 2.0], "ripe": ["raw", "good"], "size": [1, 2]}
    report = rules_against(listed, rows)
    assert len(report.records()) == 8
    assert report.text().splitlines()[0].split()[:4] == ["rule", "tree", "target", "predicts"]
    assert [quality.accuracy for quality in report.overall] == [1.0, 1.0]


def test_the_text_is_aligned_sorted_and_written_in_both_languages():
    report = rules_against(rules(model_of()), table(30, 70, 68, 32))
    lines = report.text(sort="difference").splitlines()
    assert lines[:3] == [
        "rule  predicts  rows  expected coverage  coverage  expected confidence  confidence  "
        "difference         p  drift",
        "   1       raw   100              50.0%     50.0%                80.0%       30.0%  "
        "    -50.0%  1.19e-12  drift",
        "   2      good   100              50.0%     50.0%                70.0%       68.0%  "
        "     -2.0%      0.76",
    ]
    assert lines[4:] == [
        "Of 200 rows 0 are rejected and 0 match no rule.",
        "ripe: accuracy 49.00% on 200 rows.",
        "Rules whose performance has drifted: 1.",
        "The shares of rows by rule are stable: stability index 0.000 (by chance up to 0.037).",
    ]
    chinese = report.text("zh")
    assert "表现已不同于训练时的规则：1 条。" in chinese
    with pytest.raises(SettingError, match="unknown column 'size'"):
        report.text(sort="size")


def test_records_and_summary_are_plain_data():
    report = rules_against(rules(model_of()), {"x": [0.0], "ripe": ["raw"]})
    again = json.loads(json.dumps([report.records(), report.summary()], allow_nan=False))
    assert again[0][1]["confidence"] is None  # no row came
    assert again[1]["overall"][0]["accuracy"] == 1.0


def test_a_table_without_rows_or_without_the_target_is_refused():
    listed = rules(model_of())
    with pytest.raises(DataError, match="no target column 'ripe'"):
        rules_against(listed, {"x": [0.0]})
    with pytest.raises(DataError, match="got 2 target columns"):
        rules_against(listed, {"x": [0.0], "ripe": ["raw"]}, ["ripe", "x"])


def test_rules_without_training_statistics_are_not_tested():
    listed = replace(rules(model_of()), support=np.zeros(2), value=None)
    report = rules_against(listed, table(40, 10, 35, 15))
    assert np.isnan(report.p_value).all()
    assert "No rule has training figures" in report.text()
    assert (
        "No rule has training figures"
        not in rules_against(rules(model_of()), table(4, 1, 3, 1)).text()
    )


@pytest.mark.parametrize("form", ["overlaps", "drift"])
def test_reports_pass_the_contract_checks(form):
    check_document(form)


def test_the_command_writes_the_reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = {"size": [1, 2, 3, 4] * 5, "kept": ["no", "no", "yes", "yes"] * 5}
    treekit.train(table, "kept", seed=0).save("m.treekit")
    Path("rows.csv").write_text("size,kept\n1,no\n4,yes\n,no\n2,no\n")
    runs = {
        "No two rules with conditions match a common row": ["--overlaps"],
        "Of 4 rows in the table": ["--overlaps", "--table", "rows.csv"],
        "4 rows": ["--against", "rows.csv"],
    }
    for text, options in runs.items():
        done = CliRunner().invoke(main, ["rules", "m.treekit", *options])
        assert done.exit_code == 0, done.output
        assert text in done.output
