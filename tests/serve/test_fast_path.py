"""The short way says what the general way says, byte for byte, and leaves the rest to it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
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
from starlette.routing import Router
from uvicorn import Config
from uvicorn.server import ServerState

from tests.examples import examples
from tests.extreme_rows import extreme_rows
from tests.extremes import EXTREMES
from tests.serving import client_of, infer_body, put_in_service
from tests.serving_gate import Lines, Twice, ask, connect, gated, on_port, service_of
from treekit.data.schema import Column, Schema
from treekit.errors import TreekitError
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.serve.errors import (
    InvalidRequestError,
    ServeError,
    TooSlowError,
    UnavailableError,
)
from treekit.serve.http import oip_routes as oip
from treekit.serve.http import read_body
from treekit.serve.http.app import list_routes, make_app
from treekit.serve.http.oip_routes import InferDispatcher
from treekit.serve.models.repository import Repository
from treekit.serve.models.served_model import Batch, Served
from treekit.serve.models.tensors import Tensor
from treekit.serve.models.treekit_model import TreekitServed
from treekit.serve.process.uvicorn_server import (
    MAX_HEAD_BYTES,
    FastPathProtocol,
    make_protocol_class,
)
from treekit.serve.protocol.messages import decode_tensors, encode_json_response, read_request
from treekit.serve.scheduling import Deadlines, Runner, Service
from treekit.serve.settings import Limits

# ---------------------------------------------------------------- serve fast

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
        wanted = served.select_outputs(names)
        outputs = served.compute_outputs(served.parse_inputs(decode_tensors(request)), wanted)
    except TreekitError:
        return None
    return encode_json_response(served, request.id, outputs)


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
        said = served.fast_path.try_answer(body, 1000)
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
        said = served.fast_path.try_answer(body, 1000)
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
    said = served.fast_path.try_answer(body, 1000)
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
    assert two_columns().fast_path.try_answer(body, 10) is None


def test_a_row_that_a_policy_refuses_is_left_to_the_general_way_that_says_why():
    served = two_columns(unknown="error")
    assert served.fast_path.try_answer(json.dumps(tensor(1.5, 1)).encode(), 10) is not None
    assert served.fast_path.try_answer(json.dumps(tensor(1.5, 7)).encode(), 10) is None


def numbers_model(values: tuple[float, float]) -> Model:
    schema = Schema((Column("x"), Column("y")), task="regression")
    tree = threshold("x", 0.0, leaf([values[0]]), leaf([values[1]]))
    return make_model(schema, [build_tree(tree, schema)])


def test_a_number_is_written_with_all_its_digits():
    served = TreekitServed("n", "1", "0" * 64, numbers_model((0.1, -3e300)))
    for x in (-1, 1):
        body = json.dumps(tensor(x, 0)).encode()
        said = served.fast_path.try_answer(body, 10)
        assert said is not None
        assert said.body == general(served, body)


# ---------------------------------------------------------------- serve at once
# Answers without a task: the same bytes, in their order, whatever way requests arrive.

GOOD = infer_body((1.0, 2.0))
WAYS = "/v2/models/two/infer"


def two() -> TreekitServed:
    schema = Schema((Column("a"), Column("b")), classes=("no", "yes"))
    tree = threshold("a", 0.0, leaf([3, 1]), threshold("b", 1.0, leaf([1, 0]), leaf([1, 7])))
    return TreekitServed("two", "1", "0" * 64, make_model(schema, [build_tree(tree, schema)]))


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
def server(service: Any) -> Iterator[Any]:
    """Two ports of one application: with its gate's answers at once, and without them."""
    lines = Lines()
    app = gated(service, lines, log="json")
    at_once = []
    first = app.try_answer

    def counted(scope: Any, body: bytes) -> Any:
        answer = first(scope, body)
        at_once.append(answer is not None)
        return answer

    app.try_answer = counted

    async def same(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    with on_port(app, service.limits) as port, on_port(same, service.limits) as usual:
        yield SimpleNamespace(port=port, usual=usual, at_once=at_once, lines=lines, app=app)


def timeless(answer: bytes) -> bytes:
    return re.sub(rb"date: [^\r]*\r\n", b"", answer)


def heard(connection: socket.socket, answers: int = 1) -> bytes:
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
        return heard(connection, answers)


# ------------------------------------------------------------------------------ the same bytes

HEADERS = st.lists(
    st.sampled_from(
        [
            *("Content-Type: application/json", "Accept: */*", "Origin: http://localhost"),
            *("Origin: http://evil.example", "Connection: close", "Connection: keep-alive"),
            *("Sec-Fetch-Site: cross-site", "Host: evil.example", "Expect: 100-continue"),
            *("Content-Encoding: gzip", "Inference-Header-Content-Length: 5"),
            *("Upgrade: websocket", "X-Request-Id: other", "Authorization: Bearer x"),
        ]
    ),
    max_size=2,
)
PATHS = st.sampled_from(
    [
        *(WAYS, "/v2/models/two/versions/1/infer", "/v2/models/two/versions/2/infer"),
        *("/v2/models/none/infer", "/v2/models/twice/infer", f"{WAYS}?a=b", "/v2//models/infer"),
        *("/v2/models/tw%6f/infer", "/infer", "/v2/models//infer", f"{WAYS}/", f"{WAYS}#x"),
    ]
)
BODIES = st.one_of(
    st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=1, max_size=3).map(
        lambda rows: infer_body(*rows)
    ),
    st.sampled_from(
        [
            *(b"", b"{", b"null", b"[]", b'{"inputs":[]}', GOOD[:-1], GOOD + b" ", b"\xff" * 9),
            json.dumps(json.loads(GOOD) | {"id": "é"}).encode(),
            json.dumps(json.loads(GOOD) | {"outputs": [{"name": "label"}]}).encode(),
            json.dumps(json.loads(GOOD) | {"outputs": [{"name": "leaf"}]}).encode(),
        ]
    ),
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(BODIES, HEADERS, PATHS, st.sampled_from(["POST"] * 6 + ["GET", "PUT", "OPTIONS"]))
def test_answers_are_those_of_the_usual_way_byte_for_byte(server, body, headers, path, method):
    message = request(body, *headers, path=path, method=method)
    end = 2 if "Expect: 100-continue" in headers else 1
    if end == 2:  # its "100 Continue" has no length: compare what comes until the end
        headers = [*headers, "Connection: close"]
        message = request(body, *headers, path=path, method=method)
        with connect(server.port) as one, connect(server.usual) as other:
            one.sendall(message)
            other.sendall(message)
            assert rest(one) == rest(other)
        return
    assert asked(server.port, message) == asked(server.usual, message)


def rest(connection: socket.socket) -> bytes:
    found = b""
    while data := connection.recv(1 << 16):
        found += data
    return timeless(found)


def test_the_commonest_request_is_answered_at_once_and_others_are_not(server):
    def ways(message: bytes) -> list[bool]:
        server.at_once.clear()
        asked(server.port, message)
        return server.at_once[:]

    assert ways(request()) == [True]
    assert ways(request(path="/v2/models/two/versions/1/infer")) == [True]
    assert not any(ways(request(GOOD + b" " * 400_000)))  # it comes in many pieces
    assert ways(request(b"{")) == [False]
    assert ways(request(GOOD, "Connection: close")) == []


def test_a_request_that_comes_in_pieces_is_answered_all_the_same(server):
    whole = request()
    right = asked(server.usual, whole)
    assert b'"label"' in right
    for at in range(1, len(whole)):
        assert asked(server.port, whole[:at], whole[at:], pause=0.002) == right


def test_what_is_answered_at_once_is_counted_and_logged_once(service, tmp_path):
    lines = Lines()
    app = gated(service, lines, log="json")
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


# ------------------------------------------------------------------------- one after the other


@pytest.mark.parametrize("seed", range(6))
def test_pipelined_requests_are_answered_in_their_order(server, seed):
    import random

    draw = random.Random(seed)
    messages = [
        draw.choice(
            [
                request(number=number),
                request(number=number),
                request(path="/v2", method="GET", number=number),
                request(b"{", number=number),
                request(infer_body((0.5, number)), number=number),
            ]
        )
        for number in range(40)
    ]
    answer = asked(server.port, b"".join(messages), answers=40)
    found = re.findall(rb"x-request-id: (r\d+)", answer)
    assert found == [b"r%d" % number for number in range(40)]
    assert answer == asked(server.usual, b"".join(messages), answers=40)


@pytest.mark.parametrize("first", [b"{", GOOD, json.dumps({"inputs": []}).encode()])
@pytest.mark.parametrize("path", [WAYS, "/v2/models/twice/infer", "/v2/models/none/infer"])
def test_what_is_left_to_the_usual_way_is_what_it_was_though_another_request_began(
    server, first, path
):
    messages = [request(first, path=path), request(path="/v2", method="GET", number=1)]
    answers = asked(server.port, b"".join(messages), answers=2)
    assert answers == asked(server.usual, b"".join(messages), answers=2)
    parts = [asked(server.usual, message) for message in messages]
    assert answers == b"".join(parts)


def test_many_requests_of_one_client_do_not_keep_others(server):
    """Only the first of what was read at once has no turn of the event loop of its own."""
    server.at_once.clear()
    asked(server.port, b"".join(request(number=number) for number in range(20)), answers=20)
    assert server.at_once.count(True) <= 2


def test_what_is_no_http_comes_after_the_answer(server):
    with connect(server.port) as connection:
        connection.sendall(request() + b"\0\0\r\n\r\n")
        answers = rest(connection)
    assert re.findall(rb"HTTP/1.1 (\d{3})", answers) == [b"200", b"400"]
    assert answers.startswith(asked(server.usual, request()))


@pytest.mark.parametrize("path", [WAYS, "/v2/models/none/infer", "/v2/models/twice/infer"])
def test_a_client_that_closes_its_side_gets_its_answer(server, path):
    for _ in range(5):
        with connect(server.port) as connection:
            connection.sendall(request(path=path))
            connection.shutdown(socket.SHUT_WR)
            assert rest(connection).startswith(b"HTTP/1.1 ")


def test_heads_of_many_requests_are_not_added_up(server):
    message = request(GOOD, "X-Long: " + "x" * 4000)
    with connect(server.port) as connection:
        for _ in range(MAX_HEAD_BYTES // 4000 + 5):
            connection.sendall(message)
            assert heard(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.system
def test_a_head_that_does_not_follow_is_408_and_one_that_does_not_begin_is_waited_for(server):
    with connect(server.port) as one, connect(server.port) as other:
        for connection in (one, other):
            connection.sendall(request())
            assert b'"label"' in heard(connection)
        one.sendall(b"POST /v2")
        assert b" 408 " in rest(one)  # after the second that the server gives
        other.sendall(request())
        assert b'"label"' in heard(other)


@pytest.mark.parametrize("wish", ["Upgrade: h2c", "upgrade: websocket", "UPGRADE:h2c"])
def test_a_wish_for_another_protocol_changes_nothing(server, wish):
    """Java's HttpClient and curl --http2 send it with a body."""
    settings = "HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA"
    wished = request(GOOD, "Connection: Upgrade, HTTP2-Settings", settings, wish)
    right = asked(server.port, request())
    assert right.startswith(b"HTTP/1.1 200 ")
    assert asked(server.port, wished) == right
    assert asked(server.usual, wished) == right


def test_the_same_words_in_a_body_stay_the_bodys():
    inside = b"x" * 300 + b"\r\nupgrade: h2c\r\n\r\n" + b"y" * 300
    taken = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message, body = await receive(), b""
        while message.get("more_body"):
            body += message["body"]
            message = await receive()
        taken.append(body + message["body"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def steps(connection: Any, turn: Any) -> None:
        message = request(inside, "Upgrade: h2c", "Connection: upgrade", path="/x")
        connection.data_received(message)
        await turn()
        for at in (150, 250, 300, 450):
            connection.data_received(message[:at])
            connection.data_received(message[at:])
            await turn()

    in_a_loop(app, steps)
    assert taken == [inside] * 5


# ------------------------------------------------------------------------------ behind a body


def chunked(*trailers: bytes, path: str = WAYS, headers: bytes = b"Host: localhost\r\n") -> bytes:
    head = b"POST %s HTTP/1.1\r\n%sTransfer-Encoding: chunked\r\n" % (path.encode(), headers)
    ends = b"".join(b"%s\r\n" % trailer for trailer in trailers)
    return head + b"\r\n%x\r\n%s\r\n0\r\n%s\r\n" % (len(GOOD), GOOD, ends)


@pytest.mark.parametrize("parts", [1, 2])
def test_what_stands_behind_a_body_is_no_header_of_the_request(server, parts):
    def said(message: bytes) -> bytes:
        middle = len(message) // 2
        return asked(
            server.port, *([message] if parts == 1 else [message[:middle], message[middle:]])
        )

    assert said(chunked(b"Content-Encoding: gzip", b"X: y")).startswith(b"HTTP/1.1 200 ")
    no_host = said(chunked(b"Host: localhost", headers=b""))
    assert no_host.startswith(b"HTTP/1.1 400 ")
    assert b"no Host header" in no_host


@pytest.mark.parametrize("path", [WAYS, "/nowhere"])
def test_trailers_without_end_are_not_kept_and_end_the_connection(server, path):
    endless = chunked(path=path)[:-2]
    with connect(server.port) as connection:
        connection.sendall(endless)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 10_000_000:
                connection.sendall(b"a: b\r\n" * 1000)
                sent += 6000
        assert sent < 5_000_000


# ----------------------------------------------------------------------- between two turns


class Transport:
    """Takes what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Nothing is read here."""

    resume_reading = pause_reading


def in_a_loop(app: Any, steps: Any) -> None:
    """Run ``steps(connection, turn)`` in an event loop."""

    async def run() -> None:
        kind = make_protocol_class(Limits(), 10, app)
        config = Config(app, http=kind, ws="none", log_config=None, lifespan="off")
        config.load()
        made: FastPathProtocol = kind(config, ServerState(), {})
        made.connection_made(Transport())

        async def turn() -> None:
            for _ in range(3):
                await asyncio.sleep(0)

        await steps(made, turn)

    asyncio.run(run())


def test_answers_are_written_when_all_that_was_read_is_answered(service):
    async def steps(connection: Any, turn: Any) -> None:
        connection.data_received(request())
        assert connection.transport.written == []
        await turn()
        assert len(connection.transport.written) == 1
        assert connection._last_fast_scope is connection.scope
        assert connection.timeout_keep_alive_task is not None

    in_a_loop(gated(service), steps)


def test_a_connection_that_is_shut_down_is_answered_before(service):
    async def steps(connection: Any, turn: Any) -> None:
        connection.data_received(request())
        connection.shutdown()
        assert len(connection.transport.written) == 1
        assert connection.transport.closed
        await turn()
        assert len(connection.transport.written) == 1

    in_a_loop(gated(service), steps)


@pytest.mark.parametrize("body", [GOOD, b"{"])
def test_a_client_that_is_gone_is_written_nothing(service, body):
    app = gated(service)

    async def steps(connection: Any, turn: Any) -> None:
        connection.data_received(request(body))
        connection.transport.close()
        connection.connection_lost(None)
        await turn()
        assert connection.transport.written == []
        assert app._working.count == 0

    in_a_loop(app, steps)


def test_a_busy_client_owes_nothing_though_its_request_waits_at_each_look(service):
    async def steps(connection: Any, turn: Any) -> None:
        for number in range(5):
            connection.data_received(request(number=number))
            connection.check_timeouts(1000.0 * number)
            await turn()
        assert len(connection.transport.written) == 5
        assert not connection.transport.closed

    in_a_loop(gated(service), steps)


def test_a_request_that_cannot_be_answered_keeps_no_other(service, caplog):
    app = gated(service)
    first = app.try_answer

    def broken(scope: Any, body: bytes) -> Any:
        if dict(scope["headers"])[b"x-request-id"] == b"r0":
            raise ZeroDivisionError("nobody foresaw this")
        return first(scope, body)

    app.try_answer = broken

    async def steps(connection: Any, turn: Any) -> None:
        other = type(connection)(connection.config, ServerState(), {})
        other.connection_made(Transport())
        connection.data_received(request(number=0))
        other.data_received(request(number=1))
        await turn()
        assert connection.transport.closed
        assert len(other.transport.written) == 1

    in_a_loop(app, steps)
    assert "nobody foresaw this" in caplog.text


def test_a_closing_server_says_so_with_its_last_answers(service, monkeypatch):
    monkeypatch.setattr(service, "closing", True)
    app = gated(service)

    async def steps(connection: Any, turn: Any) -> None:
        connection.server_state.default_headers = [(b"connection", b"close")]
        connection.data_received(request())
        await turn()
        assert b"connection: close" in b"".join(connection.transport.written)
        assert connection.transport.closed

    in_a_loop(app, steps)


def test_a_connection_that_is_reset_leaves_nothing_behind(service):
    """Not even for the time that an idle connection stays open."""

    async def steps(connection: Any, turn: Any) -> None:
        connection.data_received(request())
        await turn()
        timer = connection.timeout_keep_alive_task
        connection.connection_lost(ConnectionResetError())
        assert timer.cancelled()
        assert connection.timeout_keep_alive_task is None

    in_a_loop(gated(service), steps)


def test_very_many_requests_of_one_turn_are_answered_in_several(service):
    app = gated(service)
    first, order = app.try_answer, []

    def slow(scope: Any, body: bytes) -> Any:
        time.sleep(0.0015)
        order.append(dict(scope["headers"])[b"x-request-id"])
        return first(scope, body)

    app.try_answer = slow

    async def steps(connection: Any, turn: Any) -> None:
        kind, others = type(connection), []
        for number in range(6):
            other = kind(connection.config, ServerState(), {})
            other.connection_made(Transport())
            other.data_received(request(number=number))
            others.append(other)
        asyncio.get_running_loop().call_soon(order.append, b"another")
        others[4].data_received(request(number=9))  # before its turn: it is answered now
        for _ in range(6):
            await turn()
        assert [len(other.transport.written) for other in others] == [1, 1, 1, 1, 2, 1]

    in_a_loop(app, steps)
    assert order[0] == b"r4"
    assert 1 < order.index(b"another") < 6
    assert sorted(order) == sorted([b"another", *(b"r%d" % n for n in (0, 1, 2, 3, 4, 5, 9))])


def test_what_fails_is_answered_by_the_usual_way_which_says_why(service, monkeypatch):
    lines = Lines()
    app = gated(service, lines, log="json")

    def broken(*given: Any) -> None:
        raise ZeroDivisionError("nobody foresaw this")

    monkeypatch.setattr(
        service.repository.get("two"), "fast_path", SimpleNamespace(try_answer=broken)
    )
    app._try_inner = broken

    async def steps(connection: Any, turn: Any) -> None:
        connection.data_received(request())
        await turn()
        assert connection.transport.written[0].startswith(b"HTTP/1.1 500 ")

    in_a_loop(app, steps)
    assert [line["event"] for line in lines.json] == ["failed", "request"]


def test_slow_answers_do_not_wait_for_each_other(service):
    """Each is written when it is there, if the ones before it took long."""
    app = gated(service)
    first, order = app.try_answer, []

    def slow(scope: Any, body: bytes) -> Any:
        time.sleep(0.002)
        order.append("answered")
        return first(scope, body)

    app.try_answer = slow

    async def steps(connection: Any, turn: Any) -> None:
        kind = type(connection)
        both = [connection, kind(connection.config, ServerState(), {})]
        both[1].connection_made(Transport())
        for one in both:
            one.transport.write = lambda _: order.append("written")
            one.data_received(request())
        await turn()

    in_a_loop(app, steps)
    assert order == ["answered", "written"] * 2


# ---------------------------------------------------------------- serve fast running
# Deadlines, threads in bounds, and small requests that are answered together.


def late(seconds: float = 0.1) -> Deadlines:
    return Deadlines(seconds, TooSlowError("it took too long"))


# ----------------------------------------------------------------------- deadlines


def test_a_work_that_takes_too_long_ends_with_the_error_and_the_task_goes_on():
    async def work() -> str:
        deadlines = late()
        with pytest.raises(TooSlowError, match="took too long"), deadlines.limit_time():
            await asyncio.sleep(30)
        with deadlines.limit_time():
            await asyncio.sleep(0)  # the task is not cancelled any more
        assert not deadlines.pending
        assert asyncio.current_task().cancelling() == 0
        return "done"

    began = time.monotonic()
    assert asyncio.run(work()) == "done"
    assert time.monotonic() - began < 5


def test_of_many_works_only_those_too_long_are_ended():
    async def work(deadlines: Deadlines, seconds: float) -> str:
        try:
            with deadlines.limit_time():
                await asyncio.sleep(seconds)
        except TooSlowError:
            return "late"
        return "in time"

    async def all_of_them() -> list[str]:
        deadlines = late(0.4)
        return await asyncio.gather(*(work(deadlines, own) for own in (0, 30, 0.01, 30, 0.02)))

    assert asyncio.run(all_of_them()) == ["in time", "late", "in time", "late", "in time"]


def test_a_cancellation_from_elsewhere_stays_one():
    async def work() -> None:
        with late(30).limit_time():
            await asyncio.sleep(30)

    async def cancelled() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_deadlines_go_over_to_another_event_loop():
    deadlines = late()

    async def work() -> None:
        with pytest.raises(TooSlowError), deadlines.limit_time():
            await asyncio.sleep(30)

    asyncio.run(work())
    asyncio.run(work())


def test_no_sweep_is_due_when_nothing_is_under_way():
    async def work() -> None:
        deadlines = late(0.04)
        with deadlines.limit_time():
            pass
        assert deadlines._loop is not None
        await asyncio.sleep(0.1)
        assert deadlines._loop is None

    asyncio.run(work())


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
    scope = {"headers": []}
    own = Limits(**({"seconds": 0.2} | limits))

    async def whole() -> bytes:
        return await read_body(scope, receiver(*parts), own)

    return asyncio.run(whole())


@pytest.mark.parametrize(
    "parts",
    [(b"abc",), (0.01, b"abc"), (b"a", b"bc"), (0.01, b"a", 0.01, b"b", b"c"), (b"", b"abc")],
)
def test_a_body_is_read_whole_at_once_or_as_it_comes(parts):
    assert body_of(*parts) == b"abc"


@pytest.mark.parametrize("parts", [(30, b"abc"), (b"a", 30, b"bc"), (0.01, b"a", 30, b"bc")])
def test_a_slow_body_is_told_so_wherever_it_stops(parts):
    with pytest.raises(TooSlowError, match=r"within 0\.2 s"):
        body_of(*parts)


def test_a_trickle_of_bytes_does_not_begin_the_time_anew():
    with pytest.raises(TooSlowError):
        body_of(*(0.05, b"a") * 40)


@pytest.mark.parametrize("parts", [(None,), (0.01, None), (b"a", None), (0.01, b"a", 0.01, None)])
def test_a_client_that_goes_leaves_no_body(parts):
    with pytest.raises(InvalidRequestError, match="the client disconnected"):
        body_of(*parts)


@pytest.mark.parametrize(
    "parts", [(b"abcd",), (0.01, b"abcd"), (b"ab", b"cd"), (0.01, b"ab", b"cd")]
)
def test_a_body_beyond_the_limit_is_refused_however_it_comes(parts):
    with pytest.raises(ServeError, match="longer than 3 bytes"):
        body_of(*parts, body_bytes=3)


# ---------------------------------------------------------------------------- paths


async def asked_for(app: Any, path: str, method: str = "POST") -> tuple[int, bytes]:
    """Status and body of an answer."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    await app(scope, receiver(b"{}"), send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.sampled_from(["v2", "models", "versions", "infer", "two", "1", "", "a b", "é"]),
        max_size=8,
    ).map(lambda parts: "/" + "/".join(parts))
    | st.sampled_from(
        [
            "/v2/models/two/infer",
            "/v2/models/two/versions/1/infer",
            "/v2/models/x/infer",
            "/v2/models//infer",
        ]
    ),
    st.sampled_from(["POST", "GET"]),
)
def test_the_way_past_the_router_leads_where_the_router_does(path, method):
    direct, router = both_ways()
    assert asyncio.run(asked_for(direct, path, method)) == asyncio.run(
        asked_for(router, path, method)
    )


@functools.cache
def both_ways() -> tuple[InferDispatcher, Router]:
    """The way past the router, and the router."""
    service = serve_fast_running_service_of(serve_fast_running_two_columns())
    router = Router(list_routes(service), redirect_slashes=False)
    return InferDispatcher(service, router), router


# -------------------------------------------------------------------------- threads


def serve_fast_running_two_columns(**policies: Any) -> TreekitServed:
    schema = Schema(
        (Column("x"), Column("town", "nominal", ("Ulm", "Bonn"))), classes=("no", "yes")
    )
    right = subset("town", ["Bonn"], leaf([1, 9]), leaf([1, 0]))
    tree = threshold("x", 0.0, leaf([3, 1]), right)
    model = make_model(schema, [build_tree(tree, schema)], **policies)
    return TreekitServed("two", "1", "0" * 64, model)


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

    def parse_inputs(self, tensors: Sequence[Tensor]) -> Batch:
        raise NotImplementedError

    def compute_outputs(self, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        self.begun += 1
        assert self.go.wait(20)
        return [Tensor("n", "INT64", np.arange(batch.rows))]


ONE = Batch(1, (np.zeros((1, 2), np.float32),))


def test_an_answer_that_takes_too_long_is_503_and_its_thread_stays_taken():
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


def test_what_no_thread_has_place_for_is_refused_at_once_and_has_place_later():
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


def test_a_runner_that_is_closed_takes_no_more_and_drops_what_waits():
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


def test_large_requests_and_large_answers_do_not_keep_the_event_loop(monkeypatch):
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


def test_explanations_wait_for_threads_in_bounds_and_give_their_places_back():
    async def run() -> None:
        runner, go = Runner(Limits(), threads=1, queued=2), threading.Event()
        under_way = [asyncio.create_task(runner.run_explanation(go.wait, 20)) for _ in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(UnavailableError, match="2 explanations or rule lists are already"):
            await runner.run_explanation(time.sleep, 0)
        assert await runner.run_in_thread(len, "ab") == 2  # the others' threads are free
        go.set()
        assert await asyncio.gather(*under_way) == [True] * 3
        assert await runner.run_explanation(len, "ab") == 2
        runner.close()

    asyncio.run(run())


def test_an_explanation_that_is_given_up_gives_its_place_back():
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
