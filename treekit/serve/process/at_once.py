"""HTTP/1.1 of uvicorn, which answers the commonest request without a task.

For each request uvicorn makes a task, an event and two messages, and looks through the headers
of the answer: half of what one row takes (measured).  None of it is needed by an answer that
is there at once.  Whatever is not plainly such a request goes on as it always would.

What the event loop reads in one turn is answered together, and only then written: the same
code runs again while the processor still has it, and a client on the same machine is woken
once.  With eight clients that is a third of what a request takes (measured); none waits for
more than the answers of others that came at the same time, or half a millisecond.
"""

from __future__ import annotations

import logging
import re
from time import perf_counter
from typing import Any, ClassVar

from treekit.errors import MissingExtraError
from treekit.serve.gate.gate import Gate

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
except ImportError as missing:
    raise MissingExtraError("httptools and uvicorn", "serve") from missing

__all__ = ["AtOnceProtocol"]

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
