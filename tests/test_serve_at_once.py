"""Answers without a task: the same bytes, in their order, whatever way requests arrive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from uvicorn import Config
from uvicorn.server import ServerState

from tests.examples import examples
from tests.serving import infer_body, put_in_service
from tests.serving_gate import Lines, Twice, ask, connect, gated, on_port, service_of
from treekit.data.schema import Column, Schema
from treekit.model.builder import build_tree, leaf, threshold
from treekit.model.model import make_model
from treekit.serve.models.treekit_model import TreekitServed
from treekit.serve.process.uvicorn_server import HEAD_BYTES, AtOnceProtocol, bounded_protocol
from treekit.serve.settings import Limits

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
    first = app.at_once

    def counted(scope: Any, body: bytes) -> Any:
        answer = first(scope, body)
        at_once.append(answer is not None)
        return answer

    app.at_once = counted

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
        for _ in range(HEAD_BYTES // 4000 + 5):
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
        kind = bounded_protocol(Limits(), 10, app)
        config = Config(app, http=kind, ws="none", log_config=None, lifespan="off")
        config.load()
        made: AtOnceProtocol = kind(config, ServerState(), {})
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
        assert connection._answered is connection.scope
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
            connection.look(1000.0 * number)
            await turn()
        assert len(connection.transport.written) == 5
        assert not connection.transport.closed

    in_a_loop(gated(service), steps)


def test_a_request_that_cannot_be_answered_keeps_no_other(service, caplog):
    app = gated(service)
    first = app.at_once

    def broken(scope: Any, body: bytes) -> Any:
        if dict(scope["headers"])[b"x-request-id"] == b"r0":
            raise ZeroDivisionError("nobody foresaw this")
        return first(scope, body)

    app.at_once = broken

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
    first, order = app.at_once, []

    def slow(scope: Any, body: bytes) -> Any:
        time.sleep(0.0015)
        order.append(dict(scope["headers"])[b"x-request-id"])
        return first(scope, body)

    app.at_once = slow

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

    monkeypatch.setattr(service.repository.get("two"), "quick", SimpleNamespace(answer=broken))
    app._inner_at_once = broken

    async def steps(connection: Any, turn: Any) -> None:
        connection.data_received(request())
        await turn()
        assert connection.transport.written[0].startswith(b"HTTP/1.1 500 ")

    in_a_loop(app, steps)
    assert [line["event"] for line in lines.json] == ["failed", "request"]


def test_slow_answers_do_not_wait_for_each_other(service):
    """Each is written when it is there, if the ones before it took long."""
    app = gated(service)
    first, order = app.at_once, []

    def slow(scope: Any, body: bytes) -> Any:
        time.sleep(0.002)
        order.append("answered")
        return first(scope, body)

    app.at_once = slow

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
