"""Rules held against a table: live figures, tests of drift, stability of shares."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from treekit.data.schema import Column, Output, Schema
from treekit.errors import DataError, SettingError
from treekit.model.builder import build_tree, leaf, threshold
from treekit.model.model import make_model
from treekit.rules import parse_rules, rules, rules_against

NAN = math.nan


def schema_of(**other):
    return Schema((Column("x"),), **{"target": "ripe", "classes": ("raw", "good")} | other)


def model_of(**policies):
    root = threshold("x", 1.0, leaf([80, 20]), leaf([30, 70]), missing=0)
    return make_model(schema_of(), [build_tree(root, schema_of())], **policies)


def table(low_right, low_wrong, high_right, high_wrong):
    counts = [low_right, low_wrong, high_right, high_wrong]
    x = np.repeat([0.0, 0.0, 2.0, 2.0], counts)
    return {"x": x, "ripe": np.repeat(["raw", "good", "good", "raw"], counts)}


def test_a_table_like_the_training_rows_shows_no_drift():
    report = rules_against(rules(model_of()), table(40, 10, 35, 15))
    assert not report.drift.any()
    assert np.allclose(report.difference, 0.0)
    assert report.p_value.tolist() == [[1.0], [1.0]]
    assert report.stability() == "stable"
    assert report.overall[0].accuracy == 0.75
    assert (report.rows, report.refused, report.unanswered) == (100, 0, 0)


def test_a_rule_that_is_no_longer_right_is_named_and_the_test_is_the_textbook_one():
    report = rules_against(rules(model_of()), table(30, 70, 68, 32))
    assert report.drift.tolist() == [True, False]
    pooled = (80 + 30) / 200
    z = 0.5 / math.sqrt(pooled * (1 - pooled) * (2 / 100))
    assert math.isclose(report.p_value[0, 0], 2 * stats.norm.sf(z), rel_tol=1e-12)
    wanted = stats.binomtest(30, 100).proportion_ci(method="wilson")
    assert np.allclose([report.low[0, 0], report.high[0, 0]], [wanted.low, wanted.high])
    assert report.stability() == "stable"


def test_shares_that_shift_raise_the_index_of_the_formula():
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


def test_refused_rows_rows_without_rules_and_unknown_targets_are_counted_apart():
    text = str(rules(model_of(missing="error")))
    listed = parse_rules(text.replace("x <= 1\n", "x <= 0.5\n"))
    rows = {"x": [0.0, 0.7, 2.0, NAN, 2.0], "ripe": ["raw", "raw", "good", "raw", None]}
    report = rules_against(listed, rows)
    assert (report.rows, report.refused, report.unanswered) == (5, 1, 1)
    assert report.overall[0][:3] == ("ripe", 2, 1.0)
    assert report.live.rows.tolist() == [1, 2]
    assert report.live.confidence[:, 0].tolist() == [1.0, 1.0]


def test_numbers_have_means_r_squared_and_an_error():
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


def test_weights_count_in_the_figures_of_the_whole_list_too():
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


def test_a_forest_of_several_targets_has_a_line_for_each_rule_and_target():
    schema = schema_of(more=(Output("size", (1, 2)),))
    root = threshold("x", 1.0, leaf([8, 2, 5, 5]), leaf([3, 7, 1, 9]))
    listed = rules(make_model(schema, [build_tree(root, schema)] * 2))
    rows = {"x": [0.0, 2.0], "ripe": ["raw", "good"], "size": [1, 2]}
    report = rules_against(listed, rows)
    assert len(report.records()) == 8
    assert report.text().splitlines()[0].split()[:4] == ["rule", "tree", "target", "says"]
    assert [quality.accuracy for quality in report.overall] == [1.0, 1.0]


def test_the_text_is_aligned_sorted_and_spoken_in_both_languages():
    report = rules_against(rules(model_of()), table(30, 70, 68, 32))
    lines = report.text(sort="difference").splitlines()
    assert lines[:3] == [
        "rule  says  rows  coverage then    now  confidence then    now  difference         p  "
        "drift",
        "   1   raw   100          50.0%  50.0%            80.0%  30.0%      -50.0%  1.19e-12  "
        "drift",
        "   2  good   100          50.0%  50.0%            70.0%  68.0%       -2.0%      0.76",
    ]
    assert lines[4:] == [
        "Of 200 rows 0 are refused and 0 have no rule.",
        "ripe: 49.00% of 200 rows answered rightly.",
        "Rules that fare otherwise than in training: 1.",
        "The shares of rows by rule are as in training: stability index 0.000 (by chance up to "
        "0.037).",
    ]
    chinese = report.text("zh")
    assert "表现已不同于训练时的规则：1 条。" in chinese
    with pytest.raises(SettingError, match="no column 'size'"):
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
    with pytest.raises(DataError, match="2 target columns are named"):
        rules_against(listed, {"x": [0.0], "ripe": ["raw"]}, ["ripe", "x"])


def test_rules_without_figures_of_training_are_not_said_to_be_judged():
    listed = replace(rules(model_of()), support=np.zeros(2), value=None)
    report = rules_against(listed, table(40, 10, 35, 15))
    assert np.isnan(report.p_value).all()
    assert "none was judged" in report.text()
    assert "none was judged" not in rules_against(rules(model_of()), table(4, 1, 3, 1)).text()
