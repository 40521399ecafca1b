"""Pruners, exporters and importers that fail are named, and no half of their work is kept."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import treekit
from treekit import (
    Exporter,
    ExportError,
    Importer,
    ModelError,
    PluginError,
    Pruner,
    PrunerFunctions,
    TreekitWarning,
    registry,
)
from treekit.cli import main

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
def test_a_pruner_that_returns_no_tree_of_this_schema_is_named(case):
    function, said = TREES[case]
    for ensemble in ({}, FOREST):
        with pytest.raises(PluginError, match=f"pruner 'faulty' failed in after .*({said})"):
            pruned(lambda tree, context: function(tree), **ensemble)


def test_a_pruner_cannot_write_to_what_all_trees_share():
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


def test_a_pruner_that_raises_or_exits_stops_the_training_and_not_the_process(model):
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
def test_what_a_pruner_reports_is_refused_in_training_if_no_file_can_hold_it(value):
    def after(tree, context):
        context.report["kept"] = value
        return tree

    with pytest.raises(PluginError, match=r"'faulty' .*context.report\['kept'\] cannot be saved"):
        pruned(after)


def test_what_a_pruner_reports_may_be_nan_and_comes_back_from_the_file(tmp_path):
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
    "no file": (lambda m, n: {}, "of which the first is to be 'm.out'"),
    "another main file": (lambda m, n: {"other.out": b""}, "first is to be 'm.out'"),
    "an absolute path": (lambda m, n: {f"{n}.out": b"", "/tmp/x": b""}, "wants to write '/tmp/x'"),
    "a path outside": (lambda m, n: {f"{n}.out": b"", "../x": b""}, "wants to write '../x'"),
    "a path of Windows": (lambda m, n: {f"{n}.out": b"", "..\\x": b""}, "files need plain names"),
    "the folder itself": (lambda m, n: {f"{n}.out": b"", "..": b""}, r"wants to write '\.\.'"),
    "a null character": (lambda m, n: {f"{n}.out": b"", "a\0b": b""}, "files need plain names"),
    "a name that is none": (lambda m, n: {f"{n}.out": b"", 7: b""}, "wants to write 7"),
    "names of one file": (
        lambda m, n: {f"{n}.out": b"", "Read.me": b"", "read.ME": b""},
        "'Read.me' and 'read.ME', which some file systems take for one",
    ),
    "an exception": (raises, "failed with RuntimeError: lost"),
    "an exit": (exits, "failed with SystemExit: 4"),
    "a mapping that fails halfway": (
        lambda m, n: Halfway({f"{n}.out": b"new"}),
        "failed with OSError: the disk of the plugin is full",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_an_exporter_that_returns_no_files_is_named_and_nothing_is_written(model, tmp_path, case):
    function, said = FILES[case]
    (tmp_path / "m.out").write_bytes(b"before")
    with pytest.raises(PluginError, match=f"exporter 'faulty' .*{said}.*nothing was written"):
        treekit.export(model, exporter(function), tmp_path / "m.out")
    assert [path.name for path in tmp_path.iterdir()] == ["m.out"]
    assert (tmp_path / "m.out").read_bytes() == b"before"


def test_a_folder_in_the_place_of_a_second_file_leaves_the_first_as_it_was(model, tmp_path):
    (tmp_path / "m.out").write_bytes(b"before")
    (tmp_path / "m.txt").mkdir()
    two = exporter(lambda model, name: {f"{name}.out": b"new", f"{name}.txt": b"new"})
    with pytest.raises(ExportError, match="it is a folder"):
        treekit.export(model, two, tmp_path / "m.out")
    assert (tmp_path / "m.out").read_bytes() == b"before"


def test_an_exporter_may_refuse_a_model_in_words_of_its_own(model, tmp_path):
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


def test_a_plugin_that_changes_folder_or_error_state_changes_them_for_itself(model, tmp_path):
    def wanders(model, name):
        os.chdir(tmp_path)
        np.seterr(all="raise")
        return {f"{name}.out": b"here"}

    here, state = Path.cwd(), np.geterr()
    with pytest.warns(TreekitWarning, match="exporter 'faulty' changed the working directory"):
        treekit.export(model, exporter(wanders), tmp_path / "m")
    assert Path.cwd() == here
    assert np.geterr() == state


@pytest.fixture
def importing(fresh_registry, monkeypatch):
    """``importing(read)``: the only foreign importer, of a plugin."""
    from treekit.discovery import Component
    from treekit.record_checks import KINDS
    from treekit.registry import Catalogue

    def importing(read, recognises=lambda source: True):
        record = Importer("faulty", recognises, read)
        part = Component("importer", record, "plug", "their-package", "1.2")
        catalogue = Catalogue(KINDS["importer"], [part])
        monkeypatch.setattr(registry, "_catalogue", lambda kind: catalogue)

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
    "units that share nothing": (lambda m: malformed(m, units=m.units * 0), "do not share"),
    "an unknown policy": (lambda m: malformed(m, missing="guess"), "unknown missing policy"),
    "no schema": (lambda m: malformed(m, schema=None), "a model's schema is a Schema"),
    "settings of objects": (lambda m: malformed(m, settings={"a": {1}}), "hold plain values"),
}


@pytest.mark.parametrize("case", MODELS)
def test_an_importer_that_reads_no_model_is_named(model, importing, case):
    function, said = MODELS[case]
    importing(lambda source: function(model))
    with pytest.raises(
        PluginError, match=rf"importer 'faulty' \(from their-package 1.2\) .*{said}"
    ):
        treekit.read_model(object())


def test_an_importer_may_refuse_a_source_in_words_of_its_own(importing):
    def refuses(source):
        raise ModelError("this release is too old")

    importing(refuses)
    with pytest.raises(ModelError, match=r"^this release is too old$"):
        treekit.read_model(object())


def test_an_importer_that_fails_to_look_is_passed_over(importing):
    def exits(source):
        raise SystemExit(1)

    importing(lambda source: None, recognises=exits)
    with (
        pytest.warns(TreekitWarning, match="'faulty' of their-package 1.2 failed to look.*Exit: 1"),
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


def test_the_command_line_tells_a_faulty_plugin_and_writes_nothing(plugin, model):
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
    assert "exporter 'half' (from their-plugin 3.1) wants to write" in " ".join(told.output.split())
    assert sorted(path.name for path in plugin.iterdir()) == ["m.treekit", "old.treekit", "t.csv"]
    assert np.geterr()["divide"] != "raise"
