"""Inference requests as JSON and binary data: parsing, responses and refusals."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import struct
import sys
import time
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.serving import client_of, models, numbers, on_a_port, people, save_models, service_of
from treekit.serve.errors import InvalidRequestError, TooLargeError
from treekit.serve.http.app import make_app
from treekit.serve.models.tensors import DATATYPES, Tensor
from treekit.serve.protocol.messages import (
    InputRequest,
    decode_tensors,
    read_request,
    reject_duplicates,
)
from treekit.serve.protocol.tensor_data import decode_cells, decompress_body, encode_bytes
from treekit.serve.scheduling import Service

# ---------------------------------------------------------------- serve wire json


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    return service_of(save_models(tmp_path_factory.mktemp("models")), body_bytes=1 << 20)


def asked(service: Service, body: Any, model: str = "texts", **headers: str) -> httpx.Response:
    """The answer to an inference request; bytes are sent as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def ask() -> httpx.Response:
        async with client_of(make_app(service)) as client:
            return await client.post(f"/v2/models/{model}/infer", content=content, headers=headers)

    return asyncio.run(ask())


def of_data(data: Any, shape: list[int], datatype: str = "FP32") -> Any:
    return {"inputs": [{"name": "input", "shape": shape, "datatype": datatype, "data": data}]}


def read(data: Any, shape: list[int], datatype: str = "FP32") -> Tensor:
    body = data if isinstance(data, bytes) else json.dumps(of_data(data, shape, datatype)).encode()
    (tensor,) = decode_tensors(*read_request(body))
    return tensor


# ------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "shape", [[6], [2, 3], [1, 6], [3, 1, 2], [2, 0], [1, 1, 1, 1, 1, 1, 1, 6]]
)
def test_data_may_be_flat_or_nested_by_shape(shape: list[int]) -> None:
    cells = np.arange(float(np.prod(shape))).reshape(shape)
    for datatype in ("FP64", "FP32", "INT8", "UINT64"):
        wanted = cells.astype(DATATYPES[datatype])
        for data in (wanted.ravel().tolist(), wanted.tolist()):
            tensor = read(data, shape, datatype)
            assert tensor.cells.dtype == wanted.dtype
            np.testing.assert_array_equal(tensor.cells, wanted)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_nan_is_read_as_null(datatype: str) -> None:
    value: Any = {"BOOL": True, "BYTES": "NaN"}.get(datatype, 1)
    for data in ([value, None], [[value], [None]]):
        wanted = read(data, [2, 1], datatype).cells
        nan = json.dumps(of_data(data, [2, 1], datatype)).replace("null", "NaN").encode()
        found = read(nan, [2, 1], datatype).cells
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_infinities_are_read_as_numbers() -> None:
    cells = [np.inf, 0.1, -np.inf, np.nan]
    for datatype in ("FP16", "FP32", "FP64"):
        wanted = np.array(cells).astype(DATATYPES[datatype])
        np.testing.assert_array_equal(read(cells, [4], datatype).cells, wanted)
    for datatype in ("INT64", "BOOL", "BYTES"):
        with pytest.raises(InvalidRequestError, match=f"data that are not {datatype}: Expected"):
            read([np.inf], [1], datatype)


def test_request_with_nan_is_parsed_completely(service: Service) -> None:
    """Other inputs, the id and parameters are read as those of a body without NaN."""
    text = json.dumps(
        {
            "id": "NaN Infinity",
            "parameters": {"binary_data_output": False},
            "inputs": [
                {"name": "age", "shape": [2], "datatype": "FP64", "data": [None, 33.5]},
                {"name": "town", "shape": [2, 1], "datatype": "BYTES", "data": [["Ulm"], [None]]},
                {"name": "member", "shape": [2], "datatype": "BOOL", "data": [True, None]},
            ],
        }
    ).encode()
    wanted = asked(service, text, "mixed")
    assert wanted.status_code == 200
    found = asked(service, text.replace(b"null", b"NaN"), "mixed")
    assert found.content == wanted.content
    request, _ = read_request(text.replace(b"null", b"NaN"))
    assert (request.id, request.parameters) == ("NaN Infinity", {"binary_data_output": False})
    for empty in (b"[]", b"null", b"{}", b"1"):
        body = of_data([], [0, 4])
        body["parameters"] = {"cost": np.nan}
        nan = json.dumps(body).replace('"data": []', f'"data": {empty.decode()}').encode()
        assert asked(service, nan).status_code == (200 if empty == b"[]" else 400)


def test_a_model_that_refuses_missing_cells_refuses_nan_by_name(tmp_path: Path) -> None:
    replace(models()["texts"], missing="error").save(tmp_path / "strict.treekit")
    answer = asked(service_of(tmp_path), of_data([1.0, np.nan, 3.0, 4.0], [1, 4]), "strict")
    assert answer.status_code == 400
    assert "'x1'" in answer.json()["error"]
    assert "missing" in answer.json()["error"]


def test_no_rows_give_no_predictions(service: Service) -> None:
    answer = asked(service, of_data([], [0, 4]))
    assert answer.status_code == 200
    assert [output["shape"] for output in answer.json()["outputs"]] == [[0], [0, 3]]


def test_null_is_a_missing_value_of_every_datatype() -> None:
    for datatype in DATATYPES:
        value: Any = {"BOOL": True, "BYTES": "a"}.get(datatype, 1)
        flat, nested = read([value, None], [2], datatype), read([[value], [None]], [2, 1], datatype)
        assert flat.cells.tolist() == nested.cells.ravel().tolist() or datatype not in (
            "BOOL",
            "BYTES",
        )
        missing = flat.cells[1]
        assert missing is None if datatype in ("BOOL", "BYTES") else np.isnan(missing)
        assert flat.cells[0] == value
    assert read([0.1, None], [2], "FP32").cells.dtype == np.float32  # as without the null


def test_rows_with_nulls_are_predicted_as_by_the_model(service: Service) -> None:
    rows = {name: column[:40].tolist() for name, column in people().items()}
    rows["age"] = [None if age != age else age for age in rows["age"]]
    body = {
        "inputs": [
            {"name": name, "shape": [40], "datatype": datatype, "data": rows[name]}
            for name, datatype in [("member", "BOOL"), ("age", "FP64"), ("town", "BYTES")]
        ]
    }
    wanted = models()["mixed"].predict_proba({name: col[:40] for name, col in people().items()})
    label, shares = asked(service, body, "mixed").json()["outputs"]
    assert np.array(shares["data"]).reshape(shares["shape"]).tobytes() == wanted.tobytes()
    assert (
        label["data"]
        == models()["mixed"].predict({name: col[:40] for name, col in people().items()}).tolist()
    )


def test_requests_are_read_with_any_content_type(service: Service) -> None:
    body = of_data([0.5] * 4, [1, 4])
    plain = asked(service, body)
    assert plain.status_code == 200
    for media in ("application/x-www-form-urlencoded", "text/plain", "nonsense"):
        assert asked(service, body, **{"content-type": media}).content == plain.content


def test_unknown_members_and_parameters_are_ignored(service: Service) -> None:
    body = of_data([0.5] * 4, [1, 4])
    plain = asked(service, body)
    body["model_name"] = "another"
    body["parameters"] = {"colour": "red", "n": 1.5, "none": None}
    body["inputs"][0]["parameters"] = {"content_type": "np"}
    assert asked(service, body).content == plain.content


def test_responses_name_model_version_and_id(service: Service) -> None:
    answer = asked(service, of_data([0.5] * 4, [1, 4]) | {"id": "", "outputs": []}).json()
    assert answer["id"] == ""
    assert (answer["model_name"], answer["outputs"][0]["name"]) == ("texts", "label")
    assert answer["model_version"] == service.repository.get("texts").version


# ------------------------------------------------------------------------ refusals


def one(values: str = "1,2,3,4", name: str = '"input"') -> str:
    """An input as text, so that it may be none."""
    return f'{{"name":{name},"shape":[1,4],"datatype":"FP32","data":[{values}]}}'


def body_of(*inputs: str, more: str = "") -> str:
    return f'{{{more}"inputs":[{",".join(inputs)}]}}'


@pytest.mark.parametrize(
    ("data", "shape", "datatype", "words"),
    [
        ([1, 2, 3], [1, 4], "FP32", r"'input' has 3 values, .* requires 4"),
        (
            [[1, 2, 3, 4], [1, 2, 3]],
            [2, 4],
            "FP32",
            "a list of length 3 at depth 2, .* requires length 4",
        ),
        ([[1, 2], [3, 4]], [1, 4], "FP32", "a list of length 2 at depth 1, .* requires length 1"),
        ([[[1, 2, 3, 4]]], [1, 4], "FP32", r"nested 3 deep; .* according to its shape \[1, 4\]"),
        ([[1, 2], 3], [2, 2], "FP32", "not FP32: Expected `array`, got `int`"),
        ([1, [2], 3, 4], [1, 4], "FP32", r"not FP32: Expected `float \| null`, got `array`"),
        (5, [1, 1], "FP32", "not a list"),
        (None, [1, 1], "FP32", "not a list"),
        ({"a": 1}, [1, 1], "FP32", "not a list"),
        (["1.5"], [1, 1], "FP32", r"not FP32: .*got `str` - at `\$\[0\]`; .* without quotes"),
        ([True], [1, 1], "FP32", "not FP32: .*got `bool`"),
        ([1], [1, 1], "BOOL", "not BOOL: .*got `int`"),
        ([1], [1, 1], "BYTES", "not BYTES: .*got `int`.*; write every cell in quotes"),
        ([1.5], [1, 1], "INT32", "not INT32: .*got `float`"),
        ([0, 300], [1, 2], "INT8", "values from .* to 300, .* INT8, -128 to 127"),
        ([-1, None], [1, 2], "UINT64", "values from -1 to .* UINT64"),
        ([2**63], [1, 1], "INT64", "to 9223372036854775808, .* INT64"),
        ([1e39], [1, 1], "FP32", r"to 1e\+39, .* FP32"),
        ([65520], [1, 1], "FP16", r"to 65520.0, .* FP16"),
        ([1], [1, 1], "BF16", "'input' has datatype 'BF16'.*send it as FP32"),
        ([1], [1, 1], "fp32", "'input' has datatype 'fp32'.*supported: BOOL"),
        ([1], [-1, 4], "FP32", r"'input' has shape \[-1, 4\]"),
        ([1], [], "FP32", r"'input' has shape \[\]"),
        ([1], [1] * 9, "FP32", r"'input' has shape .*1 to 8 lengths"),
        ([1], [2**62, 2**62], "FP32", "too large for an array"),
        ([1], [10**30], "FP32", "too large for an array"),
    ],
)
def test_data_of_wrong_shape_or_type_are_refused_with_the_input_name(
    data: Any, shape: list[int], datatype: str, words: str
) -> None:
    with pytest.raises(InvalidRequestError, match=words) as caught:
        read(data, shape, datatype)
    assert "input 'input'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "the body is empty"),
        (b" \n", "the body is empty"),
        (b'{"inputs": [', "truncated"),
        (b"[1]", "Expected `object`"),
        (b"null", "Expected `object`"),
        (b"{}", "missing required field `inputs`"),
        (
            b'{"inputs": [{"name": "age"}]}',
            r"field `shape` - at `\$.inputs\[0\]`, got .'name': 'age'",
        ),
        (b'{"inputs": [{"name": 7}]}', "Expected `str`, got `int`"),
        (body_of(one()).encode("utf-16"), "UTF-16"),
        (body_of(one()).encode("utf-16-be"), "UTF-16"),
        (body_of(one()).encode("utf-8-sig"), "byte order mark"),
        (body_of(one(), more='"id":"é",').encode("latin-1"), "not UTF-8"),
        (body_of(one(), more='"other":"é",').encode("latin-1"), "not UTF-8"),
        (b"[" * 300_000, "Expected `object`"),
        (b'{"inputs":' + b"[" * 300_000, "Expected `object`, got `array`"),
        (b'{"other":' + b"[" * 300_000 + b"]" * 300_000 + b"}", "nested too deep"),
        (body_of(one("[" * 300_000 + "]" * 300_000)).encode(), "nested too deep"),
        (body_of(one()).encode() + b" x", "trailing characters"),
        (body_of(one("1,nan,3,4")).encode(), "invalid character"),
        (body_of(one("NaN,01,3,4")).encode(), "Expecting ',' delimiter"),
        (body_of(one("NaN,1e400,3,4")).encode(), "'1e400', which exceeds the largest double"),
        (body_of(one("NaN,-1e39,3,4")).encode(), "'input' has values from -1e.39 to"),
        (body_of(one('NaN,"2",3,4')).encode(), "'input' .*without quotes"),
        (body_of(one("NaN,2,3")).encode(), "'input' has 3 values, but its shape"),
        (body_of(one("[[NaN,2],[3]]")).encode(), "nested 3 deep"),
        (body_of(one("NaN"), more='"inputs":[],').encode(), "duplicate name 'inputs'"),
        (body_of(one("NaN", name='"a","name":"b"')).encode(), "duplicate name 'name'"),
        (body_of(one("NaN", name='"\\ud800"')).encode(), "surrogates"),
        (body_of(one("NaN"), more='"other":' + "[" * 100_000 + ",").encode(), "nested too deep"),
        (body_of(one("NaN"), more='"id":7,').encode(), r"Expected `str.*\$.id"),
        (body_of(one("NaN"), more='"id":"é",').encode("latin-1"), "not UTF-8"),
        (b"[NaN]", "Expected `object`"),
        (b'{"inputs":[NaN]}', r"got `null` - at `\$.inputs\[0\]`"),
        (
            b'{"inputs":[{"name":"a","shape":[NaN],"datatype":"FP32"}]}',
            r"Expected `int`.*inputs\[0\].shape\[0\]`, got ",
        ),
        (body_of(one("1,1e400,3,4")).encode(), r"'input' .*out of range - at `\$\[1\]`"),
        (body_of(one("9" * 5000 + ",2,3,4")).encode(), "'input' .*out of range"),
        (body_of(one("1,02,3,4")).encode(), "invalid number"),
        (body_of(one(), more='"inputs":[],').encode(), "duplicate name 'inputs'"),
        (body_of(one(), more='"inp\\u0075ts":[],"id":null,').encode(), "duplicate name 'inputs'"),
        (body_of(one(name='"a","name":"b"')).encode(), "duplicate name 'name'"),
        (body_of(one(name='"a","data":[0]')).encode(), "duplicate name 'data'"),
        (body_of(one(), more='"parameters":{"a":1,"a":2},').encode(), "duplicate name 'a'"),
        (body_of(one(), one()).encode(), "duplicate input"),
        (body_of(one(), more='"parameters":{"a":[1]},').encode(), "Expected `bool"),
        (body_of(one(), more='"parameters":{"binary_data_output":1},').encode(), "true or false"),
        (b'{"inputs":[{"name":"a","shape":[1],"datatype":"FP32"}]}', "'a' has no data"),
        (
            b'{"inputs":[{"name":"a","shape":[1.5],"datatype":"FP32"}]}',
            r"Expected `int`.*inputs\[0\].shape\[0\]`, got ",
        ),
        (
            b'{"inputs":[{"name":"a","shape":"4","datatype":"FP32"}]}',
            r"Expected `array`.*inputs\[0\].shape`, got '4'",
        ),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,
)
def test_invalid_bodies_are_refused_with_a_message(
    service: Service, text: bytes, words: str
) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        decode_tensors(*read_request(text))
    answer = asked(service, text)
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([("agee", "FP32", [1.0])], "no input 'agee'; did you mean 'age'"),
        ([("inputs", "FP32", [1.0])], "no input 'inputs'; did you mean 'input'?"),
        ([("x", "FP32", [1.0])], "there are: 'input', 'age', 'town', 'member'"),
        ([("age", "FP32", [1.0])], "input 'town' is missing from the request"),
        (
            [("age", "FP32", [1.0]), ("town", "BYTES", ["Ulm", "Ulm"]), ("member", "BOOL", [True])],
            "'town' has 2 rows but 'age' has 1",
        ),
        (
            [("age", "FP32", [1.0]), ("town", "FP32", [0.0]), ("member", "BOOL", [True])],
            "'town' has datatype FP32, but its categories are texts; send BYTES",
        ),
        (
            [("age", "BYTES", ["old"]), ("town", "BYTES", ["Ulm"]), ("member", "BOOL", [True])],
            "row 0 (counting from 0): column 'age' has the string 'old', but the column is numeric",
        ),
    ],
)
def test_inputs_that_do_not_match_the_columns_are_refused(
    service: Service, inputs: list[tuple[str, str, list[Any]]], words: str
) -> None:
    body = {
        "inputs": [
            {"name": name, "shape": [len(data)], "datatype": datatype, "data": data}
            for name, datatype, data in inputs
        ]
    }
    answer = asked(service, body, "mixed")
    assert answer.status_code == 400
    assert words.split(" .* ", maxsplit=1)[0] in answer.json()["error"]


def test_datatype_of_an_all_missing_column_does_not_matter(service: Service) -> None:
    one, other = (
        [{"name": name, "shape": [1], "datatype": kind, "data": [None]} for name, kind in kinds]
        for kinds in (
            [("age", "FP32"), ("town", "FP64"), ("member", "INT8")],
            [("age", "FP32"), ("town", "BYTES"), ("member", "BOOL")],
        )
    )
    assert (
        asked(service, {"inputs": one}, "mixed").json()
        == asked(service, {"inputs": other}, "mixed").json()
    )


def test_invalid_codes_are_missing_values(service: Service) -> None:
    wanted = asked(service, of_data([40.0, None, None], [1, 3]), "mixed").json()["outputs"]
    for code in (7.0, -1.0, 0.5, 1e30, -3.4e38, 2.0**31, 2.0**63):
        row = of_data([40.0, code, code], [1, 3])
        many = of_data([40.0, code, code] * 300, [300, 3])
        assert asked(service, row, "mixed").json()["outputs"] == wanted
        assert asked(service, many, "mixed").json()["outputs"][1]["data"][:2] == wanted[1]["data"]


# -------------------------------------------------------------------------- bounds


def test_duplicate_names_are_found_without_decoding_cells_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells, decoded, loads = "1,null," * 50_000, [], json.loads

    def seen(text: bytes, **options: Any) -> Any:
        decoded.append(len(text))
        return loads(text, **options)

    monkeypatch.setattr("treekit.serve.protocol.messages.json.loads", seen)
    rest = f'"inputs":[{{"name":"x","data":[{cells}1]}}]}}'
    reject_duplicates(f'{{"a:[1]":1,{rest}'.encode())
    assert max(decoded) < 100
    reject_duplicates(f'{{"a:[1]":1,"a:[2]":2,{rest}'.encode())  # differ in brackets alone
    with pytest.raises(InvalidRequestError, match="duplicate name 'id'"):
        reject_duplicates(f'{{"id":"a","id":"b",{rest}'.encode())


def test_huge_shapes_allocate_no_memory() -> None:
    for shape in ([10**9, 28], [1, 10**12], [2**31, 2**31, 2], [3, 10**15]):
        for datatype in ("FP32", "BYTES", "INT8"):
            tracemalloc.start()
            with pytest.raises(InvalidRequestError, match=r"values|lists|too large for an array"):
                read([], shape, datatype)
            assert tracemalloc.get_traced_memory()[1] < 300_000
            tracemalloc.stop()


def test_more_rows_than_the_limit_are_refused_before_they_are_read() -> None:
    request, rest = read_request(json.dumps(of_data([1, 2], [11, 28])).encode())
    with pytest.raises(TooLargeError, match=r"'input' has shape \[11, 28\]; .* 10 rows"):
        decode_tensors(request, rest, 10)


def test_long_names_give_short_errors_quickly(service: Service) -> None:
    for name in ("x" * 500_000, '"' * 200_000, "é" * 100_000):
        body = of_data([1], [1])
        body["inputs"][0]["name"] = name
        begun = time.perf_counter()
        answer = asked(service, body)
        assert answer.status_code == 400
        assert len(answer.content) < 13_000
        assert time.perf_counter() - begun < 2


@pytest.mark.parametrize("rows", [1, 100, 2_000])
def test_decoding_tensors_takes_no_python_time_per_cell(rows: int) -> None:
    """Nested, flat, with and without nulls: each near what decoding alone takes."""
    data = np.random.default_rng(0).normal(size=(rows, 28)).round(4).tolist()
    body = json.dumps(of_data(data, [rows, 28])).encode()

    def fastest(work: Any) -> float:
        taken = []
        for _ in range(5):
            begun = time.perf_counter()
            work()
            taken.append(time.perf_counter() - begun)
        return min(taken)

    alone = fastest(lambda: json.loads(body))
    assert fastest(lambda: decode_tensors(*read_request(body))) < 2 * alone + 200e-6


# ------------------------------------------------------------------ compressed bodies


@pytest.mark.parametrize(
    ("coding", "pack"),
    [("gzip", gzip.compress), ("GZip", gzip.compress), ("deflate", zlib.compress)],
)
def test_compressed_bodies_are_inflated(service: Service, coding: str, pack: Any) -> None:
    body = json.dumps(of_data([0.5] * 4, [1, 4])).encode()
    assert asked(service, pack(body), **{"content-encoding": coding}).content == (
        asked(service, body).content
    )


@pytest.mark.parametrize("parts", [2, 1000])
def test_gzip_members_are_decompressed_in_order(parts: int) -> None:
    text = json.dumps(of_data([0.5] * 4000, [1000, 4])).encode()
    size = -(-len(text) // parts)
    members = [gzip.compress(text[at : at + size]) for at in range(0, len(text), size)]
    assert decompress_body(b"".join(members), b"gzip", 1 << 20) == text
    large = np.random.default_rng(0).bytes(1 << 18)
    assert decompress_body(gzip.compress(large) + gzip.compress(b"x"), b"gzip", 1 << 20) == (
        large + b"x"
    )


@pytest.mark.parametrize(
    ("coding", "body", "status", "words"),
    [
        ("br", b"x", 415, "Content-Encoding 'br'; .* gzip or deflate"),
        ("gzip, gzip", b"x", 415, "'gzip, gzip'"),
        ("gzip", b"plain", 400, "not gzip"),
        (
            "gzip",
            gzip.compress(b"{}" * 50, mtime=0)[:-5],
            400,
            "not a complete gzip stream",
        ),
        ("gzip", gzip.compress(b"{}", mtime=0) + b"more", 400, "not gzip"),
        ("gzip", gzip.compress(b"", mtime=0) * 1001, 400, "more than 1,000 members"),
        ("gzip", gzip.compress(b" " * 600_000, mtime=0) * 2, 413, "longer than 1,048,576 bytes"),
        ("deflate", zlib.compress(b"{}") * 2, 400, "data after its deflate stream"),
        (
            "gzip",
            gzip.compress(b" " * (1 << 20) + b"{}", mtime=0),
            413,
            "the decompressed body is longer than 1,048,576 bytes",
        ),
        ("deflate", zlib.compress(b"\0" * (80 << 20)), 413, "the decompressed body is longer"),
    ],
)
def test_compressed_bodies_beyond_the_limit_are_refused(
    service: Service, coding: str, body: bytes, status: int, words: str
) -> None:
    asked(service, b"")  # what an application holds once is no matter of a body
    tracemalloc.start()
    answer = asked(service, body, **{"content-encoding": coding})
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.status_code == status
    assert all(part in answer.json()["error"] for part in words.split(" .* "))
    assert most < 8 << 20


def test_unknown_paths_and_methods_return_json_errors(service: Service, tmp_path: Path) -> None:
    async def statuses() -> list[tuple[int, str]]:
        async with client_of(make_app(service)) as client:
            answers = [
                await client.get("/v2/models/texts/infer"),
                await client.post("/v2/health/live"),
                await client.get("/v2/nothing"),
                await client.get("/v2/models/texts/"),
                await client.get("/v2/models/no%2Fbody"),
            ]
        assert answers[0].headers["allow"] == "POST"
        return [(answer.status_code, next(iter(answer.json()))) for answer in answers]

    assert asyncio.run(statuses()) == [
        (405, "error"),
        (405, "error"),
        (404, "error"),
        (404, "error"),
        (404, "error"),
    ]


def test_an_internal_error_is_json_without_details(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(service.repository, "get", broken)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://treekit.test") as client:
            return await client.get("/v2/models/texts")

    answer = asyncio.run(ask())
    assert answer.status_code == 500
    assert "see the server log" in answer.json()["error"]
    assert "secret" not in answer.text


def test_numeric_rows_are_predicted_as_by_the_model(service: Service) -> None:
    rows = np.column_stack([column[:50] for column in numbers().values()])
    label, shares = asked(service, of_data(rows.tolist(), [50, 4])).json()["outputs"]
    assert label["data"] == models()["texts"].predict(rows).tolist()
    assert np.array(shares["data"]).tobytes() == models()["texts"].predict_proba(rows).tobytes()


def test_valid_requests_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second, slow look for repeated names is for requests that may have some."""

    def slow(body: bytes) -> None:
        raise AssertionError(body)

    monkeypatch.setattr("treekit.serve.protocol.messages.reject_duplicates", slow)
    cells: dict[str, Any] = {"BOOL": True, "BYTES": "Ulm"}
    for datatype in DATATYPES:
        body = of_data([cells.get(datatype, 1), None], [2], datatype)
        for more in (
            {},
            {"id": "7", "parameters": {"a": "b", "binary_data_output": True}},
            {"outputs": [{"name": "a"}, {"name": "b", "parameters": {"binary_data": False}}]},
        ):
            read(json.dumps(body | more).encode(), [2])


# ---------------------------------------------------------------- serve wire binary
# Binary tensors without a client between: lengths, orders, and what is refused of them.

ROWS = 5


@pytest.fixture(scope="module")
def serve_wire_binary_service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    return service_of(save_models(tmp_path_factory.mktemp("models")))


def serve_wire_binary_asked(
    serve_wire_binary_service: Service,
    body: bytes,
    length: int | str | None = None,
    model: str = "texts",
) -> httpx.Response:
    headers = {} if length is None else {"Inference-Header-Content-Length": str(length)}

    async def ask() -> httpx.Response:
        async with client_of(make_app(serve_wire_binary_service)) as client:
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


def test_bytes_follow_the_json_in_the_order_of_the_outputs(
    serve_wire_binary_service: Service,
) -> None:
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
    said, rest = parts(serve_wire_binary_asked(serve_wire_binary_service, head + data, len(head)))
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


def test_json_and_binary_data_may_be_mixed(serve_wire_binary_service: Service) -> None:
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
    answer = serve_wire_binary_asked(serve_wire_binary_service, head + data, len(head))
    assert answer.headers["content-type"] == "application/json"
    got = np.array(answer.json()["outputs"][1]["data"])
    assert got.tobytes() == models()["texts"].predict_proba(columns).tobytes()


def test_json_length_of_the_whole_body_is_plain_json(serve_wire_binary_service: Service) -> None:
    body = request_of({"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [0, 0, 0, 0]})
    assert (
        serve_wire_binary_asked(serve_wire_binary_service, body, len(body)).content
        == serve_wire_binary_asked(serve_wire_binary_service, body).content
    )


def test_no_rows_give_empty_binary_outputs(serve_wire_binary_service: Service) -> None:
    head = request_of(of_bytes([0, 4], b""), parameters={"binary_data_output": True})
    said, rest = parts(serve_wire_binary_asked(serve_wire_binary_service, head))
    assert rest == b""
    assert [output["parameters"]["binary_data_size"] for output in said["outputs"]] == [0, 0]


DATA = np.zeros((ROWS, 4), "<f4").tobytes()


@pytest.mark.parametrize(
    ("length", "given", "after", "words"),
    [
        ("x", of_bytes([ROWS, 4], DATA), DATA, "Inference-Header-Content-Length is 'x'"),
        ("-1", of_bytes([ROWS, 4], DATA), DATA, "is '-1'; expected the length of the JSON"),
        ("9" * 5000, of_bytes([ROWS, 4], DATA), DATA, "is '9999"),
        ("100000", of_bytes([ROWS, 4], DATA), DATA, "is '100000'; .* at the start of the body of "),
        ("3", of_bytes([ROWS, 4], DATA), DATA, "truncated"),
        ("0", of_bytes([ROWS, 4], DATA), DATA, "the body is empty"),
        (None, of_bytes([ROWS, 4], DATA), DATA, "trailing characters"),
        (None, of_bytes([ROWS, 4], DATA), b"", "'input' has binary_data_size 80; 0 bytes are left"),
        (0, of_bytes([ROWS, 4], DATA), DATA[:-1], "'input' has binary_data_size 80; 79 bytes"),
        (0, of_bytes([ROWS, 4], DATA), DATA + b"x", "has 1 bytes after the data of its last"),
        (0, of_bytes([ROWS, 4], DATA[:-4]), DATA, r"'input' has 76 bytes .* FP32 requires 80"),
        (0, of_bytes([ROWS, 4], DATA, "FP64"), DATA, "'input' has 80 bytes .* FP64 requires 160"),
        (0, of_bytes([10**5, 10**9], DATA), DATA, "has 80 bytes .* requires 400,000,000,000,000"),
        (
            0,
            of_bytes([10**5, 10**9], DATA, "BYTES"),
            DATA,
            "has 80 bytes .* not 100,000,000,000,000 elements",
        ),
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
def test_wrong_lengths_are_refused(
    serve_wire_binary_service: Service, length: Any, given: dict[str, Any], after: bytes, words: str
) -> None:
    head = request_of(given)
    answer = serve_wire_binary_asked(
        serve_wire_binary_service, head + after, len(head) if length == 0 else length
    )
    assert answer.status_code == 400
    assert re.search(words, answer.json()["error"])


@pytest.mark.parametrize("given", ["0", "3"])
def test_two_different_lengths_are_refused(serve_wire_binary_service: Service, given: str) -> None:
    head = request_of(of_bytes([ROWS, 4], DATA))

    async def ask() -> httpx.Response:
        headers = [
            ("Inference-Header-Content-Length", str(len(head))),
            ("Inference-Header-Content-Length", given),
        ]
        async with client_of(make_app(serve_wire_binary_service)) as client:
            return await client.post("/v2/models/texts/infer", content=head + DATA, headers=headers)

    answer = asyncio.run(ask())
    assert answer.status_code == 400
    assert "duplicate header" in answer.json()["error"]


@pytest.mark.parametrize("where", ["output", "request"])
def test_binary_flags_must_be_booleans(serve_wire_binary_service: Service, where: str) -> None:
    head = request_of(
        of_bytes([ROWS, 4], DATA),
        outputs=[{"name": "label", "parameters": {"binary_data": 1} if where == "output" else {}}],
        parameters={"binary_data_output": "yes"} if where == "request" else {},
    )
    answer = serve_wire_binary_asked(serve_wire_binary_service, head + DATA, len(head))
    assert answer.status_code == 400
    assert "it must be true or false" in answer.json()["error"]


# ----------------------------------------------------------------------- elements


def texts_of(data: bytes, size: int) -> list[str]:
    return list(decode_cells(InputRequest("town", [size], "BYTES"), memoryview(data)))


def packed(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_cells_are_encoded_and_decoded_as_bytes(datatype: str) -> None:
    dtype = DATATYPES[datatype]
    cells = np.arange(12).reshape(3, 4).astype(bool if datatype == "BOOL" else dtype)
    if datatype == "BYTES":
        cells = np.array([["", "é"], ["\0", "x" * 300]], dtype=object)
    strided = np.asfortranarray(cells)
    data = encode_bytes(Tensor("town", datatype, strided))
    assert data == encode_bytes(Tensor("town", datatype, cells))
    # at an odd place, as the bytes after some JSON are
    place = memoryview(b"x" + data)[1:]
    got = decode_cells(InputRequest("town", list(cells.shape), datatype), place)
    assert got.dtype == dtype
    assert got.flags.aligned
    assert got.flags.writeable
    np.testing.assert_array_equal(got, cells)


def test_encoded_cells_are_little_endian() -> None:
    cells = np.array([1.5, -2.0])
    assert encode_bytes(Tensor("value", "FP64", cells.astype(">f8"))) == struct.pack(
        "<2d", 1.5, -2.0
    )


@pytest.mark.parametrize(
    ("data", "size", "words"),
    [
        (packed(b"Ulm")[:-1], 1, "'town' has 6 bytes of data, which are not 1 elements of BYTES"),
        (packed(b"Ulm", b"Bonn")[:-4], 2, "not 2 elements of BYTES"),
        (packed(b"Ulm", b"")[:-1], 2, "not 2 elements of BYTES"),
        (packed(b"Ulm") + b"\xff\xff\xff\xff", 2, "not 2 elements of BYTES"),
        (packed(b"Ulm", b"Bonn"), 1, "not 1 elements of BYTES"),
        (b"x", 0, "not 0 elements of BYTES"),
        (packed(b"Ulm", b"\xff"), 2, "element 1 .* not UTF-8"),
        (packed(b"\xed\xa0\x80"), 1, "element 0 .* not UTF-8"),
    ],
)
def test_bytes_elements_with_wrong_lengths_are_refused(data: bytes, size: int, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        texts_of(data, size)


def test_bool_byte_other_than_0_or_1_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"'town' has the byte 2 as value 1 .* 0 or 1"):
        decode_cells(InputRequest("town", [3], "BOOL"), memoryview(b"\1\2\0"))


# ---------------------------------------------------------------- serve wire malformed
# Two thousand requests that are wrong in sixteen ways: none breaks the server or swells it.

REQUESTS = 2_000
REFUSED = {400, 413, 415}
URL = "/v2/models/texts/infer"

Made = tuple[bytes, dict[str, str]]
GOOD = {"name": "input", "shape": [2, 4], "datatype": "FP32", "data": [[0.5] * 4, [-1.5] * 4]}


def json_of(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


def plain(**changes: Any) -> Made:
    return json_of({**GOOD, **changes}), {}


def binary(data: bytes, size: Any, length: Any = None, datatype: str = "FP32") -> Made:
    given = {"name": "input", "shape": [2, 4], "datatype": datatype}
    head = json_of({**given, "parameters": {"binary_data_size": size}})
    return head + data, {
        "Inference-Header-Content-Length": str(len(head) if length is None else length)
    }


FLOATS = struct.pack("<8f", *range(8))


def truncated(rng: random.Random) -> Made:
    body, headers = rng.choice([plain(), binary(FLOATS, 32)])
    return body[: rng.randrange(len(body))], headers


def noise(rng: random.Random) -> Made:
    return rng.randbytes(rng.randrange(3000)), {}


def flipped(rng: random.Random) -> Made:
    body, headers = rng.choice([plain(), binary(FLOATS, 32)])
    mutable = bytearray(body)
    for _ in range(rng.randrange(1, 6)):
        mutable[rng.randrange(len(mutable))] = rng.randrange(256)
    return bytes(mutable), headers


def lengths(rng: random.Random) -> Made:
    odd = [-1, 0, 1, 5, 10**6, 10**30, 2**63, "", "a", "0x10", "1e2", "²", "7_0", "٣"]
    return binary(FLOATS, 32, rng.choice(odd))


def sizes(rng: random.Random) -> Made:
    odd = [-1, 0, 31, 33, 10**9, 2**63, 2**64, None, True, 32.0, "32", 1e300]
    return binary(FLOATS[: rng.choice([0, 7, 32])], rng.choice(odd))


def shapes(rng: random.Random) -> Made:
    huge = [10**9, 2**31, 2**62, 2**63, 2**64, 10**40, 0, -1, -(2**63), 1, 2, 28]
    count = rng.choice([0, 1, 2, 3, 9, 64, 4000])
    shape: list[Any] = [rng.choice(huge) for _ in range(count)]
    if shape in ([2, 4], [2, 1, 4]):
        shape = []
    if rng.random() < 0.2:
        shape = rng.choice([[1.5, 4], ["2", "4"], [None], [[2, 4]], {}, None, "2,4", True])
    return plain(shape=shape)


def literals(rng: random.Random) -> Made:
    word = rng.choice(["-NaN", "+Infinity", "inf", "nan", "1e400", "-1e999", "01", "+1", "1."])
    return plain()[0].replace(b"-1.5", word.encode(), 1), {}


def depths(rng: random.Random) -> Made:
    deep = rng.choice([3, 50, 1_000, 200_000])
    opened, closed = rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
    nest = opened * deep + b"1" + closed * deep
    return rng.choice(
        [
            plain()[0].replace(b"[[0.5", nest + b",[[0.5"),
            b'{"x":' + nest + b',"inputs":[]}',
            b'{"inputs":' + nest + b"}",
            nest,
        ]
    ), {}


def encodings(rng: random.Random) -> Made:
    text = json.dumps({"id": "Ünïcode", "inputs": [GOOD]}, ensure_ascii=False)
    coding = rng.choice(["utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig", "cp037", "utf-7"])
    return text.encode(coding) + (b"\xff" if coding == "utf-7" else b""), {}


def ragged(rng: random.Random) -> Made:
    data: list[Any] = [[0.5] * 4, [-1.5] * 4]
    cell = rng.choice(["1", True, [], {}, [1.0], {"a": 1}, 1e39, "\x00", 10**400])
    data[rng.randrange(2)][rng.randrange(4)] = cell
    return plain(data=rng.choice([data, data[:1], [data], data[0] + data[1], cell, [[]] * 2]))


def repeats(rng: random.Random) -> Made:
    body = plain()[0].decode()
    name = rng.choice(["inputs", "name", "shape", "datatype", "data"])
    twice = body.replace(f'"{name}":', f'"{name}": {rng.choice(["[]", "1", "null"])}, "{name}":')
    return rng.choice([twice.encode(), json_of(GOOD, GOOD)]), {}


def datatypes(rng: random.Random) -> Made:
    odd = ["BF16", "fp32", "FP8", "", "STRING", "object", "f4", "INT", "\x00", "🌳" * 999, 7, None]
    return plain(datatype=rng.choice(odd))


def names(rng: random.Random) -> Made:
    name = rng.choice(["", "x0", "INPUT", "in\x00put", "i" * 100_000, "__class__", "🌳" * 3000, 5])
    if rng.random() < 0.5 and name != "":
        return json_of(GOOD, outputs=[{"name": name}]), {}
    return plain(name=name)


def forms(rng: random.Random) -> Made:
    value = rng.choice([None, 1, 1.5, "a", [], {}, [None], [[]], True])
    place = rng.choice(["inputs", "outputs", "parameters", "input", "input parameters"])
    if place == "inputs":
        return json.dumps({"inputs": value}).encode(), {}
    if place == "input":
        return json_of(value), {}
    odd = [7, "a", [None], [[]], True, {"binary_data_output": 1, "classification": 3}]
    if place == "input parameters":
        return plain(parameters=rng.choice([*odd[:5], {"shared_memory_region": "a"}]))
    return json_of(GOOD, **{place: rng.choice(odd)}), {}


def codings(rng: random.Random) -> Made:
    body = plain()[0]
    bomb = gzip.compress(b" " * (3 << 20), 9)
    packed = gzip.compress(body)
    coding, data = rng.choice(
        [
            ("gzip", body),
            ("gzip", packed[:-1]),
            ("gzip", packed + b"x"),
            ("gzip", bomb),
            ("deflate", packed),
            ("br", packed),
            ("gzip, deflate", packed),
            ("x" * 2000, packed),
        ]
    )
    return data, {"Content-Encoding": coding}


def elements(rng: random.Random) -> Made:
    texts = [rng.randbytes(rng.randrange(6)) for _ in range(8)]
    texts[rng.randrange(8)] = b"\xff\xfe"
    data = bytearray(b"".join(struct.pack("<I", len(text)) + text for text in texts))
    if rng.random() < 0.5:
        struct.pack_into("<I", data, 0, rng.choice([2**32 - 1, 2**31, 10**6, len(data)]))
    return binary(bytes(data), len(data), datatype="BYTES")


KINDS: list[Callable[[random.Random], Made]] = [
    *(truncated, noise, flipped, lengths, sizes, shapes, literals, depths),
    *(encodings, ragged, repeats, datatypes, names, forms, codings, elements),
]


def as_bytes(headers: dict[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): text.encode() for name, text in headers.items()}


def resident() -> int:
    """Bytes of this process in memory: server and client."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_invalid_requests_of_every_kind_are_refused_with_a_message(tmp_path: Path) -> None:
    """Ten of each, in process."""
    rng = random.Random(9)
    service = service_of(save_models(tmp_path), body_bytes=1 << 20)

    async def ask() -> None:
        async with client_of(make_app(service)) as client:
            right = await client.post(URL, content=plain()[0])
            for kind in KINDS * 10:
                body, headers = kind(rng)
                answer = await client.post(URL, content=body, headers=as_bytes(headers))
                check_refusal(kind, body, answer)
            assert (await client.post(URL, content=plain()[0])).content == right.content

    asyncio.run(ask())


def check_refusal(kind: Callable[..., Made], body: bytes, answer: httpx.Response) -> None:
    """A wrong request is refused with a status and words of its own."""
    if answer.status_code == 200:  # some flips make another request that is right
        assert kind in (flipped, ragged), (kind, body[:300])
    else:
        assert answer.status_code in REFUSED, (kind, answer, body[:300])
        (words,) = answer.json().values()
        assert 0 < len(words) <= 2_003


@pytest.mark.system
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_two_thousand_invalid_requests_do_not_break_or_leak_memory(tmp_path: Path) -> None:
    rng = random.Random(8)
    seen: Counter[tuple[str, int]] = Counter()
    memory = []
    service = service_of(save_models(tmp_path), body_bytes=1 << 20)
    with (
        on_a_port(service) as address,
        httpx.Client(base_url=f"http://{address}", timeout=20) as client,
    ):
        right = client.post(URL, content=plain()[0]).content
        for number in range(REQUESTS):
            kind = KINDS[number % len(KINDS)]
            body, headers = kind(rng)
            answer = client.post(URL, content=body, headers=as_bytes(headers))
            seen[kind.__name__, answer.status_code] += 1
            check_refusal(kind, body, answer)
            if number % 100 == 99:
                assert client.post(URL, content=plain()[0]).content == right
                memory.append(resident())
    assert sum(seen.values()) == REQUESTS
    for kind in KINDS:
        assert sum(seen[kind.__name__, status] for status in REFUSED) > REQUESTS / 30
    # Of 20 readings the first are while pools and caches fill.
    assert max(memory[10:]) - max(memory[:10]) < 8 << 20, [size >> 20 for size in memory]
