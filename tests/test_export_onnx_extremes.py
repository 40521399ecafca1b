"""Every extreme model as ONNX, in every form, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.extremes import EXTREMES, extreme_rows, wanted
from treekit.export.onnx import export_onnx
from treekit.model.model import Model
from treekit.model.scoring import leaf_indices
from treekit.verify.answers import Answers, differing
from treekit.verify.run_onnx import run_onnx
from treekit.verify.runtime import Job

FORMS: dict[str, dict[str, Any]] = {
    "widest": {},
    "newest": {"target_runtime": "1.31"},
    "columns": {"inputs": "columns", "leaf": True},
}


def assert_answers(model: Model, path: Path, rows: np.ndarray, **settings: Any) -> bytes:
    """Export, run in every way, and compare every bit; returns the file."""
    content = export_onnx(model, "m", **settings)["m.onnx"]
    path.write_bytes(content)
    answers = wanted(model, rows)
    ways = 0
    for how, given in run_onnx(Job(path, model.schema, path.parent), rows):
        n = len(given.label)
        assert n, how
        part = Answers(answers.label[:n], answers.number[:n])
        assert differing(part, given).tolist() == [], how
        ways += 1
    assert ways == 2
    return content


SOME = (
    *("one_leaf", "one_class", "float32_extremes", "vanishing", "several_labels"),
    *("several_numbers", "mark_levels", "oblique", "surrogates", "fractional", "costs"),
    *("hard_voting", "refuses_both", "boosted_four", "boosted_each", "linked_means"),
    *("bool_labels", "mixed64_numbers"),
)
"""One of each kind: those that every run of the tests takes."""


def others(name: str) -> Any:
    return name if name in SOME else pytest.param(name, marks=pytest.mark.matrix)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [others(name) for name in EXTREMES])
def test_every_extreme_model_answers_with_the_same_bits(
    name: str, form: str, tmp_path: Path
) -> None:
    model = EXTREMES[name]()
    rows = extreme_rows(model, most=60)
    assert_answers(model, tmp_path / "m.onnx", rows, **FORMS[form])


@pytest.mark.parametrize("runtime", ["1.12", "1.31"])
@pytest.mark.parametrize(
    "name", [others(name) for name in EXTREMES if not name.startswith("refuses")]
)
def test_leaves_are_told_by_the_numbers_of_their_nodes(name: str, runtime: str) -> None:
    model = EXTREMES[name]()
    if model.schema.dtype == "float64" and runtime == "1.12":
        runtime = "1.15"
    rows = extreme_rows(model, most=20)
    content = export_onnx(model, "m", leaf=True, target_runtime=runtime)["m.onnx"]
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    with np.errstate(over="ignore", under="ignore"):
        (told,) = session.run(["leaf"], {"X": rows.astype(model.schema.dtype)})
    assert told.dtype == np.int64
    assert np.array_equal(told, leaf_indices(model, rows))
