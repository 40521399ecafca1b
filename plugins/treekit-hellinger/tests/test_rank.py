"""Test the ranking of a rare class on mammograms, and exports without the plugin."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import treekit
from treekit.testing import check_criterion

_SPEC = spec_from_file_location(
    "hellinger_benchmark", Path(__file__).parent.parent / "benchmark.py"
)
benchmark = module_from_spec(_SPEC)
_SPEC.loader.exec_module(benchmark)


@pytest.fixture(scope="module")
def mammography():
    return benchmark.read()


def ranks(criterion, shape, x, y, repeats):
    folds = benchmark.halves(x, y, repeats)
    return benchmark.measured(benchmark.ours(criterion, shape), x, y, folds)[0]


@pytest.mark.parametrize("depth", [4, 6])
def test_small_trees_rank_the_minority_better_than_gini_in_every_split(mammography, depth):
    shape = {"max_depth": depth}
    gini, hellinger = (ranks(c, shape, *mammography, 5)[:, 0] for c in ("gini", "hellinger"))
    assert (hellinger > gini).all()
    assert hellinger.mean() > gini.mean() + 0.02


def test_bagged_trees_have_higher_precision_for_the_minority_than_gini(mammography):
    shape = {"ensemble": "forest", "trees": 25, "max_features": "all", "seed": 0}
    gini, hellinger = (ranks(c, shape, *mammography, 1)[:, 1] for c in ("gini", "hellinger"))
    assert (hellinger > gini + 0.02).all()


def test_criterion_passes_the_contract_checks():
    check_criterion("hellinger")


def test_exports_run_without_the_plugin_and_without_treekit(mammography, run_alone):
    x, y = mammography
    table = x.iloc[::10].assign(y=y[::10])
    model = treekit.train(table, "y", criterion="hellinger", ensemble="forest", trees=5, seed=0)
    for told in run_alone(model, table).values():
        assert np.array_equal(told, model.predict_proba(table))
