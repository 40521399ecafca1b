"""The gRPC server with tritonclient, with messages made by hand, and with malicious ones."""

from __future__ import annotations

import asyncio
import csv
import importlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from click.testing import CliRunner
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import treekit
from tests.serving import on_a_port, put_in_service, service_of
from tests.serving_gate import ask
from tests.serving_rpc import (
    LOOP,
    app_server,
    certificate,
    event_loop,
    grpc_server,
    scripted_server,
)
from treekit.cli import main
from treekit.errors import MissingExtraError, SettingError
from treekit.serve import client as remote
from treekit.serve.cancellation import check_cancelled
from treekit.serve.client import Client
from treekit.serve.errors import RemoteError, TooLargeError, UnauthorisedError
from treekit.serve.grpc import start_grpc
from treekit.serve.grpc.messages import (
    DESCRIPTION_FILE,
    SERVICE_NAME,
    check_fields,
    decode_tensors,
    get_message_class,
    get_method_classes,
)
from treekit.serve.http.app import make_app
from treekit.serve.models.served_model import Served
from treekit.serve.models.tensors import DATATYPES, Tensor, TensorSpec
from treekit.serve.settings import ServeSettings, read_token

pytestmark = pytest.mark.matrix

# ---------------------------------------------------------------- serve rpc

ROWS = 40
CODES = ("INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED")


class Echo(Served):
    """Gives back what it is given, or what the test puts in the place of `say`."""

    name, version, digest, platform = "echo", "7", "0" * 64, "test"
    inputs = outputs = tuple(TensorSpec(f"of {name}", name, (-1,)) for name in DATATYPES)
    default_outputs = ()
    n_features = 2
    visits_per_row = 1e9  # answers in a thread

    def __init__(self) -> None:
        """Read no file."""

    def parse_inputs(self, tensors: Sequence[Tensor], absent: str = "error") -> Any:
        self.given = list(tensors)
        return tensors[0].cells

    def compute_outputs(self, batch: Any, wanted: Sequence[str]) -> list[Tensor]:
        return self.say(self.given)

    say = staticmethod(lambda given: given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of every kind of answer."""
    place = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    numbers = {name: rng.normal(size=ROWS).round(2) for name in "abc"}
    words = rng.choice(["oak", "elm", "行"], ROWS).tolist()
    high = numbers["a"] > 0.1
    targets = {
        "text": np.where(high, "yes, 'so'", "naïve"),
        "whole": np.where(high, 7, -1),
        "real": np.where(high, 0.5, 1e-300),
        "bool": high,
        "number": numbers["a"] * 3 + numbers["b"],
    }
    for name, target in targets.items():
        table = {**numbers, "y": target}
        settings = {"task": "regression"} if name == "number" else {"task": "classification"}
        treekit.train(table, "y", seed=1, **settings).save(place / f"{name}.treekit")
    mixed = {"n": numbers["a"], "kind of tree": words, "y": targets["text"]}
    treekit.train(mixed, "y", ensemble="forest", trees=11, seed=1).save(place / "mixed.treekit")
    return place


@pytest.fixture(scope="module")
def rows(folder: Path) -> Any:
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(ROWS, 3)).round(2).astype(np.float32)
    matrix[3, 1], matrix[4, 0], matrix[5, 2] = np.nan, np.inf, -np.inf
    return matrix


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[SimpleNamespace]:
    """One server over HTTP and gRPC, of one service; with `echo` beside its models."""
    service = service_of(folder)
    echo = Echo()
    put_in_service(service.repository, *service.repository.served, echo)
    with (
        on_a_port(service) as http,
        grpc_server(service) as port,
        triton.InferenceServerClient(f"127.0.0.1:{port}") as client,
    ):
        address = f"127.0.0.1:{port}"
        yield SimpleNamespace(
            service=service, echo=echo, http=http, port=port, client=client, address=address
        )


def given(name: str, cells: Any, datatype: str | None = None) -> Any:
    tensor = triton.InferInput(name, cells.shape, datatype or np_to_triton_dtype(cells.dtype))
    tensor.set_data_from_numpy(cells)
    return tensor


def call(address: str, name: str, data: bytes, **options: Any) -> Any:
    """The answer to a message of whatever bytes, over a channel of its own."""
    with grpc.insecure_channel(address) as channel:
        method = channel.unary_unary(
            f"/{SERVICE_NAME}/{name}",
            response_deserializer=get_method_classes()[name][1].FromString,
        )
        return method(data, timeout=10, **options)


def refused(work: Any, *arguments: Any, **options: Any) -> tuple[str, str]:
    """The code and the message of an error."""
    with pytest.raises((grpc.RpcError, InferenceServerException)) as found:
        work(*arguments, **options)
    error = found.value
    if isinstance(error, InferenceServerException):
        return error.status().removeprefix("StatusCode."), error.message()
    return error.code().name, error.details()


def request_of(model: str = "echo", **fields: Any) -> Any:
    return get_message_class("ModelInferRequest")(model_name=model, **fields)


# ------------------------------------------------------------------ the description


def test_stored_descriptor_equals_the_compiled_proto(tmp_path: Path):
    from grpc_tools import protoc

    source, out = DESCRIPTION_FILE.with_suffix(".proto"), tmp_path / "inference.binpb"
    given = ["protoc", f"-I{source.parent}", f"--descriptor_set_out={out}", source.name]
    assert protoc.main(given) == 0
    compiled, included = (
        FileDescriptorSet.FromString(path.read_bytes()) for path in (out, DESCRIPTION_FILE)
    )
    assert compiled == included


def _forget_json(found: Any) -> None:
    """Drop the fields' names in JSON, which generated modules leave out."""
    for field in found.field:
        field.ClearField("json_name")
    for nested in found.nested_type:
        _forget_json(nested)


def _forget_oneofs(*messages: Any) -> None:
    """Drop the number of the group of alternatives of each field."""
    for message in messages:
        for field in message.field:
            field.ClearField("oneof_index")


def test_messages_have_the_wire_format_of_tritonclient():
    theirs, ours = (
        FileDescriptorProto(),
        FileDescriptorSet.FromString(DESCRIPTION_FILE.read_bytes()).file[0],
    )
    service_pb2.DESCRIPTOR.CopyToProto(theirs)
    configs = FileDescriptorProto()
    model_config_pb2.DESCRIPTOR.CopyToProto(configs)
    known = {found.name: found for found in (*theirs.message_type, *configs.message_type)}
    assert len(ours.message_type) == 34
    for found in ours.message_type:
        _forget_json(found)
        if found.name.startswith(("Model", "Infer", "Statistic")) and found != known[found.name]:
            _forget_oneofs(found, known[found.name])
            fields = {field.name: field for field in known[found.name].field}
            assert all(field == fields[field.name] for field in found.field)
        else:
            assert found == known[found.name]
    (enum,) = ours.enum_type
    assert enum == next(own for own in configs.enum_type if own.name == "DataType")
    (service,) = ours.service
    calls = {method.name: method for method in theirs.service[0].method}
    assert [(m.input_type, m.output_type) for m in service.method] == [
        (calls[m.name].input_type, calls[m.name].output_type) for m in service.method
    ]
    assert get_message_class("ModelInferRequest") is not service_pb2.ModelInferRequest


# --------------------------------------------------------------- health and metadata


def test_tritonclient_reads_health_and_metadata(server: SimpleNamespace):
    client = server.client
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("whole")
    assert not client.is_model_ready("nobody")
    assert not client.is_model_ready("whole", "1")
    told = client.get_server_metadata()
    assert (told.name, told.version) == ("treekit", treekit.__version__)
    model = client.get_model_metadata("mixed")
    served = server.service.repository.get("mixed")
    assert (model.name, model.platform, list(model.versions)) == (
        "mixed",
        "treekit",
        [served.version],
    )
    for theirs, specs in ((model.inputs, served.inputs), (model.outputs, served.outputs)):
        assert [(t.name, t.datatype, tuple(t.shape)) for t in theirs] == list(map(tuple, specs))
    assert client.get_model_metadata("mixed", served.version) == model


def test_closing_server_is_live_and_not_ready(folder: Path):
    service = service_of(folder / "whole.treekit")
    service.closing = True
    with grpc_server(service) as port, triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        assert client.is_server_live()
        assert not client.is_server_ready()


def test_tritonclient_reads_configuration_and_statistics(folder: Path):
    service = service_of(folder / "mixed.treekit", folder / "number.treekit")
    make_app(service)  # its metrics count
    with grpc_server(service) as port, triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        config = client.get_model_config("mixed").config
        assert (config.name, config.max_batch_size) == ("mixed", service.limits.rows)
        assert [own.name for own in config.input] == ["n", "kind of tree"]
        assert [model_config_pb2.DataType.Name(own.data_type) for own in config.input] == [
            "TYPE_FP32",
            "TYPE_STRING",
        ]
        assert [list(own.dims) for own in config.output][:2] == [[1], [2]]
        assert config.output[0].HasField("reshape")
        assert not config.output[1].HasField("reshape")
        assert config.version_policy.WhichOneof("policy_choice") == "all"
        [told] = client.get_inference_statistics("mixed").model_stats
        assert (told.name, told.inference_count) == ("mixed", 0)
        every = client.get_inference_statistics().model_stats
        assert [own.name for own in every] == ["mixed", "number"]
        with pytest.raises(InferenceServerException, match="there is no model 'mixd'"):
            client.get_model_config("mixd")


# ------------------------------------------------------------ health and reflection


def health_of(port: int) -> Any:
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    return channel, health_pb2_grpc.HealthStub(channel)


def asked(name: str = "") -> Any:
    return health_pb2.HealthCheckRequest(service=name)


def test_probes_read_the_health_without_a_token(folder: Path):
    def refuse(_: bytes | None) -> None:
        raise UnauthorisedError("give the token")

    service = service_of(folder / "whole.treekit")
    with grpc_server(service, refuse) as port:
        channel, stub = health_of(port)
        with channel:
            for name in ("", SERVICE_NAME):
                assert stub.Check(asked(name), timeout=20).status == 1
            with pytest.raises(grpc.RpcError) as unknown:
                stub.Check(asked("nobody"), timeout=20)
            assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
            assert "'nobody'" in unknown.value.details()
            watch, other = stub.Watch(asked(), timeout=20), stub.Watch(asked("nobody"), timeout=20)
            assert next(watch).status == 1
            assert next(other).status == 3
            service.closing = True
            assert stub.Check(asked(), timeout=20).status == 2
            assert [own.status for own in watch] == [2]
            assert list(other) == []


def test_server_reflection_requires_the_token(folder: Path):
    def check(given: bytes | None) -> None:
        if given != b"Bearer word":
            raise UnauthorisedError("give the token")

    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE_NAME),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="grpc.health.v1.Health"),
    ]
    with (
        grpc_server(service_of(folder / "whole.treekit"), check) as port,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        given = (("authorization", "Bearer word"),)
        listed, *files = call(iter(requests), metadata=given, timeout=20)
        assert {own.name for own in listed.list_services_response.service} == {
            SERVICE_NAME,
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        for found, name in zip(files, ["inference.proto", "health.proto"], strict=True):
            (content,) = found.file_descriptor_response.file_descriptor_proto
            assert FileDescriptorProto.FromString(content).name.endswith(name)
        with pytest.raises(grpc.RpcError) as refused:
            list(call(iter(requests), timeout=20))
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


# ------------------------------------------------------------------------- inference


@pytest.mark.parametrize("name", ["text", "whole", "real", "bool", "number"])
def test_responses_equal_the_model_and_rest_bit_for_bit(
    name: str, server: SimpleNamespace, folder: Path, rows: Any
):
    model = treekit.load(folder / f"{name}.treekit")
    said = server.client.infer(name, [given("input", rows)], request_id="an id")
    assert said.get_response().id == "an id"
    version = server.service.repository.get(name).version
    assert said.get_response().model_version == version
    finite = np.where(np.isinf(rows), 1.5, rows)  # JSON has no infinity
    cells = [None if cell != cell else cell for cell in finite.ravel().tolist()]
    body = {"inputs": [{"name": "input", "datatype": "FP32", "shape": rows.shape, "data": cells}]}
    url = f"http://{server.http}/v2/models/{name}/infer"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=10) as answer:
        rest = {output["name"]: output for output in json.load(answer)["outputs"]}
    twin = server.client.infer(name, [given("input", finite)])
    if name == "number":
        assert said.as_numpy("value").tolist() == model.predict(rows).tolist()
    else:
        labels = said.as_numpy("label")
        labels = [x.decode() for x in labels] if name == "text" else labels.tolist()
        assert labels == model.predict(rows).tolist()
        assert {type(label) for label in labels} == {type(model.schema.classes[0])}
        assert said.as_numpy("probabilities").tobytes() == model.predict_proba(rows).tobytes()
    assert {output.name for output in twin.get_response().outputs} == set(rest)
    for output in twin.get_response().outputs:
        cells = twin.as_numpy(output.name).ravel().tolist()
        cells = [c.decode() if isinstance(c, bytes) else c for c in cells]
        assert cells == rest[output.name]["data"]
        assert (output.datatype, list(output.shape)) == (
            rest[output.name]["datatype"],
            rest[output.name]["shape"],
        )


def test_one_input_per_column_accepts_texts_and_missing_values(
    server: SimpleNamespace, folder: Path
):
    model = treekit.load(folder / "mixed.treekit")
    words = ["oak", "行", "", "beech", "elm", "?"]
    numbers = [0.5, np.nan, -1.0, 2.0, 0.0, 0.1]
    inputs = [
        given("kind of tree", np.array([w.encode() for w in words], dtype=object), "BYTES"),
        given("n", np.array(numbers, dtype=np.float32)),
    ]
    said = server.client.infer("mixed", inputs)
    shares = model.predict_proba({"n": numbers, "kind of tree": words})
    assert said.as_numpy("probabilities").tobytes() == shares.tobytes()
    assert len(np.unique(shares, axis=0)) > 2


def test_requested_outputs_come_in_the_requested_order(server: SimpleNamespace, rows: Any):
    asked = [triton.InferRequestedOutput("leaf"), triton.InferRequestedOutput("label")]
    said = server.client.infer("whole", [given("input", rows)], outputs=asked)
    assert [output.name for output in said.get_response().outputs] == ["leaf", "label"]
    assert said.as_numpy("leaf").dtype == np.int32


def test_unknown_parameters_are_accepted(server: SimpleNamespace, rows: Any):
    said = server.client.infer(
        "whole",
        [given("input", rows)],
        priority=3,
        timeout=10,
        sequence_id=9,
        parameters={"x": "y"},
    )
    assert len(said.as_numpy("label")) == ROWS


def extremes(datatype: str) -> Any:
    """(2, 3) of the largest and least of a type, and whatever is odd in it."""
    dtype = DATATYPES[datatype]
    if datatype == "BYTES":
        cells = np.empty(6, dtype=object)
        cells[:] = ["", "a", "行\0列", "\U0001f333", "x" * 300, "\r\n"]
    elif datatype == "BOOL":
        cells = np.array([True, False, False, True, True, False])
    elif dtype.kind == "f":
        limits = np.finfo(dtype)
        cells = np.array([limits.max, -np.inf, limits.smallest_subnormal, np.nan, -0.0, 1.5], dtype)
    else:
        limits = np.iinfo(dtype)
        cells = np.array([limits.max, limits.min, 0, 1, 2, 3], dtype)
    return cells.reshape(2, 3)


def same(ours: Any, theirs: Any) -> bool:
    if ours.dtype.hasobject:
        return ours.tolist() == theirs.tolist()
    return ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_is_transferred_as_raw_contents(datatype: str, server: SimpleNamespace):
    cells = extremes(datatype)
    sent = cells
    if datatype == "BYTES":
        sent = np.array([x.encode() for x in cells.ravel()], dtype=object).reshape(2, 3)
    said = server.client.infer("echo", [given("x", sent, datatype)])
    (arrived,) = server.echo.given
    assert (arrived.name, arrived.datatype) == ("x", datatype)
    assert same(arrived.cells, cells)
    assert same(said.as_numpy("x"), sent)
    (output,) = said.get_response().outputs
    assert (output.datatype, list(output.shape)) == (datatype, [2, 3])


FIELD = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
TYPED = [datatype for datatype in DATATYPES if datatype != "FP16"]


def typed(name: str, datatype: str, shape: Sequence[int], values: list[Any]) -> dict[str, Any]:
    contents = {FIELD.get(datatype, "fp32_contents"): values}
    return {"name": name, "datatype": datatype, "shape": shape, "contents": contents}


@pytest.mark.parametrize("datatype", TYPED)
def test_every_datatype_is_transferred_in_its_typed_field(datatype: str, server: SimpleNamespace):
    cells = extremes(datatype)
    values = cells.ravel().tolist()
    if datatype == "BYTES":
        values = [value.encode() for value in values]
    request = request_of(id="i", inputs=[typed("x", datatype, [2, 3], values)])
    said = call(server.address, "ModelInfer", request.SerializeToString())
    (arrived,) = server.echo.given
    assert same(arrived.cells, cells)
    (output,) = said.outputs
    assert not said.raw_output_contents
    back = list(getattr(output.contents, FIELD[datatype]))
    assert np.array(back, object).tolist() == values or np.isnan(back).any()
    assert [field.name for field, _ in output.contents.ListFields()] == [FIELD[datatype]]
    assert (said.id, said.model_name, said.model_version) == ("i", "echo", "7")


def test_output_type_without_a_typed_field_makes_the_response_raw(
    server: SimpleNamespace, monkeypatch: Any
):
    half = Tensor("h", "FP16", np.array([1.5, 2], np.float16))
    monkeypatch.setattr(server.echo, "say", lambda given: [*given, half], raising=False)
    request = request_of(inputs=[typed("x", "INT8", [2], [1, -2])])
    said = call(server.address, "ModelInfer", request.SerializeToString())
    assert list(said.raw_output_contents) == [b"\x01\xfe", half.cells.tobytes()]
    assert not any(output.HasField("contents") for output in said.outputs)


def test_large_requests_are_decoded_in_a_worker_thread(server: SimpleNamespace, monkeypatch: Any):
    names = []

    def noted(*arguments: Any) -> Any:
        names.append(threading.current_thread().name)
        return decode_tensors(*arguments)

    monkeypatch.setattr("treekit.serve.grpc.server.decode_tensors", noted)
    for rows in (10, 20_000):
        words = np.array([f"w{i}".encode() for i in range(rows)], dtype=object)
        said = server.client.infer("echo", [given("x", words, "BYTES")])
        assert said.as_numpy("x").tolist() == words.tolist()
    assert names[0] == LOOP
    assert names[1] != LOOP


def test_requests_may_be_compressed(server: SimpleNamespace, rows: Any):
    plain = server.client.infer("whole", [given("input", rows)])
    packed = server.client.infer("whole", [given("input", rows)], compression_algorithm="gzip")
    assert packed.as_numpy("label").tolist() == plain.as_numpy("label").tolist()


# ----------------------------------------------------------------------- what is refused


def test_unknown_names_are_refused_with_suggestions(server: SimpleNamespace, rows: Any):
    client, inputs = server.client, [given("input", rows)]
    assert refused(client.infer, "wole", inputs) == (
        "NOT_FOUND",
        "there is no model 'wole'; did you mean 'whole'?",
    )
    assert refused(client.get_model_metadata, "nobody")[0] == "NOT_FOUND"
    code, text = refused(client.infer, "whole", inputs, model_version="3")
    assert code == "NOT_FOUND"
    assert "has no version '3'" in text
    code, text = refused(client.infer, "whole", [given("inputs", rows)])
    assert code == "INVALID_ARGUMENT"
    assert "no input 'inputs'" in text
    asked = [triton.InferRequestedOutput("lable")]
    code, text = refused(client.infer, "whole", inputs, outputs=asked)
    assert (code, "no output 'lable'" in text) == ("INVALID_ARGUMENT", True)


def test_an_error_has_the_same_text_as_over_rest(server: SimpleNamespace, rows: Any):
    body = {"inputs": [{"name": "in", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
    url = f"http://{server.http}/v2/models/whole/infer"
    with pytest.raises(urllib.error.HTTPError) as found:
        urllib.request.urlopen(url, json.dumps(body).encode(), timeout=10)
    with found.value as answer:
        text = json.load(answer)["error"]
    assert refused(server.client.infer, "whole", [given("in", rows[:1, :1])]) == (
        "INVALID_ARGUMENT",
        text,
    )


def raw(name: str, datatype: str, shape: Sequence[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


def text_bytes(*elements: bytes) -> bytes:
    return b"".join(len(element).to_bytes(4, "little") + element for element in elements)


HOSTILE = {
    "too few bytes": (
        {"inputs": [raw("x", "FP32", [3])], "raw_input_contents": [b"12345678"]},
        "12",
    ),
    "too many bytes": (
        {"inputs": [raw("x", "INT8", [1])], "raw_input_contents": [b"12"]},
        "requires 1",
    ),
    "a huge shape": (
        {"inputs": [raw("x", "FP64", [9, 2**20, 2**20])], "raw_input_contents": [b""]},
        "requires 79,164,837,199,872",
    ),
    "a huge empty shape": (
        {"inputs": [raw("x", "FP64", [0, 2**62])], "raw_input_contents": [b""]},
        "too large for an array",
    ),
    "a huge shape of texts": (
        {"inputs": [raw("x", "BYTES", [9, 2**40])], "raw_input_contents": [b""]},
        "not 9,895,604,649,984 elements of BYTES",
    ),
    "a huge shape of values": ({"inputs": [typed("x", "BOOL", [9, 2**40], [True])]}, "1 values"),
    "a negative length": (
        {"inputs": [raw("x", "BOOL", [-1])], "raw_input_contents": [b""]},
        "negative",
    ),
    "no shape": ({"inputs": [typed("x", "INT8", [], [1])]}, "1 to 8 lengths"),
    "a shape without end": ({"inputs": [typed("x", "INT8", [9] * 100_000, [1])]}, "1 to 8 lengths"),
    "too many rows": ({"inputs": [typed("x", "INT8", [2**50], [1])]}, "100,000 rows at once"),
    "an unknown datatype": (
        {"inputs": [raw("x", "BF16", [1])], "raw_input_contents": [b"12"]},
        "'BF16'",
    ),
    "no datatype": ({"inputs": [typed("x", "", [1], [1])]}, "''"),
    "a BOOL of two": (
        {"inputs": [raw("x", "BOOL", [2])], "raw_input_contents": [b"\1\2"]},
        "0 or 1",
    ),
    "a text beyond the end": (
        {
            "inputs": [raw("x", "BYTES", [2])],
            "raw_input_contents": [text_bytes(b"a") + b"\xff" * 4],
        },
        "not 2 elements",
    ),
    "texts that end early": (
        {"inputs": [raw("x", "BYTES", [1])], "raw_input_contents": [text_bytes(b"a", b"b")]},
        "not 1 elements",
    ),
    "a text that is none": (
        {"inputs": [raw("x", "BYTES", [1])], "raw_input_contents": [text_bytes(b"\xff")]},
        "not UTF-8",
    ),
    "a typed text that is none": ({"inputs": [typed("x", "BYTES", [1], [b"\xc3"])]}, "not UTF-8"),
    "raw and typed": (
        {"inputs": [typed("x", "INT8", [1], [1])], "raw_input_contents": [b"1"]},
        "both contents and raw_input_contents",
    ),
    "raw for some": (
        {"inputs": [raw("x", "INT8", [1]), raw("y", "INT8", [1])], "raw_input_contents": [b"1"]},
        "1 tensors for 2",
    ),
    "another type's field": (
        {"inputs": [raw("x", "FP64", [1]) | {"contents": {"fp32_contents": [1]}}]},
        "fp64_contents",
    ),
    "half typed": ({"inputs": [typed("x", "FP16", [1], [1])]}, "raw_input_contents"),
    "a value beyond its type": (
        {"inputs": [typed("x", "INT8", [2], [1, 128])]},
        "values from 1 to 128, out",
    ),
    "an unsigned value beyond": (
        {"inputs": [typed("x", "UINT16", [1], [65536])]},
        "to 65536, out",
    ),
    "no values": ({"inputs": [raw("x", "FP32", [3])]}, "0 values"),
    "shared memory": (
        {
            "inputs": [
                raw("x", "INT8", [1])
                | {"parameters": {"shared_memory_region": {"string_param": "r"}}}
            ]
        },
        "'shared_memory_region'",
    ),
    "classification": (
        {
            "inputs": [typed("x", "INT8", [1], [1])],
            "outputs": [{"name": "of INT8", "parameters": {"classification": {"int64_param": 2}}}],
        },
        "'classification'",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_malicious_tensors_are_refused_with_their_name(case: str, server: SimpleNamespace):
    fields, text = HOSTILE[case]
    data = request_of(**fields).SerializeToString()
    code, said = refused(call, server.address, "ModelInfer", data)
    assert (code, text in said) == (
        "RESOURCE_EXHAUSTED" if case == "too many rows" else "INVALID_ARGUMENT",
        True,
    ), said


def test_bytes_that_are_not_a_message_are_refused(server: SimpleNamespace, rows: Any):
    good = request_of(inputs=[typed("x", "INT8", [1], [1])]).SerializeToString()
    deep = b"".join(b"\x2a" + bytes([n]) for n in range(120, 0, -2))
    for data in (b"\xff" * 9, good[:-1], b"\x0a\x01\xff", b"\x0a\xff\xff\xff\xff\x0f", deep):
        code, said = refused(call, server.address, "ModelInfer", data)
        assert (code, "not a ModelInferRequest" in said) == ("INVALID_ARGUMENT", True)
    assert call(server.address, "ModelInfer", good).model_name == "echo"


def test_server_works_after_a_thousand_mutated_requests(server: SimpleNamespace, rows: Any):
    rng = np.random.default_rng(5)
    inputs = [typed("n", "FP32", [1], [1]), typed("kind of tree", "BYTES", [1], [b"oak"])]
    cells = {"inputs": [raw("input", "FP32", [2, 3])], "raw_input_contents": [rows[:2].tobytes()]}
    seeds = [request_of("whole", **cells), request_of("mixed", inputs=inputs)]
    codes: dict[str, int] = {}
    with grpc.insecure_channel(server.address) as channel:
        method = channel.unary_unary(f"/{SERVICE_NAME}/ModelInfer")
        for number in range(1000):
            data = bytearray(seeds[number % 2].SerializeToString())
            for place in rng.integers(0, len(data), rng.integers(1, 4)):
                data[place] = rng.integers(0, 256)
            try:
                method(bytes(data), timeout=10)
                code = "OK"
            except grpc.RpcError as error:
                code = error.code().name
            codes[code] = codes.get(code, 0) + 1
    assert set(codes) <= {"OK", *CODES}, codes
    assert codes["OK"] > 50
    assert codes["INVALID_ARGUMENT"] > 200
    model = server.service.repository.get("whole").model
    said = server.client.infer("whole", [given("input", rows)])
    assert said.as_numpy("label").tolist() == model.predict(rows).tolist()


def test_calls_with_no_or_two_messages_or_an_unknown_method_fail(
    server: SimpleNamespace,
):
    with grpc.insecure_channel(server.address) as channel:
        stream = channel.stream_stream(f"/{SERVICE_NAME}/ServerLive")
        with pytest.raises(grpc.RpcError) as found:
            list(stream(iter([]), timeout=10))
        assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert list(stream(iter([b"", b"", b""]), timeout=10)) == [b"\x08\x01"]
        with pytest.raises(grpc.RpcError) as found:
            channel.unary_unary(f"/{SERVICE_NAME}/TraceSetting")(b"", timeout=10)
        assert found.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_long_error_message_is_truncated_to_fit_a_trailer(server: SimpleNamespace):
    request = request_of("行" * 40_000, inputs=[typed("x", "INT8", [1], [1])])
    code, text = refused(call, server.address, "ModelInfer", request.SerializeToString())
    assert code == "NOT_FOUND"
    assert text.startswith("there is no model '行行")
    assert text.endswith(" ...")


def test_an_unexpected_error_returns_only_its_id(
    server: SimpleNamespace, monkeypatch: Any, caplog: pytest.LogCaptureFixture
):
    def broken(given: Any) -> Any:
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr(server.echo, "say", broken, raising=False)
    data = request_of(inputs=[typed("x", "INT8", [1], [1])]).SerializeToString()
    code, text = refused(call, server.address, "ModelInfer", data)
    assert code == "INTERNAL"
    assert "secret" not in text
    (number,) = re.findall(r"request id (\w{16})$", text)
    assert number in caplog.text
    assert "the secret of the house" in caplog.text


def test_each_call_is_in_metrics_and_logs(folder: Path, rows: Any):
    service = service_of(folder / "whole.treekit")
    calls: list[Any] = []
    with grpc_server(service, note=calls.append) as port:
        address = f"127.0.0.1:{port}"
        with triton.InferenceServerClient(address) as client:
            client.infer("whole", [given("input", rows)])
            client.is_server_live()
        refused(
            call,
            address,
            "ModelMetadata",
            get_message_class("ModelMetadataRequest")(name="x").SerializeToString(),
        )
    version = service.repository.get().version
    assert [(c.path, c.status, c.model, c.version, c.rows) for c in calls] == [
        ("ModelInfer", 200, "whole", version, ROWS),
        ("ServerLive", 200, "", "", 0),
        ("ModelMetadata", 404, "", "", 0),
    ]
    assert calls[2].error.startswith("there is no model 'x'")
    assert all(0 < c.seconds < 5 and "127.0.0.1" in c.client for c in calls)
    assert len({c.id for c in calls}) == 3


# ------------------------------------------------------------------------------ bounds


def test_messages_beyond_the_limits_are_refused(folder: Path, rows: Any):
    service = service_of(folder / "whole.treekit", rows=10, body_bytes=4096)
    with grpc_server(service) as port, triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        code, text = refused(client.infer, "whole", [given("input", rows[:11])])
        assert (code, "10 rows at once: send them in parts" in text) == ("RESOURCE_EXHAUSTED", True)
        large = np.zeros((1, 6000), np.float32)
        for packed in (None, "gzip"):  # a few bytes may become very many
            options = {"compression_algorithm": packed}
            assert refused(client.infer, "whole", [given("input", large)], **options)[0] == (
                "RESOURCE_EXHAUSTED"
            )
        assert len(client.infer("whole", [given("input", rows[:10])]).as_numpy("label")) == 10


EMPTY = typed("x", "FP32", [0], [])
MANY = {
    "inputs": {"inputs": [EMPTY] * 10_000},
    "few inputs": {"inputs": [EMPTY] * 100},
    "outputs": {"inputs": [EMPTY], "outputs": [{"name": "label"}] * 10_000},
    "few outputs": {"inputs": [EMPTY], "outputs": [{"name": "label"}] * 100},
    "contents": {"inputs": [EMPTY], "raw_input_contents": [b""] * 100_000},
    "parameters": {"inputs": [EMPTY], "parameters": {f"{n:05}": {} for n in range(9_000)}},
}


@pytest.mark.parametrize("case", MANY)
def test_too_many_inputs_or_outputs_are_refused_before_decoding(
    case: str, server: SimpleNamespace, monkeypatch: Any
):
    monkeypatch.setattr("treekit.serve.grpc.server.decode_tensors", lambda *_: pytest.fail("read"))
    data = request_of("whole", **MANY[case]).SerializeToString()
    code, text = refused(call, server.address, "ModelInfer", data)
    what = "fields" if len(data) > 1 << 16 else f"the request .* 100 {case.split()[1]}"
    assert (code, bool(re.search(what, text))) == ("RESOURCE_EXHAUSTED", True), text


def test_fields_are_counted_without_contents_and_skipping_unknown_ones():
    tensor = typed("x", "INT8", [1, 2], [7] * 50)  # name, type, packed shape, contents
    tensor |= {"parameters": {"k": {"bool_param": True}}}
    message = request_of(id="i", inputs=[tensor] * 3, outputs=[{"name": "y"}], model_version="")
    message.raw_input_contents.extend([bytes([42] * 300)] * 2)  # of bytes that look like inputs
    data = message.SerializeToString()
    unknown = b"\xf8\x07\x01" + b"\xfd\x07abcd" + b"\xf9\x07abcdefgh" + b"\xfb\x07\x08\x01\xfc\x07"
    assert get_message_class("ModelInferRequest").FromString(data + unknown).id == "i"
    count = 2 + 3 * (1 + 5) + (1 + 1) + 2 + 3 + 3
    check_fields(data + unknown, count)
    with pytest.raises(TooLargeError, match=f"more than {count - 1} fields"):
        check_fields(data + unknown, count - 1)


@pytest.mark.parametrize(
    "end", [b"\x2a", b"\x2a\xff", b"\x2a\xff\xff\xff\xff\x0f", b"\xff" * 9, b"\x0d"]
)
def test_counting_fields_stops_at_invalid_bytes(end: bytes):
    check_fields(ONE + end, 20)
    check_fields(end, 20)


@pytest.fixture
def slow(request: pytest.FixtureRequest, folder: Path) -> Iterator[SimpleNamespace]:
    """A service whose echo answers when `go` is set; its parameter: the limit of seconds."""
    seconds = getattr(request, "param", 10)
    service = service_of(folder / "whole.treekit", requests=2, seconds=seconds)
    echo, go, started = Echo(), threading.Event(), threading.Semaphore(0)

    def say(given: Any) -> Any:
        started.release()
        assert go.wait(10)
        return given

    echo.say = say  # type: ignore[method-assign]
    put_in_service(service.repository, echo)
    yield SimpleNamespace(service=service, go=go, started=started)
    go.set()


ONE = request_of(inputs=[typed("x", "INT8", [1], [1])]).SerializeToString()


def test_calls_beyond_the_limit_get_retry_after(slow: SimpleNamespace):
    with grpc_server(slow.service) as port, ThreadPoolExecutor(2) as pool:
        address = f"127.0.0.1:{port}"
        works = [pool.submit(call, address, "ModelInfer", ONE) for _ in range(2)]
        for _ in works:
            assert slow.started.acquire(timeout=10)
        code, text = refused(call, address, "ModelInfer", ONE)
        assert (code, "2 requests are in progress" in text) == ("RESOURCE_EXHAUSTED", True)
        assert call(address, "ServerLive", b"").live  # how it is can be asked all the same
        slow.go.set()
        assert [work.result().model_name for work in works] == ["echo", "echo"]
        assert call(address, "ModelInfer", ONE).model_name == "echo"


def test_calls_are_counted_with_the_requests_over_http(slow: SimpleNamespace):
    app = make_app(slow.service, ServeSettings(("-",), log="quiet", limits=slow.service.limits))
    with grpc_server(slow.service) as port, ThreadPoolExecutor(2) as pool:
        works = [pool.submit(call, f"127.0.0.1:{port}", "ModelInfer", ONE) for _ in range(2)]
        for _ in works:
            assert slow.started.acquire(timeout=10)
        refusal = ask(app, "GET", "/v2/models/echo/ready")
        assert (refusal.status_code, "2 requests are" in refusal.text) == (429, True)
        assert "treekit_requests_in_progress 3.0" in ask(app, "GET", "/metrics").text
        slow.go.set()
        assert [work.result().model_name for work in works] == ["echo", "echo"]
        assert ask(app, "GET", "/v2/models/echo/ready").status_code == 200


@pytest.mark.parametrize("slow", [0.2], indirect=True)
def test_slow_prediction_returns_unavailable(slow: SimpleNamespace):
    with grpc_server(slow.service) as port:
        code, text = refused(call, f"127.0.0.1:{port}", "ModelInfer", ONE)
        assert (code, "longer than 0.2 s" in text) == ("UNAVAILABLE", True)


@pytest.mark.parametrize("slow", [0.2], indirect=True)
def test_message_that_does_not_arrive_times_out(slow: SimpleNamespace):
    never = threading.Event()

    def nothing() -> Iterator[bytes]:
        never.wait(20)
        yield ONE

    with grpc_server(slow.service) as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        calls = [
            channel.stream_unary(f"/{SERVICE_NAME}/ModelInfer").future(nothing(), timeout=10)
            for _ in range(2)
        ]
        found = [c.exception() for c in calls]
        never.set()
        assert [error.code().name for error in found] == ["DEADLINE_EXCEEDED"] * 2
        assert "did not arrive within 0.2 s" in found[0].details()
        slow.go.set()
        assert call(f"127.0.0.1:{port}", "ModelInfer", ONE).model_name == "echo"  # places are free


def test_cancelled_call_releases_its_place_in_the_queue(slow: SimpleNamespace):
    with grpc_server(slow.service) as port:
        address = f"127.0.0.1:{port}"
        for _ in range(3):
            with grpc.insecure_channel(address) as channel:
                work = channel.unary_unary(f"/{SERVICE_NAME}/ModelInfer").future(ONE, timeout=10)
                assert slow.started.acquire(timeout=10)
                work.cancel()
            time.sleep(0.1)
            slow.go.set()
        assert call(address, "ModelInfer", ONE).model_name == "echo"


def test_work_of_a_cancelled_call_is_stopped(slow: SimpleNamespace):
    ended = threading.Event()

    def work(given: Any) -> Any:
        slow.started.release()
        try:
            for _ in range(1000):
                check_cancelled()
                time.sleep(0.01)
        finally:
            ended.set()

    slow.service.repository.get("echo").say = work  # type: ignore[attr-defined]
    with grpc_server(slow.service) as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        asked = channel.unary_unary(f"/{SERVICE_NAME}/ModelInfer").future(ONE, timeout=20)
        assert slow.started.acquire(timeout=10)
        asked.cancel()
        assert ended.wait(5)


def test_unread_response_is_released_when_its_connection_ends(folder: Path, monkeypatch: Any):
    monkeypatch.setattr("treekit.serve.grpc.server._MAX_CONNECTION_SECONDS", 1)
    service = service_of(folder / "whole.treekit", requests=1, seconds=0.5)
    put_in_service(service.repository, Echo())
    large = bytes(15 << 20)  # more than a client takes unasked
    shape = [1, len(large)]
    data = request_of(inputs=[raw("x", "UINT8", shape)], raw_input_contents=[large])
    asked = get_message_class("ModelMetadataRequest")(name="echo").SerializeToString()
    calls: list[Any] = []
    with grpc_server(service, note=calls.append) as port:
        address = f"127.0.0.1:{port}"
        with grpc.insecure_channel(address) as channel:
            answers = channel.stream_stream(f"/{SERVICE_NAME}/ModelInfer")(
                iter([data.SerializeToString()])
            )
            time.sleep(0.7)
            assert refused(call, address, "ModelMetadata", asked)[0] == "RESOURCE_EXHAUSTED"
            end = time.monotonic() + 10
            while len(calls) < 2 and time.monotonic() < end:
                time.sleep(0.05)
            assert call(address, "ModelMetadata", asked).name == "echo"
            answers.cancel()
    assert calls[1].rows == 1
    assert 0.5 < calls[1].seconds < 5  # gRPC varies the second by a tenth


# ------------------------------------------------------------------------ who may ask


def test_every_call_but_health_needs_the_token(folder: Path, rows: Any):
    def check(value: bytes | None) -> None:
        if value != b"Bearer of good news":
            raise UnauthorisedError("bring the token")

    service = service_of(folder / "whole.treekit", control=True)
    with grpc_server(service, check) as port:
        address = f"127.0.0.1:{port}"
        assert call(address, "ServerLive", b"").live
        assert call(address, "ServerReady", b"").ready
        for name in set(get_method_classes()) - {"ServerLive", "ServerReady"}:
            for metadata in ((), [("authorization", "Bearer of bad news")]):
                code, text = refused(call, address, name, b"", metadata=metadata)
                assert (code, text) == ("UNAUTHENTICATED", "bring the token")
        with triton.InferenceServerClient(address) as client:
            headers = {"authorization": "Bearer of good news"}
            said = client.infer("whole", [given("input", rows)], headers=headers)
            assert len(said.as_numpy("label")) == ROWS


def test_a_token_file_without_authentication_is_refused_at_startup(folder: Path):
    service = service_of(folder / "whole.treekit")
    with pytest.raises(SettingError, match="token"):
        asyncio.run(start_grpc(service, ServeSettings(("-",), grpc_port=0, token_file="t")))


def test_tls_uses_the_certificate_of_the_settings(folder: Path, rows: Any, tmp_path: Path):
    cert, key = certificate(tmp_path)
    service = service_of(folder / "whole.treekit")
    with grpc_server(service, tls_cert=cert, tls_key=key) as port:
        with triton.InferenceServerClient(
            f"localhost:{port}", ssl=True, root_certificates=cert
        ) as client:
            assert len(client.infer("whole", [given("input", rows)]).as_numpy("label")) == ROWS
        assert refused(call, f"127.0.0.1:{port}", "ServerLive", b"")[0] == "UNAVAILABLE"
    Path(key).write_text("no key", encoding="ascii")
    with (
        pytest.raises(SettingError, match="a key that match"),
        grpc_server(service, tls_cert=cert, tls_key=key),
    ):
        pass


# -------------------------------------------------------------------------- repository


def test_models_are_loaded_and_unloaded_with_control(folder: Path, tmp_path: Path, rows: Any):
    for name in ("whole", "text"):
        (tmp_path / f"{name}.treekit").write_bytes((folder / f"{name}.treekit").read_bytes())
    (tmp_path / "bad.treekit").write_bytes(b"no model")
    service = service_of(tmp_path, control=True)
    inputs = [given("input", rows)]
    with grpc_server(service) as port, triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        index = {model.name: model for model in client.get_model_repository_index().models}
        assert {name: model.state for name, model in index.items()} == {
            "bad": "UNAVAILABLE", "text": "READY", "whole": "READY",
        }  # fmt: skip
        assert "bad.treekit" in index["bad"].reason
        assert index["text"].version == service.repository.get("text").version
        client.unload_model("whole")
        assert not client.is_model_ready("whole")
        assert refused(client.infer, "whole", inputs) == (
            "UNAVAILABLE",
            "model 'whole' is not loaded",
        )
        ready = get_message_class("RepositoryIndexRequest")(ready=True).SerializeToString()
        said = call(f"127.0.0.1:{port}", "RepositoryIndex", ready)
        assert [model.name for model in said.models] == ["text"]
        client.load_model("whole")
        assert len(client.infer("whole", inputs).as_numpy("label")) == ROWS
        assert refused(client.load_model, "bad")[0] == "INVALID_ARGUMENT"
        assert refused(client.load_model, "whale") == (
            "NOT_FOUND",
            "there is no file of a model 'whale'; did you mean 'whole'?",
        )
        assert refused(client.unload_model, "whale")[0] == "NOT_FOUND"
        code, text = refused(client.load_model, "whole", config="{}")
        assert (code, "'config'" in text) == ("INVALID_ARGUMENT", True)
        load = get_message_class("RepositoryModelLoadRequest")(
            repository_name="r", model_name="whole"
        )
        code, text = refused(
            call, f"127.0.0.1:{port}", "RepositoryModelLoad", load.SerializeToString()
        )
        assert (code, "'r'" in text) == ("INVALID_ARGUMENT", True)


def test_loading_and_unloading_is_refused_without_control(server: SimpleNamespace):
    for work in (server.client.load_model, server.client.unload_model):
        code, text = refused(work, "whole")
        assert (code, "--control" in text) == ("PERMISSION_DENIED", True)
    assert server.client.is_model_ready("whole")


# -------------------------------------------------------------------- start and stop


def test_stopping_waits_for_running_calls(slow: SimpleNamespace):
    with event_loop() as run, ThreadPoolExecutor(2) as pool:
        server, port = run(start_grpc(slow.service, ServeSettings(("-",), grpc_port=0)))
        address = f"127.0.0.1:{port}"
        work = pool.submit(call, address, "ModelInfer", ONE)
        assert slow.started.acquire(timeout=10)
        stopping = pool.submit(run, server.stop(5))
        time.sleep(0.05)
        assert not stopping.done()
        assert refused(call, address, "ServerLive", b"")[0] == "UNAVAILABLE"
        slow.go.set()
        assert work.result().model_name == "echo"
        stopping.result(5)


def test_stopping_cancels_calls_after_the_grace_period(slow: SimpleNamespace):
    with event_loop() as run, ThreadPoolExecutor(1) as pool:
        server, port = run(start_grpc(slow.service, ServeSettings(("-",), grpc_port=0)))
        work = pool.submit(call, f"127.0.0.1:{port}", "ModelInfer", ONE)
        assert slow.started.acquire(timeout=10)
        begun = time.monotonic()
        run(server.stop(0.2))
        assert time.monotonic() - begun < 5  # the call would be given up after ten seconds
        with pytest.raises(grpc.RpcError):
            work.result(5)


def test_http_and_grpc_share_an_event_loop_of_uvloop(folder: Path, rows: Any):
    uvicorn, uvloop = pytest.importorskip("uvicorn"), pytest.importorskip("uvloop")
    service = service_of(folder / "whole.treekit")

    def ask(http: int, port: int) -> list[bool]:
        with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
            found = []
            for _ in range(20):
                found.append(
                    len(client.infer("whole", [given("input", rows)]).as_numpy("label")) == ROWS
                )
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{http}/v2/health/live", timeout=10
                ) as r:
                    found.append(r.status == 200)
            return found

    async def both() -> list[bool]:
        assert type(asyncio.get_running_loop()).__module__ == "uvloop"
        config = uvicorn.Config(make_app(service), port=0, log_config=None, lifespan="off")
        http = uvicorn.Server(config)
        serving = asyncio.create_task(http.serve())
        server, port = await start_grpc(service, ServeSettings(("-",), grpc_port=0))
        while not http.started:
            await asyncio.sleep(0.01)
        place = http.servers[0].sockets[0].getsockname()[1]
        found = await asyncio.to_thread(ask, place, port)
        http.should_exit = True
        await serving
        await server.stop(1)
        return found

    assert uvloop.run(both()) == [True] * 40


def test_a_port_in_use_is_reported(server: SimpleNamespace):
    settings = ServeSettings(("-",), grpc_port=server.port)
    with pytest.raises(SettingError, match=f"cannot listen on 127.0.0.1:{server.port}"):
        asyncio.run(start_grpc(server.service, settings))


def test_missing_grpcio_names_the_extra_to_install(monkeypatch: Any):
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "treekit.serve.grpc")
    with pytest.raises(MissingExtraError, match=r"treekit-ml\[grpc\]"):
        importlib.import_module("treekit.serve.grpc")


# ---------------------------------------------------------------- serve rpc client
# ``treekit predict --url``: the same file as without, and one clear line where it cannot be.

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SERVE_RPC_CLIENT_ROWS = 60
WORDS = ("oak", "3", "False", 'no, "really"', "行", "line\nbreak", " blank ")


def table_of(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerows([names, *rows])
    return path


@pytest.fixture(scope="module")
def serve_rpc_client_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of every kind of row and answer."""
    place = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=SERVE_RPC_CLIENT_ROWS), rng.normal(size=SERVE_RPC_CLIENT_ROWS) * 1e9
    words = [WORDS[i] for i in rng.integers(0, len(WORDS), SERVE_RPC_CLIENT_ROWS)]
    high = a + 1e-9 * b > 0
    holes = [None if i % 7 == 0 else w for i, w in enumerate(words)]

    def save(name: str, table: dict[str, Any], target: Any = "y", **settings: Any) -> None:
        treekit.train(table, target, seed=1, **settings).save(place / f"{name}.treekit")

    numbers = {"a": a, "b": b}
    save("whole", {**numbers, "y": np.where(high, 2**62, -1)}, ensemble="forest", trees=7)
    save("bool", {**numbers, "y": high})
    save("real", {**numbers, "y": np.where(high, 0.1, 3.0)}, task="classification")
    save("double", {**numbers, "y": words}, dtype="float64")
    save("number", {**numbers, "y": a * b}, ensemble="forest", trees=3)
    save("mixed", {**numbers, "kind": holes, "y": words}, ensemble="forest", trees=3)
    save("marked", {"a": a, "kind": words, "y": high}, missing_marks=["none", "-999"])
    save("strict", {"a": a, "kind": words, "y": high}, missing="error", unknown="error")
    save("split", {"a": a, "kind": holes, "y": high}, missing="fractional")
    save("both", {"a": a, "y": words, "z": np.where(high, "p", "q")}, ["y", "z"])
    save("sums", {"a": a, "y": b, "z": a}, ["y", "z"])
    return place


CELLS = ("oak", "3", "3.0", "FALSE", "beech", "", "?", "行", "line\nbreak", "blank", " blank ")
NUMBERS = ("0.1", "-0", "1e400", "-inf", "", "NA", "1e-320", "7", "-3.25", "0.30000000000000004")


@pytest.fixture(scope="module")
def table(serve_rpc_client_folder: Path) -> Path:
    """Cells as files have them, in another order than the models', and columns of no use."""
    rng = np.random.default_rng(3)
    rows = [
        (rng.choice(NUMBERS), "x", CELLS[rng.integers(len(CELLS))], rng.choice(NUMBERS))
        for _ in range(200)
    ]
    return table_of(
        serve_rpc_client_folder.parent / "rows.csv", ("b", "of no use", "kind", "a"), rows
    )


@pytest.fixture(scope="module")
def serve_rpc_client_server(serve_rpc_client_folder: Path) -> Iterator[str]:
    with on_a_port(service_of(serve_rpc_client_folder)) as place:
        yield f"http://{place}"


def predict(*arguments: object) -> SimpleNamespace:
    """What the command says: its bytes, its code, and its one line of error."""
    done = CliRunner().invoke(main, ["predict", *map(str, arguments)])
    return SimpleNamespace(out=done.stdout_bytes, code=done.exit_code, error=done.stderr)


def refusal(*arguments: object) -> str:
    done = predict(*arguments)
    assert done.code == 2, done
    assert done.out.count(b"\n") <= 1  # the names of columns, as without a server
    assert done.error.count("\n") == 1, done.error
    return done.error


# ------------------------------------------------------------------------ the same file

MODELS = ("whole", "bool", "real", "double", "number", "mixed", "split", "both", "sums")


@pytest.mark.parametrize("name", MODELS)
def test_remote_predict_writes_the_bytes_of_local_predict(
    name: str, serve_rpc_client_server: str, serve_rpc_client_folder: Path, table: Path
):
    for options in ([], ["--proba"])[: 1 if name in ("number", "sums") else 2]:
        there = predict(name, table, "--url", serve_rpc_client_server, *options)
        here = predict(serve_rpc_client_folder / f"{name}.treekit", table, *options)
        assert (there.code, there.error) == (here.code, here.error) == (0, "")
        assert there.out == here.out
        assert here.out.count(b"\n") > 200
        assert len(set(here.out.split(b"\n"))) > 3


def test_a_model_has_its_own_marks_of_missing_cells(
    serve_rpc_client_server: str, serve_rpc_client_folder: Path, tmp_path: Path
):
    rows = table_of(
        tmp_path / "t.csv", ("a", "kind"), [(-999, "none"), (0.5, "oak"), ("none", "3")]
    )
    there = predict("marked", rows, "--url", serve_rpc_client_server)
    assert there.out == predict(serve_rpc_client_folder / "marked.treekit", rows).out
    assert there.code == 0
    other = table_of(tmp_path / "u.csv", ("a", "kind"), [("gone", "oak"), (0.5, "gone")])
    assert "'gone'" in refusal("marked", other, "--url", serve_rpc_client_server)
    there = predict("marked", other, "--url", serve_rpc_client_server, "--missing-marks", "gone")
    assert (
        there.out
        == predict(serve_rpc_client_folder / "marked.treekit", other, "--missing-marks", "gone").out
    )
    assert there.code == 0


@pytest.mark.parametrize("row", [("", "oak"), ("1", "beech"), ("text", "oak")])
def test_rows_refused_by_the_model_are_refused_with_its_message(
    row: tuple[str, str],
    serve_rpc_client_server: str,
    serve_rpc_client_folder: Path,
    tmp_path: Path,
):
    rows = table_of(tmp_path / "t.csv", ("a", "kind"), [("1", "oak")] * 30 + [row])
    said = refusal("strict", rows, "--url", serve_rpc_client_server)
    assert said == predict(serve_rpc_client_folder / "strict.treekit", rows).error
    assert "row 30" in said
    assert predict("strict", rows, "--url", serve_rpc_client_server).out == b""


def test_remote_predict_writes_a_complete_file_or_none(
    serve_rpc_client_server: str, table: Path, tmp_path: Path
):
    out = tmp_path / "new" / "out.csv"
    assert predict("mixed", table, "--url", serve_rpc_client_server, "-o", out).code == 0
    assert out.read_bytes() == predict("mixed", table, "--url", serve_rpc_client_server).out
    assert (
        "input of this command"
        in predict("mixed", table, "--url", serve_rpc_client_server, "-o", table).error
    )


@pytest.mark.parametrize("limits", [{"rows": 7}, {"body_bytes": 600}])
def test_remote_predict_respects_the_limits_of_the_server(
    limits: dict[str, int], serve_rpc_client_folder: Path, table: Path
):
    here = predict(serve_rpc_client_folder / "mixed.treekit", table, "--proba").out
    with on_a_port(service_of(serve_rpc_client_folder, **limits)) as place:
        assert predict("mixed", table, "--url", f"http://{place}", "--proba").out == here


def test_remote_predict_sends_many_rows_in_parts(
    serve_rpc_client_server: str, serve_rpc_client_folder: Path, table: Path, monkeypatch: Any
):
    sizes = []
    infer = Client.infer

    def counted(self: Client, path: Any, inputs: Any, outputs: Any) -> Any:
        sizes.append(len(inputs.cells))
        return infer(self, path, inputs, outputs)

    monkeypatch.setattr(Client, "infer", counted)
    monkeypatch.setattr(remote, "_MAX_PART_ROWS", 64)
    here = predict(serve_rpc_client_folder / "both.treekit", table, "--proba").out
    assert predict("both", table, "--url", serve_rpc_client_server, "--proba").out == here
    assert sizes == [64, 64, 64, 8]
    sizes.clear()
    monkeypatch.setattr(remote, "_MAX_PART_BYTES", 4 * 50)
    assert predict("both", table, "--url", serve_rpc_client_server, "--proba").out == here
    assert sizes == [50, 50, 50, 50]


# ----------------------------------------------------------------- what cannot be done


def test_unknown_model_of_a_remote_server_gets_suggestions(
    serve_rpc_client_server: str, table: Path
):
    assert refusal("mixd", table, "--url", serve_rpc_client_server) == (
        "Error: there is no model 'mixd'; did you mean 'mixed'?\n"
    )
    for name in ("", "..", "a/b", "行", "x" * 3000, "?"):
        assert predict(name, table, "--url", serve_rpc_client_server).code == 2


def test_inconsistent_options_are_reported_before_sending(
    table: Path, serve_rpc_client_folder: Path
):
    model = serve_rpc_client_folder / "bool.treekit"
    for option in ("--token-file", "--ca-file"):
        assert "add --url" in predict(model, table, option, table).error
    for url in (
        "127.0.0.1:80",
        "ftp://x",
        "http://",
        "http://x:port",
        "http://u:p@x",
        "http://x?y",
    ):
        assert repr(url) in refusal("bool", table, "--url", url)
        with pytest.raises(SettingError):
            Client(url)
    assert "does not use TLS" in refusal("bool", table, "--url", "http://x", "--ca-file", table)
    assert "is not a certificate file" in refusal(
        "bool", table, "--url", "https://x", "--ca-file", table
    )


def test_probabilities_of_regressions_are_refused(serve_rpc_client_server: str, table: Path):
    assert (
        "leave --proba out"
        in predict("number", table, "--url", serve_rpc_client_server, "--proba").error
    )


def test_an_unreachable_server_is_reported(table: Path):
    with scripted_server() as port:
        pass
    said = refusal("bool", table, "--url", f"http://127.0.0.1:{port}")
    assert said == (
        f"Error: no valid response from http://127.0.0.1:{port}: [Errno 111] Connection refused; "
        "is a server running there, with http or https as in the URL?\n"
    )


def test_remote_predict_trusts_the_given_certificate(
    serve_rpc_client_folder: Path, table: Path, tmp_path: Path
):
    cert, key = certificate(tmp_path)
    app = make_app(service_of(serve_rpc_client_folder))
    here = predict(serve_rpc_client_folder / "bool.treekit", table).out
    with app_server(app, ssl_certfile=cert, ssl_keyfile=key) as port:
        url = f"https://localhost:{port}"
        assert predict("bool", table, "--url", url, "--ca-file", cert).out == here
        assert "self-signed certificate" in refusal("bool", table, "--url", url)
        (tmp_path / "other").mkdir()
        stranger, _ = certificate(tmp_path / "other")
        assert "give the certificate of its CA with --ca-file" in refusal(
            "bool", table, "--url", url, "--ca-file", stranger
        )
        assert refusal("bool", table, "--url", f"http://localhost:{port}")
    with on_a_port(service_of(serve_rpc_client_folder)) as place:
        assert "[SSL" in refusal("bool", table, "--url", f"https://{place}")


def guarded(app: Any, refuse: Callable[[Any], tuple[int, dict[str, str]] | None]) -> Any:
    """The application behind one that may refuse."""

    async def guard(scope: Any, receive: Any, send: Any) -> None:
        found = refuse(scope)
        if found is None:
            await app(scope, receive, send)
            return
        status, headers = found
        given = [(k.encode(), v.encode()) for k, v in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": given})
        body = json.dumps({"error": f"refused with {status}"}).encode()
        await send({"type": "http.response.body", "body": body})

    return guard


def test_remote_predict_sends_the_token_of_a_file(
    serve_rpc_client_folder: Path, table: Path, tmp_path: Path
):
    def check(scope: Any) -> tuple[int, dict[str, str]] | None:
        given = dict(scope["headers"]).get(b"authorization")
        return None if given == b"Bearer a.b~c" else (401, {})

    token = tmp_path / "token"
    token.write_text("a.b~c\n", encoding="ascii")
    with app_server(guarded(make_app(service_of(serve_rpc_client_folder)), check)) as port:
        url = f"http://127.0.0.1:{port}"
        here = predict(serve_rpc_client_folder / "bool.treekit", table).out
        assert predict("bool", table, "--url", url, "--token-file", token).out == here
        assert refusal("bool", table, "--url", url) == (
            "Error: refused with 401; give the token file with --token-file\n"
        )


@pytest.mark.parametrize("content", ["", "two words", "a\r\nHost: x", "é"])
def test_an_invalid_token_file_is_refused(content: str, tmp_path: Path, table: Path):
    path = tmp_path / "token"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SettingError, match="does not contain a valid token"):
        read_token(path)
    arguments = ("x", table, "--url", "http://127.0.0.1:1", "--token-file")
    assert "does not contain a valid token" in refusal(*arguments, path)
    assert "cannot read" in refusal(*arguments, tmp_path / "nothing")


def test_a_token_is_not_sent_in_clear_without_a_warning():
    with pytest.warns(treekit.errors.TreekitWarning, match="use https"):
        Client("http://example.invalid", token=b"t")


def test_a_busy_server_is_retried_after_the_stated_time(
    serve_rpc_client_folder: Path, serve_rpc_client_server: str
):
    answers = [(429, {"retry-after": "2"}), (503, {}), (503, {"retry-after": "3600"}), None]
    waits: list[float] = []
    app = guarded(
        make_app(service_of(serve_rpc_client_folder / "bool.treekit")), lambda scope: answers.pop(0)
    )
    with app_server(app) as port:
        client = Client(f"http://127.0.0.1:{port}", sleep=waits.append)
        assert client.get("v2", "models", "bool")["name"] == "bool"
        client.close()
    assert waits == [2, 1, 30]


def test_retries_of_a_busy_server_end_after_a_limit(serve_rpc_client_folder: Path):
    waits: list[float] = []
    app = guarded(None, lambda scope: (503, {}))
    with app_server(app) as port:
        client = Client(f"http://127.0.0.1:{port}", sleep=waits.append)
        with pytest.raises(RemoteError, match="refused with 503"):
            client.get("v2")
        client.close()
    assert waits == [0.5, 1, 2, 4, 8]


def test_other_error_responses_are_not_retried(serve_rpc_client_folder: Path):
    app = guarded(None, lambda scope: (int(scope["path"].removeprefix("/v2/")), {}))
    with app_server(app) as port:
        client = Client(f"http://127.0.0.1:{port}", sleep=lambda seconds: pytest.fail("waits"))
        for status in (400, 403, 404, 418, 500):
            with pytest.raises(RemoteError, match=f"refused with {status}") as found:
                client.get("v2", str(status))
            assert found.value.status == status
        client.close()


def said(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def test_closed_kept_alive_connection_is_reopened():
    good = said(b'{"name": "x"}')
    with scripted_server([good, good], [good]) as port:
        client = Client(f"http://127.0.0.1:{port}")
        assert [client.get("v2")["name"] for _ in range(3)] == ["x"] * 3
        client.close()


def test_early_error_response_is_read_while_sending():
    refusal = said(b'{"error": "too much"}', status="413 Content Too Large")
    large = Tensor("x", "UINT8", np.zeros(8 << 20, np.uint8))
    with scripted_server([refusal]) as port:
        client = Client(f"http://127.0.0.1:{port}")
        with pytest.raises(RemoteError, match="too much") as found:
            client.infer(["v2", "models", "m"], large, ["y"])
        client.close()
    assert found.value.status == 413


def test_model_replaced_during_remote_prediction_writes_no_file(
    serve_rpc_client_folder: Path, table: Path, tmp_path: Path, monkeypatch: Any
):
    place = tmp_path / "bool.treekit"
    place.write_bytes((serve_rpc_client_folder / "bool.treekit").read_bytes())
    service = service_of(place)
    monkeypatch.setattr(remote, "_MAX_PART_ROWS", 50)
    infer = Client.infer

    def late(self: Client, *given: Any) -> Any:
        found = infer(self, *given)
        place.write_bytes((serve_rpc_client_folder / "whole.treekit").read_bytes())
        service.repository.load("bool")
        return found

    monkeypatch.setattr(Client, "infer", late)
    out = tmp_path / "out.csv"
    with on_a_port(service) as address:
        said = refusal("bool", table, "--url", f"http://{address}", "-o", out)
    assert "has no version" in said
    assert "was replaced during prediction" in said
    assert not out.exists()


# ------------------------------------------------------------- servers of no good


COLUMN = {"name": "a"}
SCHEMA = {"columns": [COLUMN], "classes": ["p", "q"], "target": "y", "task": "classification"}
KNOWN = {"schema": json.dumps(SCHEMA), "missing": "direction", "unknown": "missing"}
LABEL = {"name": "label", "datatype": "BYTES", "shape": [2]}


def metadata(**changes: Any) -> bytes:
    told = {"name": "m", "versions": ["1"], "inputs": [], "outputs": [], "parameters": KNOWN}
    return said(json.dumps(told | changes).encode())


def schema(**changes: Any) -> list[bytes]:
    return [metadata(parameters=KNOWN | {"schema": json.dumps(SCHEMA | changes)})] * 2


def answer(data: bytes = b"", size: int | None = None, **changes: Any) -> list[bytes]:
    """All answers up to that of two rows, whose label has these bytes."""
    parameters = {"binary_data_size": len(data) if size is None else size}
    output = LABEL | {"parameters": parameters} | changes
    head = json.dumps({"model_name": "m", "outputs": [output]}).encode()
    length = f"Inference-Header-Content-Length: {len(head)}"
    return [metadata(), metadata(), said(head + data, length)]


BAD = {
    "no JSON": ([said(b"<html>")], "expected a JSON object"),
    "a list": ([said(b"[1]")], "expected a JSON object"),
    "deep JSON": ([said(b"[" * 100_000)], "expected a JSON object"),
    "no HTTP": ([b"SSH-2.0-OpenSSH\r\n\r\n"], "no valid response"),
    "nothing": ([b""], "with http or https as in the URL?"),
    "half an answer": ([said(b'{"name": "m"}')[:-4]], "peer closed connection"),
    "an error of no JSON": ([said(b"oops", status="500 Oops")], "status 500"),
    "an error of control characters": (
        [said(b'{"error": "\\u001b[31mred"}', status="400 Bad")],
        "\\x1b[31mred",
    ),
    "versions of no list": ([metadata(versions=7)], "invalid metadata"),
    "a schema without columns": (schema(columns=[]), "invalid metadata"),
    "a schema of one name twice": (schema(columns=[COLUMN, COLUMN]), "invalid metadata"),
    "a schema of no such member": (schema(nonsense=1), "invalid metadata"),
    "no policies": ([metadata(parameters={"schema": json.dumps(SCHEMA)})] * 2, "invalid metadata"),
    "no inputs": ([metadata(parameters={}, inputs=None)] * 2, "invalid metadata"),
    "no bytes": (answer(parameters={}, data=b"", size=0), "binary data"),
    "an answer as JSON": (answer(parameters=None, data=b""), "binary data"),
    "too few rows": (answer(b"\1\0\0\0q", shape=[1]), "1 rows"),
    "too many columns": (answer(b"\0" * 16, shape=[2, 2]), "2 columns"),
    "a huge shape": (answer(shape=[2**40]), "binary data"),
    "a shape of no number": (answer(shape=["2"]), "binary data"),
    "a negative size": (answer(b"\0" * 9, size=-1), "binary data"),
    "a size beyond": (answer(b"\0" * 8, size=9), "binary data"),
    "another output": (answer(b"\0" * 8, name="l"), "binary data"),
    "no datatype": (answer(b"\0" * 8, datatype="TEXT"), "binary data"),
    "a head of no number": (
        [*answer()[:2], said(b"{}", "Inference-Header-Content-Length: x")],
        "binary data",
    ),
}


@pytest.fixture
def two_rows(tmp_path: Path) -> Path:
    return table_of(tmp_path / "t.csv", ("a",), [(1,), (2,)])


def test_valid_response_of_the_scripted_server_is_accepted(two_rows: Path):
    with scripted_server(answer(b"\1\0\0\0q\1\0\0\0p")) as port:
        assert predict("m", two_rows, "--url", f"http://127.0.0.1:{port}").out == b"y\nq\np\n"


@pytest.mark.parametrize("case", BAD)
def test_invalid_server_address_exits_with_one_line(case: str, two_rows: Path, tmp_path: Path):
    answers, text = BAD[case]
    out = tmp_path / "out.csv"
    with scripted_server(answers) as port:
        said = refusal("m", two_rows, "--url", f"http://127.0.0.1:{port}", "-o", out)
    assert text in said
    assert not out.exists()


def test_response_beyond_the_size_limit_is_refused(monkeypatch: Any):
    monkeypatch.setattr("treekit.serve.client._MAX_RESPONSE_BYTES", 1000)
    with scripted_server([said(b" " * 1000 + b"{}")]) as port:
        client = Client(f"http://127.0.0.1:{port}")
        with pytest.raises(RemoteError, match="longer than 1,000 bytes"):
            client.get("v2")
        client.close()


def test_remote_predict_runs_without_the_server_extra():
    script = (
        "import sys; import treekit.serve.client; "
        "from treekit.serve.client import Client;"
        "print({'starlette', 'uvicorn', 'grpc', 'onnx', 'numba'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_missing_httpx_names_the_extra_to_install(monkeypatch: Any):
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.delitem(sys.modules, "treekit.serve.client")
    with pytest.raises(MissingExtraError, match=r"treekit-ml\[client\]"):
        importlib.import_module("treekit.serve.client")


def test_client_verifies_the_host_name_of_the_certificate(
    serve_rpc_client_folder: Path, tmp_path: Path, monkeypatch: Any
):
    cert, key = certificate(tmp_path)  # for localhost
    app = make_app(service_of(serve_rpc_client_folder / "bool.treekit"))
    with app_server(app, ssl_certfile=cert, ssl_keyfile=key) as port:
        find = socket.getaddrinfo
        monkeypatch.setattr(
            "socket.getaddrinfo", lambda host, *more, **how: find("127.0.0.1", *more, **how)
        )
        client = Client(f"https://other.test:{port}", ca_file=cert)
        with pytest.raises(RemoteError, match=r"not valid for 'other\.test'"):
            client.get("v2")
        client.close()


# --------------------------------------------------------------------------- the examples


@pytest.mark.parametrize("face", ["http", "grpc"])
def test_tritonclient_example_program_runs(
    face: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(
        r"```python\n(import numpy as np\nimport tritonclient.*?)```", text, re.S
    )
    melons = EXAMPLES / "tables" / "watermelon" / "watermelon_3.0.csv"
    model = treekit.train(melons, "好瓜", ignore=["编号"], ensemble="forest", trees=3, seed=0)
    model.save(tmp_path / "melons.treekit")
    service = service_of(tmp_path)
    with on_a_port(service) as place, grpc_server(service) as port:
        address = place if face == "http" else f"127.0.0.1:{port}"
        assert "127.0.0.1:8080" in program
        program = program.replace("127.0.0.1:8080", address)
        program = program.replace("tritonclient.http", f"tritonclient.{face}")
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    label, shares = capfd.readouterr().out.split(" ", 1)
    row = re.search(r"np\.array\(\[\[(.*?)\]\]", program)[1].replace('"', "").split(", ")  # type: ignore[index]
    first = table_of(tmp_path / "t.csv", model.schema.names, [row])
    assert eval(label).decode() == model.predict(first)[0]
    assert shares.strip() == str(model.predict_proba(first)[0])


def test_standard_library_client_example_is_short_and_reports_errors(
    serve_rpc_client_server: str,
):
    program = EXAMPLES / "standalone" / "ask_server.py"
    lines = program.read_text(encoding="utf-8").split('"""')[2].split("\n")
    assert len([line for line in lines if line]) <= 12
    imported = {line.split()[1].partition(".")[0] for line in lines if line.startswith("import")}
    assert imported <= set(sys.stdlib_module_names)
    asked = [sys.executable, "-I", "-S", program, serve_rpc_client_server, "bool"]
    done = subprocess.run([*asked, "0.5", ""], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("label\t")
    done = subprocess.run([*asked, "0.5"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
