"""Criteria with a task of their own, several targets, and their named predictions."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.ensemble
import sklearn.tree
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import r2_score

import treekit
from tests.grow.test_grow_tree import problem_of
from tests.growing import grow, same_tree
from tests.reference import grow as reference
from tests.runtimes import need
from tests.tiers import later
from treekit import (
    Criterion,
    CriterionFunctions,
    Layout,
    Pruner,
    PrunerFunctions,
    Setting,
    Task,
    TaskColumn,
)
from treekit.cli import main
from treekit.contracts import Ranks
from treekit.data.dataset import make_dataset, make_validation
from treekit.errors import DataError, PluginError, SettingError
from treekit.estimators import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from treekit.grow.forest_builder import make_sampler
from treekit.grow.target_statistics import (
    ClassTarget,
    NumberTarget,
    RankTarget,
    TaskTarget,
    choose_part_steps,
)
from treekit.kernels.records import Table
from treekit.model.tree import Split
from treekit.testing import check_pruner
from treekit.training.tasks import MAX_CELLS

# ---------------------------------------------------------------- tasks

NAMES = ("effect", "rate, treated", 'rate "control"', "standard error")


def table(rows: int = 400, seed: int = 0) -> dict[str, Any]:
    """A treatment that helps where a > 0, and more in group u; b has gaps, c says nothing."""
    rng = np.random.default_rng(seed)
    a, c = rng.normal(size=(2, rows)).astype(np.float32).round(2)
    b = rng.integers(0, 6, rows).astype(float)
    b[::9] = np.nan
    group = np.array(["u", "v", "w"])[rng.integers(0, 3, rows)]
    given = rng.random(rows) < 0.5
    share = 0.2 + given * (0.4 * (a > 0) + 0.2 * (group == "u"))
    return {
        "a": a,
        "b": b,
        "c": c,
        "colour": np.array(["red", "green", "blue"])[rng.integers(0, 3, rows)],
        "group": group,
        "given": np.where(given, "yes", "no"),
        "cured": np.where(rng.random(rows) < share, "cured", "ill"),
        "days": rng.integers(1, 9, rows),
        "weight": rng.integers(0, 4, rows),
    }


# --- A task that answers named numbers: the effect of a treatment, in four cells.


def effects(target: TaskColumn, columns: Any) -> Layout:
    arms = columns["treatment"].labels
    if len(arms) != 2:
        raise DataError(f"a treatment is given or not, and there are {len(arms)} arms")

    def place(target: TaskColumn, columns: Any) -> Any:
        return 2 * columns["treatment"].codes(arms) + target.values

    def answer(stats: Any) -> Any:
        control, treated = stats[:, :2] + 0.5, stats[:, 2:] + 0.5
        p, q = treated[:, 0] / treated.sum(axis=1), control[:, 0] / control.sum(axis=1)
        error = np.sqrt(p * (1 - p) / treated.sum(axis=1) + q * (1 - q) / control.sum(axis=1))
        return np.stack([p - q, p, q, error], axis=1)

    return Layout(4, place, answer, NAMES)


def apart(stats: Any) -> float:
    """Squared distance of the rates of the two arms."""
    control, treated = stats[0] + stats[1], stats[2] + stats[3]
    if control <= 0.0 or treated <= 0.0:
        return 0.0
    return 2.0 * (stats[2] / treated - stats[0] / control) ** 2


def further_apart(parent: Any, children: Any) -> float:
    total = 0.0
    for b in range(children.shape[0]):
        total += children[b].sum() * apart(children[b])
    return total / parent.sum() - apart(parent)


def lost_effect(stats: Any, judged: Any) -> float:
    """Squared error of the effect that `stats` say, for the rows `judged`."""
    if judged.sum() == 0.0:
        return 0.0
    said = (stats[2] + 0.5) / (stats[2] + stats[3] + 1) - (stats[0] + 0.5) / (stats[:2].sum() + 1)
    true = (judged[2] + 0.5) / (judged[2] + judged[3] + 1)
    true -= (judged[0] + 0.5) / (judged[:2].sum() + 1)
    return float(judged.sum() * (said - true) ** 2)


TREATMENT = Setting("treatment", "given", "the column of the treatment")
EFFECT = Task("uplift", "classification", "regression", effects, ("treatment",), (TREATMENT,))
UPLIFT = Criterion("apart", EFFECT, lambda layout: CriterionFunctions(score=further_apart))
PRUNABLE = Criterion(
    "apart", EFFECT, lambda layout: CriterionFunctions(score=further_apart, loss=lost_effect)
)

# --- A task that answers classes: those of the target, counted apart in each group.


def classes_in_groups(target: TaskColumn, columns: Any, spare: int) -> Layout:
    groups, k = columns["protected"].labels, len(target.levels)

    def place(target: TaskColumn, columns: Any) -> Any:
        return columns["protected"].codes(groups) * k + target.values

    def answer(stats: Any) -> Any:
        return stats[:, : k * len(groups)].reshape(len(stats), len(groups), k).sum(axis=1)

    return Layout(k * len(groups) + spare, place, answer, extra=(len(groups), k))


def plain_gini(layout: Layout) -> CriterionFunctions:
    """Gini of the classes alone: whoever counts apart and adds up must grow the very same tree."""
    n_groups, k = layout.extra

    def impurity(stats: Any) -> float:
        total, squares = stats.sum(), 0.0
        for c in range(k):
            own = 0.0
            for g in range(n_groups):
                own += stats[g * k + c]
            squares += own * own
        return 1.0 - squares / (total * total) if total > 0.0 else 0.0

    def order(stats: Any) -> float:
        second = 0.0
        for g in range(n_groups):
            second += stats[g * k + 1]
        return second / stats.sum()

    return CriterionFunctions(impurity=impurity, order=order)


PROTECTED = Setting("protected", "group", "the column of the groups")
SPARE = Setting("spare", 0, "cells that stay empty", minimum=0)
GROUPS = Task(
    "groups", "classification", "classification", classes_in_groups, ("protected",),
    (PROTECTED, SPARE),
)  # fmt: skip
APART_GINI = Criterion("gini_of_groups", GROUPS, plain_gini)

# --- A task with dense statistics: a mean, in the way of squared_error.


def mean_of(target: TaskColumn, columns: Any) -> Layout:
    def place(target: TaskColumn, columns: Any) -> Any:
        return np.column_stack([np.ones(len(target.values)), target.values, target.values**2])

    def answer(stats: Any) -> Any:
        return stats[:, 1:2] / stats[:, :1]

    return Layout(3, place, answer, ("mean",))


def variance(stats: Any) -> float:
    return stats[2] / stats[0] - (stats[1] / stats[0]) ** 2


def squared_loss(stats: Any, judged: Any) -> float:
    mean = stats[1] / stats[0]
    return float(judged[2] - 2.0 * mean * judged[1] + mean * mean * judged[0])


MEAN = Task("mean", "regression", "regression", mean_of)
VARIANCE = Criterion(
    "variance", MEAN, lambda layout: CriterionFunctions(impurity=variance, loss=squared_loss)
)


def trained(
    criterion: Any, target: str = "cured", data: dict[str, Any] | None = None, **settings: Any
) -> treekit.Model:
    ignore = [n for n in ("cured", "days", "group", "given", "weight") if n != target]
    if getattr(criterion, "task", None) == EFFECT:
        ignore.remove("given")
    if getattr(criterion, "task", None) == GROUPS:
        ignore.remove("group")
    return treekit.train(
        data or table(), target, criterion=criterion, ignore=ignore, seed=0,
        **{"min_weight_leaf": 20} | settings,
    )  # fmt: skip


def same_answers(one: treekit.Model, other: treekit.Model) -> bool:
    rows = table(300, 5)
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(one.trees, other.trees, strict=True)
        for name in ("kind", "feature", "first_child", "missing", "level_branch", "weight", "value")
    ) and np.array_equal(one.predict(rows), other.predict(rows))


def test_leaves_predict_named_numbers_of_a_custom_task():
    model, data = trained(UPLIFT, max_depth=2), table()
    assert tuple(output.name for output in model.schema.outputs) == NAMES
    assert model.schema.names == ("a", "b", "c", "colour")
    tree = model.trees[0]
    left = data["a"] <= np.float32(tree.threshold[0])
    assert tree.feature[0] == 0
    for node, rows in ((0, np.ones(400, bool)), (1, left)):
        cured, given = data["cured"][rows] == "cured", data["given"][rows] == "yes"
        p = (cured[given].sum() + 0.5) / (given.sum() + 1)
        q = (cured[~given].sum() + 0.5) / ((~given).sum() + 1)
        assert tree.value[node, :3] == pytest.approx([p - q, p, q])


def test_root_split_of_a_custom_task_is_the_best_cut():
    data = table()
    model = trained(UPLIFT, max_depth=1, splitter="exact")
    cell = 2 * (data["given"] == "yes") + (data["cured"] == "ill")
    best = -1.0
    for column in ("a", "c"):
        for cut in np.unique(data[column])[:-1]:
            sides = [data[column] <= cut, data[column] > cut]
            children = np.array([np.bincount(cell[side], minlength=4) for side in sides], float)
            if children.sum(axis=1).min() >= 20:
                best = max(best, further_apart(children.sum(axis=0), children))
    assert model.trees[0].gain[0] == pytest.approx(best)


def test_integer_weights_equal_repeated_rows_in_any_order():
    data = table()
    weighed = trained(UPLIFT, data={**data}, weights=data["weight"])
    copies = {name: np.repeat(cells, data["weight"]) for name, cells in data.items()}
    assert same_answers(weighed, trained(UPLIFT, data=copies))
    order = np.random.default_rng(1).permutation(400)
    shuffled = {name: cells[order] for name, cells in data.items()}
    assert same_answers(trained(UPLIFT), trained(UPLIFT, data=shuffled))


@pytest.mark.kernels
@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"missing": "fractional"}, marks=pytest.mark.matrix),
        later({"missing": "surrogate"}),
        {"splitter": "histogram", "nominal_splits": "multiway"},
        later({"class_weight": "cured=3"}),
        later({"costs": "cured>ill=4"}),
        {"pruner": "cost_complexity", "pruner.folds": 3},
        {"ensemble": "forest", "trees": 3, "bootstrap": False, "max_features": 2},
    ],
    ids=str,
)
def test_classes_counted_by_group_grow_the_tree_of_the_classes(settings):
    apart = trained(APART_GINI, **settings)
    data = table()
    del data["group"]
    together = treekit.train(
        data, "cured", criterion="gini", ignore=["days", "given", "weight"], seed=0,
        **{"min_weight_leaf": 20} | settings,
    )  # fmt: skip
    assert apart.schema.classes == ("cured", "ill")
    assert apart.trees[0].n_nodes > 3 or "pruner" in settings
    assert same_answers(apart, together)


@pytest.mark.matrix
def test_unused_statistics_do_not_change_the_model():
    spare = {"criterion.spare": 70}  # beyond what is kept on the stack
    assert same_answers(trained(APART_GINI), trained(APART_GINI, **spare))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pruner": "cost_complexity", "pruner.folds": 4},
        pytest.param({"missing": "fractional"}, marks=pytest.mark.matrix),
    ],
    ids=str,
)
def test_dense_statistics_grow_and_prune_the_squared_error_tree(settings):
    own = trained(VARIANCE, "days", **settings)
    plain = trained("squared_error", "days", task="regression", **settings)
    assert own.schema.outputs[0].name == "mean"
    for name in ("kind", "feature", "first_child", "missing", "threshold"):
        assert np.array_equal(
            getattr(own.trees[0], name), getattr(plain.trees[0], name), equal_nan=True
        )
    # The grid of the squares serves the weights and the numbers as well.
    assert own.trees[0].value == pytest.approx(plain.trees[0].value, rel=1e-11)


def indicators(target: TaskColumn, columns: Any) -> Layout:
    """The weight, and again where the row is of class 1, and where it is of either."""

    def place(target: TaskColumn, columns: Any) -> Any:
        ones = np.ones(len(target.values))
        return np.column_stack([ones, (target.values == 1) * 1.0, ones])

    def answer(stats: Any) -> Any:
        return np.stack([stats[:, 2] - stats[:, 1], stats[:, 1]], axis=1)

    return Layout(3, place, answer)


def gini_of_indicators(stats: Any) -> float:
    share = stats[1] / stats[0]
    return 2.0 * share * (1.0 - share)


INDICATORS = Criterion(
    "gini_of_indicators",
    Task("indicators", "classification", "classification", indicators),
    lambda layout: CriterionFunctions(
        impurity=gini_of_indicators, order=lambda stats: stats[1] / stats[0]
    ),
)
FOREST = {"ensemble": "forest", "trees": 3}


@pytest.mark.matrix
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"class_weight": "cured=3"},
        {"class_weight": "cured=0"},
        {"class_weight": "balanced", "weights": True},
        {"priors": "cured=0.9,ill=0.1"},
        {"class_weight": "cured=7.3", "bootstrap": False, **FOREST},
        {"costs": "cured>ill=4"},
        {"missing": "fractional", "weights": True},
        {"missing": "fractional", "weights": True, "class_weight": "ill=2.7"},
        {"missing": "fractional", "weights": True, "bootstrap": False, **FOREST},
        {"missing": "fractional", "class_weight": "cured=3"},
    ],
    ids=str,
)
def test_classes_counted_by_indicators_grow_equal_trees(settings):
    data = table()
    uneven = np.random.default_rng(3).random(400) * 0.1
    data["weight"] = np.where(np.arange(400) % 7 == 0, 0.0, uneven)
    settings = {"min_weight_leaf": 0.5, "max_depth": 6, "seed": 0} | settings
    if settings.get("weights"):
        settings["weights"] = "weight"
    ignore = ["days", "given", "group"] + ["weight"] * ("weights" not in settings)
    own, plain = (
        treekit.train(data, "cured", criterion=criterion, ignore=ignore, **settings)
        for criterion in (INDICATORS, "gini")
    )
    assert own.trees[0].n_nodes > 3 or settings.get("class_weight") == "cured=0"
    assert same_answers(own, plain)


@pytest.mark.kernels
def test_fractional_weights_of_indicators_keep_probabilities_non_negative():
    data = table()
    data["weight"] = np.random.default_rng(3).random(400) * 0.1
    for more in ({"missing": "fractional"}, {"class_weight": "cured=7.3"}):
        model = treekit.train(
            data, "cured", criterion=INDICATORS, ignore=["days", "given", "group"], seed=0,
            weights="weight", max_depth=6, **FOREST, **more,
        )  # fmt: skip
        assert (model.predict_proba(data) >= 0).all()


@pytest.mark.parametrize("weights", [None, np.arange(1.0, 61.0), np.linspace(0.1, 0.9, 60)])
def test_class_weights_do_not_change_bootstraps_of_dense_statistics(weights):
    y = np.arange(60) % 2
    placed = np.column_stack([np.ones(60), y, np.arange(60) * 0.37])
    layout = Layout(3, lambda *_: placed, lambda stats: stats[:, :2])
    nothing = np.zeros(0)
    codes = Table(np.zeros((0, 60), np.uint8), np.zeros(0, np.uint32), *4 * [nothing])
    samples = []
    for factors in (None, np.where(y, 3.7, 0.3)):
        whole = TaskTarget.scale(60, placed, layout, 2, weights, factors, drawn=True)
        target = whole.place(placed, weights, factors)
        ids = np.arange(60, dtype=np.uint32)
        bootstrap = make_sampler(ids, codes, target)
        samples.append((bootstrap.ids, bootstrap.draw_counts(7)))
        expected = target.values / target.values[:, :1]
        assert np.allclose(expected, placed, rtol=1e-9)
    assert np.array_equal(samples[0], samples[1])


def test_statistics_of_different_magnitudes_keep_their_precision():
    y = np.array([1.0, 2.0, 3.0, 4.0] * 25)
    placed = np.column_stack([np.ones(100), y * 1e-12, y, (y > 2) * y, y * 1e15, 0 * y])
    layout = Layout(6, lambda *_: placed, lambda stats: stats, tuple("abcdef"))
    weights = np.random.default_rng(0).random(100)
    for factors in (None, np.where(y > 3, 0.0, 1.7)):
        whole = TaskTarget.scale(100, placed, layout, 6, weights, factors)
        target = whole.place(placed, weights, factors)
        wanted = placed * (weights * (1.0 if factors is None else factors))[:, None]
        assert np.allclose(target.values, wanted, rtol=1e-9, atol=0.0)
        sums = target.values.sum(axis=0)
        assert np.array_equal(sums, target.values[::-1].cumsum(axis=0)[-1])
        within = target.values[y > 2]
        assert np.array_equal(within[:, 2], within[:, 3])


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_equal_statistics_columns_get_equal_fixed_point_steps(scale):
    weights = np.random.default_rng(1).random(64) * scale
    inside = np.arange(64) % 5 == 0
    values = np.column_stack([weights, weights * inside, weights * 1e-14, weights])
    steps = choose_part_steps(values, common=True)
    assert steps[0] == steps[1] == steps[3] > steps[2]
    assert steps[0] == choose_part_steps(values)[0]
    assert choose_part_steps(values)[1] < steps[1]


def test_validation_table_uses_the_layout_of_training():
    held = table(200, 3)
    held = {name: cells[held["given"] == "yes"] for name, cells in held.items()}  # one arm only
    model = trained(
        PRUNABLE, pruner="reduced_error", validation=held, **{"pruner.prune_ties": True}
    )
    assert model.n_leaves < trained(PRUNABLE).n_leaves
    held["given"] = np.full(len(held["given"]), "maybe")
    with pytest.raises(
        DataError, match=r"treatment column 'given' holds 'maybe'; expected one of the categories"
    ):
        trained(PRUNABLE, pruner="reduced_error", validation=held)


def test_pruner_is_refused_for_a_criterion_without_loss():
    with pytest.raises(SettingError, match="requires a loss, but the criterion defines none"):
        trained(UPLIFT, pruner="cost_complexity")
    assert trained(PRUNABLE, pruner="cost_complexity").n_leaves >= 1


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("forest", "missing"),
    [
        (False, "fractional"),
        (True, "surrogate"),
        *(
            pytest.param(*case, marks=pytest.mark.matrix)
            for case in itertools.product([False, True], ["direction", "fractional", "surrogate"])
            if case not in ((False, "fractional"), (True, "surrogate"))
        ),
    ],
)
def test_every_artifact_predicts_several_numbers_with_equal_bits(missing, forest, tmp_path: Path):
    settings = {"ensemble": "forest", "trees": 3} if forest else {}
    model = trained(UPLIFT, missing=missing, min_weight_leaf=40, **settings)
    paths = [tmp_path / f"m{end}" for end in (".onnx", ".c", ".py", ".rules.txt")]
    for path, target in zip(paths, ("onnx", "c", "python", "rules"), strict=True):
        treekit.export(model, target, path)
    assert treekit.verify(model, paths).equal
    model.save(tmp_path / "m.treekit")
    again = treekit.load(tmp_path / "m.treekit")
    assert np.array_equal(again.predict(table(50, 2)), model.predict(table(50, 2)))
    assert again.provenance["task"] == {"name": "uplift", "target": "cured", "treatment": "given"}
    assert again.settings["criterion.treatment"] == "given"


def test_inspect_and_predict_print_the_task_and_its_predictions(tmp_path: Path):
    path, rows = str(tmp_path / "m.treekit"), tmp_path / "rows.csv"
    trained(UPLIFT, max_depth=1).save(path)
    rows.write_text("a,b,c,colour\n1,,2,red\n", encoding="utf-8")
    said = CliRunner().invoke(main, ["inspect", path]).output
    lines = [line.split(maxsplit=1) for line in said.splitlines()]
    assert lines[2:5] == [["target", "'cured'"], ["treatment", "'given'"], ["task", "uplift"]]
    assert lines[5][0] == "predictions"
    assert lines[5][1].startswith("'effect'")
    said = CliRunner().invoke(main, ["predict", path, str(rows)]).output.splitlines()
    assert said[0] == 'effect,"rate, treated","rate ""control""",standard error'
    assert len(said[1].split(",")) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"class_weight": "balanced"}, "class_weight is set, but it is not defined for uplift"),
        ({"costs": "ill>cured=2"}, "costs is set"),
        ({"priors": "ill=0.5,cured=0.5"}, "priors is set"),
        ({"voting": "hard", "ensemble": "forest"}, "voting='hard' is for classification"),
        ({"oob": True, "ensemble": "forest"}, "oob is set"),
        ({"monotonic": "a=1"}, "monotonic is set"),
        ({"numeric_side": "c45"}, "numeric_side is set"),
        ({"pruner": "mdl"}, "pruner 'mdl' is for classification, but criterion 'apart' is for"),
        ({"task": "regression"}, "needs a classification target, but task is 'regression'"),
        ({"min_impurity": 0.1}, "defines no impurity"),
        ({"criterion.treatment": "nowhere"}, "no treatment column 'nowhere'"),
        ({"criterion.treatment": "cured"}, "column 'cured' is the target"),
        ({"criterion.treatment": "days"}, "and there are 8 arms"),
        ({"criterion.treatment": "b"}, r"the treatment column 'b' is missing in 45 of 400 rows"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_settings_unsupported_by_a_task_are_refused(settings, message):
    data = {name: cells for name, cells in table().items() if name not in ("group", "weight")}
    with pytest.raises((SettingError, DataError), match=message):
        treekit.train(data, "cured", criterion=UPLIFT, **settings)


def predict_largest_cell(tree: Any, context: Any) -> Any:
    """A pruned tree whose values are taken from the cells of `GROUPS`."""
    n_groups, k = context.losses.layout.extra
    return tree.with_value(context.stats.reshape(-1, n_groups, k).sum(axis=1))


def test_pruner_may_be_declared_for_a_custom_task():
    pruner = Pruner("leading", lambda: PrunerFunctions(after=predict_largest_cell), task=GROUPS)
    assert same_answers(trained(APART_GINI, pruner=pruner), trained(APART_GINI))
    with pytest.raises(SettingError, match="'leading' is for groups, but criterion 'gini'"):
        trained("gini", pruner=pruner)
    with pytest.raises(SettingError, match="'apart' is for uplift; choose a criterion for groups"):
        trained(UPLIFT, pruner=pruner)
    with pytest.raises(PluginError, match="target of task 'groups' of pruner 'leading' is 'time'"):
        trained(APART_GINI, pruner=replace(pruner, task=replace(GROUPS, target="time")))
    with pytest.raises(SettingError, match="is for groups, but no installed criterion is"):
        check_pruner(pruner)


def test_several_targets_and_estimators_are_refused():
    data = table()
    with pytest.raises(SettingError, match="needs one target, but 2 are given"):
        treekit.train(data, ["cured", "group"], criterion=UPLIFT)
    x = np.column_stack([data["a"], data["c"]])
    with pytest.raises(SettingError, match=r"needs the column named by its setting 'protected'"):
        DecisionTreeClassifier(criterion=APART_GINI).fit(x, data["cured"])
    with pytest.raises(SettingError, match="predicts numbers instead of classes"):
        DecisionTreeClassifier(criterion=UPLIFT).fit(x, data["cured"])


def test_estimator_accepts_a_custom_task_that_uses_only_the_target():
    data = table()
    x = np.column_stack([data["a"], data["c"]])
    own = DecisionTreeRegressor(criterion=VARIANCE, max_depth=3).fit(x, data["days"])
    plain = DecisionTreeRegressor(max_depth=3).fit(x, data["days"])
    assert own.predict(x) == pytest.approx(plain.predict(x))


def test_permutation_importances_are_refused_for_named_numbers():
    model = trained(UPLIFT)
    words = r"predicts 'effect', .* accuracy or R squared is not defined"
    with pytest.raises(DataError, match=words):
        treekit.permutation_importances(model, table())
    assert treekit.gain_importances(model).sum() == pytest.approx(1.0)


def test_forest_of_a_custom_classification_task_has_an_out_of_bag_score():
    data = table(seed=3)  # of 400 rows that tell "a" from chance
    model = trained(APART_GINI, data=data, ensemble="forest", trees=20)
    assert 0.5 < model.provenance["oob"]["accuracy"] < 1.0
    found = treekit.permutation_importances(model, data)
    assert found.columns == ("a", "b", "c", "colour")
    assert found.columns[int(found.mean.argmax())] == "a"
    # The bags are drawn by what rows add to the statistics: that takes the plugin.
    with pytest.raises(SettingError, match="unknown criterion 'gini_of_groups'"):
        treekit.permutation_importances(model, data, out_of_bag=True)


LAYOUT = effects(
    TaskColumn("y", np.zeros(2, np.int32), ("n", "y")),
    {"treatment": TaskColumn("t", np.array([0, 1], np.int32), ("no", "yes"))},
)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("cells", "laid out a str, not a treekit.Layout"),
        (replace(LAYOUT, size=0), "a layout of 0 cells"),
        (replace(LAYOUT, size=MAX_CELLS + 1), f"from 1 to {MAX_CELLS}"),
        (replace(LAYOUT, size=4.0), r"a layout of 4\.0 cells"),
        (replace(LAYOUT, place=None), "layout whose 'place' is of type NoneType"),
        (replace(LAYOUT, names=()), "names its answers"),
        (replace(LAYOUT, names=("a", "a")), "names its answers"),
        (replace(LAYOUT, names=("a", "b\x00")), r"must return shape \(\d+, 2\)"),
        (replace(LAYOUT, place=lambda t, c: t.values + 3), "placed a row in cell 4"),
        (replace(LAYOUT, place=lambda t, c: t.values[:-1]), "placed rows by int32 values of shape"),
        (replace(LAYOUT, place=lambda t, c: np.zeros((400, 4))), "whose first statistic is not 1"),
        (replace(LAYOUT, place=lambda t, c: np.full((400, 4), math.nan)), "first statistic is not"),
        (replace(LAYOUT, place=lambda t, c: 1 / 0), "failed in place: ZeroDivisionError"),
        (replace(LAYOUT, place=lambda t, c: np.put(t.values, 0, 1)), "failed in place: ValueError"),
        (
            replace(LAYOUT, answer=lambda s: s[:, :3]),
            r"shape \(\d+, 3\) .* must return shape \(\d+, 4\)",
        ),
        (replace(LAYOUT, answer=lambda s: s * math.nan), "`answer` .* must return finite numbers"),
        (replace(LAYOUT, answer=lambda s: s["x"]), "raised IndexError: .* in `answer`"),
    ],
    ids=itertools.count(),
)
def test_malformed_layout_is_refused(layout, message):
    task = replace(EFFECT, lay_out=lambda target, columns: layout)
    with pytest.raises((PluginError, DataError), match=message) as caught:
        trained(replace(UPLIFT, task=task), max_depth=1, data=table())
    assert "'apart'" in str(caught.value)


def test_exception_in_lay_out_raises_an_error_naming_task_and_criterion():
    def fails(target: Any, columns: Any) -> Layout:
        raise KeyError(target.name)

    with pytest.raises(PluginError, match="task 'uplift' of criterion 'apart' failed in lay_out"):
        trained(replace(UPLIFT, task=replace(EFFECT, lay_out=fails)), data=table())


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("survival", "has task 'survival'; known: classification, regression, a treekit.Task"),
        (replace(EFFECT, name="two words"), "has a task named 'two words'"),
        (replace(EFFECT, name="regression"), "has a task named 'regression'"),
        (replace(EFFECT, target="survival"), "target of task 'uplift' of criterion 'apart' is"),
        (replace(EFFECT, answers=None), "answers of task"),
        (replace(MEAN, answers="classification"), "predicts classes, but its target is a number"),
        (replace(EFFECT, columns=("treatment", "time")), "columns of task"),
        (replace(EFFECT, columns="treatment"), "columns of task"),
        (replace(EFFECT, lay_out=lambda target: None), "'lay_out' of task"),
        (replace(EFFECT, settings=(TREATMENT, TREATMENT)), "declares setting 'treatment' twice"),
    ],
    ids=itertools.count(),
)
def test_a_malformed_task_is_refused_before_training(task, message):
    with pytest.raises(PluginError, match=message):
        trained(replace(UPLIFT, task=task), data=table())


def test_make_receives_the_layout_and_its_functions_are_checked():
    with pytest.raises(PluginError, match="'make' of criterion 'apart' has the wrong parameters"):
        trained(replace(UPLIFT, make=lambda: CriterionFunctions(score=further_apart)), data=table())

    def ranks(layout: Layout) -> CriterionFunctions:
        return CriterionFunctions(score=further_apart, statistics=Ranks())

    with pytest.raises(PluginError, match="whose layout defines statistics and leaf values"):
        trained(replace(UPLIFT, make=ranks), data=table())
    twice = replace(UPLIFT, settings=(TREATMENT,), make=lambda layout, treatment: None)
    with pytest.raises(PluginError, match="declares setting 'treatment' twice"):
        trained(twice, data=table())


# --- What a layout knows of its rows, and what is compiled anew for it.


def test_lay_out_receives_row_weights():
    seen = []

    def lay_out(target: TaskColumn, columns: Any) -> Layout:
        seen.append((target.weights, columns["treatment"].weights))
        return effects(target, columns)

    data = table(40)
    criterion = replace(UPLIFT, task=replace(EFFECT, lay_out=lay_out))
    treekit.train(data, "cured", criterion=criterion, max_depth=1, weights="weight", seed=0)
    treekit.train(data, "cured", criterion=criterion, max_depth=1, ignore=["weight"], seed=0)
    assert np.array_equal(seen[0][0], data["weight"])
    assert seen[0][1] is seen[1][0] is None


def leaning(constant: Any, costs: list[float]) -> Criterion:
    """A criterion whose score holds an array, and its loss a number, that come with the table."""

    def make(layout: Layout) -> CriterionFunctions:
        cost = costs[0]

        def score(parent: Any, children: Any) -> float:
            return further_apart(parent, children) * constant[0]

        def lost(stats: Any, judged: Any) -> float:
            return cost * float(judged.sum())

        return CriterionFunctions(score=score, loss=lost)

    return Criterion("leaning", EFFECT, make)


@pytest.mark.matrix
def test_equal_array_constants_compile_once(monkeypatch):
    from treekit.compiling import settings as compiled

    made = []

    def compile_criterion(*arguments: Any, **options: Any) -> Any:
        made.append(arguments)
        return criterion_compiled(*arguments, **options)

    criterion_compiled = compiled.compile_criterion
    monkeypatch.setattr(compiled, "compile_criterion", compile_criterion)
    constant = np.array([1.0])
    record = leaning(constant, [1.0])
    gains = []
    for value in (1.0, 1.0, 2.0):
        constant[0] = value
        gains.append(trained(record, max_depth=1, data=table()).trees[0].gain[0])
    assert len(made) == 2
    assert gains[0] == gains[1] == gains[2] / 2


@pytest.mark.matrix
def test_loss_uses_the_current_table_although_the_score_is_cached():
    costs = [1.0]
    record = leaning(np.array([1.0]), costs)
    for costs[0] in (1.0, 3.0):
        model = trained(record, max_depth=2, data=table(), pruner="cost_complexity")
        assert model.provenance["pruner"]["sequence"]["risk"] == [costs[0]]


def test_summary_of_a_model_shows_the_first_of_many_outputs():
    def many(target: TaskColumn, columns: Any) -> Layout:
        own = effects(target, columns)
        return replace(own, answer=lambda stats: np.ones((len(stats), 9)), names=tuple("abcdefghi"))

    criterion = replace(UPLIFT, task=replace(EFFECT, lay_out=many))
    shown = repr(trained(criterion, max_depth=1, data=table()))
    assert "of 'a', 'b', 'c', 'd' and 5 more by" in shown
    assert "of 'effect', 'rate, treated'" in repr(trained(UPLIFT, max_depth=1, data=table()))


def test_unknown_label_of_a_task_column_is_refused():
    numbers = TaskColumn("t", np.array([2.0, 0.0, 2.0]))
    assert numbers.labels == (0.0, 2.0)
    assert numbers.codes((2.0, 0.0)).tolist() == [0, 1, 0]
    with pytest.raises(DataError, match=r"column 't' holds 2\.0 in row 0"):
        numbers.codes((0.0, 1.0))
    texts = TaskColumn("t", np.array([1, 0], np.int32), ("a", "b"))
    assert texts.codes(("b", "a")).tolist() == [0, 1]
    with pytest.raises(DataError, match="holds 'b' in row 0"):
        texts.codes(("a",))


# ---------------------------------------------------------------- several targets
# One model of several targets: growth, pruning, scores, the estimators, artifacts.

CLASSES = ["label", "kind"]
NUMBERS = ["sum", "difference", "square"]


def several_targets_table(rows: int = 240, seed: int = 0) -> dict[str, Any]:
    """Inputs, one with gaps and one of categories; two targets of classes and three of numbers."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    colour = rng.integers(0, 5, rows)
    noisy = x + rng.normal(scale=0.4, size=x.shape)
    gaps = x[:, 1].copy()
    size = np.digitize(noisy[:, 2] + (colour == 2), [-0.5, 0.5])
    gaps[::7] = np.nan
    return {
        "a": x[:, 0],
        "b": gaps,
        "c": x[:, 2],
        "colour": np.array(["red", "green", "blue", "grey", "black"])[colour],
        "label": np.where(noisy[:, 0] + noisy[:, 1] > 0, "yes", "no"),
        "kind": np.array(["lo", "mid", "hi"])[size],
        "sum": (noisy[:, 0] + noisy[:, 1]).round(3),
        "difference": (noisy[:, 0] - noisy[:, 2] + (colour < 2)).round(3),
        "square": (noisy[:, 1] ** 2).round(3),
    }


def train(targets: list[str], **settings: Any) -> treekit.Model:
    others = [name for name in CLASSES + NUMBERS if name not in targets]
    return treekit.train(several_targets_table(), targets, ignore=others, seed=0, **settings)


def inputs(rows: int = 240, seed: int = 0) -> dict[str, Any]:
    return {name: several_targets_table(rows, seed)[name] for name in ("a", "b", "c", "colour")}


def plain() -> tuple[Any, Any, Any]:
    """Numbers without gaps, targets of classes, targets of numbers: what scikit-learn takes."""
    own = several_targets_table()
    x = np.column_stack([own["a"], np.nan_to_num(own["b"]), own["c"]])
    return x, *(np.column_stack([own[name] for name in names]) for names in (CLASSES, NUMBERS))


# ------------------------------------------------------------------ growth


@pytest.mark.matrix
@pytest.mark.parametrize("criterion", ["gini", "entropy", "squared_error"])
@pytest.mark.parametrize("max_bins", [None, 5])
def test_multi_output_trees_equal_the_oracle(criterion: str, max_bins: int | None) -> None:
    rng = random.Random(f"several {criterion} {max_bins}")
    for several in ((2, 3), (3, 2, 3)):
        for _ in range(9):
            sizes = (0,) * len(several) if criterion == "squared_error" else several
            problem = problem_of(rng, criterion, multiway=rng.random() < 0.3, max_bins=max_bins)
            y = [tuple(rng.randrange(size or 6) for size in sizes) for _ in problem.y]
            problem = replace(
                problem,
                y=y,
                n_classes=sizes[0],
                several=sizes,
                min_weight_leaf=rng.choice([1, 2, 5]),
                max_leaves=rng.choice([0, 0, 4]),
                min_impurity=rng.choice([-1.0, -1.0, 0.3]),
                exact_levels=rng.choice([2, 4, 10]),
            )
            same_tree(problem, grow(problem), reference.grow(problem))


@pytest.mark.matrix
def test_duplicated_target_grows_the_tree_of_one_target() -> None:
    own = several_targets_table()
    for name, other in (("kind", "gini"), ("sum", "squared_error")):
        data = {**inputs(), name: own[name]}
        alone = treekit.train(data, name, criterion=other, seed=0, max_depth=5)
        twice = treekit.train(
            {**data, "again": own[name]}, [name, "again"], criterion=other, seed=0, max_depth=5
        )
        one, two = alone.trees[0], twice.trees[0]
        np.testing.assert_array_equal(one.kind, two.kind)
        np.testing.assert_array_equal(one.feature, two.feature)
        np.testing.assert_array_equal(one.threshold, two.threshold)
        np.testing.assert_array_equal(np.hstack([one.value, one.value]), two.value)
        np.testing.assert_allclose(one.gain, two.gain, rtol=1e-12)


@pytest.mark.parametrize(
    "targets",
    [pytest.param(CLASSES, marks=pytest.mark.matrix), NUMBERS],
    ids=["classes", "numbers"],
)
def test_row_of_weight_2_equals_two_rows(targets: list[str]) -> None:
    own = {name: several_targets_table()[name] for name in (*inputs(), *targets)}
    weights = 1 + np.arange(240) % 2
    twice = {name: np.repeat(column, weights) for name, column in own.items()}
    weighed = treekit.train(own, targets, weights=weights, seed=0)
    copied = treekit.train(twice, targets, seed=0)
    for field in ("kind", "feature", "threshold", "missing", "value", "weight", "gain"):
        mine, theirs = getattr(weighed.trees[0], field), getattr(copied.trees[0], field)
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.kernels
@pytest.mark.parametrize(
    "targets",
    [pytest.param(CLASSES, marks=pytest.mark.matrix), NUMBERS],
    ids=["classes", "numbers"],
)
def test_fractional_rows_keep_the_weight_of_every_target(targets: list[str]) -> None:
    model = train(targets, missing="fractional", max_depth=5)
    tree = model.trees[0]
    assert (tree.kind != Split.LEAF).sum() > 5
    for node in np.flatnonzero(tree.kind != Split.LEAF):
        first = tree.first_child[node]
        below = slice(first, first + tree.n_children[node])
        assert tree.weight[below].sum() == pytest.approx(tree.weight[node], rel=1e-12)
        if targets == CLASSES:
            np.testing.assert_allclose(tree.value[below].sum(axis=0), tree.value[node], rtol=1e-9)
    if targets == CLASSES:
        for first, last in ((0, 2), (2, 5)):
            np.testing.assert_allclose(tree.value[:, first:last].sum(axis=1), tree.weight)


# ------------------------------------------------------------------ what goes with it


@pytest.mark.parametrize("targets", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_cost_complexity_uses_the_mean_risk_over_targets(targets: list[str]) -> None:
    whole = train(targets).trees[0]
    pruned = train(targets, pruner="cost_complexity", **{"pruner.alpha": 0.02}).trees[0]
    assert 1 < pruned.n_leaves < whole.n_leaves
    report = train(targets, pruner="cost_complexity").provenance["pruner"]["sequence"]
    if targets == CLASSES:
        right = [whole.value[0, a:b].max() for a, b in ((0, 2), (2, 5))]
        assert report["risk"][-1] == pytest.approx(1 - np.mean(right) / 240)
    else:
        spread = np.mean([np.var(several_targets_table()[name]) for name in NUMBERS])
        assert report["risk"][-1] == pytest.approx(spread, rel=1e-9)
    assert all(error > 0 for error in report["cv_standard_error"])


@pytest.mark.parametrize("targets", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_pruners_score_held_out_rows_on_all_targets(targets: list[str]) -> None:
    whole = train(targets)
    own = make_dataset(
        several_targets_table(), targets, ignore=[n for n in CLASSES + NUMBERS if n not in targets]
    )
    held = {name: several_targets_table(100, 1)[name] for name in (*inputs(), *targets)}

    def error(model: treekit.Model) -> float:
        said = model.predict(inputs(100, 1))
        actual = np.column_stack([held[name] for name in targets])
        return float(np.mean(said != actual if targets == CLASSES else (said - actual) ** 2))

    others = [name for name in CLASSES + NUMBERS if name not in targets]
    pruned = treekit.train(
        several_targets_table(),
        targets,
        ignore=others,
        seed=0,
        pruner="reduced_error",
        validation=held,
    )
    assert make_validation(held, own.schema).y.shape == (100, len(targets))
    assert pruned.n_leaves < whole.n_leaves
    assert error(pruned) < error(whole)
    chosen = train(targets, pruner="cost_complexity", **{"pruner.rule": "one_se"})
    assert chosen.n_leaves < whole.n_leaves
    held_out = train(
        targets, pruner="cost_complexity", **{"pruner.rule": "one_se", "pruner.holdout": 0.3}
    )
    errors = held_out.provenance["pruner"]["sequence"]["held_standard_error"]
    assert np.isfinite(errors).all()


def test_out_of_bag_scores_use_all_targets() -> None:
    labels = train(CLASSES, ensemble="forest", trees=20, oob=True)
    numbers = train(NUMBERS, ensemble="forest", trees=20, oob=True)
    assert 0.5 < labels.provenance["oob"]["accuracy"] < 1.0
    assert 0.3 < numbers.provenance["oob"]["r2"] < 1.0
    again = train(CLASSES, ensemble="forest", trees=20, oob=True, n_jobs=2)
    np.testing.assert_array_equal(labels.units, again.units)


@pytest.mark.parametrize(
    ("targets", "settings", "message"),
    [
        (CLASSES, {"criterion": "gain_ratio"}, "'gain_ratio' chooses between columns"),
        (CLASSES, {"algorithm": "c45"}, "'gain_ratio' of algorithm 'c45'"),
        (NUMBERS, {"criterion": "absolute_error"}, "'absolute_error' uses the order"),
        (CLASSES, {"pruner": "error_based"}, "'error_based' is for one target"),
        (CLASSES, {"pruner": "chi_squared"}, "'chi_squared' is for one target"),
        (CLASSES, {"class_weight": "balanced"}, "class_weight is for one target"),
        (CLASSES, {"priors": {"yes": 0.5}}, "priors is for one target"),
        (CLASSES, {"costs": "yes>no=5"}, "costs is for one target"),
        (CLASSES, {"numeric_side": "c45"}, "numeric_side='c45' counts the classes of one target"),
    ],
)
def test_settings_for_one_target_are_refused(
    targets: list[str], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        train(targets, **settings)


def test_targets_must_be_distinct_and_of_one_kind() -> None:
    own = several_targets_table()
    with pytest.raises(DataError, match="'label' is named twice"):
        treekit.train(own, ["label", "label"])
    with pytest.raises(DataError, match="'label' is for classification and 'sum' for regression"):
        treekit.train(own, ["label", "sum"])
    with pytest.raises(DataError, match="no target is given"):
        treekit.train(own, [])
    with pytest.raises(SettingError, match=r"give the classes of each by name, such as \{'label'"):
        train(CLASSES, classes=["no", "yes"])
    declared = train(CLASSES, classes={"kind": ["hi", "mid", "lo"]}, max_depth=1)
    assert [o.classes for o in declared.schema.outputs] == [("no", "yes"), ("hi", "mid", "lo")]
    gone = {**own, "kind": np.where(np.arange(240) == 5, None, own["kind"])}
    with pytest.raises(DataError, match=r"'kind'.*missing.*row 5"):
        treekit.train(gone, CLASSES)


# ------------------------------------------------------------------ artifacts, command line


SEVERAL_TARGETS_FOREST: dict[str, Any] = {"ensemble": "forest", "trees": 3}
PARTS: dict[str, Any] = {"missing": "fractional"}
SUMS: dict[str, Any] = {"missing": "surrogate", "splitter": "oblique"}


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("settings", "targets"),
    [
        pytest.param(SEVERAL_TARGETS_FOREST, CLASSES, id="forest-classes"),
        pytest.param(
            SEVERAL_TARGETS_FOREST, NUMBERS, id="forest-numbers", marks=pytest.mark.matrix
        ),
        pytest.param(PARTS, CLASSES, id="fractional-classes", marks=pytest.mark.matrix),
        pytest.param(PARTS, NUMBERS, id="fractional-numbers"),
        pytest.param(SUMS, CLASSES, id="surrogate and oblique-classes", marks=pytest.mark.matrix),
        pytest.param(SUMS, NUMBERS, id="surrogate and oblique-numbers", marks=pytest.mark.matrix),
    ],
)
def test_every_artifact_of_a_trained_model_is_equal(
    tmp_path: Path, targets: list[str], settings: dict[str, Any]
) -> None:
    need("gcc")
    model = train(targets, max_depth=4, **settings)
    model.save(tmp_path / "m.treekit")
    assert treekit.load(tmp_path / "m.treekit").schema == model.schema
    paths = [
        treekit.export(model, name, tmp_path / f"m{suffix}")[0]
        for name, suffix in (
            ("c", ".c"),
            ("python", ".py"),
            ("rules", ".rules.txt"),
            ("onnx", ".onnx"),
        )
    ]
    report = treekit.verify(model, paths)
    assert report.equal, str(report)


def test_the_command_line_trains_and_scores_several_targets(tmp_path: Path) -> None:
    own = several_targets_table()
    names = [*inputs(), *CLASSES]
    for name, rows in (("train.csv", slice(0, 180)), ("test.csv", slice(180, 240))):
        lines = zip(*(own[column][rows] for column in names), strict=True)
        text = [",".join("" if cell != cell else str(cell) for cell in line) for line in lines]
        (tmp_path / name).write_text("\n".join([",".join(names), *text]) + "\n")
    wanted = ["train", str(tmp_path / "train.csv"), "--target", "label", "--target", "kind"]
    wanted += ["-o", str(tmp_path / "m.treekit"), "--test", str(tmp_path / "test.csv")]
    done = CliRunner().invoke(main, [*wanted, "--set", "max_depth=4", "--seed", "0"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("score on 60 rows of ")
    assert "accuracy of 'label' 0." in done.output
    assert "accuracy of 'kind' 0." in done.output
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "m.treekit")])
    assert "'label'" in shown.output
    assert "'kind'" in shown.output


# ------------------------------------------------------------------ beside scikit-learn


@pytest.mark.parametrize("criterion", ["gini", pytest.param("entropy", marks=pytest.mark.matrix)])
@pytest.mark.parametrize(
    "class_weight", [None, "balanced", [{"yes": 2, "no": 1}, {"lo": 1, "mid": 1, "hi": 3}]]
)
def test_multi_output_classification_trees_equal_scikit_learn(
    criterion: str, class_weight: Any
) -> None:
    x, y, _ = plain()
    how = {"criterion": criterion, "class_weight": class_weight, "max_depth": 3}
    mine = DecisionTreeClassifier(**how, random_state=0).fit(x, y)
    theirs = sklearn.tree.DecisionTreeClassifier(**how, random_state=0).fit(x, y)
    assert mine.n_outputs_ == 2
    for own, other in zip(mine.classes_, theirs.classes_, strict=True):
        np.testing.assert_array_equal(own, other)
    np.testing.assert_array_equal(mine.predict(x), theirs.predict(x))
    assert len(mine.predict_proba(x)) == 2
    for own, other in zip(mine.predict_proba(x), theirs.predict_proba(x), strict=True):
        np.testing.assert_allclose(own, other, atol=1e-6)
    np.testing.assert_allclose(np.sort(mine.tree_.impurity), np.sort(theirs.tree_.impurity))
    assert mine.tree_.value.shape == theirs.tree_.value.shape
    np.testing.assert_array_equal(mine.to_sklearn().predict(x), theirs.predict(x))


def test_multi_output_regression_trees_equal_scikit_learn() -> None:
    x, _, y = plain()
    mine = DecisionTreeRegressor(max_depth=4, random_state=0).fit(x, y)
    theirs = sklearn.tree.DecisionTreeRegressor(max_depth=4, random_state=0).fit(x, y)
    np.testing.assert_allclose(mine.predict(x), theirs.predict(x), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.sort(mine.tree_.impurity), np.sort(theirs.tree_.impurity))
    assert mine.score(x, y) == pytest.approx(theirs.score(x, y))
    mine.set_params(max_depth=None)
    own, other = (tree.cost_complexity_pruning_path(x, y) for tree in (mine, theirs.set_params(
        max_depth=None)))  # fmt: skip
    alpha = other.ccp_alphas[-8]
    assert own.ccp_alphas[-8] == pytest.approx(alpha)
    mine.set_params(ccp_alpha=alpha * 1.001).fit(x, y)
    theirs.set_params(ccp_alpha=alpha * 1.001).fit(x, y)
    assert mine.get_n_leaves() == theirs.get_n_leaves()


def test_forests_predict_and_score_all_outputs() -> None:
    x, labels, numbers = plain()
    mine = RandomForestClassifier(n_estimators=40, oob_score=True, random_state=0).fit(x, labels)
    assert mine.predict(x).shape == labels.shape
    assert mine.oob_decision_function_.shape == (240, 3, 2)
    np.testing.assert_allclose(np.nansum(mine.oob_decision_function_, axis=1), 1.0)
    said = [mine.classes_[k][mine.oob_decision_function_[:, :, k].argmax(axis=1)] for k in (0, 1)]
    right = (np.column_stack(said) == labels).all(axis=1).mean()
    assert mine.oob_score_ == pytest.approx(right, abs=0.02)  # shares that tie by rounding
    assert mine.estimators_[0].predict(x).shape == labels.shape
    how = {"n_estimators": 40, "oob_score": True, "random_state": 0}
    own = RandomForestRegressor(**how).fit(x, numbers)
    theirs = sklearn.ensemble.RandomForestRegressor(**how).fit(x, numbers)
    assert own.oob_score_ == pytest.approx(theirs.oob_score_, abs=0.05)
    assert own.oob_score_ == pytest.approx(r2_score(numbers, own.oob_prediction_))


def test_a_validation_target_has_as_many_outputs() -> None:
    x, labels, _ = plain()
    tree = DecisionTreeClassifier(pruner="reduced_error", random_state=0)
    tree.fit(x[:180], labels[:180], validation=(x[180:], labels[180:]))
    assert tree.get_n_leaves() < 60
    with pytest.raises(DataError, match="y has 1 columns, but there are 2 outputs"):
        tree.fit(x[:180], labels[:180], validation=(x[180:], labels[180:, 0]))
    strange = np.where(np.arange(60)[:, None] == 3, "other", labels[180:])
    with pytest.raises(DataError, match="'other', which is not a label"):
        tree.fit(x[:180], labels[:180], validation=(x[180:], strange))


# ---------------------------------------------------------------- selected rows


@settings(deadline=None)
@given(data=st.data())
def test_selected_rows_equal_the_plain_loop(data: Any) -> None:
    n = data.draw(st.integers(1, 12))
    some = st.lists(st.integers(0, n - 1), max_size=15)
    width = data.draw(st.sampled_from([1, 3]))
    number = st.sampled_from([0.0, 0.5, 1.0, 3.0])
    values = np.array(data.draw(st.lists(number, min_size=n * width, max_size=n * width)))
    values = values.reshape(n, width)
    cells = np.arange(n if width == 1 else 0, dtype=np.uint32)
    quantile = 0.5 if width == 3 and data.draw(st.booleans()) else None
    target = NumberTarget(cells, values, 3) if width == 3 else ClassTarget(cells, values, n)
    if quantile is not None:
        target = RankTarget(cells, values, 4, level=quantile)
    ids = np.array(data.draw(some), np.uint32)
    repeats = data.draw(
        st.none() | st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=len(ids), max_size=len(ids))
    )
    found = target.select_rows(ids, None if repeats is None else np.array(repeats))
    expected = []
    for k, row in enumerate(ids.tolist()):
        own = values[row] * (1.0 if repeats is None else repeats[k])
        if own[0] > 0:
            if quantile is not None:
                own[1] = values[row, 1]
            expected.append((row, own.tolist()))
    if quantile is not None:
        expected.sort(key=lambda pair: pair[1][1])
    assert found.ids.tolist() == [row for row, _ in expected]
    assert found.values.tolist() == [own for _, own in expected]
    if width == 1:
        assert found.cells.tolist() == found.ids.tolist()
