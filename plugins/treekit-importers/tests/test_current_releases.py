"""Models of the current release of each library, with many settings, are equal or refused.

A refusal is expected only where a case states it.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
import xgboost
from skl2onnx import to_onnx
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from treekit_importers.onnx import read_onnx

import treekit
from tests.foreign import frame, make_classes
from treekit.errors import ModelError


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of settings that are about to change
        yield


def answers(model: treekit.Model, rows: Any, theirs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Predictions in the form of another library's: numbers, or probabilities."""
    if model.schema.task == "regression":
        return np.asarray(model.predict(rows)).reshape(theirs.shape)
    shares = model.predict_proba(rows)
    return shares[:, 1] if theirs.ndim == 1 else shares


# ---------------------------------------------------------------- XGBoost

IS_CURRENT = tuple(map(int, xgboost.__version__.split(".")[:2])) >= (3, 4)
DROPOUT = {"rate_drop": 0.5, "one_drop": 1}
REFUSED = {"reg:expectileerror": "with 2 expectiles", "binary:hinge": "no probabilities"}
OBJECTIVES = (
    *("reg:squarederror", "reg:squaredlogerror", "reg:logistic", "reg:pseudohubererror"),
    *("reg:absoluteerror", "reg:quantileerror", "reg:expectileerror", "reg:gamma", "reg:tweedie"),
    *("binary:logistic", "binary:logitraw", "binary:hinge", "count:poisson", "survival:cox"),
    *("survival:aft", "multi:softmax", "multi:softprob"),
    *("rank:ndcg", "rank:map", "rank:pairwise"),
)
FORMS: tuple[dict[str, Any], ...] = (
    {"booster": "dart", "rate_drop": 0.5, "skip_drop": 0.3, "normalize_type": "forest"},
    {"num_parallel_tree": 2, "subsample": 0.5},
    {"num_parallel_tree": 2, "subsample": 0.5} | DROPOUT,
    {"multi_strategy": "multi_output_tree", "num_parallel_tree": 2} | DROPOUT,
    {"grow_policy": "lossguide", "max_leaves": 4},
    {"monotone_constraints": "(1,0,-1,0,0)"},
    {"base_score": 0.3},
    {"tree_method": "approx"},
    {"max_cat_to_onehot": 9},
)


def test_the_current_release_of_xgboost_is_tested() -> None:
    """In CI, where an earlier one would leave the weights of dropped trees untested."""
    if not IS_CURRENT and not os.environ.get("CI"):
        pytest.skip("XGBoost is older than 3.4: see the test extra in pyproject.toml")
    assert IS_CURRENT


def xgboost_data(objective: str, table: Any) -> tuple[xgboost.DMatrix, dict[str, Any]]:
    labels = make_classes(table).astype(float)
    more: dict[str, Any] = {}
    if objective.startswith("multi"):
        more = {"num_class": 3}
    elif objective.startswith(("binary", "rank")):
        labels = np.minimum(labels, 1)
    elif objective == "reg:logistic":
        labels = labels / 2
    elif objective in ("reg:gamma", "survival:cox", "survival:aft"):
        labels = labels + 0.5
    if objective in ("reg:quantileerror", "reg:expectileerror"):
        more = {f"{objective[4:-5]}_alpha": [0.2, 0.7]}
    data = xgboost.DMatrix(table, labels, enable_categorical=True)
    if objective == "survival:aft":
        data.set_float_info("label_lower_bound", labels)
        data.set_float_info("label_upper_bound", labels + 0.1)
    elif objective.startswith("rank"):
        data.set_group([len(table) // 2] * 2)
    return data, more


def assert_booster_equal(
    booster: xgboost.Booster, rows: Any, folder: Path, *, reason: str = "", rounds: int = 0
) -> None:
    """Files of both forms give the booster's margins and predictions."""
    data = xgboost.DMatrix(rows, enable_categorical=True)
    first = {"iteration_range": (0, rounds)}
    margins = booster.predict(data, output_margin=True, **first)
    theirs = booster.predict(data, **first)
    for ending in ("json", "ubj"):
        booster.save_model(folder / f"model.{ending}")
        path = folder / f"model.{ending}"
        if reason:
            with pytest.raises(ModelError, match=reason):
                treekit.read_model(path)
            continue
        raw = treekit.read_model(path, answer="margins").predict(rows).reshape(margins.shape)
        np.testing.assert_allclose(raw, margins, rtol=2e-6, atol=2e-6)
        model = treekit.read_model(path)
        if booster_objective(booster) == "multi:softmax":
            np.testing.assert_array_equal(model.predict(rows), theirs)
        else:
            ours = answers(model, rows, theirs)
            np.testing.assert_allclose(ours, theirs, rtol=4e-6, atol=4e-6)


def booster_objective(booster: xgboost.Booster) -> str:
    name: str = json.loads(booster.save_config())["learner"]["objective"]["name"]
    return name


@pytest.mark.parametrize("form", [{}, DROPOUT], ids=["plain", "dropout"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_of_xgboost_predicts_equally(
    objective: str, form: dict[str, Any], tmp_path: Path
) -> None:
    if objective == "reg:expectileerror" and not IS_CURRENT:
        pytest.skip(f"XGBoost {xgboost.__version__} has no {objective}")
    data, more = xgboost_data(objective, frame(200))
    settings = {"objective": objective, "max_depth": 3, "nthread": 1} | more | form
    booster = xgboost.train(settings, data, 5)
    assert_booster_equal(booster, frame(60, 7), tmp_path, reason=REFUSED.get(objective, ""))


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("objective", ["reg:absoluteerror", "binary:logistic", "multi:softprob"])
def test_every_file_format_and_booster_of_xgboost_predicts_equally(
    objective: str, form: dict[str, Any], tmp_path: Path
) -> None:
    categories = "multi_strategy" not in form
    data, more = xgboost_data(objective, frame(200, categories=categories))
    settings = {"objective": objective, "max_depth": 3, "nthread": 1} | more | form
    booster = xgboost.train(settings, data, 5)
    assert_booster_equal(booster, frame(60, 7, categories), tmp_path)


@pytest.mark.parametrize("form", [{}, DROPOUT, {"multi_strategy": "multi_output_tree"} | DROPOUT])
@pytest.mark.parametrize("base", [None, [0.5, -2.0, 8.0]])
def test_xgboost_models_of_several_targets_and_base_scores_predict_equally(
    form: dict[str, Any], base: Any, tmp_path: Path
) -> None:
    table = frame(200, categories=False)
    targets = np.stack([make_classes(table), 2.0 * make_classes(table), table["width"]], axis=1)
    own = {} if base is None else {"base_score": base}
    booster = xgboost.train(
        {"max_depth": 3, "nthread": 1} | form | own, xgboost.DMatrix(table, targets), 5
    )
    assert_booster_equal(booster, frame(60, 7, categories=False), tmp_path)


@pytest.mark.parametrize("form", [{}, DROPOUT])
def test_xgboost_models_with_early_stopping_predict_equally(
    form: dict[str, Any], tmp_path: Path
) -> None:
    table = frame(200)
    rng = np.random.default_rng(1)
    other = xgboost.DMatrix(
        table, make_classes(table) + rng.normal(size=200), enable_categorical=True
    )
    data = xgboost.DMatrix(table, make_classes(table), enable_categorical=True)
    booster = xgboost.train(
        {"nthread": 1} | form, data, 40, [(other, "other")],
        early_stopping_rounds=2, verbose_eval=False,
    )  # fmt: skip
    assert booster.best_iteration + 1 < booster.num_boosted_rounds()
    assert_booster_equal(booster, frame(60, 7), tmp_path, rounds=booster.best_iteration + 1)


def test_xgboost_estimators_predict_equally_or_are_refused() -> None:
    table = frame(200)
    settings = {"n_estimators": 4, "n_jobs": 1, "enable_categorical": True}
    rows = frame(60, 7)
    classifier = xgboost.XGBClassifier(**settings, **DROPOUT).fit(table, make_classes(table))
    model = treekit.read_model(classifier)
    np.testing.assert_allclose(model.predict_proba(rows), classifier.predict_proba(rows), atol=1e-6)
    np.testing.assert_array_equal(model.predict(rows), classifier.predict(rows))
    forest = xgboost.XGBRFRegressor(**settings).fit(table, make_classes(table))
    theirs = forest.predict(rows)
    np.testing.assert_allclose(treekit.read_model(forest).predict(rows), theirs, atol=1e-6)
    with pytest.raises(ModelError, match=r"treats -1.0 as missing.*train with missing=nan"):
        treekit.read_model(
            xgboost.XGBRegressor(missing=-1.0, **settings).fit(table, make_classes(table))
        )
    linear = xgboost.train({"booster": "gblinear"}, xgboost.DMatrix([[0.0], [1.0]], [0, 1]), 2)
    with pytest.raises(ModelError, match="is linear"):
        treekit.read_model(linear)

    class Own(xgboost.XGBRegressor):  # type: ignore[misc]
        def predict(self, rows: Any, **settings: Any) -> Any:
            return -super().predict(rows, **settings)

    own = Own(**settings).fit(table, make_classes(table))
    with pytest.raises(ModelError, match="overrides 'predict' of xgboost's XGBRegressor"):
        treekit.read_model(own)


# ---------------------------------------------------------------- LightGBM

LIGHT = {
    "verbose": -1, "min_data_in_leaf": 5, "min_data_per_group": 5, "cat_smooth": 1.0,
    "seed": 1, "num_threads": 1,
}  # fmt: skip
LIGHT_OBJECTIVES = (
    *("regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma"),
    *("tweedie", "binary", "multiclass", "multiclassova", "cross_entropy", "lambdarank"),
    *("cross_entropy_lambda", "rank_xendcg"),
)
LIGHT_FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"boosting": "dart", "drop_rate": 0.5},
    {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
    {"use_quantized_grad": True},
    {"extra_trees": True, "path_smooth": 1.0},
    {"max_cat_to_onehot": 9},
)
LIGHT_ONLY: tuple[tuple[dict[str, Any], str], ...] = (
    ({"monotone_constraints": [1, 0, -1, 0, 0], "monotone_constraints_method": "advanced"}, ""),
    ({"data_sample_strategy": "goss"}, ""),
    ({"forcedsplits_filename": ""}, ""),
    ({"use_missing": False}, ""),
    ({"is_unbalance": True, "objective": "binary"}, ""),
    ({"linear_tree": True}, "linear_tree=False"),
    ({"reg_sqrt": True}, "'regression sqrt' transforms"),
)


def light(objective: str, settings: dict[str, Any]) -> lightgbm.Booster:
    table = frame(200)
    labels = make_classes(table).astype(float)
    group = None
    if objective.startswith("multi"):
        settings = {"num_class": 3} | settings
    elif objective in ("binary", "lambdarank", "rank_xendcg") or "entropy" in objective:
        labels = np.minimum(labels, 1)
    elif objective in ("gamma", "mape"):
        labels = labels + 0.5
    if "rank" in objective:
        group = [100, 100]
    data = lightgbm.Dataset(table, labels, group=group)
    return lightgbm.train(LIGHT | {"objective": objective} | settings, data, 5)


def assert_light_equal(booster: lightgbm.Booster, folder: Path, reason: str = "") -> None:
    path = folder / "model.txt"
    booster.save_model(path)
    if reason:
        with pytest.raises(ModelError, match=reason):
            treekit.read_model(path)
        return
    rows = frame(60, 7)
    theirs = booster.predict(rows)
    for source in (path, booster):
        ours = answers(treekit.read_model(source), rows, theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("form", LIGHT_FORMS, ids=str)
@pytest.mark.parametrize("objective", LIGHT_OBJECTIVES)
def test_every_objective_of_lightgbm_predicts_equally_or_is_refused(
    objective: str, form: dict[str, Any], tmp_path: Path
) -> None:
    booster = light(objective, form)
    reason = "'cross_entropy_lambda' transforms" if objective.endswith("lambda") else ""
    assert_light_equal(booster, tmp_path, reason)


@pytest.mark.parametrize(("form", "reason"), LIGHT_ONLY, ids=str)
def test_every_boosting_and_setting_of_lightgbm_is_equal_or_refused(
    form: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    assert_light_equal(light("regression", form), tmp_path, reason)


def test_an_estimator_of_lightgbm_that_overrides_predict_is_refused() -> None:
    class Own(lightgbm.LGBMRegressor):  # type: ignore[misc]
        def predict(self, rows: Any, **settings: Any) -> Any:
            return -super().predict(rows, **settings)

    table = frame(100)
    own = Own(n_estimators=2, **LIGHT).fit(table, make_classes(table))
    with pytest.raises(ModelError, match="overrides 'predict' of lightgbm's LGBMRegressor"):
        treekit.read_model(own)


# ---------------------------------------------------------------- scikit-learn and skl2onnx

ESTIMATORS: tuple[tuple[Any, bool], ...] = (
    (DecisionTreeClassifier(max_depth=5, class_weight="balanced", ccp_alpha=0.001), False),
    (DecisionTreeClassifier(max_depth=5, monotonic_cst=[1, 0, 0]), True),
    (DecisionTreeRegressor(criterion="absolute_error", max_leaf_nodes=9), False),
    (RandomForestClassifier(6, oob_score=True, max_depth=4, warm_start=True), False),
    (ExtraTreesRegressor(6, bootstrap=True, oob_score=True, max_depth=4), False),
    (BaggingClassifier(DecisionTreeClassifier(max_depth=3), oob_score=True), False),
    (GradientBoostingClassifier(n_estimators=6, subsample=0.5, n_iter_no_change=2), False),
    (GradientBoostingRegressor(n_estimators=6, loss="huber", warm_start=True), False),
    (HistGradientBoostingClassifier(max_iter=6, early_stopping=True, scoring="loss"), False),
    (HistGradientBoostingRegressor(max_iter=6, loss="quantile", quantile=0.3), False),
    (HistGradientBoostingRegressor(max_iter=6, monotonic_cst=[1, 0, 0], max_features=0.5), False),
    (HistGradientBoostingClassifier(max_iter=6, interaction_cst=[{0, 1}, {2}]), False),
)


@pytest.mark.parametrize(("estimator", "two"), ESTIMATORS, ids=str)
def test_scikit_learn_estimators_and_skl2onnx_graphs_predict_equally(
    estimator: Any, two: bool
) -> None:
    table = frame(200, categories=False).fillna(0.25).to_numpy(dtype=np.float32)
    labels = make_classes(frame(200, categories=False))
    estimator.set_params(**{"random_state": 0} | ({"verbose": 0} if "verbose" in
                         estimator.get_params() else {}))  # fmt: skip
    estimator.fit(table, np.minimum(labels, 1) if two else labels)
    rows = frame(60, 7, categories=False).fillna(0.25).to_numpy(dtype=np.float32)
    is_classifier = hasattr(estimator, "classes_")
    theirs = estimator.predict_proba(rows) if is_classifier else estimator.predict(rows)
    model = treekit.read_model(estimator)
    ours = model.predict_proba(rows) if is_classifier else model.predict(rows)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    if isinstance(estimator, BaggingClassifier) or hasattr(estimator, "max_iter"):
        return  # skl2onnx 1.20 writes several operators, or fails
    options = {"zipmap": False} if is_classifier else None
    proto = to_onnx(estimator, rows, options={type(estimator): options} if options else None)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    theirs = session.run(None, {session.get_inputs()[0].name: rows})[-1]
    model = read_onnx(proto)
    ours = model.predict_proba(rows) if is_classifier else model.predict(rows).reshape(-1, 1)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=4e-6)
