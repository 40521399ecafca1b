"""The gate: what every request passes on its way in, and every answer on its way out.

One ASGI application in front of the others.  It checks who asks (`treekit.serve.http.auth`),
bounds how much is in the works, gives a request its id, and when it is answered counts it and
writes its line.  An error that nobody foresaw ends here, as JSON that tells nothing but the id.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from treekit.serve.errors import InvalidRequestError, ServeError
from treekit.serve.http import REFUSED, Reply, error_reply
from treekit.serve.http.auth import HEALTH_PATHS, Access
from treekit.serve.http.logs import Log
from treekit.serve.http.metrics import METRICS_PATH, Header, Metrics, Record, kind_of
from treekit.serve.scheduling import Working
from treekit.serve.settings import ServeSettings

__all__ = [
    "Gate",
    "Whole",
]


# ---------------------------------------------------------------- gate
# Who may ask, how much at once, and what is told of it: ids, metrics, log lines.

_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_VARY = (b"vary", b"Origin")
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, POST"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, inference-header-content-length, x-request-id",
    ),
    (b"access-control-max-age", b"600"),
)
_EXPOSE = (b"access-control-expose-headers", b"inference-header-content-length, x-request-id")
_ALWAYS_ANSWERED = HEALTH_PATHS | {METRICS_PATH}
"""Paths that tell how a server is, which matters most when it is overrun."""


class Whole(NamedTuple):
    """An answer with status 200, as it leaves the gate."""

    headers: list[Header]
    body: bytes


class Gate:
    """An ASGI application in front of another.

    Parameters
    ----------
    app : ASGI application
    settings : ServeSettings
    access : Access
    metrics : Metrics
    log : Log
    working : Working
        Of the service, once its metrics are made.
    public : set of str
        Paths that are answered without a token, being the same for all: the page's files.
    inner_at_once : callable, optional
        ``inner_at_once(scope, body)`` gives the `Reply` that `app` would send, if that has
        status 200 and nothing need be waited for; else None.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        access: Access,
        metrics: Metrics,
        log: Log,
        working: Working,
        public: frozenset[str] = frozenset(),
        inner_at_once: Callable[[Scope, bytes], Reply | None] = lambda *_: None,
    ) -> None:
        self._app, self._access, self._metrics, self._log = app, access, metrics, log
        self._public, self._inner_at_once = public, inner_at_once
        self._most = settings.limits.requests
        # Random, then counted: no two processes give the same, and one costs 0.2 us.
        self._ids = map(f"{secrets.token_hex(6)}-{{:x}}".format, itertools.count(1))
        self._working = working

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass on what is none."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        started = perf_counter()
        record = self._begin(scope, send)
        try:
            reply = self._admit(scope, record)
            if reply is None:
                await self._app(scope, receive, record.send)
            else:
                await reply.send(record.send)
        except Exception as error:  # noqa: BLE001 - nothing may pass
            await self._refuse(scope, record, error)
        finally:
            record.end()
            record.error = record.error or scope.get(REFUSED, "")
            self._end(scope, record, started)

    def at_once(self, scope: Scope, body: bytes) -> Whole | None:
        """The whole answer to a request whose body is there, if nothing need be waited for.

        It is the answer that a call would send, for less: no task, no messages of ASGI.
        None: call; so it is with all that is to be refused, and with what fails.
        """
        started = perf_counter()
        record = self._begin(scope, None)
        reply = None
        try:
            if self._admit(scope, record) is None:
                reply = self._inner_at_once(scope, body)
        except Exception:  # noqa: BLE001 - it comes again, where it is answered
            reply = None
        if reply is None:
            self._working.dec()
            return None
        record.status = reply.status
        whole = Whole(record.headers_of(reply.own_headers()), reply.body)
        self._end(scope, record, started)
        return whole

    def _end(self, scope: Scope, record: Record, started: float) -> None:
        """Count a request that is answered, and write its line."""
        self._working.dec()
        seconds = perf_counter() - started
        self._metrics.observe(kind_of(scope["path"]), record, seconds)
        client = scope.get("client")
        self._log.request(
            record,
            scope["method"],
            scope.get("raw_path") or scope["path"].encode(),
            client[0] if client else "",
            seconds,
        )

    def _begin(self, scope: Scope, send: Send | None) -> Record:
        self._working.inc()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id")
        if given is not None and _ID.fullmatch(given):
            request_id = given.decode()
        else:
            request_id = next(self._ids)
        record = Record(send, request_id, scope["method"], headers)
        scope["treekit"] = record
        scope["app"] = self  # Starlette's router raises what it does not find, then
        return record

    def _admit(self, scope: Scope, record: Record) -> Reply | None:
        """Let a request in (None), answer it here, or raise the `ServeError` it is refused for."""
        add = record.add
        add.append((b"x-request-id", record.id.encode()))
        path = scope["path"]
        if path in HEALTH_PATHS:
            return None
        headers = record.headers
        host = headers.get(b"host")
        if len(headers) != len(scope["headers"]):
            _refuse_doubles(scope)
        access = self._access
        access.check_host(host)
        if access.cross_origin:
            add.append(_VARY)
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if path in self._public:
            site = None  # links to it are on any page, and it shows nothing of its own
        if access.check_origin(scope["scheme"], host, origin, site):
            assert origin is not None  # noqa: S101 - it is what was let in
            add += ((b"access-control-allow-origin", origin), _EXPOSE)
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                return Reply(b"", media=b"text/plain", headers=_PREFLIGHT)
        if path not in self._public:
            access.check_token(headers.get(b"authorization"))
            if self._working.count > self._most and path not in _ALWAYS_ANSWERED:
                self._working.check(self._most)
        return None

    async def _refuse(self, scope: Scope, record: Record, error: Exception) -> None:
        """Answer with an error, if no answer has begun; else the server closes the connection."""
        headers: list[tuple[bytes, bytes]] = []
        if isinstance(error, ServeError):
            status, message = error.status, str(error)
        elif isinstance(error, HTTPException):
            status = error.status_code
            message = f"{scope['method']} {scope['path'][:256]}: {_remedy(error)}"
            headers = [(k.lower().encode(), v.encode()) for k, v in (error.headers or {}).items()]
        else:
            self._log.failed(record.id, error)
            status = 500
            message = f"the server failed at this request; its log says why, under id {record.id}"
        record.error = message
        if not record.status:
            await error_reply(status, message, headers).send(record.send)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The server's own start and end; no WebSocket."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": ""})


def _remedy(error: HTTPException) -> str:
    """What the router found wrong, and where to look."""
    if error.status_code == 404:
        return "there is no such path; /openapi.json describes all that there are"
    if error.status_code == 405:
        return f"this path takes {(error.headers or {}).get('Allow', 'another method')}"
    return error.detail


def _refuse_doubles(scope: Scope) -> None:
    """Some header came twice: raise if it is one of which the last is not everybody's choice."""
    for name, shown in ((b"host", "Host"), (b"origin", "Origin")):
        if sum(own == name for own, _ in scope["headers"]) > 1:
            raise InvalidRequestError(
                f"the request has more than one {shown} header; HTTP asks for one"
            )
