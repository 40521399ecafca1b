"""HTTP server on uvicorn: fast path, connection limits, and graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from time import perf_counter
from typing import Any, ClassVar

import msgspec

from treekit.errors import MissingExtraError

try:
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
except ImportError as missing:
    raise MissingExtraError("httptools and uvicorn", "serve") from missing

from treekit.serve.http.middleware import Middleware
from treekit.serve.scheduling import Service
from treekit.serve.settings import Limits, ServeSettings

# ---------------------------------------------------------------- http server

BACKLOG = 2048
"""Maximum connections waiting to be accepted."""

_KEEP_ALIVE_SECONDS = 75
"""Seconds that an idle connection stays open: longer than in load balancers (60 s), so that these
close connections first and never send a request on a closing one."""

_LINGER_SECONDS = 0.5
"""Seconds after the start of shutdown in which idle connections may still send requests."""

_CLOSE_HEADER = (b"connection", b"close")


def make_event_loop() -> asyncio.AbstractEventLoop:
    """Create an event loop with uvloop if installed, else with asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class HttpServer(uvicorn.Server):
    """HTTP server of one process.

    Parameters
    ----------
    app : Middleware
    service : Service
        Service, marked as closing at shutdown.
    settings : ServeSettings
    started : callable
        Called when the server is ready.
    beside : coroutine function
        Shutdown of other servers, run concurrently.
    """

    def __init__(
        self,
        app: Middleware,
        service: Service,
        settings: ServeSettings,
        started: Callable[[], None],
        beside: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(_make_config(app, settings))
        self._stop_others = beside
        self._service = service
        self._report_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening."""
        await super().startup(sockets)
        self._report_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: `treekit.serve.process.run` or the parent process handles signals."""
        yield

    def request_shutdown(self) -> None:
        """Shut down after all requests in progress; safe in a signal handler.

        The server is not ready from now on, so that load balancers use other servers.
        """
        self._service.closing = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer all requests in progress and stop.

        Active clients receive ``Connection: close`` with their next response, so no request is
        lost.  Then idle connections and the socket are closed.
        """
        self.server_state.default_headers[:] = [*self.server_state.default_headers, _CLOSE_HEADER]
        until = time.monotonic() + _LINGER_SECONDS
        while self.server_state.connections and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.02)
        await asyncio.gather(super().shutdown(sockets), self._stop_others())


def _make_config(app: Middleware, settings: ServeSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=make_protocol_class(settings.limits, middleware=app),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # addresses are only logged, and clients could forge the headers
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.limits.seconds),
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


# ---------------------------------------------------------------- fast path
# Extension of uvicorn's HTTP/1.1 protocol that answers the most common requests without a task.
#
# For each request uvicorn creates a task, an event and two messages, and scans the response
# headers: half of the time of a request with one row (measured).  A response available immediately
# needs none of this.  All other requests are processed by uvicorn as usual.
#
# Requests read in one iteration of the event loop are answered together and then written, which
# keeps code in the processor cache and wakes a client on the same machine only once.  With eight
# clients this saves a third of the time of a request (measured); no request waits longer than for
# the others of the same iteration, or half a millisecond.

_logger = logging.getLogger(__name__)

_match_infer_path = re.compile(rb"/[A-Za-z0-9._~/-]*/infer").fullmatch
"""Match targets of inference requests without escapes and query."""

_MAX_DELAY_SECONDS = 0.0005
"""Maximum seconds that a response waits for others."""

_MAX_TURN_SECONDS = 0.002
"""Maximum seconds per iteration, so that the event loop reads again and accepts connections."""

_MAX_TRAILER_BYTES = 1 << 16
"""Maximum bytes of trailers (headers after a body), which are ignored."""


class FastPathProtocol(HttpToolsProtocol):
    """Connection that answers requests immediately if head and body arrive together.

    Attributes
    ----------
    middleware : Middleware, optional
        Middleware that computes responses; None disables the fast path.
    complete_requests : list of FastPathProtocol
        Connections with a complete request read in this iteration of the event loop.
    """

    middleware: ClassVar[Middleware | None] = None
    complete_requests: ClassVar[list[FastPathProtocol]]

    _last_fast_scope: object = None
    """Scope of the last request answered on the fast path."""
    _pending_body: list[bytes] | None = None
    """Parts of the body of a pending request, which was not passed to uvicorn."""
    is_request_complete = False
    """Whether the pending request is complete and to be answered in this iteration."""
    _is_lost = False
    is_between_requests = True
    """Whether the next byte starts a request."""
    _in_head = False
    _trailer_bytes = 0
    """Bytes of trailers received after the body."""
    _is_first_request = False
    """Whether this is the first request of the bytes read: further pipelined requests are not
    answered on the fast path, so that other clients get their turn."""

    def data_received(self, data: bytes) -> None:
        """Receive bytes; a request with an incomplete body is passed to uvicorn."""
        self.answer_pending()
        self._is_first_request = True
        super().data_received(data)
        if (
            self._pending_body is not None
            and not self.is_request_complete
            and not self.transport.is_closing()
        ):
            self._pass_to_uvicorn()

    def on_message_begin(self) -> None:
        """Answer the previous request if it is pending."""
        self.answer_pending()
        self.is_between_requests, self._in_head, self._trailer_bytes = False, True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Receive a header; trailers must not become headers of the request."""
        if self._in_head:
            super().on_header(name, value)
            return
        self._trailer_bytes += len(name) + len(value)
        if self._trailer_bytes > _MAX_TRAILER_BYTES:
            raise ValueError("too many bytes of trailers")  # httptools stops parsing

    def on_headers_complete(self) -> None:
        """Pass the request to uvicorn, or hold it if it may be answered on the fast path."""
        self._in_head = False
        if self._is_first_request and self._allows_fast_path():
            self._pending_body = []
        else:
            super().on_headers_complete()
        self._is_first_request = False

    def on_body(self, body: bytes) -> None:
        """Receive a part of the body."""
        if self._pending_body is None:
            super().on_body(body)
        else:
            self._pending_body.append(body)

    def on_message_complete(self) -> None:
        """Queue a complete request, answered after all available bytes are read."""
        self.is_between_requests = True
        if self._pending_body is None:
            super().on_message_complete()
            return
        self.is_request_complete = True
        whole = self.complete_requests
        if not whole:
            self.loop.call_soon(_answer_requests, whole)
        whole.append(self)

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP, after the previous request."""
        self.answer_pending()
        super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection."""
        self._is_lost = True
        super().connection_lost(exc)
        # uvicorn keeps the timer of a reset connection, and thereby the complete connection.
        self._unset_keepalive_if_required()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Handle a half-closed connection; return True if a response is still pending."""
        self.answer_pending()
        super().eof_received()
        cycle = self.last_cycle
        if self.scheme == "https" or cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        return True

    def shutdown(self) -> None:
        """Close the connection after the pending response."""
        self.answer_pending()
        super().shutdown()

    def answer_pending(self) -> None:
        """Answer the pending request, if any."""
        if self.is_request_complete:
            self.write_response(self.compute_response())

    def compute_response(self) -> bytes:
        """Return the response to the pending request; empty if it was passed to uvicorn."""
        if not self.is_request_complete:  # settled before its turn
            return b""
        parts, gate = self._pending_body or [], self.middleware
        assert gate is not None  # noqa: S101 - otherwise no request is held
        self.is_request_complete = False
        scope: Any = self.scope
        path = self.url
        scope["method"], scope["path"], scope["raw_path"] = "POST", path.decode(), path
        found = gate.try_answer(scope, b"".join(parts))
        if found is None:
            if not self._is_lost:
                self._pass_to_uvicorn()
                super().on_message_complete()
            return b""
        self._pending_body, self._last_fast_scope = None, scope
        headers = self.server_state.default_headers + found.headers
        head = b"".join([b"%b: %b\r\n" % header for header in headers])
        return b"HTTP/1.1 200 OK\r\n%b\r\n%b" % (head, found.body)

    def write_response(self, answer: bytes) -> None:
        """Write the result of `answer`, and wait for the next request."""
        if answer and not self.transport.is_closing():
            self.transport.write(answer)
            self.on_response_complete()

    @property
    def last_cycle(self) -> RequestResponseCycle | None:
        """Last request passed to uvicorn, whose type omits None."""
        return self.cycle

    @property
    def has_head(self) -> bool:
        """Whether the head of the current or last request is complete."""
        if self._pending_body is not None or self._last_fast_scope is self.scope:
            return True
        return self.last_cycle is not None and self.last_cycle.scope is self.scope

    def _allows_fast_path(self) -> bool:
        """Return whether the head of the request and the connection allow the fast path."""
        parser, cycle = self.parser, self.last_cycle
        return (
            self.middleware is not None
            and _match_infer_path(self.url) is not None
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.expect_100_continue
            and (cycle is None or cycle.response_complete)
            and not self.flow.write_paused
            and not self.root_path
        )

    def _pass_to_uvicorn(self) -> None:
        parts, self._pending_body = self._pending_body or (), None
        super().on_headers_complete()
        for part in parts:
            super().on_body(part)


def _answer_requests(whole: list[FastPathProtocol]) -> None:
    """Answer the complete requests of one iteration; the rest of many in the next iteration.

    An event loop accepts one new connection per iteration, and health checks need new ones.
    """
    answers: list[tuple[FastPathProtocol, bytes]] = []
    begun = since = perf_counter()
    done = 0
    for connection in whole:
        done += 1
        try:
            answers.append((connection, connection.compute_response()))
        except Exception:
            _logger.exception("answering a request failed")
            connection.transport.close()
        now = perf_counter()
        if now - since > _MAX_DELAY_SECONDS:
            _write_responses(answers)
            since = now
            if now - begun > _MAX_TURN_SECONDS:
                break
    _write_responses(answers)
    del whole[:done]
    if whole:
        whole[0].loop.call_soon(_answer_requests, whole)


def _write_responses(answers: list[tuple[FastPathProtocol, bytes]]) -> None:
    for connection, answer in answers:
        connection.write_response(answer)
    answers.clear()


# ---------------------------------------------------------------- connection limits
# Protection of uvicorn's HTTP/1.1 protocol against slow clients.
#
# uvicorn waits indefinitely for the head of a request, accepts heads of any length, and keeps
# responses that are never read.  Here `Limits.seconds` applies to each of them, checked a few times
# per second for all connections, at no cost per request.

MAX_HEAD_BYTES = 64 << 10
"""Maximum bytes of request line and headers, not exact for heads read at once."""

MAX_HEADERS = 100
_UPGRADE_PATTERN = re.compile(rb"(?i)\r\nupgrade:")
_RESERVED_FILES = 100
"""File descriptors reserved for models, logs and listening sockets."""


class LimitedProtocol(FastPathProtocol):
    """Connection with time and size limits; subclassed by `make_protocol_class`.

    Attributes
    ----------
    limits : Limits
    max_connections : int
        Maximum concurrent connections.
    """

    limits: ClassVar[Limits]
    max_connections: ClassVar[int]
    open_connections: ClassVar[set[LimitedProtocol]]

    _head_bytes = 0
    _is_ending = False
    _head_error: tuple[int, str] | None = None
    # What the connection was waiting for at the last check, and since when.
    _awaited: object = None
    _awaited_since = 0.0
    _unread_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Watch the connection, or reject it if there are too many."""
        super().connection_made(transport)
        watched = self.open_connections
        if len(watched) >= self.max_connections:
            self._close_with_error(
                503, f"server busy: {self.max_connections} connections are open; retry later"
            )
            return
        if not watched:
            self.loop.call_later(
                _check_interval(self.limits), _check_connections, type(self), self.loop
            )
        watched.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the connection."""
        self.open_connections.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive bytes; close the connection if a head is too long."""
        if self._is_ending:
            return
        if b"pgrade" in data and self.is_between_requests:
            data = _rename_upgrade(data)
        super().data_received(data)
        if self.has_head:
            self._head_bytes = 0
        else:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._close_with_error(
                    431, f"the request's head is longer than {MAX_HEAD_BYTES:,} bytes"
                )

    def on_headers_complete(self) -> None:
        """Reject a head with too many headers."""
        if len(self.headers) > MAX_HEADERS:
            self._head_error = 431, f"the request has more than {MAX_HEADERS} headers"
            raise ValueError(
                self._head_error[1]
            )  # httptools stops; uvicorn calls send_400_response
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with a JSON error and close the connection."""
        status, message = self._head_error or (400, "invalid HTTP request")
        del msg
        self._close_with_error(status, message)

    def _close_with_error(self, status: int, message: str) -> None:
        """Close the connection with an error, after pending responses."""
        transport, cycle = self.transport, self.last_cycle
        self._is_ending = True
        if transport.is_closing():
            return
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            cycle.keep_alive = False  # its response is pending: the error concerns what follows it
            return
        if cycle is None or cycle.response_complete or not cycle.response_started:
            body = msgspec.json.encode({"error": message})
            transport.write(
                b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%s"
                % (status, HTTPStatus(status).phrase.encode(), len(body), body)
            )
        transport.close()

    def check_timeouts(self, now: float) -> None:
        """Close the connection if the client is too slow to send a head or read a response."""
        transport, seconds = self.transport, self.limits.seconds
        if transport.get_write_buffer_size():
            if self._unread_since is None:
                self._unread_since = now
            elif now - self._unread_since > seconds:
                transport.abort()  # close() would wait for the client to read
            return
        self._unread_since = None
        waits_for = self._find_awaited()
        if waits_for is None or waits_for is not self._awaited:
            self._awaited, self._awaited_since = waits_for, now
        elif now - self._awaited_since > seconds:
            if waits_for is self.scope:
                self._close_with_error(
                    408, f"the request's head did not arrive within {seconds:g} s"
                )
            else:
                transport.close()

    def _find_awaited(self) -> object:
        """Return an object that identifies what the client has yet to send, or None.

        Bodies are excluded, as `read_body` has its own time limit.
        """
        scope: object = self.scope  # None before the first byte, which uvicorn's type omits
        if scope is None:
            return self
        cycle = self.last_cycle
        if self.is_request_complete or (cycle is not None and not cycle.response_complete):
            return None
        if not self.has_head:
            return scope
        # Answered: uvicorn's keep-alive timer runs, unless bytes arrived that do not start a
        # request, such as the rest of an unread body.
        return self if self.timeout_keep_alive_task is None else None


def _rename_upgrade(data: bytes) -> bytes:
    """Rename the Upgrade header of a request, so that it is ignored.

    A server may ignore it and continue with HTTP/1.1 (RFC 9110, 7.8), but httptools would drop
    the body.  Java's client and curl request HTTP/2 with each first request.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE_PATTERN.sub(b"\r\nx-grade:", head) + end + rest if end else data


def make_protocol_class(
    limits: Limits, max_connections: int | None = None, middleware: Middleware | None = None
) -> type[LimitedProtocol]:
    """Create a connection class with limits, for uvicorn's setting ``http``.

    Parameters
    ----------
    limits : Limits
        `seconds` is used.
    max_connections : int, optional
        Maximum concurrent connections.  Default: the limit on open files, minus a reserve.
    middleware : Middleware, optional
        See `FastPathProtocol`.
    """

    class Limited(LimitedProtocol):
        pass

    Limited.limits = limits
    Limited.max_connections = _count_connections() if max_connections is None else max_connections
    Limited.open_connections = set()
    Limited.middleware, Limited.complete_requests = middleware, []
    return Limited


def _check_interval(limits: Limits) -> float:
    return min(1.0, limits.seconds / 8)


def _check_connections(kind: type[LimitedProtocol], loop: asyncio.AbstractEventLoop) -> None:
    now = loop.time()
    for connection in list(kind.open_connections):
        connection.check_timeouts(now)
    if kind.open_connections:
        loop.call_later(_check_interval(kind.limits), _check_connections, kind, loop)


def _count_connections() -> int:
    """Return the maximum number of connections of the process."""
    try:
        import resource
    except ImportError:  # Windows
        return 10_000
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, most - _RESERVED_FILES) if most != resource.RLIM_INFINITY else 1_000_000
