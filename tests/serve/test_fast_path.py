"""The fast path of requests responds as the general path, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import treekit
from tests.examples import examples
from tests.extreme_rows import extreme_rows
from tests.extremes import EXTREMES
from tests.serving import client_of, infer_body, put_in_service
from tests.serving_gate import Lines, Twice, ask, connect, make_gate_app, on_port, service_of
from treekit.data.schema import Column, Schema
from treekit.errors import TreekitError
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.serve.errors import InvalidRequestError, UnavailableError
from treekit.serve.http import Reply, Route, read_body
from treekit.serve.http import oip_routes as oip
from treekit.serve.http.app import HttpApp, make_app
from treekit.serve.http.auth import Access
from treekit.serve.http.metrics import Metrics
from treekit.serve.models.repository import Repository
from treekit.serve.models.served_model import Served
from treekit.serve.models.tensors import Tensor
from treekit.serve.protocol.messages import decode_tensors, encode_response, read_request
from treekit.serve.scheduling import Runner, Service
from treekit.serve.settings import Limits, ServeSettings

# ---------------------------------------------------------------- serve fast

NAMES = sorted(set(EXTREMES) - {name for name in EXTREMES if "thousand" in name})


@cache
def served_of(name: str) -> Served:
    return Served('a "model" %b\n', "1", "0" * 64, EXTREMES[name]())


def general(served: Served, body: bytes) -> bytes | None:
    """What the general way answers; None where it refuses."""
    try:
        asked = read_request(body)
        request = asked[0] if isinstance(asked, tuple) else asked
        names = [output.name for output in request.outputs] if request.outputs else None
        wanted = served.select_outputs(names)
        outputs = served.compute_outputs(served.parse_inputs(decode_tensors(request)), wanted)
    except TreekitError:
        return None
    return encode_response(served, request, outputs)[0]


@pytest.mark.parametrize("name", NAMES[:6])
def test_outputs_computed_in_blocks_equal_those_of_all_rows(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = served_of(name)
    rows = served.parse_inputs(served.make_sample_inputs(7))
    rows[3:, 0] = rows[3, 0] + 1
    names = (*served.default_outputs, "leaf")
    expected = served.compute_outputs(rows, names)
    monkeypatch.setattr("treekit.serve.models.served_model._BLOCK_VISITS", served.visits_per_row)
    calls = []
    monkeypatch.setattr(
        "treekit.serve.models.served_model.check_cancelled", lambda: calls.append(1)
    )
    found = served.compute_outputs(rows, names)
    assert len(calls) >= 2 * 4  # four blocks of two rows
    for own, other in zip(found, expected, strict=True):
        assert own.datatype == other.datatype
        assert own.cells.tolist() == other.cells.tolist()


def test_refused_row_is_numbered_over_all_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = {"x": [0.0, 1.0, 2.0, 3.0], "y": ["a", "b", "a", "b"]}
    served = Served("m", "1", "0" * 64, treekit.train(table, "y", missing="error"))
    monkeypatch.setattr("treekit.serve.models.served_model._BLOCK_VISITS", 1.0)
    rows = np.zeros((9, 1), served.model.schema.dtype)
    rows[7] = np.nan
    for output in ("label", "leaf"):
        with pytest.raises(InvalidRequestError, match="row 7"):
            served.compute_outputs(rows, [output])


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
    schema = served_of(name).model.schema
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
def test_fast_path_responds_as_the_general_path_or_declines(asked):
    name, request = asked
    served, body = served_of(name), json.dumps(request).encode()
    with np.errstate(over="ignore"):
        said = served.fast_path.try_answer(body, 1000)
        if said is not None:
            assert said[0] == general(served, body)


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
@pytest.mark.parametrize("name", NAMES)
def test_fast_and_general_path_respond_equally_on_extreme_rows(name, datatype):
    served = served_of(name)
    model = served.model
    rows = extreme_rows(model, most=20)
    fits = np.isfinite(rows).all(axis=1) & (np.abs(rows) < 3e38).all(axis=1)
    short = 0
    for part in np.array_split(rows[fits][:30], 8):
        shape = [len(part), model.schema.n_features]
        given = {"name": "input", "shape": shape, "datatype": datatype}
        body = json.dumps({"inputs": [given | {"data": part.ravel().tolist()}]}).encode()
        said = served.fast_path.try_answer(body, 1000)
        if said is not None:
            short += 1
            assert said[0] == general(served, body)
    if name in ("mixed", "int_labels", "float32_neighbours", "mixed_numbers"):
        assert short == 8


_TOWNS = ("Ulm", "Bonn", "Ulm")


def two_columns(**policies: Any) -> Served:
    schema = Schema(
        (Column("x"), Column("town", "nominal", ("Ulm", "Bonn"))), classes=("no", "yes")
    )
    right = subset("town", ["Bonn"], leaf([1, 9]), leaf([1, 0]))
    tree = threshold("x", 0.0, leaf([3, 1]), right)
    return Served("two", "1", "0" * 64, make_model(schema, [build_tree(tree, schema)], **policies))


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
        {**tensor(1.5, 1), "id": "17"},
        columns(),
        {**columns(-1, "Ulm"), "id": "17"},
        {
            "inputs": [
                {"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2.5, -1]},
                {"name": "town", "shape": [3, 1], "datatype": "BYTES", "data": list(_TOWNS)},
            ]
        },
    ],
)
def test_common_requests_take_the_fast_path(request_):
    served = two_columns()
    body = json.dumps(request_).encode()
    said = served.fast_path.try_answer(body, 1000)
    assert said is not None
    assert said[0] == general(served, body)
    assert said[1] == json.loads(said[0])["outputs"][0]["shape"][0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1]",
        b"\xff\xfe",
        b'{"inputs":[]}',
        json.dumps(columns(town=1)),
        json.dumps(columns())[:-2] + ',{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}',
        json.dumps(columns()).replace('["Bonn"]', '[],"data":["Bonn"]'),
        json.dumps(columns()).replace("[1]", "[]"),
        json.dumps({**tensor(1, 1), "outputs": [{"name": "probabilities"}]}),
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
def test_uncommon_requests_take_the_general_path(body):
    body = body.encode() if isinstance(body, str) else body
    assert two_columns().fast_path.try_answer(body, 10) is None


def test_refused_rows_take_the_general_path_which_gives_the_reason():
    served = two_columns(unknown="error")
    assert served.fast_path.try_answer(json.dumps(tensor(1.5, 1)).encode(), 10) is not None
    assert served.fast_path.try_answer(json.dumps(tensor(1.5, 7)).encode(), 10) is None


def numbers_model(values: tuple[float, float]) -> Model:
    schema = Schema((Column("x"), Column("y")), task="regression")
    tree = threshold("x", 0.0, leaf([values[0]]), leaf([values[1]]))
    return make_model(schema, [build_tree(tree, schema)])


def test_fast_path_writes_numbers_with_all_digits():
    served = Served("n", "1", "0" * 64, numbers_model((0.1, -3e300)))
    for x in (-1, 1):
        body = json.dumps(tensor(x, 0)).encode()
        said = served.fast_path.try_answer(body, 10)
        assert said is not None
        assert said[0] == general(served, body)


# ---------------------------------------------------------------- over HTTP
# Answers in their order, whatever way requests arrive.

GOOD = infer_body((1.0, 2.0))
WAYS = "/v2/models/two/infer"


def two() -> Served:
    schema = Schema((Column("a"), Column("b")), classes=("no", "yes"))
    tree = threshold("a", 0.0, leaf([3, 1]), threshold("b", 1.0, leaf([1, 0]), leaf([1, 7])))
    return Served("two", "1", "0" * 64, make_model(schema, [build_tree(tree, schema)]))


def request(
    body: bytes = GOOD, *headers: str, path: str = WAYS, method: str = "POST", number: int = 0
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"X-Request-Id: r{number}", *headers]
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = service_of(Twice(), folder=tmp_path_factory.mktemp("models"), seconds=1.0)
    put_in_service(made.repository, two())
    return made


@pytest.fixture(scope="module")
def port(service: Any) -> Iterator[int]:
    with on_port(make_gate_app(service), service.limits) as port:
        yield port


def timeless(answer: bytes) -> bytes:
    return re.sub(rb"date: [^\r]*\r\n", b"", answer)


def read_responses(connection: socket.socket, answers: int = 1) -> bytes:
    """So many whole answers, or what there is when the connection ends."""
    found = b""
    while True:
        heads = list(re.finditer(rb"HTTP/1\.1 \d{3}.*?\r\n\r\n", found, re.DOTALL))
        if len(heads) >= answers:
            last = heads[answers - 1]
            length = re.search(rb"content-length: (\d+)", last[0])
            assert length
            if len(found) >= last.end() + int(length[1]):
                return timeless(found)
        data = connection.recv(1 << 16)
        if not data:
            return timeless(found)
        found += data


def asked(port: int, *parts: bytes, answers: int = 1, pause: float = 0.02) -> bytes:
    with connect(port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, part in enumerate(parts):
            if number:
                time.sleep(pause)
            connection.sendall(part)
        return read_responses(connection, answers)


def test_request_sent_in_pieces_is_answered(port):
    whole = request()
    right = asked(port, whole)
    assert b'"label"' in right
    for at in range(1, len(whole), 7):
        assert asked(port, whole[:at], whole[at:], pause=0.002) == right


@pytest.mark.parametrize("wish", ["Upgrade: h2c", "upgrade: websocket", "UPGRADE:h2c"])
def test_an_http_upgrade_header_is_ignored(port, wish):
    """Java's HttpClient and curl --http2 send it with a body."""
    settings = "HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA"
    wished = request(GOOD, "Connection: Upgrade, HTTP2-Settings", settings, wish)
    right = asked(port, request())
    assert right.startswith(b"HTTP/1.1 200 ")
    assert asked(port, wished) == right
    assert asked(port, wished[:-100], wished[-100:]) == right
    inside = b" " * 300 + b"\r\nupgrade: h2c\r\n\r\n"
    assert asked(port, request(inside + GOOD, wish)).startswith(b"HTTP/1.1 400 ")


def test_fast_path_requests_are_counted_and_logged_once(service):
    lines = Lines()
    app = make_gate_app(service, lines, log="json")
    with on_port(app, service.limits) as port:
        for number in range(3):
            asked(port, request(number=number))
        asked(port, request(b"{", number=3))
    told = [line for line in lines.json if line["event"] == "request"]
    assert [(line["id"], line["status"]) for line in told] == [
        *(("r0", 200), ("r1", 200), ("r2", 200)),
        ("r3", 400),
    ]
    assert [line.get("model") for line in told] == ["two", "two", "two", None]
    metrics = ask(app, "GET", "/metrics").text
    assert 'treekit_rows_total{model="two",version="1"} 3.0' in metrics
    assert 'duration_seconds_count{endpoint="infer",model="two"} 3.0' in metrics
    assert "treekit_requests_in_progress 1.0" in metrics  # this one


@pytest.mark.parametrize("seed", range(6))
def test_pipelined_requests_are_answered_in_their_order(port, seed):
    import random

    draw = random.Random(seed)
    messages = [
        draw.choice(
            [
                request(number=number),
                request(path="/v2", method="GET", number=number),
                request(b"{", number=number),
                request(infer_body((0.5, number)), number=number),
            ]
        )
        for number in range(40)
    ]
    answer = asked(port, b"".join(messages), answers=40)
    found = re.findall(rb"x-request-id: (r\d+)", answer)
    assert found == [b"r%d" % number for number in range(40)]
    assert answer == b"".join(asked(port, message) for message in messages)


def test_failures_on_the_fast_path_are_internal_server_errors(service, monkeypatch):
    def fail(*given: Any) -> None:
        raise ZeroDivisionError("nobody foresaw this")

    broken = SimpleNamespace(try_answer=fail)
    monkeypatch.setattr(service.repository.get("two"), "fast_path", broken)
    lines = Lines()
    answer = ask(make_gate_app(service, lines, log="json"), "POST", WAYS, content=GOOD)
    assert answer.status_code == 500
    assert [line["event"] for line in lines.json] == ["failed", "request"]


# ---------------------------------------------------------------- limits
# Bodies in time, threads in bounds.


# -------------------------------------------------------------------------- bodies


def receiver(*parts: Any) -> Callable[[], Any]:
    """An ASGI ``receive`` of parts; a number is a wait, None that the client goes."""
    left = list(parts)

    async def receive() -> dict[str, Any]:
        while isinstance(left[0], (int, float)):
            await asyncio.sleep(left.pop(0))
        part = left.pop(0)
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    return receive


def body_of(*parts: Any, **limits: Any) -> bytes:
    """What an endpoint reads of a body, or raises in reading."""
    taken: list[bytes] = []
    service = Service(Repository([]), Runner(Limits(**({"seconds": 0.2} | limits))))

    async def read(request: Any) -> Reply:
        taken.append(await read_body(request, service.limits))
        return Reply(b"")

    settings = ServeSettings(("-",), allow_hosts=("*",), limits=service.limits)
    routes = [Route("POST", "/", read, "other")]
    app = HttpApp(service, settings, Access(settings), Metrics(service), routes)
    status, answer = asyncio.run(asked_for(app, receiver(*parts)))
    if status != 200:
        raise RefusedError(status, json.loads(answer)["error"])
    return taken[0]


class RefusedError(Exception):
    """Status and message of an answer."""


async def asked_for(app: Any, receive: Any) -> tuple[int, bytes]:
    """Status and body of an answer to POST /."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "scheme": "http", "headers": []}
    await app(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize(
    "parts",
    [(b"abc",), (0.01, b"abc"), (b"a", b"bc"), (0.01, b"a", 0.01, b"b", b"c"), (b"", b"abc")],
)
def test_body_is_read_in_one_or_several_pieces(parts):
    assert body_of(*parts) == b"abc"


@pytest.mark.parametrize("parts", [(30, b"abc"), (b"a", 30, b"bc"), (0.01, b"a", 30, b"bc")])
def test_slow_body_times_out_at_any_position(parts):
    with pytest.raises(RefusedError, match=r"408.*within 0\.2 s"):
        body_of(*parts)


def test_slowly_sent_bytes_do_not_restart_the_time_limit():
    with pytest.raises(RefusedError, match="408"):
        body_of(*(0.05, b"a") * 40)


@pytest.mark.parametrize("parts", [(None,), (0.01, None), (b"a", None), (0.01, b"a", 0.01, None)])
def test_body_of_a_disconnected_client_is_refused(parts):
    with pytest.raises(RefusedError, match=r"400.*the client disconnected"):
        body_of(*parts)


@pytest.mark.parametrize(
    "parts", [(b"abcd",), (0.01, b"abcd"), (b"ab", b"cd"), (0.01, b"ab", b"cd")]
)
def test_body_beyond_the_limit_is_refused_in_any_pieces(parts):
    with pytest.raises(RefusedError, match=r"413.*longer than 3 bytes"):
        body_of(*parts, body_bytes=3)


# -------------------------------------------------------------------------- threads


def serve_fast_running_two_columns(**policies: Any) -> Served:
    schema = Schema(
        (Column("x"), Column("town", "nominal", ("Ulm", "Bonn"))), classes=("no", "yes")
    )
    right = subset("town", ["Bonn"], leaf([1, 9]), leaf([1, 0]))
    tree = threshold("x", 0.0, leaf([3, 1]), right)
    model = make_model(schema, [build_tree(tree, schema)], **policies)
    return Served("two", "1", "0" * 64, model)


def serve_fast_running_service_of(served: Served, **settings_: Any) -> Service:
    repository = Repository([])
    put_in_service(repository, served)
    return Service(repository, Runner(Limits(), **settings_))


class Slow(Served):
    """Answers when it is told to."""

    name, version, visits_per_row = "slow", "1", 1e9
    default_outputs = ("n",)

    def __init__(self) -> None:
        self.begun = 0
        self.go = threading.Event()

    def parse_inputs(self, tensors: Sequence[Tensor], absent: str = "error") -> Any:
        raise NotImplementedError

    def compute_outputs(self, batch: Any, wanted: Sequence[str]) -> list[Tensor]:
        self.begun += 1
        assert self.go.wait(20)
        return [Tensor("n", "INT64", np.arange(len(batch)))]


ONE = np.zeros((1, 2), np.float32)


def test_slow_prediction_returns_503_and_keeps_its_thread_busy():
    slow, runner = Slow(), Runner(Limits(seconds=0.1), threads=1, queued=1)

    async def work() -> None:
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"longer than 0\.1 s"):
                await runner.run_batch(slow, ONE, ("n",))
        assert slow.begun == 1
        slow.go.set()
        assert len((await runner.run_batch(slow, ONE, ("n",)))[0].cells) == 1

    try:
        asyncio.run(work())
    finally:
        slow.go.set()
        runner.close()


def test_requests_beyond_the_queue_are_refused_at_once_and_accepted_later():
    slow, runner = Slow(), Runner(Limits(), threads=1, queued=2)

    async def work() -> None:
        works = [asyncio.create_task(runner.run_batch(slow, ONE, ("n",))) for _ in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(UnavailableError, match="2 large requests are already queued"):
            await runner.run_batch(slow, ONE, ("n",))
        slow.go.set()
        assert len(await asyncio.gather(*works)) == 3
        await runner.run_batch(slow, ONE, ("n",))

    try:
        asyncio.run(work())
    finally:
        slow.go.set()
        runner.close()


def test_closed_runner_refuses_new_work_and_drops_waiting_work():
    slow, runner = Slow(), Runner(Limits(), threads=1)

    async def work() -> None:
        works = [asyncio.create_task(runner.run_batch(slow, ONE, ("n",))) for _ in range(2)]
        await asyncio.sleep(0.05)
        began = time.monotonic()
        runner.close()
        assert time.monotonic() - began < 1
        with pytest.raises(UnavailableError, match="is closing"):
            await runner.run_batch(slow, ONE, ("n",))
        slow.go.set()
        first, second = await asyncio.gather(*works, return_exceptions=True)
        assert len(first[0].cells) == 1
        assert isinstance(second, UnavailableError)
        assert "is closing" in str(second)

    asyncio.run(work())
    assert slow.begun == 1


def test_large_requests_and_responses_do_not_block_the_event_loop(monkeypatch):
    service = serve_fast_running_service_of(serve_fast_running_two_columns())
    rows = 12_000
    data = {"x": [0.5] * rows, "town": ["Ulm"] * rows}
    inputs = [
        {"name": name, "shape": [rows], "datatype": kind, "data": data[name]}
        for name, kind in (("x", "FP32"), ("town", "BYTES"))
    ]
    body = msgspec.json.encode({"inputs": inputs})
    threads: list[str] = []
    for name in ("read_request", "decode_tensors", "encode_response"):
        own = getattr(oip, name)

        def seen(*given: Any, own: Any = own) -> Any:
            threads.append(threading.current_thread().name)
            return own(*given)

        monkeypatch.setattr(oip, name, seen)
    status, _ = asyncio.run(posted(make_app(service), "/v2/models/two/infer", body))
    assert status == 200
    assert len(threads) == 3
    assert all(name.startswith("treekit-answer") for name in threads)


async def posted(app: Any, path: str, body: bytes) -> tuple[int, bytes]:
    async with client_of(app) as client:
        answer = await client.post(path, content=body)
    return answer.status_code, answer.content


def test_explanations_beyond_the_queue_limit_are_refused_until_others_finish():
    async def run() -> None:
        runner, go = Runner(Limits(), threads=1, queued=2), threading.Event()
        under_way = [asyncio.create_task(runner.run_explanation(go.wait, 20)) for _ in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(UnavailableError, match="2 explanations or rule lists are already"):
            await runner.run_explanation(time.sleep, 0)
        assert await runner.run_by_size(1 << 20, len, "ab") == 2  # the others' threads are free
        go.set()
        assert await asyncio.gather(*under_way) == [True] * 3
        assert await runner.run_explanation(len, "ab") == 2
        runner.close()

    asyncio.run(run())


def test_timed_out_explanation_releases_its_place_in_the_queue():
    async def run() -> None:
        runner, go = Runner(Limits(seconds=0.05), threads=1, queued=1), threading.Event()
        for _ in range(2):
            with pytest.raises(UnavailableError, match="took longer than"):
                await runner.run_explanation(go.wait, 20)
        go.set()
        for _ in range(100):
            await asyncio.sleep(0.01)
            with contextlib.suppress(UnavailableError):
                assert await runner.run_explanation(len, "ab") == 2
                break
        else:
            raise AssertionError("no place came back")
        runner.close()

    asyncio.run(run())
