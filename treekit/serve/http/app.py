"""HTTP application: one ASGI function for all endpoints of a service.

It checks access (`treekit.serve.http.auth`), limits concurrent requests, assigns request ids,
finds the route, and updates metrics and the log for each response.  Unexpected errors become a
JSON error that contains only the request id.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from itertools import chain
from time import perf_counter

from treekit.serve.errors import InvalidRequestError, NotFoundError, ServeError
from treekit.serve.http import (
    MAX_MESSAGE,
    Header,
    Message,
    Receive,
    Reply,
    Request,
    Route,
    Scope,
    Send,
    always_send,
    make_error_reply,
    make_json_reply,
)
from treekit.serve.http.auth import HEALTH_PATHS, Access
from treekit.serve.http.json_routes import list_json_routes
from treekit.serve.http.logs import log_changes, log_failure, log_request
from treekit.serve.http.metrics import METRICS_PATH, Metrics, make_metrics_route
from treekit.serve.http.oip_routes import list_protocol_routes
from treekit.serve.http.openapi import make_document
from treekit.serve.http.page import list_page_paths, list_page_routes
from treekit.serve.scheduling import Service
from treekit.serve.settings import ServeSettings

MAX_HEAD_BYTES = 64 << 10
"""Maximum bytes of the headers of a request."""

MAX_HEADERS = 100

_MAX_SWEEP_SECONDS = 1.0
"""Maximum seconds between checks for late requests, and so the maximum delay."""

_ID_PATTERN = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_NOSNIFF = (b"x-content-type-options", b"nosniff")
_DEFAULT_HEADERS = (
    _NOSNIFF,
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)
"""Default headers, unless set by the endpoint; responses to POST are not cached anyway."""

_CLOSE = (b"connection", b"close")
_RETRY_AFTER = (b"retry-after", b"1")
_STATUS_HEADERS: dict[int, tuple[Header, ...]] = {
    401: ((b"www-authenticate", b"Bearer"),),
    408: (_CLOSE,),
    429: (_RETRY_AFTER,),
    431: (_CLOSE,),
    503: (_RETRY_AFTER,),
}
"""Headers added to all responses with a status."""

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


# ---------------------------------------------------------------- application


class HttpApp:
    """ASGI application of a service.

    Parameters
    ----------
    service : Service
    settings : ServeSettings
    access : Access
    metrics : Metrics
    routes : iterable of Route
        Routes, the most frequent first.

    Attributes
    ----------
    lifespan : callable, optional
        ``await lifespan(receive, send)`` handles the lifespan events of the server.
    """

    def __init__(
        self,
        service: Service,
        settings: ServeSettings,
        access: Access,
        metrics: Metrics,
        routes: Iterable[Route],
    ) -> None:
        self._service, self._working = service, service.working
        self._access, self._metrics = access, metrics
        self._public_paths = list_page_paths()
        self._logs_requests = settings.log != "quiet"
        self._is_sweeping = False
        self._seconds = settings.limits.seconds
        self._max_requests = settings.limits.requests
        self._routes = [
            (re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(route.path))), route)
            for route in routes
        ]
        self._find_route = lru_cache(256)(self._match_route)
        # Random prefix and counter: unique over processes.
        self._ids = map(f"{secrets.token_hex(6)}-{{:x}}".format, itertools.count(1))
        self.lifespan: Callable[[Receive, Send], Awaitable[None]] = complete_lifespan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or handle the events of a lifespan."""
        if scope["type"] == "lifespan":
            await self.lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
            return
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id")
        if given is not None and _ID_PATTERN.fullmatch(given):
            request_id = given.decode()
        else:
            request_id = next(self._ids)
        method, path = scope["method"], scope["path"].removeprefix(scope.get("root_path", ""))
        working = self._working
        record = Request(scope, receive, path, headers, working, id=request_id)
        record.has_body = method in ("GET", "HEAD")  # of which no body is read
        record.task = asyncio.current_task()
        working.begin(record)
        if not self._is_sweeping:
            self._is_sweeping = True
            self._schedule_sweep()
        try:
            try:
                record.route, record.parameters, is_found = self._find_route(method, path)
                reply = self._check_request(record)
                if reply is None:
                    if not is_found or record.route is None:
                        raise _make_route_error(method, record)
                    reply = await record.route.handle(record)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001
                reply = self._make_error_reply(record, error)
            record.status = reply.status
            record.deadline = perf_counter() + self._seconds  # a client may not read its responses
            await send(self._make_start(method, record, reply))
            await send({"type": "http.response.body", "body": reply.body})
        finally:
            working.end(record)
            if record.watcher is not None:
                record.watcher.cancel()
            seconds = perf_counter() - record.started
            kind = record.route.kind if record.route else "other"
            self._metrics.count_request(kind, record, seconds)
            if self._logs_requests or record.status == 500:
                client = scope.get("client") or ("",)
                log_request(
                    record, method, scope.get("raw_path") or path.encode(), client[0], seconds
                )

    def _schedule_sweep(self) -> None:
        delay = min(_MAX_SWEEP_SECONDS, self._seconds / 4)
        asyncio.get_running_loop().call_later(delay, self._cancel_late)

    def _cancel_late(self) -> None:
        """Cancel the tasks of late requests, and check again while there are requests.

        One timer for all requests: `asyncio.timeout` for each body and response takes 8 us of a
        request (measured).  Only requests that are in progress at a check are watched for the
        end of their client, which takes a task.
        """
        now, records = perf_counter(), self._working.records
        for record in records:
            if record.deadline < now and record.task is not None:
                record.is_late = True
                record.task.cancel()
            elif isinstance(record, Request) and record.has_body and record.watcher is None:
                record.watcher = asyncio.create_task(_watch_client(record))
        self._is_sweeping = bool(records)
        if self._is_sweeping:
            self._schedule_sweep()

    def _make_error_reply(self, record: Request, error: BaseException) -> Reply:
        """Return the reply for an error; raise the error if another task cancelled this one."""
        if isinstance(error, ServeError):
            status, message, headers = error.status, str(error), error.headers
        elif isinstance(error, asyncio.CancelledError) and record.is_gone:
            if record.task is not None:
                record.task.uncancel()
            status, headers, message = 499, (), "the client disconnected before the response"
        elif isinstance(error, asyncio.CancelledError):
            if not record.is_late or record.task is None or record.task.uncancel():
                raise error
            status, headers = 408, ()
            message = (
                f"the body did not arrive within {self._seconds:g} s; send it faster, or in parts"
            )
        else:
            log_failure(record.id, error)
            status, headers = 500, ()
            message = f"internal server error; see the server log for request id {record.id}"
        record.error = message[:MAX_MESSAGE]
        return make_error_reply(status, message, headers)

    def _match_route(self, method: str, path: str) -> tuple[Route | None, dict[str, str], bool]:
        """Return the route of a path, its parameters, and whether it has the method."""
        route, parameters = None, {}
        for pattern, known in self._routes:
            if found := pattern.fullmatch(path):
                route, parameters = known, found.groupdict()
                if route.method == ("GET" if method == "HEAD" else method):
                    return route, parameters, True
        return route, parameters, False

    def _check_request(self, record: Request) -> Reply | None:
        """Check a request; return None if it is admitted, or a reply (preflight)."""
        path, headers, access, scope = record.path, record.headers, self._access, record.scope
        if path in HEALTH_PATHS:
            return None
        pairs = scope["headers"]
        if len(headers) != len(pairs):
            _reject_duplicate_headers(record)
        size = len(scope["path"]) + len(scope.get("query_string", b""))
        if size + sum(map(len, chain.from_iterable(pairs))) > MAX_HEAD_BYTES:
            raise _make_error(431, f"the head of the request exceeds {MAX_HEAD_BYTES:,} bytes")
        if len(pairs) > MAX_HEADERS:
            raise _make_error(431, f"the request has more than {MAX_HEADERS} headers")
        is_public = path in self._public_paths
        record.extra_headers = access.extra_headers
        origin = headers.get(b"origin")
        # Any page may link to the files of the page, which contain no data.
        site = None if is_public else headers.get(b"sec-fetch-site")
        names = headers.get(b"host"), headers.get(b"x-forwarded-host")
        if access.check_source(scope["scheme"], *names, origin, site):
            allowed = b"access-control-allow-origin", origin or b""
            record.extra_headers += (allowed, _EXPOSE_HEADER)
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                return Reply(b"", media=b"text/plain", headers=_PREFLIGHT_HEADERS)
        if not is_public:
            access.check_token(headers.get(b"authorization"))
            if path not in _MONITORING_PATHS:
                self._working.check_limit(self._max_requests)
        return None

    def _make_start(self, method: str, record: Request, reply: Reply) -> Message:
        """Return the ASGI message with the status and all headers."""
        headers = [
            (b"content-type", reply.media),
            (b"content-length", b"%d" % len(reply.body)),
            *reply.headers,
            *record.extra_headers,
            (b"x-request-id", record.id.encode()),
        ]
        if method == "POST":
            headers.append(_NOSNIFF)
        else:
            own = {name for name, _ in headers}
            headers += [header for header in _DEFAULT_HEADERS if header[0] not in own]
        if reply.status >= 400:
            headers += _STATUS_HEADERS.get(reply.status, ())
        if self._service.closing or (reply.status >= 400 and b"expect" in record.headers):
            # After an error the client may or may not send the expected body, which cannot be
            # distinguished from the next request on this connection (RFC 9110, 10.1.1).
            headers.append(_CLOSE)
        return {"type": "http.response.start", "status": reply.status, "headers": headers}


async def _watch_client(record: Request) -> None:
    """Cancel the task of a request whose client disconnects before the response."""
    while (await record.receive())["type"] != "http.disconnect":
        pass
    if record.task is not None and not record.status:
        record.is_gone = True
        record.task.cancel()


def _make_error(status: int, message: str, *headers: Header) -> ServeError:
    error = ServeError(message)
    error.status, error.headers = status, headers
    return error


def _make_route_error(method: str, record: Request) -> ServeError:
    place, route = f"{method} {record.path[:256]}", record.route
    if route is None:
        return NotFoundError(f"{place}: unknown path; see /openapi.json for all paths")
    allow = b"allow", route.method.encode()
    return _make_error(405, f"{place}: this path requires {route.method}", allow)


def _reject_duplicate_headers(record: Request) -> None:
    """Reject duplicate Host and Origin headers, as servers disagree on which one to use."""
    for name, shown in ((b"host", "Host"), (b"origin", "Origin")):
        if record.count_header(name) > 1:
            raise InvalidRequestError(
                f"the request has more than one {shown} header; HTTP requires exactly one"
            )


async def complete_lifespan(receive: Receive, send: Send) -> None:
    """Confirm the events of a lifespan without action."""
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})


# ---------------------------------------------------------------- app of a service


def make_app(
    service: Service,
    settings: ServeSettings | None = None,
    access: Access | None = None,
    metrics: Metrics | None = None,
) -> HttpApp:
    """Create the ASGI application of a service.

    Parameters
    ----------
    service : Service
    settings : ServeSettings, optional
        None for a service mounted in another application, which is responsible for hosts,
        authentication and logging: any Host is accepted and only failures are logged.  Pages
        of other origins are rejected.
    access : Access, optional
    metrics : Metrics, optional
        Metrics of the process, if other transports share them.

    Raises
    ------
    SettingError
        If a host, an origin or the token file is invalid.
    MissingExtraError
        If the extra ``serve`` is not installed.
    """
    if settings is None:
        settings = ServeSettings((), allow_hosts=("*",), log="quiet", limits=service.limits)
    metrics = metrics or Metrics(service)
    service.repository.subscribe(log_changes)
    service.repository.subscribe(metrics.count_changes)
    routes = [*list_routes(service), make_metrics_route(metrics)]
    return HttpApp(service, settings, access or Access(settings), metrics, routes)


def list_routes(service: Service) -> list[Route]:
    """Return all routes of a service but the metrics, the most frequent first."""
    document = always_send(make_json_reply(make_document()))
    return [
        *list_protocol_routes(service),
        *list_json_routes(service),
        *list_page_routes(service),
        Route("GET", "/openapi.json", document, "description"),
    ]
