"""Access to a server: hosts, origins, tokens, headers and limits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving import save_forest, server_thread
from tests.serving_gate import (
    INFER,
    Lines,
    Twice,
    ask,
    ask_async,
    connect,
    make_gate_app,
    on_port,
    rows,
    send_bytes,
    service_of,
    until_closed,
)
from treekit.errors import SettingError, TreekitWarning
from treekit.serve.cancellation import check_cancelled
from treekit.serve.errors import UnauthorisedError
from treekit.serve.http import Reply, Request, Route, json_routes
from treekit.serve.http.app import HttpApp, make_app
from treekit.serve.http.auth import Access, BearerToken
from treekit.serve.http.metrics import Metrics
from treekit.serve.http.page import list_page_paths
from treekit.serve.settings import ServeSettings

# ---------------------------------------------------------------- serve gate

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def service(tmp_path: Path) -> Any:
    made = service_of(Twice(), folder=tmp_path, requests=4)
    yield made
    made.runner.close()


@pytest.fixture
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("secret") / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


# ------------------------------------------------------------------------------- Host


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1:80", "[::1]:8080", "models.example"],
)
def test_request_with_an_allowed_host_is_accepted(service: Any, host: str) -> None:
    app = make_gate_app(service, allow_hosts=("models.example",))
    for _ in range(2):  # the second time it is known
        assert ask(app, "GET", "/v2", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "192.168.0.7",
        "127.0.0.1.evil.example",
        "xlocalhost",
    ],
)
def test_request_with_an_unknown_host_is_refused_with_a_remedy(service: Any, host: str) -> None:
    app = make_gate_app(service)
    ask(app, "GET", "/v2")
    answer = ask(app, "GET", "/v2", headers={"Host": host})
    assert answer.status_code == 403
    assert f"--allow-host {host.removesuffix(':8080')}" in answer.json()["error"]
    assert ask(app, "POST", INFER, json=rows(1), headers={"Host": host}).status_code == 403


@pytest.mark.parametrize(
    "host", ["", "a b", "localhost/x", "user@localhost", "[::1", "localhost:x"]
)
def test_an_invalid_host_is_refused(service: Any, host: str) -> None:
    assert ask(make_gate_app(service), "GET", "/v2", headers={"Host": host}).status_code == 400


def test_two_host_headers_are_refused(service: Any) -> None:
    app = make_gate_app(service)
    for hosts in (("evil.example", "localhost"), ("localhost", "evil.example")):
        answer = ask(app, "GET", "/v2", headers=[("Host", host) for host in hosts])
        assert answer.status_code == 400
    twice = [("Host", "localhost"), ("Accept", "a/b"), ("Accept", "c/d")]
    assert ask(app, "GET", "/v2", headers=twice).status_code == 200


def test_two_origin_headers_are_refused(service: Any) -> None:
    app = make_gate_app(service, allow_origins=("https://good.example",))
    twice = [("Origin", "https://evil.example"), ("Origin", "https://good.example")]
    answer = ask(app, "GET", "/v2", headers=twice)
    assert answer.status_code == 400
    assert "more than one Origin header" in answer.json()["error"]


def test_server_on_all_addresses_accepts_ip_hosts_and_refuses_unknown_names(
    service: Any,
) -> None:
    for bound in ("0.0.0.0", "::", ""):
        app = make_gate_app(service, host=bound)
        for host in ("10.1.2.3:8080", "[2001:db8::7]:8080"):
            assert ask(app, "GET", "/v2", headers={"Host": host}).status_code == 200
        for host in ("evil.example", "10.1.2.3.evil.example", "0x7f.1"):
            assert ask(app, "GET", "/v2", headers={"Host": host}).status_code == 403


def test_bound_host_is_allowed(service: Any) -> None:
    for bound, host in (("box.lan", "Box.lan:9"), ("10.0.0.5", "10.0.0.5:9"), ("::5", "[::5]:9")):
        app = make_gate_app(service, host=bound)
        assert ask(app, "GET", "/v2", headers={"Host": host}).status_code == 200
        assert ask(app, "GET", "/v2", headers={"Host": "10.0.0.6"}).status_code == 403


def test_any_host_is_accepted_if_configured_or_embedded(service: Any) -> None:
    for app in (make_gate_app(service, allow_hosts=("*",)), make_app(service)):
        assert ask(app, "GET", "/v2", headers={"Host": "whatever.example"}).status_code == 200


def test_health_is_answered_for_any_host(service: Any, token_file: Path) -> None:
    app = make_gate_app(service, token_file=str(token_file))
    for path in ("/v2/health/live", "/v2/health/ready"):
        answer = ask(app, "GET", path, headers={"Host": "10.2.3.4:8080", "Origin": "null"})
        assert answer.status_code == 200
    assert ask(app, "GET", "/v2/health/../models/twice").status_code in (401, 404)


@pytest.mark.parametrize("host", ["http://a.example", "a.example/x", "a b", ""])
def test_an_invalid_allowed_host_is_refused_at_startup(host: str) -> None:
    with pytest.raises(SettingError, match="--allow-host"):
        Access(ServeSettings(("-",), allow_hosts=(host,)))


def test_cache_of_checked_hosts_is_bounded(service: Any) -> None:
    access = Access(ServeSettings(("-",)))
    for port in range(5000):
        access.check_source("http", b"localhost:%d" % port, None, None, None)
    assert access.check_source.cache_info().currsize <= 64


# ----------------------------------------------------------------------------- Origin


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000", ""])
def test_requests_of_another_origin_are_refused(service: Any, origin: str) -> None:
    ran = threading.Event()
    next(service.repository.served).meanwhile = ran.set
    answer = ask(make_gate_app(service), "POST", INFER, json=rows(1), headers={"Origin": origin})
    assert answer.status_code == 403
    assert "--allow-origin" in answer.json()["error"]
    assert "access-control-allow-origin" not in answer.headers
    assert not ran.is_set()


def test_requests_of_the_server_page_are_accepted(service: Any) -> None:
    app = make_gate_app(service)
    headers = {"Host": "localhost:8080", "Origin": "http://localhost:8080"}
    headers["Sec-Fetch-Site"] = "same-origin"
    assert ask(app, "POST", INFER, json=rows(1), headers=headers).status_code == 200
    headers["Origin"] = "https://localhost:8080"  # a proxy ends TLS
    assert ask(app, "POST", INFER, json=rows(1), headers=headers).status_code == 200
    headers["Origin"] = "http://localhost:8081"
    assert ask(app, "POST", INFER, json=rows(1), headers=headers).status_code == 403


def test_x_forwarded_host_does_not_allow_a_host(service: Any) -> None:
    headers = {"Host": "evil.example", "X-Forwarded-Host": "localhost:8080"}
    app = make_gate_app(service)
    assert ask(app, "POST", INFER, json=rows(1), headers=headers).status_code == 403


def test_cross_site_request_without_origin_is_refused_except_for_the_page(
    service: Any,
) -> None:
    app = make_gate_app(service)
    for site, status in (("cross-site", 403), ("same-origin", 200), ("none", 200)):
        headers = {"Sec-Fetch-Site": site}
        assert ask(app, "GET", "/v2/models/twice", headers=headers).status_code == status
        # A link to the page may stand anywhere.
        assert ask(app, "GET", "/", headers=headers).status_code == 200


def test_an_allowed_origin_gets_cors_headers(service: Any) -> None:
    app = make_gate_app(service, allow_origins=("https://App.example",))
    headers = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
    answer = ask(app, "POST", INFER, json=rows(1), headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    for origin in ("https://app.example.evil.example", "http://app.example", "null"):
        refused = ask(app, "POST", INFER, json=rows(1), headers={"Origin": origin})
        assert refused.status_code == 403
        assert "access-control-allow-origin" not in refused.headers
        assert refused.headers["vary"] == "Origin"
    assert ask(app, "GET", "/v2").headers["vary"] == "Origin"


def test_a_preflight_is_answered_for_allowed_origins_without_a_token(
    service: Any, token_file: Path
) -> None:
    app = make_gate_app(service, allow_origins=("https://app.example",), token_file=str(token_file))
    headers = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    answer = ask(app, "OPTIONS", INFER, headers=headers)
    assert answer.status_code == 200
    assert answer.content == b""
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "authorization" in answer.headers["access-control-allow-headers"]
    assert ask(app, "POST", INFER, json=rows(1), headers=headers).status_code == 401
    headers["Origin"] = "https://evil.example"
    assert ask(app, "OPTIONS", INFER, headers=headers).status_code == 403
    # Without Origin it is an ordinary request of a method that is not there.
    del headers["Origin"]
    headers["Authorization"] = f"Bearer {TOKEN}"
    assert ask(app, "OPTIONS", INFER, headers=headers).status_code == 405


def test_any_origin_is_accepted_if_configured(service: Any) -> None:
    app = make_gate_app(service, allow_origins=("*",))
    for origin in ("null", "https://anybody.example"):
        answer = ask(app, "POST", INFER, json=rows(1), headers={"Origin": origin})
        assert answer.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize("origin", ["app.example", "https://a.example/", "https://a/b", "null"])
def test_an_invalid_allowed_origin_is_refused_at_startup(origin: str) -> None:
    with pytest.raises(SettingError, match="--allow-origin"):
        Access(ServeSettings(("-",), allow_origins=(origin,)))


# ------------------------------------------------------------------------------ token


def test_all_paths_except_health_and_page_files_require_the_token(
    service: Any, token_file: Path
) -> None:
    app = make_gate_app(service, token_file=str(token_file))
    for path in ("/v2", "/v2/models/twice", "/metrics", "/nothing", "/page.html", "/page.js/"):
        answer = ask(app, "GET", path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "Authorization: Bearer" in answer.json()["error"]
    assert ask(app, "POST", INFER, json=rows(1)).status_code == 401
    assert {"/", "/page.css", "/page.js"} < list_page_paths()
    for path in ("/v2/health/live", "/v2/health/ready", *list_page_paths()):
        assert ask(app, "GET", path).status_code == 200, path


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer   {TOKEN} ", 200),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Bearer {TOKEN}x", 401),
        ("Bearer ", 401),
        ("Bearer é", 401),
        ("", 401),
    ],
)
def test_only_the_complete_token_is_accepted(
    service: Any, token_file: Path, value: str, status: int
) -> None:
    app = make_gate_app(service, token_file=str(token_file))
    headers = {"Authorization": value.encode("latin-1")}
    assert ask(app, "GET", "/v2", headers=headers).status_code == status


def test_grpc_access_checks_the_same_token(token_file: Path) -> None:
    access = Access(ServeSettings(("-",), token_file=str(token_file)))
    access.check_token(f"Bearer {TOKEN}".encode())
    with pytest.raises(UnauthorisedError):
        access.check_token(None)
    Access(ServeSettings(("-",))).check_token(None)


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "valid token"), ("\n", "valid token"), ("short", "5 characters"),
     ("a b" * 9, "valid token"), ("x" * 20 + "\n" + "y" * 20, "valid token"),
     ("é" * 20, "valid token"), ("x" * 9000, "valid token")],
)  # fmt: skip
def test_token_file_without_a_valid_token_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(SettingError, match=says) as caught:
        BearerToken(path)
    assert "xxxx" not in str(caught.value)


def test_missing_token_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot read the token file"):
        BearerToken(tmp_path / "absent")


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX'")
def test_world_readable_token_file_warns(token_file: Path) -> None:
    token_file.chmod(0o644)
    with pytest.warns(TreekitWarning, match="chmod o-r"):
        BearerToken(token_file)


def test_token_is_reloaded_from_its_file_unless_invalid(
    token_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("treekit.serve.http.auth._CHECK_SECONDS", 0.0)
    token = BearerToken(token_file)
    new = b"Bearer " + b"n" * 20

    def put(text: str) -> None:
        other = token_file.with_suffix(".new")
        other.write_text(text)
        other.replace(token_file)

    put("n" * 20)
    token.check_header(new)
    with pytest.raises(UnauthorisedError):
        token.check_header(f"Bearer {TOKEN}".encode())
    put("short")
    token.check_header(new)
    token.check_header(new)
    token_file.unlink()
    token.check_header(new)
    put("m" * 20)
    token.check_header(b"Bearer " + b"m" * 20)
    said = [record.levelname for record in caplog.records]
    assert said == ["WARNING", "ERROR", "ERROR", "WARNING"]
    assert "n" * 20 not in caplog.text


# ---------------------------------------------------------------------- ids and headers


def test_request_id_is_taken_from_the_header_or_generated(service: Any) -> None:
    app = make_gate_app(service)
    given = ask(app, "GET", "/v2", headers={"X-Request-Id": "Req-1_a.b"})
    assert given.headers["x-request-id"] == "Req-1_a.b"
    made = {ask(app, "GET", "/v2").headers["x-request-id"] for _ in range(20)}
    made |= {ask(make_gate_app(service), "GET", "/v2").headers["x-request-id"] for _ in range(20)}
    assert len(made) == 40
    for hostile in ("", "x" * 65, "a b", "a\x1b[2J", "<script>", "é"):
        answer = ask(app, "GET", "/v2", headers={"X-Request-Id": hostile.encode()})
        assert answer.headers["x-request-id"] not in ("", hostile)


def test_responses_carry_security_headers(service: Any) -> None:
    app = make_gate_app(service)
    got = ask(app, "GET", "/v2/models/twice").headers
    assert got["x-content-type-options"] == "nosniff"
    assert got["cache-control"] == "no-store"
    assert got["referrer-policy"] == "no-referrer"
    assert ask(app, "POST", INFER, json=rows(1)).headers["x-content-type-options"] == "nosniff"


def test_headers_set_by_an_endpoint_are_kept(service: Any) -> None:
    async def page(request: Request) -> Reply:
        headers = ((b"cache-control", b"max-age=60"), (b"x-content-type-options", b"nosniff"))
        return Reply(b"page", headers=headers)

    answer = ask(_only(page, service), "GET", "/v2")
    assert answer.headers.get_list("cache-control") == ["max-age=60"]
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_unknown_paths_return_json_errors(service: Any) -> None:
    app = make_gate_app(service)
    missing = ask(app, "GET", "/nothing")
    assert missing.status_code == 404
    assert missing.json() == {
        "error": "GET /nothing: unknown path; see /openapi.json for all paths"
    }
    wrong = ask(app, "GET", INFER)
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert wrong.json()["error"] == f"GET {INFER}: this path requires POST"
    assert "application/json" in wrong.headers["content-type"]


# ----------------------------------------------------------------- how much, and the end


def test_request_beyond_the_limit_gets_retry_after(service: Any) -> None:
    hold, twice = threading.Event(), next(service.repository.served)
    twice.meanwhile = lambda: hold.wait(10)
    app = make_gate_app(service)

    async def run() -> None:
        held = [asyncio.create_task(ask_async(app, "POST", INFER, json=rows(1))) for _ in range(4)]
        while len(service.working.records) < 4:
            await asyncio.sleep(0.01)
        answer = await ask_async(app, "POST", INFER, json=rows(1))
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "1"
        assert "4 requests" in answer.json()["error"]
        for path in ("/v2/health/live", "/v2/health/ready", "/metrics"):
            assert (await ask_async(app, "GET", path)).status_code == 200
        hold.set()
        assert [(await task).status_code for task in held] == [200] * 4
        assert (await ask_async(app, "POST", INFER, json=rows(1))).status_code == 200

    asyncio.run(run())
    assert len(service.working.records) == 0


def test_closing_server_answers_requests_and_is_not_ready(service: Any) -> None:
    app = make_gate_app(service)
    service.closing = True
    assert ask(app, "POST", INFER, json=rows(1)).status_code == 200
    ready = ask(app, "GET", "/v2/health/ready")
    assert ready.status_code == 503
    assert ready.headers["retry-after"] == "1"
    assert ask(app, "GET", "/v2/health/live").status_code == 200


# --------------------------------------------------------------------------- last resort


def _only(handle: Any, service: Any, lines: Lines | None = None) -> HttpApp:
    """The application with one endpoint, GET /v2."""
    if lines is not None:
        lines.collect()
    settings = ServeSettings(("-",), limits=service.limits)
    routes = [Route("GET", "/v2", handle, "server")]
    return HttpApp(service, settings, Access(settings), Metrics(service), routes)


def test_an_unexpected_error_returns_only_its_id_to_the_client(service: Any) -> None:
    def fail() -> None:
        raise RuntimeError("secret /home/me")

    next(service.repository.served).meanwhile = fail
    lines = Lines()
    answer = ask(make_gate_app(service, lines, log="json"), "POST", INFER, json=rows(1))
    assert answer.status_code == 500
    request_id = answer.headers["x-request-id"]
    assert request_id in answer.json()["error"]
    assert "secret" not in answer.text
    failed, line = lines.json
    assert failed["event"] == "failed"
    assert failed["id"] == line["id"] == request_id
    assert "secret /home/me" in failed["traceback"]
    assert "in fail" in failed["traceback"]
    assert (line["status"], line["level"]) == (500, "error")


def test_cancelled_request_is_no_longer_counted_in_progress(service: Any) -> None:
    async def wait(request: Request) -> Reply:
        await asyncio.sleep(60)
        return Reply(b"")

    lines = Lines()
    app = _only(wait, service, lines)

    async def run() -> None:
        task = asyncio.create_task(ask_async(app, "GET", "/v2"))
        while not len(service.working.records):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert len(service.working.records) == 0
    assert [(line["status"], line["level"]) for line in lines.json] == [(0, "warning")]


@pytest.mark.matrix
def test_a_service_is_mounted_below_a_path_of_another_application(service: Any) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    app = Starlette(routes=[Mount("/trees", make_app(service))])
    assert ask(app, "GET", "/trees/v2/health/live").status_code == 200
    assert ask(app, "POST", f"/trees{INFER}", json=rows(1)).status_code == 200
    assert ask(app, "GET", "/trees/nothing").status_code == 404


def test_a_websocket_is_closed(service: Any) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(make_gate_app(service)({"type": "websocket", "headers": []}, None, send))
    assert [message["type"] for message in sent] == ["websocket.close"]


def test_requests_create_no_reference_cycles(service: Any) -> None:
    import gc

    app = make_gate_app(service)
    ask(app, "POST", INFER, json=rows(1))
    scope = {"type": "http", "method": "GET", "path": "/v2", "scheme": "http"}
    scope |= {"headers": [(b"host", b"localhost")], "client": None, "query_string": b""}

    class Connection:
        def __init__(self, scope: Any) -> None:
            self.scope = scope  # as uvicorn's has it

        async def send(self, message: Any) -> None:
            pass

    async def run() -> int:
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                own = dict(scope)
                await app(own, None, Connection(own).send)
            del own
            return sum(type(found) is Connection for found in gc.get_objects())
        finally:
            gc.enable()

    assert asyncio.run(run()) == 0


# ---------------------------------------------------------------- serve gate limits
# Bounds of a server through HTTP, clients that are slow, and requests that are hardly HTTP.

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
    with on_port(make_gate_app(service), service.limits, loop, most=most) as port:
        yield Server(port, model)
    service.runner.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    limits = {"body_bytes": 300_000, "rows": 10, "explained_rows": 2, "requests": 96}
    with served(folder, seconds=1.0, **limits) as made:
        yield made


@pytest.fixture(scope="module")
def short_time_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that waits for little more than a moment."""
    with served(tmp_path_factory.mktemp("models"), seconds=0.4) as made:
        yield made


# -------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [300_001, 5_000_000])
def test_body_beyond_the_limit_returns_413(server: Server, size: int, chunked: bool) -> None:
    body: Any = b" " * size
    answer = server.post(iter([body[: size // 2], body[size // 2 :]]) if chunked else body)
    assert answer.status_code == 413
    assert "300,000 bytes" in answer.json()["error"]
    assert server.post().status_code == 200


def test_body_of_exactly_the_limit_is_accepted(server: Server) -> None:
    assert server.post(GOOD.ljust(300_000)).status_code == 200


@pytest.mark.system
def test_endless_body_is_read_no_longer_than_the_time_limit(short_time_server: Server) -> None:
    start = time.monotonic()
    with connect(short_time_server.port) as connection:
        connection.sendall(request(b"", "Transfer-Encoding: chunked"))
        with contextlib.suppress(OSError):
            while time.monotonic() - start < 8:
                connection.sendall(b"1\r\n \r\n")
                time.sleep(0.01)
    assert 0.3 < time.monotonic() - start < 5


def test_too_many_rows_return_413(server: Server) -> None:
    assert server.post(json.dumps(rows(*range(10))).encode()).status_code == 200
    answer = server.post(json.dumps(rows(*range(11))).encode())
    assert answer.status_code == 413
    assert "this server takes 10" in answer.json()["error"]


def test_too_many_rows_to_explain_return_413(server: Server) -> None:
    assert server.post(json.dumps(rows(1, 2, outputs=["why"])).encode()).status_code == 200
    answer = server.post(json.dumps(rows(1, 2, 3, outputs=["why"])).encode())
    assert answer.status_code == 413
    assert "explains 2" in answer.json()["error"]


@pytest.mark.system
def test_body_that_does_not_arrive_returns_408_and_closes_the_connection(
    short_time_server: Server,
) -> None:
    start = time.monotonic()
    answer = send_bytes(short_time_server.port, request(GOOD[:-5], f"Content-Length: {len(GOOD)}"))
    assert statuses(answer) == [408]
    assert b"connection: close" in answer
    assert 0.3 < time.monotonic() - start < 4


@pytest.mark.system
def test_slow_prediction_returns_503(short_time_server: Server) -> None:
    end = threading.Event()
    short_time_server.model.meanwhile = lambda: end.wait(5)
    answer = short_time_server.post()
    short_time_server.model.meanwhile = lambda: None
    end.set()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "longer than 0.4 s" in answer.json()["error"]


@pytest.mark.system
@pytest.mark.parametrize("is_gone", [True, False])
def test_prediction_stops_when_its_client_disconnects_or_time_ends(
    tmp_path: Path, is_gone: bool
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        try:
            for _ in range(2000):
                check_cancelled()
                time.sleep(0.01)
        finally:
            ended.set()

    with served(tmp_path, seconds=20.0 if is_gone else 0.5) as own:
        own.model.meanwhile = work
        with connect(own.port) as connection:
            connection.sendall(request(GOOD, LAST))
            assert begun.wait(10)
            assert not ended.is_set()
            if not is_gone:
                assert statuses(until_closed(connection))[0] == 503
        assert ended.wait(5)
        own.model.meanwhile = lambda: None
        assert own.post().status_code == 200


@pytest.mark.system
def test_rule_search_stops_when_its_client_disconnects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def search(*given: Any) -> Iterator[int]:
        begun.set()
        try:
            for _ in range(2000):
                check_cancelled()
                time.sleep(0.01)
                yield 0
        finally:
            ended.set()

    monkeypatch.setattr(json_routes._TranslatedRules, "_search_rules", search)
    save_forest(tmp_path / "m.treekit")
    with server_thread(tmp_path) as url:
        port = int(url.rpartition(":")[2])
        with connect(port) as connection:
            connection.sendall(request(b"", path="/models/m/rules?search=x", method="GET"))
            assert begun.wait(10)
        assert ended.wait(5)
        assert httpx.get(f"{url}/v2/health/live").status_code == 200


@pytest.mark.system
def test_requests_beyond_the_limit_return_429_and_others_are_answered(tmp_path: Path) -> None:
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


def test_connections_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    with served(tmp_path, most=4, seconds=10.0) as small:
        held = [connect(small.port) for _ in range(3)]
        for connection in held:
            connection.sendall(request())
            assert statuses(connection.recv(4096)) == [200]
        assert statuses(send_bytes(small.port, request())) == [503]
        held.pop().close()
        until = time.monotonic() + 5  # the server has to notice
        while small.post().status_code != 200:
            assert time.monotonic() < until
        for connection in held:
            connection.close()


# -------------------------------------------------------------------------- slow clients


@pytest.mark.system
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_client_that_does_not_read_its_responses_is_dropped(tmp_path: Path, loop: str) -> None:
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
def test_slow_client_gets_a_large_response_completely(server: Server) -> None:
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
def test_64_slow_clients_do_not_block_others(short_time_server: Server) -> None:
    """Of four kinds; the good one beside them is answered as ever.

    Those whose body does not arrive are ended.  uvicorn has no limit for heads: the others are
    left to a proxy.
    """
    kinds = [
        b"POST /v2/mod",
        b"",
        request(GOOD[:-99], f"Content-Length: {10**5}"),
        request(b"", "Transfer-Encoding: chunked") + b"fffff\r\n{",
    ]
    over = threading.Event()

    def slow(number: int) -> bool:
        """Drip until the server ends it, or all is over; return whether it did."""
        start = time.monotonic()
        try:
            with connect(short_time_server.port) as connection:
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
            assert short_time_server.post().status_code == 200
            took.append(time.monotonic() - start)
            time.sleep(0.02)
        assert all(task.result() for task in tasks if tasks.index(task) % 4 > 1)
        over.set()
    assert sorted(took)[len(took) // 2] < 0.5


# ------------------------------------------------------------------------- hardly HTTP


def test_headers_beyond_the_size_limit_return_431(server: Server) -> None:
    long = [f"X-{number}: {'a' * 3000}" for number in range(90)]
    assert statuses(send_bytes(server.port, request(GOOD, *long, LAST))) == [431]
    assert statuses(send_bytes(server.port, request(path=f"/{'a' * 65_530}", method="GET"))) == [
        431
    ]
    fits = [f"X-{number}: {'a' * 500}" for number in range(90)]
    assert statuses(send_bytes(server.port, request(GOOD, *fits, LAST))) == [200]


def test_too_many_headers_return_431(server: Server) -> None:
    answer = send_bytes(server.port, request(GOOD, *[f"X-{n}: a" for n in range(150)]))
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
def test_ambiguous_framing_is_refused_and_closes_the_connection(server: Server, bad: bytes) -> None:
    answer = send_bytes(server.port, bad + request(GOOD, LAST))
    assert statuses(answer)[:1] == [400], answer
    assert 200 not in statuses(answer)
    assert server.post().status_code == 200


def test_chunked_bodies_are_read(server: Server) -> None:
    body = (
        b"".join(b"%x;ext=1\r\n%s\r\n" % (len(p), p) for p in (GOOD[:7], GOOD[7:])) + b"0\r\n\r\n"
    )
    answer = send_bytes(server.port, request(body, "Transfer-Encoding: chunked", LAST))
    assert statuses(answer) == [200]


def test_pipelined_requests_are_answered_in_their_order(server: Server) -> None:
    many = b"".join(request(json.dumps(rows(n)).encode()) for n in range(20))
    answer = send_bytes(server.port, many + request(GOOD, LAST))
    assert statuses(answer) == [200] * 21
    assert [float(found) for found in re.findall(rb'"data":\[([0-9.]+)\]', answer)] == [
        2.0 * n for n in range(20)
    ]


def test_invalid_http_after_a_request_closes_the_connection(server: Server) -> None:
    answer = send_bytes(server.port, request() + b"\x00\x01 what\r\n\r\n")
    assert statuses(answer)[-1] == 400
    assert server.post().status_code == 200


def test_http_1_0_is_answered_and_closed(server: Server) -> None:
    head = f"POST {INFER} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len(GOOD)}\r\n\r\n"
    answer = send_bytes(server.port, head.encode() + GOOD)
    assert statuses(answer) == [200]
    assert b"connection: close" in answer
    assert statuses(send_bytes(server.port, b"GET /v2/health/live HTTP/1.0\r\n\r\n")) == [200]
    assert statuses(send_bytes(server.port, b"GET /v2 HTTP/1.0\r\n\r\n")) == [400]


def test_head_has_no_body(server: Server) -> None:
    answer = send_bytes(server.port, request(b"", LAST, path="/v2/health/live", method="HEAD"))
    assert statuses(answer) == [200]
    assert answer.endswith(b"\r\n\r\n")


def test_expect_100_continue_is_answered(server: Server) -> None:
    with connect(server.port) as connection:
        head = request(b"", f"Content-Length: {len(GOOD)}", "Expect: 100-continue", LAST)
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(GOOD)
        assert statuses(until_closed(connection)) == [200]


def test_refused_expect_100_continue_closes_the_connection(server: Server) -> None:
    """Its body may come or not: a request after it must not be taken for the body."""
    head = request(
        b"", "Content-Length: 999999", "Expect: 100-continue", "Origin: https://evil.example"
    )
    answer = send_bytes(server.port, head)
    assert statuses(answer) == [403]
    assert b"connection: close" in answer


def test_request_target_in_absolute_form_is_routed_by_its_path(server: Server) -> None:
    answer = send_bytes(
        server.port, request(b"", LAST, path="http://evil.example/v2/health/live", method="GET")
    )
    assert statuses(answer) == [200]


def test_upgrade_headers_are_ignored(server: Server) -> None:
    for upgrade in ("websocket", "h2c"):
        answer = send_bytes(
            server.port,
            request(
                b"", "Connection: Upgrade, close", f"Upgrade: {upgrade}", path="/v2", method="GET"
            ),
        )
        assert statuses(answer) == [200], upgrade


def test_total_size_of_bodies_in_memory_is_limited(tmp_path: Path) -> None:
    """Sixteen of the longest at once; the seventeenth is told to come again."""
    with served(tmp_path, body_bytes=200_000, seconds=20.0) as own:
        held = []
        for _ in range(16):
            connection = connect(own.port)
            connection.sendall(request(b"", "Content-Length: 200000") + b" " * 199_000)
            held.append(connection)
        until, answers = time.monotonic() + 10, []
        while 429 not in answers and time.monotonic() < until:
            answers += statuses(send_bytes(own.port, request(GOOD.ljust(190_000), LAST)))
        assert 429 in answers
        assert own.post().status_code == 200  # small ones are not meant
        for connection in held:
            connection.close()
        while answers[-1] != 200 and time.monotonic() < until:
            answers += statuses(send_bytes(own.port, request(GOOD.ljust(190_000), LAST)))
        assert answers[-1] == 200
