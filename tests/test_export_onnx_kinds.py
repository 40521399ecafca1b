"""ONNX of oblique, divided, cost-weighing and many-targeted models, against the slow oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import evaluate
from tests.strategies import ALL_KINDS, matrices, models
from treekit.data.schema import Column, Schema
from treekit.export.onnx import export_onnx
from treekit.model.builder import build_tree, leaf, oblique, subset, threshold
from treekit.model.model import Model, make_model


def outputs_of(model: Model, rows: np.ndarray, **settings: Any) -> dict[str, np.ndarray]:
    content = export_onnx(model, "m", **settings)["m.onnx"]
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    with np.errstate(over="ignore"):
        x = rows.astype(model.schema.dtype)
    return dict(zip(names, session.run(None, {"X": x}), strict=True))


def assert_like_the_oracle(model: Model, rows: np.ndarray, **settings: Any) -> None:
    got = outputs_of(model, rows, **settings)
    several = len(model.schema.outputs) > 1
    for at, row in enumerate(rows.tolist()):
        answer = evaluate.predict(model, row)
        answers = list(answer) if several else [answer]
        if model.schema.task == "regression":
            assert np.atleast_1d(got["value"][at]).tolist() == answers
            continue
        shares = evaluate.probabilities(model, row)
        for number, (output, label) in enumerate(zip(model.schema.outputs, answers, strict=True)):
            end = f"_{number}" if several else ""
            own = shares[slice(*model.schema.blocks[number : number + 2])]
            assert got[f"label{end}"][at] == output.classes[int(label)]
            assert got[f"probabilities{end}"][at].tolist() == own


@given(st.data())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_every_kind_of_model_answers_as_the_oracle(data: st.DataObject) -> None:
    model = data.draw(models(kinds=ALL_KINDS))
    rows = data.draw(matrices(model))
    versions = [{"opset": 13}, {}, {"opset": 18}, {"target_runtime": "1.20"}]
    chosen = data.draw(st.sampled_from([*versions, {"target_runtime": "1.31"}]))
    assert_like_the_oracle(model, rows, **chosen)


def test_divided_rows_far_down_a_chain_keep_every_unit_of_their_mass() -> None:
    schema = Schema(columns=(Column("a"), Column("b")), classes=("no", "yes"))
    node = leaf([1, 2])
    for at in range(40):
        node = threshold(at % 2, float(at), leaf([at + 1, 1]), node)
    model = make_model(schema, [build_tree(node, schema)], missing="fractional")
    rows = np.array([[np.nan, np.nan], [np.nan, 7.5], [3.0, np.nan], [100.0, 100.0]])
    assert_like_the_oracle(model, rows)


def test_costs_beyond_the_precision_of_a_double_still_decide() -> None:
    schema = Schema(columns=(Column("a"),), classes=("x", "y", "z"))
    tree = build_tree(threshold("a", 0.0, leaf([5, 3, 1]), leaf([1, 4, 9])), schema)
    costs = np.array([[0, 16384, 16383], [16384, 0, 16384], [16383, 16384, 0]])
    model = make_model(schema, [tree], missing="fractional", costs=costs)
    assert_like_the_oracle(model, np.array([[np.nan], [-1.0], [1.0]]))


@pytest.mark.parametrize("rows", [0, 1, 5000])
def test_batches_of_any_size_divide_alike(rows: int) -> None:
    schema = Schema(columns=(Column("a"), Column("b")), classes=("no", "yes"))
    below = threshold("b", 0.5, leaf([3, 1]), leaf([1, 5]))
    tree = build_tree(threshold("a", 0.5, below, leaf([2, 2])), schema)
    model = make_model(schema, [tree] * 3, missing="fractional")
    cells = np.array([np.nan, 0.0, 1.0])
    x = cells[np.random.default_rng(rows).integers(0, 3, (rows, 2))]
    got = outputs_of(model, x)["probabilities"]
    assert got.shape == (rows, 2)
    for row, shares in zip(x[:50].tolist(), got[:50].tolist(), strict=True):
        assert shares == list(evaluate.probabilities(model, row))


@pytest.mark.parametrize("policies", [{"missing": "error"}, {"unknown": "error"}])
def test_graphs_with_derived_columns_refuse_rows_too(policies: dict[str, Any]) -> None:
    columns = (Column("a"), Column("b"), Column("c", "nominal", ("x", "y")))
    schema = Schema(columns=columns, classes=("no", "yes"))
    slanted = oblique({"a": 1.0, "b": -2.0}, 0.5, leaf([3, 1]), leaf([1, 2]))
    tree = build_tree(subset("c", ["x"], slanted, leaf([0, 1])), schema)
    model = make_model(schema, [tree], **policies)
    assert_like_the_oracle(model, np.array([[0.0, 0.0, 0], [1.0, 0.0, 0], [1.0, 0.0, 1]]))
    with pytest.raises(Exception, match="this model refuses"):
        outputs_of(model, np.array([[0.0, 0.0, 2.0]]))
