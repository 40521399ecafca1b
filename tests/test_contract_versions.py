"""Plugins of every supported contract work, and what is too new or too old is left out."""

from __future__ import annotations

import importlib.metadata
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import treekit
from treekit import Criterion, CriterionFunctions, PluginError, TreekitWarning, contracts, registry
from treekit.cli import main
from treekit.contracts import CONTRACT_VERSION
from treekit.discovery import OLDEST_CONTRACT, contract_of

FORMER = Path(__file__).parent / "plugins_v1"
RNG = np.random.default_rng(4)
DATA = {
    "a": RNG.integers(0, 9, 90),
    "b": RNG.normal(size=90),
    "c": RNG.choice(list("xyz"), 90),
}
DATA["y"] = np.where(DATA["a"] + 2 * (DATA["c"] == "x") + RNG.normal(size=90) > 5, "p", "q")

pytestmark = pytest.mark.usefixtures("fresh_registry")


@pytest.fixture
def former(monkeypatch):
    """The plugin of contract 1, installed."""
    monkeypatch.syspath_prepend(str(FORMER))
    import treekit_former

    return treekit_former


def latest_ratio(former):
    """The criterion of the former plugin, as contract 2 has it."""

    def make(slack):
        def choose(gains, scores, levels):
            mean, offered, best = 0.0, 0, -1
            for f in range(gains.shape[0]):
                if gains[f] == gains[f]:
                    mean, offered = mean + gains[f], offered + 1
            for f in range(gains.shape[0]):
                if gains[f] >= mean / offered - slack and (best < 0 or scores[f] > scores[best]):
                    best = f
            return best

        return CriterionFunctions(impurity=former.bits, score=former.ratio, choose=choose)

    listed = registry.criterion("former_ratio")
    return Criterion("latest_ratio", "classification", make, listed.settings)


def same_trees(one, other):
    assert one.n_nodes == other.n_nodes > 3
    for a, b in zip(one.trees, other.trees, strict=True):
        assert a.feature.tolist() == b.feature.tolist()
        np.testing.assert_array_equal(a.threshold, b.threshold)
        np.testing.assert_array_equal(a.value, b.value)


def test_the_plugin_of_the_former_contract_is_installable_as_it_is_kept(former):
    project = tomllib.loads((FORMER / "pyproject.toml").read_text("utf-8"))["project"]
    installed = importlib.metadata.distribution("treekit-former")
    assert installed.version == project["version"]
    (entry_point,) = installed.entry_points
    assert {entry_point.name: entry_point.value} == project["entry-points"]["treekit"]
    assert not hasattr(former, "treekit_contract")


@pytest.mark.matrix
def test_a_former_criterion_trains_the_tree_of_its_twin_after_one_warning(former):
    settings = {"criterion.slack": 0.01, "max_depth": 5, "seed": 0}
    with pytest.warns(TreekitWarning) as told:
        old = treekit.train(DATA, "y", criterion="former_ratio", **settings)
    assert len(told) == 1
    message = str(told[0].message)
    assert "criterion 'former_ratio' (from treekit-former 1.4.0)" in message
    assert "write choose(gains, scores, levels), and treekit_contract = 2" in message
    new = treekit.train(DATA, "y", criterion=latest_ratio(former), **settings)
    same_trees(old, new)
    again = treekit.train(DATA, "y", criterion="former_ratio", **settings)  # told already
    same_trees(again, new)


@pytest.mark.matrix
def test_what_still_holds_of_a_former_contract_is_used_without_a_word(former, tmp_path):
    model = treekit.train(
        DATA, "y", splitter="former_middle", pruner="former_large", **{"pruner.rows": 20}
    )
    inner = model.trees[0].n_children > 0
    assert model.trees[0].weight[inner].min() >= 20
    assert model.provenance["pruner"] == {"nodes": model.n_nodes}
    (path,) = treekit.export(model, "former_summary", tmp_path / "m", indent=0)
    assert f'"leaves": {model.n_leaves}' in path.read_text("utf-8")
    model.save(tmp_path / "m.treekit")
    (tmp_path / "m.link").write_text(str(tmp_path / "m.treekit"), "utf-8")
    assert treekit.read_model(tmp_path / "m.link").n_nodes == model.n_nodes


def test_the_listing_tells_the_contract_of_each_plugin(former, monkeypatch):
    contracts_of = {c.distribution: c.contract for c in registry.components()}
    assert contracts_of["treekit"] == CONTRACT_VERSION == 2
    assert contracts_of["treekit-former"] == 1
    monkeypatch.setenv("COLUMNS", "200")
    lines = CliRunner().invoke(main, ["plugins"]).output.splitlines()
    at = lines[0].index("contract")
    (row,) = [line for line in lines if "former_ratio" in line]
    assert row[at:].split()[0] == "1"


def test_a_record_given_directly_is_adapted_by_its_own_module():
    def choose(gains, scores):
        return int(np.nanargmax(scores))

    record = Criterion(
        "mine",
        "classification",
        lambda: CriterionFunctions(lambda s: 0.0, lambda p, c: 0.0, choose),
    )
    with pytest.warns(TreekitWarning, match="criterion 'mine' gives a choose of two arguments"):
        functions, _ = registry.make(record, {})
    assert functions.choose(np.array([1.0, 2.0]), np.array([3.0, 1.0]), np.zeros(2)) == 0


def test_a_plugin_of_this_contract_is_held_to_it(former, monkeypatch):
    monkeypatch.setattr(former, "treekit_contract", 2, raising=False)
    with pytest.raises(
        PluginError,
        match=r"'choose' of criterion 'former_ratio' \(from treekit-former 1.4.0\) cannot be",
    ):
        treekit.train(DATA, "y", criterion="former_ratio")


UNSUPPORTED = {
    "newer": (CONTRACT_VERSION + 1, "for version 3 of the contract, .* upgrade treekit"),
    "too old": (OLDEST_CONTRACT - 1, "for version 0 of the contract, .* update the plugin"),
    "no whole number": ("2", "treekit_contract = '2', which is no whole number"),
    "a truth value": (True, "treekit_contract = True, which is no whole number"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_a_plugin_of_an_unsupported_contract_is_left_out_by_name(former, monkeypatch, case):
    version, cause = UNSUPPORTED[case]
    monkeypatch.setattr(former, "treekit_contract", version, raising=False)
    with pytest.warns(TreekitWarning, match=f"'former' of treekit-former 1.4.0 .*{cause}") as told:
        names = set(registry.criteria())
    assert len(told) == 1
    assert "gini" in names
    assert "former_ratio" not in names
    registry.configure(strict=True)
    with pytest.raises(PluginError, match=cause):
        registry.criteria()


def test_every_version_since_the_oldest_says_what_it_changed():
    told = contracts.__doc__.partition("Versions\n")[2].splitlines()
    versions = [int(line) for line in told if line.strip().isdigit()]
    assert versions == list(range(CONTRACT_VERSION, OLDEST_CONTRACT - 1, -1))


@pytest.mark.matrix
def test_the_age_is_told_once_whatever_the_filters_of_warnings(former):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        treekit.train(DATA, "y", criterion="former_ratio", max_depth=1)
        treekit.train(DATA, "y", criterion="former_ratio", max_depth=1)
    assert len([w for w in caught if "choose of two arguments" in str(w.message)]) == 1


def test_a_module_that_says_nothing_is_of_the_first_contract():
    assert contract_of(None) == contract_of(pytest) == 1
