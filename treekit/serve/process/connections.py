"""HTTP/1.1 of uvicorn, with what it lacks against clients that are slow, or never end.

uvicorn waits for ever for a request's head, takes heads of any length, and holds answers that
nobody takes.  Here each of them has the seconds of `Limits`.  One look around a few times a
second finds them, so that a request costs nothing for it.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import ClassVar

import msgspec

from treekit.serve.gate.gate import Gate
from treekit.serve.process.at_once import AtOnceProtocol
from treekit.serve.settings import Limits

__all__ = ["BoundedProtocol", "bounded_protocol"]

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
