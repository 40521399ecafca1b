"""RuleFit: rules of forests with few weights, as lists whose answers are sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

import treekit
from tests.reference.short import adds, meets, table_of
from treekit.data.dataset import make_dataset
from treekit.errors import DataError, SettingError
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import make_model
from treekit.rule_learning.linear_models import penalised, refitted
from treekit.rule_learning.rulefit import rulefit
from treekit.rules import parse_rules

EVIL = ['x"; rm -rf', "{{7*7}}", "*/ //\\", "<script>"]


def concept(n: int = 300, seed: int = 0) -> dict[str, list]:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n)).round(2)
    kind = rng.choice(["p", "q", "r"], n)
    price = 5.0 * (a > 0.3) - 4.0 * (kind == "r") + 2.0
    truth = np.where((a > 0.3) & (kind != "r"), "yes", np.where(b > 1.2, "maybe", "no"))
    a[::13] = np.nan
    return {
        "a": a.tolist(), "b": b.tolist(), "kind": kind.tolist(),
        "price": price.tolist(), "truth": truth.tolist(),
        "two": np.where(truth == "yes", "yes", "no").tolist(),
    }  # fmt: skip


def inputs(target: str) -> dict[str, list]:
    return {name: own for name, own in concept().items() if name in ("a", "b", "kind", target)}


@pytest.fixture(scope="module")
def lists():
    return {
        target: rulefit(inputs(target), target, rules=6, trees=30, seed=3)
        for target in ("price", "two", "truth")
    }


@pytest.mark.parametrize("target", ["price", "two", "truth"])
def test_an_answer_is_the_intercept_and_the_weights_of_the_rules_that_are_met(lists, target):
    learned = lists[target]
    rules, table = learned.rules, inputs(target)
    always = rules[0]
    assert not always.conditions
    said = []
    for row in table_of(table):
        total = np.array(always.answers[0].margins or [always.value])
        for tree in range(1, rules.n_trees):
            rule, otherwise = rules.of_tree(tree)
            assert not any(otherwise.units)
            if meets(rule, row):
                total = total + np.array(rule.answers[0].margins or [rule.value])
        said.append(total)
    said = np.array(said)
    if target == "price":
        assert rules.model().predict(table) == pytest.approx(said[:, 0], abs=1e-9)
        return
    shares = np.exp(said) / np.exp(said).sum(axis=1, keepdims=True)
    assert rules.model().predict_proba(table) == pytest.approx(shares, abs=1e-9)


def test_concepts_are_found_with_no_more_rules_than_asked_for(lists):
    for learned in lists.values():
        assert 2 <= learned.n_rules <= 6
        assert learned.rules.n_trees == learned.n_rules + 1
        assert learned.accuracy > 0.85
    assert {c.column for rule in lists["price"].rules for c in rule.conditions} >= {"a", "kind"}
    assert lists["two"].auc > 0.98
    assert math.isnan(lists["two"].stability)


@pytest.mark.parametrize(
    "target", ["price", pytest.param("two", marks=pytest.mark.matrix), "truth"]
)
def test_a_list_is_a_model_and_its_text_says_the_same(lists, target, tmp_path):
    model = lists[target].rules.model()
    matrix = make_dataset(inputs(target), target).matrix()
    again = parse_rules(str(lists[target].rules)).sums(matrix)
    assert (again == lists[target].rules.sums(matrix)).all()
    paths = [tmp_path / "list.py", tmp_path / "list.onnx"]
    for form, path in zip(("python", "onnx"), paths, strict=True):
        treekit.export(model, form, path)
    assert treekit.verify(model, paths).equal


def test_the_same_seed_gives_the_same_list_on_any_number_of_threads(lists):
    again = rulefit(inputs("two"), "two", rules=6, trees=30, seed=3, n_jobs=2)
    assert str(again.rules) == str(lists["two"].rules)


def indicators_of(rng, n: int, m: int):
    met = rng.random((m, n)) < rng.uniform(0.1, 0.6, (m, 1))
    return met, rng.integers(1, 4, n).astype(float)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_no_rule_without_a_weight_would_lessen_the_error_by_more_than_the_penalty(classes):
    """The conditions of Karush, Kuhn and Tucker, computed from the definition."""
    rng = np.random.default_rng(classes)
    met, weight = indicators_of(rng, 400, 30)
    told = met[:4].T @ np.array([2.0, -1.5, 1.0, 1.0]) + rng.normal(0, 0.5, 400)
    if classes:
        label = np.digitize(told, [0.5, 2.0][: classes - 1])
        wanted = np.eye(classes)[label]
    else:
        wanted = told[:, None]
    found = penalised(met, wanted, weight, 5, classes=bool(classes))
    assert 3 <= len(found.used) <= 5
    assert set(found.used.tolist()) >= {0, 1}
    own = weight / weight.sum()
    x = met.astype(float)
    x = ((x.T - x @ own) / np.sqrt((x @ own) * (1 - x @ own))).T
    said = found.intercept + met.T @ found.slope
    if classes:
        said = np.exp(said) / np.exp(said).sum(axis=1, keepdims=True)
    gradient = x @ (own[:, None] * (wanted - said))
    slopes, gradient = (found.slope[:, -1:], gradient[:, -1:]) if classes == 2 else (
        found.slope, gradient,
    )  # fmt: skip
    penalty = np.abs(gradient[slopes != 0]).min()
    assert np.abs(gradient).max() <= penalty * 1.02
    assert (np.sign(gradient) == np.sign(slopes))[slopes != 0].all()
    assert (own @ (wanted - said)) == pytest.approx(np.zeros(wanted.shape[1]), abs=2e-3)


def test_weights_without_the_penalty_are_those_of_least_squares():
    rng = np.random.default_rng(5)
    met, weight = indicators_of(rng, 300, 3)
    wanted = (3.0 + met.T @ [1.0, -2.0, 0.5])[:, None]
    found = refitted(met, wanted, weight, classes=False)
    assert found.slope[:, 0] == pytest.approx([1.0, -2.0, 0.5], abs=0.01)
    assert found.intercept == pytest.approx([3.0], abs=0.01)


def test_weights_of_shares_give_these_shares():
    met = np.repeat([[True, False]], 50, axis=0).reshape(1, -1)
    wanted = np.where(met.T, [[0.2, 0.8]], [[0.7, 0.3]])
    found = refitted(met, wanted, np.ones(100), classes=True)
    odds = found.intercept[1] + np.array([1, 0]) * found.slope[0, 1]
    assert 1 / (1 + np.exp(-odds)) == pytest.approx([0.8, 0.3], abs=0.005)
    assert found.slope[0, 0] == found.intercept[0] == 0
    alone = refitted(met, np.eye(3)[np.ones(100, int)], np.ones(100), classes=True)
    assert alone.intercept.argmax() == 1
    assert not alone.slope.any()


def given_forest():
    dataset = make_dataset(inputs("two"), "two", dtype="float32")
    at = float(np.float32(0.3))
    roots = [
        threshold("a", at, leaf([9, 1]), subset("kind", ["r"], leaf([8, 1]), leaf([1, 9])), 0),
        subset("kind", ["p"], leaf([1, 1]), threshold("b", 0.5, leaf([5, 1]), leaf([1, 2]), 0)),
    ]
    trees = [build_tree(root, dataset.schema) for root in roots]
    return make_model(dataset.schema, trees)


def test_rules_of_a_model_keep_its_missing_sides_and_its_columns():
    learned = rulefit(inputs("two"), model=given_forest(), rules=3)
    on_a = [c for rule in learned.rules for c in rule.conditions if c.column == "a"]
    assert on_a
    assert all(c.missing == (c.high < math.inf) for c in on_a)
    assert learned.rules.schema == given_forest().schema
    assert learned.accuracy > 0.9


def test_weights_fitted_to_the_model_are_nearer_to_it():
    model = given_forest()
    theirs = model.predict_proba(inputs("two"))[:, 1]
    off = {}
    for to in ("target", "model"):
        learned = rulefit(inputs("two"), model=model, rules=3, to=to)
        ours = learned.rules.model().predict_proba(inputs("two"))[:, 1]
        off[to] = np.abs(ours - theirs).mean()
        assert (
            learned.accuracy_of_model
            == (model.predict(inputs("two")) == inputs("two")["two"]).mean()
        )
    assert off["model"] < 0.5 * off["target"]


@pytest.mark.matrix
def test_more_rules_are_no_worse_and_the_penalty_can_stay():
    errors = []
    for most in (1, 3, 8):
        learned = rulefit(inputs("price"), "price", rules=most, trees=30, seed=3)
        errors.append(1 - learned.accuracy)
        assert learned.n_rules <= most
    assert errors == sorted(errors, reverse=True)
    drawn_in = rulefit(inputs("price"), "price", rules=3, trees=30, seed=3, refit=False)
    assert drawn_in.n_rules <= 3
    assert 1 - drawn_in.accuracy >= errors[1]


def test_a_table_apart_is_what_the_report_is_about(lists):
    table = {name: own[:40] for name, own in inputs("two").items()}
    learned = rulefit(inputs("two"), "two", rules=6, trees=30, seed=3, test=table)
    said = learned.rules.model().predict(table)
    assert str(learned.rules) == str(lists["two"].rules)
    assert learned.accuracy == (said == np.array(table["two"])).mean()


def test_hostile_names_and_levels_stay_names(tmp_path):
    table = inputs("two")
    names = dict(zip(table, EVIL, strict=True))
    table = {names[name]: own for name, own in table.items()}
    table[names["kind"]] = [f'"{level}\n#' for level in table[names["kind"]]]
    learned = rulefit(table, names["two"], rules=4, trees=10, seed=0)
    asked = {c.column for rule in learned.rules for c in rule.conditions}
    assert asked <= set(EVIL)
    treekit.export(learned.rules.model(), "python", tmp_path / "list.py")
    assert treekit.verify(learned.rules.model(), [tmp_path / "list.py"]).equal
    assert len(adds(learned.rules, table_of(table)[0])) == learned.rules.n_trees


def test_what_cannot_be_weighed_is_refused_by_name():
    with pytest.raises(SettingError, match="to is 'truth'"):
        rulefit(inputs("two"), "two", to="truth")
    with pytest.raises(SettingError, match="candidates is 0"):
        rulefit(inputs("two"), "two", candidates=0)
    with pytest.raises(SettingError, match="max_bins is a setting of a new forest"):
        rulefit(inputs("two"), model=given_forest(), max_bins=9)
    with pytest.raises(DataError, match="one target"):
        rulefit({**inputs("two"), "three": concept()["truth"]}, ["two", "three"], trees=3)
