"""Two models compared: their rules, predictions and scores."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

import treekit
from tests.cli.test_cli import call
from tests.strategies import ALL_KINDS, models
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.schema import Column, Schema
from treekit.errors import DataError
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, hash_model, make_model
from treekit.model.scoring import predict
from treekit.rules.compare import compare_predictions, compare_rules
from treekit.rules.language import load_language
from treekit.rules.read_text import read_edited
from treekit.rules.revise import revise_model
from treekit.rules.rule_list import take_rules

COLUMNS = (Column("age"), Column("sugar"), Column("colour", "nominal", ("blue", "red")))
CLASSES = Schema(COLUMNS, "ripe", "classification", classes=("no", "yes"))
NUMBERS = Schema(COLUMNS, "weight", "regression")
TABLE = {
    "age": [1.0, 2.0, 3.0, 4.0],
    "sugar": [0.0, 0.0, 1.0, 1.0],
    "colour": ["red", "red", "blue", None],
    "ripe": ["no", "yes", "yes", "yes"],
    "weight": [1.0, 1.0, 5.0, 5.0],
}


def classes(at: float, schema: Schema = CLASSES) -> Model:
    """One cut of the age."""
    return make_model(
        schema, [build_tree(threshold("age", at, leaf([1, 0]), leaf([0, 1])), schema)]
    )


def numbers(high: float) -> Model:
    """Numbers on either side of an age."""
    return make_model(NUMBERS, [build_tree(threshold("age", 2.0, leaf(1.0), leaf(high)), NUMBERS)])


def deep(at: float, *, swapped: bool = False) -> Model:
    """A tree of three rules, whose two cuts may be asked in the other order."""
    inner = threshold("sugar", at, leaf([3, 1]), leaf([1, 3]))
    whole = subset("colour", ["blue"], inner, leaf([0, 1]))
    if swapped:
        sides = [subset("colour", ["blue"], leaf(one), leaf([0, 1])) for one in ([3, 1], [1, 3])]
        whole = threshold("sugar", at, *sides)
    return make_model(CLASSES, [build_tree(whole, CLASSES)])


# ---------------------------------------------------------------- rules


@given(models(kinds=ALL_KINDS))
def test_comparing_a_model_with_itself_shows_no_difference(model):
    rules = model.rules()
    same = compare_rules(rules, rules)
    assert same is not None
    assert (same.unchanged, same.changes) == (len(rules), ())
    assert list(same.lines()) == ["the rules have not changed"]


def test_only_the_changed_condition_is_marked():
    found = compare_rules(deep(0.5).rules(), deep(0.25).rules())
    assert list(found.lines()) == [
        "rules: 1 unchanged, 2 changed, 0 added, 0 removed",
        "changed: rule 1 before, rule 1 after",
        "    if colour is blue",
        "  - and sugar <= 0.5",
        "  + and sugar <= 0.25",
        "    then no (no: 0.75, yes: 0.25)",
        "changed: rule 2 before, rule 2 after",
        "    if colour is blue",
        "  - and sugar > 0.5, or is missing",
        "  + and sugar > 0.25, or is missing",
        "    then yes (no: 0.25, yes: 0.75)",
    ]


def test_the_order_of_conditions_is_not_a_change():
    found = compare_rules(deep(0.5).rules(), deep(0.5, swapped=True).rules())
    assert (found.unchanged, found.changes) == (3, ())


def test_swapping_the_models_swaps_added_and_removed_rules():
    one, other = deep(0.5).rules(), classes(2.0).rules()
    there, back = compare_rules(one, other), compare_rules(other, one)
    assert there.unchanged == back.unchanged == 0
    turned = {"added": "removed", "removed": "added", "changed": "changed"}
    assert sorted(change.kind for change in there.changes) == sorted(
        turned[change.kind] for change in back.changes
    )
    marks = {mark for change in there.changes for mark, _ in change.lines}
    assert marks == {"-", "+"}


def test_rule_order_is_compared_in_ordered_lists_only():
    text = str(classes(2.0).rules())
    text = text.replace("rule 1", "rule\n  if sugar > 9\n  then yes\n\nrule 1", 1)
    listed = revise_model(classes(2.0), read_edited(text)).rules()
    assert listed.order == "first"
    turned = take_rules(listed, np.array([1, 0, *range(2, len(listed))]))
    found = compare_rules(listed, turned)
    assert found.unchanged == len(listed) - 1
    assert list(found.lines())[1:] == [
        "moved: rule 2 before, rule 1 after",
        "    if age <= 2",
        "    then no (no: 1)",
    ]
    shuffled = replace(turned, order="disjoint")
    assert compare_rules(replace(listed, order="disjoint"), shuffled).changes == ()


def test_forests_of_other_sizes_are_not_compared_rule_by_rule():
    one = make_model(CLASSES, [classes(2.0).trees[0]] * 2)
    other = make_model(CLASSES, [classes(2.0).trees[0]] * 3)
    assert compare_rules(one.rules(), other.rules()) is None
    assert "different numbers of trees" in str(treekit.compare(one, other))
    last = make_model(CLASSES, [classes(2.0).trees[0], classes(3.0).trees[0]])
    lines = str(treekit.compare(one, last)).splitlines()
    assert lines[:3] == [
        "rules: 2 unchanged, 2 changed, 0 added, 0 removed",
        "tree 2 of 2",
        "changed: rule 1 before, rule 1 after",
    ]


# ---------------------------------------------------------------- predictions


def test_rows_with_changed_predictions_are_listed_and_counted():
    (change,) = compare_predictions(classes(2.5), classes(1.5), TABLE)
    assert change.changed == [1]
    assert change.switches == (("no", "yes", [1]),)
    assert change.scores[:3] == (0.75, 1.0, 0.25)
    assert change.lines()[:2] == [
        "ripe: the prediction changes for 1 of 4 rows",
        "  no -> yes: 1 (row 1)",
    ]


def test_an_edit_without_changed_predictions_is_reported():
    (change,) = compare_predictions(classes(2.5), classes(2.25), TABLE)
    assert change.switches == ()
    assert change.scores[:3] == (0.75, 0.75, 0.0)
    assert change.lines()[0] == "ripe: the prediction changes for 0 of 4 rows"


def test_table_without_the_target_shows_changed_predictions():
    rows = {"age": [2.0, 3.0], "sugar": [None, None], "colour": [None, None]}
    (change,) = compare_predictions(classes(3.5), classes(1.5), rows)
    assert change.changed == [0, 1]
    assert change.scores is None
    assert len(change.lines()) == 2


def test_rows_with_a_missing_target_are_not_scored():
    rows = {**TABLE, "ripe": [None, "yes", None, "yes"]}
    (change,) = compare_predictions(classes(2.5), classes(1.5), rows)
    assert change.scores[:2] == (0.5, 1.0)
    (change,) = compare_predictions(classes(2.5), classes(1.5), {**TABLE, "ripe": [None] * 4})
    assert change.scores is None


def test_changes_of_regression_predictions_are_measured():
    (change,) = compare_predictions(numbers(3.0), numbers(5.0), TABLE)
    assert change.changed == [2, 3]
    assert (change.largest, change.mean) == (2.0, 1.0)
    assert change.scores[:2] == (1.0 - 8 / 16, 1.0)
    # The mean of the gains 0, 0, 1, 1 with a standard error of their standard deviation / 2.
    half = 1.959963984540054 * np.std([0, 0, 1, 1], ddof=1) / 2
    assert change.scores[2:] == pytest.approx((0.5, 0.5 - half, 0.5 + half))


def test_interval_of_a_paired_difference_equals_the_literature():
    # A. Agresti, Categorical Data Analysis, 2nd ed. 2002, section 10.1.1: of 1,600 people 794
    # approve twice, 150 only first, 86 only then, 570 never; the difference of the shares is
    # -0.04 with a 95% interval of -0.06 to -0.02.
    counts = [(1, 1, 794), (1, 0, 150), (0, 1, 86), (0, 0, 570)]
    first, second = (
        np.repeat([pair[k] for pair in counts], [pair[2] for pair in counts]) for k in (0, 1)
    )
    table = {"age": first.astype(float), "sugar": second.astype(float), "colour": ["red"] * 1600}
    table["ripe"] = ["yes"] * 1600
    one = make_model(
        CLASSES, [build_tree(threshold("age", 0.5, leaf([1, 0]), leaf([0, 1])), CLASSES)]
    )
    other = make_model(
        CLASSES, [build_tree(threshold("sugar", 0.5, leaf([1, 0]), leaf([0, 1])), CLASSES)]
    )
    (change,) = compare_predictions(one, other, table)
    assert change.scores.before == 944 / 1600
    assert change.scores.after == 880 / 1600
    assert np.round(change.scores[2:], 2).tolist() == [-0.04, -0.06, -0.02]
    assert change.scores[3:] == pytest.approx((-0.0586, -0.0213), abs=1e-4)


def test_comparison_by_a_column_groups_rows_by_its_values():
    (change,) = compare_predictions(classes(2.5), classes(1.5), TABLE, "colour")
    assert {name: parts[:2] for name, parts in change.groups.items()} == {
        "colour=red": (2, 1),
        "colour=blue": (1, 0),
        "colour=missing": (1, 0),
    }
    assert change.groups["colour=red"][2][:2] == (0.5, 1.0)
    assert change.lines()[-3].startswith("  colour=red: changes for 1 of 2 rows: accuracy 0.5000")
    with pytest.raises(DataError, match="no column of groups 'color'; did you mean 'colour'"):
        compare_predictions(classes(2.5), classes(1.5), TABLE, "color")
    many = {name: cells * 20 for name, cells in TABLE.items()} | {"age": list(np.arange(80.0))}
    with pytest.raises(DataError, match="'age' has 80 different cells, too many"):
        compare_predictions(classes(2.5), classes(1.5), many, "age")
    with pytest.raises(DataError, match="needs a table"):
        treekit.compare(classes(2.5), classes(1.5), by="colour")


def test_changes_are_printed_in_chinese():
    (change,) = compare_predictions(classes(2.5), classes(1.5), TABLE)
    assert change.lines(load_language("zh"))[0] == "ripe：4 行中有 1 行的回答改变"
    assert str(treekit.compare(classes(2.5), classes(1.5), lang="zh")).startswith("规则：0 条未变")


def test_models_of_other_targets_cannot_be_compared():
    with pytest.raises(DataError, match="different targets"):
        treekit.compare(classes(1.5), numbers(1.0))
    with pytest.raises(TypeError, match="expected a Model or a fitted estimator"):
        treekit.compare("m.treekit", classes(1.0))


def test_names_and_labels_are_printed_visibly():
    schema = Schema(COLUMNS, "t\x1b[2J", "classification", classes=("no\u202e", "yes\n"))
    rows = {"age": [1.0, 2.0, 3.0], "sugar": [0.0] * 3, "colour": ["red"] * 3}
    (change,) = compare_predictions(classes(1.5, schema), classes(2.5, schema), rows)
    told = change.lines()
    assert all(line.isprintable() for line in told)
    assert told[0].startswith('"t\\u001b[2J": the prediction changes for 1 of 3 rows')
    page = treekit.compare(classes(1.5, schema), classes(2.5, schema), rows).to_html("<b>")
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


# ---------------------------------------------------------------- faces


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The files of two models of the demo's table."""
    folder = tmp_path_factory.mktemp("pair")
    for name, leaves in (("a", 4), ("b", 6)):
        model = treekit.train(demo_table(), DEMO_TARGET, max_leaves=leaves, seed=0)
        model.save(folder / f"{name}.treekit")
    return folder


def test_the_command_prints_the_text_of_python(pair):
    one, other = (treekit.load(pair / f"{name}.treekit") for name in "ab")
    words = ["diff", pair / "a.treekit", pair / "b.treekit", "--table", demo_table()]
    found = treekit.compare(one, other, demo_table(), by="age")
    assert call(*words, "--by", "age").stdout == f"{found}\n"
    printed = json.loads(call(*words, "--by", "age", "--json").stdout)
    assert printed == json.loads(found.to_json())
    assert (printed["before"], printed["after"]) == (hash_model(one), hash_model(other))
    changed = np.flatnonzero(predict(one, demo_table()) != predict(other, demo_table()))
    (target,) = printed["targets"]
    assert target["changed"] == changed.tolist()
    assert sorted(row for one in target["switches"] for row in one["rows"]) == changed.tolist()
    actual = pd.read_csv(demo_table())[DEMO_TARGET].to_numpy()
    assert target["scores"]["after"] == np.mean(predict(other, demo_table()) == actual)
    assert sum(group["rows"] for group in target["groups"]) == 368
    assert printed["trained_on"] == ["before", "after"]
    assert "model was trained on these rows; expect a lower score" in str(found)
    assert treekit.compare(one, other, pd.read_csv(demo_table())[:300]).trained_on == ()
    page = call(*words, "--by", "age", "--html", "-").stdout
    assert page == found.to_html()
    for change in found.rules.changes:
        assert change.describe(load_language()) in page
    assert page.count("<del>") == sum(m == "-" for c in found.rules.changes for m, _ in c.lines)
    said = call(*words[:3], "--by", "age", code=2).stderr
    assert "--by needs --table" in said


def test_a_long_list_of_changes_is_cut():
    models = [
        treekit.train(demo_table(), DEMO_TARGET, ensemble="forest", trees=5, seed=seed)
        for seed in (0, 1)
    ]
    found = treekit.compare(*models)
    n = len(found.rules.changes)
    assert str(found).splitlines()[-1] == f"and {n - 100:,} further changes of rules"
    assert len(found.to_dict()["rules"]["changes"]) == n
