"""Boosted trees read from scikit-learn take its paths and give its answers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_limits

import treekit
from tests.foreign import FOLDER, beside, dyed, frame
from tests.runtimes import need
from treekit.data.encoding import encode_rows
from treekit.errors import DataError, ModelError, ModelFileError, SettingError
from treekit.interop.lightgbm import read_lightgbm, recognises_lightgbm
from treekit.interop.sklearn import read_sklearn
from treekit.interop.xgboost import MAX_NESTING, decode_ubjson, read_xgboost, recognises_xgboost
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Split
from treekit.testing import check_importer

# ---------------------------------------------------------------- import boosting

LABELS = np.array(["no", "perhaps", "yes"])


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for one another take most of the time of small tables."""
    with threadpool_limits(1):
        yield


def assert_margins_equal(model: treekit.Model, theirs: npt.NDArray[Any], rows: Any) -> None:
    """Within half a step of the grid a tree, and what scikit-learn's own sum may lose."""
    ours = model.predict(rows).reshape(theirs.shape)
    leaves = [np.abs(tree.value[tree.leaves]).max() for tree in model.trees]
    bound = len(leaves) * (2.0 ** (model.exponent - 1) + 2.0**-52 * sum(leaves))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)
    assert bound < 1e-12 * max(1.0, np.abs(theirs).max())


def thresholds_of(estimator: Any) -> npt.NDArray[Any]:
    if hasattr(estimator, "_predictors"):
        nodes = [one.nodes for stage in estimator._predictors for one in stage]
        return np.concatenate([n["num_threshold"][n["is_leaf"] == 0] for n in nodes])
    trees = [member.tree_ for member in np.ravel(estimator.estimators_)]
    return np.concatenate([tree.threshold[tree.feature >= 0] for tree in trees])


def plain_rows(estimator: Any) -> Any:
    """`GradientBoosting*` takes neither missing nor infinite numbers."""
    table = frame(120, 7, categories=False)
    rows = beside(thresholds_of(estimator), table, ("height", "width"), infinite=False)
    return rows.fillna(0.25).clip(
        -1e30, 1e30
    )  # scikit-learn adds them up to see that they are finite


def assert_classifier_equal(estimator: Any, rows: Any, **settings: Any) -> None:
    margins = estimator.decision_function(rows)
    assert_margins_equal(read_sklearn(estimator, answer="margins", **settings), margins, rows)
    model = read_sklearn(estimator, **settings)
    np.testing.assert_array_equal(model.predict(rows), estimator.predict(rows))
    ours, theirs = model.predict_proba(rows), estimator.predict_proba(rows)
    np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("init", [None, "zero"])
@pytest.mark.parametrize(
    ("loss", "classes"), [("log_loss", 2), ("log_loss", 3), ("exponential", 2)]
)
def test_gradient_boosting_of_classes_is_equal(loss: str, classes: int, init: str | None) -> None:
    table = frame(300, categories=False).fillna(0.25)
    y = LABELS[np.minimum(dyed(table), classes - 1)]
    estimator = GradientBoostingClassifier(n_estimators=8, loss=loss, init=init, random_state=0)
    estimator.fit(table, y)
    assert_classifier_equal(estimator, plain_rows(estimator))


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber", "quantile"])
def test_gradient_boosting_of_numbers_is_equal(loss: str) -> None:
    table = frame(300, categories=False).fillna(0.25)
    y = dyed(table) + 0.5 * table["width"]
    estimator = GradientBoostingRegressor(n_estimators=8, loss=loss, random_state=0).fit(table, y)
    rows = plain_rows(estimator)
    assert_margins_equal(read_sklearn(estimator), estimator.predict(rows), rows)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("classes", [2, 3])
def test_histogram_boosting_of_classes_is_equal(classes: int, dtype: str) -> None:
    table = frame()
    y = LABELS[np.minimum(dyed(table), classes - 1)]
    estimator = HistGradientBoostingClassifier(max_iter=8, categorical_features="from_dtype")
    estimator.fit(table, y)
    rows = beside(thresholds_of(estimator), frame(120, 7), ("height", "width"))
    assert_classifier_equal(estimator, rows, dtype=dtype)


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "poisson", "gamma"])
def test_histogram_boosting_of_numbers_is_equal(loss: str) -> None:
    table = frame(categories=False)
    estimator = HistGradientBoostingRegressor(max_iter=8, loss=loss)
    estimator.fit(table, dyed(table) + 0.5)
    rows = beside(thresholds_of(estimator), frame(120, 7, False), ("height", "width"))
    raw = estimator._raw_predict(rows)[:, 0]
    assert_margins_equal(read_sklearn(estimator, answer="margins"), raw, rows)
    np.testing.assert_allclose(
        read_sklearn(estimator).predict(rows), estimator.predict(rows), rtol=1e-13, atol=1e-15
    )


def test_doubles_between_two_floats_keep_their_side_as_the_library_has_it() -> None:
    table = frame(categories=False)
    estimator = HistGradientBoostingRegressor(max_iter=5).fit(table, dyed(table))
    at = thresholds_of(estimator)
    at = np.concatenate([at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf)])
    rows = np.repeat(at, 3).reshape(-1, 3)
    wide = read_sklearn(estimator)
    theirs = estimator.predict(frame_of(rows, table))
    assert_margins_equal(wide, theirs, rows)
    rounded = read_sklearn(estimator, dtype="float32")
    assert not np.array_equal(rounded.predict(rows), wide.predict(rows))


def frame_of(rows: npt.NDArray[Any], like: Any) -> Any:
    return type(like)(rows, columns=list(like))


def test_unseen_and_missing_categories_go_where_scikit_learn_sends_them() -> None:
    table = frame()
    estimator = HistGradientBoostingClassifier(max_iter=8, categorical_features="from_dtype")
    estimator.fit(table, dyed(table) > 0)
    model = read_sklearn(estimator)
    soil, zone = model.schema.columns[3:]
    assert soil.levels == ("*/", "clay", "loam", "sand", "silt")
    assert zone.levels == ("3", "5", "9", "11")
    rows = frame(300, 9)
    rows["soil"] = rows["soil"].cat.add_categories(["peat"]).fillna("peat")
    rows["zone"] = [None if i % 7 == 0 else zone for i, zone in enumerate(rows["zone"])]
    rows["zone"] = rows["zone"].astype("category")
    np.testing.assert_allclose(model.predict_proba(rows), estimator.predict_proba(rows), rtol=1e-13)


def test_categorical_columns_of_an_array_are_levels_wherever_they_stand() -> None:
    random = np.random.default_rng(0)
    rows = np.stack([random.normal(size=400), random.integers(0, 9, 400)], axis=1)
    y = (rows[:, 1] % 3 == 1) ^ (rows[:, 0] > 0)
    estimator = HistGradientBoostingClassifier(max_iter=5, categorical_features=[1]).fit(rows, y)
    model = treekit.read_model(estimator)
    assert [column.kind for column in model.schema.columns] == ["numeric", "nominal"]
    rows[:50, 1] = np.nan
    rows = rows.astype(np.float32)
    np.testing.assert_allclose(model.predict_proba(rows), estimator.predict_proba(rows), rtol=1e-13)


def test_what_cannot_be_expressed_is_refused_by_name() -> None:
    table = frame(100, categories=False).fillna(0.0)
    y = dyed(table)
    few = {"n_estimators": 2}
    by_row = GradientBoostingRegressor(init=LinearRegression(), **few).fit(table, y)
    with pytest.raises(ModelError, match=r"a LinearRegression as init.*init='zero'"):
        read_sklearn(by_row)
    first = DummyClassifier(strategy="uniform")
    with pytest.raises(ModelError, match="a DummyClassifier as init"):
        read_sklearn(GradientBoostingClassifier(init=first, **few).fit(table, y))
    with pytest.raises(ModelError, match="GradientBoostingClassifier is not fitted"):
        treekit.read_model(GradientBoostingClassifier())
    with pytest.raises(ModelError, match="rounds numbers to float32"):
        read_sklearn(GradientBoostingRegressor(**few).fit(table, y), dtype="float64")
    infinite = table.assign(width=np.where(table["width"] > 0, 1.0, -np.inf))
    endless = HistGradientBoostingRegressor(max_iter=2).fit(infinite[["width"]], table["width"])
    if np.any(np.isneginf(thresholds_of(endless))):
        with pytest.raises(ModelError, match="below all finite"):
            read_sklearn(endless)


def test_what_is_read_is_listed_as_rules_that_are_proved_equal(tmp_path: Path) -> None:
    table = frame(200)
    estimator = HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype")
    model = read_sklearn(estimator.fit(table, LABELS[dyed(table)]))
    paths = treekit.export(model, "rules", tmp_path / "m")
    assert treekit.verify(model, paths).exit_code == 0
    model.save(tmp_path / "m.treekit")
    np.testing.assert_array_equal(treekit.load(tmp_path / "m.treekit").units, model.units)


# ---------------------------------------------------------------- import lightgbm
# Models read from LightGBM take its paths and give its answers.

need("lightgbm")

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
    y = dyed(table)
    if "num_class" not in settings:
        y = y > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = lightgbm.Dataset(table, y.astype(float))
        return lightgbm.train(FEW | settings, data, rounds)


def import_lightgbm_thresholds_of(booster: Any) -> list[float]:
    lines = re.findall(r"^threshold=(.*)$", booster.model_to_string(), re.M)
    return [float(text) for line in lines for text in line.split()]


def probes(booster: Any, categories: bool = False) -> Any:
    table = frame(150, seed=7, categories=categories)
    return beside(import_lightgbm_thresholds_of(booster), table, ("height", "width"))


def import_lightgbm_assert_margins_equal(
    model: treekit.Model, theirs: npt.NDArray[Any], rows: Any
) -> None:
    """Within half a step of the grid a tree, and what LightGBM's own sum may lose."""
    ours = model.predict(rows)
    leaves = [np.abs(tree.value[tree.leaves]).max() for tree in model.trees]
    bound = len(leaves) * (2.0 ** (model.exponent - 1) + 2.0**-53 * sum(leaves))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)
    assert bound < 1e-12 * max(1.0, np.abs(theirs).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("categories", [False, True])
def test_margins_labels_and_probabilities_of_two_classes_are_lightgbm_s(
    categories: bool, dtype: str
) -> None:
    booster = trained(categories=categories, objective="binary")
    rows = probes(booster, categories)
    margins = booster.predict(rows, raw_score=True)
    import_lightgbm_assert_margins_equal(
        read_lightgbm(booster, answer="margins", dtype=dtype), margins, rows
    )
    model = read_lightgbm(booster, dtype=dtype)
    np.testing.assert_array_equal(model.predict(rows), (margins > 0).astype(int))
    shares = model.predict_proba(rows)
    np.testing.assert_allclose(shares[:, 1], booster.predict(rows), rtol=1e-13)
    assert model.schema.dtype == dtype


def test_doubles_between_two_floats_keep_their_side_as_the_library_has_it_import_lightgbm(
    tmp_path: Path,
) -> None:
    booster = trained(objective="regression")
    at = np.array(import_lightgbm_thresholds_of(booster))
    rows = np.repeat(np.concatenate([at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf)]), 3)
    rows = rows.reshape(-1, 3)
    wide = read_lightgbm(booster)
    assert wide.schema.dtype == "float64"
    import_lightgbm_assert_margins_equal(wide, booster.predict(rows), rows)
    rounded = read_lightgbm(booster, dtype="float32")
    assert not np.array_equal(rounded.predict(rows), wide.predict(rows))
    low = re.sub(r"threshold=\S+", "threshold=-1e300", booster.model_to_string(), count=1)
    (tmp_path / "low.txt").write_text(low)
    with pytest.raises(ModelError, match="dtype='float64'"):
        treekit.read_model(tmp_path / "low.txt", dtype="float32")


@pytest.mark.parametrize("categories", [False, True])
@pytest.mark.parametrize("objective", ["multiclass", "multiclassova"])
def test_models_of_three_classes_are_equal(objective: str, categories: bool) -> None:
    booster = trained(6, categories, objective=objective, num_class=3, sigmoid=1.7)
    rows = probes(booster, categories)
    margins = booster.predict(rows, raw_score=True)
    raw = read_lightgbm(booster, answer="margins")
    assert [output.name for output in raw.schema.outputs] == ["0", "1", "2"]
    import_lightgbm_assert_margins_equal(raw, margins, rows)
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
def test_numbers_of_every_objective_are_equal(settings: dict[str, Any]) -> None:
    booster = trained(6, **settings)
    rows = probes(booster)
    raw = read_lightgbm(booster, answer="margins")
    import_lightgbm_assert_margins_equal(raw, booster.predict(rows, raw_score=True), rows)
    model, theirs = read_lightgbm(booster), booster.predict(rows)
    numbers = model.schema.task == "regression"
    ours = model.predict(rows) if numbers else model.predict_proba(rows)[:, 1]
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("objective", ["binary", "regression"])
def test_random_forests_answer_the_mean_of_their_trees(objective: str) -> None:
    booster = trained(7, objective=objective, boosting="rf", bagging_freq=1, bagging_fraction=0.5)
    rows = probes(booster)
    model = read_lightgbm(booster)
    ours = model.predict(rows) if objective == "regression" else model.predict_proba(rows)[:, 1]
    np.testing.assert_allclose(ours, booster.predict(rows), rtol=1e-12, atol=1e-14)


def test_unseen_and_missing_categories_go_where_lightgbm_sends_them() -> None:
    booster = trained(categories=True, objective="binary")
    table = frame(300, seed=5)
    table["soil"] = table["soil"].cat.add_categories(["peat"]).fillna("peat")
    table["zone"] = [None if i % 7 == 0 else zone for i, zone in enumerate(table["zone"])]
    table["zone"] = table["zone"].astype("category")
    model = read_lightgbm(booster)
    assert model.schema.columns[3].levels == ("*/", "clay", "loam", "sand", "silt")
    np.testing.assert_allclose(model.predict_proba(table)[:, 1], booster.predict(table), rtol=1e-13)


def test_whole_number_categories_are_levels_of_the_same_code() -> None:
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


def test_zeros_that_are_missing_are_read_only_where_they_go_the_way_of_zeros() -> None:
    rows = frame(categories=False).fillna(0.0)
    rows.loc[::3, "width"] = 0.0
    with pytest.raises(ModelError, match=r"zero_as_missing.*train with zero_as_missing=false"):
        read_lightgbm(trained(rows=rows, objective="binary", zero_as_missing=True))
    one = rows[["rooms"]] + 1
    one.loc[::5, "rooms"] = 0.0
    data = lightgbm.Dataset(one, dyed(rows) > 0)
    few = FEW | {"zero_as_missing": True, "objective": "binary"}
    text = lightgbm.train(few, data, 1).model_to_string()
    asked = re.search(r"^decision_type=(\d+)", text, re.M)
    assert asked is not None
    assert int(asked[1]) >> 2 & 3 == 1


def test_estimators_keep_their_labels_and_their_best_round() -> None:
    table = frame(categories=False)
    y = np.array(["no", "perhaps", "yes"])[dyed(table)]
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


def test_what_is_read_is_listed_as_rules_that_are_proved_equal_import_lightgbm(
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
def test_what_cannot_be_expressed_is_refused_by_name_import_lightgbm(
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
        ("num_tree_per_iteration=1", "num_tree_per_iteration=5", "not a multiple of 5"),
        ("objective=binary", "objective=multiclass", "damaged: objective 'multiclass'"),
        ("sigmoid:1", "sigmoid:-3", "sigmoid is '-3'"),
        ("feature_names=", "feature_names=a b ", "distinct names"),
    ],
)
def test_a_damaged_text_is_refused_by_name(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "model.txt"
    text, found = re.subn(old, new, trained(2, objective="binary").model_to_string(), count=1)
    assert found
    path.write_text(text)
    with pytest.raises((ModelError, ModelFileError), match=message):
        treekit.read_model(path)


def test_the_importer_keeps_the_laws_of_its_contract(tmp_path: Path) -> None:
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


# ---------------------------------------------------------------- import xgboost
# Models read from XGBoost's files take its paths and give its answers.
#
# The files of tests/foreign were made by XGBoost itself, which is not installed here.

CASES = sorted(path.stem.removeprefix("xgboost_") for path in FOLDER.glob("xgboost_*.json"))
FILES = sorted(path.name for path in FOLDER.glob("xgboost_*.[ju]*"))


def path_of(case: str, ending: str = ".json") -> Path:
    return FOLDER / f"xgboost_{case}{ending}"


@cache
def answers(case: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(path_of(case, ".answers").read_text())
    return told


def margins_in_float32(model: treekit.Model, rows: Any) -> npt.NDArray[np.float32]:
    """The base score, and then each tree's leaf, added in float32 as XGBoost does."""
    leaves = leaf_indices(model, encode_rows(rows, model.schema))
    total = np.zeros((len(leaves), model.schema.n_values), dtype=np.float32)
    for number, tree in enumerate(model.trees):
        total += tree.value[leaves[:, number]].astype(np.float32)
    return total


@pytest.mark.parametrize("file", FILES)
def test_every_row_reaches_the_same_leaves(file: str) -> None:
    told = answers(Path(file).stem.removeprefix("xgboost_"))
    model = read_xgboost(FOLDER / file, answer="margins")
    theirs = np.array(told["margins"], dtype=np.float32).reshape(-1, model.schema.n_values)
    np.testing.assert_array_equal(margins_in_float32(model, told["rows"]), theirs)
    # Without its rounding the sums differ by no more than that rounding.
    ours = model.predict(told["rows"]).reshape(theirs.shape)
    leaves = [np.abs(tree.value[tree.leaves]).max() for tree in model.trees]
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=len(leaves) * 2.0**-24 * sum(leaves))


@pytest.mark.parametrize("case", [case for case in CASES if case != "hinge"])
def test_labels_and_links_are_xgboost_s(case: str) -> None:
    told = answers(case)
    model = read_xgboost(path_of(case))
    theirs = np.array(told["predictions"])
    if model.schema.task == "regression":
        ours = model.predict(told["rows"])
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-6)
        return
    labels, shares = model.predict(told["rows"]), model.predict_proba(told["rows"])
    if case == "softmax":  # it predicts labels
        np.testing.assert_array_equal(labels, theirs)
    elif theirs.ndim == 1:
        np.testing.assert_allclose(shares[:, 1], theirs, rtol=0, atol=2e-7)
        np.testing.assert_array_equal(labels, theirs > 0.5)
    else:
        np.testing.assert_allclose(shares, theirs, rtol=0, atol=2e-7)
        np.testing.assert_array_equal(labels, theirs.argmax(axis=1))


def test_a_hinge_has_margins_and_no_probabilities() -> None:
    with pytest.raises(ModelError, match=r"'binary:hinge' has no prob.*answer='margins'"):
        read_xgboost(path_of("hinge"))
    told = answers("hinge")
    margins = read_xgboost(path_of("hinge"), answer="margins").predict(told["rows"])
    np.testing.assert_array_equal(margins > 0, told["predictions"])


def test_categories_have_the_names_of_the_training_frame_and_unseen_ones_are_refused() -> None:
    model = read_xgboost(path_of("binary"))
    soil, zone = model.schema.columns[3:]
    assert soil.levels == ("*/", "clay", "loam", "sand", "silt")
    assert zone.levels == ("3", "5", "9", "11")
    assert any(np.any(tree.kind == Split.SUBSET) for tree in model.trees)
    assert model.unknown == "error"
    row = {name: cells[:1] for name, cells in answers("binary")["rows"].items()} | {
        "soil": ["peat"]
    }
    with pytest.raises(DataError, match="'peat'"):
        model.predict(row)


def changed(case: str, change: Any) -> bytes:
    """A file after some function did something to its JSON."""
    content = json.loads(path_of(case).read_text())
    change(content["learner"])
    return json.dumps(content).encode()


def first_tree(learner: dict[str, Any]) -> dict[str, Any]:
    booster = learner["gradient_booster"]
    tree: dict[str, Any] = booster.get("gbtree", booster)["model"]["trees"][0]
    return tree


def read_changed(case: str, change: Any, folder: Path, **settings: Any) -> treekit.Model:
    path = folder / "model.json"
    path.write_bytes(changed(case, change))
    return treekit.read_model(path, **settings)


def test_unseen_categories_are_missing_where_both_go_left(tmp_path: Path) -> None:
    def all_left(learner: dict[str, Any]) -> None:
        for tree in learner["gradient_booster"]["model"]["trees"]:
            tree["default_left"] = [1] * len(tree["default_left"])
        learner["gradient_booster"]["model"]["cats"] = {}

    model = read_changed("binary", all_left, tmp_path)
    assert model.unknown == "missing"
    assert model.schema.columns[3].levels[0] == "0"  # without names: codes


def test_training_that_stopped_early_is_read_up_to_its_best_round(tmp_path: Path) -> None:
    def stop(learner: dict[str, Any]) -> None:
        learner["attributes"]["best_iteration"] = "1"

    base = 1  # the base score is a tree of one leaf
    assert read_changed("three", stop, tmp_path).n_trees == base + 3 * 2
    assert read_changed("three", stop, tmp_path, iterations=4).n_trees == base + 3 * 4
    with pytest.raises(ModelError, match="has 5 iterations, not 6; request fewer"):
        read_changed("three", stop, tmp_path, iterations=6)

    def older(learner: dict[str, Any]) -> None:
        stop(learner)
        learner["gradient_booster"]["model"]["iteration_indptr"] = []

    assert read_changed("forest", older, tmp_path).n_trees == base + 2 * 2


def test_thresholds_at_the_ends_of_float32_ask_for_missing_values(tmp_path: Path) -> None:
    def lowest(learner: dict[str, Any]) -> None:
        tree = first_tree(learner)
        assert tree["split_type"][0] == 0
        tree["split_conditions"][0] = -3.4028234663852886e38
        tree["default_left"][0] = 1

    model = read_changed("pruned", lowest, tmp_path)
    assert model.trees[1].kind[0] == Split.MISSING


def put(name: str, value: Any, at: int | None = None) -> Any:
    def change(learner: dict[str, Any]) -> None:
        tree = first_tree(learner)
        if at is None:
            tree[name] = value
        else:
            tree[name][at] = value

    return change


def into(*path: str, value: Any) -> Any:
    def change(learner: dict[str, Any]) -> None:
        inside = learner
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("left_children", 0, 0), "a root has a parent|several parents"),
        (put("left_children", 10**6, 0), "child does not exist"),
        (put("left_children", 10**30, 0), r"damaged, or not an XGBoost model.*left_children\[0\]"),
        (put("right_children", -7, 0), "child does not exist"),
        (put("left_children", [], None), "entries for 0 nodes"),
        (put("split_indices", 99, 0), r"a split uses none of the \d+ columns"),
        (put("split_indices", [0]), "split_indices has 1 entries"),
        (put("split_conditions", 1e300, -1), "not finite"),
        (put("split_type", 1, 0), "categorical splits without a category set"),
        (put("categories_nodes", [0]), "inconsistent sets of categories"),
        (put("default_left", "x"), "not an XGBoost model: Expected `array`"),
        (into("gradient_booster", "name", value="gblinear"), "is linear.*booster='gbtree'"),
        (into("gradient_booster", "name", value="gbforest"), "unknown booster 'gbforest'"),
        (into("gradient_booster", "model", "tree_info", value=[]), "0 entries"),
        (into("gradient_booster", "model", "tree_info", value=[10**30]), "not an XGBoost model"),
        (into("gradient_booster", "model", "tree_info", value=[9] * 5), "outside the 1 margins"),
        (into("objective", "name", value="own:loss"), "unknown objective 'own:loss'"),
        (into("learner_model_param", "base_score", value="[1.5]"), "base_score is '\\[1.5\\]'"),
        (into("learner_model_param", "base_score", value="x"), "base_score is 'x'"),
        (into("learner_model_param", "num_feature", value="-1"), ">= 0.*num_feature"),
        (into("learner_model_param", "num_feature", value="2"), "distinct names"),
        (into("learner_model_param", "num_feature", value="999999999"), "999999999 columns"),
        (into("learner_model_param", "num_class", value="999999999"), "999999999 margins"),
        (into("gradient_booster", value=3), "damaged, or not an XGBoost model"),
    ],
)
def test_a_damaged_file_is_refused_by_name(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises((ModelError, ModelFileError), match=message):
        read_changed("pruned", change, tmp_path)


def test_a_set_of_another_file_s_categories_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="category"):
        read_changed("binary", put("categories", 2**40, 0), tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"{L\x7f\xff\xff\xff\xff\xff\xff\xff", "an invalid length 9223372036854775807"),
        (b"[$d#L\x00\x00\x00\x00\x00\x00\x00\x09", "truncated"),
        (b"[" * 10_000, "nested too deep"),
        (b"[$S#i\x01", "type b'S'"),
        (b"[$d]", "a type without a count"),
        (b"{U\x01\xffT}", "not UTF-8"),
        (b"[Q]", "unknown marker b'Q'"),
        (b"{Z", "lacks a length"),
    ],
)
def test_damaged_ubjson_is_refused_by_name(content: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        decode_ubjson(content)


def test_ubjson_of_every_type_is_read() -> None:
    content = (
        b"{i\x01a[$I#U\x02\x00\x01\xff\xffU\x01b[Ti\x7fFZSi\x02hi]"
        b"i\x01cD\x3f\xf8\x00\x00\x00\x00\x00\x00i\x01dCxi\x01e{}i\x01f[#i\x01l\x00\x00\x00\x05}"
    )
    assert decode_ubjson(content) == {
        "a": [1, -1],
        "b": [True, 127, False, None, "hi"],
        "c": 1.5,
        "d": "x",
        "e": {},
        "f": [5],
    }
    assert decode_ubjson(b"[" * MAX_NESTING + b"]" * MAX_NESTING)


def test_what_is_read_is_listed_as_rules_that_are_proved_equal_import_xgboost(
    tmp_path: Path,
) -> None:
    model = read_xgboost(path_of("three"))
    paths = treekit.export(model, "rules", tmp_path / "m")
    assert treekit.verify(model, paths).exit_code == 0
    assert model.provenance["xgboost"] == "3.2.0"


def test_the_importer_keeps_the_laws_of_its_contract_import_xgboost(tmp_path: Path) -> None:
    check_importer("xgboost", sources=[path_of("binary"), path_of("vector", ".ubj")])
    assert not recognises_xgboost(tmp_path / "absent.json")


@pytest.mark.system
def test_reading_a_file_imports_no_xgboost() -> None:
    code = (
        "import sys; from pathlib import Path; import treekit;"
        f"treekit.read_model(Path({str(path_of('dart'))!r}));"
        "assert 'xgboost' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
