"""Training and export of every kind of grown model: four artifacts that predict equally.

Nothing is mocked: real training, real exports, gcc, onnxruntime and Python.
"""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression

import treekit
from tests.runtimes import need
from treekit.data import DEMO_TARGET, demo_table

WATERMELON = Path(__file__).parents[2] / "examples" / "tables" / "watermelon"
TARGETS = ("onnx", "c", "python", "rules")


def columns(x, **more):
    return {f"x{i}": x[:, i] for i in range(x.shape[1])} | more


def mixed_tree():
    return treekit.train(demo_table(), DEMO_TARGET, seed=0)


def forest_with_missing_cells_in_every_column():
    x, y = make_classification(800, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=0)
    x[np.random.default_rng(0).random(x.shape) < 0.15] = np.nan
    return treekit.train(columns(x, y=y), "y", ensemble="forest", trees=7, seed=0)


def regression_forest():
    x, y = make_regression(500, 5, random_state=0)
    y[3] = 1e6
    return treekit.train(columns(x, y=y), "y", ensemble="forest", trees=9, seed=0)


def small_regression_forest():
    x, y = make_regression(80, 3, random_state=0)
    y[3] = 1e6
    return treekit.train(columns(x, y=y), "y", ensemble="forest", trees=2, seed=0)


def chinese_tree_by_entropy():
    return treekit.train(
        WATERMELON / "watermelon_3.0.csv",
        "好瓜",
        ignore=["编号"],
        criterion="entropy",
        nominal_splits="multiway",
        seed=0,
    )


def chinese_forest_with_missing_cells():
    return treekit.train(
        WATERMELON / "watermelon_2.0_alpha.csv",
        "好瓜",
        ignore=["编号"],
        ensemble="forest",
        trees=10,
        seed=0,
    )


def ten_trees_with_tied_votes():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 4, (300, 4)), rng.integers(0, 2, 300)
    return treekit.train(columns(x, y=y), "y", ensemble="forest", trees=10, seed=0)


def single_leaf():
    return treekit.train({"x": np.arange(10.0), "y": [0, 1] * 5}, "y", max_depth=0, seed=0)


def one_class():
    return treekit.train({"x": np.arange(10.0), "y": ["a"] * 10}, "y", seed=0)


def chain_of_depth_900():
    x = 2.0 ** np.arange(0, 90.1, 0.1)
    return treekit.train({"x": x, "y": np.arange(901) % 2}, "y", seed=0)


def tree_pruned_by_cross_validation():
    return treekit.train(demo_table(), DEMO_TARGET, pruner="cost_complexity", seed=0)


MAKERS = [
    chinese_forest_with_missing_cells,
    small_regression_forest,
    *(
        pytest.param(make, marks=pytest.mark.matrix)
        for make in (
            mixed_tree,
            forest_with_missing_cells_in_every_column,
            regression_forest,
            chinese_tree_by_entropy,
            ten_trees_with_tied_votes,
            single_leaf,
            one_class,
            chain_of_depth_900,
            tree_pruned_by_cross_validation,
        )
    ),
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_every_export_of_a_trained_model_predicts_equal_bits(make, tmp_path):
    need("gcc")
    model = make()
    model.save(tmp_path / "m.treekit")
    model = treekit.load(tmp_path / "m.treekit")
    artifacts = [treekit.export(model, target, tmp_path / "m")[0] for target in TARGETS]
    report = treekit.verify(model, artifacts, random_rows=300)
    assert report.equal, str(report)
    assert len(report.artifacts) == len(TARGETS)
    assert "100%" in str(report)


@pytest.mark.matrix
def test_chain_tree_is_grown_to_its_full_depth():
    assert chain_of_depth_900().depth == 900


def test_ten_tree_model_has_rows_with_tied_votes():
    model = ten_trees_with_tied_votes()
    rng = np.random.default_rng(2)
    shares = model.predict_proba(columns(rng.integers(0, 4, (2000, 4))))
    assert np.count_nonzero(shares[:, 0] == shares[:, 1]) > 0
