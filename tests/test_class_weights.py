"""Class weights and priors: what they are worth in rows, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

import treekit
from tests.test_training import noisy, same_tree
from treekit import DecisionTreeClassifier, SettingError
from treekit.data.dataset import make_dataset
from treekit.model.validation import MAX_COST
from treekit.training import fit
from treekit.training.class_weights import read_named, read_pairs, whole_costs, written


def trained(table=None, **settings):
    return treekit.train(table or noisy(), "y", seed=0, **settings)


UNBOUND = {"min_weight_split": 0.0, "min_weight_leaf": 0.0}


def same_splits(a, b):
    """Trees of the same weights up to their unit."""
    for name in ("kind", "feature", "threshold", "first_child", "missing", "level_branch"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    unit = a.weight[0] / b.weight[0]
    np.testing.assert_allclose(a.weight, b.weight * unit, rtol=1e-9)
    np.testing.assert_allclose(a.value, b.value * unit, rtol=1e-9, atol=1e-9)


def root(model):
    return dict(zip(model.schema.classes, model.trees[0].value[0].tolist(), strict=True))


def test_a_whole_class_weight_is_worth_as_many_copies_of_the_rows():
    table = noisy()
    rows = np.repeat(np.arange(240), np.where(np.array(table["y"]) == "yes", 2, 1))
    copies = {name: [cells[row] for row in rows] for name, cells in table.items()}
    weighed = trained(table, class_weight="yes=2", **UNBOUND)
    same_splits(weighed.trees[0], trained(copies, **UNBOUND).trees[0])


def test_class_weights_multiply_the_rows_own_and_keep_their_sum():
    weights = np.random.default_rng(0).integers(1, 4, 240).astype(float)
    labels = np.array(noisy()["y"])
    by_row = weights * np.where(labels == "yes", 3, 1)
    own = treekit.train(noisy(), "y", seed=0, weights=by_row, **UNBOUND)
    named = treekit.train(noisy(), "y", seed=0, weights=weights, class_weight={"yes": 3}, **UNBOUND)
    same_splits(own.trees[0], named.trees[0])
    assert named.trees[0].weight[0] == pytest.approx(weights.sum(), rel=1e-9)


@pytest.mark.parametrize("settings", [{}, {"ensemble": "forest", "trees": 3}])
def test_only_the_ratio_of_class_weights_matters(settings):
    plain = trained(**settings)
    for s in (1, 0.1, 0.01, 1e200):
        for one, other in zip(
            trained(class_weight={"no": s, "yes": s}, **settings).trees, plain.trees, strict=True
        ):
            same_tree(one, other)
    small, large = (trained(class_weight={"no": s, "yes": 20 * s}, **settings) for s in (0.001, 2))
    for one, other in zip(small.trees, large.trees, strict=True):
        same_splits(one, other)


def test_priors_as_they_are_leave_rows_alone_able_to_be_leaves():
    share = float(np.mean(np.array(noisy()["y"]) == "yes"))
    for unit in (1, 3, 7, 0.1):
        again = trained(priors={"yes": share * unit, "no": (1 - share) * unit}).trees[0]
        same_splits(again, trained().trees[0])


# ------------------------------------------------------------------ bootstrap samples


def test_class_weights_do_not_shape_the_bootstrap_samples_nor_their_score():
    dataset = make_dataset(noisy(), "y")
    given = {"ensemble": "forest", "trees": 8, "seed": 0}
    plain = fit(dataset, given)
    for weights in ({"no": 1, "yes": 20}, {"no": 2, "yes": 40}, {"no": 1, "yes": 0.3}):
        found = fit(dataset, given | {"class_weight": weights})
        np.testing.assert_array_equal(found.oob_times, plain.oob_times)
        report = found.model.provenance["oob"]
        seen = found.oob_times > 0
        assert report["rows"] == seen.sum() > 220
        right = found.oob_votes.argmax(axis=1) == dataset.y
        assert report["accuracy"] == pytest.approx(right[seen].mean())


def test_a_class_weight_multiplies_what_was_drawn():
    weights = np.random.default_rng(0).integers(0, 4, 240).astype(float)
    dataset = make_dataset(noisy(), "y", weights=weights)
    given = {"ensemble": "forest", "trees": 4, "seed": 0, "pruner": "none"}
    plain, heavy = fit(dataset, given), fit(dataset, given | {"class_weight": "yes=5"})
    np.testing.assert_array_equal(heavy.oob_times, plain.oob_times)
    for one, other in zip(heavy.model.trees, plain.model.trees, strict=True):
        ratio = one.value[0] / other.value[0]
        assert ratio[1] / ratio[0] == pytest.approx(5)


@pytest.mark.parametrize("splitter", ["exact", "histogram"])
def test_a_class_of_no_weight_is_not_there(splitter):
    # Three classes, of which one neither is drawn nor shapes codes.
    table = noisy()
    table["y"] = ["odd" if row % 5 == 0 else label for row, label in enumerate(table["y"])]
    kept = [row for row, label in enumerate(table["y"]) if label != "odd"]
    rest = {name: [cells[row] for row in kept] for name, cells in table.items()}
    settings = {"ensemble": "forest", "trees": 3, "splitter": splitter, "max_bins": 20, "seed": 0}
    classes = ["no", "yes", "odd"]
    without = treekit.train(rest, "y", classes=classes, **settings)
    weightless = treekit.train(
        table, "y", classes=classes, class_weight={"odd": 0}, **settings, **UNBOUND
    )
    for one, other in zip(weightless.trees, without.trees, strict=True):
        np.testing.assert_array_equal(one.feature, other.feature)
        np.testing.assert_array_equal(one.threshold, other.threshold)
    assert weightless.provenance["oob"] == without.provenance["oob"]


def test_balanced_classes_weigh_alike_and_keep_the_sum():
    found = root(trained(class_weight="balanced"))
    assert found == pytest.approx({"no": 120, "yes": 120}, rel=1e-9)


def test_priors_are_the_classes_shares_of_weight():
    model = trained(priors="yes=1,no=3")
    assert root(model) == pytest.approx({"no": 180, "yes": 60}, rel=1e-9)
    assert model.settings["priors"] == pytest.approx({"no": 0.75, "yes": 0.25})
    # Breiman et al. 1984, section 4.4: priors as they are in the data change nothing.
    share = float(np.mean(np.array(noisy()["y"]) == "yes"))
    same = trained(priors={"yes": share, "no": 1 - share})
    np.testing.assert_array_equal(same.trees[0].feature, trained().trees[0].feature)


def test_weights_are_recorded_as_plain_values_that_may_be_given_again():
    model = trained(class_weight="yes=2.5")
    assert model.settings["class_weight"] == {"no": 1.0, "yes": 2.5}
    same_tree(trained(class_weight=model.settings["class_weight"]).trees[0], model.trees[0])
    balanced = trained(class_weight="balanced")
    again = trained(class_weight=balanced.settings["class_weight"])
    same_tree(again.trees[0], balanced.trees[0])


def test_the_estimators_agree_with_the_front_door():
    table = noisy()
    x = np.column_stack([table["size"], table["age"]])
    by_dict = DecisionTreeClassifier(random_state=0, class_weight={"yes": 3, "no": 1})
    cells = {"a": x[:, 0], "b": x[:, 1], "y": table["y"]}
    front = treekit.train(cells, "y", seed=0, class_weight="yes=3", **UNBOUND)
    same_splits(by_dict.fit(x, table["y"]).model_.trees[0], front.trees[0])


def halves():
    """Rows to train on and rows to validate by, of two columns and labels 0 and 1, a fifth 1."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(400, 2))
    y = (x[:, 0] + rng.normal(size=400) > 1.2).astype(int)
    return (x[:200], y[:200]), (x[200:], y[200:])


@pytest.mark.parametrize("class_weight", [{0: 1, 1: 4}, "balanced"])
def test_an_estimator_s_class_weights_hold_for_validation_and_are_told_by_the_model(class_weight):
    (x, y), (xv, yv) = halves()
    how = {"class_weight": class_weight, "pruner": "reduced_error", "dtype": "float64"}
    tree = DecisionTreeClassifier(**how, random_state=0).fit(x, y, validation=(xv, yv))
    table, held = ({"x0": a[:, 0], "x1": a[:, 1], "target": b} for a, b in ((x, y), (xv, yv)))
    limits = {name: tree.model_.settings[name] for name in ("min_weight_split", "min_weight_leaf")}
    front = treekit.train(
        table, "target", task="classification", seed=0, validation=held, **how, **limits
    )
    same_tree(tree.model_.trees[0], front.trees[0])
    assert tree.model_.settings == front.settings
    factors = compute_class_weight(class_weight, classes=np.array([0, 1]), y=y)
    told = tree.model_.settings["class_weight"]
    assert told == pytest.approx({"0": factors[0], "1": factors[1]})


@pytest.mark.matrix
def test_several_outputs_weigh_rows_to_validate_by_the_product_of_their_labels():
    (x, y), (xv, yv) = halves()
    both, held = np.column_stack([y, x[:, 1] > 1]), np.column_stack([yv, xv[:, 1] > 1])
    one = DecisionTreeClassifier(
        pruner="reduced_error", random_state=0, class_weight=[{0: 1, 1: 4}, {0: 1, 1: 2}]
    )
    one.fit(x, both, validation=(xv, held))
    copies = np.repeat(np.arange(200), (1 + 3 * held[:, 0]) * (1 + held[:, 1]))
    other = DecisionTreeClassifier(pruner="reduced_error", random_state=0)
    weights = (1 + 3 * both[:, 0]) * (1 + both[:, 1])
    other.fit(x, both, weights, validation=(xv[copies], held[copies]))
    same_tree(one.model_.trees[0], other.model_.trees[0])
    with pytest.raises(SettingError, match="there are 2 outputs; give 'balanced', or a list"):
        one.set_params(class_weight={0: 1, 1: 4}).fit(x, both)


@pytest.mark.matrix
def test_several_outputs_are_balanced_by_the_training_rows_when_they_validate():
    (x, y), (xv, yv) = halves()
    both, held = np.column_stack([y, y]), np.column_stack([yv, yv])
    by_word, by_number = (
        DecisionTreeClassifier(pruner="reduced_error", random_state=0, class_weight=given)
        for given in (
            "balanced",
            [dict(enumerate(compute_class_weight("balanced", classes=np.array([0, 1]), y=y)))] * 2,
        )
    )
    by_word.fit(x, both, validation=(xv[yv == 1], held[yv == 1]))
    by_number.fit(x, both, validation=(xv[yv == 1], held[yv == 1]))
    same_tree(by_word.model_.trees[0], by_number.model_.trees[0])


def test_an_estimator_balances_by_numbers_of_rows_as_scikit_learn_does():
    (x, y), _ = halves()
    weights = np.where(x[:, 1] > 0, 3.0, 1.0)
    tree = DecisionTreeClassifier(class_weight="balanced", max_depth=3).fit(x, y, weights)
    factors = compute_class_weight("balanced", classes=np.array([0, 1]), y=y)
    assert tree.model_.settings["class_weight"] == {"0": factors[0], "1": factors[1]}
    weighed = np.bincount(y, weights) * factors
    value = tree.model_.trees[0].value[0]
    np.testing.assert_allclose(value / value.sum(), weighed / weighed.sum(), rtol=1e-9)


def test_rows_of_a_class_that_weighs_nothing_are_no_samples_of_a_node():
    (x, y), _ = halves()
    tree = DecisionTreeClassifier(class_weight={0: 0, 1: 1}).fit(x, y)
    assert tree.tree_.n_node_samples.tolist() == [y.sum()]


@pytest.mark.parametrize("where", ["parameters", "train_settings"])
def test_an_estimator_refuses_priors_beside_class_weights(where):
    (x, y), _ = halves()
    priors = {"priors": {0: 1, 1: 1}}
    given = priors if where == "parameters" else {"train_settings": priors}
    with pytest.raises(SettingError, match="class_weight and priors both weigh the classes"):
        DecisionTreeClassifier(class_weight="balanced", **given).fit(x, y)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"class_weight": "ye=2"}, "class_weight names class 'ye'; did you mean 'yes'"),
        ({"class_weight": "yes"}, "'yes'; write NAME=NUMBER"),
        ({"class_weight": "yes=1,yes=2"}, "'yes' twice"),
        ({"class_weight": "yes=much"}, "'yes' the value 'much'; give a finite number"),
        ({"class_weight": {"yes": True}}, "the value True"),
        ({"class_weight": "yes=nan"}, "'nan'; give a finite number"),
        ({"class_weight": "yes=-1"}, "'yes' is -1; give 0 or more"),
        ({"class_weight": "yes=0,no=0"}, "leaves no row any weight"),
        ({"class_weight": 3}, "is 3; give NAME=NUMBER"),
        ({"class_weight": '"yes=3'}, "write NAME=NUMBER"),
        ({"priors": "yes=0.5"}, "priors name no share of class 'no'"),
        ({"priors": "yes=1,no=0"}, "the prior of 'no' is 0; give more than 0"),
        ({"priors": "yes=1,no=1", "class_weight": "balanced"}, "give one of them"),
    ],
)
def test_a_mistake_is_told_with_its_remedy(settings, said):
    with pytest.raises(SettingError, match=said):
        trained(**settings)


def test_numbers_have_no_class_weights():
    for settings in ({"class_weight": "balanced"}, {"priors": "a=1"}):
        with pytest.raises(SettingError, match="is for classes, but the target 'y' is a number"):
            treekit.train(noisy(task="regression"), "y", **settings)


def test_labels_that_hold_signs_are_quoted_and_numbers_are_read_alike():
    names = ("a,b", "x=y", "3")
    assert read_named('"a,b=2",x=y=0.5, 3.0=1e2', names, "w") == {0: 2.0, 1: 0.5, 2: 100.0}
    assert read_named({"a,b": 1, 3.0: 7}, names, "w") == {0: 1.0, 2: 7.0}
    with pytest.raises(SettingError, match="3 twice"):
        read_named({"3": 1, 3: 7}, names, "w")


NAMES = ("no", "yes", "per,haps", 'a "b"', "a\rb", "a\nb")


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(-1e300, 1e300)))
def test_a_text_reads_as_the_mapping_it_writes(numbers):
    wanted = {NAMES.index(n): v for n, v in numbers.items()}
    assert read_named(written(numbers), NAMES, "w") == wanted


# ------------------------------------------------------------------ how many rows are drawn


def in_bag(**settings):
    model = trained(ensemble="forest", trees=3, oob=False, **settings)
    return [float(tree.weight[0]) for tree in model.trees]


def test_a_forest_draws_as_many_rows_as_asked():
    assert in_bag() == [240, 240, 240]
    assert in_bag(max_samples=40) == [40, 40, 40]
    assert in_bag(max_samples=0.25) == [60, 60, 60]
    assert in_bag(max_samples=1.0) == in_bag()


@pytest.mark.parametrize("wanted", [0, 0.0, 1.5])
def test_a_sample_that_cannot_be_drawn_is_refused(wanted):
    with pytest.raises(SettingError, match=r"above 0\.0 and at most 1\.0"):
        in_bag(max_samples=wanted)


@pytest.mark.parametrize("settings", [{}, {"ensemble": "forest", "bootstrap": False}])
def test_without_a_bootstrap_no_rows_are_drawn(settings):
    with pytest.raises(SettingError, match="set ensemble='forest' and bootstrap=True"):
        trained(max_samples=10, **settings)


# ------------------------------------------------------------------ costs and votes


def test_costs_are_whole_numbers_in_the_same_ratios():
    def whole(*rows):
        return whole_costs(np.array(rows, float)).tolist()

    assert whole([0, 5], [1, 0]) == [[0, 5], [1, 0]]
    assert whole([0, 2.5], [1, 0]) == [[0, 5], [2, 0]]
    assert whole([0, 0.1], [0.25, 0]) == [[0, 2], [5, 0]]
    assert whole([0, 20_000], [5_000, 0]) == [[0, 4], [1, 0]]
    assert whole([0, 2**0.5], [1, 0]) == [[0, MAX_COST], [round(MAX_COST / 2**0.5), 0]]


@given(st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=6))
def test_whole_costs_keep_their_ratios_to_half_a_step(values):
    k = len(values)
    matrix = np.zeros((k, k))
    matrix[np.arange(k), (np.arange(k) + 1) % k] = values
    found = whole_costs(matrix)
    assert ((found > 0) == (matrix > 0)).all()
    assert found.max() <= MAX_COST
    scale = found.max() / matrix.max()
    assert np.abs(found - matrix * scale).max() <= 0.5 + 1e-6


def test_a_costly_mistake_is_said_less_often():
    table = noisy()
    plain, careful = trained(table, max_depth=1), trained(table, max_depth=1, costs="yes>no=20")
    assert careful.costs.tolist() == [[0, 1], [20, 0]] == careful.settings["costs"]
    same_tree(plain.trees[0], careful.trees[0])
    said = careful.predict(table)
    assert (said == "yes").sum() > (plain.predict(table) == "yes").sum()
    # Label of least expected cost: yes where its share exceeds 1/21.
    share = careful.predict_proba(table)[:, 1]
    np.testing.assert_array_equal(said == "yes", share * 20 > 1 - share)


def test_costs_are_given_as_text_pairs_or_a_matrix():
    for costs in ("yes>no=3", {("yes", "no"): 3}, [[0, 1], [3, 0]], np.array([[0.0, 1], [3, 0]])):
        assert trained(costs=costs, max_depth=1).costs.tolist() == [[0, 1], [3, 0]]


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ("yes=2", "write TRUE>SAID=COST"),
        ("yes>n=2", "names class 'n'"),
        ("yes>no=-2", "saying 'no' for 'yes' costs -2"),
        ({("yes", "yes"): 1}, "is no mistake and costs 0"),
        ({("yes",): 1}, "is no pair"),
        ("yes>no=0,no>yes=0", "all costs are 0"),
        ("yes>no=20000,no>yes=0.5", "the largest may be 16,384 times the smallest"),
        ([[0, 1]], "a matrix of finite numbers, 2 x 2"),
        ([[0, np.nan], [1, 0]], "a matrix of finite numbers, 2 x 2"),
    ],
)
def test_a_cost_that_makes_no_sense_is_refused(costs, said):
    with pytest.raises(SettingError, match=said):
        trained(costs=costs)


def test_labels_that_hold_the_sign_are_read_where_there_is_one_way():
    assert read_pairs("a>b>c=2", ("a>b", "c"), "costs") == {(0, 1): 2.0}
    with pytest.raises(SettingError, match="reads in 2 ways"):
        read_pairs("a>b>c=2", ("a>b", "c", "a", "b>c"), "costs")


def test_out_of_bag_labels_weigh_costs_and_votes():
    table = noisy()
    forest = {"ensemble": "forest", "trees": 15}
    plain = trained(table, **forest).provenance["oob"]["accuracy"]
    careful = trained(table, **forest, costs="yes>no=30").provenance["oob"]["accuracy"]
    assert careful < plain
    hard = trained(table, **forest, voting="hard", max_depth=2)
    assert set(np.unique(hard.units)) == {0, 1}


def test_costs_decide_once_where_leaves_vote_for_their_label():
    costs = [[0, 1, 1], [0, 0, 5], [5, 1, 0]]
    table = {"x": [0.0] * 10 + [1.0], "y": ["b"] * 6 + ["c"] * 4 + ["a"]}
    told = {}
    for voting in ("soft", "hard"):
        model = treekit.train(
            table, "y", classes=["a", "b", "c"], costs=costs, voting=voting, seed=0
        )
        told[voting] = model.predict({"x": [0.0]}).tolist(), model.predict_proba({"x": [0.0]})[0]
    assert told["soft"][0] == told["hard"][0] == ["b"]
    assert told["hard"][1].tolist() == [0.0, 1.0, 0.0]
