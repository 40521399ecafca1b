"""What is known of one request: the gate begins it, endpoints fill it in."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol

from starlette.types import Message, Scope, Send

if TYPE_CHECKING:
    from treekit.serve.models.served import Served

__all__ = ["Header", "Record", "Told", "note_answer"]

Header = tuple[bytes, bytes]

_AGAIN = (b"retry-after", b"1")
_CLOSE = (b"connection", b"close")
_NOSNIFF = (b"x-content-type-options", b"nosniff")
_ON_GET = (
    _NOSNIFF,
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)
"""Unless the endpoint has its own; an answer to POST is not stored, and refers to nothing."""

_ON_STATUS: dict[int, tuple[Header, ...]] = {
    401: ((b"www-authenticate", b"Bearer"),),
    408: (_CLOSE,),
    429: (_AGAIN,),
    503: (_AGAIN,),
}
"""What clients need with an error, whoever answers with it."""


class Told(Protocol):
    """What metrics and logs are told of a request, by whatever transport; see `Record`."""

    id: str
    status: int
    model: str
    version: str
    rows: int
    error: str


class Record:
    """One request; ``scope["treekit"]``.

    Attributes
    ----------
    id : str
        Of the request, as its answer has it in ``X-Request-Id``.
    method : str
    headers : dict of bytes to bytes
        Of the request, by names in lower case; the last of each.
    status : int
        Of the answer; 0 until it has begun.
    model, version, rows : str, str, int
        What answered, and of how much; empty and 0 where no model did.  Endpoints set them.
    error : str
        Why it was refused.
    add : list of headers
        What the answer has besides its own headers.
    """

    # Defaults in the class, not slots: fewer of them are set for a request.
    status = rows = 0
    model = version = error = ""

    def __init__(
        self, send: Send | None, request_id: str, method: str, headers: dict[bytes, bytes]
    ) -> None:
        self._send = send
        self.id, self.method, self.headers = request_id, method, headers
        self.add: list[Header] = []

    def send(self, message: Message) -> Awaitable[None]:
        """ASGI's, which adds to the answer's headers and sees its status.

        Not ``async``, which would cost a coroutine for each message.
        """
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = self.headers_of(list(message.get("headers", ())))
        assert self._send is not None  # noqa: S101 - nobody sends after the end
        return self._send(message)

    def headers_of(self, headers: list[Header]) -> list[Header]:
        """The endpoint's own headers, to which all others are added, of an answer that begins."""
        if self.method == "POST":
            headers.append(_NOSNIFF)
        else:
            own = {name for name, _ in headers}
            headers += [header for header in _ON_GET if header[0] not in own]
        headers += self.add
        if self.status >= 400:
            headers += _ON_STATUS.get(self.status, ())
            if b"expect" in self.headers:
                # The body that was not called for may come or not: what follows on this
                # connection cannot be told from it (RFC 9110, 10.1.1).
                headers.append(_CLOSE)
        return headers

    def end(self) -> None:
        """Let go of the connection: it knows this record through its scope."""
        self._send = None


def note_answer(scope: Scope, served: Served, rows: int) -> None:
    """Tell the gate, if there is one, which model answered how many rows."""
    record: Any = scope.get("treekit")
    if record is not None:
        record.model, record.version, record.rows = served.name, served.version, rows
