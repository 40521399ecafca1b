"""Routes, request bodies, responses and errors over ASGI, shared by all HTTP endpoints."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec

from treekit.serve.errors import BusyError, InvalidRequestError, TooLargeError
from treekit.serve.protocol.messages import convert_request, make_unique_dict
from treekit.serve.protocol.tensor_data import decompress_body
from treekit.serve.scheduling import RequestRecord, Working
from treekit.serve.settings import Limits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

_JSON_TYPE = b"application/json"
MAX_MESSAGE = 2_000
"""Maximum characters of an error message, in responses and in the log."""

_MAX_BODIES = 16
"""Maximum pending bodies per process, in bodies of maximum size; bodies that arrive in one piece,
about 64 KB, are not counted."""


class Reply(msgspec.Struct):
    """Response: body, media type and headers other than type and length."""

    body: bytes
    status: int = 200
    media: bytes = _JSON_TYPE
    headers: Iterable[Header] = ()


Handle = Callable[["Request"], Awaitable[Reply]]
"""Endpoint of a route."""


class Route(NamedTuple):
    """Route of an endpoint.

    Attributes
    ----------
    method : {"GET", "POST"}
    path : str
        Path; ``{name}`` matches one segment, a value of ``scope["path_params"]``.
    handle : callable
        ``await handle(request)`` returns a `Reply` or raises a `ServeError`.
    kind : str
        Label of the endpoint in metrics.
    """

    method: str
    path: str
    handle: Handle
    kind: str


class Request(RequestRecord, eq=False):
    """One HTTP request and its record, completed by its endpoint.

    Its id is returned in ``X-Request-Id``.

    Attributes
    ----------
    scope : Scope
    receive : Receive
        Function that receives the messages with the body.
    path : str
        Path below the root path of the application.
    headers : dict of bytes to bytes
        Request headers by name in lower case; the last of each name.
    working : Working
        Requests and pending bytes of the process.
    route : Route, optional
        Route of the path, with any method.
    parameters : dict of str to str
        Values of the path's ``{name}``.
    extra_headers : tuple of headers
        Headers added to those of the endpoint.
    has_body : bool
        Whether the body has arrived, or none is read.
    watcher : Task, optional
        Task that waits for the end of the client.
    is_gone : bool
        Whether the task was cancelled as the client has disconnected.
    """

    scope: Scope
    receive: Receive
    path: str
    headers: dict[bytes, bytes]
    working: Working
    route: Route | None = None
    parameters: dict[str, str] = msgspec.field(default_factory=dict)
    extra_headers: tuple[Header, ...] = ()
    has_body: bool = False
    watcher: asyncio.Task[None] | None = None
    is_gone: bool = False

    def count_header(self, name: bytes) -> int:
        """Return the number of headers of a name."""
        return sum(own == name for own, _ in self.scope["headers"])


def make_json_reply(value: Any, status: int = 200, headers: Iterable[Header] = ()) -> Reply:
    """Return a JSON response."""
    return Reply(msgspec.json.encode(value), status, headers=headers)


def make_error_reply(status: int, message: str, headers: Iterable[Header] = ()) -> Reply:
    """Return an ``$error_response`` of the protocol; long messages are truncated."""
    if len(message) > MAX_MESSAGE:
        message = f"{message[:MAX_MESSAGE]}..."
    # File names may not be valid UTF-8.
    message = message.encode(errors="backslashreplace").decode()
    return make_json_reply({"error": message}, status, headers)


def always_send(reply: Reply) -> Handle:
    """Return an endpoint that sends a constant reply, or status 304 if its ETag is known."""
    tag = dict(reply.headers).get(b"etag")

    async def send_reply(request: Request) -> Reply:
        if tag is not None and request.headers.get(b"if-none-match") == tag:
            return Reply(b"", 304, reply.media, reply.headers)
        return reply

    return send_reply


async def read_body(request: Request, limits: Limits) -> bytes:
    """Read and decompress the body of a request.

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
    declared = request.headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limits.body_bytes:
        raise _too_large_error(limits)
    request.deadline = request.started + limits.seconds
    message = await request.receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts = bytearray(body)
        while message.get("more_body") and len(parts) <= limits.body_bytes:
            _count_pending(request, len(message["body"]), limits)
            message = await request.receive()
            parts += message.get("body", b"")
        body = bytes(parts)
    request.deadline = math.inf
    request.has_body = message["type"] == "http.request"
    if not request.has_body:
        raise InvalidRequestError("the client disconnected before its body had arrived")
    if len(body) > limits.body_bytes:
        raise _too_large_error(limits)
    coding = request.headers.get(b"content-encoding")
    if coding is None:
        return body
    body = await asyncio.to_thread(decompress_body, body, coding, limits.body_bytes)
    _count_pending(request, len(body), limits)
    return body


def _count_pending(request: Request, size: int, limits: Limits) -> None:
    """Count bytes of a body as pending until the request is answered."""
    most = _MAX_BODIES * limits.body_bytes
    if request.working.pending_bytes + size > most:
        raise BusyError(f"server busy: pending request bodies exceed {most:,} bytes; retry in 1 s")
    request.working.pending_bytes += size
    request.pending_bytes += size


def _too_large_error(limits: Limits) -> TooLargeError:
    return TooLargeError(
        f"the body is longer than {limits.body_bytes:,} bytes, the limit of this server; send it "
        "in parts"
    )


# ---------------------------------------------------------------- queries


_MAX_PARAMETERS = 20

T = TypeVar("T")


def parse_query(query: bytes, kind: type[T]) -> T:
    """Parse the parameters of a URL, the fields of a struct.

    Raises
    ------
    InvalidRequestError
        If a parameter is unknown, invalid, a duplicate or not UTF-8.
    """
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=_MAX_PARAMETERS,
            errors="strict",
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise InvalidRequestError(f"the URL's parameters cannot be read: {error}") from None
    found: T = convert_request(make_unique_dict(pairs), kind, "URL parameters", strict=False)
    return found
