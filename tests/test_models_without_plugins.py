"""A model outlives the plugins that made it; only training again needs them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import treekit
from treekit import DecisionTreeClassifier, RandomForestClassifier, SettingError, registry

PLUGIN = """
from treekit import (
    Criterion, CriterionFunctions, Pruner, PrunerFunctions, Setting, Splitter, SplitterFunctions,
    hookimpl,
)
from treekit.splitting import branch_stats, code_range, heavy_enough, missing_to, scored
from treekit.splitting import threshold_split

treekit_contract = 2

def make(power):
    def impurity(stats):
        total = stats.sum()
        return 1.0 - ((stats / total) ** power).sum()
    return CriterionFunctions(impurity=impurity)

def find(node, criterion, rng):
    low, high, _ = code_range(node, 0)
    split = missing_to(threshold_split(0, (low + high) // 2), 0)
    if low < high:
        children = branch_stats(node, split)
        if heavy_enough(node, children):
            return scored(split, criterion.score(node.stats, children))
    return None

def after(tree, context):
    context.report["nodes"] = tree.n_nodes
    return tree

@hookimpl
def treekit_criteria():
    power = Setting("power", 2.0, "of the shares", minimum=1.0)
    return [Criterion("powered", "classification", make, (power,))]

@hookimpl
def treekit_splitters():
    return [Splitter("middle", lambda: SplitterFunctions(find))]

@hookimpl
def treekit_pruners():
    return [Pruner("counted", lambda: PrunerFunctions(after=after))]
"""

CHILD = """
import sys
import numpy as np
import treekit
from click.testing import CliRunner
from treekit import registry
from treekit.cli import main

assert "powered" not in registry.criteria()
model = treekit.load("m.treekit")
rows = {"x": np.load("x.npy"), "z": np.load("z.npy")}
assert (model.predict(rows) == np.load("said.npy", allow_pickle=False)).all()
print(str(model.rules())[:30].strip() != "", "<svg" in model.plot().svg())
for target, suffix in (("onnx", "onnx"), ("c", "c"), ("python", "py"), ("rules", "rules.txt")):
    treekit.export(model, target, f"out/m.{suffix}")
report = treekit.verify(
    model, [f"out/m.{suffix}" for suffix in ("onnx", "c", "py", "rules.txt")], random_rows=50
)
print(report.equal)
table = rows | {"y": model.predict(rows)}
gains, losses = treekit.gain_importances(model), treekit.permutation_importances(model, table)
print(len(gains), len(losses.columns))
told = CliRunner().invoke(main, ["inspect", "m.treekit"])
print(" ".join(told.output.split()))
for kind in ("criterion", "splitter", "pruner"):
    others = {"criterion": "gini", "splitter": "exact", "pruner": "none"}
    del others[kind]
    try:
        treekit.train(table, "y", like="m.treekit", **others)
    except treekit.PluginError as error:
        print(error)
others = {"criterion": "gini", "splitter": "exact", "pruner": "none"}
print(treekit.train(table, "y", like=model, **others).n_nodes)
"""

pytestmark = pytest.mark.usefixtures("fresh_registry")
RNG = np.random.default_rng(3)
DATA = {"x": RNG.random(60), "z": RNG.random(60)}
DATA["y"] = np.where(DATA["x"] + RNG.normal(0, 0.2, 60) > 0.5, "p", "q")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    site = tmp_path / "site"
    info = site / "their_plugin-3.1.dist-info"
    info.mkdir(parents=True)
    (site / "their_module.py").write_text(PLUGIN, "utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugin\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text("[treekit]\nplug = their_module\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(site))
        yield patch
    sys.modules.pop("their_module", None)


@pytest.mark.system
def test_a_model_is_used_where_its_plugins_are_not_installed(installed, tmp_path):
    model = treekit.train(
        DATA,
        "y",
        criterion="powered",
        splitter="middle",
        pruner="counted",
        seed=0,
        **{"criterion.power": 3.0},
    )
    again = treekit.train(DATA, "y", like=model)
    np.testing.assert_array_equal(again.trees[0].value, model.trees[0].value)
    assert again.settings == model.settings
    model.save(tmp_path / "m.treekit")
    np.save(tmp_path / "x.npy", DATA["x"])
    np.save(tmp_path / "z.npy", DATA["z"])
    np.save(tmp_path / "said.npy", model.predict(DATA).astype("U"))
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    shown, equal, importances, inspected, *refused, nodes = done.stdout.splitlines()
    assert shown.split() == ["True", "True"]
    assert equal == "True"
    assert importances.split() == ["2", "2"]
    for kind, name in (("criterion", "powered"), ("splitter", "middle"), ("pruner", "counted")):
        assert f"{kind} {name} (their-plugin 3.1)" in inspected
        assert any(
            f"{kind} {name!r} of the plugin 'plug' (their-plugin 3.1), which is not installed" in r
            and "pip install 'their-plugin==3.1'" in r
            for r in refused
        )
    assert len(refused) == 3
    assert int(nodes) > 1


@pytest.mark.matrix
def test_an_estimator_predicts_without_its_plugin_and_is_refused_more_trees(installed):
    table = np.column_stack([DATA["x"], DATA["z"]])
    forest = RandomForestClassifier(
        n_estimators=2, criterion="powered", warm_start=True, random_state=0
    ).fit(table, DATA["y"])
    tree = DecisionTreeClassifier(criterion="powered").fit(table, DATA["y"])
    before = forest.predict(table)
    installed.undo()
    registry.configure()
    assert (forest.predict(table) == before).all()
    assert tree.feature_importances_.shape == (2,)
    forest.set_params(n_estimators=3)
    with pytest.raises(
        treekit.PluginError, match=r"'powered' of the plugin 'plug' .their-plugin 3"
    ):
        forest.fit(table, DATA["y"])


def test_a_record_of_a_built_in_name_is_not_taken_for_the_built_in():
    own = replace(registry.criterion("gini"), summary="somebody's own")
    model = treekit.train(DATA, "y", criterion=own, max_depth=2)
    with pytest.raises(SettingError, match=r"criterion 'gini', which was given as a record"):
        treekit.train(DATA, "y", like=model)
    assert treekit.train(DATA, "y", like=model, criterion=own).n_nodes == model.n_nodes
