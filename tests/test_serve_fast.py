"""The short way says what the general way says, byte for byte, and leaves the rest to it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.extreme_rows import extreme_rows
from tests.extremes import EXTREMES
from treekit.data.schema import Column, Schema
from treekit.errors import TreekitError
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.serve.models.served_model import Served
from treekit.serve.models.treekit_model import TreekitServed
from treekit.serve.protocol.messages import answer_json, read_request, tensors_of

NAMES = sorted(set(EXTREMES) - {name for name in EXTREMES if "thousand" in name})


@cache
def served_of(name: str) -> TreekitServed:
    return TreekitServed('a "model" %b\n', "1", "0" * 64, EXTREMES[name]())


def general(served: Served, body: bytes) -> bytes | None:
    """What the general way answers; None where it refuses."""
    try:
        asked = read_request(body)
        request = asked[0] if isinstance(asked, tuple) else asked
        names = [output.name for output in request.outputs] if request.outputs else None
        wanted = served.wanted(names)
        outputs = served.answer(served.read(tensors_of(request)), wanted)
    except TreekitError:
        return None
    return answer_json(served, request.id, outputs)


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.integers(-3, 12),
    st.sampled_from([0.0, -0.0, 0.5, 1e300, -1e300, 2**53 + 1, 1e-320]),
)


@st.composite
def cells(draw: st.DrawFn, column: Column) -> Any:
    """A cell of a column, mostly one that the short way takes."""
    odd = draw(st.integers(0, 99))
    if odd == 0:
        return None
    if column.kind == "numeric":
        return "1.5" if odd == 1 else draw(NUMBERS)
    return "no such level" if odd < 3 else draw(st.sampled_from(column.levels or ("none",)))


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A model's name, and a request to it."""
    name = draw(st.sampled_from(NAMES))
    schema = served_of(name)._model.schema
    rows = draw(st.sampled_from([1, 1, 2, 5]))
    own = "FP32" if schema.dtype == "float32" else "FP64"
    datatypes = st.sampled_from([own] * 6 + ["FP32", "FP64", "INT64", "BYTES"])
    if draw(st.booleans()):
        inputs = []
        for column in schema.columns:
            kind = draw(datatypes) if column.kind == "numeric" else "BYTES"
            inputs.append(
                {
                    "name": column.name,
                    "shape": draw(st.sampled_from([[rows], [rows], [rows, 1]])),
                    "datatype": kind,
                    "data": [draw(cells(column)) for _ in range(rows)],
                }
            )
        inputs = draw(st.permutations(inputs)) if draw(st.booleans()) else inputs
    else:
        values = [draw(NUMBERS) for _ in range(rows * schema.n_features)]
        shape = [rows, schema.n_features]
        inputs = [{"name": "input", "shape": shape, "datatype": draw(datatypes), "data": values}]
    request: dict[str, Any] = {"inputs": inputs}
    if draw(st.booleans()):
        request["id"] = draw(st.sampled_from(["", "7", "é", 'a"b', "\\", None]))
    if draw(st.booleans()):
        known = [spec.name for spec in served_of(name).outputs if spec.name != "leaf"][:2]
        asked = draw(st.lists(st.sampled_from([*known, "none"]), max_size=3))
        request["outputs"] = [{"name": one} for one in asked]
    return name, request


@settings(max_examples=examples(400), suppress_health_check=list(HealthCheck))
@given(requests())
def test_the_short_way_answers_as_the_general_way_or_not_at_all(asked):
    name, request = asked
    served, body = served_of(name), json.dumps(request).encode()
    with np.errstate(over="ignore"):
        said = served.quick.answer(body, 1000)
        if said is not None:
            assert said.body == general(served, body)


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_model_answers_its_hardest_rows_alike(name, datatype):
    served = served_of(name)
    model = served._model
    rows = extreme_rows(model, most=20)
    fits = np.isfinite(rows).all(axis=1) & (np.abs(rows) < 3e38).all(axis=1)
    short = 0
    for part in np.array_split(rows[fits][:30], 8):
        shape = [len(part), model.schema.n_features]
        given = {"name": "input", "shape": shape, "datatype": datatype}
        body = json.dumps({"inputs": [given | {"data": part.ravel().tolist()}]}).encode()
        said = served.quick.answer(body, 1000)
        if said is not None:
            short += 1
            assert said.body == general(served, body)
    if name in ("mixed", "int_labels", "float32_neighbours", "mixed_numbers"):
        assert short == 8


def two_columns(**policies: Any) -> TreekitServed:
    schema = Schema(
        (Column("x"), Column("town", "nominal", ("Ulm", "Bonn"))), classes=("no", "yes")
    )
    right = subset("town", ["Bonn"], leaf([1, 9]), leaf([1, 0]))
    tree = threshold("x", 0.0, leaf([3, 1]), right)
    return TreekitServed(
        "two", "1", "0" * 64, make_model(schema, [build_tree(tree, schema)], **policies)
    )


def tensor(*values: Any, rows: int = 1, **more: Any) -> dict[str, Any]:
    given = {"name": "input", "shape": [rows, 2], "datatype": "FP32", "data": list(values)}
    return {"inputs": [given | more]}


def columns(x: Any = 1.5, town: Any = "Bonn") -> dict[str, Any]:
    return {
        "inputs": [
            {"name": "town", "shape": [1], "datatype": "BYTES", "data": [town]},
            {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [x]},
        ]
    }


@pytest.mark.parametrize(
    "request_",
    [
        tensor(1.5, 1),
        tensor(1.5, 1, datatype="FP64"),
        tensor(0, 0, 1.5, 1, 9, 0, rows=3),
        columns(),
        columns(-1, "Ulm"),
        {**tensor(1.5, 1), "id": "17"},
        {**tensor(1.5, 1), "outputs": [{"name": "probabilities"}]},
        {**columns(), "outputs": [{"name": "probabilities"}, {"name": "label"}]},
    ],
)
def test_the_commonest_requests_take_the_short_way(request_):
    served = two_columns()
    body = json.dumps(request_).encode()
    said = served.quick.answer(body, 1000)
    assert said is not None
    assert said.body == general(served, body)
    assert said.rows == json.loads(said.body)["outputs"][0]["shape"][0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1]",
        b"\xff\xfe",
        b'{"inputs":[]}',
        json.dumps({**tensor(1, 1), "parameters": {}}),
        json.dumps(tensor(1, 1, parameters={"binary_data_size": 8})),
        json.dumps({**tensor(1, 1), "outputs": []}),
        json.dumps({**tensor(1, 1), "outputs": [{"name": "leaf"}]}),
        json.dumps({**tensor(1, 1), "outputs": [{"name": "label"}, {"name": "label"}]}),
        json.dumps({**tensor(1, 1), "outputs": [{"name": "label", "parameters": {}}]}),
        json.dumps({**tensor(1, 1), "id": 'a"b'}),
        json.dumps({**tensor(1, 1), "id": None}),
        json.dumps(tensor(1)),
        json.dumps(tensor(1, 1, 1)),
        json.dumps(tensor(1, None)),
        json.dumps(tensor(1, "1")),
        json.dumps(tensor(1, True)),
        json.dumps(tensor([1, 1])),
        json.dumps(tensor(1e39, 1)),
        json.dumps(tensor(1, 1, shape=[2])),
        json.dumps(tensor(1, 1, shape=[-1, 2])),
        json.dumps(tensor(rows=0)),
        json.dumps(tensor(1, 1, datatype="INT32")),
        json.dumps(tensor(1, 1, name="other")),
        json.dumps(tensor(*[0] * 22, rows=11)),
        json.dumps(columns(town="Rom")),
        json.dumps(columns(town=None)),
        json.dumps(columns(x="1.5")),
        json.dumps({"inputs": columns()["inputs"][:1]}),
        json.dumps({"inputs": columns()["inputs"][:1] * 2}),
        json.dumps(tensor(1, 1))[:-1] + ',"inputs":[]}',
        json.dumps(tensor(1, 1)).replace('"shape"', '"name":"input","shape"'),
        json.dumps(tensor(1, 1)) + "\x00",
    ],
)
def test_whatever_is_not_plainly_the_commonest_is_left_to_the_general_way(body):
    body = body.encode() if isinstance(body, str) else body
    assert two_columns().quick.answer(body, 10) is None


def test_a_row_that_a_policy_refuses_is_left_to_the_general_way_that_says_why():
    served = two_columns(unknown="error")
    assert served.quick.answer(json.dumps(tensor(1.5, 1)).encode(), 10) is not None
    assert served.quick.answer(json.dumps(tensor(1.5, 7)).encode(), 10) is None


def numbers_model(values: tuple[float, float]) -> Model:
    schema = Schema((Column("x"), Column("y")), task="regression")
    tree = threshold("x", 0.0, leaf([values[0]]), leaf([values[1]]))
    return make_model(schema, [build_tree(tree, schema)])


def test_a_number_is_written_with_all_its_digits():
    served = TreekitServed("n", "1", "0" * 64, numbers_model((0.1, -3e300)))
    for x in (-1, 1):
        body = json.dumps(tensor(x, 0)).encode()
        said = served.quick.answer(body, 10)
        assert said is not None
        assert said.body == general(served, body)
