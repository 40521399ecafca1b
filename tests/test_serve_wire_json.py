"""Inference requests as JSON: what is read, how it is answered, and what is refused in words."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.serving import client_of, models, numbers, people, save_models, service_of
from treekit.serve.errors import InvalidRequestError, TooLargeError
from treekit.serve.http.app import make_app
from treekit.serve.models.tensors import DATATYPES, Tensor
from treekit.serve.protocol.messages import read_request, refuse_repeats, tensors_of
from treekit.serve.scheduling import Service


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
    (tensor,) = tensors_of(*read_request(body))
    return tensor


# ------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "shape", [[6], [2, 3], [1, 6], [3, 1, 2], [2, 0], [1, 1, 1, 1, 1, 1, 1, 6]]
)
def test_data_may_be_flat_or_nested_as_the_shape_is(shape: list[int]) -> None:
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
        with pytest.raises(InvalidRequestError, match=f"data that are no {datatype}: Expected"):
            read([np.inf], [1], datatype)


def test_a_request_with_nan_is_read_whole(service: Service) -> None:
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


def test_no_rows_are_an_answer_of_no_rows(service: Service) -> None:
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


def test_rows_with_nulls_are_answered_as_the_model_does(service: Service) -> None:
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


def test_the_request_is_read_whatever_its_content_type_says(service: Service) -> None:
    body = of_data([0.5] * 4, [1, 4])
    plain = asked(service, body)
    assert plain.status_code == 200
    for media in ("application/x-www-form-urlencoded", "text/plain", "nonsense"):
        assert asked(service, body, **{"content-type": media}).content == plain.content


def test_unknown_members_and_parameters_are_passed_over(service: Service) -> None:
    body = of_data([0.5] * 4, [1, 4])
    plain = asked(service, body)
    body["model_name"] = "another"
    body["parameters"] = {"colour": "red", "n": 1.5, "none": None}
    body["inputs"][0]["parameters"] = {"content_type": "np"}
    assert asked(service, body).content == plain.content


def test_answers_name_model_version_and_id(service: Service) -> None:
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
        ([1, 2, 3], [1, 4], "FP32", r"'input' has 3 values .* holds 4"),
        ([[1, 2, 3, 4], [1, 2, 3]], [2, 4], "FP32", "a list of 3 at depth 2 .* has 4 there"),
        ([[1, 2], [3, 4]], [1, 4], "FP32", "a list of 2 at depth 1 .* has 1 there"),
        ([[[1, 2, 3, 4]]], [1, 4], "FP32", r"nested 3 deep; .* as its shape \[1, 4\] is"),
        ([[1, 2], 3], [2, 2], "FP32", "no FP32: Expected `array`, got `int`"),
        ([1, [2], 3, 4], [1, 4], "FP32", r"no FP32: Expected `float \| null`, got `array`"),
        (5, [1, 1], "FP32", "no list"),
        (None, [1, 1], "FP32", "no list"),
        ({"a": 1}, [1, 1], "FP32", "no list"),
        (["1.5"], [1, 1], "FP32", r"no FP32: .*got `str` - at `\$\[0\]`; .* without quotes"),
        ([True], [1, 1], "FP32", "no FP32: .*got `bool`"),
        ([1], [1, 1], "BOOL", "no BOOL: .*got `int`"),
        ([1], [1, 1], "BYTES", "no BYTES: .*got `int`"),
        ([1.5], [1, 1], "INT32", "no INT32: .*got `float`"),
        ([0, 300], [1, 2], "INT8", "holds 300 as value 1 .* INT8, .* from -128 to 127"),
        ([-1, None], [1, 2], "UINT64", "holds -1 as value 0 .* UINT64"),
        ([2**63], [1, 1], "INT64", "holds 9223372036854775808 .* INT64"),
        ([1e39], [1, 1], "FP32", r"holds 1e\+39 .* FP32"),
        ([65520], [1, 1], "FP16", r"holds 65520.0 .* FP16"),
        ([1], [1, 1], "BF16", "'input' has datatype 'BF16'.*send it as FP32"),
        ([1], [1, 1], "fp32", "'input' has datatype 'fp32'.*known: BOOL"),
        ([1], [-1, 4], "FP32", r"'input' has shape \[-1, 4\]"),
        ([1], [], "FP32", r"'input' has shape \[\]"),
        ([1], [1] * 9, "FP32", r"'input' has shape .*1 to 8 lengths"),
        ([1], [2**62, 2**62], "FP32", "larger than any array"),
        ([1], [10**30], "FP32", "larger than any array"),
    ],
)
def test_data_that_do_not_fit_are_refused_by_name(
    data: Any, shape: list[int], datatype: str, words: str
) -> None:
    with pytest.raises(InvalidRequestError, match=words) as caught:
        read(data, shape, datatype)
    assert "input 'input'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b'{"inputs": [', "truncated"),
        (b"[1]", "Expected `object`"),
        (b"null", "Expected `object`"),
        (b"{}", "missing required field `inputs`"),
        (b'{"inputs": [{"name": "age"}]}', r"field `shape` - at `\$.inputs\[0\]` .input 'age'"),
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
        (body_of(one("NaN,1e400,3,4")).encode(), "'1e400', beyond the largest number"),
        (body_of(one("NaN,-1e39,3,4")).encode(), "'input' holds -1e.39 as value 1"),
        (body_of(one('NaN,"2",3,4')).encode(), "'input' .*without quotes"),
        (body_of(one("NaN,2,3")).encode(), "'input' has 3 values in its data"),
        (body_of(one("[[NaN,2],[3]]")).encode(), "nested 3 deep"),
        (body_of(one("NaN"), more='"inputs":[],').encode(), "'inputs' twice"),
        (body_of(one("NaN", name='"a","name":"b"')).encode(), "'name' twice"),
        (body_of(one("NaN", name='"\\ud800"')).encode(), "surrogates"),
        (body_of(one("NaN"), more='"other":' + "[" * 100_000 + ",").encode(), "nested too deep"),
        (body_of(one("NaN"), more='"id":7,').encode(), r"Expected `str.*\$.id"),
        (body_of(one("NaN"), more='"id":"é",').encode("latin-1"), "not UTF-8"),
        (b"[NaN]", "Expected `object`"),
        (b'{"inputs":[NaN]}', r"got `null` - at `\$.inputs\[0\]`"),
        (b'{"inputs":[{"name":"a","shape":[NaN],"datatype":"FP32"}]}', "Expected `int`.*'a'"),
        (body_of(one("1,1e400,3,4")).encode(), r"'input' .*out of range - at `\$\[1\]`"),
        (body_of(one("9" * 5000 + ",2,3,4")).encode(), "'input' .*out of range"),
        (body_of(one("1,02,3,4")).encode(), "invalid number"),
        (body_of(one(), more='"inputs":[],').encode(), "'inputs' twice"),
        (body_of(one(), more='"inp\\u0075ts":[],"id":null,').encode(), "'inputs' twice"),
        (body_of(one(name='"a","name":"b"')).encode(), "'name' twice"),
        (body_of(one(name='"a","data":[0]')).encode(), "'data' twice"),
        (body_of(one(), more='"parameters":{"a":1,"a":2},').encode(), "'a' twice"),
        (body_of(one(), one()).encode(), "an input is given twice"),
        (body_of(one(), more='"parameters":{"a":[1]},').encode(), "Expected `bool"),
        (body_of(one(), more='"parameters":{"binary_data_output":1},').encode(), "true or false"),
        (b'{"inputs":[{"name":"a","shape":[1],"datatype":"FP32"}]}', "'a' has no data"),
        (b'{"inputs":[{"name":"a","shape":[1.5],"datatype":"FP32"}]}', "Expected `int`.*'a'"),
        (b'{"inputs":[{"name":"a","shape":"4","datatype":"FP32"}]}', "Expected `array`.*'a'"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,
)
def test_bodies_that_are_no_requests_are_refused_in_words(
    service: Service, text: bytes, words: str
) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        tensors_of(*read_request(text))
    answer = asked(service, text)
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([("agee", "FP32", [1.0])], "no input 'agee'; did you mean 'age'"),
        ([("inputs", "FP32", [1.0])], "no input 'inputs'; did you mean 'input'?"),
        ([("x", "FP32", [1.0])], "there are: 'input', 'age', 'town', 'member'"),
        ([("age", "FP32", [1.0])], "input 'town' is not among"),
        (
            [("age", "FP32", [1.0]), ("town", "BYTES", ["Ulm", "Ulm"]), ("member", "BOOL", [True])],
            "'town' has 2 rows but 'age' has 1",
        ),
        (
            [("age", "BYTES", ["old"]), ("town", "BYTES", ["Ulm"]), ("member", "BOOL", [True])],
            "'age' is numeric but row 0 .* holds 'old'",
        ),
    ],
)
def test_columns_that_do_not_fit_the_model_are_refused_by_name(
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


def test_codes_that_are_none_are_missing_values(service: Service) -> None:
    wanted = asked(service, of_data([40.0, None, None], [1, 3]), "mixed").json()["outputs"]
    for code in (7.0, -1.0, 0.5, 1e30, -3.4e38, 2.0**31, 2.0**63):
        row = of_data([40.0, code, code], [1, 3])
        many = of_data([40.0, code, code] * 300, [300, 3])
        assert asked(service, row, "mixed").json()["outputs"] == wanted
        assert asked(service, many, "mixed").json()["outputs"][1]["data"][:2] == wanted[1]["data"]


# -------------------------------------------------------------------------- bounds


def test_names_twice_are_found_without_decoding_very_many_cells_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells, decoded, loads = "1,null," * 50_000, [], json.loads

    def seen(text: bytes, **options: Any) -> Any:
        decoded.append(len(text))
        return loads(text, **options)

    monkeypatch.setattr("treekit.serve.protocol.messages.json.loads", seen)
    rest = f'"inputs":[{{"name":"x","data":[{cells}1]}}]}}'
    refuse_repeats(f'{{"a:[1]":1,{rest}'.encode())
    assert max(decoded) < 100
    refuse_repeats(f'{{"a:[1]":1,"a:[2]":2,{rest}'.encode())  # differ in brackets alone
    with pytest.raises(InvalidRequestError, match="'id' twice"):
        refuse_repeats(f'{{"id":"a","id":"b",{rest}'.encode())


def test_shapes_that_claim_much_take_no_memory() -> None:
    for shape in ([10**9, 28], [1, 10**12], [2**31, 2**31, 2], [3, 10**15]):
        for datatype in ("FP32", "BYTES", "INT8"):
            tracemalloc.start()
            with pytest.raises(InvalidRequestError, match=r"values|lists|larger than any array"):
                read([], shape, datatype)
            assert tracemalloc.get_traced_memory()[1] < 300_000
            tracemalloc.stop()


def test_more_rows_than_the_limit_are_refused_before_they_are_read() -> None:
    request, rest = read_request(json.dumps(of_data([1, 2], [11, 28])).encode())
    with pytest.raises(TooLargeError, match=r"'input' has shape \[11, 28\]; .* 10 rows"):
        tensors_of(request, rest, 10)


def test_long_names_make_short_errors_soon(service: Service) -> None:
    for name in ("x" * 500_000, '"' * 200_000, "é" * 100_000):
        body = of_data([1], [1])
        body["inputs"][0]["name"] = name
        begun = time.perf_counter()
        answer = asked(service, body)
        assert answer.status_code == 400
        assert len(answer.content) < 13_000
        assert time.perf_counter() - begun < 2


@pytest.mark.parametrize("rows", [1, 100, 2_000])
def test_reading_costs_no_python_a_cell(rows: int) -> None:
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
    assert fastest(lambda: tensors_of(*read_request(body))) < 2 * alone + 200e-6


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


@pytest.mark.parametrize(
    ("coding", "body", "status", "words"),
    [
        ("br", b"x", 415, "Content-Encoding 'br'; .* gzip and deflate"),
        ("gzip, gzip", b"x", 415, "'gzip, gzip'"),
        ("gzip", b"plain", 400, "not gzip"),
        ("gzip", gzip.compress(b"{}" * 50, mtime=0)[:-5], 400, "ends before its gzip"),
        ("gzip", gzip.compress(b"{}", mtime=0) * 2, 400, "goes on after the end"),
        (
            "gzip",
            gzip.compress(b" " * (1 << 20) + b"{}", mtime=0),
            413,
            "1,048,576 bytes when inflated",
        ),
        ("deflate", zlib.compress(b"\0" * (80 << 20)), 413, "when inflated"),
    ],
)
def test_what_does_not_inflate_within_the_bound_is_refused(
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


def test_paths_and_methods_that_are_not_there_are_json(service: Service, tmp_path: Path) -> None:
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


def test_a_fault_of_the_server_is_json_and_tells_nothing(
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
    assert "its log says why" in answer.json()["error"]
    assert "secret" not in answer.text


def test_rows_of_numbers_are_answered_as_the_model_does(service: Service) -> None:
    rows = np.column_stack([column[:50] for column in numbers().values()])
    label, shares = asked(service, of_data(rows.tolist(), [50, 4])).json()["outputs"]
    assert label["data"] == models()["texts"].predict(rows).tolist()
    assert np.array(shares["data"]).tobytes() == models()["texts"].predict_proba(rows).tobytes()


def test_plain_requests_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second, slow look for repeated names is for requests that may have some."""

    def slow(body: bytes) -> None:
        raise AssertionError(body)

    monkeypatch.setattr("treekit.serve.protocol.messages.refuse_repeats", slow)
    cells: dict[str, Any] = {"BOOL": True, "BYTES": "Ulm"}
    for datatype in DATATYPES:
        body = of_data([cells.get(datatype, 1), None], [2], datatype)
        for more in (
            {},
            {"id": "7", "parameters": {"a": "b", "binary_data_output": True}},
            {"outputs": [{"name": "a"}, {"name": "b", "parameters": {"binary_data": False}}]},
        ):
            read(json.dumps(body | more).encode(), [2])
