"""Artifacts compared with a fresh export, and lowered tables with their trees."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import treekit
from tests.extremes import EXTREMES
from tests.reference.models import chain
from tests.reference.python_arrays import array_in, with_arrays
from tests.tiers import by_size
from treekit.data.schema import Column, Schema
from treekit.export import export
from treekit.export.c import export_c
from treekit.export.literals import list_shipped_folders
from treekit.export.lowering import leaf_table, lower, node_table
from treekit.model.builder import build_tree, is_missing, leaf, subset, threshold
from treekit.model.model import make_model
from treekit.model.scoring import sum_leaf_values
from treekit.verify import make_probes, verify
from treekit.verify.run_artifact import is_fresh_rules
from treekit.verify.run_c import is_fresh_c
from treekit.verify.run_language import is_fresh_python
from treekit.verify.run_onnx import is_fresh_onnx

# ---------------------------------------------------------------- lowering

PLAIN = [
    name
    for name in EXTREMES
    if not name.startswith(("fractional", "five_thousand", "deep", "oblique", "surrogates"))
]


def sum_lowered(model, rows):
    """Evaluate the lowered tables of a model row by row, by the definition of their tests."""
    leaves = leaf_table(model.units)
    table = node_table(lower(model), leaves, model.schema)
    ends = np.append(table.set_start, len(table.set_codes)).tolist()
    total = np.zeros((len(rows), model.schema.n_values), dtype=np.int64)
    for root in table.root.tolist():
        for number, row in enumerate(rows.tolist()):
            node = root
            while node >= 0:
                question, value = int(table.question[node]), float(table.value[node])
                x = row[question >> 2]
                codes = ()
                if question & 3 == 2:
                    codes = table.set_codes[ends[int(value)] : ends[int(value) + 1]]
                met = [x <= value, not x > value, x in codes, math.isnan(x)][question & 3]
                node = int((table.yes if met else table.no)[node])
            total[number] += leaves.vectors[-1 - node]
    return total


@pytest.mark.parametrize("name", by_size(PLAIN))
def test_lowered_tables_give_the_sums_of_every_extreme_model(name):
    model = EXTREMES[name]()
    rows = make_probes(model, 50, 0, 400).rows[:400]
    codes = rows[:, model.schema.nominal]
    known = (codes >= 0) & (codes < model.schema.n_levels[model.schema.nominal])
    rows[:, model.schema.nominal] = np.where(known, codes, np.nan)
    assert np.array_equal(sum_lowered(model, rows), sum_leaf_values(model, rows))


# ---------------------------------------------------------------- files

GRAPHS = ("one_leaf", "wide_numbers", "mixed64", "oblique", "surrogates", "several_labels")


@pytest.mark.parametrize("name", by_size(GRAPHS))
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"inputs": "columns"},
        {"leaf": True, "decision_path": True, "opset": 18},
        {"target_runtime": "1.20"},
    ],
)
def test_onnx_graphs_equal_a_fresh_export_with_their_settings(tmp_path, name, settings):
    model = EXTREMES[name]()
    (path,) = export(model, "onnx", tmp_path / "m", **settings)
    assert is_fresh_onnx(path, model)


def test_changed_onnx_graph_is_not_a_fresh_export(tmp_path):
    model = EXTREMES["costs"]()
    (path,) = export(model, "onnx", tmp_path / "m", zipmap=True)
    assert is_fresh_onnx(path, model)
    content = path.read_bytes()
    name = b"TreeEnsembleRegressor"
    for changed in (
        b"nothing",
        content[:-1],
        content.replace(b"onnxruntime 1.", b"onnxruntime x."),
        content.replace(name, b"\xff" + name[1:]),
    ):
        path.write_bytes(changed)
        assert not is_fresh_onnx(path, model)
    path.unlink()
    assert not is_fresh_onnx(path, model)


def make_town_model():
    schema = Schema(
        (Column("x"), Column("town", "nominal", ("a", "b", "c"))), classes=("no", "yes", "maybe")
    )
    root = subset(1, ["a"], leaf([1, 2, 1]), leaf([3, 1, 9]), missing=0, absent=["c"])
    asks = is_missing(1, leaf([1, 7, 2]), leaf([5, 1, 1]))
    tree = build_tree(threshold(0, 1.5, root, asks, missing=0), schema)
    return make_model(schema, [tree, tree])


@pytest.mark.parametrize("form", ["table", "hybrid", "if_else"])
def test_changed_c_files_are_not_a_fresh_export(tmp_path, form):
    model = make_town_model()
    for name, content in export_c(model, "m", form=form).items():
        (tmp_path / name).write_bytes(content)
    path = tmp_path / "m.c"
    assert is_fresh_c(path, model)
    for file in (path, path.with_suffix(".h")):
        text = file.read_text()
        for at in range(7, len(text), len(text) // 12):
            file.write_text(text[:at] + ("9" if text[at] != "9" else "8") + text[at + 1 :])
            assert not is_fresh_c(path, model), text[at - 7 : at + 7]
        file.write_bytes(text.replace("\n", "\r\n").encode())  # as git writes it on Windows
        assert is_fresh_c(path, model)
    path.with_suffix(".h").unlink()
    assert not is_fresh_c(path, model)


def test_c_source_by_user_templates_is_not_a_fresh_export(tmp_path):
    model = make_town_model()
    own = tmp_path / "own" / "c"
    own.mkdir(parents=True)
    (shipped,) = list_shipped_folders()
    text = (shipped / "c" / "walk.jinja").read_text()
    text = text.replace('part == "walk/packed"', 'part == "other"').replace(
        'part == "walk/wide"', 'part == "walk/packed"'
    )
    (own / "walk.jinja").write_text(text)
    for name, content in export_c(model, "m", form="table").items():
        (tmp_path / name).write_bytes(content)
    assert is_fresh_c(tmp_path / "m.c", model)
    by_own = export_c(model, "m", templates=str(tmp_path / "own"), form="table")["m.c"]
    (tmp_path / "m.c").write_bytes(by_own)
    assert not is_fresh_c(tmp_path / "m.c", model)


@pytest.mark.parametrize("form", ["table", "if_else"])
def test_python_file_is_a_fresh_export_until_it_is_changed(tmp_path, form):
    model = EXTREMES["mixed"]()
    (path,) = export(model, "python", tmp_path / "m", form=form)
    assert is_fresh_python(path, model)
    path.write_text(path.read_text().replace("1", "2", 1))
    assert not is_fresh_python(path, model)


RULES = ("costs", "mixed64", "oblique", "fractional", "one_leaf")


@pytest.mark.parametrize("name", by_size(RULES))
@pytest.mark.parametrize("language", ["en", "zh"])
def test_rules_are_equal_until_a_number_or_a_support_is_changed(tmp_path, name, language):
    model = EXTREMES[name]()
    (path,) = export(model, "rules", tmp_path / "m", language=language)
    assert is_fresh_rules(path, model)
    text = path.read_text()
    path.write_text("".join(model.rules().text(language=language)))  # rules that are not joined
    assert is_fresh_rules(path, model)
    tree = model.trees[0]
    heavy = replace(tree, weight=tree.weight * 2)
    path.write_text(text)
    assert not is_fresh_rules(path, replace(model, trees=(heavy, *model.trees[1:])))
    path.write_text(text[:-2])
    assert not is_fresh_rules(path, model)


def test_rules_in_an_older_format_are_not_equal(tmp_path):
    stored = Path(__file__).parents[1]
    model = treekit.load(stored / "snapshots" / "models" / "trained_cart.treekit")
    (path,) = export(model, "rules", tmp_path / "m")
    assert is_fresh_rules(path, model)
    path.write_bytes((stored / "rules" / "format_3" / "trained_cart.en.txt").read_bytes())
    assert not is_fresh_rules(path, model)
    assert verify(model, [path]).equal


# ---------------------------------------------------------------- reports


def test_fault_without_a_differing_row_is_reported_as_other_bytes(tmp_path):
    model = chain(300, Schema((Column("x"),), classes=("no", "yes")))
    (path,) = export(model, "python", tmp_path / "m", form="table")
    few = {"random_rows": 0, "max_rows": 1}
    report = verify(model, [path], **few)
    told = "the artifact is equal to the model, bit for bit: the same bytes as a new export"
    assert str(report).startswith(told)
    text = path.read_text()
    value = array_in(text, "_VALUE")
    value[200] = math.nextafter(value[200], 0)
    path.write_bytes(with_arrays(text, _VALUE=value))
    proof = tmp_path / "proof.json"
    report = verify(model, [path], certificate=proof, **few)
    (artifact,) = report.artifacts
    told = "on the rows run; the artifact is not what this version of treekit writes for the model"
    assert str(report).startswith(f"the artifact is equal to the model, bit for bit, {told}")
    assert "other bytes" in str(report)
    assert artifact.fresh is False
    certificate = json.loads(proof.read_text())
    assert certificate["version"] == 2
    assert certificate["artifacts"][0]["fresh"] is False
    (artifact,) = verify(model, [path]).artifacts  # with the usual rows
    assert artifact.differing


def test_quick_verification_runs_few_rows(tmp_path):
    model = chain(3000, Schema((Column("x"),), classes=("no", "yes")))
    (path,) = export(model, "rules", tmp_path / "m")
    report = verify(model, [path], quick=True)
    assert report.equal
    assert report.probes["rows"] <= 4000
    assert "the same bytes as a new export, and all rows run agree" in str(report)
