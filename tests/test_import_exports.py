"""What is read of other libraries is exported, listed and proved like treekit's own models."""

from __future__ import annotations

from pathlib import Path

import pytest

import treekit
from tests.foreign import FOLDER
from tests.runtimes import need

CASES = (
    ("xgboost_binary.json", "c"),  # categories by name, refused if unseen; two classes
    ("xgboost_binary.json", "onnx"),
    ("xgboost_three.json", "python"),
    pytest.param("xgboost_poisson.json", "javascript", marks=pytest.mark.matrix),
    ("xgboost_poisson.json", "onnx"),  # an exponential
    ("xgboost_logistic.json", "c"),  # a sigmoid
    ("xgboost_vector.ubj", "python"),  # several outputs
    ("sklearn_histogram.skops", "rules"),
    ("sklearn_histogram.skops", "c"),
    ("sklearn_bag.skops", "onnx"),  # votes
)


@pytest.mark.parametrize(("file", "target"), CASES)
def test_every_artifact_of_a_foreign_model_is_proved_equal(
    file: str, target: str, tmp_path: Path
) -> None:
    need(*{"c": ("gcc",), "javascript": ("node",)}.get(target, ()))
    model = treekit.read_model(FOLDER / file)
    paths = treekit.export(model, target, tmp_path / "m")
    artifacts = [path for path in map(Path, paths) if path.suffix != ".h"]
    report = treekit.verify(model, artifacts, random_rows=100, max_rows=2000)
    assert report.exit_code == 0, str(report)


def test_a_float64_model_is_exported_as_one(tmp_path: Path) -> None:
    model = treekit.read_model(FOLDER / "sklearn_histogram.skops", dtype="float64")
    assert model.schema.dtype == "float64"
    paths = [treekit.export(model, target, tmp_path / "m")[0] for target in ("python", "onnx")]
    assert treekit.verify(model, paths, random_rows=100, max_rows=2000).exit_code == 0
