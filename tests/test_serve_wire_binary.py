"""Binary tensors without a client between: lengths, orders, and what is refused of them."""

from __future__ import annotations

import asyncio
import json
import re
import struct
from typing import Any

import httpx
import numpy as np
import pytest

from tests.serving import client_of, models, numbers, save_models, service_of
from treekit.serve.errors import InvalidRequestError
from treekit.serve.http.app import make_app
from treekit.serve.models.tensors import DATATYPES, Tensor
from treekit.serve.protocol.tensor_data import bytes_of, cells_of_bytes
from treekit.serve.scheduling import Service

ROWS = 5


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    return service_of(save_models(tmp_path_factory.mktemp("models")))


def asked(
    service: Service, body: bytes, length: int | str | None = None, model: str = "texts"
) -> httpx.Response:
    headers = {} if length is None else {"Inference-Header-Content-Length": str(length)}

    async def ask() -> httpx.Response:
        async with client_of(make_app(service)) as client:
            return await client.post(f"/v2/models/{model}/infer", content=body, headers=headers)

    return asyncio.run(ask())


def of_bytes(shape: list[int], data: bytes, datatype: str = "FP32") -> dict[str, Any]:
    parameters = {"binary_data_size": len(data)}
    return {
        "name": "input",
        "shape": shape,
        "datatype": datatype,
        "parameters": parameters,
    }


def rows() -> np.ndarray:
    return np.column_stack([column[:ROWS] for column in numbers().values()]).astype("<f4")


def request_of(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


def parts(answer: httpx.Response) -> tuple[dict[str, Any], bytes]:
    """The JSON and the bytes of an answer."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    length = int(answer.headers["inference-header-content-length"])
    return json.loads(answer.content[:length]), answer.content[length:]


def test_bytes_follow_the_json_in_the_order_of_the_outputs(service: Service) -> None:
    data = rows().tobytes()
    head = request_of(
        of_bytes([ROWS, 4], data),
        outputs=[
            {"name": "probabilities", "parameters": {"binary_data": True}},
            {"name": "leaf", "parameters": {"binary_data": False}},
            {"name": "label"},
        ],
        parameters={"binary_data_output": True},
    )
    said, rest = parts(asked(service, head + data, len(head)))
    model = models()["texts"]
    shares = model.predict_proba(rows()).astype("<f8").tobytes()
    labels = b"".join(
        struct.pack("<I", len(text.encode())) + text.encode() for text in model.predict(rows())
    )
    assert rest == shares + labels
    assert [output["name"] for output in said["outputs"]] == ["probabilities", "leaf", "label"]
    sizes = [output.get("parameters", {}).get("binary_data_size") for output in said["outputs"]]
    assert sizes == [len(shares), None, len(labels)]
    assert "data" in said["outputs"][1]


def test_json_data_and_binary_data_stand_side_by_side(service: Service) -> None:
    columns = {name: column[:ROWS].astype("<f4") for name, column in numbers().items()}
    inputs, data = [], b""
    for place, (name, column) in enumerate(columns.items()):
        if place % 2:
            inputs.append(of_bytes([ROWS, 1], column.tobytes()) | {"name": name})
            data += column.tobytes()
        else:
            given = {"name": name, "shape": [ROWS], "datatype": "FP32", "data": column.tolist()}
            inputs.append(given)
    head = request_of(*inputs)
    answer = asked(service, head + data, len(head))
    assert answer.headers["content-type"] == "application/json"
    got = np.array(answer.json()["outputs"][1]["data"])
    assert got.tobytes() == models()["texts"].predict_proba(columns).tobytes()


def test_a_length_of_all_the_body_is_plain_json(service: Service) -> None:
    body = request_of({"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [0, 0, 0, 0]})
    assert asked(service, body, len(body)).content == asked(service, body).content


def test_no_rows_have_no_bytes(service: Service) -> None:
    head = request_of(of_bytes([0, 4], b""), parameters={"binary_data_output": True})
    said, rest = parts(asked(service, head))
    assert rest == b""
    assert [output["parameters"]["binary_data_size"] for output in said["outputs"]] == [0, 0]


DATA = np.zeros((ROWS, 4), "<f4").tobytes()


@pytest.mark.parametrize(
    ("length", "given", "after", "words"),
    [
        ("x", of_bytes([ROWS, 4], DATA), DATA, "Inference-Header-Content-Length is 'x'"),
        ("-1", of_bytes([ROWS, 4], DATA), DATA, "is '-1'; it is to be the bytes of JSON"),
        ("9" * 5000, of_bytes([ROWS, 4], DATA), DATA, "is '9999"),
        ("100000", of_bytes([ROWS, 4], DATA), DATA, "is '100000'; .* which has "),
        ("3", of_bytes([ROWS, 4], DATA), DATA, "truncated"),
        ("0", of_bytes([ROWS, 4], DATA), DATA, "it is empty"),
        (None, of_bytes([ROWS, 4], DATA), DATA, "trailing characters"),
        (None, of_bytes([ROWS, 4], DATA), b"", "'input' has binary_data_size 80; 0 bytes are left"),
        (0, of_bytes([ROWS, 4], DATA), DATA[:-1], "'input' has binary_data_size 80; 79 bytes"),
        (0, of_bytes([ROWS, 4], DATA), DATA + b"x", "has 1 bytes after the data of its last"),
        (0, of_bytes([ROWS, 4], DATA[:-4]), DATA, r"'input' has 76 bytes .* FP32 takes 80"),
        (0, of_bytes([ROWS, 4], DATA, "FP64"), DATA, "'input' has 80 bytes .* FP64 takes 160"),
        (0, of_bytes([10**5, 10**9], DATA), DATA, "has 80 bytes .* takes 400,000,000,000,000"),
        (0, of_bytes([10**5, 10**9], DATA, "BYTES"), DATA, "has 80 bytes .* for the lengths"),
        (0, of_bytes([-5, -4], DATA), DATA, r"'input' has shape \[-5, -4\]"),
        (0, of_bytes([ROWS, 4], DATA, "BF16"), DATA, "'BF16'.*send it as FP32"),
        (0, of_bytes([ROWS, 4], DATA) | {"data": []}, DATA, "both data and binary_data_size"),
        (
            0,
            of_bytes([ROWS, 4], DATA) | {"parameters": {"binary_data_size": -80}},
            DATA,
            "binary_data_size -80",
        ),
        (
            0,
            of_bytes([ROWS, 4], DATA) | {"parameters": {"binary_data_size": True}},
            DATA,
            "binary_data_size True",
        ),
        (
            0,
            of_bytes([ROWS, 4], DATA) | {"parameters": {"binary_data_size": 80.0}},
            DATA,
            "binary_data_size 80.0",
        ),
        (
            0,
            of_bytes([ROWS, 4], DATA) | {"parameters": {"binary_data_size": 10**30}},
            DATA,
            "binary_data_size 1000000",
        ),
    ],
)
def test_wrong_lengths_are_refused_by_name(
    service: Service, length: Any, given: dict[str, Any], after: bytes, words: str
) -> None:
    head = request_of(given)
    answer = asked(service, head + after, len(head) if length == 0 else length)
    assert answer.status_code == 400
    assert re.search(words, answer.json()["error"])


@pytest.mark.parametrize("given", ["0", "3"])
def test_two_different_lengths_are_refused(service: Service, given: str) -> None:
    head = request_of(of_bytes([ROWS, 4], DATA))

    async def ask() -> httpx.Response:
        headers = [
            ("Inference-Header-Content-Length", str(len(head))),
            ("Inference-Header-Content-Length", given),
        ]
        async with client_of(make_app(service)) as client:
            return await client.post("/v2/models/texts/infer", content=head + DATA, headers=headers)

    answer = asyncio.run(ask())
    assert answer.status_code == 400
    assert "twice" in answer.json()["error"]


@pytest.mark.parametrize("where", ["output", "request"])
def test_flags_are_booleans(service: Service, where: str) -> None:
    head = request_of(
        of_bytes([ROWS, 4], DATA),
        outputs=[{"name": "label", "parameters": {"binary_data": 1} if where == "output" else {}}],
        parameters={"binary_data_output": "yes"} if where == "request" else {},
    )
    answer = asked(service, head + DATA, len(head))
    assert answer.status_code == 400
    assert "it is to be true or false" in answer.json()["error"]


# ----------------------------------------------------------------------- elements


def texts_of(data: bytes, size: int) -> list[str]:
    cells = cells_of_bytes("town", "BYTES", [size], memoryview(data), DATATYPES["BYTES"])
    return list(cells)


def packed(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_cells_survive_as_bytes(datatype: str) -> None:
    dtype = DATATYPES[datatype]
    cells = np.arange(12).reshape(3, 4).astype(bool if datatype == "BOOL" else dtype)
    if datatype == "BYTES":
        cells = np.array([["", "é"], ["\0", "x" * 300]], dtype=object)
    strided = np.asfortranarray(cells)
    data = bytes_of(Tensor("town", datatype, strided))
    assert data == bytes_of(Tensor("town", datatype, cells))
    # at an odd place, as the bytes after some JSON are
    place = memoryview(b"x" + data)[1:]
    got = cells_of_bytes("town", datatype, list(cells.shape), place, dtype)
    assert got.dtype == dtype
    assert got.flags.aligned
    assert got.flags.writeable
    np.testing.assert_array_equal(got, cells)


def test_cells_are_little_endian_whatever_the_array_is() -> None:
    cells = np.array([1.5, -2.0])
    assert bytes_of(Tensor("value", "FP64", cells.astype(">f8"))) == struct.pack("<2d", 1.5, -2.0)


@pytest.mark.parametrize(
    ("data", "size", "words"),
    [
        (packed(b"Ulm")[:-1], 1, "'town' has 6 bytes of data, which end within element 0"),
        (packed(b"Ulm", b"Bonn")[:-4], 2, "end within element 1"),
        (packed(b"Ulm", b"")[:-1], 2, "end within element 1"),
        (packed(b"Ulm") + b"\xff\xff\xff\xff", 2, "end within element 1"),
        (packed(b"Ulm", b"Bonn"), 1, "its 1 elements end after 7"),
        (b"x", 0, "its 0 elements end after 0"),
        (packed(b"Ulm", b"\xff"), 2, "element 1 .* no UTF-8"),
        (packed(b"\xed\xa0\x80"), 1, "element 0 .* no UTF-8"),
    ],
)
def test_elements_that_do_not_fit_their_lengths_are_refused(
    data: bytes, size: int, words: str
) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        texts_of(data, size)


def test_a_flag_of_another_byte_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"'town' holds the byte 2 as value 1 .* 0 or 1"):
        cells_of_bytes("town", "BOOL", [3], memoryview(b"\1\2\0"), DATATYPES["BOOL"])
