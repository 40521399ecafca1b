"""Models read from scikit-learn: their paths and predictions equal scikit-learn's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    RandomTreesEmbedding,
)
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

from tests.reference import evaluate
from treekit import registry
from treekit.contracts import Importer
from treekit.errors import ModelError, PluginError, SettingError, TreekitWarning
from treekit.export.onnx import export_onnx
from treekit.interop import read_model
from treekit.interop.sklearn import (
    convert_trees,
    make_tree_table,
    read_sklearn,
    recognises_sklearn,
    treekit_importers,
)
from treekit.model.model import Model
from treekit.model.tree import Split
from treekit.model.validation import check_tree
from treekit.registry.discovery import Component
from treekit.registry.kinds import KINDS

# ---------------------------------------------------------------- import sklearn

CLASSIFIERS = [
    DecisionTreeClassifier,
    ExtraTreeClassifier,
    RandomForestClassifier,
    ExtraTreesClassifier,
]
REGRESSORS = [DecisionTreeRegressor, ExtraTreeRegressor, RandomForestRegressor, ExtraTreesRegressor]

Rows = npt.NDArray[np.float32]


def fitted(kind: type, X: Any, y: Any, **settings: Any) -> Any:
    few = {"n_estimators": 10} if hasattr(kind(), "n_estimators") else {}
    return kind(random_state=0, **(few | settings)).fit(X, y)


def members_of(estimator: Any) -> list[Any]:
    return list(getattr(estimator, "estimators_", [estimator]))


def with_holes(X: npt.NDArray[Any], share: float, seed: int = 0) -> npt.NDArray[Any]:
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


def classification_rows(n: int = 600, classes: int = 3) -> tuple[Rows, npt.NDArray[Any]]:
    X, y = make_classification(n, 8, n_informative=5, n_classes=classes, flip_y=0.1, random_state=1)
    return X.astype(np.float32), y


def around_thresholds(estimator: Any, n_features: int) -> Rows:
    """Rows of every threshold, and a float32 step to either side, in all columns."""
    thresholds = np.concatenate(
        [m.tree_.threshold[m.tree_.feature >= 0] for m in members_of(estimator)]
    )
    at = thresholds[np.isfinite(thresholds)][:40].astype(np.float32)
    steps = [at, np.nextafter(at, np.float32(-np.inf)), np.nextafter(at, np.float32(np.inf))]
    return np.repeat(np.concatenate(steps)[:, None], n_features, axis=1)


def onnx_answers(model: Model, X: Rows) -> list[npt.NDArray[Any]]:
    content = export_onnx(model, "m")["m.onnx"]
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"X": X}))


@pytest.mark.parametrize("holes", [0.0, 0.2])
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_every_row_reaches_the_leaf_and_label_of_scikit_learn(kind: type, holes: float) -> None:
    X, y = classification_rows()
    estimator = fitted(kind, with_holes(X, holes), y)
    model = read_sklearn(estimator)
    rows = np.concatenate([with_holes(X[:100], 0.3), around_thresholds(estimator, X.shape[1])])
    for number in range(0, len(rows), 10):  # the oracle is slow
        reached = evaluate.leaf_rows(model, rows[number].tolist())
        for member, at, tree, offset in zip(
            members_of(estimator), reached, model.trees, model.leaf_offsets, strict=False
        ):
            theirs = member.tree_.apply(rows[number : number + 1])[0]
            ours = tree.leaves[at - offset]
            assert tree.weight[ours] == member.tree_.weighted_n_node_samples[theirs]
            shares = tree.value[ours] / tree.weight[ours]
            np.testing.assert_array_equal(shares, member.tree_.value[theirs, 0])
    labels, shares = onnx_answers(model, rows)
    expected = estimator.predict_proba(rows)
    two = np.sort(expected, axis=1)[:, -2:]
    clear = (two[:, 1] - two[:, 0] > 1e-5) | (len(model.trees) == 1)
    assert clear.mean() > 0.8
    np.testing.assert_array_equal(labels[clear], estimator.predict(rows)[clear])
    np.testing.assert_allclose(shares, expected, rtol=0, atol=len(model.trees) / 2**24)


@pytest.mark.parametrize("holes", [0.0, 0.2])
@pytest.mark.parametrize("kind", REGRESSORS)
def test_regressors_predict_equally_within_rounding(kind: type, holes: float) -> None:
    X, y = make_regression(400, 6, noise=5.0, random_state=2)
    X = X.astype(np.float32)
    estimator = fitted(kind, with_holes(X, holes), y)
    rows = np.concatenate([with_holes(X[:100], 0.3), around_thresholds(estimator, X.shape[1])])
    model = read_sklearn(estimator)
    (values,) = onnx_answers(model, rows)
    largest = np.abs(y).max()
    assert 2.0**model.exponent <= largest * len(model.trees) ** 2 / 2**47
    digits = 2.0**-50 * largest  # what scikit-learn's own sum may lose
    bound = 2.0**model.exponent / 2 + digits
    np.testing.assert_allclose(values, estimator.predict(rows), rtol=0, atol=bound)


def test_labels_of_a_forest_of_100_trees_are_equal_except_for_ties() -> None:
    X, y = classification_rows(1500)
    estimator = fitted(RandomForestClassifier, X[:500], y[:500], n_estimators=100)
    labels, _ = onnx_answers(read_sklearn(estimator), X)
    shares = np.sort(estimator.predict_proba(X), axis=1)
    tied = shares[:, -1] - shares[:, -2] < 1e-5
    np.testing.assert_array_equal(labels[~tied], estimator.predict(X)[~tied])
    assert tied.mean() < 0.02


def test_exact_ties_predict_the_first_class() -> None:
    X, y = classification_rows(400, classes=2)
    estimator = fitted(RandomForestClassifier, X, y, n_estimators=10)
    model = read_sklearn(estimator)
    rows = np.random.default_rng(3).normal(size=(2000, X.shape[1])).astype(np.float32) * 2
    votes = sum(member.predict(rows) for member in estimator.estimators_)
    tied = votes == 5
    assert tied.sum() > 20
    labels, _ = onnx_answers(model, rows)
    assert set(labels[tied]) == {0}


def test_leaf_values_are_integer_counts_of_weighted_training_rows() -> None:
    X, y = classification_rows(997)
    weights = np.random.default_rng(4).integers(1, 8, len(y))
    estimator = DecisionTreeClassifier(max_depth=6, random_state=0).fit(X, y, sample_weight=weights)
    (tree,) = read_sklearn(estimator).trees
    np.testing.assert_array_equal(tree.value, np.rint(tree.value))
    np.testing.assert_array_equal(tree.value[0], np.bincount(y, weights))
    np.testing.assert_array_equal(tree.weight, tree.value.sum(axis=1))


def test_fractional_weights_are_kept() -> None:
    estimator = DecisionTreeClassifier().fit([[0.0], [0.0], [1.0]], [0, 1, 1], [0.25, 0.5, 1.5])
    (tree,) = read_sklearn(estimator).trees
    np.testing.assert_allclose(tree.value[0], [0.25, 2.0], rtol=1e-15)


@pytest.mark.parametrize("missing_right", [True, False])
def test_split_of_missing_versus_known_becomes_a_missing_value_split(missing_right: bool) -> None:
    X = np.array([[1.0], [2.0], [np.nan], [np.nan]])
    estimator = DecisionTreeClassifier().fit(X, np.array([0, 0, 1, 1]) ^ (not missing_right))
    assert np.isinf(estimator.tree_.threshold[0])
    model = read_sklearn(estimator)
    assert model.trees[0].kind[0] == Split.MISSING
    labels, _ = onnx_answers(model, X.astype(np.float32))
    np.testing.assert_array_equal(labels, estimator.predict(X))


def damaged_tree(**changes: Any) -> SimpleNamespace:
    """What `sklearn.tree._tree.Tree` shows of a stump, with changes."""
    parts = {
        "node_count": 3,
        "children_left": np.array([1, -1, -1]),
        "children_right": np.array([2, -1, -1]),
        "feature": np.array([0, -2, -2]),
        "threshold": np.array([-np.inf, -2.0, -2.0]),
        "missing_go_to_left": np.array([1, 0, 0], dtype=np.uint8),
        "value": np.array([[[0.5, 0.5]], [[1.0, 0.0]], [[0.0, 1.0]]]),
        "weighted_n_node_samples": np.array([4.0, 2.0, 2.0]),
        "impurity": np.array([0.5, 0.0, 0.0]),
    }
    return SimpleNamespace(**(parts | changes))


def test_missing_values_to_the_left_of_minus_infinity_are_a_missing_split() -> None:
    schema = read_sklearn(DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])).schema
    (tree,) = convert_trees([make_tree_table(damaged_tree(), [2])], schema, "the tree")
    check_tree(tree, schema)
    assert tree.kind[0] == Split.MISSING
    np.testing.assert_array_equal(tree.value[1:], [[2.0, 0.0], [0.0, 2.0]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold": np.array([np.inf, -2, -2])}, "all values to one side"),
        ({"missing_go_to_left": np.zeros(3, dtype=np.uint8)}, "all values to one side"),
        ({"threshold": np.array([np.nan, -2, -2])}, "a threshold is NaN"),
        ({"children_left": np.array([0, -1, -1])}, "damaged"),
        ({"children_left": np.array([2, -1, -1])}, "damaged"),
        ({"children_left": np.array([7, -1, -1])}, "damaged"),
    ],
)
def test_malformed_trees_are_refused(changes: dict[str, Any], message: str) -> None:
    schema = read_sklearn(DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])).schema
    with pytest.raises(ModelError, match=message):
        convert_trees([make_tree_table(damaged_tree(**changes), [2])], schema, "the tree")


def test_thresholds_between_adjacent_float32_values_keep_the_branches() -> None:
    a = np.float32(1000.1)
    b = np.nextafter(a, np.float32(np.inf))
    X = np.array([[a], [b]], dtype=np.float32)
    estimator = DecisionTreeClassifier().fit(X, [0, 1])
    model = read_sklearn(estimator)
    assert model.trees[0].threshold[0] == float(a) != estimator.tree_.threshold[0]
    labels, _ = onnx_answers(model, X)
    np.testing.assert_array_equal(labels, [0, 1])


@pytest.mark.parametrize(
    "labels", [["no", "yes"], [True, False], [2.0, -1.0], [10, -3], ["中", "\\"]]
)
def test_labels_of_any_type_are_kept(labels: list[Any]) -> None:
    estimator = DecisionTreeClassifier().fit([[0.0], [1.0]], np.array(labels))
    model = read_sklearn(estimator)
    assert model.schema.classes == tuple(sorted(labels))
    assert {type(label) for label in model.schema.classes} == {type(labels[0])}
    answers, _ = onnx_answers(model, np.array([[0.0], [1.0]], dtype=np.float32))
    assert answers.tolist() == labels


def test_column_names_come_from_the_training_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"年龄": [0.0, 1.0], "*/": [1.0, 0.0]})
    estimator = RandomForestClassifier(n_estimators=2).fit(frame, [0, 1])
    assert read_sklearn(estimator).schema.names == ("年龄", "*/")
    unnamed = DecisionTreeClassifier().fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    assert read_sklearn(unnamed).schema.names == ("x0", "x1")


def test_imported_model_states_its_origin() -> None:
    model = read_sklearn(DecisionTreeRegressor(max_depth=3).fit([[0.0], [1.0]], [0.0, 1.0]))
    assert model.settings["max_depth"] == 3
    assert model.provenance["estimator"] == "DecisionTreeRegressor"
    assert model.schema.task == "regression"
    assert model.schema.dtype == "float32"


def test_one_class_and_best_first_growth_are_read() -> None:
    X, y = classification_rows()
    one = read_sklearn(DecisionTreeClassifier().fit(X, np.zeros(len(X))))
    assert (one.n_nodes, one.schema.classes) == (1, (0.0,))
    estimator = DecisionTreeClassifier(max_leaf_nodes=40, random_state=0).fit(X, y)
    labels, _ = onnx_answers(read_sklearn(estimator), X)
    np.testing.assert_array_equal(labels, estimator.predict(X))


@pytest.mark.matrix
def test_a_tree_of_depth_3000_is_read() -> None:
    X = np.arange(3001, dtype=np.float32)[:, None]
    # Each row outweighs a little the one before: the best split cuts off the last.
    weights = 1.002 ** np.arange(3001)
    estimator = DecisionTreeClassifier().fit(X, np.arange(3001) % 2, sample_weight=weights)
    model = read_sklearn(estimator)
    assert model.depth == estimator.get_depth() == 3000
    labels, _ = onnx_answers(model, X)
    np.testing.assert_array_equal(labels, estimator.predict(X))


def test_several_outputs_are_read() -> None:
    X, y = classification_rows()
    texts = np.stack([y.astype(str), np.where(y == 1, "b", "a")], axis=1)
    forest = RandomForestClassifier(n_estimators=5, max_depth=4, random_state=0).fit(X, texts)
    model = read_sklearn(forest)
    assert [output.classes for output in model.schema.outputs] == [("0", "1", "2"), ("a", "b")]
    for ours, theirs in zip(model.predict_proba(X), forest.predict_proba(X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=5 / 2**24)
    numbers = np.stack([X[:, 0] * k + y for k in range(3)], axis=1)
    tree = DecisionTreeRegressor(max_depth=5, random_state=0).fit(X, numbers)
    model = read_sklearn(tree)
    assert [output.name for output in model.schema.outputs] == ["y0", "y1", "y2"]
    np.testing.assert_allclose(model.predict(X), tree.predict(X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("features", [1.0, 0.5])
def test_bagged_trees_are_read(features: float) -> None:
    X, y = classification_rows(300)
    rare = np.where(np.arange(300) < 2, "rare", np.array(["x", "y", "z"])[y])
    few = {"n_estimators": 12, "max_features": features, "random_state": 0, "max_samples": 40}
    rows = np.concatenate([X, with_holes(X, 0.1)])
    bag = BaggingClassifier(DecisionTreeClassifier(max_depth=4), **few).fit(X, rare)
    model = read_sklearn(bag)
    np.testing.assert_allclose(
        model.predict_proba(rows), bag.predict_proba(rows), rtol=0, atol=12 / 2**24
    )
    numbers = BaggingRegressor(DecisionTreeRegressor(max_depth=4), **few).fit(X, X[:, 0] + y)
    np.testing.assert_allclose(
        read_sklearn(numbers).predict(rows), numbers.predict(rows), rtol=0, atol=1e-11
    )
    with pytest.raises(ModelError, match="not decision trees with one output"):
        read_sklearn(BaggingRegressor(RandomForestRegressor(2), n_estimators=2).fit(X, y))


@pytest.mark.parametrize("kind", [DecisionTreeClassifier, RandomForestRegressor])
def test_an_unfitted_estimator_is_refused(kind: type) -> None:
    with pytest.raises(ModelError, match=f"{kind.__name__} is not fitted: call fit first"):
        read_sklearn(kind())


@pytest.mark.parametrize("other", [AdaBoostClassifier(), RandomTreesEmbedding(), 3, "x"])
def test_objects_of_other_libraries_are_not_recognised(other: Any) -> None:
    assert not recognises_sklearn(other)
    with pytest.raises(ModelError, match="expected a tree or forest"):
        read_sklearn(other)
    with pytest.raises(ModelError, match=r"no importer recognises.*installed: .*scikit-learn"):
        read_model(other)


class OwnFit(RandomForestClassifier):
    """A subclass that predicts like its class."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OwnFit:
        super().fit(X, np.asarray(y), sample_weight)
        return self

    def report(self) -> str:
        return "mine"


class OwnAnswers(RandomForestClassifier):
    def predict_proba(self, X: Any) -> Any:
        return 1.0 - super().predict_proba(X)


class OwnMembers(DecisionTreeRegressor):
    def predict(self, X: Any, check_input: bool = True) -> Any:
        return -super().predict(X, check_input)


def test_subclasses_that_override_prediction_methods_are_refused() -> None:
    X, y = classification_rows(100)
    assert recognises_sklearn(OwnFit())
    read = read_sklearn(fitted(OwnFit, X, y))
    assert read.provenance["estimator"] == "OwnFit"
    message = r"OwnAnswers overrides 'predict_proba' of sklearn's .*pass an object of sklearn's own"
    with pytest.raises(ModelError, match=message):
        read_sklearn(fitted(OwnAnswers, X, y))
    bag = BaggingRegressor(OwnMembers(max_depth=2), n_estimators=2).fit(X, y)
    with pytest.raises(ModelError, match="OwnMembers overrides 'predict' of sklearn's Decision"):
        read_sklearn(bag)
    forest = fitted(RandomForestClassifier, X, y)
    forest.predict = lambda X: np.zeros(len(X))
    with pytest.raises(ModelError, match="RandomForestClassifier overrides 'predict'"):
        read_sklearn(forest)


def test_unknown_attributes_of_estimators_are_refused() -> None:
    X, y = classification_rows(100)
    forest = fitted(RandomForestClassifier, X, y)
    forest.columns = ["mine"]  # no name of scikit-learn's for what a fit sets
    assert read_sklearn(forest).n_trees == 10
    forest.leaf_scale_ = 7
    with pytest.raises(
        ModelError, match=r"unknown entry 'leaf_scale_' = 7.*delete it if it is you"
    ):
        read_sklearn(forest)


class OtherNodes:
    """A tree of a later scikit-learn, whose nodes have another field."""

    def __init__(self, tree: Any, **more: Any) -> None:
        self.tree, self.more = tree, more

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tree, name)

    def __getstate__(self) -> dict[str, Any]:
        state = self.tree.__getstate__() | self.more
        fields = [(name, kind) for name, (kind, _) in state["nodes"].dtype.fields.items()]
        nodes = np.zeros(len(state["nodes"]), [*fields, ("category_set", "u8")])
        return state if self.more else state | {"nodes": nodes}


@pytest.mark.parametrize(
    ("more", "entry"), [({"category_sets": 7}, "category_sets"), ({}, "nodes.category_set")]
)
def test_unknown_parts_of_trees_are_refused(more: dict[str, Any], entry: str) -> None:
    estimator = DecisionTreeRegressor(max_depth=2).fit([[0.0], [1.0]], [0.0, 1.0])
    estimator.tree_ = OtherNodes(estimator.tree_, **more)
    with pytest.raises(ModelError, match=f"unknown entry 'tree_.{entry}'"):
        read_sklearn(estimator)


@pytest.mark.system
def test_other_objects_are_recognised_without_importing_scikit_learn() -> None:
    code = (
        "import sys; from treekit.interop.sklearn import recognises_sklearn as known;"
        "assert not known(object()); assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importer_is_registered_by_its_hook() -> None:
    (importer,) = (one for one in treekit_importers() if one.name == "scikit-learn")
    assert registry.get("importer", "scikit-learn") == importer


def test_read_model_finds_the_importer_of_an_estimator() -> None:
    estimator = DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])
    assert read_model(estimator).n_leaves == 2
    with pytest.raises(SettingError, match="depth"):
        read_model(estimator, depth=3)


@pytest.mark.parametrize("name", ["model.pkl", "model.pickle", "model.joblib"])
def test_pickles_are_refused_without_opening_them(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(ModelError, match=r"'model\..*' is a pickle, which can execute code"):
        read_model(path)


def test_importer_that_fails_to_recognise_a_source_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(source: Any) -> bool:
        raise OSError("no such thing")

    broken = Importer("a broken one", fail, read_sklearn)
    (ours,) = (one for one in registry.list("importer").found if one.record.name == "scikit-learn")
    theirs = Component("importer", broken, "broken", "treekit-broken", "0.3")
    catalogue = registry.Catalogue(KINDS["importer"], [theirs, ours])
    monkeypatch.setattr(registry, "list", lambda kind: catalogue)
    estimator = DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])
    with pytest.warns(
        TreekitWarning, match=r"'a broken one' of treekit-broken 0\.3 failed.*no such"
    ):
        model = read_model(estimator)
    assert model.n_leaves == 2


def test_two_importers_of_one_name_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    (ours,) = (one for one in registry.list("importer").found if one.record.name == "scikit-learn")
    theirs = Component("importer", ours.record, "other", "treekit-other", "0.3")
    catalogue = registry.Catalogue(KINDS["importer"], [theirs, ours])
    monkeypatch.setattr(registry, "list", lambda kind: catalogue)
    with pytest.raises(PluginError, match=r"treekit .*treekit-other .*uninstall one"):
        read_model(DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1]))


def test_a_fraction_in_a_categorical_column_of_histogram_boosting_is_unseen():
    """scikit-learn looks categories up by equality, and treats unseen ones as missing."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    values = np.repeat([0.0, 1.0, 2.0, 3.0], 60)
    for gone in (False, True):
        x = np.where((np.arange(240) % 7 == 0) & gone, np.nan, values)[:, None]
        boosted = HistGradientBoostingClassifier(
            max_iter=8, min_samples_leaf=2, categorical_features=[0]
        ).fit(x, np.isin(values, [1, 2]).astype(int))
        cells = np.array([0, 1, 1.0000001, 1.999, 2.5, -0.5, -1, 7, 1e300, np.nan])[:, None]
        found = read_model(boosted).predict_proba(cells)
        assert np.allclose(found, boosted.predict_proba(cells), atol=1e-12)
