"""Settings are declared once and checked the same way from Python and the command line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import treekit
from tests.literature.test_c45 import J48
from tests.training.test_training import noisy, same_tree
from treekit import DataError, registry
from treekit.cli import main
from treekit.contracts import Setting
from treekit.errors import SettingError
from treekit.settings import check_declaration, help_rows, parse_assignments, resolve
from treekit.training.settings import PRESETS, SETTINGS, get_preset_settings

# ---------------------------------------------------------------- settings

SETTINGS_SETTINGS = (
    Setting("max_depth", None, "deepest leaf", type=int, minimum=1),
    Setting("rate", 0.5, "share of rows", minimum=0, maximum=1),
    Setting("features", "sqrt", "columns tried at a node", (str, int, float), ("sqrt", "all"), 0),
    Setting("bootstrap", True, "draw rows with replacement"),
    Setting("label", "", "any text"),
    Setting("form", "auto", "how it is written", choices=("auto", "table")),
    Setting("bits", 8, "width of a code", choices=(8, 16)),
)


def resolved(**given):
    return resolve(SETTINGS_SETTINGS, given, "training")


def parsed(*texts):
    return parse_assignments(SETTINGS_SETTINGS, texts, "training")


def test_defaults_are_used_for_settings_not_given():
    assert resolved(rate=0.25) == {
        "max_depth": None,
        "rate": 0.25,
        "features": "sqrt",
        "bootstrap": True,
        "label": "",
        "form": "auto",
        "bits": 8,
    }


def test_an_integer_is_accepted_as_a_float():
    rate = resolved(rate=1)["rate"]
    assert (rate, type(rate)) == (1.0, float)


def test_a_numpy_scalar_becomes_a_plain_value():
    values = resolved(max_depth=np.int64(3), rate=np.float32(0.5), bootstrap=np.bool_(False))
    assert [type(values[name]) for name in ("max_depth", "rate", "bootstrap")] == [int, float, bool]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_depth", 0),
        ("max_depth", True),
        ("max_depth", 2.0),
        ("max_depth", "3"),
        ("rate", -0.1),
        ("rate", 1.5),
        ("rate", math.nan),
        ("rate", None),
        ("features", "sqr"),
        ("features", -1),
        ("features", math.inf),
        ("bootstrap", 1),
        ("label", 7),
        ("label", ["a"]),
        ("form", "TABLE"),
        ("bits", 12),
    ],
)
def test_a_value_outside_its_declaration_is_refused(name, value):
    with pytest.raises(SettingError, match=f"setting '{name}' of training must be .*, not "):
        resolved(**{name: value})


def test_choices_restrict_only_values_of_their_type():
    assert resolved(features=7)["features"] == 7
    assert resolved(features=0.5)["features"] == 0.5


def test_error_of_an_invalid_value_states_accepted_values():
    with pytest.raises(SettingError) as error:
        resolved(max_depth=0)
    assert str(error.value) == (
        "setting 'max_depth' of training must be an integer of at least 1 or none, not 0"
    )


def test_bounds_may_be_exclusive():
    shares = (Setting("share", 0.5, "a share", above=0.0, maximum=1.0),)
    assert resolve(shares, {"share": 5e-324}, "training") == {"share": 5e-324}
    assert resolve(shares, {"share": 1}, "training") == {"share": 1.0}
    with pytest.raises(SettingError, match=r"a number above 0 and at most 1, not 0\.0"):
        resolve(shares, {"share": 0}, "training")
    with pytest.raises(SettingError, match=r"a number above 1, not -inf"):
        resolve((Setting("base", 2.0, "a base", above=1.0),), {"base": -math.inf}, "training")


def test_near_choice_is_suggested_in_any_case():
    forms = (Setting("form", "table", "a form", choices=("table", "if_else")),)
    for text, near in [("TABLE", "table"), ("If-Else", "if_else")]:
        with pytest.raises(SettingError, match=f"not '{text}'; did you mean '{near}'"):
            resolve(forms, {"form": text}, "training")


def test_an_unknown_setting_gets_a_suggestion_or_the_list():
    with pytest.raises(SettingError) as error:
        resolved(max_dept=3)
    assert str(error.value) == "training has no setting 'max_dept'; did you mean 'max_depth'?"
    with pytest.raises(SettingError, match="no setting 'zz'; settings: max_depth, rate"):
        resolved(zz=3)
    with pytest.raises(SettingError, match="no setting 'zz'; treekit train --help-settings all"):
        resolve(SETTINGS, {"zz": 3}, "training")


def test_a_component_without_settings_is_listed_as_such():
    with pytest.raises(SettingError, match="'gini' has no setting 'q'; it has no settings"):
        resolve((), {"q": 1}, "criterion 'gini'")


def test_texts_become_values_of_the_declared_type():
    assert parsed("max_depth=7", "rate=1", "bootstrap=No", "label=1", "bits=16") == {
        "max_depth": 7,
        "rate": 1.0,
        "bootstrap": False,
        "label": "1",
        "bits": 16,
    }


@pytest.mark.parametrize(
    ("text", "value"), [("sqrt", "sqrt"), ("3", 3), ("0.3", 0.3), ("1e2", 100.0)]
)
def test_text_value_is_parsed_as_the_first_matching_type(text, value):
    (got,) = parsed(f"features={text}").values()
    assert (got, type(got)) == (value, type(value))


def test_none_is_a_value_only_where_it_is_accepted():
    assert parsed("max_depth=none", "label=none") == {"max_depth": None, "label": "none"}
    with pytest.raises(SettingError, match="'rate'"):
        parsed("rate=none")


def test_a_declared_none_is_accepted_beside_another_default():
    setting = Setting("splitter", "auto", "split search", type=(str, type(None)))
    check_declaration(setting)
    assert resolve((setting,), {"splitter": None}, "training") == {"splitter": None}
    assert help_rows((setting,))[0][1] == "text or none"


def test_dashes_and_spaces_are_accepted_and_values_may_contain_equals():
    assert parsed("max-depth = 4", "label=a=b") == {"max_depth": 4, "label": "a=b"}


def test_a_text_without_equals_is_refused():
    with pytest.raises(SettingError, match="'max_depth' is not a setting; write KEY=VALUE"):
        parsed("max_depth")


def test_a_setting_given_twice_is_refused():
    with pytest.raises(SettingError, match="'rate' is given twice"):
        parsed("rate=0.1", "rate=0.2")


@pytest.mark.parametrize("text", ["rate=nan", "rate=inf", "max_depth=x", "form=x", "bootstrap=2"])
def test_a_text_outside_its_declaration_is_refused(text):
    with pytest.raises(SettingError, match=text.partition("=")[0]):
        parsed(text)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "max_depth": st.none() | st.integers(1, 10**9),
            "rate": st.floats(0, 1),
            "features": st.sampled_from(["sqrt", "all"]) | st.floats(0, 1) | st.integers(0, 99),
            "bootstrap": st.booleans(),
            "form": st.sampled_from(["auto", "table"]),
            "bits": st.sampled_from([8, 16]),
        },
    )
)
def test_value_formatted_as_text_is_parsed_to_itself(values):
    texts = [f"{name}={value}" for name, value in values.items()]
    got = parsed(*texts)
    assert got == values
    assert [type(got[name]) for name in values] == [type(value) for value in values.values()]


def test_help_rows_state_type_default_and_meaning():
    rows = {row[0]: row[1:] for row in help_rows(SETTINGS_SETTINGS)}
    assert rows["max_depth"] == ("an integer of at least 1 or none", "none", "deepest leaf")
    assert rows["rate"] == ("a number from 0 to 1", "0.5", "share of rows")
    assert rows["bootstrap"] == ("true or false", "true", "draw rows with replacement")
    assert rows["form"][0] == "one of auto, table"
    assert rows["features"][0] == (
        "an integer of at least 0 or a number of at least 0 or one of sqrt, all"
    )


@pytest.mark.parametrize("setting", SETTINGS_SETTINGS)
def test_valid_declaration_is_accepted(setting):
    check_declaration(setting)


@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        (Setting("two words", 1, "x"), "not a Python identifier"),
        (Setting("a", None, "x"), "NoneType"),
        (Setting("a", [1], "x"), "list"),
        (Setting("a", 1, ""), "no help"),
        (Setting("a", 5, "x", maximum=4), "at most 4, not 5"),
        (Setting("a", "z", "x", choices=("x", "y")), "one of x, y, not 'z'"),
        (Setting("a", 0.5, "x", type=int), "an integer, not 0.5"),
        (Setting("a", 1, "x", minimum="a"), "minimum of setting 'a' is 'a'; it must be a number"),
        (Setting("a", "text", "x", maximum="b"), "maximum of setting 'a' is 'b'; it must be a num"),
        (Setting("a", 1.0, "x", above=float("nan")), "above of setting 'a' is nan; it must be"),
        (Setting("a", 1, "x", minimum=True), "minimum of setting 'a' is True; it must be a number"),
    ],
)
def test_a_faulty_declaration_is_reported(setting, cause):
    with pytest.raises(SettingError, match=cause):
        check_declaration(setting)


# ---------------------------------------------------------------- presets
# Algorithms by name are settings and nothing else.

# The kernels of random thresholds are compiled for the matrix alone.
TRAINED = [
    pytest.param(name, marks=pytest.mark.matrix) if name == "extra_trees" else name
    for name in PRESETS
]
FORESTS = [
    name
    for name in PRESETS
    if get_preset_settings(name, "classification").get("ensemble") == "forest"
]


def whole(**changes):
    """A table without missing cells, which every algorithm takes."""
    table = noisy(200)
    return table | {"age": np.nan_to_num(table["age"], nan=40.0).tolist()} | changes


def few(name):
    return {"trees": 4} if name in FORESTS else {}


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("name", PRESETS)
def test_preset_settings_are_declared_by_training_or_its_components(name, task):
    names = {setting.name for setting in SETTINGS}
    settings = get_preset_settings(name, task, "tree")
    for key in settings:
        kind, dot, own = key.partition(".")
        if dot:
            declared = registry.get(kind, settings[kind]).settings
            assert own in {setting.name for setting in declared}
        else:
            assert key in names


@pytest.mark.kernels
@pytest.mark.parametrize("name", TRAINED)
def test_algorithm_name_equals_its_explicit_settings(name):
    by_name = treekit.train(whole(), "y", algorithm=name, seed=3, **few(name))
    settings = get_preset_settings(name, "classification") | {"seed": 3} | few(name)
    written_out = treekit.train(whole(), "y", **settings)
    assert by_name.settings == written_out.settings | {"algorithm": name}
    for one, other in zip(by_name.trees, written_out.trees, strict=True):
        same_tree(one, other)


@pytest.mark.kernels
@pytest.mark.parametrize("name", TRAINED)
def test_the_recorded_settings_train_the_same_model_again(name):
    model = treekit.train(whole(), "y", algorithm=name, seed=1, **few(name))
    recorded = dict(model.settings)
    again = treekit.train(whole(), "y", **recorded)
    assert again.settings == model.settings
    for one, other in zip(again.trees, model.trees, strict=True):
        same_tree(one, other)


@pytest.mark.kernels
def test_explicit_settings_override_the_algorithm():
    model = treekit.train(whole(), "y", algorithm="stump", max_depth=2, seed=0)
    assert (model.depth, model.settings["algorithm"]) == (2, "stump")
    model = treekit.train(whole(), "y", algorithm="cart", pruner=None, seed=0)
    assert model.settings["pruner"] is None
    assert not any(key.startswith("pruner.") for key in model.settings)


@pytest.mark.kernels
def test_choosing_another_component_drops_its_preset_settings():
    model = treekit.train(whole(), "y", algorithm="c45", criterion="gini", seed=0)
    assert model.settings["criterion"] == "gini"
    assert not any(key.startswith("criterion.") for key in model.settings)
    model = treekit.train(whole(), "y", algorithm="c45", seed=0, **{"criterion.slack": 0.0})
    assert (model.settings["criterion"], model.settings["criterion.slack"]) == ("gain_ratio", 0.0)


@pytest.mark.kernels
def test_forest_of_an_algorithm_omits_single_tree_settings():
    alone = treekit.train(whole(), "y", algorithm="cart", seed=0)
    assert alone.settings["pruner"] == "cost_complexity"
    forest = treekit.train(whole(), "y", algorithm="cart", ensemble="forest", trees=3, seed=0)
    assert forest.settings["pruner"] is None
    growth = get_preset_settings("cart", "classification", "forest")
    plain = treekit.train(whole(), "y", ensemble="forest", trees=3, seed=0, **growth)
    for one, other in zip(forest.trees, plain.trees, strict=True):
        same_tree(one, other)


def test_classification_algorithm_refuses_a_regression_target():
    table = whole(y=noisy(200, task="regression")["y"])
    for name in ("id3", "c45"):
        with pytest.raises(SettingError, match=f"of algorithm '{name}' is for classification"):
            treekit.train(table, "y", algorithm=name)
    with pytest.raises(SettingError, match="voting='hard' is for classification"):
        treekit.train(table, "y", algorithm="bagging", voting="hard")


def test_id3_refuses_missing_values():
    with pytest.raises(DataError, match="missing='error' allows none"):
        treekit.train(noisy(), "y", algorithm="id3")


def test_unknown_algorithm_is_refused_with_the_known_ones():
    with pytest.raises(SettingError, match=r"one of id3, c45, cart, stump, .* not 'c46'"):
        treekit.train(whole(), "y", algorithm="c46")


def test_stump_has_one_split_for_any_task():
    table = whole(y=noisy(200, task="regression")["y"])
    for data in (whole(), table):
        assert treekit.train(data, "y", algorithm="stump", seed=0).trees[0].n_nodes == 3


def test_command_line_help_lists_every_algorithm():
    told = " ".join(CliRunner().invoke(main, ["train", "--help"]).stdout.split())
    assert f"Preset of settings: {', '.join(PRESETS)}." in told


def test_algorithm_j48_is_c45_with_three_settings_changed():
    # test_error_based compares what these settings grow with the trees of Weka.
    changes = {"criterion.tolerance": 1e-6, "min_gain": 0.0, "pruner.limit": "j48"}
    settings = get_preset_settings("c45", "classification") | changes
    for name, value in J48.items():
        assert name in ("dtype", "seed") or settings[name] == value


def test_forest_algorithms_differ_in_sampling_settings():
    number = whole(y=noisy(200, task="regression")["y"])
    recorded = {
        name: treekit.train(number, "y", algorithm=name, seed=0, trees=2).settings
        for name in ("bagging", "random_forest")
    }
    assert recorded["bagging"]["max_features"] == "all"
    assert recorded["random_forest"]["max_features"] == 1 / 3
    assert get_preset_settings("bagging", "classification")["trees"] == 50
    assert get_preset_settings("bagging", "regression")["trees"] == 25


def test_missing_policy_of_an_algorithm_applies_to_the_validation_table():
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


def test_settings_of_components_may_be_a_dict():
    table = noisy(60), "y"
    dotted = treekit.train(*table, pruner="cost_complexity", seed=0, **{"pruner.alpha": 0.03})
    given = {"pruner": "cost_complexity", "pruner_settings": {"alpha": 0.03}, "seed": 0}
    assert treekit.train(*table, **given).settings == dotted.settings
    with pytest.raises(SettingError, match=r"pruner\.alpha is given twice"):
        treekit.train(*table, **given, **{"pruner.alpha": 0.03})
    with pytest.raises(SettingError, match="pruner_settings is 3; give a dict"):
        treekit.train(*table, pruner="cost_complexity", pruner_settings=3)
    scores = treekit.evaluate(table[0], target=table[1], cv=2, **given).to_dict()
    same = {**given, "pruner.alpha": 0.03}
    del same["pruner_settings"]
    assert scores == treekit.evaluate(table[0], target=table[1], cv=2, **same).to_dict()
