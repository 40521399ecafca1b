"""Algorithms by name are settings and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import treekit
from tests.test_c45 import J48
from tests.test_training import noisy, same_tree
from treekit import DataError, SettingError, registry
from treekit.cli import main
from treekit.training.settings import PRESETS, SETTINGS, preset

# The kernels of random thresholds are compiled for the matrix alone.
TRAINED = [
    pytest.param(name, marks=pytest.mark.matrix) if name == "extra_trees" else name
    for name in PRESETS
]
FORESTS = [name for name in PRESETS if preset(name, "classification").get("ensemble") == "forest"]


def whole(**changes):
    """A table without missing cells, which every algorithm takes."""
    table = noisy(200)
    return table | {"age": np.nan_to_num(table["age"], nan=40.0).tolist()} | changes


def few(name):
    return {"trees": 4} if name in FORESTS else {}


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_holds_settings_that_training_and_components_declare(name, task):
    names = {setting.name for setting in SETTINGS}
    settings = preset(name, task, forest=False)
    for key in settings:
        kind, dot, own = key.partition(".")
        if dot:
            declared = getattr(registry, kind)(settings[kind]).settings
            assert own in {setting.name for setting in declared}
        else:
            assert key in names


@pytest.mark.parametrize("name", TRAINED)
def test_the_name_changes_nothing_that_its_settings_do_not(name):
    by_name = treekit.train(whole(), "y", algorithm=name, seed=3, **few(name))
    settings = preset(name, "classification") | {"seed": 3} | few(name)
    written_out = treekit.train(whole(), "y", **settings)
    assert by_name.settings == written_out.settings | {"algorithm": name}
    for one, other in zip(by_name.trees, written_out.trees, strict=True):
        same_tree(one, other)


@pytest.mark.parametrize("name", TRAINED)
def test_the_recorded_settings_train_the_same_model_again(name):
    model = treekit.train(whole(), "y", algorithm=name, seed=1, **few(name))
    recorded = dict(model.settings)
    again = treekit.train(whole(), "y", **recorded)
    assert again.settings == model.settings
    for one, other in zip(again.trees, model.trees, strict=True):
        same_tree(one, other)


def test_explicit_settings_win():
    model = treekit.train(whole(), "y", algorithm="stump", max_depth=2, seed=0)
    assert (model.depth, model.settings["algorithm"]) == (2, "stump")
    model = treekit.train(whole(), "y", algorithm="cart", pruner=None, seed=0)
    assert model.settings["pruner"] is None
    assert not any(key.startswith("pruner.") for key in model.settings)


def test_another_component_leaves_the_settings_of_the_preset_s_own():
    model = treekit.train(whole(), "y", algorithm="c45", criterion="gini", seed=0)
    assert model.settings["criterion"] == "gini"
    assert not any(key.startswith("criterion.") for key in model.settings)
    model = treekit.train(whole(), "y", algorithm="c45", seed=0, **{"criterion.slack": 0.0})
    assert (model.settings["criterion"], model.settings["criterion.slack"]) == ("gain_ratio", 0.0)


def test_a_forest_of_an_algorithm_s_trees_leaves_out_what_holds_for_a_single_tree():
    alone = treekit.train(whole(), "y", algorithm="cart", seed=0)
    assert alone.settings["pruner"] == "cost_complexity"
    forest = treekit.train(whole(), "y", algorithm="cart", ensemble="forest", trees=3, seed=0)
    assert forest.settings["pruner"] is None
    growth = preset("cart", "classification", forest=True)
    plain = treekit.train(whole(), "y", ensemble="forest", trees=3, seed=0, **growth)
    for one, other in zip(forest.trees, plain.trees, strict=True):
        same_tree(one, other)


def test_an_algorithm_for_classes_refuses_a_number_by_name():
    table = whole(y=noisy(200, task="regression")["y"])
    for name in ("id3", "c45"):
        with pytest.raises(SettingError, match=f"of algorithm '{name}' is for classification"):
            treekit.train(table, "y", algorithm=name)
    with pytest.raises(SettingError, match="voting='hard' is for classes"):
        treekit.train(table, "y", algorithm="bagging", voting="hard")


def test_quinlan_s_id3_knows_no_missing_values():
    with pytest.raises(DataError, match="missing='error' allows none"):
        treekit.train(noisy(), "y", algorithm="id3")


def test_an_unknown_algorithm_is_refused_with_those_there_are():
    with pytest.raises(SettingError, match=r"one of id3, c45, cart, stump, .* not 'c46'"):
        treekit.train(whole(), "y", algorithm="c46")


def test_a_stump_has_one_split_whatever_the_task():
    table = whole(y=noisy(200, task="regression")["y"])
    for data in (whole(), table):
        assert treekit.train(data, "y", algorithm="stump", seed=0).trees[0].n_nodes == 3


def test_the_command_line_s_help_names_every_algorithm():
    told = " ".join(CliRunner().invoke(main, ["train", "--help"]).stdout.split())
    assert f"Settings to start from: {', '.join(PRESETS)}." in told


def test_weka_s_j48_is_c45_with_three_settings_changed():
    # test_error_based compares what these settings grow with the trees of Weka.
    changes = {"criterion.tolerance": 1e-6, "min_gain": 0.0, "pruner.limit": "j48"}
    settings = preset("c45", "classification") | changes
    for name, value in J48.items():
        assert name in ("dtype", "seed") or settings[name] == value


def test_forests_of_the_literature_differ_in_what_they_draw():
    number = whole(y=noisy(200, task="regression")["y"])
    recorded = {
        name: treekit.train(number, "y", algorithm=name, seed=0, trees=2).settings
        for name in ("bagging", "random_forest")
    }
    assert recorded["bagging"]["max_features"] == "all"
    assert recorded["random_forest"]["max_features"] == 1 / 3
    assert preset("bagging", "classification")["trees"] == 50
    assert preset("bagging", "regression")["trees"] == 25


def test_what_an_algorithm_says_of_missing_cells_holds_for_the_validation_table():
    gone = whole(age=[None, *whole()["age"][1:]])
    settings = {"algorithm": "id3", "pruner": "reduced_error", "seed": 0}
    for more in ({}, {"missing": "error"}):
        with pytest.raises(DataError, match="in the validation table, column 'age' has 1 missing"):
            treekit.train(whole(), "y", validation=gone, **settings, **more)
    lenient = treekit.train(whole(), "y", validation=gone, missing="direction", **settings)
    assert lenient.missing == "direction"


@pytest.mark.parametrize(
    ("rows", "settings", "leaf"),
    [
        (5_000, {}, 5.0),
        (4_999, {}, 1.0),
        (5_000, {"algorithm": "random_forest"}, 1.0),
        (5_000, {"ensemble": "tree"}, 1.0),
        (5_000, {"min_weight_leaf": 2}, 2.0),
    ],
)
def test_a_forest_of_many_rows_has_leaves_of_five_rows(
    rows: int, settings: dict[str, Any], leaf: float
) -> None:
    x = np.arange(rows) % 50
    chosen = {"ensemble": "forest", "max_depth": 3} | settings
    chosen |= {"trees": 2, "oob": False} if chosen["ensemble"] == "forest" else {}
    classes = treekit.train({"x": x, "y": np.where(x % 7 > 2, "yes", "no")}, "y", seed=0, **chosen)
    assert classes.settings["min_weight_leaf"] == leaf
    numbers = treekit.train({"x": x, "y": x * 1.0}, "y", seed=0, **chosen)
    assert numbers.settings["min_weight_leaf"] == settings.get("min_weight_leaf", 1.0)
