"""Models read from LightGBM: their paths and predictions equal LightGBM's."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt
import pytest
from treekit_importers.lightgbm import read_lightgbm, recognises_lightgbm

import treekit
from tests.foreign import beside, frame, make_classes
from tests.fuzz.damage import broken_bytes, broken_text, mixed
from tests.fuzz.harness import Subject, cases, fuzz
from tests.interop.test_interop import is_sound
from treekit.errors import ModelError, ModelFileError, SettingError
from treekit.testing import check_importer

FEW = {
    "verbose": -1,
    "min_data_in_leaf": 5,
    "min_data_per_group": 5,
    "cat_smooth": 1.0,
    "seed": 1,
    "num_threads": 1,
}


def trained(rounds: int = 12, categories: bool = False, rows: Any = None, **settings: Any) -> Any:
    table = frame(categories=categories) if rows is None else rows
    y = make_classes(table)
    if "num_class" not in settings:
        y = y > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = lightgbm.Dataset(table, y.astype(float))
        return lightgbm.train(FEW | settings, data, rounds)


def thresholds_of(booster: Any) -> list[float]:
    lines = re.findall(r"^threshold=(.*)$", booster.model_to_string(), re.M)
    return [float(text) for line in lines for text in line.split()]


def probes(booster: Any, categories: bool = False) -> Any:
    table = frame(150, seed=7, categories=categories)
    return beside(thresholds_of(booster), table, ("height", "width"))


def assert_margins_equal(model: treekit.Model, theirs: npt.NDArray[Any], rows: Any) -> None:
    """Within half a step of the grid a tree, and what LightGBM's own sum may lose."""
    ours = model.predict(rows)
    leaves = [np.abs(tree.value[tree.leaves]).max() for tree in model.trees]
    bound = len(leaves) * (2.0 ** (model.exponent - 1) + 2.0**-53 * sum(leaves))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)
    assert bound < 1e-12 * max(1.0, np.abs(theirs).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("categories", [False, True])
def test_binary_margins_labels_and_probabilities_equal_lightgbm(
    categories: bool, dtype: str
) -> None:
    booster = trained(categories=categories, objective="binary")
    rows = probes(booster, categories)
    margins = booster.predict(rows, raw_score=True)
    assert_margins_equal(read_lightgbm(booster, answer="margins", dtype=dtype), margins, rows)
    model = read_lightgbm(booster, dtype=dtype)
    np.testing.assert_array_equal(model.predict(rows), (margins > 0).astype(int))
    shares = model.predict_proba(rows)
    np.testing.assert_allclose(shares[:, 1], booster.predict(rows), rtol=1e-13)
    assert model.schema.dtype == dtype


def test_doubles_between_two_float32_values_take_the_branch_of_lightgbm(
    tmp_path: Path,
) -> None:
    booster = trained(objective="regression")
    at = np.array(thresholds_of(booster))
    rows = np.repeat(np.concatenate([at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf)]), 3)
    rows = rows.reshape(-1, 3)
    wide = read_lightgbm(booster)
    assert wide.schema.dtype == "float64"
    assert_margins_equal(wide, booster.predict(rows), rows)
    rounded = read_lightgbm(booster, dtype="float32")
    assert not np.array_equal(rounded.predict(rows), wide.predict(rows))
    low = re.sub(r"threshold=\S+", "threshold=-1e300", booster.model_to_string(), count=1)
    (tmp_path / "low.txt").write_text(low)
    with pytest.raises(ModelError, match="dtype='float64'"):
        treekit.read_model(tmp_path / "low.txt", dtype="float32")


@pytest.mark.parametrize("categories", [False, True])
@pytest.mark.parametrize("objective", ["multiclass", "multiclassova"])
def test_models_of_three_classes_predict_equally(objective: str, categories: bool) -> None:
    booster = trained(6, categories, objective=objective, num_class=3, sigmoid=1.7)
    rows = probes(booster, categories)
    margins = booster.predict(rows, raw_score=True)
    raw = read_lightgbm(booster, answer="margins")
    assert [output.name for output in raw.schema.outputs] == ["0", "1", "2"]
    assert_margins_equal(raw, margins, rows)
    model = read_lightgbm(booster)
    np.testing.assert_array_equal(model.predict(rows), margins.argmax(axis=1))
    np.testing.assert_allclose(model.predict_proba(rows), booster.predict(rows), rtol=1e-13)


@pytest.mark.parametrize(
    "settings",
    [
        *({"objective": name} for name in ("regression", "regression_l1", "huber", "quantile")),
        *({"objective": name} for name in ("poisson", "tweedie", "cross_entropy", "mape", "fair")),
        {"objective": "binary", "sigmoid": 0.7},
        {"objective": "regression", "use_missing": False},
        {"objective": "regression", "boosting": "dart"},
        {"objective": "regression", "boosting": "goss"},
        {"objective": "regression", "extra_trees": True},
    ],
    ids=str,
)
def test_predictions_of_every_regression_objective_are_equal(settings: dict[str, Any]) -> None:
    booster = trained(6, **settings)
    rows = probes(booster)
    raw = read_lightgbm(booster, answer="margins")
    assert_margins_equal(raw, booster.predict(rows, raw_score=True), rows)
    model, theirs = read_lightgbm(booster), booster.predict(rows)
    numbers = model.schema.task == "regression"
    ours = model.predict(rows) if numbers else model.predict_proba(rows)[:, 1]
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("objective", ["binary", "regression"])
def test_random_forests_predict_the_mean_of_their_trees(objective: str) -> None:
    booster = trained(7, objective=objective, boosting="rf", bagging_freq=1, bagging_fraction=0.5)
    rows = probes(booster)
    model = read_lightgbm(booster)
    ours = model.predict(rows) if objective == "regression" else model.predict_proba(rows)[:, 1]
    np.testing.assert_allclose(ours, booster.predict(rows), rtol=1e-12, atol=1e-14)


def test_unseen_and_missing_categories_take_the_branch_of_lightgbm() -> None:
    booster = trained(categories=True, objective="binary")
    table = frame(300, seed=5)
    table["soil"] = table["soil"].cat.add_categories(["peat"]).fillna("peat")
    table["zone"] = [None if i % 7 == 0 else zone for i, zone in enumerate(table["zone"])]
    table["zone"] = table["zone"].astype("category")
    model = read_lightgbm(booster)
    assert model.schema.columns[3].levels == ("*/", "clay", "loam", "sand", "silt")
    np.testing.assert_allclose(model.predict_proba(table)[:, 1], booster.predict(table), rtol=1e-13)


def test_integer_categories_keep_their_codes() -> None:
    random = np.random.default_rng(3)
    rows = np.stack([random.integers(0, 40, 500), random.normal(size=500)], axis=1)
    rows = rows.astype(np.float32).astype(np.float64)
    y = (rows[:, 0] % 3 == 1).astype(float)
    data = lightgbm.Dataset(rows, y, categorical_feature=[0], params=FEW)
    booster = lightgbm.train(FEW | {"objective": "binary"}, data, 5)
    model = read_lightgbm(booster)
    levels = model.schema.columns[0].levels
    assert levels == tuple(str(code) for code in range(len(levels)))
    rows[:30, 0] = np.nan
    rows[30:60, 0] = 77.0
    np.testing.assert_allclose(model.predict_proba(rows)[:, 1], booster.predict(rows), rtol=1e-13)


def test_zero_as_missing_is_refused_if_zeros_and_missing_take_two_branches() -> None:
    rows = frame(categories=False).fillna(0.0)
    rows.loc[::3, "width"] = 0.0
    with pytest.raises(ModelError, match=r"zero_as_missing.*train with zero_as_missing=false"):
        read_lightgbm(trained(rows=rows, objective="binary", zero_as_missing=True))
    one = rows[["rooms"]] + 1
    one.loc[::5, "rooms"] = 0.0
    data = lightgbm.Dataset(one, make_classes(rows) > 0)
    few = FEW | {"zero_as_missing": True, "objective": "binary"}
    text = lightgbm.train(few, data, 1).model_to_string()
    asked = re.search(r"^decision_type=(\d+)", text, re.M)
    assert asked is not None
    assert int(asked[1]) >> 2 & 3 == 1


def test_estimators_keep_their_labels_and_best_iteration() -> None:
    table = frame(categories=False)
    y = np.array(["no", "perhaps", "yes"])[make_classes(table)]
    estimator = lightgbm.LGBMClassifier(n_estimators=60, learning_rate=0.5, **FEW)
    stop = lightgbm.early_stopping(2, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its arguments are about to change their names
        estimator.fit(table[:300], y[:300], eval_set=[(table[300:], y[300:])], callbacks=[stop])
    best = estimator.best_iteration_
    assert 0 < best < 60
    model = treekit.read_model(estimator)
    assert (model.schema.classes, model.n_trees) == (("no", "perhaps", "yes"), 3 * best)
    np.testing.assert_array_equal(model.predict(table), estimator.predict(table))
    fewer = treekit.read_model(estimator, iterations=2)
    theirs = estimator.predict_proba(table, num_iteration=2)
    np.testing.assert_allclose(fewer.predict_proba(table), theirs, rtol=1e-13)
    with pytest.raises(ModelError, match="iterations, not 9999; request fewer"):
        treekit.read_model(estimator, iterations=9999)
    estimator.booster_.best_iteration = 3
    assert treekit.read_model(estimator.booster_).n_trees == 3 * 3
    with pytest.raises(ModelError, match="LGBMRegressor is not fitted: call fit first"):
        treekit.read_model(lightgbm.LGBMRegressor())


@pytest.mark.system
def test_a_text_file_is_read_like_its_object_and_without_lightgbm(tmp_path: Path) -> None:
    booster = trained(categories=True, objective="binary")
    path = tmp_path / "model.txt"
    booster.save_model(path)
    model = treekit.read_model(path)
    np.testing.assert_array_equal(model.units, read_lightgbm(booster).units)
    code = (
        "import sys; from pathlib import Path; import treekit;"
        f"assert treekit.read_model(Path({str(path)!r})).n_trees == 12;"
        "assert 'lightgbm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_models_of_one_leaf_are_read() -> None:
    table = frame(40, categories=False)
    data = lightgbm.Dataset(table, np.arange(40.0))
    booster = lightgbm.train({"verbose": -1, "min_data_in_leaf": 100}, data, 2)
    model = read_lightgbm(booster)
    assert model.n_leaves == model.n_trees
    np.testing.assert_allclose(model.predict(table), booster.predict(table), rtol=1e-15)


def test_rules_of_imported_models_are_verified_equal(
    tmp_path: Path,
) -> None:
    model = read_lightgbm(trained(3, categories=True, objective="multiclass", num_class=3))
    paths = treekit.export(model, "rules", tmp_path / "m")
    assert treekit.verify(model, paths).exit_code == 0
    model.save(tmp_path / "m.treekit")
    np.testing.assert_array_equal(treekit.load(tmp_path / "m.treekit").units, model.units)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "regression", "linear_tree": True}, "linear_tree=False"),
        ({"objective": "regression", "reg_sqrt": True}, "'regression sqrt'.*answer='margins'"),
        ({"objective": "cross_entropy_lambda"}, "'cross_entropy_lambda'.*answer='margins'"),
    ],
)
def test_models_that_cannot_be_expressed_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        read_lightgbm(trained(2, **settings))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version=v4", "version=v9", "version 'v9'"),
        ("end of trees", "", "truncated"),
        ("Tree=1", "Tree=2", "expected tree 1"),
        ("num_leaves=", "num_leaves=9", "damaged: split_feature has"),
        ("num_leaves=", "num_leaves=-", "damaged: a tree has"),
        ("left_child=", "left_child=-99 ", "damaged: left_child has"),
        (r"left_child=\S+", "left_child=0", "has a parent|several parents"),
        (r"left_child=\S+", "left_child=99999", "child does not exist"),
        (r"split_feature=\S+", "split_feature=77", r"a split uses none of the \d+ columns"),
        (r"split_feature=\S+", "split_feature=1e300", "a non-integer"),
        (r"leaf_value=\S+", "leaf_value=nan", "leaf's value is not finite"),
        (r"leaf_value=\S+", "leaf_value=one", "could not convert"),
        (r"threshold=\S+", "threshold=nan", "threshold is NaN"),
        (
            "num_tree_per_iteration=1",
            "num_tree_per_iteration=5",
            "5 trees per round for num_class=1",
        ),
        (
            "objective=binary",
            "objective=multiclass",
            "unknown entry 'objective multiclass sigmoid'",
        ),
        ("sigmoid:1", "sigmoid:-3", "sigmoid is '-3'"),
        ("feature_names=", "feature_names=a b ", "distinct names"),
    ],
)
def test_a_damaged_text_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "model.txt"
    text, found = re.subn(old, new, trained(2, objective="binary").model_to_string(), count=1)
    assert found
    path.write_text(text)
    with pytest.raises((ModelError, ModelFileError), match=message):
        treekit.read_model(path)


def test_importer_passes_the_contract_checks(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    booster = trained(2, categories=True, objective="multiclass", num_class=3, num_leaves=5)
    booster.save_model(path)
    check_importer("lightgbm", sources=[path, booster])
    assert not recognises_lightgbm(tmp_path / "absent.txt")
    with pytest.raises(SettingError, match="dtype"):
        treekit.read_model(path, dtype="float16")


@pytest.mark.parametrize("word", [-1, 2**32])
def test_a_set_of_categories_beyond_32_bits_is_refused(word: int, tmp_path: Path):
    text = trained(categories=True).model_to_string()
    assert "cat_threshold=" in text
    path = tmp_path / "m.txt"
    path.write_text(re.sub(r"cat_threshold=\d+", f"cat_threshold={word}", text), encoding="utf-8")
    with pytest.raises(ModelFileError, match="cat_threshold is out of range"):
        treekit.read_model(path)


@cases(60, 2000)
def test_broken_lightgbm_text_is_refused_or_read_as_a_valid_model(tmp_path, count):
    folder = Path(__file__).with_name("lightgbm")
    seeds = [path.read_bytes() for path in sorted(folder.glob("*.txt"))]
    damage = mixed(broken_text, broken_text, broken_bytes)
    broken = Subject("broken_lightgbm.txt", seeds, treekit.read_model, is_sound, damage)
    refused, read = fuzz(broken, tmp_path, count)
    assert refused
    assert read
