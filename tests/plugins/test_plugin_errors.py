"""Failing pruners, exporters, importers and criteria are reported, and nothing partial is kept."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import treekit
from treekit import (
    Criterion,
    CriterionExtras,
    CriterionFunctions,
    Exporter,
    ExportError,
    Importer,
    ModelError,
    PluginError,
    Pruner,
    PrunerFunctions,
    Ranks,
    Setting,
    Splitter,
    SplitterFunctions,
    TreekitWarning,
    registry,
)
from treekit.cli import main
from treekit.kernels.records import Node
from treekit.splitting import (
    Split,
    branch_stats,
    heavy_enough,
    level_split,
    scored,
    threshold_split,
)

# ---------------------------------------------------------------- plugin edges

RNG = np.random.default_rng(5)
DATA = {"x": RNG.random(80), "z": RNG.random(80)}
DATA["y"] = np.where(DATA["x"] + RNG.normal(0, 0.4, 80) > 0.5, "p", "q")
FOREST = {"ensemble": "forest", "trees": 4, "n_jobs": 2}


@pytest.fixture(scope="module")
def model():
    return treekit.train(DATA, "y", seed=0)


def pruned(after, **settings):
    record = Pruner("faulty", lambda: PrunerFunctions(after=after))
    return treekit.train(DATA, "y", pruner=record, seed=0, **settings)


def changed(tree, **fields):
    return replace(tree, **{name: np.array(value) for name, value in fields.items()})


def with_cycle(tree):
    first = tree.first_child.copy()
    first[np.flatnonzero(first >= 0)[-1]] = 0
    return changed(tree, first_child=first)


def first_inner(tree, name, value):
    array = getattr(tree, name).copy()
    array[np.flatnonzero(tree.n_children > 0)[0]] = value
    return changed(tree, **{name: array})


TREES = {
    "nothing": (lambda tree: None, "after returned None, not a Tree"),
    "a text": (lambda tree: "tree", "after returned 'tree', not a Tree"),
    "a cycle": (with_cycle, "a child does not come after its parent|no parent or several"),
    "a column too far": (lambda t: first_inner(t, "feature", 7), "schema does not have"),
    "a level split of a number": (lambda t: first_inner(t, "kind", 2), "branch entry|numeric"),
    "a threshold of another type": (lambda t: first_inner(t, "threshold", 0.1), "not a float32"),
    "an endless threshold": (lambda t: first_inner(t, "threshold", math.inf), "not finite"),
    "fewer values": (lambda t: changed(t, value=t.value[:-1]), "value has shape"),
    "values of another target": (lambda t: changed(t, value=t.value[:, :1]), "value has shape"),
    "a value that is NaN": (lambda t: changed(t, value=t.value * math.nan), "not finite"),
    "a gain that is NaN": (lambda t: first_inner(t, "gain", math.nan), "gain that is NaN"),
    "texts for numbers": (lambda t: changed(t, value=[["a", "b"]] * t.n_nodes), "ValueError"),
    "no node": (lambda t: t.take(np.empty(0, np.int64), np.empty(0, bool)), "one node"),
}


@pytest.mark.parametrize("case", TREES)
def test_pruner_that_returns_an_invalid_tree_is_refused(case):
    function, said = TREES[case]
    for ensemble in ({}, FOREST):
        with pytest.raises(PluginError, match=f"pruner 'faulty' failed in after .*({said})"):
            pruned(lambda tree, context: function(tree), **ensemble)


def test_pruner_gets_read_only_trees_and_statistics():
    shared = {
        "the tree": lambda tree, context: tree.value,
        "the statistics": lambda tree, context: context.stats,
        "the held-out statistics": lambda tree, context: context.held_stats,
        "the rows": lambda tree, context: context.grown.rows.values,
        "the codes": lambda tree, context: context.table.codes,
    }
    for array in shared.values():

        def after(tree, context, array=array):
            array(tree, context)[:] = 0
            return tree

        for ensemble in ({}, FOREST):
            with pytest.raises(PluginError, match=r"'faulty' failed in after .*read-only"):
                pruned(after, **ensemble)


def test_pruner_that_raises_or_exits_raises_plugin_error(model):
    def exits(tree, context):
        raise SystemExit(2)

    for ensemble in ({}, FOREST):
        with pytest.raises(PluginError, match="'faulty' failed in after with SystemExit: 2"):
            pruned(exits, **ensemble)
    again = treekit.train(DATA, "y", seed=0)
    np.testing.assert_array_equal(again.trees[0].threshold, model.trees[0].threshold)


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, np.arange(3), b"bytes"], ids=["object", "keys", "array", "bytes"]
)
def test_pruner_report_that_cannot_be_saved_is_refused_in_training(value):
    def after(tree, context):
        context.report["kept"] = value
        return tree

    with pytest.raises(PluginError, match=r"'faulty' .*context.report\['kept'\] cannot be saved"):
        pruned(after)


def test_pruner_report_with_nan_is_saved_and_loaded(tmp_path):
    def after(tree, context):
        context.report["alpha"] = math.nan
        context.report["path"] = [math.inf, {"best": np.float64(0.5)}]
        return tree

    pruned(after).save(tmp_path / "m.treekit")
    report = treekit.load(tmp_path / "m.treekit").provenance["pruner"]
    assert math.isnan(report["alpha"])
    assert report["path"] == [math.inf, {"best": 0.5}]


def exporter(export):
    return Exporter("faulty", ".out", export)


class Halfway(dict):
    def keys(self):
        raise OSError("the disk of the plugin is full")

    __iter__ = keys


def raises(model, name):
    raise RuntimeError("lost")


def exits(model, name):
    raise SystemExit(4)


FILES = {
    "a text for bytes": (lambda m, n: {f"{n}.out": "text"}, "a str for 'm.out', not bytes; encode"),
    "an array for bytes": (lambda m, n: {f"{n}.out": np.zeros(2)}, "a ndarray for 'm.out'"),
    "nothing": (lambda m, n: None, "export returned a NoneType, not a mapping"),
    "bytes alone": (lambda m, n: b"text", "export returned a bytes, not a mapping"),
    "no file": (lambda m, n: {}, "; the first must be 'm.out'"),
    "another main file": (lambda m, n: {"other.out": b""}, "first must be 'm.out'"),
    "an absolute path": (
        lambda m, n: {f"{n}.out": b"", "/tmp/x": b""},
        "returned the file name '/tmp/x'",
    ),
    "a path outside": (
        lambda m, n: {f"{n}.out": b"", "../x": b""},
        "returned the file name '../x'",
    ),
    "a path of Windows": (lambda m, n: {f"{n}.out": b"", "..\\x": b""}, "names must be plain"),
    "the folder itself": (
        lambda m, n: {f"{n}.out": b"", "..": b""},
        r"returned the file name '\.\.'",
    ),
    "a null character": (lambda m, n: {f"{n}.out": b"", "a\0b": b""}, "names must be plain"),
    "a name that is none": (lambda m, n: {f"{n}.out": b"", 7: b""}, "returned the file name 7"),
    "names of one file": (
        lambda m, n: {f"{n}.out": b"", "Read.me": b"", "read.ME": b""},
        "'Read.me' and 'read.ME', which are the same file on some systems",
    ),
    "an exception": (raises, "failed with RuntimeError: lost"),
    "an exit": (exits, "failed with SystemExit: 4"),
    "a mapping that fails halfway": (
        lambda m, n: Halfway({f"{n}.out": b"new"}),
        "failed with OSError: the disk of the plugin is full",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_exporter_that_returns_no_files_raises_plugin_error(model, tmp_path, case):
    function, said = FILES[case]
    (tmp_path / "m.out").write_bytes(b"before")
    with pytest.raises(PluginError, match=f"exporter 'faulty' .*{said}.*nothing was written"):
        treekit.export(model, exporter(function), tmp_path / "m.out")
    assert [path.name for path in tmp_path.iterdir()] == ["m.out"]
    assert (tmp_path / "m.out").read_bytes() == b"before"


def test_export_blocked_by_a_folder_leaves_existing_files_unchanged(model, tmp_path):
    (tmp_path / "m.out").write_bytes(b"before")
    (tmp_path / "m.txt").mkdir()
    two = exporter(lambda model, name: {f"{name}.out": b"new", f"{name}.txt": b"new"})
    with pytest.raises(ExportError, match="it is a folder"):
        treekit.export(model, two, tmp_path / "m.out")
    assert (tmp_path / "m.out").read_bytes() == b"before"


def test_export_error_of_an_exporter_is_raised_unchanged(model, tmp_path):
    def refuses(model, name):
        raise ExportError("no more than one leaf fits")

    with pytest.raises(ExportError, match=r"^no more than one leaf fits$"):
        treekit.export(model, exporter(refuses), tmp_path / "m.out")


def test_an_exporter_cannot_change_the_model(model, tmp_path):
    seed = model.settings["seed"]

    def changes(model, name):
        model.settings["seed"] = "mine"
        model.provenance["components"].clear()
        return {f"{name}.out": b""}

    treekit.export(model, exporter(changes), tmp_path / "m")
    assert model.settings["seed"] == seed
    assert len(model.provenance["components"]) == 2

    def writes(model, name):
        model.units[:] = 0
        return {f"{name}.out": b""}

    with pytest.raises(PluginError, match=r"'faulty' failed with ValueError: .*read-only"):
        treekit.export(model, exporter(writes), tmp_path / "m")


def test_folder_and_numpy_error_state_are_restored_after_a_plugin(model, tmp_path):
    def changes_folder(model, name):
        os.chdir(tmp_path)
        np.seterr(all="raise")
        return {f"{name}.out": b"here"}

    here, state = Path.cwd(), np.geterr()
    with pytest.warns(TreekitWarning, match="exporter 'faulty' changed the working directory"):
        treekit.export(model, exporter(changes_folder), tmp_path / "m")
    assert Path.cwd() == here
    assert np.geterr() == state


@pytest.fixture
def importing(fresh_registry, monkeypatch):
    """``importing(read)``: the only foreign importer, of a plugin."""
    from treekit.registry import Catalogue
    from treekit.registry.discovery import Component
    from treekit.registry.kinds import KINDS

    def importing(read, recognises=lambda source: True):
        record = Importer("faulty", recognises, read)
        part = Component("importer", record, "plug", "their-package", "1.2")
        catalogue = Catalogue(KINDS["importer"], [part])
        monkeypatch.setattr(registry, "list", lambda kind: catalogue)

    return importing


def malformed(model, **fields):
    return replace(model, **fields)


MODELS = {
    "nothing": (lambda m: None, "failed to read .*: TypeError: read returned a NoneType"),
    "an array": (lambda m: m.units, "failed to read .*: TypeError: read returned a ndarray"),
    "an exception": (lambda m: 1 // 0, "failed to read .*: ZeroDivisionError"),
    "no tree": (lambda m: malformed(m, trees=()), "malformed model .*at least one tree"),
    "a cycle": (
        lambda m: malformed(m, trees=(with_cycle(m.trees[0]),)),
        "malformed model .*a child does not come after its parent",
    ),
    "units of another shape": (lambda m: malformed(m, units=m.units[:-1]), "units has shape"),
    "units that share nothing": (lambda m: malformed(m, units=m.units * 0), "do not sum"),
    "an unknown policy": (lambda m: malformed(m, missing="guess"), "unknown missing policy"),
    "no schema": (lambda m: malformed(m, schema=None), "a model's schema must be a Schema"),
    "settings of objects": (lambda m: malformed(m, settings={"a": {1}}), "must be plain values"),
}


@pytest.mark.parametrize("case", MODELS)
def test_importer_that_returns_no_model_raises_plugin_error(model, importing, case):
    function, said = MODELS[case]
    importing(lambda source: function(model))
    with pytest.raises(
        PluginError, match=rf"importer 'faulty' \(from their-package 1.2\) .*{said}"
    ):
        treekit.read_model(object())


def test_model_error_of_an_importer_is_raised_unchanged(importing):
    def refuses(source):
        raise ModelError("this release is too old")

    importing(refuses)
    with pytest.raises(ModelError, match=r"^this release is too old$"):
        treekit.read_model(object())


def test_importer_that_fails_to_recognise_a_source_is_skipped(importing):
    def exits(source):
        raise SystemExit(1)

    importing(lambda source: None, recognises=exits)
    with (
        pytest.warns(
            TreekitWarning, match="'faulty' of their-package 1.2 failed to inspect .*Exit: 1"
        ),
        pytest.raises(ModelError, match="no importer recognises"),
    ):
        treekit.read_model(object())


PLUGIN = """
import math, os
import numpy as np
from treekit import Criterion, CriterionFunctions, Exporter, hookimpl

treekit_contract = 2
np.seterr(all="raise")

def score(parent, children):
    return math.nan if parent.sum() < 60.0 else 1.0

@hookimpl
def treekit_criteria():
    os.chdir("/")
    return [Criterion("late_nan", "classification", lambda: CriterionFunctions(score=score))]

@hookimpl
def treekit_exporters():
    return [Exporter("half", ".half", lambda model, name: {name + ".half": b"", "../x": b""})]
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch, fresh_registry):
    site = tmp_path / "site"
    info = site / "their_plugin-3.1.dist-info"
    info.mkdir(parents=True)
    (site / "their_plugin.py").write_text(PLUGIN, "utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugin\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text("[treekit]\nplug = their_plugin\n")
    monkeypatch.syspath_prepend(str(site))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def run(*arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TreekitWarning)
        return CliRunner().invoke(main, list(arguments))


def test_command_line_reports_a_faulty_plugin_and_writes_no_file(plugin, model):
    rows = zip(*DATA.values(), strict=True)
    text = "\n".join(",".join(map(str, row)) for row in [tuple(DATA), *rows])
    (plugin / "t.csv").write_text(text, "utf-8")
    (plugin / "old.treekit").write_bytes(b"old")
    told = run("train", "t.csv", "--target", "y", "--criterion", "late_nan", "-o", "old.treekit")
    said = " ".join(told.output.split())
    assert told.exit_code == 2
    assert "criterion 'late_nan' (from their-plugin 3.1) returned NaN from score" in said
    assert Path.cwd() == plugin
    assert (plugin / "old.treekit").read_bytes() == b"old"
    model.save(plugin / "m.treekit")
    told = run("export", "m.treekit", "--to", "half", "-o", "m.half")
    assert told.exit_code == 2
    said = " ".join(told.output.split())
    assert "exporter 'half' (from their-plugin 3.1) returned the file name" in said
    assert sorted(path.name for path in plugin.iterdir()) == ["m.treekit", "old.treekit", "t.csv"]
    assert np.geterr()["divide"] != "raise"


# ---------------------------------------------------------------- plugin faults
# What a faulty component does in training is said under its own name, and stays its own.

PLUGIN_FAULTS_RNG = np.random.default_rng(0)
PLUGIN_FAULTS_DATA = {
    "x": PLUGIN_FAULTS_RNG.random(60),
    "c": list("abcd") * 15,
    "y": PLUGIN_FAULTS_RNG.integers(0, 2, 60),
}
NUMBERS = {"x": np.arange(60.0), "y": PLUGIN_FAULTS_RNG.random(60)}


def gini(stats):
    total = stats.sum()
    return 1.0 - (stats * stats).sum() / (total * total)


def between(parent, children):
    mean = parent[1] / parent[0]
    spread = 0.0
    for b in range(children.shape[0]):
        spread += children[b, 0] * (children[b, 1] / children[b, 0] - mean) ** 2
    return spread


def classes(**functions):
    return Criterion("faulty", "classification", lambda: CriterionFunctions(**functions))


def numbers(**functions):
    return Criterion("faulty", "regression", lambda: CriterionFunctions(score=between, **functions))


def nan(stats):
    return np.nan


def nan_score(parent, children):
    return np.nan


def test_leaf_value_function_that_raises_is_reported():
    def leaf_value(stats):
        raise KeyError("boom")

    with pytest.raises(PluginError, match="'faulty' raised KeyError: 'boom' in leaf_value"):
        treekit.train(NUMBERS, "y", task="regression", criterion=numbers(leaf_value=leaf_value))


def test_nan_leaf_value_is_reported_with_its_statistics():
    with pytest.raises(PluginError, match="'faulty' returned NaN from leaf_value; the stat"):
        treekit.train(NUMBERS, "y", task="regression", criterion=numbers(leaf_value=nan))


def test_a_leaf_value_cannot_write_to_the_statistics():
    def leaf_value(stats):
        stats[0] = 7.0
        return 0.0

    with pytest.raises(PluginError, match="read-only"):
        treekit.train(NUMBERS, "y", task="regression", criterion=numbers(leaf_value=leaf_value))


def test_nan_impurity_raises_an_error_with_the_statistics_of_the_node():
    criterion = classes(impurity=nan, score=lambda parent, children: 1.0)
    counts = [float((PLUGIN_FAULTS_DATA["y"] == k).sum()) for k in (0, 1)]
    with pytest.raises(PluginError, match=r"statistics it was given were") as failure:
        treekit.train(PLUGIN_FAULTS_DATA, "y", criterion=criterion)
    assert str(counts) in str(failure.value)


@pytest.mark.matrix
def test_a_multiway_score_that_is_nan_shows_statistics_of_a_branch():
    with pytest.raises(PluginError, match="statistics it was given were") as failure:
        treekit.train(
            {"c": PLUGIN_FAULTS_DATA["c"], "y": PLUGIN_FAULTS_DATA["y"]},
            "y",
            criterion=classes(score=nan_score),
            nominal_splits="multiway",
        )
    first = [
        float(((PLUGIN_FAULTS_DATA["y"] == k) & (np.array(PLUGIN_FAULTS_DATA["c"]) == "a")).sum())
        for k in (0, 1)
    ]
    assert str(first) in str(failure.value)


@pytest.mark.matrix
def test_choice_of_an_unknown_column_is_refused():
    extras = CriterionExtras(choose=lambda gains, scores, levels: 99)
    criterion = classes(impurity=gini, score=lambda parent, children: 1.0, extras=extras)
    with pytest.raises(PluginError, match="'faulty' chose a column that does not exist"):
        treekit.train(PLUGIN_FAULTS_DATA, "y", criterion=criterion)


def splitter(find):
    return Splitter("faulty", lambda: SplitterFunctions(find, "exact"))


@pytest.mark.matrix
def test_nan_score_of_a_splitter_names_the_splitter_not_the_criterion():
    def find(node, criterion, rng):
        return scored(threshold_split(0, 3), np.nan)

    with pytest.raises(PluginError, match="splitter 'faulty' returned a split whose score is NaN"):
        treekit.train(PLUGIN_FAULTS_DATA, "y", splitter=splitter(find))


@pytest.mark.matrix
def test_a_plugins_split_with_an_empty_branch_is_refused():
    def find(node, criterion, rng):
        return scored(level_split(1, np.array([0, 1, 1, 0], np.int32), 3), 1.0)

    with pytest.raises(PluginError, match="'faulty' returned a split with an empty branch"):
        treekit.train(PLUGIN_FAULTS_DATA, "y", splitter=splitter(find))


@pytest.mark.matrix
@pytest.mark.filterwarnings("ignore::treekit.TreekitWarning")
def test_failing_training_does_not_stop_a_concurrent_one():
    def find(node, criterion, rng):
        _ = {"a": [1, "b"]}  # numba cannot: called as Python
        time.sleep(0.002)
        if node.rows.ids[0] >= 0 and len(node.stats) == 2 and node.weight == 40.0:
            raise RuntimeError("bad data")

    record = splitter(find)
    good = {"x": PLUGIN_FAULTS_DATA["x"], "y": PLUGIN_FAULTS_DATA["y"]}
    bad = {"x": PLUGIN_FAULTS_DATA["x"][:40], "y": PLUGIN_FAULTS_DATA["y"][:40]}
    seen = {"good": [], "bad": []}

    def work(name, data):
        for _ in range(5):
            try:
                treekit.train(data, "y", splitter=record, seed=0)
                seen[name].append("trained")
            except PluginError:
                seen[name].append("stopped")

    threads = [threading.Thread(target=work, args=x) for x in (("good", good), ("bad", bad))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"good": ["trained"] * 5, "bad": ["stopped"] * 5}


def leaves_at(value):
    def make(k):
        def impurity(stats):
            return gini(stats) * value if k is not True else 0.0

        return CriterionFunctions(impurity=impurity)

    record = Criterion(
        "scaled", "classification", make, settings=(Setting("k", 1, "k", type=(bool, int)),)
    )
    return lambda k: (
        treekit.train(PLUGIN_FAULTS_DATA, "y", criterion=record, **{"criterion.k": k}).n_leaves
    )


@pytest.mark.matrix
def test_equal_settings_of_different_types_are_compiled_separately():
    leaves = leaves_at(1.0)
    assert leaves(1) > 1
    assert leaves(True) == 1


@pytest.mark.matrix
def test_changed_functions_of_make_are_compiled_again():
    cost = [1.0]

    def make():
        scale = cost[0]

        def impurity(stats):
            return scale * gini(stats)

        return CriterionFunctions(impurity=impurity)

    record = Criterion("scaled", "classification", make)
    assert treekit.train(PLUGIN_FAULTS_DATA, "y", criterion=record).n_leaves > 1
    cost[0] = 0.0
    assert treekit.train(PLUGIN_FAULTS_DATA, "y", criterion=record).n_leaves == 1


@pytest.mark.system
def test_interrupting_a_training_raises_and_never_crashes_the_process():
    code = """
import os, signal, threading, time
import numpy as np, treekit
rng = np.random.default_rng(0)
data = {f"x{i}": rng.random(300) for i in range(5)} | {"y": rng.integers(0, 2, 300)}
treekit.train(data, "y", ensemble="forest", trees=2)
def interrupt():
    time.sleep(0.4)
    os.kill(os.getpid(), signal.SIGINT)
for _ in range(4):
    try:  # on a busy machine the signal comes before the training does
        threading.Thread(target=interrupt).start()
        treekit.train(data, "y", ensemble="forest", trees=100_000)
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["stopped"] * 4


# ---------------------------------------------------------------- plugin guards
# Whatever a plugin's function answers in the middle of growing, it is told by name.
#
# One criterion and one splitter hold all the faults: which one they show is said by the
# weight of the node, so that each is compiled once.

NAN, INFINITE, RAISES, READS = range(1, 5)
FAULTS = {
    NAN: "returned NaN|NaN or infinite",
    INFINITE: "returned an infinite number|NaN or infinite",
    RAISES: "raised ValueError: lost",
    READS: "raised IndexError: ind",
}
IMPURITY, SCORE, ORDER, PRIORITY, PENALTY = range(0, 25, 5)
SMALL = 45 * 64
"""Weight of the nodes that show a fault: growth is in its middle when it comes to them."""


def asks_for(weight, function):
    """The fault that the remainder of a weight, divided by 64, asks of a function."""
    code = round(weight - math.floor(weight / 64) * 64)
    small = 64 < weight < SMALL  # no remainder of rows without weights
    return code - function if small and function < code < function + 5 else 0


def shows(fault, numbers):
    if fault == NAN:
        return math.nan
    if fault == INFINITE:
        return math.inf
    if fault == RAISES:
        raise ValueError("lost")
    if fault == READS:
        return numbers[numbers.shape[0]]
    return 0.0


def plugin_guards_gini(stats):
    total = stats.sum()
    return 1.0 - (stats * stats).sum() / (total * total)


def impurity(stats):
    return plugin_guards_gini(stats) + shows(asks_for(stats.sum(), IMPURITY), stats)


def score(parent, children):
    total, left = parent.sum(), 0.0
    for b in range(children.shape[0]):
        if children[b].sum() > 0.0:
            left += children[b].sum() * plugin_guards_gini(children[b])
    return plugin_guards_gini(parent) - left / total + shows(asks_for(total, SCORE), parent)


def order(stats):
    return stats[1] / stats.sum() + shows(asks_for(stats.sum(), ORDER), stats)


def priority(stats):
    return stats.sum() + shows(asks_for(stats.sum(), PRIORITY), stats)


def penalty(candidates, weight):
    fault = asks_for(weight, PENALTY)
    if fault == RAISES:
        raise ValueError("lost")
    return math.nan if fault == NAN else math.inf if fault == INFINITE else 0.0


def choose(gains, scores, levels):
    if gains.shape[0] == 4:
        return 99
    if gains.shape[0] == 5:
        raise ValueError("lost")
    if gains.shape[0] == 6:
        return round(scores[gains.shape[0]])
    best = -1
    for f in range(gains.shape[0]):
        if gains.shape[0] == 7 and gains[f] != gains[f]:
            return f
        if gains[f] == gains[f] and (best < 0 or scores[f] > scores[best]):
            best = f
    return best


class Called:
    """A function that numba cannot compile."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        return self.function(*arguments)


PARTS = {
    function.__name__: function for function in (impurity, score, order, priority, penalty, choose)
}
AS_PYTHON = {name: Called(function) for name, function in PARTS.items()}
RECORDS = {
    "compiled": Criterion("faulty", "classification", lambda: CriterionFunctions(**PARTS)),
    "as Python": Criterion("faulty", "classification", lambda: CriterionFunctions(**AS_PYTHON)),
}
WAYS = {
    "a tree": {"max_leaves": 30},
    "a forest of two threads": {
        "max_leaves": 30, "ensemble": "forest", "trees": 6, "n_jobs": 2, "bootstrap": False,
        "max_features": "all",
    },
}  # fmt: skip


def table(fault=0, columns=2, level=None):
    """60 rows, of which the first asks for a fault; levels, one of which has so many rows."""
    rows = 60
    rng = np.random.default_rng(1)
    data = {f"x{i}": rng.random(rows) for i in range(columns - (level is not None))}
    if level is not None:
        data["c"] = ["a"] * level + ["b"] * 20 + ["c"] * (rows - level - 20)
    data["y"] = rng.choice(["p", "q"], rows)
    data["w"] = np.full(rows, 64)  # whole numbers are not scaled
    data["w"][0] += fault
    return data


def train(record, data, way, **settings):
    return treekit.train(
        data, "y", weights="w", criterion=record, seed=0, **{**WAYS[way], **settings}
    )


@pytest.fixture(params=RECORDS)
def record(request):
    return RECORDS[request.param]


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", ["impurity", "score", "priority"])
def test_invalid_number_is_reported_with_function_and_statistics(record, function, way):
    base = {"impurity": IMPURITY, "score": SCORE, "priority": PRIORITY}[function]
    for fault, said in FAULTS.items():
        with pytest.raises(PluginError, match=f"criterion 'faulty' .*({said})") as told:
            train(record, table(base + fault), way)
        assert fault > INFINITE or f"from {function}; the statistics" in str(told.value)
        assert "no model was made" in str(told.value)


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
@pytest.mark.parametrize("way", WAYS)
def test_invalid_order_of_categories_is_reported(record, way):
    for fault, said in FAULTS.items():
        data = table(ORDER + fault, level=14)
        with pytest.raises(PluginError, match=f"criterion 'faulty' .*({said})"):
            train(record, data, way)


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
@pytest.mark.parametrize("way", WAYS)
def test_invalid_penalty_is_reported(record, way):
    for fault in (NAN, INFINITE, RAISES):
        with pytest.raises(PluginError, match=f"criterion 'faulty' .*({FAULTS[fault]})"):
            train(record, table(PENALTY + fault), way)


CHOICES = {
    4: "chose a column that does not exist, or has no split",
    5: "raised ValueError: lost",
    6: "raised IndexError",
    7: "chose a column that does not exist, or has no split",
}


@pytest.mark.matrix
@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.parametrize("way", WAYS)
def test_invalid_choice_is_reported(record, way):
    for columns, said in CHOICES.items():
        data = table(0, columns)
        data["x1"] = np.ones(60)  # constant: it has no split
        with pytest.raises(PluginError, match=f"criterion 'faulty' .*{said}"):
            train(record, data, way)


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
def test_failing_training_does_not_change_the_next_one(record):
    before = train(record, table(), "a forest of two threads")
    assert before.n_leaves > 60
    for fault in (IMPURITY + NAN, SCORE + READS, PRIORITY + RAISES):
        with pytest.raises(PluginError):
            train(record, table(fault), "a forest of two threads")
    after = train(record, table(), "a forest of two threads")
    for one, other in zip(before.trees, after.trees, strict=True):
        np.testing.assert_array_equal(one.threshold, other.threshold)
        np.testing.assert_array_equal(one.value, other.value)


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
def test_the_same_faults_are_reported_for_several_targets():
    only = Criterion("faulty", "classification", lambda: CriterionFunctions(impurity=impurity))
    data = table(IMPURITY + NAN)
    data["z"] = data["y"][::-1]
    with pytest.raises(PluginError, match="returned NaN from impurity; the stat") as told:
        treekit.train(data, ["y", "z"], weights="w", criterion=only)
    given = str(told.value).partition("given were [")[2].partition("]")[0]
    assert len(given.split(",")) == 2  # those of one target, as the function saw them


TYPES = {
    "None": lambda stats: None,
    "a complex number": lambda stats: stats[0] + 1j,
    "a text": lambda stats: "0.5",
    "an array": lambda stats: stats * 2.0,
}
SAID = {"a complex number": "a complex128", "a text": "a text|a str"}


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
@pytest.mark.parametrize(
    ("way", "kind"),
    [
        *(("compiled", kind) for kind in TYPES),
        ("as Python", "a text"),
        *(
            pytest.param("as Python", kind, marks=pytest.mark.matrix)
            for kind in TYPES
            if kind != "a text"
        ),
    ],
)
def test_result_of_another_type_is_reported(kind, way):
    function = TYPES[kind] if way == "compiled" else Called(TYPES[kind])
    bad = Criterion("faulty", "classification", lambda: CriterionFunctions(impurity=function))
    said = SAID.get(kind, kind)
    if way == "as Python":
        said = said.replace("complex128", "complex")
    with pytest.raises(PluginError, match=rf"'faulty' returne?d?s? ({said}).* impurity"):
        treekit.train(table(), "y", ignore=["w"], criterion=bad)


@pytest.mark.matrix
@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
def test_fractional_choice_is_reported():
    for wrong in (lambda g, s, levels: 0.5, Called(lambda g, s, levels: 0.0)):
        parts = {**PARTS, "choose": wrong}
        bad = Criterion("faulty", "classification", lambda p=parts: CriterionFunctions(**p))
        words = r"'faulty' return.* choose.*integer|integer.* choose"
        with pytest.raises(PluginError, match=words):
            treekit.train(table(), "y", ignore=["w"], criterion=bad)


@pytest.mark.matrix
@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.filterwarnings("ignore:.*returns None on some paths:treekit.TreekitWarning")
def test_criterion_that_sometimes_returns_none_is_reported():
    def sometimes_none(stats):
        return plugin_guards_gini(stats) if stats.sum() > 50 else None

    bad = Criterion("faulty", "classification", lambda: CriterionFunctions(impurity=sometimes_none))
    with pytest.raises(PluginError, match="'faulty' returned None, not a number, from impurity"):
        treekit.train(table(), "y", ignore=["w"], criterion=bad)


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
def test_plugin_that_exits_raises_plugin_error():
    def leaves(stats):
        raise SystemExit(3)

    bad = Criterion("faulty", "classification", lambda: CriterionFunctions(impurity=Called(leaves)))
    with pytest.raises(PluginError, match="'faulty' raised SystemExit: 3 in impurity"):
        treekit.train(table(), "y", ignore=["w"], criterion=bad)
    exits = Criterion("faulty", "classification", lambda: leaves(None))
    said = r"'faulty' failed in make with settings \{\}: SystemExit: 3"
    with pytest.raises(PluginError, match=said):
        treekit.train(table(), "y", ignore=["w"], criterion=exits)


PLUGIN_GUARDS_NUMBERS = {
    "x": np.arange(48.0),
    "c": list("abcd") * 12,
    "y": np.random.default_rng(1).random(48),
}


def plugin_guards_between(parent, children):
    gain = -parent[1] * parent[1] / parent[0]
    for b in range(children.shape[0]):
        gain += children[b, 1] * children[b, 1] / children[b, 0]
    return gain / parent[0]


def plugin_guards_numbers(**functions):
    return Criterion(
        "faulty", "regression", lambda: CriterionFunctions(score=plugin_guards_between, **functions)
    )


ANSWERS = {
    "NaN": (lambda *stats: math.nan, "returned NaN from {}"),
    "a text": (lambda *stats: "1.5", "returned a str, not a number, from {}"),
    "nothing": (lambda *stats: None, "returned None, not a number, from {}"),
    "a refusal": (lambda *stats: 1 // 0, r"raised ZeroDivisionError: .* in {} \(.*, line \d+\)"),
    "a cell too far": (lambda *stats: stats[0][2], r"raised IndexError: .* in {} \(.*, line \d+\)"),
}


@pytest.mark.matrix
@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.parametrize("case", ANSWERS)
def test_invalid_leaf_value_or_loss_is_reported(case):
    function, said = ANSWERS[case]
    with pytest.raises(PluginError, match=f"'faulty' {said.format('leaf_value')}; the statistics"):
        treekit.train(
            PLUGIN_GUARDS_NUMBERS, "y", criterion=plugin_guards_numbers(leaf_value=function)
        )
    with pytest.raises(PluginError, match=f"'faulty' {said.format('loss')}; the statistics"):
        treekit.train(
            PLUGIN_GUARDS_NUMBERS,
            "y",
            criterion=plugin_guards_numbers(loss=function),
            pruner="reduced_error",
        )


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
def test_a_loss_may_be_infinite():
    model = treekit.train(
        PLUGIN_GUARDS_NUMBERS,
        "y",
        criterion=plugin_guards_numbers(loss=lambda stats, judged: math.inf),
        pruner="reduced_error",
    )
    assert model.n_nodes >= 1


def find(node, criterion, rng):
    """Which fault is shown is told by the weight of the root."""
    which = round(node.weight) - 200 if node.depth == 0 else 0
    if which == 1:
        return scored(threshold_split(0, 3), math.nan)
    if which == 2:
        return scored(threshold_split(0, 3), math.inf)
    if which == 3:
        raise ValueError("lost")
    if which == 4:
        return scored(threshold_split(0, np.int64(node.table.codes[9, 0])), 1.0)
    if which == 5:  # a branch of one row
        return scored(threshold_split(0, 0), 1.0)
    if which == 6:  # more branches than levels
        return Split(3, 1, 0, math.nan, -1, 2**40, np.array([0, 1, 2], np.int32), 1.0)
    if which == 7:  # levels that a threshold does not have
        return Split(1, 0, 99, math.nan, -1, 2, np.zeros(100_000, np.int32), 1.0)
    if which == 8:  # missing rows to no branch
        return Split(1, 0, 99, math.nan, 2, 2, np.empty(0, np.int32), 1.0)
    if which == 9:
        return scored(level_split(1, np.array([0, 0, 0], np.int32), 2), 1.0)
    split = threshold_split(0, 9)
    children = branch_stats(node, split)
    if node.weight > 190 and heavy_enough(node, children):
        return scored(split, criterion.score(node.stats, children))
    return None


SPLITS = {
    1: "returned a split whose score is NaN or infinite",
    2: "returned a split whose score is NaN or infinite",
    3: "raised ValueError: lost",
    4: "raised IndexError",
    5: r"into branches with weights \[1.0, 204.0\], but min_weight_leaf is 5",
    6: "returned a split with an empty branch or an impossible column",
    8: "returned a split with an empty branch or an impossible column",
    9: "returned a split with an empty branch or an impossible column",
}


def columns(rows):
    rng = np.random.default_rng(0)
    data = {"x": np.arange(rows) / 2, "c": rng.choice(list("abc"), rows)}
    return data | {"y": rng.choice(["p", "q"], rows)}


class AsPython:
    def __call__(self, node, criterion, rng):
        return find(node, criterion, rng)


AS_WRITTEN = AsPython()  # one object: another would be compiled around again
SPLITTERS = {
    "compiled": Splitter("faulty", lambda: SplitterFunctions(find)),
    "as Python": Splitter("faulty", lambda: SplitterFunctions(AS_WRITTEN)),
}


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
@pytest.mark.parametrize("ensemble", ["tree", "forest"])
@pytest.mark.parametrize("path", SPLITTERS)
def test_invalid_split_is_reported(path, ensemble):
    several = {"ensemble": "forest", "trees": 4, "n_jobs": 2, "bootstrap": False}
    for which, said in SPLITS.items():
        with pytest.raises(PluginError, match=f"splitter 'faulty' .*{said}"):
            treekit.train(
                columns(200 + which),
                "y",
                splitter=SPLITTERS[path],
                min_weight_leaf=5,
                **(several if ensemble == "forest" else {}),
            )


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
@pytest.mark.parametrize("path", SPLITTERS)
def test_threshold_split_of_a_plugin_stores_no_category_branches(path):
    model = treekit.train(columns(207), "y", splitter=SPLITTERS[path], max_depth=1)
    assert model.trees[0].threshold[0] == 49.75
    assert len(model.trees[0].level_branch) == 0


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
def test_python_splitter_may_keep_its_read_only_arguments():
    kept = []

    def keeps(node, criterion, rng):
        kept.append(node)
        assert not any(array.flags.writeable for array in (*node.table, *node.rows, node.stats))
        return find(node, criterion, rng)

    kind = Splitter("mine", lambda: SplitterFunctions(Called(keeps)))
    compiled = treekit.train(columns(200), "y", splitter=SPLITTERS["compiled"], max_depth=3)
    model = treekit.train(columns(200), "y", splitter=kind, max_depth=3)
    assert model.n_nodes == compiled.n_nodes == 3
    np.testing.assert_array_equal(model.trees[0].gain, compiled.trees[0].gain)
    assert isinstance(kept[0], Node)
    assert kept[0].rows.ids.tolist() == list(range(200))  # not permuted since


WRITES = {
    "statistics": lambda node: node.stats,
    "rows": lambda node: node.rows.ids,
    "codes": lambda node: node.table.codes[0],
}


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
@pytest.mark.parametrize(
    "what",
    ["statistics", *(pytest.param(what, marks=pytest.mark.matrix) for what in ("rows", "codes"))],
)
def test_splitter_that_writes_to_its_node_raises_plugin_error(what):
    array = WRITES[what]

    def writes(node, criterion, rng):
        array(node)[0] = 0

    kind = Splitter("faulty", lambda: SplitterFunctions(writes))
    with (
        pytest.warns(TreekitWarning, match="splitter 'faulty' does not compile"),
        pytest.raises(
            PluginError, match=r"splitter 'faulty' raised ValueError: .*read-only in find"
        ),
    ):
        treekit.train(columns(60), "y", splitter=kind)


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
def test_invalid_return_value_of_find_is_reported():
    kind = Splitter("faulty", lambda: SplitterFunctions(Called(lambda n, c, r: (0, 1.5))))
    with pytest.raises(PluginError, match="TypeError: find returned a tuple, not a Split or None"):
        treekit.train(columns(60), "y", splitter=kind)


BEFORE = {
    "nothing": (
        lambda one, two, three, four: None,
        "return.* None.* before|returned None, not true or false",
    ),
    "a number": (
        lambda one, two, three, four: 0.5,
        "return.* (a float|a float64).* before|before.* float",
    ),
    "a refusal": (Called(lambda *four: 1 // 0), "raised ZeroDivisionError.* in before"),
}


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.parametrize("case", BEFORE)
def test_invalid_return_value_of_before_is_reported(case):
    function, said = BEFORE[case]
    bad = Pruner("faulty", lambda: PrunerFunctions(before=function))
    with pytest.raises(PluginError, match=f"pruner 'faulty' .*({said})"):
        treekit.train(columns(60), "y", pruner=bad)


@pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)
@pytest.mark.matrix
def test_faults_of_a_rank_criterion_are_reported():
    def apart(stats):
        return math.nan if round(stats[0]) == 12 else stats[2] + stats[3]

    ranks = Criterion(
        "faulty", "regression", lambda: CriterionFunctions(impurity=apart, statistics=Ranks(0.5))
    )
    with pytest.raises(PluginError, match="'faulty' returned NaN from impurity; the statistics"):
        treekit.train(
            {"x": PLUGIN_GUARDS_NUMBERS["x"], "y": PLUGIN_GUARDS_NUMBERS["y"]}, "y", criterion=ranks
        )
