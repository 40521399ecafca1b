"""uvicorn as this server's HTTP: how it listens, and how it ends without losing an answer."""

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

from treekit.serve.http.middleware import Gate
from treekit.serve.scheduling import Service
from treekit.serve.settings import Limits, ServeSettings

__all__ = [
    "BACKLOG",
    "AtOnceProtocol",
    "BoundedProtocol",
    "HttpServer",
    "bounded_protocol",
    "new_event_loop",
]


# ---------------------------------------------------------------- http server

BACKLOG = 2048
"""Connections that wait to be taken up."""

_KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than load balancers keep theirs (60 s),
so that it is they who close it, and none sends a request into a closing one."""

_LINGER = 0.5
"""Seconds after the call to end in which connections that come to life are still answered."""

_CLOSE = (b"connection", b"close")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop where it is installed, else of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class HttpServer(uvicorn.Server):
    """One process' HTTP server.

    Parameters
    ----------
    app : Gate
    service : Service
        Told that it closes when the server is to end.
    settings : ServeSettings
    started : callable
        Called when it answers.
    beside : coroutine function
        Ends what ends at the same time.
    """

    def __init__(
        self,
        app: Gate,
        service: Service,
        settings: ServeSettings,
        started: Callable[[], None],
        beside: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(_config(app, settings))
        self._beside = beside
        self._service = service
        self._tell_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self._tell_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to who runs the server: `run` or the parent process."""
        yield

    def end(self) -> None:
        """End when what is being answered is answered; safe in a signal handler.

        From now on the server is not ready, so that load balancers turn to others.
        """
        self._service.closing = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what has begun, and end.

        Clients that are at work learn with their next answer that the connection closes after
        it, and lose none.  Only then are idle connections closed, and the socket.
        """
        self.server_state.default_headers[:] = [*self.server_state.default_headers, _CLOSE]
        until = time.monotonic() + _LINGER
        while self.server_state.connections and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.02)
        await asyncio.gather(super().shutdown(sockets), self._beside())


def _config(app: Gate, settings: ServeSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=bounded_protocol(settings.limits, gate=app),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # addresses decide nothing here, and anybody could claim one
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(settings.limits.seconds),
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


# ---------------------------------------------------------------- at once
# HTTP/1.1 of uvicorn, which answers the commonest request without a task.
#
# For each request uvicorn makes a task, an event and two messages, and looks through the headers
# of the answer: half of what one row takes (measured).  None of it is needed by an answer that
# is there at once.  Whatever is not plainly such a request goes on as it always would.
#
# What the event loop reads in one turn is answered together, and only then written: the same
# code runs again while the processor still has it, and a client on the same machine is woken
# once.  With eight clients that is a third of what a request takes (measured); none waits for
# more than the answers of others that came at the same time, or half a millisecond.

_log = logging.getLogger(__name__)

_PLAIN = re.compile(rb"/[A-Za-z0-9._~/-]*/infer").fullmatch
"""Targets of inference requests whose path is written as it is: no escapes, no query."""

_LONGEST = 0.0005
"""Seconds that an answer waits for others."""

_TURN = 0.002
"""Seconds after which the event loop reads again, and takes up a new connection."""

_TRAILERS = 1 << 16
"""Bytes of headers behind a body that are read, and dropped: nobody here asks for any."""


class AtOnceProtocol(HttpToolsProtocol):
    """A connection whose requests are begun when their body is there, if that is at once.

    Attributes
    ----------
    gate : Gate, optional
        Gives answers at once; None: there are none such.
    whole : list of AtOnceProtocol
        Connections with a request that was read in this turn of the event loop.
    """

    gate: ClassVar[Gate | None] = None
    whole: ClassVar[list[AtOnceProtocol]]

    _answered: object = None
    """The scope of the last request that was answered at once."""
    _held: list[bytes] | None = None
    """The body, so far, of a request that is not begun."""
    is_whole = False
    """Whether the request that is held waits to be answered, in this turn of the event loop."""
    _is_lost = False
    is_between = True
    """Whether the next byte begins a request."""
    _in_head = False
    _trailers = 0
    """Bytes of headers that came behind the body."""
    _fresh = False
    """Whether this is the first request of what was read: one that sends many waits for others
    between them."""

    def data_received(self, data: bytes) -> None:
        """Take bytes; a request whose body is not all there begins as it always would."""
        self.settle()
        self._fresh = True
        super().data_received(data)
        if self._held is not None and not self.is_whole and not self.transport.is_closing():
            self._begin()

    def on_message_begin(self) -> None:
        """Answer the request before this one, if that still waits."""
        self.settle()
        self.is_between, self._in_head, self._trailers = False, True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one behind the body would else be one of the request's."""
        if self._in_head:
            super().on_header(name, value)
            return
        self._trailers += len(name) + len(value)
        if self._trailers > _TRAILERS:
            raise ValueError("more trailers than anybody sends")  # httptools ends parsing

    def on_headers_complete(self) -> None:
        """Begin a request, or wait for what else was read with its head."""
        self._in_head = False
        if self._fresh and self._common():
            self._held = []
        else:
            super().on_headers_complete()
        self._fresh = False

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if self._held is None:
            super().on_body(body)
        else:
            self._held.append(body)

    def on_message_complete(self) -> None:
        """Put a whole request to those that are answered when all are read."""
        self.is_between = True
        if self._held is None:
            super().on_message_complete()
            return
        self.is_whole = True
        whole = self.whole
        if not whole:
            self.loop.call_soon(_answer_all, whole)
        whole.append(self)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, after the request before it."""
        self.settle()
        super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        """Answer nobody any more."""
        self._is_lost = True
        super().connection_lost(exc)
        # uvicorn leaves the timer of one that was reset, and with it all of the connection.
        self._unset_keepalive_if_required()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a client that has closed its side; True: an answer is still to come."""
        self.settle()
        super().eof_received()
        cycle = self.newest
        if self.scheme == "https" or cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        return True

    def shutdown(self) -> None:
        """End the connection, after the answer that it waits for."""
        self.settle()
        super().shutdown()

    def settle(self) -> None:
        """Answer the request that waits, if one does."""
        if self.is_whole:
            self.write(self.answer())

    def answer(self) -> bytes:
        """The answer to the request that waits; empty: it has begun as it always would."""
        if not self.is_whole:  # settled before its turn
            return b""
        held, gate = self._held or [], self.gate
        assert gate is not None  # noqa: S101 - or nothing would be held
        self.is_whole = False
        scope: Any = self.scope
        path = self.url
        scope["method"], scope["path"], scope["raw_path"] = "POST", path.decode(), path
        found = gate.at_once(scope, b"".join(held))
        if found is None:
            if not self._is_lost:
                self._begin()
                super().on_message_complete()
            return b""
        self._held, self._answered = None, scope
        headers = self.server_state.default_headers + found.headers
        head = b"".join([b"%b: %b\r\n" % header for header in headers])
        return b"HTTP/1.1 200 OK\r\n%b\r\n%b" % (head, found.body)

    def write(self, answer: bytes) -> None:
        """Write what `answer` gave, and wait for the next request."""
        if answer and not self.transport.is_closing():
            self.transport.write(answer)
            self.on_response_complete()

    @property
    def newest(self) -> RequestResponseCycle | None:
        """The newest request that has begun as it always would; uvicorn's type has no None."""
        return self.cycle

    @property
    def has_head(self) -> bool:
        """Whether the head is whole of what is read, or was read last."""
        if self._held is not None or self._answered is self.scope:
            return True
        return self.newest is not None and self.newest.scope is self.scope

    def _common(self) -> bool:
        """Whether nothing is special about the request's head, or the connection."""
        parser, cycle = self.parser, self.newest
        return (
            self.gate is not None
            and _PLAIN(self.url) is not None
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.expect_100_continue
            and (cycle is None or cycle.response_complete)
            and not self.flow.write_paused
            and not self.root_path
        )

    def _begin(self) -> None:
        held, self._held = self._held or (), None
        super().on_headers_complete()
        for part in held:
            super().on_body(part)


def _answer_all(whole: list[AtOnceProtocol]) -> None:
    """Answer what has come whole in one turn of the event loop, the rest of very many in the next.

    A loop takes up one new connection a turn, and health is asked over new ones.
    """
    answers: list[tuple[AtOnceProtocol, bytes]] = []
    begun = since = perf_counter()
    done = 0
    for connection in whole:
        done += 1
        try:
            answers.append((connection, connection.answer()))
        except Exception:  # noqa: BLE001 - the others have nothing to do with it
            _log.exception("a request could not be answered")
            connection.transport.close()
        now = perf_counter()
        if now - since > _LONGEST:
            _write_all(answers)
            since = now
            if now - begun > _TURN:
                break
    _write_all(answers)
    del whole[:done]
    if whole:
        whole[0].loop.call_soon(_answer_all, whole)


def _write_all(answers: list[tuple[AtOnceProtocol, bytes]]) -> None:
    for connection, answer in answers:
        connection.write(answer)
    answers.clear()


# ---------------------------------------------------------------- connections
# HTTP/1.1 of uvicorn, with what it lacks against clients that are slow, or never end.
#
# uvicorn waits for ever for a request's head, takes heads of any length, and holds answers that
# nobody takes.  Here each of them has the seconds of `Limits`.  One look around a few times a
# second finds them, so that a request costs nothing for it.

HEAD_BYTES = 64 << 10
"""Of a request line and headers; what came in the same read as its end may be more."""

HEADERS = 100
_UPGRADE = re.compile(rb"(?i)\r\nupgrade:")
_FILES_LEFT = 100
"""File descriptors that connections leave to models, logs and sockets that listen."""


class BoundedProtocol(AtOnceProtocol):
    """A connection that has so many seconds for each thing; made by `bounded_protocol`.

    Attributes
    ----------
    limits : Limits
    most : int
        Connections at once.
    """

    limits: ClassVar[Limits]
    most: ClassVar[int]
    watched: ClassVar[set[BoundedProtocol]]

    _head_bytes = 0
    _ending = False
    _why: tuple[int, str] | None = None
    # What the connection was found waiting for when it was last looked at, and since when.
    _waits_for: object = None
    _waits_since = 0.0
    _unread_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Watch the connection, or refuse it if there are too many."""
        super().connection_made(transport)
        watched = self.watched
        if len(watched) >= self.most:
            self._end_with(503, f"{self.most} connections are open, as many as this server takes")
            return
        if not watched:
            self.loop.call_later(_pause(self.limits), _look_around, type(self), self.loop)
        watched.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Watch it no more."""
        self.watched.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; a head that grows on and on ends the connection."""
        if self._ending:
            return
        if b"pgrade" in data and self.is_between:
            data = _without_upgrade(data)
        super().data_received(data)
        if self.has_head:
            self._head_bytes = 0
        else:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._end_with(431, f"the request's head is longer than {HEAD_BYTES:,} bytes")

    def on_headers_complete(self) -> None:
        """Refuse a head of too many headers before it is a request."""
        if len(self.headers) > HEADERS:
            self._why = 431, f"the request has more than {HEADERS} headers"
            raise ValueError(self._why[1])  # httptools ends parsing, uvicorn calls the next method
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, as JSON; the connection ends with it."""
        status, message = self._why or (400, "this is no HTTP request that this server can read")
        del msg
        self._end_with(status, message)

    def _end_with(self, status: int, message: str) -> None:
        """End the connection with an error, after the answers that are still to come."""
        transport, cycle = self.transport, self.newest
        self._ending = True
        if transport.is_closing():
            return
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            cycle.keep_alive = False  # what came after it is the error
            return
        if cycle is None or cycle.response_complete or not cycle.response_started:
            body = msgspec.json.encode({"error": message})
            transport.write(
                b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%s"
                % (status, HTTPStatus(status).phrase.encode(), len(body), body)
            )
        transport.close()

    def look(self, now: float) -> None:
        """End the connection if what it waits for, or the client, has taken too long."""
        transport, seconds = self.transport, self.limits.seconds
        if transport.get_write_buffer_size():
            if self._unread_since is None:
                self._unread_since = now
            elif now - self._unread_since > seconds:
                transport.abort()  # close() would wait for the client to read on
            return
        self._unread_since = None
        waits_for = self._client_owes()
        if waits_for is None or waits_for is not self._waits_for:
            self._waits_for, self._waits_since = waits_for, now
        elif now - self._waits_since > seconds:
            if waits_for is self.scope:
                self._end_with(408, f"the request's head did not arrive within {seconds:g} s")
            else:
                transport.close()

    def _client_owes(self) -> object:
        """What is to come of the client, the same object for the same thing; None: nothing.

        Bodies that are waited for are not among it: who reads them has a clock, too.
        """
        scope: object = self.scope  # None before the first byte, which uvicorn's type has not
        if scope is None:
            return self
        cycle = self.newest
        if self.is_whole or (cycle is not None and not cycle.response_complete):
            return None
        if not self.has_head:
            return scope
        # Answered: uvicorn's own clock for the next request runs, unless bytes came that are
        # none, as the rest of a body that nobody wanted.
        return self if self.timeout_keep_alive_task is None else None


def _without_upgrade(data: bytes) -> bytes:
    """The bytes of a request whose wish for another protocol has another name.

    A server may go on in HTTP/1.1 as if nothing were said (RFC 9110, 7.8); httptools would
    leave out the body.  Java's client and curl wish for HTTP/2 with each first request.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nx-grade:", head) + end + rest if end else data


def bounded_protocol(
    limits: Limits, most: int | None = None, gate: Gate | None = None
) -> type[BoundedProtocol]:
    """The class of connections with these limits: uvicorn's ``http``.

    Parameters
    ----------
    limits : Limits
        `seconds` is read.
    most : int, optional
        Connections at once.  Default: what the process may open, but for some.
    gate : Gate, optional
        See `AtOnceProtocol`.
    """

    class Bounded(BoundedProtocol):
        pass

    Bounded.limits = limits
    Bounded.most = _files() if most is None else most
    Bounded.watched = set()
    Bounded.gate, Bounded.whole = gate, []
    return Bounded


def _pause(limits: Limits) -> float:
    return min(1.0, limits.seconds / 8)


def _look_around(kind: type[BoundedProtocol], loop: asyncio.AbstractEventLoop) -> None:
    now = loop.time()
    for connection in list(kind.watched):
        connection.look(now)
    if kind.watched:
        loop.call_later(_pause(kind.limits), _look_around, kind, loop)


def _files() -> int:
    """How many connections the process may have."""
    try:
        import resource
    except ImportError:  # Windows
        return 10_000
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, most - _FILES_LEFT) if most != resource.RLIM_INFINITY else 1_000_000
