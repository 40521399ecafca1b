"""ASGI middleware around all endpoints.

It checks access (`treekit.serve.http.auth`), limits concurrent requests, assigns request ids,
and updates metrics and the log for each response.  Unexpected errors become a JSON error that
contains only the request id.
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


# ---------------------------------------------------------------- middleware

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
"""Monitoring paths, answered even if the server is overloaded."""


class Whole(NamedTuple):
    """Complete response with status 200."""

    headers: list[Header]
    body: bytes


class Gate:
    """Middleware in front of an ASGI application.

    Parameters
    ----------
    app : ASGI application
    settings : ServeSettings
    access : Access
    metrics : Metrics
    log : Log
    working : Working
        Request counter of the service, after its metrics were created.
    public : set of str
        Paths that need no token: the files of the page.
    inner_at_once : callable, optional
        ``inner_at_once(scope, body)`` returns the `Reply` that `app` would send, if it is
        available without waiting and has status 200; else None.
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
        # Random prefix and counter: unique over processes, and an id takes 0.2 us.
        self._ids = map(f"{secrets.token_hex(6)}-{{:x}}".format, itertools.count(1))
        self._working = working

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request or lifespan event."""
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
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            await self._refuse(scope, record, error)
        finally:
            record.end()
            record.error = record.error or scope.get(REFUSED, "")
            self._end(scope, record, started)

    def at_once(self, scope: Scope, body: bytes) -> Whole | None:
        """Return the response to a request with a complete body, if no waiting is needed.

        Equals the response sent by a call, without the cost of a task and ASGI messages.  None
        if a call is needed, which includes all rejected and failing requests.
        """
        started = perf_counter()
        record = self._begin(scope, None)
        reply = None
        try:
            if self._admit(scope, record) is None:
                reply = self._inner_at_once(scope, body)
        except Exception:  # noqa: BLE001 - a call follows, which reports the error
            reply = None
        if reply is None:
            self._working.dec()
            return None
        record.status = reply.status
        whole = Whole(record.headers_of(reply.own_headers()), reply.body)
        self._end(scope, record, started)
        return whole

    def _end(self, scope: Scope, record: Record, started: float) -> None:
        """Update metrics and the log for an answered request."""
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
        scope["app"] = self  # with it, Starlette's router raises HTTPException for unknown paths
        return record

    def _admit(self, scope: Scope, record: Record) -> Reply | None:
        """Check a request; return None if it is admitted, or a reply (preflight)."""
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
            site = None  # any page may link to it, and it contains no data
        if access.check_origin(scope["scheme"], host, origin, site):
            assert origin is not None  # noqa: S101 - the origin was allowed
            add += ((b"access-control-allow-origin", origin), _EXPOSE)
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                return Reply(b"", media=b"text/plain", headers=_PREFLIGHT)
        if path not in self._public:
            access.check_token(headers.get(b"authorization"))
            if self._working.count > self._most and path not in _ALWAYS_ANSWERED:
                self._working.check(self._most)
        return None

    async def _refuse(self, scope: Scope, record: Record, error: Exception) -> None:
        """Send an error response, unless a response has begun (then the connection is closed)."""
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
            message = f"internal server error; see the server log for request id {record.id}"
        record.error = message
        if not record.status:
            await error_reply(status, message, headers).send(record.send)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle lifespan events, and reject WebSockets."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": ""})


def _remedy(error: HTTPException) -> str:
    """Return the error of the router with a remedy."""
    if error.status_code == 404:
        return "unknown path; see /openapi.json for all paths"
    if error.status_code == 405:
        return f"this path requires {(error.headers or {}).get('Allow', 'another method')}"
    return error.detail


def _refuse_doubles(scope: Scope) -> None:
    """Reject duplicate Host and Origin headers, as servers disagree on which one to use."""
    for name, shown in ((b"host", "Host"), (b"origin", "Origin")):
        if sum(own == name for own, _ in scope["headers"]) > 1:
            raise InvalidRequestError(
                f"the request has more than one {shown} header; HTTP requires exactly one"
            )
