"""Request bodies, responses and errors over ASGI, shared by all HTTP endpoints."""

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
from treekit.serve.protocol.tensor_data import decompress_body
from treekit.serve.scheduling import Deadlines
from treekit.serve.settings import Limits

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

__all__ = [
    "REJECTION_KEY",
    "Endpoint",
    "Headers",
    "Reply",
    "make_error_reply",
    "make_json_reply",
    "read_body",
]

Headers = Iterable[tuple[bytes, bytes]]

REJECTION_KEY = "treekit.refused"
"""Scope key: error message with which the endpoint rejected the request."""

_PENDING_KEY = "treekit.held"
"""Scope key: bytes of the request body that are counted as pending."""

_JSON_TYPE = b"application/json"
_MAX_MESSAGE = 2_000
_MAX_BODIES = 16
"""Maximum pending bodies per process, in bodies of maximum size; bodies that arrive in one piece,
about 64 KB, are not counted."""


class Reply(NamedTuple):
    """Response: body, media type and headers other than type and length."""

    body: bytes
    status: int = 200
    media: bytes = _JSON_TYPE
    headers: Headers = ()

    def list_headers(self) -> list[tuple[bytes, bytes]]:
        """Return all headers as a new list."""
        return [
            (b"content-type", self.media),
            (b"content-length", b"%d" % len(self.body)),
            *self.headers,
        ]

    async def send(self, send: Send) -> None:
        """Send the response."""
        start = {"type": "http.response.start", "status": self.status}
        await send({**start, "headers": self.list_headers()})
        await send({"type": "http.response.body", "body": self.body})


def make_json_reply(value: Any, status: int = 200, headers: Headers = ()) -> Reply:
    """Return a JSON response."""
    return Reply(msgspec.json.encode(value), status, headers=headers)


def make_error_reply(status: int, message: str, headers: Headers = ()) -> Reply:
    """Return an ``$error_response`` of the protocol; long messages are truncated."""
    if len(message) > _MAX_MESSAGE:
        message = f"{message[:_MAX_MESSAGE]}..."
    # File names may not be valid UTF-8.
    message = message.encode(errors="backslashreplace").decode()
    return make_json_reply({"error": message}, status, headers)


class Endpoint:
    """ASGI application of one function; its `ServeError` becomes a JSON error.

    Parameters
    ----------
    handle : callable
        ``await handle(scope, receive)`` returns a `Reply` or raises a `ServeError`.
    """

    def __init__(self, handle: Callable[[Scope, Receive], Awaitable[Reply]]) -> None:
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        try:
            reply = await self._handle(scope, receive)
        except ServeError as error:
            scope[REJECTION_KEY] = str(error)
            reply = make_error_reply(error.status, str(error))
        finally:
            _thread_state.pending_bytes -= scope.pop(_PENDING_KEY, 0)
        await reply.send(send)


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """Read and decompress the body of a request to an `Endpoint`.

    Raises
    ------
    BusyError
        If the pending bodies of all requests exceed the limit.
    TooLargeError
        If it exceeds the limit, by its header, on arrival or when decompressed.
    TooSlowError
        If it does not arrive in time.
    UnsupportedError
        If its Content-Encoding is not supported.
    InvalidRequestError
        If the client disconnects, or the body does not match its Content-Encoding.
    """
    body = await _receive_body(scope, receive, limits)
    coding = get_header(scope, b"content-encoding")
    if coding is None:
        return body
    body = await asyncio.to_thread(decompress_body, body, coding, limits.body_bytes)
    _count_pending(scope, len(body), limits)
    return body


async def _receive_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    most = limits.body_bytes
    declared = get_header(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > most:
        raise TooLargeError(_too_long_message(most))
    arriving = receive()
    try:
        waits_for = arriving.send(None)  # type: ignore[attr-defined]
    except StopIteration as there:  # common case: the body is available, no time limit needed
        message = there.value
    else:
        with _get_body_deadlines(limits.seconds).limit_time():
            message = await _resume(arriving, waits_for)
            if message.get("more_body"):
                return await _receive_parts(scope, message, receive, limits)
    if message["type"] != "http.request":
        raise InvalidRequestError(_DISCONNECTED_MESSAGE)
    if message.get("more_body"):
        with _get_body_deadlines(limits.seconds).limit_time():
            return await _receive_parts(scope, message, receive, limits)
    body: bytes = message.get("body", b"")
    if len(body) > most:
        raise TooLargeError(_too_long_message(most))
    return body


async def _receive_parts(scope: Scope, message: Message, receive: Receive, limits: Limits) -> bytes:
    parts = bytearray()
    while message["type"] == "http.request":
        part = message.get("body", b"")
        parts += part
        if len(parts) > limits.body_bytes:
            raise TooLargeError(_too_long_message(limits.body_bytes))
        _count_pending(scope, len(part), limits)
        if not message.get("more_body"):
            return bytes(parts)
        message = await receive()
    raise InvalidRequestError(_DISCONNECTED_MESSAGE)


def _count_pending(scope: Scope, size: int, limits: Limits) -> None:
    """Count bytes of a body as pending until the request is answered."""
    most = _MAX_BODIES * limits.body_bytes
    if _thread_state.pending_bytes + size > most:
        raise BusyError(f"server busy: pending request bodies exceed {most:,} bytes; retry in 1 s")
    _thread_state.pending_bytes += size
    scope[_PENDING_KEY] = scope.get(_PENDING_KEY, 0) + size


@coroutine
def _resume(arriving: Any, waits_for: Any) -> Any:
    """Await a coroutine that was already started and yielded `waits_for`."""
    while True:
        try:
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001 - passed on, including cancellation
            step, given = arriving.throw, error
        else:
            step, given = arriving.send, value
        try:
            waits_for = step(given)
        except StopIteration as there:
            return there.value


_DISCONNECTED_MESSAGE = "the client disconnected before its body had arrived"


class _ThreadState(threading.local):
    """State of each thread, as an event loop may only be used in its own thread."""

    def __init__(self) -> None:
        self.body_deadlines: dict[float, Deadlines] = {}
        self.pending_bytes = 0


_thread_state = _ThreadState()


def _get_body_deadlines(seconds: float) -> Deadlines:
    """Return the deadlines of bodies in this thread's event loop with this time limit."""
    found = _thread_state.body_deadlines.get(seconds)
    if found is None:
        late = TooSlowError(
            f"the body did not arrive within {seconds:g} s; send it faster, or in parts"
        )
        found = _thread_state.body_deadlines[seconds] = Deadlines(seconds, late)
    return found


def get_header(scope: Scope, name: bytes) -> bytes | None:
    """Return the first header of a name in lower case, or None."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def _too_long_message(most: int) -> str:
    return f"the body is longer than {most:,} bytes, the limit of this server; send it in parts"
