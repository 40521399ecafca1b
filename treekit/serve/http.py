"""Bodies, answers and errors over ASGI: what all HTTP endpoints share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from starlette.types import Receive, Scope, Send

from treekit.serve.errors import InvalidRequestError, ServeError, TooLargeError, TooSlowError
from treekit.serve.inflate import inflated
from treekit.serve.settings import Limits

__all__ = ["Endpoint", "Headers", "Reply", "error_reply", "json_reply", "read_body"]

Headers = Iterable[tuple[bytes, bytes]]

_JSON = b"application/json"
_MESSAGE = 2_000


class Reply(NamedTuple):
    """An answer: bytes, what they are, and headers beside type and length."""

    body: bytes
    status: int = 200
    media: bytes = _JSON
    headers: Headers = ()

    async def send(self, send: Send) -> None:
        """Send all of it."""
        headers = [
            (b"content-type", self.media),
            (b"content-length", b"%d" % len(self.body)),
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
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
            reply = error_reply(error.status, str(error))
        await reply.send(send)


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The whole body of a request, inflated.

    Raises
    ------
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
    return body if coding is None else inflated(body, coding, limits.body_bytes)


async def _arrived(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    most = limits.body_bytes
    declared = header(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > most:
        raise TooLargeError(_too_long(most))
    try:
        async with asyncio.timeout(limits.seconds):
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                body: bytes = message.get("body", b"")
                if len(body) > most:
                    raise TooLargeError(_too_long(most))
                return body
            parts = bytearray()
            while message["type"] == "http.request":
                parts += message.get("body", b"")
                if len(parts) > most:
                    raise TooLargeError(_too_long(most))
                if not message.get("more_body"):
                    return bytes(parts)
                message = await receive()
    except TimeoutError:
        raise TooSlowError(
            f"the body did not arrive within {limits.seconds:g} s; send it faster, or in parts"
        ) from None
    raise InvalidRequestError("the client went before its body had arrived")


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of this name (lower case), or None."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def _too_long(most: int) -> str:
    return f"the body is longer than the {most:,} bytes that this server takes; send it in parts"
