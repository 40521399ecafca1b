"""Bodies, answers and errors over ASGI: what all HTTP endpoints share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from types import coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from treekit.serve.errors import (
    BusyError,
    InvalidRequestError,
    ServeError,
    TooLargeError,
    TooSlowError,
)
from treekit.serve.protocol.tensor_data import inflated
from treekit.serve.scheduling import Deadlines
from treekit.serve.settings import Limits

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

__all__ = [
    "REFUSED",
    "Endpoint",
    "Headers",
    "Reply",
    "error_reply",
    "json_reply",
    "read_body",
]

Headers = Iterable[tuple[bytes, bytes]]

REFUSED = "treekit.refused"
"""Key of a scope: what its endpoint refused the request for."""

_HELD = "treekit.held"
"""Key of a scope: bytes of the request's body that are held."""

_JSON = b"application/json"
_MESSAGE = 2_000
_BODIES = 16
"""How many bodies of the most bytes that one may have are held at once; what comes in one
piece, 64 KB or so, is not counted."""


class Reply(NamedTuple):
    """An answer: bytes, what they are, and headers beside type and length."""

    body: bytes
    status: int = 200
    media: bytes = _JSON
    headers: Headers = ()

    def own_headers(self) -> list[tuple[bytes, bytes]]:
        """All headers, a new list."""
        return [
            (b"content-type", self.media),
            (b"content-length", b"%d" % len(self.body)),
            *self.headers,
        ]

    async def send(self, send: Send) -> None:
        """Send all of it."""
        start = {"type": "http.response.start", "status": self.status}
        await send({**start, "headers": self.own_headers()})
        await send({"type": "http.response.body", "body": self.body})


def json_reply(value: Any, status: int = 200, headers: Headers = ()) -> Reply:
    """A value as JSON."""
    return Reply(msgspec.json.encode(value), status, headers=headers)


def error_reply(status: int, message: str, headers: Headers = ()) -> Reply:
    """The protocol's ``$error_response``; what a request brought is cut where it is long."""
    if len(message) > _MESSAGE:
        message = f"{message[:_MESSAGE]}..."
    message = message.encode(errors="backslashreplace").decode()  # names of files may be no UTF-8
    return json_reply({"error": message}, status, headers)


class Endpoint:
    """An ASGI application of one function; what it refuses becomes a JSON error.

    Parameters
    ----------
    handle : callable
        ``await handle(scope, receive)`` gives a `Reply`, or raises a `ServeError`.
    """

    def __init__(self, handle: Callable[[Scope, Receive], Awaitable[Reply]]) -> None:
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            reply = await self._handle(scope, receive)
        except ServeError as error:
            scope[REFUSED] = str(error)
            reply = error_reply(error.status, str(error))
        finally:
            _of_thread.held -= scope.pop(_HELD, 0)
        await reply.send(send)


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The whole body of a request of an `Endpoint`, inflated.

    Raises
    ------
    BusyError
        If the bodies of all requests together are too long.
    TooLargeError
        If it is longer than the limit, by its header, as it arrives or when inflated.
    TooSlowError
        If it is not there in time.
    UnsupportedError
        If it is in a coding that is not known.
    InvalidRequestError
        If the client goes before it is there, or it is not of its coding.
    """
    body = await _arrived(scope, receive, limits)
    coding = header(scope, b"content-encoding")
    if coding is None:
        return body
    body = await asyncio.to_thread(inflated, body, coding, limits.body_bytes)
    _hold(scope, len(body), limits)
    return body


async def _arrived(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    most = limits.body_bytes
    declared = header(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > most:
        raise TooLargeError(_too_long(most))
    arriving = receive()
    try:
        waits_for = arriving.send(None)  # type: ignore[attr-defined]
    except StopIteration as there:  # the usual case: nothing to wait for, nothing to limit
        message = there.value
    else:
        with _arriving(limits.seconds).watch():
            message = await _resumed(arriving, waits_for)
            if message.get("more_body"):
                return await _all_parts(scope, message, receive, limits)
    if message["type"] != "http.request":
        raise InvalidRequestError(_GONE)
    if message.get("more_body"):
        with _arriving(limits.seconds).watch():
            return await _all_parts(scope, message, receive, limits)
    body: bytes = message.get("body", b"")
    if len(body) > most:
        raise TooLargeError(_too_long(most))
    return body


async def _all_parts(scope: Scope, message: Message, receive: Receive, limits: Limits) -> bytes:
    parts = bytearray()
    while message["type"] == "http.request":
        part = message.get("body", b"")
        parts += part
        if len(parts) > limits.body_bytes:
            raise TooLargeError(_too_long(limits.body_bytes))
        _hold(scope, len(part), limits)
        if not message.get("more_body"):
            return bytes(parts)
        message = await receive()
    raise InvalidRequestError(_GONE)


def _hold(scope: Scope, size: int, limits: Limits) -> None:
    """Count so many bytes more until the request is answered."""
    most = _BODIES * limits.body_bytes
    if _of_thread.held + size > most:
        raise BusyError(
            f"the bodies of the requests in the works have {most:,} bytes, as many as this "
            "server holds; come again in a second"
        )
    _of_thread.held += size
    scope[_HELD] = scope.get(_HELD, 0) + size


@coroutine
def _resumed(arriving: Any, waits_for: Any) -> Any:
    """Await a coroutine that has begun: what it waits for goes up to the event loop."""
    while True:
        try:
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001 - a cancellation, too, is its own
            step, given = arriving.throw, error
        else:
            step, given = arriving.send, value
        try:
            waits_for = step(given)
        except StopIteration as there:
            return there.value


_GONE = "the client went before its body had arrived"


class _OfThread(threading.local):
    """Of each thread its own: only in its own thread may an event loop be touched."""

    def __init__(self) -> None:
        self.arriving: dict[float, Deadlines] = {}
        self.held = 0


_of_thread = _OfThread()


def _arriving(seconds: float) -> Deadlines:
    """The bodies under way in this thread's event loop that may take so long."""
    found = _of_thread.arriving.get(seconds)
    if found is None:
        late = TooSlowError(
            f"the body did not arrive within {seconds:g} s; send it faster, or in parts"
        )
        found = _of_thread.arriving[seconds] = Deadlines(seconds, late)
    return found


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of this name (lower case), or None."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def _too_long(most: int) -> str:
    return f"the body is longer than the {most:,} bytes that this server takes; send it in parts"
