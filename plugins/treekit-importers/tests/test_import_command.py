"""Models in files of scikit-learn and ONNX by ``treekit import``; damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import skl2onnx
from sklearn.tree import DecisionTreeClassifier

import treekit
from tests.extremes import EXTREMES
from tests.foreign import FOLDER
from tests.fuzz.damage import (
    broken_bytes,
    broken_proto,
    broken_zip,
    mixed,
)
from tests.fuzz.harness import Subject, cases, fuzz
from tests.interop.test_interop import CLASSES, ROWS, assert_artifact_equal, is_sound, run
from treekit.export.onnx import export_onnx
from treekit.interop import read_model


@pytest.mark.parametrize("name", ["sklearn_bag.skops", "sklearn_boosted.skops"])
def test_import_command_writes_a_model_file(name: str, tmp_path: Path) -> None:
    output = tmp_path / "out" / "model.treekit"
    code, said = run("import", FOLDER / name, "-o", output)
    assert code == 0, said
    assert str(output) in said.replace("\n", "")
    assert "read by" in said
    told = json.loads((FOLDER / name).with_suffix(".answers").read_text())
    ours = treekit.load(output).predict_proba(told["rows"])
    theirs = np.array(told["predictions"])
    ours = ours[:, 1] if theirs.ndim == 1 else ours
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-7)
    code, said = run("rules", output)
    assert code == 0, said


def test_importer_settings_are_given_with_set(tmp_path: Path) -> None:
    output = tmp_path / "m.treekit"
    more = ("--set", "answer=margins", "--set", "dtype=float64")
    code, said = run("import", FOLDER / "sklearn_histogram.skops", "-o", output, *more)
    assert code == 0, said
    schema = treekit.load(output).schema
    assert (schema.task, schema.dtype) == ("regression", "float64")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("answer=margins", "omit answer='margins'"),
        ("iterations=2", "has no setting 'iterations'"),
    ],
)
def test_invalid_importer_setting_is_refused(setting: str, message: str, tmp_path: Path) -> None:
    source = FOLDER / "sklearn_bag.skops"
    code, said = run("import", source, "--set", setting, "-o", tmp_path / "m.treekit")
    assert code == 2
    assert message in said
    assert not (tmp_path / "m.treekit").exists()


def test_import_command_does_not_overwrite_its_input(tmp_path: Path) -> None:
    path = tmp_path / "model.skops"
    path.write_bytes((FOLDER / "sklearn_bag.skops").read_bytes())
    code, said = run("import", path, "-o", path)
    assert (code, "is an input of this command" in said) == (2, True)


# ---------------------------------------------------------------- import exports
# What is read of other libraries is exported, listed and proved like treekit's own models.

CASES = (
    ("sklearn_histogram.skops", "rules"),
    ("sklearn_histogram.skops", "c"),
    ("sklearn_bag.skops", "onnx"),  # votes
    ("sklearn_boosted.skops", "python"),
)


@pytest.mark.parametrize(("file", "target"), CASES)
def test_every_artifact_of_an_imported_model_is_verified_equal(
    file: str, target: str, tmp_path: Path
) -> None:
    assert_artifact_equal(FOLDER / file, target, tmp_path)


def test_imported_float64_model_is_exported_as_float64(tmp_path: Path) -> None:
    model = treekit.read_model(FOLDER / "sklearn_histogram.skops", dtype="float64")
    assert model.schema.dtype == "float64"
    paths = [treekit.export(model, target, tmp_path / "m")[0] for target in ("python", "onnx")]
    assert treekit.verify(model, paths, random_rows=100, max_rows=2000).exit_code == 0


# ---------------------------------------------------------------- damaged files

SEEDS = FOLDER.parent / "fuzz" / "seeds"


@cases(60, 2000)
def test_broken_skops_file_is_refused_or_read_as_a_valid_model(tmp_path, count):
    seeds = [path.read_bytes() for path in sorted(SEEDS.glob("*.skops"))]
    ways = mixed(broken_zip, broken_zip, broken_bytes)
    broken = Subject("broken.skops", seeds, read_model, is_sound, ways)
    refused, read = fuzz(broken, tmp_path, count)
    assert refused
    assert read


def graphs() -> list[bytes]:
    """ONNX of skl2onnx, TreeEnsemble of ai.onnx.ml 5, and treekit's own."""
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(ROWS, CLASSES)
    plain = skl2onnx.to_onnx(tree, ROWS[:1], options={"zipmap": False})
    own = [export_onnx(EXTREMES[name](), "m")["m.onnx"] for name in ("costs", "boosted_counts")]
    return [plain.SerializeToString(), members(), *own]


def members() -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    def tensor(values: list[float], dtype: str = "float32"):
        return numpy_helper.from_array(np.array(values, dtype=dtype))

    node = helper.make_node(
        "TreeEnsemble",
        ["X"],
        ["Y"],
        domain="ai.onnx.ml",
        n_targets=2,
        nodes_featureids=[0, 1],
        nodes_modes=tensor([0, 6], "uint8"),
        nodes_splits=tensor([0.5, 0.0]),
        membership_values=tensor([1.0, 3.0, np.nan]),
        nodes_missing_value_tracks_true=[1, 0],
        nodes_truenodeids=[1, 1],
        nodes_trueleafs=[0, 1],
        nodes_falsenodeids=[0, 2],
        nodes_falseleafs=[1, 1],
        leaf_targetids=[0, 1, 1],
        leaf_weights=tensor([1.5, -2.0, 4.0]),
        tree_roots=[0],
    )
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["N", 2])
    y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["N", 2])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 5)]
    graph = helper.make_graph([node], "trees", [x], [y])
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return bytes(proto.SerializeToString())


@cases(60, 2000)
def test_broken_onnx_model_is_refused_or_read_as_a_valid_model(tmp_path, count):
    ways = mixed(broken_proto, broken_proto, broken_bytes)
    broken = Subject("broken_trees.onnx", graphs(), read_model, is_sound, ways)
    refused, read = fuzz(broken, tmp_path, count)
    assert refused
    assert read
