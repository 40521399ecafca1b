"""Bounds of a server through HTTP, clients that are slow, and requests that are hardly HTTP."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving_gate import (
    INFER,
    Twice,
    connect,
    gated,
    on_port,
    rows,
    service_of,
    spoken,
    until_closed,
)

GOOD = json.dumps(rows(1, 2)).encode()


def request(body: bytes = GOOD, *headers: str, path: str = INFER, method: str = "POST") -> bytes:
    """A request as bytes; Content-Length unless the headers have their own framing."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    framed = any(re.match("(?i)content-length|transfer-encoding", line) for line in headers)
    if not framed:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


LAST = "Connection: close"


def statuses(answer: bytes) -> list[int]:
    """Of all answers in what a connection gave."""
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


class Server:
    """A server with small limits, and the model behind it."""

    def __init__(self, port: int, model: Twice) -> None:
        self.port, self.model = port, model
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, verify=False)

    def post(self, body: bytes = GOOD) -> httpx.Response:
        return self._client.post(INFER, content=body, headers={"Connection": "close"})

    def get(self, path: str) -> httpx.Response:
        return self._client.get(path, headers={"Connection": "close"})


@contextlib.contextmanager
def served(folder: Path, most: int | None = None, loop: str = "auto", **limits: Any) -> Any:
    model = Twice()
    service = service_of(model, folder=folder, **limits)
    with on_port(gated(service), service.limits, most, loop) as port:
        yield Server(port, model)
    service.runner.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    limits = {"body_bytes": 300_000, "rows": 10, "explained_rows": 2, "requests": 96}
    with served(folder, seconds=1.0, **limits) as made:
        yield made


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that waits for little more than a moment."""
    with served(tmp_path_factory.mktemp("models"), seconds=0.4) as made:
        yield made


# -------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [300_001, 5_000_000])
def test_a_body_that_is_too_long_is_413(server: Server, size: int, chunked: bool) -> None:
    body: Any = b" " * size
    answer = server.post(iter([body[: size // 2], body[size // 2 :]]) if chunked else body)
    assert answer.status_code == 413
    assert "300,000 bytes" in answer.json()["error"]
    assert server.post().status_code == 200


def test_a_body_of_just_the_limit_is_read(server: Server) -> None:
    assert server.post(GOOD.ljust(300_000)).status_code == 200


@pytest.mark.system
def test_a_body_that_never_ends_is_taken_no_longer_than_the_limit_of_time(hasty: Server) -> None:
    start = time.monotonic()
    with connect(hasty.port) as connection:
        connection.sendall(request(b"", "Content-Length: 99999999999"))
        with contextlib.suppress(OSError):
            while time.monotonic() - start < 8:
                connection.sendall(b" " * 1000)
                time.sleep(0.01)
    assert 0.3 < time.monotonic() - start < 5


def test_too_many_rows_are_413(server: Server) -> None:
    assert server.post(json.dumps(rows(*range(10))).encode()).status_code == 200
    answer = server.post(json.dumps(rows(*range(11))).encode())
    assert answer.status_code == 413
    assert "this server takes 10" in answer.json()["error"]


def test_too_many_rows_to_explain_are_413(server: Server) -> None:
    assert server.post(json.dumps(rows(1, 2, outputs=["why"])).encode()).status_code == 200
    answer = server.post(json.dumps(rows(1, 2, 3, outputs=["why"])).encode())
    assert answer.status_code == 413
    assert "explains 2" in answer.json()["error"]


@pytest.mark.system
def test_a_body_that_does_not_arrive_is_408_and_the_connection_ends(hasty: Server) -> None:
    start = time.monotonic()
    answer = spoken(hasty.port, request(GOOD[:-5], f"Content-Length: {len(GOOD)}"))
    assert statuses(answer) == [408]
    assert b"connection: close" in answer
    assert 0.3 < time.monotonic() - start < 4


@pytest.mark.system
def test_an_answer_that_takes_too_long_is_503(hasty: Server) -> None:
    end = threading.Event()
    hasty.model.meanwhile = lambda: end.wait(5)
    answer = hasty.post()
    hasty.model.meanwhile = lambda: None
    end.set()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "longer than 0.4 s" in answer.json()["error"]


@pytest.mark.system
def test_more_requests_than_the_limit_are_429_and_the_others_are_answered(tmp_path: Path) -> None:
    with served(tmp_path, requests=3, seconds=10.0) as small:
        hold, begun = threading.Event(), threading.Semaphore(0)

        def wait() -> None:
            begun.release()
            hold.wait(10)

        small.model.meanwhile = wait
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            held = [pool.submit(small.post) for _ in range(3)]
            assert begun.acquire(timeout=5)  # the two threads of the runner are busy
            assert begun.acquire(timeout=5)
            time.sleep(0.2)  # the third waits for one of them
            busy = small.post()
            assert busy.status_code == 429
            assert busy.headers["retry-after"] == "1"
            assert small.get("/v2/health/live").status_code == 200
            hold.set()
            assert [task.result().status_code for task in held] == [200] * 3
        assert small.post().status_code == 200


def test_more_connections_than_the_limit_are_turned_away(tmp_path: Path) -> None:
    with served(tmp_path, most=3, seconds=10.0) as small:
        held = [connect(small.port) for _ in range(3)]
        for connection in held:
            connection.sendall(request())
            assert statuses(connection.recv(4096)) == [200]
        assert statuses(spoken(small.port, b"")) == [503]
        held.pop().close()
        until = time.monotonic() + 5  # the server has to notice
        while small.post().status_code != 200:
            assert time.monotonic() < until
        for connection in held:
            connection.close()


# -------------------------------------------------------------------------- slow clients


@pytest.mark.system
def test_a_head_that_does_not_arrive_is_408(hasty: Server) -> None:
    for part in (b"POST ", request()[:40]):
        start = time.monotonic()
        answer = spoken(hasty.port, part)
        assert statuses(answer) == [408], part
        assert b"head did not arrive within 0.4 s" in answer
        assert 0.3 < time.monotonic() - start < 3


@pytest.mark.system
def test_a_second_head_that_does_not_arrive_is_408(hasty: Server) -> None:
    with connect(hasty.port) as connection:
        connection.sendall(request())
        assert statuses(connection.recv(4096)) == [200]
        connection.sendall(b"GET /v2")
        start = time.monotonic()
        assert statuses(until_closed(connection)) == [408]
        assert time.monotonic() - start < 3


@pytest.mark.system
@pytest.mark.parametrize("drop", [b"x", b"\r\n"])
def test_a_connection_that_drips_and_asks_nothing_is_closed(hasty: Server, drop: bytes) -> None:
    """Bytes that come one by one stop uvicorn's own clock."""
    for first in (b"", request()):
        with connect(hasty.port) as connection:
            connection.sendall(first)
            start = time.monotonic()
            with contextlib.suppress(OSError):
                while time.monotonic() - start < 6:
                    connection.sendall(drop)
                    time.sleep(0.1)
            assert time.monotonic() - start < 5


@pytest.mark.system
def test_a_connection_that_says_nothing_is_closed(hasty: Server) -> None:
    start = time.monotonic()
    assert spoken(hasty.port, b"") == b""
    assert time.monotonic() - start < 3


@pytest.mark.system
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_client_that_does_not_read_its_answers_is_dropped(tmp_path: Path, loop: str) -> None:
    with served(tmp_path, seconds=1.0, loop=loop) as patient, connect(patient.port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.5)
        many = request(json.dumps(rows(*[1e-300] * 50_000)).encode())
        with contextlib.suppress(TimeoutError):  # the server reads no more where nobody reads it
            for _ in range(40):
                connection.sendall(many)

        def in_progress() -> float:
            found = re.search(r"\ntreekit_requests_in_progress (\S+)", patient.get("/metrics").text)
            assert found is not None
            return float(found[1])

        assert in_progress() == 2  # this one, and the one whose answer is not taken
        start = time.monotonic()
        while in_progress() == 2:
            time.sleep(0.1)
            assert time.monotonic() - start < 6
        assert patient.post().status_code == 200


@pytest.mark.system
def test_a_client_that_takes_its_time_for_a_large_answer_gets_it_whole(server: Server) -> None:
    """Slow, and within the limit."""
    body = json.dumps(rows(*range(10))).encode()
    with connect(server.port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sendall(request(body, LAST))
        got = b""
        while part := connection.recv(64):
            got += part
            time.sleep(0.02)
    assert json.loads(got.partition(b"\r\n\r\n")[2])["outputs"][0]["data"][9] == 18


@pytest.mark.system
def test_64_slow_clients_hold_up_nobody(hasty: Server) -> None:
    """Of four kinds; the good one beside them is answered as ever."""
    kinds = [
        b"POST /v2/mod",
        request(GOOD[:-9], f"Content-Length: {len(GOOD)}"),
        request(b"", "Transfer-Encoding: chunked") + b"fffff\r\n{",
        b"",
    ]
    over = threading.Event()

    def slow(number: int) -> bool:
        """Drip until the server ends it; whether it did."""
        start = time.monotonic()
        try:
            with connect(hasty.port) as connection:
                connection.sendall(kinds[number % 4])
                while time.monotonic() - start < 9:
                    if over.wait(0.05 + number / 2000):
                        return False
                    connection.sendall(b" ")
        except OSError:
            return time.monotonic() - start < 5
        return False

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        tasks = [pool.submit(slow, number) for number in range(64)]
        time.sleep(0.3)
        took = []
        for _ in range(60):
            start = time.monotonic()
            assert hasty.post().status_code == 200
            took.append(time.monotonic() - start)
            time.sleep(0.02)
        assert all(task.result() for task in tasks)
        over.set()
    assert sorted(took)[len(took) // 2] < 0.5


@pytest.mark.system
def test_what_ends_leaves_no_connection_behind(tmp_path: Path) -> None:
    with served(tmp_path, seconds=0.5) as small:
        held = [connect(small.port) for _ in range(10)]
        for connection in held:
            connection.sendall(b"GET /")
        for connection in held:
            assert statuses(until_closed(connection)) == [408]
            connection.close()
        start = time.monotonic()
    # The server's end waits for connections that are open: there is none.
    assert time.monotonic() - start < 1.5


# ------------------------------------------------------------------------- hardly HTTP


def test_a_head_that_is_too_long_is_431(server: Server) -> None:
    long = [f"X-{number}: {'a' * 3000}" for number in range(90)]
    assert statuses(spoken(server.port, request(GOOD, *long, LAST)[:200_000])) == [431]
    assert statuses(spoken(server.port, b"GET /" + b"a" * 200_000)) == [431]
    fits = [f"X-{number}: {'a' * 500}" for number in range(90)]
    assert statuses(spoken(server.port, request(GOOD, *fits, LAST))) == [200]


def test_too_many_headers_are_431(server: Server) -> None:
    answer = spoken(server.port, request(GOOD, *[f"X-{n}: a" for n in range(150)]))
    assert statuses(answer) == [431]
    assert b"more than 100 headers" in answer


@pytest.mark.parametrize(
    "bad",
    [
        request(GOOD, "Content-Length: 5", "Content-Length: 6"),
        request(GOOD, "Content-Length: 5", "Transfer-Encoding: chunked"),
        request(GOOD, "Transfer-Encoding: chunked", "Content-Length: 5"),
        request(GOOD, "Content-Length: -1"),
        request(GOOD, "Content-Length: +5"),
        request(GOOD, "Content-Length: 0x5"),
        request(GOOD, "Content-Length: 99999999999999999999999999"),
        request(GOOD, "Content-Length: 5, 5"),
        request(GOOD, "Transfer-Encoding: xchunked"),
        request(GOOD, "Transfer-Encoding: chunked, identity"),
        request(b"zz\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
        request(b"-5\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
        request(b"fffffffffffffffffff\r\n", "Transfer-Encoding: chunked"),
        request(GOOD, "X : a"),
        request(GOOD, " X: folded"),
        request(GOOD, "X: a\x00b"),
        request(GOOD, "X: a\nHost: evil.example"),
        b"GET /v2 HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /\xe9 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"FROB /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"hello\r\n\r\n",
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_refused_and_ends(server: Server, bad: bytes) -> None:
    answer = spoken(server.port, bad + request(GOOD, LAST))
    assert statuses(answer)[:1] == [400], answer
    assert 200 not in statuses(answer)
    assert server.post().status_code == 200


def test_chunks_are_read(server: Server) -> None:
    body = (
        b"".join(b"%x;ext=1\r\n%s\r\n" % (len(p), p) for p in (GOOD[:7], GOOD[7:])) + b"0\r\n\r\n"
    )
    answer = spoken(server.port, request(body, "Transfer-Encoding: chunked", LAST))
    assert statuses(answer) == [200]


def test_pipelined_requests_are_answered_in_their_order(server: Server) -> None:
    many = b"".join(request(json.dumps(rows(n)).encode()) for n in range(20))
    answer = spoken(server.port, many + request(GOOD, LAST))
    assert statuses(answer) == [200] * 21
    assert [float(found) for found in re.findall(rb'"data":\[([0-9.]+)\]', answer)] == [
        2.0 * n for n in range(20)
    ]


def test_what_is_no_http_after_a_request_ends_the_connection_after_its_answer(
    server: Server,
) -> None:
    answer = spoken(server.port, request() + b"\x00\x01 what\r\n\r\n")
    assert statuses(answer) == [200]
    assert b'"data":[2.0,4.0]' in answer


def test_http_1_0_is_answered_and_closed(server: Server) -> None:
    head = f"POST {INFER} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len(GOOD)}\r\n\r\n"
    answer = spoken(server.port, head.encode() + GOOD)
    assert statuses(answer) == [200]
    assert b"connection: close" in answer
    assert statuses(spoken(server.port, b"GET /v2/health/live HTTP/1.0\r\n\r\n")) == [200]
    assert statuses(spoken(server.port, b"GET /v2 HTTP/1.0\r\n\r\n")) == [400]


def test_head_has_no_body(server: Server) -> None:
    answer = spoken(server.port, request(b"", LAST, path="/v2/health/live", method="HEAD"))
    assert statuses(answer) == [200]
    assert answer.endswith(b"\r\n\r\n")


def test_a_client_that_asks_whether_to_go_on_is_told(server: Server) -> None:
    with connect(server.port) as connection:
        head = request(b"", f"Content-Length: {len(GOOD)}", "Expect: 100-continue", LAST)
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(GOOD)
        assert statuses(until_closed(connection)) == [200]


def test_a_refused_client_that_asked_whether_to_go_on_is_not_and_ends(server: Server) -> None:
    """Its body may come or not: a request after it must not be taken for the body."""
    head = request(
        b"", "Content-Length: 999999", "Expect: 100-continue", "Origin: https://evil.example"
    )
    answer = spoken(server.port, head)
    assert statuses(answer) == [403]
    assert b"connection: close" in answer


def test_a_request_that_names_another_host_in_its_target_has_its_path(server: Server) -> None:
    answer = spoken(
        server.port, request(b"", LAST, path="http://evil.example/v2/health/live", method="GET")
    )
    assert statuses(answer) == [200]


def test_an_upgrade_is_not_made(server: Server) -> None:
    for upgrade in ("websocket", "h2c"):
        answer = spoken(
            server.port,
            request(
                b"", "Connection: Upgrade, close", f"Upgrade: {upgrade}", path="/v2", method="GET"
            ),
        )
        assert statuses(answer) == [200], upgrade


def test_bodies_are_held_within_a_bound_together(tmp_path: Path) -> None:
    """Sixteen of the longest at once; the seventeenth is told to come again."""
    with served(tmp_path, body_bytes=200_000, seconds=20.0) as own:
        held = []
        for _ in range(16):
            connection = connect(own.port)
            connection.sendall(request(b"", "Content-Length: 200000") + b" " * 199_000)
            held.append(connection)
        until, answers = time.monotonic() + 10, []
        while 429 not in answers and time.monotonic() < until:
            answers += statuses(spoken(own.port, request(GOOD.ljust(190_000), LAST)))
        assert 429 in answers
        assert own.post().status_code == 200  # small ones are not meant
        for connection in held:
            connection.close()
        while answers[-1] != 200 and time.monotonic() < until:
            answers += statuses(spoken(own.port, request(GOOD.ljust(190_000), LAST)))
        assert answers[-1] == 200
