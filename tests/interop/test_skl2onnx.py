"""skl2onnx converts pipelines and ensembles of treekit's estimators with their predictions."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import onnxruntime
import pandas as pd
import pytest
import skl2onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier, StackingRegressor, VotingClassifier, VotingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier as SklearnTree

import treekit
from tests.reference.models import random_model
from tests.tiers import later
from treekit import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExportError,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    TreekitWarning,
)
from treekit.data.schema import Column, Schema
from treekit.interop import skl2onnx as room
from treekit.interop.import_hook import register_when_imported, when_imported
from treekit.model.builder import build_tree, leaf, oblique, threshold
from treekit.model.model import make_model

RNG = np.random.default_rng(5)
X = RNG.normal(size=(120, 4)).astype(np.float32)
X[::11, 1] = np.nan
NUMBERS = X[:, 0] ** 2 + 3 * X[:, 2]
WORDS = np.array(["low", "mid", "high"])[(X[:, 0] > X[:, 2]).astype(int) + (X[:, 3] > 0.5)]
FULL = X[:, [0, 2, 3]]  # nothing missing
SCHEMA = Schema(tuple(Column(f"x{i}") for i in range(4)), classes=("low", "mid", "high"))
SUM = oblique({0: 0.5, 1: -1.25, 3: 3.0}, 0.1, leaf([1, 0, 2]), leaf([0, 3, 1]))
OF_KINDS = {
    "fractional": random_model(3, SCHEMA, missing="fractional"),
    "oblique": make_model(SCHEMA, [build_tree(SUM, SCHEMA)]),
}
PLAIN = {"zipmap": False}


def tree(**parameters) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=4, **parameters)


def forest(**parameters) -> RandomForestClassifier:
    return RandomForestClassifier(n_estimators=3, max_depth=4, random_state=0, **parameters)


def regressor(**parameters) -> RandomForestRegressor:
    return RandomForestRegressor(n_estimators=3, max_depth=4, random_state=0, **parameters)


def run(model, rows, options=None, **given):
    """What onnxruntime answers to `rows`, converted from a look at the first of them."""
    converted = skl2onnx.to_onnx(model, rows[:1], options=options, **given)
    return answers(converted, rows)


def answers(converted, rows) -> list:
    session = onnxruntime.InferenceSession(converted.SerializeToString())
    if isinstance(rows, pd.DataFrame):
        fed = {}
        for one in session.get_inputs():
            cells = rows[[one.name]].to_numpy()
            fed[one.name] = cells.astype(object) if one.type == "tensor(string)" else cells
    else:
        fed = {session.get_inputs()[0].name: rows}
    return session.run(None, fed)


# ------------------------------------------------------------------ single estimators


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "model",
    [tree(), forest(), later(ExtraTreesClassifier(n_estimators=3, random_state=1))],
    ids=str,
)
def test_a_classifier_predicts_with_equal_bits(model, dtype):
    rows = X.astype(dtype)
    label, share = run(model.fit(X, WORDS), rows, PLAIN)
    assert label.tolist() == model.predict(rows).tolist()
    assert share.dtype == np.float64
    np.testing.assert_array_equal(share, model.predict_proba(rows))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeRegressor(max_depth=4),
        regressor(),
        later(ExtraTreesRegressor(n_estimators=3, random_state=1)),
    ],
    ids=str,
)
def test_a_regressor_predicts_with_equal_bits(model, dtype):
    rows = X.astype(dtype)
    (value,) = run(model.fit(X, NUMBERS), rows)
    np.testing.assert_array_equal(value, model.predict(rows)[:, None])


def test_integer_inputs_are_accepted():
    rows = RNG.integers(-40, 40, size=(60, 3))
    model = forest().fit(rows, rows[:, 0] > rows[:, 1])
    label, share = run(model, rows, PLAIN)
    assert label.dtype == np.int64
    assert label.tolist() == model.predict(rows).tolist()
    np.testing.assert_array_equal(share, model.predict_proba(rows))


def test_probabilities_are_mapped_by_default_as_skl2onnx_does():
    model = forest().fit(X, WORDS)
    for rows in (X, X.astype(np.float64)):
        label, maps = run(model, rows)
        assert label.tolist() == model.predict(rows).tolist()
        shares = np.array([[one[name] for name in model.classes_] for one in maps])
        np.testing.assert_array_equal(shares, model.predict_proba(rows).astype(np.float32))


def test_probabilities_are_returned_as_columns_without_zipmap():
    model = forest().fit(X, WORDS)
    label, *columns = run(model, X, {"zipmap": "columns"})
    assert label.tolist() == model.predict(X).tolist()
    np.testing.assert_array_equal(np.stack(columns, axis=1), model.predict_proba(X))


def test_nocl_returns_class_positions():
    model = forest().fit(X, WORDS)
    label, share = run(model, X, {**PLAIN, "nocl": True})
    assert model.classes_[label].tolist() == model.predict(X).tolist()
    label, share, names = run(model, X, {**PLAIN, "output_class_labels": True})
    assert names.tolist() == model.classes_.tolist()
    np.testing.assert_array_equal(share, model.predict_proba(X))
    with pytest.raises(ExportError, match="zipmap=False"):
        run(model, X, {"output_class_labels": True})


def test_raw_scores_are_refused():
    with pytest.raises(Exception, match="raw_scores"):
        run(forest().fit(X, WORDS), X, {"raw_scores": True})


def test_labels_are_whole_numbers_or_text():
    truth = X[:, 0] > 0
    for labels in (truth, truth * 2.0, truth.astype(np.int8)):
        model = tree().fit(X, labels)
        assert run(model, X, PLAIN)[0].tolist() == model.predict(X).astype(np.int64).tolist()
    model = tree().fit(X, truth * np.uint64(2**63))
    with pytest.raises(ExportError, match="text labels"):
        run(model, X, PLAIN)


def test_a_float64_model_compares_in_float64():
    model = tree().fit(X, WORDS)
    schema = msgspec.structs.replace(SCHEMA, dtype="float64")
    at = 1.6e9 + np.arange(20) / 7
    trees = [build_tree(steps(at + k / 30), schema) for k in range(3)]
    model.model_ = make_model(schema, trees, settings=model.model_.settings)
    near = np.concatenate([np.nextafter(at, 0), at, np.nextafter(at, np.inf), [np.nan]])
    rows = np.stack([near] * 4, axis=1)
    for given in (rows, rows.astype(np.float32)):
        label, share = run(model, given, PLAIN)
        assert label.tolist() == model.predict(given).tolist()
        np.testing.assert_array_equal(share, model.predict_proba(given))
    assert len({*model.predict(rows)}) > 1


def steps(at):
    """Classes by turns between ascending thresholds."""
    node = leaf([1, 2, 4])
    for number, bound in enumerate(at[::-1].tolist()):
        node = threshold(0, bound, leaf(np.roll([5.0, 1.0, 0.5], number).tolist()), node)
    return node


def test_leaf_and_path_outputs_equal_those_of_the_estimator():
    model = forest().fit(X, WORDS)
    told = {**PLAIN, "decision_path": True, "decision_leaf": True}
    _label, _share, path, leaf_ = run(model, X, told)
    np.testing.assert_array_equal(leaf_, model.apply(X))
    visited = model.decision_path(X)[0].toarray()
    assert ["".join(row) for row in path] == ["".join(map(str, row)) for row in visited]
    for zipmap in (True, "columns"):
        converted = skl2onnx.to_onnx(
            model, X[:1], options={"zipmap": zipmap, "decision_leaf": True}
        )
        session = onnxruntime.InferenceSession(converted.SerializeToString())
        np.testing.assert_array_equal(session.run(["decision_leaf"], {"X": X})[0], model.apply(X))
    single = DecisionTreeRegressor(max_depth=3).fit(X, NUMBERS)
    value, leaf_ = run(single, X, {"decision_leaf": True})
    np.testing.assert_array_equal(value[:, 0], single.predict(X))
    np.testing.assert_array_equal(leaf_[:, 0], single.apply(X))


def test_several_outputs_are_columns_of_labels_and_planes_of_probabilities():
    several = np.stack([WORDS, np.where(X[:, 0] > 0, "yes", "no")], axis=1)
    model = forest().fit(X, several)
    label, share = run(model, X)  # ZipMap knows one output: left out
    assert label.tolist() == model.predict(X).tolist()
    for plane, own in zip(share, model.predict_proba(X), strict=True):
        np.testing.assert_array_equal(plane[:, : own.shape[1]], own)
        assert not plane[:, own.shape[1] :].any()
    numbers = np.stack([NUMBERS, X[:, 0]], axis=1)
    model = regressor().fit(X, numbers)
    np.testing.assert_array_equal(run(model, X)[0], model.predict(X))


def test_conversion_keeps_models_of_every_kind():
    model = tree().fit(X, WORDS)
    for of_kind in OF_KINDS.values():
        model.model_ = replace(of_kind, settings=model.model_.settings)
        label, share = run(model, X, PLAIN)
        assert label.tolist() == model.predict(X).tolist()
        np.testing.assert_array_equal(share, model.predict_proba(X))


def test_the_graph_refuses_what_the_estimator_refuses():
    model = tree(missing="error").fit(FULL, WORDS)
    assert run(model, FULL, PLAIN)[0].tolist() == model.predict(FULL).tolist()
    gone = FULL.copy()
    gone[3, 1] = np.nan
    with pytest.raises(Exception, match="refuses missing values"):
        run(model, gone, PLAIN)


# ------------------------------------------------------------------ categories

CELLS = {
    "size": X[:, 0],
    "colour": RNG.choice(["red", "green", "blue"], 120).astype(object),
    "code": RNG.choice([1, 5, 7, 300], 120),
    "share": RNG.choice([0.1, 0.2, 0.7], 120),
    "weight": X[:, 1],
}
CELLS["colour"][::9] = None
MIXED = pd.DataFrame(CELLS).astype({"colour": object})
SIDE = ((X[:, 0] > 0) ^ (MIXED["colour"] == "red") ^ (MIXED["code"] == 5)).astype(int)
STRANGE = MIXED.copy()
STRANGE.loc[1, "colour"], STRANGE.loc[2, "colour"] = "mauve", "?"
STRANGE.loc[3, "code"], STRANGE.loc[4, "share"] = 2, float(np.float32(0.1))
STRANGE.loc[5, "share"], STRANGE.loc[6, "share"] = np.nan, -0.0


@pytest.mark.parametrize("model", [tree(), forest()], ids=str)
def test_raw_categories_are_accepted_as_text_and_numbers(model):
    model.set_params(categorical=["colour", "code", "share"]).fit(MIXED, SIDE)
    for rows in (MIXED, STRANGE):
        label, share = run(model, rows, PLAIN)
        assert label.tolist() == model.predict(rows).tolist()
        np.testing.assert_array_equal(share, model.predict_proba(rows))


def test_an_unseen_category_is_refused_where_the_estimator_refuses_it():
    model = tree(categorical=["colour", "code"], unknown="error").fit(MIXED, SIDE)
    assert run(model, MIXED, PLAIN)[0].tolist() == model.predict(MIXED).tolist()
    for name, value in (("colour", "mauve"), ("code", 2)):
        rows = MIXED.copy()
        rows.loc[1, name] = value
        with pytest.raises(Exception, match="refuses unseen categories"):
            run(model, rows, PLAIN)


def test_negative_zero_matches_the_category_zero():
    rows = RNG.choice([0.0, 1.0, 2.0], size=(60, 2))
    model = tree(categorical=[0, 1]).fit(rows, rows[:, 0] == rows[:, 1])
    rows[rows == 0] = -0.0
    for dtype in (np.float32, np.float64):
        assert run(model, rows.astype(dtype), PLAIN)[0].tolist() == model.predict(rows).tolist()


def test_categories_equal_as_float32_are_refused():
    near = np.where(X[:, :1] > 0, 1.0, 1.0 + 2.0**-40)
    model = tree(categorical=[0]).fit(near, X[:, 0] > 0)
    with pytest.raises(ExportError, match="equal in float32"):
        run(model, near, PLAIN)


def test_text_in_a_numeric_column_is_refused():
    model = tree().fit(FULL, WORDS)
    with pytest.raises(ExportError, match="is numeric, but the graph's input is text"):
        skl2onnx.to_onnx(model, initial_types=[("X", StringTensorType([None, 3]))])
    with pytest.raises(ExportError, match="the inputs have 2 columns"):
        skl2onnx.to_onnx(model, initial_types=[("X", FloatTensorType([None, 2]))])


def columns() -> ColumnTransformer:
    return ColumnTransformer(
        [
            ("filled", SimpleImputer(), ["weight"]),
            ("scaled", StandardScaler(), ["size"]),
            ("text", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["colour"]),
            (
                "code",
                OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
                ["code"],
            ),
        ]
    )


def test_a_pipeline_of_mixed_columns_takes_raw_rows():
    rows = MIXED.astype({"share": np.float32})
    model = make_pipeline(columns(), forest(categorical=[6])).fit(rows, SIDE)
    label, share = run(model, rows, PLAIN)
    assert label.tolist() == model.predict(rows).tolist()
    np.testing.assert_array_equal(share, model.predict_proba(rows))


# ------------------------------------------------------------------ scikit-learn's ensembles

TWICE = np.stack([X[:, 0] > X[:, 2], X[:, 3] > 0], axis=1).astype(np.int64)


def test_a_search_converts_with_its_best_estimator():
    search = GridSearchCV(make_pipeline(StandardScaler(), forest()), {}, cv=2).fit(FULL, WORDS)
    label, share = run(search, FULL, PLAIN)
    assert label.tolist() == search.predict(FULL).tolist()
    np.testing.assert_array_equal(share, search.predict_proba(FULL))


def test_hard_voting_ensembles_count_votes():
    members = [("t", tree()), ("f", forest()), ("l", LogisticRegression())]
    votes = VotingClassifier(members, flatten_transform=False).fit(FULL, WORDS)
    assert run(votes, FULL)[0].tolist() == votes.predict(FULL).tolist()


@pytest.mark.parametrize(
    "model",
    [
        VotingClassifier(
            [("p", make_pipeline(StandardScaler(), tree())), ("f", forest())],
            voting="soft",
            flatten_transform=False,
        ),
        BaggingClassifier(tree(), n_estimators=3, max_features=0.7, random_state=0),
        pytest.param(
            CalibratedClassifierCV(forest(), cv=2),
            id="CalibratedClassifierCV",
            marks=pytest.mark.matrix,
        ),
    ],
    ids=lambda model: type(model).__name__,
)
def test_ensemble_probabilities_have_the_type_of_their_input(model):
    model.fit(FULL.astype(np.float64), WORDS)
    for dtype, bound in ((np.float32, 2e-7), (np.float64, 5e-16)):
        rows = FULL.astype(dtype)
        label, share = run(model, rows, PLAIN)
        assert label.tolist() == model.predict(rows).tolist()
        assert share.dtype == dtype
        np.testing.assert_allclose(share, model.predict_proba(rows), rtol=0, atol=bound)


@pytest.mark.parametrize(
    ("model", "target"),
    [
        (VotingRegressor([("f", regressor()), ("r", Ridge())]), NUMBERS),
        (StackingRegressor([("f", regressor()), ("r", Ridge())], cv=2), NUMBERS),
        (MultiOutputRegressor(regressor()), np.stack([NUMBERS, X[:, 0]], axis=1)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_ensemble_regressors_are_as_precise_as_their_input_type(model, target):
    model.fit(FULL.astype(np.float64), target)
    for dtype, bound in ((np.float32, 4e-6), (np.float64, 1e-14)):
        rows = FULL.astype(dtype)
        (value,) = run(model, rows)
        wanted = model.predict(rows)
        np.testing.assert_allclose(value.reshape(wanted.shape), wanted, rtol=0, atol=bound)


def test_multi_output_classifier_converts_one_classifier_per_output():
    model = MultiOutputClassifier(tree()).fit(FULL, TWICE)
    label, shares = run(model, FULL, {id(model): PLAIN})
    assert label.tolist() == model.predict(FULL).tolist()
    for share, own in zip(shares, model.predict_proba(FULL), strict=True):
        np.testing.assert_array_equal(share, own.astype(np.float32))


def test_treekit_and_scikit_learn_estimators_convert_to_one_graph():
    members = [("a", tree()), ("b", tree(max_leaf_nodes=3)), ("c", SklearnTree(max_depth=2))]
    votes = VotingClassifier(members, voting="soft", flatten_transform=False).fit(FULL, WORDS)
    label, _shares = run(votes, FULL, PLAIN)
    assert label.tolist() == votes.predict(FULL).tolist()


# ------------------------------------------------------------------ registration

PROGRAM = """
import sys
import treekit.estimators
assert "skl2onnx" not in sys.modules and "onnx" not in sys.modules
before = len(sys.meta_path)
import skl2onnx
from skl2onnx.common._registration import get_converter
assert len(sys.meta_path) == before - 1
assert skl2onnx.__spec__.loader is skl2onnx.__loader__
assert type(skl2onnx.__loader__).__module__ == "_frozen_importlib_external"
get_converter("TreekitDecisionTreeClassifier")
"""


@pytest.mark.system
def test_estimators_register_when_skl2onnx_is_imported_and_do_not_import_it():
    subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], check=True)


class Derived(DecisionTreeClassifier):
    """A user's own."""


def test_subclass_converts_after_registration():
    model = Derived(max_depth=2).fit(FULL, WORDS)
    with pytest.raises(Exception, match="Derived"):
        run(model, FULL, PLAIN)
    treekit.register_skl2onnx(Derived)
    assert run(model, FULL, PLAIN)[0].tolist() == model.predict(FULL).tolist()
    with pytest.raises(ExportError, match="not an estimator of treekit"):
        treekit.register_skl2onnx(SklearnTree)


def test_target_opset_below_the_minimum_is_refused():
    model = tree().fit(FULL, WORDS)
    with pytest.raises(ExportError, match="target_opset is 12"):
        run(model, FULL, target_opset=12)
    for opset in (13, 18, skl2onnx.__max_supported_opset__):
        assert run(model, FULL, PLAIN, target_opset=opset)[0].tolist() == (
            model.predict(FULL).tolist()
        )


def test_when_imported_calls_back_on_import_or_at_once(tmp_path, monkeypatch):
    (tmp_path / "treekit_waited_for.py").write_text("ready = True", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    called = []
    when_imported("treekit_waited_for", lambda: called.append("then"))
    assert called == []
    module = importlib.import_module("treekit_waited_for")
    assert module.ready
    assert called == ["then"]
    importlib.reload(module)
    when_imported("treekit_waited_for", lambda: called.append("at once"))
    assert called == ["then", "at once"]
    monkeypatch.delitem(sys.modules, "treekit_waited_for")


def test_when_imported_leaves_import_error_of_a_missing_module():
    called = []
    finders = list(sys.meta_path)
    when_imported("treekit_never_there", lambda: called.append("then"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("treekit_never_there")
    assert called == []
    sys.meta_path[:] = finders


def test_incompatible_skl2onnx_warns_without_breaking_its_import(monkeypatch):
    def fail(*classes):
        raise TypeError("no such argument")

    monkeypatch.setattr(room, "register_skl2onnx", fail)
    monkeypatch.setitem(sys.modules, "skl2onnx", SimpleNamespace(__spec__=None))
    with pytest.warns(TreekitWarning, match="no such argument"):
        register_when_imported(DecisionTreeClassifier)
