"""SIRUS: frequent paths of forests whose cuts are quantiles, as short lists."""

from __future__ import annotations

import math

import numpy as np
import pytest

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
from treekit.rule_learning.candidates import candidate_rules, independent, indicators
from treekit.rule_learning.linear_models import fewest, nonnegative_ridge
from treekit.rule_learning.report import auc
from treekit.rule_learning.sirus import cuts_of, dice, frequent_rules, sirus
from treekit.rules import parse_rules
from treekit.rules.language import language

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


def test_rules_that_others_make_up_are_left_out_as_the_rank_says():
    rng = np.random.default_rng(3)
    for _ in range(30):
        met = rng.random((8, 40)) < 0.4
        met[3], met[5] = ~met[0], met[1] & met[2]
        met[6] = met[1] | met[2]  # met[1] + met[2] - met[5]
        kept = independent(met)
        columns = [np.ones(40)]
        wanted = []
        for number, own in enumerate(met):
            if np.linalg.matrix_rank(np.array([*columns, own])) > len(columns):
                columns.append(own.astype(float))
                wanted.append(number)
        assert kept.tolist() == wanted
        assert 3 not in kept
        assert 6 not in kept
        assert independent(met, 2).tolist() == wanted[:2]
    assert independent(np.ones((3, 10), dtype=bool)).size == 0


def test_cuts_are_values_of_the_table_at_its_quantiles():
    rng = np.random.default_rng(1)
    x = rng.normal(size=97).round(1)
    table = {"x": x, "few": rng.integers(0, 3, 97), "one": np.ones(97), "y": x > 0}
    dataset = make_dataset(table, "y")
    cuts = cuts_of(dataset, 10)
    wanted = np.quantile(x.astype(np.float32), np.arange(1, 10) / 10, method="inverted_cdf")
    assert cuts.at[0].tolist() == np.unique(wanted.astype(np.float64)).tolist()
    assert cuts.at[1].tolist() == [0, 1]
    assert cuts.at[2].tolist() == []


def test_paths_are_counted_once_a_tree_after_their_bounds_are_moved():
    values = [float(v) for v in range(10)]
    table = {"size": values, "kind": list("abcabcabca"), "other": values, "truth": ["no"] * 10}
    dataset = make_dataset(table, "truth", classes=("no", "yes"), dtype="float32")
    cuts = cuts_of(dataset, 5)
    assert cuts.at[0].tolist() == [1, 3, 5, 7]
    inner = threshold("size", 3.5, leaf([3, 1]), leaf([1, 1]))
    model = forest(
        plain(3.2),
        plain(3.75, missing=0),
        plain(3.0, inner),
        threshold("size", 7.25, leaf([1, 1]), leaf([2, 3])),
    )
    found = frequent_rules(model, 2, cuts, ~NONE)
    said = [[(c.column, c.low, c.high, c.missing) for c in rule.conditions] for rule in found.rules]
    assert said == [
        [("size", -math.inf, 3.0, False)],
        [("size", 3.0, math.inf, False)],
        [("size", -math.inf, 7.0, False)],
        [("size", 7.0, math.inf, False)],
    ]
    assert found.frequency.tolist() == [0.75, 0.75, 0.25, 0.25]
    # Where a column has missing cells, where they go tells paths apart.
    apart = frequent_rules(model, 1, cuts, NONE)
    assert apart.frequency.tolist() == [0.5, 0.5, 0.25, 0.25, 0.25, 0.25]


def test_the_opposite_of_a_rule_is_not_drawn_beside_it():
    learned = sirus(concept(), model=forest(plain(0.0), plain(0.01), plain(1.0)), rules=10)
    asked = [rule.conditions[0] for rule in learned.rules if rule.conditions]
    assert len(asked) == 2
    assert learned.frequency.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert learned.n_rules == 2


def test_nodes_below_sums_of_columns_are_no_candidates():
    mixed = oblique({"size": 1.0, "other": 2.0}, 0.5, leaf([1, 2]), leaf([2, 1]))
    model = forest(plain(0.0, mixed), mixed)
    assert len(candidate_rules(model, 3)) == 2
    with pytest.raises(DataError, match="no rules to choose from"):
        candidate_rules(forest(mixed), 3)
    with pytest.raises(DataError, match="no rules to choose from"):
        candidate_rules(forest(leaf([1, 2])), 3)


def test_models_that_divide_rows_or_ask_stand_ins_give_their_own_splits():
    asks = threshold("size", 0.5, leaf([3, 1]), leaf([1, 3]), 0, [Surrogate("other", at=1.0)])
    table = inputs()
    for model in (forest(asks, missing="surrogate"), forest(plain(0.5), missing="fractional")):
        learned = sirus(table, model=model, rules=1)
        (condition,) = learned.rules[0].conditions
        assert condition.column == "size"
        assert learned.rules.model().missing == "direction"
        assert 0 <= learned.fidelity <= 1


def test_thresholds_of_coded_rows_are_cuts_of_the_rows_also_in_surrogates():
    cuts = cuts_of(make_dataset(inputs(), "truth", dtype="float32"), 4)
    asks = threshold("size", 1.5, leaf([3, 1]), leaf([1, 3]), 0, [Surrogate("other", at=0.5)])
    (tree,) = cuts.decoded(forest(asks, missing="surrogate")).trees
    assert tree.threshold[0] == cuts.at[0][1]
    assert tree.surrogate_threshold.tolist() == [cuts.at[2][0]]
    with pytest.raises(SettingError, match="the splitter adds columns up"):
        cuts.decoded(forest(oblique({"size": 1.0, "other": 2.0}, 0.5, leaf([1, 2]), leaf([2, 1]))))


def test_a_model_that_refuses_missing_values_gives_a_list_that_does():
    table = {name: own[1:17] for name, own in inputs().items()}
    learned = sirus(table, model=forest(plain(0.5), missing="error"), rules=1)
    assert learned.rules.model().missing == "error"
    assert not any(c.missing for rule in learned.rules for c in rule.conditions)


def test_indicators_are_what_the_conditions_say():
    model = forest(
        plain(0.25, subset("kind", ["a"], leaf([1, 2]), leaf([3, 1]), missing=0), missing=0),
        is_missing("size", leaf([1, 2]), threshold("other", -0.5, leaf([1, 1]), leaf([2, 1]))),
    )
    found = candidate_rules(model, 2)
    dataset = make_dataset(inputs(), "truth", dtype="float32")
    met = indicators(found, dataset.matrix())
    for number, rule in enumerate(found):
        assert met[number].tolist() == [meets(rule, row) for row in table_of(inputs())]
    assert {0 < own.mean() < 1 for own in met} == {True}


@pytest.fixture(scope="module")
def drawn():
    return sirus(inputs(), "truth", rules=6, trees=60, seed=4)


def test_the_concept_is_what_most_trees_ask(drawn):
    first = [{c.column for c in rule.conditions} for rule in drawn.rules if rule.conditions]
    assert first[0] <= {"size", "kind"}
    assert drawn.n_rules == len(first) == len(drawn.frequency) <= 6
    assert (np.diff(drawn.frequency) <= 0).all()
    assert drawn.auc > 0.95
    assert drawn.fidelity > 0.8
    assert 0 <= drawn.stability <= 1
    assert math.isnan(drawn.fold_stability)


def test_the_same_seed_draws_the_same_list_on_any_number_of_threads(drawn):
    again = sirus(inputs(), "truth", rules=6, trees=60, seed=4, n_jobs=2)
    assert str(again.rules) == str(drawn.rules)
    assert str(sirus(inputs(), "truth", rules=6, trees=60, seed=5).rules) != str(drawn.rules)


def test_classes_get_the_mean_of_the_shares_of_rows_that_meet_rules_or_do_not(drawn):
    rows, truth = table_of(inputs()), np.array(inputs()["truth"])
    shares = drawn.rules.model().predict_proba(inputs())
    said = np.zeros((len(rows), drawn.rules.n_trees))
    for tree in range(drawn.rules.n_trees):
        who = np.array([adds(drawn.rules, row)[tree].leaf for row in rows])
        for side in (0, 1):
            said[who == side, tree] = (truth[who == side] == "yes").mean()
    assert shares[:, 1] == pytest.approx(said.mean(axis=1), abs=1e-6)
    assert drawn.accuracy == (drawn.rules.model().predict(inputs()) == truth).mean()


def test_a_list_is_a_model_and_its_text_says_the_same(drawn, tmp_path):
    model = drawn.rules.model()
    read = parse_rules(str(model.rules()))
    matrix = make_dataset(inputs(), "truth").matrix()
    assert (read.sums(matrix) == drawn.rules.sums(matrix)).all()
    paths = [tmp_path / "list.py", tmp_path / "list.onnx"]
    for target, path in zip(("python", "onnx"), paths, strict=True):
        treekit.export(model, target, path)
    assert treekit.verify(model, paths).equal


def test_hostile_names_and_levels_stay_names(tmp_path):
    table = {HOSTILE.get(name, name): own for name, own in inputs().items()}
    evil = 'c"\n# \\'
    table[HOSTILE["kind"]] = [evil if level == "c" else level for level in table[HOSTILE["kind"]]]
    learned = sirus(table, "truth", rules=3, trees=12, seed=1)
    model = learned.rules.model()
    assert {c.column for rule in learned.rules for c in rule.conditions} <= set(HOSTILE.values())
    read = parse_rules(str(learned.rules)).sums(make_dataset(table, "truth").matrix())
    assert (read == learned.rules.sums(make_dataset(table, "truth").matrix())).all()
    treekit.export(model, "python", tmp_path / "list.py")
    assert treekit.verify(model, [tmp_path / "list.py"]).equal


def test_numbers_are_added_with_weights_that_are_not_negative():
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


def test_the_ridge_of_weights_that_are_free_is_the_textbooks():
    rng = np.random.default_rng(0)
    x = rng.random((200, 3))
    y = 2.0 + x @ [1.0, 0.5, 2.0] + rng.normal(0, 0.01, 200)
    weight = rng.integers(1, 4, 200).astype(float)
    start, slopes = nonnegative_ridge(x, y, weight, np.arange(200) % 5)
    assert slopes == pytest.approx([1.0, 0.5, 2.0], abs=0.02)
    assert start == pytest.approx(2.0, abs=0.03)
    _, slopes = nonnegative_ridge(x, -y, weight, np.arange(200) % 5)
    assert slopes.tolist() == [0, 0, 0]


def test_cross_validation_chooses_few_rules_that_do_as_well():
    learned = sirus(inputs(), "truth", rules=None, most=6, trees=30, seed=1)
    assert 1 <= learned.n_rules <= 6
    assert 0 <= learned.fold_stability <= 1
    assert fewest(np.array([[3.0, 1.0, 0.9], [3.2, 1.1, 1.1], [2.8, 1.2, 1.3]])) == 2
    given = sirus(inputs(), model=forest(plain(0.0), plain(0.5)), rules=None, most=4)
    assert given.n_rules in (1, 2)


def test_rules_below_a_frequency_are_left_out():
    model = forest(plain(0.0), plain(0.01), plain(1.0))
    assert sirus(concept(), model=model, above=0.5).n_rules == 1
    learned = sirus(concept(), model=model, above=0.9)
    assert learned.n_rules == 0
    assert learned.rules.model().predict(inputs()).tolist() == ["no"] * 240


def test_class_weights_are_in_the_shares():
    table = inputs()
    model = forest(plain(0.0), plain(1.0))
    usual, fair = (sirus(table, model=model, class_weight=w) for w in (None, "balanced"))
    shares = [own.rules.model().predict_proba(table)[:, 1].mean() for own in (usual, fair)]
    assert shares[0] < 0.4 < shares[1]


@pytest.mark.matrix
def test_several_targets_are_answered_together():
    table = concept()
    table["big"] = [str(size > 1) for size in table["size"]]
    del table["price"]
    learned = sirus(table, ["truth", "big"], rules=3, trees=12, seed=0)
    shares = learned.rules.model().predict_proba(table)
    assert [own.shape for own in shares] == [(240, 2), (240, 2)]
    assert learned.accuracy > 0.6


def test_the_area_under_the_curve_counts_pairs():
    rng = np.random.default_rng(0)
    score, positive = rng.integers(0, 6, 50) / 5, rng.random(50) < 0.4
    weight = rng.integers(1, 4, 50).astype(float)
    won = total = 0.0
    for i in np.flatnonzero(positive):
        for j in np.flatnonzero(~positive):
            total += weight[i] * weight[j]
            won += weight[i] * weight[j] * ((score[i] > score[j]) + (score[i] == score[j]) / 2)
    assert auc(score, positive, weight) == pytest.approx(won / total)


def test_lists_are_compared_by_their_rules(drawn):
    bare = frequent_rules(forest(plain(0.0), plain(1.0)), 1, None, NONE).rules
    other = frequent_rules(forest(plain(0.0), plain(2.0)), 1, None, NONE).rules
    assert dice(bare, bare) == 1
    assert dice(bare, other) == 0.5
    assert drawn.rules.model().n_trees == drawn.n_rules


def test_the_summary_is_written_in_the_readers_language(drawn):
    assert f"{drawn.n_rules} rules with {drawn.n_conditions} conditions" in str(drawn)
    chinese = "\n".join(drawn.lines(language("zh")))
    assert "条规则" in chinese
    assert f"{drawn.auc:.4f}" in chinese


def test_what_cannot_be_drawn_is_refused_by_name():
    model = forest(plain(0.0))
    a_list = forest(
        build.rule([Surrogate("size", 0.0, below=-1, above=1, lost=1)], leaf([3, 1]), leaf([1, 3]))
    )
    with pytest.raises(ModelError, match="a list of rules already"):
        sirus(inputs(), model=a_list)
    with pytest.raises(SettingError, match="name the target column"):
        sirus(inputs())
    with pytest.raises(SettingError, match="the model predicts 'truth', not 'kind'"):
        sirus(inputs(), "kind", model=model)
    with pytest.raises(SettingError, match="min_gain is a setting of a new forest"):
        sirus(inputs(), model=model, min_gain=1.0)
    with pytest.raises(SettingError, match="nominal says how to read a table"):
        sirus(inputs(), model=model, reading={"nominal": ["size"]})
    with pytest.raises(SettingError, match="rules is 0; give a whole number from 1"):
        sirus(inputs(), "truth", rules=0)
    with pytest.raises(SettingError, match="above is 1"):
        sirus(inputs(), "truth", above=1)


def test_a_list_that_says_one_label_of_every_row_says_so():
    rows = concept()
    rare = {**rows, "truth": ["yes" if i % 10 == 0 else "no" for i in range(len(rows["truth"]))]}
    short = treekit.sirus(rare, "truth", rules=3, trees=20, seed=0)
    assert short.one_label
    assert any("same label of every row" in line for line in short.lines())
    assert not treekit.sirus(rows, "truth", rules=3, trees=20, seed=0).one_label
