"""Gains compared with the paper's formulas; exports with the names and bits of effects."""

import csv
import math
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treekit_uplift import simulate
from treekit_uplift.criterion import DIVERGENCES, make
from treekit_uplift.task import lay_out

import treekit
from treekit import Layout, TaskColumn, registry
from treekit.errors import DataError, SettingError
from treekit.testing import check_criterion

TREAT = {"criterion": "uplift", "criterion.treatment": "treat"}


def functions(arms=2, divergence="kl", normalise=True, prior=0.0, between=0.0):
    layout = Layout(2 * arms, None, None, ("effect",), (1 / arms,) * arms)
    return make(layout, divergence, normalise, prior, between)


# --- The formulas of Rzepakowski and Jaroszewicz 2012, on numbers of rows (arm, class).


def divergence(p, q, kind):
    if kind == "euclidean":
        return sum((a - b) ** 2 for a, b in zip(p, q, strict=True))
    if kind == "chi_squared":
        return sum((a - b) ** 2 / b for a, b in zip(p, q, strict=True) if a != b)
    return sum(a * math.log2(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def spread(p, kind):
    if kind == "kl":
        return -sum(a * math.log2(a) for a in p if a > 0)
    return 1 - sum(a * a for a in p)


def shares(weights):
    return [w / sum(weights) for w in weights]


def paper_after(child, node, kind, prior):
    """Compute the divergence in a branch, its rates shrunk to the node's by `prior` rows."""
    rates = []
    for arm in (0, 1):
        drawn = child[arm] + prior * np.array(shares(node[arm]))
        rates.append(shares(drawn) if drawn.sum() > 0 else shares(node[arm]))
    return divergence(rates[1], rates[0], kind)


def paper(children, kind, normalise, prior=0.0):
    """Compute gain over factor for two arms; children (branches, 2 arms, 2 classes)."""
    node = children.sum(axis=0)
    before = divergence(shares(node[1]), shares(node[0]), kind)
    gain = -before
    for child in children:
        gain += child.sum() / node.sum() * paper_after(child, node, kind, prior)
    if not normalise:
        return gain
    n_c, n_t = node.sum(axis=1)
    own_c, own_t = (shares(children[:, arm].sum(axis=1)) for arm in (0, 1))
    share_c, share_t = n_c / (n_c + n_t), n_t / (n_c + n_t)
    if any(q == 0 < p for p, q in zip(own_t, own_c, strict=True)) and kind != "euclidean":
        return 0.0
    factor = spread([share_t, share_c], kind) * divergence(own_t, own_c, kind)
    factor += share_t * spread(own_t, kind) + share_c * spread(own_c, kind) + 1 / 2
    return gain / factor


def tables(arms=2):
    cell = st.lists(st.integers(0, 60), min_size=2 * arms, max_size=2 * arms)
    tables = st.lists(cell, min_size=2, max_size=4).map(
        lambda rows: np.array(rows, float).reshape(len(rows), arms, 2)
    )
    # Every class in every arm: elsewhere KL and chi-squared are infinite in the paper.
    return tables.filter(lambda table: table.sum(axis=0).min() > 0)


def scored(children, **chosen):
    cells = np.ascontiguousarray(children.reshape(len(children), -1))
    return functions(children.shape[1], **chosen).score(cells.sum(axis=0), cells)


@settings(deadline=None)
@given(tables(), st.sampled_from(DIVERGENCES), st.booleans(), st.sampled_from([1.0, 25.0]))
def test_gain_equals_the_paper(children, kind, normalise, prior):
    expected = paper(children, kind, normalise, prior)
    got = scored(children, divergence=kind, normalise=normalise, prior=prior)
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(deadline=None)
@given(tables(), st.booleans())
def test_euclidean_gain_equals_the_paper_without_a_prior(children, normalise):
    expected = paper(children, "euclidean", normalise)
    got = scored(children, divergence="euclidean", normalise=normalise)
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)


def of_several(children, kind, normalise, prior):
    """Compute the gain of several treatments as the mean of each one's divergence from control."""
    node, n = children.sum(axis=0), children.sum()
    gain = 0.0
    for arm in range(1, len(node)):
        pair = children[:, [0, arm]]
        alone = -divergence(shares(node[arm]), shares(node[0]), kind)
        weights = children.sum(axis=(1, 2)) / n
        alone += sum(
            w * (paper_after(child, pair.sum(axis=0), kind, prior))
            for w, child in zip(weights, pair, strict=True)
        )
        gain += alone / (len(node) - 1)
    if not normalise:
        return gain
    treated = children[:, 1:].sum(axis=1)
    own_c, own_t = shares(children[:, 0].sum(axis=1)), shares(treated.sum(axis=1))
    if any(q == 0 < p for p, q in zip(own_t, own_c, strict=True)) and kind != "euclidean":
        return 0.0
    share_c = node[0].sum() / n
    factor = 0.5 + spread([1 - share_c, share_c], kind) * divergence(own_t, own_c, kind)
    for arm in range(len(node)):
        factor += node[arm].sum() / n * spread(shares(children[:, arm].sum(axis=1)), kind)
    return gain / factor


@settings(deadline=None)
@given(tables(arms=3), st.sampled_from(DIVERGENCES), st.booleans())
def test_several_treatments_count_equally(children, kind, normalise):
    expected = of_several(children, kind, normalise, 2.0)
    chosen = {"divergence": kind, "normalise": normalise, "prior": 2.0}
    for arms in ([0, 1, 2], [0, 2, 1]):
        got = scored(children[:, arms], **chosen)
        assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_between_parameter_weights_divergence_among_treatments():
    children = np.array([[[5, 5], [2, 8], [8, 2]], [[5, 5], [8, 2], [2, 8]]], float)
    chosen = {"divergence": "euclidean", "normalise": False}
    apart = [scored(children, between=share, **chosen) for share in (0.0, 0.5, 1.0)]
    from_control, from_each_other = 2 * 0.3**2, 2 * 0.6**2
    assert apart == pytest.approx(
        [from_control, (from_control + from_each_other) / 2, from_each_other]
    )


@pytest.mark.parametrize("kind", DIVERGENCES)
@pytest.mark.parametrize(
    "children",
    [[[0, 0, 3, 4], [0, 0, 5, 1]], [[3, 4, 0, 0], [1, 1, 0, 0]], [[0, 0, 0, 0], [0, 0, 0, 0]]],
)
def test_node_of_one_treatment_group_has_zero_gain(children, kind):
    assert scored(np.array(children, float).reshape(2, 2, 2), divergence=kind) == 0.0


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_outcome_rates_of_0_and_1_give_finite_gains(kind):
    children = np.array([[[7, 0], [0, 5]], [[4, 0], [6, 0]]], float)
    for normalise in (False, True):
        gain = scored(children, divergence=kind, normalise=normalise)
        assert math.isfinite(gain)
        assert gain > 0.0


def test_split_into_treated_and_control_has_zero_gain():
    children = np.array([[[9, 3], [0, 0]], [[0, 0], [3, 9]]], float)
    for kind in ("kl", "chi_squared"):
        assert scored(children, divergence=kind) == 0.0


def test_categories_are_ordered_by_effect():
    order = functions(prior=10.0).order
    helped, harmed, little, none = (
        np.array(cells, float)
        for cells in ([50, 50, 10, 90], [50, 50, 90, 10], [1, 1, 0, 2], [5, 5, 0, 0])
    )
    assert order(harmed) < order(none) == 0.0 < order(little) < order(helped)


def test_loss_is_least_for_the_true_effect_of_the_rows():
    loss = functions().loss
    judged = np.array([60.0, 40.0, 30.0, 70.0])
    says = [np.array([100.0 - p, p, 50.0, 50.0]) * 1000 for p in (10.0, 20.0, 30.0)]
    losses = [loss(stats, judged) for stats in says]
    assert min(losses) == losses[1]  # 0.5 - 0.2 is the effect among the judged: 0.7 - 0.4
    transformed = np.repeat([0.0, -2.0, 0.0, 2.0], judged.astype(int))
    effect = (50_001 / 100_002) - (20_001 / 100_002)
    assert losses[1] == pytest.approx(((transformed - effect) ** 2).sum())


# --- The task.


def column(name, cells):
    levels = tuple(sorted(set(cells)))
    return TaskColumn(name, np.array([levels.index(c) for c in cells], np.int32), levels)


def laid_out(arms, outcomes=("no", "yes"), control="", outcome=""):
    cells = [arm for arm in arms for _ in outcomes]
    target = column("y", list(outcomes) * len(arms))
    return lay_out(target, {"treatment": column("arm", cells)}, control, outcome), target


def test_leaf_predicts_the_effect_and_its_standard_error():
    layout, _ = laid_out(["control", "mail"])
    assert layout.names == ("effect", "standard error", "treated", "control")
    (said,) = layout.answer(np.array([[70.0, 28.0, 40.0, 58.0]]))
    q, p = 29 / 100, 59 / 100
    error = math.sqrt(p * (1 - p) / 101 + q * (1 - q) / 101)
    assert said == pytest.approx([p - q, error, p, q])


def test_leaf_without_rows_of_a_treatment_has_a_large_standard_error():
    layout, _ = laid_out(["control", "mail"])
    (said,) = layout.answer(np.array([[0.0, 0.0, 40.0, 58.0]]))
    assert said[3] == 0.5
    assert said[1] > math.sqrt(1 / 12)


def test_standard_error_equals_the_spread_of_repeated_experiments():
    layout, _ = laid_out(["control", "mail"])
    rng = np.random.default_rng(0)
    came = rng.binomial(200, [0.3, 0.45], size=(4000, 2))
    stats = np.stack([200 - came[:, 0], came[:, 0], 200 - came[:, 1], came[:, 1]], axis=1)
    said = layout.answer(stats.astype(float))
    assert said[:, 0].std() == pytest.approx(said[:, 1].mean(), rel=0.03)
    covered = np.abs(said[:, 0] - 0.15) < 1.96 * said[:, 1]
    assert covered.mean() == pytest.approx(0.95, abs=0.01)


def test_several_treatments_are_distinguished_by_name():
    layout, target = laid_out(["mail", "none", "phone"], control="none")
    assert layout.size == 6
    assert layout.names[:3] == ("effect of mail", "standard error of mail", "rate of mail")
    assert layout.names[-1] == "rate of control"
    arms = column("arm", ["mail", "none", "phone"] * 2)
    assert layout.place(target, {"treatment": arms}).tolist() == [2, 1, 4, 3, 0, 5]
    (said,) = layout.answer(np.array([[9.0, 1.0, 5.0, 5.0, 1.0, 9.0]]))
    assert said[0] == pytest.approx((6 - 2) / 12)
    assert said[3] == pytest.approx((10 - 2) / 12)
    assert said[-1] == pytest.approx(2 / 12)


def test_positive_outcome_may_be_set():
    layout, target = laid_out(["control", "mail"], outcomes=("kept", "left"), outcome="kept")
    arms = column("arm", ["control", "control", "mail", "mail"])
    assert layout.place(target, {"treatment": arms}).tolist() == [1, 0, 3, 2]


@pytest.mark.parametrize(
    ("arms", "chosen", "error", "message"),
    [
        (["treated", "untreated"], {}, SettingError, r"control group: criterion\.control=treated"),
        (["a", "b"], {"control": "c"}, SettingError, "criterion.control is 'c', .* holds a, b"),
        (["control", "b"], {"outcome": "maybe"}, SettingError, "holds no, yes"),
        (["control"], {}, DataError, "holds 1 different labels"),
        ([f"c{i}" for i in range(40)], {}, DataError, "expected 2 to 32 arms"),
        (["control", "b"], {"outcomes": ("a", "b", "c")}, DataError, "has 3: 'a', 'b', 'c'"),
    ],
)
def test_tables_without_treatment_and_control_are_refused(arms, chosen, error, message):
    with pytest.raises(error, match=message):
        laid_out(arms, **chosen)


def test_smallest_number_is_the_control_group():
    arms = TaskColumn("arm", np.array([1.0, 0.0, 2.0, 0.0]))
    target = column("y", ["no", "yes", "no", "yes"])
    layout = lay_out(target, {"treatment": arms}, "", "")
    assert layout.place(target, {"treatment": arms}).tolist() == [2, 1, 4, 1]
    assert lay_out(target, {"treatment": arms}, "2", "").extra == (0.25, 0.5, 0.25)


# --- Trees and forests.


@pytest.fixture(scope="module")
def experiment():
    table, effect = simulate(2000, 10, seed=4)
    table["town"] = np.array(["Łódź", "Kraków", "Gdańsk"])[np.arange(2000) % 3]
    return table, effect


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_splits_of_a_tree_equal_the_paper(experiment, kind):
    table, _ = experiment
    chosen = {"criterion.divergence": kind, "criterion.prior": 5.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = treekit.train(
            table, "y", **TREAT, **chosen, max_depth=1, splitter="exact", seed=0, ignore=["town"]
        )
    treated = table["treat"] == "treated"
    best = -1.0
    for name in model.schema.names:
        x = table[name].astype(np.float32)
        order = np.argsort(x)
        cells = np.zeros((2000, 2, 2))
        cells[np.arange(2000), treated[order].astype(int), table["y"][order]] = 1
        left = cells.cumsum(axis=0)[19:-20:7]  # some of the cuts are enough for an oracle
        for one in left:
            best = max(best, paper(np.stack([one, cells.sum(axis=0) - one]), kind, True, 5.0))
    assert model.trees[0].gain[0] >= best - 1e-12
    assert model.schema.names[model.trees[0].feature[0]] in ("X1", "X2", "X3", "X4")


def test_forest_predictions_correlate_with_the_true_effects(experiment):
    table, _ = experiment
    forest = treekit.train(
        table, "y", **TREAT, ensemble="forest", trees=40, min_weight_leaf=20, seed=0, n_jobs=2
    )
    new, effect = simulate(1000, 10, seed=5)
    new["town"] = np.full(1000, "Łódź")
    assert np.corrcoef(forest.predict(new)[:, 0], effect)[0, 1] > 0.8


def test_reduced_error_pruning_halves_the_leaves_and_keeps_a_split(experiment):
    table, _ = experiment
    grown, pruned = (
        treekit.train(table, "y", **TREAT, min_weight_leaf=10, seed=0, **chosen)
        for chosen in ({}, {"pruner": "reduced_error"})
    )
    assert 1 < pruned.n_leaves < grown.n_leaves / 2


def test_integer_weights_equal_repeated_rows_in_pruning(experiment):
    table = {name: cells[:600] for name, cells in experiment[0].items()}
    weights = np.random.default_rng(0).integers(0, 4, 600)
    validation = {name: cells[600:1200] for name, cells in experiment[0].items()}
    chosen = {"pruner": "reduced_error", "validation": validation, "min_weight_leaf": 30, "seed": 0}
    weighed = treekit.train(table, "y", weights=weights, **TREAT, **chosen)
    copies = {name: np.repeat(cells, weights) for name, cells in table.items()}
    copied = treekit.train(copies, "y", **TREAT, **chosen)
    for name in ("feature", "threshold", "weight", "value"):
        one, other = (getattr(model.trees[0], name) for model in (weighed, copied))
        assert np.array_equal(one, other, equal_nan=True)
    assert weighed.n_leaves > 1


@pytest.mark.parametrize("ensemble", [{"max_depth": 3}, {"ensemble": "forest", "trees": 5}])
def test_every_artifact_predicts_effects_without_plugin_and_treekit(
    experiment, ensemble, run_alone, tmp_path: Path
):
    table, _ = experiment
    model = treekit.train(table, "y", **TREAT, **ensemble, min_weight_leaf=50, seed=0)
    rows = {name: cells[:60].copy() for name, cells in table.items()}
    rows["X1"][::7] = np.nan
    expected = model.predict(rows)
    assert expected.shape == (60, 4)
    del rows["treat"], rows["y"]
    for answers in run_alone(model, rows).values():
        assert np.array_equal(answers, expected)
    text = treekit.export(model, "rules", tmp_path / "effects.rules.txt")
    assert treekit.verify(model, text).equal


def test_command_line_trains_an_uplift_tree(experiment, tmp_path: Path):
    table, _ = experiment
    path, model = tmp_path / "experiment.csv", tmp_path / "effects.treekit"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(table)
        writer.writerows(zip(*(cells.tolist() for cells in table.values()), strict=True))
    command = [Path(sys.executable).with_name("treekit"), "train", path, "--target", "y"]
    for chosen in ("criterion=uplift", "criterion.treatment=treat", "max_depth=2"):
        command += ["--set", chosen]
    subprocess.run([*command, "-o", model], check=True, capture_output=True)
    loaded = treekit.load(model)
    assert [output.name for output in loaded.schema.outputs][:2] == ["effect", "standard error"]
    assert loaded.provenance["components"][0]["distribution"] == "treekit-uplift"
    assert "treat" not in loaded.schema.names


def test_criterion_passes_the_contract_checks():
    check_criterion("uplift", strict=True)


def test_criterion_is_registered_by_its_distribution():
    component = registry.list("criterion")["uplift"]
    assert (component.plugin, component.distribution) == ("uplift", "treekit-uplift")
