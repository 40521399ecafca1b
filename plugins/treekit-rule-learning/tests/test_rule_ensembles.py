"""SIRUS and RuleFit: frequent or weighted rules of forests as short lists."""

from __future__ import annotations

import math

import numpy as np
import pytest
from treekit_rule_learning.candidates import (
    compute_indicators,
    extract_candidates,
    find_independent,
)
from treekit_rule_learning.frequent_paths import (
    compute_cut_points,
    compute_dice_index,
    count_paths,
    sirus,
)
from treekit_rule_learning.linear_models import (
    fit_nonnegative_ridge,
    fit_penalised,
    refit_weights,
    select_smallest_size,
)
from treekit_rule_learning.penalised_rules import rulefit
from treekit_rule_learning.report import compute_auc

import treekit
from tests.reference.short import adds, meets, table_of
from treekit.data.dataset import make_dataset
from treekit.data.schema import Column, Schema
from treekit.errors import DataError, ModelError, SettingError
from treekit.model import builder as build
from treekit.model.builder import (
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    oblique,
    subset,
    threshold,
)
from treekit.model.model import make_model
from treekit.rules import parse_rules
from treekit.rules.language import load_language
from treekit.testing import check_simplifier

# ---------------------------------------------------------------- sirus

HOSTILE = {"size": 'a "b"\nrule 9', "kind": "'; drop table t; --", "other": "<b>{{x}}</b>"}
NONE = np.zeros(3, dtype=np.bool_)


def concept(n: int = 240, seed: int = 0) -> dict[str, list]:
    """`yes` where the size is over 0 and the kind is not "c"; some sizes are missing."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n).round(2)
    kind = rng.choice(["a", "b", "c"], n)
    other = rng.normal(size=n).round(2)
    truth = np.where((size > 0) & (kind != "c"), "yes", "no")
    size[::17] = np.nan
    return {
        "size": size.tolist(), "kind": kind.tolist(), "other": other.tolist(),
        "truth": truth.tolist(), "price": (8.0 * (size > 0) + 3.0 * (kind == "c")).tolist(),
    }  # fmt: skip


def inputs(target: str = "truth", n: int = 240) -> dict[str, list]:
    return {name: own for name, own in concept(n).items() if name in (*HOSTILE, target)}


SCHEMA = Schema(
    (Column("size"), Column("kind", "nominal", ("a", "b", "c")), Column("other")),
    target="truth", classes=("no", "yes"),
)  # fmt: skip


def forest(*roots, **policies):
    return make_model(SCHEMA, [build_tree(root, SCHEMA) for root in roots], **policies)


def plain(at: float, deeper=None, missing: int = 1):
    """A tree that asks the size, and below its left side something else."""
    return threshold("size", float(np.float32(at)), deeper or leaf([3, 1]), leaf([1, 3]), missing)


def test_linearly_dependent_rules_are_left_out():
    rng = np.random.default_rng(3)
    for _ in range(30):
        met = rng.random((8, 40)) < 0.4
        met[3], met[5] = ~met[0], met[1] & met[2]
        met[6] = met[1] | met[2]  # met[1] + met[2] - met[5]
        kept = find_independent(met)
        columns = [np.ones(40)]
        wanted = []
        for number, own in enumerate(met):
            if np.linalg.matrix_rank(np.array([*columns, own])) > len(columns):
                columns.append(own.astype(float))
                wanted.append(number)
        assert kept.tolist() == wanted
        assert 3 not in kept
        assert 6 not in kept
        assert find_independent(met, 2).tolist() == wanted[:2]
    assert find_independent(np.ones((3, 10), dtype=bool)).size == 0


def test_thresholds_are_quantiles_of_the_table():
    rng = np.random.default_rng(1)
    x = rng.normal(size=97).round(1)
    table = {"x": x, "few": rng.integers(0, 3, 97), "one": np.ones(97), "y": x > 0}
    dataset = make_dataset(table, "y")
    cuts = compute_cut_points(dataset, 10)
    wanted = np.quantile(x.astype(np.float32), np.arange(1, 10) / 10, method="inverted_cdf")
    assert cuts.thresholds[0].tolist() == np.unique(wanted.astype(np.float64)).tolist()
    assert cuts.thresholds[1].tolist() == [0, 1]
    assert cuts.thresholds[2].tolist() == []


def test_paths_are_counted_once_per_tree_after_rounding_of_thresholds():
    values = [float(v) for v in range(10)]
    table = {"size": values, "kind": list("abcabcabca"), "other": values, "truth": ["no"] * 10}
    dataset = make_dataset(table, "truth", classes=("no", "yes"), dtype="float32")
    cuts = compute_cut_points(dataset, 5)
    assert cuts.thresholds[0].tolist() == [1, 3, 5, 7]
    inner = threshold("size", 3.5, leaf([3, 1]), leaf([1, 1]))
    model = forest(
        plain(3.2),
        plain(3.75, missing=0),
        plain(3.0, inner),
        threshold("size", 7.25, leaf([1, 1]), leaf([2, 3])),
    )
    found = count_paths(model, 2, cuts, ~NONE)
    said = [[(c.column, c.low, c.high, c.missing) for c in rule.conditions] for rule in found.rules]
    assert said == [
        [("size", -math.inf, 3.0, False)],
        [("size", 3.0, math.inf, False)],
        [("size", -math.inf, 7.0, False)],
        [("size", 7.0, math.inf, False)],
    ]
    assert found.frequency.tolist() == [0.75, 0.75, 0.25, 0.25]
    # Where a column has missing cells, where they go tells paths apart.
    apart = count_paths(model, 1, cuts, NONE)
    assert apart.frequency.tolist() == [0.5, 0.5, 0.25, 0.25, 0.25, 0.25]


def test_complement_of_a_selected_rule_is_not_selected():
    learned = sirus(concept(), model=forest(plain(0.0), plain(0.01), plain(1.0)), rules=10)
    asked = [rule.conditions[0] for rule in learned.rules if rule.conditions]
    assert len(asked) == 2
    assert learned.frequency.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert learned.n_rules == 2


def test_nodes_below_oblique_splits_are_not_candidates():
    mixed = oblique({"size": 1.0, "other": 2.0}, 0.5, leaf([1, 2]), leaf([2, 1]))
    model = forest(plain(0.0, mixed), mixed)
    assert len(extract_candidates(model, 3)) == 2
    with pytest.raises(DataError, match="no rules to choose from"):
        extract_candidates(forest(mixed), 3)
    with pytest.raises(DataError, match="no rules to choose from"):
        extract_candidates(forest(leaf([1, 2])), 3)


def test_rules_of_fractional_and_surrogate_models_use_their_primary_splits():
    asks = threshold("size", 0.5, leaf([3, 1]), leaf([1, 3]), 0, [Surrogate("other", at=1.0)])
    table = inputs()
    for model in (forest(asks, missing="surrogate"), forest(plain(0.5), missing="fractional")):
        learned = sirus(table, model=model, rules=1)
        (condition,) = learned.rules[0].conditions
        assert condition.column == "size"
        assert learned.rules.model().missing == "direction"
        assert 0 <= learned.fidelity <= 1


def test_bin_thresholds_apply_to_splits_and_surrogates():
    cuts = compute_cut_points(make_dataset(inputs(), "truth", dtype="float32"), 4)
    asks = threshold("size", 1.5, leaf([3, 1]), leaf([1, 3]), 0, [Surrogate("other", at=0.5)])
    (tree,) = cuts.decode_model(forest(asks, missing="surrogate")).trees
    assert tree.threshold[0] == cuts.thresholds[0][1]
    assert tree.surrogate_threshold.tolist() == [cuts.thresholds[2][0]]
    with pytest.raises(SettingError, match="the splitter makes oblique splits"):
        cuts.decode_model(
            forest(oblique({"size": 1.0, "other": 2.0}, 0.5, leaf([1, 2]), leaf([2, 1])))
        )


def test_rule_list_of_a_model_with_missing_error_refuses_missing_values():
    table = {name: own[1:17] for name, own in inputs().items()}
    learned = sirus(table, model=forest(plain(0.5), missing="error"), rules=1)
    assert learned.rules.model().missing == "error"
    assert not any(c.missing for rule in learned.rules for c in rule.conditions)


def test_rule_indicators_equal_their_conditions():
    model = forest(
        plain(0.25, subset("kind", ["a"], leaf([1, 2]), leaf([3, 1]), missing=0), missing=0),
        is_missing("size", leaf([1, 2]), threshold("other", -0.5, leaf([1, 1]), leaf([2, 1]))),
    )
    found = extract_candidates(model, 2)
    dataset = make_dataset(inputs(), "truth", dtype="float32")
    met = compute_indicators(found, dataset.to_matrix())
    for number, rule in enumerate(found):
        assert met[number].tolist() == [meets(rule, row) for row in table_of(inputs())]
    assert {0 < own.mean() < 1 for own in met} == {True}


@pytest.fixture(scope="module")
def drawn():
    return sirus(inputs(), "truth", rules=6, trees=60, seed=4)


def test_most_frequent_rules_test_the_columns_of_the_concept(drawn):
    first = [{c.column for c in rule.conditions} for rule in drawn.rules if rule.conditions]
    assert first[0] <= {"size", "kind"}
    assert drawn.n_rules == len(first) == len(drawn.frequency) <= 6
    assert (np.diff(drawn.frequency) <= 0).all()
    assert drawn.auc > 0.95
    assert drawn.fidelity > 0.8
    assert 0 <= drawn.stability <= 1
    assert math.isnan(drawn.fold_stability)


def test_sirus_selects_the_same_list_for_any_number_of_threads(drawn):
    again = sirus(inputs(), "truth", rules=6, trees=60, seed=4, n_jobs=2)
    assert str(again.rules) == str(drawn.rules)
    assert str(sirus(inputs(), "truth", rules=6, trees=60, seed=5).rules) != str(drawn.rules)


def test_probabilities_are_means_of_class_shares_inside_and_outside_rules(drawn):
    rows, truth = table_of(inputs()), np.array(inputs()["truth"])
    shares = drawn.rules.model().predict_proba(inputs())
    said = np.zeros((len(rows), drawn.rules.n_trees))
    for tree in range(drawn.rules.n_trees):
        who = np.array([adds(drawn.rules, row)[tree].leaf for row in rows])
        for side in (0, 1):
            said[who == side, tree] = (truth[who == side] == "yes").mean()
    assert shares[:, 1] == pytest.approx(said.mean(axis=1), abs=1e-6)
    assert drawn.accuracy == (drawn.rules.model().predict(inputs()) == truth).mean()


def test_sirus_list_is_a_model_with_equal_text(drawn, tmp_path):
    model = drawn.rules.model()
    read = parse_rules(str(model.rules()))
    matrix = make_dataset(inputs(), "truth").to_matrix()
    assert (read.sums(matrix) == drawn.rules.sums(matrix)).all()
    paths = [tmp_path / "list.py", tmp_path / "list.onnx"]
    for target, path in zip(("python", "onnx"), paths, strict=True):
        treekit.export(model, target, path)
    assert treekit.verify(model, paths).equal


def test_hostile_names_and_categories_are_escaped_by_sirus(tmp_path):
    table = {HOSTILE.get(name, name): own for name, own in inputs().items()}
    evil = 'c"\n# \\'
    table[HOSTILE["kind"]] = [evil if level == "c" else level for level in table[HOSTILE["kind"]]]
    learned = sirus(table, "truth", rules=3, trees=12, seed=1)
    model = learned.rules.model()
    assert {c.column for rule in learned.rules for c in rule.conditions} <= set(HOSTILE.values())
    read = parse_rules(str(learned.rules)).sums(make_dataset(table, "truth").to_matrix())
    assert (read == learned.rules.sums(make_dataset(table, "truth").to_matrix())).all()
    treekit.export(model, "python", tmp_path / "list.py")
    assert treekit.verify(model, [tmp_path / "list.py"]).equal


def test_regression_weights_are_not_negative():
    table = inputs("price")
    learned = sirus(table, "price", rules=6, trees=40, seed=2)
    model, rules = learned.rules.model(), learned.rules
    assert rules.combine == "sum"
    assert 1 <= learned.n_rules <= 6
    price = np.array(table["price"])
    rows = table_of(table)
    answers = [adds(rules, row) for row in rows]
    predicted = [sum(rule.value for rule in own) for own in answers]
    assert model.predict(table) == pytest.approx(predicted, abs=1e-9)
    assert learned.accuracy > 0.7
    for tree in range(1, rules.n_trees):
        inside = np.array([own[tree].leaf == 0 for own in answers])
        more, less = (rules.of_tree(tree)[side].value for side in (0, 1))
        means = price[inside].mean(), price[~inside].mean()
        assert more / means[0] == pytest.approx(less / means[1], rel=1e-6)
        assert more / means[0] > 0


def test_ridge_weights_equal_the_textbook_where_unconstrained():
    rng = np.random.default_rng(0)
    x = rng.random((200, 3))
    y = 2.0 + x @ [1.0, 0.5, 2.0] + rng.normal(0, 0.01, 200)
    weight = rng.integers(1, 4, 200).astype(float)
    start, slopes = fit_nonnegative_ridge(x, y, weight, np.arange(200) % 5)
    assert slopes == pytest.approx([1.0, 0.5, 2.0], abs=0.02)
    assert start == pytest.approx(2.0, abs=0.03)
    _, slopes = fit_nonnegative_ridge(x, -y, weight, np.arange(200) % 5)
    assert slopes.tolist() == [0, 0, 0]


def test_cross_validation_chooses_few_rules_of_equal_accuracy():
    learned = sirus(inputs(), "truth", rules=None, most=6, trees=30, seed=1)
    assert 1 <= learned.n_rules <= 6
    assert 0 <= learned.fold_stability <= 1
    assert select_smallest_size(np.array([[3.0, 1.0, 0.9], [3.2, 1.1, 1.1], [2.8, 1.2, 1.3]])) == 2
    given = sirus(inputs(), model=forest(plain(0.0), plain(0.5)), rules=None, most=4)
    assert given.n_rules in (1, 2)


def test_rules_below_the_minimum_frequency_are_omitted():
    model = forest(plain(0.0), plain(0.01), plain(1.0))
    assert sirus(concept(), model=model, above=0.5).n_rules == 1
    learned = sirus(concept(), model=model, above=0.9)
    assert learned.n_rules == 0
    assert learned.rules.model().predict(inputs()).tolist() == ["no"] * 240


def test_class_weights_are_included_in_the_shares():
    table = inputs()
    model = forest(plain(0.0), plain(1.0))
    usual, fair = (sirus(table, model=model, class_weight=w) for w in (None, "balanced"))
    shares = [own.rules.model().predict_proba(table)[:, 1].mean() for own in (usual, fair)]
    assert shares[0] < 0.4 < shares[1]


@pytest.mark.matrix
def test_several_targets_are_predicted_by_one_list():
    table = concept()
    table["big"] = [str(size > 1) for size in table["size"]]
    del table["price"]
    learned = sirus(table, ["truth", "big"], rules=3, trees=12, seed=0)
    shares = learned.rules.model().predict_proba(table)
    assert [own.shape for own in shares] == [(240, 2), (240, 2)]
    assert learned.accuracy > 0.6


def test_auc_equals_the_weighted_share_of_ordered_pairs():
    rng = np.random.default_rng(0)
    score, positive = rng.integers(0, 6, 50) / 5, rng.random(50) < 0.4
    weight = rng.integers(1, 4, 50).astype(float)
    won = total = 0.0
    for i in np.flatnonzero(positive):
        for j in np.flatnonzero(~positive):
            total += weight[i] * weight[j]
            won += weight[i] * weight[j] * ((score[i] > score[j]) + (score[i] == score[j]) / 2)
    assert compute_auc(score, positive, weight) == pytest.approx(won / total)


def test_stability_compares_lists_by_their_rules(drawn):
    bare = count_paths(forest(plain(0.0), plain(1.0)), 1, None, NONE).rules
    other = count_paths(forest(plain(0.0), plain(2.0)), 1, None, NONE).rules
    assert compute_dice_index(bare, bare) == 1
    assert compute_dice_index(bare, other) == 0.5
    assert drawn.rules.model().n_trees == drawn.n_rules


def test_summary_is_written_in_english_and_chinese(drawn):
    assert f"{drawn.n_rules} rules with {drawn.n_conditions} conditions" in str(drawn)
    chinese = "\n".join(drawn.lines(load_language("zh")))
    assert "条规则" in chinese
    assert f"{drawn.auc:.4f}" in chinese


def test_unsupported_models_and_settings_are_refused_by_sirus():
    model = forest(plain(0.0))
    a_list = forest(
        build.rule([Surrogate("size", 0.0, below=-1, above=1, lost=1)], leaf([3, 1]), leaf([1, 3]))
    )
    with pytest.raises(ModelError, match="a rule list already"):
        sirus(inputs(), model=a_list)
    with pytest.raises(SettingError, match="name the target column"):
        sirus(inputs())
    with pytest.raises(SettingError, match="the model predicts 'truth', not 'kind'"):
        sirus(inputs(), "kind", model=model)
    with pytest.raises(SettingError, match="min_gain is a setting of a new forest"):
        sirus(inputs(), model=model, min_gain=1.0)
    with pytest.raises(SettingError, match="nominal configures how to read a table"):
        sirus(inputs(), model=model, reading={"nominal": ["size"]})
    with pytest.raises(SettingError, match="rules is 0; expected an integer from 1"):
        sirus(inputs(), "truth", rules=0)
    with pytest.raises(SettingError, match="above is 1"):
        sirus(inputs(), "truth", above=1)


def test_summary_states_that_a_list_predicts_one_label_for_every_row():
    rows = concept()
    rare = {**rows, "truth": ["yes" if i % 10 == 0 else "no" for i in range(len(rows["truth"]))]}
    short = sirus(rare, "truth", rules=3, trees=20, seed=0)
    assert short.one_label
    assert any("one label for every row" in line for line in short.lines())
    assert not sirus(rows, "truth", rules=3, trees=20, seed=0).one_label


# ---------------------------------------------------------------- rulefit
# RuleFit: rules of forests with few weights, as lists whose answers are sums.

EVIL = ['x"; rm -rf', "{{7*7}}", "*/ //\\", "<script>"]


def rulefit_concept(n: int = 300, seed: int = 0) -> dict[str, list]:
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


def rulefit_inputs(target: str) -> dict[str, list]:
    return {
        name: own for name, own in rulefit_concept().items() if name in ("a", "b", "kind", target)
    }


@pytest.fixture(scope="module")
def lists():
    return {
        target: rulefit(rulefit_inputs(target), target, rules=6, trees=30, seed=3)
        for target in ("price", "two", "truth")
    }


@pytest.mark.parametrize("target", ["price", "two", "truth"])
def test_rulefit_prediction_is_the_intercept_plus_weights_of_matching_rules(lists, target):
    learned = lists[target]
    rules, table = learned.rules, rulefit_inputs(target)
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


def test_rulefit_finds_concepts_with_at_most_the_requested_rules(lists):
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
def test_a_rulefit_list_is_a_model_with_equal_text(lists, target, tmp_path):
    model = lists[target].rules.model()
    matrix = make_dataset(rulefit_inputs(target), target).to_matrix()
    again = parse_rules(str(lists[target].rules)).sums(matrix)
    assert (again == lists[target].rules.sums(matrix)).all()
    paths = [tmp_path / "list.py", tmp_path / "list.onnx"]
    for form, path in zip(("python", "onnx"), paths, strict=True):
        treekit.export(model, form, path)
    assert treekit.verify(model, paths).equal


def test_the_same_seed_gives_the_same_list_on_any_number_of_threads(lists):
    again = rulefit(rulefit_inputs("two"), "two", rules=6, trees=30, seed=3, n_jobs=2)
    assert str(again.rules) == str(lists["two"].rules)


def indicators_of(rng, n: int, m: int):
    met = rng.random((m, n)) < rng.uniform(0.1, 0.6, (m, 1))
    return met, rng.integers(1, 4, n).astype(float)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_rulefit_weights_satisfy_the_karush_kuhn_tucker_conditions(classes):
    """The conditions of Karush, Kuhn and Tucker, computed from the definition."""
    rng = np.random.default_rng(classes)
    met, weight = indicators_of(rng, 400, 30)
    told = met[:4].T @ np.array([2.0, -1.5, 1.0, 1.0]) + rng.normal(0, 0.5, 400)
    if classes:
        label = np.digitize(told, [0.5, 2.0][: classes - 1])
        wanted = np.eye(classes)[label]
    else:
        wanted = told[:, None]
    found = fit_penalised(met, wanted, weight, 5, classes=bool(classes))
    assert 3 <= len(found.used_rules) <= 5
    assert set(found.used_rules.tolist()) >= {0, 1}
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


def test_weights_without_penalty_equal_least_squares():
    rng = np.random.default_rng(5)
    met, weight = indicators_of(rng, 300, 3)
    wanted = (3.0 + met.T @ [1.0, -2.0, 0.5])[:, None]
    found = refit_weights(met, wanted, weight, classes=False)
    assert found.slope[:, 0] == pytest.approx([1.0, -2.0, 0.5], abs=0.01)
    assert found.intercept == pytest.approx([3.0], abs=0.01)


def test_refitted_class_weights_reproduce_the_class_shares():
    met = np.repeat([[True, False]], 50, axis=0).reshape(1, -1)
    wanted = np.where(met.T, [[0.2, 0.8]], [[0.7, 0.3]])
    found = refit_weights(met, wanted, np.ones(100), classes=True)
    odds = found.intercept[1] + np.array([1, 0]) * found.slope[0, 1]
    assert 1 / (1 + np.exp(-odds)) == pytest.approx([0.8, 0.3], abs=0.005)
    assert found.slope[0, 0] == found.intercept[0] == 0
    alone = refit_weights(met, np.eye(3)[np.ones(100, int)], np.ones(100), classes=True)
    assert alone.intercept.argmax() == 1
    assert not alone.slope.any()


def given_forest():
    dataset = make_dataset(rulefit_inputs("two"), "two", dtype="float32")
    at = float(np.float32(0.3))
    roots = [
        threshold("a", at, leaf([9, 1]), subset("kind", ["r"], leaf([8, 1]), leaf([1, 9])), 0),
        subset("kind", ["p"], leaf([1, 1]), threshold("b", 0.5, leaf([5, 1]), leaf([1, 2]), 0)),
    ]
    trees = [build_tree(root, dataset.schema) for root in roots]
    return make_model(dataset.schema, trees)


def test_rules_keep_the_missing_branches_and_columns_of_their_model():
    learned = rulefit(rulefit_inputs("two"), model=given_forest(), rules=3)
    on_a = [c for rule in learned.rules for c in rule.conditions if c.column == "a"]
    assert on_a
    assert all(c.missing == (c.high < math.inf) for c in on_a)
    assert learned.rules.schema == given_forest().schema
    assert learned.accuracy > 0.9


def test_weights_fitted_to_the_model_approximate_it_better():
    model = given_forest()
    theirs = model.predict_proba(rulefit_inputs("two"))[:, 1]
    off = {}
    for to in ("target", "model"):
        learned = rulefit(rulefit_inputs("two"), model=model, rules=3, to=to)
        ours = learned.rules.model().predict_proba(rulefit_inputs("two"))[:, 1]
        off[to] = np.abs(ours - theirs).mean()
        assert (
            learned.accuracy_of_model
            == (model.predict(rulefit_inputs("two")) == rulefit_inputs("two")["two"]).mean()
        )
    assert off["model"] < 0.5 * off["target"]


@pytest.mark.matrix
def test_error_does_not_grow_with_the_number_of_rules_with_or_without_refit():
    errors = []
    for most in (1, 3, 8):
        learned = rulefit(rulefit_inputs("price"), "price", rules=most, trees=30, seed=3)
        errors.append(1 - learned.accuracy)
        assert learned.n_rules <= most
    assert errors == sorted(errors, reverse=True)
    drawn_in = rulefit(rulefit_inputs("price"), "price", rules=3, trees=30, seed=3, refit=False)
    assert drawn_in.n_rules <= 3
    assert 1 - drawn_in.accuracy >= errors[1]


def test_reported_accuracy_is_of_the_test_table(lists):
    table = {name: own[:40] for name, own in rulefit_inputs("two").items()}
    learned = rulefit(rulefit_inputs("two"), "two", rules=6, trees=30, seed=3, test=table)
    said = learned.rules.model().predict(table)
    assert str(learned.rules) == str(lists["two"].rules)
    assert learned.accuracy == (said == np.array(table["two"])).mean()


def test_hostile_names_and_categories_are_escaped_by_rulefit(tmp_path):
    table = rulefit_inputs("two")
    names = dict(zip(table, EVIL, strict=True))
    table = {names[name]: own for name, own in table.items()}
    table[names["kind"]] = [f'"{level}\n#' for level in table[names["kind"]]]
    learned = rulefit(table, names["two"], rules=4, trees=10, seed=0)
    asked = {c.column for rule in learned.rules for c in rule.conditions}
    assert asked <= set(EVIL)
    treekit.export(learned.rules.model(), "python", tmp_path / "list.py")
    assert treekit.verify(learned.rules.model(), [tmp_path / "list.py"]).equal
    assert len(adds(learned.rules, table_of(table)[0])) == learned.rules.n_trees


def test_invalid_settings_and_targets_are_refused_by_rulefit():
    with pytest.raises(SettingError, match="to is 'truth'"):
        rulefit(rulefit_inputs("two"), "two", to="truth")
    with pytest.raises(SettingError, match="candidates is 0"):
        rulefit(rulefit_inputs("two"), "two", candidates=0)
    with pytest.raises(SettingError, match="max_bins is a setting of a new forest"):
        rulefit(rulefit_inputs("two"), model=given_forest(), max_bins=9)
    with pytest.raises(DataError, match="a single target"):
        rulefit(
            {**rulefit_inputs("two"), "three": rulefit_concept()["truth"]},
            ["two", "three"],
            trees=3,
        )


@pytest.mark.parametrize("method", ["sirus", "rulefit"])
def test_simplifiers_pass_the_contract_checks(method):
    check_simplifier(method)
