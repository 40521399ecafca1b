"""Boosted trees read from scikit-learn: their paths and predictions equal scikit-learn's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from tests.foreign import beside, frame, make_classes
from treekit.errors import ModelError
from treekit.interop.sklearn import read_sklearn

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
def test_gradient_boosting_classifiers_predict_equally(
    loss: str, classes: int, init: str | None
) -> None:
    table = frame(300, categories=False).fillna(0.25)
    y = LABELS[np.minimum(make_classes(table), classes - 1)]
    estimator = GradientBoostingClassifier(n_estimators=8, loss=loss, init=init, random_state=0)
    estimator.fit(table, y)
    assert_classifier_equal(estimator, plain_rows(estimator))


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber", "quantile"])
def test_gradient_boosting_regressors_predict_equally(loss: str) -> None:
    table = frame(300, categories=False).fillna(0.25)
    y = make_classes(table) + 0.5 * table["width"]
    estimator = GradientBoostingRegressor(n_estimators=8, loss=loss, random_state=0).fit(table, y)
    rows = plain_rows(estimator)
    assert_margins_equal(read_sklearn(estimator), estimator.predict(rows), rows)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("classes", [2, 3])
def test_hist_gradient_boosting_classifiers_predict_equally(classes: int, dtype: str) -> None:
    table = frame()
    y = LABELS[np.minimum(make_classes(table), classes - 1)]
    estimator = HistGradientBoostingClassifier(max_iter=8, categorical_features="from_dtype")
    estimator.fit(table, y)
    rows = beside(thresholds_of(estimator), frame(120, 7), ("height", "width"))
    assert_classifier_equal(estimator, rows, dtype=dtype)


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "poisson", "gamma"])
def test_hist_gradient_boosting_regressors_predict_equally(loss: str) -> None:
    table = frame(categories=False)
    estimator = HistGradientBoostingRegressor(max_iter=8, loss=loss)
    estimator.fit(table, make_classes(table) + 0.5)
    rows = beside(thresholds_of(estimator), frame(120, 7, False), ("height", "width"))
    raw = estimator._raw_predict(rows)[:, 0]
    assert_margins_equal(read_sklearn(estimator, answer="margins"), raw, rows)
    np.testing.assert_allclose(
        read_sklearn(estimator).predict(rows), estimator.predict(rows), rtol=1e-13, atol=1e-15
    )


def test_doubles_between_two_float32_values_take_the_branch_of_scikit_learn() -> None:
    table = frame(categories=False)
    estimator = HistGradientBoostingRegressor(max_iter=5).fit(table, make_classes(table))
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


def test_unseen_and_missing_categories_take_the_branch_of_scikit_learn() -> None:
    table = frame()
    estimator = HistGradientBoostingClassifier(max_iter=8, categorical_features="from_dtype")
    estimator.fit(table, make_classes(table) > 0)
    model = read_sklearn(estimator)
    soil, zone = model.schema.columns[3:]
    assert soil.levels == ("*/", "clay", "loam", "sand", "silt")
    assert zone.levels == ("3", "5", "9", "11")
    rows = frame(300, 9)
    rows["soil"] = rows["soil"].cat.add_categories(["peat"]).fillna("peat")
    rows["zone"] = [None if i % 7 == 0 else zone for i, zone in enumerate(rows["zone"])]
    rows["zone"] = rows["zone"].astype("category")
    np.testing.assert_allclose(model.predict_proba(rows), estimator.predict_proba(rows), rtol=1e-13)


def test_categorical_columns_of_an_array_are_read_at_any_position() -> None:
    random = np.random.default_rng(0)
    rows = np.stack([random.normal(size=400), random.integers(0, 9, 400)], axis=1)
    y = (rows[:, 1] % 3 == 1) ^ (rows[:, 0] > 0)
    estimator = HistGradientBoostingClassifier(max_iter=5, categorical_features=[1]).fit(rows, y)
    model = treekit.read_model(estimator)
    assert [column.kind for column in model.schema.columns] == ["numeric", "nominal"]
    rows[:50, 1] = np.nan
    rows = rows.astype(np.float32)
    np.testing.assert_allclose(model.predict_proba(rows), estimator.predict_proba(rows), rtol=1e-13)


def test_models_that_cannot_be_expressed_are_refused() -> None:
    table = frame(100, categories=False).fillna(0.0)
    y = make_classes(table)
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


def test_unknown_losses_and_fields_of_nodes_are_refused() -> None:
    table = frame(100, categories=False)
    estimator = HistGradientBoostingRegressor(max_iter=2).fit(table, make_classes(table))
    estimator.loss = "tomorrow_error"
    with pytest.raises(ModelError, match="unknown loss 'tomorrow_error'; treekit reads squared_"):
        read_sklearn(estimator)
    estimator.loss = "squared_error"
    predictor = estimator._predictors[0][0]
    predictor.leaf_scale = 7
    with pytest.raises(ModelError, match=r"unknown entry '_predictors.leaf_scale' = 7"):
        read_sklearn(estimator)
    del predictor.leaf_scale
    dtype = [*predictor.nodes.dtype.descr, ("leaf_scale", "f8")]
    predictor.nodes = np.zeros(len(predictor.nodes), dtype)
    with pytest.raises(ModelError, match=r"unknown entry '_predictors.nodes.leaf_scale'"):
        read_sklearn(estimator)


def test_rules_of_imported_models_are_verified_equal(tmp_path: Path) -> None:
    table = frame(200)
    estimator = HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype")
    model = read_sklearn(estimator.fit(table, LABELS[make_classes(table)]))
    paths = treekit.export(model, "rules", tmp_path / "m")
    assert treekit.verify(model, paths).exit_code == 0
    model.save(tmp_path / "m.treekit")
    np.testing.assert_array_equal(treekit.load(tmp_path / "m.treekit").units, model.units)
