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
from treekit.serve.http import REJECTION_KEY, Reply, make_error_reply
from treekit.serve.http.auth import HEALTH_PATHS, Access
from treekit.serve.http.logs import Log
from treekit.serve.http.metrics import (
    METRICS_PATH,
    Header,
    HttpRequestRecord,
    Metrics,
    get_endpoint_kind,
)
from treekit.serve.scheduling import Working
from treekit.serve.settings import ServeSettings

# ---------------------------------------------------------------- middleware

_ID_PATTERN = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_VARY_HEADER = (b"vary", b"Origin")
_PREFLIGHT_HEADERS = (
    (b"access-control-allow-methods", b"GET, POST"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, inference-header-content-length, x-request-id",
    ),
    (b"access-control-max-age", b"600"),
)
_EXPOSE_HEADER = (
    b"access-control-expose-headers",
    b"inference-header-content-length, x-request-id",
)
_MONITORING_PATHS = HEALTH_PATHS | {METRICS_PATH}
"""Monitoring paths, answered even if the server is overloaded."""


class CompleteResponse(NamedTuple):
    """Complete response with status 200."""

    headers: list[Header]
    body: bytes


class Middleware:
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
        self._public_paths, self._try_inner = public, inner_at_once
        self._max_requests = settings.limits.requests
        # Random prefix and counter: unique over processes, and an id takes 0.2 us.
        self._ids = map(f"{secrets.token_hex(6)}-{{:x}}".format, itertools.count(1))
        self._working = working

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request or lifespan event."""
        if scope["type"] != "http":
            await self._handle_other_scope(scope, receive, send)
            return
        started = perf_counter()
        record = self._start_request(scope, send)
        try:
            reply = self._check_request(scope, record)
            if reply is None:
                await self._app(scope, receive, record.send)
            else:
                await reply.send(record.send)
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            await self._send_error(scope, record, error)
        finally:
            record.release_connection()
            record.error = record.error or scope.get(REJECTION_KEY, "")
            self._finish_request(scope, record, started)

    def try_answer(self, scope: Scope, body: bytes) -> CompleteResponse | None:
        """Return the response to a request with a complete body, if no waiting is needed.

        Equals the response sent by a call, without the cost of a task and ASGI messages.  None
        if a call is needed, which includes all rejected and failing requests.
        """
        started = perf_counter()
        record = self._start_request(scope, None)
        reply = None
        try:
            if self._check_request(scope, record) is None:
                reply = self._try_inner(scope, body)
        except Exception:  # noqa: BLE001 - a call follows, which reports the error
            reply = None
        if reply is None:
            self._working.decrement()
            return None
        record.status = reply.status
        whole = CompleteResponse(record.complete_headers(reply.list_headers()), reply.body)
        self._finish_request(scope, record, started)
        return whole

    def _finish_request(self, scope: Scope, record: HttpRequestRecord, started: float) -> None:
        """Update metrics and the log for an answered request."""
        self._working.decrement()
        seconds = perf_counter() - started
        self._metrics.count_request(get_endpoint_kind(scope["path"]), record, seconds)
        client = scope.get("client")
        self._log.log_request(
            record,
            scope["method"],
            scope.get("raw_path") or scope["path"].encode(),
            client[0] if client else "",
            seconds,
        )

    def _start_request(self, scope: Scope, send: Send | None) -> HttpRequestRecord:
        self._working.increment()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id")
        if given is not None and _ID_PATTERN.fullmatch(given):
            request_id = given.decode()
        else:
            request_id = next(self._ids)
        record = HttpRequestRecord(send, request_id, scope["method"], headers)
        scope["treekit"] = record
        scope["app"] = self  # with it, Starlette's router raises HTTPException for unknown paths
        return record

    def _check_request(self, scope: Scope, record: HttpRequestRecord) -> Reply | None:
        """Check a request; return None if it is admitted, or a reply (preflight)."""
        add = record.extra_headers
        add.append((b"x-request-id", record.id.encode()))
        path = scope["path"]
        if path in HEALTH_PATHS:
            return None
        headers = record.headers
        host = headers.get(b"host")
        if len(headers) != len(scope["headers"]):
            _reject_duplicate_headers(scope)
        access = self._access
        access.check_host(host)
        if access.allows_cross_origin:
            add.append(_VARY_HEADER)
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if path in self._public_paths:
            site = None  # any page may link to it, and it contains no data
        if access.check_origin(scope["scheme"], host, origin, site):
            assert origin is not None  # noqa: S101 - the origin was allowed
            add += ((b"access-control-allow-origin", origin), _EXPOSE_HEADER)
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                return Reply(b"", media=b"text/plain", headers=_PREFLIGHT_HEADERS)
        if path not in self._public_paths:
            access.check_token(headers.get(b"authorization"))
            if self._working.count > self._max_requests and path not in _MONITORING_PATHS:
                self._working.check_limit(self._max_requests)
        return None

    async def _send_error(self, scope: Scope, record: HttpRequestRecord, error: Exception) -> None:
        """Send an error response, unless a response has begun (then the connection is closed)."""
        headers: list[tuple[bytes, bytes]] = []
        if isinstance(error, ServeError):
            status, message = error.status, str(error)
        elif isinstance(error, HTTPException):
            status = error.status_code
            message = f"{scope['method']} {scope['path'][:256]}: {_explain_http_error(error)}"
            headers = [(k.lower().encode(), v.encode()) for k, v in (error.headers or {}).items()]
        else:
            self._log.log_failure(record.id, error)
            status = 500
            message = f"internal server error; see the server log for request id {record.id}"
        record.error = message
        if not record.status:
            await make_error_reply(status, message, headers).send(record.send)

    async def _handle_other_scope(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle lifespan events, and reject WebSockets."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": ""})


def _explain_http_error(error: HTTPException) -> str:
    """Return the error of the router with a remedy."""
    if error.status_code == 404:
        return "unknown path; see /openapi.json for all paths"
    if error.status_code == 405:
        return f"this path requires {(error.headers or {}).get('Allow', 'another method')}"
    return error.detail


def _reject_duplicate_headers(scope: Scope) -> None:
    """Reject duplicate Host and Origin headers, as servers disagree on which one to use."""
    for name, shown in ((b"host", "Host"), (b"origin", "Origin")):
        if sum(own == name for own, _ in scope["headers"]) > 1:
            raise InvalidRequestError(
                f"the request has more than one {shown} header; HTTP requires exactly one"
            )
